"""The three operators against explicit matrices in float64."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from streamsvm.compute.blocks import operators
from streamsvm.compute.blocks.operators import Factored
from streamsvm.rows import Dense
from tests.arrays import csr_of, sparse_values
from tests.axes import each_value

D = 9
ROWS = operators.TILE + 100


def case(kind):
    """A block, and the matrix with the constant feature as its last column that it stands for."""
    rng = np.random.default_rng(1)
    values = sparse_values(rng, ROWS, D)
    if kind == "factored":
        K, W = rng.random((ROWS, 14)).astype(np.float32), rng.normal(size=(14, D)).astype(np.float32)
        block: Any = Factored(K, W, 0.5)
        values = K.astype(np.float64) @ W
    else:
        block = Dense(values, 0.5) if kind == "dense" else csr_of(values, 0.5)
    return block, np.column_stack([values, np.full(ROWS, 0.5)]).astype(np.float64)


@pytest.fixture(params=["dense", "csr", "factored"])
def pair(request):
    return case(request.param)


@pytest.mark.parametrize("q", [None, 1, 3])
def test_operators_margins(pair, q):
    X, M = pair
    w = np.random.default_rng(2).normal(size=D + 1 if q is None else (D + 1, q))
    found = operators.margins(X, w)
    assert found.dtype == np.float64
    np.testing.assert_allclose(found, M @ w, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("q", [None, 1, 3])
def test_operators_adjoint(pair, q):
    X, M = pair
    a = np.random.default_rng(3).normal(size=ROWS if q is None else (ROWS, q))
    found = operators.adjoint(X, a, D)
    assert found.dtype == np.float64
    np.testing.assert_allclose(found, M.T @ a, rtol=1e-9, atol=1e-9)


@each_value(("share", [0.0, 0.01, 1.0]), ("dtype", [np.float32, np.float64]))
def test_operators_gram(pair, share, dtype):
    X, M = pair
    rng = np.random.default_rng(4)
    a = (rng.random(ROWS) * (rng.random(ROWS) < share)).astype(dtype)
    found = operators.gram(X, a, D)
    assert found.dtype == np.float64
    np.testing.assert_array_equal(found, found.T)
    expected = M.T @ (a[:, None] * M)
    np.testing.assert_allclose(found, expected, atol=1e-5 * max(1.0, np.abs(expected).max()))


def test_operators_adjoint_is_the_transpose_of_margins(pair):
    X, _ = pair
    rng = np.random.default_rng(5)
    w, a = rng.normal(size=D + 1), rng.normal(size=ROWS)
    assert a @ operators.margins(X, w) == pytest.approx(w @ operators.adjoint(X, a, D), rel=1e-10)
