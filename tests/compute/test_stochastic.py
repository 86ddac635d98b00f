"""Passes of stochastic solvers: the multiple update in closed form, and every pass against its own plain Python and steps on w itself."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamsvm.compute.passes.stochastic import Batches, Objective, Stage, assg_pass, pegasos_pass, sgd_pass, updates
from streamsvm.losses import Hinge, Huber, Logistic, SquaredHinge, threshold
from streamsvm.rows import Dense, Labeled
from tests.arrays import csr_of, sparse_values
from tests.axes import each_value

LAM = 0.03125
LOSSES = [Hinge(), SquaredHinge(), Huber(0.25)]


def shown(excess: float, growth: float, square: float, times: int) -> int:
    """Literally present one row so often."""
    count = 0
    for _ in range(times):
        if excess <= 0.0:
            excess, count = excess + square, count + 1
        excess -= growth
    return count


@given(
    excess=st.integers(-(2**16), 2**16),
    growth=st.integers(1, 2**10),
    square=st.integers(0, 2**14),
    times=st.integers(1, 60),
)
def test_stochastic_pass_closed_form_is_literal_presentation(excess: int, growth: int, square: int, times: int) -> None:
    assert updates(float(excess), float(growth), float(square), times) == shown(excess, growth, square, times)


def small_rows(seed: int = 0, n: int = 40, d: int = 6) -> tuple[Any, Any, Any, Any]:
    """Entries of few bits, so that every sum of them is exact."""
    rng = np.random.default_rng(seed)
    values = (rng.integers(-8, 9, (n, d)) / 8).astype(np.float32)
    values[3] = 0.0
    values[4] *= 32.0
    y = rng.choice([-1.0, 1.0], n).astype(np.float32)
    s = rng.choice([0.0, 0.5, 1.0, 2.0], n).astype(np.float32)
    return values, y, s, rng.permutation(n).astype(np.int32)


@each_value(("times", [2, 5, 13]), ("start", [0, 40, 10_000]))
def test_stochastic_pass_multiple_update_is_the_row_shown_so_often(times: int, start: int) -> None:
    values, y, s, order = small_rows()
    X, objective = Dense(values, 0.5), Objective(LAM, Hinge())
    once, often = np.zeros(7), np.zeros(7)
    for k in range(3):
        t = start + k * times * len(order)
        gained, _ = sgd_pass(Labeled(X, y, s), order, times, objective, t, once)
        literally, _ = sgd_pass(Labeled(X, y, s), np.repeat(order, times), 1, objective, t, often)
        assert gained == literally
        np.testing.assert_array_equal(once, often)
    assert once.any()


@each_value(("loss", [Hinge(), Hinge(2.0), Huber(0.25), Logistic(), Logistic(3.0)]), ("times", [1, 3]))
def test_sgd_pass_is_steps_on_w_and_what_it_gains_bounds_the_dual(loss: Any, times: int) -> None:
    """From w = 0: w <- (1 - 1/t) w - l'(m) s y x / (lambda t), each row several times; a_i = C s_i times the mean of its -l'."""
    values, y, s, order = small_rows()
    rows, a, w, slopes = (
        np.hstack([values.astype(np.float64), np.full((len(y), 1), 0.5)]),
        np.zeros(7),
        np.zeros(7),
        np.zeros(len(y)),
    )
    gained, losses = sgd_pass.py_func(Labeled(Dense(values, 0.5), y, s), order, times, Objective(LAM, loss), 0, a)
    t, met = 0, 0.0
    for i in order:
        for k in range(times):
            m = float(y[i]) * float(rows[i] @ w)
            met += float(s[i]) * loss.value(m) if k == 0 else 0.0
            slope = loss.slope(m) if m != threshold(loss) else -1.0  # at a corner the pass takes the left side
            t += 1
            w = (1.0 - 1.0 / t) * w - slope * float(s[i]) * float(y[i]) / (LAM * t) * rows[i]
            slopes[i] -= slope
    np.testing.assert_allclose(a / (LAM * t), w, rtol=1e-9, atol=1e-9)
    assert losses == pytest.approx(met, rel=1e-9)
    C = s.astype(np.float64) / (LAM * len(y))
    dual = sum(c * b - loss.conjugate(c * b, c) for c, b in zip(C, slopes / times, strict=True) if c > 0.0)
    assert gained / (LAM * t) <= dual * (1.0 + 1e-12)
    if not loss.smooth():
        assert gained / (LAM * t) == pytest.approx(dual, rel=1e-12)


def both_forms(values: Any) -> list[Any]:
    return [Dense(values, 0.5), csr_of(values, 0.5)]


@each_value(("loss", [Hinge(), Logistic()]), ("times", [1, 5]))
def test_sgd_pass_as_compiled(times: int, loss: Any) -> None:
    rng = np.random.default_rng(1)
    values, (_, y, s, order) = sparse_values(rng, 40, 6), small_rows()
    results = []
    for run in (sgd_pass, sgd_pass.py_func):
        for X in both_forms(values):
            a = np.linspace(-1.0, 1.0, 7)
            results.append((*run(Labeled(X, y, s), order, times, Objective(LAM, loss), 11, a), a))
    for found in results[1:]:
        assert found[:2] == pytest.approx(results[0][:2], rel=1e-9)
        np.testing.assert_allclose(found[2], results[0][2], rtol=1e-9, atol=1e-12)


@each_value(("loss", LOSSES), ("batch", [1, 7]), ("radius", [float("inf"), 2.0]))
def test_pegasos_pass_as_compiled_and_as_defined(loss: Any, batch: int, radius: float) -> None:
    rng = np.random.default_rng(2)
    values, (_, y, s, order) = sparse_values(rng, 40, 6), small_rows()
    defined = pegasos_literally(Dense(values, 0.5), y, s, order, loss, batch, radius)
    for run in (pegasos_pass, pegasos_pass.py_func):
        for X in both_forms(values):
            a, total = np.zeros(7), np.zeros(7)
            numbers = run(Labeled(X, y, s), Batches(order, batch), Objective(LAM, loss), radius, 3.0, a, total)
            np.testing.assert_allclose(a, defined[0], rtol=1e-7, atol=1e-8)
            np.testing.assert_allclose(total, defined[1], rtol=1e-7, atol=1e-8)
            np.testing.assert_allclose(numbers[3:], defined[2], rtol=1e-7)


def pegasos_literally(X: Dense, y: Any, s: Any, order: Any, loss: Any, batch: int, radius: float) -> Any:
    """Steps on w itself: shrink, add, project."""
    rows = np.hstack([X.values.astype(np.float64), np.full((len(y), 1), X.bias)])
    w, total, losses, samples, t = np.zeros(7), np.zeros(7), 0.0, 0, 3.0
    for start in range(0, len(order), batch):
        part = order[start : start + batch]
        m = y[part] * (rows[part] @ w)
        losses += sum(float(s[i]) * loss.value(v) for i, v in zip(part, m, strict=True))
        b = np.array([-float(s[i]) * loss.slope(v) for i, v in zip(part, m, strict=True)])
        t += len(part)
        w = (1 - len(part) / t) * w + (b * y[part]) @ rows[part] / (LAM * t)
        w *= min(1.0, radius / max(float(np.linalg.norm(w)), 1e-300))
        total, samples = total + w, samples + 1
    return w * LAM * t, total, [losses, samples]


@each_value(("loss", LOSSES), ("batch", [1, 7]), ("radius", [1e9, 0.5]))
def test_assg_pass_as_compiled_and_as_defined(loss: Any, batch: int, radius: float) -> None:
    rng = np.random.default_rng(3)
    values, (_, y, s, order) = sparse_values(rng, 40, 6), small_rows()
    defined = assg_literally(Dense(values, 0.5), y, s, order, loss, batch, radius)
    for run in (assg_pass, assg_pass.py_func):
        for X in both_forms(values):
            w, center, total, v = np.full(7, 0.1), np.full(7, 0.2), np.zeros(7), np.zeros(7)
            stage, batches = Stage(center, radius, 0.05), Batches(order, batch)
            numbers = run(Labeled(X, y, s), batches, Objective(LAM, loss), stage, w, total, v)
            found: Any
            found_sums = [numbers[0] - numbers[1], *numbers[2:]]
            for found, right in zip((w, total, v, found_sums), defined, strict=True):
                np.testing.assert_allclose(found, right, rtol=1e-7, atol=1e-12)


def assg_literally(X: Dense, y: Any, s: Any, order: Any, loss: Any, batch: int, radius: float) -> Any:
    rows = np.hstack([X.values.astype(np.float64), np.full((len(y), 1), X.bias)])
    """w, the sum of all w, that of the slopes; the dual of those without its norm, losses, and the count of samples."""
    w, center, total, v, losses, samples = np.full(7, 0.1), np.full(7, 0.2), np.zeros(7), np.zeros(7), 0.0, 0
    gains = 0.0
    for start in range(0, len(order), batch):
        part = order[start : start + batch]
        m = y[part] * (rows[part] @ w)
        losses += sum(float(s[i]) * loss.value(u) for i, u in zip(part, m, strict=True))
        b = np.array([-float(s[i]) * loss.slope(u) for i, u in zip(part, m, strict=True)])
        gains += sum(a - loss.conjugate(a, float(s[i])) for i, a in zip(part, b, strict=True) if s[i])
        step = (b * y[part]) @ rows[part]
        w = (1 - 0.05 * LAM * len(part) / batch) * w + 0.05 / batch * step
        w = center + (w - center) * min(1.0, radius / np.linalg.norm(w - center))
        v, total, samples = v + step, total + w, samples + 1
    return w, total, v, [gains, losses, samples]
