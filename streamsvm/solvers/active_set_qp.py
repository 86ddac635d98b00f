"""The active-set method for the dual problem in memory, which is finite and exact (Scheinberg, JMLR 2006, SVM-QP).

    min_a  1/2 a'Qa + sum_i (conjugate(a_i) - a_i)    subject to  0 <= a_i <= U_i,    Q_ij = y_i y_j K_ij,

and y'a = 0 if the intercept b is free. Rows are at 0, at U_i, or free. With f = K (y a), the gradient of a row is

    g_i = y_i (f_i + b) - z_i + curvature_i a_i,        z_i = 1 - conjugate'(0).

A step goes to the minimum over the free rows, where their g is 0, by means of the Cholesky factor of their block of the
Hessian. The first row that reaches a bound on the way becomes fixed there, and the step is computed again. At the
minimum the row at a bound with the largest violation, g_i < 0 at 0 or g_i > 0 at U_i, becomes free. If its direction
depends linearly on those of the free rows, the objective is linear along a line: a is moved along this line until a row
reaches a bound and leaves the block. Every step reduces the objective or ends at a bound, so that no set of free rows
occurs twice. If values are so large that rounding breaks this rule, a move along such a line that reduces D is undone,
and the method stops when D no longer increases.

A start from a feasible a with values between the bounds is first transformed to such a point: rows are added to the
block one by one, and a dependent row is moved along its line to a bound, as simplex methods purify interior solutions.

**The free block** of the Hessian, H = diag(y) (K + tau) diag(y) + diag(curvature), is stored as its Cholesky factor. A
free intercept is a constraint y'd = 0 on every step d. tau > 0 changes nothing for such steps, and makes H positive
definite if it is positive definite on them.

**Regression.** The method has variables a >= 0 only, while a row with a target t has one signed variable. With
a = a+ - a-, both 0 or more, and conjugate(a, C) = a + epsilon |a| + q a^2 / C, the dual term of the row is

    a t + a - conjugate(a, C) = (t - epsilon) a+ + (-t - epsilon) a- - q (a+^2 + a-^2) / C,

with 0 <= a+ <= upper and 0 <= a- <= -lower, where one of the two is 0, as at the optimum (Smola and Scholkopf,
Statistics and Computing 14, 2004, (5)). So every row has two sides: one with sign +1 and z = t - epsilon, and one with
sign -1 and z = -t - epsilon. K has the rows and columns of each row twice.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from streamsvm.compute.blocks import operators
from streamsvm.compute.blocks.selection import row_squares, take_rows
from streamsvm.compute.targets import LEAST
from streamsvm.rows import Float64, Int64, Rows, row_count
from streamsvm.solvers.cholesky import UpdatedFactor
from streamsvm.types import Loss

PRECISION = 1e-13
"""Violations below this, relative to the terms of g, are rounding errors."""
MAX_IDLE_EXCHANGES = 200
"""Number of exchanges without a visible increase of D after which the method stops."""
MAX_CONFIRMATIONS = 3
"""Maximum number of times that the optimum is confirmed with f and the factor recomputed."""


# The problem: terms of the rows, and their inner products


class DualTerms(NamedTuple):
    """The terms of the rows in the dual objective, all float64 (n,)."""

    y: Float64
    """The sign, +1 or -1."""
    z: Float64
    """1 - conjugate'(0), the margin from which on the loss is 0; for regression including the target."""
    curvature: Float64
    """The second derivative of the conjugate, which is constant."""
    upper: Float64
    """U_i > 0; inf if there is no bound."""


def dual_terms(loss: Any, y: Any, C: Float64) -> DualTerms:
    """Return the terms of rows of two classes with C_i = C s_i > 0 (n,), for a loss with a quadratic or linear
    conjugate.
    """
    z = np.array([1.0 - loss.conjugate_slope(0.0, c) for c in C])
    curvature, upper = (np.array([part(c) for c in C]) for part in (loss.curvature, loss.upper))
    return DualTerms(np.asarray(y, np.float64), z, curvature, upper)


def dual_terms_of_sides(loss: Any, y: Any, C: Float64) -> DualTerms:
    """Return the terms of the rows (n,); for regression those of both sides (2 n,), the sides with sign +1 first."""
    if not loss.numeric():
        return dual_terms(loss, y, C)
    t, ones = np.asarray(y, np.float64), np.ones(len(C))
    above = t + np.array([1.0 - loss.conjugate_slope(0.0, c) for c in C])
    below = np.array([loss.conjugate_slope(-LEAST, c) - 1.0 for c in C]) - t
    curvature, upper = (np.array([part(c) for c in C]) for part in (loss.curvature, loss.upper))
    lower = -C * loss.slope(np.inf)
    return DualTerms(
        np.append(ones, -ones),
        np.append(above, below),
        np.append(curvature, curvature),
        np.append(upper, -lower),
    )


