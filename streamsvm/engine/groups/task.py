"""The task of a fit: one pass over groups of chunks, on copies of the solvers' states that nobody else sees.

A thread that visits several groups reads ahead over their borders (``visit_groups``). What it found of a group is a
``Partial``, and so is what neighboring ones are joined to (``Join``).
"""

from __future__ import annotations

import copy
import time
from collections import deque
from collections.abc import Generator, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

import numpy as np

from streamsvm.aliases import Array, Handle
from streamsvm.engine.block_visitor import ActiveProblem, BlockVisitor
from streamsvm.engine.job_store import OpenedStore, StoreReference
from streamsvm.engine.partition import Group
from streamsvm.engine.state_files import DriverState
from streamsvm.engine.state_transfer import clone, serialize, unpacked
from streamsvm.engine.training import steps_between
from streamsvm.features.scaling import Raw, Standardized
from streamsvm.schedule.budget import anonymous_bytes
from streamsvm.schedule.plan import epoch_order, visit_seed
from streamsvm.schedule.stream import Loaded, Stream
from streamsvm.store.read.retry import retries
from streamsvm.store.views.cached import Resident
from streamsvm.store.views.subset import Section
from streamsvm.types import (
    Certificate,
    DualWitness,
    FeatureMap,
    LeanParts,
    Mergeable,
    Problem,
    Prunable,
    RowState,
    Solver,
    State,
    Store,
    Visit,
)


class MergeableSolver(Solver[State], Mergeable[State], Protocol):
    """A solver of which several workers can each make a part of a pass."""


class GroupState(Protocol):
    """A number per row that a solver keeps from pass to pass, as the tasks of a fit come to it."""

    @property
    def state(self) -> RowState:
        """What the numbers are called, and their type."""
        ...

    def load(self, group: Group, version: int) -> Array:
        """Return what round ``version`` left, (problems, rows of the group); it may be changed. Raises DataError."""
        ...

    def leave(self, group: Group, version: int, values: Array, drop: tuple[int, ...]) -> Array | None:
        """Save what a round leaves, or return what whoever takes the result is to save. Raises StorageError."""
        ...


@dataclass(frozen=True, slots=True)
class Work:
    """What stays the same in all rounds of a fit. Where it is sent to other processes: paths, not data."""

    store: StoreReference | OpenedStore
    """What is trained on."""
    solver: MergeableSolver
    """What shows the rows their problems, and merges states."""
    problems: tuple[Problem, ...]
    """All problems of the fit."""
    features: FeatureMap
    """From stored rows to what the solver sees."""
    seed: int = 0
    """Of the order in which chunks and rows are visited."""
    depth: int = 1
    """Blocks read ahead, by each thread."""
    retain: bool = True
    """Whether the store may stay in the page cache between rounds."""
    whole_groups: bool = False
    """Whether the rows of a group are put together and visited as one block."""
    state_files: tuple[GroupState, ...] = ()
    """Where per-row state is, one entry a name."""
    driver_state: DriverState | None = None
    """Where that part of a state is kept which only the end of a pass looks at; None: there is no such part. In one process it
    stays in the states, and this is where a run on a cluster may have left it."""
    witnesses: bool = False
    """Whether what the dual variables are read off (``types.DualWitness``) is wanted when the training is over."""
    maps: list[FeatureMap] = field(default_factory=list)
    """Copies of the map that no thread of this process is using: they have buffers."""

    @contextmanager
    def feature_map(self) -> Iterator[FeatureMap]:
        """Lend a thread a map of its own."""
        try:
            features = self.maps.pop()
        except IndexError:
            features = copy.copy(self.features)
        try:
            yield features
        finally:
            self.maps.append(features)


class Round(NamedTuple):
    """What a pass begins with."""

    number: int
    """Passes made before this one."""
    states: tuple[tuple[int, State], ...]
    """The states of the problems that are not done, each with the problem's index."""
    version: int = 0
    """Of what the last round has left on disk."""
    drop: tuple[int, ...] = ()
    """Versions that nobody will ask for again."""
    bounds: dict[int, Handle] | None = None
    """By problem, what tasks of this round in this process have shown so far (``types.Prunable``); they fill it in."""
    deadline: float = float("inf")
    """When the time limit is reached, by ``time.time``: a moment that means the same to all machines."""
    in_place: bool = False
    """Whether the one group there is goes on with the states themselves: the rest of a pass that an earlier version
    began.
    """
    ending: bool = False
    """Whether this pass is the last one."""

    def learn(self, solver: Mergeable[State], states: list[State]) -> None:
        """Take in what the states of some groups, in the order of ``states``, show about all others."""
        if self.bounds is not None and isinstance(solver, Prunable):
            numbers = (k for k, _ in self.states)
            self.bounds.update({k: solver.sample_bound(state) for k, state in zip(numbers, states, strict=True)})


