"""What a fit is asked for, and the plan made of it before anything is read: solver, features, memory."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from streamsvm.aliases import JsonObject
from streamsvm.config.checks import build
from streamsvm.errors import UsageError
from streamsvm.features.scaling import Raw, Standardized, centered, scaling_of, typical_reach
from streamsvm.jobs.embed import kernel_request
from streamsvm.jobs.embed.kernel_request import NystromRequest
from streamsvm.jobs.embed.placement import FLY, Choice, choose_embedding
from streamsvm.jobs.fit.options import FitJob
from streamsvm.jobs.fit.planning import kernel_machine
from streamsvm.jobs.fit.planning.memory_plan import (
    fitted,
    memory_settings,
    most_landmarks,
    remedy_for,
)
from streamsvm.jobs.fit.planning.one_class import constant_of, share_of
from streamsvm.jobs.fit.planning.problems import problems_of, warm_started
from streamsvm.jobs.fit.planning.solver_choice import MANY, features_solver, linear_solver, short_of_rows
from streamsvm.jobs.option_groups import CRAMMER_SINGER
from streamsvm.model import Model, load
from streamsvm.rows import Float64
from streamsvm.schedule.budget import MemoryPlan
from streamsvm.schedule.cores import wanted_threads
from streamsvm.solvers import SOLVERS, checked
from streamsvm.types import (
    DUAL,
    AnySolver,
    DualWitness,
    FactoredBlocks,
    FeatureMap,
    FreeOffset,
    KernelSolution,
    KernelSolver,
    Layout,
    LinearSolution,
    Loss,
    Multinomial,
    Problem,
    Store,
    WarmStart,
)

ROOM = 0.1
"""Of the tolerance: what linear solvers leave for the rounding that is added when they have ended."""
FINE = 1e-6
"""A tolerance below which rounding in float64 is felt too."""


@dataclass(frozen=True, slots=True)
class Plan:
    """Everything decided before the first read."""

    problems: list[Problem]
    """What is solved, by C and then by class."""
    class_names: tuple[str, ...]
    """What the model's outcomes are called: two for one problem, else one a problem."""
    solver_name: str
    """Its name in the registry."""
    solver: AnySolver
    """With all its settings."""
    why: str
    """Why this solver, in words."""
    features: FeatureMap
    """From stored rows to what the solver sees; where there is a ``request``, only once its map is made."""
    memory: MemoryPlan
    """What will be held in memory."""
    layout: Layout
    """Of the store that is trained on."""
    tolerance: float
    """The relative gap that was asked for; problems have less where rounding will be added to theirs."""
    remedy: str
    """What would help where the memory is not enough, beside more of it; the end of a sentence."""
    request: NystromRequest | None = None
    """The kernel features to be made before training; the problems have at most so many columns."""
    embedding: Choice | None = None
    """Where kernel features are kept, and why; None without such features."""

    @property
    def costs(self) -> list[float]:
        """Every C there is a model for."""
        return list(dict.fromkeys(problem.C for problem in self.problems))

    def facts(self) -> JsonObject:
        """The plan as plain JSON: the table of ``streamsvm plan``."""
        layout = self.layout
        return {
            "task": layout.task,
            "rows": layout.rows,
            "columns": layout.columns,
            "chunks": len(layout.chunks),
            "bytes_per_pass": layout.bytes_per_pass,
            "problems": len(self.problems),
            "together": self.problems[0].classes,
            "C": [p.C for p in self.problems],
            "solver": self.solver_name,
            "why": self.why,
            "memory": [{"term": t.name, "bytes": t.nbytes, "why": t.why} for t in self.memory.terms],
            "total": self.memory.total,
            "limit": self.memory.limit,
            "fits": self.memory.total <= self.memory.limit,
            "threads": self.memory.threads,
            "row_state": "memory" if self.memory.resident else "file beside the run",
            "blocks": "kept in memory" if self.memory.cached else "read in every pass",
            "features": None if self.request is None else self.request.describe(),
            "embedding": None if self.embedding is None else self.embedding.facts(),
        }


