"""Compare what exported models say (SQL, ONNX, scikit-learn) with what streamsvm predicts, on raw tables fitted by one command.

python -m tools.bench.exports --tables loans,flights,covtype,kddcup,orders --rows 50000

The query runs in DuckDB, the graph in onnxruntime, the pipeline in scikit-learn, each on the rows of the table as they are in its file.
Fits have the defaults of ``streamsvm fit FILE MODEL --label NAME``; lines that cannot be read are left out of the table afterwards.
``labels``: rows with another label; ``decision``: the largest difference of a decision value, relative to the largest of them;
``probability``: the largest difference. Exit status 1 if a label differs, or a number by more than 1e-5.
Of the real tables every k-th row is taken, so that there are at most --rows; 0 takes all of them.
"""

from __future__ import annotations

import csv
import gzip
import json
import pickle
import sys
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

import streamsvm as sv
from streamsvm.store.sources.schema import HASHED
from tools.measure.harness import DATA, Row, arguments, scratch, show

NEAR = 1e-5
BATCH_ROWS = 10_000
"""Rows that a graph is given at a time."""
KDDCUP_COLUMNS = 42
REAL_TABLES: dict[str, tuple[str, int, bool, dict[str, Any]]] = {
    "covtype": ("covtype.csv.gz", 581_012, True, {"label": "Cover_Type"}),
    "kddcup": ("kddcup.data_10_percent.gz", 494_021, False, {"label": "last", "header": False}),
}
"""Compressed CSV files: name, rows, whether the first line names the columns, and what ``fit`` is told."""


class Table(NamedTuple):
    """A raw table in a file, and what ``fit`` is told about it."""

    path: Path
    options: dict[str, Any]

    @property
    def names(self) -> list[str] | None:
        """The names of the columns, as the model has them, where the first line of the file does not name them."""
        return None if self.options.get("header", True) else [f"f{k}" for k in range(1, KDDCUP_COLUMNS + 1)]


class Answers(NamedTuple):
    """What a program says of n rows for k problems: labels (n,), decision values (n, k), probabilities of k problems."""

    labels: Any
    decisions: Any
    probabilities: Any
    seconds: float


def main() -> None:
    options = arguments(__doc__, tables="loans,flights,covtype,kddcup,orders", rows=50_000)
    rows: list[Row] = []
    with scratch() as folder:
        for name in options.tables.split(","):
            rows += compare(name, make_table(name, folder, options.rows), folder)
    show("Exported models beside ours", rows, options)
    if any(row["labels"] or max(row["decision"], row["probability"]) > NEAR for row in rows):
        sys.exit(1)


