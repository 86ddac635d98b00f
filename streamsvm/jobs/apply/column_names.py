"""Names and source columns of the columns of a model or store, from the recorded encoding.

Every fit needs them, so that the module does not import the readers of tables.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from streamsvm.compute.blocks.column_pairs import NO_LEVEL
from streamsvm.features.curves import Hats
from streamsvm.model import Model
from streamsvm.model.model import PairVariable
from streamsvm.rows import Int64
from streamsvm.type_aliases import JsonMapping

if TYPE_CHECKING:
    from streamsvm.store.sources.schema import Schema


def column_names(model: Model) -> tuple[str, ...]:
    """Return the names of the model's d columns; their numbers if they have no names.

    The name of a hashed column consists of the names of the columns hashed to it and its number among them.
    """
    name_of = name_by_number(model.names, model.provenance.get("encoding"), model.columns, "{}")
    return tuple(map(name_of, range(model.columns)))


def source_columns(model: Model) -> list[tuple[str, str, float]]:
    """Return, for each of the model's d columns, the source column of the table, the value it stands for, and its
    sign in rows: ('city', 'rome', 1.0), ('age', '', 1.0), ('age', 'missing', 1.0).
    """
    sources = group_columns(model.names, model.provenance.get("encoding"), model.columns)
    return [
        (sources.name_of(group), sources.value_of(j), sources.sign_of(j))
        for j, group in enumerate(sources.group.tolist())
    ]


def table_columns(model: Model) -> list[str]:
    """Return the names, in order, of the columns of a table to which the model applies. For a model of other data
    return the names of its columns, if it has any.
    """
    schema = _schema_in_encoding(model.provenance.get("encoding"), model.columns)
    if schema is None:
        return list(model.names or ())
    return list(dict.fromkeys(column.name for column in schema.columns if not column.parts))


def name_by_number(
    names: Sequence[str] | None, encoding: JsonMapping | None, columns: int, otherwise: str
) -> Callable[[int], str]:
    """Return a function from the number of a column to its name, from the names and the encoding recorded of a store.

    ``otherwise`` is the format of the number for a column without a name.
    """
    if names:
        return lambda j: str(names[j])
    schema, marked = _schema_in_encoding(encoding, columns), _columns_with_indicator(encoding)
    if schema is None:
        return otherwise.format
    width, name_of = schema.width, schema.feature_namer()
    return lambda j: name_of(j) if j < width else f"{name_of(marked[j - width])} missing"


def _columns_with_indicator(encoding: JsonMapping | None) -> Sequence[int]:
    """Return the columns whose missing values are marked by indicator columns; these follow all other columns."""
    marked: Sequence[int] = ((encoding or {}).get("missing") or {}).get("indicators", ())
    return marked


def _schema_in_encoding(encoding: JsonMapping | None, columns: int) -> Schema | None:
    """Return the schema of the table from which ``columns`` columns were encoded; None if it does not give that number."""
    recorded = (encoding or {}).get("schema")
    if not recorded:
        return None
    from streamsvm.store.sources.schema import schema_from

    schema = schema_from({**recorded, "documents": {}})
    return schema if schema.width + len(_columns_with_indicator(encoding)) == columns else None


class SourceColumns(NamedTuple):
    """The columns of a table from which the columns of rows were encoded. For other data every column is its own source."""

    group: Int64
    """The number of the source column of each column, (d,)."""
    name_of: Callable[[int], str]
    """Returns the name of a source column."""
    kind_of: Callable[[int], str]
    """Returns the kind of a source column: 'number', 'vector', 'category', 'date', 'text', 'hashed'."""
    value_of: Callable[[int], str]
    """Returns the value of its source column that a column stands for: 'Paris', 'weekday mon', 'missing'; '[3]' for a
    number of a vector, empty for a number.
    """
    one_hot: tuple[tuple[int, int], ...] = ()
    """Ranges [start, stop) of columns of which at most one is 1 in a row."""
    marks: Mapping[int, int] = MappingProxyType({})
    """The column of numbers to which each indicator column of missing values belongs."""
    sign_of: Callable[[int], float] = lambda _: 1.0
    """Returns the number by which a column's value is multiplied in rows; -1 for a value whose hash is negative."""


