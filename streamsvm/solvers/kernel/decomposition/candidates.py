"""Which rows make the next pool: what a visit offers of its block, what is taken of that, what of the last pool stays.

The worst violators where they are few. Where there are many more than a pool holds, a share of them drawn at random and a
few of the worst, for the worst alone are a biased lot (``multilevel.SAMPLED_FROM``).
"""

from __future__ import annotations

import numpy as np

from streamsvm.compute.random import lots, smallest
from streamsvm.solvers.kernel.decomposition.multilevel import NEGLIGIBLE_SHARE, WORST_ROWS
from streamsvm.solvers.kernel.decomposition.state import DecompositionState
from streamsvm.solvers.kernel.pool import Pool, depth, select, unite, worst

CARRIED_SHARE = 0.25
"""The most of a new pool that is taken from the last one: rows still between their bounds."""


def offer(state: DecompositionState, rows: Pool, seed: int) -> None:
    """Hand the block's violators to the pool: all, or a share of them drawn at random, and a few of the worst."""
    if state.problem.rows <= state.capacity:
        state.candidates.append(select(rows, np.arange(rows.size)))
        return
    if state.beginning:
        state.candidates.append(select(rows, np.sort(smallest(lots(rows.index, 0), state.capacity))))
        shorten_offer(state)
        return
    violating = depth(rows, state.intercept) > NEGLIGIBLE_SHARE * state.reach
    state.violators += int(violating.sum())
    if state.rate < 1.0:
        draws = np.random.default_rng((seed, int(rows.index[0]))).random(rows.size)
        chosen = np.union1d(np.flatnonzero(violating & (draws < state.rate)), worst(rows, WORST_ROWS))
    else:
        chosen = worst(rows, state.capacity)
    state.candidates.append(select(rows, chosen))
    shorten_offer(state)


def shorten_offer(state: DecompositionState) -> None:
    """Leave of the rows that were offered as many as the pool may have, where they are more than twice as many."""
    if sum(o.size for o in state.candidates) > 2 * state.capacity:
        state.candidates = [trimmed(state, unite(state.candidates), state.capacity)]


def trimmed(state: DecompositionState, rows: Pool, count: int) -> Pool:
    """Return ``count`` of the rows that were offered, or all: the worst, or a draw with a few of the worst."""
    if rows.size <= count:
        return rows
    if state.beginning:
        return select(rows, np.sort(smallest(lots(rows.index, 0), count)))
    if state.rate >= 1.0:
        return select(rows, worst(rows, count))
    drawn = np.random.default_rng(rows.size).permutation(rows.size)[: count - WORST_ROWS]
    return select(rows, np.union1d(drawn, worst(rows, WORST_ROWS)))


def next_pool(state: DecompositionState) -> Pool:
    """Return what was offered beside what of the last pool is still between its bounds, a quarter at most."""
    offered, last = unite(state.candidates), state.pool
    if last is None or state.problem.rows <= state.capacity:
        return trimmed(state, offered, state.capacity)
    free = np.flatnonzero((last.x > last.low) & (last.x < last.high))
    drawn = np.random.default_rng(len(free)).permutation(free)[: int(CARRIED_SHARE * state.capacity)]
    kept = select(last, np.sort(drawn))
    fresh = select(offered, np.flatnonzero(~np.isin(offered.index, kept.index)))
    return unite([kept, trimmed(state, fresh, state.capacity - kept.size)])