def split_sides(loss: Loss, a: Float64) -> Float64:
    """Return a copy of the dual variables (n,); for regression the variables of both sides (2 n,)."""
    return np.append(np.maximum(a, 0.0), np.maximum(-a, 0.0)) if loss.numeric() else a.copy()


def join_sides(loss: Loss, a: Float64) -> Float64:
    """Return the dual variables (n,) of rows, given those of their sides (the inverse of ``split_sides``)."""
    n = len(a) // 2
    return a[:n] - a[n:] if loss.numeric() else a


class Space(ABC):
    """The inner products K_ij = k(x_i, x_j) of n rows."""

    diagonal: Float64
    """(n,) K_ii."""

    @abstractmethod
    def column(self, row: int) -> Float64:
        """Return K[:, row], (n,)."""

    @abstractmethod
    def values(self, rows: Int64, coefficients: Float64) -> Float64:
        """Return sum_j coefficients_j K[:, rows_j], (n,)."""


class GramSpace(Space):
    """The inner products given by a symmetric matrix K (n, n) float64."""

    def __init__(self, K: Float64) -> None:
        self._K, self.diagonal = K, np.ascontiguousarray(np.diagonal(K))

    def column(self, row: int) -> Float64:
        return self._K[row]

    def values(self, rows: Int64, coefficients: Float64) -> Float64:
        values: Float64 = coefficients @ self._K[rows]
        return values


class RowSpace(Space):
    """K = X X', the constant feature included. K itself is never formed."""

    def __init__(self, X: Rows, columns: int) -> None:
        self._X, self._columns = X, columns
        self.diagonal = np.empty(row_count(X))
        row_squares(X, self.diagonal)

    def column(self, row: int) -> Float64:
        return self.values(np.array([row]), np.ones(1))

    def weights(self, rows: Int64, coefficients: Float64) -> Float64:
        """Return sum_j coefficients_j x_j (columns + 1,)."""
        return operators.adjoint(take_rows(self._X, rows), coefficients, self._columns)

    def values(self, rows: Int64, coefficients: Float64) -> Float64:
        return operators.margins(self._X, self.weights(rows, coefficients))


class DoubledSpace(Space):
    """The inner products of rows that occur twice: row i as the rows i and n + i."""

    def __init__(self, space: Space) -> None:
        self._space, self._rows = space, len(space.diagonal)
        self.diagonal = np.tile(space.diagonal, 2)

    def column(self, row: int) -> Float64:
        return np.tile(self._space.column(row % self._rows), 2)

    def values(self, rows: Int64, coefficients: Float64) -> Float64:
        return np.tile(self._space.values(rows % self._rows, coefficients), 2)


def space_of_sides(loss: Loss, space: Space) -> Space:
    """Return the inner products of the rows, for regression those of their sides."""
    return DoubledSpace(space) if loss.numeric() else space


# The free block


class Step(NamedTuple):
    """The solution of H d + y beta = right, y'd = total; beta is 0 if there is no constraint."""

    d: Float64
    """(k,) the step of the free rows."""
    beta: float
    """The change of the intercept."""


class FreeBlock:
    """The Cholesky factor of H of the free rows, updated when rows are added or removed."""

    def __init__(self, *, constrained: bool) -> None:
        self.rows: list[int] = []
        """The free rows in the order of the factor."""
        self._signs: list[float] = []
        self._factor = UpdatedFactor()
        self._constrained = constrained

    @property
    def size(self) -> int:
        """The number of free rows."""
        return len(self.rows)

    @property
    def signs(self) -> Float64:
        """(k,) y of the free rows."""
        return np.array(self._signs)

    def try_add(self, row: int, sign: float, column: Float64, diagonal: float) -> bool:
        """Add a row unless it depends linearly on those in the block. Return whether it was added.

        ``column`` (k,) and ``diagonal`` are the row's entries of H.
        """
        if not self._factor.try_add(column, diagonal):
            return False
        self._signs.append(sign)
        self.rows.append(row)
        return True

    def remove(self, place: int) -> None:
        """Remove the row at the position ``place`` of ``rows``."""
        self._factor.remove(place)
        del self._signs[place], self.rows[place]

    def solve(self, right: Float64, total: float = 0.0) -> Step:
        """Return the step for a right-hand side (k,). ``total``: the required value of y'd."""
        d = self._factor.solve(right)
        if not self._constrained:
            return Step(d, 0.0)
        y = self.signs
        q = self._factor.solve(y)
        beta = (float(y @ d) - total) / float(y @ q)
        return Step(d - beta * q, beta)


