"""Disks that fail, answer late or half, and readers that die: the run ends soon, says where, and can be gone on with."""

from __future__ import annotations

import errno
import json
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import zarr

from streamsvm.engine import checkpoint
from streamsvm.errors import DataError, StorageError
from streamsvm.jobs.fit import driver as fitting
from streamsvm.jobs.fit.driver import fit
from streamsvm.jobs.ingest.run import ingest
from streamsvm.schedule.stream import Stream, epoch_visits
from streamsvm.store import disk_reads as retry
from streamsvm.store import open_store
from streamsvm.types import Store
from tests.axes import each_value
from tests.fault import test_alignment as alignment
from tests.fault.golden import fit_job, fitted, ingest_job, ingested, placed, write_table
from tests.fault.test_alignment import values
from tests.fault.test_process import environment
from tests.fault.test_resume import same_model


class Faulty:
    """A store that does something before it fetches a chunk."""

    def __init__(self, store: Any, fault: Callable[[int], object]) -> None:
        self._store, self._fault = store, fault

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def fetch(self, chunk: int, into: Any) -> None:
        self._fault(chunk)
        self._store.fetch(chunk, into)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return ingested(tmp_path_factory.mktemp("store"))


@pytest.fixture
def failing(monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[int]]:
    """Make reads fail: from the n-th on, so many times, with an error number."""
    monkeypatch.setattr(retry, "PAUSES", [0.0, 0.0, 0.0])

    def arrange(first: int, times: int, number: int = errno.EIO) -> list[int]:
        calls: list[int] = []
        read = os.preadv

        def preadv(descriptor: int, views: list[Any], offset: int) -> int:
            calls.append(offset)
            if first <= len(calls) < first + times:
                raise OSError(number, os.strerror(number))
            return read(descriptor, views, offset)

        monkeypatch.setattr(os, "preadv", preadv)
        return calls

    return arrange


@each_value(("first", [1, 2, 9]), ("times", [1, 3]), ("number", [errno.EIO, errno.ESTALE]))
def test_reading_read_that_fails_for_a_moment_is_made_again(
    store: Path, tmp_path: Path, failing: Any, monkeypatch: pytest.MonkeyPatch, first: int, times: int, number: int
) -> None:
    placed(monkeypatch)
    reference = fitted(fit_job(store, tmp_path / "whole"))
    failing(first, times, number)
    assert same_model(fitted(fit_job(store, tmp_path / "m")), reference)
    told = json.loads((tmp_path / "m.run" / "certificate.json").read_text())
    assert told["reads_repeated"] == times


@each_value(("number", [errno.EIO, errno.ESTALE, errno.EACCES]), ("first", [1, 4, 17]))
def test_reading_read_that_keeps_failing_ends_the_run(
    store: Path, tmp_path: Path, failing: Any, monkeypatch: pytest.MonkeyPatch, first: int, number: int
) -> None:
    placed(monkeypatch)
    failing(first, 10**6, number)
    said = r"reading .*c\.\d.* failed" + (": " if number == errno.EACCES else " after 4 tries: ")
    with pytest.raises(StorageError, match=said) as caught:
        fit(fit_job(store, tmp_path / "m"))
    assert caught.value.exit_code == 74
    assert not [t for t in threading.enumerate() if t.name == "streamsvm-reader" and t.is_alive()]


