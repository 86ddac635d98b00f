"""Rows in one form: copies, weights and orders of the same rows are one store."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.sparse

pytest.importorskip("sklearn", minversion="1.6")

from streamsvm.rows import row_count
from streamsvm.sklearn import StreamSVC
from streamsvm.sklearn.rows import make_store, merge_copies
from streamsvm.store.sources.arrays import rows_of

RNG = np.random.default_rng(0)
X = RNG.integers(0, 2, (40, 3)).astype(
    np.float64
)  # eight different rows, each in both classes, and rows of zeros alone
CODES = RNG.integers(0, 2, 40).astype(np.int32)
WEIGHTS = RNG.integers(0, 4, 40).astype(np.float64)


@pytest.mark.parametrize("form", [np.asarray, scipy.sparse.csr_array])
@pytest.mark.parametrize("kind", [np.int32, np.float64])
def test_merged_rows_copies_weights_and_orders_are_one_store(form: Any, kind: Any) -> None:
    y, copies = CODES.astype(kind), RNG.permutation(np.repeat(np.arange(40), WEIGHTS.astype(int)))
    classes = 2 if kind is np.int32 else 0
    one = make_store(form(X), y, WEIGHTS, classes, least=1)
    other = make_store(form(X[copies]), y[copies], None, classes, least=1)
    assert one.digest == other.digest
    assert one.layout.rows == len(
        {(*row, code) for row, code in zip(X[copies].tolist(), y[copies].tolist(), strict=True)}
    )


@pytest.mark.parametrize("form", [np.asarray, scipy.sparse.csr_array])
def test_rows_of_one_hash_are_merged_where_they_are_equal(form: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("streamsvm.sklearn.rows._hash_rows", lambda X, columns: np.zeros(row_count(X), np.uint64))
    rows = np.array([[1.0, 0.0], [0.0, 1.0], [0.0, 2.0], [0.0, 2.0], [0.0, 2.0], [0.0, 0.0]])
    found, y, weights = merge_copies(rows_of(form(rows), "X"), np.array([0, 0, 0, 0, 1, 1]), None, 2)
    assert (row_count(found), y.tolist(), weights.tolist()) == (5, [0, 0, 0, 1, 1], [1.0, 1.0, 2.0, 1.0, 1.0])


def test_merged_rows_what_is_counted_are_the_rows_that_were_given() -> None:
    found = StreamSVC().fit(X, CODES, WEIGHTS)
    assert found.rows_seen_ == np.count_nonzero(WEIGHTS)