# The method


@dataclass(slots=True)
class Point:
    """The current point of the method, which is feasible at any time."""

    a: Float64
    """(n,) the dual variables."""
    f: Float64
    """(n,) K (y a), without the intercept."""
    b: float
    """The free intercept; 0 if there is none."""


class ActiveSetMethod:
    """The active-set method from a feasible ``a`` (n,) to the optimum. Changes ``a``.

    ``free_bias``: whether the intercept is free; y'a must then be 0, and stays 0.
    """

    def __init__(self, terms: DualTerms, space: Space, a: Float64, *, free_bias: bool) -> None:
        self._terms, self._space, self._free_bias = terms, space, free_bias
        self._tau = float(space.diagonal.mean()) if free_bias else 0.0
        support = np.flatnonzero(a)
        self.point = Point(a, space.values(support, (terms.y * a)[support]), 0.0)
        self._block = FreeBlock(constrained=free_bias)
        self._is_in_block = np.zeros(len(a), np.bool_)
        self._confirmations = 0
        self.exchanges = 0
        """Number of rows that were added to the block so far."""

    @property
    def free_rows(self) -> int:
        """The number of free rows."""
        return self._block.size

    def run(self, deadline: float = np.inf) -> bool:
        """Exchange rows until the point is optimal up to rounding. Return False if the ``deadline`` came first."""
        self._purify()
        idle, best = 0, -np.inf
        while time.perf_counter() <= deadline:
            if not self._descend():
                continue
            row = self._worst_violator()
            value = self.dual()
            # if rows depend on each other, rounding errors in f may increase D without end
            idle, best = (0, value) if value - best > PRECISION * abs(value) else (idle + 1, best)
            if row is None or idle > MAX_IDLE_EXCHANGES:
                if self._confirmations >= MAX_CONFIRMATIONS or self._confirm_optimum():
                    return True
                idle = 0
                continue
            self._free(row)
        return False

    def recompute(self) -> None:
        """Recompute f from a, to remove the rounding errors that steps have accumulated."""
        support = np.flatnonzero(self.point.a)
        self.point.f = self._space.values(support, (self._terms.y * self.point.a)[support])

    def dual(self) -> float:
        """Return D of the current a."""
        a, f, (y, z, curvature, _) = self.point.a, self.point.f, self._terms
        return float(z @ a) - 0.5 * float(curvature @ (a * a)) - 0.5 * float((y * a) @ f)

    def gradient(self) -> Float64:
        """Return g (n,)."""
        y, z, curvature, _ = self._terms
        return y * (self.point.f + self.point.b) - z + curvature * self.point.a

    def intercept(self) -> float:
        """Return b. If no row is free, return the middle of the interval of optimal intercepts."""
        if self._free_bias and not self._block.size:
            (top, _), (bottom, _) = self._intercept_bounds()
            ends = [bound for bound in (top, bottom) if np.isfinite(bound)]
            return float(np.mean(ends)) if ends else 0.0
        return self.point.b

    def _purify(self) -> None:
        """Add the rows strictly between their bounds to the block."""
        a, upper = self.point.a, self._terms.upper
        for row in np.flatnonzero((a > 0.0) & (a < upper) & ~self._is_in_block):
            self._free(int(row))

    def _confirm_optimum(self) -> bool:
        """Recompute f and the factor, and make another step. Return whether there is still no violating row."""
        self._confirmations += 1
        self.recompute()
        self._block = FreeBlock(constrained=self._free_bias)
        self._is_in_block[:] = False
        self._purify()
        return self._descend() and self._worst_violator() is None

    def _descend(self) -> bool:
        """Step towards the minimum over the free rows. Return whether it was reached."""
        rows = np.array(self._block.rows, np.int64)
        if len(rows) == 1 and self._free_bias and self._is_at_bound(rows[0]):
            self._block.remove(0)  # alone it cannot move, and together with another row it might leave its bounds
            self._is_in_block[rows[0]] = False
            return True
        if not len(rows):
            return True
        total = -float(self._terms.y @ self.point.a) if self._free_bias else 0.0
        step = self._block.solve(-self.gradient()[rows], total)
        length, place = self._max_step(rows, step.d)
        if length >= 1.0:
            self._move(rows, step.d)
            self.point.b += step.beta
            return True
        self._move(rows, length * step.d)
        self.point.b += length * step.beta
        self._stop_at_bound(rows, place, step.d[place])
        return False

    def _max_step(self, rows: Any, d: Float64) -> tuple[float, int]:
        """Return the largest step length for which the rows stay within their bounds, and the position of the row that
        reaches its bound first.
        """
        a, upper = self.point.a[rows], self._terms.upper[rows]
        with np.errstate(divide="ignore", invalid="ignore"):
            lengths = np.where(d < 0.0, -a / d, np.where(d > 0.0, (upper - a) / d, np.inf))
        place = int(np.argmin(lengths))
        return max(float(lengths[place]), 0.0), place

    def _move(self, rows: Any, d: Float64) -> None:
        self.point.a[rows] += d
        self.point.f += self._space.values(rows, self._terms.y[rows] * d)

    def _stop_at_bound(self, rows: Any, place: int, d: float) -> None:
        """Set a free row to the bound towards which it moved, and remove it from the block."""
        row = rows[place]
        self.point.a[row] = 0.0 if d < 0.0 else self._terms.upper[row]
        self._is_in_block[row] = False
        self._block.remove(place)

    def _is_at_bound(self, row: int) -> bool:
        return not 0.0 < self.point.a[row] < self._terms.upper[row]

    def _worst_violator(self) -> int | None:
        """Return the row at a bound with the largest violation; None if no row violates the optimality conditions."""
        if self._free_bias and not self._block.size:
            return self._free_first_of_pair()
        a, upper, g = self.point.a, self._terms.upper, self.gradient()
        gain = np.where(a <= 0.0, -g, np.where(a >= upper, g, -np.inf))
        gain[self._is_in_block] = -np.inf
        row = int(np.argmax(gain))
        return row if gain[row] > self._rounding() else None

    def _rounding(self) -> float:
        """Return a bound of the rounding error of a gradient."""
        return PRECISION * float(np.abs(self._terms.z).max() + np.abs(self.point.f).max() + abs(self.point.b))

    def _intercept_bounds(self) -> tuple[tuple[float, int], tuple[float, int]]:
        """Return the largest lower bound and the smallest upper bound of b by the optimality conditions of the rows,
        each with its row.
        """
        a, f, (y, z, curvature, upper) = self.point.a, self.point.f, self._terms
        bound = y * (z - curvature * a) - f
        rising = np.where(y > 0.0, a < upper, a > 0.0)
        falling = np.where(y > 0.0, a > 0.0, a < upper)
        low, high = np.where(rising, bound, -np.inf), np.where(falling, bound, np.inf)
        i, j = int(np.argmax(low)), int(np.argmin(high))
        return (float(low[i]), i), (float(high[j]), j)

    def _free_first_of_pair(self) -> int | None:
        """Free one row of the pair with the largest violation, and return the other row; None if no pair violates the
        conditions. For use when no row is free, since no row can move alone.
        """
        (top, row), (bottom, other) = self._intercept_bounds()
        if top - bottom <= self._rounding():
            return None
        self.point.b = top
        self._free(row)
        return other

    def _free(self, row: int) -> None:
        """Add a row to the block. While it depends linearly on the rows in the block, move along a line first."""
        self.exchanges += 1
        y = self._terms.y
        while True:
            column = (self._space.column(row)[self._block.rows] + self._tau) * y[row] * self._block.signs
            diagonal = float(self._space.diagonal[row] + self._tau + self._terms.curvature[row])
            if self._block.try_add(row, y[row], column, diagonal):
                self._is_in_block[row] = True
                return
            if self._move_along_line(row, column):
                return

    def _move_along_line(self, row: int, column: Float64) -> bool:
        """Move along the direction in which H is 0 until a row reaches a bound. Return whether ``row`` itself reached
        its bound, or no row did.
        """
        y, g = self._terms.y, self.gradient()
        free = self._block.solve(-column, -float(y[row]))
        rows, d = np.array([*self._block.rows, row]), np.append(free.d, 1.0)
        d = -d if float(g[rows] @ d) > 0.0 else d
        length, place = self._max_step(rows, d)
        if not np.isfinite(length):  # no bound on the way: the curvature is lost in rounding, so there is no step
            return True
        may_stay, a, f, dual = self._is_at_bound(row), self.point.a.copy(), self.point.f.copy(), self.dual()
        self._move(rows, length * d)
        if may_stay and self.dual() < dual - PRECISION * abs(dual):
            self.point.a[:], self.point.f[:] = a, f  # on a long step, the curvature that the factor neglected is not 0
            return True
        if place == len(rows) - 1:
            self.point.a[row] = 0.0 if d[place] < 0.0 else self._terms.upper[row]
            return True
        self._stop_at_bound(rows, place, d[place])
        return False
