"""Cells of a table (Arrow) as numbers, dates, labels, ids and weights; what cannot be read is named with its row.

Text is read in the ways that people write numbers, amounts of money, dates, yes and no, and missing values.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streamsvm.aliases import Array
from streamsvm.errors import DataError, quote
from streamsvm.rows import Float32
from streamsvm.store.format.labels import as_labels

Arrow: TypeAlias = Any
"""An array, column, table or option object of pyarrow, which ships no types."""


class BadCell(Exception):
    """A value that cannot be a feature: the row within the batch, the column, code and text of the error."""

    def __init__(self, row: int, column: str, code: str, text: str, hint: str) -> None:
        super().__init__(text)
        self.row, self.column, self.code, self.text, self.hint = row, column, code, text, hint

    def error(self, where: str, rows_before: int) -> DataError:
        """Return the error for the user; rows are counted from 1."""
        place = f"{where} row {rows_before + self.row + 1}, column {quote(self.column)}"
        return DataError(f"{place}: {self.text}", code=self.code, hint=self.hint)


WORDS = (
    *("", "NA", "N/A", "n/a", "<NA>", "NULL", "null", "None", "?", r"\N"),
    *("NaN", "nan", "-NaN", "-nan", "1.#IND", "-1.#IND", "1.#QNAN", "-1.#QNAN"),
    *("#N/A", "#NA", "#N/A N/A", "#DIV/0!", "#VALUE!", "#REF!", "#NUM!", "#NULL!", "#NAME?"),
)
"""Words for a missing value in every column, from databases, statistics programs and spreadsheets."""
NUMBER_WORDS = ("-", "--", ".", "..", "na", "none")
"""Words for a missing value in columns of numbers, amounts, dates, yes and no; in text they are ordinary values."""
_NOT_A_NUMBER = re.compile(r"[+-]?nan", re.IGNORECASE | re.ASCII)
CURRENCIES = r"(?:[$€£¥₹]|USD|EUR|GBP|CHF|JPY)"
AMOUNT = rf"^\(?[+-]?\s*{CURRENCIES}?\s*[+-]?(?:\d{{1,3}}(?:,\d{{3}})+|\d+)?(?:\.\d+)?\s*(?:{CURRENCIES}|%)?\)?$"
"""An amount of money, a percentage, or a number with thousands separators; parentheses mean that it is negative."""
COMMA_AMOUNT = (
    rf"^\(?[+-]?\s*{CURRENCIES}?\s*[+-]?(?:\d{{1,3}}(?:[. ]\d{{3}})+|\d+)?(?:,\d+)?\s*(?:{CURRENCIES}|%)?\)?$"
)
"""The same with a decimal comma: 1.234,56."""
TRUE, FALSE = ("true", "yes", "y", "t", "on", "1"), ("false", "no", "n", "f", "off", "0")
ISO, EPOCH = "iso", "epoch"
DATES = (ISO, "%d-%b-%y", "%d-%b-%Y", "%d %b %Y", "%b %d, %Y", "%Y/%m/%d", "%d.%m.%Y", "%m/%d/%Y", "%d/%m/%Y")
"""The forms of dates that are recognized in text."""
TWO_DIGIT_YEARS = "1930 to 2029"
"""The range of years of two digits (%y), as in spreadsheets."""
NEXT_CENTURY = "30"
"""Two digits from this on mean a year of the twentieth century."""
UTC_ZONE = "UTC"
"""The zone recorded for texts that end with an offset from UTC."""
UTC_NAMES = ("UTC", "Etc/UTC", "GMT", "Z", "+00:00")
"""Names of the zone that times without a zone are taken to be in."""
YEAR_SECONDS = 365.2425 * 86400
YEAR_2000 = 946_684_800
"""Seconds from 1970 to 2000."""
FIRST_SECOND, LAST_SECOND = -62_135_596_800, 253_402_300_799
"""Seconds since 1970 of the beginning of the year 1 and the end of the year 9999."""
EXAMPLES = {form: form if form == ISO else datetime(1997, 2, 28, tzinfo=UTC).strftime(form) for form in DATES} | {
    ISO: "1997-02-28"
}
_DAY = r"(?:(?:0[13578]|1[02])-(?:0[1-9]|[12]\d|3[01])|(?:0[469]|11)-(?:0[1-9]|[12]\d|30)|02-(?:0[1-9]|1\d|2[0-8]))"
"""Month and day as ISO 8601 writes them, but for February 29."""
_LEAP_YEAR = r"(?:\d\d(?:0[48]|[2468][048]|[13579][26])|(?:[02468][048]|[13579][26])00)"
_HOUR = r"(?:[01]\d|2[0-3])"
_OFFSET = r" ?[+-](?:[01]\d|2[0-3])(?::?[0-5]\d)?"
"""The offset of local time from UTC."""
_WITH_OFFSET = rf":\d\d(?:\.\d+)?{_OFFSET}$"
_ZONED = rf":\d\d(?:\.\d+)?(?:Z|{_OFFSET})$"
"""The end of a time of day with a zone."""
_TIME = rf"{_HOUR}(?::[0-5]\d(?::[0-5]\d)?(?:\.\d+)?(?:Z|{_OFFSET})?)?"
_ISO_DATE = rf"^(?:\d{{4}}-{_DAY}|{_LEAP_YEAR}-02-29)(?:[T ]{_TIME})?$"
MISSING_HINT = "pass --missing mean, zero or indicator, leave the column out with --drop, or remove the rows"
RECORDED_MISSING_HINT = (
    "the model was trained without missing values: remove the rows, or train again with ingest's missing"
)
"""The hint for new rows that a model is applied to."""
WEIGHT_HINT = "weights are numbers of 0 or more, one a row: correct them, or remove such rows"
WRITTEN_HINT = "correct the value, or say what the column holds: --column NAME=category"


def stored_type(kind: pa.DataType) -> pa.DataType:
    """Return the type in which the values of an extension type are stored; any other type as it is."""
    return kind.storage_type if isinstance(kind, pa.BaseExtensionType) else kind


def as_stored(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return a batch with columns of extension types as they are stored."""
    if not any(isinstance(field.type, pa.BaseExtensionType) for field in batch.schema):
        return batch
    columns = [c.storage if isinstance(c.type, pa.BaseExtensionType) else c for c in batch.columns]
    return pa.RecordBatch.from_arrays(columns, names=batch.schema.names)


