"""Rows in memory, as the methods of this package use them: products, margins, and minimization over rare columns."""

from __future__ import annotations

import time
from typing import NamedTuple

import numpy as np

from streamsvm.class_tags import saved_as
from streamsvm.compute.blocks import operators
from streamsvm.compute.blocks.curves import Curved
from streamsvm.compute.passes.dcd import Box, ShrinkingThresholds, dcd_sweep
from streamsvm.compute.passes.rows_in_memory import FixedTerms, RowTerms, column_sweep, columns_of, hessian_product
from streamsvm.rows import CSR, Float64, Int32, Labeled
from streamsvm.solvers.linear_rounding import UNIT
from streamsvm.solvers.newton.preconditioner import ArrowPreconditioner
from streamsvm.solvers.newton.priority_sampling import Sample
from streamsvm.types import Loss, Problem
from streamsvm.types.problem import best_scale, dual_at

WORK = 1_000_000_000
"""Work limit of one in-memory step, in entries visited: two to four seconds."""
PRODUCTS = 50
"""Work limit of one in-memory step, in products with all rows, if these are more work."""
MAX_DRIFT = 1e-3
"""Recompute margins when accumulated rounding of losses exceeds this fraction of the allowed gap."""
MAX_RARE_SWEEPS = 20
"""Maximum number of sweeps over the rare columns after a step."""
RARE_GRADIENT_SHARE = 0.02
"""Sweeps over the rare columns stop when half their squared gradient, which lowers D, is this fraction of the allowed
gap."""
NEGLIGIBLE_SHARE = 0.1
"""Columns whose squared derivatives sum up to this fraction of that limit are skipped."""


class DualValue(NamedTuple):
    """The value of a scaled dual point."""

    value: float
    """D of the scaled point."""
    scale: float
    """The factor by which the point is scaled."""


NO_DUAL_POINT = DualValue(-np.inf, 0.0)
"""The value if no dual point was evaluated."""


@saved_as("newton.outer_terms")
class OuterTerms(NamedTuple):
    """The part of an objective that is not a sum over rows: 1/2 w' G w + q.w, G diagonal; G = 1, q = 0 is 1/2 ||w||^2.

    The corresponding dual value is sum_i (a_i - conjugate(a_i)) - 1/2 (v - q)' G^-1 (v - q), v = sum_i a_i y_i x_i.
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

    def line_derivatives(self, w: Float64, step: Float64) -> tuple[float, float]:
        """Return the first and second derivative at w along ``step``."""
        scaled = self.diagonal * step
        return float(w @ scaled) + float(self.linear @ step), float(step @ scaled)

    def dual(self, loss: Loss, linear: float, quadratic: float, v: Float64) -> DualValue:
        """Return the dual value of the a_i with these sums (``compute.passes.certificate``). If q = 0, the a_i are
        scaled such that it is largest.

        If q is not 0, q and v are large and nearly equal, so only their difference is squared, without scaling.
        """
        if not self.linear.any():
            square = float(v @ (v / self.diagonal))
            scale = best_scale(loss, linear, quadratic, square)
            return DualValue(dual_at(scale, linear, quadratic, square), scale)
        difference = v - self.linear
        return DualValue(linear - quadratic - 0.5 * float(difference @ (difference / self.diagonal)), 1.0)


def norm_terms(components: int) -> OuterTerms:
    """Return the terms of the regularizer 1/2 ||w||^2."""
    return OuterTerms(np.ones(components), np.zeros(components))


class MemoryRows:
    """All rows of a problem in memory: products with X, and a count of the work that they take.

    ``terms`` are the signs, weights and loss of the rows. The work of an in-memory step is limited by the number of
    visited entries of X (``WORK``). That number is the same on every machine and with any number of threads, so that a
    resumed run takes the same steps. The deadline is checked in the same place.
    """

    def __init__(
        self, sample: Sample, problem: Problem, deadline: float = np.inf, outer: OuterTerms | None = None
    ) -> None:
        self.X, self.problem, self._deadline = sample.X, problem, deadline
        self._offset = sample.offset
        self.outer = outer or norm_terms(problem.columns + 1)
        self.terms = RowTerms(sample.y, sample.s.astype(np.float64), problem.C, problem.loss)
        weights = sample.s.astype(np.float32)
        s = sample.s if sample.complete and not np.array_equal(weights, sample.s) else weights
        self._labeled, self._box = Labeled(sample.X, sample.y, s), Box(problem.C, problem.loss)
        self.count = len(sample.y)
        stored = self.X.rows if isinstance(self.X, Curved) else self.X
        self.entries = len(stored.data) + self.count if isinstance(stored, CSR) else self.count * (problem.columns + 1)
        self.products = 0
        self._drift = 0.0
        """An upper bound of the rounding error of the losses since margins were last recomputed."""
        self._work_left = max(WORK, PRODUCTS * 2 * self.entries)

    @property
    def is_exhausted(self) -> bool:
        """Whether the work limit or the deadline is reached, so that the next pass is due. Checked between iterations
        only, since an interrupted iteration may lose more than it gains.
        """
        return self._work_left <= 0 or self.is_late

    @property
    def is_late(self) -> bool:
        """Whether the deadline has passed."""
        return time.perf_counter() > self._deadline

    def count_work(self, entries: int) -> None:
        """Count entries that were visited outside the methods of this class."""
        self._work_left -= entries

    def margins(self, w: Float64) -> Float64:
        """Return X w (n,)."""
        self._work_left -= self.entries
        return operators.margins(self.X, w)

    def values(self, w: Float64) -> Float64:
        """Return the decision values (n,) of w: X w plus the offset."""
        f = self.margins(w)
        return f if self._offset is None else f + self._offset

    def offset_gain(self, slopes: Float64) -> float:
        """Return - sum_i a_i y_i o_i, the term of the dual value for offsets o_i: the losses are those of the margins
        y_i (x_i.w + o_i). ``slopes``: a_i y_i (n,).
        """
        return 0.0 if self._offset is None else -float(self._offset @ slopes)

    def move_margins(self, f: Float64, change: Float64, w: Float64, allowed_gap: float) -> Float64:
        """Return the decision values (n,) at w after a step that changed f by ``change``. They are f + ``change``, or
        recomputed from w if the accumulated rounding error is too large for the gap ``allowed_gap``.

        The rounding error is relative to the largest margins so far. If rows are separable and P is small, it soon
        exceeds the gap.
        """
        moved = f + change
        largest = max(float(np.abs(f).max(initial=0.0)), float(np.abs(change).max(initial=0.0)))
        self._drift += UNIT * largest * self.problem.C * float(self.terms.s.sum())
        if self._drift <= MAX_DRIFT * allowed_gap:
            return moved
        self._drift = 0.0
        return self.values(w)

    def weighted_sum(self, a: Float64) -> Float64:
        """Return X' a (p,)."""
        self._work_left -= self.entries
        return operators.adjoint(self.X, a, self.problem.columns)

    def hessian_product(self, h: Float64, d: Float64) -> Float64:
        """Return (G + X' diag(h) X) d (p,). Rows with h = 0 are skipped."""
        out = self.outer.diagonal * d
        if isinstance(self.X, Curved):
            basis, product = self.X.basis, np.zeros_like(d)
            active = hessian_product(self.X.rows, h, basis.lift(d[None])[0], product)
            out += basis.adjoint(product[None])[0]
        else:
            active = hessian_product(self.X, h, d, out)
        self._work_left -= 2 * self.entries * active // max(1, self.count)
        self.products += 1
        return out

    def sweep(self, order: Int32, count: int, a: Float64, w: Float64) -> int:
        """Sweep over the first ``count`` rows of ``order`` by coordinate descent (``compute.passes.dcd``). Changes
        ``order``, ``a`` and ``w``.

        Return the number of rows that were not shrunk. They are the first of ``order`` now.
        """
        left = dcd_sweep(self._labeled, order, count, self._box, ShrinkingThresholds(), a, w).remaining
        self._work_left -= 2 * self.entries * count // max(1, self.count)
        return left


