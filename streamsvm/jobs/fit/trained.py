"""The training of a fit that is decided: the solver that is chosen, and the one a stalled run goes over to; its checkpoints and its loop."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple, Protocol

from streamsvm import durable
from streamsvm.config.command_line import command_of
from streamsvm.engine import signals
from streamsvm.engine.checkpoint import CheckpointDirectory, RunCheckpointer, Saved
from streamsvm.engine.executor import Executor, local_executor
from streamsvm.engine.groups import local_trainer
from streamsvm.engine.loop import FitLoop, RunSettings
from streamsvm.engine.stores import StoreGuard
from streamsvm.engine.training import Training
from streamsvm.errors import InterruptedRun
from streamsvm.jobs.calibrate import calibration_passes
from streamsvm.jobs.fit.distributed import distributed_fit, in_whole_groups
from streamsvm.jobs.fit.identity import complete_identity
from streamsvm.jobs.fit.options import FitJob
from streamsvm.jobs.fit.planning.plan import Plan
from streamsvm.jobs.fit.precision import FLOAT64, enough_left, finer_event, finer_plan, going_on, stalls_on, too_coarse
from streamsvm.jobs.fit.results.certified import certify, final_passes
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


class Ended(NamedTuple):
    """A training that is over and certified, its per-row state still open."""

    seen: Store
    """What the solver has read: the rows, or their features."""
    plan: Plan
    """As it ended."""
    training: Training
    """What it has come to, with the certificates of what is saved."""
    closed: Certificates
    """Those of the solver's last pass."""


class Train(Protocol):
    """How a fit is brought to the end of what one solver comes to on one kind of features."""

    def __call__(
        self, seen: Store, plan: Plan, *, leaves: bool, before: Training | None
    ) -> AbstractContextManager[tuple[Plan, Training]]:
        """Train, and keep the per-row state open: ``leaves``: until it stalls, ``before``: what was spent on another."""
        ...


class Beginning(NamedTuple):
    """What a training begins with."""

    job: FitJob
    """What is asked."""
    store: Store
    """The rows."""
    seen: Store
    """What the solver reads: the rows, or their features."""
    plan: Plan
    """The solver, and its features."""
    began: float
    """When the job began, by the clock of ``time.monotonic``."""


@contextmanager
def brought_to_end(start: Beginning, train: Train, report: Report, following: Plan | None = None) -> Iterator[Ended]:
    """The end of a training, certified, by the solver and on the features that brought it there.

    ``following``: the plan with another solver for one that stalls.
    """
    job, store, seen, plan, _ = start
    exact = finer_plan(job, store, plan)
    leaves = following is not None or (exact is not None and stalls_on(plan))
    with train(seen, plan, leaves=leaves, before=None) as (plan, training):
        left = training.status == Status.STALLED and bool(training.active())
        ended = Ended(seen, plan, training, []) if left else _certified(store, seen, plan, training)
        following = _next_plan(start, ended, report, following if left else None, exact)
        if following is None:
            yield ended
            return
        seen = store if following.request is not None else seen
        spent = replace(training, runs=[], row_states={})
        del ended, training  # the rows they have go before others come
    with train(seen, following, leaves=False, before=spent) as (plan, training):
        yield _certified(store, seen, plan, training)


def _certified(store: Store, seen: Store, plan: Plan, training: Training) -> Ended:
    """Evaluate what is saved."""
    closed = [run.certificate for run in training.runs]
    certify(plan, training, store, seen)
    return Ended(seen, plan, training, closed)


def _next_plan(
    start: Beginning, ended: Ended, report: Report, following: Plan | None, exact: Plan | None
) -> Plan | None:
    """The plan to go on with, which is reported; None: this was the end. A training that was left has nothing ``closed``."""
    _, plan, training, closed = ended
    if following is not None:
        report(left_event(training, following))
        return following
    spent = time.monotonic() - start.began
    coarse = not closed or (too_coarse(plan, training, closed) and enough_left(start.job, training, spent))
    if exact is None or not coarse:
        return None
    report(finer_event(plan, training, closed))
    return going_on(exact, plan, training)


@contextmanager
def trained(this: DecidedFit, seen: Store, plan: Plan, report: Report) -> Iterator[Ended]:
    """The end of the training of a fit that leaves checkpoints, with the per-row state still open."""

    def train(
        seen: Store, plan: Plan, *, leaves: bool, before: Training | None
    ) -> AbstractContextManager[tuple[Plan, Training]]:
        fit = this if before is None else replace(this, saved=[])
        return _trained_by(fit, seen, plan, report, leaves=leaves, before=before)

    start = Beginning(this.job, this.store, seen, plan, this.began)
    with brought_to_end(start, train, report, successor(this.job, this.store, plan)) as ended:
        yield ended


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
            with signals.resumed_by(command_of("fit", job, resume=True)):
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
    if plan.request is not None and plan.request.exact:  # what the checkpoints of features in float32 refer to stays
        directory /= FLOAT64
        durable.make_directory(directory)
    if this.executor is None:
        return local_loop(this.job, seen, plan, directory, report)
    from streamsvm.engine.distributed import DistributedTrainer

    return DistributedTrainer(distributed_fit(this.job, plan, seen, directory), this.executor, report)


def local_loop(job: FitJob, store: Store, plan: Plan, directory: Path | None, report: Report) -> FitLoop:
    """The fit loop in this process as a plan has it; ``directory`` is for checkpoints of per-row state, None: there are none."""
    memory, groups = plan.memory, job.groups
    whole = groups is not None and in_whole_groups(plan, store.layout, groups)
    kept = (memory.retain, memory.cached, directory, memory.resident)
    settings = RunSettings(job.seed, job.prefetch, *kept, groups=groups, whole_groups=whole)
    executor = local_executor(memory.threads)
    return local_trainer(store, plan.solver, plan.problems, plan.features, settings, report, executor)
