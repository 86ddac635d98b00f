"""Sweeps of dual coordinate descent, of two classes and of several, and the perceptron's: compiled, as plain Python, and as anyone would write them down."""

from __future__ import annotations

import itertools
import math
from types import FunctionType
from typing import Any, NamedTuple

import numpy as np
import pytest
from numba import njit

from streamsvm.compute.numba_bridge import FAST
from streamsvm.compute.passes import dcd
from streamsvm.compute.passes.dcd import (
    Box,
    Held,
    MPUSteps,
    dcd_sweep,
    mpu_pass,
    multinomial_dual_sum,
    multinomial_loss_sum,
    multinomial_sweep,
)
from streamsvm.losses import (
    EpsilonInsensitive,
    Hinge,
    Huber,
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


# -- the perceptron's steps on a grid, and all classes in one problem ----------------------------------------------------


Y64, S64, VALUES64 = (values.astype(np.float64) for values in (case(3).y, case(3).s, case(3).values))
S64[5] = 1.0
"""All float64: a Python float times a float32 would be a float32 where a pass is not compiled."""


def rows_of(form: str, bias: float) -> Any:
    return Dense(VALUES64, bias) if form == "dense" else csr_of(VALUES64, bias)


def explicit(bias: float) -> Any:
    return np.hstack([VALUES64, np.full((N, 1), bias)])


def order_of(seed: int) -> Any:
    return np.random.default_rng(seed).permutation(N).astype(np.int32)


@each_value(("loss", RECORDS), ("form", FORMS), ("most, sigma, bias", [(1, 1.0, 0.5), (3, 1.0, 0.0), (50, 2.0, 0.5)]))
def test_mpu_pass_steps_on_a_grid_are_those_that_raise_the_dual(
    loss: Any, form: str, most: int, sigma: float, bias: float
) -> None:
    """The largest number of steps of which each gains; the rows that moved, the losses met, and what the others hide."""
    X, length, alpha, w = explicit(bias), 0.125, np.zeros(N), np.zeros(D + 1)
    slow, u = np.zeros(N), np.zeros(D + 1)
    for seed in range(4):
        order, hidden, losses, moved = order_of(seed), 0.0, 0.0, []
        given = Labeled(rows_of(form, bias), Y64, S64)
        found = mpu_pass.py_func(given, order, Box(C, loss, sigma), MPUSteps(length, most), alpha, w)
        for i in order_of(seed):
            weight = C * S64[i]
            if weight == 0.0:
                continue
            m, a, top = Y64[i] * (X[i] @ u), slow[i], loss.upper(weight)
            G, Q = m - 1.0 + loss.conjugate_slope(a, weight), sigma * X[i] @ X[i] + loss.curvature(weight)
            losses += weight * loss.value(m)
            way, steps = -math.copysign(length, G), 0
            if Q == 0.0:
                slow[i] = top if G < 0.0 else a
            else:
                while steps < most and -way * G - Q * (steps + 0.5) * way * way > 0.0:
                    steps += 1
                slow[i] = min(max(a + steps * way, 0.0), top)
            if slow[i] == a:
                hidden += weight * loss.value(m) - (a - loss.conjugate(a, weight)) + a * m
            else:
                moved.append(i)
                u += sigma * (slow[i] - a) * Y64[i] * X[i]
        assert found.moved == len(moved)
        np.testing.assert_array_equal(order[: len(moved)], moved)
        np.testing.assert_allclose(alpha, slow, rtol=1e-12)
        np.testing.assert_allclose(w, u, rtol=1e-9, atol=1e-12)
        assert (found.losses, found.hidden) == pytest.approx((losses, hidden), rel=1e-9)


K = 4
CODES = np.random.default_rng(17).integers(0, K, N).astype(np.float64)


def best_numbers(f: Any, u: Any, own: int, q: float, weight: float, loss: Any) -> Any:
    """The numbers u_k >= 0 of one row that are best, found by halving: their level rises until they leave what they may."""
    others = np.arange(K) != own
    b, bend = u[others].sum(), loss.curvature(weight)
    start = f[own] - q * b - 1.0 + loss.conjugate_slope(0.0, weight)

    def numbers(t: float) -> Any:
        return np.where(others, np.maximum(0.0, q * u + f - t), 0.0) / q

    low, high = start, max(start, float((q * u + f)[others].max()))
    for _ in range(200):
        t = 0.5 * (low + high)
        total = numbers(t).sum()
        low, high = (t, high) if start + (q + bend) * total > t or total > loss.upper(weight) else (low, t)
    return numbers(high)


@each_value(("loss", RECORDS), ("form", FORMS), ("sigma, bias", [(1.0, 0.5), (3.0, 0.0)]))
def test_multinomial_pass_sets_the_numbers_of_each_row_to_their_best(
    loss: Any, form: str, sigma: float, bias: float
) -> None:
    X, alpha, W = explicit(bias), np.zeros((N, K)), np.zeros((K, D + 1))
    slow, V = np.zeros((N, K)), np.zeros((K, D + 1))
    for seed in range(3):
        order, losses, count, begun = order_of(seed), 0.0, N - 2, alpha.copy()
        found = multinomial_sweep.py_func(
            Labeled(rows_of(form, bias), CODES, S64), order, count, Box(C, loss, sigma), alpha, W
        )
        for i in order_of(seed)[:count]:
            weight, own, q = C * S64[i], int(CODES[i]), sigma * X[i] @ X[i]
            if weight == 0.0:
                continue
            f = V @ X[i]
            losses += weight * loss.value(f[own] - np.delete(f, own).max())
            if q == 0.0:  # all of it on one other class, whichever
                b = weight * max(-loss.slope(0.0), 0.0)
                slow[i] = 0.0
                slow[i, own], slow[i, 0 if own else 1] = b, -b
                continue
            before, u = slow[i].copy(), best_numbers(f, -slow[i], own, q, weight, loss)
            slow[i] = -u
            slow[i, own] = u.sum()
            V += sigma * np.outer(slow[i] - before, X[i])
        empty = np.flatnonzero(np.square(X).sum(1) == 0.0)
        changed = [i for i in order_of(seed)[:count] if (alpha[i] != begun[i]).any() and i not in empty]
        np.testing.assert_allclose(alpha, slow, rtol=1e-7, atol=1e-9)
        np.testing.assert_allclose(W, V, rtol=1e-7, atol=1e-9)
        assert found.losses == pytest.approx(losses, rel=1e-7)
        assert (found.left, list(order[: found.left])) == (len(changed), changed)
        assert (found.highest, found.lowest) == (np.inf, -np.inf)


@each_loss
def test_multinomial_pass_sums_over_rows_of_all_classes(loss: Any) -> None:
    """Losses of the margin above the largest other class, and the dual values of rows that have a weight."""
    F, alpha = np.random.default_rng(17).normal(size=(N, K)), np.random.default_rng(17).random((N, K)) * 0.3
    own = CODES.astype(int)
    margins = [F[i, own[i]] - np.delete(F[i], own[i]).max() for i in range(N)]
    losses = sum(C * S64[i] * loss.value(margins[i]) for i in range(N))
    b = [alpha[i, own[i]] for i in range(N)]
    gains = sum(b[i] - loss.conjugate(b[i], C * S64[i]) for i in np.flatnonzero(S64))
    assert multinomial_loss_sum.py_func(F, CODES, S64, C, loss) == pytest.approx(losses, rel=1e-12)
    assert multinomial_dual_sum.py_func(alpha, CODES, S64, C, loss) == pytest.approx(gains, rel=1e-12)
