"""What a task of a fit is given, what it finds of a group, and how what was found of neighboring groups is joined."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from streamsvm.aliases import Array, Handle
from streamsvm.engine.job_store import OpenedStore, StoreReference
from streamsvm.engine.partition import Group
from streamsvm.engine.state.state_files import DriverState
from streamsvm.engine.state.state_transfer import clone, unpacked
from streamsvm.types import (
    AnySolver,
    FeatureMap,
    Problem,
    RowState,
    State,
)


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
    solver: AnySolver
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
    """Whether what the dual variables are read off (``types.Solver.witness``) is wanted when the training is over."""
    maps: list[FeatureMap] = field(default_factory=list)
    """Copies of the map that no thread of this process is using: they have buffers."""


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
    """By problem, what tasks of this round in this process have shown so far (``types.Solver.sample_bound``); they fill it in."""
    deadline: float = float("inf")
    """When the time limit is reached, by ``time.time``: a moment that means the same to all machines."""
    in_place: bool = False
    """Whether the one group there is goes on with the states themselves: the rest of a pass that an earlier version
    began.
    """
    ending: bool = False
    """Whether this pass is the last one."""

    def learn(self, solver: AnySolver, states: list[State]) -> None:
        """Take in what the states of some groups, in the order of ``states``, show about all others."""
        if self.bounds is None:
            return
        for (k, _), state in zip(self.states, states, strict=True):
            bound = solver.sample_bound(state)
            if bound is not None:
                self.bounds[k] = bound


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
    """The most bytes of anonymous memory a process had in use: when it was done with a group; on a cluster, at any time."""
    rows: tuple[tuple[str, Array], ...] = ()
    """Per-row state of the group by name, where whoever takes the result is to save it."""

    def at_peak(self, peak: int) -> Partial:
        """The same, made by a process that had as many bytes in use."""
        return self._replace(peak=max(self.peak, peak))


@dataclass(frozen=True, slots=True)
class Join:
    """Joins what was found in neighboring groups into a new ``Partial``."""

    solver: AnySolver
    """What merges states."""
    begun: Round | None = None
    """The round, where nobody else needs what is joined, which is then changed; None: it is left as it is."""

    def of_own(self, _work: Work, begun: Round) -> Join:
        """Return the join of partial results that whoever joins them has made; see ``executor.CarefulJoin``."""
        return Join(self.solver, begun)

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


def part_of(solver: AnySolver, state: State) -> State:
    """The state as one group is to begin with it: what its visits change is its own."""
    part = solver.part(unpacked(state))
    return clone(state) if part is None else part
