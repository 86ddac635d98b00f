"""The columns of the raw table of a model, and the encoding of each, for formats that are applied to rows of the raw
table.

A value of the raw table is a number, a text or a point in time. Numbers, amounts, booleans and the years of a date are
one feature column each. Categories, months, days of the week and hours are one-hot encoded: one feature column per
value. All of them are 0 for a missing value, and for a value that did not occur in training, unless rare values share a
column, which is then 1. Missing numbers are filled as in ``store.sources.preprocessing``; the missing-value indicators
are the last feature columns.
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
"""A value of a category that is an integer exact in float64; a category of such values may be a column of numbers."""
TIMES = (YEARS, *CALENDAR)
"""The kinds of columns that are computed from points in time."""
KEEP = "keep the model as it is and use 'streamsvm predict'"


class RawTable(NamedTuple):
    """The raw table of a model; it has d feature columns besides the missing-value indicators."""

    schema: Schema
    filling: Float64 | None
    """(d,) the replacements of missing values, minus the offsets; None if values must not be missing."""
    indicators: Int64
    """The feature columns that have an indicator, which is 1 if their value is missing."""
    offsets: Float64
    """(d,) the numbers that are subtracted from the feature columns."""
    words: MissingWords
    """Words and numbers that the user declared to mean a missing value."""

    @property
    def only_numbers(self) -> bool:
        """Whether all columns are plain numbers."""
        return all(column.kind == NUMBER for column in self.schema.columns) and not self.words.added

    @property
    def sources(self) -> dict[str, str]:
        """The columns of the raw table that are needed, each with its kind; the kind of a point in time is 'years'."""
        kinds: dict[str, str] = {}
        for column in self.schema.columns:
            for name in column.sources:
                kinds.setdefault(name, YEARS if column.kind in TIMES else column.kind)
        return kinds

    @property
    def hashed_columns(self) -> tuple[str, ...]:
        """The names of the hashed columns."""
        return tuple(column.name for column in self.schema.columns if column.kind == HASHED)

    def columns_with_places(self) -> Iterator[tuple[int, Column]]:
        """Yield each column after the number of its first feature column."""
        start = 0
        for column in self.schema.columns:
            yield start, column
            start += column.width

    def values_of(self, source: str) -> tuple[str, ...]:
        """Return the known values of a categorical column of the raw table, including those in crosses, without the
        common value of rare ones.
        """
        values: dict[str, None] = {}
        for column in self.schema.columns:
            if column.kind == CATEGORY and source in column.sources:
                place = column.sources.index(source)
                values |= dict.fromkeys(parts[place] for parts in split_values(column))
        return tuple(values)

    def is_numeric(self, source: str) -> bool:
        """Return whether all known values of a category are integers."""
        values = self.values_of(source)
        return bool(values) and all(map(WHOLE_NUMBER.fullmatch, values))

    def check(self, program: str, *, clocks: bool, hashes: tuple[str, ...] = (), remedy: str = "") -> None:
        """Raise UsageError for columns that ``program`` cannot compute: vectors, hashed columns but those of a kind in
        ``hashes``, and unless ``clocks`` local times of a time zone.

        ``remedy``: what the user can do about a hashed column that is no cross, the first words of the hint.
        """
        for column in self.schema.columns:
            if column.kind == VECTOR:
                raise UsageError(
                    f"the column {quote(column.name)} of the table holds vectors, which {program} does not take",
                    hint=f"write the weights of its {column.size} numbers with --format liblinear, or {KEEP}",
                )
            if column.kind in (HASHED, TEXT) and (column.kind not in hashes or column.parts):
                name = shell_word(column.name)
                reason = "hashed" if column.kind == HASHED else "cut into words or characters, which are hashed"
                first = f"{remedy}, or " if remedy and column.kind == HASHED and not column.parts else ""
                raise UsageError(
                    f"the column {quote(column.name)} of the table is {reason}: {program} cannot compute that hash",
                    hint=f"{first}ingest with --column {name}=category --min-count 5, or leave it out with --drop {name}, or {KEEP}",
                )
            is_local = column.kind in CALENDAR and not column.form and column.zone
            if is_local and column.zone not in UTC_NAMES and not clocks:
                raise UsageError(
                    f"the {column.kind} of {quote(column.name)} is that of clocks in {column.zone}, which {program} does not know",
                    hint=f"ingest the column in UTC, or {KEEP}",
                )


def raw_table(model: Model) -> RawTable | None:
    """Return the raw table of a model; for a model of arrays with column names, a table of numbers; None without
    names.
    """
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


def values_without_rare(column: Column) -> tuple[str, ...]:
    """Return the values of a category without the common value of rare ones."""
    return tuple(value for value in column.values if value != OTHER)


def has_other(column: Column) -> bool:
    """Return whether the last feature column stands for all values that are not known."""
    return column.values[-1:] == (OTHER,)


def split_values(column: Column) -> Iterator[tuple[str, ...]]:
    """Yield for each value of a category the values of its source columns: one, or several for a cross.

    Raises UsageError if a value of a cross can be split in several ways.
    """
    parts = len(column.sources)
    for value in values_without_rare(column):
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
    """Return whether blanks around the values of a category can be ignored: no two values differ only by them."""
    return len({value.strip() for value in values}) == len(values)


def has_whole_numbers(values: Iterable[str]) -> bool:
    """Return whether some value of a category is an integer; in the raw table it may be written with a fraction of
    zeros.
    """
    return any(re.fullmatch(r"[+-]?[0-9]+", value.strip()) for value in values)


def truth_words() -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the usual spellings of yes and of no."""
    return _spellings(TRUE), _spellings(FALSE)


def _spellings(words: tuple[str, ...]) -> tuple[str, ...]:
    cases = [case(word) for word in words for case in (str, str.capitalize, str.upper)]
    return tuple(dict.fromkeys([*cases, *(f"{word}.0" for word in words if word.isdigit())]))


def free_name(name: str, taken: set[str]) -> str:
    """Return ``name``, followed by as many '_' as are needed to differ from all names in ``taken``."""
    while name in taken:
        name += "_"
    return name
