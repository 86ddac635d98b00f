"""Iterations of the Frank-Wolfe family from samples: g is computed for the rows drawn, from the support alone.

f and, for PARTAN, W follow their recursions; nothing is kept for rows outside the support. The formulas are in
``compute/passes/simplex.py``.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from streamsvm.aliases import Array
from streamsvm.compute.blocks.row_selection import matrix_of, take
from streamsvm.compute.kernel_values.gram import diagonal, kernel_block, points_of
from streamsvm.compute.kernel_values.rounding import DIFFERENCES, dtype_of
from streamsvm.compute.passes.simplex import (
    Tangent,
    away_step,
    swap_step,
    tangent_room,
    tangent_step,
    tangent_value,
    toward_step,
    toward_value,
)
from streamsvm.rows import Float64, Int64, Rows, row_count, row_stack
from streamsvm.solvers.kernel.working_set import Form, Pool
from streamsvm.tags import saved_as

ROWS_PER_LOT = 128
"""New support rows are appended to the others in lots of this size: joining copies them all."""


@saved_as("simplex.sampled_iterations")
@dataclass(slots=True)
class SampledIterations:
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
        self._lots = [take(pool.X, np.array(self.members))]
        self.f = -0.5 * float(pool.x @ pool.v)

    @property
    def support(self) -> int:
        """Rows with weight."""
        return int(np.count_nonzero(self.a))

    def find_vertices(self, drawn: Int64, draw: np.random.Generator) -> float:
        """The gap over the rows drawn; finds the vertices of the next step."""
        away = self.variant in {"mfw", "swap"}
        chosen = np.array(self.members, np.int64)[draw.integers(0, self.size, len(drawn))] if away else drawn[:0]
        asked = np.concatenate([drawn, chosen])
        K = self._kernel(asked)
        g = self._gradient(K, asked, self.a)
        k = int(np.argmin(g[: len(drawn)]))
        self._i = int(asked[k])
        h = self._gradient(K[:, k : k + 1], asked[k : k + 1], self.before)[0] if self.variant == "partan" else 0.0
        weighty = self.a[self._place[chosen]] > 0.0
        top = len(drawn) + int(np.argmax(np.where(weighty, g[len(drawn) :], -np.inf))) if away else k
        self._v = int(asked[top])
        if away:
            sign = self.pool.sign[self._i] * self.pool.sign[self._v]
            same = self._i == self._v
            value = float(K[self._place[self._v], k]) + self.form.constant
            self._across = self._diagonal[self._i] if same else sign * value
        self._g = (float(g[k]), float(g[top]), float(h))
        return 2.0 * self.f - self._g[0]

    def _kernel(self, asked: Int64) -> Array:
        """K between the members and the rows asked for, (members, asked)."""
        dtype, by_differences = dtype_of(self.form.arithmetic), self.form.arithmetic == DIFFERENCES
        points = points_of(matrix_of(take(self.pool.X, asked), self.form.columns), dtype)
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

    def advance(self) -> None:
        """One iteration from the vertices that ``find_vertices`` has found."""
        g_i, g_v, _ = self._g
        f, K_ii, K_vv = self.f, self._diagonal[self._i], self._diagonal[self._v]
        a_v = float(self.a[self._place[self._v]]) if self._place[self._v] >= 0 else 0.0
        self.count += 1
        if self.variant == "mfw" and a_v > 0.0 and g_v - 2.0 * f > 2.0 * f - g_i:
            self._away(a_v, g_v, K_vv)
        elif self.variant == "swap" and a_v > 0.0 and self._i != self._v:
            step = swap_step(g_i, g_v, K_ii + K_vv - 2.0 * self._across, a_v)
            if step.fall > toward_step(f, g_i, K_ii).fall:
                self._exchange(step.length, a_v)
                self.f -= step.fall
            else:
                self._toward()
        elif self.variant == "partan":
            self._partan()
        else:
            self._toward()

    def _toward(self) -> float:
        g_i, K_ii = self._g[0], self._diagonal[self._i]
        length = 2.0 / (self.count + 1.0) if self.open_step else toward_step(self.f, g_i, K_ii).length
        self.f = toward_value(self.f, g_i, K_ii, length)
        place = self._admit(self._i)
        self.a[: self.size] *= 1.0 - length
        self.a[place] += length
        return length

    def _away(self, a_v: float, g_v: float, K_vv: float) -> None:
        step = away_step(self.f, g_v, K_vv, a_v)
        dropped = step.length * (1.0 - a_v) >= a_v
        self.a[: self.size] *= 1.0 + step.length
        place = self._place[self._v]
        self.a[place] = 0.0 if dropped else self.a[place] - step.length
        self.f -= step.fall

    def _exchange(self, length: float, a_v: float) -> None:
        place = self._admit(self._i)  # before self.a is looked up: it may grow
        self.a[place] += length
        self.a[self._place[self._v]] = 0.0 if length >= a_v else a_v - length

    def _partan(self) -> None:
        g_i, _, h_i = self._g
        old_f, old = self.f, self.a.copy()
        length = self._toward()
        old.resize(len(self.a))
        along = (1.0 - length) * 2.0 * old_f + length * g_i
        W = along
        if self.tangent is not None:
            A = (1.0 - length) * self.tangent.W + length * h_i
            m = tangent_step(self.tangent, self.f, A, tangent_room(self.a, self.before))
            self.f = tangent_value(self.tangent, self.f, A, m)
            self.a = np.maximum((1.0 + m) * self.a - m * self.before, 0.0)
            W = (1.0 + m) * along - m * self.tangent.W
        self.before = old
        self.tangent = Tangent(old_f, W)

    def _admit(self, row: int) -> int:
        """The place of a row among the members, a new one if need be."""
        if self._place[row] >= 0:
            return int(self._place[row])
        if self.size == len(self.a):
            self.a, self.before = (np.concatenate([b, np.zeros(len(b))]) for b in (self.a, self.before))
        self._place[row] = self.size
        self.members.append(row)
        self.size += 1
        fresh = take(self.pool.X, np.array([row]))
        if len(self._lots) == 1 or row_count(self._lots[-1]) >= ROWS_PER_LOT:
            self._lots = [row_stack(self._lots), fresh]
        else:
            self._lots[-1] = row_stack([self._lots[-1], fresh])
        return self.size - 1

    def write(self, pool: Pool) -> None:
        """Give the weights back to the pool."""
        pool.x[:] = 0.0
        pool.x[self.members] = self.a[: self.size]
        pool.x /= pool.x.sum()
