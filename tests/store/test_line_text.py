"""Text of many rows, which pyarrow makes, is that of ``repr`` and of the csv module."""

from __future__ import annotations

import csv
import io

import numpy as np
import pytest

from streamsvm.store.format import predictions as line_text
from streamsvm.store.format.predictions import encode_lines, format_column, join_columns

ROWS = 30_000


def columns(rng: np.random.Generator) -> list[np.ndarray]:
    sizes = 10.0 ** rng.uniform(-12, 20, ROWS)
    odd = np.array([0.0, -0.0, np.nan, np.inf, -np.inf, 1e-4, 9.999999999999999e-5, 1e10, 1e16, 5e-324, 1.7e308, 3.0])
    names = np.array(["yes", "no", 'a "word"', "a, b", "café"], dtype=object)
    return [
        rng.normal(size=ROWS),
        rng.normal(size=ROWS) * sizes,
        np.resize(odd, ROWS),
        np.round(rng.normal(size=ROWS), 3),
        np.arange(ROWS) - 5,
        names[rng.integers(0, len(names), ROWS)],
    ]


def by_hand(columns: list[np.ndarray]) -> bytes:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    for row in zip(*(column.tolist() for column in columns), strict=True):
        writer.writerow([value if isinstance(value, str) else repr(value) for value in row])
    return text.getvalue().encode()


@pytest.mark.parametrize("many", [1, 1 << 30], ids=["pyarrow", "python"])
def test_csv_output_lines_are_those_of_repr_and_csv(many: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(line_text, "MIN_ROWS_FOR_PYARROW", many)
    found = columns(np.random.default_rng(0))
    lines = encode_lines(join_columns([format_column(column) for column in found])).splitlines()
    assert len(lines) == ROWS
    for line, expected in zip(lines, by_hand(found).splitlines(), strict=True):
        assert line == expected


def test_csv_output_floats_of_single_precision_are_said_as_python_says_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(line_text, "MIN_ROWS_FOR_PYARROW", 1)
    values = np.random.default_rng(1).normal(size=1000).astype(np.float32)
    assert format_column(values).to_pylist() == list(map(repr, values.tolist()))
