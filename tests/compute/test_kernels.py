"""Kernel values against the records' own Python, within their bounds of rounding."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from numba import njit

from streamsvm import kernels
from streamsvm.compute.kernel_values import kernel_matrix
from streamsvm.compute.kernel_values.arithmetic import (
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
from streamsvm.compute.kernel_values.elementary import exp32, exp64
from streamsvm.compute.kernel_values.kernel_matrix import squares_of
from streamsvm.compute.kernel_values.kernel_products import expand, tiles
from streamsvm.compute.kernel_values.kernel_products import gram as gram_matrix
from streamsvm.compute.passes import kernel_rows
from streamsvm.compute.passes.certificate import RowLoss
from streamsvm.kernels import RBF, Laplacian, Linear, Polynomial, Sigmoid
from streamsvm.losses import EpsilonInsensitive, Hinge, Huber, Pinball, SquaredEpsilonInsensitive, SquaredHinge
from streamsvm.rows import Dense, Reach
from streamsvm.types import Loss
from tests.arrays import csr_of, sparse_values
from tests.axes import each_value

# -- elementary functions ------------------------------------------------------------------------------------------------


NEAR = np.linspace(-3.0, 3.0, 41)
"""On both sides of 0 and of several multiples of ln 2."""


@pytest.mark.parametrize("run", [exp32, exp32.py_func], ids=["compiled", "python"])
def test_elementary_exp_in_float32(run: Any) -> None:
    for x in (*NEAR.astype(np.float32), np.float32(-80.0), np.float32(80.0)):
        assert run(x) == pytest.approx(math.exp(x), rel=1.2e-7)
    assert run(np.float32(-1e9)) == pytest.approx(math.exp(-87.33), rel=1e-5)
    assert run(np.float32(1e9)) == pytest.approx(math.exp(88.37), rel=1e-5)
    with np.errstate(invalid="ignore"):
        assert math.isnan(run(np.float32(np.nan)))


@pytest.mark.parametrize("run", [exp64, exp64.py_func], ids=["compiled", "python"])
def test_elementary_exp_in_float64(run: Any) -> None:
    for x in (*NEAR, np.float64(-700.0), np.float64(700.0)):
        assert run(x) == pytest.approx(math.exp(x), rel=9e-16)
    assert run(np.float64(-1e9)) == pytest.approx(math.exp(-708.0), rel=1e-12)
    assert run(np.float64(1e9)) == pytest.approx(math.exp(709.0), rel=1e-12)
    assert math.isnan(run(np.float64(np.nan)))


@njit
def compiled_functions(x: Any) -> Any:
    return kernels.exp(x), kernels.tanh(x), kernels.positive(x)


@njit
def compiled_power(x: float, degree: float) -> Any:
    return kernels.power(x, degree)


@pytest.mark.parametrize(("of", "error"), [(np.float32, 3e-7), (np.float64, 1e-15)], ids=["float32", "float64"])
def test_elementary_functions_of_kernels_are_compiled_for_each_type(of: Any, error: float) -> None:
    for x in NEAR.astype(of):
        exp, tanh, positive = compiled_functions(x)
        assert exp == pytest.approx(math.exp(x), rel=error)
        assert tanh == pytest.approx(math.tanh(x), abs=error)
        assert positive == max(x, 0.0)
    assert math.isnan(compiled_functions(of(np.nan))[2])


@pytest.mark.parametrize("degree", [0.0, 1.0, 2.0, 2.5, 3.0, 4.0, 5.0, 7.0])
def test_elementary_powers_are_products_where_they_are_usual_ones(degree: float) -> None:
    for x in (0.0, 0.3, 1.0, 1.7, *((-1.3,) if degree.is_integer() else ())):
        assert compiled_power(x, degree) == pytest.approx(x**degree, rel=1e-14)


@njit
def exp32_of(x: Any, out: Any) -> None:
    for i in range(x.size):
        out[i] = exp32(x[i])


def test_elementary_exp_in_float32_is_accurate_to_1e_7() -> None:
    x = np.linspace(-87.3, 88.3, 1_000_003).astype(np.float32)
    out = np.empty_like(x)
    exp32_of(x, out)
    exact = np.exp(x.astype(np.float64))
    assert np.max(np.abs(out - exact) / exact) < 1e-7


@njit
def exp64_of(x: Any, out: Any) -> None:
    for i in range(x.size):
        out[i] = exp64(x[i])


def test_elementary_exp_in_float64_is_right_to_two_units() -> None:
    x = np.linspace(-707.9, 708.9, 1_000_003)
    out = np.empty_like(x)
    exp64_of(x, out)
    assert np.max(np.abs(out / np.exp(x) - 1.0)) <= 4.5e-16
    ends = np.array([0.0, -1e9, np.inf, np.nan])
    exp64_of(ends, out[:4])
    assert out[0] == 1.0
    assert out[1] < 1e-300
    assert out[2] > 1e307
    assert np.isnan(out[3])


# -- kernel values -------------------------------------------------------------------------------------------------------


KERNEL_CASES = [
    RBF(0.3),
    Laplacian(0.2),
    Polynomial(0.2, 1.0, 3.0),
    Polynomial(0.1, 0.5, 5.0),
    Sigmoid(0.1),
    Linear(0.5),
]


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


@each_value(("kernel", KERNEL_CASES), ("d", [1, 7, 40]))
def test_gram_block_equals_the_definition(kernel: Any, d: int) -> None:
    rng = np.random.default_rng(d)
    X, Z = sparse_values(rng, 33, d), sparse_values(rng, 21, d)
    expected = similarities(kernel, X, Z)
    points = kernel_matrix.points_of(Z)
    for rows in (Dense(X, 1.0), csr_of(X, 1.0)):
        out = np.empty((33, 21), np.float32)
        kernel_matrix.kernel_block(rows, points, kernel, out)
        np.testing.assert_allclose(out, expected, rtol=1e-4, atol=2e-6)


@pytest.mark.parametrize("kernel", KERNEL_CASES, ids=str)
def test_gram_diagonal(kernel: Any) -> None:
    X = sparse_values(np.random.default_rng(3), 20, 9)
    expected = np.diag(similarities(kernel, X, X))
    for rows in (Dense(X), csr_of(X)):
        np.testing.assert_allclose(kernel_matrix.diagonal(rows, kernel), expected, rtol=1e-5)


def test_gram_coincident_points_have_similarity_one() -> None:
    X = (1000.0 + np.random.default_rng(0).normal(size=(50, 5))).astype(np.float32)
    out = np.empty((50, 50), np.float32)
    kernel_matrix.kernel_block(Dense(X), kernel_matrix.points_of(X), RBF(1e-6), out)
    assert out.max() <= 1.0
    np.testing.assert_allclose(np.diag(out), 1.0, atol=1e-5)


def test_gram_rows_of_another_type_are_converted_a_few_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that no second copy of all of them is ever there; those of the same type are multiplied at once."""
    rng, heights = np.random.default_rng(0), []
    X, Z = rng.random((1000, 5)).astype(np.float32), rng.random((7, 5))
    matmul = np.matmul

    def noted(rows: Any, points: Any, out: Any) -> Any:
        heights.append(len(rows))
        return matmul(rows, points, out=out)

    monkeypatch.setattr(kernel_matrix.np, "matmul", noted)
    monkeypatch.setattr(kernel_matrix, "CONVERTED_ROWS", 300)
    for dtype, expected in [(np.float64, [300, 300, 300, 100]), (np.float32, [1000])]:
        heights.clear()
        out = np.empty((1000, 7), dtype)
        kernel_matrix.dot_products(Dense(X), kernel_matrix.points_of(Z.astype(dtype), dtype), out)
        assert heights == expected
        np.testing.assert_allclose(out, X @ Z.T.astype(dtype), rtol=1e-5)
    kernel_matrix.dot_products(
        Dense(X[:0]), kernel_matrix.points_of(Z.astype(np.float32)), np.empty((0, 7), np.float32)
    )


