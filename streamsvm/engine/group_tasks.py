"""Run the tasks of a pass that is made group by group: each task visits the chunks of one group with copies of the
solvers' states.

The groups depend only on the store, so that the result is the same on one thread, on several, on a cluster, and after a
resume. A thread that runs several tasks reads ahead across group boundaries (``visit_groups``). The result of a
task is a ``PartialResult``; ``Join`` joins the results of neighboring groups into one ``PartialResult``.
"""

from __future__ import annotations

import copy
import time
from collections import deque
from collections.abc import Generator, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from streamsvm.compute.random import visit_seed
from streamsvm.engine.block_visitor import ActiveProblem, BlockVisitor
from streamsvm.engine.partition import Group, spans_in_group
from streamsvm.engine.state_transfer import DriverState, clone, unpack
from streamsvm.engine.store_reference import OpenedStore, StoreReference
from streamsvm.features.scaling import Raw, Standardized
from streamsvm.schedule.machine import anonymous_bytes
from streamsvm.schedule.stream import LoadedChunk, Stream, epoch_order
from streamsvm.store.disk_reads import count_retries
from streamsvm.store.views import Resident, Section
from streamsvm.type_aliases import Array, Handle
from streamsvm.types import AnySolver, FeatureMap, Problem, RowState, State, Store, Visit


class GroupState(Protocol):
    """Gives tasks access to the per-row state of a solver."""

    @property
    def state(self) -> RowState:
        """Name and dtype of the numbers."""
        ...

    def load(self, group: Group, version: int) -> Array:
        """Return a writable copy of the numbers of a group, (problems, rows of the group), as of ``version``. Raises
        DataError.
        """
        ...

    def save_or_return(self, group: Group, version: int, values: Array, drop: tuple[int, ...]) -> Array | None:
        """Save the numbers of a group as ``version`` and return None, or return them for the driver to save with the
        result.

        Removes the files of the versions ``drop``. Raises StorageError.
        """
        ...


@dataclass(frozen=True, slots=True)
class Work:
    """The input of tasks that is the same in all passes of a fit. When it is sent to other processes, it contains
    paths, not data.
    """

    store: StoreReference | OpenedStore
    solver: AnySolver
    problems: tuple[Problem, ...]
    """All problems of the fit."""
    features: FeatureMap
    """The map from stored rows to the features that the solver sees."""
    seed: int = 0
    """Seed of the order in which chunks and rows are visited."""
    depth: int = 1
    """Number of blocks that each thread reads ahead."""
    retain: bool = True
    """Whether the store may stay in the page cache between passes."""
    whole_groups: bool = False
    """Whether the rows of a group are concatenated and visited as one block."""
    state_files: tuple[GroupState, ...] = ()
    """Access to the per-row state, one entry for each named state."""
    driver_state: DriverState | None = None
    """Files of the fields that only ``finish`` reads (``Solver.driver_fields``); None if there are no such fields. In
    one process the fields stay in the states; the files are then read only to resume a run that was made on a
    cluster."""
    witnesses: bool = False
    """Whether dual variables are needed after the training (``types.Solver.witness``)."""
    unused_maps: list[FeatureMap] = field(default_factory=list)
    """Copies of the map that no thread uses now. Each thread needs its own copy, because maps have buffers."""


class PassInput(NamedTuple):
    """The input of tasks that belongs to one pass."""

    number: int
    """Number of passes that were made before this pass."""
    states: tuple[tuple[int, State], ...]
    """The states of the problems that are not done, each with the problem's index."""
    version: int = 0
    """Version of the files written by the previous pass."""
    drop: tuple[int, ...] = ()
    """Versions of files that are no longer needed."""
    thresholds: dict[int, Handle] | None = None
    """Sampling thresholds by problem, updated by the tasks of this pass in this process
    (``types.Solver.sampling_threshold``)."""
    deadline: float = float("inf")
    """Moment of the time limit, by ``time.time``, a clock that all machines share."""
    ending: bool = False
    """Whether this pass is the last one."""
    serialized: bool = False
    """Whether the states are serialized (``state_transfer.serialize``), the form in which they are sent to workers."""

    def update_thresholds(self, solver: AnySolver, states: list[State]) -> None:
        """Update the sampling thresholds from states after visits; ``states`` has the order of ``self.states``."""
        if self.thresholds is None:
            return
        for (k, _), state in zip(self.states, states, strict=True):
            threshold = solver.sampling_threshold(state)
            if threshold is not None:
                self.thresholds[k] = threshold


