"""Enclose the exact optimum of a fit: intervals that contain every decision value and coefficient that more training could give.

**Problem.** P(w) = 1/2 ||w||^2 + sum_i C_i l(m_i), with m_i = z_i x_i.w in classification (z_i = +1 or -1), m_i = x_i.w - t_i in
regression (z_i = 1), x_i with its constant feature, and a loss l without kinks. w* is the minimizer, which nobody knows.

**Given.** Weights w at which all rows were evaluated; margins m_i that are off by at most d_i; and g = w - sum_i C_i s(m_i) z_i x_i, the
gradient for these very margins, s = -l'. No dual value and no earlier bound is needed, and w may be far from w*.

**Secants.** For a step e_j let 0 <= lo_j <= (s(m_j) - s(m')) / (m' - m_j) <= hi_j for all m' with |m' - m_j| <= e_j + d_j
(``compute.passes.enclosure``). These are means of l'' over a stretch, and at a corner of l' much tighter than its values. Let

    H_lo = I + sum_j C_j lo_j x_j x_j',   H_hi = I + sum_j C_j hi_j x_j x_j',   |x|_A^2 = x'Ax,   q_j = |x_j|_{H_lo^-1}.

Rows may be left out of H_lo: 0 is a lower bound of their secants whatever happens. So some rows are enough for H_lo.

**Lemma.** Let D = sqrt(sum_j C_j b d_j^2), b the largest l''. If |g|_{H_lo^-1} + D <= r and r q_j < e_j for all rows of H_lo, then
w* = w - H^-1 (g - p) for a matrix H with H_lo <= H <= H_hi (H_hi if it has all rows) and a vector p with |p|_{H^-1} <= D.

*Proof.* With o_j = m_j - (the exact margin at w), |o_j| <= d_j, let w(t) minimize
Q_t(u) = 1/2 ||u||^2 + sum_j C_j l(z_j x_j.u [- t_j] + (1 - t) o_j) - (1 - t) g.u, which is P at t = 1. Q_t is strongly convex and continuous in t, hence w(t) is
continuous, and w(0) = w because the gradient of Q_0 there is g - g. As long as no row of H_lo has moved by more than e_j, |x_j.(w(t) - w)| <= e_j, its
margin m' in Q_t differs from m_j by z_j x_j.(w(t) - w) - t o_j, which is within the reach of the secants sigma_j. The equation "gradient = 0" minus the
definition of g gives H (w(t) - w) = -t (g - p), H = I + sum_j C_j sigma_j x_j x_j', p = sum_j C_j sigma_j o_j z_j x_j. And |p|_{H^-1}^2 <=
sum_j C_j sigma_j o_j^2 <= D^2, since |A'y|_{(I + A'A)^-1} <= |y|. Thus |x_j.(w(t) - w)| <= |x_j|_{H^-1} |g - p|_{H^-1} <= q_j r < e_j: the
step can never reach its border, so that all of this holds up to t = 1. []

**Interval.** With B = 1/2 (H_lo^-1 + H_hi^-1) and M = 1/2 (H_lo^-1 - H_hi^-1) >= 0,

    |x.w* - x.(w - B g)| <= |x|_M |g|_M + |x|_{H_lo^-1} D.

Without H_hi: B = M = 1/2 H_lo^-1. Without any row, H_lo = I: the ball with the diameter from w to w - g. From a gap P - D alone, for
any loss: the ball around w with the radius sqrt(2 (P - D)).

**How it is found.** Any numbers q'_j serve as a guess of q_j: |x_j|_{H(w)^-1}, H(w) with the values of l'' at w. For several factors E, e_j =
E r' q'_j with r' = |g|_{H(w)^-1} + D gives H_lo, then r and q_j, and the condition r q_j < e_j is checked for each row.

**Rounding**, u = 2^-53. Whatever is computed is rounded outward, so that an interval is true of the numbers as they are stored:

- Margins: d_j = (p + 4) u sum_k |x_jk w_k| (+ u |m_j| in regression) (Higham, *Accuracy and Stability of Numerical Algorithms*, section 3.1).
- g: componentwise bounds f_k of its sums come with it (``solvers.linear_rounding``); |f|_{H_lo^-1} <= sum_k f_k |W_k|, W_k the columns of W.
- Sums of T terms C x x': off by at most T u sum C |x| |x|' <= T u p diag(sum C x x') in the order of symmetric matrices: taken from H_lo, added to H_hi.
- Inverses: for any W, ||I - W H W'||_F <= h gives W'W / (1 + h) <= H^-1 <= W'W / (1 - h). h is computed, and 8 p u || |W| |H| |W'| ||_F added to
  it. No property of the factorization is used.
- Products W x: off by at most (p + 8) u sum_k |x_k| |W_k|.
- What is lost in x.(w - B g), there and when it is applied to a row, is at most ||x|| ``slack``.

References: the lemma is ours (problem and measurements: the explanation page *proved answers*); balls from a gap: Ndiaye, Fercoq, Gramfort and
Salmon, JMLR 18, 2017; secant bounds for a margin that moves: Okumura, Suzuki and Takeuchi, KDD 2015.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from streamsvm.aliases import Array, JsonObject
from streamsvm.compute.passes.enclosure import UNIT, secants_pass, slope_values
from streamsvm.errors import DataError
from streamsvm.rows import CSR, Float32, Float64, Rows, row_count, row_slice, to_matrix
from streamsvm.types import Loss

SAMPLE_FACTORS = (1.1, 1.4, 2.0, 4.0, 8.0, 16.0)
"""Factors E that are tried one after the other for rows in memory."""
FACTORS = (1.1, 2.0, 6.0)
"""Factors E for which a reading of all rows adds up matrices at the same time."""
LEVELS, LEAST_LEVEL, LARGEST_LEVEL = 10, 1e-4, 6.0
"""Sizes of steps at which rows are left out, geometric; the least and the largest, in units of the largest of any row."""
ADD_MATRICES = (2, 3)
"""Readings that are closed before those in which ``LeaveOneOut`` adds up matrices."""
TILE = 2048
"""Rows of one matrix product."""
TILE_BYTES = 16 << 20
"""Bytes, at most, of the rows of a tile to which enclosures are applied."""
TILE_SUMS = 64
"""Roundings, at most, of the entries of rows, of their factors and of products in a sum of tiles, beside one a row and tile."""
MOST_COMPONENTS = 1101
"""With more components no matrix is formed, and the enclosure is a ball."""
MOST_ROOT_BYTES = 16 << 20
"""Bytes, at most, of the matrices of all problems in a model; with more, each becomes the ball around it."""
LARGE = 0.1
"""The error h of an inverse from which on it counts as not found."""
INTERVAL_ROUNDING = 1e-13
"""Relative allowance for the arithmetic of a half width, of fewer than 2000 components."""


class EvaluatedPoint(NamedTuple):
    """Weights at which all rows of a problem were evaluated."""

    weights: Float64
    """w (p,)."""
    gradient: Float64
    """g (p,)."""
    errors: Float64
    """(p,) bounds f_k of the errors of g."""
    margins: float
    """A bound of D."""
    largest_error: float = 0.0
    """The largest d_j of the margins of g; ``errors`` and ``margins`` allow for rows whose margins are computed again, if it is 0."""


class MarginRows(NamedTuple):
    """Rows with their margins at a point."""

    X: Float64
    """(n, p), with the constant feature."""
    m: Float64
    """(n,)."""
    errors: Float64
    """(n,) d_j."""
    C: Float64
    """(n,) C_j."""


class Enclosure(NamedTuple):
    """|x.w* - x.center| <= |root x| radius + ||x|| slack for every row x (p,) of the solver, with its constant feature."""

    center: Float64
    """(p,)."""
    root: Float64 | None
    """(p, p) lower triangle; None: a ball."""
    radius: float
    slack: float

    def interval(self, X: Float64) -> tuple[Float64, Float64]:
        """Return the least and the largest x.w* of rows X (n, p)."""
        middle = X @ self.center
        half = self.slack * np.sqrt(np.einsum("ij,ij->i", X, X))
        if self.root is not None:
            half += self.radius * _lengths(X @ self.root.T)
        half *= 1.0 + INTERVAL_ROUNDING
        return middle - half, middle + half


def margins_of(X: Float64, y: Array, C: Float64, w: Float64, *, numeric: bool) -> MarginRows:
    """Return rows (n, p) with targets y (n,) and weights C (n,) at weights w (p,)."""
    f, errors = X @ w, (X.shape[1] + 4) * UNIT * (np.abs(X) @ np.abs(w))
    m = f - y if numeric else y * f
    return MarginRows(X, m, errors + UNIT * np.abs(m) if numeric else errors, C)


def has_enclosure(loss: Loss) -> bool:
    """Return whether the secants of a loss can be bounded: it has no kink, and its corners are known."""
    return loss.smooth() and hasattr(loss, "corners")


def secants(loss: Loss, m: Float64, reach: Float64) -> tuple[Float64, Float64]:
    """Return bounds (n,) of the secants of s from margins m (n,) within ``reach`` (n,)."""
    low, high = np.empty(len(m)), np.empty(len(m))
    corners = np.array(loss.corners(), np.float64)  # type: ignore[attr-defined]
    secants_pass(np.ascontiguousarray(m), np.maximum(reach, 1e-300), loss, corners, low, high)
    return low, high


# -- matrices


class Metric(NamedTuple):
    """W with W'W / (1 + error) <= H^-1 <= W'W / (1 - error)."""

    W: Float64
    """(p, p) lower triangle."""
    lower: Float64
    """(p, p) about the inverse of W."""
    error: float
    columns: Float64
    """(p,) lengths of the columns of W."""

    def norms(self, X: Float64) -> Float64:
        """Return upper bounds (n,) of |x|_{H^-1} for rows (n, p)."""
        p = len(self.W)
        found = _lengths(X @ self.W.T) + (p + 8) * UNIT * (np.abs(X) @ self.columns)
        return found * ((1.0 + 4 * p * UNIT) / np.sqrt(1.0 - self.error))

    def norms_below(self, X: Float64) -> Float64:
        """Return lower bounds (n,) of |x|_{H^-1} for rows (n, p)."""
        p = len(self.W)
        found = _lengths(X @ self.W.T) * (1.0 - 4 * p * UNIT) - (p + 8) * UNIT * (np.abs(X) @ self.columns)
        lengths: Float64 = np.maximum(found, 0.0) / np.sqrt(1.0 + self.error)
        return lengths

    def norm(self, x: Float64) -> float:
        """Return an upper bound of |x|_{H^-1}."""
        return float(self.norms(x[None, :])[0])

    def norm_of_error(self, errors: Float64) -> float:
        """Return an upper bound of |x|_{H^-1} for all x with |x_k| <= errors_k."""
        return float(errors @ self.columns) * (1.0 + 1e-12) / float(np.sqrt(1.0 - self.error))


def invert(H: Float64) -> Metric | None:
    """Return W and its error for a symmetric matrix (p, p); None if it is not positive definite to rounding."""
    from scipy.linalg import solve_triangular

    p = len(H)
    try:
        lower = np.asarray(np.linalg.cholesky(H), np.float64)
        W = solve_triangular(lower, np.eye(p), lower=True, check_finite=False)
    except (np.linalg.LinAlgError, ValueError):
        return None
    with np.errstate(all="ignore"):
        size = np.abs(W) @ np.abs(H) @ np.abs(W.T)
        error = float(np.linalg.norm(np.eye(p) - W @ H @ W.T) + 8 * p * UNIT * np.linalg.norm(size)) * 1.01
    return Metric(W, lower, error, _lengths(W.T) * (1.0 + 1e-12)) if error < LARGE else None


def weighted_gram(X: Float64, c: Float64) -> Float64:
    """Return X' diag(c) X (p, p) for rows (n, p) and factors c (n,) >= 0, as the sum over tiles of rows."""
    total = np.zeros((X.shape[1], X.shape[1]))
    used = np.flatnonzero(c)
    for start in range(0, len(used), TILE):
        part = used[start : start + TILE]
        scaled = X[part] * np.sqrt(c[part])[:, None]
        total += scaled.T @ scaled
    return total


