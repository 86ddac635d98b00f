"""The vocabulary: what a row, a block, a store, a problem, a solver and a certificate are.

Three kinds of class and no other: *records* (``NamedTuple``: they cross into compiled passes), *values* (frozen
dataclasses) and *state* (mutable dataclasses of arrays and numbers, so that a checkpoint is those fields and nothing
hidden). Everything with a choice of implementation is a ``Protocol``. Nothing here imports more than numpy.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, NamedTuple, Protocol, TypeAlias, TypeVar, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from streamsvm.rows import Float32, Float64, Int32, Int64, Rows

# -- data on its way in ----------------------------------------------------------------------------------------------


class Batch(NamedTuple):
    """What a source yields: rows, one label a row (float64 or str), perhaps a weight a row (float32).

    The arrays belong to whoever takes the batch: a source never writes into them again.
    """

    X: Rows
    labels: NDArray[Any]
    weight: Float32 | None = None


@dataclass(frozen=True, slots=True)
class Layout:
    """What is known of a store without reading its chunks."""

    columns: int
    chunks: tuple[int, ...]
    """Rows of each chunk."""
    nonzeros: tuple[int, ...] | None
    """Stored entries of each chunk; None when dense."""
    classes: tuple[str, ...]
    """The label each code stands for, as text."""
    counts: tuple[int, ...]
    """Rows of each class."""
    weighted: bool = False

    @property
    def rows(self) -> int:
        return sum(self.chunks)

    @property
    def dense(self) -> bool:
        return self.nonzeros is None

    @property
    def largest_chunk(self) -> int:
        return max(self.chunks)

    @property
    def block_bytes(self) -> int:
        """Bytes one block of any chunk needs in memory: entries, codes and weights."""
        per_row = 4 + 4 * self.weighted
        if self.nonzeros is None:
            return self.largest_chunk * (4 * self.columns + per_row)
        return max(self.nonzeros) * 8 + self.largest_chunk * (8 + per_row)

    @property
    def bytes_per_pass(self) -> int:
        """Bytes one reading of all chunks moves."""
        entries = self.rows * self.columns * 4 if self.nonzeros is None else sum(self.nonzeros) * 8 + self.rows * 8
        return entries + self.rows * (4 + 4 * self.weighted)


class Chunk(NamedTuple):
    """What a store hands out: views into the buffer it was given, valid until that buffer is read into again."""

    X: Rows
    codes: Int32
    """Class of each row, an index into ``Layout.classes``."""
    weight: Float32 | None


class Buffers(Protocol):
    """Preallocated memory for one chunk; made by the store, reused by the reader."""

    nbytes: int


class Store(Protocol):
    """Chunked data on disk or in memory. The only thing that may open a file of it."""

    name: str
    layout: Layout
    digest: str
    """sha256 of the content: equal for equal data, wherever it lies."""

    def buffers(self) -> Any:
        """Memory for one chunk (``Buffers``), of the store's own kind."""
        ...

    def fetch(self, chunk: int, into: Any) -> None:
        """Move the bytes of a chunk into buffers. Raises DataError, StorageError."""
        ...

    def check(self, chunk: int, into: Any) -> Chunk:
        """Verify what was fetched, once, and view it as rows; whichever thread is idle does it.

        Raises DataError naming the chunk when it is not what was written.
        """
        ...

    def expect(self, chunk: int) -> None:
        """Hint that ``chunk`` is read next."""
        ...

    def forget(self, chunk: int) -> None:
        """Hint that ``chunk`` is not needed soon: its pages may leave the cache."""
        ...

    def statistics(self) -> Statistics: ...


class Statistics(NamedTuple):
    """Column statistics over all rows, absent entries of a CSR counted as 0. All float64 (d,)."""

    mean: Float64
    M2: Float64
    minimum: Float64
    maximum: Float64


# -- what is being solved --------------------------------------------------------------------------------------------


class Loss(Protocol):
    """A margin loss l(m), m = y f(x), with the dual coordinate problem it gives rise to (``losses.py``)."""

    def value(self, m: float) -> float: ...
    def slope(self, m: float) -> float: ...
    def bend(self, m: float) -> float:
        """The generalised second derivative l''(m)."""
        ...

    def upper(self, C: float) -> float: ...
    def conjugate(self, a: float, C: float) -> float: ...
    def conjugate_slope(self, a: float, C: float) -> float: ...
    def curvature(self, C: float) -> float: ...


