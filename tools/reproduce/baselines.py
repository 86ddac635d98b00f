"""Methods of other authors that the papers compare with, written plainly from their formulas: what ours are measured beside.

    svm_sgd            Bottou's SvmSGD: one row a step of length 1 / (lambda (t0 + t)), t0 by trials on the first 1,000 rows
    free_bias_dcd      dual coordinate descent with a bias that is not regularized: y'a = 0, two coordinates at a time
    dcd                the same without the constraint, one coordinate at a time
    primal_cd          coordinate descent on the primal of the squared hinge (Chang, Hsieh, Lin, JMLR 9, 2008)
    tron               LIBLINEAR's trust region Newton's method on the primal of the squared hinge (-s 2), as scikit-learn has it
    subgradient        all rows a step of length 1 / (lambda t), in the ball of radius 1 / sqrt(lambda)
    accelerated        Nesterov's gradient method on the smoothed hinge phi_mu, strongly convex

Rows are scipy CSR in float64, the constant feature among their columns where there is one. P is 1/2 ||w||^2 + C sum of losses.
Each gives (w, b), one pair after every reading of the rows, so that who compares looks at P, or at a test error, when it wants to.
"""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Iterator
from typing import Any, NamedTuple

import numba
import numpy as np
import scipy.sparse as sp

TRIALS = 1000
"""Rows that the first step length of ``svm_sgd`` is tried on."""


class Primal(NamedTuple):
    """1/2 ||w||^2 + C sum of losses of rows X (n, d), scipy CSR in float64, and signs y (n,)."""

    X: Any
    y: Any
    C: float
    loss: str = "hinge"
    """``hinge`` or ``squared_hinge``."""

    def value(self, w: Any, b: float = 0.0) -> float:
        """P at w; the bias b is not in the norm."""
        z = np.maximum(0.0, 1.0 - self.y * (self.X @ w + b))
        return float(0.5 * w @ w + self.C * (z.sum() if self.loss == "hinge" else z @ z))


class Entries(NamedTuple):
    """The arrays of a sparse matrix, by rows or by columns, the signs of its rows, and the squared length of each row or column."""

    data: Any
    indices: Any
    indptr: Any
    y: Any
    squares: Any


def entries_of(X: Any, y: Any, axis: int = 1) -> Entries:
    """``axis``: along what squares are summed up."""
    return Entries(X.data, X.indices, X.indptr, y, np.asarray(X.multiply(X).sum(axis)).ravel())


def with_constant(X: Any) -> Any:
    """The rows with a constant feature behind their columns."""
    return sp.csr_matrix(sp.hstack([sp.csr_matrix(X, dtype=np.float64), np.ones((X.shape[0], 1))], format="csr"))


def best_bias(margins: Any, y: Any) -> float:
    """The b with the least sum of max(0, 1 - y (margin + b)): its slope changes by one at each b = y - margin."""
    corners = np.sort(y - margins)
    return float(corners[max(int(np.count_nonzero(y > 0)) - 1, 0)])


def svm_sgd(task: Primal, seed: int = 0) -> Iterator[tuple[Any, float]]:
    """One row a step, in random order anew in every reading; the last w."""
    rows, n, draw = entries_of(task.X, task.y), len(task.y), np.random.default_rng(seed)
    lam, few = 1.0 / (task.C * n), min(TRIALS, n)
    sample = Primal(task.X[:few], task.y[:few], 1.0 / (lam * few))

    def tried(eta: float) -> float:
        w = np.zeros(task.X.shape[1])
        sgd_steps(rows, np.arange(few), w, lam, 1.0 + 1.0 / (eta * lam))
        return sample.value(w)

    eta = min((2.0**k for k in range(-12, 8)), key=tried)
    w, t = np.zeros(task.X.shape[1]), 1.0 + 1.0 / (eta * lam)
    while True:
        sgd_steps(rows, draw.permutation(n), w, lam, t)
        t += n
        yield w, 0.0


