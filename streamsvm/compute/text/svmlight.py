"""The svmlight parser: one pass over a block of text that ends with a line feed.

It accepts the strict grammar and nothing else; on the first line outside of it the pass stops and says where, and the
source explains the line in words. The few numbers that ``decimals`` leaves unfinished are for Python's ``float`` (their
places are returned).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from streamsvm.aliases import Array
from streamsvm.compute.compiled import compiled, inlined
from streamsvm.compute.text.decimals import BAD, OK, UNFINISHED, digit_at, number
from streamsvm.rows import Float64, Int32, Int64

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
