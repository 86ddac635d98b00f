"""What is said of columns that float32 keeps little of, or that are ids, and of classes that drift: from which numbers on."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from streamsvm.jobs.ingest.notices import drift_warning, label_drift, looks_like_ids, precision_warnings
from streamsvm.rows import Dense
from streamsvm.store.sources.offsets import Offsets
from streamsvm.types import Statistics

NONE = Offsets(np.array([], np.int64), np.array([]))


def counting(rows: int, different: int, largest: float) -> Any:
    """A column of so many different whole numbers, the largest of which is given."""
    return largest - (np.arange(rows) % different)


@pytest.mark.parametrize(
    ("rows", "different", "largest", "are"),
    [
        (100, 100, 1001.0, True),
        (99, 99, 1001.0, False),
        (100, 100, 1000.0, False),
        (100, 99, 1001.0, True),
        (100, 98, 1001.0, False),
        (200, 197, 16_777_215.0, False),
    ],
)
def test_numbers_that_are_whole_large_and_all_but_unique_are_ids(
    rows: int, different: int, largest: float, are: bool
) -> None:
    values = np.column_stack([np.linspace(0, 1, rows), counting(rows, different, largest)])
    assert looks_like_ids(Dense(values.astype(np.float32)), 2, NONE) == ([1] if are else [])
    # below 0 as above
    assert looks_like_ids(Dense(-values.astype(np.float32)), 2, NONE) == ([1] if are else [])


def statistics(mean: list[float], deviation: list[float], rows: int) -> Statistics:
    middle, spread = np.array(mean), np.array(deviation)
    return Statistics(middle, rows * spread**2, middle - 2 * spread, middle + spread)


@pytest.mark.parametrize(
    ("mean", "deviation", "said"), [(10_001.0, 1.0, True), (10_000.0, 1.0, False), (1e9, 0.0, False)]
)
def test_columns_further_from_0_than_ten_thousand_deviations_are_named(
    mean: float, deviation: float, said: bool
) -> None:
    for sign in (1.0, -1.0):
        found = precision_warnings(statistics([0.0, sign * mean], [1.0, deviation], 50), 50, ("a", "b"), NONE)
        assert bool(found) == said
        if said:
            assert f"'b' (mean {sign * mean:.6g}, kept in steps of 0.00098)" in found[0]  # 2^-10, between 2^13 and 2^14


def stored(*chunks: tuple[int, int]) -> Any:
    counts = tuple(int(sum(column)) for column in zip(*chunks, strict=True))
    made = [SimpleNamespace(counts=chunk, rows=sum(chunk)) for chunk in chunks]
    return SimpleNamespace(chunks=made, layout=lambda: SimpleNamespace(counts=counts))


@pytest.mark.parametrize(
    ("chunks", "said"),
    [
        # 3 x 0.5 / sqrt(900) = 0.05 by chance, and a tenth beside it
        ([(585, 315), (315, 585)], False),
        ([(586, 314), (314, 586)], True),
        ([(900, 0)], False),
        # the last one does not count where there are three
        ([(450, 450), (450, 450), (9, 0)], False),
        # but the share of all rows has it
        ([(700, 200), (200, 700), (9, 0)], True),
        ([(20, 5), (5, 20)], False),
    ],
)
def test_classes_that_are_not_spread_are_told_of(chunks: list[tuple[int, int]], said: bool) -> None:
    found = drift_warning(stored(*chunks))
    assert bool(found) == said
    if said:
        drift = label_drift(chunks[:2], tuple(map(sum, zip(*chunks, strict=True))))
        assert f"up to {100 * drift:.0f} % away" in found[0]
