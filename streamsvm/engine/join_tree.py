"""The fixed binary tree along which results of the parts of a job are joined.

Left branches are the largest powers of two, so that what is joined with what follows from the number of parts alone: which thread or
worker computed a part, and when, shows in no result.
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
        """Return the two spans that are joined to this one, which has at least two parts."""
        middle = self.first + (1 << (self.stop - self.first - 1).bit_length() - 1)
        return PartSpan(self.first, middle), PartSpan(middle, self.stop)


def spans_of(count: int, tasks: int) -> list[PartSpan]:
    """Return in order the nodes of the tree over ``count`` parts that are given to ``tasks`` tasks, or to twice as many.

    All have the same power of two of parts, but for the last: what they came to is joined by a tree over them as if it
    were by the one over the parts.
    """
    size = 1 << max(0, (count // max(1, tasks)).bit_length() - 1)
    return [PartSpan(first, min(first + size, count)) for first in range(0, count, size)]


class JoinTree(Generic[T]):
    """Results of ``count`` parts, joined along a fixed tree whatever the order in which they arrive.

    The tree is that of ``tree_reduce``. Two siblings are joined as soon as both are there, by the thread that brings the second: of
    ``count`` parts that ``threads`` threads take in order, at most log2(count) + threads + 1 results are held at a time.
    """

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
        """Return the numbers of the missing parts, ascending."""
        with self._quiet:
            known = {number for span in self._nodes for number in range(*span)}
        return [number for number in range(self._root.stop) if number not in known]

    def add(self, number: int, found: T) -> None:
        """Add the result of a part and join siblings. Any thread may call it."""
        way = self._way_to(number)
        with self._quiet:
            pair = self._place(way, self._accept(number, found))
        while pair is not None:
            joined = None
            try:
                joined = self._join(*pair)
            finally:
                with self._quiet:  # in one go: what is joined is never nowhere when somebody looks
                    self._joining -= 1
                    pair = None if joined is None else self._place(way, joined)
                    self._quiet.notify_all()

    @contextmanager
    def lock_nodes(self) -> Iterator[dict[PartSpan, T]]:
        """Yield the present nodes, while nothing is added or joined."""
        with self._quiet:
            self._quiet.wait_for(lambda: not self._joining)
            yield dict(self._nodes)

    @property
    def result(self) -> T:
        """The joined result, when no part is missing."""
        return self._nodes[self._root]

    def _way_to(self, number: int) -> list[PartSpan]:
        """Return the spans from the root to a part."""
        way = [self._root]
        while way[-1].stop - way[-1].first > 1:
            left, right = way[-1].halves()
            way.append(left if number < left.stop else right)
        return way

    def _place(self, way: list[PartSpan], found: T) -> tuple[T, T] | None:
        """Store the result of the last span of a path; if its sibling is present, return both in order, to be joined."""
        span = way.pop()
        if way:
            left, right = way[-1].halves()
            other = self._nodes.pop(right if span == left else left, None)
            if other is not None:
                self._joining += 1
                return (found, other) if span == left else (other, found)
        self._nodes[span] = found
        return None


def tree_reduce(parts: Iterator[T], count: int, join: Callable[[T, T], T]) -> T:
    """Join ``count`` parts along the tree whose left branches are the largest powers of two.

    Parts are taken as they are needed, so that at most log2(count) + 1 of them are held at a time.
    """
    if count == 1:
        return next(parts)
    left = 1 << (count - 1).bit_length() - 1
    joined = tree_reduce(parts, left, join)
    return join(joined, tree_reduce(parts, count - left, join))
