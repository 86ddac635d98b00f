"""The plan of a fit, made before anything is read: what is solved, by which solver, on which features, in how much
memory, and why.

The order of decisions: problems (``problems``), solver (``solver``), features and where they are kept
(``embed.plan``), memory (``memory``). Where no memory limit is stated, small data has the same plan on every machine
that has room for it; else what the machine has free decides, and the plan states the limit that was taken.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from streamsvm.aliases import JsonObject
from streamsvm.config.units import mib
from streamsvm.engine.executor import Executor
from streamsvm.engine.fit_state import Training
from streamsvm.errors import UsageError
from streamsvm.features.scaling import Raw, Standardized, choose_scaling, typical_reach
from streamsvm.jobs.embed.plan import (
    AUTO,
    AUTO_SAMPLING,
    CHUNK_BYTES,
    DISK,
    FLY,
    GREEDY,
    UNIFORM,
    Choice,
    NystromRequest,
    check_labels_unseen,
    choose_embedding,
    request_features,
    scale_for_kernel,
    undo_column_offsets,
    wants_landmarks,
)
from streamsvm.jobs.fit.memory import fit_to_memory, most_landmarks, remedy_for
from streamsvm.jobs.fit.options import FitJob
from streamsvm.jobs.fit.problems import (
    bias_value,
    build_problems,
    describe_task,
    effective_nu,
    start_from_model,
    target_center,
    undo_offsets,
)
from streamsvm.jobs.fit.solver_choice import (
    MANY_LANDMARKS,
    build_solver,
    check_warm_start,
    choose_solver,
    is_short_of_rows,
    make_exact_kernel,
)
from streamsvm.model import Model, load
from streamsvm.model.measures import (
    ERROR,
    RMSE,
    TWO_CLASSES,
    Measure,
    PredictionTask,
    choose_measure,
    choose_threshold_measure,
)
from streamsvm.rows import Float64
from streamsvm.schedule import budget
from streamsvm.schedule.budget import MemoryPlan
from streamsvm.schedule.machine import count_wanted_threads
from streamsvm.solvers.problem_kinds import Regression
from streamsvm.store import open_store
from streamsvm.types import (
    AnySolver,
    FeatureMap,
    Kernel,
    KernelSolution,
    Layout,
    LinearSolution,
    Problem,
    Report,
    Store,
    StoredFiles,
)
from streamsvm.types.problem import BINARY

if TYPE_CHECKING:
    from streamsvm.features.nystrom import Embedded, Nystrom


ROOM = 0.1
"""Of the tolerance: what linear solvers leave for the rounding that is added when they have ended."""
FINE = 1e-6
"""A tolerance below which rounding in float64 is felt too."""
PLAIN = "float32"
"""The type of embedded features that are those of the map, but for rounding."""
NO_ROOM_FOR_GREEDY = "choosing them by labels does not fit the memory"
"""Why landmarks are drawn evenly where labels might choose them."""
EVENLY_DRAWN = "landmarks were drawn evenly (--sampling uniform), as choosing them by labels does not fit the memory"
"""What a user is told then."""
SMALLER = "make the features in every pass (--embedding fly), or use --embedding-dtype int8"
"""What a fit can do where the disk has no room for an embedding."""


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
    taken: int | None = None
    """The memory limit that was taken because none was stated; None: one was stated, or the plan is the same under
    every limit it fits.
    """
    writes_dual: bool = False
    """Whether the dual variables are written: the certificate is then that of these, though others may prove more."""
    predicts: PredictionTask = TWO_CLASSES
    """What the model predicts, as far as measures depend on it."""
    measure: Measure = ERROR
    """What held-out rows judge by, where there are such."""

    def __repr__(self) -> str:
        return f"<Plan: {', '.join(f'{name} {text}' for name, text in self.summary().items())}>"

    def _repr_html_(self) -> str:
        """Return the summary, for a notebook."""
        from streamsvm.display.html import build_card

        return build_card("Plan", self.summary())

    def summary(self) -> dict[str, str]:
        """Return the solver, the size of the data and the memory as short texts by name; ``facts`` has all of the plan."""
        return {
            "solver": f"{self.solver_name} ({self.why})",
            "data": f"{self.layout.rows} rows x {self.layout.columns} columns",
            "problems": str(len(self.problems)),
            "memory": f"{mib(self.memory.total, up=True)} of {mib(self.memory.limit)}",
        }

    @property
    def kernel(self) -> Kernel | None:
        """The kernel, exact or of landmarks; None of a linear fit."""
        return self.problems[0].kernel if self.request is None else self.request.record

    @property
    def costs(self) -> list[float]:
        """Every C there is a model for."""
        return list(dict.fromkeys(problem.C for problem in self.problems))

    @property
    def sees_features_of_map(self) -> bool:
        """Whether the solver sees the features of the map, and not what few bits have left of them on disk."""
        return self.embedding is None or self.embedding.where != DISK or self.embedding.dtype == PLAIN

    @property
    def positive(self) -> str | None:
        """The positive class of two, where the measure depends on it."""
        of_two = self.predicts.outcomes == BINARY and self.measure.has_positive
        return self.class_names[self.predicts.positive] if of_two else None

    def _score(self) -> JsonObject:
        """What held-out rows judge by, where that is not the usual measure."""
        if self.measure in {ERROR, RMSE}:
            return {}
        return {"score": self.measure.name} | ({} if self.positive is None else {"positive": self.positive})

    def _why_sampling(self) -> JsonObject:
        """Why landmarks are drawn as they are, where that was left to the plan."""
        found = None if self.request is None else self.request.why_sampling
        return {} if found is None else {"why_sampling": found}

    def facts(self) -> JsonObject:
        """Return the plan as plain JSON: the table of ``streamsvm plan``."""
        layout = self.layout
        return {
            "task": layout.task,
            "rows": layout.rows,
            "columns": layout.columns,
            "chunks": len(layout.chunks),
            "bytes_per_pass": layout.bytes_per_pass,
            "problems": len(self.problems),
            "together": self.problems[0].kind.classes,
            "C": [p.C for p in self.problems],
            "tolerance": self.tolerance,
            "solver": self.solver_name,
            "why": self.why,
            "memory": [{"term": t.name, "bytes": t.nbytes, "why": t.why} for t in self.memory.terms],
            "total": self.memory.total,
            "limit": self.memory.limit,
            "limit_taken": self.taken is not None,
            "fits": self.memory.total <= self.memory.limit,
            "threads": self.memory.threads,
            "row_state": "memory" if self.memory.resident else "file beside the run",
            "blocks": "kept in memory" if self.memory.cached else "read in every pass",
            "features": None if self.request is None else self.request.describe(),
            **self._why_sampling(),
            **self._score(),
            "embedding": None if self.embedding is None else self.embedding.facts(),
        }


def make_plan(job: FitJob, store: Store) -> Plan:
    """Decide everything. Raises UsageError and DataError; ``memory.check`` is the caller's."""
    plan = _first_that_fits(job, store) if job.memory is not None else _without_stated_limit(job, store)
    if plan.request is None or plan.memory.total <= plan.memory.limit:
        return plan
    most = landmarks_that_fit(job, store, plan.solver_name, plan.problems, plan.request)
    return replace(plan, remedy=f"{plan.remedy}, or --landmarks {most}")


