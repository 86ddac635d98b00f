"""Frank-Wolfe, with away steps, with swaps, and accelerated by parallel tangents (Frandi, Nanculef, Suykens).

A pass offers rows to the method (``solver.py``); here the method works on the rows in memory. Two regimes:

*deterministic* (``sample`` 0): g of every row of the pool is kept in step, the vertex is the smallest of them; a step
costs one kernel column over the pool, from the cache where it is there. If the pool holds all rows this is the textbook
algorithm, thousands of iterations to a reading; the next pass certifies.

*randomized* (``sample`` 194): the vertex is the smallest g of so many rows drawn from the pool, computed from the support
alone: a step costs sample x support whatever the number of rows. (194 rows hold one of the smallest 2 % with probability
0.98.) The vertex that mfw and swap take weight from is the worst of the whole support, or with ``away`` drawn of as many draws from
it: the paper does not say which it has. A sampled gap within epsilon must be met twice in succession. Pools are drawn anew in every pass, from all blocks,
so that every row can be drawn without a disk seek; where they do not hold all rows, a pool is left after some draws of
each row, and the gap must be met in one on whose rows no step was made. The pass after the stop says the true gap.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Any, ClassVar, Self

import numpy as np

from streamsvm.compute.kernel_values.rounding import dtype_of
from streamsvm.compute.random import draw_lots, smallest_keys
from streamsvm.config.fields import Bounds, Option, Quantity
from streamsvm.rows import Float64, Int64
from streamsvm.solvers.kernel.cache import KernelCache
from streamsvm.solvers.kernel.pool import Pool
from streamsvm.solvers.kernel.simplex.iterations import Iterations
from streamsvm.solvers.kernel.simplex.sampled_iterations import SampledIterations
from streamsvm.solvers.kernel.simplex.sampled_steps import TAKE_WEIGHT
from streamsvm.solvers.kernel.simplex.solver import OnSimplex
from streamsvm.solvers.kernel.simplex.state import PoolWork, Reached, SimplexState, Target
from streamsvm.solvers.l1_ball.solver import OnL1Ball
from streamsvm.tags import saved_as
from streamsvm.types import Problem

LEAST_CACHE = 8 << 20
"""Bytes for kernel columns that are still of use: want of memory leaves no fewer."""
AGREEMENTS_TO_STOP = 2
"""Sampled gaps within the target, one after the other, that stop the randomized regime."""
ITERATIONS_IN_STEP = 64
"""Iterations between two looks whether the run is to be saved, or to stop."""
DRAWS_PER_ROW = 8
"""How often a row of a pool that does not hold all rows is drawn, on average, before the next pool is."""


@saved_as("simplex.sampled_work")
@dataclass(slots=True)
class SampledWork:
    """What the randomized regime knows between two of its steps."""

    iterations: SampledIterations
    """The method itself."""
    begun: int
    """Iterations that had been made when the pool was new."""
    draws: Mapping[str, Any]
    """Where the generator of random numbers is, as numpy says it."""
    agreed: int = 0
    """Sampled gaps within the target, one after the other."""
    gap: float = np.inf
    """The last sampled gap."""

    def generator(self) -> np.random.Generator:
        """A generator that goes on from there."""
        generator = np.random.default_rng()
        generator.bit_generator.state = self.draws
        return generator


@dataclass(frozen=True)
class FrankWolfe(OnSimplex):
    """Settings of the Frank-Wolfe method."""

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
    """Steps toward the best vertex alone."""

    def scratch(self, rows: int) -> int:
        """Bytes of kernel columns and gradients, or of the kernel values of the rows drawn."""
        return (min(self.cache, 4 * rows**2) + 6 * 8 * rows) if self.sample == 0 else 3 * 8 * self.sample * rows

    def smaller(self, problem: Problem, asked: Collection[str]) -> Self | None:
        """The cache of columns goes before rows do."""
        if self.cache >= 2 * LEAST_CACHE:
            return replace(self, cache=self.cache // 2)
        return super().smaller(problem, asked)

    def memory_settings(self) -> dict[str, int | None]:
        """Rows of pool and support, and bytes for kernel columns."""
        return {**super().memory_settings(), "cache": self.cache}

    def idle(self, problem: Problem) -> dict[str, tuple[str, ...]]:
        ball = problem.l1_ball is not None
        return {
            "no rows are drawn without sample": ("seed", "away") if self.sample == 0 else (),
            f"{self.variant} takes weight from no vertex alone": ("away",)
            * (self.variant not in TAKE_WEIGHT and self.sample > 0),
            "kernel values of the rows drawn are not stored": ("cache",) if self.sample and not ball else (),
            "there is no kernel, and there are columns in the place of rows": ("cache", "keep") if ball else (),
        }

    def in_l1_ball(self) -> OnL1Ball:
        """The same method on the vertices of the l1 ball, ``pool`` columns at a time."""
        return OnL1Ball(
            self.pool,
            self.variant,
            self.step == "open",
            self.sample,
            self.iterations,
            self.epsilon,
            self.seed,
            self.away,
        )

    def choose(self, state: SimplexState, index: Int64, v: Float64, count: int) -> Int64:
        """The smallest g, or in the randomized regime any rows, others in every pass."""
        if self.sample == 0:
            return super().choose(state, index, v, count)
        return smallest_keys(draw_lots(index, 1 + self.seed + state.passes), count)

    def rounds(self, pool: Pool) -> int:
        """Iterations between two passes, at most."""
        return self.iterations

    def improve(self, state: SimplexState, work: PoolWork) -> Reached | None:
        """Take steps of the variant; where it stopped once the gap, over the pool or as sampled, is allowed, or time is up."""
        return self._randomized(state, work) if self.sample else self._deterministic(state, work)

    def _deterministic(self, state: SimplexState, work: PoolWork) -> Reached | None:
        pool, iterations = work.pool, work.method or self._iterations(state, work.pool)
        work.method, most = iterations, min(ITERATIONS_IN_STEP, work.left)
        work.left -= most
        for _ in range(most):
            gap = iterations.gap()
            state.record_progress(iterations, gap)
            if gap <= work.target.allowed(iterations.f):
                break
            iterations.advance()
            if state.time_is_up(iterations.a):
                break
        else:
            if work.left:
                return None
        state.iterations = iterations.count
        pool.x[:], pool.v[:] = iterations.a, -iterations.g
        return Reached(iterations.gap(), 0.5 * float(iterations.a @ iterations.g))

    def _iterations(self, state: SimplexState, pool: Pool) -> Iterations:
        column = np.dtype(dtype_of(state.form.arithmetic)).itemsize * pool.size  # planned are all, or float32
        columns = KernelCache(pool, state.form, max(min(self.cache, 4 * pool.size**2) // column, 2))
        return Iterations(pool.x.copy(), -pool.v, columns, self.variant, self.step == "open", state.iterations)

    def _randomized(self, state: SimplexState, work: PoolWork) -> Reached | None:
        pool = work.pool
        known: SampledWork = work.method or self._sampled(state, work)
        work.method, most, draw = known, min(ITERATIONS_IN_STEP, work.left), known.generator()
        work.left -= most
        iterations, asked = known.iterations, Target(work.target.epsilon, work.target.relative)
        for _ in range(most):
            known.gap = iterations.find_vertices(draw.integers(0, pool.size, self.sample), draw)
            state.record_progress(iterations, known.gap)
            known.agreed = known.agreed + 1 if known.gap <= asked.allowed(iterations.f) else 0
            if known.agreed == AGREEMENTS_TO_STOP:
                state.stopped = pool.size >= state.problem.rows or iterations.count == known.begun
                break
            if known.agreed == 0:
                iterations.advance()
            if state.time_is_up(iterations.a):
                break
        else:
            if work.left:
                known.draws = draw.bit_generator.state
                return None
        state.iterations = iterations.count
        iterations.write(pool)
        return Reached(known.gap, iterations.f)

    def _sampled(self, state: SimplexState, work: PoolWork) -> SampledWork:
        if work.pool.size < state.problem.rows:
            work.left = min(work.left, DRAWS_PER_ROW * work.pool.size // self.sample + 1)
        iterations = SampledIterations(
            work.pool, state.form, self.variant, self.step == "open", state.iterations, away=self.away
        )
        draws = np.random.default_rng((self.seed, state.passes)).bit_generator.state
        return SampledWork(iterations, iterations.count, dict(draws))


@dataclass(frozen=True)
class ModifiedFrankWolfe(FrankWolfe):
    """With away steps (Guelat, Marcotte 1986): weight is also taken from the worst vertex of the support."""

    variant: ClassVar[str] = "mfw"
    """Steps toward the best vertex, or away from the worst where that is the larger gap."""


@dataclass(frozen=True)
class Swap(FrankWolfe):
    """With pairwise steps: weight moves from the worst vertex of the support to the best of all, if f falls by more."""

    variant: ClassVar[str] = "swap"
    """Steps that move weight between two vertices, where f falls by more than with one toward the best."""


@dataclass(frozen=True)
class Partan(FrankWolfe):
    """With a second line search through the iterate before the last."""

    variant: ClassVar[str] = "partan"
    """Steps toward the best vertex, each followed by a search along the line from the iterate before."""
