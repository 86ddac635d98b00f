"""Standard input is a source like a file, and standard output takes what would be in a file."""

from __future__ import annotations

import gzip
import io
from pathlib import Path
from types import SimpleNamespace

import pytest

from streamsvm.errors import UsageError
from streamsvm.jobs.apply.evaluate import evaluate
from streamsvm.jobs.apply.job import EvaluateJob, PredictJob
from streamsvm.jobs.apply.predict import predict
from streamsvm.jobs.fit.driver import fit
from streamsvm.jobs.fit.job import FitJob
from streamsvm.jobs.ingest.job import IngestJob
from streamsvm.jobs.ingest.run import ingest
from streamsvm.store import open_store

CSV = "a,b,y\n" + "".join(f"{k % 7},{k % 3}.5,{'yes' if k % 7 > 3 else 'no'}\n" for k in range(500))
SVMLIGHT = "".join(f"{1 if k % 7 > 3 else -1} 1:{k % 7} 3:{k % 3}\n" for k in range(500))


def piped(monkeypatch: pytest.MonkeyPatch, content: bytes, *, terminal: bool = False) -> None:
    stream = SimpleNamespace(buffer=io.BytesIO(content), isatty=lambda: terminal)
    monkeypatch.setattr("sys.stdin", stream)


@pytest.fixture
def files(tmp_path: Path) -> Path:
    (tmp_path / "t.csv").write_text(CSV)
    ingest(IngestJob(sources=(tmp_path / "t.csv",), store=tmp_path / "s", label="y"))
    fit(FitJob(str(tmp_path / "s"), str(tmp_path / "m"), tolerance=0.01))
    return tmp_path


@pytest.mark.parametrize("content", [CSV.encode(), gzip.compress(CSV.encode()), SVMLIGHT.encode()])
def test_standard_input_pipe_is_ingested_as_a_file_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: bytes
) -> None:
    (tmp_path / "file").write_bytes(content)
    label = None if content == SVMLIGHT.encode() else "y"
    piped(monkeypatch, content)
    for source, store in ((tmp_path / "file", "a"), (Path("-"), "b")):
        ingest(IngestJob(sources=(source,), store=tmp_path / store, label=label))
    a, b = open_store(tmp_path / "a"), open_store(tmp_path / "b")
    assert a.digest == b.digest
    assert [source["name"] for source in b.facts["sources"]] == ["standard input"]
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a", "b", "file"]


def test_standard_input_rows_from_a_pipe_are_predicted_and_evaluated(
    files: Path, monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    predict(PredictJob(str(files / "m"), (str(files / "t.csv"),), str(files / "p.csv")))
    monkeypatch.chdir(files)
    piped(monkeypatch, CSV.encode())
    predict(PredictJob(str(files / "m"), ("-",), "-"))
    assert capfdbinary.readouterr().out == (files / "p.csv").read_bytes()
    piped(monkeypatch, CSV.encode())
    found, expected = (evaluate(EvaluateJob(str(files / "m"), (name,))) for name in ("-", str(files / "t.csv")))
    assert found.evaluation == expected.evaluation
    assert not [p.name for p in files.iterdir() if p.name.startswith(".")]


def test_standard_input_what_cannot_be_read_is_refused_before_a_byte_is_taken(
    files: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    piped(monkeypatch, CSV.encode())
    with pytest.raises(UsageError, match="named twice"):
        predict(PredictJob(str(files / "m"), ("-", "-"), str(files / "p.csv")))
    with pytest.raises(UsageError, match="cannot read standard input"):
        ingest(IngestJob(sources=(Path("-"),), store=files / "x", label="y", cluster="local:1"))
    piped(monkeypatch, CSV.encode(), terminal=True)
    with pytest.raises(UsageError, match="terminal"):
        evaluate(EvaluateJob(str(files / "m"), ("-",)))
