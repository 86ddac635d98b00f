"""Columns that float32 cannot hold are stored with an offset subtracted, or left as they are: of every source, through all that reads a store."""

from __future__ import annotations

from contextlib import nullcontext
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
from click.testing import CliRunner
from sklearn.svm import LinearSVC, OneClassSVM

import streamsvm as sv
from streamsvm import model as models
from streamsvm.cli.main import cli
from streamsvm.engine.executor import SerialExecutor
from streamsvm.errors import StreamSVMWarning
from streamsvm.jobs.apply.evaluate import evaluate
from streamsvm.jobs.apply.options import EvaluateJob, PredictJob
from streamsvm.jobs.apply.predict import predict
from streamsvm.jobs.apply.rows import find_moved_offsets
from streamsvm.jobs.fit.driver import fit
from streamsvm.jobs.fit.options import FitJob
from streamsvm.jobs.ingest.options import IngestJob
from streamsvm.jobs.ingest.run import ingest
from streamsvm.sklearn import StreamOneClassSVM
from streamsvm.store import open_store
from streamsvm.store.sources.offsets import offsets_from
from tests.axes import each_value
from tests.decision_rounding import decision_rounding
from tests.jobs.test_ingest_options import contents

ROWS = 400


FAR: dict[str, Any] = {
    "flags at 1e9": 1e9 + (np.arange(ROWS) % 2),
    "seconds": 1.7e9 + 60.0 * np.random.default_rng(1).integers(0, 1440, ROWS),
    "ids": 2e7 + np.random.default_rng(2).permutation(ROWS),
    "fractions": -3e6 + np.random.default_rng(3).normal(size=ROWS),
}


STANDARDIZED: dict[str, Any] = {"standardize": True}
RBF: dict[str, Any] = {"kernel": "rbf"}


def rows_of(name: str, seed: int = 0) -> tuple[Any, Any]:
    """Rows (n, 3) float64, the second column of which decides the labels, and is far from 0."""
    rng = np.random.default_rng(seed)
    far = FAR[name]
    X = np.column_stack([rng.normal(size=ROWS), far, rng.normal(size=ROWS)])
    return X, np.where(far > np.median(far) if name != "flags at 1e9" else far > 1e9, "q", "p")


def write_table(path: Path, X: Any, y: Any) -> Path:
    """The rows as CSV, Parquet or JSON lines, by the name of the file."""
    frame = pd.DataFrame({"a": X[:, 0], "far": X[:, 1], "b": X[:, 2], "y": y})
    if path.suffix == ".csv":
        frame.to_csv(path, index=False)
    elif path.suffix == ".parquet":
        pq.write_table(pa.Table.from_pandas(frame), path)
    else:
        frame.to_json(path, orient="records", lines=True, double_precision=15)
    return path


def write_numbers(path: Path, X: Any, y: Any) -> Path:
    """The rows as npz, HDF5 or svmlight."""
    labels = np.where(y == "q", 1.0, -1.0)
    if path.suffix == ".npz":
        np.savez(path, X=X, y=labels)
    elif path.suffix == ".h5":
        h5py = pytest.importorskip("h5py")
        with h5py.File(path, "w") as file:
            file["X"], file["y"] = X, labels
    else:
        rows = (" ".join(f"{j + 1}:{x!r}" for j, x in enumerate(row)) for row in X.tolist())
        path.write_text("".join(f"{label:+g} {row}\n" for label, row in zip(labels, rows, strict=True)))
    return path


def stored(path: Path, source: Path, *, tabular: bool, **options: Any) -> Any:
    named: dict[str, Any] = {"label": "y"} if tabular else {}
    return ingest(IngestJob(sources=(source,), store=path, overwrite=True, **named, **options))


def expected(X: Any, store: Path) -> Any:
    """The rows less the offsets of a store, rounded once."""
    offsets = offsets_from(open_store(store).facts["encoding"])
    found = X.copy()
    found[:, offsets.columns] -= offsets.values
    return found.astype(np.float32)


def decisions(model: Path, data: Path) -> Any:
    out = model.with_suffix(".npy")
    predict(PredictJob(str(model), (str(data),), str(out), output="decision", overwrite=True))
    return np.load(out)


