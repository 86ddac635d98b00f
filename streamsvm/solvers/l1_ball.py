"""Least squares over the l1 ball, out of core, by Frank-Wolfe, with away steps, with swaps, and by parallel tangents.

    min P(w) = sum_i C_i l(w.x_i - t_i)   subject to  ||w||_1 <= r,      l a multiple of m^2;      S_i = C_i l''

A reading evaluates: P, the slopes a_i = -C_i l'(m_i) and v = X'a = -grad P give the Frank-Wolfe gap w.grad + r max
|grad_j|, which is P - D at these slopes; of their multiples the best is D (``regularizers.py``). The same reading sums
up X'SX of a pool of columns, all of them where the matrix has room, else those with the largest |v_j| and those in use;
f and its gradient at all points of the pool's part of the ball follow from it, so that the iterations need no reading.
In the randomized regime (``sample``) they look at a sample of the vertices; the next reading says what the gap is over
all of them.

**The problem on the simplex** (PARTAN paper, section 2.3). With y the targets t the problem is

    min 1/2 sum_i S_i (w.x_i - y_i)^2     subject to  ||w||_1 <= r,

and w = r sum_j (a_j+ - a_j-) e_j with sum a = 1, a >= 0 is the whole ball, its corners the vertices +-r e_j. Since
sum a = 1 the residuals are sum_k a_k (A_k - y), A_k = +-r X_j, so that the problem is the one of
``kernel/frank_wolfe.py``,

    f(a) = 1/2 a'Ka,    K_kl = (A_k - y)'S (A_l - y) = r^2 z_k z_l Q_kl - r z_k c_k - r z_l c_l + y'Sy,     z = +1 or -1,

with Q = X'SX and c = X'Sy: all that the steps in memory need, whatever the number of rows. With R the residuals
g = Ka is +-r X'SR - y'SR, and 2 f - min g is the Frank-Wolfe gap max_u (w - u)'grad f.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import ClassVar, NamedTuple

import numpy as np

from streamsvm.aliases import Array
from streamsvm.class_tags import saved_as
from streamsvm.compute.passes.frank_wolfe import Tangent
from streamsvm.compute.random import smallest_keys
from streamsvm.rows import Float64, Int64
from streamsvm.solvers.column_pool import ColumnPoolSolver, components_of, gram_of_pool
from streamsvm.solvers.evaluation import PointEvaluation, PointSums, add_to_sum
from streamsvm.solvers.kernel.frank_wolfe import Iterations, StepsFromSamples
from streamsvm.solvers.regularizers import L1Ball
from streamsvm.types import Block, Certificate, Cost, Layout, LinearSolution, LossRequirement, Problem
from streamsvm.types.state import DriverOnly, Total, clear_totals, find_driver_fields

MAX_USED_SHARE = 0.75
"""A pool that does not hold all columns has this share of columns in use at most; a solution with more is not found,
and the certificate says so."""
VECTORS = 24
"""Vectors of length p in memory: points, sums, their rounding."""
VERTEX_VECTORS = 16
"""Vectors of 2 m numbers in an iteration."""
MATRICES = 3
"""Matrices of m by m numbers in memory: X'SX, that of a block, its scratch."""
SHARE = 0.5
"""Iterations stop at this share of the gap that is asked for; a pool is worked on again if the gap in it is this share
of that over all columns."""
SPARE_MEMBERS = 128
"""Places for more vertices than have weight."""
ITERATIONS_IN_STEP = 2048
"""Iterations between two checks whether the run is to be saved, or to stop."""
AGREEMENTS_TO_STOP = 2
"""Sampled gaps that are small enough, one after the other, that stop the randomized regime: twice as many after each
stop at which a reading finds that the gap over all columns is not."""
MAX_DOUBLINGS = 16
"""More samples than these doublings ask for are not to be had between two passes."""


# The problem on the simplex, and iterations in memory


