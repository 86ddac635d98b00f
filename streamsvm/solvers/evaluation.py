"""Exact evaluation of P and D at given weights or dual variables, by sums over the blocks of a pass.

``PointSums`` are the sums of second-order methods at one point, ``DualSums`` those of given dual variables.
``Evaluation`` and ``MultinomialEvaluation`` combine them for the certificate of a model; ``WeightEvaluation`` is a
solver whose only pass evaluates given weights.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple

import numpy as np

from streamsvm.class_tags import saved_as
from streamsvm.compute.blocks import operators
from streamsvm.compute.blocks.curves import Curved
from streamsvm.compute.blocks.operators import LazyRows
from streamsvm.compute.blocks.sums import add_rows_precisely, dual_sum, two_sum
from streamsvm.compute.passes.certificate import RowLoss
from streamsvm.compute.passes.dcd import multinomial_dual_sum, multinomial_loss_sum
from streamsvm.compute.passes.newton import evaluation_pass, second_derivatives_pass, slopes_pass
from streamsvm.losses import round_corners, threshold
from streamsvm.rows import Float64, Int32
from streamsvm.solvers.free_bias import ClassWeights
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

KINK_HALF_WIDTH = 0.1
"""Half-width, in units of the margin, over which the kink of a loss is smoothed to get a dual point from its slopes."""
CORNER_HALF_WIDTHS = (0.3, 0.1, 0.03, 0.01, 3e-3, 1e-3)
"""Half-widths over which the kink of a loss is smoothed in an ``Evaluation``. The slopes of at least one of them are
expected to be a good dual point."""


@saved_as("evaluation.block")
class Sums(NamedTuple):
    """Loss sums at a point, and the sums that give the dual value of a_i = -C_i h'(m_i)."""

    losses: float
    """sum C_i l(m_i), l being the loss of the problem."""
    smoothed: float
    """sum C_i h(m_i), h being the loss with its kink smoothed; h = l if l has no kink."""
    linear: float
    """The coefficient of t in sum (t a_i - conjugate(t a_i)) = t linear - t^2 quadratic."""
    quadratic: float
    """The coefficient of -t^2 in that sum."""

    def plus(self, other: tuple[float, ...], sign: float = 1.0) -> Sums:
        """Return these sums plus ``sign`` times ``other``, term by term."""
        return Sums(*(a + sign * b for a, b in zip(self, other, strict=True)))


NO_SUMS = Sums(0.0, 0.0, 0.0, 0.0)


@saved_as("evaluation.dual_point")
class DualPoint(NamedTuple):
    """The dual point a_i = t C_i (-h'(m_i)) given by the margins at w, h being the loss smoothed by ``mu``."""

    w: Float64
    """(columns + 1,) the weights."""
    mu: float
    """The half-width of the smoothed kink, in units of the margin; 0: the loss has no kink."""
    t: float
    """The scale at which D is largest."""


@saved_as("evaluation.point")
class PointEvaluation(NamedTuple):
    """The values of a pass at its point."""

    primal: float
    """P of the point, with the loss of the problem."""
    dual: float
    """D of the a_i, scaled by ``scale``."""
    scale: float
    """The factor of the a_i at which D is largest."""
    smoothing: float
    """The smoothing term of the gap: primal - dual without scaling - 1/2 ||gradient||^2."""
    value: float
    """The objective with the smoothed loss."""
    gradient: Float64
    """(p,) w - v, the gradient of the objective with the smoothed loss."""
    sums: Sums
    """The sums from which the values are computed."""
    v: Float64
    """(p,) sum a_i y_i x_i, a_i = -C_i h'(m_i)."""


