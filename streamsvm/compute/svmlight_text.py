"""The svmlight parser: one pass over a block of text that ends with a line feed.

It accepts the strict grammar, without locale, and nothing else; on the first line outside of it the pass stops and says
where, and the source explains the line in words. A decimal number is finished here when that gives the same float32 as
rounding the exact value to double and then to float; the places of the few others are returned, for Python's ``float``.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from streamsvm.aliases import Array
from streamsvm.compute.compiled import compiled, inlined
from streamsvm.rows import Float64, Int32, Int64

PLUS, MINUS, DOT = 43, 45, 46
EXPONENT = 0x65
UPPER_TO_LOWER = 0x20
DIGITS = 18
"""Significant digits that fit an int64; further ones only move the decimal point."""
EXACT_MANTISSA = 2**53
EXACT_POWER = 22
"""10**22 is the largest power of ten that is exact in double: one multiplication or division rounds once."""
POWERS = np.array([float(f"1e{k}") for k in range(-290, 291)])
LARGEST_POWER = 290
SLACK = 2.0**-50
"""More than the relative error of mantissa * power: digits dropped, two roundings, one rounded power."""
OK, UNFINISHED, BAD = 0, 1, 2


@inlined()
def digit_at(text, i):
    """Return byte ``i`` less the byte of "0": from 0 to 9 for a digit, anything else where there is none."""
    return np.int64(text[i]) - 48


@compiled()
def _value(mantissa, exponent, dropped):
    """The number mantissa * 10**exponent, and whether it is right: exactly, or after rounding to float32."""
    if not dropped and mantissa <= EXACT_MANTISSA and -EXACT_POWER <= exponent <= EXACT_POWER:
        if exponent < 0:
            return mantissa / POWERS[LARGEST_POWER - exponent], OK
        return mantissa * POWERS[LARGEST_POWER + exponent], OK
    return 0.0, UNFINISHED


@compiled()
def _value32(mantissa, exponent, dropped):
    """As ``_value``; also right when all doubles near the product round to one float32."""
    value, status = _value(mantissa, exponent, dropped)
    if status == OK or exponent < -LARGEST_POWER or exponent > LARGEST_POWER:
        return value, status
    near = np.float64(mantissa) * POWERS[LARGEST_POWER + exponent]
    low = np.float32(near * (1.0 - SLACK))
    if near > 1e-300 and low == np.float32(near * (1.0 + SLACK)):
        return np.float64(low), OK
    return 0.0, UNFINISHED


@inlined()
def _mantissa(text, i):
    """As ``_long_mantissa``, without counting digit by digit as long as none of them can be lost."""
    start, mantissa = i, np.int64(0)
    while 0 <= digit_at(text, i) <= 9:
        mantissa = mantissa * 10 + digit_at(text, i)
        i += 1
    seen, fraction = i - start, 0
    if text[i] == DOT:
        i += 1
        after = i
        while 0 <= digit_at(text, i) <= 9:
            mantissa = mantissa * 10 + digit_at(text, i)
            i += 1
        fraction = i - after
    if seen + fraction > DIGITS:
        return _long_mantissa(text, start)
    return mantissa, -np.int64(fraction), False, seen + fraction, i


@compiled()
def _long_mantissa(text, i):
    """Digits with at most one point from ``i`` on: (mantissa, exponent, dropped, digits seen, next byte)."""
    mantissa, exponent, significant, seen = np.int64(0), np.int64(0), 0, 0
    dropped = False
    point = False
    while True:
        digit = digit_at(text, i)
        if 0 <= digit <= 9:
            seen += 1
            if significant < DIGITS:
                mantissa = mantissa * 10 + digit
                significant += mantissa != 0
                exponent -= point
            else:
                dropped = dropped or digit != 0
                exponent += not point
        elif digit == DOT - 48 and not point:
            point = True
        else:
            return mantissa, exponent, dropped, seen, i
        i += 1


@compiled()
def _exponent(text, i):
    """The signed integer after an 'e': (value, digits seen, next byte)."""
    negative = text[i] == MINUS
    if negative or text[i] == PLUS:
        i += 1
    first, value = i, 0
    while 0 <= digit_at(text, i) <= 9:
        if value < 100_000:
            value = value * 10 + digit_at(text, i)
        i += 1
    return -value if negative else value, i - first, i


@inlined()
def number(text, i, single):
    """Read a decimal number at ``i`` and return (value, status, next byte)."""
    negative = text[i] == MINUS
    if negative or text[i] == PLUS:
        i += 1
    mantissa, exponent, dropped, seen, i = _mantissa(text, i)
    if seen == 0:
        return 0.0, BAD, i
    if text[i] | UPPER_TO_LOWER == EXPONENT:
        power, digits, i = _exponent(text, i + 1)
        exponent += power
        if digits == 0:
            return 0.0, BAD, i
    if mantissa == 0:
        value, status = 0.0, OK
    elif single:
        value, status = _value32(mantissa, exponent, dropped)
    else:
        value, status = _value(mantissa, exponent, dropped)
    return -value if negative else value, status, i


TAB, NEWLINE, RETURN, SPACE, HASH, COLON = 9, 10, 13, 32, 35, 58
LARGEST_FLOAT32 = 3.4028235677973366e38
"""From here on a double rounds to an infinite float32."""
NO_INDEX = 2**62


class Scratch(NamedTuple):
    """Arrays the pass fills; long enough for the text by ``scratch``."""

    labels: Float64
    """The label of each row."""
    indptr: Int64
    """Where the entries of each row begin, as CSR has it."""
    indices: Int32
    """The column of each entry."""
    data: Array
    """The value of each entry, float32 or, where it is to be exact, float64."""
    unfinished: Int64
    """(k, 3): entry (or -1 - row for a label), first and last + 1 byte of its number."""


class Parsed(NamedTuple):
    """How far the pass came."""

    rows: int
    """Rows that were taken."""
    entries: int
    """Entries that were taken."""
    unfinished: int
    """Numbers that are left for Python to finish."""
    consumed: int
    """Bytes of the lines that were taken; where the line begins that was not."""
    lines: int
    """Lines that were taken, with a row or blank: the number of the next line of a file goes on from here."""
    blank: int
    """Lines without a row: empty or a comment."""
    smallest: int
    """Smallest index as written; a large number when there was none."""
    bad: bool
    """Whether the line at ``consumed`` is outside the grammar."""


def scratch(rows: int, entries: int, *, exact: bool = False) -> Scratch:
    """Return room for a text of so many lines and entries, with ``exact`` in float64."""
    return Scratch(
        np.empty(rows, np.float64),
        np.zeros(rows + 1, np.int64),
        np.empty(entries, np.int32),
        np.empty(entries, np.float64 if exact else np.float32),
        np.empty((rows + entries, 3), np.int64),
    )


@inlined()
def _index(text, i, top):
    """Digits without a leading zero, then a colon: (index, next byte); -1 when it is not that or beyond ``top``."""
    index = digit_at(text, i)
    if index < 0 or index > 9 or (index == 0 and text[i + 1] != COLON):
        return -1, i
    i += 1
    while 0 <= digit_at(text, i) <= 9 and index <= top:
        index = index * 10 + digit_at(text, i)
        i += 1
    if index > top or text[i] != COLON:
        return -1, i
    return index, i + 1


@compiled()
def _line_end(text, i):
    """The line feed of an ending or a comment that begins at ``i``; -1 when neither does."""
    if text[i] == RETURN and text[i + 1] == NEWLINE:
        return i + 1
    if text[i] == HASH:
        while text[i] != NEWLINE:
            i += 1
    return i if text[i] == NEWLINE else -1


@compiled()
def _skip_spaces(text, i):
    while text[i] == SPACE or text[i] == TAB:
        i += 1
    return i


@compiled()
def _label(text, i, unlabeled):
    """The number a line begins with, (value, status, next byte); NaN if there is none and there need not be one."""
    value, status, after = number(text, i, i < 0)  # never in float32, and no literal: see ``parse``
    if unlabeled and text[after] == COLON:
        return np.nan, OK, i
    return value, status, after


@compiled()
def _entries(text, i, separated, base, top, entries, left, out):
    """Parse 'index:value' to the end of the line: (entries, unfinished, first index, line feed or -1 when bad)."""
    first, previous = NO_INDEX, base - 1
    while True:
        start = _skip_spaces(text, i)
        end = _line_end(text, start)
        if end >= 0:
            return entries, left, first, end
        index, value_start = _index(text, start, top)
        if (start == i and not separated) or index <= previous:
            return entries, left, first, -1
        value, status, i = number(text, value_start, out.data.itemsize == 4)
        if status == BAD or abs(value) >= LARGEST_FLOAT32:
            return entries, left, first, -1
        if status == UNFINISHED:
            left = _note(out.unfinished, left, entries, value_start, i)
        if previous < base:
            first = index
        previous, separated = index, False
        out.indices[entries] = index - base
        out.data[entries] = value
        entries += 1


@compiled()
def _note(unfinished, left, entry, start, stop):
    unfinished[left, 0], unfinished[left, 1], unfinished[left, 2] = entry, start, stop
    return left + 1


@compiled()
def parse(text, stop, base, top, unlabeled, out):
    """Parse text[:stop], which ends with a line feed, into ``out``. Returns a ``Parsed``.

    ``base`` is subtracted from every index, which must lie in [base, top] and rise within a row. Numbers that are not
    finished are 0 in ``out`` and listed in ``out.unfinished``. ``unlabeled``: a row may begin with an entry, its
    label is then NaN.
    """
    none = stop - stop  # 0, but no literal: for those numba would compile all that is called here once more
    rows, entries, left, lines, blank, begin = none, none, none, none, none, none
    smallest = NO_INDEX
    while begin < stop:
        start = _skip_spaces(text, begin)
        end = _line_end(text, start)
        if end >= 0:
            blank += 1
        else:
            value, status, after = _label(text, start, unlabeled)
            row_entries, row_left = entries, left
            if status == UNFINISHED:
                row_left = _note(out.unfinished, left, -1 - rows, start, after)
            if status != BAD:
                row_entries, row_left, first, end = _entries(
                    text, after, after == start, base, top, entries, row_left, out
                )
            if end < 0:
                return Parsed(rows, entries, left, begin, lines, blank, smallest, True)
            entries, left, smallest = row_entries, row_left, min(smallest, first)
            out.labels[rows] = value
            rows += 1
            out.indptr[rows] = entries
        lines += 1
        begin = end + 1
    return Parsed(rows, entries, left, begin, lines, blank, smallest, False)
