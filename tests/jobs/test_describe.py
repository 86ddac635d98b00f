"""ingest --describe: what a table holds, and a schema file that can be edited and handed back."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow.csv as pacsv
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from streamsvm.cli import cli
from streamsvm.store import open_store

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
    "note": ("drop", 500, "", "", "left out, because almost every row has another"),
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
    assert len(lines) == 1 + len(EXPECTED)
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
