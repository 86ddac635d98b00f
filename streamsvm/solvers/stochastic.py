"""Stochastic solvers: SGD, Pegasos and ASSG, and what they can prove in O(d) memory.

They hold no number per row; both the candidate and the dual point are made of means. ``AveragedCertificate``
holds what the certificate is made of: the candidate whose primal is evaluated, and the sums of the dual point. What a
step is, what is averaged and how copies of a state are merged differs from solver to solver (``SGD``, ``Pegasos``,
``ASSG``; ``solvers.sgd_qn``).

**Dual.** Let every row be met once in a pass, with a margin m_i, and b_i = -s_i l'(m_i). Then a_i = C b_i is feasible,
and so is any convex combination of such points of several passes. Because the conjugate is convex, a lower bound of its
D follows from three sums over each pass: v = sum a_i y_i x_i, linear and quadratic (``compute.passes.certificate``).
The mean kept here gives pass t a weight of about t^5, so that the poor points of the first passes soon have no
influence. (Panagiotakopoulos and Tsampouka, arXiv:1304.6383, certify with the plain mean, whose gap is four times as
wide after 40 passes.)

**Primal.** While w changes P(w) can only be estimated, from the losses at each row's visit. The mean of w over the passes,
with the same weights, is the candidate. Its P is computed exactly while the next pass trains, so that it costs no extra
reading. That is done when the estimated gap comes near the tolerance and, because the mean is often far better than the
estimate says, also at growing intervals.

**Weights.** In all of these solvers s_i multiplies the loss of row i; a row is one time step whatever its weight.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import ceil, inf, isinf, sqrt
from typing import Annotated, Any, ClassVar, Literal

import numpy as np

from streamsvm.class_tags import saved_as
from streamsvm.compute.blocks.sums import loss_sum
from streamsvm.compute.passes.certificate import RowLoss, certify_pass
from streamsvm.compute.passes.dcd import Box, Held, dcd_sweep
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
"""eta of the means over passes (Shamir and Zhang, ICML 2013, section 4): pass t weighs about t^eta."""
EVALUATION_MARGIN = 1.2
"""An exact evaluation is due when the estimated gap is at most this many tolerances (the value in arXiv:1304.6383)."""
EVALUATION_SPACING = 1.25
"""An exact evaluation is due at the latest when there are this many times as many passes as at the last one; sooner if
the gap found there, assumed to fall as 1 / passes, would meet the tolerance sooner."""
ROWS_PER_SAMPLE = 512
"""Rows between two samples of w for the mean."""
FAR = 10.0
"""For a loss that is nowhere 0 (the logistic one): a margin at which -l'(m) m is past its maximum, in units of 1 /
l''(0)."""
ADDITIONS_PER_ROW = 16
"""Largest number of additions to the mean of w per row; the same for dense and sparse rows, so that their results
agree."""
SAMPLE_SWEEPS = 5
"""Sweeps of dual coordinate descent over the rows of the sample."""
RADIUS_FACTOR = 3.0
"""The first radius as a multiple of the length of the sample's w."""


@saved_as("averaged.certificate")
@dataclass(slots=True)
class AveragedCertificate:
    """The candidate for the primal and the dual point of a run. Arrays (columns + 1,) float64; sums are those of the
    pass under way.
    """

    problem: Problem
    """What is solved: loss, C, the number of rows and columns, the weights to start from."""
    candidate: Float64
    """The weights that are evaluated next; the solver moves them when it closes a pass, after ``close_certificate``."""
    best: Float64
    """The evaluated candidate with the smallest P, which is ``primal``."""
    v: Own[Float64]
    """v = sum a_i y_i x_i, averaged over passes; D follows from it and the next two fields. Where ``evaluate_with_slopes``
    is used: the sum of the present pass alone."""
    linear: Own[float] = 0.0
    """The coefficient of t in sum (t a_i - conjugate(t a_i)) = t linear - t^2 quadratic; averaged or summed like
    ``v``."""
    quadratic: Own[float] = 0.0
    """The coefficient of -t^2 there; averaged or summed like ``v``."""
    dual: float = 0.0
    """The largest D proven so far; at first 0, the value of a = 0."""
    primal: float = inf
    """The least exact P of a candidate, that of ``best``; inf until one was evaluated."""
    losses: Total[float] = 0.0
    """sum C s_i l(m_i) of the candidate over the rows met in the pass, if it evaluates; else 0."""
    passes: int = 0
    """Training passes; passes that only evaluate are not counted."""
    next_trial: float = 2.0
    """The candidate is evaluated after this number of passes at the latest."""
    certifying: bool = False
    """Whether this pass evaluates the candidate."""
    ending: bool = False
    """Whether this pass only evaluates."""


