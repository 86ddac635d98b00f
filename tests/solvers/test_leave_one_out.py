"""Leave-one-out scores against fits that really leave a row out."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.optimize
import scipy.sparse

from streamsvm.compute.blocks.operators import Factored, margins
from streamsvm.losses import Huber, Logistic, SquaredHinge
from streamsvm.rows import CSR, Dense
from streamsvm.solvers.leave_one_out import HessianSum, LeaveOneOut, SeenRows
from streamsvm.types import Problem

ROWS, COLUMNS = 120, 6


def data(seed: int = 0) -> tuple[Any, Any]:
    rng = np.random.default_rng(seed)
    X = (rng.standard_normal((ROWS, COLUMNS)) * [1, 1, 1, 3, 0.1, 1]).astype(np.float32)
    y = np.where(X @ [1, -1, 0.5, 0.1, 2, 0] + 0.5 + rng.standard_normal(ROWS) > 0, 1.0, -1.0).astype(np.float32)
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
    rows = SeenRows(X, y, np.ones(ROWS, np.float32), weights, drawn)
    f = margins(X, w)
    return f, fitted(problem, rows, f).scores(rows, f)


def fitted(problem: Problem, rows: SeenRows, f: Any, seed: int = 0) -> LeaveOneOut:
    total = HessianSum(problem)
    total.add(rows, f)
    return LeaveOneOut.of(total, seed)


@pytest.mark.parametrize("loss", [SquaredHinge(), Huber(1.0), Logistic(2.0)])
@pytest.mark.parametrize("weighted", [(1.0,), (1.0, 2.0, 3.0), (0.25, 0.5, 1.0)])
def test_leave_one_out_scores_are_those_of_fits_without_the_row(loss: Any, weighted: tuple[float, ...]) -> None:
    """Of a row of weight 3 one copy is left out, of a weight below 1 all there is."""
    X, y = data()
    weights = np.random.default_rng(1).choice(weighted, ROWS)
    problem = Problem(loss, 0.7, ROWS, COLUMNS, 1)
    w = least(problem, X, y, weights)
    f, found = scores(problem, Dense(X, 1.0), y, weights, np.ones(ROWS), w)
    moved = np.flatnonzero(f != found)[:40]
    without = [least(problem, X, y, weights - (np.arange(ROWS) == i) * min(weights[i], 1.0)) for i in moved]
    true = np.array([np.append(X[i], 1.0) @ v for i, v in zip(moved, without, strict=True)])
    assert len(moved) > 20
    assert np.sqrt(np.mean((found[moved] - true) ** 2)) < 0.15 * np.sqrt(np.mean((f[moved] - true) ** 2))


def test_leave_one_out_weight_of_two_is_two_rows() -> None:
    X, y = data()
    problem = Problem(SquaredHinge(), 0.7, ROWS, COLUMNS, 1)
    weights = np.ones(ROWS)
    weights[:40] = 2
    twice = np.concatenate([np.arange(ROWS), np.arange(40)])
    w = least(problem, X, y, weights)
    _, one = scores(problem, Dense(X, 1.0), y, weights, np.ones(ROWS), w)
    rows = SeenRows(Dense(X[twice], 1.0), y[twice], *(np.ones(len(twice), t) for t in (np.float32, float, float)))
    f = margins(rows.X, w)
    many = fitted(problem, rows, f).scores(rows, f)
    assert np.allclose(many[:ROWS], one, atol=1e-9)
    assert np.allclose(many[ROWS:], one[:40], atol=1e-9)


def test_leave_one_out_rows_of_every_form_have_the_same_scores() -> None:
    X, y = data()
    problem, ones = Problem(SquaredHinge(), 0.7, ROWS, COLUMNS, 1), np.ones(ROWS)
    w = least(problem, X, y, ones)
    sparse = scipy.sparse.csr_matrix(X)
    forms = [
        Dense(X, 1.0),
        CSR(sparse.data, sparse.indices.astype(np.int32), sparse.indptr.astype(np.int64), 1.0),
        Factored(X, np.eye(COLUMNS, dtype=np.float32), 1.0),
    ]
    found = [scores(problem, form, y, ones, ones, w)[1] for form in forms]
    assert np.allclose(found[1], found[0], atol=1e-6)
    assert np.allclose(found[2], found[0], atol=1e-6)


def test_leave_one_out_counts_rows_with_curvature() -> None:
    """Of a squared hinge those inside the margin; a row that was drawn for two counts for two."""
    X, y = data()
    problem, rng = Problem(SquaredHinge(), 0.7, ROWS, COLUMNS, 1), np.random.default_rng(5)
    weights, drawn, f = rng.choice([1.0, 2.0], ROWS), rng.choice([0.0, 1.0, 2.0], ROWS), 2.0 * rng.normal(size=ROWS)
    total = HessianSum(problem)
    for half in (slice(0, 50), slice(50, ROWS)):
        total.add(
            SeenRows(Dense(X[half], 1.0), y[half], np.ones(len(y[half]), np.float32), weights[half], drawn[half]),
            f[half],
        )
    assert total.rows == float((weights * drawn)[y * f < 1.0].sum())
