"""Cutting planes: a model of the loss sum from below, minimized in memory between readings, and a line search in every
reading.

    P(w) = 1/2 ||w||^2 + C sum_i s_i l(y_i w.x_i)  >=  1/2 ||w||^2 + max_k (g_k - v_k.w)

A pass looks along the segment from the best point to the minimum of the model: P at a grid of step lengths
(``LineSearch``; exact, of the hinge), and at a few of them the planes that touch the loss sum there
(``solvers.line_search``), which make the next model. As published a plane is taken where the model is least (SVMperf:
Joachims, KDD 2006; BMRM: Teo et al., JMLR 11, 2010) or between there and the best point (OCAS: Franc and Sonnenburg,
JMLR 10, 2009, algorithm 2); the same reading brings both, and those between. The model's minimum is the lower bound.
Losses without a corner have the planes and their few points, without the grid.

**Planes.** With a_i = -C_i l'(m_i) at any point, g = sum_i (a_i - conjugate(a_i)) and v = sum_i a_i y_i x_i,

    C sum_i s_i l(y_i w.x_i) >= g - v.w     for all w, with equality at that point,

by Fenchel and Young. The model min_w 1/2 ||w||^2 + max_k (g_k - v_k.w) has the dual

    max_theta  theta.g - 1/2 ||sum_k theta_k v_k||^2,     theta >= 0, sum theta = 1,      w = sum_k theta_k v_k

(Joachims, KDD 2006; Teo et al., JMLR 11, 2010, (8); there the planes are divided by C and the simplex is multiplied by
it). The value at every such theta is below the optimum of P: sum_k theta_k a_k is a feasible dual point, whose own
value is no smaller. l >= 0 is a plane, too: g = 0, v = 0. Where there are too many planes those of the least theta are
left out, and their mean with all others, weighted by theta, stays (Kiwiel's aggregation): the bound does not fall.

**The dual of the model**, with G = (v_k.v_l), has as many variables as there are planes and is solved in float64
(``minimize_model``):

    min_theta 1/2 theta' G theta - g' theta,     theta >= 0, sum theta = 1

by a primal-dual interior point from a feasible start (Mehrotra's predictor and corrector, SIAM J. Optimization 1992):
with the slopes z = G theta - g - lambda > 0, theta' z is what is missing to the minimum. One step length for both keeps
the equations.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, ClassVar

import numpy as np

from streamsvm.class_tags import saved_as
from streamsvm.compute.passes.certificate import RowLoss
from streamsvm.compute.passes.line_search import breakpoints_pass
from streamsvm.config.options import Bounds, Option
from streamsvm.rows import Float64
from streamsvm.solvers.cholesky import solve_factorized
from streamsvm.solvers.line_search import STEPS, SegmentSolver, SegmentState, SegmentSums
from streamsvm.types import Block, Certificate, Cost, Layout, Problem
from streamsvm.types.state import DriverOnly, Total, clear_totals, find_driver_fields

ITERATIONS = 80
"""Iterations of the interior point at most; some 20 are usual."""
SHORT_OF_BOUND = 0.995
"""An iteration goes this share of the way to the nearest bound."""
ROUNDING = 1e-17
"""The least theta'z, relative to the largest entry, that float64 can tell from 0."""
STEEPEST = 1e50
"""The largest slope ||v|| of a plane: the squares of what a steeper one would lead to overflow."""
GRID = np.concatenate([[0.0], np.geomspace(1e-4, 4.0, 160)])
"""Step lengths, 7 % apart: near its minimum a convex function loses less than that squared, and beyond 1 there may be
gain, too."""
PLANES, LEAST_PLANES = 256, 32
"""Planes kept, and how few are of use."""
VECTORS = 40
"""Vectors of length p in memory: the sums at every step, their copies while they are closed, points."""
COPIES = 3
"""Copies of the planes while some are joined or left out."""
MATRICES = 6
"""Matrices of K by K numbers in memory while the model is solved."""
MODEL_SHARE, LEAST_SHARE = 0.02, 1e-15
"""The model is solved to the first share of the gap that is asked for, but to no less than the second share of P."""


def minimize_model(G: Float64, g: Float64, wanted: float) -> Float64:
    """Return theta (K,) of a value at most ``wanted`` above the minimum, or as near as rounding lets it come.

    It is feasible in any case. ``G`` (K, K) is positive semidefinite, ``g`` (K,).
    """
    scale = max(float(np.abs(G).max()), float(np.abs(g).max())) or 1.0
    G, g, wanted = G / scale, g / scale, max(wanted / scale, ROUNDING)
    theta = np.full(len(g), 1.0 / len(g))
    slopes = G @ theta - g
    z = slopes - slopes.min() + max(float(np.ptp(slopes)), 1e-3)
    for _ in range(ITERATIONS):
        if float(theta @ z) <= wanted:
            break
        step = _newton_step(G, theta, z)
        if step is None:
            break
        theta, z = theta + step[0], z + step[1]
    return theta / theta.sum()


