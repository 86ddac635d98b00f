"""The regressor, the outlier detector and the features of landmarks: optima of scikit-learn's, and the same model from arrays and stores."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse

pytest.importorskip("sklearn", minversion="1.6")
from sklearn.linear_model import Ridge
from sklearn.metrics.pairwise import rbf_kernel
from sklearn.pipeline import make_pipeline
from sklearn.svm import SVR, LinearSVR, OneClassSVM

from streamsvm.jobs.ingest.options import IngestJob
from streamsvm.jobs.ingest.run import ingest
from streamsvm.sklearn import StreamNystroem, StreamOneClassSVM, StreamRows, StreamSVC, StreamSVR

ROWS = 300


def rows() -> tuple[Any, Any]:
    rng = np.random.default_rng(5)
    X = rng.normal(size=(ROWS, 4))
    return X, X @ [1.0, -2.0, 0.5, 0.0] + 0.3 + 0.2 * rng.standard_t(3, size=ROWS)


def test_svr_least_squares_are_those_of_ridge() -> None:
    X, y = rows()
    weights = np.random.default_rng(1).integers(1, 4, ROWS)
    ours = StreamSVR(C=2.0, loss="squared", bias=0.0).fit(X, y, weights)
    theirs = Ridge(alpha=1 / 4, fit_intercept=False).fit(X.astype(np.float32).astype(np.float64), y, weights)
    np.testing.assert_allclose(ours.coef_[0], theirs.coef_, rtol=1e-9)


@pytest.mark.parametrize("loss", ["epsilon_insensitive", "squared_epsilon_insensitive"])
def test_svr_tubes_are_those_of_liblinear(loss: Any) -> None:
    X, y = rows()
    ours = StreamSVR(C=0.5, epsilon=0.2, loss=loss, tolerance=1e-8).fit(X, y)
    dual = loss == "epsilon_insensitive"
    theirs = LinearSVR(C=0.5, epsilon=0.2, loss=f"{loss}", dual=dual, tol=1e-10, max_iter=10**6, random_state=0)
    theirs.fit(X.astype(np.float32).astype(np.float64), y)
    np.testing.assert_allclose(ours.coef_[0], theirs.coef_, atol=1e-3 if dual else 1e-5)
    assert ours.gap_ <= 1e-8


def test_svr_kernels_are_those_of_libsvm_and_landmarks_come_near() -> None:
    X, y = rows()
    settings: dict[str, Any] = {"kernel": "rbf", "gamma": 0.2, "C": 1.0, "epsilon": 0.1}
    theirs = SVR(**settings, tol=1e-6).fit(X.astype(np.float32).astype(np.float64), y)
    exact = StreamSVR(**settings, loss="epsilon_insensitive", tolerance=1e-5).fit(X, y)
    assert exact.gap_ <= 1e-5
    np.testing.assert_allclose(exact.predict(X), theirs.predict(X), atol=0.02)
    near = StreamSVR(**settings, landmarks=100, bias=10.0).fit(X, y)
    assert near.gap_ <= 1e-3
    assert near.score(X, y) > theirs.score(X, y) - 0.02


def test_svr_pinball_loss_is_that_of_quantiles() -> None:
    X, y = rows()
    found = StreamSVR(C=100.0, loss="pinball", quantile=0.8).fit(X, y)
    assert np.mean(y < found.predict(X)) == pytest.approx(0.8, abs=0.03)


def test_svr_files_and_stores_give_the_model_of_arrays(tmp_path: Path) -> None:
    X, y = rows()
    table = tmp_path / "t.csv"
    text = "\n".join(",".join(map(repr, [*row, t])) for row, t in zip(X.tolist(), y.tolist(), strict=True))
    table.write_text(f"a,b,c,d,t\n{text}\n")
    arrays = StreamSVR(tolerance=1e-8).fit(X, y)
    files = StreamSVR(tolerance=1e-8).fit(table, "t")
    ingest(IngestJob(sources=(table,), store=tmp_path / "t.zarr", label="t", task="regression"))
    stored = StreamSVR(tolerance=1e-8).fit(tmp_path / "t.zarr")
    assert files.feature_names_in_.tolist() == ["a", "b", "c", "d"]
    for found in (files, stored):
        np.testing.assert_allclose(found.coef_, arrays.coef_, rtol=1e-3)
        np.testing.assert_allclose(found.predict(tmp_path / "t.zarr"), arrays.predict(X), atol=1e-3)


@pytest.mark.parametrize(
    ("settings", "said"),
    [({"loss": "hinge"}, "class|number"), ({"epsilon": -1.0}, "epsilon"), ({"loss": "cubic"}, "cubic")],
)
def test_svr_what_means_nothing_is_refused(settings: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        StreamSVR(**settings).fit(*rows())


def test_svr_rows_with_classes_are_refused() -> None:
    X, y = rows()
    with pytest.raises(ValueError, match="classes"):
        StreamSVR().fit(StreamRows(X, y > 0))


# -- the outlier detector ----------------------------------------------------------------------------------------------


def test_one_class_estimator_scores_less_the_offset_are_decision_values_and_their_signs_are_predicted() -> None:
    X = np.random.default_rng(2).normal(size=(200, 3)) + 4.0
    found = StreamOneClassSVM(nu=0.2, tolerance=1e-5).fit(X, np.arange(200))
    f = found.decision_function(X)
    np.testing.assert_array_equal(found.score_samples(X) - found.offset_, f)
    np.testing.assert_allclose(found.score_samples(X), X @ found.coef_[0], rtol=1e-4)
    np.testing.assert_array_equal(found.predict(X), np.where(f >= 0, 1, -1))
    assert np.mean(f < 0) == pytest.approx(0.2, abs=0.03)
    assert found.gap_ <= 1e-5


@pytest.mark.parametrize("settings", [{}, {"kernel": "rbf"}, {"kernel": "rbf", "standardize": True}], ids=str)
def test_one_class_estimator_weight_of_k_is_k_copies_and_small_data_end_exactly(settings: dict[str, Any]) -> None:
    rng = np.random.default_rng(3)
    X, weights = rng.normal(size=(40, 4)) + 1.0, rng.integers(0, 4, 40)
    weighted = StreamOneClassSVM(nu=0.3, **settings).fit(X, None, weights)
    copied = StreamOneClassSVM(nu=0.3, **settings).fit(np.repeat(X, weights, axis=0))
    np.testing.assert_allclose(weighted.decision_function(X), copied.decision_function(X), rtol=1e-7, atol=1e-9)
    assert weighted.gap_ <= 1e-9


def test_one_class_estimator_kernel_machine_with_weights_is_that_of_libsvm() -> None:
    rng = np.random.default_rng(4)
    X, weights = rng.normal(size=(60, 3)).astype(np.float32), rng.choice([0.5, 1.0, 2.0], 60)
    ours = StreamOneClassSVM(nu=0.3, kernel="rbf", gamma=0.4).fit(X, None, weights).decision_function(X)
    theirs = OneClassSVM(nu=0.3, gamma=0.4, tol=1e-10).fit(X, sample_weight=weights).decision_function(X)
    scale = (ours @ theirs) / (ours @ ours)  # theirs sums up to nu n, ours to nu times the weight
    np.testing.assert_allclose(scale * ours, theirs, atol=1e-5 * np.abs(theirs).max())


X = np.random.default_rng(0).normal(size=(200, 5))


# -- features of landmarks ---------------------------------------------------------------------------------------------


def test_nystroem_estimator_with_all_rows_for_landmarks_the_products_are_the_kernel() -> None:
    features = StreamNystroem(gamma=0.2, landmarks=500, cutoff=1e-12).fit_transform(X)
    assert np.allclose(features @ features.T, rbf_kernel(X, gamma=0.2), atol=1e-4)


def test_nystroem_estimator_features_are_named_and_sparse_rows_are_the_same() -> None:
    found = StreamNystroem(landmarks=20, random_state=3).fit(X)
    assert len(found.get_feature_names_out()) == found.transform(X).shape[1] == found.normalization_.shape[1]
    assert np.allclose(found.transform(scipy.sparse.csr_array(X)), found.transform(X), atol=1e-5)
    assert np.array_equal(pickle.loads(pickle.dumps(found)).transform(X), found.transform(X))
    assert found.components_.shape == (20, 5)
    frame: Any = found.set_output(transform="pandas").transform(X)
    assert list(frame.columns) == found.get_feature_names_out().tolist()


def test_nystroem_estimator_linear_fit_of_the_features_is_the_fit_with_landmarks() -> None:
    y = np.linalg.norm(X, axis=1) > 2
    options = {"gamma": 0.3, "landmarks": 40, "random_state": 1}
    whole = StreamSVC(kernel="rbf", sampling="uniform", tolerance=1e-8, **options).fit(X, y)  # type: ignore[arg-type]
    steps = make_pipeline(StreamNystroem(**options), StreamSVC(tolerance=1e-8)).fit(X, y)  # type: ignore[arg-type]
    assert np.allclose(whole.decision_function(X), steps.decision_function(X), atol=1e-2)
    assert (whole.predict(X) == steps.predict(X)).mean() > 0.99
    copies = np.random.default_rng(1).permutation(np.repeat(np.arange(200), 2))  # in any order, however often
    again = StreamNystroem(**options).fit(X[copies])  # type: ignore[arg-type]
    assert np.array_equal(again.components_, steps[0].components_)


def test_nystroem_estimator_rows_are_not_changed_and_wrong_parameters_are_said() -> None:
    before = np.array(X, np.float32)
    given = before.copy()
    StreamNystroem(standardize=True, landmarks=10).fit(given).transform(given)
    assert np.array_equal(given, before)
    with pytest.raises(ValueError, match="did you mean 'rbf'"):
        StreamNystroem(kernel="rfb").fit(X)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="does not look at them"):
        StreamNystroem(sampling="greedy").fit(X)
