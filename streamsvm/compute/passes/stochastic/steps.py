"""What passes of stochastic steps are given: the objective, and how its rows make mini-batches."""

from __future__ import annotations

from typing import Any, NamedTuple

from streamsvm.rows import Int32


class Objective(NamedTuple):
    """lambda/2 ||w||^2 + 1/n sum_i s_i l(y_i w.x_i)."""

    lam: float
    """The weight lambda of the regularizer."""
    loss: Any
    """The loss l."""


class Batches(NamedTuple):
    """Rows in the order of their visits, ``size`` for a step."""

    order: Int32
    """The numbers of the rows, in the order of their visits."""
    size: int = 1
    """Rows for a step."""
    every: int = 1
    """The number of steps after which w is added to the sum for its mean."""
