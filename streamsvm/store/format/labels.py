"""Convert labels to their canonical text, and to class codes (classification) or checked numbers (regression)."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamsvm.errors import DataError, UsageError, quote
from streamsvm.rows import Float64, Int32
from streamsvm.tasks import CLASSIFICATION, REGRESSION
from streamsvm.type_aliases import Array, JsonObject

MOST_CLASSES = 1000
"""The largest number of classes; a label column with more distinct values is refused, because such a column looks like regression."""
LARGEST_LABEL = 2.0**53
"""From this size on, several integers may have the same nearest float64."""
WHOLE_NUMBER = re.compile(r"[+-]?[0-9]{1,40}", re.ASCII)
REST = "rest"
BINARY_CODINGS = ({"-1", "1"}, {"0", "1"}, {"1", "2"})
"""The usual codings of two classes; in files with different codings, '1' means different classes."""
TARGET = "target"
"""The key in the facts of a store for the summary of the numbers to predict."""
HINT_REGRESSION = "to predict numbers pass --task regression, to split them in two classes --label-threshold"


def label_text(label: Any) -> str:
    """Return the canonical text of a label: '2' for 2, 2.0, '2.0' and '+2'; other text unchanged.

    Integers of any size are exact; a float above ``LARGEST_LABEL``, which may stand for several integers, is written
    by ``str``.
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
    """Return the sort key of a class label: 'rest' first, then numbers by value, then text."""
    if label == REST:
        return -1, 0.0, label
    try:
        return 0, float(label), label
    except ValueError:
        return 1, 0.0, label


def label_type(kind: str) -> str:
    """Return 'bool', 'int', 'float' or 'text' for numpy's kind of a label array; '' for any other kind."""
    return {"b": "bool", "i": "int", "u": "int", "f": "float", "U": "text"}.get(kind, "")


def convert_labels(texts: Sequence[str], kind: str = "") -> Array:
    """Convert the texts of class labels back to the type in which the labels were given.

    ``kind``: the type that ``label_type`` returned for the labels; if it is empty, the result is int64 or float64 if
    all texts are such numbers, else text.
    """
    booleans = {"0": False, "1": True, "false": False, "true": True}
    if kind == "bool" and set(texts) <= set(booleans):
        return np.array([booleans[text] for text in texts])
    if kind not in ("text", "float") and all(map(WHOLE_NUMBER.fullmatch, texts)):
        integers = np.array([int(text) for text in texts])
        if integers.dtype.kind in "iu":
            return integers
    elif kind != "text" and all(map(_is_number, texts)):
        return np.array([float(text) for text in texts])
    return np.array(texts)


def record_label_type(texts: Sequence[str], kind: str) -> JsonObject:
    """Return the record of the type of labels, {'type': kind}; empty if the type follows from the texts alone."""
    typed = convert_labels(texts, kind)
    return {} if not kind or typed.dtype.kind == convert_labels(texts).dtype.kind else {"type": kind}


def _is_number(text: str) -> bool:
    """Return whether a label is the canonical text of a finite number."""
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


def labels_of_texts(texts: Sequence[str], kind: str) -> Array:
    """Convert canonical texts of labels to an array of the numpy ``kind``, as ``as_labels`` returns them."""
    if kind in "biu":
        return np.array([int(text) for text in texts], {"b": np.bool_, "i": np.int64, "u": np.uint64}[kind])
    return np.array(texts, np.float64 if kind == "f" else np.str_)


