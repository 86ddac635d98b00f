"""The work between two passes: the pool of the worst violators is made, and optimized one working set after another."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import numpy as np

from streamsvm.compute.random import lots
from streamsvm.errors import UsageError
from streamsvm.solvers.kernel.decomposition.candidates import next_pool
from streamsvm.solvers.kernel.decomposition.multilevel import SAMPLED_FROM, Level, size_below, solve_step, threshold
from streamsvm.solvers.kernel.decomposition.state import DecompositionState, LevelWork
from streamsvm.solvers.kernel.pool import Pool, in_order, select
from streamsvm.solvers.kernel.pool import violation as worst_violation
from streamsvm.solvers.kernel.rounding import error_of_values
from streamsvm.solvers.kernel.working_set import ROUNDS, Improvement, coordinates, late, refresh, rounds_for

if TYPE_CHECKING:
    from streamsvm.solvers.kernel.decomposition.solver import Decomposition

POOL_SHARE, WHOLE_SHARE = 0.1, 0.01
"""The pool is solved until its violation is this part of what the pass found over all rows; that of all rows further, to where the gap
is about the one asked for: what it lacks then takes another pass, and the gradient of all rows follows once more."""


def begin_work(settings: Decomposition, state: DecompositionState, violation: float) -> None:
    """Make the pool of the candidates and of rows held before, which is to be solved."""
    pool = in_order(next_pool(state))
    before = pool.x.copy()
    if state.problem.nu is not None and state.weight == 0.0:
        violation = _spread(state, pool)
    state.capacity = min(2 * state.capacity, settings.pool)
    state.rate = 1.0 if state.violators <= SAMPLED_FROM * state.capacity else state.capacity / state.violators
    working = working_coordinates(settings, state)
    below = size_below(pool.size, working)
    on_levels = pool.size == state.problem.rows and below > working
    known = Improvement(ROUNDS if on_levels else rounds_for(pool.size, below))
    state.work = LevelWork([Level(pool, _share(state, pool) * violation, known)], before)
    state.pool = state.moved = None


def _share(state: DecompositionState, pool: Pool) -> float:
    """The part of the violation that may be left."""
    gap = state.gaps[-1]
    if pool.size < state.problem.rows or gap <= 0.0:
        return POOL_SHARE
    return min(POOL_SHARE, max(WHOLE_SHARE, 0.5 * state.problem.tolerance / gap))


def _spread(state: DecompositionState, pool: Pool) -> float:
    """Begin with x at its bounds for a draw of rows, so that it sums up to what it is to; the violation of that. Raises UsageError.

    Pairs of rows leave the sum alone from there on.
    """
    room, mass = float(pool.high.sum()), state.mass
    if room < mass:
        found = f"the rows of a pool, {pool.size}, have a weight of {room:g}, and nu of all rows is {mass:g}"
        raise UsageError(found, hint="a smaller nu, a larger --set solver.pool, or --landmarks, which has no pool")
    order = np.argsort(lots(pool.index, 0), kind="stable")
    filled = np.cumsum(pool.high[order])
    pool.x[order] = np.clip(mass - (filled - pool.high[order]), 0.0, pool.high[order])
    refresh(pool, state.form)
    state.drift += error_of_values(state.form, state.largest, pool.size, mass)
    found_violation = worst_violation(pool)
    state.reach = max(state.reach, found_violation)
    return found_violation


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
