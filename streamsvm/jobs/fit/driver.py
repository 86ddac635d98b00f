"""fit: a store and settings in, a certified model and the record of the run out; and the same for rows in memory.

A fit is planned (``plan``), trained until its certificate is good enough, evaluated as it will be saved (``certify``),
and written (``outputs``). Training is one loop of passes for one solver; where dual coordinate descent stalls, or
features in float32 are too coarse, a second one follows (``fallback``).

**On a cluster** a task is one thread, and the memory limit is that of a task. The groups of a solver that only sums in
a pass are fixed by the layout. A solver that updates weights while it reads has ``groups`` groups, by default one for
each thread of the cluster, but at least ``MIN_GROUPS``; it is told their number (CoCoA+ for dual coordinate descent).

**Rows in memory** (``fit_in_memory``) have the same plan, passes and certificate, and nothing on disk: no checkpoints,
no record, so that a fit of a hundred rows takes milliseconds. Where the memory limit has no room for per-row state it
lies in a temporary file. Where it is cheap they go on beyond the tolerance: with a gap of 1e-3 two fits of the same
problem, with a row of weight k and with k copies of it, agree in few digits only, as ||w - w*|| <= sqrt(2 gap). Where a
Newton step costs next to nothing, steps are made until rounding ends them: the last one lies in the piece of a
piecewise quadratic P in which the optimum is, and is exact there (Mangasarian, "A finite Newton method for
classification", 2002), so that both agree to 1e-11. Exact kernels and one class go on for at most ``EXTRA_PASSES``
passes. Whether a fit has converged is judged by the tolerance asked for.
"""

from __future__ import annotations

import math
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from threadpoolctl import threadpool_limits

from streamsvm import durable
from streamsvm.aliases import JsonObject
from streamsvm.compute import threading
from streamsvm.compute.compile_clock import CLOCK
from streamsvm.config.options import Checked
from streamsvm.config.settings import format_command
from streamsvm.config.units import percent, seconds_text
from streamsvm.engine import signals
from streamsvm.engine.checkpoint import CheckpointDirectory, CheckpointFile, RunCheckpointer
from streamsvm.engine.executor import Executor, executor_for, local_executor, task_limit
from streamsvm.engine.fit_state import Training
from streamsvm.engine.groups import GroupFit, Work, fit_groups, local_trainer
from streamsvm.engine.loop import FitLoop, RunSettings, end_fit
from streamsvm.engine.row_state import DriverState, GroupStateFiles
from streamsvm.engine.store_reference import StoreGuard, reference_to
from streamsvm.errors import DataError, InterruptedRun, MissingError
from streamsvm.features.scaling import Raw, Standardized
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
from streamsvm.jobs.embed.plan import FLY
from streamsvm.jobs.fit.certify import certify, final_passes, save_dual
from streamsvm.jobs.fit.fallback import (
    FLOAT64,
    continue_with,
    fallback_event,
    float64_event,
    has_enough_left,
    has_solver_stalled,
    is_too_coarse,
    may_stall_on_features,
    plan_fallback,
    plan_finer_features,
)
from streamsvm.jobs.fit.notices import (
    explain_missing_certificate,
    idle_settings,
    list_precision_notices,
    not_calibrated,
    offset_notice,
    scale_notice,
    strict_failure,
    threshold_notice,
    unscaled_notice,
)
from streamsvm.jobs.fit.options import FitJob
from streamsvm.jobs.fit.outputs import (
    EVENTS,
    list_outputs,
    model_paths,
    models_of,
    notice_lost_checkpoint,
    path_names,
    read_finished_run,
    run_folder,
    summary,
    write_outputs,
)
from streamsvm.jobs.fit.plan import (
    Plan,
    limit_notice,
    make_plan,
    start_plan_from,
    start_where_ended,
    state_choices,
    with_features,
)
from streamsvm.jobs.fit.resume import MIN_GROUPS, complete_identity, plan_fit
from streamsvm.jobs.fit.validate import (
    best_cost,
    edge_of_costs_notice,
    evaluator_for,
    open_training_store,
    unbalanced_notice,
)
from streamsvm.jobs.run_record import run_log, write_record
from streamsvm.locks import hold_lock, sweep_beside
from streamsvm.model import Model
from streamsvm.outputs import claim, output_path
from streamsvm.schedule.budget import CACHED_MOST
from streamsvm.schedule.machine import PeakWatch
from streamsvm.solvers.kernel.decomposition import Decomposition
from streamsvm.solvers.newton.solver import Newton
from streamsvm.types import Certificate, Layout, Report, Status, Stop, Store, silent

