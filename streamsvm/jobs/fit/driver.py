"""Run a fit: train a certified model on a store and write it with the record of the run, or train on rows in memory.

A fit is planned (``plan``), trained until its duality gap is at most the tolerance, evaluated as the model will be
saved (``certify``), and written (``outputs``). One training is one loop of passes by one solver. If dual coordinate
descent stalls, or float32 features are too inaccurate, a second training follows (``fallback``).

**On a cluster** each task has one thread, and the memory limit is per task. For a solver that only computes sums in a
pass, the layout fixes the groups of chunks. An online solver, which updates the weights while it reads, has ``groups``
groups, by default one per thread of the cluster and at least ``MIN_GROUPS``, and scales its updates by their number
(CoCoA+ for dual coordinate descent).

**Rows in memory** (``fit_in_memory``) are trained with the same plan, passes and certificate, but without checkpoints
and record, so that a fit of a hundred rows takes milliseconds. Per-row state that does not fit the memory limit goes to
a temporary file. Small problems of an exact kernel are solved without passes (``solvers.kernel.small_problems``).

Such a fit continues below the tolerance if that is cheap, because ||w - w*|| <= sqrt(2 gap): with a gap of 1e-3, a fit
with a row of weight k and a fit with k copies of that row would agree in few digits only. If Newton steps are cheap,
they are made until rounding error stops them. The last step lies in the piece of the piecewise quadratic P that contains
the optimum, and is exact there (Mangasarian, "A finite Newton method for classification", 2002), so that both fits
agree to 1e-11. Exact kernels and one class continue for at most ``EXTRA_PASSES`` passes. The status of the fit depends
on the requested tolerance alone.
"""

from __future__ import annotations

import hashlib
import math
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from streamsvm import durable
from streamsvm.compute import threading
from streamsvm.compute.compile_clock import CLOCK
from streamsvm.config.command_table import format_command
from streamsvm.config.options import Checked
from streamsvm.config.units import percent, seconds_text
from streamsvm.durable import remove_stale_scratch
from streamsvm.engine import signals, time_limit
from streamsvm.engine.block_visitor import targets_and_weights
from streamsvm.engine.checkpoint import CheckpointDirectory, CheckpointFile, RunCheckpointer
from streamsvm.engine.executor import Executor, executor_for, local_executor
from streamsvm.engine.fit_state import ProblemRun, Training
from streamsvm.engine.group_tasks import Work
from streamsvm.engine.local_loop import local_trainer
from streamsvm.engine.loop import FitLoop, GroupFit, RunSettings, end_fit
from streamsvm.engine.partition import fit_groups
from streamsvm.engine.progress import ProgressReporter
from streamsvm.engine.row_state import GroupStateFiles
from streamsvm.engine.shared_files import Place, join_place, open_place
from streamsvm.engine.state_transfer import DriverState
from streamsvm.engine.store_reference import StoreGuard, reference_to
from streamsvm.errors import DataError, InterruptedRun, MissingError, UsageError
from streamsvm.features.curves import Curves
from streamsvm.features.scaling import Raw, Standardized
from streamsvm.input_files import find_url, restore_urls
from streamsvm.jobs import JobResult
from streamsvm.jobs.calibrate import (
    Calibrated,
    CalibrationTimeout,
    add_calibrations,
    add_threshold,
    calibrate,
    calibration_events,
    calibration_passes,
    read_loss_calibrations,
    remaining_time,
    timeout_event,
)
from streamsvm.jobs.embed.plan import DISK, ON_THE_FLY
from streamsvm.jobs.fit.certify import Evaluated, certify, enclose_optima, final_passes, save_dual
from streamsvm.jobs.fit.fallback import (
    FLOAT64,
    continue_in_float64,
    fallback_event,
    float64_event,
    has_enough_left,
    has_solver_stalled,
    is_too_coarse,
    may_stall_on_features,
    plan_fallback,
    plan_float64_fallback,
)
from streamsvm.jobs.fit.label_leaks import label_leak_notice
from streamsvm.jobs.fit.notices import (
    describe_unscaled_columns,
    enclosure_notice,
    explain_missing_certificate,
    ineffective_settings,
    list_precision_notices,
    make_strict_error,
    memory_notices,
    missing_calibration_notice,
    offset_notice,
    scale_notice,
    threshold_notice,
)
from streamsvm.jobs.fit.options import FitJob
from streamsvm.jobs.fit.outputs import EVENTS, build_models, model_paths, paths_by_C, run_folder, summary, write_outputs
from streamsvm.jobs.fit.plan import (
    Plan,
    make_features,
    make_plan,
    pin_automatic_choices,
    to_model_rows,
    warm_start_from_model,
    warm_start_from_training,
    with_map,
)
from streamsvm.jobs.fit.resume import (
    MIN_GROUPS,
    complete_identity,
    describe_missing_checkpoint,
    list_outputs,
    plan_fit,
    read_finished_run,
)
from streamsvm.jobs.fit.validate import (
    check_validation,
    edge_of_C_notice,
    find_best_C,
    majority_class_notice,
    make_validation,
    open_training_store,
    score_models,
)
from streamsvm.jobs.run_record import run_log, write_record
from streamsvm.locks import hold_lock
from streamsvm.model import Model
from streamsvm.outputs import check_writable, output_path
from streamsvm.rows import Int64, copy_rows
from streamsvm.schedule import budget
from streamsvm.schedule.budget import MAX_CACHED_BYTES
from streamsvm.schedule.machine import PeakWatch, limit_blas_threads
from streamsvm.solvers.newton.solver import Newton
from streamsvm.solvers.small_problems import SmallProblem
from streamsvm.store.views import MemoryStore
from streamsvm.type_aliases import JsonObject
from streamsvm.types import Certificate, Kind, Layout, LinearSolution, Problem, Report, Status, Stop, Store, silent
from streamsvm.working_copies import find_working_folder, run_with_copies

