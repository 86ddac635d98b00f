"""Passes group by group: each group of chunks is visited with copies of the solvers' states, which are then merged and
finished.

The groups depend only on the store, so that the result is the same on one thread, on several, on a cluster, and after a
resume. A thread that visits several groups reads ahead across group boundaries (``visit_groups``). The result of a
group is a ``PartialResult``; ``Join`` joins the results of neighboring groups into one ``PartialResult``.
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
    """The input of tasks that is the same in all passes of a fit. When sent to other processes it holds paths, not
    data.
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
    maps: list[FeatureMap] = field(default_factory=list)
    """Copies of the map that no thread uses now. Each thread needs a copy of its own, because maps have buffers."""


class PassInput(NamedTuple):
    """The input of tasks that belongs to one pass."""

    number: int
    """Number of passes made before."""
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
    """In the order of ``PassInput.states``."""
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
        """Return the result with its peak raised to ``peak``, that of the process that computed it."""
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
def lend_map(features: FeatureMap, unused: list[FeatureMap]) -> Iterator[FeatureMap]:
    """Yield a map for the exclusive use of one thread: one of ``unused``, or a copy of ``features``.

    The map is removed from ``unused`` and returned to it at the end.
    """
    try:
        lent = unused.pop()
    except IndexError:
        lent = copy.copy(features)
    try:
        yield lent
    finally:
        unused.append(lent)


def visit_group(group: Group, work: Work, pass_input: PassInput) -> PartialResult:
    """Visit the chunks of a group. Raises DataError, StorageError."""
    with closing(visit_groups(iter([group]), work, pass_input)) as results:
        return next(results)


def visit_groups(groups: Iterator[Group], work: Work, pass_input: PassInput) -> Generator[PartialResult]:
    """Visit groups one after the other, and yield their results; chunks of the next group may be read ahead.

    Raises DataError, StorageError.
    """
    store = work.store.open()
    with lend_map(work.features, work.maps) as features:
        if work.whole_groups:
            for group in groups:
                yield _visit_as_one_block(group, store, features, work, pass_input)
            return
        visitor, started = BlockVisitor(work.solver, features), deque[Group]()
        visits = _visits(groups, started, store, work, pass_input.number)
        group_visit: _GroupVisit | None = None
        costs = _Costs.now(0.0)
        with Stream(store, visits, depth=work.depth, retain=work.retain) as stream:
            for loaded in stream:
                group_visit = group_visit or _GroupVisit(started.popleft(), store, work, pass_input)
                group_visit.visit(loaded, loaded.visit.chunk, visitor)
                if loaded.visit.last:
                    earlier, costs = costs, _Costs.now(stream.waited)
                    yield group_visit.result(costs, earlier)
                    group_visit = None


def _visits(groups: Iterator[Group], started: deque[Group], store: Store, work: Work, number: int) -> Iterator[Visit]:
    """Yield the visits of pass ``number``, group by group. Appends each group to ``started`` before its first visit."""
    shuffled = work.solver.shuffled
    pass_order = epoch_order(store.layout, work.seed, number, shuffled) if shuffled else ()
    for group in groups:
        started.append(group)
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
    return group_visit.result(_Costs.now(stream.waited), earlier)


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

    def since(self, earlier: _Costs) -> tuple[float, float, int]:
        """Return the seconds, the seconds of waiting, and the repeated reads since ``earlier``."""
        return self.moment - earlier.moment, self.waited - earlier.waited, self.reads_repeated - earlier.reads_repeated


class _GroupVisit:
    """The visit of one group: copies of the states, and the group's per-row state."""

    def __init__(self, group: Group, store: Store, work: Work, pass_input: PassInput) -> None:
        self._group, self._work, self._pass_input = group, work, pass_input
        self._states = {k: work.solver.part(unpack(state)) for k, state in pass_input.states}
        for k, threshold in dict(pass_input.thresholds or {}).items():
            work.solver.set_sampling_threshold(self._states[k], threshold)
        self._row_values = {files.state.name: files.load(group, pass_input.version) for files in work.state_files}
        self._starts = dict(zip(group.chunks, group.starts, strict=True))
        self.spans = spans_in_group(store.layout, group)
        """Row range of each chunk, counted from the first row of the group."""

    def visit(self, loaded: Loaded, chunk: int, visitor: BlockVisitor) -> None:
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
        return PartialResult(group.number, group.number + 1, states, *costs.since(earlier), anonymous_bytes(), rows)


