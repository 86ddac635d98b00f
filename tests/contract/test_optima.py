"""Every registered solver, with each of its losses and in every kind of problem, against the optimum of another program.

The comparison is that of ``tools/fuzz/optima.py``, which draws problems by the thousand: no D of any pass is above the optimum, no P
below it, and who says "converged" is within the gap. Of the tool itself is tested that it can find something.
"""

from __future__ import annotations

import pytest

from streamsvm.solvers import SOLVERS, losses_of
from streamsvm.types import Kind, Regularizer
from tests.contract.kinds import saved_subclasses
from tools.fuzz import optima_peers as peers
from tools.fuzz.optima import FORMS, TASKS, Pair, compared, on_the_way

pytestmark = pytest.mark.filterwarnings("ignore:Liblinear failed to converge", "ignore:Solver terminated early")
FIRST_ORDER = ("dcd", "mpu", "assg", "pegasos", "sgd", "sgd_qn")
"""Solvers that are held to their certificates alone; all others come to a gap."""
SIMPLEX = ("fw", "mfw", "swap", "partan")
"""Solvers that are given few iterations; plain Frank-Wolfe steps need more of them."""
OF_PARTS = ("rests", "rests, rbf", "pairs", "pairs, rbf", "one class", "one class, rbf")
"""Kinds whose problems are of two classes each: one loss a solver, another with the next."""


def cases() -> list[tuple[str, Pair, int]]:
    """A kind of problem, a solver with a loss, and a seed."""
    found: list[tuple[str, Pair, int]] = []
    for kind, task in TASKS.items():
        pairs = task.pairs()
        for number, solver in enumerate(dict.fromkeys(solver for solver, _ in pairs)):
            own = [pair for pair in pairs if pair[0] == solver]
            chosen = [own[number % len(own)]] if kind in OF_PARTS else own
            found += [(kind, pair, 3 + number % 2) for pair in chosen]
    return found


@pytest.mark.parametrize(("kind", "pair", "seed"), cases(), ids=str)
def test_optima_are_those_of_other_programs(kind: str, pair: Pair, seed: int) -> None:
    task, tolerance = TASKS[kind], 1e-2 if pair[0] in FIRST_ORDER else 1e-3 if pair[0] in SIMPLEX else 1e-6
    given, options = task.draw(seed), {"options": {"iterations": 3000}} if pair[0] in SIMPLEX else {}
    asked = task._replace(settings=lambda given, loss: {**task.settings(given, loss), **options})
    outcome = compared(asked, pair, given, tolerance, task.peer(given, pair[1]))
    assert outcome.finding == ""
    assert outcome.converged or pair[0] in (*FIRST_ORDER, "fw") or kind == "softmax, hard"


def test_optima_every_solver_has_a_task_for_each_of_its_losses() -> None:
    had = {pair for task in TASKS.values() for pair in task.pairs()}
    assert had >= {(solver, loss) for solver in SOLVERS for loss in losses_of(solver)}


def test_optima_every_form_of_a_problem_has_a_task() -> None:
    assert set(saved_subclasses(Kind) + saved_subclasses(Regularizer)) == set(FORMS)
    assert all(TASKS[task].pairs() for task in FORMS.values())


def test_optima_peer_of_our_own_is_liblinear_where_that_has_the_problem() -> None:
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
def test_optima_tool_finds_an_optimum_that_is_another(factor: float, said: str) -> None:
    task, given = TASKS["classes"], peers.draw_two_classes(4)
    best = [factor * value for value in task.peer(given, "hinge")]
    assert said in compared(task, ("dcd", "hinge"), given, 1e-3, best).finding


def test_optima_tool_finds_a_bound_of_a_pass_that_is_too_large() -> None:
    passes = [
        {"event": "pass", "pass": k, "problem": 0, "exact": True, "dual": 1.0 + k, "rounding": 0.0} for k in (1, 2)
    ]
    assert on_the_way(passes, [3.0]) == ""
    assert "of pass 2 above" in on_the_way(passes, [2.5])
