"""Newton's method on a model of some rows: its line search, where it ends and how a corner narrows, against slow versions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.optimize

from streamsvm.losses import Hinge, Huber, SquaredHinge, round_corners
from streamsvm.rows import Dense
from streamsvm.solvers.evaluation import PointSums
from streamsvm.solvers.newton.model import Descent, Surrogate, polished_dual, smoothing_of
from streamsvm.solvers.newton.sample import Sample
from streamsvm.types import Block, Problem

ROWS, COLUMNS, C = 80, 3, 0.7


def rows(seed: int = 3) -> tuple[Any, Any, Any]:
    """Rows, signs that they decide in part, and weights."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(ROWS, COLUMNS)).astype(np.float32)
    y = np.where(X[:, 0] + 0.5 * rng.normal(size=ROWS) > 0.2, 1.0, -1.0).astype(np.float32)
    return X, y, rng.choice([0.5, 1.0, 2.0], ROWS).astype(np.float32)


def signed(X: Any, y: Any) -> Any:
    """y_i (x_i, 1) in float64."""
    return y[:, None] * np.column_stack([X.astype(np.float64), np.ones(len(y))])


def model_of(loss: Any, center: Any, tolerance: float = 1e-3) -> Surrogate:
    """A model of all rows with a shift, damping and offset of its own."""
    X, y, s = rows()
    n, rng = len(y), np.random.default_rng(9)
    sample = Sample(Dense(X, 1.0), y, s, np.ones(n), np.zeros(n), np.arange(n), complete=False)
    problem = Problem(loss, C, n, COLUMNS, 1, tolerance=tolerance)
    p = COLUMNS + 1
    return Surrogate(
        problem, sample, s.astype(float), center, rng.normal(size=p), rng.uniform(0.0, 2.0, p), 0.1 * rng.normal(size=n)
    )


def value(model: Surrogate, smooth: Any, w: Any) -> float:
    """M(w), term by term."""
    X, y, s = rows()
    m = signed(X, y) @ w + y * model.offset
    d = w - model.center
    return float(
        0.5 * w @ w + model.shift @ w + 0.5 * model.damping @ d**2 + C * s.astype(float) @ [smooth.value(x) for x in m]
    )


def gradient(model: Surrogate, smooth: Any, w: Any) -> Any:
    X, y, s = rows()
    Z = signed(X, y)
    slopes = np.array([smooth.slope(x) for x in Z @ w + y * model.offset])
    return w + model.shift + model.damping * (w - model.center) + Z.T @ (C * s * slopes)


def test_surrogate_value_gradient_and_hessian_are_those_of_its_definition() -> None:
    model, w = model_of(SquaredHinge(), np.full(4, 0.3)), np.array([1.0, -0.5, 0.2, 0.1])
    here = model.values_at(SquaredHinge(), w)
    assert here.sums.smoothed + model.outer(w) == pytest.approx(value(model, SquaredHinge(), w), rel=1e-12)
    d = w - model.center
    undamped = value(model, SquaredHinge(), w) - 0.5 * float(model.damping @ d**2)
    assert model.value(SquaredHinge(), w) == pytest.approx(undamped, rel=1e-12)
    np.testing.assert_allclose(model.gradient(here, w), gradient(model, SquaredHinge(), w), rtol=1e-6)
    thin = model.thinned(3)
    np.testing.assert_array_equal(thin.factor, 3.0 * model.factor[::3])
    np.testing.assert_array_equal(thin.offset, model.offset[::3])
    np.testing.assert_array_equal(thin.sample.row, np.arange(0, ROWS, 3))
    np.testing.assert_array_equal(thin.values_at(SquaredHinge(), w).f, here.f[::3])


@pytest.mark.parametrize("loss", [SquaredHinge(), Huber(0.2)], ids=["squared hinge", "huber"])
@pytest.mark.parametrize("crude", [False, True])
def test_surrogate_is_minimized_to_the_tolerance_asked_for(loss: Any, crude: bool) -> None:
    """By an independent method it has no less, but for a ten thousandth or, not crudely, a thousandth of the tolerance of it."""
    model, start = model_of(loss, np.full(4, 0.3)), np.array([4.0, -3.0, 2.0, 1.0])
    w, arrived = Descent(model).minimize(loss, start, crude=crude)
    best = scipy.optimize.minimize(
        lambda x: value(model, loss, x), w, jac=lambda x: gradient(model, loss, x), options={"gtol": 1e-12}
    ).fun
    assert arrived
    share = 1e-4 if crude else 1e-6
    assert value(model, loss, w) - best <= share * abs(best)
    if not crude:
        assert 0.5 * np.square(gradient(model, loss, w)).sum() <= 2e-5 * abs(value(model, loss, w))


def test_surrogate_counts_what_smoothing_costs_row_by_row() -> None:
    model, w, mu = model_of(Hinge(), np.zeros(4)), np.array([0.8, -0.1, 0.2, 0.1]), 0.6
    X, y, s = rows()
    m = signed(X, y) @ w + y * model.offset
    b = np.clip((1.0 + mu - m) / (2.0 * mu), 0.0, 1.0)
    cost = C * s.astype(float) @ (np.maximum(0.0, 1.0 - m) - b * (1.0 - m))
    assert smoothing_of(model, round_corners(Hinge(), mu), w) == pytest.approx(cost, rel=1e-6)


@pytest.mark.parametrize("loss", [SquaredHinge(), Huber(0.2)], ids=["squared hinge", "huber"])
def test_surrogate_polished_dual_is_the_optimum_over_the_sample(loss: Any) -> None:
    """By an independent method that moves the variables of the sample, all others staying at the slopes of the point."""
    X, y, s = rows()
    problem = Problem(loss, C, ROWS, COLUMNS, 1, tolerance=1e-8)
    w, here = np.array([0.9, -0.2, 0.1, 0.1]), PointSums(4)
    f = here.add(problem, loss, Block(Dense(X, 1.0), y, s, 0, 0, np.arange(ROWS, dtype=np.int32), 0), w)
    found, part = here.close(problem, w), np.arange(ROWS) % 2 == 0
    sample = Sample(Dense(X[part], 1.0), y[part], s[part], np.ones(part.sum()), f[part], np.flatnonzero(part), False)
    Z, c = signed(X, y), C * s.astype(float)
    a = np.array([-k * loss.slope(m) for k, m in zip(c, Z @ w, strict=True)])

    def lacks(some: Any) -> float:
        every = a.copy()
        every[part] = some
        v = every @ Z
        return float(0.5 * v @ v - sum(x - loss.conjugate(x, k) for x, k in zip(every, c, strict=True)))

    top = [(0.0, loss.upper(k) if np.isfinite(loss.upper(k)) else None) for k in c[part]]
    best = scipy.optimize.minimize(lacks, a[part], bounds=top, method="L-BFGS-B", options={"maxfun": 10**6})
    polished = polished_dual(problem, sample, loss, found, w)
    assert found.dual < polished
    # the sums are scaled as a whole for the best, which may add a little to what the others prove
    assert -best.fun * (1.0 - 1e-4) <= polished
    whole = scipy.optimize.minimize(
        lambda x: 0.5 * x @ x + c @ [loss.value(m) for m in Z @ x], w, options={"gtol": 1e-10}
    )
    assert polished <= whole.fun * (1.0 + 1e-9)
