"""Solve multinomial problems (all classes in one problem) in memory, by a primal-dual interior-point method. It is
accurate for any scale of columns and any C.

``compute.passes.dcd.multinomial_sweep`` defines the problem and its dual. With conjugate(b, C_i) = (1 - z) b + h_i b^2
/ 2 a row has the variables u_ik >= 0 for all k except its class y, b_i = sum_k u_ik <= U_i, and
W = sum_i sum_k u_ik (e_y - e_k) x_i'. With multipliers t_ik of u_ik >= 0 and s_i of b_i <= U_i, the optimum satisfies

    g_ik = (w_y - w_k).x_i + h_i b_i - z + s_i - t_ik = 0,      t_ik u_ik = 0,      s_i (U_i - b_i) = 0.

The method follows the central path, on which both products are mu > 0, and reduces mu (Mehrotra, SIAM J. Optimization
2, 1992: a predictor step for mu = 0, and a corrector step). W is updated separately from u, since margins computed from
sums of large u that cancel would be inaccurate. With d_ik = t_ik / u_ik and e_i = h_i + s_i / (U_i - b_i) a Newton step
is

    (D_i + e_i 11') du_i = rho_i - A_i dW,      A_i dW = [(dw_y - dw_k).x_i]_k,
    rho_ik = -g_ik - c_i / (U_i - b_i) + c_ik / u_ik,      c = mu - the products (minus those of the predictor step),

so that dW = sum_i A_i' du_i - (W - W(u)) is the solution of a linear system in the K p weights alone,

    (I + sum_i B_i (x) x_i x_i') dW = sum_i A_i' M_i rho_i - (W - W(u)),
    M_i = (D_i + e_i 11')^-1 = diag(q) - c qq',   q = 1 / d_i,   c = e_i / (1 + e_i sum q),

with B_i (K, K) the matrix M_i bordered by the row and column of y, the sums of all others. Forming the system takes
n (K p)^2 / 2 multiplications, and factoring it (K p)^3 / 3. About 15 to 40 steps are necessary, even for columns of
very different scales, for which coordinate descent takes thousands of passes.

If a loss has no bound U_i, twice the largest possible b_i at the optimum is used: there
sum_i z b_i = ||W||^2 + sum_i h_i b_i^2, and D is half of it, at most P(0), so that h_i b_i^2 <= 2 P(0).

The solver works like ``solvers.active_set``: the first pass gathers the rows, then the problem is solved in memory, and
the second pass writes the dual variables to their rows and computes P and D.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple

import numpy as np

from streamsvm.class_tags import saved_as
from streamsvm.compute.blocks import operators
from streamsvm.compute.blocks.selection import bytes_per_row
from streamsvm.compute.passes.dcd import multinomial_dual_sum, multinomial_loss_sum
from streamsvm.rows import CSR, Float64, Int64
from streamsvm.solvers.gathered_rows import ARRAY_BYTES, COPIES_WHILE_JOINED, GatheredRows, Gatherer
from streamsvm.types import (
    DUAL,
    Block,
    Certificate,
    Cost,
    Layout,
    LinearSolution,
    LossRequirement,
    Problem,
    RowState,
    Solver,
)
from streamsvm.types.state import Total, clear_totals

TOLERANCE_SHARE, MIN_GAP = 0.01, 1e-13
"""In memory, the relative gap is reduced to this share of the tolerance, but not below MIN_GAP, the precision of
float64."""
MAX_STEPS, MAX_IDLE_STEPS = 200, 20
"""Maximum number of steps, and of successive steps without a smaller gap: after so many, rounding prevents progress."""
BOUNDARY_SHARE = 0.995
"""The fraction of the distance to the nearest bound that a step covers."""
MATRIX_BYTES = 32
"""Bytes per entry of the (K p, K p) matrix: its blocks, the matrix and its factor."""
BYTES_PER_ROW_AND_CLASS = 200
"""Bytes per row and class in memory, besides B."""
WORK = 2e9
"""The method is chosen automatically if a step takes at most this many multiplications."""


def step_work(rows: int, columns: int, classes: int) -> float:
    """Return the number of multiplications of a step."""
    weights = float(classes) * (columns + 1)
    return rows * weights * weights / 2.0 + weights**3 / 3.0


class Terms(NamedTuple):
    """The data of the problem: n rows, p columns including the constant feature, K classes."""

    X: Float64
    """(n, p)."""
    own: Int64
    """(n,) the class y of each row."""
    z: float
    """The margin from which on the loss is 0."""
    h: Float64
    """(n,) the curvature of the conjugate."""
    upper: Float64
    """(n,) U, or the number used instead if the loss has no bound."""
    others: Float64
    """(n, K) 0 for the class of the row, 1 for all others."""

    def weights(self, u: Float64) -> Float64:
        """Return W (K, p) for u (n, K)."""
        return self.dual_variables(u).T @ self.X

    def dual_variables(self, u: Float64) -> Float64:
        """Return the dual variables a_ik (n, K): b_i for the class of the row, -u_ik for all others."""
        a = -u
        a[np.arange(len(u)), self.own] = u.sum(axis=1)
        return a

    def differences(self, W: Float64) -> Float64:
        """Return (w_y - w_k).x_i (n, K), which is 0 for the class of the row."""
        f = self.X @ W.T
        differences: Float64 = f[np.arange(len(f)), self.own][:, None] - f
        return differences

    def gain(self, u: Float64) -> float:
        """Return sum_i b_i - conjugate(b_i)."""
        b = u.sum(axis=1)
        return float(self.z * b.sum() - 0.5 * self.h @ (b * b))


class Path(NamedTuple):
    """An iterate or a step: u and t (n, K), which are 0 for the class of the row, s (n,), W (K, p)."""

    u: Float64
    t: Float64
    s: Float64
    W: Float64

    def move(self, step: Path, length: float) -> Path:
        """Return the iterate after a step of the given length."""
        return Path(*(x + length * d for x, d in zip(self, step, strict=True)))


def make_terms(problem: Problem, rows: GatheredRows) -> Terms:
    """Return the problem of gathered rows."""
    loss: Any = problem.loss
    C = problem.C * rows.s.astype(np.float64)
    own = rows.y.astype(np.int64)
    others = np.ones((len(own), problem.kind.classes))
    others[np.arange(len(own)), own] = 0.0
    h, upper = (np.array([part(c) for c in C.tolist()], np.float64) for part in (loss.curvature, loss.upper))
    at_zero = loss.value(0.0) * float(C.sum())
    with np.errstate(divide="ignore"):
        upper = np.where(np.isfinite(upper), upper, 2.0 * np.sqrt(2.0 * at_zero / h))
    return Terms(_dense(rows.X, problem), own, 1.0 - loss.conjugate_slope(0.0, 1.0), h, upper, others)


def _dense(X: Any, problem: Problem) -> Float64:
    """Return the rows (n, p) float64, with their constant feature."""
    if isinstance(X, CSR):
        rows = np.zeros((len(X.indptr) - 1, problem.columns + 1))
        rows[np.repeat(np.arange(len(rows)), np.diff(X.indptr)), X.indices] = X.data
    else:
        rows = np.empty((len(X.values), problem.columns + 1))
        rows[:, :-1] = X.values
    rows[:, -1] = X.bias
    return rows


def starting_point(terms: Terms) -> Path:
    """Return the first iterate: W = 0; b half of its bound, or the optimum at W = 0 if that is less; and multipliers that
    make all products equal.
    """
    with np.errstate(divide="ignore"):
        b = np.minimum(0.5 * terms.upper, terms.z / terms.h)
    u = terms.others * (b / (terms.others.shape[1] - 1))[:, None]
    mu = terms.z * float(u.sum()) / float(terms.others.sum())
    t = np.where(terms.others > 0.0, mu / np.where(terms.others > 0.0, u, 1.0), 0.0)
    return Path(u, t, mu / (terms.upper - b), np.zeros((u.shape[1], terms.X.shape[1])))


class NewtonSystem:
    """The linear system of a step at a point."""

    def __init__(self, terms: Terms, iterate: Path) -> None:
        from scipy.linalg import cho_factor  # which takes longer to import than a small fit

        self.terms, self.iterate = terms, iterate
        inside = terms.others > 0.0
        self.b = iterate.u.sum(axis=1)
        self.room = terms.upper - self.b
        if (self.room <= 0.0).any():
            raise np.linalg.LinAlgError("rounding has taken a row to the end of its box")
        self.q = np.where(inside, iterate.u / np.where(inside, iterate.t, 1.0), 0.0)
        self.e = terms.h + iterate.s / self.room
        total = self.q.sum(axis=1)
        self.c = self.e / (1.0 + self.e * total)
        self.weights_difference = iterate.W - terms.weights(iterate.u)
        self.residual = (
            terms.differences(iterate.W) + (terms.h * self.b - terms.z + iterate.s)[:, None] - iterate.t
        ) * terms.others
        self.factor = cho_factor(self._matrix(total), lower=True, overwrite_a=True, check_finite=False)

    def _matrix(self, total: Float64) -> Float64:
        """Return I + sum_i B_i (x) x_i x_i', (K p, K p)."""
        X, own = self.terms.X, self.terms.own
        (n, classes), p, rows = self.q.shape, X.shape[1], np.arange(len(own))
        sums = self.q / (1.0 + self.e * total)[:, None]
        blocks = np.zeros((classes, p, classes, p))
        for k in range(classes):
            B = self.q[:, : k + 1] * -(self.c * self.q[:, k])[:, None]
            B[:, k] += self.q[:, k]
            B[own == k] = -sums[own == k, : k + 1]
            before = own < k
            B[rows[before], own[before]] = -sums[before, k]
            B[own == k, k] = sums[own == k].sum(axis=1)
            blocks[k, :, : k + 1] = (X.T @ (B[:, :, None] * X[:, None, :]).reshape(n, -1)).reshape(p, k + 1, p)
        matrix: Float64 = blocks.reshape(classes * p, classes * p)
        matrix[np.diag_indices_from(matrix)] += 1.0
        return matrix

    def _solve(self, rho: Float64) -> Float64:
        """Return M_i rho_i for each row, (n, K)."""
        scaled = self.q * rho
        solution: Float64 = scaled - self.q * (self.c * scaled.sum(axis=1))[:, None]
        return solution

    def step(self, mu: float, predictor: Path | None = None) -> Path:
        """Return the step to the point of the central path at which all products are mu. ``predictor``: the predictor
        step, for the second-order correction.
        """
        from scipy.linalg import cho_solve

        terms, iterate = self.terms, self.iterate
        inside = terms.others > 0.0
        product_change = (mu - iterate.u * iterate.t) * terms.others
        bound_product_change = mu - iterate.s * self.room
        if predictor is not None:
            product_change -= predictor.u * predictor.t
            bound_product_change += predictor.s * predictor.u.sum(axis=1)
        target_t = product_change / np.where(inside, iterate.u, 1.0)
        rho = (-self.residual - (bound_product_change / self.room)[:, None] + target_t) * terms.others
        right = terms.weights(self._solve(rho)) - self.weights_difference
        dW = cho_solve(self.factor, right.ravel(), check_finite=False).reshape(right.shape)
        du = self._solve((rho - terms.differences(dW)) * terms.others)
        dt = target_t - np.where(inside, iterate.t / np.where(inside, iterate.u, 1.0), 0.0) * du
        ds = (bound_product_change + iterate.s * du.sum(axis=1)) / self.room
        return Path(du, dt * terms.others, ds, dW)

    def max_step_length(self, step: Path) -> float:
        """Return the largest step length, at most 1, at which u, t, s and U - b stay above 0."""
        lengths = [1.0]
        for x, d in (*zip(self.iterate[:3], step[:3], strict=True), (self.room, -step.u.sum(axis=1))):
            falling = d < 0.0
            if falling.any():
                lengths.append(float((-x[falling] / d[falling]).min()))
        return min(lengths)