@each_value(("name", FAR), ("suffix", ["csv", "parquet", "jsonl", "npz", "h5", "svm"]))
def test_offsets_every_source_is_stored_from_another_zero(tmp_path: Path, suffix: str, name: str) -> None:
    X, y = rows_of(name)
    tabular = suffix in ("csv", "parquet", "jsonl")
    source = (write_table if tabular else write_numbers)(tmp_path / f"a.{suffix}", X, y)
    result = stored(tmp_path / "s.zarr", source, tabular=tabular)
    found, _ = contents(result.store)
    offsets = offsets_from(open_store(result.store).facts["encoding"])
    assert offsets.columns.tolist() == [1]
    np.testing.assert_array_equal(found, expected(X, result.store))
    assert np.unique(found[:, 1]).size == np.unique(X[:, 1]).size
    assert any("stored with an offset subtracted" in notice for notice in result.notices)
    assert not any("too coarse for columns" in n or "are rounded" in n for n in result.notices)


@each_value(("name", FAR), ("settings", [{}, STANDARDIZED, STANDARDIZED | RBF, STANDARDIZED | RBF | {"landmarks": 40}]))
def test_offsets_raw_rows_and_stored_ones_get_the_same_decisions(
    tmp_path: Path, name: str, settings: dict[str, Any]
) -> None:
    X, y = rows_of(name)
    source = write_table(tmp_path / "a.csv", X, y)
    store, model = stored(tmp_path / "s.zarr", source, tabular=True).store, tmp_path / "m.ssvm"
    fit(FitJob(str(store), str(model), C=100.0, tolerance=1e-3, **settings))
    raw, known = decisions(model, source), decisions(model, store)
    np.testing.assert_array_equal(raw, known)
    assert evaluate(EvaluateJob(str(model), (str(source),))).evaluation.accuracy >= 0.97
    moved = X + np.array([0.0, 1.0, 0.0])  # the model is a function of raw rows: what moves them moves the decisions
    assert not np.allclose(decisions(model, write_table(tmp_path / "b.csv", moved, y)), raw)


@pytest.mark.parametrize("settings", [STANDARDIZED, STANDARDIZED | RBF])
def test_offsets_arrays_of_a_program_are_raw_rows_too(tmp_path: Path, settings: dict[str, Any]) -> None:
    X, y = rows_of("fractions")
    source, path = write_table(tmp_path / "a.parquet", X, y), tmp_path / "m.ssvm"
    store = stored(tmp_path / "s.zarr", source, tabular=True).store
    fit(FitJob(str(store), str(path), **settings))
    model = models.load(path)
    expected = decisions(path, source)
    allowed = decision_rounding(model, contents(store)[0])
    np.testing.assert_allclose(model.decision_function(X), expected, rtol=0.0, atol=allowed)
    np.testing.assert_array_equal(model.decision_function(scipy.sparse.csr_array(X)), expected)
    if model.kind == "linear":
        np.testing.assert_allclose(X @ model.coef[0] + model.intercept[0], expected, rtol=1e-4, atol=1e-5)
        parts = model.explain(X)
        assert parts.contributions is not None
        np.testing.assert_allclose(
            parts.contributions[:, 0].sum(1) + parts.intercept[0], expected, rtol=1e-4, atol=1e-5
        )


def test_offsets_store_with_another_zero_is_read_from_that_of_the_model(tmp_path: Path) -> None:
    X, y = rows_of("seconds")
    model = tmp_path / "m.ssvm"
    store = stored(tmp_path / "s.zarr", write_table(tmp_path / "a.csv", X, y), tabular=True).store
    other = write_table(tmp_path / "b.csv", X[::-1][:50] + np.array([0.0, 7200.0, 0.0]), y[::-1][:50])
    test = stored(tmp_path / "t.zarr", other, tabular=True).store
    zeros = [offsets_from(open_store(path).facts["encoding"]).values[0] for path in (store, test)]
    assert zeros[0] != zeros[1]
    for settings in ({}, RBF):
        fit(FitJob(str(store), str(model), standardize=True, overwrite=True, **settings))
        np.testing.assert_array_equal(decisions(model, other), decisions(model, test))
    both = FitJob(str(store), str(model), standardize=True, overwrite=True, validation=str(test))
    errors = fit(both).model.provenance["validation"]["error"]
    assert errors == pytest.approx(1 - evaluate(EvaluateJob(str(model), (str(test),))).evaluation.accuracy)