@dataclass(slots=True)
class ClassCoder:
    """A coder that numbers the classes in the order of first appearance and counts the rows of each."""

    classes: list[str] = field(default_factory=list)
    """The labels seen so far; the code of a label is its index."""
    counts: list[int] = field(default_factory=list)
    """Rows of each class so far."""
    _known: dict[str, tuple[Array, Int32]] = field(default_factory=dict)
    """The sorted labels seen so far and their codes, by numpy's kind of the label array."""

    def codes(self, labels: Array) -> Int32:
        """Return the code of each label, (n,) int32. Raises DataError E-LABEL."""
        if not self._are_known(labels):
            self._add_classes(labels)
        sorted_labels, codes = self._known[labels.dtype.kind]
        row_codes = codes[np.searchsorted(sorted_labels, labels)]
        self.counts = add_counts(self.counts, row_codes)
        return row_codes

    @property
    def kinds(self) -> set[str]:
        """Numpy's kinds of the label arrays seen so far."""
        return set(self._known)

    def table(self) -> tuple[str, ...]:
        """Return the label of each code. Raises DataError E-LABEL if there is only one class."""
        if len(self.classes) == 1:
            hint = "check --label; a classifier needs at least two classes"
            raise DataError(
                f"all {self.counts[0]} rows have the label {quote(self.classes[0])}", code="E-LABEL", hint=hint
            )
        return tuple(self.classes)

    def _are_known(self, labels: Array) -> bool:
        kind = labels.dtype.kind
        if self._known and (kind == "U") != ("U" in self._known):
            raise DataError("some files have numbers as labels, others text", code="E-LABEL", hint="use one coding")
        if kind not in self._known:
            return False
        sorted_labels, _ = self._known[kind]
        places = np.minimum(np.searchsorted(sorted_labels, labels), len(sorted_labels) - 1)
        return bool(np.all(sorted_labels[places] == labels))

    def _add_classes(self, labels: Array) -> None:
        values, first = np.unique(labels, return_index=True)
        _check_values(values, sum(self.counts) + first)
        sorted_labels, codes = self._known.get(labels.dtype.kind, (values[:0], np.empty(0, np.int32)))
        new = ~np.isin(values, sorted_labels)
        values, first = values[new], first[new]
        values = values[np.argsort(first)]
        new_codes = np.array([self._code_of_value(value) for value in values.tolist()], np.int32)
        sorted_labels, codes = np.concatenate([sorted_labels, values]), np.concatenate([codes, new_codes])
        order = np.argsort(sorted_labels)
        self._known[labels.dtype.kind] = sorted_labels[order], codes[order]

    def _code_of_value(self, value: Any) -> int:
        text = label_text(value)
        if text not in self.classes:
            if len(self.classes) == MOST_CLASSES:
                message = (
                    f"more than {MOST_CLASSES} distinct labels ({_list_some(self.classes)}): looks like regression"
                )
                raise DataError(message, code="E-LABEL", hint=HINT_REGRESSION)
            self.classes.append(text)
        return self.classes.index(text)


@dataclass(slots=True)
class OneAgainstRestCoder:
    """A coder of one class against all others: code 1 for the label ``positive``, 0 for the rest."""

    positive: str
    _class_coder: ClassCoder = field(default_factory=ClassCoder)

    @property
    def classes(self) -> list[str]:
        """The labels seen so far, including those that are coded as 'rest'."""
        return self._class_coder.classes

    def codes(self, labels: Array) -> Int32:
        """Return the code of each label, (n,) int32 of 0 and 1. Raises DataError E-LABEL."""
        codes = self._class_coder.codes(labels)
        is_positive = np.array([text == label_text(self.positive) for text in self._class_coder.classes], np.int32)
        return is_positive[codes]

    def table(self) -> tuple[str, ...]:
        """Return ('rest', positive). Raises DataError E-LABEL when one of the two sides is empty."""
        labels = self._class_coder.table()
        if label_text(self.positive) not in labels:
            raise DataError(
                f"no row has the label {quote(self.positive)}", code="E-LABEL", hint=f"labels: {_list_some(labels)}"
            )
        return REST, label_text(self.positive)


@dataclass(slots=True)
class ThresholdCoder:
    """A coder that splits numbers into two classes: code 1 from ``threshold`` on, 0 below."""

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
class NumberCoder:
    """A coder for regression: its codes are the numbers themselves, float64."""

    rows: int = 0
    mean: float = 0.0
    M2: float = 0.0
    """The sum of squared differences from the mean."""
    least: float = float("inf")
    most: float = float("-inf")

    def codes(self, labels: Array) -> Float64:
        """Return the numbers (n,) float64. Raises DataError E-LABEL, naming the first row without a finite number."""
        if labels.dtype.kind == "U":
            labels = self._parse(labels)
        numbers = labels.astype(np.float64)
        self._check(~np.isnan(numbers), "the label is missing or NaN", "remove the rows without a label")
        self._check(np.isfinite(numbers), "the label is infinite", "correct or remove such rows")
        self._add_moments(numbers)
        return numbers

    def table(self) -> tuple[str, ...]:
        """Return the empty tuple: there are no classes."""
        return ()

    def facts(self) -> JsonObject:
        """Return a summary of the numbers as plain JSON; ``spread`` is their standard deviation."""
        spread = float(np.sqrt(self.M2 / max(1, self.rows)))
        return {"mean": self.mean, "spread": spread, "least": self.least, "most": self.most}

    def _parse(self, labels: Array) -> Float64:
        numbers = np.full(len(labels), np.nan)
        for k, text in enumerate(labels.tolist()):
            try:
                numbers[k] = float(text)
            except ValueError:
                fault = f"the label {quote(text)} is no number" if text.strip() else "the label is empty"
                self._check(np.arange(len(labels)) != k, fault, "correct the row, or check --label")
        return numbers

    def _check(self, valid: NDArray[np.bool_], fault: str, hint: str) -> None:
        """Raise DataError E-LABEL for the first row of a batch that is not ``valid``."""
        if not valid.all():
            row = self.rows + int(np.argmin(valid)) + 1
            raise DataError(f"row {row} of all rows read: {fault}", code="E-LABEL", hint=hint)

    def _add_moments(self, numbers: Float64) -> None:
        """Merge the moments of a batch (Chan, Golub and LeVeque)."""
        if not len(numbers):
            return
        n, mean = len(numbers), float(numbers.mean())
        delta, total = mean - self.mean, self.rows + n
        self.M2 += float(np.square(numbers - mean).sum()) + delta * delta * self.rows * n / total
        self.mean += delta * n / total
        self.rows = total
        self.least, self.most = min(self.least, float(numbers.min())), max(self.most, float(numbers.max()))


