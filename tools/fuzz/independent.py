"""An independent float64 solution of a small SVM, with bounds of its own rounding: what certificates are compared with.

    P(f) = 1/2 ||f||^2 + sum_i C_i l(y_i (f_i + b)),     D(a) = sum_i (c a_i - r_i a_i^2 / 2) - 1/2 ||sum_i a_i y_i phi_i||^2

c and r_i being those of the loss; of the logistic one D has the entropy of a / C in the place of that sum. Dense matrices and a primal-dual interior point: nothing is shared with the package. Every
iterate has a P and a feasible D; the best of both are kept, each with the most by which rounding can have moved it:
with decision values off by e and u = 2^-53, P by what the losses are more at margins less by e, and the sums by their
length times u times the sums of absolute values (Higham, *Accuracy and Stability of Numerical Algorithms*, section 3.1).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from scipy.spatial.distance import cdist
from scipy.special import expit, xlogy

U = 2.0**-53
MU = 0.1
"""The width of the Huber loss."""
STEPS = 80


class Bound(NamedTuple):
    """A number, and by how much it can be off."""

    value: float
    off: float


class Rows(NamedTuple):
    """A problem: signs, C times weights, the loss, and whether the bias is free."""

    y: Any
    C: Any
    loss: str
    free: bool


class Gram(NamedTuple):
    """Functions of rows known by their Gram matrix (n, n), every entry right to ``off``."""

    K: Any
    off: float

    def values(self, x: Any) -> tuple[Any, float, Bound]:
        """sum_j x_j k(., x_j) at the rows, by how much it is off, and its squared norm."""
        f, weight = self.K @ x, float(np.abs(x).sum())
        off = weight * (self.off + len(x) * U * float(np.abs(self.K).max(initial=0.0)))
        return f, off, Bound(float(x @ f), off * weight + len(x) * U * float(np.abs(x) @ np.abs(f)))


class Features(NamedTuple):
    """Functions w.phi of explicit features (n, r); an inner product with w is right to ``off @ |w|``."""

    phi: Any
    off: Any

    @property
    def K(self) -> Any:
        """Their Gram matrix, for the steps."""
        return self.phi @ self.phi.T

    def values(self, x: Any) -> tuple[Any, float, Bound]:
        """The same for w = sum_j x_j phi_j: w itself is a rounded number, and the function is of what it is."""
        return self.of(self.phi.T @ x, float(np.abs(x).sum()))

    def of(self, w: Any, weight: float = 0.0) -> tuple[Any, float, Bound]:
        """The same for given weights (r,), summed from coefficients of this sum of absolute values."""
        size = np.abs(self.phi).max(axis=0)
        error = float(self.off @ np.abs(w)) + len(w) * U * float(size @ np.abs(w))
        moved = weight * float(self.off @ np.abs(w) + len(self.phi) * U * float(size @ np.abs(w)))
        return self.phi @ w, error, Bound(float(w @ w), 2 * moved + len(w) * U * float(w @ w))


def losses(loss: str, m: Any) -> Any:
    """The loss at each margin."""
    if loss == "logistic":
        return np.logaddexp(0.0, -m)
    if loss == "huber":
        z = 1.0 + MU - m
        return np.where(z <= 0, 0.0, np.where(z >= 2 * MU, 1.0 - m, z * z / (4 * MU)))
    z = np.maximum(0.0, 1.0 - m)
    return z if loss == "hinge" else z * z


def slopes(loss: str, m: Any) -> Any:
    """-l'(m), on the right side of a corner."""
    if loss == "logistic":
        return expit(-m)
    if loss == "huber":
        return np.clip((1.0 + MU - m) / (2 * MU), 0.0, 1.0)
    return (m < 1.0).astype(float) if loss == "hinge" else 2.0 * np.maximum(0.0, 1.0 - m)