def _without_stated_limit(job: FitJob, store: Store) -> Plan:
    """Return the plan where no memory limit is stated: of small data the same on every machine that has room for it.

    Where the data is not small, or the room is missing, what this machine has decides, and the plan has the limit that
    was taken.
    """
    limit = budget.memory_limit(None)
    if wants_landmarks(job):  # where features are kept depends on what is measured here
        plan = _first_that_fits(job, store)
        small = plan.memory.total <= min(budget.SMALL, limit) and not _gave_up_greedy(plan)
        return plan if small else with_limit_taken(job, store, limit)
    with budget.assuming_limit(budget.UNLIMITED):
        plan = _first_that_fits(job, store)
    if plan.memory.total > min(budget.SMALL, limit):
        return with_limit_taken(job, store, limit)
    retain = store.layout.bytes_per_pass <= budget.page_cache_bytes(limit)
    return replace(plan, memory=replace(plan.memory, limit=limit, retain=retain))


def with_limit_taken(job: FitJob, store: Store, limit: int) -> Plan:
    """Return the plan under the limit that is taken, in whole MiB, so that it can be stated to the same effect."""
    limit = limit // budget.MIB * budget.MIB or limit
    return replace(_first_that_fits(replace(job, memory=limit), store), taken=limit)


def state_choices(job: FitJob, plan: Plan) -> FitJob:
    """Return the job with what was taken where it leaves that to us, so that stating it repeats the fit.

    That is the memory limit where it has decided the plan, and how landmarks are drawn.
    """
    if plan.taken is not None:
        job = replace(job, memory=plan.taken)
    if plan.request is not None and plan.request.file is None and job.sampling == AUTO_SAMPLING:
        job = replace(job, sampling=plan.request.sampling)
    return job


