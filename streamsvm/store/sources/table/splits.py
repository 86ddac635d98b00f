"""By which column rows go to the store or to the test store: the group a row is of, or whether it is after a value."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streamsvm.aliases import Array
from streamsvm.errors import UsageError, quote
from streamsvm.store.sources.source_options import SourceOptions
from streamsvm.store.sources.table.cells import ISO, Arrow, BadCell, by_value, dates, is_text, numbers
from streamsvm.store.sources.table.layout.schema import Schema
from streamsvm.store.sources.table.text import distinct_texts, text_hash
from streamsvm.store.sources.table.values import check_missing

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
