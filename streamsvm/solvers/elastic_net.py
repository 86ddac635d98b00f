"""The elastic net out of core: a proximal Newton's method, a reading an iteration, columns ruled out on the way.

    min_w  P(w) = R(w) + sum_i C_i l(m_i),      R(w) = 1/2 ||w||^2 + l1 ||w||_1

A reading evaluates a point: P, the slopes a_i = -C_i l'(m_i), v = X'a and with it D (``regularizers.py``), and X'
diag(C_i l'') X of a pool of columns. The minimum of the quadratic model of the pool is what the next reading evaluates,
and P at some points on the way; where P did not fall by a share of what the slope promised, the best of these is read
next.

**The pool**: columns in use, those with |v_j| > l1, which come into use, and the nearest others, without the ones that
a gap has proved to be 0. A column outside it keeps its weight. Corners are rounded over a width 2 mu, the slopes of
which are dual points of the loss itself; mu falls as soon as the rounding costs more than is left of the rest of the
gap.

**The quadratic model** around c, on the columns of the pool, has its minimum in memory:

    M(w) = R(w) - v.(w - c) + 1/2 (w - c)'G(w - c),     v = X' slopes at c,   G = X' diag(C_i l''(m_i)) X

Sweeps of coordinate descent find which coordinates are not 0; on a face, where the signs of w are fixed, the rest is a
linear system

    (I + G_AA) d_A = -(w_A + g_A + l1 sign(w_A)),        g = G(w - c) - v,

whose step ends where a coordinate comes to 0, which then stays there. Both lower M, by turns, until its own primal and
dual agree: the dual point of the model is -g, and R(w) + R*(-g) + w.g, a sum of terms none of which is below 0, is how
far M is from its minimum.

References: Lee, Sun, Saunders, SIAM J. Optimization 24, 2014 (proximal Newton); Tseng and Yun, Math. Programming 117,
2009 (line search).
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from streamsvm.aliases import Array
from streamsvm.class_tags import saved_as
from streamsvm.compute.blocks import operators
from streamsvm.compute.blocks.operators import MOST_FLOAT64_COMPONENTS
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
from streamsvm.types import Block, Certificate, Cost, Layout, LinearSolution, LossRequirement, Problem
from streamsvm.types.state import FirstPassTotal, Total, clear_totals

SLACK = 1e-9
"""Share of l1 and of P that is allowed for rounding where columns are ruled out."""
FEW_COLUMNS = 256
"""This many columns are all in the pool, from the first reading on."""
SPARE = 1.5
"""The pool has this many times the columns that are in use or come into use."""
VECTORS = 32
"""Vectors of length p in memory: points, sums, their rounding."""
MATRICES = 4
"""Matrices of m by m numbers in memory: second derivatives, those of a block, a face and its factor."""
ARMIJO = 1e-4
"""P is to fall by this share of what the slope promised."""
ON_THE_WAY = (0.0, 1e-3, 3e-3, 0.01, 0.03, 0.1, 0.25, 0.5)
"""Shares of the way at which P is evaluated too."""
MIN_STEP = 1e-7
"""A smaller share of the way is not worth a reading."""
ROUNDING = 1e-13
"""Differences of P that are a smaller share of it are rounding."""
TARGET_SHARE = 0.05
"""The model is solved to this share of the gap that is asked for."""
ROUNDS, SWEEPS, FACE_STEPS = 200, 10, 20
"""For the model: rounds at most, sweeps in each, and steps on faces in each at most."""
LARGEST_FACE = 2000
"""Coordinates of a face that is solved for by a factorization."""
FLOAT32_INFLATION = 1e-6
"""Where G is a sum of float32 products, its diagonal is this much larger, because rounding may have made it
indefinite."""


@saved_as("elastic_net.state")
@dataclass(slots=True)
class ElasticNetState:
    """Arrays are float64; p = columns + 1, m columns of the pool, the constant feature the last of them."""

    problem: Problem
    point: Float64
    """(p,) the weights that the pass evaluates."""
    mu: float
    """Half the width of the rounded corner, in margins; 0: the loss has none."""
    evaluation: Total[PointSums]
    """The sums of the pass at ``point``."""
    squares: FirstPassTotal[Float64]
    """(p,) sum_i s_i x_ij^2, of the first pass."""
    possible: Array
    """(p,) bools: columns that no gap has proved to be 0."""
    pool: Int64
    """(m - 1,) columns whose second derivatives the pass sums up, rising; empty: none was chosen yet."""
    gathering: bool = False
    """Whether there is a pool."""
    gram: Total[Float64 | None] = None
    """(m, m) X'DX of the pool over the blocks met so far; None: nothing yet."""
    center: Float64 = field(default_factory=lambda: np.empty(0))
    """(p,) the point from which steps are made: the last one that was accepted."""
    direction: Float64 = field(default_factory=lambda: np.empty(0))
    """(p,) from ``center`` to the minimum of the model."""
    step: float = 1.0
    """The share of ``direction`` at which the pass evaluates."""
    on_the_way: Total[Float64 | None] = None
    """The sums of losses, rounded, at shares of the way from ``center`` to ``point``; None: nothing yet."""
    slope: float = 0.0
    """The slope of the objective along the direction at ``center``, at most."""
    narrowed: bool = False
    """Whether ``mu`` has fallen since ``center`` was evaluated."""
    best: Float64 = field(default_factory=lambda: np.empty(0))
    """(p,) the evaluated weights with the least P, which are the solution."""
    primal: float = np.inf
    """P of ``best``."""
    dual: float = 0.0
    """The largest D so far; at first that of a = 0."""
    stuck: bool = False
    """Whether no step lowers P: rounding is all that is left."""
    passes: int = 0
    """Passes that were closed."""
    deadline: float = np.inf
    """The moment of ``time.perf_counter`` at which work in memory ends."""
    facts: dict[str, float] = field(default_factory=dict)
    """What is reported of the last pass."""


