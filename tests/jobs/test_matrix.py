"""What is wrong with a value has one outcome, whatever the kind of its column, the source of its row and the command."""

from __future__ import annotations

import datetime as dt
import json
import math
import re
from itertools import cycle, islice, product
from pathlib import Path
from typing import Any

import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from pyarrow import feather

import streamsvm as sv
from streamsvm.cli.main import cli
from streamsvm.errors import DataError

PARSE, MISSING, INFINITE, STORED = "E-PARSE", "E-MISSING", "E-NONFINITE", ""
BLANKS = {"missing": None, "word": "NA", "nan": "NaN"}
"""Values that are missing: none at all, a word for it, and not a number."""
TIME, OTHER_TIME, EARLY_TIME = map(
    dt.datetime.fromisoformat, ("2020-01-07T10:30", "1999-05-05T03:30", "1950-01-01T07:30")
)

VALUES: dict[str, tuple[str, list[Any], dict[str, Any]]] = {
    "number": ("number", ["1.5", "2", "-3"], BLANKS | {"bad": "oops", "infinite": "inf", "unseen": "99"}),
    "amount": ("amount", ["$1.25", "$3"], BLANKS | {"bad": "much", "infinite": "inf", "unseen": "$99,000"}),
    "boolean": ("boolean", ["yes", "no"], BLANKS | {"bad": "perhaps", "infinite": "inf", "unseen": "off"}),
    "date": ("date", ["2020-01-07", "2021-02-03"], BLANKS | {"bad": "2020-02-31", "infinite": "inf"}),
    "time": ("date", [str(TIME), str(OTHER_TIME)], BLANKS | {"bad": "2020-02-31 10:00", "unseen": "1950-01-01 00:00"}),
    "category": ("category", ["a", "b"], BLANKS | {"infinite": "inf", "unseen": "c"}),
    "hashed": ("hash", ["id1", "id2"], BLANKS | {"infinite": "inf", "unseen": "id9"}),
    "words": ("words", ["good word", "bad word"], BLANKS | {"infinite": "inf", "unseen": "never seen"}),
    "float": ("number", [1.5, -3.0], {"missing": None, "nan": math.nan, "infinite": math.inf, "unseen": 1e6}),
    "integer": ("number", [1, 2, 3], {"missing": None, "unseen": 99}),
    "truth": ("boolean", [True, False], {"missing": None}),
    "share": ("boolean", [1.0, 0.0], {"missing": None, "nan": math.nan, "infinite": math.inf}),
    "code": ("category", [1.0, 2.0], {"missing": None, "nan": math.nan, "unseen": 9.0}),
    "day": ("date", [TIME.date(), OTHER_TIME.date()], {"missing": None, "unseen": EARLY_TIME.date()}),
    "stamp": ("date", [TIME, OTHER_TIME], {"missing": None, "unseen": EARLY_TIME}),
}
"""Each column: its kind, values that are in order, and one value a fault. The first are text in every source, the others
have a type of their own in sources that have types.
"""
EXPECTED = {
    "number": {"bad": PARSE, "missing": MISSING, "word": MISSING, "nan": MISSING, "infinite": INFINITE},
    "amount": {"bad": PARSE, "missing": MISSING, "word": MISSING, "nan": MISSING, "infinite": PARSE},
    "boolean": {"bad": PARSE, "missing": MISSING, "word": MISSING, "nan": MISSING, "infinite": PARSE},
    "date": {"bad": PARSE, "missing": MISSING, "word": MISSING, "nan": MISSING, "infinite": PARSE},
    "category": {"missing": MISSING, "word": MISSING, "nan": MISSING},
    "hash": {"missing": MISSING, "word": MISSING, "nan": MISSING},
    "words": {},
}
"""The code of the error for each kind and fault; all else is stored."""
SOURCES = ("csv", "csv.gz", "jsonl", "parquet", "feather", "pandas", "polars", "arrow")
FILES = ("csv", "csv.gz", "jsonl", "parquet", "feather")
CSV = ("csv", "csv.gz")
STRICT_COMMANDS = ("ingest", "fit", "predict", "evaluate")
CELLS = [(name, fault) for name, (_, _, faults) in VALUES.items() for fault in faults]
COLUMNS = [f"{name}={kind}" for name, (kind, _, _) in VALUES.items()]
SMALL: dict[str, Any] = {"column": COLUMNS, "label": "y", "hash_bits": 4, "text_bits": 6}
SKIP: dict[str, Any] = {"on_bad_line": "skip", "max_bad": "100%"}


