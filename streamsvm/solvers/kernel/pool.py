"""A pool: rows held in memory with all a kernel solver knows of them, and the quadratic problem they make together.

    min_x  1/2 x'Mx - p'x     subject to  sum x = constant,   low <= x <= high,     M_ij = z_i z_j (k_ij + b) + ridge_i

with the rows outside the pool held fixed. Reading the data is what costs; the more rows a pool holds, the fewer
readings there are. ``smo.py`` solves it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from streamsvm.aliases import Array
from streamsvm.class_tags import saved_as
from streamsvm.compute.blocks.selection import take_rows
from streamsvm.compute.kernel_values.rounding import SINGLE
from streamsvm.errors import UsageError
from streamsvm.rows import Float64, Int64, Rows, row_stack
from streamsvm.types import Kernel

MIN_POOL = 1024
"""Rows of the smallest pool that is of use: scarce memory makes it no smaller."""
ROW_BYTES = 8 * 8
"""Bytes a row of a pool takes beside its features."""


@saved_as("kernel.form")
class Form(NamedTuple):
    """The matrix of a pool's problem, apart from what its rows say: k(x, z) + constant."""

    kernel: Kernel
    columns: int
    """Columns of a row, without a constant feature."""
    constant: float = 0.0
    """Added to every kernel value: the square of a regularized bias, 0 where the bias is free."""
    arithmetic: int = SINGLE
    """The arithmetic of kernel values (``compute/kernel_values/rounding.py``)."""


@saved_as("kernel.working_set")
@dataclass(slots=True)
class Pool:
    """Rows and, per row, float64: z, ridge, low, high, p as above; x; v = p - Mx, the negative gradient."""

    X: Rows
    """The rows as the kernel sees them, copied unless they are those of the block being visited."""
    index: Int64
    """Global row numbers."""
    sign: Float64
    """z."""
    ridge: Float64
    """Added to the diagonal of M, at least 0."""
    low: Float64
    high: Float64
    """Bounds of x, infinite where there is none; both are 0 for a row of weight 0."""
    p: Float64
    """The linear term; 0 on the simplex."""
    x: Float64
    """The coordinates: y_i a_i for decomposition, a_i on the simplex, coefficients in a reduced model."""
    v: Float64
    """p - Mx, the negative gradient; on the simplex it is -g."""

    @property
    def columns(self) -> tuple[Array, ...]:
        """All fields but the features, in their order."""
        return self.index, self.sign, self.ridge, self.low, self.high, self.p, self.x, self.v

    @property
    def size(self) -> int:
        """The number of rows."""
        return len(self.index)


def select_rows(pool: Pool, chosen: Array) -> Pool:
    """Return the rows at some places, copied."""
    return Pool(take_rows(pool.X, chosen), *(column[chosen] for column in pool.columns))


def join_pools(parts: list[Pool]) -> Pool:
    """Return the rows of several pools that have no row in common."""
    columns = zip(*(part.columns for part in parts), strict=True)
    return Pool(row_stack([part.X for part in parts]), *map(np.concatenate, columns))


def sort_rows(pool: Pool) -> Pool:
    """Return the same rows in the order of their global numbers."""
    order = np.argsort(pool.index)
    return pool if np.array_equal(order, np.arange(len(order))) else select_rows(pool, order)


def extremes(pool: Pool) -> tuple[float, float]:
    """Return max v over the x that may grow, min v over those that may shrink; optimal where the first
    is not larger.
    """
    top = np.max(pool.v, where=pool.x < pool.high, initial=-np.inf)
    bottom = np.min(pool.v, where=pool.x > pool.low, initial=np.inf)
    return float(top), float(bottom)


def violation(pool: Pool) -> float:
    """Return by how much the optimality conditions are violated; not above 0 at the optimum."""
    top, bottom = extremes(pool)
    return top - bottom


def row_violations(pool: Pool, threshold: float) -> Float64:
    """Return how far each row violates the optimality conditions at this threshold (n,); below 0 where it does not."""
    grow = np.where(pool.x < pool.high, pool.v - threshold, -np.inf)
    shrink = np.where(pool.x > pool.low, threshold - pool.v, -np.inf)
    return np.maximum(grow, shrink)


def worst_rows(pool: Pool, count: int, growing: float = 0.5) -> Int64:
    """Return the places of the rows that violate most, at most ``count``; a share ``growing`` of them are to grow."""
    if count >= pool.size:
        return np.arange(pool.size)
    grow = np.where(pool.x < pool.high, pool.v, -np.inf)
    shrink = np.where(pool.x > pool.low, -pool.v, -np.inf)
    first = max(int(growing * count), 1)
    second = max(count - first, 1)
    return np.union1d(np.argpartition(grow, -first)[-first:], np.argpartition(shrink, -second)[-second:])


def no_support_error() -> UsageError:
    """Return the error of a run whose passes ended before any could find support rows."""
    return UsageError("the pass limit left no pass that finds support rows", hint="allow at least two: --max-passes 2")
