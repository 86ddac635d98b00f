"""What was decided of the columns of a table by their values, in words: it is said before anything is written."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import islice
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streamsvm.aliases import JsonMapping
from streamsvm.errors import quote
from streamsvm.store.sources.table.census import ALMOST_UNIQUE, LEAST_ROWS, TableCensus
from streamsvm.store.sources.table.layout.columns import (
    AMOUNT,
    BOOLEAN,
    CATEGORY,
    DECIMAL_COMMA,
    HASHED,
    NUMBER,
    YEARS,
    Column,
)
from streamsvm.store.sources.table.layout.schema import Schema, shell_word

FIRST_TIME, LAST_TIME = 1_000_000_000, 4_102_444_800
"""Seconds since 1970: September 2001, from which on they have ten digits, and the end of 2099."""
LEAST_ID = 1000
"""Whole numbers up to this are taken for quantities though each row has another."""
TEXT_KEPT = {
    CATEGORY: "one-hot; --column {0}=hash hashes it",
    HASHED: "hashed; --column {0}=category makes a column of each value",
    None: "left out, because almost every row has another; --column {0}=words or {0}=chars reads it as text, {0}=hash hashes it",
}
BECOMES = {
    AMOUNT: ("amounts", "a number"),
    BOOLEAN: ("yes and no", "1 and 0"),
    YEARS: ("dates", "years since 2000, month and day of the week"),
}


def proposals(schema: Schema, planned: Schema, census: TableCensus, samples: JsonMapping) -> list[str]:
    """Return a line of text for each column whose kind was told by its values."""
    now = {c.name: c.kind for c in schema.columns if c.kind in (CATEGORY, HASHED)}
    found = []
    for column in planned.columns:
        word = shell_word(column.name)
        if column.unasked and column.kind == CATEGORY:
            what = "cross" if column.parts else "text"
            decided = TEXT_KEPT[now.get(column.name)].format(word)
            if column.parts:
                decided = decided.partition(";")[0]
            found.append(f"column {quote(column.name)}: {what}, {census.values[column.name].described()}: {decided}")
        elif column.unasked and column.kind in BECOMES:
            found.append(
                f"column {quote(column.name)}: {_written(column, samples)}; --column {word}=KIND says otherwise"
            )
    return [*found, *_numbers(planned, samples)]


def _written(column: Column, samples: JsonMapping) -> str:
    what, becomes = BECOMES[column.kind]
    if column.form == DECIMAL_COMMA:
        what += " with a decimal comma"
    example = first_text(samples.get(column.name))
    return f"{what}{'' if example is None else f' such as {quote(example, 40)}'}: {becomes}"


def first_text(sample: Any) -> str | None:
    """Return the first value of a column as text; None where there is none."""
    values = None if sample is None else pc.drop_null(sample)
    return None if values is None or not len(values) else str(values[0].as_py())


def _numbers(planned: Schema, samples: JsonMapping) -> Iterator[str]:
    """What numbers could be besides: points in time, or whole numbers of which nearly every row has another."""
    if all(len(samples[name]) < LEAST_ROWS for name in islice(samples, 1)):  # as long as one another
        return
    for column in planned.columns:
        sample = samples.get(column.name)
        if column.kind != NUMBER or sample is None:
            continue
        name, word = quote(column.name), shell_word(column.name)
        if looks_like_times(sample):
            first = datetime.fromtimestamp(pc.min(sample).as_py(), UTC).date()
            what = f"whole numbers that could be seconds since 1970, from {first} on"
            yield f"column {name}: {what}: a number; --column {word}=epoch makes dates of them"
        elif looks_like_ids(sample):
            what = "whole numbers, another in nearly every row, as ids are"
            yield f"column {name}: {what}: a number; --drop {word} leaves it out, --id {word} keeps it beside predictions"


def looks_like_times(sample: Any) -> bool:
    """Whether a column is of whole numbers that are all between ``FIRST_TIME`` and ``LAST_TIME``."""
    if not (pa.types.is_integer(sample.type) or pa.types.is_floating(sample.type)):
        return False
    values = pc.drop_null(sample).to_numpy(zero_copy_only=False)
    whole = len(values) >= LEAST_ROWS and bool((values == np.floor(values)).all())
    return whole and bool(values.min() >= FIRST_TIME and values.max() < LAST_TIME)


def looks_like_ids(sample: Any) -> bool:
    """Whether a column is of whole numbers, some above ``LEAST_ID``, and of nearly every row another."""
    if not (pa.types.is_integer(sample.type) or pa.types.is_floating(sample.type)):
        return False
    values = pc.drop_null(sample).to_numpy(zero_copy_only=False)
    if len(values) < LEAST_ROWS or (values != np.floor(values)).any() or np.abs(values).max(initial=0) <= LEAST_ID:
        return False
    return len(np.unique(values)) > ALMOST_UNIQUE * len(values)