@dataclass(frozen=True, slots=True)
class ProcessRows:
    """Per-row state in this process; restores checkpoints of one process or of a cluster
    (``fit_state.CheckpointedRows``).
    """

    states: GroupRowStates
    groups: list[Group]
    """All groups of the fit."""

    @property
    def layout(self) -> Layout:
        """Layout of the training store."""
        return self.states.rows.layout

    def checkpoint(self) -> ByName:
        """Write the current numbers to disk and return the record from which ``restore`` restores them."""
        return self.states.rows.checkpoint()

    def restore(self, saved: ByName | None, older: ByName | None = None) -> None:
        """Restore the numbers of checkpoint ``saved``; ``older`` is a second one that must stay valid. Raises
        DataError, KeyError.
        """
        rows, older = self.states.rows, older if older is not None and IN_ONE_FILE in older else None
        if saved is None or IN_ONE_FILE in saved:
            rows.restore(saved, older)
            return
        assert rows.file is not None
        rows.keep(older)
        files = GroupStateFiles(rows.file.parent, rows.state, rows.problems)
        for group in self.groups:
            self.states.store(group, files.load(group, int(saved["version"])))

    def load(self, chunk: int) -> Array:
        """Return the numbers of a chunk's rows, (problems, rows of the chunk). Raises DataError."""
        return self.states.rows.load(chunk)

    def close(self) -> None:
        """Close the files."""
        self.states.rows.close()


@dataclass(slots=True)
class ProcessDriverState:
    """The state fields that only ``finish`` reads: part of the states in one process, in files of their own on a
    cluster.
    """

    files: DriverState
    """Files written by a run on a cluster."""
    runs: list[ProblemRun]
    """The runs whose states ``restore`` completes. (Not the whole training, which refers to this object: a reference
    cycle.)"""
    version: int = 0
    """The last version that has files."""

    def checkpoint(self) -> ByName:
        """Return a record that says that the states are complete, with the last version that has files."""
        return {"version": self.version, IN_STATES: True}

    def restore(self, saved: ByName | None, older: ByName | None = None) -> None:
        """Add the fields from files to the states if the checkpoint was made on a cluster. Raises DataError,
        KeyError.
        """
        self.version = max((int(record["version"]) for record in (saved, older) if record), default=0)
        if saved and IN_STATES not in saved:
            states = {k: run.state for k, run in enumerate(self.runs) if not run.done}
            self.files.load(int(saved["version"]), states)

    def close(self) -> None:
        """Do nothing: no file is open."""


@dataclass(frozen=True, slots=True)
class GroupFit:
    """A fit that is made group by group: the common input of its tasks, and the groups."""

    work: Work
    groups: list[Group]
    """The groups; each is one task in every pass."""
    layout: Layout
    """Layout of the training store."""
    needs: int
    """Bytes of memory that a task is expected to need."""
    cached: bool = False
    """Whether blocks stay in memory after they are read."""


class GroupTrainer(FitLoop):
    """The fit loop whose passes are run by an executor: in every pass there is one task for each group of chunks.

    For solvers that only sum over rows in a pass, the store alone determines the groups (``partition.pass_groups``),
    and their results are joined in pairs along a fixed tree, so that one thread, sixteen threads and a cluster compute
    the same bits. Online solvers have few groups, because their copies of the weights drift apart during a pass; at its
    end all copies are merged at once, in the order of the groups.
    """

    def __init__(self, fit: GroupFit, executor: Executor, report: Report) -> None:
        super().__init__(fit.work.solver, list(fit.work.problems), report)
        self._fit, self._executor = fit, executor
        self._rows_up_to = [0, *accumulate(group.rows for group in fit.groups)]
        """Number of rows in the first 0, 1, 2, ... groups."""
        self._task = Task("fit", visit_group, fit.needs, visit_groups)

    def _count_costs(self, result: PartialResult) -> None:
        """Add the costs of a pass to the training."""
        training = self.training
        training.waited += result.waited / self._executor.threads
        training.peak = max(training.peak, result.peak, anonymous_bytes())

    def _make_progress_callback(self, checkpointer: Checkpointer) -> OnProgress:
        """Return the callback to call while tasks run: it checks for signals, makes checkpoints and reports
        progress.
        """

        def on_progress(done: int) -> None:
            checkpointer.save_if_due(self.training)
            self._progress.rows(self._rows_up_to[done], self._rows_up_to[-1])

        return on_progress


