"""Models as the text of LIBLINEAR and of LIBSVM: what both formats have in common. Each has a file that writes and reads it.

A head of lines 'key value ...' ends with a line that is one word; numbers follow. Classes are whole numbers, and with two of
them f > 0 stands for the first label. Columns are counted from 1: column j of a model is index j + 1. Numbers are written with
17 digits, which is every bit of a float64. References: README and linear.cpp of LIBLINEAR, README and svm.cpp of LIBSVM.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

import numpy as np

from streamsvm.errors import DataError, UsageError, quote
from streamsvm.model import Model
from streamsvm.regular import read_whole
from streamsvm.rows import Float64

LARGEST = 1 << 34
"""Bytes of a file that is read."""
LARGEST_LABEL = 2**31 - 1
"""Both libraries hold labels as C integers."""
WHOLE = re.compile(r"[+-]?[0-9]{1,18}")
AS_IT_IS = "keep the model as it is and use 'streamsvm predict'"


def labels_of(model: Model) -> list[int]:
    """Return the classes as numbers: of two the one that f > 0 stands for first. Raises UsageError for other names."""
    names = model.classes[::-1] if len(model.weights) == 1 else model.classes
    for name in names:
        if not WHOLE.fullmatch(name) or abs(int(name)) > LARGEST_LABEL:
            raise UsageError(
                f"the class {quote(name)} is no whole number, and this format has no other labels",
                hint=f"ingest with labels that are whole numbers, or {AS_IT_IS}",
            )
    return [int(name) for name in names]


def check_columns(model: Model) -> None:
    """Raise UsageError for a model one of whose columns is not a number as its source has it: the format has no way there."""
    schema = (model.provenance.get("encoding") or {}).get("schema") or {}
    for column in schema.get("columns", ()):
        if column["kind"] != "number":
            raise UsageError(
                f"the column {quote(column['name'])} of the table is a {column['kind']}, and this format knows only numbers",
                hint=f"ingest a table of numbers, or {AS_IT_IS}",
            )


def notices_of(model: Model) -> tuple[str, ...]:
    """Return what people have to know to apply the text to their files, as lines."""
    encoding = model.provenance.get("encoding") or {}
    found = []
    if encoding.get("index_base") == 0:
        found.append("the files of the model count columns from 0, the text from 1: add 1 to their indices")
    if encoding.get("schema"):
        found.append(f"the columns of the table are {', '.join(model.names or ())} in this order, from index 1 on")
    if model.calibration is not None:
        found.append("the text has the decision function alone: the probabilities of the model are not in it")
    return tuple(found)


def digits(values: Float64) -> str:
    """Return numbers with all their digits, a space between two."""
    return " ".join([f"{value:.17g}" for value in values.tolist()])


class ModelText(NamedTuple):
    """A file taken apart."""

    path: Path
    """Where it lies."""
    head: dict[str, list[str]]
    """The words after each key."""
    body: str
    """What follows the head."""

    def words(self, key: str, count: int | None = None) -> list[str]:
        """Return the words of a key, ``count`` of them. Raises DataError E-MODEL."""
        found = self.head.get(key)
        if found is None or (count is not None and len(found) != count):
            raise unusable(self.path, f"its line '{key}' is {'missing' if found is None else 'of another length'}")
        return found

    def whole(self, key: str, least: int) -> int:
        """Return the whole number of a key. Raises DataError E-MODEL."""
        (word,) = self.words(key, 1)
        if not WHOLE.fullmatch(word) or int(word) < least:
            raise unusable(self.path, f"{key} is {quote(word)}")
        return int(word)

    def labels(self, count: int) -> tuple[str, ...]:
        """Return the labels as models call classes. Raises DataError E-MODEL."""
        words = self.words("label", count)
        if not all(WHOLE.fullmatch(word) for word in words) or len(set(map(int, words))) != count:
            raise unusable(self.path, "its labels are not different whole numbers")
        return tuple(str(int(word)) for word in words)

    def numbers(self, words: list[str], what: str) -> Float64:
        """Return words as finite numbers. Raises DataError E-MODEL."""
        try:
            found = np.array(words, np.float64)
        except ValueError as error:
            raise unusable(self.path, f"its {what} are not all numbers") from error
        if not np.isfinite(found).all():
            raise unusable(self.path, f"its {what} are not all finite")
        return found


def read_text(path: Path, end: str) -> ModelText:
    """Take a file apart whose head ends with the line ``end``. Raises DataError, OSError."""
    try:
        text = read_whole(path, LARGEST, follow=True).decode("ascii").replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        raise unusable(path, "it is no text") from error
    head, found, body = text.partition(f"\n{end}\n")
    if not found:
        raise unusable(path, f"it has no line '{end}'")
    if "_" in body:  # Python takes 1_0 for a number
        raise unusable(path, "its numbers have underscores")
    lines = [line.split() for line in head.split("\n") if line.strip()]
    return ModelText(path, {words[0]: words[1:] for words in lines}, body)


def unusable(path: Path, why: str) -> DataError:
    """Return the error for a file that does not hold a model of its format."""
    return DataError(f"{path} is no usable model: {why}", code="E-MODEL", hint="write the file again where it was made")
