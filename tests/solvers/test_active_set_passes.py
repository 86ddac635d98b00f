"""What passes of the active set methods keep: the best bounds so far, what rows are told, and what is said of the work."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from streamsvm.kernels import RBF
from streamsvm.losses import EpsilonInsensitive, Hinge, SquaredHinge
from streamsvm.rows import Dense
from streamsvm.solvers.active_set.kernel import KernelActiveSet
from streamsvm.solvers.active_set.solver import ActiveSet
from streamsvm.solvers.point_evaluation import PointEvaluation, PointSums
from streamsvm.types import DUAL, Block, Certificate, Problem
from tests.solvers.kernel_problems import gram64

ROWS, COLUMNS, C = 40, 60, 1.5


def table(*, numeric: bool = False) -> tuple[Any, Any, Any]:
    """More columns than rows, so that rows are exchanged whatever the loss; a third of the rows without weight."""
    rng = np.random.default_rng(9)
    X = rng.normal(size=(ROWS, COLUMNS)).astype(np.float32)
    y = X[:, 0] if numeric else np.where(X[:, 0] + rng.normal(size=ROWS) > 0, 1.0, -1.0)
    return X, y.astype(np.float32), rng.choice([0.0, 0.5, 2.0], ROWS).astype(np.float32)


def problem_of(loss: Any, **more: Any) -> Problem:
    return Problem(loss, C, ROWS, COLUMNS, 1, **({"tolerance": 1e-9} | more))


def visited(solver: Any, state: Any, rows: Any, *, numeric: bool = False) -> Certificate:
    """A pass over two blocks."""
    X, y, s = table(numeric=numeric)
    for k, part in enumerate((slice(0, 15), slice(15, ROWS))):
        order = np.arange(part.stop - part.start, dtype=np.int32)
        solver.visit(
            state, Block(Dense(X[part], 1.0), y[part], s[part], k, part.start, order, 0, rows={DUAL: rows[part]})
        )
    found: Certificate = solver.finish(state)
    return found


class Found(PointSums):
    """Sums that come to certain bounds."""

    bounds = 0.0, 0.0

    def close(self, problem: Problem, w: Any) -> PointEvaluation:
        """As the sums of a pass have it."""
        return super().close(problem, w)._replace(primal=self.bounds[0], dual=self.bounds[1])


def closed_at(bounds: tuple[float, float], **known: Any) -> Any:
    """A solved state whose pass found these bounds at its point, which is all threes."""
    state = ActiveSet().start(problem_of(Hinge()))
    state.point, state.solved, state.evaluation = np.full(COLUMNS + 1, 3.0), True, Found(COLUMNS + 1)
    state.evaluation.bounds = bounds
    for name, value in known.items():
        setattr(state, name, value)
    return state


def test_passes_keep_the_point_of_least_p_and_the_largest_d() -> None:
    """D is that of the slopes at the point, or of the dual variables that rows have."""
    solver, v = ActiveSet(), np.zeros(COLUMNS + 1)
    v[0] = 2.0
    for gain, bound in ((2.5, 1.0), (4.0, 2.0)):
        state = closed_at((1.75, 1.0), gain=gain, v=v.copy(), exchanges=7, dual=0.25)
        found = solver.finish(state)
        assert (found.primal, found.dual, found.final, found.facts) == (1.75, bound, True, {"exchanges": 7})
        assert (state.best == 3.0).all()
        assert (state.gain, np.abs(state.v).max()) == (0.0, 0.0)
    worse = closed_at((9.0, 0.125), primal=1.5, dual=1.25)
    found = solver.finish(worse)
    assert (found.primal, found.dual) == (1.5, 1.25)
    assert not worse.best.any()


@pytest.mark.parametrize("loss", [Hinge(), SquaredHinge(), EpsilonInsensitive(0.1)], ids=str)
def test_a_run_that_had_no_time_goes_on_from_where_it_was(loss: Any) -> None:
    """Rows have the variables that are certified; exchanges add up, and those made are not made again."""
    numeric = loss.numeric()
    X, y, s = table(numeric=numeric)
    whole, solver = ActiveSet(), ActiveSet()
    at_once, state = whole.start(problem_of(loss)), solver.start(problem_of(loss))
    told, rows = np.zeros(ROWS), np.full(ROWS, 7.0)
    visited(whole, at_once, told, numeric=numeric)
    best = visited(whole, at_once, told, numeric=numeric)
    solver.set_deadline(state, -np.inf)
    assert not visited(solver, state, rows, numeric=numeric).final
    assert (rows == 0.0).all()  # nothing is known of them in the first pass
    began = state.exchanges
    assert not state.solved
    late = visited(solver, state, rows, numeric=numeric)
    assert not late.final
    signs = 1.0 if numeric else y.astype(float)
    Z = np.column_stack([X.astype(float), np.ones(ROWS)])
    v = (rows * signs) @ Z
    gains = [
        a * (1.0 + float(t) if numeric else 1.0) - loss.conjugate(a, C * float(c))
        for a, t, c in zip(rows, y, s, strict=True)
        if c > 0.0
    ]
    assert late.dual >= sum(gains) - 0.5 * float(v @ v) - 1e-9
    assert (rows[s == 0.0] == 0.0).all()
    solver.set_deadline(state, np.inf)
    visited(solver, state, rows, numeric=numeric)
    assert state.solved
    found = visited(solver, state, rows, numeric=numeric)
    assert found.final
    assert found.facts["exchanges"] == state.exchanges > began
    assert found.primal == pytest.approx(best.primal, rel=1e-10)
    assert found.dual == pytest.approx(best.dual, rel=1e-10)
    np.testing.assert_allclose(rows, told, rtol=1e-6, atol=1e-8)
    np.testing.assert_allclose((rows * signs) @ Z, solver.solution(state).w, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("loss", [Hinge(), SquaredHinge(), EpsilonInsensitive(0.1)], ids=str)
def test_what_is_said_of_a_kernel_machine_is_true(loss: Any) -> None:
    """How many rows have a coefficient, and how many are between their bounds, of numbers each on the side that it is on."""
    numeric = loss.numeric()
    X, y, s = table(numeric=numeric)
    solver, rows = KernelActiveSet(), np.full(ROWS, 7.0)
    state = solver.start(replace(problem_of(loss), kernel=RBF(0.01)))
    first = visited(solver, state, rows, numeric=numeric)
    assert (rows == 7.0).all()  # they are told in the second pass
    found = visited(solver, state, rows, numeric=numeric)
    assert (first.exact, found.exact, found.final) == (False, True, True)
    top = np.array([loss.upper(C * float(c)) if c else 0.0 for c in s])
    between = (np.abs(rows) > 1e-9) & (np.abs(rows) < top * (1.0 - 1e-9))
    assert found.facts["support"] == np.count_nonzero(rows)
    assert found.facts["free"] == np.count_nonzero(between)
    assert found.facts["exchanges"] >= found.facts["free"]
    machine = solver.solution(state)
    signs = 1.0 if numeric else y.astype(float)
    np.testing.assert_array_equal(machine.numbers, np.flatnonzero(rows))
    np.testing.assert_allclose(machine.coefficients, (signs * rows)[machine.numbers], rtol=1e-12)
    f = gram64(X, X, 0.01) @ (signs * rows) + machine.intercept
    margins = (f - y.astype(float)) if numeric else signs * f
    losses = sum(C * float(c) * loss.value(m) for c, m in zip(s, margins, strict=True))
    norm = (signs * rows) @ gram64(X, X, 0.01) @ (signs * rows)
    assert found.primal == pytest.approx(0.5 * norm + losses, rel=1e-9)
