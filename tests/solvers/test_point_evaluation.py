"""Sums over rows at a point, and what is read off them: primal, gradient, and the best scaled dual point of the slopes."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from streamsvm.compute.blocks.operators import Factored
from streamsvm.losses import Hinge, Huber, SquaredHinge, round_corners
from streamsvm.rows import Dense
from streamsvm.solvers.evaluation import NO_SUMS, DualPoint, DualSums, PointSums, Sums, WeightEvaluation, slopes_at
from streamsvm.types import Block, Problem
from tests.solvers.problems import COLUMNS, best_scaled, epoch_blocks, explicit_dual, problem_of, rows_of, signed_rows

WEIGHTS = np.linspace(-1.0, 0.6, COLUMNS + 1)


def slopes(loss: Any, C: float) -> Any:
    """a_i = -C s_i l'(m_i) at ``WEIGHTS``."""
    _, _, s = rows_of()
    return np.array(
        [-C * c * loss.slope(m) for m, c in zip(signed_rows() @ WEIGHTS, s.astype(np.float64), strict=True)]
    )


def losses(loss: Any, C: float) -> float:
    _, _, s = rows_of()
    return sum(C * float(c) * loss.value(m) for m, c in zip(signed_rows() @ WEIGHTS, s, strict=True))


def in_factors(block: Any) -> Any:
    """The same rows as a product: kernel values and projection."""
    X = np.asarray(block.X.values, np.float32)
    return replace(block, X=Factored(X, np.eye(COLUMNS, dtype=np.float32), 1.0))


