"""Several classes pair by pair, as SVC has them, and rows in portions, as SGDClassifier has them."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("sklearn", minversion="1.6")
from sklearn.datasets import make_classification
from sklearn.multiclass import OneVsOneClassifier
from sklearn.svm import LinearSVC
from sklearn.utils.estimator_checks import check_estimators_partial_fit_n_features

import streamsvm as sv
from streamsvm.sklearn import StreamRows, StreamSVC

X, Y = make_classification(200, 8, n_informative=5, n_classes=4, random_state=0)
WORDS = np.array(["d", "a", "c", "b"])[Y]


def test_svc_pairs_are_those_of_scikit_learn() -> None:
    ours = StreamSVC(multi_class="ovo", decision_function_shape="ovo", tolerance=1e-8).fit(X, WORDS)
    theirs = OneVsOneClassifier(LinearSVC(tol=1e-10, max_iter=100_000)).fit(X, WORDS)
    expected = np.column_stack([-one.decision_function(X) for one in theirs.estimators_])
    assert ours.decision_function(X).shape == (200, 6)
    assert np.allclose(ours.decision_function(X), expected, atol=1e-4)
    assert np.allclose(X @ ours.coef_.T + ours.intercept_, expected, atol=1e-4)
    assert ours.gap_ <= 1e-8
    assert (ours.predict(X) == theirs.predict(X)).mean() > 0.9  # theirs breaks ties by how sure pairs are
    shaped = StreamSVC(multi_class="ovo").fit(X, WORDS)
    assert np.allclose(shaped.decision_function(X), theirs.decision_function(X), atol=1e-3)
    assert np.array_equal(shaped.predict(X), ours.predict(X))
    assert ours.model_.outcomes == ("a/b", "a/c", "a/d", "b/c", "b/d", "c/d")
    assert np.array_equal(ours.model_.predict(X), ours.predict(X))
    assert ours.n_passes_ == StreamSVC(tolerance=1e-8).fit(X, WORDS).n_passes_


def test_svc_pairs_of_stores_kernels_weights_and_two_classes(tmp_path: Path) -> None:
    sv.ingest(X, tmp_path / "rows.zarr", y=Y)
    options: dict[str, Any] = {"multi_class": "ovo", "tolerance": 1e-8}
    one = StreamSVC(**options).fit(X, Y)
    for rows in (tmp_path / "rows.zarr", StreamRows(tmp_path / "rows.zarr")):
        found = StreamSVC(**options).fit(rows)
        assert found.classes_.tolist() == [0, 1, 2, 3]
        assert np.allclose(found.decision_function(X), one.decision_function(X), atol=1e-3)
    assert StreamSVC(multi_class="ovo", kernel="rbf", landmarks=60).fit(X, Y).score(X, Y) > 0.8
    weight = np.random.default_rng(0).integers(0, 3, len(X))
    weighted = StreamSVC(multi_class="ovo", class_weight={0: 2.0}).fit(X, Y, weight)
    copied = StreamSVC(multi_class="ovo", class_weight={0: 2.0}).fit(np.repeat(X, weight, axis=0), np.repeat(Y, weight))
    assert np.allclose(weighted.decision_function(X), copied.decision_function(X), atol=1e-9)
    assert StreamSVC(multi_class="ovo").fit(X, Y > 1).model_.kind == "linear"
    with pytest.raises(ValueError, match="multi_class must be"):
        StreamSVC(multi_class="ava").fit(X, Y)  # type: ignore[arg-type]


def two_classes() -> tuple[Any, Any]:
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(3000, 6))
    return rows, np.where(rows[:, 0] - rows[:, 1] + 0.3 * rng.normal(size=3000) > 0.2, "in", "out")


@pytest.mark.parametrize("solver", ["sgd", "pegasos", "assg"])
def test_svc_portions_come_near_the_optimum_and_prove_nothing(solver: Any) -> None:
    rows, y = two_classes()
    found = StreamSVC(C=0.01, loss="hinge", solver=solver)
    for start in range(0, 3000, 500):
        found.partial_fit(rows[start : start + 500], y[start : start + 500], classes=["out", "in"])
    exact = StreamSVC(C=0.01, loss="hinge").fit(rows, y)
    assert found.rows_seen_ == 3000
    assert found.score(rows, y) > exact.score(rows, y) - 0.02
    cosine = found.coef_[0] @ exact.coef_[0] / np.linalg.norm(found.coef_) / np.linalg.norm(exact.coef_)
    assert cosine > 0.97
    assert found.gap_ == np.inf
    with pytest.raises(sv.UsageError, match="no certificate"):
        found.model_.certificate  # noqa: B018


def test_svc_portions_may_lack_classes_and_follow_a_fit() -> None:
    found = StreamSVC(loss="hinge", solver="sgd", tolerance=0.5).partial_fit(X[Y == 1], Y[Y == 1], classes=np.arange(4))
    assert found.decision_function(X).shape == (200, 4)
    rows, y = two_classes()
    fitted = StreamSVC(C=0.01, loss="hinge", solver="sgd", tolerance=0.1).fit(rows[:2000], y[:2000])
    before = fitted.score(rows, y)
    assert np.isfinite(fitted.gap_)
    assert fitted.partial_fit(rows[2000:2500], y[2000:2500]).score(rows, y) > before - 0.05
    assert fitted.rows_seen_ == 2500


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"standardize": True}, "scaled columns"),
        ({"kernel": "rbf", "landmarks": 20}, "another map for every portion"),
    ],
)
def test_svc_what_cannot_go_on_is_refused(options: dict[str, Any], said: str) -> None:
    estimator = StreamSVC(loss="hinge", solver="sgd", **options)
    with pytest.raises(ValueError, match=said):
        estimator.partial_fit(X, Y, classes=np.arange(4))
    with pytest.raises(ValueError, match="classes must be passed"):
        StreamSVC(loss="hinge", solver="sgd").partial_fit(X, Y)
    with pytest.raises(ValueError, match="not the same as on last call"):
        StreamSVC(loss="hinge", solver="sgd").partial_fit(X, Y, np.arange(4)).partial_fit(X, Y, np.arange(3))
    assert not hasattr(StreamSVC(solver="newton"), "partial_fit")


@pytest.mark.parametrize("loss", ["hinge", "squared_hinge"])
def test_svc_partial_fit_finds_its_solver(loss: Any) -> None:
    rows, y = two_classes()
    found = StreamSVC(C=0.01, loss=loss)
    for start in range(0, 3000, 500):
        found.partial_fit(rows[start : start + 500], y[start : start + 500], classes=["out", "in"])
    assert found.score(rows, y) > StreamSVC(C=0.01, loss=loss).fit(rows, y).score(rows, y) - 0.02


def test_svc_scikit_learn_checks_portions() -> None:
    check_estimators_partial_fit_n_features("StreamSVC", StreamSVC(loss="hinge", solver="sgd"))


def test_svc_portions_after_pairs_leave_no_pairs_and_pairs_are_not_calibrated() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = StreamSVC(solver="pegasos", multi_class="ovo", max_passes=2).fit(X, Y)
    assert len(found.model_.certificates) == 6
    for calibration, said in (
        ("sigmoid", "calibrate='sigmoid' is for multi_class='ovr'"),
        ("sigmod", "did you mean 'sigmoid'"),
    ):
        with pytest.raises(ValueError, match=said):
            found.set_params(calibration=calibration).fit(X, Y)
    found.set_params(calibration=None)
    with pytest.raises(ValueError, match="one class against the rest"):
        found.partial_fit(X, Y)
    found.set_params(multi_class="ovr").partial_fit(X, Y)
    assert not found.model_.pairs
    assert found.decision_function(X).shape == (len(X), 4)


def test_portions_refuse_balanced_classes() -> None:
    """The rows of each class are not known before the last portion; given factors are taken."""
    X, y = np.array([[0.0], [1.0], [2.0], [3.0]]), np.array([0, 0, 0, 1])
    found = StreamSVC(solver="sgd", loss="hinge", class_weight="balanced")
    with pytest.raises(ValueError, match="class_weight='balanced' is not supported by partial_fit"):
        found.partial_fit(X, y, classes=[0, 1])
    assert not hasattr(found, "classes_")
    StreamSVC(solver="sgd", loss="hinge", class_weight={0: 0.5, 1: 2.0}).partial_fit(X, y, classes=[0, 1])


def test_portions_refuse_a_threshold_and_keep_that_of_a_fit() -> None:
    """It would be lost without a word, and labels divided at 0."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(400, 2))
    found = StreamSVC(threshold="f1").fit(X, X[:, 0] + rng.normal(size=400) > 1.5)
    known = found.model_.threshold
    with pytest.raises(ValueError, match="threshold='f1' is not supported by partial_fit"):
        found.partial_fit(X, X[:, 0] > 1.5)
    assert found.model_.threshold == known != 0.0
    found.set_params(threshold=None).partial_fit(X, X[:, 0] > 1.5)
    assert found.model_.threshold == 0.0
