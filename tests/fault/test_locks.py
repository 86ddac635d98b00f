"""Two writers of one thing: one works, the other is told who."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from streamsvm import locks
from streamsvm.errors import ExistsError
from streamsvm.jobs.fit.driver import fit
from streamsvm.jobs.ingest.run import ingest
from streamsvm.locks import hold_lock
from tests.fault.golden import fit_job, ingest_job, ingested, write_table

REPOSITORY = Path(__file__).resolve().parents[2]
HOLD = """
import sys, time
from pathlib import Path
from streamsvm.locks import hold_lock
with hold_lock(Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(600)
"""


@contextmanager
def held(target: Path) -> Iterator[subprocess.Popen[str]]:
    """Another process that has the lock."""
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(target)], env=environment, stdout=subprocess.PIPE, text=True
    )
    with process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        try:
            yield process
        finally:
            process.kill()


def test_lock_second_writer_is_told_who_the_first_is(tmp_path: Path) -> None:
    write_table(tmp_path)
    days = {time.strftime("%F")}
    with held(tmp_path / "s.zarr") as process, pytest.raises(ExistsError) as caught:
        ingest(ingest_job(tmp_path))
    days.add(time.strftime("%F"))  # it may be midnight
    assert (caught.value.code, caught.value.exit_code) == ("E-LOCKED", 73)
    for part in (f"pid {process.pid}", f"host {os.uname().nodename}", "s.zarr"):
        assert part in caught.value.message
    assert any(f"since {day}" in caught.value.message for day in days)


def test_lock_refuses_a_second_fit_of_a_model(tmp_path: Path) -> None:
    job = fit_job(ingested(tmp_path), tmp_path / "m")
    with held(tmp_path / "m"), pytest.raises(ExistsError, match="is being written by pid"):
        fit(job)
    fit(replace(job, overwrite=True))


@pytest.mark.parametrize("overwrite", [False, True])
def test_lock_of_a_killed_writer_is_free(tmp_path: Path, overwrite: bool) -> None:
    write_table(tmp_path)
    with held(tmp_path / "s.zarr") as process:
        process.kill()
        process.wait()
        assert (tmp_path / ".s.zarr.lock").exists()
        ingest(ingest_job(tmp_path, overwrite=overwrite))
    assert not (tmp_path / ".s.zarr.lock").exists()


def test_lock_is_held_once_within_one_process(tmp_path: Path) -> None:
    with hold_lock(tmp_path / "a"), hold_lock(tmp_path / "b"):
        with pytest.raises(ExistsError), hold_lock(tmp_path / "a"):
            pass
        assert (tmp_path / ".a.lock").exists()
    with hold_lock(tmp_path / "a"):
        pass


@pytest.mark.parametrize(
    ("change", "free"),
    [({}, False), ({"pid": 2**22 + 1}, True), ({"boot": "another"}, True), ({"host": "elsewhere"}, False)],
    ids=["alive", "dead", "before the last boot", "another host"],
)
def test_lock_where_the_file_system_has_no_locks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: dict[str, object], free: bool
) -> None:
    """What the lock file says decides."""

    def refused(*_: object) -> None:
        raise OSError(locks.errno.ENOLCK, "no locks available")

    monkeypatch.setattr(locks.fcntl, "flock", refused)
    with hold_lock(tmp_path / "a"):
        signature = json.loads((tmp_path / ".a.lock").read_text())
    (tmp_path / ".a.lock").write_text(json.dumps(signature | change))
    if free:
        with hold_lock(tmp_path / "a"):
            pass
    else:
        with pytest.raises(ExistsError), hold_lock(tmp_path / "a"):
            pass


def test_lock_lets_one_of_many_writers_through(tmp_path: Path) -> None:
    """Of processes started together exactly one commits; the others are refused, and the store is whole."""
    source = write_table(tmp_path)
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    command = [sys.executable, "-m", "streamsvm", "-q", "ingest", str(source), str(tmp_path / "s.zarr")]
    options = ["--label", "y", "--chunk", "4096"]
    writers = [
        subprocess.Popen([*command, *options], env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        for _ in range(3)
    ]
    assert sorted(w.wait(120) for w in writers) == [0, 73, 73]
    from streamsvm.jobs.inspect import verify

    assert verify(tmp_path / "s.zarr")["bad"] == []
