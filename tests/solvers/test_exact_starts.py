"""What the exchange of rows begins with: dual variables of about the optimum, put on bounds where they belong there; and line searches."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from streamsvm.compute.passes.in_memory.all_rows import Interior
from streamsvm.losses import EpsilonInsensitive, Hinge, Huber, Pinball, SquaredEpsilonInsensitive, SquaredHinge
from streamsvm.rows import Dense
from streamsvm.solvers.active_set import finite_newton
from streamsvm.solvers.active_set.exchange import terms_of
from streamsvm.solvers.active_set.gathered import GatheredRows
from streamsvm.solvers.active_set.kernel import START_VIOLATION, _paired
from streamsvm.solvers.active_set.linear_problem import (
    NEXT,
    START_GAP,
    _about,
    _at_bounds,
    _first,
    _slopes,
    _snapped,
    exact,
)
from streamsvm.solvers.active_set.sides import apart, sided_terms, together
from streamsvm.types import Problem
from tests.solvers.kernel_problems import gram64, noisy_rows

C = 0.8


def rows_of(n: int = 40, columns: int = 3) -> GatheredRows:
    rng = np.random.default_rng(11)
    X = rng.normal(size=(n, columns)).astype(np.float32)
    y = np.where(X[:, 0] + rng.normal(size=n) > 0, 1.0, -1.0).astype(np.float32)
    s = rng.choice([0.5, 1.0, 4.0], n).astype(np.float32)
    return GatheredRows(Dense(X, 1.0), y, s, np.arange(n))


def problem_of(loss: Any, n: int = 40, columns: int = 3) -> Problem:
    return Problem(loss, C, n, columns, 1, tolerance=1e-9)


@pytest.mark.parametrize("loss", [EpsilonInsensitive(0.1), Pinball(0.25), SquaredEpsilonInsensitive(0.1)], ids=str)
def test_numbers_next_to_a_bound_are_put_there(loss: Any) -> None:
    """Next to it by a millionth of C s, or of the bound that is nearer to 0; beyond it too."""
    rows, problem = rows_of(6), problem_of(loss, 6)
    a, expected = np.zeros(6), np.zeros(6)
    for case, wanted in ((0, "inside"), (1, "next"), (2, "beyond")):
        for side in (-1.0, 1.0):
            for i, c in enumerate(C * rows.s.astype(float)):
                top = loss.upper(c) if side > 0 else c * loss.slope(np.inf)
                near = NEXT * min(c, loss.upper(c), c * loss.slope(np.inf))
                if case == 0:
                    a[i] = expected[i] = side * min(0.5 * top, 3.0)
                elif i % 2 or not np.isfinite(top):
                    a[i], expected[i] = side * 0.9 * near, 0.0
                    if wanted == "beyond":
                        a[i] = expected[i] = side * 1.1 * near
                else:
                    a[i], expected[i] = side * (top + (-0.9 if wanted == "next" else 5.0) * near), side * top
            np.testing.assert_allclose(_at_bounds(problem, rows, a), expected, rtol=1e-12, atol=0.0)


def test_numbers_further_from_a_bound_than_that_stay() -> None:
    rows, problem = rows_of(6), problem_of(EpsilonInsensitive(0.1), 6)
    top = C * rows.s.astype(float)
    for a in (top * (1.0 - 1.1 * NEXT), -top * (1.0 - 1.1 * NEXT)):
        np.testing.assert_array_equal(_at_bounds(problem, rows, a), a)


@pytest.mark.parametrize("loss", [Hinge(), SquaredHinge(), Huber(0.5)], ids=str)
def test_slopes_are_the_dual_variables_of_weights(loss: Any) -> None:
    rows, problem = rows_of(), problem_of(loss)
    w = np.array([0.5, -0.25, 1.0, 0.125])
    margins = rows.y.astype(float) * (rows.X.values.astype(float) @ w[:-1] + w[-1])
    expected = [-C * float(c) * loss.slope(m) for c, m in zip(rows.s, margins, strict=True)]
    np.testing.assert_allclose(_slopes(problem, rows, w), expected, rtol=1e-9)


def test_an_interior_point_is_put_on_a_bound_where_the_multiplier_is_the_larger_of_both() -> None:
    """In shares: of the bound, or where there is none of what the curvature makes of a; and of the margin z."""
    loss = Hinge(2.0)
    terms = terms_of(loss, np.ones(6), np.full(6, 4.0))
    a = np.array([0.4, 0.4, 3.6, 3.6, 2.0, 2.0])
    below = np.array([0.19, 0.21, 0.0, 0.0, 0.99, 0.0])
    above = np.array([0.0, 0.0, 0.19, 0.21, 0.0, 0.99])
    found = _snapped(Interior(a, below, above), terms)
    assert found.tolist() == [0.4, 0.0, 3.6, 4.0, 2.0, 2.0]
    smooth = terms_of(SquaredHinge(2.0), np.ones(2), np.full(2, 4.0))  # a curvature of 1/8
    found = _snapped(Interior(np.array([0.8, 0.8]), np.array([0.19, 0.21]), np.array([0.9, 0.9])), smooth)
    assert found.tolist() == [0.8, 0.0]


@pytest.mark.parametrize("loss", [EpsilonInsensitive(0.1), Pinball(0.25), SquaredEpsilonInsensitive(0.1)], ids=str)
def test_the_sides_of_a_number_are_the_dual_of_its_row(loss: Any) -> None:
    """Of both sides z a - curvature a^2 / 2 is what a row of numbers adds to D."""
    t, c = np.array([0.75, -2.0, 0.25]), np.array([0.5, 2.0, 4.0])
    terms = sided_terms(loss, t, c)
    for share in (-0.9, -0.2, 0.0, 0.3, 1.0):
        a = share * np.array([min(loss.upper(v), 5.0) if share > 0 else min(v * loss.slope(np.inf), 5.0) for v in c])
        sides = apart(loss, a)
        assert (sides >= 0.0).all()
        assert (sides <= terms.upper * (1.0 + 1e-12)).all()
        np.testing.assert_array_equal(together(loss, sides), a)
        gain = terms.z * sides - 0.5 * terms.curvature * sides**2
        expected = [x * u + x - loss.conjugate(x, v) for x, u, v in zip(a, t, c, strict=True)]
        np.testing.assert_allclose(gain[:3] + gain[3:], expected, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("loss", [Hinge(), SquaredHinge(8.0)], ids=str)
def test_pairs_lead_to_about_the_optimum_of_the_machine(loss: Any) -> None:
    """Feasible, y'a = 0, and gradients that differ by a thousandth of a margin at most where rows may change places."""
    X, y = noisy_rows(60)
    s = np.random.default_rng(2).choice([0.5, 2.0], 60)
    K, terms = gram64(X, X, 0.5), terms_of(loss, y, C * s)
    a = _paired(K.copy(), terms, np.inf)
    assert (a >= 0.0).all()
    assert (a <= terms.upper).all()
    assert y @ a == pytest.approx(0.0, abs=1e-9)
    g = y * (K @ (y * a)) - terms.z + terms.curvature * a
    level = -y * g  # the b that a row asks for
    rising, falling = np.where(y > 0, a < terms.upper, a > 0.0), np.where(y > 0, a > 0.0, a < terms.upper)
    found = level[rising].max() - level[falling].min()
    assert START_VIOLATION / 7.0 < found <= START_VIOLATION * terms.z.max() * (1.0 + 1e-6)
    assert a.any()


