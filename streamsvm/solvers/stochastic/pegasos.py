"""Pegasos: stochastic sub-gradient descent with step 1 / (lambda t), mini-batches, a projection and averaging.

Shalev-Shwartz, Singer, Srebro, Cotter, Math. Prog. 2011; a smoothed hinge, the lecture's variant, is ``losses.Huber``. Rows are met in
random order in complete epochs (the paper's section 2.4 finds that no worse than drawing them), which is what gives it
a dual bound, for every loss (``compute.passes.stochastic.pegasos``, ``solvers.stochastic.averaged_certificate``).

**Weights.** As in ``solvers.stochastic.sgd``: a row's loss carries s_i, a row is one unit of time.

**Projection.** At the optimum w = sum a_i y_i x_i with a_i = -C s_i l'(m_i), so ||w||^2 = sum a_i m_i is at most
C sum s_i max_m (-l'(m) m): with the hinge the paper's 1 / sqrt(lambda), with the squared hinge 1 / sqrt(2 lambda). Of numbers that
sum has no such bound, and 1/2 ||w||^2 <= P(0) = C sum s_i l(-t_i) is what is known.

**Offset.** Steps on a loss whose slope is unbounded must start below 1 / (its curvature ||x||^2), or they diverge: t
then starts from that length, not from 0 (Bottou, Stochastic gradient descent tricks, 2012, section 5.2).

**Warm start.** As in ``solvers.stochastic.sgd``.

**Merge.** As in ``solvers.stochastic.sgd``: the contributions to a and t are added, which in the first pass is the mean of the
workers' w, weighted by rows.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import ceil, inf, isinf, sqrt
from typing import Annotated, ClassVar, Literal

import numpy as np

from streamsvm.compute.blocks.sums import loss_sum
from streamsvm.compute.passes.stochastic.pegasos import gradient_moments, pegasos_pass
from streamsvm.compute.passes.stochastic.steps import Batches, Objective
from streamsvm.config.fields import Bounds, Option
from streamsvm.losses import threshold
from streamsvm.rows import Float64
from streamsvm.solvers.stochastic.averaged_certificate import (
    AveragedCertificate,
    averaged_certificate_for,
    certificate_of,
    evaluate,
    merged,
    raise_dual,
    share_of,
    take_pass,
)
from streamsvm.solvers.stochastic.averaged_solver import AveragedSolver, AveragedState
from streamsvm.tags import saved_as
from streamsvm.types import (
    Block,
    Certificate,
    Cost,
    Layout,
    Loss,
    LossRequirement,
    Problem,
)
from streamsvm.types.problem import has_box

FAR = 10.0
"""Where -l'(m) m is over its top, for a loss without an end: so many times the margin over which it bends."""
ADDITIONS_PER_ROW = 16
"""A row's share in the sum for the mean of w: it is the same for dense rows and sparse, as the result must be."""


@saved_as("pegasos.state")
@dataclass(slots=True)
class PegasosState(AveragedState):
    """``a`` (columns + 1,) float64 is lambda (offset + t) w; ``t`` rows. The sums are those of the pass under way."""

    problem: Problem
    """What is solved: loss, C, the number of rows and columns, the weights to start from."""
    a: Float64
    """lambda (offset + t) w, (columns + 1,): sums of b_i y_i x_i, b_i = -s_i l'(m_i), as projections left them."""
    before: Float64
    """What is left in a, after projections, of a at the start of the pass."""
    origin: Float64
    """What is left in a of the warm start, which is no sum of gradients."""
    total: Float64
    """Sum of ``samples`` values of w."""
    averaged: AveragedCertificate
    """Candidate and dual bound, and what the candidate was found to be worth."""
    t: int = 0
    """Rows met so far, in all passes."""
    t_before: int = 0
    """t at the start of the pass."""
    offset: float = 0.0
    """Rows by which the clock is ahead, so that first steps are stable and a warm start has weight; set by the first
    block."""
    samples: float = 0.0
    """How many values of w are in ``total``."""
    linear: float = 0.0
    """sum b_i (1 - conjugate'(0)) over the rows of the pass, less what projections took."""
    quadratic: float = 0.0
    """sum s_i conjugate(b_i / s_i, 1) less its linear part, over the rows of the pass, less what projections took."""
    linear_before: float = 0.0
    """What is left, after projections, of ``linear`` of all passes before; likewise the next."""
    quadratic_before: float = 0.0
    """What is left, after projections, of ``quadratic`` of all passes before."""
    losses: float = 0.0
    """sum s_i l(m_i) with the w each row met in the pass; C times this estimates the loss sum of P."""
    weight: float = 0.0
    """Sum of s_i, of numbers of 2 s_i l(-t_i), over the ``met`` rows of all visits so far: for their mean."""
    met: int = 0
    """Rows that ``weight`` is summed over."""


