"""All classes in one problem by groups that move at once, and from given weights: what is summed is that of the rows, in float64."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from streamsvm.engine.evaluation import MultinomialEvaluation
from streamsvm.losses import Hinge, Huber, SquaredHinge
from streamsvm.rows import Dense
from streamsvm.solvers.dcd import Joint, MultinomialDCD
from streamsvm.solvers.evaluation import slopes_of
from streamsvm.types import Block, Problem

PARTS, CLASSES, C, ROWS, COLUMNS = 3, 4, 0.7, 90, 5


def table() -> tuple[Any, Any, Any]:
    rng = np.random.default_rng(4)
    X = rng.normal(size=(ROWS, COLUMNS)).astype(np.float32) + 0.5
    y = np.argmax(X[:, :CLASSES] + rng.normal(size=(ROWS, CLASSES)), axis=1).astype(np.float32)
    return X, y, rng.choice([0.0, 0.5, 2.0], ROWS).astype(np.float32)


def problem_of(loss: Any, **more: Any) -> Problem:
    return Problem(loss, C, ROWS, COLUMNS, 0, classes=CLASSES, **more)


def with_constant() -> Any:
    return np.hstack([table()[0].astype(float), np.ones((ROWS, 1))])


def dual_of(loss: Any, a: Any) -> float:
    """D(a), row by row: b_i - conjugate(b_i) less half the norm of W = sum a_i x_i'."""
    _, y, s = table()
    own = a[np.arange(ROWS), y.astype(int)]
    gains = [b - loss.conjugate(b, C * c) for b, c in zip(own, s.astype(float), strict=True) if c > 0.0]
    return float(sum(gains) - 0.5 * np.sum((a.T @ with_constant()) ** 2))


def primal_of(loss: Any, W: Any) -> float:
    """P(W): a margin is how far the value of a row's own class is above the largest other one."""
    _, y, s = table()
    values, total = with_constant() @ W.T, 0.5 * float(np.sum(W**2))
    for f, k, c in zip(values, y.astype(int), s.astype(float), strict=True):
        total += C * c * loss.value(f[k] - max(np.delete(f, k)))
    return total


def block_of(mine: Any, number: int, k: int, rows: dict[str, Any]) -> Block:
    X, y, s = table()
    order = np.random.default_rng(number).permutation(len(mine)).astype(np.int32)
    return Block(Dense(X[mine], 1.0), y[mine], s[mine], k, int(mine[0]), order, number, rows=rows)


@pytest.mark.parametrize("loss", [Hinge(), SquaredHinge(), Huber(0.2)], ids=str)
@pytest.mark.parametrize("sigma", [1.0, 3.0])
def test_multinomial_joined_dual_is_that_of_the_rows_and_never_falls(loss: Any, sigma: float) -> None:
    solver = MultinomialDCD(sweeps=2, parts=PARTS, classes=CLASSES)
    state = solver.start(problem_of(loss))
    assert state.joint is not None
    state.joint.sigma = sigma
    rows = {name: np.zeros((ROWS, CLASSES)) for name in ("alpha", "before")}
    before, groups, cut = -np.inf, np.array_split(np.arange(ROWS), PARTS), 0
    for number in range(8):
        copies, joint = [], state.joint
        assert joint is not None
        for k, mine in enumerate(groups):
            copy = solver.start(state.problem)
            copy.w = state.w.copy()
            copy.joint = Joint(joint.sigma, joint.origin.copy(), joint.steps.copy(), np.zeros_like(joint.vectors))
            part = slice(mine[0], mine[-1] + 1)
            solver.visit(copy, block_of(mine, number, k, {name: values[part] for name, values in rows.items()}))
            copies.append(copy)
        state = solver.merge(copies)
        assert state.joint is not None
        cut += int((state.joint.steps[:, 0] < 1.0).sum())
        assert (state.joint.steps[:, 1] == 0.0).all()  # a group proposes its move alone
        settled = {name: values.copy() for name, values in rows.items()}
        for k, mine in enumerate(groups):
            part = slice(mine[0], mine[-1] + 1)
            given = block_of(mine, number, k, {name: values[part] for name, values in settled.items()})
            solver.apply_steps(state.joint, state.problem, given)
        a, (_, y, s) = settled["alpha"], table()
        own = a[np.arange(ROWS), y.astype(int)]
        np.testing.assert_allclose(a.sum(1), 0.0, atol=1e-12)
        assert (own >= 0.0).all()
        assert all(b <= loss.upper(C * c) * (1.0 + 1e-12) for b, c in zip(own, s.astype(float), strict=True) if c)
        assert (a[s == 0.0] == 0.0).all()
        np.testing.assert_allclose(state.w.reshape(CLASSES, -1), a.T @ with_constant(), rtol=1e-9, atol=1e-9)
        found = state.duals - 0.5 * float(state.w @ state.w)
        assert found == pytest.approx(dual_of(loss, a), rel=1e-9)
        assert found >= before - 1e-9 * abs(found)
        before = found
    assert before > 0.0
    assert cut > 0 or sigma > 1.0


