"""Plan a fit before any row is read: the problems, the solver, the features, the memory, and the reasons.

Decisions are made in this order: problems (``problems``), solver (``solver_choice``), features and where they are
stored (``embed.plan``), memory (``memory``). Without --memory the plan for small data is the same on every machine with
enough memory. For larger data the memory limit is derived from this machine's free memory, and the plan records it
(``Plan.derived_limit``).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from streamsvm.compute import freed_memory
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
    GREEDY,
    ON_THE_FLY,
    UNIFORM,
    NystromRequest,
    StorageChoice,
    check_no_label_leakage,
    choose_embedding,
    request_features,
    scale_for_kernel,
    undo_column_offsets,
    wants_landmarks,
)
from streamsvm.jobs.fit.curves import CurveRequest, check_solver_for_curves, make_curves, request_curves
from streamsvm.jobs.fit.enclose import check_enclosure
from streamsvm.jobs.fit.memory import fit_to_memory, max_landmarks, suggest_smaller_chunks
from streamsvm.jobs.fit.options import FitJob
from streamsvm.jobs.fit.problems import (
    bias_value,
    build_problems,
    choose_target_center,
    describe_task,
    effective_nu,
    measure_rows,
    restore_column_offsets,
    start_from_model,
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
from streamsvm.store.views import MemoryStore
from streamsvm.type_aliases import JsonObject
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
    from streamsvm.features.curves import Curves
    from streamsvm.features.nystrom import Embedded, Nystrom


ROUNDING_RESERVE = 0.1
"""Fraction of the tolerance that is reserved for rounding error, which is measured only after the solver has stopped."""
FLOAT64_SENSITIVE_TOLERANCE = 1e-6
"""Tolerance below which even the rounding error of float64 is significant."""
UNQUANTIZED = "float32"
"""The dtype of features on disk that are stored without quantization."""
NO_ROOM_FOR_GREEDY = "choosing them by labels does not fit the memory"
"""The reason recorded where ``auto`` samples landmarks uniformly because greedy sampling needs too much memory."""
UNIFORM_SAMPLING_NOTICE = (
    "landmarks were drawn uniformly at random (--sampling uniform), as choosing them by labels (--sampling greedy) does "
    "not fit the memory"
)
"""The notice to the user in that case."""
DISK_FULL_HINT = "make the features in every pass (--embedding fly), or use --embedding-dtype int8"
"""The hint of the error when the disk has no room for an embedding."""


@dataclass(frozen=True, slots=True)
class Plan:
    """Everything that is decided before the first row is read."""

    problems: list[Problem]
    """The problems to solve, ordered by C and then by class."""
    class_names: tuple[str, ...]
    """The class names of the model: both classes if the problem is binary, else one name per problem."""
    solver_name: str
    """The name of the solver in the registry."""
    solver: AnySolver
    """The solver with all its settings."""
    why: str
    """The reason for the solver, in words."""
    features: FeatureMap
    """The map from stored rows to the rows the solver sees; with a ``request``, a placeholder until that map is built."""
    memory: MemoryPlan
    """The memory the fit will use, term by term."""
    layout: Layout
    """The layout of the training store."""
    tolerance: float
    """The requested relative gap. Problems get a smaller one if rounding error has to be added to their gap."""
    remedy: str
    """Alternatives to more memory, worded as the end of an error message."""
    request: NystromRequest | None = None
    """The kernel features to build before training; their number is an upper bound of the problems' columns."""
    curves: CurveRequest | None = None
    """The curves whose knots are chosen before training; the numbers of components and entries of the problems are then
    upper bounds."""
    embedding: StorageChoice | None = None
    """Where kernel features are stored, and why; None without kernel features."""
    derived_limit: int | None = None
    """The memory limit in bytes that was derived from free memory. None if --memory was given, or if the plan would be
    the same under every limit that it fits.
    """
    writes_dual: bool = False
    """Whether the dual variables are written to a file. The certificate then has the dual value of the variables
    written, even if a better dual bound is known.
    """
    enclosure: str | None = None
    """How the optimum is enclosed (--certify); None: it is not."""
    predicts: PredictionTask = TWO_CLASSES
    """The facts about the prediction task on which measures depend."""
    measure: Measure = ERROR
    """The measure for held-out rows, if there are any."""
    disk_cache: int = 0
    """Bytes of stores in object stores that may be kept on this machine."""

    def __repr__(self) -> str:
        return f"<Plan: {', '.join(f'{name} {text}' for name, text in self.summary().items())}>"

    def _repr_html_(self) -> str:
        """Return the summary, for a notebook."""
        from streamsvm.display.html import build_card

        return build_card("Plan", self.summary())

    def summary(self) -> dict[str, str]:
        """Return the solver, the size of the data and the memory as short texts by name. ``facts`` returns the whole plan."""
        return {
            "solver": f"{self.solver_name} ({self.why})",
            "data": f"{self.layout.rows} rows x {self.layout.columns} columns",
            "problems": str(len(self.problems)),
            "memory": f"{mib(self.memory.total, round_up=True)} of {mib(self.memory.limit)}",
        }

    @property
    def kernel(self) -> Kernel | None:
        """The kernel, evaluated exactly or approximated by landmarks; None for a linear fit."""
        return self.problems[0].kernel if self.request is None else self.request.kernel

    @property
    def costs(self) -> list[float]:
        """The different values of C; the fit writes one model for each."""
        return list(dict.fromkeys(problem.C for problem in self.problems))

    @property
    def sees_features_of_map(self) -> bool:
        """Whether the solver sees unquantized features: computed in memory, or stored as float32."""
        return self.embedding is None or self.embedding.where != DISK or self.embedding.dtype == UNQUANTIZED

    @property
    def positive(self) -> str | None:
        """The positive class of a binary fit whose measure depends on it; else None."""
        is_needed = self.predicts.outcomes == BINARY and self.measure.has_positive
        return self.class_names[self.predicts.positive] if is_needed else None

    def _score(self) -> JsonObject:
        """Return the measure for held-out rows as plain JSON; empty for the default measure."""
        if self.measure in {ERROR, RMSE}:
            return {}
        return {"score": self.measure.name} | ({} if self.positive is None else {"positive": self.positive})

    def _why_sampling(self) -> JsonObject:
        """Return the reason for the sampling of landmarks as plain JSON; empty if the user chose the sampling."""
        why = None if self.request is None else self.request.why_sampling
        return {} if why is None else {"why_sampling": why}

    def _describe_requests(self) -> JsonObject:
        """Return the number of requests for features in a pass over a store in an object store, at least one for each array of a
        chunk, and the bytes that are kept on this machine; empty for other stores.
        """
        layout = self.layout
        if not layout.remote:
            return {}
        arrays = 1 if layout.nonzeros is None else 3  # data, indices, indptr
        kept = {"bytes_kept": min(self.disk_cache, layout.bytes_per_pass)} if self.disk_cache else {}
        return {"requests_per_pass": arrays * len(layout.chunks), **kept}

    def facts(self) -> JsonObject:
        """Return the plan as plain JSON: the table of ``streamsvm plan``."""
        layout = self.layout
        return {
            "task": layout.task,
            "rows": layout.rows,
            "columns": layout.columns,
            "chunks": len(layout.chunks),
            "bytes_per_pass": layout.bytes_per_pass,
            **self._describe_requests(),
            "problems": len(self.problems),
            "together": self.problems[0].kind.classes,
            "C": [p.C for p in self.problems],
            "tolerance": self.tolerance,
            "solver": self.solver_name,
            "why": self.why,
            "memory": [{"term": t.name, "bytes": t.nbytes, "why": t.why} for t in self.memory.terms],
            "total": self.memory.total,
            "limit": self.memory.limit,
            "limit_taken": self.derived_limit is not None,
            "fits": self.memory.total <= self.memory.limit,
            "threads": self.memory.threads,
            "row_state": "memory" if self.memory.resident else "file beside the run",
            "blocks": "kept in memory" if self.memory.cached else "read in every pass",
            "features": None if self.request is None else self.request.describe(),
            **({} if self.curves is None else {"curves": self.curves.describe()}),
            **self._why_sampling(),
            **self._score(),
            "embedding": None if self.embedding is None else self.embedding.facts(),
        }


