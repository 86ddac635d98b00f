"""The steps between the rows that a format reads and those that are stored: subtract offsets, fill missing values.

The offsets are computed from the first rows. The values that replace missing ones (the mean of each column), and the
columns that have missing values (for indicators), are computed in one additional pass over the source. All are
recorded, so that other files give the same columns. The steps are the same for tables, arrays, svmlight text, and rows
in memory that are passed to a model.
"""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from streamsvm.errors import DataError
from streamsvm.rows import CSR, Dense, Float32, Float64, Rows, row_count
from streamsvm.store.format.arrays import FLOAT32, Encoding
from streamsvm.store.sources.offsets import (
    Offsets,
    collect_first_rows,
    count_rounded,
    find_offsets,
    offsets_from,
    round_rows,
)
from streamsvm.type_aliases import JsonMapping, JsonObject

if TYPE_CHECKING:
    from streamsvm.store.sources.options import SourceOptions
    from streamsvm.store.sources.source import BaseSource


FILLED = "missing values filled"


@dataclass(frozen=True, slots=True)
class Filling:
    """The values that replace missing ones, (columns,), and the columns that get an indicator column."""

    values: Float32
    indicators: NDArray[np.int64]
    """The numbers of the columns that get an indicator."""
    policy: str
    """'mean', 'zero' or 'indicator'."""

    def to_json(self) -> JsonObject:
        """Return the filling as plain JSON."""
        return {"policy": self.policy, "values": self.values.tolist(), "indicators": self.indicators.tolist()}

    def apply(self, X: Rows) -> Rows:
        """Return the rows with NaN replaced, and the indicator columns appended."""
        return self._dense(X) if isinstance(X, Dense) else self._sparse(X)

    def _dense(self, X: Dense) -> Dense:
        is_missing = np.isnan(X.values)
        values = np.where(is_missing, self.values, X.values)
        if len(self.indicators):
            values = np.hstack([values, is_missing[:, self.indicators].astype(np.float32)])
        return Dense(np.ascontiguousarray(values, np.float32))

    def _sparse(self, X: CSR) -> CSR:
        is_missing = np.isnan(X.data)
        if not is_missing.any():
            return X
        data = np.where(is_missing, self.values[X.indices], X.data).astype(np.float32)
        indicator_of = np.full(len(self.values), -1, np.int64)  # the indicator column of each column, or -1
        indicator_of[self.indicators] = len(self.values) + np.arange(len(self.indicators))
        row = np.repeat(np.arange(len(X.indptr) - 1), np.diff(X.indptr))
        marked = is_missing & (indicator_of[X.indices] >= 0)
        rows = np.concatenate([row, row[marked]])
        indices = np.concatenate([X.indices, indicator_of[X.indices[marked]]])
        order = np.lexsort((indices, rows))
        data = np.concatenate([data, np.ones(np.count_nonzero(marked), np.float32)])[order]
        indptr = np.zeros(len(X.indptr), np.int64)
        np.cumsum(np.bincount(rows, minlength=len(X.indptr) - 1), out=indptr[1:])
        return CSR(data, indices[order].astype(np.int32), indptr)


def filling_from(encoding: JsonMapping | None) -> Filling | None:
    """Return the filling in a recorded encoding; None if missing values are errors."""
    recorded = (encoding or {}).get("missing")
    if recorded is None:
        return None
    values, indicators = np.array(recorded["values"], np.float32), np.array(recorded["indicators"], np.int64)
    return Filling(values, indicators, recorded["policy"])


def find_filling(source: BaseSource, offsets: Offsets | None, policy: str) -> Filling:
    """Read all rows of a source and return the filling for a policy; ``offsets``: the offsets of its columns.

    Every column gets a value, because other rows may lack values in columns where these do not. Raises what reading
    raises, and DataError E-MISSING if the policy is 'mean' and a column has no value.
    """
    from streamsvm.compute.blocks.columns import dense_sums, sparse_sums  # imports numba

    is_mean = policy == "mean"
    sums, low, missing, rows = np.zeros(0), np.zeros(0), np.zeros(0, np.int64), 0
    needs_counts_alone = policy == "indicator" and offsets is None
    with source.only_numbers() if needs_counts_alone else nullcontext() as places:
        for batch in source.batches():
            X = batch.X
            width = X.values.shape[1] if isinstance(X, Dense) else source.columns or int(X.indices.max(initial=-1)) + 1
            sums, low, missing = (_pad(array, width) for array in (sums, low, missing))
            rows += row_count(X)
            if isinstance(X, Dense):
                dense_sums(X.values, sums, low, missing)
            else:
                sparse_sums(X.data, X.indices, sums, low, missing)
    if places is not None:
        counted, sums = missing, np.zeros(source.columns or 0)
        missing = np.zeros(len(sums), np.int64)
        missing[places] = counted
    present = rows - missing
    if is_mean and (empty := np.flatnonzero((present <= 0) & (missing > 0))).size:
        name = int(empty[0]) + 1 if source.names is None else source.names[empty[0]]
        message = f"column {name} has no value in any row"
        raise DataError(message, code="E-MISSING", hint="leave it out with --drop, or pass --missing zero")
    values = (sums + low) / np.maximum(present, 1) if is_mean else zeros_as_stored(offsets, len(sums))
    for start, stop in source.vectors_read:  # one indicator says that a vector is missing
        missing[start + 1 : stop] = 0
    indicators = np.flatnonzero(missing) if policy == "indicator" else np.empty(0, np.int64)
    return Filling(values.astype(np.float32), indicators, policy)


