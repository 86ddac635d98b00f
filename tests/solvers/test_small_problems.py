"""Small kernel problems in memory are solved without passes: their certificates, recomputed in numpy from the model."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sklearn.metrics.pairwise import laplacian_kernel, polynomial_kernel, rbf_kernel
from sklearn.svm import SVC

from streamsvm.sklearn import StreamSVC
from streamsvm.sklearn.base import KernelName, LossName
from streamsvm.solvers.kernel import small_problems

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
