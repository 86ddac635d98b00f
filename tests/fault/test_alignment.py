"""Every row keeps its label: the number of the row is planted in it, and the label is a function of the number."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

from streamsvm.jobs.apply.options import PredictJob
from streamsvm.jobs.apply.predict import predict
from streamsvm.jobs.fit.driver import fit
from streamsvm.jobs.ingest.options import IngestJob
from streamsvm.jobs.ingest.run import ingest
from streamsvm.rows import CSR
from streamsvm.store import open_store, read_chunk
from tests.axes import each_value
from tests.fault.golden import fit_job, label_of

ROWS = 1500


def values() -> Any:
    rng = np.random.default_rng(8)
    X = rng.normal(size=(ROWS, 4)).round(3).astype(np.float32)
    X[:, 0] = np.arange(ROWS) + 1
    return X, label_of(np.arange(ROWS) + 1)


def csv(directory: Path) -> tuple[list[Path], dict[str, Any]]:
    path, (X, y) = directory / "t.csv", values()
    table = pa.table({**{f"x{j}": X[:, j] for j in range(4)}, "y": y})
    pyarrow.csv.write_csv(table, path)
    return [path], {"label": "y"}


def csv_gz(directory: Path) -> tuple[list[Path], dict[str, Any]]:
    import gzip

    (path,), options = csv(directory)
    packed = directory / "t.csv.gz"
    packed.write_bytes(gzip.compress(path.read_bytes(), 1))
    return [packed], options


def two_csvs(directory: Path) -> tuple[list[Path], dict[str, Any]]:
    (path,), options = csv(directory)
    head, *lines = path.read_text().splitlines(keepends=True)
    parts = [directory / "a.csv", directory / "b.csv"]
    for part, some in zip(parts, (lines[:333], lines[333:]), strict=True):
        part.write_text(head + "".join(some))
    return parts, options


def parquet(directory: Path) -> tuple[list[Path], dict[str, Any]]:
    path, (X, y) = directory / "t.parquet", values()
    table = pa.table({**{f"x{j}": X[:, j] for j in range(4)}, "y": y})
    pyarrow.parquet.write_table(table, path, row_group_size=311)
    return [path], {"label": "y"}


def svmlight(directory: Path) -> tuple[list[Path], dict[str, Any]]:
    path, (X, y) = directory / "t.svm", values()
    lines = [
        f"{c} " + " ".join(f"{j + 1}:{v!r}" for j, v in enumerate(row)) for row, c in zip(X.tolist(), y, strict=True)
    ]
    lines = [f"# line {i}\n{line}\n" if i % 97 == 0 else line for i, line in enumerate(lines)]
    path.write_text("\n".join(lines) + "\n")
    return [path], {}


def npy(directory: Path) -> tuple[list[Path], dict[str, Any]]:
    (X, y), path, labels = values(), directory / "t.npy", directory / "y.npy"
    np.save(path, X)
    np.save(labels, y)
    return [path], {"labels": labels}


SOURCES = [csv, csv_gz, two_csvs, parquet, svmlight, npy]


@each_value(
    ("name, chunk", [("s.zarr", 4096), ("s.zarr", 10_000), ("s.zarr", 1 << 22), ("s.h5", 4096)]), ("source", SOURCES)
)
def test_alignment_rows_and_labels_stay_together(source: Any, chunk: int, name: str, tmp_path: Path) -> None:
    paths, options = source(tmp_path)
    job = IngestJob(sources=tuple(paths), store=tmp_path / name, chunk_bytes=chunk, test_fraction=0.2, **options)
    result = ingest(job)
    assert (result.rows + result.test_rows, sum(result.counts)) == (ROWS, ROWS)
    met = np.concatenate([check(job.store), check(job.test_path())])
    assert np.array_equal(np.sort(met), np.arange(ROWS) + 1)


def check(path: Path) -> Any:
    """The numbers of a store's rows; every row must have the label of its number."""
    store, met = open_store(path), []
    buffers = store.buffers()
    for chunk in range(len(store.layout.chunks)):
        found = read_chunk(store, chunk, buffers)
        first = found.X.data[found.X.indptr[:-1]] if isinstance(found.X, CSR) else found.X.values[:, 0]
        numbers = first.astype(np.int64)
        labels = np.array([int(c) for c in store.layout.classes])[found.codes]
        assert np.array_equal(labels, label_of(numbers))
        assert (np.diff(numbers) > 0).all()
        met.append(numbers)
    return np.concatenate(met)


def test_alignment_predictions_are_in_the_order_of_the_rows(tmp_path: Path) -> None:
    """A model whose decision value is the number of the row."""
    paths, options = csv(tmp_path)
    job = IngestJob(sources=tuple(paths), store=tmp_path / "s.zarr", chunk_bytes=4096, **options)
    ingest(job)
    fit(fit_job(job.store, tmp_path / "m", max_passes=1))
    from dataclasses import replace

    from streamsvm import model as models

    found = models.load(tmp_path / "m")
    replace(found, weights=np.array([[1.0, 0, 0, 0, 0]])).save(tmp_path / "m")
    for data in (str(job.store), str(paths[0])):
        out = tmp_path / "p.npy"
        predict(PredictJob(str(tmp_path / "m"), (data,), str(out), output="decision", overwrite=True))
        assert np.array_equal(np.load(out), np.arange(ROWS) + 1.0)