class PartialResult(NamedTuple):
    """The result of visiting the groups [first, stop)."""

    first: int
    """The number of the first group."""
    stop: int
    """One beyond the number of the last group."""
    states: list[State]
    """The states after the visits, in the order of ``PassInput.states``."""
    seconds: float = 0.0
    """Seconds that the visits took, summed over groups."""
    waited: float = 0.0
    """Seconds, included in ``seconds``, spent waiting for blocks."""
    reads_repeated: int = 0
    """Number of reads that succeeded only when repeated."""
    peak: int = 0
    """Peak anonymous memory of a process in bytes: measured after each group; on a cluster, at any time."""
    rows: tuple[tuple[str, Array], ...] = ()
    """Per-row state of the group by name, if the driver saves it."""

    def with_peak(self, peak: int) -> PartialResult:
        """Return the result with its peak raised to ``peak``, the peak of the process that computed the result."""
        return self._replace(peak=max(self.peak, peak))


@dataclass(frozen=True, slots=True)
class Join:
    """Joins the results of neighboring groups."""

    solver: AnySolver
    """The solver, which merges states."""
    pass_input: PassInput | None = None
    """The input of the pass, if the joined results may be modified; None: they are copied first."""

    def modifying_join(self, _work: Work, pass_input: PassInput) -> Join:
        """Return a join that may modify its arguments (``executor.CopyingJoin``)."""
        return Join(self.solver, pass_input)

    def __call__(self, left: PartialResult, right: PartialResult) -> PartialResult:
        """Join two results; assert that no group is missing or counted twice."""
        assert left.stop == right.first, f"groups up to {left.stop} are followed by {right.first}"
        left_states, right_states = left.states, right.states
        if self.pass_input is None:
            left_states, right_states = clone(left_states), clone(right_states)
        states = [self.solver.merge([a, b]) for a, b in zip(left_states, right_states, strict=True)]
        if self.pass_input is not None:
            self.pass_input.update_thresholds(self.solver, states)
        return sum_costs([left, right], states)


def sum_costs(parts: list[PartialResult], states: list[State]) -> PartialResult:
    """Return a partial result with the merged ``states`` and the summed costs of ``parts``."""
    return PartialResult(
        parts[0].first,
        parts[-1].stop,
        states,
        sum(part.seconds for part in parts),
        sum(part.waited for part in parts),
        sum(part.reads_repeated for part in parts),
        max(part.peak for part in parts),
    )


@contextmanager
def borrow_map(features: FeatureMap, unused: list[FeatureMap]) -> Iterator[FeatureMap]:
    """Yield a map for the exclusive use of one thread: one of ``unused``, or a copy of ``features``.

    The map is removed from ``unused`` and returned to it at the end.
    """
    try:
        lent_map = unused.pop()
    except IndexError:
        lent_map = copy.copy(features)
    try:
        yield lent_map
    finally:
        unused.append(lent_map)


def visit_group(group: Group, work: Work, pass_input: PassInput) -> PartialResult:
    """Visit the chunks of a group. Raises DataError, StorageError."""
    with closing(visit_groups(iter([group]), work, pass_input)) as results:
        return next(results)


def visit_groups(groups: Iterator[Group], work: Work, pass_input: PassInput) -> Generator[PartialResult]:
    """Visit groups one after the other, and yield their results; chunks of the next group may be read ahead.

    Raises DataError, StorageError.
    """
    store = work.store.open()
    with borrow_map(work.features, work.unused_maps) as features:
        if work.whole_groups:
            for group in groups:
                yield _visit_as_one_block(group, store, features, work, pass_input)
            return
        visitor, started_groups = BlockVisitor(work.solver, features), deque[Group]()
        visits = _iterate_visits(groups, started_groups, store, work, pass_input.number)
        group_visit: _GroupVisit | None = None
        costs = _Costs.now(0.0)
        with Stream(store, visits, depth=work.depth, retain=work.retain) as stream:
            for loaded in stream:
                group_visit = group_visit or _GroupVisit(started_groups.popleft(), store, work, pass_input)
                group_visit.visit(loaded, loaded.visit.chunk, visitor)
                if loaded.visit.last:
                    earlier, costs = costs, _Costs.now(stream.seconds_waited)
                    yield group_visit.result(costs, earlier)
                    group_visit = None