@dataclass(frozen=True, slots=True)
class ProximalNewton(ColumnPoolSolver):
    """Settings of the proximal Newton's method."""

    narrowing: float = 0.24
    """For losses with a corner: the half width mu of the rounded corner falls to this share of itself at a time."""
    losses: ClassVar[LossRequirement] = LossRequirement()
    """Any."""

    def cost(self, problem: Problem, layout: Layout) -> Cost:
        """Return the bytes of the matrices of the pool, of vectors, and of a block's columns that are in it."""
        p, m = problem.columns + 1, self.columns(problem) + 1
        return Cost(
            fixed=8 * (VECTORS * p + MATRICES * m * m) + operators.gram_bytes(m),
            per_block_row=64 + (4 * m if layout.dense else 8 * m),
            per_part=8 * (4 * p + m * m),
        )

    def start(self, problem: Problem) -> ElasticNetState:
        """Begin at w = 0, or at the warm weights; if columns are few, with all of them in the pool."""
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
        """Add the block to the sums at the point, and to the second derivatives of the pool."""
        problem, smooth = state.problem, round_corners(state.problem.loss, state.mu)
        f = state.evaluation.add(problem, smooth, block, state.point)
        if state.passes == 0:
            state.squares += squares(block.X, block.s.astype(np.float64), problem.columns)
        if state.passes > 0:
            f0 = operators.margins(block.X, state.center)
            found = trial_pass(block.y, block.s, f0, f - f0, problem.C, smooth, np.array(ON_THE_WAY))
            state.on_the_way = add_to_sum(state.on_the_way, found)
        if state.gathering:
            bends = row_curvatures(problem, smooth, block, f)
            found = gram_of_pool(block.X, bends, state.pool, problem.columns)
            state.gram = add_to_sum(state.gram, found)

    def set_deadline(self, state: ElasticNetState, moment: float) -> None:
        """End work in memory at that moment."""
        state.deadline = moment

    def finish(self, state: ElasticNetState) -> Certificate:
        """Close the pass: both bounds are exact; rule columns out, and find the next point."""
        problem, found = state.problem, state.evaluation.close(state.problem, state.point)
        state.passes += 1
        if found.primal < state.primal:
            state.primal, state.best = found.primal, state.point.copy()
        state.dual = max(state.dual, found.dual)
        gap = state.primal - found.dual + SLACK * abs(state.primal)
        state.possible &= ~screen_columns(problem, gap, found.scale * found.v, state.squares)
        if state.primal - state.dual > problem.tolerance * abs(state.primal):
            self._choose_point(state, found)
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

    def _choose_point(self, state: ElasticNetState, found: PointEvaluation) -> None:
        """Accept the point and minimize the model there, or evaluate a point nearer to where the step began."""
        if not self._accept(state, found):
            state.point = state.center + state.step * state.direction
            return
        state.center, state.step = state.point.copy(), 1.0
        if state.gram is None:
            state.pool, state.gathering = self._choose_pool(state, found.v), True
            state.direction, state.slope = np.zeros_like(state.point), 0.0
            return
        self._minimize(state, found, state.gram)

    def _accept(self, state: ElasticNetState, found: PointEvaluation) -> bool:
        """Return whether P fell enough; else set ``step`` to the share of the way at which P is least."""
        if state.on_the_way is None:
            return True
        l1, moved = l1_of(state.problem), state.point - state.center
        values = [elastic_net_value(state.center + t * moved, l1) for t in ON_THE_WAY] + state.on_the_way
        fallen = ARMIJO * state.step * state.slope + ROUNDING * abs(found.value)
        if found.value - float(values[0]) <= fallen:
            state.narrowed = False
            return True
        best = int(np.argmin(values))
        if best == 0 and not state.narrowed:  # else what the slope promised was of another mu: look at the center again
            state.step *= 0.1 * ON_THE_WAY[1]
            state.stuck = state.step < MIN_STEP
        else:
            state.step *= ON_THE_WAY[best]
        return False

    def _minimize(self, state: ElasticNetState, found: PointEvaluation, gram: Float64) -> None:
        """Go to the minimum of the model, with the pool there, and perhaps with a narrower corner."""
        where = components_of(state.pool, state.problem)
        problem, l1 = state.problem, l1_of(state.problem)
        w, v = state.point[where], found.v[where]
        target = TARGET_SHARE * problem.tolerance * abs(found.primal)
        state.direction = np.zeros_like(state.point)
        state.direction[where] = minimize_model(QuadraticModel(gram, v, w, l1), target, state.deadline) - w
        moved = w + state.direction[where]
        state.slope = float((w - v) @ (moved - w)) + l1 * float(np.abs(moved).sum() - np.abs(w).sum())
        state.narrowed = self._narrow_corner(state, found)
        no_slope = state.slope > -TARGET_SHARE * ROUNDING * abs(found.value)
        state.stuck = no_slope and not state.narrowed and not self._needs_other_columns(state, found.v)
        state.point = state.center.copy()
        state.point[where] = moved  # exactly 0 where the model says so
        state.pool = self._choose_pool(state, found.v)

    def _narrow_corner(self, state: ElasticNetState, found: PointEvaluation) -> bool:
        """Narrow the rounded corner where it costs more than the rest of the gap; return whether it was narrowed."""
        rest = above_minimum(state.center, found.v, l1_of(state.problem))
        if state.mu == 0.0 or found.primal - found.dual < 2.0 * rest:
            return False
        state.mu *= self.narrowing
        return True

    def _needs_other_columns(self, state: ElasticNetState, v: Float64) -> bool:
        """Return whether columns that come into use are not in the pool."""
        others = np.abs(v[:-1]) > l1_of(state.problem)
        others[state.pool] = False
        return bool(others.any())

    def _choose_pool(self, state: ElasticNetState, v: Float64) -> Int64:
        """Return the columns of the next pool, rising."""
        problem, used = state.problem, state.point[:-1] != 0.0
        possible = state.possible[:-1] | used
        if int(possible.sum()) <= min(FEW_COLUMNS, self.columns(problem)):
            return np.flatnonzero(possible)
        wanted = int((used | (possible & (np.abs(v[:-1]) > l1_of(problem)))).sum())
        size = min(self.columns(problem), int(possible.sum()), max(FEW_COLUMNS, int(SPARE * wanted)))
        rank = np.where(possible, -np.abs(v[:-1]), np.inf)
        rank[used] -= np.abs(v).max()
        return np.sort(smallest_keys(rank, size))

    def certify(self, state: ElasticNetState) -> None:
        """Do nothing: every pass is an exact evaluation."""

    def candidate(self, state: ElasticNetState) -> Float64:
        """Return the best weights so far."""
        return state.best.copy()

    def solution(self, state: ElasticNetState) -> LinearSolution:
        """Return the best weights that were evaluated."""
        return LinearSolution(state.best.copy(), state.problem.bias)


