"""fit: a store and settings in, a certified model and a run folder out."""

from __future__ import annotations

import time
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

from threadpoolctl import threadpool_limits

from streamsvm.aliases import JsonObject
from streamsvm.compute import threading
from streamsvm.config.command_line import command_of
from streamsvm.engine import signals
from streamsvm.engine.checkpoint import CheckpointDirectory
from streamsvm.engine.executor import Executor, executor_for
from streamsvm.engine.training import Training
from streamsvm.errors import DataError, MissingError
from streamsvm.jobs import JobResult
from streamsvm.jobs.calibrate import (
    Calibrated,
    CalibrationTimeout,
    by_the_loss,
    calibrated,
    events_of,
    time_left,
    timeout_event,
    with_calibration,
)
from streamsvm.jobs.fit.distributed import with_task_memory
from streamsvm.jobs.fit.identity import settled
from streamsvm.jobs.fit.options import FitJob
from streamsvm.jobs.fit.planning.kernel_features import with_features
from streamsvm.jobs.fit.planning.plan import Plan, limit_notice, starting_there
from streamsvm.jobs.fit.results.earlier_run import finished, made_anew, outputs_of
from streamsvm.jobs.fit.results.models import models_of
from streamsvm.jobs.fit.results.outputs import summary, write_outputs
from streamsvm.jobs.fit.results.places import EVENTS, model_paths, path_names, run_folder
from streamsvm.jobs.fit.results.remarks import (
    idle_settings,
    not_calibrated,
    offset_notice,
    scale_notice,
    strict_failure,
    uncertified,
    unscaled_notice,
)
from streamsvm.jobs.fit.trained import STOP, DecidedFit, keep_trained, local_loop, trained
from streamsvm.jobs.fit.validation.evaluator import best_cost
from streamsvm.jobs.fit.validation.held_out_chunks import opened
from streamsvm.jobs.run_record import run_log, write_record
from streamsvm.locks import locked, sweep_beside
from streamsvm.model import Model
from streamsvm.outputs import claim, output_path
from streamsvm.schedule.machine import PeakWatch
from streamsvm.types import Report, Store, silent


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
        from streamsvm.display.page import build_page, frame_page
        from streamsvm.display.run_record import read_run

        try:
            return frame_page(build_page([read_run(self.run)]))
        except (MissingError, DataError):
            return None


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
    if not (job.resume or job.overwrite):
        checkpoints.check_absent()
    saved = checkpoints.read() if job.resume else []
    job, plan = settled(job, store, saved, executor)
    this = DecidedFit(job, store, held, plan, checkpoints, saved, executor, began)
    found = finished(job, store, plan) if job.resume and not job.overwrite else None
    if found is not None:
        return _ended_before(this, report, *found)
    plan.memory.check(plan.remedy)
    this = replace(this, said=made_anew(job, store, plan.costs, checkpoint=bool(saved)))
    claim(outputs_of(job, store, plan.costs, checkpoint=bool(saved)), _inputs(job), overwrite=job.overwrite)
    with locked(target), checkpoints.open(keep=bool(saved)):
        for path in model_paths(job, plan.costs):
            sweep_beside(path)
        return _fitted(this, report)


def _inputs(job: FitJob) -> list[str | None]:
    """All a fit reads."""
    held = job.validation if isinstance(job.validation, str) else None
    return [job.store, job.landmark_file, job.warm_start, held]


def _ended_before(this: DecidedFit, report: Report, training: Training, models: dict[float, Model]) -> FitResult:
    """The result of a run that had come to its end; a checkpoint it may have left is removed."""
    with locked(Path(this.job.model)), this.checkpoints.open(keep=True):
        report(_done(this.job, this.plan, training))
    _draw_page(this)
    return _result(this, this.plan, training, models)


def _draw_page(this: DecidedFit) -> None:
    """Draw the page of the run, where that was asked for."""
    if this.job.report is not None:
        from streamsvm.jobs.report import write_page

        write_page([this.run], output_path(this.job.report))


def _done(job: FitJob, plan: Plan, training: Training) -> JsonObject:
    """The last event of a run."""
    paths = path_names(Path(job.model), plan.costs).values()
    return {"event": "done", "model": ", ".join(map(str, paths)), **summary(training, plan)}


def _fitted(this: DecidedFit, report: Report) -> FitResult:
    """Make the features, train, and write what the run leaves."""
    job, store = this.job, this.store
    with ExitStack() as stack:
        watch = stack.enter_context(PeakWatch())
        began = {"command": command_of("fit", job), "resumed": bool(this.saved)}
        record = stack.enter_context(run_log(report, this.run / EVENTS, began))
        record({"event": "plan", **this.plan.facts()})
        stack.enter_context(threadpool_limits(1))  # a second BLAS thread fights ours for its core
        stack.enter_context(threading.use_threads(this.plan.memory.threads))
        limit = stack.enter_context(ExitStack())
        with signals.resumed_by(command_of("fit", job, resume=True)):
            limit.enter_context(signals.within(job.time_limit, time.monotonic() - this.began, finish=True))
            seen, planned = with_features(job, store, this.plan, this.run, record, this.executor)
        seen, plan, training, closed = stack.enter_context(trained(this, seen, planned, record))
        stack.enter_context(signals.resumed_by(command_of("fit", job, resume=True)))
        with limit:  # not of what is written
            found = _calibrated(this, seen, planned, plan, training, report=record)
        models = with_calibration(models_of(job, store, plan, training), found)
        if job.dual:
            from streamsvm.jobs.fit.results.dual_file import save_dual

            save_dual(Path(job.dual), seen, plan, training)
        if not_calibrated(job, models):
            keep_trained(this, plan, training, closed, record)
        write_outputs(job, plan, training, models, lambda: watch.most)
        result = _result(this, plan, training, models)
        write_record(job, store, plan, result.model, training.passes, (result.warnings, result.notices))
        record(_done(job, plan, training))
    _draw_page(this)
    return result


def _calibrated(
    this: DecidedFit, seen: Store, planned: Plan, ended: Plan, training: Training, *, report: Report
) -> dict[float, Calibrated]:
    """The calibrations of a fit; ``planned`` is its plan, ``ended`` the one it came to its end with. No row state of folds is kept.

    Empty where its time was over before they were made. Raises CalibrationTimeout then where the run is to stop at its limit.
    """
    job, directory = this.job, this.checkpoints.directory
    if job.calibrate is None:
        return by_the_loss(ended)
    from streamsvm.jobs.calibration_scores import FoldFits

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
        found = calibrated(job, ended, training, seen, fits, executor=this.executor)
    except CalibrationTimeout:
        if job.at_limit == STOP:
            raise
        report(timeout_event(job))
        return {}
    for event in events_of(found):
        report(event)
    return found


def _result(this: DecidedFit, plan: Plan, training: Training, models: dict[float, Model]) -> FitResult:
    """What ``fit`` answers with."""
    notice, best = this.store.facts.get("notice"), best_cost(plan.costs, training)
    idle = idle_settings(this.job, plan)
    about = [
        *limit_notice(plan),
        *([notice] if notice else []),
        *scale_notice(this.job, this.store),
        *offset_notice(plan, this.store),
        *unscaled_notice(this.job, this.store),
    ]
    notices = (*this.said, *about, *idle)
    warnings = (*uncertified(this.job, this.store, plan, training), *not_calibrated(this.job, models))
    failure = strict_failure(warnings) if this.job.strict else None
    return FitResult(
        models[best], training, plan, this.run, models, notices=notices, warnings=warnings, failure=failure
    )
