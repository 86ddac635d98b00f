"""Pieces of the exchange of rows by themselves: how far a step may go, which row is let in, what b may be, and when it is over."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from streamsvm.losses import Hinge, SquaredHinge
from streamsvm.rows import Dense
from streamsvm.solvers.active_set import finite_newton
from streamsvm.solvers.active_set.exchange import CONFIRMATIONS, PRECISION, STILL, ActiveSetMethod, DualTerms, terms_of
from streamsvm.solvers.active_set.factor import FreeBlock
from streamsvm.solvers.active_set.gathered import GatheredRows
from streamsvm.solvers.active_set.linear_problem import exact
from streamsvm.solvers.active_set.spaces import GramSpace
from streamsvm.types import Problem


def method_at(a: Any, f: Any, y: Any, z: Any, upper: Any, *, b: float = 0.0, free_bias: bool = False) -> Any:
    """The method where it is said to be, whatever the matrix."""
    n = len(a)
    terms = DualTerms(np.array(y, float), np.array(z, float), np.zeros(n), np.array(upper, float))
    method = ActiveSetMethod(terms, GramSpace(np.eye(n)), np.array(a, float), free_bias=free_bias)
    method.at.f, method.at.b = np.array(f, float), b
    return method


def test_a_step_goes_as_far_as_the_first_row_that_meets_a_bound() -> None:
    method = method_at([0.5, 0.5, 0.5, 1.0, 0.0], np.zeros(5), np.ones(5), np.ones(5), [1.0, 1.0, np.inf, 1.0, 1.0])
    longest = method._longest
    assert longest(np.arange(3), np.array([0.0, -0.25, 8.0])) == (2.0, 1)
    assert longest(np.arange(3), np.array([0.4, -0.25, 8.0])) == (1.25, 0)
    assert longest(np.array([2, 0]), np.array([1.0, 0.0])) == (np.inf, 0)
    assert longest(np.array([0, 3]), np.array([0.25, 1e-3])) == (0.0, 1)
    assert longest(np.array([0, 4]), np.array([0.25, -1e-3])) == (0.0, 1)
    method.at.a[3] = 1.0 + 1e-15  # a row that rounding has left beyond its bound takes no step back
    assert longest(np.array([0, 3]), np.array([0.25, 1e-3])) == (0.0, 1)


@pytest.mark.parametrize("seed", range(20))
def test_what_rows_ask_of_b_is_what_their_gradients_say(seed: int) -> None:
    """At a b above what a row asks for at least, its gradient is not below 0; at one below what it allows, not above 0."""
    rng = np.random.default_rng(seed)
    n = 12
    upper, y = rng.choice([0.5, 2.0], n), rng.choice([-1.0, 1.0], n)
    a, z = rng.choice([0.0, 0.5, 1.0], n) * upper, 1.0 + rng.random(n)
    curvature, f = rng.choice([0.0, 0.25], n), rng.normal(size=n)
    method = method_at(a, f, y, z, upper, free_bias=True)
    method._terms = DualTerms(y, z, curvature, upper)
    least, most = (-np.inf, -1), (np.inf, -1)
    for i in range(n):
        asked = y[i] * (z[i] - curvature[i] * a[i]) - f[i]  # the b at which its gradient is 0
        grows, shrinks = a[i] < upper[i], a[i] > 0.0
        if grows if y[i] > 0 else shrinks:
            least = max(least, (asked, i))
        if shrinks if y[i] > 0 else grows:
            most = min(most, (asked, i))
    (top, row), (bottom, other) = method._levels()
    assert (top, row) == pytest.approx(least)
    assert (bottom, other) == pytest.approx(most)
    assert method.intercept() == pytest.approx(0.5 * (top + bottom))


def test_an_intercept_that_only_one_side_asks_for_is_what_it_asks_for() -> None:
    for y, b in (([1.0, 1.0], 3.0), ([-1.0, -1.0], -4.0)):
        method = method_at([0.0, 0.0], [-1.0, 2.0], y, [2.0, 2.0], [1.0, 1.0], free_bias=True)
        assert method.intercept() == b
    nothing = method_at([0.0], [0.0], [1.0], [1.0], [0.0], free_bias=True)
    assert nothing.intercept() == 0.0
    constant = method_at([0.0, 0.0], [-1.0, 2.0], [1.0, 1.0], [2.0, 2.0], [1.0, 1.0], b=7.0)
    assert constant.intercept() == 7.0


@pytest.mark.parametrize("b", [3.0, -3.0])
@pytest.mark.parametrize("share", [0.9, 1.1])
def test_a_violation_counts_from_what_rounding_makes_of_the_terms_of_a_gradient(b: float, share: float) -> None:
    """Of z up to 20, f up to 5 and b of 3: at 0 and at the upper bound alike."""
    least = PRECISION * (20.0 + 5.0 + 3.0)
    for a, sign in ((0.0, -1.0), (1.0, 1.0)):
        method = method_at([a, 1.0], [1.5 - b + sign * share * least, -5.0], [1.0, 1.0], [1.5, 20.0], [1.0, 1.0], b=b)
        assert method.gradient()[0] == pytest.approx(sign * share * least, rel=0.02)
        assert method._most_violating() == (0 if share > 1.0 else None)


@pytest.mark.parametrize("share", [0.9, 1.1])
def test_a_pair_is_let_in_where_what_it_asks_for_is_no_rounding(share: float) -> None:
    """Two classes at 0: one asks for b of 1 - f at least, the other allows f - 1 at most."""
    least = PRECISION * (1.0 + 1.0)
    f = 1.0 - 0.5 * share * least
    method = method_at([0.0, 0.0], [f, -f], [1.0, -1.0], [1.0, 1.0], [1.0, 1.0], free_bias=True)
    row = method._most_violating()
    assert (row, method.free_rows) == ((1, 1) if share > 1.0 else (None, 0))


class Restless(ActiveSetMethod):
    """Some row always violates, and nothing comes of letting it in."""

    entered = 0

    def _most_violating(self) -> int | None:
        return 0

    def _enter(self, row: int) -> None:
        self.entered += 1


def test_where_d_stands_still_it_is_over_after_so_many_exchanges_and_as_many_each_time_it_is_looked_at_again() -> None:
    terms = terms_of(Hinge(), np.ones(2), np.ones(2))
    method = Restless(terms, GramSpace(np.eye(2)), np.zeros(2), free_bias=False)
    assert method.run()
    assert method.entered == 1 + (1 + CONFIRMATIONS) * STILL  # with the first exchange D is known


def test_every_row_comes_into_the_block_once_and_once_more_at_the_end() -> None:
    """Of rows at right angles each is best at 1, whatever the others have: what is found is confirmed with a new factor."""
    n = 80  # more than a factor has room for at first
    terms = terms_of(Hinge(), np.where(np.arange(n) % 3, 1.0, -1.0), np.full(n, 2.0))
    a = np.zeros(n)
    method = ActiveSetMethod(terms, GramSpace(np.eye(n)), a, free_bias=False)
    assert method.run()
    assert (method.exchanges, method.free_rows) == (2 * n, n)
    np.testing.assert_allclose(a, 1.0, rtol=1e-12)
    again = ActiveSetMethod(terms, GramSpace(np.eye(n)), a, free_bias=False)
    assert again.run()
    assert again.exchanges == 2 * n  # a row between its bounds comes in wherever it is
    bounded = terms_of(Hinge(), np.ones(n), np.full(n, 0.5))
    at_bounds = ActiveSetMethod(bounded, GramSpace(np.eye(n)), np.zeros(n), free_bias=False)
    assert at_bounds.run()
    assert (at_bounds.exchanges, at_bounds.free_rows) == (n, 0)
    assert (at_bounds.at.a == 0.5).all()


def test_what_rounding_left_in_f_is_gone_at_the_end() -> None:
    rng = np.random.default_rng(3)
    A, y = rng.normal(size=(20, 30)), rng.choice([-1.0, 1.0], 20)
    K = A @ A.T
    method = ActiveSetMethod(terms_of(SquaredHinge(), y, np.ones(20)), GramSpace(K), np.zeros(20), free_bias=True)
    assert method.run()
    best = method.dual()
    method.at.f += 1e-3 * rng.normal(size=20)
    method._confirmed = 0
    assert method.run()
    np.testing.assert_allclose(method.at.f, K @ (y * method.at.a), rtol=1e-10, atol=1e-12)
    assert method.dual() == pytest.approx(best, rel=1e-12)


@pytest.mark.parametrize("seed", range(4))
def test_a_step_with_a_free_intercept_solves_both_its_equations(seed: int) -> None:
    """H d + y beta = right and y'd = total, rows having come and gone."""
    rng = np.random.default_rng(seed)
    A, y = rng.normal(size=(80, 90)), rng.choice([-1.0, 1.0], 80)
    H, block = A @ A.T, FreeBlock(constrained=True)
    for row in rng.permutation(80).tolist():
        assert block.offer(row, y[row], H[row, block.rows], H[row, row])
        if block.size % 5 == 4:
            block.remove(int(rng.integers(0, block.size)))
    rows, right, total = block.rows, rng.normal(size=block.size), 0.7
    step = block.solve(right, total)
    np.testing.assert_array_equal(block.signs, y[rows])
    np.testing.assert_allclose(H[np.ix_(rows, rows)] @ step.d + y[rows] * step.beta, right, atol=1e-7)
    assert y[rows] @ step.d == pytest.approx(total, abs=1e-9)


