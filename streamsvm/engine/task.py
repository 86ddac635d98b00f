"""The task of a fit: one pass over one group of chunks, on copies of the solvers' states that nobody else sees."""

from __future__ import annotations

import copy
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np

from streamsvm.aliases import Array, Handle
from streamsvm.engine.block_visitor import ActiveProblem, BlockVisitor
from streamsvm.engine.job_store import StoreReference
from streamsvm.engine.partition import Group
from streamsvm.engine.state_files import DriverState, GroupStateFiles
from streamsvm.engine.state_transfer import clone, serialize
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
    FeatureMap,
    Mergeable,
    Problem,
    Prunable,
    Solver,
    State,
    Store,
    Visit,
)


class MergeableSolver(Solver[State], Mergeable[State], Protocol):
    """A solver of which several workers can each make a part of a pass."""


@dataclass(frozen=True, slots=True)
class Work:
    """What stays the same in all rounds of a fit. Paths, not data."""

    store: StoreReference
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
    """Blocks read ahead."""
    retain: bool = True
    """Whether the store may stay in the page cache between rounds."""
    whole_groups: bool = False
    """Whether the rows of a group are put together and visited as one block."""
    state_files: tuple[GroupStateFiles, ...] = ()
    """Where per-row state is, one entry a name."""
    driver_state: DriverState | None = None
    """Where that part of a state is kept which only the end of a pass looks at; None: there is no such part."""


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


class Partial(NamedTuple):
    """What was found in the groups [first, stop)."""

    first: int
    """The number of the first group."""
    stop: int
    """One beyond the number of the last group."""
    states: list[State]
    """In the order of ``Round.states``."""
    seconds: float
    """Of work, over all groups."""
    waited: float
    """Seconds of them spent waiting for blocks."""
    reads_repeated: int
    """Reads that succeeded only at another try."""
    peak: int
    """The most bytes of anonymous memory a process had in use when it was done with a group."""


@dataclass(frozen=True, slots=True)
class Join:
    """Joins what was found in neighboring groups into a new ``Partial``."""

    solver: Mergeable[State]
    """What merges states."""

    def __call__(self, one: Partial, other: Partial) -> Partial:
        """Join two; a group that is missing or counted twice is an error of ours."""
        assert one.stop == other.first, f"groups up to {one.stop} are followed by {other.first}"
        pairs = zip(clone(one.states), other.states, strict=True)
        states = [self.solver.merge([a, clone(b)]) for a, b in pairs]
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


def visit_group(group: Group, work: Work, begun: Round) -> Partial:
    """Visit the chunks of a group. Raises DataError, StorageError."""
    began, repeated = time.perf_counter(), retries()
    store = work.store.open()
    states = {k: clone(state) for k, state in begun.states}
    if isinstance(work.solver, Prunable):
        for k, bound in dict(begun.bounds or {}).items():
            work.solver.set_bound(states[k], bound)
    rows = {files.state.name: files.load(group, begun.version) for files in work.state_files}
    reading = _reading(store, group, work, begun.number)
    with Stream(reading.store, reading.visits, depth=work.depth, retain=work.retain) as stream:
        for loaded in stream:
            _visit(loaded, reading, group, work, states, rows)
    if begun.bounds is not None and isinstance(work.solver, Prunable):
        begun.bounds.update({k: work.solver.sample_bound(state) for k, state in states.items()})
    for files in work.state_files:
        files.save(group, begun.version + 1, rows[files.state.name], begun.drop)
    spent = time.perf_counter() - began, stream.waited, retries() - repeated
    return Partial(group.number, group.number + 1, list(states.values()), *spent, anonymous_bytes())


class _Reading(NamedTuple):
    """How the rows of a group are read."""

    store: Store
    """The group's chunks, or all its rows as one chunk."""
    visitor: BlockVisitor
    """What shows them to the solver."""
    visits: Iterator[Visit]
    """In which order; chunks by their place in the group."""
    offsets: tuple[int, ...]
    """The first row of each chunk, counted from the group's first row; one more for the end."""


def _reading(store: Store, group: Group, work: Work, number: int) -> _Reading:
    """How a group is read in pass ``number``."""
    features, shuffled = copy.copy(work.features), work.solver.shuffled
    section = Section(store, group.chunks)
    if work.whole_groups:
        assert isinstance(features, Raw | Standardized)
        seed = visit_seed(work.seed, number, group.chunks[0])
        visitor = BlockVisitor(work.solver, Raw(features.bias))
        visits = iter([Visit(number, 0, seed, shuffled, True)])
        return _Reading(Resident(section, features.apply), visitor, visits, (0, group.rows))
    places = {chunk: place for place, chunk in enumerate(group.chunks)}
    order = [c for c in epoch_order(store.layout, work.seed, number, shuffled) if c in places]
    seeds = {c: visit_seed(work.seed, number, c) for c in order}
    offsets = np.cumsum([0, *(store.layout.chunks[c] for c in group.chunks)]).tolist()
    visits = (Visit(number, places[c], seeds[c], shuffled, c == order[-1]) for c in order)
    return _Reading(section, BlockVisitor(work.solver, features), visits, tuple(offsets))


def _visit(  # noqa: PLR0917 (what ``visit_group`` has at hand)
    loaded: Loaded, reading: _Reading, group: Group, work: Work, states: dict[int, State], rows: dict[str, Array]
) -> None:
    """Show a chunk of the group, or all its rows together, to the problems' solvers. Changes states and rows."""
    place = loaded.visit.chunk
    span = slice(reading.offsets[place], reading.offsets[place + 1])
    active = [ActiveProblem(k, work.problems[k], state) for k, state in states.items()]
    mine = {name: values[:, span] for name, values in rows.items()}
    reading.visitor.visit(loaded, group.chunks[place], group.starts[place], active, mine)


class Closed(NamedTuple):
    """A round that is over; states and certificates in the order of the problems it was begun with."""

    states: list[State]
    """Serialized, without what stays on disk."""
    certificates: list[Certificate]
    """What is now known of each problem."""
    spent: Partial
    """What all groups took; its states are gone."""


def close_round(found: Partial, work: Work, begun: Round) -> Closed:
    """Close the pass of every problem. Raises DataError, StorageError."""
    numbers = [k for k, _ in begun.states]
    states = {k: clone(state) for k, state in zip(numbers, found.states, strict=True)}
    if work.driver_state is not None:
        work.driver_state.load(begun.version, states)
    visitor = BlockVisitor(work.solver, work.features)
    deadline = time.perf_counter() + (begun.deadline - time.time())
    certificates = [visitor.finish(state, deadline) for state in states.values()]
    for state in states.values():
        for _ in steps_between(work.solver, state, deadline):  # nobody saves a round before it is over
            pass
    left = list(states.values())
    if work.driver_state is not None:
        work.driver_state.save(begun.version + 1, states, begun.drop)
        left = [work.driver_state.without(state) for state in left]
    spent = found._replace(states=[], peak=max(found.peak, anonymous_bytes()))
    return Closed([serialize(state) for state in left], certificates, spent)