@dataclass(frozen=True, slots=True)
class Problem:
    """P(w) = 1/2 ||w||^2 + C sum_i s_i l(y_i w.x_i): one class against the rest, one C.

    Several problems (classes, values of C) can be solved on one reading of the data.
    """

    loss: Any
    """A ``Loss`` record; the solvers that need more of it (a margin) say so in ``losses``."""
    C: float
    rows: int
    columns: int
    """Features, without the constant one: ``w`` has ``columns + 1`` components."""
    positive: int
    """The class code that is +1."""
    bias: float = 1.0
    weights: tuple[float, ...] = ()
    """Factor of s_i for the rows of each class; empty: 1 for all."""
    tolerance: float = 1e-3
    """The relative gap at which the run may end."""
    kernel: Any = None
    """For solvers that evaluate it themselves; None where the rows a solver sees are all there is."""
    held_out: tuple[int, ...] = ()
    """Chunks that are not shown to it; ``rows`` are those of the others."""
    warm: Float64 | None = field(default=None, compare=False, repr=False)
    """Weights (columns + 1,) to start from, as the solver sees them; None: from nothing."""

    def first_weights(self) -> Float64:
        """A copy of ``warm``, or zeros."""
        return np.zeros(self.columns + 1) if self.warm is None else self.warm.copy()


@dataclass(slots=True)
class Block:
    """A chunk in memory as one problem sees it, with the order its rows are to be visited in."""

    X: Any
    """Dense, CSR, or what a feature map made of them."""
    y: Float32
    """+1 or -1."""
    s: Float32
    """Row weight times class weight; multiplies C."""
    chunk: int
    start: int
    """Global index of the first row."""
    order: Int32
    """A permutation of the rows. A solver may rearrange it."""
    seed: int
    """For further draws within this visit; a function of the plan alone."""
    kept: bool = False
    """Whether all blocks stay in memory, so that coming back costs no reading."""
    rows: dict[str, NDArray[Any]] = field(default_factory=dict)
    """Per-row state of the solver, by the names it declared; changed in place."""


@dataclass(frozen=True, slots=True)
class Certificate:
    """How far a solution can be from the optimum: dual <= optimum <= primal."""

    primal: float
    dual: float
    exact: bool = True
    """False: the primal was summed while w was moving, an estimate that must not end a run."""
    final: bool = False
    """The solver has met a criterion of its own: the run ends, whatever the gap."""
    facts: dict[str, Any] = field(default_factory=dict)
    """What else there is to say of the pass, as plain JSON; it goes into the events of the run."""

    @property
    def gap(self) -> float:
        """(P - D) / |P|, the relative gap; 0 when both are 0."""
        return (self.primal - self.dual) / abs(self.primal) if self.primal else abs(self.dual)


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

    def foresee(self, states: list[Any], X: Any) -> None:
        """Called with rows before the problems visit them one after the other. Changes the states."""
        ...


# -- memory and course of a run --------------------------------------------------------------------------------------


class Term(NamedTuple):
    """One line of a memory plan."""

    name: str
    nbytes: int
    why: str


class Visit(NamedTuple):
    """One chunk in one epoch; a pure function of layout, seed and epoch."""

    epoch: int
    chunk: int
    seed: int
    shuffled: bool
    last: bool
    """Whether this visit ends its epoch."""


@dataclass(frozen=True, slots=True)
class Stop:
    """What a fit may cost at most; it ends earlier when every gap is small enough."""

    max_passes: int = 1000
    seconds: float = float("inf")


class Status(StrEnum):
    """How a run ended."""

    CONVERGED = "converged"
    PASSES = "max passes"
    TIME = "time limit"
    PATIENCE = "patience"
    """The error on held-out rows had not fallen for long."""


Report: TypeAlias = Callable[[dict[str, Any]], None]
"""Takes the events of a job; a progress bar is one, a log file another."""


def silent(event: dict[str, Any]) -> None:
    """The report nobody reads."""