def _iterate_visits(
    groups: Iterator[Group], started_groups: deque[Group], store: Store, work: Work, number: int
) -> Iterator[Visit]:
    """Yield the visits of pass ``number``, group by group. Appends each group to ``started_groups`` before its first
    visit.
    """
    shuffled = work.solver.shuffled
    pass_order = epoch_order(store.layout, work.seed, number, shuffled) if shuffled else ()
    for group in groups:
        started_groups.append(group)
        chunks = frozenset(group.chunks)
        order = [chunk for chunk in pass_order if chunk in chunks] if shuffled else group.chunks
        for chunk in order:
            yield Visit(number, chunk, visit_seed(work.seed, number, chunk), shuffled, chunk == order[-1])


def _visit_as_one_block(
    group: Group, store: Store, features: FeatureMap, work: Work, pass_input: PassInput
) -> PartialResult:
    """Visit all rows of a group as one block, and return the result."""
    assert isinstance(features, Raw | Standardized)
    seed = visit_seed(work.seed, pass_input.number, group.chunks[0])
    rows = Resident(Section(store, group.chunks), features.apply)
    visitor = BlockVisitor(work.solver, Raw(features.bias))
    visits = iter([Visit(pass_input.number, 0, seed, work.solver.shuffled, True)])
    earlier, group_visit = _Costs.now(0.0), _GroupVisit(group, store, work, pass_input)
    group_visit.spans[group.chunks[0]] = slice(0, group.rows)
    with Stream(rows, visits, depth=work.depth, retain=work.retain) as stream:
        for loaded in stream:
            group_visit.visit(loaded, group.chunks[0], visitor)
    return group_visit.result(_Costs.now(stream.seconds_waited), earlier)


class _Costs(NamedTuple):
    """Cumulative costs of a thread at one moment."""

    moment: float
    """Moment by ``time.perf_counter``."""
    waited: float
    """Seconds of waiting for blocks."""
    reads_repeated: int
    """Number of reads of this process that succeeded only when repeated."""

    @staticmethod
    def now(waited: float) -> _Costs:
        """Return the costs at this moment."""
        return _Costs(time.perf_counter(), waited, count_retries())

    def subtract(self, earlier: _Costs) -> tuple[float, float, int]:
        """Return the seconds, the seconds of waiting, and the repeated reads since ``earlier``."""
        return self.moment - earlier.moment, self.waited - earlier.waited, self.reads_repeated - earlier.reads_repeated


class _GroupVisit:
    """The visit of one group: copies of the states, and the group's per-row state."""

    def __init__(self, group: Group, store: Store, work: Work, pass_input: PassInput) -> None:
        self._group, self._work, self._pass_input = group, work, pass_input
        part = work.solver.part
        self._states = {k: part(unpack(state) if pass_input.serialized else state) for k, state in pass_input.states}
        for k, threshold in dict(pass_input.thresholds or {}).items():
            work.solver.set_sampling_threshold(self._states[k], threshold)
        self._row_values = {files.state.name: files.load(group, pass_input.version) for files in work.state_files}
        self._starts = dict(zip(group.chunks, group.starts, strict=True))
        self.spans = spans_in_group(store.layout, group)
        """Row range of each chunk, counted from the first row of the group."""

    def visit(self, loaded: LoadedChunk, chunk: int, visitor: BlockVisitor) -> None:
        """Visit a chunk. If the group is one block, ``loaded`` has all its rows and ``chunk`` is the first chunk."""
        active = [ActiveProblem(k, self._work.problems[k], state) for k, state in self._states.items()]
        chunk_values = {name: values[:, self.spans[chunk]] for name, values in self._row_values.items()}
        visitor.visit(loaded, chunk, self._starts[chunk], active, chunk_values)

    def result(self, costs: _Costs, earlier: _Costs) -> PartialResult:
        """Return the result of the group; its per-row state is saved in files, or is part of the result."""
        pass_input, group, states = self._pass_input, self._group, list(self._states.values())
        pass_input.update_thresholds(self._work.solver, states)
        version, drop = pass_input.version + 1, pass_input.drop
        returned = [
            (files.state.name, files.save_or_return(group, version, self._row_values[files.state.name], drop))
            for files in self._work.state_files
        ]
        rows = tuple((name, values) for name, values in returned if values is not None)
        return PartialResult(group.number, group.number + 1, states, *costs.subtract(earlier), anonymous_bytes(), rows)
