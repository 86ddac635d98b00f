"""Passes group by group: copies of the solvers' states visit groups of chunks, are merged along a fixed tree, and finished.

The groups depend on the store only, so that the result is the same on one thread, on several, on a cluster, and after a resume.
A thread that visits several groups reads ahead over their borders (``visit_groups``). The result of a group is a
``PartialResult``; ``Join`` joins the results of neighboring groups, again into a ``PartialResult``.
"""

from __future__ import annotations

import copy
import time
from collections import deque
from collections.abc import Generator, Iterable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from itertools import accumulate
from typing import NamedTuple, Protocol

from streamsvm.aliases import Array, ByName, Handle
from streamsvm.config.options import field_values
from streamsvm.engine.block import ActiveProblem, BlockVisitor
from streamsvm.engine.checkpoint import Checkpointer
from streamsvm.engine.executor import Executor, Joins, OnProgress, SerialExecutor, Task
from streamsvm.engine.fit_state import Position, ProblemRun, Training
from streamsvm.engine.join_tree import JoinTree, PartSpan
from streamsvm.engine.loop import FitLoop, RunSettings, StreamTrainer
from streamsvm.engine.partition import Group, contiguous_groups, pass_groups, round_robin_groups, spans_in_group
from streamsvm.engine.row_state import IN_ONE_FILE, IN_STATES, DriverState, GroupRowStates, GroupStateFiles, RowStates
from streamsvm.engine.state_transfer import clone, unpack
from streamsvm.engine.store_reference import OpenedStore, StoreReference
from streamsvm.features.scaling import Raw, Standardized
from streamsvm.schedule.machine import anonymous_bytes
from streamsvm.schedule.stream import Loaded, Stream, epoch_order, visit_seed
from streamsvm.store.disk_reads import count_retries
from streamsvm.store.views import CachedChunks, Resident, Section
from streamsvm.types import AnySolver, FeatureMap, Layout, Problem, Report, RowState, State, Store, Visit


class GroupState(Protocol):
    """Access of tasks to the per-row state of a solver."""

    @property
    def state(self) -> RowState:
        """Name and dtype of the numbers."""
        ...

    def load(self, group: Group, version: int) -> Array:
        """Return a writable copy of the state after round ``version``, (problems, rows of the group). Raises DataError."""
        ...

    def leave(self, group: Group, version: int, values: Array, drop: tuple[int, ...]) -> Array | None:
        """Save the state after a round, or return it for the driver to save with the result. Raises StorageError."""
        ...


@dataclass(frozen=True, slots=True)
class Work:
    """What is constant over all rounds of a fit. Sent to other processes, it holds paths, not data."""

    store: StoreReference | OpenedStore
    solver: AnySolver
    problems: tuple[Problem, ...]
    """All problems of the fit."""
    features: FeatureMap
    """The map from stored rows to the rows that the solver sees."""
    seed: int = 0
    """Seed of the order in which chunks and rows are visited."""
    depth: int = 1
    """Number of blocks that each thread reads ahead."""
    retain: bool = True
    """Whether the store may stay in the page cache between rounds."""
    whole_groups: bool = False
    """Whether the rows of a group are concatenated and visited as one block."""
    state_files: tuple[GroupState, ...] = ()
    """Access to per-row state, one entry a name."""
    driver_state: DriverState | None = None
    """Files of the fields that only ``finish`` reads (``Solver.driver_fields``); None if there are no such fields. In one process
    the fields stay in the states, and these files are read only when a run on a cluster is resumed."""
    witnesses: bool = False
    """Whether dual variables are needed after the training (``types.Solver.witness``)."""
    maps: list[FeatureMap] = field(default_factory=list)
    """Unused copies of the map, one for each thread of this process: maps have buffers."""