def start_certificate(problem: Problem) -> AveragedCertificate:
    """Return the certificate of w = 0 and a = 0; of a warm start the first pass evaluates the weights."""
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
    """Add a block's exact losses of the candidate and a dual point from its slopes, if that is what the pass is for.

    For passes that do not meet every row once.
    """
    if not averaged.certifying:
        return
    p = averaged.problem
    cost = RowLoss(p.C, p.loss, slopes_of(p.loss))
    losses, linear, quadratic = certify_pass(block.labeled, averaged.candidate, cost, averaged.v)
    averaged.losses += losses
    averaged.linear += linear
    averaged.quadratic += quadratic


def bound_by_slopes(averaged: AveragedCertificate) -> None:
    """Bound the optimum by what ``evaluate_with_slopes`` summed, and forget the sums."""
    raise_dual(averaged, averaged.v, averaged.linear, averaged.quadratic)
    averaged.v[:] = 0.0
    averaged.linear = averaged.quadratic = 0.0


def bound_by_pass(averaged: AveragedCertificate, v: Float64, linear: float, quadratic: float) -> None:
    """Add the sums of this pass to the mean over passes, and bound the optimum by the mean."""
    share = weight_of_last_pass(averaged.passes)
    averaged.v += share * (v - averaged.v)
    averaged.linear += share * (linear - averaged.linear)
    averaged.quadratic += share * (quadratic - averaged.quadratic)
    raise_dual(averaged, averaged.v, averaged.linear, averaged.quadratic)


def raise_dual(averaged: AveragedCertificate, v: Float64, linear: float, quadratic: float) -> None:
    """Keep the value of a dual point, best scaled, if it is the largest so far."""
    value = scale_dual(averaged.problem.loss, linear, quadratic, float(v @ v))
    averaged.dual = max(averaged.dual, value)


def close_certificate(averaged: AveragedCertificate, estimate: float) -> Certificate:
    """Close the pass: return its certificate, exact if the candidate was evaluated, and decide whether the next pass
    evaluates it.

    ``estimate`` is the primal as estimated in this pass. To be called before the candidate is moved.
    """
    certificate = Certificate(estimate, averaged.dual, exact=False)
    due = certificate.gap <= EVALUATION_MARGIN * averaged.problem.tolerance
    if averaged.certifying:
        primal = 0.5 * float(averaged.candidate @ averaged.candidate) + averaged.losses
        if primal < averaged.primal:
            averaged.primal = primal
            averaged.best[:] = averaged.candidate
        certificate = Certificate(averaged.primal, averaged.dual)
        wanted = averaged.problem.tolerance
        spacing = min(EVALUATION_SPACING, certificate.gap / wanted) if wanted else EVALUATION_SPACING
        averaged.next_trial = averaged.passes * spacing
    averaged.losses = 0.0
    averaged.certifying = due or averaged.passes + 1 >= averaged.next_trial
    return certificate


def add_slopes(averaged: AveragedCertificate, others: list[AveragedCertificate]) -> None:
    """Add what ``evaluate_with_slopes`` summed in other parts of a pass."""
    for other in others:
        averaged.v = averaged.v + other.v
        averaged.linear += other.linear
        averaged.quadratic += other.quadratic


class AveragedState:
    """The fields that the states of all these solvers have; where they are among the others is part of the saved
    format.
    """

    __slots__ = ()

    problem: Problem
    """What is solved: loss, C, the number of rows and columns, the weights to start from."""
    averaged: AveragedCertificate
    """Candidate, its evaluated primal, and the dual bound."""

    @property
    def lam(self) -> float:
        """1 / (C rows), the lambda of P / (C rows) = lambda/2 ||w||^2 + mean of s_i l(m_i)."""
        return 1.0 / (self.problem.C * self.problem.rows)


class AveragedSolver(Solver[Any]):
    """The members of ``Solver`` that do not depend on the steps."""

    __slots__ = ()

    row_state: ClassVar[tuple[RowState, ...]] = ()
    """Empty: the state is a few vectors of weights, and no number of a row."""
    shuffled: ClassVar[bool] = True
    """True: rows may be stored sorted by class or time, and steps in that order would go astray."""
    has_candidates: ClassVar[bool] = True
    warm_start: ClassVar[bool] = True

    def certify(self, state: AveragedState) -> None:
        """Let the next pass evaluate the candidate and train nothing."""
        state.averaged.certifying = state.averaged.ending = True

    def candidate(self, state: AveragedState) -> Float64:
        """Return a copy of the mean of w that is the candidate, as the last pass left it."""
        return state.averaged.candidate.copy()

    def solution(self, state: AveragedState) -> LinearSolution:
        """Return the best of the candidates that were evaluated so far."""
        return LinearSolution(state.averaged.best.copy(), state.problem.bias)


