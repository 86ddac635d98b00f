"""The short machine against its normal equations in float64, and against the projection on the same points."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from streamsvm.kernels import RBF
from streamsvm.rows import Dense
from streamsvm.solvers.kernel.pool import Form, Pool
from streamsvm.solvers.kernel.reduced_set import draw_by_weight, fit_reduced_set
from tests.arrays import csr_of
from tests.solvers.kernel_problems import gram64, noisy_rows

GAMMA, COUNT, IMPORTANCE = 0.5, 30, 3.0


def support_of(X: Any, weights: Any) -> Pool:
    n = len(weights)
    ridge, low, high, p = (np.zeros(n) for _ in range(4))
    return Pool(X, np.arange(n), np.ones(n), ridge, low, high, p, weights, np.zeros(n))


@pytest.mark.parametrize("constant", [0.0, 1.0])
@pytest.mark.parametrize("sparse", [False, True])
def test_reduced_set_is_the_closest_in_its_norm(constant: float, sparse: bool) -> None:
    X, _ = noisy_rows(900)
    weights = np.random.default_rng(0).normal(size=len(X))
    K = gram64(X, X, GAMMA) + constant
    f = K @ weights
    support = support_of(csr_of(X) if sparse else Dense(X), weights)
    found = fit_reduced_set(support, f, Form(RBF(GAMMA), X.shape[1], constant), COUNT, IMPORTANCE)
    kept = found.index

    def cost(c: Any) -> float:
        difference = f - K[:, kept] @ c
        inside = weights @ f - 2.0 * c @ f[kept] + c @ K[np.ix_(kept, kept)] @ c
        return 0.5 * float(inside) + 0.5 * IMPORTANCE * float(difference @ difference)

    normal = K[np.ix_(kept, kept)] + IMPORTANCE * K[:, kept].T @ K[:, kept]
    best = np.linalg.solve(normal + 1e-6 * np.eye(COUNT), f[kept] + IMPORTANCE * K[:, kept].T @ f)
    projected = np.linalg.solve(K[np.ix_(kept, kept)] + 1e-6 * np.eye(COUNT), f[kept])
    assert cost(found.x) <= cost(best) * (1.0 + 1e-4)
    assert cost(found.x) < cost(projected)


def test_reduced_set_draw_from_draws_is_a_draw_from_all() -> None:
    rng = np.random.default_rng(0)
    index, weights = np.arange(500), rng.normal(size=500)
    at_once = draw_by_weight(index, weights, 40)
    parts = np.concatenate(
        [part[draw_by_weight(index[part], weights[part], 40)] for part in np.split(index, [90, 300])]
    )
    np.testing.assert_array_equal(parts[draw_by_weight(index[parts], weights[parts], 40)], at_once)
