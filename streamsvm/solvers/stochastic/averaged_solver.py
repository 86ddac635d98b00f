"""What the stochastic solvers have in common: no number per row, and a candidate and a bound made of means.

While one trains, ``AveragedCertificate`` holds what is certified of it: the candidate whose primal is evaluated and the dual
point its passes prove. What a step is, what is averaged and how copies of a state are merged is the solver's own.
"""

from __future__ import annotations

from typing import Any, ClassVar

from streamsvm.rows import Float64
from streamsvm.solvers.stochastic.averaged_certificate import AveragedCertificate
from streamsvm.types import LinearSolution, Problem, RowState, Solver


class AveragedState:
    """The state of such a solver; its fields are the solver's own, these two among them, in an order that files know."""

    __slots__ = ()

    problem: Problem
    """What is solved: loss, C, the number of rows and columns, the weights to start from."""
    averaged: AveragedCertificate
    """Candidate and dual bound, and what the candidate was found to be worth."""

    @property
    def lam(self) -> float:
        """1 / (C rows), the lambda of P / (C rows) = lambda/2 ||w||^2 + mean of s_i l(m_i)."""
        return 1.0 / (self.problem.C * self.problem.rows)


class AveragedSolver(Solver[Any]):
    """Members of ``types.Solver`` that are the same whatever the steps are."""

    __slots__ = ()

    row_state: ClassVar[tuple[RowState, ...]] = ()
    """Empty: what passes on is a few vectors of weights, and no number per row of the data."""
    shuffled: ClassVar[bool] = True
    """True: steps along the rows as they lie would follow their order, by class or by time."""
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
