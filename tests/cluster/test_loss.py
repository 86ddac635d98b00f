"""Workers and schedulers that die: the same bits or a clean end, soon."""

from __future__ import annotations

import random
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from distributed import Client

from streamsvm.cluster import using
from streamsvm.cluster.dask_executor import list_workers
from streamsvm.engine.executor import Joins, SerialExecutor, Task
from streamsvm.errors import ClusterError
from streamsvm.jobs.fit.driver import fit
from streamsvm.jobs.fit.options import FitJob
from tests.cluster.processes import START_SECONDS, Processes


def job_of(store: Path, model: Path, **more: Any) -> FitJob:
    return FitJob(str(store), str(model), solver="dcd", C=0.05, groups=4, tolerance=1e-9, max_passes=8, **more)


@pytest.fixture(scope="module")
def alone(store: Path, tmp_path_factory: pytest.TempPathFactory) -> Any:
    return fit(job_of(store, tmp_path_factory.mktemp("alone") / "m"), executor=SerialExecutor())


def test_cluster_loss_worker_that_is_killed_leaves_no_trace(
    store: Path, tmp_path: Path, processes: Processes, alone: Any
) -> None:
    processes.start_scheduler()
    processes.start_worker()
    victim = processes.start_worker()
    with Client(processes.address, set_as_default=False) as client:
        client.wait_for_workers(2, timeout=START_SECONDS)

        def kill(event: dict[str, Any]) -> None:
            if event["event"] == "pass" and event["pass"] == 2:
                threading.Timer(random.Random(1).uniform(0.0, 0.3), victim.kill).start()

        with using(client) as executor:
            result = fit(job_of(store, tmp_path / "m"), kill, executor)
    np.testing.assert_array_equal(result.model.weights, alone.model.weights)


def test_cluster_loss_scheduler_that_is_killed_ends_the_run_resumably(
    store: Path, tmp_path: Path, processes: Processes, alone: Any
) -> None:
    processes.start_scheduler()
    processes.start_worker()
    job = job_of(store, tmp_path / "m")
    with Client(processes.address, set_as_default=False, timeout=60) as client:
        client.wait_for_workers(1, timeout=START_SECONDS)

        def kill(event: dict[str, Any]) -> None:
            if event["event"] == "pass" and event["pass"] == 3:
                processes.running[0].kill()

        with using(client, patience=2) as executor, pytest.raises(ClusterError) as caught:
            fit(job, kill, executor)
    assert caught.value.exit_code == 69
    assert "--resume" in caught.value.hint
    again = fit(replace(job, resume=True), executor=SerialExecutor())
    np.testing.assert_array_equal(again.model.weights, alone.model.weights)


def test_cluster_loss_no_worker_is_waited_for_only_so_long(processes: Processes) -> None:
    processes.start_scheduler()
    with (
        Client(processes.address, set_as_default=False) as client,
        pytest.raises(ClusterError, match="no worker for 2 s"),
        using(client, patience=2),
    ):
        pass


def exhaust(part: int) -> None:
    """A task that its worker does not survive."""
    import os

    os._exit(part)


def test_cluster_loss_task_that_kills_its_workers_is_named(processes: Processes) -> None:
    processes.start_scheduler()
    for _ in range(4):
        processes.start_worker()
    with Client(processes.address, set_as_default=False) as client:
        client.wait_for_workers(4, timeout=START_SECONDS)
        with using(client, patience=15) as executor, pytest.raises(ClusterError) as caught:
            list(executor.map(Task("embed", exhaust, 400 << 20), [9]))
    assert caught.value.code == "E-WORKER"
    assert "task embed[0] failed on 4 workers (last: killed" in caught.value.message
    assert "needs ~400MiB" in caught.value.message


def test_cluster_loss_worker_whose_memory_is_full_is_no_worker(processes: Processes) -> None:
    """Dask pauses it, and whoever waits for it waits for ever."""
    processes.start_scheduler()
    worker = processes.start_worker()
    with Client(processes.address, set_as_default=False) as client:
        client.wait_for_workers(1, timeout=START_SECONDS)
        with using(client, patience=8) as executor:
            client.run(pause)
            while {known["status"] for known in list_workers(client).values()} != {"paused"}:
                time.sleep(0.1)
            with pytest.raises(ClusterError, match="memory of all workers") as caught:
                list(executor.map(Task("fit", len), [[1]]))
    assert caught.value.exit_code == 69
    assert worker.poll() is None


def pause(dask_worker: Any) -> None:
    """What a worker does to itself at four fifths of its memory."""
    from distributed.core import Status

    unpaused = "memory_pause_fraction"
    setattr(dask_worker.memory_manager, unpaused, False)  # it would go on at once, as there is room
    dask_worker.status = Status.paused


def large(number: int) -> bytes:
    return bytes(10 << 20)


def longer(one: bytes, other: bytes) -> bytes:
    time.sleep(0.2)
    return one


def test_cluster_loss_what_is_joined_is_forgotten(processes: Processes) -> None:
    """Of 24 results of 10 MB a worker never holds more than a few."""
    processes.start_scheduler()
    processes.start_worker()
    most = []
    with Client(processes.address, set_as_default=False) as client, using(client) as executor:

        def look(done: int) -> None:
            most.append(max(client.run(lambda dask_worker: len(dask_worker.data)).values()))

        found = executor.reduce(Task("fit", large), list(range(24)), Joins(longer), (), look)
        assert len(found) == 10 << 20
    assert most[-1] <= 12
