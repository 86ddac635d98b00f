"""Batches of a table (Arrow) to batches of rows: numbers as they are, categories and parts of dates one-hot."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from streamsvm.aliases import Array
from streamsvm.errors import DataError, quote
from streamsvm.rows import CSR, Dense, Float32, Rows
from streamsvm.store.format.labels import as_labels
from streamsvm.store.format.row_layout import take
from streamsvm.store.sources.options import SourceOptions
from streamsvm.store.sources.table.cells import Arrow, BadCell, amounts, booleans, dates, numbers, years
from streamsvm.store.sources.table.schema import (
    AMOUNT,
    CATEGORY,
    HASHED,
    NUMBER,
    OTHER,
    SINGLE,
    YEARS,
    Column,
    Schema,
    ValueCensus,
)
from streamsvm.types import Batch

MOST_CATEGORIES = 10_000
ALMOST_UNIQUE = 0.9
"""The share of distinct values among rows beyond which a column names rows instead of describing them."""
LEAST_ROWS = 100
"""Fewer rows than this say nothing about how many values there are."""
BATCH_BYTES = 2 << 20
"""Bytes of the rows made of one batch."""
WHOLE = 1 << 24
"""The number up to which float32 holds every whole number."""
MISSING_HINT = "pass --missing mean, zero or indicator, leave the column out with --drop, or remove the rows"


class TableEncoder:
    """Makes the features a ``Schema`` asks for, and counts categories that were not in the census.

    With a policy for missing values, missing numbers become NaN, to be filled by somebody else; missing categories are
    none of the known.
    """

    def __init__(self, schema: Schema, notices: dict[str, int], options: SourceOptions) -> None:
        self.schema = schema
        self._missing = options.missing != "error"
        self._skips_unlabeled = options.missing_label == "skip"
        self._notices = notices
        self._values = {c.name: pa.array(c.values, pa.string()) for c in schema.columns if c.kind == CATEGORY}
        self._as_text = by_value if schema.by_value else as_text

    def batch(self, table: pa.RecordBatch) -> Batch:
        """Return one batch of rows. Raises BadCell."""
        X = self._sparse(table) if self.schema.sparse else self._dense(table)
        label = self.schema.label
        weight = None if self.schema.weight is None else _weights(table.column(self.schema.weight), self.schema.weight)
        ids = None if self.schema.id_column is None else _ids(table.column(self.schema.id_column))
        if label is None:
            return Batch(X, np.empty(0), weight, ids)
        given = table.column(label)
        if self._skips_unlabeled and given.null_count:
            labeled = given.is_valid().to_numpy(zero_copy_only=False)
            X, given = take(X, labeled), given.drop_null()
            weight, ids = (None if part is None else part[labeled] for part in (weight, ids))
        return Batch(X, _labels(given, label), weight, ids)

    def _dense(self, table: pa.RecordBatch) -> Rows:
        n = table.num_rows
        columns, start = np.zeros((self.schema.width, n), np.float32), 0
        for column in self.schema.columns:
            if column.kind == NUMBER:
                columns[start] = _float32(table.column(column.name), column.name)
            elif column.kind in SINGLE:
                columns[start] = self._written(table, column)
            else:
                codes = self._codes(table, column)
                known = np.flatnonzero(codes >= 0)
                columns[start + codes[known], known] = 1
            start += column.width
        self._check_finite(columns, table)
        return Dense(np.ascontiguousarray(columns.T))

    def _sparse(self, table: pa.RecordBatch) -> Rows:
        """One possible entry a row and table column; zeros and unknown categories are left out."""
        shape = (table.num_rows, len(self.schema.columns))
        indices, data, start = np.empty(shape, np.int32), np.empty(shape, np.float32), 0
        for j, column in enumerate(self.schema.columns):
            if column.kind == NUMBER:
                indices[:, j], data[:, j] = start, _float32(table.column(column.name), column.name)
            elif column.kind in SINGLE:
                indices[:, j], data[:, j] = start, self._written(table, column)
            elif column.kind == HASHED:
                indices[:, j], data[:, j] = self._hashes(table.column(column.name), column.name)
            else:
                codes = self._codes(table, column)
                indices[:, j], data[:, j] = start + codes, codes >= 0
            start += column.width
        self._check_finite(data, table)
        if self.schema.hash_bits:
            return summed(indices, data, self.schema.width)
        stored = data != 0
        indptr = np.zeros(len(stored) + 1, np.int64)
        np.cumsum(np.count_nonzero(stored, axis=1), out=indptr[1:])
        return CSR(data[stored], indices[stored], indptr)

    def _check_finite(self, numbers: Float32, table: pa.RecordBatch) -> None:
        """Raise BadCell when there is a NaN or an infinity; all columns at once, because there almost never is."""
        largest = np.abs(numbers).max(initial=0)
        if largest > WHOLE and np.isfinite(largest):
            self._note_rounded(table)
        if not np.isfinite(largest) and (np.isinf(numbers).any() or not self._missing):
            for column in self.schema.columns:
                if column.kind == NUMBER:
                    _check_numbers(table.column(column.name), column.name, missing=self._missing)

    def _note_rounded(self, table: pa.RecordBatch) -> None:
        """C16: whole numbers that float32 does not hold."""
        for column in self.schema.columns:
            if column.kind == NUMBER:
                values = _plain(table.column(column.name), column.name)
                lossy = int(np.count_nonzero((np.abs(values) > WHOLE) & (values == np.floor(values))))
                if lossy:
                    what = f"whole numbers of {column.name} are beyond 2^24 and are rounded"
                    self._notices[what] = self._notices.get(what, 0) + lossy

    def _written(self, table: pa.RecordBatch, column: Column) -> Float32:
        """Numbers that are written as amounts, dates, yes and no; NaN for a missing value. Raises BadCell."""
        values = table.column(column.name)
        if not self._missing:
            _check_missing(values, column.name)
        if column.kind == YEARS:
            read = years(dates(values, column.name, column.form))
        else:
            read = (amounts if column.kind == AMOUNT else booleans)(values, column.name)
        found = _float32(read, column.name)
        if np.isinf(found).any():
            row = int(np.argmax(np.isinf(found)))
            raise BadCell(row, column.name, "E-RANGE", f"{read[row].as_py()} does not fit float32", "scale the column")
        return found

    def _codes(self, table: pa.RecordBatch, column: Column) -> NDArray[np.int64]:
        """Which of ``column.values`` each row has; -1 for one that is not among them."""
        values = table.column(column.name)
        absent = values.null_count
        if not self._missing:
            _check_missing(values, column.name)
        if column.kind != CATEGORY:
            read = dates(values, column.name, column.form) if column.form else values
            return _calendar_codes(read, column.kind)
        encoded = values if pa.types.is_dictionary(values.type) else as_text(values).dictionary_encode()
        known = pc.index_in(self._as_text(encoded.dictionary), value_set=self._values[column.name])
        known = np.append(pc.fill_null(known, -1).to_numpy(zero_copy_only=False).astype(np.int64), -1)
        codes: NDArray[np.int64] = known[_indices(encoded)]
        if unknown := int(np.count_nonzero(codes < 0)) - absent:
            if column.values[-1:] == (OTHER,):
                given = _indices(encoded) >= 0
                codes[given & (codes < 0)] = len(column.values) - 1
            else:
                self._notices[f"unknown categories of {column.name}"] += unknown
        if absent:
            self._notices["missing categories"] = self._notices.get("missing categories", 0) + absent
        return codes

    def _hashes(self, values: Arrow, name: str) -> tuple[NDArray[np.int64], Float32]:
        """The feature column and the sign of each row's text; sign 0 where there is none."""
        if not self._missing:
            _check_missing(values, name)
        encoded = values if pa.types.is_dictionary(values.type) else as_text(values).dictionary_encode()
        hashed = [text_hash(name, text) for text in self._as_text(encoded.dictionary).to_pylist()]
        codes = np.array([*hashed, 0], np.uint64)[_indices(encoded)]
        signs = np.where(codes >> np.uint64(63), np.float32(-1), np.float32(1))
        signs[_indices(encoded) < 0] = 0
        places = (codes & np.uint64((1 << self.schema.hash_bits) - 1)).astype(np.int64)
        return self.schema.own_width + places, signs


