"""Held-out rows: training does not see them, the error told is that of the model written, patience ends a run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from streamsvm.engine.block_visitor import BlockVisitor
from streamsvm.errors import InterruptedRun, UsageError
from streamsvm.jobs.apply.evaluate import evaluate
from streamsvm.jobs.apply.options import EvaluateJob
from streamsvm.jobs.fit.driver import FitResult, fit
from streamsvm.jobs.fit.options import FitJob
from streamsvm.jobs.fit.plan import make_plan
from streamsvm.jobs.fit.validate import open_training_store, split_chunks
from streamsvm.model import load
from streamsvm.model.measures import MeasureCounts, PredictionTask, parse_measure
from streamsvm.rows import Dense
from streamsvm.store import create
from tests.axes import each_value
from tests.stopping import stopping

ROWS, COLUMNS, CHUNK = 800, 6, 100
SOLVERS = ("newton", "dcd", "sgd", "pegasos", "assg")


def values(seed: int = 2) -> tuple[Any, Any]:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(ROWS, COLUMNS)).astype(np.float32)
    score = X @ np.linspace(-1.0, 1.0, COLUMNS) + 1.5 * rng.normal(size=ROWS)
    return X, np.digitize(score, [-0.6, 0.6]).astype(np.int32)


def store_at(path: Path, rows: Any = None, *, classes: int = 2, seed: int = 2) -> Path:
    X, codes = values(seed)
    rows = np.arange(ROWS) if rows is None else rows
    writer = create(path, sparse=False, chunk_bytes=CHUNK * COLUMNS * 4)
    writer.append(Dense(np.ascontiguousarray(X[rows])), np.minimum(codes, classes - 1)[rows], None)
    writer.commit(tuple("abc"[:classes]), COLUMNS, {"names": None})
    return path


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return store_at(tmp_path / "s.zarr")


def fitted(store: Path, model: Path, events: list[dict[str, Any]] | None = None, **more: Any) -> FitResult:
    settings: dict[str, Any] = {"solver": "newton", "loss": "hinge", "C": 0.1, "tolerance": 1e-3} | more
    told = [] if events is None else events
    return fit(FitJob(str(store), str(model), overwrite=True, **settings), told.append)


def test_validation_training_sees_the_other_rows_only(store: Path, tmp_path: Path) -> None:
    training, held = split_chunks(ROWS // CHUNK, 0.25, 0)
    assert sorted(training + held) == list(range(8))
    assert len(held) == 2
    rows = np.concatenate([np.arange(k * CHUNK, (k + 1) * CHUNK) for k in training])
    parts = open_training_store(FitJob(str(store), "m", validation=0.25))
    codes = np.minimum(values()[1], 1)
    assert [p.layout.counts for p in parts] == [
        (int((c == 0).sum()), int((c == 1).sum())) for c in (codes[rows], np.delete(codes, rows))
    ]
    alone = fitted(store_at(tmp_path / "t.zarr", rows), tmp_path / "a", tolerance=1e-6)
    found = fitted(store, tmp_path / "b", tolerance=1e-6, validation=0.25)
    np.testing.assert_allclose(found.model.weights, alone.model.weights, rtol=1e-3, atol=1e-4)
    assert found.model.provenance["certificates"][0]["primal"] == pytest.approx(
        alone.model.provenance["certificates"][0]["primal"], rel=1e-6
    )


@each_value(("classes", [2, 3]), ("solver", SOLVERS))
def test_validation_error_told_is_that_of_the_model(store: Path, tmp_path: Path, solver: str, classes: int) -> None:
    store, other = store_at(tmp_path / "t", classes=classes), store_at(tmp_path / "v", classes=classes, seed=3)
    events: list[dict[str, Any]] = []
    fitted(store, tmp_path / "m", events, solver=solver, validation=str(other), max_passes=9)
    found = evaluate(EvaluateJob(str(tmp_path / "m"), (str(other),))).evaluation
    looks = [e for e in events if e["event"] == "validation"]
    said = load(tmp_path / "m").provenance["validation"]
    assert said["error"] == pytest.approx(1 - found.accuracy, abs=1e-12)
    assert said["error"] == min(look["error"] for look in looks) == events[-1]["validation"]["error"]
    assert [look["pass"] for look in looks] == list(range(1, len(looks) + 1))


@each_value(
    ("score", ["auc", "average_precision", "f1", "balanced_error", "cost:fp=1,fn=9", "log_loss", "brier"]),
    ("classes", [2, 3]),
)
def test_validation_score_told_is_that_of_the_model(store: Path, tmp_path: Path, score: str, classes: int) -> None:
    if classes == 3 and score.startswith("cost"):
        pytest.skip("false positives are defined for two classes")
    store, other = store_at(tmp_path / "t", classes=classes), store_at(tmp_path / "v", classes=classes, seed=3)
    settings: dict[str, Any] = {"validation": str(other), "score": score, "C": (1e-4, 0.1), "loss": "logistic"}
    events: list[dict[str, Any]] = []
    model = fitted(store, tmp_path / "m", events, **settings).model
    said = model.provenance["validation"]
    looks = [e for e in events if e["event"] == "validation"]
    X, codes = values(3)
    truth, f = np.minimum(codes, classes - 1), model.decision(Dense(X))
    task = PredictionTask(classes, probabilities=True)
    if classes == 2 and said.get("positive") == "a":
        task = task._replace(positive=0)
    counts = MeasureCounts(parse_measure(score), task, 1, (model.probabilities,))
    counts.add(0, f, truth.astype(np.int32))
    assert said["score"] == pytest.approx(counts.values()[0], abs=1e-12)
    best = max if parse_measure(score).higher_is_better else min
    assert said["score"] == best(look["score"] for look in looks) == best(said["scores"].values())
    assert said["measure"] == events[-1]["validation"]["measure"] == score
    threads = fitted(store, tmp_path / "n", threads=1, **settings).model.provenance["validation"]
    assert threads == said


def test_validation_score_of_numbers_and_of_a_wrong_kind(tmp_path: Path) -> None:
    X, codes = values()
    writer = create(tmp_path / "s", sparse=False, chunk_bytes=CHUNK * COLUMNS * 4)
    writer.append(Dense(X), X[:, 0].astype(np.float64) + codes, None)
    writer.commit((), COLUMNS, {"names": None})
    settings: dict[str, Any] = {"loss": "squared", "validation": 0.25}
    said = fitted(tmp_path / "s", tmp_path / "m", score="r2", **settings).model.provenance["validation"]
    assert 0.5 < said["score"] <= 1.0
    with pytest.raises(UsageError, match="it is a measure for classes") as caught:
        fitted(tmp_path / "s", tmp_path / "m", score="auc", **settings)
    assert caught.value.hint == "choose from rmse, mae, r2"
    with pytest.raises(UsageError, match="--score is the measure"):
        fitted(tmp_path / "s", tmp_path / "m", loss="squared", score="mae")


def test_validation_scores_that_are_sorted_count_in_the_plan(store: Path) -> None:
    def terms(**more: Any) -> dict[str, int]:
        job = FitJob(str(store), "m", validation=0.25, **more)
        return {term.name: term.nbytes for term in make_plan(job, open_training_store(job)[0]).memory.terms}

    assert terms(score="auc")["decision values"] >= 8 * 200
    assert "decision values" not in terms(score="f1")


@pytest.mark.parametrize("solver", ["dcd", "pegasos"])
def test_validation_patience_ends_the_run_with_the_best_model_certified(
    store: Path, tmp_path: Path, solver: str
) -> None:
    events: list[dict[str, Any]] = []
    result = fitted(store, tmp_path / "m", events, solver=solver, tolerance=1e-12, validation=0.25, patience=2, C=10.0)
    said = load(tmp_path / "m").provenance["validation"]
    assert result.training.status.value == "patience"
    assert result.training.passes == said["pass"] + 2 + 1  # the last one certifies
    certificate = result.training.runs[0].certificate
    assert certificate is not None
    assert certificate.exact
    training, _ = split_chunks(ROWS // CHUNK, 0.25, 0)
    rows = np.concatenate([np.arange(k * CHUNK, (k + 1) * CHUNK) for k in training])
    X, w = values()[0][rows], result.model.weights[0]
    y = np.where(values()[1][rows] >= 1, 1.0, -1.0)
    hinge = np.maximum(0.0, 1.0 - y * (X @ w[:-1] + w[-1])).sum()
    assert certificate.primal == pytest.approx(0.5 * w @ w + 10.0 * hinge, rel=1e-6)
    assert 0.0 < certificate.dual <= certificate.primal
    kept = json.loads(Path(result.run, "certificate.json").read_text())
    assert kept["status"] == "patience"
    assert kept["validation"]["error"] == said["error"]


def test_validation_best_C_of_a_path_is_the_model(store: Path, tmp_path: Path) -> None:
    result = fitted(store, tmp_path / "m.ssvm", C=(1e-6, 0.1, 100.0), validation=0.25)
    errors = result.model.provenance["validation"]["errors"]
    best = min(errors, key=lambda C: (errors[C], float(C)))
    assert set(errors) == {"1e-06", "0.1", "100"}
    assert len(set(errors.values())) > 1
    assert (tmp_path / "m.ssvm").read_bytes() == (tmp_path / f"m.C={best}.ssvm").read_bytes()
    np.testing.assert_array_equal(result.model.weights, load(tmp_path / "m.ssvm").weights)
    inside = best == "0.1"
    assert any("that was tried" in line for line in result.notices) != inside
    said = {C: load(tmp_path / f"m.C={C}.ssvm").provenance["certificates"][0]["C"] for C in errors}
    assert {C: float(C) for C in errors} == said


def test_validation_held_out_rows_serve_kernels_too(store: Path, tmp_path: Path) -> None:
    other = store_at(tmp_path / "v", seed=3)
    settings: dict[str, Any] = {"kernel": "rbf", "landmarks": 20, "loss": "squared_hinge", "validation": str(other)}
    fitted(store, tmp_path / "m", **settings)
    found = evaluate(EvaluateJob(str(tmp_path / "m"), (str(other),))).evaluation
    assert load(tmp_path / "m").provenance["validation"]["error"] == pytest.approx(1 - found.accuracy, abs=1e-12)


@pytest.mark.parametrize("solver", ["newton", "pegasos"])
def test_validation_resumed_run_chooses_the_same(
    store: Path, tmp_path: Path, solver: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings: dict[str, Any] = {"solver": solver, "validation": 0.25, "patience": 3, "tolerance": 1e-9, "prefetch": 0}
    settings["threads"] = 1
    monkeypatch.setattr("streamsvm.schedule.budget.MAX_CACHED_BYTES", 0)
    monkeypatch.setattr("streamsvm.engine.partition.PASS_GROUP_BYTES", 1)
    whole = fitted(store, tmp_path / "whole", **settings)
    with stopping(BlockVisitor, "visit", 8), pytest.raises(InterruptedRun):
        fitted(store, tmp_path / "m", **settings)
    again = fitted(store, tmp_path / "m", resume=True, **settings)
    np.testing.assert_array_equal(again.model.weights, whole.model.weights)
    assert again.model.provenance["validation"] == whole.model.provenance["validation"]


@pytest.mark.parametrize("fitted_on", ["classes", "numbers"])
def test_validation_store_of_another_task_is_refused(tmp_path: Path, fitted_on: str) -> None:
    X, codes = values()
    stores = {"classes": store_at(tmp_path / "classes"), "numbers": tmp_path / "numbers"}
    writer = create(stores["numbers"], sparse=False)
    writer.append(Dense(X), codes.astype(np.float64), None)
    writer.commit((), COLUMNS, {"names": None})
    other = "numbers" if fitted_on == "classes" else "classes"
    loss = "hinge" if fitted_on == "classes" else "squared"
    with pytest.raises(UsageError, match=f"holds {other}, this fit is for {fitted_on}"):
        fitted(stores[fitted_on], tmp_path / "m.ssvm", loss=loss, validation=str(stores[other]))


def test_validation_chunks_must_be_several_and_mixed(tmp_path: Path) -> None:
    one = store_at(tmp_path / "one", np.arange(CHUNK))
    with pytest.raises(UsageError, match="one chunk"):
        fitted(one, tmp_path / "m", validation=0.2)
    sides = np.flatnonzero(values()[1] == 0)
    sides = np.concatenate([sides[:CHUNK], np.flatnonzero(values()[1] == 1)[:CHUNK]])
    with pytest.raises(UsageError, match="lack a class"):
        fitted(store_at(tmp_path / "sorted", sides), tmp_path / "m", validation=0.5)
