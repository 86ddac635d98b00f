"""Softmax regression (multinomial logistic regression): all classes in one problem, with weights w_k for each.

    P(W) = 1/2 ||W||^2 + C sum_i s_i l_i,      l_i = 1/k log sum_j exp(k (w_j - w_y).x_i),      y the class of row i

k is the sharpness of the logistic loss, 1 by default. With the soft margin m_i = w_y.x_i - 1/k log sum_{j != y} exp(k w_j.x_i)
the loss of a row is the logistic one, l_i = 1/k log(1 + exp(-k m_i)), so that bounds that hold of a loss of margins hold
here. *Given* rows, classes y and weights s; *changed* W; *returned* P, D and sums of slopes.

**Dual.** The conjugate of log sum exp on the simplex is sum p log p. Each row has a point p_i of the simplex, and with
a_i = C_i (e_y - p_i)

    D(p) = 1/k sum_i C_i H(p_i) - 1/2 ||sum_i a_i x_i'||^2,      H(p) = -sum_j p_j log p_j >= 0,

is a lower bound of the optimum for every choice of p_i. At p_i = softmax(k W x_i) the equality of Fenchel and Young gives
P(W) - D(p) = 1/2 ||grad P(W)||^2, and sum_i C_i H(p_i) / k = sum_i C_i l_i + <W, v>, v = sum_i a_i x_i'. Multiples t a_i,
0 <= t <= 1, belong to (1 - t) e_y + t p_i; D there is at least t sum C_i H / k - t^2/2 ||v||^2, since H is concave and
0 at e_y. The Hessian of l_i in the decision values is k (diag(p) - p p') <= k/2 (I - 1 1'/K) (Boehning, Ann. Inst. Statist.
Math. 44, 1992).

**Rounding.** What is certified is computed without cancellation: with the largest decision value z_t of a row,
d_j = k (z_j - z_t) <= 0 and r = sum_{j != t} exp(d_j), the loss is (log1p(r) - d_y) / k and the entropy
log1p(r) - sum_j p_j d_j, sums of positive terms; 1 - p_y is r / (1 + r) where y = t. Errors of decision values count by
||e_y - p||_1 = 2 (1 - p_y), that is as two errors of a margin m_i; ``linear_rounding`` has the bounds, with b_i = C_i (1 - p_iy)
for a_i.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple

import numpy as np

from streamsvm.class_tags import saved_as
from streamsvm.compute.blocks import operators
from streamsvm.compute.blocks.matrix_products import WORKSPACE, multiply, sum_products
from streamsvm.rows import CSR, Dense, Float32, Float64, Targets, row_slice
from streamsvm.solvers.evaluation import PointSums, add_row_sums
from streamsvm.solvers.free_bias import ClassWeights
from streamsvm.type_aliases import Array
from streamsvm.types import AnySolver, Block, Kind, Problem
from streamsvm.types.problem import Bounds
from streamsvm.types.state import Total

TILE_BYTES = 4 << 20
"""Bytes of the float32 decision values that are worked on at the same time, those of all classes."""
MIN_TILE, MAX_TILE = 64, 2048
"""Least and largest number of rows of such a tile."""


def rows_per_tile(classes: int) -> int:
    """Return the number of rows whose decision values are worked on at the same time."""
    return max(MIN_TILE, min(MAX_TILE, TILE_BYTES // (4 * classes)))


class RowTerms(NamedTuple):
    """What ``softmax_slopes`` returns of rows, (n,) float64 each."""

    losses: Float64
    """l_i."""
    entropies: Float64 | None
    """H(p_i) / k; None without ``exact``."""


def softmax_slopes(Z: Array, own: Array, sharpness: float, *, exact: bool) -> RowTerms:
    """Replace decision values Z (K, n) by e_y - p, the negative slopes of the losses, and return losses and entropies.

    ``own``: the class y of each row, (n,) integers. ``exact``: compute all without cancellation, and entropies too.
    """
    columns = np.arange(Z.shape[1])
    if sharpness != 1.0:
        Z *= sharpness
    if not exact:
        Z -= Z.max(axis=0)
        of_own = Z[own, columns].astype(np.float64)
        np.exp(Z, out=Z)
        total = Z.sum(axis=0)
        Z /= -total
        Z[own, columns] += 1.0
        return RowTerms((np.log(total, dtype=np.float64) - of_own) / sharpness, None)
    top = Z.argmax(axis=0)
    Z -= Z[top, columns]
    below, of_own = WORKSPACE.array("below", Z.shape, Z.dtype), Z[own, columns]
    below[:] = Z
    np.exp(Z, out=Z)
    Z[top, columns] = 0.0
    rest = Z.sum(axis=0)
    Z[top, columns] = 1.0
    Z /= 1.0 + rest
    logarithm, p_own = np.log1p(rest), Z[own, columns]
    entropies = logarithm - np.einsum("kn,kn->n", Z, below)
    np.negative(Z, out=Z)
    Z[own, columns] = np.where(own == top, rest / (1.0 + rest), 1.0 - p_own)
    return RowTerms((logarithm - of_own) / sharpness, entropies / sharpness)


class Tile(NamedTuple):
    """Some rows of a block, evaluated at weights. Its arrays are valid until the next tile."""

    rows: slice
    """Their place in the block."""
    X: operators.Operand
    """The rows."""
    slopes: Array
    """(K, n) e_y - p, without weights of rows."""
    terms: RowTerms
    """Losses and entropies."""


def evaluate_tiles(problem: Problem, block: Block, W: Float64, *, exact: bool) -> Iterator[Tile]:
    """Yield the rows of a block in tiles, evaluated at W (K, p); ``exact``: in float64."""
    own, size = block.y.astype(np.intp), rows_per_tile(len(W))
    sharpness, weights = sharpness_of(problem), W if exact else W.astype(np.float32)
    rows = len(own)
    for start in range(0, rows, size):
        part = slice(start, min(start + size, rows))
        X = block.X
        if rows > size:
            X = (
                row_slice(X, part.start, part.stop)
                if isinstance(X, Dense | CSR)
                else operators.where(X, _rows_of_part(part, rows))
            )
        Z = multiply(X, weights, precise=exact, name="decision values")
        terms = softmax_slopes(Z, own[part], sharpness, exact=exact)
        yield Tile(part, X, Z, terms)


def _rows_of_part(part: slice, rows: int) -> Array:
    chosen = np.zeros(rows, np.bool_)
    chosen[part] = True
    return chosen


def sharpness_of(problem: Problem) -> float:
    """Return k of the problem's logistic loss."""
    loss: Any = problem.loss
    return float(loss.sharpness)


