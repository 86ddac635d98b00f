"""New rows: a model reads them as its own were read, and calls them by their ids."""

from __future__ import annotations

import csv
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from streamsvm.errors import DataError, ExistsError, UsageError
from streamsvm.jobs.apply.options import PredictJob
from streamsvm.jobs.apply.predict import predict
from streamsvm.jobs.fit.driver import fit
from streamsvm.jobs.fit.options import FitJob
from streamsvm.jobs.ingest.options import IngestJob
from streamsvm.jobs.ingest.run import ingest
from tests.tables import NAMES, ROWS, passengers, write_csv


class Trained:
    """A model of rows with missing values, the rows it has not seen, and its decisions for them in a store."""

    def __init__(self, root: Path, policy: str) -> None:
        self.root, self.model = root, str(root / f"{policy}.ssvm")
        train = write_csv(root / "train.csv", passengers(ROWS, 1), (*NAMES, "left"))
        settings: dict[str, Any] = {"label": "left", "categorical": ("zone", "plan"), "missing": policy}
        ingest(IngestJob(sources=(train,), store=root / f"{policy}.zarr", **settings))
        fit(FitJob(str(root / f"{policy}.zarr"), self.model, tolerance=0.01))
        self.table = passengers(60, 2)
        self.expected = self.decisions(write_csv(root / f"{policy}.csv", self.table, (*NAMES, "left")))

    def predict(self, *data: Path, **settings: Any) -> Any:
        job = PredictJob(self.model, tuple(map(str, data)), str(self.root / "f.npy"), output="decision", **settings)
        return predict(job)

    def decisions(self, *data: Path, **settings: Any) -> list[float]:
        self.predict(*data, overwrite=True, **settings)
        found: list[float] = np.load(self.root / "f.npy").tolist()
        return found


