"""Least squares over the l1 ball, out of core, by Frank-Wolfe, with away steps, with swaps, and by parallel tangents.

    min P(w) = sum_i C_i l(w.x_i - t_i)   subject to  ||w||_1 <= t,      l a multiple of m^2;      S_i = C_i l''

A reading evaluates: P, the slopes a_i = -C_i l'(m_i) and v = X'a = -grad P say the Frank-Wolfe gap w.grad + t max |grad_j|, which is
P - D at these slopes; of their multiples the best is D (``regularizer``). The same reading sums up X'SX of a pool of columns, all of
them where the matrix has room, else those with the largest |v_j| and those in use; f and its gradient at all points of the
pool's part of the ball follow from it (``vertices``), so that the iterations need no reading. In the randomized regime (``sample``) they
look at a sample of the vertices; what the gap is over all of them the next reading says.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from streamsvm.compute.random import smallest_keys
from streamsvm.rows import Float64, Int64
from streamsvm.solvers.column_pool import PoolSolver, components, gram_of_pool
from streamsvm.solvers.kernel.frank_wolfe_steps import Iterations
from streamsvm.solvers.l1_ball.regularizer import dual_at_slopes
from streamsvm.solvers.l1_ball.state import BallState
from streamsvm.solvers.l1_ball.vertices import SampledVertices, Vertices
from streamsvm.solvers.l1_ball.work import Allowed, BallWork, advance, agreements_after, weights_at, weights_of_vertices
from streamsvm.solvers.point_evaluation import PointEvaluation, PointSums
from streamsvm.solvers.second_derivatives import added
from streamsvm.types import (
    Block,
    Certificate,
    Cost,
    Layout,
    LinearSolution,
    LossRequirement,
    Problem,
)

MOST_USED = 0.75
"""Of a pool that does not hold all columns: those in use, at most; a solution that has more is not found, and the certificate says so."""
VECTORS = 24
"""Of length p: points, sums, what rounding took from them."""
VERTEX_VECTORS = 16
"""Of 2 m numbers: what an iteration has in hand."""
MATRICES = 3
"""Of m by m numbers: X'SX, that of a block, its scratch."""
SHARE = 0.5
"""Of the gap that is asked for: where iterations stop; and of the gap over all columns, that in the pool which makes it worth while."""


