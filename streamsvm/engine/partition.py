"""Groups of chunks, the parts of a job: functions of the layout alone."""

from __future__ import annotations

from itertools import accumulate, pairwise
from typing import NamedTuple

import numpy as np

from streamsvm.types import Layout

GROUP_BYTES = 32 << 20
"""Bytes of a group, about: enough work to be worth a message, little enough to share out evenly."""
MOST_GROUPS = 1024
"""Groups at most."""
PASS_GROUP_BYTES = 3 << 20
"""Bytes at least of a group of a pass that is summed up, so that one is a chunk as a rule: a checkpoint is made between
two of them."""
COMPONENT_BYTES = 128
"""Bytes of such a group at least for each component of a vector of weights: to begin and to join a part costs a few such
vectors."""


class Group(NamedTuple):
    """Some chunks that one task works on."""

    number: int
    """Among all groups of a job, from 0."""
    chunks: tuple[int, ...]
    """The numbers of the chunks, rising."""
    starts: tuple[int, ...]
    """The number of the first row of each chunk in the store."""
    rows: int
    """Rows in all of them."""


def spans_in_group(layout: Layout, group: Group) -> dict[int, slice]:
    """Return the rows of each chunk of a group, counted from the first row of the group."""
    ends = accumulate((layout.chunks[chunk] for chunk in group.chunks), initial=0)
    return {chunk: slice(*span) for chunk, span in zip(group.chunks, pairwise(ends), strict=True)}


def contiguous_groups(layout: Layout, count: int | None = None) -> list[Group]:
    """Neighboring chunks in ``count`` groups of about as many rows.

    None: as many as are good for a batch method, a power of two, so that two, four or eight workers have as many each.
    """
    chunks = len(layout.chunks)
    worth = max(1, min(layout.bytes_per_pass // GROUP_BYTES, chunks, MOST_GROUPS))
    wanted = 1 << worth.bit_length() - 1 if count is None else max(1, min(count, chunks))
    ends = np.cumsum(layout.chunks)
    place = np.arange(1, wanted)
    cuts = np.searchsorted(ends, place * layout.rows / wanted, side="left") + 1
    cuts = np.maximum.accumulate(cuts - place) + place  # chunks may be of very different lengths: no group is empty
    cuts = np.minimum(cuts, chunks - wanted + place)
    spans = zip([0, *cuts.tolist()], [*cuts.tolist(), chunks], strict=True)
    return _groups(layout, [range(first, stop) for first, stop in spans])


def pass_groups(layout: Layout) -> list[Group]:
    """The groups of a pass that is summed up: neighboring chunks, few enough that a part of the pass is cheap beside
    them.
    """
    least = max(PASS_GROUP_BYTES, COMPONENT_BYTES * (layout.columns + 1))
    return contiguous_groups(layout, max(1, -(-layout.bytes_per_pass // least)))


def round_robin_groups(layout: Layout, count: int) -> list[Group]:
    """Chunks dealt to ``count`` groups in turn, so that each has some of every region of the data."""
    count = max(1, min(count, len(layout.chunks)))
    return _groups(layout, [range(number, len(layout.chunks), count) for number in range(count)])


def _groups(layout: Layout, members: list[range]) -> list[Group]:
    starts = layout.starts
    return [
        Group(number, tuple(chunks), tuple(starts[c] for c in chunks), sum(layout.chunks[c] for c in chunks))
        for number, chunks in enumerate(members)
    ]
