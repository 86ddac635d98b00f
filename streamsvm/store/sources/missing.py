"""Missing values: rows with NaN where a value is missing are filled by a policy.

What to fill in (the mean of each column) and which columns have missing values at all (for indicators) is found by
reading the source once before, and recorded, so that other files are filled with the same.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from streamsvm.aliases import JsonMapping, JsonObject
from streamsvm.errors import DataError
from streamsvm.rows import CSR, Dense, Float32, Float64, Rows, row_count

if TYPE_CHECKING:
    from streamsvm.store.sources.offsets import Offsets
    from streamsvm.store.sources.source import BaseSource

FILLED = "missing values filled"


@dataclass(frozen=True, slots=True)
class Filling:
    """The value that replaces a missing one in each column, and the columns that get an indicator."""

    values: Float32
    indicators: NDArray[np.int64]
    """The numbers of the columns that get an indicator."""
    policy: str
    """'mean', 'zero' or 'indicator'."""

    def to_json(self) -> JsonObject:
        """Return the filling as plain JSON."""
        return {"policy": self.policy, "values": self.values.tolist(), "indicators": self.indicators.tolist()}

    def apply(self, X: Rows) -> Rows:
        """Return the rows without NaN, with the indicator columns after the others."""
        return self._dense(X) if isinstance(X, Dense) else self._sparse(X)

    def _dense(self, X: Dense) -> Dense:
        absent = np.isnan(X.values)
        values = np.where(absent, self.values, X.values)
        if len(self.indicators):
            values = np.hstack([values, absent[:, self.indicators].astype(np.float32)])
        return Dense(np.ascontiguousarray(values, np.float32))

    def _sparse(self, X: CSR) -> CSR:
        absent = np.isnan(X.data)
        if not absent.any():
            return X
        data = np.where(absent, self.values[X.indices], X.data).astype(np.float32)
        place = np.full(len(self.values), -1, np.int64)
        place[self.indicators] = len(self.values) + np.arange(len(self.indicators))
        row = np.repeat(np.arange(len(X.indptr) - 1), np.diff(X.indptr))
        marked = absent & (place[X.indices] >= 0)
        rows = np.concatenate([row, row[marked]])
        indices = np.concatenate([X.indices, place[X.indices[marked]]])
        order = np.lexsort((indices, rows))
        data = np.concatenate([data, np.ones(np.count_nonzero(marked), np.float32)])[order]
        indptr = np.zeros(len(X.indptr), np.int64)
        np.cumsum(np.bincount(rows, minlength=len(X.indptr) - 1), out=indptr[1:])
        return CSR(data, indices[order].astype(np.int32), indptr)


def filling_from(encoding: JsonMapping | None) -> Filling | None:
    """Return the filling in a recorded encoding; None where missing values were refused."""
    recorded = (encoding or {}).get("missing")
    if recorded is None:
        return None
    values, indicators = np.array(recorded["values"], np.float32), np.array(recorded["indicators"], np.int64)
    return Filling(values, indicators, recorded["policy"])


def find_filling(source: BaseSource, offsets: Offsets | None, policy: str) -> Filling:
    """Read all rows of a source for the means and the columns with missing values; ``offsets``: those of its columns.

    Every column gets a mean, because rows that are read later may miss values where these do not. Raises what reading
    raises, DataError E-MISSING for a column without any value where its mean is needed.
    """
    from streamsvm.compute.blocks.columns import dense_sums, sparse_sums  # imports numba

    mean = policy == "mean"
    sums, low, missing, rows = np.zeros(0), np.zeros(0), np.zeros(0, np.int64), 0
    for batch in source.batches():
        X = batch.X
        width = X.values.shape[1] if isinstance(X, Dense) else source.columns or int(X.indices.max(initial=-1)) + 1
        sums, low, missing = (_pad(array, width) for array in (sums, low, missing))
        rows += row_count(X)
        if isinstance(X, Dense):
            dense_sums(X.values, sums, low, missing)
        else:
            sparse_sums(X.data, X.indices, sums, low, missing)
    present = rows - missing
    if mean and (empty := np.flatnonzero((present <= 0) & (missing > 0))).size:
        name = int(empty[0]) + 1 if source.names is None else source.names[empty[0]]
        found = f"column {name} has no value in any row"
        raise DataError(found, code="E-MISSING", hint="leave it out with --drop, or pass --missing zero")
    values = (sums + low) / np.maximum(present, 1) if mean else stored_zeros(offsets, len(sums))
    indicators = np.flatnonzero(missing) if policy == "indicator" else np.empty(0, np.int64)
    return Filling(values.astype(np.float32), indicators, policy)


def stored_zeros(offsets: Offsets | None, columns: int) -> Float64:
    """Return what 0 is stored as in each column (columns,) that is stored less an offset."""
    return np.zeros(columns) if offsets is None else -offsets.at(np.arange(columns))


def _pad(values: Any, size: int) -> Any:
    """Return an array (``size``,) or longer that begins with ``values``, with zeros behind them."""
    return np.concatenate([values, np.zeros(max(0, size - len(values)), values.dtype)])
