"""Sum over all rows of a store, for each problem. Groups of rows are summed on several threads, and the sums are joined in
a fixed order, so that the bits do not depend on the threads.
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
from streamsvm.engine.block_visitor import block_of, own_rows
from streamsvm.engine.executor import Joins, Task, ignore_progress, local_executor
from streamsvm.engine.fit_state import RowNumbers
from streamsvm.engine.group_tasks import lend_map
from streamsvm.engine.partition import Group, contiguous_groups, pass_groups
from streamsvm.rows import Float64
from streamsvm.schedule.stream import LoadedChunk, Stream
from streamsvm.types import Block, FeatureMap, Problem, Store, Visit

T = TypeVar("T")
DEPTH = 1
"""Number of blocks that each thread reads ahead."""
MAX_WAITING_BYTES = 16 << 20
"""Largest total size of partial sums that wait to be joined."""


class ProblemBlock(NamedTuple):
    """A block of one problem, with its dual variables if they are known."""

    problem: int
    """The index of the problem."""
    block: Block
    """The rows with the problem's targets and weights; valid until the next block."""
    alpha: Float64 | None
    """Dual variables, (n,) or (n, classes); None if they are not known."""


class Summation(NamedTuple, Generic[T]):
    """The functions by which something is summed over blocks."""

    start: Callable[[], T]
    """Returns the sum over no rows."""
    add: Callable[[T, ProblemBlock], None]
    """Adds a block to a sum. Each of several threads has a sum of its own."""
    join: Callable[[T, T], T]
    """Returns the total of two sums; may change the first."""
    nbytes: int = 0
    """Bytes of a sum."""


@dataclass(slots=True)
class RowsInGroups:
    """All rows of a store as blocks of some problems, without the chunks that each problem holds out."""

    store: Store
    features: FeatureMap
    """The map from stored rows to the features that the problems see."""
    problems: list[Problem]
    dual: RowNumbers | None = None
    """The dual variables of all rows, in chunks that may differ from those of ``store``. None: they are not known."""
    working: int = 0
    """Bytes of memory that each thread needs beside blocks and sums."""
    _maps: list[FeatureMap] = field(init=False)
    _lock: Any = field(default_factory=threading.Lock)
    """Protects the buffer of ``dual``."""

    def __post_init__(self) -> None:
        self._maps = [self.features]

    def groups(self, nbytes: int) -> list[Group]:
        """Return the groups over which sums of ``nbytes`` bytes are computed: those of a pass, or a single one.

        All rows are a single group if partial sums that wait to be joined would take more than ``MAX_WAITING_BYTES``.
        """
        groups = pass_groups(self.store.layout)
        too_large = nbytes * len(groups).bit_length() > MAX_WAITING_BYTES
        return contiguous_groups(self.store.layout, 1) if too_large else groups

    def blocks(self) -> Iterator[ProblemBlock]:
        """Yield all blocks of all problems in order, without dual variables."""
        for group in pass_groups(self.store.layout):
            with lend_map(self.features, self._maps) as features, closing(self._visit_chunks(iter([group]))) as visited:
                for loaded, _ in visited:
                    yield from self._blocks_of_chunk(loaded, group, features, None)

    def sum_each_group(self, groups: Iterator[Group], sums: Summation[T]) -> Generator[T]:
        """Yield the sum over each group, one after the other."""
        with lend_map(self.features, self._maps) as features, closing(self._visit_chunks(groups)) as visited:
            total, dual = sums.start(), None
            for loaded, group in visited:
                if loaded.visit.chunk == group.chunks[0]:
                    total, dual = sums.start(), self._dual_reader_at(group)
                for problem_block in self._blocks_of_chunk(loaded, group, features, dual):
                    sums.add(total, problem_block)
                if loaded.visit.last:
                    yield total

    def _visit_chunks(self, groups: Iterator[Group]) -> Generator[tuple[LoadedChunk, Group]]:
        """Yield the chunks of the groups, each with its group; chunks of the next group may be read ahead."""
        started_groups = deque[Group]()
        with Stream(self.store, _iterate_visits(groups, started_groups), depth=DEPTH) as stream:
            for loaded in stream:
                yield loaded, started_groups[0]
                if loaded.visit.last:
                    started_groups.popleft()

    def _blocks_of_chunk(
        self, loaded: LoadedChunk, group: Group, features: FeatureMap, dual: _DualReader | None
    ) -> Iterator[ProblemBlock]:
        """Yield the blocks of all problems for a chunk of a group."""
        chunk = loaded.visit.chunk
        start = group.starts[chunk - group.chunks[0]]
        alpha = None if dual is None else dual.read(len(loaded.chunk.codes))
        for part in features.parts(loaded.chunk.X):
            for k, problem in enumerate(self.problems):
                block = None if chunk in problem.held_out else block_of(problem, loaded, part, start, reused=True)
                if block is not None:
                    block_alpha = None if alpha is None else own_rows(alpha[k, part.start : part.stop], block.places)
                    yield ProblemBlock(k, block, block_alpha)

    def _dual_reader_at(self, group: Group) -> _DualReader | None:
        return None if self.dual is None else _DualReader.create_at(self.dual, self._lock, group.starts[0])


