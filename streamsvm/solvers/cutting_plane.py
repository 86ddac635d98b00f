"""The cutting-plane method: a piecewise linear lower bound of the loss sum is minimized in memory between two passes,
and every pass makes a line search.

    P(w) = 1/2 ||w||^2 + C sum_i s_i l(y_i w.x_i)  >=  1/2 ||w||^2 + max_k (g_k - v_k.w)

A pass evaluates points of the segment from the best point to the minimizer of the model: P at a grid of step lengths
(``LineSearch``; exact for the hinge), and at a few of them the planes that touch the loss sum
(``solvers.line_search``), which are added to the model. The published methods add the plane at the minimizer of the
model (SVMperf: Joachims, KDD 2006; BMRM: Teo et al., JMLR 11, 2010), or at a point between it and the best point (OCAS:
Franc and Sonnenburg, JMLR 10, 2009, algorithm 2). Here one pass computes both, and planes at points between. The
minimum of the model is the lower bound. For smooth losses the few points are evaluated without the grid.

**Planes.** With a_i = -C_i l'(m_i) at any point, g = sum_i (a_i - conjugate(a_i)) and v = sum_i a_i y_i x_i,

    C sum_i s_i l(y_i w.x_i) >= g - v.w     for all w, with equality at that point,

by Fenchel and Young. The model min_w 1/2 ||w||^2 + max_k (g_k - v_k.w) has the dual

    max_theta  theta.g - 1/2 ||sum_k theta_k v_k||^2,     theta >= 0, sum theta = 1,      w = sum_k theta_k v_k

(Joachims, KDD 2006; Teo et al., JMLR 11, 2010, (8), where planes are divided by C and the simplex is multiplied by C).
The value at every such theta is a lower bound of P: sum_k theta_k a_k is a feasible dual point with at least this
value. l >= 0 is a plane, too: g = 0, v = 0. If there are too many planes, those with the smallest theta are removed,
and the mean of all planes, weighted by theta, is added (Kiwiel's aggregation), so that the bound does not fall.

**The dual of the model**, with G = (v_k.v_l), has as many variables as there are planes and is solved in float64
(``minimize_model``):

    min_theta 1/2 theta' G theta - g' theta,     theta >= 0, sum theta = 1

by a primal-dual interior-point method from a feasible start (Mehrotra's predictor and corrector, SIAM J. Optimization
1992). With the slopes z = G theta - g - lambda > 0, theta' z is the distance to the minimum. One step length for theta
and z preserves the equations.
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

MAX_ITERATIONS = 80
"""Maximum number of interior-point iterations; about 20 are usual."""
BOUNDARY_SHARE = 0.995
"""The fraction of the distance to the nearest bound that an iteration covers."""
ROUNDING = 1e-17
"""The least theta'z, relative to the largest entry, that float64 can distinguish from 0."""
MAX_SLOPE = 1e50
"""The largest slope ||v|| of a plane. With a steeper plane, squares of the resulting numbers would overflow."""
GRID = np.concatenate([[0.0], np.geomspace(1e-4, 4.0, 160)])
"""Step lengths in steps of 7 %. Near its minimum, a convex function changes by less than the square of that. The best
length may be above 1."""
PLANES, MIN_PLANES = 256, 32
"""The default and the least useful number of planes."""
P_SIZED_ARRAYS = 40
"""Number of (p,) arrays in memory: the sums at every step with copies, and points."""
COPIES = 3
"""Number of copies of the planes while some are added or removed."""
K_BY_K_ARRAYS = 6
"""Number of (K, K) arrays in memory while the model is minimized."""
MODEL_SHARE, LEAST_SHARE = 0.02, 1e-15
"""The model is minimized to the first fraction of the allowed gap, but not below the second fraction of P."""


def minimize_model(G: Float64, g: Float64, target_gap: float) -> Float64:
    """Return a feasible theta (K,) with a value at most ``target_gap`` above the minimum, or as close as rounding
    allows.

    ``G`` (K, K) is positive semidefinite, ``g`` is (K,).
    """
    scale = max(float(np.abs(G).max()), float(np.abs(g).max())) or 1.0
    G, g, target_gap = G / scale, g / scale, max(target_gap / scale, ROUNDING)
    theta = np.full(len(g), 1.0 / len(g))
    slopes = G @ theta - g
    z = slopes - slopes.min() + max(float(np.ptp(slopes)), 1e-3)
    for _ in range(MAX_ITERATIONS):
        if float(theta @ z) <= target_gap:
            break
        step = _newton_step(G, theta, z)
        if step is None:
            break
        theta, z = theta + step[0], z + step[1]
    return theta / theta.sum()


