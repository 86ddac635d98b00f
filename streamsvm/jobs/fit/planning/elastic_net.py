"""Fits with a multiple of ||w||_1 beside ||w||^2 / 2 (``--l1``): what goes with it, and by which solvers.

It is of columns: kernel features have none whose weights could mean something. What is solved: ``solvers.elastic_net``.
"""

from __future__ import annotations

from streamsvm.errors import UsageError
from streamsvm.jobs.embed import kernel_request
from streamsvm.jobs.fit.options import FitJob
from streamsvm.solvers import SOLVERS
from streamsvm.types import AnySolver


def check_l1(job: FitJob) -> None:
    """Raise UsageError where a fit with an l1 term asks for something that does not go with it."""
    if job.l1 is None:
        return
    if job.kernel != "linear" or kernel_request.wanted(job):
        raise UsageError("--kernel does not go with --l1, which is of columns", hint="leave one of them out")
    if job.l1_ball is not None:
        raise UsageError("--l1 does not go with --l1-ball, which has no other term", hint="leave one of them out")
    if job.dual:
        raise UsageError("--dual does not go with --l1: its bound is recomputed from the model", hint="leave it out")


def solver_with_l1() -> tuple[str, str]:
    """The solver's name and the reason for it."""
    return "newton", "elastic net: a proximal Newton's method, a reading an iteration"


def with_l1(solver: AnySolver, name: str) -> AnySolver:
    """Return the solver of the problem with the l1 term. Raises UsageError where there is none."""
    other_problem = solver.with_l1()
    if other_problem is not None:
        return other_problem
    able = ", ".join(other for other, kind in SOLVERS.items() if kind().with_l1() is not None)
    raise UsageError(f"solver '{name}' does not minimize with an l1 term", hint=f"solvers that do: {able}")
