"""Reads past the page cache give the bytes that reads through it give, notice the same damage, and are refused quietly."""

from __future__ import annotations

import errno
import fcntl
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from streamsvm.errors import DataError
from streamsvm.jobs.common_options import SynthJob
from streamsvm.jobs.synth import synth
from streamsvm.store import disk_reads, open_store, read_chunk
from streamsvm.store.disk_reads import ALIGNED, read_bypassing_cache
from streamsvm.store.format.arrays import page_aligned
from tests.axes import each_value

CONTENT = np.random.default_rng(0).bytes(6 * ALIGNED + 77)


@pytest.fixture
def file(tmp_path: Path) -> Any:
    """A descriptor of a file on a disk that can be read past the cache."""
    path = tmp_path / "bytes"
    path.write_bytes(CONTENT)
    try:
        os.close(os.open(path, os.O_RDONLY | os.O_DIRECT))
    except OSError:
        pytest.skip("this file system has no way past the cache")
    descriptor = os.open(path, os.O_RDONLY)
    yield descriptor
    os.close(descriptor)


def aligned(nbytes: int) -> memoryview:
    return memoryview(page_aligned(nbytes))


@each_value(
    ("offset", [0, ALIGNED]), ("tail", [0, 4]), ("nbytes", [ALIGNED, ALIGNED + 1, 2 * ALIGNED - 2, 3 * ALIGNED + 5])
)
def test_direct_read_bytes_are_those_of_the_file(file: int, nbytes: int, tail: int, offset: int) -> None:
    into, rest = aligned(nbytes), bytearray(tail)
    assert read_bypassing_cache(file, into, rest, offset)
    assert bytes(into) + rest == CONTENT[offset : offset + nbytes + tail]
    assert not fcntl.fcntl(file, fcntl.F_GETFL) & os.O_DIRECT


def test_direct_read_to_the_end_of_the_file_and_not_beyond(file: int) -> None:
    into = aligned(len(CONTENT) - 4)
    assert read_bypassing_cache(file, into, bytearray(4), 0)
    assert not read_bypassing_cache(file, into, bytearray(5), 0)
    assert not read_bypassing_cache(file, aligned(8 * ALIGNED), bytearray(), 0)


def test_direct_read_file_system_may_refuse(file: int, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = fcntl.fcntl

    def refusing(descriptor: int, command: int, flags: int = 0) -> int:
        if command == fcntl.F_SETFL and flags & os.O_DIRECT:
            raise OSError(errno.EINVAL, "no")
        return plain(descriptor, command, flags)

    monkeypatch.setattr(fcntl, "fcntl", refusing)
    assert not read_bypassing_cache(file, aligned(ALIGNED), bytearray(), 0)


@pytest.mark.parametrize("name", ["s.zarr", "s.h5"])
def test_direct_read_store_that_is_to_leave_no_pages_is_read_past_the_cache(name: str, tmp_path: Path) -> None:
    store, took = _store(tmp_path / name), list[bool]()
    buffers = store.buffers()

    def counted(*given: Any) -> bool:
        took.append(read_bypassing_cache(*given))
        return took[-1]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(disk_reads, "read_bypassing_cache", counted)
        plain = read_chunk(store, 1, buffers).X.values.copy()
        assert not took
        store.forget(0)
        assert np.array_equal(read_chunk(store, 1, buffers).X.values, plain)
    assert len(took) == 1  # the rows; labels are few bytes


def test_direct_read_damage_is_noticed(tmp_path: Path) -> None:
    store = _store(tmp_path / "s.zarr")
    store.forget(0)
    buffers, draw = store.buffers(), np.random.default_rng(0)
    files = [path for path in sorted((tmp_path / "s.zarr" / "X").rglob("*")) if path.stat().st_size > ALIGNED]
    for _ in range(30):
        file = files[draw.integers(len(files))]
        raw = file.read_bytes()
        at = int(draw.choice([draw.integers(len(raw)), len(raw) - draw.integers(1, 9)]))
        file.write_bytes(raw[:at] + bytes([raw[at] ^ 4]) + raw[at + 1 :])
        found = _complaints(store, buffers)
        file.write_bytes(raw)
        assert len(found) == 1
    files[0].write_bytes(files[0].read_bytes()[:-1])
    assert len(_complaints(store, buffers)) == 1


def _store(path: Path) -> Any:
    synth(SynthJob("susy", str(path), rows=600, chunk_bytes=10_000))
    return open_store(path)


def _complaints(store: Any, buffers: Any) -> list[str]:
    found = []
    for chunk in range(len(store.layout.chunks)):
        try:
            read_chunk(store, chunk, buffers)
        except DataError as error:
            found.append(error.message)
    return found
