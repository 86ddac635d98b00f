"""The value of given weights over all rows: one pass, nothing is trained. For models chosen by something else than P."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from streamsvm.rows import Float64
from streamsvm.solvers.point_evaluation import Evaluation
from streamsvm.tags import saved_as
from streamsvm.types import Block, Certificate, Cost, Layout, LinearSolution, LossRequirement, Problem, RowState


@saved_as("evaluation.state")
@dataclass(slots=True)
class AppraisalState:
    """``point`` (columns + 1,) is what the problem starts from."""

    problem: Problem
    point: Float64
    evaluation: Evaluation


@dataclass(frozen=True, slots=True)
class Appraisal:
    """Evaluates ``Problem.warm``; the dual is that of the loss's slopes there."""

    row_state: ClassVar[tuple[RowState, ...]] = ()
    shuffled: ClassVar[bool] = False
    losses: ClassVar[LossRequirement] = LossRequirement(quadratic=True)

    def cost(self, problem: Problem, layout: Layout) -> Cost:
        return Cost(fixed=2 * 8 * (problem.columns + 1), per_block_row=8)

    def start(self, problem: Problem) -> AppraisalState:
        return AppraisalState(problem, problem.first_weights(), Evaluation(problem.columns + 1))

    def visit(self, state: AppraisalState, block: Block) -> None:
        state.evaluation.add(state.problem, state.problem.loss, block, state.point)

    def finish(self, state: AppraisalState) -> Certificate:
        found = state.evaluation.close(state.problem, state.point)
        return Certificate(found.primal, found.dual, final=True)

    def certify(self, state: AppraisalState) -> None:
        """Every pass is an exact evaluation."""

    def merge(self, states: list[AppraisalState]) -> AppraisalState:
        for other in states[1:]:
            states[0].evaluation.merge(other.evaluation)
        return states[0]

    def solution(self, state: AppraisalState) -> LinearSolution:
        return LinearSolution(state.point.copy(), state.problem.bias)
