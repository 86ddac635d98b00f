"""Steps with the second derivatives of all rows: few readings to any gap, bounds that hold, and the same from parts."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import scipy.linalg
import scipy.optimize
import scipy.sparse as sp

from streamsvm.losses import Logistic
from streamsvm.rows import CSR, Dense
from streamsvm.solvers.evaluation import PointSums
from streamsvm.solvers.newton.out_of_core import ExactSteps
from streamsvm.solvers.newton.sample import Sample
from streamsvm.solvers.newton.solver import Newton
from streamsvm.types import Block, Problem
from tests.solvers.kernel_problems import solve

ROWS = 6000


def drawn(seed: int, sparse: bool) -> tuple[Any, Any, Any]:
    """Rows of columns of several scales, one of them rare; two classes; weights with 0 among them."""
    rng = np.random.default_rng(seed)
    X = (rng.normal(size=(ROWS, 8)) * 10.0 ** rng.uniform(-1, 1, 8)).astype(np.float32)
    X[:, 3] = 30.0 * (rng.random(ROWS) < 0.005)
    score = X @ rng.normal(size=8)
    y = np.where(score + score.std() * rng.normal(size=ROWS) > 0.0, 1.0, -1.0).astype(np.float32)
    if not sparse:
        return Dense(X, 1.0), y, rng.choice([0.0, 0.5, 1.0, 3.0], ROWS).astype(np.float32)
    X[rng.random(X.shape) < 0.5] = 0.0
    stored = sp.csr_matrix(X)
    rows = CSR(stored.data, stored.indices.astype(np.int32), stored.indptr.astype(np.int64), 1.0)
    return rows, y, rng.choice([0.0, 0.5, 1.0, 3.0], ROWS).astype(np.float32)


def problem_of(C: float, tolerance: float) -> Problem:
    return Problem(Logistic(), C, ROWS, 8, 1, 1.0, tolerance=tolerance)


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("C", [1e-3, 1.0, 100.0])
def test_exact_newton_steps_close_the_gap_in_few_readings(C: float, sparse: bool) -> None:
    X, y, s = drawn(int(1000 * C), sparse)
    _, _, best = solve(Newton(), problem_of(C, 1e-11), X, y, s, passes=30)
    state, _, found = solve(Newton(sample=1500), problem_of(C, 1e-9), X, y, s, passes=30)
    assert best[-1].gap <= 1e-11
    assert state.all_rows is None
    assert state.exact_steps is not None
    assert found[-1].gap <= 1e-9
    assert len(found) <= 9
    assert all(one.dual <= best[-1].primal * (1.0 + 1e-12) for one in found)
    assert all(one.primal >= best[-1].dual * (1.0 - 1e-12) for one in found)


def test_exact_newton_hessian_of_parts_is_that_of_one_pass() -> None:
    X, y, s = drawn(2, sparse=False)
    solver, problem, order = Newton(sample=1500), problem_of(1.0, 1e-9), np.arange(ROWS, dtype=np.int32)
    state, cut = solver.start(problem), 2500
    whole = Block(X, y, s, 0, 0, order, 0)
    pieces = [
        Block(Dense(X.values[a:b], 1.0), y[a:b], s[a:b], 0, a, order[: b - a], 0) for a, b in [(0, cut), (cut, ROWS)]
    ]
    solver.visit(state, whole)
    solver.finish(state)
    assert state.summing
    parts = [solver.part(state), solver.part(state)]
    for part, piece in zip(parts, pieces, strict=True):
        solver.visit(part, piece)
    alone = solver.part(state)
    solver.visit(alone, whole)
    joined = solver.merge(parts)
    assert joined.hessian is not None
    assert alone.hessian is not None
    assert joined.hessian == pytest.approx(alone.hessian, rel=1e-12)


def test_exact_newton_steps_recover_after_a_shortened_step() -> None:
    """Of rare columns a small sample has few rows: steps made of what bent before had to be cut again and again, 17 readings."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(ROWS, 8)).astype(np.float32)
    for column, share in ((5, 0.01), (6, 0.005), (7, 0.002)):
        X[:, column] = 10.0 * (rng.random(ROWS) < share)
    score = X[:, :5] @ rng.normal(size=5) - 0.15 * X[:, 7] + 0.1 * X[:, 6]
    y = np.where(score + score.std() * rng.normal(size=ROWS) > 0.0, 1.0, -1.0).astype(np.float32)
    solver, s = Newton(sample=600), np.ones(ROWS, np.float32)
    _, _, found = solve(solver, problem_of(100.0, 1e-3), Dense(X, 1.0), y, s, passes=20)
    assert found[-1].gap <= 1e-3
    assert len(found) <= 9


