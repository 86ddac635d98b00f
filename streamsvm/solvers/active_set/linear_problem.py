"""A linear problem with its rows in memory, solved exactly: about, by a second-order method, then by exchanging rows.

Anyone with few rows can ask for it (``exact``): the gap of what comes back is rounding, wherever the start was.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from streamsvm.compute.blocks import operators
from streamsvm.compute.passes.certificate import RowLoss
from streamsvm.compute.passes.in_memory.all_rows import Interior
from streamsvm.compute.passes.newton import slopes_pass
from streamsvm.rows import Float64
from streamsvm.solvers.active_set import finite_newton
from streamsvm.solvers.active_set.exchange import ActiveSetMethod, DualTerms
from streamsvm.solvers.active_set.gathered import GatheredRows
from streamsvm.solvers.active_set.sides import apart, sided, sided_terms, together
from streamsvm.solvers.active_set.spaces import RowSpace
from streamsvm.solvers.newton.in_memory.all_rows import AllRows
from streamsvm.solvers.newton.row_sample import Sample
from streamsvm.types import Problem

START_GAP = 1e-7
"""The relative gap to which a second-order method goes first: rows that are clearly on one side are known then."""
NEXT = 1e-6
"""Of C: what is nearer to a bound is put there."""
START_ROUNDS = 40
"""Calls of that method at most, each of which ends after so much work."""


class Exact(NamedTuple):
    """What comes of it."""

    w: Float64
    """(columns + 1,) the weights."""
    a: Float64
    """(n,) the dual variables."""
    finished: bool
    """Whether it is the optimum to rounding; False: the deadline came first."""
    exchanges: int
    """Rows that became free, 0 where the primal was solved."""


def exact(problem: Problem, rows: GatheredRows, deadline: float = np.inf, a: Float64 | None = None) -> Exact:
    """Return the optimum over the rows. ``a`` (n,): feasible dual variables to start from; None: from ``problem.warm``, or nothing."""
    primal = problem.loss.smooth() and problem.columns < len(rows.y)
    if primal or a is None:
        known = _about(problem, rows, deadline)
        if primal:
            w, finished = finite_newton.solved(problem, rows, known.best, deadline)
            return Exact(w, _slopes(problem, rows, w), finished, 0)
        a = _first(problem, rows, known)
    loss, space = problem.loss, RowSpace(rows.X, problem.columns)
    sides = apart(loss, a)
    method = ActiveSetMethod(_terms(problem, rows), sided(loss, space), sides, free_bias=False)
    finished = method.run(deadline)
    a = together(loss, sides)
    support = np.flatnonzero(a)
    entries = (problem.task.signs(rows.y) * a)[support]
    return Exact(space.weights(support, entries), a, finished, method.exchanges)


def _terms(problem: Problem, rows: GatheredRows) -> DualTerms:
    return sided_terms(problem.loss, rows.y, problem.C * rows.s.astype(np.float64))


def _first(problem: Problem, rows: GatheredRows, known: AllRows) -> Float64:
    """Feasible dual variables (n,) to begin with."""
    if known.interior is not None:
        return _snapped(known.interior, _terms(problem, rows))
    if problem.loss.numeric() and known.slopes is not None:
        return _at_bounds(problem, rows, known.slopes)
    return _slopes(problem, rows, known.best)


def _about(problem: Problem, rows: GatheredRows, deadline: float) -> AllRows:
    """The same problem, solved to START_GAP."""
    n, w = len(rows.y), problem.first_weights()
    sample = Sample(rows.X, rows.y, rows.s, np.ones(n), operators.margins(rows.X, w), rows.row, complete=True)
    known = AllRows(replace(problem, tolerance=START_GAP), sample, w, w)
    for _ in range(START_ROUNDS):
        known.advance(deadline)
        if known.solved:
            break
    return known


def _slopes(problem: Problem, rows: GatheredRows, w: Float64) -> Float64:
    """a_i = -C_i l'(m_i)."""
    slopes, h = np.empty(len(rows.y)), np.empty(len(rows.y))
    cost = RowLoss(problem.C, problem.loss, problem.loss)
    slopes_pass(rows.y, rows.s.astype(np.float64), operators.margins(rows.X, w), cost, slopes, h)
    found: Float64 = slopes * problem.task.signs(rows.y)
    return found


def _at_bounds(problem: Problem, rows: GatheredRows, a: Float64) -> Float64:
    """Dual variables of numbers, those next to 0 or a bound put there."""
    loss, C = problem.loss, problem.C * rows.s.astype(np.float64)
    high, low = np.array([loss.upper(c) for c in C]), -C * loss.slope(np.inf)
    next_to = NEXT * np.minimum(C, np.minimum(high, -low))
    a = np.clip(a, low, high)
    a = np.where(np.abs(a) <= next_to, 0.0, a)
    return np.where(high - a <= next_to, high, np.where(a - low <= next_to, low, a))


def _snapped(at: Interior, terms: DualTerms) -> Float64:
    """Dual variables between their bounds, put on a bound where its multiplier says so: both are then of the same scale."""
    with np.errstate(invalid="ignore"):
        share = at.a / terms.upper if np.isfinite(terms.upper).all() else at.a * terms.curvature
        room = (terms.upper - at.a) / terms.upper
    a = np.where(share < at.below / terms.z, 0.0, at.a)
    return np.where(np.isfinite(terms.upper) & (room < at.above / terms.z), terms.upper, a)