def test_a_row_of_nothing_depends_on_any_rows() -> None:
    block = FreeBlock(constrained=False)
    assert not block.offer(0, 1.0, np.empty(0), 0.0)
    assert block.offer(1, 1.0, np.empty(0), 4.0)
    assert not block.offer(0, 1.0, np.zeros(1), 0.0)
    assert not block.offer(2, 1.0, np.array([2.0]), 1.0)
    assert block.rows == [1]


@pytest.mark.parametrize(("a", "free"), [(0.0, 0), (2.0, 0), (0.5, 1)])
def test_a_row_that_is_alone_at_its_bound_is_not_free(a: float, free: int) -> None:
    """With a free intercept it can move with another one alone."""
    terms = terms_of(Hinge(), np.array([1.0, -1.0]), np.full(2, 2.0))
    method = ActiveSetMethod(terms, GramSpace(np.eye(2)), np.array([a, a]), free_bias=True)
    method._enter(0)
    assert method._descend()
    assert method.free_rows == free
    assert method.at.a.tolist() == [a, a]


def rows_in_memory(n: int, columns: int) -> tuple[GatheredRows, Problem]:
    rng = np.random.default_rng(5)
    X = rng.normal(size=(n, columns)).astype(np.float32)
    y = np.where(X[:, 0] + rng.normal(size=n) > 0, 1.0, -1.0).astype(np.float32)
    rows = GatheredRows(Dense(X, 1.0), y, np.ones(n, np.float32), np.arange(n))
    return rows, Problem(SquaredHinge(), 0.5, n, columns, 1, tolerance=1e-12)


