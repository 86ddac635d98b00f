"""The sums a second-order method takes over the blocks of a pass, at one point."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple

import numpy as np

from streamsvm.class_tags import saved_as
from streamsvm.compute.blocks import operators
from streamsvm.compute.blocks.operators import UnformedRows
from streamsvm.compute.blocks.sums import add_rows_precisely, dual_sum, two_sum
from streamsvm.compute.passes.certificate import RowLoss
from streamsvm.compute.passes.dcd import multinomial_dual_sum, multinomial_loss_sum
from streamsvm.compute.passes.newton import look_pass, second_derivatives_pass, slopes_pass
from streamsvm.losses import round_corners, threshold
from streamsvm.rows import Float64, Int32
from streamsvm.solvers.one_class import RowSums
from streamsvm.types import (
    Block,
    Certificate,
    Cost,
    Layout,
    LinearSolution,
    Loss,
    LossRequirement,
    Problem,
    RowState,
    Solver,
)
from streamsvm.types.state import Largest, Total, merge_states

CORNER_WIDTH = 0.1
"""Half the width of the rounded corner whose slopes give a dual point of the hinge, in margins."""
WIDTHS = (0.3, 0.1, 0.03, 0.01, 3e-3, 1e-3)
"""Half widths over which a corner is rounded: the slopes of one of them make a good dual point of a loss with a
corner."""


@saved_as("evaluation.block")
class Sums(NamedTuple):
    """sum C_i l(m_i), sum C_i h(m_i), and what the dual value of a_i = -C_i h'(m_i) is made of."""

    losses: float
    """sum C_i l(m_i), of the problem's own loss."""
    smoothed: float
    """sum C_i h(m_i), of the loss with its corner rounded; the same where there is no corner."""
    linear: float
    """The part of sum t a_i - conjugate(t a_i) that grows as t."""
    quadratic: float
    """The part that falls as t^2: it is t linear - t^2 quadratic."""

    def plus(self, other: tuple[float, ...], sign: float = 1.0) -> Sums:
        """These sums plus ``sign`` times others, term by term."""
        return Sums(*(a + sign * b for a, b in zip(self, other, strict=True)))


NO_SUMS = Sums(0.0, 0.0, 0.0, 0.0)


@saved_as("evaluation.dual_point")
class DualPoint(NamedTuple):
    """Where a dual point is read off: a_i = t C_i (-h'(m_i)) with the margins at w, h the loss with
    corners of ``mu``.
    """

    w: Float64
    """(columns + 1,) the weights."""
    mu: float
    """Half the width of the rounded corner, in margins; 0: the loss has none."""
    t: float
    """The scale at which D is largest."""


@saved_as("evaluation.point")
class PointEvaluation(NamedTuple):
    """What a pass says of its point."""

    primal: float
    """P of the point, with the problem's own loss."""
    dual: float
    """Of the best scaled dual point."""
    scale: float
    """By how much that is scaled."""
    smoothing: float
    """primal - dual without scaling - 1/2 ||gradient||^2: what rounding the loss costs."""
    value: float
    """The rounded objective."""
    gradient: Float64
    """(p,) w - v, the gradient of the rounded objective."""
    sums: Sums
    """The sums the values are made of."""
    v: Float64
    """(p,) sum a_i y_i x_i, a_i = -C_i h'(m_i)."""


