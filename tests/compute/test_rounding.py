"""Bounds of rounding hold: against sums of differences in long doubles, for rows near 0 and far from it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numba import njit

from streamsvm.compute.kernel_values.elementary import exp64
from streamsvm.compute.kernel_values.expansion import expand, gram, tiles
from streamsvm.compute.kernel_values.gram import squares_of
from streamsvm.compute.kernel_values.rounding import (
    DIFFERENCES,
    DOUBLE,
    SINGLE,
    TINY,
    UNITS,
    error_of,
    exact_arithmetic,
    reach_of,
    working_arithmetic,
)
from streamsvm.kernels import RBF, Laplacian, Linear, Polynomial, Sigmoid
from streamsvm.rows import Dense, Reach
from tests.arrays import csr_of

KERNELS = [RBF(0.3), RBF(1e4), Laplacian(0.2), Laplacian(1e9), Polynomial(0.2, 1.0, 3.0), Sigmoid(0.1), Linear(0.5)]


@njit
def exp_of(x: Any, out: Any) -> None:
    for i in range(x.size):
        out[i] = exp64(x[i])


def test_kernel_rounding_exp_in_float64_is_right_to_two_units() -> None:
    x = np.linspace(-707.9, 708.9, 1_000_003)
    out = np.empty_like(x)
    exp_of(x, out)
    assert np.max(np.abs(out / np.exp(x) - 1.0)) <= 4.5e-16
    ends = np.array([0.0, -1e9, np.inf, np.nan])
    exp_of(ends, out[:4])
    assert out[0] == 1.0
    assert out[1] < 1e-300
    assert out[2] > 1e307
    assert np.isnan(out[3])


def obvious(kernel: Any, X: Any, Z: Any) -> Any:
    """Kernel values in long doubles, distances from differences."""
    X, Z = X.astype(np.longdouble), Z.astype(np.longdouble)
    difference = X[:, None, :] - Z[None, :, :]
    match kernel:
        case RBF():
            return np.exp(-np.longdouble(kernel.gamma) * np.square(difference).sum(2))
        case Laplacian():
            return np.exp(-np.longdouble(kernel.gamma) * np.abs(difference).sum(2))
        case Polynomial():
            return (kernel.gamma * (X @ Z.T) + kernel.coef0) ** int(kernel.degree)
        case Sigmoid():
            return np.tanh(kernel.gamma * (X @ Z.T) + kernel.coef0)
    return kernel.scale * (X @ Z.T)


@pytest.mark.parametrize("kernel", KERNELS, ids=str)
@pytest.mark.parametrize(("arithmetic", "sparse"), [(SINGLE, False), (DOUBLE, True), (DIFFERENCES, False)])
@pytest.mark.parametrize("offset", [0.0, 1e3])
def test_kernel_values_are_within_their_rounding_bounds(
    kernel: Any, offset: float, arithmetic: int, sparse: bool
) -> None:
    rng = np.random.default_rng(7)
    X = (offset + rng.normal(size=(90, 13))).astype(np.float32)
    X[40:50] = X[:10]
    rows = csr_of(X) if sparse else Dense(X)
    if arithmetic == DIFFERENCES and not kernel.translation_invariant():
        arithmetic = DOUBLE
    reach = reach_of(rows, squares_of(rows, np.float64))
    expected = obvious(kernel, X, X)
    found = np.empty(expected.shape)
    for i, j, tile in tiles(rows, rows, kernel, 13, arithmetic):
        found[i, j] = tile
    assert np.max(np.abs(found - expected)) <= error_of(kernel, reach, arithmetic)
    out = np.zeros(90)
    c = rng.normal(size=90)
    expand(rows, rows, c, kernel, 13, out, arithmetic)
    sums = 92 * 2.0**-53 * kernel.largest(reach)
    assert np.max(np.abs(out - expected @ c)) <= np.abs(c).sum() * (error_of(kernel, reach, arithmetic) + sums)


def test_kernel_rounding_differences_do_not_feel_how_narrow_a_kernel_is_or_how_far_from_zero() -> None:
    reach = Reach(10, 1e16)
    assert error_of(RBF(1e12), reach, SINGLE) == pytest.approx(1.0, rel=1e-5)
    assert error_of(RBF(1e12), reach, DOUBLE) == pytest.approx(1.0)
    assert error_of(RBF(1e12), reach, DIFFERENCES) < 2e-15
    assert exact_arithmetic(RBF(1e12), reach, 10) == DIFFERENCES
    assert exact_arithmetic(RBF(0.1), Reach(10, 10.0), 10) == DOUBLE
    assert working_arithmetic(RBF(0.1), Reach(10, 10.0), 10) == SINGLE
    assert working_arithmetic(RBF(1e12), Reach(10, 10.0), 10) == DIFFERENCES


def test_kernel_rounding_diagonal_of_a_gram_matrix_is_one_however_narrow_the_kernel() -> None:
    X = np.random.default_rng(1).normal(size=(600, 5)).astype(np.float32)
    for arithmetic in (SINGLE, DOUBLE, DIFFERENCES):
        np.testing.assert_array_equal(np.diag(gram(Dense(X), RBF(1e9), 5, arithmetic)), 1.0)


def test_kernel_rounding_where_products_underflow_their_error_is_counted() -> None:
    """Products of 1e-50 are 0 in float32: each is off by all of itself."""
    X = np.full((2, 3), 1e-25, np.float32)
    reach = reach_of(Dense(X), squares_of(Dense(X), np.float64))
    expected = obvious(Linear(1.0), X, X)
    found = next(tile for _, _, tile in tiles(Dense(X), Dense(X), Linear(1.0), 3, SINGLE))
    assert (np.abs(found - expected) > 1e-6 * expected).all()
    assert np.max(np.abs(found - expected)) <= error_of(Linear(1.0), reach, SINGLE) < 20 * TINY[SINGLE]
    assert error_of(RBF(1.0), Reach(3, 0.0), SINGLE) == RBF(1.0).value_error(Reach(3, 0.0), UNITS[SINGLE])


def test_kernel_rounding_what_float32_does_not_hold_is_not_worked_with_in_float32() -> None:
    least, most = float(np.finfo(np.float32).tiny), float(np.finfo(np.float32).max)
    reach = Reach(3, 1.0)
    for kernel in (
        RBF(least),
        RBF(most),
        Polynomial(0.1, 0.0, 2.0),
        Polynomial(1.0, 1.0, 1.0),
        Polynomial(0.1, -1.0, 2.0),
    ):
        assert error_of(kernel, reach, SINGLE) < np.inf
    for other in (RBF(0.5 * least), RBF(2.0 * most), Polynomial(1e-45, 1.0, 3.0), Sigmoid(0.1, -1e39)):
        assert error_of(other, reach, SINGLE) == np.inf
        assert error_of(other, reach, DOUBLE) < np.inf
    assert error_of(RBF(1.0), Reach(3, 0.25 * most), SINGLE) < np.inf
    assert error_of(RBF(1.0), Reach(3, 0.26 * most), SINGLE) == np.inf
