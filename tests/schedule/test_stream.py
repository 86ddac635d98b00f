"""The reader thread and its ring: what is delivered never depends on how far ahead it reads, and nothing hangs."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, ClassVar

import numpy as np
import pytest

from streamsvm.compute.random import permutation
from streamsvm.errors import DataError, StorageError
from streamsvm.rows import Dense
from streamsvm.schedule import stream as streams
from streamsvm.schedule.stream import LoadedChunk, Stream, iterate_visits
from streamsvm.types import Chunk, Layout, Statistics
from tests.axes import each_value

ROWS = (5, 3, 7, 7, 1, 6)
DEPTHS = (0, 1, 3)


@dataclass
class Ring:
    """A store with real buffers, so that what is overwritten too soon is seen; it writes down what it is asked."""

    before: Callable[[str, int], None] = lambda what, chunk: None
    asked: list[tuple[str, int]] = field(default_factory=list)
    name: str = "ring"
    facts: ClassVar[dict[str, Any]] = {}
    selection: ClassVar[None] = None
    digest: str = ""
    layout: Layout = field(default_factory=lambda: Layout(2, ROWS, None, ("-1", "1"), (sum(ROWS), 0)))

    def buffers(self) -> Any:
        return np.full((max(ROWS), 2), np.nan, np.float32)

    def fetch(self, chunk: int, into: Any) -> None:
        self.asked.append(("fetch", chunk))
        self.before("fetch", chunk)
        into[:] = np.nan
        into[: ROWS[chunk]] = values_of(chunk)

    def check(self, chunk: int, into: Any) -> Chunk:
        self.before("check", chunk)
        return Chunk(Dense(into[: ROWS[chunk]]), np.full(ROWS[chunk], chunk, np.int32), None)

    def expect(self, chunk: int) -> None:
        self.asked.append(("expect", chunk))

    def forget(self, chunk: int) -> None:
        self.asked.append(("forget", chunk))

    def statistics(self) -> Statistics:
        raise NotImplementedError

    def all_asked(self, what: str) -> list[int]:
        return [chunk for kind, chunk in self.asked if kind == what]


def values_of(chunk: int) -> Any:
    return 100.0 * chunk + np.arange(2 * ROWS[chunk]).reshape(-1, 2)


def open_stream(store: Ring, *, depth: int, epochs: int | None = 3, shuffled: bool = True, **more: Any) -> Stream:
    """A stream over so many epochs; None: without end."""
    order = iterate_visits(store.layout, 7, shuffled)
    return Stream(store, order if epochs is None else islice(order, epochs * len(ROWS)), depth=depth, **more)


def copied(loaded: LoadedChunk) -> tuple[Any, ...]:
    return loaded.visit, loaded.chunk.X.values.tobytes(), loaded.chunk.codes.tolist(), loaded.order.tolist()


def threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "streamsvm-reader"]


@pytest.fixture(autouse=True)
def _no_thread_is_left() -> Iterator[None]:
    assert not threads()
    yield
    assert not threads()


# -- what is delivered ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("depth", DEPTHS)
@pytest.mark.parametrize("pause", [0.0, 0.003])
def test_stream_depth_changes_neither_visits_nor_bits(depth: int, pause: float) -> None:
    """``pause``: with a slow consumer one reader does it all, with a fast one two share the visits."""
    with open_stream(Ring(), depth=0) as stream:
        expected = [copied(loaded) for loaded in stream]
    found = []
    with open_stream(Ring(), depth=depth) as stream:
        for loaded in stream:
            time.sleep(pause)
            found.append(copied(loaded))  # after the pause: the block must still be the one handed out
    assert found == expected
    assert len(found) == 3 * len(ROWS)


@pytest.mark.parametrize("depth", DEPTHS)
def test_stream_block_is_the_chunk_of_its_visit_in_the_permutation_of_the_visit(depth: int) -> None:
    with open_stream(Ring(), depth=depth) as stream:
        for loaded in stream:
            number = loaded.visit.chunk
            np.testing.assert_array_equal(loaded.chunk.X.values, values_of(number))
            assert set(loaded.chunk.codes) == {number}
            expected = np.empty(ROWS[number], np.int32)
            permutation(expected, loaded.visit.seed)
            np.testing.assert_array_equal(loaded.order, expected)
            assert sorted(loaded.order) == list(range(ROWS[number]))
            assert loaded.order.dtype == np.int32


@pytest.mark.parametrize("depth", DEPTHS)
def test_stream_unshuffled_rows_come_as_they_lie_and_no_visit_can_rearrange_them(depth: int) -> None:
    with open_stream(Ring(), depth=depth, shuffled=False) as stream:
        for loaded in stream:
            assert loaded.order.tolist() == list(range(ROWS[loaded.visit.chunk]))
            with pytest.raises(ValueError, match="read-only"):
                loaded.order[:] = -1  # one order is shared by all blocks


@pytest.mark.parametrize("depth", DEPTHS)
def test_stream_epoch_ends_with_its_last_visit(depth: int) -> None:
    with open_stream(Ring(), depth=depth, epochs=None) as stream:
        for number in range(3):
            found = [loaded.visit for loaded in stream.epoch()]
            assert sorted(visit.chunk for visit in found) == list(range(len(ROWS)))
            assert {visit.epoch for visit in found} == {number}


def settled(condition: Callable[[], bool]) -> None:
    """Wait until the other thread has come to rest."""
    while not condition():  # what goes wrong here hangs: the time limit of tests ends it
        time.sleep(0.002)


@pytest.mark.parametrize("depth", DEPTHS)
def test_stream_no_more_than_depth_blocks_are_read_ahead(depth: int) -> None:
    store = Ring()
    with open_stream(store, depth=depth, epochs=None) as stream:
        for taken, _ in enumerate(islice(stream, 12), start=1):
            time.sleep(0.002)
            assert len(store.all_asked("fetch")) <= taken + depth
        settled(lambda: len(store.all_asked("fetch")) >= 12)


# -- hints to the kernel ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("depth", DEPTHS)
def test_stream_pages_are_dropped_only_where_they_cannot_be_retained(depth: int) -> None:
    for retain in (True, False):
        store = Ring()
        with open_stream(store, depth=depth, epochs=1, retain=retain) as stream:
            for _ in stream:
                pass
        assert sorted(store.all_asked("forget")) == ([] if retain else list(range(len(ROWS))))


@pytest.mark.parametrize("depth", [1, 2, 3, 4])
def test_stream_consumer_that_only_waits_is_served_by_as_many_readers_as_there_are_blocks_ahead(depth: int) -> None:
    """So many reads at once while nothing is computed; the order of what is delivered is that of the visits."""
    all_of_them, met = threading.Barrier(depth), threading.Semaphore(depth)

    def meet(kind: str, chunk: int) -> None:
        if kind == "fetch" and met.acquire(blocking=False):
            all_of_them.wait(120.0)

    with open_stream(Ring(meet), depth=depth, epochs=2) as stream:
        found = [loaded.visit for loaded in stream]
        assert len(stream.readers) == depth
    assert found == list(islice(iterate_visits(Ring().layout, 7, True), 2 * len(ROWS)))


# -- what goes wrong --------------------------------------------------------------------------------------------------


@each_value(("depth", DEPTHS), ("what, visit, pause", [("fetch", 0, 0.0), ("check", 4, 0.0), ("fetch", 9, 0.003)]))
def test_stream_error_of_the_store_reaches_the_consumer(depth: int, what: str, visit: int, pause: float) -> None:
    """At its place in the order, with its own text; what was read before it is delivered."""
    order = [v.chunk for v in islice(iterate_visits(Ring().layout, 7, True), 20)]
    times = iter(range(20))  # of this chunk, which may be read before or beside another

    def fail(kind: str, chunk: int) -> None:
        if kind == what and chunk == order[visit] and next(times) == order[:visit].count(chunk):
            raise DataError(f"chunk {chunk} is not what it was", code="E-CRC")

    seen: list[int] = []

    def consume() -> None:
        with open_stream(Ring(fail), depth=depth, epochs=None, max_idle_seconds=120.0) as stream:
            for loaded in stream:
                time.sleep(pause)
                seen.append(loaded.visit.chunk)

    with pytest.raises(DataError, match=f"chunk {order[visit]} is not what it was"):
        consume()
    assert seen == order[:visit]


@pytest.mark.parametrize("depth", DEPTHS)
def test_stream_error_in_the_order_itself_reaches_the_consumer(depth: int) -> None:
    def order() -> Iterator[Any]:
        yield from islice(iterate_visits(Ring().layout, 7, True), 2)
        raise RuntimeError("no more plan")

    with pytest.raises(RuntimeError, match="no more plan"), Stream(Ring(), order(), depth=depth) as stream:
        list(stream)


@pytest.mark.parametrize("depth", DEPTHS)
def test_stream_error_of_the_consumer_ends_the_reader(depth: int) -> None:
    def consume() -> None:
        with open_stream(Ring(), depth=depth, epochs=None) as stream:
            for _ in stream:
                raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        consume()


@pytest.mark.parametrize("depth", DEPTHS)
def test_a_stream_nobody_reads_from_can_be_left(depth: int) -> None:
    with open_stream(Ring(), depth=depth, epochs=None):
        pass


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "POLL_SECONDS", 0.02)


def test_stream_reader_that_died_is_an_error_at_once(impatient: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threading.Thread, "run", lambda thread: None)
    with (
        pytest.raises(StorageError, match="the reader of 'ring' delivered nothing"),
        open_stream(Ring(), depth=2, max_idle_seconds=1000.0) as stream,
    ):
        next(iter(stream))


def test_stream_read_that_never_returns_is_an_error_after_the_deadline(impatient: None) -> None:
    release, daemons = threading.Event(), []

    def stuck(kind: str, chunk: int) -> None:
        daemons.append(threading.current_thread().daemon)
        if kind == "fetch":
            release.wait(200.0)

    with (
        pytest.raises(StorageError, match="delivered nothing") as caught,
        open_stream(Ring(stuck), depth=2, max_idle_seconds=0.1) as stream,
    ):
        next(iter(stream))
    assert all(daemons)  # the process can end without them
    assert caught.value.exit_code == 74
    release.set()
    settled(lambda: not threads())


def test_stream_reader_that_works_is_waited_for_however_long_it_takes(impatient: None) -> None:
    """On a busy machine, or a slow disk: twenty times the seconds that one may do nothing for."""

    def slow(kind: str, chunk: int) -> None:
        until = time.perf_counter() + (2.0 if (kind, chunk) == ("fetch", first) else 0.0)
        while time.perf_counter() < until:
            pass

    first = next(iterate_visits(Ring().layout, 7, True)).chunk
    with open_stream(Ring(slow), depth=1, epochs=1, max_idle_seconds=0.1) as stream:
        assert len(list(stream)) == len(ROWS)


def test_stream_what_a_reader_left_when_it_ended_is_delivered(impatient: None) -> None:
    """A reader that puts its last block down and ends, between a look at the queue and a look at the thread."""
    with open_stream(Ring(), depth=1, epochs=1) as stream:
        for _ in range(len(ROWS) - 1):
            next(iter(stream))
        (ended,), taken, looks = stream.readers, stream.filled, 0
        settled(lambda: not ended.is_alive())

        class Reader:
            """Seen alive until the queue has been looked into twice, in vain."""

            native_id = None

            def is_alive(self) -> bool:
                return looks < 2

            def join(self, timeout: float) -> None:
                ended.join(timeout)

        class Taken:
            def get(self, timeout: float = 0.0) -> Any:
                nonlocal looks
                looks += 1
                if looks <= 2:
                    raise queue.Empty
                return taken.get(timeout=timeout)

            get_nowait = get

        stream.readers, stream.filled = [Reader()], Taken()  # type: ignore[assignment, list-item]
        assert next(iter(stream)).visit.last


def test_stream_waiting_is_counted_and_reading_ahead_is_not() -> None:
    def slow(kind: str, chunk: int) -> None:
        if kind == "fetch":
            time.sleep(0.005)

    with open_stream(Ring(slow), depth=2, epochs=1) as stream:
        for _ in stream:
            pass
        assert stream.seconds_waited > 0.0
    with open_stream(Ring(), depth=0, epochs=1) as stream:
        for _ in stream:
            pass
        assert stream.seconds_waited == 0.0
