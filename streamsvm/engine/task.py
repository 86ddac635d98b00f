"""The task of a fit: one pass over one group of chunks, on copies of the solvers' states that nobody else sees."""

from __future__ import annotations

import copy
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from streamsvm.engine.partition import Group
from streamsvm.engine.state_files import DriverState, Sidecar
from streamsvm.engine.state_transfer import clone, serialize
from streamsvm.engine.trainer import order_within, view_of
from streamsvm.errors import DataError
from streamsvm.features.scaling import Raw
from streamsvm.schedule.budget import anonymous_bytes
from streamsvm.schedule.plan import epoch_order, visit_seed
from streamsvm.schedule.stream import Loaded, Stream
from streamsvm.store import open_store
from streamsvm.store.views.cached import Resident
from streamsvm.store.views.subset import Section
from streamsvm.types import Block, Certificate, FeatureMap, Problem, Prunable, SharedRows, Store, Visit

STORES_KNOWN = 4
"""Manifests a worker remembers."""


@dataclass(frozen=True, slots=True)
class Work:
    """What stays the same in all rounds of a fit. Paths, not data."""

    store: str
    digest: str
    solver: Any
    problems: tuple[Problem, ...]
    features: FeatureMap
    seed: int = 0
    depth: int = 1
    retain: bool = True
    together: bool = False
    """Whether the rows of a group are put together and visited as one block."""
    sidecars: tuple[Sidecar, ...] = ()
    chunks: tuple[int, ...] | None = None
    """Of the store, those that are trained on; None: all."""
    driver_state: DriverState | None = None
    """Where that part of a state is kept which only the end of a pass looks at."""


class Round(NamedTuple):
    """What a pass begins with: ``states`` are those of the problems that are not done, by their number."""

    number: int
    states: tuple[tuple[int, Any], ...]
    version: int = 0
    """Of what the last round has left on disk."""
    drop: tuple[int, ...] = ()
    bounds: dict[int, Any] | None = None
    """By problem, what tasks of this round in this process have shown so far (``types.Prunable``); they fill it in."""


class Partial(NamedTuple):
    """What was found in the groups [first, stop)."""

    first: int
    stop: int
    states: list[Any]
    seconds: float
    waited: float
    peak: int


@dataclass(frozen=True, slots=True)
class Join:
    """Joins two contiguous into a new ``Partial``; a group that is missing or counted twice is an error of ours."""

    solver: Any

    def __call__(self, one: Partial, other: Partial) -> Partial:
        assert one.stop == other.first, f"groups up to {one.stop} are followed by {other.first}"
        pairs = zip(clone(one.states), other.states, strict=True)
        states = [self.solver.merge([a, clone(b)]) for a, b in pairs]
        seconds, waited = one.seconds + other.seconds, one.waited + other.waited
        return Partial(one.first, other.stop, states, seconds, waited, max(one.peak, other.peak))


def visit_group(group: Group, work: Work, begun: Round) -> Partial:
    """Visit the chunks of a group. Raises DataError, StorageError."""
    began = time.perf_counter()
    store = known_part(work.store, work.digest, work.chunks)
    states = {k: clone(state) for k, state in begun.states}
    for k, bound in dict(begun.bounds or {}).items():
        work.solver.set_bound(states[k], bound)
    rows = {car.state.name: car.load(group, begun.version) for car in work.sidecars}
    before = np.cumsum([0, *(store.layout.chunks[c] for c in group.chunks)]).tolist()
    visitor = _Visitor(work, states, rows, group, tuple(before))
    seen, features, visits = _course(store, group, work, begun.number)
    with Stream(seen, visits, depth=work.depth, retain=work.retain) as stream:
        for loaded in stream:
            visitor.visit(loaded, features)
    if begun.bounds is not None and isinstance(work.solver, Prunable):
        begun.bounds.update({k: work.solver.sample_bound(state) for k, state in states.items()})
    for car in work.sidecars:
        car.save(group, begun.version + 1, rows[car.state.name], begun.drop)
    seconds = time.perf_counter() - began
    return Partial(group.number, group.number + 1, list(states.values()), seconds, stream.waited, anonymous_bytes())


