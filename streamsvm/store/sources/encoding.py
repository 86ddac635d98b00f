"""Encode the rows of a table (Arrow) as features, dense or sparse, with labels, weights, ids and splits.

``TableEncoder`` encodes batches by a ``Schema``, each column by its kind: as a number, possibly parsed from text, as
one-hot codes, as hashes, or as words. ``find_bad_cells`` and ``unreadable_rows`` find the rows that cannot be encoded,
so that they can be left out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from streamsvm.errors import quote
from streamsvm.rows import CSR, Dense, Float32, Rows, row_where
from streamsvm.store.sources.cell_parsing import (
    EPOCH,
    EXAMPLES,
    FIRST_SECOND,
    ID_HINT,
    ISO,
    LAST_SECOND,
    MISSING_HINT,
    MISSING_LABEL,
    MISSING_LABEL_HINT,
    MISSING_TEXT,
    PLAIN_NUMBER,
    RECORDED_MISSING_HINT,
    RECORDED_WRITTEN_HINT,
    TWO_DIGIT_YEARS,
    UTC_ZONE,
    WEIGHT_HINT,
    WRITTEN_HINT,
    Arrow,
    BadCell,
    MissingWords,
    check_missing,
    check_numbers,
    count_years,
    find_missing,
    has_other_zone,
    is_integer_id,
    is_text,
    parse_amounts,
    parse_amounts_or_null,
    parse_booleans,
    parse_booleans_or_null,
    parse_dates,
    parse_dates_or_null,
    parse_ids,
    parse_labels,
    parse_weights,
    to_canonical_text,
    to_float32,
    to_numpy,
    to_text,
)
from streamsvm.store.sources.offsets import LARGEST_EXACT
from streamsvm.store.sources.options import SourceOptions
from streamsvm.store.sources.schema import (
    AMOUNT,
    BOOLEAN,
    CALENDAR,
    CATEGORY,
    HASHED,
    NUMBER,
    OTHER,
    SINGLE,
    TEXT,
    VECTOR,
    YEARS,
    Column,
    Schema,
)
from streamsvm.store.sources.split import Split, find_later
from streamsvm.store.sources.text_features import distinct_texts, terms_of, text_hash, to_hashed_text, weigh
from streamsvm.store.sources.vectors import explain_vector, find_bad_vectors, parse_vectors
from streamsvm.type_aliases import Array
from streamsvm.types import Batch

BATCH_BYTES = 2 << 20
"""Bytes of the encoded rows of one batch."""
TEXT_ENTRIES = 64
"""The assumed number of entries per row of a column of text, by which the rows of a batch are chosen."""
TEXT_WITH_MEANING = (AMOUNT, BOOLEAN, YEARS, *CALENDAR)
"""The kinds of columns whose text must be an amount, a date, yes or no."""
GROUP_SALT = "group"
"""Hashed with the text of a group, so that these hashes differ from those of columns."""
NESTED_HINT = "give the column the kind it had in training"


class TableEncoder:
    """Encodes batches by a ``Schema``, in float32 or, with ``exact``, in float64.

    If missing values are allowed, missing numbers become NaN, which ``preprocessing`` fills, and missing categories get
    no one-hot entry. Categories that the schema does not know are counted in ``notices``.
    """

    def __init__(self, schema: Schema, notices: dict[str, int], options: SourceOptions, *, exact: bool = False) -> None:
        self.schema = schema
        self._dtype: type[np.floating[Any]] = np.float64 if exact else np.float32
        self._missing = options.missing != "error"
        """Whether a value may be missing."""
        self._is_recorded = options.encoding is not None
        self._skips_unlabeled = options.missing_label == "skip"
        self._words = options.words
        self._parsed_columns = {c.name for c in schema.columns if c.kind in (*SINGLE, *CALENDAR)}
        """Columns in which words for a missing number count as missing."""
        self._notices = notices
        self._ids_are_text: bool | None = None
        """Whether ids are text; None before the first batch."""
        self._split = Split.of(schema, options)
        self._values = {c.name: pa.array(c.values, pa.string()) for c in schema.columns if c.kind == CATEGORY}
        self._trims = {name for name, values in self._values.items() if _differ_when_trimmed(values)}
        """Categories whose values are compared without the blanks around them, because no two differ by these alone."""
        self._idf = {name: counts.idf() for name, counts in schema.documents.items()}

    def _parse_ids(self, values: pa.Array, name: str) -> Array:
        """Return the ids of a batch, of the type of those of the first batch: a file of ids has one type."""
        if self._ids_are_text is None:
            self._ids_are_text = not is_integer_id(values)
        return parse_ids(values, name, as_text=self._ids_are_text)

    def encode(self, table: pa.RecordBatch) -> Batch:
        """Encode one batch of rows, without those that lack a label if options say so. Raises BadCell."""
        label, weight_column, id_column = self.schema.label, self.schema.weight, self.schema.id_column
        try:
            table = self._null_out_words(table)
            X = self._sparse(table) if self.schema.sparse else self._dense(table)
            weight = None if weight_column is None else parse_weights(table.column(weight_column), weight_column)
            ids = None if id_column is None else self._parse_ids(table.column(id_column), id_column)
            split = None if self._split is None else split_of(table.column(self._split.column), self._split)
            if label is None:
                return Batch(X, np.empty(0), weight, ids, split)
            labels = table.column(label)
            if self._skips_unlabeled and labels.null_count:
                labeled = labels.is_valid().to_numpy(zero_copy_only=False)
                X, labels = row_where(X, labeled), labels.drop_null()
                weight, ids, split = (None if part is None else part[labeled] for part in (weight, ids, split))
            if self.schema.label_amount is not None:
                labels = parse_amounts(labels, label, comma=bool(self.schema.label_amount))
            return Batch(X, parse_labels(labels, label), weight, ids, split)
        except BadCell as cell:
            if self._is_recorded and cell.hint == MISSING_HINT:
                cell.hint = RECORDED_MISSING_HINT
            elif self._is_recorded and cell.hint == WRITTEN_HINT:
                cell.hint = RECORDED_WRITTEN_HINT
            raise
        except pa.ArrowNotImplementedError as error:  # a later batch may have columns of other types
            for column in table.schema:
                if pa.types.is_nested(column.type) and column.name not in self.schema.dropped:
                    raise BadCell(0, column.name, "E-DTYPE", f"holds {column.type}", NESTED_HINT) from error
            raise

    def count_missing(self, table: pa.RecordBatch, name: str) -> int:
        """Return the number of missing values of a column, including words that stand for a missing value."""
        return int(np.count_nonzero(find_missing(self._null_out_words(table).column(name))))

    def _null_out_words(self, table: pa.RecordBatch) -> pa.RecordBatch:
        """Return the rows with null for words that stand for a missing number, amount, date, yes or no."""
        places = {name: place for place, name in enumerate(table.schema.names)}
        for name in self._parsed_columns:
            place = places[name]
            values = table.column(place)
            if is_text(values.type) and (without_words := self._words.remove(values, number=True)) is not values:
                table = table.set_column(place, name, without_words)
        return table

    def _dense(self, table: pa.RecordBatch) -> Rows:
        n, has_vectors = table.num_rows, any(column.kind == VECTOR for column in self.schema.columns)
        # vectors lie row by row in memory, other columns one after the other
        shape = (n, self.schema.width) if has_vectors else (self.schema.width, n)
        columns, start = np.zeros(shape, self._dtype), 0
        columns = columns.T if has_vectors else columns
        for column in self.schema.columns:
            if column.kind == VECTOR:
                columns[start : start + column.size] = self._vectors(table.column(column.name), column).T
            elif column.kind in SINGLE:
                columns[start] = self._numbers(table.column(column.name), column)
            else:
                codes = self._codes(table.column(column.name), column)
                known_rows = np.flatnonzero(codes >= 0)
                columns[start + codes[known_rows], known_rows] = 1
            start += column.width
        self._check_finite(columns, table)
        return Dense(np.ascontiguousarray(columns.T))

    def _sparse(self, table: pa.RecordBatch) -> Rows:
        """Return the rows as CSR: at most one entry per row and column of the table, many per column of text or vectors;
        zeros and unknown categories are not stored.
        """
        schema, start = self.schema, 0
        shape = (table.num_rows, schema.entries)
        indices, data, j = np.empty(shape, np.int64), np.empty(shape, self._dtype), 0
        texts = []
        for column in schema.columns:
            values = table.column(column.name)
            if column.kind == TEXT:
                texts.append(self._terms(values, column, start))
            elif column.kind == VECTOR:
                indices[:, j : j + column.size] = start + np.arange(column.size)
                data[:, j : j + column.size] = self._vectors(values, column)
            elif column.kind in SINGLE:
                indices[:, j], data[:, j] = start, self._numbers(values, column)
            elif column.kind == HASHED:
                indices[:, j], data[:, j] = self._hashes(values, column.name)
            else:
                codes = self._codes(values, column)
                indices[:, j], data[:, j] = start + codes, codes >= 0
            start, j = start + column.width, j + (column.size or column.kind != TEXT)
        self._check_finite(data, table)
        if schema.hash_bits or texts:
            return sum_entries([entries_of(indices, data), *texts], table.num_rows, schema.width, self._dtype)
        stored = data != 0
        indptr = np.zeros(len(stored) + 1, np.int64)
        np.cumsum(np.count_nonzero(stored, axis=1), out=indptr[1:])
        return CSR(data[stored], indices[stored].astype(np.int32), indptr)

    def _check_finite(self, numbers: Array, table: pa.RecordBatch) -> None:
        """Raise BadCell for NaN, unless values may be missing, and for numbers that are infinite in float32.

        ``numbers``: the encoded columns; they are checked together, and only if that fails one by one.
        """
        with np.errstate(over="ignore"):
            single = numbers.astype(np.float32, copy=False)
        largest = np.abs(single).max(initial=0)
        if np.isnan(largest):
            largest = np.fmax.reduce(np.abs(single), axis=None, initial=0)
        if largest > LARGEST_EXACT and np.isfinite(largest) and self._dtype is np.float32:
            self._count_rounded(table)
        if np.isinf(largest) or (not self._missing and np.isnan(single).any()):
            for column in self.schema.columns:
                if column.kind == NUMBER:
                    check_numbers(table.column(column.name), column.name, missing=self._missing)

    def _count_rounded(self, table: pa.RecordBatch) -> None:
        """Count in the notices the integers that float32 rounds."""
        for column in self.schema.columns:
            if column.kind == NUMBER:
                values = to_numpy(table.column(column.name), column.name)
                lossy = int(np.count_nonzero((np.abs(values) > LARGEST_EXACT) & (values == np.floor(values))))
                if lossy:
                    notice = f"whole numbers of {column.name} are beyond 2^24 and are rounded"
                    self._notices[notice] = self._notices.get(notice, 0) + lossy

    def _numbers(self, values: Arrow, column: Column) -> Array:
        """Return a column that is encoded as one number (n,); NaN for a missing value. Raises BadCell."""
        if column.kind != NUMBER:
            return self._parse_as_numbers(values, column)
        return to_numpy(values, column.name) if self._dtype is np.float64 else to_float32(values, column.name)

    def _vectors(self, values: Arrow, column: Column) -> Array:
        """Return a column of vectors (n, size); NaN for a missing vector. Raises BadCell."""
        if not self._missing:
            check_missing(values, column.name)
        return parse_vectors(values, column.name, column.size, self._dtype)

    def _parse_as_numbers(self, values: Arrow, column: Column) -> Array:
        """Return amounts, dates, yes and no as numbers (n,); NaN for a missing value. Raises BadCell."""
        if not self._missing:
            check_missing(values, column.name)
        if column.kind == YEARS:
            parsed = count_years(self._moments(values, column))
        elif column.kind == AMOUNT:
            parsed = parse_amounts(values, column.name, comma=bool(column.form))
        else:
            parsed = parse_booleans(values, column.name)
        single = to_float32(parsed, column.name)
        if np.isinf(single).any():
            check_numbers(parsed, column.name, missing=True)
        return to_numpy(parsed, column.name) if self._dtype is np.float64 else single

    def _moments(self, values: Arrow, column: Column) -> Arrow:
        """Return the points in time of a column as timestamps: in UTC, or in its time zone if its type has one and the
        values are not parsed from text. Raises BadCell.
        """
        if column.kind == YEARS and column.form.endswith("%y"):
            notice = f"two-digit years of {quote(column.name)} are read as {TWO_DIGIT_YEARS}"
            self._notices[notice] = self._notices.get(notice, 0) + len(values) - values.null_count
        moments = parse_dates(values, column.name, column.form or ISO, column.zone)
        if column.form or not column.zone:
            return moments
        return pc.assume_timezone(moments, UTC_ZONE).cast(pa.timestamp("s", column.zone))

    def _codes(self, values: Arrow, column: Column) -> NDArray[np.int64]:
        """Return the index in ``column.values`` of each row's value (n,); -1 for an unknown one. Raises BadCell."""
        if not self._missing:
            check_missing(values, column.name)
        if column.kind != CATEGORY:
            return _calendar_codes(self._moments(values, column), column.kind)
        texts, rows = distinct_texts(values)
        missing = int(np.count_nonzero(rows < 0))
        texts, known_values = to_canonical_text(texts), self._values[column.name]
        if column.name in self._trims:
            texts, known_values = pc.utf8_trim_whitespace(texts), pc.utf8_trim_whitespace(known_values)
        text_codes = pc.index_in(texts, value_set=known_values)
        text_codes = np.append(pc.fill_null(text_codes, -1).to_numpy(zero_copy_only=False).astype(np.int64), -1)
        codes: NDArray[np.int64] = text_codes[rows]
        if unknown := int(np.count_nonzero(codes < 0)) - missing:
            if column.values[-1:] == (OTHER,):
                codes[(rows >= 0) & (codes < 0)] = len(column.values) - 1
            else:
                self._notices[f"unknown categories of {column.name}"] += unknown
        if missing:
            self._notices["missing categories"] = self._notices.get("missing categories", 0) + missing
        return codes

    def _hashes(self, values: Arrow, name: str) -> tuple[NDArray[np.int64], Float32]:
        """Return the feature column and the sign to which the text of each row is hashed, (n,) both; the sign of a
        missing text is 0. Raises BadCell.
        """
        if not self._missing:
            check_missing(values, name)
        texts, rows = distinct_texts(values)
        hashed = [text_hash(name, text) for text in to_hashed_text(texts).to_pylist()]
        codes = np.array([*hashed, 0], np.uint64)[rows]
        signs = np.where(codes >> np.uint64(63), np.float32(-1), np.float32(1))
        signs[rows < 0] = 0
        places = (codes & np.uint64((1 << self.schema.hash_bits) - 1)).astype(np.int64)
        return self.schema.own_width + places, signs

    def _terms(self, values: Arrow, column: Column, start: int) -> Entries:
        """Return the weighted words of a column of text, in feature columns from ``start`` on.

        A missing text has no words. It is not an error, because texts such as 'None' and 'NA' count as missing.
        """
        texts, rows = distinct_texts(values)
        terms = terms_of(texts, column)
        term_values = weigh(terms, self._idf[column.name]).astype(np.float32)
        lengths = np.append(np.diff(terms.indptr), 0)[rows]
        row_starts = np.cumsum(lengths) - lengths
        places = np.arange(int(lengths.sum())) + np.repeat(
            np.append(terms.indptr[:-1], 0)[rows] - row_starts, lengths
        )  # of the term of each entry
        return Entries(np.repeat(np.arange(len(rows)), lengths), start + terms.places[places], term_values[places])


