"""Labels: how they are written, and coders that turn them into class codes, or check and summarize them where they are
numbers to predict.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamsvm.aliases import Array, JsonObject
from streamsvm.errors import DataError, UsageError, quote
from streamsvm.rows import Float64, Int32
from streamsvm.tasks import CLASSIFICATION, REGRESSION

MOST_CLASSES = 1000
"""The largest number of classes: a column with more different values is taken for a number to predict."""
LARGEST_LABEL = 2.0**53
"""From here on a float64 may stand for several whole numbers."""
WHOLE_NUMBER = re.compile(r"[+-]?[0-9]{1,40}", re.ASCII)
REST = "rest"
BINARY_CODINGS = ({"-1", "1"}, {"0", "1"}, {"1", "2"})
"""The usual codings of two classes; files with different codings do not mean the same by '1'."""
TARGET = "target"
"""The name of the facts of a store about the numbers to predict."""
HINT_REGRESSION = "to predict numbers pass --task regression, to split them in two classes --label-threshold"


def label_text(label: Any) -> str:
    """Return the one way in which a label is written: '2' for 2, 2.0, '2.0' and '+2', other text as it is.

    Whole numbers are exact whatever their size; a float that may stand for several is written as it is.
    """
    if isinstance(label, int | np.integer):
        return str(int(label))
    if isinstance(label, str) and WHOLE_NUMBER.fullmatch(label.strip()):
        return str(int(label))
    try:
        number = float(label)
    except ValueError:
        return str(label)
    if not np.isfinite(number) or abs(number) > LARGEST_LABEL:
        return str(label)
    return str(int(number)) if number.is_integer() else repr(number)


def sort_key(label: str) -> tuple[int, float, str]:
    """Return the sort key of a class: numbers by value, before text; 'rest' before all."""
    if label == REST:
        return -1, 0.0, label
    try:
        return 0, float(label), label
    except ValueError:
        return 1, 0.0, label


def label_type(kind: str) -> str:
    """Return 'bool', 'int', 'float' or 'text' for the kind of an array of labels; '' for any other kind."""
    return {"b": "bool", "i": "int", "u": "int", "f": "float", "U": "text"}.get(kind, "")


def convert_labels(texts: Sequence[str], kind: str = "") -> Array:
    """Return class labels, which are written as text, as an array of the type they were given in.

    ``kind``: what ``label_type`` returned for them; without one they are int64 or float64 where all of them are such
    numbers, else text.
    """
    truths = {"0": False, "1": True, "false": False, "true": True}
    if kind == "bool" and set(texts) <= set(truths):
        return np.array([truths[text] for text in texts])
    if kind not in ("text", "float") and all(map(WHOLE_NUMBER.fullmatch, texts)):
        whole = np.array([int(text) for text in texts])
        if whole.dtype.kind in "iu":
            return whole
    elif kind != "text" and all(map(_is_number, texts)):
        return np.array([float(text) for text in texts])
    return np.array(texts)


def type_to_record(texts: Sequence[str], kind: str) -> JsonObject:
    """Return the record of the type of labels, {'type': kind}, empty where the texts alone say it."""
    known = convert_labels(texts, kind)
    return {} if not kind or known.dtype.kind == convert_labels(texts).dtype.kind else {"type": kind}


def _is_number(text: str) -> bool:
    """Return whether a label is a finite number, written as ``label_text`` writes it."""
    try:
        return bool(np.isfinite(float(text))) and label_text(text) == text
    except ValueError:
        return False


def as_labels(values: Array, name: str) -> Array:
    """Return labels (n,) as bool, float64, int64, uint64 or str. Raises DataError E-LABEL for other types."""
    kind = values.dtype.kind
    if kind in "US":
        return values.astype(np.str_)
    if kind not in "fiub":
        hint = "labels are numbers or text, one a row"
        raise DataError(f"{name} holds {values.dtype}", code="E-LABEL", hint=hint)
    return values.astype({"b": np.bool_, "i": np.int64, "u": np.uint64}.get(kind, np.float64), copy=False)


def labels_from(texts: Sequence[str], kind: str) -> Array:
    """Return labels written as ``label_text`` writes them as an array of a kind that ``as_labels`` makes."""
    if kind in "biu":
        return np.array([int(text) for text in texts], {"b": np.bool_, "i": np.int64, "u": np.uint64}[kind])
    return np.array(texts, np.float64 if kind == "f" else np.str_)


@dataclass(slots=True)
class Census:
    """A coder that gives class codes in the order of first appearance, and counts the rows of each."""

    classes: list[str] = field(default_factory=list)
    """The labels seen so far; a label's code is its index."""
    counts: list[int] = field(default_factory=list)
    """Rows of each class so far."""
    _known: dict[str, tuple[Array, Int32]] = field(default_factory=dict)
    """By kind of array, the labels met so far, sorted, and the code of each."""

    def codes(self, labels: Array) -> Int32:
        """Return the code of each label, (n,) int32. Raises DataError E-LABEL."""
        if not self._all_known(labels):
            self._learn(labels)
        known, codes = self._known[labels.dtype.kind]
        found = codes[np.searchsorted(known, labels)]
        self.counts = add_counts(self.counts, found)
        return found

    @property
    def kinds(self) -> set[str]:
        """The kinds of the arrays that labels were in."""
        return set(self._known)

    def table(self) -> tuple[str, ...]:
        """Return what each code stands for. Raises DataError E-LABEL when there is only one class."""
        if len(self.classes) == 1:
            hint = "check --label; a classifier needs at least two classes"
            raise DataError(
                f"all {self.counts[0]} rows have the label {quote(self.classes[0])}", code="E-LABEL", hint=hint
            )
        return tuple(self.classes)

    def _all_known(self, labels: Array) -> bool:
        kind = labels.dtype.kind
        if self._known and (kind == "U") != ("U" in self._known):
            raise DataError("some files have numbers as labels, others text", code="E-LABEL", hint="use one coding")
        if kind not in self._known:
            return False
        known, _ = self._known[kind]
        at = np.minimum(np.searchsorted(known, labels), len(known) - 1)
        return bool(np.all(known[at] == labels))

    def _learn(self, labels: Array) -> None:
        values, first = np.unique(labels, return_index=True)
        _check_values(values, sum(self.counts) + first)
        known, codes = self._known.get(labels.dtype.kind, (values[:0], np.empty(0, np.int32)))
        new = ~np.isin(values, known)
        values, first = values[new], first[new]
        appeared = values[np.argsort(first)]
        found = np.array([self._code(value) for value in appeared.tolist()], np.int32)
        known, codes = np.concatenate([known, appeared]), np.concatenate([codes, found])
        order = np.argsort(known)
        self._known[labels.dtype.kind] = known[order], codes[order]

    def _code(self, value: Any) -> int:
        text = label_text(value)
        if text not in self.classes:
            if len(self.classes) == MOST_CLASSES:
                many = f"more than {MOST_CLASSES} distinct labels ({_some(self.classes)}): looks like regression"
                raise DataError(many, code="E-LABEL", hint=HINT_REGRESSION)
            self.classes.append(text)
        return self.classes.index(text)


