"""What an interior point solves in memory between two readings, of the rows near a corner: against the whole problem by slow methods."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from streamsvm.losses import Hinge, Pinball
from streamsvm.rows import Dense
from streamsvm.solvers.interior_point import number_problem, reduced_problem
from streamsvm.solvers.interior_point.nearest_rows import NearRows
from streamsvm.solvers.interior_point.number_problem import NumberProblem, _unit
from streamsvm.solvers.interior_point.offset_problem import _feasible
from streamsvm.solvers.interior_point.problem_in_memory import Known
from streamsvm.solvers.interior_point.reduced_problem import ReducedProblem
from streamsvm.types import Problem


@pytest.mark.parametrize(
    ("mass", "found"),
    [
        (6.0, [1.0, 2.0, 3.0]),
        (3.0, [0.5, 1.0, 1.5]),  # too much: all in proportion
        (0.0, [0.0, 0.0, 0.0]),
        (-1.0, [0.0, 0.0, 0.0]),
        (7.5, [1.25, 2.75, 3.5]),  # too little: a quarter of the way to their bounds 2, 5 and 5
        (12.0, [2.0, 5.0, 5.0]),
        (20.0, [2.0, 5.0, 5.0]),
    ],
)
def test_variables_are_made_to_sum_up_to_what_they_should_as_far_as_bounds_allow(
    mass: float, found: list[float]
) -> None:
    a, s = np.array([1.0, 2.0, 3.0]), np.array([2.0, 5.0, 5.0])
    np.testing.assert_allclose(_feasible(a, s, mass), found, rtol=1e-12, atol=1e-15)
    np.testing.assert_array_equal(_feasible(s, s, 20.0), s)


def test_residuals_are_measured_in_their_weighted_mean() -> None:
    """1 where all of them are 0."""
    assert _unit(np.array([-1.0, 3.0, 0.0]), np.array([1.0, 2.0, 1.0])) == 7.0 / 4.0
    assert _unit(np.zeros(3), np.ones(3)) == 1.0


@pytest.mark.parametrize("quantile", [0.25, 0.7])
def test_the_gain_of_dual_variables_of_numbers_is_that_of_their_rows(quantile: float) -> None:
    """Sum a_i t_i + a_i - conjugate(a_i); a row of weight 0 gains nothing beside its target."""
    problem = Problem(Pinball(quantile), 2.0, 3, 1, 0)
    near: Any = type("Near", (), {"y": np.array([2.0, -1.0, 0.5])})
    a, s = np.array([0.3, -0.2, 0.0]), np.array([1.0, 2.0, 0.0])
    expected = float(a @ near.y) + sum(
        b - problem.loss.conjugate(float(b), 2.0 * float(c)) for b, c in zip(a, s, strict=True)
    )
    assert NumberProblem(problem)._gain(a, near, s) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("tolerance", [1e-2, 0.0])
@pytest.mark.parametrize("primal", [0.5, 300.0])
@pytest.mark.parametrize(
    ("module", "kind", "loss", "unit"),
    [(number_problem, NumberProblem, Pinball(0.3), 3.5 / 3.0), (reduced_problem, ReducedProblem, Hinge(), 1.0)],
)
def test_work_in_memory_is_brought_to_a_share_of_the_gap_that_was_asked_for(
    module: Any, kind: Any, loss: Any, unit: float, primal: float, tolerance: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """P of numbers is in squares of the unit of their residuals. Where no time was left the weights are those of the reading."""
    held: list[Any] = []
    monkeypatch.setattr(module, "iterate", lambda rows, _: held.append(rows))
    X, s, none = np.eye(3, dtype=np.float32), np.ones(3, np.float32), np.zeros(3)
    y = np.array([2.0, -1.0, 0.5]) if loss.numeric() else np.array([1.0, -1.0, 1.0], np.float32)
    near = NearRows(Dense(X, 0.0), y, s, none, none, none, np.arange(3))
    w, problem = np.array([0.3, -0.2, 0.7, 0.0]), Problem(loss, 2.0, 3, 3, 0, tolerance=tolerance)
    found = kind(problem).solve(near, Known(w, np.zeros(4), 0.0, 1.0, primal, -3.0, 0.1, 3.0), 0.0)
    assert held[0].wanted == pytest.approx(max(0.05 * tolerance, 1e-14) * primal / unit**2, rel=1e-12)
    np.testing.assert_allclose(found.w, w, rtol=1e-15)
    assert (found.dual, found.alpha) == (-3.0, None)