@pytest.mark.parametrize("loss", [Hinge(), SquaredHinge()], ids=str)
def test_what_is_begun_with_is_about_the_optimum(loss: Any) -> None:
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


@pytest.mark.parametrize("loss", [Hinge(), EpsilonInsensitive(0.1)], ids=str)
def test_without_an_interior_point_slopes_are_begun_with(loss: Any) -> None:
    """Of classes those at the weights; of numbers those of the largest D, or at the weights where there are none."""
    rows, problem = rows_of(), problem_of(loss)
    w, a = np.array([0.5, -0.25, 1.0, 0.125]), np.full(40, 0.125)
    known: Any = SimpleNamespace(interior=None, slopes=a, best=w)
    expected = a if loss.numeric() else _slopes(problem, rows, w)
    np.testing.assert_array_equal(_first(problem, rows, known), expected)
    known.slopes = None
    np.testing.assert_array_equal(_first(problem, rows, known), _slopes(problem, rows, w))


def test_a_line_search_is_given_the_slope_and_the_curvature_of_p(monkeypatch: pytest.MonkeyPatch) -> None:
    rows, problem = rows_of(), problem_of(Huber(0.5))
    Z = rows.y[:, None].astype(float) * np.column_stack([rows.X.values.astype(float), np.ones(40)])
    lines: list[Any] = []
    step, search = finite_newton._newton_step, finite_newton.step_length
    steps: list[Any] = []

    def noted_step(gram: Any, gradient: Any) -> Any:
        steps.append(step(gram, gradient))
        return steps[-1]

    def noted_search(line: Any) -> float:
        lines.append(line)
        return search(line)

    monkeypatch.setattr(finite_newton, "_newton_step", noted_step)
    monkeypatch.setattr(finite_newton, "step_length", noted_search)
    w = np.array([1.0, -0.5, 0.25, 0.125])
    finite_newton.solved(problem, rows, w, np.inf)

    def primal(t: float) -> float:
        u = w + t * steps[0]
        losses = [float(c) * problem.loss.value(m) for c, m in zip(rows.s, Z @ u, strict=True)]
        return float(0.5 * u @ u + C * sum(losses))

    for t in (0.0, 0.3, 1.7):
        slope, curvature = lines[0](t)
        assert slope == pytest.approx((primal(t + 1e-5) - primal(t - 1e-5)) / 2e-5, rel=1e-5, abs=1e-6)
        margins, along = Z @ (w + t * steps[0]), Z @ steps[0]
        bends = [float(c) * problem.loss.second_derivative(m) for c, m in zip(rows.s, margins, strict=True)]
        assert curvature == pytest.approx(float(steps[0] @ steps[0]) + C * float(bends @ along**2), rel=1e-9)
