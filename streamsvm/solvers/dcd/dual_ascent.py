"""What solvers have in common that raise D one dual variable at a time: passes, the primal beside them, warm starts, many workers.

By blocks as in Yu et al., KDD 2010. A visit sweeps a block a few times, shrinking, while it is in memory; the dual variables travel with their rows. The
dual value is exact after every pass, because a block's part of it changes only when the block is visited.

The primal is another matter. w carries the imprint of the rows it has just met, and until alpha has settled P(w) may
be several 1e-3 above the optimum when the dual is within 1e-4 of it. The mean of w over a pass carries less of it
(Shalev-Shwartz and Zhang, JMLR 2013, theorem 2), a mean over many passes that favors the late ones still less (Shamir
and Zhang, ICML 2013, section 4, with eta = 3); once alpha has settled w itself is best. All three are evaluated, and
the best is the solution. During a training pass the primal is only estimated, from the losses met on the way; when the
estimate says it is time, a pass evaluates.

**Warm start** from weights w_0. The first pass evaluates them, and gives every row the a_i that the slopes at w_0 are, of
the loss or, where it has a corner, of one rounded a little. Scaled by the t that makes the dual largest they are where
descent starts, w = t sum a_i y_i x_i: never worse than a = 0, and the better the closer w_0 is to the optimum.

Many workers at once: ``solvers.dcd.cocoa``, joined by ``solvers.dcd.joining``.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated, ClassVar, Self

import numpy as np

from streamsvm.compute.blocks.sums import dual_sum, loss_sum
from streamsvm.compute.passes.certificate import RowLoss, best_scale
from streamsvm.compute.passes.dcd import Box, Held, Swept
from streamsvm.compute.passes.newton import slopes_pass
from streamsvm.compute.random import shuffle
from streamsvm.config.fields import Bounds, Option
from streamsvm.rows import Float64, Int32
from streamsvm.solvers.dcd import cocoa
from streamsvm.solvers.dcd.joining import joined_states
from streamsvm.solvers.dcd.state import DCDState
from streamsvm.solvers.point_evaluation import PointSums
from streamsvm.solvers.stochastic.averaged_certificate import slopes_of
from streamsvm.types import (
    Block,
    Certificate,
    Cost,
    Layout,
    LinearSolution,
    LossRequirement,
    Problem,
    RowState,
    Solver,
)

ROWS_PER_SAMPLE = 2048
"""Rows between two samples of w for the mean, and between two looks at the clock."""
AVERAGING_POWER = 3
"""eta of the mean over passes: pass t has a weight of about t^eta."""
EVALUATION_SPACING = 1.25
"""After a failed evaluation the next one waits until there are this many times as many passes."""


@dataclass(frozen=True, slots=True)
class DualAscent(Solver[DCDState]):
    """What solvers have in common that raise D one dual variable at a time; what a move is, ``_pass`` says."""

    sweeps: Annotated[
        int,
        Option(
            "How often the rows of a block are gone through in one visit. 0: once where blocks stay in memory, because then "
            "more visits are better than longer ones; else three times.",
            bounds=Bounds(least=0),
        ),
    ] = 0
    parts: Annotated[
        int,
        Option(
            "Groups of rows worked on side by side, each on a copy of the state; see --groups.", bounds=Bounds(least=1)
        ),
    ] = 1
    shuffled: ClassVar[bool] = True
    """True: steps along the rows as they lie would follow their order, by class or by time."""
    losses: ClassVar[LossRequirement] = LossRequirement()
    """Any: the optimum of one dual variable has a closed form, or is the root of a function of one number."""
    state_type: ClassVar[type[DCDState]] = DCDState
    """What ``start`` makes."""
    has_candidates: ClassVar[bool] = True
    warm_start: ClassVar[bool] = True

    @property
    def row_state(self) -> tuple[RowState, ...]:
        """The dual variables; of rows in parts also where each was at the start of the pass."""
        return tuple(RowState(name, "float64") for name in self.row_names())

    def row_names(self) -> tuple[str, ...]:
        """Return the names of what is known of each row, float64 all."""
        return ("alpha",) if self.parts == 1 else ("alpha", "before")

    def in_parts(self, parts: int) -> Self:
        return replace(self, parts=parts)

    def cost(self, problem: Problem, layout: Layout) -> Cost:
        """Bytes of four vectors of weights, eight with parts, and of a dual variable a row and what else is known of it."""
        fixed = (4 if self.parts == 1 else 8) * 8 * problem.components
        return Cost(fixed=fixed, per_row=sum(state.nbytes for state in self.row_state))

    def start(self, problem: Problem) -> DCDState:
        """Begin at a = 0, or with a first pass that turns the warm weights into dual variables."""
        w = problem.first_weights()
        warm_sums = None if problem.warm is None else PointSums(len(w))
        joint = None if self.parts == 1 else cocoa.begun(self.parts, w, self.parts / 2)
        return self.state_type(problem, w, w.copy(), w.copy(), w.copy(), warm_sums=warm_sums, joint=joint)

    def visit(self, state: DCDState, block: Block) -> None:
        """Sweep the rows of the block, changing ``alpha`` and w, or evaluate the candidates where the pass is for that."""
        if state.warm_sums is not None:
            self.begin_at(state, state.warm_sums, block)
            return
        if state.joint is not None:
            self.settle(state.joint, state.problem, block)
        if state.certifying:
            self._evaluate(state, block)
            return
        block.rows["alpha"][:] *= state.scale
        if state.joint is not None:
            block.rows["before"][:] = block.rows["alpha"]
        self._train(state, block)
        if state.joint is not None:
            self.count(state.joint, state.problem, block)

    def settle(self, joint: cocoa.Joint, problem: Problem, block: Block) -> None:
        """Take the rows of a block to where the last pass of all parts has decided (``solvers.dcd.cocoa``)."""
        cocoa.settle(joint, problem, block)

    def count(self, joint: cocoa.Joint, problem: Problem, block: Block) -> None:
        """Add what the rows of a block propose to go."""
        cocoa.count(joint, problem, block)

    def losses_at(self, problem: Problem, block: Block, w: Float64) -> float:
        """Return sum C_i l(m_i) of a block at w (components,)."""
        return loss_sum(block.X, block.y, block.s, w, problem.C, problem.loss)

    def gain(self, problem: Problem, block: Block) -> float:
        """Return sum a_i - conjugate(a_i) of a block."""
        return dual_sum(block.rows["alpha"], block.y, block.s, problem.C, problem.loss)

    def begin_at(self, state: DCDState, warm_sums: PointSums, block: Block) -> None:
        """Give the rows of a block the dual variables that slopes at the warm weights are, and evaluate both."""
        p, slopes, second_derivatives = state.problem, np.empty(len(block.y)), np.empty(len(block.y))
        smooth = slopes_of(p.loss)
        f = warm_sums.add(p, smooth, block, state.w)
        slopes_pass(block.y, block.s, f, RowLoss(p.C, p.loss, smooth), slopes, second_derivatives)
        block.rows["alpha"][:] = slopes * p.task.signs(block.y)

    def _evaluate(self, state: DCDState, block: Block) -> None:
        for k, w in enumerate(state.candidates):
            state.evaluated[k] += self.losses_at(state.problem, block, w)

    def _train(self, state: DCDState, block: Block) -> None:
        if state.samples == 0:
            state.mean[:] = 0.0
        active = block.order
        for sweep in range(self.sweeps or (1 if block.cached else 3)):
            active = self.to_visit(block, active, sweep)
            active = (
                active[: self.sweep(state, block, active, Held()).left] if sweep else self.first_sweep(state, block)
            )
            if len(active) == 0:
                break
        state.duals += self.gain(state.problem, block)

    def to_visit(self, block: Block, active: Int32, sweep: int) -> Int32:
        """Return the rows of a sweep in the order of their visits: those still active, in an order of its own."""
        if sweep:
            shuffle(active, len(active), block.seed + sweep)
        return active

    def first_sweep(self, state: DCDState, block: Block) -> Int32:
        """Meet the rows, estimate their losses, and return the rows for further sweeps."""
        swept = self.sweep(state, block, block.order, Held())
        state.losses += swept.losses
        return block.order[: swept.left]

    def sweep(self, state: DCDState, block: Block, active: Int32, held: Held) -> Swept:
        """One sweep in slices; gathers the rows still active at the front of ``active``."""
        p, left, losses, highest, lowest = state.problem, 0, 0.0, -np.inf, np.inf
        box = Box(p.C, p.loss, 1.0 if state.joint is None else state.joint.sigma)
        for start in range(0, len(active), ROWS_PER_SAMPLE):
            part = active[start : start + ROWS_PER_SAMPLE]
            swept = self._pass(state, block, part, box, held)
            active[left : left + swept.left] = part[: swept.left]
            left, losses = left + swept.left, losses + swept.losses
            highest, lowest = max(highest, swept.highest), min(lowest, swept.lowest)
            state.mean += state.w
            state.samples += 1
        return Swept(left, losses, highest, lowest)

    def _pass(self, state: DCDState, block: Block, rows: Int32, box: Box, held: Held) -> Swept:
        """Visit rows one by one, moving ``alpha`` and w; the rows still active come to the front of ``rows``."""
        raise NotImplementedError

    def finish(self, state: DCDState) -> Certificate:
        """Close the pass: the dual is exact, the primal an estimate unless the pass evaluated."""
        if state.warm_sums is not None:
            return self._finish_warm_start(state, state.warm_sums)
        if state.certifying:
            return self._finish_evaluation(state)
        state.scale = 1.0
        half = 0.5 * float(state.w @ state.w)
        if state.shrinking is not None:
            state.shrinking.finish(state.problem.tolerance)
        state.passes += 1
        state.dual = state.duals - half
        state.mean /= max(state.samples, 1)
        share = (AVERAGING_POWER + 1) / (state.passes + AVERAGING_POWER)
        state.tail += share * (state.mean - state.tail)
        certificate = Certificate(half + state.losses, state.dual, exact=False)
        state.certifying = certificate.gap <= state.problem.tolerance and state.passes >= state.next_check
        self._reset(state)
        return certificate

    def _finish_warm_start(self, state: DCDState, warm_sums: PointSums) -> Certificate:
        found = warm_sums.close(state.problem, state.w)
        state.best[:], state.primal, state.dual = state.w, found.primal, found.dual
        state.scale = best_scale(state.problem.loss, found.sums.linear, found.sums.quadratic, float(found.v @ found.v))
        for w in state.candidates:
            w[:] = state.scale * found.v
        state.warm_sums = None
        if state.joint is not None:
            state.joint = cocoa.begun(self.parts, state.w, state.joint.sigma)
        return Certificate(found.primal, found.dual)

    def _finish_evaluation(self, state: DCDState) -> Certificate:
        primals = [0.5 * float(w @ w) + losses for w, losses in zip(state.candidates, state.evaluated, strict=True)]
        best = int(np.argmin(primals))
        if primals[best] < state.primal:
            state.best[:], state.primal = state.candidates[best], primals[best]
        if state.shrinking is not None:  # the gap may not be as small as it seemed
            state.shrinking.wake()
        state.next_check = EVALUATION_SPACING * state.passes
        state.certifying = False
        self._reset(state)
        return Certificate(state.primal, state.dual)

    def _reset(self, state: DCDState) -> None:
        state.losses = state.duals = 0.0
        state.evaluated[:] = 0.0
        state.samples = 0

    def certify(self, state: DCDState) -> None:
        """Let the next pass evaluate the three candidates and train nothing."""
        state.certifying = state.warm_sums is None  # which is an evaluation anyway

    def merge(self, states: list[DCDState]) -> DCDState:
        """See ``solvers.dcd.joining``; all ``parts`` copies of one state, or it alone."""
        if len(states) == 1:
            return states[0]
        assert len(states) == self.parts, f"{len(states)} copies of a state made for {self.parts}"
        return joined_states(states)

    def candidate(self, state: DCDState) -> Float64:
        """The mean over passes."""
        return state.tail.copy()

    def solution(self, state: DCDState) -> LinearSolution:
        """The best of the weights that were evaluated so far."""
        return LinearSolution(state.best.copy(), state.problem.bias)