def parse_numbers(values: Arrow, name: str) -> Arrow:
    """Return decimals, booleans and numbers that are written as text as float64. Raises BadCell."""
    if pa.types.is_dictionary(values.type):
        values = values.cast(values.type.value_type)
    if pa.types.is_string(values.type) or pa.types.is_large_string(values.type):
        values = pc.utf8_trim_whitespace(values)
    try:
        return values.cast(pa.float64())
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        row, found = first_unreadable(values, float)
        text = f"expected a number, found {quote(found)}"
        raise BadCell(row, name, "E-PARSE", text, "give the column the kind it had in training") from error


def to_text(values: Arrow) -> Arrow:
    """Return values of any type as strings."""
    return values if values.type == pa.string() else values.cast(pa.string())


def to_canonical_text(values: Arrow) -> Arrow:
    """Return values of any type as strings, whole numbers without a fraction: 1, 1.0 and '1.0' are all '1'."""
    return pc.replace_substring_regex(to_text(values), r"^([+-]?[0-9]+)\.0+$", r"\1")


def first_unreadable(values: Arrow, read: Any) -> tuple[int, Any]:
    """Return row and text of the first value for which ``read`` raises ValueError or TypeError."""
    for row, value in enumerate(values.to_pylist()):
        try:
            read(value) if value is not None else None
        except (ValueError, TypeError):
            return row, value
    return 0, values[0].as_py()


def _texts(values: Arrow) -> tuple[Any, Any]:
    """The distinct texts of a column, trimmed, and which of them each row has."""
    if not pa.types.is_dictionary(values.type):
        values = (values if pa.types.is_string(values.type) else values.cast(pa.string())).dictionary_encode()
    return pc.utf8_trim_whitespace(values.dictionary.cast(pa.string())), values.indices


def _take_by_row(distinct: Any, rows: Any, texts: Any, name: str, expected: str) -> Any:
    """Return the value of each row, which is that of its text in ``distinct``. Raises BadCell for a row whose text has
    no value; a dictionary may also hold texts that no row of the batch has.
    """
    if distinct.null_count > texts.null_count:
        bad = pc.fill_null(pc.and_(distinct.is_null(), texts.is_valid()).take(rows), False)
        if pc.any(bad).as_py():
            row = int(np.argmax(bad.to_numpy(zero_copy_only=False)))
            text = quote(texts[rows[row].as_py()].as_py())
            raise BadCell(row, name, "E-PARSE", f"expected {expected}, found {text}", WRITTEN_HINT)
    return distinct.take(rows)


