"""Hold the state of a fit while it trains: the solver state and the certificate of each problem, the time, I/O and
memory used so far, and whether and why the fit ends.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeAlias, runtime_checkable

from streamsvm.type_aliases import Array, ValuesByName
from streamsvm.types import AnySolver, Certificate, Layout, Problem, State, Status, Stop

if TYPE_CHECKING:
    from streamsvm.engine.block_visitor import ActiveProblem


class RowStateStore(Protocol):
    """Values of rows in files of their own, to which the checkpoints of a fit refer (``row_state``)."""

    def checkpoint(self) -> ValuesByName:
        """Write the current state to disk and return the record from which ``restore`` restores it."""
        ...

    def restore(self, saved: ValuesByName | None, older: ValuesByName | None = None) -> None:
        """Restore the state of checkpoint ``saved``; ``older`` is a second checkpoint that must stay valid. Raises
        DataError.
        """
        ...

    def close(self) -> None:
        """Close the files."""
        ...


@runtime_checkable
class PerRowValues(RowStateStore, Protocol):
    """One number for each row and problem, in this process or on a cluster."""

    @property
    def layout(self) -> Layout:
        """The layout of the training rows. The values are stored in the chunks of this layout, which need not be those
        of the store being read.
        """
        ...

    def load(self, chunk: int) -> Array:
        """Return the values of a chunk, (problems, rows of the chunk), valid until the next call. Raises DataError."""
        ...


SavedPartialResult: TypeAlias = tuple[int, int, list[State]]
"""(first, stop, states): the states of the active problems after the chunk groups [first, stop) were visited
and merged."""


class Position(NamedTuple):
    """How far the current pass has come."""

    chunks_visited: int
    """Number of chunks visited in the current pass."""
    partials: list[SavedPartialResult]
    """Partial results of the current pass, if it is made chunk group by chunk group."""


class UnfinishedPass(Protocol):
    """A pass to which several threads may be adding results."""

    def lock_position(self) -> AbstractContextManager[Position]:
        """Return a context that yields the position; inside it no thread adds a result."""
        ...


@dataclass(slots=True)
class ProblemRun:
    """The optimization of one problem: its solver's state and its last certificate."""

    problem: Problem
    state: State
    """The state of its solver; None until its passes begin (``types.Solver.problems_per_batch``)."""
    certificate: Certificate | None = None
    """Certificate of the last pass; None before the first pass is closed."""
    done: bool = False
    """Whether the problem takes part in no further pass."""
    dual_witness: State | None = None
    """State from which the dual variables are computed at the end, if ``state`` does not suffice
    (``types.Solver.witness``)."""

    def record_certificate(self, certificate: Certificate) -> None:
        """Record the certificate of a closed pass. If it is exact and its gap is within the tolerance, or it is final, the
        problem is done (``Certificate.ends``).

        Raises what ``Certificate.verify`` raises: a gap below 0 is an error, and never counts as convergence.
        """
        certificate.verify(self.problem)
        self.certificate = certificate
        self.done = certificate.ends(self.problem)

    def witness_state(self) -> State:
        """Return the state from which the dual variables of the last pass are computed."""
        return self.state if self.dual_witness is None else self.dual_witness


SAVED_FIELDS = {
    "passes": "passes",
    "index": "chunks_visited",
    "ending": "is_last_pass",
    "seconds": "seconds",
    "waited": "read_wait_seconds",
    "bytes_read": "bytes_read",
    "held": "validation_state",
    "gaps": "gaps",
}
"""Maps each key of a checkpoint to the field of ``Training`` saved under it. The problems' runs, the per-row state
and the status are stored under further keys (``checkpoint.RunCheckpointer``)."""


