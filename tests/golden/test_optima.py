"""The tool that compares optima with those of other programs: what is registered it has, its own peer, and that it can find something."""

from __future__ import annotations

import pytest

from streamsvm.solvers import SOLVERS, losses_of
from streamsvm.types import Kind, Regularizer
from tests.contract.kinds import saved_subclasses
from tools.fuzz import optima_peers as peers
from tools.fuzz.optima import FORMS, TASKS, compared, on_the_way

SOME = {
    "classes": ("newton", "hinge"),
    "pairs": ("newton", "squared_hinge"),
    "all classes": ("dcd", "hinge"),
    "numbers": ("newton", "squared"),
    "numbers, rbf": ("kernel_active_set", "pinball"),
    "one class, nu": ("interior_point", "hinge"),
    "l1 ball": ("mfw", "squared"),
    "elastic net": ("newton", "squared_hinge"),
}


def test_optima_fuzzer_every_solver_has_a_task_for_each_of_its_losses() -> None:
    had = {pair for task in TASKS.values() for pair in task.pairs()}
    assert had >= {(solver, loss) for solver in SOLVERS for loss in losses_of(solver)}


def test_optima_fuzzer_every_form_of_a_problem_has_a_task() -> None:
    assert set(saved_subclasses(Kind) + saved_subclasses(Regularizer)) == set(FORMS)
    assert all(TASKS[task].pairs() for task in FORMS.values())


@pytest.mark.parametrize("kind", SOME)
def test_optima_are_those_of_other_programs(kind: str) -> None:
    pytest.importorskip("sklearn")
    task, given = TASKS[kind], TASKS[kind].draw(4)
    assert SOME[kind] in task.pairs()
    outcome = compared(task, SOME[kind], given, 1e-3, task.peer(given, SOME[kind][1]))
    assert outcome.finding == ""
    assert outcome.over <= 1e-3


def test_optima_fuzzer_peer_of_our_own_is_liblinear_where_that_has_the_problem() -> None:
    pytest.importorskip("sklearn")
    two, some, numbers = (draw(3) for draw in (peers.draw_two_classes, peers.draw_some_classes, peers.draw_numbers))
    seen = two.seen
    Z, norm = peers.features(seen, kernel=False)
    for loss in ("hinge", "squared_hinge"):
        own = peers.least(peers.margin_lines(Z, seen.y, seen.C * seen.s, loss), norm)
        assert own == pytest.approx(peers.linear_classes(two, loss)[0], rel=1e-8)
    Z, norm = peers.features(numbers.seen, kernel=False)
    for loss in ("epsilon_insensitive", "squared_epsilon_insensitive"):
        own = peers.least(peers.number_lines(Z, numbers.seen, loss), norm)
        assert own == pytest.approx(peers.linear_numbers(numbers, loss)[0], rel=1e-8)
    lines, norm = peers.class_lines(some.seen, "hinge")
    assert peers.least(lines, norm) == pytest.approx(peers.together(some, "hinge")[0], rel=1e-8)


@pytest.mark.parametrize(("factor", "said"), [(0.9, "above"), (1.1, "below")])
def test_optima_fuzzer_optimum_that_is_another_is_a_finding(factor: float, said: str) -> None:
    pytest.importorskip("sklearn")
    task, given = TASKS["classes"], peers.draw_two_classes(4)
    best = [factor * value for value in task.peer(given, "hinge")]
    assert said in compared(task, ("dcd", "hinge"), given, 1e-3, best).finding


def test_optima_fuzzer_bound_of_a_pass_that_is_too_large_is_a_finding() -> None:
    passes = [
        {"event": "pass", "pass": k, "problem": 0, "exact": True, "dual": 1.0 + k, "rounding": 0.0} for k in (1, 2)
    ]
    assert on_the_way(passes, [3.0]) == ""
    assert "of pass 2 above" in on_the_way(passes, [2.5])
