"""ASSG, the solver of Snacks: stages of sub-gradient steps in a ball that shrinks around the mean of the stage before.

Xu, Lin, Yang, Analysis and Applications 2019; Tanji et al., Snacks, algorithm 1 (the two readings of it: see
``compute.passes.stochastic.assg``). A stage is T rows of projected steps of one length eta in the ball of radius D around its center;
its mean is the next center, and D and eta are divided by ``omega``.

**Automatic start.** The first rows of the first block are solved in memory by a few sweeps of dual coordinate descent:
that w is the first center, and D three times its length: a sample says little of rare features, and a ball too small
costs passes (w8a: many), one too large a stage. Over T / |A| steps with E||g||^2 <= G^2 the error of the mean is at most
D^2 |A| / (2 eta T) + eta G^2 / 2, least for eta = D sqrt(|A| / T) / G; G^2 is measured at w = 0 on the same rows, the
mean of gradients and their scatter, which a mini-batch divides, apart. T is a quarter of the rows.

A warm start takes the place of that w, and D is its length.

**Restarts.** ``stages`` halvings later steps are too short to move on. Then, as in the restarted form of Xu et al., T
doubles and D and eta start again, from 1 / sqrt(2) of where they started last: one over the square root of T, as the
distance to the optimum falls when the error falls as 1 / T. (Neither keeping D nor halving it did as well.)

**Weights.** As in ``solvers.stochastic.sgd``: a row's loss carries s_i, a row is one unit of time.

**Certificate.** The slopes met in a pass are a dual point (``solvers.stochastic.averaged_certificate``). The candidate is the mean of a stage:
of the one under way when more than half of it is done, else of the last.

**Merge.** w, the center and all that describes the stage are averaged over the workers, each of which has gone through
the stages with its own rows; sums over the pass are added.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import sqrt
from typing import Annotated, ClassVar

import numpy as np

from streamsvm.compute.passes.dcd import Box, Held, dcd_sweep
from streamsvm.compute.passes.stochastic.assg import Stage, assg_pass
from streamsvm.compute.passes.stochastic.pegasos import gradient_moments
from streamsvm.compute.passes.stochastic.steps import Batches, Objective
from streamsvm.compute.random import shuffle
from streamsvm.config.fields import Bounds, Option
from streamsvm.rows import Float64, Int32
from streamsvm.solvers.stochastic.averaged_certificate import (
    AveragedCertificate,
    averaged_certificate_for,
    certificate_of,
    evaluate,
    merged,
    take_pass,
)
from streamsvm.solvers.stochastic.averaged_solver import AveragedSolver, AveragedState
from streamsvm.solvers.stochastic.pegasos import sampling
from streamsvm.tags import saved_as
from streamsvm.types import (
    Block,
    Certificate,
    Cost,
    Layout,
    LossRequirement,
    Problem,
)
from streamsvm.types.problem import has_box

SAMPLE_SWEEPS = 5
"""Over the rows of the sample."""
RADIUS_FACTOR = 3.0
"""The first radius as a multiple of the length of the sample's w."""


@saved_as("assg.state")
@dataclass(slots=True)
class ASSGState(AveragedState):
    """``w``, ``center`` (columns + 1,) float64; the sums over the pass under way are v, linear, quadratic, losses."""

    problem: Problem
    """What is solved: loss, C, the number of rows and columns, the weights to start from."""
    w: Float64
    """The weights, where the steps are."""
    center: Float64
    """The center of the ball: the mean of the stage before, at first the w of a sample or of a warm start."""
    total: Float64
    """Sum of ``samples`` values of w in the stage under way."""
    v: Float64
    """sum b_i y_i x_i over the rows of the pass, b_i = -s_i l'(m_i); C b_i are its dual variables."""
    averaged: AveragedCertificate
    """Candidate and dual bound, and what the candidate was found to be worth."""
    samples: float = 0.0
    """How many values of w are in ``total``."""
    linear: float = 0.0
    """sum b_i (1 - conjugate'(0)) over the rows of the pass."""
    quadratic: float = 0.0
    """sum s_i conjugate(b_i / s_i, 1) less its linear part, over the rows of the pass."""
    losses: float = 0.0
    """sum s_i l(m_i) with the w each row met in the pass; C times this estimates the loss sum of P."""
    length: float = 0.0
    """Rows of a stage; 0: nothing has been seen yet."""
    left: float = 0.0
    """Rows to the end of the stage under way."""
    stage: float = 0.0
    """Stages done since the last restart; whole but for a mean over workers."""
    first_radius: float = 0.0
    """The radius of the ball in the first stage after a restart."""
    first_step: float = 0.0
    """The length of the steps in the first stage after a restart."""
    radius: float = 0.0
    """The radius of the ball in the stage under way."""
    step: float = 0.0
    """The length of the steps in the stage under way."""


