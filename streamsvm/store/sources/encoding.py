"""Rows of a table (Arrow) as features: the columns of a batch side by side, dense or sparse, with labels, weights, ids
and splits.

``TableEncoder`` encodes batches by a ``Schema``, each column by its kind: numbers as they are or as they are written,
one-hot codes, hashes, words. ``unreadable_rows`` says which rows cannot be encoded, for those who
skip them.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from streamsvm.aliases import Array
from streamsvm.errors import UsageError, quote
from streamsvm.rows import CSR, Dense, Float32, Rows, row_where
from streamsvm.store.sources.cell_parsing import (
    EPOCH,
    FIRST_SECOND,
    ISO,
    LAST_SECOND,
    MISSING_HINT,
    RECORDED_MISSING_HINT,
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
    has_other_zone,
    is_text,
    parse_amounts,
    parse_amounts_or_null,
    parse_booleans,
    parse_booleans_or_null,
    parse_dates,
    parse_dates_or_null,
    parse_ids,
    parse_labels,
    parse_numbers,
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
    YEARS,
    Column,
    Schema,
)
from streamsvm.store.sources.text_features import distinct_texts, terms_of, text_hash, weigh
from streamsvm.types import Batch

BATCH_BYTES = 2 << 20
"""Bytes of the rows made of one batch."""
TEXT_ENTRIES = 64
"""Entries that a column of text is taken to have in a row, by which batches are cut."""
TEXT_WITH_MEANING = (AMOUNT, BOOLEAN, YEARS, *CALENDAR)
"""The kinds of columns whose text must be an amount, a date, yes or no."""
_PLAIN_NUMBER = r"^[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?$"
GROUP_SALT = "group"
"""Hashed with the text of a group, which sets these hashes apart from those of columns."""
MISSING_TEXT = "the value is missing"
NESTED_HINT = "give the column the kind it had in training"


class TableEncoder:
    """Encodes batches as a ``Schema`` says, in float32 or, where they are to be ``exact``, in float64.

    With a policy for missing values, missing numbers become NaN, which ``preprocessing`` fills, and missing categories are
    none of the known ones. Categories that are new since the census are counted in ``notices``.
    """

    def __init__(self, schema: Schema, notices: dict[str, int], options: SourceOptions, *, exact: bool = False) -> None:
        self.schema = schema
        self._dtype: type[np.floating[Any]] = np.float64 if exact else np.float32
        self._missing = options.missing != "error"
        """Whether a value may be missing."""
        self._recorded = options.encoding is not None
        self._skips_unlabeled = options.missing_label == "skip"
        self._words = options.words
        self._words_missing_in = {c.name for c in schema.columns if c.kind in (*SINGLE, *CALENDAR)}
        self._notices = notices
        self._split = Split.of(schema, options)
        self._values = {c.name: pa.array(c.values, pa.string()) for c in schema.columns if c.kind == CATEGORY}
        self._trims = {name for name, values in self._values.items() if _differ_when_trimmed(values)}
        """Categories whose values may have blanks around them: no two differ by these alone."""
        self._idf = {name: counts.idf() for name, counts in schema.documents.items()}

    def encode(self, table: pa.RecordBatch) -> Batch:
        """Encode one batch of rows; those without a label are left out where that is asked for. Raises BadCell."""
        label, weight_column, id_column = self.schema.label, self.schema.weight, self.schema.id_column
        try:
            table = self._with_words_missing(table)
            X = self._sparse(table) if self.schema.sparse else self._dense(table)
            weight = None if weight_column is None else parse_weights(table.column(weight_column), weight_column)
            ids = None if id_column is None else parse_ids(table.column(id_column))
            split = None if self._split is None else split_of(table.column(self._split.column), self._split)
            if label is None:
                return Batch(X, np.empty(0), weight, ids, split)
            given = table.column(label)
            if self._skips_unlabeled and given.null_count:
                labeled = given.is_valid().to_numpy(zero_copy_only=False)
                X, given = row_where(X, labeled), given.drop_null()
                weight, ids, split = (None if part is None else part[labeled] for part in (weight, ids, split))
            return Batch(X, parse_labels(given, label), weight, ids, split)
        except BadCell as cell:
            if self._recorded and cell.hint == MISSING_HINT:
                cell.hint = RECORDED_MISSING_HINT
            raise
        except pa.ArrowNotImplementedError as error:  # later rows may have other types
            for column in table.schema:
                if pa.types.is_nested(column.type) and column.name not in self.schema.dropped:
                    raise BadCell(0, column.name, "E-DTYPE", f"holds {column.type}", NESTED_HINT) from error
            raise

    def count_missing(self, table: pa.RecordBatch, name: str) -> int:
        """Return how many values of a column are missing, words that say so included."""
        return int(self._with_words_missing(table).column(name).null_count)

    def _with_words_missing(self, table: pa.RecordBatch) -> pa.RecordBatch:
        """The rows with null for words that stand for a missing number, amount, date, yes or no."""
        places = {name: place for place, name in enumerate(table.schema.names)}
        for name in self._words_missing_in:
            place = places[name]
            values = table.column(place)
            if is_text(values.type) and (found := self._words.remove(values, number=True)) is not values:
                table = table.set_column(place, name, found)
        return table

    def _dense(self, table: pa.RecordBatch) -> Rows:
        n = table.num_rows
        columns, start = np.zeros((self.schema.width, n), self._dtype), 0
        for column in self.schema.columns:
            if column.kind in SINGLE:
                columns[start] = self._numbers(table.column(column.name), column)
            else:
                codes = self._codes(table.column(column.name), column)
                known = np.flatnonzero(codes >= 0)
                columns[start + codes[known], known] = 1
            start += column.width
        self._check_finite(columns, table)
        return Dense(np.ascontiguousarray(columns.T))

    def _sparse(self, table: pa.RecordBatch) -> Rows:
        """The rows as CSR: one possible entry for a row and a table column, many for a column of text; without zeros
        and unknown categories.
        """
        schema, start = self.schema, 0
        shape = (table.num_rows, sum(c.kind != TEXT for c in schema.columns))
        indices, data, j = np.empty(shape, np.int64), np.empty(shape, self._dtype), 0
        texts = []
        for column in schema.columns:
            values = table.column(column.name)
            if column.kind == TEXT:
                texts.append(self._terms(values, column, start))
            elif column.kind in SINGLE:
                indices[:, j], data[:, j] = start, self._numbers(values, column)
            elif column.kind == HASHED:
                indices[:, j], data[:, j] = self._hashes(values, column.name)
            else:
                codes = self._codes(values, column)
                indices[:, j], data[:, j] = start + codes, codes >= 0
            start, j = start + column.width, j + (column.kind != TEXT)
        self._check_finite(data, table)
        if schema.hash_bits or texts:
            return sum_entries([entries_of(indices, data), *texts], table.num_rows, schema.width, self._dtype)
        stored = data != 0
        indptr = np.zeros(len(stored) + 1, np.int64)
        np.cumsum(np.count_nonzero(stored, axis=1), out=indptr[1:])
        return CSR(data[stored], indices[stored].astype(np.int32), indptr)

    def _check_finite(self, numbers: Array, table: pa.RecordBatch) -> None:
        """Raise BadCell for NaN and for what is infinite in float32; all columns are checked at once."""
        with np.errstate(over="ignore"):
            single = numbers.astype(np.float32, copy=False)
        largest = np.abs(single).max(initial=0)
        if np.isnan(largest):
            largest = np.fmax.reduce(np.abs(single), axis=None, initial=0)
        if largest > LARGEST_EXACT and np.isfinite(largest) and self._dtype is np.float32:
            self._note_rounded(table)
        if np.isinf(largest) or (not self._missing and np.isnan(single).any()):
            for column in self.schema.columns:
                if column.kind == NUMBER:
                    check_numbers(table.column(column.name), column.name, missing=self._missing)

    def _note_rounded(self, table: pa.RecordBatch) -> None:
        """Count whole numbers that float32 rounds."""
        for column in self.schema.columns:
            if column.kind == NUMBER:
                values = to_numpy(table.column(column.name), column.name)
                lossy = int(np.count_nonzero((np.abs(values) > LARGEST_EXACT) & (values == np.floor(values))))
                if lossy:
                    what = f"whole numbers of {column.name} are beyond 2^24 and are rounded"
                    self._notices[what] = self._notices.get(what, 0) + lossy

    def _numbers(self, values: Arrow, column: Column) -> Array:
        """Return a column that is one number (n,); NaN for a missing value. Raises BadCell."""
        if column.kind != NUMBER:
            return self._read_written(values, column)
        return to_numpy(values, column.name) if self._dtype is np.float64 else to_float32(values, column.name)

    def _read_written(self, values: Arrow, column: Column) -> Array:
        """Numbers that are written as amounts, dates, yes and no; NaN for a missing value. Raises BadCell."""
        if not self._missing:
            check_missing(values, column.name)
        if column.kind == YEARS:
            read = count_years(self._moments(values, column))
        elif column.kind == AMOUNT:
            read = parse_amounts(values, column.name, comma=bool(column.form))
        else:
            read = parse_booleans(values, column.name)
        found = to_float32(read, column.name)
        if np.isinf(found).any():
            row = int(np.argmax(np.isinf(found)))
            raise BadCell(row, column.name, "E-RANGE", f"{read[row].as_py()} does not fit float32", "scale the column")
        return to_numpy(read, column.name) if self._dtype is np.float64 else found

    def _moments(self, values: Arrow, column: Column) -> Arrow:
        """The points in time of a column, in UTC; where its type has a time zone and only parts of the calendar are
        made of it, as clocks of that zone show them. Raises BadCell.
        """
        if column.kind == YEARS and column.form.endswith("%y"):
            what = f"two-digit years of {quote(column.name)} are read as {TWO_DIGIT_YEARS}"
            self._notices[what] = self._notices.get(what, 0) + len(values) - values.null_count
        found = parse_dates(values, column.name, column.form or ISO, column.zone)
        if column.form or not column.zone:
            return found
        return pc.assume_timezone(found, UTC_ZONE).cast(pa.timestamp("s", column.zone))

    def _codes(self, values: Arrow, column: Column) -> NDArray[np.int64]:
        """Return which of ``column.values`` each row has (n,); -1 for one that is not among them. Raises BadCell."""
        absent = values.null_count
        if not self._missing:
            check_missing(values, column.name)
        if column.kind != CATEGORY:
            return _calendar_codes(self._moments(values, column), column.kind)
        texts, rows = distinct_texts(values)
        texts, known_values = to_canonical_text(texts), self._values[column.name]
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

    def _hashes(self, values: Arrow, name: str) -> tuple[NDArray[np.int64], Float32]:
        """Return the hashed column and the sign of each row's text, (n,) both; sign 0 for none. Raises BadCell."""
        if not self._missing:
            check_missing(values, name)
        texts, rows = distinct_texts(values)
        hashed = [text_hash(name, text) for text in pc.utf8_trim_whitespace(to_canonical_text(texts)).to_pylist()]
        codes = np.array([*hashed, 0], np.uint64)[rows]
        signs = np.where(codes >> np.uint64(63), np.float32(-1), np.float32(1))
        signs[rows < 0] = 0
        places = (codes & np.uint64((1 << self.schema.hash_bits) - 1)).astype(np.int64)
        return self.schema.own_width + places, signs

    def _terms(self, values: Arrow, column: Column, start: int) -> Entries:
        """Return the weighted words of a column of text, in feature columns from ``start`` on.

        A missing text has no words and is no error: words such as 'None' and 'NA' look like missing values.
        """
        texts, rows = distinct_texts(values)
        terms = terms_of(texts, column)
        found = weigh(terms, self._idf[column.name]).astype(np.float32)
        lengths = np.append(np.diff(terms.indptr), 0)[rows]
        begins = np.cumsum(lengths) - lengths
        which = np.arange(int(lengths.sum())) + np.repeat(np.append(terms.indptr[:-1], 0)[rows] - begins, lengths)
        return Entries(np.repeat(np.arange(len(rows)), lengths), start + terms.places[which], found[which])