@saved_as("evaluation.sums")
@dataclass(slots=True)
class PointSums:
    """The sums of a pass at one point: losses, what the dual value of the slopes there is made of, and X' slopes."""

    components: int
    """p = columns + 1, the length of ``v``."""
    v: Total[Float64] = field(init=False)
    """(p,) sum a_i y_i x_i over the blocks that were added."""
    sums: Total[Sums] = NO_SUMS
    """The four sums over the blocks that were added."""
    low: Total[Float64 | None] = None
    """(p,) what rounding took from ``v``: their sum is as good as a sum in twice the precision; None before the first
    block."""
    rows: Total[RowSums | None] = None
    """Of one class with a free offset, sums over all rows; None before the first block, and of all other problems."""
    unformed: Largest[bool] = False
    """Whether rows were counted of which no features were made, at w = 0: ``v`` is not known then, and D is that of no
    row at all."""

    def __post_init__(self) -> None:
        self.v = np.zeros(self.components)

    def add(self, problem: Problem, smooth: Any, block: Block, w: Float64) -> Float64:
        """Count a block at w, and return X w."""
        if self.low is None:
            self.low = np.zeros_like(self.v)
        self.rows = self.rows or problem.regularizer.row_sums(self.components)
        if self.rows is not None:
            self.rows.add(problem, block)
        self.unformed = self.unformed or isinstance(block.X, UnformedRows)
        f, sums = evaluate_block(problem, smooth, block, w, (self.v, self.low))
        self.sums = self.sums.plus(sums)
        return f

    def merge(self, other: PointSums) -> None:
        """Add what was summed over other rows at the same point."""
        v, lost = two_sum(self.v, other.v)
        for low in (self.low, other.low):
            lost = lost if low is None else lost + low
        merge_states([self, other], except_fields=("v", "low"))
        self.v, self.low = v, lost

    def vector(self) -> Float64:
        """Return sum a_i y_i x_i (p,) as precisely as it is known."""
        return self.v.copy() if self.low is None else self.v + self.low

    def close(self, problem: Problem, w: Float64) -> PointEvaluation:
        """The values at w, all blocks counted."""
        v = self.vector()
        half, square, gradient = 0.5 * float(w @ w), float(v @ v), w - v
        losses, smoothed, linear, quadratic = self.sums
        smoothing = half + losses - (linear - quadratic - 0.5 * square) - 0.5 * float(gradient @ gradient)
        value, scale, dual = problem.regularizer.bounds(problem.loss, (losses, linear, quadratic), w, v, self.rows)
        if self.unformed:
            scale = dual = 0.0
        return PointEvaluation(value + losses, dual, scale, smoothing, value + smoothed, gradient, self.sums, v)


@dataclass(slots=True)
class DualSums:
    """The dual value of given variables: v (p,) = sum a_i y_i x_i, and sum a_i - conjugate(a_i)."""

    components: int
    """p = columns + 1, the length of ``v``."""
    v: Total[Float64] = field(init=False)
    """(p,) the sum, as float64 has it."""
    low: Total[Float64] = field(init=False)
    """(p,) what rounding took from ``v``."""
    gain: Total[float] = 0.0

    def __post_init__(self) -> None:
        self.v, self.low = np.zeros(self.components), np.zeros(self.components)

    def add(self, problem: Problem, block: Block, alpha: Float64) -> None:
        """Count a block's rows with their variables (n,)."""
        entering = alpha * problem.kind.signs(block.y)
        if isinstance(block.X, operators.Factored):
            self.v += operators.adjoint(block.X, entering, problem.columns)
        else:
            add_rows_precisely(block.X, entering, self.v, self.low)
        self.gain += dual_sum(alpha, block.y, block.s, problem.C, problem.loss)

    def merge(self, other: DualSums) -> None:
        """Add what was summed over other rows."""
        self.v, lost = two_sum(self.v, other.v)
        self.low, self.gain = self.low + (lost + other.low), self.gain + other.gain

    def value(self) -> float:
        """Return D."""
        v = self.vector()
        return self.gain - 0.5 * float(v @ v)

    def vector(self) -> Float64:
        """Return sum a_i y_i x_i (p,) as precisely as it is known."""
        return self.v + self.low


def evaluate_block(
    problem: Problem, smooth: Any, block: Block, w: Float64, v: tuple[Float64, Float64]
) -> tuple[Float64, tuple[float, ...]]:
    """X w, and the sums; X' slopes is added to v, a vector and what rounding took from it. A factored block goes
    through the operators.

    Of rows without features w is 0, and nothing is added to v.
    """
    X, cost = block.X, RowLoss(problem.C, problem.loss, smooth)
    if isinstance(X, operators.Factored | UnformedRows):
        f = np.zeros(len(block.y)) if isinstance(X, UnformedRows) else operators.margins(X, w)
        slopes, second_derivatives = np.empty(len(f)), np.empty(len(f))
        sums = slopes_pass(block.y, block.s, f, cost, slopes, second_derivatives)
        if isinstance(X, operators.Factored):
            v[0][:] += operators.adjoint(X, slopes, problem.columns)
        return f, sums
    f = np.empty(len(block.y))
    return f, look_pass(block.labeled, w, cost, f, *v)


