"""The sums of a second-order step, each against a slow sum in float64: dense and sparse rows, weights, an empty row, numbers."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pytest

from streamsvm.compute.passes import newton
from streamsvm.compute.passes.certificate import RowLoss
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
each_weight = pytest.mark.parametrize("C", [0.7, 1.0])
"""With the second a row of weight 1 on the line of its loss has the dual variable 1."""
each_pair = pytest.mark.parametrize(("loss", "smooth"), PAIRS, ids=lambda loss: type(loss).__name__)


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


@each_pair
@each_weight
@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])
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


@each_pair
@each_weight
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
    found = newton.leverages(X, scale, 0.125)
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


@pytest.mark.parametrize("python", [False, True], ids=["compiled", "python"])
@pytest.mark.parametrize(("start", "salt"), [(0, 0), (7, 3), (1 << 40, 12)])
def test_newton_pass_keys_are_hashes_of_rows_divided_by_their_scores(start: int, salt: int, python: bool) -> None:
    """Hashes in (0, 1] of the number a row has in all, the same however rows are dealt out; a row of score 0 comes last."""
    scores = np.array([1.0, 0.0, 0.25, 4.0, 1.0])
    run = newton.keys_pass.py_func if python else newton.keys_pass
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
