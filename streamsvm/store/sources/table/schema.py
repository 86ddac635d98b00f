"""Which column of a table becomes what: label, weight, number, one-hot columns, or nothing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from streamsvm.errors import DataError, UsageError, quote
from streamsvm.store.sources.options import SourceOptions

if TYPE_CHECKING:
    import pyarrow as pa

NUMBER, CATEGORY, HASHED = "number", "category", "hashed"
WEEKDAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
CALENDAR = {"month": tuple(map(str, range(1, 13))), "weekday": WEEKDAYS, "hour": tuple(map(str, range(24)))}
ALL_TEXT = "*"
ONE_HOT_BYTES = 8
DENSE_BYTES = 4
SPARSE_BELOW = 0.5
"""Rows are CSR when their entries take less than this share of what dense rows would."""


@dataclass(frozen=True, slots=True)
class Column:
    """One column of the table, and the feature columns made of it."""

    name: str
    """Its name in the table."""
    kind: str
    """'number', 'category', 'hashed', or a part of a point in time: 'month', 'weekday', 'hour'."""
    values: tuple[str, ...] = ()
    """What each feature column stands for; empty for a number."""

    @property
    def width(self) -> int:
        """The number of feature columns."""
        return 1 if self.kind == NUMBER else len(self.values)

    @property
    def features(self) -> tuple[str, ...]:
        """The names of the feature columns."""
        if self.kind == NUMBER:
            return (self.name,)
        name = self.name if self.kind == CATEGORY else f"{self.name}.{self.kind}"
        return tuple(f"{name}={value}" for value in self.values)


@dataclass(frozen=True, slots=True)
class Schema:
    """What is read of a table."""

    columns: tuple[Column, ...]
    """The columns that become features, in the order of the features."""
    label: str | None
    """The column of labels; None where there is none."""
    weight: str | None = None
    """The column of row weights; None where there is none."""
    hash_bits: int = 0
    """The exponent of the number of feature columns that all hashed columns share, after the others; 0 for none."""
    dropped: tuple[str, ...] = ()
    """Columns a table may have beside those that are read."""
    id_column: str | None = None
    """The column of the ids of the rows; None where they have no names."""
    by_value: bool = True
    """Whether 1, 1.0 and '1.0' are one category; schemas that were recorded before that was so tell them apart."""

    @property
    def width(self) -> int:
        """The number of feature columns."""
        return self.own_width + (1 << self.hash_bits if self.hash_bits else 0)

    @property
    def own_width(self) -> int:
        """The number of feature columns that belong to one column of the table."""
        return sum(column.width for column in self.columns)

    @property
    def names(self) -> tuple[str, ...] | None:
        """The names of the feature columns; None when some stand for whatever is hashed to them."""
        return None if self.hash_bits else tuple(name for column in self.columns for name in column.features)

    @property
    def sparse(self) -> bool:
        """Whether CSR is much smaller than dense, as with many one-hot columns."""
        return self.hash_bits > 0 or ONE_HOT_BYTES * len(self.columns) < SPARSE_BELOW * DENSE_BYTES * self.width

    @property
    def categories(self) -> tuple[str, ...]:
        """The names of the categorical columns."""
        return tuple(c.name for c in self.columns if c.kind == CATEGORY)

    @property
    def needed(self) -> list[str]:
        """The columns of the table that have to be read, each once."""
        extra = [name for name in (self.label, self.weight, self.id_column) if name is not None]
        return list(dict.fromkeys([*(c.name for c in self.columns), *extra]))

    def with_categories(self, values: Mapping[str, Sequence[str]]) -> Schema:
        """Return the schema with the distinct values of the categorical columns filled in."""
        known = (replace(c, values=tuple(values[c.name])) if c.kind == CATEGORY else c for c in self.columns)
        return replace(self, columns=tuple(known))

    def found_in(self, names: Sequence[str], options: SourceOptions, where: str) -> Schema:
        """Return the schema for files with these columns, in any order, in which label and weight may be missing.

        ``options.label`` is what the user says of the label now, None for what was recorded. Raises DataError E-SCHEMA
        for a column that is missing.
        """
        if missing := [c.name for c in self.columns if c.name not in names]:
            raise DataError(f"{where} has no column {_listed(missing)}", code="E-SCHEMA", hint=_columns(names))
        recorded = self.label if self.label in names else None
        found = recorded if options.label is None else label_of(names, options.label, where)
        weight = self.weight if self.weight in names else None
        ids = self.id_column if self.id_column in names else None
        if options.id_column is not None:
            (ids,) = _named([options.id_column], names, "--id", where)
        return replace(self, label=None if options.unlabeled else found, weight=weight, id_column=ids)

    def note_extra(self, names: Sequence[str], label: str | None, notices: dict[str, int]) -> None:
        """Count in ``notices`` the columns of a table that nobody asked for: the model was trained without them."""
        if extra := [name for name in names if name not in {*self.needed, *self.dropped, label}]:
            notices[f"columns that the model does not know are ignored: {_listed(extra)}"] = len(extra)

    def to_json(self) -> dict[str, Any]:
        """Return the schema as plain JSON."""
        columns = [{"name": c.name, "kind": c.kind, "values": list(c.values)} for c in self.columns]
        recorded = {"columns": columns, "label": self.label, "weight": self.weight, "hash_bits": self.hash_bits}
        return recorded | {"dropped": list(self.dropped), "id": self.id_column, "by_value": self.by_value}


def schema_from(recorded: Mapping[str, Any]) -> Schema:
    """Return the schema that ``Schema.to_json`` wrote."""
    columns = tuple(Column(c["name"], c["kind"], tuple(c["values"])) for c in recorded["columns"])
    dropped = tuple(recorded.get("dropped", ()))
    return Schema(
        columns,
        recorded["label"],
        recorded["weight"],
        recorded.get("hash_bits", 0),
        dropped,
        id_column=recorded.get("id"),
        by_value=recorded.get("by_value", False),
    )


def plan_schema(types: Mapping[str, pa.DataType], options: SourceOptions, where: str, code: str) -> Schema:
    """Decide what becomes of each column by its type and the options; ``code`` is the error for a column that is no
    number.

    Categorical columns have no values yet. Raises UsageError, DataError.
    """
    names = list(types)
    _check_named(names, options, where)
    label = label_of(names, options.label, where)
    columns: list[Column] = []
    for name in names:
        if name not in (label, options.weight, options.id_column, *options.drop):
            columns += _columns_of(name, types[name], options, where, code)
    if not columns:
        raise DataError(f"{where} has no column but the label", code="E-SCHEMA", hint=_columns(names))
    hashing = any(column.kind == HASHED for column in columns)
    return Schema(
        tuple(columns),
        label,
        options.weight,
        (options.hash_bits or 0) if hashing else 0,
        options.drop,
        options.id_column,
    )


def label_of(names: Sequence[str], label: str | None, where: str) -> str | None:
    """Return the name of the label column, None for 'none'. Raises UsageError, DataError E-LABEL."""
    if label is None:
        raise UsageError(f"which column of {where} is the label?", hint=f"pass --label; {_columns(names)}")
    if label in names:
        return label
    if label in ("first", "last", "none"):
        return {"first": names[0], "last": names[-1], "none": None}[label]
    raise DataError(f"{where} has no column {quote(label)} for the label", code="E-LABEL", hint=_columns(names))


def _check_named(names: Sequence[str], options: SourceOptions, where: str) -> None:
    weight = () if options.weight is None else (options.weight,)
    asked = {"--drop": options.drop, "--categorical": options.categorical, "--calendar": options.calendar}
    ids = () if options.id_column is None else (options.id_column,)
    for option, wanted in (asked | {"--weight": weight, "--id": ids}).items():
        _named(wanted, names, option, where)


def _named(wanted: Sequence[str], names: Sequence[str], option: str, where: str) -> Sequence[str]:
    """Return the columns that an option names. Raises DataError E-SCHEMA for one that is not there."""
    if missing := [name for name in wanted if name not in names and name != ALL_TEXT]:
        found = f"{where} has no column {_listed(missing)}, named by {option}"
        raise DataError(found, code="E-SCHEMA", hint=_columns(names))
    return wanted


def _columns_of(name: str, kind: pa.DataType, options: SourceOptions, where: str, code: str) -> list[Column]:
    from pyarrow import types

    value = kind.value_type if types.is_dictionary(kind) else kind
    text = any(test(value) for test in (types.is_string, types.is_large_string, types.is_string_view))
    if name in options.calendar:
        return _calendar(name, value, where, code)
    if name in options.categorical or (text and ALL_TEXT in options.categorical):
        return [Column(name, CATEGORY)]
    if text and options.hash_bits:
        return [Column(name, HASHED)]
    if any(test(value) for test in (types.is_integer, types.is_floating, types.is_decimal)):
        return [Column(name, NUMBER)]
    if types.is_boolean(value) and code == "E-DTYPE":
        return [Column(name, NUMBER)]
    hint = "encode it with --categorical or --hash, or leave it out with --drop"
    if types.is_temporal(value):
        hint = "encode it with --calendar, or leave it out with --drop"
    raise DataError(f"column {quote(name)} of {where} holds {value}, not numbers", code=code, hint=hint)


def _calendar(name: str, kind: pa.DataType, where: str, code: str) -> list[Column]:
    from pyarrow import types

    if not (types.is_timestamp(kind) or types.is_date(kind)):
        found = f"column {quote(name)} of {where} holds {kind}, not points in time"
        raise DataError(found, code=code, hint="--calendar is for dates and timestamps")
    parts = ("month", "weekday", "hour") if types.is_timestamp(kind) else ("month", "weekday")
    return [Column(name, part, CALENDAR[part]) for part in parts]


def same_columns(first: Iterable[str], other: Iterable[str], names: tuple[str, str]) -> None:
    """Raise DataError E-SCHEMA naming the difference when two files do not have the same columns."""
    mine, theirs = set(first), set(other)
    if mine != theirs:
        only = [f"{quote(column)} is only in {names[0]}" for column in sorted(mine - theirs)[:3]]
        only += [f"{quote(column)} is only in {names[1]}" for column in sorted(theirs - mine)[:3]]
        raise DataError(f"the columns differ: {'; '.join(only)}", code="E-SCHEMA", hint="ingest files of one table")


def _columns(names: Sequence[str]) -> str:
    return f"its columns are {_listed(names)}"


def _listed(names: Sequence[str], most: int = 12) -> str:
    shown = ", ".join(quote(name, 40) for name in names[:most])
    return shown + (f", ... ({len(names)} in all)" if len(names) > most else "")
