"""The names of columns, from what is recorded of a store. Every fit asks for them: nothing here loads what reads
tables.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from streamsvm.aliases import JsonMapping
from streamsvm.model import Model
from streamsvm.rows import Int64

if TYPE_CHECKING:
    from streamsvm.store.sources.schema import Schema


def names_of(model: Model) -> tuple[str, ...]:
    """Return the names of the model's columns, (d,); their numbers where they have none.

    Hashed columns are called by what is hashed to them and their number among those.
    """
    name_of = name_by_number(model.names, model.provenance.get("encoding"), model.columns, "{}")
    return tuple(map(name_of, range(model.columns)))


def source_columns(model: Model) -> list[tuple[str, str]]:
    """Return, for each column of the model (d,), the column of the table it was made of and the value it stands for:
    ('city', 'rome'), ('age', ''), ('age', 'missing').
    """
    found = group_columns(model.names, model.provenance.get("encoding"), model.columns)
    return [(found.name_of(group), found.value_of(j)) for j, group in enumerate(found.group.tolist())]


def table_columns(model: Model) -> list[str]:
    """Return the names of the columns of the table whose rows the model takes, in their order; without a table those of
    the model, or none.
    """
    schema = _recorded_schema(model.provenance.get("encoding"), model.columns)
    if schema is None:
        return list(model.names or ())
    return list(dict.fromkeys(column.name for column in schema.columns if not column.parts))


def name_by_number(
    names: Sequence[str] | None, encoding: JsonMapping | None, columns: int, otherwise: str
) -> Callable[[int], str]:
    """Return what tells the name of a column by its number, from what is recorded of a store; ``otherwise`` formats
    the number.
    """
    if names:
        return lambda j: str(names[j])
    schema, marked = _recorded_schema(encoding, columns), _marked_columns(encoding)
    if schema is None:
        return otherwise.format
    width, name_of = schema.width, schema.feature_namer()
    return lambda j: name_of(j) if j < width else f"{name_of(marked[j - width])} missing"


def _marked_columns(encoding: JsonMapping | None) -> Sequence[int]:
    """Return the columns whose missing values are marked in columns of their own, after all others."""
    found: Sequence[int] = ((encoding or {}).get("missing") or {}).get("indicators", ())
    return found


def _recorded_schema(encoding: JsonMapping | None, columns: int) -> Schema | None:
    """Return the schema of the table that so many columns were made of; None where they were made of something else."""
    recorded = (encoding or {}).get("schema")
    if not recorded:
        return None
    from streamsvm.store.sources.schema import schema_from

    schema = schema_from({**recorded, "documents": {}})
    return schema if schema.width + len(_marked_columns(encoding)) == columns else None


class SourceColumns(NamedTuple):
    """The columns of a table that the columns of rows were made of; columns of other data stand for themselves."""

    group: Int64
    """The number of the source column of each column, (d,)."""
    name_of: Callable[[int], str]
    """Tells the name of a source column."""
    kind_of: Callable[[int], str]
    """Tells what it holds: 'number', 'category', 'date', 'text', 'hashed'."""
    value_of: Callable[[int], str]
    """Tells what a column stands for within its source column: 'Paris', 'weekday mon', 'missing'; empty for a number."""
    one_hot: tuple[tuple[int, int], ...] = ()
    """Ranges [start, stop) of columns of which at most one is 1 in a row."""
    marks: Mapping[int, int] = MappingProxyType({})
    """The column of numbers that each mark of missing values belongs to."""


def group_columns(names: Sequence[str] | None, encoding: JsonMapping | None, columns: int) -> SourceColumns:
    """Return the source columns of so many columns, from what is recorded of a store."""
    schema, marked = _recorded_schema(encoding, columns), _marked_columns(encoding)
    own = columns - len(marked)
    marks = {own + k: int(j) for k, j in enumerate(marked)}
    if schema is None:
        group = np.append(np.arange(own), np.array(marked, np.int64))
        name_of = name_by_number(names, encoding, columns, "column {}")
        return SourceColumns(group, name_of, lambda _: "number", lambda j: "" if j < own else "missing", (), marks)
    from streamsvm.store.sources.schema import CALENDAR, CATEGORY, HASHED, SINGLE, YEARS

    numbers: dict[str, int] = {}
    kinds: list[str] = []
    group, one_hot, start = np.empty(columns, np.int64), [], 0
    for column in schema.columns:
        if column.kind == HASHED:
            continue
        number = numbers.setdefault(column.name, len(numbers))
        kinds += [column.kind] if number == len(kinds) else []
        if column.kind in (YEARS, *CALENDAR):
            kinds[number] = "date"
        group[start : start + column.width] = number
        if column.kind in (CATEGORY, *CALENDAR):
            one_hot.append((start, start + column.width))
        start += column.width
    if start < schema.width:
        together = " or ".join(column.name for column in schema.columns if column.kind == HASHED)
        numbers[together] = len(kinds)
        group[start : schema.width] = len(kinds)
        kinds.append(HASHED)
    group[schema.width :] = group[np.array(marked, np.int64)]
    titles, feature_name, width = list(numbers), schema.feature_namer(), schema.width

    def value_of(j: int) -> str:
        if j >= width:
            return "missing"
        name = feature_name(j).removeprefix(titles[group[j]])
        if name.startswith("="):  # a value of a category, which may begin with anything
            return name[1:]
        return name.removeprefix(".").removeprefix(", ").replace("=", " ", 1)

    plain = dict.fromkeys(SINGLE, "number")
    return SourceColumns(
        group, titles.__getitem__, lambda g: plain.get(kinds[g], kinds[g]), value_of, tuple(one_hot), marks
    )