# The quadratic model in memory


class QuadraticModel(NamedTuple):
    """M on m columns, the constant feature among them."""

    gram: Float64
    """(m, m) G."""
    v: Float64
    """(m,)"""
    center: Float64
    """(m,) c."""
    l1: float


def minimize_model(model: QuadraticModel, target: float, deadline: float) -> Float64:
    """Return w (m,) at which M is ``target`` above its least value at most; further where the rounds, or the time, are
    over.
    """
    gram, w = model.gram, model.center.copy()
    if len(w) > MOST_FLOAT64_COMPONENTS:
        gram[np.diag_indices_from(gram)] *= 1.0 + FLOAT32_INFLATION
    g, every = -model.v, np.arange(len(w))
    for _ in range(ROUNDS):
        soft_threshold_sweep(gram, model.l1, every, w, g)
        for _ in range(SWEEPS - 1):
            soft_threshold_sweep(gram, model.l1, np.flatnonzero(w), w, g)
        g = gram @ (w - model.center) - model.v
        if above_minimum(w, -g, model.l1) <= target or time.perf_counter() > deadline:
            break
        w = _step_on_faces(model, w, g)
        g = gram @ (w - model.center) - model.v
        if above_minimum(w, -g, model.l1) <= target:
            break
    return w


def above_minimum(w: Float64, v: Float64, l1: float) -> float:
    """Return R(w) + R*(v) - w.v >= 0, added up coordinate by coordinate; both (m,)."""
    u = soft_threshold(v, l1)
    return float((0.5 * (w - u) ** 2 + np.abs(w) * l1 - w * (v - u)).sum())


