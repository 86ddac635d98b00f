"""fit: a store and settings in, a certified model and a run folder out."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from threadpoolctl import threadpool_limits

from streamsvm import __version__, durable
from streamsvm.engine.checkpoint import signals
from streamsvm.engine.checkpoint.checkpoint_file import CheckpointDirectory, Saved
from streamsvm.engine.executor import Executor, executor_for
from streamsvm.engine.trainer import RunSettings, Trainer
from streamsvm.engine.training import Training
from streamsvm.features.scaling import Raw, Standardized
from streamsvm.jobs.fit import resume
from streamsvm.jobs.fit.distributed import DistributedTrainer, distributed_fit, distributed_job
from streamsvm.jobs.fit.dual_file import save_dual
from streamsvm.jobs.fit.kernel_features import with_features
from streamsvm.jobs.fit.kernel_machine import machine_of
from streamsvm.jobs.fit.options import FitJob
from streamsvm.jobs.fit.plan import Plan
from streamsvm.jobs.fit.problems import models_by_C, path_names
from streamsvm.jobs.fit.validation import HeldOutValidation, best_cost, evaluator_for, fold, opened, verdict
from streamsvm.locks import locked
from streamsvm.model import Model
from streamsvm.outputs import Output, claim, output_path
from streamsvm.outputs.kinds import ARRAY, MODEL, RUN
from streamsvm.scratch import sweep_beside
from streamsvm.store.views.cached import Resident
from streamsvm.types import LinearSolution, Report, Stop, Store, SupportSolution, silent


@dataclass(frozen=True, slots=True)
class FitResult:
    """A model, how it was come by, and where the record of it lies."""

    model: Model
    training: Training
    plan: Plan
    run: Path
    models: dict[float, Model]
    """By C; ``model`` is the best on held-out rows, where there are such, else the last one."""
    notices: tuple[str, ...] = ()
    """What there is to say of the store."""


def fit(job: FitJob, report: Report = silent, executor: Executor | None = None) -> FitResult:
    """Train and save a model, through ``executor`` or the cluster the job names. BudgetError before the first read.

    Raises StreamSVMError of every kind; InterruptedRun when the run was stopped from outside: the message says how to
    go on.
    """
    with executor_for(job, executor) as found:
        return _planned(job if found is None else distributed_job(job, found), report, found)


def _planned(job: FitJob, report: Report, executor: Executor | None) -> FitResult:
    target = output_path(job.model)
    store, held = opened(job)
    checkpoints = CheckpointDirectory(run_folder(target) / "checkpoint")
    saved = checkpoints.read() if job.resume else []
    plan = resume.plan_again(job, store, saved)
    plan.memory.check(plan.remedy)
    claim(_outputs(job, plan), _inputs(job), overwrite=job.overwrite)
    with locked(target), checkpoints.open(keep=bool(saved)):
        sweep_beside(target)
        return _fit(job, (store, held), plan, report, checkpoints, saved, executor)


def _outputs(job: FitJob, plan: Plan) -> list[Output]:
    """All a fit writes; the folder of the run is added to."""
    target = Path(job.model)
    models = {*path_names(target, plan.costs).values(), *([target] if job.validation is not None else [])}
    dual = [] if job.dual is None else [Output(Path(job.dual), ARRAY)]
    return [*(Output(path, MODEL) for path in sorted(models)), *dual, Output(run_folder(target), RUN, continues=True)]


def _inputs(job: FitJob) -> list[str | None]:
    held = job.validation if isinstance(job.validation, str) else None
    return [job.store, job.landmark_file, job.warm_start, held]


def run_folder(model: Path) -> Path:
    """Where the record of the fit of a model lies."""
    return model.with_name(model.name + ".run")


def _fit(  # noqa: PLR0917  what ``_planned`` found out
    job: FitJob,
    stores: tuple[Any, Any],
    plan: Plan,
    report: Report,
    checkpoints: CheckpointDirectory,
    saved: list[Saved],
    executor: Executor | None,
) -> FitResult:
    target, run, (store, held) = Path(job.model), checkpoints.directory.parent, stores
    with ExitStack() as stack:
        tell = stack.enter_context(_recorded(report, run / "events.jsonl"))
        tell({"event": "plan", **plan.facts()})
        stack.enter_context(threadpool_limits(1))  # a second BLAS thread fights the reader for its core
        seen, plan = with_features(job, store, plan, run, tell, executor)
        checkpointer = resume.checkpointer_for(job, store, plan, checkpoints, saved=saved, report=tell)
        evaluator = evaluator_for(job, plan, held, tell, executor)
        plan, training = stack.enter_context(_trained(job, seen, plan, checkpointer, tell, executor, evaluator))
        provenance = _provenance(job, store, training)
        weights, expansion = _function(plan, training)
        models = models_by_C(Model(weights, plan.class_names, provenance, expansion), plan.problems)
        paths, best = path_names(target, plan.costs), best_cost(plan.costs, training)
        if job.dual:
            save_dual(Path(job.dual), seen, plan, training)
        _keep(run, plan, training)
        for C, model in models.items():
            model.save(path_names(run / "model.ssvm", plan.costs)[C])
        for C, model in models.items():  # last of all: where the model is, the run is over
            model.save(paths[C])
        if evaluator is not None and len(models) > 1:
            models[best].save(target)
        tell({"event": "done", "model": ", ".join(map(str, paths.values())), **summary(training, plan)})
    notice = store.facts.get("notice")
    return FitResult(models[best], training, plan, run, models, (notice,) if notice else ())


@contextmanager
def _trained(  # noqa: PLR0917  what ``_fit`` has at hand
    job: FitJob,
    store: Store,
    plan: Plan,
    checkpointer: resume.RunCheckpointer,
    report: Report,
    executor: Executor | None,
    evaluator: HeldOutValidation | None,
) -> Iterator[tuple[Plan, Training]]:
    """The end of the training, with the per-row state still open, and the plan as it ended."""
    directory = checkpointer.checkpoints.directory
    if executor is None:
        trainer: Trainer | DistributedTrainer = _trainer(job, store, plan, directory, report)
    else:
        trainer = DistributedTrainer(distributed_fit(job, plan, store, directory), executor, report)
    with closing(trainer):
        limits = (math.inf, job.time_limit)
        limit, stopped = limits if job.at_limit == resume.STOP else limits[::-1]
        trainer.evaluator = evaluator
        with signals.deferred(), signals.expiring(stopped):
            training = trainer.train(Stop(job.max_passes, limit), checkpointer)
            if evaluator is not None:
                plan, training = evaluator.chosen(plan, training, trainer)
        yield plan, training


def _trainer(job: FitJob, store: Store, plan: Plan, directory: Path, report: Report) -> Trainer:
    memory, features = plan.memory, plan.features
    if memory.cached and isinstance(features, Raw | Standardized):
        store, features = Resident(store, features.apply), Raw(job.bias)
    course = RunSettings(job.seed, job.prefetch, memory.retain, memory.cached, directory, memory.resident)
    return Trainer(store, plan.solver, plan.problems, features, course, report)


def _function(plan: Plan, training: Training) -> tuple[Any, Any]:
    """Weights, one row a problem, the constant last, and what they are weights of: kernel points, or None for columns."""
    rows = []
    solutions = [plan.solver.solution(run.state) for run in training.runs]
    supports = [s for s in solutions if isinstance(s, SupportSolution)]
    if supports:
        return machine_of(plan.problems[0].kernel, plan.layout.columns, plan.features, supports)
    for solution in solutions:
        assert isinstance(solution, LinearSolution)
        rows.append(fold(plan, solution))
    return np.array(rows), plan.features.expansion


def _provenance(job: FitJob, store: Any, training: Training) -> dict[str, Any]:
    return {
        "store": {"name": store.name, "digest": store.digest, "rows": store.layout.rows},
        "settings": _settings_of(job),
        "certificates": certificates_of(training),
        "validation": verdict([run.problem.C for run in training.runs], training),
        "encoding": store.facts.get("encoding"),
        "names": store.facts.get("names"),
        "labels": store.facts.get("labels"),
        "streamsvm": __version__,
    }


def _settings_of(job: FitJob) -> dict[str, Any]:
    """All settings but those that say how the run was managed, as plain JSON."""
    plain: dict[str, Any] = msgspec.to_builtins(job)
    return {name: value for name, value in plain.items() if name not in resume.MANAGEMENT}


def certificates_of(training: Training) -> list[dict[str, Any]]:
    """Primal, dual and gap of every problem, as plain JSON."""
    return [
        {"C": run.problem.C, "positive": run.problem.positive, "primal": c.primal, "dual": c.dual, "gap": c.gap}
        for run in training.runs
        if (c := run.certificate) is not None
    ]


def summary(training: Training, plan: Plan) -> dict[str, Any]:
    """How the run ended: what the last line of a fit says."""
    worst = max((run for run in training.runs if run.certificate), key=lambda run: run.certificate.gap)  # type: ignore[union-attr]
    assert worst.certificate is not None
    found = worst.certificate.facts
    busy = 1.0 - training.waited / training.seconds if training.seconds else 1.0
    return {
        "status": training.status.value,
        "gap": worst.certificate.gap,
        "primal": worst.certificate.primal,
        "dual": worst.certificate.dual,
        "passes": training.passes,
        "seconds": training.seconds,
        "peak": training.peak,
        "limit": plan.memory.limit,
        "bytes_read": training.bytes_read,
        "reads_repeated": training.reads_repeated,
        "compute_share": busy,
        "validation": verdict(plan.costs, training),
        "simplex": [found["simplex_gap"], found["seen_gap"]] if "simplex_gap" in found else None,
    }


@contextmanager
def _recorded(report: Report, path: Path) -> Iterator[Callable[[dict[str, Any]], None]]:
    """Sends every event to the caller and, progress apart, to the run's log."""
    with durable.open_log(path) as log:

        def tell(event: dict[str, Any]) -> None:
            if event["event"] != "progress":
                log.write(json.dumps(event) + "\n")
            report(event)

        yield tell


def _keep(run: Path, plan: Plan, training: Training) -> None:
    durable.write_file(run / "plan.json", json.dumps(plan.facts(), indent=1).encode())
    certificate = {**summary(training, plan), "problems": certificates_of(training)}
    durable.write_file(run / "certificate.json", json.dumps(certificate, indent=1).encode())