def compare(name: str, table: Table, folder: Path) -> list[Row]:
    """Return a row for each program."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", sv.StreamSVMWarning)
        model = sv.fit(str(table.path), str(folder / f"{name}.ssvm"), calibrate="temperature", **table.options).model
        table = table._replace(path=leave_out_bad_lines(model, table.path, folder))
        expected = read_answers(model, table.path, folder)
        found = {
            "SQL in DuckDB": ask_duckdb(model, table, folder),
            "ONNX in onnxruntime": ask_onnxruntime(model, table, folder),
            "pipeline of scikit-learn": ask_sklearn(model, table, folder),
        }
    size = np.abs(expected.decisions).max()
    return [
        {
            "table": name,
            "rows": len(expected.labels),
            "program": program,
            "labels": int((answers.labels.astype(str) != expected.labels.astype(str)).sum()),
            "decision": difference(answers.decisions, expected.decisions) / size,
            "probability": 0.0
            if answers.probabilities is None
            else difference(answers.probabilities, expected.probabilities),
            "seconds": answers.seconds,
        }
        for program, answers in found.items()
    ]


def difference(found: Any, expected: Any) -> float:
    """Return the largest difference; infinity where a number is missing."""
    return float(np.nan_to_num(np.abs(found - expected), nan=np.inf).max())


# -- tables ------------------------------------------------------------------------------------------------------------


def make_table(name: str, folder: Path, rows: int) -> Table:
    """Write a table into the folder."""
    if name in ("loans", "orders"):
        path = folder / f"{name}.csv"
        sv.synth("messy-table" if name == "loans" else "table", str(path), rows=rows or 1_000_000)
        return Table(path, {"label": "fate"})
    if name == "flights":
        from pyarrow import parquet

        flights = parquet.read_table(DATA / "flights-3m.parquet")
        kept = np.arange(0, len(flights), step_to(len(flights), rows))
        path = folder / "flights.parquet"
        parquet.write_table(flights.take(kept), path)
        return Table(path, {"label": "delay", "label_threshold": 15.0})
    packed, count, has_header, told = REAL_TABLES[name]
    path, step = folder / f"{name}.csv", step_to(count, rows)
    with gzip.open(DATA / packed, "rt") as lines, path.open("w") as out:
        if has_header:
            out.write(next(lines))
        out.writelines(line for k, line in enumerate(lines) if k % step == 0)
    return Table(path, told)


def step_to(count: int, rows: int) -> int:
    """Return k so that every k-th of ``count`` rows are at most ``rows``."""
    return -(-count // rows) if rows else 1


def leave_out_bad_lines(model: sv.Model, path: Path, folder: Path) -> Path:
    """Return a file of the rows that can be read: the file itself, or a copy without the lines that ``predict`` lists."""
    answers = folder / "readable.csv"
    sv.predict(model, str(path), str(answers), on_bad_line="skip", overwrite=True)
    rejects = folder / "readable.csv.rejects"
    if not rejects.exists():
        return path
    with rejects.open() as listed:
        bad = {int(line["line"]) for line in csv.DictReader(listed, delimiter="\t")}
    kept = folder / f"readable-{path.name}"
    with path.open() as lines, kept.open("w") as out:
        out.writelines(line for k, line in enumerate(lines, 1) if k not in bad)
    return kept


def read_frame(model: sv.Model, table: Table) -> Any:
    """Return the table as a user reads it; hashed columns as text, so that 00134 is not read as a number."""
    if table.path.suffix == ".parquet":
        return pd.read_parquet(table.path)
    hashed = {column["name"]: str for column in columns_of(model) if column["kind"] == HASHED}
    return pd.read_csv(table.path, names=table.names, dtype=hashed)


def columns_of(model: sv.Model) -> list[dict[str, Any]]:
    """Return the columns of the raw table as the model records them."""
    columns: list[dict[str, Any]] = model.provenance["encoding"]["schema"]["columns"]
    return columns


# -- programs ----------------------------------------------------------------------------------------------------------


def read_answers(model: sv.Model, path: Path, folder: Path) -> Answers:
    """Return what the model says, as ``streamsvm predict`` writes it."""
    out, began = folder / "answers.parquet", time.process_time()
    sv.predict(model, str(path), str(out), output=["label", "decision", "probability"], overwrite=True)
    seconds = time.process_time() - began
    found = pd.read_parquet(out)
    decisions, probabilities = (
        found[[name for name in found.columns if str(name).startswith(what)]].to_numpy()
        for what in ("decision", "probability")
    )
    return Answers(found["predicted_label"].to_numpy(), decisions, probabilities[:, -decisions.shape[1] :], seconds)


def ask_duckdb(model: sv.Model, table: Table, folder: Path) -> Answers:
    """Run the query over the file; its order of rows is that of numbers given to them when they are read."""
    import duckdb

    has_hashed = any(column["kind"] == HASHED for column in columns_of(model))
    values = str(table.path) if has_hashed else None
    sv.export(model, str(folder / "model.sql"), format="sql", overwrite=True, values_from=values)
    query, began = (folder / "model.sql").read_text(), time.process_time()
    given = f"read_parquet('{table.path}')"
    if table.path.suffix == ".csv":
        header = "header = true" if table.names is None else f"header = false, names = {table.names}"
        given = f"read_csv('{table.path}', all_varchar = true, {header})"
    with duckdb.connect() as database:
        database.execute(f'CREATE TABLE given AS SELECT *, row_number() OVER () AS "row number" FROM {given}')
        found = database.sql(f'WITH "input" AS (SELECT * FROM given)\n{query}').df().sort_values("row number")
    several = len(model.weights) > 1
    decisions, probabilities = (
        found[[f"{what}_{name}" for name in model.classes] if several else [what]].to_numpy()
        for what in ("decision", "probability")
    )
    return Answers(found["label"].to_numpy(), decisions, probabilities, time.process_time() - began)


def ask_onnxruntime(model: sv.Model, table: Table, folder: Path) -> Answers:
    """Run the graph over the columns that it names, made as the how-to page on deployment says."""
    import onnxruntime

    sv.export(model, str(folder / "model.onnx"), format="onnx", overwrite=True)
    session = onnxruntime.InferenceSession(str(folder / "model.onnx"), providers=["CPUExecutionProvider"])
    names = session.get_modelmeta().custom_metadata_map.get("inputs")
    frame, forms = read_frame(model, table), {column["name"]: column.get("form", "") for column in columns_of(model)}
    if names is None:
        given = {"X": frame[list(model.names or ())[: session.get_inputs()[0].shape[1]]].to_numpy(float)}
    else:
        given = {
            name: make_input(frame[name], kind, forms[name])[:, np.newaxis] for name, kind in json.loads(names).items()
        }
    began = time.process_time()
    batches = [session.run(None, batch) for batch in cut(given, len(frame))]
    label, decision, probabilities = (np.concatenate(parts) for parts in zip(*batches, strict=True))
    decision = decision.reshape(len(frame), -1)
    return Answers(label.ravel(), decision, probabilities[:, -decision.shape[1] :], time.process_time() - began)


def make_input(values: Any, kind: str, form: str) -> Any:
    """Return a column as an input of a graph: text, a number, or seconds since 1970."""
    if kind == "text":
        return values.astype(object).where(values.notna(), "").astype(str).str.strip().to_numpy(object)
    if kind == "time":
        moments = pd.to_datetime(values, format=form if form.startswith("%") else None)
        return (moments - pd.Timestamp(0)).dt.total_seconds().to_numpy(float)
    if not pd.api.types.is_numeric_dtype(values):  # '$1,234.50' and '5 %'
        values = values.str.replace("[$,]", "", regex=True).str.replace(" ?%", "e-2", regex=True)
    return values.astype(float).to_numpy()


def cut(given: dict[str, Any], rows: int) -> Iterator[dict[str, Any]]:
    """Yield batches of the inputs."""
    for start in range(0, rows, BATCH_ROWS):
        yield {name: values[start : start + BATCH_ROWS] for name, values in given.items()}


def ask_sklearn(model: sv.Model, table: Table, folder: Path) -> Answers:
    """Ask the unpickled pipeline; it has no probabilities of the hinge losses."""
    sv.export(model, str(folder / "model.pkl"), format="sklearn", overwrite=True)
    pipeline, frame = pickle.loads((folder / "model.pkl").read_bytes()), read_frame(model, table)
    began = time.process_time()
    labels, decisions = pipeline.predict(frame), pipeline.decision_function(frame)
    return Answers(labels, decisions.reshape(len(frame), -1), None, time.process_time() - began)


if __name__ == "__main__":
    main()
