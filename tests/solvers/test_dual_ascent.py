"""Pieces of dual coordinate descent by themselves: what a visit counts, how means are weighed, when it evaluates, how groups are joined."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from streamsvm.losses import (
    EpsilonInsensitive,
    Hinge,
    Huber,
    Logistic,
    Pinball,
    SquaredEpsilonInsensitive,
    SquaredHinge,
)
from streamsvm.rows import Dense
from streamsvm.solvers.dcd import DCD, ROWS_PER_SAMPLE, common_direction, maximize_steps, start_joint
from streamsvm.types import Block, Problem
from tests.axes import each_value


def block_of(n: int, *, cached: bool, names: tuple[str, ...] = ("alpha",)) -> Block:
    rng = np.random.default_rng(6)
    X = rng.normal(size=(n, 3)).astype(np.float32)
    y = np.where(X[:, 0] + rng.normal(size=n) > 0, 1.0, -1.0).astype(np.float32)
    rows = {name: np.zeros(n) for name in names}
    return Block(
        Dense(X, 1.0), y, np.ones(n, np.float32), 0, 0, np.arange(n, dtype=np.int32), 5, cached=cached, rows=rows
    )


def test_the_mean_of_a_pass_is_that_of_its_samples() -> None:
    """After every slice of rows, and of each block."""
    n = ROWS_PER_SAMPLE + 500
    solver, block = DCD(sweeps=1), block_of(n, cached=True)
    state, sliced = (solver.start(Problem(Hinge(), 1.0, n, 3, 1)) for _ in range(2))
    solver.visit(state, block)
    again, seen = block_of(n, cached=True), []
    for part in (slice(0, ROWS_PER_SAMPLE), slice(ROWS_PER_SAMPLE, n)):
        solver.visit(sliced, replace(again, order=again.order[part].copy()))
        seen.append(sliced.w.copy())
    np.testing.assert_array_equal(state.w, sliced.w)
    np.testing.assert_allclose(state.mean, seen[0] + seen[1], rtol=1e-12)
    assert state.losses == pytest.approx(sliced.losses, rel=1e-12)


# -- groups that move at once ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(10))
def test_cocoa_step_lengths_are_optimal_in_their_intervals(seed: int) -> None:
    """Against a general optimizer; a direction without length takes no step."""
    from scipy.optimize import minimize

    rng = np.random.default_rng(seed)
    A, gradient = rng.normal(size=(6, 8)), 3.0 * rng.normal(size=6)
    A[2] = 0.0
    matrix, lowest = A @ A.T, np.tile([0.0, -1.0], 3)
    t = maximize_steps(gradient, matrix, lowest)
    assert t[2] == 0.0
    assert (t >= lowest).all()
    assert (t <= 1.0).all()
    kept = [0, 1, 3, 4, 5]
    M, g = matrix[np.ix_(kept, kept)], gradient[kept]
    found = minimize(
        lambda x: 0.5 * x @ M @ x - g @ x,
        np.zeros(5),
        jac=lambda x: M @ x - g,
        bounds=[(low, 1.0) for low in lowest[kept]],
        options={"ftol": 1e-15, "gtol": 1e-12},
    )
    np.testing.assert_allclose(t[kept], found.x, atol=1e-5)
    slope = g - M @ t[kept]
    inside = (t[kept] > lowest[kept]) & (t[kept] < 1.0)
    np.testing.assert_allclose(slope[inside], 0.0, atol=1e-9)


LOSSES = [
    Hinge(),
    SquaredHinge(),
    Huber(0.3),
    Logistic(),
    EpsilonInsensitive(0.1),
    SquaredEpsilonInsensitive(0.1),
    Pinball(0.3),
]


def proposal(loss: Any) -> tuple[Block, Problem, Any, Any]:
    """A block of 60 rows, some without weight, with dual variables before and after a move, all in their boxes; its boxes."""
    rng, C = np.random.default_rng(8), 0.7
    X = rng.normal(size=(60, 3)).astype(np.float32)
    y = rng.choice([-1.0, 1.0], 60).astype(np.float32)
    s = rng.choice([0.0, 0.5, 2.0], 60).astype(np.float32)
    c = C * s.astype(float)
    low = np.array([-v * loss.slope(np.inf) if v and loss.numeric() else 0.0 for v in c])
    high = np.array([loss.upper(v) if v else 0.0 for v in c])
    ends = np.maximum(low, -3.0 * (c > 0)), np.minimum(high, 3.0 * (c > 0))
    before, alpha = (ends[0] + rng.choice([0.0, 0.02, 0.4, 0.97, 1.0], 60) * (ends[1] - ends[0]) for _ in range(2))
    alpha[::4] = before[::4]
    rows = {"alpha": alpha, "before": before}
    block = Block(Dense(X, 1.0), y, s, 4, 0, np.arange(60, dtype=np.int32), 0, rows=rows)
    return block, Problem(loss, C, 60, 3, 1), low, high


def gains(loss: Any, a: Any, block: Block, C: float) -> float:
    """Sum a_i - conjugate(a_i), of numbers a_i t_i more."""
    total = 0.0
    for x, t, c in zip(a, block.y.astype(float), C * block.s.astype(float), strict=True):
        total += (x * t if loss.numeric() else 0.0) + x - loss.conjugate(x, c) if c > 0.0 else 0.0
    return total


@pytest.mark.parametrize("loss", LOSSES, ids=str)
def test_cocoa_bounds_the_dual_of_a_partial_move_from_below(loss: Any) -> None:
    """Both directions with every row in its box: the sums say what a is worth wherever the group is let go."""
    block, problem, low, high = proposal(loss)
    joint = start_joint(3, np.zeros(4), 1.0)
    DCD(parts=3).add_proposals(joint, problem, block)
    before, move, shift = (
        block.rows["before"],
        block.rows["alpha"] - block.rows["before"],
        common_direction(problem, block),
    )
    signs = 1.0 if loss.numeric() else block.y.astype(float)
    Z = np.column_stack([block.X.values.astype(float), np.ones(60)])
    np.testing.assert_allclose(joint.vectors, [(move * signs) @ Z, (shift * signs) @ Z], rtol=1e-6, atol=1e-9)
    assert joint.dual == pytest.approx(gains(loss, before, block, problem.C), rel=1e-9)
    parabola = loss.quadratic() and not loss.numeric()
    for t in ([0.0, 0.0], [1.0, 0.0], [0.5, 0.0], [0.0, 1.0], [0.0, -1.0], [0.6, 0.8], [1.0, -0.7]):
        there = before + t[0] * move + t[1] * shift
        assert (there >= low - 1e-12).all()
        assert (there <= high + 1e-12).all()
        said = joint.dual + joint.linear @ t + t @ joint.quadratic @ np.array(t)
        found = gains(loss, there, block, problem.C)
        assert said <= found + 1e-9 * abs(found)
        if parabola or (t[0] in (0.0, 1.0) and not t[1]):
            assert said == pytest.approx(found, rel=1e-9)
    assert shift.any() == loss.quadratic()


@each_value(("loss", LOSSES), ("steps", [(1.0, 0.0), (0.0, 0.0), (0.25, -0.5), (1.0, 1.0)]))
def test_cocoa_moves_rows_with_their_group_inside_the_box(loss: Any, steps: tuple[float, float]) -> None:
    """Chunk 4 of groups 0, 1 and 2 is one of group 1."""
    block, problem, low, high = proposal(loss)
    joint = start_joint(3, np.zeros(4), 1.0)
    joint.steps[1] = steps
    before, move, shift = (
        block.rows["before"].copy(),
        block.rows["alpha"] - block.rows["before"],
        common_direction(problem, block),
    )
    DCD(parts=3).apply_steps(joint, problem, block)
    expected = before + steps[0] * move + steps[1] * shift
    np.testing.assert_allclose(block.rows["alpha"], expected, rtol=1e-12, atol=1e-15)
    assert (block.rows["alpha"] >= low - 1e-12).all()
    assert (block.rows["alpha"] <= high + 1e-12).all()
