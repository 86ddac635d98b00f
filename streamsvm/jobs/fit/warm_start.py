"""A fit that starts from a model: the same function, said in the weights the solver of this fit sees.

Columns and classes must be those of the model. Scaling, C and the loss may differ: a linear function of the columns is
one in any scaling of them, and what it is worth here the first pass finds out.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np

from streamsvm.errors import DataError, UsageError, quote
from streamsvm.features.scaling import Raw, Standardized
from streamsvm.jobs.apply.row_batches import check_names
from streamsvm.model import LINEAR, Model, load
from streamsvm.rows import Float64
from streamsvm.types import Problem, Store, Term, WarmStart


def warm_started(  # noqa: PLR0917 (what a plan has at hand)
    path: str,
    solver: WarmStart,
    store: Store,
    features: Raw | Standardized,
    problems: list[Problem],
    names: tuple[str, ...],
) -> list[Problem]:
    """Return the problems, each with the weights of the model at ``path`` to start from.

    Raises MissingError, DataError, UsageError.
    """
    model = load(Path(path))
    check(model, path, store, names)
    positives = list(dict.fromkeys(problem.positive for problem in problems))
    order = [0] if len(model.weights) == 1 else [model.classes.index(name) for name in names]
    weights = {p: unfolded(model.weights[k], features, path) for p, k in zip(positives, order, strict=True)}
    return [solver.starting_at(problem, weights[problem.positive]) for problem in problems]


def check(model: Model, path: str, store: Store, names: tuple[str, ...]) -> None:
    """Refuse a model of other columns, of other classes, or of a kernel."""
    if model.kind != LINEAR or store.facts.get("map") is not None:
        raise UsageError(
            f"{path} or the store is one of kernel features: only a linear fit of stored columns starts from a model",
            hint="leave out --warm-start",
        )
    if model.columns != store.layout.columns:
        found = f"{path} has {model.columns} columns, store '{store.name}' {store.layout.columns}"
        raise DataError(found, code="E-SCHEMA", hint="start from a model of the same columns")
    check_names(model.provenance.get("names"), store.facts.get("names"), store.name)
    same = model.classes == names if len(model.weights) == 1 else sorted(model.classes) == sorted(names)
    if not same:
        raise DataError(
            f"{path} tells apart {quote(list(model.classes))}, this fit {quote(list(names))}",
            code="E-LABEL",
            hint="start from a model of the same classes, or say --positive as it was said then",
        )


def unfolded(row: Float64, features: Raw | Standardized, path: str) -> Float64:
    """The inverse of ``features.fold``: weights (columns + 1,) of the constant feature's value ``bias``."""
    scale = features.scale.astype(np.float64) if isinstance(features, Standardized) else 1.0
    shift = features.shift.astype(np.float64) if isinstance(features, Standardized) else np.zeros(len(row) - 1)
    constant = float(row[-1] + row[:-1] @ shift)
    if features.bias == 0.0 and constant != 0.0:
        raise UsageError(f"{path} has a bias, this fit has none", hint="fit with a bias, or leave out --warm-start")
    return np.append(row[:-1] / scale, constant / features.bias if features.bias else 0.0)


def warm_terms(problems: list[Problem]) -> list[Term]:
    """What the weights hold: nothing without a warm start."""
    held = sum(p.warm.nbytes for p in problems if p.warm is not None)
    return [Term("warm start", 2 * held, "weights of the model to start from")] if held else []


def warm_digest(problems: list[Problem]) -> str | None:
    """sha256 of all weights to start from: what a run that is resumed must have started from too."""
    weights = [p.warm for p in problems if p.warm is not None]
    return hashlib.sha256(np.array(weights).tobytes()).hexdigest() if weights else None
