"""Pipes, devices and files of gigabytes where a small regular file should be, and manifests that lie: refused at once, and nothing is read."""

from __future__ import annotations

import os
import random
import shutil
import signal
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from streamsvm.config.job_files import read_job_file
from streamsvm.display.read_record import read_run
from streamsvm.errors import BudgetError, DataError, MissingError, StreamSVMError, UsageError
from streamsvm.jobs.apply.options import PredictJob
from streamsvm.jobs.apply.predict import predict
from streamsvm.jobs.fit.driver import fit
from streamsvm.jobs.fit.options import FitJob
from streamsvm.jobs.ingest.options import IngestJob
from streamsvm.jobs.ingest.run import ingest
from streamsvm.jobs.inspect import info, verify
from streamsvm.jobs.tune.options import TuneJob
from streamsvm.jobs.tune.run import tune
from streamsvm.store import open_store
from streamsvm.store.format import manifest as manifests
from tests.axes import each_value
from tests.fault.golden import fit_job, ingest_job, ingested
from tools.fuzz.structures import TARGETS, outcome, small_store

SECONDS = 20
"""Far more than any of it takes: an answer comes, or it never does."""


def pipe(path: Path) -> None:
    """Opening it waits for somebody who writes."""
    path.unlink()
    os.mkfifo(path)


def endless(path: Path) -> None:
    """A link to a device that has no end."""
    path.unlink()
    path.symlink_to("/dev/zero")


def sparse(path: Path) -> None:
    """Six GiB that take no room on the disk."""
    with open(path, "r+b") as file:
        file.truncate(6 << 30)


ODD: dict[str, Callable[[Path], None]] = {"pipe": pipe, "endless": endless, "sparse": sparse}


USES: dict[str, Callable[[Path, Path], Any]] = {
    "info": lambda store, _: info(store, columns=True),
    "verify": lambda store, _: verify(store)["bad"],
    "fit": lambda store, place: fit(fit_job(store, place / "m", standardize=True)),
}


@pytest.fixture(autouse=True)
def deadline() -> Iterator[None]:
    def too_late(*_: object) -> None:
        raise AssertionError("waited for ever")

    before = signal.signal(signal.SIGALRM, too_late)
    signal.alarm(SECONDS)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("odd")
    store = ingested(directory)
    ingested(directory, store=directory / "s.h5")
    fit(fit_job(store, directory / "m", standardize=True))
    return directory


def sealed_again(store: Path, manifest: manifests.Manifest) -> None:
    """Write a manifest whose seal is right, whatever it says."""
    (store / "manifest.json").write_bytes(manifests.encode_file(msgspec.json.encode(manifest)))


FILES = {"s.zarr": ("manifest.json", "statistics.safetensors", "X/c.0.0", "y/c.0"), "s.h5": ("part-00000.h5",)}


@each_value(("odd", ODD), ("store, file", [(store, file) for store, files in FILES.items() for file in files]))
def test_odd_file_in_place_of_a_store_file_is_not_waited_for(
    store: str, file: str, odd: str, place: Path, tmp_path: Path
) -> None:
    shutil.copytree(place / store, tmp_path / store)
    ODD[odd](tmp_path / store / file)
    for name, use in USES.items():
        if name == "info" and file.startswith(("X", "y")):
            continue  # which looks at no chunk
        try:
            found = use(tmp_path / store, tmp_path)
        except StreamSVMError as error:
            assert error.exit_code in (65, 74), (name, error)
        else:
            assert name == "verify", name
            assert found


@pytest.mark.parametrize("odd", ODD)
def test_odd_file_in_place_of_a_model_or_job_file_is_not_waited_for(odd: str, place: Path, tmp_path: Path) -> None:
    shutil.copy(place / "m", tmp_path / "m")
    ODD[odd](tmp_path / "m")
    with pytest.raises(StreamSVMError) as refused:
        predict(PredictJob(str(tmp_path / "m"), (str(place / "s.zarr"),), str(tmp_path / "p.csv")))
    assert refused.value.exit_code in (65, 66)
    (tmp_path / "job.toml").write_text("[fit]\n")
    ODD[odd](tmp_path / "job.toml")
    with pytest.raises(StreamSVMError):
        read_job_file(tmp_path / "job.toml")


