"""Least squares over the l1 ball out of core, by the Frank-Wolfe methods (basic, away steps, swaps, parallel tangents).

    min P(w) = sum_i C_i l(w.x_i - t_i)   subject to  ||w||_1 <= r,      l a multiple of m^2;      S_i = C_i l''

A pass computes P, the slopes a_i = -C_i l'(m_i) and v = X'a = -grad P. They give the Frank-Wolfe gap
w.grad + r max |grad_j|, which is P - D at these slopes; D of the best multiple of the slopes is the bound
(``regularizers.py``). The same pass accumulates X'SX of a pool of columns: all columns if the matrix fits in memory,
else those with nonzero weights and those with the largest |v_j|. From it follow f and its gradient at all points of the
ball whose weights are in the pool, so that the iterations need no pass. In the randomized regime (``sample``) they use
a sample of the vertices, and the next pass computes the gap over all vertices.

**The problem on the simplex** (PARTAN paper, section 2.3). With y the targets t the problem is

    min 1/2 sum_i S_i (w.x_i - y_i)^2     subject to  ||w||_1 <= r.

w = r sum_j (a_j+ - a_j-) e_j with sum a = 1, a >= 0 ranges over the ball, whose vertices are +-r e_j. Since sum a = 1
the residuals are sum_k a_k (A_k - y), A_k = +-r X_j, so that the problem is that of ``kernel/frank_wolfe.py``,

    f(a) = 1/2 a'Ka,    K_kl = (A_k - y)'S (A_l - y) = r^2 z_k z_l Q_kl - r z_k c_k - r z_l c_l + y'Sy,   z = +-1,

with Q = X'SX and c = X'Sy, which are all that the steps in memory need, whatever the number of rows. With R the
residuals, g = Ka is +-r X'SR - y'SR, and 2 f - min g is the Frank-Wolfe gap max_u (w - u)'grad f.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import ClassVar, NamedTuple

import numpy as np

from streamsvm.class_tags import saved_as
from streamsvm.compute.passes.frank_wolfe import Tangent
from streamsvm.compute.random import smallest_keys
from streamsvm.rows import Float64, Int64
from streamsvm.solvers.column_pool import ColumnPoolSolver, components_of, gram_of_pool
from streamsvm.solvers.evaluation import PointEvaluation, PointSums, add_to_sum
from streamsvm.solvers.kernel.frank_wolfe import Iterations, StepsFromSamples
from streamsvm.solvers.regularizers import L1Ball
from streamsvm.type_aliases import Array
from streamsvm.types import Block, Certificate, Cost, Layout, LinearSolution, LossRequirement, Problem
from streamsvm.types.state import DriverOnly, Total, clear_totals, find_driver_fields

MAX_USED_SHARE = 0.75
"""Maximum fraction of columns with nonzero weights in a pool that does not hold all columns. A solution with more such
columns is not found, which the certificate shows."""
P_SIZED_ARRAYS = 24
"""Number of (p,) arrays in memory: points, sums and their compensation terms."""
VERTEX_ARRAYS = 16
"""Number of (2 m,) arrays in an iteration."""
M_BY_M_ARRAYS = 3
"""Number of (m, m) arrays in memory: X'SX, that of a block, and scratch."""
SHARE = 0.5
"""Iterations stop at this fraction of the allowed gap. The same pool is used again if its gap is more than this
fraction of the gap over all columns."""
SPARE_MEMBERS = 128
"""Room for further vertices besides those with weight."""
ITERATIONS_IN_STEP = 2048
"""Number of iterations of one in-memory step; the run can be saved or stopped between steps."""
AGREEMENTS_TO_STOP = 2
"""Number of successive small sampled gaps at which the randomized regime stops. From the third start on it doubles with
each start, since the passes after the last stops found that the gap over all columns was not small."""
MAX_DOUBLINGS = 16
"""Maximum number of these doublings; more samples are impossible between two passes."""


# The problem on the simplex, and iterations in memory


