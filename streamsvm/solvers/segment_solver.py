"""What the solvers have in common that look along a segment in every pass: interior point and cutting planes.

A pass sums up along ``point + t direction`` (``segment_sums``), and is closed at the best point that was looked at. What leads to the
next direction is the solver's own; of what it keeps in memory for that, want of memory halves one number.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

from streamsvm.config.fields import field_values
from streamsvm.rows import Float64
from streamsvm.types import LinearSolution, LossRequirement, Problem, RowState, Solver


class SegmentState:
    """The state of such a solver; its fields are the solver's own, these two among them, in an order that files know."""

    __slots__ = ()

    problem: Problem
    """What is solved: loss, C, the number of rows and columns, the weights to start from."""
    point: Float64
    """(columns + 1,) the best point of the readings so far, which is the solution."""


@dataclass(frozen=True, slots=True)
class SegmentSolver(Solver[Any]):
    """Members of ``types.Solver`` that are the same wherever the next direction comes from."""

    halved: ClassVar[str]
    """The setting that want of memory halves; None: as many as are usual (``held``)."""
    row_state: ClassVar[tuple[RowState, ...]] = ()
    """Empty: all that passes on is a function of the point and of what was summed up over rows."""
    shuffled: ClassVar[bool] = False
    """False: no step is taken while rows are read, so that their order does not matter."""
    losses: ClassVar[LossRequirement] = LossRequirement()
    """Any: a bound follows from sums over the rows."""
    has_candidates: ClassVar[bool] = True
    warm_start: ClassVar[bool] = True

    def held(self, problem: Problem) -> int:
        """Return how many there are in memory."""
        raise NotImplementedError

    def least(self, problem: Problem) -> int:
        """Return how few are of use."""
        raise NotImplementedError

    def smaller(self, problem: Problem, asked: Collection[str]) -> Self | None:
        """With half as many in memory; None at the least that is of use, or where a number was ``asked`` for."""
        half = self.held(problem) // 2
        changed: dict[str, Any] = {self.halved: half}
        return None if self.halved in asked or half < self.least(problem) else replace(self, **changed)

    def memory_settings(self) -> dict[str, int | None]:
        """How many there are in memory; None: as many as are usual."""
        return field_values(self, (self.halved,))

    def certify(self, state: SegmentState) -> None:
        """Every pass is an exact evaluation."""

    def candidate(self, state: SegmentState) -> Float64:
        """The best point of the readings."""
        return state.point.copy()

    def solution(self, state: SegmentState) -> LinearSolution:
        """The best point of the readings."""
        return LinearSolution(state.point.copy(), state.problem.bias)
