"""Kernel blocks against the records' own Python in float64, dense against CSR, and the accuracy of exp."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numba import njit

from streamsvm.compute.kernel_values import gram
from streamsvm.compute.kernel_values.elementary import exp32
from streamsvm.kernels import KERNELS, RBF, Laplacian, Linear, Polynomial, Sigmoid
from streamsvm.rows import Dense
from tests.arrays import csr_of, sparse_values
from tests.axes import each_value

KERNEL_CASES = [
    RBF(0.3),
    Laplacian(0.2),
    Polynomial(0.2, 1.0, 3.0),
    Polynomial(0.1, 0.5, 5.0),
    Sigmoid(0.1),
    Linear(0.5),
]


@njit
def exp_of(x: Any, out: Any) -> None:
    for i in range(x.size):
        out[i] = exp32(x[i])


def similarities(kernel: Any, X: Any, Z: Any) -> Any:
    """The obvious way: row by row, pair by pair, in float64."""
    X, Z = X.astype(np.float64), Z.astype(np.float64)
    first = [[np.abs(x - z).sum() if kernel.city_block() else x @ z for z in Z] for x in X]
    return np.array(
        [
            [kernel.similarity(p, x @ x, z @ z) for p, z in zip(row, Z, strict=True)]
            for row, x in zip(first, X, strict=True)
        ]
    )


def test_gram_exp_is_accurate_to_1e_7():
    x = np.linspace(-87.3, 88.3, 1_000_003).astype(np.float32)
    out = np.empty_like(x)
    exp_of(x, out)
    exact = np.exp(x.astype(np.float64))
    assert np.max(np.abs(out - exact) / exact) < 1e-7


def test_gram_exp_at_the_ends():
    x = np.array([0.0, -0.0, -200.0, -np.inf, 200.0, np.nan], np.float32)
    out = np.empty_like(x)
    exp_of(x, out)
    assert out[0] == out[1] == 1.0
    assert np.all(out[2:4] < 1.3e-38)
    assert out[4] > 2e38
    assert np.isnan(out[5])


@each_value(("kernel", KERNEL_CASES), ("d", [1, 7, 40]))
def test_gram_block_equals_the_definition(kernel, d):
    rng = np.random.default_rng(d)
    X, Z = sparse_values(rng, 33, d), sparse_values(rng, 21, d)
    expected = similarities(kernel, X, Z)
    points = gram.points_of(Z)
    for rows in (Dense(X, 1.0), csr_of(X, 1.0)):
        out = np.empty((33, 21), np.float32)
        gram.kernel_block(rows, points, kernel, out)
        np.testing.assert_allclose(out, expected, rtol=1e-4, atol=2e-6)


@pytest.mark.parametrize("kernel", KERNEL_CASES, ids=str)
def test_gram_diagonal(kernel):
    X = sparse_values(np.random.default_rng(3), 20, 9)
    expected = np.diag(similarities(kernel, X, X))
    for rows in (Dense(X), csr_of(X)):
        np.testing.assert_allclose(gram.diagonal(rows, kernel), expected, rtol=1e-5)


@pytest.mark.parametrize("name", [name for name in KERNELS if name != "sigmoid"])
def test_gram_is_positive_semidefinite(name):
    X = sparse_values(np.random.default_rng(5), 60, 12)
    K = similarities(KERNELS[name](), X, X)
    values = np.linalg.eigvalsh((K + K.T) / 2)
    assert values[0] > -1e-10 * values[-1]


@pytest.mark.parametrize("name", list(KERNELS))
def test_gram_every_kernel_answers(name):
    kernel = KERNELS[name]()
    assert len(kernel) > 0
    assert all(isinstance(value, float) for value in kernel)
    assert isinstance(kernel.similarity(0.25, 1.0, 1.0), float)
    assert kernel.similarity(0.25, 1.0, 2.0) == kernel.similarity(0.25, 2.0, 1.0)
    assert isinstance(kernel.city_block(), bool)


def test_gram_coincident_points_have_similarity_one():
    X = (1000.0 + np.random.default_rng(0).normal(size=(50, 5))).astype(np.float32)
    out = np.empty((50, 50), np.float32)
    gram.kernel_block(Dense(X), gram.points_of(X), RBF(1e-6), out)
    assert out.max() <= 1.0
    np.testing.assert_allclose(np.diag(out), 1.0, atol=1e-5)


def test_gram_rows_of_another_type_are_converted_a_few_at_a_time(monkeypatch):
    """So that no second copy of all of them is ever there; those of the same type are multiplied at once."""
    rng, heights = np.random.default_rng(0), []
    X, Z = rng.random((1000, 5)).astype(np.float32), rng.random((7, 5))
    matmul = np.matmul

    def noted(rows, points, out):
        heights.append(len(rows))
        return matmul(rows, points, out=out)

    monkeypatch.setattr(gram.np, "matmul", noted)
    monkeypatch.setattr(gram, "CONVERTED_ROWS", 300)
    for dtype, expected in [(np.float64, [300, 300, 300, 100]), (np.float32, [1000])]:
        heights.clear()
        out = np.empty((1000, 7), dtype)
        gram.dot_products(Dense(X), gram.points_of(Z.astype(dtype), dtype), out)
        assert heights == expected
        np.testing.assert_allclose(out, X @ Z.T.astype(dtype), rtol=1e-5)
    gram.dot_products(Dense(X[:0]), gram.points_of(Z.astype(np.float32)), np.empty((0, 7), np.float32))
