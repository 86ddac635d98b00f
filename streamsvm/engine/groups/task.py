"""The task of a fit: one pass over groups of chunks, on copies of the solvers' states that nobody else sees.

A thread that visits several groups reads ahead over their borders (``visit_groups``). What it found of a group is a
``Partial``, and so is what neighboring ones are joined to (``Join``).
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Generator, Iterator
from contextlib import closing
from typing import NamedTuple

import numpy as np

from streamsvm.engine.block_visitor import ActiveProblem, BlockVisitor
from streamsvm.engine.groups.work import Partial, Round, Work, part_of
from streamsvm.engine.lent_map import lent
from streamsvm.engine.partition import Group
from streamsvm.features.scaling import Raw, Standardized
from streamsvm.schedule.budget import anonymous_bytes
from streamsvm.schedule.plan import epoch_order, visit_seed
from streamsvm.schedule.stream import Loaded, Stream
from streamsvm.store.read.retry import retries
from streamsvm.store.views.cached import Resident
from streamsvm.store.views.subset import Section
from streamsvm.types import (
    FeatureMap,
    Store,
    Visit,
)


def visit_group(group: Group, work: Work, begun: Round) -> Partial:
    """Visit the chunks of a group. Raises DataError, StorageError."""
    with closing(visit_groups(iter([group]), work, begun)) as found:
        return next(found)


def visit_groups(groups: Iterator[Group], work: Work, begun: Round) -> Generator[Partial]:
    """Visit groups one after the other; what is read ahead may be of the next one. Raises DataError, StorageError."""
    store = work.store.open()
    with lent(work.features, work.maps) as features:
        if work.whole_groups:
            for group in groups:
                yield _visit_whole(group, store, features, work, begun)
            return
        visitor, known = BlockVisitor(work.solver, features), deque[Group]()
        visits = _visits(groups, known, store, work, begun.number)
        under_way: _GroupVisit | None = None
        spent = _Spent.now(0.0)
        with Stream(store, visits, depth=work.depth, retain=work.retain) as stream:
            for loaded in stream:
                under_way = under_way or _GroupVisit(known.popleft(), store, work, begun)
                under_way.visit(loaded, loaded.visit.chunk, visitor)
                if loaded.visit.last:
                    before, spent = spent, _Spent.now(stream.waited)
                    yield under_way.found(spent, before)
                    under_way = None


def _visits(groups: Iterator[Group], known: deque[Group], store: Store, work: Work, number: int) -> Iterator[Visit]:
    """The visits of pass ``number`` to groups as they come; ``known`` gets those whose visits were asked for."""
    shuffled = work.solver.shuffled
    every = epoch_order(store.layout, work.seed, number, shuffled) if shuffled else ()
    for group in groups:
        known.append(group)
        mine = frozenset(group.chunks)
        order = [chunk for chunk in every if chunk in mine] if shuffled else group.chunks
        for chunk in order:
            yield Visit(number, chunk, visit_seed(work.seed, number, chunk), shuffled, chunk == order[-1])


def _visit_whole(group: Group, store: Store, features: FeatureMap, work: Work, begun: Round) -> Partial:
    """Visit all rows of a group as one block."""
    assert isinstance(features, Raw | Standardized)
    seed = visit_seed(work.seed, begun.number, group.chunks[0])
    rows = Resident(Section(store, group.chunks), features.apply)
    visitor = BlockVisitor(work.solver, Raw(features.bias))
    visits = iter([Visit(begun.number, 0, seed, work.solver.shuffled, True)])
    before, one = _Spent.now(0.0), _GroupVisit(group, store, work, begun)
    one.spans[group.chunks[0]] = slice(0, group.rows)
    with Stream(rows, visits, depth=work.depth, retain=work.retain) as stream:
        for loaded in stream:
            one.visit(loaded, group.chunks[0], visitor)
    return one.found(_Spent.now(stream.waited), before)


class _Spent(NamedTuple):
    """What a thread has spent."""

    moment: float
    """On the clock of ``time.perf_counter``."""
    waited: float
    """Seconds in which it waited for blocks."""
    reads_repeated: int
    """Reads of this process that succeeded only at another try."""

    @staticmethod
    def now(waited: float) -> _Spent:
        """What it is now."""
        return _Spent(time.perf_counter(), waited, retries())

    def since(self, before: _Spent) -> tuple[float, float, int]:
        """Seconds, seconds of waiting and repeated reads since ``before``."""
        return self.moment - before.moment, self.waited - before.waited, self.reads_repeated - before.reads_repeated


class _GroupVisit:
    """A group while it is visited: states and per-row state."""

    def __init__(self, group: Group, store: Store, work: Work, begun: Round) -> None:
        self._group, self._work, self._begun = group, work, begun
        self._states = {k: state if begun.in_place else part_of(work.solver, state) for k, state in begun.states}
        for k, bound in dict(begun.bounds or {}).items():
            work.solver.set_bound(self._states[k], bound)
        self._rows = {files.state.name: files.load(group, begun.version) for files in work.state_files}
        self._starts = dict(zip(group.chunks, group.starts, strict=True))
        ends = np.cumsum([0, *(store.layout.chunks[chunk] for chunk in group.chunks)]).tolist()
        self.spans = {chunk: slice(*ends[k : k + 2]) for k, chunk in enumerate(group.chunks)}
        """Of each chunk, its rows counted from the first row of the group."""

    def visit(self, loaded: Loaded, chunk: int, visitor: BlockVisitor) -> None:
        """Show a chunk, or all rows together as if of the first chunk, to the problems' solvers."""
        active = [ActiveProblem(k, self._work.problems[k], state) for k, state in self._states.items()]
        mine = {name: values[:, self.spans[chunk]] for name, values in self._rows.items()}
        visitor.visit(loaded, chunk, self._starts[chunk], active, mine)

    def found(self, spent: _Spent, before: _Spent) -> Partial:
        """What came of it; per-row state is saved, or with it."""
        begun, group, states = self._begun, self._group, list(self._states.values())
        begun.learn(self._work.solver, states)
        left = [
            (files.state.name, files.leave(group, begun.version + 1, self._rows[files.state.name], begun.drop))
            for files in self._work.state_files
        ]
        rows = tuple((name, values) for name, values in left if values is not None)
        return Partial(group.number, group.number + 1, states, *spent.since(before), anonymous_bytes(), rows)
