"""Parse the cells of a table (Arrow) as numbers, dates, labels, ids and weights; errors name the row and the column.

Text is parsed in the usual spellings of numbers, amounts of money, dates, yes and no, and missing values.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from streamsvm.errors import DataError, quote
from streamsvm.rows import Float32
from streamsvm.store.format.labels import as_labels
from streamsvm.type_aliases import Array

Arrow: TypeAlias = Any
"""An array, column, table or option object of pyarrow, which ships no types."""


class BadCell(Exception):
    """A value that cannot be encoded: its row in the batch, from 0, its column, and the error's code, text and hint."""

    def __init__(self, row: int, column: str, code: str, text: str, hint: str) -> None:
        super().__init__(text)
        self.row, self.column, self.code, self.text, self.hint = row, column, code, text, hint

    def error(self, where: str, rows_before: int) -> DataError:
        """Return the error for the user; ``rows_before``: the rows of the file before the batch."""
        place = f"{where} row {rows_before + self.row + 1}, column {quote(self.column)}"
        return DataError(f"{place}: {self.text}", code=self.code, hint=self.hint)


WORDS = (
    *("", "NA", "N/A", "n/a", "<NA>", "NULL", "null", "None", "?", r"\N"),
    *("NaN", "nan", "-NaN", "-nan", "1.#IND", "-1.#IND", "1.#QNAN", "-1.#QNAN"),
    *("#N/A", "#NA", "#N/A N/A", "#DIV/0!", "#VALUE!", "#REF!", "#NUM!", "#NULL!", "#NAME?"),
)
"""Words for a missing value in all columns, as databases, statistics programs and spreadsheets write them."""
NUMBER_WORDS = ("-", "--", ".", "..", "na", "none")
"""Words for a missing value in columns of numbers, amounts, dates, yes and no; in columns of text they are values."""
_NOT_A_NUMBER = re.compile(r"[+-]?nan", re.IGNORECASE | re.ASCII)
PLAIN_NUMBER = r"^[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?$"
CURRENCIES = r"(?:[$€£¥₹]|USD|EUR|GBP|CHF|JPY)"
AMOUNT = rf"^\(?[+-]?\s*{CURRENCIES}?\s*[+-]?(?:\d{{1,3}}(?:,\d{{3}})+|\d+)?(?:\.\d+)?\s*(?:{CURRENCIES}|%)?\)?$"
"""An amount of money, a percentage, or a number with thousands separators; parentheses mean that it is negative."""
COMMA_AMOUNT = (
    rf"^\(?[+-]?\s*{CURRENCIES}?\s*[+-]?(?:\d{{1,3}}(?:[. ]\d{{3}})+|\d+)?(?:,\d+)?\s*(?:{CURRENCIES}|%)?\)?$"
)
"""An amount with a decimal comma: 1.234,56."""
TRUE, FALSE = ("true", "yes", "y", "t", "on", "1"), ("false", "no", "n", "f", "off", "0")
ISO, EPOCH = "iso", "epoch"
DATES = (ISO, "%d-%b-%y", "%d-%b-%Y", "%d %b %Y", "%b %d, %Y", "%Y/%m/%d", "%d.%m.%Y", "%m/%d/%Y", "%d/%m/%Y")
"""The formats of dates that are recognized in text."""
TWO_DIGIT_YEARS = "1930 to 2029"
"""The range of years of two digits (%y), as in spreadsheets."""
NEXT_CENTURY = "30"
"""Years of two digits from this on belong to the twentieth century."""
UTC_ZONE = "UTC"
"""The recorded time zone of texts that end with an offset from UTC."""
UTC_NAMES = ("UTC", "Etc/UTC", "GMT", "Z", "+00:00")
"""Names of UTC, which is assumed for times without a zone."""
YEAR_SECONDS = 365.2425 * 86400
YEAR_2000 = 946_684_800
"""Seconds from the start of 1970 to the start of 2000."""
FIRST_SECOND, LAST_SECOND = -62_135_596_800, 253_402_300_799
"""The start of the year 1 and the end of the year 9999, in seconds since 1970."""
EXAMPLES = {form: form if form == ISO else datetime(1997, 2, 28, tzinfo=UTC).strftime(form) for form in DATES} | {
    ISO: "1997-02-28"
}
_DAY = r"(?:(?:0[13578]|1[02])-(?:0[1-9]|[12]\d|3[01])|(?:0[469]|11)-(?:0[1-9]|[12]\d|30)|02-(?:0[1-9]|1\d|2[0-8]))"
"""Month and day as ISO 8601 writes them, without February 29."""
_LEAP_YEAR = r"(?:\d\d(?:0[48]|[2468][048]|[13579][26])|(?:[02468][048]|[13579][26])00)"
_HOUR = r"(?:[01]\d|2[0-3])"
_OFFSET = r" ?[+-](?:[01]\d|2[0-3])(?::?[0-5]\d)?"
"""The offset of local time from UTC."""
_WITH_OFFSET = rf":\d\d(?:\.\d+)?{_OFFSET}$"
_ZONED = rf":\d\d(?:\.\d+)?(?:Z|{_OFFSET})$"
"""The end of a time of day with a zone."""
_TIME = rf"{_HOUR}(?::[0-5]\d(?::[0-5]\d)?(?:\.\d+)?(?:Z|{_OFFSET})?)?"
_ISO_DATE = rf"^(?:\d{{4}}-{_DAY}|{_LEAP_YEAR}-02-29)(?:[T ]{_TIME})?$"
MISSING_TEXT = "the value is missing"
MISSING_LABEL, MISSING_LABEL_HINT = "the label is missing", "pass --missing-label skip to leave such rows out"
MISSING_HINT = "pass --missing mean, zero or indicator, leave the column out with --drop, or remove the rows"
RECORDED_MISSING_HINT = (
    "the model was trained without missing values: remove the rows, or train again with ingest's missing"
)
"""The hint for rows to which a model is applied."""
WEIGHT_HINT = "weights are numbers of 0 or more, one a row: correct them, or remove such rows"
ID_HINT = "give every row an id, or leave such rows out with --on-bad-line skip"
ID_TYPE_HINT = "write the ids of all files with one type"
WRITTEN_HINT = "correct the value, or say what the column holds: --column NAME=category"
RECORDED_WRITTEN_HINT = "correct the value, or leave such rows out with --on-bad-line skip"
"""The hint for rows to which a model is applied."""