if TYPE_CHECKING:
    from streamsvm.display.html import Markup
    from streamsvm.jobs.apply.evaluate import EvaluateResult

STOP = "stop"
"""The value of ``at_limit`` that ends a run at its time limit with a checkpoint."""
MAX_WHOLE_GROUP_BYTES = CACHED_MOST
"""Bytes of a group up to which its rows are visited as one block."""
EXACT_TOLERANCE = 1e-14
"""Relative gap that Newton's method is asked for where it goes on until rounding ends it."""
EXACT_WORK = 1e8
"""Newton's method finishes exactly where a step takes fewer multiplications: rows x weights x the smaller of both."""
NEARLY_EXACT_TOLERANCE = 1e-12
"""Relative gap that exact kernels, and one class with a free offset, are asked for where that is cheap."""
NEARLY_EXACT_WORK = 1e7
"""That is cheap where all kernel values take fewer multiplications: rows x rows x columns."""
FAR_SHARE = 0.01
"""One class: a problem whose own tolerance is below this share of the tolerance asked for has rows so far from 0
(``relative_spread``) that a smaller one gains nothing."""
EXACT_SHARE = 0.5
"""A fit is one that goes on beyond the tolerance if a problem's own tolerance is below this share of it; slightly
smaller ones are usual, as rounding is allowed for."""
EXTRA_PASSES = 20
"""Most passes after the gap asked for was reached."""
NOWHERE = ""
"""Stands for the paths of a store and of a model that are not on disk."""

Certificates = list[Certificate | None]
"""Certificates of all problems."""


@dataclass(frozen=True, slots=True, repr=False)
class MemoryFitResult(JobResult):
    """A model and how it was trained."""

    model: Model
    """The one of the last C."""
    models: dict[float, Model]
    """All models, by C."""
    training: Training
    """How the fit ended."""
    plan: Plan
    """What was decided before the first pass."""
    precision_notices: tuple[str, ...] = ()
    """Those of the notices that name columns and rows of which float32 keeps little."""


@dataclass(frozen=True, slots=True, repr=False)
class FitResult(JobResult):
    """A model, how it was trained, and where the record of it lies."""

    model: Model
    """The one with the best C on held-out rows, where there are such, else the one of the last C."""
    training: Training
    """How the run ended. For a run that had ended before, what its record says: without the solvers' states."""
    plan: Plan
    """What was decided before the first read."""
    run: Path
    """The folder with the plan, the events, the certificate and a copy of the model."""
    models: dict[float, Model]
    """All models, by C."""
    evaluation: EvaluateResult | None = None
    """Of a fit of files: the figures on the rows that were held out; None where there are none."""

    @property
    def gap(self) -> float:
        """How far the objective can be from its optimum, (P - D) / |P|, of the worst of several problems."""
        certificates = [run.certificate for run in self.training.runs if run.certificate is not None]
        return max((found.gap for found in certificates), default=float("inf"))

    @property
    def certified(self) -> bool:
        """Whether the gap is at most the tolerance that was asked for."""
        return self.gap <= self.plan.tolerance

    @property
    def status(self) -> str:
        """How the fit ended: 'converged', 'max passes', 'time limit', 'patience', ..."""
        return self.training.status.value

    @property
    def passes(self) -> int:
        """How many times all rows were read."""
        return self.training.passes

    def summary(self) -> dict[str, str]:
        """Return where the model is, how it was trained, and how far its objective can be from the optimum."""
        model = str(self.run).removesuffix(".run")
        return {
            **({"model": model} if self.run.is_dir() else {}),  # of rows of a program it may be gone
            "solver": self.plan.solver_name,
            "gap": f"{percent(self.gap)} ({percent(self.plan.tolerance)} asked for)",
            "status": self.status,
            "passes": str(self.passes),
            "time": seconds_text(self.training.seconds),
            **({} if self.evaluation is None else {f"held out: {k}": v for k, v in self.evaluation.summary().items()}),
        }

    def _more(self) -> tuple[Markup, ...]:
        """Return the page of the run, to be unfolded; nothing where its record is gone."""
        from streamsvm.display.html import fold
        from streamsvm.display.page import build_page, frame_page
        from streamsvm.display.read_record import read_run

        try:
            return (fold("Show the page of the run", frame_page(build_page([read_run(self.run)]))),)
        except (MissingError, DataError):
            return ()