class Partial(NamedTuple):
    """What was found in the groups [first, stop)."""

    first: int
    """The number of the first group."""
    stop: int
    """One beyond the number of the last group."""
    states: list[State]
    """In the order of ``Round.states``."""
    seconds: float = 0.0
    """Of work, over all groups."""
    waited: float = 0.0
    """Seconds of them spent waiting for blocks."""
    reads_repeated: int = 0
    """Reads that succeeded only at another try."""
    peak: int = 0
    """The most bytes of anonymous memory a process had in use when it was done with a group."""
    rows: tuple[tuple[str, Array], ...] = ()
    """Per-row state of the group by name, where whoever takes the result is to save it."""


@dataclass(frozen=True, slots=True)
class Join:
    """Joins what was found in neighboring groups into a new ``Partial``."""

    solver: Mergeable[State]
    """What merges states."""
    begun: Round | None = None
    """The round, where nobody else needs what is joined, which is then changed; None: it is left as it is."""

    def __call__(self, one: Partial, other: Partial) -> Partial:
        """Join two; a group that is missing or counted twice is an error of ours."""
        assert one.stop == other.first, f"groups up to {one.stop} are followed by {other.first}"
        firsts, seconds = one.states, other.states
        if self.begun is None:
            firsts, seconds = clone(firsts), clone(seconds)
        states = [self.solver.merge([a, b]) for a, b in zip(firsts, seconds, strict=True)]
        if self.begun is not None:
            self.begun.learn(self.solver, states)
        return spent_together([one, other], states)


def spent_together(parts: list[Partial], states: list[State]) -> Partial:
    """The states several parts were joined to, with what all of them took."""
    return Partial(
        parts[0].first,
        parts[-1].stop,
        states,
        sum(part.seconds for part in parts),
        sum(part.waited for part in parts),
        sum(part.reads_repeated for part in parts),
        max(part.peak for part in parts),
    )


def part_of(solver: MergeableSolver, state: State) -> State:
    """The state as one group is to begin with it: what its visits change is its own."""
    return solver.part(unpacked(state)) if isinstance(solver, LeanParts) else clone(state)


def visit_group(group: Group, work: Work, begun: Round) -> Partial:
    """Visit the chunks of a group. Raises DataError, StorageError."""
    with closing(visit_groups(iter([group]), work, begun)) as found:
        return next(found)


def visit_groups(groups: Iterator[Group], work: Work, begun: Round) -> Generator[Partial]:
    """Visit groups one after the other; what is read ahead may be of the next one. Raises DataError, StorageError."""
    store = work.store.open()
    with work.feature_map() as features:
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
        if isinstance(work.solver, Prunable):
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


class Closed(NamedTuple):
    """A round that is over; states and certificates in the order of the problems it was begun with."""

    states: list[State]
    """Serialized, without what stays on disk."""
    certificates: list[Certificate]
    """What is now known of each problem."""
    witnesses: list[State | None]
    """Of each problem that takes part in no further pass, serialized, where that is wanted: see ``Work.witnesses``."""
    spent: Partial
    """What all groups took; its states are gone."""


def close_round(found: Partial, work: Work, begun: Round) -> Closed:
    """Close the pass of every problem. Raises DataError, StorageError."""
    numbers = [k for k, _ in begun.states]
    states = dict(zip(numbers, clone(found.states), strict=True))  # in one go: what they share stays shared
    if work.driver_state is not None:
        work.driver_state.load(begun.version, states)
    visitor = BlockVisitor(work.solver, work.features)
    deadline = time.perf_counter() + (begun.deadline - time.time())
    visitor.gathered(list(states.values()))
    certificates = [visitor.finish(state, deadline) for state in states.values()]
    for (k, state), certificate in zip(states.items(), certificates, strict=True):
        if certificate.ends(work.problems[k]):  # no further pass looks at what steps would come to
            continue
        for _ in steps_between(work.solver, state, deadline):  # nobody saves a round before it is over
            pass
    left, witnesses = list(states.values()), _witnesses(states, certificates, work, begun)
    if work.driver_state is not None:
        work.driver_state.save(begun.version + 1, states, begun.drop)
        left = [work.driver_state.without(state) for state in left]
    spent = found._replace(states=[], peak=max(found.peak, anonymous_bytes()))
    return Closed([serialize(state) for state in left], certificates, witnesses, spent)


def _witnesses(
    states: dict[int, State], certificates: list[Certificate], work: Work, begun: Round
) -> list[State | None]:
    """What is sent of whole states, which are here alone, because the dual variables are read off it."""
    solver = work.solver
    if not (work.witnesses and isinstance(solver, DualWitness)):
        return [None] * len(states)
    return [
        serialize(solver.witness(state)) if begun.ending or found.ends(work.problems[k]) else None
        for (k, state), found in zip(states.items(), certificates, strict=True)
    ]