def storage_type(kind: pa.DataType) -> pa.DataType:
    """Return the storage type of an extension type; any other type unchanged."""
    return kind.storage_type if isinstance(kind, pa.BaseExtensionType) else kind


def as_stored(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return the batch with columns of extension types replaced by their storage."""
    if not any(isinstance(field.type, pa.BaseExtensionType) for field in batch.schema):
        return batch
    columns = [c.storage if isinstance(c.type, pa.BaseExtensionType) else c for c in batch.columns]
    return pa.RecordBatch.from_arrays(columns, names=batch.schema.names)


def readable_type(kind: pa.DataType) -> pa.DataType:
    """Return the type in which a column is read: string views, which the encoders do not read, become large strings."""
    if pa.types.is_string_view(kind):
        return pa.large_string()
    if pa.types.is_dictionary(kind) and pa.types.is_string_view(kind.value_type):
        return pa.dictionary(kind.index_type, pa.large_string(), kind.ordered)
    return kind


def as_readable(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return the batch with string views, which the encoders do not read, replaced by large strings."""
    kinds = [readable_type(field.type) for field in batch.schema]
    if kinds == batch.schema.types:
        return batch
    columns = [column.cast(kind) for column, kind in zip(batch.columns, kinds, strict=True)]
    return pa.RecordBatch.from_arrays(columns, names=batch.schema.names)


def parse_numbers(values: Arrow, name: str) -> Arrow:
    """Return decimals, booleans and numbers written as text as float64. Raises BadCell."""
    if pa.types.is_dictionary(values.type):
        values = values.cast(values.type.value_type)
    if pa.types.is_string(values.type) or pa.types.is_large_string(values.type):
        values = pc.utf8_trim_whitespace(values)
    try:
        return values.cast(pa.float64())
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        row, value = first_unreadable(values, float)
        text = f"expected a number, found {quote(value)}"
        raise BadCell(row, name, "E-PARSE", text, "give the column the kind it had in training") from error


def to_text(values: Arrow) -> Arrow:
    """Return values of any type as strings."""
    return values if values.type == pa.string() else values.cast(pa.string())


def to_canonical_text(values: Arrow) -> Arrow:
    """Return values of any type as strings; whole numbers lose their fraction: 1, 1.0 and '1.0' all become '1'."""
    return pc.replace_substring_regex(to_text(values), r"^([+-]?[0-9]+)\.0+$", r"\1")


def first_unreadable(values: Arrow, parse: Any) -> tuple[int, Any]:
    """Return row and text of the first value for which ``parse`` raises ValueError or TypeError."""
    for row, value in enumerate(values.to_pylist()):
        try:
            parse(value) if value is not None else None
        except (ValueError, TypeError):
            return row, value
    return 0, values[0].as_py()


def _texts(values: Arrow) -> tuple[Any, Any]:
    """Return the distinct texts of a column, trimmed, and the index of the text of each row."""
    if not pa.types.is_dictionary(values.type):
        values = (values if pa.types.is_string(values.type) else values.cast(pa.string())).dictionary_encode()
    return pc.utf8_trim_whitespace(values.dictionary.cast(pa.string())), values.indices


def _take_by_row(distinct: Any, rows: Any, texts: Any, name: str, expected: str) -> Any:
    """Return the value of each row; ``distinct``: the parsed value of each of ``texts``, ``rows``: the text of each
    row.

    Raises BadCell for a row whose text could not be parsed; a dictionary may also hold texts that no row of the batch
    has.
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
    """Return texts as float64, null for a text that is not an amount; ``comma``: with a decimal comma."""
    good = pc.match_substring_regex(texts, COMMA_AMOUNT if comma else AMOUNT)
    good = pc.and_(good, pc.match_substring_regex(texts, r"\d"))
    if comma:
        texts = pc.replace_substring(pc.replace_substring(texts, ".", ""), ",", ".")
    negative = pc.starts_with(texts, "(")
    balanced = pc.equal(negative, pc.ends_with(texts, ")"))
    plain = pc.replace_substring_regex(texts, rf"[\s(),%+]|{CURRENCIES}", "")
    plain = pc.if_else(pc.and_(good, balanced), plain, pa.scalar(None, pa.string()))
    amounts = pc.cast(plain, pa.float64())
    amounts = pc.if_else(pc.match_substring(texts, "%"), pc.divide(amounts, 100.0), amounts)
    return pc.if_else(negative, pc.negate(amounts), amounts)


def parse_booleans(values: Arrow, name: str) -> Arrow:
    """Return yes and no, in any of the usual spellings, as float64: 1 and 0. Raises BadCell."""
    if not is_text(values.type):
        return parse_numbers(values, name)
    texts, rows = _texts(values)
    return _take_by_row(parse_booleans_or_null(texts), rows, texts, name, "yes or no")


def parse_booleans_or_null(texts: Any) -> Any:
    """Return yes and no as float64, 1 and 0; null for other texts. Like '1' and '0', '1.0' and '0.0' are yes and no."""
    lower = pc.utf8_lower(to_canonical_text(texts))
    yes, no = (pc.is_in(lower, value_set=pa.array(words)) for words in (TRUE, FALSE))
    return pc.if_else(yes, 1.0, pc.if_else(no, 0.0, pa.scalar(None, pa.float64())))


def parse_dates(values: Arrow, name: str, form: str, zone: str | None = None) -> Any:
    """Return points in time as timestamps in seconds of UTC. Times without a zone are assumed to be in UTC.

    ``form``: one of ``DATES``, or ``EPOCH`` for seconds since 1970. ``zone``: the time zone of the column in training,
    empty if it had none; None accepts any. Raises BadCell, also for a time with a zone if the column had none in
    training, and for one without a zone if it had one.
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
    moments = _take_by_row(parse_dates_or_null(texts, form), rows, texts, name, f"a date such as {EXAMPLES[form]}")
    if form == ISO and zone is not None:
        differs = has_other_zone(texts, zone)
        if pc.any(differs).as_py():
            row_differs = pc.fill_null(differs.take(rows), False).to_numpy(zero_copy_only=False)
            if row_differs.any():
                row = int(np.argmax(row_differs))
                offset = re.search(r"[+-][\d:]+$", texts[rows[row].as_py()].as_py())
                _check_zone("" if zone or offset is None else offset[0], zone, row, name)
    return moments


def zone_of(values: Arrow) -> str:
    """Return the time zone of a column: ``UTC_ZONE`` if all texts end with an offset or Z, empty if it has none."""
    if not is_text(values.type):
        return str(getattr(values.type, "tz", None) or "")
    texts = pc.drop_null(_texts(values.dictionary_decode() if pa.types.is_dictionary(values.type) else values)[0])
    return UTC_ZONE if len(texts) and pc.all(pc.match_substring_regex(texts, _ZONED)).as_py() else ""


def has_other_zone(texts: Any, zone: str) -> Any:
    """Return whether each date, as text, has no time zone although the column has one (``zone``), or vice versa."""
    zoned = pc.match_substring_regex(texts, _ZONED if zone else _WITH_OFFSET)
    return pc.invert(zoned) if zone else zoned


def _check_zone(zone: str, expected: str, row: int, name: str) -> None:
    """Raise BadCell for a time without a zone if one is ``expected``, and for one with a zone if none is expected."""
    if expected and not zone:
        text = f"the time has no time zone, but earlier rows, or those of the training, have one ({expected})"
        raise BadCell(row, name, "E-SCHEMA", text, "add the offset: 2019-12-31T10:00:00+01:00, or dt.tz_localize(ZONE)")
    if zone and not expected and zone not in UTC_NAMES:
        text = f"the time has a time zone ({zone}), but earlier rows, or those of the training, have none"
        raise BadCell(
            row,
            name,
            "E-SCHEMA",
            text,
            "give the clock times of the training: dt.tz_convert(ZONE).dt.tz_localize(None)",
        )


def _check_years(moments: Any, name: str) -> None:
    """Raise BadCell for a point in time outside the years 1 to 9999."""
    seconds = moments.cast(pa.int64())
    outside = pc.or_(pc.less(seconds, FIRST_SECOND), pc.greater(seconds, LAST_SECOND))
    if pc.any(outside).as_py():
        row = int(np.argmax(pc.fill_null(outside, False).to_numpy(zero_copy_only=False)))
        text = f"expected a date, found {seconds[row].as_py()} seconds since 1970, beyond the year 9999 or before 1"
        raise BadCell(row, name, "E-RANGE", text, "correct the value, or leave it missing")


def _since_1970(seconds: Any, name: str) -> Any:
    """Return seconds since 1970 (float64, NaN is missing) as timestamps. Raises BadCell outside the years 1 to 9999."""
    seconds_or_null = pc.if_else(pc.is_nan(seconds), pa.scalar(None, pa.float64()), seconds)
    outside = pc.or_(pc.less(seconds_or_null, float(FIRST_SECOND)), pc.greater(seconds_or_null, float(LAST_SECOND)))
    if pc.any(outside).as_py():
        row = int(np.argmax(pc.fill_null(outside, False).to_numpy(zero_copy_only=False)))
        text = f"expected seconds since 1970, found {seconds[row].as_py():g}, beyond the year 9999 or before 1"
        raise BadCell(row, name, "E-RANGE", text, f"divide milliseconds by 1000, or pass --column {name}=number")
    return pc.floor(seconds_or_null).cast(pa.int64()).cast(pa.timestamp("s"))


def parse_dates_or_null(texts: Any, form: str) -> Any:
    """Return texts as timestamps in seconds of UTC; null if not a date of this format, or of year 0."""
    if form == ISO:
        is_date = pc.match_substring_regex(texts, _ISO_DATE)
        plain = pc.replace_substring_regex(texts, rf"(:\d\d)(?:\.\d+)?(?:Z|{_OFFSET})?$", r"\1")
        moments = pc.if_else(is_date, plain, pa.scalar(None, pa.string())).cast(pa.timestamp("s"))
        if pc.any(pc.match_substring_regex(texts, _WITH_OFFSET)).as_py():
            moments = pc.subtract(moments, _offsets_of(texts))
    else:
        if form.endswith("%y"):
            form = form.replace("%y", "%Y")
            is_after_2000 = pc.less(pc.utf8_slice_codeunits(texts, -2), NEXT_CENTURY)
            with_century = (pc.replace_substring_regex(texts, r"(\D)(\d\d)$", rf"\1{c}\2") for c in (20, 19))
            has_short_year = pc.match_substring_regex(texts, r"\D\d\d$")
            texts = pc.if_else(has_short_year, pc.if_else(is_after_2000, *with_century), pa.scalar(None, pa.string()))
        moments = pc.strptime(texts, format=form, unit="s", error_is_null=True)
        is_date = pc.equal(_comparable(pc.strftime(moments, format=form)), _comparable(texts))
    is_valid = pc.and_(is_date, pc.greater_equal(moments.cast(pa.int64()), FIRST_SECOND))
    return pc.if_else(is_valid, moments, pa.scalar(None, pa.timestamp("s")))


def _offsets_of(texts: Any) -> Any:
    """Return the offset from UTC at the end of each text, as a duration in seconds; 0 if it has none."""
    parts = pc.extract_regex(texts, r":\d\d(?:\.\d+)? ?(?P<sign>[+-])(?P<hours>\d\d):?(?P<minutes>\d\d)?$")
    sign, hours, minutes = (pc.struct_field(parts, name) for name in ("sign", "hours", "minutes"))
    minutes = pc.if_else(pc.equal(minutes, ""), "0", minutes)
    seconds = pc.add(pc.multiply(hours.cast(pa.int64()), 3600), pc.multiply(minutes.cast(pa.int64()), 60))
    signed = pc.if_else(pc.equal(sign, "-"), pc.negate(seconds), seconds)
    return pc.fill_null(signed, 0).cast(pa.duration("s"))


def _comparable(texts: Any) -> Any:
    """Return dates as text in lower case without leading zeros, to detect that strptime read February 31 as March 3."""
    return pc.replace_substring_regex(pc.utf8_lower(texts), r"\b0", "")


def count_years(moments: Any) -> Any:
    """Return points in time as years since 2000, float64."""
    seconds = moments.cast(pa.int64()).cast(pa.float64(), safe=False)
    return pc.divide(pc.subtract(seconds, float(YEAR_2000)), YEAR_SECONDS)


def to_numpy(values: Arrow, name: str) -> Arrow:
    """Return numbers as a numpy array, NaN for missing ones. Raises BadCell for text that is not a number."""
    if not (pa.types.is_integer(values.type) or pa.types.is_floating(values.type)):
        values = parse_numbers(values, name)
    return values.to_numpy(zero_copy_only=False)


def to_float32(values: Arrow, name: str) -> Float32:
    """Return a column as float32: NaN for missing values, infinity for numbers out of range. Raises BadCell."""
    with np.errstate(over="ignore"):
        return to_numpy(values, name).astype(np.float32, copy=False)


def check_numbers(values: Arrow, name: str, *, missing: bool = False) -> None:
    """Raise BadCell for values that are missing (unless ``missing``), not finite or too large for float32."""
    if not missing:
        check_missing(values, name)
    numbers, single = to_numpy(values, name), to_float32(values, name)
    is_valid = np.isfinite(single) | (missing & np.isnan(single))
    if not is_valid.all():
        row = int(np.argmin(is_valid))
        if np.isnan(numbers[row]):  # written as text
            raise BadCell(row, name, "E-MISSING", MISSING_TEXT, MISSING_HINT)
        if np.isfinite(numbers[row]):
            raise BadCell(row, name, "E-RANGE", f"{numbers[row]} does not fit float32", "scale the column")
        raise BadCell(row, name, "E-NONFINITE", f"{numbers[row]} is not finite", "remove or replace such values")


def parse_labels(values: Arrow, name: str) -> Array:
    """Return a column of labels as float64, int64, uint64 or str. Raises BadCell E-LABEL for a missing label."""
    if values.null_count:
        raise BadCell(int(np.argmax(find_missing(values))), name, "E-LABEL", MISSING_LABEL, MISSING_LABEL_HINT)
    if pa.types.is_dictionary(values.type) or not _is_number(values.type):
        encoded = values if pa.types.is_dictionary(values.type) else to_text(values).dictionary_encode()
        texts = np.array(to_text(encoded.dictionary).to_pylist(), dtype=np.str_)
        return texts[encoded.indices.to_numpy()]
    return as_labels(values.to_numpy(zero_copy_only=False), name)


def parse_ids(values: Arrow, name: str, *, as_text: bool) -> Array:
    """Return a column of ids as int64, or ``as_text`` in an array of objects, with empty text for a missing id.

    Raises BadCell for a missing id among integers, which have no empty value, and for text.
    """
    if as_text:
        if pa.types.is_dictionary(values.type):
            values = values.cast(values.type.value_type)
        return pc.fill_null(to_text(values), "").to_numpy(zero_copy_only=False)
    if values.null_count:
        raise BadCell(int(np.argmax(find_missing(values))), name, "E-MISSING", "the id is missing", ID_HINT)
    if len(values) and not is_integer_id(values):
        shown = quote(values[0].as_py())
        raise BadCell(0, name, "E-DTYPE", f"the id {shown} is no 64-bit integer, as those before it are", ID_TYPE_HINT)
    return values.cast(pa.int64()).to_numpy(zero_copy_only=False)


def is_integer_id(values: Arrow) -> bool:
    """Return whether ids are kept as int64; text otherwise."""
    return bool(pa.types.is_integer(values.type) and not pa.types.is_uint64(values.type))


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
    """Raise BadCell E-MISSING when a value is missing; NaN is a missing value."""
    is_missing = find_missing(values)
    if is_missing.any():
        raise BadCell(int(np.argmax(is_missing)), name, "E-MISSING", MISSING_TEXT, MISSING_HINT)


def null_out_nan(values: Arrow) -> Arrow:
    """Return a column with null in place of NaN."""
    if not pa.types.is_floating(values.type):
        return values
    return pc.if_else(pc.is_nan(values), pa.scalar(None, values.type), values)


def find_missing(values: Arrow) -> NDArray[np.bool_]:
    """Return whether each value of a column is missing, (n,); NaN is a missing value."""
    if not values.null_count and not pa.types.is_floating(values.type):
        return np.zeros(len(values), np.bool_)
    is_missing: NDArray[np.bool_] = values.is_null(nan_is_null=True).to_numpy(zero_copy_only=False)
    return is_missing


class MissingWords(NamedTuple):
    """The words that stand for a missing value in the files of one source."""

    added: tuple[str, ...] = ()
    """The words that the user added."""

    @property
    def in_text(self) -> tuple[str, ...]:
        """The words in columns of text."""
        return (*WORDS, *self.added)

    @property
    def in_numbers(self) -> tuple[str, ...]:
        """The words in columns of numbers, amounts, dates, yes and no."""
        return (*WORDS, *NUMBER_WORDS, *self.added)

    @property
    def values(self) -> tuple[float, ...]:
        """The numbers among the words that the user added; compared as numbers, so that -999 matches -999.0."""
        return tuple(number for number in map(_to_number, self.added) if number is not None)

    def has(self, text: str, *, number: bool) -> bool:
        """Return whether a trimmed text is one of the words; ``number``: whether its column holds numbers."""
        if not number:
            return text in self.in_text
        return text in self.in_numbers or bool(_NOT_A_NUMBER.fullmatch(text)) or _to_number(text) in self.values

    def remove(self, values: Arrow, *, number: bool) -> Arrow:
        """Return a column with the words replaced by null; ``number``: whether it holds numbers. Blanks around words do
        not matter.
        """
        if is_text(values.type):
            return _without_texts(values, pa.array(self.in_numbers if number else self.in_text, pa.string()))
        return self.remove_numbers(values) if number else values

    def remove_numbers(self, values: Arrow) -> Arrow:
        """Return a column of numbers with the numbers that the user added replaced by null."""
        if not self.values or not (pa.types.is_floating(values.type) or pa.types.is_integer(values.type)):
            return values
        numbers = values.cast(pa.float64(), safe=False)
        is_missing = np.isin(numbers.to_numpy(zero_copy_only=False), self._values_in(values.type))
        return pc.if_else(pa.array(is_missing), pa.scalar(None, values.type), values) if is_missing.any() else values

    def _values_in(self, kind: pa.DataType) -> Sequence[float]:
        """Return ``values`` as a column of type ``kind`` holds them, rounded to float32 if it is such a column."""
        return [float(np.float32(value)) if pa.types.is_float32(kind) else value for value in self.values]


def null_out_added_words(
    table: pa.RecordBatch, words: MissingWords, *, exempt: Collection[str | None]
) -> pa.RecordBatch:
    """Return the rows with null for the words and numbers that the user added, except in the columns ``exempt``."""
    if not words.added:
        return table
    added = pa.array(words.added, pa.string())

    def remove(name: str, values: Arrow) -> Arrow:
        if name in exempt:
            return values
        return _without_texts(values, added) if is_text(values.type) else words.remove_numbers(values)

    return _change_columns(table, remove)


def _change_columns(table: pa.RecordBatch, change: Callable[[str, Arrow], Arrow]) -> pa.RecordBatch:
    """Return the rows with ``change`` applied to every column; the same object if no column changes."""
    columns = [change(name, column) for name, column in zip(table.schema.names, table.columns, strict=True)]
    if all(new is old for new, old in zip(columns, table.columns, strict=True)):
        return table
    return pa.RecordBatch.from_arrays(columns, names=table.schema.names)


def _without_texts(values: Arrow, words: pa.Array) -> Arrow:
    """Return a column of text, trimmed, with the words replaced by null; the same object if it has none of them."""
    encoded = pa.types.is_dictionary(values.type)
    texts = values.dictionary if encoded else values
    trimmed = pc.utf8_trim_whitespace(texts if pa.types.is_string(texts.type) else texts.cast(pa.string()))
    is_word = pc.is_in(trimmed, value_set=words)
    if not pc.any(is_word).as_py():
        return values
    remaining = pc.if_else(is_word, pa.scalar(None, pa.string()), trimmed)
    if not encoded:
        return remaining
    distinct = remaining.drop_null().unique()
    places = pc.index_in(remaining, value_set=distinct, skip_nulls=True)
    return pa.DictionaryArray.from_arrays(places.take(values.indices), distinct)


def _to_number(text: str) -> float | None:
    """Return a text as a finite number; None if it is none."""
    try:
        number = float(text)
    except ValueError:
        return None
    return number if np.isfinite(number) else None
