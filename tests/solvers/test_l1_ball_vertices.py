"""The vertices of an l1 ball as points of a simplex: their matrix, and weights that make a point, against residuals row by row."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from streamsvm.solvers.l1_ball.vertices import ROOM, SampledVertices, Vertices
from streamsvm.solvers.l1_ball.work import Allowed, BallWork, weights_at, weights_of_vertices

N, M, T = 30, 4, 1.5


def drawn() -> tuple[Vertices, Any]:
    """Vertices of a problem, and the matrix of them: (A_k - y)'S (A_l - y), A_k = +t X_j first, then -t X_j."""
    rng = np.random.default_rng(3)
    X, y, S = rng.normal(size=(N, M)), rng.normal(size=N), rng.choice([0.0, 0.5, 2.0], N)
    residuals = np.column_stack([T * X, -T * X]) - y[:, None]
    vertices = Vertices((X.T * S) @ X, X.T @ (S * y), float(y @ (S * y)), T)
    return vertices, (residuals.T * S) @ residuals


def test_the_matrix_of_the_vertices_is_that_of_their_residuals() -> None:
    vertices, K = drawn()
    np.testing.assert_allclose(vertices.diagonal, np.diagonal(K), rtol=1e-10)
    for k in range(2 * M):
        np.testing.assert_allclose(vertices.column(k, np.zeros(0)), K[:, k], rtol=1e-10, atol=1e-10)
    some, others = np.array([0, M - 1, M, 2 * M - 1]), np.array([1, M - 1, M, M + 1, 2 * M - 1])
    np.testing.assert_allclose(vertices.between(some, others), K[np.ix_(some, others)], rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("size", [0.0, 0.4, 1.0])
def test_weights_that_make_a_point_sum_to_one_whatever_its_norm(size: float) -> None:
    """What is left is on both vertices of the column of the largest |v_j|, where it makes nothing."""
    w, v = size * T * np.array([0.5, -0.25, 0.0, 0.25]), np.array([1.0, -2.0, -3.0, 0.5])
    a = weights_at(w, v, T)
    assert a.sum() == pytest.approx(1.0, rel=1e-12)
    assert a.min() >= 0.0
    np.testing.assert_allclose(T * (a[:M] - a[M:]), w, atol=1e-12)
    expected = np.concatenate([np.maximum(w, 0.0), np.maximum(-w, 0.0)]) / T
    expected[[2, 2 + M]] += 0.5 * (1.0 - size)
    np.testing.assert_allclose(a, expected, atol=1e-12)


def test_a_point_outside_by_rounding_has_weights_too() -> None:
    a = weights_at(np.array([T * 1.01, 0.0]), np.ones(2), T)
    np.testing.assert_allclose(a, [1.0, 0.0, 0.0, 0.0], atol=1e-12)


def test_samples_begin_at_the_vertices_that_have_weight() -> None:
    vertices, K = drawn()
    method, weights = SampledVertices(vertices, "fw"), np.zeros(2 * M)
    weights[[1, 2, M + 1]] = 0.5, 0.2, 0.3
    method.begin(weights, 7.0)
    assert (method.members, method.size, method.f) == ([1, 2, M + 1], 3, 7.0)
    assert len(method.a) == 3 + 3 + ROOM
    np.testing.assert_array_equal(method.a[:3], [0.5, 0.2, 0.3])
    assert not method.a[3:].any()
    np.testing.assert_array_equal(method.before, method.a)
    np.testing.assert_array_equal(method.weights(), weights)
    asked = np.arange(2 * M)
    np.testing.assert_allclose(method._gradient(method._kernel(asked), asked, method.a), K @ weights, rtol=1e-10)
    method.a[:3] *= 2.0  # what sums to more is made to sum to 1
    np.testing.assert_allclose(method.weights(), weights, rtol=1e-12)
    work = BallWork(method, Allowed(0.0, 0.0), left=1, sample=2)
    np.testing.assert_allclose(weights_of_vertices(work), weights, rtol=1e-12)
    plain: Any = type("Plain", (), {"a": np.array([1.0, 3.0])})
    np.testing.assert_array_equal(weights_of_vertices(BallWork(plain, Allowed(0.0, 0.0), 1)), [0.25, 0.75])
