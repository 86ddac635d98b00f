"""The passes that sum, scale and measure, and those along a line, each against its own plain Python and against numpy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from streamsvm.compute.blocks.column_scaling import scale_dense, scale_sparse
from streamsvm.compute.blocks.columns import dense_moments, sparse_moments
from streamsvm.compute.blocks.operators import decision_values
from streamsvm.compute.blocks.selection import take_rows
from streamsvm.compute.blocks.sums import dual_sum, loss_sum
from streamsvm.compute.passes.certificate import RowLoss, certify_pass, dual_terms
from streamsvm.compute.passes.line_search import Line, LineSums, breakpoints_pass, segment_pass
from streamsvm.compute.passes.newton import trial_pass
from streamsvm.losses import (
    EpsilonInsensitive,
    Hinge,
    Huber,
    Logistic,
    Pinball,
    SquaredEpsilonInsensitive,
    SquaredHinge,
)
from streamsvm.rows import Dense, Labeled, to_matrix
from streamsvm.types.problem import best_scale, dual_at, has_box, scale_dual
from tests.arrays import csr_of, sparse_values
from tests.axes import each_value

N, D, C, BIAS = 50, 9, np.float64(0.3), 0.5
RECORDS = [Hinge(), SquaredHinge(), Huber(0.25)]


each_loss = pytest.mark.parametrize("loss", RECORDS, ids=lambda loss: type(loss).__name__)


@pytest.fixture
def values() -> Any:
    found = sparse_values(np.random.default_rng(8), N, D)
    found[3] = 0.0
    found[:, 4] = 0.0
    return found


@pytest.fixture
def y() -> Any:
    return np.random.default_rng(9).choice([-1.0, 1.0], N).astype(np.float32)


@pytest.fixture
def s() -> Any:
    return np.random.default_rng(10).choice([0.0, 0.25, 1.0, 4.0], N).astype(np.float32)


def both_forms(values: Any) -> list[Any]:
    return [Dense(values, BIAS), csr_of(values, BIAS)]


def explicit(values: Any) -> Any:
    """The rows as float64, with the constant feature."""
    return np.hstack([values.astype(np.float64), np.full((len(values), 1), BIAS)])


def both(compiled: Any) -> tuple[Any, Any]:
    return compiled, compiled.py_func


@pytest.mark.parametrize("loss", [Huber(0.25), Logistic(), SquaredEpsilonInsensitive(0.2)], ids=str)
def test_passes_trial_sums_are_the_losses_at_each_length(loss: Any, values: Any, y: Any, s: Any) -> None:
    """No recorded trajectory shows a wrong length: it only shortens or lengthens steps that are tried."""
    steps = np.array([0.0, 0.5, 1.0, -2.0])
    w, step = np.random.default_rng(2).normal(size=(2, D + 1))
    f, df = explicit(values) @ w, explicit(values) @ step
    expected = []
    for t in steps:
        m = f + t * df - y if loss.numeric() else y * (f + t * df)
        expected.append(sum(float(C) * float(c) * loss.value(v) for c, v in zip(s, m, strict=True)))
    np.testing.assert_allclose(trial_pass(y, s, f, df, float(C), loss, steps), expected, rtol=1e-9)


@each_loss
def test_passes_loss_sum(loss: Any, values: Any, y: Any, s: Any) -> None:
    w = np.random.default_rng(1).normal(size=D + 1)
    m = y * (explicit(values) @ w)
    expected = sum(float(C) * float(c) * loss.value(v) for c, v in zip(s, m, strict=True))
    for run in both(loss_sum):
        for X in both_forms(values):
            assert run(X, y, s, w, C, loss) == pytest.approx(expected, rel=1e-12)


@each_loss
def test_passes_dual_sum_leaves_rows_without_weight_out(loss: Any, y: Any, s: Any) -> None:
    alpha = np.random.default_rng(2).random(N)
    terms = [
        a - loss.conjugate(a, float(C) * float(c)) for a, c in zip(alpha.tolist(), s.tolist(), strict=True) if c > 0.0
    ]
    for run in both(dual_sum):
        assert run(alpha, y, s, C, loss) == pytest.approx(sum(terms), rel=1e-12)


@each_loss
@pytest.mark.parametrize("smooth", [None, Huber(0.1)], ids=["own slopes", "rounded slopes"])
def test_passes_certify_pass_in_both_forms(loss: Any, smooth: Any, values: Any, y: Any, s: Any) -> None:
    w, smooth, X = np.random.default_rng(3).normal(size=D + 1), smooth or loss, explicit(values)
    weights = [float(C) * float(c) for c in s]
    m = y * (X @ w)
    a = np.array([-c * smooth.slope(v) for c, v in zip(weights, m, strict=True)])
    dual = sum(x - loss.conjugate(x, c) for x, c in zip(a, weights, strict=True) if c > 0.0)
    for run in both(certify_pass):
        for rows in both_forms(values):
            v = np.ones(D + 1)
            losses, linear, quadratic = run(Labeled(rows, y, s), w, RowLoss(C, loss, smooth), v)
            np.testing.assert_allclose(v, 1.0 + (a * y) @ X, atol=1e-12)
            assert linear - quadratic == pytest.approx(dual, rel=1e-12)
            assert losses == pytest.approx(sum(c * loss.value(u) for c, u in zip(weights, m, strict=True)), rel=1e-12)


@pytest.mark.parametrize("problems", [1, 3])
def test_passes_decision_values(problems: int, values: Any) -> None:
    W = np.random.default_rng(4).normal(size=(problems, D + 1))
    for run in both(decision_values):
        for X in both_forms(values):
            out = np.full((N, problems), np.nan)
            run(X, W, out)
            np.testing.assert_allclose(out, explicit(values) @ W.T, rtol=1e-12, atol=1e-12)


def test_passes_sum_over_rows_is_a_float64_sum() -> None:
    """One large and many small entries: in float32 the small ones would be lost."""
    values = np.full((1, 4097), 2.0**-12, np.float32)
    values[0, 0] = 2.0**14
    out = np.empty((1, 1))
    for X in (Dense(values), csr_of(values)):
        decision_values(X, np.ones((1, 4098)), out)
        assert out[0, 0] == 2.0**14 + 1.0


def test_passes_scaling_is_numpys_to_the_last_bit(values: Any) -> None:
    rng = np.random.default_rng(5)
    shift, scale = rng.normal(size=D).astype(np.float32), rng.random(D).astype(np.float32)
    for run in both(scale_dense):
        found = values.copy()
        run(found, shift, scale)
        np.testing.assert_array_equal(found, (values - shift) * scale)
    for run in both(scale_sparse):
        rows = csr_of(values)
        run(rows.data, rows.indices, shift, scale)
        np.testing.assert_array_equal(rows.data, ((values - shift) * scale)[values != 0.0])


def test_passes_moments_of_dense_rows(values: Any) -> None:
    shift = np.linspace(-1.0, 1.0, D)
    for run in both(dense_moments):
        sums, squares, low, high = np.ones(D), np.ones(D), np.full(D, np.inf), np.full(D, -np.inf)
        run(values, shift, sums, squares, low, high)
        moved = values.astype(np.float64) - shift
        np.testing.assert_allclose(sums, 1.0 + moved.sum(0), rtol=1e-12, atol=1e-12)
        np.testing.assert_allclose(squares, 1.0 + (moved**2).sum(0), rtol=1e-12)
        np.testing.assert_array_equal(low, values.min(0))
        np.testing.assert_array_equal(high, values.max(0))


def test_passes_moments_of_sparse_rows_are_of_their_entries(values: Any) -> None:
    rows = csr_of(values)
    stored = np.ma.masked_equal(values.astype(np.float64), 0.0)
    for run in both(sparse_moments):
        counts, sums, squares, shift = np.zeros(D, np.int64), np.zeros(D), np.zeros(D), np.zeros(D)
        low, high = np.full(D, np.inf), np.full(D, -np.inf)
        run(rows.data, rows.indices, shift, counts, sums, squares, low, high)
        np.testing.assert_array_equal(counts, (values != 0).sum(0))
        first = [next(iter(column[column != 0]), 0.0) for column in values.T]
        np.testing.assert_array_equal(shift, first)
        np.testing.assert_allclose(sums, (stored - first).sum(0).filled(0.0), rtol=1e-12, atol=1e-12)
        np.testing.assert_allclose(squares, ((stored - first) ** 2).sum(0).filled(0.0), rtol=1e-12)
        np.testing.assert_array_equal(low, stored.min(0).filled(np.inf))
        np.testing.assert_array_equal(high, stored.max(0).filled(-np.inf))


@each_value(("loss", [Hinge(), SquaredHinge(), Huber(), Logistic()]), ("size", [0.1, 3.0]))
def test_passes_scaled_dual_is_the_best_along_the_ray(loss: Any, size: float) -> None:
    """D(t a) as it is written, row by row, over a grid of t that keep t a feasible."""
    rng = np.random.default_rng(4)
    X, C, share = size * rng.normal(size=(20, 3)), rng.uniform(0.5, 2.0, 20), rng.uniform(0.1, 0.9, 20)
    a = C * share
    square = float(np.sum((a @ X) ** 2))
    linear, quadratic = np.sum([dual_terms.py_func(loss, x, 1.0, c) for x, c in zip(a, C, strict=True)], axis=0)

    def dual(t: float) -> float:
        return sum(t * one - loss.conjugate(t * one, c) for one, c in zip(a, C, strict=True)) - 0.5 * t * t * square

    grid = np.geomspace(1e-3, 1.0 if has_box(loss) else 20.0, 4001)
    values = [dual_at(t, linear, quadratic, square) for t in grid]
    exact = [dual(t) for t in grid]
    assert dual_at(1.0, linear, quadratic, square) == pytest.approx(dual(1.0), rel=1e-12)
    assert (np.array(values) <= np.array(exact) + 1e-9 * (1.0 + np.abs(exact))).all()
    if loss.quadratic():
        np.testing.assert_allclose(values, exact, rtol=1e-9, atol=1e-12)
    assert scale_dual(loss, linear, quadratic, square) == pytest.approx(max(values), rel=1e-5, abs=1e-12)


@pytest.mark.parametrize("linear", [-1.0, 0.0])
def test_passes_nothing_is_better_than_no_dual_point_where_none_gains(linear: float) -> None:
    assert best_scale(Hinge(), linear, 1.0, 1.0) == 0.0
    assert scale_dual(SquaredHinge(), linear, 1.0, 1.0) == 0.0


def test_passes_dual_point_whose_rows_sum_to_zero_is_scaled_up_to_its_box() -> None:
    assert best_scale(Hinge(), 1.0, 0.0, 0.0) == 1.0
    assert scale_dual(Hinge(), 1.0, 0.0, 0.0) == 1.0
    assert scale_dual(SquaredHinge(), 1.0, 0.0, 0.0) == 0.0


@pytest.mark.parametrize("sparse", [False, True])
def test_passes_rows_are_taken_in_any_order_the_last_among_them(sparse: bool, values: Any) -> None:
    chosen = np.array([len(values) - 1, 0, len(values) - 1, 3])
    rows = take_rows(csr_of(values) if sparse else Dense(values), chosen)
    np.testing.assert_array_equal(to_matrix(rows, values.shape[1]), values[chosen])


# -- sums along a line ---------------------------------------------------------------------------------------------------


FEW, SIX, HALF, ONE = 23, 5, 0.5, 1.0
RNG = np.random.default_rng(21)
VALUES = sparse_values(RNG, FEW, SIX).astype(np.float64)
VALUES[4] = 0.0
X = np.hstack([VALUES, np.full((FEW, 1), HALF)])
SIGNS, NUMBERS = RNG.choice([-1.0, 1.0], FEW), RNG.normal(size=FEW)
S = RNG.choice([0.0, 0.25, 1.0, 4.0], FEW)
"""A row of weight 1 on the line of its loss has the dual variable 1. All float64: a Python float times a float32 would be a float32 where a pass is not compiled."""
WEIGHTED: list[int] = np.flatnonzero(S).tolist()


def targets(loss: Any) -> Any:
    return NUMBERS if loss.numeric() else SIGNS


def argument(loss: Any, i: int, f: float) -> float:
    y = float(targets(loss)[i])
    return f - y if loss.numeric() else y * f


def gain(loss: Any, i: int, a: float) -> float:
    """What a row adds to the dual beside the norm."""
    return float(a * (NUMBERS[i] + 1.0 if loss.numeric() else 1.0) - loss.conjugate(a, ONE * S[i]))


@each_value(
    ("loss", [Hinge(), SquaredHinge(), Huber(0.2), Logistic(), SquaredEpsilonInsensitive(0.3)]),
    ("sparse", [False, True]),
)
def test_line_sums_segment_is_summed_at_each_of_its_points(loss: Any, sparse: bool) -> None:
    """Losses, dual values and dual points; rows whose slope does not change are summed once, all others apart."""
    w, d, steps = RNG.normal(size=SIX + 1), RNG.normal(size=SIX + 1), np.array([0.0, 0.4, 1.0])
    losses, gains, v, low, apart, lows = (
        np.ones(3),
        np.ones(3),
        np.ones(SIX + 1),
        *np.zeros((1, SIX + 1)),
        *np.zeros((2, 3, SIX + 1)),
    )
    rows, f, df = csr_of(VALUES, HALF) if sparse else Dense(VALUES, HALF), np.empty(FEW), np.empty(FEW)
    given, line = Labeled(rows, targets(loss), S), Line(w, d, steps, ONE, loss)
    segment_pass.py_func(given, line, f, df, LineSums(losses, gains, v, low, apart, lows))
    np.testing.assert_allclose(f, X @ w, rtol=1e-12)
    np.testing.assert_allclose(df, X @ d, rtol=1e-12)
    alike, others, found = np.ones(SIX + 1), np.zeros((3, SIX + 1)), np.ones((2, 3))
    for i in WEIGHTED:
        m = [argument(loss, i, X[i] @ (w + t * d)) for t in steps]
        a = [-ONE * S[i] * loss.slope(at) for at in m]
        found += [[ONE * S[i] * loss.value(at) for at in m], [gain(loss, i, one) for one in a]]
        sign = 1.0 if loss.numeric() else SIGNS[i]
        if a[0] == a[1] == a[2]:
            alike += a[0] * sign * X[i]
        else:
            others += np.multiply.outer(a, sign * X[i])
    np.testing.assert_allclose([losses, gains], found, rtol=1e-9)
    np.testing.assert_allclose(v + low, alike, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(apart + lows, others, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("loss", [Hinge(), Hinge(2.0), EpsilonInsensitive(0.3), Pinball(0.8)], ids=str)
def test_line_sums_lines_sorted_by_their_corners_give_the_loss_at_every_point_of_a_grid(loss: Any) -> None:
    """Also where the line does not move, and where its corner is a point of the grid or beyond all of them."""
    f, df, grid = 1.5 * RNG.normal(size=FEW), RNG.normal(size=FEW), np.array([0.0, 0.25, 1.0, 1.5])
    df[:6] = 0.0
    f[7], df[7] = (NUMBERS[7] + 0.3 if loss.numeric() else SIGNS[7]) - 0.25, 1.0
    sums = np.zeros((2, len(grid) + 1, 2))
    breakpoints_pass.py_func(targets(loss), S, f, df, RowLoss(ONE, loss, loss), grid, sums)
    for j, t in enumerate(grid):
        lines = sums[0, j + 1 :].sum(0) + sums[1, : j + 1].sum(0)
        at = [ONE * S[i] * loss.value(argument(loss, i, f[i] + t * df[i])) for i in range(FEW)]
        assert lines[0] - t * lines[1] == pytest.approx(sum(at), rel=1e-9)
