"""L-BFGS for smooth losses out of core: many classes and many C in the same passes, by matrix products.

    P(w) = 1/2 ||w||^2 + C sum_i s_i l(m_i),      g = grad P(w) = w - v,      v = sum_i a_i y_i x_i,  a_i = -C_i l'(m_i)

*Given* rows x_i (p components, the constant feature included), their targets and weights. *Changed*: w, and the steps
remembered of the way to it. Every pass evaluates one point of each problem. By the equality of Fenchel and Young the
slopes there are a dual point with

    P(w) - D(a) = 1/2 ||g||^2,

so that every pass certifies without further work; D is taken at the best multiple of a (``Regularizer.bounds``). The
gap stays far above P - P* until late, because directions of large curvature count in ||g||^2 with that curvature.

**One eigenbasis.** The Hessian is I + C X' diag(s l'') X. The first pass also sums X'X = V diag(l) V', which all
classes and all C share, and L-BFGS (Nocedal, Math. Comp. 35, 1980) begins every direction with

    M^-1 = gamma V diag(1 / (1 + C h l)) V',       gamma = s'd / d'M^-1 d of the last step s and change of gradient d.

h stands for the second derivatives of the rows: the largest one the loss has (Boehning, Ann. Inst. Statist. Math. 44,
1992, for the logistic loss) for the first step, later their mean at the point, sum_i s_i l''(m_i) / n: the bound keeps the first
step short, where the mean at w = 0 overshoots, and the mean follows which rows still count. All vectors that L-BFGS keeps are in the
coordinates of V, where M is diagonal: a pass costs a problem two products with V. Columns that are far from 0 or correlated cost no
passes. With more than ``MAX_BASIS`` components, l is the diagonal of X'X and V = I.

**Softmax.** Rows count for class k with the weight q_ik = s_i p_ik (1 - p_ik), most of all those that may be of this class. Their
mean c_k = sum_i q_ik x_i / Q_k, Q_k = sum_i q_ik, is near the mean of the class and far from that of all rows, so that the weight of
the constant feature, in whose direction the curvature is largest, depends on the other weights of the class. With m the mean of all
rows, X'X - n m m' = V diag(l) V', and the sums q_ik x_i as a third product of every pass, L-BFGS begins with

    M_k = I + C h_k (X'X - n m m') + C Q_k c_k c_k',      h_k = Q_k / n,

the Hessian of class k if its rows spread around c_k as all rows do around m; it is diagonal plus one product in the coordinates of V.
It is exact at W = 0. A step M^-1 g is a Newton step, which is too long where p changes along it. The second derivative of the loss
along a step grows by the factor e^(r t) at most, r being the change of decision values, so that the derivative f'(t) along a Newton step is at most
f'(0) (1 - (e^(r t) - 1) / r), which is 0 at t = log(1 + r) / r (compare Bach, Electron. J. Stat. 4, 2010). This is the length that
is tried first, with ``SPREAD`` standard deviations of the change of decision values for r. The mean of the w_k is 0 at the
optimum and at every point: the directions are projected, since M is not the same for all classes.

**Steps** are accepted if P falls by ``DECREASE`` of what the slope promises, up to rounding. One that is not has still
shown a curvature: s and d of it satisfy s'd > 0 as every pair of points of a convex function does, so that L-BFGS remembers
it and the next pass tries the direction that follows, whose length along s is that of the secant. A second step in a row
that is not accepted, or one that was more than ten times too long, tells nothing of the curvature here: the next pass then
tries the minimum of the parabola through both values and the slope (Dennis and Schnabel, section 6.3.2). Each problem has
its own steps, and leaves the passes when it is done.

**Batches.** Problems that the memory has no room for follow when the others are solved. Each begins at the solution of the
same class at the nearest C among these, with the basis that is known, and with the mean of the second derivatives from its first
step on.

**Products.** Decision values of all problems that see the same rows are one matrix product, and so are the sums v, in
the same blocks for any number of threads. They are float32 while the gap is large: a step needs no more. What is
certified is evaluated in float64: the pass after which the gap is expected to be small enough, as it falls by the
square of its last ratio (the gap falls faster and faster near the end), the first pass from given weights, and every pass of small problems and of small tolerances. Only these
certificates are exact, and the solution is the best point of these passes.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, ClassVar, NamedTuple

import numpy as np

from streamsvm.class_tags import saved_as
from streamsvm.compute import threading
from streamsvm.compute.blocks import operators
from streamsvm.compute.blocks.matrix_products import ROWS_PER_PRODUCT, WORKSPACE, add_products, multiply, sum_products
from streamsvm.compute.passes.certificate import RowLoss
from streamsvm.compute.passes.newton import slopes_pass, squares
from streamsvm.config.options import Bounds, Option
from streamsvm.errors import DefectError
from streamsvm.losses import Logistic
from streamsvm.rows import Float64
from streamsvm.solvers.evaluation import NO_SUMS, DualPoint, Sums, add_row_sums, add_to_sum, slopes_at
from streamsvm.solvers.free_bias import ClassWeights
from streamsvm.solvers.softmax import are_ones, dual_values, evaluate_tiles, rows_per_tile, sharpness_of
from streamsvm.type_aliases import Array, RowRecord
from streamsvm.types import (
    Block,
    Certificate,
    Cost,
    Layout,
    LinearSolution,
    LossRequirement,
    Problem,
    Solver,
)
from streamsvm.types.state import DriverOnly, FirstPassTotal, Total, clear_totals, find_driver_fields

STEPS, MANY_STEPS, FEW_STEPS = 10, 30, 4
"""Number of steps remembered: by default, where that is cheap, and at least."""
CHEAP_BYTES = 4 << 20
"""MANY_STEPS are remembered if a problem needs at most this memory for them."""
BOUND_STEPS = 1
"""Number of first steps for which h is the largest second derivative of a loss of margins."""
SPREAD = 3.0
"""Number of standard deviations by which decision values of a softmax are expected to change at most."""
LEAST_CURVATURE = 1e-6
"""Least h relative to the largest second derivative, for points at which hardly any row has a curvature."""
DECREASE = 1e-4
"""A step is accepted if P falls by this fraction of the decrease that the slope promises."""
GROWTH = 2.0
"""Largest ratio of the length that is tried first, at most 1, and that of the last step: where a step had to be shortened
because curvatures had changed along it, the next one would have to be, too."""
SHORTEST, LONGEST = 0.1, 0.5
"""Bounds of the factor by which a step that was not accepted is shortened."""
NOISE, FLOAT32_NOISE = 1e-13, 1e-7
"""Relative rounding error of P that is allowed for when a step is accepted: in float64, and in float32."""
FLOAT32_TOLERANCE = 1e-5
"""Tolerance below which every pass is in float64: gradients in float32 are too inaccurate."""
FLOAT32_WORK = 1 << 20
"""Number of multiplications of a pass below which every pass is in float64."""
EARLY = 5.0
"""A pass is in float64 if the gap is expected to be below this multiple of the tolerance: a pass in float64 that comes too early
takes twice the products, and one in float32 that could have certified is a further reading."""
TINY = 1e-300
"""Least divisor."""
LEAST_PRODUCT = 1e-12
"""A step is remembered if s'd is more than this fraction of d'd / (largest curvature), of which it is 1 or more without
rounding."""
MAX_TRIALS = 20
"""Maximum number of steps in a row that are not accepted, before the history is dropped; twice in a row: the end."""
MAX_BASIS = 4096
"""Largest number of components for which X'X is summed and factorized."""
CENTER_VECTORS = 2
"""Number of vectors of weights that a softmax keeps more: the sums of rows by which classes count, and the centers."""
KEPT_VECTORS, SOLVED_VECTORS, TEMPORARY_VECTORS = 7, 5, 8
"""Number of vectors of weights that a problem keeps besides its steps, that it keeps when it is solved, and that are in memory
while a pass is closed for one."""
TILE_ARRAYS = 4
"""Number of float64 arrays of the decision values of a tile."""
BASIS_MATRICES = 6
"""Number of (p, p) float64 matrices in memory while X'X is factorized."""


