"""What an interior point by readings solves in memory between two of them: the rows it has kept are free, all others stay on their side.

A form of the problem is a class: ``ReducedProblem``, ``NumberProblem`` of a loss of numbers with corners, and ``OffsetProblem`` of one class with a free
offset.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

import numpy as np

from streamsvm.rows import Float64
from streamsvm.solvers.interior_point.nearest_rows import NearRows
from streamsvm.solvers.newton.in_memory.all_rows import AllRows
from streamsvm.solvers.newton.row_sample import Sample
from streamsvm.solvers.segment_sums import Regularizer

ROUNDS = 20
"""Calls of the iteration at most, each of which ends after so much work."""
START_TOLERANCE = 1e-3
"""The gap at which a first sample is solved: it knows the optimum no better."""
TOLERANCE_SHARE, LEAST_SHARE = 0.05, 1e-14
"""The gap in memory: of the one that is asked for, and of P, what float64 can tell; ..."""
DECREASE_SHARE = 0.05
"""... or of what was gained, where that is more."""


class Known(NamedTuple):
    """Where the reading ended."""

    w: Float64
    """(p,) the best point."""
    v: Float64
    """(p,) sum a_i y_i x_i of the slopes there, all rows."""
    gain: float
    """sum a_i - conjugate(a_i) of them."""
    step: float
    """The share of the segment at which the point is: margins of rows are f + step df."""
    primal: float
    """P there."""
    dual: float
    """The largest D known."""
    damping: float
    """How much the step is held back."""
    total: float
    """sum s_i of all rows."""


class Reduced(NamedTuple):
    """What comes of it."""

    w: Float64
    """(p,) where the next reading is to look."""
    dual: float
    """D of the dual point, over all rows."""
    iterations: int
    """Of the interior point."""
    alpha: Float64 | None
    """(n,) the dual variables of the rows ``near`` at that point; None: there is no new one."""


class ProblemInMemory(Protocol):
    """One form of the problem."""

    @property
    def objective(self) -> Regularizer:
        """Return what of P and D is no sum over rows."""
        ...

    def first_point(self, near: NearRows, factor: float, deadline: float) -> Float64:
        """Return the optimum (p,) of a sample of the rows, each of which counts ``factor`` times."""
        ...

    def solve(self, near: NearRows, known: Known, deadline: float) -> Reduced:
        """Return the minimum where only the rows ``near`` are free."""
        ...


def sample_of(near: NearRows) -> Sample:
    """Return the rows as the iteration in memory wants them."""
    return Sample(near.X, near.y, near.s, np.ones(len(near.y)), near.f, near.row, complete=False)


def iterate(rows: AllRows, deadline: float) -> None:
    """Go on until it is solved. Changes ``rows``."""
    for _ in range(ROUNDS):
        rows.advance(deadline)
        if rows.solved:
            break
