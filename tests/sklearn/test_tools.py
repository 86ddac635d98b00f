"""What scikit-learn's tools ask of an estimator beside its contract: routed weights, frames out, arrays of other libraries."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest
import scipy.sparse

pytest.importorskip("sklearn", minversion="1.6")
from sklearn import config_context
from sklearn.model_selection import GridSearchCV, cross_validate
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from streamsvm.sklearn import StreamNystroem, StreamSVC, StreamSVCCV

X = np.random.default_rng(0).standard_normal((120, 4))
Y = np.where(X[:, 0] + 0.5 * X[:, 1] > 0, "in", "out")
WEIGHTS = np.random.default_rng(1).integers(0, 4, len(X)).astype(float)


def test_sklearn_tools_weights_are_routed_through_pipelines_and_searches() -> None:
    alone = StreamSVC(C=0.1).fit(X, Y, sample_weight=WEIGHTS).coef_
    with config_context(enable_metadata_routing=True):
        untouched = StandardScaler(with_mean=False, with_std=False).set_fit_request(sample_weight=False)
        asking = StreamSVC(C=0.1).set_fit_request(sample_weight=True).set_score_request(sample_weight=True)
        piped = make_pipeline(untouched, asking)
        assert np.array_equal(piped.fit(X, Y, sample_weight=WEIGHTS)[-1].coef_, alone)
        searched = GridSearchCV(asking, {"C": [0.1]}, cv=2).fit(X, Y, sample_weight=WEIGHTS)
        assert np.array_equal(searched.best_estimator_.coef_, alone)
        choosing = StreamSVCCV(Cs=(0.1,), cv=2).set_fit_request(sample_weight=True)
        piped = make_pipeline(untouched, choosing)
        assert np.array_equal(piped.fit(X, Y, sample_weight=WEIGHTS)[-1].coef_, alone)
        with pytest.raises(ValueError, match="sample_weight"):  # asked for by nobody
            cross_validate(StreamSVC(), X, Y, cv=2, params={"sample_weight": WEIGHTS})
        portions = StreamSVC(solver="sgd").set_partial_fit_request(sample_weight=True, classes=True)
        assert portions.get_metadata_routing().partial_fit.requests["sample_weight"] is True


def test_sklearn_tools_features_come_as_the_frames_that_were_asked_for() -> None:
    plain = StreamNystroem(landmarks=5).fit_transform(X)
    for kind in ("pandas", "polars"):
        library = pytest.importorskip(kind)
        found = StreamNystroem(landmarks=5).set_output(transform=kind).fit_transform(X)
        assert isinstance(found, library.DataFrame)
        assert list(found.columns) == [f"streamnystroem{k}" for k in range(plain.shape[1])]
        assert np.array_equal(found.to_numpy(), plain)


def test_sklearn_tools_sparse_arrays_and_sparse_matrices_are_the_same_rows() -> None:
    expected = StreamSVC().fit(scipy.sparse.csr_matrix(X), Y).coef_
    for kind in (scipy.sparse.csr_array, scipy.sparse.csc_array, scipy.sparse.coo_array):
        found = StreamSVC().fit(kind(X), Y)
        assert np.array_equal(found.coef_, expected)
        assert np.array_equal(found.predict(kind(X)), found.predict(X))


STRICT = """
import array_api_strict as xp, numpy as np
from sklearn import config_context
from sklearn.utils.estimator_checks import estimator_checks_generator
from streamsvm.sklearn import StreamSVC
X = np.random.default_rng(0).standard_normal((60, 3)); y = (X[:, 0] > 0).astype(int)
with config_context(array_api_dispatch=True):
    found = StreamSVC().fit(xp.asarray(X), xp.asarray(y))
assert np.array_equal(found.coef_, StreamSVC().fit(X, y).coef_)
names = [(estimator, check) for estimator, check in estimator_checks_generator(StreamSVC(), legacy=True) if "array_api" in str(check)]
for estimator, check in names:
    check(estimator)
print(len(names))
"""


def test_sklearn_tools_with_arrays_of_the_standard_switched_on_nothing_is_skipped() -> None:
    """SCIPY_ARRAY_API is read when scipy is imported: in a process of its own."""
    pytest.importorskip("array_api_strict")
    done = subprocess.run(
        [sys.executable, "-W", "error::sklearn.exceptions.SkipTestWarning", "-c", STRICT],
        env={**os.environ, "SCIPY_ARRAY_API": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
