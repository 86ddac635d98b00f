"""Dual coordinate descent over rows in memory, and its proximal form, which ties common columns to a moving center.

If dual coordinate descent makes progress, no other method is faster, and a few rounds show whether it does.

    max_a  sum_i (a_i - conjugate(a_i)) - 1/2 ||w||^2,     w = sum_i a_i y_i x_i,     0 <= a_i <= U_i

A round is a sweep over all rows, followed by sweeps over the rows that were not shrunk (``compute.passes.dcd``), and
the evaluation of P and D on all rows. The order of a sweep is random, but depends on the number of rows and the round
alone. On rows of similar length, such as texts, a hundred sweeps are enough, while an interior-point method has second
derivatives that range over 10^6 and takes hundreds of products a step. On raw tables, whose largest columns couple all
rows, descent makes no progress. It is given up if, at the pace of the last rounds, it would take too many more rounds.
``ProximalDescent`` then takes over, in the metric of ``Metric``.

References: Hsieh et al., ICML 2008; Yu et al., KDD 2010 (several sweeps over a part of the rows).
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
"""Sweeps of a round of dual coordinate descent, the one over all rows included."""
DUAL_WINDOW = 3
"""Number of rounds over which the pace is measured."""
MAX_ROUNDS_LEFT = 40
"""Dual coordinate descent is given up if it would take more rounds than this, about the work of an interior-point
method."""
KAPPA = 0.05
"""The fraction of the rows that are in the kink of the loss, as assumed by the metric M, which then estimates the
curvature of P."""
COMMON_SHARE = 0.1
"""Columns with entries in at least this fraction of the rows are common columns."""
MAX_COMMON_COLUMNS = 24
"""Maximum number of common columns. The densest are taken, and not many more than a row has entries."""
MIN_METRIC_ENTRY = 10.0
"""M_jj below this value is set to 0, since the regularizer already contributes 1."""
MAX_LENGTH_RATIO = 100.0
"""Largest ratio of the squared lengths of two rows at which dual coordinate descent is tried."""
JITTER = 1e-10
"""Added to the diagonal of M, which is scaled to 1, in case columns are copies of each other."""
PROXIMAL_SWEEPS = 3
"""Sweeps of a round of proximal descent."""
MAX_PRODUCTS, CG_ENERGY_RATIO = 12, 1e-3
"""Conjugate gradients stop after this many products, or when the energy falls to this fraction of the first one."""
BALANCE_LAG = 1e-2
"""``_balance`` is called if the lag is at most this fraction of P, as long as it helps."""
BALANCE_LENGTHS = (2.0, 1.0, 0.5, 0.25)
"""Lengths of a balancing step that are tried."""
MIN_DISTANCE = 0.05
"""Least distance of a margin to the kink, in units of the margin, in the quadratic upper bounds of a balancing step."""
CLOSE_LAG = 0.7
"""``_close`` is called if the lag is at most this fraction of the allowed gap."""
ROUNDS_BETWEEN = 3
"""``_balance`` and ``_close`` are called in every third round at most."""
CORRECTION_RATIO = 0.5
"""``_close`` makes further corrections as long as each one reduces 1/2 ||w - v||^2 below this fraction of its value."""
PROXIMAL_WINDOW, STALL_RATIO, MAX_ROUNDS = 10, 0.5, 100
"""Proximal descent is given up if the lag is above the tolerance and has not halved in ten rounds, and after a hundred
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
    """The relative duality gap so far, before the first round and after each round."""
    given_up: bool = False
    """Whether descent was too slow and has been given up."""