if TYPE_CHECKING:
    from streamsvm.display.html import Markup
    from streamsvm.jobs.apply.evaluate import EvaluateResult

STOP = "stop"
"""The value of ``at_limit`` that stops a run at its time limit with a checkpoint."""
MAX_GROUP_BLOCK_BYTES = MAX_CACHED_BYTES
"""Largest size in bytes of a group whose rows are visited as one block."""
EXACT_TOLERANCE = 1e-14
"""Tolerance of Newton's method where it continues until rounding error stops it."""
EXACT_WORK = 1e8
"""Newton's method gets EXACT_TOLERANCE if a step takes at most this many multiplications: rows x weights x min(rows,
weights)."""
NEARLY_EXACT_TOLERANCE = 1e-12
"""Tolerance of exact kernels, and of one class with a free offset, where a small gap is cheap."""
NEARLY_EXACT_WORK = 1e7
"""A small gap is cheap if all kernel values take at most this many multiplications: rows x rows x columns."""
FAR_TOLERANCE_RATIO = 0.01
"""One class: if a problem's tolerance is below this fraction of the requested one, its rows are so far from 0
(``relative_spread``) that an even smaller tolerance gains nothing."""
TIGHTENED_TOLERANCE_RATIO = 0.5
"""A fit continues below the requested tolerance if a problem's tolerance is below this fraction of it. Slightly smaller
tolerances only reserve a part for rounding error."""
EXTRA_PASSES = 20
"""Maximum number of passes after the requested gap was reached."""
MIN_PASSES = 20
"""A small fit in memory is solved without passes if at least this many passes are allowed."""
CURVES = "curves"
"""The folder of the state of curves that are fitted before pairs are chosen."""
NO_PATH = ""
"""The path of a store or model that is not on disk."""

Certificates = list[Certificate | None]
"""The certificates of all problems."""


@dataclass(frozen=True, slots=True, repr=False)
class MemoryFitResult(JobResult):
    """The result of a fit of rows in memory."""

    model: Model
    """The model of the last C."""
    models: dict[float, Model]
    """All models, by C."""
    training: Training
    """The finished training."""
    plan: Plan
    """The plan of the last training."""
    precision_notices: tuple[str, ...] = ()
    """The part of the notices that names columns and rows which lose much precision in float32."""


@dataclass(frozen=True, slots=True, repr=False)
class FitResult(JobResult):
    """The result of a fit: the model, the training and the folder of its record."""

    model: Model
    """The model with the best C on held-out rows; without held-out rows, the model of the last C."""
    training: Training
    """The finished training. For a run that had already finished, it is read from the record, without solver states."""
    plan: Plan
    """The plan of the last training."""
    run: Path | str
    """The folder with the plan, the events, the certificate and a copy of the model; a text for a URL."""
    models: dict[float, Model]
    """All models, by C."""
    evaluation: EvaluateResult | None = None
    """The measures on held-out rows, for a fit of files with held-out rows; else None."""

    @property
    def gap(self) -> float:
        """The relative duality gap (P - D) / |P|, an upper bound of the distance of P from its optimum; the largest one
        of several problems.
        """
        certificates = [run.certificate for run in self.training.runs if run.certificate is not None]
        return max((certificate.gap for certificate in certificates), default=float("inf"))

    @property
    def certified(self) -> bool:
        """Whether the gap is at most the requested tolerance."""
        return self.gap <= self.plan.tolerance

    @property
    def status(self) -> str:
        """The reason why the fit ended: 'converged', 'max passes', 'time limit', 'patience', ..."""
        return self.training.status.value

    @property
    def passes(self) -> int:
        """The number of passes over the data."""
        return self.training.passes

    def summary(self) -> dict[str, str]:
        """Return the path of the model and how it was trained, as short texts by name."""
        model = str(self.run).removesuffix(".run")
        return {
            **(
                {"model": model} if isinstance(self.run, str) or self.run.is_dir() else {}
            ),  # a fit of arrays may have deleted its files
            "solver": self.plan.solver_name,
            "gap": f"{percent(self.gap)} ({percent(self.plan.tolerance)} asked for)",
            "status": self.status,
            "passes": str(self.passes),
            "time": seconds_text(self.training.seconds),
            **({} if self.evaluation is None else {f"held out: {k}": v for k, v in self.evaluation.summary().items()}),
        }

    def _more(self) -> tuple[Markup, ...]:
        """Return the page of the run, collapsed; empty if its record was deleted or is at a URL."""
        if isinstance(self.run, str):
            return ()
        from streamsvm.display.html import fold
        from streamsvm.display.page import build_page, frame_page
        from streamsvm.display.read_record import read_run

        try:
            return (fold("Show the page of the run", frame_page(build_page([read_run(self.run)]))),)
        except (MissingError, DataError):
            return ()


