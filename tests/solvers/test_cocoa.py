"""Groups that move at once: the joined point is where it is said to be, in the box, and never worse."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from streamsvm.losses import Hinge, Huber, SquaredHinge
from streamsvm.rows import Dense
from streamsvm.solvers.dcd import DCD, Joint
from streamsvm.types import Block, Problem

PARTS, C = 3, 0.7


def dual_of(loss: Any, a: Any, Z: Any, s: Any) -> float:
    """D(a), in plain numpy."""
    return float(
        sum(x - loss.conjugate(x, C * t) for x, t in zip(a, s.tolist(), strict=True) if t) - 0.5 * (a @ Z) @ (a @ Z)
    )


@pytest.mark.parametrize("loss", [Hinge(), SquaredHinge(), Huber(0.2)])
@pytest.mark.parametrize("sigma", [1.0, 3.0])
def test_cocoa_joined_dual_is_that_of_the_rows_and_never_falls(loss: Any, sigma: float) -> None:
    rng = np.random.default_rng(4)
    X = rng.normal(size=(90, 6)).astype(np.float32) + 0.5  # what all rows share is what makes groups disagree
    y = np.where(X[:, 0] + rng.normal(size=90) > 0.5, 1.0, -1.0).astype(np.float32)
    s = rng.choice([0.0, 0.5, 2.0], 90).astype(np.float32)
    Z = np.hstack([X, np.ones((90, 1))]) * y[:, None]
    solver = DCD(parts=PARTS, sweeps=2)
    state = solver.start(Problem(loss, C, 90, 6, 1))
    assert state.joint is not None
    state.joint.sigma = sigma
    rows = {name: np.zeros(90) for name in ("alpha", "before")}
    before, groups = -np.inf, np.array_split(np.arange(90), PARTS)
    for number in range(8):
        copies = []
        for k, mine in enumerate(groups):
            copy = solver.start(state.problem)
            copy.w, copy.joint = state.w.copy(), fresh(state.joint)
            given = {name: values[mine[0] : mine[-1] + 1] for name, values in rows.items()}
            order = rng.permutation(len(mine)).astype(np.int32)
            solver.visit(copy, Block(Dense(X[mine], 1.0), y[mine], s[mine], k, int(mine[0]), order, number, rows=given))
            copies.append(copy)
        state = solver.merge(copies)
        assert state.joint is not None
        settled = {name: values.copy() for name, values in rows.items()}
        for k, mine in enumerate(groups):
            given = {name: values[mine[0] : mine[-1] + 1] for name, values in settled.items()}
            block = Block(Dense(X[mine], 1.0), y[mine], s[mine], k, 0, np.arange(0, dtype=np.int32), 0, rows=given)
            solver.apply_steps(state.joint, state.problem, block)
        a = settled["alpha"]
        assert (a >= 0.0).all()
        assert all(x <= loss.upper(C * t) for x, t in zip(a, s.tolist(), strict=True) if t)
        assert (a[s == 0.0] == 0.0).all()
        np.testing.assert_allclose(state.w, a @ Z, rtol=1e-9, atol=1e-9)
        found = state.duals - 0.5 * float(state.w @ state.w)
        assert found == pytest.approx(dual_of(loss, a, Z, s), rel=1e-9)
        assert found >= before - 1e-9 * abs(found)
        before = found
    assert before > 0.0


def fresh(joint: Joint) -> Joint:
    """A copy of its own, with nothing proposed yet."""
    return Joint(joint.sigma, joint.origin.copy(), joint.steps.copy(), np.zeros_like(joint.vectors))