@pytest.mark.parametrize("form", ["csv", "parquet", "npy", "h5", "gz"])
def test_odd_file_pipe_as_a_source_is_refused_before_a_byte_is_taken(form: str, tmp_path: Path) -> None:
    source = tmp_path / f"t.{form}"
    os.mkfifo(source)
    reader = os.open(source, os.O_RDONLY | os.O_NONBLOCK)
    writer = os.open(source, os.O_WRONLY)
    os.write(writer, b"y,a\n1,2\n0,3\n")
    with pytest.raises(UsageError, match="is a pipe") as refused:
        ingest(replace(ingest_job(tmp_path), sources=(source,)))
    assert "pipe it in" in refused.value.hint
    assert os.read(reader, 100) == b"y,a\n1,2\n0,3\n"
    assert not list(tmp_path.glob("*s.zarr*"))
    os.close(reader)
    os.close(writer)


@pytest.mark.parametrize(
    "change",
    [
        {"columns": 2**40},
        {"columns": 2**31},
        {"classes": [str(k) for k in range(10**6)]},
        {"chunk_rows": 2**62},
        {"facts": {"names": ["a"]}},
        {"facts": {"names": 7}},
        {"facts": {"encoding": {"offsets": [[99, 1.0]]}}},
    ],
    ids=[
        "2^40 columns",
        "2^31 columns",
        "10^6 classes",
        "2^62 rows a chunk",
        "one name",
        "a number for names",
        "an offset of no column",
    ],
)
def test_odd_file_manifest_that_was_sealed_again_is_no_store(
    change: dict[str, Any], place: Path, tmp_path: Path
) -> None:
    """Its seal is right; what it says cannot be."""
    shutil.copytree(place / "s.zarr", tmp_path / "s.zarr")
    sealed_again(tmp_path / "s.zarr", msgspec.structs.replace(manifests.read(place / "s.zarr"), **change))
    for use in USES.values():
        with pytest.raises(StreamSVMError) as refused:
            use(tmp_path / "s.zarr", tmp_path)
        assert refused.value.exit_code in (65, 78)


@each_value(("sparse", [False, True]), ("rows", [2**48, 2**63]))
def test_odd_file_chunks_larger_than_any_memory_are_no_chunks(rows: int, sparse: bool, tmp_path: Path) -> None:
    """A ValueError of numpy once, as room was made for the first."""
    store = Path(small_store(tmp_path / "s.zarr", sparse=sparse))
    sealed_again(store, msgspec.structs.replace(manifests.read(store), chunk_rows=rows))
    with pytest.raises(DataError, match="is inconsistent") as refused:
        open_store(store)
    assert refused.value.code == "E-META"


BEYOND = {"beyond the end": (0, 1 << 40), "before the beginning": (-8, 8), "of less than nothing": (0, -1)}


@pytest.mark.parametrize("piece", BEYOND)
def test_odd_file_piece_of_a_part_that_is_not_in_it_is_not_read(piece: str, place: Path, tmp_path: Path) -> None:
    """MemoryError, ValueError and OverflowError once: as many bytes were made room for as the manifest said."""
    shutil.copytree(place / "s.h5", tmp_path / "s.h5")
    manifest = manifests.read(place / "s.h5")
    files = [msgspec.structs.replace(file, index=[*file.index, BEYOND[piece]]) for file in manifest.files]
    sealed_again(tmp_path / "s.h5", msgspec.structs.replace(manifest, files=files))
    for use in USES.values():
        with pytest.raises(StreamSVMError) as refused:
            use(tmp_path / "s.h5", tmp_path)
        assert refused.value.code == "E-META"


@pytest.mark.parametrize("store", FILES)
def test_odd_file_chunk_without_a_checksum_is_not_read(store: str, place: Path, tmp_path: Path) -> None:
    """A KeyError once."""
    shutil.copytree(place / store, tmp_path / store)
    manifest = manifests.read(place / store)
    first, *others = manifest.chunks
    bare = msgspec.structs.replace(first, crc={name: crc for name, crc in first.crc.items() if name != "y"})
    sealed_again(tmp_path / store, msgspec.structs.replace(manifest, chunks=[bare, *others]))
    with pytest.raises(StreamSVMError) as refused:
        open_store(tmp_path / store)
    assert refused.value.code == "E-META"