@saved_as("sgd.state")
@dataclass(slots=True)
class SGDState(AveragedState):
    """``a`` (columns + 1,) float64 is lambda t w; ``t`` is the number of presentations. The
    sums are those of the pass under way.
    """

    problem: Problem
    """What is solved: loss, C, the number of rows and columns, the weights to start from."""
    a: Own[Float64]
    """lambda t w, (columns + 1,): sums of s_i y_i x_i, to which a presentation adds without scaling."""
    before: Float64
    """a at the start of the pass."""
    total: Total[Float64]
    """Sum of ``samples`` values of w."""
    averaged: Total[AveragedCertificate]
    """Candidate, its evaluated primal, and the dual bound."""
    origin: Float64
    """The part of a that came from the warm start and not from updates."""
    t: Own[int] = 0
    """Presentations so far, ``t_origin`` included."""
    t_before: int = 0
    """t at the start of the pass."""
    t_origin: int = 0
    """The presentations that a warm start counts as: one for each row; 0 without a warm start."""
    samples: Total[int] = 0
    """How many values of w are in ``total``."""
    gained: Total[float] = 0.0
    """sum s_i (b - conjugate(b, 1)) over the presentations; for the hinge: its margin times sum s_i (updates of row
    i)."""
    gained_before: float = 0.0
    """``gained`` of all earlier passes."""
    losses: Total[float] = 0.0
    """sum s_i l(m_i) with the w each row met in the pass; C times this estimates the loss sum of P."""


