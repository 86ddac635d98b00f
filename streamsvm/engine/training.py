"""Problems under way, and what a training of them has come to: the same here and over many workers."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from streamsvm.engine.row_state import RowStates
from streamsvm.types import Certificate, Problem, Solver, Status, Stop


@dataclass(slots=True)
class Run:
    """A problem under way: its solver's state and what has been certified so far."""

    problem: Problem
    state: Any
    certificate: Certificate | None = None
    done: bool = False

    def certified(self, found: Certificate) -> None:
        """A pass was closed with this certificate; exact and small enough, or final, it is the last one.

        Raises what ``Certificate.verify`` raises: a gap below 0 is never taken for convergence.
        """
        found.verify(self.problem)
        self.certificate = found
        self.done = found.exact and (found.gap <= self.problem.tolerance or found.final)


@dataclass(slots=True)
class Training:
    """What a training left: per problem its state and certificate, and what it took."""

    runs: list[Run]
    status: Status = Status.CONVERGED
    passes: int = 0
    index: int = 0
    """Visits made of the pass under way: with ``passes`` the position in the plan."""
    ending: bool = False
    """Whether the pass under way, or the next one, is the last."""
    seconds: float = 0.0
    waited: float = 0.0
    bytes_read: int = 0
    reads_repeated: int = 0
    """Reads of this run that succeeded only at another try."""
    peak: int = 0
    row_states: dict[str, RowStates] = field(default_factory=dict)
    held: dict[str, Any] = field(default_factory=dict)
    """What a judge remembers, plain values and arrays."""

    def active(self) -> list[tuple[int, Run]]:
        """The runs under way, each with its number."""
        return [(k, run) for k, run in enumerate(self.runs) if not run.done]

    def begin(self, stop: Stop, solver: Solver[Any]) -> None:
        """A pass begins: say to the solver, before its first visit, if it is the last one."""
        if not self.ending and self.passes + 1 >= stop.max_passes:
            self.ending, self.status = True, Status.PASSES
        if self.ending:
            for _, run in self.active():
                solver.certify(run.state)

    def over(self, *, late: bool) -> bool:
        """Whether the pass just closed was the last one; says why. When it is ``late`` another one certifies."""
        if not self.active():
            stopped = any(known["stopped"] for known in self.held.values())
            self.status = Status.PATIENCE if stopped else Status.CONVERGED
            return True
        if self.ending:
            return True
        if late:
            self.ending, self.status = True, Status.TIME
        return False

    def count_on(self, before: Training) -> None:
        """Begin with what was spent before."""
        for name in ("passes", "seconds", "waited", "bytes_read", "peak"):
            setattr(self, name, getattr(before, name))
