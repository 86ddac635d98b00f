"""A scheduler and two workers for all tests that only use them; small stores."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from streamsvm.rows import Dense
from streamsvm.store import create
from tests.cluster.processes import Processes


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Processes]:
    """One scheduler, two workers of one thread each."""
    processes = Processes(tmp_path_factory.mktemp("cluster"))
    processes.start_scheduler()
    processes.start_worker()
    processes.start_worker()
    yield processes
    processes.stop()


@pytest.fixture
def processes(tmp_path: Path) -> Iterator[Processes]:
    """Nothing yet: for tests that kill."""
    folder = tmp_path / "processes"
    folder.mkdir()
    found = Processes(folder)
    yield found
    found.stop()


def rows_of(rows: int, columns: int = 8, seed: int = 3) -> tuple[Any, Any]:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(rows, columns)).astype(np.float32)
    codes = (X @ rng.normal(size=columns) + 0.7 * rng.normal(size=rows) > 0).astype(np.int32)
    return X, codes


@pytest.fixture(scope="session")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """6,000 rows in 12 chunks."""
    path = tmp_path_factory.mktemp("stores") / "rows.zarr"
    X, codes = rows_of(6_000)
    writer = create(path, sparse=False, chunk_bytes=16_000)
    writer.append(Dense(X), codes)
    writer.commit(("-1", "1"), 8, {"names": None})
    return path
