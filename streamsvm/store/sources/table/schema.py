"""Which column of a table becomes what: label, weight, number, one-hot columns, or nothing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from streamsvm.aliases import JsonMapping, JsonObject
from streamsvm.errors import DataError, UsageError, quote
from streamsvm.store.sources.options import SourceOptions

if TYPE_CHECKING:
    import pyarrow as pa

NUMBER, CATEGORY, HASHED = "number", "category", "hashed"
AMOUNT, BOOLEAN, YEARS = "amount", "boolean", "years"
SINGLE = (NUMBER, AMOUNT, BOOLEAN, YEARS)
"""The kinds of columns that are one number."""
HASH, DROP = "hash", "drop"
KINDS = (NUMBER, AMOUNT, BOOLEAN, "date", "epoch", CATEGORY, HASH, DROP)
"""What --column can say of a column."""
OTHER = "(other)"
"""The name of what stands for all rare values of a category, and for those that are new."""
FEW_VALUES = 200
"""Up to so many values text is one-hot without being asked; more are hashed."""
HASH_BITS = 14
"""The exponent of the number of columns that text is hashed into where nobody says it."""
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
    """'number', 'amount', 'boolean', 'category', 'hashed', or a part of a point in time: 'years', 'month', 'weekday',
    'hour'."""
    values: tuple[str, ...] = ()
    """What each feature column stands for; empty for a number."""
    form: str = ""
    """How points in time are written, one of ``cells.DATES``; empty where the files say it."""
    unasked: bool = False
    """Whether it is taken for a category because it holds text, and may be hashed or left out instead."""

    @property
    def width(self) -> int:
        """The number of feature columns."""
        return 1 if self.kind in SINGLE else len(self.values)

    @property
    def features(self) -> tuple[str, ...]:
        """The names of the feature columns."""
        if self.kind in SINGLE:
            return (f"{self.name}.years" if self.kind == YEARS else self.name,)
        name = self.name if self.kind == CATEGORY else f"{self.name}.{self.kind}"
        return tuple(f"{name}={value}" for value in self.values)


DECIDED = {
    CATEGORY: "one-hot; --column NAME=hash hashes it",
    HASHED: "hashed; --column NAME=category makes a column of each value",
    DROP: "left out, because almost every row has another; --column NAME=hash keeps it",
}


@dataclass(slots=True)
class ValueCensus:
    """The values of a column of text, counted until they are too many."""

    counts: dict[str, int] = field(default_factory=dict)
    """Rows of each value that was met; no more are added once they are too many."""
    rows: int = 0
    """Rows that have a value."""
    full: bool = False
    """Whether values are left out of ``counts``."""
    unasked: bool = False
    """Whether nobody said that it is a category."""
    unique: bool = False
    """Whether almost every row has another value: no row says anything about others."""

    def values(self, min_count: int) -> tuple[str, ...]:
        """Return the values that at least ``min_count`` rows have, sorted, and ``OTHER`` where there are rarer ones."""
        frequent = sorted(text for text, count in self.counts.items() if count >= min_count)
        return (*frequent, OTHER) if len(frequent) < len(self.counts) else tuple(frequent)

    def described(self) -> str:
        """Return how many values there are, in words."""
        return f"{'more than ' if self.full else ''}{len(self.counts)} values in {self.rows} rows"


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
    def indicators(self) -> list[list[int]]:
        """The feature columns [start, stop) that stand for values of categories and of parts of dates, as plain JSON."""
        found, start = [], 0
        for column in self.columns:
            if column.kind not in (*SINGLE, HASHED):
                found.append([start, start + column.width])
            start += column.width
        return [*found, [start, self.width]] if self.width > start else found

    @property
    def sparse(self) -> bool:
        """Whether CSR is much smaller than dense, as with many one-hot columns."""
        return self.hash_bits > 0 or ONE_HOT_BYTES * len(self.columns) < SPARSE_BELOW * DENSE_BYTES * self.width

    def censuses(self) -> dict[str, ValueCensus]:
        """Return an empty census for each categorical column, by name."""
        return {c.name: ValueCensus(unasked=c.unasked) for c in self.columns if c.kind == CATEGORY}

    @property
    def needed(self) -> list[str]:
        """The columns of the table that have to be read, each once."""
        extra = [name for name in (self.label, self.weight, self.id_column) if name is not None]
        return list(dict.fromkeys([*(c.name for c in self.columns), *extra]))

    def with_categories(self, found: Mapping[str, ValueCensus], options: SourceOptions) -> Schema:
        """Return the schema with the distinct values of the categorical columns filled in.

        Text that nobody asked for becomes hashed columns where it has many values, and is left out where almost every
        row has another.
        """
        columns: list[Column] = []
        dropped = list(self.dropped)
        for column in self.columns:
            census = found[column.name] if column.kind == CATEGORY else None
            if census is None:
                columns.append(column)
            elif column.unasked and census.unique:
                dropped.append(column.name)
            elif column.unasked and len(census.counts) > FEW_VALUES:
                columns.append(Column(column.name, HASHED))
            else:
                columns.append(replace(column, values=census.values(options.min_count)))
        bits = (options.hash_bits or HASH_BITS) if any(c.kind == HASHED for c in columns) else 0
        return replace(self, columns=tuple(columns), dropped=tuple(dropped), hash_bits=bits)

    def proposals(self, found: Mapping[str, ValueCensus]) -> list[str]:
        """Return what was decided of text without being asked, a line of text for each column."""
        kinds = {c.name: c.kind for c in self.columns}
        return [
            f"column {quote(name)}: text, {census.described()}: {DECIDED[kinds.get(name, DROP)]}"
            for name, census in found.items()
            if census.unasked
        ]

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

    def to_json(self) -> JsonObject:
        """Return the schema as plain JSON."""
        columns = [{"name": c.name, "kind": c.kind, "values": list(c.values), "form": c.form} for c in self.columns]
        recorded = {"columns": columns, "label": self.label, "weight": self.weight, "hash_bits": self.hash_bits}
        return recorded | {"dropped": list(self.dropped), "id": self.id_column, "by_value": self.by_value}


def schema_from(recorded: JsonMapping) -> Schema:
    """Return the schema that ``Schema.to_json`` wrote."""
    columns = tuple(Column(c["name"], c["kind"], tuple(c["values"]), c.get("form", "")) for c in recorded["columns"])
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


def plan_schema(
    types: Mapping[str, pa.DataType],
    options: SourceOptions,
    where: str,
    code: str,
    samples: JsonMapping | None = None,
) -> Schema:
    """Decide what becomes of each column by its type and the options; ``code`` is the error for a column that is no
    number.

    Categorical columns have no values yet. Raises UsageError, DataError.
    """
    names = list(types)
    said = stated_columns(options)
    _check_named(names, options, where, said)
    label = label_of(names, options.label, where)
    columns: list[Column] = []
    for name in names:
        if name not in (label, options.weight, options.id_column, *options.drop):
            sample = (samples or {}).get(name)
            stated = said.get(name) or (() if sample is None else _recognized(name, sample, options))
            columns += _columns_of(name, types[name], options, where, code) if not stated else _made(name, *stated)
    if not columns:
        raise DataError(f"{where} has no column but the label", code="E-SCHEMA", hint=_columns(names))
    hashing = any(column.kind == HASHED for column in columns)
    return Schema(
        tuple(columns),
        label,
        options.weight,
        (options.hash_bits or HASH_BITS) if hashing else 0,
        (*options.drop, *(name for name, (kind, _) in said.items() if kind == DROP)),
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


def _check_named(names: Sequence[str], options: SourceOptions, where: str, said: Iterable[str]) -> None:
    weight = () if options.weight is None else (options.weight,)
    asked = {"--drop": options.drop, "--categorical": options.categorical, "--calendar": options.calendar}
    ids = () if options.id_column is None else (options.id_column,)
    asked["--column"] = tuple(said)
    for option, wanted in (asked | {"--weight": weight, "--id": ids}).items():
        _named(wanted, names, option, where)


def _named(wanted: Sequence[str], names: Sequence[str], option: str, where: str) -> Sequence[str]:
    """Return the columns that an option names. Raises DataError E-SCHEMA for one that is not there."""
    if missing := [name for name in wanted if name not in names and name != ALL_TEXT]:
        found = f"{where} has no column {_listed(missing)}, named by {option}"
        raise DataError(found, code="E-SCHEMA", hint=_columns(names))
    return wanted


def stated_columns(options: SourceOptions) -> dict[str, tuple[str, str]]:
    """Return what --column says of columns, by name: the kind, and the form of dates. Raises UsageError."""
    from streamsvm.store.sources.table.cells import DATES

    found = {}
    for said in options.columns_as:
        column, equals, kind = said.rpartition("=")
        kind, _, form = kind.partition(":")
        if not equals or kind not in KINDS or (form and (kind != "date" or form not in DATES)):
            known = f"{', '.join(KINDS)}; a date as date:FORM with one of {' '.join(DATES)}"
            raise UsageError(f"--column {quote(said)} is not NAME=KIND", hint=f"kinds are {known}")
        found[column] = (kind, form or "iso") if kind == "date" else (kind, "")
    return found


def _recognized(name: str, sample: Any, options: SourceOptions) -> tuple[str, ...]:
    """What a column holds by its values; empty where its type or an option decides."""
    from streamsvm.store.sources.table.cells import is_text
    from streamsvm.store.sources.table.recognize import recognized

    if name in (*options.categorical, *options.calendar) or (is_text(sample.type) and ALL_TEXT in options.categorical):
        return ()
    if str(sample.type) == "bool":
        return BOOLEAN, ""
    if str(sample.type).startswith(("timestamp", "date")):
        return "date", "iso"
    found = recognized(sample) if is_text(sample.type) else ("", "")
    if found[0] == CATEGORY and options.hash_bits is not None:
        return HASH, ""
    return (*found, "unasked") if found[0] else ()


def _made(name: str, kind: str, form: str, unasked: str = "") -> list[Column]:
    """The columns that are made of one of a kind."""
    if kind in ("date", "epoch"):
        form = "epoch" if kind == "epoch" else form
        parts = [Column(name, part, CALENDAR[part], form) for part in ("month", "weekday")]
        return [Column(name, YEARS, (), form), *parts]
    if kind == DROP:
        return []
    return [Column(name, HASHED if kind == HASH else kind, unasked=bool(unasked) and kind == CATEGORY)]


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