def batch_rows(schema: Schema) -> int:
    """Return how many rows make a batch of about ``BATCH_BYTES``."""
    texts = TEXT_ENTRIES * sum(column.kind == TEXT for column in schema.columns)
    row = 8 * (len(schema.columns) + texts) if schema.sparse else 4 * schema.width
    return int(np.clip(BATCH_BYTES // row, 256, 65_536))


def _differ_when_trimmed(values: Arrow) -> bool:
    """Whether no two values differ by the blanks around them alone."""
    return len(pc.utf8_trim_whitespace(values).unique()) == len(values)


def _calendar_codes(values: Arrow, part: str) -> NDArray[np.int64]:
    taken = pc.fill_null({"month": pc.month, "weekday": pc.day_of_week, "hour": pc.hour}[part](values), -1)
    return taken.to_numpy(zero_copy_only=False).astype(np.int64) - (part == "month")


class Entries(NamedTuple):
    """Entries of sparse rows, in any order: row, feature column, and value (float32 or float64) of each."""

    rows: NDArray[np.int64]
    columns: NDArray[np.int64]
    values: Array


def entries_of(indices: NDArray[np.int64], data: Array) -> Entries:
    """Return the entries of rows that are not 0: of ``data`` (n, k), in the feature columns ``indices`` (n, k)."""
    stored = data != 0
    return Entries(np.nonzero(stored)[0], indices[stored], data[stored])


def sum_entries(parts: list[Entries], rows: int, width: int, dtype: type[np.floating[Any]] = np.float32) -> CSR:
    """Return CSR rows; entries of the same row and column are added up in float64, then rounded to ``dtype``."""
    keys, which = np.unique(np.concatenate([part.rows * width + part.columns for part in parts]), return_inverse=True)
    weights = np.concatenate([part.values for part in parts])
    sums = np.bincount(which, weights=weights, minlength=len(keys)).astype(dtype)
    row, column = np.divmod(keys[sums != 0], width)
    indptr = np.searchsorted(row, np.arange(rows + 1)).astype(np.int64)
    return CSR(sums[sums != 0], column.astype(np.int32), indptr)


def find_bad_cells(
    table: pa.RecordBatch, schema: Schema, options: SourceOptions, *, features: bool
) -> dict[int, BadCell]:
    """Return the first bad cell of each row that cannot be encoded, by row: a feature that cannot be read, or is missing
    where it must not be (if ``features`` are looked at), a bad weight, a label or a group that is missing.
    """
    found: dict[int, BadCell] = {}

    def note(mask: NDArray[np.bool_], name: str, code: str, text: str, hint: str) -> None:
        for row in np.flatnonzero(mask).tolist():
            if row not in found:
                value = table.column(name)[row].as_py()
                found[row] = BadCell(
                    row, name, code, text.format(quote(value)) if value is not None else MISSING_TEXT, hint
                )

    missing = options.missing != "error"
    for column in schema.columns if features else ():
        for name in column.sources:
            wrong = unreadable_values(table.column(name), column, options.words, missing=missing)
            if wrong.any():
                note(wrong, name, "E-PARSE", "{} cannot be read", WRITTEN_HINT)
    if schema.weight is not None:
        note(are_no_weights(table.column(schema.weight)), schema.weight, "E-RANGE", "{} is no weight", WEIGHT_HINT)
    for required in (schema.split, None if options.missing_label == "skip" else schema.label):
        if required is not None:
            absent = table.column(required).is_null(nan_is_null=True).to_numpy(zero_copy_only=False)
            note(absent, required, "E-MISSING", MISSING_TEXT, MISSING_HINT)
    return found


def are_no_weights(values: Arrow) -> NDArray[np.bool_]:
    """Return which values of a column are not numbers of 0 or more that float32 can hold, (n,)."""
    if is_text(values.type):
        texts = to_text(values.dictionary_decode() if pa.types.is_dictionary(values.type) else values)
        values = _numbers_of(pc.utf8_trim_whitespace(texts))
    try:
        given = values.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False)
    except (pa.ArrowNotImplementedError, pa.ArrowInvalid):  # times, lists, bytes: no number is among them
        return np.ones(len(values), np.bool_)
    return ~((given >= 0) & (given <= float(np.finfo(np.float32).max)))


def unreadable_rows(
    table: pa.RecordBatch | pa.Table, columns: Iterable[Column], words: MissingWords, *, missing: bool
) -> NDArray[np.bool_]:
    """Return which rows have a value that cannot be encoded, (n,); ``missing``: values may be missing."""
    found = np.zeros(table.num_rows, np.bool_)
    for column in columns:
        for name in column.sources:
            values = table.column(name)
            values = values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values
            found |= unreadable_values(values, column, words, missing=missing)
    return found


def unreadable_values(values: Arrow, column: Column, words: MissingWords, *, missing: bool) -> NDArray[np.bool_]:
    """Return which values of a column cannot be encoded, (n,); ``missing``: values may be missing, NaN is one."""
    if column.kind == TEXT:
        return np.zeros(len(values), np.bool_)
    if column.kind == NUMBER or column.kind in TEXT_WITH_MEANING:
        values = words.remove(values, number=True)
    absent = values.is_null(nan_is_null=True).to_numpy(zero_copy_only=False)
    wrong = _is_meaningless(values, column)
    if not missing:
        return wrong | absent
    return wrong & ~absent


def _is_meaningless(values: Arrow, column: Column) -> NDArray[np.bool_]:
    """Which values cannot be read as the kind of a column; the result for missing values does not matter."""
    if column.kind == NUMBER or column.kind in TEXT_WITH_MEANING:
        if is_text(values.type):
            encoded = values if pa.types.is_dictionary(values.type) else values.dictionary_encode()
            texts = pc.utf8_trim_whitespace(encoded.dictionary.cast(pa.string()))
            wrong = np.append(pc.is_null(_meaning(texts, column)).to_numpy(zero_copy_only=False), True)
            found: NDArray[np.bool_] = wrong[pc.fill_null(encoded.indices.cast(pa.int64()), -1).to_numpy()]
            return found
        if pa.types.is_floating(values.type) or pa.types.is_integer(values.type):
            given = values.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False)
            if column.form == EPOCH:
                return ~((given >= FIRST_SECOND) & (given <= LAST_SECOND))
            with np.errstate(over="ignore"):
                return ~np.isfinite(given.astype(np.float32))
    return np.zeros(len(values), np.bool_)