def _newton_step(G: Float64, theta: Float64, z: Float64) -> tuple[Float64, Float64] | None:
    """Return the changes of theta and z; None where rounding leaves no positive definite matrix."""
    try:
        factor = np.linalg.cholesky(G + np.diag(z / theta))
    except np.linalg.LinAlgError:
        return None
    ones = solve_factorized(factor, np.ones(len(z)))

    def directions(product: Float64) -> tuple[Float64, Float64]:
        """Return the changes towards theta z = ``product``, to first order."""
        along = solve_factorized(factor, product / theta - z)
        multiplier = -along.sum() / ones.sum()
        change = along + multiplier * ones
        return change, G @ change - multiplier

    dtheta, dz = directions(np.zeros_like(z))
    mean, length = float(theta @ z) / len(z), _max_step(theta, z, dtheta, dz)
    predicted = float((theta + length * dtheta) @ (z + length * dz)) / len(z)
    dtheta, dz = directions((max(predicted, 0.0) / mean) ** 3 * mean - dtheta * dz)
    length = min(1.0, SHORT_OF_BOUND * _max_step(theta, z, dtheta, dz))
    return (length * dtheta, length * dz) if np.isfinite(length) and length > 0.0 else None


def _max_step(theta: Float64, z: Float64, dtheta: Float64, dz: Float64) -> float:
    """Return how far both can go and stay positive, at most 1 / SHORT_OF_BOUND."""
    now, change = np.concatenate([theta, z]), np.concatenate([dtheta, dz])
    falling = change < 0.0
    return min(1.0 / SHORT_OF_BOUND, float((now[falling] / -change[falling]).min())) if falling.any() else 1.0


@saved_as("cutting_plane.bundle")
@dataclass(slots=True)
class Bundle:
    """K planes below the loss sum, and the minimum of the model they make; all arrays are float64, p = columns + 1."""

    components: int
    """p."""
    limit: int
    """Planes at most."""
    g: Float64 = field(default_factory=lambda: np.zeros(1))
    """(K,) the constants."""
    V: Float64 = field(init=False)
    """(K, p) the negative slopes."""
    gram: Float64 = field(default_factory=lambda: np.zeros((1, 1)))
    """(K, K) V V'."""
    theta: Float64 = field(default_factory=lambda: np.ones(1))
    """(K,) where the model was last solved."""

    def __post_init__(self) -> None:
        self.V = np.zeros((1, self.components))

    def add(self, g: Float64, V: Float64) -> int:
        """Add planes, (J,) and (J, p), but those that are too steep; return how many. ``limit`` is above J + 1."""
        steepness = np.square(V / STEEPEST).sum(axis=1)
        usable = np.isfinite(g) & (steepness <= 1.0)
        g, V = g[usable], V[usable]
        if not len(g):
            return 0
        if len(self.g) + len(g) > self.limit:
            self._aggregate(self.limit - len(g) - 1)
        self._append(g, V)
        return len(g)

    def solve(self, wanted: float) -> tuple[Float64, float]:
        """Return the minimum (p,) of the model, and a bound that is at most ``wanted`` below its value."""
        self.theta = minimize_model(self.gram, self.g, wanted)
        w = self.theta @ self.V
        return w, float(self.theta @ self.g) - 0.5 * float(w @ w)

    def _append(self, g: Float64, V: Float64) -> None:
        self.V = np.concatenate([self.V, V])
        across = self.V @ V.T
        self.gram = np.block([[self.gram, across[: -len(g)]], [across.T]])
        self.g = np.concatenate([self.g, g])
        self.theta = np.concatenate([self.theta, np.zeros(len(g))])

    def _aggregate(self, number: int) -> None:
        """Keep ``number`` planes, those of the largest theta, and the mean of all, weighted by theta."""
        mean = float(self.theta @ self.g), self.theta @ self.V
        kept = np.sort(np.argsort(-self.theta, kind="stable")[:number])
        self.g, self.V, self.theta = self.g[kept], self.V[kept], self.theta[kept]
        self.gram = self.gram[np.ix_(kept, kept)]
        self._append(np.array([mean[0]]), mean[1][None])