class CoordinateDescent:
    """Rounds from a = 0 on, until the problem of ``state`` is solved, the next pass is due, or progress is too slow."""

    def __init__(self, state: AllRows, rows: MemoryRows) -> None:
        self._state, self._rows = state, rows
        self._order, self._slopes = np.empty(rows.count, np.int32), np.empty(rows.count)

    def run(self) -> None:
        """Make rounds. Changes ``state``."""
        state, rows = self._state, self._rows
        descent = state.descent
        if descent is None:
            descent = state.descent = DescentState(np.zeros(rows.count), np.zeros(rows.problem.columns + 1))
            self._evaluate(descent)
        while not (descent.given_up or state.solved or rows.is_exhausted):
            self._round(descent)
            self._evaluate(descent)
            descent.given_up = _is_dual_too_slow(descent.gaps, state.problem.tolerance)

    def _round(self, descent: DescentState) -> None:
        """Sweep over the rows in a random order, which depends on the number of rows and the round alone."""
        rows, seed = self._rows, DUAL_SWEEPS * len(descent.gaps)
        permutation(self._order, seed)
        active = rows.count
        for sweep in range(DUAL_SWEEPS):
            if sweep:
                shuffle(self._order, active, seed + sweep)
            active = rows.sweep(self._order, active, descent.a, descent.w)
            if rows.is_late or not active:
                return

    def _evaluate(self, descent: DescentState) -> None:
        """Evaluate P and D, and recompute w from a to remove the rounding errors that sweeps have added to it."""
        state, rows, none = self._state, self._rows, np.zeros(self._rows.count)
        f = rows.margins(descent.w)
        losses, linear, quadratic, _ = value_pass(rows.terms, f, Interior(descent.a, none, none), self._slopes)
        before, descent.w = descent.w, rows.weighted_sum(self._slopes)
        dual = rows.outer.dual(rows.problem.loss, linear, quadratic, descent.w)
        state.record(rows, before, losses, dual, self._slopes)
        descent.gaps.append((state.primal - state.dual) / state.reference_value)


def _is_dual_too_slow(gaps: list[float], tolerance: float) -> bool:
    """Return whether, at the pace of the last DUAL_WINDOW rounds, more than MAX_ROUNDS_LEFT further rounds are
    needed.
    """
    if len(gaps) <= DUAL_WINDOW or gaps[-1] <= tolerance:
        return False
    pace = log(gaps[-1 - DUAL_WINDOW] / gaps[-1]) / DUAL_WINDOW
    return log(gaps[-1] / tolerance) > MAX_ROUNDS_LEFT * pace


class Metric:
    """The metric I + M of proximal descent, and the sparse rows in the form that its sweeps use.

    M is kappa (``KAPPA``) times a block of C X' X and the rest of its diagonal. The few columns that many rows have
    (numeric ones of any scale, and the constant) are coupled: among these common columns M is kappa C sum s_i x_i x_i'.
    For the other columns M_jj = kappa C sum s_i x_ij^2, or 0 if that is small: the dual variables of the rows that have
    such a column determine its weight well enough.
    """

    def __init__(self, rows: MemoryRows, X: CSR) -> None:
        C, s, p = rows.problem.C, rows.terms.s, rows.problem.columns + 1
        self._common = common_columns(X, rows.problem.columns)
        place = np.full(p, -1, np.int32)
        place[self._common] = np.arange(len(self._common), dtype=np.int32)
        diagonal = KAPPA * C * squares(X, s, p - 1)
        diagonal[(diagonal < MIN_METRIC_ENTRY) | (place >= 0)] = 0.0
        self._diagonal, shrink = diagonal, 1.0 / (1.0 + diagonal)
        self._matrix, self._inverse = _factor(X, s * (KAPPA * C), place)
        self.rows: MetricRows = metric_rows(X, place, shrink, self._inverse)
        """The rows, in the form that sweeps use."""

    def weights(self, v: Float64, center: Float64) -> tuple[Float64, Float64]:
        """Return w = (I + M)^-1 (v + M center) (p,), and u (k,), the transformed weights of its common columns."""
        w = self.rows.shrink * (self._diagonal * center + v)
        u = self._inverse @ (self._matrix @ center[self._common] + v[self._common])
        return self.join(w, u), u

    def join(self, w: Float64, u: Float64) -> Float64:
        """Set the common columns of w (p,) from u, and return w."""
        w[self._common] = self._inverse.T @ u
        return w


def lengths_differ(X: CSR, columns: int) -> bool:
    """Return whether some rows are much longer than others, which is typical of tables and not of texts."""
    p, n = columns + 1, len(X.indptr) - 1
    lengths = row_squares(X, np.full(p, -1, np.int32), np.ones(p), np.empty((n, 0), np.float32)) + X.bias * X.bias
    return float(lengths.max(initial=0.0)) > MAX_LENGTH_RATIO * float(lengths.min(initial=np.inf))


def common_columns(X: CSR, columns: int) -> Int64:
    """Return the common columns, rising, with the constant as the last."""
    counts = column_counts(X, columns)
    densest = np.argsort(-counts, kind="stable")[: max_common_columns(len(X.data), len(X.indptr) - 1) - 1]
    common = densest[counts[densest] >= COMMON_SHARE * (len(X.indptr) - 1)]
    return np.append(np.sort(common), columns)


