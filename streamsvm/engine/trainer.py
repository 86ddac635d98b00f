"""The fit loop, written once for every solver: read a block, let each problem's solver visit it, close the pass.

All problems (classes, values of C) see a block while it is in memory: one reading of the data serves them all.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from streamsvm.engine.progress import ProgressReporter
from streamsvm.engine.row_state import RowStates
from streamsvm.engine.training import Run, Training
from streamsvm.rows import Int32
from streamsvm.schedule.plan import visits
from streamsvm.schedule.stream import Loaded, Stream
from streamsvm.store.read.retry import retries
from streamsvm.types import Block, Deadline, FeaturePart, Problem, Report, SharedRows, Solver, Stop, Store


@dataclass(frozen=True, slots=True)
class RunSettings:
    """How the data is gone through: decided by the plan, without influence on the result (``seed`` apart)."""

    seed: int = 0
    depth: int = 2
    retain: bool = True
    cached: bool = False
    """Whether blocks stay in memory once they are read."""
    directory: Path | None = None
    """Where the files of per-row state and of checkpoints are; None: there are none."""
    resident: bool = True
    """Whether per-row state lives in memory."""


class Checkpointer(Protocol):
    """What is done between two visits for the sake of a later resume."""

    def resume(self, training: Training) -> None:
        """Change ``training`` to where an earlier run was stopped, if there was one."""
        ...

    def between(self, training: Training) -> None:
        """Called after every visit. Raises InterruptedRun when the run is to stop here."""
        ...

    def around(self) -> None:
        """Called before and after every pass. Raises DataError when the store is not the one that was opened."""
        ...

    def save(self, training: Training) -> None:
        """Called when a run cannot go on, with the training as it was between two visits."""
        ...


class NoCheckpoint:
    """The checkpointer of a run that is not resumed."""

    def resume(self, training: Training) -> None: ...
    def between(self, training: Training) -> None: ...
    def around(self) -> None: ...
    def save(self, training: Training) -> None: ...


class HeldOutEvaluator(Protocol):
    """Who looks at held-out rows (``jobs.fit.validation``)."""

    def evaluate(self, training: Training) -> None:
        """Called after every pass, when certificates are known; may end runs, and remembers in ``training.held``."""
        ...

    def pending(self, training: Training) -> bool:
        """Whether a run was stopped between its last pass and the look."""
        ...


class Trainer:
    """Joins a store, a solver, problems and a feature map; ``train`` runs to the end."""

    def __init__(  # noqa: PLR0917 (what a training joins, in the order of the sentence)
        self,
        store: Store,
        solver: Solver[Any],
        problems: list[Problem],
        features: Any,
        course: RunSettings,
        report: Report,
    ) -> None:
        self._store, self._solver, self._features = store, solver, features
        self._course, self._report = course, report
        self.evaluator: HeldOutEvaluator | None = None
        self._starts = np.concatenate([[0], np.cumsum(store.layout.chunks)]).tolist()
        self._result = Training([Run(p, solver.start(p)) for p in problems])
        self._result.row_states = {
            s.name: RowStates(
                s, store.layout, len(problems), course.directory and course.directory / s.name, course.resident
            )
            for s in solver.row_state
        }
        self._teller = ProgressReporter(self._result, report)
        self._until = float("inf")

    def train(self, stop: Stop, checkpointer: Checkpointer | None = None) -> Training:
        """Pass after pass until every certificate is exact and small enough, or ``stop`` says so."""
        result, checkpointer = self._result, checkpointer or NoCheckpoint()
        checkpointer.resume(result)
        order = visits(self._store.layout, self._course.seed, self._solver.shuffled, result.passes, result.index)
        before = result.seconds, result.waited, retries()
        self._until = self._teller.pace.began + stop.seconds
        with Stream(self._store, order, depth=self._course.depth, retain=self._course.retain) as stream:
            while True:
                checkpointer.around()
                if result.index == 0:
                    result.begin(stop, self._solver)
                self.one_pass(stream, checkpointer)
                checkpointer.around()
                if self.evaluator is not None:
                    self.evaluator.evaluate(result)
                self._account(stream, *before)
                if result.over(late=time.perf_counter() > self._until):
                    return result
                checkpointer.between(result)

    def _account(self, stream: Stream, seconds: float, waited: float, repeated: int) -> None:
        """What was spent so far, given what had been when the stream was opened."""
        result = self._result
        if result.passes == 1 or not self._course.cached:
            result.bytes_read += self._store.layout.bytes_per_pass
        result.reads_repeated = retries() - repeated
        result.seconds, result.waited = seconds + self._teller.pace.seconds, waited + stream.waited

    def again(self, solver: Solver[Any], problems: list[Problem], before: Training) -> Trainer:
        """Another one for the same rows, which stay where they are; it counts on from what was spent ``before``."""
        other = Trainer(self._store, solver, problems, self._features, self._course, self._report)
        other._result.count_on(before)
        return other

    def close(self) -> None:
        """Give back the files of per-row state."""
        for rows in self._result.row_states.values():
            rows.close()

    def one_pass(self, stream: Stream, checkpointer: Checkpointer) -> None:
        result = self._result
        active = result.active()
        rows = 0
        for loaded in stream.epoch() if result.index < len(self._store.layout.chunks) else ():
            self._visit(loaded, active)
            result.index += 1
            rows += len(loaded.chunk.codes)
            self._teller.rows(rows, self._store.layout.rows)
            checkpointer.between(result)  # after the last visit too: to close a pass may take longer than to make it
        result.passes, result.index = result.passes + 1, 0
        for k, run in active:
            if isinstance(self._solver, Deadline):
                self._solver.set_deadline(run.state, self._until)
            run.certified(self._solver.finish(run.state))
            self._teller.certificate(k, run)

    def _visit(self, loaded: Loaded, active: list[tuple[int, Run]]) -> None:
        chunk, number = loaded.chunk, loaded.visit.chunk
        active = [(k, run) for k, run in active if number not in run.problem.held_out]
        states = {name: rows.load(number) for name, rows in self._result.row_states.items()}
        for part in self._features.parts(chunk.X):
            span = slice(part.start, part.stop)
            if isinstance(self._solver, SharedRows):
                self._solver.prepare_shared([run.state for _, run in active], part.X)
            for k, run in active:
                y, s = view_of(run.problem, chunk.codes[span], None if chunk.weight is None else chunk.weight[span])
                order = order_within(loaded.order, part, keep=len(active) > 1)
                rows = {name: values[k][span] for name, values in states.items()}
                start, seed = self._starts[number] + part.start, loaded.visit.seed + part.start
                self._solver.visit(
                    run.state, Block(part.X, y, s, number, start, order, seed, self._course.cached, rows)
                )
        for name, values in states.items():
            self._result.row_states[name].save(number, values)


def order_within(order: Int32, part: FeaturePart, *, keep: bool) -> Int32:
    """The visiting order of a chunk, restricted to a part of it; a copy if the order must be ``keep``-t."""
    if part.stop - part.start == len(order):
        return order.copy() if keep else order
    return order[(order >= part.start) & (order < part.stop)] - np.int32(part.start)


def view_of(problem: Problem, codes: Any, weight: Any) -> tuple[Any, Any]:
    """The signs (n,) and weights (n,) float32 one problem gives to rows of these classes and weights."""
    y = (codes == problem.positive).astype(np.float32)
    y *= 2  # a quarter of the time of np.where
    y -= 1
    factors = np.asarray(problem.weights, np.float32)
    s = factors[codes] if len(factors) else np.ones(len(codes), np.float32)
    return y, s if weight is None else s * weight
