"""Frank-Wolfe, with away steps, with swaps, and accelerated by parallel tangents (Frandi, Nanculef, Suykens).

A pass offers rows to the method (``simplex.py``); here the method works on the rows in memory. Two regimes:

*deterministic* (``sample`` 0): g of every row of the pool is kept up, the vertex is the smallest of them; a step
costs one kernel column over the pool, or none where it is in the cache. If the pool holds all rows this is the textbook
algorithm, thousands of iterations to a reading; the next pass certifies.

*randomized* (``sample`` 194): the vertex is the smallest g of this many rows drawn from the pool, computed from the
support alone: a step costs sample x support whatever the number of rows. (194 rows hold one of the smallest 2 % with
probability 0.98.) The vertex that mfw and swap take weight from is the worst of the whole support or, with ``away``
drawn, the worst of as many rows drawn from it; the paper does not say which. A sampled gap within epsilon must be met
twice in succession. Pools are drawn anew in every pass, from all blocks, so that every row can be drawn without a disk seek;
a pool that does not hold all rows is replaced after some draws of each row, and the gap must be met in a new pool, on
whose rows no step was made. The pass after the stop computes the true gap.

**The steps** (``Iterations``, ``StepsFromSamples``; formulas in ``compute.passes.frank_wolfe``) do not depend on what
the matrix K is made of: here of rows and a kernel, in ``solvers.l1_ball`` of the columns of a least-squares problem.
``Iterations`` has g of every vertex. ``StepsFromSamples`` computes g of the vertices drawn, from those with weight
alone: f and, for PARTAN, W follow their recursions, and nothing is kept for vertices without weight. Where weight is
also taken from a vertex, that is by default the one of largest g among all with weight: their g is kept up with every
step, by the two columns of K that the step is made of, so that one vertex is evaluated instead of a second sample.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, ClassVar, Protocol, Self

import numpy as np

from streamsvm.aliases import Array
from streamsvm.class_tags import saved_as
from streamsvm.compute.blocks.selection import take_rows
from streamsvm.compute.kernel_values.kernel_matrix import diagonal, kernel_block, points_of
from streamsvm.compute.kernel_values.rounding import DIFFERENCES, dtype_of
from streamsvm.compute.passes.frank_wolfe import (
    Tangent,
    away_room,
    away_step,
    blend,
    exchange,
    extrapolate,
    highest,
    lowest,
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
from streamsvm.solvers.kernel.simplex import PoolWork, SeenGap, SimplexSolver, SimplexState, Target
from streamsvm.types import Problem

MIN_CACHE = 8 << 20
"""Bytes of kernel columns that are still of use: scarce memory leaves no fewer."""
AGREEMENTS_TO_STOP = 2
"""Sampled gaps within the target, one after the other, that stop the randomized regime."""
ITERATIONS_IN_STEP = 64
"""Iterations between two checks whether the run is to be saved, or to stop."""
DRAWS_PER_ROW = 8
"""How often a row of a pool that does not hold all rows is drawn, on average, before the next pool is."""
ROWS_PER_LOT = 128
"""New support rows are appended to the others in lots of this size: joining copies them all."""
RESUM_EVERY = 256
"""Iterations after which f = 1/2 a'g, and with PARTAN f(b) and b'Ka, are summed anew."""
TAKE_WEIGHT = frozenset({"mfw", "swap"})
"""The variants that also take weight from a vertex."""


class MatrixColumns(Protocol):
    """The columns of K: of a kernel (``cache.KernelCache``), or of the vertices of the l1 ball."""

    diagonal: Float64
    """(m,) K_ii."""

    def column(self, i: int, g: Float64) -> Array:
        """Return K_i (m,); ``g`` (m,) says which others are likely to be asked for next: those where it is smallest."""
        ...


@saved_as("simplex.iterations")
@dataclass(slots=True)
class Iterations:
    """Iterations with g = Ka of every vertex kept up."""

    a: Float64
    """(m,) the weights of the pool's rows, at least 0, which sum to 1."""
    g: Float64
    """(m,) Ka, the gradient of f at a, kept up with every step."""
    columns: MatrixColumns
    variant: str
    """``fw``: steps toward a vertex; ``mfw``: also away from one; ``swap``: also between two; ``partan``: also along a
    tangent."""
    open_step: bool = False
    """Whether a step toward a vertex has the length 2 / (k + 2) of the k-th iteration, instead of the exact one."""
    count: int = 0
    """Iterations made since the run began, those in earlier pools included."""
    f: float = 0.0
    """1/2 a'Ka, by recursion and every so often as a sum."""
    i: int = 0
    """The vertex to step toward: the row of smallest g, as ``gap`` found it."""
    before: Float64 = field(default_factory=lambda: np.empty(0))
    """(m,) the iterate before a, for PARTAN; (0,) for other variants."""
    g_before: Float64 = field(default_factory=lambda: np.empty(0))
    """(m,) its gradient; (0,) for other variants."""
    tangent: Tangent | None = None
    """What PARTAN's second search needs of the iterate before; None before there is one, and for other variants."""

    def __post_init__(self) -> None:
        self.f = 0.5 * float(self.a @ self.g)
        if self.variant == "partan":
            self.before, self.g_before = self.a.copy(), self.g.copy()

    @property
    def support(self) -> int:
        """Rows with weight."""
        return int(np.count_nonzero(self.a))

    def gap(self) -> float:
        """Return 2 f - min g; find the vertex to step toward."""
        self.i = lowest(self.g)
        return 2.0 * self.f - float(self.g[self.i])

    def advance(self) -> None:
        """Make one iteration from the vertex that ``gap`` has found."""
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
        """Sum up all that recursions carry at once: f alone would not fit the tangent, whose differences are small."""
        self.f = 0.5 * float(self.a @ self.g)
        if self.tangent is not None:
            self.tangent = Tangent(0.5 * float(self.before @ self.g_before), float(self.before @ self.g))

    def _step_toward(self) -> float:
        i, K_ii = self.i, self.columns.diagonal[self.i]
        length = 2.0 / (self.count + 2.0) if self.open_step else toward_step(self.f, self.g[i], K_ii).length
        self.f = toward_value(self.f, self.g[i], K_ii, length)
        blend(self.a, self.g, 1.0 - length, self.columns.column(i, self.g), length)
        self.a[i] += length
        return length

    def _step_toward_or_away(self) -> None:
        v = highest(self.g, self.a)
        if self.g[v] - 2.0 * self.f <= 2.0 * self.f - self.g[self.i]:
            self._step_toward()
            return
        step = away_step(self.f, self.g[v], self.columns.diagonal[v], self.a[v])
        dropped = 0.0 < away_room(self.a[v]) <= step.length
        blend(self.a, self.g, 1.0 + step.length, self.columns.column(v, self.g), -step.length)
        self.a[v] = 0.0 if dropped else self.a[v] - step.length
        self.f -= step.fall

    def _step_swap(self) -> None:
        i, v, diagonal = self.i, highest(self.g, self.a), self.columns.diagonal
        gains = self.columns.column(i, self.g)
        toward = toward_step(self.f, self.g[i], diagonal[i])
        swap = swap_step(self.g[i], self.g[v], diagonal[i] + diagonal[v] - 2.0 * gains[v], self.a[v])
        if toward.fall >= swap.fall:
            self._step_toward()
            return
        exchange(self.g, gains, self.columns.column(v, self.g), swap.length)
        self.a[i] += swap.length
        self.a[v] -= swap.length
        self.f -= swap.fall

    def _step_partan(self) -> None:
        i, old_f, old_a, old_g = self.i, self.f, self.a.copy(), self.g.copy()
        g_i, h_i = float(self.g[i]), float(self.g_before[i])
        length = self._step_toward()
        along = (1.0 - length) * 2.0 * old_f + length * g_i
        if self.tangent is None:  # the first step has no iterate before it
            self.before[:], self.g_before[:] = old_a, old_g
            self.tangent = Tangent(old_f, along)
            return
        A = (1.0 - length) * self.tangent.W + length * h_i
        m = tangent_step(self.tangent, self.f, A, tangent_room(self.a, self.before))
        self.f = tangent_value(self.tangent, self.f, A, m)
        W = (1.0 + m) * along - m * self.tangent.W
        extrapolate(self.a, self.g, self.before, self.g_before, old_a, old_g, m)
        self.tangent = Tangent(old_f, W)


