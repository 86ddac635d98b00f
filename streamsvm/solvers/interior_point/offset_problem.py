"""One class with a free offset, when some rows are free and all others stay on their side of the corner: an interior point in memory.

    min_{w, rho}  1/2 ||w||^2 - nu S rho - u.w~ + sum_near c_i max(0, -m_i),     m_i = w.x_i - rho,   u = sum_below s_i x~_i

as in ``reduced_problem``, with w~ = (w, rho) and x~ = (x, -1). rho is not regularized; a weight of ``HELD`` times what the rows bend P by holds it
near where it is, so that the matrix is definite. At the end sum a_i is therefore off nu S by very little: the near rows give way, and
the value of the dual point is that of one which is feasible.

Units are such that margins are about 1: with a_i <= c s_i, c = 1 / (nu S mean ||x||^2), w and rho are c times, P is c^2 times as large.
Where rows are read less an offset o, -nu S o.w is one more term that is linear.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from streamsvm.compute.blocks import operators
from streamsvm.compute.passes.newton import squares
from streamsvm.rows import Float64
from streamsvm.solvers.interior_point.nearest_rows import NearRows
from streamsvm.solvers.interior_point.problem_in_memory import ROUNDS, START_TOLERANCE, Known, Reduced, sample_of
from streamsvm.solvers.newton.in_memory.all_rows import AllRows
from streamsvm.solvers.newton.in_memory.outer_terms import OuterTerms
from streamsvm.solvers.one_class import OFFSET, OffsetObjective
from streamsvm.types import Problem

HELD = 1e-3
"""How much rho is held, in units of what P bends by where rows point one way."""
FIRST_SHARE = 1e-3
"""The gap at first, of the objective of rows that point one way; it falls until it is small beside P."""
SMALLER, TOLERANCE_SHARE, LEAST_SHARE = 0.01, 0.05, 1e-13
"""By how much it falls at a time, and to which share of the tolerance, but for rounding."""


@dataclass(frozen=True, slots=True)
class OffsetProblem:
    """The problem of the rows near the corner, with the weight of the offset among the variables."""

    problem: Problem
    """Of all rows."""
    objective: OffsetObjective
    """See ``ProblemInMemory``."""

    def solve(self, near: NearRows, known: Known, deadline: float) -> Reduced:
        """See ``ProblemInMemory``."""
        problem, objective = self.problem, self.objective
        s = near.s.astype(np.float64)
        a = np.where(near.f + known.step * near.df < 0.0, s, 0.0)  # the slopes of the hinge
        u = known.v - operators.adjoint(near.X, a, problem.columns)
        bend = squares(near.X, s, problem.columns) * (known.damping * known.total / float(s.sum()))
        c = _unit(objective)
        outer = _outer(objective, c * u, c * bend, c * known.w)
        scaled = replace(problem, C=c)
        rows = _iterated(AllRows(scaled, sample_of(near), c * known.w, c * known.w, outer=outer), objective, deadline)
        if rows.interior is None:
            return Reduced(rows.best / c, known.dual, rows.steps, None)
        a = _feasible(rows.interior.a / c, s, objective.mass + float(OFFSET * -u[-1]))
        v = u + operators.adjoint(near.X, a, problem.columns)
        return Reduced(rows.best / c, objective.dual(0.0, v), rows.steps, None)

    def first_point(self, near: NearRows, factor: float, deadline: float) -> Float64:
        """See ``ProblemInMemory``."""
        problem, objective = self.problem, self.objective
        c, nothing = _unit(objective), np.zeros(problem.columns + 1)
        outer = _outer(objective, nothing, nothing, nothing)
        coarse = replace(problem, C=factor * c, tolerance=max(START_TOLERANCE, problem.tolerance))
        rows = AllRows(coarse, sample_of(near), nothing, nothing, outer=outer)
        return _iterated(rows, objective, deadline).best / c


def _unit(objective: OffsetObjective) -> float:
    """c; where rows are read less an offset o margins are about nu S ||x|| ||x - o||."""
    if objective.origin is None:
        return 1.0 / (objective.mass * objective.rows.usual)
    return 1.0 / (objective.mass * math.sqrt(objective.usual * objective.rows.usual))


def _outer(objective: OffsetObjective, u: Float64, bend: Float64, w: Float64) -> OuterTerms:
    """1/2 w'Gw + q.w about w, in units of margins: what rows that stay add, the norm, and what holds the step back."""
    usual = objective.rows.usual if objective.origin is None else 1.0 / (_unit(objective) * objective.mass)
    diagonal, linear = 1.0 + bend, -(u + bend * w)
    diagonal[-1] = HELD / usual + bend[-1]
    linear[-1] -= 1.0 / usual + HELD / usual * w[-1]
    if objective.origin is not None:
        linear[:-1] -= objective.origin / usual
    return OuterTerms(diagonal, linear)


def _iterated(rows: AllRows, objective: OffsetObjective, deadline: float) -> AllRows:
    """The iteration, to a gap that is small beside P once it is known how large that is. Changes ``rows``."""
    unit = 0.5 / objective.rows.usual
    rows.wanted = FIRST_SHARE * unit
    for _ in range(ROUNDS):
        rows.advance(deadline)
        least = max(TOLERANCE_SHARE * rows.problem.tolerance * abs(rows.primal), LEAST_SHARE * unit)
        if rows.solved and rows.wanted <= least:
            break
        if rows.solved:  # else it was time for a look at the clock
            rows.wanted = max(SMALLER * rows.wanted, least)
    return rows


def _feasible(a: Float64, s: Float64, mass: float) -> Float64:
    """Return a (n,) that sum up to ``mass``, or come as near as their bounds 0 and s allow."""
    found, most = float(a.sum()), float(s.sum())
    if found > mass:
        return a * (max(mass, 0.0) / found)
    return a + min((mass - found) / (most - found), 1.0) * (s - a) if most > found else a
