"""Second derivatives of all rows at a point, X' diag(C_i l''(m_i)) X, summed up block by block."""

from __future__ import annotations

import numpy as np

from streamsvm.compute.blocks import operators
from streamsvm.compute.passes.newton import second_derivatives_pass
from streamsvm.rows import Float64
from streamsvm.types import Block, Loss, Problem


def bends_of(problem: Problem, smooth: Loss, block: Block, f: Float64) -> Float64:
    """Return C_i smooth''(m_i) (n,) of the rows of a block whose decision values are f (n,)."""
    bends = np.empty(len(f))
    second_derivatives_pass(block.y, block.s, f, problem.C, smooth, bends)
    return bends


def second_derivatives_of(problem: Problem, block: Block, f: Float64) -> Float64:
    """Return X' diag(C_i l''(m_i)) X (p, p) of a block whose decision values are f (n,)."""
    return operators.gram(block.X, bends_of(problem, problem.loss, block, f), problem.columns)


def added(total: Float64 | None, found: Float64 | None) -> Float64 | None:
    """Return the sum of two sums, of which either may not have been begun."""
    if total is None or found is None:
        return found if total is None else total
    return total + found
