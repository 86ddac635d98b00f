"""The rule by which rows of a table are held out: by the group in a column, or after a number or a date."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from streamsvm.errors import UsageError, quote
from streamsvm.store.sources.cell_parsing import ISO, Arrow, BadCell, is_text, parse_dates, parse_numbers
from streamsvm.store.sources.options import SourceOptions
from streamsvm.store.sources.schema import Schema


@dataclass(frozen=True, slots=True)
class Split:
    """The rule by which rows are held out by a column of the table: by group, or after a value."""

    column: str
    form: str = ISO
    """The format of its dates, one of ``cell_parsing.DATES``."""
    after: float | dt.datetime | None = None
    """Rows with a larger value, or at this time or later, are held out; None: whole groups are held out."""

    @classmethod
    def of(cls, schema: Schema, options: SourceOptions) -> Split | None:
        """Return the split of a schema; None if rows are held out at random. Raises UsageError."""
        if schema.split is None:
            return None
        form = next((c.form for c in schema.columns if c.name == schema.split and c.form), ISO)
        after = None if options.split_after is None else split_bound(options.split_after.partition("=")[2])
        return cls(schema.split, form, after)


def split_bound(text: str) -> float | dt.datetime:
    """Return the number after which, or the time from which on, rows are held out.

    All hours of a date without a time still belong to the rows for training. Raises UsageError.
    """
    try:
        return float(text)
    except ValueError:
        pass
    try:
        moment = dt.datetime.fromisoformat(text)
    except ValueError:
        message = f"--split-after: {quote(text)} is neither a number nor a date"
        raise UsageError(message, hint="write it as --split-after year=2019 or --split-after day=2019-12-31") from None
    whole_day = len(text) <= len("2019-12-31")
    if moment.tzinfo is not None:
        moment = moment.astimezone(dt.UTC)
    return moment.replace(tzinfo=None) + (dt.timedelta(days=1) if whole_day else dt.timedelta(seconds=1))


def find_later(values: Arrow, split: Split, after: float | dt.datetime) -> Any:
    """Return whether each value is larger than ``after``, or at that time or later."""
    kind = values.type.value_type if pa.types.is_dictionary(values.type) else values.type
    temporal = pa.types.is_timestamp(kind) or pa.types.is_date(kind)
    if isinstance(after, dt.datetime):
        if not (temporal or is_text(values.type)) and split.form == ISO:
            raise BadCell(0, split.column, "E-DTYPE", f"holds {kind}, not dates", "give --split-after a number")
        return pc.greater_equal(parse_dates(values, split.column, split.form), pa.scalar(after, pa.timestamp("s")))
    if temporal:
        raise BadCell(0, split.column, "E-DTYPE", f"holds {kind}, not numbers", "give --split-after a date: 2019-12-31")
    return pc.greater(parse_numbers(values, split.column), after)
