"""Passes of second order: sums over rows, columns and coordinates set to their best, factors; each against the same written down slowly."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pytest

from streamsvm.compute.passes import newton, priority_sampling, rows_in_memory
from streamsvm.compute.passes.certificate import RowLoss
from streamsvm.compute.passes.cholesky import backward, forward, remove_row
from streamsvm.compute.passes.elastic_net import soft_threshold_sweep
from streamsvm.compute.passes.proximal_descent import metric_rows, proximal_sweep
from streamsvm.compute.passes.rows_in_memory import ENOUGH, Outside, RowTerms, column_sweep, columns_of
from streamsvm.losses import (
    EpsilonInsensitive,
    Hinge,
    Huber,
    Logistic,
    Squared,
    SquaredEpsilonInsensitive,
    SquaredHinge,
)
from streamsvm.rows import Dense, Labeled
from tests.arrays import csr_of, sparse_values
from tests.axes import each_value

N, D, BIAS = 23, 6, 0.5
PAIRS = [
    (SquaredHinge(), SquaredHinge()),
    (Hinge(), Huber(0.3)),
    (Huber(0.25), Huber(0.25)),
    (Logistic(2.0), Logistic(2.0)),
    (SquaredEpsilonInsensitive(0.4), SquaredEpsilonInsensitive(0.4)),
    (EpsilonInsensitive(0.4), EpsilonInsensitive(0.4).round_corners(0.1)),
    (Squared(), Squared()),
]
"""A loss, and the smooth one that slopes are of."""


class Case(NamedTuple):
    values: Any
    y: Any
    s: Any
    w: Any

    def rows(self, *, sparse: bool) -> Any:
        return csr_of(self.values, BIAS) if sparse else Dense(self.values, BIAS)

    @property
    def explicit(self) -> Any:
        """The rows as float64, with the constant feature."""
        return np.hstack([self.values, np.full((N, 1), BIAS)])


def case(loss: Any) -> Case:
    """All of it float64: a Python float times a float32 would be a float32 where a pass is not compiled."""
    rng = np.random.default_rng(11)
    values = sparse_values(rng, N, D).astype(np.float64)
    values[4] = 0.0
    y = rng.normal(size=N) if loss.numeric() else rng.choice([-1.0, 1.0], N)
    return Case(values, y, rng.choice([0.0, 0.25, 1.0, 4.0], N), rng.normal(size=D + 1))


class Term(NamedTuple):
    """What a row that counts adds."""

    row: int
    lost: float
    rounded: float
    a: float
    entry: float
    bend: float
    weight: float

    def gain(self, t: float, loss: Any, y: float) -> float:
        """What t a adds to the dual beside the norm."""
        return t * self.a * (y + 1.0 if loss.numeric() else 1.0) - float(loss.conjugate(t * self.a, self.weight))


def terms(given: Case, f: Any, C: float, loss: Any, smooth: Any) -> list[Term]:
    found = []
    for i in np.flatnonzero(given.s):
        weight, y = C * float(given.s[i]), float(given.y[i])
        m = f[i] - y if loss.numeric() else y * f[i]
        a = -weight * smooth.slope(m)
        bend = weight * smooth.second_derivative(m)
        sign = 1.0 if loss.numeric() else y
        found.append(Term(int(i), weight * loss.value(m), weight * smooth.value(m), a, a * sign, bend, weight))
    return found


def assert_sums(found: Any, given: Case, expected: list[Term], loss: Any) -> None:
    losses, smoothed, linear, quadratic = found
    assert losses == pytest.approx(sum(term.lost for term in expected), rel=1e-9)
    assert smoothed == pytest.approx(sum(term.rounded for term in expected), rel=1e-9)
    for t in (1.0, 0.5) if loss.quadratic() else (1.0,):
        gains = sum(term.gain(t, loss, float(given.y[term.row])) for term in expected)
        assert t * linear - t * t * quadratic == pytest.approx(gains, rel=1e-9, abs=1e-12)


@each_value(("loss, smooth", PAIRS), ("C", [0.7, 1.0]), ("sparse", [False, True]))
def test_newton_pass_one_reading_gives_decision_values_losses_dual_and_gradient(
    loss: Any, smooth: Any, sparse: bool, C: float
) -> None:
    given = case(loss)
    f, v, low = np.full(N, np.nan), np.ones(D + 1), np.zeros(D + 1)
    rows = Labeled(given.rows(sparse=sparse), given.y, given.s)
    found = newton.look_pass.py_func(rows, given.w, RowLoss(C, loss, smooth), f, v, low)
    np.testing.assert_allclose(f, given.explicit @ given.w, rtol=1e-9, atol=1e-12)
    expected = terms(given, f, C, loss, smooth)
    assert_sums(found, given, expected, loss)
    gradient = sum(term.entry * given.explicit[term.row] for term in expected)
    np.testing.assert_allclose(v + low, 1.0 + gradient, rtol=1e-9, atol=1e-12)


@each_value(("loss, smooth", PAIRS), ("C", [0.7, 1.0]))
def test_newton_pass_slopes_and_second_derivatives_are_those_of_every_row(loss: Any, smooth: Any, C: float) -> None:
    """And 0 for a row of weight 0."""
    given = case(loss)
    f = given.explicit @ given.w
    slopes, bends, alone = np.full((3, N), np.nan)
    found = newton.slopes_pass.py_func(given.y, given.s, f, RowLoss(C, loss, smooth), slopes, bends)
    newton.second_derivatives_pass.py_func(given.y, given.s, f, C, smooth, alone)
    expected = terms(given, f, C, loss, smooth)
    assert_sums(found, given, expected, loss)
    entries, curvatures = np.zeros((2, N))
    for term in expected:
        entries[term.row], curvatures[term.row] = term.entry, term.bend
    np.testing.assert_allclose(slopes, entries, rtol=1e-9, atol=1e-14)
    np.testing.assert_allclose(bends, curvatures, rtol=1e-9, atol=1e-14)
    np.testing.assert_array_equal(alone, bends)


@pytest.mark.parametrize("loss", [Huber(0.25), Logistic(), SquaredEpsilonInsensitive(0.2)], ids=str)
def test_newton_pass_trials_are_the_loss_sum_at_each_length(loss: Any) -> None:
    given, C = case(loss), 0.7
    f, df = given.explicit @ given.w, given.explicit @ given.w[::-1]
    steps = np.array([0.0, 0.5, 1.0, -2.0])
    found = newton.trial_pass.py_func(given.y, given.s, f, df, C, loss, steps)
    expected = [sum(term.lost for term in terms(given, f + t * df, C, loss, loss)) for t in steps]
    np.testing.assert_allclose(found, expected, rtol=1e-9)


@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])
def test_newton_pass_leverages_and_squares_are_sums_over_the_entries_of_a_row_and_of_a_column(sparse: bool) -> None:
    given = case(SquaredHinge())
    X, squares = given.rows(sparse=sparse), given.explicit**2
    scale = np.random.default_rng(2).uniform(0.05, 0.6, D + 1)
    found = priority_sampling.leverages(X, scale, 0.125)
    np.testing.assert_allclose(found, np.minimum(squares @ scale, 1.0) + 0.125, rtol=1e-9)
    assert (squares @ scale > 1.0).any()
    assert (squares @ scale < 1.0).any()
    a = np.random.default_rng(3).normal(size=N)
    np.testing.assert_allclose(newton.squares(X, a, D), a @ squares, rtol=1e-9, atol=1e-12)


def splitmix64(state: int) -> int:
    """The number that the generator gives from a state, after it was raised; Steele, Lea and Flood, OOPSLA 2014."""
    z = state % 2**64
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9 % 2**64
    z = (z ^ (z >> 27)) * 0x94D049BB133111EB % 2**64
    return z ^ (z >> 31)


@each_value(("python", [False, True]), ("start, salt", [(0, 0), (7, 3), (1 << 40, 12)]))
def test_newton_pass_keys_are_hashes_of_rows_divided_by_their_scores(start: int, salt: int, python: bool) -> None:
    """Hashes in (0, 1] of the number a row has in all, the same however rows are dealt out; a row of score 0 comes last."""
    scores = np.array([1.0, 0.0, 0.25, 4.0, 1.0])
    run = priority_sampling.keys_pass.py_func if python else priority_sampling.keys_pass
    keys, parts = np.empty(5), np.empty(5)
    with np.errstate(over="ignore"):  # whole numbers wrap around
        run(scores, start, salt, keys)
        for first, last in ((0, 2), (2, 5)):
            run(scores[first:last], start + first, salt, parts[first:last])
    np.testing.assert_array_equal(keys, parts)
    assert keys[1] == np.inf
    for i in (0, 2, 3, 4):
        state = salt * 0xBF58476D1CE4E5B9 + (start + i + 1) * 0x9E3779B97F4A7C15
        u = ((splitmix64(state) >> 11) + 1.0) / 2.0**53
        assert keys[i] == u / scores[i]


def test_newton_pass_compiled_is_its_python() -> None:
    loss, smooth, C = Hinge(), Huber(0.3), 0.7
    given, results = case(loss), []
    for compiled in (True, False):
        look, slopes, line = (
            one if compiled else one.py_func for one in (newton.look_pass, newton.slopes_pass, rows_in_memory.line_pass)
        )
        f, v, low, a, bends = np.empty(N), np.zeros(D + 1), np.zeros(D + 1), np.empty(N), np.empty(N)
        rows, terms = Labeled(given.rows(sparse=False), given.y, given.s), RowLoss(C, loss, smooth)
        sums = [*look(rows, given.w, terms, f, v, low), *slopes(given.y, given.s, f, terms, a, bends)]
        sums += line(given.y, given.s, f, given.explicit @ given.w[::-1], C, smooth, 0.6)
        results.append(np.concatenate([sums, f, v + low, a, bends]))
    np.testing.assert_allclose(results[0], results[1], rtol=1e-9, atol=1e-12)


@each_value(("loss", [SquaredHinge(), Huber(0.25), Logistic(2.0), SquaredEpsilonInsensitive(0.1)]), ("t", [0.0, 0.6]))
def test_newton_pass_derivatives_along_a_line(loss: Any, t: float) -> None:
    given, C = case(loss), 0.7
    f, df = given.explicit @ given.w, given.explicit @ given.w[::-1]
    m, sign = (f + t * df - given.y, np.ones(N)) if loss.numeric() else (given.y * (f + t * df), given.y)
    weights = C * given.s
    slope = sum(w * loss.slope(at) * g * d for w, at, g, d in zip(weights, m, sign, df, strict=True))
    bend = sum(w * loss.second_derivative(at) * d * d for w, at, d in zip(weights, m, df, strict=True))
    assert bend > 0.0
    assert rows_in_memory.line_pass(given.y, given.s, f, df, C, loss, t) == pytest.approx((slope, bend))


# -- one column after the other is set to its best -----------------------------------------------------------------------


ROWS, COLUMNS, C = 40, 7, 0.6
LOSSES = [SquaredHinge(), Huber(0.25), Logistic(), SquaredEpsilonInsensitive(0.2)]
RNG = np.random.default_rng(6)
VALUES = sparse_values(RNG, ROWS, COLUMNS)
VALUES[:, 3] = 0.0
S = RNG.choice([0.0, 0.5, 1.0, 3.0], ROWS)
OUTSIDE = Outside(RNG.uniform(0.5, 2.0, COLUMNS), RNG.normal(size=COLUMNS))
CHOSEN = np.array([5, 3, 0, 6])
"""Columns that are set, in this order, and one without an entry among them; others stay as they are."""


def slope(loss: Any, y: Any, j: int, w: Any) -> float:
    """The derivative of the objective in w_j."""
    X, f = VALUES.astype(np.float64), VALUES.astype(np.float64) @ w
    given = float(OUTSIDE.diagonal[j] * w[j] + OUTSIDE.linear[j])
    for i in range(ROWS):
        m, x = (f[i] - y[i], X[i, j]) if loss.numeric() else (y[i] * f[i], y[i] * X[i, j])
        given += C * float(S[i]) * loss.slope(float(m)) * x
    return given


def test_column_descent_columns_hold_the_entries_of_rows() -> None:
    found = columns_of(csr_of(VALUES), CHOSEN, COLUMNS)
    assert found.number.tolist() == [5, 0, 6], "one has no entry"
    for c, j in enumerate(found.number):
        part = slice(found.start[c], found.start[c + 1])
        there = np.flatnonzero(VALUES[:, j])
        np.testing.assert_array_equal(found.rows[part], there)
        np.testing.assert_array_equal(found.data[part], VALUES[there, j])
    assert found.start[-1] == len(found.rows) == len(found.data)


@each_value(("loss", LOSSES), ("negligible", [0.0, 1.0]))
def test_column_descent_each_column_is_set_to_its_best_once(loss: Any, negligible: float) -> None:
    """Slopes as they are met are summed up, and what is less than negligible is left alone."""
    rng = np.random.default_rng(7)
    y = (rng.normal(size=ROWS) if loss.numeric() else rng.choice([-1.0, 1.0], ROWS)).astype(np.float32)
    stored, begun = columns_of(csr_of(VALUES), CHOSEN, COLUMNS), 3.0 * rng.normal(size=COLUMNS)
    for run in (column_sweep, column_sweep.py_func):
        w = begun.copy()
        f = VALUES.astype(np.float64) @ w
        squares = run(stored, RowTerms(y, S, C, loss), OUTSIDE, negligible, w, f)
        before, expected, moved = begun.copy(), 0.0, set()
        for j in stored.number:
            first = slope(loss, y, j, before)
            expected += 0.5 * first**2
            before[j] = w[j]
            if first**2 <= negligible:
                assert w[j] == begun[j]
            else:
                assert abs(slope(loss, y, j, before)) <= 1.001 * ENOUGH * abs(first)
                moved.add(int(j))
        np.testing.assert_array_equal(w, before)
        np.testing.assert_allclose(f, VALUES.astype(np.float64) @ w, atol=1e-12)
        assert squares == pytest.approx(expected, rel=1e-9)
        assert moved == {0, 5, 6} or (negligible and moved)


# -- coordinates in a metric, and beside an l1 term ----------------------------------------------------------------------


Y, WEIGHTS = np.random.default_rng(8).choice([-1.0, 1.0], ROWS), np.random.default_rng(9).uniform(0.25, 3.0, ROWS)


@each_value(("loss", [Hinge(), Huber(0.25)]), ("bias", [0.0, 0.5]))
def test_proximal_pass_is_coordinate_ascent_in_its_inverse(loss: Any, bias: float) -> None:
    """Three full columns, the constant among them; w is (I + M)^-1 times the sum of rows, and rows at their bounds are left out."""
    full, rng = np.array([1, 4, COLUMNS]), np.random.default_rng(3)
    metric = np.diag(rng.uniform(1.0, 4.0, COLUMNS + 1))
    A = rng.normal(size=(3, 3))
    metric[np.ix_(full, full)] = A @ A.T + np.eye(3)
    inverse = np.linalg.inv(np.linalg.cholesky(metric[np.ix_(full, full)]))
    place = np.full(COLUMNS + 1, -1, np.int32)
    place[full] = np.arange(3)
    rows = metric_rows(csr_of(VALUES, bias), place, 1.0 / np.diag(metric), inverse)
    X, half, u, w, a = (
        np.hstack([VALUES.astype(np.float64), np.full((ROWS, 1), bias)]),
        np.linalg.inv(metric),
        np.zeros(3),
        np.zeros(COLUMNS + 1),
        np.zeros(ROWS),
    )
    slow, count, s = np.zeros(ROWS), ROWS, WEIGHTS
    order = np.random.default_rng(0).permutation(ROWS).astype(np.int32)
    terms, todo = RowTerms(Y, s, C, loss), list(order)
    np.testing.assert_allclose(rows.squares, np.einsum("ij,jk,ik->i", X, half, X), rtol=1e-5)
    for _ in range(3):
        left = proximal_sweep.py_func(rows, terms, order, count, a, w, u)
        kept = []
        for i in todo:
            weight = C * s[i]
            top, f = loss.upper(weight), X[i] @ half @ (X.T @ (slow * Y))
            G, Q = Y[i] * f - 1.0 + loss.conjugate_slope(slow[i], weight), X[i] @ half @ X[i] + loss.curvature(weight)
            if (slow[i] <= 0.0 and G > 0.0) or (slow[i] >= top and G < 0.0):
                continue
            kept.append(i)
            slow[i] = min(max(slow[i] - G / Q, 0.0), top) if Q > 0.0 else (top if G < 0.0 else slow[i])
        np.testing.assert_allclose(a, slow, rtol=1e-4, atol=1e-5)
        whole = w.copy()
        whole[full] = inverse.T @ u
        np.testing.assert_allclose(whole, half @ (X.T @ (slow * Y)), rtol=1e-4, atol=1e-4)
        assert list(order[:left]) == kept
        count, todo = left, kept


def test_elastic_net_pass_each_coordinate_is_set_to_its_best_beside_an_l1_term() -> None:
    """The least of 1/2 (1 + G_jj) t^2 - z t + l1 |t|, from three points: on either side of 0, and 0 itself."""
    rng, l1 = np.random.default_rng(1), 8.0
    A = rng.normal(size=(5, 5))
    gram, w, center, v = A @ A.T, 2.0 * rng.normal(size=5), rng.normal(size=5), 3.0 * rng.normal(size=5)
    g, chosen, slow = gram @ (w - center) - v, np.array([3, 0, 2, 4, 3]), w.copy()
    soft_threshold_sweep.py_func(gram, l1, chosen, w, g)
    for j in chosen:
        z = gram[j, j] * slow[j] - (gram @ (slow - center) - v)[j]
        points = [0.0, max((z - l1) / (1.0 + gram[j, j]), 0.0), min((z + l1) / (1.0 + gram[j, j]), 0.0)]
        values = [0.5 * (1.0 + gram[j, j]) * t * t - z * t + l1 * abs(t) for t in points]
        slow[j] = points[int(np.argmin(values))]
    np.testing.assert_allclose(w, slow, rtol=1e-9)
    np.testing.assert_allclose(g, gram @ (slow - center) - v, rtol=1e-9, atol=1e-12)
    assert (w == 0.0).any()
    assert w.min() < 0.0 < w.max()


# -- a factor whose rows go ----------------------------------------------------------------------------------------------


SIZE = 6


def chosen(one: Any, *, python: bool) -> Any:
    return one.py_func if python else one


def positive_definite() -> Any:
    A = np.random.default_rng(0).standard_normal((SIZE, SIZE + 3))
    return A @ A.T


def in_corner(L: Any, size: int) -> Any:
    """The factor in the corner of a larger array, which holds other numbers."""
    found = np.full((size, size), 7.0)
    found[: len(L), : len(L)] = L
    return found


@each_value(("size", [SIZE, SIZE + 2]), ("gone", range(SIZE)), ("python", [False, True]))
def test_cholesky_row_that_goes_leaves_the_factor_of_the_others(gone: int, size: int, python: bool) -> None:
    H = positive_definite()
    L = in_corner(np.linalg.cholesky(H), size)
    before = L.copy()
    chosen(remove_row, python=python)(L, SIZE, gone)
    left = np.delete(np.delete(H, gone, 0), gone, 1)
    found = np.tril(L[: SIZE - 1, : SIZE - 1])
    np.testing.assert_allclose(found @ found.T, left, rtol=1e-12, atol=1e-12)
    np.testing.assert_array_equal(L[SIZE - 1 :], before[SIZE - 1 :])
    np.testing.assert_array_equal(L[:, SIZE:], before[:, SIZE:])


@each_value(("size", [SIZE, SIZE + 2]), ("python", [False, True]))
def test_cholesky_triangular_systems(size: int, python: bool) -> None:
    lower = np.linalg.cholesky(positive_definite())
    L, b = in_corner(np.tril(lower), size), np.arange(1.0, size + 1.0)
    for solve, matrix in [(forward, lower), (backward, lower.T)]:
        x = b.copy()
        chosen(solve, python=python)(L, SIZE, x)
        np.testing.assert_allclose(x[:SIZE], np.linalg.solve(matrix, b[:SIZE]), rtol=1e-12)
        np.testing.assert_array_equal(x[SIZE:], b[SIZE:])
