"""Stochastic solvers (SGD, Pegasos and ASSG), and their certificates in O(d) memory.

These solvers keep no per-row state. The candidate and the dual point are means over passes, which
``AveragedCertificate`` holds: the candidate whose P is evaluated, and the sums that define the dual point. The steps,
the averaging and the merging of copies differ from solver to solver (``SGD``, ``Pegasos``, ``ASSG``;
``solvers.sgd_qn``).

**Dual point.** Let a pass visit every row once, with a margin m_i, and let b_i = -s_i l'(m_i). Then a_i = C b_i is
feasible, and so is any convex combination of such points of several passes. As the conjugate is convex, a lower bound
of D at the combination follows from three sums over each pass: v = sum a_i y_i x_i, linear and quadratic
(``compute.passes.certificate``). The mean gives pass t a weight of about t^5, so that the poor points of the first
passes soon have no influence. (Panagiotakopoulos and Tsampouka, arXiv:1304.6383, use the plain mean, whose gap is four
times as large after 40 passes.)

**Primal value.** While w changes, P(w) can only be estimated from the loss of each row at its visit. The candidate is
the mean of w over the passes, with the same weights. Its P is computed exactly while the next pass trains, so that it
costs no extra pass over the data. This is done when the estimated gap is near the tolerance and, because the mean is
often far better than the estimate, also at growing intervals.

**Weights.** In all of these solvers s_i multiplies the loss of row i. A row is one time step whatever its weight.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import ceil, inf, isinf, sqrt
from typing import Annotated, Any, ClassVar, Literal

import numpy as np

from streamsvm.class_tags import saved_as
from streamsvm.compute.blocks.sums import loss_sum
from streamsvm.compute.passes.certificate import RowLoss, certify_pass
from streamsvm.compute.passes.dcd import Box, ShrinkingThresholds, dcd_sweep
from streamsvm.compute.passes.stochastic import (
    Batches,
    Objective,
    Stage,
    assg_pass,
    gradient_moments,
    pegasos_pass,
    sgd_pass,
)
from streamsvm.compute.random import shuffle
from streamsvm.config.options import Bounds, Option
from streamsvm.losses import threshold
from streamsvm.rows import Float64, Int32
from streamsvm.solvers.evaluation import slopes_of
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
from streamsvm.types.problem import has_box, scale_dual
from streamsvm.types.state import Mean, Own, Total, clear_totals, merge_states

AVERAGING_POWER = 5
"""eta of the means over passes (Shamir and Zhang, ICML 2013, section 4): pass t has a weight of about t^eta."""
EVALUATION_MARGIN = 1.2
"""The candidate is evaluated when the estimated gap is at most this many tolerances (the value in arXiv:1304.6383)."""
EVALUATION_SPACING = 1.25
"""The candidate is evaluated again at the latest when the number of passes has grown by this factor. It is evaluated
sooner if its gap would then be within the tolerance, on the assumption that gaps fall as 1 / passes."""
ROWS_PER_SAMPLE = 512
"""Number of rows between two samples of w for the mean."""
MAX_MARGIN = 10.0
"""For losses that are positive everywhere (the logistic loss): a margin beyond the maximum of -l'(m) m, in units of
1 / l''(0)."""
ADDITIONS_PER_ROW = 16
"""Maximum number of additions to the mean of w per row. It is the same for dense and sparse rows, so that their results
agree."""
SAMPLE_SWEEPS = 5
"""Sweeps of dual coordinate descent over the rows of the sample."""
RADIUS_FACTOR = 3.0
"""The first radius as a multiple of the length of the sample's w."""


@saved_as("averaged.certificate")
@dataclass(slots=True)
class AveragedCertificate:
    """The candidate and the dual point of a problem. Arrays are (columns + 1,) float64."""

    problem: Problem
    candidate: Float64
    """The weights that are evaluated next. The solver changes them at the end of a pass, after
    ``close_certificate``."""
    best: Float64
    """The evaluated candidate with the least P."""
    v: Own[Float64]
    """v = sum a_i y_i x_i, averaged over passes. D is computed from it and the next two fields. With
    ``evaluate_with_slopes``: the sum of the current pass alone."""
    linear: Own[float] = 0.0
    """The coefficient of t in sum (t a_i - conjugate(t a_i)) = t linear - t^2 quadratic; averaged or summed like
    ``v``."""
    quadratic: Own[float] = 0.0
    """The coefficient of -t^2 in that sum; averaged or summed like ``v``."""
    dual: float = 0.0
    """The largest D proven so far; at first 0, the value of a = 0."""
    primal: float = inf
    """P of ``best``; inf before the first evaluation."""
    losses: Total[float] = 0.0
    """sum C s_i l(m_i) of the candidate over the rows visited in this pass, if it evaluates the candidate; else 0."""
    passes: int = 0
    """Number of completed training passes."""
    next_evaluation: float = 2.0
    """The number of passes after which the candidate is evaluated at the latest."""
    certifying: bool = False
    """Whether this pass evaluates the candidate."""
    evaluates_only: bool = False
    """Whether this pass only evaluates and does not train."""