def group_columns(names: Sequence[str] | None, encoding: JsonMapping | None, columns: int) -> SourceColumns:
    """Return the source columns of the columns of a store, from the recorded names and encoding."""
    schema, marked = _schema_in_encoding(encoding, columns), _columns_with_indicator(encoding)
    unmarked = columns - len(marked)
    marks = {unmarked + k: int(j) for k, j in enumerate(marked)}
    if schema is None:
        group = np.append(np.arange(unmarked), np.array(marked, np.int64))
        name_of = name_by_number(names, encoding, columns, "column {}")
        return SourceColumns(group, name_of, lambda _: "number", lambda j: "" if j < unmarked else "missing", (), marks)
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
    first_hashed = start
    if start < schema.width:
        hashed_names = " or ".join(column.name for column in schema.columns if column.kind == HASHED)
        numbers[hashed_names] = len(kinds)
        group[start : schema.width] = len(kinds)
        kinds.append(HASHED)
    group[schema.width :] = group[np.array(marked, np.int64)]
    titles, feature_name, width = list(numbers), schema.feature_namer(), schema.width

    negative = tuple(f"-{column.name}=" for column in schema.columns if column.kind == HASHED)

    def sign_of(j: int) -> float:
        return -1.0 if first_hashed <= j < width and feature_name(j).startswith(negative) else 1.0

    def value_of(j: int) -> str:
        if j >= width:
            return "missing"
        name = feature_name(j).removeprefix("-" if sign_of(j) < 0 else "").removeprefix(titles[group[j]])
        if name.startswith("="):  # a category, which may begin with any character
            return name[1:]
        return name.removeprefix(".").removeprefix(", ").replace("=", " ", 1)

    number_kinds = dict.fromkeys(SINGLE, "number")
    return SourceColumns(
        group,
        titles.__getitem__,
        lambda g: number_kinds.get(kinds[g], kinds[g]),
        value_of,
        tuple(one_hot),
        marks,
        sign_of,
    )


def pair_variables(model: Model) -> list[PairVariable]:
    """Return the variables of the pairs of columns of a model of curves."""
    hats = model.expansion
    if not isinstance(hats, Hats) or hats.pairs is None:
        return []
    sources, pairs = group_columns(model.names, model.provenance.get("encoding"), model.columns), hats.pairs
    variables = []
    for v, cells in enumerate(pairs.counts.tolist()):
        columns, levels = zip(*pairs.columns_of(v), strict=True)
        is_number = levels[0] == NO_LEVEL
        name = name_variable(sources, columns, number=is_number)
        if is_number:
            edges = pairs.edges_of(v).astype(np.float64) + model.offsets.get(columns[0], 0.0)
            texts = [f"{edge:.6g}" for edge in edges.tolist()]
            ranges = [f"below {texts[0]}", *(f"{a} to {b}" for a, b in pairwise(texts)), f"from {texts[-1]}"]
            variables.append(PairVariable(name, ranges, edges))
            continue
        values: list[list[str]] = [[] for _ in range(cells)]
        for column, level in zip(columns, levels, strict=True):
            values[level].append(_name_value(sources, column))
        labels = [own[0] if len(own) == 1 else "other values" if own else "none of them" for own in values]
        variables.append(PairVariable(name, labels, np.empty(0)))
    return variables


def _name_value(sources: SourceColumns, column: int) -> str:
    """Return the value of a category, or the name of a column of 0 and 1."""
    is_one_hot = any(start <= column < stop for start, stop in sources.one_hot)
    return sources.value_of(column) if is_one_hot else name_column(sources, column)


def name_variable(sources: SourceColumns, columns: Sequence[int], *, number: bool) -> str:
    """Return the name of a variable of a pair of columns: a column of numbers (``number``), the columns of a category or of a part
    of a date, or columns of 0 and 1.
    """
    first, last = columns[0], columns[-1]
    title, value = sources.name_of(int(sources.group[first])), sources.value_of(first)
    if number:
        return f"{title}.{value}" if value else title
    if any(start <= first < stop for start, stop in sources.one_hot):
        return f"{title}.{value.split(' ')[0]}" if sources.kind_of(int(sources.group[first])) == "date" else title
    names = [name_column(sources, column) for column in (first, last)]
    return names[0] if first == last else f"{names[0]} .. {names[1]}"


def name_column(sources: SourceColumns, column: int) -> str:
    """Return the name of a column of numbers or of 0 and 1: 'age', 'age missing'."""
    title, value = sources.name_of(int(sources.group[column])), sources.value_of(column)
    return f"{title} {value}" if value else title
