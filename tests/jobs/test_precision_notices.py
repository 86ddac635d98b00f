"""What is said of columns that float32 keeps little of, or that are ids, and of classes that drift: from which numbers on."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from streamsvm.jobs.ingest.notices.drift import drift_warning, label_drift
from streamsvm.jobs.ingest.notices.precision import looks_like_ids, precision_warnings
from streamsvm.rows import Dense
from streamsvm.store.sources.centering.offsets import Offsets
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


@pytest.mark.parametrize(("different", "are"), [(20, True), (19, False)])
def test_ids_that_were_rounded_to_even_numbers_need_not_be_unique(different: int, are: bool) -> None:
    column = 2.0**25 - 4.0 * (np.arange(100) % different)
    assert looks_like_ids(Dense(column[:, None].astype(np.float32)), 1, NONE) == ([0] if are else [])
    # where they are stored less an offset nothing is rounded
    taken = Offsets(np.array([0]), np.array([2.0**25]))
    near = Dense((column - 2.0**25)[:, None].astype(np.float32))
    assert looks_like_ids(near, 1, taken) == []


def test_numbers_with_fractions_and_very_wide_tables_have_no_ids() -> None:
    column = counting(200, 200, 5000.0)[:, None].astype(np.float32)
    assert looks_like_ids(Dense(column + np.float32(0.5)), 1, NONE) == []
    assert looks_like_ids(Dense(column), 2000, NONE) == [0]
    assert looks_like_ids(Dense(column), 2001, NONE) == []


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


def test_an_id_is_not_named_twice_and_equal_ones_are_told_of() -> None:
    wide = statistics([2e7, 3e7], [10.0, 1e6], 50)
    found = precision_warnings(wide, 50, None, NONE, [0, 1])
    both = "column 0, column 1"
    assert len(found) == 1
    assert found[0].startswith(f"ids rather than quantities, it seems: {both}; leave them out")
    assert found[0].endswith(f"above 16,777,216 different ones are stored as the same: {both}")
    assert "stored as the same" not in precision_warnings(statistics([5e3], [1.0], 50), 50, None, NONE, [0])[-1]


@pytest.mark.parametrize(("least", "most", "lost"), [(5.0, 3e7, True), (-3e7, -5.0, True), (-9.0, 16_777_216.0, False)])
def test_of_ids_the_end_that_is_farther_from_0_says_whether_some_are_equal(
    least: float, most: float, lost: bool
) -> None:
    wide = Statistics(np.array([0.0]), np.array([1e20]), np.array([least]), np.array([most]))
    assert ("stored as the same" in precision_warnings(wide, 50, None, NONE, [0])[-1]) == lost


@pytest.mark.parametrize("count", [4, 5, 6, 8])
def test_five_columns_are_named_and_others_counted(count: int) -> None:
    taken = Offsets(np.arange(count), 1e9 + np.arange(count, dtype=np.float64))
    (said,) = precision_warnings(statistics([0.0] * count, [1.0] * count, 50), 50, list("abcdefgh"), taken)
    assert said.count(" less ") == min(count, 5)
    assert ("more" in said) == (count > 5)
    if count > 5:
        assert said.endswith(f" and {count - 5} more")
    assert "'a' less 1000000000" in said


def stored(*chunks: tuple[int, int]) -> Any:
    counts = tuple(int(sum(column)) for column in zip(*chunks, strict=True))
    made = [SimpleNamespace(counts=chunk, rows=sum(chunk)) for chunk in chunks]
    return SimpleNamespace(chunks=made, layout=lambda: SimpleNamespace(counts=counts))


def test_the_drift_is_the_largest_difference_of_a_share() -> None:
    # 10 of 40 and 30 of 40 where all have half
    assert label_drift([(10, 30), (30, 10)], (40, 40)) == pytest.approx(0.25)
    # a class that later chunks have is missing in the counts of the first
    assert label_drift([(20,), (10, 10)], (30, 10)) == pytest.approx(0.25)


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
