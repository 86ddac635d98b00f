"""Where each solver is after each pass, as it was recorded: P and D, what it counts, and the memory that was planned for it.

Certificates hold wherever a solver goes, and so do not notice one that goes somewhere else: a step that is too short, rows that
are drawn with other chances, a working set of other rows. Here its way is looked at. Whoever changes it on purpose has it
recorded again, python -m tests.golden.recording, and looks at what has changed in trajectories.json and drawn.json.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.golden.cases import CASES
from tests.golden.recording import DRAWN, TRAJECTORIES
from tests.golden.tables import stores_in
from tests.golden.ways import Way, differences, way_of

RECORDED: dict[str, Way] = json.loads(TRAJECTORIES.read_text(encoding="utf-8"))
OF_CHANCE: dict[str, Way] = json.loads(DRAWN.read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    return stores_in(tmp_path_factory.mktemp("stores"))


def test_trajectories_every_case_is_recorded() -> None:
    assert set(RECORDED) == set(CASES)


@pytest.mark.parametrize("case", CASES)
def test_trajectories_solver_follows_its_recorded_trajectory(case: str, stores: dict[str, str], tmp_path: Path) -> None:
    found = way_of(stores[CASES[case]["of"]], CASES[case], tmp_path / "m")
    assert not differences(found, RECORDED[case])


@pytest.mark.parametrize("case", OF_CHANCE)
def test_trajectories_drawn_fit_follows_its_recorded_trajectory(
    case: str, stores: dict[str, str], tmp_path: Path
) -> None:
    settings = OF_CHANCE[case]["settings"]
    assert not differences(way_of(stores[settings["of"]], settings, tmp_path / "m"), OF_CHANCE[case])