LabelCoder = ClassCoder | OneAgainstRestCoder | ThresholdCoder | NumberCoder


def label_coder(positive: str | None, threshold: float | None, task: str = CLASSIFICATION) -> LabelCoder:
    """Return the coder of labels that the user asked for. Raises UsageError."""
    if task == REGRESSION:
        if positive is not None or threshold is not None:
            option = "--label-threshold" if positive is None else "--positive"
            raise UsageError(
                f"{option} makes classes, --task regression keeps numbers", hint="leave out one of the two"
            )
        return NumberCoder()
    if positive is not None and threshold is not None:
        raise UsageError("--positive and --label-threshold exclude each other")
    if positive is not None:
        return OneAgainstRestCoder(positive)
    return ClassCoder() if threshold is None else ThresholdCoder(threshold)


def add_counts(counts: Sequence[int], codes: Array) -> list[int]:
    """Return the sum of ``counts`` and the counts of ``codes``; the list grows when there are new codes."""
    total = np.array(class_counts(codes, len(counts)))
    total[: len(counts)] += np.array(counts, total.dtype)
    return total.tolist()


def class_counts(codes: Array, classes: int = 1) -> list[int]:
    """Return the number of rows of each class, of at least ``classes`` classes; for float64 targets, of all rows."""
    return [len(codes)] if codes.dtype.kind == "f" else np.bincount(codes, minlength=classes).tolist()


def similar_texts(texts: Iterable[str]) -> list[str]:
    """Return the texts that differ from another text only by case or blanks; similar texts are adjacent."""
    groups: dict[str, list[str]] = defaultdict(list)
    for text in texts:
        groups[" ".join(text.casefold().split())].append(text)
    return [text for group in groups.values() if len(group) > 1 for text in group]


def collect_distinct_labels(labels: Array, distinct: set[str]) -> None:
    """Add up to three distinct labels of one batch to ``distinct``, unless it has more than two already."""
    if len(distinct) <= 2:
        others = labels[labels[0] != labels]
        distinct.update(label_text(label) for label in (labels[0], *others[:1], *others[others != others[:1]][:1]))


def check_codings(files: Mapping[str, set[str]]) -> None:
    """Raise DataError E-LABEL if two files code two classes differently. ``files``: the labels of each file."""
    coded = {name: labels for name, labels in files.items() if labels in BINARY_CODINGS}
    for name, labels in coded.items():
        first = next(iter(coded))
        if labels != coded[first]:
            labels_here, labels_there = (
                f"{{{', '.join(sorted(texts, key=float))}}}" for texts in (labels, coded[first])
            )
            message = f"{name} has the labels {labels_here}, {first} has {labels_there}"
            raise DataError(message, code="E-LABEL", hint="number the classes alike, or join files of one table first")


def _check_values(values: Array, rows: NDArray[np.int64]) -> None:
    """Raise DataError E-LABEL for a value that is no label; ``rows``: the row of each value, counted from 0."""
    hint = "remove the rows without a label"
    if values.dtype.kind == "U":
        _refuse(~np.char.strip(values).astype(bool), rows, "the label is empty", hint)
    elif values.dtype.kind == "f":
        _refuse(np.isnan(values), rows, "the label is NaN", hint)
        _refuse(np.isinf(values), rows, "the label is infinite", "correct or remove such rows")
        large = np.abs(values) >= LARGEST_LABEL
        fault = f"the label {''.join(map(str, values[large][:1]))} is a float that stands for several whole numbers"
        _refuse(large, rows, fault, f"give such labels as integers or text; {HINT_REGRESSION}")


def _refuse(invalid: NDArray[np.bool_], rows: NDArray[np.int64], fault: str, hint: str) -> None:
    """Raise DataError E-LABEL, naming the first of the ``rows`` that are ``invalid``, if any is."""
    if invalid.any():
        row = int(rows[invalid].min()) + 1
        raise DataError(f"row {row} of all rows read: {fault}", code="E-LABEL", hint=hint)


def _list_some(labels: Sequence[str]) -> str:
    shown = ", ".join(quote(text, 24) for text in labels[:5])
    return shown + (", ..." if len(labels) > 5 else "")
