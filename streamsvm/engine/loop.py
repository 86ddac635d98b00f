"""Run the fit loop, which is the same for every solver. ``local_loop`` makes its passes in this process, ``cluster_loop``
makes them on a cluster.

In a pass, the solver of every problem that is not done visits every chunk; at the end of the pass the solver turns its
sums into the next weights (it closes the pass). The loop makes passes until every problem's duality gap has been computed exactly and is at most its tolerance. All problems (classes, values
of C) visit a block while it is in memory, so that one pass over the data serves them all. A callback may ask the fit to
end (``end_fit``); the fit then stops as it does at its time limit: after one final pass that computes exact
certificates.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from contextvars import ContextVar
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import Protocol, Self

from streamsvm.compute.compile_clock import CLOCK
from streamsvm.engine.block_visitor import ActiveProblem
from streamsvm.engine.checkpoint import Checkpointer, NoCheckpoint
from streamsvm.engine.executor import Executor, OnProgress, Task
from streamsvm.engine.fit_state import ProblemRun, Training, make_pending_steps
from streamsvm.engine.group_tasks import PartialResult, Work, visit_group, visit_groups
from streamsvm.engine.partition import Group
from streamsvm.engine.progress import ProgressReporter
from streamsvm.engine.shared_files import Place
from streamsvm.errors import SecurityError, StorageError, StreamSVMError
from streamsvm.schedule.machine import anonymous_bytes
from streamsvm.types import AnySolver, Layout, Problem, Report, Status, Stop

_END_REQUESTS: ContextVar[list[bool] | None] = ContextVar("end_requests", default=None)

RECENT_PASSES = 3
"""Number of recent passes from whose durations the duration of the next pass is estimated."""


@contextmanager
def listen_for_end() -> Iterator[Callable[[], bool]]:
    """Yield a function that returns whether ``end_fit`` was called for the fit inside the context."""
    requests: list[bool] = []
    token = _END_REQUESTS.set(requests)
    try:
        yield lambda: bool(requests)
    finally:
        _END_REQUESTS.reset(token)


def end_fit() -> None:
    """Ask the fit that runs in the current context to end; do nothing if no fit is running."""
    requests = _END_REQUESTS.get()
    if requests is not None:
        requests.append(True)


class PassEvaluator(Protocol):
    """Scores the weights of a training on held-out rows after every pass (``jobs.fit.validate``)."""

    def evaluate(self, training: Training) -> None:
        """Score the weights after a pass is closed. May mark problems as done; stores its state in
        ``training.validation_state``.
        """
        ...

    def is_pending(self, training: Training) -> bool:
        """Return whether the last pass was closed but not evaluated, because the process was stopped in between."""
        ...


class FitLoop(ABC):
    """Makes passes until every problem has an exact duality gap within its tolerance, or a limit is reached."""

    def __init__(self, solver: AnySolver, problems: list[Problem], report: Report) -> None:
        first = problems[: solver.problems_per_batch or None]
        states = [solver.start(problem) for problem in first] + [None] * (len(problems) - len(first))
        self.training = Training(list(map(ProblemRun, problems, states)))
        self.evaluator: PassEvaluator | None = None
        self.should_fall_back: Callable[[Training], bool] | None = None
        """Returns whether to stop the training so that the fallback solver continues it; None: there is no fallback."""
        self.reserved_passes = 0.0
        """Time reserved for work after the training, in multiples of the duration of a pass."""
        self._solver, self._report = solver, report
        self._progress = ProgressReporter(self.training, report)
        self._deadline = float("inf")
        """Moment of the time limit, by ``time.perf_counter``."""
        self._recent_seconds: deque[float] = deque(maxlen=RECENT_PASSES)
        """Durations of the last passes in seconds, without compilation and without in-memory work that stops at a
        deadline."""
        self._pass_start = 0.0
        """Start of the current pass, by the clock of ``_working_seconds``."""
        self._in_memory_seconds = 0.0
        """Seconds of the current pass that the solver has spent on rows in memory, without reading."""

    @abstractmethod
    def run_pass(self, checkpointer: Checkpointer) -> None:
        """Make one pass, or the rest of an interrupted pass, and close it. Adds the bytes that it reads to
        ``training.bytes_read``.
        """

    @abstractmethod
    def with_solver(self, solver: AnySolver, problems: list[Problem], previous: Training) -> Self:
        """Return a loop over the same rows for another solver. Its counts of passes and costs begin at those of
        ``previous``.
        """

    def continue_pass(self) -> None:
        """Prepare to finish a pass that was interrupted; called once, after the checkpoint was restored."""
        return  # ``run_pass`` continues at ``training.chunks_visited`` by default

    def close(self) -> None:
        """Close the files of per-row state."""
        for row_state in self.training.row_states.values():
            row_state.close()

    def train(self, stop: Stop, checkpointer: Checkpointer | None = None) -> Training:
        """Train until every gap is exact and within its tolerance, a limit is reached, or a callback calls ``end_fit``.

        Raises InterruptedRun if the process was asked to stop, and whatever reading the store raises.
        """
        training, checkpointer = self.training, checkpointer or NoCheckpoint()
        checkpointer.resume(training)
        self.continue_pass()
        if self._has_ended(stop):
            return training
        earlier_seconds = training.seconds
        self._deadline = self._progress.stopwatch.began + stop.seconds
        with self.open_for_passes(), listen_for_end() as end_requested:
            while True:
                self._pass_start, self._in_memory_seconds = _working_seconds(), 0.0
                with self._save_on_read_failure(checkpointer):
                    self._next_pass(stop, checkpointer)
                self._make_in_memory_steps(checkpointer)
                if self.evaluator is not None:
                    with self.saving_on_cluster_failure(checkpointer):
                        self.evaluator.evaluate(training)
                training.seconds = earlier_seconds + self._progress.stopwatch.seconds
                self._recent_seconds.append(self._pass_seconds())
                training.seconds_left, training.seconds_needed = (
                    self._deadline - time.perf_counter(),
                    self._seconds_to_reserve(),
                )
                if training.decide_end(
                    late=training.seconds_left < training.seconds_needed, end_requested=end_requested()
                ):
                    return training
                if self.should_fall_back is not None and not training.is_last_pass and self.should_fall_back(training):
                    training.status = Status.STALLED
                    return training
                checkpointer.save_if_due(training)

    def _seconds_to_reserve(self) -> float:
        """Return the seconds to reserve for one more pass, the final pass and later work; 0 for exact kernels, whose passes can be
        stopped at any row.
        """
        passes = 2.0 + self.training.batches_waiting(self._solver) + self.reserved_passes
        return 0.0 if self._solver.exact_kernel else passes * min(self._recent_seconds)

    def _pass_seconds(self) -> float:
        """Return the seconds of the current pass, without compilation and interruptible in-memory work."""
        interruptible = self._in_memory_seconds if self._solver.stops_early else 0.0
        return max(0.0, _working_seconds() - self._pass_start - interruptible)

    def _work_deadline(self) -> float:
        """Return the moment at which in-memory work must stop to leave time for the final pass and later work."""
        if self._solver.exact_kernel:
            return self._deadline
        return self._deadline - (1.0 + self.reserved_passes) * min([*self._recent_seconds, self._pass_seconds()])

    @contextmanager
    def _count_in_memory_time(self) -> Iterator[float]:
        """Count the time inside the context as in-memory work; yield the deadline of that work."""
        deadline, began = self._work_deadline(), _working_seconds()
        try:
            yield deadline
        finally:
            self._in_memory_seconds += _working_seconds() - began

    def open_for_passes(self) -> AbstractContextManager[None]:
        """Return a context inside which passes can read the store."""
        return nullcontext()

    def saving_on_cluster_failure(self, checkpointer: Checkpointer) -> AbstractContextManager[None]:
        """Return a context that saves a checkpoint if the cluster fails inside it."""
        del checkpointer
        return nullcontext()

    def _make_in_memory_steps(self, checkpointer: Checkpointer) -> None:
        """Make the in-memory steps before the next pass; the process can be stopped after each step."""
        pending = self._problems_with_steps()
        with self._count_in_memory_time() as deadline:
            for position, problem in enumerate(pending, 1):
                self._progress.report_problem(position, len(pending))
                for _ in make_pending_steps(self._solver, problem.state, deadline):
                    checkpointer.save_if_due(self.training)

    def _has_ended(self, stop: Stop) -> bool:
        """Return whether the restored training is already complete, so that no pass is left to make."""
        training = self.training
        last = training.is_last_pass and training.passes >= stop.max_passes and not training.chunks_visited
        is_over = not training.active() or (last and not self._has_unfinished_work())
        return training.passes > 0 and is_over and not training.waiting()

    def _has_unfinished_work(self) -> bool:
        """Return whether the last pass is closed but its in-memory steps or its evaluation are not done."""
        return bool(self._problems_with_steps()) or (
            self.evaluator is not None and self.evaluator.is_pending(self.training)
        )

    def _problems_with_steps(self) -> list[ActiveProblem]:
        """Return the problems whose solver has in-memory steps to make before the next pass."""
        return [problem for problem in self.training.active() if self._solver.has_pending_steps(problem.state)]

    @contextmanager
    def _save_on_read_failure(self, checkpointer: Checkpointer) -> Iterator[None]:
        """Save a checkpoint if the store cannot be read any more, such as one in an object store that is gone, or refuses access."""
        try:
            yield
        except (StorageError, SecurityError) as error:
            if not isinstance(checkpointer, NoCheckpoint):
                with suppress(StreamSVMError):  # the disk may be what failed
                    checkpointer.save(self.training)
                    error.hint = f"{error.hint}; with --resume the fit goes on from the checkpoint that was saved"
            raise

    def _next_pass(self, stop: Stop, checkpointer: Checkpointer) -> None:
        """Make the next pass, unless the work after the last pass was interrupted and must be done first."""
        if self._has_unfinished_work():
            return
        checkpointer.check_store()
        if self.training.chunks_visited == 0:
            self.training.begin(stop, self._solver)
        self.run_pass(checkpointer)
        checkpointer.check_store()


def _working_seconds() -> float:
    """Return the seconds of a clock that stops while numba compiles in this process."""
    return time.perf_counter() - CLOCK.seconds()


@dataclass(frozen=True, slots=True)
class RunSettings:
    """The settings of reading the data, which the plan decides. Only ``seed`` and the groups affect the result."""

    seed: int = 0
    """Seed of the order in which chunks and rows are visited."""
    depth: int = 2
    """Number of blocks read ahead."""
    retain: bool = True
    """Whether the store may stay in the page cache between passes."""
    cached: bool = False
    """Whether blocks stay in memory after they are read."""
    directory: Path | None = None
    """Directory of per-row state and checkpoints; None: no files are written."""
    resident: bool = True
    """Whether the per-row state of all rows is in memory."""

    groups: int | None = None
    """Number of groups of chunks. None: online solvers visit one chunk at a time; for other solvers the store
    determines the number."""
    whole_groups: bool = False
    """Whether the rows of a group are concatenated and visited as one block."""
    shared: Place | None = None
    """Where a run on a cluster has left its files, if that is not ``directory``."""

    def file(self, name: str) -> Path | None:
        """Return the path of the per-row state called ``name``; None without a directory."""
        return None if self.directory is None else self.directory / name


@dataclass(frozen=True, slots=True)
class GroupFit:
    """A fit that is made group by group: the common input of its tasks, and the groups."""

    work: Work
    groups: list[Group]
    """The groups; each is one task in every pass."""
    layout: Layout
    """Layout of the training store."""
    task_bytes: int
    """Bytes of memory that a task is expected to need."""
    cached: bool = False
    """Whether blocks stay in memory after they are read."""
    directory: Path = Path()
    """The folder of checkpoints, on the machine of the driver."""
    shared: Place = Path()
    """Where a run on a cluster leaves its files."""


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
        self._task = Task("fit", visit_group, fit.task_bytes, visit_groups)

    def _count_costs(self, result: PartialResult) -> None:
        """Add the costs of a pass to the training."""
        training = self.training
        training.read_wait_seconds += result.waited / self._executor.threads
        training.peak = max(training.peak, result.peak, anonymous_bytes())

    def _make_progress_callback(self, checkpointer: Checkpointer) -> OnProgress:
        """Return the callback to call while tasks run: it checks for signals, makes checkpoints and reports
        progress.
        """

        def on_progress(done: int) -> None:
            checkpointer.save_if_due(self.training)
            self._progress.report_rows(self._rows_up_to[done], self._rows_up_to[-1])

        return on_progress
