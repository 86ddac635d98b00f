"""Line searches: exact ones on rows in memory, and searches over a few points of a segment in a pass over the data.

**In memory** (``find_step_length``) the slope along the step is monotone, and Newton's method finds its root.

**In a pass** (``SegmentSums``) P, D and the gradient are computed at several points of the segment from the best point
so far to a candidate, and the best of these points is kept. ``SegmentSolver`` is the base class of solvers that search
in every pass (the interior-point method and cutting planes). They differ in how they compute the next candidate.
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

MAX_TRIALS = 60
"""Maximum number of lengths tried in a line search."""
SLOPE_RATIO = 0.05
"""A line search stops when the slope has fallen to this fraction of the first one."""
MIN_NEWTON_RATIO = 0.9
"""A trial beyond the minimum is accepted only if a Newton step from it leads back to at least this fraction of its
length. If the first slope is very large, a slope that is small relative to it may still mean a large rise."""
MIN_BRACKET_RATIO = 0.999
"""The search stops when the lower end of the bracket is at least this fraction of the upper end."""
CUT_FACTOR = 1e-2
"""Factor to the next trial while the lower end of the bracket is 0."""
STEPS = (1.0, 0.0, 0.6, 0.3, 0.1, 0.03)
"""Points of a segment that are evaluated, as fractions of the way to the candidate. The candidate comes first, since it
is nearly always the best."""


def find_step_length(row_slopes: Callable[[float], tuple[float, float]], outer: tuple[float, float]) -> float:
    """Return the t that approximately minimizes a convex function of t: a sum over rows, whose first and second
    derivative are ``row_slopes(t)``, plus a parabola, whose derivatives at 0 are ``outer`` (``OuterTerms.along``).

    If rows enter or leave the kink of a loss, a full step may be far too long, and halving it far too crude. The slope
    is monotone, so that Newton's method, safeguarded by a bracket of the root, finds the root in a few sums over the
    rows, none of which visits X. If no row has curvature at t = 0, the full step can be 10^15 times too long; the
    bracket is then reduced by orders of magnitude. If the search does not converge, the returned t is not beyond the
    minimum.
    """
    along, square = outer

    def slopes(t: float) -> tuple[float, float]:
        slope, curvature = row_slopes(t)
        return along + t * square + slope, square + curvature

    low, high, t = 0.0, np.inf, 1.0
    first = slopes(0.0)[0]
    if first >= 0.0:
        return 0.0
    for _ in range(MAX_TRIALS):
        slope, curvature = slopes(t)
        newton = t - slope / curvature if curvature > 0.0 else np.inf if slope <= 0.0 else -np.inf
        if abs(slope) <= SLOPE_RATIO * abs(first) and newton >= MIN_NEWTON_RATIO * t:
            return t
        low, high = (low, t) if slope > 0.0 else (t, high)
        if low >= MIN_BRACKET_RATIO * high:
            return low
        t = newton if low < newton < high else _next_trial(low, high)
    return low


def _next_trial(low: float, high: float) -> float:
    """Return the next trial in a bracket: the geometric mean of its ends if both are known."""
    if not np.isfinite(high):
        return 2.0 * low
    return float(np.sqrt(low * high)) if low > 0.0 else CUT_FACTOR * high


class BestPoint(NamedTuple):
    """The best point of a segment, and the dual bound."""

    w: Float64
    """(p,) the point."""
    step: float
    """The point's fraction of the way to the candidate."""
    primal: float
    """P there."""
    dual: float
    """The largest D of these dual points: the slopes at each point of the segment, and a = 0."""
    best_dual_point: Float64 | None
    """(p,) the point of the segment whose slopes have that D; None: a = 0 has it."""
    v: Float64
    """(p,) sum a_i y_i x_i of the slopes at the point."""
    gain: float
    """sum a_i - conjugate(a_i) of those slopes."""


