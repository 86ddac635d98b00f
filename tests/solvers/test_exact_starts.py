"""What the exchange of rows begins with: dual variables of about the optimum, put on bounds where they belong there; and line searches."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from streamsvm.losses import Hinge, SquaredHinge
from streamsvm.rows import Dense
from streamsvm.solvers.active_set.gathered import GatheredRows
from streamsvm.solvers.active_set.linear_problem import (
    START_GAP,
    _about,
    exact,
)
from streamsvm.types import Problem

C = 0.8


def rows_of(n: int = 40, columns: int = 3) -> GatheredRows:
    rng = np.random.default_rng(11)
    X = rng.normal(size=(n, columns)).astype(np.float32)
    y = np.where(X[:, 0] + rng.normal(size=n) > 0, 1.0, -1.0).astype(np.float32)
    s = rng.choice([0.5, 1.0, 4.0], n).astype(np.float32)
    return GatheredRows(Dense(X, 1.0), y, s, np.arange(n))


def problem_of(loss: Any, n: int = 40, columns: int = 3) -> Problem:
    return Problem(loss, C, n, columns, 1, tolerance=1e-9)


@pytest.mark.parametrize("loss", [Hinge(), SquaredHinge()], ids=str)
def test_active_set_start_is_near_the_optimum(loss: Any) -> None:
    """To a gap of 1e-7; without time it is where it was."""
    rows, problem = rows_of(), problem_of(loss)
    least = exact(problem, rows).w
    t = rows.y.astype(float)
    Z = np.column_stack([rows.X.values.astype(float), np.ones(40)])

    def primal(w: Any) -> float:
        losses = [float(c) * loss.value(m) for c, m in zip(rows.s, t * (Z @ w), strict=True)]
        return float(0.5 * w @ w + C * sum(losses))

    found = _about(problem, rows, np.inf)
    assert found.solved
    assert primal(least) * (1.0 - 1e-12) <= primal(found.best) <= primal(least) * (1.0 + 1.1 * START_GAP)
    assert not _about(problem, rows, -np.inf).solved
