"""What a fit leaves: a model for each C, and a folder with the record of the run; and whether a run has left all of it.

Models are written last of all, first into the run's folder and then where they were asked for: where the last model is,
the run is over. A run that was killed in between finds some of its own models there when it is resumed.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import msgspec
import numpy as np

from streamsvm import __version__, durable
from streamsvm.aliases import JsonObject
from streamsvm.engine.training import Run, Training
from streamsvm.errors import StreamSVMError
from streamsvm.features.expansion import Expansion
from streamsvm.features.scaling import Raw, Standardized
from streamsvm.jobs.fit.identity import FREE, MANAGEMENT
from streamsvm.jobs.fit.options import FitJob
from streamsvm.jobs.fit.planning.kernel_machine import machine_of
from streamsvm.jobs.fit.planning.plan import Plan
from streamsvm.jobs.fit.validation import fold, verdict
from streamsvm.model import Model, load
from streamsvm.outputs import Output
from streamsvm.outputs.kinds import ARRAY, MODEL, PAGE, RUN
from streamsvm.regular import open_regular
from streamsvm.rows import Float64
from streamsvm.store import open_store
from streamsvm.store.format.labels import sort_key
from streamsvm.types import Certificate, LinearSolution, Problem, Status, Store, SupportSolution

PLAN, CERTIFICATE, COPY, JOB = "plan.json", "certificate.json", "model.ssvm", "job.json"
"""Files of the run's folder: the plan, how the run ended, a copy of the model, and what was asked for."""
EVENTS, RECORD, EVALUATION = "events.jsonl", "record.json", "evaluation.json"
"""More of them, for the page of the run: what happened when, what its data and model look like, how good it was found."""
PLACES = ("store", "model", "dual", "cluster", "memory")
"""Settings that name outputs, machines and what they offer, and the store, whose digest is known: not in a model."""
FILES = ("landmark_file", "warm_start", "validation")
"""Settings that may name a file or a store: a model knows it by its content."""
STOPPING = ("max_passes", "time_limit")
"""Settings that do not shape a converged result; another value of one asks for more than an earlier run has left."""


def path_names(target: Path, values: list[float]) -> dict[float, Path]:
    """Where the model of each C goes: the target itself when there is one, else NAME.C=VALUE with the same ending."""
    if len(values) == 1:
        return {values[0]: target}
    return {C: target.with_name(f"{target.stem}.C={C:g}{target.suffix}") for C in values}


def run_folder(model: Path) -> Path:
    """Where the record of the fit of a model lies."""
    return model.with_name(model.name + ".run")


def model_paths(job: FitJob, costs: list[float]) -> list[Path]:
    """Every file a fit writes a model to, its folder apart: one for each C, and the best one where there is a choice."""
    target = Path(job.model)
    return sorted({*path_names(target, costs).values(), *([target] if job.validation is not None else [])})


def outputs_of(job: FitJob, store: Store, costs: list[float], *, checkpoint: bool) -> list[Output]:
    """All a fit writes; a resumed one goes on with what an earlier run of the same fit has written, and needs no leave.

    ``checkpoint``: whether there is one of that run. Without it only models of the same limits are known to be its own.
    """
    outputs = [Output(run_folder(Path(job.model)), RUN, continues=True)]
    if job.dual is not None:
        outputs.append(Output(Path(job.dual), ARRAY, continues=checkpoint))
    if job.report is not None:
        outputs.append(Output(Path(job.report), PAGE, continues=checkpoint))
    for path in model_paths(job, costs):
        model = _left_by(job, store, path) if job.resume else None
        ours = model is not None and (checkpoint or not _differ(job, model, STOPPING))
        outputs.append(Output(path, MODEL, continues=ours))
    return outputs


def models_of(job: FitJob, store: Store, plan: Plan, training: Training) -> dict[float, Model]:
    """The models of a training, one for each C."""
    weights, expansion = function_of(plan, training)
    model = Model(weights, plan.class_names, _provenance(job, store, training), expansion)
    return models_by_C(model, plan.problems)


def models_by_C(model: Model, problems: Sequence[Problem]) -> dict[float, Model]:
    """What was fitted for all values of C at once, taken apart; certificates go with the models they are of.

    The classes of a model are in sorted order, whatever order a store met them in.
    """
    found = {}
    classes = model.classes
    for C in dict.fromkeys(problem.C for problem in problems):
        mine = [k for k, problem in enumerate(problems) if problem.C == C]
        certificates = [c for c in model.provenance.get("certificates", []) if c["C"] == C]
        if len(mine) > 1:
            order = sorted(range(len(mine)), key=lambda k: sort_key(model.classes[k]))
            classes = tuple(model.classes[k] for k in order)
            mine, certificates = [mine[k] for k in order], [certificates[k] for k in order if certificates]
        provenance = model.provenance | {"certificates": certificates}
        found[C] = replace(model, weights=model.weights[mine], classes=classes, provenance=provenance)
    return found


