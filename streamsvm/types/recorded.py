"""What ingest recorded of the sources, as manifests and models hold it: the types that readers of it rely on.

Whoever seals a manifest or a model again can write anything there: it is looked at once, where the file is read.
"""

from __future__ import annotations

import math
from typing import Any

import msgspec

from streamsvm.aliases import JsonMapping


class _Column(msgspec.Struct):
    name: str
    kind: str
    values: list[Any] = []
    form: str = ""
    parts: list[Any] = []
    text_bits: int = 0


class _Schema(msgspec.Struct):
    columns: list[_Column]
    label: str | None = None
    weight: str | None = None
    id: str | None = None
    hash_bits: int = 0
    dropped: list[str] = []
    documents: dict[str, dict[str, Any]] = {}


class _Encoding(msgspec.Struct):
    format: str | None = None
    options: dict[str, Any] = {}
    missing: dict[str, Any] = {}
    schema: _Schema | None = None
    offsets: list[tuple[int, float]] | None = None


class _Labels(msgspec.Struct):
    positive: Any = None
    negative: Any = None
    threshold: float | None = None


class _Target(msgspec.Struct):
    mean: float
    spread: float
    least: float
    most: float


class _Certificate(msgspec.Struct):
    primal: float
    dual: float
    rounding: float = 0.0
    C: float | None = None


class _Recorded(msgspec.Struct):
    """Of a store ``facts``, of a model ``provenance``; what is not named here is for people to read."""

    names: list[str] | None = None
    encoding: _Encoding | None = None
    labels: _Labels | list[Any] | None = None
    """Of a part that a worker made: the labels it met."""
    target: _Target | None = None
    """What numbers to predict are like."""
    ids: dict[str, Any] | None = None
    sources: list[dict[str, Any]] = []
    certificates: list[_Certificate] = []
    map: str | None = None
    """Of an embedding: its columns are kernel features, and ``encoding`` is that of the rows they were made from."""
    settings: dict[str, Any] | None = None
    store: dict[str, Any] | None = None


def check_recorded(recorded: JsonMapping, columns: int) -> None:
    """Raise ValueError, with the place, for facts that cannot be those of ``columns`` columns."""
    found = msgspec.convert(recorded, _Recorded)
    if found.names is not None and len(found.names) != columns:
        raise ValueError(f"{len(found.names)} names of columns, expected {columns}")
    for column, offset in (found.encoding and found.encoding.offsets) or ():
        exists = column >= 0 if found.map is not None else 0 <= column < columns
        if not exists or not math.isfinite(offset):
            raise ValueError(f"column {column} of {columns} has an offset of {offset}")
