"""A path of C: one model for each value, all of them from the same readings of the data."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from streamsvm.model import Model
from streamsvm.types import Problem


def models_by_C(model: Model, problems: list[Problem]) -> dict[float, Model]:
    """What was fitted for all values of C at once, taken apart; certificates go with the models they are of."""
    found = {}
    for C in dict.fromkeys(problem.C for problem in problems):
        mine = [k for k, problem in enumerate(problems) if problem.C == C]
        certificates = [c for c in model.provenance.get("certificates", []) if c["C"] == C]
        provenance = model.provenance | {"certificates": certificates}
        found[C] = replace(model, weights=model.weights[mine], provenance=provenance)
    return found


def path_names(target: Path, values: list[float]) -> dict[float, Path]:
    """Where the model of each C goes: the target itself when there is one, else NAME.C=VALUE with the same ending."""
    if len(values) == 1:
        return {values[0]: target}
    return {C: target.with_name(f"{target.stem}.C={C:g}{target.suffix}") for C in values}