@dataclass(slots=True)
class Positive:
    """A coder of one class against all others: code 1 for the label ``positive``, 0 for the rest."""

    positive: str
    _all: Census = field(default_factory=Census)

    @property
    def classes(self) -> list[str]:
        """The labels seen so far, those of the rest included."""
        return self._all.classes

    def codes(self, labels: Array) -> Int32:
        """Return the code of each label, (n,) int32 of 0 and 1. Raises DataError E-LABEL."""
        codes = self._all.codes(labels)
        is_positive = np.array([text == label_text(self.positive) for text in self._all.classes], np.int32)
        return is_positive[codes]

    def table(self) -> tuple[str, ...]:
        """Return ('rest', positive). Raises DataError E-LABEL when one of the two sides is empty."""
        seen = self._all.table()
        if label_text(self.positive) not in seen:
            raise DataError(
                f"no row has the label {quote(self.positive)}", code="E-LABEL", hint=f"labels: {_some(seen)}"
            )
        return REST, label_text(self.positive)


@dataclass(slots=True)
class Threshold:
    """A coder of two classes of numbers: code 1 from ``threshold`` on, 0 below."""

    threshold: float
    """The smallest label of the positive class."""
    _counts: NDArray[np.int64] = field(default_factory=lambda: np.zeros(2, np.int64))

    def codes(self, labels: Array) -> Int32:
        """Return the code of each label, (n,) int32 of 0 and 1. Raises DataError E-LABEL."""
        if labels.dtype.kind == "U":
            text = f"labels are text ({quote(labels[0])})"
            raise DataError(f"{text}: a threshold needs numbers", code="E-LABEL", hint="check --label")
        if np.isnan(labels).any():
            raise DataError("a label is NaN", code="E-LABEL", hint="remove the rows without a label")
        codes = (labels >= self.threshold).astype(np.int32)
        self._counts += np.bincount(codes, minlength=2)
        return codes

    def table(self) -> tuple[str, ...]:
        """Return ('<t', '>=t'). Raises DataError E-LABEL when one of the two sides is empty."""
        names = f"<{label_text(self.threshold)}", f">={label_text(self.threshold)}"
        if not self._counts.all():
            side = names[int(self._counts.argmax())]
            raise DataError(
                f"all {self._counts.sum()} labels are {side}", code="E-LABEL", hint="choose another threshold"
            )
        return names


