"""Dual coordinate descent over rows in memory, also with the columns that many rows share held near a center.

Where descent is fast nothing is faster, and a few rounds tell whether it is.

    max_a  sum_i (a_i - conjugate(a_i)) - 1/2 ||w||^2,     w = sum_i a_i y_i x_i,     0 <= a_i <= U_i

A round is a sweep over all rows, then sweeps over those that it found worth a visit (``compute.passes.dcd``:
shrinking), then both bounds, on all rows. The order of a sweep is random, but a function of the rows and the round
alone. On rows of about one length, such as texts, a hundred sweeps do, where the second derivatives of an interior
point range over 10^6 and its conjugate gradients take hundreds of products a step. On raw tables, whose largest columns
tie all rows together, it does not move: it is left when at the pace of the last rounds it would take too many more.
``ProximalDescent`` then goes on, in the metric of ``Metric``.

References: Hsieh et al., ICML 2008; Yu et al., KDD 2010 (sweeps over a part of the rows before all are looked at
again).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import log
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from streamsvm.class_tags import saved_as
from streamsvm.compute.blocks.columns import column_counts
from streamsvm.compute.passes.interior_point import Interior, value_pass
from streamsvm.compute.passes.newton import squares
from streamsvm.compute.passes.proximal_descent import MetricRows, metric_rows, proximal_sweep, row_squares
from streamsvm.compute.passes.rows_in_memory import sparse_block
from streamsvm.compute.random import permutation, shuffle
from streamsvm.losses import threshold
from streamsvm.rows import CSR, Float64, Int32, Int64
from streamsvm.solvers.cholesky import solve_lower
from streamsvm.solvers.newton.conjugate_gradients import conjugate_gradients
from streamsvm.solvers.newton.preconditioner import ArrowPreconditioner
from streamsvm.solvers.newton.row_products import MemoryRows
from streamsvm.solvers.stalling import has_stalled

if TYPE_CHECKING:
    from streamsvm.solvers.newton.in_memory import AllRows


DUAL_SWEEPS = 10
"""Sweeps of a round, the one over all rows included."""
DUAL_WINDOW = 3
"""Rounds over which the pace is measured."""
PATIENCE = 40
"""It is given up where it would take more rounds than this: about the work of an interior point."""
KAPPA = 0.05
"""Rows whose margins are near the corner are about so much of all rows: M is about the curvature of P."""
DENSE, MOST_FULL = 0.1, 24
"""Columns in this share of the rows are full, the densest so many of them, or as many as rows have entries."""
LEAST_HELD = 10.0
"""M_jj below it counts as 0: the regularizer is 1."""
LENGTHS_DIFFER = 100.0
"""Squared lengths of rows of one store: where they differ more, descent in the dual alone does not move."""
JITTER = 1e-10
"""Added to the diagonal of M, which is scaled to 1, where columns are copies of each other."""
PROXIMAL_SWEEPS = 3
"""Sweeps of a round."""
PRODUCTS, ENERGY = 12, 1e-3
"""Products of a step by conjugate gradients at most, and the share of the first energy at which it ends."""
BALANCE = 1e-2
"""w is balanced where the lag is this share of P, as long as that helps."""
LENGTHS = (2.0, 1.0, 0.5, 0.25)
"""Lengths of a balancing step that are tried."""
NARROW = 0.05
"""Margins nearer to the corner than this count as so near: what a step of w by quadratics takes for the curvature of a
corner."""
CLOSE = 0.7
"""A dual point is closed where the lag is this share of the gap allowed."""
REST = 3
"""w is balanced, and a closed, in every third round at most."""
CORRECTED = 0.5
"""What bounds cut off is made up for by other rows as long as each time leaves no more than this share of
1/2 ||w - v||^2."""
PROXIMAL_WINDOW, PACE, ROUNDS = 10, 0.5, 100
"""It is given up where the lag is above the gap allowed and has not halved in ten rounds, and after a hundred
rounds."""


@saved_as("newton.coordinate_descent")
@dataclass(slots=True)
class DescentState:
    """The state of coordinate descent."""

    a: Float64
    """(n,) the dual variables."""
    w: Float64
    """(p,) sum a_i y_i x_i."""
    gaps: list[float] = field(default_factory=list)
    """Relative gap of the best points met, before the first round and after each."""
    left: bool = False
    """Whether it was too slow and has been given up."""


class CoordinateDescent:
    """Rounds from a = 0 on, until the problem of ``known`` is solved, it is time for a reading, or they get nowhere."""

    def __init__(self, known: AllRows, rows: MemoryRows) -> None:
        self._known, self._rows = known, rows
        self._order, self._slopes = np.empty(rows.count, np.int32), np.empty(rows.count)

    def run(self) -> None:
        """Make rounds. Changes ``known``."""
        known, rows = self._known, self._rows
        at = known.descent
        if at is None:
            at = known.descent = DescentState(np.zeros(rows.count), np.zeros(rows.problem.columns + 1))
            self._evaluate(at)
        while not (at.left or known.solved or rows.is_exhausted):
            self._round(at)
            self._evaluate(at)
            at.left = _is_dual_too_slow(at.gaps, known.problem.tolerance)

    def _round(self, at: DescentState) -> None:
        """Sweep the rows in a random order, which rows and rounds alone decide."""
        rows, number = self._rows, DUAL_SWEEPS * len(at.gaps)
        permutation(self._order, number)
        left = rows.count
        for sweep in range(DUAL_SWEEPS):
            if sweep:
                shuffle(self._order, left, number + sweep)
            left = rows.sweep(self._order, left, at.a, at.w)
            if rows.is_late or not left:
                return

    def _evaluate(self, at: DescentState) -> None:
        """Evaluate both bounds, and recompute w from a: sums that many sweeps have changed carry their rounding."""
        known, rows, none = self._known, self._rows, np.zeros(self._rows.count)
        f = rows.margins(at.w)
        losses, linear, quadratic, _ = value_pass(rows.terms, f, Interior(at.a, none, none), self._slopes)
        before, at.w = at.w, rows.weighted_sum(self._slopes)
        dual = rows.outer.dual(rows.problem.loss, linear, quadratic, at.w)
        known.record(rows, before, losses, dual, self._slopes)
        at.gaps.append((known.primal - known.dual) / known.size)


def _is_dual_too_slow(gaps: list[float], tolerance: float) -> bool:
    """Return whether at the pace of the last DUAL_WINDOW rounds more than PATIENCE others are ahead."""
    if len(gaps) <= DUAL_WINDOW or gaps[-1] <= tolerance:
        return False
    pace = log(gaps[-1 - DUAL_WINDOW] / gaps[-1]) / DUAL_WINDOW
    return log(gaps[-1] / tolerance) > PATIENCE * pace


class Metric:
    """The metric I + M in which proximal descent holds columns near a center, and the sparse rows in it.

    It is kappa (``KAPPA``) times the diagonal of C X' X, or its block of dense columns. The few columns that most rows
    have - numbers, of any scale, and the constant - are tied to each other: among them M is kappa C sum s_i x_i x_i'.
    Of the others M_jj = kappa C sum s_i x_ij^2, and 0 where that is little: those are best left to the rows that have
    them.
    """

    def __init__(self, rows: MemoryRows, X: CSR) -> None:
        C, s, p = rows.problem.C, rows.terms.s, rows.problem.columns + 1
        self._full = full_columns(X, rows.problem.columns)
        place = np.full(p, -1, np.int32)
        place[self._full] = np.arange(len(self._full), dtype=np.int32)
        held = KAPPA * C * squares(X, s, p - 1)
        held[(held < LEAST_HELD) | (place >= 0)] = 0.0
        self._held, shrink = held, 1.0 / (1.0 + held)
        self._matrix, self._inverse = _factor(X, s * (KAPPA * C), place)
        self.rows: MetricRows = metric_rows(X, place, shrink, self._inverse)
        """The rows as a sweep wants them."""

    def weights(self, v: Float64, center: Float64) -> tuple[Float64, Float64]:
        """Return w = (I + M)^-1 (v + M center) (p,), and u (k,) of its full columns."""
        w = self.rows.shrink * (self._held * center + v)
        u = self._inverse @ (self._matrix @ center[self._full] + v[self._full])
        return self.join(w, u), u

    def join(self, w: Float64, u: Float64) -> Float64:
        """Set the full columns of w (p,) from u, and return w."""
        w[self._full] = self._inverse.T @ u
        return w


def lengths_differ(X: CSR, columns: int) -> bool:
    """Return whether some rows are much longer than others, as those of tables are and those of texts are not."""
    p, n = columns + 1, len(X.indptr) - 1
    found = row_squares(X, np.full(p, -1, np.int32), np.ones(p), np.empty((n, 0), np.float32)) + X.bias * X.bias
    return float(found.max(initial=0.0)) > LENGTHS_DIFFER * float(found.min(initial=np.inf))


def full_columns(X: CSR, columns: int) -> Int64:
    """Return the densest columns, rising, and the constant as the last."""
    counts = column_counts(X, columns)
    densest = np.argsort(-counts, kind="stable")[: most_full(len(X.data), len(X.indptr) - 1) - 1]
    dense = densest[counts[densest] >= DENSE * (len(X.indptr) - 1)]
    return np.append(np.sort(dense), columns)


def most_full(entries: int, rows: int) -> int:
    """Return the number of full columns at most, the constant included: rows are held a second time by them."""
    return min(MOST_FULL, 2 + entries // max(1, rows))


def _factor(X: CSR, weights: Float64, place: Int32) -> tuple[Float64, Float64]:
    """Return M among the full columns, and L^-1 of I + M = L L', both (k, k)."""
    k = int(place.max()) + 1
    lower = np.zeros((k, k))
    sparse_block(X.data, X.indices, X.indptr, X.bias, weights, place, lower)
    matrix = lower + np.tril(lower, -1).T
    scale = 1.0 / np.sqrt(1.0 + np.diagonal(matrix))
    scaled = (matrix + np.eye(k)) * scale * scale[:, None] + JITTER * np.eye(k)
    inverse = solve_lower(np.linalg.cholesky(scaled), np.diag(scale))
    return matrix, np.ascontiguousarray(inverse)