# -- the model of all rows, against slow versions ------------------------------------------------------------------------


def small(seed: int = 4, rows: int = 60) -> tuple[Any, Any, Sample]:
    """y_i (x_i, 1) in float64, C s_i, and a sample of every other row, each of which stands for two."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(rows, 3)).astype(np.float32)
    y = np.where(X[:, 0] + rng.normal(size=rows) > 0.0, 1.0, -1.0).astype(np.float32)
    s = rng.choice([0.5, 1.0, 3.0], rows).astype(np.float32)
    part = np.arange(0, rows, 2)
    n = len(part)
    sample = Sample(Dense(X[part], 1.0), y[part], s[part], np.full(n, 0.5), np.zeros(n), part, complete=False)
    return y[:, None] * np.column_stack([X.astype(float), np.ones(rows)]), 0.7 * s.astype(float), sample


SMALL = Problem(Logistic(), 0.7, 60, 3, 1, 1.0, tolerance=1e-6)


def bends(Z: Any, c: Any, w: Any) -> Any:
    """Sum C_i l''(m_i) x_i x_i'."""
    q = 1.0 / (1.0 + np.exp(-Z @ w))
    return (Z.T * (c * q * (1.0 - q))) @ Z


def evaluated(Z: Any, c: Any, w: Any) -> Any:
    """What a pass over all rows finds at w."""
    found, m = PointSums(4).close(SMALL, w), Z @ w
    v = Z.T @ (c / (1.0 + np.exp(m)))
    value = float(0.5 * w @ w + c @ np.logaddexp(0.0, -m))
    return found._replace(primal=value, value=value, v=v, gradient=w - v)


def begun(w: Any, value: float = 1.0) -> ExactSteps:
    return ExactSteps(w, value, np.zeros(4))


@pytest.mark.parametrize("tolerance", [1e-6, 10.0])
def test_exact_newton_model_is_minimized_as_defined(tolerance: float) -> None:
    """By an independent method, but for a thousandth of the gap that is asked for; the change of M goes with it."""
    Z, c, sample = small()
    center = np.array([0.5, -1.0, 0.3, 0.1])
    found, steps = evaluated(Z, c, center), begun(center)
    steps.renew(SMALL, sample, bends(Z, c, center), center)
    assert steps.model is not None
    rest, own, weight = steps.model.rest, Z[::2], 2.0 * c[::2]

    def losses(w: Any) -> float:
        return float(weight @ np.logaddexp(0.0, -(own @ w)))

    at = 1.0 / (1.0 + np.exp(own @ center))
    shift = center - found.v + own.T @ (weight * at)  # M has the gradient of P at the center

    def model(w: Any) -> float:
        d = w - center
        return losses(w) - losses(center) + float(shift @ d + 0.5 * d @ rest @ d)

    w, change = steps.model.minimum(replace(SMALL, tolerance=tolerance), found, center)
    best = scipy.optimize.minimize(model, w, options={"gtol": 1e-10}).fun
    assert change == pytest.approx(model(w), rel=1e-6)
    assert best - 1e-9 <= change <= best + 2e-3 * tolerance * found.primal
    assert change < 0.5 * best < 0.0
    if tolerance > 1.0:  # a step that promises less than what is allowed is the last one: two make more than one
        assert change > best + 1e-9


def test_exact_newton_polished_dual_stays_below_the_optimum() -> None:
    """Without a sample D is what the pass has found; with one it is more, and below the optimum."""
    Z, c, sample = small()
    best = scipy.optimize.minimize(
        lambda w: 0.5 * w @ w + c @ np.logaddexp(0.0, -Z @ w), np.zeros(4), options={"gtol": 1e-9}
    )
    w = best.x * 1.05
    sums = PointSums(4)
    y = np.sign(Z[:, 3]).astype(np.float32)
    rows = Dense((Z[:, :3] * y[:, None]).astype(np.float32), 1.0)
    s = (c / 0.7).astype(np.float32)
    sums.add(SMALL, Logistic(), Block(rows, y, s, 0, 0, np.arange(60, dtype=np.int32), 0), w)
    found, steps = sums.close(SMALL, w), begun(w)
    assert steps.polished_dual(SMALL, found, np.inf) == found.dual
    steps.renew(SMALL, sample, bends(Z, c, w), w)
    polished = steps.polished_dual(SMALL, found, np.inf)
    assert found.dual < polished <= best.fun * (1.0 + 1e-12)
    assert best.fun - polished < 0.9 * (best.fun - found.dual)
