"""Rows are called by an id in the store, its test store, and the predictions of both and of files."""

from __future__ import annotations

import csv
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from streamsvm.errors import ExistsError, UsageError
from streamsvm.jobs.apply.job import PredictJob
from streamsvm.jobs.apply.predict import predict
from streamsvm.jobs.fit.driver import fit
from streamsvm.jobs.fit.job import FitJob
from streamsvm.jobs.ingest.job import IngestJob
from streamsvm.jobs.ingest.run import ingest
from tests.tables import NAMES, ROWS, passengers, write_csv


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
