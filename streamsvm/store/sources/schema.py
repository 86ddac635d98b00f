"""The schema of a table: the columns of label, weight and id, and the feature columns that others become."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate
from typing import TYPE_CHECKING, NamedTuple

from streamsvm.aliases import JsonMapping, JsonObject
from streamsvm.config.units import mib
from streamsvm.errors import BudgetError, DataError, UsageError, quote
from streamsvm.store.sources.options import SourceOptions

if TYPE_CHECKING:
    from streamsvm.store.sources.text_features import DocumentCounts
    from streamsvm.store.sources.value_counts import TableCensus

NUMBER, AMOUNT, BOOLEAN, YEARS = "number", "amount", "boolean", "years"
CATEGORY, HASHED, TEXT = "category", "hashed", "text"
SINGLE = (NUMBER, AMOUNT, BOOLEAN, YEARS)
"""The kinds of columns that are one number."""
WRITTEN = (AMOUNT, BOOLEAN, CATEGORY, HASHED, TEXT)
"""The kinds that are read from text, however it is written."""
DATE, EPOCH_SECONDS, DECIMAL_COMMA, HASH, DROP = "date", "epoch", "decimal-comma", "hash", "drop"
WORDS, CHARS = "words", "chars"
KINDS = (NUMBER, AMOUNT, DECIMAL_COMMA, BOOLEAN, DATE, EPOCH_SECONDS, CATEGORY, HASH, WORDS, CHARS, DROP)
"""The kinds that --column takes."""
OTHER = "(other)"
"""The name of the feature column of all rare values of a category, and of those that are new."""
WEEKDAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
CALENDAR = {"month": tuple(map(str, range(1, 13))), "weekday": WEEKDAYS, "hour": tuple(map(str, range(24)))}
FEW_VALUES = 200
"""The most values of text that become one-hot columns without being asked; more are hashed."""
HASH_BITS = 14
"""The default exponent of the number of columns that text is hashed into."""
ALL_TEXT = "*"
ONE_HOT_BYTES = 8
DENSE_BYTES = 4
SPARSE_BELOW = 0.5
"""Rows are CSR when their entries take less than this share of what dense rows would."""
COLUMN_BYTES = 8000
"""Bytes of memory for each column of a table beside its name: its type, its record, a block of its values (measured
with CSV of 20,000 and 50,000 columns: 4,000 to 7,800, with what the allocator adds).
"""
NAME_COPIES = 40
"""Bytes for each character of a name, which is in the header, in a block, in several objects and in the manifest."""


@dataclass(frozen=True, slots=True)
class Column:
    """One column of the table, or a cross of several, and the feature columns made of it."""

    name: str
    """Its name in the table; of a cross the names of its columns with '*' between."""
    kind: str
    """'number', 'amount', 'boolean', 'category', 'hashed', 'text', or a part of a point in time: 'years', 'month',
    'weekday', 'hour'."""
    values: tuple[str, ...] = ()
    """The value that each feature column stands for; empty for a number and for what is hashed."""
    form: str = ""
    """Of dates one of ``cell_parsing.DATES``, of an amount 'decimal-comma' or empty, of text 'words' or 'chars:2-4'. Empty
    where the type of the column says it.
    """
    unasked: bool = False
    """Whether its kind was decided by its values; text may then become hashed columns, or be left out."""
    parts: tuple[str, ...] = ()
    """The columns of a cross; empty for a column of the table."""
    zone: str = ""
    """Of points in time: the time zone of the column, 'UTC' for texts with offsets; empty where times have no zone."""
    text_bits: int = 0
    """The exponent of the number of feature columns of text; 0 for other kinds."""

    @property
    def width(self) -> int:
        """The number of feature columns."""
        if self.kind == TEXT:
            return 1 << self.text_bits
        return 1 if self.kind in SINGLE else len(self.values)

    @property
    def features(self) -> tuple[str, ...]:
        """The names of the feature columns; none where they stand for whatever is hashed to them."""
        return tuple(map(self.name_feature, range(1 if self.kind in SINGLE else len(self.values))))

    def name_feature(self, number: int) -> str:
        """Return the name of a feature column of this column, numbered from 0; a hashed one is named by its number."""
        if self.kind in SINGLE:
            return f"{self.name}.years" if self.kind == YEARS else self.name
        if not self.values:
            return f"{self.name}, hash {number}"
        name = self.name if self.kind == CATEGORY else f"{self.name}.{self.kind}"
        return f"{name}={self.values[number]}"

    @property
    def needs_value(self) -> bool:
        """Whether a missing value is an error that names its line; text without words is none."""
        return self.kind != TEXT and (self.kind in WRITTEN or bool(self.form))

    @property
    def sources(self) -> tuple[str, ...]:
        """The columns of the table that it needs."""
        return self.parts or (self.name,)

    @property
    def stated(self) -> str:
        """The kind as --column and schema files say it; of a part of a date the whole date."""
        if self.kind in (YEARS, *CALENDAR):
            return EPOCH_SECONDS if self.form == EPOCH_SECONDS else f"{DATE}:{self.form}" if self.form else DATE
        if self.kind in (AMOUNT, TEXT):
            return self.form or AMOUNT
        return HASH if self.kind == HASHED else self.kind


@dataclass(frozen=True, slots=True)
class Schema:
    """What is read of a table."""

    columns: tuple[Column, ...]
    """The columns that become features, in the order of the features."""
    label: str | None
    weight: str | None = None
    hash_bits: int = 0
    """The exponent of the number of feature columns that all hashed columns share, after the others; 0 for none."""
    dropped: tuple[str, ...] = ()
    """Columns that a table may have beside those that are read."""
    id_column: str | None = None
    documents: Mapping[str, DocumentCounts] = field(default_factory=dict)
    """For each column of text, the number of rows in which each of its feature columns is not 0."""
    split: str | None = None
    """The column by which rows are held out; None where they are held out by chance."""

    @property
    def width(self) -> int:
        """The number of feature columns."""
        return self.own_width + (1 << self.hash_bits if self.hash_bits else 0)

    @property
    def own_width(self) -> int:
        """The number of feature columns that belong to one column of the table."""
        return sum(column.width for column in self.columns)

    @property
    def has_text(self) -> bool:
        """Whether some column is cut into words or characters."""
        return any(column.kind == TEXT for column in self.columns)

    @property
    def names(self) -> tuple[str, ...] | None:
        """The names of the feature columns; None when some are hashed."""
        if self.hash_bits or self.has_text:
            return None
        return tuple(name for column in self.columns for name in column.features)

    def feature_namer(self) -> Callable[[int], str]:
        """Return the function from the number of a feature column, from 0, to its name; a hashed one is named by its number."""
        starts = list(accumulate((column.width for column in self.columns), initial=0))
        hashed = " or ".join(column.name for column in self.columns if column.kind == HASHED)

        def name_of(number: int) -> str:
            k = bisect_right(starts, number) - 1
            if k == len(self.columns):
                return f"{hashed}, hash {number - starts[k]}"
            return self.columns[k].name_feature(number - starts[k])

        return name_of

    @property
    def indicators(self) -> list[list[int]]:
        """The ranges [start, stop) of feature columns of categories, parts of dates and text, as plain JSON."""
        found, start = [], 0
        for column in self.columns:
            if column.kind not in (*SINGLE, HASHED):
                found.append([start, start + column.width])
            start += column.width
        return [*found, [start, self.width]] if self.width > start else found

    @property
    def sparse(self) -> bool:
        """Whether rows are CSR, because dense ones are much larger, as with many one-hot columns."""
        if self.hash_bits > 0 or self.has_text:
            return True
        return ONE_HOT_BYTES * len(self.columns) < SPARSE_BELOW * DENSE_BYTES * self.width

    def place(self, column: Column) -> int:
        """The number of the first feature column that is made of a column."""
        return sum(c.width for c in self.columns[: self.columns.index(column)])

    @property
    def needed(self) -> list[str]:
        """The columns of the table to read, each once."""
        extra = [name for name in (self.label, self.weight, self.id_column, self.split) if name is not None]
        return list(dict.fromkeys([*(name for c in self.columns for name in c.sources), *extra]))

    @property
    def crosses(self) -> dict[str, tuple[str, ...]]:
        """The columns of each cross, by its name."""
        return {c.name: c.parts for c in self.columns if c.parts}

    def complete(self, census: TableCensus, options: SourceOptions) -> Schema:
        """Return the schema with the distinct values of its categories.

        A category that was decided by its values becomes hashed columns where it has many, and is left out where almost
        every row has another.
        """
        columns: list[Column] = []
        dropped = list(self.dropped)
        for column in self.columns:
            found = census.values[column.name] if column.kind == CATEGORY else None
            if found is None:
                columns.append(column)
            elif column.unasked and found.unique:
                dropped.append(column.name)
            elif column.unasked and len(found.counts) > FEW_VALUES:
                columns.append(replace(column, kind=HASHED))
            else:
                columns.append(replace(column, values=found.values(options.min_count)))
        bits = (options.hash_bits or HASH_BITS) if any(c.kind == HASHED for c in columns) else 0
        return replace(self, columns=tuple(columns), dropped=tuple(dropped), hash_bits=bits, documents=census.documents)

    def for_columns(self, names: Sequence[str], options: SourceOptions, where: str) -> Schema:
        """Return the schema for other files with these columns, in any order, which may lack label and weight.

        ``options.label`` is the label as the user states it now, None as it was recorded. Raises DataError E-SCHEMA for
        a missing column.
        """
        known = set(names)
        if missing := [name for c in self.columns for name in c.sources if name not in known]:
            missing = list(dict.fromkeys(missing))  # a date has several columns of one name
            raise DataError(f"{where} has no column {list_names(missing)}", code="E-SCHEMA", hint=columns_hint(names))
        recorded = self.label if self.label in names else None
        found = recorded if options.label is None else label_of(self._without_dropped(names), options.label, where)
        weight = self.weight if self.weight in names and not options.unlabeled else None
        ids = self.id_column if self.id_column in names else None
        if options.id_column is not None:
            (ids,) = check_named([options.id_column], names, "--id", where)
        return replace(self, label=None if options.unlabeled else found, weight=weight, id_column=ids)

    def _without_dropped(self, names: Sequence[str]) -> Sequence[str]:
        """The columns without those that are left out, among which the label is 'first' or 'last'."""
        return [name for name in names if name not in self.dropped] or names

    def note_extra(self, names: Sequence[str], label: str | None, notices: dict[str, int]) -> None:
        """Count in ``notices`` the columns that are ignored, because the model was trained without them."""
        known = {*self.needed, *self.dropped, label}
        if extra := [name for name in names if name not in known]:
            notices[f"columns that the model does not know are ignored: {list_names(extra)}"] = len(extra)

    def to_json(self) -> JsonObject:
        """Return the schema as plain JSON."""
        recorded: JsonObject = {
            "columns": [_column_json(column) for column in self.columns],
            "label": self.label,
            "weight": self.weight,
            "hash_bits": self.hash_bits,
        }
        if self.documents:
            recorded["documents"] = {name: counts.to_json() for name, counts in self.documents.items()}
        return recorded | {"dropped": list(self.dropped), "id": self.id_column, "by_value": True}


def _column_json(column: Column) -> JsonObject:
    found = {"name": column.name, "kind": column.kind, "values": list(column.values), "form": column.form}
    more = {"parts": list(column.parts), "text_bits": column.text_bits, "zone": column.zone}
    return found | {name: value for name, value in more.items() if value}


def schema_from(recorded: JsonMapping) -> Schema:
    """Return the schema that ``Schema.to_json`` wrote."""
    from streamsvm.store.sources.text_features import document_counts_from

    return Schema(
        tuple(_column_from(found) for found in recorded["columns"]),
        recorded.get("label"),
        recorded.get("weight"),
        recorded.get("hash_bits", 0),
        tuple(recorded.get("dropped", ())),
        id_column=recorded.get("id"),
        documents={name: document_counts_from(found) for name, found in recorded.get("documents", {}).items()},
    )


def _column_from(recorded: JsonMapping) -> Column:
    return Column(
        recorded["name"],
        recorded["kind"],
        tuple(recorded.get("values", ())),
        recorded.get("form", ""),
        parts=tuple(recorded.get("parts", ())),
        zone=recorded.get("zone", ""),
        text_bits=recorded.get("text_bits", 0),
    )


def label_of(names: Sequence[str], label: str | None, where: str) -> str | None:
    """Return the name of the label column, None for 'none'. Raises UsageError, DataError E-LABEL."""
    if label is None:
        raise UsageError(f"which column of {where} is the label?", hint=f"pass --label; {columns_hint(names)}")
    if label in names:
        return label
    if label in ("first", "last", "none"):
        return {"first": names[0], "last": names[-1], "none": None}[label]
    found = f"{where} has no column {quote(label)} for the label"
    if alike := [name for name in names if name.strip().lower() == label.strip().lower()]:
        raise DataError(found, code="E-LABEL", hint=f"there is {quote(alike[0])}: pass --label {shell_word(alike[0])}")
    raise DataError(found, code="E-LABEL", hint=columns_hint(names))


def check_named(wanted: Sequence[str], names: Sequence[str], option: str, where: str) -> Sequence[str]:
    """Return the columns that an option names. Raises DataError E-SCHEMA for one that is not there."""
    known = {*names, ALL_TEXT} if wanted else ()
    if missing := [name for name in wanted if name not in known]:
        found = f"{where} has no column {list_names(missing)}, named by {option}"
        raise DataError(found, code="E-SCHEMA", hint=columns_hint(names))
    return wanted


def columns_hint(names: Sequence[str]) -> str:
    """Return a hint that lists the columns of a table."""
    return f"its columns are {list_names(names)}"


def shell_word(name: str) -> str:
    """Return a name quoted for a command line, safe to show on a terminal."""
    import shlex

    return name if shlex.quote(name) == name and name.isprintable() else quote(name)


def list_names(names: Sequence[str], most: int = 12) -> str:
    """Return names for a message, the first of them where there are many."""
    shown = ", ".join(quote(name, 40) for name in names[:most])
    return shown + (f", ... ({len(names)} in all)" if len(names) > most else "")


class TableWidth(NamedTuple):
    """The columns of a file, and the bytes that it takes to know and to read them."""

    name: str
    columns: int
    nbytes: int

    def refusal(self, left: int, enough: int) -> BudgetError:
        """Return the error where so many bytes are ``left``; a limit of ``enough`` would do for the whole job."""
        return BudgetError(
            f"{self.name} has {self.columns} columns: about {self.nbytes >> 20}MiB are needed for them, {left >> 20}MiB are left",
            hint=f"use --memory {mib(enough, up=True)}, or store the table as npy, HDF5 or svmlight",
        )


NO_TABLE = TableWidth("", 0, 0)


def width_bytes(columns: Collection[str]) -> int:
    """Return the bytes that it takes to know columns of these names."""
    return len(columns) * COLUMN_BYTES + NAME_COPIES * sum(map(len, columns))


def check_width(
    name: str, columns: Collection[str], memory_limit: int | None, reading: int = 0, where: str = ""
) -> None:
    """Raise BudgetError where ``memory_limit`` is too small to know the columns of a table and to read them, which
    takes ``reading`` bytes; ``where`` says in which part of the file that is.
    """
    needed = width_bytes(columns) + reading
    if memory_limit is not None and needed > memory_limit:
        found = f"{name} has {len(columns)} columns{where}: about {needed >> 20}MiB are needed for them"
        smaller = ", write it with smaller row groups" if where else ""
        raise BudgetError(
            f"{found}, {memory_limit >> 20}MiB are left",
            hint=f"give {(needed - memory_limit >> 20) + 1}MiB more with --memory{smaller}, or store the table as npy, HDF5 or svmlight",
        )
