"""The decision value of a row is the same whatever rows are computed beside it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from streamsvm.features.expansion import Expansion
from streamsvm.model import Model
from streamsvm.rows import Dense


@pytest.mark.parametrize("kernel", ["rbf", "polynomial", "laplacian"])
def test_decision_row_has_its_value_alone_and_among_others(kernel: str) -> None:
    rng = np.random.default_rng(0)
    X, points = (rng.normal(size=(n, 30)).astype(np.float32) for n in (70, 40))
    parameters: dict[str, Any] = {"gamma": 0.05} | ({"degree": 3.0, "coef0": 1.0} if kernel == "polynomial" else {})
    model = Model(rng.normal(size=(1, 41)), ("a", "b"), {}, Expansion(kernel, parameters, Dense(points), 30))
    together = model.decision_function(X)
    alone = np.concatenate([model.decision_function(X[i : i + 1]) for i in range(len(X))])
    backwards = model.decision_function(X[::-1])[::-1]
    scale = np.abs(together).max()
    assert np.abs(alone - together).max() <= 1e-13 * scale
    assert np.abs(backwards - together).max() <= 1e-13 * scale
    assert np.abs(model.decision(Dense(X))[:, 0] - together).max() <= 1e-3 * scale