def limit_notice(plan: Plan) -> tuple[str, ...]:
    """Return lines where memory has decided how the fit is made: a limit that nobody stated, or too little for
    landmarks by labels.
    """
    lines = []
    if plan.taken is not None:
        taken = mib(plan.taken)
        lines.append(
            f"no --memory was given: {taken} was taken, from what this machine has free, and may decide solver and result; "
            f"--memory {taken} repeats it"
        )
    if _gave_up_greedy(plan):
        lines.append(EVENLY_DRAWN)
    return tuple(lines)


def _gave_up_greedy(plan: Plan) -> bool:
    """Return whether landmarks are not drawn by labels for want of memory alone."""
    return plan.request is not None and plan.request.why_sampling == NO_ROOM_FOR_GREEDY


def _with_landmarks_that_fit(job: FitJob, store: Store) -> Plan:
    """Return the plan with landmarks as ``auto`` has them drawn, evenly where choosing them does not fit the memory."""
    plan = plan_with(job, store)
    given_up = job.sampling == AUTO_SAMPLING and plan.memory.total > plan.memory.limit
    if not given_up or plan.request is None or plan.request.sampling != GREEDY:
        return plan
    plan = plan_with(replace(job, sampling=UNIFORM), store)
    assert plan.request is not None, "there is one whatever the sampling"
    return replace(plan, request=replace(plan.request, why_sampling=NO_ROOM_FOR_GREEDY))


def _first_that_fits(job: FitJob, store: Store) -> Plan:
    """Return the plan with the first choice of solver, or where that is second order and does not fit with coordinate
    descent.
    """
    plan = _with_landmarks_that_fit(job, store)
    chosen = job.solver == "auto" and plan.solver_name == "newton" and plan.problems[0].regularizer.is_squared_norm
    if plan.request is not None:
        chosen = chosen and plan.request.landmarks > MANY_LANDMARKS
    rowless = plan.request is None and is_short_of_rows(store.layout, plan.solver.memory_settings())
    if chosen and (plan.memory.total > plan.memory.limit or rowless):
        why = "second order does not fit the memory: dual coordinate descent"
        return replace(_with_landmarks_that_fit(replace(job, solver="dcd"), store), why=why)
    return plan


