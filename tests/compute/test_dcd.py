"""One sweep of dual coordinate descent: compiled, as plain Python, and as anyone would write it down."""

from __future__ import annotations

import itertools
from types import FunctionType
from typing import Any, NamedTuple

import numpy as np
import pytest
from numba import njit

from streamsvm.compute.numba_bridge import FAST
from streamsvm.compute.passes import dcd
from streamsvm.compute.passes.dcd import Box, Held, dcd_sweep
from streamsvm.losses import (
    EpsilonInsensitive,
    Hinge,
    Huber,
    Logistic,
    Pinball,
    Squared,
    SquaredEpsilonInsensitive,
    SquaredHinge,
)
from streamsvm.rows import Dense, Labeled
from tests.arrays import csr_of, sparse_values
from tests.axes import each_value

N, D = 60, 7
C = np.float64(0.7)
"""A float64 also where the pass is not compiled: a Python float times a float32 would be a float32."""
BIAS = 0.5
RECORDS = [Hinge(), SquaredHinge(), Huber(0.25)]
FORMS = ["dense", "csr"]

each_loss = pytest.mark.parametrize("loss", RECORDS, ids=lambda loss: type(loss).__name__)


class Case(NamedTuple):
    values: Any
    y: Any
    s: Any
    order: Any

    def rows(self, form: str) -> Any:
        return Dense(self.values, BIAS) if form == "dense" else csr_of(self.values, BIAS)


def case(seed: int = 0) -> Case:
    """Rows among which one is empty, and weights of which some are 0."""
    rng = np.random.default_rng(seed)
    values = sparse_values(rng, N, D)
    values[5] = 0.0
    y = rng.choice([-1.0, 1.0], N).astype(np.float32)
    s = rng.choice([0.0, 0.5, 1.0, 3.0], N).astype(np.float32)
    return Case(values, y, s, rng.permutation(N).astype(np.int32))


class Swept(NamedTuple):
    left: int
    losses: float
    order: Any
    alpha: Any
    w: Any


def swept(
    run: Any, X: Any, given: Case, loss: Any, *, sweeps: int = 3, slack: float = 0.0, parts: float = 1.0
) -> Swept:
    """Sweeps in sequence over what each one leaves, from alpha = 0."""
    alpha, w, order, left, losses = np.zeros(N), np.zeros(D + 1), given.order.copy(), N, 0.0
    for _ in range(sweeps):
        held = Held(slack, -slack)
        left, losses, *_ = run(Labeled(X, given.y, given.s), order, left, Box(C, loss, parts), held, alpha, w)
    return Swept(left, losses, order[:left].copy(), alpha, w)


def slowly(given: Case, loss: Any, *, sweeps: int = 3, slack: float = 0.0, parts: float = 1.0) -> Swept:
    """The obvious way: rows as float64 with the constant feature, w rebuilt from alpha at every step.

    ``parts``: as if so many others moved w the same way at the same time.
    """
    X = np.hstack([given.values.astype(np.float64), np.full((N, 1), BIAS)])
    alpha, todo, losses = np.zeros(N), list(given.order), 0.0
    for _ in range(sweeps):
        kept, losses = [], 0.0
        for i in todo:
            weight = float(C) * float(given.s[i])
            if weight == 0.0:
                continue
            w = parts * (alpha * given.y) @ X
            m = float(given.y[i] * (X[i] @ w))
            losses += weight * loss.value(m)
            top, G = loss.upper(weight), m - 1.0 + loss.conjugate_slope(alpha[i], weight)
            at_low, at_top = alpha[i] <= 0.0, alpha[i] >= top
            if (at_low and G > slack) or (at_top and G < -slack):
                continue
            kept.append(i)
            alpha[i] = min(max(alpha[i] - G / (parts * X[i] @ X[i] + loss.curvature(weight)), 0.0), top)
        todo = kept
    return Swept(len(todo), losses, np.array(todo, np.int32), alpha, parts * (alpha * given.y) @ X)


def assert_same(found: Swept, expected: Swept, tolerance: float = 1e-9) -> None:
    assert found.left == expected.left
    np.testing.assert_array_equal(found.order, expected.order)
    assert found.losses == pytest.approx(expected.losses, rel=tolerance)
    np.testing.assert_allclose(found.alpha, expected.alpha, rtol=tolerance, atol=tolerance)
    np.testing.assert_allclose(found.w, expected.w, rtol=tolerance, atol=tolerance)


@each_loss
@each_value(("form", FORMS), ("sweeps", [1, 4]), ("slack, parts", [(0.0, 1.0), (0.3, 1.0), (0.0, 3.0)]))
def test_dcd_pass_sweeps_are_the_definition(loss: Any, form: str, sweeps: int, slack: float, parts: float) -> None:
    given = case()
    settings: dict[str, Any] = {"sweeps": sweeps, "slack": slack, "parts": parts}
    expected = slowly(given, loss, **settings)
    for run in (dcd_sweep, dcd_sweep.py_func):
        assert_same(swept(run, given.rows(form), given, loss, **settings), expected)
    assert expected.alpha.any()


@each_loss
def test_dcd_pass_dense_and_sparse_rows_are_the_same(loss: Any) -> None:
    given = case(1)
    one, other = (swept(dcd_sweep, given.rows(form), given, loss, sweeps=8) for form in FORMS)
    assert_same(one, other)


