"""The state of a fit while it trains: states and certificates of its problems, costs, and how it ends (``Training.decide_end``)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeAlias, runtime_checkable

from streamsvm.aliases import Array, ByName
from streamsvm.types import AnySolver, Certificate, Layout, Problem, State, Status, Stop

if TYPE_CHECKING:
    from streamsvm.engine.block import ActiveProblem


class CheckpointedRows(Protocol):
    """State in files beside a run that its checkpoints refer to (``row_state``)."""

    def checkpoint(self) -> ByName:
        """Make the present state durable and return the record with which ``restore`` restores it."""
        ...

    def restore(self, saved: ByName | None, older: ByName | None = None) -> None:
        """Restore a checkpoint; ``older`` is another one that must stay valid. Raises DataError."""
        ...

    def close(self) -> None:
        """Close the files."""
        ...


@runtime_checkable
class RowNumbers(CheckpointedRows, Protocol):
    """One number for each row and problem, in this process or on a cluster."""

    @property
    def layout(self) -> Layout:
        """The layout of the training rows, by whose chunks the numbers are stored; it can differ from that of the store read."""
        ...

    def load(self, chunk: int) -> Array:
        """Return the numbers of a chunk, (problems, rows of the chunk), valid until the next call. Raises DataError."""
        ...


SavedPartial: TypeAlias = tuple[int, int, list[State]]
"""(first, stop, states): the states of the active problems after a visit of the groups [first, stop)."""


class Position(NamedTuple):
    """The position of a training."""

    chunks_visited: int
    """Number of visits made in the current pass."""
    partials: list[SavedPartial]
    """Partial results of the current pass."""


class PassUnderWay(Protocol):
    """A pass that several threads may be making."""

    def lock_position(self) -> AbstractContextManager[Position]:
        """Return a context with the position, during which nothing is added."""
        ...


@dataclass(slots=True)
class ProblemRun:
    """A problem with its solver's state and its last certificate."""

    problem: Problem
    """What is being solved."""
    state: State
    """The state of its solver."""
    certificate: Certificate | None = None
    """Certificate of the last pass; None before the first pass was closed."""
    done: bool = False
    """Whether the problem takes part in no further pass."""
    witness: State | None = None
    """State from which dual variables are computed at the end, if ``state`` is not sufficient (``types.Solver.witness``)."""

    def take_certificate(self, found: Certificate) -> None:
        """Set the certificate of a closed pass. If it is final, or exact and small enough, the problem is done.

        Raises what ``Certificate.verify`` raises: a gap below 0 is never taken for convergence.
        """
        found.verify(self.problem)
        self.certificate = found
        self.done = found.ends(self.problem)

    def witness_state(self) -> State:
        """Return the state at the end of the last pass, as far as dual variables are computed from it."""
        return self.state if self.witness is None else self.witness


@dataclass(slots=True, repr=False)
class Training:
    """The result of a training: state and certificate of each problem, and costs."""

    runs: list[ProblemRun]
    """One a problem, in the order of the fit."""
    status: Status = Status.CONVERGED
    """How the run ended, or is about to end."""
    passes: int = 0
    """Passes closed."""
    chunks_visited: int = 0
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
    """Seconds of ``seconds`` in which solvers waited for blocks to arrive."""
    bytes_read: int = 0
    """Bytes of all chunks that were read for training, again ones included."""
    reads_repeated: int = 0
    """Reads of this run that succeeded only at another try."""
    peak: int = 0
    """The most bytes of anonymous memory that were seen in use."""
    row_states: Mapping[str, CheckpointedRows] = field(default_factory=dict)
    """What lies in files beside the run, by name."""
    validation_state: ByName = field(default_factory=dict)
    """What the evaluator of held-out rows remembers, plain values and arrays."""
    gaps: list[float] = field(default_factory=list)
    """After every pass of this solver, the largest gap of a problem; where a certificate is not exact, an estimate."""
    partials: list[SavedPartial] = field(default_factory=list)
    """What an earlier run had found of the pass under way, where a pass is made group by group."""
    under_way: PassUnderWay | None = None
    """What is found of it now; None between two passes."""

    def __repr__(self) -> str:
        return f"<Training: {self.status.value}, {self.passes} passes, {len(self.runs)} problems, {self.seconds:.3g} s>"

    @contextmanager
    def lock_position(self) -> Iterator[Position]:
        """Say where the training is, while nothing of it changes."""
        if self.under_way is None:
            yield Position(self.chunks_visited, self.partials)
        else:
            with self.under_way.lock_position() as position:
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

    def decide_end(self, *, late: bool, asked: bool = False) -> bool:
        """Whether the pass just closed was the last one; notes why. When it is ``late``, or it was ``asked`` for, another one certifies."""
        self.gaps.append(max((run.certificate.gap for run in self.runs if run.certificate is not None), default=0.0))
        if not self.active():
            stopped = any(known["stopped"] for known in self.validation_state.values())
            self.status = Status.PATIENCE if stopped else Status.CONVERGED
            return True
        if self.ending:
            return True
        if late or asked:
            self.ending, self.status = True, Status.ASKED if asked else Status.TIME
        return False

    def continue_counts_from(self, before: Training) -> None:
        """Begin with what another training has spent."""
        self.passes, self.seconds, self.waited = before.passes, before.seconds, before.waited
        self.bytes_read, self.peak = before.bytes_read, before.peak


def steps_between(solver: AnySolver, state: State, deadline: float) -> Iterator[None]:
    """Make the steps that a solver makes between two passes; after each the state can be saved.

    A solver that can stop early does so after ``deadline``, a moment of ``time.perf_counter``. Changes the state.
    """
    solver.set_deadline(state, deadline)
    while solver.has_pending_steps(state):
        solver.make_step(state)
        yield