def expect(name: str, fault: str, source: str) -> str:
    """Return the code of the error for one value; empty if it is stored."""
    kind, values, _ = VALUES[name]
    if kind in ("category", "hash") and isinstance(values[0], str) and fault in ("word", "nan") and source not in CSV:
        return STORED  # text in a file or frame that has another way to say that a value is missing
    if name == "share" and fault == "infinite":
        return PARSE if source in CSV else INFINITE  # text that is no word for yes or no, or a number
    return EXPECTED[kind].get(fault, STORED)


def expected_rejects(source: str, *, missing: str = "error") -> list[tuple[int, str, str]]:
    """Return row, code and column of each value that is refused."""
    codes = [(row, expect(*cell, source), cell[0]) for row, cell in zip(row_numbers(), CELLS, strict=True)]
    return [(row, code, name) for row, code, name in codes if code and (missing == "error" or code != MISSING)]


def row_numbers() -> range:
    """Return the number of the row, from 1, of each value that is wrong: every second one."""
    return range(2, 2 * len(CELLS) + 1, 2)


def make_columns(cells: list[tuple[str, str]]) -> dict[str, list[Any]]:
    """Return columns in which every second row has one wrong value."""
    rows = 2 * len(cells)
    columns = {name: [values[k % len(values)] for k in range(rows)] for name, (_, values, _) in VALUES.items()}
    for k, (name, fault) in enumerate(cells):
        columns[name][2 * k + 1] = VALUES[name][2][fault]
    return columns | {"y": ["no", "no", "yes", "yes"] * (rows // 4) + ["no", "yes"] * (rows % 4 // 2)}


def make_table(source: str, columns: dict[str, list[Any]], folder: Path) -> Any:
    """Return a table as a file or a frame."""
    path = folder / f"t.{source}"
    if source in CSV:
        pd.DataFrame(columns, dtype=object).map(lambda v: "" if v is None else str(v)).to_csv(path, index=False)
    elif source == "jsonl":
        rows = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
        path.write_text("".join(json.dumps(row, default=str).replace("Infinity", "1e999") + "\n" for row in rows))
    elif source == "parquet":
        pq.write_table(pa.table(columns), path)
    elif source == "feather":
        feather.write_feather(pa.table(columns), path)
    else:
        return {"pandas": pd.DataFrame, "polars": pl.DataFrame, "arrow": pa.table}[source](columns)
    return path


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model of rows that are all in order."""
    folder = tmp_path_factory.mktemp("model")
    rows = make_columns([("category", "unseen")] * 20)
    rows["category"] = ["a", "b"] * 20
    table = make_table("csv", rows, folder)
    sv.ingest(table, folder / "s.zarr", **SMALL)
    sv.fit(folder / "s.zarr", folder / "m.ssvm", report="none")
    return folder / "m.ssvm"


def read_rejects(path: Path, source: str) -> list[tuple[int, str, str]]:
    """Return row, code and column of each line that was left out."""
    lines = [line.split("\t") for line in path.read_text().splitlines()[1:]]
    found = [(int(line[1]) - (source in CSV), line[2], re.findall("column '(.*?)'", line[3])[0]) for line in lines]
    return sorted(found)


@pytest.mark.parametrize("source", SOURCES)
def test_matrix_of_faults_is_left_out_by_every_command(source: str, tmp_path: Path, model: Path) -> None:
    table, store = make_table(source, make_columns(CELLS), tmp_path), tmp_path / "s.zarr"
    rows, strict, filled = 2 * len(CELLS), expected_rejects(source), expected_rejects(source, missing="mean")
    rejects = store.with_name("s.zarr.rejects")
    ingested = sv.ingest(table, store, **SMALL, **SKIP)
    assert read_rejects(rejects, source) == strict
    assert ingested.rows == rows - len(strict)
    ingested = sv.ingest(table, store, **SMALL, missing="mean", overwrite=True, **SKIP)
    assert read_rejects(rejects, source) == filled
    assert ingested.rows == rows - len(filled)
    decided: list[str] = []
    fitted = sv.fit(
        table,
        tmp_path / "f.ssvm",
        **SMALL,
        report="none",
        test_fraction=0,
        max_bad="100%",
        on_event=lambda event: decided.extend(event.get("decided", ())),
    )
    assert fitted.plan.layout.rows == rows - len(filled)
    assert any(line.startswith(f"bad lines: {len(filled)} are left out") for line in decided)
    evaluated = sv.evaluate(model, table, label="y", **SKIP)
    assert evaluated.evaluation.rows == rows - len(strict)
    if source in FILES:
        predicted = sv.predict(model, table, tmp_path / "p.csv", **SKIP)
        assert predicted.rows == rows - len(strict)
        assert read_rejects(tmp_path / "p.csv.rejects", source) == strict


@pytest.mark.parametrize("skip", [(), ("--on-bad-line", "skip")], ids=["error", "skip"])
@pytest.mark.parametrize("source", FILES)
def test_matrix_of_faults_is_described_as_it_is_refused(source: str, skip: tuple[str, ...], tmp_path: Path) -> None:
    table = make_table(source, make_columns(CELLS), tmp_path)
    words = ["ingest", str(table), "--describe", "--json", "--label", "y", "--column", ",".join(COLUMNS), *skip]
    described = json.loads(CliRunner().invoke(cli, words).output)["columns"]
    for column in described[:-1]:
        faults = VALUES[column["name"]][2]
        codes = [expect(column["name"], fault, source) for fault in faults]
        found = {"missing": 0, "unreadable": 0, "infinite": 0}
        found |= {one["what"]: one["rows"] for one in column["problems"] if one["what"] in found}
        bad = len([code for code in codes if code not in (STORED, MISSING)])
        assert (found["missing"], found["unreadable"] + found["infinite"]) == (codes.count(MISSING), bad), column
        assert all(one["refused"] for one in column["problems"] if one["what"] == "missing")
        assert not (skip and any(one["refused"] for one in column["problems"] if one["what"] != "missing"))


@pytest.mark.parametrize("name", VALUES)
def test_matrix_of_faults_is_refused_with_row_column_and_code(name: str, tmp_path: Path, model: Path) -> None:
    """Each fault is refused alike by every command; sources and commands take turns."""
    turns = islice(cycle(product(SOURCES, STRICT_COMMANDS)), 5 * list(VALUES).index(name), None)
    for fault in VALUES[name][2]:
        columns = make_columns([("category", "unseen"), (name, fault), ("category", "unseen")])
        columns["category"] = [
            value if name == "category" and k == 3 else "a" for k, value in enumerate(columns["category"])
        ]
        source, command = next(turns)
        table, expected = make_table(source, columns, tmp_path), expect(name, fault, source)
        line = "line 5" if source in CSV else "row 4" if source != "jsonl" else "(row|line) 4"
        try:
            if command == "ingest":
                sv.ingest(table, tmp_path / "s.zarr", overwrite=True, **SMALL)
            elif command == "fit":
                strict: dict[str, Any] = {
                    "missing": "error",
                    "on_bad_line": "error",
                    "test_fraction": 0,
                    "report": "none",
                }
                sv.fit(table, tmp_path / "f.ssvm", overwrite=True, **SMALL, **strict)
            elif command == "predict" and source in FILES:
                sv.predict(model, table, tmp_path / "p.csv", overwrite=True)
            elif command == "predict":
                sv.load_model(model).predict(table)
            else:
                sv.evaluate(model, table, label="y")
        except DataError as error:
            assert (error.code, fault, source) == (expected, fault, source), error
            place = f"{'the table' if source not in FILES else 't.' + source} {line}, column '{name}'"
            assert re.search(place, error.message), error.message
        else:
            assert (expected, fault, source) == (STORED, fault, source)