def make_plan(job: FitJob, store: Store) -> Plan:
    """Return the plan of a fit. Raises UsageError and DataError.

    The plan may exceed the memory limit: the caller must call ``plan.memory.check``.
    """
    plan = _with_automatic_solver(job, store) if job.memory is not None else _with_automatic_limit(job, store)
    if plan.request is None or plan.memory.total <= plan.memory.limit:
        return plan
    landmarks = max_landmarks_in_limit(job, store, plan.solver_name, plan.problems, plan.request)
    return replace(plan, remedy=f"{plan.remedy}, or --landmarks {landmarks}")


def _with_automatic_limit(job: FitJob, store: Store) -> Plan:
    """Return the plan of a job without --memory.

    For small data it is the same plan on every machine with enough memory. Otherwise it depends on the free memory of
    this machine, and records the limit derived from it.
    """
    limit = budget.memory_limit(None)
    if wants_landmarks(job):  # measurements on this machine decide where features are stored
        plan = _with_automatic_solver(job, store)
        is_small = plan.memory.total <= min(budget.SMALL_JOB_BYTES, limit) and not lacks_memory_for_greedy(plan)
        return plan if is_small else with_derived_limit(job, store, limit)
    most = min(budget.SMALL_JOB_BYTES, limit)
    with budget.assume_limit(budget.UNLIMITED):
        plan = _with_automatic_solver(job, store)
        if plan.memory.total > most:  # perhaps only because freed memory was not returned to the system yet
            freed_memory.give_back()
            plan = _with_automatic_solver(job, store)
    if plan.memory.total > most:
        return with_derived_limit(job, store, limit)
    # rows in memory have no pages in the cache
    retain = isinstance(store, MemoryStore) or store.layout.bytes_per_pass <= budget.page_cache_bytes(limit)
    return replace(plan, memory=replace(plan.memory, limit=limit, retain=retain))