@saved_as("lbfgs.basis")
class Basis(NamedTuple):
    """The eigenvalues and eigenvectors of X'X, or of X'X - n m m'; or the diagonal, with unit vectors."""

    values: Float64
    """l, (p,)."""
    vectors: Float64 | None
    """V, (p, p); None: V = I."""
    mean: Float64 | None = None
    """(p,) m in the coordinates of V; None: rows are not centered."""
    rows: float = 0.0
    """n."""

    def coordinates(self, W: Float64) -> Float64:
        """Return W V, (q, p)."""
        return W if self.vectors is None else W @ self.vectors

    def weights(self, U: Float64) -> Float64:
        """Return U V', (q, p)."""
        return U if self.vectors is None else U @ self.vectors.T


def factorize(gram: Float64, totals: Float64 | None = None) -> Basis:
    """Return the eigenbasis of X'X (p, p), or the basis of unit vectors for its diagonal (p,); that of centered rows if their
    sum and number (p + 1,) are given.
    """
    if totals is not None:
        rows = float(totals[-1])
        mean = totals[:-1] / rows
        gram = gram - rows * (mean * mean if gram.ndim == 1 else np.outer(mean, mean))
    if gram.ndim == 1:
        basis = Basis(np.maximum(gram, 0.0), None)
    else:
        values, vectors = np.linalg.eigh(gram)
        basis = Basis(np.maximum(values, 0.0), np.ascontiguousarray(vectors))
    return basis if totals is None else basis._replace(mean=basis.coordinates(mean), rows=rows)


