"""When Newton's method is seen to lead nowhere, and by which gaps."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from streamsvm.losses import Hinge
from streamsvm.solvers.newton import next_point
from streamsvm.solvers.newton.next_point import STALLED, STALLED_PASSES, STUCK_PASSES, NextPoint, stuck
from streamsvm.types import Problem


def falling(passes: int, to: float) -> list[float]:
    """Gaps that fall to a share of themselves in so many passes."""
    return [1.0, *np.linspace(1.0, to, passes)]


@pytest.mark.parametrize(
    ("gaps", "expected"),
    [
        (falling(STUCK_PASSES, 1.01 * STALLED), True),
        (falling(STUCK_PASSES, 0.99 * STALLED), False),
        (falling(STUCK_PASSES - 1, 1.0), False),  # it is too early to say
        ([0.1, *falling(STUCK_PASSES, 1.0)], True),  # what was long before does not count
    ],
)
@pytest.mark.parametrize("by", ["steps", "all_rows", "exact_steps", ""])
def test_it_is_stuck_where_gaps_do_not_fall_and_nothing_else_is_left_to_try(
    gaps: list[float], expected: bool, by: str
) -> None:
    """By a sampled model alone it never is: all rows are gathered then."""
    state: Any = SimpleNamespace(steps=None, all_rows=None, exact_steps=None, gaps=gaps)
    if by:
        setattr(state, by, object())
    assert stuck(state) == (expected and by != "")


@pytest.mark.parametrize(("to", "expected"), [(1.01 * STALLED, True), (0.99 * STALLED, False)])
def test_a_sample_that_leads_nowhere_is_left(to: float, expected: bool) -> None:
    def stalled(passes: int, sample: int | None = None, *, polish: bool = True, **known: bool) -> bool:
        *before, last = falling(passes, to)
        facts = {"whole": False, "factored": False} | known
        state: Any = SimpleNamespace(gaps=list(before), primal=2.0, dual=2.0 - 2.0 * last, **facts)
        found = NextPoint(sample, 0.5, polish)._stalled(state)
        assert state.gaps[len(before) :] == (
            [] if sample or not polish or any(known.values()) else [pytest.approx(last)]
        )
        return found

    assert stalled(STALLED_PASSES) == expected
    assert not stalled(STALLED_PASSES - 1)
    assert not stalled(STALLED_PASSES, 100)
    assert not stalled(STALLED_PASSES, polish=False)
    assert not stalled(STALLED_PASSES, whole=True)
    assert not stalled(STALLED_PASSES, factored=True)


@pytest.mark.parametrize(("dual", "gap"), [(-3.0, 1.0), (0.5, 0.75)])
@pytest.mark.parametrize("worked", [False, True])
def test_a_gap_in_memory_counts_where_no_step_was_made(dual: float, gap: float, worked: bool) -> None:
    """A dual value below 0 counts as 0, which w = 0 proves."""
    rows: Any = SimpleNamespace(work=(1, 2), dual=dual, primal=2.0, best=np.ones(2))
    rows.advance = lambda deadline: setattr(rows, "work", (1 + worked, 2))
    state: Any = SimpleNamespace(deadline=np.inf, dual=0.25, gaps=[], point=None, mu=1.0)
    next_point._solve_in_memory(state, rows)
    assert state.gaps == ([] if worked else [gap])
    assert (state.dual, state.mu) == (max(dual, 0.25), 0.0)
    assert state.point is rows.best


@pytest.mark.parametrize(("dual", "gap"), [(-3.0, 1.0), (0.5, 0.75)])
@pytest.mark.parametrize("sample", [None, 100])
@pytest.mark.parametrize("done", [False, True])
def test_steps_by_a_sample_of_a_size_that_was_said_have_their_gaps_counted(
    dual: float, gap: float, sample: int | None, done: bool
) -> None:
    steps = SimpleNamespace(
        accept=lambda *_: True, dual=lambda _: dual, next_point=lambda reading, narrowing: (reading.dual, narrowing)
    )
    state: Any = SimpleNamespace(steps=steps, problem=Problem(Hinge(), 1.0, 10, 1, 1), point=None, mu=1.0, squares=None)
    state.primal, state.dual, state.deadline, state.gaps, state.done = 2.0, -np.inf, np.inf, [], done
    state.proves = lambda found: setattr(state, "dual", max(state.dual, found))
    NextPoint(sample, 0.5, True)._step_by_sample(state, None, None)  # type: ignore[arg-type]
    assert state.gaps == ([] if sample is None else [gap])
    assert (state.point, state.mu) == ((None, 1.0) if done else (dual, 0.5))