def batch_rows(schema: Schema) -> int:
    """Return the number of rows of a batch of about ``BATCH_BYTES``."""
    texts = TEXT_ENTRIES * sum(column.kind == TEXT for column in schema.columns)
    row = 8 * (schema.entries + texts) if schema.sparse else 4 * schema.width
    return int(np.clip(BATCH_BYTES // row, 256, 65_536))


def _differ_when_trimmed(values: Arrow) -> bool:
    """Return whether all values are still distinct after the blanks around them are removed."""
    return len(pc.utf8_trim_whitespace(values).unique()) == len(values)


def _calendar_codes(values: Arrow, part: str) -> NDArray[np.int64]:
    """Return month, weekday or hour of points in time, from 0, (n,); negative for a missing value."""
    codes = pc.fill_null({"month": pc.month, "weekday": pc.day_of_week, "hour": pc.hour}[part](values), -1)
    return codes.to_numpy(zero_copy_only=False).astype(np.int64) - (part == "month")


class Entries(NamedTuple):
    """Entries of sparse rows in any order: the row, the feature column, and the value (float32 or float64) of each."""

    rows: NDArray[np.int64]
    columns: NDArray[np.int64]
    values: Array


def entries_of(indices: NDArray[np.int64], data: Array) -> Entries:
    """Return the nonzero entries of rows with values ``data`` (n, k) in the feature columns ``indices`` (n, k)."""
    stored = data != 0
    return Entries(np.nonzero(stored)[0], indices[stored], data[stored])


def sum_entries(parts: list[Entries], rows: int, width: int, dtype: type[np.floating[Any]] = np.float32) -> CSR:
    """Return entries as CSR rows; those of the same row and column are added in float64, then rounded to ``dtype``."""
    keys, inverse = np.unique(np.concatenate([part.rows * width + part.columns for part in parts]), return_inverse=True)
    values = np.concatenate([part.values for part in parts])
    sums = np.bincount(inverse, weights=values, minlength=len(keys)).astype(dtype)
    row, column = np.divmod(keys[sums != 0], width)
    indptr = np.searchsorted(row, np.arange(rows + 1)).astype(np.int64)
    return CSR(sums[sums != 0], column.astype(np.int32), indptr)


def find_bad_cells(
    table: pa.RecordBatch, schema: Schema, options: SourceOptions, *, features: bool
) -> dict[int, BadCell]:
    """Return the first bad cell of each row that cannot be encoded, by row.

    Bad cells are features that cannot be parsed or must not be missing (checked if ``features``), invalid weights, and
    missing labels, groups and ids that are integers.
    """
    cells: dict[int, BadCell] = {}

    def add_cells(is_bad: NDArray[np.bool_], name: str, explain: Callable[[Arrow], BadCell] | BadCell) -> None:
        values, explained = table.column(name), dict[Any, BadCell]()
        for row in np.flatnonzero(is_bad).tolist():
            if row not in cells:
                value = str(values[row]) if pa.types.is_nested(values.type) else values[row].as_py()
                if value not in explained:
                    explained[value] = explain if isinstance(explain, BadCell) else explain(values.slice(row, 1))
                cell = explained[value]
                cells[row] = BadCell(row, name, cell.code, cell.text, cell.hint)

    missing = options.missing != "error"
    for column in schema.columns if features else ():
        for name in column.sources:
            values = table.column(name)
            is_refused = unreadable_values(values, column, options.words, missing=missing)
            if not is_refused.any():
                continue
            is_bad = is_refused if missing else unreadable_values(values, column, options.words, missing=True)
            add_cells(is_bad, name, partial(_explain_value, column=column, options=options))
            lacking = BadCell(0, name, "E-MISSING", MISSING_TEXT, MISSING_HINT)
            add_cells(is_refused & ~is_bad, name, lacking)
    if schema.label_amount is not None and schema.label is not None and features:
        column = Column(schema.label, AMOUNT, form=schema.label_amount)
        is_bad = unreadable_values(table.column(schema.label), column, options.words, missing=True)
        add_cells(is_bad, schema.label, partial(_explain_label, name=schema.label))
    if schema.weight is not None:
        is_bad = are_invalid_weights(table.column(schema.weight))
        add_cells(is_bad, schema.weight, partial(_explain_weight, name=schema.weight))
    if schema.id_column is not None and is_integer_id(table.column(schema.id_column)):
        is_missing = table.column(schema.id_column).is_null().to_numpy(zero_copy_only=False)
        add_cells(is_missing, schema.id_column, BadCell(0, schema.id_column, "E-MISSING", MISSING_TEXT, ID_HINT))
    if schema.split is not None:
        ungrouped = BadCell(0, schema.split, "E-MISSING", MISSING_TEXT, MISSING_HINT)
        add_cells(find_missing(table.column(schema.split)), schema.split, ungrouped)
    if schema.label is not None and options.missing_label != "skip":
        unlabeled = BadCell(0, schema.label, "E-LABEL", MISSING_LABEL, MISSING_LABEL_HINT)
        add_cells(find_missing(table.column(schema.label)), schema.label, unlabeled)
    return cells


def _explain_value(value: Arrow, column: Column, options: SourceOptions) -> BadCell:
    """Return the error that encoding a bad value raises; ``value``: a column of one row, which is not missing."""
    if column.kind == VECTOR:
        return explain_vector(value, column.name, column.size)
    content = value[0].as_py()
    if column.kind == NUMBER or not isinstance(content, str):
        try:
            float(content)
            check_numbers(value, column.name)
        except BadCell as cell:
            return cell
        except (ValueError, TypeError):  # not a number
            pass
    is_date = column.kind in (YEARS, *CALENDAR)
    if column.form == EPOCH or not isinstance(content, str) or (is_date and (column.zone or content.count(":"))):
        try:
            TableEncoder(Schema((column,), None), Counter(), options).encode(pa.record_batch([value], [column.name]))
        except BadCell as cell:
            return cell
    return BadCell(
        0, column.name, "E-PARSE", f"expected {describe_expected_text(column)}, found {quote(content)}", WRITTEN_HINT
    )


def _explain_label(value: Arrow, name: str) -> BadCell:
    """Return the error for a label that is no number."""
    return BadCell(0, name, "E-LABEL", f"{quote(value[0].as_py())} is no number", WRITTEN_HINT)


def _explain_weight(value: Arrow, name: str) -> BadCell:
    """Return the error that parsing an invalid weight, a column of one row, raises."""
    try:
        parse_weights(value, name)
    except BadCell as cell:
        return cell
    return BadCell(0, name, "E-RANGE", f"{quote(value[0].as_py())} is no weight", WEIGHT_HINT)


def are_invalid_weights(values: Arrow) -> NDArray[np.bool_]:
    """Return whether each value of a column is not a number of at least 0 that fits float32, (n,)."""
    if is_text(values.type):
        texts = to_text(values.dictionary_decode() if pa.types.is_dictionary(values.type) else values)
        values = _numbers_of(pc.utf8_trim_whitespace(texts))
    try:
        weights = values.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False)
    except (pa.ArrowNotImplementedError, pa.ArrowInvalid):  # times, lists and bytes are not numbers
        return np.ones(len(values), np.bool_)
    return ~((weights >= 0) & (weights <= float(np.finfo(np.float32).max)))


def unreadable_rows(
    table: pa.RecordBatch | pa.Table, columns: Iterable[Column], words: MissingWords, *, missing: bool
) -> NDArray[np.bool_]:
    """Return whether each row has a value that cannot be encoded, (n,); ``missing``: whether values may be missing."""
    is_bad = np.zeros(table.num_rows, np.bool_)
    for column in columns:
        for name in column.sources:
            values = table.column(name)
            values = values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values
            is_bad |= unreadable_values(values, column, words, missing=missing)
    return is_bad


def unreadable_values(values: Arrow, column: Column, words: MissingWords, *, missing: bool) -> NDArray[np.bool_]:
    """Return whether each value of a column cannot be encoded, (n,).

    ``missing``: whether values may be missing; NaN counts as missing.
    """
    if column.kind == TEXT:
        return np.zeros(len(values), np.bool_)
    if column.kind == VECTOR:
        is_bad = find_bad_vectors(values, column.size)
        return is_bad if missing else is_bad | find_missing(values)
    if column.kind == NUMBER or column.kind in TEXT_WITH_MEANING:
        values = words.remove(values, number=True)
    is_missing = values.is_null(nan_is_null=True).to_numpy(zero_copy_only=False)
    is_bad = _cannot_be_parsed(values, column)
    if not missing:
        return is_bad | is_missing
    return is_bad & ~is_missing


def _cannot_be_parsed(values: Arrow, column: Column) -> NDArray[np.bool_]:
    """Return whether each value cannot be parsed as the kind of a column (n,); undefined for missing values."""
    if column.kind == NUMBER or column.kind in TEXT_WITH_MEANING:
        if is_text(values.type):
            encoded = values if pa.types.is_dictionary(values.type) else values.dictionary_encode()
            texts = pc.utf8_trim_whitespace(encoded.dictionary.cast(pa.string()))
            text_is_bad = np.append(pc.is_null(_parse_or_null(texts, column)).to_numpy(zero_copy_only=False), True)
            is_bad: NDArray[np.bool_] = text_is_bad[pc.fill_null(encoded.indices.cast(pa.int64()), -1).to_numpy()]
            return is_bad
        if pa.types.is_floating(values.type) or pa.types.is_integer(values.type):
            numbers = values.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False)
            if column.form == EPOCH:
                return ~((numbers >= FIRST_SECOND) & (numbers <= LAST_SECOND))
            with np.errstate(over="ignore"):
                return ~np.isfinite(numbers.astype(np.float32))
    return np.zeros(len(values), np.bool_)


