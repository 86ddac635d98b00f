"""ASSG: its stages, its automatic start, and the dual point of a pass."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from streamsvm.losses import Hinge, Huber, SquaredHinge
from streamsvm.solvers.stochastic import ASSG
from tests.solvers.problems import ROWS, epoch_blocks, explicit_dual, problem_of, rows_of, signed_rows

LOSSES = [Hinge(), SquaredHinge(), Huber(0.25)]


def test_assg_mean_of_a_stage_is_in_its_ball() -> None:
    solver = ASSG(rows_per_stage=100, radius=0.01, step=1.0)
    state = solver.start(problem_of(Hinge()))
    blocks, radius, center = epoch_blocks(0), 0.01, None
    for block in blocks:
        before = state.center.copy()
        solver.visit(state, block)
        if center is not None:
            assert np.linalg.norm(state.center - before) <= radius * (1 + 1e-9)
            radius /= 2.0
        else:
            radius = state.radius
        center = state.center


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("batch", [1, 16])
def test_assg_only_C_need_be_set(loss: Any, batch: int) -> None:
    """Steps and radius found are positive, finite and stable, also where the sample is one row or says nothing."""
    for sample in (4096, 1):
        solver = ASSG(batch=batch, sample=sample)
        state = solver.start(problem_of(loss))
        solver.visit(state, epoch_blocks(0)[0])
        assert 0.0 < state.first_step < 1.0 / state.lam
        assert 0.0 < state.first_radius < np.inf
        assert np.all(np.isfinite(state.w))


@pytest.mark.parametrize("loss", LOSSES)
def test_assg_dual_point_of_a_pass_is_feasible(loss: Any) -> None:
    """With v, linear and quadratic of a pass as the certificate has them: the dual of a_i = C b_i, rows met once."""
    problem, solver = problem_of(loss), ASSG(batch=ROWS)
    state, (_, _, s), Z = solver.start(problem), rows_of(), signed_rows()
    a = np.zeros(ROWS)
    for block in epoch_blocks(0):
        if state.length == 0.0:
            solver._begin(state, block)
        rows = slice(block.start, block.start + 100)
        m = Z[rows] @ state.w  # one batch: every margin of the block is met at this w
        a[rows] = [-problem.C * float(c) * loss.slope(v) for c, v in zip(s[rows], m, strict=True)]
        state.left = 1e9
        solver.visit(state, block)
    v = problem.C * state.v
    np.testing.assert_allclose(v, a @ Z, atol=1e-9)
    value = problem.C * (state.linear - state.quadratic) - 0.5 * v @ v
    assert value == pytest.approx(explicit_dual(a, loss, problem.C))
    assert solver.finish(state).dual >= value