def _meaning(texts: Arrow, column: Column) -> Any:
    """What texts mean in a column, null where they cannot be read."""
    if column.kind == BOOLEAN:
        return parse_booleans_or_null(texts)
    if column.kind in (NUMBER, AMOUNT) or column.form == EPOCH:
        found = parse_amounts_or_null(texts, comma=bool(column.form)) if column.kind == AMOUNT else _numbers_of(texts)
        limit = float(LAST_SECOND) if column.form == EPOCH else float(np.finfo(np.float32).max)
        return pc.if_else(pc.less_equal(pc.abs(found), limit), found, pa.scalar(None, pa.float64()))
    found = parse_dates_or_null(texts, column.form or ISO)
    if (column.form or ISO) == ISO:
        found = pc.if_else(has_other_zone(texts, column.zone), pa.scalar(None, found.type), found)
    return found


def _numbers_of(texts: Arrow) -> Any:
    plain = pc.if_else(pc.match_substring_regex(texts, _PLAIN_NUMBER), texts, pa.scalar(None, pa.string()))
    return pc.replace_substring_regex(plain, r"^\+", "").cast(pa.float64())


def read_text(text: str, column: Column) -> None:
    """Read one text of a column of ``TEXT_WITH_MEANING``. Raises BadCell where it cannot be read."""
    values = pa.array([text])
    if column.kind == AMOUNT:
        parse_amounts(values, column.name, comma=bool(column.form))
    elif column.kind == BOOLEAN:
        parse_booleans(values, column.name)
    else:
        parse_dates(values, column.name, column.form or ISO, column.zone)


