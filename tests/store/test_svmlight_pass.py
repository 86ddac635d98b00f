"""The compiled svmlight parser against a slow one of regular expressions: every array it fills, and where it stops."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from streamsvm.compute.text import svmlight
from streamsvm.compute.text.svmlight import NO_INDEX, Parsed, scratch
from tests.axes import each_value

NUMBER = r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?"


def slowly(text: str, base: int, top: int, *, unlabeled: bool) -> tuple[Parsed, list[Any], list[Any]]:
    """What the pass is to return, labels, and (row, column, value) of the entries, all with numbers of Python."""
    labels: list[float] = []
    entries: list[Any] = []
    consumed = lines = blank = 0
    smallest = NO_INDEX
    for line in text.split("\n")[:-1]:
        content = (line[:-1] if line.endswith("\r") and "#" not in line else line).partition("#")[0]
        words = re.split(r"[ \t]+", content.strip(" \t"))
        if words == [""]:
            blank += 1
        else:
            none = unlabeled and re.fullmatch(r".*:.*", words[0]) is not None
            label, pairs = (None, words) if none else (words[0], words[1:])
            found = [re.fullmatch(rf"(0|[1-9]\d*):({NUMBER})", pair) for pair in pairs]
            good = all(found) and (label is None or re.fullmatch(NUMBER, label) is not None)
            columns = [int(pair[1]) for pair in found if pair]
            values = [float(pair[2]) for pair in found if pair]
            rising = all(a < b for a, b in zip([base - 1, *columns], columns, strict=False))
            if not (good and rising and max(columns, default=base) <= top):
                return Parsed(len(labels), len(entries), 0, consumed, lines, blank, smallest, True), labels, entries
            entries += [(len(labels), column - base, value) for column, value in zip(columns, values, strict=True)]
            labels.append(float("nan") if label is None else float(label))
            smallest = min([smallest, *columns])
        lines, consumed = lines + 1, consumed + len(line) + 1
    return Parsed(len(labels), len(entries), 0, consumed, lines, blank, smallest, False), labels, entries


TEXTS = [
    "", "\n", "1\n", "1 1:2\n", "1 1:2 3:4\n-1 2:5\n", "1\t1:2 \t 3:4\t\n", "  1 1:1  \n", "\t\n1 1:1\n \n", "#\n", "# 1 1:1\n1 1:1#2:2\n",
    "1 1:1 # 2:2\n2#\n3 #\n", "1 1:1\r\n2 2:2 \r\n\r\n", "1 1:1\r2 2:2\n", "1\r\r\n", "1 1:1\n\n\n2 2:2\n", "1:1 2:2\n", "1:1\n2 3:4\n", "0:1\n",
    "1 0:1 2:1\n", "1 1:1 0:1\n", "1 2:1 2:1\n", "1 3:1 2:1\n", "1 7:1\n", "1 8:1\n", "1 9:1\n", "1 10:1\n", "1 99999999999999999999:1\n", "1 01:1\n",
    "1 00:1\n", "1 1:+1 2:-.5 3:5.\n", "1 1:1e2 2:1E-2 3:1e+2\n", "1 1:\n", "1 :1\n", "1 1\n", "1 1:1:1\n", "1 1: 1\n", "1 1 :1\n", "1 -1:1\n", "1 +1:1\n",
    "x 1:1\n", "- 1:1\n", ". 1:1\n", "1e 1:1\n", "1 1:.\n", "1 1:1e\n", "1 1:1e+\n", "+ \n", "1.5 2:0\n",
    "1 1:12:3\n", "1 1:1 2:2\n2 1:1 x\n3 1:1\n", "1 1:1\n2 2:x\n", "1 1:0 2:-0 3:0e5\n", "-0 1:1\n", "1,2 1:1\n", "1 1:1,2:2\n", "1 1:1;2\n", "1/2 1:1\n", "1 /:1\n",
    "1 1:1/\n", "1 1:1 2\n", "1  #\n", "\r\n", "\r1 1:1\n", "1 1:1 \r \n", "5 6:7 #\r\n", "1 1:9 2:/\n",
]  # fmt: skip


@pytest.mark.parametrize("python", [False, True], ids=["compiled", "python"])
@pytest.mark.parametrize("unlabeled", [False, True])
@pytest.mark.parametrize("base", [0, 1])
def test_svmlight_pass_every_line_is_taken_or_refused_as_the_grammar_says(
    base: int, unlabeled: bool, python: bool
) -> None:
    """With nothing after the text, and with bytes behind it that are no part of it."""
    parse = svmlight.parse.py_func if python else svmlight.parse
    for content in TEXTS:
        expected, labels, entries = slowly(content, base, 8, unlabeled=unlabeled)
        text = np.frombuffer(content.encode() + b"7 7:7\n", np.uint8)
        for exact in (False, True):
            out = scratch(8, 16, exact=exact)
            found = Parsed(*parse(text, len(content), base, 8, unlabeled, out))
            assert found == expected, repr(content)
            kind = np.float64 if exact else np.float32
            assert out.data.dtype == kind
            np.testing.assert_array_equal(out.labels[: found.rows], labels, repr(content))
            rows = np.repeat(np.arange(found.rows), np.diff(out.indptr[: found.rows + 1]))
            triples = zip(rows, out.indices[: found.entries], out.data[: found.entries], strict=True)
            assert list(triples) == [(row, column, kind(value)) for row, column, value in entries], repr(content)


@pytest.mark.parametrize("python", [False, True], ids=["compiled", "python"])
def test_svmlight_pass_numbers_that_are_not_finished_are_listed_with_their_places(python: bool) -> None:
    """Of a label -1 less its row; of an entry its number; then the first byte and the one after the last."""
    parse = svmlight.parse.py_func if python else svmlight.parse
    long = "0.12345678901234567890123"
    lines = ["1 1:1\n", f"-{long} 3:{long} 5:2\n", f"2 2:1 3:{long}e-60 4:{long}\n"]
    text = np.frombuffer("".join(lines).encode(), np.uint8)
    out = scratch(4, 8, exact=True)
    found = Parsed(*parse(text, len(text), 1, 8, False, out))
    places = [tuple(map(int, place)) for place in out.unfinished[: found.unfinished]]
    words = [(-2, f"-{long}"), (1, long), (4, f"{long}e-60"), (5, long)]
    assert [(number, bytes(text[start:stop]).decode()) for number, start, stop in places] == words
    assert out.labels[1] == out.data[1] == 0.0


@each_value(
    ("python", [False, True]),
    (
        "number, bad",
        [
            ("3.4028234e38", False),
            ("-3.4028234e38", False),
            ("3.4028237e38", True),
            ("-3.4028237e38", True),
            ("1e39", True),
            ("1e400", False),
        ],
    ),
)
def test_svmlight_pass_what_float32_does_not_hold_is_refused_unless_it_is_left_to_python(
    number: str, bad: bool, python: bool
) -> None:
    parse = svmlight.parse.py_func if python else svmlight.parse
    text = np.frombuffer(f"1 1:1\n2 2:{number}\n".encode(), np.uint8)
    out = scratch(4, 8)
    with np.errstate(over="ignore"):
        found = Parsed(*parse(text, len(text), 1, 8, False, out))
    assert (found.bad, found.rows, found.consumed) == (bad, 1 if bad else 2, 6 if bad else len(text))
    assert found.unfinished == (number == "1e400")
    if not (bad or found.unfinished):
        assert out.data[1] == np.float32(number)
