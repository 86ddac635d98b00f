"""Rows of every kind that a program may have become the store that the same rows in a file become."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.dataset
import pyarrow.parquet as pq
import pytest
import scipy.sparse
import zarr

import streamsvm as sv
from streamsvm.sklearn import StreamOneClassSVM, StreamSVC, StreamSVR
from tests.axes import each_value
from tests.tables import passengers

ROWS = 3000


def frame() -> pd.DataFrame:
    """Numbers, words, moments, categories, missing values and a label."""
    found = pd.DataFrame(passengers(ROWS, 0))
    found["age"] = pd.to_numeric(found["age"])
    found["plan"] = found["plan"].replace("", None)
    found["when"] = pd.date_range("2024-01-01", periods=ROWS, freq="h")
    found["kind"] = pd.Categorical(np.array(["a", "b", "c"])[np.arange(ROWS) % 3])
    return found


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the table as a file, and the store of it."""
    folder = tmp_path_factory.mktemp("given")
    pq.write_table(pa.Table.from_pandas(frame(), preserve_index=False), folder / "table.parquet")
    sv.ingest(folder / "table.parquet", folder / "file.zarr", label="left", missing="mean")
    return folder


def digest(path: Path) -> str:
    return sv.open_store(path).digest


def table(place: Path) -> pa.Table:
    return pq.read_table(place / "table.parquet")


def lazy(place: Path) -> Any:
    return pytest.importorskip("polars").scan_parquet(place / "table.parquet")


def duck(place: Path) -> Any:
    return pytest.importorskip("duckdb").connect().sql(f"select * from '{place / 'table.parquet'}'")


def dask_frame(place: Path) -> Any:
    return pytest.importorskip("dask.dataframe").from_pandas(frame(), npartitions=3)


class OnlyAStream:
    """A table that says nothing of itself but its batches, and those once."""

    def __init__(self, given: pa.Table) -> None:
        self._reader = given.to_reader(700)

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        reader, self._reader = self._reader, None
        return reader.__arrow_c_stream__(requested_schema)


TABLES: dict[str, Callable[[Path], Any]] = {
    "arrow": table,
    "arrow reader": lambda place: table(place).to_reader(500),
    "arrow dataset": lambda place: pyarrow.dataset.dataset(place / "table.parquet"),
    "stream": lambda place: OnlyAStream(table(place)),
    "pandas": lambda place: frame(),
    "polars": lambda place: lazy(place).collect(),
    "polars lazy": lazy,
    "duckdb": duck,
    "dask": dask_frame,
}


@pytest.mark.parametrize("kind", TABLES)
def test_api_rows_table_is_the_store_of_its_file(place: Path, tmp_path: Path, kind: str) -> None:
    found = sv.ingest(TABLES[kind](place), tmp_path / "rows.zarr", label="left", missing="mean")
    assert found.rows == ROWS
    assert digest(tmp_path / "rows.zarr") == digest(place / "file.zarr")
    assert [path.name for path in tmp_path.iterdir()] == ["rows.zarr"]


def test_api_rows_labels_may_lie_beside_a_table(place: Path, tmp_path: Path) -> None:
    known = frame()
    sv.ingest(known.drop(columns="left"), tmp_path / "rows.zarr", y=known["left"], missing="mean")
    assert digest(tmp_path / "rows.zarr") == digest(place / "file.zarr")


def test_api_rows_weights_may_lie_beside_a_table(tmp_path: Path) -> None:
    known = frame().assign(w=np.arange(ROWS) % 4)
    sv.ingest(known, tmp_path / "named.zarr", label="left", weight="w", missing="mean")
    sv.ingest(known.drop(columns="w"), tmp_path / "beside.zarr", label="left", weight=known["w"], missing="mean")
    assert digest(tmp_path / "named.zarr") == digest(tmp_path / "beside.zarr")


X = np.random.default_rng(0).normal(size=(5000, 12)).astype(np.float32)
Y = (X[:, 0] > 0).astype(int)