def test_offsets_warm_start_is_the_same_function_from_another_zero(tmp_path: Path) -> None:
    X, y = rows_of("seconds")
    store = stored(tmp_path / "s.zarr", write_table(tmp_path / "a.csv", X, y), tabular=True).store
    later = write_table(tmp_path / "b.csv", X + np.array([0.0, 3600.0, 0.0]), y)
    test = stored(tmp_path / "t.zarr", later, tabular=True).store
    first, again = tmp_path / "m.ssvm", tmp_path / "n.ssvm"
    fit(FitJob(str(store), str(first), solver="dcd", tolerance=1e-3))
    moved = find_moved_offsets(models.load(first), open_store(test).facts)
    assert moved.values.tolist() == [-3600.0]
    fit(FitJob(str(test), str(again), solver="dcd", warm_start=str(first), max_passes=1))
    assert models.load(again).columns == 3


@pytest.mark.parametrize("values", [[5.0] * 400, list(range(400)), [0.1] * 400, [1e9 * (i % 7) for i in range(400)]])
def test_offsets_other_columns_are_left_where_they_are(tmp_path: Path, values: list[float]) -> None:
    X, y = rows_of("ids")
    X[:, 1] = values
    found = stored(tmp_path / "s.zarr", write_table(tmp_path / "a.csv", X, y), tabular=True).store
    np.testing.assert_array_equal(contents(found)[0], X.astype(np.float32))
    assert "offsets" not in open_store(found).facts["encoding"]


@pytest.mark.parametrize("suffix", ["csv", "npz", "svm"])
def test_offsets_that_cannot_keep_a_column_are_told(tmp_path: Path, suffix: str) -> None:
    X, y = rows_of("ids")
    X[:, 1] = 1.0 + 400_001 * np.arange(ROWS)
    write = write_table if suffix == "csv" else write_numbers
    result = stored(tmp_path / "s.zarr", write(tmp_path / f"a.{suffix}", X, y), tabular=suffix == "csv")
    np.testing.assert_array_equal(contents(result.store)[0], X.astype(np.float32))
    name, rounded = "far" if suffix == "csv" else "column 1", np.count_nonzero(X[:, 1] > 2**24)
    assert f"{rounded} whole numbers of {name} are beyond 2^24 and are rounded" in result.notices


def test_offsets_files_read_by_workers_have_one_zero(tmp_path: Path) -> None:
    X, y = rows_of("seconds")
    halves = [write_table(tmp_path / f"{k}.csv", X[k::2] + np.array([0.0, 60.0 * k, 0.0]), y[k::2]) for k in (0, 1)]
    alone, spread = (IngestJob(sources=tuple(halves), store=tmp_path / f"{n}.zarr", label="y") for n in "ab")
    ingest(alone)
    ingest(spread, executor=SerialExecutor())
    assert open_store(alone.store).digest == open_store(spread.store).digest
    assert open_store(alone.store).facts["encoding"] == open_store(spread.store).facts["encoding"]


