"""Newton's method on a model of some rows: its line search, where it ends and how a corner narrows, against slow versions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.optimize

from streamsvm.losses import Hinge, Huber, Squared, SquaredHinge, rounded
from streamsvm.rows import Dense
from streamsvm.solvers.newton import inner_solver
from streamsvm.solvers.newton.inner_solver import LENGTHS, Descent, polished_dual, smoothing_of
from streamsvm.solvers.newton.row_sample import Sample
from streamsvm.solvers.newton.surrogate import Surrogate
from streamsvm.solvers.point_evaluation import PointSums
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


def test_the_parts_of_a_model_are_those_of_its_definition() -> None:
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
@pytest.mark.parametrize("scale", [1.0, 3.0, 20.0, 300.0, 1e4, -1.0])
def test_a_length_is_the_best_of_those_that_are_tried(loss: Any, scale: float) -> None:
    """Of all lengths 2^-k, k < 24, along a descent direction; none where all of them lead up."""
    model, w = model_of(loss, np.zeros(4)), np.array([1.0, -1.0, 0.5, 0.0])
    step = -scale * gradient(model, loss, w) / 20.0
    found = inner_solver._length(model, loss, model.values_at(loss, w), w, step)
    tried = [value(model, loss, w + length * step) for length in LENGTHS]
    assert len(LENGTHS) == 24
    assert found == (0.0 if scale < 0.0 else LENGTHS[int(np.argmin(tried))])


def test_more_lengths_are_looked_at_where_the_first_ones_rise(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two at once at first, and six at a time then; each is looked at once."""
    model, w, tried = model_of(SquaredHinge(), np.zeros(4)), np.array([1.0, -1.0, 0.5, 0.0]), []
    plain = inner_solver.trial_pass

    def noted(y: Any, s: Any, f: Any, df: Any, C: Any, smooth: Any, lengths: Any) -> Any:
        tried.append(lengths.tolist())
        return plain(y, s, f, df, C, smooth, lengths)

    monkeypatch.setattr(inner_solver, "trial_pass", noted)
    slope = gradient(model, SquaredHinge(), w)
    inner_solver._length(model, SquaredHinge(), model.values_at(SquaredHinge(), w), w, slope)
    assert [len(lengths) for lengths in tried] == [2, 6, 6, 6, 4]
    assert np.concatenate(tried).tolist() == LENGTHS.tolist()


@pytest.mark.parametrize("loss", [SquaredHinge(), Huber(0.2)], ids=["squared hinge", "huber"])
@pytest.mark.parametrize("crude", [False, True])
def test_a_model_is_minimized_to_a_share_of_its_value(loss: Any, crude: bool) -> None:
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


def test_a_parabola_is_minimized_by_one_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of least squares: damping and the norm are part of what the step is made of."""
    model, steps = model_of(Squared(), np.full(4, 0.3)), []
    descent = Descent(model)
    plain = descent._hessian.step
    monkeypatch.setattr(descent._hessian, "step", lambda *at: (steps.append(1), plain(*at))[1])
    w, arrived = descent.minimize(Squared(), np.array([4.0, -3.0, 2.0, 1.0]))
    assert arrived
    assert len(steps) == 2  # the second one promises nothing
    X, y, s = rows()
    Z, c = np.column_stack([X.astype(float), np.ones(ROWS)]), 2.0 * C * s.astype(float)
    hessian = np.diag(1.0 + model.damping) + (Z.T * c) @ Z
    right = Z.T @ (c * (y - model.offset)) - model.shift + model.damping * model.center
    np.testing.assert_allclose(w, np.linalg.solve(hessian, right), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(
    ("promise", "norm", "crude", "arrived"),
    [
        (0.9, 0.5, False, True),
        (1.1, 0.5, False, False),
        (0.5, 0.9, False, True),
        (0.5, 1.1, False, False),
        (90.0, 9e9, True, True),
        (110.0, 0.5, True, False),
    ],
)
def test_a_model_is_left_alone_where_a_step_promises_little_and_its_gradient_is_short(
    promise: float, norm: float, crude: bool, arrived: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In units of 1e-3 and of 0.02 of a tolerance of 1e-3, each a share of the value; crudely the first is a tenth of the tolerance."""
    model, w = model_of(SquaredHinge(), np.full(4, 0.3)), np.array([4.0, -3.0, 2.0, 1.0])
    size, slope = abs(value(model, SquaredHinge(), w)), np.eye(4)[1]
    length = np.sqrt(2.0 * norm * 2e-5 * size)
    step = np.array([0.0, -promise * 1e-6 * size / length, 0.0, 0.0])
    monkeypatch.setattr(Surrogate, "gradient", lambda self, here, at: length * slope)
    descent = Descent(model)
    monkeypatch.setattr(descent._hessian, "step", lambda bends, at: step)
    monkeypatch.setattr(inner_solver, "_length", lambda *_: 0.0)
    found, said = descent.minimize(SquaredHinge(), w, crude=crude)
    assert said == arrived
    np.testing.assert_array_equal(found, w)


