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

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from streamsvm.compute.passes.enclosure import UNIT, secants_pass, slope_values
from streamsvm.rows import Float32, Float64
from streamsvm.type_aliases import Array
from streamsvm.types import Loss

SAMPLE_FACTORS = (1.1, 1.4, 2.0, 4.0, 8.0, 16.0)
"""Factors E that are tried one after the other for rows in memory."""
FACTORS = (1.1, 2.0, 6.0)
"""Factors E for which a pass over all rows adds up matrices at the same time."""
TILE = 2048
"""Rows of one matrix product."""
TILE_SUMS = 64
"""Roundings, at most, of the entries of rows, of their factors and of products in a sum of tiles, beside one a row and tile."""
MOST_COMPONENTS = 1101
"""With more components no matrix is formed, and the enclosure is a ball."""
SINGLE_UNIT = 2.0**-24
"""Unit roundoff of float32."""
SINGLE_UNDERFLOW = 1e-18
"""A bound of what float32 loses in a length, for each column, by products and squares below its range (1.2e-38)."""
SINGLE_TINY = 1e-44
"""A bound of what is lost when a number is rounded to float32 below its range."""
NORM_BYTES = 512 << 10
"""Bytes of the rows whose norms are computed at a time, so that products stay in the cache."""
SMALL_TRIANGLE = 64
"""Rows of a triangle, at most, that is inverted as a whole."""
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
        with np.errstate(over="ignore"):
            return self.interval_around(X @ self.center, X.astype(np.float32))

    def interval_around(self, middle: Float64, rows: Float32) -> tuple[Float64, Float64]:
        """Return the least and the largest x.w* of rows (n, p) with ``middle`` = x.center (n,); ``rows`` may be rounded to float32."""
        if self.root is None:
            half = self.slack * lengths_of(rows.astype(np.float64)) * (1.0 + 2.0 * SINGLE_UNIT) + SINGLE_UNDERFLOW
        else:
            half = self.slack * bound_sizes(rows) + self.radius * bound_lengths(rows, self.root)
        half *= 1.0 + INTERVAL_ROUNDING
        return middle - half, middle + half


