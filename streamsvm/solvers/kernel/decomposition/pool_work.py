"""The work between two passes: the pool of the worst violators is made, and optimized one working set after another."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import numpy as np

from streamsvm.solvers.kernel.decomposition.candidates import next_pool
from streamsvm.solvers.kernel.decomposition.multilevel import SAMPLED_FROM, Level, size_below, solve_step, threshold
from streamsvm.solvers.kernel.decomposition.state import DecompositionState, LevelWork
from streamsvm.solvers.kernel.rounding import error_of_values
from streamsvm.solvers.kernel.working_set import ROUNDS, Improvement, coordinates, in_order, late, rounds_for, select

if TYPE_CHECKING:
    from streamsvm.solvers.kernel.decomposition.solver import Decomposition

POOL_SHARE = 0.1
"""The pool is solved until its violation is this part of what the pass found over all rows."""


def begin_work(settings: Decomposition, state: DecompositionState, violation: float) -> None:
    """Make the pool of the candidates and of rows held before, which is to be solved."""
    pool = in_order(next_pool(state))
    state.capacity = min(2 * state.capacity, settings.pool)
    state.rate = 1.0 if state.violators <= SAMPLED_FROM * state.capacity else state.capacity / state.violators
    working = working_coordinates(settings, state)
    below = size_below(pool.size, working)
    on_levels = pool.size == state.problem.rows and below > working
    known = Improvement(ROUNDS if on_levels else rounds_for(pool.size, below))
    state.work = LevelWork([Level(pool, POOL_SHARE * violation, known)], pool.x.copy())
    state.pool = state.moved = None


def optimize(settings: Decomposition, state: DecompositionState) -> None:
    """Optimize a working set, or go from a level of the pool to another; note what has moved after the last step."""
    work = state.work
    assert work is not None  # a step is pending
    began, last, working = time.perf_counter(), work.levels[-1], working_coordinates(settings, state)
    moment = state.deadline - state.owed()
    more = solve_step(work.levels, state.form, working, moment)
    if work.levels[-1] is last:  # a working set was optimized
        state.pace = (time.perf_counter() - began) / (last.pool.size * max(len(last.known.recent), 1))
    if more:
        return
    if late(moment):
        state.gaps = []  # of pools that were left for want of time nothing follows
    pool, moves = work.pool, work.levels[0].known.moves
    state.drift += error_of_values(state.form, state.largest, pool.size, moves.travel)
    level = threshold(pool)
    state.intercept = level if np.isfinite(level) else state.intercept
    places = np.flatnonzero(pool.x != work.before)
    state.pool, state.moved, state.work = pool, select(pool, places), None
    state.moved.sign[:], state.moved.x = 1.0, (pool.x - work.before)[places]


def working_coordinates(settings: Decomposition, state: DecompositionState) -> int:
    """How many are optimized together, in the arithmetic the state has come to."""
    return coordinates(settings.working, state.form)
