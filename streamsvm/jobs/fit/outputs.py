"""Write the models and the record of a fit.

A fit writes a model for each C, and beside them a folder with the record of the run. Models are written last, first into
the folder of the run and then to their own paths, so that a run is finished exactly if its last model exists. The
certificate is written between these copies, so that the peak memory in it includes the writing of a model.
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
from streamsvm.engine.fit_state import Training
from streamsvm.errors import DataError
from streamsvm.features.scaling import Raw, Standardized
from streamsvm.input_files import find_url, is_file, open_regular, restore_urls
from streamsvm.jobs.embed.plan import parameters_of
from streamsvm.jobs.fit.options import FitJob
from streamsvm.jobs.fit.plan import Plan, to_model_rows
from streamsvm.jobs.fit.validate import find_best_C, validation_facts
from streamsvm.kernels import KERNELS
from streamsvm.model import Model
from streamsvm.rows import Float64, row_stack
from streamsvm.store import open_store
from streamsvm.store.format.labels import sort_key
from streamsvm.type_aliases import JsonObject
from streamsvm.types import Kernel, LinearSolution, Problem, Store, SupportSolution

if TYPE_CHECKING:
    from streamsvm.features.expansion import Expansion
    from streamsvm.proofs.kept import Enclosures


PLAN, CERTIFICATE, COPY, JOB = "plan.json", "certificate.json", "model.ssvm", "job.json"
"""Files in the folder of the run: the plan, the final certificates, a copy of the model, and the settings of the job."""
EVENTS, RECORD, EVALUATION = "events.jsonl", "record.json", "evaluation.json"
"""Files in the folder of the run for its page: the events, facts about data and model, and measures of an evaluation."""
RUN_SETTINGS: tuple[str, ...] = (
    "insecure_network",
    "resume",
    "checkpoint_every",
    "at_limit",
    "overwrite",
    "prefetch",
    "disk_cache",
    "scratch",
    "strict",
    "threads",
    "report",
)
"""Settings that control the run and do not affect the model."""
LOCATION_SETTINGS = ("store", "model", "dual", "cluster", "memory")
"""Settings that are not written into a model: output paths, the machine, and the path of the store, known by its digest."""
PAIR_SETTINGS = ("jumps", "pairs", "pair_scale")
"""Settings of jumps and pairs of columns, which models without these do not record."""
FILE_SETTINGS = ("landmark_file", "warm_start", "validation")
"""Settings that may be the path of a file or a store; a model records the digest of its content instead."""


def paths_by_C(target: Path, values: list[float]) -> dict[float, Path]:
    """Return the path of the model of each C: ``target`` for a single C, else NAME.C=VALUE with the same suffix."""
    if len(values) == 1:
        return {values[0]: target}
    return {C: target.with_name(f"{target.stem}.C={C:g}{target.suffix}") for C in values}


def run_folder(model: Path) -> Path:
    """Return the folder with the record of the run that wrote ``model``."""
    return model.with_name(model.name + ".run")


def model_paths(job: FitJob, costs: list[float]) -> list[Path]:
    """Return all paths of models outside the folder of the run: one for each C, and with --validation that of the best C."""
    target = Path(job.model)
    return sorted({*paths_by_C(target, costs).values(), *([target] if job.validation is not None else [])})


def write_outputs(
    job: FitJob, plan: Plan, training: Training, models: Mapping[float, Model], get_peak: Callable[[], int]
) -> None:
    """Write the record and the models. Raises StorageError.

    ``get_peak`` returns the peak memory in bytes so far; it is called after the first copies of the models are written.
    """
    target, costs = Path(job.model), plan.costs
    run = run_folder(target)
    settings = {
        name: restore_urls(value) if isinstance(value, str) else value for name, value in plain_settings(job).items()
    }
    durable.write_file(run / JOB, json.dumps(settings, indent=1).encode())
    durable.write_file(run / PLAN, json.dumps(plan.facts(), indent=1).encode())
    copies, paths = paths_by_C(run / COPY, costs), paths_by_C(target, costs)
    for C, model in models.items():
        model.save(copies[C])
    training.peak = max(training.peak, get_peak())
    certificate = {**summary(training, plan), "problems": describe_certificates(training)}
    durable.write_file(run / CERTIFICATE, json.dumps(certificate, indent=1).encode())
    if training.validation_state and len(models) > 1:
        models[find_best_C(plan, training)].save(target)
    for C, model in models.items():
        model.save(paths[C])


def summary(training: Training, plan: Plan) -> JsonObject:
    """Return the final status and figures of a run as plain JSON; the last line of ``fit`` shows them."""
    worst = max((c for run in training.runs if (c := run.certificate) is not None), key=lambda c: c.gap)
    compute_share = 1.0 - training.read_wait_seconds / training.seconds if training.seconds else 1.0
    has_simplex_gap = "simplex_gap" in worst.facts
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
        "compute_share": compute_share,
        "validation": _describe_validation(plan, training),
        "simplex": [worst.facts["simplex_gap"], worst.facts["seen_gap"]] if has_simplex_gap else None,
    }


def build_models(
    job: FitJob, store: Store, plan: Plan, training: Training, enclosures: Enclosures | None = None
) -> dict[float, Model]:
    """Return the models of a training, one for each C; ``enclosures``: of all its problems."""
    weights, expansion = weights_and_expansion(plan, training)
    pairs, provenance = plan.problems[0].kind.votes, _provenance(job, store, plan, training)
    model = Model(weights, plan.class_names, provenance, expansion, pairs=pairs, enclosures=enclosures)
    return split_by_C(model, plan.problems)


def split_by_C(model: Model, problems: Sequence[Problem]) -> dict[float, Model]:
    """Return one model for each C from a model with the weights of all problems; certificates go with their model.

    Classes are sorted, because their order in the store is arbitrary; one-vs-one problems are in sorted order already.
    """
    models = {}
    classes, problem_of_row = model.classes, [problem for problem in problems for _ in problem.kind.positives]
    for C in dict.fromkeys(problem.C for problem in problems):
        rows = [row for row, problem in enumerate(problem_of_row) if problem.C == C]
        certificates = [c for c in model.provenance.get("certificates", []) if c["C"] == C]
        if len(rows) > 1 and not model.pairs:
            order = sorted(range(len(rows)), key=lambda k: sort_key(model.classes[k]))
            classes = tuple(model.classes[k] for k in order)
            rows = [rows[k] for k in order]
            certificates = [certificates[k] for k in order] if len(certificates) > 1 else certificates
        provenance = model.provenance | {"certificates": certificates}
        enclosures = None if model.enclosures is None else model.enclosures.select(rows)
        models[C] = replace(
            model, weights=model.weights[rows], classes=classes, provenance=provenance, enclosures=enclosures
        )
    return models


def weights_and_expansion(plan: Plan, training: Training) -> tuple[Float64, Expansion | None]:
    """Return the weights of a model, one row per decision value with the intercept last, and the kernel expansion to
    which they belong; None for weights of columns.
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
        rows.append(to_model_rows(plan, solution.w))
    weights = np.concatenate(rows)
    weights[:, -1] -= first.kind.decision_margin(first.loss)
    return weights, plan.features.expansion


