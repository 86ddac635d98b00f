"""Random orders: those of a published generator, the same on every machine."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamsvm.compute.random import draw_lots, permutation, shuffle, smallest_keys

seeds = st.integers(0, 2**32 - 1)


def permuted(count: int, seed: int) -> Any:
    order = np.full(count, -1, np.int32)
    permutation(order, seed)
    return order


@pytest.mark.parametrize(
    ("seed", "expected"),
    [
        (0, [4, 9, 2, 5, 1, 7, 6, 0, 3, 8]),
        (1, [9, 0, 1, 4, 8, 2, 3, 7, 6, 5]),
        (2**32 - 1, [8, 6, 2, 1, 5, 9, 0, 7, 3, 4]),
    ],
)
def test_random_orders_stay_what_they_were(seed: int, expected: list[int]) -> None:
    """A resumed run must go on in the order it began with: these are numbers of the first version."""
    assert permuted(10, seed).tolist() == expected


@given(st.lists(st.integers(-5, 5), min_size=1, max_size=40), st.integers(0, 40), seeds)
def test_random_shuffling_a_part_leaves_the_rest(entries: list[int], count: int, seed: int) -> None:
    count = min(count, len(entries))
    order = np.array(entries, np.int32)
    shuffle(order, count, seed)
    assert sorted(order[:count]) == sorted(entries[:count])
    assert order[count:].tolist() == entries[count:]


@given(st.integers(1, 60), seeds)
def test_random_compiled_equals_plain_python(count: int, seed: int) -> None:
    plain = np.arange(count, dtype=np.int32)
    with np.errstate(over="ignore"):  # the arithmetic is modulo 2^64
        shuffle.py_func(plain, count, seed)
    np.testing.assert_array_equal(permuted(count, seed), plain)


def splitmix64(seed: int) -> Any:
    """The published generator, in whole numbers."""
    mask = 2**64 - 1
    while True:
        seed = (seed + 0x9E3779B97F4A7C15) & mask
        z = ((seed ^ (seed >> 30)) * 0xBF58476D1CE4E5B9) & mask
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & mask
        yield z ^ (z >> 31)


def test_random_generator_is_splitmix64() -> None:
    """Its first number for seed 1234567 is published; the order is Fisher and Yates' with the upper 32 bits."""
    assert next(splitmix64(1234567)) == 6457827717110365317
    for seed in (0, 1234567, 2**32 - 1):
        order, numbers = list(range(50)), splitmix64(seed)
        for i in range(49, 0, -1):
            j = ((next(numbers) >> 32) * (i + 1)) >> 32
            order[i], order[j] = order[j], order[i]
        assert permuted(50, seed).tolist() == order


@given(st.integers(1, 300), st.integers(0, 300), seeds)
def test_random_lots_belong_to_rows_not_to_blocks(count: int, start: int, seed: int) -> None:
    index = np.arange(start, start + count)
    whole = draw_lots(index, seed)
    assert len(np.unique(whole)) == count
    np.testing.assert_array_equal(
        np.concatenate([draw_lots(index[: count // 2], seed), draw_lots(index[count // 2 :], seed)]), whole
    )


@given(st.lists(st.floats(-9, 9), min_size=1, max_size=30, unique=True), st.integers(1, 30))
def test_random_smallest(keys: list[float], count: int) -> None:
    found = np.array(keys)[smallest_keys(np.array(keys), count)]
    assert sorted(found) == sorted(keys)[:count]