@saved_as("l1_ball.vertices")
@dataclass(slots=True)
class Vertices:
    """The 2 m vertices of m columns, first all +r e_j, then all -r e_j, and the matrix K of them."""

    gram: Float64
    """(m, m) Q."""
    moments: Float64
    """(m,) c."""
    square: float
    """y'Sy."""
    radius: float
    """r."""
    diagonal: Float64 = field(init=False)
    """(2 m,) K_kk."""

    def __post_init__(self) -> None:
        squares, moments = self.radius**2 * np.diagonal(self.gram), 2.0 * self.radius * self.moments
        self.diagonal = np.concatenate([squares - moments, squares + moments]) + self.square

    def column(self, k: int, g: Float64) -> Float64:
        """Return K_k (2 m,); ``g`` is not used."""
        m, t = len(self.moments), self.radius
        sign = 1.0 if k < m else -1.0
        half = (t * t * sign) * self.gram[k % m] - t * self.moments
        offset = self.square - t * sign * float(self.moments[k % m])
        result: Float64 = np.concatenate([half, -half])
        result += offset
        return result

    def submatrix(self, some: Int64, others: Int64) -> Float64:
        """Return K of the vertices ``some`` (k,) and ``others`` (l,): (k, l)."""
        m, t = len(self.moments), self.radius
        z, u = np.where(some < m, t, -t), np.where(others < m, t, -t)
        Q = self.gram[np.ix_(some % m, others % m)]
        K: Float64 = z[:, None] * Q * u
        K += self.square - (z * self.moments[some % m])[:, None] - u * self.moments[others % m]
        return K


@saved_as("l1_ball.sampled_iterations")
@dataclass
class SampledVertices(StepsFromSamples):
    """Iterations that compute g of a sample of the vertices."""

    vertices: Vertices
    variant: str
    open_step: bool = False
    count: int = 0
    members: list[int] = field(default_factory=list)
    size: int = 0
    a: Float64 = field(default_factory=lambda: np.empty(0))
    f: float = 0.0
    tangent: Tangent | None = None
    previous_a: Float64 = field(default_factory=lambda: np.empty(0))
    _diagonal: Float64 = field(default_factory=lambda: np.empty(0))
    _place: Int64 = field(default_factory=lambda: np.empty(0, np.int64))
    _i: int = 0
    away_vertex: int = 0
    _g: tuple[float, float, float] = (0.0, 0.0, 0.0)
    _K_iv: float = 0.0
    away: str = "drawn"
    _gradients: Float64 = field(default_factory=lambda: np.empty(0))
    _columns: tuple[Float64, ...] = ()

    def begin(self, weights: Float64, f: float) -> None:
        """Start at the given weights (2 m,) of all vertices, and f at these."""
        self.members = np.flatnonzero(weights).tolist()
        self.size, self.f, self._diagonal = len(self.members), f, self.vertices.diagonal
        self._place = np.full(len(weights), -1, np.int64)
        self._place[self.members] = np.arange(self.size)
        self.a = np.concatenate([weights[self.members], np.zeros(self.size + SPARE_MEMBERS)])
        self.previous_a = self.a.copy()
        if self.away == "exact":
            places = np.array(self.members, np.int64)
            self._gradients = self.a[: self.size] @ self.vertices.submatrix(places, places)

    def weights(self) -> Float64:
        """Return the weights of all vertices (2 m,), with the sum 1."""
        weights = np.zeros(len(self._place))
        weights[self.members] = self.a[: self.size]
        result: Float64 = weights / weights.sum()
        return result

    def _kernel(self, asked: Int64) -> Array:
        return self.vertices.submatrix(np.array(self.members, np.int64), asked)

    def _gradient(self, K: Array, asked: Int64, a: Float64) -> Float64:
        g: Float64 = a[: self.size] @ K
        return g

    def _entry(self, K: Array, k: int) -> float:
        return float(K[self._place[self.away_vertex], k])

    def _column(self, K: Array, k: int, vertex: int) -> Float64:
        return np.array(K[:, k])

    def _append(self, vertex: int) -> None:
        """Do nothing: ``vertices`` has K of all vertices."""


@saved_as("l1_ball.allowed")
class AllowedGaps(NamedTuple):
    """The gaps at which the method may stop."""

    epsilon: float
    """A sufficient absolute gap; 0: none."""
    relative: float
    """A sufficient gap, as a fraction of f."""


