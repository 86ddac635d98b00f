"""Weighted rows of two classes that are drawn by a seed, and a fit of them beside LIBLINEAR's."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from streamsvm.losses import LOSSES
from streamsvm.types import Certificate, Problem
from tests.solvers.kernel_problems import solve
from tests.solvers.problems import kind_of


class DrawnRows(NamedTuple):
    """Rows float32 (n, d), signs (n,), weights (n,) float32, and C."""

    X: Any
    y: Any
    s: Any
    C: float

    def problem_of(self, loss: Any, tolerance: float) -> Problem:
        return Problem(loss, self.C, len(self.X), self.X.shape[1], kind_of(loss), tolerance=tolerance)

    def primal(self, loss: Any, w: Any) -> float:
        """P(w), from its definition; of numbers the targets are ``y``."""
        f = self.X.astype(np.float64) @ w[:-1] + w[-1]
        m = f - self.y if loss.numeric() else self.y * f
        losses = (c * loss.value(v) for c, v in zip(self.s.astype(float), m, strict=True))
        return float(0.5 * w @ w + self.C * sum(losses))


def fuzzed(seed: int) -> DrawnRows:
    """Columns of several scales, some of them 0 or 1; weights with 0 among them."""
    rng = np.random.default_rng(seed)
    n, d = int(rng.integers(150, 400)), int(rng.integers(2, 7))
    X = rng.normal(size=(n, d)) * 10.0 ** rng.integers(-1, 2, d)
    X[:, -1] = rng.random(n) < 0.1
    y = np.where(X[:, 0] / np.abs(X[:, 0]).max() + 0.4 * rng.normal(size=n) > 0.1, 1.0, -1.0).astype(np.float32)
    y[:2] = 1.0, -1.0
    s = rng.choice([0.0, 0.5, 1.0, 3.0], n).astype(np.float32)
    return DrawnRows(X.astype(np.float32), y, s, 10.0 ** float(rng.integers(-3, 2)))


def solve_as_liblinear(
    solver: Any, drawn: DrawnRows, loss: str, tolerance: float, **course: Any
) -> tuple[Any, dict[str, Any], list[Certificate]]:
    """Solve, and assert that the end is within the tolerance of LIBLINEAR's P, and no bound above it."""
    from sklearn.svm import LinearSVC

    kind = LOSSES[loss]()
    state, rows, found = solve(solver, drawn.problem_of(kind, tolerance), drawn.X, drawn.y, drawn.s, **course)
    other = LinearSVC(C=drawn.C, loss=loss, dual=True, tol=1e-10, max_iter=20_000, random_state=0)
    other.fit(drawn.X.astype(np.float64), drawn.y, sample_weight=drawn.s.astype(np.float64))
    reached = drawn.primal(kind, np.append(other.coef_[0], other.intercept_[0]))
    assert max(one.dual for one in found) <= reached * (1 + 1e-12)
    assert found[-1].primal <= reached * (1 + max(tolerance, 1e-12))
    return state, rows, found
