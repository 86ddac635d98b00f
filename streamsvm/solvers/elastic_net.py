"""The elastic net out of core: a proximal Newton method with one pass per iteration, and screening of columns.

    min_w  P(w) = R(w) + sum_i C_i l(m_i),      R(w) = 1/2 ||w||^2 + l1 ||w||_1

At a point, a pass computes the objective P, the slopes a_i = -C_i l'(m_i), v = X'a, the dual value D from v
(``regularizers.py``), and X' diag(C_i l'') X of a pool of columns. The next pass evaluates the minimizer of the quadratic model of the pool, and P
at some points on the way to it. If P did not fall by a sufficient fraction of the predicted decrease, the pass after it
evaluates the best of these points.

**The pool** contains the columns with nonzero weights, those with |v_j| > l1, whose weights become nonzero, and the
others with the largest |v_j|, but no columns whose weight is proven to be 0. Columns outside the pool keep their
weights. Kinks are smoothed over a width 2 mu; the slopes of the smoothed loss are dual points of the loss itself. The
gap is then the Fenchel gap of R plus a part due to smoothing; mu is reduced when that part exceeds the rest.

**The quadratic model** around c, on the columns of the pool, is minimized in memory:

    M(w) = R(w) - v.(w - c) + 1/2 (w - c)'G(w - c),     v = X' slopes at c,   G = X' diag(C_i l''(m_i)) X

Sweeps of coordinate descent determine which coordinates are not 0. On a face, where the signs of w are fixed, the
minimizer solves a linear system

    (I + G_AA) d_A = -(w_A + g_A + l1 sign(w_A)),        g = G(w - c) - v,

and the step ends at the first coordinate that reaches 0, which then stays 0. Sweeps and such steps alternate until the
duality gap of the model is small: -g is a dual point of the model, and R(w) + R*(-g) + w.g, a sum of terms >= 0, is an
upper bound of the distance of M from its minimum.

References: Lee, Sun, Saunders, SIAM J. Optimization 24, 2014 (proximal Newton); Tseng and Yun, Math. Programming 117,
2009 (line search).
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from streamsvm.class_tags import saved_as
from streamsvm.compute.blocks import operators
from streamsvm.compute.blocks.operators import MAX_COMPONENTS_FOR_FLOAT64
from streamsvm.compute.passes.elastic_net import soft_threshold_sweep
from streamsvm.compute.passes.newton import squares, trial_pass
from streamsvm.compute.random import smallest_keys
from streamsvm.losses import round_corners
from streamsvm.rows import Float64, Int64
from streamsvm.solvers.cholesky import solve_factorized
from streamsvm.solvers.column_pool import ColumnPoolSolver, components_of, gram_of_pool
from streamsvm.solvers.evaluation import PointEvaluation, PointSums, add_to_sum, row_curvatures
from streamsvm.solvers.newton.trust_region import first_mu
from streamsvm.solvers.regularizers import ElasticNet, elastic_net_value, soft_threshold
from streamsvm.type_aliases import Array
from streamsvm.types import Block, Certificate, Cost, Layout, LinearSolution, LossRequirement, Problem
from streamsvm.types.state import FirstPassTotal, Total, clear_totals

SLACK = 1e-9
"""Fraction of l1 and of P that is reserved for rounding errors in the screening of columns."""
FEW_COLUMNS = 256
"""Up to this number of columns all are in the pool, from the first pass on."""
POOL_FACTOR = 1.5
"""The size of the pool, relative to the number of columns whose weights are or become nonzero."""
P_SIZED_ARRAYS = 32
"""Number of (p,) arrays in memory: points, sums and their compensation terms."""
M_BY_M_ARRAYS = 4
"""Number of (m, m) arrays in memory: second derivatives, those of a block, a face and its factor."""
ARMIJO = 1e-4
"""The fraction of the predicted decrease by which P must fall."""
TRIAL_FRACTIONS = (0.0, 1e-3, 3e-3, 0.01, 0.03, 0.1, 0.25, 0.5)
"""Fractions of the step at which P is evaluated, besides the whole step."""
MIN_STEP = 1e-7
"""The least fraction of the step that is worth a pass."""
ROUNDING = 1e-13
"""Differences of P below this fraction of P are rounding errors."""
TARGET_SHARE = 0.05
"""The model is minimized to this fraction of the allowed gap."""
MAX_ROUNDS, SWEEPS, MAX_FACE_STEPS = 200, 10, 20
"""For the model: maximum number of rounds, number of sweeps and maximum number of steps on faces in each."""
MAX_FACE_SIZE = 2000
"""Maximum number of coordinates of a face that is solved by a factorization."""
FLOAT32_INFLATION = 1e-6
"""If G is a sum of float32 products, its diagonal is increased by this fraction, because rounding may have made G
indefinite."""


@saved_as("elastic_net.state")
@dataclass(slots=True)
class ElasticNetState:
    """The state of ``ProximalNewton``. Arrays are float64. p = columns + 1, and m is the size of the pool + 1: the constant
    feature is last in both.
    """

    problem: Problem
    point: Float64
    """(p,) the weights that the pass evaluates."""
    mu: float
    """The half-width of the smoothed kink, in units of the margin; 0: the loss has no kink."""
    evaluation: Total[PointSums]
    """The sums of the pass at ``point``."""
    squares: FirstPassTotal[Float64]
    """(p,) sum_i s_i x_ij^2, summed in the first pass."""
    possible: Array
    """(p,) bools: the columns whose weight is not proven to be 0."""
    pool: Int64
    """(m - 1,) the columns of the pool, rising; empty before it is chosen."""
    computes_gram: bool = False
    """Whether the pool is chosen, so that the pass computes its second derivatives."""
    gram: Total[Float64 | None] = None
    """(m, m) X'DX of the pool over the blocks visited so far; None before the first."""
    center: Float64 = field(default_factory=lambda: np.empty(0))
    """(p,) the last accepted point, from which steps are made."""
    direction: Float64 = field(default_factory=lambda: np.empty(0))
    """(p,) the direction from ``center`` to the minimizer of the model."""
    step: float = 1.0
    """The fraction of ``direction`` that the pass evaluates."""
    trial_losses: Total[Float64 | None] = None
    """The smoothed loss sums at TRIAL_FRACTIONS of the way from ``center`` to ``point``; None before the first
    block."""
    slope: float = 0.0
    """An upper bound of the slope of the objective along ``direction`` at ``center``."""
    narrowed: bool = False
    """Whether ``mu`` was reduced since ``center`` was evaluated."""
    best: Float64 = field(default_factory=lambda: np.empty(0))
    """(p,) the evaluated weights with the least P. They are the solution."""
    primal: float = np.inf
    """P of ``best``."""
    dual: float = 0.0
    """The largest D so far; at first that of a = 0."""
    stuck: bool = False
    """Whether no step reduces P any more because of rounding."""
    passes: int = 0
    """Number of completed passes."""
    deadline: float = np.inf
    """The time of ``time.perf_counter`` at which work in memory must stop."""
    facts: dict[str, float] = field(default_factory=dict)
    """The facts that are reported of the last pass."""


