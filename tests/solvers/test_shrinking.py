"""Rows that stay out of passes of dual coordinate descent: which they are, what becomes of them, and that the optimum is the same."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from streamsvm.losses import Hinge
from streamsvm.rows import Dense
from streamsvm.solvers.dcd import DCD, RESTING
from streamsvm.types import Block, Problem

ROWS, COLUMNS = 400, 4


def block() -> Block:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(ROWS, COLUMNS)).astype(np.float32)
    y = np.where(X[:, 0] + 0.5 * rng.normal(size=ROWS) > 0, 1.0, -1.0).astype(np.float32)
    s = rng.choice([0.0, 0.5, 1.0], ROWS).astype(np.float32)
    rows: dict[str, Any] = {"alpha": np.zeros(ROWS), RESTING: np.zeros(ROWS)}
    return Block(Dense(X), y, s, 0, 0, np.arange(ROWS, dtype=np.int32), 0, cached=True, rows=rows)


def problem(tolerance: float = 1e-5) -> Problem:
    return Problem(Hinge(), 0.5, ROWS, COLUMNS, 1, tolerance=tolerance)


def passes(solver: DCD, state: Any, given: Block, count: int) -> Any:
    for k in range(count):
        given.order[:] = np.random.default_rng(k).permutation(ROWS)
        solver.visit(state, given)
        certificate = solver.finish(state)
    return certificate


def test_shrinking_keeps_dual_variables_of_rows_left_out() -> None:
    solver, given = DCD(shrinking=True), block()
    state = solver.start(problem(1e-12))
    passes(solver, state, given, 7)  # all rows are met in passes 1, 3, 4 and 6
    assert not state.shrinking.waking
    out = given.rows[RESTING] > 0.0
    margins = given.y * (given.X.values @ state.w[:-1] + state.w[-1])
    counted = out & (given.s > 0.0)
    assert np.count_nonzero(counted) > ROWS // 10
    alpha, top = given.rows["alpha"].copy(), 0.5 * given.s
    assert np.all((alpha[out] == 0.0) | (alpha[out] == top[out]))
    noted = given.rows[RESTING] - 1.0
    np.testing.assert_allclose(noted[counted], (top * np.maximum(0.0, 1.0 - margins))[counted], atol=0.02)
    passes(solver, state, given, 1)
    np.testing.assert_array_equal(given.rows["alpha"][out], alpha[out])
    assert np.all(given.rows[RESTING][out] > 0.0)


def test_shrinking_does_not_change_the_optimum() -> None:
    found = []
    for shrinking in (False, True):
        solver, given = DCD(shrinking=shrinking), block()
        state = solver.start(problem())
        for _ in range(300):
            certificate = passes(solver, state, given, 1)
            if certificate.exact and certificate.gap <= 1e-5:
                break
        assert certificate.exact
        assert certificate.gap <= 1e-5
        found.append(certificate)
    assert found[0].primal == pytest.approx(found[1].primal, rel=2e-5)
    assert max(c.dual for c in found) <= min(c.primal for c in found) * (1.0 + 1e-12)


def test_shrinking_bounds_of_workers_are_joined() -> None:
    solver = DCD(parts=3, shrinking=True)
    copies = [solver.start(problem()) for _ in range(3)]
    for copy, (highest, lowest) in zip(copies, [(0.1, -0.2), (0.4, 0.0), (0.0, -0.3)], strict=True):
        assert copy.shrinking is not None
        copy.shrinking.extend(highest, lowest)
    joined = solver.merge(copies).shrinking
    assert joined is not None
    assert (joined.highest, joined.lowest) == (0.4, -0.3)
