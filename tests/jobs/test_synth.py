"""Rows that are made up: which of them are for training, and which for testing."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from streamsvm.jobs.synth import _share_out, bytes_per_row
from streamsvm.rows import Dense
from streamsvm.store.views import MemoryStore
from streamsvm.types.data import Batch
from tests.arrays import csr_of, sparse_values


class Written:
    """A store's writer that keeps what it is given."""

    def __init__(self) -> None:
        self.rows: list[float] = []
        self.codes: list[int] = []

    def append(self, X: Any, codes: Any, *_: object) -> None:
        self.rows += X.values[:, 0].tolist()
        self.codes += codes.tolist()


@pytest.mark.parametrize("size", [1, 3, 5, 7, 12])
def test_synth_first_rows_are_for_training_however_they_come(size: int) -> None:
    labels = np.where(np.arange(12) % 3 == 0, 1.0, -1.0)
    first, second = Written(), Written()
    targets: Any = [(first, 7), (second, 12)]
    for start in range(0, 12, size):
        rows = np.arange(start, min(start + size, 12))
        _share_out(Batch(Dense(rows[:, None].astype(np.float32)), labels[rows]), start, targets)
    assert (first.rows, second.rows) == (list(range(7)), list(range(7, 12)))
    assert first.codes + second.codes == (labels > 0.0).astype(int).tolist()


@pytest.mark.parametrize("sparse", [False, True])
def test_synth_disk_is_asked_for_what_a_store_takes(sparse: bool) -> None:
    values, labels = sparse_values(np.random.default_rng(0), 40, 6), np.ones(40)
    X, store = csr_of(values) if sparse else Dense(values), MemoryStore()
    store.append(X, (labels > 0.0).astype(np.int32))
    layout = store.commit(("-1", "1"), 6).layout
    generator: Any = SimpleNamespace(columns=6)
    assert 40 * bytes_per_row(Batch(X, labels), generator) == layout.bytes_per_pass
