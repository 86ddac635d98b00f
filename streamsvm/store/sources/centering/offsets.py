"""What is taken from the numbers of some columns, which are stored as x - o: recorded beside the store and its models."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from streamsvm.aliases import Array, JsonMapping
from streamsvm.rows import Dense, Float64, Int64, Rows, with_entries


class Offsets(NamedTuple):
    """What is taken from the numbers of some columns before they are rounded to float32."""

    columns: Int64
    """The numbers of the columns, ascending, (k,)."""
    values: Float64
    """What is taken from each, (k,)."""

    def to_json(self) -> list[tuple[int, float]]:
        """Return pairs (column, offset) as plain JSON."""
        return [(int(j), float(o)) for j, o in zip(self.columns, self.values, strict=True)]

    def less(self, other: Offsets) -> Offsets:
        """Return what is to be taken from rows stored at the offsets ``other`` to have them at these."""
        columns = np.union1d(self.columns, other.columns).astype(np.int64)
        changes = self.at(columns) - other.at(columns)
        return Offsets(columns[changes != 0.0], changes[changes != 0.0])

    def at(self, columns: Int64) -> Float64:
        """Return the offset of each of some columns (ascending), among which all of these are."""
        found = np.zeros(len(columns))
        found[np.searchsorted(columns, self.columns)] = self.values
        return found

    def taken_from(self, X: Rows) -> Rows:
        """Return rows float64, each column less its offset; CSR rows get an entry in each of these columns."""
        if isinstance(X, Dense):
            values: Array = X.values.astype(np.float64)
            values[:, self.columns] -= self.values
            return Dense(values, X.bias)
        if not len(self.columns):
            return X._replace(data=X.data.astype(np.float64))
        full = with_entries(X, self.columns)
        data: Array = full.data.astype(np.float64)
        place = np.minimum(np.searchsorted(self.columns, full.indices), len(self.columns) - 1)
        data -= np.where(self.columns[place] == full.indices, self.values[place], 0.0)
        return full._replace(data=data)

    def applied(self, X: Rows) -> Rows:
        """Return the rows at these offsets as float32; the same rows where there are none."""
        return rounded(self.taken_from(X)) if len(self.columns) else X


def offsets_from(encoding: JsonMapping | None) -> Offsets:
    """Return the offsets that were recorded with how files were read; none for what was recorded before there were any."""
    recorded = (encoding or {}).get("offsets") or ()
    columns, values = [int(j) for j, _ in recorded], [float(o) for _, o in recorded]
    return Offsets(np.array(columns, np.int64), np.array(values, np.float64))


def offsets_of_store(facts: JsonMapping) -> Offsets:
    """Return the offsets of the columns of a store with these facts.

    The columns of an embedding are kernel features, which have none: the offsets in its encoding are those of the rows
    that it was made from.
    """
    return offsets_from(None if facts.get("map") is not None else facts.get("encoding"))


def name_of(names: Sequence[str] | None, column: int) -> str:
    """What people call a column: by its name, else by its number."""
    return f"'{names[column]}'" if names else f"column {column}"


def rounded(X: Rows) -> Rows:
    """Return rows in float32."""
    if isinstance(X, Dense):
        return X._replace(values=np.ascontiguousarray(X.values, np.float32))
    return X._replace(data=X.data.astype(np.float32))
