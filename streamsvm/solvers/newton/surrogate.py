"""A model of the whole objective on rows that fit in memory.

Around a point c where gradient and value of the objective are known, with rows S of a sample (``solvers.newton.row_sample``),

    M(w) = 1/2 ||w||^2 + sum_S C_i h(m_i) / q_i + shift.w + 1/2 (w - c)' diag(damping) (w - c).

``shift`` gives M the true gradient at c, and ``offset`` the true margins, m_i = y_i (x_i.w + offset_i): kernel features
that were formed are float32, and margins found without forming them are not the same. What is left to sampling is how
the gradient changes on the way, and that a row can leave the corner of its loss, or enter it, is in M. Rows of which a
component has but a few are all in S.
``damping`` holds back components about which S says little. Reference: Shamir, Srebro, Zhang, ICML 2014 (DANE).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from streamsvm.compute.blocks import operators
from streamsvm.compute.passes.certificate import RowLoss
from streamsvm.compute.passes.newton import slopes_pass
from streamsvm.rows import Float64
from streamsvm.solvers.newton.row_sample import Sample
from streamsvm.solvers.point_evaluation import Sums
from streamsvm.tags import saved_as
from streamsvm.types import Loss, Problem


@saved_as("newton.look")
class RowValues(NamedTuple):
    """The model's rows at a point; all (n,)."""

    sums: Sums
    """The sums over the rows, each counted ``factor`` times."""
    slopes: Float64
    """-C_i h'(m_i) y_i, C_i = C factor_i."""
    second_derivatives: Float64
    """C_i h''(m_i), the weights of the rows in the Hessian."""
    f: Float64
    """Decision values x_i.w + offset_i."""


@saved_as("newton.model")
@dataclass(slots=True)
class Surrogate:
    """See above; ``factor`` (n,) is s_i / q_i, or s_i where the rest of the rows is fixed, not estimated."""

    problem: Problem
    """What is solved: loss, C, the number of rows and columns, the weights to start from."""
    sample: Sample
    """The rows the model is made of, as they were at ``center``."""
    factor: Float64
    """How often a row counts, its weight included."""
    center: Float64
    """(p,) the point c at which the model's gradient is that of the objective."""
    shift: Float64
    """(p,) what makes it so: the sample's own gradient at c differs from that of all rows by this."""
    damping: Float64
    """(p,) 0 or more: by how much each component is held back; set by the trust region."""
    offset: Float64
    """(n,) what the pass found of x_i.c beyond what the rows in memory give."""
    deadline: float = np.inf
    """The moment of ``time.perf_counter`` after which no step is made on it."""

    def values_at(self, smooth: Loss, w: Float64) -> RowValues:
        """Evaluate the rows of the model at w: sums, slopes, second derivatives and decision values."""
        problem, f = self.problem, operators.margins(self.sample.X, w) + self.offset
        slopes, second_derivatives = np.empty(len(f)), np.empty(len(f))
        sums = slopes_pass(
            self.sample.y, self.factor, f, RowLoss(problem.C, problem.loss, smooth), slopes, second_derivatives
        )
        return RowValues(Sums(*sums), slopes, second_derivatives, f)

    def weighted_sum(self, values: RowValues) -> Float64:
        """V (p,) = X' slopes."""
        return operators.adjoint(self.sample.X, values.slopes, self.problem.columns)

    def thinned(self, step: int) -> Surrogate:
        """Every ``step``-th row, standing for that many."""
        sample, factor = self.sample.every(step), step * self.factor[::step]
        offset = self.offset[::step]
        return Surrogate(self.problem, sample, factor, self.center, self.shift, self.damping, offset, self.deadline)

    def outer(self, w: Float64) -> float:
        """What of M(w) is not a sum over rows."""
        d = w - self.center
        return 0.5 * float(w @ w) + float(self.shift @ w) + 0.5 * float(self.damping @ (d * d))

    def value(self, smooth: Loss, w: Float64) -> float:
        """M(w) without the damping: an estimate of the objective, but for a constant."""
        return self.values_at(smooth, w).sums.smoothed + 0.5 * float(w @ w) + float(self.shift @ w)

    def gradient(self, values: RowValues, w: Float64) -> Float64:
        """The gradient of M at w (p,), from what ``values_at`` says of the rows there."""
        return w + self.shift + self.damping * (w - self.center) - self.weighted_sum(values)


def model_at(problem: Problem, sample: Sample, factor: Float64, center: Float64) -> Surrogate:
    """Without shift and damping; the sample is of a pass at ``center``."""
    zero = np.zeros_like(center)
    return Surrogate(problem, sample, factor, center, zero, zero, sample.f - operators.margins(sample.X, center))
