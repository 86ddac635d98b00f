"""Generated files of text: the same rows however many are asked for, and what a reader makes of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from streamsvm.errors import ExistsError
from streamsvm.jobs.options import SynthJob
from streamsvm.jobs.synth import synth


@pytest.mark.parametrize("name", ["table", "names"])
def test_a_file_begins_with_the_rows_of_a_shorter_one(tmp_path: Path, name: str) -> None:
    long, short, parts = (tmp_path / f"{which}.csv" for which in ("long", "short", "parts"))
    synth(SynthJob(name, str(long), rows=70_000))
    synth(SynthJob(name, str(short), rows=3_000))
    synth(SynthJob(name, str(parts), rows=3_000, test_fraction=0.25))
    assert long.read_text().startswith(short.read_text())
    assert long.read_text().count("\n") == 70_001
    held_out = (tmp_path / "parts.test.csv").read_text()
    assert parts.read_text() + held_out.partition("\n")[2] == short.read_text()
    with pytest.raises(ExistsError):
        synth(SynthJob(name, str(short), rows=3_000))
    synth(SynthJob(name, str(short), rows=3_000, seed=1, overwrite=True))
    assert not long.read_text().startswith(short.read_text())
    short.write_text("what somebody wrote\n")
    with pytest.raises(ExistsError):
        synth(SynthJob(name, str(short), rows=3_000, overwrite=True))
