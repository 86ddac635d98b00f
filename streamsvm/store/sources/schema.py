"""The schema of a table: its columns of labels, weights and ids, and the encoding of others as feature columns."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from streamsvm.config.units import mib
from streamsvm.errors import BudgetError, DataError, UsageError, quote
from streamsvm.store.sources.options import SourceOptions
from streamsvm.type_aliases import JsonMapping, JsonObject

if TYPE_CHECKING:
    from streamsvm.store.sources.text_features import DocumentCounts
    from streamsvm.store.sources.value_counts import TableCensus

NUMBER, AMOUNT, BOOLEAN, YEARS = "number", "amount", "boolean", "years"
CATEGORY, HASHED, TEXT, VECTOR = "category", "hashed", "text", "vector"
SINGLE = (NUMBER, AMOUNT, BOOLEAN, YEARS)
"""The kinds of columns that are encoded as one number."""
WRITTEN = (AMOUNT, BOOLEAN, CATEGORY, HASHED, TEXT)
"""The kinds of columns that are parsed from text."""
DATE, EPOCH_SECONDS, DECIMAL_COMMA, HASH, DROP = "date", "epoch", "decimal-comma", "hash", "drop"
WORDS, CHARS = "words", "chars"
KINDS = (NUMBER, AMOUNT, DECIMAL_COMMA, BOOLEAN, DATE, EPOCH_SECONDS, CATEGORY, HASH, WORDS, CHARS, VECTOR, DROP)
"""The kinds that --column accepts."""
OTHER = "(other)"
"""The name of the feature column of the rare values of a category, and of values that first occur in other files."""
WEEKDAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
CALENDAR = {"month": tuple(map(str, range(1, 13))), "weekday": WEEKDAYS, "hour": tuple(map(str, range(24)))}
MAX_NAMED_VALUES, MAX_NAME_LENGTH = 200, 80
"""Values of a hashed column that the schema keeps as names, the most frequent ones, and characters of such a value."""
FEW_VALUES = 200
"""The most distinct values of a column of text that is encoded one-hot automatically; with more it is hashed."""
HASH_BITS = 14
"""The default exponent of the number of columns that text is hashed into."""
ALL_TEXT = "*"
ONE_HOT_BYTES = 8
DENSE_BYTES = 4
SPARSE_BELOW = 0.5
"""Rows are stored as CSR if their entries take less than this share of the bytes of dense rows."""
COLUMN_BYTES = 8400
"""Bytes of memory per column of a table without its name: its type, its record, a block of its values (measured with
CSV of 20,000 and 50,000 columns: 4,000 to 8,150, including the overhead of the allocator).
"""
NAME_COPIES = 40
"""Bytes of memory per character of a name, which is copied to the header, a block, several objects and the manifest."""


@dataclass(frozen=True, slots=True)
class Column:
    """One column of the table, or a cross of several, and its encoding as feature columns."""

    name: str
    """The name in the table; for a cross, the names of its columns joined by '*'."""
    kind: str
    """'number', 'amount', 'boolean', 'category', 'hashed', 'text', 'vector', or a part of a point in time: 'years',
    'month', 'weekday', 'hour'."""
    values: tuple[str, ...] = ()
    """The value of each one-hot feature column; empty for numbers and hashed columns."""
    form: str = ""
    """The format of the values: for dates one of ``cell_parsing.DATES``, for an amount 'decimal-comma' or empty, for
    text 'words' or 'chars:2-4'; empty if the type of the column tells it.
    """
    unasked: bool = False
    """Whether the kind was inferred from the values, not given by an option; text may then be hashed, or left out."""
    parts: tuple[str, ...] = ()
    """The columns of a cross; empty for a column of the table."""
    zone: str = ""
    """The time zone of a column of points in time, 'UTC' for texts with offsets; empty for times without a zone."""
    text_bits: int = 0
    """The exponent of the number of feature columns of text; 0 for other kinds."""
    size: int = 0
    """The numbers of each vector of a column of vectors; 0 for other kinds."""
    frequent: tuple[str, ...] = ()
    """Of a hashed column, the most frequent values of the rows that were counted, by which its feature columns are named."""

    @property
    def width(self) -> int:
        """The number of feature columns."""
        if self.kind == TEXT:
            return 1 << self.text_bits
        return self.size or (1 if self.kind in SINGLE else len(self.values))

    @property
    def features(self) -> tuple[str, ...]:
        """The names of the feature columns; empty for hashed ones."""
        return tuple(map(self.name_feature, range(0 if self.kind == TEXT else self.width)))

    def name_feature(self, number: int) -> str:
        """Return the name of feature column ``number``, from 0, of this column; a hashed one is named by its number."""
        if self.kind in SINGLE:
            return f"{self.name}.years" if self.kind == YEARS else self.name
        if self.kind == VECTOR:
            return f"{self.name}[{number}]"
        if not self.values:
            return f"{self.name}, hash {number}"
        name = self.name if self.kind == CATEGORY else f"{self.name}.{self.kind}"
        return f"{name}={self.values[number]}"

    @property
    def needs_value(self) -> bool:
        """Whether a missing value is an error that names its line; missing text is not."""
        return self.kind != TEXT and (self.kind in WRITTEN or bool(self.form))

    @property
    def sources(self) -> tuple[str, ...]:
        """The columns of the table from which it is encoded."""
        return self.parts or (self.name,)

    @property
    def stated(self) -> str:
        """The kind as --column and schema files name it; for a part of a date, the kind of the date."""
        if self.kind in (YEARS, *CALENDAR):
            return EPOCH_SECONDS if self.form == EPOCH_SECONDS else f"{DATE}:{self.form}" if self.form else DATE
        if self.kind in (AMOUNT, TEXT):
            return self.form or AMOUNT
        return HASH if self.kind == HASHED else self.kind


@dataclass(frozen=True, slots=True)
class Schema:
    """The columns of a table that are read, and their encoding."""

    columns: tuple[Column, ...]
    """The columns that are encoded as features, in the order of the features."""
    label: str | None
    weight: str | None = None
    hash_bits: int = 0
    """The exponent of the number of feature columns that all hashed columns share, after the others; 0 if none is
    hashed.
    """
    dropped: tuple[str, ...] = ()
    """Columns of the table that are left out."""
    id_column: str | None = None
    documents: Mapping[str, DocumentCounts] = field(default_factory=dict)
    """The number of rows in which each feature column is not 0, by column of text."""
    label_amount: str | None = None
    """The form of labels that are written as amounts and are numbers to predict, as that of a column; None: no amounts."""
    split: str | None = None
    """The column by which rows are held out; None if they are held out at random."""

    @property
    def width(self) -> int:
        """The number of feature columns."""
        return self.own_width + (1 << self.hash_bits if self.hash_bits else 0)

    @property
    def own_width(self) -> int:
        """The number of feature columns without those that all hashed columns share."""
        return sum(column.width for column in self.columns)

    @property
    def has_text(self) -> bool:
        """Whether a column is encoded as words or runs of characters."""
        return any(column.kind == TEXT for column in self.columns)

    @property
    def names(self) -> tuple[str, ...] | None:
        """The names of the feature columns; None if some are hashed."""
        if self.hash_bits or self.has_text:
            return None
        return tuple(name for column in self.columns for name in column.features)

    def feature_namer(self) -> Callable[[int], str]:
        """Return a function that maps the number of a feature column, from 0, to its name; a hashed one is named by its
        number.
        """
        starts = list(accumulate((column.width for column in self.columns), initial=0))
        hashed = " or ".join(column.name for column in self.columns if column.kind == HASHED)
        frequent = self._names_of_hashes()

        def name_of(number: int) -> str:
            k = bisect_right(starts, number) - 1
            if k == len(self.columns):
                return frequent.get(number - starts[k]) or f"{hashed}, hash {number - starts[k]}"
            return self.columns[k].name_feature(number - starts[k])

        return name_of

    def _names_of_hashes(self) -> dict[int, str]:
        """Return the names of the feature columns to which frequent values of hashed columns are hashed: 'city=rome', or
        '-city=rome' if the sign of the hash is negative. Columns that hold values of both signs have no name.
        """
        from streamsvm.store.sources.text_features import hash_place_and_sign

        names_by_place: dict[int, list[str]] = {}
        signs: dict[int, set[int]] = {}
        for column in self.columns:
            first = f"{column.name}="  # of several values of one column the others are named by the value alone
            for value in column.frequent:
                place, sign = hash_place_and_sign(column.name, value, self.hash_bits)
                names = names_by_place.setdefault(place, [])
                names.append(value if any(name.startswith(first) for name in names) else first + value)
                signs.setdefault(place, set()).add(sign)
        marks = {place: "-" if of_place == {-1} else "" for place, of_place in signs.items() if len(of_place) == 1}
        return {place: mark + " or ".join(names_by_place[place]) for place, mark in marks.items()}

    @property
    def indicators(self) -> list[list[int]]:
        """The ranges [start, stop) of feature columns of categories, parts of dates and text, as plain JSON."""
        ranges, start = [], 0
        for column in self.columns:
            if column.kind not in (*SINGLE, HASHED, VECTOR):
                ranges.append([start, start + column.width])
            start += column.width
        return [*ranges, [start, self.width]] if self.width > start else ranges

    @property
    def vectors(self) -> tuple[tuple[int, int], ...]:
        """The ranges [start, stop) of feature columns of vectors."""
        starts = accumulate((column.width for column in self.columns), initial=0)
        return tuple((start, start + c.size) for start, c in zip(starts, self.columns, strict=False) if c.size)

    @property
    def sparse(self) -> bool:
        """Whether rows are stored as CSR, because dense rows would be much larger, as with many one-hot columns."""
        if self.hash_bits > 0 or self.has_text:
            return True
        return ONE_HOT_BYTES * self.entries < SPARSE_BELOW * DENSE_BYTES * self.width

    @property
    def entries(self) -> int:
        """The most entries of a sparse row, without those of columns of text: one a column, and the numbers of vectors."""
        return sum(column.size or 1 for column in self.columns if column.kind != TEXT)

    def place(self, column: Column) -> int:
        """Return the number of the first feature column of a column."""
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

    def complete(
        self,
        census: TableCensus,
        options: SourceOptions,
        first_values: Mapping[str, tuple[str, ...]] = MappingProxyType({}),
    ) -> Schema:
        """Return the schema with the distinct values of its categories.

        A category that was inferred is hashed if it has many values, and left out if almost every row has a different
        one. ``first_values``: the most frequent values in the first rows, by column; hashed columns that are not counted
        are named by these.
        """
        columns: list[Column] = []
        dropped = list(self.dropped)
        for column in self.columns:
            values = census.values[column.name] if column.kind == CATEGORY else None
            if values is None:
                columns.append(column)
            elif column.unasked and values.is_almost_unique:
                dropped.append(column.name)
            elif column.unasked and len(values.counts) > FEW_VALUES:
                columns.append(replace(column, kind=HASHED, frequent=most_frequent(values.counts)))
            else:
                columns.append(replace(column, values=values.values(options.min_count)))
        columns = [
            replace(c, frequent=first_values.get(c.name, ())) if c.kind == HASHED and not c.frequent else c
            for c in columns
        ]
        bits = (options.hash_bits or HASH_BITS) if any(c.kind == HASHED for c in columns) else 0
        return replace(self, columns=tuple(columns), dropped=tuple(dropped), hash_bits=bits, documents=census.documents)

    def for_columns(self, names: Sequence[str], options: SourceOptions, where: str) -> Schema:
        """Return the schema for other files with the columns ``names``, in any order; label and weight may be missing.

        ``options.label``: the label that the user names for these files; None for the recorded one. Raises DataError
        E-SCHEMA for a missing column.
        """
        present = set(names)
        if missing := [name for c in self.columns for name in c.sources if name not in present]:
            missing = list(dict.fromkeys(missing))  # a date has several columns of one name
            raise DataError(f"{where} has no column {list_names(missing)}", code="E-SCHEMA", hint=columns_hint(names))
        recorded = self.label if self.label in names else None
        label = recorded if options.label is None else label_of(self._without_dropped(names), options.label, where)
        weight = self.weight if self.weight in names and not options.unlabeled else None
        id_column = self.id_column if self.id_column in names else None
        if options.id_column is not None:
            (id_column,) = check_named([options.id_column], names, "--id", where)
        return replace(self, label=None if options.unlabeled else label, weight=weight, id_column=id_column)

    def _without_dropped(self, names: Sequence[str]) -> Sequence[str]:
        """Return the names without those of dropped columns, which do not count for a label 'first' or 'last'."""
        return [name for name in names if name not in self.dropped] or names

    def note_extra(self, names: Sequence[str], label: str | None, notices: dict[str, int]) -> None:
        """Add a notice for columns that are ignored, because the model was trained without them."""
        expected = {*self.needed, *self.dropped, label}
        if extra := [name for name in names if name not in expected]:
            notices[f"columns that the model does not know are ignored: {list_names(extra)}"] = len(extra)

    def to_json(self) -> JsonObject:
        """Return the schema as plain JSON."""
        recorded: JsonObject = {
            "columns": [_column_json(column) for column in self.columns],
            "label": self.label,
            "weight": self.weight,
            "hash_bits": self.hash_bits,
        }
        if self.label_amount is not None:
            recorded["label_amount"] = self.label_amount
        if self.documents:
            recorded["documents"] = {name: counts.to_json() for name, counts in self.documents.items()}
        return recorded | {"dropped": list(self.dropped), "id": self.id_column, "by_value": True}


def _column_json(column: Column) -> JsonObject:
    always = {"name": column.name, "kind": column.kind, "values": list(column.values), "form": column.form}
    optional = {
        "parts": list(column.parts),
        "text_bits": column.text_bits,
        "zone": column.zone,
        "size": column.size,
        "frequent": list(column.frequent),
    }
    return always | {name: value for name, value in optional.items() if value}


def schema_from(recorded: JsonMapping) -> Schema:
    """Return the schema that ``Schema.to_json`` wrote."""
    from streamsvm.store.sources.text_features import document_counts_from

    return Schema(
        tuple(_column_from(column) for column in recorded["columns"]),
        recorded.get("label"),
        recorded.get("weight"),
        recorded.get("hash_bits", 0),
        tuple(recorded.get("dropped", ())),
        id_column=recorded.get("id"),
        label_amount=recorded.get("label_amount"),
        documents={name: document_counts_from(counts) for name, counts in recorded.get("documents", {}).items()},
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
        size=recorded.get("size", 0),
        frequent=tuple(recorded.get("frequent", ())),
    )


def most_frequent(counts: Mapping[str, int]) -> tuple[str, ...]:
    """Return the most frequent values of a hashed column that may name its feature columns, the most frequent first."""
    short = [value for value in counts if len(value) <= MAX_NAME_LENGTH]
    return tuple(sorted(short, key=lambda value: (-counts[value], value))[:MAX_NAMED_VALUES])


def label_of(names: Sequence[str], label: str | None, where: str) -> str | None:
    """Return the name of the label column, None for 'none'. Raises UsageError, DataError E-LABEL."""
    if label is None:
        raise UsageError(f"which column of {where} is the label?", hint=f"pass --label; {columns_hint(names)}")
    if label in names:
        return label
    if label in ("first", "last", "none"):
        return {"first": names[0], "last": names[-1], "none": None}[label]
    message = f"{where} has no column {quote(label)} for the label"
    if similar := [name for name in names if name.strip().lower() == label.strip().lower()]:
        hint = f"there is {quote(similar[0])}: pass --label {shell_word(similar[0])}"
        raise DataError(message, code="E-LABEL", hint=hint)
    raise DataError(message, code="E-LABEL", hint=columns_hint(names))


def check_named(named: Sequence[str], names: Sequence[str], option: str, where: str) -> Sequence[str]:
    """Return ``named``, the columns that an option names. Raises DataError E-SCHEMA for one not in ``names``."""
    allowed = {*names, ALL_TEXT} if named else ()
    if missing := [name for name in named if name not in allowed]:
        message = f"{where} has no column {list_names(missing)}, named by {option}"
        raise DataError(message, code="E-SCHEMA", hint=columns_hint(names))
    return named


def columns_hint(names: Sequence[str]) -> str:
    """Return a hint that lists the columns of a table."""
    return f"its columns are {list_names(names)}"


def shell_word(name: str) -> str:
    """Return a name quoted for a command line, safe to show on a terminal."""
    import shlex

    return name if shlex.quote(name) == name and name.isprintable() else quote(name)


def list_names(names: Sequence[str], most: int = 12) -> str:
    """Return names for a message; of many, the first ``most`` and the number of all."""
    shown = ", ".join(quote(name, 40) for name in names[:most])
    return shown + (f", ... ({len(names)} in all)" if len(names) > most else "")


class TableWidth(NamedTuple):
    """The number of columns of a file, and the bytes of memory that their schema and one batch of rows take."""

    name: str
    columns: int
    nbytes: int

    def refusal(self, left: int, enough: int) -> BudgetError:
        """Return the error if only ``left`` bytes are available; ``enough`` bytes would suffice for the job."""
        return BudgetError(
            f"{self.name} has {self.columns} columns: about {self.nbytes >> 20}MiB are needed for them, {left >> 20}MiB are left",
            hint=f"use --memory {mib(enough, round_up=True)}, or store the table as npy, HDF5 or svmlight",
        )


NO_TABLE = TableWidth("", 0, 0)


def width_bytes(columns: Collection[str]) -> int:
    """Return the bytes of memory that the schema of columns with these names takes."""
    return len(columns) * COLUMN_BYTES + NAME_COPIES * sum(map(len, columns))


def check_width(
    name: str, columns: Collection[str], memory_limit: int | None, reading: int = 0, where: str = ""
) -> None:
    """Raise BudgetError if ``memory_limit`` is too small for the schema of a table and for reading one batch of it.

    ``reading``: the bytes that reading takes; ``where``: the part of the file that takes them, for the message.
    """
    needed = width_bytes(columns) + reading
    if memory_limit is not None and needed > memory_limit:
        message = f"{name} has {len(columns)} columns{where}: about {needed >> 20}MiB are needed for them"
        smaller = ", write it with fewer rows in each" if where else ""
        raise BudgetError(
            f"{message}, {memory_limit >> 20}MiB are left",
            hint=f"give {(needed - memory_limit >> 20) + 1}MiB more with --memory{smaller}, or store the table as npy, HDF5 or svmlight",
        )