def hessian(gram: Float64, tiles: int, sign: float) -> Float64:
    """Return I + ``gram``, less (sign -1) or more (sign 1) all that rounding of a sum of ``tiles`` products can have done."""
    H, p = gram.copy(), len(gram)
    diagonal = np.diag_indices(p)
    H[diagonal] += sign * (TILE + tiles + TILE_SUMS) * UNIT * p * np.maximum(np.diag(gram), 0.0)
    H[diagonal] += 1.0 + sign * 4 * UNIT
    return H


def _lengths(Z: Float64) -> Float64:
    lengths: Float64 = np.sqrt(np.einsum("ij,ij->i", Z, Z))
    return lengths


# -- enclosures


def ball_of_gap(w: Float64, gap: float) -> Enclosure:
    """Return the ball around w (p,) for any loss, from an upper bound of P(w) - min P."""
    return _ball(w, float(np.sqrt(2.0 * max(gap, 0.0))) * (1.0 + 1e-12))


def ball_of_gradient(point: EvaluatedPoint) -> Enclosure:
    """Return the ball with the diameter from w to w - g."""
    w, g = point.weights, point.gradient
    length = float(np.linalg.norm(g) * 0.5 + np.linalg.norm(point.errors)) + point.margins
    return _ball(w - 0.5 * g, length * (1.0 + 1e-12) + 4 * UNIT * float(np.linalg.norm(w) + np.linalg.norm(g)))


