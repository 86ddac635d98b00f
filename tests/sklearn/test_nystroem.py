"""StreamNystroem: features whose products are the kernel, those a fit with landmarks sees."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
import scipy.sparse

pytest.importorskip("sklearn", minversion="1.6")
from sklearn.metrics.pairwise import rbf_kernel
from sklearn.pipeline import make_pipeline

from streamsvm.sklearn import StreamNystroem, StreamSVC

X = np.random.default_rng(0).normal(size=(200, 5))


def test_nystroem_estimator_with_all_rows_for_landmarks_the_products_are_the_kernel() -> None:
    features = StreamNystroem(gamma=0.2, landmarks=500, cutoff=1e-12).fit_transform(X)
    assert np.allclose(features @ features.T, rbf_kernel(X, gamma=0.2), atol=1e-4)


def test_nystroem_estimator_features_are_named_and_sparse_rows_are_the_same() -> None:
    found = StreamNystroem(landmarks=20, random_state=3).fit(X)
    assert len(found.get_feature_names_out()) == found.transform(X).shape[1] == found.normalization_.shape[1]
    assert np.allclose(found.transform(scipy.sparse.csr_array(X)), found.transform(X), atol=1e-5)
    assert np.array_equal(pickle.loads(pickle.dumps(found)).transform(X), found.transform(X))
    assert found.components_.shape == (20, 5)
    frame = found.set_output(transform="pandas").transform(X)
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
        StreamNystroem(kernel="rfb").fit(X)
    with pytest.raises(ValueError, match="does not look at them"):
        StreamNystroem(sampling="greedy").fit(X)
