"""A pool: rows held in memory with all a kernel solver knows of them, and the quadratic problem they make together.

    min_x  1/2 x'Mx - p'x     subject to  sum x = constant,   low <= x <= high,     M_ij = z_i z_j (k_ij + b) + ridge_i

with the rows outside the pool held fixed. Reading the data is what costs; the more rows a pool holds, the fewer readings
there are. How it is solved: ``working_set.py``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from streamsvm.aliases import Array
from streamsvm.compute.blocks.row_selection import take
from streamsvm.compute.kernel_values.rounding import SINGLE
from streamsvm.rows import Float64, Int64, Rows, row_stack
from streamsvm.tags import saved_as
from streamsvm.types import Kernel

LEAST_POOL = 1024
"""Rows of a pool that are still of use: want of memory makes it no smaller."""
ROW_BYTES = 8 * 8
"""Bytes a row of a pool takes beside its features."""


@saved_as("kernel.form")
class Form(NamedTuple):
    """Which matrix the pool's problem has, apart from what its rows say: k(x, z) + constant."""

    kernel: Kernel
    """The kernel k."""
    columns: int
    """Columns of a row, without a constant feature."""
    constant: float = 0.0
    """What is added to every kernel value: the square of a regularized bias, 0 where the bias is free."""
    arithmetic: int = SINGLE
    """In which kernel values are evaluated (``compute/kernel_values/rounding.py``)."""


@saved_as("kernel.working_set")
@dataclass(slots=True)
class Pool:
    """Rows and, per row, float64: z, ridge, low, high, p as above; x; v = p - Mx, the negative gradient."""

    X: Rows
    """The rows, dense or CSR, as the kernel sees them; copied but for the rows of a block at hand."""
    index: Int64
    """Global row numbers."""
    sign: Float64
    """z."""
    ridge: Float64
    """What is added to the diagonal of M, 0 or more."""
    low: Float64
    """Lower bounds of x."""
    high: Float64
    """Upper bounds of x, inf where there is none; a row of weight 0 has bounds of 0."""
    p: Float64
    """The linear term; 0 on the simplex."""
    x: Float64
    """The coordinates: y_i a_i for decomposition, a_i on the simplex, coefficients in a reduced model."""
    v: Float64
    """p - Mx, the negative gradient; on the simplex it is -g."""

    @property
    def columns(self) -> tuple[Array, ...]:
        """What a pool has of each row beside its features, in the order of the fields."""
        return self.index, self.sign, self.ridge, self.low, self.high, self.p, self.x, self.v

    @property
    def size(self) -> int:
        """How many rows there are."""
        return len(self.index)


def select(pool: Pool, chosen: Array) -> Pool:
    """Some rows of a pool, copied."""
    return Pool(take(pool.X, chosen), *(column[chosen] for column in pool.columns))


def unite(parts: list[Pool]) -> Pool:
    """The rows of several pools; the parts share no row."""
    columns = zip(*(part.columns for part in parts), strict=True)
    return Pool(row_stack([part.X for part in parts]), *map(np.concatenate, columns))


def in_order(pool: Pool) -> Pool:
    """The same rows by their global numbers."""
    order = np.argsort(pool.index)
    return pool if np.array_equal(order, np.arange(len(order))) else select(pool, order)


def extremes(pool: Pool) -> tuple[float, float]:
    """Max v over the x that may grow, min v over those that may shrink; optimal where the first is not larger."""
    top = np.max(pool.v, where=pool.x < pool.high, initial=-np.inf)
    bottom = np.min(pool.v, where=pool.x > pool.low, initial=np.inf)
    return float(top), float(bottom)


def violation(pool: Pool) -> float:
    """By how much the optimality conditions are violated; not above 0 at the optimum."""
    top, bottom = extremes(pool)
    return top - bottom


def depth(pool: Pool, level: float) -> Float64:
    """How far each row violates the optimality conditions if their threshold is ``level``; below 0 where it does not."""
    grow = np.where(pool.x < pool.high, pool.v - level, -np.inf)
    shrink = np.where(pool.x > pool.low, level - pool.v, -np.inf)
    return np.maximum(grow, shrink)


def worst(pool: Pool, count: int, growing: float = 0.5) -> NDArray[np.int64]:
    """The rows that violate most, the share ``growing`` of those that ask to grow. At most ``count``, in order."""
    if count >= pool.size:
        return np.arange(pool.size)
    grow = np.where(pool.x < pool.high, pool.v, -np.inf)
    shrink = np.where(pool.x > pool.low, -pool.v, -np.inf)
    first = max(int(growing * count), 1)
    second = max(count - first, 1)
    return np.union1d(np.argpartition(grow, -first)[-first:], np.argpartition(shrink, -second)[-second:])