def kernel_values(name: str, p: dict[str, float], X: Any, Z: Any) -> tuple[Any, float]:
    """Kernel values in float64, distances from differences, and by how much one can be off."""
    d = X.shape[1] + 8
    if name in {"rbf", "laplacian"}:
        return np.exp(-p["gamma"] * cdist(X, Z, "sqeuclidean" if name == "rbf" else "cityblock")), 2 * d * U
    size = float(np.sqrt(np.square(X).sum(1).max(initial=0.0) * np.square(Z).sum(1).max(initial=0.0)))
    if name == "linear":
        return p["scale"] * (X @ Z.T), p["scale"] * size * d * U
    product, size = p["gamma"] * (X @ Z.T) + p["coef0"], p["gamma"] * size + abs(p["coef0"])
    if name == "sigmoid":
        return np.tanh(product), (min(size, 1e15) * d + 8) * U
    return product ** p["degree"], p["degree"] * d * U * size ** p["degree"]


def primal(rows: Rows, f: Any, off: float, square: Bound) -> Bound:
    """P of decision values (n,) that are off by so much."""
    found = float(rows.C @ losses(rows.loss, rows.y * f))
    risen = float(rows.C @ losses(rows.loss, rows.y * f - off))
    sums = 2 * len(f) * U * (risen + abs(square.value))
    return Bound(0.5 * square.value + found, 0.5 * square.off + risen - found + sums)


def dual(rows: Rows, a: Any, square: Bound) -> Bound:
    """D of feasible dual variables (n,)."""
    if rows.loss == "logistic":
        gain = _entropy(rows.C, a)
        sums = 2 * len(a) * U * (gain + abs(square.value)) + 4 * U * float(rows.C.sum())
        return Bound(gain - 0.5 * square.value, 0.5 * square.off + sums)
    linear, ridge = _conjugate(rows)
    gain = float(linear * a.sum() - 0.5 * ridge @ (a * a))
    sums = 2 * len(a) * U * (linear * a.sum() + abs(square.value))
    return Bound(gain - 0.5 * square.value, 0.5 * square.off + sums)


def best_bias(rows: Rows, f: Any) -> float:
    """The intercept of least P, by bisection of its slope."""
    low, high = float(np.min(-f)) - 2.0, float(np.max(-f)) + 2.0
    for _ in range(200):
        middle = 0.5 * (low + high)
        rising = -float((rows.C * rows.y) @ slopes(rows.loss, rows.y * (f + middle)))
        low, high = (low, middle) if rising > 0.0 else (middle, high)
    return 0.5 * (low + high)


def solve(rows: Rows, space: Gram | Features) -> tuple[Bound, Bound, Any]:
    """The best P and, unless the bias is free, the best D found, and the a (n,) of the first.

    The interval the two make contains the optimum.
    """
    upper, lower, best = Bound(np.inf, 0.0), Bound(0.0, 0.0), np.zeros(len(rows.y))
    used = rows.C > 0.0
    with np.errstate(all="ignore"):
        some = Rows(rows.y[used], rows.C[used], rows.loss, rows.free)
        points = _entropic_points if rows.loss == "logistic" else _interior_points
        for kept in points(some, space.K[np.ix_(used, used)]):
            a = np.zeros(len(rows.y))
            a[used] = kept
            f, off, square = space.values(a * rows.y)
            if rows.free:
                f = f + best_bias(rows, f)
            tried = primal(rows, f, off + 2 * U * float(np.abs(f).max()), square)
            if tried.value + tried.off < upper.value + upper.off:
                upper, best = tried, a
            if not rows.free:
                lower = max(lower, dual(rows, a, square), key=lambda bound: bound.value - bound.off)
    return upper, lower, best


def _conjugate(rows: Rows) -> tuple[float, Any]:
    """The numbers c and r of the loss, r 0 where a row has no say."""
    factor = {"hinge": 0.0, "squared_hinge": 0.5, "huber": 2 * MU}[rows.loss]
    return 1.0 + (MU if rows.loss == "huber" else 0.0), np.where(rows.C > 0.0, factor / np.maximum(rows.C, 1e-300), 0.0)


