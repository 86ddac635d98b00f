"""What dual coordinate descent carries from block to block: w and its means, the sums of the pass under way, what is known of rows at rest."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from streamsvm.rows import Float64
from streamsvm.solvers.dcd import cocoa
from streamsvm.solvers.dcd.shrinking import Shrinking
from streamsvm.solvers.point_evaluation import PointSums
from streamsvm.tags import saved_as
from streamsvm.types import Problem


@saved_as("dcd.state")
@dataclass(slots=True)
class DCDState:
    """``w`` (columns + 1,) float64 is always sum a_i y_i x_i; the sums are those of the pass under way."""

    problem: Problem
    """What is solved: loss, C, the number of rows and columns, the weights to start from."""
    w: Float64
    """sum a_i y_i x_i, kept up with every change of a dual variable."""
    mean: Float64
    """Mean of w over the last training pass; during one, the sum of ``samples`` values of w."""
    tail: Float64
    """Mean over all passes, the late ones weighing more."""
    best: Float64
    """The candidate of least exact primal so far, which is the solution."""
    samples: int = 0
    """How many values of w are in ``mean`` while a pass is under way; 0: none yet."""
    dual: float = 0.0
    """D after the last training pass, exact."""
    certifying: bool = False
    """Whether the pass evaluates the three candidates and trains nothing."""
    passes: int = 0
    """Training passes that were closed."""
    next_check: float = 0.0
    """So many training passes there must have been before an estimate leads to another evaluation."""
    duals: float = 0.0
    """sum a_i - conjugate(a_i) over the rows met in the pass."""
    losses: float = 0.0
    """sum C s_i l(m_i) with the w each row met in its first sweep of the pass: an estimate."""
    evaluated: Float64 = field(default_factory=lambda: np.zeros(3))
    """Losses of w, mean and tail in a pass that evaluates."""
    primal: float = np.inf
    """Of ``best``."""
    warm_sums: PointSums | None = None
    """Sums over the first pass of a warm start."""
    scale: float = 1.0
    """What alpha is still to be multiplied by."""
    joint: cocoa.Joint | None = None
    """Where there are several copies of the state."""
    shrinking: Shrinking | None = None
    """Which rows stay out of passes; None: none."""

    @property
    def candidates(self) -> tuple[Float64, Float64, Float64]:
        """The three weights a pass that evaluates tries: w, its mean over the last pass, its mean over all."""
        return self.w, self.mean, self.tail
