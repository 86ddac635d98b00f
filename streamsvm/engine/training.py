"""What a fit knows of itself while it trains: the states and certificates of its problems, what was spent, and reports of progress."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeAlias, runtime_checkable

from streamsvm.aliases import Array, ByName, JsonObject
from streamsvm.schedule.budget import anonymous_bytes
from streamsvm.types import AnySolver, Certificate, Layout, Problem, Report, State, Status, Stop

if TYPE_CHECKING:
    from streamsvm.engine.block import ActiveProblem

REPORT_SECONDS = 0.2
"""Between two reports of progress, at least."""


class Stopwatch:
    """Counts seconds from the moment it is made, and says when it is time to report again."""

    def __init__(self) -> None:
        self.began = self._last = time.perf_counter()

    @property
    def seconds(self) -> float:
        """Seconds since it was made."""
        return time.perf_counter() - self.began

    def due(self) -> bool:
        """Whether REPORT_SECONDS have passed since this was last true."""
        now = time.perf_counter()
        if now - self._last < REPORT_SECONDS:
            return False
        self._last = now
        return True


class CheckpointedRows(Protocol):
    """Numbers that lie in files beside a run and go through checkpoints with it (``row_state``, ``state_files``)."""

    def checkpoint(self) -> ByName:
        """Make the present numbers durable, and return what ``restore`` comes back to them with."""
        ...

    def restore(self, saved: ByName | None, older: ByName | None = None) -> None:
        """Come back to a checkpoint; ``older`` is another one whose numbers must stay as they are. Raises DataError."""
        ...

    def close(self) -> None:
        """Give back what is open; the files stay."""
        ...


@runtime_checkable
class RowNumbers(CheckpointedRows, Protocol):
    """One number for each row and problem, wherever the rows are worked on."""

    @property
    def layout(self) -> Layout:
        """Whose chunks the numbers lie in: of what is trained on, which need not be cut like what was read."""
        ...

    def load(self, chunk: int) -> Array:
        """Return those of a chunk's rows, (problems, rows of the chunk), valid until the next call. Raises DataError."""
        ...


SavedPartial: TypeAlias = tuple[int, int, list[State]]
"""The states of the problems that take part in a pass, as groups [first, stop) have left them."""


class Position(NamedTuple):
    """Where a training is."""

    visits: int
    """Visits made of the pass under way."""
    partials: list[SavedPartial]
    """What was found of it apart from the states of the runs."""


class PassUnderWay(Protocol):
    """A pass that several may be working on."""

    def at_rest(self) -> AbstractContextManager[Position]:
        """Say what is known of it; nothing is added as long as this lasts."""
        ...


@dataclass(slots=True)
class Run:
    """A problem under way: its solver's state and what has been certified so far."""

    problem: Problem
    """What is being solved."""
    state: State
    """The state of its solver."""
    certificate: Certificate | None = None
    """That of the last pass; None before the first was closed."""
    done: bool = False
    """Whether it takes part in no further pass."""
    witness: State | None = None
    """What the dual variables are read off at the end, where ``state`` has not all of it (``types.Solver.witness``)."""

    def certified(self, found: Certificate) -> None:
        """Take in the certificate of a closed pass; exact and small enough, or final, it is the last one.

        Raises what ``Certificate.verify`` raises: a gap below 0 is never taken for convergence.
        """
        found.verify(self.problem)
        self.certificate = found
        self.done = found.ends(self.problem)

    def witnessed(self) -> State:
        """Return the state as it was when the last pass was closed, as far as dual variables are read off it."""
        return self.state if self.witness is None else self.witness


