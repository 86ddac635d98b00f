"""Bytes that are not what was written: every change is found, with the name of the chunk and exit code 65."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from streamsvm.errors import DataError, StreamSVMError
from streamsvm.jobs.ingest.run import ingest
from streamsvm.jobs.inspect import verify
from streamsvm.store import hdf5 as hdf5_store
from streamsvm.store import open_store
from tests.axes import each_value
from tests.fault.golden import digest_of, fit_job, fitted, ingest_job, ingested, write_table
from tests.fault.killing import SMALL_PART

FLIPS = 100
"""Bits flipped in each store; the soak flips more."""
FORMATS = [("s.zarr", "dense"), ("s.zarr", "csr"), ("s.h5", "dense"), ("s.h5", "csr")]


@pytest.fixture(scope="module", params=FORMATS, ids=lambda p: f"{p[0][2:]}-{p[1]}")
def store(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("store")
    name, layout = request.param
    return ingested(directory, store=directory / name, layout=layout)


def payload(store: Path) -> list[Path]:
    """Every file of a store; the ``zarr.json`` among them are what other clients believe."""
    return [p for p in sorted(store.rglob("*")) if p.is_file()]


def complaints(store: Path) -> list[str]:
    """What ``verify`` says is wrong."""
    try:
        return [bad["message"] for bad in verify(store)["bad"]]
    except StreamSVMError as error:
        assert isinstance(error, DataError), error
        assert error.exit_code == 65
        return [error.message]


def bytes_changed(raw: bytes, draw: random.Random) -> Iterator[tuple[str, bytes]]:
    """The ways a file can be damaged in place."""
    yield "cut by one", raw[:-1]
    yield "cut in half", raw[: len(raw) // 2]
    yield "emptied", b""
    yield "extended", raw + bytes(8)
    start = draw.randrange(max(1, len(raw) - 64))
    yield "overwritten", raw[:start] + bytes(b ^ 0x55 for b in raw[start : start + 64]) + raw[start + 64 :]


def test_corruption_every_damaged_file_is_found(store: Path) -> None:
    draw = random.Random(1)
    for path in payload(store):
        raw = path.read_bytes()
        for what, changed in bytes_changed(raw, draw):
            if changed == raw:
                continue
            path.write_bytes(changed)
            assert complaints(store), f"{path.name} {what}"
        path.unlink()
        assert complaints(store), f"{path.name} is missing"
        path.write_bytes(raw)
    assert complaints(store) == []


def test_corruption_every_flipped_bit_is_found(store: Path) -> None:
    draw, files = random.Random(2), payload(store)
    for trial in range(FLIPS):
        path = draw.choice(files)
        raw = bytearray(path.read_bytes())
        bit = draw.randrange(8 * len(raw))
        raw[bit // 8] ^= 1 << bit % 8
        good, _ = path.read_bytes(), path.write_bytes(raw)
        assert complaints(store), f"trial {trial}: bit {bit} of {path.name}"
        path.write_bytes(good)


def chunks(store: Path) -> list[Path]:
    return sorted(store.rglob("c.*")) or sorted(store.glob("part-*"))


@pytest.fixture
def zarr(tmp_path: Path) -> Path:
    return ingested(tmp_path)


def test_corruption_swapped_chunks_are_found_and_named(zarr: Path) -> None:
    one, two = zarr / "X" / "c.0.0", zarr / "X" / "c.2.0"
    first, second = one.read_bytes(), two.read_bytes()
    one.write_bytes(second)
    two.write_bytes(first)
    found = complaints(zarr)
    assert len(found) == 2
    assert "chunk 0 of store" in found[0]
    assert "chunk 2 of store" in found[1]


def test_corruption_chunk_of_another_store_is_found(zarr: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    (other / "t.csv").write_text((tmp_path / "t.csv").read_text().replace("\n3,", "\n3.5,"))
    foreign = ingested(other)
    shutil.copy(foreign / "X" / "c.0.0", zarr / "X" / "c.0.0")
    assert "chunk 0 of store" in complaints(zarr)[0]


def test_corruption_labels_of_another_chunk_are_found(zarr: Path) -> None:
    """Accuracy would not show it: a chunk's labels beside another chunk's rows."""
    shutil.copy(zarr / "y" / "c.1", zarr / "y" / "c.0")
    assert "chunk 0 of store" in complaints(zarr)[0]


def test_corruption_verify_lists_all_bad_chunks(zarr: Path) -> None:
    for index in (0, 2, 3):
        path = zarr / "X" / f"c.{index}.0"
        path.write_bytes(path.read_bytes()[:-9] + bytes(9))
    (zarr / "y" / "c.1").unlink()
    assert [bad["chunk"] for bad in verify(zarr)["bad"]] == [0, 1, 2, 3]


def test_corruption_links_are_not_followed(zarr: Path, tmp_path: Path) -> None:
    path = zarr / "X" / "c.1.0"
    path.rename(tmp_path / "elsewhere")
    path.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(StreamSVMError):
        fitted(fit_job(zarr, tmp_path / "m"))


DAMAGES: dict[str, Callable[[Path], object]] = {
    "missing": Path.unlink,
    "flipped": lambda path: path.write_bytes(bytes([path.read_bytes()[0] ^ 1]) + path.read_bytes()[1:]),
    "cut": lambda path: path.write_bytes(path.read_bytes()[:10]),
}


@each_value(("layout", ["dense", "csr"]), ("damage", DAMAGES))
def test_corruption_repair_writes_what_is_damaged_and_nothing_else(tmp_path: Path, damage: str, layout: str) -> None:
    store = ingested(tmp_path, layout=layout)
    expected = digest_of(store)
    for path in chunks(store)[1::3]:
        DAMAGES[damage](path)
    before = {p: p.stat().st_mtime_ns for p in chunks(store)[::3]}
    assert complaints(store)
    ingest(ingest_job(tmp_path, layout=layout, repair=True))
    assert complaints(store) == []
    assert digest_of(store) == expected
    assert {p: p.stat().st_mtime_ns for p in before} == before


@each_value(("layout", ["dense", "csr"]), ("damage", DAMAGES))
def test_corruption_repair_rewrites_damaged_hdf5_parts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, damage: str, layout: str
) -> None:
    monkeypatch.setattr(hdf5_store, "PART_BYTES", SMALL_PART)
    store = ingested(tmp_path, store=tmp_path / "s.h5", layout=layout)
    expected, parts = digest_of(store), sorted(store.glob("part-*.h5"))
    before = {p: p.stat().st_mtime_ns for p in parts if p != parts[1]}
    assert before
    DAMAGES[damage](parts[1])
    with pytest.raises(DataError):
        open_store(store)
    ingest(ingest_job(tmp_path, store=store, layout=layout, repair=True))
    assert digest_of(store) == expected
    assert {p: p.stat().st_mtime_ns for p in before} == before


def test_corruption_repair_refuses_rows_that_differ(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing that is whole is replaced before it is known that the rows are the same."""
    monkeypatch.setattr(hdf5_store, "PART_BYTES", SMALL_PART)
    store = ingested(tmp_path, store=tmp_path / "s.h5")
    parts = sorted(store.glob("part-*.h5"))
    parts[-1].unlink()
    before = digest_of(store)
    with pytest.raises(DataError, match="does not give chunk 0"):
        ingest(ingest_job(tmp_path, store=store, repair=True, drop=("x3",)))
    assert digest_of(store) == before


def test_corruption_repair_mends_what_other_programs_read(tmp_path: Path) -> None:
    store = ingested(tmp_path, layout="csr")
    expected = digest_of(store)
    for path in sorted(store.rglob("zarr.json")):
        path.write_bytes(path.read_bytes().replace(b"3", b"2"))
    assert [str(p) in text for p, text in zip(sorted(store.rglob("zarr.json")), sorted(complaints(store)), strict=True)]
    ingest(ingest_job(tmp_path, layout="csr", repair=True))
    assert digest_of(store) == expected


def test_corruption_repair_from_another_source_is_refused(tmp_path: Path) -> None:
    store = ingested(tmp_path)
    (store / "X" / "c.1.0").unlink()
    write_table(tmp_path, rows=601)
    with pytest.raises(DataError, match="is not what the store was made from") as caught:
        ingest(ingest_job(tmp_path, repair=True))
    assert caught.value.code == "E-SOURCE"
    assert complaints(store)
