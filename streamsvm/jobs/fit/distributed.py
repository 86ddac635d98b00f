"""The fit loop over many workers: a round is a pass over all groups side by side, joined and closed there.

Batch solvers only sum up in a pass. Their groups are fixed by the layout, joined two by two in a fixed tree on the
workers, and the pass is closed there too (``closing``), so that one, two or four workers, and this process alone, find
the same bits. A run without a cluster sums over chunk after chunk instead: it finds the same numbers up to rounding, and
the same bits where there is one group.

Row-wise solvers move while they go. There are few groups, as many as workers unless ``groups`` says so, because they
lose touch with each other: a solver joins what came of all copies of its state at once, in the order of the groups. One
with per-row state is told how many copies there are (its setting ``parts``: CoCoA+ for dual coordinate descent).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from streamsvm.engine.executor import Executor, Joins, OnProgress, Task, task_limit
from streamsvm.engine.partition import Group, contiguous, round_robin
from streamsvm.engine.progress import ProgressReporter
from streamsvm.engine.state_files import DriverState, GroupRows, Sidecar, Versions
from streamsvm.engine.state_transfer import clone, serialize
from streamsvm.engine.task import Closed, Join, Partial, Round, Work, close_round, visit_group
from streamsvm.engine.trainer import Checkpointer, HeldOutEvaluator, NoCheckpoint
from streamsvm.engine.training import Run, Training
from streamsvm.errors import ClusterError, UsageError
from streamsvm.features.scaling import Raw, Standardized
from streamsvm.jobs.fit.options import FitJob
from streamsvm.jobs.fit.plan import Plan, choose_solver
from streamsvm.schedule.budget import KEPT_MOST, anonymous_bytes
from streamsvm.solvers import SOLVERS
from streamsvm.store import open_store
from streamsvm.types import Layout, Mergeable, Partitioned, Problem, Report, SplitState, Stop, Store

TOGETHER_MOST = KEPT_MOST
"""Bytes of a group up to which its rows are visited as one block."""


@dataclass(frozen=True, slots=True)
class DistributedFit:
    """A fit as it is spread: what the tasks need to know, and over which groups."""

    work: Work
    groups: list[Group]
    layout: Layout
    needs: int

    @property
    def batch(self) -> bool:
        return not self.work.solver.shuffled


def distributed_job(job: FitJob, executor: Executor) -> FitJob:
    """The job with what the cluster decides: memory of a task, and groups where the result depends on them."""
    groups, memory = job.groups, task_limit(executor, job.memory)
    if groups is None and SOLVERS[choose_solver(job, open_store(job.store).layout)[0]]().shuffled:
        groups = max(2, executor.threads)
    return replace(job, groups=groups, memory=memory)


def distributed_fit(job: FitJob, plan: Plan, store: Store, directory: Path) -> DistributedFit:
    """Decide the groups. Raises UsageError for a solver that has nothing to join."""
    if not isinstance(plan.solver, Mergeable):
        raise UsageError(f"solver '{plan.solver_name}' does not run on a cluster", hint="leave out --cluster")
    solver: Any = plan.solver
    layout = store.layout
    groups = round_robin(layout, job.groups or 2) if solver.shuffled else contiguous(layout, job.groups)
    if isinstance(solver, Partitioned):
        solver = solver.in_parts(len(groups))
    sidecars = tuple(Sidecar(directory.resolve(), state, len(plan.problems)) for state in solver.row_state)
    work = Work(
        str(Path(store.name).resolve()), store.digest, solver, tuple(plan.problems), plan.features, job.seed,
        depth=1, retain=plan.memory.retain, together=_together(plan, layout, len(groups)), sidecars=sidecars,
        chunks=store.selection,
        driver_state=DriverState(directory.resolve(), solver.driver_fields) if isinstance(solver, SplitState) else None,
    )  # fmt: skip
    return DistributedFit(work, groups, layout, plan.memory.total)


def _together(plan: Plan, layout: Layout, groups: int) -> bool:
    """Whether a group is small enough to be one block; only then are rows met in random order over all of it."""
    wanted = plan.solver.shuffled and isinstance(plan.features, Raw | Standardized)
    held = 2 * layout.bytes_per_pass // groups
    fits = plan.memory.cached or held <= plan.memory.limit - plan.memory.total
    return wanted and fits and held <= TOGETHER_MOST


class DistributedTrainer:
    """Like ``engine.trainer.Trainer``, through an executor."""

    def __init__(self, spread: DistributedFit, executor: Executor, report: Report) -> None:
        self._spread, self._executor, self._report = spread, executor, report
        self.evaluator: HeldOutEvaluator | None = None
        work = spread.work
        self._solver = work.solver
        self.result = Training([Run(p, self._solver.start(p)) for p in work.problems])
        self._versions = Versions()
        on_disk: dict[str, Any] = {
            car.state.name: GroupRows(car, spread.layout, spread.groups, self._versions) for car in work.sidecars
        }
        self.result.row_states = on_disk | ({"home": self._versions} if work.driver_state else {})
        self._task = Task("fit", visit_group, spread.needs)
        self._teller = ProgressReporter(self.result, report)

    def close(self) -> None:
        """Nothing is open."""

    def train(self, stop: Stop, checkpointer: Checkpointer | None = None) -> Training:
        """Round after round until every certificate is exact and small enough, or ``stop`` says so."""
        result, checkpointer = self.result, checkpointer or NoCheckpoint()
        checkpointer.resume(result)
        before, shared = result.seconds, self._executor.share(self._spread.work)
        while True:
            checkpointer.around()
            if self.evaluator is None or not self.evaluator.pending(result):
                result.begin(stop, self._solver)
                self._round(shared, checkpointer)
            if self.evaluator is not None:
                with self._resumable(checkpointer):
                    self.evaluator.evaluate(result)
            result.seconds = before + self._teller.pace.seconds
            if result.over(late=self._teller.pace.seconds > stop.seconds):
                return result
            checkpointer.between(result)

    def again(self, solver: Any, problems: list[Problem], before: Training) -> DistributedTrainer:
        """Another one over the same groups; it counts on from what was spent ``before``."""
        work = replace(self._spread.work, solver=solver, problems=tuple(problems), sidecars=(), driver_state=None)
        other = DistributedTrainer(replace(self._spread, work=work), self._executor, self._report)
        other.result.count_on(before)
        return other

    def _round(self, shared: Any, checkpointer: Checkpointer) -> None:
        result, driver_state = self.result, self._spread.work.driver_state
        active = result.active()
        states = tuple(
            (k, serialize(driver_state.without(run.state) if driver_state else run.state)) for k, run in active
        )
        begun = Round(result.passes, states, self._versions.version, self._versions.drop(), bounds={})
        with self._resumable(checkpointer):
            closed = self._closed(shared, begun, self._meanwhile(checkpointer))
        self._versions.advance()
        result.passes += 1
        result.bytes_read += self._spread.layout.bytes_per_pass
        result.waited += closed.waited / self._executor.threads
        result.peak = max(result.peak, closed.peak, anonymous_bytes())
        for (k, run), state, certificate in zip(active, closed.states, closed.certificates, strict=True):
            run.state = clone(state)
            run.certified(certificate)
            self._teller.certificate(k, run)

    @contextmanager
    def _resumable(self, checkpointer: Checkpointer) -> Iterator[None]:
        """Save what there is when the cluster is lost, and say what a user of a fit can do besides."""
        try:
            yield
        except ClusterError as error:
            checkpointer.save(self.result)
            hint = f"{error.hint}; then run the same command with --resume: it goes on after the last complete pass"
            raise ClusterError(error.message, hint=hint, code=error.code) from error

    def _closed(self, shared: Any, begun: Round, tell: OnProgress) -> Closed:
        """One pass over all groups. Nothing on the driver has changed if it fails."""
        groups, work, given = self._spread.groups, self._spread.work, self._executor.share(begun)
        if self._spread.batch:
            joins = Joins(Join(work.solver), close_round)
            found: Closed = self._executor.reduce(self._task, groups, joins, (shared, given), tell)
            return found
        parts = list(self._executor.map(self._task, groups, (shared, given), tell))
        joined = [work.solver.merge(list(copies)) for copies in zip(*(part.states for part in parts), strict=True)]
        seconds, waited = sum(p.seconds for p in parts), sum(p.waited for p in parts)
        return close_round(Partial(0, len(parts), joined, seconds, waited, max(p.peak for p in parts)), work, begun)

    def _meanwhile(self, checkpointer: Checkpointer) -> OnProgress:
        """What is done while workers work: what is asked from outside is heard, and progress told."""

        def tell(done: int) -> None:
            checkpointer.between(self.result)
            self._teller.rows(sum(g.rows for g in self._spread.groups[:done]), self._spread.layout.rows)

        return tell
