"""The elastic net out of core: a proximal Newton's method, a reading an iteration, columns ruled out on the way.

    min_w  P(w) = 1/2 ||w||^2 + l1 ||w||_1 + sum_i C_i l(m_i)

A reading evaluates a point: P, the slopes a_i = -C_i l'(m_i), v = X'a and with it D (``regularizer``), and X' diag(C_i l'') X of a pool
of columns. The minimum of the quadratic model of the pool (``model``) is what the next reading looks at, and P at some points on the way;
where P did not fall by a share of what the slope promised, the best of these is read next.

The pool: columns in use, those with |v_j| > l1, which come into use, and the nearest others, without the ones that a gap has proved to be
0. A column outside it keeps its weight. Corners are rounded over a width 2 mu, the slopes of which are dual points of the loss itself; mu
falls as soon as the rounding costs more than is left of the rest of the gap.

References: Lee, Sun, Saunders, SIAM J. Optimization 24, 2014 (proximal Newton); Tseng and Yun, Math. Programming 117, 2009 (line search).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from streamsvm.compute.blocks import operators
from streamsvm.compute.passes.newton import squares, trial_pass
from streamsvm.compute.random import smallest_keys
from streamsvm.losses import round_corners
from streamsvm.rows import Float64, Int64
from streamsvm.solvers.column_pool import PoolSolver, components, gram_of_pool
from streamsvm.solvers.elastic_net.model import QuadraticModel, above_minimum, minimum
from streamsvm.solvers.elastic_net.regularizer import SLACK, l1_of, proved_zero, value
from streamsvm.solvers.elastic_net.state import ElasticNetState
from streamsvm.solvers.newton.trust_region import first_mu
from streamsvm.solvers.point_evaluation import PointEvaluation, PointSums
from streamsvm.solvers.second_derivatives import added, bends_of
from streamsvm.types import (
    Block,
    Certificate,
    Cost,
    Layout,
    LinearSolution,
    LossRequirement,
    Problem,
)

FEW_COLUMNS = 256
"""So many columns are all in the pool, from the first reading on."""
SPARE = 1.5
"""The pool has so many times the columns that are in use or come into use."""
VECTORS = 32
"""Of length p: points, sums, what rounding took from them."""
MATRICES = 4
"""Of m by m numbers: second derivatives, those of a block, a face and its factor."""
ARMIJO = 1e-4
"""Of what the slope promised, what P is to fall by."""
ON_THE_WAY = (0.0, 1e-3, 3e-3, 0.01, 0.03, 0.1, 0.25, 0.5)
"""Shares of the way at which P is looked at."""
NO_STEP = 1e-7
"""A share of the way that is not worth a reading."""
ROUNDING = 1e-13
"""Of P: differences that say nothing."""
SHARE = 0.05
"""Of the gap that is asked for: how far from its minimum the model is left."""


@dataclass(frozen=True, slots=True)
class ElasticNet(PoolSolver):
    """Settings of the method."""

    narrowing: float = 0.24
    """Losses with a corner: the half width mu of the rounded corner falls to this share of itself, at most."""
    losses: ClassVar[LossRequirement] = LossRequirement()
    """Any."""

    def cost(self, problem: Problem, layout: Layout) -> Cost:
        """Bytes of the matrices of the pool, of vectors, and of a block's columns that are in it."""
        p, m = problem.columns + 1, self.columns(problem) + 1
        return Cost(
            fixed=8 * (VECTORS * p + MATRICES * m * m) + operators.gram_bytes(m),
            per_block_row=64 + (4 * m if layout.dense else 8 * m),
            per_part=8 * (4 * p + m * m),
        )

    def start(self, problem: Problem) -> ElasticNetState:
        """Begin at w = 0, or at the warm weights; of few columns all are the pool at once."""
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
            state.on_the_way = added(state.on_the_way, found)
        if state.gathering:
            bends = bends_of(problem, smooth, block, f)
            found = gram_of_pool(block.X, bends, state.pool, problem.columns)
            state.gram = added(state.gram, found)

    def set_deadline(self, state: ElasticNetState, moment: float) -> None:
        """Work in memory ends at that moment."""
        state.deadline = moment

    def finish(self, state: ElasticNetState) -> Certificate:
        """Close the pass: both bounds are exact; rule columns out, and find the next point."""
        problem, found = state.problem, state.evaluation.close(state.problem, state.point)
        state.passes += 1
        if found.primal < state.primal:
            state.primal, state.best = found.primal, state.point.copy()
        state.dual = max(state.dual, found.dual)
        gap = state.primal - found.dual + SLACK * abs(state.primal)
        state.possible &= ~proved_zero(problem, gap, found.scale * found.v, state.squares)
        if state.primal - state.dual > problem.tolerance * abs(state.primal):
            self._go_on(state, found)
        state.evaluation.clear()
        state.gram = state.on_the_way = None
        used = int(np.count_nonzero(state.best[:-1]))
        state.facts = {
            "step": state.step,
            "mu": state.mu,
            "pool": len(state.pool),
            "columns_possible": int(np.count_nonzero(state.possible[:-1])),
        }
        facts = {**state.facts, "columns_used": used}
        return Certificate(state.primal, state.dual, final=state.stuck, facts=facts)

    def _go_on(self, state: ElasticNetState, found: PointEvaluation) -> None:
        """Take the point and minimize the model there, or look nearer to where it came from."""
        if not self._taken(state, found):
            state.point = state.center + state.step * state.direction
            return
        state.center, state.step = state.point.copy(), 1.0
        if state.gram is None:
            state.pool, state.gathering = self._chosen(state, found.v), True
            state.direction, state.slope = np.zeros_like(state.point), 0.0
            return
        self._minimize(state, found, state.gram)

    def _taken(self, state: ElasticNetState, found: PointEvaluation) -> bool:
        """Whether P fell enough; else ``step`` becomes the share at which it is least."""
        if state.on_the_way is None:
            return True
        l1, moved = l1_of(state.problem), state.point - state.center
        values = [value(state.center + t * moved, l1) for t in ON_THE_WAY] + state.on_the_way
        fallen = ARMIJO * state.step * state.slope + ROUNDING * abs(found.value)
        if found.value - float(values[0]) <= fallen:
            state.narrowed = False
            return True
        best = int(np.argmin(values))
        if best == 0 and not state.narrowed:  # else what the slope promised was of another mu: look at the center again
            state.step *= 0.1 * ON_THE_WAY[1]
            state.stuck = state.step < NO_STEP
        else:
            state.step *= ON_THE_WAY[best]
        return False

    def _minimize(self, state: ElasticNetState, found: PointEvaluation, gram: Float64) -> None:
        """Go to the minimum of the model, with the pool there, and perhaps with a narrower corner."""
        where = components(state)
        problem, l1 = state.problem, l1_of(state.problem)
        w, v = state.point[where], found.v[where]
        target = SHARE * problem.tolerance * abs(found.primal)
        state.direction = np.zeros_like(state.point)
        state.direction[where] = minimum(QuadraticModel(gram, v, w, l1), target, state.deadline) - w
        moved = w + state.direction[where]
        state.slope = float((w - v) @ (moved - w)) + l1 * float(np.abs(moved).sum() - np.abs(w).sum())
        state.narrowed = self._narrower(state, found)
        no_slope = state.slope > -SHARE * ROUNDING * abs(found.value)
        state.stuck = no_slope and not state.narrowed and not self._others(state, found.v)
        state.point = state.center.copy()
        state.point[where] = moved  # exactly 0 where the model says so
        state.pool = self._chosen(state, found.v)

    def _narrower(self, state: ElasticNetState, found: PointEvaluation) -> bool:
        """Narrow the rounded corner where it costs more than the rest of the gap."""
        rest = above_minimum(state.center, found.v, l1_of(state.problem))
        if state.mu == 0.0 or found.primal - found.dual < 2.0 * rest:
            return False
        state.mu *= self.narrowing
        return True

    def _others(self, state: ElasticNetState, v: Float64) -> bool:
        """Whether columns that come into use are not in the pool."""
        others = np.abs(v[:-1]) > l1_of(state.problem)
        others[state.pool] = False
        return bool(others.any())

    def _chosen(self, state: ElasticNetState, v: Float64) -> Int64:
        """The columns of the next pool, rising."""
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
        """Every pass is an exact evaluation."""

    def candidate(self, state: ElasticNetState) -> Float64:
        """The best weights so far."""
        return state.best.copy()

    def part(self, state: ElasticNetState) -> ElasticNetState:
        """The point and the pool, with sums of nothing."""
        return replace(
            state,
            evaluation=PointSums(len(state.point)),
            gram=None,
            on_the_way=None,
            squares=state.squares if state.passes else np.zeros_like(state.squares),
        )

    def merge(self, states: list[ElasticNetState]) -> ElasticNetState:
        """Add up what each worker summed."""
        first, *others = states
        for other in others:
            first.evaluation.merge(other.evaluation)
            first.squares = first.squares + (other.squares if first.passes == 0 else 0.0)
            first.on_the_way = added(first.on_the_way, other.on_the_way)
            first.gram = added(first.gram, other.gram)
        return first

    def solution(self, state: ElasticNetState) -> LinearSolution:
        """The best weights that were evaluated."""
        return LinearSolution(state.best.copy(), state.problem.bias)