def _interior_points(rows: Rows, K: Any) -> Any:
    """Iterates of the dual strictly inside its box (n,), each better than the one before as a rule."""
    linear, ridge = _conjugate(rows)
    H = rows.y[:, None] * K * rows.y + np.diag(ridge)
    n, boxed = len(rows.y), rows.loss != "squared_hinge"
    typical = linear / np.maximum(H.diagonal(), 1e-300)
    u = rows.C if boxed else np.full(n, np.inf)
    a = np.minimum(typical, 0.5 * u)
    z, t, b = np.full(n, linear), np.full(n, linear if boxed else 0.0), 0.0
    for _ in range(STEPS):
        s = u - a if boxed else np.ones(n)
        mu = float(z @ a + (t @ s if boxed else 0.0)) / (n * (2 if boxed else 1))
        short = linear - H @ a + z - t - (rows.y * b if rows.free else 0.0)
        aim = 0.1 * mu
        right = short + (aim / a - z) - ((aim / s - t) if boxed else 0.0)
        da, db = _newton_step(H + np.diag(z / a + t / s), rows.y if rows.free else None, right, float(rows.y @ a))
        if da is None:
            return
        dz = aim / a - z - z / a * da
        dt = aim / s - t + t / s * da if boxed else np.zeros(n)
        length = _inside(a, da, z, dz)
        length = min(length, _inside(s, -da, t, dt)) if boxed else length
        a, z, t, b = a + length * da, z + length * dz, t + length * dt, b + length * db
        if not (np.isfinite(a).all() and (a > 0.0).all() and (a < u).all()):
            return
        yield a


def _entropy(C: Any, a: Any) -> float:
    """-sum a log(a / C) + (C - a) log(1 - a / C), rows without weight left out."""
    used = C > 0.0
    a, C = a[used], C[used]
    return -float(xlogy(a, a / C).sum() + xlogy(C - a, 1.0 - a / C).sum())


def _entropic_points(rows: Rows, K: Any) -> Any:
    """Iterates of the dual of the logistic loss: Newton's method, whose barrier the entropy is, each better than the one before."""
    H = rows.y[:, None] * K * rows.y
    a = _balanced(rows)
    value = 0.5 * float(a @ H @ a) - _entropy(rows.C, a)
    for _ in range(2 * STEPS):
        left = rows.C - a
        right = -(H @ a + np.log(a / left))
        da, _ = _newton_step(H + np.diag(1.0 / a + 1.0 / left), rows.y if rows.free else None, right, float(rows.y @ a))
        if da is None:
            return
        length = _inside(a, da, left, -da)
        while length > 1e-12:
            tried = a + length * da
            new = 0.5 * float(tried @ H @ tried) - _entropy(rows.C, tried)
            if new <= value:
                break
            length *= 0.5
        else:
            return
        if not (np.isfinite(tried).all() and (tried > 0.0).all() and (tried < rows.C).all()):
            return
        a, value = tried, new
        yield a


def _balanced(rows: Rows) -> Any:
    """Variables inside their box; where the bias is free with y.a = 0."""
    a = 0.5 * rows.C
    if not rows.free:
        return a
    both = [rows.y > 0.0, rows.y < 0.0]
    masses = [float(a[side].sum()) for side in both]
    for side, mass in zip(both, masses, strict=True):
        a[side] *= min(masses) / mass if mass > 0.0 else 0.0
    return a


def _newton_step(M: Any, y: Any, right: Any, off_balance: float) -> tuple[Any, float]:
    """The step of a, and of the multiplier of y.a = 0 where y is given; None where M cannot be factorized."""
    D = 1.0 / np.sqrt(M.diagonal())
    if not np.isfinite(D).all():
        return None, 0.0
    try:
        L = np.linalg.cholesky(D[:, None] * M * D + 1e-15 * np.eye(len(D)))
    except np.linalg.LinAlgError:
        return None, 0.0

    def solved(v: Any) -> Any:
        return D * np.linalg.solve(L.T, np.linalg.solve(L, D * v))

    if y is None:
        return solved(right), 0.0
    across, first = solved(y), solved(right)
    db = float(y @ first + off_balance) / float(y @ across)
    return first - db * across, db


def _inside(x: Any, dx: Any, z: Any, dz: Any) -> float:
    """The step length at which x and z stay above 0."""
    lengths = [1.0]
    for value, change in ((x, dx), (z, dz)):
        falling = change < 0.0
        if falling.any():
            lengths.append(0.995 * float(np.min(-value[falling] / change[falling])))
    return min(lengths)