def test_odd_file_manifest_that_memory_has_no_room_for_is_not_read(place: Path, tmp_path: Path) -> None:
    """Reading it takes some times its size, before any plan is made."""
    shutil.copytree(place / "s.zarr", tmp_path / "s.zarr")
    manifest = manifests.read(place / "s.zarr")
    sealed_again(
        tmp_path / "s.zarr", msgspec.structs.replace(manifest, facts={"sources": [{"file": "x" * 1000}] * 20_000})
    )
    store = str(tmp_path / "s.zarr")
    with pytest.raises(BudgetError, match="are needed to read it"):
        fit(FitJob(store, str(tmp_path / "n"), memory=150 << 20))
    with pytest.raises(BudgetError, match="are needed to read it"):
        tune(TuneJob(store, str(tmp_path / "t"), memory=150 << 20))
    with pytest.raises(BudgetError, match="are needed to read it"):
        predict(PredictJob(str(place / "m"), (store,), str(tmp_path / "p.csv"), memory=250 << 20))
    assert open_store(tmp_path / "s.zarr").layout == open_store(place / "s.zarr").layout


@pytest.mark.parametrize("columns", [2, 4])
def test_odd_file_manifest_of_other_columns_than_its_statistics_is_told(columns: int, tmp_path: Path) -> None:
    """Of sparse rows: a column more takes nothing away from them."""
    small_store(tmp_path / "s.zarr", sparse=True)
    manifest = msgspec.structs.replace(manifests.read(tmp_path / "s.zarr"), columns=columns, facts={})
    sealed_again(tmp_path / "s.zarr", manifest)
    with pytest.raises(StreamSVMError, match=f"statistics of {columns} columns"):
        open_store(tmp_path / "s.zarr").statistics()


@pytest.mark.parametrize("target", ["job_file", "manifest", "model", "columns", "dask"])
def test_odd_file_fuzzed_structures_are_refused_or_read_without_harm(
    target: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A few trials of each target; hours of them are tools/fuzz/structures.py."""
    monkeypatch.chdir(tmp_path)
    trial = TARGETS[target](tmp_path)
    found = [outcome(trial, random.Random(f"{target} {k}")) for k in range(40 if target == "job_file" else 8)]
    assert not [word for word in found if word.startswith("FOUND")]


# -- names of inputs ---------------------------------------------------------------------------------------------------


NO_NAME = "a" * 300
"""No file can be called so: the system says neither yes nor no, but that the name is too long."""


NAMED: dict[str, Callable[[str, Path], Any]] = {
    "store": lambda name, place: fit(FitJob(name, str(place / "m"))),
    "landmarks": lambda name, place: fit(job_of(place, kernel="rbf", landmark_file=name)),
    "model to start from": lambda name, place: fit(job_of(place, warm_start=name)),
    "validation": lambda name, place: fit(job_of(place, validation=name)),
    "model": lambda name, place: predict(PredictJob(name, (str(place / "s.zarr"),), str(place / "p.csv"))),
    "source": lambda name, place: ingest(IngestJob(sources=(Path(name),), store=place / "x")),
    "schema": lambda name, place: ingest(ingest_job(place, schema=Path(name))),
    "info": lambda name, _: info(Path(name)),
    "verify": lambda name, _: verify(Path(name)),
    "tune": lambda name, place: tune(TuneJob(name, str(place / "t"))),
    "report": lambda name, _: read_run(Path(name)),
}


def job_of(place: Path, **settings: Any) -> FitJob:
    return FitJob(small_store(place / "s.zarr", sparse=False), str(place / "m"), **settings)


@each_value(("use", NAMED.values()), ("name", [NO_NAME, f"{NO_NAME}/b", "a\x00b"]))
def test_odd_file_input_with_an_impossible_name_is_missing(
    tmp_path: Path, use: Callable[[str, Path], Any], name: str
) -> None:
    with pytest.raises(MissingError):
        use(name, tmp_path)
