"""Where each solver is after each pass: P and D as they were recorded, with every loss, kind of rows and term beside the norm.

Certificates hold wherever a solver goes, and so do not notice one that goes somewhere else: a step that is too short, rows that
are drawn with other chances, a working set of other rows. Here its way is looked at. Whoever changes it on purpose has it
recorded again, python -m tests.golden.test_trajectories, and looks at what has changed in trajectories.json.
"""

from __future__ import annotations

import json
import sys
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import streamsvm as sv
from tests.golden.cases import CASES, FRAGILE, Settings
from tests.golden.tables import stores_in

RECORDED = Path(__file__).with_suffix(".json").with_name("trajectories.json")
SAME, ROUGHLY = 1e-4, 0.3
"""Relative to P: other processors sum in another order, which makes 1e-13 after a pass, and in inner iterations up to 2e-5; the same without any compiled pass."""


def _trajectory(store: str, settings: Settings, model: Path) -> list[list[float]]:
    """P and D of every problem after every pass, and those of the model."""
    seen: list[list[float]] = []

    def note(event: dict[str, Any]) -> None:
        if event["event"] == "pass":
            seen.append([float(event["primal"]), float(event["dual"])])

    asked = {name: value for name, value in settings.items() if name != "of"}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = sv.fit(store, str(model), seed=3, threads=1, overwrite=True, on_event=note, **asked)
    for run in found.training.runs:
        assert run.certificate is not None
        seen.append([float(run.certificate.primal), float(run.certificate.dual)])
    return seen


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    return stores_in(tmp_path_factory.mktemp("stores"))


@pytest.fixture(scope="module")
def recorded() -> dict[str, list[list[float]]]:
    return dict(json.loads(RECORDED.read_text(encoding="utf-8")))


def test_every_case_is_recorded(recorded: dict[str, list[list[float]]]) -> None:
    assert set(recorded) == set(CASES)


@pytest.mark.parametrize("case", CASES)
def test_a_solver_goes_the_way_it_went(
    case: str, stores: dict[str, str], recorded: dict[str, list[list[float]]], tmp_path: Path
) -> None:
    found = np.array(_trajectory(stores[CASES[case]["of"]], CASES[case], tmp_path / "m"))
    wanted = np.array(recorded[case])
    assert found.shape == wanted.shape, "another number of passes"
    finite = np.isfinite(wanted)
    assert (np.isfinite(found) == finite).all()
    scale = np.abs(wanted).max(axis=1, keepdims=True) + np.zeros_like(wanted)
    near = ROUGHLY if case in FRAGILE else SAME
    assert (np.abs(found - wanted)[finite] <= near * scale[finite]).all(), np.stack([found, wanted], axis=2)


def record(say: Callable[[str], object] = print) -> None:
    """Write the file anew."""
    with tempfile.TemporaryDirectory() as scratch:
        places = stores_in(Path(scratch))
        found = {}
        for case, settings in CASES.items():
            found[case] = _trajectory(places[settings["of"]], settings, Path(scratch) / "m")
            say(f"{case}: {len(found[case])}")
    lines = (f"{json.dumps(case)}: {json.dumps(way)}" for case, way in found.items())
    RECORDED.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")


if __name__ == "__main__":
    sys.exit(record())
