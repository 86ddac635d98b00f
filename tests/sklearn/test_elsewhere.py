"""StreamSVC on rows that are not an array in memory - stores, files, tables, arrays on disk - and rows in one form."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import scipy.sparse
import zarr

pytest.importorskip("sklearn", minversion="1.6")
from sklearn.model_selection import cross_val_score

import streamsvm as sv
from streamsvm.rows import row_count
from streamsvm.sklearn import StreamOneClassSVM, StreamSVC, StreamSVCCV, StreamSVR
from streamsvm.sklearn.rows import make_store, merge_copies
from streamsvm.store.sources.array_rows import rows_of
from tests.decision_rounding import decision_rounding
from tests.tables import passengers

X = np.random.default_rng(0).normal(size=(3000, 8)).astype(np.float32)
Y = np.where(X[:, 0] + X[:, 1] > 0, 2, 7)


def frame() -> pd.DataFrame:
    found = pd.DataFrame(
        [{**row, "age": row["age"] or 40.0, "plan": row["plan"] or "none"} for row in passengers(600, 0)]
    )
    return found.astype({"plan": "category", "age": float})


def test_estimator_on_disk_store_gives_the_model_of_the_command_line(tmp_path: Path) -> None:
    sv.ingest(X, tmp_path / "rows.zarr", y=Y, chunk="16KiB")
    for options in ({"C": 0.1}, {"C": 1.0, "kernel": "rbf", "landmarks": 20, "standardize": True}):
        expected = sv.fit(tmp_path / "rows.zarr", tmp_path / "model.ssvm", **options, seed=5, overwrite=True).model
        found = StreamSVC(**options, random_state=5).fit(tmp_path / "rows.zarr")
        assert found.model_ == expected
        assert found.classes_.tolist() == [2, 7]
        assert found.n_features_in_ == 8
        assert found.score(X, Y) > 0.9
        allowed = decision_rounding(found.model_, X)
        np.testing.assert_allclose(
            found.decision_function(X), found.decision_function(tmp_path / "rows.zarr"), rtol=0.0, atol=allowed
        )
    assert sorted(path.name for path in tmp_path.iterdir()) == ["model.ssvm", "model.ssvm.run", "rows.zarr"]


def of_hdf5(folder: Path) -> Any:
    return h5py.File(folder / "rows.h5", "w").create_dataset("X", data=X)


@pytest.mark.parametrize("kind", ["hdf5", "zarr", "dask"])
def test_estimator_on_disk_arrays_are_the_same_rows(tmp_path: Path, kind: str) -> None:
    made = {
        "hdf5": of_hdf5,
        "zarr": lambda folder: zarr.create_array(str(folder / "a.zarr"), data=X),
        "dask": lambda folder: pytest.importorskip("dask.array").from_array(X, chunks=(500, 8)),
    }
    rows = made[kind](tmp_path)
    labels = pytest.importorskip("dask.array").from_array(Y, chunks=500) if kind == "dask" else Y
    found, expected = StreamSVC(tolerance=1e-8).fit(rows, labels), StreamSVC(tolerance=1e-8).fit(X, Y)
    assert np.allclose(found.coef_, expected.coef_, rtol=1e-4)
    assert np.array_equal(found.predict(X), expected.predict(X))


def test_estimator_on_disk_words_and_categories_go_the_way_of_the_ingest(tmp_path: Path) -> None:
    known = frame()
    rows, labels = known.drop(columns="left"), known["left"]
    pq.write_table(pa.Table.from_pandas(known, preserve_index=False), tmp_path / "table.parquet")
    found = StreamSVC(standardize=True).fit(rows, labels)
    assert found.score(rows, labels) > 0.8
    assert found.classes_.tolist() == ["no", "yes"]
    assert found.feature_names_in_.tolist() == rows.columns.tolist()
    assert found.n_features_in_ == len(rows.columns)
    assert found.get_feature_names_out().tolist() == list(found.model_.explain().names)
    by_name = StreamSVC(standardize=True).fit(known, "left")
    of_file = StreamSVC(standardize=True).fit(tmp_path / "table.parquet", "left")
    reader = StreamSVC(standardize=True).fit(pa.Table.from_pandas(rows, preserve_index=False).to_reader(100), labels)
    for other in (by_name, of_file, reader):
        assert np.array_equal(other.coef_, found.coef_)
        assert np.array_equal(other.predict(rows[::-1]), found.predict(rows)[::-1])


def test_estimator_on_disk_labels_beside_a_store_are_refused(tmp_path: Path) -> None:
    sv.ingest(X, tmp_path / "rows.zarr", y=Y)
    with pytest.raises(ValueError, match="has its labels"):
        StreamSVC().fit(tmp_path / "rows.zarr", Y)
    with pytest.raises(sv.MissingError, match="does not exist"):
        StreamSVC().fit(tmp_path / "gone.zarr")


def test_estimator_on_disk_errors_name_parameters_whatever_the_rows_are(tmp_path: Path) -> None:
    """What is wrong with a parameter is a ValueError in the words of the estimator, of arrays, frames and stores alike."""
    sv.ingest(X[:100], tmp_path / "rows.zarr", y=Y[:100])
    wrong: list[tuple[dict[str, Any], type[Exception], str]] = [
        ({"loss": "hing"}, ValueError, "'loss' cannot be 'hing'; did you mean 'hinge'"),
        ({"random_state": -1}, ValueError, "'random_state' cannot be -1"),
        ({"nu": 0.2, "l1": 1.0}, ValueError, "'l1' cannot be combined with 'nu'"),
        ({"memory": "1MiB"}, sv.BudgetError, "memory='1MiB' is not enough"),
    ]
    for options, kind, said in wrong:
        for rows, labels in ((X[:100], Y[:100]), (frame(), "left"), (tmp_path / "rows.zarr", None)):
            with pytest.raises(kind) as refused:
                StreamSVC(**options).fit(rows, labels)
            assert said in str(refused.value)
            assert "--" not in str(refused.value)


def test_estimator_on_disk_rows_of_one_class_need_no_labels(tmp_path: Path) -> None:
    given = h5py.File(tmp_path / "rows.h5", "w").create_dataset("X", data=X + 10.0)
    found = StreamOneClassSVM(nu=0.2).fit(given)
    assert np.array_equal(found.coef_, StreamOneClassSVM(nu=0.2).fit(given, Y).coef_)
    assert found.predict(X[:5]).shape == (5,)


@pytest.mark.parametrize("form", ["array", "frame", "sparse"])
def test_estimator_on_disk_missing_values_are_filled_as_an_ingest_fills_them(form: str) -> None:
    holed = X[:200].astype(np.float64)
    holed[::5, 3] = np.nan
    made = {
        "array": holed,
        "frame": pd.DataFrame(holed).rename(columns="c{}".format),
        "sparse": scipy.sparse.csr_array(holed),
    }
    whole = np.where(np.isnan(holed), np.nanmean(holed, axis=0), holed)
    with pytest.raises(ValueError, match="NaN"):
        StreamSVC().fit(made[form], Y[:200])
    estimators = StreamSVC(missing="mean"), StreamSVCCV(missing="mean", cv=2, Cs=(0.1, 1.0)), StreamSVR(missing="mean")
    for estimator in estimators:
        found = estimator.fit(made[form], Y[:200])
        assert np.isfinite(found.predict(made[form])).all()
        assert found.__sklearn_tags__().input_tags.allow_nan
    if form != "sparse":
        expected = StreamSVC(tolerance=1e-9).fit(whole, Y[:200]).decision_function(whole)
        found = StreamSVC(missing="mean", tolerance=1e-9).fit(made[form], Y[:200])
        assert np.allclose(found.decision_function(made[form]), expected, atol=1e-3)


@pytest.mark.parametrize("labels", [[False, True], [0.0, 1.0], ["1", "2"], ["01", "02"], [3, 4]], ids=str)
def test_estimator_on_disk_frames_with_categories_are_scored_by_labels_of_any_type(labels: list[Any]) -> None:
    x = np.linspace(-1.0, 1.0, 60)
    X = pd.DataFrame({"x": x, "kind": pd.Categorical(np.where(np.arange(60) % 2, "u", "v"))})
    y = np.array(labels)[(np.sin(9.0 * x) > 0).astype(int)]
    found = StreamSVC().fit(X, y)
    assert found.classes_.dtype == y.dtype
    assert found.score(X, y) == np.mean(found.predict(X) == y) > 0.5
    assert np.isfinite(cross_val_score(StreamSVC(), X, y, cv=3)).all()
    assert StreamSVCCV(Cs=[1.0], cv=3).fit(X, y).predict(X).dtype == y.dtype
    if y.dtype == bool:
        heavy = StreamSVC(class_weight={True: 50.0}).fit(X, y)
        assert heavy.predict(X).sum() > found.predict(X).sum()


RNG = np.random.default_rng(0)


# -- rows in one form --------------------------------------------------------------------------------------------------

MERGED_X = RNG.integers(0, 2, (40, 3)).astype(
    np.float64
)  # eight different rows, each in both classes, and rows of zeros alone


CODES = RNG.integers(0, 2, 40).astype(np.int32)
WEIGHTS = RNG.integers(0, 4, 40).astype(np.float64)


@pytest.mark.parametrize("form", [np.asarray, scipy.sparse.csr_array])
@pytest.mark.parametrize("kind", [np.int32, np.float64])
def test_merged_rows_copies_weights_and_orders_are_one_store(form: Any, kind: Any) -> None:
    y, copies = CODES.astype(kind), RNG.permutation(np.repeat(np.arange(40), WEIGHTS.astype(int)))
    classes = 2 if kind is np.int32 else 0
    one = make_store(form(MERGED_X), y, WEIGHTS, classes, least=1)
    other = make_store(form(MERGED_X[copies]), y[copies], None, classes, least=1)
    assert one.digest == other.digest
    assert one.layout.rows == len(
        {(*row, code) for row, code in zip(MERGED_X[copies].tolist(), y[copies].tolist(), strict=True)}
    )


@pytest.mark.parametrize("form", [np.asarray, scipy.sparse.csr_array])
def test_merged_rows_of_one_hash_are_compared(form: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("streamsvm.sklearn.rows.hash_rows", lambda X, columns: np.zeros(row_count(X), np.uint64))
    rows = np.array([[1.0, 0.0], [0.0, 1.0], [0.0, 2.0], [0.0, 2.0], [0.0, 2.0], [0.0, 0.0]])
    found, y, weights = merge_copies(rows_of(form(rows), "X"), np.array([0, 0, 0, 0, 1, 1]), None, 2)
    assert (row_count(found), y.tolist(), weights.tolist()) == (5, [0, 0, 0, 1, 1], [1.0, 1.0, 2.0, 1.0, 1.0])


def test_merged_rows_what_is_counted_are_the_rows_that_were_given() -> None:
    found = StreamSVC().fit(MERGED_X, CODES, WEIGHTS)
    assert found.rows_seen_ == np.count_nonzero(WEIGHTS)
