"""The order of an epoch: every chunk once, decided by layout, seed and epoch and by nothing else."""

from __future__ import annotations

from itertools import islice

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from streamsvm.compute.random import visit_seed
from streamsvm.schedule.stream import epoch_order, epoch_visits, iterate_visits
from streamsvm.types import Layout

chunk_counts = st.integers(1, 300)
seeds = st.integers(0, 2**63)
epochs = st.integers(0, 10_000)
KNOWN_ORDERS = {(0, 0): [2, 4, 3, 6, 5, 0, 1, 7], (5, 3): [7, 1, 0, 3, 4, 2, 6, 5]}
KNOWN_SEEDS = {(0, 0, 0): 2968811710, (5, 3, 7): 1804240874}


def layout_of(chunks: int, rows: int = 7, columns: int = 3) -> Layout:
    return Layout(columns, (rows,) * chunks, None, ("-1", "1"), (rows * chunks, 0))


@given(chunk_counts, seeds, epochs)
def test_an_epoch_is_a_permutation_of_the_chunks(chunks: int, seed: int, epoch: int) -> None:
    found = list(epoch_visits(layout_of(chunks), seed, epoch, shuffled=True))
    assert sorted(visit.chunk for visit in found) == list(range(chunks))
    assert {visit.epoch for visit in found} == {epoch}
    assert [visit.last for visit in found] == [False] * (chunks - 1) + [True]


@given(chunk_counts, seeds, epochs)
def test_the_order_depends_on_layout_seed_and_epoch_alone(chunks: int, seed: int, epoch: int) -> None:
    np.random.seed(1)  # noqa: NPY002  the global state must not matter
    first = list(epoch_visits(layout_of(chunks), seed, epoch, shuffled=True))
    np.random.seed(2)  # noqa: NPY002
    assert list(epoch_visits(layout_of(chunks, rows=11, columns=9), seed, epoch, shuffled=True)) == first


def test_orders_stay_what_they_were() -> None:
    """A resumed run must find the order it began with: these are numbers of the first version."""
    assert epoch_order(layout_of(8), 0, 0, shuffled=True) == KNOWN_ORDERS[0, 0]
    assert epoch_order(layout_of(8), 5, 3, shuffled=True) == KNOWN_ORDERS[5, 3]
    assert visit_seed(0, 0, 0) == KNOWN_SEEDS[0, 0, 0]
    assert visit_seed(5, 3, 7) == KNOWN_SEEDS[5, 3, 7]


@given(chunk_counts, seeds, epochs)
def test_epoch_order_without_shuffling_chunks_are_visited_as_they_lie(chunks: int, seed: int, epoch: int) -> None:
    found = list(epoch_visits(layout_of(chunks), seed, epoch, shuffled=False))
    assert [visit.chunk for visit in found] == list(range(chunks))
    assert not any(visit.shuffled for visit in found)


@given(st.integers(1, 20), seeds, st.integers(0, 5))
def test_a_later_first_epoch_skips_whole_epochs(chunks: int, seed: int, first: int) -> None:
    layout = layout_of(chunks)
    begun_there = list(islice(iterate_visits(layout, seed, shuffled=True, first=first), 3 * chunks))
    reached = list(islice(iterate_visits(layout, seed, shuffled=True), first * chunks, (first + 3) * chunks))
    assert begun_there == reached
