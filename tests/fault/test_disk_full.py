"""A disk that is full: said before the first write where it can be known, else exit code 74, and gone on with later."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from streamsvm import durable
from streamsvm.engine import checkpoint
from streamsvm.errors import ConfigError, StorageError
from streamsvm.jobs.apply.options import PredictJob
from streamsvm.jobs.apply.predict import predict
from streamsvm.jobs.common_options import EmbedJob, SynthJob
from streamsvm.jobs.embed.build import embed
from streamsvm.jobs.fit.driver import fit
from streamsvm.jobs.ingest.run import ingest
from streamsvm.jobs.synth import synth
from streamsvm.jobs.tune.options import TuneJob
from streamsvm.jobs.tune.run import tune
from streamsvm.model import load
from streamsvm.store import open_store
from streamsvm.store.write import resume, writer
from tests.axes import each_value
from tests.fault.golden import digest_of, fit_job, fitted, ingest_job, ingested, leftovers, placed, write_table
from tests.fault.test_resume import same_model

REPOSITORY = Path(__file__).resolve().parents[2]
Disk = Callable[[int], Path]


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    """A small file system of its own; called again it gets another size."""
    if os.geteuid() != 0:
        pytest.skip("mounting a small file system needs root")
    mounted = tmp_path / "disk"
    mounted.mkdir()

    def sized(kib: int) -> Path:
        again = ["-o", f"remount,size={kib}k"] if mounted.is_mount() else ["-t", "tmpfs", "-o", f"size={kib}k"]
        done = subprocess.run(["mount", *again, "tmpfs", str(mounted)], capture_output=True, check=False)
        if done.returncode:
            pytest.skip(f"mounting is not allowed here: {done.stderr.decode().strip()}")
        return mounted

    yield sized
    if mounted.is_mount():
        subprocess.run(["umount", str(mounted)], check=True)


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("source")
    write_table(directory, rows=8000, columns=6)
    ingested(directory, chunk_bytes=8192)
    return directory


@pytest.mark.parametrize("kib", range(24, 240, 40))
def test_disk_full_ingest_goes_on_when_there_is_room(
    disk: Disk, source: Path, monkeypatch: pytest.MonkeyPatch, kib: int
) -> None:
    """With the estimate switched off, so that it is the write that fails."""
    monkeypatch.setattr(resume, "SPACE_FACTOR", 0.0)
    monkeypatch.setattr(writer, "CHUNKS_PER_SYNC", 2)
    root = disk(kib)
    job = ingest_job(source, store=root / "s.zarr", chunk_bytes=8192)
    with pytest.raises(StorageError, match=r"writing|creating|syncing") as caught:
        ingest(job)
    assert (caught.value.code, caught.value.exit_code) == ("E-NOSPACE", 74)
    assert not leftovers(root)
    disk(4096)
    ingest(job)
    assert digest_of(root / "s.zarr") == digest_of(source / "s.zarr")


@pytest.fixture
def loop(tmp_path: Path) -> Iterator[Path]:
    """An ext4 of 8 MiB in a file: unlike tmpfs it may say only when syncing that there is no room."""
    image, mounted = tmp_path / "image", tmp_path / "loop"
    mounted.mkdir()
    with open(image, "wb") as file:
        file.truncate(8 << 20)
    if os.geteuid() != 0 or shutil.which("mkfs.ext4") is None:
        pytest.skip("a file system in a file needs root and mkfs.ext4")
    subprocess.run(["mkfs.ext4", "-q", "-m", "0", "-O", "^has_journal", str(image)], check=True, capture_output=True)
    done = subprocess.run(["mount", "-o", "loop", str(image), str(mounted)], capture_output=True, check=False)
    if done.returncode:
        pytest.skip(f"mounting is not allowed here: {done.stderr.decode().strip()}")
    yield mounted
    subprocess.run(["umount", str(mounted)], check=True)


@each_value(("name", ["s.zarr", "s.h5"]), ("free", [30, 110]))
def test_disk_full_is_named_and_leaves_nothing(
    loop: Path, source: Path, monkeypatch: pytest.MonkeyPatch, name: str, free: int
) -> None:
    monkeypatch.setattr(resume, "SPACE_FACTOR", 0.0)
    filler, job = loop / "filler", ingest_job(source, store=loop / name, chunk_bytes=8192)
    filler.write_bytes(bytes(shutil.disk_usage(loop).free - free * 1024))
    with pytest.raises(StorageError) as caught:
        ingest(job)
    assert (caught.value.code, caught.value.exit_code) == ("E-NOSPACE", 74)
    assert not leftovers(loop)
    filler.unlink()
    ingest(job)
    ingested(source, store=source / name, chunk_bytes=8192, overwrite=True)
    assert digest_of(job.store) == digest_of(source / name)


def test_disk_full_no_more_files_than_the_disk_has_room_for(disk: Disk, source: Path) -> None:
    """A file system may be out of files before it is out of bytes."""
    place = disk(4096)
    subprocess.run(["mount", "-o", "remount,nr_inodes=20", "tmpfs", str(place)], check=True)
    job = ingest_job(source, store=place / "s.zarr", chunk_bytes=8192)
    with pytest.raises(StorageError) as caught:
        ingest(job)
    assert (caught.value.code, caught.value.exit_code) == ("E-NOSPACE", 74)
    subprocess.run(["mount", "-o", "remount,nr_inodes=1000", "tmpfs", str(place)], check=True)
    ingest(job)
    assert digest_of(job.store) == digest_of(source / "s.zarr")


LIMITED = """
import resource, signal, sys
sys.dont_write_bytecode = True  # Python would cut the bytecode of our modules short and believe it ever after
from streamsvm.cli.main import main
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (3000, 3000))
sys.argv = ["streamsvm", "-q", "ingest", sys.argv[1], sys.argv[2], "--label", "y", "--chunk", "8192"]
main()
"""


def test_disk_full_by_a_limit_on_file_sizes(source: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-c", LIMITED, str(source / "t.csv"), str(tmp_path / "s.zarr")]
    ended = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False)
    assert ended.returncode == 74, ended.stderr
    assert "E-IO" in ended.stderr
    assert "File too large" in ended.stderr
    assert "Traceback" not in ended.stderr


@pytest.mark.parametrize("kib", [64, 160])
def test_disk_full_ingest_is_refused_before_the_first_write(disk: Disk, source: Path, kib: int) -> None:
    root = disk(kib)
    with pytest.raises(StorageError, match=r"has 0MiB free, .* needs about 1MiB") as caught:
        ingest(ingest_job(source, store=root / "s.zarr", chunk_bytes=8192))
    assert caught.value.code == "E-NOSPACE"
    assert list(root.iterdir()) == []


def test_disk_full_synth_is_refused_before_the_first_write(disk: Disk) -> None:
    root = disk(1024)
    with pytest.raises(StorageError, match="has 1MiB free") as caught:
        synth(SynthJob("susy", str(root / "s.zarr"), rows=100_000))
    assert caught.value.code == "E-NOSPACE"
    assert list(root.iterdir()) == []


@pytest.mark.parametrize("kib", [8, 48, 100])
def test_disk_full_fit_goes_on_when_there_is_room(
    disk: Disk, source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kib: int
) -> None:
    """Per-row state in a file and a checkpoint after every visit."""
    placed(monkeypatch, resident=False)
    monkeypatch.setattr(checkpoint, "PAUSE_FACTOR", 0)
    job = fit_job(source / "s.zarr", tmp_path / "m", checkpoint_every=1e-9)
    reference = fitted(job)
    small = replace(job, model=str(disk(kib) / "m"))
    with pytest.raises(StorageError) as caught:
        fit(small)
    assert caught.value.code == "E-NOSPACE"
    disk(4096)
    assert same_model(fitted(replace(small, resume=True)), reference)


def test_disk_full_leaves_whole_predictions_or_none(disk: Disk, source: Path, tmp_path: Path) -> None:
    fit(fit_job(source / "s.zarr", tmp_path / "m"))
    root = disk(16)
    job = PredictJob(str(tmp_path / "m"), (str(source / "s.zarr"),), str(root / "p.csv"), output="decision")
    with pytest.raises(StorageError) as caught:
        predict(job)
    assert caught.value.code == "E-NOSPACE"
    assert list(root.iterdir()) == []
    disk(4096)
    predict(job)
    assert (root / "p.csv").read_text().count("\n") == open_store(source / "s.zarr").layout.rows + 1


def full_at(step: int) -> Callable[..., None]:
    """An observer that makes the disk full at a step."""
    left = [step]

    def observer(*_: object) -> None:
        left[0] -= 1
        if left[0] == 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    return observer


def test_disk_full_ingest_is_not_resumed_with_other_options(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copy(source / "t.csv", tmp_path / "t.csv")
    with monkeypatch.context() as patch:
        patch.setattr(writer, "CHUNKS_PER_SYNC", 2)
        patch.setattr(durable, "observe", full_at(120))
        with pytest.raises(StorageError, match="No space left") as caught:
            ingest(ingest_job(tmp_path, chunk_bytes=8192))
    assert "run the same command again" in caught.value.hint
    with pytest.raises(ConfigError, match=r"drop .*'x1'.*, chunk_bytes 8192 -> 16384") as refused:
        ingest(ingest_job(tmp_path, chunk_bytes=16384, drop=("x1",)))
    assert (refused.value.code, refused.value.exit_code) == ("E-CONFIG", 78)
    ingest(ingest_job(tmp_path, chunk_bytes=16384, drop=("x1",), overwrite=True))


@pytest.mark.parametrize("step", range(3, 180, 44))
def test_disk_full_at_any_step_goes_on_to_the_same_bytes(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: int
) -> None:
    """Whatever step fails, fsync and rename included: the same command ends with the same bytes."""
    job = ingest_job(source, store=tmp_path / "s.zarr", chunk_bytes=8192)
    with monkeypatch.context() as patch:
        patch.setattr(writer, "CHUNKS_PER_SYNC", 2)
        patch.setattr(durable, "observe", full_at(step))
        with pytest.raises(StorageError):
            ingest(job)
    ingest(job)
    assert digest_of(job.store) == digest_of(source / "s.zarr")


def asked(name: str, source: Path, root: Path) -> Any:
    """A job of a command whose outputs are on a small disk."""
    store, model = str(source / "s.zarr"), str(source / "m")
    if name == "fit":
        return fit_job(source / "s.zarr", root / "m", checkpoint_every=0.001, dual=str(root / "d.h5"), resume=True)
    if name == "path of C":
        return fit_job(source / "s.zarr", root / "m", C=(0.1, 1.0), resume=True)
    if name == "kernel":
        kernel = {"kernel": "rbf", "gamma": 0.5, "landmarks": 30, "embedding": "disk"}
        return fit_job(source / "s.zarr", root / "m", solver="dcd", resume=True, **kernel)
    if name == "embed":
        return EmbedJob(store, str(root / "e.zarr"), kernel="rbf", gamma=0.5, landmarks=30)
    if name == "tune":
        return TuneJob(store, str(root / "t"), C=(0.1, 1.0), folds=2, standardize=True)
    return PredictJob(model, (store,), str(root / "p.csv"), overwrite=True)


RUNS: dict[str, Callable[[Any], Any]] = {
    "fit": fit, "path of C": fit, "kernel": fit, "embed": embed, "tune": tune, "predict": predict,
}  # fmt: skip
OF_OTHERS = {
    "fit": ("--dtype", "--chunk", "ingest"),
    "embed": ("--checkpoint", "--embedding-dtype"),
    "tune": ("--dtype", "--checkpoint"),
    "predict": ("--dtype", "--checkpoint", "--chunk"),
}
"""Words that are advice for another command."""


@each_value(("kib", [4, 8, 16, 40, 100]), ("name", RUNS))
def test_disk_full_under_every_command_is_named_and_goes_on_later(
    disk: Disk, source: Path, name: str, kib: int
) -> None:
    """Whatever is written when it is full: the file is named, the advice is of the command, and it goes on later."""
    if not (source / "m").exists():
        fit(fit_job(source / "s.zarr", source / "m"))
    root = disk(kib)
    job = asked(name, source, root)
    try:
        RUNS[name](job)
    except StorageError as error:
        assert (error.code, error.exit_code) == ("E-NOSPACE", 74), error
        assert str(root) in error.message, error
        assert error.hint, error
        assert not any(word in error.hint for word in OF_OTHERS.get(name, OF_OTHERS["fit"])), error
        assert not [path for path in root.rglob("*") if path.suffix == ".partial"]
        disk(16384)
        RUNS[name](job)
    for model in root.glob("m*.ssvm"):
        assert load(model).columns == 6
