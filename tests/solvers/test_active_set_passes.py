"""What passes of the active set methods keep: the best bounds so far, what rows are told, and what is said of the work."""

from __future__ import annotations

from typing import Any

import numpy as np

from streamsvm.losses import Hinge
from streamsvm.solvers.active_set import ActiveSet
from streamsvm.solvers.evaluation import PointEvaluation, PointSums
from streamsvm.types import Problem

ROWS, COLUMNS, C = 40, 60, 1.5


def problem_of(loss: Any, **more: Any) -> Problem:
    return Problem(loss, C, ROWS, COLUMNS, 1, **({"tolerance": 1e-9} | more))


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


def test_active_set_keeps_the_least_primal_and_the_largest_dual() -> None:
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