def start_certificate(problem: Problem) -> AveragedCertificate:
    """Return the certificate of w = 0 and a = 0. In a warm start the first pass evaluates the given weights."""
    zero = np.zeros(problem.columns + 1)
    return AveragedCertificate(problem, problem.first_weights(), zero, zero.copy(), certifying=problem.warm is not None)


def weight_of_last_pass(passes: int) -> float:
    """Return the weight of the last pass in the means over ``passes`` passes."""
    return (AVERAGING_POWER + 1) / (passes + AVERAGING_POWER)


def evaluate_candidate(averaged: AveragedCertificate, block: Block) -> None:
    """Add a block's exact losses at the candidate, if this pass evaluates it."""
    if averaged.certifying:
        p = averaged.problem
        averaged.losses += loss_sum(block.X, block.y, block.s, averaged.candidate, p.C, p.loss)


def evaluate_with_slopes(averaged: AveragedCertificate, block: Block) -> None:
    """Add a block's exact losses at the candidate, and its terms of the dual point given by the slopes there, if this
    pass evaluates the candidate.

    For solvers whose training passes do not visit every row once.
    """
    if not averaged.certifying:
        return
    p = averaged.problem
    cost = RowLoss(p.C, p.loss, slopes_of(p.loss))
    losses, linear, quadratic = certify_pass(block.labeled, averaged.candidate, cost, averaged.v)
    averaged.losses += losses
    averaged.linear += linear
    averaged.quadratic += quadratic


def bound_with_slopes(averaged: AveragedCertificate) -> None:
    """Update the dual bound from the sums of ``evaluate_with_slopes``, and reset the sums."""
    raise_dual(averaged, averaged.v, averaged.linear, averaged.quadratic)
    averaged.v[:] = 0.0
    averaged.linear = averaged.quadratic = 0.0


def bound_by_pass(averaged: AveragedCertificate, v: Float64, linear: float, quadratic: float) -> None:
    """Include the sums of this pass in the mean over passes, and update the dual bound from the mean."""
    weight = weight_of_last_pass(averaged.passes)
    averaged.v += weight * (v - averaged.v)
    averaged.linear += weight * (linear - averaged.linear)
    averaged.quadratic += weight * (quadratic - averaged.quadratic)
    raise_dual(averaged, averaged.v, averaged.linear, averaged.quadratic)


def raise_dual(averaged: AveragedCertificate, v: Float64, linear: float, quadratic: float) -> None:
    """Record the value of a dual point, with the scale at which it is largest, if it is the largest so far."""
    value = scale_dual(averaged.problem.loss, linear, quadratic, float(v @ v))
    averaged.dual = max(averaged.dual, value)


def close_certificate(averaged: AveragedCertificate, estimate: float) -> Certificate:
    """Return the certificate of the pass, which is exact if the candidate was evaluated, and decide whether the next
    pass evaluates the candidate.

    ``estimate``: P as estimated in this pass. Call before the candidate changes.
    """
    certificate = Certificate(estimate, averaged.dual, exact=False)
    is_close = certificate.gap <= EVALUATION_MARGIN * averaged.problem.tolerance
    if averaged.certifying:
        primal = 0.5 * float(averaged.candidate @ averaged.candidate) + averaged.losses
        if primal < averaged.primal:
            averaged.primal = primal
            averaged.best[:] = averaged.candidate
        certificate = Certificate(averaged.primal, averaged.dual)
        tolerance = averaged.problem.tolerance
        spacing = min(EVALUATION_SPACING, certificate.gap / tolerance) if tolerance else EVALUATION_SPACING
        averaged.next_evaluation = averaged.passes * spacing
    averaged.losses = 0.0
    averaged.certifying = is_close or averaged.passes + 1 >= averaged.next_evaluation
    return certificate


def add_slope_sums(averaged: AveragedCertificate, others: list[AveragedCertificate]) -> None:
    """Add the sums of ``evaluate_with_slopes`` of other parts of a pass."""
    for other in others:
        averaged.v = averaged.v + other.v
        averaged.linear += other.linear
        averaged.quadratic += other.quadratic


class AveragedState:
    """The fields that the states of all these solvers share. Their position among the other fields is part of the saved
    format.
    """

    __slots__ = ()

    problem: Problem
    averaged: AveragedCertificate

    @property
    def lam(self) -> float:
        """1 / (C rows), the lambda of P / (C rows) = lambda/2 ||w||^2 + mean of s_i l(m_i)."""
        return 1.0 / (self.problem.C * self.problem.rows)


class AveragedSolver(Solver[Any]):
    """The methods of ``Solver`` that do not depend on the kind of step."""

    __slots__ = ()

    row_state: ClassVar[tuple[RowState, ...]] = ()
    """Empty: the state is a few vectors of weights."""
    shuffled: ClassVar[bool] = True
    """True: rows may be stored sorted by class or time, and steps in that order would be biased."""
    has_current_weights: ClassVar[bool] = True
    warm_start: ClassVar[bool] = True

    def certify(self, state: AveragedState) -> None:
        """Make the next pass evaluate the candidate without training."""
        state.averaged.certifying = state.averaged.evaluates_only = True

    def current_weights(self, state: AveragedState) -> Float64:
        """Return a copy of the candidate as of the last pass."""
        return state.averaged.candidate.copy()

    def solution(self, state: AveragedState) -> LinearSolution:
        """Return the evaluated candidate with the least P so far."""
        return LinearSolution(state.averaged.best.copy(), state.problem.bias)


