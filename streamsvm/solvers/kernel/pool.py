"""A pool: rows in memory with their variables, and the quadratic problem in these variables.

    min_x  1/2 x'Mx - p'x     subject to  sum x = constant,   low <= x <= high,     M_ij = z_i z_j (k_ij + b) + ridge_i

with the x of rows outside the pool fixed. ``smo.py`` solves it. Reading the data is the main cost, and the more rows a
pool holds, the fewer passes are necessary.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from streamsvm.class_tags import saved_as
from streamsvm.compute.blocks.selection import take_rows
from streamsvm.compute.kernel_values.arithmetic import SINGLE
from streamsvm.errors import UsageError
from streamsvm.rows import Float64, Int64, Rows, row_stack
from streamsvm.type_aliases import Array
from streamsvm.types import Kernel

MIN_POOL = 1024
"""Number of rows of the smallest useful pool; scarce memory does not reduce it further."""
ROW_BYTES = 8 * 8
"""Bytes per row of a pool besides its features."""


@saved_as("kernel.form")
class Form(NamedTuple):
    """The kernel matrix of a problem: k(x, z) + constant, and the arithmetic of its values."""

    kernel: Kernel
    columns: int
    """Number of columns of a row, without a constant feature."""
    constant: float = 0.0
    """Added to every kernel value: the square of a regularized bias; 0 if the bias is free."""
    arithmetic: int = SINGLE
    """The arithmetic of kernel values (``compute/kernel_values/arithmetic.py``)."""


@saved_as("kernel.working_set")
@dataclass(slots=True)
class Pool:
    """Rows, and float64 arrays with a value per row: z, ridge, low, high, p as above; x; v = p - Mx."""

    X: Rows
    """The rows. They are copies, except in the pool of a block that is being visited."""
    index: Int64
    """Global row numbers."""
    sign: Float64
    """z."""
    ridge: Float64
    """The terms >= 0 added to the diagonal of M."""
    low: Float64
    high: Float64
    """The bounds of x, infinite if there is none. Both are 0 for rows with weight 0."""
    p: Float64
    """The linear term; 0 on the simplex."""
    x: Float64
    """The variables: y_i a_i for decomposition, a_i on the simplex, coefficients in a reduced set."""
    v: Float64
    """p - Mx, the negative gradient; on the simplex it is -g."""

    @property
    def columns(self) -> tuple[Array, ...]:
        """All fields except the features, in their order."""
        return self.index, self.sign, self.ridge, self.low, self.high, self.p, self.x, self.v

    @property
    def size(self) -> int:
        """The number of rows."""
        return len(self.index)


def select_rows(pool: Pool, chosen: Array) -> Pool:
    """Return a pool of copies of the rows at the positions ``chosen``."""
    return Pool(take_rows(pool.X, chosen), *(column[chosen] for column in pool.columns))


def join_pools(parts: list[Pool]) -> Pool:
    """Return one pool of the rows of several pools that have no row in common."""
    columns = zip(*(part.columns for part in parts), strict=True)
    return Pool(row_stack([part.X for part in parts]), *map(np.concatenate, columns))


def sort_rows(pool: Pool) -> Pool:
    """Return the same rows in the order of their global numbers."""
    order = np.argsort(pool.index)
    return pool if np.array_equal(order, np.arange(len(order))) else select_rows(pool, order)


def extremes(pool: Pool) -> tuple[float, float]:
    """Return max v over the rows whose x may grow, and min v over the rows whose x may shrink. x is optimal if the
    first is not larger than the second.
    """
    top = np.max(pool.v, where=pool.x < pool.high, initial=-np.inf)
    bottom = np.min(pool.v, where=pool.x > pool.low, initial=np.inf)
    return float(top), float(bottom)


def violation(pool: Pool) -> float:
    """Return the violation of the optimality conditions, which is at most 0 at the optimum."""
    top, bottom = extremes(pool)
    return top - bottom


def row_violations(pool: Pool, threshold: float) -> Float64:
    """Return the violation of the optimality conditions by each row (n,), given the threshold; negative for rows that
    do not violate them.
    """
    grow = np.where(pool.x < pool.high, pool.v - threshold, -np.inf)
    shrink = np.where(pool.x > pool.low, threshold - pool.v, -np.inf)
    return np.maximum(grow, shrink)


def worst_rows(pool: Pool, count: int, growing: float = 0.5) -> Int64:
    """Return the positions of the ``count`` worst violators; for the fraction ``growing`` of them x is to grow."""
    if count >= pool.size:
        return np.arange(pool.size)
    grow = np.where(pool.x < pool.high, pool.v, -np.inf)
    shrink = np.where(pool.x > pool.low, -pool.v, -np.inf)
    first = max(int(growing * count), 1)
    second = max(count - first, 1)
    return np.union1d(np.argpartition(grow, -first)[-first:], np.argpartition(shrink, -second)[-second:])


def no_support_error() -> UsageError:
    """Return the error of a fit that stopped before any pass could find support rows."""
    return UsageError("the pass limit left no pass that finds support rows", hint="allow at least two: --max-passes 2")
