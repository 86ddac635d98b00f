"""Dual coordinate descent for all classes in one problem, streamed: what differs from ``solvers.dcd.dual_ascent`` and ``cocoa``.

Problem and step: ``compute.passes.multinomial``. W (K, p) is one long vector w to what averages, certifies and joins; the numbers a_ik
(K of each row) travel with their rows. The gap is the sum over rows of the gaps of their simplices,

    P(W) - D(a) = sum_i [C_i l(m_i) + conjugate(b_i) - b_i + sum_k a_ik w_k.x_i],     W = sum_i a_i x_i',

each of them 0 or more: what Lacoste-Julien et al., ICML 2013, have block by block is here read off sums.

**Warm start.** A row has the b_i that the slope at its margin is, all of it from the class that comes next.
**Parts.** A group proposes its move alone: along it the dual is known from one vector, as in ``cocoa``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from streamsvm.compute.blocks import operators
from streamsvm.compute.passes.certificate import RowLoss
from streamsvm.compute.passes.dcd import Box, Held, Swept
from streamsvm.compute.passes.multinomial import multinomial_dual_sum, multinomial_loss_sum, multinomial_sweep
from streamsvm.compute.passes.newton import slopes_pass
from streamsvm.rows import Float64, Int32
from streamsvm.solvers.dcd.cocoa import AS_PROPOSED, Joint
from streamsvm.solvers.dcd.dual_ascent import DualAscent
from streamsvm.solvers.dcd.state import DCDState
from streamsvm.solvers.point_evaluation import PointSums
from streamsvm.solvers.stochastic.averaged_certificate import slopes_of
from streamsvm.types import Block, Cost, Layout, LinearSolution, LossRequirement, Problem, RowState


def decision_values(block: Block, w: Float64, classes: int) -> Float64:
    """Return w_k.x_i, (n, classes), for w (classes * (columns + 1),)."""
    return operators.margins(block.X, w.reshape(classes, -1).T)


def ranked(values: Float64, own: Int32) -> tuple[Float64, Int32]:
    """Return how far the value of each row's own class is above all others (n,), and which of these is the largest (n,)."""
    rows, others = np.arange(len(own)), values.copy()
    others[rows, own] = -np.inf
    following = others.argmax(axis=1).astype(np.int32)
    return values[rows, own] - others[rows, following], following


@dataclass(frozen=True, slots=True)
class MultinomialDCD(DualAscent):
    """Settings of the descent of one problem of ``classes`` classes."""

    classes: int = 2
    """How many are told apart."""
    losses: ClassVar[LossRequirement] = LossRequirement(quadratic=True, numeric=False)
    """Those whose conjugate is a parabola: what the numbers of a row are to be is then the root of a broken line."""

    @property
    def row_state(self) -> tuple[RowState, ...]:
        """A number a_ik of each row for each class; of rows in parts also where they were at the start of the pass."""
        return tuple(RowState(name, "float64", self.classes) for name in self.row_names())

    def cost(self, problem: Problem, layout: Layout) -> Cost:
        """What the weights of all classes take, and a number a row and class; decision values while a block is evaluated."""
        fixed = (4 if self.parts == 1 else 8) * 8 * problem.components
        return Cost(fixed, sum(state.nbytes for state in self.row_state), per_block_row=3 * 8 * self.classes)

    def losses_at(self, problem: Problem, block: Block, w: Float64) -> float:
        """Return sum C_i l(m_i) of a block at w (components,)."""
        values = decision_values(block, w, self.classes)
        return multinomial_loss_sum(values, block.y, block.s, problem.C, problem.loss)

    def gain(self, problem: Problem, block: Block) -> float:
        """Return sum b_i - conjugate(b_i) of a block."""
        return multinomial_dual_sum(block.rows["alpha"], block.y, block.s, problem.C, problem.loss)

    def _pass(self, state: DCDState, block: Block, rows: Int32, box: Box, held: Held) -> Swept:
        """See ``DualAscent``; rows that changed come to the front of ``rows``."""
        del held
        W = state.w.reshape(self.classes, -1)
        return multinomial_sweep(block.labeled, rows, len(rows), box, block.rows["alpha"], W)

    def begin_at(self, state: DCDState, warm_sums: PointSums, block: Block) -> None:
        """Give the rows of a block the dual variables that slopes at the warm weights are, and evaluate both."""
        p, own = state.problem, block.y.astype(np.int32)
        m, following = ranked(decision_values(block, state.w, self.classes), own)
        slopes, second_derivatives = np.empty(len(m)), np.empty(len(m))
        ones = np.ones_like(block.y)
        sums = slopes_pass(ones, block.s, m, RowLoss(p.C, p.loss, slopes_of(p.loss)), slopes, second_derivatives)
        alpha, rows = block.rows["alpha"], np.arange(len(m))
        alpha[:] = 0.0
        alpha[rows, following], alpha[rows, own] = -slopes, slopes
        warm_sums.v += operators.adjoint(block.X, alpha, p.columns).T.ravel()
        warm_sums.sums = warm_sums.sums.plus(sums)

    def settle(self, joint: Joint, problem: Problem, block: Block) -> None:
        """Take the rows of a block to where the last pass of all parts has decided."""
        move = float(joint.steps[block.chunk % len(joint.steps)][0])
        if move != AS_PROPOSED[0]:
            alpha, before = block.rows["alpha"], block.rows["before"]
            alpha[:] = before + move * (alpha - before)

    def count(self, joint: Joint, problem: Problem, block: Block) -> None:
        """Add what the rows of a block propose to go."""
        alpha, before, rows, own = (
            block.rows["alpha"],
            block.rows["before"],
            np.arange(len(block.y)),
            block.y.astype(int),
        )
        C = np.where(block.s > 0.0, problem.C * block.s.astype(np.float64), 1.0)  # rows of weight 0 stay at 0
        b, way = before[rows, own], alpha[rows, own] - before[rows, own]
        loss: Any = problem.loss  # its functions of numbers are ones of arrays too
        joint.dual += float(np.sum(b - loss.conjugate(b, C)))
        joint.linear[0] += way @ (1.0 - loss.conjugate_slope(b, C) * np.ones(len(C)))
        joint.quadratic[0, 0] -= 0.5 * (way * loss.curvature(C)) @ way
        joint.vectors[0] += operators.adjoint(block.X, alpha - before, problem.columns).T.ravel()

    def candidate(self, state: DCDState) -> Float64:
        """The mean over passes, (classes, columns + 1)."""
        return state.problem.shaped(state.tail).copy()

    def solution(self, state: DCDState) -> LinearSolution:
        """The best of the weights that were evaluated so far, (classes, columns + 1)."""
        return LinearSolution(state.problem.shaped(state.best).copy(), state.problem.bias)
