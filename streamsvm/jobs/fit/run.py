"""fit: a store and settings in, a certified model and a run folder out."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from threadpoolctl import threadpool_limits

from streamsvm.aliases import JsonObject
from streamsvm.compute import threading
from streamsvm.config.command_line import command_of
from streamsvm.display.page.page import in_a_frame, page_of
from streamsvm.display.page.record import read_run
from streamsvm.engine.checkpoint import signals
from streamsvm.engine.checkpoint.checkpoint_file import CheckpointDirectory, Saved
from streamsvm.engine.checkpoint.checkpointer import RunCheckpointer
from streamsvm.engine.executors.executor import Executor, executor_for
from streamsvm.engine.executors.thread_executor import local_executor
from streamsvm.engine.groups.distributed import DistributedTrainer
from streamsvm.engine.job_store import StoreGuard
from streamsvm.engine.local import local_trainer
from streamsvm.engine.trainer import FitLoop, RunSettings
from streamsvm.engine.training import Training
from streamsvm.errors import DataError, InterruptedRun, MissingError
from streamsvm.jobs import JobResult
from streamsvm.jobs.calibrate.choice import calibration_passes
from streamsvm.jobs.calibrate.folds import FoldFits, starting_there
from streamsvm.jobs.calibrate.run import Calibrated, calibrated, events_of, with_calibration
from streamsvm.jobs.calibrate.time_left import CalibrationTimeout, time_left, timeout_event
from streamsvm.jobs.fit.distributed import distributed_fit, in_whole_groups, with_task_memory
from streamsvm.jobs.fit.identity import complete_identity, settled
from streamsvm.jobs.fit.options import FitJob
from streamsvm.jobs.fit.planning.kernel_features import with_features
from streamsvm.jobs.fit.planning.plan import Plan
from streamsvm.jobs.fit.results.certified import certify, final_passes, save_dual
from streamsvm.jobs.fit.results.earlier_run import finished, outputs_of
from streamsvm.jobs.fit.results.models import models_of
from streamsvm.jobs.fit.results.outputs import summary, write_outputs
from streamsvm.jobs.fit.results.places import EVENTS, model_paths, path_names, run_folder
from streamsvm.jobs.fit.results.remarks import not_calibrated, scale_notice, strict_failure, uncertified, without_effect
from streamsvm.jobs.fit.validation import best_cost, evaluator_for, opened
from streamsvm.jobs.leaving import left_event, stalled, successor
from streamsvm.jobs.report.record import write_record
from streamsvm.jobs.report.run import write_page
from streamsvm.jobs.report.run_log import run_log
from streamsvm.locks import locked
from streamsvm.model import Model
from streamsvm.outputs import claim, output_path
from streamsvm.scratch import sweep_beside
from streamsvm.types import Certificate, Report, Status, Stop, Store, silent

Certificates = list[Certificate | None]
"""Those of all problems."""
STOP = "stop"
"""The value of ``at_limit`` that ends a run at its time limit with a checkpoint."""


@dataclass(frozen=True, slots=True)
class FitResult(JobResult):
    """A model, how it was come by, and where the record of it lies."""

    model: Model
    """The one with the best C on held-out rows, where there are such, else the one of the last C."""
    training: Training
    """How the run ended. Of a run that had ended before, what its record says: without the solvers' states."""
    plan: Plan
    """What was decided before the first read."""
    run: Path
    """The folder with the plan, the events, the certificate and a copy of the model."""
    models: dict[float, Model]
    """All models, by C."""

    def _repr_html_(self) -> str | None:
        """What a notebook shows: the page of the run; None where its record is gone."""
        try:
            return in_a_frame(page_of([read_run(self.run)]))
        except (MissingError, DataError):
            return None


@dataclass(frozen=True, slots=True)
class _Fit:
    """A fit that is decided: what its steps have at hand."""

    job: FitJob
    store: Store
    held: Store | None
    """The chunks that are held out, where a part of the store is."""
    plan: Plan
    checkpoints: CheckpointDirectory
    saved: list[Saved]
    executor: Executor | None
    began: float
    """When the job began, by the clock of ``time.monotonic``: starting workers and making features is of its time."""

    @property
    def run(self) -> Path:
        """The run's folder."""
        return self.checkpoints.directory.parent

    def result(self, plan: Plan, training: Training, models: dict[float, Model]) -> FitResult:
        """What ``fit`` answers with."""
        notice, best = self.store.facts.get("notice"), best_cost(plan.costs, training)
        idle = without_effect(self.job, plan)
        notices = (*([notice] if notice else []), *scale_notice(self.job, self.store), *idle)
        warnings = (*uncertified(self.job, self.store, plan, training), *not_calibrated(self.job, models))
        failure = strict_failure(warnings) if self.job.strict else None
        return FitResult(
            models[best], training, plan, self.run, models, notices=notices, warnings=warnings, failure=failure
        )


