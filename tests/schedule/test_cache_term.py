"""The term of a store kept in memory against what is allocated."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest

from streamsvm.rows import Dense, row_count
from streamsvm.schedule import budget
from streamsvm.store.views.cached import Resident
from streamsvm.store.views.memory import MemoryStore
from tests.arrays import csr_of


@pytest.mark.parametrize("sparse", [False, True])
def test_the_plan_foresees_what_is_held_while_blocks_are_put_together(sparse: bool) -> None:
    """The copies of the blocks and the whole of them are there at once: measured, not derived."""
    rows, columns = 20_000, 40
    X = np.random.default_rng(3).normal(size=(rows, columns)).astype(np.float32)
    store = MemoryStore(chunk_bytes=100_000)
    store.append(csr_of(X) if sparse else Dense(X), (np.arange(rows) % 2).astype(np.int32), None)
    store.commit(("a", "b"), columns)
    foreseen = budget.cache_term(store.layout)
    assert foreseen is not None
    tracemalloc.start()
    try:
        resident = Resident(store, lambda X: X)
        resident.fetch(0, None)
        kept = resident.check(0, None)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert row_count(kept.X) == rows
    assert 0.6 * foreseen.nbytes < peak <= foreseen.nbytes
