"""fit --calibrate: scores of rows that had no part in them, the same whatever the memory, kept by the model and resumed."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import streamsvm as sv
from streamsvm.errors import InterruptedRun, UncertifiedError, UsageError
from streamsvm.jobs import calibrate as calibrating
from streamsvm.jobs import calibration_scores as fold_fits
from streamsvm.jobs import calibration_scores as leave_one_out

ROWS = 3000
FAST: dict[str, Any] = {"solver": "newton", "overwrite": True}


def rows(classes: int, count: int = ROWS, seed: int = 0) -> tuple[Any, Any]:
    """Rows whose label is drawn, so that scores are not the odds; names of classes are not in their order."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, classes, count)
    X = rng.standard_normal((count, 5)) + 1.2 * np.eye(classes, 5)[y]
    return X, np.array(["b", "c", "a"])[y]


@pytest.fixture(scope="module", params=[2, 3])
def place(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a store to train on and one to judge on, of two and of three classes."""
    folder = tmp_path_factory.mktemp(f"classes{request.param}")
    for name, seed in (("train.zarr", 0), ("test.zarr", 1)):
        X, y = rows(request.param, seed=seed)
        sv.ingest(X, folder / name, y=y, chunk=16 << 10)
    return folder


def figures(place: Path, name: str) -> Any:
    return sv.evaluate(place / name, str(place / "test.zarr")).evaluation


@pytest.mark.parametrize("method", ["sigmoid", "isotonic", "temperature"])
def test_calibrate_probabilities_are_calibrated(place: Path, method: Any) -> None:
    model = sv.fit(place / "train.zarr", place / method, calibrate=method, **FAST).model
    assert model.calibration is not None
    assert (model.calibration.method, model.calibration.scores) == (method, "leave-one-out")
    found = figures(place, method)
    assert found.ECE < 0.04
    X, y = rows(len(model.classes), 200, seed=2)
    p = model.predict_proba(X)
    assert p.shape == (200, len(model.classes))
    right = p[np.arange(200), np.searchsorted(model.classes, y)]
    assert right.mean() > 1 / len(model.classes) + 0.15  # columns are in the order of the classes
    plain = sv.fit(place / "train.zarr", place / "plain", **FAST).model
    assert np.array_equal(plain.weights, model.weights)


def test_calibrate_folds_are_really_left_out(tmp_path: Path) -> None:
    """Labels that mean nothing and as many columns as rows: a model is sure of what it has seen, and knows nothing else."""
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((200, 150)), rng.integers(0, 2, 200)
    sv.ingest(X, tmp_path / "s.zarr", y=y)
    for name, folds in (("one", None), ("folds", 5)):
        given = FAST | {"C": 10.0, "calibrate": "sigmoid", "calibration_folds": folds}
        model = sv.fit(tmp_path / "s.zarr", tmp_path / name, **given).model
        p = model.predict_proba(X)[:, 1]
        assert np.abs(p - 0.5).max() < 0.35
        assert (model.decision_function(X) > 0).astype(int).tolist() == y.tolist()


def test_calibrate_several_C_have_a_calibration_each_and_the_run_records_them(place: Path) -> None:
    given: dict[str, Any] = {"C": (1e-4, 1.0), "calibrate": "temperature", "report": place / "p.html", **FAST}
    result = sv.fit(place / "train.zarr", place / "several", **given)
    found = {C: model.calibration for C, model in result.models.items()}
    headers = [one.header()["parameters"]["temperature"] for one in found.values() if one is not None]
    assert len(set(headers)) == 2
    events = [json.loads(line) for line in (place / "several.run" / "events.jsonl").read_text().splitlines()]
    recorded = [event for event in events if event.get("event") == "calibration"]
    assert [event["C"] for event in recorded] == [1e-4, 1.0]
    assert recorded[0]["after"]["log_loss"] < recorded[0]["before"]["log_loss"]
    assert sum(recorded[0]["after"]["weight"]) == ROWS


def test_calibrate_same_bits_in_less_memory_and_again(place: Path) -> None:
    given: dict[str, Any] = {"calibrate": "isotonic", "seed": 3, **FAST}
    one = sv.fit(place / "train.zarr", place / "m", threads=1, **given).model
    other = sv.fit(place / "train.zarr", place / "n", threads=2, prefetch=0, **given).model
    assert one.digest == other.digest
    again = sv.fit(place / "train.zarr", place / "m", resume=True, **{**given, "overwrite": False}).model
    assert again.digest == one.digest


class Clock:
    """One that goes a year forward when it was looked at so many times."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, looks: int) -> None:
        self.left = looks
        monkeypatch.setattr(calibrating, "time", self)

    def monotonic(self) -> float:
        self.left -= 1
        return time.monotonic() + (3e7 if self.left < 0 else 0.0)


LIMIT = 1e5
warned = pytest.mark.filterwarnings("ignore::streamsvm.errors.StreamSVMWarning")


@warned
def test_calibrate_limit_before_calibration_ends_without_it(place: Path) -> None:
    result = sv.fit(place / "train.zarr", place / "m", calibrate="sigmoid", tolerance=1e-15, time_limit=1e-9, **FAST)
    assert result.model.calibration is None
    (said,) = (line for line in result.warnings if line.startswith("not calibrated"))
    assert said.endswith("next: a larger 'time_limit', with resume=True")
    assert not (place / "m.run" / "checkpoint").exists()  # the fit itself is not what it could be
    with pytest.raises(UsageError, match="no time left for calibrate='sigmoid'"):
        result.model.predict_proba(rows(2)[0])


@warned
@pytest.mark.parametrize(("folds", "looks"), [(None, 6), (3, 8)])
def test_calibrate_limit_in_calibration_leaves_a_model_that_is_resumed(
    place: Path, monkeypatch: pytest.MonkeyPatch, folds: int | None, looks: int
) -> None:
    given: dict[str, Any] = {
        "calibrate": "isotonic",
        "calibration_folds": folds,
        "time_limit": LIMIT,
        "solver": "newton",
        "threads": 1,  # another one would look at the clock once more
    }
    train, model = place / "train.zarr", place / f"cut{folds}-{looks}"
    whole = sv.fit(train, place / "whole", overwrite=True, **given)
    with monkeypatch.context() as patch:
        clock = Clock(patch, looks)
        cut = sv.fit(train, model, **given)
        assert clock.left == -1  # nothing goes on after the first look that finds the time over
    assert cut.training.status.value == "converged"
    assert np.array_equal(cut.model.weights, whole.model.weights)
    assert cut.model.calibration is None
    assert ["not calibrated" in line for line in cut.warnings] == [True]
    events = [json.loads(line) for line in (place / f"{model.name}.run" / "events.jsonl").read_text().splitlines()]
    assert [(e["method"], e["reason"]) for e in events if e.get("event") == "uncalibrated"] == [
        ("isotonic", "time limit")
    ]
    passes = cut.training.passes
    again = sv.fit(train, model, resume=True, **given)
    assert again.training.passes == passes
    assert again.training.bytes_read == cut.training.bytes_read  # the training was not made again
    assert again.warnings == ()
    assert model.read_bytes() == (place / "whole").read_bytes()
    assert not (place / f"{model.name}.run" / "checkpoint").exists()


def test_calibrate_limit_in_calibration_is_an_error_where_that_was_asked_for(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: dict[str, Any] = {"calibrate": "sigmoid", "time_limit": LIMIT, "solver": "newton"}
    train = place / "train.zarr"
    with monkeypatch.context() as patch:
        Clock(patch, 1)
        with pytest.raises(UncertifiedError, match="not calibrated"):
            sv.fit(train, place / "strict", strict=True, **given)
        Clock(patch, 1)
        with pytest.raises(InterruptedRun, match=r"time limit: checkpoint saved at .*sv\.fit\(.*resume=True"):
            sv.fit(train, place / "stopped", at_limit="stop", **given)
    assert not (place / "stopped").exists()
    assert sv.fit(train, place / "stopped", at_limit="stop", resume=True, **given).model.calibration is not None


@warned
@pytest.mark.parametrize("folds", [None, 3])
def test_calibrate_stopped_in_calibration_the_passes_are_not_made_again(
    place: Path, monkeypatch: pytest.MonkeyPatch, folds: int | None
) -> None:
    """Also where all passes were made and nothing is certified."""
    given: dict[str, Any] = {
        "calibrate": "sigmoid",
        "calibration_folds": folds,
        "solver": "dcd",
        "tolerance": 1e-15,
        "max_passes": 3,
    }
    train, model = place / "train.zarr", place / f"stopped{folds}"
    whole = sv.fit(train, place / "whole", overwrite=True, **given)
    assert whole.training.passes == 3

    def stop(*_: Any) -> None:
        raise InterruptedRun("SIGTEST")

    with monkeypatch.context() as patch:
        if folds is None:
            patch.setattr(leave_one_out, "leave_one_out_scores", stop)
        else:
            patch.setattr(fold_fits, "fold_scores", stop)
        with pytest.raises(InterruptedRun, match="checkpoint saved at epoch 4, chunk 0"):
            sv.fit(train, model, **given)
    again = sv.fit(train, model, resume=True, **given)
    assert again.training.passes == 3
    assert model.read_bytes() == (place / "whole").read_bytes()


def test_calibrate_logistic_loss_has_probabilities_by_itself(tmp_path: Path) -> None:
    """Also where classes are weighted: what weights add to the odds is taken from them."""
    X, y = rows(2)
    sv.ingest(X, tmp_path / "s.zarr", y=y)
    given: dict[str, Any] = {"loss": "logistic", "solver": "interior_point", "overwrite": True, "C": 1.0}
    one = sv.fit(tmp_path / "s.zarr", tmp_path / "m", **given).model
    other = sv.fit(tmp_path / "s.zarr", tmp_path / "m", class_weight={"b": 4.0}, **given).model
    p, q = one.predict_proba(X), other.predict_proba(X)
    assert np.allclose(p[:, 1], 1 / (1 + np.exp(-one.decision_function(X))))
    assert abs(q.mean(axis=0)[1] - p.mean(axis=0)[1]) < 0.02
    assert abs(1 / (1 + np.exp(-other.decision_function(X))).mean() - p.mean(axis=0)[1]) > 0.1


@pytest.fixture(scope="module")
def moons_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store of two classes."""
    folder = tmp_path_factory.mktemp("moons")
    rng = np.random.default_rng(0)
    X = rng.normal(size=(400, 3))
    sv.ingest(X, folder / "t.zarr", y=(X[:, 0] * X[:, 1] > 0).astype(int), chunk=4096)
    sv.embed(folder / "t.zarr", folder / "e.zarr", kernel="rbf", landmarks=10, sampling="greedy")
    return folder


def test_calibrate_rows_whose_labels_chose_the_landmarks_are_not_held_out(moons_store: Path, tmp_path: Path) -> None:
    landmarks: dict[str, Any] = {"kernel": "rbf", "landmarks": 10, "sampling": "greedy"}
    with pytest.raises(sv.UsageError, match="'calibrate' cannot be combined with sampling='greedy'"):
        sv.fit(moons_store / "t.zarr", tmp_path / "m", calibrate="sigmoid", **landmarks)
    with pytest.raises(sv.UsageError, match="an embedding that was made with sampling='greedy'"):
        sv.fit(moons_store / "e.zarr", tmp_path / "m", calibrate="sigmoid")
    with pytest.raises(sv.UsageError, match="greedy"):
        sv.tune(moons_store / "e.zarr", tmp_path / "g", C=[0.1, 1.0])
    sv.fit(moons_store / "e.zarr", tmp_path / "plain")
    assert sv.fit(
        moons_store / "t.zarr", tmp_path / "n", calibrate="sigmoid", **{**landmarks, "sampling": "kmeans++"}
    ).model.calibration