@saved_as("l1_ball.vertices")
@dataclass(slots=True)
class Vertices:
    """The 2 m vertices of m columns, first all +r e_j, then all -r e_j, and K between them."""

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
        own, moments = self.radius**2 * np.diagonal(self.gram), 2.0 * self.radius * self.moments
        self.diagonal = np.concatenate([own - moments, own + moments]) + self.square

    def column(self, k: int, g: Float64) -> Float64:
        """Return K_k (2 m,); ``g`` does not matter."""
        m, t = len(self.moments), self.radius
        sign = 1.0 if k < m else -1.0
        own = (t * t * sign) * self.gram[k % m] - t * self.moments
        offset = self.square - t * sign * float(self.moments[k % m])
        result: Float64 = np.concatenate([own, -own])
        result += offset
        return result

    def between(self, some: Int64, others: Int64) -> Float64:
        """Return K between vertices (k,) and others (l,): (k, l)."""
        m, t = len(self.moments), self.radius
        z, u = np.where(some < m, t, -t), np.where(others < m, t, -t)
        Q = self.gram[np.ix_(some % m, others % m)]
        found: Float64 = z[:, None] * Q * u
        found += self.square - (z * self.moments[some % m])[:, None] - u * self.moments[others % m]
        return found


@saved_as("l1_ball.sampled_iterations")
@dataclass
class SampledVertices(StepsFromSamples):
    """Iterations that compute g of a sample of the vertices, from those with weight alone."""

    vertices: Vertices
    variant: str
    open_step: bool = False
    count: int = 0
    members: list[int] = field(default_factory=list)
    size: int = 0
    a: Float64 = field(default_factory=lambda: np.empty(0))
    f: float = 0.0
    tangent: Tangent | None = None
    before: Float64 = field(default_factory=lambda: np.empty(0))
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
        """Begin at the weights (2 m,) of all vertices, where f is given."""
        self.members = np.flatnonzero(weights).tolist()
        self.size, self.f, self._diagonal = len(self.members), f, self.vertices.diagonal
        self._place = np.full(len(weights), -1, np.int64)
        self._place[self.members] = np.arange(self.size)
        self.a = np.concatenate([weights[self.members], np.zeros(self.size + SPARE_MEMBERS)])
        self.before = self.a.copy()
        if self.away == "exact":
            places = np.array(self.members, np.int64)
            self._gradients = self.a[: self.size] @ self.vertices.between(places, places)

    def weights(self) -> Float64:
        """Return the weights of all vertices (2 m,), which sum to 1."""
        found = np.zeros(len(self._place))
        found[self.members] = self.a[: self.size]
        result: Float64 = found / found.sum()
        return result

    def _kernel(self, asked: Int64) -> Array:
        return self.vertices.between(np.array(self.members, np.int64), asked)

    def _gradient(self, K: Array, asked: Int64, a: Float64) -> Float64:
        found: Float64 = a[: self.size] @ K
        return found

    def _entry(self, K: Array, k: int) -> float:
        return float(K[self._place[self.away_vertex], k])

    def _column(self, K: Array, k: int, vertex: int) -> Float64:
        return np.array(K[:, k])

    def _append(self, vertex: int) -> None:
        """Do nothing: K is at hand."""


@saved_as("l1_ball.allowed")
class Allowed(NamedTuple):
    """The gaps at which the method may stop."""

    epsilon: float
    """A gap that will do whatever f is; 0: none will."""
    relative: float
    """A gap of this share of f will do."""


@saved_as("l1_ball.work")
@dataclass(slots=True)
class BallWork:
    """A method under way between two passes."""

    method: Iterations | SampledVertices
    allowed: Allowed
    left: int
    """Iterations, or samples, that may still be made."""
    sample: int = 0
    """Vertices drawn each time; 0: all are evaluated."""
    agreements: int = AGREEMENTS_TO_STOP
    """Sampled gaps that must be small enough, one after the other, before it stops."""
    agreed: int = 0
    """How many of the last ones were."""
    gap: float = np.inf
    """The last gap, as the method saw it."""

    def is_done(self) -> bool:
        """Return whether the last gap is small enough."""
        return self.gap <= max(self.allowed.epsilon, self.allowed.relative * self.method.f)


