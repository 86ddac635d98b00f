"""Evaluate given weights and dual variables in one pass over all rows of a store, without training.

Groups of rows are summed on several threads, and the sums are joined in a fixed order, so that the result
has the same bits for any number of threads (``sum_groups``).
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
from streamsvm.compute.blocks import operators
from streamsvm.engine.block_visitor import block_of, own_rows
from streamsvm.engine.executor import Joins, Task, ignore_progress, local_executor
from streamsvm.engine.fit_state import PerRowValues
from streamsvm.engine.group_tasks import borrow_map
from streamsvm.engine.partition import Group, contiguous_groups, pass_groups
from streamsvm.losses import threshold
from streamsvm.rows import Float64, Rows, row_where
from streamsvm.schedule.stream import LoadedChunk, Stream, epoch_visits
from streamsvm.solvers.evaluation import CORNER_HALF_WIDTHS
from streamsvm.types import Block, FeatureMap, Problem, Store, Visit
from streamsvm.types.state import merge_states

T = TypeVar("T")
DEPTH, REMOTE_DEPTH = 1, 4
"""Number of blocks that each thread reads ahead: from a disk, and from an object store."""
MAX_WAITING_BYTES = 16 << 20
"""Largest total size of partial sums that wait to be joined."""
COMPARED_CHUNKS, COMPARED_ROWS = 8, 256
"""Number of chunks, and rows of each, whose features are computed by two maps to measure the effect of rounding in
float32."""


def evaluate_problems(  # noqa: PLR0917
    store: Store,
    features: FeatureMap,
    problems: list[Problem],
    weights: list[Float64],
    dual: PerRowValues | None,
    dual_values: Callable[[int, Block], Float64 | None] = lambda _k, _block: None,
    map_bytes: int = 0,
) -> list[Any]:
    """Return for every problem the sums of its evaluation at its weights, and at its dual variables if they are known.

    The dual variables are read from ``dual``; if it is None, ``dual_values`` returns those of problem k and a block.
    Chunks that a problem holds out are not counted. ``map_bytes``: the memory that each thread's map needs. Raises
    what reading the store raises.
    """
    rows = RowsInGroups(store, features, problems, dual, map_bytes)
    units = _units(rows, weights)

    def start() -> list[Any]:
        return [
            problem.kind.start_evaluation(problem, w, unit)
            for problem, w, unit in zip(problems, weights, units, strict=True)
        ]

    def add(evaluations: list[Any], problem_block: ProblemBlock) -> None:
        k, block, alpha = problem_block
        evaluations[k].add(block, dual_values(k, block) if alpha is None else alpha)

    vector_bytes = sum(2 * len(CORNER_HALF_WIDTHS) * w.nbytes for w in weights)
    return sum_groups(rows, Summation(start, add, _merge_evaluations, vector_bytes))


def _merge_evaluations(left: list[Any], right: list[Any]) -> list[Any]:
    return [merge_states([a, b]) for a, b in zip(left, right, strict=True)]


def _units(rows: RowsInGroups, weights: list[Float64]) -> list[float]:
    """Return the unit of each problem's margins: 1 if the regularizer fixes their scale, otherwise
    their mean absolute value in the first block.
    """
    units = {k: 1.0 for k, problem in enumerate(rows.problems) if problem.regularizer.has_scale}
    for k, block, _ in rows.blocks() if len(units) < len(weights) else ():
        if k not in units:
            mean = float(np.abs(operators.margins(block.X, weights[k])).mean()) if len(block.y) else 0.0
            units[k] = mean or 1.0
        if len(units) == len(weights):
            break
    return [units.get(k, 1.0) for k in range(len(weights))]


class MarginChange(NamedTuple):
    """Differences of margins between two feature maps, over some rows from all parts of a store."""

    largest: float = 0.0
    """The largest absolute difference."""
    root_mean_square: float = 0.0
    """The root of the mean square: the typical difference, since rounding errors have either sign."""

    def larger(self, other: MarginChange) -> MarginChange:
        """Return the larger value of each field."""
        return MarginChange(*map(max, self, other))


def measure_margin_changes(
    store: Store, one: FeatureMap, other: FeatureMap, weights: list[Float64]
) -> list[MarginChange]:
    """Return for each array of weights, (p,) or (classes, p), how much margins differ between two feature maps."""
    all_differences: list[list[Float64]] = [[] for _ in weights]
    visits = list(epoch_visits(store.layout, 0, 0, shuffled=False))
    with Stream(store, iter(visits[:: -(-len(visits) // COMPARED_CHUNKS)])) as stream:
        for loaded in stream:
            chosen = np.arange(len(loaded.chunk.codes)) < COMPARED_ROWS
            values = [_decision_values(map_, row_where(loaded.chunk.X, chosen), weights) for map_ in (one, other)]
            for differences, f, g in zip(all_differences, *values, strict=True):
                # A multinomial margin is a difference of two decision values, hence the factor f.ndim = 2.
                differences.append(f.ndim * np.abs(f - g).ravel())
    return [_margin_change(np.concatenate(differences)) for differences in all_differences]


def _margin_change(differences: Float64) -> MarginChange:
    return MarginChange(float(differences.max(initial=0.0)), float(np.sqrt(np.mean(np.square(differences)))))


def _decision_values(map_: FeatureMap, X: Rows, weights: list[Float64]) -> list[Float64]:
    """Return the decision values of rows, (n,) or (n, classes), for each array of weights. The map may change ``X``."""
    parts = [[operators.margins(part.X, w.T) for w in weights] for part in map_.parts(X)]
    return [np.concatenate(values) for values in zip(*parts, strict=True)]


def sum_weights_of_rows_with_loss(
    store: Store, features: FeatureMap, problems: list[Problem], weights: list[Float64], error: list[float]
) -> list[float]:
    """Return for every problem sum C_i over the rows whose loss can be above 0, if margins may be wrong by
    ``error``.
    """

    def add(totals: list[float], problem_block: ProblemBlock) -> None:
        k, block, _ = problem_block
        problem = problems[k]
        m = problem.kind.margins(operators.margins(block.X, weights[k].T), block.y)
        may_have_loss = m < threshold(problem.loss) + error[k]
        totals[k] += problem.C * float(block.s[may_have_loss].sum(dtype=np.float64))

    sums = Summation(
        lambda: [0.0] * len(problems), add, lambda left, right: [a + b for a, b in zip(left, right, strict=True)]
    )
    return sum_groups(RowsInGroups(store, features, problems), sums)


# -- sums over all rows, group by group


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
    dual: PerRowValues | None = None
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
            with (
                borrow_map(self.features, self._maps) as features,
                closing(self._visit_chunks(iter([group]))) as visited,
            ):
                for loaded, _ in visited:
                    yield from self._blocks_of_chunk(loaded, group, features, None)

    def sum_each_group(self, groups: Iterator[Group], sums: Summation[T]) -> Generator[T]:
        """Yield the sum over each group, one after the other."""
        with borrow_map(self.features, self._maps) as features, closing(self._visit_chunks(groups)) as visited:
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
        depth = REMOTE_DEPTH if self.store.layout.remote else DEPTH
        with Stream(self.store, _iterate_visits(groups, started_groups), depth=depth) as stream:
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
    layout = rows.store.layout
    # a request in flight needs its block and two copies of the body
    depth = 3 * REMOTE_DEPTH if layout.remote else DEPTH
    blocks = (depth + 2) * layout.block_bytes  # one of them is a copy
    threads = cores.threads_that_fit(blocks + 2 * sums.nbytes + rows.working)
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

    states: PerRowValues
    """The dual variables of all rows."""
    lock: Any
    """Held while a chunk is loaded, because ``states`` has one buffer."""
    chunk: int
    """The next chunk to load."""
    unread: Float64 | None = None
    """The numbers that are loaded but not read yet, (problems, n)."""

    @staticmethod
    def create_at(states: PerRowValues, lock: Any, row: int) -> _DualReader:
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