def margins_of(X: Float64, y: Array, C: Float64, w: Float64, *, numeric: bool) -> MarginRows:
    """Return rows (n, p) with targets y (n,) and weights C (n,) at weights w (p,)."""
    f, errors, step = X @ w, np.empty(len(X)), max(64, NORM_BYTES // (8 * X.shape[1]))
    for start in range(0, len(X), step):
        errors[start : start + step] = np.abs(X[start : start + step]) @ np.abs(w)
    errors *= (X.shape[1] + 4) * UNIT
    m = f - y if numeric else y * f
    return MarginRows(X, m, errors + UNIT * np.abs(m) if numeric else errors, C)


def has_enclosure(loss: Loss) -> bool:
    """Return whether the secants of a loss can be bounded: it has no kink, and its corners are known."""
    return loss.smooth() and hasattr(loss, "corners")


def secants(loss: Loss, m: Float64, reach: Float64) -> tuple[Float64, Float64]:
    """Return bounds (n,) of the secants of s from margins m (n,) within ``reach`` (n,)."""
    reach = np.maximum(reach, 1e-300)
    return _bound_secants(loss, m, -reach, reach)


def secants_towards(loss: Loss, m: Float64, low: Float64, high: Float64) -> tuple[Float64, Float64]:
    """Return bounds (n,) of the secants of s from margins m (n,) to all margins between low and high (n,)."""
    pad = 4 * UNIT * (np.abs(m) + np.maximum(np.abs(low), np.abs(high))) + 1e-300
    return _bound_secants(loss, m, low - m - pad, high - m + pad)


def _bound_secants(loss: Loss, m: Float64, down: Float64, up: Float64) -> tuple[Float64, Float64]:
    low, high = np.empty(len(m)), np.empty(len(m))
    corners = np.array(loss.corners(), np.float64)  # type: ignore[attr-defined]
    secants_pass(np.ascontiguousarray(m), down, up, loss, corners, low, high)
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
    matrix: Float64
    """(p, p) H."""

    def norms(self, X: Float64) -> Float64:
        """Return upper bounds (n,) of |x|_{H^-1} for rows (n, p)."""
        p = len(self.W)
        found, step = np.empty(len(X)), max(64, NORM_BYTES // (8 * p))
        for start in range(0, len(X), step):
            part = X[start : start + step]
            found[start : start + step] = lengths_of(part @ self.W.T) + (p + 8) * UNIT * (np.abs(part) @ self.columns)
        return found * ((1.0 + 4 * p * UNIT) / np.sqrt(1.0 - self.error))

    def norms_below(self, X: Float64) -> Float64:
        """Return lower bounds (n,) of |x|_{H^-1} for rows (n, p)."""
        p = len(self.W)
        found = lengths_of(X @ self.W.T) * (1.0 - 4 * p * UNIT) - (p + 8) * UNIT * (np.abs(X) @ self.columns)
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
    p = len(H)
    try:
        lower = np.asarray(np.linalg.cholesky(H), np.float64)
        W = invert_triangle(lower)
    except (np.linalg.LinAlgError, ValueError):
        return None
    with np.errstate(all="ignore"):
        size = np.abs(W) @ np.abs(H) @ np.abs(W.T)
        error = float(np.linalg.norm(np.eye(p) - W @ H @ W.T) + 8 * p * UNIT * np.linalg.norm(size)) * 1.01
    return Metric(W, lower, error, lengths_of(W.T) * (1.0 + 1e-12), H) if error < LARGE else None


def invert_triangle(L: Float64) -> Float64:
    """Return the inverse of a lower triangle (p, p), by halves. Raises LinAlgError.

    It keeps to numpy, whose BLAS has one thread in a job; that of scipy is loaded later, and a second thread of it costs more than a small matrix.
    """
    p = len(L)
    if p <= SMALL_TRIANGLE:
        return np.tril(np.linalg.inv(L))
    cut, W = p // 2, np.zeros((p, p))
    W[:cut, :cut], W[cut:, cut:] = invert_triangle(L[:cut, :cut]), invert_triangle(L[cut:, cut:])
    W[cut:, :cut] = -W[cut:, cut:] @ (L[cut:, :cut] @ W[:cut, :cut])
    return W


def weighted_gram(X: Float64, c: Float64) -> Float64:
    """Return X' diag(c) X (p, p) for rows (n, p) and factors c (n,) >= 0, as the sum over tiles of rows."""
    total = np.zeros((X.shape[1], X.shape[1]))
    used = np.flatnonzero(c)
    for start in range(0, len(used), TILE):
        part = used[start : start + TILE]
        scaled = X[part] * np.sqrt(c[part])[:, None]
        total += scaled.T @ scaled
    return total


def rounding_of_sums(tiles: int) -> float:
    """Return a bound of the rounding of a sum of ``tiles`` products of tiles, relative to the sum of the sizes of its terms."""
    return (TILE + tiles + TILE_SUMS) * UNIT


def pad_gram(gram: Float64, tiles: int, sign: float) -> Float64:
    """Return a sum of ``tiles`` products C x x' (p, p), less (sign -1) or more (sign 1) all that rounding can have done to it."""
    padded, p = gram.copy(), len(gram)
    padded[np.diag_indices(p)] += sign * rounding_of_sums(tiles) * p * np.maximum(np.diag(gram), 0.0)
    return padded


def hessian(gram: Float64, tiles: int, sign: float) -> Float64:
    """Return I + ``gram``, less (sign -1) or more (sign 1) all that rounding of a sum of ``tiles`` products can have done."""
    H = pad_gram(gram, tiles, sign)
    H[np.diag_indices(len(H))] += 1.0 + sign * 4 * UNIT
    return H


def bound_sizes(rows: Float32) -> Float64:
    """Return upper bounds (n,) of the lengths of rows (n, p) that may have been rounded to float32."""
    with np.errstate(over="ignore"):
        sizes = np.sqrt(np.einsum("ij,ij->i", rows, rows).astype(np.float64))
    if not np.isfinite(sizes).all():
        sizes = lengths_of(rows.astype(np.float64))
    return sizes * (1.0 + (rows.shape[1] + 8) * SINGLE_UNIT) + rows.shape[1] * SINGLE_UNDERFLOW


def bound_lengths(rows: Float32, root: Float64) -> Float64:
    """Return upper bounds (n,) of the lengths of ``root`` x for a matrix (p, p) and rows x (n, p) that may have been rounded to float32.

    Products in float32 take a quarter of the time. They are off by at most (p + 8) v sum_k |x_k| |root_k|, v = 2^-24, root_k the columns, and their
    length by a relative (p + 8) v.
    """
    p, columns = len(root), lengths_of(root.T)
    with np.errstate(over="ignore", invalid="ignore"):
        product = rows @ root.astype(np.float32).T
        lengths = np.sqrt(np.einsum("ij,ij->i", product, product).astype(np.float64))
        parts = (np.abs(rows) @ columns.astype(np.float32)).astype(np.float64)
    if not np.isfinite(lengths + parts).all():  # numbers that float32 has not
        exact = rows.astype(np.float64)
        with np.errstate(invalid="ignore"):
            lengths, parts = lengths_of(exact @ root.T), np.abs(exact) @ columns
        lengths = np.nan_to_num(lengths, nan=np.inf, posinf=np.inf)
    largest = float(columns.max(initial=0.0))
    lengths = lengths * (1.0 + (p + 8) * SINGLE_UNIT) + (p + 8) * SINGLE_UNIT * 1.01 * parts
    return lengths + p * (SINGLE_TINY * (bound_sizes(rows) + largest) + SINGLE_UNDERFLOW)


def lengths_of(Z: Float64) -> Float64:
    """Return the Euclidean lengths (n,) of rows (n, p)."""
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


def enclose_by_rows(
    point: EvaluatedPoint, rows: MarginRows, loss: Loss, before: tuple[Enclosure, float] | None = None
) -> Enclosure:
    """Return the enclosure by an H_lo of some rows in memory; the ball of the gradient if the lemma does not apply.

    ``before``: an enclosure at the same point by fewer rows, and their number as a share of these, from which the steps are guessed; if the guess is
    of no use, they are guessed anew.
    """
    given = point
    tiles, most = -(-len(rows.m) // TILE), 1.0 / loss.curvature(1.0)
    # their margins take the place of those of g, which may differ by the rounding of both
    changes, moved = np.zeros(rows.X.shape[1]), most * rows.C * (2.0 * point.largest_error + rows.errors)
    for row in range(0, len(rows.m), TILE):
        changes += moved[row : row + TILE] @ np.abs(rows.X[row : row + TILE])
    margins = point.margins + float(np.sqrt(most * np.sum(rows.C * np.square(rows.errors)))) * (1.0 + 1e-9)
    point = point._replace(errors=point.errors + changes * (1.0 + 1e-9), margins=margins)
    if before is None or before[0].root is None:
        curvature, _ = secants(loss, rows.m, np.full(len(rows.m), 1e-300))
        first = invert(hessian(weighted_gram(rows.X, rows.C * curvature), tiles, -1.0))
        if first is None:
            return ball_of_gradient(point)
        guess, start = first.norms(rows.X), size_of_gradient(first, point)
    else:  # H grows with the number of rows
        root, share = before[0].root, before[1]
        guess, start = share * lengths_of(rows.X @ root.T), float(np.linalg.norm(root @ point.gradient)) + point.margins
    for factor in SAMPLE_FACTORS:
        steps = factor * start * guess
        low, _ = secants(loss, rows.m, steps + rows.errors)
        metric = invert(hessian(weighted_gram(rows.X, rows.C * low), tiles, -1.0))
        if metric is None:
            continue
        sizes = size_of_gradient(metric, point) * metric.norms(rows.X)
        if bool(np.all((sizes < steps) | (sizes == 0.0) | (rows.C == 0.0))):
            return enclose_from_below(point, metric)
    return ball_of_gradient(point) if before is None else enclose_by_rows(given, rows, loss)


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


def enclose_between(point: EvaluatedPoint, low: Metric, high: Metric | None) -> Enclosure:
    """Return the enclosure by H_lo, for which the lemma holds, and by H_hi of all rows where it can be inverted (else None)."""
    return enclose_from_below(point, low) if high is None else enclose_from_both_sides(point, low, high)


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
    return Enclosure(center, root, radius, _slack(center, 2.0 * lengths_of(size_of_root.T), radius, lost))


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


# -- passes over all rows


@dataclass(frozen=True, slots=True)
class PointWithHessian:
    """What the first pass over all rows gives: the gradient at w with its errors, and the Hessian there."""

    point: EvaluatedPoint
    metric: Metric | None
    """That of the Hessian; None: it cannot be inverted."""

    @property
    def start(self) -> float:
        """The length |g|_{H(w)^-1} + D of the step to the optimum, r' in the module."""
        assert self.metric is not None
        return size_of_gradient(self.metric, self.point)

    def newton_point(self) -> Float64:
        """Return w (p,) after a Newton step; w itself if there is no Hessian. Any point near the optimum encloses it."""
        w, g = self.point.weights, self.point.gradient
        return w if self.metric is None else w - self.metric.W.T @ (self.metric.W @ g)

    def is_better_than(self, other: PointWithHessian) -> bool:
        """Return whether the gradient is smaller here."""
        return self.metric is not None and (other.metric is None or self.start < other.start)


def start_first_pass(components: int) -> PassSums:
    """Return empty sums: the Hessian (p, p); those of ``add_pulls`` (3, p); D^2 (1, 1)."""
    p = components
    return PassSums([np.zeros((p, p)), np.zeros((3, p)), np.zeros((1, 1))])


def add_first_pass(sums: PassSums, rows: MarginRows, signs: Float64, loss: Loss) -> None:
    """Add rows with signs z_i (n,)."""
    sums.tiles += 2 + -(-len(rows.m) // TILE)
    curvature, _ = secants(loss, rows.m, np.full(len(rows.m), 1e-300))
    sums.values[0] += weighted_gram(rows.X, rows.C * curvature)
    add_pulls(sums.values[1], rows, signs, loss)
    sums.values[2] += square_of_margin_errors(rows, loss)


def add_pulls(sums: Float64, rows: MarginRows, signs: Float64, loss: Loss) -> None:
    """Add rows with signs z_i (n,) to ``sums`` (3, p): v = sum a_i z_i x_i, sum |a_i| |x_i|, and what rounding of the a_i, and of margins that are
    computed again, can do to v.
    """
    (pulls, errors), most = pulls_of(rows, loss), 1.0 / loss.curvature(1.0)
    for start in range(0, len(rows.m), TILE):
        part = slice(start, start + TILE)
        size = np.abs(rows.X[part])
        sums[0] += rows.X[part].T @ (signs[part] * pulls[part])
        sums[1] += size.T @ np.abs(pulls[part])
        sums[2] += size.T @ (errors[part] + 2.0 * most * rows.C[part] * rows.errors[part])


def errors_of_pulls(sums: Float64, tiles: int) -> Float64:
    """Return bounds (p,) of the errors of v in sums of ``add_pulls`` (3, p)."""
    _, sizes, lost = sums
    errors: Float64 = rounding_of_sums(tiles) * sizes + 1.01 * lost
    return errors


def square_of_margin_errors(rows: MarginRows, loss: Loss) -> float:
    """Return what rows add to D^2, if their margins may be computed again."""
    return 4.0 / loss.curvature(1.0) * float(np.sum(rows.C * np.square(rows.errors)))


def close_first_pass(sums: PassSums, w: Float64) -> PointWithHessian:
    """Return the gradient at w (p,) and the Hessian there."""
    v = sums.values[1][0]
    errors = errors_of_pulls(sums.values[1], sums.tiles) + 8 * UNIT * np.abs(w)
    margins = float(np.sqrt(sums.values[2][0, 0])) * (1.0 + 1e-9)
    point = EvaluatedPoint(w, w - v, errors * (1.0 + 1e-9), margins)
    return PointWithHessian(point, invert(hessian(sums.values[0], sums.tiles, -1.0)))


def slopes_of(m: Float64, loss: Loss) -> Float64:
    """Return s(m) = -l'(m) (n,)."""
    slopes = np.empty(len(m))
    slope_values(np.ascontiguousarray(m), loss, slopes)
    return slopes


def pulls_of(rows: MarginRows, loss: Loss) -> tuple[Float64, Float64]:
    """Return a_i = C_i s(m_i) (n,), and bounds of their errors (n,)."""
    slopes = slopes_of(rows.m, loss)
    corners = max(map(abs, loss.corners()), default=0.0)  # type: ignore[attr-defined]
    errors = np.abs(slopes) + (np.abs(rows.m) + corners) / loss.curvature(1.0)
    return rows.C * slopes, 32 * UNIT * errors * rows.C


@dataclass(frozen=True, slots=True)
class TwoSidedPasses:
    """The state of a two-sided enclosure after the first pass: two more add up H_lo and H_hi for each factor E, and compare q_j with the steps."""

    first: PointWithHessian
    loss: Loss
    metrics: tuple[Metric | None, ...] = ()
    """Those of H_lo for each factor, after the second pass."""
    highs: tuple[Float64, ...] = ()
    """(p, p) H_hi for each factor, after the second pass."""

    def empty(self) -> PassSums:
        """Return empty sums of the pass that comes next."""
        p = len(self.first.point.weights)
        if not self.metrics:
            return PassSums([np.zeros((p, p)) for _ in range(2 * len(FACTORS))])
        return PassSums([np.zeros(len(FACTORS))])

    def add(self, sums: PassSums, rows: MarginRows) -> None:
        """Add rows to the sums of this pass."""
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

    def close(self, sums: PassSums) -> TwoSidedPasses:
        """Return the state after the second pass."""
        lows, highs = sums.values[::2], sums.values[1::2]
        metrics = tuple(invert(hessian(low, sums.tiles, -1.0)) for low in lows)
        return replace(self, metrics=metrics, highs=tuple(hessian(high, sums.tiles, 1.0) for high in highs))

    def enclose(self, sums: PassSums) -> Enclosure:
        """Return the enclosure after the third pass; the ball of the gradient if the lemma does not apply with any of the factors."""
        point = self.first.point
        for metric, high, ratio in zip(self.metrics, self.highs, sums.values[0].tolist(), strict=True):
            if self.first.metric is not None and metric is not None and ratio < 1.0 - 1e-9:
                return enclose_between(point, metric, invert(high))
        return ball_of_gradient(point)


@dataclass(slots=True)
class PassSums:
    """The sums of one pass over some rows: matrices, or in the third pass the largest r q_j / e_j for each factor."""

    values: list[Float64]
    tiles: int = 0
    """Number of sums of matrices that were made, at least."""

    def merge(self, other: PassSums) -> PassSums:
        """Return the sums over the rows of both; changes this one."""
        for mine, its in zip(self.values, other.values, strict=True):
            join = np.maximum if mine.ndim == 1 else np.add
            join(mine, its, out=mine)
        self.tiles += other.tiles + 1
        return self


def bytes_of_sums(components: int, levels: int = len(FACTORS)) -> int:
    """Return the bytes of the sums of the largest pass."""
    return 2 * levels * 8 * components * components


def work_bytes(components: int) -> int:
    """Return the bytes of rows of a tile, their products, and the matrices with which an enclosure is made."""
    return 8 * (4 * TILE * components + 12 * components * components)
