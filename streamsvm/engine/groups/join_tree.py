"""Results of neighboring parts, joined along one tree whatever the order in which they come.

The tree is that of ``partition.tree_reduce``: left branches are the largest powers of two, so that what is joined with
what follows from the number of parts alone. Two siblings are joined as soon as both are there, by whoever brings the
second: of ``count`` parts that ``threads`` threads take in order, at most log2(count) + threads + 1 results are held at
a time.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Generic, NamedTuple, TypeVar

T = TypeVar("T")


class PartSpan(NamedTuple):
    """Parts [first, stop)."""

    first: int
    """The number of the first part."""
    stop: int
    """One beyond the number of the last part."""

    def halves(self) -> tuple[PartSpan, PartSpan]:
        """The two spans that are joined to this one; it has two parts at least."""
        middle = self.first + (1 << (self.stop - self.first - 1).bit_length() - 1)
        return PartSpan(self.first, middle), PartSpan(middle, self.stop)


def spans_of(count: int, tasks: int) -> list[PartSpan]:
    """The nodes of the tree over ``count`` parts that ``tasks`` tasks, or twice as many, are made of, in order.

    All have the same power of two of parts, but for the last: what they came to is joined by a tree over them as if it
    were by the one over the parts.
    """
    size = 1 << max(0, (count // max(1, tasks)).bit_length() - 1)
    return [PartSpan(first, min(first + size, count)) for first in range(0, count, size)]


class JoinTree(Generic[T]):
    """What was found so far of ``count`` parts, joined as far as it can be."""

    def __init__(
        self,
        count: int,
        join: Callable[[T, T], T],
        accept: Callable[[int, T], T] = lambda _number, found: found,
        known: Mapping[PartSpan, T] | None = None,
    ) -> None:
        """``accept(number, found)`` takes in the result of a part, one at a time; ``known``: what an earlier run had
        joined.
        """
        self._root, self._join, self._accept = PartSpan(0, count), join, accept
        self._nodes: dict[PartSpan, T] = dict(known or {})
        self._joining = 0
        self._quiet = threading.Condition()

    def missing(self) -> list[int]:
        """The parts of which nothing is known, rising."""
        with self._quiet:
            known = {number for span in self._nodes for number in range(*span)}
        return [number for number in range(self._root.stop) if number not in known]

    def add(self, number: int, found: T) -> None:
        """Take in the result of a part, and join what can be joined. Any thread may call it."""
        way = self._way_to(number)
        with self._quiet:
            pair = self._placed(way, self._accept(number, found))
        while pair is not None:
            joined = None
            try:
                joined = self._join(*pair)
            finally:
                with self._quiet:  # in one go: what is joined is never nowhere when somebody looks
                    self._joining -= 1
                    pair = None if joined is None else self._placed(way, joined)
                    self._quiet.notify_all()

    @contextmanager
    def at_rest(self) -> Iterator[dict[PartSpan, T]]:
        """What is known, while nothing is added or joined."""
        with self._quiet:
            self._quiet.wait_for(lambda: not self._joining)
            yield dict(self._nodes)

    @property
    def result(self) -> T:
        """What all parts came to, once no part is missing."""
        return self._nodes[self._root]

    def _way_to(self, number: int) -> list[PartSpan]:
        """The spans from the root to a part."""
        way = [self._root]
        while way[-1].stop - way[-1].first > 1:
            left, right = way[-1].halves()
            way.append(left if number < left.stop else right)
        return way

    def _placed(self, way: list[PartSpan], found: T) -> tuple[T, T] | None:
        """Keep what is of the last span of a way; where its sibling is there, return both, in order, to be joined."""
        span = way.pop()
        if way:
            left, right = way[-1].halves()
            other = self._nodes.pop(right if span == left else left, None)
            if other is not None:
                self._joining += 1
                return (found, other) if span == left else (other, found)
        self._nodes[span] = found
        return None
