"""What becomes of fits of rows in memory, and of portions of rows: what was recorded; see ``test_transcripts``.

It is recorded again by python -m tests.jobs.transcripts.test_in_memory.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest

from streamsvm.jobs.fit.options import FitJob
from streamsvm.jobs.fit_in_memory import NOWHERE, fit_in_memory
from streamsvm.jobs.partial_fit import partial_fit, takes_portions
from streamsvm.solvers import SOLVERS
from streamsvm.store import open_store
from tests.jobs.transcripts.cases import PORTIONS, SETTINGS
from tests.jobs.transcripts.comparing import differences
from tests.jobs.transcripts.machine import on_any_machine
from tests.jobs.transcripts.tables import made_in
from tests.jobs.transcripts.taking import in_lines, numbers_of, plain

RECORDED = Path(__file__).with_name("in_memory.json")
MACHINE = {"memory": 1 << 33, "threads": 1}


def _fitted(data: Path, name: str) -> Any:
    store, settings = SETTINGS[name]
    events: list[Any] = []
    found = fit_in_memory(FitJob(NOWHERE, NOWHERE, **MACHINE | settings), open_store(data / store), events.append)
    ends = [run.certificate for run in found.training.runs]
    return {
        "plan": plain(found.plan.facts()),
        "status": found.training.status.value,
        "warnings": plain(found.warnings),
        "events": sorted({event["event"] for event in events}),
        "primals": [one and float(one.primal) for one in ends],
        "models": {
            repr(C): {
                "weights": numbers_of(model.weights),
                "calibration": model.calibration and plain(model.calibration.header()),
            }
            for C, model in found.models.items()
        },
    }


def _in_portions(data: Path, name: str) -> Any:
    store, settings = PORTIONS[name]
    rows = open_store(data / store)
    first = partial_fit(FitJob(NOWHERE, NOWHERE, **MACHINE | settings), rows, None, 0)
    again = partial_fit(FitJob(NOWHERE, NOWHERE, **MACHINE | settings), rows, first, rows.layout.rows)
    return [{"weights": numbers_of(model.weights), "of": plain(model.provenance)} for model in (first, again)]


CASES = {f"fit, {name}": (_fitted, name) for name in SETTINGS} | {
    f"portions, {name}": (_in_portions, name) for name in PORTIONS
}


def _taken(data: Path, case: str, patch: pytest.MonkeyPatch) -> Any:
    on_any_machine(patch)
    function, name = CASES[case]
    return json.loads(json.dumps(function(data, name)))


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("data")
    made_in(place)
    return place


@pytest.fixture(scope="module")
def recorded() -> dict[str, Any]:
    return dict(json.loads(RECORDED.read_text(encoding="utf-8")))


def test_every_case_is_recorded(recorded: dict[str, Any]) -> None:
    assert set(recorded) == set(CASES)
    assert {solver for solver in SOLVERS if takes_portions(solver)} == {
        settings["solver"] for _, settings in PORTIONS.values()
    }


@pytest.mark.parametrize("case", CASES)
def test_what_becomes_of_rows_in_memory(
    case: str, data: Path, recorded: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert not list(differences(_taken(data, case, monkeypatch), recorded[case]))


def record() -> None:
    """Write the file anew."""
    with tempfile.TemporaryDirectory() as scratch, pytest.MonkeyPatch.context() as patch:
        made_in(Path(scratch))
        found = {case: _taken(Path(scratch), case, patch) for case in CASES}
    RECORDED.write_text(in_lines(found, depth=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    sys.exit(record())