@saved_as("l1_ball.work")
@dataclass(slots=True)
class BallWork:
    """The iterations between two passes."""

    method: Iterations | SampledVertices
    allowed: AllowedGaps
    left: int
    """Number of iterations, or samples, that are left."""
    sample: int = 0
    """Number of vertices drawn for each iteration; 0: all are evaluated."""
    required_agreements: int = AGREEMENTS_TO_STOP
    """Number of successive sampled gaps that must be small enough before the method stops."""
    agreements: int = 0
    """Number of successive sampled gaps that were small enough."""
    gap: float = np.inf
    """The last gap, over the vertices of the pool or a sample of them."""

    def is_done(self) -> bool:
        """Return whether the last gap is small enough."""
        return self.gap <= max(self.allowed.epsilon, self.allowed.relative * self.method.f)


def agreements_to_stop(starts: int) -> int:
    """Return the number of successive small sampled gaps at which the method stops, if it was started ``starts`` times
    before.
    """
    return AGREEMENTS_TO_STOP << min(max(0, starts - 1), MAX_DOUBLINGS)


def advance(work: BallWork, seed: int) -> bool:
    """Make some iterations. Return whether the gap, or enough successive sampled gaps, are small enough. Changes
    ``work``.
    """
    if isinstance(work.method, SampledVertices):
        return _advance_from_samples(work, work.method, seed)
    for _ in range(min(ITERATIONS_IN_STEP, work.left)):
        work.gap = work.method.gap()
        if work.is_done():
            return True
        work.method.advance()
        work.left -= 1
    return False


def _advance_from_samples(work: BallWork, method: SampledVertices, seed: int) -> bool:
    size, draw = len(method.vertices.diagonal), np.random.default_rng((seed, method.count, work.left))
    for _ in range(min(ITERATIONS_IN_STEP, work.left)):
        work.gap = method.find_vertices(draw.integers(0, size, work.sample), draw)
        work.left -= 1
        work.agreements = work.agreements + 1 if work.is_done() else 0
        if work.agreements >= work.required_agreements:
            return True
        if work.agreements == 0:
            method.advance()
    return False


def weights_of_vertices(work: BallWork) -> Float64:
    """Return the weights of all vertices (2 m,), with the sum 1."""
    if isinstance(work.method, SampledVertices):
        return work.method.weights()
    result: Float64 = work.method.a / work.method.a.sum()
    return result


def weights_at(w: Float64, v: Float64, radius: float) -> Float64:
    """Return weights of the vertices (2 m,) for w (m,). The rest of the sum 1 is divided between the two vertices of
    the column with the largest |v_j|.
    """
    a = np.concatenate([np.maximum(w, 0.0), np.maximum(-w, 0.0)]) / radius
    j, rest = int(np.abs(v).argmax()), max(0.0, 1.0 - float(a.sum()))
    a[[j, j + len(w)]] += 0.5 * rest
    result: Float64 = a / a.sum()
    return result


# Passes


@saved_as("l1_ball.state")
@dataclass(slots=True)
class BallState:
    """The state of ``OnL1Ball``. Arrays are float64; p = columns + 1, m columns of the pool, with the constant feature
    last.
    """

    problem: Problem
    point: Float64
    """(p,) the weights that the pass evaluates, in the ball."""
    evaluation: Total[PointSums]
    """The sums of the pass at ``point``."""
    pool: Int64
    """(m - 1,) the columns of the pool, rising; empty before it is chosen."""
    computes_gram: bool = False
    """Whether the pass accumulates X'SX of the pool."""
    gram_so_far: Total[Float64 | None] = None
    """(m, m) X'SX of the pool over the blocks visited so far; None before the first."""
    gram: DriverOnly[Float64 | None] = None
    """(m, m) X'SX of the pool and the constant feature; None before the pass that accumulates it has ended."""
    best: Float64 | None = None
    """(p,) the evaluated weights with the least P, which are the solution; None before the end of the first pass."""
    primal: float = np.inf
    """P of ``best``."""
    dual: float = 0.0
    """The largest D so far; at first that of a = 0."""
    work: DriverOnly[BallWork | None] = None
    """The work in memory before the next pass; None: nothing is left to do."""
    iterations: int = 0
    """Number of iterations so far."""
    reached_gap: float = np.inf
    """The gap over the vertices of the pool at which the method stopped; inf before the first stop."""
    starts: int = 0
    """Number of times that iterations were started after a pass."""
    certifying: bool = False
    """Whether this is the last pass, which only evaluates."""
    deadline: float = np.inf
    """The time of ``time.perf_counter`` at which work in memory must stop."""
    passes: int = 0
    """Number of completed passes."""
    facts: dict[str, float] = field(default_factory=dict)
    """The facts that are reported of the last pass."""