def function_of(plan: Plan, training: Training) -> tuple[Float64, Expansion | None]:
    """Return weights, one row a problem, the constant last, and what they are weights of: kernel points, or None for columns."""
    rows = []
    solutions = [plan.solver.solution(run.state) for run in training.runs]
    supports = [s for s in solutions if isinstance(s, SupportSolution)]
    if supports:
        kernel, inner = plan.problems[0].kernel, plan.features
        assert kernel is not None
        assert isinstance(inner, Raw | Standardized)
        return machine_of(kernel, plan.layout.columns, inner, supports)
    for solution in solutions:
        assert isinstance(solution, LinearSolution)
        rows.append(fold(plan, solution))
    return np.array(rows), plan.features.expansion


def _provenance(job: FitJob, store: Store, training: Training) -> JsonObject:
    return {
        "store": {"digest": store.digest, "rows": store.layout.rows},
        "settings": _settings_of(job),
        "status": training.status.value,
        "certificates": certificates_of(training),
        "validation": verdict([run.problem.C for run in training.runs], training),
        "encoding": store.facts.get("encoding"),
        "names": store.facts.get("names"),
        "labels": store.facts.get("labels"),
        "streamsvm": __version__,
    }


def _settings_of(job: FitJob) -> JsonObject:
    """All settings but those that say how the run was managed, as plain JSON; files by their content.

    What things are called is in the folder of the run: the same fit under other names gives the same file.
    """
    left_out = {*MANAGEMENT, *PLACES}
    plain = {name: value for name, value in _plain(job).items() if name not in left_out}
    return plain | {name: _content(plain[name]) for name in FILES if isinstance(plain[name], str)}


def _plain(job: FitJob) -> JsonObject:
    settings: JsonObject = msgspec.to_builtins(job)
    return settings


def _content(name: str) -> str:
    """The digest of a store or of a file that a fit reads. Raises what opening a store raises, StorageError."""
    path = Path(name)
    if not path.is_file():
        return str(open_store(path).digest)
    with open(open_regular(path, follow=True), "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def certificates_of(training: Training) -> list[JsonObject]:
    """Primal, dual, gap and rounding of every problem, as plain JSON; the gap counts the rounding.

    ``problem`` is its number in the whole fit, the row of a file of dual variables: a model holds those of one C only,
    and has its classes in an order of its own.
    """
    return [
        {
            "problem": number,
            "C": run.problem.C,
            "positive": run.problem.positive,
            "primal": c.primal,
            "dual": c.dual,
            "gap": c.gap,
            "rounding": c.rounding,
            "bound": run.problem.kernel is None or run.problem.kernel.positive_semidefinite(),
        }
        for number, run in enumerate(training.runs)
        if (c := run.certificate) is not None
    ]


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
        "validation": verdict(plan.costs, training),
        "simplex": [worst.facts["simplex_gap"], worst.facts["seen_gap"]] if simplex else None,
    }


def write_outputs(
    job: FitJob, plan: Plan, training: Training, models: Mapping[float, Model], best: float
) -> list[Path]:
    """Write record and models; returns where the models are. Raises StorageError."""
    target, costs = Path(job.model), plan.costs
    run = run_folder(target)
    durable.write_file(run / JOB, json.dumps(_plain(job), indent=1).encode())
    durable.write_file(run / PLAN, json.dumps(plan.facts(), indent=1).encode())
    certificate = {**summary(training, plan), "problems": certificates_of(training)}
    durable.write_file(run / CERTIFICATE, json.dumps(certificate, indent=1).encode())
    copies, paths = path_names(run / COPY, costs), path_names(target, costs)
    for C, model in models.items():
        model.save(copies[C])
    for C, model in models.items():
        model.save(paths[C])
    if job.validation is not None and len(models) > 1:
        models[best].save(target)
    return list(paths.values())


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
    more = not calibrated if by_itself else any(_differ(job, model, STOPPING) for model in models.values())
    without_dual = job.dual is not None and not Path(job.dual).is_file()
    return None if more or without_dual or certificates != record["problems"] else (training, models)


def _differ(job: FitJob, model: Model, names: Sequence[str]) -> bool:
    """Whether one of these settings of a job is not that of the fit that made the model."""
    made, asked = model.provenance["settings"], json.loads(json.dumps(_settings_of(job)))
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
    shaping = [name for name in _settings_of(job) if name not in FREE]
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