@dataclass(frozen=True, slots=True)
class ASSG(AveragedSolver):
    """Settings of accelerated stochastic subgradient descent."""

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
        """Bytes of eight vectors of weights and a batch."""
        return Cost(fixed=8 * 8 * (problem.columns + 1) + 8 * self.batch, per_block_row=8)

    def start(self, problem: Problem) -> ASSGState:
        """Begin at w = 0 or the warm weights; radius and step are set by the first block."""
        zero = np.zeros(problem.columns + 1)
        return ASSGState(problem, zero, zero.copy(), zero.copy(), zero.copy(), averaged_certificate_for(problem))

    def visit(self, state: ASSGState, block: Block) -> None:
        """Take steps through the block's rows in their order, and evaluate the candidate where that is due."""
        evaluate(state.averaged, block)
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
        state.first_step = self.step or self._step(state, block, order)
        self._restart(state)

    def _solve_sample(self, state: ASSGState, block: Block, order: Int32) -> None:
        p, alpha = state.problem, np.zeros(len(block.y))
        C = p.C * p.rows / len(order)
        for sweep in range(SAMPLE_SWEEPS):
            shuffle(order, len(order), block.seed + sweep)
            dcd_sweep(block.labeled, order.copy(), len(order), Box(C, p.loss), Held(), alpha, state.w)

    def _step(self, state: ASSGState, block: Block, order: Int32) -> float:
        """The step that minimizes the bound on a stage's error, short enough to be stable."""
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
        p, batches = state.problem, Batches(order, self.batch, sampling(state.problem.columns, self.batch))
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
            return certificate_of(averaged, averaged.primal)
        averaged.passes += 1
        take_pass(averaged, C * state.v, C * state.linear, C * state.quadratic)
        certificate = certificate_of(averaged, 0.5 * float(state.w @ state.w) + C * state.losses)
        half_done = state.left < 0.5 * state.length and state.samples > 0.0
        averaged.candidate[:] = state.total / state.samples if half_done else state.center
        state.v[:] = 0.0
        state.linear = state.quadratic = state.losses = 0.0
        return certificate

    def merge(self, states: list[ASSGState]) -> ASSGState:
        """Average where the copies are in their stages, and add up what they summed over their rows."""
        count = len(states)
        return replace(
            states[0],
            averaged=merged([s.averaged for s in states]),
            w=np.asarray(sum(s.w for s in states)) / count,
            center=np.asarray(sum(s.center for s in states)) / count,
            total=np.asarray(sum(s.total for s in states)) / count,
            samples=sum(s.samples for s in states) / count,
            length=sum(s.length for s in states) / count,
            left=sum(s.left for s in states) / count,
            stage=sum(s.stage for s in states) / count,
            first_radius=sum(s.first_radius for s in states) / count,
            first_step=sum(s.first_step for s in states) / count,
            radius=sum(s.radius for s in states) / count,
            step=sum(s.step for s in states) / count,
            v=np.asarray(sum(s.v for s in states)),
            linear=sum(s.linear for s in states),
            quadratic=sum(s.quadratic for s in states),
            losses=sum(s.losses for s in states),
        )
