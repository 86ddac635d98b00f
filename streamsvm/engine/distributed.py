"""The fit loop over many workers: a round is a pass over all groups side by side, joined and closed there.

Batch solvers only sum up in a pass. Their groups are fixed by the layout, joined two by two in a fixed tree on the
workers, and the pass is closed there too (``task.close_round``), so that one, two or four workers, and this process
alone, find the same bits. ``trainer.Trainer`` sums over chunk after chunk instead: it finds the same numbers up to
rounding, and the same bits where there is one group. That is why there are two executions of one loop.

Row-wise solvers move while they go. There are few groups, because solvers lose touch with each other: a solver joins
what came of all copies of its state at once, in the order of the groups.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

from streamsvm.engine.checkpoint.checkpointer import Checkpointer
from streamsvm.engine.executor import Executor, Joins, OnProgress, Task
from streamsvm.engine.partition import Group
from streamsvm.engine.state_files import GroupRows, Versions
from streamsvm.engine.state_transfer import clone, serialize
from streamsvm.engine.task import Closed, Join, Round, Work, close_round, spent_together, visit_group
from streamsvm.engine.trainer import FitLoop
from streamsvm.engine.training import Training
from streamsvm.errors import ClusterError
from streamsvm.schedule.budget import anonymous_bytes
from streamsvm.types import AnySolver, Layout, Mergeable, Problem, Report


@dataclass(frozen=True, slots=True)
class DistributedFit:
    """A fit as it is distributed: what the tasks need to know, and over which groups."""

    work: Work
    """What every task is given."""
    groups: list[Group]
    """One task each in every round."""
    layout: Layout
    """Of the store that is trained on."""
    needs: int
    """Bytes a task is expected to hold."""


class DistributedTrainer(FitLoop):
    """The fit loop through an executor: every pass is a round of tasks, one a group of chunks."""

    def __init__(self, fit: DistributedFit, executor: Executor, report: Report) -> None:
        work = fit.work
        super().__init__(work.solver, list(work.problems), report)
        self._fit, self._executor = fit, executor
        self._shared = executor.share(work)
        self._versions = Versions()
        rows = {
            files.state.name: GroupRows(files, fit.layout, fit.groups, self._versions) for files in work.state_files
        }
        self.result.row_states = {**rows, **({"home": self._versions} if work.driver_state else {})}
        self._task = Task("fit", visit_group, fit.needs)

    def again(self, solver: AnySolver, problems: list[Problem], before: Training) -> DistributedTrainer:
        """Return a loop for another solver over the same groups."""
        assert isinstance(solver, Mergeable)  # what evaluates weights is
        work = replace(self._fit.work, solver=solver, problems=tuple(problems), state_files=(), driver_state=None)
        other = DistributedTrainer(replace(self._fit, work=work), self._executor, self._report)
        other.result.count_on(before)
        return other

    def run_pass(self, checkpointer: Checkpointer) -> None:
        """Make a round and take in what it came to. Raises ClusterError, with all that was known saved."""
        result, driver_state = self.result, self._fit.work.driver_state
        active = result.active()
        states = tuple(
            (one.number, serialize(driver_state.without(one.state) if driver_state else one.state)) for one in active
        )
        deadline = time.time() + (self._deadline - time.perf_counter())
        begun = Round(result.passes, states, self._versions.version, self._versions.drop(), {}, deadline)
        with self.saving_on_loss(checkpointer):
            closed = self._closed(begun, self._meanwhile(checkpointer))
        self._versions.advance()
        result.passes += 1
        result.bytes_read += self._fit.layout.bytes_per_pass
        result.waited += closed.spent.waited / self._executor.threads
        result.reads_repeated += closed.spent.reads_repeated
        result.peak = max(result.peak, closed.spent.peak, anonymous_bytes())
        ended = zip(active, closed.states, closed.certificates, strict=True)
        for number, (one, state, certificate) in enumerate(ended, 1):
            self._progress.closing(number, len(active))
            run = result.runs[one.number]
            run.state = clone(state)
            run.certified(certificate)
            self._progress.certificate(one.number, run)

    @contextmanager
    def saving_on_loss(self, checkpointer: Checkpointer) -> Iterator[None]:
        """Save what there is when the cluster is lost, and say what a user of a fit can do besides."""
        try:
            yield
        except ClusterError as error:
            checkpointer.save(self.result)
            hint = f"{error.hint}; then run the same command with --resume: it goes on after the last complete pass"
            raise ClusterError(error.message, hint=hint, code=error.code) from error

    def _closed(self, begun: Round, on_progress: OnProgress) -> Closed:
        """One pass over all groups. Nothing on the driver has changed if it fails."""
        work, shared = self._fit.work, (self._shared, self._executor.share(begun))
        if not work.solver.shuffled:
            joins = Joins(Join(work.solver), close_round)
            found: Closed = self._executor.reduce(self._task, self._fit.groups, joins, shared, on_progress)
            return found
        parts = list(self._executor.map(self._task, self._fit.groups, shared, on_progress))
        joined = [work.solver.merge(list(copies)) for copies in zip(*(part.states for part in parts), strict=True)]
        return close_round(spent_together(parts, joined), work, begun)

    def _meanwhile(self, checkpointer: Checkpointer) -> OnProgress:
        """What is done while workers work: what is asked from outside is heard, and progress reported."""

        def on_progress(done: int) -> None:
            checkpointer.between(self.result)
            self._progress.rows(sum(g.rows for g in self._fit.groups[:done]), self._fit.layout.rows)

        return on_progress