def sum_groups(rows: RowsInGroups, sums: Summation[T]) -> T:
    """Return the sum over all rows, computed on several threads. Raises what reading the store raises."""
    blocks = (DEPTH + 2) * rows.store.layout.block_bytes  # one of them is a copy
    threads = cores.lanes(blocks + 2 * sums.nbytes + rows.working)
    task = Task("evaluation", _sum_group, function_of_parts=_sum_each_group)
    total: T = local_executor(threads).reduce(
        task, rows.groups(sums.nbytes), Joins(sums.join), (rows, sums), ignore_progress
    )
    return total


def _sum_each_group(groups: Iterator[Group], rows: RowsInGroups, sums: Summation[T]) -> Generator[T]:
    return rows.sum_each_group(groups, sums)


def _sum_group(group: Group, rows: RowsInGroups, sums: Summation[T]) -> T:
    with closing(rows.sum_each_group(iter([group]), sums)) as totals:
        return next(totals)


def _iterate_visits(groups: Iterator[Group], started_groups: deque[Group]) -> Iterator[Visit]:
    """Yield the visits of all groups, in order. Appends each group to ``started_groups`` before its first visit."""
    for group in groups:
        started_groups.append(group)
        for chunk in group.chunks:
            yield Visit(0, chunk, 0, shuffled=False, last=chunk == group.chunks[-1])


@dataclass(slots=True)
class _DualReader:
    """Reads the dual variables of consecutive rows, which are stored in chunks."""

    states: RowNumbers
    """The dual variables of all rows."""
    lock: Any
    """Held while a chunk is loaded, because ``states`` has one buffer."""
    chunk: int
    """The next chunk to load."""
    unread: Float64 | None = None
    """The numbers that are loaded but not read yet, (problems, n)."""

    @staticmethod
    def create_at(states: RowNumbers, lock: Any, row: int) -> _DualReader:
        """Return a reader that starts at a row of the store."""
        ends = np.cumsum(states.layout.chunks)
        chunk = int(np.searchsorted(ends, row, side="right"))
        reader = _DualReader(states, lock, chunk)
        reader.read(row - (int(ends[chunk - 1]) if chunk else 0))
        return reader

    def read(self, rows: int) -> Float64 | None:
        """Return the numbers of the next ``rows`` rows, (problems, rows)."""
        while rows and (self.unread is None or self.unread.shape[1] < rows):
            with self.lock:
                values = self.states.load(self.chunk).copy()
            self.unread = values if self.unread is None else np.concatenate([self.unread, values], axis=1)
            self.chunk += 1
        if self.unread is None:
            return None
        read, self.unread = self.unread[:, :rows], self.unread[:, rows:]
        return read
