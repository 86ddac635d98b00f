"""A Cholesky factor whose rows go, against one made anew; what lies beyond it in the array is neither read nor changed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from streamsvm.compute.passes.active_set import backward, forward, remove_row
from tests.axes import each_value

K = 6
either_way = pytest.mark.parametrize("python", [False, True], ids=["compiled", "python"])


def chosen(one: Any, *, python: bool) -> Any:
    return one.py_func if python else one


def positive_definite() -> Any:
    A = np.random.default_rng(0).standard_normal((K, K + 3))
    return A @ A.T


def in_corner(L: Any, size: int) -> Any:
    """The factor in the corner of a larger array, which holds other numbers."""
    found = np.full((size, size), 7.0)
    found[: len(L), : len(L)] = L
    return found


@either_way
@each_value(("size", [K, K + 2]), ("gone", range(K)))
def test_cholesky_row_that_goes_leaves_the_factor_of_the_others(gone: int, size: int, python: bool) -> None:
    H = positive_definite()
    L = in_corner(np.linalg.cholesky(H), size)
    before = L.copy()
    chosen(remove_row, python=python)(L, K, gone)
    left = np.delete(np.delete(H, gone, 0), gone, 1)
    found = np.tril(L[: K - 1, : K - 1])
    np.testing.assert_allclose(found @ found.T, left, rtol=1e-12, atol=1e-12)
    np.testing.assert_array_equal(L[K - 1 :], before[K - 1 :])
    np.testing.assert_array_equal(L[:, K:], before[:, K:])


@either_way
@pytest.mark.parametrize("size", [K, K + 2])
def test_cholesky_triangular_systems(size: int, python: bool) -> None:
    lower = np.linalg.cholesky(positive_definite())
    L, b = in_corner(np.tril(lower), size), np.arange(1.0, size + 1.0)
    for solve, matrix in [(forward, lower), (backward, lower.T)]:
        x = b.copy()
        chosen(solve, python=python)(L, K, x)
        np.testing.assert_allclose(x[:K], np.linalg.solve(matrix, b[:K]), rtol=1e-12)
        np.testing.assert_array_equal(x[K:], b[K:])
