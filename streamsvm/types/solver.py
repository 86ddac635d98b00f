"""Who solves it: what a solver asks for, does and answers with, and what stands between it and the rows."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, TypeVar, runtime_checkable

from streamsvm.rows import Float64, Int64, Rows
from streamsvm.types.data import Layout
from streamsvm.types.problem import Block, Certificate, Problem


class RowState(NamedTuple):
    """A number per row that a solver keeps from pass to pass, in memory or beside the store."""

    name: str
    dtype: str


@dataclass(frozen=True, slots=True)
class Cost:
    """Bytes a solver asks for: once, per row of the data, per row of a block."""

    fixed: int = 0
    per_row: int = 0
    per_block_row: int = 0


class LinearSolution(NamedTuple):
    """f(x) = w[:-1].x + bias * w[-1]."""

    w: Float64
    bias: float


class KernelSolution(NamedTuple):
    """f(x) = sum_j coefficients_j k(x, z_j) + intercept, for points z_j that are known from elsewhere."""

    coefficients: Float64
    intercept: float


class SupportSolution(NamedTuple):
    """f(x) = sum_j coefficients_j k(x, z_j) + intercept, for rows z_j of the data that the solver has kept."""

    points: Rows
    numbers: Int64
    """Global row numbers of the points, rising."""
    coefficients: Float64
    intercept: float


class Part(NamedTuple):
    """Rows [start, stop) of a block as a feature map makes them: Dense, CSR or a factored pair."""

    start: int
    stop: int
    X: Any


class FeatureMap(Protocol):
    """From stored rows to what a solver sees, and from its solution to a function of stored rows."""

    @property
    def expansion(self) -> Any:
        """The basis a kernel solution is written in; None for maps that are linear."""
        ...

    def parts(self, X: Rows) -> Iterator[Part]:
        """A block as features, in as many parts as memory makes necessary; each valid until the next is asked for."""
        ...

    def fold(self, solution: LinearSolution) -> LinearSolution | KernelSolution: ...


S = TypeVar("S")


class Solver(Protocol[S]):
    """An algorithm as the fit loop sees it. Settings are fields of a frozen value; all that changes is in S.

    One pass is ``visit`` on every block, then ``finish``; what a pass does (train, certify, try step lengths) is the
    state's business. ``finish`` answers with a certificate; the loop goes on until one is exact and small enough.
    """

    @property
    def row_state(self) -> tuple[RowState, ...]: ...
    @property
    def shuffled(self) -> bool:
        """Whether chunks and rows are visited in random order (False: as they lie)."""
        ...

    @property
    def losses(self) -> tuple[str, ...]:
        """The names of the losses it can solve for; anything else is refused before the first read."""
        ...

    def cost(self, problem: Problem, layout: Layout) -> Cost: ...
    def start(self, problem: Problem) -> S: ...
    def visit(self, state: S, block: Block) -> None: ...
    def finish(self, state: S) -> Certificate: ...
    def certify(self, state: S) -> None:
        """Make the next pass an exact evaluation, because it is the last one."""
        ...

    def merge(self, states: list[S]) -> S:
        """Join what several workers did with copies of one state, each on its own chunks, in one pass."""
        ...

    def solution(self, state: S) -> LinearSolution | SupportSolution: ...


@runtime_checkable
class Sharing(Protocol):
    """A solver for which several problems at the same rows have work in common."""

    def prepare_shared(self, states: list[Any], X: Any) -> None:
        """Called with rows before the problems visit them one after the other. Changes the states."""
        ...


@runtime_checkable
class Selective(Protocol):
    """A solver that keeps a choice of the rows of a pass: rows of one group show that some of another cannot be in it.

    What is known of other groups saves work and never changes what the joined pass comes to.
    """

    def sample_bound(self, state: Any) -> Any:
        """What the rows visited so far say about all others of this pass."""
        ...

    def set_bound(self, state: Any, bound: Any) -> None:
        """Begin a pass over some rows knowing the ``bound`` of others. Changes the state."""
        ...


@runtime_checkable
class Timely(Protocol):
    """A solver whose ``finish`` may take long, and can come to its end before its time."""

    def set_deadline(self, state: Any, moment: float) -> None:
        """Called before ``finish``: it is not to go on after ``moment``, by ``time.perf_counter``. Changes the state."""
        ...