@saved_as("sgd.state")
@dataclass(slots=True)
class SGDState(AveragedState):
    """The state of ``SGD``. ``a`` (columns + 1,) float64 is lambda t w, where ``t`` counts presentations of rows."""

    problem: Problem
    a: Own[Float64]
    """lambda t w, (columns + 1,): a sum of s_i y_i x_i, so that a presentation adds to it and scales nothing."""
    start_a: Float64
    """a at the start of the pass."""
    total: Total[Float64]
    """The sum of ``samples`` values of w in this pass."""
    averaged: Total[AveragedCertificate]
    origin: Float64
    """The part of a that comes from the warm start and not from updates."""
    t: Own[int] = 0
    """Number of presentations so far, ``t_origin`` included."""
    t_before: int = 0
    """t at the start of the pass."""
    t_origin: int = 0
    """The number of presentations that a warm start counts as: one for each row; 0 without a warm start."""
    samples: Total[int] = 0
    """Number of values of w in ``total``."""
    gain: Total[float] = 0.0
    """sum s_i (b - conjugate(b, 1)) over the presentations of this pass. For the hinge: its margin times
    sum s_i (updates of row i)."""
    gain_before: float = 0.0
    """``gain`` of all earlier passes."""
    losses: Total[float] = 0.0
    """sum s_i l(m_i), with the w at the visit of each row in this pass. C times it estimates the loss sum of P."""