@dataclass(slots=True)
class Numbers:
    """A coder for regression: its codes are the numbers themselves, float64."""

    rows: int = 0
    mean: float = 0.0
    M2: float = 0.0
    """The sum of squared differences from the mean."""
    least: float = float("inf")
    most: float = float("-inf")

    def codes(self, labels: Array) -> Float64:
        """Return the numbers (n,) float64. Raises DataError E-LABEL, naming the first row that has none."""
        if labels.dtype.kind == "U":
            labels = self._parse(labels)
        found = labels.astype(np.float64)
        self._check(~np.isnan(found), labels, "the label is missing or NaN", "remove the rows without a label")
        self._check(np.isfinite(found), labels, "the label is infinite", "correct or remove such rows")
        self._count(found)
        return found

    def table(self) -> tuple[str, ...]:
        """Return no classes."""
        return ()

    def facts(self) -> JsonObject:
        """Return a summary of the numbers as plain JSON; spread: their standard deviation."""
        spread = float(np.sqrt(self.M2 / max(1, self.rows)))
        return {"mean": self.mean, "spread": spread, "least": self.least, "most": self.most}

    def _parse(self, labels: Array) -> Float64:
        found = np.full(len(labels), np.nan)
        for k, text in enumerate(labels.tolist()):
            try:
                found[k] = float(text)
            except ValueError:
                said = f"the label {quote(text)} is no number" if text.strip() else "the label is empty"
                self._check(np.arange(len(labels)) != k, labels, said, "correct the row, or check --label")
        return found

    def _check(self, right: NDArray[np.bool_], labels: Array, said: str, hint: str) -> None:
        if not right.all():
            row = self.rows + int(np.argmin(right)) + 1
            raise DataError(f"row {row} of all rows read: {said}", code="E-LABEL", hint=hint)

    def _count(self, found: Float64) -> None:
        """Merge the moments of a batch (Chan, Golub and LeVeque)."""
        if not len(found):
            return
        n, mean = len(found), float(found.mean())
        delta, total = mean - self.mean, self.rows + n
        self.M2 += float(np.square(found - mean).sum()) + delta * delta * self.rows * n / total
        self.mean += delta * n / total
        self.rows = total
        self.least, self.most = min(self.least, float(found.min())), max(self.most, float(found.max()))


