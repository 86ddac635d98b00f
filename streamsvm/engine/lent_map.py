"""A feature map for each thread: maps have buffers."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import contextmanager

from streamsvm.types import FeatureMap


@contextmanager
def lent(features: FeatureMap, unused: list[FeatureMap]) -> Iterator[FeatureMap]:
    """Lend a thread one of the ``unused`` maps, or a copy of ``features``. Changed: ``unused``, to which it comes back."""
    try:
        own = unused.pop()
    except IndexError:
        own = copy.copy(features)
    try:
        yield own
    finally:
        unused.append(own)
