"""Frank-Wolfe, with away steps, with swaps, and accelerated by parallel tangents (Frandi, Nanculef, Suykens).

A pass offers rows to the method (``simplex.py``); here the method works on the rows in memory. Two regimes:

*deterministic* (``sample`` 0): g of every row of the pool is kept up, the vertex is the smallest of them; a step
costs one kernel column over the pool, or none where it is in the cache. If the pool holds all rows this is the textbook
algorithm, thousands of iterations to a reading; the next pass certifies.

*randomized* (``sample`` 194): the vertex is the smallest g of this many rows drawn from the pool, computed from the
support alone: a step costs sample x support whatever the number of rows. (194 rows hold one of the smallest 2 % with
probability 0.98.) The vertex that mfw and swap take weight from is the worst of the whole support, or with ``away``
drawn of as many draws from it: the paper does not say which it has. A sampled gap within epsilon must be met twice in
succession. Pools are drawn anew in every pass, from all blocks, so that every row can be drawn without a disk seek;
where they do not hold all rows, a pool is left after some draws of each row, and the gap must be met in one on whose
rows no step was made. The pass after the stop says the true gap.

The variants differ in their steps alone (``frank_wolfe_steps.py``).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, ClassVar, Self

import numpy as np

from streamsvm.aliases import Array
from streamsvm.compute.blocks.selection import take_rows
from streamsvm.compute.kernel_values.gram import diagonal, kernel_block, points_of
from streamsvm.compute.kernel_values.rounding import DIFFERENCES, dtype_of
from streamsvm.compute.passes.frank_wolfe import Tangent
from streamsvm.compute.random import draw_lots, smallest_keys
from streamsvm.config.options import Bounds, Option, Quantity
from streamsvm.rows import Float64, Int64, Rows, row_count, row_stack, to_matrix
from streamsvm.solvers.kernel.cache import KernelCache
from streamsvm.solvers.kernel.frank_wolfe_steps import TAKE_WEIGHT, Iterations, StepsFromSamples
from streamsvm.solvers.kernel.pool import Form, Pool
from streamsvm.solvers.kernel.simplex import PoolWork, SeenGap, SimplexSolver, SimplexState, Target
from streamsvm.tags import saved_as
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
    vertex: int = 0
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
        sign = self.pool.sign[self._i] * self.pool.sign[self.vertex]
        value: float = sign * (float(K[self._place[self.vertex], k]) + self.form.constant)
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

    def smaller(self, problem: Problem, asked: Collection[str]) -> Self | None:
        """Return the solver with half the cache of columns, and with half the pool once that has come to its least."""
        if self.cache >= 2 * MIN_CACHE:
            return replace(self, cache=self.cache // 2)
        return super().smaller(problem, asked)

    def memory_settings(self) -> dict[str, int | None]:
        """Return the rows of pool and support, and the bytes for kernel columns."""
        return {**super().memory_settings(), "cache": self.cache}

    def idle(self, problem: Problem) -> dict[str, tuple[str, ...]]:
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