class StepsFromSamples(ABC):
    """Iterations from samples. The dataclasses that inherit them declare these fields, in an order that checkpoints
    know.
    """

    variant: str
    open_step: bool
    count: int
    f: float
    """1/2 a'Ka, by recursion."""
    members: list[int]
    """Vertices that have or had weight, in the order they came in."""
    a: Float64
    """The weights of the members, and zeros after them: room for more."""
    before: Float64
    """The weights in the iterate before, for PARTAN, laid out like ``a``."""
    tangent: Tangent | None
    """What PARTAN's second search needs of the iterate before; None before there is one, and for other variants."""
    size: int
    """How many members there are: so much of ``a`` and ``before`` counts."""
    away: str
    """Where the vertex that weight is taken from is looked for: ``exact`` among all with weight, ``drawn`` among a
    sample of them."""
    _diagonal: Float64
    _place: Int64
    """(vertices,) the place of each among the members; -1: it is none."""
    _i: int
    """The vertex to step toward."""
    away_vertex: int
    """The vertex to take weight from."""
    _g: tuple[float, float, float]
    """g_i, g_v, and the gradient at ``before`` of i."""
    _across: float
    """K_iv."""
    _gradients: Float64
    """(members,) g, kept up where ``away`` is exact and the variant takes weight from a vertex."""
    _columns: tuple[Float64, ...]
    """(members,) K_i and K_v of the next step, where ``_gradients`` are kept up; else empty."""

    @abstractmethod
    def _kernel(self, asked: Int64) -> Array:
        """Return the columns (members, asked) from which ``_gradient``, ``_entry`` and ``_column`` are made."""

    @abstractmethod
    def _gradient(self, K: Array, asked: Int64, a: Float64) -> Float64:
        """Return Ka at the vertices asked for."""

    @abstractmethod
    def _entry(self, K: Array, k: int) -> float:
        """Return K_iv of the vertices of the next step, i the k-th of those asked for."""

    @abstractmethod
    def _column(self, K: Array, k: int, vertex: int) -> Float64:
        """Return K of the members and ``vertex``, the k-th of those asked for."""

    @abstractmethod
    def _append(self, vertex: int) -> None:
        """Store what ``_kernel`` needs of a new member."""

    @property
    def support(self) -> int:
        """Rows with weight."""
        return int(np.count_nonzero(self.a))

    def find_vertices(self, drawn: Int64, draw: np.random.Generator) -> float:
        """Return the gap over the vertices drawn; find the vertices of the next step."""
        away = self.variant in TAKE_WEIGHT
        exact, self._columns = away and self.away == "exact", ()
        if exact:
            chosen = np.array([self.members[highest(self._gradients, self.a[: self.size])]], np.int64)
        elif away:
            chosen = np.array(self.members, np.int64)[draw.integers(0, self.size, len(drawn))]
        else:
            chosen = drawn[:0]
        asked = np.concatenate([drawn, chosen])
        K = self._kernel(asked)
        g = self._gradient(K, asked, self.a)
        k = int(np.argmin(g[: len(drawn)]))
        self._i = int(asked[k])
        h = self._gradient(K[:, k : k + 1], asked[k : k + 1], self.before)[0] if self.variant == "partan" else 0.0
        weighty = self.a[self._place[chosen]] > 0.0
        top = len(drawn) + int(np.argmax(np.where(weighty, g[len(drawn) :], -np.inf))) if away else k
        self.away_vertex = int(asked[top])
        if away:
            self._across = self._diagonal[self._i] if self._i == self.away_vertex else self._entry(K, k)
        if exact:
            self._columns = self._column(K, k, self._i), self._column(K, top, self.away_vertex)
        self._g = (float(g[k]), float(g[top]), float(h))
        return 2.0 * self.f - self._g[0]

    def advance(self) -> None:
        """Make one iteration from the vertices that ``find_vertices`` has found."""
        g_i, g_v, _ = self._g
        f, K_ii, K_vv = self.f, self._diagonal[self._i], self._diagonal[self.away_vertex]
        a_v = float(self.a[self._place[self.away_vertex]]) if self._place[self.away_vertex] >= 0 else 0.0
        self.count += 1
        if self.variant == "mfw" and a_v > 0.0 and g_v - 2.0 * f > 2.0 * f - g_i:
            self.step_away(a_v, g_v, K_vv)
        elif self.variant == "swap" and a_v > 0.0 and self._i != self.away_vertex:
            step = swap_step(g_i, g_v, K_ii + K_vv - 2.0 * self._across, a_v)
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
        place = self._admit(self._i)
        self._update_gradients(1.0 - length, length, 0.0)
        self.a[: self.size] *= 1.0 - length
        self.a[place] += length
        return length

    def step_away(self, a_v: float, g_v: float, K_vv: float) -> None:
        """Step away from ``away_vertex``, whose weight, gradient and diagonal entry of K are given."""
        step = away_step(self.f, g_v, K_vv, a_v)
        dropped = 0.0 < away_room(a_v) <= step.length
        self._update_gradients(1.0 + step.length, 0.0, -step.length)
        self.a[: self.size] *= 1.0 + step.length
        place = self._place[self.away_vertex]
        self.a[place] = 0.0 if dropped else self.a[place] - step.length
        self.f -= step.fall

    def _step_swap(self, length: float) -> None:
        place = self._admit(self._i)  # before self.a is looked up: it may grow
        self._update_gradients(1.0, length, -length)
        self.a[place] += length
        self.a[self._place[self.away_vertex]] -= length

    def _update_gradients(self, keep: float, gained: float, lost: float) -> None:
        """Update g of the members for the step from a to keep a + gained e_i + lost e_v."""
        if self._columns:
            K_i, K_v = self._columns
            self._gradients = keep * self._gradients + gained * K_i + lost * K_v

    def _step_partan(self) -> None:
        g_i, _, h_i = self._g
        old_f, old = self.f, self.a.copy()
        length = self._step_toward()
        old.resize(len(self.a))
        along = (1.0 - length) * 2.0 * old_f + length * g_i
        W = along
        if self.tangent is not None:
            A = (1.0 - length) * self.tangent.W + length * h_i
            m = tangent_step(self.tangent, self.f, A, tangent_room(self.a, self.before))
            self.f = tangent_value(self.tangent, self.f, A, m)
            self.a = np.maximum((1.0 + m) * self.a - m * self.before, 0.0)
            W = (1.0 + m) * along - m * self.tangent.W
        self.before = old
        self.tangent = Tangent(old_f, W)

    def _admit(self, row: int) -> int:
        """Return the place of a vertex among the members, to which it is added if need be."""
        if self._place[row] >= 0:
            return int(self._place[row])
        if self.size == len(self.a):
            self.a, self.before = (np.concatenate([b, np.zeros(len(b))]) for b in (self.a, self.before))
        if self._columns:
            K_i, K_v = self._columns
            self._gradients = np.append(self._gradients, self.a[: self.size] @ K_i)
            self._columns = np.append(K_i, self._diagonal[row]), np.append(K_v, self._across)
        self._place[row] = self.size
        self.members.append(row)
        self.size += 1
        self._append(row)
        return self.size - 1


