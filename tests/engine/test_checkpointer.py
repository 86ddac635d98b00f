"""When a checkpoint is made: as often as was asked for, less often where one takes long, and once more at the end of the time."""

from __future__ import annotations

from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest

from streamsvm.engine import checkpoint
from streamsvm.engine.checkpoint import SAVED_FIELDS, RunCheckpointer
from streamsvm.engine.signals import Interruption
from streamsvm.errors import InterruptedRun
from streamsvm.types import Status


class Clock:
    """A clock that moves when it is told to; a checkpoint takes ``cost`` seconds."""

    def __init__(self, cost: float = 0.0) -> None:
        self.now, self.cost = 100.0, cost
        self.written: list[Any] = []

    def monotonic(self) -> float:
        return self.now

    def write(self, identity: Any, content: Any) -> None:
        self.now += self.cost
        self.written.append(content)


def made(clock: Clock, every: float, monkeypatch: pytest.MonkeyPatch, deadline: float = float("inf")) -> Any:
    monkeypatch.setattr(checkpoint, "time", clock)
    checkpoints: Any = clock
    guard: Any = SimpleNamespace()
    return RunCheckpointer(
        checkpoints, {}, guard, Interruption(), every, "fit", lambda _: None, deadline, _last=clock.now
    )


def training() -> Any:
    position = SimpleNamespace(visits=7, partials=[])
    fields = dict.fromkeys(SAVED_FIELDS, 0)
    return SimpleNamespace(
        **fields, status=next(iter(Status)), runs=[], row_states={}, at_rest=lambda: nullcontext(position)
    )


@pytest.mark.parametrize(("every", "after"), [(5.0, [5.0, 10.0, 15.0]), (0.0, [])])
def test_a_checkpoint_is_due_every_so_many_seconds(
    every: float, after: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock()
    saves = made(clock, every, monkeypatch)
    when: list[float] = []
    for _ in range(18):
        clock.now += 1.0
        saves.between(training())
        when += [clock.now - 100.0] * (len(clock.written) - len(when))
    assert when == after


def test_checkpoint_run_stops_at_its_deadline_and_not_before(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(cost=3.0)
    saves = made(clock, 0.0, monkeypatch, deadline=110.0)
    clock.now = 109.9
    saves.between(training())
    assert not clock.written
    clock.now = 110.0
    with pytest.raises(InterruptedRun, match=r"time limit: checkpoint saved at epoch 1, chunk 7 \(3\.0 s\)"):
        saves.between(training())
    assert clock.written[0]["index"] == 7
