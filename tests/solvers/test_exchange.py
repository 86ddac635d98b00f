"""Pieces of the exchange of rows by themselves: how far a step may go, which row is let in, what b may be, and when it is over."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from streamsvm.losses import SquaredHinge
from streamsvm.solvers.active_set_method import ActiveSetMethod, DualTerms, FreeBlock, GramSpace, dual_terms


def method_at(a: Any, f: Any, y: Any, z: Any, upper: Any, *, b: float = 0.0, free_bias: bool = False) -> Any:
    """The method where it is said to be, whatever the matrix."""
    n = len(a)
    terms = DualTerms(np.array(y, float), np.array(z, float), np.zeros(n), np.array(upper, float))
    method = ActiveSetMethod(terms, GramSpace(np.eye(n)), np.array(a, float), free_bias=free_bias)
    method.at.f, method.at.b = np.array(f, float), b
    return method


def test_exchange_step_stops_at_the_first_bound() -> None:
    method = method_at([0.5, 0.5, 0.5, 1.0, 0.0], np.zeros(5), np.ones(5), np.ones(5), [1.0, 1.0, np.inf, 1.0, 1.0])
    longest = method._longest
    assert longest(np.arange(3), np.array([0.0, -0.25, 8.0])) == (2.0, 1)
    assert longest(np.arange(3), np.array([0.4, -0.25, 8.0])) == (1.25, 0)
    assert longest(np.array([2, 0]), np.array([1.0, 0.0])) == (np.inf, 0)
    assert longest(np.array([0, 3]), np.array([0.25, 1e-3])) == (0.0, 1)
    assert longest(np.array([0, 4]), np.array([0.25, -1e-3])) == (0.0, 1)
    method.at.a[3] = 1.0 + 1e-15  # a row that rounding has left beyond its bound takes no step back
    assert longest(np.array([0, 3]), np.array([0.25, 1e-3])) == (0.0, 1)


def test_exchange_ends_with_decision_values_computed_anew() -> None:
    rng = np.random.default_rng(3)
    A, y = rng.normal(size=(20, 30)), rng.choice([-1.0, 1.0], 20)
    K = A @ A.T
    method = ActiveSetMethod(dual_terms(SquaredHinge(), y, np.ones(20)), GramSpace(K), np.zeros(20), free_bias=True)
    assert method.run()
    best = method.dual()
    method.at.f += 1e-3 * rng.normal(size=20)
    method._confirmed = 0
    assert method.run()
    np.testing.assert_allclose(method.at.f, K @ (y * method.at.a), rtol=1e-10, atol=1e-12)
    assert method.dual() == pytest.approx(best, rel=1e-12)


@pytest.mark.parametrize("seed", range(4))
def test_exchange_step_solves_both_equations_of_a_free_intercept(seed: int) -> None:
    """H d + y beta = right and y'd = total, rows having come and gone."""
    rng = np.random.default_rng(seed)
    A, y = rng.normal(size=(80, 90)), rng.choice([-1.0, 1.0], 80)
    H, block = A @ A.T, FreeBlock(constrained=True)
    for row in rng.permutation(80).tolist():
        assert block.try_add(row, y[row], H[row, block.rows], H[row, row])
        if block.size % 5 == 4:
            block.remove(int(rng.integers(0, block.size)))
    rows, right, total = block.rows, rng.normal(size=block.size), 0.7
    step = block.solve(right, total)
    np.testing.assert_array_equal(block.signs, y[rows])
    np.testing.assert_allclose(H[np.ix_(rows, rows)] @ step.d + y[rows] * step.beta, right, atol=1e-7)
    assert y[rows] @ step.d == pytest.approx(total, abs=1e-9)