@numba.njit
def sgd_steps(rows, order, w, lam, t):
    """A step for each row of ``order`` from the clock t > 1. While it works w is scale v: shrinking costs one product."""
    data, indices, indptr, y, _ = rows
    scale = 1.0
    for i in order:
        m = 0.0
        for k in range(indptr[i], indptr[i + 1]):
            m += data[k] * w[indices[k]]
        m *= scale
        scale *= 1.0 - 1.0 / t
        if y[i] * m < 1.0:
            step = y[i] / (lam * t * scale)
            for k in range(indptr[i], indptr[i + 1]):
                w[indices[k]] += step * data[k]
        t += 1.0
        if scale < 1e-9:
            w *= scale
            scale = 1.0
    w *= scale


def dcd(task: Primal, seed: int = 0) -> Iterator[tuple[Any, float]]:
    """One coordinate of the dual after the other, in random order anew in every reading, all of them each time."""
    rows, n, draw = entries_of(task.X, task.y), len(task.y), np.random.default_rng(seed)
    box = (task.C, 0.0) if task.loss == "hinge" else (np.inf, 0.5 / task.C)
    w, a = np.zeros(task.X.shape[1]), np.zeros(n)
    while True:
        _coordinates(rows, draw.permutation(n), box, w, a)
        yield w, 0.0


@numba.njit
def _coordinates(rows, order, box, w, a):
    """``box``: the most a may be, and what its square costs."""
    data, indices, indptr, y, squares = rows
    high, ridge = box
    for i in order:
        m = 0.0
        for k in range(indptr[i], indptr[i + 1]):
            m += data[k] * w[indices[k]]
        curvature = max(squares[i] + ridge, 1e-12)
        fresh = min(max(a[i] - (y[i] * m - 1.0 + ridge * a[i]) / curvature, 0.0), high)
        step = (fresh - a[i]) * y[i]
        a[i] = fresh
        if step != 0.0:
            for k in range(indptr[i], indptr[i + 1]):
                w[indices[k]] += step * data[k]


def free_bias_dcd(task: Primal, seed: int = 0) -> Iterator[tuple[Any, float]]:
    """Pairs of coordinates of the hinge's dual along y'a = 0: each row in random order, with a row drawn at random."""
    rows, n, draw = entries_of(task.X, task.y), len(task.y), np.random.default_rng(seed)
    w, a = np.zeros(task.X.shape[1]), np.zeros(n)
    while True:
        _pairs(rows, np.column_stack([draw.permutation(n), draw.integers(0, n, n)]), task.C, w, a)
        yield w, best_bias(task.X @ w, task.y)


@numba.njit
def _pairs(rows, pairs, C, w, a):
    """y_i a_i grows by d and y_j a_j falls by it: d = -(w.x_i - y_i - w.x_j + y_j) / ||x_i - x_j||^2, cut to the box."""
    data, indices, indptr, y, squares = rows
    scratch = np.zeros(w.size)
    for i, j in pairs:
        if i == j:
            continue
        slope, product = y[j] - y[i], 0.0
        for k in range(indptr[i], indptr[i + 1]):
            slope += data[k] * w[indices[k]]
            scratch[indices[k]] = data[k]
        for k in range(indptr[j], indptr[j + 1]):
            slope -= data[k] * w[indices[k]]
            product += data[k] * scratch[indices[k]]
        for k in range(indptr[i], indptr[i + 1]):
            scratch[indices[k]] = 0.0
        d = -slope / max(squares[i] + squares[j] - 2.0 * product, 1e-12)
        low_i, high_i = (-a[i], C - a[i]) if y[i] > 0.0 else (a[i] - C, a[i])
        low_j, high_j = (a[j] - C, a[j]) if y[j] > 0.0 else (-a[j], C - a[j])
        d = min(max(d, low_i, low_j), high_i, high_j)
        if d == 0.0:
            continue
        a[i] = min(max(a[i] + y[i] * d, 0.0), C)
        a[j] = min(max(a[j] - y[j] * d, 0.0), C)
        for k in range(indptr[i], indptr[i + 1]):
            w[indices[k]] += d * data[k]
        for k in range(indptr[j], indptr[j + 1]):
            w[indices[k]] -= d * data[k]