@saved_as("newton.proximal_descent")
@dataclass(slots=True)
class ProximalState(DescentState):
    """The state of proximal descent. ``w`` is the last proximal point, ``gaps`` are lags, relative to P."""

    center: Float64 = field(default_factory=lambda: np.empty(0))
    """(p,) c."""
    pace: float = 1.0
    """The number beta is made of; 1 where the extrapolation restarts."""
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
    """sum_i C_i l(m_i) + conjugate terms + a_i m_i, 0 or more."""


class ProximalDescent:
    """Proximal points by dual coordinate descent: the hinge on wide tables, whose large columns tie all rows together.

    Rounds are made from a = 0 on, until the problem of ``known`` is solved, it is time for a reading, or they get
    nowhere.

    Descent in the dual (``CoordinateDescent``) takes rare columns well, whatever their scales: a row with a column of
    its own has a dual variable of its own. It does not move where columns of scale 1e6, or in every row, make each
    row's step tiny. Newton's method takes those well, and does not move where rare columns flip rows. So the columns
    that many rows share are held near a center,

        w_k = argmin_w  P(w) + 1/2 (w - c_k)' M (w - c_k),      c_k+1 = w_k + beta_k (w_k - w_k-1),

    in a metric M that is about their curvature (``Metric``): a few sweeps solve that, begun where the last ones ended.
    On what is found there

        P(w) - D(a) = sum_i C_i l(m_i) + conjugate terms + a_i m_i  (the ``lag``, >= 0)  +  1/2 ||w - v||^2,

    v = sum_i a_i y_i x_i. The second term is ||M (w - c)||^2 / 2, large for long on columns of large scale. Two steps
    by conjugate gradients take it away. One moves w (``_balance``) where the held columns hide a direction that changes
    no margin, such as the constant against all levels of a category. The other moves a within its box (``_close``):
    da_i = t_i y_i x_i.d, t_i = min(a_i, U_i - a_i), where (I + X' diag(t) X) d = w - v makes v equal to w but for d, so
    that what is left is about the lag. Its D is evaluated like any other.

    References: Rockafellar, SIAM J. Control and Optimization 1976; Guler, SIAM J. Optimization 1992 (beta); Lin, Mairal
    and Harchaoui, JMLR 2018.
    """

    def __init__(self, known: AllRows, rows: MemoryRows, arrow: ArrowPreconditioner, X: CSR) -> None:
        self._known, self._rows, self._arrow, self._metric = known, rows, arrow, Metric(rows, X)
        self._upper = rows.terms.loss.upper(rows.terms.C * rows.terms.s)
        self._order, self._slopes = np.empty(rows.count, np.int32), np.empty(rows.count)

    def run(self) -> None:
        """Make rounds. Changes ``known``."""
        known = self._known
        at = known.descent
        if not isinstance(at, ProximalState):
            zeros = np.zeros(len(known.w))
            at = known.descent = ProximalState(np.zeros(self._rows.count), zeros, center=known.w)
        while not (at.left or known.solved or self._rows.is_exhausted):
            self._next_point(at)

    def _next_point(self, at: ProximalState) -> None:
        """Find a proximal point, evaluate what it proves, and choose the next center."""
        known, here = self._known, self._round(at)
        at.gaps.append(here.lag / abs(here.primal))
        rested = len(at.gaps) % REST == 0 and not known.solved
        if rested and here.lag <= CLOSE * known.allowed:
            self._close(at, here)
        if rested and at.balances and here.lag <= BALANCE * abs(here.primal):
            here = self._balance(at, here)
        self._recenter(at, here)
        at.left = _is_proximal_too_slow(at.gaps, known.problem.tolerance)

    def _round(self, at: ProximalState) -> ProximalPoint:
        """Sweep the rows in a random order, which rows and rounds alone decide, and return the proximal point."""
        rows, number = self._rows, PROXIMAL_SWEEPS * len(at.gaps)
        v = rows.weighted_sum(at.a * rows.terms.y)
        w, u = self._metric.weights(v, at.center)
        permutation(self._order, number)
        left = rows.count
        for sweep in range(PROXIMAL_SWEEPS):
            if sweep:
                shuffle(self._order, left, number + sweep)
            rows.count_work(2 * rows.entries * left // max(1, rows.count))
            left = proximal_sweep(self._metric.rows, rows.terms, self._order, left, at.a, w, u)
            if rows.is_late or not left:
                break
        return self._evaluate(self._metric.join(w, u), at.a)

    def _evaluate(self, w: Float64, a: Float64) -> ProximalPoint:
        """Evaluate both bounds, in float64, on all rows."""
        known, rows, none = self._known, self._rows, np.zeros(self._rows.count)
        f = rows.margins(w)
        losses, linear, quadratic, _ = value_pass(rows.terms, f, Interior(a, none, none), self._slopes)
        v = rows.weighted_sum(self._slopes)
        known.record(rows, w, losses, rows.outer.dual(rows.problem.loss, linear, quadratic, v), self._slopes)
        return ProximalPoint(
            w, f, v, rows.outer.value(w) + losses, losses - linear + quadratic + float(self._slopes @ f)
        )

    def _recenter(self, at: ProximalState, here: ProximalPoint) -> None:
        """Choose the next center; the extrapolation restarts where P has risen."""
        following = 0.5 * (1.0 + np.sqrt(1.0 + 4.0 * at.pace * at.pace))
        beta = (at.pace - 1.0) / following
        if here.primal > at.primal:
            beta, following = 0.0, 1.0
        at.center = here.w + beta * (here.w - at.w)
        at.w, at.primal, at.pace = here.w, here.primal, float(following)

    def _direction(self, right: Float64, theta: Float64, *, estimated: bool) -> Float64:
        """Return about (I + X' diag(theta) X)^-1 right (p,), exactly for the dense columns where the matrix is
        exact.
        """
        rows, arrow = self._rows, self._arrow
        arrow.update(theta, estimated=estimated)
        least, stop = ENERGY * float(right @ arrow(right)), rows.products + PRODUCTS

        def enough(found: float, _: Float64) -> bool:
            return found <= least or rows.products >= stop or rows.is_late

        solved = conjugate_gradients(lambda d: rows.hessian_product(theta, d), arrow, right, enough)
        return solved.x if estimated else solved.x + arrow.block_step(solved.residual)

    def _balance(self, at: ProximalState, here: ProximalPoint) -> ProximalPoint:
        """Return a better point after a step on quadratics above the losses that touch them at its margins; else
        ``here``.
        """
        rows = self._rows
        distance = np.abs(threshold(rows.problem.loss) - rows.terms.y * here.f)
        step = self._direction(here.v - here.w, self._upper / (2.0 * np.maximum(distance, NARROW)), estimated=True)
        for length in LENGTHS:
            moved = self._evaluate(here.w + length * step, at.a)
            if moved.primal < here.primal:
                at.pace, at.primal = 1.0, np.inf
                return moved
        at.balances = False
        return here

    def _close(self, at: ProximalState, here: ProximalPoint) -> None:
        """Evaluate dual points near a whose v is nearly w; dense columns make up for what bounds cut off."""
        rows, a, target, missing = self._rows, at.a, here.w, np.inf
        theta = np.minimum(a, self._upper - a)
        step = self._direction(target - here.v, theta, estimated=False)
        while not self._known.solved:
            whole = a + rows.terms.y * theta * rows.margins(step)
            a = np.clip(whole, 0.0, self._upper)
            theta[a != whole] = 0.0
            here = self._evaluate(target, a)
            missing, before = _half_square(target - here.v), missing
            if not missing < CORRECTED * before or rows.is_late:
                return
            step = self._arrow.block_step(target - here.v)


def _half_square(v: Float64) -> float:
    return 0.5 * float(v @ v)


def _is_proximal_too_slow(lags: list[float], tolerance: float) -> bool:
    """Return whether proximal descent has stalled, or has had all its rounds."""
    stalled = lags[-1] > tolerance and has_stalled(lags, PROXIMAL_WINDOW, PACE)
    return stalled or len(lags) >= ROUNDS