def mean_product(terms: Terms, iterate: Path) -> float:
    """Return the mean of the products of all variables (and distances to bounds) with their multipliers."""
    pairs = float((iterate.u * iterate.t).sum() + iterate.s @ (terms.upper - iterate.u.sum(axis=1)))
    return pairs / float(terms.others.sum() + len(iterate.s))


class MultinomialSolution(NamedTuple):
    """The result of the iteration."""

    W: Float64
    """(K, p) the weights with the least P."""
    a: Float64
    """(n, K) the dual variables a_ik with the largest D."""
    steps: int
    """The number of steps."""


def solve(problem: Problem, rows: GatheredRows, deadline: float = np.inf) -> MultinomialSolution:
    """Follow the central path until the relative gap is small enough, rounding prevents progress, or the deadline has
    passed.
    """
    terms = make_terms(problem, rows)
    target_gap = max(TOLERANCE_SHARE * problem.tolerance, MIN_GAP)
    iterate, steps, idle_steps = starting_point(terms), 0, 0
    primal, dual, gap, lowest, W, u = np.inf, -np.inf, np.inf, np.inf, iterate.W, iterate.u
    while True:
        v = terms.weights(iterate.u)
        D = terms.gain(iterate.u) - 0.5 * float(np.sum(v * v))
        P = 0.5 * float(np.sum(iterate.W * iterate.W))
        P += multinomial_loss_sum(terms.X @ iterate.W.T, rows.y, rows.s, problem.C, problem.loss)
        if P < primal:
            primal, W = P, iterate.W
        if D > dual:
            dual, u = D, iterate.u
        mu = mean_product(terms, iterate)
        idle_steps = 0 if primal - dual < 0.9 * gap or mu < 0.9 * lowest else idle_steps + 1
        gap, lowest = min(gap, primal - dual), min(lowest, mu)
        if (
            gap <= target_gap * abs(primal)
            or steps >= MAX_STEPS
            or idle_steps > MAX_IDLE_STEPS
            or time.perf_counter() > deadline
        ):
            return MultinomialSolution(W, terms.dual_variables(u), steps)
        try:
            newton = NewtonSystem(terms, iterate)
        except (np.linalg.LinAlgError, ValueError):  # by rounding the matrix is indefinite, or a row at its bound
            return MultinomialSolution(W, terms.dual_variables(u), steps)
        predictor = newton.step(0.0)
        reached = mean_product(terms, iterate.move(predictor, newton.max_step_length(predictor)))
        step = newton.step(mu * (reached / mu) ** 3, predictor)
        iterate, steps = iterate.move(step, BOUNDARY_SHARE * newton.max_step_length(step)), steps + 1
        if not all(np.isfinite(part).all() for part in iterate):
            return MultinomialSolution(W, terms.dual_variables(u), steps)


