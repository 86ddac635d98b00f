"""Certificates: how far a solution is from the optimum, proved by a feasible dual point."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from streamsvm.aliases import JsonObject
from streamsvm.class_tags import saved_as
from streamsvm.errors import DefectError, UsageError

if TYPE_CHECKING:
    from streamsvm.types.problem import Problem

CONTRADICTION = 1e-6
"""A relative gap below minus this, with rounding counted, is an error."""


@saved_as("certificate")
@dataclass(frozen=True, slots=True)
class Certificate:
    """How far a solution can be from the optimum: dual <= optimum <= primal."""

    primal: float
    """P of the solution, an upper bound of the optimum."""
    dual: float
    """D of a feasible dual point, a lower bound of the optimum."""
    exact: bool = True
    """False: the primal was summed while w was moving, an estimate that must not end a run."""
    final: bool = False
    """The solver has met a criterion of its own: the run ends, whatever the gap."""
    facts: JsonObject = field(default_factory=dict)
    """Further facts of the pass, as plain JSON, for the events of the run."""
    rounding: float = 0.0
    """How far rounding can have moved primal and dual: dual - rounding <= optimum <= primal + rounding."""

    @property
    def gap(self) -> float:
        """The relative gap of what is certain, (P - D) / |P| with rounding counted against both; 0 when all are 0."""
        primal, dual = self.primal + self.rounding, self.dual - self.rounding
        return (primal - dual) / abs(primal) if primal else abs(dual)

    def ends(self, problem: Problem) -> bool:
        """Whether it is the last one of its problem: exact, and small enough or final."""
        return self.exact and (self.gap <= problem.tolerance or self.final)

    def verify(self, problem: Problem) -> None:
        """Refuse an exact certificate that contradicts itself: a lower bound above the upper one by more than rounding.

        Raises UsageError where the kernel is to blame, which is no Mercer kernel, else DefectError.
        """
        if not self.exact or not self.gap < -CONTRADICTION:
            return
        message = f"the certificate contradicts itself: primal {self.primal:.9g}, dual {self.dual:.9g}"
        if problem.kernel is not None and not problem.kernel.positive_semidefinite():
            raise UsageError(
                f"{message}, because the kernel {problem.kernel} is not positive semidefinite on these rows",
                hint="choose another kernel (rbf, laplacian), or a coef0 of 0 or more for the polynomial one",
            )
        raise DefectError(
            f"{message}, for {problem.loss} with C = {problem.C:g}; no result was written",
            hint="this is a defect of streamsvm: please report it with this line",
        )