def with_derived_limit(job: FitJob, store: Store, limit: int) -> Plan:
    """Return the plan under a derived memory limit, rounded to whole MiB, so that passing it as --memory reproduces it."""
    limit = limit // budget.MIB * budget.MIB or limit
    return replace(_with_automatic_solver(replace(job, memory=limit), store), derived_limit=limit)


def pin_automatic_choices(job: FitJob, plan: Plan) -> FitJob:
    """Return the job with automatic choices made explicit, so that running it reproduces the fit.

    The choices are the memory limit, if the plan depends on it, and the sampling of landmarks.
    """
    if plan.derived_limit is not None:
        job = replace(job, memory=plan.derived_limit)
    if plan.request is not None and plan.request.file is None and job.sampling == AUTO_SAMPLING:
        job = replace(job, sampling=plan.request.sampling)
    return job


def lacks_memory_for_greedy(plan: Plan) -> bool:
    """Return whether lack of memory is the only reason why landmarks are not sampled greedily."""
    return plan.request is not None and plan.request.why_sampling == NO_ROOM_FOR_GREEDY


def _with_automatic_sampling(job: FitJob, store: Store) -> Plan:
    """Return the plan; ``auto`` sampling is greedy if that fits the memory, else uniform."""
    plan = plan_with(job, store)
    exceeds_memory = job.sampling == AUTO_SAMPLING and plan.memory.total > plan.memory.limit
    if not exceeds_memory or plan.request is None or plan.request.sampling != GREEDY:
        return plan
    plan = plan_with(replace(job, sampling=UNIFORM), store)
    assert plan.request is not None, "the sampling does not decide whether there are landmarks"
    return replace(plan, request=replace(plan.request, why_sampling=NO_ROOM_FOR_GREEDY))


