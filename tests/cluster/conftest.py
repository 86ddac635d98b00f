"""A scheduler and two workers for all tests that only use them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from distributed import Client

from tests.cluster.processes import START_SECONDS, Processes
from tests.engine.conftest import rows_of, store

__all__ = ["rows_of", "store"]


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Processes]:
    """One scheduler, two workers of one thread each."""
    processes = Processes(tmp_path_factory.mktemp("cluster"))
    processes.start_scheduler()
    processes.start_worker()
    processes.start_worker()
    yield processes
    processes.stop()


@pytest.fixture(scope="module")
def client(cluster: Processes) -> Iterator[Client]:
    """A client of the cluster, both workers there."""
    with Client(cluster.address, set_as_default=False) as client:
        client.wait_for_workers(2, timeout=START_SECONDS)
        yield client


@pytest.fixture
def processes(tmp_path: Path) -> Iterator[Processes]:
    """Nothing yet: for tests that kill."""
    folder = tmp_path / "processes"
    folder.mkdir()
    found = Processes(folder)
    yield found
    found.stop()