@dataclass(frozen=True, slots=True)
class Pegasos(AveragedSolver):
    """Settings of Pegasos."""

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
        """Bytes of eight vectors of weights and a batch."""
        return Cost(fixed=8 * 8 * (problem.columns + 1) + 8 * self.batch)

    def start(self, problem: Problem) -> PegasosState:
        """Begin at w = 0; a warm start enters with the first block, which sets the clock."""
        zero = np.zeros(problem.columns + 1)
        return PegasosState(problem, zero, zero.copy(), zero.copy(), zero.copy(), averaged_certificate_for(problem))

    def visit(self, state: PegasosState, block: Block) -> None:
        """Take steps through the block's rows in their order, and evaluate the candidate where that is due."""
        evaluate(state.averaged, block)
        if state.averaged.ending:
            return
        p, rows = state.problem, len(block.order)
        state.weight += weight_in_radius(p, block)
        state.met += rows
        if state.t == 0:
            self._begin(state, block)
        radius, batches = self._radius(state), Batches(block.order, self.batch, sampling(p.columns, self.batch))
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
        warm, state.offset = state.problem.warm, self._offset(state, block)
        if warm is not None:
            state.offset = max(state.offset, float(state.problem.rows))
            for a in (state.a, state.before, state.origin):
                a[:] = state.lam * state.offset * warm

    def _offset(self, state: PegasosState, block: Block) -> float:
        """The t from which 1 / (lambda t) is a stable step for the rows of this block."""
        loss = state.problem.loss
        if has_box(loss):
            return 0.0
        _, largest = gradient_moments(block.labeled, block.order, loss, np.zeros_like(state.a))
        return float(largest / (loss.curvature(1.0) * state.lam))

    def _radius(self, state: PegasosState) -> float:
        """Of a ball that holds the optimum; the sum over all rows is foretold from those met."""
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
        """Close the epoch: dual bounds of all epochs and of this one, an estimate of the primal, and the next candidate."""
        averaged, p = state.averaged, state.problem
        if averaged.ending:
            return certificate_of(averaged, averaged.primal)
        averaged.passes += 1
        time, shown = state.lam * (state.offset + state.t), state.lam * (state.t - state.t_before)
        w, quadratic = state.a / time, state.quadratic_before + state.quadratic
        raise_dual(averaged, w - state.origin / time, (state.linear_before + state.linear) / time, quadratic / time)
        take_pass(averaged, (state.a - state.before) / shown, state.linear / shown, state.quadratic / shown)
        certificate = certificate_of(averaged, 0.5 * float(w @ w) + p.C * state.losses)
        self._average(state, w)
        self._reset(state)
        return certificate

    def _average(self, state: PegasosState, w: Float64) -> None:
        candidate, passes = state.averaged.candidate, state.averaged.passes
        if self.averaging == "none":
            candidate[:] = w
        else:
            share = share_of(passes) if self.averaging == "tail" else 1.0 / passes
            candidate += share * (state.total / state.samples - candidate)

    def _reset(self, state: PegasosState) -> None:
        state.before[:] = state.a
        state.total[:] = 0.0
        state.t_before = state.t
        state.linear_before += state.linear
        state.quadratic_before += state.quadratic
        state.linear = state.quadratic = state.losses = state.samples = 0.0

    def merge(self, states: list[PegasosState]) -> PegasosState:
        """Add the copies' contributions to a and t: see the module."""
        first, others = states[0], states[1:]
        share = 1.0 / len(states)
        before = sum((share * s.before for s in others), share * first.before)
        origin = sum((share * s.origin for s in others), share * first.origin)
        return replace(
            first,
            a=sum((s.a - s.before for s in others), first.a - first.before) + before if others else first.a,
            before=before,
            origin=origin,
            total=sum((s.total for s in others), first.total),
            averaged=merged([s.averaged for s in states]),
            t=first.t_before + sum(s.t - s.t_before for s in states),
            offset=max(s.offset for s in states),
            samples=sum(s.samples for s in states),
            linear=sum(s.linear for s in states),
            quadratic=sum(s.quadratic for s in states),
            linear_before=share * sum(s.linear_before for s in states),
            quadratic_before=share * sum(s.quadratic_before for s in states),
            losses=sum(s.losses for s in states),
            weight=sum(s.weight for s in states),
            met=sum(s.met for s in states),
        )


def weight_in_radius(problem: Problem, block: Block) -> float:
    """Return what a block adds to the sum over rows that the radius is made of: sum s_i, of numbers 2 sum s_i l(-t_i)."""
    if problem.loss.numeric():
        nothing = np.zeros(problem.columns + 1)
        return 2.0 * loss_sum(block.X, block.y, block.s, nothing, 1.0, problem.loss)
    return float(block.s.sum(dtype=np.float64))


def largest_slope_product(loss: Loss) -> float:
    """Return the largest -l'(m) m there is, within 2 % and never less: a ball may be too large but not too small.

    Beyond the threshold the slope is 0, below m = 0 the product is not positive. The function is concave between, or rises to
    the end of the box, so that of 1,024 steps none loses more than 0.2 %. A loss without an end falls like e^-m beyond FAR.
    """
    end = FAR / loss.second_derivative(0.0) if isinf(threshold(loss)) else threshold(loss)
    return 1.01 * max(-loss.slope(m) * m for m in np.linspace(0.0, end, 1025).tolist())


def sampling(columns: int, batch: int) -> int:
    """After how many batches w is added to the mean, so that this costs a row few additions whatever its length."""
    return ceil((columns + 1) / (ADDITIONS_PER_ROW * batch))
