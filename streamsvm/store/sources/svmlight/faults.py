"""What is wrong with a svmlight line, in words. Slow and careful: it runs once, on the line the parser stopped at."""

from __future__ import annotations

import re
from typing import NamedTuple

import numpy as np

from streamsvm.errors import DataError, quote

LARGEST_INDEX = 10**8
NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)
NOT_FINITE = re.compile(r"[+-]?(nan|inf|infinity)", re.IGNORECASE | re.ASCII)
INTEGER = re.compile(r"[+-]?\d+", re.ASCII)
ONE_LINE = "a line reads 'label index:value index:value ...'"


class Expected(NamedTuple):
    """What the parser was told of the indices."""

    base: int
    """The index of the first column, 0 or 1."""
    features: int | None
    """The number of columns; None where any index goes."""
    base_was_given: bool = False
    """Whether the user said so, rather than the first lines."""


class _Complaint(Exception):
    """Code, text and hint of what is wrong."""


def explain(line: bytes, where: str, expected: Expected) -> DataError:
    """Return the error for a line the parser refused. ``where`` names file and line."""
    try:
        _check(line.removesuffix(b"\r"), expected)
    except _Complaint as complaint:
        code, text, hint = complaint.args
        return DataError(f"{where}: {text}", code=code, hint=hint)
    return DataError(f"{where}: cannot be read: {quote(line)}", code="E-PARSE", hint=ONE_LINE)


def _check(line: bytes, expected: Expected) -> None:
    content = line.partition(b"#")[0]
    _check_bytes(content)
    text = content.decode("ascii")
    tokens = re.split(r"[ \t]+", text.strip(" \t"))
    _check_format(text)
    _check_label(tokens[0])
    previous = expected.base - 1
    for token in tokens[1:]:
        previous = _check_entry(token, previous, expected)


def _check_bytes(content: bytes) -> None:
    if (at := content.find(b"\0")) >= 0:
        raise _Complaint("E-PARSE", f"a NUL byte at column {at + 1}", "the file is damaged or is not text")
    if b"\r" in content:
        raise _Complaint("E-PARSE", "a CR within a line (old Mac line ends)", "convert them: tr '\\r' '\\n'")
    if not content.isascii():
        at = next(i for i, byte in enumerate(content) if byte > 127)
        found = f"byte 0x{content[at]:02X} at column {at + 1} is not ASCII: {quote(content[at : at + 8])}"
        raise _Complaint("E-PARSE", found, "labels, indices and values are plain ASCII numbers")


def _check_format(text: str) -> None:
    if "|" in text:
        raise _Complaint("E-FORMAT", "looks like Vowpal Wabbit text", "convert it to svmlight or CSV")
    if ":" not in text and "," in text:
        raise _Complaint("E-FORMAT", "looks like CSV", "pass --format csv")


def _check_label(token: str) -> None:
    if NUMBER.fullmatch(token):
        return
    if ":" in token:
        raise _Complaint("E-LABEL", f"no label before {quote(token)}", ONE_LINE)
    if "," in token:
        raise _Complaint("E-LABEL", f"several labels {quote(token)}", "one label a row: multi-label is not supported")
    raise _Complaint(
        "E-LABEL", f"the label {quote(token)} is not a finite number", "pass --text-labels if labels are words"
    )


def _check_entry(token: str, previous: int, expected: Expected) -> int:
    """The index of a token; complains about anything but a correct 'index:value' with a larger index."""
    index, colon, value = token.partition(":")
    if index == "qid":
        raise _Complaint("E-QID", f"{quote(token)}: ranking groups are not supported", "pass --ignore-qid to skip them")
    if not colon:
        raise _Complaint("E-PARSE", f"expected 'index:value', found {quote(token)}", ONE_LINE)
    if not index:
        raise _Complaint("E-PARSE", f"the index is missing in {quote(token)}", ONE_LINE)
    if not value:
        raise _Complaint("E-PARSE", f"the value is missing in {quote(token)}", ONE_LINE)
    number = _check_index(index, token, expected)
    _check_value(value, token)
    if number == previous:
        raise _Complaint("E-DUP", f"index {number} appears twice", "pass --on-duplicate sum, first or last")
    if number < previous:
        raise _Complaint("E-ORDER", f"index {number} after {previous}", "pass --sort")
    return number


def _check_index(index: str, token: str, expected: Expected) -> int:
    if not INTEGER.fullmatch(index):
        raise _Complaint("E-PARSE", f"expected 'index:value' with a whole index, found {quote(token)}", ONE_LINE)
    if index.startswith("-"):
        raise _Complaint("E-INDEX", f"the index {quote(index)} is negative", "indices begin at 0 or 1")
    if len(index) > 1 and index[0] in "+0":
        raise _Complaint("E-PARSE", f"the index {quote(index)} has a sign or a leading zero", "write it without")
    number = int(index[:20])
    if number < expected.base:
        taken = "with --index-base 1" if expected.base_was_given else "in a file taken as 1-based"
        raise _Complaint("E-INDEX", f"index 0 {taken}", "pass --index-base 0")
    _check_range(number, quote(index), expected)
    return number


def _check_range(number: int, shown: str, expected: Expected) -> None:
    if expected.features is not None and number > expected.base + expected.features - 1:
        columns = f"{expected.features} columns with indices from {expected.base}"
        raise _Complaint("E-SCHEMA", f"index {shown} is beyond the {columns}", "check --features and --index-base")
    if number > LARGEST_INDEX:
        raise _Complaint("E-LIMIT", f"index {shown} is larger than {LARGEST_INDEX}", "hash or renumber the features")


def _check_value(value: str, token: str) -> None:
    if NOT_FINITE.fullmatch(value):
        raise _Complaint("E-NONFINITE", f"the value of {quote(token)} is not finite", "remove or replace such values")
    if not NUMBER.fullmatch(value):
        hint = "write a decimal point, not a comma" if re.fullmatch(r"[+-]?\d+,\d+", value, re.ASCII) else ONE_LINE
        raise _Complaint("E-PARSE", f"expected 'index:value', found {quote(token)}", hint)
    with np.errstate(over="ignore"):
        if not np.isfinite(np.float32(float(value))):
            raise _Complaint("E-RANGE", f"the value of {quote(token)} does not fit float32", "scale the column")
