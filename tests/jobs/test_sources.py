"""Sources beside plain files: standard input, and tables that are described before they are ingested."""

from __future__ import annotations

import gzip
import io
import json
from pathlib import Path
from types import SimpleNamespace

import pyarrow.csv as pacsv
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from streamsvm.cli.main import cli
from streamsvm.errors import UsageError
from streamsvm.jobs.apply.evaluate import evaluate
from streamsvm.jobs.apply.options import EvaluateJob, PredictJob
from streamsvm.jobs.apply.predict import predict
from streamsvm.jobs.fit.driver import fit
from streamsvm.jobs.fit.options import FitJob
from streamsvm.jobs.ingest.options import IngestJob
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


# -- tables that are described -----------------------------------------------------------------------------------------

HEAD = "no,price,share,member,since,color,city,note,empty,y"


LINES = [
    f'{5000 + k},"{k}.234,50 €",{k % 7} %,{"yes" if k % 3 else "no"},{1 + k % 28:02d}-Feb-97,{"red" if k % 2 else "blue"},'
    f"city{k % 250},said {k} things,{k if k % 4 else ''},{'ab'[k % 2]}"
    for k in range(1, 501)
]


@pytest.fixture
def table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.csv").write_text("\n".join([HEAD, *LINES]) + "\n", encoding="utf-8")
    return tmp_path / "a.csv"


def run(*words: str) -> str:
    done = CliRunner().invoke(cli, words)
    assert done.exit_code == 0, done.output
    return done.stdout


EXPECTED = {
    "no": ("number", 500, "5001", "5500", "a number, as it is; an id, it seems: --drop no leaves it out"),
    "price": ("decimal-comma", 500, "1234.5", "500234", "a number"),
    "share": ("amount", 7, "0", "0.06", "a number"),
    "member": ("boolean", 2, "", "", "1 and 0"),
    "since": (
        "date:%d-%b-%y",
        28,
        "1997-02-01",
        "1997-02-28",
        "years since 2000, month and day of the week: 20 columns",
    ),
    "color": ("category", 2, "", "", "one-hot, 2 columns"),
    "city": ("hash", 250, "", "", "hashed with other text into 2^14 columns"),
    "note": ("drop", 500, "", "", "left out, because nearly every value is unique"),
    "empty": (
        "number",
        375,
        "1",
        "499",
        "a number, as it is; missing values are refused: --missing mean, zero or indicator",
    ),
    "y": ("label", 2, "", "", "the label"),
}


@pytest.mark.parametrize("form", ["csv", "parquet"])
def test_describe_what_a_table_holds(table: Path, form: str) -> None:
    if form == "parquet":
        pq.write_table(pacsv.read_csv(table), table.with_suffix(".parquet"))
    found = json.loads(run("ingest", f"a.{form}", "--label", "y", "--describe", "--json"))
    assert not list(table.parent.glob("*.zarr"))
    for column in found["columns"]:
        seen = tuple(column[key] for key in ("kind", "distinct", "least", "most", "becomes"))
        assert seen == EXPECTED[column["name"]], column
        assert column["missing"] == (0.25 if column["name"] == "empty" else 0)
    lines = run("ingest", f"a.{form}", "s.zarr", "--describe").splitlines()
    problems = lines[1 + len(EXPECTED) :]
    assert [line.split()[0] for line in problems[:2]] == ["column", "'empty'"]
    assert problems[-1].endswith(f"streamsvm ingest --label y --missing indicator a.{form} s.zarr")
    assert lines[1].startswith("no")
    assert not Path("s.zarr").exists()


def test_describe_schema_file_is_written_edited_and_read(table: Path) -> None:
    options = ("--missing", "zero")
    run("ingest", "a.csv", "--label", "y", "--write-schema", "columns.toml")
    run("ingest", "a.csv", "plain.zarr", "--label", "y", *options)
    run("ingest", "a.csv", "said.zarr", "--schema", "columns.toml", *options)
    assert open_store("said.zarr").digest == open_store("plain.zarr").digest
    refused = CliRunner().invoke(cli, ["ingest", "a.csv", "--write-schema", "columns.toml"])
    assert (refused.exit_code, "--overwrite" in refused.output) == (73, True)
    text = Path("columns.toml").read_text().replace('"no" = "number"', '"no" = "id"').replace('"hash"', '"drop"')
    Path("columns.toml").write_text(text.replace('"note" = "drop"', '"note" = "words"'))
    run("ingest", "a.csv", "edited.zarr", "--schema", "columns.toml", "--text-bits", "6", *options)
    edited, plain = open_store("edited.zarr"), open_store("plain.zarr")
    assert edited.facts["ids"] == {"column": "no"}
    assert edited.layout.columns == plain.layout.columns - 2**14 + 2**6 - 1
    again = json.loads(run("ingest", "a.csv", "--schema", "columns.toml", "--describe", "--json"))
    assert {c["name"]: c["kind"] for c in again["columns"]}["note"] == "words"


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ("[columns", "is not TOML"),
        ("a = 1", "no table [columns]"),
        ('[columns]\n"no" = 3', "no table [columns]"),
        ('[columns]\n"no" = "label"\n"y" = "label"', "are the label"),
        ('[columns]\n"no" = "colour"\n"y" = "label"', "is not NAME=KIND"),
        ('[columns]\n"number" = "drop"\n"y" = "label"', "has no column 'number'"),
    ],
)
def test_describe_schema_file_that_is_none(table: Path, content: str, text: str) -> None:
    Path("columns.toml").write_text(content)
    refused = CliRunner().invoke(cli, ["ingest", "a.csv", "s.zarr", "--schema", "columns.toml"])
    assert refused.exit_code in (2, 65, 78)
    assert text in refused.output
    assert "hint: " in refused.output


def test_describe_only_tables_are_described(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("a.svm").write_text("1 1:2\n-1 2:3\n")
    refused = CliRunner().invoke(cli, ["ingest", "a.svm", "--describe"])
    assert (refused.exit_code, "info STORE --columns" in refused.output) == (2, True)
