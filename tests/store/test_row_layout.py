"""Rows from one form to the other, against scipy."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse
from hypothesis import given
from hypothesis import strategies as st

from streamsvm.rows import CSR, Dense, density, in_layout, row_where, to_csr, to_matrix


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


def test_row_layout_measures_density() -> None:
    values = np.eye(4, dtype=np.float32)
    assert density(to_csr(Dense(values)), 4) == 0.25
    assert density(Dense(values), 4) == 1.0