@dataclass(frozen=True, slots=True)
class FitContext:
    """Everything the steps of a fit share once it is planned."""

    job: FitJob
    """The job, with the settings filled in that were left open."""
    store: Store
    """The rows that are trained on."""
    plan: Plan
    """What was decided before the first read."""
    report: Report
    """Takes the events."""
    began: float
    """When the job began, by the clock of ``time.monotonic``: starting workers and making features count as its time."""
    held_out: Store | None = None
    """The chunks that are held out, where a part of the store is."""
    executor: Executor | None = None
    """Works on the groups; None: the threads of this process."""
    directory: Path | None = None
    """The folder of per-row state; None: it is in memory and not saved."""
    checkpoints: CheckpointDirectory | None = None
    """Where the run keeps its checkpoints; None for rows in memory, which have none."""
    saved: list[CheckpointFile] = field(default_factory=list)
    """The checkpoints a resumed run found, the newest first; empty for a run that begins."""
    notices: tuple[str, ...] = ()
    """Notices about an earlier run."""
    asked: Checked | None = None
    """The job as it was given, where it is not ``job``."""

    def command(self, **changed: bool) -> str:
        """Return the command that repeats the fit."""
        return format_command("fit", self.job if self.asked is None else self.asked, **changed)

    @property
    def run(self) -> Path:
        """The run's folder."""
        assert self.checkpoints is not None
        return self.checkpoints.directory.parent


class TrainedFit(NamedTuple):
    """A training that is over, its per-row state still open."""

    seen: Store
    """What the solver has read: the rows, or their features."""
    plan: Plan
    """The plan of the last training: another one than at the start where a fallback followed."""
    training: Training
    """Where it ended, with the certificates of what is saved."""
    closed: Certificates
    """Certificates of the solver's last pass; empty where it stalled and was not evaluated."""


def fit(
    job: FitJob, report: Report = silent, executor: Executor | None = None, asked: Checked | None = None
) -> FitResult:
    """Train and save a model, through ``executor`` or the cluster the job names.

    ``asked``: the job as it was given, which the command to repeat it is made of; None: ``job``. Raises StreamSVMError of every kind: BudgetError before the first read; InterruptedRun when the run was stopped from
    outside, whose message says how to go on.
    """
    began = time.monotonic()
    with executor_for(job, executor) as workers:
        if workers is not None:  # a task is one thread
            job = replace(job, memory=task_limit(workers, job.memory), threads=1)
        return _plan_and_fit(job, report, workers, began, asked)


def _plan_and_fit(
    job: FitJob, report: Report, executor: Executor | None, began: float, asked: Checked | None
) -> FitResult:
    """Plan, check that the outputs can be written, and fit; of a resumed run that had ended already the recorded result
    is returned.
    """
    target = output_path(job.model)
    store, held_out = open_training_store(job)
    checkpoints = CheckpointDirectory(run_folder(target) / "checkpoint")
    if not (job.resume or job.overwrite):
        checkpoints.check_absent()
    saved = checkpoints.read() if job.resume else []
    job, plan = plan_fit(job, store, saved, executor)
    context = FitContext(
        job, store, plan, report, began, held_out, executor, checkpoints.directory, checkpoints, saved, asked=asked
    )
    earlier = read_finished_run(job, store, plan) if job.resume and not job.overwrite else None
    if earlier is not None:
        training, models = earlier
        with hold_lock(target), checkpoints.open(keep_existing=True):  # its end removes a checkpoint left behind
            report(done_event(job, plan, training))
        _draw_page(context)
        return _result(context, plan, training, models)
    plan.memory.check(plan.remedy)
    context = replace(context, notices=notice_lost_checkpoint(job, store, plan.costs, checkpoint=bool(saved)))
    held_out_path = job.validation if isinstance(job.validation, str) else None
    inputs = [job.store, job.landmark_file, job.warm_start, held_out_path]
    claim(list_outputs(job, store, plan.costs, checkpoint=bool(saved)), inputs, overwrite=job.overwrite)
    with hold_lock(target), checkpoints.open(keep_existing=bool(saved)):
        for path in model_paths(job, plan.costs):
            sweep_beside(path)
        return _fit_planned(context)


