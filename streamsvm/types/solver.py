"""Who solves it: what a solver asks for, does and answers with, and what stands between it and the rows."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, TypeAlias, TypeVar, runtime_checkable

import numpy as np

from streamsvm.aliases import RowRecord
from streamsvm.rows import Float64, Int64, Rows
from streamsvm.types.data import Layout
from streamsvm.types.loss import LossRequirement
from streamsvm.types.problem import Block, Certificate, Problem

DUAL = "alpha"
"""The name of the per-row state that holds dual variables, for solvers that have them."""


class RowState(NamedTuple):
    """A number per row that a solver keeps from pass to pass, in memory or in a file beside the run; 0 at first."""

    name: str
    """What ``Block.rows`` has it by; ``DUAL`` for dual variables."""
    dtype: str
    """As numpy writes it: "float64"."""
    width: int = 1
    """Numbers of each row; of several ``Block.rows`` has an array (rows, width)."""

    @property
    def nbytes(self) -> int:
        """Bytes of a row, for each problem."""
        return np.dtype(self.dtype).itemsize * self.width

    def shape(self, problems: int, rows: int) -> tuple[int, ...]:
        """The shape of the numbers of some rows, all problems together."""
        return (problems, rows) if self.width == 1 else (problems, rows, self.width)


@dataclass(frozen=True, slots=True)
class Cost:
    """Bytes a solver asks for: once, per row of the data, per row of a block."""

    fixed: int = 0
    """Whatever the data, for each problem: weights, and rows held in memory."""
    per_row: int = 0
    """Of per-row state."""
    per_block_row: int = 0
    """Scratch while a block is visited."""
    per_part: int = 0
    """What a part of a pass is summed up in, where several are under way."""
    shared: int = 0
    """What all problems at the same rows have once: rows that all of them hold, and what one needs while it is finished."""


class LinearSolution(NamedTuple):
    """f(x) = w[:-1].x + bias * w[-1]."""

    w: Float64
    """(columns + 1,) weights, the one of the constant feature last; (classes, columns + 1) where classes are told apart together."""
    bias: float
    """The value of the constant feature."""


class KernelSolution(NamedTuple):
    """f(x) = sum_j coefficients_j k(x, z_j) + intercept, for points z_j that are known from elsewhere."""

    coefficients: Float64
    """(points,)."""
    intercept: float
    """What is added to the sum."""


class SupportSolution(NamedTuple):
    """f(x) = sum_j coefficients_j k(x, z_j) + intercept, for rows z_j of the data that the solver has kept."""

    points: Rows
    """The support rows z_j, (points, columns)."""
    numbers: Int64
    """Global row numbers of the points, rising."""
    coefficients: Float64
    """(points,), signs included."""
    intercept: float
    """What is added to the sum."""


class FeaturePart(NamedTuple):
    """Rows [start, stop) of a block as a feature map makes them."""

    start: int
    """The first row, counted from the first one of the block."""
    stop: int
    """One beyond the last row."""
    X: RowRecord
    """The features: ``Dense``, ``CSR``, a factored pair (``compute.blocks.operators.Factored``), or rows without (``UnformedFeatures``)."""


class FeatureMap(Protocol):
    """From stored rows to what a solver sees, and from its solution to a function of stored rows."""

    @property
    def expansion(self) -> Any:
        """The basis a kernel solution is written in (``features.expansion.Expansion``); None for maps that are linear."""
        ...

    def parts(self, X: Rows) -> Iterator[FeaturePart]:
        """Yield a block as features, in as many parts as memory makes necessary; each valid until the next is asked for.

        ``X`` may be changed in place: it is the reader's buffer.
        """
        ...

    def fold(self, solution: LinearSolution) -> LinearSolution | KernelSolution:
        """Return the same function in terms of stored rows: weights of columns, or coefficients of kernel points."""
        ...


S = TypeVar("S")


@runtime_checkable
class Solver(Protocol[S]):
    """An algorithm as the fit loop sees it. Settings are fields of a frozen value; all that changes is in the state S.

    One pass is ``visit`` on every block, then ``finish``; what a pass does (train, certify, try step lengths) is the
    state's business. ``finish`` answers with a certificate; the loop goes on until one is exact and small enough. A state
    is a mutable dataclass of arrays, numbers and records with tags (``streamsvm.tags``): a checkpoint is its fields.

    These members are required (``solvers.checked`` looks for them when a solver is chosen). What some solvers can do
    beside is declared in ``types.capabilities``, and asked for by ``isinstance``.
    """

    @property
    def row_state(self) -> tuple[RowState, ...]:
        """The numbers per row that travel with the data; ``Block.rows`` has them by name. Empty: none."""
        ...

    @property
    def shuffled(self) -> bool:
        """Whether chunks and rows are visited in random order (False: as they lie, and any order does)."""
        ...

    @property
    def losses(self) -> LossRequirement:
        """What it needs a loss to be; others are refused before the first read."""
        ...

    def cost(self, problem: Problem, layout: Layout) -> Cost:
        """Return the bytes the solver will hold for one problem on data of this layout: an upper bound."""
        ...

    def start(self, problem: Problem) -> S:
        """Return the state before the first pass, at ``problem.warm`` where that is given. Reads nothing."""
        ...

    def visit(self, state: S, block: Block) -> None:
        """Meet the rows of one block. Changes the state and, in place, ``block.rows`` and ``block.order``.

        A block is visited once in a pass. ``block.X`` is valid until the visit returns: what is to stay is copied.
        """
        ...

    def finish(self, state: S) -> Certificate:
        """Close a pass in which every block was visited, and return what is now known. Changes the state."""
        ...

    def certify(self, state: S) -> None:
        """Make the pass that is about to begin an exact evaluation, because it is the last one. Changes the state."""
        ...

    def solution(self, state: S) -> LinearSolution | SupportSolution:
        """Return the function the last exact certificate is of; its arrays are copies. Raises StreamSVMError if none is."""
        ...


AnySolver: TypeAlias = Solver[Any]
"""A solver to those who hand its states on and never look into them."""

State: TypeAlias = Any
"""A solver's state to those who hand it on: its type is the solver's own (the S of ``Solver``)."""