def are_ones(s: Float32 | Float64) -> bool:
    """Return whether all rows have the weight 1."""
    return bool((s == 1.0).all())


@saved_as("kind.softmax")
@dataclass(frozen=True, slots=True)
class Softmax(Kind):
    """All classes in one problem by the softmax of their decision values; for three classes and more.

    With two classes the logistic loss of one decision function is the same model, so that the fit is that problem.
    """

    classes: int = field()
    sharpness: float = 1.0
    """k of the logistic loss, by which the margin of a row is defined."""
    entries: ClassVar[float] = 2.0
    refusal: ClassVar[str] = "does not solve for softmax"

    @property
    def positives(self) -> tuple[int, ...]:
        return tuple(range(self.classes))

    def targets(self, codes: Array) -> Targets:
        return codes.astype(np.float32)

    def signs(self, y: Targets) -> Float64:
        """Return +1, the sign in the weights of the row's own class."""
        return np.ones(len(y))

    def margins(self, f: Float64, y: Targets) -> Float64:
        """Return the soft margins (n,), at which the logistic loss is that of the softmax."""
        rows, own = np.arange(len(f)), y.astype(np.intp)
        others = self.sharpness * f
        others[rows, own] = -np.inf
        top = others.max(axis=1)
        soft = top + np.log(np.exp(others - top[:, None]).sum(axis=1))
        margins: Float64 = f[rows, own] - soft / self.sharpness
        return margins

    def shape(self, w: Float64) -> Float64:
        return w.reshape(self.classes, -1)

    def decision_weights(self, w: Float64) -> Float64:
        return self.shape(w)

    def adapt(self, solver: AnySolver) -> AnySolver | None:
        """Return L-BFGS for softmax problems; None for other solvers."""
        from streamsvm.solvers.lbfgs import LBFGS, SoftmaxLBFGS

        return SoftmaxLBFGS(solver.history, solver.problems) if isinstance(solver, LBFGS) else None

    def start_evaluation(self, problem: Problem, w: Float64, unit: float) -> SoftmaxEvaluation:
        """Return empty sums over the rows of a problem."""
        return SoftmaxEvaluation(problem, w)

    def add_block(self, sums: PointSums, problem: Problem, block: Block, w: Float64) -> None:
        """Add the block to the sums for P and D at w (components,)."""
        losses, gain = add_slopes(problem, block, self.shape(w), self.shape(sums.v))
        sums.sums = sums.sums.plus((losses, losses, gain, 0.0))


def add_slopes(problem: Problem, block: Block, W: Float64, v: Float64) -> tuple[float, float]:
    """Add sum_i a_i x_i' of a block at W to v (K, p); return sum C_i l_i and sum C_i H(p_i) / k. All in float64."""
    losses, gain = 0.0, 0.0
    for tile in evaluate_tiles(problem, block, W, exact=True):
        factors = problem.C * block.s[tile.rows].astype(np.float64)
        losses += float(factors @ tile.terms.losses)
        assert tile.terms.entropies is not None
        gain += float(factors @ tile.terms.entropies)
        v += sum_products(tile.X, tile.slopes * factors, problem.columns, precise=True)
    return losses, gain


