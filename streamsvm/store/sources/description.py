"""Describe the columns of a table and how each is encoded (--describe), by reading all rows once."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streamsvm.store.format.labels import similar_texts
from streamsvm.store.sources.cell_parsing import (
    TWO_DIGIT_YEARS,
    BadCell,
    MissingWords,
    is_text,
    null_out_nan,
    parse_amounts_or_null,
    parse_dates,
    parse_numbers,
    to_canonical_text,
    to_text,
)
from streamsvm.store.sources.encoding import are_invalid_weights, unreadable_values
from streamsvm.store.sources.options import SourceOptions
from streamsvm.store.sources.schema import (
    AMOUNT,
    BOOLEAN,
    CALENDAR,
    CATEGORY,
    DROP,
    EPOCH_SECONDS,
    HASHED,
    NUMBER,
    SINGLE,
    TEXT,
    VECTOR,
    YEARS,
    Column,
    Schema,
)
from streamsvm.store.sources.schema_inference import (
    FIRST_TIME,
    LAST_TIME,
    LEAST_ID,
    MIN_ID_SHARE,
    MIN_ROWS_FOR_IDS,
    column_kinds_in_options,
    columns_named_in_options,
    is_index_level,
    is_unnamed,
)
from streamsvm.store.sources.table import TableSource

MOST_DISTINCT = 10_000
"""The most distinct values of a column that are counted."""
MOST_BAD = 4
"""The most bad values of a column that are shown."""
_INFINITE = r"(?i)^[+-]?inf(?:inity)?$"
NOUNS = {NUMBER: "number", AMOUNT: "amount", BOOLEAN: "yes or no", VECTOR: "vector"}
"""The noun for the values of a kind; all other kinds that are parsed hold dates."""


@dataclass(frozen=True, slots=True)
class ColumnDescription:
    """The content of a column of a table, and its encoding."""

    name: str
    kind: str
    """The kind, as --column names it, or 'label', 'id', 'weight'."""
    missing: float
    """The share of rows without a value."""
    distinct: int
    """The number of distinct values, up to ``MOST_DISTINCT``."""
    more: bool
    """Whether there are more distinct values than were counted."""
    least: str
    """The smallest number or the first date; empty if the column holds neither."""
    most: str
    """The largest number or the last date."""
    example: str
    becomes: str
    """The encoding of the column, in words."""
    rows: int = 0
    """The number of rows that were read."""
    problems: tuple[Problem, ...] = ()


@dataclass(frozen=True, slots=True)
class Problem:
    """A fault of a column of a table, or a property that the user may want to check."""

    column: str
    what: str
    """One of 'missing', 'unlabeled', 'unreadable', 'infinite', 'future', 'alike', 'index', 'unnamed'."""
    rows: int
    """The number of rows with the fault; for 'alike', the number of similar values."""
    text: str
    """The description for the user."""
    values: tuple[str, ...] = ()
    """Some of the distinct values with the fault."""
    refused: bool = True
    """Whether ``ingest`` refuses the column with the given options."""


@dataclass(slots=True)
class _ColumnFacts:
    """Counts over the values of a column in the batches read so far."""

    rows: int = 0
    missing: int = 0
    counted: int = 0
    distinct: set[str] = field(default_factory=set)
    more: bool = False
    example: str = ""
    least: Any = None
    most: Any = None
    whole: bool = True
    infinite: int = 0
    unreadable: int = 0
    bad: dict[str, None] = field(default_factory=dict)
    """Some of the values that cannot be parsed, as the keys of a dict, which keeps their order."""
    future: int = 0
    """The number of dates after tomorrow."""

    def add(self, values: Any, column: Column | None, words: MissingWords, *, is_weight: bool = False) -> None:
        if column is not None and column.kind in (*SINGLE, *CALENDAR):
            values = words.remove(values, number=True)
        values = null_out_nan(values)
        self.rows += len(values)
        self.missing += values.null_count
        if pa.types.is_nested(values.type):  # lists and records cannot be compared
            if column is not None and column.kind == VECTOR:
                self._find_faults(values, column, words)
            return
        if column is not None:
            self._find_faults(values, column, words)
        if is_weight:
            bad = values.filter(pc.and_(pa.array(are_invalid_weights(values)), values.is_valid()))
            self.unreadable += len(bad)
            self.bad |= dict.fromkeys(to_text(bad.unique().slice(0, MOST_BAD - len(self.bad))).to_pylist())
        distinct = pc.drop_null(values.unique())
        if pa.types.is_dictionary(distinct.type):
            distinct = distinct.dictionary.take(distinct.indices)
        if not len(distinct):
            return
        self.example = self.example or str(to_text(distinct)[0].as_py())
        if not self.more:
            self.counted += len(values) - values.null_count
            self.distinct.update(to_canonical_text(distinct).to_pylist())
            self.more = len(self.distinct) > MOST_DISTINCT
        scale = _on_scale(distinct, column, words)
        if scale is not None and pa.types.is_floating(scale.type):
            scale = scale.filter(pc.is_finite(scale))
        if scale is not None and len(scale):
            self.whole &= pa.types.is_floating(scale.type) and bool((np.asarray(scale) % 1 == 0).all())
            lowest, highest = pc.min_max(scale).as_py().values()
            self.least = lowest if self.least is None else min(self.least, lowest)
            self.most = highest if self.most is None else max(self.most, highest)

    def _find_faults(self, values: Any, column: Column, words: MissingWords) -> None:
        """Count values that cannot be parsed, and dates after tomorrow."""
        is_bad = unreadable_values(values, column, words, missing=True)
        if is_bad.any():
            if column.kind == VECTOR:
                self.unreadable += int(np.count_nonzero(is_bad))
                return
            bad = to_text(values.filter(pa.array(is_bad)))
            is_infinite = pc.match_substring_regex(bad, _INFINITE)
            infinite = int(pc.sum(is_infinite).as_py())
            self.infinite += infinite
            self.unreadable += len(bad) - infinite
            for text in bad.filter(pc.invert(is_infinite)).unique().slice(0, MOST_BAD).to_pylist():
                if len(self.bad) < MOST_BAD:
                    self.bad[text] = None
        if column.kind in (YEARS, *CALENDAR) and column.form != EPOCH_SECONDS and not is_bad.all():
            good = values.filter(pa.array(~is_bad)) if is_bad.any() else values
            try:
                moments = parse_dates(good, column.name, column.form or "iso")
            except BadCell:
                return
            self.future += pc.sum(pc.greater(moments, pa.scalar(_tomorrow(), moments.type))).as_py() or 0


def _tomorrow() -> datetime:
    return datetime.now(UTC).replace(tzinfo=None, microsecond=0) + timedelta(days=1)


def _on_scale(values: Any, column: Column | None, words: MissingWords) -> Any:
    """Return the values as numbers or points in time, without those that cannot be parsed; None if the column holds
    neither.
    """
    if column is None or column.kind in (BOOLEAN, CATEGORY, HASHED, TEXT):
        return None
    if column.kind == AMOUNT and is_text(values.type):
        return pc.drop_null(parse_amounts_or_null(pc.utf8_trim_whitespace(to_text(values)), comma=bool(column.form)))
    parse = parse_numbers if column.kind in (NUMBER, AMOUNT) else partial(parse_dates, form=column.form or "iso")
    try:
        return pc.drop_null(parse(values, column.name))
    except BadCell:
        is_bad = unreadable_values(values, column, words, missing=True)
    try:
        return pc.drop_null(parse(values.filter(pa.array(~is_bad)), column.name))
    except BadCell:
        return None


def describe_columns(
    source: TableSource, options: SourceOptions, most_rows: int | None = None
) -> list[ColumnDescription]:
    """Describe every column of a table, in its order, from all rows or about the first ``most_rows``. Raises what
    reading raises.
    """
    schema, rows = source.schema, 0
    first = {c.name: c for c in reversed(schema.columns)}
    first |= {name: Column(name, NUMBER) for name in options.undecided or ()}  # most of their values are numbers
    facts: dict[str, _ColumnFacts] = {}
    with closing(source.record_batches()) as batches:
        for batch in batches:
            for name, values in zip(batch.schema.names, batch.columns, strict=True):
                is_weight = name == schema.weight
                facts.setdefault(name, _ColumnFacts()).add(values, first.get(name), options.words, is_weight=is_weight)
            rows += batch.num_rows
            if most_rows is not None and rows >= most_rows:
                break
    return [_describe(name, column_facts, schema, options) for name, column_facts in facts.items()]


def _describe(name: str, facts: _ColumnFacts, schema: Schema, options: SourceOptions) -> ColumnDescription:
    columns = [c for c in schema.columns if c.name == name]
    roles = {schema.label: "label", schema.id_column: "id", schema.weight: "weight"}
    undecided = not columns and name in (options.undecided or ())  # most of its values are numbers
    kind = roles.get(name) or (columns[0].stated if columns else NUMBER if undecided else DROP)
    becomes = {"label": "the label", "id": "the name of the row", "weight": "the weight of the row"}.get(kind, "")
    if undecided and not becomes:
        becomes = "a number; values that are none are refused: --on-bad-line skip leaves their rows out"
    becomes = becomes or (_describe_encoding(columns, schema) if columns else _explain_left_out(name, options))
    if columns and (o := dict(options.offsets or ()).get(schema.place(columns[0]))) is not None:
        becomes += f", less {o:.15g}"
    if facts.infinite and columns:
        becomes += "; it has infinite values, which ingest refuses: correct them, or pass --on-bad-line skip"
    has_kind = undecided or (columns and columns[0].kind != TEXT)
    if facts.missing and has_kind and options.missing == "error":
        becomes += "; missing values are refused: --missing mean, zero or indicator"
    if _looks_like_times(facts, columns):
        becomes += f"; seconds since 1970, it seems: --column {name}=epoch makes dates of them"
    elif _looks_like_ids(facts, columns):
        becomes += f"; an id, it seems: --drop {name} leaves it out"
    share = facts.missing / max(1, facts.rows)
    least, most = _format_short(facts.least), _format_short(facts.most)
    distinct = min(len(facts.distinct), MOST_DISTINCT)
    problems = tuple(_find_problems(name, kind, columns, facts, options))
    return ColumnDescription(
        name, kind, share, distinct, facts.more, least, most, facts.example, becomes, facts.rows, problems
    )


def _find_problems(
    name: str, kind: str, columns: Sequence[Column], facts: _ColumnFacts, options: SourceOptions
) -> Iterator[Problem]:
    """Yield the problems of a column."""
    strict, undecided = options.on_bad_line == "error", name in (options.undecided or ())
    if kind == "label" and facts.missing:
        yield Problem(name, "unlabeled", facts.missing, "no label", refused=options.missing_label == "error")
    if kind == "weight" and facts.missing + facts.unreadable:
        yield Problem(name, "unreadable", facts.missing + facts.unreadable, "no weight", tuple(facts.bad), strict)
    if facts.missing and (undecided or (columns and columns[0].kind != TEXT)):
        yield Problem(name, "missing", facts.missing, "no value", refused=options.missing == "error")
    if facts.unreadable and (columns or undecided):
        expected = NOUNS.get(columns[0].kind, "date") if columns else NOUNS[NUMBER]
        yield Problem(name, "unreadable", facts.unreadable, f"no {expected}", tuple(facts.bad), strict or undecided)
    if facts.infinite and columns:
        yield Problem(name, "infinite", facts.infinite, "infinite", refused=strict)
    if facts.future and columns:
        pivot = f"; years of two digits are read as {TWO_DIGIT_YEARS}" if columns[0].form.endswith("%y") else ""
        yield Problem(
            name, "future", facts.future, f"later than today{pivot}", (_format_short(facts.most),), refused=False
        )
    if columns and columns[0].kind == CATEGORY and (similar := similar_texts(sorted(facts.distinct))):
        examples = tuple(similar[:MOST_BAD])
        yield Problem(name, "alike", len(similar), "differ by case or blanks only", examples, refused=False)
    if (is_index_level(name) or is_unnamed(name)) and kind not in ("label", "id", "weight"):
        text = "without a name, a feature" if columns else "row numbers of a data frame, left out"
        yield Problem(name, "unnamed" if columns else "index", facts.rows, text, refused=False)


def _describe_encoding(columns: Sequence[Column], schema: Schema) -> str:
    """Return the encoding of a column of the table, given as one or several ``columns`` of the schema, in words."""
    column, width = columns[0], sum(c.width for c in columns)
    texts = {
        NUMBER: "a number, as it is",
        AMOUNT: "a number",
        BOOLEAN: "1 and 0",
        CATEGORY: f"one-hot, {width} columns",
        HASHED: f"hashed with other text into 2^{schema.hash_bits} columns",
        VECTOR: f"a vector: {width} numbers, as they are",
        TEXT: f"{column.form} hashed into 2^{column.text_bits} columns, weighted by tf-idf",
        YEARS: f"years since 2000, month and day of the week: {width} columns",
    }
    return texts.get(column.kind, f"parts of the date, {width} columns")


def _explain_left_out(name: str, options: SourceOptions) -> str:
    """Return the reason why a column is left out, in words."""
    if name == options.split_by:
        return "the group of the row; it is no feature"
    if (is_index_level(name) or is_unnamed(name)) and name not in columns_named_in_options(options) | set(
        column_kinds_in_options(options)
    ):
        return "left out: row numbers, the index of a data frame"
    dropped_by_option = name in options.drop or f"{name}={DROP}" in options.columns_as
    return "left out" if dropped_by_option else "left out, because nearly every value is unique"


def _looks_like_times(facts: _ColumnFacts, columns: Sequence[Column]) -> bool:
    """Return whether a column holds whole numbers that could all be seconds since 1970."""
    if not columns or columns[0].kind != NUMBER or not facts.whole or facts.most is None:
        return False
    return facts.counted >= MIN_ROWS_FOR_IDS and bool(facts.least >= FIRST_TIME and facts.most < LAST_TIME)


def _looks_like_ids(facts: _ColumnFacts, columns: Sequence[Column]) -> bool:
    """Return whether a column holds whole numbers, of which nearly all that were counted are distinct."""
    if not columns or columns[0].kind != NUMBER or not facts.whole or facts.most is None:
        return False
    enough = facts.counted >= MIN_ROWS_FOR_IDS and facts.most > LEAST_ID
    return enough and len(facts.distinct) > MIN_ID_SHARE * facts.counted


def _format_short(value: Any) -> str:
    """Return a number or a point in time as short text; empty for None."""
    if value is None:
        return ""
    return f"{value:.6g}" if isinstance(value, int | float) else str(value).removesuffix(" 00:00:00")


LABEL_NAMES = ("label", "labels", "target", "y", "class", "outcome", "response", "output")
"""Usual names of a column of labels."""
LABEL_WORDS = (*LABEL_NAMES, "status", "type", "churn", "default", "fraud", "survived", "diagnosis")
"""Usual last words of the name of a column of labels; they matter if no column has one of ``LABEL_NAMES``."""
MOST_CLASSES = 50
"""The most distinct numbers among the first rows of labels that count as classes; more are numbers to predict."""


@dataclass(frozen=True, slots=True)
class LabelGuess:
    """A column that is most likely the label."""

    name: str
    values: tuple[str, ...]
    """Some of its values in the first rows."""
    regression: bool
    """Whether the values seem to be numbers to predict instead of classes."""


def guess_label(source: TableSource) -> LabelGuess:
    """Return the column of a table that is most likely the label: by its name, else the last one."""
    samples = source.first_values()
    names = [name for name in samples if not (is_index_level(name) or is_unnamed(name))] or list(samples)
    words = {name: re.split(r"[^a-z0-9]+", name.strip().lower()) for name in names}
    by_name = [name for name in names if words[name] and "_".join(words[name]) in LABEL_NAMES]
    by_last_word = [name for name in names if words[name][-1] in LABEL_WORDS]
    name = [*by_name, *by_last_word[::-1], names[-1]][0]
    values = pc.drop_null(samples[name])
    distinct = values.unique()
    is_number = pa.types.is_floating(values.type) or pa.types.is_integer(values.type)
    shown = tuple(str(value) for value in to_canonical_text(distinct.slice(0, 3)).to_pylist())
    return LabelGuess(name, shown, is_number and len(distinct) > MOST_CLASSES)