def _ball(center: Float64, length: float) -> Enclosure:
    slack = length + (len(center) + 16) * UNIT * float(np.linalg.norm(center))
    return Enclosure(center, None, 0.0, slack)


def enclose_by_rows(point: EvaluatedPoint, rows: MarginRows, loss: Loss) -> Enclosure:
    """Return the enclosure by an H_lo of some rows in memory; the ball of the gradient if the lemma does not apply."""
    curvature, _ = secants(loss, rows.m, np.full(len(rows.m), 1e-300))
    tiles, most = -(-len(rows.m) // TILE), 1.0 / loss.curvature(1.0)
    # their margins take the place of those of g, which may differ by the rounding of both
    changes = np.abs(rows.X).T @ (most * rows.C * (2.0 * point.largest_error + rows.errors))
    margins = point.margins + float(np.sqrt(most * np.sum(rows.C * np.square(rows.errors)))) * (1.0 + 1e-9)
    point = point._replace(errors=point.errors + changes * (1.0 + 1e-9), margins=margins)
    first = invert(hessian(weighted_gram(rows.X, rows.C * curvature), tiles, -1.0))
    if first is None:
        return ball_of_gradient(point)
    guess, start = first.norms(rows.X), size_of_gradient(first, point)
    for factor in SAMPLE_FACTORS:
        steps = factor * start * guess
        low, _ = secants(loss, rows.m, steps + rows.errors)
        metric = invert(hessian(weighted_gram(rows.X, rows.C * low), tiles, -1.0))
        if metric is None:
            continue
        sizes = size_of_gradient(metric, point) * metric.norms(rows.X)
        if bool(np.all((sizes < steps) | (sizes == 0.0) | (rows.C == 0.0))):
            return enclose_from_below(point, metric)
    return ball_of_gradient(point)


def size_of_gradient(metric: Metric, point: EvaluatedPoint) -> float:
    """Return an upper bound of |g|_{H_lo^-1} + D, the error of g included."""
    found = metric.norm(point.gradient) + metric.norm_of_error(point.errors) + point.margins
    return found * (1.0 + 1e-12) + 1e-300


def enclose_from_below(point: EvaluatedPoint, metric: Metric) -> Enclosure:
    """Return the enclosure by H_lo, for which the lemma holds, without H_hi."""
    W, p = metric.W, len(metric.W)
    image = W @ point.gradient
    length = metric.norm(point.gradient)
    center = point.weights - 0.5 * (W.T @ image)
    radius = 0.5 * length * (1.0 + metric.error) + metric.norm_of_error(point.errors) + point.margins
    radius *= (1.0 + 1e-12) / (1.0 - metric.error)
    lost = (2 * p + 16) * UNIT * (np.abs(W.T) @ (np.abs(W) @ np.abs(point.gradient)) + np.abs(point.weights))
    return Enclosure(center, W, radius, _slack(center, metric.columns, radius, lost))


def _slack(center: Float64, columns: Float64, radius: float, lost: Float64) -> float:
    """Return what rounding can add to an interval: of the center (``lost``), and of its use."""
    p = len(center)
    use = (p + 16) * UNIT * (float(np.linalg.norm(center)) + radius * float(np.linalg.norm(columns)))
    return (float(np.linalg.norm(lost)) + use) * (1.0 + 1e-12)


def enclose_from_both_sides(point: EvaluatedPoint, low: Metric, high: Metric) -> Enclosure:
    """Return the enclosure by H_lo, for which the lemma holds, and H_hi of all rows.

    With y = W_lo x, N about W_hi W_lo^-1 and F = W_hi - N W_lo, |x|_M^2 <= y'Qy for Q = 1/2 (I / (1 - h_lo) - N'N / (1 + h_hi)) + |N| ||F W_lo^-1|| I.
    With r = |g|_M and any k > 0, |x|_M r + |y| D <= sqrt(y'(Q + k I) y) sqrt(1 + t) r, where t = D^2 / (k r^2).
    """
    W, p, g = low.W, len(low.W), point.gradient
    image, image_above, length = W @ g, high.W @ g, low.norm(g)
    center = point.weights - 0.5 * (W.T @ image + high.W.T @ image_above)
    size = np.abs(W.T) @ (np.abs(W) @ np.abs(g)) + np.abs(high.W.T) @ (np.abs(high.W) @ np.abs(g))
    lost = (2 * p + 16) * UNIT * (size + np.abs(point.weights))
    other = point.margins + low.norm_of_error(point.errors) + 1.5 * (low.error + high.error) * length
    other *= (1.0 + 1e-12) / float(np.sqrt(1.0 - low.error))
    N = high.W @ low.lower
    rest = np.abs(high.W) + np.abs(N) @ np.abs(W)
    off = float(np.linalg.norm((high.W - N @ W) @ low.lower))
    off += 2 * (p + 4) * UNIT * float(np.linalg.norm(rest @ np.abs(low.lower)))
    off *= 1.1 * float(np.linalg.norm(N))
    Q = 0.5 * (np.eye(p) / (1.0 - low.error) - (N.T @ N) / (1.0 + high.error))
    floor = off + (2 * p + 16) * UNIT * float(np.linalg.norm(np.abs(N.T) @ np.abs(N)) + p)
    Q[np.diag_indices(p)] += floor
    lengthened = float(image @ Q @ image) + (4 * p + 16) * UNIT * length * length * (
        1.0 + float(np.linalg.norm(N)) ** 2
    )
    radius = float(np.sqrt(max(lengthened, 0.0))) + (p + 8) * UNIT * float(np.abs(g) @ low.columns)
    if radius <= other:
        return Enclosure(center, W, radius + other, _slack(center, low.columns, radius + other, lost))
    share = max(other / radius, 1e-6)
    Q[np.diag_indices(p)] += other * other / (share * radius * radius)
    R = _lower_root(Q)
    if R is None:
        return Enclosure(center, W, radius + other, _slack(center, low.columns, radius + other, lost))
    radius *= float(np.sqrt(1.0 + share)) * (1.0 + 1e-12)
    root, size_of_root = R @ W, np.abs(R) @ np.abs(W)
    return Enclosure(center, root, radius, _slack(center, 2.0 * _lengths(size_of_root.T), radius, lost))


def _lower_root(Q: Float64) -> Float64 | None:
    """Return a lower triangle R with R'R >= Q, positive semidefinite to rounding; None if there is none near by."""
    p = len(Q)
    pad = 16.0 * p * UNIT * float(np.linalg.norm(Q)) + 1e-300
    for _ in range(20):
        try:
            padded = Q + 2.0 * pad * np.eye(p)
            R = np.ascontiguousarray(np.linalg.cholesky(padded[::-1, ::-1]).T[::-1, ::-1])
        except np.linalg.LinAlgError:
            pad *= 4.0
            continue
        residual = np.linalg.norm(R.T @ R - padded) + (p + 4) * UNIT * np.linalg.norm(np.abs(R.T) @ np.abs(R))
        if residual <= pad:
            return R
        pad *= 4.0
    return None


# -- readings of all rows


@dataclass(frozen=True, slots=True)
class FirstReading:
    """What the first reading of all rows gives: the gradient at w with its errors, and the Hessian there."""

    point: EvaluatedPoint
    metric: Metric | None
    """That of the Hessian; None: it cannot be inverted."""

    @property
    def start(self) -> float:
        """R'."""
        assert self.metric is not None
        return size_of_gradient(self.metric, self.point)

    def newton_point(self) -> Float64:
        """Return w (p,) after a Newton step; w itself if there is no Hessian. Any point near the optimum encloses it."""
        w, g = self.point.weights, self.point.gradient
        return w if self.metric is None else w - self.metric.W.T @ (self.metric.W @ g)

    def is_better_than(self, other: FirstReading) -> bool:
        """Return whether the gradient is smaller here."""
        return self.metric is not None and (other.metric is None or self.start < other.start)


def start_first_reading(components: int) -> ReadingSums:
    """Return empty sums: the Hessian (p, p); v, sum |a_i| |x_i|, and what rounding of the a_i, and of margins that are computed again, can do to v (3, p);
    sum C_i b d_i^2 (1, 1).
    """
    p = components
    return ReadingSums([np.zeros((p, p)), np.zeros((3, p)), np.zeros((1, 1))])


def add_first_reading(sums: ReadingSums, rows: MarginRows, signs: Float64, loss: Loss) -> None:
    """Add rows with signs z_i (n,)."""
    sums.tiles += 2 + -(-len(rows.m) // TILE)
    curvature, _ = secants(loss, rows.m, np.full(len(rows.m), 1e-300))
    sums.values[0] += weighted_gram(rows.X, rows.C * curvature)
    (pulls, errors), most = pulls_of(rows, loss), 1.0 / loss.curvature(1.0)
    for start in range(0, len(rows.m), TILE):
        part = slice(start, start + TILE)
        size = np.abs(rows.X[part])
        sums.values[1][0] += rows.X[part].T @ (signs[part] * pulls[part])
        sums.values[1][1] += size.T @ np.abs(pulls[part])
        sums.values[1][2] += size.T @ (errors[part] + 2.0 * most * rows.C[part] * rows.errors[part])
    sums.values[2] += 4.0 * most * float(np.sum(rows.C * np.square(rows.errors)))


def close_first_reading(sums: ReadingSums, w: Float64) -> FirstReading:
    """Return the gradient at w (p,) and the Hessian there."""
    v, sizes, lost = sums.values[1]
    errors = (TILE + sums.tiles + TILE_SUMS) * UNIT * sizes + 1.01 * lost + 8 * UNIT * np.abs(w)
    margins = float(np.sqrt(sums.values[2][0, 0])) * (1.0 + 1e-9)
    point = EvaluatedPoint(w, w - v, errors * (1.0 + 1e-9), margins)
    return FirstReading(point, invert(hessian(sums.values[0], sums.tiles, -1.0)))


def pulls_of(rows: MarginRows, loss: Loss) -> tuple[Float64, Float64]:
    """Return a_i = C_i s(m_i) (n,), and bounds of their errors (n,)."""
    slopes = np.empty(len(rows.m))
    slope_values(np.ascontiguousarray(rows.m), loss, slopes)
    corners = max(map(abs, loss.corners()), default=0.0)  # type: ignore[attr-defined]
    errors = np.abs(slopes) + (np.abs(rows.m) + corners) / loss.curvature(1.0)
    return rows.C * slopes, 32 * UNIT * errors * rows.C


@dataclass(frozen=True, slots=True)
class Readings:
    """The state of a two-sided enclosure after the first reading: two more add up H_lo and H_hi for each factor E, and compare q_j with the steps."""

    first: FirstReading
    loss: Loss
    metrics: tuple[Metric | None, ...] = ()
    """Those of H_lo for each factor, after the second reading."""
    highs: tuple[Float64, ...] = ()
    """(p, p) H_hi for each factor, after the second reading."""

    def empty(self) -> ReadingSums:
        """Return empty sums of the reading that comes next."""
        p = len(self.first.point.weights)
        if not self.metrics:
            return ReadingSums([np.zeros((p, p)) for _ in range(2 * len(FACTORS))])
        return ReadingSums([np.zeros(len(FACTORS))])

    def add(self, sums: ReadingSums, rows: MarginRows) -> None:
        """Add rows to the sums of this reading."""
        sums.tiles += 1 + -(-len(rows.m) // TILE)
        if self.first.metric is None:
            return
        guess = self.first.start * self.first.metric.norms(rows.X)
        if self.metrics:
            used = (guess > 0.0) & (rows.C > 0.0)
            for k, metric in enumerate(self.metrics):
                if metric is not None and used.any():
                    sizes = size_of_gradient(metric, self.first.point) * metric.norms(rows.X[used])
                    ratio = float((sizes / (FACTORS[k] * guess[used])).max())
                    sums.values[0][k] = max(sums.values[0][k], ratio)
            return
        for k, factor in enumerate(FACTORS):
            low, high = secants(self.loss, rows.m, factor * guess + rows.errors)
            sums.values[2 * k] += weighted_gram(rows.X, rows.C * low)
            sums.values[2 * k + 1] += weighted_gram(rows.X, rows.C * high)

    def close(self, sums: ReadingSums) -> Readings:
        """Return the state after the second reading."""
        lows, highs = sums.values[::2], sums.values[1::2]
        metrics = tuple(invert(hessian(low, sums.tiles, -1.0)) for low in lows)
        return replace(self, metrics=metrics, highs=tuple(hessian(high, sums.tiles, 1.0) for high in highs))

    def enclose(self, sums: ReadingSums) -> Enclosure:
        """Return the enclosure after the third reading; the ball of the gradient if the lemma does not apply with any of the factors."""
        point = self.first.point
        for metric, high, ratio in zip(self.metrics, self.highs, sums.values[0].tolist(), strict=True):
            if self.first.metric is not None and metric is not None and ratio < 1.0 - 1e-9:
                above = invert(high)
                return (
                    enclose_from_below(point, metric)
                    if above is None
                    else enclose_from_both_sides(point, metric, above)
                )
        return ball_of_gradient(point)


@dataclass(slots=True)
class ReadingSums:
    """The sums of one reading over some rows: matrices, or in the third reading the largest r q_j / e_j for each factor."""

    values: list[Float64]
    tiles: int = 0
    """Number of sums of matrices that were made, at least."""

    def merge(self, other: ReadingSums) -> ReadingSums:
        """Return the sums over the rows of both; changes this one."""
        for mine, its in zip(self.values, other.values, strict=True):
            join = np.maximum if mine.ndim == 1 else np.add
            join(mine, its, out=mine)
        self.tiles += other.tiles + 1
        return self


# -- leaving out one row


@dataclass(frozen=True, slots=True)
class LeaveOneOut:
    """Bounds of what the exact optimum without a row predicts for that row, for all rows, from readings of all rows.

    Without row i, Q_0 has at w the gradient u = g + a_i z_i x_i, a_i = C_i s(m_i), and all matrices lose C_i sigma_i x_i x_i'. Let c = C_i lo_i, own = 1 - c q_i^2 and
    G = |g|_{H_lo^-1} + D. As |x|^2_{(H - c x_i x_i')^-1} = |x|^2 + c (x'H^-1 x_i)^2 / own <= |x|^2 / own (Sherman and Morrison; Cauchy), no margin of a row j moves by
    more than q_j (|a_i| q_i + G) / own, and the lemma holds for the problem without row i if that is below e_j for all j, that is if

        (|a_i| q_i + G) / own  <  min_j e_j / q_j.

    Then its margin at w* without it is m_i - a_i k - x_i.(...), where x'H^-1 x falls as H grows, so that with p_i = |x_i|_{H_hi^-1}

        p_i^2 / (1 - C_i hi_i p_i^2)  <=  k  <=  q_i^2 / own,      |x_i.(...)|  <=  q_i G / own.

    In the first of them lo_i may stand for hi_i, which loses next to nothing. Both ends are those of matrices, without any inequality of Cauchy and Schwarz: the interval is about as wide as the matrices are apart. It is tried for several sizes
    of the steps (``LEVELS``); for a row that none of them is enough for, the ball with the diameter from w to w - u remains. The weight of a row is left out with it;
    scaling, C and the weights of classes stay.

    After the first reading four more find the largest |a_i| q_i, H_lo of every level for a better guess of q_j, H_lo and H_hi, and min_j e_j / q_j; then ``bounds`` gives the intervals.
    """

    first: FirstReading
    loss: Loss
    largest: float = 0.0
    """The largest |a_i| |x_i|_{H(w)^-1}, after the second reading."""
    lows: tuple[Metric | None, ...] = ()
    """Those of H_lo for each level, after the third."""
    highs: tuple[Metric | None, ...] = ()
    reaches: tuple[float, ...] = ()
    """min_j e_j / q_j of each level, after the fifth."""
    guides: tuple[Metric | None, ...] = ()
    """Those of a first H_lo for each level: q'_j is the larger of |x_j|_{H(w)^-1} and |x_j|_{H_lo^-1}, so that rows in rare columns get longer steps."""
    readings: int = 1
    """Readings that were closed."""

    @property
    def steps(self) -> Float64:
        """The size of steps of each level, in units of |x_j|_{H(w)^-1}."""
        start = self.first.start
        top = LARGEST_LEVEL * (self.largest + start)
        return np.geomspace(max(LEAST_LEVEL * top, 2.0 * start), max(top, 4.0 * start), LEVELS)

    def empty(self) -> ReadingSums:
        """Return empty sums of the reading that comes next."""
        p = len(self.first.point.weights)
        if self.readings in ADD_MATRICES:
            return ReadingSums([np.zeros((p, p)) for _ in range(2 * LEVELS)])
        return ReadingSums([np.zeros(LEVELS)])

    def _steps_of(self, k: int, X: Float64, sizes: Float64) -> Float64:
        """Return e_j (n,) of level k for rows (n, p) with |x_j|_{H(w)^-1} = ``sizes`` (n,)."""
        guide = self.guides[k] if self.guides else None
        return float(self.steps[k]) * (sizes if guide is None else np.maximum(sizes, guide.norms(X)))

    def add(self, sums: ReadingSums, rows: MarginRows) -> None:
        """Add rows to the sums of this reading."""
        sums.tiles += 1 + -(-len(rows.m) // TILE)
        if self.first.metric is None:
            return
        sizes = self.first.metric.norms(rows.X)
        if self.readings < ADD_MATRICES[0]:
            pulls, _ = pulls_of(rows, self.loss)
            sums.values[0][0] = max(sums.values[0][0], float((np.abs(pulls) * sizes).max(initial=0.0)))
            return
        for k in range(LEVELS):
            steps = self._steps_of(k, rows.X, sizes)
            if self.readings in ADD_MATRICES:
                low, high = secants(self.loss, rows.m, steps + rows.errors)
                sums.values[2 * k] += weighted_gram(rows.X, rows.C * low)
                sums.values[2 * k + 1] += weighted_gram(rows.X, rows.C * high)
                continue
            metric, used = self.lows[k], (sizes > 0.0) & (rows.C > 0.0)
            if metric is not None and used.any():
                ratios = metric.norms(rows.X[used]) / steps[used]
                sums.values[0][k] = max(sums.values[0][k], float(ratios.max()))

    def close(self, sums: ReadingSums) -> LeaveOneOut:
        """Return the state after a reading."""
        after = replace(self, readings=self.readings + 1)
        if self.readings < ADD_MATRICES[0]:
            return replace(after, largest=float(sums.values[0][0]))
        if self.readings in ADD_MATRICES:
            lows = tuple(invert(hessian(low, sums.tiles, -1.0)) for low in sums.values[::2])
            if self.readings == ADD_MATRICES[0]:
                return replace(after, guides=lows)
            highs = tuple(invert(hessian(high, sums.tiles, 1.0)) for high in sums.values[1::2])
            return replace(after, lows=lows, highs=highs)
        return replace(
            after, reaches=tuple(1.0 / ratio if ratio > 0.0 else np.inf for ratio in sums.values[0].tolist())
        )

    def bounds(self, rows: MarginRows, signs: Float64) -> tuple[Float64, Float64, Array]:
        """Return the least and the largest margin (n,) of each row at the optimum without it, and whether a level was enough (n,)."""
        pulls, errors = pulls_of(rows, self.loss)
        low, high = self._ball_bounds(rows, signs, pulls, errors)
        settled = np.zeros(len(rows.m), np.bool_)
        if self.first.metric is None:
            return low, high, settled
        sizes = self.first.metric.norms(rows.X)
        for k, (metric, above, reach) in enumerate(zip(self.lows, self.highs, self.reaches, strict=True)):
            left = np.flatnonzero(~settled)
            if metric is None or above is None or not len(left):
                continue
            steps = self._steps_of(k, rows.X[left], sizes[left])
            least, largest = secants(self.loss, rows.m[left], steps + rows.errors[left])
            least, largest = rows.C[left] * least * (1.0 - 1e-9), rows.C[left] * largest * (1.0 + 1e-9)
            q, size = metric.norms(rows.X[left]), size_of_gradient(metric, self.first.point)
            a = np.abs(pulls[left]) + errors[left]
            own = (1.0 - self._largest_low(rows, left, steps, largest) * q * q) * (1.0 - 1e-12) - 1e-15
            with np.errstate(all="ignore"):
                enough = (own > 0.0) & ((a * q + size) / own < reach * (1.0 - 1e-9))
            here, q, own = left[enough], q[enough], own[enough]
            if not len(here):
                continue
            p = above.norms_below(rows.X[here])
            most, fewest = q * q / own, p * p / (1.0 - np.minimum(least[enough] * p * p, 1.0 - 1e-9))
            ends = np.array([(pulls[here] + sign * errors[here]) * k for sign in (-1.0, 1.0) for k in (fewest, most)])
            other = q * size / own + rows.errors[here]
            other = (other + 16 * UNIT * (np.abs(rows.m[here]) + np.abs(ends).max(axis=0))) * (1.0 + 1e-9)
            low[here] = np.maximum(low[here], rows.m[here] - ends.max(axis=0) - other)
            high[here] = np.minimum(high[here], rows.m[here] - ends.min(axis=0) + other)
            settled[here] = True
        return low, high, settled

    def _largest_low(self, rows: MarginRows, chosen: Array, steps: Float64, largest: Float64) -> Float64:
        """Return upper bounds (n,) of the C_i lo_i of some rows that are in H_lo, whose margins may differ there by rounding.

        With at most one corner lo is a falling function of the reach, and by a change d of the margin it changes by no more than b d / e; else
        C_i hi_i (n,), ``largest``, stands for it.
        """
        if len(self.loss.corners()) > 1:  # type: ignore[attr-defined]
            return largest
        errors, C = rows.errors[chosen], rows.C[chosen]
        low, _ = secants(self.loss, rows.m[chosen], 0.999 * steps + errors)
        moved = 4.0 * errors / np.maximum(steps, 1e-300) / self.loss.curvature(1.0)
        return np.minimum(largest, C * (low * (1.0 + 1e-9) + moved))

    def _ball_bounds(
        self, rows: MarginRows, signs: Float64, pulls: Float64, errors: Float64
    ) -> tuple[Float64, Float64]:
        """Return the bounds of the balls (n,), which hold for every row."""
        point, g = self.first.point, self.first.point.gradient
        lengths, along = _lengths(rows.X), signs * (rows.X @ g)
        p, scale = rows.X.shape[1], float(np.linalg.norm(g)) + np.abs(pulls) * lengths
        squares = float(g @ g) + 2.0 * pulls * along + np.square(pulls * lengths)
        whole = np.sqrt(np.maximum(squares, 0.0) + 4 * (p + 16) * UNIT * np.square(scale))
        off = point.margins + float(np.linalg.norm(point.errors)) + errors * lengths
        half = (0.5 * whole + off + (p + 32) * UNIT * scale) * lengths + rows.errors + 4 * UNIT * np.abs(rows.m)
        middle = rows.m - 0.5 * (pulls * np.square(lengths) + along)
        return middle - half, middle + half


def reading_bytes(components: int, levels: int = len(FACTORS)) -> int:
    """Return the bytes of the sums of the largest reading."""
    return 2 * levels * 8 * components * components


def work_bytes(components: int) -> int:
    """Return the bytes of rows of a tile, their products, and the matrices with which an enclosure is made."""
    return 8 * (4 * TILE * components + 12 * components * components)


# -- what a model keeps


@dataclass(frozen=True, slots=True, eq=False)
class Enclosures:
    """The enclosures of all decision functions of a linear model, for rows as they are stored.

    A row of the solver is (x_j - shift_j) scale_j, computed in float64, and a constant feature of value ``bias``.
    """

    parts: tuple[Enclosure, ...]
    bias: float
    shift: Float32 | None = None
    """(d,); None: rows are not scaled."""
    scale: Float32 | None = None
    """(d,)."""

    def intervals(self, X: Rows) -> tuple[Float64, Float64]:
        """Return the least and the largest decision values (n, k) of the exact optima for rows X (n, d)."""
        rows, count = row_count(X), len(self.parts)
        if (
            isinstance(X, CSR)
            and all(part.root is None for part in self.parts)
            and (self.shift is None or not self.shift.any())
        ):
            return self._sparse_intervals(X)
        low, high = np.empty((rows, count)), np.empty((rows, count))
        step = max(1, min(TILE, TILE_BYTES // (8 * len(self.parts[0].center))))
        for start in range(0, rows, step):
            stop = min(rows, start + step)
            features = self.features(row_slice(X, start, stop))
            for k, part in enumerate(self.parts):
                low[start:stop, k], high[start:stop, k] = part.interval(features)
        return low, high

    def _sparse_intervals(self, X: CSR) -> tuple[Float64, Float64]:
        """Return the intervals of balls, at the cost of the entries that are stored."""
        rows, data = row_count(X), X.data.astype(np.float64)
        number = np.repeat(np.arange(rows), np.diff(X.indptr))
        if self.scale is not None:
            data *= self.scale[X.indices]
        lengths = np.sqrt(np.bincount(number, data * data, rows) + self.bias * self.bias)
        ends = []
        for part in self.parts:
            middle = np.bincount(number, data * part.center[X.indices], rows) + self.bias * part.center[-1]
            half = part.slack * lengths * (1.0 + INTERVAL_ROUNDING)
            ends.append((middle - half, middle + half))
        return np.array([low for low, _ in ends]).T, np.array([high for _, high in ends]).T

    @property
    def nbytes(self) -> int:
        """Bytes of all matrices and centers."""
        return sum(part.center.nbytes + (0 if part.root is None else part.root.nbytes) for part in self.parts)

    def features(self, X: Rows) -> Float64:
        """Return rows as the problem sees them, (n, d + 1) float64."""
        columns = len(self.parts[0].center) - 1
        return exact_features(X, columns, self.bias, self.shift, self.scale)

    def select(self, problems: Sequence[int]) -> Enclosures:
        """Return the enclosures of some decision functions."""
        return replace(self, parts=tuple(self.parts[k] for k in problems))

    def coefficients(self) -> tuple[Float64, Float64]:
        """Return the least and the largest coefficients (k, d) of the exact optima, in the units of the columns."""
        d = len(self.parts[0].center) - 1
        scale = np.ones(d) if self.scale is None else self.scale.astype(np.float64)
        ends = []
        for part in self.parts:
            half = np.full(d, part.slack)
            if part.root is not None:
                half += part.radius * _lengths(part.root.T)[:-1]
            half *= 1.0 + INTERVAL_ROUNDING
            middle = part.center[:-1]
            pad = 4 * UNIT * (np.abs(middle) + half) * scale
            ends.append(((middle - half) * scale - pad, (middle + half) * scale + pad))
        return np.array([low for low, _ in ends]), np.array([high for _, high in ends])

    def header(self) -> JsonObject:
        """Return the numbers as plain JSON."""
        parts = [{"radius": part.radius, "slack": part.slack} for part in self.parts]
        return {"bias": self.bias, "parts": parts}

    def tensors(self) -> dict[str, Array]:
        """Return the arrays, by name; of matrices the lower triangles, one after the other."""
        found: dict[str, Array] = {"enclosure.center": np.array([part.center for part in self.parts])}
        if self.shift is not None and self.scale is not None:
            found |= {"enclosure.shift": self.shift, "enclosure.scale": self.scale}
        for k, part in enumerate(self.parts):
            if part.root is not None:
                found[f"enclosure.root.{k}"] = part.root[np.tril_indices(len(part.root))]
        return found


def decode_enclosures(header: Any, tensors: dict[str, Array], problems: int, columns: int) -> Enclosures:
    """Return the enclosures of a file. Raises DataError, KeyError, TypeError, ValueError for what is none."""
    center, p = tensors["enclosure.center"], columns + 1
    if center.dtype != np.float64 or center.shape != (problems, p) or len(header["parts"]) != problems:
        raise DataError("the enclosure is not usable")
    scaling: list[Float32 | None] = [tensors.get(f"enclosure.{name}") for name in ("shift", "scale")]
    for array in scaling:
        if array is not None and (array.dtype != np.float32 or array.shape != (columns,)):
            raise DataError("the enclosure is not usable")
    parts = []
    for k, numbers in enumerate(header["parts"]):
        root, packed = None, tensors.get(f"enclosure.root.{k}")
        if packed is not None:
            if packed.dtype != np.float64 or packed.shape != (p * (p + 1) // 2,):
                raise DataError("the enclosure is not usable")
            root = np.zeros((p, p))
            root[np.tril_indices(p)] = packed
        part = Enclosure(center[k], root, float(numbers["radius"]), float(numbers["slack"]))
        if not (part.radius >= 0.0 and part.slack >= 0.0):
            raise DataError("the enclosure is not usable")
        parts.append(part)
    found = Enclosures(tuple(parts), float(header["bias"]), *scaling)
    if not all(np.isfinite(array).all() for array in found.tensors().values()) or (scaling[0] is None) != (
        scaling[1] is None
    ):
        raise DataError("the enclosure is not usable")
    return found


def exact_features(
    X: Rows, columns: int, bias: float, shift: Float32 | None = None, scale: Float32 | None = None
) -> Float64:
    """Return stored rows as float64 (n, columns + 1), scaled, with the constant feature; columns that CSR rows lack are 0."""
    features = np.empty((row_count(X), columns + 1))
    features[:, :-1] = to_matrix(X, columns) if isinstance(X, CSR) else X.values
    if shift is not None and scale is not None:
        features[:, :-1] -= shift
        features[:, :-1] *= scale
    features[:, -1] = bias
    return features


def limit_bytes(parts: Sequence[Enclosure]) -> list[Enclosure]:
    """Return the enclosures, as balls if their matrices together are larger than ``MOST_ROOT_BYTES``."""
    nbytes = sum(4 * len(part.center) * (len(part.center) + 1) for part in parts if part.root is not None)
    if nbytes <= MOST_ROOT_BYTES:
        return list(parts)
    return [_as_ball(part) for part in parts]


def _as_ball(part: Enclosure) -> Enclosure:
    """Return the ball around an enclosure: |root x| <= ||root|| ||x||."""
    if part.root is None:
        return part
    squares = part.root.T @ part.root
    largest = float(np.linalg.eigvalsh(squares)[-1]) + 4 * len(squares) * UNIT * float(np.linalg.norm(part.root)) ** 2
    return Enclosure(
        part.center, None, 0.0, part.slack + part.radius * float(np.sqrt(max(largest, 0.0))) * (1.0 + 1e-9)
    )
