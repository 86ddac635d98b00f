"""Infer a schema: the kind of each column of a table, from the options, its type and its first values.

A column of text is recognized as amounts, dates, or yes and no; other text is a category. Text that consists of numbers
except for some bad values is refused, because a bad value must not turn a column of numbers into a category. Kinds that
were inferred from values are described in ``proposals``, which are shown before anything is written.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from itertools import islice
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types

from streamsvm.errors import DataError, UsageError, quote
from streamsvm.store.sources.cell_parsing import (
    DATES,
    ISO,
    NUMBER_WORDS,
    PLAIN_NUMBER,
    WORDS,
    is_text,
    parse_amounts_or_null,
    parse_booleans_or_null,
    parse_dates_or_null,
    to_canonical_text,
    zone_of,
)
from streamsvm.store.sources.options import SourceOptions
from streamsvm.store.sources.schema import (
    ALL_TEXT,
    AMOUNT,
    BOOLEAN,
    CALENDAR,
    CATEGORY,
    DATE,
    DECIMAL_COMMA,
    DROP,
    EPOCH_SECONDS,
    HASH,
    HASH_BITS,
    HASHED,
    KINDS,
    NUMBER,
    TEXT,
    VECTOR,
    YEARS,
    Column,
    Schema,
    check_named,
    columns_hint,
    label_of,
    shell_word,
)
from streamsvm.store.sources.text_features import is_form
from streamsvm.store.sources.value_counts import MIN_ID_SHARE, MIN_ROWS_FOR_IDS, TableCensus
from streamsvm.store.sources.vectors import check_size, is_vector_type, vector_size
from streamsvm.type_aliases import JsonMapping

_DIGITS = {"%d": r"\d{1,2}", "%m": r"\d{1,2}", "%y": r"\d{2}", "%Y": r"\d{4}", "%b": "[A-Za-z]{3}"}
MOSTLY_NUMBERS = 0.9
"""The share of numbers from which on a column of text counts as numbers with mistakes, not as a category."""
SOME_NUMBERS = 0.1
"""The same share for columns with fewer than ``SEVERAL_WORDS`` distinct texts that are not numbers."""
SEVERAL_WORDS = 3
SEVERAL_TEXTS = 20
"""The number of distinct texts from which on a text that is not an amount, or not a date, may count as a mistake;
columns with fewer texts are categories.
"""
_GROUPED = r"\d{1,3}(?:,\d{3})+(?:\.\d*)?|\d{1,3}(?:\.\d{3})+(?:,\d*)?"
_LIKE_A_NUMBER = rf"^[+-]?(?:\d+[.,]?\d*|[.,]\d+|{_GROUPED})(?:[eE][+-]?\d+)?$"
"""Not 10.200.101.91, which is an address, and 1.2.3, a version."""
SOME_WRONG_DAYS = 0.5
"""The share of impossible dates from which on a column of text does not count as dates."""
SHAPES = {
    form: "^" + "".join(_DIGITS.get(part, re.escape(part)) for part in re.split("(%.)", form)) + "$" for form in DATES
} | {ISO: r"^\d{4}-\d{2}-\d{2}(?:[T ][\d:.]+(?:Z|[+-][\d:]+)?)?$"}
"""Patterns of texts that look like dates, by format; the day need not exist."""
LEADING_ZERO = r"^0\d+$"
"""The pattern of numbers that count as codes, such as zip codes, and are read as text."""
FIRST_TIME, LAST_TIME = 1_000_000_000, 4_102_444_800
"""The range of whole numbers that may be seconds since 1970: from September 2001 (ten digits) to the end of 2099."""
LEAST_ID = 1000
"""Columns whose whole numbers do not exceed this one count as quantities, not as ids, even if all differ."""
TEXT_KEPT = {
    CATEGORY: "one-hot; --column {0}=hash hashes it",
    HASHED: "hashed; --column {0}=category makes a column of each value",
    None: "left out, because nearly every value is unique; --column {0}=words or {0}=chars reads it as text, {0}=hash hashes it",
}
BECOMES = {
    AMOUNT: ("amounts", "a number"),
    BOOLEAN: ("yes and no", "1 and 0"),
    YEARS: ("dates", "years since 2000, month and day of the week"),
}


def plan_schema(
    column_types: Mapping[str, pa.DataType],
    options: SourceOptions,
    where: str,
    code: str,
    samples: JsonMapping | None = None,
    *,
    notices: dict[str, int] | None = None,
) -> Schema:
    """Return the schema of a table, inferred from the types, the first values (``samples``) and the options.

    ``code``: the error code for a column that does not hold numbers. Index columns of pandas are left out and noted in
    ``notices``. Categories have no values yet; ``Schema.complete`` adds them. Raises UsageError, DataError.
    """
    names = list(column_types)
    stated_kinds = column_kinds_in_options(options)
    _check_options(names, options, where, stated_kinds)
    named = {*columns_named_in_options(options), *stated_kinds}
    index = [name for name in names if name not in named and _is_index(name, (samples or {}).get(name))]
    label = label_of(names if options.label in names else [n for n in names if n not in index], options.label, where)
    index = [name for name in index if name != label]
    _note_index(names, index, {*named, label}, {} if notices is None else notices)
    roles = {"--label": label, "--weight": options.weight, "--id": options.id_column, "--split-by": options.split_by}
    for option, name in roles.items():
        if name is not None:
            _check_type(name, column_types[name], f"name another column with {option}", where, code)
    left_out = {label, options.weight, options.id_column, *options.drop, *index, *_split_only(options, stated_kinds)}
    columns: list[Column] = []
    for name in (name for name in names if name not in left_out):
        sample = (samples or {}).get(name)
        stated = stated_kinds.get(name) or (() if sample is None else recognize(name, sample, options))
        if not stated and name not in named and _are_numbers_with_mistakes(column_types[name], sample, options):
            stated = AMOUNT, "", "unasked"
        try:
            if VECTOR in stated or (is_vector_type(column_types[name]) and DROP not in stated):
                is_other = (bool(stated) and VECTOR not in stated) or name in (*options.categorical, *options.calendar)
                columns.append(_vector_column(name, column_types[name], where, code, is_other=is_other))
                continue
            if DROP not in stated:
                _check_type(name, column_types[name], f"leave it out with --drop {shell_word(name)}", where, code)
            encoded = (
                _columns_of_kind(name, options, *stated)
                if stated
                else _columns_by_type(name, column_types[name], options, where, code)
            )
            zone = _zone(encoded, column_types[name], sample)
            columns += [replace(column, zone=zone) for column in encoded] if zone else encoded
        except DataError as error:
            if options.undecided is None:
                raise
            options.undecided[name] = error
    columns += [_cross(text, columns, names, where) for text in options.cross]
    if not columns:
        raise DataError(f"{where} has no column but the label", code="E-SCHEMA", hint=columns_hint(names))
    hashing = any(column.kind == HASHED for column in columns)
    dropped = {name for name, (kind, _) in stated_kinds.items() if kind == DROP} | left_out - {None, label}
    dropped -= {options.weight, options.id_column}
    return Schema(
        tuple(columns),
        label,
        options.weight,
        (options.hash_bits or HASH_BITS) if hashing else 0,
        tuple(name for name in names if name in dropped),
        options.id_column,
        label_amount=_label_amount((samples or {}).get(label or ""), options),
        split=_split_column(options),
    )


def _label_amount(sample: Any, options: SourceOptions) -> str | None:
    """Return the form of numbers to predict that are written as amounts; None where they are not."""
    if not options.numeric or sample is None or not is_text(sample.type):
        return None
    texts = _drop_words(
        pc.drop_null(pc.utf8_trim_whitespace(sample.cast(pa.string()))).unique(), (*WORDS, *NUMBER_WORDS)
    )
    others = pc.sum(pc.invert(pc.match_substring_regex(texts, PLAIN_NUMBER))).as_py() or 0
    amounts, by_comma = (parse_amounts_or_null(texts, comma=comma).null_count for comma in (False, True))
    has_comma = pc.any(pc.match_substring(texts, ",")).as_py()
    if has_comma and by_comma < others and (by_comma < amounts or (options.comma_first and by_comma == amounts)):
        return DECIMAL_COMMA
    return "" if amounts < others else None


def _check_options(names: Sequence[str], options: SourceOptions, where: str, stated: Iterable[str]) -> None:
    """Raise DataError E-SCHEMA for an option that names a column that the table does not have."""
    named: dict[str, Iterable[str | None]] = {
        "--drop": options.drop,
        "--categorical": options.categorical,
        "--calendar": options.calendar,
        "--column": stated,
        "--weight": [options.weight],
        "--id": [options.id_column],
        "--split-by": [options.split_by],
        "--split-after": [_split_column(options) if options.split_after else None],
    }
    for option, option_names in named.items():
        check_named([name for name in option_names if name is not None], names, option, where)


def columns_named_in_options(options: SourceOptions) -> set[str | None]:
    """Return the names in options other than --column and --text; that of the label may be 'first' or 'last'."""
    roles = {options.label, options.weight, options.id_column, _split_column(options)}
    crossed = {part for text in options.cross for part in text.split("*")}
    return {*roles, *options.drop, *options.categorical, *options.calendar, *crossed}


def column_kinds_in_options(options: SourceOptions) -> dict[str, tuple[str, str]]:
    """Return the kinds that --column and --text give, by column: the kind, and the format of dates, amounts and text.

    Raises UsageError.
    """
    kinds = {}
    for argument in options.columns_as:
        column, equals, kind = argument.rpartition("=")
        stated = _parse_kind(kind) if equals else None
        if stated is None:
            known = f"{', '.join(KINDS)}; a date as date:FORM with one of {' '.join(DATES)}; characters as chars:2-4"
            raise UsageError(f"--column {quote(argument)} is not NAME=KIND", hint=f"kinds are {known}")
        kinds[column] = stated
    for argument in options.text:
        column, _, form = argument.partition("=")
        stated = _parse_kind(form or "words")
        if stated is None or stated[0] != TEXT:
            raise UsageError(
                f"--text {quote(argument)} is not NAME=words or NAME=chars:2-4",
                hint=f"write it as --text {column}=words",
            )
        kinds[column] = stated
    return kinds


def _parse_kind(kind: str) -> tuple[str, str] | None:
    """Parse a kind of --column into kind and format; return None if it is unknown."""
    if is_form(kind):
        return TEXT, kind
    kind, _, form = kind.partition(":")
    if kind == DATE and form in ("", *DATES):
        return DATE, form or "iso"
    if form or kind not in KINDS:
        return None
    return (AMOUNT, DECIMAL_COMMA) if kind == DECIMAL_COMMA else (kind, "")


def is_index_level(name: str) -> bool:
    """Return whether a column has the name that pandas gives to an index without a name."""
    return re.fullmatch(r"__index_level_\d+__", name) is not None


def is_unnamed(name: str) -> bool:
    """Return whether a column has no name, or the name that pandas gives to such a column."""
    return re.fullmatch(r"|Unnamed: \d+", name) is not None


def _is_index(name: str, sample: Any) -> bool:
    """Return whether a column is the index of a data frame: by its name, or as distinct integers without a name."""
    if is_index_level(name):
        return True
    if not is_unnamed(name) or sample is None:
        return False
    if not pa.types.is_integer(sample.type) or sample.null_count:
        return False
    return len(sample.unique()) == len(sample) > 0


def _note_index(names: Sequence[str], index: Sequence[str], named: set[str | None], notices: dict[str, int]) -> None:
    """Add notices for index columns of pandas, which are left out, and for other columns without a name, which are
    features; ``named``: the columns that options name.
    """
    for name in index:
        advice = f"--column {shell_word(f'{name}=number')} keeps it"
        notices[f"column of row numbers, the index of a data frame, is left out: {quote(name)}; {advice}"] = 1
    for name in names:
        if is_unnamed(name) and name not in index and name not in named:
            notices[
                f"column without a name is a feature: {quote(name)}; --column {shell_word(f'{name}=drop')} leaves it out"
            ] = 1


def _zone(columns: Sequence[Column], kind: pa.DataType, sample: Any) -> str:
    """Return the time zone of a column of points in time, from its type or its first texts; empty if it has none."""
    if not columns or columns[0].kind not in (YEARS, *CALENDAR):
        return ""
    return getattr(kind, "tz", None) or ("" if sample is None or not is_text(sample.type) else zone_of(sample))


def _split_column(options: SourceOptions) -> str | None:
    """Return the column by which rows are held out; None if there is none."""
    return options.split_by or (options.split_after or "").partition("=")[0] or None


def _split_only(options: SourceOptions, stated: Iterable[str]) -> set[str | None]:
    """Return the set of the column of groups, which is not a feature, because the groups of new rows are different
    ones; the empty set if options make it a feature.
    """
    return {options.split_by} - {*stated, *options.categorical}


def recognize(name: str, sample: Any, options: SourceOptions) -> tuple[str, ...]:
    """Return kind, format and mark of a column, recognized by its values; empty if its type or an option decides."""
    if name in (*options.categorical, *options.calendar) or (is_text(sample.type) and ALL_TEXT in options.categorical):
        return ()
    if str(sample.type) == "bool":
        return BOOLEAN, ""
    if str(sample.type).startswith(("timestamp", "date")):
        return DATE, "iso", "unasked"
    if str(sample.type).startswith("time"):  # of day
        return (HASH, "") if options.hash_bits is not None else (CATEGORY, "", "unasked")
    recognized = recognize_text(sample, comma_first=options.comma_first) if is_text(sample.type) else ("", "")
    if recognized[0] == CATEGORY and options.hash_bits is not None:
        return HASH, ""
    return (*recognized, "unasked") if recognized[0] else ()


def recognize_text(sample: Any, *, comma_first: bool = False) -> tuple[str, str]:
    """Return the kind of a column of text and the format of its values; empty if the kind cannot be inferred.
    ``comma_first``: 1,234 is rather one and a quarter than a thousand.
    """
    distinct = pc.drop_null(pc.utf8_trim_whitespace(sample.cast(pa.string()))).unique()
    texts = _drop_words(distinct, WORDS)
    are_booleans = len(texts) > 0 and parse_booleans_or_null(texts).null_count == 0
    if are_booleans and not set(to_canonical_text(texts).to_pylist()) <= {"0", "1"}:
        return BOOLEAN, ""
    texts = _drop_words(distinct, (*WORDS, *NUMBER_WORDS))
    if not len(texts):
        return (CATEGORY, "") if len(distinct) else ("", "")
    if (amounts := _recognize_amounts(texts, comma_first=comma_first))[0]:
        return amounts
    forms = [form for form in DATES if parse_dates_or_null(texts, form).null_count == 0]
    forms = forms or [form for form in DATES if _are_dates_with_mistakes(texts, form)]
    forms = forms or [form for form in DATES if _are_nearly_all(parse_dates_or_null(texts, form))]
    if forms:
        return (DATE, forms[0]) if len(_day_orders(forms)) == 1 else (CATEGORY, "")
    words = texts.filter(pc.invert(pc.match_substring_regex(texts, _LIKE_A_NUMBER)))
    values = pc.utf8_trim_whitespace(sample.cast(pa.string()))
    share = 1 - pc.mean(pc.is_in(values.filter(pc.is_in(values, value_set=texts)), value_set=words)).as_py()
    least = MOSTLY_NUMBERS if len(words) >= SEVERAL_WORDS else SOME_NUMBERS
    return ("", "") if share >= least else (CATEGORY, "")


def _recognize_amounts(texts: Any, *, comma_first: bool) -> tuple[str, str]:
    """Return the kind and form of texts that are amounts, or codes such as 01234; empty where they are neither."""
    amounts, by_comma = parse_amounts_or_null(texts), None
    if pc.any(pc.match_substring(texts, ",")).as_py():
        by_comma = parse_amounts_or_null(texts, comma=True)
    if comma_first and by_comma is not None and by_comma.null_count == 0:
        return AMOUNT, DECIMAL_COMMA
    if amounts.null_count == 0 or _are_amounts_with_mistakes(texts, amounts):
        is_code = pc.any(pc.match_substring_regex(texts, LEADING_ZERO)).as_py()
        return (CATEGORY if is_code else AMOUNT), ""
    if by_comma is None:
        return "", ""
    fewer = _are_nearly_all(by_comma) and by_comma.null_count < amounts.null_count
    return (AMOUNT, DECIMAL_COMMA) if by_comma.null_count == 0 or fewer else ("", "")


def _are_amounts_with_mistakes(texts: Any, parsed: Any) -> bool:
    """Return whether nearly all texts are amounts, and most of them are not plain numbers."""
    not_plain = pc.sum(pc.invert(pc.match_substring_regex(texts, r"^[+-]?[\d.]*$"))).as_py()
    return 2 * not_plain > len(texts) and _are_nearly_all(parsed)


def _are_numbers_with_mistakes(kind: pa.DataType, sample: Any, options: SourceOptions) -> bool:
    """Return whether a column of text whose kind no option gives holds numbers except in rows to be left out."""
    if options.on_bad_line != "skip" or sample is None or not is_text(kind) or sample.null_count == len(sample):
        return False
    return ALL_TEXT not in options.categorical and options.hash_bits is None and recognize_text(sample) == ("", "")


def _are_nearly_all(parsed: Any) -> bool:
    """Return whether enough distinct texts were parsed that the others, which are null, count as mistakes."""
    return len(parsed) >= SEVERAL_TEXTS and parsed.null_count <= (1 - MOSTLY_NUMBERS) * len(parsed)


def _drop_words(texts: Any, words: tuple[str, ...]) -> Any:
    """Return the texts that are not in ``words``."""
    return texts.filter(pc.invert(pc.is_in(texts, value_set=pa.array(words))))


def _are_dates_with_mistakes(texts: Any, form: str) -> bool:
    """Return whether most texts are dates of a format, and the others look like dates that do not exist: 2020-02-30."""
    others = texts.filter(parse_dates_or_null(texts, form).is_null())
    return len(others) < SOME_WRONG_DAYS * len(texts) and pc.all(pc.match_substring_regex(others, SHAPES[form])).as_py()


def _day_orders(forms: list[str]) -> set[str]:
    """Return the orders of day and month in formats of dates; if there are two, 03/04 is ambiguous."""
    return {form[:2] if "/" in form else "" for form in forms}


def _columns_of_kind(name: str, options: SourceOptions, kind: str, form: str, unasked: str = "") -> list[Column]:
    """Return the encoding of a column of a given or recognized kind: several ``Column`` for a date, none for DROP."""
    by_values = bool(unasked)
    if kind in (DATE, EPOCH_SECONDS):
        form = EPOCH_SECONDS if kind == EPOCH_SECONDS else form
        parts = [Column(name, part, CALENDAR[part], form, by_values) for part in ("month", "weekday")]
        return [Column(name, YEARS, (), form, by_values), *parts]
    if kind == DROP:
        return []
    bits = options.text_bits if kind == TEXT else 0
    return [Column(name, HASHED if kind == HASH else kind, form=form, unasked=by_values, text_bits=bits)]


def _cross(text: str, columns: Sequence[Column], names: Sequence[str], where: str) -> Column:
    """Return the column of a cross, whose values are the combinations of the values of several categories. Raises
    UsageError, DataError E-SCHEMA.
    """
    parts = tuple(text.split("*"))
    if len(parts) < 2 or len(set(parts)) < len(parts):
        raise UsageError(f"--cross {quote(text)} is not two columns", hint="write it as --cross a*b")
    check_named(parts, names, "--cross", where)
    categories = {column.name for column in columns if column.kind in (CATEGORY, HASHED, BOOLEAN)}
    if others := [part for part in parts if part not in categories]:
        raise UsageError(
            f"--cross {quote(text)}: column {quote(others[0])} does not hold categories",
            hint="pass --column " + ",".join(f"{shell_word(name)}=category" for name in others),
        )
    return Column(text, CATEGORY, unasked=True, parts=parts)


def _vector_column(name: str, kind: pa.DataType, where: str, code: str, *, is_other: bool) -> Column:
    """Return a column of vectors. Raises DataError if it holds none, or if options say something else (``is_other``)."""
    place = f"column {quote(name)} of {where} holds {kind}"
    if not is_vector_type(kind):
        raise DataError(f"{place}, not vectors of numbers", code=code, hint="leave out that it is a vector")
    if is_other:
        hint = f"leave out what {shell_word(name)} is said to hold, or leave it out with --drop {shell_word(name)}"
        raise DataError(f"{place}: a vector, which is encoded as numbers only", code=code, hint=hint)
    return Column(name, VECTOR, size=check_size(vector_size(kind), name, where))


def _check_type(name: str, kind: pa.DataType, hint: str, where: str, code: str) -> None:
    """Raise DataError for a column of lists or records, which cannot be encoded in any way; of lists only vectors can."""
    if types.is_nested(kind):
        raise DataError(f"column {quote(name)} of {where} holds {kind}, not numbers", code=code, hint=hint)


def _columns_by_type(name: str, kind: pa.DataType, options: SourceOptions, where: str, code: str) -> list[Column]:
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
    if not text:
        hint = f"encode it with --column {shell_word(f'{name}=category')} or =hash, or leave it out with --drop"
    if types.is_temporal(value):
        dated = types.is_timestamp(value) or types.is_date(value)
        hint = f"{'encode it with --calendar' if dated else 'store it as a number'}, or leave it out with --drop"
    raise DataError(f"column {quote(name)} of {where} holds {value}, not numbers", code=code, hint=hint)


def _calendar(name: str, kind: pa.DataType, where: str, code: str) -> list[Column]:
    if not (types.is_timestamp(kind) or types.is_date(kind)):
        message = f"column {quote(name)} of {where} holds {kind}, not points in time"
        raise DataError(message, code=code, hint="--calendar is for dates and timestamps")
    parts = ("month", "weekday", "hour") if types.is_timestamp(kind) else ("month", "weekday")
    return [Column(name, part, CALENDAR[part]) for part in parts]


def check_same_columns(first: Iterable[str], other: Iterable[str], names: tuple[str, str]) -> None:
    """Raise DataError E-SCHEMA with the difference if the two files ``names`` have different columns."""
    first_columns, other_columns = set(first), set(other)
    if first_columns != other_columns:
        differences = [f"{quote(column)} is only in {names[0]}" for column in sorted(first_columns - other_columns)[:3]]
        differences += [
            f"{quote(column)} is only in {names[1]}" for column in sorted(other_columns - first_columns)[:3]
        ]
        message = f"the columns differ: {'; '.join(differences)}"
        raise DataError(message, code="E-SCHEMA", hint="ingest files of one table")


def describe_proposals(schema: Schema, planned: Schema, census: TableCensus, samples: JsonMapping) -> list[str]:
    """Return a line of text for each column whose kind was inferred from its values; ``planned``: the schema before the
    values of categories were counted.
    """
    final_kinds = {c.name: c.kind for c in schema.columns if c.kind in (CATEGORY, HASHED)}
    lines = []
    for column in planned.columns:
        word = shell_word(column.name)
        if column.unasked and column.kind == CATEGORY:
            content = "cross" if column.parts else "text"
            decision = TEXT_KEPT[final_kinds.get(column.name)].format(word)
            if column.parts:
                decision = decision.partition(";")[0]
            counts = census.values[column.name].describe()
            lines.append(f"column {quote(column.name)}: {content}, {counts}: {decision}")
        elif column.unasked and column.kind in BECOMES:
            lines.append(
                f"column {quote(column.name)}: {_describe_parsed(column, samples)}; --column {word}=KIND says otherwise"
            )
    return [*lines, *_describe_numbers(planned, samples)]


def _describe_parsed(column: Column, samples: JsonMapping) -> str:
    content, becomes = BECOMES[column.kind]
    if column.form == DECIMAL_COMMA:
        content += " with a decimal comma"
    example = first_text(samples.get(column.name))
    return f"{content}{'' if example is None else f' such as {quote(example, 40)}'}: {becomes}"


def first_text(sample: Any) -> str | None:
    """Return the first value of a column as text; None if it has no value."""
    values = None if sample is None else pc.drop_null(sample)
    return None if values is None or not len(values) else str(values[0].as_py())


def _describe_numbers(planned: Schema, samples: JsonMapping) -> Iterator[str]:
    """Yield a line for each column of numbers that could be points in time, or ids."""
    if all(len(samples[name]) < MIN_ROWS_FOR_IDS for name in islice(samples, 1)):  # all samples have the same length
        return
    for column in planned.columns:
        sample = samples.get(column.name)
        if column.kind != NUMBER or sample is None:
            continue
        name, word = quote(column.name), shell_word(column.name)
        if looks_like_times(sample):
            first = datetime.fromtimestamp(pc.min(sample).as_py(), UTC).date()
            content = f"whole numbers that could be seconds since 1970, from {first} on"
            yield f"column {name}: {content}: a number; --column {word}=epoch makes dates of them"
        elif looks_like_ids(sample):
            content = "whole numbers, nearly all unique, as ids are"
            advice = f"--drop {word} leaves it out, --id {word} keeps it beside predictions"
            yield f"column {name}: {content}: a number; {advice}"


def looks_like_times(sample: Any) -> bool:
    """Return whether a column holds whole numbers that are all between ``FIRST_TIME`` and ``LAST_TIME``."""
    if not (pa.types.is_integer(sample.type) or pa.types.is_floating(sample.type)):
        return False
    values = pc.drop_null(sample).to_numpy(zero_copy_only=False)
    whole = len(values) >= MIN_ROWS_FOR_IDS and bool((values == np.floor(values)).all())
    return whole and bool(values.min() >= FIRST_TIME and values.max() < LAST_TIME)


def looks_like_ids(sample: Any) -> bool:
    """Return whether a column holds whole numbers, some above ``LEAST_ID``, which are nearly all unique."""
    if not (pa.types.is_integer(sample.type) or pa.types.is_floating(sample.type)):
        return False
    values = pc.drop_null(sample).to_numpy(zero_copy_only=False)
    if (
        len(values) < MIN_ROWS_FOR_IDS
        or (values != np.floor(values)).any()
        or np.abs(values).max(initial=0) <= LEAST_ID
    ):
        return False
    return len(np.unique(values)) > MIN_ID_SHARE * len(values)


class Samples(Mapping[str, Any]):
    """The first values of each column of a table, by name, read when they are used.

    ``together`` neighboring columns are read at once, and only the last such group stays in memory: iterating over all
    columns in order reads each once.
    """

    def __init__(self, names: Sequence[str], together: int, read: Callable[[list[str]], Mapping[str, Any]]) -> None:
        self._names, self._together, self._read = names, together, read
        self._places = {name: place for place, name in enumerate(names)}
        self._group: Mapping[str, Any] = {}

    def __getitem__(self, name: str) -> Any:
        """Return the values of a column as an Arrow array. Raises KeyError, and what reading raises."""
        if name not in self._group:
            start = self._places[name] // self._together * self._together
            self._group = {}  # freed before the next group is read
            self._group = self._read(list(self._names[start : start + self._together]))
        return self._group[name]

    def __iter__(self) -> Iterator[str]:
        """Iterate over the names."""
        return iter(self._names)

    def __len__(self) -> int:
        """Return the number of columns."""
        return len(self._names)