@dataclass(frozen=True, slots=True)
class SGD(AveragedSolver):
    """Stochastic gradient descent as a perceptron with a growing margin.

    Stochastic sub-gradient descent in complete passes (Panagiotakopoulos and Tsampouka, arXiv:1304.6383). With
    a = lambda t w, a presentation of row i adds s_i y_i x_i to a if y_i a.x_i <= lambda t, and does nothing else: w is
    never scaled (``compute.passes.stochastic``). ``variant``:

        s   every row once in a pass;
        m   every row ``multiplicity`` times in succession, with one or two inner products;
        r   as many rows as there are, drawn at random with replacement, from blocks or from all rows (``draws``).

    **Draws.** "block" draws from each block as many rows as it has. "all" draws a random number of rows from each
    block, which has a Poisson distribution whose mean is the number of its rows: if the number of draws from all rows
    is Poisson, the numbers of draws in the blocks are independent and Poisson (thinning). Given the number of draws,
    the rows of a pass have the same distribution as the paper's draws from all rows. They are presented block by block,
    with blocks in random order, because in the order of the draws each row would need a read of its own.

    The above is for the hinge. For a smooth loss with bounded slopes a presentation adds -l'(m_i) s_i y_i x_i,
    m_i = y_i a.x_i / (lambda t). Several presentations of a row are then made one by one, still with two inner
    products.

    **Weights.** The loss of row i has the weight s_i, so that an update adds s_i y_i x_i, while a presentation raises
    the threshold by lambda whatever s_i is. With lambda = 1 / (C rows), a_i = s_i I_i / (lambda t) <= C s_i after
    complete passes, I_i <= t / rows being the number of updates of row i.

    **Certificate.** For s and m the dual point follows from a, t and one sum over the presentations (for the hinge, the
    number of updates), without per-row state. For r there is no such bound; the dual point is then given by the slopes
    at the candidate, which is valid but loose.

    **Warm start** from w_0: a = lambda t w_0 with t = rows, so that w_0 has the weight of one pass. Dual points are
    made of the updates alone.

    **Merge.** Workers start a pass from the same (a, t), and each presents its rows to its own copy. Their
    contributions to a and t are added: w = (t w + sum_k (t_k w_k - t w)) / (t + sum_k (t_k - t)). In the first pass
    that is the mean of the workers' w, weighted by rows. Later it is the step of one worker whose gradients are at most
    a pass old. The dual point stays exactly feasible.
    """

    variant: Annotated[
        Literal["r", "s", "m"],
        Option(
            "Rows are drawn at random (r), visited once in a pass (s), or visited once with combined updates (m).",
            choices=("r", "s", "m"),
        ),
    ] = "m"
    multiplicity: Annotated[
        int, Option("Variant m: maximum number of updates of a row that are combined into one.", bounds=Bounds(least=1))
    ] = 5
    draws: Annotated[
        Literal["block", "all"],
        Option(
            "Variant r: draw as many rows from each block as it has (block), or draw from all rows, so that the "
            "number of draws from a block is random too (all).",
            choices=("block", "all"),
        ),
    ] = "block"
    losses: ClassVar[LossRequirement] = LossRequirement(box=True)
    """Losses with bounded slopes: the first steps are the longest, and must not grow with a row's distance from the
    margin."""

    def settings_without_effect(self, problem: Problem) -> dict[str, tuple[str, ...]]:
        return {
            f"it is for variant m, and the variant is {self.variant}": ("multiplicity",) if self.variant != "m" else (),
            f"it is for variant r, and the variant is {self.variant}": ("draws",) if self.variant != "r" else (),
        }

    def cost(self, problem: Problem, layout: Layout) -> Cost:
        """Return the bytes of eight vectors of weights, and for variant r of a number for each row of a block."""
        return Cost(fixed=8 * 8 * (problem.columns + 1), per_block_row=8 * (self.variant == "r"))

    def start(self, problem: Problem) -> SGDState:
        """Return the state at a = 0, or at the warm-start weights, which count as one pass."""
        t = 0 if problem.warm is None else problem.rows
        a = problem.first_weights() * (t / (problem.C * problem.rows))
        start_a, total, averaged = a.copy(), np.zeros_like(a), start_certificate(problem)
        return SGDState(problem, a, start_a, total, averaged, a.copy(), t, t_before=t, t_origin=t)

    def visit(self, state: SGDState, block: Block) -> None:
        """Present the rows of the block in their order, or drawn rows, and evaluate the candidate if it is due."""
        (evaluate_with_slopes if self.variant == "r" else evaluate_candidate)(state.averaged, block)
        if state.averaged.evaluates_only:
            return
        order = self._draw(state, block) if self.variant == "r" else block.order
        for start in range(0, len(order), ROWS_PER_SAMPLE):
            self._train(state, block, order[start : start + ROWS_PER_SAMPLE])

    def _draw(self, state: SGDState, block: Block) -> Int32:
        """Return the rows to present. The first block of a pass with no draws gets one, since the mean needs a
        sample.
        """
        random, rows = np.random.default_rng(block.seed), len(block.order)
        if self.draws == "block":
            block.order[:] = random.integers(rows, size=rows)
            return block.order
        count = max(int(random.poisson(rows)), int(state.samples == 0))
        return random.integers(rows, size=count, dtype=np.int32)

    def _train(self, state: SGDState, block: Block, order: Int32) -> None:
        times = self.multiplicity if self.variant == "m" else 1
        lam = state.lam
        gain, losses = sgd_pass(block.labeled, order, times, Objective(lam, state.problem.loss), state.t, state.a)
        state.t += times * len(order)
        state.gain += gain
        state.losses += losses
        state.total += state.a / (lam * state.t)
        state.samples += 1

    def finish(self, state: SGDState) -> Certificate:
        """End the pass: update the dual bound and the candidate, and return the certificate with an estimate of P."""
        averaged, p, lam = state.averaged, state.problem, state.lam
        if self.variant == "r" and averaged.certifying:
            bound_with_slopes(averaged)
        if averaged.evaluates_only:
            return close_certificate(averaged, averaged.primal)
        averaged.passes += 1
        w = state.a / (lam * state.t)
        if self.variant != "r":
            self._raise_dual(state)
        certificate = close_certificate(averaged, 0.5 * float(w @ w) + p.C * state.losses)
        averaged.candidate += weight_of_last_pass(averaged.passes) * (state.total / state.samples - averaged.candidate)
        self._reset(state)
        return certificate

    def _raise_dual(self, state: SGDState) -> None:
        """Update the dual bound by the paper's dual point, which is w without the warm start, and by the mean over
        passes.
        """
        lam = state.lam
        time_of_pass, time_of_all = lam * (state.t - state.t_before), lam * (state.t - state.t_origin)
        gain_of_all = state.gain_before + state.gain
        raise_dual(state.averaged, (state.a - state.origin) / time_of_all, gain_of_all / time_of_all, 0.0)
        bound_by_pass(state.averaged, (state.a - state.start_a) / time_of_pass, state.gain / time_of_pass, 0.0)

    def _reset(self, state: SGDState) -> None:
        state.start_a[:] = state.a
        state.t_before = state.t
        state.gain_before += state.gain
        clear_totals(state)

    def merge(self, states: list[SGDState]) -> SGDState:
        """Add up the parts' contributions to a and t, and their sums."""
        first, others = states[0], states[1:]
        a = first.a + sum((s.a - first.start_a for s in others), np.zeros_like(first.a))
        t = first.t_before + sum(s.t - s.t_before for s in states)
        merged = merge_states(states)
        merged.a, merged.t = a, t
        if self.variant == "r":
            add_slope_sums(merged.averaged, [s.averaged for s in others])
        return merged


