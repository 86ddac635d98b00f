"""The fixed binary tree along which the results of the parts of a job are joined.

The left branch of a node has the largest possible power of two of parts. The tree therefore depends only on the number
of parts, and the result does not depend on which thread or worker computed a part, or when.
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
        """Return the two children of this node, which must have at least two parts."""
        middle = self.first + (1 << (self.stop - self.first - 1).bit_length() - 1)
        return PartSpan(self.first, middle), PartSpan(middle, self.stop)


def spans_of(count: int, tasks: int) -> list[PartSpan]:
    """Divide ``count`` parts among tasks: return the nodes of the tree that are the work of one task each, in order.
    There are ``tasks`` nodes, or up to about twice as many.

    All have the same number of parts, a power of two, except the last, which may have fewer. Joining the results of the
    nodes along the tree over them is therefore the same as joining the results of all parts along the tree over the
    parts.
    """
    size = 1 << max(0, (count // max(1, tasks)).bit_length() - 1)
    return [PartSpan(first, min(first + size, count)) for first in range(0, count, size)]


class JoinTree(Generic[T]):
    """Joins the results of ``count`` parts along a fixed tree, that of ``tree_reduce``, in whatever order they arrive.

    Two siblings are joined as soon as both are present, by the thread that adds the second. If ``threads`` threads take
    the parts in order, at most log2(count) + threads + 1 results are in memory at the same time.
    """

    def __init__(
        self,
        count: int,
        join: Callable[[T, T], T],
        accept: Callable[[int, T], T] = lambda _number, result: result,
        known: Mapping[PartSpan, T] | None = None,
    ) -> None:
        """``accept(number, result)`` is called for each added result, one at a time; what it returns is joined.
        ``known``: the results that an interrupted run had joined already.
        """
        self._root, self._join, self._accept = PartSpan(0, count), join, accept
        self._nodes: dict[PartSpan, T] = dict(known or {})
        self._joining = 0
        self._quiet = threading.Condition()

    def missing(self) -> list[int]:
        """Return the numbers of the missing parts, ascending."""
        with self._quiet:
            joined = {number for span in self._nodes for number in range(*span)}
        return [number for number in range(self._root.stop) if number not in joined]

    def add(self, number: int, result: T) -> None:
        """Add the result of a part and join siblings. Any thread may call it."""
        path = self._path_to(number)
        with self._quiet:
            pair = self._place(path, self._accept(number, result))
        while pair is not None:
            joined = None
            try:
                joined = self._join(*pair)
            finally:
                with self._quiet:  # one step under the lock, so that ``lock_nodes`` never misses a joined result
                    self._joining -= 1
                    pair = None if joined is None else self._place(path, joined)
                    self._quiet.notify_all()

    @contextmanager
    def lock_nodes(self) -> Iterator[dict[PartSpan, T]]:
        """Yield the current nodes; inside the context nothing is added or joined."""
        with self._quiet:
            self._quiet.wait_for(lambda: not self._joining)
            yield dict(self._nodes)

    @property
    def result(self) -> T:
        """The joined result, when no part is missing."""
        return self._nodes[self._root]

    def _path_to(self, number: int) -> list[PartSpan]:
        """Return the spans from the root to a part."""
        path = [self._root]
        while path[-1].stop - path[-1].first > 1:
            left, right = path[-1].halves()
            path.append(left if number < left.stop else right)
        return path

    def _place(self, path: list[PartSpan], result: T) -> tuple[T, T] | None:
        """Store the result of the last span of ``path`` and remove that span from the path.

        If the sibling is present, store nothing and return both results in order, to be joined.
        """
        span = path.pop()
        if path:
            left, right = path[-1].halves()
            sibling = self._nodes.pop(right if span == left else left, None)
            if sibling is not None:
                self._joining += 1
                return (result, sibling) if span == left else (sibling, result)
        self._nodes[span] = result
        return None


def tree_reduce(parts: Iterator[T], count: int, join: Callable[[T, T], T]) -> T:
    """Join ``count`` parts along the tree whose left branches have the largest possible powers of two of parts.

    Each part is taken from ``parts`` when it is needed, so that at most log2(count) + 1 of them are in memory at the
    same time.
    """
    if count == 1:
        return next(parts)
    left = 1 << (count - 1).bit_length() - 1
    joined = tree_reduce(parts, left, join)
    return join(joined, tree_reduce(parts, count - left, join))