def max_common_columns(entries: int, rows: int) -> int:
    """Return the maximum number of common columns, the constant included. Rows have a dense copy of their entries in
    them.
    """
    return min(MAX_COMMON_COLUMNS, 2 + entries // max(1, rows))


def _factor(X: CSR, weights: Float64, place: Int32) -> tuple[Float64, Float64]:
    """Return the block of M of the common columns, and L^-1 of I + M = L L', both (k, k)."""
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
    """The state of proximal descent. ``w`` is the last proximal point, and ``gaps`` are the lags, relative to P."""

    center: Float64 = field(default_factory=lambda: np.empty(0))
    """(p,) c."""
    momentum: float = 1.0
    """The number from which beta is computed; 1 when the extrapolation restarts."""
    primal: float = np.inf
    """P of w."""
    balances: bool = True
    """Whether balancing w has helped so far."""


class ProximalPoint(NamedTuple):
    """A proximal point and its values."""

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
    """The proximal point method, with dual coordinate descent inside: for the hinge on wide tables, whose large columns
    couple all rows.

    Rounds are made from a = 0 on, until the problem of ``state`` is solved, the next pass is due, or progress is too
    slow.

    Dual coordinate descent (``CoordinateDescent``) handles rare columns of any scale well, because a row with a column
    of its own has a dual variable of its own. It makes no progress if columns with a scale of 1e6, or with entries in
    every row, make the step of each row tiny. Newton's method handles such columns well, but makes no progress if rare
    columns move rows across the kink. Therefore the columns that many rows share are tied to a center c_k,

        w_k = argmin_w  P(w) + 1/2 (w - c_k)' M (w - c_k),      c_k+1 = w_k + beta_k (w_k - w_k-1),

    in a metric M that estimates their curvature (``Metric``). A few sweeps, started from the last a, solve this
    problem. Its solution has the gap

        P(w) - D(a) = sum_i C_i l(m_i) + conjugate terms + a_i m_i  (the ``lag``, >= 0)  +  1/2 ||w - v||^2,

    v = sum_i a_i y_i x_i. The second term is ||M (w - c)||^2 / 2, which stays large for long in columns of large scale.
    Two steps by conjugate gradients remove it. ``_balance`` moves w, in case the common columns contain a direction
    that changes no margin, such as the constant against all levels of a category. ``_close`` moves a within its box:
    da_i = t_i y_i x_i.d, t_i = min(a_i, U_i - a_i), where (I + X' diag(t) X) d = w - v. Then v equals w up to d, and
    the gap is about the lag. D is evaluated at the moved a as at any other.

    References: Rockafellar, SIAM J. Control and Optimization 1976; Guler, SIAM J. Optimization 1992 (beta); Lin, Mairal
    and Harchaoui, JMLR 2018.
    """

    def __init__(self, state: AllRows, rows: MemoryRows, arrow: ArrowPreconditioner, X: CSR) -> None:
        self._state, self._rows, self._arrow, self._metric = state, rows, arrow, Metric(rows, X)
        self._upper = rows.terms.loss.upper(rows.terms.C * rows.terms.s)
        self._order, self._slopes = np.empty(rows.count, np.int32), np.empty(rows.count)

    def run(self) -> None:
        """Make rounds. Changes ``state``."""
        state = self._state
        descent = state.descent
        if not isinstance(descent, ProximalState):
            zeros = np.zeros(len(state.w))
            descent = state.descent = ProximalState(np.zeros(self._rows.count), zeros, center=state.w)
        while not (descent.given_up or state.solved or self._rows.is_exhausted):
            self._next_point(descent)

    def _next_point(self, descent: ProximalState) -> None:
        """Compute the next proximal point, evaluate its bounds, and choose the next center."""
        state, current = self._state, self._round(descent)
        descent.gaps.append(current.lag / abs(current.primal))
        is_due = len(descent.gaps) % ROUNDS_BETWEEN == 0 and not state.solved
        if is_due and current.lag <= CLOSE_LAG * state.allowed_gap:
            self._close(descent, current)
        if is_due and descent.balances and current.lag <= BALANCE_LAG * abs(current.primal):
            current = self._balance(descent, current)
        self._recenter(descent, current)
        descent.given_up = _is_proximal_too_slow(descent.gaps, state.problem.tolerance)

    def _round(self, descent: ProximalState) -> ProximalPoint:
        """Sweep over the rows in a random order, which depends on the number of rows and the round alone. Return the
        proximal point.
        """
        rows, seed = self._rows, PROXIMAL_SWEEPS * len(descent.gaps)
        v = rows.weighted_sum(descent.a * rows.terms.y)
        w, u = self._metric.weights(v, descent.center)
        permutation(self._order, seed)
        active = rows.count
        for sweep in range(PROXIMAL_SWEEPS):
            if sweep:
                shuffle(self._order, active, seed + sweep)
            rows.count_work(2 * rows.entries * active // max(1, rows.count))
            active = proximal_sweep(self._metric.rows, rows.terms, self._order, active, descent.a, w, u)
            if rows.is_late or not active:
                break
        return self._evaluate(self._metric.join(w, u), descent.a)

    def _evaluate(self, w: Float64, a: Float64) -> ProximalPoint:
        """Evaluate P and D in float64 on all rows."""
        state, rows, none = self._state, self._rows, np.zeros(self._rows.count)
        f = rows.margins(w)
        losses, linear, quadratic, _ = value_pass(rows.terms, f, Interior(a, none, none), self._slopes)
        v = rows.weighted_sum(self._slopes)
        state.record(rows, w, losses, rows.outer.dual(rows.problem.loss, linear, quadratic, v), self._slopes)
        return ProximalPoint(
            w, f, v, rows.outer.value(w) + losses, losses - linear + quadratic + float(self._slopes @ f)
        )

    def _recenter(self, descent: ProximalState, current: ProximalPoint) -> None:
        """Choose the next center. The extrapolation restarts if P has risen."""
        following = 0.5 * (1.0 + np.sqrt(1.0 + 4.0 * descent.momentum * descent.momentum))
        beta = (descent.momentum - 1.0) / following
        if current.primal > descent.primal:
            beta, following = 0.0, 1.0
        descent.center = current.w + beta * (current.w - descent.w)
        descent.w, descent.primal, descent.momentum = current.w, current.primal, float(following)

    def _direction(self, right: Float64, theta: Float64, *, estimated: bool) -> Float64:
        """Return (I + X' diag(theta) X)^-1 right (p,) approximately, but exactly in the dense columns unless the matrix
        is ``estimated``.
        """
        rows, arrow = self._rows, self._arrow
        arrow.update(theta, estimated=estimated)
        least, stop = CG_ENERGY_RATIO * float(right @ arrow(right)), rows.products + MAX_PRODUCTS

        def enough(residual_energy: float, _: Float64) -> bool:
            return residual_energy <= least or rows.products >= stop or rows.is_late

        solved = conjugate_gradients(lambda d: rows.hessian_product(theta, d), arrow, right, enough)
        return solved.x if estimated else solved.x + arrow.block_step(solved.residual)

    def _balance(self, descent: ProximalState, current: ProximalPoint) -> ProximalPoint:
        """Return a point with a smaller P, after a step that minimizes quadratic upper bounds of the losses, which
        touch them at the margins of ``current``; ``current`` itself if no step length reduces P.
        """
        rows = self._rows
        distance = np.abs(threshold(rows.problem.loss) - rows.terms.y * current.f)
        step = self._direction(
            current.v - current.w, self._upper / (2.0 * np.maximum(distance, MIN_DISTANCE)), estimated=True
        )
        for length in BALANCE_LENGTHS:
            moved = self._evaluate(current.w + length * step, descent.a)
            if moved.primal < current.primal:
                descent.momentum, descent.primal = 1.0, np.inf
                return moved
        descent.balances = False
        return current

    def _close(self, descent: ProximalState, current: ProximalPoint) -> None:
        """Evaluate dual points near a whose v is nearly w. Variables that hit a bound are fixed there, and further
        steps in the dense columns correct v.
        """
        rows, a, target, residual = self._rows, descent.a, current.w, np.inf
        theta = np.minimum(a, self._upper - a)
        step = self._direction(target - current.v, theta, estimated=False)
        while not self._state.solved:
            moved = a + rows.terms.y * theta * rows.margins(step)
            a = np.clip(moved, 0.0, self._upper)
            theta[a != moved] = 0.0
            current = self._evaluate(target, a)
            residual, before = _half_square(target - current.v), residual
            if not residual < CORRECTION_RATIO * before or rows.is_late:
                return
            step = self._arrow.block_step(target - current.v)


def _half_square(v: Float64) -> float:
    return 0.5 * float(v @ v)


def _is_proximal_too_slow(lags: list[float], tolerance: float) -> bool:
    """Return whether proximal descent has stalled, or has reached its maximum number of rounds."""
    stalled = lags[-1] > tolerance and has_stalled(lags, PROXIMAL_WINDOW, STALL_RATIO)
    return stalled or len(lags) >= MAX_ROUNDS
