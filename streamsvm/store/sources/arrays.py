"""Array objects as a source, read in slices of rows: numpy, scipy.sparse, h5py, Zarr, and the matrix of an AnnData.

An array may be on disk and larger than memory: only ``shape`` and ``X[start:stop]`` are used.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse

from streamsvm.bfloat16 import BFLOAT16
from streamsvm.errors import DataError
from streamsvm.kinds_of_rows import Chunked, RowKind, SparseMatrix, as_numpy, kind_of
from streamsvm.rows import CSR
from streamsvm.store.format.arrays import FLOAT16, FLOAT32
from streamsvm.store.sources.array_rows import SLICE_BYTES, rows_of
from streamsvm.store.sources.dask_blocks import LABELS, WEIGHTS, check_one_per_row, labels_of, weights_of
from streamsvm.store.sources.options import SourceOptions
from streamsvm.store.sources.preprocessing import choose_steps
from streamsvm.store.sources.source import BaseSource, Source, SourceFile
from streamsvm.type_aliases import Array, JsonObject
from streamsvm.types import Batch

NAME = "X"
"""The name of an array in messages and in the list of sources."""


@dataclass(frozen=True, slots=True)
class LabeledArray:
    """An array object X (n, d) with optional labels (n,), weights (n,) and names of columns."""

    X: Any
    labels: Array | None
    weights: Array | None = None
    names: tuple[str, ...] | None = None


def label_array(X: Any, labels: Any, weights: Any) -> LabeledArray:
    """Return an array object with its labels and weights as arrays, one value per row. Raises DataError.

    For an AnnData, the rows are those of ``X.X``, and ``labels`` and ``weights`` may be names of columns of ``X.obs``.
    """
    names, X = None, as_numpy(X)
    if kind_of(X) is RowKind.ANNOTATED:
        labels, weights = (X.obs[what] if isinstance(what, str) else what for what in (labels, weights))
        names, X = tuple(map(str, X.var_names)), X.X
    if scipy.sparse.issparse(X):
        X = scipy.sparse.csr_array(X)  # other formats cannot be sliced by rows
    rows = X.shape[0]
    label_values = None if labels is None else check_one_per_row(labels_of(labels, NAME), rows, NAME, LABELS)
    weight_values = None if weights is None else check_one_per_row(weights_of(weights, NAME), rows, NAME, WEIGHTS)
    return LabeledArray(X, label_values, weight_values, names)


class OpenArraySource(BaseSource):
    """An array object as a source, which can be read any number of times."""

    def __init__(self, array: LabeledArray, *, missing: bool, exact: bool = False) -> None:
        X = array.X
        if not X.shape[0]:
            raise DataError(f"{NAME} holds no rows", code="E-EMPTY", hint="check what it was made of")
        super().__init__()
        self._given, self._missing, self.exact = array, missing, exact
        self.names_read = array.names
        self.columns_read = int(X.shape[1])
        dtype = str(getattr(X, "dtype", ""))
        self.dtype_read = dtype if dtype in (FLOAT16, BFLOAT16) else FLOAT32
        self.sparse = isinstance(rows_of(X[:1], NAME, missing=missing), CSR)

    def read(self) -> Iterator[Batch]:
        """Yield all rows in order. Raises DataError."""
        X, labels, weights = self._given.X, self._given.labels, self._given.weights
        rows, file = X.shape[0], SourceFile(NAME)
        self.sources.append(file)
        for start, stop in self._spans(rows):
            part = rows_of(X[start:stop], NAME, start, missing=self._missing, exact=self.exact)
            part_labels = np.empty(0) if labels is None else labels[start:stop]
            yield Batch(part, part_labels, None if weights is None else weights[start:stop])
            file.rows = stop
            file.read = file.size = stop * 4 * self._width

    def read_encoding(self) -> JsonObject:
        """Return how to read other files into the same columns, as plain JSON."""
        return {"format": "npy", "options": {"label": None}, "columns": self.columns_read}

    @property
    def _width(self) -> int:
        """The approximate number of float32 that a row takes."""
        X = self._given.X
        if self.sparse and isinstance(X, SparseMatrix):
            return max(1, 2 * int(X.nnz) // self._given.X.shape[0])
        return int(X.shape[1])

    def _spans(self, rows: int) -> Iterator[tuple[int, int]]:
        """Return the bounds of slices of about ``SLICE_BYTES``, which are whole chunks if the array has chunks."""
        step = max(1, SLICE_BYTES // (4 * self._width))
        X = self._given.X
        chunk = X.chunks[0] if isinstance(X, Chunked) and X.chunks else 1
        if isinstance(chunk, int) and 1 < chunk <= 2 * step:
            step = max(1, step // chunk) * chunk
        return ((start, min(start + step, rows)) for start in range(0, rows, step))


def open_array_source(array: LabeledArray, options: SourceOptions) -> Source:
    """Return an array object as a source. Raises DataError."""
    source = OpenArraySource(array, missing=options.missing != "error")
    choose_steps(source, options)
    return source
