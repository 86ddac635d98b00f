"""The models a fit makes, one for each C, and what is recorded in them of where they come from."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from streamsvm import __version__
from streamsvm.aliases import JsonObject
from streamsvm.engine.training import Training
from streamsvm.features.scaling import Raw, Standardized
from streamsvm.jobs.fit.identity import MANAGEMENT
from streamsvm.jobs.fit.options import FitJob
from streamsvm.jobs.fit.planning.kernel_machine import machine_of
from streamsvm.jobs.fit.planning.one_class import margin_of
from streamsvm.jobs.fit.planning.plan import Plan, fold_rows
from streamsvm.jobs.fit.validation.evaluator import verdict
from streamsvm.model import Model
from streamsvm.regular import is_file, open_regular
from streamsvm.rows import Float64
from streamsvm.store import open_store
from streamsvm.store.format.labels import sort_key
from streamsvm.types import LinearSolution, Problem, Store, SupportSolution

if TYPE_CHECKING:
    from streamsvm.features.expansion import Expansion

PLACES = ("store", "model", "dual", "cluster", "memory")
"""Settings that name outputs, machines and what they offer, and the store, whose digest is known: not in a model."""
FILES = ("landmark_file", "warm_start", "validation")
"""Settings that may name a file or a store: a model knows it by its content."""


def models_of(job: FitJob, store: Store, plan: Plan, training: Training) -> dict[float, Model]:
    """The models of a training, one for each C."""
    weights, expansion = function_of(plan, training)
    pairs = plan.problems[0].negative is not None
    model = Model(weights, plan.class_names, _provenance(job, store, training), expansion, pairs=pairs)
    return models_by_C(model, plan.problems)


def models_by_C(model: Model, problems: Sequence[Problem]) -> dict[float, Model]:
    """What was fitted for all values of C at once, taken apart; certificates go with the models they are of.

    The classes of a model are in sorted order, whatever order a store met them in; pairs are solved in that order.
    """
    found = {}
    classes, of_rows = model.classes, [problem for problem in problems for _ in problem.positives]
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
    """Return weights, one row a decision value, the constant last, and what they are weights of: kernel points, or None for columns."""
    rows = []
    solutions = [plan.solver.solution(run.state) for run in training.runs]
    supports = [s for s in solutions if isinstance(s, SupportSolution)]
    if supports:
        kernel, inner = plan.problems[0].kernel, plan.features
        assert kernel is not None
        assert isinstance(inner, Raw | Standardized)
        weights, expansion = machine_of(kernel, plan.layout.columns, inner, supports)
        weights[:, -1] -= margin_of(plan.problems[0])
        return weights, expansion
    for solution in solutions:
        assert isinstance(solution, LinearSolution)
        rows.append(fold_rows(plan, solution.w))
    weights = np.concatenate(rows)
    weights[:, -1] -= margin_of(plan.problems[0])
    return weights, plan.features.expansion


def _provenance(job: FitJob, store: Store, training: Training) -> JsonObject:
    return {
        "store": {"digest": store.digest, "rows": store.layout.rows},
        "settings": settings_of(job),
        "status": training.status.value,
        "certificates": certificates_of(training),
        "validation": verdict([run.problem.C for run in training.runs], training),
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
            "positive": run.problem.positive,
            **({} if run.problem.negative is None else {"negative": run.problem.negative}),
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
    """All settings but those that say how the run was managed, as plain JSON; files by their content.

    What things are called is in the folder of the run: the same fit under other names gives the same file.
    """
    left_out = {*MANAGEMENT, *PLACES}
    plain = {name: value for name, value in plain_settings(job).items() if name not in left_out}
    return plain | {name: _content(plain[name]) for name in FILES if isinstance(plain[name], str)}


def plain_settings(job: FitJob) -> JsonObject:
    """All settings of a fit as plain JSON."""
    settings: JsonObject = msgspec.to_builtins(job)
    return settings


def _content(name: str) -> str:
    """The digest of a store or of a file that a fit reads. Raises what opening a store raises, StorageError."""
    path = Path(name)
    if not is_file(path):
        return str(open_store(path).digest)
    with open(open_regular(path, follow=True), "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
