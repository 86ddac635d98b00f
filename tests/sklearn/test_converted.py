"""A model as estimators of scikit-learn alone: the same decision values and labels, on its own and inside its tools."""

from __future__ import annotations

import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse

pytest.importorskip("sklearn", minversion="1.6")
from sklearn.calibration import CalibratedClassifierCV
from sklearn.frozen import FrozenEstimator
from sklearn.pipeline import Pipeline
from sklearn.svm import LinearSVC

import streamsvm as sv
from streamsvm.model import Model
from streamsvm.sklearn import StreamNystroem
from tests.axes import each_value

RNG = np.random.default_rng(3)
X = RNG.normal(size=(200, 4)).astype(np.float32).astype(np.float64)
FAR = X + np.array([0.0, 2.0**31, 0.0, 0.0])
TWO = np.where(X[:, 0] + X[:, 1] ** 2 > 0.8, "in", "out")
THREE = np.digitize(X[:, 0] - X[:, 2], [-0.5, 0.7])
CASES: dict[str, tuple[Any, dict[str, Any]]] = {
    "linear": (X, {}),
    "far from 0": (FAR, {"standardize": True}),
    "standardized": (X, {"standardize": True}),
    "rbf": (X, {"kernel": "rbf", "gamma": 0.5}),
    "rbf, landmarks, standardized": (X, {"kernel": "rbf", "gamma": 0.5, "landmarks": 30, "standardize": True}),
    "rbf, far from 0": (FAR, {"kernel": "rbf", "gamma": 0.5}),
    "laplacian, landmarks": (X, {"kernel": "laplacian", "gamma": 0.5, "landmarks": 30}),
    "polynomial": (X, {"kernel": "polynomial", "gamma": 0.5, "kernel_options": {"degree": 2, "coef0": 0.5}}),
    "sigmoid, landmarks": (X, {"kernel": "sigmoid", "gamma": 0.1, "landmarks": 30}),
    "linear kernel": (X, {"kernel": "linear", "landmarks": 30, "kernel_options": {"scale": 0.5}}),
}


def fitted(folder: Path, rows: Any, y: Any, options: dict[str, Any]) -> Model:
    sv.ingest(rows, folder / "rows.zarr", y=y)
    found: Model = sv.fit(folder / "rows.zarr", folder / "model.ssvm", **options).model
    return found


@pytest.mark.filterwarnings("ignore:the kernel Sigmoid:streamsvm.errors.StreamSVMWarning")
@each_value(("y", [TWO, THREE]), ("name", CASES))
def test_sklearn_export_decision_values_and_labels_are_those_of_the_model(tmp_path: Path, name: str, y: Any) -> None:
    rows, options = CASES[name]
    model = fitted(tmp_path, rows, y, options)
    found = pickle.loads(pickle.dumps(model.to_sklearn()))
    ours, theirs = model.decision_function(rows), found.decision_function(rows)
    near = 1e-12 if model.kind == "linear" and rows is X else 1e-6
    size = max(1.0, np.abs(model.weights).sum())
    assert isinstance(found, Pipeline if model.kind == "kernel" else LinearSVC)
    assert theirs.shape == ours.shape
    assert np.abs(theirs - ours).max() <= near * size
    clear = np.abs(np.diff(np.sort(ours, axis=1)[:, -2:])[:, 0] if ours.ndim == 2 else ours) > near * size
    assert clear.sum() > 150
    assert np.array_equal(found.predict(rows)[clear], model.predict(rows)[clear])


@pytest.mark.parametrize("name", ["rbf", "laplacian, landmarks", "rbf, landmarks, standardized", "linear"])
def test_sklearn_export_float32_rows_far_from_0_are_as_good_as_float64(tmp_path: Path, name: str) -> None:
    """What columns lie at is taken from them in float64, whatever the rows are."""
    rows = (X + np.array([0.0, 1e5, 0.0, 0.0])).astype(np.float32)
    model = fitted(tmp_path, rows, TWO, CASES[name][1])
    ours = model.decision_function(rows)
    for given in (rows, rows.astype(np.float64)):
        assert np.abs(model.to_sklearn().decision_function(given) - ours).max() <= 1e-5 * max(1.0, np.abs(ours).max())
    if name.startswith("rbf, landmarks"):
        features = StreamNystroem(kernel="rbf", gamma=0.5, landmarks=200, standardize=True)
        near = StreamNystroem(kernel="rbf", gamma=0.5, landmarks=200, standardize=True)
        shifted = rows.astype(np.float64) - np.array([0.0, 1e5, 0.0, 0.0])
        expected = near.fit_transform(shifted)
        for given in (rows, rows.astype(np.float64)):
            found = features.fit_transform(given)
            assert np.abs(found @ found.T - expected @ expected.T).max() <= 1e-4


def test_sklearn_export_sparse_points_take_sparse_rows(tmp_path: Path) -> None:
    rows = scipy.sparse.random(200, 30, density=0.1, format="csr", random_state=0, dtype=np.float32).astype(np.float64)
    model = fitted(tmp_path, rows, TWO, {"kernel": "rbf", "gamma": 0.5, "standardize": True})
    theirs = model.to_sklearn().decision_function(rows)
    assert np.abs(theirs - model.decision_function(rows)).max() <= 1e-6 * np.abs(model.weights).sum()


def test_sklearn_export_it_is_of_scikit_learn_alone(tmp_path: Path) -> None:
    model = fitted(tmp_path, X, TWO, {"kernel": "rbf", "landmarks": 20})
    (tmp_path / "found.pickle").write_bytes(pickle.dumps(model.to_sklearn()))
    np.save(tmp_path / "X.npy", X)
    code = (
        "import sys, pickle, numpy as np\n"
        "found = pickle.load(open('found.pickle', 'rb'))\n"
        "np.save('values.npy', found.decision_function(np.load('X.npy')))\n"
        "assert not any(name.startswith('streamsvm') for name in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, check=True)
    assert np.allclose(np.load(tmp_path / "values.npy"), model.decision_function(X), atol=1e-4)


def test_sklearn_export_skops_loads_it_and_has_nothing_to_trust(tmp_path: Path) -> None:
    io = pytest.importorskip("skops.io", reason="needs skops")
    found = fitted(tmp_path, X, THREE, {"kernel": "rbf", "landmarks": 20, "standardize": True}).to_sklearn()
    saved = io.dumps(found)
    assert set(io.get_untrusted_types(data=saved)) <= {"sklearn.utils.validation.check_array"}  # by skops before 0.14
    assert np.array_equal(
        io.loads(saved, trusted=list(io.get_untrusted_types(data=saved))).decision_function(X),
        found.decision_function(X),
    )


def test_sklearn_export_it_is_calibrated_like_any_other(tmp_path: Path) -> None:
    found = fitted(tmp_path, X, TWO, {"kernel": "rbf", "landmarks": 20}).to_sklearn()
    calibrated = CalibratedClassifierCV(FrozenEstimator(found)).fit(X, TWO)
    assert calibrated.score(X, TWO) > 0.8
    assert list(calibrated.classes_) == ["in", "out"]
