"""Batches of a table (Arrow) to batches of rows: the features of all columns side by side, dense or sparse."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from streamsvm.aliases import Array
from streamsvm.rows import CSR, Dense, Rows
from streamsvm.store.format.row_layout import take
from streamsvm.store.sources.source_options import SourceOptions
from streamsvm.store.sources.table.cells import BadCell, is_text
from streamsvm.store.sources.table.column_encoder import ColumnEncoder
from streamsvm.store.sources.table.entries import entries_of, summed
from streamsvm.store.sources.table.layout.columns import (
    CALENDAR,
    HASHED,
    NUMBER,
    SINGLE,
    TEXT,
)
from streamsvm.store.sources.table.layout.schema import Schema
from streamsvm.store.sources.table.splits import Split, split_of
from streamsvm.store.sources.table.values import (
    MISSING_HINT,
    RECORDED_MISSING_HINT,
    check_numbers,
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