def text_hash(column: str, text: str) -> int:
    """Return 64 bits that are the same for the same text everywhere and always."""
    return int.from_bytes(hashlib.blake2b(f"{column}={text}".encode(), digest_size=8).digest(), "little")


def summed(indices: Array, data: Float32, width: int) -> CSR:
    """Return rows (n, k) of indices in any order as CSR; what falls on the same column is added up."""
    stored = data != 0
    rows = np.nonzero(stored)[0]
    keys, which = np.unique(rows * width + indices[stored], return_inverse=True)
    sums = np.bincount(which, weights=data[stored], minlength=len(keys)).astype(np.float32)
    row, column = np.divmod(keys[sums != 0], width)
    indptr = np.searchsorted(row, np.arange(len(data) + 1)).astype(np.int64)
    return CSR(sums[sums != 0], column.astype(np.int32), indptr)


def _indices(encoded: Arrow) -> NDArray[np.int64]:
    """Into the dictionary of an encoded column; -1 where there is no value."""
    return pc.fill_null(encoded.indices, -1).to_numpy(zero_copy_only=False).astype(np.int64)


def as_text(values: Arrow) -> Arrow:
    """Return values of any type as strings."""
    return values if values.type == pa.string() else values.cast(pa.string())


def by_value(values: Arrow) -> Arrow:
    """Return values of any type as strings, whole numbers without a fraction: 1, 1.0 and '1.0' are all '1'."""
    return pc.replace_substring_regex(as_text(values), r"^([+-]?[0-9]+)\.0+$", r"\1")