@saved_as("lbfgs.step")
class Step(NamedTuple):
    """A step, in the coordinates of the basis."""

    s: Float64
    """(q, p) the step."""
    d: Float64
    """(q, p) the change of the gradient."""
    product: float
    """s'd > 0."""


@saved_as("lbfgs.search")
@dataclass(slots=True)
class Search:
    """What L-BFGS knows of its accepted point, the step under way, and the steps before. Vectors are (q, p) float64."""

    primal: float
    """P of the accepted point."""
    noise: float
    """Bound of the rounding error of ``primal``."""
    gap: float
    """The relative gap there."""
    gradient: Float64
    """The gradient there, in the coordinates of the basis."""
    curvature: Float64
    """(q,) h there."""
    direction: Float64
    """The direction of the step under way, in these coordinates."""
    length: float = 1.0
    """The length of the step under way, in multiples of ``direction``."""
    slope: float = 0.0
    """The derivative of P along ``direction`` at the accepted point."""
    steps: list[Step] = field(default_factory=list)
    """The last steps, oldest first."""
    count: int = 0
    """Number of accepted steps."""
    failed: int = 0
    """Number of steps in a row that were not accepted."""
    stuck: bool = False
    """Whether no step is accepted even without history: P falls by less than its rounding error."""
    centers: Float64 | None = None
    """(q, p) the c_k there, in these coordinates; None: M is diagonal."""


@saved_as("lbfgs.best")
class Best(NamedTuple):
    """The point with the least P, and the point with the largest D, of the passes in float64."""

    primal: float
    weights: Float64
    """(components,) with that P."""
    dual: float
    dual_point: DualPoint
    """The dual point with that D."""
    largest_bias: float = 0.0
    """The bound of a free bias that this D contains."""


@saved_as("lbfgs.state")
@dataclass(slots=True)
class LBFGSState:
    """The state of ``LBFGS``. q: number of decision functions of a problem; p = columns + 1."""

    problem: Problem
    accepted: Float64
    """(q, p) the point from which the step under way begins."""
    point: Float64
    """(q, p) the weights that the pass evaluates: the end of that step, or ``accepted`` itself."""
    v: Total[Float64]
    """(q, p) sum_i a_i y_i x_i over the rows visited in this pass."""
    curvature: Total[Float64]
    """(q,) sum_i s_i l''(m_i) over these rows."""
    is_step: bool = False
    """Whether ``point`` is the end of a step; else it is ``accepted``."""
    sums: Total[Sums] = NO_SUMS
    """Sums of losses and of dual terms over these rows."""
    precise: bool = True
    """Whether this pass is in float64."""
    passes: int = 0
    """Number of completed passes."""
    bound_steps: int = 0
    """Number of first steps for which h is the largest second derivative of the loss."""
    gram: FirstPassTotal[Float64 | None] = None
    """(p, p) X'X, or its diagonal (p,), for the first of the problems with the same rows; else None."""
    basis: DriverOnly[Basis | None] = None
    """The basis, which problems with the same rows share; None before it is known."""
    has_basis: bool = False
    """Whether ``basis`` is known, so that passes need not add up X'X."""
    search: DriverOnly[Search | None] = None
    """What L-BFGS knows; None before the first pass is closed."""
    best: Best | None = None
    """The best points of passes in float64."""
    product: Array | None = None
    """(n,) while a block is visited with other problems: its decision values, then its slopes."""
    in_company: bool = False
    """Whether other problems, or this one for them, add the block to X'X."""
    rows: FirstPassTotal[ClassWeights | None] = None
    """The weights and sums of the classes, for a free bias; they are kept."""
    totals: FirstPassTotal[Float64 | None] = None
    """(p + 1,) the sum of the rows, and their number, where X'X is to be centered; else None."""
    centers: Total[Float64 | None] = None
    """(q, p) sum_i q_ik x_i over the rows visited in this pass, of a softmax; else None."""


