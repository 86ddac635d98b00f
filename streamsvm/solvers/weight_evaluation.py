"""The value of given weights over all rows: one pass, nothing is trained. For models chosen by something else than P."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from streamsvm.compute.blocks import operators
from streamsvm.compute.passes.multinomial import multinomial_loss_sum
from streamsvm.rows import Float64
from streamsvm.solvers.point_evaluation import PointSums
from streamsvm.tags import saved_as
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


@saved_as("evaluation.state")
@dataclass(slots=True)
class WeightEvaluationState:
    """``point`` (columns + 1,) is what the problem starts from."""

    problem: Problem
    """What the weights are worth is asked for this loss and C."""
    point: Float64
    """The weights, which never change; 0 where the problem has none to start from."""
    evaluation: PointSums
    """The sums of the pass: losses, dual terms, gradient."""


@dataclass(frozen=True, slots=True)
class WeightEvaluation(Solver[WeightEvaluationState]):
    """Evaluates ``Problem.warm``; the dual is that of the loss's slopes there."""

    row_state: ClassVar[tuple[RowState, ...]] = ()
    """Empty: one pass has nothing to carry on."""
    shuffled: ClassVar[bool] = False
    """False: no step is taken while rows are read, so that their order does not matter."""
    losses: ClassVar[LossRequirement] = LossRequirement()
    """Any: a dual value follows from sums over the rows."""
    warm_start: ClassVar[bool] = True

    def cost(self, problem: Problem, layout: Layout) -> Cost:
        """Bytes of two vectors of weights, and of a decision value a row of a block."""
        return Cost(fixed=2 * 8 * problem.components, per_block_row=8 * max(1, problem.classes))

    def start(self, problem: Problem) -> WeightEvaluationState:
        """Begin at the weights the problem starts from."""
        return WeightEvaluationState(problem, problem.first_weights(), PointSums(problem.components))

    def visit(self, state: WeightEvaluationState, block: Block) -> None:
        """Add the block to both sums."""
        problem = state.problem
        if problem.classes:  # P alone: slopes would be a poor dual point where the solver has a better one
            values = operators.margins(block.X, problem.shaped(state.point).T)
            losses = multinomial_loss_sum(values, block.y, block.s, problem.C, problem.loss)
            state.evaluation.sums = state.evaluation.sums.plus((losses, losses, 0.0, 0.0))
        else:
            state.evaluation.add(problem, problem.loss, block, state.point)

    def finish(self, state: WeightEvaluationState) -> Certificate:
        """Return both bounds; there is nothing else to do, so the certificate is final."""
        found = state.evaluation.close(state.problem, state.point)
        return Certificate(found.primal, found.dual, final=True)

    def certify(self, state: WeightEvaluationState) -> None:
        """Every pass is an exact evaluation."""

    def part(self, state: WeightEvaluationState) -> WeightEvaluationState:
        """The weights, with sums of nothing."""
        return replace(state, evaluation=PointSums(len(state.point)))

    def merge(self, states: list[WeightEvaluationState]) -> WeightEvaluationState:
        """Add up what each worker summed."""
        for other in states[1:]:
            states[0].evaluation.merge(other.evaluation)
        return states[0]

    def solution(self, state: WeightEvaluationState) -> LinearSolution:
        """The weights it was given."""
        return LinearSolution(state.problem.shaped(state.point).copy(), state.problem.bias)