def is_text(kind: pa.DataType) -> bool:
    """Return whether a column holds text."""
    kind = kind.value_type if pa.types.is_dictionary(kind) else kind
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def parse_amounts(values: Arrow, name: str, *, comma: bool = False) -> Arrow:
    """Return amounts as float64: '$1,234.50' is 1234.5, '(12)' is -12, '5 %' is 0.05, and with ``comma`` '1.234,50' is
    1234.5.

    Raises BadCell.
    """
    if not is_text(values.type):
        return parse_numbers(values, name)
    texts, rows = _texts(values)
    expected = "an amount such as 1.234,50" if comma else "an amount"
    return _take_by_row(parse_amounts_or_null(texts, comma=comma), rows, texts, name, expected)


def parse_amounts_or_null(texts: Any, *, comma: bool = False) -> Any:
    """Return texts as float64, null where one is no amount; ``comma``: with a decimal comma."""
    good = pc.match_substring_regex(texts, COMMA_AMOUNT if comma else AMOUNT)
    good = pc.and_(good, pc.match_substring_regex(texts, r"\d"))
    if comma:
        texts = pc.replace_substring(pc.replace_substring(texts, ".", ""), ",", ".")
    negative = pc.starts_with(texts, "(")
    balanced = pc.equal(negative, pc.ends_with(texts, ")"))
    plain = pc.replace_substring_regex(texts, rf"[\s(),%+]|{CURRENCIES}", "")
    plain = pc.if_else(pc.and_(good, balanced), plain, pa.scalar(None, pa.string()))
    found = pc.cast(plain, pa.float64())
    found = pc.if_else(pc.match_substring(texts, "%"), pc.divide(found, 100.0), found)
    return pc.if_else(negative, pc.negate(found), found)


def parse_booleans(values: Arrow, name: str) -> Arrow:
    """Return yes and no, in any of the usual spellings, as float64 of 1 and 0. Raises BadCell."""
    if not is_text(values.type):
        return parse_numbers(values, name)
    texts, rows = _texts(values)
    return _take_by_row(parse_booleans_or_null(texts), rows, texts, name, "yes or no")


def parse_booleans_or_null(texts: Any) -> Any:
    """Return texts as float64 of 1 and 0, null where one is neither."""
    lower = pc.utf8_lower(texts)
    yes, no = (pc.is_in(lower, value_set=pa.array(words)) for words in (TRUE, FALSE))
    return pc.if_else(yes, 1.0, pc.if_else(no, 0.0, pa.scalar(None, pa.float64())))


def parse_dates(values: Arrow, name: str, form: str, zone: str | None = None) -> Any:
    """Return points in time as timestamps in seconds of UTC, read by one of ``DATES`` or as seconds since 1970
    (``EPOCH``). Times without a zone are taken for times of UTC.

    ``zone``: the time zone of the column in training, empty where it had none; None accepts any. Raises BadCell, also
    for a time with a zone where there was none, and without one where there was one.
    """
    if pa.types.is_timestamp(values.type) or pa.types.is_date(values.type):
        if zone is not None and values.null_count < len(values):
            _check_zone(zone_of(values), zone, 0, name)
        moments = values.cast(pa.timestamp("s"), safe=False)
        _check_years(moments, name)
        return moments
    if form == EPOCH:
        return _since_1970(parse_numbers(values, name).cast(pa.float64()), name)
    texts, rows = _texts(values)
    found = _take_by_row(parse_dates_or_null(texts, form), rows, texts, name, f"a date such as {EXAMPLES[form]}")
    if form == ISO and zone is not None:
        other = has_other_zone(texts, zone)
        if pc.any(other).as_py():
            wrong = pc.fill_null(other.take(rows), False).to_numpy(zero_copy_only=False)
            if wrong.any():
                row = int(np.argmax(wrong))
                offset = re.search(r"[+-][\d:]+$", texts[rows[row].as_py()].as_py())
                _check_zone("" if zone or offset is None else offset[0], zone, row, name)
    return found


