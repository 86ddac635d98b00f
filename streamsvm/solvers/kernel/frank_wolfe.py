"""Frank-Wolfe methods: the basic one, with away steps, with swaps, and with parallel tangents (Frandi, Nanculef,
Suykens).

Each pass over the data offers rows to the method (``simplex.py``). This module makes the steps on the pool, the rows in
memory. There are two regimes:

*deterministic* (``sample`` 0): the gradient entry g of every row of the pool is updated in every step, and the vertex
is the row with the smallest g. A step costs one kernel column over the pool, or nothing if the column is in the cache.
If the pool holds all rows, this is the textbook algorithm, with thousands of iterations between two passes, and the
next pass certifies the result.

*randomized* (``sample`` 194): the vertex is the row with the smallest g among this many rows drawn from the pool. g is
computed from the support alone, so that a step costs sample x support whatever the number of rows. (194 rows contain
one of the smallest 2 % with a probability of 0.98.) mfw and swap take weight from the row with the largest g of the
whole support or, with ``away`` drawn, of as many rows drawn from the support; the paper does not say which. The method
stops when two successive sampled gaps are within epsilon. Every pass draws a new pool from all blocks, so that every
row can be drawn without a disk seek. A pool that does not hold all rows is replaced after each row was drawn a few
times on average, and the method only stops in a new pool, on whose rows no step was made. The pass after the stop
computes the true gap.

**The steps** (``Iterations``, ``StepsFromSamples``; formulas in ``compute.passes.frank_wolfe``) do not depend on where
the matrix K comes from: here from rows and a kernel, in ``solvers.l1_ball`` from the columns of a least-squares
problem. ``Iterations`` has g of every vertex. ``StepsFromSamples`` computes g of the drawn vertices from those with
weight: f and, for PARTAN, W follow recursions, and nothing is stored for vertices without weight. Variants that take
weight from a vertex use by default the one with the largest g among all with weight. The g of these is updated in every
step with the two columns of K that the step uses, so that one vertex is evaluated instead of a second sample.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, ClassVar, Protocol, Self

import numpy as np

from streamsvm.class_tags import saved_as
from streamsvm.compute.blocks.selection import take_rows
from streamsvm.compute.kernel_values.arithmetic import DIFFERENCES, dtype_of
from streamsvm.compute.kernel_values.kernel_matrix import diagonal, kernel_block, points_of
from streamsvm.compute.passes.frank_wolfe import (
    Tangent,
    away_room,
    away_step,
    blend,
    exchange,
    extrapolate,
    find_highest,
    find_lowest,
    swap_step,
    tangent_room,
    tangent_step,
    tangent_value,
    toward_step,
    toward_value,
)
from streamsvm.compute.random import draw_lots, smallest_keys
from streamsvm.config.options import Bounds, Option, Quantity
from streamsvm.rows import Float64, Int64, Rows, row_count, row_stack, to_matrix
from streamsvm.solvers.kernel.cache import KernelCache
from streamsvm.solvers.kernel.pool import Form, Pool
from streamsvm.solvers.kernel.simplex import PoolWork, ReachedGap, SimplexSolver, SimplexState, Target
from streamsvm.type_aliases import Array
from streamsvm.types import Problem

MIN_CACHE = 8 << 20
"""Least useful bytes of the cache of kernel columns; scarce memory does not reduce it further."""
AGREEMENTS_TO_STOP = 2
"""Number of successive sampled gaps within the target at which the randomized regime stops."""
ITERATIONS_IN_STEP = 64
"""Number of iterations of one in-memory step; the run can be saved or stopped between steps."""
DRAWS_PER_ROW = 8
"""Average number of draws of each row of a pool before the pool is replaced, if it does not hold all rows."""
ROWS_PER_LOT = 128
"""Support rows are concatenated in lots of this size, because concatenation copies all of them."""
RESUM_EVERY = 256
"""Number of iterations after which f = 1/2 a'g, and with PARTAN f(b) and b'Ka, are recomputed as sums."""
TAKE_WEIGHT = frozenset({"mfw", "swap"})
"""The variants that also take weight from a vertex."""


class MatrixColumns(Protocol):
    """The columns of K: of a kernel (``cache.KernelCache``), or of the vertices of the l1 ball."""

    diagonal: Float64
    """(m,) K_ii."""

    def column(self, i: int, g: Float64) -> Array:
        """Return K_i (m,). A cache may prefetch the columns with the smallest ``g`` (m,), which are likely to be
        next.
        """
        ...


@saved_as("simplex.iterations")
@dataclass(slots=True)
class Iterations:
    """Iterations that update g = Ka of every vertex."""

    a: Float64
    """(m,) the weights of the pool's rows, 0 or more, with the sum 1."""
    g: Float64
    """(m,) Ka, the gradient of f at a, updated in every step."""
    columns: MatrixColumns
    variant: str
    """``fw``: steps toward a vertex; ``mfw``: also away from one; ``swap``: also between two; ``partan``: also along a
    tangent."""
    open_step: bool = False
    """Whether the k-th step toward a vertex has the length 2 / (k + 2), instead of that of an exact line search."""
    count: int = 0
    """Number of iterations so far, those in earlier pools included."""
    f: float = 0.0
    """1/2 a'Ka, by recursion, and regularly recomputed as a sum."""
    i: int = 0
    """The vertex to step toward: the row with the smallest g; set by ``gap``."""
    previous_a: Float64 = field(default_factory=lambda: np.empty(0))
    """(m,) the previous iterate, for PARTAN; (0,) for other variants."""
    previous_g: Float64 = field(default_factory=lambda: np.empty(0))
    """(m,) the gradient at the previous iterate, for PARTAN; (0,) for other variants."""
    tangent: Tangent | None = None
    """The values at the previous iterate that PARTAN's second line search needs; None before the second iteration, and
    for other variants."""

    def __post_init__(self) -> None:
        self.f = 0.5 * float(self.a @ self.g)
        if self.variant == "partan":
            self.previous_a, self.previous_g = self.a.copy(), self.g.copy()

    @property
    def support(self) -> int:
        """Number of rows with weight."""
        return int(np.count_nonzero(self.a))

    def gap(self) -> float:
        """Return the gap 2 f - min g, and choose the vertex to step toward."""
        self.i = find_lowest(self.g)
        return 2.0 * self.f - float(self.g[self.i])

    def advance(self) -> None:
        """Make one iteration with the vertex that ``gap`` has chosen."""
        if self.variant == "partan":
            self._step_partan()
        elif self.variant == "mfw":
            self._step_toward_or_away()
        elif self.variant == "swap":
            self._step_swap()
        else:
            self._step_toward()
        self.count += 1
        if self.count % RESUM_EVERY == 0:
            self._resum()

    def _resum(self) -> None:
        """Recompute all values that follow recursions as sums. f and the tangent must be recomputed together, because
        steps use their differences, which are small.
        """
        self.f = 0.5 * float(self.a @ self.g)
        if self.tangent is not None:
            self.tangent = Tangent(0.5 * float(self.previous_a @ self.previous_g), float(self.previous_a @ self.g))

    def _step_toward(self) -> float:
        i, K_ii = self.i, self.columns.diagonal[self.i]
        length = 2.0 / (self.count + 2.0) if self.open_step else toward_step(self.f, self.g[i], K_ii).length
        self.f = toward_value(self.f, self.g[i], K_ii, length)
        blend(self.a, self.g, 1.0 - length, self.columns.column(i, self.g), length)
        self.a[i] += length
        return length

    def _step_toward_or_away(self) -> None:
        v = find_highest(self.g, self.a)
        if self.g[v] - 2.0 * self.f <= 2.0 * self.f - self.g[self.i]:
            self._step_toward()
            return
        step = away_step(self.f, self.g[v], self.columns.diagonal[v], self.a[v])
        is_dropped = 0.0 < away_room(self.a[v]) <= step.length
        blend(self.a, self.g, 1.0 + step.length, self.columns.column(v, self.g), -step.length)
        self.a[v] = 0.0 if is_dropped else self.a[v] - step.length
        self.f -= step.fall

    def _step_swap(self) -> None:
        i, v, diagonal = self.i, find_highest(self.g, self.a), self.columns.diagonal
        K_i = self.columns.column(i, self.g)
        toward = toward_step(self.f, self.g[i], diagonal[i])
        swap = swap_step(self.g[i], self.g[v], diagonal[i] + diagonal[v] - 2.0 * K_i[v], self.a[v])
        if toward.fall >= swap.fall:
            self._step_toward()
            return
        exchange(self.g, K_i, self.columns.column(v, self.g), swap.length)
        self.a[i] += swap.length
        self.a[v] -= swap.length
        self.f -= swap.fall

    def _step_partan(self) -> None:
        i, old_f, old_a, old_g = self.i, self.f, self.a.copy(), self.g.copy()
        g_i, h_i = float(self.g[i]), float(self.previous_g[i])
        length = self._step_toward()
        along = (1.0 - length) * 2.0 * old_f + length * g_i
        if self.tangent is None:  # the first step has no previous iterate
            self.previous_a[:], self.previous_g[:] = old_a, old_g
            self.tangent = Tangent(old_f, along)
            return
        A = (1.0 - length) * self.tangent.W + length * h_i
        m = tangent_step(self.tangent, self.f, A, tangent_room(self.a, self.previous_a))
        self.f = tangent_value(self.tangent, self.f, A, m)
        W = (1.0 + m) * along - m * self.tangent.W
        extrapolate(self.a, self.g, self.previous_a, self.previous_g, old_a, old_g, m)
        self.tangent = Tangent(old_f, W)


