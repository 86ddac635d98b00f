"""Dask collections obey the rules of files: the same refusals in the same words, the same stores, few tasks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import dask
import dask.array as da
import numpy as np
import pytest
import scipy.sparse
from dask.delayed import delayed

from streamsvm.cluster import ingest_dask, predict_dask
from streamsvm.errors import DataError
from streamsvm.jobs.fit.driver import fit
from streamsvm.jobs.fit.options import FitJob
from streamsvm.jobs.ingest.options import IngestJob
from streamsvm.jobs.ingest.run import ingest
from streamsvm.store import open_store, read_chunk

pd = pytest.importorskip("pandas", reason="dask.dataframe needs pandas: pip install 'streamsvm[test]'")
dd = pytest.importorskip("dask.dataframe")
ROWS = 60


def table(**columns: Any) -> Any:
    """Rows whose label is good and whose columns are as given."""
    rng = np.random.default_rng(0)
    given: dict[str, Any] = {"a": rng.normal(size=ROWS), "y": np.where(np.arange(ROWS) % 3 == 0, "no", "yes")}
    return pd.DataFrame(given | columns)


def texts(*special: Any) -> list[Any]:
    """ROWS texts, the last ones as given."""
    return [*("red" if k % 2 else "blue" for k in range(ROWS - len(special))), *special]


def rows_of(path: Path) -> tuple[list[list[float]], list[str]]:
    store: Any = open_store(path)
    assert store.layout.dense
    chunks = [read_chunk(store, k, store.buffers()) for k in range(len(store.layout.chunks))]
    values = np.concatenate([np.array(chunk.X.values) for chunk in chunks])
    codes = np.concatenate([np.array(chunk.codes) for chunk in chunks])
    return values.tolist(), [store.layout.classes[code] for code in codes]


NUMBERS = np.arange(ROWS, dtype=np.float64)
HOLED = np.where(np.arange(ROWS) == ROWS - 1, np.nan, NUMBERS)
SAME: dict[str, tuple[Any, dict[str, Any]]] = {
    "plain": (table(), {}),
    "missing": (table(b=HOLED), {"missing": "mean"}),
    "missing, with a mean that sums in float64 lose": (
        table(b=[np.nan if k == 3 else {5: 1e20, 50: -1e20}.get(k, 0.1 * k) for k in range(ROWS)]),
        {"missing": "mean"},
    ),
    "dates in small row groups, stored with an offset": (
        table(b=np.where(NUMBERS % 7 == 0, -1.0, 1.0)),
        {"columns_as": ("b=epoch",), "missing": "indicator", "layout": "dense"},
    ),
    "indicator": (table(b=HOLED), {"missing": "indicator"}),
    "categorical": (table(b=texts()), {"categorical": ("b",)}),
    "hash": (table(b=texts()), {"columns_as": ("b=hash",), "hash_bits": 4, "layout": "dense"}),
    "weight": (table(w=NUMBERS / ROWS), {"weight": "w"}),
    "test fraction": (table(b=NUMBERS), {"test_fraction": 0.3, "seed": 5}),
    "dates": (
        table(t=pd.Timestamp("2001-02-03") + pd.to_timedelta(NUMBERS, "D")),
        {"calendar": ("t",), "layout": "dense"},
    ),
    "digits": (table(b=[str(k % 7) for k in range(ROWS)]), {}),
    "whole numbers as labels": (table(y=np.arange(ROWS) % 2 + 2**53), {}),
    "dropped": (table(b=texts()), {"drop": ("b",)}),
}


@pytest.mark.parametrize(("frame", "options"), SAME.values(), ids=SAME)
def test_dask_ingest_frame_becomes_what_its_file_becomes(tmp_path: Path, frame: Any, options: dict[str, Any]) -> None:
    frame.to_parquet(tmp_path / "t.parquet", row_group_size=7)
    ingest(IngestJob(sources=(tmp_path / "t.parquet",), store=tmp_path / "file.zarr", label="y", **options))
    ingest_dask(dd.from_pandas(frame, npartitions=4), store=tmp_path / "dask.zarr", label="y", **options)
    for name in ("{}.zarr", "{}.test.zarr") if "test_fraction" in options else ("{}.zarr",):
        stores: list[Any] = [open_store(tmp_path / name.format(kind)) for kind in ("file", "dask")]
        assert stores[0].facts["names"] == stores[1].facts["names"]
        assert stores[0].layout.weighted == stores[1].layout.weighted
        read = [rows_of(tmp_path / name.format(kind)) for kind in ("file", "dask")]
        assert read[0] == read[1]


def test_dask_ingest_column_of_vectors_is_that_of_its_file(tmp_path: Path) -> None:
    """Unless Dask has turned the lists into text, which is its default for objects."""
    frame = table(b=[[k, 0.5 * k] for k in range(ROWS)])
    frame.to_parquet(tmp_path / "t.parquet", row_group_size=7)
    ingest(IngestJob(sources=(tmp_path / "t.parquet",), store=tmp_path / "file.zarr", label="y"))
    with dask.config.set({"dataframe.convert-string": False}):
        ingest_dask(dd.from_pandas(frame, npartitions=4), store=tmp_path / "dask.zarr", label="y")
    stores: list[Any] = [open_store(tmp_path / f"{kind}.zarr") for kind in ("file", "dask")]
    assert stores[0].facts["names"] == stores[1].facts["names"] == ["a", "b[0]", "b[1]"]
    assert rows_of(tmp_path / "file.zarr") == rows_of(tmp_path / "dask.zarr")


REFUSED: dict[str, tuple[Any, str, str]] = {
    "label missing": (table(y=texts(None)), "E-LABEL", "partition 3 row 15, column 'y': the label is missing"),
    "label NA": (table(y=pd.array(texts(pd.NA), "string")), "E-LABEL", "the label is missing"),
    "number missing": (table(b=HOLED), "E-MISSING", "partition 3 row 15, column 'b': the value is missing"),
    "infinite": (table(b=np.where(HOLED > 57, np.inf, NUMBERS)), "E-NONFINITE", "partition 3 row 14, column 'b'"),
    "too large": (table(b=1e39 * NUMBERS), "E-RANGE", "column 'b'"),
    "mixed": (table(b=pd.Series(texts(3.5, b"x"), dtype=object)), "E-DTYPE", "column 'b'"),
    "lists of text": (table(b=[[str(k)] for k in range(ROWS)]), "E-DTYPE", "b"),
    "sparse": (table(b=pd.arrays.SparseArray(NUMBERS)), "E-DTYPE", "partition 0, column 'b': holds Sparse"),
    "complex": (table(b=1j * NUMBERS), "E-DTYPE", "partition 0, column 'b': holds complex128"),
    "beyond 64 bits": (table(y=[*[1] * (ROWS - 1), 2**70]), "E-DTYPE", "partition 3, column 'y'"),
}


@pytest.mark.parametrize(("frame", "code", "said"), REFUSED.values(), ids=REFUSED)
def test_dask_ingest_frame_is_refused_as_its_file_is(tmp_path: Path, frame: Any, code: str, said: str) -> None:
    with dask.config.set({"dataframe.convert-string": False}):
        given = dd.from_pandas(frame, npartitions=4)
        with pytest.raises(DataError) as caught:
            ingest_dask(given, store=tmp_path / "s.zarr", label="y")
    assert (caught.value.code, said in caught.value.message) == (code, True), str(caught.value)
    assert caught.value.hint
    assert str(tmp_path) not in str(caught.value)
    assert not (tmp_path / "s.zarr").exists()
    assert [path for path in tmp_path.iterdir() if not path.name.endswith(".lock")] == []


OTHER: dict[str, tuple[Any, str, str]] = {
    "text": (table(b=texts()), "E-DTYPE", "partition 1, column 'b': holds"),
    "dates": (table(b=pd.Timestamp("2001-02-03")), "E-DTYPE", "partition 1, column 'b': holds datetime64"),
    "no column": (table(), "E-SCHEMA", "partition 0 has a column 'b', and partition 1 has none"),
    "a column more": (
        table(b=NUMBERS, c=NUMBERS),
        "E-SCHEMA",
        "partition 1 has a column 'c', and partition 0 has none",
    ),
}


@pytest.mark.parametrize(("other", "code", "said"), OTHER.values(), ids=OTHER)
def test_dask_ingest_partition_unlike_the_first_is_named(tmp_path: Path, other: Any, code: str, said: str) -> None:
    first = table(b=NUMBERS)
    given = dd.from_delayed([delayed(first), delayed(other)], meta=first.iloc[:0], verify_meta=False)
    with dask.config.set({"dataframe.convert-string": False}), pytest.raises(DataError) as caught:
        ingest_dask(given, store=tmp_path / "s.zarr", label="y")
    assert (caught.value.code, said in caught.value.message) == (code, True), str(caught.value)


def test_dask_ingest_name_that_is_there_twice_is_refused(tmp_path: Path) -> None:
    frame = table(b=NUMBERS)
    given = dd.from_pandas(frame, npartitions=2)
    given.columns = ["a", "y", "a"]
    with pytest.raises(DataError, match="two columns named 'a'"):
        ingest_dask(given, store=tmp_path / "s.zarr", label="y")


ARRAY_BYTES: dict[str, tuple[Any, Any, str, str]] = {
    "text": (np.array([["1"], ["2"]]), [0, 1], "E-DTYPE", "block 0 holds text, not numbers"),
    "dates": (np.array([["2001-01-01"], ["2001-01-02"]], "M8[D]"), [0, 1], "E-DTYPE", "not numbers"),
    "NaN": (np.array([[1.0], [np.nan]]), [0, 1], "E-NONFINITE", "block 1 row 1, column 1: nan is not finite"),
    "range": (np.array([[1.0], [1e39]]), [0, 1], "E-RANGE", "block 1 row 1"),
    "label": (np.ones((2, 1)), np.array(["a", None], object), "E-LABEL", "block 1 row 1: the label is missing"),
    "NaN as a label": (np.ones((2, 1)), [0.0, np.nan], "E-LABEL", "block 1 row 1: the label is missing"),
    "a list as a label": (
        np.ones((2, 1)),
        np.array([[1], "a"], object),
        "E-LABEL",
        "block 0 of the labels holds list",
    ),
    "date labels": (np.ones((2, 1)), np.array(["2001-01-01", "2001-01-02"], "M8[D]"), "E-LABEL", "datetime64"),
}


@pytest.mark.parametrize(("X", "y", "code", "said"), ARRAY_BYTES.values(), ids=ARRAY_BYTES)
def test_dask_ingest_array_is_refused_as_its_file_is(tmp_path: Path, X: Any, y: Any, code: str, said: str) -> None:
    rows, labels = da.from_array(X, chunks=(1, 1)), da.from_array(np.asarray(y), chunks=1)
    with pytest.raises(DataError) as caught:
        ingest_dask(rows, labels, tmp_path / "s.zarr")
    assert (caught.value.code, said in caught.value.message) == (code, True), str(caught.value)


def changed(change: Any) -> Any:
    """Rows (40, 3) in blocks of 10, the third of them changed."""
    rows = da.ones((40, 3), chunks=(10, 3))
    return rows.map_blocks(
        lambda b, block_info: change(b) if block_info[0]["chunk-location"][0] == 2 else b, dtype=float
    )


LABELS = da.from_array(np.arange(40) % 2, 10)
UNLIKE: dict[str, tuple[Any, Any, Any, str, str]] = {
    "narrow": (changed(lambda b: b[:, :2]), LABELS, None, "E-SCHEMA", "block 2 has 2 columns, and block 0 has 3"),
    "sparse, narrow": (
        changed(lambda b: b[:, :2]).map_blocks(scipy.sparse.csr_matrix),
        LABELS,
        None,
        "E-SCHEMA",
        "block 2 has 2 columns",
    ),
    "sparse": (changed(scipy.sparse.csr_matrix), LABELS, None, "E-SCHEMA", "block 2 is sparse, and block 0 is dense"),
    "labels": (da.ones((40, 3)), LABELS[:30], None, "E-ROWS", "there are 40 rows, and 30 labels"),
    "weights": (da.ones((40, 3)), LABELS, LABELS[:30], "E-ROWS", "there are 40 rows, and 30 labels or weights"),
    "unknown": (
        changed(lambda b: b)[LABELS >= 0],
        LABELS[:30],
        None,
        "E-ROWS",
        "there are 40 rows, and 30 labels or weights",
    ),
    "mixed labels": (
        da.ones((40, 3)),
        da.from_array(np.array([1, "a"] * 20, object), 10),
        None,
        "E-LABEL",
        "block 0 of",
    ),
    "text as weights": (da.ones((40, 3)), LABELS, LABELS.astype("U1"), "E-DTYPE", "block 0 of the weights holds <U1"),
}


@pytest.mark.parametrize(("X", "y", "weight", "code", "said"), UNLIKE.values(), ids=UNLIKE)
def test_dask_ingest_blocks_that_do_not_belong_together_are_named(
    tmp_path: Path, X: Any, y: Any, weight: Any, code: str, said: str
) -> None:
    with pytest.raises(DataError) as caught:
        ingest_dask(X, y, tmp_path / "s.zarr", weight=weight)
    assert (caught.value.code, said in caught.value.message) == (code, True), str(caught.value)


@pytest.mark.parametrize("sparse", [False, True])
def test_dask_ingest_arrays_have_weights_missing_values_and_rows_held_out(tmp_path: Path, sparse: bool) -> None:
    values = np.random.default_rng(1).normal(size=(ROWS, 3))
    values[np.abs(values) < 0.4] = 0.0
    values[5, 1] = np.nan
    rows = da.from_array(values, chunks=(9, 3))
    if sparse:
        rows = rows.map_blocks(scipy.sparse.csr_matrix)
    weight = da.from_array(NUMBERS, chunks=11)
    path = ingest_dask(
        rows, da.from_array(np.arange(ROWS) % 2, chunks=9), tmp_path / "s.zarr", weight=weight, missing="zero",
        test_fraction=0.25, layout="dense",
    )  # fmt: skip
    stores: list[Any] = [open_store(tmp_path / name) for name in ("s.zarr", "s.test.zarr")]
    assert path == tmp_path / "s.zarr"
    assert sum(store.layout.rows for store in stores) == ROWS
    assert all(store.layout.weighted for store in stores)
    read = np.concatenate([rows_of(tmp_path / name)[0] for name in ("s.zarr", "s.test.zarr")])
    expected = np.nan_to_num(values).astype(np.float32)
    assert sorted(map(tuple, read)) == sorted(map(tuple, expected))


def test_dask_ingest_one_row_in_many_partitions_is_found_where_it_is(tmp_path: Path) -> None:
    """Also where many partitions are in a task, some of them empty."""
    frame = table(b=HOLED)
    given = dd.from_pandas(frame, npartitions=30)
    given = given[given.b != 7.0]
    with pytest.raises(DataError, match=r"partition 29 row 2, column 'b': the value is missing"):
        ingest_dask(given, store=tmp_path / "s.zarr", label="y")


@pytest.mark.parametrize("frame", [False, True])
def test_dask_ingest_columns_far_from_zero_are_stored_from_another_zero(tmp_path: Path, frame: bool) -> None:
    X = np.column_stack([np.arange(ROWS) % 7 - 3.0, 1e9 + np.arange(ROWS) % 2])
    y = np.where(X[:, 1] > 1e9, "q", "p")
    if frame:
        given: Any = dd.from_pandas(pd.DataFrame({"a": X[:, 0], "far": X[:, 1], "y": y}), npartitions=3)
        path = ingest_dask(given, store=tmp_path / "s.zarr", label="y")
    else:
        path = ingest_dask(da.from_array(X, (20, 2)), da.from_array(y, 20), tmp_path / "s.zarr")
    stored, labels = rows_of(path)
    offset = dict(open_store(path).facts["encoding"]["offsets"])[1]
    assert stored == [[a, far - offset] for a, far in X.tolist()]
    model = tmp_path / "m.ssvm"
    fit(FitJob(str(path), str(model), C=1e4))
    rows = given if frame else da.from_array(X, (20, 2))
    assert predict_dask(model, rows).compute().tolist() == labels == y.tolist()


@pytest.mark.parametrize("partitions", [1, 3])
def test_dask_ingest_of_several_bad_rows_the_first_is_named(tmp_path: Path, partitions: int) -> None:
    """As of a file, whatever its row groups: the label of row 11 is looked at after column b."""
    frame = table(b=HOLED)
    frame.loc[10, "y"] = None
    with dask.config.set({"dataframe.convert-string": False}):
        given = dd.from_pandas(frame, npartitions=partitions)
    with pytest.raises(DataError, match="partition 0 row 11, column 'y': the label is missing"):
        ingest_dask(given, store=tmp_path / "s.zarr", label="y")
    frame.to_parquet(tmp_path / "t.parquet", row_group_size=7)
    with pytest.raises(DataError, match=r"t\.parquet row 11, column 'y': the label is missing"):
        ingest(IngestJob(sources=(tmp_path / "t.parquet",), store=tmp_path / "s.zarr", label="y"))