@saved_as("evaluation.sums")
@dataclass(slots=True)
class PointSums:
    """The sums of a pass at one point: losses, the terms of the dual value of the slopes at the point, and X'
    slopes.
    """

    components: int
    """p = columns + 1, the length of ``v``."""
    v: Total[Float64] = field(init=False)
    """(p,) sum a_i y_i x_i over the blocks added so far."""
    sums: Total[Sums] = NO_SUMS
    """The four sums over the blocks added so far."""
    low: Total[Float64 | None] = None
    """(p,) the compensation term of ``v``: ``v + low`` is as accurate as a sum in twice the precision. None before the
    first block."""
    rows: Total[RowSums | ClassWeights | None] = None
    """Sums over all rows for one-class problems with a free offset and for a free bias; None before the first block, and for all other
    problems."""
    has_unformed_rows: Largest[bool] = False
    """Whether rows were added at w = 0 without computing their features. ``v`` is then unknown, and D that of a = 0."""

    def __post_init__(self) -> None:
        self.v = np.zeros(self.components)

    def add(self, problem: Problem, smooth: Any, block: Block, w: Float64) -> Float64:
        """Add a block at w, and return its decision values X w."""
        if self.low is None:
            self.low = np.zeros_like(self.v)
        self.rows = add_row_sums(self.rows, problem, block)
        self.has_unformed_rows = self.has_unformed_rows or isinstance(block.X, LazyRows)
        f, sums = evaluate_block(problem, smooth, block, w, (self.v, self.low))
        self.sums = self.sums.plus(sums)
        return f

    def merge(self, other: PointSums) -> None:
        """Add the sums over other rows at the same point."""
        v, compensation = two_sum(self.v, other.v)
        for low in (self.low, other.low):
            compensation = compensation if low is None else compensation + low
        merge_states([self, other], except_fields=("v", "low"))
        self.v, self.low = v, compensation

    def vector(self) -> Float64:
        """Return sum a_i y_i x_i (p,) as precisely as it is known."""
        return self.v.copy() if self.low is None else self.v + self.low

    def close(self, problem: Problem, w: Float64) -> PointEvaluation:
        """Return the values at w; called when all blocks are counted."""
        v = self.vector()
        half, square, gradient = 0.5 * float(w @ w), float(v @ v), w - v
        losses, smoothed, linear, quadratic = self.sums
        smoothing = half + losses - (linear - quadratic - 0.5 * square) - 0.5 * float(gradient @ gradient)
        value, scale, dual, _ = problem.regularizer.bounds(problem.loss, (losses, linear, quadratic), w, v, self.rows)
        if self.has_unformed_rows:
            scale = dual = 0.0
        return PointEvaluation(value + losses, dual, scale, smoothing, value + smoothed, gradient, self.sums, v)


@dataclass(slots=True)
class DualSums:
    """The sums that give the dual value of given dual variables: v = sum a_i y_i x_i, and sum a_i - conjugate(a_i)."""

    components: int
    """p = columns + 1, the length of ``v``."""
    v: Total[Float64] = field(init=False)
    """(p,) the sum in float64."""
    low: Total[Float64] = field(init=False)
    """(p,) the compensation term of ``v``."""
    gain: Total[float] = 0.0
    """sum a_i - conjugate(a_i)."""

    def __post_init__(self) -> None:
        self.v, self.low = np.zeros(self.components), np.zeros(self.components)

    def add(self, problem: Problem, block: Block, alpha: Float64) -> None:
        """Add a block with its dual variables (n,)."""
        _add_adjoint(block.X, alpha * problem.kind.signs(block.y), problem.columns, self.v, self.low)
        self.gain += dual_sum(alpha, block.y, block.s, problem.C, problem.loss)

    def merge(self, other: DualSums) -> None:
        """Add the sums over other rows."""
        self.v, error = two_sum(self.v, other.v)
        self.low, self.gain = self.low + (error + other.low), self.gain + other.gain

    def value(self) -> float:
        """Return D."""
        v = self.vector()
        return self.gain - 0.5 * float(v @ v)

    def vector(self) -> Float64:
        """Return sum a_i y_i x_i (p,), with its compensation term."""
        return self.v + self.low


def evaluate_block(
    problem: Problem, smooth: Any, block: Block, w: Float64, v: tuple[Float64, Float64]
) -> tuple[Float64, tuple[float, ...]]:
    """Return the decision values X w (n,) and the four sums of a block, and add X' slopes to v, a vector and its
    compensation term.

    Blocks of low-rank factors and of curves are evaluated by ``operators``. Rows without computed features require w = 0, and nothing
    is added to v.
    """
    X, cost = block.X, RowLoss(problem.C, problem.loss, smooth)
    if isinstance(X, operators.Factored | LazyRows | Curved):
        f = np.zeros(len(block.y)) if isinstance(X, LazyRows) else operators.margins(X, w)
        slopes, second_derivatives = np.empty(len(f)), np.empty(len(f))
        sums = slopes_pass(block.y, block.s, f, cost, slopes, second_derivatives)
        if not isinstance(X, LazyRows):
            _add_adjoint(X, slopes, problem.columns, *v)
        return f, sums
    f = np.empty(len(block.y))
    return f, evaluation_pass(block.labeled, w, cost, f, *v)