@pytest.mark.parametrize("loss", [Hinge(), SquaredHinge(), Huber(0.2)], ids=str)
def test_multinomial_warm_start_gives_rows_the_slopes_at_their_margins(loss: Any) -> None:
    """All of it taken from the class that comes next; best scaled it proves what the sums say."""
    W = np.random.default_rng(1).normal(size=(CLASSES, COLUMNS + 1))
    solver = MultinomialDCD(classes=CLASSES)
    state = solver.start(problem_of(loss, warm=W.ravel()))
    alpha = np.ones((ROWS, CLASSES))
    solver.visit(state, block_of(np.arange(ROWS), 0, 0, {"alpha": alpha}))
    _, y, s = table()
    values, expected = with_constant() @ W.T, np.zeros((ROWS, CLASSES))
    for i, k in enumerate(y.astype(int)):
        others = values[i].copy()
        others[k] = -np.inf
        following = int(np.argmax(others))
        b = -C * float(s[i]) * slopes_of(loss).slope(values[i, k] - others[following])
        expected[i, k], expected[i, following] = b, -b
    np.testing.assert_allclose(alpha, expected, rtol=1e-6, atol=1e-9)
    found = solver.finish(state)
    assert found.exact
    assert found.primal == pytest.approx(primal_of(loss, W), rel=1e-6)
    duals = [
        dual_of(loss, t * expected) for t in np.geomspace(1e-4, 2.0 if isinstance(loss, SquaredHinge) else 1.0, 2001)
    ]
    assert found.dual == pytest.approx(max(duals), rel=1e-4)
    assert found.dual == pytest.approx(dual_of(loss, state.scale * expected), rel=1e-6)
    np.testing.assert_allclose(state.w.reshape(CLASSES, -1), state.scale * expected.T @ with_constant(), rtol=1e-5)


@pytest.mark.parametrize("loss", [Hinge(), SquaredHinge(), Huber(0.2)], ids=str)
def test_multinomial_last_evaluation_of_parts_is_that_of_all_rows(loss: Any) -> None:
    """P at weights, D of dual variables and their W, from three parts of the rows."""
    rng, W = np.random.default_rng(6), np.linspace(-0.5, 0.7, CLASSES * (COLUMNS + 1)).reshape(CLASSES, -1)
    _, y, s = table()
    a = -rng.random((ROWS, CLASSES)) * 0.2 * C * (s[:, None] > 0.0)
    own = np.arange(ROWS), y.astype(int)
    a[own] = 0.0
    a[own] = -a.sum(axis=1)
    parts = [MultinomialEvaluation(problem_of(loss), W) for _ in range(PARTS)]
    for k, (part, mine) in enumerate(zip(parts, np.array_split(np.arange(ROWS), PARTS), strict=True)):
        part.add(block_of(mine, k, k, {}), a[mine])
    for part in parts[1:]:
        parts[0].merge(part)
    primal, duals = parts[0].values()
    assert primal == pytest.approx(primal_of(loss, W), rel=1e-9)
    assert duals == pytest.approx([dual_of(loss, a)], rel=1e-9)
    np.testing.assert_allclose(parts[0].vector(), a.T @ with_constant(), rtol=1e-9)