def test_offsets_embedding_has_the_offsets_of_its_rows_and_none_of_its_own(tmp_path: Path) -> None:
    """Of fewer features than the place of a column that has an offset, and of more."""
    X, y = rows_of("fractions")
    X = np.column_stack([np.zeros((ROWS, 2)), X])  # the column far from 0 is number 3
    sv.ingest(X, tmp_path / "s.zarr", y=y)
    for landmarks in (2, 8):
        options: dict[str, Any] = {
            "kernel": "rbf",
            "landmarks": landmarks,
            "sampling": "uniform",
            "gamma": 0.1,
            "overwrite": True,
            "tolerance": 1e-8,
        }
        fitted = [
            sv.fit(tmp_path / "s.zarr", tmp_path / "m.ssvm", embedding=where, **options).model
            for where in ("disk", "fly")
        ]
        target = tmp_path / f"{landmarks}.zarr"
        sv.embed(tmp_path / "s.zarr", target, kernel="rbf", landmarks=landmarks, gamma=0.1)
        for command in ("verify", "info"):
            found = CliRunner().invoke(cli, [command, str(target)])
            assert found.exit_code == 0, found.output
            assert "3 less" not in found.output
        fitted.append(sv.fit(target, tmp_path / "e.ssvm", overwrite=True, tolerance=1e-8).model)
        expected, *others = (model.decision_function(X) for model in fitted)
        for values in others:
            np.testing.assert_allclose(values, expected, atol=1e-4)
        refused = CliRunner().invoke(cli, ["predict", str(tmp_path / "e.ssvm"), str(target), str(tmp_path / "p.csv")])
        assert refused.exit_code == 65
        assert "is an embedding" in refused.output


def far_rows(place: float) -> tuple[Any, Any]:
    """Rows (300, 3) float64 around 0 but for the second column, which lies at ``place``, and labels."""
    X = np.random.default_rng(0).normal(size=(300, 3))
    y = np.where(X[:, 0] + 0.5 * X[:, 1] > 0.3, "q", "p")
    X[:, 1] += place
    return X, y


@pytest.mark.parametrize("place", [1e4, -1e5, 1e6])
def test_offsets_one_class_is_told_from_the_zero_of_the_data(tmp_path: Path, place: float) -> None:
    """A hyperplane that is to be far from 0 is another one when columns are stored less an offset."""
    X, y = far_rows(place)
    expected = OneClassSVM(kernel="linear", nu=0.2).fit(X)
    w, rho = expected.coef_.ravel(), expected.offset_[0]
    least = 0.5 * w @ w - 0.2 * len(X) * rho + np.maximum(0.0, rho - X @ w).sum()
    sv.ingest(X, tmp_path / "s.zarr", y=y)
    found = sv.fit(tmp_path / "s.zarr", tmp_path / "m.ssvm", one_class=True, nu=0.2, strict=True).model
    values = found.decision_function(X).ravel()
    assert np.mean(values < 0.0) == pytest.approx(0.2, abs=0.02)
    assert np.mean((values < 0.0) == (expected.decision_function(X) < 0.0)) >= 0.98
    (certificate,) = found.certificates
    spread = 0.04 * len(X) ** 2 * abs(place)
    assert certificate.dual - certificate.rounding <= least + 1e-3 * spread
    assert abs(certificate.primal - least) <= 0.05 * spread
    with pytest.warns(StreamSVMWarning, match="so far from 0") if place == 1e6 else nullcontext():
        estimator = StreamOneClassSVM(kernel="linear", nu=0.2).fit(X)
    assert estimator.offset_ == pytest.approx(rho, rel=1e-4)
    assert np.mean(estimator.predict(X) == expected.predict(X)) >= 0.98


def test_offsets_fit_that_depends_on_zero_sees_columns_where_they_lie(tmp_path: Path) -> None:
    """Without a bias, of one class by C, and of kernels of x.z: what it is of the float32 rows, with a notice."""
    X, y = far_rows(1e5)
    seen = X.astype(np.float32).astype(np.float64)
    sv.ingest(X, tmp_path / "s.zarr", y=y)

    def fit(**options: Any) -> Any:
        return sv.fit(tmp_path / "s.zarr", tmp_path / "m.ssvm", overwrite=True, tolerance=1e-6, **options)

    found = fit(bias=0, loss="squared_hinge")
    expected = LinearSVC(fit_intercept=False, tol=1e-8, max_iter=10**6).fit(seen, y)
    np.testing.assert_allclose(found.model.coef, expected.coef_, rtol=1e-3)
    assert "column 1" in found.notices[0]
    assert not fit(loss="squared_hinge").notices
    polynomial: dict[str, Any] = {"kernel": "polynomial", "kernel_options": {"degree": 2, "gamma": 1e-10}}
    for landmarks in ({}, {"landmarks": 40}):
        found = fit(loss="hinge", **polynomial, **landmarks)
        assert "column 1" in found.notices[0]
        assert np.abs(found.model.expansion.points.values[:, 1]).min() > 9e4 or landmarks
    found = fit(one_class=True, C=1.0, loss="hinge")
    assert "'nu' in place of C" in found.notices[0]
    assert found.model.certificates[0].primal == pytest.approx(0.5e-10, rel=1e-2)  # w = x / ||x||^2