def _fit_planned(context: FitContext) -> FitResult:
    """Make the features, train, and write the outputs."""
    job, store = context.job, context.store
    assert context.checkpoints is not None
    with ExitStack() as stack:
        compiled, watch = CLOCK.seconds(), stack.enter_context(PeakWatch())
        began = {"command": context.command(), "resumed": bool(context.saved)}
        record = stack.enter_context(run_log(context.report, context.run / EVENTS, began))
        context = replace(context, report=record)
        record({"event": "plan", **context.plan.facts()})
        stack.enter_context(threadpool_limits(1))  # a second BLAS thread fights ours for its core
        stack.enter_context(threading.use_threads(context.plan.memory.threads))
        limit = stack.enter_context(ExitStack())
        with signals.set_resume_command(context.command(resume=True)):
            limit.enter_context(signals.limit_time(job.time_limit, time.monotonic() - context.began, finish=True))
            seen, planned = with_features(job, store, context.plan, context.run, record, context.executor)
        following = plan_fallback(job, store, planned)
        trained = stack.enter_context(train_to_certificate(context, seen, planned, following))
        plan, training = trained.plan, trained.training
        stack.enter_context(signals.set_resume_command(context.command(resume=True)))
        with limit:  # ends here: writing has no time limit
            calibrations = _calibrate(context, planned, trained)
        models = add_calibrations(models_of(job, store, plan, training), calibrations)
        if job.threshold is not None and job.validation is not None:
            models = _add_held_out_thresholds(context, planned, models)
        if job.dual:
            save_dual(Path(job.dual), trained.seen, plan, training)
        if not_calibrated(job, models):
            _keep_checkpoint(context, trained)
        write_outputs(job, plan, training, models, lambda: watch.most)
        result = _result(context, plan, training, models)
        said = (result.warnings, result.notices)
        write_record(job, store, plan, result.model, training.passes, said, CLOCK.seconds() - compiled)
        record(done_event(job, plan, training))
    _draw_page(context)
    return result


def fit_in_memory(job: FitJob, store: Store, report: Report = silent, start: Model | None = None) -> MemoryFitResult:
    """Train on the rows of ``store``; kernel features are made in every pass. Options of files have no effect.

    ``start``: a linear model of the same columns and classes to start from. Raises BudgetError, UsageError, DataError,
    DefectError.
    """
    began = time.monotonic()
    job = replace(job, embedding=FLY)
    plan = make_plan(job, store)
    job = state_choices(job, plan)
    if start is not None:
        plan = start_plan_from(plan, store, start)
    plan.memory.check(plan.remedy)
    asked = plan.problems
    plan = finish_exactly(plan)
    report = _end_after_extra_passes(plan, report)
    with ExitStack() as stack:
        directory = None
        if not plan.memory.resident or plan.request is not None:
            directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="streamsvm-")))
        stack.enter_context(threadpool_limits(1))
        stack.enter_context(threading.use_threads(plan.memory.threads))
        context = FitContext(job, store, plan, report, began, directory=directory)
        seen, planned = with_features(job, store, plan, directory or Path(NOWHERE), report)
        trained = stack.enter_context(train_to_certificate(context, seen, planned))
        plan, training = trained.plan, trained.training
        calibrations = _calibrate(context, planned, trained)
        models = add_calibrations(models_of(job, store, plan, training), calibrations)
    warnings = (*explain_missing_certificate(job, store, plan, training), *not_calibrated(job, models))
    precision = list_precision_notices(replace(plan, problems=asked), store)
    return MemoryFitResult(
        models[plan.costs[-1]],
        models,
        training,
        plan,
        warnings=warnings,
        notices=(*limit_notice(plan), *precision),
        precision_notices=precision,
    )


