"""Rows in memory: the same rows as in a store, read once, as one chunk, from one form to the other."""

from __future__ import annotations

import time
from collections import Counter
from threading import Barrier, Thread
from typing import Any

import numpy as np
import pytest
import scipy.sparse
from hypothesis import given
from hypothesis import strategies as st

from streamsvm.errors import DataError
from streamsvm.rows import CSR, Dense, Rows, in_layout, row_count, row_where, to_csr, to_matrix
from streamsvm.schedule.stream import Stream, iterate_visits
from streamsvm.store.views import MemoryStore, Resident
from streamsvm.types import Chunk
from tests.arrays import csr_of, sparse_values
from tests.axes import each_value

ROWS, COLUMNS = 50, 4


class Counting(MemoryStore):
    """Counts what it is asked for, and overwrites a block when the next one is read into its place."""

    def __init__(self) -> None:
        super().__init__(chunk_bytes=7 * 4 * COLUMNS)
        self.asked: Counter[tuple[str, int]] = Counter()
        self._last: Chunk | None = None

    def fetch(self, chunk: int, into: Any) -> None:
        self.asked["fetch", chunk] += 1
        if self._last is not None:
            for array in [*self._last.X, self._last.codes, self._last.weight]:
                if isinstance(array, np.ndarray):
                    array[:] = -1

    def check(self, chunk: int, into: Any) -> Chunk:
        self.asked["check", chunk] += 1
        self._last = super().check(chunk, into)
        return self._last

    def forget(self, chunk: int) -> None:
        self.asked["forget", chunk] += 1


def values() -> Any:
    return sparse_values(np.random.default_rng(0), ROWS, COLUMNS)


def stored(*, sparse: bool, weighted: bool = True, rows: int = ROWS) -> Counting:
    store, X = Counting(), values()[:rows]
    codes = (np.arange(rows) % 3).astype(np.int32)
    weight = np.linspace(0.0, 1.0, rows, dtype=np.float32) if weighted else None
    store.append(csr_of(X) if sparse else Dense(X), codes, weight)
    store.commit(("a", "b", "c"), COLUMNS)
    return store


def with_bias(X: Rows) -> Rows:
    return X._replace(bias=2.0)


def whole(store: Resident) -> Chunk:
    store.fetch(0, store.buffers())
    return store.check(0, None)


@each_value(("sparse", [False, True]), ("weighted", [False, True]), ("rows", [5, ROWS]))
def test_memory_store_all_rows_are_there_in_their_order(sparse: bool, weighted: bool, rows: int) -> None:
    """Of one chunk and of several; copied out of buffers that are used again."""
    store = stored(sparse=sparse, weighted=weighted, rows=rows)
    found = whole(Resident(store, with_bias))
    X = values()[:rows]
    assert isinstance(found.X, CSR if sparse else Dense)
    for part, expected in zip(found.X, csr_of(X, 2.0) if sparse else Dense(X, 2.0), strict=True):
        np.testing.assert_array_equal(part, expected)
    np.testing.assert_array_equal(found.codes, np.arange(rows) % 3)
    if weighted:
        np.testing.assert_array_equal(found.weight, np.linspace(0.0, 1.0, rows, dtype=np.float32))
    else:
        assert found.weight is None


@pytest.mark.parametrize("depth", [0, 2])
def test_memory_store_every_chunk_is_read_and_checked_once_for_any_number_of_passes(depth: int) -> None:
    store, prepared = stored(sparse=False), []

    def prepare(X: Rows) -> Rows:
        prepared.append(row_count(X))
        return X

    resident = Resident(store, prepare)
    with Stream(resident, iterate_visits(resident.layout, 0, True), depth=depth) as stream:
        for _ in range(4):
            for loaded in stream.epoch():
                np.testing.assert_array_equal(loaded.chunk.X.values, values())
    assert tuple(prepared) == store.layout.chunks
    for number in range(len(store.layout.chunks)):
        assert (store.asked["fetch", number], store.asked["check", number]) == (1, 1)


def test_memory_store_error_while_reading_is_said_and_nothing_half_read_is_kept() -> None:
    store = stored(sparse=False)
    resident, failing = Resident(store, with_bias), [3]

    def check(chunk: int, into: Any) -> Chunk:
        if chunk in failing:
            raise DataError(f"chunk {chunk} is corrupt")
        return MemoryStore.check(store, chunk, into)

    store.check = check  # type: ignore[method-assign]
    for _ in range(2):
        with pytest.raises(DataError, match="chunk 3 is corrupt"):
            resident.fetch(0, None)
    failing.clear()
    np.testing.assert_array_equal(whole(resident).X.values, values())


def test_memory_store_two_readers_that_ask_at_once_read_all_rows_once() -> None:
    store, together = stored(sparse=False), Barrier(2)

    def slowly(X: Rows) -> Rows:
        time.sleep(0.002)
        return X

    resident = Resident(store, slowly)

    def read() -> None:
        together.wait()
        resident.fetch(0, None)

    readers = [Thread(target=read) for _ in range(2)]
    for reader in readers:
        reader.start()
    for reader in readers:
        reader.join()
    np.testing.assert_array_equal(resident.check(0, None).X.values, values())
    assert {store.asked["fetch", number] for number in range(len(store.layout.chunks))} == {1}


# -- from one form to the other ----------------------------------------------------------------------------------------


def matrix(seed: int, rows: int, columns: int) -> np.ndarray[tuple[int, int], np.dtype[np.float32]]:
    rng = np.random.default_rng(seed)
    return (rng.integers(-2, 3, (rows, columns)) * (rng.random((rows, columns)) < 0.4)).astype(np.float32)


cases = given(st.integers(0, 1000), st.integers(1, 12), st.integers(1, 12))


@cases
def test_row_layout_dense_to_sparse_and_back(seed: int, rows: int, columns: int) -> None:
    values = matrix(seed, rows, columns)
    sparse = to_csr(Dense(values))
    expected = scipy.sparse.csr_matrix(values)
    assert (sparse.data.tolist(), sparse.indices.tolist()) == (expected.data.tolist(), expected.indices.tolist())
    assert sparse.indptr.tolist() == expected.indptr.tolist()
    assert [part.dtype.str for part in (sparse.data, sparse.indices, sparse.indptr)] == ["<f4", "<i4", "<i8"]
    assert np.array_equal(to_matrix(sparse, columns), values)


@cases
def test_row_layout_takes_rows_in_order(seed: int, rows: int, columns: int) -> None:
    values = matrix(seed, rows, columns)
    chosen = np.random.default_rng(seed).random(rows) < 0.5
    dense, sparse = row_where(Dense(values), chosen), row_where(to_csr(Dense(values)), chosen)
    assert isinstance(dense, Dense)
    assert isinstance(sparse, CSR)
    assert np.array_equal(dense.values, values[chosen])
    assert np.array_equal(to_matrix(sparse, columns), values[chosen])
    assert sparse.indptr.dtype == np.int64


@pytest.mark.parametrize("sparse", [True, False])
def test_row_layout_converts_on_request(sparse: bool) -> None:
    values = matrix(0, 5, 4)
    for X in (Dense(values), to_csr(Dense(values))):
        found = in_layout(X, sparse=sparse, columns=4)
        assert isinstance(found, CSR if sparse else Dense)
