"""Groups of chunks, which are the parts of a job. They depend only on the layout of the store."""

from __future__ import annotations

from itertools import accumulate, pairwise
from typing import NamedTuple

import numpy as np

from streamsvm.types import AnySolver, Layout

GROUP_BYTES = 32 << 20
"""Approximate bytes of a group: large enough to be worth a message, small enough to distribute the work evenly."""
MAX_GROUPS = 1024
"""Largest number of groups."""
PASS_GROUP_BYTES = 3 << 20
"""Minimum bytes of a group in a pass that only sums over rows. Such a group is usually one chunk, so that checkpoints,
which are made between two groups, can be made often."""
COMPONENT_BYTES = 128
"""Minimum bytes of a group in such a pass for each component of the weights, because each group costs a few vectors of
that length."""


class Group(NamedTuple):
    """The chunks that one task visits."""

    number: int
    """Number among all groups of a job, from 0."""
    chunks: tuple[int, ...]
    """The numbers of the chunks, ascending."""
    starts: tuple[int, ...]
    """The number of the first row of each chunk in the store."""
    rows: int
    """Number of rows in all chunks of the group."""


def spans_in_group(layout: Layout, group: Group) -> dict[int, slice]:
    """Return the row range of each chunk of a group, counted from the first row of the group."""
    ends = accumulate((layout.chunks[chunk] for chunk in group.chunks), initial=0)
    return {chunk: slice(*span) for chunk, span in zip(group.chunks, pairwise(ends), strict=True)}


def contiguous_groups(layout: Layout, count: int | None = None) -> list[Group]:
    """Divide the chunks into ``count`` groups of neighbors with about the same number of rows.

    None: a power of two that suits the size of the data, so that two, four or eight workers get the same number of
    groups each.
    """
    chunks = len(layout.chunks)
    if chunks == 1:
        return _groups(layout, [range(1)])
    suitable = max(1, min(layout.bytes_in_memory // GROUP_BYTES, chunks, MAX_GROUPS))
    group_count = 1 << suitable.bit_length() - 1 if count is None else max(1, min(count, chunks))
    ends = np.cumsum(layout.chunks)
    place = np.arange(1, group_count)
    cuts = np.searchsorted(ends, place * layout.rows / group_count, side="left") + 1
    cuts = np.maximum.accumulate(cuts - place) + place  # no group is empty, even if chunks have very different lengths
    cuts = np.minimum(cuts, chunks - group_count + place)
    spans = zip([0, *cuts.tolist()], [*cuts.tolist(), chunks], strict=True)
    return _groups(layout, [range(first, stop) for first, stop in spans])


def pass_groups(layout: Layout) -> list[Group]:
    """Return the groups of a pass that only sums over rows: neighboring chunks, few enough that groups cost little."""
    group_bytes = max(PASS_GROUP_BYTES, COMPONENT_BYTES * (layout.columns + 1))
    return contiguous_groups(layout, max(1, -(-layout.bytes_in_memory // group_bytes)))


def round_robin_groups(layout: Layout, count: int) -> list[Group]:
    """Deal the chunks to ``count`` groups in turn, so that each group has chunks from every region of the data."""
    count = max(1, min(count, len(layout.chunks)))
    return _groups(layout, [range(number, len(layout.chunks), count) for number in range(count)])


def fit_groups(solver: AnySolver, layout: Layout, count: int | None) -> list[Group]:
    """Return the groups of a fit: ``count`` of them; None: a number that the store determines.

    For online solvers, chunks are dealt to the groups in turn, so that each group has chunks from every region of the
    data.
    """
    if solver.shuffled:
        return round_robin_groups(layout, count or 1)
    return pass_groups(layout) if count is None else contiguous_groups(layout, count)


def _groups(layout: Layout, members: list[range]) -> list[Group]:
    starts = layout.starts
    return [
        Group(number, tuple(chunks), tuple(starts[c] for c in chunks), sum(layout.chunks[c] for c in chunks))
        for number, chunks in enumerate(members)
    ]