OF_ALL_WIDTHS = [
    RBF(0.3),
    RBF(1e4),
    Laplacian(0.2),
    Laplacian(1e9),
    Polynomial(0.2, 1.0, 3.0),
    Sigmoid(0.1),
    Linear(0.5),
]


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


@pytest.mark.parametrize("kernel", OF_ALL_WIDTHS, ids=str)
@each_value(("arithmetic, sparse", [(SINGLE, False), (DOUBLE, True), (DIFFERENCES, False)]), ("offset", [0.0, 1e3]))
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
        np.testing.assert_array_equal(np.diag(gram_matrix(Dense(X), RBF(1e9), 5, arithmetic)), 1.0)


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


# -- what kernel solvers derive of rows ----------------------------------------------------------------------------------


N, C, B = 24, 0.7, 0.3
MARGINS: list[Loss] = [Hinge(2.0), SquaredHinge(), Huber(0.25)]
NUMBERS: list[Loss] = [EpsilonInsensitive(0.4), SquaredEpsilonInsensitive(0.4), Pinball(0.7)]
RNG = np.random.default_rng(31)
F, S = RNG.normal(size=N), np.resize([0.0, 0.5, 1.0, 3.0], N)


@each_value(("loss", [*MARGINS, *NUMBERS]), ("slack", [0.0, 0.25]))
def test_kernel_rows_losses_of_shifted_values_are_the_largest_within_the_slack(loss: Any, slack: float) -> None:
    """On a grid of what the decision value may be: that of a margin at its left end, that of a residual at one of both."""
    y = RNG.normal(size=N) if loss.numeric() else RNG.choice([-1.0, 1.0], N)
    shifts, sums = np.array([-0.5, 0.0, 1.0]), np.ones(3)
    kernel_rows.sum_shifted_losses.py_func(F, y, S, RowLoss(C, loss, loss), slack, shifts, sums)
    near = np.linspace(-slack, slack, 21)
    expected, costs = np.ones(3), []
    for i in range(N):
        f = F[i] + shifts[:, None] + near
        m = f - y[i] if loss.numeric() else y[i] * f
        most = np.vectorize(loss.value, otypes=[float])(m).max(1)
        expected += C * S[i] * most
        costs.append(most[1] > 0.0)
    np.testing.assert_allclose(sums, expected, rtol=1e-12)
    np.testing.assert_array_equal(kernel_rows.can_have_loss.py_func(F, y, loss, slack), costs)