@dataclass(frozen=True, slots=True)
class ProximalNewton(ColumnPoolSolver):
    """The proximal Newton method."""

    narrowing: float = 0.24
    """For losses with a kink: the factor by which mu, the half-width of the smoothed kink, is reduced."""
    losses: ClassVar[LossRequirement] = LossRequirement()
    """Any loss."""

    def cost(self, problem: Problem, layout: Layout) -> Cost:
        """Return the bytes of the matrices of the pool, of vectors, and of the pool's columns of a block."""
        p, m = problem.columns + 1, self.columns(problem) + 1
        return Cost(
            fixed=8 * (P_SIZED_ARRAYS * p + M_BY_M_ARRAYS * m * m) + operators.gram_bytes(m),
            per_block_row=64 + (4 * m if layout.dense else 8 * m),
            per_part=8 * (4 * p + m * m),
        )

    def start(self, problem: Problem) -> ElasticNetState:
        """Return the state at w = 0, or at the warm-start weights. If there are few columns, all are in the pool."""
        p, w = problem.columns + 1, problem.first_weights()
        few = problem.columns <= min(FEW_COLUMNS, self.columns(problem))
        pool = np.arange(problem.columns) if few else np.empty(0, np.int64)
        return ElasticNetState(
            problem,
            w,
            first_mu(problem),
            PointSums(p),
            np.zeros(p),
            np.ones(p, np.bool_),
            pool,
            few,
            center=w.copy(),
            direction=np.zeros(p),
            best=w.copy(),
        )

    def visit(self, state: ElasticNetState, block: Block) -> None:
        """Add the block to the sums at the point and to the second derivatives of the pool."""
        problem, smooth = state.problem, round_corners(state.problem.loss, state.mu)
        f = state.evaluation.add(problem, smooth, block, state.point)
        if state.passes == 0:
            state.squares += squares(block.X, block.s.astype(np.float64), problem.columns)
        if state.passes > 0:
            f0 = operators.margins(block.X, state.center)
            losses = trial_pass(block.y, block.s, f0, f - f0, problem.C, smooth, np.array(TRIAL_FRACTIONS))
            state.trial_losses = add_to_sum(state.trial_losses, losses)
        if state.computes_gram:
            curvatures = row_curvatures(problem, smooth, block, f)
            gram = gram_of_pool(block.X, curvatures, state.pool, problem.columns)
            state.gram = add_to_sum(state.gram, gram)

    def set_deadline(self, state: ElasticNetState, moment: float) -> None:
        """Stop work in memory at ``moment``."""
        state.deadline = moment

    def finish(self, state: ElasticNetState) -> Certificate:
        """Return P and D, which are exact; screen columns, and choose the next point."""
        problem, evaluation = state.problem, state.evaluation.close(state.problem, state.point)
        state.passes += 1
        if evaluation.primal < state.primal:
            state.primal, state.best = evaluation.primal, state.point.copy()
        state.dual = max(state.dual, evaluation.dual)
        gap = state.primal - evaluation.dual + SLACK * abs(state.primal)
        state.possible &= ~screen_columns(problem, gap, evaluation.scale * evaluation.v, state.squares)
        if state.primal - state.dual > problem.tolerance * abs(state.primal):
            self._choose_point(state, evaluation)
        clear_totals(state)
        used = int(np.count_nonzero(state.best[:-1]))
        state.facts = {
            "step": state.step,
            "mu": state.mu,
            "pool": len(state.pool),
            "columns_possible": int(np.count_nonzero(state.possible[:-1])),
        }
        facts = {**state.facts, "columns_used": used}
        return Certificate(state.primal, state.dual, final=state.stuck, facts=facts)

    def _choose_point(self, state: ElasticNetState, evaluation: PointEvaluation) -> None:
        """Accept the point and minimize the model around it, or backtrack along the last step."""
        if not self._accept(state, evaluation):
            state.point = state.center + state.step * state.direction
            return
        state.center, state.step = state.point.copy(), 1.0
        if state.gram is None:
            state.pool, state.computes_gram = self._choose_pool(state, evaluation.v), True
            state.direction, state.slope = np.zeros_like(state.point), 0.0
            return
        self._minimize(state, evaluation, state.gram)

    def _accept(self, state: ElasticNetState, evaluation: PointEvaluation) -> bool:
        """Return whether P fell enough. If not, set ``step`` to the fraction of the way at which P is least."""
        if state.trial_losses is None:
            return True
        l1, change = l1_of(state.problem), state.point - state.center
        values = [elastic_net_value(state.center + t * change, l1) for t in TRIAL_FRACTIONS] + state.trial_losses
        required = ARMIJO * state.step * state.slope + ROUNDING * abs(evaluation.value)
        if evaluation.value - float(values[0]) <= required:
            state.narrowed = False
            return True
        best = int(np.argmin(values))
        if best == 0 and not state.narrowed:  # if mu was reduced, the slope is out of date: evaluate the center again
            state.step *= 0.1 * TRIAL_FRACTIONS[1]
            state.stuck = state.step < MIN_STEP
        else:
            state.step *= TRIAL_FRACTIONS[best]
        return False

    def _minimize(self, state: ElasticNetState, evaluation: PointEvaluation, gram: Float64) -> None:
        """Step to the minimizer of the model, and choose mu and the pool for the next pass."""
        where = components_of(state.pool, state.problem)
        problem, l1 = state.problem, l1_of(state.problem)
        w, v = state.point[where], evaluation.v[where]
        target = TARGET_SHARE * problem.tolerance * abs(evaluation.primal)
        state.direction = np.zeros_like(state.point)
        state.direction[where] = minimize_model(QuadraticModel(gram, v, w, l1), target, state.deadline) - w
        moved = w + state.direction[where]
        state.slope = float((w - v) @ (moved - w)) + l1 * float(np.abs(moved).sum() - np.abs(w).sum())
        state.narrowed = self._shrink_mu(state, evaluation)
        no_slope = state.slope > -TARGET_SHARE * ROUNDING * abs(evaluation.value)
        state.stuck = no_slope and not state.narrowed and not self._needs_other_columns(state, evaluation.v)
        state.point = state.center.copy()
        state.point[where] = moved  # exactly 0 where the minimizer of the model is 0
        state.pool = self._choose_pool(state, evaluation.v)

    def _shrink_mu(self, state: ElasticNetState, evaluation: PointEvaluation) -> bool:
        """Reduce mu if the smoothing term exceeds the rest of the gap. Return whether mu was reduced."""
        rest = fenchel_gap(state.center, evaluation.v, l1_of(state.problem))
        if state.mu == 0.0 or evaluation.primal - evaluation.dual < 2.0 * rest:
            return False
        state.mu *= self.narrowing
        return True

    def _needs_other_columns(self, state: ElasticNetState, v: Float64) -> bool:
        """Return whether columns whose weights become nonzero are not in the pool."""
        others = np.abs(v[:-1]) > l1_of(state.problem)
        others[state.pool] = False
        return bool(others.any())

    def _choose_pool(self, state: ElasticNetState, v: Float64) -> Int64:
        """Return the columns of the next pool, rising."""
        problem, used = state.problem, state.point[:-1] != 0.0
        possible = state.possible[:-1] | used
        if int(possible.sum()) <= min(FEW_COLUMNS, self.columns(problem)):
            return np.flatnonzero(possible)
        needed = int((used | (possible & (np.abs(v[:-1]) > l1_of(problem)))).sum())
        size = min(self.columns(problem), int(possible.sum()), max(FEW_COLUMNS, int(POOL_FACTOR * needed)))
        rank = np.where(possible, -np.abs(v[:-1]), np.inf)
        rank[used] -= np.abs(v).max()
        return np.sort(smallest_keys(rank, size))

    def certify(self, state: ElasticNetState) -> None:
        """Do nothing: every pass is an exact evaluation."""

    def current_weights(self, state: ElasticNetState) -> Float64:
        """Return the evaluated weights with the least P so far."""
        return state.best.copy()

    def solution(self, state: ElasticNetState) -> LinearSolution:
        """Return the evaluated weights with the least P."""
        return LinearSolution(state.best.copy(), state.problem.bias)


