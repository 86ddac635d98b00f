"""What a pass of a solver on the simplex proves, by numbers: 2 f = 3 + 1, so that t = 1/4 for a margin of 1."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from streamsvm.compute.kernel_values.rounding import DOUBLE
from streamsvm.kernels import RBF
from streamsvm.losses import SquaredHinge
from streamsvm.rows import Reach
from streamsvm.solvers.kernel import simplex
from streamsvm.solvers.kernel.blended import Blended
from streamsvm.solvers.kernel.rounding import bound_rounding
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


def test_simplex_certificate_is_that_of_the_best_scaled_model() -> None:
    state = closed()
    found = Blended(epsilon=0.5)._certify_pass(state)
    assert found.primal == 0.5 * 3.0 / 16.0 + 2.0
    assert found.dual == 0.25 - 2.0 / 16.0
    assert found.rounding == bound_rounding(PROBLEM, 0.25, 0.25, 0.5, (2.0, 2.5)) > 0.5
    assert (state.gap, state.f, state.scale, state.trajectory) == (1.0, 2.0, 0.25, [])
    facts = {"simplex_gap": 1.0, "seen_gap": 0.75, "f": 2.0, "support": 3, "iterations": 7, "points": None}
    assert {name: found.facts[name] for name in facts} == facts


def test_simplex_certificate_scales_with_the_margin() -> None:
    found = Blended(epsilon=0.5)._certify_pass(closed(problem=replace(PROBLEM, loss=SquaredHinge(2.0))))  # t = 1/2
    assert found.primal == 0.5 * 3.0 / 4.0 + 2.0
    assert found.dual == 2.0 * 0.5 - 2.0 / 4.0


@pytest.mark.parametrize("blurred", [True, False])
def test_simplex_ends_only_on_an_evaluation_in_full_precision(blurred: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever ended it: another pass comes, in the arithmetic of certificates."""
    state = closed()
    exact = state.form._replace(arithmetic=DOUBLE)
    ended = Certificate(2.0, 1.0, final=True, facts={"trajectory": []}, rounding=0.5)
    monkeypatch.setattr(Blended, "_certify_pass", lambda *_: ended)
    monkeypatch.setattr(simplex, "certified_form", lambda *_: exact)
    monkeypatch.setattr(simplex, "needs_certified_form", lambda *_: blurred)
    found = Blended().finish(state)
    assert (found.final, found.exact) == (not blurred, not blurred)
    assert (state.form == exact) == blurred