@pytest.mark.parametrize("factored", [False, True])
@pytest.mark.parametrize(("loss", "mu"), [(Hinge(), 0.3), (Huber(0.2), 0.0), (SquaredHinge(), 0.0)])
def test_point_evaluation_primal_dual_and_gradient_are_those_of_the_rows(loss: Any, mu: float, factored: bool) -> None:
    problem, smooth = problem_of(loss, 0.7), round_corners(loss, mu)
    sums = PointSums(COLUMNS + 1)
    for block in epoch_blocks(0):
        f = sums.add(problem, smooth, in_factors(block) if factored else block, WEIGHTS)
        part = slice(block.start, block.start + 100)
        np.testing.assert_allclose(f * block.y, (signed_rows() @ WEIGHTS)[part], rtol=1e-5, atol=1e-5)
    found, a = sums.close(problem, WEIGHTS), slopes(smooth, 0.7)
    half, v = 0.5 * float(WEIGHTS @ WEIGHTS), a @ signed_rows()
    assert found.primal == pytest.approx(half + losses(loss, 0.7), rel=1e-5)
    assert found.value == pytest.approx(half + losses(smooth, 0.7), rel=1e-5)
    np.testing.assert_allclose(found.v, v, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(found.gradient, WEIGHTS - found.v, rtol=1e-12)
    assert found.dual == pytest.approx(best_scaled(a, loss, 0.7), rel=1e-4)
    assert found.dual == pytest.approx(explicit_dual(found.scale * a, loss, 0.7), rel=1e-4)
    unscaled = found.primal - explicit_dual(a, loss, 0.7) - 0.5 * float(found.gradient @ found.gradient)
    assert found.smoothing == pytest.approx(unscaled, abs=1e-3)
    point = DualPoint(WEIGHTS, mu, found.scale)
    given = [slopes_at(problem, point, in_factors(block) if factored else block) for block in epoch_blocks(0)]
    rows = [slice(block.start, block.start + 100) for block in epoch_blocks(0)]
    for values, part in zip(given, rows, strict=True):
        np.testing.assert_allclose(values, found.scale * a[part], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("factored", [False, True])
@pytest.mark.parametrize("loss", [Hinge(), SquaredHinge()])
def test_point_evaluation_value_of_given_variables_is_that_of_the_rows(loss: Any, factored: bool) -> None:
    problem, a = problem_of(loss, 0.7), slopes(round_corners(loss, 0.3), 0.7)
    sums = DualSums(COLUMNS + 1)
    for block in epoch_blocks(0):
        part = DualSums(COLUMNS + 1)  # as each thread has its own
        part.add(problem, in_factors(block) if factored else block, a[block.start : block.start + 100])
        sums.merge(part)
    assert sums.value() == pytest.approx(explicit_dual(a, loss, 0.7), rel=1e-4)
    np.testing.assert_allclose(sums.vector(), a @ signed_rows(), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("which", [0, 1])
def test_point_evaluation_without_features_proves_nothing(which: int) -> None:
    problem, parts = problem_of(SquaredHinge()), [PointSums(COLUMNS + 1) for _ in range(2)]
    for part, block in zip(parts, epoch_blocks(0), strict=False):
        part.add(problem, SquaredHinge(), block, np.zeros(COLUMNS + 1))
    parts[which].unformed = True
    parts[0].merge(parts[1])
    found = parts[0].close(problem, np.zeros(COLUMNS + 1))
    assert (found.dual, found.scale) == (0.0, 0.0)
    assert found.primal > 0.0


def test_point_evaluation_sums_are_added_and_taken_away_and_forgotten() -> None:
    one = Sums(1.0, 2.0, 3.0, 4.0)
    assert one.plus((10.0, 20.0, 30.0, 40.0)) == Sums(11.0, 22.0, 33.0, 44.0)
    assert one.plus((10.0, 20.0, 30.0, 40.0), -1.0) == Sums(-9.0, -18.0, -27.0, -36.0)
    sums, problem = PointSums(COLUMNS + 1), problem_of(Hinge())
    np.testing.assert_array_equal(sums.vector(), 0.0)
    sums.add(problem, round_corners(Hinge(), 0.3), epoch_blocks(0)[0], WEIGHTS)
    assert sums.sums != NO_SUMS
    sums.clear()
    assert (sums.sums, sums.low) == (NO_SUMS, None)
    np.testing.assert_array_equal(sums.v, 0.0)


def test_point_evaluation_compensates_rounding() -> None:
    """1e16 and 1 and -1e16: of a float64 nothing would be left."""
    sums = [PointSums(1) for _ in range(3)]
    for part, value in zip(sums, (1e16, 1.0, -1e16), strict=True):
        part.v, part.low = np.array([value]), np.array([0.25])
    sums[0].merge(sums[1])
    sums[0].merge(sums[2])
    assert sums[0].vector()[0] == 1.75
    bare = PointSums(1)
    bare.merge(sums[2])
    assert bare.vector()[0] == -1e16 + 0.25
    given = DualSums(2)
    ones = np.ones(3, np.float32)
    block = Block(Dense(ones[:, None], 0.0), ones, ones, 0, 0, np.arange(3, dtype=np.int32), 0)
    given.add(Problem(Hinge(), 1e17, 3, 1, 1), block, np.array([1e16, 1.0, -1e16]))
    assert given.vector()[0] == 1.0
    given.merge(deepcopy(given))
    assert given.vector()[0] == 2.0


def test_point_evaluation_given_weights_are_evaluated_and_do_not_move() -> None:
    problem = replace(problem_of(SquaredHinge(), 0.7), warm=WEIGHTS)
    solver = WeightEvaluation()
    state = solver.start(problem)
    for block in epoch_blocks(0):
        solver.visit(state, block)
    found = solver.finish(state)
    expected = 0.5 * float(WEIGHTS @ WEIGHTS) + losses(SquaredHinge(), 0.7)
    assert found.primal == pytest.approx(expected, rel=1e-5)
    assert found.dual == pytest.approx(best_scaled(slopes(SquaredHinge(), 0.7), SquaredHinge(), 0.7), rel=1e-4)
    assert found.final
    np.testing.assert_array_equal(solver.solution(state).w, WEIGHTS)
