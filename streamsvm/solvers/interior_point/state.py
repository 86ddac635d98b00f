"""What an interior point by readings carries from pass to pass."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from streamsvm.rows import Float64, Int64
from streamsvm.solvers.interior_point.nearest_rows import NearestRows
from streamsvm.solvers.interior_point.number_problem import NumberProblem
from streamsvm.solvers.interior_point.offset_problem import OffsetProblem
from streamsvm.solvers.interior_point.problem_in_memory import ProblemInMemory
from streamsvm.solvers.interior_point.reduced_problem import ReducedProblem
from streamsvm.solvers.one_class import OffsetObjective, RowSums
from streamsvm.solvers.segment_solver import SegmentState
from streamsvm.solvers.segment_sums import SegmentSums
from streamsvm.tags import saved_as
from streamsvm.types import Problem


@saved_as("interior_point.proven")
class ProvenPoint(NamedTuple):
    """A dual point of all rows: slopes at some weights, and of some rows the variables that were found in memory."""

    w: Float64
    """(p,) the weights."""
    rows: Int64
    """(k,) numbers of those rows, rising."""
    alpha: Float64
    """(k,) their variables."""


@saved_as("interior_point.state")
@dataclass(slots=True)
class InteriorPointState(SegmentState):
    """A pass looks at ``point + t direction``. Arrays are float64; p = columns + 1."""

    problem: Problem
    """What is solved."""
    point: Float64
    """(p,) the best point of the readings so far, which is the solution."""
    direction: Float64
    """(p,) from there to the candidate; 0: there is none, and the point is evaluated."""
    sums: SegmentSums
    """Of the pass along the segment."""
    near: NearestRows
    """The rows nearest to the corner, in a pass for a loss that has one and in the first one."""
    squares: Float64
    """(p,) sum s_i x_ij^2, of the first pass."""
    weight: float = 0.0
    """sum s_i over the rows met in this pass."""
    gram: Float64 | None = None
    """(p, p) X' diag(C_i l'') X at the candidate, for smooth losses; None before the first block and for the hinge."""
    primal: float = np.inf
    """P of ``point``; inf before the first pass."""
    dual: float = -np.inf
    """The largest D so far; -inf before the first pass."""
    passes: int = 0
    """Passes that were closed."""
    iterations: int = 0
    """Of the interior point, in memory."""
    damping: float = 0.0
    """How much the next step is held back."""
    deadline: float = np.inf
    """When work in memory is to end, on the clock of ``time.perf_counter``."""
    facts: dict[str, float] = field(default_factory=dict)
    """What there is to say of the last pass."""
    rows: RowSums | None = None
    """Of one class with a free offset: sums over all rows, which the first pass makes."""
    proven: ProvenPoint | None = None
    """Where ``dual`` comes from; None: it is a = 0, or that of one class."""

    @property
    def in_memory(self) -> ProblemInMemory:
        """What is solved in memory; of one class with a free offset once the first pass is over."""
        if self.problem.loss.numeric() and not self.problem.loss.smooth():
            return NumberProblem(self.problem)
        if self.problem.nu is None or self.rows is None:
            return ReducedProblem(self.problem)
        return OffsetProblem(self.problem, OffsetObjective(self.problem.nu, self.rows, self.problem.origin))
