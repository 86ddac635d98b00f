"""Slow, obvious solutions of small problems in float64, which owe nothing to the package: not even its losses.

    P(f, n) = 1/2 n + sum_i C_i l(y_i f_i),   f_i = sum_j y_j a_j K_ij + b,   n = a'(yy'K)a

K is the Gram matrix of whatever features there are, a regularized constant included. With l(m) = max_b [b (k - m) - c b^2
+ e b], 0 <= b <= top, the dual is a quadratic in a box. Without a free intercept it is maximized coordinate by coordinate;
with one (y'a = 0) by the pair that violates most.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Shape:
    """A loss by its conjugate: l(m) = max over 0 <= b <= ``top`` of b (``end`` - m) - ``bend`` b^2."""

    end: float
    bend: float
    top: float

    def values(self, m: Any) -> Any:
        """l(m), from the definition."""
        z = np.maximum(self.end - m, 0.0)
        b = np.full_like(z, self.top) if self.bend == 0.0 else np.minimum(z / (2.0 * self.bend), self.top)
        return b * z - self.bend * b * b


@dataclass(frozen=True)
class Entropy:
    """The logistic loss, log(1 + e^(-k m)) / k: its conjugate is an entropy."""

    sharpness: float

    def values(self, m: Any) -> Any:
        """l(m), from the definition."""
        return np.logaddexp(0.0, -self.sharpness * m) / self.sharpness


def shape_of(name: str, margin: float = 1.0, mu: float = 0.1, sharpness: float = 1.0) -> Any:
    """The losses by what textbooks say of them: margin k, half width mu."""
    if name == "logistic":
        return Entropy(sharpness)
    return {
        "hinge": Shape(margin, 0.0, 1.0),
        "squared_hinge": Shape(margin, 0.25, np.inf),
        "huber": Shape(margin + mu, mu, 1.0),
    }[name]


@dataclass(frozen=True)
class Optimum:
    """The best value there is, between ``dual`` and ``primal``."""

    primal: float
    dual: float
    a: Any

    @property
    def gap(self) -> float:
        """(P - D) / P."""
        return (self.primal - self.dual) / max(abs(self.primal), 1e-300)


def optimum_of(K: Any, y: Any, C: Any, shape: Any, *, free_bias: bool = False) -> Optimum:
    """Solve to the last digits. ``K`` (n, n), ``y`` (n,) +1 or -1, ``C`` (n,) with the rows' weights in it."""
    if isinstance(shape, Entropy):
        return _logistic(K, y, C, shape)
    here = C > 0.0
    Q, Cs = (y[:, None] * K * y)[np.ix_(here, here)], C[here]
    H = Q + np.diag(2.0 * shape.bend / Cs)
    a = np.zeros(len(Cs))
    (_by_pairs if free_bias else _by_coordinates)(H, y[here], shape.end, shape.top * Cs, a)
    full = np.zeros(len(y))
    full[here] = a
    f = K @ (y * full)
    square = float(a @ Q @ a)
    dual = shape.end * float(a.sum()) - float(np.sum(shape.bend * a * a / Cs)) - 0.5 * square
    shifts = _shifts(f, y, shape) if free_bias else np.zeros(1)
    primal = min(0.5 * square + float(C @ shape.values(y * (f + b))) for b in shifts)
    return Optimum(primal, dual, full)


def _logistic(K: Any, y: Any, C: Any, shape: Entropy) -> Optimum:
    """Newton's method on the function values: f = K (y a) at the optimum, a_i = C_i / (1 + e^(k y_i f_i)). No free intercept."""
    k, beta = shape.sharpness, np.zeros(len(y))

    def slopes(f: Any) -> Any:
        return C * np.exp(-np.logaddexp(0.0, k * y * f))

    def value(beta: Any) -> float:
        f = K @ beta
        return float(0.5 * beta @ f + C @ shape.values(y * f))

    for _ in range(200):
        f = K @ beta
        a = slopes(f)
        h = k * a * (1.0 - a / np.where(C > 0.0, C, 1.0))
        step = np.linalg.solve(np.eye(len(y)) + h[:, None] * K, y * a - beta)
        length = 1.0
        while value(beta + length * step) > value(beta) and length > 1e-12:
            length *= 0.5
        beta = beta + length * step
        if np.abs(length * step).max() <= 1e-14 * max(1.0, np.abs(beta).max()):
            break
    f = K @ beta
    a, x = slopes(f), y * slopes(f)
    b = np.clip(a / np.where(C > 0.0, C, 1.0), 1e-300, 1.0 - 1e-16)
    entropy = float(-(C / k) @ (b * np.log(b) + (1.0 - b) * np.log1p(-b)))
    return Optimum(value(beta), entropy - 0.5 * float(x @ K @ x), a)


def _by_coordinates(H: Any, y: Any, end: float, top: Any, a: Any) -> None:
    """Max end sum a - 1/2 a'Ha over the box; a is changed."""
    g = np.full(len(a), end)
    for _ in range(20_000):
        moved = 0.0
        for i in range(len(a)):
            step = min(max(a[i] + g[i] / max(H[i, i], 1e-300), 0.0), top[i]) - a[i]
            if step:
                a[i] += step
                g -= step * H[i]
                moved = max(moved, abs(step))
        if moved <= 1e-13 * max(1.0, float(a.max(initial=0.0))):
            return


def _by_pairs(H: Any, y: Any, end: float, top: Any, a: Any) -> None:
    """The same with y'a = 0: the pair that violates the conditions most, until none does."""
    g = np.full(len(a), end)
    for _ in range(400_000):
        slope = y * g
        up = np.where((y > 0) & (a < top) | (y < 0) & (a > 0), slope, -np.inf)
        down = np.where((y > 0) & (a > 0) | (y < 0) & (a < top), slope, np.inf)
        i, j = int(np.argmax(up)), int(np.argmin(down))
        if up[i] - down[j] <= 1e-11:
            return
        curvature = H[i, i] + H[j, j] - 2.0 * y[i] * y[j] * H[i, j]
        room = [top[i] - a[i] if y[i] > 0 else a[i], a[j] if y[j] > 0 else top[j] - a[j]]
        step = min((up[i] - down[j]) / max(curvature, 1e-12), *room)
        a[i] += y[i] * step
        a[j] -= y[j] * step
        g -= step * (y[i] * H[i] - y[j] * H[j])


def _shifts(f: Any, y: Any, shape: Shape) -> Any:
    """Intercepts that include, or come within 1e-7 of, the best one."""
    corners = np.concatenate([y * shape.end - f, y * (shape.end - 2.0 * shape.bend * shape.top) - f])
    low, high = float(corners[np.isfinite(corners)].min()), float(corners[np.isfinite(corners)].max())
    return np.concatenate([corners[np.isfinite(corners)], np.linspace(low, high, 20_001)])
