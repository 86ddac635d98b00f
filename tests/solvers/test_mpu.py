"""The margin perceptron with unlearning: steps on a grid that raise the dual, and what the grid hides."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from streamsvm.compute.passes.dcd import Box, Steps, mpu_pass
from streamsvm.losses import Hinge, SquaredHinge
from streamsvm.rows import Dense, Labeled
from streamsvm.solvers.dcd import MPU, MPUState
from tests.solvers.problems import ROWS, epoch_blocks, explicit_dual, problem_of, rows_of, signed_rows

C = 0.5


def passed(loss: Any, alpha: Any, w: Any, length: float, most: int, seed: int) -> Any:
    X, y, s = rows_of()
    order = np.random.default_rng(seed).permutation(ROWS).astype(np.int32)
    return mpu_pass(Labeled(Dense(X, 1.0), y, s), order, Box(C, loss), Steps(length, most), alpha, w)


@pytest.mark.parametrize("loss", [Hinge(), Hinge(0.5), SquaredHinge()])
@pytest.mark.parametrize("most", [1, 5])
def test_mpu_steps_are_whole_and_raise_the_dual_until_nothing_moves(loss: Any, most: int) -> None:
    """A finite run: at its end what rows hide is the whole gap, and for the hinge at most half a step's worth of each."""
    length, (_, _, s), Z = 2.0**-5, rows_of(), signed_rows()  # a whole number of steps to the end of every box
    alpha, w, value = np.zeros(ROWS), np.zeros(Z.shape[1]), 0.0
    top = np.array([loss.upper(C * float(c)) if c else 0.0 for c in s])
    for seed in range(400):
        found = passed(loss, alpha, w, length, most, seed)
        before, value = value, explicit_dual(alpha, loss, C)
        inside = alpha < top
        np.testing.assert_allclose(alpha[inside] / length, np.round(alpha[inside] / length), atol=1e-6)
        assert np.all(alpha >= 0.0)
        assert np.all(alpha <= top)
        np.testing.assert_allclose(w, alpha @ Z, atol=1e-10)
        if found.moved == 0:
            break
        assert value > before
    assert found.moved == 0
    primal = 0.5 * w @ w + sum(C * float(c) * loss.value(m) for c, m in zip(s, Z @ w, strict=True))
    assert found.hidden == pytest.approx(primal - value, rel=1e-6)
    if loss == Hinge():
        assert found.hidden <= 0.5 * length * C * float(s @ (Z * Z).sum(1))


def test_mpu_grid_follows_the_gap() -> None:
    """Its dual is that of its variables after every pass, and the run comes to a gap that the first grid would have hidden."""
    solver, problem = MPU(), problem_of(Hinge())
    state = solver.start(problem)
    assert isinstance(state, MPUState)
    alpha, lengths = np.zeros(ROWS), []
    for epoch in range(80):
        trains = not state.certifying
        for block in epoch_blocks(epoch):
            part = slice(block.start, block.start + 100)
            block.rows["alpha"] = alpha[part]
            solver.visit(state, block)
        certificate = solver.finish(state)
        lengths.append(state.length)
        if trains:
            assert certificate.dual == pytest.approx(explicit_dual(alpha, problem.loss, problem.C), rel=1e-9)
    solver.certify(state)
    for block in epoch_blocks(0):
        block.rows["alpha"] = alpha[block.start : block.start + 100]
        solver.visit(state, block)
    certificate = solver.finish(state)
    assert certificate.exact
    assert 0.0 <= certificate.gap < 3e-4
    assert lengths == sorted(lengths, reverse=True)
    assert lengths[-1] < 1e-2 * lengths[0]


def test_mpu_merge_adds_what_grids_hide() -> None:
    solver = MPU(parts=2)
    copies = [solver.start(problem_of(Hinge())) for _ in range(2)]
    for copy, n in zip(copies, (1.0, 3.0), strict=True):
        assert isinstance(copy, MPUState)
        copy.hidden, copy.length, copy.certifying = n, 0.5, True
    whole, alone = solver.merge(copies), solver.merge(copies[:1])
    assert isinstance(whole, MPUState)
    assert isinstance(alone, MPUState)
    assert (whole.hidden, whole.length) == (4.0, 0.5)
    assert (alone.hidden, alone.length) == (1.0, 0.5)