class PassInput(NamedTuple):
    """The input of a pass."""

    number: int
    """Passes made before this one."""
    states: tuple[tuple[int, State], ...]
    """The states of the problems that are not done, each with the problem's index."""
    version: int = 0
    """Version of the files that the last round wrote."""
    drop: tuple[int, ...] = ()
    """Versions of files that are no longer needed."""
    bounds: dict[int, Handle] | None = None
    """Bounds by problem that tasks of this round in this process have found so far (``types.Solver.sampling_threshold``)."""
    deadline: float = float("inf")
    """Moment of the time limit, by ``time.time``, which all machines share."""
    ending: bool = False
    """Whether this pass is the last one."""

    def learn(self, solver: AnySolver, states: list[State]) -> None:
        """Update the bounds from the states of some groups, in the order of ``states``."""
        if self.bounds is None:
            return
        for (k, _), state in zip(self.states, states, strict=True):
            bound = solver.sampling_threshold(state)
            if bound is not None:
                self.bounds[k] = bound


class PartialResult(NamedTuple):
    """The result of visiting the groups [first, stop)."""

    first: int
    """The number of the first group."""
    stop: int
    """One beyond the number of the last group."""
    states: list[State]
    """In the order of ``PassInput.states``."""
    seconds: float = 0.0
    """Seconds of work, summed over groups."""
    waited: float = 0.0
    """Seconds of these spent waiting for blocks."""
    reads_repeated: int = 0
    """Number of reads that succeeded only when repeated."""
    peak: int = 0
    """Peak bytes of anonymous memory of a process: at the end of groups; on a cluster, at any time."""
    rows: tuple[tuple[str, Array], ...] = ()
    """Per-row state of the group by name, if the driver saves it."""

    def with_peak(self, peak: int) -> PartialResult:
        """Return the same result with the peak of the process that computed it."""
        return self._replace(peak=max(self.peak, peak))


@dataclass(frozen=True, slots=True)
class Join:
    """Joins the results of neighboring groups."""

    solver: AnySolver
    """The solver, which merges states."""
    pass_input: PassInput | None = None
    """The round, if the joined results may be modified; None: they are copied first."""

    def modifying_join(self, _work: Work, pass_input: PassInput) -> Join:
        """Return the join that may modify its arguments (``executor.CarefulJoin``)."""
        return Join(self.solver, pass_input)

    def __call__(self, one: PartialResult, other: PartialResult) -> PartialResult:
        """Join two results; asserts that no group is missing or counted twice."""
        assert one.stop == other.first, f"groups up to {one.stop} are followed by {other.first}"
        firsts, seconds = one.states, other.states
        if self.pass_input is None:
            firsts, seconds = clone(firsts), clone(seconds)
        states = [self.solver.merge([a, b]) for a, b in zip(firsts, seconds, strict=True)]
        if self.pass_input is not None:
            self.pass_input.learn(self.solver, states)
        return sum_costs([one, other], states)


def sum_costs(parts: list[PartialResult], states: list[State]) -> PartialResult:
    """Return joined states with the summed costs of their parts."""
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
def lend_map(features: FeatureMap, unused: list[FeatureMap]) -> Iterator[FeatureMap]:
    """Lend a thread one of the ``unused`` maps, or a copy of ``features``. Changed: ``unused``, to which it comes back."""
    try:
        own = unused.pop()
    except IndexError:
        own = copy.copy(features)
    try:
        yield own
    finally:
        unused.append(own)


def visit_group(group: Group, work: Work, pass_input: PassInput) -> PartialResult:
    """Visit the chunks of a group. Raises DataError, StorageError."""
    with closing(visit_groups(iter([group]), work, pass_input)) as found:
        return next(found)


def visit_groups(groups: Iterator[Group], work: Work, pass_input: PassInput) -> Generator[PartialResult]:
    """Visit groups one after the other; what is read ahead may be of the next one. Raises DataError, StorageError."""
    store = work.store.open()
    with lend_map(work.features, work.maps) as features:
        if work.whole_groups:
            for group in groups:
                yield _visit_whole(group, store, features, work, pass_input)
            return
        visitor, known = BlockVisitor(work.solver, features), deque[Group]()
        visits = _visits(groups, known, store, work, pass_input.number)
        under_way: _GroupVisit | None = None
        spent = _Spent.now(0.0)
        with Stream(store, visits, depth=work.depth, retain=work.retain) as stream:
            for loaded in stream:
                under_way = under_way or _GroupVisit(known.popleft(), store, work, pass_input)
                under_way.visit(loaded, loaded.visit.chunk, visitor)
                if loaded.visit.last:
                    before, spent = spent, _Spent.now(stream.waited)
                    yield under_way.result(spent, before)
                    under_way = None