# The quadratic model in memory


class QuadraticModel(NamedTuple):
    """M on the m columns of the pool, which include the constant feature."""

    gram: Float64
    """(m, m) G."""
    v: Float64
    """(m,)"""
    center: Float64
    """(m,) c."""
    l1: float


def minimize_model(model: QuadraticModel, target: float, deadline: float) -> Float64:
    """Return w (m,) at which M is at most ``target`` above its minimum, or the w at the last round or at the deadline.

    Changes the diagonal of ``model.gram`` if it has float32 rounding errors.
    """
    gram, w = model.gram, model.center.copy()
    if len(w) > MAX_COMPONENTS_FOR_FLOAT64:
        gram[np.diag_indices_from(gram)] *= 1.0 + FLOAT32_INFLATION
    g, all_columns = -model.v, np.arange(len(w))
    for _ in range(MAX_ROUNDS):
        soft_threshold_sweep(gram, model.l1, all_columns, w, g)
        for _ in range(SWEEPS - 1):
            soft_threshold_sweep(gram, model.l1, np.flatnonzero(w), w, g)
        g = gram @ (w - model.center) - model.v
        if fenchel_gap(w, -g, model.l1) <= target or time.perf_counter() > deadline:
            break
        w = _step_on_faces(model, w, g)
        g = gram @ (w - model.center) - model.v
        if fenchel_gap(w, -g, model.l1) <= target:
            break
    return w