@saved_as("simplex.sampled_iterations")
@dataclass(slots=True)
class SampledIterations(StepsFromSamples):
    """Steps from samples of the rows of a pool; ``members`` are places in the pool."""

    pool: Pool
    """The rows in memory; their x is where the iterations begin, and is written by ``write`` alone."""
    form: Form
    variant: str
    open_step: bool = False
    count: int = 0
    f: float = 0.0
    members: list[int] = field(default_factory=list)
    a: Float64 = field(default_factory=lambda: np.empty(0))
    before: Float64 = field(default_factory=lambda: np.empty(0))
    tangent: Tangent | None = None
    size: int = 0
    _diagonal: Float64 = field(default_factory=lambda: np.empty(0))
    _place: Int64 = field(default_factory=lambda: np.empty(0, np.int64))
    _lots: list[Rows] = field(default_factory=list)
    """The rows of the members; new ones come to the last lot."""
    _drawn: Any = None
    _i: int = 0
    away_vertex: int = 0
    _g: tuple[float, float, float] = (0.0, 0.0, 0.0)
    _across: float = 0.0
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
        self.a, self.before = np.zeros(2 * self.size + ROWS_PER_LOT), np.zeros(2 * self.size + ROWS_PER_LOT)
        self.a[: self.size] = self.before[: self.size] = pool.x[self.members]
        self._lots = [take_rows(pool.X, np.array(self.members))]
        self.f = -0.5 * float(pool.x @ pool.v)
        self._gradients = -pool.v[self.members]

    def _kernel(self, asked: Int64) -> Array:
        """Return k between the members and the rows asked for, without constant, signs and ridge (members, asked)."""
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
        own = np.where(place >= 0, a[place], 0.0)
        return pool.sign[asked] * f + pool.ridge[asked] * own

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
        fresh = take_rows(self.pool.X, np.array([vertex]))
        if len(self._lots) == 1 or row_count(self._lots[-1]) >= ROWS_PER_LOT:
            self._lots = [row_stack(self._lots), fresh]
        else:
            self._lots[-1] = row_stack([self._lots[-1], fresh])

    def write(self, pool: Pool) -> None:
        """Give the weights back to the pool."""
        pool.x[:] = 0.0
        pool.x[self.members] = self.a[: self.size]
        pool.x /= pool.x.sum()