class StepsFromSamples(ABC):
    """Iterations that draw a sample of vertices. Subclasses are dataclasses that declare these fields, in the order of
    their saved format.
    """

    variant: str
    open_step: bool
    count: int
    f: float
    """1/2 a'Ka, by recursion."""
    members: list[int]
    """The vertices that have or had weight, in the order in which they were added."""
    a: Float64
    """The weights of the members, followed by zeros as room for more members."""
    previous_a: Float64
    """The weights of the previous iterate, for PARTAN, laid out like ``a``."""
    tangent: Tangent | None
    """The values at the previous iterate that PARTAN's second line search needs; None before the second iteration, and
    for other variants."""
    size: int
    """The number of members, which is the used length of ``a`` and ``previous_a``."""
    away: str
    """How the vertex to take weight from is chosen: ``exact`` among all with weight, ``drawn`` among a sample of
    them."""
    _diagonal: Float64
    _place: Int64
    """(vertices,) the position of each vertex among the members; -1: it is no member."""
    _i: int
    """The vertex to step toward."""
    away_vertex: int
    """The vertex v to take weight from."""
    _g: tuple[float, float, float]
    """g_i, g_v, and the gradient entry of i at ``previous_a``."""
    _K_iv: float
    """K_iv."""
    _gradients: Float64
    """(members,) g, updated in every step if ``away`` is exact and the variant takes weight from a vertex."""
    _columns: tuple[Float64, ...]
    """(members,) K_i and K_v of the next step, if ``_gradients`` is updated; else empty."""

    @abstractmethod
    def _kernel(self, asked: Int64) -> Array:
        """Return the columns (members, asked) from which ``_gradient``, ``_entry`` and ``_column`` are computed."""

    @abstractmethod
    def _gradient(self, K: Array, asked: Int64, a: Float64) -> Float64:
        """Return Ka at the vertices ``asked``, given their columns K."""

    @abstractmethod
    def _entry(self, K: Array, k: int) -> float:
        """Return K_iv of the vertices of the next step; i is the k-th of the asked vertices."""

    @abstractmethod
    def _column(self, K: Array, k: int, vertex: int) -> Float64:
        """Return the column of K for ``vertex``, the k-th of the asked vertices, at the members."""

    @abstractmethod
    def _append(self, vertex: int) -> None:
        """Store what ``_kernel`` needs of a new member."""

    @property
    def support(self) -> int:
        """Number of rows with weight."""
        return int(np.count_nonzero(self.a))

    def find_vertices(self, drawn: Int64, draw: np.random.Generator) -> float:
        """Choose the vertices of the next step, and return the gap over the drawn vertices.

        ``draw``: the generator for the sample of the support, if ``away`` is drawn.
        """
        takes_weight = self.variant in TAKE_WEIGHT
        exact, self._columns = takes_weight and self.away == "exact", ()
        if exact:
            away_drawn = np.array([self.members[find_highest(self._gradients, self.a[: self.size])]], np.int64)
        elif takes_weight:
            away_drawn = np.array(self.members, np.int64)[draw.integers(0, self.size, len(drawn))]
        else:
            away_drawn = drawn[:0]
        asked = np.concatenate([drawn, away_drawn])
        K = self._kernel(asked)
        g = self._gradient(K, asked, self.a)
        k = int(np.argmin(g[: len(drawn)]))
        self._i = int(asked[k])
        h = self._gradient(K[:, k : k + 1], asked[k : k + 1], self.previous_a)[0] if self.variant == "partan" else 0.0
        has_weight = self.a[self._place[away_drawn]] > 0.0
        top = len(drawn) + int(np.argmax(np.where(has_weight, g[len(drawn) :], -np.inf))) if takes_weight else k
        self.away_vertex = int(asked[top])
        if takes_weight:
            self._K_iv = self._diagonal[self._i] if self._i == self.away_vertex else self._entry(K, k)
        if exact:
            self._columns = self._column(K, k, self._i), self._column(K, top, self.away_vertex)
        self._g = (float(g[k]), float(g[top]), float(h))
        return 2.0 * self.f - self._g[0]

    def advance(self) -> None:
        """Make one iteration with the vertices that ``find_vertices`` has chosen."""
        g_i, g_v, _ = self._g
        f, K_ii, K_vv = self.f, self._diagonal[self._i], self._diagonal[self.away_vertex]
        a_v = float(self.a[self._place[self.away_vertex]]) if self._place[self.away_vertex] >= 0 else 0.0
        self.count += 1
        if self.variant == "mfw" and a_v > 0.0 and g_v - 2.0 * f > 2.0 * f - g_i:
            self.step_away(a_v, g_v, K_vv)
        elif self.variant == "swap" and a_v > 0.0 and self._i != self.away_vertex:
            step = swap_step(g_i, g_v, K_ii + K_vv - 2.0 * self._K_iv, a_v)
            if step.fall > toward_step(f, g_i, K_ii).fall:
                self._step_swap(step.length)
                self.f -= step.fall
            else:
                self._step_toward()
        elif self.variant == "partan":
            self._step_partan()
        else:
            self._step_toward()

    def _step_toward(self) -> float:
        g_i, K_ii = self._g[0], self._diagonal[self._i]
        length = 2.0 / (self.count + 1.0) if self.open_step else toward_step(self.f, g_i, K_ii).length
        self.f = toward_value(self.f, g_i, K_ii, length)
        place = self._add_member(self._i)
        self._update_gradients(1.0 - length, length, 0.0)
        self.a[: self.size] *= 1.0 - length
        self.a[place] += length
        return length

    def step_away(self, a_v: float, g_v: float, K_vv: float) -> None:
        """Step away from ``away_vertex``, whose weight, gradient entry and diagonal entry of K are given."""
        step = away_step(self.f, g_v, K_vv, a_v)
        is_dropped = 0.0 < away_room(a_v) <= step.length
        self._update_gradients(1.0 + step.length, 0.0, -step.length)
        self.a[: self.size] *= 1.0 + step.length
        place = self._place[self.away_vertex]
        self.a[place] = 0.0 if is_dropped else self.a[place] - step.length
        self.f -= step.fall

    def _step_swap(self, length: float) -> None:
        place = self._add_member(self._i)  # before self.a is used, since it may be replaced by a longer array
        self._update_gradients(1.0, length, -length)
        self.a[place] += length
        self.a[self._place[self.away_vertex]] -= length

    def _update_gradients(self, scale: float, change_i: float, change_v: float) -> None:
        """Update g of the members for the step from a to scale a + change_i e_i + change_v e_v."""
        if self._columns:
            K_i, K_v = self._columns
            self._gradients = scale * self._gradients + change_i * K_i + change_v * K_v

    def _step_partan(self) -> None:
        g_i, _, h_i = self._g
        old_f, old = self.f, self.a.copy()
        length = self._step_toward()
        old.resize(len(self.a))
        along = (1.0 - length) * 2.0 * old_f + length * g_i
        W = along
        if self.tangent is not None:
            A = (1.0 - length) * self.tangent.W + length * h_i
            m = tangent_step(self.tangent, self.f, A, tangent_room(self.a, self.previous_a))
            self.f = tangent_value(self.tangent, self.f, A, m)
            self.a = np.maximum((1.0 + m) * self.a - m * self.previous_a, 0.0)
            W = (1.0 + m) * along - m * self.tangent.W
        self.previous_a = old
        self.tangent = Tangent(old_f, W)

    def _add_member(self, row: int) -> int:
        """Return the position of a vertex among the members. A vertex that is no member is added."""
        if self._place[row] >= 0:
            return int(self._place[row])
        if self.size == len(self.a):
            self.a, self.previous_a = (np.concatenate([b, np.zeros(len(b))]) for b in (self.a, self.previous_a))
        if self._columns:
            K_i, K_v = self._columns
            self._gradients = np.append(self._gradients, self.a[: self.size] @ K_i)
            self._columns = np.append(K_i, self._diagonal[row]), np.append(K_v, self._K_iv)
        self._place[row] = self.size
        self.members.append(row)
        self.size += 1
        self._append(row)
        return self.size - 1


