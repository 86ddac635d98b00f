"""Blended: per pass the rows with the smallest g enter the active set, and pairs of coordinates are optimised inside it.

The steps in memory are those of sequential minimal optimisation with sum a fixed: weight moves from the row of the
support with a large g to one with a small g, the pair chosen by second order, on the Gram matrix of a working set. The
passes are Frank-Wolfe's: all rows answer, the gap is exact. Hence few passes and cheap steps, both.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from streamsvm.solvers.pool import Pool, improve_until
from streamsvm.solvers.simplex import OnSimplex, Reached, SimplexState

GROWING = 0.75
"""Of the rows that are new in a working set: those with the smallest g; the others are of the support. There are all of
it to find and only some of it to correct (a9a, C = 1: 50,400 kernel columns instead of 56,600)."""


@dataclass(frozen=True)
class Blended(OnSimplex):
    """Settings. ``working``: coordinates optimised together on their Gram matrix."""

    working: int = 2048
    share: ClassVar[float] = 1.0 / 3.0

    def scratch(self, rows: int) -> int:
        return 4 * min(self.working, rows) ** 2

    def begin(self, state: SimplexState, pool: Pool) -> None:
        """Equal weight on a working set drawn at random."""
        drawn = np.random.default_rng(pool.size).permutation(pool.size)[: max(self.working // 2, 1)]
        self._spread(state, pool, drawn)

    def improve(self, state: SimplexState, pool: Pool, target: float) -> Reached:
        state.iterations += improve_until(
            pool, state.form, self.working, target, lambda: gap_of(pool) <= target, growing=GROWING
        )
        return Reached(gap_of(pool), -0.5 * float(pool.x @ pool.v))


def gap_of(pool: Pool) -> float:
    """2 f - min g over the pool, which holds all weight."""
    lowest = -float(np.max(pool.v, where=pool.high > 0.0, initial=-np.inf))
    return -float(pool.x @ pool.v) - lowest