def test_reading_file_that_was_replaced_while_its_handle_was_stale_is_noticed(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file that is opened instead of the stale one is believed no more than the first."""
    copy = shutil.copytree(store, tmp_path / "s.zarr")
    monkeypatch.setattr(retry, "PAUSES", [0.0, 0.0, 0.0])
    read = os.preadv
    failed: list[Path] = []

    def stale(descriptor: int, views: list[Any], offset: int) -> int:
        if not failed:
            failed.append(path := Path(os.readlink(f"/proc/self/fd/{descriptor}")))
            path.write_bytes(path.read_bytes()[:-1] + b"?")
            raise OSError(errno.ESTALE, os.strerror(errno.ESTALE))
        return read(descriptor, views, offset)

    monkeypatch.setattr(os, "preadv", stale)
    with pytest.raises(DataError, match="crc32c"):
        fit(fit_job(copy, tmp_path / "m"))
    assert len(failed) == 1


@pytest.mark.parametrize("limit", [1, 7, 100])
def test_reading_short_reads_are_finished(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: int
) -> None:
    reference = fitted(fit_job(store, tmp_path / "whole", max_passes=1))
    read = os.preadv

    def short(descriptor: int, views: list[Any], offset: int) -> int:
        return read(descriptor, [memoryview(views[0])[:limit]], offset)

    monkeypatch.setattr(os, "preadv", short)
    assert same_model(fitted(fit_job(store, tmp_path / "m", max_passes=1)), reference)


@each_value(("depth", [0, 1, 2]), ("chunk", [1, -1, 0]))
def test_reading_dying_reader_is_noticed(store: Path, chunk: int, depth: int) -> None:
    """Whatever is raised in the reader's thread is raised where the blocks are used."""
    opened = open_store(store)
    at = chunk % len(opened.layout.chunks)

    def fault(number: int) -> None:
        if number == at:
            raise MemoryError("out of luck")

    faulty: Store = Faulty(opened, fault)
    visits = epoch_visits(opened.layout, 0, 0, shuffled=False)
    met = []
    with pytest.raises(MemoryError), Stream(faulty, visits, depth=depth) as stream:
        met += [loaded.visit.chunk for loaded in stream]
    assert len(met) <= at
    assert not [t for t in threading.enumerate() if t.name == "streamsvm-reader" and t.is_alive()]


def test_reading_reader_that_hangs_is_not_waited_for(store: Path) -> None:
    opened, release = open_store(store), threading.Event()
    faulty: Store = Faulty(opened, lambda _: release.wait(200) and None)
    visits = epoch_visits(opened.layout, 0, 0, shuffled=False)
    with pytest.raises(StorageError, match="delivered nothing"), Stream(faulty, visits, max_idle_seconds=0.2) as stream:
        next(iter(stream))
    release.set()


def test_reading_checkpoint_before_a_fault_is_good(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failing: Any
) -> None:
    placed(monkeypatch, resident=False)
    monkeypatch.setattr(checkpoint, "PAUSE_FACTOR", 0)
    job = fit_job(store, tmp_path / "m", checkpoint_every=1e-9)
    reference = fitted(replace(job, model=str(tmp_path / "whole")))
    with monkeypatch.context():
        calls = failing(25, 10**6)
        with pytest.raises(StorageError):
            fit(job)
    assert len(calls) >= 25
    monkeypatch.undo()
    placed(monkeypatch, resident=False)
    assert same_model(fitted(replace(job, resume=True)), reference)


def replaced(store: Path, source: Path) -> None:
    ingest(ingest_job(source, store=store, overwrite=True))


@pytest.mark.parametrize("cached", [False, True], ids=["read", "cached"])
def test_reading_store_that_is_replaced_ends_the_fit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cached: bool
) -> None:
    placed(monkeypatch, cached=cached)
    store, other = ingested(tmp_path), tmp_path / "other"
    other.mkdir()
    write_table(other, rows=600, columns=7)
    seen = 0

    def report(event: dict[str, Any]) -> None:
        nonlocal seen
        seen += event["event"] == "pass"
        if event["event"] == "pass" and seen == 1:
            replaced(store, other)

    with pytest.raises(DataError) as caught:
        fitting.fit(fit_job(store, tmp_path / "m"), report)
    assert caught.value.code == "E-CHANGED"
    assert seen == 1


@pytest.mark.parametrize("harm", ["removed", "cut"])
def test_reading_chunk_that_goes_while_it_is_needed_ends_the_fit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, harm: str
) -> None:
    placed(monkeypatch)
    store, unit = ingested(tmp_path), tmp_path / "s.zarr" / "X" / "c.3.0"

    def report(event: dict[str, Any]) -> None:
        if event["event"] == "pass" and unit.exists():
            unit.unlink() if harm == "removed" else os.truncate(unit, 100)

    with pytest.raises(DataError, match=r"chunk 3 of store .* (is missing|has 100 bytes)") as caught:
        fitting.fit(fit_job(store, tmp_path / "m"), report)
    assert (caught.value.code, caught.value.exit_code) == ("E-CHUNKS", 65)