@dataclass(frozen=True, slots=True)
class FitContext:
    """The inputs that the steps of a planned fit share."""

    job: FitJob
    """The job, with its automatic choices made explicit."""
    store: Store
    """The training rows."""
    plan: Plan
    """The plan before the first pass."""
    report: Report
    """The receiver of events."""
    began: float
    """The start of the job in seconds of ``time.monotonic``, before workers are started and features are built."""
    held_out: Store | None = None
    """The held-out chunks, if a fraction of the store is held out."""
    executor: Executor | None = None
    """The executor of the groups; None: the threads of this process."""
    directory: Path | None = None
    """The folder of per-row state; None: the state is in memory and not saved."""
    checkpoints: CheckpointDirectory | None = None
    """The folder of checkpoints; None for rows in memory, which have no checkpoints."""
    saved: list[CheckpointFile] = field(default_factory=list)
    """The checkpoints to resume from, newest first; empty for a new run."""
    notices: tuple[str, ...] = ()
    """Notices about an earlier run."""
    asked: Checked | None = None
    """The job as the user gave it, if it differs from ``job``."""
    test_store: Path | None = None
    """The held-out rows of files, on which the best of several C is chosen; None: it is not."""

    def command(self, **changed: bool) -> str:
        """Return the command that repeats the fit."""
        return format_command("fit", self.job if self.asked is None else self.asked, **changed)

    @property
    def run(self) -> Path:
        """The run's folder."""
        assert self.checkpoints is not None
        return self.checkpoints.directory.parent


class TrainedFit(NamedTuple):
    """A finished training; its per-row state is still open."""

    seen: Store
    """The store that the solver has read: the rows, or their features."""
    plan: Plan
    """The plan of the last training; after a fallback it is not the plan of the fit."""
    training: Training
    """The finished training, with the certificates of the model to save."""
    pass_certificates: Certificates
    """The certificates of the solver's last pass; empty if the solver stalled and was not evaluated."""
    evaluated: list[Evaluated]
    """What is proved of each problem, if enclosures are asked for."""


def fit(
    job: FitJob,
    report: Report = silent,
    executor: Executor | None = None,
    asked: Checked | None = None,
    test_store: Path | None = None,
) -> FitResult:
    """Train and save a model, through ``executor`` or the cluster the job names. Its files may be at URLs.

    ``asked``: the job as the user gave it, from which the command to repeat the fit is formed; None: ``job``.
    ``test_store``: held-out rows of files, on which the best of several C is chosen; None: it is not.

    Raises every kind of StreamSVMError: BudgetError before the first pass; InterruptedRun when a signal stops the run,
    with the command that resumes it.
    """
    began = time.monotonic()

    def fit_with_local_outputs(job: FitJob, report: Report) -> FitResult:
        with executor_for(job, executor) as workers:
            if workers is not None:  # a task is one thread
                job = replace(job, memory=budget.memory_limit(workers.memory_limit(job.memory)), threads=1)
            return _plan_and_fit(job, report, workers, began, asked, test_store)

    return run_with_copies(fit_with_local_outputs, job, report)


def _plan_and_fit(  # noqa: PLR0917
    job: FitJob,
    report: Report,
    executor: Executor | None,
    began: float,
    asked: Checked | None,
    test_store: Path | None,
) -> FitResult:
    """Plan, check that the outputs can be written, and fit. If the run to resume had already finished, return its recorded
    result.
    """
    target = output_path(job.model)
    store, held_out = open_training_store(job, chooses_C=test_store is not None)
    checkpoints = CheckpointDirectory(run_folder(target) / "checkpoint")
    shared = _shared_place(job, checkpoints.directory)
    if isinstance(shared, str) and (executor is not None or job.scratch is not None):
        checkpoints.shared = shared
    if executor is not None and isinstance(shared, str) and (job.landmarks or job.landmark_file):
        job = _compute_features_in_passes(job)
    if not (job.resume or job.overwrite):
        checkpoints.check_absent()
    saved = checkpoints.read() if job.resume else []
    job, plan = plan_fit(job, store, saved, executor)
    context = FitContext(
        job,
        store,
        plan,
        report,
        began,
        held_out,
        executor,
        checkpoints.directory,
        checkpoints,
        saved,
        asked=asked,
        test_store=test_store,
    )
    earlier = read_finished_run(job, store, plan) if job.resume and not job.overwrite else None
    if earlier is not None:
        training, models = earlier
        with hold_lock(target), checkpoints.open(keep_existing=True):  # closing it deletes a checkpoint left behind
            report(final_event(job, plan, training))
        _draw_page(context)
        return _result(context, plan, training, models)
    check_validation(job, plan)
    plan.memory.check(plan.remedy)
    context = replace(context, notices=describe_missing_checkpoint(job, store, plan.costs, checkpoint=bool(saved)))
    held_out_path = job.validation if isinstance(job.validation, str) else None
    inputs = [job.store, job.landmark_file, job.warm_start, held_out_path]
    check_writable(list_outputs(job, store, plan.costs, checkpoint=bool(saved)), inputs, overwrite=job.overwrite)
    with hold_lock(target), checkpoints.open(keep_existing=bool(saved)):
        for path in model_paths(job, plan.costs):
            remove_stale_scratch(path)
        return _fit_planned(context)


def _compute_features_in_passes(job: FitJob) -> FitJob:
    """Return a job whose workers need no embedding on a disk. Raises UsageError if it asks for one."""
    if job.embedding == DISK:
        hint = "pass --embedding fly, or embed first, at a URL, and fit the embedding"
        raise UsageError("--embedding disk needs a folder that all workers see", hint=hint)
    return replace(job, embedding=ON_THE_FLY)