def of_hdf5(folder: Path) -> Any:
    file = h5py.File(folder / "rows.h5", "w")
    return file.create_dataset("X", data=X, chunks=(700, 12))


ARRAY_BYTES: dict[str, Callable[[Path], Any]] = {
    "numpy": lambda folder: X,
    "float64": lambda folder: X.astype(np.float64),
    "lists": lambda folder: X.tolist(),
    "memory map": lambda folder: np.load(folder / "X.npy", mmap_mode="r"),
    "hdf5": of_hdf5,
    "zarr": lambda folder: zarr.create_array(str(folder / "a.zarr"), data=X, chunks=(700, 12)),
    "dask": lambda folder: pytest.importorskip("dask.array").from_array(X, chunks=(800, 12)),
}


@pytest.mark.parametrize("kind", ARRAY_BYTES)
def test_api_rows_array_is_the_store_of_its_file(tmp_path: Path, kind: str) -> None:
    np.save(tmp_path / "X.npy", X)
    np.save(tmp_path / "y.npy", Y)
    sv.ingest(tmp_path / "X.npy", tmp_path / "file.zarr", labels=tmp_path / "y.npy", chunk="64KiB")
    labels = pytest.importorskip("dask.array").from_array(Y, chunks=800) if kind == "dask" else Y
    sv.ingest(ARRAY_BYTES[kind](tmp_path), tmp_path / "rows.zarr", y=labels, chunk="64KiB")
    assert digest(tmp_path / "rows.zarr") == digest(tmp_path / "file.zarr")


@pytest.mark.parametrize("form", [scipy.sparse.csr_matrix, scipy.sparse.csc_array, scipy.sparse.coo_matrix])
def test_api_rows_sparse_of_any_form_are_one_store(tmp_path: Path, form: Any) -> None:
    S = scipy.sparse.random_array((900, 300), density=0.05, rng=1, dtype=np.float32)
    y = np.arange(900) % 2
    wide = scipy.sparse.csr_array(S)
    wide.indices, wide.indptr = wide.indices.astype(np.int64), wide.indptr.astype(np.int64)
    for name, rows in (("one", wide), ("other", form(S))):
        found = sv.ingest(rows, tmp_path / f"{name}.zarr", y=y)
        assert found.sparse
    assert digest(tmp_path / "one.zarr") == digest(tmp_path / "other.zarr")


class Annotated:
    """What is asked of an AnnData: a matrix, and a table of what is known of its rows."""

    def __init__(self) -> None:
        self.X = scipy.sparse.csr_matrix(X)
        self.obs = pd.DataFrame({"type": np.where(Y == 1, "T", "B")})
        self.var_names = pd.Index([f"gene{k}" for k in range(12)])


def test_api_rows_annotated_matrix_has_its_labels_and_names(tmp_path: Path) -> None:
    found = sv.ingest(Annotated(), tmp_path / "cells.zarr", y="type")
    assert sorted(found.classes) == ["B", "T"]
    model = sv.fit(tmp_path / "cells.zarr", tmp_path / "cells.ssvm").model
    assert model.names == tuple(Annotated().var_names)