@dataclass(slots=True, repr=False)
class Training:
    """The state of a fit while it trains, and its result afterwards: the run of each problem, and the time, I/O and memory
    used.
    """

    runs: list[ProblemRun]
    """One for each problem, in the order of the fit's problems."""
    status: Status = Status.CONVERGED
    """How the training ended, or is about to end."""
    passes: int = 0
    """Number of closed passes."""
    chunks_visited: int = 0
    """Number of chunks visited in the current pass."""
    is_last_pass: bool = False
    """Whether the pass that is being made is the last one; between passes, whether the next one is."""
    seconds: float = 0.0
    """Wall-clock time, summed over the interrupted process and those that resumed it."""
    seconds_left: float = 0.0
    """Seconds that were left of the time limit after the last pass."""
    seconds_needed: float = 0.0
    """Seconds that were reserved after the last pass for one more pass, the final pass and later work."""
    read_wait_seconds: float = 0.0
    """Seconds, included in ``seconds``, in which solvers waited for blocks."""
    bytes_read: int = 0
    """Bytes of the chunks read for training, counted at every read."""
    reads_repeated: int = 0
    """Number of reads of this process that succeeded only when repeated."""
    peak: int = 0
    """Largest measured use of anonymous memory, in bytes."""
    row_states: Mapping[str, RowStateStore] = field(default_factory=dict)
    """State in files of its own, by name."""
    validation_state: ValuesByName = field(default_factory=dict)
    """State of the evaluator of held-out rows: plain values and arrays, keyed by C as a string."""
    gaps: list[float] = field(default_factory=list)
    """The largest gap of any problem after each pass made by the current solver (a fallback solver starts an empty list);
    an estimate if a certificate is not exact."""
    partials: list[SavedPartialResult] = field(default_factory=list)
    """Partial results of an interrupted pass, restored from a checkpoint, if passes are made chunk group by
    chunk group."""
    unfinished_pass: UnfinishedPass | None = None
    """The pass that is being made chunk group by chunk group; None between two passes."""
    cut_short: list[ProblemRun] = field(default_factory=list)
    """Unsolved problems of earlier batches, whose last pass was made. They count as done until the remaining batches
    have made their last pass, too."""

    def __repr__(self) -> str:
        return f"<Training: {self.status.value}, {self.passes} passes, {len(self.runs)} problems, {self.seconds:.3g} s>"

    @contextmanager
    def lock_position(self) -> Iterator[Position]:
        """Yield the position of the training; nothing of the training changes inside the context."""
        if self.unfinished_pass is None:
            yield Position(self.chunks_visited, self.partials)
        else:
            with self.unfinished_pass.lock_position() as position:
                yield position

    def active(self) -> list[ActiveProblem]:
        """Return the problems that have begun and are not done."""
        from streamsvm.engine.block_visitor import ActiveProblem  # imported late: it loads numba

        runs = enumerate(self.runs)
        return [ActiveProblem(k, run.problem, run.state) for k, run in runs if not run.done and run.state is not None]

    def waiting(self) -> list[ProblemRun]:
        """Return the runs whose passes begin when others are done."""
        return [run for run in self.runs if run.state is None]

    def batches_waiting(self, solver: AnySolver) -> int:
        """Return the number of batches of problems whose passes begin later."""
        return -(-len(self.waiting()) // (solver.problems_per_batch or len(self.runs) or 1))

    def begin(self, stop: Stop, solver: AnySolver) -> None:
        """Begin a pass. If no problem is active, start the next batch first. Before a batch's last pass, ask the solver for
        an exact evaluation (``Solver.certify``).
        """
        if not self.active():
            self._begin_next_problems(solver)
        if not self.is_last_pass and self.passes + 1 + self.batches_waiting(solver) >= stop.max_passes:
            self.is_last_pass, self.status = True, Status.PASSES
        if self.is_last_pass:
            for one in self.active():
                solver.certify(one.state)

    def _begin_next_problems(self, solver: AnySolver) -> None:
        """Start the problems of the next batch from the solutions of the earlier batches."""
        solved = [run.state for run in self.runs if run.state is not None]
        for state in solved:
            solver.forget_steps(state)
        following = self.waiting()[: solver.problems_per_batch or None]
        states = solver.start_after([run.problem for run in following], solved)
        for run, state in zip(following, states, strict=True):
            run.state = state

    def decide_end(self, *, late: bool, end_requested: bool = False) -> bool:
        """Record the largest gap, and return whether the pass just closed was the last one; ``status`` says why.

        If time is short (``late``) or a callback has asked for the end, one more pass follows (one for each batch, if
        problems are solved in batches), which computes exact certificates.
        """
        self.gaps.append(max((run.certificate.gap for run in self.runs if run.certificate is not None), default=0.0))
        unsolved = [self.runs[problem.number] for problem in self.active()] + self.cut_short
        if not unsolved and not self.waiting():
            stopped = any(score["stopped"] for score in self.validation_state.values())
            self.status = Status.PATIENCE if stopped else Status.CONVERGED
            return True
        if self.is_last_pass:
            is_over, self.cut_short = not self.waiting(), unsolved
            for run in unsolved:
                run.done = not is_over
            return is_over
        if late or end_requested:
            self.is_last_pass, self.status = True, Status.ASKED if end_requested else Status.TIME
        return False

    def continue_counts_from(self, previous: Training) -> None:
        """Start the counts of passes, time, bytes and memory from those of a previous training."""
        self.passes, self.seconds = previous.passes, previous.seconds
        self.read_wait_seconds = previous.read_wait_seconds
        self.bytes_read, self.peak = previous.bytes_read, previous.peak


def make_pending_steps(solver: AnySolver, state: State, deadline: float) -> Iterator[None]:
    """Make the in-memory steps of a solver between two passes; yield after each, when the state can be saved.

    Changes the state. A solver with ``stops_early`` stops at ``deadline``, a moment of ``time.perf_counter``.
    """
    solver.set_deadline(state, deadline)
    while solver.has_pending_steps(state):
        solver.make_step(state)
        yield