@dataclass(frozen=True, slots=True)
class SGD(AveragedSolver):
    """Settings of stochastic gradient descent with growing margins.

    It is stochastic sub-gradient descent as a perceptron with a growing margin, in complete epochs
    (Panagiotakopoulos and Tsampouka, arXiv:1304.6383). With a = lambda t w a presentation adds s_i y_i x_i to a when
    y_i a.x_i <= lambda t and does nothing else: no scaling of w (``compute.passes.stochastic``). ``variant``:

        s   every row once an epoch;
        m   every row ``multiplicity`` times in succession, for one or two inner products;
        r   as many rows as there are, drawn at random with replacement: ``draws`` says from what.

    **Draws.** "block" draws from each block as many rows as it has. "all" also draws this number, from the Poisson
    distribution with that mean: if the total number of draws from all rows is Poisson, the numbers that fall into the
    blocks are independent and Poisson (thinning). A pass then presents what the paper's draws from all rows would
    present, given their number. They are presented block by block, blocks in random order, because in the order of the
    draws each row would cost a read of its own.

    The above is for the hinge. For a smooth loss with bounded slope a presentation adds -l'(m_i) s_i y_i x_i, m_i = y_i
    a.x_i / (lambda t); several presentations of a row are then made one by one, still with two inner products.

    **Weights.** A row's loss carries s_i, so an update adds s_i y_i x_i, while a presentation moves the threshold on by
    lambda whatever s_i: with lambda = 1 / (C rows), a_i = s_i I_i / (lambda t) <= C s_i after complete epochs, I_i <= t
    / rows being the updates of row i.

    **Certificate.** For s and m the dual follows from a, t and one sum over the presentations (for the hinge the number
    of updates); no number per row is kept. For r there is no such bound, and the dual point is that of the candidate's
    slopes: valid but loose.

    **Warm start** from w_0: a = lambda t w_0 with t = rows, so that w_0 weighs as much as one epoch. Dual points are
    made of the updates alone.

    **Merge.** Workers start a pass from one (a, t) and each shows its rows to its copy. Their contributions to a and t
    are added: w = (t w + sum_k (t_k w_k - t w)) / (t + sum_k (t_k - t)). In the first pass that is the mean of the
    workers' w, weighted by rows; later it is the step one worker makes with gradients that are a pass old at most, and
    the dual point stays feasible exactly.
    """

    variant: Annotated[
        Literal["r", "s", "m"],
        Option(
            "Rows drawn at random (r), in complete epochs (s), or in epochs with several updates of a row at once (m).",
            choices=("r", "s", "m"),
        ),
    ] = "m"
    multiplicity: Annotated[
        int, Option("Variant m: how many updates of the same row at most are made in one.", bounds=Bounds(least=1))
    ] = 5
    draws: Annotated[
        Literal["block", "all"],
        Option(
            "Variant r: what rows are drawn from, each block as many times as it has rows (block), or all rows, so that how many fall "
            "to a block is drawn too (all).",
            choices=("block", "all"),
        ),
    ] = "block"
    losses: ClassVar[LossRequirement] = LossRequirement(box=True)
    """Losses with bounded slopes: the first steps are the longest, and must not grow with a row's distance from its
    margin."""

    def ignored_settings(self, problem: Problem) -> dict[str, tuple[str, ...]]:
        return {
            f"it is for variant m, and this is variant {self.variant}": ("multiplicity",)
            if self.variant != "m"
            else (),
            f"it is for variant r, and this is variant {self.variant}": ("draws",) if self.variant != "r" else (),
        }

    def cost(self, problem: Problem, layout: Layout) -> Cost:
        """Return the bytes of eight vectors of weights, and of a number a row of a block for draws."""
        return Cost(fixed=8 * 8 * (problem.columns + 1), per_block_row=8 * (self.variant == "r"))

    def start(self, problem: Problem) -> SGDState:
        """Begin at a = 0, or with the warm weights counted as one epoch."""
        t = 0 if problem.warm is None else problem.rows
        a = problem.first_weights() * (t / (problem.C * problem.rows))
        before, total, averaged = a.copy(), np.zeros_like(a), start_certificate(problem)
        return SGDState(problem, a, before, total, averaged, a.copy(), t, t_before=t, t_origin=t)

    def visit(self, state: SGDState, block: Block) -> None:
        """Present the block's rows in their order, or rows drawn, and evaluate the candidate where that is due."""
        (evaluate_with_slopes if self.variant == "r" else evaluate_candidate)(state.averaged, block)
        if state.averaged.ending:
            return
        order = self._draw(state, block) if self.variant == "r" else block.order
        for start in range(0, len(order), ROWS_PER_SAMPLE):
            self._train(state, block, order[start : start + ROWS_PER_SAMPLE])

    def _draw(self, state: SGDState, block: Block) -> Int32:
        """Return the rows to present; at least one as long as this pass has no w in ``total``, since their mean is
        needed.
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
        gained, losses = sgd_pass(block.labeled, order, times, Objective(lam, state.problem.loss), state.t, state.a)
        state.t += times * len(order)
        state.gained += gained
        state.losses += losses
        state.total += state.a / (lam * state.t)
        state.samples += 1

    def finish(self, state: SGDState) -> Certificate:
        """Close the epoch: the paper's dual bound, an estimate of the primal, and the next candidate."""
        averaged, p, lam = state.averaged, state.problem, state.lam
        if self.variant == "r" and averaged.certifying:
            bound_by_slopes(averaged)
        if averaged.ending:
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
        """Bound the optimum by the paper's dual point, which is w without the warm start, and by the
        mean over passes.
        """
        lam = state.lam
        shown, all_shown = lam * (state.t - state.t_before), lam * (state.t - state.t_origin)
        everything = state.gained_before + state.gained
        raise_dual(state.averaged, (state.a - state.origin) / all_shown, everything / all_shown, 0.0)
        bound_by_pass(state.averaged, (state.a - state.before) / shown, state.gained / shown, 0.0)

    def _reset(self, state: SGDState) -> None:
        state.before[:] = state.a
        state.t_before = state.t
        state.gained_before += state.gained
        clear_totals(state)

    def merge(self, states: list[SGDState]) -> SGDState:
        """Add the parts' contributions to a and t, and what they summed up."""
        first, others = states[0], states[1:]
        a = first.a + sum((s.a - first.before for s in others), np.zeros_like(first.a))
        t = first.t_before + sum(s.t - s.t_before for s in states)
        merged = merge_states(states)
        merged.a, merged.t = a, t
        if self.variant == "r":
            add_slopes(merged.averaged, [s.averaged for s in others])
        return merged