def _visits(groups: Iterator[Group], known: deque[Group], store: Store, work: Work, number: int) -> Iterator[Visit]:
    """Yield the visits of pass ``number``, group by group; groups whose visits were yielded are appended to ``known``."""
    shuffled = work.solver.shuffled
    every = epoch_order(store.layout, work.seed, number, shuffled) if shuffled else ()
    for group in groups:
        known.append(group)
        mine = frozenset(group.chunks)
        order = [chunk for chunk in every if chunk in mine] if shuffled else group.chunks
        for chunk in order:
            yield Visit(number, chunk, visit_seed(work.seed, number, chunk), shuffled, chunk == order[-1])


def _visit_whole(group: Group, store: Store, features: FeatureMap, work: Work, pass_input: PassInput) -> PartialResult:
    """Visit all rows of a group as one block."""
    assert isinstance(features, Raw | Standardized)
    seed = visit_seed(work.seed, pass_input.number, group.chunks[0])
    rows = Resident(Section(store, group.chunks), features.apply)
    visitor = BlockVisitor(work.solver, Raw(features.bias))
    visits = iter([Visit(pass_input.number, 0, seed, work.solver.shuffled, True)])
    before, one = _Spent.now(0.0), _GroupVisit(group, store, work, pass_input)
    one.spans[group.chunks[0]] = slice(0, group.rows)
    with Stream(rows, visits, depth=work.depth, retain=work.retain) as stream:
        for loaded in stream:
            one.visit(loaded, group.chunks[0], visitor)
    return one.result(_Spent.now(stream.waited), before)


class _Spent(NamedTuple):
    """Costs of a thread so far."""

    moment: float
    """Moment by ``time.perf_counter``."""
    waited: float
    """Seconds of waiting for blocks."""
    reads_repeated: int
    """Number of reads of this process that succeeded only when repeated."""

    @staticmethod
    def now(waited: float) -> _Spent:
        """Return the costs at this moment."""
        return _Spent(time.perf_counter(), waited, count_retries())

    def since(self, before: _Spent) -> tuple[float, float, int]:
        """Return seconds, seconds of waiting, and repeated reads since ``before``."""
        return self.moment - before.moment, self.waited - before.waited, self.reads_repeated - before.reads_repeated


class _GroupVisit:
    """A group while it is visited: states and per-row state."""

    def __init__(self, group: Group, store: Store, work: Work, pass_input: PassInput) -> None:
        self._group, self._work, self._begun = group, work, pass_input
        self._states = {k: work.solver.part(unpack(state)) for k, state in pass_input.states}
        for k, bound in dict(pass_input.bounds or {}).items():
            work.solver.set_sampling_threshold(self._states[k], bound)
        self._rows = {files.state.name: files.load(group, pass_input.version) for files in work.state_files}
        self._starts = dict(zip(group.chunks, group.starts, strict=True))
        self.spans = spans_in_group(store.layout, group)
        """Row range of each chunk, counted from the first row of the group."""

    def visit(self, loaded: Loaded, chunk: int, visitor: BlockVisitor) -> None:
        """Show a chunk to the solvers; where the group is one block, ``loaded`` has all its rows and ``chunk`` is its
        first.
        """
        active = [ActiveProblem(k, self._work.problems[k], state) for k, state in self._states.items()]
        mine = {name: values[:, self.spans[chunk]] for name, values in self._rows.items()}
        visitor.visit(loaded, chunk, self._starts[chunk], active, mine)

    def result(self, spent: _Spent, before: _Spent) -> PartialResult:
        """Save the group's per-row state, or put it into the result; return the result."""
        pass_input, group, states = self._begun, self._group, list(self._states.values())
        pass_input.learn(self._work.solver, states)
        left = [
            (
                files.state.name,
                files.leave(group, pass_input.version + 1, self._rows[files.state.name], pass_input.drop),
            )
            for files in self._work.state_files
        ]
        rows = tuple((name, values) for name, values in left if values is not None)
        return PartialResult(group.number, group.number + 1, states, *spent.since(before), anonymous_bytes(), rows)