def make_plan(job: FitJob, store: Store) -> Plan:
    """Decide everything. Raises UsageError and DataError; ``memory.check`` is the caller's."""
    plan = plan_with(job, store)
    chosen = job.solver == "auto" and plan.solver_name == "newton"
    if plan.request is not None:
        chosen = chosen and plan.request.landmarks > MANY
    rowless = plan.request is None and short_of_rows(store.layout, memory_settings(plan.solver))
    if chosen and (plan.memory.total > plan.memory.limit or rowless):
        why = "second order does not fit the memory: dual coordinate descent"
        return replace(plan_with(replace(job, solver="dcd"), store), why=why)
    return plan


def plan_with(job: FitJob, store: Store) -> Plan:
    """The plan with the solver the job names, or the one that is chosen first, whether it fits the memory or not."""
    layout = store.layout
    problems, names = problems_of(job, layout)
    solver_name, why = choose_solver(job, layout)
    solver = _solver_of(job, solver_name, problems[0].loss, problems[0].classes)
    features = features_of(job, store)
    request = kernel_request.request_of(job, store, features, constant_of(job))
    kernel = kernel_machine.kernel_of(job, solver, store, features)
    if not isinstance(solver, KernelSolver) and _rounded_later(job, request):
        problems = [replace(problem, tolerance=(1.0 - ROOM) * problem.tolerance) for problem in problems]
    if job.warm_start is not None:
        starting, where = _able_to_start(solver, solver_name, request), job.warm_start
        problems = warm_started(load(Path(where)), where, starting, store, features, problems, names)
    if kernel is not None:
        features = centered(features, store) if kernel.translation_invariant() else features
        reach = typical_reach(features, store)
        problems = [replace(problem, kernel=kernel, reach=reach) for problem in problems]
    if isinstance(solver, KernelSolver):
        solver = solver.sized(layout.rows, job.options)
    embedding = None
    if request is not None:
        problems = [replace(problem, columns=request.landmarks, nonzeros=None) for problem in problems]
        expected = _expected(solver, problems)
        embedding = choose_embedding(job, store, request, expected)
        fly = embedding.where == FLY
        request = replace(request, factored=fly and expected is not None, on_disk=not fly)
    asked = solver
    solver, memory = fitted(job, store, asked, problems, request)
    if solver != asked:
        why += f"; memory is short: {', '.join(f'{k} {v}' for k, v in memory_settings(solver).items())}"
    why = "; ".join([why, *memory.short_of(wanted_threads(job.threads))])
    remedy = remedy_for(layout, job) + kernel_machine.remedy(solver)
    if request is not None and memory.total > memory.limit:
        remedy += f", or --landmarks {most_landmarks(job, store, solver, problems, request)}"
    return Plan(
        problems, names, solver_name, solver, why, features, memory, layout, job.tolerance, remedy, request, embedding
    )


def started(plan: Plan, store: Store, model: Model) -> Plan:
    """Return the plan with a model in memory for its problems to start from. Raises UsageError, DataError."""
    solver, features = _able_to_start(plan.solver, plan.solver_name, plan.request), plan.features
    assert isinstance(features, Raw | Standardized)  # kernel features do not start from a model
    problems = warm_started(model, "the model", solver, store, features, plan.problems, plan.class_names)
    return replace(plan, problems=problems)


def _rounded_later(job: FitJob, request: NystromRequest | None) -> bool:
    """Whether what rounding has done, which is found when the solver has ended, can be felt in the gap asked for."""
    return request is not None or job.standardize or job.tolerance < FINE


def _expected(solver: AnySolver, problems: list[Problem]) -> tuple[int, int] | None:
    """Passes, and rows whose features they ask for in all; every problem asks for its own. None: for those of all rows."""
    if not isinstance(solver, FactoredBlocks):
        return None
    passes, formed = solver.expected(problems[0])
    return passes, len(problems) * formed


def _of_classes(solver: AnySolver, name: str, classes: int) -> AnySolver:
    """The solver of one problem for all classes. Raises UsageError where there is none."""
    if isinstance(solver, Multinomial):
        return solver.of_classes(classes)
    able = ", ".join(other for other, kind in SOLVERS.items() if isinstance(kind(), Multinomial))
    raise UsageError(f"solver '{name}' does not solve for all classes together", hint=f"solvers that do: {able}")