def _newton_step(G: Float64, theta: Float64, z: Float64) -> tuple[Float64, Float64] | None:
    """Return the changes of theta and z; None if the matrix is not positive definite because of rounding."""
    try:
        factor = np.linalg.cholesky(G + np.diag(z / theta))
    except np.linalg.LinAlgError:
        return None
    ones = solve_factorized(factor, np.ones(len(z)))

    def directions(product: Float64) -> tuple[Float64, Float64]:
        """Return the first-order changes for which theta z becomes ``product``."""
        solution = solve_factorized(factor, product / theta - z)
        multiplier = -solution.sum() / ones.sum()
        change = solution + multiplier * ones
        return change, G @ change - multiplier

    dtheta, dz = directions(np.zeros_like(z))
    mean, length = float(theta @ z) / len(z), _max_step(theta, z, dtheta, dz)
    predicted = float((theta + length * dtheta) @ (z + length * dz)) / len(z)
    dtheta, dz = directions((max(predicted, 0.0) / mean) ** 3 * mean - dtheta * dz)
    length = min(1.0, BOUNDARY_SHARE * _max_step(theta, z, dtheta, dz))
    return (length * dtheta, length * dz) if np.isfinite(length) and length > 0.0 else None


def _max_step(theta: Float64, z: Float64, dtheta: Float64, dz: Float64) -> float:
    """Return the largest step length for which theta and z stay positive, at most 1 / BOUNDARY_SHARE."""
    values, change = np.concatenate([theta, z]), np.concatenate([dtheta, dz])
    falling = change < 0.0
    return min(1.0 / BOUNDARY_SHARE, float((values[falling] / -change[falling]).min())) if falling.any() else 1.0


@saved_as("cutting_plane.bundle")
@dataclass(slots=True)
class Bundle:
    """K cutting planes of the loss sum. Arrays are float64; p = columns + 1."""

    components: int
    """p."""
    limit: int
    """Maximum number of planes."""
    g: Float64 = field(default_factory=lambda: np.zeros(1))
    """(K,) the constants of the planes."""
    V: Float64 = field(init=False)
    """(K, p) the negative slopes of the planes."""
    gram: Float64 = field(default_factory=lambda: np.zeros((1, 1)))
    """(K, K) V V'."""
    theta: Float64 = field(default_factory=lambda: np.ones(1))
    """(K,) the solution of the last minimization of the model."""

    def __post_init__(self) -> None:
        self.V = np.zeros((1, self.components))

    def add(self, g: Float64, V: Float64) -> int:
        """Add the planes g (J,) and V (J, p), except those that are too steep, and return the number of added planes.
        ``limit`` must be above J + 1.
        """
        steepness = np.square(V / MAX_SLOPE).sum(axis=1)
        usable = np.isfinite(g) & (steepness <= 1.0)
        g, V = g[usable], V[usable]
        if not len(g):
            return 0
        if len(self.g) + len(g) > self.limit:
            self._aggregate(self.limit - len(g) - 1)
        self._append(g, V)
        return len(g)

    def solve(self, target_gap: float) -> tuple[Float64, float]:
        """Return the minimizer (p,) of the model, and a lower bound of its minimum that is at most ``target_gap`` below
        it.
        """
        self.theta = minimize_model(self.gram, self.g, target_gap)
        w = self.theta @ self.V
        return w, float(self.theta @ self.g) - 0.5 * float(w @ w)

    def _append(self, g: Float64, V: Float64) -> None:
        self.V = np.concatenate([self.V, V])
        across = self.V @ V.T
        self.gram = np.block([[self.gram, across[: -len(g)]], [across.T]])
        self.g = np.concatenate([self.g, g])
        self.theta = np.concatenate([self.theta, np.zeros(len(g))])

    def _aggregate(self, number: int) -> None:
        """Keep the ``number`` planes with the largest theta, and add the mean of all planes, weighted by theta."""
        mean = float(self.theta @ self.g), self.theta @ self.V
        kept = np.sort(np.argsort(-self.theta, kind="stable")[:number])
        self.g, self.V, self.theta = self.g[kept], self.V[kept], self.theta[kept]
        self.gram = self.gram[np.ix_(kept, kept)]
        self._append(np.array([mean[0]]), mean[1][None])


