"""Iterations of the Frank-Wolfe family from samples: g is computed for the rows drawn, from the support alone.

The steps are those of ``sampled_steps``; here is what K is made of: kernel values between the rows with weight and those drawn.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from streamsvm.aliases import Array
from streamsvm.compute.blocks.selection import take_rows, to_matrix
from streamsvm.compute.kernel_values.gram import diagonal, kernel_block, points_of
from streamsvm.compute.kernel_values.rounding import DIFFERENCES, dtype_of
from streamsvm.compute.passes.simplex import Tangent
from streamsvm.rows import Float64, Int64, Rows, row_count, row_stack
from streamsvm.solvers.kernel.pool import Form, Pool
from streamsvm.solvers.kernel.simplex.sampled_steps import StepsFromSamples
from streamsvm.tags import saved_as

ROWS_PER_LOT = 128
"""New support rows are appended to the others in lots of this size: joining copies them all."""


@saved_as("simplex.sampled_iterations")
@dataclass(slots=True)
class SampledIterations(StepsFromSamples):
    """``members``: the pool's rows that have or had weight, with a and PARTAN's iterate before it, in the same order."""

    pool: Pool
    """The rows in memory; their x is where the iterations begin, and is written by ``write`` alone."""
    form: Form
    """The kernel, the constant added to its values, and their arithmetic."""
    variant: str
    """Which steps are taken: ``fw`` toward a vertex, ``mfw`` also away from one, ``swap`` between two, ``partan`` along
    a tangent too."""
    open_step: bool = False
    """Whether a step toward a vertex has the length 2 / (k + 2) of the k-th iteration, instead of the exact one."""
    count: int = 0
    """Iterations made since the run began, those in earlier pools included."""
    f: float = 0.0
    """1/2 a'Ka, by recursion from what the pool's x and v make it."""
    members: list[int] = field(default_factory=list)
    """Places in the pool of the rows that have or had weight, in the order they came in."""
    a: Float64 = field(default_factory=lambda: np.empty(0))
    """The weights of the members, and zeros after them: room for more."""
    before: Float64 = field(default_factory=lambda: np.empty(0))
    """The weights in the iterate before, for PARTAN, laid out like ``a``."""
    tangent: Tangent | None = None
    """What PARTAN's second search needs of the iterate before; None before there is one, and for other variants."""
    size: int = 0
    """How many members there are: so much of ``a`` and ``before`` counts."""
    _diagonal: Float64 = field(default_factory=lambda: np.empty(0))
    _place: Int64 = field(default_factory=lambda: np.empty(0, np.int64))
    """Where a row of the pool stands among the members; -1: nowhere."""
    _lots: list[Rows] = field(default_factory=list)
    _drawn: Any = None
    _i: int = 0
    _v: int = 0
    _g: tuple[float, float, float] = (0.0, 0.0, 0.0)
    """g_i, g_v, and the gradient at ``before`` of i."""
    _across: float = 0.0
    """K_iv."""
    away: str = "drawn"
    """Where the vertex that weight is taken from is looked for: ``exact`` among all with weight, ``drawn`` among a sample of them."""
    _gradients: Float64 = field(default_factory=lambda: np.empty(0))
    """(members,) g, kept up where ``away`` is exact and the variant takes weight from a vertex."""
    _columns: tuple[Float64, ...] = ()
    """(members,) K_i and K_v of the next step, where ``_gradients`` are kept up; else empty."""

    def __post_init__(self) -> None:
        pool = self.pool
        plain = diagonal(pool.X, self.form.kernel, dtype_of(self.form.arithmetic)).astype(np.float64)
        self._diagonal = plain + self.form.constant + pool.ridge
        self.members = np.flatnonzero(pool.x).tolist()
        self.size = len(self.members)
        self._place = np.full(pool.size, -1, np.int64)
        self._place[self.members] = np.arange(self.size)
        self.a, self.before = np.zeros(2 * self.size + ROWS_PER_LOT), np.zeros(2 * self.size + ROWS_PER_LOT)
        self.a[: self.size] = self.before[: self.size] = pool.x[self.members]
        self._lots = [take_rows(pool.X, np.array(self.members))]
        self.f = -0.5 * float(pool.x @ pool.v)
        self._gradients = -pool.v[self.members]

    def _kernel(self, asked: Int64) -> Array:
        """K between the members and the rows asked for, (members, asked)."""
        dtype, by_differences = dtype_of(self.form.arithmetic), self.form.arithmetic == DIFFERENCES
        points = points_of(to_matrix(take_rows(self.pool.X, asked), self.form.columns), dtype)
        out = np.empty((self.size, len(asked)), dtype)
        first = 0
        for lot in self._lots:
            rows = row_count(lot)
            kernel_block(lot, points, self.form.kernel, out[first : first + rows], by_differences=by_differences)
            first += rows
        return out

    def _gradient(self, K: Array, asked: Int64, a: Float64) -> Float64:
        pool, weights = self.pool, (self.pool.sign[self.members] * a[: self.size])
        f = (weights.astype(K.dtype) @ K).astype(np.float64) + self.form.constant * weights.sum()
        place = self._place[asked]
        own = np.where(place >= 0, a[place], 0.0)
        return pool.sign[asked] * f + pool.ridge[asked] * own

    def _value(self, K: Array, k: int) -> float:
        sign = self.pool.sign[self._i] * self.pool.sign[self._v]
        value: float = sign * (float(K[self._place[self._v], k]) + self.form.constant)
        return value

    def _column(self, K: Array, k: int, vertex: int) -> Float64:
        sign, place = self.pool.sign, self._place[vertex]
        column: Float64 = (sign[vertex] * sign[self.members]) * (K[:, k].astype(np.float64) + self.form.constant)
        if place >= 0:
            column[place] = self._diagonal[vertex]
        return column

    def _bring(self, vertex: int) -> None:
        fresh = take_rows(self.pool.X, np.array([vertex]))
        if len(self._lots) == 1 or row_count(self._lots[-1]) >= ROWS_PER_LOT:
            self._lots = [row_stack(self._lots), fresh]
        else:
            self._lots[-1] = row_stack([self._lots[-1], fresh])

    def write(self, pool: Pool) -> None:
        """Give the weights back to the pool."""
        pool.x[:] = 0.0
        pool.x[self.members] = self.a[: self.size]
        pool.x /= pool.x.sum()
