"""The steps between the rows that a format reads and those that are stored: columns less an offset, missing values filled.

What is subtracted and filled in is decided once, by the first rows or by reading all rows before, and recorded, so that
other files give the same columns. The rows of tables, arrays and svmlight text go through the same steps; so do rows
that a program hands to a model.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from streamsvm.aliases import JsonMapping, JsonObject
from streamsvm.rows import Dense, Rows
from streamsvm.store.sources.missing import FILLED, Filling, filling_from, find_filling, stored_zeros
from streamsvm.store.sources.offsets import (
    Offsets,
    collect_first_rows,
    count_rounded,
    find_offsets,
    offsets_from,
    round_rows,
)

if TYPE_CHECKING:
    from streamsvm.store.sources.options import SourceOptions
    from streamsvm.store.sources.source import BaseSource


class RowSteps(NamedTuple):
    """What is done to rows after they are read, in this order."""

    offsets: Offsets | None = None
    """What is subtracted from columns. None: float32 loses nothing; no columns: it does, and no offset helps."""
    filling: Filling | None = None
    """What stands for missing values; None where they are errors."""

    def apply(self, X: Rows) -> Rows:
        """Return the rows as they are stored, in float32; with ``offsets`` they may come in float64."""
        if self.offsets is not None:
            X = self.offsets.apply(X)
        return X if self.filling is None else self.filling.apply(X)

    def apply_and_count(self, X: Rows, names: tuple[str, ...] | None, notices: dict[str, int]) -> Rows:
        """Return the rows as they are stored, and count in ``notices`` what float32 rounds and what is filled in.

        ``names``: those of the columns that are read.
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

    def stored_columns(self, read: int | None) -> int | None:
        """Return how many columns are stored of so many that are read; None where that is not known yet."""
        return read if self.filling is None else len(self.filling.values) + len(self.filling.indicators)

    def stored_names(self, read: tuple[str, ...] | None) -> tuple[str, ...] | None:
        """Return the names of the columns that are stored, by the names of those that are read."""
        if self.filling is None or read is None:
            return read
        return read + tuple(f"{read[j]} missing" for j in self.filling.indicators)

    def to_json(self) -> JsonObject:
        """Return the steps as fields of a recorded encoding."""
        found: JsonObject = {}
        if self.offsets is not None and len(self.offsets.columns):
            found["offsets"] = self.offsets.to_json()
        if self.filling is not None:
            found["missing"] = self.filling.to_json()
        return found


def choose_steps(source: BaseSource, options: SourceOptions) -> None:
    """Decide the steps of a source of which nothing was read yet: as recorded, or by reading rows of it.

    Raises what reading raises, DataError E-MISSING for a column without any value.
    """
    offsets = _choose_offsets(source, options)
    source.exact, source.steps = offsets is not None, RowSteps(offsets)
    if options.missing != "error":
        source.steps = RowSteps(offsets, _choose_filling(source, offsets, options))


def _choose_offsets(source: BaseSource, options: SourceOptions) -> Offsets | None:
    """Return the recorded offsets, or those that the first rows need; None where float32 loses nothing."""
    if options.encoding is None and options.offsets is None:
        missing_is_zero = options.missing in ("zero", "indicator")
        return find_offsets(lambda exact: _first_rows(source, exact=exact), missing_is_zero=missing_is_zero)
    offsets = offsets_from(_record_steps(options))
    return offsets if len(offsets.columns) else None


def _record_steps(options: SourceOptions) -> JsonMapping:
    """Return the encoding that options hand over, or the steps of a whole of which the files are a part."""
    return {"offsets": options.offsets, "missing": options.filling} if options.encoding is None else options.encoding


def _first_rows(source: BaseSource, *, exact: bool) -> Rows | None:
    """Return the first rows of a source, in float64 where they are to be ``exact``; None where there are none."""
    source.exact = exact
    with source.looking_ahead():
        return collect_first_rows(batch.X for batch in source.read())


def _choose_filling(source: BaseSource, offsets: Offsets | None, options: SourceOptions) -> Filling:
    """Return the recorded filling, or what the policy makes of the rows, which are read for it where they decide."""
    recorded = filling_from(_record_steps(options))
    if recorded is not None:
        return replace(recorded, policy=options.missing)
    if options.missing == "zero" and source.columns is not None:
        return Filling(stored_zeros(offsets, source.columns).astype(np.float32), np.empty(0, np.int64), "zero")
    with source.looking_ahead():
        return find_filling(source, offsets, options.missing)