def _fit_planned(context: FitContext) -> FitResult:
    """Build the features, train, and write the outputs."""
    job, store = context.job, context.store
    assert context.checkpoints is not None
    with ExitStack() as stack:
        compiled, watch = CLOCK.seconds(), stack.enter_context(PeakWatch())
        if job.overwrite and not context.saved:
            (context.run / EVENTS).unlink(missing_ok=True)  # else the log of this run follows that of the one before
        first_event = {"command": context.command(), "resumed": bool(context.saved)}
        record = stack.enter_context(run_log(context.report, context.run / EVENTS, first_event))
        context = replace(context, report=record)
        record({"event": "plan", **context.plan.facts()})
        stack.enter_context(limit_blas_threads())  # BLAS threads would compete with the workers for cores
        stack.enter_context(threading.use_threads(context.plan.memory.threads))
        limit = stack.enter_context(ExitStack())
        with signals.set_resume_command(context.command(resume=True)):
            limit.enter_context(time_limit.limit_time(job.time_limit, time.monotonic() - context.began, finish=True))
            feature_store, planned = make_features(job, store, context.plan, context.run, record, context.executor)
            planned, previous = add_pairs(context, planned)
        fallback_plan = plan_fallback(job, store, planned)
        trained = stack.enter_context(
            train_to_certificate(context, feature_store, planned, fallback_plan, previous=previous)
        )
        plan, training = trained.plan, trained.training
        stack.enter_context(signals.set_resume_command(context.command(resume=True)))
        with limit:  # the time limit includes the calibration, but not the writing
            calibrations = _calibrate(context, planned, trained)
        enclosures = enclose_optima(plan, training, store, trained.evaluated)
        models = add_calibrations(build_models(job, store, plan, training, enclosures), calibrations)
        if job.threshold is not None and job.validation is not None:
            models = _add_held_out_thresholds(context, planned, models)
        if context.test_store is not None and len(models) > 1:
            score_models(job, plan, training, models, context.test_store, record, context.executor)
        if job.dual:
            save_dual(Path(job.dual), trained.seen, plan, training)
        if missing_calibration_notice(job, models):
            _keep_checkpoint(context, trained)
        write_outputs(job, plan, training, models, lambda: watch.peak)
        result = _result(context, plan, training, models)
        messages = (result.warnings, result.notices)
        write_record(job, store, plan, result.model, training.passes, messages, CLOCK.seconds() - compiled)
        record(final_event(job, plan, training))
    _draw_page(context)
    return result


def fit_in_memory(job: FitJob, store: Store, report: Report = silent, start: Model | None = None) -> MemoryFitResult:
    """Train on the rows of ``store``; kernel features are computed in every pass. Options about files have no effect.

    ``start``: a linear model of the same columns and classes as a warm start. Raises BudgetError, UsageError, DataError,
    DefectError.
    """
    began = time.monotonic()
    job = job if job.embedding == ON_THE_FLY else replace(job, embedding=ON_THE_FLY)
    plan = make_plan(job, store)
    job = pin_automatic_choices(job, plan)
    if start is not None:
        plan = warm_start_from_model(plan, store, start)
    plan.memory.check(plan.remedy)
    original_problems = plan.problems
    plan = tighten_tolerance(plan)
    report = _stop_after_extra_passes(plan, report)
    with ExitStack() as stack:
        directory = None
        if not plan.memory.resident or plan.request is not None:
            directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="streamsvm-")))
        stack.enter_context(threading.use_threads(plan.memory.threads))
        context, planned = FitContext(job, store, plan, report, began, directory=directory), plan
        training = _solve_small(context) if start is None and _is_small(job, store, plan) else None
        if training is not None:
            trained = TrainedFit(store, plan, training, [run.certificate for run in training.runs], [])
        else:
            stack.enter_context(limit_blas_threads())
            feature_store, planned = make_features(job, store, plan, directory or Path(NO_PATH), report)
            planned, previous = add_pairs(context, planned)
            trained = stack.enter_context(train_to_certificate(context, feature_store, planned, previous=previous))
        plan, training = trained.plan, trained.training
        calibrations = _calibrate(context, planned, trained)
        enclosures = enclose_optima(plan, training, store, trained.evaluated)
        models = add_calibrations(build_models(job, store, plan, training, enclosures), calibrations)
    warnings = (*explain_missing_certificate(job, store, plan, training), *missing_calibration_notice(job, models))
    precision = list_precision_notices(replace(plan, problems=original_problems), store)
    return MemoryFitResult(
        models[plan.costs[-1]],
        models,
        training,
        plan,
        warnings=warnings,
        notices=(*memory_notices(plan), *precision, *enclosure_notice(plan, models[plan.costs[-1]])),
        precision_notices=precision,
    )


def _is_small(job: FitJob, store: Store, plan: Plan) -> bool:
    """Return whether the problems of a fit in memory are solved without passes: small ones of a linear function or of an
    exact kernel, if no option is about passes.
    """
    if plan.solver_name not in {"decomposition", "newton"} or job.solver != "auto":
        return False
    if job.options or job.max_support is not None or plan.request is not None or plan.curves is not None:
        return False
    if job.needs_scores or not math.isinf(job.time_limit) or job.max_passes < MIN_PASSES or plan.enclosure is not None:
        return False
    if not isinstance(store, MemoryStore):
        return False
    small_problems = _small_problems_of(plan)
    if not all(map(small_problems.is_small, plan.problems)):
        return False
    return bool(plan.memory.total + small_problems.small_problem_bytes(plan.problems) <= plan.memory.limit)


