"""Writing what a fit leaves: the record of the run, and its models.

Models are written last of all, first into the run's folder and then where they were asked for: where the last model is,
the run is over. The certificate is written between the two, so that the peak it states has the memory that writing a model takes in it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path

from streamsvm import durable
from streamsvm.aliases import JsonObject
from streamsvm.engine.training import Training
from streamsvm.jobs.fit.options import FitJob
from streamsvm.jobs.fit.planning.plan import Plan
from streamsvm.jobs.fit.results.models import certificates_of, plain_settings
from streamsvm.jobs.fit.results.places import CERTIFICATE, COPY, JOB, PLAN, path_names, run_folder
from streamsvm.jobs.fit.validation.evaluator import best_cost, verdict
from streamsvm.model import Model


def summary(training: Training, plan: Plan) -> JsonObject:
    """How a run ended, as plain JSON: what the last line of a fit says."""
    worst = max((c for run in training.runs if (c := run.certificate) is not None), key=lambda c: c.gap)
    busy = 1.0 - training.waited / training.seconds if training.seconds else 1.0
    simplex = "simplex_gap" in worst.facts
    return {
        "status": training.status.value,
        "gap": worst.gap,
        "primal": worst.primal,
        "dual": worst.dual,
        "rounding": worst.rounding,
        "tolerance": plan.tolerance,
        "passes": training.passes,
        "seconds": training.seconds,
        "peak": training.peak,
        "limit": plan.memory.limit,
        "bytes_read": training.bytes_read,
        "reads_repeated": training.reads_repeated,
        "compute_share": busy,
        "validation": _validation(plan, training),
        "simplex": [worst.facts["simplex_gap"], worst.facts["seen_gap"]] if simplex else None,
    }


def _validation(plan: Plan, training: Training) -> JsonObject | None:
    """What the held-out rows say; of a regression with the name of the error, which is no share."""
    found = verdict(plan.costs, training)
    return found | {"measure": "RMSE"} if found is not None and plan.layout.numeric else found


def write_outputs(
    job: FitJob, plan: Plan, training: Training, models: Mapping[float, Model], most: Callable[[], int]
) -> None:
    """Write record and models, and take the peak of the training from ``most`` on the way. Raises StorageError."""
    target, costs = Path(job.model), plan.costs
    run = run_folder(target)
    durable.write_file(run / JOB, json.dumps(plain_settings(job), indent=1).encode())
    durable.write_file(run / PLAN, json.dumps(plan.facts(), indent=1).encode())
    copies, paths = path_names(run / COPY, costs), path_names(target, costs)
    for C, model in models.items():
        model.save(copies[C])
    training.peak = max(training.peak, most())
    certificate = {**summary(training, plan), "problems": certificates_of(training)}
    durable.write_file(run / CERTIFICATE, json.dumps(certificate, indent=1).encode())
    for C, model in models.items():
        model.save(paths[C])
    if job.validation is not None and len(models) > 1:
        models[best_cost(costs, training)].save(target)
