"""Losses as records of plain functions, a file for each idea; the compiled passes call the same code.

For P(w) = 1/2 ||w||^2 + sum_i C_i l(m_i), C_i = C s_i, the dual is

    D(a) = sum_i (a_i - conjugate(a_i, C_i) + a_i o_i) - 1/2 ||sum_i a_i z_i x_i||^2,     lower_i <= a_i <= upper(C_i),

with conjugate(a, C) = a + max_m [-a m - C l(m)], so that C l(m) >= a - conjugate(a, C) - a m, and equality at
a = -C l'(m). What m, z and o are is decided by the target (``numeric``):

    of one of two classes, y = +1 or -1:   m_i = y_i w.x_i, the margin,       z_i = y_i,   o_i = 0
    of a number t:                         m_i = w.x_i - t_i, the residual,   z_i = 1,     o_i = t_i

Of classes the loss does not rise with m, and 0 <= a; of numbers it rises on both sides, and a has either sign: one variable a row
(Ho and Lin, JMLR 13, 2012), where textbooks have two of which one is 0. Where the conjugate is a parabola, or one on each side of
0, -D along one coordinate has

    slope      m_i - 1 + conjugate_slope(a_i, C_i),        curvature      ||x_i||^2 + curvature(C_i).

Hinges are one shape scaled: with margin k the loss is k (squared hinge: k^2) times that of margin 1 at m / k. Hence
w is k times as large, and what is measured in margins (a width, a radius) has to be in units of ``threshold``.

A record needs a field: numba cannot pass an empty one. Where C_i = 0 the row has no say and none of the dual functions
may be asked. ``types.Loss`` says what each function is to be; the contract suites hold every registered loss to it.
A loss more is a record and a line in ``LOSSES``. Of a target of yet another kind: a store says what it holds (``types.Layout.task``), a
problem what its loss is of (``jobs.fit.planning.problems``), and ``compute.targets`` what passes make of it.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from streamsvm.losses.hinges import Hinge, Huber, SquaredHinge
from streamsvm.losses.least_squares import Squared
from streamsvm.losses.logistic import Logistic
from streamsvm.losses.pinball import Pinball
from streamsvm.losses.tubes import EpsilonInsensitive, RoundedEpsilon, SquaredEpsilonInsensitive
from streamsvm.registry import Registry

if TYPE_CHECKING:
    from streamsvm.types import Loss

LEAST_RESIDUAL = 1e-3
"""What stands for the margin of a loss that costs something from 0 on."""

__all__ = [
    "LOSSES",
    "EpsilonInsensitive",
    "Hinge",
    "Huber",
    "Logistic",
    "Pinball",
    "RoundedEpsilon",
    "Squared",
    "SquaredEpsilonInsensitive",
    "SquaredHinge",
    "rounded",
    "threshold",
]

LOSSES = Registry(
    "loss",
    {
        "hinge": "streamsvm.losses:Hinge",
        "squared_hinge": "streamsvm.losses:SquaredHinge",
        "huber": "streamsvm.losses:Huber",
        "logistic": "streamsvm.losses:Logistic",
        "epsilon_insensitive": "streamsvm.losses:EpsilonInsensitive",
        "squared_epsilon_insensitive": "streamsvm.losses:SquaredEpsilonInsensitive",
        "squared": "streamsvm.losses:Squared",
        "pinball": "streamsvm.losses:Pinball",
    },
)


def rounded(loss: Loss, mu: float) -> Loss:
    """Return the loss with its corner rounded over a width of 2 mu; itself where mu is 0 or there is no corner."""
    return loss.rounded(mu) if mu else loss


def threshold(loss: Loss) -> float:
    """Return the margin m from which on a row costs nothing, inf where it always does: a = 0 is optimal where m - 1 + conjugate'(0) >= 0.

    Of a number, how far a prediction may be off for nothing, at least ``LEAST_RESIDUAL``: targets have no unit of their own.
    """
    if loss.numeric():
        return max(LEAST_RESIDUAL, math.fabs(1.0 - loss.conjugate_slope(0.0, 1.0)))
    return 1.0 - loss.conjugate_slope(0.0, 1.0)