@saved_as("pegasos.state")
@dataclass(slots=True)
class PegasosState(AveragedState):
    """``a`` (columns + 1,) float64 is lambda (offset + t) w; ``t`` is the number of rows met. The
    sums are those of the pass under way.
    """

    problem: Problem
    """What is solved: loss, C, the number of rows and columns, the weights to start from."""
    a: Own[Float64]
    """lambda (offset + t) w, (columns + 1,): sums of b_i y_i x_i, b_i = -s_i l'(m_i), as scaled by projections
    since."""
    before: Own[Float64]
    """The part of a from before this pass, as scaled by the projections since."""
    origin: Own[Float64]
    """The part of a that came from the warm start and not from gradients, as scaled by the projections since."""
    total: Total[Float64]
    """Sum of ``samples`` values of w."""
    averaged: Total[AveragedCertificate]
    """Candidate, its evaluated primal, and the dual bound."""
    t: Own[int] = 0
    """Rows met so far, in all passes."""
    t_before: int = 0
    """t at the start of the pass."""
    offset: Own[float] = 0.0
    """Number of rows at which the clock starts, so that the first steps are stable and a warm start has weight; set at
    the first block."""
    samples: Total[float] = 0.0
    """How many values of w are in ``total``."""
    linear: Total[float] = 0.0
    """sum b_i (1 - conjugate'(0)) over the rows of the pass, scaled by projections like ``a``."""
    quadratic: Total[float] = 0.0
    """sum s_i conjugate(b_i / s_i, 1) without its linear part, over the rows of the pass, scaled by projections
    twice."""
    linear_before: Own[float] = 0.0
    """``linear`` of all earlier passes, scaled by the projections since."""
    quadratic_before: Own[float] = 0.0
    """``quadratic`` of all earlier passes, scaled by the projections since."""
    losses: Total[float] = 0.0
    """sum s_i l(m_i) with the w each row met in the pass; C times this estimates the loss sum of P."""
    weight: Own[float] = 0.0
    """Sum of s_i, in regression of 2 s_i l(-t_i), over the ``met`` rows so far; the radius is made of its mean."""
    met: Own[int] = 0
    """Rows that ``weight`` is summed over."""