def slopes_at(problem: Problem, dual_point: DualPoint, block: Block) -> Float64:
    """The dual variables of a block's rows."""
    f = operators.margins(block.X, dual_point.w)
    slopes, second_derivatives = np.empty(len(f)), np.empty(len(f))
    cost = RowLoss(problem.C, problem.loss, round_corners(problem.loss, dual_point.mu))
    slopes_pass(block.y, block.s, f, cost, slopes, second_derivatives)
    return dual_point.t * slopes * problem.kind.signs(block.y)


def row_curvatures(problem: Problem, smooth: Loss, block: Block, f: Float64) -> Float64:
    """Return C_i smooth''(m_i) (n,) of the rows of a block whose decision values are f (n,)."""
    bends = np.empty(len(f))
    second_derivatives_pass(block.y, block.s, f, problem.C, smooth, bends)
    return bends


def block_hessian(problem: Problem, block: Block, f: Float64) -> Float64:
    """Return X' diag(C_i l''(m_i)) X (p, p) of a block whose decision values are f (n,)."""
    return operators.gram(block.X, row_curvatures(problem, problem.loss, block, f), problem.columns)


def add_to_sum(total: Float64 | None, found: Float64) -> Float64:
    """Return a sum over blocks, with that of one more; None: the sum of no block."""
    return found if total is None else total + found


@dataclass(slots=True)
class Evaluation:
    """The sums over all rows of one problem, at its weights."""

    problem: Problem
    weights: Float64
    """(p,)."""
    unit: float = 1.0
    """The size of margins, in which the widths of rounded corners are measured."""
    slopes: Total[tuple[PointSums, ...]] = field(init=False)
    """Of dual points read off the weights: the slopes of the loss, or of it with a rounded corner."""
    own: Total[DualSums | None] = None
    """Of the solver's dual variables, where it has some."""

    def __post_init__(self) -> None:
        widths = (0.0,) if self.problem.loss.smooth() else WIDTHS
        self.slopes = tuple(PointSums(len(self.weights)) for _ in widths)

    def add(self, block: Block, alpha: Float64 | None) -> None:
        """Count a block, with the dual variables (n,) of its rows."""
        loss = self.problem.loss
        smooth = [loss] if loss.smooth() else [round_corners(loss, width * self.unit) for width in WIDTHS]
        for sums, one in zip(self.slopes, smooth, strict=True):
            sums.add(self.problem, one, block, self.weights)
        if alpha is not None:
            self.own = self.own or DualSums(len(self.weights))
            self.own.add(self.problem, block, alpha)

    def transform(self, weights: Float64, change: Callable[[Float64], Float64]) -> None:
        """Go to other features, in which the weights are these and ``change`` makes of each v what it is there."""
        self.weights = weights
        for sums in self.slopes:
            sums.v, sums.low = change(sums.vector()), None
            if sums.rows is not None:
                sums.rows.v = change(sums.rows.v)
        if self.own is not None:
            self.own.v, self.own.low = change(self.own.vector()), np.zeros(len(weights))

    def values(self) -> tuple[float, list[float]]:
        """Return P, and D of every dual point there is."""
        found = [sums.close(self.problem, self.weights) for sums in self.slopes]
        return found[0].primal, [point.dual for point in found] + ([self.own.value()] if self.own else [])

    def vector(self) -> Float64:
        """Return sum a_i y_i x_i (p,) of the dual point whose D is largest."""
        best, found = 0.0, np.zeros(len(self.weights))
        for sums in self.slopes:
            point = sums.close(self.problem, self.weights)
            if point.dual > best:
                best, found = point.dual, point.scale * point.v
        return self.own.vector() if self.own is not None and self.own.value() > best else found


