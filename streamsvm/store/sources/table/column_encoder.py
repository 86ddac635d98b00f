"""One column of a table (Arrow) as numbers, by its kind: as it is, as it is written, one-hot codes, hashes, words."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from streamsvm.aliases import Array
from streamsvm.errors import quote
from streamsvm.rows import Float32
from streamsvm.store.sources.source_options import SourceOptions
from streamsvm.store.sources.table.cells import (
    ISO,
    TWO_DIGIT_YEARS,
    UTC_ZONE,
    Arrow,
    BadCell,
    amounts,
    as_text,
    booleans,
    by_value,
    dates,
    years,
)
from streamsvm.store.sources.table.entries import Entries
from streamsvm.store.sources.table.layout.columns import AMOUNT, CATEGORY, NUMBER, OTHER, YEARS, Column
from streamsvm.store.sources.table.layout.schema import Schema
from streamsvm.store.sources.table.text import distinct_texts, terms_of, text_hash, weighted
from streamsvm.store.sources.table.values import check_missing, float32, plain


class ColumnEncoder:
    """Turns columns of a table into what a ``Schema`` makes of them; counts categories that were not in the census.

    With a policy for missing values, missing numbers become NaN, to be filled by somebody else; missing categories are
    none of the known.
    """

    def __init__(self, schema: Schema, notices: dict[str, int], options: SourceOptions, *, exact: bool) -> None:
        self.dtype: type[np.floating[Any]] = np.float64 if exact else np.float32
        """Of the numbers."""
        self.missing = options.missing != "error"
        """Whether a value may be missing."""
        self._notices = notices
        self._values = {c.name: pa.array(c.values, pa.string()) for c in schema.columns if c.kind == CATEGORY}
        self._trims = {name for name, values in self._values.items() if _differ_when_trimmed(values)}
        """Columns in whose values blanks around them do not count: no two of them differ by these alone."""
        self._idf = {name: counts.idf() for name, counts in schema.documents.items()}
        self._as_text = by_value if schema.by_value else as_text
        self._hashed_from, self._hash_bits = schema.own_width, schema.hash_bits

    def numbers(self, values: Arrow, column: Column) -> Array:
        """Return a column that is one number (n,); NaN for a missing value. Raises BadCell."""
        if column.kind != NUMBER:
            return self._written(values, column)
        return plain(values, column.name) if self.dtype is np.float64 else float32(values, column.name)

    def _written(self, values: Arrow, column: Column) -> Array:
        """Numbers that are written as amounts, dates, yes and no; NaN for a missing value. Raises BadCell."""
        if not self.missing:
            check_missing(values, column.name)
        if column.kind == YEARS:
            read = years(self._moments(values, column))
        elif column.kind == AMOUNT:
            read = amounts(values, column.name, comma=bool(column.form))
        else:
            read = booleans(values, column.name)
        found = float32(read, column.name)
        if np.isinf(found).any():
            row = int(np.argmax(np.isinf(found)))
            raise BadCell(row, column.name, "E-RANGE", f"{read[row].as_py()} does not fit float32", "scale the column")
        return plain(read, column.name) if self.dtype is np.float64 else found

    def _moments(self, values: Arrow, column: Column) -> Arrow:
        """The points in time of a column, of UTC; of one whose type has a time zone as that zone's clocks show them where
        only parts of the calendar are made of it. Raises BadCell.
        """
        if column.kind == YEARS and column.form.endswith("%y"):
            what = f"two-digit years of {quote(column.name)} are read as {TWO_DIGIT_YEARS}"
            self._notices[what] = self._notices.get(what, 0) + len(values) - values.null_count
        found = dates(values, column.name, column.form or ISO, column.zone)
        if column.form or not column.zone:
            return found
        return pc.assume_timezone(found, UTC_ZONE).cast(pa.timestamp("s", column.zone))

    def codes(self, values: Arrow, column: Column) -> NDArray[np.int64]:
        """Return which of ``column.values`` each row has (n,); -1 for one that is not among them. Raises BadCell."""
        absent = values.null_count
        if not self.missing:
            check_missing(values, column.name)
        if column.kind != CATEGORY:
            return _calendar_codes(self._moments(values, column), column.kind)
        texts, rows = distinct_texts(values)
        texts, known_values = self._as_text(texts), self._values[column.name]
        if column.name in self._trims:
            texts, known_values = pc.utf8_trim_whitespace(texts), pc.utf8_trim_whitespace(known_values)
        known = pc.index_in(texts, value_set=known_values)
        known = np.append(pc.fill_null(known, -1).to_numpy(zero_copy_only=False).astype(np.int64), -1)
        codes: NDArray[np.int64] = known[rows]
        if unknown := int(np.count_nonzero(codes < 0)) - absent:
            if column.values[-1:] == (OTHER,):
                codes[(rows >= 0) & (codes < 0)] = len(column.values) - 1
            else:
                self._notices[f"unknown categories of {column.name}"] += unknown
        if absent:
            self._notices["missing categories"] = self._notices.get("missing categories", 0) + absent
        return codes

    def hashes(self, values: Arrow, name: str) -> tuple[NDArray[np.int64], Float32]:
        """Return the place among the hashed columns and the sign of each row's text (n,); sign 0 where there is none. Raises
        BadCell.
        """
        if not self.missing:
            check_missing(values, name)
        texts, rows = distinct_texts(values)
        hashed = [text_hash(name, text) for text in pc.utf8_trim_whitespace(self._as_text(texts)).to_pylist()]
        codes = np.array([*hashed, 0], np.uint64)[rows]
        signs = np.where(codes >> np.uint64(63), np.float32(-1), np.float32(1))
        signs[rows < 0] = 0
        places = (codes & np.uint64((1 << self._hash_bits) - 1)).astype(np.int64)
        return self._hashed_from + places, signs

    def terms(self, values: Arrow, column: Column, start: int) -> Entries:
        """Return the words of a column of text, weighted, in feature columns from ``start`` on.

        Where there is no text there are none, which is no fault: many words of people look like a missing value ('None', 'NA').
        """
        texts, rows = distinct_texts(values)
        terms = terms_of(texts, column)
        found = weighted(terms, self._idf[column.name]).astype(np.float32)
        lengths = np.append(np.diff(terms.indptr), 0)[rows]
        begins = np.cumsum(lengths) - lengths
        which = np.arange(int(lengths.sum())) + np.repeat(np.append(terms.indptr[:-1], 0)[rows] - begins, lengths)
        return Entries(np.repeat(np.arange(len(rows)), lengths), start + terms.places[which], found[which])


def _differ_when_trimmed(values: Arrow) -> bool:
    """Whether no two values differ by the blanks around them alone."""
    return len(pc.utf8_trim_whitespace(values).unique()) == len(values)


def _calendar_codes(values: Arrow, part: str) -> NDArray[np.int64]:
    taken = pc.fill_null({"month": pc.month, "weekday": pc.day_of_week, "hour": pc.hour}[part](values), -1)
    return taken.to_numpy(zero_copy_only=False).astype(np.int64) - (part == "month")