@dataclass(frozen=True, slots=True)
class Pegasos(AveragedSolver):
    """Settings of Pegasos.

    It is stochastic sub-gradient descent with step 1 / (lambda t), mini-batches, a projection and averaging:
    Shalev-Shwartz, Singer, Srebro, Cotter, Math. Prog. 2011; a smoothed hinge, the lecture's variant, is
    ``losses.Huber``. Rows are met in random order in complete epochs (the paper's section 2.4 finds that no worse than
    drawing them), which is what gives it a dual bound, for every loss (``compute.passes.stochastic``).

    **Projection.** At the optimum w = sum a_i y_i x_i with a_i = -C s_i l'(m_i), so ||w||^2 = sum a_i m_i is at most C
    sum s_i max_m (-l'(m) m): with the hinge the paper's 1 / sqrt(lambda), with the squared hinge 1 / sqrt(2 lambda). In
    regression that sum has no such bound, and 1/2 ||w||^2 <= P(0) = C sum s_i l(-t_i) is what is known.

    **Offset.** Steps on a loss whose slope is unbounded must start below 1 / (its curvature ||x||^2), or they diverge:
    t then starts from that length, not from 0 (Bottou, Stochastic gradient descent tricks, 2012, section 5.2).

    **Warm start.** As in ``SGD``: the weights count as one epoch at least.

    **Merge.** As in ``SGD``: the contributions to a and t are added, which in the first pass is the mean of the
    workers' w, weighted by rows.
    """

    batch: Annotated[int, Option("Rows in a step.", bounds=Bounds(least=1))] = 1
    projection: Annotated[bool, Option("Project w onto the ball that holds the optimum after every step.")] = True
    averaging: Annotated[
        Literal["none", "all", "tail"],
        Option(
            "What is certified: w (none), the mean of all w (all), or of the late ones (tail).",
            choices=("none", "all", "tail"),
        ),
    ] = "tail"
    losses: ClassVar[LossRequirement] = LossRequirement()
    """Any: a dual value follows from sums over the rows."""

    def cost(self, problem: Problem, layout: Layout) -> Cost:
        """Return the bytes of eight vectors of weights and a batch."""
        return Cost(fixed=8 * 8 * (problem.columns + 1) + 8 * self.batch)

    def start(self, problem: Problem) -> PegasosState:
        """Begin at w = 0; a warm start enters with the first block, which sets the clock."""
        zero = np.zeros(problem.columns + 1)
        return PegasosState(problem, zero, zero.copy(), zero.copy(), zero.copy(), start_certificate(problem))

    def visit(self, state: PegasosState, block: Block) -> None:
        """Take steps through the block's rows in their order, and evaluate the candidate where that is due."""
        evaluate_candidate(state.averaged, block)
        if state.averaged.ending:
            return
        p, rows = state.problem, len(block.order)
        state.weight += radius_term(p, block)
        state.met += rows
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
        self._shrink(state, shrunk)
        state.t += rows
        state.linear += linear
        state.quadratic += quadratic
        state.losses += losses
        state.samples += samples

    def _begin(self, state: PegasosState, block: Block) -> None:
        """Set the clock, and a to what a warm start is at that time: it weighs as much as one epoch at least."""
        warm, state.offset = state.problem.warm, self._stable_offset(state, block)
        if warm is not None:
            state.offset = max(state.offset, float(state.problem.rows))
            for a in (state.a, state.before, state.origin):
                a[:] = state.lam * state.offset * warm

    def _stable_offset(self, state: PegasosState, block: Block) -> float:
        """Return the t from which 1 / (lambda t) is a stable step for the rows of this block."""
        loss = state.problem.loss
        if has_box(loss):
            return 0.0
        _, largest = gradient_moments(block.labeled, block.order, loss, np.zeros_like(state.a))
        return float(largest / (loss.curvature(1.0) * state.lam))

    def ball_radius(self, state: PegasosState) -> float:
        """Return the radius of a ball that holds the optimum; the sum over all rows is estimated from those met."""
        if not self.projection:
            return inf
        p = state.problem
        weight = state.weight / state.met * p.rows
        return sqrt(p.C * weight * (1.0 if p.loss.numeric() else largest_slope_product(p.loss)))

    def _shrink(self, state: PegasosState, by: float) -> None:
        state.before *= by
        state.origin *= by
        state.linear, state.linear_before = state.linear * by, state.linear_before * by
        state.quadratic, state.quadratic_before = state.quadratic * by * by, state.quadratic_before * by * by

    def finish(self, state: PegasosState) -> Certificate:
        """Close the epoch: dual bounds of all epochs and of this one, an estimate of the primal, and the next
        candidate.
        """
        averaged, p = state.averaged, state.problem
        if averaged.ending:
            return close_certificate(averaged, averaged.primal)
        averaged.passes += 1
        time, shown = state.lam * (state.offset + state.t), state.lam * (state.t - state.t_before)
        w, quadratic = state.a / time, state.quadratic_before + state.quadratic
        raise_dual(averaged, w - state.origin / time, (state.linear_before + state.linear) / time, quadratic / time)
        bound_by_pass(averaged, (state.a - state.before) / shown, state.linear / shown, state.quadratic / shown)
        certificate = close_certificate(averaged, 0.5 * float(w @ w) + p.C * state.losses)
        self._move_candidate(state, w)
        self._reset(state)
        return certificate

    def _move_candidate(self, state: PegasosState, w: Float64) -> None:
        candidate, passes = state.averaged.candidate, state.averaged.passes
        if self.averaging == "none":
            candidate[:] = w
        else:
            share = weight_of_last_pass(passes) if self.averaging == "tail" else 1.0 / passes
            candidate += share * (state.total / state.samples - candidate)

    def _reset(self, state: PegasosState) -> None:
        state.before[:] = state.a
        state.t_before = state.t
        state.linear_before += state.linear
        state.quadratic_before += state.quadratic
        clear_totals(state)

    def merge(self, states: list[PegasosState]) -> PegasosState:
        """Add the parts' contributions to a and t, and what they summed up; parts that each projected differently are
        averaged.
        """
        first, others, share = states[0], states[1:], 1.0 / len(states)
        before = sum((share * s.before for s in others), share * first.before)
        changed = replace(
            first,
            a=sum((s.a - s.before for s in others), first.a - first.before) + before if others else first.a,
            before=before,
            origin=sum((share * s.origin for s in others), share * first.origin),
            t=first.t_before + sum(s.t - s.t_before for s in states),
            offset=max(s.offset for s in states),
            linear_before=share * sum(s.linear_before for s in states),
            quadratic_before=share * sum(s.quadratic_before for s in states),
            weight=sum(s.weight for s in states),
            met=sum(s.met for s in states),
        )
        return merge_states([changed, *others])


def radius_term(problem: Problem, block: Block) -> float:
    """Return what a block adds to the sum over rows that the radius is made of: sum s_i, in regression 2 sum s_i
    l(-t_i).
    """
    if problem.loss.numeric():
        nothing = np.zeros(problem.columns + 1)
        return 2.0 * loss_sum(block.X, block.y, block.s, nothing, 1.0, problem.loss)
    return float(block.s.sum(dtype=np.float64))


