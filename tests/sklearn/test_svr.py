"""The regressor: optima of scikit-learn's, and the same model from arrays, files and stores."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("sklearn", minversion="1.6")
from sklearn.linear_model import Ridge
from sklearn.svm import SVR, LinearSVR

from streamsvm.jobs.ingest.job import IngestJob
from streamsvm.jobs.ingest.run import ingest
from streamsvm.sklearn import StreamRows, StreamSVR

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
def test_svr_tubes_are_those_of_liblinear(loss: str) -> None:
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
