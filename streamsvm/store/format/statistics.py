"""Column statistics, which are accumulated while a store is written, and the small file that holds them."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from streamsvm import durable
from streamsvm.errors import DataError
from streamsvm.input_files import read_whole
from streamsvm.rows import CSR, Dense, Float64, Int64, Rows
from streamsvm.types import Statistics

FILE = "statistics.safetensors"
STATISTICS_HEADER = 4096
"""The most bytes of the file without its arrays."""


def _zeros() -> Float64:
    return np.zeros(0)


@dataclass(slots=True)
class Moments:
    """Accumulates the moments of columns, chunk by chunk; later chunks may have more columns (svmlight)."""

    rows: int = 0
    counts: Int64 = field(default_factory=lambda: np.zeros(0, np.int64))
    """Stored entries of each column of CSR rows."""
    mean: Float64 = field(default_factory=_zeros)
    """The mean of each column; for CSR rows the sum of (entry - shift)."""
    M2: Float64 = field(default_factory=_zeros)
    """The sum of squared differences from the mean; for CSR rows the sum of (entry - shift)^2."""
    minimum: Float64 = field(default_factory=_zeros)
    """The smallest value of each column; for CSR rows the smallest stored one."""
    maximum: Float64 = field(default_factory=_zeros)
    """The largest value of each column; for CSR rows the largest stored one."""
    shift: Float64 = field(default_factory=_zeros)
    """The first stored entry of each CSR column, which is subtracted so that the sums do not lose digits."""

    def add(self, X: Rows) -> None:
        """Add the rows of one chunk."""
        if isinstance(X, Dense):
            self._add_dense(X)
        else:
            self._add_sparse(X)

    def grow(self, columns: int) -> None:
        """Make room for at least ``columns`` columns."""
        more = columns - len(self.mean)
        if more > 0:
            more = max(more, len(self.mean) // 2)  # growth by half keeps the total cost of copying linear
            self.counts = np.append(self.counts, np.zeros(more, np.int64))
            self.mean, self.M2 = np.append(self.mean, np.zeros(more)), np.append(self.M2, np.zeros(more))
            self.minimum = np.append(self.minimum, np.full(more, np.inf))
            self.maximum = np.append(self.maximum, np.full(more, -np.inf))
            self.shift = np.append(self.shift, np.zeros(more))

    def _add_dense(self, X: Dense) -> None:
        from streamsvm.compute.blocks.columns import dense_moments

        n, d = X.values.shape
        self.grow(d)
        shift = X.values[0].astype(np.float64)
        sums, squares = np.zeros(d), np.zeros(d)
        dense_moments(X.values, shift, sums, squares, self.minimum, self.maximum)
        mean, M2 = shift + sums / n, squares - sums * sums / n
        delta, total = mean - self.mean[:d], self.rows + n
        self.M2[:d] += M2 + delta**2 * (self.rows * n / total)
        self.mean[:d] += delta * (n / total)
        self.rows = total

    def _add_sparse(self, X: CSR) -> None:
        from streamsvm.compute.blocks.columns import sparse_moments

        self.grow(int(X.indices.max(initial=-1)) + 1)
        sparse_moments(X.data, X.indices, self.shift, self.counts, self.mean, self.M2, self.minimum, self.maximum)
        self.rows += len(X.indptr) - 1

    def result(self, columns: int, sparse: bool) -> Statistics:
        """Return the statistics of all columns over all rows; absent entries count as 0."""
        self.grow(columns)
        mean, M2, low, high = (a[:columns].copy() for a in (self.mean, self.M2, self.minimum, self.maximum))
        if sparse:
            counts, shift = self.counts[:columns], self.shift[:columns]
            mean, M2 = self._add_absent_zeros(counts, shift, mean, M2)
            absent = counts < self.rows
            low, high = np.where(absent, np.minimum(low, 0), low), np.where(absent, np.maximum(high, 0), high)
        return Statistics(mean, M2, low, high)

    def _add_absent_zeros(
        self, counts: Int64, shift: Float64, sums: Float64, squares: Float64
    ) -> tuple[Float64, Float64]:
        """Return mean and M2 over all rows from the shifted sums over the stored entries.

        M2 is the sum of three nonnegative terms, so that nothing cancels: of the entries around their own mean, of that
        mean around the mean of all rows, and of the absent zeros around the mean of all rows.
        """
        divisor = np.maximum(counts, 1)
        stored_mean = shift + sums / divisor
        mean = counts / self.rows * stored_mean
        around_stored_mean = np.maximum(squares - sums * (sums / divisor), 0.0)
        M2 = around_stored_mean + counts * np.square(stored_mean - mean) + (self.rows - counts) * np.square(mean)
        return mean, np.asarray(M2, np.float64)


def write(root: Path, statistics: Statistics) -> str:
    """Write the file and return its sha256. Raises StorageError."""
    from safetensors.numpy import save

    raw = save(statistics._asdict())
    durable.write_file(root / FILE, raw)
    return hashlib.sha256(raw).hexdigest()


def file_bytes(columns: int) -> int:
    """Return the most bytes that the file of statistics can have."""
    return STATISTICS_HEADER + 4 * 8 * columns


def read(root: Path, sha256: str, columns: int) -> Statistics:
    """Read and verify the file of four float64 per column. Raises DataError E-CRC, E-FILE, E-LIMIT, E-META."""
    from safetensors.numpy import load

    path = root / FILE
    try:
        raw = read_whole(path, file_bytes(columns))
    except OSError:
        raw = b""
    if hashlib.sha256(raw).hexdigest() != sha256:
        raise DataError(f"{path} is missing or damaged", code="E-CRC", hint="restore the file, or ingest again")
    arrays: dict[str, Any] = load(raw)
    if arrays.keys() != set(Statistics._fields) or any(array.shape != (columns,) for array in arrays.values()):
        raise DataError(
            f"{path} does not hold the statistics of {columns} columns", code="E-META", hint="ingest the source again"
        )
    return Statistics(**arrays)