@dataclass(frozen=True, slots=True)
class LBFGS(Solver[LBFGSState]):
    """L-BFGS in the eigenbasis of X'X; all classes and all C in the same matrix products."""

    history: Annotated[
        int | None,
        Option(
            "Number of steps remembered.",
            bounds=Bounds(least=1),
            default=f"{STEPS}; {MANY_STEPS} where they take little memory",
        ),
    ] = None
    problems: Annotated[
        int | None,
        Option(
            "Number of problems (a class at a value of C is one) in the same passes; others follow, each from the solution at the "
            "nearest C before.",
            bounds=Bounds(least=1),
            default="as many as the memory has room for",
        ),
    ] = None
    losses: ClassVar[LossRequirement] = LossRequirement(smooth=True)
    has_current_weights: ClassVar[bool] = True
    warm_start: ClassVar[bool] = True
    has_dual_witness: ClassVar[bool] = True
    is_centered: ClassVar[bool] = False
    """Whether the basis is that of centered rows."""

    @property
    def driver_fields(self) -> tuple[str, ...]:
        """The basis and the history, which no visit reads."""
        return find_driver_fields(LBFGSState)

    def steps_kept(self, problem: Problem) -> int:
        """Return the number of steps remembered."""
        if self.history is not None:
            return self.history
        return MANY_STEPS if 16 * MANY_STEPS * problem.components <= CHEAP_BYTES else STEPS

    def cost(self, problem: Problem, layout: Layout) -> Cost:
        """Return the bytes of the remembered steps and of vectors of weights; once for all problems, those of the basis
        and of the rows of a product.
        """
        p = problem.columns + 1
        matrix = 8 * p * p if p <= MAX_BASIS else 8 * p
        vectors = 2 * self.steps_kept(problem) + KEPT_VECTORS
        threads, sums = threading.threads(), 0 if problem.regularizer.is_squared_norm else 2  # those of the classes
        rows = threads * (8 * min(ROWS_PER_PRODUCT, layout.largest_chunk) * p + 48 * layout.largest_chunk)
        gram = operators.gram_bytes(p, entry=layout.entry_bytes) if p <= MAX_BASIS else 0
        return Cost(
            fixed=8 * (vectors + sums) * problem.components,
            per_block_row=8,
            per_part=8 * (1 + sums) * problem.components,
            shared=BASIS_MATRICES * matrix + threads * gram + rows + TEMPORARY_VECTORS * 8 * problem.components,
            shared_per_part=matrix,
            solved=8 * (SOLVED_VECTORS + sums) * problem.components,
        )

    def start(self, problem: Problem) -> LBFGSState:
        """Return the state at w = 0, or at the start weights. The first pass evaluates this point."""
        point = problem.first_weights()[None, :]
        return _begin_at(problem, point, 1, BOUND_STEPS)

    @property
    def problems_per_batch(self) -> int:
        return self.problems or 0

    def with_problems_per_batch(self, count: int, user_set: Collection[str]) -> LBFGS | None:
        return None if "problems" in user_set else replace(self, problems=count)

    def start_after(self, problems: Sequence[Problem], solved: Sequence[LBFGSState]) -> list[LBFGSState]:
        """Return the states at the solutions for the same class and the nearest C, with the basis of the same rows."""
        bases = {other.problem.held_out: other.basis for other in solved if other.basis is not None}
        by_class: dict[Any, list[LBFGSState]] = {}
        for other in solved:
            by_class.setdefault((other.problem.kind, other.problem.held_out), []).append(other)
        states = []
        for problem in problems:
            state = self.start(problem)
            state.basis = bases.get(problem.held_out)
            state.has_basis = state.basis is not None
            same = by_class.get((problem.kind, problem.held_out), [])
            if same and problem.warm is None:
                nearest = min(same, key=lambda other: abs(math.log(other.problem.C / problem.C)))
                state.accepted = state.point = nearest.accepted.copy()
                state.bound_steps = 0
            states.append(state)
        return states

    def forget_steps(self, state: LBFGSState) -> None:
        state.search = None

    # -- a pass

    def prepare_shared(self, states: list[LBFGSState], X: RowRecord) -> dict[bool, Array]:
        """Compute the decision values of the rows for all problems, and add the rows to X'X in the first pass.

        Returns them as (problems, n) of the problems in float32 and of those in float64.
        """
        products: dict[bool, Array] = {}
        for precise in {state.precise for state in states}:
            together = [state for state in states if state.precise == precise]
            points = np.concatenate([state.point for state in together])
            products[precise] = multiply(X, points, precise=precise, name=f"decision values, precise={precise}")
            for state, product in zip(together, products[precise], strict=True):
                state.product = product
        self._add_squares(states, X)
        return products

    def visit(self, state: LBFGSState, block: Block) -> None:
        """Add the block to the sums at the point. With other problems, ``finish_shared`` adds it to v."""
        problem, rows = state.problem, len(block.y)
        if state.passes == 0:
            state.rows = add_row_sums(state.rows, problem, block)
        if not state.has_basis and not state.in_company:
            self._add_rows_to_basis(state, block.X)
        if isinstance(problem.loss, Logistic) and state.product is not None and not state.precise:
            sums, curvature = _logistic_slopes(problem.loss, problem.C, block, state.product)
            state.sums = state.sums.plus(sums)
            state.curvature += curvature
            return
        f = np.empty(rows)
        f[:] = multiply(block.X, state.point, precise=True)[0] if state.product is None else state.product
        slopes, curvatures = np.empty(rows), np.empty(rows)
        cost = RowLoss(problem.C, problem.loss, problem.loss)
        state.sums = state.sums.plus(slopes_pass(block.y, block.s, f, cost, slopes, curvatures))
        state.curvature += curvatures.sum() / problem.C
        if state.product is None:
            state.v += sum_products(block.X, slopes[None, :], problem.columns, precise=True)
        else:
            state.product[:] = slopes

    def finish_shared(self, states: list[LBFGSState], X: RowRecord, shared: dict[bool, Array]) -> None:
        """Add the rows to v of all problems. ``shared``: the decision values, in whose place visits have put slopes."""
        for precise, slopes in shared.items():
            together = [state for state in states if state.precise == precise]
            sums = sum_products(X, slopes, together[0].problem.columns, precise=precise)
            for state, v in zip(together, sums, strict=True):
                state.v += v
        for state in states:
            state.product, state.in_company = None, False

    def share_between_problems(self, states: list[LBFGSState]) -> None:
        """Factorize X'X once for all problems with the same rows."""
        known: dict[tuple[int, ...], Basis] = {}
        for state in states:
            if state.gram is not None and state.problem.held_out not in known:
                known[state.problem.held_out] = factorize(state.gram, state.totals)
        for state in states:
            if not state.has_basis:
                state.basis, state.gram, state.totals = known.get(state.problem.held_out), None, None
                state.has_basis = state.basis is not None

    def finish(self, state: LBFGSState) -> Certificate:
        """Compute P and D at the point; accept or shorten the step to it; choose the next point."""
        problem, precise = state.problem, state.precise
        if state.basis is None:  # the problem was visited alone
            if state.gram is None:  # of no rows
                unit = np.ones(problem.columns + 1)
                state.gram, state.totals = unit, np.append(0.0 * unit, 1.0) if self.is_centered else None
            state.basis = factorize(state.gram, state.totals)
            state.gram, state.totals, state.has_basis = None, None, True
        w, v = state.point.ravel(), state.v.ravel()
        losses, _, linear, quadratic = self._sums(state)
        bounds = problem.regularizer.bounds(problem.loss, (losses, linear, quadratic), w, v, state.rows)
        primal, dual = bounds.value + losses, bounds.dual
        gradient = state.basis.coordinates(problem.regularizer.gradient(state.point) - state.v)
        gap = (primal - dual) / abs(primal) if primal else 0.0
        state.passes += 1
        if precise:
            _keep_best(state, primal, dual, DualPoint(w, 0.0, bounds.scale), bounds.largest_bias)
        search = state.search if state.is_step else None
        facts = {"step": 0.0 if search is None else search.length}
        noise = (NOISE if precise else FLOAT32_NOISE) * abs(primal)
        before = None if state.search is None else state.search.gap
        if search is not None and not _has_fallen(search, primal, noise):
            self._reject(state, search, primal, gradient)
        else:
            search = Search(primal, noise, gap, gradient, state.curvature / problem.rows, gradient)
            if state.centers is not None:
                weights = np.maximum(state.curvature / sharpness_of(problem), TINY)
                search.centers = state.basis.coordinates(state.centers / weights[:, None])
            self._accept(state, search)
        assert state.search is not None
        expected = state.search.gap * (min(1.0, state.search.gap / before) ** 2 if before else 1.0)
        state.precise = _needs_float64(problem) or expected <= EARLY * problem.tolerance or state.search.failed > 1
        clear_totals(state)
        if not precise or state.best is None:
            return Certificate(primal, dual, exact=False, facts=facts)
        if state.best.largest_bias:
            facts["bias_bound"] = state.best.largest_bias
        return Certificate(state.best.primal, state.best.dual, final=state.search.stuck, facts=facts)

    def _sums(self, state: LBFGSState) -> Sums:
        """Return the sums of the pass."""
        return state.sums

    def _accept(self, state: LBFGSState, search: Search) -> None:
        """Take the evaluated point, remember the step to it, and begin the next step from it."""
        before = state.search
        if before is not None:
            if state.is_step:
                self._remember(state, before, search.gradient)
            search.steps, search.count = before.steps, before.count + int(state.is_step)
        state.accepted, state.search = state.point, search
        self._begin_step(state, search, 1.0 if before is None else min(1.0, GROWTH * before.length))

    def _reject(self, state: LBFGSState, search: Search, primal: float, gradient: Float64) -> None:
        """Try the direction that follows from a step that was not accepted, or a shorter step; drop the history if many were not."""
        search.failed += 1
        promised = search.length * search.slope
        shorter = -0.5 * promised / max(primal - search.primal - promised, TINY)
        if search.failed == MAX_TRIALS:
            search.stuck, search.steps, search.failed = not search.steps, [], 0
            self._begin_step(state, search, 1.0)
        elif search.failed == 1 and shorter >= SHORTEST and self._remember(state, search, gradient):
            self._begin_step(state, search, 1.0)
        else:
            search.length *= min(max(shorter, SHORTEST), LONGEST)
            _set_point(state, search)

    def _begin_step(self, state: LBFGSState, search: Search, length: float) -> None:
        """Set the direction from the accepted point, by the two loops of L-BFGS, and the next point to evaluate."""
        inverse, correction = self._precondition(state, search)
        q, factors = search.gradient.copy(), []
        for s, d, product in reversed(search.steps):
            factors.append(float(np.vdot(s, q)) / product)
            q -= factors[-1] * d
        if search.steps:
            _, d, product = search.steps[-1]
            scale = product / float(np.vdot(d, multiply_inverse(inverse, correction, d)))
            inverse *= scale
            correction = None if correction is None else math.sqrt(scale) * correction
        q = multiply_inverse(inverse, correction, q)
        for (s, d, product), factor in zip(search.steps, reversed(factors), strict=True):
            q += (factor - float(np.vdot(d, q)) / product) * s
        search.direction, search.length = self._direct(state, -q, length)
        search.slope = float(np.vdot(search.direction, search.gradient))
        _set_point(state, search)

    def _precondition(self, state: LBFGSState, search: Search) -> tuple[Float64, Float64 | None]:
        """Return the diagonal of the inverse of M (q, p), and what ``multiply_inverse`` subtracts, or None."""
        problem, basis, bound = state.problem, state.basis, _bound(state.problem)
        assert basis is not None
        h = np.maximum(search.curvature, LEAST_CURVATURE * bound)
        if search.count < state.bound_steps:
            h = np.full_like(h, bound)
        inverse = 1.0 / (1.0 + problem.C * h[:, None] * basis.values)
        if search.centers is None:
            return inverse, None
        u = np.sqrt(problem.C * problem.rows * h)[:, None] * search.centers
        scaled = inverse * u
        return inverse, scaled / np.sqrt(1.0 + np.einsum("kp,kp->k", u, scaled))[:, None]

    def _direct(self, state: LBFGSState, direction: Float64, length: float) -> tuple[Float64, float]:
        """Return the direction of a step and the length that is tried first, at most ``length``."""
        return direction, length

    def _add_rows_to_basis(self, state: LBFGSState, X: RowRecord) -> None:
        """Add the rows to X'X, and to the sums by which it is centered."""
        columns = state.problem.columns
        state.gram = add_to_sum(state.gram, sum_squares(X, columns))
        if self.is_centered:
            ones = np.ones((1, operators.shape(X, columns)[0]))
            totals = np.append(sum_products(X, ones, columns, precise=True)[0], ones.size)
            state.totals = add_to_sum(state.totals, totals)

    def _add_squares(self, states: list[LBFGSState], X: RowRecord) -> None:
        """Add the rows to X'X in the first pass, for the first of the problems with the same rows."""
        known: set[tuple[int, ...]] = set()
        for state in states:
            state.in_company = True
            if not state.has_basis and state.problem.held_out not in known:
                known.add(state.problem.held_out)
                self._add_rows_to_basis(state, X)

    def _remember(self, state: LBFGSState, search: Search, gradient: Float64) -> bool:
        """Remember the step under way, at whose end the gradient is ``gradient``; return False if rounding hides its curvature."""
        problem, basis = state.problem, state.basis
        assert basis is not None
        step, change = search.length * search.direction, gradient - search.gradient
        product, square = float(np.vdot(step, change)), float(np.vdot(change, change))
        largest = 1.0 + problem.C * _bound(problem) * float(basis.values.max())
        if not product * largest > LEAST_PRODUCT * square:
            return False
        search.steps = [*search.steps, Step(step, change, product)][-self.steps_kept(problem) :]
        return True

    def certify(self, state: LBFGSState) -> None:
        """Make the pass an evaluation of the accepted point in float64."""
        state.point, state.is_step, state.precise = state.accepted, False, True

    # -- answers

    def current_weights(self, state: LBFGSState) -> Float64:
        """Return the accepted point."""
        return state.problem.kind.shape(state.accepted.ravel().copy())

    def solution(self, state: LBFGSState) -> LinearSolution:
        """Return the point with the least P among those evaluated in float64. Raises DefectError if there is none."""
        if state.best is None:
            raise DefectError("no pass was made in float64, so that there is no exact certificate")
        return LinearSolution(state.problem.kind.shape(state.best.weights.copy()), state.problem.bias)

    def dual_values(self, state: LBFGSState, block: Block) -> Float64 | None:
        """Return the dual variables (n,) with the largest D: the slopes at a point."""
        return None if state.best is None else slopes_at(state.problem, state.best.dual_point, block)

    def keep_dual_point(self) -> LBFGS:
        """Return the solver itself, because its bound is always that of slopes."""
        return self

    # -- memory

    def shrink_memory(self, problem: Problem, user_set: Any) -> LBFGS | None:
        """Return the solver with fewer remembered steps."""
        kept = self.steps_kept(problem)
        if "history" in user_set or kept <= FEW_STEPS:
            return None
        return replace(self, history=STEPS if kept > STEPS else FEW_STEPS)

    def memory_settings(self) -> dict[str, int | None]:
        """Return the numbers of remembered steps, and of problems in the same passes."""
        return {"history": self.history, "problems": self.problems}


