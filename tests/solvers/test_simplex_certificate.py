"""What a pass of a solver on the simplex proves, by numbers: 2 f = 3 + 1, so that t = 1/4 for a margin of 1."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from streamsvm.compute.kernel_values.rounding import DOUBLE, SINGLE
from streamsvm.kernels import RBF
from streamsvm.losses import SquaredHinge
from streamsvm.rows import Reach
from streamsvm.solvers.kernel.rounding import rounding_of
from streamsvm.solvers.kernel.simplex import solver
from streamsvm.solvers.kernel.simplex.blended import Blended
from streamsvm.solvers.kernel.simplex.certificate import certificate_of, reached
from streamsvm.types import Certificate, Problem

PROBLEM = Problem(SquaredHinge(), 1.0, 4, 3, 1, kernel=RBF(0.5), tolerance=0.5, reach=Reach(3, 4.0))


def closed(**changed: Any) -> Any:
    """A state after a pass in which f, 2, was found as the method left it."""
    state = Blended().start(changed.pop("problem", PROBLEM))
    given: dict[str, Any] = {"support": SimpleNamespace(size=3), "square": 3.0, "ridge": 1.0, "f": 2.0, "lowest": 3.0}
    given |= {"losses": np.array([2.0]), "upper_losses": np.array([2.5]), "absolute": 8.0, "error": 0.25, "seen": 0.75}
    for name, value in (given | {"reach": Reach(3, 4.0), "iterations": 7, "passes": 2} | changed).items():
        setattr(state, name, value)
    return state


def test_primal_and_dual_are_those_of_the_model_best_scaled() -> None:
    state = closed()
    found = certificate_of(state, 0.5)
    assert found.primal == 0.5 * 3.0 / 16.0 + 2.0
    assert found.dual == 0.25 - 2.0 / 16.0
    assert found.rounding == rounding_of(PROBLEM, 0.25, 0.25, 0.5, (2.0, 2.5)) > 0.5
    assert (state.gap, state.f, state.scale, state.trajectory) == (1.0, 2.0, 0.25, [])
    facts = {"simplex_gap": 1.0, "seen_gap": 0.75, "f": 2.0, "support": 3, "iterations": 7, "points": None}
    assert {name: found.facts[name] for name in facts} == facts


def test_the_margin_scales_what_is_proven() -> None:
    found = certificate_of(closed(problem=replace(PROBLEM, loss=SquaredHinge(2.0))), 0.5)  # t = 1/2
    assert found.primal == 0.5 * 3.0 / 4.0 + 2.0
    assert found.dual == 2.0 * 0.5 - 2.0 / 4.0


def test_before_a_first_support_only_the_losses_are_known() -> None:
    found = certificate_of(closed(support=None), 0.5)
    assert (found.primal, found.dual, found.final) == (2.0, 0.0, False)


def test_a_run_ends_by_its_own_gap_or_where_the_method_stopped_or_with_a_reduced_model() -> None:
    assert [certificate_of(closed(), epsilon).final for epsilon in (0.99, 1.0, 1.01)] == [False, True, True]
    assert certificate_of(closed(stopped=True), 0.0).final
    reduced: Any = SimpleNamespace(size=1)
    found = certificate_of(closed(reduced=reduced, reduced_square=5.0), 0.0)
    assert found.final
    assert (found.primal, found.dual, found.facts["points"]) == (0.5 * 5.0 + 2.0, 0.125, 1)


@pytest.mark.parametrize(
    ("f", "passes", "expected"),
    [(2.0, 2, SINGLE), (2.09, 2, SINGLE), (2.11, 2, DOUBLE), (1.89, 2, DOUBLE), (2.11, 1, SINGLE)],
)
def test_where_the_method_saw_another_f_kernel_values_become_exact(f: float, passes: int, expected: int) -> None:
    """A tenth of the tolerance, .5, of f is .1."""
    state = closed(f=f, passes=passes)
    assert state.form.arithmetic == SINGLE
    certificate_of(state, 0.5)
    assert state.form.arithmetic == expected


def test_what_was_asked_is_reached_rounding_apart() -> None:
    assert reached(Certificate(4.0, 2.0, rounding=9.0), PROBLEM)
    assert not reached(Certificate(4.0, 1.99), PROBLEM)
    assert reached(Certificate(-4.0, -6.0), PROBLEM)


def test_the_scale_of_nothing_is_nothing() -> None:
    assert closed(f=0.0).dual_scale() == 0.0
    assert closed(f=4.0).dual_scale() == 0.125
    assert closed(f=0.25, problem=replace(PROBLEM, loss=SquaredHinge(3.0))).dual_scale() == 6.0


@pytest.mark.parametrize("blurred", [True, False])
def test_an_end_that_rounding_blurs_is_none_before_it_was_evaluated_in_full(
    blurred: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever ended it: another pass comes, in the arithmetic of certificates."""
    state = closed()
    exact = state.form._replace(arithmetic=DOUBLE)
    ended = Certificate(2.0, 1.0, final=True, facts={"trajectory": []}, rounding=0.5)
    monkeypatch.setattr(solver, "certificate_of", lambda *_: ended)
    monkeypatch.setattr(solver, "in_full", lambda *_: exact)
    monkeypatch.setattr(solver, "needed", lambda *_: blurred)
    found = Blended().finish(state)
    assert (found.final, found.exact) == (not blurred, not blurred)
    assert (state.form == exact) == blurred
