"""The outlier detector: shares, scores and the offset, predictions, labels without a say."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("sklearn", minversion="1.6")
from streamsvm.sklearn import StreamOneClassSVM


def test_scores_less_the_offset_are_decision_values_and_their_signs_are_predicted() -> None:
    X = np.random.default_rng(2).normal(size=(200, 3)) + 4.0
    found = StreamOneClassSVM(nu=0.2, tolerance=1e-5).fit(X, np.arange(200))
    f = found.decision_function(X)
    np.testing.assert_allclose(found.score_samples(X) - found.offset_, f)
    np.testing.assert_allclose(found.score_samples(X), X @ found.coef_[0], rtol=1e-4)
    np.testing.assert_array_equal(found.predict(X), np.where(f >= 0, 1, -1))
    assert np.mean(f < 0) == pytest.approx(0.2, abs=0.03)
    assert found.gap_ <= 1e-5
