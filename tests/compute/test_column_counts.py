"""Rows that have each column: as numpy counts them, in pieces, and in little memory."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest

from streamsvm.compute.blocks import sums as module
from streamsvm.compute.blocks.sums import PIECE, column_counts
from streamsvm.rows import CSR


def rows(lengths: list[int], columns: int) -> CSR:
    rng = np.random.default_rng(len(lengths))
    indptr = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    indices = rng.integers(0, columns, indptr[-1]).astype(np.int32)
    return CSR(np.ones(len(indices), np.float32), indices, indptr)


@pytest.mark.parametrize("piece", [1, 3, 7, 1000])
@pytest.mark.parametrize("lengths", [[0, 0], [5, 0, 1, 9, 2, 2, 0], [3] * 20, []])
def test_counts_are_those_of_all_entries(lengths: list[int], piece: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PIECE", piece)
    X = rows(lengths, 6)
    np.testing.assert_array_equal(column_counts(X, 6), np.bincount(X.indices, minlength=6))
    chosen = np.arange(len(lengths)) % 3 != 1
    kept = X.indices[np.repeat(chosen, lengths)]
    np.testing.assert_array_equal(column_counts(X, 6, chosen), np.bincount(kept, minlength=6))


def test_no_copy_of_all_entries_is_made() -> None:
    X = rows([100] * 80_000, 50)  # 8 million entries: as int64 64 MB
    tracemalloc.start()
    column_counts(X, 50, np.ones(80_000, np.bool_))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 3 * 8 * PIECE