@dataclass(slots=True)
class Training:
    """What a training has come to: per problem its state and certificate, and what it took."""

    runs: list[Run]
    """One a problem, in the order of the fit."""
    status: Status = Status.CONVERGED
    """How the run ended, or is about to end."""
    passes: int = 0
    """Passes closed."""
    index: int = 0
    """Visits made of the pass under way: with ``passes`` the position in the plan."""
    ending: bool = False
    """Whether the pass under way, or the next one, is the last."""
    seconds: float = 0.0
    """Wall-clock time, over all runs that were resumed."""
    seconds_left: float = 0.0
    """Of the time limit, when the last pass was begun."""
    seconds_needed: float = 0.0
    """What was expected then of a pass more, the one that certifies and what follows."""
    waited: float = 0.0
    """Seconds of them in which solvers waited for blocks to arrive."""
    bytes_read: int = 0
    """Bytes of all chunks that were read for training, again ones included."""
    reads_repeated: int = 0
    """Reads of this run that succeeded only at another try."""
    peak: int = 0
    """The most bytes of anonymous memory that were seen in use."""
    row_states: Mapping[str, CheckpointedRows] = field(default_factory=dict)
    """What lies in files beside the run, by name."""
    held: ByName = field(default_factory=dict)
    """What the evaluator of held-out rows remembers, plain values and arrays."""
    gaps: list[float] = field(default_factory=list)
    """After every pass of this solver, the largest gap of a problem; where a certificate is not exact, an estimate."""
    partials: list[SavedPartial] = field(default_factory=list)
    """What an earlier run had found of the pass under way, where a pass is made group by group."""
    under_way: PassUnderWay | None = None
    """What is found of it now; None between two passes."""

    @contextmanager
    def at_rest(self) -> Iterator[Position]:
        """Say where the training is, while nothing of it changes."""
        if self.under_way is None:
            yield Position(self.index, self.partials)
        else:
            with self.under_way.at_rest() as position:
                yield position

    def active(self) -> list[ActiveProblem]:
        """Return the problems that are not done."""
        from streamsvm.engine.block import ActiveProblem  # which loads numba

        return [ActiveProblem(k, run.problem, run.state) for k, run in enumerate(self.runs) if not run.done]

    def begin(self, stop: Stop, solver: AnySolver) -> None:
        """Begin a pass: tell the solver, before its first visit, if it is the last one."""
        if not self.ending and self.passes + 1 >= stop.max_passes:
            self.ending, self.status = True, Status.PASSES
        if self.ending:
            for one in self.active():
                solver.certify(one.state)

    def over(self, *, late: bool, asked: bool = False) -> bool:
        """Whether the pass just closed was the last one; notes why. When it is ``late``, or it was ``asked`` for, another one certifies."""
        self.gaps.append(max((run.certificate.gap for run in self.runs if run.certificate is not None), default=0.0))
        if not self.active():
            stopped = any(known["stopped"] for known in self.held.values())
            self.status = Status.PATIENCE if stopped else Status.CONVERGED
            return True
        if self.ending:
            return True
        if late or asked:
            self.ending, self.status = True, Status.ASKED if asked else Status.TIME
        return False

    def count_on(self, before: Training) -> None:
        """Begin with what another training has spent."""
        self.passes, self.seconds, self.waited = before.passes, before.seconds, before.waited
        self.bytes_read, self.peak = before.bytes_read, before.peak


def steps_between(solver: AnySolver, state: State, deadline: float) -> Iterator[None]:
    """Make the steps that a solver makes between two passes; after each the state can be saved.

    A solver that can stop early does so after ``deadline``, a moment of ``time.perf_counter``. Changes the state.
    """
    solver.set_deadline(state, deadline)
    while solver.pending(state):
        solver.proceed(state)
        yield


class ProgressReporter:
    """Reports on a training, and notes the peak of its memory by the way."""

    def __init__(self, training: Training, report: Report) -> None:
        self._training, self._report = training, report
        self.stopwatch = Stopwatch()

    def rows(self, seen: int, of: int) -> None:
        """Report, when it is time, that so many rows of this pass are done."""
        if self.stopwatch.due():
            self._event("progress", {"pass": self._training.passes + 1, "rows": seen, "of": of})

    def closing(self, number: int, of: int) -> None:
        """Report that a pass is being closed for problem ``number``, from 1, of several: that may take longer than to
        read.
        """
        if of > 1:
            self._event("progress", {"pass": self._training.passes, "closing": number, "problems": of})

    def certificate(self, k: int, run: Run) -> None:
        """Report the certificate of problem ``k``, fresh from a closed pass."""
        found = run.certificate
        assert found is not None
        values = {"primal": found.primal, "dual": found.dual, "gap": found.gap, "exact": found.exact}
        values["rounding"] = found.rounding
        self._event("pass", {"pass": self._training.passes, "problem": k, **values, "facts": found.facts})

    def _event(self, event: str, facts: JsonObject) -> None:
        memory = anonymous_bytes()
        self._training.peak = max(self._training.peak, memory)
        spent = {"waited": self._training.waited, "bytes_read": self._training.bytes_read}
        self._report({"event": event, **facts, "seconds": self.stopwatch.seconds, "memory": memory, **spent})