@dataclass(frozen=True, slots=True)
class SoftmaxLBFGS(LBFGS):
    """L-BFGS for softmax problems (``solvers.softmax``): one step for the weights of all classes."""

    is_centered: ClassVar[bool] = True

    def cost(self, problem: Problem, layout: Layout) -> Cost:
        """Return the bytes of L-BFGS; the decision values of a tile are needed once for all problems."""
        cost, classes, threads = LBFGS.cost(self, problem, layout), problem.kind.classes, threading.threads()
        tile = classes * (TILE_ARRAYS * 8 * rows_per_tile(classes) + 2 * 8 * (problem.columns + 1))
        weights = 8 * problem.components
        return replace(
            cost,
            fixed=cost.fixed + CENTER_VECTORS * weights,
            per_block_row=0,
            per_part=cost.per_part + weights,
            shared=cost.shared + threads * tile,
            shared_per_part=cost.shared_per_part + 8 * (problem.columns + 2),
        )

    def start(self, problem: Problem) -> LBFGSState:
        """Return the state at W = 0, or at the start weights."""
        point, classes = problem.kind.shape(problem.first_weights()), problem.kind.classes
        return _begin_at(problem, point - point.mean(axis=0), classes, 0)

    def prepare_shared(self, states: list[LBFGSState], X: RowRecord) -> dict[bool, Array]:
        """Add the rows to X'X in the first pass, once for all problems."""
        self._add_squares(states, X)
        return {}

    def visit(self, state: LBFGSState, block: Block) -> None:
        """Add the block to the sums at the point, tile by tile."""
        problem, are_plain = state.problem, are_ones(block.s)
        if state.passes == 0:
            state.rows = add_row_sums(state.rows, problem, block)
        if not state.has_basis and not state.in_company:
            self._add_rows_to_basis(state, block.X)
        losses, gain, sharpness = 0.0, 0.0, sharpness_of(problem)
        if state.centers is None:
            state.centers = np.zeros_like(state.v)
        centers = state.centers
        for part, X, slopes, terms in evaluate_tiles(problem, block, state.point, exact=state.precise):
            s = block.s[part].astype(np.float64)
            # s p (1 - p): |e_y - p| is p, and 1 - p in the row of the class
            counts = np.abs(slopes, out=WORKSPACE.array("counts", slopes.shape, np.float32), casting="same_kind")
            counts -= np.square(counts, out=WORKSPACE.array("squares", slopes.shape, np.float32))
            if not are_plain:
                counts *= s.astype(np.float32)
            state.curvature += sharpness * counts.sum(axis=1, dtype=np.float64)
            add_products(X, counts, centers, precise=False)
            np.multiply(slopes, (problem.C * s).astype(slopes.dtype), out=slopes)
            add_products(X, slopes, state.v, precise=state.precise)
            losses += float(s @ terms.losses)
            gain += 0.0 if terms.entropies is None else float(s @ terms.entropies)
        state.sums = state.sums.plus((problem.C * losses, problem.C * losses, problem.C * gain, 0.0))

    def _direct(self, state: LBFGSState, direction: Float64, length: float) -> tuple[Float64, float]:
        """Return the direction with the sum 0 over the classes, and the length log(1 + r) / r."""
        basis = state.basis
        assert basis is not None
        assert basis.mean is not None
        direction = direction - direction.mean(axis=0)
        squares = np.square(direction) @ basis.values / basis.rows + np.square(direction @ basis.mean)
        r = SPREAD * sharpness_of(state.problem) * math.sqrt(float(squares.max()))
        return direction, math.log1p(r) / r if r > 0.0 else 1.0

    def _sums(self, state: LBFGSState) -> Sums:
        """Return the sums of the pass; in float32 the entropies follow from losses and v."""
        if state.precise:
            return state.sums
        return state.sums._replace(linear=state.sums.losses + float(np.vdot(state.point, state.v)))

    def dual_values(self, state: LBFGSState, block: Block) -> Float64 | None:
        """Return the dual variables (n, K) with the largest D."""
        if state.best is None:
            return None
        w, _, t = state.best.dual_point
        return dual_values(state.problem, block, state.problem.kind.shape(w), t)


