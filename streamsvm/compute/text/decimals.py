"""Decimal numbers in a text of bytes: the strict grammar, without locale, and correctly rounded.

A number is finished here when that gives the same float32 as rounding the exact value to double and then to float; the
few others are left to Python's ``float``.
"""

from __future__ import annotations

import numpy as np

from streamsvm.compute.compiled import compiled, inlined

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
