"""The solver of a fit: the one asked for or, with auto, by what a pass costs and by what it is worth.

auto for linear functions, of columns or of kernel features (for kernels see ``kernel_machine``):
Second order with all rows in memory needs two or three readings, however many columns there are and whatever their
scales (``solvers.newton.in_memory``): it is chosen wherever the rows fit the memory as they are stored. Where they do not, a
sample of them does in 5 to 25 readings: one of a usual size up to some 1,500 columns (``solvers.newton.model``), beyond, of
sparse rows, one as large as the memory has room for (``solvers.newton.out_of_core``). Coordinate descent
(``solvers.dcd``) needs tens of passes, more the larger C, and does not end on raw tables, but it needs little
memory: it is left for where not even vectors of weights fit, and for dense rows of very many columns.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations

from streamsvm.config.checks import build
from streamsvm.config.units import mib
from streamsvm.jobs.embed import kernel_request
from streamsvm.jobs.embed.kernel_request import landmark_count
from streamsvm.jobs.fit.options import FitJob
from streamsvm.jobs.fit.planning import kernel_machine
from streamsvm.jobs.fit.planning.elastic_net import solver_with_l1
from streamsvm.jobs.fit.planning.l1_ball import solver_of_ball
from streamsvm.jobs.fit.planning.one_class import share_of
from streamsvm.jobs.options import CRAMMER_SINGER, OVO
from streamsvm.losses import LOSSES
from streamsvm.schedule import budget
from streamsvm.solvers.interior_point_multinomial import WORK, MultinomialInteriorPoint, step_work
from streamsvm.solvers.newton.linear_algebra import most_explicit
from streamsvm.solvers.newton.sample import least_rows
from streamsvm.solvers.newton.solver import Newton
from streamsvm.types import Layout, Problem

SAMPLED_COLUMNS = 1500
"""Weights up to which a sample of a usual size leads second order to the optimum."""
MANY = 4000
"""Landmarks from which on second order is chosen only where it fits the memory."""
SAMPLE_SHARE, WHOLE_SHARE = 0.5, 0.8
"""Of the memory limit that second order may take with the smallest sample, and with all rows or a sample that fills it."""


def choose_solver(job: FitJob, layout: Layout) -> tuple[str, str]:
    """The solver's name and the reason for it."""
    if job.solver != "auto":
        return job.solver, "asked for"
    exact = kernel_machine.chosen(job)
    if job.multi_class == CRAMMER_SINGER and (not exact or kernel_request.wanted(job)):
        return _solver_of_all_classes(job, layout)
    if kernel_request.wanted(job) and share_of(job) is None:
        return features_solver(job)
    if exact:
        return kernel_machine.solver_for(job)
    if share_of(job) is not None:
        return "interior_point", "one class with a free offset" if job.one_class else "two classes, C by nu"
    return _columns_solver(job, layout)


def _solver_of_all_classes(job: FitJob, layout: Layout) -> tuple[str, str]:
    """The same for all classes in one problem: second order where its steps are short and all rows fit the memory."""
    what, quadratic = "all classes in one problem", build(LOSSES[job.loss], job.loss_options, "loss").quadratic()
    columns, classes = landmark_count(job) if kernel_request.wanted(job) else layout.columns, len(layout.classes)
    here = job.cluster is None and job.validation is None
    if here and quadratic and step_work(layout.rows, columns, classes) <= WORK:
        problem = Problem(LOSSES["hinge"](), 1.0, layout.rows, columns, 0, classes=classes)
        costs = len(job.C) if isinstance(job.C, tuple) else 1
        cost = MultinomialInteriorPoint(classes).cost(problem, layout)
        if costs * cost.fixed <= SAMPLE_SHARE * budget.memory_limit(job.memory):
            return "interior_point", f"{what}: second order, all rows fit the memory"
    return "dcd", f"{what}: dual coordinate descent"


def _columns_solver(job: FitJob, layout: Layout) -> tuple[str, str]:
    """The same for weights of columns."""
    if job.l1 is not None:
        return solver_with_l1()
    return solver_of_ball() if job.l1_ball is not None else linear_solver(job, layout)


def linear_solver(job: FitJob, layout: Layout) -> tuple[str, str]:
    """The solver's name and the reason for it."""
    columns, limit = layout.columns + 1, budget.memory_limit(job.memory)
    kind = "dense" if layout.dense else f"{sum(layout.nonzeros or ()) / layout.rows:.0f} entries a row"
    what = f"{layout.rows} rows, {columns} weights, {kind}"
    if _needed(job, layout, sample=False) <= WHOLE_SHARE * limit:
        return "newton", f"{what}: second order, all rows fit the memory"
    needed, all_rows = (_needed(job, layout, sample=sample) for sample in (True, False))
    if columns > SAMPLED_COLUMNS and layout.dense:
        return "dcd", f"{what}: all rows in memory would take {mib(all_rows)} of {mib(limit)}: dual coordinate descent"
    if needed > (WHOLE_SHARE if columns > SAMPLED_COLUMNS else SAMPLE_SHARE) * limit:
        return "dcd", f"second order would take {mib(needed)} of {mib(limit)}: dual coordinate descent"
    if columns > SAMPLED_COLUMNS:
        return "newton", f"{what}: second order on a sample as large as the memory has room for"
    return "newton", f"{what}: second order on a sample, in few passes"


def features_solver(job: FitJob) -> tuple[str, str]:
    """The same for kernel features: second order while its matrix is small beside the data."""
    most = most_explicit(dense=True)
    if landmark_count(job) <= most:
        return "newton", "kernel features: few passes, second order"
    return "dcd", f"kernel features, more than {most}: coordinate descent"


def short_of_rows(layout: Layout, settings: dict[str, int | None]) -> bool:
    """Whether second order was left with a sample where it needs all rows; ``settings`` are those memory decided."""
    return layout.dense and layout.columns >= SAMPLED_COLUMNS and settings.get("sample") is not None


def _needed(job: FitJob, layout: Layout, *, sample: bool) -> int:
    """Bytes of the second-order solver, all problems together: with the smallest sample that is of use, or with all rows."""
    problems = 1 if len(layout.classes) in (0, 2) or job.positive is not None else len(layout.classes)
    problems *= len(job.C) if isinstance(job.C, tuple) else 1
    nonzeros = None if layout.nonzeros is None else sum(layout.nonzeros)
    problem = Problem(LOSSES["squared_hinge"](), 1.0, layout.rows, layout.columns, 0, nonzeros=nonzeros)
    if job.multi_class == OVO and problems > 1:
        return problems * _of_pair(problem, layout, sample=sample)
    solver = Newton(least_rows(problem)) if sample else Newton()
    cost = solver.cost(problem, layout)
    return problems * cost.fixed + cost.shared


def _of_pair(problem: Problem, layout: Layout, *, sample: bool) -> int:
    """Bytes of all pairs of classes, on average for each class."""
    classes, found = len(layout.classes), 0
    for first, second in combinations(layout.counts, 2):
        rows = max(1, first + second)
        nonzeros = None if problem.nonzeros is None else -(-problem.nonzeros * rows // layout.rows)
        pair = replace(problem, rows=rows, nonzeros=nonzeros)
        cost = (Newton(least_rows(pair)) if sample else Newton()).cost(pair, layout)
        found += cost.fixed + cost.shared
    return -(-found // classes)