def _add_adjoint(X: operators.Operand, a: Float64, columns: int, v: Float64, low: Float64) -> None:
    """Add X' a to v + low, where low is the accumulated rounding error of v. Changes both vectors; for low-rank
    factors, v alone.
    """
    if isinstance(X, operators.Factored):
        v += operators.adjoint(X, a, columns)
    elif isinstance(X, Curved):
        v[:], error = two_sum(v, operators.adjoint(X, a, columns))
        low += error
    else:
        add_rows_precisely(X, a, v, low)


def add_row_sums(rows: Any, problem: Problem, block: Block) -> Any:
    """Return ``rows``, the sums over all rows that the regularizer needs, with a block added. They are None before the first
    block, and if the regularizer needs no such sums.
    """
    rows = rows or problem.regularizer.row_sums(problem.columns + 1)
    if rows is not None:
        rows.add(problem, block)
    return rows


def slopes_at(problem: Problem, dual_point: DualPoint, block: Block) -> Float64:
    """Return the dual variables (n,) of a block's rows at a dual point."""
    f = operators.margins(block.X, dual_point.w)
    slopes, second_derivatives = np.empty(len(f)), np.empty(len(f))
    cost = RowLoss(problem.C, problem.loss, round_corners(problem.loss, dual_point.mu))
    slopes_pass(block.y, block.s, f, cost, slopes, second_derivatives)
    return dual_point.t * slopes * problem.kind.signs(block.y)


def row_curvatures(problem: Problem, smooth: Loss, block: Block, f: Float64) -> Float64:
    """Return C_i smooth''(m_i) (n,) of the rows of a block with decision values f (n,)."""
    curvatures = np.empty(len(f))
    second_derivatives_pass(block.y, block.s, f, problem.C, smooth, curvatures)
    return curvatures


def block_hessian(problem: Problem, block: Block, f: Float64) -> Float64:
    """Return X' diag(C_i l''(m_i)) X (p, p) of a block with decision values f (n,)."""
    return operators.gram(block.X, row_curvatures(problem, problem.loss, block, f), problem.columns)


def add_to_sum(total: Float64 | None, term: Float64) -> Float64:
    """Return ``total + term``; ``total`` is None before the first term."""
    return term if total is None else total + term


@dataclass(slots=True)
class Evaluation:
    """The sums over all rows of one problem at its weights, for P and for several dual points."""

    problem: Problem
    weights: Float64
    """(p,)."""
    unit: float = 1.0
    """The typical size of margins, in units of which CORNER_HALF_WIDTHS are given."""
    slopes: Total[tuple[PointSums, ...]] = field(init=False)
    """The sums for the dual points given by the slopes at the weights: of the loss, or of its smoothed forms."""
    own: Total[DualSums | None] = None
    """The sums for the dual variables of the solver, if it has any."""

    def __post_init__(self) -> None:
        widths = (0.0,) if self.problem.loss.smooth() else CORNER_HALF_WIDTHS
        self.slopes = tuple(PointSums(len(self.weights)) for _ in widths)

    def add(self, block: Block, alpha: Float64 | None) -> None:
        """Add a block, with the dual variables (n,) of its rows or None."""
        loss = self.problem.loss
        smooth = [loss] if loss.smooth() else [round_corners(loss, width * self.unit) for width in CORNER_HALF_WIDTHS]
        for sums, smooth_loss in zip(self.slopes, smooth, strict=True):
            sums.add(self.problem, smooth_loss, block, self.weights)
        if alpha is not None:
            self.own = self.own or DualSums(len(self.weights))
            self.own.add(self.problem, block, alpha)

    def transform(self, weights: Float64, change: Callable[[Float64], Float64]) -> None:
        """Change to other features, for which the weights are ``weights`` and ``change`` transforms each v."""
        self.weights = weights
        for sums in self.slopes:
            sums.v, sums.low = change(sums.vector()), None
            if sums.rows is not None:
                sums.rows.transform(change)
        if self.own is not None:
            self.own.v, self.own.low = change(self.own.vector()), np.zeros(len(weights))

    def values(self) -> tuple[float, list[float]]:
        """Return P, and D of each dual point."""
        points = [sums.close(self.problem, self.weights) for sums in self.slopes]
        return points[0].primal, [point.dual for point in points] + ([self.own.value()] if self.own else [])

    def vector(self) -> Float64:
        """Return sum a_i y_i x_i (p,) of the dual point with the largest D."""
        best, v = 0.0, np.zeros(len(self.weights))
        for sums in self.slopes:
            point = sums.close(self.problem, self.weights)
            if point.dual > best:
                best, v = point.dual, point.scale * point.v
        return self.own.vector() if self.own is not None and self.own.value() > best else v


