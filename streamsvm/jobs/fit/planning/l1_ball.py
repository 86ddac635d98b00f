"""Fits of least squares over the weights with ||w||_1 <= t (``--l1-ball``): what goes with it, and by which solvers.

It is of columns: kernel features have none whose weights could mean something. What is solved: ``solvers.l1_ball``.
"""

from __future__ import annotations

from streamsvm.errors import UsageError
from streamsvm.jobs.embed import kernel_request
from streamsvm.jobs.fit.options import FitJob
from streamsvm.solvers import SOLVERS
from streamsvm.types import AnySolver, Loss
from streamsvm.types.problem import has_box


def check_ball(job: FitJob, loss: Loss) -> None:
    """Raise UsageError where a fit over the ball asks for something that does not go with it."""
    if job.l1_ball is None:
        return
    if job.kernel != "linear" or kernel_request.wanted(job):
        raise UsageError("--kernel does not go with --l1-ball, which is of columns", hint="leave one of them out")
    if not least_squares(loss):
        hint = "--loss squared, on a store of numbers (ingest --task regression)"
        raise UsageError(f"--l1-ball is for least squares, and the loss is '{job.loss}'", hint=hint)


def least_squares(loss: Loss) -> bool:
    """Whether the loss is a multiple of the squared residual: as steep at 0 as anywhere."""
    parabola = loss.numeric() and loss.quadratic() and not has_box(loss)
    return parabola and loss.second_derivative(0.0) * loss.curvature(1.0) == 1.0


def solver_of_ball() -> tuple[str, str]:
    """The solver's name and the reason for it."""
    return "partan", "least squares over the l1 ball: Frank-Wolfe with parallel tangents"


def in_ball(solver: AnySolver, name: str) -> AnySolver:
    """Return the solver of the problem over the ball. Raises UsageError where there is none."""
    other_problem = solver.in_l1_ball()
    if other_problem is not None:
        return other_problem
    able = ", ".join(other for other, kind in SOLVERS.items() if kind().in_l1_ball() is not None)
    raise UsageError(f"solver '{name}' does not minimize over an l1 ball", hint=f"solvers that do: {able}")
