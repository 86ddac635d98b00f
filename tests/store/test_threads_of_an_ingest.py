"""Threads of an ingest: blocks made side by side and handed on in their order, chunks written while the next one is collected."""

from __future__ import annotations

import hashlib
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from streamsvm.compute.threading import CORES, use_threads
from streamsvm.errors import DataError, StorageError
from streamsvm.rows import Dense, Rows
from streamsvm.store import create, open_store
from streamsvm.store.sources import SourceOptions, open_source
from streamsvm.store.sources.ahead import DigestBeside, in_order
from streamsvm.store.sources.input import digest_of
from streamsvm.store.write import chunker
from streamsvm.store.write.background import Background
from streamsvm.store.write.writer import StoreWriter
from streamsvm.store.zarr.store import ZarrMedium

ROWS = 64


def slow(number: int) -> tuple[int, str]:
    time.sleep(0.005)
    return number, threading.current_thread().name.partition("_")[0]


def test_who_takes_the_blocks_makes_some_of_them() -> None:
    for count in (2, 3):
        with use_threads(count):
            found = list(in_order(slow, range(40)))
        assert [item for item, _ in found] == [number for _, (number, _) in found] == list(range(40))
        assert len({name for _, (_, name) in found}) == 2  # this thread, and the others
        assert CORES.borrow(0) == 0


def test_what_goes_wrong_with_a_block_is_raised_in_its_place() -> None:
    for bad in range(12):

        def make(number: int, bad: int = bad) -> int:
            time.sleep(0.002)
            if number >= bad:
                raise ValueError(str(number))
            return number

        taken: list[int] = []
        with use_threads(2), pytest.raises(ValueError, match=f"^{bad}$"):
            taken.extend(made for _, made in in_order(make, range(12)))
        assert taken == list(range(bad))


@pytest.fixture
def writer(tmp_path: Path) -> StoreWriter:
    made = create(tmp_path / "s.zarr", sparse=False, chunk_bytes=4 * 2 * ROWS)
    made.background = Background()
    return made


def append(writer: StoreWriter, parts: int) -> None:
    for k in range(parts):
        writer.append(Dense(np.full((ROWS // 2, 2), k, np.float32)), np.arange(ROWS // 2, dtype=np.int32) % 2)


def watch(patch: pytest.MonkeyPatch, act: Callable[[], None]) -> list[threading.Thread]:
    """Call ``act`` whenever a chunk is written, and note by whom."""
    by, write = list[threading.Thread](), ZarrMedium.write

    def watched(self: ZarrMedium, values: Any) -> None:
        by.append(threading.current_thread())
        act()
        write(self, values)

    patch.setattr(ZarrMedium, "write", watched)
    return by


def test_a_chunk_is_written_while_the_next_one_is_collected(
    writer: StoreWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    collected = threading.Event()

    def wait() -> None:
        assert collected.wait(5), "nobody goes on"

    by = watch(monkeypatch, wait)
    append(writer, 3)  # one chunk, and a half
    collected.set()
    append(writer, 4)
    writer.commit(("a", "b"), 2, {})
    assert len(by) == 4
    assert threading.main_thread() not in by
    assert open_store(writer.root).layout.chunks == (ROWS, ROWS, ROWS, ROWS // 2)


def test_a_chunk_is_not_joined_before_the_one_before_is_written(
    writer: StoreWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Or there would be one more of them in memory than the plan counts."""
    under_way = threading.Event()

    def slowly() -> None:
        under_way.set()
        time.sleep(0.02)
        under_way.clear()

    watch(monkeypatch, slowly)
    joining, free = chunker.row_stack, list[bool]()

    def joined(parts: list[Rows]) -> Rows:
        free.append(not under_way.is_set())
        return joining(parts)

    monkeypatch.setattr(chunker, "row_stack", joined)
    append(writer, 12)
    writer.commit(("a", "b"), 2, {})
    assert free == [True] * 6


ENDS: dict[str, Callable[[StoreWriter], object]] = {
    "append": lambda writer: append(writer, 2),
    "commit": lambda writer: writer.commit(("a", "b"), 2, {}),
    "progress": lambda writer: writer.progress(),
}


@pytest.mark.parametrize("end", ENDS)
def test_what_goes_wrong_in_the_background_is_raised_by_the_next_call(
    writer: StoreWriter, end: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail() -> None:
        raise StorageError("the disk is gone")

    watch(monkeypatch, fail)
    append(writer, 2)
    with pytest.raises(StorageError, match="the disk is gone"):
        ENDS[end](writer)
    append(writer, 1)
    writer.abort()
    assert not writer.root.exists()


@pytest.mark.parametrize("count", [1, 2])
def test_a_digest_is_made_beside_where_there_is_a_second_thread(count: int, tmp_path: Path) -> None:
    (tmp_path / "rows").write_bytes(b"x" * 1_000_000)
    by = list[threading.Thread]()

    def make(path: Path, unwanted: threading.Event) -> str:
        by.append(threading.current_thread())
        return digest_of(path, unwanted)

    with use_threads(count), DigestBeside(tmp_path / "rows", make) as digest:
        assert digest.result() == hashlib.sha256(b"x" * 1_000_000).hexdigest()
    assert (by == [threading.main_thread()]) == (count == 1)


def test_nobody_goes_on_with_a_digest_that_is_not_wanted(tmp_path: Path) -> None:
    ended = threading.Event()

    def make(_: Path, unwanted: threading.Event) -> str:
        assert unwanted.wait(5)
        ended.set()
        return ""

    with use_threads(2), pytest.raises(StorageError), DigestBeside(tmp_path, make):
        raise StorageError("reading ends early")
    assert ended.wait(5)
    (tmp_path / "rows").write_bytes(b"x" * 1_000_000)
    assert digest_of(tmp_path / "rows", ended) == hashlib.sha256().hexdigest()  # not one piece was read


def test_who_holds_an_error_holds_no_thread(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"a": 1, "y": 0}\n{"a": null, "y": 1}\n')
    with use_threads(2):
        with pytest.raises(DataError) as caught:
            list(open_source((tmp_path / "a.jsonl",), SourceOptions(label="y")).batches())
        assert caught.value.code == "E-MISSING"
        assert CORES.borrow(1) == 1
        CORES.give_back(1)