@dataclass(slots=True)
class MultinomialEvaluation:
    """The sums over all rows of a problem of all classes together, at its weights and the solver's dual variables.

    Problem and dual: ``compute.passes.dcd.multinomial_sweep``.
    """

    problem: Problem
    weights: Float64
    """(classes, p)."""
    v: Total[Float64] = field(init=False)
    """(classes, p) sum_i a_ik x_i."""
    losses: Total[float] = 0.0
    """sum C_i l(m_i)."""
    gain: Total[float] = 0.0
    """sum b_i - conjugate(b_i)."""

    def __post_init__(self) -> None:
        self.v = np.zeros_like(self.weights)

    def add(self, block: Block, alpha: Float64 | None) -> None:
        """Count a block, with the dual variables (n, classes) of its rows."""
        problem = self.problem
        values = operators.margins(block.X, self.weights.T)
        self.losses += multinomial_loss_sum(values, block.y, block.s, problem.C, problem.loss)
        if alpha is not None:
            alpha = np.ascontiguousarray(alpha)
            self.v += operators.adjoint(block.X, alpha, problem.columns).T
            self.gain += multinomial_dual_sum(alpha, block.y, block.s, problem.C, problem.loss)

    def transform(self, weights: Float64, change: Callable[[Float64], Float64]) -> None:
        """Go to other features, in which the weights are these and ``change`` makes of each v what it is there."""
        self.weights, self.v = weights, np.array([change(v) for v in self.v])

    def values(self) -> tuple[float, list[float]]:
        """Return P, and D of the dual variables; of none it is 0, which D(0) is."""
        return 0.5 * float(np.sum(self.weights**2)) + self.losses, [self.gain - 0.5 * float(np.sum(self.v**2))]

    def vector(self) -> Float64:
        """Return sum_i a_ik x_i (classes, p) of the dual variables."""
        return self.v


@saved_as("evaluation.state")
@dataclass(slots=True)
class WeightEvaluationState:
    """``point`` (columns + 1,) is what the problem starts from."""

    problem: Problem
    """What the weights are worth is asked for this loss and C."""
    point: Float64
    """The weights, which never change; 0 where the problem has none to start from."""
    evaluation: Total[PointSums]
    """The sums of the pass: losses, dual terms, gradient."""


@dataclass(frozen=True, slots=True)
class WeightEvaluation(Solver[WeightEvaluationState]):
    """Evaluates ``Problem.warm``; the dual is that of the loss's slopes there."""

    row_state: ClassVar[tuple[RowState, ...]] = ()
    """Empty: one pass has nothing to carry on."""
    shuffled: ClassVar[bool] = False
    """False: no step is taken while rows are read, so that their order does not matter."""
    losses: ClassVar[LossRequirement] = LossRequirement()
    """Any: a dual value follows from sums over the rows."""
    warm_start: ClassVar[bool] = True

    def cost(self, problem: Problem, layout: Layout) -> Cost:
        """Bytes of two vectors of weights, and of a decision value a row of a block."""
        return Cost(fixed=2 * 8 * problem.components, per_block_row=8 * max(1, problem.kind.classes))

    def start(self, problem: Problem) -> WeightEvaluationState:
        """Begin at the weights the problem starts from."""
        return WeightEvaluationState(problem, problem.first_weights(), PointSums(problem.components))

    def visit(self, state: WeightEvaluationState, block: Block) -> None:
        """Add the block to both sums."""
        problem = state.problem
        problem.kind.add_block(state.evaluation, problem, block, state.point)

    def finish(self, state: WeightEvaluationState) -> Certificate:
        """Return both bounds; there is nothing else to do, so the certificate is final."""
        found = state.evaluation.close(state.problem, state.point)
        return Certificate(found.primal, found.dual, final=True)

    def certify(self, state: WeightEvaluationState) -> None:
        """Every pass is an exact evaluation."""

    def solution(self, state: WeightEvaluationState) -> LinearSolution:
        """The weights it was given."""
        return LinearSolution(state.problem.kind.shape(state.point).copy(), state.problem.bias)


def margins_to_next(values: Float64, own: Int32) -> tuple[Float64, Int32]:
    """Return how far the value of each row's own class is above all others (n,), and which of these is the largest
    (n,).
    """
    rows, others = np.arange(len(own)), values.copy()
    others[rows, own] = -np.inf
    following = others.argmax(axis=1).astype(np.int32)
    return values[rows, own] - others[rows, following], following


def slopes_of(loss: Loss) -> Loss:
    """Return the loss whose slopes give dual points of ``loss``: itself, or where it has a corner a rounded one."""
    return round_corners(loss, CORNER_WIDTH * threshold(loss))
