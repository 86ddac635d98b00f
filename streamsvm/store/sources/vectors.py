"""Columns of vectors: each value is a list of numbers, all of one length, such as the embedding of a text or an image.

A vector is a value like any other: it may be missing as a whole. A vector that is too short or too long, or in which a
number is missing or not finite, is an error that names the row, because nothing could be put in its place.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pyarrow import types

from streamsvm.errors import DataError, quote
from streamsvm.store.sources.cell_parsing import Arrow, BadCell, find_missing
from streamsvm.store.sources.schema import shell_word
from streamsvm.type_aliases import Array

VECTOR_HINT = "correct the row, leave such rows out with --on-bad-line skip, or leave the column out with --drop"
SHOWN_NUMBERS = 4
"""The numbers of a vector that messages show."""


def is_vector_type(kind: pa.DataType) -> bool:
    """Return whether a column holds lists of numbers: float16, float32, float64 or integers."""
    if not (types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind)):
        return False
    return bool(types.is_floating(kind.value_type) or types.is_integer(kind.value_type))


def vector_size(kind: pa.DataType) -> int | None:
    """Return the numbers of each vector of a column if its type tells them, else None."""
    return kind.list_size if types.is_fixed_size_list(kind) else None


def first_size(values: Arrow) -> int | None:
    """Return the numbers of the first vector of a column that has any; None if none has."""
    lengths = pc.fill_null(pc.list_value_length(values), 0).to_numpy(zero_copy_only=False)
    filled = np.flatnonzero(lengths)
    return int(lengths[filled[0]]) if len(filled) else None


def check_size(size: int | None, name: str, where: str) -> int:
    """Return the numbers of the vectors of a column. Raises DataError E-SHAPE if no vector or an empty one tells them."""
    if size:
        return size
    hint = f"leave it out with --drop {shell_word(name)}, or read first a file that has vectors"
    raise DataError(f"column {quote(name)} of {where} has no vector in its first rows", code="E-SHAPE", hint=hint)


def parse_vectors(values: Arrow, name: str, size: int, dtype: type[np.floating[Any]]) -> Array:
    """Return vectors as rows (n, size) of ``dtype``, NaN for a missing vector. Raises BadCell."""
    _check_type(values, name, size)
    is_bad = find_bad_vectors(values, size)
    if is_bad.any():
        row = int(np.argmax(is_bad))
        raise explain_vector(values.slice(row, 1), name, size, row)
    numbers = values.flatten().to_numpy(zero_copy_only=False)  # without those of missing vectors
    with np.errstate(over="ignore"):
        present = numbers.astype(dtype, copy=False).reshape(-1, size)
    if not values.null_count:
        return present
    rows = np.full((len(values), size), np.nan, dtype)
    rows[values.is_valid().to_numpy(zero_copy_only=False)] = present
    return rows


def find_bad_vectors(values: Arrow, size: int) -> NDArray[np.bool_]:
    """Return whether each vector is not missing, and is not ``size`` numbers that fit float32, (n,)."""
    if not is_vector_type(values.type):
        return ~find_missing(values)
    lengths = pc.fill_null(pc.list_value_length(values), size).to_numpy(zero_copy_only=False)
    is_bad: NDArray[np.bool_] = lengths != size
    flat = values.flatten()
    with np.errstate(over="ignore"):
        numbers = flat.to_numpy(zero_copy_only=False).astype(np.float32, copy=False)  # a null is NaN
    finite = np.isfinite(numbers)
    if not finite.all():
        lengths = pc.fill_null(pc.list_value_length(values), 0).to_numpy(zero_copy_only=False)
        rows = np.repeat(np.arange(len(values)), lengths)
        is_bad[rows[~finite]] = True
    return is_bad


def explain_vector(value: Arrow, name: str, size: int, row: int = 0) -> BadCell:
    """Return the error for a bad vector; ``value``: a column of one row, ``row``: its number in the batch, from 0."""
    if not is_vector_type(value.type):
        return BadCell(row, name, "E-DTYPE", f"expected a vector of {size} numbers, found {value.type}", VECTOR_HINT)
    numbers = value[0].as_py()
    if len(numbers) != size:
        shown = ", ".join(f"{number:g}" for number in numbers[:SHOWN_NUMBERS] if number is not None)
        more = ", ..." if len(numbers) > SHOWN_NUMBERS else ""
        text = f"a vector of {len(numbers)} numbers [{shown}{more}], but the column has {size}"
        return BadCell(row, name, "E-SHAPE", text, VECTOR_HINT)
    with np.errstate(over="ignore"):
        place = int(np.argmin(np.isfinite(np.array(numbers, np.float32))))
    number = numbers[place]
    if number is None or np.isnan(number):
        text = f"number {place} of the vector is missing; only whole vectors may be missing"
        return BadCell(row, name, "E-NONFINITE", text, VECTOR_HINT)
    if np.isfinite(number):
        text = f"number {place} of the vector, {number:g}, does not fit float32"
        return BadCell(row, name, "E-RANGE", text, "scale the vectors")
    return BadCell(row, name, "E-NONFINITE", f"number {place} of the vector is {number:g}, not finite", VECTOR_HINT)


def _check_type(values: Arrow, name: str, size: int) -> None:
    """Raise BadCell for a column that does not hold vectors."""
    if not is_vector_type(values.type) and not types.is_null(values.type):
        raise explain_vector(values, name, size)