def largest_slope_product(loss: Loss) -> float:
    """Return the largest -l'(m) m there is, within 2 % and never less: a ball may be too large but not too small.

    Beyond the threshold the slope is 0, below m = 0 the product is not positive. Between them it is concave, or rises
    to the threshold, so that a grid of 1,024 steps misses at most 0.2 %. Of a loss that is nowhere 0 the product has
    passed its maximum before FAR.
    """
    end = FAR / loss.second_derivative(0.0) if isinf(threshold(loss)) else threshold(loss)
    return 1.01 * max(-loss.slope(m) * m for m in np.linspace(0.0, end, 1025).tolist())


def batches_per_sample(columns: int, batch: int) -> int:
    """Return after how many batches w is added to the mean, so that this costs a row few additions
    whatever its length.
    """
    return ceil((columns + 1) / (ADDITIONS_PER_ROW * batch))


@saved_as("assg.state")
@dataclass(slots=True)
class ASSGState(AveragedState):
    """``w``, ``center`` (columns + 1,) float64; the sums over the pass under way are v, linear, quadratic, losses."""

    problem: Problem
    """What is solved: loss, C, the number of rows and columns, the weights to start from."""
    w: Mean[Float64]
    """The weights that the steps change."""
    center: Mean[Float64]
    """The center of the ball: the mean of the stage before, at first the w of a sample or of a warm start."""
    total: Mean[Float64]
    """Sum of ``samples`` values of w in the stage under way."""
    v: Total[Float64]
    """sum b_i y_i x_i over the rows of the pass, b_i = -s_i l'(m_i); C b_i are its dual variables."""
    averaged: Total[AveragedCertificate]
    """Candidate, its evaluated primal, and the dual bound."""
    samples: Mean[float] = 0.0
    """How many values of w are in ``total``."""
    linear: Total[float] = 0.0
    """sum b_i (1 - conjugate'(0)) over the rows of the pass."""
    quadratic: Total[float] = 0.0
    """sum s_i conjugate(b_i / s_i, 1) less its linear part, over the rows of the pass."""
    losses: Total[float] = 0.0
    """sum s_i l(m_i) with the w each row met in the pass; C times this estimates the loss sum of P."""
    length: Mean[float] = 0.0
    """Rows of a stage; 0: nothing has been seen yet."""
    left: Mean[float] = 0.0
    """Rows to the end of the stage under way."""
    stage: Mean[float] = 0.0
    """Stages done since the last restart: an integer, except after a merge, which averages it over the workers."""
    first_radius: Mean[float] = 0.0
    """The radius of the ball in the first stage after a restart."""
    first_step: Mean[float] = 0.0
    """The length of the steps in the first stage after a restart."""
    radius: Mean[float] = 0.0
    """The radius of the ball in the stage under way."""
    step: Mean[float] = 0.0
    """The length of the steps in the stage under way."""


