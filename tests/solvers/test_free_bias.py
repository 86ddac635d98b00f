"""A bias that is not regularized: certificates enclose the optima that Newton's method in float64 finds."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from streamsvm.losses import LOSSES
from streamsvm.sklearn import StreamSVC
from streamsvm.sklearn.base import LossName
from streamsvm.solvers.free_bias import ClassWeights, balance


def objective(rows: Any, y: Any, W: Any, C: float, loss: str) -> tuple[float, Any, Any]:
    """Return P at W (K, p), its gradient and its Hessian; the last of the ``rows`` is the constant. K is 1 or the number of classes."""
    free = np.ones_like(W)
    free[:, -1] = 0.0
    K, p = W.shape
    f = rows @ W.T
    if K > 1:
        top = f.max(axis=1)
        probabilities = np.exp(f - top[:, None])
        total = probabilities.sum(axis=1)
        probabilities /= total[:, None]
        losses = top + np.log(total) - f[np.arange(len(y)), y]
        slopes = probabilities - np.eye(K)[y]
        second = probabilities[:, :, None] * np.eye(K) - probabilities[:, :, None] * probabilities[:, None, :]
    else:
        m = y * f[:, 0]
        if loss == "logistic":
            share = 1.0 / (1.0 + np.exp(m))
            losses, slopes, second = (
                np.logaddexp(0.0, -m),
                (-share * y)[:, None],
                (share * (1.0 - share))[:, None, None],
            )
        else:
            short = np.maximum(0.0, 1.0 - m)
            losses, slopes, second = short**2, (-2.0 * short * y)[:, None], (2.0 * (m < 1.0))[:, None, None]
    value = 0.5 * float(np.sum(free * W * W)) + C * float(losses.sum())
    hessian = np.diag(free.ravel()) + C * np.einsum("nkl,ni,nj->kilj", second, rows, rows).reshape(K * p, K * p)
    return value, (free * W + C * slopes.T @ rows).ravel(), hessian


def optimum(X: Any, y: Any, C: float, loss: str) -> float:
    """Return P* by Newton's method, for centered columns: the free bias makes it the same."""
    classes = len(np.unique(y))
    rows = np.column_stack([X - X.mean(axis=0), np.ones(len(X))])
    W = np.zeros((classes if classes > 2 else 1, rows.shape[1]))
    targets = y if classes > 2 else 2.0 * y - 1.0
    for _ in range(100):
        value, gradient, hessian = objective(rows, targets, W, C, loss)
        step = -np.linalg.lstsq(hessian, gradient, rcond=1e-13)[0]
        if -float(gradient @ step) <= 1e-13 * value:
            break
        t = 1.0
        while objective(rows, targets, W + t * step.reshape(W.shape), C, loss)[0] > value and t > 1e-9:
            t *= 0.5
        W = W + t * step.reshape(W.shape)
    return value


def draw(seed: int) -> tuple[Any, Any, float, LossName, dict[str, Any]]:
    """Return rows, codes, C, the loss and further parameters: columns off center, a class of few rows."""
    draws = np.random.default_rng(seed)
    n, columns, classes = int(draws.integers(60, 250)), int(draws.integers(2, 6)), 2 if seed % 3 else 4
    X = draws.normal(size=(n, columns)) + draws.choice([0, 5, 100]) * draws.normal(size=columns)
    X = X.astype(np.float32).astype(np.float64)
    scores = (X - X.mean(axis=0)) @ draws.normal(size=(columns, classes)) + 2.0 * draws.normal(size=(n, classes))
    scores[:, 0] -= 4.0 * (seed % 2)
    y = scores.argmax(axis=1)
    for k in range(classes):
        y[3 * k : 3 * k + 3] = k
    loss: LossName = "logistic" if classes > 2 or seed % 2 else "squared_hinge"
    return X, y, 10.0 ** float(draws.integers(-3, 2)), loss, {"multi_class": "softmax"} if classes > 2 else {}


@pytest.mark.parametrize("standardize", [False, True])
def test_certificate_of_a_free_bias_encloses_the_optimum_of_drawn_problems(*, standardize: bool) -> None:
    for seed in range(8):
        X, y, C, loss, more = draw(seed)
        for tolerance in (1e-2, 1e-5):
            fit = StreamSVC(C=C, loss=loss, free_bias=True, standardize=standardize, tolerance=tolerance, **more).fit(
                X, y
            )
            seen = (X - X.mean(axis=0)) / X.std(axis=0) if standardize else X
            exact = optimum(seen, y, C, loss)
            noise = (2e-6 if standardize else 1e-9) * exact  # shift and scale are float32 numbers
            assert fit.dual_ <= exact + noise, seed
            assert exact <= fit.primal_ + noise, seed
            assert fit.gap_ <= tolerance, seed


def test_free_bias_takes_no_more_passes_than_a_regularized_one_and_is_chosen_by_auto() -> None:
    X, y, _, _, _ = draw(1)
    X = X - X.mean(axis=0)
    passes = [StreamSVC(loss="logistic", solver="lbfgs", free_bias=free).fit(X, y).n_passes_ for free in (True, None)]
    assert passes[0] <= passes[1] + 2
    chosen, named = (
        StreamSVC(loss="logistic", free_bias=True, solver=solver).fit(X, y) for solver in ("auto", "lbfgs")
    )
    assert np.array_equal(chosen.model_.weights, named.model_.weights)


def test_free_bias_does_not_depend_on_where_columns_are() -> None:
    X, y, C, loss, more = draw(4)
    fits = [StreamSVC(C=C, loss=loss, free_bias=True, tolerance=1e-6, **more).fit(Z, y) for Z in (X, X + 64.0)]
    np.testing.assert_allclose(fits[0].coef_, fits[1].coef_, rtol=1e-2, atol=1e-4)


def test_free_bias_counts_weights_of_rows_and_classes() -> None:
    X, y, C, loss, more = draw(9)
    s, factors = np.random.default_rng(5).integers(1, 4, len(y)), {0: 2.0, 1: 1.0, 2: 1.0, 3: 3.0}
    fit = StreamSVC(C=C, loss=loss, free_bias=True, tolerance=1e-5, class_weight=factors, **more).fit(
        X, y, sample_weight=s
    )
    times = s * np.array([int(factors[k]) for k in y])
    exact = optimum(np.repeat(X, times, axis=0), np.repeat(y, times), C, loss)
    assert fit.dual_ <= exact * (1.0 + 1e-9)
    assert exact <= fit.primal_ * (1.0 + 1e-9)
    assert fit.gap_ <= 1e-5


def test_free_bias_adds_no_more_to_slopes_than_the_rounding_bound_allows() -> None:
    """One long row of a class beside 10,000 rows of the other, without features, whose slopes have nearly the sum of all: what is
    added to the slopes is compared with the bound sqrt(2 b L n C) |r|.
    """
    C, n, length, losses = 1.0, 10_001, 100.0, 0.01
    loss = LOSSES["huber"]()
    rows = ClassWeights(np.array([C * (n - 1), C]), np.array([[0.0, C * (n - 1)], [C * length, C]]))
    bound = math.sqrt(2.0 * losses / loss.curvature(1.0) * n * C) * length / math.sqrt(n)
    for beta in (-30.0, -1.0, -0.01):
        point = (1.0, 0.0, np.array([[0.0, beta]]))
        added = [abs(V[0, 0]) for _, _, V in balance(loss, losses, point, rows)]
        assert all(one <= bound for one in added)
        assert added or beta < -0.1