def _step_on_faces(model: QuadraticModel, w: Float64, g: Float64) -> Float64:
    """Return w (m,) after steps on the face of its signs, and on those it leads to."""
    for _ in range(FACE_STEPS):
        free = np.flatnonzero(w)
        if not 0 < len(free) <= LARGEST_FACE:
            break
        matrix = model.gram[np.ix_(free, free)]
        matrix[np.diag_indices_from(matrix)] += 1.0
        at = w[free]
        try:
            d = solve_factorized(np.linalg.cholesky(matrix), -(at + g[free] + model.l1 * np.sign(at)))
        except np.linalg.LinAlgError:
            break
        crossing = np.where(at * d < 0.0, -at / np.where(d == 0.0, 1.0, d), np.inf)
        step = min(1.0, float(crossing.min()))
        moved = at + step * d
        moved[crossing <= step] = 0.0
        w = w.copy()
        w[free] = moved
        g = model.gram @ (w - model.center) - model.v
        if step == 1.0:
            break
    return w


def screen_columns(problem: Problem, gap: float, v: Float64, squares: Float64) -> NDArray[np.bool_]:
    """Return of which columns (p,) a dual point with v, ``gap`` below P, proves that their weight is 0.

    ``squares`` (p,) is sum_i s_i x_ij^2; ``gap`` has a bound of its rounding added to it.
    """
    l1 = l1_of(problem)
    if not problem.loss.smooth():
        return np.zeros(len(v), np.bool_)
    reach = np.sqrt(2.0 * max(gap, 0.0) * problem.C * squares / problem.loss.curvature(1.0))
    found: NDArray[np.bool_] = np.abs(v) + reach < (1.0 - SLACK) * l1
    return found


def l1_of(problem: Problem) -> float:
    """Return the weight of ||w||_1 of an elastic net."""
    assert isinstance(problem.regularizer, ElasticNet)  # the only one for which this solver is chosen
    return problem.regularizer.l1