def zone_of(values: Arrow) -> str:
    """Return the time zone of a column, ``UTC_ZONE`` for texts that all end with an offset or Z; empty for none."""
    if not is_text(values.type):
        return str(getattr(values.type, "tz", None) or "")
    texts = pc.drop_null(_texts(values.dictionary_decode() if pa.types.is_dictionary(values.type) else values)[0])
    return UTC_ZONE if len(texts) and pc.all(pc.match_substring_regex(texts, _ZONED)).as_py() else ""


def has_other_zone(texts: Any, zone: str) -> Any:
    """Return which dates as text have no time zone where the column has one, or one where it has none."""
    zoned = pc.match_substring_regex(texts, _ZONED if zone else _WITH_OFFSET)
    return pc.invert(zoned) if zone else zoned


def _check_zone(found: str, expected: str, row: int, name: str) -> None:
    """Raise BadCell for a time with a zone where those of the training have none, or without one where they have one."""
    if expected and not found:
        text = f"the time has no time zone, but earlier rows, or those of the training, have one ({expected})"
        raise BadCell(row, name, "E-SCHEMA", text, "add the offset: 2019-12-31T10:00:00+01:00, or dt.tz_localize(ZONE)")
    if found and not expected and found not in UTC_NAMES:
        text = f"the time has a time zone ({found}), but earlier rows, or those of the training, have none"
        raise BadCell(
            row,
            name,
            "E-SCHEMA",
            text,
            "give the clock times of the training: dt.tz_convert(ZONE).dt.tz_localize(None)",
        )


def _check_years(moments: Any, name: str) -> None:
    """Raise BadCell for a point in time beyond the years 1 to 9999."""
    seconds = moments.cast(pa.int64())
    beyond = pc.or_(pc.less(seconds, FIRST_SECOND), pc.greater(seconds, LAST_SECOND))
    if pc.any(beyond).as_py():
        row = int(np.argmax(pc.fill_null(beyond, False).to_numpy(zero_copy_only=False)))
        text = f"expected a date, found {seconds[row].as_py()} seconds since 1970, beyond the year 9999 or before 1"
        raise BadCell(row, name, "E-RANGE", text, "correct the value, or leave it missing")


def _since_1970(seconds: Any, name: str) -> Any:
    """Return seconds since 1970, float64, as timestamps; NaN is missing. Raises BadCell beyond the years 1 to 9999."""
    known = pc.if_else(pc.is_nan(seconds), pa.scalar(None, pa.float64()), seconds)
    beyond = pc.or_(pc.less(known, float(FIRST_SECOND)), pc.greater(known, float(LAST_SECOND)))
    if pc.any(beyond).as_py():
        row = int(np.argmax(pc.fill_null(beyond, False).to_numpy(zero_copy_only=False)))
        found = f"expected seconds since 1970, found {seconds[row].as_py():g}, beyond the year 9999 or before 1"
        raise BadCell(row, name, "E-RANGE", found, f"divide milliseconds by 1000, or pass --column {name}=number")
    return pc.floor(known).cast(pa.int64()).cast(pa.timestamp("s"))


def parse_dates_or_null(texts: Any, form: str) -> Any:
    """Return texts as timestamps in seconds of UTC, null for what is no date of this form, and for the year 0."""
    if form == ISO:
        is_date = pc.match_substring_regex(texts, _ISO_DATE)
        plain = pc.replace_substring_regex(texts, rf"(:\d\d)(?:\.\d+)?(?:Z|{_OFFSET})?$", r"\1")
        found = pc.if_else(is_date, plain, pa.scalar(None, pa.string())).cast(pa.timestamp("s"))
        if pc.any(pc.match_substring_regex(texts, _WITH_OFFSET)).as_py():
            found = pc.subtract(found, _offsets_of(texts))
    else:
        if form.endswith("%y"):
            form = form.replace("%y", "%Y")
            late = pc.less(pc.utf8_slice_codeunits(texts, -2), NEXT_CENTURY)
            ends = (pc.replace_substring_regex(texts, r"(\D)(\d\d)$", rf"\1{c}\2") for c in (20, 19))
            short = pc.match_substring_regex(texts, r"\D\d\d$")
            texts = pc.if_else(short, pc.if_else(late, *ends), pa.scalar(None, pa.string()))
        found = pc.strptime(texts, format=form, unit="s", error_is_null=True)
        is_date = pc.equal(_comparable(pc.strftime(found, format=form)), _comparable(texts))
    known = pc.and_(is_date, pc.greater_equal(found.cast(pa.int64()), FIRST_SECOND))
    return pc.if_else(known, found, pa.scalar(None, pa.timestamp("s")))