def fit(job: FitJob, report: Report = silent, executor: Executor | None = None) -> FitResult:
    """Train and save a model, through ``executor`` or the cluster the job names. BudgetError before the first read.

    Raises StreamSVMError of every kind; InterruptedRun when the run was stopped from outside: the message says how to
    go on.
    """
    began = time.monotonic()
    with executor_for(job, executor) as found:
        return _decided(job if found is None else with_task_memory(job, found), report, found, began)


def _decided(job: FitJob, report: Report, executor: Executor | None, began: float) -> FitResult:
    """Plan, check that the outputs can be written, and fit; a resumed run that had ended only answers."""
    target = output_path(job.model)
    store, held = opened(job)
    checkpoints = CheckpointDirectory(run_folder(target) / "checkpoint")
    saved = checkpoints.read() if job.resume else []
    job, plan = settled(job, store, saved, executor)
    this = _Fit(job, store, held, plan, checkpoints, saved, executor, began)
    found = finished(job, store, plan) if job.resume and not job.overwrite else None
    if found is not None:
        return _ended_before(this, report, *found)
    plan.memory.check(plan.remedy)
    claim(outputs_of(job, store, plan.costs, checkpoint=bool(saved)), _inputs(job), overwrite=job.overwrite)
    with locked(target), checkpoints.open(keep=bool(saved)):
        for path in model_paths(job, plan.costs):
            sweep_beside(path)
        return _fitted(this, report)


def _inputs(job: FitJob) -> list[str | None]:
    """All a fit reads."""
    held = job.validation if isinstance(job.validation, str) else None
    return [job.store, job.landmark_file, job.warm_start, held]


def _ended_before(this: _Fit, report: Report, training: Training, models: dict[float, Model]) -> FitResult:
    """The result of a run that had come to its end; a checkpoint it may have left is removed."""
    with locked(Path(this.job.model)), this.checkpoints.open(keep=True):
        report(_done(this.job, this.plan, training))
    _draw_page(this)
    return this.result(this.plan, training, models)


def _draw_page(this: _Fit) -> None:
    """Draw the page of the run, where that was asked for."""
    if this.job.report is not None:
        write_page([this.run], output_path(this.job.report))


def _done(job: FitJob, plan: Plan, training: Training) -> JsonObject:
    """The last event of a run."""
    paths = path_names(Path(job.model), plan.costs).values()
    return {"event": "done", "model": ", ".join(map(str, paths)), **summary(training, plan)}


def _fitted(this: _Fit, report: Report) -> FitResult:
    """Make the features, train, and write what the run leaves."""
    job, store = this.job, this.store
    with ExitStack() as stack:
        began = {"command": command_of("fit", job), "resumed": bool(this.saved)}
        record = stack.enter_context(run_log(report, this.run / EVENTS, began))
        record({"event": "plan", **this.plan.facts()})
        stack.enter_context(threadpool_limits(1))  # a second BLAS thread fights ours for its core
        stack.enter_context(threading.using(this.plan.memory.threads))
        limit = stack.enter_context(ExitStack())
        with signals.resumed_by(command_of("fit", job, resume=True)):
            limit.enter_context(signals.within(job.time_limit, time.monotonic() - this.began, finish=True))
            seen, planned = with_features(job, store, this.plan, this.run, record, this.executor)
        plan, training = stack.enter_context(_trained(this, seen, planned, record))
        stack.enter_context(signals.resumed_by(command_of("fit", job, resume=True)))
        closed = [run.certificate for run in training.runs]
        with limit:  # not of what is written
            certify(plan, training, store, seen)
            found = _calibrated(this, seen, planned, plan, training, report=record)
        models = with_calibration(models_of(job, store, plan, training), found)
        if job.dual:
            save_dual(Path(job.dual), seen, plan, training)
        if not_calibrated(job, models):
            _keep(this, plan, training, closed, record)
        write_outputs(job, plan, training, models, best_cost(plan.costs, training))
        result = this.result(plan, training, models)
        write_record(job, store, plan, result.model, training.passes, (result.warnings, result.notices))
        record(_done(job, plan, training))
    _draw_page(this)
    return result


def _calibrated(
    this: _Fit, seen: Store, planned: Plan, ended: Plan, training: Training, *, report: Report
) -> dict[float, Calibrated]:
    """The calibrations of a fit; ``planned`` is its plan, ``ended`` the one it came to its end with. No row state of folds is kept.

    Empty where its time was over before they were made. Raises CalibrationTimeout then where the run is to stop at its limit.
    """
    job, directory = this.job, this.checkpoints.directory
    trains = planned if job.validation is not None else ended
    fits = FoldFits(
        starting_there(trains, ended, training),
        lambda rows, again: local_loop(job, rows, again, directory, silent),
        job.seed,
        job.prefetch,
        job.max_passes,
        time_left(job, this.began),
    )
    try:
        found = calibrated(job, ended, training, seen, fits)
    except CalibrationTimeout:
        if job.at_limit == STOP:
            raise
        report(timeout_event(job))
        return {}
    for event in events_of(found):
        report(event)
    return found


