"""Proximal points by dual coordinate descent: the hinge on wide tables, whose large columns tie all rows together.

Descent in the dual (``coordinate_descent``) takes rare columns well, whatever their scales: a row with a column of its own has a dual
variable of its own. It does not move where columns of scale 1e6, or in every row, make each row's step tiny. Newton's
method takes those well, and does not move where rare columns flip rows. So the columns that many rows share are held near a center,

    w_k = argmin_w  P(w) + 1/2 (w - c_k)' M (w - c_k),      c_k+1 = w_k + beta_k (w_k - w_k-1),

in a metric M that is about their curvature (``proximal_metric``): a few sweeps solve that, begun where the last ones ended. On
what is found there

    P(w) - D(a) = sum_i C_i l(m_i) + conjugate terms + a_i m_i  (the ``lag``, >= 0)  +  1/2 ||w - v||^2,     v = sum_i a_i y_i x_i.

The second term is ||M (w - c)||^2 / 2, large for long on columns of large scale. Two steps by conjugate gradients take it away. One moves
w (``_balanced``) where the held columns hide a direction that changes no margin, such as the constant against all
levels of a category. The other moves a within its box (``_closed``): da_i = t_i y_i x_i.d, t_i = min(a_i, U_i - a_i),
(I + X' diag(t) X) d = w - v makes v equal to w but for d, so that what is left is about the lag. Its D is evaluated like any other.

References: Rockafellar, SIAM J. Control and Optimization 1976; Guler, SIAM J. Optimization 1992 (beta); Lin, Mairal and Harchaoui, JMLR 2018.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from streamsvm.compute.passes.in_memory.all_rows import Interior, value_pass
from streamsvm.compute.passes.in_memory.proximal_descent import proximal_sweep
from streamsvm.compute.random import permutation, shuffle
from streamsvm.losses import threshold
from streamsvm.rows import CSR, Float64
from streamsvm.solvers.newton.in_memory.coordinate_descent import DescentState
from streamsvm.solvers.newton.in_memory.linear_systems.conjugate_gradients import solve
from streamsvm.solvers.newton.in_memory.linear_systems.preconditioner import ArrowPreconditioner
from streamsvm.solvers.newton.in_memory.memory_rows import MemoryRows
from streamsvm.solvers.newton.in_memory.proximal_metric import Metric
from streamsvm.tags import saved_as

if TYPE_CHECKING:
    from streamsvm.solvers.newton.in_memory.all_rows import AllRows

SWEEPS = 3
"""Of a round."""
PRODUCTS, ENERGY = 12, 1e-3
"""A step by conjugate gradients takes so many at most, or ends at this share of the first energy."""
BALANCE = 1e-2
"""w is balanced where the lag is this share of P, as long as that helps ..."""
LENGTHS = (2.0, 1.0, 0.5, 0.25)
"""... at one of these lengths."""
NARROW = 0.05
"""Margins nearer to the corner than this count as so near: what a step of w by quadratics takes for the curvature of a corner."""
CLOSE = 0.7
"""A dual point is closed where the lag is this share of the gap allowed ..."""
REST = 3
"""... and w is balanced or a closed again after so many rounds."""
CORRECTED = 0.5
"""What bounds cut off is made up for by other rows as long as each time leaves no more than this share of 1/2 ||w - v||^2."""
WINDOW, PACE, ROUNDS = 10, 0.5, 100
"""It is left where the lag is above the gap allowed and has not fallen to this share in so many rounds, and after so many in all."""


@saved_as("newton.proximal_descent")
@dataclass(slots=True)
class ProximalState(DescentState):
    """Where proximal descent is. ``w`` is the last proximal point, ``gaps`` are lags, relative to P."""

    center: Float64 = field(default_factory=lambda: np.empty(0))
    """(p,) c."""
    pace: float = 1.0
    """What beta is made of; 1 where it begins anew."""
    primal: float = np.inf
    """P of w."""
    balances: bool = True
    """Whether balancing w has helped so far."""


class ProximalPoint(NamedTuple):
    """A proximal point, evaluated."""

    w: Float64
    """(p,) the weights."""
    f: Float64
    """(n,) X w."""
    v: Float64
    """(p,) sum a_i y_i x_i."""
    primal: float
    """P(w)."""
    lag: float
    """See the module."""


class ProximalDescent:
    """Rounds from a = 0 on, until the problem of ``known`` is solved, it is time for a reading, or they get nowhere."""

    def __init__(self, known: AllRows, rows: MemoryRows, arrow: ArrowPreconditioner, X: CSR) -> None:
        self._known, self._rows, self._arrow, self._metric = known, rows, arrow, Metric(rows, X)
        self._upper = rows.terms.loss.upper(rows.terms.C * rows.terms.s)
        self._order, self._slopes = np.empty(rows.count, np.int32), np.empty(rows.count)

    def run(self) -> None:
        """Changes ``known``."""
        known = self._known
        at = known.descent
        if not isinstance(at, ProximalState):
            zeros = np.zeros(len(known.w))
            at = known.descent = ProximalState(np.zeros(self._rows.count), zeros, center=known.w)
        while not (at.left or known.solved or self._rows.exhausted):
            self._go_on(at)

    def _go_on(self, at: ProximalState) -> None:
        """One proximal point, what it proves, and the next center."""
        known, here = self._known, self._round(at)
        at.gaps.append(here.lag / abs(here.primal))
        rested = len(at.gaps) % REST == 0 and not known.solved
        if rested and here.lag <= CLOSE * known.allowed:
            self._close(at, here)
        if rested and at.balances and here.lag <= BALANCE * abs(here.primal):
            here = self._balanced(at, here)
        self._recenter(at, here)
        at.left = _too_slow(at.gaps, known.problem.tolerance)

    def _round(self, at: ProximalState) -> ProximalPoint:
        """Sweeps in a random order that rows and rounds alone decide; the proximal point they lead to."""
        rows, number = self._rows, SWEEPS * len(at.gaps)
        v = rows.weighted_sum(at.a * rows.terms.y)
        w, u = self._metric.weights(v, at.center)
        permutation(self._order, number)
        left = rows.count
        for sweep in range(SWEEPS):
            if sweep:
                shuffle(self._order, left, number + sweep)
            rows.visited(2 * rows.entries * left // max(1, rows.count))
            left = proximal_sweep(self._metric.rows, rows.terms, self._order, left, at.a, w, u)
            if rows.late or not left:
                break
        return self._evaluated(self._metric.joined(w, u), at.a)

    def _evaluated(self, w: Float64, a: Float64) -> ProximalPoint:
        """Both bounds, in float64, on all rows."""
        known, rows, none = self._known, self._rows, np.zeros(self._rows.count)
        f = rows.margins(w)
        losses, linear, quadratic, _ = value_pass(rows.terms, f, Interior(a, none, none), self._slopes)
        v = rows.weighted_sum(self._slopes)
        known.seen(rows, w, losses, rows.outer.dual(rows.problem.loss, linear, quadratic, v), self._slopes)
        return ProximalPoint(
            w, f, v, rows.outer.value(w) + losses, losses - linear + quadratic + float(self._slopes @ f)
        )

    def _recenter(self, at: ProximalState, here: ProximalPoint) -> None:
        """The next center; what has gone too far begins anew."""
        following = 0.5 * (1.0 + np.sqrt(1.0 + 4.0 * at.pace * at.pace))
        beta = (at.pace - 1.0) / following
        if here.primal > at.primal:
            beta, following = 0.0, 1.0
        at.center = here.w + beta * (here.w - at.w)
        at.w, at.primal, at.pace = here.w, here.primal, float(following)

    def _direction(self, right: Float64, theta: Float64, *, estimated: bool) -> Float64:
        """About (I + X' diag(theta) X)^-1 right (p,), the part of dense columns exactly where the matrix is."""
        rows, arrow = self._rows, self._arrow
        arrow.update(theta, estimated=estimated)
        least, stop = ENERGY * float(right @ arrow(right)), rows.products + PRODUCTS

        def enough(found: float, _: Float64) -> bool:
            return found <= least or rows.products >= stop or rows.late

        solved = solve(lambda d: rows.hessian_product(theta, d), arrow, right, enough)
        return solved.x if estimated else solved.x + arrow.block_step(solved.residual)

    def _balanced(self, at: ProximalState, here: ProximalPoint) -> ProximalPoint:
        """Where w is better after a step on quadratics above the losses that touch them at its margins; else ``here``."""
        rows = self._rows
        distance = np.abs(threshold(rows.problem.loss) - rows.terms.y * here.f)
        step = self._direction(here.v - here.w, self._upper / (2.0 * np.maximum(distance, NARROW)), estimated=True)
        for length in LENGTHS:
            moved = self._evaluated(here.w + length * step, at.a)
            if moved.primal < here.primal:
                at.pace, at.primal = 1.0, np.inf
                return moved
        at.balances = False
        return here

    def _close(self, at: ProximalState, here: ProximalPoint) -> None:
        """Evaluate dual points beside a whose v is w but for little; what bounds cut off is made up for by dense columns."""
        rows, a, target, lacks = self._rows, at.a, here.w, np.inf
        theta = np.minimum(a, self._upper - a)
        step = self._direction(target - here.v, theta, estimated=False)
        while not self._known.solved:
            whole = a + rows.terms.y * theta * rows.margins(step)
            a = np.clip(whole, 0.0, self._upper)
            theta[a != whole] = 0.0
            here = self._evaluated(target, a)
            lacks, before = _half_square(target - here.v), lacks
            if not lacks < CORRECTED * before or rows.late:
                return
            step = self._arrow.block_step(target - here.v)


def _half_square(v: Float64) -> float:
    return 0.5 * float(v @ v)


def _too_slow(lags: list[float], tolerance: float) -> bool:
    """Whether it is no use to go on."""
    stuck = len(lags) > WINDOW and lags[-1] > max(tolerance, PACE * lags[-1 - WINDOW])
    return stuck or len(lags) >= ROUNDS
