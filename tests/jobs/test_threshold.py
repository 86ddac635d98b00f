"""The threshold of two classes: chosen by a measure on rows that training has not seen, and used by all that predicts labels."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from sklearn.metrics import f1_score, precision_recall_curve

import streamsvm as sv
from streamsvm.cli.main import cli
from streamsvm.errors import DataError, UsageError
from streamsvm.jobs.fit.driver import fit
from streamsvm.jobs.fit.options import FitJob
from streamsvm.model import Model, load
from streamsvm.rows import Dense
from streamsvm.sklearn import StreamSVC
from streamsvm.store import create

ROWS, COLUMNS = 1600, 3


def values(seed: int = 1, *, rare: int = 1) -> tuple[Any, Any]:
    rng = np.random.default_rng(seed)
    codes = (rng.random(ROWS) < 0.1).astype(np.int32)
    X = (rng.normal(size=(ROWS, COLUMNS)) + 1.2 * codes[:, None]).astype(np.float32)
    return X, codes if rare else 1 - codes


def store_at(path: Path, seed: int = 1, *, rare: int = 1) -> str:
    X, codes = values(seed, rare=rare)
    writer = create(path, sparse=False, chunk_bytes=100 * COLUMNS * 4)
    writer.append(Dense(X), codes, None)
    writer.commit(("-1", "1"), COLUMNS, {"names": None})
    return str(path)


@pytest.fixture
def store(tmp_path: Path) -> str:
    return store_at(tmp_path / "s.zarr")


def best_F1(f: Any, truth: Any) -> float:
    """The best F1 of the rarer class that any threshold has."""
    precision, recall, _ = precision_recall_curve(truth, f)
    return float((2 * precision * recall / np.maximum(precision + recall, 1e-12)).max())


@pytest.mark.parametrize("threads", [1, 2])
def test_threshold_of_held_out_rows_is_the_best_there(store: str, tmp_path: Path, threads: int) -> None:
    other = store_at(tmp_path / "v.zarr", 2)
    settings: dict[str, Any] = {"C": (1e-4, 1.0), "validation": other, "score": "average_precision", "threads": threads}
    page = tmp_path / "page.html"
    result = fit(FitJob(store, str(tmp_path / "m"), threshold="f1", report=str(page), **settings))
    X, truth = values(2)
    model = result.model
    f = model.decision(Dense(X))[:, 0]
    chosen = model.provenance["threshold"]
    assert model.threshold != 0.0
    assert chosen["score"] == pytest.approx(best_F1(f, truth), abs=1e-12)
    assert f1_score(truth, f > model.threshold) == pytest.approx(chosen["score"], abs=1e-12)
    assert (chosen["positive"], chosen["rows"]) == ("1", "held-out rows")
    assert f1_score(truth, model.predict(X) == 1) == pytest.approx(chosen["score"], abs=1e-12)
    found = sv.evaluate(tmp_path / "m", other).evaluation
    assert found.F1 == pytest.approx(chosen["score"], abs=1e-12)
    assert any("labels are predicted at the threshold" in line for line in result.notices)
    assert "F1 " + f"{chosen['score']:.4g}" in page.read_text(encoding="utf-8")
    plain = fit(FitJob(store, str(tmp_path / "n"), **settings)).model
    np.testing.assert_array_equal(plain.weights, model.weights)


@pytest.mark.parametrize("C", [1e-9, 1.0])
def test_evaluation_says_where_always_predicting_one_class_is_right_as_often(
    store: str, tmp_path: Path, C: float
) -> None:
    model = fit(FitJob(store, str(tmp_path / "m"), C=(C,))).model
    X, codes = values()
    most = float(np.mean(codes == 0))
    is_useful = float(np.mean(model.predict(X) == np.array([-1, 1])[codes])) > most
    assert is_useful == (C == 1.0)
    told = [line for line in sv.evaluate(tmp_path / "m", store).notices if "always predicting" in line]
    assert told == [] if is_useful else f"always predicting '-1' is right about {100 * most:.4g} %" in told[0]


def test_threshold_of_the_first_class_where_that_is_the_rarer_one(tmp_path: Path) -> None:
    store = store_at(tmp_path / "s.zarr", rare=0)
    model = fit(FitJob(store, str(tmp_path / "m"), validation=0.25, threshold="f1")).model
    X, codes = values(3, rare=0)
    assert model.provenance["threshold"]["positive"] == "-1"
    at_zero = f1_score(codes == 0, model.decision_function(X) <= 0.0)
    assert f1_score(codes == 0, model.predict(X) == -1) > at_zero


def test_threshold_without_held_out_rows_is_of_scores_of_rows_by_fits_without_them(store: str, tmp_path: Path) -> None:
    X, codes = values()
    labels = np.where(codes == 1, "rare", "often")
    ours = StreamSVC(threshold="f1", C=0.1).fit(X, labels)
    model = fit(FitJob(store, str(tmp_path / "m"), threshold="f1", C=0.1)).model
    assert ours.model_.threshold == pytest.approx(model.threshold, rel=1e-2)
    assert ours.model_.provenance["threshold"]["positive"] == "rare"
    assert model.provenance["threshold"]["rows"] == "leave-one-out scores"
    new, truth = values(5)
    plain = StreamSVC(C=0.1).fit(X, labels)
    assert f1_score(truth, ours.predict(new) == "rare") > f1_score(truth, plain.predict(new) == "rare")
    folds = fit(FitJob(store, str(tmp_path / "f"), threshold="f1", C=0.1, calibration_folds=4)).model
    assert folds.provenance["threshold"]["rows"] == "4 folds"
    assert folds.threshold == pytest.approx(model.threshold, abs=0.2)


def test_threshold_weighs_the_costs_of_errors(store: str, tmp_path: Path) -> None:
    settings: dict[str, Any] = {"validation": 0.25, "overwrite": True}
    found = [
        fit(FitJob(store, str(tmp_path / "m"), threshold=f"cost:fp=1,fn={cost}", **settings)).model for cost in (1, 50)
    ]
    X, codes = values(4)
    missed = [int(((model.predict(X) == -1) & (codes == 1)).sum()) for model in found]
    assert missed[1] < missed[0]
    assert found[1].threshold < found[0].threshold


def test_threshold_is_used_by_all_that_predicts(store: str, tmp_path: Path) -> None:
    path = tmp_path / "m.ssvm"
    model = fit(FitJob(store, str(path), validation=0.25, threshold="f1")).model
    X, _ = values(3)
    expected = model.predict(X)
    assert (expected != np.where(model.decision_function(X) > 0, 1, -1)).any()
    np.save(tmp_path / "new.npy", X)
    sv.predict(path, [str(tmp_path / "new.npy")], tmp_path / "out.txt")
    assert np.array_equal(np.loadtxt(tmp_path / "out.txt"), expected)
    assert np.array_equal(model.to_sklearn().predict(X), expected)
    assert np.array_equal(load(path).predict(X), expected)
    for form in ("liblinear", "libsvm"):
        sv.export(path, tmp_path / form, format=form)
        assert np.array_equal(load(tmp_path / form).predict(X), expected)
    dask_array = pytest.importorskip("dask.array")
    from streamsvm.cluster import predict_dask

    lazy = predict_dask(model, dask_array.from_array(X, chunks=(500, COLUMNS)))
    assert np.array_equal(lazy.compute(), expected)
    pytest.importorskip("onnx")
    from onnx.reference import ReferenceEvaluator

    sv.export(path, tmp_path / "m.onnx", format="onnx")
    reference: Any = ReferenceEvaluator(str(tmp_path / "m.onnx"))
    assert np.array_equal(reference.run(["label"], {"X": X.astype(np.float64)})[0], expected)


def test_threshold_is_shown_and_a_file_that_lies_about_it_is_refused(store: str, tmp_path: Path) -> None:
    path = tmp_path / "m.ssvm"
    model = fit(FitJob(store, str(path), validation=0.25, threshold="balanced_error")).model
    shown = CliRunner().invoke(cli, ["info", str(path)]).output
    assert f"threshold {model.threshold:.6g}, at which balanced_error" in shown
    resumed = fit(FitJob(store, str(path), validation=0.25, threshold="balanced_error", resume=True)).model
    assert resumed == model
    Model(np.ones((3, 4)), ("a", "b", "c"), threshold=0.5).save(tmp_path / "wrong")
    with pytest.raises(DataError, match="usable model"):
        load(tmp_path / "wrong")
    assert json.loads((tmp_path / "m.ssvm.run" / "job.json").read_text())["threshold"] == "balanced_error"


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ({"threshold": "auc"}, "--threshold cannot be 'auc'"),
        ({"threshold": "cost:fp=1"}, "two kinds of error cost"),
        ({"threshold": "f1", "one_class": True}, "do not use labels"),
        ({"threshold": "f1", "multi_class": "ovo"}, "votes of pairs of classes"),
    ],
)
def test_threshold_that_means_nothing_is_refused(store: str, tmp_path: Path, more: dict[str, Any], why: str) -> None:
    with pytest.raises(UsageError, match=why):
        fit(FitJob(store, str(tmp_path / "m"), **more))


def test_threshold_is_for_two_classes(tmp_path: Path) -> None:
    X, codes = values()
    codes[::3] = 2
    with pytest.raises(UsageError, match="for two classes"):
        sv.fit(X, tmp_path / "m", y=codes, threshold="f1")
    with pytest.raises(ValueError, match="for two classes"):
        StreamSVC(threshold="f1").fit(X, codes)
