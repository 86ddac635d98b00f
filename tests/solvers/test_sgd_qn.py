"""SGD-QN: the pass against its formula in numpy, its dual point, and how copies are joined."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import numpy as np
import pytest

from streamsvm.compute.passes.sgd_qn import STEEPEST, Counted, Moving, measure, sgd_qn_pass
from streamsvm.compute.passes.stochastic import Objective
from streamsvm.losses import Hinge, SquaredHinge
from streamsvm.rows import Dense, Labeled
from streamsvm.solvers.sgd_qn import SGDQN
from tests.solvers.problems import ROWS, epoch_blocks, explicit_dual, problem_of, rows_of, signed_rows

SKIP, T0 = 4, 6.0


def literally(loss: Any, order: Any, lam: float) -> Any:
    """w, H and the b_i of one pass from 0, as the module of the pass has them; (7,), (7,), (rows,). Losses; w each time it shrank."""
    Z, (_, _, s) = signed_rows(), rows_of()
    w, H, past, b, due = np.zeros(7), np.full(7, lam * T0), np.zeros(7), np.zeros(ROWS), False
    losses, shrunk = 0.0, []
    for count, i in enumerate(order, 1):
        z, weight = Z[i], float(s[i])
        if due:
            gradients = [lam * u + weight * loss.slope(float(z @ u)) * z for u in (w, past)]
            moved = w - past
            ratio = np.divide(gradients[0] - gradients[1], moved, out=np.full(7, lam), where=moved != 0.0)
            H, due = H + SKIP * np.clip(ratio, lam, STEEPEST * lam), False
        b[i] = -weight * loss.slope(float(z @ w))
        losses += weight * loss.value(float(z @ w))
        if count % SKIP == 0:
            past, due = w.copy(), True
            w = w - SKIP * lam * w / H
            shrunk.append(w)
        w = w + b[i] * z / H
    return w, H, b, losses, shrunk


@pytest.mark.parametrize("loss", [Hinge(), SquaredHinge()])
def test_sgd_qn_pass_is_the_formula_and_its_slopes_a_dual_point(loss: Any) -> None:
    (X, y, s), C = rows_of(), 0.5
    lam, order = 1.0 / (C * ROWS), np.random.default_rng(3).permutation(ROWS).astype(np.int32)
    at = Moving(np.zeros(7), np.full(7, lam * T0), *np.zeros((4, 7)))
    clock = Counted(0, False)
    sums = np.zeros(4)
    for part in (order[:130], order[130:]):  # the clock goes on from block to block
        summed, clock = sgd_qn_pass(Labeled(Dense(X, 1.0), y, s), part, Objective(lam, loss), SKIP, clock, at)
        sums += summed
    w, H, b, losses, shrunk = literally(loss, order, lam)
    np.testing.assert_allclose(at.w, w, rtol=1e-9)
    np.testing.assert_allclose(at.H, H, rtol=1e-9)
    assert H.max() > lam * (T0 + ROWS)  # the loss bends somewhere
    np.testing.assert_allclose(at.total, np.sum(shrunk, axis=0), rtol=1e-9)
    assert sums[2:] == pytest.approx([losses, len(shrunk)])
    np.testing.assert_allclose(at.v, b @ signed_rows(), rtol=1e-9)
    v = C * at.v
    assert C * (sums[0] - sums[1]) - 0.5 * v @ v == pytest.approx(explicit_dual(C * b, loss, C), rel=1e-9)


def test_sgd_qn_ignores_columns_that_did_not_move() -> None:
    """Five columns: one that has not moved, one that moved a little, as far as it bends, much, and the other way."""
    lam, x = 0.5, np.array([[2.0, 1.0, 1.0, 1.0, -1.0]], np.float32)
    before, moved = np.zeros(6), np.array([0.0, 1e-6, 0.01, 1e3, 0.02, 0.0])
    at = Moving(before + moved, np.ones(6), before, *np.zeros((3, 6)))
    for run in (measure, measure.py_func):
        at.H[:] = 1.0
        run(
            Labeled(Dense(x), np.ones(1, np.float32), np.full(1, 0.25, np.float32)),
            0,
            Objective(lam, SquaredHinge()),
            3,
            at,
        )
        change = 0.25 * (SquaredHinge().slope(float(moved[:5] @ x[0])) - SquaredHinge().slope(0.0)) * x[0]
        expected = [
            lam,
            *(min(max(lam + c / m, lam), STEEPEST * lam) for c, m in zip(change[1:], moved[1:5], strict=True)),
            lam,
        ]
        np.testing.assert_allclose(at.H, 1.0 + 3.0 * np.array(expected), rtol=1e-12)
        assert (at.H[[0, 5]] == 1.0 + 3.0 * lam).all()


@pytest.mark.parametrize("C", [0.5, 50.0])
def test_sgd_qn_merge_adds_changes_of_the_matrix(C: float) -> None:
    """Where it is large, and where it is small."""
    solver, problem = SGDQN(t0=T0), problem_of(Hinge(), C)
    state = solver.start(problem)
    for block in epoch_blocks(0):
        solver.visit(state, block)
    solver.finish(state)
    copies = [deepcopy(state) for _ in range(3)]
    for copy, block in zip(copies, epoch_blocks(1), strict=True):
        solver.visit(copy, block)
    H = state.H + sum(copy.H - state.H for copy in copies)
    weighed = state.H * state.w + sum(copy.H * copy.w - state.H * state.w for copy in copies)
    whole = solver.merge(copies)
    np.testing.assert_allclose(whole.H, H, rtol=1e-12)
    np.testing.assert_allclose(whole.w, weighed / H, rtol=1e-9)
    assert whole.samples == sum(copy.samples for copy in copies)
    assert (H.max() < 1.0) == (C > 1.0)
