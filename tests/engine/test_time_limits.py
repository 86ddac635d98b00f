"""How long a job may take beyond its limit, and how long before it a loop of passes stops, by numbers."""

from __future__ import annotations

import math
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import pytest

from streamsvm.engine.checkpoint import signals
from streamsvm.engine.checkpoint.interruption import current
from streamsvm.engine.trainer import FitLoop
from streamsvm.solvers.kernel.decomposition.solver import Decomposition
from streamsvm.solvers.newton.solver import Newton


@pytest.mark.parametrize(
    ("limit", "spent", "finish", "seconds", "patience"),
    [
        (5.0, 1.0, False, 4.0, 3.0),  # two seconds to finish and one to end
        (30.0, 0.0, False, 30.0, 3.0),
        (40.0, 0.0, False, 40.0, 4.0),
        (100.0, 10.0, False, 90.0, 4.5),
        (5.0, 1.0, True, 6.0, 1.0),
        (10.0, 0.0, True, 14.0, 1.0),
        (20.0, 0.0, True, 28.0, 2.0),
        (100.0, 10.0, True, 130.0, 4.5),
    ],
)
def test_a_command_has_a_moment_beyond_its_limit(
    limit: float, spent: float, finish: bool, seconds: float, patience: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[Any] = []
    monkeypatch.setattr(current, "wakeup_socket", object())

    def expiring(*wanted: float) -> AbstractContextManager[None]:
        given.append(wanted)
        return nullcontext()

    monkeypatch.setattr(signals, "expiring", expiring)
    with signals.within(limit, spent, finish=finish):
        assert given == [(pytest.approx(seconds), pytest.approx(patience))]
    with signals.within(math.inf, spent, finish=finish):
        assert len(given) == 1


class Passes(FitLoop):
    """A loop that never makes one."""

    def run_pass(self, checkpointer: Any) -> None:
        raise NotImplementedError

    def again(self, solver: Any, problems: Any, before: Any) -> Any:
        raise NotImplementedError


def test_a_pass_more_the_one_that_certifies_and_what_follows_are_left_time() -> None:
    for final, expected in [(0.0, 6.0), (1.5, 10.5)]:
        loop = Passes(Newton(), [], lambda _: None)
        loop.final_passes, loop._shortest = final, 3.0
        assert loop._reserve() == expected
    loop = Passes(Decomposition(), [], lambda _: None)
    loop.final_passes, loop._shortest = 1.5, 3.0
    assert loop._reserve() == 0.0
