"""What an earlier run of the same fit has left: its own outputs, which a resumed run may replace, or all of its results.

A run that was killed between its models finds some of its own there when it is resumed; one that was stopped after the
last of them has nothing left to do.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from streamsvm.aliases import JsonObject
from streamsvm.engine.training import Run, Training
from streamsvm.errors import StreamSVMError
from streamsvm.jobs.fit.identity import FREE
from streamsvm.jobs.fit.options import FitJob
from streamsvm.jobs.fit.planning.plan import Plan
from streamsvm.jobs.fit.results.models import settings_of
from streamsvm.jobs.fit.results.places import CERTIFICATE, JOB, model_paths, path_names, run_folder
from streamsvm.model import Model, load
from streamsvm.outputs import ARRAY, MODEL, PAGE, RUN, Output
from streamsvm.types import Certificate, Status, Store

STOPPING = ("max_passes", "time_limit")
"""Settings that do not shape a converged result; another value of one asks for more than an earlier run has left."""


def outputs_of(job: FitJob, store: Store, costs: list[float], *, checkpoint: bool) -> list[Output]:
    """All a fit writes; a resumed one goes on with what an earlier run of the same fit has written, and needs no leave.

    ``checkpoint``: whether there is one of that run. Without it a model is the run's own if it was asked for no more than now:
    what is made anew then comes at least as far.
    """
    outputs = [Output(run_folder(Path(job.model)), RUN, continues=True)]
    left = {path: _left_by(job, store, path) if job.resume else None for path in model_paths(job, costs)}
    ours = {path: model is not None and (checkpoint or _goes_as_far(job, model)) for path, model in left.items()}
    outputs += [Output(path, MODEL, continues=own) for path, own in ours.items()]
    beside = {job.dual: ("dual", ARRAY), job.report: ("report", PAGE)}
    for path, (name, kind) in beside.items():
        if path is not None:
            own = checkpoint or (all(ours.values()) and path == _recorded_path(job, name))
            outputs.append(Output(Path(path), kind, continues=own))
    return outputs


def made_anew(job: FitJob, store: Store, costs: list[float], *, checkpoint: bool) -> tuple[str, ...]:
    """One line for a resumed fit that found models of its own, but nothing to go on from. Empty if not."""
    if not job.resume or checkpoint or not any(_left_by(job, store, path) for path in model_paths(job, costs)):
        return ()
    return ("the run that had ended left no checkpoint: the fit was made anew, and its models replaced",)


def finished(job: FitJob, store: Store, plan: Plan) -> tuple[Training, dict[float, Model]] | None:
    """What an earlier run of the same fit has left, if it has come to its end; None if there is something left to do."""
    target = Path(job.model)
    if any(_left_by(job, store, path) is None for path in model_paths(job, plan.costs)):
        return None
    models = {C: load(path) for C, path in path_names(target, plan.costs).items()}
    try:
        record = json.loads((run_folder(target) / CERTIFICATE).read_text(encoding="utf-8"))
        training = _recorded(record, plan)
    except (OSError, ValueError, KeyError, TypeError):
        return None
    certificates = [c for model in models.values() for c in model.provenance["certificates"]]
    certificates.sort(key=lambda found: found.get("problem", 0))
    by_itself = training.status in {Status.CONVERGED, Status.PATIENCE}
    calibrated = job.calibrate is None or all(model.calibration is not None for model in models.values())
    more = (
        not calibrated
        if by_itself
        else training.status == Status.ASKED or any(_differ(job, model, STOPPING) for model in models.values())
    )
    without_dual = job.dual is not None and not Path(job.dual).is_file()
    return None if more or without_dual or certificates != record["problems"] else (training, models)


def _goes_as_far(job: FitJob, model: Model) -> bool:
    """Whether none of the limits of a job is less than that of the fit that made the model."""
    made, asked = model.provenance["settings"], settings_of(job)
    limits = [(asked[name], made.get(name)) for name in STOPPING]
    return all(isinstance(then, int | float) and now >= then for now, then in limits)


def _recorded_path(job: FitJob, name: str) -> str | None:
    """What the earlier run in the folder of this one had written there, as its record names it."""
    try:
        found = json.loads((run_folder(Path(job.model)) / JOB).read_text(encoding="utf-8"))[name]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return str(found)


def _differ(job: FitJob, model: Model, names: Sequence[str]) -> bool:
    """Whether one of these settings of a job is not that of the fit that made the model."""
    made, asked = model.provenance["settings"], json.loads(json.dumps(settings_of(job)))
    return any(made.get(name) != asked[name] for name in names)


def _left_by(job: FitJob, store: Store, path: Path) -> Model | None:
    """The model at ``path``, if it was made of the same data with the same settings."""
    try:
        model = load(path)
    except StreamSVMError:
        return None
    settings, data = model.provenance.get("settings"), model.provenance.get("store")
    if not isinstance(settings, dict) or not isinstance(data, dict):
        return None
    shaping = [name for name in settings_of(job) if name not in FREE]
    return model if not _differ(job, model, shaping) and data.get("digest") == store.digest else None


def _certificate(found: JsonObject, facts: JsonObject) -> Certificate:
    """The certificate a record tells of."""
    return Certificate(found["primal"], found["dual"], facts=facts, rounding=found.get("rounding", 0.0))


def _recorded(record: JsonObject, plan: Plan) -> Training:
    """The training a record tells of. Raises KeyError, ValueError, TypeError for what is no record of this plan."""
    facts = dict(zip(("simplex_gap", "seen_gap"), record["simplex"] or (), strict=False))
    runs = [
        Run(problem, None, _certificate(found, facts), done=True)
        for problem, found in zip(plan.problems, record["problems"], strict=True)
    ]
    training = Training(runs, Status(record["status"]))
    for name in ("passes", "seconds", "peak", "bytes_read", "reads_repeated"):
        setattr(training, name, record[name])
    training.waited = (1.0 - record["compute_share"]) * training.seconds
    said = record["validation"]
    if said is not None:
        training.held = {repr(C): {"error": said["errors"][f"{C:g}"], "pass": said["pass"]} for C in plan.costs}
    return training