@contextmanager
def train_to_certificate(
    context: FitContext, seen: Store, planned: Plan, fallback_plan: Plan | None = None
) -> Iterator[TrainedFit]:
    """Train, and train again by a fallback where that is needed; yield the certified result, its per-row state still
    open.

    ``seen``: the rows, or their features. ``fallback_plan``: the plan with another solver for one that stalls.
    """
    store, report = context.store, context.report
    finer = plan_finer_features(context.job, store, planned)
    until_stall = fallback_plan is not None or (finer is not None and may_stall_on_features(planned))
    with _train(context, seen, planned, until_stall=until_stall) as (plan, training):
        closed = [run.certificate for run in training.runs]
        following = None
        if training.status == Status.STALLED and training.active():
            closed = []
            following = fallback_plan
        else:
            _certify_untimed_compiler(plan, training, store, seen)
        if following is not None:
            report(fallback_event(training, following))
        elif finer is not None and _needs_float64(context, plan, training, closed):
            report(float64_event(plan, training, closed))
            following = continue_with(finer, plan, training)
        if following is None:
            yield TrainedFit(seen, plan, training, closed)
            return
        seen = store if following.request is not None else seen
        spent = replace(training, runs=[], row_states={})
        del training  # frees the rows it holds before the next training allocates its own
    with _train(replace(context, saved=[]), seen, following, spent=spent) as (plan, training):
        closed = [run.certificate for run in training.runs]
        _certify_untimed_compiler(plan, training, store, seen)
        yield TrainedFit(seen, plan, training, closed)


def _certify_untimed_compiler(plan: Plan, training: Training, store: Store, seen: Store) -> None:
    """Certify; what has to be compiled for that, once on a machine, does not count as time of the job."""
    with signals.job_clock.without_compiler():
        certify(plan, training, store, seen)


def _needs_float64(context: FitContext, plan: Plan, training: Training, closed: Certificates) -> bool:
    """Return whether features in float32 stalled the solver, or are too coarse and as much time is left as was spent."""
    if not closed:
        return True
    spent = time.monotonic() - context.began
    return is_too_coarse(plan, training, closed) and has_enough_left(context.job, training, spent)


@contextmanager
def _train(
    context: FitContext, seen: Store, plan: Plan, *, until_stall: bool = False, spent: Training | None = None
) -> Iterator[tuple[Plan, Training]]:
    """Train by one solver on one kind of features; yield how it ended, with its per-row state open.

    ``until_stall``: end when the solver stalls. ``spent``: the previous training, whose costs are added.
    """
    job = context.job
    checkpointer = None if context.checkpoints is None else _checkpointer(context, plan)
    evaluator = None
    if context.checkpoints is not None:
        evaluator = evaluator_for(job, plan, context.held_out, context.report, context.executor)
    with closing(_make_loop(context, seen, plan)) as loop:
        loop.reserved_passes = final_passes(plan) + calibration_passes(job, plan.solver, plan.problems)
        loop.evaluator, loop.should_fall_back = evaluator, has_solver_stalled if until_stall else None
        if spent is not None:
            loop.training.continue_counts_from(spent)
        if checkpointer is None:
            yield plan, loop.train(Stop(job.max_passes, max(0.0, job.time_limit - loop.training.seconds)))
            return
        used, stops = time.monotonic() - context.began, job.at_limit == STOP
        limit = math.inf if stops else max(0.0, job.time_limit - used)
        with signals.defer_signals(), signals.limit_time(job.time_limit if stops else math.inf, used):
            training = loop.train(Stop(job.max_passes, limit), checkpointer)
            if evaluator is not None:
                plan, training = evaluator.choose_best(plan, training, loop)
        closed = [run.certificate for run in training.runs]
        try:
            with signals.set_resume_command(context.command(resume=True)):
                yield plan, training
        except InterruptedRun as error:  # in the last evaluation: what was trained is not lost
            if evaluator is not None:
                raise
            with _certificates_of_last_pass(training, closed):
                raise checkpointer.save_interrupted(training) from error


def _checkpointer(context: FitContext, plan: Plan) -> RunCheckpointer:
    """Return what writes the checkpoints of a fit. Raises ConfigError when the features are not those of the
    checkpoint.
    """
    job, interruption = context.job, signals.current
    assert context.checkpoints is not None
    interruption.standing = "There is no earlier one"
    return RunCheckpointer(
        context.checkpoints,
        complete_identity(job, context.store, plan, context.saved),
        StoreGuard(context.store),
        interruption,
        job.checkpoint_every,
        context.command(resume=True),
        context.report,
        context.began + job.time_limit + (0.0 if job.at_limit == STOP else signals.finishing_seconds(job.time_limit)),
        context.saved,
    )


