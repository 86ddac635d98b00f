"""The raw columns that a model of a table takes, and what becomes of each: for formats that take rows of the raw table.

A value of the raw table is a number, a text or a point in time. Numbers, amounts, yes and no, and the years of a date are one
feature column each; a category, a month, a day of the week and an hour are one feature column a value, of which one is 1, or none for a
missing value and for one that training has not seen (where rare values have a column together, that one). Missing numbers are filled as
``store.sources.preprocessing`` does; its indicators are the last feature columns.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator
from typing import NamedTuple

import numpy as np

from streamsvm.errors import UsageError, quote
from streamsvm.model import Model
from streamsvm.rows import Float64, Int64
from streamsvm.store.sources.cell_parsing import FALSE, TRUE, UTC_NAMES, MissingWords
from streamsvm.store.sources.offsets import offsets_from
from streamsvm.store.sources.preprocessing import filling_from
from streamsvm.store.sources.schema import (
    CALENDAR,
    CATEGORY,
    HASHED,
    NUMBER,
    OTHER,
    TEXT,
    VECTOR,
    YEARS,
    Column,
    Schema,
    schema_from,
    shell_word,
)
from streamsvm.store.sources.table import CROSSED

WHOLE_NUMBER = re.compile(r"-?[1-9][0-9]{0,14}|0")
"""A value of a category that float64 holds: the column may be one of numbers."""
TIMES = (YEARS, *CALENDAR)
"""The kinds of columns made of points in time."""
KEEP = "keep the model as it is and use 'streamsvm predict'"


class RawTable(NamedTuple):
    """The raw table of a model, with d feature columns before indicators."""

    schema: Schema
    filling: Float64 | None
    """What stands for a missing value (d,), less the offset; None where values may not be missing."""
    indicators: Int64
    """The feature columns that have an indicator, which is 1 where their value is missing."""
    offsets: Float64
    """What is subtracted from each feature column (d,)."""
    words: MissingWords
    """Words and numbers that the user said to stand for a missing value."""

    @property
    def only_numbers(self) -> bool:
        """Whether every column is a number as it is."""
        return all(column.kind == NUMBER for column in self.schema.columns) and not self.words.added

    @property
    def sources(self) -> dict[str, str]:
        """The columns of the raw table that are needed, each with the kind of what is made of it: of a category
        'category', of a point in time 'years'.
        """
        found: dict[str, str] = {}
        for column in self.schema.columns:
            for name in column.sources:
                found.setdefault(name, YEARS if column.kind in TIMES else column.kind)
        return found

    def placed(self) -> Iterator[tuple[int, Column]]:
        """Yield every column with the number of its first feature column."""
        start = 0
        for column in self.schema.columns:
            yield start, column
            start += column.width

    def values_of(self, source: str) -> tuple[str, ...]:
        """Return the known values of a category of the raw table, in crosses too, without that of all rare ones."""
        found: dict[str, None] = {}
        for column in self.schema.columns:
            if column.kind == CATEGORY and source in column.sources:
                place = column.sources.index(source)
                found |= dict.fromkeys(parts[place] for parts in split_values(column))
        return tuple(found)

    def is_numeric(self, source: str) -> bool:
        """Whether all known values of a category are whole numbers."""
        values = self.values_of(source)
        return bool(values) and all(map(WHOLE_NUMBER.fullmatch, values))

    def check(self, program: str, *, clocks: bool) -> None:
        """Raise UsageError for what a format cannot compute: hashes, words, and, without ``clocks``, times of zones."""
        for column in self.schema.columns:
            if column.kind == VECTOR:
                raise UsageError(
                    f"the column {quote(column.name)} of the table holds vectors, which {program} does not take",
                    hint=f"write the weights of its {column.size} numbers with --format liblinear, or {KEEP}",
                )
            if column.kind in (HASHED, TEXT):
                name = shell_word(column.name)
                what = "hashed" if column.kind == HASHED else "cut into words or characters, which are hashed"
                raise UsageError(
                    f"the column {quote(column.name)} of the table is {what}: {program} cannot compute that hash",
                    hint=f"ingest with --column {name}=category --min-count 5, or leave it out with --drop {name}, or {KEEP}",
                )
            local = column.kind in CALENDAR and not column.form and column.zone
            if local and column.zone not in UTC_NAMES and not clocks:
                raise UsageError(
                    f"the {column.kind} of {quote(column.name)} is that of clocks in {column.zone}, which {program} does not know",
                    hint=f"ingest the column in UTC, or {KEEP}",
                )


def raw_table(model: Model) -> RawTable | None:
    """Return the raw table of a model, or of arrays whose columns have names; None where they have none."""
    encoding = model.provenance.get("encoding") or {}
    filling = filling_from(encoding)
    if encoding.get("schema"):
        schema = schema_from(encoding["schema"])
    elif model.names is not None:
        names = model.names[: model.columns if filling is None else len(filling.values)]
        schema = Schema(tuple(Column(name, NUMBER) for name in names), None)
    else:
        return None
    offsets = offsets_from(encoding)
    return RawTable(
        schema,
        None if filling is None else filling.values.astype(np.float64),
        np.empty(0, np.int64) if filling is None else filling.indicators,
        offsets.at(np.arange(schema.width)),
        MissingWords(tuple((encoding.get("options") or {}).get("missing_words", ()))),
    )


def known_values(column: Column) -> tuple[str, ...]:
    """Return the values of a category without that of all rare ones."""
    return tuple(value for value in column.values if value != OTHER)


def has_other(column: Column) -> bool:
    """Return whether values that are not known fall on a feature column of their own, the last."""
    return column.values[-1:] == (OTHER,)


def split_values(column: Column) -> Iterator[tuple[str, ...]]:
    """Yield the values of the parts of each value of a category: one, or several of a cross.

    Raises UsageError where a value can be split in several ways.
    """
    parts = len(column.sources)
    for value in known_values(column):
        pieces = value.split(CROSSED)
        if parts == 1:
            yield (value,)
        elif len(pieces) == parts:
            yield tuple(pieces)
        else:
            raise UsageError(
                f"the value {quote(value)} of the cross {quote(column.name)} can be split in several ways",
                hint=f"ingest without values that hold {quote(CROSSED)}, or {KEEP}",
            )


def trims_blanks(values: Collection[str]) -> bool:
    """Return whether a category's values may have blanks around them: no two known ones differ by these alone."""
    return len({value.strip() for value in values}) == len(values)


def has_whole_numbers(values: Iterable[str]) -> bool:
    """Return whether some value of a category is a whole number, whose text may have had a fraction of zeros."""
    return any(re.fullmatch(r"[+-]?[0-9]+", value.strip()) for value in values)


def truth_words() -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the usual spellings of yes and of no."""
    return _spellings(TRUE), _spellings(FALSE)


def _spellings(words: tuple[str, ...]) -> tuple[str, ...]:
    cases = [case(word) for word in words for case in (str, str.capitalize, str.upper)]
    return tuple(dict.fromkeys([*cases, *(f"{word}.0" for word in words if word.isdigit())]))


def free_name(name: str, taken: set[str]) -> str:
    """Return a name that is not taken: the name itself, or with as many '_' behind it as it needs."""
    while name in taken:
        name += "_"
    return name
