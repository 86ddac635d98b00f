"""What of an objective is not a sum over rows: 1/2 w' G w + q.w, G diagonal; G = 1 and q = 0 is the problem itself.

The dual value that goes with it is sum_i (a_i - conjugate(a_i)) - 1/2 (v - q)' G^-1 (v - q), v = sum_i a_i y_i x_i.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from streamsvm.compute.blocks import operators
from streamsvm.compute.passes.certificate import best_scale, dual_at
from streamsvm.compute.passes.dcd import Box, Held, dcd_sweep
from streamsvm.compute.passes.rows_in_memory import Outside, RowTerms, column_sweep, columns_of, hessian_product
from streamsvm.rows import CSR, Float64, Int32, Labeled
from streamsvm.solvers.newton.linear_algebra import ArrowPreconditioner
from streamsvm.solvers.newton.sample import Sample
from streamsvm.tags import saved_as
from streamsvm.types import Loss, Problem


class DualValue(NamedTuple):
    """What a dual point is worth."""

    value: float
    """D of the point, scaled."""
    scale: float
    """By how much it is scaled."""


NO_DUAL_POINT = DualValue(-np.inf, 0.0)
"""What there is where none was looked at."""


@saved_as("newton.outer_terms")
class OuterTerms(NamedTuple):
    """See above."""

    diagonal: Float64
    """G (p,), 1 or more."""
    linear: Float64
    """q (p,)."""

    def value(self, w: Float64) -> float:
        """1/2 w' G w + q.w."""
        return 0.5 * float(w @ (self.diagonal * w)) + float(self.linear @ w)

    def gradient(self, w: Float64) -> Float64:
        """G w + q (p,)."""
        return self.diagonal * w + self.linear

    def along(self, w: Float64, step: Float64) -> tuple[float, float]:
        """First and second derivative at w along a step."""
        scaled = self.diagonal * step
        return float(w @ scaled) + float(self.linear @ step), float(step @ scaled)

    def dual(self, loss: Loss, linear: float, quadratic: float, v: Float64) -> DualValue:
        """The dual value of a_i with these sums (``compute.passes.certificate``), scaled for the best where q = 0.

        Elsewhere q and v are large and nearly the same: only their difference is squared.
        """
        if not self.linear.any():
            square = float(v @ (v / self.diagonal))
            scale = best_scale(loss, linear, quadratic, square)
            return DualValue(dual_at(scale, linear, quadratic, square), scale)
        left = v - self.linear
        return DualValue(linear - quadratic - 0.5 * float(left @ (left / self.diagonal)), 1.0)


def plain(components: int) -> OuterTerms:
    """Those of the problem itself: 1/2 ||w||^2."""
    return OuterTerms(np.ones(components), np.zeros(components))


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


RARE_SWEEPS = 20
"""At most, after a step."""
SQUARES = 0.02
"""Sweeps end where half the squared slopes, which are what D lacks, are this share of the gap allowed."""
NEGLIGIBLE = 0.1
"""Slopes that sum up to this share of those, all columns together, are left."""


class RareColumns:
    """Those of sparse rows that are not in the block of a preconditioner, stored by column."""

    def __init__(self, rows: MemoryRows, arrow: ArrowPreconditioner, X: CSR) -> None:
        self._rows, columns = rows, rows.problem.columns
        self._columns = columns_of(X, np.setdiff1d(np.arange(columns), arrow.chosen), columns)
        self._outside = Outside(rows.outer.diagonal, rows.outer.linear)

    def settle(self, w: Float64, f: Float64, smooth: Loss, allowed: float) -> None:
        """Changes w (p,), and f = X w (n,) with it, so that no rare column alone would gain much."""
        rows, terms, enough = self._rows, self._rows.terms._replace(loss=smooth), SQUARES * allowed
        negligible = 2.0 * NEGLIGIBLE * enough / max(1, len(self._columns.number))
        for _ in range(RARE_SWEEPS):
            squares = column_sweep(self._columns, terms, self._outside, negligible, w, f)
            rows.visited(2 * len(self._columns.data))
            if squares <= enough or rows.late:
                return


def rare_columns(rows: MemoryRows, arrow: ArrowPreconditioner) -> RareColumns | None:
    """Of sparse rows that are all there are, if some columns are outside the block; else None."""
    return RareColumns(rows, arrow, rows.X) if isinstance(rows.X, CSR) and not arrow.whole else None


TRIALS = 60
ENOUGH = 0.05
"""The slope may remain at this share of itself."""
BEFORE = 0.9
"""Beyond the minimum it may where that is no nearer to 0 than this share of the length, as the curvature there has it: a first slope
that is large says little of how far the function has risen since."""
CLOSE = 0.999
"""A bracket of which the lower end is this share of the upper one is narrow enough."""
CUT = 1e-2
"""The next length tried where all that is known is that one is too long, as a share of it."""


def step_length(slopes: Callable[[float], tuple[float, float]]) -> float:
    """The t that about minimizes a convex function whose first and second derivative at t are ``slopes(t)``."""
    low, high, t = 0.0, np.inf, 1.0
    first = slopes(0.0)[0]
    if first >= 0.0:
        return 0.0
    for _ in range(TRIALS):
        slope, curvature = slopes(t)
        newton = t - slope / curvature if curvature > 0.0 else np.inf if slope <= 0.0 else -np.inf
        if abs(slope) <= ENOUGH * abs(first) and newton >= BEFORE * t:
            return t
        low, high = (low, t) if slope > 0.0 else (t, high)
        if low >= CLOSE * high:
            return low
        t = newton if low < newton < high else _between(low, high)
    return low


def _between(low: float, high: float) -> float:
    """Where to look next in a bracket: the geometric mean of its ends, as far as these are known."""
    if not np.isfinite(high):
        return 2.0 * low
    return float(np.sqrt(low * high)) if low > 0.0 else CUT * high