def _parse_or_null(texts: Arrow, column: Column) -> Any:
    """Return texts parsed as the kind of a column; null for those that cannot be parsed."""
    if column.kind == BOOLEAN:
        return parse_booleans_or_null(texts)
    if column.kind in (NUMBER, AMOUNT) or column.form == EPOCH:
        is_amount = column.kind == AMOUNT
        numbers = parse_amounts_or_null(texts, comma=bool(column.form)) if is_amount else _numbers_of(texts)
        limit = float(LAST_SECOND) if column.form == EPOCH else float(np.finfo(np.float32).max)
        return pc.if_else(pc.less_equal(pc.abs(numbers), limit), numbers, pa.scalar(None, pa.float64()))
    moments = parse_dates_or_null(texts, column.form or ISO)
    if (column.form or ISO) == ISO:
        moments = pc.if_else(has_other_zone(texts, column.zone), pa.scalar(None, moments.type), moments)
    return moments


def _numbers_of(texts: Arrow) -> Any:
    """Return texts as float64; null for a text that is not a plain number."""
    plain = pc.if_else(pc.match_substring_regex(texts, PLAIN_NUMBER), texts, pa.scalar(None, pa.string()))
    return pc.replace_substring_regex(plain, r"^\+", "").cast(pa.float64())


