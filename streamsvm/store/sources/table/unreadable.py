"""Which rows of a table have values that cannot become what their columns are: a block at a time, for those who skip them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from streamsvm.store.sources.table.cells import (
    EPOCH,
    FIRST_SECOND,
    ISO,
    LAST_SECOND,
    Arrow,
    amounts,
    amounts_of,
    booleans,
    booleans_of,
    dates,
    dates_of,
    has_other_zone,
    is_text,
)
from streamsvm.store.sources.table.layout.columns import AMOUNT, BOOLEAN, CALENDAR, NUMBER, TEXT, YEARS, Column
from streamsvm.store.sources.table.missing_words import MissingWords

READ = (AMOUNT, BOOLEAN, YEARS, *CALENDAR)
"""The kinds of columns whose text has to mean something, and is no number."""
_NUMBER = r"^[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?$"


def unreadable_rows(
    table: pa.RecordBatch | pa.Table, columns: Iterable[Column], words: MissingWords, *, missing: bool
) -> NDArray[np.bool_]:
    """Return the rows of a table some of whose values cannot become what their ``columns`` are, (n,); ``missing``: values
    may be missing.
    """
    found = np.zeros(table.num_rows, np.bool_)
    for column in columns:
        for name in column.sources:
            values = table.column(name)
            values = values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values
            found |= _unreadable(values, column, words, missing=missing)
    return found


def _unreadable(values: Arrow, column: Column, words: MissingWords, *, missing: bool) -> NDArray[np.bool_]:
    if column.kind == TEXT:
        return np.zeros(len(values), np.bool_)
    if column.kind == NUMBER or column.kind in READ:
        values = words.removed(values, number=True)
    absent = values.is_null().to_numpy(zero_copy_only=False)
    wrong = _without_meaning(values, column)
    if not missing:
        return wrong | absent
    return wrong & ~absent


def _without_meaning(values: Arrow, column: Column) -> NDArray[np.bool_]:
    """Which values mean nothing in a column; what is said of those that are missing does not matter."""
    if column.kind == NUMBER or column.kind in READ:
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
    """What texts mean in a column, null where that is nothing."""
    if column.kind == BOOLEAN:
        return booleans_of(texts)
    if column.kind in (NUMBER, AMOUNT) or column.form == EPOCH:
        found = amounts_of(texts, comma=bool(column.form)) if column.kind == AMOUNT else _numbers_of(texts)
        limit = float(LAST_SECOND) if column.form == EPOCH else float(np.finfo(np.float32).max)
        return pc.if_else(pc.less_equal(pc.abs(found), limit), found, pa.scalar(None, pa.float64()))
    found = dates_of(texts, column.form or ISO)
    if (column.form or ISO) == ISO:
        found = pc.if_else(has_other_zone(texts, column.zone), pa.scalar(None, found.type), found)
    return found


def _numbers_of(texts: Arrow) -> Any:
    plain = pc.if_else(pc.match_substring_regex(texts, _NUMBER), texts, pa.scalar(None, pa.string()))
    return pc.replace_substring_regex(plain, r"^\+", "").cast(pa.float64())


def read_text(text: str, column: Column) -> None:
    """Read one text of a column of ``READ``. Raises BadCell where it means nothing."""
    values = pa.array([text])
    if column.kind == AMOUNT:
        amounts(values, column.name, comma=bool(column.form))
    elif column.kind == BOOLEAN:
        booleans(values, column.name)
    else:
        dates(values, column.name, column.form or ISO, column.zone)