@saved_as("pegasos.state")
@dataclass(slots=True)
class PegasosState(AveragedState):
    """The state of ``Pegasos``. ``a`` (columns + 1,) float64 is lambda (offset + t) w, where ``t`` counts visited
    rows.
    """

    problem: Problem
    a: Own[Float64]
    """lambda (offset + t) w, (columns + 1,): the sum of b_i y_i x_i, b_i = -s_i l'(m_i), scaled by all later
    projections."""
    start_a: Own[Float64]
    """The part of a from before this pass, scaled by all later projections."""
    origin: Own[Float64]
    """The part of a that comes from the warm start and not from gradients, scaled by all later projections."""
    total: Total[Float64]
    """The sum of ``samples`` values of w in this pass."""
    averaged: Total[AveragedCertificate]
    t: Own[int] = 0
    """Number of rows visited so far, in all passes."""
    t_before: int = 0
    """t at the start of the pass."""
    offset: Own[float] = 0.0
    """The value at which the step counter starts, so that the first steps are stable and a warm start has weight. It is
    set at the first block."""
    samples: Total[float] = 0.0
    """Number of values of w in ``total``."""
    linear: Total[float] = 0.0
    """sum b_i (1 - conjugate'(0)) over the rows of the pass, scaled by projections like ``a``."""
    quadratic: Total[float] = 0.0
    """sum s_i conjugate(b_i / s_i, 1) without its linear part, over the rows of the pass, scaled twice by each later
    projection."""
    linear_before: Own[float] = 0.0
    """``linear`` of all earlier passes, scaled by all later projections."""
    quadratic_before: Own[float] = 0.0
    """``quadratic`` of all earlier passes, scaled twice by each later projection."""
    losses: Total[float] = 0.0
    """sum s_i l(m_i), with the w at the visit of each row in this pass. C times it estimates the loss sum of P."""
    weight: Own[float] = 0.0
    """The sum of s_i, or in regression of 2 s_i l(-t_i), over the ``visited_rows`` rows visited so far. Its mean gives
    the radius."""
    visited_rows: Own[int] = 0
    """Number of rows in the sum ``weight``."""


