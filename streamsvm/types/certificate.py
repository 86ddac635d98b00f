"""Certificates: bounds of the optimum of a problem, and the check that they do not contradict each other."""

from __future__ import annotations

from dataclasses import dataclass, field

from streamsvm.class_tags import saved_as
from streamsvm.errors import DefectError, UsageError
from streamsvm.type_aliases import JsonObject
from streamsvm.types.problem import Problem

MAX_NEGATIVE_GAP = 1e-6
"""A relative gap below minus this number, after rounding is accounted for, is an error."""


@saved_as("certificate")
@dataclass(frozen=True, slots=True)
class Certificate:
    """Bounds of the optimum of a problem: dual <= optimum <= primal. The lower bound is proved by a feasible dual
    point.
    """

    primal: float
    """P of the solution, an upper bound of the optimum."""
    dual: float
    """D of a feasible dual point, a lower bound of the optimum."""
    exact: bool = True
    """False: ``primal`` is an estimate, summed while the weights were changing, which must not end the training."""
    final: bool = False
    """Whether the solver has met a criterion of its own, which ends the problem whatever the gap."""
    facts: JsonObject = field(default_factory=dict)
    """Further facts of the pass for its events, as plain JSON."""
    rounding: float = 0.0
    """Bound of the rounding error of ``primal`` and ``dual``: dual - rounding <= optimum <= primal + rounding."""

    @property
    def gap(self) -> float:
        """The relative duality gap (P - D) / |P|, where P is ``primal + rounding`` and D is ``dual - rounding``; |D| if
        P is 0.
        """
        primal, dual = self.primal + self.rounding, self.dual - self.rounding
        return (primal - dual) / abs(primal) if primal else abs(dual)

    def ends(self, problem: Problem) -> bool:
        """Return whether the problem is done: the certificate is exact, and its gap is within the tolerance or it is
        final.
        """
        return self.exact and (self.gap <= problem.tolerance or self.final)

    def verify(self, problem: Problem) -> None:
        """Check that an exact certificate does not contradict itself: ``dual`` must not exceed ``primal`` by more than
        rounding.

        Raises UsageError if the cause is a kernel that is not positive semidefinite, else DefectError.
        """
        if not self.exact or not self.gap < -MAX_NEGATIVE_GAP:
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
