"""Compressed input: the content, the hash of the file, and every way it can end early."""

from __future__ import annotations

import bz2
import gzip
import hashlib
import lzma
import os
from collections.abc import Callable
from pathlib import Path

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from streamsvm.errors import DataError, MissingError
from streamsvm.store.sources.byte_stream import Input, compression_of

PACK: dict[str, Callable[[bytes], bytes]] = {
    "": bytes,
    "gzip": gzip.compress,
    "bzip2": bz2.compress,
    "xz": lzma.compress,
    "zstd": zstandard.compress,
}


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("compressed")


def content_of(path: Path, size: int) -> bytes:
    with Input(path) as stream:
        pieces = list(iter(lambda: stream.read(size), b""))
        assert all(len(piece) == size for piece in pieces[:-1])
        assert stream.sha256 == hashlib.sha256(path.read_bytes()).hexdigest()
        assert stream.disk_position == stream.size
    return b"".join(pieces)


@pytest.mark.parametrize("name", PACK)
@given(
    st.binary(max_size=200).map(lambda b: b"12" + b * 500),
    st.sampled_from([1000, 4096, 1 << 20]),
    st.integers(1, 3),
)
def test_compressed_input_has_its_content(directory: Path, name: str, content: bytes, size: int, members: int) -> None:
    path = directory / f"{os.getpid()}"
    path.write_bytes(PACK[name](content) * members)
    assert content_of(path, size) == content * members
    with Input(path) as stream:
        assert stream.compression == name


@pytest.mark.parametrize("name", [n for n in PACK if n])
def test_compressed_input_every_cut_is_noticed(directory: Path, name: str) -> None:
    packed = PACK[name](os.urandom(300))
    path = directory / "cut"
    for length in range(len(packed) - 1, 6, -7):
        path.write_bytes(packed[:length])
        with pytest.raises(DataError) as caught:
            content_of(path, 4096)
        assert caught.value.code == "E-TRUNCATED"


@pytest.mark.parametrize("name", [n for n in PACK if n])
def test_compressed_input_no_flipped_byte_changes_the_content(directory: Path, name: str) -> None:
    content = os.urandom(500)
    packed = PACK[name](content)
    if name == "zstd":
        packed = zstandard.ZstdCompressor(write_checksum=True).compress(content)
    path = directory / "flipped"
    for at in range(6, len(packed), 13):
        damaged = bytearray(packed)
        damaged[at] ^= 0x10
        path.write_bytes(damaged)
        try:
            found = content_of(path, 4096)
        except DataError as error:
            assert error.code in ("E-CRC", "E-TRUNCATED", "E-LIMIT")
        else:
            assert found == content  # bytes that carry no data, such as gzip's time stamp


@pytest.mark.parametrize("name", [n for n in PACK if n])
def test_compressed_input_bytes_after_the_end(directory: Path, name: str) -> None:
    path = directory / "garbage"
    path.write_bytes(PACK[name](b"1 1:1\n") + b"garbage")
    with pytest.raises(DataError, match="after its") as caught:
        content_of(path, 4096)
    assert caught.value.code == "E-TRUNCATED"


@pytest.mark.parametrize("name", PACK)
def test_compressed_input_bomb_is_read_in_bounded_pieces(
    directory: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = directory / "bomb"
    path.write_bytes(PACK[name](bytes(64 << 20)))
    steps: list[bytes] = []
    with Input(path) as stream:
        original = stream.read_piece

        def step(limit: int) -> bytes:
            steps.append(original(limit))
            return steps[-1]

        monkeypatch.setattr(stream, "read_piece", step)
        stream.read(1 << 20)
    assert max(map(len, steps)) <= 16 << 20


def test_compressed_input_that_is_missing_is_named(directory: Path) -> None:
    with pytest.raises(MissingError):
        Input(directory / "none")


def test_compressed_input_compression_is_told_from_the_content() -> None:
    for name, pack in PACK.items():
        assert compression_of(pack(b"12")) == name
