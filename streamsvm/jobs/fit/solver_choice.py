"""Which solver makes a fit, with which settings; refused where it cannot do what is asked.

``--solver auto`` chooses by what a pass costs and what it gains:

- **Linear functions of the columns.** Second order with all rows in memory needs two or three readings, however many columns
  there are and whatever their scales (``solvers.newton.in_memory``): it is chosen wherever the rows fit the memory as they are
  stored. Where they do not, a sample of them does in 5 to 25 readings: one of a usual size up to some 1,500 columns
  (``solvers.newton.trust_region``), beyond that, for sparse rows, one as large as the memory has room for
  (``solvers.newton.sampled_steps``). Dual coordinate descent (``solvers.dcd``) needs tens of passes, more the larger C is, and does
  not converge on raw tables, but needs little memory: it is left for where not even vectors of weights fit, and for dense
  rows of very many columns.
- **Kernel features**: second order while its matrix is small beside the data, else dual coordinate descent.
- **Exact kernels**: decomposition. Only a gap on the simplex (``epsilon``), or a bias that is regularized because it may not be free, is for
  ``blended``. To a small relative gap decomposition is far quicker for the squared hinge too: its pairs leave the bias alone,
  those on the simplex do not.
- **Nu, all classes in one problem, l1**: the one or two solvers that can.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations

from streamsvm.aliases import ByName
from streamsvm.config.options import build
from streamsvm.config.units import mib
from streamsvm.errors import UsageError
from streamsvm.features.scaling import Raw, Standardized
from streamsvm.jobs.common_options import OVO
from streamsvm.jobs.embed.plan import NystromRequest, build_kernel, landmark_count, wants_landmarks
from streamsvm.jobs.fit.options import FitJob
from streamsvm.jobs.fit.problems import bias_value
from streamsvm.losses import LOSSES
from streamsvm.schedule import budget
from streamsvm.solvers import SOLVERS, check_solver
from streamsvm.solvers.interior_point_multinomial import WORK, MultinomialInteriorPoint, step_work
from streamsvm.solvers.newton.preconditioner import max_explicit_components
from streamsvm.solvers.newton.priority_sampling import min_useful_rows
from streamsvm.solvers.newton.solver import Newton
from streamsvm.solvers.problem_kinds import OneAgainstRest
from streamsvm.types import DUAL, AnySolver, Kernel, Layout, Loss, Problem, Store

SAMPLED_COLUMNS = 1500
"""Weights up to which a sample of a usual size leads second order to the optimum."""
MANY_LANDMARKS = 4000
"""From this number of landmarks on second order is chosen only where it fits the memory."""
SAMPLE_SHARE = 0.5
"""Share of the memory limit that second order may take with the smallest sample."""
WHOLE_SHARE = 0.8
"""Share of the memory limit that second order may take with all rows, or with a sample that fills it."""


def choose_solver(job: FitJob, layout: Layout, problem: Problem) -> tuple[str, str]:  # noqa: PLR0911 (a return a case)
    """Return the solver's name and the reason for it; ``problem`` is one of the fit's, in columns of the store."""
    if job.solver != "auto":
        return job.solver, "asked for"
    exact = wants_exact_kernel(job)
    if problem.kind.classes and not exact:
        return _choose_for_all_classes(job, layout, problem)
    chosen = problem.regularizer.automatic_solver(exact)
    if chosen is not None:
        return chosen
    if wants_landmarks(job):
        return _choose_for_kernel_features(job)
    if not exact:
        return choose_for_columns(job, layout)
    if job.loss == "squared_hinge" and ("epsilon" in job.options or bias_value(job) == 0.0):
        return "blended", "exact kernel, squared hinge on the simplex"
    return "decomposition", f"exact kernel, {job.loss}"


def wants_exact_kernel(job: FitJob) -> bool:
    """Return whether a job asks for a kernel and no landmarks."""
    return job.kernel != "linear" and not wants_landmarks(job)


def _choose_for_all_classes(job: FitJob, layout: Layout, problem: Problem) -> tuple[str, str]:
    """Choose second order where its steps are short and all rows fit the memory."""
    what, classes = "all classes in one problem", problem.kind.classes
    columns = landmark_count(job) if wants_landmarks(job) else layout.columns
    here = job.cluster is None and job.validation is None
    if here and problem.loss.quadratic() and step_work(layout.rows, columns, classes) <= WORK:
        costs = len(job.C) if isinstance(job.C, tuple) else 1
        cost = MultinomialInteriorPoint(classes).cost(replace(problem, columns=columns), layout)
        if costs * cost.fixed <= SAMPLE_SHARE * budget.memory_limit(job.memory):
            return "interior_point", f"{what}: second order, all rows fit the memory"
    return "dcd", f"{what}: dual coordinate descent"


def _choose_for_kernel_features(job: FitJob) -> tuple[str, str]:
    """Choose second order while its matrix is small beside the data."""
    most = max_explicit_components(dense=True)
    if landmark_count(job) <= most:
        return "newton", "kernel features: few passes, second order"
    return "dcd", f"kernel features, more than {most}: coordinate descent"


def choose_for_columns(job: FitJob, layout: Layout) -> tuple[str, str]:
    """Choose by what second order would hold of the rows."""
    columns, limit = layout.columns + 1, budget.memory_limit(job.memory)
    kind = "dense" if layout.dense else f"{sum(layout.nonzeros or ()) / layout.rows:.0f} entries a row"
    what = f"{layout.rows} rows, {columns} weights, {kind}"
    all_rows = _second_order_bytes(job, layout, sample=False)
    if all_rows <= WHOLE_SHARE * limit:
        return "newton", f"{what}: second order, all rows fit the memory"
    if columns > SAMPLED_COLUMNS and layout.dense:
        return "dcd", f"{what}: all rows in memory would take {mib(all_rows)} of {mib(limit)}: dual coordinate descent"
    sampled = _second_order_bytes(job, layout, sample=True)
    if sampled > (WHOLE_SHARE if columns > SAMPLED_COLUMNS else SAMPLE_SHARE) * limit:
        return "dcd", f"second order would take {mib(sampled)} of {mib(limit)}: dual coordinate descent"
    if columns > SAMPLED_COLUMNS:
        return "newton", f"{what}: second order on a sample as large as the memory has room for"
    return "newton", f"{what}: second order on a sample, in few passes"


def is_short_of_rows(layout: Layout, settings: dict[str, int | None]) -> bool:
    """Return whether second order got a sample where it needs all rows; ``settings`` are those that memory decided."""
    return layout.dense and layout.columns >= SAMPLED_COLUMNS and settings.get("sample") is not None


def _second_order_bytes(job: FitJob, layout: Layout, *, sample: bool) -> int:
    """Return the bytes second order holds for all problems: with the smallest useful sample, or with all rows."""
    problems = 1 if len(layout.classes) in (0, 2) or job.positive is not None else len(layout.classes)
    problems *= len(job.C) if isinstance(job.C, tuple) else 1
    nonzeros = None if layout.nonzeros is None else sum(layout.nonzeros)
    problem = Problem(LOSSES["squared_hinge"](), 1.0, layout.rows, layout.columns, OneAgainstRest(0), nonzeros=nonzeros)
    if job.multi_class == OVO and problems > 1:
        return problems * _pair_bytes(problem, layout, sample=sample)
    solver = Newton(min_useful_rows(problem)) if sample else Newton()
    cost = solver.cost(problem, layout)
    return problems * cost.fixed + cost.shared


def _pair_bytes(problem: Problem, layout: Layout, *, sample: bool) -> int:
    """Return the bytes of all one-vs-one problems, divided by the number of classes."""
    classes, found = len(layout.classes), 0
    for first, second in combinations(layout.counts, 2):
        rows = max(1, first + second)
        nonzeros = None if problem.nonzeros is None else -(-problem.nonzeros * rows // layout.rows)
        pair = replace(problem, rows=rows, nonzeros=nonzeros)
        cost = (Newton(min_useful_rows(pair)) if sample else Newton()).cost(pair, layout)
        found += cost.fixed + cost.shared
    return -(-found // classes)


def build_solver(job: FitJob, name: str, problem: Problem) -> AnySolver:
    """Return the solver with its settings, in the form the problem needs. Raises UsageError where it has none."""
    solver = check_solver(build(SOLVERS[name], solver_settings(job), f"solver '{name}'"), name)
    for part, instead in ((problem.kind, ""), (problem.regularizer, problem.regularizer.instead)):
        adapted = part.adapt(solver)
        if adapted is None:
            able = ", ".join(other for other, made in SOLVERS.items() if part.adapt(made()) is not None)
            raise UsageError(f"solver '{name}' {part.refusal}", hint=f"{instead}solvers that do: {able}")
        solver = adapted
    _check_loss(solver, name, job, problem.loss)
    return _keep_dual_variables(solver, name) if job.dual else solver


def solver_settings(job: FitJob) -> ByName:
    """Return the settings of the solver, those that have an option of their own among them."""
    return job.options if job.max_support is None else {**job.options, "max_support": job.max_support}


def _check_loss(solver: AnySolver, name: str, job: FitJob, loss: Loss) -> None:
    """Raise UsageError when the solver cannot solve for this loss."""
    refusal = solver.losses.refusal(loss)
    if refusal is not None:
        able = [other for other, kind in SOLVERS.items() if kind().losses.refusal(loss) is None]
        hint = f"solvers that do: {', '.join(able) or 'none'}"
        raise UsageError(f"solver '{name}' does not solve for the loss '{job.loss}': it {refusal}", hint=hint)


def _keep_dual_variables(solver: AnySolver, name: str) -> AnySolver:
    """Return the solver, set to keep the dual variables that prove its bound. Raises UsageError where it has none."""
    if any(state.name == DUAL for state in solver.row_state):
        return solver
    if solver.has_dual_witness:
        return solver.keep_dual_point()
    hint = "--dual goes with --solver dcd, newton or interior_point"
    raise UsageError(f"solver '{name}' has no dual variables to write", hint=hint)


def check_warm_start(solver: AnySolver, name: str, request: NystromRequest | None) -> None:
    """Raise UsageError where the solver, or the fit, cannot start from the weights of a model."""
    if request is not None:  # its weights are of landmarks that this fit has yet to choose
        raise UsageError("a fit of kernel features does not start from a model", hint="leave out --warm-start")
    if not solver.warm_start:
        able = [other for other, kind in SOLVERS.items() if kind().warm_start]
        hint = f"leave out --warm-start; solvers that start from a linear model: {', '.join(able)}"
        raise UsageError(f"solver '{name}' does not start from a model", hint=hint)


def make_exact_kernel(job: FitJob, solver: AnySolver, store: Store, inner: Raw | Standardized) -> Kernel | None:
    """Return the kernel that a solver evaluates on the rows; None for other solvers.

    Raises UsageError when job and solver do not go together.
    """
    if not solver.exact_kernel:
        if wants_exact_kernel(job):
            able = [name for name, kind in SOLVERS.items() if kind().exact_kernel]
            hint = f"give --landmarks, or choose from {', '.join(able)}"
            raise UsageError(f"solver '{job.solver}' knows no kernel of its own", hint=hint)
        return None
    if wants_landmarks(job):
        raise UsageError(f"solver '{job.solver}' evaluates the kernel exactly", hint="leave out the landmarks")
    if solver.free_bias and bias_value(job) == 0.0:
        hint = "leave out the bias, or use the squared hinge"
        raise UsageError("this fit has a free bias, and cannot do without one", hint=hint)
    return build_kernel(job.kernel, job.kernel_options, str(job.gamma), store, inner)