def _with_automatic_solver(job: FitJob, store: Store) -> Plan:
    """Return the plan with the preferred solver; if that is Newton's method and does not fit the memory, with dual
    coordinate descent.
    """
    plan = _with_automatic_sampling(job, store)
    may_replace = job.solver == "auto" and plan.solver_name == "newton" and plan.problems[0].regularizer.is_squared_norm
    may_replace = may_replace and plan.curves is None
    if plan.request is not None:
        may_replace = may_replace and plan.request.landmarks > MANY_LANDMARKS
    short_of_rows = plan.request is None and is_short_of_rows(store.layout, plan.solver.memory_settings())
    if may_replace and (plan.memory.total > plan.memory.limit or short_of_rows):
        why = "second order does not fit the memory: dual coordinate descent"
        return replace(_with_automatic_sampling(replace(job, solver="dcd"), store), why=why)
    return plan


def plan_with(job: FitJob, store: Store, *, exact: bool = False) -> Plan:
    """Return the plan with the solver that the job names, or with the preferred one, even if it exceeds the memory limit.

    ``exact``: the kernel features are float64 and computed in every pass.
    """
    layout, job = store.layout, replace(job, embedding=ON_THE_FLY) if exact else job
    problems, names = build_problems(job, layout)
    curves, problems = request_curves(job, store, problems)
    solver_name, why = choose_solver(job, layout, problems[0])
    solver = build_solver(job, solver_name, problems[0])
    check_solver_for_curves(solver, solver_name, problems[0], curves)
    features = choose_features(job, store)
    request = request_features(job, store, features, bias_value(job))
    check_enclosure(job, store, solver, problems[0])
    if job.needs_scores:
        check_no_label_leakage(store, request, "--threshold" if job.calibrate is None else "--calibrate")
    kernel = make_exact_kernel(job, solver, store, features)
    if not solver.exact_kernel and _may_need_exact_features(job, request):
        problems = [replace(problem, tolerance=(1.0 - ROUNDING_RESERVE) * problem.tolerance) for problem in problems]
    if job.warm_start is not None:
        path = job.warm_start
        check_warm_start(solver, solver_name, request)
        problems = start_from_model(load(Path(path)), path, solver, store, features, problems, names)
    if effective_nu(job) is not None and job.one_class and kernel is None and request is None:
        problems = [restore_column_offsets(problem, features, store) for problem in problems]
    if job.free_bias:
        problems = [measure_rows(problem, features, store) for problem in problems]
    if kernel is not None:
        features = scale_for_kernel(kernel, features, store)
        reach = typical_reach(features, store)
        center = choose_target_center(solver, store)
        problems = [replace(problem, kernel=kernel, reach=reach) for problem in problems]
        if center:
            problems = [replace(problem, kind=Regression(center)) for problem in problems]
    embedding = None
    if request is None:
        solver = solver.adapt_to_data(layout.rows, problems, job.options)
    else:
        problems = [replace(problem, columns=request.landmarks, nonzeros=None) for problem in problems]
        expected = estimate_feature_work(solver, problems)
        embedding = choose_embedding(job, store, request, expected)
        request = replace(set_feature_placement(request, embedding.where, expected), exact=exact)
    predicts = describe_task(problems, layout, job.positive)
    measure = choose_measure(job.score, predicts)
    if job.threshold is not None:
        choose_threshold_measure(job.threshold, predicts)
    preferred = solver
    solver, memory = fit_to_memory(job, store, preferred, problems, curves if request is None else request)
    if solver != preferred:
        why += (
            f"; memory is short: {', '.join(f'{k} {v}' for k, v in solver.memory_settings().items() if v is not None)}"
        )
    why = "; ".join([why, *memory.notices_of_missing_threads(count_wanted_threads(job.threads))])
    remedy = suggest_smaller_chunks(layout, job)
    if solver.exact_kernel and not solver.max_support:
        remedy += ", or a model with fewer support rows, --max-support 1000"
    return Plan(
        problems, names, solver_name, solver, why, features, memory, layout, job.tolerance, remedy, request, curves, embedding,
        writes_dual=job.dual is not None, enclosure=job.certify, predicts=predicts, measure=measure,
        disk_cache=job.disk_cache or 0,
    )  # fmt: skip