def zeros_as_stored(offsets: Offsets | None, columns: int) -> Float64:
    """Return the number as which 0 is stored in each column (columns,): 0 minus the offset of the column."""
    return np.zeros(columns) if offsets is None else -offsets.at(np.arange(columns))


def _pad(values: Any, size: int) -> Any:
    """Return the values padded with zeros to at least ``size``."""
    return np.concatenate([values, np.zeros(max(0, size - len(values)), values.dtype)])


class RowSteps(NamedTuple):
    """The steps that are applied to rows after they are read, in this order."""

    offsets: Offsets | None = None
    """The offsets to subtract. None: float32 rounds nothing that matters; empty: it does, and no offset helps."""
    filling: Filling | None = None
    """The values that replace missing ones; None if missing values are errors."""

    def apply(self, X: Rows) -> Rows:
        """Return the rows as they are stored, in float32. ``X`` may be in float64 if there are ``offsets``."""
        if self.offsets is not None:
            X = self.offsets.apply(X)
        return X if self.filling is None else self.filling.apply(X)

    def apply_and_count(self, X: Rows, names: tuple[str, ...] | None, notices: dict[str, int]) -> Rows:
        """Return the rows as they are stored, and count in ``notices`` the numbers that float32 rounds and the missing
        values that are filled.

        ``names``: the names of the columns of ``X``.
        """
        if self.offsets is not None:
            exact = self.offsets.subtract_from(X)
            count_rounded(exact, self.offsets, names, notices)
            X = round_rows(exact)
        if self.filling is None:
            return X
        missing = int(np.count_nonzero(np.isnan(X.values if isinstance(X, Dense) else X.data)))
        if missing:
            notices[FILLED] = notices.get(FILLED, 0) + missing
        return self.filling.apply(X) if missing or len(self.filling.indicators) else X

    def count_stored_columns(self, read: int | None) -> int | None:
        """Return the number of columns that are stored if ``read`` columns are read; None if that is unknown."""
        return read if self.filling is None else len(self.filling.values) + len(self.filling.indicators)

    def names_of_stored_columns(self, read: tuple[str, ...] | None) -> tuple[str, ...] | None:
        """Return the names of the columns that are stored; ``read``: the names of the columns that are read."""
        if self.filling is None or read is None:
            return read
        return read + tuple(f"{read[j]} missing" for j in self.filling.indicators)

    def keep_dtype(self, dtype: str) -> bool:
        """Return whether rows of numbers of a type (float32, float16, bfloat16) are such rows after the steps."""
        if dtype == FLOAT32:
            return True
        if self.offsets is not None and len(self.offsets.columns):
            return False
        if self.filling is None:
            return True
        fill = np.asarray(self.filling.values, np.float32).reshape(1, -1)
        return bool((Encoding(dtype).round(fill)[0] == fill).all())

    def to_json(self) -> JsonObject:
        """Return the steps as fields of a recorded encoding."""
        fields: JsonObject = {}
        if self.offsets is not None and len(self.offsets.columns):
            fields["offsets"] = self.offsets.to_json()
        if self.filling is not None:
            fields["missing"] = self.filling.to_json()
        return fields


def choose_steps(source: BaseSource, options: SourceOptions) -> None:
    """Set the steps of a source before its rows are read: those recorded, or computed by reading rows in advance.

    Raises what reading raises, and DataError E-MISSING for a column without any value.
    """
    offsets = _choose_offsets(source, options)
    source.exact, source.steps = offsets is not None, RowSteps(offsets)
    if options.missing != "error":
        source.steps = RowSteps(offsets, _choose_filling(source, offsets, options))


def _choose_offsets(source: BaseSource, options: SourceOptions) -> Offsets | None:
    """Return the recorded offsets, or those that the first rows need; None if float32 rounds nothing that matters."""
    if options.encoding is None and options.offsets is None:
        missing_is_zero = options.missing in ("zero", "indicator")
        return find_offsets(lambda exact: _first_rows(source, exact=exact), missing_is_zero=missing_is_zero)
    offsets = offsets_from(_steps_in_encoding(options))
    return offsets if len(offsets.columns) else None


def _steps_in_encoding(options: SourceOptions) -> JsonMapping:
    """Return the steps recorded in ``options.encoding``, or those that were chosen for all files, of which these are
    some.
    """
    return {"offsets": options.offsets, "missing": options.filling} if options.encoding is None else options.encoding


def _first_rows(source: BaseSource, *, exact: bool) -> Rows | None:
    """Return the first rows of a source, with ``exact`` in float64; None if there are no rows."""
    source.exact = exact
    with source.looking_ahead():
        return collect_first_rows(batch.X for batch in source.read())


def _choose_filling(source: BaseSource, offsets: Offsets | None, options: SourceOptions) -> Filling:
    """Return the recorded filling, or that of the policy, for which all rows are read if it depends on them."""
    recorded = filling_from(_steps_in_encoding(options))
    if recorded is not None:
        return replace(recorded, policy=options.missing)
    if options.missing == "zero" and source.columns is not None:
        return Filling(zeros_as_stored(offsets, source.columns).astype(np.float32), np.empty(0, np.int64), "zero")
    with source.looking_ahead():
        return find_filling(source, offsets, options.missing)
