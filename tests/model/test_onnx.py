"""Models as ONNX graphs: the decision values and labels of the model, from raw columns, missing values among them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import streamsvm as sv
from streamsvm.calibration.calibrators import Calibration, Isotonic
from tests.axes import each_value

RNG = np.random.default_rng(3)
X = RNG.normal(size=(200, 4))
FAR = X + np.array([0.0, 2.0**31, 0.0, 0.0])
HOLES = np.where(RNG.random(X.shape) < 0.1, np.nan, FAR)
TWO = np.where(X[:, 0] + X[:, 1] ** 2 > 0.8, "in", "out")
THREE = np.digitize(X[:, 0] - X[:, 2], [-0.5, 0.7])
CASES: dict[str, tuple[Any, dict[str, Any], dict[str, Any]]] = {
    "linear": (X, {}, {}),
    "far from 0, standardized": (FAR, {}, {"standardize": True}),
    "missing values": (HOLES, {"missing": "mean"}, {"standardize": True}),
    "indicators, rbf": (HOLES - FAR + X, {"missing": "indicator"}, {"kernel": "rbf", "gamma": 0.5, "landmarks": 30}),
    "rbf, exact": (X, {}, {"kernel": "rbf", "gamma": 0.5}),
    "laplacian": (X, {}, {"kernel": "laplacian", "gamma": 0.5, "landmarks": 30}),
    "polynomial": (X, {}, {"kernel": "polynomial", "gamma": 0.5, "kernel_options": {"degree": 2, "coef0": 0.5}}),
    "sigmoid": (X, {}, {"kernel": "sigmoid", "gamma": 0.1, "landmarks": 30}),
    "linear kernel": (X, {}, {"kernel": "linear", "landmarks": 30, "kernel_options": {"scale": 0.5}}),
}


def graph_of(folder: Path, rows: Any, y: Any, ingest: dict[str, Any], options: dict[str, Any]) -> tuple[sv.Model, Path]:
    sv.ingest(rows, folder / "rows.zarr", y=y, **ingest)
    found = sv.fit(folder / "rows.zarr", folder / "model.ssvm", **options).model
    sv.export(folder / "model.ssvm", folder / "model.onnx", format="onnx")
    return found, folder / "model.onnx"


def expected_of(model: sv.Model, rows: Any, folder: Path) -> Any:
    """What the model says; of rows with holes by way of a file, which is how they are filled."""
    np.save(folder / "rows.npy", rows)
    sv.predict(folder / "model.ssvm", str(folder / "rows.npy"), folder / "f.npy", output="decision")
    found = np.load(folder / "f.npy")
    return found.reshape(len(rows), -1)


@pytest.mark.filterwarnings("ignore:the kernel Sigmoid:streamsvm.errors.StreamSVMWarning")
@each_value(("y", [TWO, THREE]), ("name", CASES))
def test_onnx_graph_says_what_the_model_says(tmp_path: Path, name: str, y: Any) -> None:
    reference = pytest.importorskip("onnx.reference", reason="needs onnx: pip install 'streamsvm[onnx]'")
    rows, ingest, options = CASES[name]
    model, path = graph_of(tmp_path, rows, y, ingest, options)
    expected = expected_of(model, rows, tmp_path)
    label, decision = reference.ReferenceEvaluator(str(path)).run(None, {"X": rows})
    agree(model, expected, label, decision)
    try:
        import onnxruntime
    except ModuleNotFoundError:
        return
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    agree(model, expected, *session.run(["label", "decision"], {"X": rows}))


def agree(model: sv.Model, expected: Any, label: Any, decision: Any) -> None:
    near = 1e-6 * max(1.0, np.abs(model.weights).sum())
    assert decision.shape == expected.shape
    assert np.abs(decision - expected).max() <= near
    ordered = np.sort(expected, axis=1)
    clear = (ordered[:, -1] - ordered[:, -2] if expected.shape[1] > 1 else np.abs(expected[:, 0])) > near
    assert clear.sum() > 150
    codes = expected.argmax(axis=1) if expected.shape[1] > 1 else (expected[:, 0] > 0).astype(int)
    assert [str(name) for name in label[clear]] == [model.classes[code] for code in codes[clear]]


@pytest.mark.parametrize("more", [{}, {"kernel": "rbf", "gamma": 0.5, "landmarks": 20}], ids=["linear", "kernel"])
def test_onnx_graph_of_numbers_predicts_them(tmp_path: Path, more: dict[str, Any]) -> None:
    reference = pytest.importorskip("onnx.reference", reason="needs onnx: pip install 'streamsvm[onnx]'")
    ingest, options = {"task": "regression"}, {"loss": "epsilon_insensitive", **more}
    model, path = graph_of(tmp_path, X, X[:, 0] + 3.0, ingest, options)
    predicted, decision = reference.ReferenceEvaluator(str(path)).run(["prediction", "decision"], {"X": X})
    assert predicted.shape == (200,)
    assert np.array_equal(decision[:, 0], predicted)
    assert np.allclose(predicted, model.predict(X), atol=1e-5)


def test_onnx_graph_is_not_written_over_what_is_none(tmp_path: Path) -> None:
    pytest.importorskip("onnx", reason="needs onnx: pip install 'streamsvm[onnx]'")
    _, path = graph_of(tmp_path, X, TWO, {}, {})
    sv.export(tmp_path / "model.ssvm", path, format="onnx", overwrite=True)
    (tmp_path / "other.onnx").write_bytes(b"no graph of ours")
    with pytest.raises(sv.ExistsError):
        sv.export(tmp_path / "model.ssvm", tmp_path / "other.onnx", format="onnx", overwrite=True)


PROBABILITIES: dict[str, dict[str, Any]] = {
    "sigmoid": {"calibrate": "sigmoid"},
    "isotonic": {"calibrate": "isotonic"},
    "temperature": {"calibrate": "temperature"},
    "logistic loss": {"loss": "logistic", "C": 5.0},
    "kernel": {"calibrate": "isotonic", "kernel": "rbf", "gamma": 0.5, "landmarks": 20},
}


@each_value(("y", [TWO, THREE]), ("name", PROBABILITIES))
def test_onnx_graph_has_the_probabilities_of_its_model(tmp_path: Path, name: str, y: Any) -> None:
    """Of rows far beyond those of the fit too, where functions are flat and tails small."""
    pytest.importorskip("onnx", reason="needs onnx: pip install 'streamsvm[onnx]'")
    model, path = graph_of(tmp_path, X, y, {}, PROBABILITIES[name])
    rows = np.concatenate([X, 30.0 * X[:50]])
    expected = model.predict_proba(rows)
    assert np.ptp(expected[:, 0]) > 0.5
    found = evaluated(path, rows)
    assert found
    for probabilities in found:
        assert probabilities.shape == expected.shape == (250, len(model.classes))
        assert np.allclose(probabilities, expected, rtol=1e-5, atol=1e-6)


def evaluated(path: Path, rows: Any) -> list[Any]:
    """The probabilities by every evaluator of graphs that is there."""
    from onnx.reference import ReferenceEvaluator

    outputs: Any = ReferenceEvaluator(str(path)).run(["probabilities"], {"X": rows})
    found = [outputs[0]]
    try:
        import onnxruntime
    except ModuleNotFoundError:
        return found
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    return [*found, *session.run(["probabilities"], {"X": rows})]


def test_onnx_steps_of_an_isotonic_function_are_those_of_the_table(tmp_path: Path) -> None:
    """At every bend, beside it, beyond both ends, and of a table whose length is a power of two."""
    pytest.importorskip("onnx", reason="needs onnx: pip install 'streamsvm[onnx]'")
    sv.ingest(X[:, :1], tmp_path / "rows.zarr", y=TWO)
    plain = sv.fit(tmp_path / "rows.zarr", tmp_path / "plain.ssvm").model
    for bends in (1, 2, 5, 8):
        at, values = np.linspace(-1.0, 1.0, bends), np.linspace(0.0, 1.0, bends) ** 2
        steps = Isotonic(((at, values),))
        identity = replace(plain, weights=np.array([[1.0, 0.0]]), calibration=Calibration(steps, "5 folds", 200))
        identity.save(tmp_path / "model.ssvm")
        sv.export(tmp_path / "model.ssvm", tmp_path / "model.onnx", format="onnx", overwrite=True)
        rows = np.concatenate([at, at + 0.03125, at - 0.03125, [-9.0, 9.0]]).astype(np.float32).astype(float)
        for found in evaluated(tmp_path / "model.onnx", rows[:, None]):
            assert np.allclose(found[:, 1], np.interp(rows, at, values), atol=1e-12)