@dataclass(frozen=True, slots=True)
class FreeBiasLBFGS(LBFGS):
    """L-BFGS for problems with a free bias (``solvers.free_bias``), without dual variables."""

    has_dual_witness: ClassVar[bool] = False


@dataclass(frozen=True, slots=True)
class FreeBiasSoftmaxLBFGS(SoftmaxLBFGS):
    """L-BFGS for softmax problems with a free bias, without dual variables."""

    has_dual_witness: ClassVar[bool] = False


def _logistic_slopes(loss: Logistic, C: float, block: Block, f: Array) -> tuple[tuple[float, ...], float]:
    """Put the slopes C_i b_i y_i, b_i = -l'(m_i), in place of float32 decision values f (n,), as ``slopes_pass`` does in float64.

    Returns the four sums, and sum s_i l''(m_i). With e = exp(-|z|), z = k m, the functions of a row are
    b = 1 / (1 + e), times e if z > 0, l = (log(1 + e) + max(0, -z)) / k, l'' = k e / (1 + e)^2, and the term of the dual is
    a - conjugate(a) = C (l + b m) by the equality of Fenchel and Young.
    """
    y, z = block.y, f
    z *= y if loss.sharpness == 1.0 else loss.sharpness * y
    size = np.abs(z)
    e = np.exp(-size)
    share = 1.0 / (1.0 + e)
    slopes = np.where(z > 0.0, e * share, share)
    values, e = 0.5 * (size - z) - np.log(share), e * share
    if not are_ones(block.s):
        s = block.s.astype(np.float32)
        values, slopes, e = values * s, slopes * s, e * s
    losses = float(values.sum(dtype=np.float64))
    sums = [C / loss.sharpness * total for total in (losses, losses, losses + float(slopes @ z), 0.0)]
    np.multiply(slopes, np.float32(C) * y, out=f)
    return tuple(sums), loss.sharpness * float(e @ share)


