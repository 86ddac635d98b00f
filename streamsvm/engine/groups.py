"""Passes group by group: copies of the solvers' states visit groups of chunks, are merged along a fixed tree, and finished.

The groups depend on the store only, so that the result is the same on one thread, on several, on a cluster, and after a resume.
A thread that visits several groups reads ahead over their borders (``visit_groups``). What it found in a group is a
``Partial``, and so is what neighboring ones are joined to (``Join``).
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

import numpy as np

from streamsvm.aliases import Array, ByName, Handle
from streamsvm.config.options import field_values
from streamsvm.engine.block import ActiveProblem, BlockVisitor
from streamsvm.engine.checkpoint import Checkpointer
from streamsvm.engine.executor import Executor, Joins, JoinTree, OnProgress, PartSpan, SerialExecutor, Task
from streamsvm.engine.loop import FitLoop, RunSettings, StreamTrainer
from streamsvm.engine.partition import Group, contiguous, pass_groups, round_robin
from streamsvm.engine.row_state import IN_ONE_FILE, IN_STATES, DriverState, GroupRowStates, GroupStateFiles, RowStates
from streamsvm.engine.state_transfer import clone, unpacked
from streamsvm.engine.stores import OpenedStore, StoreReference
from streamsvm.engine.training import Position, Run, Training
from streamsvm.features.scaling import Raw, Standardized
from streamsvm.schedule.machine import anonymous_bytes
from streamsvm.schedule.stream import Loaded, Stream, epoch_order, visit_seed
from streamsvm.store.read.retry import retries
from streamsvm.store.views import CachedChunks, Resident, Section
from streamsvm.types import AnySolver, FeatureMap, Layout, Problem, Report, RowState, State, Store, Visit


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


@contextmanager
def lent(features: FeatureMap, unused: list[FeatureMap]) -> Iterator[FeatureMap]:
    """Lend a thread one of the ``unused`` maps, or a copy of ``features``. Changed: ``unused``, to which it comes back."""
    try:
        own = unused.pop()
    except IndexError:
        own = copy.copy(features)
    try:
        yield own
    finally:
        unused.append(own)


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


@dataclass(frozen=True, slots=True)
class ProcessRows:
    """One per-row state of all rows in this process, to checkpoints of either kind; see ``training.CheckpointedRows``."""

    states: GroupRowStates
    """Where the numbers are."""
    groups: list[Group]
    """All groups of the fit."""

    @property
    def layout(self) -> Layout:
        """Of the store that is trained on."""
        return self.states.rows.layout

    def checkpoint(self) -> ByName:
        """Make the present numbers durable, and return what ``restore`` comes back to them with."""
        return self.states.rows.checkpoint()

    def restore(self, saved: ByName | None, older: ByName | None = None) -> None:
        """Come back to a checkpoint; ``older`` is another one that must stay as it is. Raises DataError, KeyError."""
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
        """Give back what is open; the files stay."""
        self.states.rows.close()


@dataclass(slots=True)
class ProcessDriverState:
    """What only the end of a pass looks at: in this process it is in the states themselves, wherever it comes from."""

    files: DriverState
    """Where a run on a cluster has left it."""
    runs: list[Run]
    """What the states are of: not the training, which has this, and would live with its rows until a cycle is looked for."""
    version: int = 0
    """The last one that there are files of."""

    def checkpoint(self) -> ByName:
        """Return what says that the states have it all, and which versions are taken."""
        return {"version": self.version, IN_STATES: True}

    def restore(self, saved: ByName | None, older: ByName | None = None) -> None:
        """Complete the states of a checkpoint; the files stay as they are. Raises DataError, KeyError."""
        self.version = max((int(one["version"]) for one in (saved, older) if one), default=0)
        if saved and IN_STATES not in saved:
            states = {k: run.state for k, run in enumerate(self.runs) if not run.done}
            self.files.load(int(saved["version"]), states)

    def close(self) -> None:
        """Nothing is open."""


@dataclass(frozen=True, slots=True)
class GroupFit:
    """A fit as it is made group by group: what the tasks need to know, and over which groups."""

    work: Work
    """What every task is given."""
    groups: list[Group]
    """One task each in every round."""
    layout: Layout
    """Of the store that is trained on."""
    needs: int
    """Bytes a task is expected to hold."""
    cached: bool = False
    """Whether blocks stay in memory once they are read."""


class GroupTrainer(FitLoop):
    """The fit loop through an executor: every pass is a round of tasks, one a group of chunks."""

    def __init__(self, fit: GroupFit, executor: Executor, report: Report) -> None:
        super().__init__(fit.work.solver, list(fit.work.problems), report)
        self._fit, self._executor = fit, executor
        self._rows_before = [0, *accumulate(group.rows for group in fit.groups)]
        self._task = Task("fit", visit_group, fit.needs, visit_groups)

    def _taken(self, spent: Partial) -> None:
        """Count what a round took."""
        result = self.result
        result.waited += spent.waited / self._executor.threads
        result.peak = max(result.peak, spent.peak, anonymous_bytes())

    def _meanwhile(self, checkpointer: Checkpointer) -> OnProgress:
        """What is done while others work: what is asked from outside is heard, and progress reported."""

        def on_progress(done: int) -> None:
            checkpointer.between(self.result)
            self._progress.rows(self._rows_before[done], self._rows_before[-1])

        return on_progress


class LocalGroupTrainer(GroupTrainer):
    """The loop in this process: states stay where they are, checkpoints are made between any two groups."""

    def __init__(self, fit: GroupFit, executor: Executor, report: Report) -> None:
        super().__init__(fit, executor, report)
        self._row_states = {one.state.name: one for one in fit.work.state_files if isinstance(one, GroupRowStates)}
        self.result.row_states = {name: ProcessRows(one, fit.groups) for name, one in self._row_states.items()}
        if fit.work.driver_state is not None:
            self.result.row_states["home"] = ProcessDriverState(fit.work.driver_state, self.result.runs)
        self._retries = retries()
        self._in_memory: set[int] = set()
        """The groups that this run has read and does not have to read again."""

    def again(self, solver: AnySolver, problems: list[Problem], before: Training) -> LocalGroupTrainer:
        """Return a loop for another solver over the same groups."""
        work = replace(self._fit.work, solver=solver, problems=tuple(problems), state_files=(), driver_state=None)
        other = LocalGroupTrainer(replace(self._fit, work=work), self._executor, self._report)
        other.result.count_on(before)
        other._in_memory = self._in_memory
        return other

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Give back the maps of threads when the training is over: the last evaluation has some of its own."""
        try:
            yield
        finally:
            self._fit.work.maps.clear()

    def run_pass(self, checkpointer: Checkpointer) -> None:
        """Visit the groups that are left of a pass, and close it."""
        result = self.result
        active = result.active()
        states = tuple((one.number, one.state) for one in active)
        begun = Round(result.passes, states, bounds={}, in_place=result.index > 0 and not result.partials)
        found = self._visited(begun, checkpointer)
        self._taken(found)
        result.reads_repeated = retries() - self._retries  # threads see each other's
        result.passes, result.index, result.partials, result.under_way = result.passes + 1, 0, [], None
        visitor = BlockVisitor(self._solver, self._fit.work.features)
        visitor.gathered(found.states)
        for number, (one, state) in enumerate(zip(active, found.states, strict=True), 1):
            self._progress.closing(number, len(active))
            run = result.runs[one.number]
            for name, value in field_values(run.state, self._solver.driver_fields).items():
                setattr(state, name, value)
            run.state = state
            with self._working_in_memory() as deadline:
                certificate = visitor.finish(state, deadline)
            run.certified(certificate)
            self._progress.certificate(one.number, run)

    def _visited(self, begun: Round, checkpointer: Checkpointer) -> Partial:
        if begun.in_place:
            return self._rest_of_old_pass(begun)
        if self._solver.shuffled:
            return self._moved(begun, checkpointer)
        known = {PartSpan(first, stop): Partial(first, stop, states) for first, stop, states in self.result.partials}
        groups, join = self._fit.groups, Join(self._fit.work.solver, begun)
        tree = JoinTree(len(groups), join, self._accept, known)
        self.result.under_way = _PassOfGroups(tree, groups)
        self._count(tree.missing())
        found: Partial = self._executor.reduce(
            self._task, groups, Joins(join, tree=tree), (self._fit.work, begun), self._meanwhile(checkpointer)
        )
        return found

    def _moved(self, begun: Round, checkpointer: Checkpointer) -> Partial:
        """The pass of a solver that moves: what all groups came to is taken in at once, for they are no sums."""
        shared, groups = (self._fit.work, begun), self._fit.groups
        self._count(range(len(groups)))
        parts = list(self._executor.map(self._task, groups, shared, self._meanwhile(checkpointer)))
        for number, part in enumerate(parts):
            self._accept(number, part)
        merge = self._fit.work.solver.merge
        return spent_together(parts, [merge(list(one)) for one in zip(*(part.states for part in parts), strict=True)])

    def _rest_of_old_pass(self, begun: Round) -> Partial:
        """Go on where a version stopped that had one sum over all chunks: in one group, with the sums it had."""
        left = range(self.result.index, len(self._fit.layout.chunks))
        starts = [0, *accumulate(self._fit.layout.chunks)]
        rows = starts[-1] - starts[left.start]
        rest = Group(0, tuple(left), tuple(starts[chunk] for chunk in left), rows)
        self.result.bytes_read += sum(self._fit.layout.chunk_bytes(chunk) for chunk in left)
        if not left:
            return Partial(0, 1, [state for _, state in begun.states])
        found = visit_group(rest, self._fit.work, begun)
        for name, values in found.rows:
            self._row_states[name].take(rest, values)
        return found._replace(rows=())

    def _accept(self, number: int, found: Partial) -> Partial:
        """Put back the per-row state that came with a result."""
        for name, values in found.rows:
            self._row_states[name].take(self._fit.groups[number], values)
        return found._replace(rows=())

    def _count(self, numbers: Iterable[int]) -> None:
        """Count the bytes that are read of these groups."""
        layout = self._fit.layout
        fresh = [k for k in numbers if k not in self._in_memory]
        self.result.bytes_read += sum(layout.chunk_bytes(chunk) for k in fresh for chunk in self._fit.groups[k].chunks)
        if self._fit.cached:
            self._in_memory.update(fresh)