@dataclass(frozen=True, slots=True)
class Pegasos(AveragedSolver):
    """Pegasos: stochastic sub-gradient descent with the step 1 / (lambda t), mini-batches, a projection and averaging.

    Shalev-Shwartz, Singer, Srebro, Cotter, Math. Prog. 2011; the smoothed hinge of the lecture notes is
    ``losses.Huber``. A pass visits all rows in random order (by section 2.4 of the paper that is no worse than drawing
    them), which gives a dual bound for every loss (``compute.passes.stochastic``).

    **Projection.** At the optimum w = sum a_i y_i x_i with a_i = -C s_i l'(m_i), so ||w||^2 = sum a_i m_i is at most
    C sum s_i max_m (-l'(m) m): for the hinge the paper's 1 / sqrt(lambda), for the squared hinge 1 / sqrt(2 lambda). In
    regression that sum has no such bound, and 1/2 ||w||^2 <= P(0) = C sum s_i l(-t_i) is used instead.

    **Offset.** With a loss of unbounded slope the first steps must be shorter than 1 / (its curvature ||x||^2), or they
    diverge: t then starts such that steps have that length, not from 0 (Bottou, Stochastic gradient descent tricks,
    2012, section 5.2).

    **Warm start.** As in ``SGD``: the weights count as at least one pass.

    **Merge.** As in ``SGD``: the contributions to a and t are added, which in the first pass gives the mean of the
    workers' w, weighted by rows.
    """

    batch: Annotated[int, Option("Rows in a step.", bounds=Bounds(least=1))] = 1
    projection: Annotated[bool, Option("After every step, project w onto a ball that contains the optimum.")] = True
    averaging: Annotated[
        Literal["none", "all", "tail"],
        Option(
            "The weights that are certified: w (none), the mean of all w (all), or the mean of the late ones (tail).",
            choices=("none", "all", "tail"),
        ),
    ] = "tail"
    losses: ClassVar[LossRequirement] = LossRequirement()
    """Any loss: a dual value is computed from sums over the rows."""

    def cost(self, problem: Problem, layout: Layout) -> Cost:
        """Return the bytes of eight vectors of weights and a batch."""
        return Cost(fixed=8 * 8 * (problem.columns + 1) + 8 * self.batch)

    def start(self, problem: Problem) -> PegasosState:
        """Return the state at w = 0. A warm start is applied at the first block, which also sets the offset."""
        zero = np.zeros(problem.columns + 1)
        return PegasosState(problem, zero, zero.copy(), zero.copy(), zero.copy(), start_certificate(problem))

    def visit(self, state: PegasosState, block: Block) -> None:
        """Make steps for the rows of the block in their order, and evaluate the candidate if it is due."""
        evaluate_candidate(state.averaged, block)
        if state.averaged.evaluates_only:
            return
        p, rows = state.problem, len(block.order)
        state.weight += radius_sum(p, block)
        state.visited_rows += rows
        if state.t == 0:
            self._begin(state, block)
        radius, batches = (
            self.ball_radius(state),
            Batches(block.order, self.batch, batches_per_sample(p.columns, self.batch)),
        )
        linear, quadratic, shrunk, losses, samples = pegasos_pass(
            *(block.labeled, batches, Objective(state.lam, p.loss), radius),
            *(state.offset + state.t, state.a, state.total),
        )
        self._apply_projections(state, shrunk)
        state.t += rows
        state.linear += linear
        state.quadratic += quadratic
        state.losses += losses
        state.samples += samples

    def _begin(self, state: PegasosState, block: Block) -> None:
        """Set the offset, and a from the warm-start weights, which count as at least one pass."""
        warm, state.offset = state.problem.warm, self._stable_offset(state, block)
        if warm is not None:
            state.offset = max(state.offset, float(state.problem.rows))
            for a in (state.a, state.start_a, state.origin):
                a[:] = state.lam * state.offset * warm

    def _stable_offset(self, state: PegasosState, block: Block) -> float:
        """Return the t from which on 1 / (lambda t) is a stable step for the rows of this block."""
        loss = state.problem.loss
        if has_box(loss):
            return 0.0
        _, largest = gradient_moments(block.labeled, block.order, loss, np.zeros_like(state.a))
        return float(largest / (loss.curvature(1.0) * state.lam))

    def ball_radius(self, state: PegasosState) -> float:
        """Return the radius of a ball that contains the optimum. The sum over all rows is estimated from the rows
        visited so far.
        """
        if not self.projection:
            return inf
        p = state.problem
        weight = state.weight / state.visited_rows * p.rows
        return sqrt(p.C * weight * (1.0 if p.loss.numeric() else largest_slope_product(p.loss)))

    def _apply_projections(self, state: PegasosState, factor: float) -> None:
        """Apply the product of the projections' factors, by which ``a`` was already scaled, to everything else."""
        state.start_a *= factor
        state.origin *= factor
        state.linear, state.linear_before = state.linear * factor, state.linear_before * factor
        quadratic, quadratic_before = state.quadratic * factor * factor, state.quadratic_before * factor * factor
        state.quadratic, state.quadratic_before = quadratic, quadratic_before

    def finish(self, state: PegasosState) -> Certificate:
        """End the pass: update the dual bound, by the sums of all passes and by the mean over passes, and the
        candidate. Return the certificate with an estimate of P.
        """
        averaged, p = state.averaged, state.problem
        if averaged.evaluates_only:
            return close_certificate(averaged, averaged.primal)
        averaged.passes += 1
        time, time_of_pass = state.lam * (state.offset + state.t), state.lam * (state.t - state.t_before)
        w, quadratic = state.a / time, state.quadratic_before + state.quadratic
        raise_dual(averaged, w - state.origin / time, (state.linear_before + state.linear) / time, quadratic / time)
        change = state.a - state.start_a
        bound_by_pass(averaged, change / time_of_pass, state.linear / time_of_pass, state.quadratic / time_of_pass)
        certificate = close_certificate(averaged, 0.5 * float(w @ w) + p.C * state.losses)
        self._move_candidate(state, w)
        self._reset(state)
        return certificate

    def _move_candidate(self, state: PegasosState, w: Float64) -> None:
        candidate, passes = state.averaged.candidate, state.averaged.passes
        if self.averaging == "none":
            candidate[:] = w
        else:
            weight = weight_of_last_pass(passes) if self.averaging == "tail" else 1.0 / passes
            candidate += weight * (state.total / state.samples - candidate)

    def _reset(self, state: PegasosState) -> None:
        state.start_a[:] = state.a
        state.t_before = state.t
        state.linear_before += state.linear
        state.quadratic_before += state.quadratic
        clear_totals(state)

    def merge(self, states: list[PegasosState]) -> PegasosState:
        """Add up the parts' contributions to a and t, and their sums. Values that each part has scaled by its own
        projections are averaged.
        """
        first, others, share = states[0], states[1:], 1.0 / len(states)
        start_a = sum((share * s.start_a for s in others), share * first.start_a)
        changed = replace(
            first,
            a=sum((s.a - s.start_a for s in others), first.a - first.start_a) + start_a if others else first.a,
            start_a=start_a,
            origin=sum((share * s.origin for s in others), share * first.origin),
            t=first.t_before + sum(s.t - s.t_before for s in states),
            offset=max(s.offset for s in states),
            linear_before=share * sum(s.linear_before for s in states),
            quadratic_before=share * sum(s.quadratic_before for s in states),
            weight=sum(s.weight for s in states),
            visited_rows=sum(s.visited_rows for s in states),
        )
        return merge_states([changed, *others])


def radius_sum(problem: Problem, block: Block) -> float:
    """Return a block's term of the sum over rows that gives the radius: sum s_i, or in regression 2 sum s_i l(-t_i)."""
    if problem.loss.numeric():
        zero_weights = np.zeros(problem.columns + 1)
        return 2.0 * loss_sum(block.X, block.y, block.s, zero_weights, 1.0, problem.loss)
    return float(block.s.sum(dtype=np.float64))


def largest_slope_product(loss: Loss) -> float:
    """Return an upper bound of max_m -l'(m) m that is at most 2 % too large (a ball must not be too small).

    Beyond the threshold the slope is 0, and below m = 0 the product is not positive. Between them it is concave, or
    rises up to the threshold, so that a grid of 1,024 steps misses at most 0.2 %. For a loss that is positive
    everywhere, the maximum is below MAX_MARGIN.
    """
    end = MAX_MARGIN / loss.second_derivative(0.0) if isinf(threshold(loss)) else threshold(loss)
    return 1.01 * max(-loss.slope(m) * m for m in np.linspace(0.0, end, 1025).tolist())


