"""The order of everything: which chunk when, and from what seed. Pure functions of (layout, seed, epoch)."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count, islice

import numpy as np

from streamsvm.types import Layout, Visit


def epoch_order(layout: Layout, seed: int, epoch: int, shuffled: bool) -> list[int]:
    """The chunks of one epoch in the order they are read: each exactly once."""
    chunks = len(layout.chunks)
    if not shuffled:
        return list(range(chunks))
    order: list[int] = np.random.default_rng((seed, epoch)).permutation(chunks).tolist()
    return order


def visit_seed(seed: int, epoch: int, chunk: int) -> int:
    """The seed of a visit: 32 bits from (seed, epoch, chunk)."""
    return int(np.random.SeedSequence((seed, epoch, chunk)).generate_state(1)[0])


def epoch_visits(layout: Layout, seed: int, epoch: int, shuffled: bool) -> Iterator[Visit]:
    """The visits of one epoch."""
    order = epoch_order(layout, seed, epoch, shuffled)
    for position, chunk in enumerate(order):
        last = position == len(order) - 1
        yield Visit(epoch, chunk, visit_seed(seed, epoch, chunk), shuffled, last)


def visits(layout: Layout, seed: int, shuffled: bool, first: int = 0, skipped: int = 0) -> Iterator[Visit]:
    """Epoch after epoch without end, so that reading ahead does not stop where an epoch does.

    ``skipped``: so many visits of epoch ``first`` have been made already.
    """
    yield from islice(epoch_visits(layout, seed, first, shuffled), skipped, None)
    for epoch in count(first + 1):
        yield from epoch_visits(layout, seed, epoch, shuffled)
