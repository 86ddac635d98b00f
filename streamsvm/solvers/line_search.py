"""Line searches: exact where the rows are in memory, at a few points of a segment where they are read in a pass.

**In memory** (``find_step_length``) the slope along the step is monotone, and its root is found by Newton's method.

**In a pass** (``SegmentSums``) P, D and the gradient are summed up at several points of the segment from the best point
so far to a candidate, and the best of them is where the pass ends. ``SegmentSolver`` is what solvers that search in
every pass have in common (the interior point and cutting planes); how they find the next candidate is their own.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np

from streamsvm.class_tags import saved_as
from streamsvm.compute.passes.line_search import Line, LineSums, segment_pass
from streamsvm.config.options import field_values
from streamsvm.rows import Float64
from streamsvm.types import SQUARED_NORM, Block, LinearSolution, LossRequirement, Problem, Regularizer, RowState, Solver
from streamsvm.types.state import Total

TRIALS = 60
"""Lengths tried in a line search at most."""
ENOUGH = 0.05
"""A line search ends where the slope has fallen to this share of the first one."""
BEFORE = 0.9
"""A trial beyond the minimum ends it only where a Newton step from there leads back to this share of its length or
more: a first slope that is large says little of how far the function has risen since."""
CLOSE = 0.999
"""A bracket is narrow enough where its lower end is this share of the upper one."""
CUT = 1e-2
"""The next length tried, as a share of one that is too long, where no other is known."""
STEPS = (1.0, 0.0, 0.6, 0.3, 0.1, 0.03)
"""Points of a segment that are evaluated, as shares of the way to the candidate: the candidate first, which is nearly
always the best."""


def find_step_length(row_slopes: Callable[[float], tuple[float, float]], outer: tuple[float, float]) -> float:
    """Return the t that about minimizes a convex function: a sum over rows, whose first and second derivative at t are
    ``row_slopes(t)``, and a parabola, whose derivatives at 0 are ``outer`` (``OuterTerms.along``).

    Where rows enter and leave the corner of a loss a full step may be far too long, and halving it far too crude. The
    slope is monotone, so that Newton's method on it, kept within what is known to bracket the root, finds it in a few
    sums over the rows, none of which visits X. Where no row bends at first, the full step can be 10^15 times too long:
    the bracket is cut in orders of magnitude, and what is returned is never beyond the minimum if that was not found.
    """
    along, square = outer

    def slopes(t: float) -> tuple[float, float]:
        slope, curvature = row_slopes(t)
        return along + t * square + slope, square + curvature

    low, high, t = 0.0, np.inf, 1.0
    first = slopes(0.0)[0]
    if first >= 0.0:
        return 0.0
    for _ in range(TRIALS):
        slope, curvature = slopes(t)
        newton = t - slope / curvature if curvature > 0.0 else np.inf if slope <= 0.0 else -np.inf
        if abs(slope) <= ENOUGH * abs(first) and newton >= BEFORE * t:
            return t
        low, high = (low, t) if slope > 0.0 else (t, high)
        if low >= CLOSE * high:
            return low
        t = newton if low < newton < high else _next_trial(low, high)
    return low


def _next_trial(low: float, high: float) -> float:
    """Return the next trial in a bracket: the geometric mean of its ends, as far as these are known."""
    if not np.isfinite(high):
        return 2.0 * low
    return float(np.sqrt(low * high)) if low > 0.0 else CUT * high


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

    def shrink_memory(self, problem: Problem, asked: Collection[str]) -> Self | None:
        """Return the solver with half as many in memory; None at the least number, or where one was ``asked`` for."""
        half = self.count_kept(problem) // 2
        changed: dict[str, Any] = {self.halved: half}
        return None if self.halved in asked or half < self.min_kept(problem) else replace(self, **changed)

    def memory_settings(self) -> dict[str, int | None]:
        """Return the setting that ``shrink_memory`` halves."""
        return field_values(self, (self.halved,))

    def certify(self, state: SegmentState) -> None:
        """Do nothing: every pass is an exact evaluation."""

    def candidate(self, state: SegmentState) -> Float64:
        """Return the best point that was evaluated."""
        return state.point.copy()

    def solution(self, state: SegmentState) -> LinearSolution:
        """Return the best point that was evaluated."""
        return LinearSolution(state.point.copy(), state.problem.bias)