def batches_per_sample(columns: int, batch: int) -> int:
    """Return the number of batches between two additions of w to the mean, such that they cost at most
    ADDITIONS_PER_ROW additions per row.
    """
    return ceil((columns + 1) / (ADDITIONS_PER_ROW * batch))


@saved_as("assg.state")
@dataclass(slots=True)
class ASSGState(AveragedState):
    """The state of ``ASSG``. ``w`` and ``center`` are (columns + 1,) float64."""

    problem: Problem
    w: Mean[Float64]
    """The weights that the steps change."""
    center: Mean[Float64]
    """The center of the ball: the mean of w over the previous stage; at first the w of a sample or of a warm start."""
    total: Mean[Float64]
    """The sum of ``samples`` values of w in the current stage."""
    v: Total[Float64]
    """sum b_i y_i x_i over the rows of the pass, b_i = -s_i l'(m_i). The C b_i are its dual variables."""
    averaged: Total[AveragedCertificate]
    samples: Mean[float] = 0.0
    """Number of values of w in ``total``."""
    linear: Total[float] = 0.0
    """sum b_i (1 - conjugate'(0)) over the rows of the pass."""
    quadratic: Total[float] = 0.0
    """sum s_i conjugate(b_i / s_i, 1) without its linear part, over the rows of the pass."""
    losses: Total[float] = 0.0
    """sum s_i l(m_i), with the w at the visit of each row in this pass. C times it estimates the loss sum of P."""
    stage_rows: Mean[float] = 0.0
    """Number of rows of a stage; 0 before the first block."""
    rows_left: Mean[float] = 0.0
    """Number of rows to the end of the current stage."""
    stage: Mean[float] = 0.0
    """Number of stages since the last restart: an integer, except after a merge, which averages it over the workers."""
    first_radius: Mean[float] = 0.0
    """The radius of the ball in the first stage after a restart."""
    first_step: Mean[float] = 0.0
    """The step length in the first stage after a restart."""
    radius: Mean[float] = 0.0
    """The radius of the ball in the current stage."""
    step: Mean[float] = 0.0
    """The step length in the current stage."""