def plan_with(job: FitJob, store: Store, *, exact: bool = False) -> Plan:
    """Return the plan with the solver the job names, or the one that is chosen first, whether it fits the memory or
    not.

    ``exact``: with kernel features in float64, made in every pass.
    """
    layout, job = store.layout, replace(job, embedding=FLY) if exact else job
    problems, names = build_problems(job, layout)
    solver_name, why = choose_solver(job, layout, problems[0])
    solver = build_solver(job, solver_name, problems[0])
    features = choose_features(job, store)
    request = request_features(job, store, features, bias_value(job))
    if job.needs_scores:
        check_labels_unseen(store, request, "--threshold" if job.calibrate is None else "--calibrate")
    kernel = make_exact_kernel(job, solver, store, features)
    if not solver.exact_kernel and _may_need_exact_features(job, request):
        problems = [replace(problem, tolerance=(1.0 - ROOM) * problem.tolerance) for problem in problems]
    if job.warm_start is not None:
        where = job.warm_start
        check_warm_start(solver, solver_name, request)
        problems = start_from_model(load(Path(where)), where, solver, store, features, problems, names)
    if effective_nu(job) is not None and job.one_class and kernel is None and request is None:
        problems = [undo_offsets(problem, features, store) for problem in problems]
    if kernel is not None:
        features = scale_for_kernel(kernel, features, store)
        reach = typical_reach(features, store)
        center = target_center(solver, store)
        problems = [replace(problem, kernel=kernel, reach=reach) for problem in problems]
        if center:
            problems = [replace(problem, kind=Regression(center)) for problem in problems]
    solver = solver.adapt_to_row_count(layout.rows, job.options)
    embedding = None
    if request is not None:
        problems = [replace(problem, columns=request.landmarks, nonzeros=None) for problem in problems]
        expected = estimate_passes(solver, problems)
        embedding = choose_embedding(job, store, request, expected)
        request = replace(place_features(request, embedding.where, expected), exact=exact)
    predicts = describe_task(problems, layout, job.positive)
    measure = choose_measure(job.score, predicts)
    if job.threshold is not None:
        choose_threshold_measure(job.threshold, predicts)
    asked = solver
    solver, memory = fit_to_memory(job, store, asked, problems, request)
    if solver != asked:
        why += f"; memory is short: {', '.join(f'{k} {v}' for k, v in solver.memory_settings().items())}"
    why = "; ".join([why, *memory.short_of(count_wanted_threads(job.threads))])
    remedy = remedy_for(layout, job)
    if solver.exact_kernel and not solver.max_support:
        remedy += ", or a shorter model, --max-support 1000"
    return Plan(
        problems, names, solver_name, solver, why, features, memory, layout, job.tolerance, remedy, request, embedding,
        writes_dual=job.dual is not None, predicts=predicts, measure=measure,
    )  # fmt: skip


def start_plan_from(plan: Plan, store: Store, model: Model) -> Plan:
    """Return the plan with a model in memory for its problems to start from. Raises UsageError, DataError."""
    solver, features = plan.solver, plan.features
    check_warm_start(solver, plan.solver_name, plan.request)
    assert isinstance(features, Raw | Standardized)  # kernel features do not start from a model
    problems = start_from_model(model, "the model", solver, store, features, plan.problems, plan.class_names)
    return replace(plan, problems=problems)


def start_where_ended(plan: Plan, ended: Plan, training: Training) -> Plan:
    """Return the plan of a fit from where it has ended (``ended``), if its solver can start from weights."""
    if not plan.solver.warm_start:
        return plan
    solutions = [ended.solver.solution(run.state) for run in training.runs]
    problems = [
        replace(problem, warm=solution.w.copy()) if isinstance(solution, LinearSolution) else problem
        for problem, solution in zip(plan.problems, solutions, strict=True)
    ]
    return replace(plan, problems=problems)


def _may_need_exact_features(job: FitJob, request: NystromRequest | None) -> bool:
    """Return whether what rounding has done, which is found when the solver has ended, can be felt in the gap asked
    for.
    """
    return request is not None or job.standardize or job.tolerance < FINE


def choose_features(job: FitJob, store: Store) -> Raw | Standardized:
    """Return the map from stored rows to what the solver sees."""
    about_origin = bool(job.one_class) and job.kernel == "linear"
    found = choose_scaling(
        store,
        standardize=job.standardize,
        every=bool(job.standardize_all),
        bias=bias_value(job),
        centered_too=not about_origin,
    )
    linear = job.kernel == "linear" and not wants_landmarks(job)
    return undo_column_offsets(found, store) if linear and found.bias == 0.0 else found


def fold_rows(plan: Plan, w: Float64) -> Float64:
    """Return the rows of a model's weights that a problem's weights come to, one a decision value."""
    first = plan.problems[0]
    return np.array([fold(plan, LinearSolution(row, first.bias)) for row in first.kind.decision_weights(w)])


def fold(plan: Plan, solution: LinearSolution) -> Float64:
    """Return a row of a model's weights: of stored columns, or of kernel points; the constant last."""
    found = plan.features.to_input_space(solution)
    if isinstance(found, KernelSolution):
        return np.append(found.coefficients, found.intercept)
    return np.append(found.w[:-1], found.bias * found.w[-1])


