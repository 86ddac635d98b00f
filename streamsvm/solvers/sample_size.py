"""How many rows newton's model of the objective is made of (``solvers.surrogate``)."""

from __future__ import annotations

from streamsvm.types import Problem

ROWS, PER_COMPONENT = 50_000, 100
"""Rows of a sample: so many, or so many for each component ..."""
LARGEST, FEWEST = 64 << 20, 20_000
"""... up to so many bytes, were they dense, but not fewer than these ..."""
LEAST, LEAST_PER_COMPONENT = 2_000, 20
"""... unless memory is short; ..."""
WHOLE, LARGEST_WHOLE = 3, 1 << 30
"""... and all rows where there are no more than so many times as many, in so many bytes, were they dense."""


def least_rows(problem: Problem) -> int:
    """Of a sample that is of use."""
    return max(LEAST, LEAST_PER_COMPONENT * (problem.columns + 1))


def sample_rows(asked: int | None, problem: Problem) -> int:
    """How many rows a model is made of: all, where they are not much more than are usual."""
    rows = asked or usual_rows(problem)
    few = not asked and problem.rows <= WHOLE * rows and 4 * problem.rows * (problem.columns + 1) <= LARGEST_WHOLE
    return problem.rows if few else min(problem.rows, rows)


def usual_rows(problem: Problem) -> int:
    """Of a sample, where rows are many."""
    p = problem.columns + 1
    return max(FEWEST, min(max(ROWS, PER_COMPONENT * p), LARGEST // (4 * p)))
