"""Rows in memory as the methods of this package use them: products and margins, columns that few rows have, line
searches.
"""

from __future__ import annotations

import time
from typing import NamedTuple

import numpy as np

from streamsvm.class_tags import saved_as
from streamsvm.compute.blocks import operators
from streamsvm.compute.passes.dcd import Box, Held, dcd_sweep
from streamsvm.compute.passes.rows_in_memory import Outside, RowTerms, column_sweep, columns_of, hessian_product
from streamsvm.rows import CSR, Float64, Int32, Labeled
from streamsvm.solvers.newton.preconditioner import ArrowPreconditioner
from streamsvm.solvers.newton.priority_sampling import Sample
from streamsvm.solvers.rounding import UNIT
from streamsvm.types import Loss, Problem
from streamsvm.types.problem import best_scale, dual_at

WORK = 1_000_000_000
"""Entries visited in a step between two readings: two to four seconds."""
PRODUCTS = 50
"""Products with all rows in a step, where these are more work."""
MAX_DRIFT = 1e-3
"""Recompute margins when accumulated rounding of losses exceeds this share of the gap allowed."""
RARE_SWEEPS = 20
"""Sweeps over the rare columns after a step at most."""
SQUARES = 0.02
"""Sweeps end where half the squared slopes, which D lacks, are this share of the gap allowed."""
NEGLIGIBLE = 0.1
"""Columns whose slopes sum up to this share of those, all together, are not visited."""


class DualValue(NamedTuple):
    """The value of a dual point."""

    value: float
    """D of the point, scaled."""
    scale: float
    """By how much it is scaled."""


NO_DUAL_POINT = DualValue(-np.inf, 0.0)
"""The value where no dual point was evaluated."""


@saved_as("newton.outer_terms")
class OuterTerms(NamedTuple):
    """The part of an objective that is not a sum over rows: 1/2 w' G w + q.w, G diagonal; G = 1, q = 0 is 1/2 ||w||^2.

    The dual value that goes with it is sum_i (a_i - conjugate(a_i)) - 1/2 (v - q)' G^-1 (v - q), v = sum_i a_i y_i x_i.
    """

    diagonal: Float64
    """G (p,), 1 or more."""
    linear: Float64
    """q (p,)."""

    def value(self, w: Float64) -> float:
        """Return 1/2 w' G w + q.w."""
        return 0.5 * float(w @ (self.diagonal * w)) + float(self.linear @ w)

    def gradient(self, w: Float64) -> Float64:
        """Return G w + q (p,)."""
        return self.diagonal * w + self.linear

    def along(self, w: Float64, step: Float64) -> tuple[float, float]:
        """Return the first and second derivative at w along a step."""
        scaled = self.diagonal * step
        return float(w @ scaled) + float(self.linear @ step), float(step @ scaled)

    def dual(self, loss: Loss, linear: float, quadratic: float, v: Float64) -> DualValue:
        """Return the dual value of a_i with these sums (``compute.passes.certificate``), scaled for the best where
        q = 0.

        Elsewhere q and v are large and nearly the same: only their difference is squared.
        """
        if not self.linear.any():
            square = float(v @ (v / self.diagonal))
            scale = best_scale(loss, linear, quadratic, square)
            return DualValue(dual_at(scale, linear, quadratic, square), scale)
        left = v - self.linear
        return DualValue(linear - quadratic - 0.5 * float(left @ (left / self.diagonal)), 1.0)


def norm_terms(components: int) -> OuterTerms:
    """Return the terms of the problem itself: 1/2 ||w||^2."""
    return OuterTerms(np.ones(components), np.zeros(components))