@dataclass(frozen=True, slots=True)
class OnL1Ball(PoolSolver):
    """Settings of a method; those of ``FrankWolfe`` that mean something here."""

    variant: str = "partan"
    """``fw``, ``mfw``, ``swap`` or ``partan``."""
    open_step: bool = False
    """Whether steps toward a vertex have the length 2 / (k + 2)."""
    sample: int = 0
    """Vertices drawn to find the best among; 0: all."""
    iterations: int = 100_000
    """Iterations between two passes, at most."""
    epsilon: float = 0.0
    """The Frank-Wolfe gap at which the run may end too; 0: only the relative gap counts."""
    seed: int = 0
    """Of the draws."""
    away: str = "exact"
    """Where mfw and swap with a sample look for the vertex that weight is taken from: ``exact`` or ``drawn``."""
    driver_fields: ClassVar[tuple[str, ...]] = ("gram", "work")
    """What only the steps between passes look at."""
    losses: ClassVar[LossRequirement] = LossRequirement(smooth=True, box=False, quadratic=True, numeric=True)
    """Least squares; what else has these properties is refused where the problem is made."""

    def cost(self, problem: Problem, layout: Layout) -> Cost:
        """Bytes of the matrices of the pool, of vectors, and of a block's columns that are in it."""
        p, m = problem.columns + 1, self.columns(problem) + 1
        return Cost(
            fixed=8 * (VECTORS * p + MATRICES * m * m + VERTEX_VECTORS * 2 * m),
            per_block_row=48 + (4 * m if layout.dense else 8 * m),
            per_part=8 * (4 * p + m * m),
        )

    def start(self, problem: Problem) -> BallState:
        """Begin at w = 0, or at the warm weights, drawn into the ball; where all columns fit, X'SX is summed up at once."""
        w = problem.first_weights()
        few = smallest_keys(-np.abs(w[:-1]), self.columns(problem))  # the pool is to hold all columns in use
        w[np.setdiff1d(np.arange(problem.columns), few)] = 0.0
        norm = float(np.abs(w).sum())
        if norm > _radius(problem):
            w *= _radius(problem) / norm
        state = BallState(problem, w, PointSums(len(w)), np.empty(0, np.int64))
        if self.columns(problem) == problem.columns:
            state.pool, state.gathering = np.arange(problem.columns), True
        return state

    def visit(self, state: BallState, block: Block) -> None:
        """Add the block to the sums at the point, and to X'SX of the pool."""
        problem = state.problem
        state.evaluation.add(problem, problem.loss, block, state.point)
        if state.gathering:
            S = (problem.C * problem.loss.second_derivative(0.0)) * block.s.astype(np.float64)
            found = gram_of_pool(block.X, S, state.pool, problem.columns)
            state.gathered = added(state.gathered, found)

    def set_deadline(self, state: BallState, moment: float) -> None:
        """Iterations end at that moment."""
        state.deadline = moment

    def finish(self, state: BallState) -> Certificate:
        """Close the pass: both bounds are exact; begin what is to be done in memory, or choose columns to be summed up."""
        problem, found = state.problem, state.evaluation.close(state.problem, state.point)
        t, v = _radius(problem), found.v
        gap = found.primal - dual_at_slopes(t, found.sums.linear, found.sums.quadratic, v)
        if found.primal < state.primal:
            state.primal, state.best = found.primal, state.point.copy()
        state.dual = max(state.dual, found.dual)
        state.passes += 1
        final = gap <= self.epsilon
        if final:
            state.primal, state.best = found.primal, state.point.copy()
        state.facts = {
            "iterations": state.iterations,
            "simplex_gap": gap,
            "seen_gap": max(0.0, min(state.seen, gap)),
            "pool": len(state.pool),
        }
        done = final or state.certifying or state.primal - state.dual <= problem.tolerance * state.primal
        if not done:
            self._go_on(state, found, gap)
        state.certifying = False
        state.evaluation.clear()
        used = 0 if state.best is None else int(np.count_nonzero(state.best[:-1]))
        return Certificate(state.primal, state.dual, final=final, facts={**state.facts, "columns_used": used})

    def _go_on(self, state: BallState, found: PointEvaluation, gap: float) -> None:
        """Work on the pool if that is known and leads on; else choose the columns the next pass sums up."""
        v, fresh = found.v, state.gathered is not None
        if fresh:
            state.gram, state.gathered, state.gathering = state.gathered, None, False
        inner = gap - _radius(state.problem) * (float(np.abs(v).max()) - float(np.abs(v[components(state)]).max()))
        if state.gram is not None and (fresh or len(state.pool) == state.problem.columns or inner > SHARE * gap):
            self._begin(state, found)
            return
        state.pool, state.gram, state.gathering = self._chosen(state, v), None, True
        inside = components(state)
        state.point, kept = np.zeros_like(state.point), state.point[inside]
        state.point[inside] = kept

    def _chosen(self, state: BallState, v: Float64) -> Int64:
        """The columns in use, of which so many that others come in, and those with the largest |v_j|."""
        size, weights = self.columns(state.problem), np.abs(state.point[:-1])
        used = smallest_keys(-weights, min(int(np.count_nonzero(weights)), max(1, int(MOST_USED * size))))
        rank = -np.abs(v[:-1])
        rank[used] = -np.inf
        return np.sort(smallest_keys(rank, size))

    def _begin(self, state: BallState, found: PointEvaluation) -> None:
        """Put the method where the point is, on vertices of the pool that say there what the pass has said."""
        where, t, gram = components(state), _radius(state.problem), state.gram
        assert gram is not None  # asked before
        w, v = state.point[where], found.v[where]
        moments = gram @ w + v
        vertices = Vertices(gram, moments, float(w @ moments) + found.sums.linear, t)
        steps = (self.variant, self.open_step, state.iterations)
        method: Iterations | SampledVertices
        if self.sample:
            method = SampledVertices(vertices, *steps, away=self.away)
            method.begin(weights_at(w, v, t), found.primal)
        else:
            g = np.concatenate([-t * v, t * v]) + found.sums.linear
            method = Iterations(weights_at(w, v, t), g, vertices, *steps)
        relative = SHARE * state.problem.tolerance if self.epsilon == 0.0 else 0.0
        allowed, agreements = Allowed(SHARE * self.epsilon, relative), agreements_after(state.begun)
        state.work, state.begun = BallWork(method, allowed, self.iterations, self.sample, agreements), state.begun + 1

    def pending(self, state: BallState) -> bool:
        """Whether iterations are to be made."""
        return state.work is not None

    def proceed(self, state: BallState) -> None:
        """Make some iterations; where they have come to their end, the next pass evaluates what they have found."""
        work = state.work
        assert work is not None  # a step is pending
        if not advance(work, self.seed) and work.left > 0 and time.perf_counter() < state.deadline:
            return
        method, m, a = work.method, len(state.pool) + 1, weights_of_vertices(work)
        state.point = np.zeros_like(state.point)
        state.point[components(state)] = _radius(state.problem) * (a[:m] - a[m:])
        state.iterations, state.seen, state.work = method.count, work.gap, None

    def certify(self, state: BallState) -> None:
        """Let the next pass evaluate only."""
        state.certifying = True

    def candidate(self, state: BallState) -> Float64:
        """The best weights so far."""
        return (state.point if state.best is None else state.best).copy()

    def part(self, state: BallState) -> BallState:
        """The point and the pool, with sums of nothing."""
        return replace(state, evaluation=PointSums(len(state.point)), gathered=None)

    def merge(self, states: list[BallState]) -> BallState:
        """Add up what each worker summed."""
        first, *others = states
        for other in others:
            first.evaluation.merge(other.evaluation)
            first.gathered = added(first.gathered, other.gathered)
        return first

    def solution(self, state: BallState) -> LinearSolution:
        """The best weights that were evaluated."""
        return LinearSolution(self.candidate(state), state.problem.bias)


def _radius(problem: Problem) -> float:
    """Return the radius t."""
    assert problem.l1_ball is not None  # what makes this solver of another one
    return problem.l1_ball
