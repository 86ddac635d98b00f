"""Steps of a proximal Newton's method: which are taken, how far others are cut, which columns are worked on, when a corner narrows."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from streamsvm.losses import Hinge
from streamsvm.solvers.elastic_net import solver as net
from streamsvm.solvers.elastic_net.model import above_minimum
from streamsvm.solvers.elastic_net.regularizer import SLACK, conjugate, value
from streamsvm.solvers.elastic_net.solver import ON_THE_WAY, ElasticNet
from streamsvm.types import Problem

L1 = 2.0


def state_of(columns: int = 3, **more: Any) -> Any:
    """What a step is judged by: at the weights 0, where the sum of losses is 100."""
    problem = Problem(Hinge(), 1.0, 10, columns, 1, l1=L1)
    facts = {"problem": problem, "narrowed": False, "stuck": False, "step": 1.0, "slope": -8.0, "mu": 0.5}
    return SimpleNamespace(**facts | more)


@pytest.mark.parametrize(
    ("found", "slope", "taken"),
    [
        (90.0, -8.0, True),
        (100.0 - 7.9e-4, -8.0, False),  # a ten thousandth of what the slope promised is asked for
        (100.0 - 8.1e-4, -8.0, True),
        (100.0 + 9e-12, 0.0, True),  # a difference of 1e-13 of P says nothing
        (100.0 + 2e-11, 0.0, False),
    ],
)
def test_a_step_is_taken_where_the_objective_falls_by_a_share_of_the_slope(
    found: float, slope: float, taken: bool
) -> None:
    zero = np.zeros(4)
    state = state_of(center=zero, point=zero, slope=slope, narrowed=True, on_the_way=np.full(len(ON_THE_WAY), 100.0))
    assert ElasticNet()._taken(state, SimpleNamespace(value=found)) == taken  # type: ignore[arg-type]
    assert state.narrowed != taken
    state.on_the_way = None  # the first point of all is taken
    assert ElasticNet()._taken(state, SimpleNamespace(value=1e9))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("best", "narrowed", "step", "share", "stuck"),
    [
        (3, False, 1.0, 0.01, False),
        (7, False, 0.5, 0.25, False),
        (0, False, 1.0, 1e-4, False),  # a tenth of the shortest that was looked at
        (0, False, 9e-4, 9e-8, True),  # which is not worth a reading
        (0, True, 0.5, 0.0, False),  # the slope was of another corner: the center is looked at again
    ],
)
def test_a_step_that_is_not_taken_is_cut_to_the_best_share_that_was_looked_at(
    best: int, narrowed: bool, step: float, share: float, stuck: bool
) -> None:
    """The terms beside the losses are counted at each of them: losses that fall as those rise are no gain."""
    point, center = np.array([1.0, -2.0, 0.0, 1.0]), np.zeros(4)
    regular = np.array([value(t * point, L1) for t in ON_THE_WAY])
    totals = 150.0 + np.abs(np.arange(len(ON_THE_WAY)) - best)
    state = state_of(center=center, point=point, narrowed=narrowed, step=step, on_the_way=totals - regular)
    assert not ElasticNet()._taken(state, SimpleNamespace(value=1e9))  # type: ignore[arg-type]
    assert state.step == pytest.approx(share, rel=1e-12)
    assert state.stuck == stuck


@pytest.mark.parametrize("primal", [1e-3, 1.0, 400.0])
@pytest.mark.parametrize(("gap", "goes_on"), [(1.05e-3, True), (0.95e-3, False)])
def test_a_next_point_is_looked_for_until_the_gap_is_the_share_of_p_that_was_asked_for(
    primal: float, gap: float, goes_on: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[float] = []
    monkeypatch.setattr(ElasticNet, "_go_on", lambda _, state, found: asked.append(found.primal))
    state = ElasticNet().start(Problem(Hinge(), 1.0, 10, 3, 1, l1=L1, tolerance=1e-3))
    found = SimpleNamespace(primal=primal, dual=primal * (1.0 - gap), value=primal, v=np.zeros(4), scale=1.0)
    state.evaluation = SimpleNamespace(close=lambda *_: found, clear=lambda: None)  # type: ignore[assignment]
    certificate = ElasticNet().finish(state)
    assert (certificate.primal, certificate.dual) == (found.primal, found.dual)
    assert asked == [primal] * goes_on


@pytest.mark.parametrize("primal", [1e-3, 1.0, 400.0])
def test_columns_are_ruled_out_by_the_gap_and_what_rounding_leaves_unsaid_of_p(
    primal: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last column of all but the constant stays; a better point that was read before counts."""
    gaps: list[float] = []

    def ruled_out(_problem: Any, gap: float, *_more: Any) -> Any:
        gaps.append(gap)
        return np.array([True, True, False, False])

    monkeypatch.setattr(net, "proved_zero", ruled_out)
    monkeypatch.setattr(ElasticNet, "_go_on", lambda *_: None)
    state = ElasticNet().start(Problem(Hinge(), 1.0, 10, 3, 1, l1=L1, tolerance=1e-3))
    found = SimpleNamespace(primal=primal, dual=0.5 * primal, value=primal, v=np.zeros(4), scale=1.0)
    state.evaluation = SimpleNamespace(close=lambda *_: found, clear=lambda: None)  # type: ignore[assignment]
    facts = ElasticNet().finish(state).facts
    found.primal = 2.0 * primal
    ElasticNet().finish(state)
    assert gaps == [primal - 0.5 * primal + SLACK * primal] * 2
    assert (facts["columns_possible"], facts["columns_used"], facts["pool"]) == (1, 0, 3)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize(("few", "most"), [(3, 12), (8, 12), (3, 6)])