def agreements_to_stop(begun: int) -> int:
    """Return how many samples have to agree where the method has begun ``begun`` times before, and so stopped too
    early.
    """
    return AGREEMENTS_TO_STOP << min(max(0, begun - 1), MAX_DOUBLINGS)


def advance(work: BallWork, seed: int) -> bool:
    """Make some iterations; return whether the gap is small enough, or was in so many samples. Changes ``work``."""
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
        work.agreed = work.agreed + 1 if work.is_done() else 0
        if work.agreed >= work.agreements:
            return True
        if work.agreed == 0:
            method.advance()
    return False


def weights_of_vertices(work: BallWork) -> Float64:
    """Return the weights of all vertices (2 m,), which sum to 1."""
    if isinstance(work.method, SampledVertices):
        return work.method.weights()
    result: Float64 = work.method.a / work.method.a.sum()
    return result


def weights_at(w: Float64, v: Float64, radius: float) -> Float64:
    """Return weights of the vertices (2 m,) that make w (m,); what is left of 1 is on both vertices of the column with
    the largest |v_j|.
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
    """Arrays are float64; p = columns + 1, m columns of the pool, the constant feature the last of them."""

    problem: Problem
    point: Float64
    """(p,) the weights that the pass evaluates, in the ball."""
    evaluation: Total[PointSums]
    """The sums of the pass at ``point``."""
    pool: Int64
    """(m - 1,) columns whose vertices the method works on, rising; empty: not chosen yet."""
    gathering: bool = False
    """Whether the pass sums up X'SX of the pool."""
    gathered: Total[Float64 | None] = None
    """(m, m) that sum over the blocks met so far; None: nothing yet."""
    gram: DriverOnly[Float64 | None] = None
    """(m, m) X'SX of the pool and the constant feature; None before it is known, and where blocks are visited."""
    best: Float64 | None = None
    """(p,) the evaluated weights with the least P, which are the solution; None before the first pass is closed."""
    primal: float = np.inf
    """P of ``best``."""
    dual: float = 0.0
    """The largest D so far; at first that of a = 0."""
    work: DriverOnly[BallWork | None] = None
    """The work in memory before the next pass; None: none is left."""
    iterations: int = 0
    """Iterations made."""
    seen: float = np.inf
    """The gap at which the method stopped, as it saw it itself; inf before it has."""
    begun: int = 0
    """How often a method began to work between two passes."""
    certifying: bool = False
    """Whether the pass is the last one and only evaluates."""
    deadline: float = np.inf
    """The moment of ``time.perf_counter`` at which work in memory ends."""
    passes: int = 0
    """Passes that were closed."""
    facts: dict[str, float] = field(default_factory=dict)
    """What is reported of the last pass."""