WRONG: list[tuple[Any, dict[str, Any], str]] = [
    (X, {}, "there are no labels"),
    (X, {"y": Y[:-1]}, "5000 rows and 4999 labels"),
    (X, {"y": np.zeros((5000, 2))}, "labels"),
    (np.where(np.arange(60000).reshape(5000, 12) == 40007, np.nan, 1.0), {"y": Y}, "X row 3334, column 12: nan"),
    (frame(), {"y": np.zeros(ROWS - 1)}, "3000 rows and 2999 values of y"),
    (frame(), {"y": "gone"}, "gone"),
    (frame().assign(age=[["1"]] * ROWS), {"label": "left"}, "age"),
    (frame().iloc[:0], {"label": "left"}, "no rows"),
    (frame().assign(age=pd.arrays.SparseArray(np.ones(ROWS))), {"label": "left"}, "column 'age': holds Sparse"),
    (frame().assign(age=1j), {"label": "left"}, "column 'age': holds complex128"),
    (frame().assign(age=[1, "a"] * (ROWS // 2)), {"label": "left"}, "column 'age': .*with type str"),
    (frame().rename(columns={"age": "plan"}), {"label": "left"}, "two columns named 'plan'"),
    (frame(), {"y": [object()] * ROWS}, "the values of y: "),
    ("table.csv", {"y": Y}, "beside files"),
    (3, {}, "rows cannot be read from"),
]


@pytest.mark.parametrize(("rows", "options", "said"), WRONG, ids=range(len(WRONG)))
def test_api_rows_what_is_wrong_is_said_and_nothing_is_left(
    tmp_path: Path, rows: Any, options: dict[str, Any], said: str
) -> None:
    with pytest.raises(sv.StreamSVMError, match=said):
        sv.ingest(rows, tmp_path / "never.zarr", missing="error", **options)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("kind", [kind for kind in TABLES if kind != "dask"])
def test_api_rows_model_reads_tables_as_its_own_was_read(place: Path, tmp_path: Path, kind: str) -> None:
    model = sv.fit(place / "file.zarr", tmp_path / "model.ssvm", standardize=True).model
    expected = model.decision_function(place / "table.parquet")
    assert np.array_equal(model.decision_function(TABLES[kind](place)), expected)
    without = frame().drop(columns="left")[["kind", "zone", "plan", "age", "when", "charged"]]
    assert np.array_equal(model.decision_function(without), expected)


def test_api_rows_model_of_numbers_takes_tables_of_numbers_and_arrays_on_disk(tmp_path: Path) -> None:
    sv.ingest(X, tmp_path / "rows.zarr", y=Y)
    model = sv.fit(tmp_path / "rows.zarr", tmp_path / "model.ssvm").model
    expected = model.decision_function(X)
    for given in (pd.DataFrame(X), pa.table({str(k): x for k, x in enumerate(X.T)})):
        assert np.array_equal(model.decision_function(given), expected)
    assert np.array_equal(model.decision_function(of_hdf5(tmp_path)), expected)
    with pytest.raises(sv.DataError, match=r"column 'word' holds .*string"):
        model.decision_function(pd.DataFrame({"word": ["a"]}))


def test_api_rows_are_fitted_and_judged_as_their_store_is(tmp_path: Path) -> None:
    sv.ingest(X, tmp_path / "rows.zarr", y=Y)
    expected = sv.fit(tmp_path / "rows.zarr", tmp_path / "model.ssvm", C=0.5).model
    assert sv.fit(X, Y, C=0.5).model == expected
    kept = sv.fit(X, tmp_path / "kept.ssvm", y=Y, C=0.5)
    assert sv.load_model(tmp_path / "kept.ssvm") == kept.model == expected
    assert Path(kept.run, "certificate.json").is_file()
    of_store = sv.evaluate(tmp_path / "model.ssvm", tmp_path / "rows.zarr").evaluation
    assert sv.evaluate(expected, X, y=Y).evaluation == of_store
    assert {path.name for path in tmp_path.iterdir()} == {
        f"{n}.ssvm{r}" for n in ("model", "kept") for r in ("", ".run")
    } | {"rows.zarr"}


def test_api_rows_tables_and_files_are_fitted_and_judged_by_the_name_of_their_label(
    place: Path, tmp_path: Path
) -> None:
    known = frame().drop(columns="when").dropna()
    known.to_parquet(tmp_path / "t.parquet", index=False)
    found = sv.fit(known, y="left", standardize=True).model
    whole = sv.fit(known, y="left", test_fraction=0).model
    beside = sv.fit(known.drop(columns="left"), known["left"], standardize=True).model  # its label has another name
    assert np.array_equal(beside.weights, whole.weights)
    assert found == sv.fit(tmp_path / "t.parquet", y="left", standardize=True).model
    found.save(tmp_path / "m.ssvm")
    expected = sv.evaluate(tmp_path / "m.ssvm", str(tmp_path / "t.parquet"), label="left").evaluation
    assert expected.accuracy > 0.7
    assert sv.evaluate(found, known, y="left").evaluation == expected
    assert sv.evaluate(found, known.drop(columns="left"), y=known["left"]).evaluation == expected


def test_api_rows_labels_that_are_given_twice_or_beside_a_store_are_refused(tmp_path: Path) -> None:
    with pytest.raises(sv.UsageError, match="given twice"):
        sv.fit(X, Y, y=Y)
    sv.ingest(X, tmp_path / "rows.zarr", y=Y)
    with pytest.raises(sv.UsageError, match="has its labels"):
        sv.fit(tmp_path / "rows.zarr", tmp_path / "m.ssvm", y=Y)
    with pytest.raises(sv.ConfigError, match="'model' is missing"):
        sv.fit(tmp_path / "rows.zarr")


LABELS = {
    "bool": np.array([False, True]),
    "int": np.array([3, 12]),
    "float": np.array([-1.0, 1.0]),
    "text that looks like numbers": np.array(["1", "2"]),
    "text": np.array(["no", "yes"]),
}
"""Two classes each, in the types that labels may have."""


def small_rows(labels: Any) -> tuple[pd.DataFrame, Any]:
    """A frame with categories, and a label of each row."""
    x = np.linspace(-1.0, 1.0, 60)
    rows = pd.DataFrame({"x": x, "kind": pd.Categorical(np.where(np.arange(60) % 2, "u", "v"))})
    return rows, labels[(x > 0.1).astype(int)]


def test_api_rows_one_value_for_all_labels_is_refused(tmp_path: Path) -> None:
    for y in (np.array(3.0), np.float64(1.0), 2):
        with pytest.raises(sv.DataError, match="one value for labels"):
            sv.ingest(np.ones((5, 2)), tmp_path / "s.zarr", y=y)


@each_value(("labels", LABELS.values()), ("kind", ["frame", "array", "dask"]))
def test_api_rows_predictions_have_the_type_of_the_labels(kind: str, labels: Any, tmp_path: Path) -> None:
    rows, y = small_rows(labels)
    X: Any = rows if kind == "frame" else rows[["x"]].to_numpy()
    if kind == "dask":
        da = pytest.importorskip("dask.array")
        model: Any = sv.fit(da.from_array(X, chunks=20), tmp_path / "m", y=da.from_array(y, chunks=20)).model
    else:
        model = sv.fit(X, tmp_path / "m", y=y).model
    for known in (model, sv.load_model(tmp_path / "m")):
        found = known.predict(X)
        assert found.dtype == y.dtype
        assert (found == y).mean() > 0.9


def test_api_rows_predictions_of_a_file_have_the_type_of_its_labels(tmp_path: Path) -> None:
    for labels in LABELS.values():
        rows, y = small_rows(labels)
        rows.assign(y=y).to_parquet(tmp_path / "t.parquet")
        rows.assign(y=y).to_csv(tmp_path / "t.csv", index=False)
        np.savez(tmp_path / "t.npz", X=rows[["x"]].to_numpy(), y=y)
        for name in ("t.parquet", "t.csv", "t.npz"):
            path = tmp_path / name
            model = sv.fit(path, y=None if name == "t.npz" else "y").model
            found = model.predict(rows if name != "t.npz" else rows[["x"]].to_numpy())
            if name == "t.csv":  # has no types: numbers are whatever looks like numbers
                assert (found.astype(str) == y.astype(str)).mean() > 0.9 or y.dtype.kind == "f"
            else:
                assert found.dtype.kind == y.dtype.kind
                assert (found == y).mean() > 0.9


def module_of(package: str, **methods: Any) -> Any:
    """An object of a package that is not installed, with these methods."""
    return type("Table", (), {"__module__": package, **methods})()


def stored_tables(table: pa.Table) -> dict[str, Any]:
    """A table as those of other packages give their rows."""

    class Formatted:
        column_names = table.column_names

        def iter(self, batch_size: int) -> Any:
            return (table.slice(start, 100) for start in range(0, len(table), 100))

    scan = module_of("pyiceberg.table", to_arrow_batch_reader=lambda self: table.to_reader())
    return {
        "Delta Lake": module_of("deltalake.table", to_pyarrow_dataset=lambda self: pyarrow.dataset.dataset(table)),
        "Iceberg": module_of("pyiceberg.table", scan=lambda self: scan),
        "scan of Iceberg": scan,
        "Lance": module_of(
            "lance.dataset", schema=table.schema, to_batches=lambda self, batch_size: iter(table.to_batches(batch_size))
        ),
        "Hugging Face": module_of(
            "datasets.arrow_dataset",
            column_names=table.column_names,
            shape=table.shape,
            iter=None,
            with_format=lambda self, form: Formatted(),
        ),
    }


def test_api_rows_tables_that_lie_in_files_of_their_own_are_read(place: Path, tmp_path: Path) -> None:
    for name, given in stored_tables(table(place)).items():
        sv.ingest(given, tmp_path / "t.zarr", label="left", missing="mean", overwrite=True)
        assert digest(tmp_path / "t.zarr") == digest(place / "file.zarr"), name


def test_api_rows_what_cannot_be_read_is_refused_with_what_to_pass(tmp_path: Path) -> None:
    for given, hint in (
        (module_of("pyspark.sql.dataframe"), "X.write.parquet"),
        (module_of("datasets.dataset_dict"), "choose a part"),
        ({"a": [1.0]}, "give rows as an array"),
        (np.ones(3), "two dimensions"),
        (module_of("elsewhere"), "Parquet"),
    ):
        with pytest.raises(sv.UsageError, match="rows cannot be read from") as refused:
            sv.fit(given, y=[0, 1, 0])
        assert hint in str(refused.value.hint)


def test_api_rows_of_which_float32_keeps_little_are_told() -> None:
    """The second half of a column is around 1e8, where float32 has steps of 8; the first decides what zero it is stored from."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(2000, 2))
    X[1000:, 1] += 1e8
    y = (X[:, 0] > 0).astype(int)
    lost = "float32 is too coarse for some rows, whose values lie far from all others: column 1 near"
    assert any(lost in notice for notice in sv.fit(X, y, max_passes=2).notices)
    for estimator in (StreamSVC(), StreamSVR()):
        with pytest.warns(sv.StreamSVMWarning, match=lost):
            estimator.fit(X, y)
    frame = pd.DataFrame({"a": X[:, 0], "b": X[:, 1], "word": np.where(y == 1, "yes", "no")})  # stored on the way
    with pytest.warns(sv.StreamSVMWarning, match="float32 is too coarse for some rows.*'b' near"):
        StreamSVC().fit(frame, y)


@pytest.mark.filterwarnings("error::streamsvm.StreamSVMWarning")
def test_api_rows_near_0_warn_of_nothing() -> None:
    """One class of few rows is asked for a gap that is far smaller than the tolerance: that says nothing of its columns."""
    X = np.random.default_rng(0).normal(size=(21, 2)) + 1.0
    for estimator in (StreamOneClassSVM(), StreamOneClassSVM(kernel="rbf"), StreamSVC(), StreamSVR()):
        estimator.fit(X, (X[:, 0] > 1.0).astype(int))


@pytest.mark.parametrize("names", [[], ()])
def test_api_rows_no_files_at_all_are_refused(names: Any, tmp_path: Path) -> None:
    with pytest.raises(sv.UsageError, match="no file is named"):
        sv.fit(names, tmp_path / "m.ssvm")


def test_api_rows_name_of_bytes_is_a_name(tmp_path: Path) -> None:
    sv.synth("susy", tmp_path / "s.zarr", rows=200)
    assert sv.fit(os.fsencode(tmp_path / "s.zarr"), tmp_path / "m.ssvm").certified
