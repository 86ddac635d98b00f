"""Choose the solver of a fit and its settings, and refuse solvers that cannot solve the problem.

``--solver auto`` weighs the cost of a pass against the number of passes. "Second order" is Newton's method:

- **Linear functions of the columns.** With all rows in memory, second order needs two or three passes, whatever the
  number of columns and their scales (``solvers.newton.in_memory``); it is chosen if the rows fit the memory as stored.
  Otherwise it works with a sample of the rows, in 5 to 25 passes: a sample of the usual size up to some 1,500 columns
  (``solvers.newton.trust_region``); for sparse rows of more columns, a sample that fills the memory
  (``solvers.newton.sampled_steps``). Dual coordinate descent (``solvers.dcd``) needs tens of passes, more for larger C,
  and does not converge on unscaled tables, but it needs little memory. It is chosen for dense rows of very many columns,
  and if the memory has no room for second order on a sample.
- **Many classes** (MANY_CLASSES), each against the rest, if the rows are dense and the loss is smooth: L-BFGS. Its passes
  are products with the weights of all classes, and its memory grows with classes times columns only (``solvers.lbfgs``).
- **Curves** (``--curves``: a piecewise-linear function of each column): second order.
- **Kernel features**: second order if its matrix is small compared with the data, else dual coordinate descent.
- **Exact kernels**: decomposition. ``blended``, which solves the squared hinge on a simplex, is chosen only if its own
  tolerance (``epsilon``) is given, or without a free bias. Decomposition reaches a small relative gap far faster with the
  squared hinge, too: a step that changes two rows leaves the bias unchanged, a step on the simplex does not.
- **Nu, all classes in one problem, l1**: the one or two solvers that can solve these problems.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations

from streamsvm.config.options import build_from_settings
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
from streamsvm.solvers.softmax import Softmax
from streamsvm.type_aliases import ValuesByName
from streamsvm.types import DUAL, AnySolver, Kernel, Layout, Loss, Problem, Store

SAMPLED_COLUMNS = 1500
"""Largest number of weights for which second order converges to the optimum with a sample of the usual size."""
MANY_LANDMARKS = 4000
"""With more landmarks, second order is chosen only if it fits the memory."""
MANY_CLASSES = 30
"""Number of classes from which on L-BFGS is chosen: second order keeps a matrix of the weights for each class."""
SAMPLE_SHARE = 0.5
"""Fraction of the memory limit that second order may use with the smallest sample."""
WHOLE_SHARE = 0.8
"""Fraction of the memory limit that second order may use with all rows, or with a sample that fills the memory."""


def choose_solver(job: FitJob, layout: Layout, problem: Problem) -> tuple[str, str]:  # noqa: PLR0911 (one return per case)
    """Return the name of the solver and the reason for it. ``problem``: any problem of the fit; its columns are those of the
    store.
    """
    if job.solver != "auto":
        return job.solver, "asked for"
    if job.curves:
        return "newton", "curves: few passes, second order"
    has_exact_kernel = wants_exact_kernel(job)
    if problem.kind.classes and not has_exact_kernel:
        return _choose_for_all_classes(job, layout, problem)
    required = problem.regularizer.automatic_solver(has_exact_kernel)
    if required is not None:
        return required
    if wants_landmarks(job):
        return _choose_for_kernel_features(job)
    if not has_exact_kernel:
        return _choose_for_many_classes(job, layout, problem) or choose_for_columns(job, layout)
    if job.loss == "squared_hinge" and ("epsilon" in job.options or bias_value(job) == 0.0):
        return "blended", "exact kernel, squared hinge on the simplex"
    return "decomposition", f"exact kernel, {job.loss}"


def wants_exact_kernel(job: FitJob) -> bool:
    """Return whether a job asks for a kernel without landmarks."""
    return job.kernel != "linear" and not wants_landmarks(job)


def _choose_for_all_classes(job: FitJob, layout: Layout, problem: Problem) -> tuple[str, str]:
    """Choose the solver of Crammer-Singer problems: second order if its steps are cheap and all rows fit the memory."""
    what, classes = "all classes in one problem", problem.kind.classes
    if isinstance(problem.kind, Softmax):
        return "lbfgs", f"{what}: softmax"
    columns = landmark_count(job) if wants_landmarks(job) else layout.columns
    may_use_interior_point = job.cluster is None and job.validation is None and problem.loss.quadratic()
    if may_use_interior_point and step_work(layout.rows, columns, classes) <= WORK:
        values_of_c = len(job.C) if isinstance(job.C, tuple) else 1
        memory = MultinomialInteriorPoint(classes).cost(replace(problem, columns=columns), layout)
        if values_of_c * memory.fixed <= SAMPLE_SHARE * budget.memory_limit(job.memory):
            return "interior_point", f"{what}: second order, all rows fit the memory"
    return "dcd", f"{what}: dual coordinate descent"


def _choose_for_kernel_features(job: FitJob) -> tuple[str, str]:
    """Choose second order if its matrix is small compared with the data, else dual coordinate descent."""
    max_landmarks = max_explicit_components(dense=True)
    if landmark_count(job) <= max_landmarks:
        return "newton", "kernel features: few passes, second order"
    return "dcd", f"kernel features, more than {max_landmarks}: coordinate descent"


def choose_for_columns(job: FitJob, layout: Layout) -> tuple[str, str]:
    """Choose the solver of a linear fit of stored columns, by the memory that second order would need."""
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


def _choose_for_many_classes(job: FitJob, layout: Layout, problem: Problem) -> tuple[str, str] | None:
    """Choose L-BFGS for many classes, each against the rest; None if there are few, or if the loss or the rows do not suit it."""
    classes, columns = len(layout.classes), layout.columns + 1
    one_problem = job.positive is not None or problem.kind.one_class or problem.kind.selects_rows
    if one_problem or classes < MANY_CLASSES or not layout.dense or not problem.loss.smooth():
        return None
    return (
        "lbfgs",
        f"{layout.rows} rows, {columns} weights for each of {classes} classes: one matrix product per block for all of them",
    )


def is_short_of_rows(layout: Layout, settings: dict[str, int | None]) -> bool:
    """Return whether memory forces second order to use a sample on data where it needs all rows: dense with many columns.

    ``settings``: the solver's settings after it was fitted to the memory limit.
    """
    sample = settings.get("sample")
    return layout.dense and layout.columns >= SAMPLED_COLUMNS and sample is not None and sample < layout.rows


def _second_order_bytes(job: FitJob, layout: Layout, *, sample: bool) -> int:
    """Return the bytes that second order needs for all problems, with the smallest useful sample or with all rows."""
    problems = 1 if len(layout.classes) in (0, 2) or job.positive is not None else len(layout.classes)
    problems *= len(job.C) if isinstance(job.C, tuple) else 1
    nonzeros = None if layout.nonzeros is None else sum(layout.nonzeros)
    problem = Problem(LOSSES["squared_hinge"](), 1.0, layout.rows, layout.columns, OneAgainstRest(0), nonzeros=nonzeros)
    if job.multi_class == OVO and problems > 1:
        return problems * _pair_bytes(problem, layout, sample=sample)
    solver = Newton().adapt_to_data(layout.rows, [problem] * problems, job.options)
    solver = Newton(min_useful_rows(problem)) if sample else solver
    cost = solver.cost(problem, layout)
    return problems * cost.fixed + cost.shared


def _pair_bytes(problem: Problem, layout: Layout, *, sample: bool) -> int:
    """Return the bytes of all one-vs-one problems, divided by the number of classes."""
    classes, nbytes = len(layout.classes), 0
    for first, second in combinations(layout.counts, 2):
        rows = max(1, first + second)
        nonzeros = None if problem.nonzeros is None else -(-problem.nonzeros * rows // layout.rows)
        pair = replace(problem, rows=rows, nonzeros=nonzeros)
        cost = (Newton(min_useful_rows(pair)) if sample else Newton()).cost(pair, layout)
        nbytes += cost.fixed + cost.shared
    return -(-nbytes // classes)


def build_solver(job: FitJob, name: str, problem: Problem) -> AnySolver:
    """Return the solver with its settings, adapted to the problem. Raises UsageError if it cannot solve the problem."""
    solver = check_solver(build_from_settings(SOLVERS[name], solver_settings(job), f"solver '{name}'"), name)
    for part, hint_prefix in ((problem.kind, ""), (problem.regularizer, problem.regularizer.instead)):
        adapted = part.adapt(solver)
        if adapted is None:
            able = ", ".join(other for other, kind in SOLVERS.items() if part.adapt(kind()) is not None)
            raise UsageError(f"solver '{name}' {part.refusal}", hint=f"{hint_prefix}solvers that do: {able}")
        solver = adapted
    _check_loss(solver, name, job, problem.loss)
    return _keep_dual_variables(solver, name) if job.dual else solver


def solver_settings(job: FitJob) -> ValuesByName:
    """Return the settings of the solver, including those with an option of their own (--max-support)."""
    return job.options if job.max_support is None else {**job.options, "max_support": job.max_support}


def _check_loss(solver: AnySolver, name: str, job: FitJob, loss: Loss) -> None:
    """Raise UsageError if the solver cannot solve problems with this loss."""
    refusal = solver.losses.refusal(loss)
    if refusal is not None:
        able = [other for other, kind in SOLVERS.items() if kind().losses.refusal(loss) is None]
        hint = f"solvers that do: {', '.join(able) or 'none'}"
        raise UsageError(f"solver '{name}' does not solve for the loss '{job.loss}': it {refusal}", hint=hint)


def _keep_dual_variables(solver: AnySolver, name: str) -> AnySolver:
    """Return the solver, set to keep the dual variables of its bound. Raises UsageError if it has none."""
    if any(state.name == DUAL for state in solver.row_state):
        return solver
    if solver.has_dual_witness:
        return solver.keep_dual_point()
    hint = "--dual goes with --solver dcd, newton, interior_point or lbfgs"
    raise UsageError(f"solver '{name}' has no dual variables to write", hint=hint)


def check_warm_start(solver: AnySolver, name: str, request: NystromRequest | None) -> None:
    """Raise UsageError if the solver, or a fit of kernel features, cannot start from the weights of a model."""
    if request is not None:  # the landmarks, to which the weights belong, are chosen later
        raise UsageError("a fit of kernel features does not start from a model", hint="leave out --warm-start")
    if not solver.warm_start:
        able = [other for other, kind in SOLVERS.items() if kind().warm_start]
        hint = f"leave out --warm-start; solvers that start from a linear model: {', '.join(able)}"
        raise UsageError(f"solver '{name}' does not start from a model", hint=hint)


def make_exact_kernel(job: FitJob, solver: AnySolver, store: Store, inner: Raw | Standardized) -> Kernel | None:
    """Return the kernel that the solver evaluates exactly; None for solvers of linear functions.

    Raises UsageError if the job does not suit the solver.
    """
    if not solver.exact_kernel:
        if wants_exact_kernel(job):
            able = [name for name, kind in SOLVERS.items() if kind().exact_kernel]
            hint = f"give --landmarks, or choose from {', '.join(able)}"
            raise UsageError(f"solver '{job.solver}' does not evaluate kernels", hint=hint)
        return None
    if wants_landmarks(job):
        raise UsageError(f"solver '{job.solver}' evaluates the kernel exactly", hint="leave out the landmarks")
    if solver.free_bias and bias_value(job) == 0.0:
        hint = "leave out --bias, or use the squared hinge"
        raise UsageError("a fit with a free bias cannot have a bias of 0", hint=hint)
    return build_kernel(job.kernel, job.kernel_options, str(job.gamma), store, inner)
