"""Files, names and settings somebody made to do harm: nothing outside is read or written, nothing is executed."""

from __future__ import annotations

import os
import pickle
import re
import shutil
import subprocess
import sys
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from streamsvm.config.job_files import make_jobs, read_job_file
from streamsvm.errors import ConfigError, DataError, StreamSVMError, UsageError
from streamsvm.jobs.fit.driver import fit
from streamsvm.jobs.ingest.options import IngestJob
from streamsvm.jobs.ingest.run import ingest
from tests.fault.golden import fit_job, fitted, ingested, placed
from tests.fault.test_models import Canary
from tests.fault.test_process import called
from tests.fault.test_resume import visited

REPOSITORY = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store and a model of it."""
    directory = tmp_path_factory.mktemp("hostile")
    fit(fit_job(ingested(directory), directory / "m"))
    return directory


def test_hostile_input_checkpoint_that_is_a_pickle_is_not_opened(
    place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    placed(monkeypatch)
    job, canary = fit_job(place / "s.zarr", tmp_path / "m"), tmp_path / "canary"
    with pytest.raises(StreamSVMError):
        visited(job, 3)
    found = list((tmp_path / "m.run" / "checkpoint").glob("ckpt-*"))
    assert found
    for path in found:
        path.write_bytes(pickle.dumps(Canary(canary)))
    with pytest.raises(DataError):
        fitted(replace(job, resume=True))
    assert not canary.exists()


@pytest.mark.parametrize("name", ["a" * 300, "a/" * 2100, "a\0b", "x/../../etc/passwd\0"])
def test_hostile_input_names_no_file_can_have(
    place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """From an argument no program can hand over a null byte; a program that calls ``main`` can."""
    monkeypatch.chdir(tmp_path)
    for arguments in (
        ["-q", "ingest", str(place / "t.csv"), str(tmp_path / name), "--label", "y"],
        ["-q", "fit", str(place / name), str(tmp_path / "m2")],
        ["-q", "predict", str(place / "m"), str(place / name), str(tmp_path / "p.csv")],
    ):
        code, said = called([os.fsencode(word) for word in arguments], monkeypatch)
        assert code in (2, 65, 66, 74), said
        assert b"Traceback" not in said
        assert b"report" not in said


def test_hostile_input_archive_is_no_store(place: Path, tmp_path: Path) -> None:
    """A ZipStore: names in archives can point anywhere."""
    path = tmp_path / "s.zarr.zip"
    with zipfile.ZipFile(path, "w") as archive:
        for file in (place / "s.zarr").rglob("*"):
            archive.write(file, file.relative_to(place / "s.zarr"))
        archive.writestr("../../outside", b"x")
    for action in (
        lambda: fit(fit_job(path, tmp_path / "m")),
        lambda: ingest(IngestJob(sources=(path,), store=tmp_path / "out.zarr", label="y")),
    ):
        with pytest.raises(StreamSVMError) as caught:
            action()
        assert caught.value.exit_code in (2, 65, 66)
    assert not (tmp_path.parent / "outside").exists()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("# " + "x" * (10 << 20), "1 MiB|too large|large"),
        ("a = " + "[" * 100_000, "nested too deeply"),
    ],
    ids=["10 MB", "deep"],
)
def test_hostile_job_files_are_refused(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "job.toml"
    path.write_text(text)
    with pytest.raises((UsageError, ConfigError), match=said):
        make_jobs(read_job_file(path), str(path))


OPENED = re.compile(r'open(?:at)?\((?:AT_FDCWD|\d+), "([^"]+)", ([A-Z_|0-9a-z]+)')


def test_hostile_input_nothing_outside_is_opened(place: Path, tmp_path: Path) -> None:
    """``predict`` on a store and a model below one directory: what it opens is there, or belongs to the system."""
    if shutil.which("strace") is None:
        pytest.skip("strace is not installed")
    log = tmp_path / "trace"
    command = [sys.executable, "-m", "streamsvm", "-q", "predict", place / "m", place / "s.zarr", tmp_path / "p.csv"]
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY), "XDG_CACHE_HOME": str(tmp_path / "cache")}
    environment |= {"NUMBA_CACHE_DIR": str(tmp_path / "cache"), "PYTHONDONTWRITEBYTECODE": "1"}
    traced = ["strace", "-f", "-e", "trace=open,openat,openat2", "-o", log, *command]
    ended = subprocess.run(list(map(str, traced)), env=environment, capture_output=True, text=True, check=False)
    if "ptrace" in ended.stderr or "attach" in ended.stderr:
        pytest.skip("tracing is not allowed here")
    assert ended.returncode == 0, ended.stderr
    opened: list[Any] = OPENED.findall(log.read_text())
    assert any("s.zarr" in path for path, _ in opened)
    written = {path for path, flags in opened if "O_WRONLY" in flags or "O_RDWR" in flags}
    beside = (str(tmp_path), "/dev/", "/proc/", str(place))
    assert not {path for path in written if path.startswith("/") and not path.startswith(beside)}
    system = ("/usr", "/lib", "/etc/ld.so", "/etc/localtime", "/proc", "/sys", "/dev", sys.prefix, sys.base_prefix)
    ours = (*beside, str(REPOSITORY), *system)
    data = {path for path, _ in opened if path.startswith("/") and not path.startswith(ours)}
    assert not {path for path in data if Path(path).is_file() and not path.endswith((".pth", ".pyc", ".py", ".so"))}
