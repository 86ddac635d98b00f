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


def in_memory(**more: Any) -> Any:
    """A run whose rows are in memory; ``lacks`` is what the gap there is, one call after the other."""
    rows = SimpleNamespace(solved=False, lacks=1.0, advances=5, work=(1, 1), dual=0.0, primal=2.0, best=np.ones(2))
    rows.confirmed = lambda primal: setattr(rows, "primal", primal)
    rows.advance = lambda deadline: None
    facts = {"all_rows": rows, "pending": 2, "deadline": np.inf, "dual": 0.0, "gaps": [], "point": None, "mu": 1.0}
    return SimpleNamespace(**facts | more)


def test_work_in_memory_goes_on_while_it_is_pending_unless_it_is_solved_or_late() -> None:
    state = in_memory()
    assert next_point.more_in_memory(state)
    assert next_point.more_in_memory(in_memory(pending=1))
    for change in ({"pending": 0}, {"all_rows": None}, {"deadline": 0.0}):
        assert not next_point.more_in_memory(in_memory(**change))
    state.all_rows.solved = True
    assert not next_point.more_in_memory(state)


@pytest.mark.parametrize(("lacks", "pending"), [(0.98, 1), (1.0, 0), (0.995, 0)])
def test_work_in_memory_that_brings_nothing_ends_with_a_reading(lacks: float, pending: int) -> None:
    """Nothing is less than a hundredth of the gap."""
    state = in_memory()
    state.all_rows.advance = lambda deadline: setattr(state.all_rows, "lacks", lacks)
    next_point.proceed_in_memory(state)
    assert state.pending == pending


def test_after_a_reading_work_in_memory_goes_on_as_often_as_before_it() -> None:
    state = in_memory(pending=0)
    state.all_rows.advance = lambda deadline: setattr(state.all_rows, "advances", 6)
    next_point._confirmed(state, state.all_rows, SimpleNamespace(primal=7.0))  # type: ignore[arg-type]
    assert (state.pending, state.all_rows.primal) == (5, 7.0)


@pytest.mark.parametrize(
    ("taken", "length", "looking", "then"),
    [
        (True, 1.0, False, True),  # taken whole: the next reading only looks
        (True, 1.0, True, False),  # the one after that sums up again
        (True, 0.5, False, False),  # a step that was cut is followed by one that sums up
        (False, 1.0, False, False),
    ],
)
def test_readings_sum_up_by_turns_as_long_as_steps_are_taken_whole(
    taken: bool, length: float, looking: bool, then: bool
) -> None:
    done: list[str] = []
    steps = SimpleNamespace(length=length, model=object(), point="here")
    steps.taken = lambda found: taken
    steps.renew = lambda *given: done.append("renew")
    steps.go_on = lambda *given: done.append("go on")
    steps.polished = lambda *given: (done.append("polish"), 3.0)[1]
    state = SimpleNamespace(primal=4.0, dual=1.0, gaps=[], looking=looking, problem=None, hessian=np.eye(1), point=None)
    state.sampler = SimpleNamespace(sample=lambda: (done.append("sample"), "rows")[1])
    state.proves, state.deadline, state.done = (lambda dual: setattr(state, "dual", dual)), np.inf, False
    next_point._step_exactly(state, steps, None, polish=True)  # type: ignore[arg-type]
    assert done == (["polish"] if looking else ["sample", "renew"]) + (["go on"] if taken else [])
    assert (state.looking, state.summing, state.point) == (then, not then, "here")
    assert (state.gaps, state.dual) == ([0.75], 3.0 if looking else 1.0)


def test_a_bound_that_does_ends_the_steps() -> None:
    steps = SimpleNamespace(length=1.0, polished=lambda *given: 3.999)
    state = SimpleNamespace(primal=4.0, dual=1.0, gaps=[], looking=True, problem=None, hessian=None, point="there")
    state.proves, state.deadline, state.done = (lambda dual: setattr(state, "dual", dual)), np.inf, True
    next_point._step_exactly(state, steps, None, polish=True)  # type: ignore[arg-type]
    assert (state.point, state.dual) == ("there", 3.999)
