"""What becomes of command lines: what is printed and written is what was recorded.

Who changes it on purpose has it recorded again, python -m tests.jobs.transcripts.test_transcripts, and looks at what has changed
in transcripts.json. Numbers are compared as far as other processors have them too, which sum in another order.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest

from tests.jobs.transcripts.cases import CASES
from tests.jobs.transcripts.comparing import differences
from tests.jobs.transcripts.machine import on_any_machine
from tests.jobs.transcripts.tables import made_in
from tests.jobs.transcripts.taking import in_lines, transcript

RECORDED = Path(__file__).with_name("transcripts.json")


def _transcript(case: str, data: Path, place: Path, patch: pytest.MonkeyPatch) -> Any:
    place.mkdir(exist_ok=True)
    (place / "data").symlink_to(data)
    patch.chdir(place)
    on_any_machine(patch)
    return transcript(CASES[case])


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


def test_nothing_is_recorded_that_was_decided_by_what_is_measured() -> None:
    assert "estimated" not in RECORDED.read_text(encoding="utf-8")


@pytest.mark.parametrize("case", CASES)
def test_what_becomes_of_a_command_line(
    case: str, data: Path, recorded: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = json.loads(json.dumps(_transcript(case, data, tmp_path, monkeypatch)))
    assert not list(differences(found, recorded[case]))


def record(wanted: list[str]) -> None:
    """Write the file anew, or the cases that are named."""
    found = json.loads(RECORDED.read_text(encoding="utf-8")) if wanted else {}
    with tempfile.TemporaryDirectory() as scratch, pytest.MonkeyPatch.context() as patch:
        made_in(Path(scratch, "data"))
        for k, case in enumerate(wanted or CASES):
            place = Path(scratch, str(k))
            found[case] = _transcript(case, Path(scratch, "data"), place, patch)
    RECORDED.write_text(in_lines({case: found[case] for case in CASES}, depth=4) + "\n", encoding="utf-8")


if __name__ == "__main__":
    os.environ["OPENBLAS_NUM_THREADS"] = "1"
    sys.exit(record(sys.argv[1:]))
