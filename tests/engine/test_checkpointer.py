"""When a checkpoint is made: as often as was asked for."""

from __future__ import annotations

from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest

from streamsvm.engine import checkpoint
from streamsvm.engine.checkpoint import RunCheckpointer
from streamsvm.engine.fit_state import SAVED_FIELDS
from streamsvm.engine.signals import Interruption
from streamsvm.types import Status


class Clock:
    """A clock that moves when it is told to, and counts checkpoints."""

    def __init__(self) -> None:
        self.now = 100.0
        self.written: list[Any] = []

    def monotonic(self) -> float:
        return self.now

    def write(self, identity: Any, content: Any) -> None:
        self.written.append(content)


def made(clock: Clock, every: float, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(checkpoint, "time", clock)
    checkpoints: Any = clock
    guard: Any = SimpleNamespace()
    forever = float("inf")
    return RunCheckpointer(checkpoints, {}, guard, Interruption(), every, "fit", lambda _: None, forever)


def training() -> Any:
    position = SimpleNamespace(chunks_visited=7, partials=[])
    fields = dict.fromkeys(SAVED_FIELDS.values(), 0)
    return SimpleNamespace(
        **fields, status=next(iter(Status)), runs=[], row_states={}, lock_position=lambda: nullcontext(position)
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
        saves.save_if_due(training())
        when += [clock.now - 100.0] * (len(clock.written) - len(when))
    assert when == after
