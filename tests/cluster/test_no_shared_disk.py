"""Workers that share no folder: each sees an empty one where the files of the test are, and reads the store at its URL."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from distributed import Client

from streamsvm.cluster import using
from streamsvm.engine.executor import SerialExecutor
from streamsvm.errors import UsageError
from streamsvm.jobs.fit.driver import fit
from streamsvm.jobs.fit.options import FitJob
from tests.cluster.processes import START_SECONDS, Processes, environment
from tests.object_server import ACCESS_KEY, SECRET, ObjectServer, serve_folder

URL = "s3://bucket/rows.zarr"
NAMESPACE = ["unshare", "-rm", "sh", "-c", 'mount -t tmpfs none "$0" && exec "$@"']
"""A command that sees an empty folder in place of its first argument."""


def can_hide_folders(folder: Path) -> bool:
    if shutil.which("unshare") is None:
        return False
    return subprocess.run([*NAMESPACE, folder, "true"], capture_output=True, check=False).returncode == 0


@pytest.fixture
def server(store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ObjectServer]:
    """A server with the store, which the environment names."""
    monkeypatch.setenv("STREAMSVM_CACHE", str(tmp_path / "cache"))
    with serve_folder(store, "/bucket/rows.zarr", monkeypatch) as server:
        yield server


def start_worker(processes: Processes, hidden: Path) -> subprocess.Popen[bytes]:
    """Start a worker that sees an empty folder in place of ``hidden``."""
    options = ["--host", "127.0.0.1", "--dashboard-address", "127.0.0.1:0", "--no-nanny", "--nthreads", "1"]
    options += ["--local-directory", str(hidden / "local"), "--memory-limit", "2GiB"]
    command = [*NAMESPACE, str(hidden), sys.executable, "-m", "dask", "worker", processes.address, *options]
    with open(processes.folder / "worker.log", "ab") as log:
        cache = str(hidden / "cache")
        variables = environment(STREAMSVM_CACHE=cache, TMPDIR=str(hidden))
        worker = subprocess.Popen(command, cwd="/", env=variables, stdout=log, stderr=log)
    processes.running.append(worker)
    return worker


def test_cluster_without_a_shared_folder_finds_the_bits_of_this_process_alone(
    store: Path, tmp_path: Path, server: ObjectServer, processes: Processes
) -> None:
    """With the model at a URL, and on the disk of this machine with --scratch, where a worker is killed between two passes."""
    hidden = Path(os.path.commonpath([store.resolve(), tmp_path.resolve()]))
    if not can_hide_folders(hidden):
        pytest.skip("this system has no mount namespaces for users")
    dcd = FitJob(str(store), str(tmp_path / "dcd"), solver="dcd", loss="hinge", groups=2, max_passes=4)
    newton = FitJob(str(store), str(tmp_path / "newton"), solver="newton", tolerance=1e-6)
    local = {}
    for job in (dcd, newton):
        fit(job, executor=SerialExecutor())
        local[job.solver] = Path(job.model).read_bytes()
    processes.start_scheduler()
    workers = [start_worker(processes, hidden) for _ in range(2)]

    def kill_a_worker(event: dict[str, Any]) -> None:
        if event["event"] == "pass" and workers[0].poll() is None:
            workers[0].send_signal(signal.SIGKILL)
            workers[0].wait()

    with Client(processes.address, set_as_default=False) as client:
        client.wait_for_workers(2, timeout=START_SECONDS)
        assert not any(client.run(os.path.exists, str(store)).values())
        with using(client) as executor:
            fit(replace(dcd, store=URL, model="s3://bucket/dcd.ssvm"), executor=executor)
            assert server.objects["/bucket/dcd.ssvm"] == local["dcd"]
            assert [key for key in server.written if "/checkpoint/alpha." in key]
            again = replace(newton, store=URL, model=str(tmp_path / "again"), scratch="s3://bucket/scratch")
            fit(again, kill_a_worker, executor)
            assert workers[0].poll() is not None
            assert (tmp_path / "again").read_bytes() == local["newton"]
            assert [key for key in server.written if key.startswith("/bucket/scratch/again.")]
            with pytest.raises(UsageError, match="a folder that all workers see"):
                fit(replace(again, kernel="rbf", landmarks=9, embedding="disk", overwrite=True), executor=executor)
    assert not [key for key in server.objects if "/checkpoint/" in key or key.startswith("/bucket/scratch")]
    written = b"".join(server.objects.values())
    assert SECRET.encode() not in written
    assert ACCESS_KEY.encode() not in written