@pytest.mark.parametrize(("columns", "exchanged"), [(5, False), (11, False), (12, True), (30, True)])
def test_a_smooth_loss_is_minimized_over_weights_where_they_are_no_more_than_rows(
    columns: int, exchanged: bool
) -> None:
    """Of 12 rows, the constant feature having a weight too."""
    rows, problem = rows_in_memory(12, columns)
    found = exact(problem, rows)
    assert found.finished
    assert (found.exchanges > 0) == exchanged
    Z = rows.y[:, None] * np.column_stack([rows.X.values.astype(np.float64), np.ones(12)])
    slopes = 2.0 * problem.C * np.maximum(0.0, 1.0 - Z @ found.w)
    np.testing.assert_allclose(found.w, slopes @ Z, rtol=1e-9, atol=1e-11)
    np.testing.assert_allclose(found.a, slopes, rtol=1e-8, atol=1e-10)


class Counted:
    """Newton's steps, and how many there were."""

    def __init__(self) -> None:
        self.count, self._step = 0, finite_newton._newton_step

    def __call__(self, gram: Any, gradient: Any) -> Any:
        self.count += 1
        return self._step(gram, gradient)


def test_where_p_falls_no_more_a_few_steps_are_left(monkeypatch: pytest.MonkeyPatch) -> None:
    """One is made before that is known; where the gradient is 0 there is none at all, and after the deadline neither."""
    rows, problem = rows_in_memory(60, 4)
    monkeypatch.setattr(finite_newton, "_newton_step", steps := Counted())
    best, finished = finite_newton.solved(problem, rows, np.zeros(5), np.inf)
    assert finished
    assert steps.count <= 12
    monkeypatch.setattr(finite_newton, "FLAT", 1e-3)
    steps.count = 0
    again, finished = finite_newton.solved(problem, rows, best + 1e-4, np.inf)
    assert finished
    assert steps.count == 1 + finite_newton.LAST_STEPS
    np.testing.assert_allclose(again, best, rtol=1e-9, atol=1e-12)
    steps.count = 0
    started, finished = finite_newton.solved(problem, rows, best + 1e-4, -np.inf)
    assert (finished, steps.count) == (False, 0)
    np.testing.assert_array_equal(started, best + 1e-4)
    y, s = np.ones((2, 1), np.float32)
    one = GatheredRows(Dense(np.ones((1, 1), np.float32), 0.0), y, s, np.arange(1))
    plain = Problem(SquaredHinge(), 0.5, 1, 1, 1, bias=0.0)
    half, finished = finite_newton.solved(plain, one, np.array([0.5, 0.0]), np.inf)  # P = w^2 / 2 + (1 - w)^2 / 2
    assert (finished, steps.count, half.tolist()) == (True, 0, [0.5, 0.0])