def _keep_checkpoint(context: FitContext, trained: TrainedFit) -> None:
    """Leave a checkpoint of a training that is over, from which --resume makes the calibration and nothing else."""
    assert context.checkpoints is not None
    if context.job.validation is None and not trained.training.active():
        with _certificates_of_last_pass(trained.training, trained.closed):
            _checkpointer(replace(context, saved=[]), trained.plan).save(trained.training)
        context.checkpoints.keep_after_success = True


@contextmanager
def _certificates_of_last_pass(training: Training, closed: Certificates) -> Iterator[None]:
    """While a checkpoint is written, give a training the certificates of its last pass in place of those of the final
    evaluation, which a resumed run repeats.
    """
    evaluated = [run.certificate for run in training.runs]
    for run, certificate in zip(training.runs, closed, strict=True):
        run.certificate = certificate
    try:
        yield
    finally:
        for run, certificate in zip(training.runs, evaluated, strict=True):
            run.certificate = certificate


def _make_loop(context: FitContext, seen: Store, plan: Plan) -> FitLoop:
    """Return the loop of passes, here or on a cluster."""
    directory = context.directory
    if context.checkpoints is None:
        return local_loop(context.job, seen, plan, None if plan.memory.resident else directory, context.report)
    assert directory is not None
    if plan.request is not None and plan.request.exact:  # checkpoints made in float32 need their files
        directory /= FLOAT64
        durable.make_directory(directory)
    if context.executor is None:
        return local_loop(context.job, seen, plan, directory, context.report)
    from streamsvm.engine.cluster_loop import DistributedTrainer

    return DistributedTrainer(_group_fit(context.job, plan, seen, directory), context.executor, context.report)


def local_loop(job: FitJob, store: Store, plan: Plan, directory: Path | None, report: Report) -> FitLoop:
    """Return the loop of passes in this process. ``directory`` is where per-row state is kept; None: in memory."""
    memory, groups = plan.memory, job.groups
    whole = groups is not None and _groups_are_blocks(plan, store.layout, groups)
    kept = (memory.retain, memory.cached, directory, memory.resident)
    settings = RunSettings(job.seed, job.prefetch, *kept, groups=groups, whole_groups=whole)
    executor = local_executor(memory.threads)
    return local_trainer(store, plan.solver, plan.problems, plan.features, settings, report, executor)


def _group_fit(job: FitJob, plan: Plan, store: Store, directory: Path) -> GroupFit:
    """Return the work of the tasks of a cluster; ``directory`` holds what they leave between rounds."""
    solver, layout = plan.solver, store.layout
    count = job.groups or (MIN_GROUPS if solver.shuffled else None)
    groups = fit_groups(solver, layout, count)
    solver = solver.in_parts(len(groups))
    place, problems = directory.resolve(), tuple(plan.problems)
    work = Work(
        reference_to(store),
        solver,
        problems,
        plan.features,
        job.seed,
        retain=plan.memory.retain,
        whole_groups=_groups_are_blocks(plan, layout, len(groups)),
        state_files=tuple(GroupStateFiles(place, state, len(problems)) for state in solver.row_state),
        driver_state=DriverState(place, solver.driver_fields) if solver.driver_fields else None,
        witnesses=job.dual is not None or plan.request is not None,  # for ``certify``
    )
    return GroupFit(work, groups, layout, plan.memory.total)


def _groups_are_blocks(plan: Plan, layout: Layout, groups: int) -> bool:
    """Return whether a group is small enough to be one block; only then are its rows visited in random order as a
    whole.
    """
    wanted = plan.solver.shuffled and isinstance(plan.features, Raw | Standardized)
    held = 2 * layout.bytes_per_pass // groups
    fits = plan.memory.cached or held <= plan.memory.limit - plan.memory.total
    return wanted and fits and held <= MAX_WHOLE_GROUP_BYTES


