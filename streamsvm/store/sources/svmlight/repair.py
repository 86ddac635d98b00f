"""Svmlight lines brought into the strict form: labels that are words, entries that are unsorted or occur twice."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamsvm.store.sources.source_options import SourceOptions

LABEL = re.compile(rb"^[ \t]*([^\s:#]+)(?=[ \t\r\n])", re.MULTILINE)
ENTRY = re.compile(rb"(\d+):(\S+)")


@dataclass(slots=True)
class Words:
    """Numbers for labels that are words, by order of appearance."""

    numbers: dict[bytes, int] = field(default_factory=dict)
    """The number of each word."""

    def numbered(self, text: bytes) -> bytes:
        """Return the text with a number in place of every label."""
        return LABEL.sub(self._number, text)

    def _number(self, found: re.Match[bytes]) -> bytes:
        return b"%d" % self.numbers.setdefault(found[1], len(self.numbers))

    def named(self, labels: Any) -> NDArray[np.str_]:
        """Return the words that labels (n,) stand for, (n,)."""
        words = np.array([word.decode("utf-8", "replace") for word in self.numbers])
        return words[labels.astype(np.int64)]


def repairs(options: SourceOptions) -> bool:
    """Return whether entries may be in another order than the strict one."""
    return options.sort or options.on_duplicate != "error"


def repaired(text: bytes, options: SourceOptions) -> bytes:
    """Return the same lines with the entries of each in order and once, as far as the options ask for it."""
    return b"\n".join(_repaired_line(line, options) for line in text.split(b"\n"))


def _repaired_line(line: bytes, options: SourceOptions) -> bytes:
    label, *tokens = line.partition(b"#")[0].split() or [b""]
    entries: list[tuple[int, bytes]] = []
    for token in tokens:
        found = ENTRY.fullmatch(token)
        if found is None:
            return line  # something else is wrong with it, which the parser says
        entries.append((int(found[1]), found[2]))
    if options.sort:
        entries.sort(key=lambda entry: entry[0])
    if options.on_duplicate != "error":
        entries = _once(entries, options.on_duplicate)
    return b" ".join([label, *(b"%d:%b" % entry for entry in entries)])


def _once(entries: list[tuple[int, bytes]], policy: str) -> list[tuple[int, bytes]]:
    """Every index once, where it was first."""
    values: dict[int, bytes] = {}
    for index, value in entries:
        if index not in values or policy == "last":
            values[index] = value
        elif policy == "sum":
            values[index] = _sum(values[index], value)
    return list(values.items())


def _sum(a: bytes, b: bytes) -> bytes:
    try:
        return repr(float(a) + float(b)).encode()
    except ValueError:
        return a + b"+" + b  # neither is a number then: the parser says so
