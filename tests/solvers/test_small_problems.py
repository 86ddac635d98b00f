"""Small problems in memory are solved without passes: their certificates, recomputed in numpy from the model."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.metrics.pairwise import laplacian_kernel, polynomial_kernel, rbf_kernel
from sklearn.svm import SVC

from streamsvm.sklearn import StreamSVC, StreamSVR
from streamsvm.sklearn.base import KernelName, LossName
from streamsvm.solvers.kernel import small_problems
from streamsvm.solvers.newton import small_problems as linear_small_problems

KERNELS = {
    "rbf": lambda X, Z: rbf_kernel(X, Z, gamma=0.5),
    "laplacian": lambda X, Z: laplacian_kernel(X, Z, gamma=0.5),
    "polynomial": lambda X, Z: polynomial_kernel(X, Z, degree=3, gamma=0.5, coef0=1.0),
}


def draw(rows: int, classes: int = 2) -> tuple[np.ndarray, np.ndarray]:
    """Return rows and their classes, which overlap."""
    random = np.random.default_rng(rows)
    X = random.normal(size=(rows, 4)).astype(np.float32)
    scores = X @ random.normal(size=(4, classes)) + 0.5 * random.normal(size=(rows, classes))
    return X, scores.argmax(axis=1)


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("loss", ["hinge", "squared_hinge"])
def test_small_problems_certificate_is_that_of_the_model_recomputed(kernel: KernelName, loss: LossName) -> None:
    X, y = draw(700)
    C, weight = 3.0, np.random.default_rng(0).integers(1, 3, len(X))
    fitted = StreamSVC(C, kernel=kernel, gamma=0.5, loss=loss).fit(X, y, weight)
    model = fitted.model_
    points, c = np.asarray(model.expansion.points.values, np.float64), model.weights[0, :-1]
    moved = X - (0.0 if model.expansion.shift is None else model.expansion.shift)
    K, between = KERNELS[kernel](points, points), KERNELS[kernel](moved.astype(np.float64), points)
    margins = (2 * y - 1) * (between @ c + model.weights[0, -1])
    hinge, square = np.maximum(0.0, 1.0 - margins), c @ K @ c
    losses, alpha = (hinge, np.abs(c)) if loss == "hinge" else (hinge**2, np.abs(c))
    primal = 0.5 * square + C * weight @ losses
    order = {row.tobytes(): k for k, row in enumerate(moved.astype(np.float32))}
    own = weight[[order[row.tobytes()] for row in model.expansion.points.values]]
    conjugate = 0.0 if loss == "hinge" else float((alpha**2 / (4.0 * C * own)).sum())
    dual = alpha.sum() - conjugate - 0.5 * square
    assert fitted.n_passes_ == 1
    assert primal == pytest.approx(fitted.primal_, rel=1e-7)
    assert dual == pytest.approx(fitted.dual_, rel=1e-7)
    assert -1e-9 <= (primal - dual) / primal <= fitted.gap_ + 1e-9 <= 1e-3
    assert abs(c.sum()) <= 1e-9 * alpha.sum()
    if loss == "hinge":
        assert (alpha <= C * own * (1.0 + 1e-12)).all()


@pytest.mark.parametrize("multi_class", ["ovo", "ovr"])
def test_small_problems_of_several_classes_agree_with_those_solved_in_passes(multi_class: str) -> None:
    X, y = draw(600, 4)
    given: dict[str, Any] = {
        "kernel": "rbf",
        "gamma": 0.5,
        "C": 2.0,
        "loss": "hinge",
        "multi_class": multi_class,
        "tolerance": 1e-6,
    }
    at_once, in_passes = StreamSVC(**given).fit(X, y), StreamSVC(**given, solver="decomposition").fit(X, y)
    assert at_once.n_passes_ == 1 < in_passes.n_passes_
    certificates = at_once.model_.provenance["certificates"], in_passes.model_.provenance["certificates"]
    for one, other in zip(*certificates, strict=True):
        assert one["gap"] <= 1e-6
        assert one["primal"] == pytest.approx(other["primal"], rel=3e-6)
    assert np.mean(at_once.predict(X) != in_passes.predict(X)) < 0.01


def test_small_problems_given_up_are_solved_in_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(small_problems, "MAX_STEPS", 1)
    monkeypatch.setattr(small_problems, "MAX_STEPS_PER_ROW", 0)
    X, y = draw(600)
    fitted = StreamSVC(kernel="rbf", gamma=0.5, loss="hinge").fit(X, y)
    assert fitted.n_passes_ > 1
    assert fitted.gap_ <= 1e-3
    assert fitted.score(X, y) == pytest.approx(SVC(gamma=0.5).fit(X, y).score(X, y), abs=0.01)


@pytest.mark.parametrize("loss", ["squared_hinge", "logistic"])
def test_small_linear_problems_certificate_is_that_of_the_model_recomputed(loss: LossName) -> None:
    X, y = draw(500)
    C, weight, signs = 2.0, np.random.default_rng(0).integers(1, 3, len(X)), 2.0 * y - 1.0
    fitted = StreamSVC(C, loss=loss, bias=0.5).fit(X, y, weight)
    Z, w = np.c_[X, np.full(len(X), 0.5)].astype(np.float64), np.append(fitted.coef_, fitted.intercept_ / 0.5)
    margins, C_i = signs * (Z @ w), C * weight
    if loss == "squared_hinge":
        losses, alpha = np.maximum(0.0, 1.0 - margins) ** 2, 2.0 * C_i * np.maximum(0.0, 1.0 - margins)
        gains = alpha - alpha**2 / (4.0 * C_i)
    else:
        losses, alpha = np.logaddexp(0.0, -margins), C_i / (1.0 + np.exp(margins))
        gains = -(alpha * np.log(alpha / C_i) + (C_i - alpha) * np.log1p(-alpha / C_i))
    v = (alpha * signs) @ Z
    assert fitted.n_passes_ == 1
    assert fitted.primal_ == pytest.approx(0.5 * w @ w + C_i @ losses, rel=1e-12)
    assert fitted.dual_ == pytest.approx(gains.sum() - 0.5 * v @ v, rel=1e-12)
    assert fitted.gap_ <= 1e-10
    assert np.linalg.norm(w - v) <= 1e-9 * np.linalg.norm(w)


@pytest.mark.parametrize("as_sparse", [False, True])
@pytest.mark.parametrize("multi_class", ["ovr", "ovo"])
def test_small_linear_problems_equal_those_solved_in_passes(multi_class: str, as_sparse: bool) -> None:
    X, y = draw(400, 3)
    rows: Any = sp.csr_array(np.where(np.abs(X) > 0.5, X, 0.0)) if as_sparse else 1e3 * X
    given: dict[str, Any] = {"multi_class": multi_class, "class_weight": "balanced", "standardize": not as_sparse}
    at_once, in_passes = StreamSVC(**given).fit(rows, y), StreamSVC(**given, solver="newton").fit(rows, y)
    assert at_once.n_passes_ == 1 < in_passes.n_passes_
    assert at_once.gap_ <= 1e-3
    np.testing.assert_allclose(at_once.coef_, in_passes.coef_, rtol=1e-9)
    np.testing.assert_allclose(at_once.intercept_, in_passes.intercept_, rtol=1e-9)


def test_small_linear_problems_of_regression_equal_those_solved_in_passes() -> None:
    X, _ = draw(300)
    targets = X @ np.arange(4.0) + 7.0
    at_once, in_passes = StreamSVR().fit(X, targets), StreamSVR(solver="newton").fit(X, targets)
    assert at_once.n_passes_ == 1 < in_passes.n_passes_
    np.testing.assert_allclose(at_once.coef_, in_passes.coef_, rtol=1e-9)


def test_small_linear_problems_given_up_are_solved_in_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(linear_small_problems, "MAX_STEPS", 0)
    X, y = draw(300)
    fitted = StreamSVC().fit(X, y)
    assert fitted.n_passes_ > 1
    assert fitted.gap_ <= 1e-3