@pytest.fixture(scope="module", params=["mean", "indicator"])
def trained(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Trained:
    return Trained(tmp_path_factory.mktemp("trained"), request.param)


def test_new_rows_missing_values_are_filled_as_in_training(trained: Trained, tmp_path: Path) -> None:
    means = [row["age"] for row in passengers(ROWS, 1) if row["age"] != ""]
    filled = [row | ({"age": f"{np.mean(means):.9g}"} if row["age"] == "" else {}) for row in trained.table]
    found = trained.decisions(write_csv(tmp_path / "filled.csv", filled, NAMES))
    if "mean" in trained.model:
        assert found == pytest.approx(trained.expected, rel=1e-5)
    else:  # an indicator says that the value is missing, which a value in its place does not
        changed = [row["age"] == "" for row in trained.table]
        assert [a != pytest.approx(b) for a, b in zip(found, trained.expected, strict=True)] == changed


def test_new_rows_column_that_was_complete_in_training_may_miss_values(tmp_path: Path) -> None:
    trained = Trained(tmp_path, "mean")
    table = [row | {"charged": ""} for row in trained.table]
    mean = np.mean([row["charged"] for row in passengers(ROWS, 1)])
    filled = [row | {"charged": f"{mean:.9g}"} for row in trained.table]
    empty = trained.decisions(write_csv(tmp_path / "empty.csv", table, NAMES))
    assert empty == pytest.approx(trained.decisions(write_csv(tmp_path / "mean.csv", filled, NAMES)), rel=1e-5)


@pytest.mark.parametrize("label", ["absent", "empty", "another kind"])
def test_new_rows_labels_are_not_asked_for(trained: Trained, tmp_path: Path, label: str) -> None:
    values = {"empty": "", "another kind": "2024-01-01"}
    names = NAMES if label == "absent" else ("left", *NAMES)
    table = [row | {"left": values.get(label)} for row in trained.table]
    assert trained.decisions(write_csv(tmp_path / "new.csv", table, names)) == trained.expected


def test_new_rows_columns_in_any_order_with_others_between(trained: Trained, tmp_path: Path) -> None:
    table = [row | {"note": "x, y", "id": k} for k, row in enumerate(trained.table)]
    path = write_csv(tmp_path / "new.csv", table, ("id", *reversed(NAMES), "note"))
    assert trained.decisions(path) == trained.expected
    notices = trained.predict(path, overwrite=True).notices
    assert "2 columns that the model does not know are ignored: 'id', 'note'" in notices


def test_new_rows_values_nobody_has_seen_are_counted(trained: Trained, tmp_path: Path) -> None:
    table = [row | {"plan": "gold"} for row in trained.table[:7]]
    result = trained.predict(write_csv(tmp_path / "new.csv", table, NAMES), overwrite=True)
    assert "7 unknown categories of plan" in result.notices
    assert result.rows == 7


@pytest.mark.parametrize("kind", [pa.int16(), pa.float64(), pa.string(), pa.dictionary(pa.int32(), pa.string())])
def test_new_rows_table_as_parquet_is_the_same_table(trained: Trained, tmp_path: Path, kind: pa.DataType) -> None:
    """1, 1.0 and '1' are one zone, whatever type the column has."""
    columns: dict[str, Any] = {name: [row[name] for row in trained.table] for name in NAMES}
    columns["age"] = [None if value == "" else value for value in columns["age"]]
    columns["plan"] = [None if value == "" else value for value in columns["plan"]]
    columns["zone"] = pa.array(columns["zone"], pa.int64())
    if kind == pa.int16():
        columns["zone"] = columns["zone"].cast(kind)
    else:
        columns["zone"] = columns["zone"].cast(pa.float64()).cast(pa.float64() if kind == pa.float64() else pa.string())
    if pa.types.is_dictionary(kind):
        columns["zone"] = columns["zone"].dictionary_encode()
    pq.write_table(pa.table(columns), tmp_path / "new.parquet")
    assert trained.decisions(tmp_path / "new.parquet") == pytest.approx(trained.expected, rel=1e-6)


def test_new_rows_reading_options_hold_for_new_rows(trained: Trained, tmp_path: Path) -> None:
    path = write_csv(tmp_path / "new.csv", trained.table, (*NAMES, "left"), delimiter=";")
    assert trained.decisions(path, delimiter=";") == trained.expected
    path.write_text(path.read_text().partition("\n")[2])
    assert trained.decisions(path, delimiter=";", header=False) == trained.expected
    unlabeled = write_csv(tmp_path / "unlabeled.csv", trained.table, NAMES)
    unlabeled.write_text(unlabeled.read_text().partition("\n")[2])
    assert trained.decisions(unlabeled, header=False) == trained.expected


def test_new_rows_lines_that_cannot_be_read_are_left_out_and_listed(trained: Trained, tmp_path: Path) -> None:
    path = write_csv(tmp_path / "new.csv", trained.table, NAMES)
    lines = path.read_text().splitlines()
    lines[3] += ",7,8"
    path.write_text("\n".join(lines) + "\n")
    with pytest.raises(DataError, match="line 4"):
        trained.decisions(path)
    found = trained.decisions(path, on_bad_line="skip", max_bad="5%")
    assert found == [value for k, value in enumerate(trained.expected) if k != 2]
    listed = (trained.root / "f.npy.rejects").read_text().splitlines()
    assert [line.split("\t")[1] for line in listed[1:]] == ["4"]
    path.write_text("\n".join([*lines[:3], *lines[4:]]) + "\n")
    assert trained.decisions(path, on_bad_line="skip") == found
    assert not (trained.root / "f.npy.rejects").exists()  # it is not the list of these predictions


# -- ids of rows -------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("ids")
    table = [row | {"id": f'p,"{k:04d}'} for k, row in enumerate(passengers(ROWS, 1))]
    source = write_csv(root / "train.csv", table, ("id", *NAMES, "left"))
    settings: dict[str, Any] = {"label": "left", "categorical": ("zone", "plan"), "missing": "mean"}
    job = IngestJob(
        sources=(source,), store=root / "s.zarr", id_column="id", test_fraction=0.3, chunk_bytes=4096, **settings
    )
    ingest(job)
    fit(FitJob(str(root / "s.zarr"), str(root / "m"), tolerance=0.01))
    return root


def rows_of(path: Path) -> dict[Any, list[str]]:
    with open(path, newline="", encoding="utf-8") as file:
        head, *rows = csv.reader(file)
    assert head == ["id", "predicted_label", "decision_yes"]
    return {row[0]: row[1:] for row in rows}


def predicted(place: Path, data: str, out: str, **settings: Any) -> Path:
    job = PredictJob(str(place / "m"), (str(place / data),), str(place / out), output=("label", "decision"), **settings)
    predict(job)
    return place / out


def test_ids_store_and_its_test_store_are_predicted_as_their_file(place: Path) -> None:
    whole = rows_of(predicted(place, "train.csv", "whole.csv"))
    assert list(whole) == [f'p,"{k:04d}' for k in range(ROWS)]
    kept, held_out = (rows_of(predicted(place, f"s{end}", f"s{end}.csv")) for end in (".zarr", ".test.zarr"))
    assert kept | held_out == whole
    assert len(kept) + len(held_out) == ROWS
    assert len(held_out) > 50


def test_ids_move_with_their_rows(place: Path) -> None:
    """Ids of shuffled rows are those of the same rows: their predictions are those of the file."""
    settings: dict[str, Any] = {"label": "left", "categorical": ("zone", "plan"), "missing": "mean", "id_column": "id"}
    job = IngestJob(
        sources=(place / "train.csv",), store=place / "shuffled.zarr", shuffle=True, chunk_bytes=4096, **settings
    )
    ingest(replace(job, test_fraction=0.2))
    kept, held_out = (
        rows_of(predicted(place, f"shuffled{end}", f"shuffled{end}.csv")) for end in (".zarr", ".test.zarr")
    )
    whole = rows_of(predicted(place, "train.csv", "unshuffled.csv"))
    assert list(kept) != sorted(kept)
    assert {name: found[0] for name, found in (kept | held_out).items()} == {
        name: row[0] for name, row in whole.items()
    }
    for name, (_, decision) in (kept | held_out).items():
        assert float(decision) == pytest.approx(float(whole[name][1]), rel=1e-5, abs=1e-6)


def test_ids_are_written_to_parquet(place: Path) -> None:
    expected = rows_of(predicted(place, "train.csv", "again.csv"))
    found = pq.read_table(predicted(place, "train.csv", "p.parquet"))
    assert found.column_names == ["id", "predicted_label", "decision_yes"]
    rows = zip(*(column.to_pylist() for column in found.columns), strict=True)
    assert {name: [label, repr(f)] for name, label, f in rows} == expected
    predicted(place, "train.csv", "p.parquet", overwrite=True)


def test_ids_integers_of_a_table_stay_integers(place: Path) -> None:
    table = passengers(5, 3)
    columns = {name: [None if row[name] == "" else row[name] for row in table] for name in NAMES}
    pq.write_table(pa.table({"id": [10**18 + k for k in range(5)], **columns}), place / "n.parquet")
    assert pq.read_table(predicted(place, "n.parquet", "n.out.parquet"))["id"].to_pylist() == [
        10**18 + k for k in range(5)
    ]


def test_ids_another_column_of_new_rows_and_none(place: Path) -> None:
    table = [row | {"key": k} for k, row in enumerate(passengers(5, 3))]
    write_csv(place / "keyed.csv", table, ("key", *NAMES))
    out = predicted(place, "keyed.csv", "keyed.out.csv", id_column="key")
    assert [line.split(",")[0] for line in out.read_text().splitlines()] == ["key", "0", "1", "2", "3", "4"]
    bare = predicted(place, "keyed.csv", "bare.csv")
    assert bare.read_text().splitlines()[:2] == [
        "row,predicted_label,decision_yes",
        "0," + out.read_text().splitlines()[1].split(",", 1)[1],
    ]


def test_ids_that_cannot_be_are_refused(place: Path) -> None:
    with pytest.raises(UsageError, match="an array holds"):
        PredictJob("m", ("x",), "p.npy", output=("label", "decision"))
    with pytest.raises(UsageError, match="color"):
        PredictJob("m", ("x",), "p.csv", output=("label", "color"))
    (place / "mine.csv").write_text("id,label\n1,yes\n")
    with pytest.raises(ExistsError, match="is not a file of predictions"):
        predicted(place, "train.csv", "mine.csv", overwrite=True)