def count_values(batches: Iterable[pa.RecordBatch], found: dict[str, ValueCensus], where: str) -> None:
    """Count the distinct values of the columns that ``found`` names, as text, into their census.

    Raises DataError E-LIMIT when a column that was asked for has too many.
    """
    for batch in batches:
        for name, census in found.items():
            counted = batch.column(name).value_counts()
            texts = by_value(counted.field("values")).to_pylist()
            for text, count in zip(texts, counted.field("counts").to_pylist(), strict=True):
                if text is not None:
                    _count(census, text, count)
            if census.full and not census.unasked:
                many = f"column {quote(name)} of {where} has more than {MOST_CATEGORIES} distinct values"
                raise DataError(many, code="E-LIMIT", hint="hash it with --hash, or leave it out with --drop")
    for census in found.values():
        if not census.full:
            census.unique = census.rows >= LEAST_ROWS and len(census.counts) > ALMOST_UNIQUE * census.rows


def _count(census: ValueCensus, text: str, count: int) -> None:
    if text not in census.counts and len(census.counts) == MOST_CATEGORIES:
        census.unique = census.unique or (not census.full and MOST_CATEGORIES > ALMOST_UNIQUE * census.rows)
        census.full = True
    if text in census.counts or not census.full:
        census.counts[text] = census.counts.get(text, 0) + count
    census.rows += count


def batch_rows(schema: Schema) -> int:
    """Return how many rows make a batch of about ``BATCH_BYTES``."""
    row = 8 * len(schema.columns) if schema.sparse else 4 * schema.width
    return int(np.clip(BATCH_BYTES // row, 256, 65_536))


def _plain(values: Arrow, name: str) -> Arrow:
    """Numbers as a numpy array, NaN where one is missing."""
    if not (pa.types.is_integer(values.type) or pa.types.is_floating(values.type)):
        values = numbers(values, name)
    return values.to_numpy(zero_copy_only=False)


def _float32(values: Arrow, name: str) -> Float32:
    """A column as float32: NaN for a missing value, infinite where it does not fit."""
    with np.errstate(over="ignore"):
        return _plain(values, name).astype(np.float32, copy=False)


def _check_numbers(values: Arrow, name: str, *, missing: bool = False) -> None:
    """Raise BadCell for missing (unless that is allowed), non-finite and too large values."""
    if not missing:
        _check_missing(values, name)
    given, finite = _plain(values, name), np.isfinite(_float32(values, name))
    finite |= missing & np.isnan(_float32(values, name))
    if not finite.all():
        row = int(np.argmin(finite))
        if np.isfinite(given[row]):
            raise BadCell(row, name, "E-RANGE", f"{given[row]} does not fit float32", "scale the column")
        raise BadCell(row, name, "E-NONFINITE", f"{given[row]} is not finite", "remove or replace such values")


def _labels(values: Arrow, name: str) -> Array:
    """A column as float64, as int64 or uint64, or as str."""
    if values.null_count:
        raise BadCell(
            _first_missing(values),
            name,
            "E-LABEL",
            "the label is missing",
            "pass --missing-label skip to leave such rows out",
        )
    if pa.types.is_dictionary(values.type) or not _is_number(values.type):
        encoded = values if pa.types.is_dictionary(values.type) else as_text(values).dictionary_encode()
        texts = np.array(as_text(encoded.dictionary).to_pylist(), dtype=np.str_)
        return texts[encoded.indices.to_numpy()]
    return as_labels(values.to_numpy(zero_copy_only=False), name)


def _ids(values: Arrow) -> Array:
    """A column as int64, or as objects of text; empty text where a row has no id."""
    if pa.types.is_integer(values.type) and not values.null_count and not pa.types.is_uint64(values.type):
        return values.cast(pa.int64()).to_numpy(zero_copy_only=False)
    if pa.types.is_dictionary(values.type):
        values = values.cast(values.type.value_type)
    return pc.fill_null(as_text(values), "").to_numpy(zero_copy_only=False)


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind))


def _weights(values: Arrow, name: str) -> Float32:
    _check_numbers(values, name)
    weight = _float32(values, name)
    if (weight < 0).any():
        row = int(np.argmax(weight < 0))
        raise BadCell(row, name, "E-RANGE", f"the weight {weight[row]} is negative", "weights are 0 or more")
    return weight


def _calendar_codes(values: Arrow, part: str) -> NDArray[np.int64]:
    taken = pc.fill_null({"month": pc.month, "weekday": pc.day_of_week, "hour": pc.hour}[part](values), -1)
    return taken.to_numpy(zero_copy_only=False).astype(np.int64) - (part == "month")


def _check_missing(values: Arrow, name: str) -> None:
    if count := values.null_count:
        more = f"the value is missing ({count} missing among the {len(values)} rows read with it)"
        raise BadCell(_first_missing(values), name, "E-MISSING", more, MISSING_HINT)


def _first_missing(values: Arrow) -> int:
    return int(np.argmax(values.is_null().to_numpy(zero_copy_only=False)))
