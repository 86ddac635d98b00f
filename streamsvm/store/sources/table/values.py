"""Columns of a table (Arrow) as numbers, labels, ids and weights of rows; what is none is named with its row."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streamsvm.aliases import Array
from streamsvm.rows import Float32
from streamsvm.store.format.labels import as_labels
from streamsvm.store.sources.table.cells import Arrow, BadCell, as_text, numbers

MISSING_HINT = "pass --missing mean, zero or indicator, leave the column out with --drop, or remove the rows"
RECORDED_MISSING_HINT = (
    "the model was trained without missing values: remove the rows, or train again with ingest's missing"
)
"""What helps where new rows are read as a model says."""
WEIGHT_HINT = "weights are numbers of 0 or more, one a row: correct them, or remove such rows"


def plain(values: Arrow, name: str) -> Arrow:
    """Return numbers as a numpy array, NaN where one is missing. Raises BadCell for text that is no number."""
    if not (pa.types.is_integer(values.type) or pa.types.is_floating(values.type)):
        values = numbers(values, name)
    return values.to_numpy(zero_copy_only=False)


def float32(values: Arrow, name: str) -> Float32:
    """Return a column as float32: NaN for a missing value, infinite where it does not fit. Raises BadCell."""
    with np.errstate(over="ignore"):
        return plain(values, name).astype(np.float32, copy=False)


def check_numbers(values: Arrow, name: str, *, missing: bool = False) -> None:
    """Raise BadCell for missing (unless that is allowed), non-finite and too large values."""
    if not missing:
        check_missing(values, name)
    given, finite = plain(values, name), np.isfinite(float32(values, name))
    finite |= missing & np.isnan(float32(values, name))
    if not finite.all():
        row = int(np.argmin(finite))
        if np.isfinite(given[row]):
            raise BadCell(row, name, "E-RANGE", f"{given[row]} does not fit float32", "scale the column")
        hint = MISSING_HINT if np.isnan(given[row]) else "remove or replace such values"
        raise BadCell(row, name, "E-NONFINITE", f"{given[row]} is not finite", hint)


def labels_of(values: Arrow, name: str) -> Array:
    """Return a column as float64, as int64 or uint64, or as str. Raises BadCell E-LABEL for a missing one."""
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


def ids_of(values: Arrow) -> Array:
    """Return a column as int64, or as objects of text; empty text where a row has no id."""
    if pa.types.is_integer(values.type) and not values.null_count and not pa.types.is_uint64(values.type):
        return values.cast(pa.int64()).to_numpy(zero_copy_only=False)
    if pa.types.is_dictionary(values.type):
        values = values.cast(values.type.value_type)
    return pc.fill_null(as_text(values), "").to_numpy(zero_copy_only=False)


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind))


def weights_of(values: Arrow, name: str) -> Float32:
    """Return a column of row weights as float32. Raises BadCell for what is no finite number of at least 0."""
    try:
        check_numbers(values, name)
    except BadCell as cell:
        cell.hint = WEIGHT_HINT
        raise
    weight = float32(values, name)
    if (weight < 0).any():
        row = int(np.argmax(weight < 0))
        raise BadCell(row, name, "E-RANGE", f"the weight {weight[row]} is negative", WEIGHT_HINT)
    return weight


def check_missing(values: Arrow, name: str) -> None:
    """Raise BadCell E-MISSING when a value is missing."""
    if values.null_count:
        raise BadCell(_first_missing(values), name, "E-MISSING", "the value is missing", MISSING_HINT)


def _first_missing(values: Arrow) -> int:
    return int(np.argmax(values.is_null().to_numpy(zero_copy_only=False)))
