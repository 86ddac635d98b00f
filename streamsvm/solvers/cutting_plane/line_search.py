"""OCAS's line search out of core: the primal value at many points of the segment, from sums of one pass."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from streamsvm.compute.passes.breakpoints import breakpoints_pass
from streamsvm.compute.passes.certificate import RowLoss
from streamsvm.rows import Float64
from streamsvm.tags import saved_as
from streamsvm.types import Block, Problem

GRID = np.concatenate([[0.0], np.geomspace(1e-4, 4.0, 160)])
"""Step lengths, 7 % apart: near its minimum a convex function loses less than that squared, and beyond 1 there may be gain, too."""


class Minimum(NamedTuple):
    """The best point of the grid."""

    step: float
    """Its step length."""
    primal: float
    """P there, exact up to rounding."""


@saved_as("cutting_plane.line_search")
@dataclass(slots=True)
class LineSearch:
    """For losses of lines, max(0, k - m) or of a number one on each side; float64."""

    sums: Float64 = field(default_factory=lambda: np.zeros((2, len(GRID) + 1, 2)))
    """(2, J + 1, 2) see ``compute.passes.breakpoints``."""

    def clear(self) -> None:
        """A pass begins."""
        self.sums = np.zeros_like(self.sums)

    def add(self, problem: Problem, block: Block, f: Float64, df: Float64) -> None:
        """Count the rows of a block, whose decision values are f + t df (n,)."""
        cost = RowLoss(problem.C, problem.loss, problem.loss)
        breakpoints_pass(block.y, block.s, f, df, cost, GRID, self.sums)

    def merge(self, other: LineSearch) -> None:
        """Add what another worker summed along the same segment."""
        self.sums = self.sums + other.sums

    def close(self, w: Float64, d: Float64) -> Minimum:
        """The least P(w + t d) of the grid, all blocks counted."""
        ending = self.sums[0, ::-1].cumsum(axis=0)[::-1][1:]
        beginning = self.sums[1].cumsum(axis=0)[:-1]
        lines = ending + beginning
        losses = lines[:, 0] - GRID * lines[:, 1]
        squares = 0.5 * float(w @ w) + GRID * float(w @ d) + 0.5 * GRID**2 * float(d @ d)
        best = int(np.argmin(losses + squares))
        point = w + GRID[best] * d
        return Minimum(float(GRID[best]), 0.5 * float(point @ point) + float(losses[best]))
