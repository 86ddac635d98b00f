"""Pools of columns, for solvers whose (p, p) matrix of second derivatives would be too large.

Such a solver works on the m columns of a pool, and chooses a new pool from time to time. Columns outside the pool keep
their weights.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np

from streamsvm.compute.blocks import operators
from streamsvm.compute.blocks.operators import select_columns
from streamsvm.rows import Float64, Int64, Rows
from streamsvm.types import Problem, RowState, Solver

MAX_COLUMNS, MIN_COLUMNS = 4096, 64
"""Maximum number of columns of a pool, beyond which second derivatives take too long, and the least useful number."""


@dataclass(frozen=True, slots=True)
class ColumnPoolSolver(Solver[Any]):
    """The base class of solvers that work on a pool of columns."""

    pool: int = MAX_COLUMNS
    """Maximum number of columns of the pool."""
    row_state: ClassVar[tuple[RowState, ...]] = ()
    shuffled: ClassVar[bool] = False
    has_current_weights: ClassVar[bool] = True
    stops_early: ClassVar[bool] = True
    warm_start: ClassVar[bool] = True

    def columns(self, problem: Problem) -> int:
        """Return the maximum number of columns of the pool."""
        return min(self.pool, MAX_COLUMNS, problem.columns)

    def shrink_memory(self, problem: Problem, user_set: Collection[str]) -> Self | None:
        """Return the solver with half the pool; None if the pool would become too small to be useful."""
        half = self.columns(problem) // 2
        return None if half < MIN_COLUMNS else replace(self, pool=half)

    def memory_settings(self) -> dict[str, int | None]:
        """Return the maximum number of columns of the pool."""
        return {"pool": self.pool}


def gram_of_pool(X: Rows, h: Float64, pool: Int64, columns: int) -> Float64:
    """Return X' diag(h) X (m + 1, m + 1) of a block's rows, for the columns of the pool and the constant feature."""
    return operators.gram(select_columns(X, pool, columns), h, len(pool))


def components_of(pool: Int64, problem: Problem) -> Int64:
    """Return the positions of the pool's columns and the constant feature among the weights."""
    return np.append(pool, problem.columns)
