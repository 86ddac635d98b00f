"""Which files are ours: models, arrays, predictions, and those that begin with a header of ours."""

from __future__ import annotations

import csv
import re
from pathlib import Path

from streamsvm.durable import is_npy_of_ours
from streamsvm.outputs.contents import LARGEST_JSON, head_of, json_object, tail_of

_DECISIONS = re.compile(r"-?(?:\d+\.\d+|\d+(?:\.\d+)?e[+-]\d+)(?:,-?(?:\d+\.\d+|\d+(?:\.\d+)?e[+-]\d+))*")

_LABELS, _VALUES = ("predicted_label", "prediction"), ("decision_", "probability_")
"""Columns of predictions: classes and numbers by their names, values of each class by how their names begin."""
_IN_FULL = 15
"""Characters of the longest number of a column that is written in full; tables of other programs are mostly rounded."""


def model_fault(path: Path) -> str:
    """Return why a path is no model; empty where it is one."""
    if not path.is_file():
        return "it is not a regular file"
    length = int.from_bytes(head_of(path, 8), "little")
    if not 0 < length <= LARGEST_JSON:
        return "it does not begin like one"
    metadata = json_object(head_of(path, 8 + length)[8:]).get("__metadata__")
    header = json_object(metadata.get("header", "")) if isinstance(metadata, dict) else {}
    return "" if {"format", "kind", "classes"} <= header.keys() else "it does not begin like one"


def header_fault(path: Path, header: bytes) -> str:
    """Return why a path is no file that begins with a header of ours; empty where it is one."""
    if not path.is_file():
        return "it is not a regular file"
    return "" if head_of(path).startswith(header) else "it does not begin like one"


def array_fault(path: Path) -> str:
    """Return why a path is no array of ours, which is told from other people's by the padding of its header (``durable.npy_header``)."""
    if not path.is_file():
        return "it is not a regular file"
    return (
        "" if is_npy_of_ours(head_of(path)) or not path.stat().st_size else "it is an array of another program, or none"
    )


def predictions_fault(path: Path) -> str:
    """Return why a path is no file of predictions, by its suffix; empty where it is one."""
    if path.suffix in (".npy", ".parquet"):
        return array_fault(path) if path.suffix == ".npy" else parquet_fault(path)
    if not path.is_file():
        return "it is not a regular file"
    lines = head_of(path).decode("utf-8", "replace").splitlines()
    if not lines:
        return "" if not path.stat().st_size else "it cannot be read"
    if path.suffix == ".csv":
        return "" if _is_header(lines[0]) else "its first line is not a header of predictions"
    if path.suffix != ".txt":
        return "it has another name"
    return "" if _is_column(lines[:-1] or lines) else "it does not look like one prediction a line"


def parquet_fault(path: Path) -> str:
    """Return why a path is no Parquet file of predictions, which say so in their metadata, which stand at the end."""
    if not path.is_file():
        return "it is not a regular file"
    return "" if b"streamsvm.predictions" in tail_of(path) else "it is a Parquet file of another program, or none"


def _is_header(header: str) -> bool:
    """Whether a line names what is predicted, after the column of the ids where rows have any."""
    names = next(csv.reader([header]), [])
    ours = [name in _LABELS or name.startswith(_VALUES) for name in names]
    return header == "label" or (bool(ours) and all(ours[1:]) and (ours[0] or len(ours) > 1))


def _is_column(lines: list[str]) -> bool:
    """Whether lines could be predictions without a header: labels of a few classes, numbers, or a label and numbers beside it."""
    columns = list(zip(*csv.reader(lines), strict=False))
    labels = [column for column in columns if not all(map(_DECISIONS.fullmatch, column))]
    if len(columns) == 1 or not labels:
        return not labels or (_few(labels[0]) and not any(re.search(r"[\s,;=:]", line) for line in lines))
    numbers = [column for column in columns if column not in labels]
    return len(labels) == 1 and _few(labels[0]) and all(max(map(len, column)) >= _IN_FULL for column in numbers)


def _few(labels: tuple[str, ...]) -> bool:
    """Whether labels are those of a few classes."""
    return len(set(labels)) <= max(16, len(labels) // 2)
