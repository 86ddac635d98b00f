"""The tool that compares optima with those of other programs: a few of its problems, and that it can find something."""

from __future__ import annotations

import pytest

from tools.fuzz.optima import TASKS, compared, drawn, linear_peer, rows

ASKED = {"solver": "dcd", "loss": "hinge", "tolerance": 1e-3}


def test_optima_are_those_of_other_programs() -> None:
    pytest.importorskip("sklearn")
    table, findings = rows(1, 5, ["dcd", "mpu", "decomposition"], 1e-3)
    assert findings == []
    assert {solver for _, solver, *_ in table} == {"dcd", "mpu", "decomposition"}
    assert sum(sets for *_, sets, _, _, _ in table) == 9  # four losses, three, and the two that LIBSVM knows
    assert all(converged == sets for *_, sets, converged, _, _ in table)


@pytest.mark.parametrize(("factor", "said"), [(0.9, "above"), (1.1, "below")])
def test_an_optimum_that_is_another_is_a_finding(factor: float, said: str) -> None:
    pytest.importorskip("sklearn")
    best = linear_peer(drawn(4), "hinge")
    assert best is not None
    outcome = compared(TASKS["linear"], ASKED, drawn(4), factor * best)
    assert said in outcome.finding
