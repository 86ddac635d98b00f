"""The margin perceptron with unlearning (MPU): one visit of the rows of a block. Pass of ``solvers.dcd.MPU``."""

from __future__ import annotations

from math import ceil
from typing import NamedTuple

from streamsvm.compute.compiled import compiled
from streamsvm.compute.numba_bridge import FAST
from streamsvm.compute.passes.dcd import Box
from streamsvm.rows import Float64, Int32, Labeled


class Steps(NamedTuple):
    """How dual variables move."""

    length: float
    """eta, one step."""
    most: int
    """Steps of one row in one visit."""


class Learned(NamedTuple):
    """What a pass has found."""

    moved: int
    """How many rows have moved."""
    losses: float
    """sum C_i l(m_i) at the moment of each visit."""
    hidden: float
    """What the rows that did not move hide of P - D."""


@compiled(fastmath=FAST)
def mpu_pass(given: Labeled, order: Int32, box: Box, steps: Steps, alpha: Float64, w: Float64) -> Learned:
    """Visit the rows of ``order`` with steps of the margin perceptron with unlearning.

        max_a  D(a) = sum_i (a_i - conjugate(a_i, C_i)) - 1/2 ||w||^2,   w = sum_i a_i y_i x_i,   0 <= a_i <= upper(C_i)

    Panagiotakopoulos and Tsampouka, ICML 2010, count in I_i how often row i has been added to v = sum_i I_i y_i x_i: a row is learned,
    I_i + 1, while y_i v.x_i is at most a margin b, and unlearned, I_i - 1, where it is far beyond it. With eta = 1 / b that is
    a_i = eta I_i and w = eta v: dual variables in steps of eta, as many up to the bound of the box as the paper allows updates. Now
    with G = y_i w.x_i - 1 + conjugate'(a_i) and Q = ||x_i||^2 + conjugate'', k steps in the direction of -G change the dual by

        eta k |G| - 1/2 (eta k)^2 Q,

    so that every k <= ceil(|G| / (eta Q) - 1/2) raises D, from the last step on as from the first. That is the rule here, k at most
    ``most``; where the end of the box is no whole number of steps away, the last one is cut short. For the hinge one step is due below y_i v.x_i = b - ||x_i||^2 / 2 and one back above b + ||x_i||^2 / 2: the perceptron's
    condition with its threshold moved by half a step, which makes a run on a grid finite. A row that none of this moves hides

        C_i l(m_i) - (a_i - conjugate(a_i, C_i)) + a_i m_i,   m_i = y_i w.x_i,   for the hinge at most C_i eta Q / 2,

    of the gap P - D, of which these are the terms: that much is left when nothing moves, the accuracy chosen before the run.

    Given: X, y, C_i = C s_i; eta = ``length``. Changed: alpha and w; ``order``, to whose front come the rows that moved.
    """
    X, y, s = given
    C, loss, sigma = box
    length, most = steps
    moved, losses, hidden = 0, 0.0, 0.0
    for i in order:
        C_i = C * s[i]
        if C_i <= 0.0:
            continue
        margin = y[i] * X.dot(i, w)
        cost, a, top = C_i * loss.value(margin), alpha[i], loss.upper(C_i)
        losses += cost
        G = margin - 1.0 + loss.conjugate_slope(a, C_i)
        Q = sigma * X.sqnorm(i) + loss.curvature(C_i)
        new = a
        if Q > 0.0:
            k = min(ceil(abs(G) / (length * Q) - 0.5), most)
            new = min(max(a - k * length if G > 0.0 else a + k * length, 0.0), top)
        elif G < 0.0:  # an empty row: the dual is a line
            new = top
        if new == a:
            hidden += cost - a + loss.conjugate(a, C_i) + a * margin
            continue
        order[moved] = i
        moved += 1
        alpha[i] = new
        X.axpy(i, sigma * (new - a) * y[i], w)
    return Learned(moved, losses, hidden)
