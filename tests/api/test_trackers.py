"""Trackers: what every pass has come to arrives where experiments are looked at."""

from __future__ import annotations

import sys
import types
from pathlib import Path
from typing import Any

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


def test_mlflow_gets_numbers_a_step_a_pass(monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_mlflow_takes_the_records_of_a_fit(tmp_path: Path) -> None:
    mlflow = pytest.importorskip("mlflow")
    mlflow.set_tracking_uri(tmp_path.as_uri())
    with mlflow.start_run() as run:
        sv.MlflowTracker()(RECORD)
    (found,) = mlflow.MlflowClient().get_metric_history(run.info.run_id, "gap")
    assert (found.step, found.value) == (3, 0.25)


def test_tensorboard_reads_what_was_written(tmp_path: Path) -> None:
    reading = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    with sv.TensorBoardTracker(tmp_path) as tracker:
        tracker(RECORD)
    found = reading.EventAccumulator(str(tmp_path))
    found.Reload()
    assert [(event.step, event.value) for event in found.Scalars("fit/gap")] == [(3, 0.25)]


@pytest.mark.parametrize(("kind", "package"), [("MlflowTracker", "mlflow"), ("TensorBoardTracker", "tensorboard")])
def test_without_its_package_a_tracker_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, kind: str, package: str
) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == package]:
        monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(sv.UsageError, match="not installed") as found:
        getattr(sv, kind)(*([tmp_path] if kind == "TensorBoardTracker" else []))
    assert "pip install" in str(found.value.hint)