def write_arrays(path: Path, X: Any, y: Any) -> None:
    """Rows and labels as arrays of another program, dense or CSR as AnnData writes it."""
    zipped = path.suffix == ".zarr"
    group: Any = zarr.open_group(path, mode="w") if zipped else h5py.File(path, "w")
    parts = {"X": X, "y": y}
    if scipy.sparse.issparse(X):
        group.create_group("X").attrs.update({"encoding-type": "csr_matrix", "shape": list(X.shape)})
        parts = {f"X/{name}": getattr(X, name) for name in ("data", "indices", "indptr")} | {"y": y}
    for name, values in parts.items():
        (group.create_array if zipped else group.create_dataset)(name, data=values)
    if not zipped:
        group.close()


@each_value(("suffix", [".h5", ".zarr"]), ("kind", ["int64", "float64", "csr"]))
def test_offsets_fit_in_place_is_that_of_an_ingest(tmp_path: Path, suffix: str, kind: str) -> None:
    """Columns beyond 2^53, and far from 0 with fractions, are seen from the same zero; so are rows to predict."""
    rng = np.random.default_rng(0)
    X: Any = rng.normal(size=(300, 4)) + np.array([1e9, 0, -1e8, 5])
    if kind == "int64":
        X = rng.integers(0, 255, (300, 4)) + 2**53 + 1
    y = rng.integers(0, 2, 300)
    X = scipy.sparse.csr_array(X) if kind == "csr" else X
    path, model = tmp_path / f"a{suffix}", tmp_path / "m.ssvm"
    write_arrays(path, X, y)
    sv.ingest(path, tmp_path / "s.zarr")
    found = {}
    for name, store in (("in place", path), ("ingested", tmp_path / "s.zarr")):
        fitted = sv.fit(store, model, overwrite=True)
        certificate = fitted.model.certificate
        assert certificate is not None
        assert certificate.gap < 1e-3
        results = [sv.evaluate(model, data).evaluation for data in (str(path), str(tmp_path / "s.zarr"))]
        assert results[0] == results[1]
        found[name] = fitted.model.weights, results[0]
        if name == "in place":
            assert "read with an offset subtracted" in " ".join(fitted.notices)
    assert np.array_equal(found["in place"][0], found["ingested"][0])
    assert found["in place"][1] == found["ingested"][1]


FITS: tuple[dict[str, Any], ...] = (
    {},
    {"loss": "logistic"},
    {"l1": 1.0},
    {"one_class": True},
    {"kernel": "rbf"},
    {"kernel": "rbf", "landmarks": 5},
)


@pytest.mark.parametrize(("sparse", "size"), [(False, 1e-42), (True, 1e-39)])
def test_offsets_column_that_float32_cannot_scale_is_left_as_it_is(tmp_path: Path, sparse: bool, size: float) -> None:
    """With --standardize its deviation is no normal float32; a column that is all but 0 changes no model."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(50, 3))
    X[:, 1], X[:, 2] = rng.integers(-5, 6, 50) * size, X[:, 2] + 5.0
    y = (X[:, 0] > 0).astype(int)
    primals = []
    for rows in (X, X * [1.0, 0.0, 1.0]):
        sv.ingest(scipy.sparse.csr_array(rows) if sparse else rows, tmp_path / "s.zarr", y=y, overwrite=True)
        options: dict[str, Any] = {"standardize": True, "overwrite": True, "tolerance": 1e-6}
        found = [sv.fit(tmp_path / "s.zarr", tmp_path / "m.ssvm", **options, **kind) for kind in FITS]
        primals.append([one.model.certificates[0].primal for one in found])
        noticed = [any("column 1" in line for line in one.notices) for one in found]
        assert all(noticed) if rows is X else not any(noticed)
    np.testing.assert_allclose(primals[0], primals[1], rtol=1e-5)