class RareColumns:
    """Minimization over the weights of rare columns with all other weights fixed, which lets Newton's method take full
    steps.

    Rare columns are the columns of sparse rows outside the preconditioner's block, stored by column. A column with
    large entries in few rows, such as one value of a category after standardization, has a curvature of 10^5 if one of
    its rows is in the kink of the loss, and of 1 otherwise. A full step then moves rows far beyond the kink, and a line
    search in all columns at once stops after a hundredth of the step. Therefore each step is followed by coordinate
    descent in these columns (``compute.passes.rows_in_memory.column_sweep``), and accepted by the objective after it.
    That is Newton's method on the function that remains when the rare columns are eliminated, whose curvature changes
    on the scale of margins. On 100,000 rows x 70,000 standardized columns it takes 7 full steps and 33 products, where
    an interior-point method takes 15 steps and 303 products.

    Reference: Cai and Keyes, SIAM J. Sci. Comput. 2002 (Newton's method preconditioned by nonlinear elimination).
    """

    def __init__(self, rows: MemoryRows, arrow: ArrowPreconditioner, X: CSR) -> None:
        self._rows, columns = rows, rows.problem.columns
        self._columns = columns_of(X, np.setdiff1d(np.arange(columns), arrow.chosen), columns)
        self._fixed_terms = FixedTerms(rows.outer.diagonal, rows.outer.linear)

    def minimize(self, w: Float64, f: Float64, smooth: Loss, allowed_gap: float) -> None:
        """Minimize over the rare columns until their gradient is small. Changes w (p,) and f = X w (n,)."""
        rows, terms, enough = self._rows, self._rows.terms._replace(loss=smooth), RARE_GRADIENT_SHARE * allowed_gap
        negligible = 2.0 * NEGLIGIBLE_SHARE * enough / max(1, len(self._columns.number))
        for _ in range(MAX_RARE_SWEEPS):
            squares = column_sweep(self._columns, terms, self._fixed_terms, negligible, w, f)
            rows.count_work(2 * len(self._columns.data))
            if squares <= enough or rows.is_late:
                return


def find_rare_columns(rows: MemoryRows, arrow: ArrowPreconditioner) -> RareColumns | None:
    """Return the rare columns of sparse rows; None if rows are dense or all columns are in the preconditioner's
    block.
    """
    return RareColumns(rows, arrow, rows.X) if isinstance(rows.X, CSR) and not arrow.whole else None