Labels = Census | Positive | Threshold | Numbers


def label_coder(positive: str | None, threshold: float | None, task: str = CLASSIFICATION) -> Labels:
    """Return the coder of labels that the user asked for. Raises UsageError."""
    if task == REGRESSION:
        if positive is not None or threshold is not None:
            option = "--label-threshold" if positive is None else "--positive"
            raise UsageError(
                f"{option} makes classes, --task regression keeps numbers", hint="leave out one of the two"
            )
        return Numbers()
    if positive is not None and threshold is not None:
        raise UsageError("--positive and --label-threshold exclude each other")
    if positive is not None:
        return Positive(positive)
    return Census() if threshold is None else Threshold(threshold)


def add_counts(counts: Sequence[int], codes: Array) -> list[int]:
    """Return ``counts`` of each code with those of ``codes`` added; the list is longer when there are new codes."""
    found = np.array(class_counts(codes, len(counts)))
    found[: len(counts)] += np.array(counts, found.dtype)
    return found.tolist()


def class_counts(codes: Array, classes: int = 1) -> list[int]:
    """Return the rows of each class, of ``classes`` at least; of numbers to predict, float64, how many there are."""
    return [len(codes)] if codes.dtype.kind == "f" else np.bincount(codes, minlength=classes).tolist()


def similar_texts(texts: Iterable[str]) -> list[str]:
    """Return the texts that differ from another only by case or blanks, next to each other."""
    groups: dict[str, list[str]] = defaultdict(list)
    for text in texts:
        groups[" ".join(text.casefold().split())].append(text)
    return [text for group in groups.values() if len(group) > 1 for text in group]


def note_labels(labels: Array, found: set[str]) -> None:
    """Add the distinct labels of one batch to ``found``, unless it has more than two already."""
    if len(found) <= 2:
        known = labels[0] == labels
        others = labels[~known]
        found.update(label_text(label) for label in (labels[0], *others[:1], *others[others != others[:1]][:1]))


def check_codings(files: Mapping[str, set[str]]) -> None:
    """Raise DataError E-LABEL for files that code two classes differently, by the labels of each file."""
    coded = {name: labels for name, labels in files.items() if labels in BINARY_CODINGS}
    for name, labels in coded.items():
        first = next(iter(coded))
        if labels != coded[first]:
            here, there = (f"{{{', '.join(sorted(found, key=float))}}}" for found in (labels, coded[first]))
            found = f"{name} has the labels {here}, {first} has {there}"
            raise DataError(found, code="E-LABEL", hint="number the classes alike, or join files of one table first")


def _check_values(values: Array, rows: NDArray[np.int64]) -> None:
    """Raise DataError E-LABEL for a value that is no label, naming the first of the ``rows``, from 0, that has one."""
    hint = "remove the rows without a label"
    if values.dtype.kind == "U":
        _refuse(~np.char.strip(values).astype(bool), rows, "the label is empty", hint)
    elif values.dtype.kind == "f":
        _refuse(np.isnan(values), rows, "the label is NaN", hint)
        _refuse(np.isinf(values), rows, "the label is infinite", "correct or remove such rows")
        large = np.abs(values) >= LARGEST_LABEL
        found = f"the label {''.join(map(str, values[large][:1]))} is a float that stands for several whole numbers"
        _refuse(large, rows, found, f"give such labels as integers or text; {HINT_REGRESSION}")


def _refuse(wrong: NDArray[np.bool_], rows: NDArray[np.int64], found: str, hint: str) -> None:
    if wrong.any():
        row = int(rows[wrong].min()) + 1
        raise DataError(f"row {row} of all rows read: {found}", code="E-LABEL", hint=hint)


def _some(labels: Sequence[str]) -> str:
    shown = ", ".join(quote(text, 24) for text in labels[:5])
    return shown + (", ..." if len(labels) > 5 else "")
