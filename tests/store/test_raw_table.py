"""Generated files of text: the same rows however many are asked for, and what a reader makes of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from streamsvm.errors import ExistsError, UsageError
from streamsvm.jobs.apply.evaluate import evaluate
from streamsvm.jobs.apply.job import EvaluateJob
from streamsvm.jobs.fit.options import FitJob
from streamsvm.jobs.fit.run import fit
from streamsvm.jobs.ingest.job import IngestJob
from streamsvm.jobs.ingest.run import ingest
from streamsvm.jobs.options import SynthJob
from streamsvm.jobs.synth import synth
from streamsvm.store.generators.raw_table import vocabulary


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


@pytest.mark.parametrize(("name", "store"), [("names", "a.zarr"), ("susy", "a.csv")])
def test_a_generator_of_the_other_kind(tmp_path: Path, name: str, store: str) -> None:
    with pytest.raises(UsageError) as caught:
        synth(SynthJob(name, str(tmp_path / store), rows=10))
    assert "name the output NAME" in caught.value.hint


def test_words_are_distinct() -> None:
    assert len(set(vocabulary())) == len(vocabulary())


def test_names_are_told_apart_by_their_letters(tmp_path: Path) -> None:
    synth(SynthJob("names", str(tmp_path / "n.csv"), rows=8_000, test_fraction=0.25))
    job = IngestJob(
        sources=(tmp_path / "n.csv",), store=tmp_path / "n.zarr", label="class", text=("name=chars",), text_bits=12
    )
    assert ingest(job).columns == 2**12
    fit(FitJob(str(tmp_path / "n.zarr"), str(tmp_path / "n.ssvm"), C=0.1, tolerance=0.01))
    found = evaluate(EvaluateJob(str(tmp_path / "n.ssvm"), (str(tmp_path / "n.test.csv"),)))
    assert found.evaluation.accuracy > 0.75