def dual_values(problem: Problem, block: Block, W: Float64, t: float) -> Float64:
    """Return the dual variables t a_i (n, K) of the rows at W (K, p)."""
    values = np.empty((len(block.y), len(W)))
    for tile in evaluate_tiles(problem, block, W, exact=True):
        values[tile.rows] = (t * problem.C * block.s[tile.rows].astype(np.float64) * tile.slopes).T
    return values


def dual_gain(problem: Problem, block: Block, alpha: Float64) -> float:
    """Return sum C_i H(p_i) / k for dual variables a_i = C_i (e_y - p_i), (n, K)."""
    factors = problem.C * block.s.astype(np.float64)
    counted = factors > 0.0
    a, own = alpha[counted] / factors[counted, None], block.y[counted].astype(np.intp)
    p, rows = np.maximum(-a, 0.0), np.arange(len(own))
    lost = np.clip(a[rows, own], 0.0, 1.0)  # 1 - p_y, which is small where p_y is near 1
    p[rows, own] = 0.0
    with np.errstate(divide="ignore", invalid="ignore"):
        others = np.where(p > 0.0, -p * np.log(p), 0.0).sum(axis=1)
        of_own = np.where(lost < 1.0, -(1.0 - lost) * np.log1p(-lost), 0.0)
    return float(factors[counted] @ (others + of_own)) / sharpness_of(problem)


@dataclass(slots=True)
class SoftmaxDual:
    """The sums over all rows that give D of dual variables."""

    v: Total[Float64]
    """(K, p) sum_i a_i x_i'."""
    gain: Total[float] = 0.0
    """sum C_i H(p_i) / k."""

    def value(self) -> float:
        """Return D."""
        return self.gain - 0.5 * float(np.sum(self.v**2))


@dataclass(slots=True)
class SoftmaxEvaluation:
    """The sums over all rows of a softmax problem, at its weights and at the dual variables of the solver."""

    problem: Problem
    weights: Float64
    """(K, p)."""
    slopes: Total[SoftmaxDual] = field(init=False)
    """Those of the slopes at the weights."""
    losses: Total[float] = 0.0
    """sum C_i l_i."""
    rows: Total[ClassWeights | None] = None
    """The weights of the classes, for a free bias."""
    own: Total[SoftmaxDual | None] = None
    """Those of the dual variables of the solver, if it has any."""

    def __post_init__(self) -> None:
        self.slopes = SoftmaxDual(np.zeros_like(self.weights))

    def add(self, block: Block, alpha: Float64 | None) -> None:
        """Add a block, with the dual variables (n, K) of its rows or None."""
        problem = self.problem
        self.rows = add_row_sums(self.rows, problem, block)
        losses, gain = add_slopes(problem, block, self.weights, self.slopes.v)
        self.losses, self.slopes.gain = self.losses + losses, self.slopes.gain + gain
        if alpha is not None:
            self.own = self.own or SoftmaxDual(np.zeros_like(self.weights))
            self.own.v += sum_products(block.X, np.ascontiguousarray(alpha.T), problem.columns, precise=True)
            self.own.gain += dual_gain(problem, block, alpha)

    def transform(self, weights: Float64, change: Callable[[Float64], Float64]) -> None:
        """Change to other features, for which the weights are ``weights`` and ``change`` transforms each v."""
        self.weights = weights
        if self.rows is not None:
            self.rows.transform(change)
        for point in (self.slopes, self.own):
            if point is not None:
                point.v = np.array([change(v) for v in point.v])

    def values(self) -> tuple[float, list[float]]:
        """Return P, and D of each dual point."""
        duals = [self._bounds().dual] + ([] if self.own is None else [self.own.value()])
        regularizer = self.problem.regularizer
        if regularizer.is_squared_norm:
            return 0.5 * float(np.sum(self.weights**2)) + self.losses, duals
        return regularizer.value(self.weights.ravel()) + self.losses, duals

    def _bounds(self) -> Bounds:
        """Return the best multiple of the slopes, and D there."""
        problem, sums = self.problem, (self.losses, self.slopes.gain, 0.0)
        return problem.regularizer.bounds(problem.loss, sums, self.weights.ravel(), self.slopes.v.ravel(), self.rows)

    def vector(self) -> Float64:
        """Return sum_i a_i x_i' (K, p) of the dual point with the largest D."""
        best = self._bounds()
        if self.own is not None and self.own.value() > best.dual:
            return self.own.v
        return best.scale * self.slopes.v