def _begin_at(problem: Problem, point: Float64, functions: int, bound_steps: int) -> LBFGSState:
    """Return the state at a point; at given weights h is the mean from the first step on."""
    is_warm = problem.warm is not None
    state = LBFGSState(problem, point, point, np.zeros_like(point), np.zeros(functions))
    state.precise, state.bound_steps = is_warm or _needs_float64(problem), 0 if is_warm else bound_steps
    return state


def _needs_float64(problem: Problem) -> bool:
    """Return whether every pass is in float64."""
    return problem.tolerance < FLOAT32_TOLERANCE or problem.rows * problem.components < FLOAT32_WORK


def _bound(problem: Problem) -> float:
    """Return the largest second derivative of the loss: of a softmax in the decision values twice that of a margin."""
    return (2.0 if problem.kind.classes else 1.0) / problem.loss.curvature(1.0)


def _has_fallen(search: Search, primal: float, noise: float) -> bool:
    """Return whether P has fallen by enough of what the slope promised; False if it is not a number."""
    return primal <= search.primal + DECREASE * search.length * search.slope + max(noise, search.noise)


def _keep_best(state: LBFGSState, primal: float, dual: float, point: DualPoint, largest_bias: float) -> None:
    """Keep the point of a pass in float64 if it has the least P or the largest D."""
    best = state.best or Best(np.inf, point.w, -np.inf, point)
    if primal < best.primal:
        best = best._replace(primal=primal, weights=point.w)
    state.best = best._replace(dual=dual, dual_point=point, largest_bias=largest_bias) if dual > best.dual else best