class _PassOfGroups:
    """What is found of a pass under way; see ``training.PassUnderWay``."""

    def __init__(self, tree: JoinTree[Partial], groups: list[Group]) -> None:
        self._tree, self._groups = tree, groups

    @contextmanager
    def at_rest(self) -> Iterator[Position]:
        """Say what is joined, while nothing is added."""
        with self._tree.at_rest() as nodes:
            index = sum(len(group.chunks) for span in nodes for group in self._groups[slice(*span)])
            yield Position(index, [(*span, found.states) for span, found in nodes.items()])


def groups_of(solver: AnySolver, layout: Layout, count: int | None) -> list[Group]:
    """Return the groups of a fit: ``count``, or as many as the store says.

    Chunks are dealt in turn to the groups of a solver that moves while it reads, so that each has some of every region
    of the data.
    """
    if solver.shuffled:
        return round_robin(layout, count or 1)
    return pass_groups(layout) if count is None else contiguous(layout, count)


def local_trainer(  # noqa: PLR0917 (what a training joins, in the order of the sentence)
    store: Store,
    solver: AnySolver,
    problems: list[Problem],
    features: FeatureMap,
    settings: RunSettings,
    report: Report,
    executor: Executor | None = None,
) -> FitLoop:
    """Return the loop of a solver: group by group where it only sums up in a pass, or is to move in groups; else chunk
    after chunk.

    ``executor`` makes the tasks of the groups; without one they are made one after the other.
    """
    in_groups = settings.groups is not None or not solver.shuffled
    if settings.cached and isinstance(features, Raw | Standardized) and not settings.whole_groups:
        view = CachedChunks if in_groups else Resident
        store, features = view(store, features.apply), Raw(features.bias)
    if not in_groups:
        return StreamTrainer(store, solver, problems, features, settings, report)
    groups = groups_of(solver, store.layout, settings.groups)
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