@dataclass(frozen=True, slots=True)
class ProcessRows:
    """Per-row state in this process, restored from checkpoints of one process or of a cluster (``fit_state.CheckpointedRows``)."""

    states: GroupRowStates
    """Where the numbers are."""
    groups: list[Group]
    """All groups of the fit."""

    @property
    def layout(self) -> Layout:
        """Layout of the training store."""
        return self.states.rows.layout

    def checkpoint(self) -> ByName:
        """Make the present numbers durable and return the argument with which ``restore`` restores them."""
        return self.states.rows.checkpoint()

    def restore(self, saved: ByName | None, older: ByName | None = None) -> None:
        """Restore a checkpoint; ``older`` is another one that must stay valid. Raises DataError, KeyError."""
        rows, before = self.states.rows, older if older is not None and IN_ONE_FILE in older else None
        if saved is None or IN_ONE_FILE in saved:
            rows.restore(saved, before)
            return
        assert rows.file is not None
        rows.keep(before)
        files = GroupStateFiles(rows.file.parent, rows.state, rows.problems)
        for group in self.groups:
            self.states.take(group, files.load(group, int(saved["version"])))

    def load(self, chunk: int) -> Array:
        """Return the numbers of a chunk's rows, (problems, rows of the chunk). Raises DataError."""
        return self.states.rows.load(chunk)

    def close(self) -> None:
        """Close the files."""
        self.states.rows.close()


@dataclass(slots=True)
class ProcessDriverState:
    """The fields that only ``finish`` reads, kept in the states of this process, restored from either kind of checkpoint."""

    files: DriverState
    """Files written by a run on a cluster."""
    runs: list[ProblemRun]
    """The runs whose states are completed. (Not the whole training: it refers to this object, a reference cycle.)"""
    version: int = 0
    """The last version with files."""

    def checkpoint(self) -> ByName:
        """Return a record that the states are complete, with the last version number that has files."""
        return {"version": self.version, IN_STATES: True}

    def restore(self, saved: ByName | None, older: ByName | None = None) -> None:
        """Complete the states of a checkpoint from files, if necessary. Raises DataError, KeyError."""
        self.version = max((int(one["version"]) for one in (saved, older) if one), default=0)
        if saved and IN_STATES not in saved:
            states = {k: run.state for k, run in enumerate(self.runs) if not run.done}
            self.files.load(int(saved["version"]), states)

    def close(self) -> None:
        """Do nothing: no file is open."""


@dataclass(frozen=True, slots=True)
class GroupFit:
    """A fit group by group: the input of its tasks and the groups."""

    work: Work
    """What every task is given."""
    groups: list[Group]
    """The groups, each one task in every round."""
    layout: Layout
    """Layout of the training store."""
    needs: int
    """Bytes that a task is expected to hold."""
    cached: bool = False
    """Whether blocks stay in memory once they are read."""