def _small_problems_of(plan: Plan) -> ModuleType:
    """Return the module that solves the small problems of a plan."""
    if plan.solver.exact_kernel:
        from streamsvm.solvers.kernel import small_problems as of_kernels

        return of_kernels
    from streamsvm.solvers.newton import small_problems

    return small_problems


def _solve_small(context: FitContext) -> Training | None:
    """Return the training with all problems solved and certified; None if one of them needs the passes of the solver."""
    plan, store = context.plan, context.store
    assert isinstance(store, MemoryStore)
    assert isinstance(plan.features, Raw | Standardized)
    chunk = store.all_rows()
    X = plan.features.apply(copy_rows(chunk.X))
    rows_of_kind: dict[Kind | None, Int64] = {}

    def choose_rows(problem: Problem) -> SmallProblem:
        kind = problem.kind if problem.kind.selects_rows else None
        if kind not in rows_of_kind:
            chosen = problem.kind.select(chunk.codes)
            rows_of_kind[kind] = np.arange(len(chunk.codes)) if chosen is None else np.flatnonzero(chosen)
        numbers = rows_of_kind[kind]
        weight = None if chunk.weight is None else chunk.weight[numbers]
        return SmallProblem(problem, numbers, *targets_and_weights(problem, chunk.codes[numbers], weight))

    training = Training([], passes=1)
    progress = ProgressReporter(training, context.report)
    small_problems = map(choose_rows, plan.problems)
    solved_problems = _small_problems_of(plan).solve_small_problems(small_problems, X, plan.tolerance)
    for problem, solved in zip(plan.problems, solved_problems, strict=True):
        if solved is None:
            return None
        training.runs.append(ProblemRun(problem, solved.state, solved.certificate, done=True))
    for position, run in enumerate(training.runs, 1):
        progress.report_problem(position, len(training.runs))
        progress.report_certificate(position - 1, run)
    training.seconds = progress.stopwatch.seconds
    certify(plan, training, store, store)
    return training


@contextmanager
def train_to_certificate(
    context: FitContext,
    feature_store: Store,
    planned: Plan,
    fallback_plan: Plan | None = None,
    *,
    previous: Training | None = None,
) -> Iterator[TrainedFit]:
    """Train, train again by a fallback if that is needed, and yield the certified result with its per-row state open.

    ``feature_store``: the store that the solver reads, of rows or of their features. ``fallback_plan``: the plan with the solver
    to use if the first one stalls; None: there is no such solver. ``previous``: a finished training whose passes and seconds are
    added, that of the curves from which pairs were chosen.
    """
    store, report = context.store, context.report
    finer = plan_float64_fallback(context.job, store, planned)
    until_stall = fallback_plan is not None or (finer is not None and may_stall_on_features(planned))
    with _train(context, feature_store, planned, until_stall=until_stall, previous=previous) as (plan, training):
        pass_certificates = [run.certificate for run in training.runs]
        next_plan, evaluated = None, list[Evaluated]()
        if training.status == Status.STALLED and training.active():
            pass_certificates = []
            next_plan = fallback_plan
        else:
            evaluated = _certify_without_compile_time(plan, training, store, feature_store)
        if next_plan is not None:
            report(fallback_event(training, next_plan))
        elif finer is not None and _should_use_float64(context, plan, training, pass_certificates):
            report(float64_event(plan, training, pass_certificates))
            next_plan = continue_in_float64(finer, plan, training)
        if next_plan is None:
            yield TrainedFit(feature_store, plan, training, pass_certificates, evaluated)
            return
        feature_store = store if next_plan.request is not None else feature_store
        previous = replace(training, runs=[], row_states={})
        del training  # frees its rows before the next training allocates memory
    with _train(replace(context, saved=[]), feature_store, next_plan, previous=previous) as (plan, training):
        pass_certificates = [run.certificate for run in training.runs]
        evaluated = _certify_without_compile_time(plan, training, store, feature_store)
        yield TrainedFit(feature_store, plan, training, pass_certificates, evaluated)


def _certify_without_compile_time(
    plan: Plan, training: Training, store: Store, feature_store: Store
) -> list[Evaluated]:
    """Certify the training. Compilation, which happens once on a machine, does not count as time of the job."""
    with time_limit.job_clock.without_compiler():
        return certify(plan, training, store, feature_store)


def _should_use_float64(context: FitContext, plan: Plan, training: Training, pass_certificates: Certificates) -> bool:
    """Return whether to train again on float64 features: the solver stalled, or float32 was too inaccurate and there is
    enough time.
    """
    if not pass_certificates:
        return True
    seconds_spent = time.monotonic() - context.began
    return is_too_coarse(plan, training, pass_certificates) and has_enough_left(context.job, training, seconds_spent)