def warm_start_from_model(plan: Plan, store: Store, model: Model) -> Plan:
    """Return the plan with its problems warm-started from ``model``. Raises UsageError, DataError."""
    solver, features = plan.solver, plan.features
    check_warm_start(solver, plan.solver_name, plan.request)
    assert isinstance(features, Raw | Standardized)  # ``check_warm_start`` refuses kernel features
    problems = start_from_model(model, "the model", solver, store, features, plan.problems, plan.class_names)
    return replace(plan, problems=problems)


def warm_start_from_training(plan: Plan, previous: Plan, training: Training) -> Plan:
    """Return the plan warm-started from the solutions of a finished ``training`` by the plan ``previous``.

    A plan whose solver cannot start from given weights is returned unchanged.
    """
    if not plan.solver.warm_start:
        return plan
    solutions = [previous.solver.solution(run.state) for run in training.runs]
    problems = [
        replace(problem, warm=solution.w.copy()) if isinstance(solution, LinearSolution) else problem
        for problem, solution in zip(plan.problems, solutions, strict=True)
    ]
    return replace(plan, problems=problems)


def _may_need_exact_features(job: FitJob, request: NystromRequest | None) -> bool:
    """Return whether rounding error, known only after the solver has stopped, may be significant at the tolerance."""
    return request is not None or job.standardize or job.tolerance < FLOAT64_SENSITIVE_TOLERANCE


def choose_features(job: FitJob, store: Store) -> Raw | Standardized:
    """Return the scaling of stored columns, by which the solver or the kernel sees the rows; curves see them as stored."""
    if job.curves:
        return Raw(bias_value(job))
    about_origin = bool(job.one_class) and job.kernel == "linear"
    scaling = choose_scaling(
        store,
        standardize=job.standardize,
        every=bool(job.standardize_all),
        bias=bias_value(job),
        centered_too=not about_origin,
    )
    linear = job.kernel == "linear" and not wants_landmarks(job)
    return undo_column_offsets(scaling, store) if linear and scaling.bias == 0.0 else scaling


def to_model_rows(plan: Plan, w: Float64) -> Float64:
    """Return the weights of a model for the solver's weights ``w`` of one problem: one row per decision value."""
    first = plan.problems[0]
    return np.array([to_model_row(plan, LinearSolution(row, first.bias)) for row in first.kind.decision_weights(w)])


def to_model_row(plan: Plan, solution: LinearSolution) -> Float64:
    """Return one row of a model's weights: of the stored columns or of the landmarks, and the intercept last."""
    folded = plan.features.to_input_space(solution)
    if isinstance(folded, KernelSolution):
        return np.append(folded.coefficients, folded.intercept)
    return np.append(folded.w[:-1], folded.bias * folded.w[-1])


@dataclass(frozen=True, slots=True)
class _Build:
    """Settings with which a fit builds its embedding."""

    dtype: str
    prefetch: int
    chunk_bytes: int = CHUNK_BYTES
    overwrite: bool = True