class GroupTrainer(FitLoop):
    """The fit loop whose passes an executor runs: every pass is a round of tasks, one for each group of chunks.

    Solvers that only sum up in a pass have groups that the store alone decides (``partition.pass_groups``), joined two
    by two in a fixed tree: one thread, sixteen, and the workers of a cluster find the same bits. Solvers that
    update weights while they read have few groups, because the copies of a state drift apart during a pass; at its end
    all copies are merged at once, in the order of the groups.
    """

    def __init__(self, fit: GroupFit, executor: Executor, report: Report) -> None:
        super().__init__(fit.work.solver, list(fit.work.problems), report)
        self._fit, self._executor = fit, executor
        self._rows_before = [0, *accumulate(group.rows for group in fit.groups)]
        self._task = Task("fit", visit_group, fit.needs, visit_groups)

    def _count_costs(self, spent: PartialResult) -> None:
        """Add the costs of a round to the training."""
        training = self.training
        training.waited += spent.waited / self._executor.threads
        training.peak = max(training.peak, spent.peak, anonymous_bytes())

    def _meanwhile(self, checkpointer: Checkpointer) -> OnProgress:
        """Return the callback for the time while tasks run: it handles signals, makes checkpoints and reports progress."""

        def on_progress(done: int) -> None:
            checkpointer.save_if_due(self.training)
            self._progress.rows(self._rows_before[done], self._rows_before[-1])

        return on_progress


