"""Entries of sparse rows in any order, put together as rows: what falls on the same column is added up."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from streamsvm.aliases import Array
from streamsvm.errors import UsageError, quote
from streamsvm.rows import CSR, Dense, Float32, Rows
from streamsvm.store.format.row_layout import take
from streamsvm.store.sources.cells import (
    ISO,
    MISSING_HINT,
    RECORDED_MISSING_HINT,
    TWO_DIGIT_YEARS,
    UTC_ZONE,
    Arrow,
    BadCell,
    amounts,
    as_text,
    booleans,
    by_value,
    check_missing,
    check_numbers,
    dates,
    float32,
    ids_of,
    is_text,
    labels_of,
    numbers,
    plain,
    weights_of,
    years,
)
from streamsvm.store.sources.options import SourceOptions
from streamsvm.store.sources.schema import (
    AMOUNT,
    CALENDAR,
    CATEGORY,
    HASHED,
    NUMBER,
    OTHER,
    SINGLE,
    TEXT,
    YEARS,
    Column,
    Schema,
)
from streamsvm.store.sources.text import distinct_texts, terms_of, text_hash, weighted
from streamsvm.types import Batch


class Entries(NamedTuple):
    """Entries of rows, in any order."""

    rows: NDArray[np.int64]
    """The row of each."""
    columns: NDArray[np.int64]
    """The feature column of each."""
    values: Array
    """The value of each, float32 or float64."""


def entries_of(indices: NDArray[np.int64], data: Array) -> Entries:
    """Return the entries of rows that are not 0: of ``data`` (n, k), in the feature columns ``indices`` (n, k)."""
    stored = data != 0
    return Entries(np.nonzero(stored)[0], indices[stored], data[stored])


def summed(parts: list[Entries], rows: int, width: int, dtype: type[np.floating[Any]] = np.float32) -> CSR:
    """Return entries as CSR rows of so many columns; what falls on the same column is added up, and rounded to a type."""
    keys, which = np.unique(np.concatenate([part.rows * width + part.columns for part in parts]), return_inverse=True)
    weights = np.concatenate([part.values for part in parts])
    sums = np.bincount(which, weights=weights, minlength=len(keys)).astype(dtype)
    row, column = np.divmod(keys[sums != 0], width)
    indptr = np.searchsorted(row, np.arange(rows + 1)).astype(np.int64)
    return CSR(sums[sums != 0], column.astype(np.int32), indptr)


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


BATCH_BYTES = 2 << 20
"""Bytes of the rows made of one batch."""
TEXT_ENTRIES = 64
"""Entries that a column of text is taken to have in a row, by which batches are cut."""
NESTED_HINT = "give the column the kind it had in training"
WHOLE = 1 << 24
"""The number up to which float32 holds every whole number."""


class TableEncoder:
    """Makes the features a ``Schema`` asks for, in float32 or, where they are to be ``exact``, in float64; counts
    categories that were not in the census.

    With a policy for missing values, missing numbers become NaN, to be filled by somebody else; missing categories are
    none of the known.
    """

    def __init__(self, schema: Schema, notices: dict[str, int], options: SourceOptions, *, exact: bool = False) -> None:
        self.schema = schema
        self._column = ColumnEncoder(schema, notices, options, exact=exact)
        self._dtype, self._missing = self._column.dtype, self._column.missing
        self._recorded = options.encoding is not None
        self._skips_unlabeled = options.missing_label == "skip"
        self._words = options.words
        self._words_missing_in = {c.name for c in schema.columns if c.kind in (*SINGLE, *CALENDAR)}
        self._notices = notices
        self._split = Split.of(schema, options)

    def batch(self, table: pa.RecordBatch) -> Batch:
        """Return one batch of rows. Raises BadCell."""
        try:
            return self._encoded(table)
        except BadCell as cell:
            if self._recorded and cell.hint == MISSING_HINT:
                cell.hint = RECORDED_MISSING_HINT
            raise
        except (
            pa.ArrowNotImplementedError
        ) as error:  # by the types of the columns, which rows after the first may change
            for column in table.schema:
                if pa.types.is_nested(column.type) and column.name not in self.schema.dropped:
                    raise BadCell(0, column.name, "E-DTYPE", f"holds {column.type}", NESTED_HINT) from error
            raise

    def count_missing(self, table: pa.RecordBatch, name: str) -> int:
        """Return how many values of a column are missing, words that say so included."""
        return int(self._with_words_missing(table).column(name).null_count)

    def _encoded(self, table: pa.RecordBatch) -> Batch:
        table = self._with_words_missing(table)
        X = self._sparse(table) if self.schema.sparse else self._dense(table)
        label = self.schema.label
        weight = (
            None if self.schema.weight is None else weights_of(table.column(self.schema.weight), self.schema.weight)
        )
        ids = None if self.schema.id_column is None else ids_of(table.column(self.schema.id_column))
        split = None if self._split is None else split_of(table.column(self._split.column), self._split)
        if label is None:
            return Batch(X, np.empty(0), weight, ids, split)
        given = table.column(label)
        if self._skips_unlabeled and given.null_count:
            labeled = given.is_valid().to_numpy(zero_copy_only=False)
            X, given = take(X, labeled), given.drop_null()
            weight, ids, split = (None if part is None else part[labeled] for part in (weight, ids, split))
        return Batch(X, labels_of(given, label), weight, ids, split)

    def _with_words_missing(self, table: pa.RecordBatch) -> pa.RecordBatch:
        """The rows, with null for words that say in columns of text that a number, amount, date, yes or no is missing."""
        places = {name: place for place, name in enumerate(table.schema.names)}
        for name in self._words_missing_in:
            place = places[name]
            values = table.column(place)
            if is_text(values.type) and (found := self._words.removed(values, number=True)) is not values:
                table = table.set_column(place, name, found)
        return table

    def _dense(self, table: pa.RecordBatch) -> Rows:
        n = table.num_rows
        columns, start = np.zeros((self.schema.width, n), self._dtype), 0
        for column in self.schema.columns:
            if column.kind in SINGLE:
                columns[start] = self._column.numbers(table.column(column.name), column)
            else:
                codes = self._column.codes(table.column(column.name), column)
                known = np.flatnonzero(codes >= 0)
                columns[start + codes[known], known] = 1
            start += column.width
        self._check_finite(columns, table)
        return Dense(np.ascontiguousarray(columns.T))

    def _sparse(self, table: pa.RecordBatch) -> Rows:
        """One possible entry a row and table column, many of a column of text; zeros and unknown categories are left
        out.
        """
        schema, start = self.schema, 0
        shape = (table.num_rows, sum(c.kind != TEXT for c in schema.columns))
        indices, data, j = np.empty(shape, np.int64), np.empty(shape, self._dtype), 0
        texts = []
        for column in schema.columns:
            values = table.column(column.name)
            if column.kind == TEXT:
                texts.append(self._column.terms(values, column, start))
            elif column.kind in SINGLE:
                indices[:, j], data[:, j] = start, self._column.numbers(values, column)
            elif column.kind == HASHED:
                indices[:, j], data[:, j] = self._column.hashes(values, column.name)
            else:
                codes = self._column.codes(values, column)
                indices[:, j], data[:, j] = start + codes, codes >= 0
            start, j = start + column.width, j + (column.kind != TEXT)
        self._check_finite(data, table)
        if schema.hash_bits or texts:
            return summed([entries_of(indices, data), *texts], table.num_rows, schema.width, self._dtype)
        stored = data != 0
        indptr = np.zeros(len(stored) + 1, np.int64)
        np.cumsum(np.count_nonzero(stored, axis=1), out=indptr[1:])
        return CSR(data[stored], indices[stored].astype(np.int32), indptr)

    def _check_finite(self, numbers: Array, table: pa.RecordBatch) -> None:
        """Raise BadCell when there is a NaN or what is infinite in float32; all columns at once, because there almost
        never is.
        """
        with np.errstate(over="ignore"):
            single = numbers.astype(np.float32, copy=False)
        largest = np.abs(single).max(initial=0)
        if np.isnan(largest):
            largest = np.fmax.reduce(np.abs(single), axis=None, initial=0)
        if largest > WHOLE and np.isfinite(largest) and self._dtype is np.float32:
            self._note_rounded(table)
        if np.isinf(largest) or (not self._missing and np.isnan(single).any()):
            for column in self.schema.columns:
                if column.kind == NUMBER:
                    check_numbers(table.column(column.name), column.name, missing=self._missing)

    def _note_rounded(self, table: pa.RecordBatch) -> None:
        """C16: whole numbers that float32 does not hold."""
        for column in self.schema.columns:
            if column.kind == NUMBER:
                values = plain(table.column(column.name), column.name)
                lossy = int(np.count_nonzero((np.abs(values) > WHOLE) & (values == np.floor(values))))
                if lossy:
                    what = f"whole numbers of {column.name} are beyond 2^24 and are rounded"
                    self._notices[what] = self._notices.get(what, 0) + lossy


def batch_rows(schema: Schema) -> int:
    """Return how many rows make a batch of about ``BATCH_BYTES``."""
    texts = TEXT_ENTRIES * sum(column.kind == TEXT for column in schema.columns)
    row = 8 * (len(schema.columns) + texts) if schema.sparse else 4 * schema.width
    return int(np.clip(BATCH_BYTES // row, 256, 65_536))


def encoded(encoder: TableEncoder, table: pa.RecordBatch, where: str, rows_before: int) -> Batch:
    """Return the rows of a table after ``rows_before`` others. Raises DataError that names file, row and column: of
    several bad cells that of the first row, so that it does not depend on how many rows are encoded together.
    """
    try:
        return encoder.batch(table)
    except BadCell as cell:
        first = _first_bad_cell(encoder, table, cell)
        if first.code == "E-MISSING":
            first.text += (
                f" ({encoder.count_missing(table, first.column)} missing among the {table.num_rows} rows read with it)"
            )
        raise first.error(where, rows_before) from cell


def _first_bad_cell(encoder: TableEncoder, table: pa.RecordBatch, found: BadCell) -> BadCell:
    """The bad cell of the first row that has one. Columns are encoded one after the other: one that comes after the
    column of ``found`` may have a bad cell in an earlier row.
    """
    while found.row:
        try:
            encoder.batch(table.slice(0, found.row))
        except BadCell as earlier:
            found = earlier
        else:
            break
    return found


GROUP = "group"
"""What the text of a group is hashed with."""


@dataclass(frozen=True, slots=True)
class Split:
    """How rows are divided by a column of the table."""

    column: str
    """The column."""
    form: str = ISO
    """How its dates are written; see ``cells.dates``."""
    after: float | dt.datetime | None = None
    """Rows whose value is beyond it, or whose time is not before it, are for testing; None: rows are divided by group."""

    @classmethod
    def of(cls, schema: Schema, options: SourceOptions) -> Split | None:
        """Return the split that a schema is read with; None where rows are divided by chance. Raises UsageError."""
        if schema.split is None:
            return None
        form = next((c.form for c in schema.columns if c.name == schema.split and c.form), ISO)
        after = None if options.split_after is None else bound(options.split_after.partition("=")[2])
        return cls(schema.split, form, after)


def bound(text: str) -> float | dt.datetime:
    """Return the number after which, or the time from which on, rows are for testing.

    Of a date all hours still belong to the rows for training. Raises UsageError.
    """
    try:
        return float(text)
    except ValueError:
        pass
    try:
        moment = dt.datetime.fromisoformat(text)
    except ValueError:
        found = f"--split-after: {quote(text)} is neither a number nor a date"
        raise UsageError(found, hint="write it as --split-after year=2019 or --split-after day=2019-12-31") from None
    whole_day = len(text) <= len("2019-12-31")
    if moment.tzinfo is not None:
        moment = moment.astimezone(dt.UTC)
    return moment.replace(tzinfo=None) + (dt.timedelta(days=1) if whole_day else dt.timedelta(seconds=1))


def split_of(values: Arrow, split: Split) -> Array:
    """Return for each row a hash of its group as uint64 (n,), or whether it is for testing as bool (n,).

    Raises BadCell for a value that is missing, and for one that cannot be compared.
    """
    check_missing(values, split.column)
    if split.after is None:
        texts, rows = distinct_texts(values)
        hashed = [text_hash(GROUP, text) for text in by_value(texts).to_pylist()]
        groups: Array = np.array(hashed, np.uint64)[rows]
        return groups
    later: Array = _later(values, split, split.after).to_numpy(zero_copy_only=False)
    return later


def _later(values: Arrow, split: Split, after: float | dt.datetime) -> Any:
    kind = values.type.value_type if pa.types.is_dictionary(values.type) else values.type
    temporal = pa.types.is_timestamp(kind) or pa.types.is_date(kind)
    if isinstance(after, dt.datetime):
        if not (temporal or is_text(values.type)) and split.form == ISO:
            raise BadCell(0, split.column, "E-DTYPE", f"holds {kind}, not dates", "give --split-after a number")
        return pc.greater_equal(dates(values, split.column, split.form), pa.scalar(after, pa.timestamp("s")))
    if temporal:
        raise BadCell(0, split.column, "E-DTYPE", f"holds {kind}, not numbers", "give --split-after a date: 2019-12-31")
    return pc.greater(numbers(values, split.column), after)