class MemoryRows:
    """All rows of a problem in memory, as a second-order method uses them: products with X, and a count of what they
    cost.

    ``terms`` are the signs, weights and loss of the rows. What a step between two readings may do is bounded by entries
    of X visited (``WORK``), a number that is the same on every machine and with any number of threads, so that a run
    that is stopped and resumed takes the same steps. The deadline is looked at in the same place.
    """

    def __init__(
        self, sample: Sample, problem: Problem, deadline: float = np.inf, outer: OuterTerms | None = None
    ) -> None:
        self.X, self.problem, self._deadline = sample.X, problem, deadline
        self._offset = sample.offset
        self.outer = outer or norm_terms(problem.columns + 1)
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
    def is_exhausted(self) -> bool:
        """Whether it is time for the next reading; asked between steps only, as a step cut short may lose more than it
        gains.
        """
        return self._left <= 0 or self.is_late

    @property
    def is_late(self) -> bool:
        """Whether the deadline has passed."""
        return time.perf_counter() > self._deadline

    def count_work(self, entries: int) -> None:
        """Count entries that were visited elsewhere."""
        self._left -= entries

    def margins(self, w: Float64) -> Float64:
        """Return X w (n,)."""
        self._left -= self.entries
        return operators.margins(self.X, w)

    def values(self, w: Float64) -> Float64:
        """Return the decision values (n,) of weights: X w plus the offset."""
        f = self.margins(w)
        return f if self._offset is None else f + self._offset

    def offset_gain(self, slopes: Float64) -> float:
        """Return what the offset adds to the dual for a_i y_i (n,): a loss of y_i (x_i.w + o_i) is dual to - sum a_i
        y_i o_i.
        """
        return 0.0 if self._offset is None else -float(self._offset @ slopes)

    def move_margins(self, f: Float64, change: Float64, w: Float64, allowed: float) -> Float64:
        """Return X w (n,) after a step that changed f by ``change``: their sum, or X w recomputed where rounding has
        drifted.

        Where margins were large once, what is left of them is their rounding: where rows are separable and P is small,
        it soon exceeds a gap of ``allowed``.
        """
        found = f + change
        largest = max(float(np.abs(f).max(initial=0.0)), float(np.abs(change).max(initial=0.0)))
        self._drift += UNIT * largest * self.problem.C * float(self.terms.s.sum())
        if self._drift <= MAX_DRIFT * allowed:
            return found
        self._drift = 0.0
        return self.values(w)

    def weighted_sum(self, a: Float64) -> Float64:
        """Return X' a (p,)."""
        self._left -= self.entries
        return operators.adjoint(self.X, a, self.problem.columns)

    def hessian_product(self, h: Float64, d: Float64) -> Float64:
        """Return (G + X' diag(h) X) d (p,); rows with h = 0 cost nothing."""
        out = self.outer.diagonal * d
        active = hessian_product(self.X, h, d, out)
        self._left -= 2 * self.entries * active // max(1, self.count)
        self.products += 1
        return out

    def sweep(self, order: Int32, count: int, a: Float64, w: Float64) -> int:
        """Sweep the first ``count`` rows of ``order`` by coordinate descent, changing all three
        (``compute.passes.dcd``).

        Return how many of them, now the first of ``order``, are worth another visit.
        """
        left = dcd_sweep(self._labeled, order, count, self._box, Held(), a, w).left
        self._left -= 2 * self.entries * count // max(1, self.count)
        return left


class RareColumns:
    """The weights of rare columns at their best, whatever the others are: what lets Newton's method take full steps.

    They are the columns of sparse rows outside the block of the preconditioner, stored by column. A column that is in
    few rows and large in them - one value of a category, standardized - has a curvature of 10^5 where one of its rows
    is in the corner of the loss, and of 1 where none is. A full step then sends rows far in, or far out, and a line
    search for all columns at once stops after a hundredth of it. So a step is followed by coordinate descent on these
    columns alone (``compute.passes.rows_in_memory.column_sweep``), and judged by where that ends: Newton's method on
    the function that is left when they are eliminated, which bends on the scale of margins. On 100,000 rows x 70,000
    standardized columns that takes 7 full steps and 33 products where an interior point takes 15 steps and 303.

    Reference: Cai and Keyes, SIAM J. Sci. Comput. 2002 (Newton's method preconditioned by nonlinear elimination).
    """

    def __init__(self, rows: MemoryRows, arrow: ArrowPreconditioner, X: CSR) -> None:
        self._rows, columns = rows, rows.problem.columns
        self._columns = columns_of(X, np.setdiff1d(np.arange(columns), arrow.chosen), columns)
        self._outside = Outside(rows.outer.diagonal, rows.outer.linear)

    def settle(self, w: Float64, f: Float64, smooth: Loss, allowed: float) -> None:
        """Change w (p,), and f = X w (n,) with it, so that no rare column alone would gain much."""
        rows, terms, enough = self._rows, self._rows.terms._replace(loss=smooth), SQUARES * allowed
        negligible = 2.0 * NEGLIGIBLE * enough / max(1, len(self._columns.number))
        for _ in range(RARE_SWEEPS):
            squares = column_sweep(self._columns, terms, self._outside, negligible, w, f)
            rows.count_work(2 * len(self._columns.data))
            if squares <= enough or rows.is_late:
                return


def find_rare_columns(rows: MemoryRows, arrow: ArrowPreconditioner) -> RareColumns | None:
    """Return the rare columns of sparse rows; None where rows are dense, or no column is outside the block."""
    return RareColumns(rows, arrow, rows.X) if isinstance(rows.X, CSR) and not arrow.whole else None