@dataclass(slots=True)
class MultinomialEvaluation:
    """The sums over all rows of a multinomial problem, at its weights and the dual variables of the solver.

    ``compute.passes.dcd.multinomial_sweep`` defines the problem and its dual.
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
        """Add a block, with the dual variables (n, classes) of its rows or None."""
        problem = self.problem
        values = operators.margins(block.X, self.weights.T)
        self.losses += multinomial_loss_sum(values, block.y, block.s, problem.C, problem.loss)
        if alpha is not None:
            alpha = np.ascontiguousarray(alpha)
            self.v += operators.adjoint(block.X, alpha, problem.columns).T
            self.gain += multinomial_dual_sum(alpha, block.y, block.s, problem.C, problem.loss)

    def transform(self, weights: Float64, change: Callable[[Float64], Float64]) -> None:
        """Change to other features, for which the weights are ``weights`` and ``change`` transforms each v."""
        self.weights, self.v = weights, np.array([change(v) for v in self.v])

    def values(self) -> tuple[float, list[float]]:
        """Return P, and D of the dual variables; D = 0, that of a = 0, if there are none."""
        return 0.5 * float(np.sum(self.weights**2)) + self.losses, [self.gain - 0.5 * float(np.sum(self.v**2))]

    def vector(self) -> Float64:
        """Return sum_i a_ik x_i (classes, p) of the dual variables."""
        return self.v


@saved_as("evaluation.state")
@dataclass(slots=True)
class WeightEvaluationState:
    """The state of ``WeightEvaluation``."""

    problem: Problem
    point: Float64
    """(columns + 1,) the weights to evaluate: the start weights of the problem, or 0 if it has none."""
    evaluation: Total[PointSums]
    """The sums of the pass: losses, dual terms, gradient."""


@dataclass(frozen=True, slots=True)
class WeightEvaluation(Solver[WeightEvaluationState]):
    """A solver that only evaluates ``Problem.warm``; D is that of the slopes of the loss at these weights."""

    row_state: ClassVar[tuple[RowState, ...]] = ()
    """Empty: there is only one pass."""
    shuffled: ClassVar[bool] = False
    """False: the sums do not depend on the order of rows."""
    losses: ClassVar[LossRequirement] = LossRequirement()
    """Any loss: a dual value is computed from sums over the rows."""
    warm_start: ClassVar[bool] = True

    def cost(self, problem: Problem, layout: Layout) -> Cost:
        """Return the bytes of two vectors of weights, and of the decision values of each row of a block."""
        return Cost(fixed=2 * 8 * problem.components, per_block_row=8 * max(1, problem.kind.classes))

    def start(self, problem: Problem) -> WeightEvaluationState:
        """Return the state at the start weights of the problem."""
        return WeightEvaluationState(problem, problem.first_weights(), PointSums(problem.components))

    def visit(self, state: WeightEvaluationState, block: Block) -> None:
        """Add the block to the sums."""
        problem = state.problem
        problem.kind.add_block(state.evaluation, problem, block, state.point)

    def finish(self, state: WeightEvaluationState) -> Certificate:
        """Return P and D. The certificate is final, since no further pass would change it."""
        evaluation = state.evaluation.close(state.problem, state.point)
        return Certificate(evaluation.primal, evaluation.dual, final=True)

    def certify(self, state: WeightEvaluationState) -> None:
        """Do nothing: every pass is an exact evaluation."""

    def solution(self, state: WeightEvaluationState) -> LinearSolution:
        """Return the evaluated weights."""
        return LinearSolution(state.problem.kind.shape(state.point).copy(), state.problem.bias)

    def gradient(self, state: WeightEvaluationState) -> Float64 | None:
        is_known = (
            state.problem.loss.smooth() and not state.problem.kind.classes and not state.evaluation.has_unformed_rows
        )
        return state.point - state.evaluation.vector() if is_known else None


def margins_to_next(values: Float64, own: Int32) -> tuple[Float64, Int32]:
    """Return the difference of the decision values of each row's own class and the best other class (n,), and that
    other class (n,).
    """
    rows, others = np.arange(len(own)), values.copy()
    others[rows, own] = -np.inf
    following = others.argmax(axis=1).astype(np.int32)
    return values[rows, own] - others[rows, following], following


def slopes_of(loss: Loss) -> Loss:
    """Return the loss whose slopes give dual points of ``loss``: itself, or its smoothed form if it has a kink."""
    return round_corners(loss, KINK_HALF_WIDTH * threshold(loss))