def test_a_pool_has_the_columns_in_use_and_then_the_largest_slopes_of_those_that_may_be(
    seed: int, few: int, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All that may be not 0 where they are few; else half as many again as are in use or come into use, in the memory there is."""
    monkeypatch.setattr(net, "FEW_COLUMNS", few)
    rng = np.random.default_rng(seed)
    point, v = np.where(rng.random(21) < 0.2, 1.0, 0.0), 1.5 * rng.normal(size=21)
    possible = rng.random(21) < (0.2 if seed % 3 == 0 else 0.8)
    state = state_of(20, point=point, possible=possible)
    used, may = point[:-1] != 0.0, possible[:-1] | (point[:-1] != 0.0)
    found = ElasticNet(pool=most)._chosen(state, v)
    if may.sum() <= min(few, most):
        assert found.tolist() == np.flatnonzero(may).tolist()
        return
    wanted = int((used | (may & (np.abs(v[:-1]) > L1))).sum())
    size = min(most, int(may.sum()), max(few, int(1.5 * wanted)))
    order = sorted(np.flatnonzero(may), key=lambda j: (not used[j], -abs(v[j])))
    assert found.tolist() == sorted(order[:size])
    others = set(np.flatnonzero(np.abs(v[:-1]) > L1).tolist()) - {1, 4}
    state.pool = np.array([1, 4])
    assert ElasticNet()._others(state, v) == bool(others)


@pytest.mark.parametrize(
    ("mu", "share", "after"), [(0.5, 2.01, 0.12), (0.5, 2.0, 0.12), (0.5, 1.99, 0.5), (0.0, 9.0, 0.0)]
)
def test_a_corner_narrows_where_it_costs_more_than_the_rest_of_the_gap(mu: float, share: float, after: float) -> None:
    """The rest is R(w) + R*(v) - w.v, twice of which the gap is then."""
    center, v = np.array([1.0, -2.0, 0.0, 1.0]), np.array([4.0, 1.0, -3.0, 0.5])
    rest = value(center, L1) + conjugate(v, L1) - float(center @ v)
    assert above_minimum(center, v, L1) == pytest.approx(rest, rel=1e-12)
    state, found = (
        state_of(center=center, mu=mu),
        SimpleNamespace(primal=above_minimum(center, v, L1) * share, dual=0.0, v=v),
    )
    assert ElasticNet()._narrower(state, found) == (after != mu)  # type: ignore[arg-type]
    assert state.mu == pytest.approx(after, rel=1e-12)