@dataclass(frozen=True, slots=True)
class Split:
    """How rows are held out by a column of the table: by group, or after a value."""

    column: str
    form: str = ISO
    """How its dates are written; see ``cell_parsing.parse_dates``."""
    after: float | dt.datetime | None = None
    """Rows with a larger value, or at this time or later, are for testing; None: rows are divided by group."""

    @classmethod
    def of(cls, schema: Schema, options: SourceOptions) -> Split | None:
        """Return the split that a schema is read with; None where rows are divided by chance. Raises UsageError."""
        if schema.split is None:
            return None
        form = next((c.form for c in schema.columns if c.name == schema.split and c.form), ISO)
        after = None if options.split_after is None else split_bound(options.split_after.partition("=")[2])
        return cls(schema.split, form, after)


def split_bound(text: str) -> float | dt.datetime:
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
    """Return for each row the hash of its group as uint64 (n,), or whether it is for testing as bool (n,).

    Raises BadCell for a value that is missing, and for one that cannot be compared.
    """
    check_missing(values, split.column)
    if split.after is None:
        texts, rows = distinct_texts(values)
        hashed = [text_hash(GROUP_SALT, text) for text in to_canonical_text(texts).to_pylist()]
        groups: Array = np.array(hashed, np.uint64)[rows]
        return groups
    later: Array = _find_later(values, split, split.after).to_numpy(zero_copy_only=False)
    return later


def _find_later(values: Arrow, split: Split, after: float | dt.datetime) -> Any:
    kind = values.type.value_type if pa.types.is_dictionary(values.type) else values.type
    temporal = pa.types.is_timestamp(kind) or pa.types.is_date(kind)
    if isinstance(after, dt.datetime):
        if not (temporal or is_text(values.type)) and split.form == ISO:
            raise BadCell(0, split.column, "E-DTYPE", f"holds {kind}, not dates", "give --split-after a number")
        return pc.greater_equal(parse_dates(values, split.column, split.form), pa.scalar(after, pa.timestamp("s")))
    if temporal:
        raise BadCell(0, split.column, "E-DTYPE", f"holds {kind}, not numbers", "give --split-after a date: 2019-12-31")
    return pc.greater(parse_numbers(values, split.column), after)