@dataclass(frozen=True, slots=True)
class _Build:
    """How a fit has its embedding built."""

    dtype: str
    prefetch: int
    chunk_bytes: int = CHUNK_BYTES
    overwrite: bool = True


def with_features(  # noqa: PLR0917  what ``fit`` has at hand
    job: FitJob, store: Store, plan: Plan, run: Path, report: Report, executor: Executor | None = None
) -> tuple[Store, Plan]:
    """Return the store to train on and the plan with its map: as they are where there are no kernel features."""
    request = plan.request
    if request is None:
        return _of_embedding(job, store, plan)
    from streamsvm.features.nystrom import Embedded
    from streamsvm.jobs.embed.build import Builder
    from streamsvm.jobs.embed.landmarks import make_map

    if plan.embedding is not None and plan.embedding.where == DISK:
        build = _Build(plan.embedding.dtype, job.prefetch)
        place = run / "embedding.zarr"
        found = Builder(store, request, place, build, report, executor, remedy=SMALLER).build()
        features = Embedded(found.projection, bias_value(job))
        seen: Store = open_store(found.embedding)
        retain = seen.layout.bytes_per_pass <= budget.page_cache_bytes(plan.memory.limit)
        plan = replace(plan, memory=replace(plan.memory, retain=retain))
        return seen, with_map(plan, features)
    return store, with_map(plan, make_map(request, store, report, job.prefetch))


def with_map(plan: Plan, features: Nystrom | Embedded) -> Plan:
    """Return the plan of a fit that sees the data through a map that is made; its problems have the map's columns."""
    problems = [replace(problem, columns=features.columns) for problem in plan.problems]
    return replace(plan, features=features, problems=problems)


def _of_embedding(job: FitJob, store: Store, plan: Plan) -> tuple[Store, Plan]:
    """Return an embedding with the map it carries: the model will be one of the rows it was made from."""
    seal = store.facts.get("map")
    if seal is None:
        return store, plan
    from streamsvm.features.mapfile import read_map
    from streamsvm.features.nystrom import Embedded

    if job.standardize:
        raise UsageError("an embedding is not standardized again", hint="leave out --standardize, or give it to embed")
    assert isinstance(store, StoredFiles)  # only a store on disk has a map, and its rows are not held out
    return store, replace(plan, features=Embedded(read_map(store.root, seal), bias_value(job)))


def estimate_passes(solver: AnySolver, problems: list[Problem]) -> tuple[int, int] | None:
    """Passes, and rows whose features they ask for in all; every problem asks for its own. None: for those of all
    rows.
    """
    expected = solver.estimate_work(problems[0])
    if expected is None:
        return None
    passes, formed = expected
    return passes, len(problems) * formed


def place_features(request: NystromRequest, where: str, expected: tuple[int, int] | None) -> NystromRequest:
    """Return the request for features that are on disk, or made in every pass for a solver that expects so much of
    them.
    """
    return replace(request, factored=where == FLY and expected is not None, on_disk=where == DISK)


def landmarks_that_fit(
    job: FitJob, store: Store, solver_name: str, problems: list[Problem], request: NystromRequest
) -> int:
    """Return how many landmarks memory leaves room for, with the solver that is taken for so many; 0 when there is
    none.

    Where features will be is measured for each number of them: if it is not said, there is room for both.
    """
    places = (DISK, FLY) if job.embedding == AUTO else (job.embedding,)

    def most(name: str, landmarks: int) -> int:
        solver = build_solver(job, name, problems[0])
        asked = replace(request, landmarks=landmarks)
        requests = [place_features(asked, place, estimate_passes(solver, problems)) for place in places]
        return min(most_landmarks(job, store, solver, problems, one) for one in requests)

    found = most(solver_name, request.landmarks)
    if job.landmarks is None or not 0 < found <= MANY_LANDMARKS:
        return found
    taken, _ = choose_solver(replace(job, landmarks=found), store.layout, problems[0])
    return found if taken == solver_name else most(taken, found + 1)