def test_reading_same_store_made_again_is_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    placed(monkeypatch)
    store = ingested(tmp_path)

    def report(event: dict[str, Any]) -> None:
        if event["event"] == "pass":
            replaced(store, tmp_path)

    fitting.fit(fit_job(store, tmp_path / "m"), report)


# -- reading ahead -----------------------------------------------------------------------------------------------------

SLOW_READS = """
import time
from streamsvm.store.sources.byte_stream import Input
read = Input.read
def slowly(self, size=-1):
    found = read(self, size)
    if self.position > 2_000_000:
        time.sleep(0.3)  # longer than the program takes to end: what reads ahead is inside of this call then
    return found
Input.read = slowly
from streamsvm.__main__ import main
main()
"""


def test_reading_ahead_no_thread_calls_python_when_the_program_ends(tmp_path: Path) -> None:
    """With pyarrow reading the file in its own threads every other run of this was aborted (SIGABRT)."""
    rows = "".join(f"{k},{'' if k == 90_000 else 1.5},{k % 2}\n" for k in range(300_000))
    (tmp_path / "t.csv").write_text("a,b,y\n" + rows)
    command = [sys.executable, "-c", SLOW_READS, "-q", "ingest", "t.csv", "s.zarr", "--label", "y"]
    for _ in range(2):
        done = subprocess.run(command, cwd=tmp_path, env=environment(), capture_output=True, text=True, check=False)
        assert (done.returncode, done.stderr.partition(":")[0]) == (65, "error[E-MISSING]")


# -- sources on failing disks ------------------------------------------------------------------------------------------

HERE = Path(__file__).resolve().parent


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if not sys.platform.startswith("linux") or shutil.which("cc") is None:
        pytest.skip("needs Linux and a C compiler")
    made = tmp_path_factory.mktemp("library") / "failing_reads.so"
    command = ["cc", "-shared", "-fPIC", "-o", str(made), str(HERE / "failing_reads.c"), "-ldl"]
    subprocess.run(command, check=True, capture_output=True)
    return made


def hdf5(directory: Path) -> tuple[list[Path], dict[str, Any]]:
    X, y = values()
    with h5py.File(directory / "t.h5", "w") as file:
        file.create_dataset("X", data=X, chunks=(100, X.shape[1]))
        file["y"] = y
    return [directory / "t.h5"], {}


def zarr_group(directory: Path) -> tuple[list[Path], dict[str, Any]]:
    X, y = values()
    group = zarr.open_group(directory / "t.zarr", mode="w")
    group.create_array("X", data=X, chunks=(100, X.shape[1]))
    group.create_array("y", data=np.asarray(y))
    return [directory / "t.zarr"], {}


TRIALS = [(alignment.csv, 2), (alignment.parquet, 4), (alignment.svmlight, 2), (alignment.npy, 6), (hdf5, 6)]


TRIALS += [(hdf5, 12), (zarr_group, 12)]


@pytest.mark.parametrize(("source", "at"), TRIALS, ids=lambda value: getattr(value, "__name__", value))
def test_reading_source_on_a_failing_disk_ends_with_74_and_its_name(
    library: Path, tmp_path: Path, source: Any, at: int
) -> None:
    paths, options = source(tmp_path)
    command = [sys.executable, "-m", "streamsvm", "-q", "ingest", *map(str, paths), str(tmp_path / "s.zarr")]
    command += [str(word) for name, value in options.items() for word in (f"--{name}", value)]
    failing = {"LD_PRELOAD": str(library), "FAIL_PATH": paths[0].name, "FAIL_AT": str(at)}
    environment = {**os.environ, "PYTHONPATH": str(HERE.parents[1]), **failing}
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == 74, ended.stderr
    assert "error[E-IO]" in ended.stderr
    assert paths[0].name in ended.stderr
    assert "nput/output error" in ended.stderr
    assert "Traceback" not in ended.stderr
    assert "\n," not in ended.stderr
    assert not (tmp_path / "s.zarr" / "manifest.json").exists()