@saved_as("simplex.sampled_work")
@dataclass(slots=True)
class SampledWork:
    """The state of the randomized regime between two of its steps."""

    iterations: SampledIterations
    begun: int
    """Iterations that had been made when the pool was new."""
    draws: Mapping[str, Any]
    """The state of numpy's generator of random numbers."""
    agreed: int = 0
    """Sampled gaps within the target, one after the other."""
    gap: float = np.inf
    """The last sampled gap."""


@dataclass(frozen=True)
class FrankWolfe(SimplexSolver):
    """Settings of the Frank-Wolfe method; steps toward the best vertex alone."""

    step: Annotated[
        str, Option("Step length: exact line search, or (fw) open: 2 / (k + 2).", choices=("exact", "open"))
    ] = "exact"
    sample: Annotated[int, Option("Rows drawn to find a vertex among. 0: all.", bounds=Bounds(least=0))] = 0
    iterations: Annotated[int, Option("Iterations between two passes, at most.", bounds=Bounds(least=1))] = 100_000
    cache: Annotated[
        int, Option("Memory for columns of the kernel matrix.", unit=Quantity.BYTES, bounds=Bounds(least=0))
    ] = 256 << 20
    seed: Annotated[int, Option("Seed of the rows that are drawn.", bounds=Bounds(least=0))] = 0
    away: Annotated[
        str,
        Option(
            "Vertex that weight is taken from where rows are drawn (mfw, swap): the worst of the support (exact), or of as "
            "many draws from it (drawn).",
            choices=("exact", "drawn"),
        ),
    ] = "exact"
    variant: ClassVar[str] = "fw"

    def scratch(self, rows: int) -> int:
        """Return the bytes of kernel columns and gradients, or of the kernel values of the rows drawn."""
        return (min(self.cache, 4 * rows**2) + 6 * 8 * rows) if self.sample == 0 else 3 * 8 * self.sample * rows

    def shrink_memory(self, problem: Problem, asked: Collection[str]) -> Self | None:
        """Return the solver with half the cache of columns, and with half the pool once that has come to its least."""
        if self.cache >= 2 * MIN_CACHE:
            return replace(self, cache=self.cache // 2)
        return super().shrink_memory(problem, asked)

    def memory_settings(self) -> dict[str, int | None]:
        """Return the rows of pool and support, and the bytes for kernel columns."""
        return {**super().memory_settings(), "cache": self.cache}

    def ignored_settings(self, problem: Problem) -> dict[str, tuple[str, ...]]:
        ball = not problem.regularizer.is_squared_norm
        return {
            "no rows are drawn without sample": ("seed", "away") if self.sample == 0 else (),
            f"{self.variant} takes weight from no vertex alone": ("away",)
            * (self.variant not in TAKE_WEIGHT and self.sample > 0),
            "kernel values of the rows drawn are not stored": ("cache",) if self.sample and not ball else (),
            "there is no kernel, and there are columns in the place of rows": ("cache", "keep") if ball else (),
        }

    def choose(self, state: SimplexState, index: Int64, v: Float64, count: int) -> Int64:
        """Return the places of the smallest g, or in the randomized regime of any rows, others in every pass."""
        if self.sample == 0:
            return super().choose(state, index, v, count)
        return smallest_keys(draw_lots(index, 1 + self.seed + state.passes), count)

    def rounds(self, pool: Pool) -> int:
        """Return the iterations between two passes at most."""
        return self.iterations

    def improve(self, state: SimplexState, work: PoolWork) -> SeenGap | None:
        """Make steps of the variant; return where it stopped once the gap, over the pool or as sampled, will do, or
        time is up.
        """
        return self._improve_from_samples(state, work) if self.sample else self._improve_deterministically(state, work)

    def _improve_deterministically(self, state: SimplexState, work: PoolWork) -> SeenGap | None:
        pool, iterations = work.pool, work.method or self._iterations(state, work.pool)
        work.method, most = iterations, min(ITERATIONS_IN_STEP, work.left)
        work.left -= most
        for _ in range(most):
            gap = iterations.gap()
            if iterations.count >= state.due:
                state.add_due_entry(iterations.count, gap, iterations.f, iterations.support)
            if gap <= work.target.allowed_gap(iterations.f):
                break
            iterations.advance()
            if state.is_time_up(iterations.a):
                break
        else:
            if work.left:
                return None
        state.iterations = iterations.count
        pool.x[:], pool.v[:] = iterations.a, -iterations.g
        return SeenGap(iterations.gap(), 0.5 * float(iterations.a @ iterations.g))

    def _iterations(self, state: SimplexState, pool: Pool) -> Iterations:
        column = np.dtype(dtype_of(state.form.arithmetic)).itemsize * pool.size  # planned are all, or float32
        columns = KernelCache(pool, state.form, max(min(self.cache, 4 * pool.size**2) // column, 2))
        return Iterations(pool.x.copy(), -pool.v, columns, self.variant, self.step == "open", state.iterations)

    def _improve_from_samples(self, state: SimplexState, work: PoolWork) -> SeenGap | None:
        pool = work.pool
        known: SampledWork = work.method or self._begin_sampling(state, work)
        draw = np.random.default_rng()
        draw.bit_generator.state = known.draws
        work.method, most = known, min(ITERATIONS_IN_STEP, work.left)
        work.left -= most
        iterations, asked = known.iterations, Target(work.target.epsilon, work.target.relative)
        for _ in range(most):
            known.gap = iterations.find_vertices(draw.integers(0, pool.size, self.sample), draw)
            if iterations.count >= state.due:
                state.add_due_entry(iterations.count, known.gap, iterations.f, iterations.support)
            known.agreed = known.agreed + 1 if known.gap <= asked.allowed_gap(iterations.f) else 0
            if known.agreed == AGREEMENTS_TO_STOP:
                state.stopped = pool.size >= state.problem.rows or iterations.count == known.begun
                break
            if known.agreed == 0:
                iterations.advance()
            if state.is_time_up(iterations.a):
                break
        else:
            if work.left:
                known.draws = draw.bit_generator.state
                return None
        state.iterations = iterations.count
        iterations.write(pool)
        return SeenGap(known.gap, iterations.f)

    def _begin_sampling(self, state: SimplexState, work: PoolWork) -> SampledWork:
        """Return the randomized regime at the weights of the pool; bound the draws where the pool does not hold all
        rows.
        """
        if work.pool.size < state.problem.rows:
            work.left = min(work.left, DRAWS_PER_ROW * work.pool.size // self.sample + 1)
        iterations = SampledIterations(
            work.pool, state.form, self.variant, self.step == "open", state.iterations, away=self.away
        )
        draws = np.random.default_rng((self.seed, state.passes)).bit_generator.state
        return SampledWork(iterations, iterations.count, dict(draws))


@dataclass(frozen=True)
class ModifiedFrankWolfe(FrankWolfe):
    """With away steps (Guelat, Marcotte 1986): weight is also taken from the worst vertex, where that is the larger
    gap.
    """

    variant: ClassVar[str] = "mfw"


@dataclass(frozen=True)
class Swap(FrankWolfe):
    """With pairwise steps: weight moves from the worst vertex of the support to the best of all, if f falls by more."""

    variant: ClassVar[str] = "swap"


@dataclass(frozen=True)
class Partan(FrankWolfe):
    """With a second line search, along the line from the iterate before."""

    variant: ClassVar[str] = "partan"