@dataclass(frozen=True, slots=True)
class OnL1Ball(ColumnPoolSolver):
    """A Frank-Wolfe method on the l1 ball, with the settings of ``FrankWolfe`` that apply to it."""

    variant: str = "partan"
    """``fw``, ``mfw``, ``swap`` or ``partan``."""
    open_step: bool = False
    """Whether steps toward a vertex have the length 2 / (k + 2)."""
    sample: int = 0
    """Number of vertices drawn to choose a vertex from; 0: all."""
    iterations: int = 100_000
    """Maximum number of iterations between two passes."""
    epsilon: float = 0.0
    """The Frank-Wolfe gap at which the solver may stop, too; 0: only the relative gap counts."""
    seed: int = 0
    """Seed for drawing vertices."""
    away: str = "exact"
    """How mfw and swap with a sample choose the vertex to take weight from (``StepsFromSamples.away``)."""
    driver_fields: ClassVar[tuple[str, ...]] = find_driver_fields(BallState)
    losses: ClassVar[LossRequirement] = LossRequirement(smooth=True, box=False, quadratic=True, numeric=True)
    """Least squares; other losses with these properties are refused when the problem is built."""

    def cost(self, problem: Problem, layout: Layout) -> Cost:
        """Return the bytes of the matrices of the pool, of vectors, and of the pool's columns of a block."""
        p, m = problem.columns + 1, self.columns(problem) + 1
        return Cost(
            fixed=8 * (P_SIZED_ARRAYS * p + M_BY_M_ARRAYS * m * m + VERTEX_ARRAYS * 2 * m),
            per_block_row=48 + (4 * m if layout.dense else 8 * m),
            per_part=8 * (4 * p + m * m),
        )

    def start(self, problem: Problem) -> BallState:
        """Return the state at w = 0, or at the warm-start weights, scaled into the ball. If all columns fit in the
        pool, the first pass accumulates X'SX.
        """
        w = problem.first_weights()
        largest = smallest_keys(-np.abs(w[:-1]), self.columns(problem))  # all nonzero weights must be in the pool
        w[np.setdiff1d(np.arange(problem.columns), largest)] = 0.0
        norm = float(np.abs(w).sum())
        if norm > _radius(problem):
            w *= _radius(problem) / norm
        state = BallState(problem, w, PointSums(len(w)), np.empty(0, np.int64))
        if self.columns(problem) == problem.columns:
            state.pool, state.computes_gram = np.arange(problem.columns), True
        return state

    def visit(self, state: BallState, block: Block) -> None:
        """Add the block to the sums at the point and to X'SX of the pool."""
        problem = state.problem
        state.evaluation.add(problem, problem.loss, block, state.point)
        if state.computes_gram:
            S = (problem.C * problem.loss.second_derivative(0.0)) * block.s.astype(np.float64)
            gram = gram_of_pool(block.X, S, state.pool, problem.columns)
            state.gram_so_far = add_to_sum(state.gram_so_far, gram)

    def set_deadline(self, state: BallState, moment: float) -> None:
        """Stop iterations at ``moment``."""
        state.deadline = moment

    def finish(self, state: BallState) -> Certificate:
        """Return P and D, which are exact, and start iterations in memory or choose the columns of the next pool."""
        problem, evaluation = state.problem, state.evaluation.close(state.problem, state.point)
        t, v = _radius(problem), evaluation.v
        gap = evaluation.primal - (evaluation.sums.linear - t * float(np.abs(v).max()) - evaluation.sums.quadratic)
        if evaluation.primal < state.primal:
            state.primal, state.best = evaluation.primal, state.point.copy()
        state.dual = max(state.dual, evaluation.dual)
        state.passes += 1
        final = gap <= self.epsilon
        if final:
            state.primal, state.best = evaluation.primal, state.point.copy()
        state.facts = {
            "iterations": state.iterations,
            "simplex_gap": gap,
            "seen_gap": max(0.0, min(state.reached_gap, gap)),
            "pool": len(state.pool),
        }
        done = final or state.certifying or state.primal - state.dual <= problem.tolerance * state.primal
        if not done:
            self._continue(state, evaluation, gap)
        state.certifying = False
        clear_totals(state)
        used = 0 if state.best is None else int(np.count_nonzero(state.best[:-1]))
        return Certificate(state.primal, state.dual, final=final, facts={**state.facts, "columns_used": used})

    def _continue(self, state: BallState, evaluation: PointEvaluation, gap: float) -> None:
        """Start iterations on the pool if its X'SX is known and its gap is a large part of the gap over all columns.
        Otherwise choose the next pool.
        """
        v, is_new = evaluation.v, state.gram_so_far is not None
        if is_new:
            state.gram, state.gram_so_far, state.computes_gram = state.gram_so_far, None, False
        pool_gap = gap - _radius(state.problem) * (
            float(np.abs(v).max()) - float(np.abs(v[components_of(state.pool, state.problem)]).max())
        )
        if state.gram is not None and (is_new or len(state.pool) == state.problem.columns or pool_gap > SHARE * gap):
            self._begin(state, evaluation)
            return
        state.pool, state.gram, state.computes_gram = self._choose_pool(state, v), None, True
        inside = components_of(state.pool, state.problem)
        state.point, kept = np.zeros_like(state.point), state.point[inside]
        state.point[inside] = kept

    def _choose_pool(self, state: BallState, v: Float64) -> Int64:
        """Return the columns with nonzero weights, at most MAX_USED_SHARE of the pool, and those with the largest
        |v_j|.
        """
        size, weights = self.columns(state.problem), np.abs(state.point[:-1])
        used = smallest_keys(-weights, min(int(np.count_nonzero(weights)), max(1, int(MAX_USED_SHARE * size))))
        rank = -np.abs(v[:-1])
        rank[used] = -np.inf
        return np.sort(smallest_keys(rank, size))

    def _begin(self, state: BallState, evaluation: PointEvaluation) -> None:
        """Start iterations at the point, on the vertices of the pool, with f and g of the pass."""
        where, t, gram = components_of(state.pool, state.problem), _radius(state.problem), state.gram
        assert gram is not None  # ``_continue`` has checked it
        w, v = state.point[where], evaluation.v[where]
        moments = gram @ w + v
        vertices = Vertices(gram, moments, float(w @ moments) + evaluation.sums.linear, t)
        steps = (self.variant, self.open_step, state.iterations)
        method: Iterations | SampledVertices
        if self.sample:
            method = SampledVertices(vertices, *steps, away=self.away)
            method.begin(weights_at(w, v, t), evaluation.primal)
        else:
            g = np.concatenate([-t * v, t * v]) + evaluation.sums.linear
            method = Iterations(weights_at(w, v, t), g, vertices, *steps)
        relative = SHARE * state.problem.tolerance if self.epsilon == 0.0 else 0.0
        allowed, required_agreements = AllowedGaps(SHARE * self.epsilon, relative), agreements_to_stop(state.starts)
        state.work, state.starts = (
            BallWork(method, allowed, self.iterations, self.sample, required_agreements),
            state.starts + 1,
        )

    def has_pending_steps(self, state: BallState) -> bool:
        """Return whether iterations are left to make."""
        return state.work is not None

    def make_step(self, state: BallState) -> None:
        """Make some iterations. When the method has stopped, make its weights the point of the next pass."""
        work = state.work
        assert work is not None  # a step is pending
        if not advance(work, self.seed) and work.left > 0 and time.perf_counter() < state.deadline:
            return
        method, m, a = work.method, len(state.pool) + 1, weights_of_vertices(work)
        state.point = np.zeros_like(state.point)
        state.point[components_of(state.pool, state.problem)] = _radius(state.problem) * (a[:m] - a[m:])
        state.iterations, state.reached_gap, state.work = method.count, work.gap, None

    def certify(self, state: BallState) -> None:
        """Make the next pass only evaluate."""
        state.certifying = True

    def current_weights(self, state: BallState) -> Float64:
        """Return the evaluated weights with the least P so far."""
        return (state.point if state.best is None else state.best).copy()

    def solution(self, state: BallState) -> LinearSolution:
        """Return the evaluated weights with the least P."""
        return LinearSolution(self.current_weights(state), state.problem.bias)


def _radius(problem: Problem) -> float:
    """Return the radius r."""
    assert isinstance(problem.regularizer, L1Ball)  # ``L1Ball.adapt`` alone makes this solver
    return problem.regularizer.radius