def _offsets_of(texts: Any) -> Any:
    """Return how far the clock of each text is ahead of UTC, as a duration in seconds; 0 where none is written."""
    parts = pc.extract_regex(texts, r":\d\d(?:\.\d+)? ?(?P<sign>[+-])(?P<hours>\d\d):?(?P<minutes>\d\d)?$")
    sign, hours, minutes = (pc.struct_field(parts, name) for name in ("sign", "hours", "minutes"))
    minutes = pc.if_else(pc.equal(minutes, ""), "0", minutes)
    seconds = pc.add(pc.multiply(hours.cast(pa.int64()), 3600), pc.multiply(minutes.cast(pa.int64()), 60))
    signed = pc.if_else(pc.equal(sign, "-"), pc.negate(seconds), seconds)
    return pc.fill_null(signed, 0).cast(pa.duration("s"))


def _comparable(texts: Any) -> Any:
    """Dates as text without leading zeros and upper case, to see that strptime took February 31 for March 3."""
    return pc.replace_substring_regex(pc.utf8_lower(texts), r"\b0", "")


def count_years(moments: Any) -> Any:
    """Return points in time as years since 2000, float64."""
    seconds = moments.cast(pa.int64()).cast(pa.float64(), safe=False)
    return pc.divide(pc.subtract(seconds, float(YEAR_2000)), YEAR_SECONDS)


def to_numpy(values: Arrow, name: str) -> Arrow:
    """Return numbers as a numpy array, NaN where one is missing. Raises BadCell for text that is no number."""
    if not (pa.types.is_integer(values.type) or pa.types.is_floating(values.type)):
        values = parse_numbers(values, name)
    return values.to_numpy(zero_copy_only=False)


def to_float32(values: Arrow, name: str) -> Float32:
    """Return a column as float32: NaN for a missing value, infinite where it does not fit. Raises BadCell."""
    with np.errstate(over="ignore"):
        return to_numpy(values, name).astype(np.float32, copy=False)


def check_numbers(values: Arrow, name: str, *, missing: bool = False) -> None:
    """Raise BadCell for values that are missing (unless ``missing``), not finite or too large for float32."""
    if not missing:
        check_missing(values, name)
    given, finite = to_numpy(values, name), np.isfinite(to_float32(values, name))
    finite |= missing & np.isnan(to_float32(values, name))
    if not finite.all():
        row = int(np.argmin(finite))
        if np.isfinite(given[row]):
            raise BadCell(row, name, "E-RANGE", f"{given[row]} does not fit float32", "scale the column")
        hint = MISSING_HINT if np.isnan(given[row]) else "remove or replace such values"
        raise BadCell(row, name, "E-NONFINITE", f"{given[row]} is not finite", hint)


def parse_labels(values: Arrow, name: str) -> Array:
    """Return a column as float64, as int64 or uint64, or as str. Raises BadCell E-LABEL for a missing one."""
    if values.null_count:
        raise BadCell(
            _first_missing(values),
            name,
            "E-LABEL",
            "the label is missing",
            "pass --missing-label skip to leave such rows out",
        )
    if pa.types.is_dictionary(values.type) or not _is_number(values.type):
        encoded = values if pa.types.is_dictionary(values.type) else to_text(values).dictionary_encode()
        texts = np.array(to_text(encoded.dictionary).to_pylist(), dtype=np.str_)
        return texts[encoded.indices.to_numpy()]
    return as_labels(values.to_numpy(zero_copy_only=False), name)


def parse_ids(values: Arrow) -> Array:
    """Return a column as int64, or as objects of text; empty text where a row has no id."""
    if pa.types.is_integer(values.type) and not values.null_count and not pa.types.is_uint64(values.type):
        return values.cast(pa.int64()).to_numpy(zero_copy_only=False)
    if pa.types.is_dictionary(values.type):
        values = values.cast(values.type.value_type)
    return pc.fill_null(to_text(values), "").to_numpy(zero_copy_only=False)


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind))


def parse_weights(values: Arrow, name: str) -> Float32:
    """Return row weights as float32. Raises BadCell for values that are not finite numbers of at least 0."""
    try:
        check_numbers(values, name)
    except BadCell as cell:
        cell.hint = WEIGHT_HINT
        raise
    weight = to_float32(values, name)
    if (weight < 0).any():
        row = int(np.argmax(weight < 0))
        raise BadCell(row, name, "E-RANGE", f"the weight {weight[row]} is negative", WEIGHT_HINT)
    return weight