@saved_as("simplex.sampled_iterations")
@dataclass(slots=True)
class SampledIterations(StepsFromSamples):
    """Steps that draw samples of the rows of a pool; ``members`` are positions in the pool."""

    pool: Pool
    """The rows in memory. Their x is the start of the iterations, and is only changed by ``write``."""
    form: Form
    variant: str
    open_step: bool = False
    count: int = 0
    f: float = 0.0
    members: list[int] = field(default_factory=list)
    a: Float64 = field(default_factory=lambda: np.empty(0))
    previous_a: Float64 = field(default_factory=lambda: np.empty(0))
    tangent: Tangent | None = None
    size: int = 0
    _diagonal: Float64 = field(default_factory=lambda: np.empty(0))
    _place: Int64 = field(default_factory=lambda: np.empty(0, np.int64))
    _lots: list[Rows] = field(default_factory=list)
    """The rows of the members, in order. New rows are appended to the last lot."""
    _drawn: Any = None
    _i: int = 0
    away_vertex: int = 0
    _g: tuple[float, float, float] = (0.0, 0.0, 0.0)
    _K_iv: float = 0.0
    away: str = "drawn"
    _gradients: Float64 = field(default_factory=lambda: np.empty(0))
    _columns: tuple[Float64, ...] = ()

    def __post_init__(self) -> None:
        pool = self.pool
        plain = diagonal(pool.X, self.form.kernel, dtype_of(self.form.arithmetic)).astype(np.float64)
        self._diagonal = plain + self.form.constant + pool.ridge
        self.members = np.flatnonzero(pool.x).tolist()
        self.size = len(self.members)
        self._place = np.full(pool.size, -1, np.int64)
        self._place[self.members] = np.arange(self.size)
        self.a, self.previous_a = np.zeros(2 * self.size + ROWS_PER_LOT), np.zeros(2 * self.size + ROWS_PER_LOT)
        self.a[: self.size] = self.previous_a[: self.size] = pool.x[self.members]
        self._lots = [take_rows(pool.X, np.array(self.members))]
        self.f = -0.5 * float(pool.x @ pool.v)
        self._gradients = -pool.v[self.members]

    def _kernel(self, asked: Int64) -> Array:
        """Return the kernel values (members, asked) of the members and the asked rows, without constant, signs and
        ridge.
        """
        dtype, by_differences = dtype_of(self.form.arithmetic), self.form.arithmetic == DIFFERENCES
        points = points_of(to_matrix(take_rows(self.pool.X, asked), self.form.columns), dtype)
        out = np.empty((self.size, len(asked)), dtype)
        first = 0
        for lot in self._lots:
            rows = row_count(lot)
            kernel_block(lot, points, self.form.kernel, out[first : first + rows], by_differences=by_differences)
            first += rows
        return out

    def _gradient(self, K: Array, asked: Int64, a: Float64) -> Float64:
        pool, weights = self.pool, (self.pool.sign[self.members] * a[: self.size])
        f = (weights.astype(K.dtype) @ K).astype(np.float64) + self.form.constant * weights.sum()
        place = self._place[asked]
        a_asked = np.where(place >= 0, a[place], 0.0)
        return pool.sign[asked] * f + pool.ridge[asked] * a_asked

    def _entry(self, K: Array, k: int) -> float:
        sign = self.pool.sign[self._i] * self.pool.sign[self.away_vertex]
        value: float = sign * (float(K[self._place[self.away_vertex], k]) + self.form.constant)
        return value

    def _column(self, K: Array, k: int, vertex: int) -> Float64:
        sign, place = self.pool.sign, self._place[vertex]
        column: Float64 = (sign[vertex] * sign[self.members]) * (K[:, k].astype(np.float64) + self.form.constant)
        if place >= 0:
            column[place] = self._diagonal[vertex]
        return column

    def _append(self, vertex: int) -> None:
        new_row = take_rows(self.pool.X, np.array([vertex]))
        if len(self._lots) == 1 or row_count(self._lots[-1]) >= ROWS_PER_LOT:
            self._lots = [row_stack(self._lots), new_row]
        else:
            self._lots[-1] = row_stack([self._lots[-1], new_row])

    def write(self, pool: Pool) -> None:
        """Write the weights to the pool, normalized to the sum 1."""
        pool.x[:] = 0.0
        pool.x[self.members] = self.a[: self.size]
        pool.x /= pool.x.sum()