def describe_expected_text(column: Column) -> str:
    """Return what the text of a column must be, in words."""
    amount = "an amount such as 1.234,50" if column.form else "an amount"
    texts = {NUMBER: "a number", AMOUNT: amount, BOOLEAN: "yes or no"}
    return texts.get(column.kind) or f"a date such as {EXAMPLES.get(column.form, EXAMPLES[ISO])}"


def check_text(text: str, column: Column) -> None:
    """Raise BadCell for a text that a column of ``TEXT_WITH_MEANING`` cannot hold."""
    values = pa.array([text])
    if column.kind == AMOUNT:
        parse_amounts(values, column.name, comma=bool(column.form))
    elif column.kind == BOOLEAN:
        parse_booleans(values, column.name)
    else:
        parse_dates(values, column.name, column.form or ISO, column.zone)


def split_of(values: Arrow, split: Split) -> Array:
    """Return the hash of the group of each row, uint64 (n,), or whether each row is held out, bool (n,).

    Raises BadCell for a missing value, and for one that cannot be compared with ``split.after``.
    """
    check_missing(values, split.column)
    if split.after is None:
        texts, rows = distinct_texts(values)
        hashed = [text_hash(GROUP_SALT, text) for text in to_canonical_text(texts).to_pylist()]
        groups: Array = np.array(hashed, np.uint64)[rows]
        return groups
    is_later: Array = find_later(values, split, split.after).to_numpy(zero_copy_only=False)
    return is_later
