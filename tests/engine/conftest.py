"""A small store for tests of the fit loop, here and on a cluster."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from streamsvm.rows import Dense
from streamsvm.store import create


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