def add_pairs(context: FitContext, plan: Plan) -> tuple[Plan, Training | None]:
    """Return the plan with the pairs of columns that the job asks for, and the finished fit of curves from which they were
    chosen by a test, without its state; None if there was none. Without --pairs the plan is returned unchanged.

    The curves are fitted for the largest C only, which shrinks them least.
    """
    request, curves, job = None if plan.curves is None else plan.curves.pairs, plan.features, context.job
    if request is None or not isinstance(curves, Curves):
        return plan, None
    from streamsvm.jobs.fit.column_pairs import ADDITIVE_TOLERANCE, choose_pairs, find_named_pairs, with_pairs

    assert curves.variables is not None  # the map was made for pairs
    store, largest = context.store, max(plan.costs)
    problems = [problem for problem in plan.problems if problem.C == largest]
    if not request.is_chosen_by_test:
        pairs = find_named_pairs(request, curves.variables)
        context.report({"event": "pairs", "pairs": len(pairs)})
        return with_map(plan, with_pairs(curves, pairs, store, request.scale, job.prefetch)), None
    additive_plan = replace(plan, problems=[replace(one, tolerance=ADDITIVE_TOLERANCE) for one in problems])
    with closing(_make_loop(replace(context, report=silent), store, additive_plan, CURVES)) as loop:
        training = loop.train(Stop(job.max_passes, max(0.0, job.time_limit - (time.monotonic() - context.began))))
        solutions = [plan.solver.solution(run.state) for run in training.runs]
    rows = [solution.w for solution in solutions if isinstance(solution, LinearSolution)]
    previous = replace(training, runs=[], row_states={})
    del training, solutions  # frees their rows before the sums of the test are allocated
    weights = np.concatenate([to_model_rows(plan, w) for w in rows])
    chosen = choose_pairs(request, curves, store, problems, weights, job.prefetch)
    context.report({"event": "pairs", "pairs": len(chosen.pairs), "tested": chosen.tested, "passed": chosen.passed})
    if not chosen.pairs:
        return plan, previous
    plan = with_map(plan, with_pairs(curves, chosen.pairs, store, request.scale, job.prefetch))
    return plan, previous


@contextmanager
def _train(
    context: FitContext,
    feature_store: Store,
    plan: Plan,
    *,
    until_stall: bool = False,
    previous: Training | None = None,
) -> Iterator[tuple[Plan, Training]]:
    """Train by one solver on one kind of features; yield the finished training with its per-row state open.

    ``until_stall``: stop when the solver stalls. ``previous``: the training before, whose passes and seconds are added.
    """
    job = context.job
    checkpointer = None if context.checkpoints is None else _checkpointer(context, plan)
    evaluator = None
    if context.checkpoints is not None:
        evaluator = make_validation(job, plan, context.held_out, context.report, context.executor)
    with closing(_make_loop(context, feature_store, plan)) as loop:
        loop.reserved_passes = final_passes(plan) + calibration_passes(job, plan.solver, plan.problems)
        loop.evaluator, loop.should_fall_back = evaluator, has_solver_stalled if until_stall else None
        if previous is not None:
            loop.training.continue_counts_from(previous)
        if checkpointer is None:
            yield plan, loop.train(Stop(job.max_passes, max(0.0, job.time_limit - loop.training.seconds)))
            return
        seconds_used, stops_at_limit = time.monotonic() - context.began, job.at_limit == STOP
        limit = math.inf if stops_at_limit else max(0.0, job.time_limit - seconds_used)
        with (
            signals.defer_signals(),
            time_limit.limit_time(job.time_limit if stops_at_limit else math.inf, seconds_used),
        ):
            training = loop.train(Stop(job.max_passes, limit), checkpointer)
            if evaluator is not None:
                plan, training = evaluator.choose_best(plan, training, loop)
        pass_certificates = [run.certificate for run in training.runs]
        try:
            with signals.set_resume_command(context.command(resume=True)):
                yield plan, training
        except InterruptedRun as error:  # during the final evaluation: save the finished training
            if evaluator is not None:
                raise
            with _certificates_of_last_pass(training, pass_certificates):
                raise checkpointer.save_interrupted(training) from error


def _checkpointer(context: FitContext, plan: Plan) -> RunCheckpointer:
    """Return the writer of checkpoints. Raises ConfigError if the features differ from those of the checkpoint."""
    job, interruption = context.job, signals.interruption
    assert context.checkpoints is not None
    interruption.last_checkpoint_message = "There is no earlier one"
    return RunCheckpointer(
        context.checkpoints,
        complete_identity(job, context.store, plan, context.saved),
        StoreGuard(context.store),
        interruption,
        job.checkpoint_every,
        context.command(resume=True),
        context.report,
        context.began
        + job.time_limit
        + (0.0 if job.at_limit == STOP else time_limit.finishing_seconds(job.time_limit)),
        context.saved,
    )


def _keep_checkpoint(context: FitContext, trained: TrainedFit) -> None:
    """Keep a checkpoint of a finished training, so that --resume repeats the calibration only."""
    assert context.checkpoints is not None
    if context.job.validation is None and not trained.training.active():
        with _certificates_of_last_pass(trained.training, trained.pass_certificates):
            _checkpointer(replace(context, saved=[]), trained.plan).save(trained.training)
        context.checkpoints.keep_after_success = True


@contextmanager
def _certificates_of_last_pass(training: Training, pass_certificates: Certificates) -> Iterator[None]:
    """Give a training the certificates of its last pass while a checkpoint is written. A resumed run repeats the final
    evaluation, whose certificates are put back afterwards.
    """
    evaluated = [run.certificate for run in training.runs]
    for run, certificate in zip(training.runs, pass_certificates, strict=True):
        run.certificate = certificate
    try:
        yield
    finally:
        for run, certificate in zip(training.runs, evaluated, strict=True):
            run.certificate = certificate


