"""A pool's problem solved on levels: a subset of a pool is a pool.

A subset is solved without a look at the other rows until its violation is a tenth of what the whole pool had. Then the
gradient of all rows follows what has moved in the end - once, however often a coordinate moved on the way. Between all
rows and a working set there are as many levels as it takes to keep the ratio of their sizes small. This is shrinking,
with the gradient reconstructed at the end of each level, and the start from a sample, in one rule.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from streamsvm.compute.blocks.row_selection import take
from streamsvm.solvers.kernel.pool import Form, Pool, depth, extremes, select, violation, worst
from streamsvm.solvers.kernel.working_set import (
    INNER_SHARE,
    Improvement,
    follow,
    group_equal_rows,
    improve,
    improve_groups,
    rounds_for,
)
from streamsvm.tags import saved_as

LEVEL_RATIO = 8
"""A level has at most so many times the rows of the one below."""
SAMPLED_FROM = 2.5
"""Where there are more violators than this many pools full, the pool is a random sample of them. The worst alone are a
biased lot: solved by themselves they upset all others, and passes undo each other (covtype 50,000 rows, pool 8192: more
than 700 passes against 40)."""
NEGLIGIBLE_SHARE = 0.05
"""Rows that violate by less than this part of the violation of all are not counted among the violators."""
WORST_ROWS = 16
"""Of the worst rows, so many are offered whatever is drawn."""


@saved_as("decomposition.level")
@dataclass(slots=True)
class Level:
    """A pool on its way to be solved: by subsets, which are the next level, or by working sets."""

    pool: Pool
    """Its rows; their x and v are as the last subset left them."""
    tolerance: float
    """The violation that will do."""
    known: Improvement
    """How far the work has come, the subset under way included."""


def solve_step(levels: list[Level], form: Form, working: int, deadline: float = math.inf) -> bool:
    """Make one step of solving the problem of the first level; whether there is another to make. Changes the levels.

    A step begins or ends a subset, or optimizes a working set. A level is left after so many rounds as it has, or once the
    moment ``deadline`` has passed, whatever its violation.
    """
    level = levels[-1]
    pool, known, found = level.pool, level.known, violation(level.pool)
    if found <= level.tolerance or known.over(deadline):
        return _left(levels, form)
    count = size_below(pool.size, working)
    if len(levels) == 1 and pool.size > working and (group := group_equal_rows(pool, working)) is not None:
        improve_groups(pool, form, group, known, level.tolerance, deadline=deadline)
        return True
    if count <= working:
        improve(pool, form, working, known, level.tolerance, deadline=deadline)
    else:
        known.begin(subset(pool, count, known.recent))
        inner = max(0.5 * level.tolerance, INNER_SHARE * found)
        rounds = rounds_for(count, size_below(count, working))
        levels.append(Level(select(pool, known.recent), inner, Improvement(rounds)))
    return True


def _left(levels: list[Level], form: Form) -> bool:
    """Leave the last level for the one above; whether there is one."""
    if len(levels) == 1:
        return False
    part, above = levels.pop(), levels[-1]
    moved = _join(above.pool, above.known.recent, part.pool, form)
    above.known.end(part.known.moves, moved=moved)
    return True


def size_below(size: int, working: int) -> int:
    """The rows of the level below one of ``size``: equal ratios down to a working set."""
    if size <= working:
        return working
    levels = math.ceil(math.log(size / working) / math.log(LEVEL_RATIO) - 1e-9)
    return int(size * (working / size) ** (1.0 / levels)) if levels > 1 else working


def subset(pool: Pool, count: int, recent: NDArray[np.int64]) -> NDArray[np.int64]:
    """The rows to solve next: violators, and of those solved last some that are between their bounds, half at most."""
    free = recent[(pool.x[recent] > pool.low[recent]) & (pool.x[recent] < pool.high[recent])]
    free = np.random.default_rng(len(free)).permutation(free)[: count // 2]
    top, bottom = extremes(pool)
    fresh = np.flatnonzero(depth(pool, threshold(pool)) > NEGLIGIBLE_SHARE * (top - bottom))
    if len(fresh) > SAMPLED_FROM * count:
        drawn = np.random.default_rng(len(fresh)).permutation(fresh)[: count - len(free) - WORST_ROWS]
        return np.union1d(free, np.union1d(drawn, worst(pool, WORST_ROWS)))
    return np.union1d(free, worst(pool, count - len(free)))


def threshold(pool: Pool) -> float:
    """An estimate of what all v between their bounds have at the optimum."""
    free = (pool.x > pool.low) & (pool.x < pool.high)
    return float(np.median(pool.v[free])) if free.any() else 0.5 * sum(extremes(pool))


def _join(pool: Pool, chosen: NDArray[np.int64], part: Pool, form: Form) -> bool:
    """Bring x and v of the pool to where a part of it was solved to; whether anything moved."""
    change = part.x - pool.x[chosen]
    moved = np.flatnonzero(change)
    follow(pool, form, take(part.X, moved), (part.sign * change)[moved])
    pool.x[chosen], pool.v[chosen] = part.x, part.v
    return len(moved) > 0