@dataclass(frozen=True, slots=True)
class ASSG(AveragedSolver):
    """Accelerated stochastic subgradient descent, the solver of Snacks.

    It makes stages of sub-gradient steps in a ball that shrinks around the mean of the previous stage (Xu, Lin, Yang,
    Analysis and Applications 2019; Tanji et al., Snacks, algorithm 1, of which ``compute.passes.stochastic.assg_pass``
    explains two interpretations). A stage consists of projected steps over T rows, with one step length eta, in the
    ball of radius D around its center. The mean of w over the stage is the next center, and D and eta are divided by
    ``omega``.

    **Automatic start.** The problem of the first rows of the first block is solved in memory by a few sweeps of dual
    coordinate descent. Its w is the first center, and D is three times its length: the sample has few rows of rare
    features, and a ball that is too small costs passes (many on w8a), while a ball that is too large costs one stage.
    With |A| rows in a step, T / |A| steps and E||g||^2 <= G^2, the error of the mean is at most
    D^2 |A| / (2 eta T) + eta G^2 / 2, which is least for eta = D sqrt(|A| / T) / G. G^2 is measured at w = 0 on the
    same rows: the square of the mean gradient plus the variance around it, the latter divided by |A|. T is a quarter of
    the rows. A warm start replaces the w of the sample, and D is then its length.

    **Restarts.** After ``stages`` stages the steps are too short to make progress. Then, as in the restarted form of Xu
    et al., T doubles, and D and eta start at 1 / sqrt(2) of their last starting values: proportional to 1 / sqrt(T),
    like the distance to the optimum if the error falls as 1 / T. (Keeping D and halving it were both worse.)

    **Certificate.** The slopes at the visits of a pass are a dual point. The candidate is the mean of a stage: of the
    current one if more than half of it is done, else of the last one.

    **Merge.** w, the center and the numbers that describe the stage are averaged over the workers, each of which made
    the stages with its own rows. Sums over the pass are added.
    """

    batch: Annotated[int, Option("Rows in a step.", bounds=Bounds(least=1))] = 1
    stages: Annotated[
        int,
        Option("Stages between two restarts of the radius and the step length.", bounds=Bounds(least=1)),
    ] = 4
    omega: Annotated[
        float, Option("Radius and step length are divided by this after each stage.", bounds=Bounds(above=1))
    ] = 2.0
    rows_per_stage: Annotated[int, Option("Rows in a stage. 0: a quarter of all rows.", bounds=Bounds(least=0))] = 0
    radius: Annotated[
        float, Option("Radius of the ball of the first stage. 0: from a sample.", bounds=Bounds(least=0))
    ] = 0.0
    step: Annotated[float, Option("Step length of the first stage. 0: from a sample.", bounds=Bounds(least=0))] = 0.0
    sample: Annotated[
        int, Option("Rows of the sample that determines radius and step length.", bounds=Bounds(least=1))
    ] = 4096
    losses: ClassVar[LossRequirement] = LossRequirement()
    """Any loss: a dual value is computed from sums over the rows."""

    def cost(self, problem: Problem, layout: Layout) -> Cost:
        """Return the bytes of eight vectors of weights and a batch."""
        return Cost(fixed=8 * 8 * (problem.columns + 1) + 8 * self.batch, per_block_row=8)

    def start(self, problem: Problem) -> ASSGState:
        """Return the state at w = 0. The first block sets w, radius and step length."""
        zero = np.zeros(problem.columns + 1)
        return ASSGState(problem, zero, zero.copy(), zero.copy(), zero.copy(), start_certificate(problem))

    def visit(self, state: ASSGState, block: Block) -> None:
        """Make steps for the rows of the block in their order, and evaluate the candidate if it is due."""
        evaluate_candidate(state.averaged, block)
        if state.averaged.evaluates_only:
            return
        if state.stage_rows == 0.0:
            self._begin(state, block)
        start, rows = 0, len(block.order)
        while start < rows:
            stop = min(rows, start + max(1, round(state.rows_left)))
            self._steps(state, block, block.order[start:stop])
            state.rows_left -= stop - start
            start = stop
            if state.rows_left < 0.5:
                self._next_stage(state)

    # -- the first block -----------------------------------------------------------------------------------------------

    def _begin(self, state: ASSGState, block: Block) -> None:
        order = block.order[: self.sample]
        warm = state.problem.warm
        if warm is None:
            self._solve_sample(state, block, order.copy())
        else:
            state.w[:] = warm
        state.center[:] = state.w
        state.stage_rows = float(self.rows_per_stage or max(1, state.problem.rows // 4))
        state.first_radius = (
            self.radius or (RADIUS_FACTOR if warm is None else 1.0) * sqrt(float(state.w @ state.w)) or 1.0
        )
        state.first_step = self.step or self._stable_step(state, block, order)
        self._restart(state)

    def _solve_sample(self, state: ASSGState, block: Block, order: Int32) -> None:
        p, alpha = state.problem, np.zeros(len(block.y))
        C = p.C * p.rows / len(order)
        for sweep in range(SAMPLE_SWEEPS):
            shuffle(order, len(order), block.seed + sweep)
            dcd_sweep(block.labeled, order.copy(), len(order), Box(C, p.loss), ShrinkingThresholds(), alpha, state.w)

    def _stable_step(self, state: ASSGState, block: Block, order: Int32) -> float:
        """Return the step length that minimizes the bound on the error of a stage, reduced if it is not stable."""
        loss, mean = state.problem.loss, np.zeros_like(state.w)
        squares, largest = gradient_moments(block.labeled, order, loss, mean)
        mean /= len(order)
        square_of_mean, mean_square = float(mean @ mean), squares / len(order)
        G = sqrt(square_of_mean + max(mean_square - square_of_mean, 0.0) / self.batch) or 1.0
        step = state.first_radius * sqrt(self.batch / state.stage_rows) / G
        if not has_box(loss) and largest > 0.0:
            step = min(step, loss.curvature(1.0) / largest)
        return min(step, 0.5 / state.lam)

    # -- stages --------------------------------------------------------------------------------------------------------

    def _steps(self, state: ASSGState, block: Block, order: Int32) -> None:
        p, batches = state.problem, Batches(order, self.batch, batches_per_sample(state.problem.columns, self.batch))
        stage = Stage(state.center, state.radius, state.step)
        linear, quadratic, losses, samples = assg_pass(
            block.labeled, batches, Objective(state.lam, p.loss), stage, state.w, state.total, state.v
        )
        state.linear += linear
        state.quadratic += quadratic
        state.losses += losses
        state.samples += samples

    def _next_stage(self, state: ASSGState) -> None:
        state.w[:] = state.total / state.samples
        state.center[:] = state.w
        state.stage += 1.0
        state.radius /= self.omega
        state.step /= self.omega
        if round(state.stage) >= self.stages:
            state.stage_rows *= 2.0
            state.first_radius *= sqrt(0.5)
            state.first_step *= sqrt(0.5)
            self._restart(state)
        self._clear(state)

    def _restart(self, state: ASSGState) -> None:
        state.stage, state.radius, state.step = 0.0, state.first_radius, state.first_step
        self._clear(state)

    def _clear(self, state: ASSGState) -> None:
        state.total[:] = 0.0
        state.samples, state.rows_left = 0.0, state.stage_rows

    # -- the end of a pass ---------------------------------------------------------------------------------------------

    def finish(self, state: ASSGState) -> Certificate:
        """End the pass: update the dual bound by its slopes, and the candidate. Return the certificate with an estimate
        of P.
        """
        averaged, C = state.averaged, state.problem.C
        if averaged.evaluates_only:
            return close_certificate(averaged, averaged.primal)
        averaged.passes += 1
        bound_by_pass(averaged, C * state.v, C * state.linear, C * state.quadratic)
        certificate = close_certificate(averaged, 0.5 * float(state.w @ state.w) + C * state.losses)
        is_half_done = state.rows_left < 0.5 * state.stage_rows and state.samples > 0.0
        averaged.candidate[:] = state.total / state.samples if is_half_done else state.center
        clear_totals(state)
        return certificate
