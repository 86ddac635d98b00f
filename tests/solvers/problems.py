"""A small weighted problem in three blocks, and its rows as one float64 matrix with the constant feature."""

from __future__ import annotations

from typing import Any

import numpy as np

from streamsvm.rows import Dense
from streamsvm.solvers.problem_kinds import OneAgainstRest, Regression
from streamsvm.types import Block, Kind, Problem

ROWS, COLUMNS = 300, 6


def rows_of(seed: int = 5) -> tuple[Any, Any, Any]:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(ROWS, COLUMNS)).astype(np.float32)
    y = np.where(X @ rng.normal(size=COLUMNS) + 0.8 * rng.normal(size=ROWS) > 0, 1.0, -1.0).astype(np.float32)
    return X, y, rng.choice([0.0, 0.5, 1.0, 2.0], ROWS).astype(np.float32)


def kind_of(loss: Any, positive: int = 1) -> Kind:
    """Return regression for a loss of numbers, else a class against the rest."""
    return Regression() if loss.numeric() else OneAgainstRest(positive)


def problem_of(loss: Any, C: float = 0.5) -> Problem:
    return Problem(loss, C, ROWS, COLUMNS, kind_of(loss), tolerance=1e-12)


def epoch_blocks(epoch: int) -> list[Block]:
    """Three blocks of 100 rows, in a random order of blocks and rows."""
    X, y, s = rows_of()
    rng = np.random.default_rng(epoch)
    found = []
    for k in rng.permutation(3).tolist():
        part = slice(100 * k, 100 * k + 100)
        order = rng.permutation(100).astype(np.int32)
        found.append(Block(Dense(X[part], 1.0), y[part], s[part], k, 100 * k, order, 10 * epoch + k))
    return found


def signed_rows() -> Any:
    """y_i (x_i, 1) in float64."""
    X, y, _ = rows_of()
    return y[:, None] * np.hstack([X.astype(np.float64), np.ones((ROWS, 1))])


def explicit_dual(a: Any, loss: Any, C: float) -> float:
    """D(a), term by term."""
    _, _, s = rows_of()
    v = a @ signed_rows()
    terms = [x - loss.conjugate(x, C * float(c)) for x, c in zip(a, s, strict=True) if c > 0.0]
    return float(sum(terms) - 0.5 * v @ v)


def best_scaled(a: Any, loss: Any, C: float) -> float:
    """The largest D(t a) over t in (0, 1], or t > 0 where there is no box, by search; 0 at least."""
    from scipy.optimize import minimize_scalar

    top = 1.0 if np.isfinite(loss.upper(1.0)) else 10.0
    found = minimize_scalar(lambda t: -explicit_dual(t * a, loss, C), bounds=(0.0, top), method="bounded")
    return max(0.0, -float(found.fun), explicit_dual(a, loss, C))
