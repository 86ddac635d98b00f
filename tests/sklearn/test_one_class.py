"""The outlier detector: shares, scores and the offset, predictions, labels without a say."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

pytest.importorskip("sklearn", minversion="1.6")
from sklearn.svm import OneClassSVM

from streamsvm.sklearn import StreamOneClassSVM


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