@saved_as("interior_point.segment")
@dataclass(slots=True)
class SegmentSums:
    """The sums of a pass at the J points of a segment (``STEPS``). All arrays are float64; p = columns + 1."""

    components: int
    """p."""
    losses: Total[Float64] = field(init=False)
    """(J,) the loss sums."""
    gains: Total[Float64] = field(init=False)
    """(J,) sum a_i - conjugate(a_i)."""
    v: Total[Float64] = field(init=False)
    """(p,) sum a_i y_i x_i over the rows whose slope is the same at all points."""
    low: Total[Float64] = field(init=False)
    """(p,) the compensation term of ``v``."""
    apart: Total[Float64] = field(init=False)
    """(J, p) sum a_i y_i x_i over the other rows, for each point."""
    lows: Total[Float64 | None] = None
    """(J, p) the compensation terms of ``apart``; None before the first block."""

    def __post_init__(self) -> None:
        count = len(STEPS)
        self.losses, self.gains = np.zeros(count), np.zeros(count)
        self.v, self.low = np.zeros(self.components), np.zeros(self.components)
        self.apart = np.zeros((count, self.components))

    def add(self, problem: Problem, block: Block, w: Float64, d: Float64) -> tuple[Float64, Float64]:
        """Add a block for the segment from w to w + d, and return X w and X d."""
        f, df = np.empty(len(block.y)), np.empty(len(block.y))
        if self.lows is None:
            self.lows = np.zeros_like(self.apart)
        sums = LineSums(self.losses, self.gains, self.v, self.low, self.apart, self.lows)
        segment_pass(block.labeled, Line(w, d, np.array(STEPS), problem.C, problem.loss), f, df, sums)
        return f, df

    def planes(self) -> tuple[Float64, Float64]:
        """Return g (K,) and v (K, p) of cutting planes: g - v.w is nowhere above the loss sum. Points with equal planes
        are included once.
        """
        distinct = [0, *(j for j in range(1, len(STEPS)) if (self.apart[j] != self.apart[0]).any())]
        return self.gains[distinct], self._vectors()[distinct]

    def _vectors(self) -> Float64:
        """Return sum a_i y_i x_i (J, p) of the slopes at each point."""
        vectors: Float64 = self.v + self.low + self.apart
        return vectors if self.lows is None else vectors + self.lows

    def close(self, w: Float64, d: Float64, objective: Regularizer = SQUARED_NORM) -> BestPoint:
        """Return the point with the least P. All blocks must have been added."""
        points = [w + t * d for t in STEPS]
        v = self._vectors()
        primal = [objective.value(x) + float(losses) for x, losses in zip(points, self.losses, strict=True)]
        dual = [objective.dual(float(gain), u) for gain, u in zip(self.gains, v, strict=True)]
        best, highest = int(np.argmin(primal)), int(np.argmax(dual))
        best_dual_point = points[highest] if dual[highest] > objective.least else None
        bound, gain = max(objective.least, *dual), float(self.gains[best])
        return BestPoint(points[best], STEPS[best], primal[best], bound, best_dual_point, v[best], gain)


class SegmentState:
    """The fields that the states of all these solvers share. Their position among the other fields is part of the saved
    format.
    """

    __slots__ = ()

    problem: Problem
    point: Float64
    """(columns + 1,) the best point of all passes so far. It is the solution."""


@dataclass(frozen=True, slots=True)
class SegmentSolver(Solver[Any]):
    """The methods of ``Solver`` that do not depend on how the next direction is computed."""

    halved: ClassVar[str]
    """The name of the setting that is halved if memory is short."""
    row_state: ClassVar[tuple[RowState, ...]] = ()
    """Empty: the next pass only depends on sums over rows."""
    shuffled: ClassVar[bool] = False
    """False: no step is made while rows are read, so their order does not matter."""
    losses: ClassVar[LossRequirement] = LossRequirement()
    """Any loss: a bound is computed from sums over the rows."""
    has_current_weights: ClassVar[bool] = True
    warm_start: ClassVar[bool] = True

    def count_kept(self, problem: Problem) -> int:
        """Return how many rows, or planes, are kept in memory."""
        raise NotImplementedError

    def min_kept(self, problem: Problem) -> int:
        """Return the least useful number of rows, or planes, in memory."""
        raise NotImplementedError

    def shrink_memory(self, problem: Problem, user_set: Collection[str]) -> Self | None:
        """Return the solver with half as many rows, or planes, in memory; None if these were too few, or if the user
        set their number (``user_set``).
        """
        half = self.count_kept(problem) // 2
        changed: dict[str, Any] = {self.halved: half}
        return None if self.halved in user_set or half < self.min_kept(problem) else replace(self, **changed)

    def memory_settings(self) -> dict[str, int | None]:
        """Return the setting that ``shrink_memory`` halves, by name."""
        return field_values(self, (self.halved,))

    def certify(self, state: SegmentState) -> None:
        """Do nothing: every pass is an exact evaluation."""

    def current_weights(self, state: SegmentState) -> Float64:
        """Return a copy of the best point."""
        return state.point.copy()

    def solution(self, state: SegmentState) -> LinearSolution:
        """Return the best point."""
        return LinearSolution(state.point.copy(), state.problem.bias)
