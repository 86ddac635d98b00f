"""auto for linear functions, of columns or of kernel features: the solver, by what a pass costs and by what it is worth.

Second order needs passes by the handful whatever C is (``solvers.newton.solver``), and a matrix of columns by columns for every
step. Coordinate descent (``solvers.dcd.solver``) needs tens of passes on dense data, more the larger C, but nothing that grows
with the columns: where these are many and rows are nearly orthogonal, a pass of it is worth as much, and cheaper.
"""

from __future__ import annotations

from streamsvm.config.units import mib
from streamsvm.jobs.embed.kernel_request import landmark_count
from streamsvm.jobs.fit.options import FitJob
from streamsvm.losses import LOSSES
from streamsvm.schedule import budget
from streamsvm.solvers.newton.hessian import most_explicit
from streamsvm.solvers.newton.row_sample import least_rows
from streamsvm.solvers.newton.solver import Newton
from streamsvm.types import Layout, Problem

MOST = 1500
"""Columns up to which a step of second order is a factorization."""
MANY = 4000
"""Landmarks from which on second order is chosen only where it fits the memory."""
SHARE = 0.5
"""Of the memory limit that the second-order solver may take before the other one is chosen."""


def linear_solver(job: FitJob, layout: Layout) -> tuple[str, str]:
    """The solver's name and the reason for it."""
    columns = layout.columns + 1
    if columns > MOST:
        return "dcd", f"{columns} weights are too many for second order: dual coordinate descent"
    needed, limit = _needed(job, layout), budget.memory_limit(job.memory)
    if needed > SHARE * limit:
        return "dcd", f"second order would take {mib(needed)} of {mib(limit)}: dual coordinate descent"
    kind = "dense" if layout.dense else f"{sum(layout.nonzeros or ()) / max(1, layout.rows):.0f} entries a row"
    return "newton", f"{layout.rows} rows, {columns} weights, {kind}: second order, in few passes"


def features_solver(job: FitJob) -> tuple[str, str]:
    """The same for kernel features: second order while its matrix is small beside the data."""
    most = most_explicit(dense=True)
    if landmark_count(job) <= most:
        return "newton", "kernel features: few passes, second order"
    return "dcd", f"kernel features, more than {most}: coordinate descent"


def _needed(job: FitJob, layout: Layout) -> int:
    """Bytes of the second-order solver with the smallest sample that is of use, all problems together."""
    problems = 1 if len(layout.classes) == 2 or job.positive is not None else len(layout.classes)
    problems *= len(job.C) if isinstance(job.C, tuple) else 1
    problem = Problem(LOSSES["squared_hinge"](), 1.0, layout.rows, layout.columns, 0)
    return problems * Newton(least_rows(problem)).cost(problem, layout).fixed