def _make_loop(context: FitContext, feature_store: Store, plan: Plan, folder: str = "") -> FitLoop:
    """Return the loop of passes, in this process or on a cluster. ``folder``: that of its state between passes, if another
    training needs its own.
    """
    directory = context.directory
    if plan.request is not None and plan.request.exact:  # checkpoints of the float32 training still need its files
        folder = FLOAT64
    if context.checkpoints is None:
        return local_loop(context.job, feature_store, plan, None if plan.memory.resident else directory, context.report)
    assert directory is not None
    shared = _shared_place(context.job, directory)
    if folder:
        directory /= folder
        shared = join_place(shared, folder)
        durable.make_directory(directory)
    if context.executor is None:
        left_by_cluster = None if context.job.scratch is None else shared
        return local_loop(context.job, feature_store, plan, directory, context.report, shared=left_by_cluster)
    if isinstance(shared, str):
        open_place(shared)
    from streamsvm.engine.cluster_loop import DistributedTrainer

    fit = _group_fit(context.job, plan, feature_store, directory, shared)
    return DistributedTrainer(fit, context.executor, context.report)


def _shared_place(job: FitJob, directory: Path) -> Place:
    """Return where the workers of a cluster keep their files between passes: at a URL if the model or --scratch is at one, else
    in ``directory``, the folder of checkpoints.
    """
    if job.scratch is not None:
        name = hashlib.sha256(str(directory.resolve()).encode()).hexdigest()[:16]
        return join_place(find_url(job.scratch) or Path(job.scratch).resolve(), f"{Path(job.model).name}.{name}")
    folder = find_working_folder(directory)
    return directory.resolve() if folder is None else folder.url_of(directory)


def local_loop(
    job: FitJob, store: Store, plan: Plan, directory: Path | None, report: Report, *, shared: Place | None = None
) -> FitLoop:
    """Return the loop of passes in this process. ``directory``: the folder of per-row state; None: in memory. ``shared``: where a
    run on a cluster has left its files, if that is not ``directory``.
    """
    memory, groups = plan.memory, job.groups
    whole = groups is not None and _groups_are_blocks(plan, store.layout, groups)
    kept = (memory.retain, memory.cached, directory, memory.resident)
    depth = job.prefetch if memory.depth is None else memory.depth
    if isinstance(store, MemoryStore):
        depth = 0  # threads that read ahead would only copy arrays
    settings = RunSettings(job.seed, depth, *kept, groups=groups, whole_groups=whole, shared=shared)
    executor = local_executor(memory.threads)
    return local_trainer(store, plan.solver, plan.problems, plan.features, settings, report, executor)


def _group_fit(job: FitJob, plan: Plan, store: Store, directory: Path, shared: Place) -> GroupFit:
    """Return the work of the tasks of a cluster. ``directory``: the folder of checkpoints; ``shared``: where the workers keep their
    files between passes.
    """
    solver, layout = plan.solver, store.layout
    count = job.groups or (MIN_GROUPS if solver.shuffled else None)
    groups = fit_groups(solver, layout, count)
    solver = solver.in_parts(len(groups))
    problems = tuple(plan.problems)
    work = Work(
        reference_to(store),
        solver,
        problems,
        plan.features,
        job.seed,
        depth=1 if plan.memory.depth is None else plan.memory.depth,
        retain=plan.memory.retain,
        whole_groups=_groups_are_blocks(plan, layout, len(groups)),
        state_files=tuple(GroupStateFiles(shared, state, len(problems)) for state in solver.row_state),
        driver_state=DriverState(shared, solver.driver_fields) if solver.driver_fields else None,
        witnesses=job.dual is not None or plan.request is not None,  # for ``certify``
    )
    return GroupFit(work, groups, layout, plan.memory.total, directory=directory, shared=shared)


def _groups_are_blocks(plan: Plan, layout: Layout, groups: int) -> bool:
    """Return whether each group is one block, so that all its rows are visited in random order; for shuffling solvers
    and small groups.
    """
    may_shuffle = plan.solver.shuffled and isinstance(plan.features, Raw | Standardized)
    group_bytes = 2 * layout.bytes_in_memory // groups
    fits = plan.memory.cached or group_bytes <= plan.memory.limit - plan.memory.total
    return may_shuffle and fits and group_bytes <= MAX_GROUP_BLOCK_BYTES


def _calibrate(context: FitContext, planned: Plan, trained: TrainedFit) -> dict[float, Calibrated]:
    """Return the calibrations of a fit, by C. ``planned`` is the plan before the first training.

    At the time limit only the calibrations that follow from the loss are returned; a job with --at-limit stop raises
    CalibrationTimeout. Fits of folds do not save their per-row state.
    """
    job, plan, training = context.job, trained.plan, trained.training
    by_loss = read_loss_calibrations(plan) if job.calibrate is None else {}
    if not job.needs_scores:
        return by_loss
    from streamsvm.jobs.calibration_scores import FoldFits

    on_disk = context.checkpoints is not None
    directory, report = (context.directory, context.report) if on_disk else (None, silent)
    base = planned if on_disk and job.validation is not None else plan
    fits = FoldFits(
        warm_start_from_training(base, plan, training),
        lambda rows, fold_plan: local_loop(job, rows, fold_plan, directory, silent),
        job.seed,
        job.prefetch,
        job.max_passes,
        remaining_time(job, context.began),
    )
    try:
        calibrations = calibrate(job, plan, training, trained.seen, fits, executor=context.executor)
    except CalibrationTimeout:
        if on_disk and job.at_limit == STOP:
            raise
        report(timeout_event(job))
        return by_loss
    for event in calibration_events(calibrations):
        report(event)
    return {
        C: replace(calibrated, calibration=by_loss[C].calibration) if C in by_loss else calibrated
        for C, calibrated in calibrations.items()
    }