@lru_cache(STORES_KNOWN)
def known_store(path: str, digest: str) -> Store:
    """An open store, from memory if it was opened before. Raises MissingError, DataError E-CHANGED."""
    store = open_store(path)
    if store.digest != digest:
        hint = "run the job again; nothing else may write to a store that is in use"
        raise DataError(f"store '{path}' is not the one the job began with", code="E-CHANGED", hint=hint)
    return store


def known_part(path: str, digest: str, chunks: tuple[int, ...] | None) -> Store:
    """Some chunks of an open store, or all of it. Raises what ``known_store`` raises."""
    store = known_store(path, digest)
    return store if chunks is None else Section(store, chunks)


def _course(store: Store, group: Group, work: Work, number: int) -> tuple[Store, FeatureMap, Iterator[Visit]]:
    """What is read, through which map, and in which order."""
    features, shuffled = copy.copy(work.features), work.solver.shuffled
    section = Section(store, group.chunks)
    if work.together:
        seed = visit_seed(work.seed, number, group.chunks[0])
        prepared: Any = features
        return Resident(section, prepared.apply), Raw(prepared.bias), iter([Visit(number, 0, seed, shuffled, True)])
    places = {chunk: place for place, chunk in enumerate(group.chunks)}
    order = [c for c in epoch_order(store.layout, work.seed, number, shuffled) if c in places]
    seeds = {c: visit_seed(work.seed, number, c) for c in order}
    return section, features, (Visit(number, places[c], seeds[c], shuffled, c == order[-1]) for c in order)


@dataclass(slots=True)
class _Visitor:
    """Lets every problem's solver see a block; ``rows`` is the group's per-row state, changed in place."""

    work: Work
    states: dict[int, Any]
    rows: dict[str, Any]
    group: Group
    starts: tuple[int, ...]
    """Of each chunk of the group, counted from the group's first row."""

    def visit(self, loaded: Loaded, features: FeatureMap) -> None:
        """Show a chunk, or all rows of the group together, to the problems' solvers."""
        chunk, place = loaded.chunk, loaded.visit.chunk
        for part in features.parts(chunk.X):
            span = slice(part.start, part.stop)
            weight = None if chunk.weight is None else chunk.weight[span]
            here = slice(self.starts[place] + part.start, self.starts[place] + part.stop)
            if isinstance(self.work.solver, SharedRows):
                self.work.solver.prepare_shared(list(self.states.values()), part.X)
            for k, state in self.states.items():
                y, s = view_of(self.work.problems[k], chunk.codes[span], weight)
                order = order_within(loaded.order, part, keep=len(self.states) > 1)
                mine = {name: values[k][here] for name, values in self.rows.items()}
                number, start = self.group.chunks[place], self.group.starts[place] + part.start
                block = Block(part.X, y, s, number, start, order, loaded.visit.seed + part.start, rows=mine)
                self.work.solver.visit(state, block)


class Closed(NamedTuple):
    """A round that is over; states and certificates in the order of the problems it was begun with."""

    states: list[Any]
    certificates: list[Certificate]
    waited: float
    peak: int


def close_round(found: Partial, work: Work, begun: Round) -> Closed:
    """Close the pass of every problem. Raises DataError, StorageError."""
    numbers = [k for k, _ in begun.states]
    states = {k: clone(state) for k, state in zip(numbers, found.states, strict=True)}
    if work.driver_state is not None:
        work.driver_state.load(begun.version, states)
    certificates = [work.solver.finish(state) for state in states.values()]
    left = list(states.values())
    if work.driver_state is not None:
        work.driver_state.save(begun.version + 1, states, begun.drop)
        left = [work.driver_state.without(state) for state in left]
    return Closed([serialize(state) for state in left], certificates, found.waited, max(found.peak, anonymous_bytes()))