def _keep(this: _Fit, plan: Plan, training: Training, closed: Certificates, report: Report) -> None:
    """Leave a checkpoint of a training that is over beside the models: what --resume makes the calibration of, and nothing else."""
    if this.job.validation is None and not training.active():
        with _as_closed(training, closed):
            _checkpointer(replace(this, saved=[]), plan, report).save(training)
        this.checkpoints.kept = True


@contextmanager
def _as_closed(training: Training, closed: Certificates) -> Iterator[None]:
    """The training with the certificates of its last pass: what the last evaluation makes of them a resumed run does again."""
    evaluated = [run.certificate for run in training.runs]
    for run, certificate in zip(training.runs, closed, strict=True):
        run.certificate = certificate
    try:
        yield
    finally:
        for run, certificate in zip(training.runs, evaluated, strict=True):
            run.certificate = certificate


@contextmanager
def _trained(this: _Fit, seen: Store, plan: Plan, report: Report) -> Iterator[tuple[Plan, Training]]:
    """The end of the training, with the per-row state still open, and the plan as it ended."""
    following = successor(this.job, this.store, plan)
    with _trained_by(this, seen, plan, report, leaves=following is not None) as found:
        if following is None or found[1].status != Status.STALLED or not found[1].active():
            yield found
            return
    report(left_event(found[1], following))
    with _trained_by(replace(this, saved=[]), seen, following, report, before=found[1]) as found:
        yield found


@contextmanager
def _trained_by(
    this: _Fit, seen: Store, plan: Plan, report: Report, *, leaves: bool = False, before: Training | None = None
) -> Iterator[tuple[Plan, Training]]:
    """The end of what one solver comes to; one that ``leaves`` may be left where it stalls, ``before`` is what was spent."""
    job = this.job
    checkpointer = _checkpointer(this, plan, report)
    evaluator = evaluator_for(job, plan, this.held, report, this.executor)
    with closing(_loop(this, seen, plan, report)) as loop:
        spent, stops = time.monotonic() - this.began, job.at_limit == STOP
        limit = math.inf if stops else max(0.0, job.time_limit - spent)
        loop.final_passes = final_passes(plan) + calibration_passes(job, plan.solver, plan.problems)
        loop.evaluator, loop.leaves = evaluator, stalled if leaves else None
        if before is not None:
            loop.result.count_on(before)
        with signals.deferred(), signals.within(job.time_limit if stops else math.inf, spent):
            training = loop.train(Stop(job.max_passes, limit), checkpointer)
            if evaluator is not None:
                plan, training = evaluator.chosen(plan, training, loop)
        closed = [run.certificate for run in training.runs]
        try:
            yield plan, training
        except InterruptedRun as error:  # in the last evaluation: what was trained is not lost
            if evaluator is not None:
                raise
            with _as_closed(training, closed):
                raise checkpointer.stopped(training) from error


def _checkpointer(this: _Fit, plan: Plan, report: Report) -> RunCheckpointer:
    """What makes the checkpoints of a fit. Raises ConfigError when the features are not those of the checkpoint."""
    job, interruption = this.job, signals.current
    interruption.standing = "There is no earlier one"
    return RunCheckpointer(
        this.checkpoints,
        complete_identity(job, this.store, plan, this.saved),
        StoreGuard(this.store),
        interruption,
        job.checkpoint_every,
        command_of("fit", job, resume=True),
        report,
        this.began + job.time_limit if job.at_limit == STOP else float("inf"),
        this.saved,
    )


def _loop(this: _Fit, seen: Store, plan: Plan, report: Report) -> FitLoop:
    directory = this.checkpoints.directory
    if this.executor is None:
        return local_loop(this.job, seen, plan, directory, report)
    return DistributedTrainer(distributed_fit(this.job, plan, seen, directory), this.executor, report)


def local_loop(job: FitJob, store: Store, plan: Plan, directory: Path | None, report: Report) -> FitLoop:
    """The fit loop in this process as a plan has it; ``directory`` is for checkpoints of per-row state, None: there are none."""
    memory, groups = plan.memory, job.groups
    whole = groups is not None and in_whole_groups(plan, store.layout, groups)
    kept = (memory.retain, memory.cached, directory, memory.resident)
    settings = RunSettings(job.seed, job.prefetch, *kept, groups=groups, whole_groups=whole)
    executor = local_executor(memory.threads)
    return local_trainer(store, plan.solver, plan.problems, plan.features, settings, report, executor)