@saved_as("simplex.sampled_work")
@dataclass(slots=True)
class SampledWork:
    """The state of the randomized regime between two in-memory steps."""

    iterations: SampledIterations
    start_count: int
    """Number of iterations before the first one in this pool."""
    draws: Mapping[str, Any]
    """The state of numpy's random number generator."""
    agreements: int = 0
    """Number of successive sampled gaps within the target."""
    gap: float = np.inf
    """The last sampled gap."""


@dataclass(frozen=True)
class FrankWolfe(SimplexSolver):
    """The Frank-Wolfe method: steps toward the best vertex."""

    step: Annotated[
        str, Option("Step length: exact line search, or (fw only) open: 2 / (k + 2).", choices=("exact", "open"))
    ] = "exact"
    sample: Annotated[
        int, Option("Number of rows drawn to choose a vertex from. 0: all rows.", bounds=Bounds(least=0))
    ] = 0
    iterations: Annotated[int, Option("Maximum number of iterations between two passes.", bounds=Bounds(least=1))] = (
        100_000
    )
    cache: Annotated[
        int, Option("Memory for columns of the kernel matrix.", unit=Quantity.BYTES, bounds=Bounds(least=0))
    ] = 256 << 20
    seed: Annotated[int, Option("Seed for drawing rows.", bounds=Bounds(least=0))] = 0
    away: Annotated[
        str,
        Option(
            "With sample, the vertex that mfw and swap take weight from: the worst of the support (exact), or the "
            "worst of as many draws from it (drawn).",
            choices=("exact", "drawn"),
        ),
    ] = "exact"
    variant: ClassVar[str] = "fw"

    def method_bytes(self, rows: int) -> int:
        """Return the bytes of kernel columns and gradients, or of the kernel values of the drawn rows."""
        return (min(self.cache, 4 * rows**2) + 6 * 8 * rows) if self.sample == 0 else 3 * 8 * self.sample * rows

    def shrink_memory(self, problem: Problem, user_set: Collection[str]) -> Self | None:
        """Return the solver with half the cache of kernel columns, or with half the pool once the cache has its least
        size.
        """
        if self.cache >= 2 * MIN_CACHE:
            return replace(self, cache=self.cache // 2)
        return super().shrink_memory(problem, user_set)

    def memory_settings(self) -> dict[str, int | None]:
        """Return the rows of pool and support, and the bytes of the cache of kernel columns."""
        return {**super().memory_settings(), "cache": self.cache}

    def settings_without_effect(self, problem: Problem) -> dict[str, tuple[str, ...]]:
        ball = not problem.regularizer.is_squared_norm
        return {
            "rows are only drawn with the setting sample": ("seed", "away") if self.sample == 0 else (),
            f"{self.variant} has no steps that take weight from a single vertex": ("away",)
            * (self.variant not in TAKE_WEIGHT and self.sample > 0),
            "kernel values of drawn rows are not cached": ("cache",) if self.sample and not ball else (),
            "the l1 ball has columns instead of rows, and no kernel": ("cache", "keep") if ball else (),
        }

    def choose(self, state: SimplexState, index: Int64, v: Float64, count: int) -> Int64:
        """Return the positions of the rows with the smallest g, or in the randomized regime of rows drawn for this
        pass.
        """
        if self.sample == 0:
            return super().choose(state, index, v, count)
        return smallest_keys(draw_lots(index, 1 + self.seed + state.passes), count)

    def rounds(self, pool: Pool) -> int:
        """Return the maximum number of iterations between two passes."""
        return self.iterations

    def improve(self, state: SimplexState, work: PoolWork) -> ReachedGap | None:
        """Make steps of the variant. Return the gap and f at the stop, which comes when the gap over the pool or the
        sampled gap is small enough, no iterations are left, or time is up; None while the method has not stopped.
        """
        return self._improve_from_samples(state, work) if self.sample else self._improve_deterministically(state, work)

    def _improve_deterministically(self, state: SimplexState, work: PoolWork) -> ReachedGap | None:
        pool, iterations = work.pool, work.method or self._iterations(state, work.pool)
        work.method, most = iterations, min(ITERATIONS_IN_STEP, work.iterations_left)
        work.iterations_left -= most
        for _ in range(most):
            gap = iterations.gap()
            if iterations.count >= state.next_entry:
                state.add_due_entry(iterations.count, gap, iterations.f, iterations.support)
            if gap <= work.target.allowed_gap(iterations.f):
                break
            iterations.advance()
            if state.is_time_up(iterations.a):
                break
        else:
            if work.iterations_left:
                return None
        state.iterations = iterations.count
        pool.x[:], pool.v[:] = iterations.a, -iterations.g
        return ReachedGap(iterations.gap(), 0.5 * float(iterations.a @ iterations.g))

    def _iterations(self, state: SimplexState, pool: Pool) -> Iterations:
        column = np.dtype(dtype_of(state.form.arithmetic)).itemsize * pool.size  # the plan assumes float32 columns
        columns = KernelCache(pool, state.form, max(min(self.cache, 4 * pool.size**2) // column, 2))
        return Iterations(pool.x.copy(), -pool.v, columns, self.variant, self.step == "open", state.iterations)

    def _improve_from_samples(self, state: SimplexState, work: PoolWork) -> ReachedGap | None:
        pool = work.pool
        sampled: SampledWork = work.method or self._begin_sampling(state, work)
        draw = np.random.default_rng()
        draw.bit_generator.state = sampled.draws
        work.method, most = sampled, min(ITERATIONS_IN_STEP, work.iterations_left)
        work.iterations_left -= most
        iterations, target = sampled.iterations, Target(work.target.epsilon, work.target.relative)
        for _ in range(most):
            sampled.gap = iterations.find_vertices(draw.integers(0, pool.size, self.sample), draw)
            if iterations.count >= state.next_entry:
                state.add_due_entry(iterations.count, sampled.gap, iterations.f, iterations.support)
            sampled.agreements = sampled.agreements + 1 if sampled.gap <= target.allowed_gap(iterations.f) else 0
            if sampled.agreements == AGREEMENTS_TO_STOP:
                state.stopped = pool.size >= state.problem.rows or iterations.count == sampled.start_count
                break
            if sampled.agreements == 0:
                iterations.advance()
            if state.is_time_up(iterations.a):
                break
        else:
            if work.iterations_left:
                sampled.draws = draw.bit_generator.state
                return None
        state.iterations = iterations.count
        iterations.write(pool)
        return ReachedGap(sampled.gap, iterations.f)

    def _begin_sampling(self, state: SimplexState, work: PoolWork) -> SampledWork:
        """Return the start of the randomized regime at the weights of the pool. If the pool does not hold all rows,
        limit the number of iterations in it.
        """
        if work.pool.size < state.problem.rows:
            work.iterations_left = min(work.iterations_left, DRAWS_PER_ROW * work.pool.size // self.sample + 1)
        iterations = SampledIterations(
            work.pool, state.form, self.variant, self.step == "open", state.iterations, away=self.away
        )
        draws = np.random.default_rng((self.seed, state.passes)).bit_generator.state
        return SampledWork(iterations, iterations.count, dict(draws))


@dataclass(frozen=True)
class ModifiedFrankWolfe(FrankWolfe):
    """Frank-Wolfe with away steps (Guelat, Marcotte 1986): a step moves away from the worst vertex if its gap is larger
    than that of the best vertex.
    """

    variant: ClassVar[str] = "mfw"


@dataclass(frozen=True)
class Swap(FrankWolfe):
    """Frank-Wolfe with swaps (pairwise steps): a step moves weight from the worst vertex of the support to the best
    vertex of all, if f then falls by more than in a step toward the best vertex.
    """

    variant: ClassVar[str] = "swap"


@dataclass(frozen=True)
class Partan(FrankWolfe):
    """Frank-Wolfe with a second line search in each step, along the line from the previous iterate."""

    variant: ClassVar[str] = "partan"