def multiply_inverse(inverse: Float64, correction: Float64 | None, q: Float64) -> Float64:
    """Return M^-1 q (q, p): M^-1 = diag(``inverse``) - r r' for each function, r = ``correction``, or diagonal without it."""
    if correction is None:
        return inverse * q
    return inverse * q - np.einsum("kp,kp->k", correction, q)[:, None] * correction


def _set_point(state: LBFGSState, search: Search) -> None:
    """Set the next point to evaluate: the end of the step under way."""
    assert state.basis is not None
    state.point, state.is_step = state.accepted + state.basis.weights(search.length * search.direction), True


def sum_terms(layout: Layout) -> int:
    """Return T of v (``solvers.rounding``): the largest number of additions behind a component of a sum of all rows. A
    product adds up the rows of at most a chunk; its results are added to those of other products.
    """
    return layout.largest_chunk + layout.rows // ROWS_PER_PRODUCT + 2 * len(layout.chunks)


def sum_squares(X: RowRecord, columns: int) -> Float64:
    """Return X'X (p, p); its diagonal (p,) with more than MAX_BASIS components."""
    rows = operators.shape(X, columns)[0]
    if columns + 1 > MAX_BASIS:
        return squares(X, np.ones(rows), columns)
    return operators.gram(X, np.ones(rows), columns)