@dataclass(frozen=True, slots=True)
class ASSG(AveragedSolver):
    """Settings of accelerated stochastic subgradient descent.

    It is the solver of Snacks: stages of sub-gradient steps in a ball that shrinks around the mean of the stage before
    (Xu, Lin, Yang, Analysis and Applications 2019; Tanji et al., Snacks, algorithm 1, of which
    ``compute.passes.stochastic.assg_pass`` explains two
    interpretations). A stage is T rows of projected steps of one length
    eta in the ball of radius D around its center; its mean is the next center, and D and eta are divided by ``omega``.

    **Automatic start.** The first rows of the first block are solved in memory by a few sweeps of dual coordinate
    descent. That w is the first center, and D three times its length: the sample has little of rare features, and a
    ball that is too small costs passes (many on w8a), a ball that is too large one stage. Over T / |A| steps, |A| being the rows of a step, with
    E||g||^2 <= G^2 the error of the mean is at most D^2 |A| / (2 eta T) + eta G^2 / 2, least for eta = D sqrt(|A| / T)
    / G; G^2 is measured at w = 0 on the same rows: the square of the mean gradient plus the variance around it, the
    latter divided by |A|. T is a quarter of the rows. A warm start takes the place of that w, and D is its length.

    **Restarts.** After ``stages`` stages steps are too short to make
    progress. Then, as in the restarted form of Xu et al.,
    T doubles, and D and eta start at 1 / sqrt(2) of their last starting values: proportional to 1 / sqrt(T), like the
    distance to the optimum when the error falls as 1 / T. (Keeping D and halving it were both worse.)

    **Certificate.** The slopes met in a pass are a dual point. The candidate is the mean of a stage: of the one under
    way when more than half of it is done, else of the last.

    **Merge.** w, the center and all that describes the stage are averaged over the workers, each of which has gone
    through the stages with its own rows; sums over the pass are added.
    """

    batch: Annotated[int, Option("Rows in a step.", bounds=Bounds(least=1))] = 1
    stages: Annotated[
        int,
        Option("Stages in a round; then radius and step are those of the first stage again.", bounds=Bounds(least=1)),
    ] = 4
    omega: Annotated[float, Option("Radius and step are divided by this after each stage.", bounds=Bounds(above=1))] = (
        2.0
    )
    rows_per_stage: Annotated[int, Option("Rows in a stage. 0: by the number of rows.", bounds=Bounds(least=0))] = 0
    radius: Annotated[
        float, Option("Radius of the ball of the first stage. 0: from a sample.", bounds=Bounds(least=0))
    ] = 0.0
    step: Annotated[
        float, Option("Length of the steps of the first stage. 0: from a sample.", bounds=Bounds(least=0))
    ] = 0.0
    sample: Annotated[
        int, Option("Rows of the sample that radius and step are found with.", bounds=Bounds(least=1))
    ] = 4096
    losses: ClassVar[LossRequirement] = LossRequirement()
    """Any: a dual value follows from sums over the rows."""

    def cost(self, problem: Problem, layout: Layout) -> Cost:
        """Return the bytes of eight vectors of weights and a batch."""
        return Cost(fixed=8 * 8 * (problem.columns + 1) + 8 * self.batch, per_block_row=8)

    def start(self, problem: Problem) -> ASSGState:
        """Begin at w = 0 or the warm weights; radius and step are set by the first block."""
        zero = np.zeros(problem.columns + 1)
        return ASSGState(problem, zero, zero.copy(), zero.copy(), zero.copy(), start_certificate(problem))

    def visit(self, state: ASSGState, block: Block) -> None:
        """Take steps through the block's rows in their order, and evaluate the candidate where that is due."""
        evaluate_candidate(state.averaged, block)
        if state.averaged.ending:
            return
        if state.length == 0.0:
            self._begin(state, block)
        start, rows = 0, len(block.order)
        while start < rows:
            stop = min(rows, start + max(1, round(state.left)))
            self._steps(state, block, block.order[start:stop])
            state.left -= stop - start
            start = stop
            if state.left < 0.5:
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
        state.length = float(self.rows_per_stage or max(1, state.problem.rows // 4))
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
            dcd_sweep(block.labeled, order.copy(), len(order), Box(C, p.loss), Held(), alpha, state.w)

    def _stable_step(self, state: ASSGState, block: Block, order: Int32) -> float:
        """Return the step that minimizes the bound on a stage's error, short enough to be stable."""
        loss, mean = state.problem.loss, np.zeros_like(state.w)
        squares, largest = gradient_moments(block.labeled, order, loss, mean)
        mean /= len(order)
        drift, scatter = float(mean @ mean), squares / len(order)
        G = sqrt(drift + max(scatter - drift, 0.0) / self.batch) or 1.0
        step = state.first_radius * sqrt(self.batch / state.length) / G
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
            state.length *= 2.0
            state.first_radius *= sqrt(0.5)
            state.first_step *= sqrt(0.5)
            self._restart(state)
        self._clear(state)

    def _restart(self, state: ASSGState) -> None:
        state.stage, state.radius, state.step = 0.0, state.first_radius, state.first_step
        self._clear(state)

    def _clear(self, state: ASSGState) -> None:
        state.total[:] = 0.0
        state.samples, state.left = 0.0, state.length

    # -- the end of a pass ---------------------------------------------------------------------------------------------

    def finish(self, state: ASSGState) -> Certificate:
        """Close the pass: a dual bound of its slopes, an estimate of the primal, and the next candidate."""
        averaged, C = state.averaged, state.problem.C
        if averaged.ending:
            return close_certificate(averaged, averaged.primal)
        averaged.passes += 1
        bound_by_pass(averaged, C * state.v, C * state.linear, C * state.quadratic)
        certificate = close_certificate(averaged, 0.5 * float(state.w @ state.w) + C * state.losses)
        half_done = state.left < 0.5 * state.length and state.samples > 0.0
        averaged.candidate[:] = state.total / state.samples if half_done else state.center
        clear_totals(state)
        return certificate
