"""Threads of an ingest: blocks made side by side and handed on in their order, chunks written while the next one is collected."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from streamsvm.compute.threading import use_threads
from streamsvm.errors import StorageError
from streamsvm.rows import Dense
from streamsvm.store import create
from streamsvm.store.sources.read_ahead import map_in_order
from streamsvm.store.write.writer import Background, StoreWriter
from streamsvm.store.zarr import ZarrBackend

ROWS = 64


def test_ingest_threads_what_goes_wrong_with_a_block_is_raised_in_its_place() -> None:
    for bad in range(12):

        def make(number: int, bad: int = bad) -> int:
            time.sleep(0.002)
            if number >= bad:
                raise ValueError(str(number))
            return number

        taken: list[int] = []
        with use_threads(2), pytest.raises(ValueError, match=f"^{bad}$"):
            taken.extend(made for _, made in map_in_order(make, range(12)))
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
    by, write = list[threading.Thread](), ZarrBackend.write

    def watched(self: ZarrBackend, values: Any) -> None:
        by.append(threading.current_thread())
        act()
        write(self, values)

    patch.setattr(ZarrBackend, "write", watched)
    return by


ENDS: dict[str, Callable[[StoreWriter], object]] = {
    "append": lambda writer: append(writer, 2),
    "commit": lambda writer: writer.commit(("a", "b"), 2, {}),
    "progress": lambda writer: writer.progress(),
}


@pytest.mark.parametrize("end", ENDS)
def test_ingest_threads_what_goes_wrong_in_the_background_is_raised_by_the_next_call(
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
