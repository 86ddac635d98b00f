"""Sums over rows at a point: primal, gradient and the best scaled dual point; and leave-one-out scores against fits that really leave a row out."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import scipy.optimize
import scipy.sparse

from streamsvm.compute.blocks.operators import Factored, margins
from streamsvm.losses import Hinge, Huber, Logistic, SquaredHinge, round_corners
from streamsvm.rows import Dense
from streamsvm.solvers.evaluation import DualPoint, DualSums, PointSums, slopes_at
from streamsvm.solvers.leave_one_out import HessianSum, LeaveOneOut, SeenRows
from streamsvm.solvers.problem_kinds import OneAgainstRest
from streamsvm.types import Block, Problem
from tests.arrays import csr_of
from tests.axes import each_value
from tests.solvers.problems import (
    COLUMNS,
    best_scaled,
    epoch_blocks,
    explicit_dual,
    kind_of,
    problem_of,
    rows_of,
    signed_rows,
)

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


@each_value(("factored", [False, True]), ("loss", [Hinge(), SquaredHinge()]))
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
    parts[which].has_unformed_rows = True
    parts[0].merge(parts[1])
    found = parts[0].close(problem, np.zeros(COLUMNS + 1))
    assert (found.dual, found.scale) == (0.0, 0.0)
    assert found.primal > 0.0


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
    given.add(Problem(Hinge(), 1e17, 3, 1, OneAgainstRest(1)), block, np.array([1e16, 1.0, -1e16]))
    assert given.vector()[0] == 1.0
    given.merge(deepcopy(given))
    assert given.vector()[0] == 2.0


# -- leave one out -------------------------------------------------------------------------------------------------------


FEW, SIX = 120, 6


def data(seed: int = 0) -> tuple[Any, Any]:
    rng = np.random.default_rng(seed)
    X = (rng.standard_normal((FEW, SIX)) * [1, 1, 1, 3, 0.1, 1]).astype(np.float32)
    y = np.where(X @ [1, -1, 0.5, 0.1, 2, 0] + 0.5 + rng.standard_normal(FEW) > 0, 1.0, -1.0).astype(np.float32)
    return X, y


def least(problem: Problem, X: Any, y: Any, s: Any) -> Any:
    """The solution, by minimizing P as it is written."""
    Z = np.concatenate([X.astype(float), np.full((len(X), 1), problem.bias)], axis=1)
    value, slope = np.vectorize(problem.loss.value), np.vectorize(problem.loss.slope)

    def P(w: Any) -> tuple[float, Any]:
        m = y * (Z @ w)
        return 0.5 * w @ w + problem.C * s @ value(m), w + Z.T @ (problem.C * s * slope(m) * y)

    return scipy.optimize.minimize(P, np.zeros(Z.shape[1]), jac=True, method="BFGS", options={"gtol": 1e-9}).x


def scores(problem: Problem, X: Any, y: Any, weights: Any, drawn: Any, w: Any) -> tuple[Any, Any]:
    """What is said with every row and without each."""
    rows = SeenRows(X, y, np.ones(FEW, np.float32), weights, drawn)
    f = margins(X, w)
    return f, fitted(problem, rows, f).scores(rows, f)


def fitted(problem: Problem, rows: SeenRows, f: Any, seed: int = 0) -> LeaveOneOut:
    total = HessianSum(problem)
    total.add(rows, f)
    return LeaveOneOut.of(total, seed)


@each_value(
    ("loss", [SquaredHinge(), Huber(1.0), Logistic(2.0)]), ("weighted", [(1.0,), (1.0, 2.0, 3.0), (0.25, 0.5, 1.0)])
)
def test_leave_one_out_scores_are_those_of_fits_without_the_row(loss: Any, weighted: tuple[float, ...]) -> None:
    """Of a row of weight 3 one copy is left out, of a weight below 1 all there is."""
    X, y = data()
    weights = np.random.default_rng(1).choice(weighted, FEW)
    problem = Problem(loss, 0.7, FEW, SIX, kind_of(loss))
    w = least(problem, X, y, weights)
    f, found = scores(problem, Dense(X, 1.0), y, weights, np.ones(FEW), w)
    moved = np.flatnonzero(f != found)[:40]
    without = [least(problem, X, y, weights - (np.arange(FEW) == i) * min(weights[i], 1.0)) for i in moved]
    true = np.array([np.append(X[i], 1.0) @ v for i, v in zip(moved, without, strict=True)])
    assert len(moved) > 20
    assert np.sqrt(np.mean((found[moved] - true) ** 2)) < 0.15 * np.sqrt(np.mean((f[moved] - true) ** 2))


def test_leave_one_out_weight_of_two_is_two_rows() -> None:
    X, y = data()
    problem = Problem(SquaredHinge(), 0.7, FEW, SIX, OneAgainstRest(1))
    weights = np.ones(FEW)
    weights[:40] = 2
    twice = np.concatenate([np.arange(FEW), np.arange(40)])
    w = least(problem, X, y, weights)
    _, one = scores(problem, Dense(X, 1.0), y, weights, np.ones(FEW), w)
    rows = SeenRows(Dense(X[twice], 1.0), y[twice], *(np.ones(len(twice), t) for t in (np.float32, float, float)))
    f = margins(rows.X, w)
    many = fitted(problem, rows, f).scores(rows, f)
    assert np.allclose(many[:FEW], one, atol=1e-9)
    assert np.allclose(many[FEW:], one[:40], atol=1e-9)


def test_leave_one_out_rows_of_every_form_have_the_same_scores() -> None:
    X, y = data()
    problem, ones = Problem(SquaredHinge(), 0.7, FEW, SIX, OneAgainstRest(1)), np.ones(FEW)
    w = least(problem, X, y, ones)
    forms = [
        Dense(X, 1.0),
        csr_of(X, 1.0),
        Factored(X, np.eye(SIX, dtype=np.float32), 1.0),
    ]
    found = [scores(problem, form, y, ones, ones, w)[1] for form in forms]
    assert np.allclose(found[1], found[0], atol=1e-6)
    assert np.allclose(found[2], found[0], atol=1e-6)
