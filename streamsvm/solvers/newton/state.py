"""What Newton's method carries from pass to pass: the point, its sums, the rows of the next model, and what led there."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from streamsvm.losses import round_corners
from streamsvm.rows import Float64
from streamsvm.solvers.newton.exact_steps import ExactSteps
from streamsvm.solvers.newton.in_memory.all_rows import AllRows
from streamsvm.solvers.newton.out_of_core import SampledSteps
from streamsvm.solvers.newton.row_sample import PrioritySampler
from streamsvm.solvers.newton.trust_region import TrustRegion
from streamsvm.solvers.point_evaluation import DualPoint, PointSums
from streamsvm.tags import saved_as
from streamsvm.types import Problem


@saved_as("newton.state")
@dataclass(slots=True)
class NewtonState:
    """``point`` is what the pass under way evaluates, with corners of half width ``mu`` (0: the loss is smooth)."""

    problem: Problem
    """What is solved: loss, C, the number of rows and columns, the weights to start from."""
    point: Float64
    """(columns + 1,) the weights the pass under way evaluates."""
    mu: float
    """Half the width, in margins, over which the loss's corner is rounded in this pass."""
    evaluation: PointSums
    """The sums of the pass at ``point``: losses, dual terms, gradient."""
    sampler: PrioritySampler
    """The rows of the pass that the next model will be made of."""
    squares: Float64
    """sum_i s_i x_ij^2 (columns + 1,)."""
    best: Float64
    """(columns + 1,) the point of least exact P so far, which is the solution."""
    trust_region: TrustRegion | None = None
    """What led to ``point``."""
    whole: bool = False
    """Whether its model is made of all rows; they are not gathered again, but their margins are."""
    margins: list[tuple[int, Float64]] = field(default_factory=list)
    """Of every block, with the number of its first row."""
    primal: float = np.inf
    """P of ``best``; inf before the first pass."""
    dual: float = -np.inf
    """The largest D proven, polished or not; -inf before the first pass."""
    passes: int = 0
    """Passes that were closed."""
    dual_point: DualPoint | None = None
    """Of ``dual``, as long as that was not polished."""
    all_rows: AllRows | None = None
    """The problem itself, once all rows are in memory."""
    gathered: bool = False
    """Whether it is there: visits then evaluate the point and keep nothing."""
    factored: bool = False
    """Whether blocks are factored pairs: then a row in memory is not the row that is visited, to the last bit."""
    gaps: list[float] = field(default_factory=list)
    """After every pass with a sample."""
    deadline: float = np.inf
    """When work in memory is to end, on the clock of ``time.perf_counter``; inf: never."""
    steps: SampledSteps | None = None
    """What led to ``point`` where rows do not fit the memory and columns are many."""
    pending: int = 0
    """How often the problem in memory is gone on with before the next reading."""
    exact_steps: ExactSteps | None = None
    """What led to ``point`` where second derivatives of all rows are summed up."""
    summing: bool = False
    """Whether they are in this pass."""
    looking: bool = False
    """Whether the pass evaluates its point and keeps no rows."""
    hessian: Float64 | None = None
    """X' diag(second_derivatives) X (columns + 1, columns + 1) over the blocks met so far; None: nothing yet."""

    def proves(self, dual: float) -> None:
        """Take a value of D that was found in memory, if it is larger; its dual variables are not known of every row."""
        if dual > self.dual:
            self.dual, self.dual_point = dual, None

    @property
    def done(self) -> bool:
        """Whether the gap is the one asked for."""
        return self.primal - self.dual <= self.problem.tolerance * abs(self.primal)

    @property
    def proven_in_memory(self) -> AllRows | None:
        """The rows in memory, where the largest D is that of dual variables that were found there, and are known."""
        rows = self.all_rows
        return rows if rows is not None and rows.slopes is not None and rows.dual >= self.dual else None

    @property
    def smooth(self) -> Any:
        """The loss as the pass under way has it, its corner rounded over ``mu``."""
        return round_corners(self.problem.loss, self.mu)
