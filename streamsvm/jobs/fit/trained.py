"""The training of a fit that is decided: the solver that is chosen, and the one a stalled run goes over to; its checkpoints and its loop."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from streamsvm.config.command_line import command_of
from streamsvm.engine.checkpoint import signals
from streamsvm.engine.checkpoint.checkpoint_file import CheckpointDirectory, Saved
from streamsvm.engine.checkpoint.checkpointer import RunCheckpointer
from streamsvm.engine.executors.executor import Executor
from streamsvm.engine.executors.thread_executor import local_executor
from streamsvm.engine.groups.distributed import DistributedTrainer
from streamsvm.engine.job_store import StoreGuard
from streamsvm.engine.local import local_trainer
from streamsvm.engine.trainer import FitLoop, RunSettings
from streamsvm.engine.training import Training
from streamsvm.errors import InterruptedRun
from streamsvm.jobs.calibrate.choice import calibration_passes
from streamsvm.jobs.fit.distributed import distributed_fit, in_whole_groups
from streamsvm.jobs.fit.identity import complete_identity
from streamsvm.jobs.fit.options import FitJob
from streamsvm.jobs.fit.planning.plan import Plan
from streamsvm.jobs.fit.results.certified import final_passes
from streamsvm.jobs.fit.validation.evaluator import evaluator_for
from streamsvm.jobs.leaving import left_event, stalled, successor
from streamsvm.types import Certificate, Report, Status, Stop, Store

Certificates = list[Certificate | None]
"""Those of all problems."""
STOP = "stop"
"""The value of ``at_limit`` that ends a run at its time limit with a checkpoint."""


@dataclass(frozen=True, slots=True)
class DecidedFit:
    """A fit that is decided: what its steps have at hand."""

    job: FitJob
    """What is asked, with what was left open settled."""
    store: Store
    """The rows that are trained on."""
    held: Store | None
    """The chunks that are held out, where a part of the store is."""
    plan: Plan
    """What was decided before the first read."""
    checkpoints: CheckpointDirectory
    """Where the run keeps its checkpoints."""
    saved: list[Saved]
    """The checkpoints a resumed run found, the newest first; empty for a run that begins."""
    executor: Executor | None
    """Who works on the groups; None: the threads of this process."""
    began: float
    """When the job began, by the clock of ``time.monotonic``: starting workers and making features is of its time."""
    said: tuple[str, ...] = ()
    """What is worth knowing of an earlier run."""

    @property
    def run(self) -> Path:
        """The run's folder."""
        return self.checkpoints.directory.parent


@contextmanager
def trained(this: DecidedFit, seen: Store, plan: Plan, report: Report) -> Iterator[tuple[Plan, Training]]:
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
    this: DecidedFit, seen: Store, plan: Plan, report: Report, *, leaves: bool = False, before: Training | None = None
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


def keep_trained(this: DecidedFit, plan: Plan, training: Training, closed: Certificates, report: Report) -> None:
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


def _checkpointer(this: DecidedFit, plan: Plan, report: Report) -> RunCheckpointer:
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
        this.began + job.time_limit + (0.0 if job.at_limit == STOP else signals.finishing(job.time_limit)),
        this.saved,
    )


def _loop(this: DecidedFit, seen: Store, plan: Plan, report: Report) -> FitLoop:
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
