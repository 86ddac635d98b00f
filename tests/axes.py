"""Parameters of tests of which every value is tried, and not every combination."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import pytest


def each_value(*axes: tuple[str, Collection[Any]]) -> pytest.MarkDecorator:
    """Parametrize by several axes, each a name, or names with commas between, and its values: as many cases as the longest has values.

    Shorter axes begin again, each round a value further, so that values meet others than in the round before.
    """
    lists = [list(values) for _, values in axes]
    several = ["," in names for names, _ in axes]
    rows = []
    for k in range(max(map(len, lists))):
        row: list[Any] = []
        for axis, (values, many) in enumerate(zip(lists, several, strict=True)):
            value = values[(k + axis * (k // len(values))) % len(values)]
            row += value if many else [value]
        rows.append(tuple(row))
    names = [name.strip() for found, _ in axes for name in found.split(",")]
    return pytest.mark.parametrize(names, rows)
