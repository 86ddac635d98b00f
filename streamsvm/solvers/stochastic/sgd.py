"""Stochastic sub-gradient descent as a perceptron with a growing margin, in complete epochs.

Panagiotakopoulos and Tsampouka, arXiv:1304.6383. With a = lambda t w a presentation adds s_i y_i x_i to a when
y_i a.x_i <= lambda t and does nothing else: no scaling of w (``compute.passes.stochastic.sgd``). ``variant``:

    s   every row once an epoch;
    m   every row ``multiplicity`` times in succession, for one or two inner products;
    r   as many rows as there are, drawn at random with replacement: ``draws`` says from what.

**Draws.** "block" takes out of each block as many rows as it has. "all" draws the number of them too, from Poisson's law with that mean: of
draws from all rows so many in number, those that fall to different blocks are independent and of this law (a Poisson process, thinned).
So what a pass presents is what the paper's draws from all rows present, given how many there are; they come block by block, the
blocks in random order, because rows in an order of their own would be a reading for each.

That is the hinge. A smooth loss of bounded slope adds -l'(m_i) times as much, m_i = y_i a.x_i / (lambda t); several presentations
of a row are then gone through one by one, for the same two inner products.

**Weights.** A row's loss carries s_i, so an update adds s_i y_i x_i, while a presentation moves the threshold on by
lambda whatever s_i: with lambda = 1 / (C rows), a_i = s_i I_i / (lambda t) <= C s_i after complete epochs, I_i <= t / rows.

**Certificate.** Of s and m the dual follows from a, t and one sum over the presentations (``compute.passes.stochastic.sgd``), of the hinge the number
of updates; what each row had of it is never kept. r has no such bound, and a dual point is read off the candidate's slopes: an honest but loose one.

**Warm start** from w_0: a = lambda t w_0 with t = rows, so that w_0 weighs as much as one epoch. Dual points are made of
the updates alone.

**Merge.** Workers start a pass from one (a, t) and each shows its rows to its copy. Their contributions to a and t are
added: w = (t w + sum_k (t_k w_k - t w)) / (t + sum_k (t_k - t)). In the first pass that is the mean of the workers' w,
weighted by rows; later it is the step one worker makes with gradients that are a pass old at most, and the dual point
stays feasible to the letter.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated, ClassVar, Literal

import numpy as np

from streamsvm.compute.passes.stochastic.sgd import sgd_pass
from streamsvm.compute.passes.stochastic.steps import Objective
from streamsvm.config.fields import Bounds, Option
from streamsvm.rows import Float64, Int32
from streamsvm.solvers.stochastic.averaged_certificate import (
    AveragedCertificate,
    averaged_certificate_for,
    certificate_of,
    evaluate,
    evaluate_slopes,
    merged,
    raise_dual,
    share_of,
    take_pass,
    take_slopes,
)
from streamsvm.solvers.stochastic.averaged_solver import AveragedSolver, AveragedState
from streamsvm.tags import saved_as
from streamsvm.types import (
    Block,
    Certificate,
    Cost,
    Layout,
    LossRequirement,
    Problem,
)

ROWS_PER_SAMPLE = 512
"""Rows between two samples of w for the mean."""


@saved_as("sgd.state")
@dataclass(slots=True)
class SGDState(AveragedState):
    """``a`` (columns + 1,) float64 is lambda t w; ``t`` presentations. The sums are those of the pass under way."""

    problem: Problem
    """What is solved: loss, C, the number of rows and columns, the weights to start from."""
    a: Float64
    """lambda t w, (columns + 1,): sums of s_i y_i x_i, to which a presentation adds without scaling."""
    before: Float64
    """a at the start of the pass."""
    total: Float64
    """Sum of ``samples`` values of w."""
    averaged: AveragedCertificate
    """Candidate and dual bound, and what the candidate was found to be worth."""
    origin: Float64
    """a of the warm start, which is no sum of updates."""
    t: int = 0
    """Presentations so far, ``t_origin`` included."""
    t_before: int = 0
    """t at the start of the pass."""
    t_origin: int = 0
    """The presentations a warm start stands for: one for each row; 0 without one."""
    samples: int = 0
    """How many values of w are in ``total``."""
    gained: float = 0.0
    """sum s_i (b - conjugate(b, 1)) over the presentations: of the hinge sum s_i times the updates of row i, times its margin."""
    gained_before: float = 0.0
    """The same of all passes before."""
    losses: float = 0.0
    """sum s_i l(m_i) with the w each row met in the pass; C times this estimates the loss sum of P."""


@dataclass(frozen=True, slots=True)
class SGD(AveragedSolver):
    """Settings of stochastic gradient descent with growing margins."""

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
    """Slopes are between -1 and 1: the first steps, which are the longest, are no longer for being far off."""

    def idle(self, problem: Problem) -> dict[str, tuple[str, ...]]:
        return {
            f"it is for variant m, and this is variant {self.variant}": ("multiplicity",)
            if self.variant != "m"
            else (),
            f"it is for variant r, and this is variant {self.variant}": ("draws",) if self.variant != "r" else (),
        }

    def cost(self, problem: Problem, layout: Layout) -> Cost:
        """Bytes of eight vectors of weights, and a number a row of a block for draws."""
        return Cost(fixed=8 * 8 * (problem.columns + 1), per_block_row=8 * (self.variant == "r"))

    def start(self, problem: Problem) -> SGDState:
        """Begin at a = 0, or with the warm weights counted as one epoch."""
        t = 0 if problem.warm is None else problem.rows
        a = problem.first_weights() * (t / (problem.C * problem.rows))
        before, total, averaged = a.copy(), np.zeros_like(a), averaged_certificate_for(problem)
        return SGDState(problem, a, before, total, averaged, a.copy(), t, t_before=t, t_origin=t)

    def visit(self, state: SGDState, block: Block) -> None:
        """Present the block's rows in their order, or rows drawn, and evaluate the candidate where that is due."""
        (evaluate_slopes if self.variant == "r" else evaluate)(state.averaged, block)
        if state.averaged.ending:
            return
        order = self._drawn(state, block) if self.variant == "r" else block.order
        for start in range(0, len(order), ROWS_PER_SAMPLE):
            self._train(state, block, order[start : start + ROWS_PER_SAMPLE])

    def _drawn(self, state: SGDState, block: Block) -> Int32:
        """Return the rows to present; of all copies' blocks together at least one in a pass, whose mean is taken."""
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
            take_slopes(averaged)
        if averaged.ending:
            return certificate_of(averaged, averaged.primal)
        averaged.passes += 1
        w = state.a / (lam * state.t)
        if self.variant != "r":
            self._bound(state)
        certificate = certificate_of(averaged, 0.5 * float(w @ w) + p.C * state.losses)
        averaged.candidate += share_of(averaged.passes) * (state.total / state.samples - averaged.candidate)
        self._reset(state)
        return certificate

    def _bound(self, state: SGDState) -> None:
        """The paper's dual point, which is w without the warm start, and the mean over passes that favors the late ones."""
        lam = state.lam
        shown, all_shown = lam * (state.t - state.t_before), lam * (state.t - state.t_origin)
        everything = state.gained_before + state.gained
        raise_dual(state.averaged, (state.a - state.origin) / all_shown, everything / all_shown, 0.0)
        take_pass(state.averaged, (state.a - state.before) / shown, state.gained / shown, 0.0)

    def _reset(self, state: SGDState) -> None:
        state.before[:] = state.a
        state.total[:] = 0.0
        state.t_before = state.t
        state.gained_before += state.gained
        state.gained = state.losses = 0.0
        state.samples = 0

    def merge(self, states: list[SGDState]) -> SGDState:
        """Add the copies' contributions to a and t: see the module."""
        first = states[0]
        moved = sum((s.a - first.before for s in states[1:]), np.zeros_like(first.a))
        return replace(
            first,
            a=first.a + moved,
            total=sum((s.total for s in states[1:]), first.total),
            averaged=merged([s.averaged for s in states], slopes=self.variant == "r"),
            t=first.t_before + sum(s.t - s.t_before for s in states),
            samples=sum(s.samples for s in states),
            gained=sum(s.gained for s in states),
            losses=sum(s.losses for s in states),
        )
