"""Blended: per pass rows with a small g enter the active set, and pairs of coordinates are optimized inside it.

The steps in memory are those of sequential minimal optimization with sum a fixed: weight moves from the row of the
support with a large g to one with a small g, the pair chosen by second order, on the Gram matrix of a working set. The
passes are Frank-Wolfe's: all rows answer, the gap is exact. Hence few passes and cheap steps, both.

Where memory does not hold all rows the run climbs by levels: a sample of the rows is solved, which is a point of the
simplex of all of them and a fair classifier; a pass finds which rows its margins are violated by, and twice as many of
those as there were rows at first come in. A level is solved before the next is begun: what is taken into a support that
is not yet worth anything only crowds it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

import numpy as np

from streamsvm.compute.random import draw_lots, smallest_keys
from streamsvm.config.options import Bounds, Option
from streamsvm.rows import Float64, Int64
from streamsvm.solvers.kernel.pool import Pool
from streamsvm.solvers.kernel.simplex import PoolWork, SeenGap, SimplexSolver, SimplexState
from streamsvm.solvers.kernel.smo import Progress, matrix_bytes, max_rounds, optimize_working_set, working_size

GROWING_SHARE = 0.75
"""Of the rows that are new in a working set, this share has the smallest g; the others are of the support. There are
all of it to find and only some of it to correct (a9a, C = 1: 50,400 kernel columns instead of 56,600)."""
WORST_SHARE = 0.25
"""Where more rows are violated than there is room for, this share of those offered has the smallest g. The others are
drawn from the violated ones: the worst alone are a biased lot, outliers and wrong labels."""


@dataclass(frozen=True)
class Blended(SimplexSolver):
    """Settings of the blended active-set method."""

    working: Annotated[int, Option("Coordinates optimized together, on their Gram matrix.", bounds=Bounds(least=2))] = (
        2048
    )
    share: ClassVar[float] = 1.0 / 3.0
    """A third of all rows in the pool is worth its memory: the active set seldom grows beyond."""
    first: ClassVar[float] = 8192
    """Rows of the first pool, a sample that is solved before rows that violate its margins come in."""
    fair: ClassVar[float] = 0.5
    """A pool that does not hold all rows is solved at least to a gap of half f, a fair classifier."""

    def rounds(self, pool: Pool) -> int:
        """Return the working sets between two passes at most."""
        return max_rounds(pool.size, self.working)

    def scratch(self, rows: int) -> int:
        """Return the bytes of the matrices of a working set."""
        return matrix_bytes(min(self.working, rows))

    def choose(self, state: SimplexState, index: Int64, v: Float64, count: int) -> Int64:
        """Return the places of the smallest g, and where more rows than there is room for violate their margin, a
        sample of these.
        """
        violated = np.flatnonzero(v > -2.0 * state.f)
        if state.support is None or len(violated) <= count:
            return super().choose(state, index, v, count)
        worst = smallest_keys(-v, int(WORST_SHARE * count))
        others = np.setdiff1d(violated, worst)
        drawn = others[smallest_keys(draw_lots(index[others], state.passes), count - len(worst))]
        return np.concatenate([worst, drawn])

    def begin(self, state: SimplexState, pool: Pool) -> None:
        """Put equal weight on a working set drawn at random."""
        drawn = np.random.default_rng(pool.size).permutation(pool.size)[: max(self.working // 2, 1)]
        self.spread_weight(state, pool, drawn)

    def improve(self, state: SimplexState, work: PoolWork) -> SeenGap | None:
        """Optimize a working set by pairs of coordinates, unless the gap in the pool is small enough, or time is up."""
        known: Progress = work.method or Progress(work.left)
        work.method, found = known, gap_in_pool(work.pool)
        allowed, working = work.target.allowed_gap(found.f), working_size(self.working, state.form)
        begun = len(known.recent) and state.is_time_up(work.pool.x)
        if found.gap > allowed and not begun and not known.is_over(state.deadline):
            optimize_working_set(
                work.pool, state.form, working, known, allowed, growing=GROWING_SHARE, deadline=state.deadline
            )
            return None
        state.iterations += known.moves.steps
        return found


def gap_in_pool(pool: Pool) -> SeenGap:
    """Return 2 f - min g over the pool, which holds all weight, and f."""
    lowest = -float(np.max(pool.v, where=pool.high > 0.0, initial=-np.inf))
    f = -0.5 * float(pool.x @ pool.v)
    return SeenGap(2.0 * f - lowest, f)