def build_expansion(
    kernel: Kernel, columns: int, inner: Raw | Standardized, solutions: list[SupportSolution]
) -> tuple[Float64, Expansion]:
    """Return the weights (problems, points + 1) and the kernel expansion of the union of all support rows.

    Raises DataError if no row has a coefficient.
    """
    from streamsvm.compute.blocks.selection import take_rows
    from streamsvm.features.expansion import Expansion

    index = np.unique(np.concatenate([s.numbers for s in solutions]))
    if not len(index):  # a constant is accepted for some of the problems, such as that of a class without weight
        raise DataError(
            "the best function is the same for every row: no row has a coefficient",
            hint="check that no class weight is 0, lower epsilon (all numbers to predict may be within epsilon of one value), "
            "or raise C (it may be too small for float64)",
        )
    weights = np.zeros((len(solutions), len(index) + 1))
    rows, numbers = [], np.empty(0, np.int64)
    for k, s in enumerate(solutions):
        weights[k, np.searchsorted(index, s.numbers)] = s.coefficients
        weights[k, -1] = s.intercept
        new = np.flatnonzero(~np.isin(s.numbers, numbers))
        rows.append(take_rows(s.points, new) if len(new) < len(s.numbers) else s.points)
        numbers = np.concatenate([numbers, s.numbers[new]])
    points = take_rows(row_stack(rows), np.argsort(numbers)) if len(rows) > 1 else rows[0]
    shift, scale = (inner.shift, inner.scale) if isinstance(inner, Standardized) else (None, None)
    points = points._replace(bias=0.0)
    return weights, Expansion(_kernel_name(kernel), parameters_of(kernel), points, columns, shift, scale)


