"""A signal that comes while threads are started or waited for ends the job, once nobody goes on with what it closes."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Generator
from contextlib import closing
from itertools import count

import numpy as np
import pytest
from numba.core.compiler_lock import global_compiler_lock

from streamsvm.compute import threading as cores
from streamsvm.engine import signals
from streamsvm.engine.executor import Task, ThreadExecutor
from streamsvm.errors import InterruptedRun
from streamsvm.rows import Dense
from streamsvm.schedule.stream import Stream
from streamsvm.store.sources.read_ahead import map_in_order, read_ahead
from streamsvm.store.views import MemoryStore
from streamsvm.types import Visit


def parts() -> Generator[int]:
    """Long in the making, as chunks are."""
    for number in count():
        threading.Event().wait(0.02)
        yield number


def on_lanes() -> None:
    with closing(parts()) as taken, closing(ThreadExecutor(3).map(Task("t", abs), taken)) as made:
        next(made)


def made_ahead() -> None:
    with closing(read_ahead(parts())) as made:
        next(made)


def parsed() -> None:
    with closing(parts()) as taken, closing(map_in_order(abs, taken)) as made:
        next(made)


def streamed() -> None:
    store = MemoryStore(chunk_bytes=1 << 12)
    store.append(Dense(np.zeros((8, 1), np.float32)), np.zeros(8, np.int32), None)
    store.commit(("a", "b"), 1)
    with closing(Visit(0, 0, 0, False, False) for _ in parts()) as visits, Stream(store, visits) as stream:
        next(iter(stream))


@pytest.mark.parametrize("step", ["start", "join"])
@pytest.mark.parametrize("job", [on_lanes, made_ahead, parsed, streamed])
def test_signal_leaves_no_thread_behind(job: Callable[[], None], step: str, monkeypatch: pytest.MonkeyPatch) -> None:
    known, real = set(threading.enumerate()), getattr(threading.Thread, step)
    to_come = [signal.SIGINT]

    def met(thread: threading.Thread, *arguments: float) -> None:
        """The signal comes in the middle of it, once: the second would not wait."""
        if threading.current_thread() is threading.main_thread() and to_come:
            signal.raise_signal(to_come.pop())
        real(thread, *arguments)

    monkeypatch.setattr(threading.Thread, step, met)
    with signals.allow_interrupt(), cores.use_threads(3), pytest.raises(InterruptedRun, match="SIGINT"):
        job()
    assert set(threading.enumerate()) <= known
    assert cores.CORES.borrow(99) == cores.CORES.count - 1
    cores.CORES.give_back(cores.CORES.count - 1)


def test_signal_what_is_being_compiled_is_compiled_before_a_signal_ends_the_job() -> None:
    """A function's code is handed over in a callback of C, where what is raised is lost, and the code with it."""
    made: list[int] = []

    @global_compiler_lock
    def compile_all() -> None:
        with global_compiler_lock:  # what it calls
            signal.raise_signal(signal.SIGINT)
        made.append(1)

    with signals.allow_interrupt(), pytest.raises(InterruptedRun, match="SIGINT"):
        compile_all()
    assert made == [1]