@saved_as("interior_point.multinomial")
@dataclass(slots=True)
class MultinomialState:
    """The state of ``MultinomialInteriorPoint``. Arrays are float64; components = classes * (columns + 1)."""

    problem: Problem
    point: Float64
    """(components,) the weights that the pass evaluates: the start weights until the problem is solved."""
    v: Total[Float64]
    """(components,) sum_i a_ik x_i of the dual variables, over the rows visited in this pass."""
    best: Float64
    """(components,) the evaluated point with the least P so far. It is the solution."""
    primal: float = np.inf
    """P of ``best``; inf before the first pass."""
    dual: float = -np.inf
    """The largest D so far; -inf before the first pass."""
    gatherer: Total[Gatherer] = field(default_factory=Gatherer)
    """The rows, until the problem is solved."""
    row: Int64 = field(default_factory=lambda: np.empty(0, np.int64))
    """(n,) the global numbers of the rows with dual variables, rising."""
    a: Float64 = field(default_factory=lambda: np.empty((0, 0)))
    """(n, classes) the dual variables of these rows."""
    losses: Total[float] = 0.0
    """sum C_i l(m_i) at ``point`` over the rows visited in this pass."""
    gain: Total[float] = 0.0
    """sum b_i - conjugate(b_i) over the rows visited in this pass."""
    solved: bool = False
    """Whether the problem was solved in memory."""
    steps: int = 0
    """Number of steps in memory."""
    deadline: float = np.inf
    """The time of ``time.perf_counter`` at which work in memory must stop."""


