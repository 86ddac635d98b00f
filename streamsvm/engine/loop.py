"""The fit loop, written once for every solver, and the trainer for online solvers, which update their weights at every
block.

A pass visits every chunk with the solver of every problem that is not done, then closes the pass. The loop makes passes
until every problem's duality gap has been computed exactly and is at most its tolerance. ``groups`` makes a pass group
by group, on threads or on a cluster; ``StreamTrainer`` visits one chunk after the other, for online solvers. All
problems (classes, values of C) visit a block while it is in memory, so that one pass over the data serves them all. A
callback may ask the fit to end (``end_fit``); the fit then stops as it does at its time limit: after one final pass
that computes exact certificates.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, Self

from streamsvm.compute.compile_clock import CLOCK
from streamsvm.engine.block import ActiveProblem, BlockVisitor
from streamsvm.engine.checkpoint import Checkpointer, NoCheckpoint
from streamsvm.engine.fit_state import ProblemRun, Training, make_pending_steps
from streamsvm.engine.progress import ProgressReporter
from streamsvm.engine.row_state import RowStates
from streamsvm.schedule.stream import Loaded, Stream, epoch_order, visits
from streamsvm.store.disk_reads import count_retries
from streamsvm.types import AnySolver, FeatureMap, Problem, Report, Status, Stop, Store

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

    def pending(self, training: Training) -> bool:
        """Return whether the last pass was closed but not evaluated, because the process was stopped in between."""
        ...


class FitLoop(ABC):
    """Makes passes until every problem has an exact duality gap within its tolerance, or a limit is reached."""

    def __init__(self, solver: AnySolver, problems: list[Problem], report: Report) -> None:
        self.training = Training([ProblemRun(problem, solver.start(problem)) for problem in problems])
        self.evaluator: PassEvaluator | None = None
        self.should_fall_back: Callable[[Training], bool] | None = None
        """Returns whether to stop the training so that the fallback solver continues it; None: there is no fallback."""
        self.reserved_passes = 0.0
        """Time reserved for work after the training, in multiples of the duration of a pass."""
        self._solver, self._report = solver, report
        self._progress = ProgressReporter(self.training, report)
        self._deadline = float("inf")
        """Moment of the time limit, by ``time.perf_counter``."""
        self._recent: deque[float] = deque(maxlen=RECENT_PASSES)
        """Durations of the last passes in seconds, without compilation and without in-memory work that stops at a
        deadline."""
        self._began = 0.0
        """Start of the current pass, by the clock of ``_working_seconds``."""
        self._in_memory_seconds = 0.0
        """Seconds of the current pass that the solver has spent on rows in memory, without reading."""

    @abstractmethod
    def run_pass(self, checkpointer: Checkpointer) -> None:
        """Make one pass, or the rest of an interrupted one, and close it. Adds the bytes that it reads to
        ``training.bytes_read``.
        """

    @abstractmethod
    def with_solver(self, solver: AnySolver, problems: list[Problem], previous: Training) -> Self:
        """Return a loop over the same rows for another solver, whose passes and costs are counted on from
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
        before = training.seconds
        self._deadline = self._progress.stopwatch.began + stop.seconds
        with self.reading(), listen_for_end() as end_requested:
            while True:
                self._began, self._in_memory_seconds = _working_seconds(), 0.0
                self._next_pass(stop, checkpointer)
                self._make_in_memory_steps(checkpointer)
                if self.evaluator is not None:
                    with self.saving_on_cluster_failure(checkpointer):
                        self.evaluator.evaluate(training)
                training.seconds = before + self._progress.stopwatch.seconds
                self._recent.append(self._pass_seconds())
                training.seconds_left, training.seconds_needed = self._deadline - time.perf_counter(), self._reserve()
                if training.decide_end(
                    late=training.seconds_left < training.seconds_needed, end_requested=end_requested()
                ):
                    return training
                if self.should_fall_back is not None and not training.ending and self.should_fall_back(training):
                    training.status = Status.STALLED
                    return training
                checkpointer.save_if_due(training)

    def _reserve(self) -> float:
        """Return the seconds to reserve for one more pass, the final pass and later work; 0 if passes can be abandoned."""
        return 0.0 if self._solver.exact_kernel else (2.0 + self.reserved_passes) * min(self._recent)

    def _pass_seconds(self) -> float:
        """Return the seconds of the current pass, without compilation and interruptible in-memory work."""
        interruptible = self._in_memory_seconds if self._solver.stops_early else 0.0
        return max(0.0, _working_seconds() - self._began - interruptible)

    def _work_deadline(self) -> float:
        """Return the moment at which in-memory work must stop to leave time for the final pass and later work."""
        if self._solver.exact_kernel:
            return self._deadline
        return self._deadline - (1.0 + self.reserved_passes) * min([*self._recent, self._pass_seconds()])

    @contextmanager
    def _count_in_memory_time(self) -> Iterator[float]:
        """Count the time inside the context as in-memory work; yield the deadline of that work."""
        deadline, began = self._work_deadline(), _working_seconds()
        try:
            yield deadline
        finally:
            self._in_memory_seconds += _working_seconds() - began

    def reading(self) -> AbstractContextManager[None]:
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
                self._progress.closing(position, len(pending))
                for _ in make_pending_steps(self._solver, problem.state, deadline):
                    checkpointer.save_if_due(self.training)

    def _has_ended(self, stop: Stop) -> bool:
        """Return whether the restored training is already complete, so that no pass is left to make."""
        training = self.training
        last = training.ending and training.passes >= stop.max_passes and not training.chunks_visited
        return training.passes > 0 and (not training.active() or (last and not self._has_unfinished_work()))

    def _has_unfinished_work(self) -> bool:
        """Return whether the last pass is closed but its in-memory steps or its evaluation are not done."""
        return bool(self._problems_with_steps()) or (
            self.evaluator is not None and self.evaluator.pending(self.training)
        )

    def _problems_with_steps(self) -> list[ActiveProblem]:
        """Return the problems whose solver has in-memory steps to make before the next pass."""
        return [problem for problem in self.training.active() if self._solver.has_pending_steps(problem.state)]

    def _next_pass(self, stop: Stop, checkpointer: Checkpointer) -> None:
        """Make the next pass, unless the work that follows the last pass was interrupted and is still to be done."""
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
    """How the data is read, as decided by the plan. Only ``seed`` and the groups affect the result."""

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

    def file(self, name: str) -> Path | None:
        """Return the path of the per-row state called ``name``; None without a directory."""
        return None if self.directory is None else self.directory / name


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
    def reading(self) -> Iterator[None]:
        """Read ahead from the next chunk on, pass after pass."""
        settings, training = self._settings, self.training
        order = visits(
            self._store.layout, settings.seed, self._solver.shuffled, training.passes, training.chunks_visited
        )
        self._previously_waited, self._previous_retries = training.waited, count_retries()
        with Stream(self._store, order, depth=settings.depth, retain=settings.retain) as self._stream:
            yield

    def run_pass(self, checkpointer: Checkpointer) -> None:
        """Visit the remaining chunks of the pass and close it."""
        self.one_pass(self._stream, checkpointer)
        self.training.reads_repeated = count_retries() - self._previous_retries

    def with_solver(self, solver: AnySolver, problems: list[Problem], previous: Training) -> StreamTrainer:
        """Return a loop over the same rows for another solver, whose passes and costs are counted on from
        ``previous``.
        """
        other = StreamTrainer(self._store, solver, problems, self._features, self._settings, self._report)
        other.training.continue_counts_from(previous)
        other._in_memory = self._in_memory
        return other

    def one_pass(self, stream: Stream, checkpointer: Checkpointer) -> None:
        """Visit the remaining chunks of the pass, which ``stream`` yields, then close the pass."""
        training = self.training
        active = training.active()
        rows_visited = self._count_visited_rows()
        for loaded in stream.epoch() if training.chunks_visited < len(self._store.layout.chunks) else ():
            self._visit(loaded)
            training.chunks_visited += 1
            training.waited = self._previously_waited + stream.waited
            rows_visited += len(loaded.chunk.codes)
            self._progress.rows(rows_visited, self._store.layout.rows)
            # After the last visit too: closing a pass may take longer than its visits.
            checkpointer.save_if_due(training)
        training.passes, training.chunks_visited = training.passes + 1, 0
        self._visitor.join_gathered([problem.state for problem in active])
        for position, problem in enumerate(active, 1):
            self._progress.closing(position, len(active))
            run = training.runs[problem.number]
            with self._count_in_memory_time() as deadline:
                certificate = self._visitor.finish(run.state, deadline)
            run.take_certificate(certificate)
            self._progress.certificate(problem.number, run)

    def _count_visited_rows(self) -> int:
        """Return the number of rows that the current pass has visited already, before it was interrupted."""
        layout, training = self._store.layout, self.training
        order = epoch_order(layout, self._settings.seed, training.passes, self._solver.shuffled)
        return sum(layout.chunks[chunk] for chunk in order[: training.chunks_visited])

    def _visit(self, loaded: Loaded) -> None:
        chunk = loaded.visit.chunk
        row_values = {name: row_state.load(chunk) for name, row_state in self._row_states.items()}
        self._visitor.visit(loaded, chunk, self._starts[chunk], self.training.active(), row_values)
        for name, values in row_values.items():
            self._row_states[name].save(chunk, values)
        if chunk not in self._in_memory:
            self.training.bytes_read += self._store.layout.chunk_bytes(chunk)
        if self._settings.cached:
            self._in_memory.add(chunk)