def make_features(  # noqa: PLR0917
    job: FitJob, store: Store, plan: Plan, run: Path, report: Report, executor: Executor | None = None
) -> tuple[Store, Plan]:
    """Return the store that the solver reads, and the plan with the map to kernel features or to curves.

    The embedding is written into the folder ``run`` if the plan stores it on disk. Without kernel features both
    are returned unchanged; of a store that is itself an embedding, the plan gets the map stored in it.
    """
    request = plan.request
    if plan.curves is not None:
        return store, with_map(plan, make_curves(plan.curves, store, report, job.prefetch))
    if request is None:
        return _with_stored_map(job, store, plan)
    from streamsvm.features.nystrom import Embedded
    from streamsvm.jobs.embed.build import Builder
    from streamsvm.jobs.embed.landmarks import make_map

    if plan.embedding is not None and plan.embedding.where == DISK:
        build = _Build(plan.embedding.dtype, job.prefetch)
        place = run / "embedding.zarr"
        built = Builder(store, request, place, build, report, executor, remedy=DISK_FULL_HINT).build()
        features = Embedded(built.projection, bias_value(job))
        training_store: Store = open_store(built.embedding)
        retain = training_store.layout.bytes_per_pass <= budget.page_cache_bytes(plan.memory.limit)
        plan = replace(plan, memory=replace(plan.memory, retain=retain))
        return training_store, with_map(plan, features)
    return store, with_map(plan, make_map(request, store, report, job.prefetch))


def with_map(plan: Plan, features: Nystrom | Embedded | Curves) -> Plan:
    """Return the plan with the map ``features``, which is now built; its problems get the columns of the map."""
    problems = [replace(problem, columns=features.columns) for problem in plan.problems]
    return replace(plan, features=features, problems=problems)


def _with_stored_map(job: FitJob, store: Store, plan: Plan) -> tuple[Store, Plan]:
    """Return the store, and for an embedding the plan with its stored map, so that the model applies to the original rows."""
    map_digest = store.facts.get("map")
    if map_digest is None:
        return store, plan
    from streamsvm.features.mapfile import read_map
    from streamsvm.features.nystrom import Embedded

    if job.standardize:
        raise UsageError("an embedding is not standardized again", hint="leave out --standardize, or give it to embed")
    assert isinstance(store, StoredFiles)  # only stores on disk have a map, and rows of these cannot be held out
    return store, replace(plan, features=Embedded(read_map(store.root, map_digest), bias_value(job)))


def estimate_feature_work(solver: AnySolver, problems: list[Problem]) -> tuple[int, int] | None:
    """Return the expected number of passes, and the number of rows whose features are computed, summed over all passes
    and problems. None if every pass needs the features of all rows.
    """
    expected = solver.estimate_work(problems[0])
    if expected is None:
        return None
    passes, formed = expected
    return passes, len(problems) * formed


def set_feature_placement(request: NystromRequest, where: str, expected: tuple[int, int] | None) -> NystromRequest:
    """Return the request with the features stored on disk, or computed in every pass, as ``where`` says.

    Features computed in every pass are handed over as low-rank factors if the solver has an estimate (``expected``) of
    the rows whose features it needs.
    """
    return replace(request, factored=where == ON_THE_FLY and expected is not None, on_disk=where == DISK)


def max_landmarks_in_limit(
    job: FitJob, store: Store, solver_name: str, problems: list[Problem], request: NystromRequest
) -> int:
    """Return the largest number of landmarks that fits the memory limit, with the solver chosen for that number; 0 if
    not even one fits.

    With ``auto``, measurements decide later whether features are stored on disk or computed in every pass, so that the
    number must fit in both cases.
    """
    places = (DISK, ON_THE_FLY) if job.embedding == AUTO else (job.embedding,)

    def max_with_solver(name: str, upper_bound: int) -> int:
        solver = build_solver(job, name, problems[0])
        bounded = replace(request, landmarks=upper_bound)
        requests = [set_feature_placement(bounded, place, estimate_feature_work(solver, problems)) for place in places]
        return min(max_landmarks(job, store, solver, problems, placed) for placed in requests)

    landmarks = max_with_solver(solver_name, request.landmarks)
    if job.landmarks is None or not 0 < landmarks <= MANY_LANDMARKS:
        return landmarks
    chosen_name, _ = choose_solver(replace(job, landmarks=landmarks), store.layout, problems[0])
    return landmarks if chosen_name == solver_name else max_with_solver(chosen_name, landmarks + 1)
