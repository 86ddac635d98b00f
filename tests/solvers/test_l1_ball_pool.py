"""Which columns a method in an l1 ball works on, and when it works on them again or takes others in."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from streamsvm.losses import Squared
from streamsvm.solvers.l1_ball.solver import OnL1Ball
from streamsvm.solvers.point_evaluation import Sums
from streamsvm.types import Problem

RADIUS = 2.0


def state_of(point: Any, pool: Any, **more: Any) -> Any:
    problem = Problem(Squared(0.5), 1.0, 10, len(point) - 1, 0, l1_ball=RADIUS)
    facts = {
        "problem": problem,
        "point": point,
        "pool": np.asarray(pool),
        "gathered": None,
        "gram": None,
        "gathering": False,
    }
    return SimpleNamespace(**facts | more)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize(("pool", "in_use"), [(8, 6), (5, 3), (1, 1)])
def test_a_pool_has_columns_in_use_and_the_largest_slopes_beside_them(seed: int, pool: int, in_use: int) -> None:
    """Those in use are three quarters of it at most, and one at least, the heaviest first."""
    rng = np.random.default_rng(seed)
    point, v = rng.normal(size=21) * (rng.random(21) < (0.1, 0.6)[seed % 2]), rng.normal(size=21)
    point[19] = 9.0  # the last column, which is the heaviest
    found = OnL1Ball(pool=pool)._chosen(state_of(point, []), v)
    order: list[int] = sorted(np.flatnonzero(point[:-1]).tolist(), key=lambda j: -abs(point[j]))[:in_use]
    others = sorted(set(range(20)) - set(order), key=lambda j: -abs(v[j]))
    assert found.tolist() == sorted([*order, *others[: pool - len(order)]])


V = np.array([1.0, -3.0, 2.0, 0.5, 0.25])
"""Slopes of four columns and the constant; the largest of those in the pool 0, 2 is 2: a gap of 2 (3 - 2) less than that of all."""


@pytest.mark.parametrize(
    ("gap", "known", "begun"),
    [
        (4.1, True, True),  # 2.1 of it are in the pool: more than half
        (4.0, True, False),
        (3.0, True, False),
        (9.0, False, False),  # the pool's matrix is not known
    ],
)
def test_a_pool_is_worked_on_again_while_it_has_more_than_half_of_the_gap(
    gap: float, known: bool, begun: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else other columns come in, and weights that are outside them are 0."""
    calls: list[str] = []
    monkeypatch.setattr(OnL1Ball, "_begin", lambda self, state, found: calls.append("begin"))
    state = state_of(np.array([0.5, 0.0, -0.25, 0.125, 0.5]), [0, 2], gram=np.eye(3) if known else None)
    OnL1Ball(pool=2)._go_on(state, SimpleNamespace(v=V), gap)  # type: ignore[arg-type]
    assert calls == (["begin"] if begun else [])
    assert state.gathering == (not begun)
    assert state.pool.tolist() == ([0, 2] if begun else [0, 1])  # the heaviest in use, and the steepest
    assert state.point.tolist() == ([0.5, 0.0, -0.25, 0.125, 0.5] if begun else [0.5, 0.0, 0.0, 0.0, 0.5])
    assert (state.gram is not None) == begun


@pytest.mark.parametrize(("pool", "fresh"), [([0, 2], True), ([0, 1, 2, 3], False)])
def test_a_matrix_that_was_summed_up_or_is_of_all_columns_is_worked_on_whatever_the_gap(
    pool: list[int], fresh: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[str] = []
    monkeypatch.setattr(OnL1Ball, "_begin", lambda self, state, found: calls.append("begin"))
    matrix = np.eye(len(pool) + 1)
    state = state_of(np.zeros(5), pool, gathering=fresh)
    state.gathered, state.gram = (matrix, None) if fresh else (None, matrix)
    OnL1Ball(pool=2)._go_on(state, SimpleNamespace(v=V), 2.0)  # type: ignore[arg-type]
    assert calls == ["begin"]
    assert state.gram is matrix
    assert (state.gathered, state.gathering) == (None, False)


@pytest.mark.parametrize("certifying", [False, True])
def test_a_pass_that_only_evaluates_is_followed_by_no_work(certifying: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its facts count the columns in use but for the constant, the last of all."""
    calls: list[float] = []
    monkeypatch.setattr(OnL1Ball, "_go_on", lambda _, state, found, gap: calls.append(gap))
    solver, sums = OnL1Ball(), Sums(3.0, 3.0, 2.0, 0.5)
    state = solver.start(Problem(Squared(0.5), 1.0, 10, 4, 0, l1_ball=RADIUS, tolerance=1e-3))
    state.point = np.array([0.5, 0.0, 0.25, -0.25, 0.125])
    found = SimpleNamespace(primal=3.0, dual=1.0, sums=sums, v=V)
    state.evaluation = SimpleNamespace(close=lambda *_: found, clear=lambda: None)  # type: ignore[assignment]
    if certifying:
        solver.certify(state)
    certificate = solver.finish(state)
    assert (certificate.primal, certificate.dual, certificate.facts["columns_used"]) == (3.0, 1.0, 3)
    assert len(calls) == (not certifying)
    assert not state.certifying
    gap = certificate.facts["simplex_gap"]
    for epsilon, final in ((gap, True), (0.999 * gap, False)):
        assert OnL1Ball(epsilon=epsilon).finish(state).final == final
