"""Triangular systems by blocks equal dense ones, for every shape of the right side and around the edges of a block."""

from __future__ import annotations

import numpy as np
import pytest

from streamsvm.compute import threading
from streamsvm.solvers.triangular import BLOCK, STRIP, cholesky, solve_factorized, solve_lower, solve_lower_transposed
from tests.axes import each_value


def positive_definite(p: int) -> np.ndarray:
    X = np.random.default_rng(p).standard_normal((2 * p + 3, p))
    return X.T @ X + np.eye(p)


@each_value(("p", [1, 2, BLOCK - 1, BLOCK, BLOCK + 1, 3 * BLOCK + 5]), ("columns", [(), (1,), (7,)]))
def test_triangular_what_was_solved_multiplies_back(p: int, columns: tuple[int, ...]) -> None:
    lower = np.linalg.cholesky(positive_definite(p))
    right = np.random.default_rng(1).standard_normal((p, *columns))
    given = right.copy()
    np.testing.assert_allclose(lower @ solve_lower(lower, right), right, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(lower.T @ solve_lower_transposed(lower, right), right, rtol=1e-9, atol=1e-9)
    np.testing.assert_array_equal(right, given)


def test_triangular_what_lies_above_the_diagonal_is_not_looked_at() -> None:
    lower = np.linalg.cholesky(positive_definite(BLOCK + 9))
    filled = lower + np.triu(np.full_like(lower, 1e6), 1)
    right = np.arange(float(len(lower)))
    np.testing.assert_array_equal(solve_lower(filled, right), solve_lower(lower, right))
    np.testing.assert_array_equal(solve_lower_transposed(filled, right), solve_lower_transposed(lower, right))


@pytest.mark.parametrize("p", [1, STRIP, STRIP + 1, 2 * STRIP + BLOCK + 3])
def test_triangular_factor_in_blocks_is_that_of_the_whole_whoever_makes_it(p: int) -> None:
    matrix = positive_definite(p)
    found = []
    for threads in (1, 2, 5):
        with threading.use_threads(threads):
            found.append(cholesky(matrix + np.triu(np.full_like(matrix, 7.0), 1)))
        np.testing.assert_array_equal(found[-1], found[0])
    np.testing.assert_allclose(found[0], np.linalg.cholesky(matrix), rtol=1e-9, atol=1e-9 * np.sqrt(p))
    matrix[p - 1, p - 1] = -1.0
    with pytest.raises(np.linalg.LinAlgError):
        cholesky(matrix)


def test_triangular_factorization_solves_what_was_factorized() -> None:
    matrix = positive_definite(2 * BLOCK + 1)
    right = np.arange(float(len(matrix)))
    found = solve_factorized(np.linalg.cholesky(matrix), right)
    np.testing.assert_allclose(matrix @ found, right, rtol=1e-8, atol=1e-8)


def test_triangular_zero_on_the_diagonal_is_an_error() -> None:
    with pytest.raises(np.linalg.LinAlgError):
        solve_lower(np.zeros((3, 3)), np.ones(3))