def _add_held_out_thresholds(context: FitContext, plan: Plan, models: dict[float, Model]) -> dict[float, Model]:
    """Return the models with the best thresholds on the held-out rows; ``plan`` is the plan before the first training."""
    evaluator = make_validation(context.job, plan, context.held_out, context.report, context.executor)
    assert evaluator is not None
    thresholds = evaluator.choose_thresholds(context.job, models)
    for C, threshold in thresholds.items():
        context.report({"event": "threshold", "C": C, **threshold.facts()})
    return {C: add_threshold(model, thresholds[C]) for C, model in models.items()}


def tighten_tolerance(plan: Plan) -> Plan:
    """Return the plan with a smaller tolerance of its problems if that is cheap.

    Newton's method gets one for smooth losses only: with a kink no last step is exact.
    """
    layout, first = plan.layout, plan.problems[0]
    rows, weights = layout.rows, (layout.columns if plan.curves is None else first.columns) + 1
    if plan.request is not None:
        return plan
    tolerance = plan.tolerance
    if isinstance(plan.solver, Newton) and first.loss.smooth():
        is_cheap = len(plan.problems) * rows * weights * min(rows, weights) <= EXACT_WORK
        tolerance = EXACT_TOLERANCE if is_cheap else tolerance
    elif not first.regularizer.has_scale or plan.solver_name == "decomposition":
        is_cheap = len(plan.problems) * rows * rows * weights <= NEARLY_EXACT_WORK
        is_far = first.tolerance < FAR_TOLERANCE_RATIO * plan.tolerance
        tolerance = first.tolerance if is_far else (NEARLY_EXACT_TOLERANCE if is_cheap else tolerance)
    if tolerance >= plan.tolerance:
        return plan
    return replace(plan, problems=[replace(problem, tolerance=tolerance) for problem in plan.problems])


def _stop_after_extra_passes(plan: Plan, report: Report) -> Report:
    """Return a report that stops the fit ``EXTRA_PASSES`` passes after it reached the requested tolerance; ``report``
    itself if no problem has a much smaller tolerance.
    """
    gaps: dict[int, float] = {}

    def watch(event: JsonObject) -> None:
        report(event)
        if event["event"] == "pass":
            gaps[event["pass"]] = max(gaps.get(event["pass"], 0.0), event["gap"])
            reached = [number for number, gap in gaps.items() if gap <= plan.tolerance and number < event["pass"]]
            if reached and event["pass"] >= reached[0] + EXTRA_PASSES:
                end_fit()

    return (
        watch
        if any(problem.tolerance < TIGHTENED_TOLERANCE_RATIO * plan.tolerance for problem in plan.problems)
        else report
    )


def _result(context: FitContext, plan: Plan, training: Training, models: dict[float, Model]) -> FitResult:
    """Return the result of a fit with its notices and warnings."""
    job, store = context.job, context.store
    notices = (
        *context.notices,
        *memory_notices(plan),
        *([notice] if (notice := store.facts.get("notice")) else []),
        *([] if job.one_class else label_leak_notice(store)),
        *scale_notice(job, store),
        *offset_notice(plan, store),
        *describe_unscaled_columns(job, store),
        *ineffective_settings(job, plan),
        *majority_class_notice(plan, training),
        *edge_of_C_notice(plan, training),
        *_choice_notice(context, plan, training),
        *threshold_notice(models[find_best_C(plan, training)]),
        *enclosure_notice(plan, models[find_best_C(plan, training)]),
    )
    warnings = (*explain_missing_certificate(job, store, plan, training), *missing_calibration_notice(job, models))
    notices = tuple(notice for notice in notices if not any(notice in warning for warning in warnings))
    failure = make_strict_error(warnings) if job.strict else None
    best = models[find_best_C(plan, training)]
    page = None if job.report is None else output_path(job.report)
    return FitResult(
        best, training, plan, context.run, models, notices=notices, warnings=warnings, failure=failure, page=page
    )


def _choice_notice(context: FitContext, plan: Plan, training: Training) -> tuple[str, ...]:
    """Return a notice if C was chosen on the rows on which the model is evaluated; else empty."""
    if context.test_store is None or not training.validation_state:
        return ()
    chosen = f"C = {find_best_C(plan, training):g} was chosen on the rows that the model is evaluated on"
    return (f"{chosen}, so that its figures are a little too good; --validation 0.1 chooses on other rows",)


def _draw_page(context: FitContext) -> None:
    """Write the page of the run if the job names a file for it (--report)."""
    if context.job.report is not None:
        from streamsvm.jobs.report import write_page

        write_page([context.run], output_path(context.job.report))


def final_event(job: FitJob, plan: Plan, training: Training) -> JsonObject:
    """Return the last event of a run."""
    paths = paths_by_C(Path(job.model), plan.costs).values()
    return {"event": "done", "model": restore_urls(", ".join(map(str, paths))), **summary(training, plan)}
