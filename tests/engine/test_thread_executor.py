"""Threads take parts as they are free; what comes of them is in order, bounded, and errors are told."""

from __future__ import annotations

import time
from collections.abc import Generator, Iterator

import numpy as np
import pytest

from streamsvm.compute import threading as cores
from streamsvm.engine.executor import (
    Executor,
    Joins,
    PartThreads,
    SerialExecutor,
    Task,
    ThreadExecutor,
    ignore_progress,
)
from streamsvm.errors import DataError
from streamsvm.rows import Dense
from streamsvm.schedule.stream import Stream
from streamsvm.store.views import MemoryStore
from streamsvm.types import Visit

THREADS = 3
PARTS = 40


@pytest.fixture(autouse=True)
def enough_cores() -> Iterator[None]:
    """As many threads as are asked for, on any machine."""
    with cores.use_threads(THREADS):
        yield


@pytest.fixture(params=["serial", "threads"])
def executor(request: pytest.FixtureRequest) -> Executor:
    return SerialExecutor() if request.param == "serial" else ThreadExecutor(THREADS)


def doubled(part: int) -> int:
    time.sleep(0.001 * (part % 3))
    return 2 * part


def test_thread_executor_results_are_in_the_order_of_the_parts(executor: Executor) -> None:
    done: list[int] = []
    found = list(executor.map(Task("t", doubled), iter(range(PARTS)), on_progress=done.append))
    assert found == [2 * part for part in range(PARTS)]
    assert done == sorted(done)
    assert done[-1] == PARTS


def test_thread_executor_last_result_that_comes_between_two_looks_is_not_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    """The last part may be finished after it was looked for, and before it is asked whether all are finished."""
    is_finished = PartThreads.is_finished.fget  # type: ignore[attr-defined]

    def later(threads: PartThreads) -> bool:
        time.sleep(0.05)  # long enough for all parts to be finished
        return bool(is_finished(threads))

    monkeypatch.setattr(PartThreads, "is_finished", property(later))
    assert list(ThreadExecutor(THREADS).map(Task("t", doubled), iter(range(2)))) == [0, 2]


@pytest.mark.parametrize("where", [0, 7, PARTS - 1])
def test_thread_executor_error_of_a_part_is_raised(executor: Executor, where: int) -> None:
    def fails(part: int) -> int:
        if part == where:
            raise DataError("no")
        return part

    with pytest.raises(DataError, match="no"):
        list(executor.map(Task("t", fails), range(PARTS)))
    with pytest.raises(DataError, match="no"):
        executor.reduce(Task("t", fails), range(PARTS), Joins(max), (), ignore_progress)


@pytest.mark.parametrize("way", ["map", "reduce", "closed"])
def test_thread_executor_no_part_is_begun_once_it_is_over(executor: Executor, way: str) -> None:
    """After an error, and where nobody takes what comes any more."""
    begun: list[int] = []

    def some(part: int) -> int:
        begun.append(part)
        time.sleep(0.002)
        if part == 1 and way != "closed":
            raise DataError("no")
        return part

    if way == "closed":
        found = iter(executor.map(Task("t", some), range(300)))
        assert next(found) == 0
        found.close()
    elif way == "map":
        with pytest.raises(DataError, match="no"):
            list(executor.map(Task("t", some), range(300)))
    else:
        with pytest.raises(DataError, match="no"):
            executor.reduce(Task("t", some), range(300), Joins(max), (), ignore_progress)
    assert len(begun) < 100


@pytest.mark.parametrize("where", [0, 7, PARTS])
def test_thread_executor_error_of_what_makes_the_parts_is_raised(executor: Executor, where: int) -> None:
    """Also where it comes after the last part: whoever has nothing to do must not take it for the end."""

    def parts() -> Iterator[int]:
        yield from range(where)
        raise DataError("cut short")

    with pytest.raises(DataError, match="cut short"):
        list(executor.map(Task("t", doubled), parts()))


def stored(chunks: int) -> MemoryStore:
    store = MemoryStore(chunk_bytes=1 << 12)
    for number in range(chunks):
        store.append(Dense(np.full((32, 32), number, np.float32)), np.zeros(32, np.int32), None)
    return store.commit(("a", "b"), 32)


@pytest.mark.timeout(60)
def test_thread_executor_who_reads_ahead_waits_for_nobody(executor: Executor) -> None:
    """A reader announces the part after the one it reads: that must not wait for those who are ahead."""
    store = stored(PARTS)
    assert len(store.layout.chunks) == PARTS

    def sums(parts: Iterator[int]) -> Generator[float]:
        visits = (Visit(0, part, 0, False, False) for part in parts)
        with Stream(store, visits, depth=2) as stream:
            for loaded in stream:
                assert isinstance(loaded.chunk.X, Dense)
                time.sleep(0.002 * (loaded.visit.chunk % THREADS))
                yield float(loaded.chunk.X.values.mean())

    task = Task("t", doubled, function_of_parts=sums)
    for number, found in enumerate(executor.map(task, range(PARTS))):
        time.sleep(0.002)
        assert found == number
