"""The blended method: each pass adds rows with a small g to an active set, and pairs of coordinates are optimized in
it.

The steps in memory are those of sequential minimal optimization with sum a fixed: weight moves from a row of the
support with a large g to a row with a small g. The pair is chosen by second-order information, on the Gram matrix of a
working set. The passes are those of Frank-Wolfe methods: g is computed at all rows, and the gap is exact. The
combination needs few passes, and its steps are cheap.

If memory does not hold all rows, pools grow from pass to pass. The first pool is a sample of the rows; its solution is
a point of the simplex of all rows and a fair classifier. A pass then finds the rows that violate their margins, and up
to twice as many of these as in the last pool are added. Each pool is solved before the next pass, because rows that a
poor classifier selects would only enlarge the support.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

import numpy as np

from streamsvm.compute.random import draw_lots, smallest_keys
from streamsvm.config.options import Bounds, Option
from streamsvm.rows import Float64, Int64
from streamsvm.solvers.kernel.pool import Pool
from streamsvm.solvers.kernel.simplex import PoolWork, ReachedGap, SimplexSolver, SimplexState
from streamsvm.solvers.kernel.smo import Progress, matrix_bytes, max_rounds, optimize_working_set, working_size

GROWING_SHARE = 0.75
"""Of the rows that are new in a working set, this fraction are rows with the smallest g, and the others belong to the
support. More rows must be added to the support than corrected in it (a9a, C = 1: 50,400 kernel columns instead of
56,600)."""
WORST_SHARE = 0.25
"""If more rows violate their margin than the pool can hold, this fraction of the offered rows are those with the
smallest g. The others are drawn from all violators, because the worst alone are a biased sample of outliers and wrong
labels."""


@dataclass(frozen=True)
class Blended(SimplexSolver):
    """The blended active-set method."""

    working: Annotated[
        int, Option("Size of the working set: coordinates optimized together.", bounds=Bounds(least=2))
    ] = 2048
    pool_share: ClassVar[float] = 1.0 / 3.0
    """By default the pool holds a third of all rows; the active set seldom grows beyond."""
    first_pool_rows: ClassVar[float] = 8192
    """Number of rows of the first pool, a sample of all rows."""
    fair_gap_ratio: ClassVar[float] = 0.5
    """A pool that does not hold all rows is solved at least to a gap of half of f, which gives a fair classifier."""

    def rounds(self, pool: Pool) -> int:
        """Return the maximum number of working sets between two passes."""
        return max_rounds(pool.size, self.working)

    def method_bytes(self, rows: int) -> int:
        """Return the bytes of the matrices of a working set."""
        return matrix_bytes(min(self.working, rows))

    def choose(self, state: SimplexState, index: Int64, v: Float64, count: int) -> Int64:
        """Return the positions of the rows with the smallest g. If more than ``count`` rows violate their margin, most
        of the returned rows are a random sample of these.
        """
        violated = np.flatnonzero(v > -2.0 * state.f)
        if state.support is None or len(violated) <= count:
            return super().choose(state, index, v, count)
        worst = smallest_keys(-v, int(WORST_SHARE * count))
        others = np.setdiff1d(violated, worst)
        drawn = others[smallest_keys(draw_lots(index[others], state.passes), count - len(worst))]
        return np.concatenate([worst, drawn])

    def begin(self, state: SimplexState, pool: Pool) -> None:
        """Put equal weight on the rows of a randomly drawn working set."""
        drawn = np.random.default_rng(pool.size).permutation(pool.size)[: max(self.working // 2, 1)]
        self.spread_weight(state, pool, drawn)

    def improve(self, state: SimplexState, work: PoolWork) -> ReachedGap | None:
        """Optimize a working set by pairs of coordinates. Return the gap and f instead if the gap in the pool is small
        enough, no working sets are left, or time is up.
        """
        progress: Progress = work.method or Progress(work.iterations_left)
        work.method, reached = progress, gap_in_pool(work.pool)
        allowed, working = work.target.allowed_gap(reached.f), working_size(self.working, state.form)
        is_time_up = len(progress.recent) and state.is_time_up(work.pool.x)
        if reached.gap > allowed and not is_time_up and not progress.is_over(state.deadline):
            optimize_working_set(
                work.pool, state.form, working, progress, allowed, growing=GROWING_SHARE, deadline=state.deadline
            )
            return None
        state.iterations += progress.moves.steps
        return reached


def gap_in_pool(pool: Pool) -> ReachedGap:
    """Return the gap 2 f - min g over the pool, and f. The pool must contain all rows with weight."""
    lowest = -float(np.max(pool.v, where=pool.high > 0.0, initial=-np.inf))
    f = -0.5 * float(pool.x @ pool.v)
    return ReachedGap(2.0 * f - lowest, f)
