"""Trackers: what every pass has come to arrives where experiments are looked at."""

from __future__ import annotations

import sys
import types
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import streamsvm as sv

RECORD = {
    "pass": 3,
    "problems": 1,
    "problem": 0,
    "primal": 2.0,
    "dual": 1.5,
    "gap": 0.25,
    "exact": True,
    "seconds": 0.5,
}


def test_tracker_mlflow_gets_numbers_a_step_a_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the package nothing is used but ``log_metrics(metrics, step=, run_id=)``."""
    logged: list[Any] = []
    package = types.ModuleType("mlflow")
    package.log_metrics = lambda metrics, step, run_id: logged.append((metrics, step, run_id))  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "mlflow", package)
    sv.MlflowTracker("run7", prefix="svm_")(RECORD)
    ((metrics, step, run_id),) = logged
    assert (step, run_id) == (3, "run7")
    assert metrics["svm_gap"] == 0.25
    assert all(isinstance(value, float) for value in metrics.values())


def fitted(tracker: Any) -> list[tuple[int, float]]:
    """Pass and gap of a fit that a tracker and a list are told of."""
    told: list[dict[str, Any]] = []
    X = np.random.default_rng(0).normal(size=(100, 3))
    sv.fit(X, y=X[:, 0] > 0, solver="dcd", on_pass=lambda record: (told.append(record), tracker(record)))
    assert len(told) > 1
    return [(record["pass"], record["gap"]) for record in told]


def test_tracker_mlflow_takes_the_records_of_a_fit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mlflow = pytest.importorskip("mlflow", reason="needs mlflow: pip install mlflow-skinny")
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")  # a database wants more packages
    mlflow.set_tracking_uri((tmp_path / "runs").as_uri())
    mlflow.set_experiment("fits")
    with mlflow.start_run() as run:
        told = fitted(sv.MlflowTracker(prefix="svm_"))
    found = mlflow.MlflowClient().get_metric_history(run.info.run_id, "svm_gap")
    assert [(metric.step, metric.value) for metric in found] == told


def test_tracker_tensorboard_reads_what_was_written(tmp_path: Path) -> None:
    reading = pytest.importorskip(
        "tensorboard.backend.event_processing.event_accumulator", reason="needs tensorboard: pip install tensorboard"
    )
    with sv.TensorBoardTracker(tmp_path) as tracker:
        told = fitted(tracker)
    found = reading.EventAccumulator(str(tmp_path))
    found.Reload()
    assert [event.step for event in found.Scalars("fit/gap")] == [number for number, _ in told]
    assert np.allclose([event.value for event in found.Scalars("fit/gap")], [gap for _, gap in told], rtol=1e-6)


@pytest.mark.parametrize(("kind", "package"), [("MlflowTracker", "mlflow"), ("TensorBoardTracker", "tensorboard")])
def test_tracker_without_its_package_a_tracker_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, kind: str, package: str
) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == package]:
        monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(sv.UsageError, match="not installed") as found:
        getattr(sv, kind)(*([tmp_path] if kind == "TensorBoardTracker" else []))
    assert "pip install" in str(found.value.hint)
