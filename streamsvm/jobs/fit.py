"""fit: a store and settings in, a certified model and a run folder out."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from streamsvm import __version__, durable
from streamsvm.features.scaling import Raw, Standardised
from streamsvm.jobs.features import with_features
from streamsvm.jobs.planning import FitJob, Plan, make_plan
from streamsvm.jobs.training import Course, Trainer, Training
from streamsvm.model import Model
from streamsvm.store import open_store
from streamsvm.store.resident import Resident
from streamsvm.types import KernelSolution, LinearSolution, Report, Stop, Store, silent


@dataclass(frozen=True, slots=True)
class FitResult:
    """A model, how it was come by, and where the record of it lies."""

    model: Model
    training: Training
    plan: Plan
    run: Path


def fit(job: FitJob, report: Report = silent) -> FitResult:
    """Train and save a model. Raises StreamSVMError of every kind; BudgetError before the first read."""
    store, target = open_store(job.store), Path(job.model)
    plan = make_plan(job, store)
    plan.memory.check(plan.remedy)
    run = target.with_name(target.name + ".run")
    durable.claim(target, overwrite=job.overwrite)
    durable.make_directory(run)
    with ExitStack() as stack:
        tell = stack.enter_context(_recorded(report, run / "events.jsonl"))
        tell({"event": "plan", **plan.facts()})
        scratch = None if plan.memory.resident else Path(stack.enter_context(tempfile.TemporaryDirectory(dir=run)))
        stack.enter_context(threadpool_limits(1))  # a second BLAS thread fights the reader for its core
        seen, plan = with_features(job, store, plan, run, tell)
        training = _train(job, seen, plan, scratch, tell)
        provenance = _provenance(job, store, training)
        model = Model(_weights(plan, training), plan.class_names, provenance, plan.features.expansion)
        if job.dual:
            _save_dual(Path(job.dual), training)
        for rows in training.row_states.values():
            rows.close()
        _keep(run, plan, model, training)
        model.save(target)
        tell({"event": "done", "model": str(target), **summary(training, plan)})
    return FitResult(model, training, plan, run)


def _train(job: FitJob, store: Store, plan: Plan, scratch: Path | None, report: Report) -> Training:
    memory, features = plan.memory, plan.features
    if memory.kept and isinstance(features, Raw | Standardised):
        store, features = Resident(store, features.apply), Raw(job.bias)
    course = Course(job.seed, job.prefetch, memory.retain, memory.kept, scratch)
    trainer = Trainer(store, plan.solver, plan.problems, features, course, report)
    return trainer.train(Stop(job.max_passes, job.time_limit))


def _weights(plan: Plan, training: Training) -> Any:
    """One row a problem, on raw features or kernel values, the constant folded into the last component."""
    rows = []
    for run in training.runs:
        solution = plan.solver.solution(run.state)
        assert isinstance(solution, LinearSolution)
        found = plan.features.fold(solution)
        if isinstance(found, KernelSolution):
            rows.append(np.append(found.coefficients, found.intercept))
        else:
            rows.append(np.append(found.w[:-1], found.bias * found.w[-1]))
    return np.array(rows)


def _provenance(job: FitJob, store: Any, training: Training) -> dict[str, Any]:
    return {
        "store": {"name": store.name, "digest": store.digest, "rows": store.layout.rows},
        "settings": settings_of(job),
        "certificates": certificates_of(training),
        "encoding": store.facts.get("encoding"),
        "names": store.facts.get("names"),
        "labels": store.facts.get("labels"),
        "streamsvm": __version__,
    }


def settings_of(job: FitJob) -> dict[str, Any]:
    """The settings that shape the result, as plain JSON."""
    import msgspec

    plain: dict[str, Any] = msgspec.to_builtins(job)
    return plain


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
        "compute_share": busy,
    }


def _save_dual(path: Path, training: Training) -> None:
    """The dual variables (problems, rows) float64 as .npy, written chunk by chunk.  One problem: (rows,)."""
    rows = training.row_states["alpha"]
    chunks = range(len(rows.layout.chunks))
    durable.write_npy(path, rows.layout.rows, (rows.load(c)[0] for c in chunks))


@contextmanager
def _recorded(report: Report, path: Path) -> Iterator[Callable[[dict[str, Any]], None]]:
    """Sends every event to the caller and, progress apart, to the run's log."""
    with durable.open_log(path) as log:

        def tell(event: dict[str, Any]) -> None:
            if event["event"] != "progress":
                log.write(json.dumps(event) + "\n")
            report(event)

        yield tell


def _keep(run: Path, plan: Plan, model: Model, training: Training) -> None:
    durable.write_file(run / "plan.json", json.dumps(plan.facts(), indent=1).encode())
    certificate = {**summary(training, plan), "problems": certificates_of(training)}
    durable.write_file(run / "certificate.json", json.dumps(certificate, indent=1).encode())
    model.save(run / "model.ssvm")
