"""The way of a fit: what is recorded of it, how far it may be from that elsewhere, and what the two differ in."""

from __future__ import annotations

import json
import math
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import streamsvm as sv
from tests.fault.golden import placed
from tests.nominal_process import of_nominal_size

Way = dict[str, Any]
"""``points``: P and D of every problem after every pass, and those of the model; ``facts``: what a pass, and the end, tells of itself, in
counts and numbers; ``plan``: the terms of memory in bytes; ``near``: how far points may be from these, relative to P. Of a fit that is
refused the ``refused`` code alone."""
STEADY, SAME, ROUGHLY = 1e-8, 1e-4, 0.3
"""Other processors sum in another order, which makes 1e-13 after a pass; inner iterations make more of it, and where kernel
values are float32 it begins at 1e-7."""
STEPS = (STEADY, 1e-6, SAME, 1e-3, 1e-2)
"""What is chosen from; where nothing of it will do, a way is held to ROUGHLY."""
TIMES = 1e3
"""How many times what a way moves where it is tried it may move elsewhere."""
MEMORY = "1GiB"
OF_THE_PROCESS = ("interpreter and imports",)
"""Terms of memory that are no fit's: the nominal process has the same."""
LISTS = ("trajectory",)
"""Facts that say again, more often, what points say."""


def way_of(store: str, settings: dict[str, Any], model: Path) -> Way:
    """Fit a store and return its way.

    ``settings`` are those of ``fit``, beside the name of its table as ``of``; and as ``placed`` whether blocks are read again in
    every pass, and per-row state lies in memory.
    """
    events: list[dict[str, Any]] = []
    asked = {name: value for name, value in settings.items() if name not in ("of", "placed")}
    with warnings.catch_warnings(), pytest.MonkeyPatch.context() as patches:
        warnings.simplefilter("ignore")
        of_nominal_size(patches)
        if "placed" in settings:
            placed(patches, **settings["placed"])
        try:
            found = sv.fit(
                store, str(model), seed=3, threads=1, memory=MEMORY, overwrite=True, on_event=events.append, **asked
            )
        except sv.StreamSVMError as error:
            return {"refused": error.code}
    passes = [event for event in events if event["event"] == "pass"]
    points = [[event["primal"], event["dual"]] for event in passes]
    points += [[run.certificate.primal, run.certificate.dual] for run in found.training.runs if run.certificate]
    ended = {name: events[-1][name] for name in ("status", "passes", "bytes_read", "simplex")}
    return {
        "points": [[float(P), float(D)] for P, D in points],
        "facts": [_told(facts) for facts in [*(event["facts"] for event in passes), ended]],
        "plan": _plan(next(event for event in events if event["event"] == "plan")),
    }


def _told(facts: dict[str, Any]) -> dict[str, Any]:
    plain = json.loads(json.dumps(facts, default=float))
    return {name: value for name, value in plain.items() if name not in LISTS}


def _plan(event: dict[str, Any]) -> dict[str, int]:
    return {term["term"]: term["bytes"] for term in event["memory"] if term["term"] not in OF_THE_PROCESS}


def joined(ways: list[Way], of_float32: bool) -> Way:
    """What ways of one fit have in common, tried with other roundings: the first, with how near others will be."""
    first, *others = ways
    if "refused" in first:
        return first
    moved = max((_apart(first, other) for other in others), default=math.inf)
    at_least = SAME if of_float32 else STEADY
    near = next((step for step in STEPS if step >= max(at_least, TIMES * moved)), ROUGHLY)
    facts = [
        {name: value for name, value in told.items() if all(_is_like(value, _fact(other, k, name)) for other in others)}
        for k, told in enumerate(first["facts"])
    ]
    return first | {"facts": facts if near < ROUGHLY else [], "near": near}


def _apart(way: Way, other: Way) -> float:
    """The largest difference of two ways, relative to P; infinite where they differ in more than numbers."""
    one, two = (np.array(each.get("points", ())) for each in (way, other))
    if one.shape != two.shape or (np.isfinite(one) != np.isfinite(two)).any():
        return math.inf
    finite = np.isfinite(one)
    scale = np.abs(np.where(finite, one, 0.0)).max(axis=1, keepdims=True) + np.zeros_like(one)
    off = np.where(finite, np.abs(np.where(finite, one - two, 0.0)), 0.0)
    return float((off / np.maximum(scale, 1e-300)).max())


def _fact(way: Way, number: int, name: str) -> Any:
    facts = way.get("facts", [])
    return facts[number].get(name) if number < len(facts) else None


def _is_like(value: Any, other: Any) -> bool:
    """Whether two facts say the same: counts within a twentieth and one, numbers within a hundredth."""
    if isinstance(value, int | float) and isinstance(other, int | float) and not isinstance(value, bool):
        both = isinstance(value, int) and isinstance(other, int)
        return abs(value - other) <= (0.05 * abs(value) + 1 if both else 0.01 * abs(value))
    return bool(value == other)


def differences(found: Way, wanted: Way) -> list[str]:
    """What a way differs in from the one that was recorded, in words."""
    if "refused" in wanted or "refused" in found:
        return [f"refused: {found.get('refused')}, not {wanted.get('refused')}"] * (
            found.get("refused") != wanted.get("refused")
        )
    told = [f"plan: {found['plan']}, not {wanted['plan']}"] * (found["plan"] != wanted["plan"])
    if _apart(wanted, found) > wanted["near"]:
        told.append(f"P and D: {found['points']}, not {wanted['points']}")
    for k, facts in enumerate(wanted["facts"]):
        for name, value in facts.items():
            if not _is_like(value, _fact(found, k, name)):
                told.append(f"{name} of reading {k}: {_fact(found, k, name)}, not {value}")
    return told
