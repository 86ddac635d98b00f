"""Make the passes of a fit in this process: chunk by chunk in one thread for online solvers (``StreamTrainer``), else
group by group, on one thread or several (``LocalGroupTrainer``).

The results of the groups are merged, and the merged states finish the pass.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from streamsvm.config.options import field_values
from streamsvm.engine.block_visitor import BlockVisitor
from streamsvm.engine.checkpoint import Checkpointer
from streamsvm.engine.executor import Executor, Joins, SerialExecutor
from streamsvm.engine.fit_state import Position, Training
from streamsvm.engine.group_tasks import Join, PartialResult, PassInput, Work, sum_costs
from streamsvm.engine.join_tree import JoinTree, PartSpan
from streamsvm.engine.loop import FitLoop, GroupFit, GroupTrainer, RunSettings
from streamsvm.engine.partition import Group, fit_groups
from streamsvm.engine.row_state import GroupRowStates, ProcessRows, RowStates
from streamsvm.engine.state_transfer import DriverState, ProcessDriverState
from streamsvm.engine.store_reference import OpenedStore
from streamsvm.features.scaling import Raw, Standardized
from streamsvm.schedule.stream import LoadedChunk, Stream, epoch_order, iterate_visits
from streamsvm.store.disk_reads import count_retries
from streamsvm.store.views import CachedChunks, Resident
from streamsvm.types import AnySolver, FeatureMap, Problem, Report, Store


class StreamTrainer(FitLoop):
    """The fit loop for online solvers, which update their weights at every block: reader threads load chunks, this
    thread visits them.
    """

    def __init__(  # noqa: PLR0917 (the parts of a training)
        self,
        store: Store,
        solver: AnySolver,
        problems: list[Problem],
        features: FeatureMap,
        settings: RunSettings,
        report: Report,
    ) -> None:
        super().__init__(solver, problems, report)
        self._store, self._features, self._settings = store, features, settings
        self._visitor = BlockVisitor(solver, features, settings.cached)
        self._starts = store.layout.starts
        self._in_memory: set[int] = set()
        """The chunks that have stayed in memory since an earlier pass."""
        self._row_states = {
            state.name: RowStates(state, store.layout, len(problems), settings.file(state.name), settings.resident)
            for state in solver.row_state
        }
        self.training.row_states = dict(self._row_states)

    @contextmanager
    def open_for_passes(self) -> Iterator[None]:
        """Open the stream that reads ahead from the next chunk on, through all passes."""
        settings, training = self._settings, self.training
        order = iterate_visits(
            self._store.layout, settings.seed, self._solver.shuffled, training.passes, training.chunks_visited
        )
        self._earlier_wait_seconds, self._previous_retries = training.read_wait_seconds, count_retries()
        with Stream(self._store, order, depth=settings.depth, retain=settings.retain) as self._stream:
            yield

    def run_pass(self, checkpointer: Checkpointer) -> None:
        """Visit the remaining chunks of the pass and close it."""
        self.visit_stream(self._stream, checkpointer)
        self.training.reads_repeated = count_retries() - self._previous_retries

    def with_solver(self, solver: AnySolver, problems: list[Problem], previous: Training) -> StreamTrainer:
        """Return a loop over the same rows for another solver. Its counts of passes and costs start from those of
        ``previous``.
        """
        other = StreamTrainer(self._store, solver, problems, self._features, self._settings, self._report)
        other.training.continue_counts_from(previous)
        other._in_memory = self._in_memory
        return other

    def visit_stream(self, stream: Stream, checkpointer: Checkpointer) -> None:
        """Visit the remaining chunks of the pass, which ``stream`` yields, then close the pass."""
        training = self.training
        active = training.active()
        rows_visited = self._count_visited_rows()
        for loaded in stream.epoch() if training.chunks_visited < len(self._store.layout.chunks) else ():
            self._visit(loaded)
            training.chunks_visited += 1
            training.read_wait_seconds = self._earlier_wait_seconds + stream.seconds_waited
            rows_visited += len(loaded.chunk.codes)
            self._progress.report_rows(rows_visited, self._store.layout.rows)
            # After the last visit too: closing a pass may take longer than its visits.
            checkpointer.save_if_due(training)
        training.passes, training.chunks_visited = training.passes + 1, 0
        self._visitor.share_between_problems([problem.state for problem in active])
        for position, problem in enumerate(active, 1):
            self._progress.report_problem(position, len(active))
            run = training.runs[problem.number]
            with self._count_in_memory_time() as deadline:
                certificate = self._visitor.finish(run.state, deadline)
            run.record_certificate(certificate)
            self._progress.report_certificate(problem.number, run)

    def _count_visited_rows(self) -> int:
        """Return the number of rows that the current pass has visited already, before it was interrupted."""
        layout, training = self._store.layout, self.training
        order = epoch_order(layout, self._settings.seed, training.passes, self._solver.shuffled)
        return sum(layout.chunks[chunk] for chunk in order[: training.chunks_visited])

    def _visit(self, loaded: LoadedChunk) -> None:
        chunk = loaded.visit.chunk
        row_values = {name: row_state.load(chunk) for name, row_state in self._row_states.items()}
        self._visitor.visit(loaded, chunk, self._starts[chunk], self.training.active(), row_values)
        for name, values in row_values.items():
            self._row_states[name].save(chunk, values)
        if chunk not in self._in_memory:
            self.training.bytes_read += self._store.layout.chunk_bytes(chunk)
        if self._settings.cached:
            self._in_memory.add(chunk)


class LocalGroupTrainer(GroupTrainer):
    """The group-by-group fit loop in this process; a checkpoint can be made between any two groups."""

    def __init__(self, fit: GroupFit, executor: Executor, report: Report) -> None:
        super().__init__(fit, executor, report)
        self._row_states = {one.state.name: one for one in fit.work.state_files if isinstance(one, GroupRowStates)}
        self.training.row_states = {
            name: ProcessRows(one, fit.groups, fit.shared) for name, one in self._row_states.items()
        }
        if fit.work.driver_state is not None:
            self.training.row_states["home"] = ProcessDriverState(fit.work.driver_state, self.training.runs)
        self._previous_retries = count_retries()
        self._in_memory: set[int] = set()
        """The groups that have stayed in memory since an earlier pass."""

    def with_solver(self, solver: AnySolver, problems: list[Problem], previous: Training) -> LocalGroupTrainer:
        """Return a loop over the same groups for another solver. Its counts of passes and costs start from those of
        ``previous``.
        """
        work = replace(self._fit.work, solver=solver, problems=tuple(problems), state_files=(), driver_state=None)
        other = LocalGroupTrainer(replace(self._fit, work=work), self._executor, self._report)
        other.training.continue_counts_from(previous)
        other._in_memory = self._in_memory
        return other

    @contextmanager
    def open_for_passes(self) -> Iterator[None]:
        """Free the threads' copies of the feature map at the end of the passes; later work makes its own copies."""
        try:
            yield
        finally:
            self._fit.work.unused_maps.clear()

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
        for problem, state in zip(active, result.states, strict=True):
            for name, value in field_values(problem.state, self._solver.driver_fields).items():
                setattr(state, name, value)
        visitor.share_between_problems(result.states)
        for position, (problem, state) in enumerate(zip(active, result.states, strict=True), 1):
            self._progress.report_problem(position, len(active))
            run = training.runs[problem.number]
            run.state = state
            with self._count_in_memory_time() as deadline:
                certificate = visitor.finish(state, deadline)
            run.record_certificate(certificate)
            self._progress.report_certificate(problem.number, run)

    def _visit_groups(self, pass_input: PassInput, checkpointer: Checkpointer) -> PartialResult:
        if self._solver.shuffled:
            return self._merge_all_groups(pass_input, checkpointer)
        restored = {
            PartSpan(first, stop): PartialResult(first, stop, states) for first, stop, states in self.training.partials
        }
        groups, join = self._fit.groups, Join(self._fit.work.solver, pass_input)
        tree = JoinTree(len(groups), join, self._store_row_values, restored)
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
        numbers_on_disk = [k for k in numbers if k not in self._in_memory]
        self.training.bytes_read += sum(
            layout.chunk_bytes(chunk) for k in numbers_on_disk for chunk in self._fit.groups[k].chunks
        )
        if self._fit.cached:
            self._in_memory.update(numbers_on_disk)


class _UnfinishedPassOfGroups:
    """The partial results of the current pass (``fit_state.UnfinishedPass``)."""

    def __init__(self, tree: JoinTree[PartialResult], groups: list[Group]) -> None:
        self._tree, self._groups = tree, groups

    @contextmanager
    def lock_position(self) -> Iterator[Position]:
        """Yield the position with the joined results. Inside the context no result is added."""
        with self._tree.lock_nodes() as nodes:
            chunks_visited = sum(len(group.chunks) for span in nodes for group in self._groups[slice(*span)])
            yield Position(chunks_visited, [(*span, result.states) for span, result in nodes.items()])


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
        work, depth=settings.depth, retain=settings.retain, whole_groups=settings.whole_groups, unused_maps=[features]
    )
    shared = settings.shared or settings.directory
    if shared is not None and solver.driver_fields:
        work = replace(work, driver_state=DriverState(shared, solver.driver_fields))
    fit = GroupFit(work, groups, store.layout, 0, settings.cached, shared=shared or Path())
    return LocalGroupTrainer(fit, executor or SerialExecutor(), report)