class LocalGroupTrainer(GroupTrainer):
    """The loop in this process, with checkpoints between any two groups."""

    def __init__(self, fit: GroupFit, executor: Executor, report: Report) -> None:
        super().__init__(fit, executor, report)
        self._row_states = {one.state.name: one for one in fit.work.state_files if isinstance(one, GroupRowStates)}
        self.training.row_states = {name: ProcessRows(one, fit.groups) for name, one in self._row_states.items()}
        if fit.work.driver_state is not None:
            self.training.row_states["home"] = ProcessDriverState(fit.work.driver_state, self.training.runs)
        self._retries = count_retries()
        self._in_memory: set[int] = set()
        """The groups that are in memory since an earlier pass of this run."""

    def with_solver(self, solver: AnySolver, problems: list[Problem], before: Training) -> LocalGroupTrainer:
        """Return a loop for another solver over the same groups."""
        work = replace(self._fit.work, solver=solver, problems=tuple(problems), state_files=(), driver_state=None)
        other = LocalGroupTrainer(replace(self._fit, work=work), self._executor, self._report)
        other.training.continue_counts_from(before)
        other._in_memory = self._in_memory
        return other

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Enclose the passes of the training; at its end release the maps of threads, as the final evaluation has its
        own.
        """
        try:
            yield
        finally:
            self._fit.work.maps.clear()

    def run_pass(self, checkpointer: Checkpointer) -> None:
        """Visit the remaining groups of a pass and close it."""
        training = self.training
        active = training.active()
        states = tuple((one.number, one.state) for one in active)
        pass_input = PassInput(training.passes, states, bounds={})
        found = self._visit_groups(pass_input, checkpointer)
        self._count_costs(found)
        training.reads_repeated = (
            count_retries() - self._retries
        )  # counted for the process, so not the sum over threads
        training.passes, training.chunks_visited, training.partials, training.under_way = (
            training.passes + 1,
            0,
            [],
            None,
        )
        visitor = BlockVisitor(self._solver, self._fit.work.features)
        visitor.join_gathered(found.states)
        for number, (one, state) in enumerate(zip(active, found.states, strict=True), 1):
            self._progress.closing(number, len(active))
            run = training.runs[one.number]
            for name, value in field_values(run.state, self._solver.driver_fields).items():
                setattr(state, name, value)
            run.state = state
            with self._working_in_memory() as deadline:
                certificate = visitor.finish(state, deadline)
            run.take_certificate(certificate)
            self._progress.certificate(one.number, run)

    def _visit_groups(self, pass_input: PassInput, checkpointer: Checkpointer) -> PartialResult:
        if self._solver.shuffled:
            return self._merge_all_groups(pass_input, checkpointer)
        known = {
            PartSpan(first, stop): PartialResult(first, stop, states) for first, stop, states in self.training.partials
        }
        groups, join = self._fit.groups, Join(self._fit.work.solver, pass_input)
        tree = JoinTree(len(groups), join, self._accept, known)
        self.training.under_way = _PassOfGroups(tree, groups)
        self._count(tree.missing())
        found: PartialResult = self._executor.reduce(
            self._task, groups, Joins(join, tree=tree), (self._fit.work, pass_input), self._meanwhile(checkpointer)
        )
        return found

    def _merge_all_groups(self, pass_input: PassInput, checkpointer: Checkpointer) -> PartialResult:
        """Make a pass of a solver that updates weights while it reads: all groups are merged at once, because results are not sums."""
        shared, groups = (self._fit.work, pass_input), self._fit.groups
        self._count(range(len(groups)))
        parts = list(self._executor.map(self._task, groups, shared, self._meanwhile(checkpointer)))
        for number, part in enumerate(parts):
            self._accept(number, part)
        merge = self._fit.work.solver.merge
        return sum_costs(parts, [merge(list(one)) for one in zip(*(part.states for part in parts), strict=True)])

    def _accept(self, number: int, found: PartialResult) -> PartialResult:
        """Store the per-row state of a result."""
        for name, values in found.rows:
            self._row_states[name].take(self._fit.groups[number], values)
        return found._replace(rows=())

    def _count(self, numbers: Iterable[int]) -> None:
        """Count the bytes read for these groups."""
        layout = self._fit.layout
        fresh = [k for k in numbers if k not in self._in_memory]
        self.training.bytes_read += sum(
            layout.chunk_bytes(chunk) for k in fresh for chunk in self._fit.groups[k].chunks
        )
        if self._fit.cached:
            self._in_memory.update(fresh)


class _PassOfGroups:
    """The partial results of a pass under way (``fit_state.PassUnderWay``)."""

    def __init__(self, tree: JoinTree[PartialResult], groups: list[Group]) -> None:
        self._tree, self._groups = tree, groups

    @contextmanager
    def lock_position(self) -> Iterator[Position]:
        """Yield the joined results while none is added."""
        with self._tree.lock_nodes() as nodes:
            index = sum(len(group.chunks) for span in nodes for group in self._groups[slice(*span)])
            yield Position(index, [(*span, found.states) for span, found in nodes.items()])


def fit_groups(solver: AnySolver, layout: Layout, count: int | None) -> list[Group]:
    """Return the groups of a fit: ``count`` of them, or a number that depends on the store.

    For a solver that updates weights while it reads, chunks are dealt to the groups in turn, so that each group has chunks from
    every region of the data.
    """
    if solver.shuffled:
        return round_robin_groups(layout, count or 1)
    return pass_groups(layout) if count is None else contiguous_groups(layout, count)


def local_trainer(  # noqa: PLR0917 (what a training joins, in the order of the sentence)
    store: Store,
    solver: AnySolver,
    problems: list[Problem],
    features: FeatureMap,
    settings: RunSettings,
    report: Report,
    executor: Executor | None = None,
) -> FitLoop:
    """Return the fit loop of a solver: group by group if a pass only sums, or if ``settings.groups`` is given; else chunk by chunk.

    ``executor`` runs the tasks of the groups; the default runs them one after the other.
    """
    in_groups = settings.groups is not None or not solver.shuffled
    if settings.cached and isinstance(features, Raw | Standardized) and not settings.whole_groups:
        view = CachedChunks if in_groups else Resident
        store, features = view(store, features.apply), Raw(features.bias)
    if not in_groups:
        return StreamTrainer(store, solver, problems, features, settings, report)
    groups = fit_groups(solver, store.layout, settings.groups)
    solver = solver.in_parts(len(groups))
    states = tuple(
        GroupRowStates(RowStates(state, store.layout, len(problems), settings.file(state.name), settings.resident))
        for state in solver.row_state
    )
    work = Work(OpenedStore(store), solver, tuple(problems), features, settings.seed, state_files=states)
    work = replace(
        work, depth=settings.depth, retain=settings.retain, whole_groups=settings.whole_groups, maps=[features]
    )
    if settings.directory is not None and solver.driver_fields:
        work = replace(work, driver_state=DriverState(settings.directory, solver.driver_fields))
    return LocalGroupTrainer(
        GroupFit(work, groups, store.layout, 0, settings.cached), executor or SerialExecutor(), report
    )
