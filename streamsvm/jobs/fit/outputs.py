"""What a fit writes, where, and what an earlier run of the same fit has written.

A fit writes a model for each C and a folder beside them with the record of the run. Models are written last of all,
first into the run's folder and then where they were asked for: where the last model is, the run is over. The
certificate is written between the two, so that the peak it states has the memory that writing a model takes in it.

A run that was killed between its models finds some of its own there when it is resumed, which it may replace; one that
was stopped after the last of them has nothing left to do.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from streamsvm import __version__, durable
from streamsvm.aliases import JsonObject
from streamsvm.engine.fit_state import ProblemRun, Training
from streamsvm.errors import DataError, StreamSVMError
from streamsvm.features.scaling import Raw, Standardized
from streamsvm.input_files import is_file, open_regular
from streamsvm.jobs.embed.plan import parameters_of
from streamsvm.jobs.fit.notices import not_calibrated
from streamsvm.jobs.fit.options import FitJob
from streamsvm.jobs.fit.plan import Plan, fold_rows
from streamsvm.jobs.fit.resume import FREE, MANAGEMENT
from streamsvm.jobs.fit.validate import best_cost, validation_facts
from streamsvm.kernels import KERNELS
from streamsvm.model import Model, load
from streamsvm.outputs import ARRAY, MODEL, PAGE, RUN, Output
from streamsvm.rows import Float64, row_stack
from streamsvm.store import open_store
from streamsvm.store.format.labels import sort_key
from streamsvm.types import Certificate, Kernel, LinearSolution, Problem, Status, Store, SupportSolution

if TYPE_CHECKING:
    from streamsvm.features.expansion import Expansion


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
    """Return where the model of each C goes: the target itself when there is one, else NAME.C=VALUE with the same
    ending.
    """
    if len(values) == 1:
        return {values[0]: target}
    return {C: target.with_name(f"{target.stem}.C={C:g}{target.suffix}") for C in values}


def run_folder(model: Path) -> Path:
    """Return where the record of the fit of a model lies."""
    return model.with_name(model.name + ".run")


def model_paths(job: FitJob, costs: list[float]) -> list[Path]:
    """Return every file a fit writes a model to, its folder apart: one for each C, and the best one where there is a
    choice.
    """
    target = Path(job.model)
    return sorted({*path_names(target, costs).values(), *([target] if job.validation is not None else [])})


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
        models[best_cost(plan, training)].save(target)


def summary(training: Training, plan: Plan) -> JsonObject:
    """Return how a run ended, as plain JSON: what the last line of a fit says."""
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


def models_of(job: FitJob, store: Store, plan: Plan, training: Training) -> dict[float, Model]:
    """Return the models of a training, one for each C."""
    weights, expansion = function_of(plan, training)
    pairs = plan.problems[0].kind.votes
    model = Model(weights, plan.class_names, _provenance(job, store, plan, training), expansion, pairs=pairs)
    return models_by_C(model, plan.problems)


def models_by_C(model: Model, problems: Sequence[Problem]) -> dict[float, Model]:
    """Return what was fitted for all values of C at once, taken apart; certificates go with the models they are of.

    The classes of a model are in sorted order, whatever order a store met them in; pairs are solved in that order.
    """
    found = {}
    classes, of_rows = model.classes, [problem for problem in problems for _ in problem.kind.positives]
    for C in dict.fromkeys(problem.C for problem in problems):
        mine = [row for row, problem in enumerate(of_rows) if problem.C == C]
        certificates = [c for c in model.provenance.get("certificates", []) if c["C"] == C]
        if len(mine) > 1 and not model.pairs:
            order = sorted(range(len(mine)), key=lambda k: sort_key(model.classes[k]))
            classes = tuple(model.classes[k] for k in order)
            mine = [mine[k] for k in order]
            certificates = [certificates[k] for k in order] if len(certificates) > 1 else certificates
        provenance = model.provenance | {"certificates": certificates}
        found[C] = replace(model, weights=model.weights[mine], classes=classes, provenance=provenance)
    return found


def function_of(plan: Plan, training: Training) -> tuple[Float64, Expansion | None]:
    """Return weights, one row a decision value, the constant last, and what they are weights of: kernel points, or
    None for columns.
    """
    rows, first = [], plan.problems[0]
    solutions = [plan.solver.solution(run.state) for run in training.runs]
    supports = [s for s in solutions if isinstance(s, SupportSolution)]
    if supports:
        kernel, inner = first.kernel, plan.features
        assert kernel is not None
        assert isinstance(inner, Raw | Standardized)
        weights, expansion = build_expansion(kernel, plan.layout.columns, inner, supports)
        weights[:, -1] -= first.kind.decision_margin(first.loss)
        return weights, expansion
    for solution in solutions:
        assert isinstance(solution, LinearSolution)
        rows.append(fold_rows(plan, solution.w))
    weights = np.concatenate(rows)
    weights[:, -1] -= first.kind.decision_margin(first.loss)
    return weights, plan.features.expansion


def build_expansion(
    kernel: Kernel, columns: int, inner: Raw | Standardized, solutions: list[SupportSolution]
) -> tuple[Float64, Expansion]:
    """Return weights (problems, points + 1) and the points that all problems share, each support row once."""
    from streamsvm.compute.blocks.selection import take_rows
    from streamsvm.features.expansion import Expansion

    index = np.unique(np.concatenate([s.numbers for s in solutions]))
    if not len(index):  # of some problems alone, such as that of a class without weight, a constant is an answer
        raise DataError(
            "the best function is the same for every row: no row has a coefficient",
            hint="a class may have no weight at all, all numbers be within epsilon of one, or C be too small for float64: "
            "check the weights, lower epsilon, raise C",
        )
    weights = np.zeros((len(solutions), len(index) + 1))
    rows, known = [], np.empty(0, np.int64)
    for k, s in enumerate(solutions):
        weights[k, np.searchsorted(index, s.numbers)] = s.coefficients
        weights[k, -1] = s.intercept
        fresh = np.flatnonzero(~np.isin(s.numbers, known))
        rows.append(take_rows(s.points, fresh) if len(fresh) < len(s.numbers) else s.points)
        known = np.concatenate([known, s.numbers[fresh]])
    points = take_rows(row_stack(rows), np.argsort(known)) if len(rows) > 1 else rows[0]
    shift, scale = (inner.shift, inner.scale) if isinstance(inner, Standardized) else (None, None)
    points = points._replace(bias=0.0)
    return weights, Expansion(_name_of(kernel), parameters_of(kernel), points, columns, shift, scale)


def _name_of(kernel: Kernel) -> str:
    """Return the name of a kernel in the registry."""
    return next(name for name in KERNELS if KERNELS[name] is type(kernel))


def _provenance(job: FitJob, store: Store, plan: Plan, training: Training) -> JsonObject:
    return {
        "store": {"digest": store.digest, "rows": store.layout.rows},
        "settings": settings_of(job),
        "status": training.status.value,
        "certificates": certificates_of(training),
        "validation": validation_facts(plan, training),
        "encoding": store.facts.get("encoding"),
        "names": store.facts.get("names"),
        "labels": store.facts.get("labels"),
        "streamsvm": __version__,
    }


def certificates_of(training: Training) -> list[JsonObject]:
    """Primal, dual, gap and rounding of every problem, as plain JSON; the gap counts the rounding.

    ``problem`` is its number in the whole fit, the row of a file of dual variables: a model holds those of one C only,
    and has its classes in an order of its own.
    """
    return [
        {
            "problem": number,
            "C": run.problem.C,
            **run.problem.kind.facts(),
            "primal": c.primal,
            "dual": c.dual,
            "gap": c.gap,
            "rounding": c.rounding,
            "bound": run.problem.kernel is None or run.problem.kernel.positive_semidefinite(),
            **{name: c.facts[name] for name in ("columns_used", "equivalent_C") if name in c.facts},
        }
        for number, run in enumerate(training.runs)
        if (c := run.certificate) is not None
    ]


def settings_of(job: FitJob) -> JsonObject:
    """Return all settings but those that say how the run was managed, as plain JSON; files by their content.

    What things are called is in the folder of the run: the same fit under other names gives the same file.
    """
    left_out = {*MANAGEMENT, *PLACES}
    plain = {name: value for name, value in plain_settings(job).items() if name not in left_out}
    return plain | {name: _content(plain[name]) for name in FILES if isinstance(plain[name], str)}


def plain_settings(job: FitJob) -> JsonObject:
    """Return all settings of a fit as plain JSON."""
    settings: JsonObject = msgspec.to_builtins(job)
    return settings


def _content(name: str) -> str:
    """Return the digest of a store or of a file that a fit reads. Raises what opening a store raises, StorageError."""
    path = Path(name)
    if not is_file(path):
        return str(open_store(path).digest)
    with open(open_regular(path, follow=True), "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _validation(plan: Plan, training: Training) -> JsonObject | None:
    """Return what the held-out rows say; of a regression with the name of the error, which is no share."""
    found = validation_facts(plan, training)
    return {"measure": "RMSE"} | found if found is not None and plan.layout.numeric else found


def list_outputs(job: FitJob, store: Store, costs: list[float], *, checkpoint: bool) -> list[Output]:
    """Return all a fit writes; a resumed one goes on with what an earlier run of the same fit has written, and needs
    no leave.

    ``checkpoint``: whether there is one of that run. Without it a model is the run's own if it was asked for no more
    than now: what is made anew then comes at least as far.
    """
    outputs = [Output(run_folder(Path(job.model)), RUN, continues=True)]
    left = {path: _find_model_of(job, store, path) if job.resume else None for path in model_paths(job, costs)}
    ours = {path: model is not None and (checkpoint or _goes_as_far(job, model)) for path, model in left.items()}
    outputs += [Output(path, MODEL, continues=own) for path, own in ours.items()]
    beside = {job.dual: ("dual", ARRAY), job.report: ("report", PAGE)}
    for path, (name, kind) in beside.items():
        if path is not None:
            own = checkpoint or (all(ours.values()) and path == _find_recorded_path(job, name))
            outputs.append(Output(Path(path), kind, continues=own))
    return outputs


def notice_lost_checkpoint(job: FitJob, store: Store, costs: list[float], *, checkpoint: bool) -> tuple[str, ...]:
    """Return one line for a resumed fit that found models of its own, but nothing to go on from. Empty if not."""
    if not job.resume or checkpoint or not any(_find_model_of(job, store, path) for path in model_paths(job, costs)):
        return ()
    return ("the run that had ended left no checkpoint: the fit was made anew, and its models replaced",)


def read_finished_run(job: FitJob, store: Store, plan: Plan) -> tuple[Training, dict[float, Model]] | None:
    """Return what an earlier run of the same fit has left, if it has come to its end; None if there is something left
    to do.
    """
    target = Path(job.model)
    if any(_find_model_of(job, store, path) is None for path in model_paths(job, plan.costs)):
        return None
    models = {C: load(path) for C, path in path_names(target, plan.costs).items()}
    try:
        record = json.loads((run_folder(target) / CERTIFICATE).read_text(encoding="utf-8"))
        training = _restore_training(record, plan)
    except (OSError, ValueError, KeyError, TypeError):
        return None
    certificates = [c for model in models.values() for c in model.provenance["certificates"]]
    certificates.sort(key=lambda found: found.get("problem", 0))
    by_itself = training.status in {Status.CONVERGED, Status.PATIENCE}
    calibrated = not not_calibrated(job, models)
    more = (
        not calibrated
        if by_itself
        else training.status == Status.ASKED or any(_differ(job, model, STOPPING) for model in models.values())
    )
    without_dual = job.dual is not None and not Path(job.dual).is_file()
    return None if more or without_dual or certificates != record["problems"] else (training, models)


def _goes_as_far(job: FitJob, model: Model) -> bool:
    """Return whether none of the limits of a job is less than that of the fit that made the model."""
    made, asked = model.provenance["settings"], settings_of(job)
    limits = [(asked[name], made.get(name)) for name in STOPPING]
    return all(isinstance(then, int | float) and now >= then for now, then in limits)


def _find_recorded_path(job: FitJob, name: str) -> str | None:
    """Return what the earlier run in the folder of this one had written there, as its record names it."""
    try:
        found = json.loads((run_folder(Path(job.model)) / JOB).read_text(encoding="utf-8"))[name]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return str(found)


def _differ(job: FitJob, model: Model, names: Sequence[str]) -> bool:
    """Return whether one of these settings of a job is not that of the fit that made the model."""
    made, asked = model.provenance["settings"], json.loads(json.dumps(settings_of(job)))
    return any(made.get(name) != asked[name] for name in names)


def _find_model_of(job: FitJob, store: Store, path: Path) -> Model | None:
    """Return the model at ``path``, if it was made of the same data with the same settings."""
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
    """Return the certificate a record tells of."""
    return Certificate(found["primal"], found["dual"], facts=facts, rounding=found.get("rounding", 0.0))


def _restore_training(record: JsonObject, plan: Plan) -> Training:
    """Return the training a record tells of. Raises KeyError, ValueError, TypeError for what is no record of this
    plan.
    """
    facts = dict(zip(("simplex_gap", "seen_gap"), record["simplex"] or (), strict=False))
    runs = [
        ProblemRun(problem, None, _certificate(found, facts), done=True)
        for problem, found in zip(plan.problems, record["problems"], strict=True)
    ]
    training = Training(runs, Status(record["status"]))
    for name in ("passes", "seconds", "peak", "bytes_read", "reads_repeated"):
        setattr(training, name, record[name])
    training.waited = (1.0 - record["compute_share"]) * training.seconds
    said = record["validation"]
    if said is not None:
        scores = said["errors"] if "errors" in said else said["scores"]
        training.validation_state = {repr(C): {"score": scores[f"{C:g}"], "pass": said["pass"]} for C in plan.costs}
    return training