class LocalGroupTrainer(GroupTrainer):
    """The group-by-group fit loop in this process; a checkpoint can be made between any two groups."""

    def __init__(self, fit: GroupFit, executor: Executor, report: Report) -> None:
        super().__init__(fit, executor, report)
        self._row_states = {one.state.name: one for one in fit.work.state_files if isinstance(one, GroupRowStates)}
        self.training.row_states = {name: ProcessRows(one, fit.groups) for name, one in self._row_states.items()}
        if fit.work.driver_state is not None:
            self.training.row_states["home"] = ProcessDriverState(fit.work.driver_state, self.training.runs)
        self._previous_retries = count_retries()
        self._in_memory: set[int] = set()
        """The groups that have stayed in memory since an earlier pass."""

    def with_solver(self, solver: AnySolver, problems: list[Problem], previous: Training) -> LocalGroupTrainer:
        """Return a loop over the same groups for another solver, whose passes and costs are counted on from
        ``previous``.
        """
        work = replace(self._fit.work, solver=solver, problems=tuple(problems), state_files=(), driver_state=None)
        other = LocalGroupTrainer(replace(self._fit, work=work), self._executor, self._report)
        other.training.continue_counts_from(previous)
        other._in_memory = self._in_memory
        return other

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Enclose the passes; at the end, free the threads' copies of the map: later work makes its own."""
        try:
            yield
        finally:
            self._fit.work.maps.clear()

    def run_pass(self, checkpointer: Checkpointer) -> None:
        """Visit the remaining groups of a pass and close it."""
        training = self.training
        active = training.active()
        states = tuple((problem.number, problem.state) for problem in active)
        pass_input = PassInput(training.passes, states, thresholds={})
        result = self._visit_groups(pass_input, checkpointer)
        self._count_costs(result)
        training.reads_repeated = count_retries() - self._previous_retries  # of the process, so not summed over threads
        training.passes, training.chunks_visited = training.passes + 1, 0
        training.partials, training.unfinished_pass = [], None
        visitor = BlockVisitor(self._solver, self._fit.work.features)
        visitor.join_gathered(result.states)
        for position, (problem, state) in enumerate(zip(active, result.states, strict=True), 1):
            self._progress.closing(position, len(active))
            run = training.runs[problem.number]
            for name, value in field_values(run.state, self._solver.driver_fields).items():
                setattr(state, name, value)
            run.state = state
            with self._count_in_memory_time() as deadline:
                certificate = visitor.finish(state, deadline)
            run.take_certificate(certificate)
            self._progress.certificate(problem.number, run)

    def _visit_groups(self, pass_input: PassInput, checkpointer: Checkpointer) -> PartialResult:
        if self._solver.shuffled:
            return self._merge_all_groups(pass_input, checkpointer)
        known = {
            PartSpan(first, stop): PartialResult(first, stop, states) for first, stop, states in self.training.partials
        }
        groups, join = self._fit.groups, Join(self._fit.work.solver, pass_input)
        tree = JoinTree(len(groups), join, self._store_row_values, known)
        self.training.unfinished_pass = _UnfinishedPassOfGroups(tree, groups)
        self._count_bytes_read(tree.missing())
        on_progress = self._make_progress_callback(checkpointer)
        result: PartialResult = self._executor.reduce(
            self._task, groups, Joins(join, tree=tree), (self._fit.work, pass_input), on_progress
        )
        return result

    def _merge_all_groups(self, pass_input: PassInput, checkpointer: Checkpointer) -> PartialResult:
        """Make a pass of an online solver: all groups are merged at once, because their results are not sums."""
        shared, groups = (self._fit.work, pass_input), self._fit.groups
        self._count_bytes_read(range(len(groups)))
        parts = list(self._executor.map(self._task, groups, shared, self._make_progress_callback(checkpointer)))
        for number, part in enumerate(parts):
            self._store_row_values(number, part)
        merge = self._fit.work.solver.merge
        return sum_costs(parts, [merge(list(copies)) for copies in zip(*(part.states for part in parts), strict=True)])

    def _store_row_values(self, number: int, result: PartialResult) -> PartialResult:
        """Store the per-row state of the result of group ``number``; return the result without it."""
        for name, values in result.rows:
            self._row_states[name].store(self._fit.groups[number], values)
        return result._replace(rows=())

    def _count_bytes_read(self, numbers: Iterable[int]) -> None:
        """Count the bytes that are read to visit the groups with these numbers."""
        layout = self._fit.layout
        to_read = [k for k in numbers if k not in self._in_memory]
        self.training.bytes_read += sum(
            layout.chunk_bytes(chunk) for k in to_read for chunk in self._fit.groups[k].chunks
        )
        if self._fit.cached:
            self._in_memory.update(to_read)


class _UnfinishedPassOfGroups:
    """The partial results of the current pass (``fit_state.UnfinishedPass``)."""

    def __init__(self, tree: JoinTree[PartialResult], groups: list[Group]) -> None:
        self._tree, self._groups = tree, groups

    @contextmanager
    def lock_position(self) -> Iterator[Position]:
        """Yield the position with the joined results; inside the context none is added."""
        with self._tree.lock_nodes() as nodes:
            chunks_visited = sum(len(group.chunks) for span in nodes for group in self._groups[slice(*span)])
            yield Position(chunks_visited, [(*span, result.states) for span, result in nodes.items()])


def fit_groups(solver: AnySolver, layout: Layout, count: int | None) -> list[Group]:
    """Return the groups of a fit: ``count`` of them; None: a number that the store determines.

    For online solvers, chunks are dealt to the groups in turn, so that each group has chunks from every region of the
    data.
    """
    if solver.shuffled:
        return round_robin_groups(layout, count or 1)
    return pass_groups(layout) if count is None else contiguous_groups(layout, count)


def local_trainer(  # noqa: PLR0917 (the parts of a training)
    store: Store,
    solver: AnySolver,
    problems: list[Problem],
    features: FeatureMap,
    settings: RunSettings,
    report: Report,
    executor: Executor | None = None,
) -> FitLoop:
    """Return the fit loop of a solver in this process: chunk by chunk for online solvers, else group by group.

    Online solvers work group by group too if ``settings.groups`` is given. ``executor`` runs the tasks of the groups;
    the default runs them one after the other.
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