@saved_as("cutting_plane.line_search")
@dataclass(slots=True)
class LineSearch:
    """OCAS's line search out of core: P at many points of the segment, from sums of one pass, in float64.

    It is for losses made of lines: max(0, k - m), or of a number one on each side.
    """

    sums: Total[Float64] = field(default_factory=lambda: np.zeros((2, len(GRID) + 1, 2)))
    """(2, J + 1, 2) the sums of ``breakpoints_pass`` over the intervals of the grid."""

    def add(self, problem: Problem, block: Block, f: Float64, df: Float64) -> None:
        """Count the rows of a block, whose decision values are f + t df (n,)."""
        cost = RowLoss(problem.C, problem.loss, problem.loss)
        breakpoints_pass(block.y, block.s, f, df, cost, GRID, self.sums)

    def close(self, w: Float64, d: Float64) -> tuple[float, float]:
        """Return the best t of the grid, and P(w + t d), exact up to rounding. All blocks must have been added."""
        ending = self.sums[0, ::-1].cumsum(axis=0)[::-1][1:]
        beginning = self.sums[1].cumsum(axis=0)[:-1]
        lines = ending + beginning
        losses = lines[:, 0] - GRID * lines[:, 1]
        squares = 0.5 * float(w @ w) + GRID * float(w @ d) + 0.5 * GRID**2 * float(d @ d)
        best = int(np.argmin(losses + squares))
        point = w + GRID[best] * d
        return float(GRID[best]), 0.5 * float(point @ point) + float(losses[best])


@saved_as("cutting_plane.state")
@dataclass(slots=True)
class CuttingPlaneState(SegmentState):
    """A pass looks at ``point + t direction``. Arrays are float64; p = columns + 1."""

    problem: Problem
    """What is solved."""
    point: Float64
    """(p,) the best point of the readings so far, which is the solution."""
    direction: Float64
    """(p,) from there to the minimum of the model; 0 in the first pass."""
    sums: Total[SegmentSums]
    """Of the pass, at few steps: values and planes."""
    line: Total[LineSearch]
    """Of the pass, at many steps: values."""
    bundle: DriverOnly[Bundle | None] = None
    """The planes; None before the first pass is closed, and where blocks are visited."""
    primal: float = np.inf
    """P of ``point``; inf before the first pass."""
    dual: float = 0.0
    """The largest bound so far; at first that of l >= 0."""
    facts: dict[str, float] = field(default_factory=dict)
    """What is reported of the last pass."""


@dataclass(frozen=True, slots=True)
class CuttingPlane(SegmentSolver):
    """Settings of the method."""

    planes: Annotated[
        int | None,
        Option(
            f"Planes kept; a reading adds up to {len(STEPS)}. Beyond, those that matter least are joined.",
            bounds=Bounds(least=len(STEPS) + 2),
            default=str(PLANES),
        ),
    ] = None
    driver_fields: ClassVar[tuple[str, ...]] = find_driver_fields(CuttingPlaneState)
    halved: ClassVar[str] = "planes"

    def count_kept(self, problem: Problem) -> int:
        """Return the number of planes."""
        return self.planes or PLANES

    def min_kept(self, problem: Problem) -> int:
        """Return the least number of planes that is of use."""
        return LEAST_PLANES

    def cost(self, problem: Problem, layout: Layout) -> Cost:
        """Return the bytes of the planes, of their Gram matrix, of vectors."""
        p, planes = problem.columns + 1, self.count_kept(problem)
        fixed = 8 * (p * (COPIES * planes + VECTORS) + MATRICES * planes * planes)
        return Cost(fixed=fixed, per_block_row=32)

    def start(self, problem: Problem) -> CuttingPlaneState:
        """Begin at w = 0, or at the warm weights; the first pass evaluates that point alone."""
        p = problem.columns + 1
        return CuttingPlaneState(problem, problem.first_weights(), np.zeros(p), SegmentSums(p), LineSearch())

    def visit(self, state: CuttingPlaneState, block: Block) -> None:
        """Add the block to the sums along the segment."""
        f, df = state.sums.add(state.problem, block, state.point, state.direction)
        if not state.problem.loss.smooth():
            state.line.add(state.problem, block, f, df)

    def finish(self, state: CuttingPlaneState) -> Certificate:
        """Close the pass at the best point of the segment, and minimize the model with the planes it has brought."""
        point, direction, problem = state.point, state.direction, state.problem
        found = state.sums.close(point, direction)
        state.point, state.primal, step = found.w, found.primal, found.step
        if not problem.loss.smooth():
            of_grid, primal = state.line.close(point, direction)
            if primal < found.primal:
                state.point, state.primal, step = point + of_grid * direction, primal, of_grid
        bundle = state.bundle = state.bundle or Bundle(problem.columns + 1, self.count_kept(problem))
        added = bundle.add(*state.sums.planes())
        candidate, bound = bundle.solve(max(MODEL_SHARE * problem.tolerance, LEAST_SHARE) * state.primal)
        state.direction, state.dual = candidate - state.point, max(state.dual, bound, found.dual)
        state.facts = {"step": step, "planes": len(bundle.g)}
        clear_totals(state)
        # without a new plane the model stays what it is
        return Certificate(state.primal, state.dual, final=not added, facts=dict(state.facts))