@saved_as("cutting_plane.line_search")
@dataclass(slots=True)
class LineSearch:
    """OCAS's line search out of core: P at many points of the segment, from sums of one pass, in float64.

    For piecewise linear losses: max(0, k - m), or for regression one line on each side.
    """

    sums: Total[Float64] = field(default_factory=lambda: np.zeros((2, len(GRID) + 1, 2)))
    """(2, J + 1, 2) the sums of ``breakpoints_pass`` over the intervals of the grid."""

    def add(self, problem: Problem, block: Block, f: Float64, df: Float64) -> None:
        """Add the rows of a block with the decision values f + t df (n,)."""
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
    """The state of ``CuttingPlane``. A pass evaluates points ``point + t direction``. Arrays are float64; p = columns +
    1.
    """

    problem: Problem
    point: Float64
    """(p,) the best point of all passes so far. It is the solution."""
    direction: Float64
    """(p,) the direction from ``point`` to the minimizer of the model; 0 in the first pass."""
    sums: Total[SegmentSums]
    """The sums of the pass at a few points: values and planes."""
    line: Total[LineSearch]
    """The sums of the pass for P at many points."""
    bundle: DriverOnly[Bundle | None] = None
    """The planes; None before the end of the first pass, and in the parts of a pass."""
    primal: float = np.inf
    """P of ``point``; inf before the first pass."""
    dual: float = 0.0
    """The largest lower bound so far; at first that of l >= 0."""
    facts: dict[str, float] = field(default_factory=dict)
    """The facts that are reported of the last pass."""


@dataclass(frozen=True, slots=True)
class CuttingPlane(SegmentSolver):
    """The cutting-plane method (OCAS and BMRM)."""

    planes: Annotated[
        int | None,
        Option(
            f"Maximum number of planes; a pass adds up to {len(STEPS)}. The least important ones are aggregated.",
            bounds=Bounds(least=len(STEPS) + 2),
            default=str(PLANES),
        ),
    ] = None
    driver_fields: ClassVar[tuple[str, ...]] = find_driver_fields(CuttingPlaneState)
    halved: ClassVar[str] = "planes"

    def count_kept(self, problem: Problem) -> int:
        """Return the maximum number of planes."""
        return self.planes or PLANES

    def min_kept(self, problem: Problem) -> int:
        """Return the least useful number of planes."""
        return MIN_PLANES

    def cost(self, problem: Problem, layout: Layout) -> Cost:
        """Return the bytes of the planes, of their Gram matrix and of vectors."""
        p, planes = problem.columns + 1, self.count_kept(problem)
        fixed = 8 * (p * (COPIES * planes + P_SIZED_ARRAYS) + K_BY_K_ARRAYS * planes * planes)
        return Cost(fixed=fixed, per_block_row=32)

    def start(self, problem: Problem) -> CuttingPlaneState:
        """Return the state at w = 0, or at the warm-start weights. The first pass evaluates this point alone."""
        p = problem.columns + 1
        return CuttingPlaneState(problem, problem.first_weights(), np.zeros(p), SegmentSums(p), LineSearch())

    def visit(self, state: CuttingPlaneState, block: Block) -> None:
        """Add the block to the sums along the segment."""
        f, df = state.sums.add(state.problem, block, state.point, state.direction)
        if not state.problem.loss.smooth():
            state.line.add(state.problem, block, f, df)

    def finish(self, state: CuttingPlaneState) -> Certificate:
        """Move to the best point of the segment, and minimize the model with the new planes."""
        point, direction, problem = state.point, state.direction, state.problem
        best = state.sums.close(point, direction)
        state.point, state.primal, step = best.w, best.primal, best.step
        if not problem.loss.smooth():
            grid_step, primal = state.line.close(point, direction)
            if primal < best.primal:
                state.point, state.primal, step = point + grid_step * direction, primal, grid_step
        bundle = state.bundle = state.bundle or Bundle(problem.columns + 1, self.count_kept(problem))
        added = bundle.add(*state.sums.planes())
        candidate, bound = bundle.solve(max(MODEL_SHARE * problem.tolerance, LEAST_SHARE) * state.primal)
        state.direction, state.dual = candidate - state.point, max(state.dual, bound, best.dual)
        state.facts = {"step": step, "planes": len(bundle.g)}
        clear_totals(state)
        # without a new plane the model would not change any more
        return Certificate(state.primal, state.dual, final=not added, facts=dict(state.facts))
