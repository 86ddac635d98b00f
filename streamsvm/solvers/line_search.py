"""Solvers that look along a segment in every pass, and the sums of such a pass: interior point and cutting planes.

A pass sums up along ``point + t direction``, from the best point to a candidate, and is closed at the best point that
was looked at. What leads to the next direction is the solver's own; of what it keeps in memory for that, want of memory
halves one number.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np

from streamsvm.compute.passes.line_search import Line, LineSums, segment_pass
from streamsvm.config.options import field_values
from streamsvm.rows import Float64
from streamsvm.tags import saved_as
from streamsvm.types import SQUARED_NORM, Block, LinearSolution, LossRequirement, Problem, Regularizer, RowState, Solver
from streamsvm.types.state import Total

STEPS = (1.0, 0.0, 0.6, 0.3, 0.1, 0.03)
"""Shares of the way to the candidate that are looked at: the whole first, which is nearly always the best."""


class BestPoint(NamedTuple):
    """The best point of a segment."""

    w: Float64
    """(p,) the point."""
    step: float
    """Its share of the way."""
    primal: float
    """P there."""
    dual: float
    """The largest D of the slopes anywhere on the segment, and of a = 0."""
    steepest: Float64 | None
    """(p,) the point of the segment whose slopes have that D; None: it is that of a = 0."""
    v: Float64
    """(p,) sum a_i y_i x_i of the slopes at the point."""
    gain: float
    """sum a_i - conjugate(a_i) of those slopes."""


@saved_as("interior_point.segment")
@dataclass(slots=True)
class SegmentSums:
    """The sums of a pass along a segment, at J steps. All arrays are float64; p = columns + 1."""

    components: int
    """p."""
    losses: Total[Float64] = field(init=False)
    """(J,) loss sums at the steps."""
    gains: Total[Float64] = field(init=False)
    """(J,) sum a_i - conjugate(a_i)."""
    v: Total[Float64] = field(init=False)
    """(p,) of the rows whose slope is the same at all steps."""
    low: Total[Float64] = field(init=False)
    """(p,) what rounding took from it."""
    apart: Total[Float64] = field(init=False)
    """(J, p) of the other rows."""
    lows: Total[Float64 | None] = None
    """(J, p) what rounding took from those; None before the first block."""

    def __post_init__(self) -> None:
        count = len(STEPS)
        self.losses, self.gains = np.zeros(count), np.zeros(count)
        self.v, self.low = np.zeros(self.components), np.zeros(self.components)
        self.apart = np.zeros((count, self.components))

    def add(self, problem: Problem, block: Block, w: Float64, d: Float64) -> tuple[Float64, Float64]:
        """Count a block, and return X w and X d."""
        f, df = np.empty(len(block.y)), np.empty(len(block.y))
        if self.lows is None:
            self.lows = np.zeros_like(self.apart)
        sums = LineSums(self.losses, self.gains, self.v, self.low, self.apart, self.lows)
        segment_pass(block.labeled, Line(w, d, np.array(STEPS), problem.C, problem.loss), f, df, sums)
        return f, df

    def planes(self) -> tuple[Float64, Float64]:
        """Return g (K,) and v (K, p) of planes g - v.w that nowhere exceed the loss sum, at those steps that tell them
        apart.
        """
        distinct = [0, *(j for j in range(1, len(STEPS)) if (self.apart[j] != self.apart[0]).any())]
        return self.gains[distinct], self._vectors()[distinct]

    def _vectors(self) -> Float64:
        """Return sum a_i y_i x_i of the slopes at each step, (J, p)."""
        found: Float64 = self.v + self.low + self.apart
        return found if self.lows is None else found + self.lows

    def close(self, w: Float64, d: Float64, objective: Regularizer = SQUARED_NORM) -> BestPoint:
        """Return the best of the points that were evaluated. All blocks must have been added."""
        points = [w + t * d for t in STEPS]
        v = self._vectors()
        primal = [objective.value(x) + float(losses) for x, losses in zip(points, self.losses, strict=True)]
        dual = [objective.dual(float(gain), u) for gain, u in zip(self.gains, v, strict=True)]
        best, highest = int(np.argmin(primal)), int(np.argmax(dual))
        steepest = points[highest] if dual[highest] > objective.least else None
        bound, gain = max(objective.least, *dual), float(self.gains[best])
        return BestPoint(points[best], STEPS[best], primal[best], bound, steepest, v[best], gain)


class SegmentState:
    """The fields that the states of all these solvers have; where they are among the others is part of the saved
    format.
    """

    __slots__ = ()

    problem: Problem
    """What is solved: loss, C, the number of rows and columns, the weights to start from."""
    point: Float64
    """(columns + 1,) the best point of the readings so far, which is the solution."""


@dataclass(frozen=True, slots=True)
class SegmentSolver(Solver[Any]):
    """The members of ``Solver`` that do not depend on how the next direction is found."""

    halved: ClassVar[str]
    """The setting that is halved where memory is short."""
    row_state: ClassVar[tuple[RowState, ...]] = ()
    """Empty: the next pass depends on sums over rows, and on no number of a row."""
    shuffled: ClassVar[bool] = False
    """False: no step is taken while rows are read, so that their order does not matter."""
    losses: ClassVar[LossRequirement] = LossRequirement()
    """Any: a bound follows from sums over the rows."""
    has_candidates: ClassVar[bool] = True
    warm_start: ClassVar[bool] = True

    def count_kept(self, problem: Problem) -> int:
        """Return how many rows, or planes, are kept in memory."""
        raise NotImplementedError

    def min_kept(self, problem: Problem) -> int:
        """Return the least number that is of use."""
        raise NotImplementedError

    def smaller(self, problem: Problem, asked: Collection[str]) -> Self | None:
        """Return the solver with half as many in memory; None at the least number, or where one was ``asked`` for."""
        half = self.count_kept(problem) // 2
        changed: dict[str, Any] = {self.halved: half}
        return None if self.halved in asked or half < self.min_kept(problem) else replace(self, **changed)

    def memory_settings(self) -> dict[str, int | None]:
        """Return the setting that ``smaller`` halves."""
        return field_values(self, (self.halved,))

    def certify(self, state: SegmentState) -> None:
        """Do nothing: every pass is an exact evaluation."""

    def candidate(self, state: SegmentState) -> Float64:
        """Return the best point that was evaluated."""
        return state.point.copy()

    def solution(self, state: SegmentState) -> LinearSolution:
        """Return the best point that was evaluated."""
        return LinearSolution(state.point.copy(), state.problem.bias)