@each_loss
@pytest.mark.parametrize("form", FORMS)
def test_dcd_pass_rows_without_weight_are_left_alone(loss: Any, form: str) -> None:
    given = case()
    found = swept(dcd_sweep, given.rows(form), given, loss)
    assert not found.alpha[given.s == 0.0].any()
    assert not np.isin(found.order, np.flatnonzero(given.s == 0.0)).any()
    assert np.all(found.alpha >= 0.0)
    assert np.all(found.alpha <= [loss.upper(float(C) * float(x)) for x in given.s])


@each_loss
@pytest.mark.parametrize("form", FORMS)
def test_dcd_pass_empty_row_without_a_constant_gives_all_it_can(loss: Any, form: str) -> None:
    """Its margin is 0 whatever w is, so its best a is -C l'(0), for the hinge the top of the box; w does not move."""
    given = case()
    X = given.rows(form)._replace(bias=0.0)
    for run in (dcd_sweep, dcd_sweep.py_func):
        found = swept(run, X, given, loss)
        assert given.s[5] > 0.0
        assert found.alpha[5] == pytest.approx(-float(C) * float(given.s[5]) * loss.slope(0.0))
        assert np.isfinite(found.alpha).all()
        assert found.w[-1] == 0.0


@each_loss
def test_dcd_pass_only_the_first_entries_of_the_order_are_visited(loss: Any) -> None:
    given, alpha, w = case(), np.zeros(N), np.zeros(D + 1)
    order = given.order.copy()
    dcd_sweep(Labeled(given.rows("dense"), given.y, given.s), order, 10, Box(C, loss), Held(), alpha, w)
    assert not np.delete(alpha, given.order[:10]).any()
    np.testing.assert_array_equal(order[10:], given.order[10:])


@pytest.mark.parametrize(("form", "loss"), [("dense", Hinge()), ("csr", SquaredHinge())], ids=FORMS)
def test_dcd_pass_asking_for_rows_ahead_changes_no_bit(loss: Any, form: str) -> None:
    """The same pass, compiled so that it never comes to ask."""
    names = dcd_sweep.py_func.__globals__ | {"AHEAD": 1 << 40}
    blind = njit(nogil=True, fastmath=FAST)(
        FunctionType(dcd_sweep.py_func.__code__, names, argdefs=dcd_sweep.py_func.__defaults__)
    )
    given = case(2)
    one, other = (swept(run, given.rows(form), given, loss, sweeps=6) for run in (dcd_sweep, blind))
    assert dcd.AHEAD < N
    for a, b in zip(one, other, strict=True):
        np.testing.assert_array_equal(a, b)


class CountingLoss:
    """A loss that counts how often its slope is asked for: once a step, and once in the end."""

    def __init__(self, loss: Any) -> None:
        self._loss, self.asked = loss, 0
        self.second_derivative = loss.second_derivative

    def slope(self, margin: float) -> float:
        self.asked += 1
        return float(self._loss.slope(margin))


def bisected(margin: float, a: float, C: float, loss: Any, square: float) -> float:
    """The optimum along one coordinate, by halving what it is known to lie in."""
    low, high = margin - square * a, margin + square * (C - a)
    for _ in range(200):
        m = 0.5 * (low + high)
        low, high = (low, m) if m - margin - square * (-C * loss.slope(m) - a) > 0.0 else (m, high)
    return -C * loss.slope(0.5 * (low + high))


def test_dcd_pass_root_of_a_coordinate_is_that_of_bisection_in_seven_steps() -> None:
    """On average over easy and sharp losses: six, and the slope at the root; by bisection alone there would be forty."""
    steps = []
    for margin, share, C, sharpness, square in itertools.product(
        (-3.0, -1.0, 0.0, 0.3, 2.0), (0.0, 0.3, 1.0), (0.1, 1.0, 10.0), (1.0, 20.0), (0.05, 1.0, 30.0)
    ):
        loss = CountingLoss(Logistic(sharpness))
        found = dcd.optimum.py_func(margin, share * C, C, loss, square)
        steps.append(loss.asked)
        assert found == pytest.approx(bisected(margin, share * C, C, Logistic(sharpness), square), abs=1e-12 * C)
    assert np.mean(steps) <= 7.0


@pytest.mark.parametrize(
    "loss", [EpsilonInsensitive(0.3), SquaredEpsilonInsensitive(0.3), Squared(), Pinball(0.8)], ids=str
)
@pytest.mark.parametrize("python", [False, True], ids=["compiled", "python"])
def test_dcd_pass_optimum_of_a_number_is_that_of_its_dual_along_a_line(loss: Any, python: bool) -> None:
    """By ternary search, as if there were no box: on either side of 0, and at the corner there."""
    find = dcd.soft_threshold.py_func if python else dcd.soft_threshold
    found = []
    for margin, a, square in itertools.product((-3.0, -0.6, 0.0, 0.2, 2.0), (-1.5, 0.0, 0.7), (0.5, 2.0)):
        low, high = -50.0, 50.0
        for _ in range(200):
            one, other = low + (high - low) / 3.0, high - (high - low) / 3.0
            gain, more = (
                x - loss.conjugate(x, float(C)) - margin * (x - a) - 0.5 * square * (x - a) ** 2 for x in (one, other)
            )
            low, high = (low, other) if gain > more else (one, high)
        found.append(find(margin, a, float(C), loss, square + loss.curvature(float(C))))
        assert found[-1] == pytest.approx(low, abs=1e-6)
    assert min(found) < 0.0 < max(found)


# -- how often it is compiled -----------------------------------------------------------------------------------------