@dataclass(frozen=True, slots=True)
class OnL1Ball(ColumnPoolSolver):
    """Settings of a method: those of ``FrankWolfe`` that mean something here."""

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
    """Seed of the draws."""
    away: str = "exact"
    """Where mfw and swap with a sample look for the vertex that weight is taken from (``StepsFromSamples.away``)."""
    driver_fields: ClassVar[tuple[str, ...]] = find_driver_fields(BallState)
    losses: ClassVar[LossRequirement] = LossRequirement(smooth=True, box=False, quadratic=True, numeric=True)
    """Least squares; other losses with these properties are refused where the problem is made."""

    def cost(self, problem: Problem, layout: Layout) -> Cost:
        """Return the bytes of the matrices of the pool, of vectors, and of a block's columns that are in it."""
        p, m = problem.columns + 1, self.columns(problem) + 1
        return Cost(
            fixed=8 * (VECTORS * p + MATRICES * m * m + VERTEX_VECTORS * 2 * m),
            per_block_row=48 + (4 * m if layout.dense else 8 * m),
            per_part=8 * (4 * p + m * m),
        )

    def start(self, problem: Problem) -> BallState:
        """Begin at w = 0, or at the warm weights, scaled into the ball; where all columns fit, sum up X'SX at once."""
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
            state.gathered = add_to_sum(state.gathered, found)

    def set_deadline(self, state: BallState, moment: float) -> None:
        """End iterations at that moment."""
        state.deadline = moment

    def finish(self, state: BallState) -> Certificate:
        """Close the pass: both bounds are exact; begin iterations in memory, or choose the columns to sum up next."""
        problem, found = state.problem, state.evaluation.close(state.problem, state.point)
        t, v = _radius(problem), found.v
        gap = found.primal - (found.sums.linear - t * float(np.abs(v).max()) - found.sums.quadratic)
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
            self._continue(state, found, gap)
        state.certifying = False
        clear_totals(state)
        used = 0 if state.best is None else int(np.count_nonzero(state.best[:-1]))
        return Certificate(state.primal, state.dual, final=final, facts={**state.facts, "columns_used": used})

    def _continue(self, state: BallState, found: PointEvaluation, gap: float) -> None:
        """Work on the pool if its X'SX is known and enough of the gap is in it; else choose the columns the next pass
        sums up.
        """
        v, fresh = found.v, state.gathered is not None
        if fresh:
            state.gram, state.gathered, state.gathering = state.gathered, None, False
        inner = gap - _radius(state.problem) * (
            float(np.abs(v).max()) - float(np.abs(v[components_of(state.pool, state.problem)]).max())
        )
        if state.gram is not None and (fresh or len(state.pool) == state.problem.columns or inner > SHARE * gap):
            self._begin(state, found)
            return
        state.pool, state.gram, state.gathering = self._choose_pool(state, v), None, True
        inside = components_of(state.pool, state.problem)
        state.point, kept = np.zeros_like(state.point), state.point[inside]
        state.point[inside] = kept

    def _choose_pool(self, state: BallState, v: Float64) -> Int64:
        """Return the columns in use, or so many of them that others come in, and those with the largest |v_j|."""
        size, weights = self.columns(state.problem), np.abs(state.point[:-1])
        used = smallest_keys(-weights, min(int(np.count_nonzero(weights)), max(1, int(MAX_USED_SHARE * size))))
        rank = -np.abs(v[:-1])
        rank[used] = -np.inf
        return np.sort(smallest_keys(rank, size))

    def _begin(self, state: BallState, found: PointEvaluation) -> None:
        """Start the method at the point, on the vertices of the pool, with f and g as the pass has found them."""
        where, t, gram = components_of(state.pool, state.problem), _radius(state.problem), state.gram
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
        allowed, agreements = Allowed(SHARE * self.epsilon, relative), agreements_to_stop(state.begun)
        state.work, state.begun = BallWork(method, allowed, self.iterations, self.sample, agreements), state.begun + 1

    def has_pending_steps(self, state: BallState) -> bool:
        """Return whether iterations are to be made."""
        return state.work is not None

    def make_step(self, state: BallState) -> None:
        """Make some iterations; when they have ended, let the next pass evaluate the weights they found."""
        work = state.work
        assert work is not None  # a step is pending
        if not advance(work, self.seed) and work.left > 0 and time.perf_counter() < state.deadline:
            return
        method, m, a = work.method, len(state.pool) + 1, weights_of_vertices(work)
        state.point = np.zeros_like(state.point)
        state.point[components_of(state.pool, state.problem)] = _radius(state.problem) * (a[:m] - a[m:])
        state.iterations, state.seen, state.work = method.count, work.gap, None

    def certify(self, state: BallState) -> None:
        """Let the next pass evaluate only."""
        state.certifying = True

    def candidate(self, state: BallState) -> Float64:
        """Return the best weights so far."""
        return (state.point if state.best is None else state.best).copy()

    def solution(self, state: BallState) -> LinearSolution:
        """Return the best weights that were evaluated."""
        return LinearSolution(self.candidate(state), state.problem.bias)


def _radius(problem: Problem) -> float:
    """Return the radius r."""
    assert isinstance(problem.regularizer, L1Ball)  # what makes this solver of another one
    return problem.regularizer.radius
