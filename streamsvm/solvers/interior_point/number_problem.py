"""A loss of numbers with corners, when some rows are free and all others stay on their side: as in ``reduced_problem``, of rows with two sides.

    C_i l(m_i) = C_i max(0, q+ (-m_i - epsilon)) + C_i max(0, q- (m_i - epsilon)),      m_i = w.x_i - t_i

are two rows (x_i, +1) and (x_i, -1) of the hinge with its corner at -epsilon, whose decision values are w.x_i - t_i, with bounds q+ C_i = upper and
q- C_i = -lower: an interior point of variables a >= 0 solves it (``Sample.offset``), and a_i = a+_i - a-_i. A dual point has sum_i a_i t_i more.

Units are such that residuals are about 1: of w, t and epsilon over sigma, with C over sigma, P is 1 / sigma^2 as large.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from streamsvm.compute.blocks import operators
from streamsvm.compute.passes.newton import squares
from streamsvm.losses import Hinge
from streamsvm.rows import Float64, row_stack
from streamsvm.solvers.interior_point.nearest_rows import NearRows
from streamsvm.solvers.interior_point.problem_in_memory import (
    DECREASE_SHARE,
    LEAST_SHARE,
    START_TOLERANCE,
    TOLERANCE_SHARE,
    Known,
    Reduced,
    iterate,
)
from streamsvm.solvers.newton.in_memory.all_rows import AllRows
from streamsvm.solvers.newton.in_memory.outer_terms import OuterTerms
from streamsvm.solvers.newton.row_sample import Sample
from streamsvm.solvers.segment_sums import NORM, Regularizer
from streamsvm.types import Problem


@dataclass(frozen=True, slots=True)
class NumberProblem:
    """The problem of the rows near a corner."""

    problem: Problem
    """Of all rows; its loss has corners."""
    objective: ClassVar[Regularizer] = NORM
    """See ``ProblemInMemory``."""

    def solve(self, near: NearRows, known: Known, deadline: float) -> Reduced:
        """See ``ProblemInMemory``."""
        problem, s = self.problem, near.s.astype(np.float64)
        m = near.f + known.step * near.df - near.y
        a = np.array([-problem.C * c * problem.loss.slope(r) for c, r in zip(s, m.tolist(), strict=True)])
        own, u = self._gain(a, near, s), known.v - operators.adjoint(near.X, a, problem.columns)
        unit = _unit(m, s)
        bend = squares(near.X, s, problem.columns) * (known.damping * problem.C / unit * known.total / float(s.sum()))
        wanted = max(TOLERANCE_SHARE * problem.tolerance, LEAST_SHARE) * known.primal / unit**2
        outer, w = OuterTerms(1.0 + bend, -(u + bend * known.w) / unit), known.w / unit
        sided = self._sided(unit)
        rows = AllRows(sided, self._sample(near, unit), w, w, outer=outer, wanted=wanted, share=DECREASE_SHARE)
        iterate(rows, deadline)
        if rows.interior is None:
            return Reduced(unit * rows.best, known.dual, rows.steps, None)
        above, below = np.split(unit * rows.interior.a, 2)
        a = above - below
        u = u + operators.adjoint(near.X, a, problem.columns)
        value = known.gain - own + self._gain(a, near, s) - 0.5 * float(u @ u)
        return Reduced(unit * rows.best, value, rows.steps, a)

    def first_point(self, near: NearRows, factor: float, deadline: float) -> Float64:
        """See ``ProblemInMemory``."""
        problem, start = self.problem, self.problem.first_weights()
        unit = _unit(near.y.astype(np.float64), near.s.astype(np.float64))
        sided = self._sided(unit)
        coarse = replace(sided, C=factor * sided.C, tolerance=max(START_TOLERANCE, problem.tolerance))
        outer = OuterTerms(np.ones_like(start), np.zeros_like(start))
        rows = AllRows(coarse, self._sample(near, unit), start / unit, start / unit, outer=outer)
        iterate(rows, deadline)
        return unit * rows.best

    def _sided(self, unit: float) -> Problem:
        """The problem of the sides."""
        loss = self.problem.loss
        corner = Hinge(margin=(1.0 - loss.conjugate_slope(0.0, 1.0)) / unit)
        return replace(self.problem, loss=corner, C=self.problem.C / unit)

    def _sample(self, near: NearRows, unit: float) -> Sample:
        """The sides of the rows, those with sign +1 first."""
        loss, ones, twice = self.problem.loss, np.ones(len(near.y), np.float32), (near.row, near.row)
        s = near.s.astype(np.float64)
        return Sample(
            row_stack([near.X, near.X]),
            np.append(ones, -ones),
            np.append(loss.upper(1.0) * s, loss.slope(np.inf) * s),
            np.ones(2 * len(s)),
            np.append(near.f, near.f),
            np.concatenate(twice),
            complete=False,
            offset=np.tile(-near.y / unit, 2),
        )

    def _gain(self, a: Float64, near: NearRows, s: Float64) -> float:
        """Sum a_i t_i + a_i - conjugate(a_i)."""
        loss, C = self.problem.loss, self.problem.C
        gains = (b - loss.conjugate(b, C * c) for b, c in zip(a.tolist(), s.tolist(), strict=True) if c > 0.0)
        return float(a @ near.y) + float(sum(gains))


def _unit(m: Float64, s: Float64) -> float:
    """The mean size of residuals m (n,), weighted."""
    return float(s @ np.abs(m)) / float(s.sum()) or 1.0