def test_what_rounding_a_corner_costs_is_added_up_row_by_row() -> None:
    model, w, mu = model_of(Hinge(), np.zeros(4)), np.array([0.8, -0.1, 0.2, 0.1]), 0.6
    X, y, s = rows()
    m = signed(X, y) @ w + y * model.offset
    b = np.clip((1.0 + mu - m) / (2.0 * mu), 0.0, 1.0)
    cost = C * s.astype(float) @ (np.maximum(0.0, 1.0 - m) - b * (1.0 - m))
    assert smoothing_of(model, rounded(Hinge(), mu), w) == pytest.approx(cost, rel=1e-6)


def test_a_corner_narrows_until_it_costs_what_it_may() -> None:
    """And not much less: the last width is aimed at 0.95 of that, by the square in which the cost falls."""
    model, goal = model_of(Hinge(), np.zeros(4)), 0.02
    w, mu = Descent(model).follow(np.zeros(4), 1.0, 0.0, goal)
    cost = smoothing_of(model, rounded(Hinge(), mu), w)
    assert 0.6 * goal < cost <= goal
    assert 0.0 < mu < 1.0
    at = gradient(model, rounded(Hinge(), mu), w)
    assert np.linalg.norm(at) < 0.2 * np.linalg.norm(gradient(model, rounded(Hinge(), mu), np.zeros(4)))


@pytest.mark.parametrize(("floor", "widths"), [(0.3, [1.0, 0.5]), (0.24, [1.0, 0.5, 0.25]), (0.252, [1.0, 0.5, 0.25])])
def test_a_corner_is_halved_at_most_and_ends_at_the_floor_or_a_hundredth_below(
    floor: float, widths: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each model on the way is minimized crudely."""
    seen = []
    descent = Descent(model_of(Hinge(), np.zeros(4)))
    monkeypatch.setattr(
        descent, "minimize", lambda smooth, w, crude: (seen.append((smooth.mu, crude)), (w + 1.0, True))[1]
    )
    w, mu = descent.follow(np.zeros(4), 1.0, floor, 1e-9)
    assert seen == [(width, True) for width in widths]
    assert (w[0], mu) == (len(widths), widths[-1])


@pytest.mark.parametrize(("solved", "calls", "mu"), [([False], 1, 1.0), ([True, False], 2, 1.0)])
def test_a_corner_whose_model_was_not_solved_is_as_wide_as_before(
    solved: list[bool], calls: int, mu: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    left = list(solved)
    descent = Descent(model_of(Hinge(), np.zeros(4)))
    monkeypatch.setattr(descent, "minimize", lambda smooth, w, crude: (w + 1.0, left.pop(0)))
    w, found = descent.follow(np.zeros(4), 1.0, 0.1, 1e-9)
    assert (w[0], found, len(solved) - len(left)) == (1.0, mu, calls)


def test_a_smooth_loss_is_minimized_once(monkeypatch: pytest.MonkeyPatch) -> None:
    descent, seen = Descent(model_of(SquaredHinge(), np.zeros(4))), []
    monkeypatch.setattr(descent, "minimize", lambda smooth, w, crude: (seen.append(crude), (w, True))[1])
    assert descent.follow(np.zeros(4), 0.0, 0.0, 1.0)[1] == 0.0
    assert seen == [True]


@pytest.mark.parametrize("loss", [SquaredHinge(), Huber(0.2)], ids=["squared hinge", "huber"])
def test_the_polished_dual_is_the_best_over_the_variables_of_the_sample(loss: Any) -> None:
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