def primal_cd(task: Primal, seed: int = 0) -> Iterator[tuple[Any, float]]:
    """A Newton step along one column after the other, halved until P falls by a hundredth of its square."""
    draw, columns = np.random.default_rng(seed), sp.csc_matrix(task.X.multiply(task.y[:, None]))
    found = entries_of(columns, task.y, axis=0)
    w, slack = np.zeros(task.X.shape[1]), np.ones(len(task.y))
    while True:
        _columns(found, draw.permutation(len(w)), task.C, w, slack)
        yield w, 0.0


@numba.njit
def _columns(columns, order, C, w, slack):
    """The columns are those of y x; ``slack`` is 1 - y w.x of each row."""
    data, indices, indptr, _, squares = columns
    for j in order:
        slope, bend, before = w[j], 1.0, 0.0
        for k in range(indptr[j], indptr[j + 1]):
            over = slack[indices[k]]
            if over > 0.0:
                slope -= 2.0 * C * data[k] * over
                bend += 2.0 * C * data[k] * data[k]
                before += over * over
        step = -slope / bend
        if abs(step) < 1e-14:
            continue
        surely = bend / (0.5 + C * squares[j] + 0.01)
        length = 1.0
        while length > max(surely, 1e-12):
            after = 0.0
            for k in range(indptr[j], indptr[j + 1]):
                over = slack[indices[k]] - length * step * data[k]
                if over > 0.0:
                    after += over * over
            z = length * step
            if w[j] * z + 0.5 * z * z + C * (after - before) <= -0.01 * z * z:
                break
            length *= 0.5
        w[j] += length * step
        for k in range(indptr[j], indptr[j + 1]):
            slack[indices[k]] -= length * step * data[k]


def tron(task: Primal, tolerance: float) -> tuple[Any, int]:
    """The w that LIBLINEAR ends with at this tolerance, and its iterations."""
    from sklearn.svm import LinearSVC

    model = LinearSVC(C=task.C, dual=False, fit_intercept=False, tol=tolerance, max_iter=1000)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(task.X, task.y)
    return model.coef_[0], int(model.n_iter_)


def subgradient(task: Primal) -> Iterator[tuple[Any, float]]:
    """A step a reading, of lambda/2 ||w||^2 + mean loss with lambda = 1 / (C n); the mean of all w from half of the time on."""
    X, y, C, _ = task
    lam, w, kept = 1.0 / (C * len(y)), np.zeros(X.shape[1]), [np.zeros(X.shape[1])]
    for t in itertools.count(1):
        violated = y * (X @ w) < 1.0
        w = (1.0 - 1.0 / t) * w + (X.T @ (y * violated)) / (lam * t * len(y))
        w *= min(1.0, 1.0 / (np.sqrt(lam) * max(float(np.linalg.norm(w)), 1e-300)))
        kept.append(kept[-1] + w)
        half = t // 2
        yield (kept[t] - kept[half]) / (t - half), 0.0


def accelerated(task: Primal, mu: float) -> Iterator[tuple[Any, float]]:
    """On 1/2 ||w||^2 + C sum phi_mu, whose gradient changes by at most L = 1 + C ||X||^2 / mu; a gradient a reading.

    The momentum is that of convex functions, (k - 1) / (k + 2), until that of strongly convex ones is less.
    """
    X, y, C, _ = task
    v = np.random.default_rng(0).normal(size=X.shape[1])
    for _ in range(30):  # the largest singular value
        v = X.T @ (X @ (v / np.linalg.norm(v)))
    L = 1.0 + 1.05 * C * float(np.linalg.norm(v)) / mu
    most = (np.sqrt(L) - 1.0) / (np.sqrt(L) + 1.0)
    w = before = np.zeros(X.shape[1])
    for k in itertools.count(1):
        ahead = w + min((k - 1) / (k + 2), most) * (w - before)
        slopes = -np.clip((1.0 - y * (X @ ahead)) / mu, 0.0, 1.0)
        before, w = w, ahead - (ahead + C * (X.T @ (y * slopes))) / L
        yield w, 0.0
