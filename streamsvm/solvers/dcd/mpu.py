"""The margin perceptron with unlearning: dual variables in steps of one length, on a grid that is made finer as the gap closes.

Panagiotakopoulos and Tsampouka, ICML 2010, as ``compute.passes.mpu`` derives it; the SGD paper (arXiv:1304.6383) compares with it.
The counts of updates are dual variables, which travel with their rows, so that the dual value is exact after every pass and the
primal is evaluated as for ``DCD``. The paper chooses the margin b = 1 / eta before the run, for an accuracy it proves. Here eta
begins at 1 / mean ||x_i||^2, a step that moves a row's margin by about 1 (``accuracy`` times as fine where that is asked for), and is
divided by up to ``FINER`` after passes in which rows that did not move hide more than ``SHARE`` of the gap.

Weights: a row's box is [0, upper(C s_i)]. Many workers at once: as for ``DCD``.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated, ClassVar

import numpy as np

from streamsvm.compute.passes.dcd import Box, Held, Swept
from streamsvm.compute.passes.mpu import Steps, mpu_pass
from streamsvm.compute.passes.stochastic.pegasos import gradient_moments
from streamsvm.config.fields import Bounds, Option
from streamsvm.rows import Int32
from streamsvm.solvers.dcd.dual_ascent import DualAscent
from streamsvm.solvers.dcd.state import DCDState
from streamsvm.tags import saved_as
from streamsvm.types import Block, Certificate, LossRequirement

SHARE = 0.25
"""Of the gap: what the grid may hide."""
FINER = 8.0
"""The most that a step is divided by after one pass."""


@saved_as("mpu.state")
@dataclass(slots=True)
class MPUState(DCDState):
    """That of ``DCD``, and the grid."""

    length: float = 0.0
    """eta, what one step adds to a dual variable; 0: no row has been seen."""
    hidden: float = 0.0
    """What the rows that did not move in this pass hide of P - D."""


@dataclass(frozen=True, slots=True)
class MPU(DualAscent):
    """Settings of the margin perceptron with unlearning."""

    multiplicity: Annotated[
        int, Option("How many updates of the same row at most are made in one.", bounds=Bounds(least=1))
    ] = 5
    accuracy: Annotated[
        float,
        Option(
            "The paper's choice before the run: a first update moves the margin of a row by about this much. Updates become finer "
            "as the gap closes.",
            bounds=Bounds(above=0),
        ),
    ] = 1.0
    losses: ClassVar[LossRequirement] = LossRequirement(quadratic=True, numeric=False)
    """Those for which a step on the grid is known to raise D."""
    state_type: ClassVar[type[DCDState]] = MPUState
    """With the grid."""

    def _pass(self, state: DCDState, block: Block, rows: Int32, box: Box, held: Held) -> Swept:
        assert isinstance(state, MPUState)
        if state.length == 0.0:
            state.length = self.accuracy * _step_of_one(state, block, rows)
        steps = Steps(state.length or 1.0, self.multiplicity)
        learned = mpu_pass(block.labeled, rows, box, steps, block.rows["alpha"], state.w)
        state.hidden += learned.hidden
        return Swept(learned.moved, learned.losses, 0.0, 0.0)

    def finish(self, state: DCDState) -> Certificate:
        """See ``DualAscent.finish``; after a pass that trained the grid is made finer where it hides too much."""
        assert isinstance(state, MPUState)
        trains = state.warm_sums is None and not state.certifying
        certificate = DualAscent.finish(self, state)
        allowed = SHARE * (certificate.primal - certificate.dual)
        if trains and state.hidden > allowed:
            state.length /= min(FINER, state.hidden / allowed) if allowed > 0.0 else FINER
        state.hidden = 0.0
        return certificate

    def merge(self, states: list[DCDState]) -> DCDState:
        """See ``DualAscent.merge``; the grid of all is that of the first, and what it hides is added up."""
        whole = DualAscent.merge(self, states)
        assert isinstance(whole, MPUState)
        hidden = sum(state.hidden for state in states if isinstance(state, MPUState))
        return replace(whole, hidden=hidden)


def _step_of_one(state: MPUState, block: Block, rows: Int32) -> float:
    """The step that moves the margin of a row by 1, from the mean of ||x_i||^2 weighted by s_i^2; 0: none of the rows has a say."""
    loss, s = state.problem.loss, block.s[rows].astype(np.float64)
    squares, _ = gradient_moments(block.labeled, rows, loss, np.zeros_like(state.w))
    return loss.slope(0.0) ** 2 * float(s @ s) / squares if squares > 0.0 else 0.0
