"""All rows of a problem in memory, as a second-order method sees them: products with X, and a count of what they cost.

What a step between two readings may do is bounded by entries of X visited, a number that is the same on every machine and
with any number of threads, so that a run that is stopped and resumed takes the same steps. The deadline is looked at
in the same place.
"""

from __future__ import annotations

import time

import numpy as np

from streamsvm.compute.blocks import operators
from streamsvm.compute.passes.dcd import Box, Held, dcd_sweep
from streamsvm.compute.passes.in_memory.all_rows import RowTerms, hessian_product
from streamsvm.rows import CSR, Float64, Int32, Labeled
from streamsvm.solvers.newton.in_memory.outer_terms import OuterTerms, plain
from streamsvm.solvers.newton.row_sample import Sample
from streamsvm.types import Problem

WORK = 1_000_000_000
"""Entries that may be visited in a step between two readings: two to four seconds ..."""
PRODUCTS = 50
"""... or so many products with all rows."""
UNIT = 2.0**-53
FELT = 1e-3
"""Of the gap allowed: what rounding may do to losses before margins are computed anew."""


class MemoryRows:
    """The rows of a complete sample; ``terms`` are their signs, weights and loss."""

    def __init__(
        self, sample: Sample, problem: Problem, deadline: float = np.inf, outer: OuterTerms | None = None
    ) -> None:
        self.X, self.problem, self._deadline = sample.X, problem, deadline
        self._offset = sample.offset
        self.outer = outer or plain(problem.columns + 1)
        self.terms = RowTerms(sample.y, sample.s.astype(np.float64), problem.C, problem.loss)
        short = sample.s.astype(np.float32)
        s = sample.s if sample.complete and not np.array_equal(short, sample.s) else short
        self._labeled, self._box = Labeled(sample.X, sample.y, s), Box(problem.C, problem.loss)
        self.count = len(sample.y)
        self.entries = len(self.X.data) + self.count if isinstance(self.X, CSR) else self.count * (problem.columns + 1)
        self.products = 0
        self._drift = 0.0
        """How far the losses can be off since margins were last computed."""
        self._left = max(WORK, PRODUCTS * 2 * self.entries)

    @property
    def exhausted(self) -> bool:
        """Whether it is time for the next reading; asked between steps, as a step that is cut short may lose more than it gains."""
        return self._left <= 0 or self.late

    @property
    def late(self) -> bool:
        """Whether the deadline has passed; asked everywhere."""
        return time.perf_counter() > self._deadline

    def visited(self, entries: int) -> None:
        """Count work that was done elsewhere."""
        self._left -= entries

    def margins(self, w: Float64) -> Float64:
        """X w (n,)."""
        self._left -= self.entries
        return operators.margins(self.X, w)

    def values(self, w: Float64) -> Float64:
        """The decision values (n,) of weights: X w, and what is added to it."""
        f = self.margins(w)
        return f if self._offset is None else f + self._offset

    def gained(self, slopes: Float64) -> float:
        """What the dual has of a_i y_i (n,) for what is added to X w: a loss of y_i (x_i.w + o_i) is dual to - sum a_i y_i o_i."""
        return 0.0 if self._offset is None else -float(self._offset @ slopes)

    def moved(self, f: Float64, change: Float64, w: Float64, allowed: float) -> Float64:
        """X w (n,) after a step that changed f by ``change``: their sum, or X w anew where rounding of such sums is felt.

        Where margins were large once what is left of them is their rounding: of separable rows, whose P is small, it soon exceeds a
        gap of ``allowed``.
        """
        found = f + change
        largest = max(float(np.abs(f).max(initial=0.0)), float(np.abs(change).max(initial=0.0)))
        self._drift += UNIT * largest * self.problem.C * float(self.terms.s.sum())
        if self._drift <= FELT * allowed:
            return found
        self._drift = 0.0
        return self.values(w)

    def weighted_sum(self, a: Float64) -> Float64:
        """X' a (p,)."""
        self._left -= self.entries
        return operators.adjoint(self.X, a, self.problem.columns)

    def hessian_product(self, h: Float64, d: Float64) -> Float64:
        """(G + X' diag(h) X) d (p,); rows with h = 0 cost nothing."""
        out = self.outer.diagonal * d
        active = hessian_product(self.X, h, d, out)
        self._left -= 2 * self.entries * active // max(1, self.count)
        self.products += 1
        return out

    def sweep(self, order: Int32, count: int, a: Float64, w: Float64) -> int:
        """Coordinate descent over the first ``count`` rows of ``order``; changes all three (``compute.passes.dcd``).

        Returned: how many of them, now the first of ``order``, are worth another visit.
        """
        left = dcd_sweep(self._labeled, order, count, self._box, Held(), a, w).left
        self._left -= 2 * self.entries * count // max(1, self.count)
        return left