@dataclass(frozen=True, slots=True)
class MultinomialInteriorPoint(Solver[MultinomialState]):
    """The interior-point method for multinomial problems whose rows fit in memory."""

    classes: int = 2
    """The number of classes."""
    shuffled: ClassVar[bool] = False
    """False: no step is made while rows are read, so their order does not matter."""
    losses: ClassVar[LossRequirement] = LossRequirement(quadratic=True, numeric=False)
    """Losses whose conjugate is quadratic or linear."""
    stops_early: ClassVar[bool] = True
    warm_start: ClassVar[bool] = True

    @property
    def row_state(self) -> tuple[RowState, ...]:
        """The dual variables a_ik of each row and class, after the problem is solved."""
        return (RowState(DUAL, "float64", self.classes),)

    def cost(self, problem: Problem, layout: Layout) -> Cost:
        """Return the bytes of all rows, twice while they are concatenated and once in float64, of the (K p, K p)
        matrix, and of the variables of rows.
        """
        p, n, classes = problem.columns + 1, problem.rows, self.classes
        row = COPIES_WHILE_JOINED * (
            bytes_per_row(layout.columns, layout.rows, layout.nonzeros, layout.entry_bytes) + ARRAY_BYTES
        )
        row += 8 * p * (2 + classes) + BYTES_PER_ROW_AND_CLASS * classes
        fixed = n * row + MATRIX_BYTES * problem.components**2 + 8 * 8 * problem.components
        return Cost(fixed, sum(state.nbytes for state in self.row_state), per_block_row=3 * 8 * classes)

    def start(self, problem: Problem) -> MultinomialState:
        """Return the state at W = 0, or at the warm-start weights."""
        point = problem.first_weights()
        return MultinomialState(problem, point, np.zeros_like(point), point)

    def visit(self, state: MultinomialState, block: Block) -> None:
        """Add the block to the sums for P and D, and gather its rows or write their dual variables."""
        problem = state.problem
        values = operators.margins(block.X, problem.kind.shape(state.point).T)
        state.losses += multinomial_loss_sum(values, block.y, block.s, problem.C, problem.loss)
        if not state.solved:
            state.gatherer.add(block)
        part, places = block.members(state.row)
        alpha = np.zeros((len(block.y), self.classes))
        if len(places):
            alpha[places] = state.a[part]
            state.v += operators.adjoint(block.X, alpha, problem.columns).T.ravel()
            state.gain += multinomial_dual_sum(alpha, block.y, block.s, problem.C, problem.loss)
        if DUAL in block.rows:
            block.rows[DUAL][:] = alpha

    def set_deadline(self, state: MultinomialState, moment: float) -> None:
        """Stop making steps at ``moment``."""
        state.deadline = moment

    def finish(self, state: MultinomialState) -> Certificate:
        """Return P and D, which are exact for the evaluated point. After the first pass, solve the problem in
        memory.
        """
        primal = 0.5 * float(state.point @ state.point) + state.losses
        if primal < state.primal:
            state.primal, state.best = primal, state.point
        state.dual = max(state.dual, state.gain - 0.5 * float(state.v @ state.v))
        certificate = Certificate(state.primal, state.dual, final=state.solved, facts={"iterations": state.steps})
        if not state.solved and state.primal - state.dual > state.problem.tolerance * abs(state.primal):
            rows = state.gatherer.join()
            solution = solve(state.problem, rows, state.deadline)
            state.point, state.a, state.row = solution.W.ravel(), solution.a, rows.row
            state.solved, state.steps = True, solution.steps
        clear_totals(state)
        return certificate

    def certify(self, state: MultinomialState) -> None:
        """Do nothing: every pass is an exact evaluation."""

    def solution(self, state: MultinomialState) -> LinearSolution:
        """Return the evaluated weights (classes, columns + 1) with the least P."""
        return LinearSolution(state.problem.kind.shape(state.best).copy(), state.problem.bias)
