"""Batches of a table (Arrow) to batches of rows: numbers as they are, categories one-hot, text hashed."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from streamsvm.aliases import Array
from streamsvm.rows import CSR, Dense, Float32, Rows
from streamsvm.store.format.row_layout import take
from streamsvm.store.sources.source_options import SourceOptions
from streamsvm.store.sources.table.cells import Arrow, BadCell, amounts, as_text, booleans, by_value, dates, years
from streamsvm.store.sources.table.layout.columns import (
    AMOUNT,
    CATEGORY,
    HASHED,
    NUMBER,
    OTHER,
    SINGLE,
    TEXT,
    YEARS,
    Column,
)
from streamsvm.store.sources.table.layout.schema import Schema
from streamsvm.store.sources.table.splits import Split, split_of
from streamsvm.store.sources.table.text import distinct_texts, terms_of, text_hash, weighted
from streamsvm.store.sources.table.values import (
    MISSING_HINT,
    RECORDED_MISSING_HINT,
    check_missing,
    check_numbers,
    float32,
    ids_of,
    labels_of,
    plain,
    weights_of,
)
from streamsvm.types import Batch

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
        self._dtype: type[np.floating[Any]] = np.float64 if exact else np.float32
        self._missing = options.missing != "error"
        self._recorded = options.encoding is not None
        self._skips_unlabeled = options.missing_label == "skip"
        self._notices = notices
        self._values = {c.name: pa.array(c.values, pa.string()) for c in schema.columns if c.kind == CATEGORY}
        self._idf = {name: counts.idf() for name, counts in schema.documents.items()}
        self._as_text = by_value if schema.by_value else as_text
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

    def _encoded(self, table: pa.RecordBatch) -> Batch:
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

    def _dense(self, table: pa.RecordBatch) -> Rows:
        n = table.num_rows
        columns, start = np.zeros((self.schema.width, n), self._dtype), 0
        for column in self.schema.columns:
            if column.kind in SINGLE:
                columns[start] = self._numbers(table, column)
            else:
                codes = self._codes(table, column)
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
            if column.kind == TEXT:
                texts.append(self._terms(table.column(column.name), column, start))
            elif column.kind in SINGLE:
                indices[:, j], data[:, j] = start, self._numbers(table, column)
            elif column.kind == HASHED:
                indices[:, j], data[:, j] = self._hashes(table.column(column.name), column.name)
            else:
                codes = self._codes(table, column)
                indices[:, j], data[:, j] = start + codes, codes >= 0
            start, j = start + column.width, j + (column.kind != TEXT)
        self._check_finite(data, table)
        if schema.hash_bits or texts:
            return summed([_entries(indices, data), *texts], table.num_rows, schema.width, self._dtype)
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

    def _numbers(self, table: pa.RecordBatch, column: Column) -> Array:
        """A column that is one number; NaN for a missing value. Raises BadCell."""
        values = table.column(column.name)
        if column.kind != NUMBER:
            return self._written(values, column)
        return plain(values, column.name) if self._dtype is np.float64 else float32(values, column.name)

    def _written(self, values: Arrow, column: Column) -> Array:
        """Numbers that are written as amounts, dates, yes and no; NaN for a missing value. Raises BadCell."""
        if not self._missing:
            check_missing(values, column.name)
        if column.kind == YEARS:
            read = years(dates(values, column.name, column.form))
        elif column.kind == AMOUNT:
            read = amounts(values, column.name, comma=bool(column.form))
        else:
            read = booleans(values, column.name)
        found = float32(read, column.name)
        if np.isinf(found).any():
            row = int(np.argmax(np.isinf(found)))
            raise BadCell(row, column.name, "E-RANGE", f"{read[row].as_py()} does not fit float32", "scale the column")
        return plain(read, column.name) if self._dtype is np.float64 else found

    def _codes(self, table: pa.RecordBatch, column: Column) -> NDArray[np.int64]:
        """Which of ``column.values`` each row has; -1 for one that is not among them."""
        values = table.column(column.name)
        absent = values.null_count
        if not self._missing:
            check_missing(values, column.name)
        if column.kind != CATEGORY:
            read = dates(values, column.name, column.form) if column.form else values
            return _calendar_codes(read, column.kind)
        texts, rows = distinct_texts(values)
        known = pc.index_in(self._as_text(texts), value_set=self._values[column.name])
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

    def _hashes(self, values: Arrow, name: str) -> tuple[NDArray[np.int64], Float32]:
        """The feature column and the sign of each row's text; sign 0 where there is none."""
        if not self._missing:
            check_missing(values, name)
        texts, rows = distinct_texts(values)
        hashed = [text_hash(name, text) for text in self._as_text(texts).to_pylist()]
        codes = np.array([*hashed, 0], np.uint64)[rows]
        signs = np.where(codes >> np.uint64(63), np.float32(-1), np.float32(1))
        signs[rows < 0] = 0
        places = (codes & np.uint64((1 << self.schema.hash_bits) - 1)).astype(np.int64)
        return self.schema.own_width + places, signs

    def _terms(self, values: Arrow, column: Column, start: int) -> Entries:
        """The words of a column of text, weighted. Where there is no text there are none, which is no fault: many words
        of people look like a missing value ('None', 'NA').
        """
        texts, rows = distinct_texts(values)
        terms = terms_of(texts, column)
        found = weighted(terms, self._idf[column.name]).astype(np.float32)
        lengths = np.append(np.diff(terms.indptr), 0)[rows]
        begins = np.cumsum(lengths) - lengths
        which = np.arange(int(lengths.sum())) + np.repeat(np.append(terms.indptr[:-1], 0)[rows] - begins, lengths)
        return Entries(np.repeat(np.arange(len(rows)), lengths), start + terms.places[which], found[which])


class Entries(NamedTuple):
    """Entries of rows, in any order."""

    rows: NDArray[np.int64]
    """The row of each."""
    columns: NDArray[np.int64]
    """The feature column of each."""
    values: Array
    """The value of each, float32 or float64."""


def _entries(indices: NDArray[np.int64], data: Array) -> Entries:
    """The entries of rows (n, k) that are not 0."""
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


def batch_rows(schema: Schema) -> int:
    """Return how many rows make a batch of about ``BATCH_BYTES``."""
    texts = TEXT_ENTRIES * sum(column.kind == TEXT for column in schema.columns)
    row = 8 * (len(schema.columns) + texts) if schema.sparse else 4 * schema.width
    return int(np.clip(BATCH_BYTES // row, 256, 65_536))


def _calendar_codes(values: Arrow, part: str) -> NDArray[np.int64]:
    taken = pc.fill_null({"month": pc.month, "weekday": pc.day_of_week, "hour": pc.hour}[part](values), -1)
    return taken.to_numpy(zero_copy_only=False).astype(np.int64) - (part == "month")


def encoded(encoder: TableEncoder, table: pa.RecordBatch, where: str, rows_before: int) -> Batch:
    """Return the rows of a table after ``rows_before`` others. Raises DataError that names file, row and column."""
    try:
        return encoder.batch(table)
    except BadCell as cell:
        raise cell.error(where, rows_before) from cell
