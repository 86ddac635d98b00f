"""The fit loop over groups of chunks: a pass is a task for each group, on one thread, on several, or on a cluster.

Solvers that only sum up in a pass have groups that the store alone decides (``partition.pass_groups``), joined two by
two in a fixed tree: one thread, sixteen, and the workers of a cluster find the same bits.

Solvers that move while they read have few groups, because copies of a state lose touch with each other: a solver joins
what came of all copies at once, in the order of the groups.

In this process the states stay where they are: a group is given what its visits change (``work.part_of``), results are
joined as they come, and a checkpoint may be made between any two. ``distributed`` is the same loop over a cluster.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import accumulate

from streamsvm.config.fields import field_values
from streamsvm.engine.block_visitor import BlockVisitor
from streamsvm.engine.checkpoint.checkpointer import Checkpointer
from streamsvm.engine.executors.executor import Executor, Joins, OnProgress, Task
from streamsvm.engine.groups.changeover import ProcessDriverState, ProcessRows
from streamsvm.engine.groups.join_tree import JoinTree, PartSpan
from streamsvm.engine.groups.task import visit_group, visit_groups
from streamsvm.engine.groups.work import Join, Partial, Round, Work, spent_together
from streamsvm.engine.partition import Group
from streamsvm.engine.state.row_state import GroupRowStates
from streamsvm.engine.trainer import FitLoop
from streamsvm.engine.training import Position, Training
from streamsvm.schedule.budget import anonymous_bytes
from streamsvm.store.read.retry import retries
from streamsvm.types import AnySolver, Layout, Problem, Report


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
