"""Sums over the blocks of all rows, group by group on all threads: nothing is trained, and the bits are those of one thread.

The groups are those of a pass (``engine.partition``), all rows in one where what is summed is so large that waiting parts of
it would be felt: the layout and the problems decide, not who works.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Generator, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np

from streamsvm.compute import threading as cores
from streamsvm.engine.executors.executor import Joins, Task, ignore_progress
from streamsvm.engine.executors.thread_executor import local_executor
from streamsvm.engine.lent_map import lent
from streamsvm.engine.partition import Group, contiguous, pass_groups
from streamsvm.engine.problem_rows import block_of, own_rows
from streamsvm.engine.training import RowNumbers
from streamsvm.rows import Float64
from streamsvm.schedule.stream import Loaded, Stream
from streamsvm.types import Block, FeatureMap, Problem, Store, Visit

T = TypeVar("T")
DEPTH = 1
"""Blocks read ahead by each thread."""
WAITING_BYTES = 16 << 20
"""What parts of a sum may hold together while they wait to be joined."""


class ProblemBlock(NamedTuple):
    """A block of a problem, and its dual variables (n,) where they are known."""

    problem: int
    """The number of the problem."""
    block: Block
    """Rows as the problem sees them; valid until the next one."""
    alpha: Float64 | None
    """(n,) or (n, classes); None where they are not known."""


class Summation(NamedTuple, Generic[T]):
    """How something is summed over blocks."""

    fresh: Callable[[], T]
    """Returns the sum of no rows."""
    add: Callable[[T, ProblemBlock], None]
    """Counts a block in a sum. Several threads do so, each in a sum of its own."""
    join: Callable[[T, T], T]
    """Makes one sum of two, of which the first may be changed."""
    nbytes: int = 0
    """Of a sum."""


@dataclass(slots=True)
class RowsInGroups:
    """All rows of a store as problems see them, but for the chunks each holds out."""

    store: Store
    """The rows."""
    features: FeatureMap
    """From stored rows to what the problems see."""
    problems: list[Problem]
    """The problems."""
    dual: RowNumbers | None = None
    """The dual variables of all rows; the chunks they lie in need not be those that are read. None: they are not known."""
    working: int = 0
    """Bytes that each thread holds beside blocks and sums."""
    _maps: list[FeatureMap] = field(init=False)
    _lock: Any = field(default_factory=threading.Lock)
    """Of the dual variables, which have one buffer."""

    def __post_init__(self) -> None:
        self._maps = [self.features]

    def groups(self, nbytes: int) -> list[Group]:
        """Return the groups in which sums of so many bytes are taken."""
        found = pass_groups(self.store.layout)
        return contiguous(self.store.layout, 1) if nbytes * len(found).bit_length() > WAITING_BYTES else found

    def blocks(self) -> Iterator[ProblemBlock]:
        """Yield all blocks of all problems in order, without dual variables."""
        for group in pass_groups(self.store.layout):
            with lent(self.features, self._maps) as features, closing(self._visited(iter([group]))) as visited:
                for loaded, _ in visited:
                    yield from self._of(loaded, group, features, None)

    def each(self, groups: Iterator[Group], sums: Summation[T]) -> Generator[T]:
        """Yield the sum over each group, one after the other."""
        with lent(self.features, self._maps) as features, closing(self._visited(groups)) as visited:
            total, dual = sums.fresh(), None
            for loaded, group in visited:
                if loaded.visit.chunk == group.chunks[0]:
                    total, dual = sums.fresh(), self._rows_from(group)
                for one in self._of(loaded, group, features, dual):
                    sums.add(total, one)
                if loaded.visit.last:
                    yield total

    def _visited(self, groups: Iterator[Group]) -> Generator[tuple[Loaded, Group]]:
        """The chunks of groups; what is read ahead may be of the next one."""
        known = deque[Group]()
        with Stream(self.store, _visits(groups, known), depth=DEPTH) as stream:
            for loaded in stream:
                yield loaded, known[0]
                if loaded.visit.last:
                    known.popleft()

    def _of(
        self, loaded: Loaded, group: Group, features: FeatureMap, dual: _RowsInOrder | None
    ) -> Iterator[ProblemBlock]:
        """The blocks of a chunk of a group."""
        chunk = loaded.visit.chunk
        start = group.starts[chunk - group.chunks[0]]
        alpha = None if dual is None else dual.take(len(loaded.chunk.codes))
        for part in features.parts(loaded.chunk.X):
            for k, problem in enumerate(self.problems):
                block = None if chunk in problem.held_out else block_of(problem, loaded, part, start, reused=True)
                if block is not None:
                    mine = None if alpha is None else own_rows(alpha[k, part.start : part.stop], block.places)
                    yield ProblemBlock(k, block, mine)

    def _rows_from(self, group: Group) -> _RowsInOrder | None:
        return None if self.dual is None else _RowsInOrder.beginning(self.dual, self._lock, group.starts[0])


def summed(rows: RowsInGroups, sums: Summation[T]) -> T:
    """Return the sum over all rows. Raises what reading them raises."""
    blocks = (DEPTH + 2) * rows.store.layout.block_bytes  # one of them is a copy
    threads = cores.lanes(blocks + 2 * sums.nbytes + rows.working)
    task = Task("evaluation", _one_group, each=_each_group)
    found: T = local_executor(threads).reduce(
        task, rows.groups(sums.nbytes), Joins(sums.join), (rows, sums), ignore_progress
    )
    return found


def _each_group(groups: Iterator[Group], rows: RowsInGroups, sums: Summation[T]) -> Generator[T]:
    return rows.each(groups, sums)


def _one_group(group: Group, rows: RowsInGroups, sums: Summation[T]) -> T:
    with closing(rows.each(iter([group]), sums)) as found:
        return next(found)


def _visits(groups: Iterator[Group], known: deque[Group]) -> Iterator[Visit]:
    """The visits to groups as they come; ``known`` gets those whose visits were asked for."""
    for group in groups:
        known.append(group)
        for chunk in group.chunks:
            yield Visit(0, chunk, 0, shuffled=False, last=chunk == group.chunks[-1])


@dataclass(slots=True)
class _RowsInOrder:
    """Numbers of rows from one on, taken one part after the other."""

    states: RowNumbers
    """Where they are."""
    lock: Any
    """Held by who loads some of them."""
    chunk: int
    """The next chunk."""
    rest: Float64 | None = None
    """What is left of the one before, (problems, n)."""

    @staticmethod
    def beginning(states: RowNumbers, lock: Any, row: int) -> _RowsInOrder:
        """Those from a row of the store on."""
        ends = np.cumsum(states.layout.chunks)
        chunk = int(np.searchsorted(ends, row, side="right"))
        found = _RowsInOrder(states, lock, chunk)
        found.take(row - (int(ends[chunk - 1]) if chunk else 0))
        return found

    def take(self, rows: int) -> Float64 | None:
        """Return those of the next rows, (problems, rows)."""
        while rows and (self.rest is None or self.rest.shape[1] < rows):
            with self.lock:
                found = self.states.load(self.chunk).copy()
            self.rest = found if self.rest is None else np.concatenate([self.rest, found], axis=1)
            self.chunk += 1
        if self.rest is None:
            return None
        taken, self.rest = self.rest[:, :rows], self.rest[:, rows:]
        return taken
