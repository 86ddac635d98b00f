"""Problems with few rows in memory are solved one after the other without passes: the records that all their solvers share.

A pass visits blocks, joins the states of groups and draws samples, which takes milliseconds. A problem of a thousand
rows is solved in less (``solvers.newton.small_problems``, ``solvers.kernel.small_problems``).
"""

from __future__ import annotations

from typing import NamedTuple

from streamsvm.rows import Float32, Float64, Int64, Targets
from streamsvm.types import Certificate, Problem, State


class SmallProblem(NamedTuple):
    """A problem and its rows; problems of the same rows have the same array of numbers."""

    problem: Problem
    numbers: Int64
    """(q,) the numbers of its rows, ascending."""
    y: Targets
    """(q,) +1 or -1, or the numbers to be predicted."""
    s: Float32 | Float64
    """(q,) their weights."""


class Solved(NamedTuple):
    """A solved problem."""

    state: State
    """The state of the solver of the fit."""
    certificate: Certificate
