"""The fit loop, written once for every solver, and the trainer of solvers that move while they read.

A pass shows every chunk to the solver of every problem that is not done, then closes the pass; the loop makes passes
until all certificates are exact and small enough. ``groups`` makes a pass group by group, on threads or on a cluster;
``StreamTrainer`` shows one chunk after the other to a solver that moves while it reads. All problems (classes, values of C)
see a block while it is in memory: one reading of the data serves them all. A callback may ask the fit to end (``end_fit``): it ends
as at a time limit, with one more pass that certifies.
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
from streamsvm.engine.fit_state import ProblemRun, Training, steps_between
from streamsvm.engine.progress import ProgressReporter
from streamsvm.engine.row_state import RowStates
from streamsvm.schedule.stream import Loaded, Stream, epoch_order, visits
from streamsvm.store.disk_reads import count_retries
from streamsvm.types import AnySolver, FeatureMap, Problem, Report, Status, Stop, Store

_WISHES: ContextVar[list[bool] | None] = ContextVar("wishes", default=None)

RECENT = 3
"""Passes by which the time of the next one is judged."""


@contextmanager
def listen_for_end() -> Iterator[Callable[[], bool]]:
    """Yield a function that returns whether ``end_fit`` was called for the fit inside the context."""
    wishes: list[bool] = []
    token = _WISHES.set(wishes)
    try:
        yield lambda: bool(wishes)
    finally:
        _WISHES.reset(token)


def end_fit() -> None:
    """Ask the running fit of this context to end; a no-op without one."""
    wishes = _WISHES.get()
    if wishes is not None:
        wishes.append(True)


class PassEvaluator(Protocol):
    """Evaluates a training on held-out rows after every pass (``jobs.fit.validate``)."""

    def evaluate(self, training: Training) -> None:
        """Evaluate the training after its certificates are known. May end runs; keeps its memory in ``training.validation_state``."""
        ...

    def pending(self, training: Training) -> bool:
        """Return whether the last pass was closed but not evaluated, because the run was stopped in between."""
        ...


class FitLoop(ABC):
    """The loop of passes until every certificate is exact and small enough, or a limit is reached."""

    def __init__(self, solver: AnySolver, problems: list[Problem], report: Report) -> None:
        self.training = Training([ProblemRun(problem, solver.start(problem)) for problem in problems])
        self.evaluator: PassEvaluator | None = None
        self.should_fall_back: Callable[[Training], bool] | None = None
        """Returns whether to stop early so that the fallback solver continues."""
        self.reserved_passes = 0.0
        """Number of passes whose time is reserved for work after the training."""
        self._solver, self._report = solver, report
        self._progress = ProgressReporter(self.training, report)
        self._deadline = float("inf")
        """Moment of the time limit, by ``time.perf_counter``."""
        self._recent: deque[float] = deque(maxlen=RECENT)
        """Seconds of the last passes, excluding compilation and work that ends at a deadline."""
        self._began = 0.0
        """Start of the current pass, by the clock of ``_working_seconds``."""
        self._own_seconds = 0.0
        """Seconds of the current pass that the solver has worked in memory."""

    @abstractmethod
    def run_pass(self, checkpointer: Checkpointer) -> None:
        """Make one pass, or the rest of one, and close it. Counts the bytes read in ``result``."""

    @abstractmethod
    def with_solver(self, solver: AnySolver, problems: list[Problem], before: Training) -> Self:
        """Return a loop over the same rows for another solver, whose counts start from those of ``before``."""

    def continue_pass(self) -> None:
        """Continue the pass of an earlier run after ``result`` was restored; called once."""
        return  # a pass goes on where it was, unless a loop says otherwise

    def close(self) -> None:
        """Close the files of per-row state."""
        for rows in self.training.row_states.values():
            rows.close()

    def train(self, stop: Stop, checkpointer: Checkpointer | None = None) -> Training:
        """Train until every certificate is exact and small enough, a limit is reached, or a callback calls ``end_fit``.

        Raises InterruptedRun when the run was asked to stop, and what reading the store raises.
        """
        training, checkpointer = self.training, checkpointer or NoCheckpoint()
        checkpointer.resume(training)
        self.continue_pass()
        if self._has_ended(stop):
            return training
        before = training.seconds
        self._deadline = self._progress.stopwatch.began + stop.seconds
        with self.reading(), listen_for_end() as asked:
            while True:
                self._began, self._own_seconds = _working_seconds(), 0.0
                self._next_pass(stop, checkpointer)
                self._work_between(checkpointer)
                if self.evaluator is not None:
                    with self.saving_on_cluster_failure(checkpointer):
                        self.evaluator.evaluate(training)
                training.seconds = before + self._progress.stopwatch.seconds
                self._recent.append(self._pass_seconds())
                training.seconds_left, training.seconds_needed = self._deadline - time.perf_counter(), self._reserve()
                if training.decide_end(late=training.seconds_left < training.seconds_needed, asked=asked()):
                    return training
                if self.should_fall_back is not None and not training.ending and self.should_fall_back(training):
                    training.status = Status.STALLED
                    return training
                checkpointer.save_if_due(training)

    def _reserve(self) -> float:
        """Return the seconds reserved for another pass, the certifying pass and later work; 0 where a pass can be left."""
        return 0.0 if self._solver.exact_kernel else (2.0 + self.reserved_passes) * min(self._recent)

    def _pass_seconds(self) -> float:
        """Return the seconds of the current pass, excluding compilation and work in memory that ends at a deadline."""
        own = self._own_seconds if self._solver.stops_early else 0.0
        return max(0.0, _working_seconds() - self._began - own)

    def _work_deadline(self) -> float:
        """Return the moment at which work in memory must end to leave time for a certifying pass and later work."""
        if self._solver.exact_kernel:
            return self._deadline
        return self._deadline - (1.0 + self.reserved_passes) * min([*self._recent, self._pass_seconds()])

    @contextmanager
    def _working_in_memory(self) -> Iterator[float]:
        """Count the time inside the context as work in memory; yield its deadline."""
        deadline, began = self._work_deadline(), _working_seconds()
        try:
            yield deadline
        finally:
            self._own_seconds += _working_seconds() - began

    def reading(self) -> AbstractContextManager[None]:
        """Return a context in which the passes of a training can read."""
        return nullcontext()

    def saving_on_cluster_failure(self, checkpointer: Checkpointer) -> AbstractContextManager[None]:
        """Return a context that saves a checkpoint if its work is lost with another machine."""
        del checkpointer
        return nullcontext()

    def _work_between(self, checkpointer: Checkpointer) -> None:
        """Make the steps of solvers in memory before the next pass; the run can be stopped after each step."""
        pending = self._pending()
        with self._working_in_memory() as deadline:
            for number, one in enumerate(pending, 1):
                self._progress.closing(number, len(pending))
                for _ in steps_between(self._solver, one.state, deadline):
                    checkpointer.save_if_due(self.training)

    def _has_ended(self, stop: Stop) -> bool:
        """Return whether an earlier run was stopped after its training: everything is certified, or all passes were made."""
        training = self.training
        last = training.ending and training.passes >= stop.max_passes and not training.chunks_visited
        return training.passes > 0 and (not training.active() or (last and not self._to_evaluate()))

    def _to_evaluate(self) -> bool:
        """Return whether the last pass is closed but its steps or its evaluation are not done."""
        return bool(self._pending()) or (self.evaluator is not None and self.evaluator.pending(self.training))

    def _pending(self) -> list[ActiveProblem]:
        """Return the problems whose solver has steps to make before the next pass."""
        return [one for one in self.training.active() if self._solver.has_pending_steps(one.state)]

    def _next_pass(self, stop: Stop, checkpointer: Checkpointer) -> None:
        """Make the next pass, unless an earlier run made it and was stopped before its steps and evaluation were done."""
        if self._to_evaluate():
            return
        checkpointer.check_store()
        if self.training.chunks_visited == 0:
            self.training.begin(stop, self._solver)
        self.run_pass(checkpointer)
        checkpointer.check_store()


def _working_seconds() -> float:
    """Return the time of a clock that stops while this process compiles."""
    return time.perf_counter() - CLOCK.seconds()


@dataclass(frozen=True, slots=True)
class RunSettings:
    """How the data is read: decided by the plan, without effect on the result except ``seed``."""

    seed: int = 0
    """Seed of the order in which chunks and rows are visited."""
    depth: int = 2
    """Number of blocks read ahead."""
    retain: bool = True
    """Whether the store may stay in the page cache between passes."""
    cached: bool = False
    """Whether blocks stay in memory after they were read."""
    directory: Path | None = None
    """Directory of per-row state and checkpoints; None if there are no files."""
    resident: bool = True
    """Whether per-row state lives in memory."""

    groups: int | None = None
    """Number of groups of chunks; None: a solver that updates weights while it reads visits chunk by chunk, and for others the
    number of groups depends on the store."""
    whole_groups: bool = False
    """Whether the rows of a group are concatenated and visited as one block."""

    def file(self, name: str) -> Path | None:
        """Return the path of a named per-row state; None without a directory."""
        return None if self.directory is None else self.directory / name


class StreamTrainer(FitLoop):
    """The fit loop of solvers that update weights while they read: reader threads load chunks, this thread visits them."""

    def __init__(  # noqa: PLR0917 (what a training joins, in the order of the sentence)
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
        """The chunks that are in memory since an earlier pass of this run."""
        self._row_states = {
            state.name: RowStates(state, store.layout, len(problems), settings.file(state.name), settings.resident)
            for state in solver.row_state
        }
        self.training.row_states = dict(self._row_states)

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Read ahead from the next chunk on, epoch after epoch."""
        settings, training = self._settings, self.training
        order = visits(
            self._store.layout, settings.seed, self._solver.shuffled, training.passes, training.chunks_visited
        )
        self._waited, self._retries = training.waited, count_retries()
        with Stream(self._store, order, depth=settings.depth, retain=settings.retain) as self._stream:
            yield

    def run_pass(self, checkpointer: Checkpointer) -> None:
        """Visit the remaining chunks of the pass and close it."""
        self.one_pass(self._stream, checkpointer)
        self.training.reads_repeated = count_retries() - self._retries

    def with_solver(self, solver: AnySolver, problems: list[Problem], before: Training) -> StreamTrainer:
        """Return a loop for another solver over the same rows."""
        other = StreamTrainer(self._store, solver, problems, self._features, self._settings, self._report)
        other.training.continue_counts_from(before)
        other._in_memory = self._in_memory
        return other

    def one_pass(self, stream: Stream, checkpointer: Checkpointer) -> None:
        """Visit the chunks of ``stream`` up to the end of the epoch, then close the pass."""
        training = self.training
        active = training.active()
        rows = self._rows_before()
        for loaded in stream.epoch() if training.chunks_visited < len(self._store.layout.chunks) else ():
            self._visit(loaded)
            training.chunks_visited += 1
            training.waited = self._waited + stream.waited
            rows += len(loaded.chunk.codes)
            self._progress.rows(rows, self._store.layout.rows)
            checkpointer.save_if_due(
                training
            )  # after the last visit too: to close a pass may take longer than to make it
        training.passes, training.chunks_visited = training.passes + 1, 0
        self._visitor.join_gathered([one.state for one in active])
        for number, one in enumerate(active, 1):
            self._progress.closing(number, len(active))
            run = training.runs[one.number]
            with self._working_in_memory() as deadline:
                certificate = self._visitor.finish(run.state, deadline)
            run.take_certificate(certificate)
            self._progress.certificate(one.number, run)

    def _rows_before(self) -> int:
        """Return the number of rows of the pass that an earlier run visited."""
        layout, training = self._store.layout, self.training
        order = epoch_order(layout, self._settings.seed, training.passes, self._solver.shuffled)
        return sum(layout.chunks[chunk] for chunk in order[: training.chunks_visited])

    def _visit(self, loaded: Loaded) -> None:
        chunk = loaded.visit.chunk
        rows = {name: states.load(chunk) for name, states in self._row_states.items()}
        self._visitor.visit(loaded, chunk, self._starts[chunk], self.training.active(), rows)
        for name, values in rows.items():
            self._row_states[name].save(chunk, values)
        if chunk not in self._in_memory:
            self.training.bytes_read += self._store.layout.chunk_bytes(chunk)
        if self._settings.cached:
            self._in_memory.add(chunk)
