"""The svmlight parser: one pass over a block of text that ends with a line feed.

It accepts only the strict grammar, independent of the locale. At the first line outside the grammar the pass stops and
returns its position; the source then explains the fault in words. Decimal numbers are converted here if the result is
the same float32 as rounding the exact value to double and then to float. The positions of the few other numbers are
returned, to be converted by Python's ``float``.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from streamsvm.compute.compiled import compiled, inlined
from streamsvm.rows import Float64, Int32, Int64
from streamsvm.type_aliases import Array

PLUS, MINUS, DOT = 43, 45, 46
EXPONENT = 0x65
UPPER_TO_LOWER = 0x20
DIGITS = 18
"""Number of significant digits that fit in an int64; further digits only change the exponent."""
EXACT_MANTISSA = 2**53
EXACT_POWER = 22
"""10**22 is the largest power of ten that is exact in double, so that one multiplication or division by it rounds only
once."""
POWERS = np.array([float(f"1e{k}") for k in range(-290, 291)])
LARGEST_POWER = 290
SLACK = 2.0**-50
"""Upper bound of the relative error of mantissa * power, from dropped digits, two roundings and one rounded power."""
OK, UNFINISHED, BAD = 0, 1, 2
"""Status of a number: converted, left to Python's ``float``, or outside the grammar."""


@inlined()
def digit_at(text, i):
    """Return byte ``i`` minus the byte of "0": from 0 to 9 if and only if it is a digit."""
    return np.int64(text[i]) - 48


@compiled()
def _value(mantissa, exponent, dropped):
    """Return (mantissa * 10**exponent, OK) if the value is correctly rounded, else (0, UNFINISHED)."""
    if not dropped and mantissa <= EXACT_MANTISSA and -EXACT_POWER <= exponent <= EXACT_POWER:
        if exponent < 0:
            return mantissa / POWERS[LARGEST_POWER - exponent], OK
        return mantissa * POWERS[LARGEST_POWER + exponent], OK
    return 0.0, UNFINISHED


@compiled()
def _value32(mantissa, exponent, dropped):
    """Return the same as ``_value``; also OK if all doubles within the error bound round to the same float32."""
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
    """Return the same as ``_long_mantissa``, faster: digits are counted one by one only if some do not fit the
    mantissa.
    """
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
    """Parse digits with at most one decimal point: (mantissa, exponent, whether nonzero digits were dropped, digits
    seen, next byte).
    """
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
    """Parse the signed integer after an 'e': (value, number of digits, next byte)."""
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
    """Parse a decimal number at ``i``: (value, status, next byte). ``single``: a value correct after rounding to
    float32 suffices.
    """
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
"""The smallest double that rounds to an infinite float32."""
NO_INDEX = 2**62


class Scratch(NamedTuple):
    """Arrays that the pass fills; ``scratch`` makes them long enough for the text."""

    labels: Float64
    """The label of each row."""
    indptr: Int64
    """Position of the first entry of each row, as in CSR."""
    indices: Int32
    """The column of each entry."""
    data: Array
    """The value of each entry: float32, or float64 if exact values are needed."""
    unfinished: Int64
    """(k, 3): number of the entry (-1 - row for a label), first byte of its text, and the byte after its last."""


class Parsed(NamedTuple):
    """The result of a pass over a text."""

    rows: int
    """Number of rows parsed."""
    entries: int
    """Number of entries parsed."""
    unfinished: int
    """Number of decimal numbers that are left to Python's ``float``."""
    consumed: int
    """Number of bytes of the parsed lines; if a line is bad, the position at which it begins."""
    lines: int
    """Number of parsed lines, blank lines and comments included."""
    blank: int
    """Number of lines without a row: blank lines and comments."""
    smallest: int
    """The smallest index in the text; NO_INDEX if there is none."""
    bad: bool
    """Whether the line at ``consumed`` is outside the grammar."""


def scratch(rows: int, entries: int, *, exact: bool = False) -> Scratch:
    """Return arrays for a text with at most ``rows`` rows and ``entries`` entries; ``exact``: values in float64."""
    return Scratch(
        np.empty(rows, np.float64),
        np.zeros(rows + 1, np.int64),
        np.empty(entries, np.int32),
        np.empty(entries, np.float64 if exact else np.float32),
        np.empty((rows + entries, 3), np.int64),
    )


@inlined()
def _index(text, i, top):
    """Parse digits without a leading zero, then a colon: (index, next byte). The index is -1 if it is malformed or
    exceeds ``top``.
    """
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
    """Return the position of the line feed if a line end or a comment begins at ``i``; else -1."""
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
    """Parse the label at the beginning of a line: (value, status, next byte). NaN if there is no label and
    ``unlabeled`` is true.
    """
    value, status, after = number(text, i, i < 0)  # always False, but not a literal: see ``parse``
    if unlabeled and text[after] == COLON:
        return np.nan, OK, i
    return value, status, after


@compiled()
def _entries(text, i, separated, base, top, entries, left, out):
    """Parse 'index:value' to the end of the line: (entries, unfinished, first index, position of the line feed or -1 if
    bad).
    """
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

    ``base`` is subtracted from every index; indices must lie in [base, top] and be ascending within a row. Unfinished
    numbers are 0 in ``out`` and listed in ``out.unfinished``. ``unlabeled``: a row may begin with an entry; its label
    is then NaN.
    """
    zero = stop - stop  # not a literal, because numba would compile all called functions again for literals
    rows, entries, left, lines, blank, begin = zero, zero, zero, zero, zero, zero
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
