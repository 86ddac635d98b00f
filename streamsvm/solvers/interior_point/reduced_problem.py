"""A hinge problem in which some rows are free and all others stay on their side of the corner: an interior point in memory.

    min_w  1/2 ||w||^2 - u.w + sum_near C_i l(m_i),        u = sum_others a_i y_i x_i,   a_i = -C_i l'(m_i), 0 or C_i

agrees with P where the others stay. Its dual point, with the a_i of the others, is one of P: with g = sum_others (a_i - conjugate(a_i))

    D = g + sum_near (a_i - conjugate(a_i)) - 1/2 ||u + sum_near a_i y_i x_i||^2.

This is the constraint reduction of interior points for support vector machines (Jung, O'Leary and Tits, ETNA 31, 2008): rows
whose dual variables sit on a bound add nothing to X' D X. Where others have crossed the corner on the way, the next step is held
back by damping / 2 (w - w_0)' M (w - w_0), M = diag(C sum_i s_i x_ij^2), which is as rows at the corner bend P. The iteration itself is that of rows in memory
(``solvers.newton.in_memory``; Ferris and Munson, SIAM J. Optimization 2003).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from streamsvm.compute.blocks import operators
from streamsvm.compute.passes.newton import squares
from streamsvm.losses import threshold
from streamsvm.rows import Float64
from streamsvm.solvers.interior_point.nearest_rows import NearRows
from streamsvm.solvers.interior_point.problem_in_memory import (
    DECREASE_SHARE,
    LEAST_SHARE,
    START_TOLERANCE,
    TOLERANCE_SHARE,
    Known,
    Reduced,
    iterate,
    sample_of,
)
from streamsvm.solvers.newton.in_memory.all_rows import AllRows
from streamsvm.solvers.newton.in_memory.outer_terms import OuterTerms
from streamsvm.solvers.segment_sums import NORM, Regularizer
from streamsvm.types import Problem


@dataclass(frozen=True, slots=True)
class ReducedProblem:
    """The problem of the rows near the corner."""

    problem: Problem
    """Of all rows."""
    objective: ClassVar[Regularizer] = NORM
    """See ``ProblemInMemory``."""

    def solve(self, near: NearRows, known: Known, deadline: float) -> Reduced:
        """See ``ProblemInMemory``."""
        problem = self.problem
        y, s, loss = near.y.astype(np.float64), near.s.astype(np.float64), problem.loss
        m = y * (near.f + known.step * near.df)
        a = np.where(m < threshold(loss), problem.C * s, 0.0)  # the slopes of the hinge
        own = float(sum(b - loss.conjugate(b, problem.C * c) for b, c in zip(a, s, strict=True) if c > 0.0))
        u = known.v - operators.adjoint(near.X, a * y, problem.columns)
        wanted = max(TOLERANCE_SHARE * problem.tolerance, LEAST_SHARE) * known.primal
        bend = squares(near.X, s, problem.columns) * (known.damping * problem.C * known.total / float(s.sum()))
        outer = OuterTerms(1.0 + bend, -(u + bend * known.w))
        rows = AllRows(problem, sample_of(near), known.w, known.w, outer=outer, wanted=wanted, share=DECREASE_SHARE)
        iterate(rows, deadline)
        if rows.interior is not None:
            a = rows.interior.a
            own -= float(sum(b - loss.conjugate(b, problem.C * c) for b, c in zip(a, s, strict=True) if c > 0.0))
            u = u + operators.adjoint(near.X, a * y, problem.columns)
            return Reduced(rows.best, known.gain - own - 0.5 * float(u @ u), rows.steps, a)
        return Reduced(rows.best, known.dual, rows.steps, None)

    def first_point(self, near: NearRows, factor: float, deadline: float) -> Float64:
        """See ``ProblemInMemory``."""
        problem = self.problem
        coarse = replace(problem, C=factor * problem.C, tolerance=max(START_TOLERANCE, problem.tolerance))
        start = problem.first_weights()
        rows = AllRows(coarse, sample_of(near), start, start)
        iterate(rows, deadline)
        return rows.best
