"""Evaluate given weights and dual variables over all rows in one more reading, group by group: nothing is trained."""

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
from streamsvm.engine.block import block_of, own_rows
from streamsvm.engine.executor import Joins, Task, ignore_progress, local_executor
from streamsvm.engine.fit_state import RowNumbers
from streamsvm.engine.groups import lend_map
from streamsvm.engine.partition import Group, contiguous_groups, pass_groups
from streamsvm.losses import threshold
from streamsvm.rows import Float64, Rows, row_where
from streamsvm.schedule.stream import Loaded, Stream, epoch_visits
from streamsvm.solvers.evaluation import HALF_WIDTHS
from streamsvm.types import Block, FeatureMap, Problem, Store, Visit
from streamsvm.types.state import merge_states

T = TypeVar("T")
DEPTH = 1
"""Blocks read ahead by each thread."""
WAITING_BYTES = 16 << 20
"""What parts of a sum may hold together while they wait to be joined."""
COMPARED_CHUNKS, COMPARED_ROWS = 8, 256
"""Chunks, and rows of each of them, that are mapped twice to see what float32 does."""


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
        """Return the groups in which sums of ``nbytes`` bytes are taken: those of a pass, which layout and problems decide.

        All rows are one group where sums of parts that wait to be joined would take more than ``WAITING_BYTES``.
        """
        found = pass_groups(self.store.layout)
        return contiguous_groups(self.store.layout, 1) if nbytes * len(found).bit_length() > WAITING_BYTES else found

    def blocks(self) -> Iterator[ProblemBlock]:
        """Yield all blocks of all problems in order, without dual variables."""
        for group in pass_groups(self.store.layout):
            with lend_map(self.features, self._maps) as features, closing(self._visit_chunks(iter([group]))) as visited:
                for loaded, _ in visited:
                    yield from self._of(loaded, group, features, None)

    def each(self, groups: Iterator[Group], sums: Summation[T]) -> Generator[T]:
        """Yield the sum over each group, one after the other."""
        with lend_map(self.features, self._maps) as features, closing(self._visit_chunks(groups)) as visited:
            total, dual = sums.fresh(), None
            for loaded, group in visited:
                if loaded.visit.chunk == group.chunks[0]:
                    total, dual = sums.fresh(), self._rows_from(group)
                for one in self._of(loaded, group, features, dual):
                    sums.add(total, one)
                if loaded.visit.last:
                    yield total

    def _visit_chunks(self, groups: Iterator[Group]) -> Generator[tuple[Loaded, Group]]:
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


def sum_groups(rows: RowsInGroups, sums: Summation[T]) -> T:
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


def evaluate_problems(  # noqa: PLR0917  what is evaluated, and where
    store: Store,
    features: FeatureMap,
    problems: list[Problem],
    weights: list[Float64],
    dual: RowNumbers | None,
    dual_values: Callable[[int, Block], Float64 | None] = lambda _k, _block: None,
    working: int = 0,
) -> list[Any]:
    """Return the sums of every problem at its weights, and at the dual variables of all rows if there are any.

    ``dual`` has those, or ``dual_values`` says them of problem k and a block of features. Held-out chunks are left out.
    ``working``: bytes that each thread's map holds. Raises what reading the store raises.
    """
    rows = RowsInGroups(store, features, problems, dual, working)
    units = _units(rows, weights)

    def fresh() -> list[Any]:
        return [
            problem.kind.start_evaluation(problem, w, unit)
            for problem, w, unit in zip(problems, weights, units, strict=True)
        ]

    def add(found: list[Any], one: ProblemBlock) -> None:
        k, block, alpha = one
        found[k].add(block, dual_values(k, block) if alpha is None else alpha)

    vectors = sum(2 * len(HALF_WIDTHS) * w.nbytes for w in weights)
    return sum_groups(rows, Summation(fresh, add, _merge_evaluations, vectors))


def _merge_evaluations(one: list[Any], other: list[Any]) -> list[Any]:
    return [merge_states([mine, theirs]) for mine, theirs in zip(one, other, strict=True)]


def _units(rows: RowsInGroups, weights: list[Float64]) -> list[float]:
    """In which widths are said of each problem: 1, of margins that have no unit how large they are in its first block."""
    units = {k: 1.0 for k, problem in enumerate(rows.problems) if problem.regularizer.has_scale}
    for k, block, _ in rows.blocks() if len(units) < len(weights) else ():
        if k not in units:
            found = float(np.abs(operators.margins(block.X, weights[k])).mean()) if len(block.y) else 0.0
            units[k] = found or 1.0
        if len(units) == len(weights):
            break
    return [units.get(k, 1.0) for k in range(len(weights))]


class MarginChange(NamedTuple):
    """By how much margins differ between two maps, of some rows all over a store."""

    largest: float = 0.0
    """At most."""
    root_mean_square: float = 0.0
    """As a rule: what float32 rounds has either sign."""

    def larger(self, other: MarginChange) -> MarginChange:
        """Return the larger of both."""
        return MarginChange(*map(max, self, other))


def margins_apart(store: Store, one: FeatureMap, other: FeatureMap, weights: list[Float64]) -> list[MarginChange]:
    """Return for each weights (p,) or (classes, p) what margins are apart in two maps."""
    found: list[list[Float64]] = [[] for _ in weights]
    visits = list(epoch_visits(store.layout, 0, 0, shuffled=False))
    with Stream(store, iter(visits[:: -(-len(visits) // COMPARED_CHUNKS)])) as stream:
        for loaded in stream:
            chosen = np.arange(len(loaded.chunk.codes)) < COMPARED_ROWS
            values = [_decision_values(map_, row_where(loaded.chunk.X, chosen), weights) for map_ in (one, other)]
            for differences, f, g in zip(found, *values, strict=True):
                differences.append(f.ndim * np.abs(f - g).ravel())  # of classes a margin is a difference of two values
    return [_margin_change(np.concatenate(differences)) for differences in found]


def _margin_change(differences: Float64) -> MarginChange:
    return MarginChange(float(differences.max(initial=0.0)), float(np.sqrt(np.mean(np.square(differences)))))


def _decision_values(map_: FeatureMap, X: Rows, weights: list[Float64]) -> list[Float64]:
    """Those of rows, which the map may change, (n,) or (n, classes) for each."""
    parts = [[operators.margins(part.X, w.T) for w in weights] for part in map_.parts(X)]
    return [np.concatenate(values) for values in zip(*parts, strict=True)]


def weight_that_costs(
    store: Store, features: FeatureMap, problems: list[Problem], weights: list[Float64], off: list[float]
) -> list[float]:
    """Return for every problem sum C_i of the rows that cost something at its weights, or would if margins are off by ``off``."""

    def add(found: list[float], one: ProblemBlock) -> None:
        k, block, _ = one
        problem = problems[k]
        m = problem.kind.margins(operators.margins(block.X, weights[k].T), block.y)
        near = m < threshold(problem.loss) + off[k]
        found[k] += problem.C * float(block.s[near].sum(dtype=np.float64))

    sums = Summation(
        lambda: [0.0] * len(problems), add, lambda one, other: [a + b for a, b in zip(one, other, strict=True)]
    )
    return sum_groups(RowsInGroups(store, features, problems), sums)