def fenchel_gap(w: Float64, v: Float64, l1: float) -> float:
    """Return R(w) + R*(v) - w.v >= 0, added up coordinate by coordinate; both (m,)."""
    u = soft_threshold(v, l1)
    return float((0.5 * (w - u) ** 2 + np.abs(w) * l1 - w * (v - u)).sum())


def _step_on_faces(model: QuadraticModel, w: Float64, g: Float64) -> Float64:
    """Return w (m,) after Newton steps on the face of its signs, and on the faces that these steps reach."""
    for _ in range(MAX_FACE_STEPS):
        free = np.flatnonzero(w)
        if not 0 < len(free) <= MAX_FACE_SIZE:
            break
        matrix = model.gram[np.ix_(free, free)]
        matrix[np.diag_indices_from(matrix)] += 1.0
        w_free = w[free]
        try:
            d = solve_factorized(np.linalg.cholesky(matrix), -(w_free + g[free] + model.l1 * np.sign(w_free)))
        except np.linalg.LinAlgError:
            break
        crossing = np.where(w_free * d < 0.0, -w_free / np.where(d == 0.0, 1.0, d), np.inf)
        step = min(1.0, float(crossing.min()))
        moved = w_free + step * d
        moved[crossing <= step] = 0.0
        w = w.copy()
        w[free] = moved
        g = model.gram @ (w - model.center) - model.v
        if step == 1.0:
            break
    return w


def screen_columns(problem: Problem, gap: float, v: Float64, squares: Float64) -> NDArray[np.bool_]:
    """Return the columns (p,), as bools, whose weight is 0 at the optimum, which a dual point with v proves.

    ``gap``: P minus D of that point, plus a bound of its rounding error. ``squares`` (p,): sum_i s_i x_ij^2.
    """
    l1 = l1_of(problem)
    if not problem.loss.smooth():
        return np.zeros(len(v), np.bool_)
    reach = np.sqrt(2.0 * max(gap, 0.0) * problem.C * squares / problem.loss.curvature(1.0))
    is_zero: NDArray[np.bool_] = np.abs(v) + reach < (1.0 - SLACK) * l1
    return is_zero


def l1_of(problem: Problem) -> float:
    """Return the weight of ||w||_1 of an elastic net."""
    assert isinstance(problem.regularizer, ElasticNet)  # ``ElasticNet.adapt`` alone makes this solver
    return problem.regularizer.l1
