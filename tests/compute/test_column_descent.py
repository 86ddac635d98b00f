"""One column after the other set to its best, against the objective as anyone would write it down."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from streamsvm.compute.passes.rows_in_memory import ENOUGH, Outside, RowTerms, column_sweep, columns_of
from streamsvm.losses import Huber, Logistic, SquaredEpsilonInsensitive, SquaredHinge
from tests.arrays import csr_of, sparse_values

N, D, C = 40, 7, 0.6
LOSSES = [SquaredHinge(), Huber(0.25), Logistic(), SquaredEpsilonInsensitive(0.2)]
RNG = np.random.default_rng(6)
VALUES = sparse_values(RNG, N, D)
VALUES[:, 3] = 0.0
S = RNG.choice([0.0, 0.5, 1.0, 3.0], N)
OUTSIDE = Outside(RNG.uniform(0.5, 2.0, D), RNG.normal(size=D))
CHOSEN = np.array([5, 3, 0, 6])
"""Columns that are set, in this order, and one without an entry among them; others stay as they are."""


def slope(loss: Any, y: Any, j: int, w: Any) -> float:
    """The derivative of the objective in w_j."""
    X, f = VALUES.astype(np.float64), VALUES.astype(np.float64) @ w
    given = float(OUTSIDE.diagonal[j] * w[j] + OUTSIDE.linear[j])
    for i in range(N):
        m, x = (f[i] - y[i], X[i, j]) if loss.numeric() else (y[i] * f[i], y[i] * X[i, j])
        given += C * float(S[i]) * loss.slope(float(m)) * x
    return given


def test_columns_hold_the_entries_of_rows() -> None:
    found = columns_of(csr_of(VALUES), CHOSEN, D)
    assert found.number.tolist() == [5, 0, 6], "one has no entry"
    for c, j in enumerate(found.number):
        part = slice(found.start[c], found.start[c + 1])
        there = np.flatnonzero(VALUES[:, j])
        np.testing.assert_array_equal(found.rows[part], there)
        np.testing.assert_array_equal(found.data[part], VALUES[there, j])
    assert found.start[-1] == len(found.rows) == len(found.data)


@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: type(loss).__name__)
@pytest.mark.parametrize("negligible", [0.0, 1.0])
def test_each_column_is_set_to_its_best_once(loss: Any, negligible: float) -> None:
    """Slopes as they are met are summed up, and what is less than negligible is left alone."""
    rng = np.random.default_rng(7)
    y = (rng.normal(size=N) if loss.numeric() else rng.choice([-1.0, 1.0], N)).astype(np.float32)
    stored, begun = columns_of(csr_of(VALUES), CHOSEN, D), 3.0 * rng.normal(size=D)
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


def test_column_descent_slope_that_jumps_is_bracketed() -> None:
    """Of a loss that bends sharply Newton's steps would go to and fro: halves of the bracket come to the root."""
    sharp = Logistic(300.0)
    y = np.ones(N, np.float32)
    stored, w = columns_of(csr_of(VALUES), np.array([0]), D), np.zeros(D)
    w[0] = -3.0
    f = VALUES.astype(np.float64) @ w
    column_sweep.py_func(stored, RowTerms(y, S, C, sharp), OUTSIDE, 0.0, w, f)
    left, right = w.copy(), w.copy()
    left[0] -= 0.01
    right[0] += 0.01
    assert slope(sharp, y, 0, left) < 0.0 < slope(sharp, y, 0, right)
