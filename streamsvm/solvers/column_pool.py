"""A pool of columns: how many second derivatives are summed up at a time, and X' diag(h) X of those of a block.

A solver whose quadratic model has p by p numbers works on the m columns of a pool instead, chosen anew as it goes on; a
column outside the pool keeps its weight.
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
"""Columns of a pool: second derivatives of more take too long, of fewer are of no use."""


@dataclass(frozen=True, slots=True)
class ColumnPoolSolver(Solver[Any]):
    """The setting of solvers that work on a pool of columns, and what follows from it."""

    pool: int = MAX_COLUMNS
    """Columns whose second derivatives are summed up at a time."""
    row_state: ClassVar[tuple[RowState, ...]] = ()
    shuffled: ClassVar[bool] = False
    has_candidates: ClassVar[bool] = True
    stops_early: ClassVar[bool] = True
    warm_start: ClassVar[bool] = True

    def columns(self, problem: Problem) -> int:
        """Return the columns of the pool at most."""
        return min(self.pool, MAX_COLUMNS, problem.columns)

    def shrink_memory(self, problem: Problem, asked: Collection[str]) -> Self | None:
        """Return the solver with half as many columns at a time; None at the least."""
        half = self.columns(problem) // 2
        return None if half < MIN_COLUMNS else replace(self, pool=half)

    def memory_settings(self) -> dict[str, int | None]:
        """Return the columns at a time."""
        return {"pool": self.pool}


def gram_of_pool(X: Rows, h: Float64, pool: Int64, columns: int) -> Float64:
    """Return X' diag(h) X of the pool's columns and the constant feature, (m + 1, m + 1), of the rows of a block."""
    return operators.gram(select_columns(X, pool, columns), h, len(pool))


def components_of(pool: Int64, problem: Problem) -> Int64:
    """Return where the pool's columns and the constant feature are among the weights."""
    return np.append(pool, problem.columns)