def _kernel_name(kernel: Kernel) -> str:
    """Return the name of a kernel in the registry."""
    return next(name for name in KERNELS if KERNELS[name] is type(kernel))


def _provenance(job: FitJob, store: Store, plan: Plan, training: Training) -> JsonObject:
    origin: JsonObject = {"digest": store.digest, "rows": store.layout.rows}
    if "table" in store.facts:  # without its location, so that the same fit with other paths writes the same file
        origin["table"] = {name: value for name, value in store.facts["table"].items() if name != "location"}
    return {
        "store": origin,
        "settings": describe_settings(job),
        "status": training.status.value,
        "certificates": describe_certificates(training),
        "validation": validation_facts(plan, training),
        "encoding": store.facts.get("encoding"),
        "names": store.facts.get("names"),
        "labels": store.facts.get("labels"),
        "streamsvm": __version__,
    }


def describe_certificates(training: Training) -> list[JsonObject]:
    """Return primal, dual, gap and rounding of every problem as plain JSON; the gap includes the rounding.

    The field ``problem`` is the number of the problem in the whole fit, and its row in a file of dual variables. It is
    needed because a model has the certificates of one C only, in the order of its sorted classes.
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


def describe_settings(job: FitJob) -> JsonObject:
    """Return the settings that a model records, as plain JSON; files are given by the digest of their content.

    They contain no paths, so that the same fit with other paths writes the same file. The folder of the run has the paths.
    """
    excluded = {*RUN_SETTINGS, *LOCATION_SETTINGS}
    plain = {name: value for name, value in plain_settings(job).items() if name not in excluded}
    if job.certify is None:  # without --certify, models have the same bytes as before there was this option
        del plain["certify"]
    for name in PAIR_SETTINGS if job.curves else ("curves", "knots", "smooth", *PAIR_SETTINGS):
        if plain[name] is None or not job.curves:  # as above
            del plain[name]
    return plain | {name: _digest_input(plain[name]) for name in FILE_SETTINGS if isinstance(plain[name], str)}


def plain_settings(job: FitJob) -> JsonObject:
    """Return all settings of a fit as plain JSON."""
    settings: JsonObject = msgspec.to_builtins(job)
    return settings


def _digest_input(name: str) -> str:
    """Return the digest of a store or of a file that a fit reads. Raises StorageError and the errors of ``open_store``."""
    path = Path(name)
    if find_url(name) is not None or not is_file(path):
        return str(open_store(name).digest)
    with open(open_regular(path, follow=True), "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _describe_validation(plan: Plan, training: Training) -> JsonObject | None:
    """Return the scores on held-out rows; for regression with the name of the measure, as "error" suggests a fraction."""
    facts = validation_facts(plan, training)
    return {"measure": "RMSE"} | facts if facts is not None and plan.layout.numeric else facts