def _solver_of(job: FitJob, name: str, loss: Loss, classes: int = 0) -> AnySolver:
    """The solver with the settings asked for. Raises UsageError."""
    solver = checked(build(SOLVERS[name], kernel_machine.options_of(job), f"solver '{name}'"), name)
    if classes:
        solver = _of_classes(solver, name, classes)
    if share_of(job) is not None:
        check_offset(solver, name)
    else:
        _check_loss(solver, name, job, loss)
    return proving(solver, name) if job.dual else solver


def proving(solver: AnySolver, name: str) -> AnySolver:
    """The solver, set to keep the dual variables it proves its bound with. Raises UsageError where it has none."""
    if any(state.name == DUAL for state in solver.row_state):
        return solver
    if isinstance(solver, DualWitness):
        return solver.keeping_dual_point()
    hint = "--dual goes with --solver dcd, newton or interior_point"
    raise UsageError(f"solver '{name}' has no dual variables to write", hint=hint)


def _able_to_start(solver: AnySolver, name: str, request: NystromRequest | None) -> WarmStart:
    """The solver as one that can start from the weights of a model. Raises UsageError where it, or the fit, cannot."""
    if request is not None:  # its weights are of landmarks that this fit has yet to choose
        raise UsageError("a fit of kernel features does not start from a model", hint="leave out --warm-start")
    if not isinstance(solver, WarmStart):
        able = [other for other, kind in SOLVERS.items() if isinstance(kind(), WarmStart)]
        hint = f"leave out --warm-start; solvers that start from a linear model: {', '.join(able)}"
        raise UsageError(f"solver '{name}' does not start from a model", hint=hint)
    return solver


def choose_solver(job: FitJob, layout: Layout) -> tuple[str, str]:
    """The solver's name and the reason for it."""
    if job.solver != "auto":
        return job.solver, "asked for"
    exact = kernel_machine.chosen(job)
    if job.multi_class == CRAMMER_SINGER and (not exact or kernel_request.wanted(job)):
        return "dcd", "all classes in one problem: dual coordinate descent"
    if kernel_request.wanted(job) and share_of(job) is None:
        return features_solver(job)
    if exact:
        return kernel_machine.solver_for(job)
    if share_of(job) is not None:
        return "interior_point", "one class with a free offset"
    return linear_solver(job, layout)


def check_offset(solver: AnySolver, name: str) -> None:
    """Raise UsageError when the solver takes no problem with a free offset."""
    if not (isinstance(solver, FreeOffset) and solver.free_offset):
        able = [other for other, kind in SOLVERS.items() if isinstance(kind(), FreeOffset)]
        hint = f"--solver {' or '.join(able)}, or --C in place of --nu, which every solver takes"
        raise UsageError(f"solver '{name}' has no free offset, which one class with nu asks for", hint=hint)


def _check_loss(solver: AnySolver, name: str, job: FitJob, loss: Loss) -> None:
    """Raise UsageError when the solver cannot solve for this loss."""
    refusal = solver.losses.refusal(loss)
    if refusal is not None:
        able = [other for other, kind in SOLVERS.items() if kind().losses.refusal(loss) is None]
        hint = f"solvers that do: {', '.join(able) or 'none'}"
        raise UsageError(f"solver '{name}' does not solve for the loss '{job.loss}': it {refusal}", hint=hint)


def features_of(job: FitJob, store: Store) -> Raw | Standardized:
    """The map from stored rows to what the solver sees."""
    about_origin = bool(job.one_class) and job.kernel == "linear"
    return scaling_of(
        store,
        standardize=job.standardize,
        every=bool(job.standardize_all),
        bias=constant_of(job),
        centered_too=not about_origin,
    )


def fold_rows(plan: Plan, w: Float64) -> Float64:
    """The rows of a model's weights that a problem's weights come to, one a decision value."""
    first = plan.problems[0]
    return np.array([fold(plan, LinearSolution(row, first.bias)) for row in first.decision_weights(w)])


def fold(plan: Plan, solution: LinearSolution) -> Float64:
    """A row of a model's weights: of stored columns, or of kernel points; the constant last."""
    found = plan.features.fold(solution)
    if isinstance(found, KernelSolution):
        return np.append(found.coefficients, found.intercept)
    return np.append(found.w[:-1], found.bias * found.w[-1])
