"""What is done in memory between two passes on the simplex: which rows are offered, how long a method works, what is noted of it."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from streamsvm.compute.kernel_values.rounding import DOUBLE
from streamsvm.losses import SquaredHinge
from streamsvm.rows import Dense
from streamsvm.solvers.kernel.blended import Blended
from streamsvm.solvers.kernel.rounding import error_of_values
from streamsvm.types import Block
from tests.solvers.kernel_problems import gram64, noisy_rows, problem_of, solve

GAMMA, C, ROWS = 0.5, 2.0, 200


def noted(iterations: int) -> list[int]:
    """When an entry of a trajectory is due: when there are a tenth more iterations, or one more."""
    found, due = [], 0.0
    for count in range(iterations + 1):
        if count >= due:
            found.append(count)
            due = max(1.1 * count, count + 1)
    return found


def test_simplex_pass_sums_are_those_of_its_rows() -> None:
    """In float64: the norm of the model without ridges, and with them; absolute values; losses, and those at margins that are less."""
    X, y = noisy_rows(ROWS)
    s = np.random.default_rng(1).choice([0.0, 0.5, 2.0], ROWS).astype(np.float32)
    solver = Blended(working=64)
    problem = replace(problem_of(X, SquaredHinge(), C, GAMMA, 1e-12), bias=0.5)
    state, _, _ = solve(solver, problem, X, y, s, passes=2)
    state.form = state.form._replace(arithmetic=DOUBLE)
    state.certifying = False
    solver.visit(state, Block(Dense(X, 0.5), y, s, 0, 0, np.arange(ROWS, dtype=np.int32), 0))
    a = np.zeros(ROWS)
    a[state.support.index] = state.support.x
    f = (gram64(X, X, GAMMA) + 0.25) @ (y * a)
    ridge = np.divide(0.5, C * s, out=np.zeros(ROWS), where=s > 0.0)
    g = y * f + ridge * a
    assert state.square == pytest.approx((y * a) @ f, rel=1e-9)
    assert state.ridge == pytest.approx(ridge @ a**2, rel=1e-9)
    assert state.absolute == pytest.approx(a @ np.abs(f), rel=1e-9)
    assert state.lowest == pytest.approx(g[s > 0.0].min(), rel=1e-9)
    np.testing.assert_allclose(state.support.v, -g[state.support.index], rtol=1e-8)
    t = 0.5 / state.f
    error = t * error_of_values(state.form, state.reach, int(np.count_nonzero(a)), float(a.sum()))
    assert state.error == pytest.approx(error, rel=1e-12, abs=0.0)
    for sums, off in ((state.losses, 0.0), (state.upper_losses, error)):
        margins = np.maximum(0.0, 1.0 - t * (y * f) + off)
        assert sums[0] == pytest.approx(C * float(s @ margins**2), rel=1e-9)
    assert state.upper_losses[0] > state.losses[0]
    offered = np.concatenate([part.index for part in state.candidates.parts])
    assert np.sort(offered).tolist() == np.flatnonzero((a == 0.0) & (s > 0.0)).tolist()


@pytest.mark.parametrize("cuts", [(70, 130), (0, 200), (200,)])
def test_simplex_workers_find_what_one_finds(cuts: tuple[int, ...]) -> None:
    """One of them may have met no row at all; g of a row with weight is that of who met it."""
    X, y = noisy_rows(ROWS)
    solver = Blended(working=64, pool=40)
    state, _, _ = solve(solver, problem_of(X, SquaredHinge(), C, GAMMA, 1e-12), X, y, passes=2)
    found = []
    for bounds in ((0, ROWS), (0, *cuts, ROWS)):
        parts = [solver.part(state) for _ in bounds[1:]]
        for part, first, last in zip(parts, bounds[:-1], bounds[1:], strict=True):
            if first < last:
                ones, order = np.ones(last - first, np.float32), np.arange(last - first, dtype=np.int32)
                solver.visit(part, Block(Dense(X[first:last], 1.0), y[first:last], ones, 0, first, order, 0))
        found.append(solver.merge(parts))
    alone, together = found
    assert alone.support is not None
    assert together.support is not None
    assert np.isfinite(alone.support.v).all()
    np.testing.assert_allclose(together.support.v, alone.support.v, rtol=1e-5)
    for name in ("square", "ridge", "absolute", "lowest", "error"):
        assert getattr(together, name) == pytest.approx(getattr(alone, name), rel=1e-5), name
    np.testing.assert_allclose(together.losses, alone.losses, rtol=1e-5)
    assert state.support is not None
    assert together.candidates.take(partial(solver.choose, state)).size == solver.pool


def test_simplex_model_is_the_best_scaled_support() -> None:
    X, y = noisy_rows(ROWS)
    solver = Blended(working=64)
    problem = replace(problem_of(X, SquaredHinge(), C, GAMMA, 1e-12), bias=0.5)
    state, _, found = solve(solver, problem, X, y, passes=3)
    machine = solver.solution(state)
    t = 0.5 / found[-1].facts["f"]
    coefficients = t * y[state.support.index].astype(float) * state.support.x
    np.testing.assert_allclose(machine.coefficients, coefficients, rtol=1e-6)  # f as the method has left it
    assert machine.intercept == pytest.approx(0.25 * float(machine.coefficients.sum()), rel=1e-12)