def _calibrate(context: FitContext, planned: Plan, trained: TrainedFit) -> dict[float, Calibrated]:
    """Return the calibrations of a fit, by C; ``planned`` is the plan it began with. Per-row state of the fits of folds
    is not saved.

    If the time limit comes first: empty, or CalibrationTimeout for a job that is to stop at its limit with a
    checkpoint.
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
        start_where_ended(base, plan, training),
        lambda rows, again: local_loop(job, rows, again, directory, silent),
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
        C: replace(one, calibration=by_loss[C].calibration) if C in by_loss else one for C, one in calibrations.items()
    }


def _add_held_out_thresholds(context: FitContext, plan: Plan, models: dict[float, Model]) -> dict[float, Model]:
    """Return the models with the thresholds that are best on the held-out rows; ``plan`` is the one the fit began with."""
    evaluator = evaluator_for(context.job, plan, context.held_out, context.report, context.executor)
    assert evaluator is not None
    found = evaluator.choose_thresholds(context.job, models)
    for C, threshold in found.items():
        context.report({"event": "threshold", "C": C, **threshold.facts()})
    return {C: add_threshold(model, found[C]) for C, model in models.items()}


def finish_exactly(plan: Plan) -> Plan:
    """Return the plan with the exact finish where that is cheap; for a loss with a corner Newton's method has no last
    step.
    """
    layout, first = plan.layout, plan.problems[0]
    rows, weights = layout.rows, layout.columns + 1
    if plan.request is not None:
        return plan
    wanted = plan.tolerance
    if isinstance(plan.solver, Newton) and first.loss.smooth():
        small = len(plan.problems) * rows * weights * min(rows, weights) <= EXACT_WORK
        wanted = EXACT_TOLERANCE if small else wanted
    elif not first.regularizer.has_scale or isinstance(plan.solver, Decomposition):
        small = len(plan.problems) * rows * rows * weights <= NEARLY_EXACT_WORK
        far = first.tolerance < FAR_SHARE * plan.tolerance
        wanted = first.tolerance if far else (NEARLY_EXACT_TOLERANCE if small else wanted)
    if wanted >= plan.tolerance:
        return plan
    return replace(plan, problems=[replace(problem, tolerance=wanted) for problem in plan.problems])


def _end_after_extra_passes(plan: Plan, report: Report) -> Report:
    """Return a report that ends a fit ``EXTRA_PASSES`` passes after it has reached the tolerance asked for; ``report``
    itself where no problem has a smaller one.
    """
    gaps: dict[int, float] = {}

    def watch(event: JsonObject) -> None:
        report(event)
        if event["event"] == "pass":
            gaps[event["pass"]] = max(gaps.get(event["pass"], 0.0), event["gap"])
            reached = [number for number, gap in gaps.items() if gap <= plan.tolerance and number < event["pass"]]
            if reached and event["pass"] >= reached[0] + EXTRA_PASSES:
                end_fit()

    return watch if any(problem.tolerance < EXACT_SHARE * plan.tolerance for problem in plan.problems) else report


def _result(context: FitContext, plan: Plan, training: Training, models: dict[float, Model]) -> FitResult:
    """Return the result of a run with its notices and warnings."""
    job, store = context.job, context.store
    notices = (
        *context.notices,
        *limit_notice(plan),
        *([notice] if (notice := store.facts.get("notice")) else []),
        *scale_notice(job, store),
        *offset_notice(plan, store),
        *unscaled_notice(job, store),
        *idle_settings(job, plan),
        *unbalanced_notice(plan, training),
        *edge_of_costs_notice(plan, training),
        *threshold_notice(models[best_cost(plan, training)]),
    )
    warnings = (*explain_missing_certificate(job, store, plan, training), *not_calibrated(job, models))
    failure = strict_failure(warnings) if job.strict else None
    best = models[best_cost(plan, training)]
    page = None if job.report is None else output_path(job.report)
    return FitResult(
        best, training, plan, context.run, models, notices=notices, warnings=warnings, failure=failure, page=page
    )


def _draw_page(context: FitContext) -> None:
    """Draw the page of the run, where that was asked for."""
    if context.job.report is not None:
        from streamsvm.jobs.report import write_page

        write_page([context.run], output_path(context.job.report))


def done_event(job: FitJob, plan: Plan, training: Training) -> JsonObject:
    """Return the last event of a run."""
    paths = path_names(Path(job.model), plan.costs).values()
    return {"event": "done", "model": ", ".join(map(str, paths)), **summary(training, plan)}
