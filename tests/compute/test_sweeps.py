"""One sweep over rows, coordinates or pairs, against the same sweep written down slowly: every step, and what is returned."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from streamsvm.compute.passes.dcd import (
    Box,
    Steps,
    mpu_pass,
    multinomial_dual_sum,
    multinomial_loss_sum,
    multinomial_sweep,
)
from streamsvm.compute.passes.descent import metric_rows, proximal_sweep
from streamsvm.compute.passes.elastic_net import soft_threshold_sweep
from streamsvm.compute.passes.rows_in_memory import RowTerms
from streamsvm.compute.passes.smo import FLAT, STRIPE, smo
from streamsvm.losses import Hinge, Huber, SquaredHinge
from streamsvm.rows import Dense, Labeled
from tests.arrays import csr_of, sparse_values
from tests.axes import each_value

N, D, C = 21, 6, 0.7
RNG = np.random.default_rng(17)
VALUES = sparse_values(RNG, N, D).astype(np.float64)
VALUES[5] = 0.0
Y, S = RNG.choice([-1.0, 1.0], N), RNG.choice([0.0, 0.5, 1.0, 3.0], N)
S[5] = 1.0
"""All float64: a Python float times a float32 would be a float32 where a pass is not compiled."""
each_loss = pytest.mark.parametrize(
    "loss", [Hinge(), SquaredHinge(), Huber(0.25)], ids=lambda loss: type(loss).__name__
)
each_form = pytest.mark.parametrize("form", ["dense", "sparse"])


def rows_of(form: str, bias: float) -> Any:
    return Dense(VALUES, bias) if form == "dense" else csr_of(VALUES, bias)


def explicit(bias: float) -> Any:
    return np.hstack([VALUES, np.full((N, 1), bias)])


def order_of(seed: int) -> Any:
    return np.random.default_rng(seed).permutation(N).astype(np.int32)


# -- the perceptron's steps on a grid ----------------------------------------------------------------------------------


@each_loss
@each_form
@pytest.mark.parametrize(("most", "sigma", "bias"), [(1, 1.0, 0.5), (3, 1.0, 0.0), (50, 2.0, 0.5)])
def test_sweeps_steps_on_a_grid_are_those_that_raise_the_dual(
    loss: Any, form: str, most: int, sigma: float, bias: float
) -> None:
    """The largest number of steps of which each gains; the rows that moved, the losses met, and what the others hide."""
    X, length, alpha, w = explicit(bias), 0.125, np.zeros(N), np.zeros(D + 1)
    slow, u = np.zeros(N), np.zeros(D + 1)
    for seed in range(4):
        order, hidden, losses, moved = order_of(seed), 0.0, 0.0, []
        given = Labeled(rows_of(form, bias), Y, S)
        found = mpu_pass.py_func(given, order, Box(C, loss, sigma), Steps(length, most), alpha, w)
        for i in order_of(seed):
            weight = C * S[i]
            if weight == 0.0:
                continue
            m, a, top = Y[i] * (X[i] @ u), slow[i], loss.upper(weight)
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
                u += sigma * (slow[i] - a) * Y[i] * X[i]
        assert found.moved == len(moved)
        np.testing.assert_array_equal(order[: len(moved)], moved)
        np.testing.assert_allclose(alpha, slow, rtol=1e-12)
        np.testing.assert_allclose(w, u, rtol=1e-9, atol=1e-12)
        assert (found.losses, found.hidden) == pytest.approx((losses, hidden), rel=1e-9)


# -- all classes in one problem ----------------------------------------------------------------------------------------

K = 4
CODES = RNG.integers(0, K, N).astype(np.float64)


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


@each_loss
@each_form
@pytest.mark.parametrize(("sigma", "bias"), [(1.0, 0.5), (3.0, 0.0)])
def test_a_sweep_over_classes_sets_the_numbers_of_each_row_to_their_best(
    loss: Any, form: str, sigma: float, bias: float
) -> None:
    X, alpha, W = explicit(bias), np.zeros((N, K)), np.zeros((K, D + 1))
    slow, V = np.zeros((N, K)), np.zeros((K, D + 1))
    for seed in range(3):
        order, losses, count, begun = order_of(seed), 0.0, N - 2, alpha.copy()
        found = multinomial_sweep.py_func(
            Labeled(rows_of(form, bias), CODES, S), order, count, Box(C, loss, sigma), alpha, W
        )
        for i in order_of(seed)[:count]:
            weight, own, q = C * S[i], int(CODES[i]), sigma * X[i] @ X[i]
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
def test_sweeps_sums_over_rows_of_all_classes(loss: Any) -> None:
    """Losses of the margin above the largest other class, and the dual values of rows that have a weight."""
    F, alpha = RNG.normal(size=(N, K)), RNG.random((N, K)) * 0.3
    own = CODES.astype(int)
    margins = [F[i, own[i]] - np.delete(F[i], own[i]).max() for i in range(N)]
    losses = sum(C * S[i] * loss.value(margins[i]) for i in range(N))
    b = [alpha[i, own[i]] for i in range(N)]
    gains = sum(b[i] - loss.conjugate(b[i], C * S[i]) for i in np.flatnonzero(S))
    assert multinomial_loss_sum.py_func(F, CODES, S, C, loss) == pytest.approx(losses, rel=1e-12)
    assert multinomial_dual_sum.py_func(alpha, CODES, S, C, loss) == pytest.approx(gains, rel=1e-12)


# -- rows in a metric --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("loss", [Hinge(), Huber(0.25)], ids=lambda loss: type(loss).__name__)
@pytest.mark.parametrize("bias", [0.0, 0.5])
def test_a_sweep_in_a_metric_is_coordinate_ascent_in_its_inverse(loss: Any, bias: float) -> None:
    """Three full columns, the constant among them; w is (I + M)^-1 times the sum of rows, and rows at their bounds are left out."""
    full, rng = np.array([1, 4, D]), np.random.default_rng(3)
    metric = np.diag(rng.uniform(1.0, 4.0, D + 1))
    A = rng.normal(size=(3, 3))
    metric[np.ix_(full, full)] = A @ A.T + np.eye(3)
    inverse = np.linalg.inv(np.linalg.cholesky(metric[np.ix_(full, full)]))
    place = np.full(D + 1, -1, np.int32)
    place[full] = np.arange(3)
    rows = metric_rows(csr_of(VALUES, bias), place, 1.0 / np.diag(metric), inverse)
    X, half, u, w, a = explicit(bias), np.linalg.inv(metric), np.zeros(3), np.zeros(D + 1), np.zeros(N)
    slow, count, s = np.zeros(N), N, np.maximum(S, 0.25)  # rows of weight 0 are not kept in memory
    terms = RowTerms(Y, s, C, loss)
    order, todo = order_of(0), list(order_of(0))
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


# -- coordinates of a quadratic ----------------------------------------------------------------------------------------


def test_sweeps_each_coordinate_is_set_to_its_best_beside_an_l1_term() -> None:
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


# -- pairs -------------------------------------------------------------------------------------------------------------


def pairs_slowly(M: Any, p: Any, x: Any, low: Any, high: Any, tolerance: float, most: int) -> int:
    """The pairs of the module's rule, one after the other, with the gradient made anew each time."""
    for step in range(most):
        v = p - M @ x
        grow, shrink = np.flatnonzero(x < high), np.flatnonzero(x > low)
        i = grow[np.argmax(v[grow])]
        if v[i] - v[shrink].min() <= tolerance:
            return step
        curvatures = np.maximum(M[i, i] + np.diag(M) - 2.0 * M[i], FLAT)
        drops = np.maximum(v[i] - v[shrink], 0.0) ** 2 / curvatures[shrink]
        j = shrink[np.argmax(drops)]
        s = min((v[i] - v[j]) / curvatures[j], high[i] - x[i], x[j] - low[j])
        x[i], x[j] = (high[i] if s == high[i] - x[i] else x[i] + s), (low[j] if s == x[j] - low[j] else x[j] - s)
    return most


@each_value(("count", [2, 7, STRIPE, STRIPE + 1, 2 * STRIPE + 5]), ("most", [1, 2, 30]))
def test_sweeps_pairs_are_those_of_the_second_order(count: int, most: int) -> None:
    """Whatever stripe they are in; some coordinates begin at an end of their box."""
    rng = np.random.default_rng(count)
    A = rng.normal(size=(count, 5))
    M, p = A @ A.T + 0.5 * np.eye(count), rng.normal(size=count)
    low, high = -rng.choice([0.0, 1.0], count), rng.uniform(0.5, 2.0, count)
    x = np.clip(rng.choice([-1.0, 0.0, 0.3, 5.0], count), low, high)
    v, slow = p - M @ x, x.copy()
    steps = smo.py_func(M, x, low, high, v, 1e-3, most)
    assert steps == pairs_slowly(M, p, slow, low, high, 1e-3, most)
    np.testing.assert_allclose(x, slow, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(v, p - M @ slow, rtol=1e-8, atol=1e-9)