def check_missing(values: Arrow, name: str) -> None:
    """Raise BadCell E-MISSING when a value is missing."""
    if values.null_count:
        raise BadCell(_first_missing(values), name, "E-MISSING", "the value is missing", MISSING_HINT)


def _first_missing(values: Arrow) -> int:
    return int(np.argmax(values.is_null().to_numpy(zero_copy_only=False)))


class MissingWords(NamedTuple):
    """The words for a missing value in the files of one source."""

    given: tuple[str, ...] = ()
    """Words that the user added."""

    @property
    def in_text(self) -> tuple[str, ...]:
        """The words in columns of text."""
        return (*WORDS, *self.given)

    @property
    def in_numbers(self) -> tuple[str, ...]:
        """The words in columns of numbers, amounts, dates, yes and no."""
        return (*WORDS, *NUMBER_WORDS, *self.given)

    @property
    def values(self) -> tuple[float, ...]:
        """The numbers among the words that the user added: -999 also stands for -999.0."""
        return tuple(number for number in map(_number, self.given) if number is not None)

    def has(self, text: str, *, number: bool) -> bool:
        """Return whether a text without blanks around it is one of them; ``number``: in a column of numbers."""
        if not number:
            return text in self.in_text
        return text in self.in_numbers or bool(_NOT_A_NUMBER.fullmatch(text)) or _number(text) in self.values

    def remove(self, values: Arrow, *, number: bool) -> Arrow:
        """Return a column with null in place of each word, with or without blanks around it; ``number``: of numbers."""
        if is_text(values.type):
            return _without_texts(values, pa.array(self.in_numbers if number else self.in_text, pa.string()))
        return self.remove_numbers(values) if number else values

    def remove_numbers(self, values: Arrow) -> Arrow:
        """Return a column of numbers with null for the numbers that the user added."""
        if not self.values or not (pa.types.is_floating(values.type) or pa.types.is_integer(values.type)):
            return values
        found = values.cast(pa.float64(), safe=False)
        wrong = np.isin(found.to_numpy(zero_copy_only=False), self._as_read(values.type))
        return pc.if_else(pa.array(wrong), pa.scalar(None, values.type), values) if wrong.any() else values

    def _as_read(self, kind: pa.DataType) -> Sequence[float]:
        return [float(np.float32(value)) if pa.types.is_float32(kind) else value for value in self.values]


def with_words_missing(table: pa.RecordBatch, words: MissingWords, *, but: Collection[str | None]) -> pa.RecordBatch:
    """Return rows with null for the words and numbers that the user added, in all columns except those of ``but``."""
    if not words.given:
        return table
    given = pa.array(words.given, pa.string())

    def remove(name: str, values: Arrow) -> Arrow:
        if name in but:
            return values
        return _without_texts(values, given) if is_text(values.type) else words.remove_numbers(values)

    return _change_columns(table, remove)


def _change_columns(table: pa.RecordBatch, change: Callable[[str, Arrow], Arrow]) -> pa.RecordBatch:
    """Return rows with every column changed by ``change``; the same object where no column changes."""
    columns = [change(name, column) for name, column in zip(table.schema.names, table.columns, strict=True)]
    if all(new is old for new, old in zip(columns, table.columns, strict=True)):
        return table
    return pa.RecordBatch.from_arrays(columns, names=table.schema.names)


def _without_texts(values: Arrow, words: pa.Array) -> Arrow:
    encoded = pa.types.is_dictionary(values.type)
    texts = values.dictionary if encoded else values
    trimmed = pc.utf8_trim_whitespace(texts if pa.types.is_string(texts.type) else texts.cast(pa.string()))
    wrong = pc.is_in(trimmed, value_set=words)
    if not pc.any(wrong).as_py():
        return values
    left = pc.if_else(wrong, pa.scalar(None, pa.string()), trimmed)
    if not encoded:
        return left
    distinct = left.drop_null().unique()
    places = pc.index_in(left, value_set=distinct, skip_nulls=True)
    return pa.DictionaryArray.from_arrays(places.take(values.indices), distinct)


def _number(text: str) -> float | None:
    try:
        found = float(text)
    except ValueError:
        return None
    return found if np.isfinite(found) else None
