"""The active set method for the dual: finite and exact (the lecture's third method; Scheinberg, JMLR 2006, SVM-QP).

    min_a  1/2 a'Qa + sum_i (conjugate(a_i) - a_i)    subject to  0 <= a_i <= U_i,    Q_ij = y_i y_j K_ij,

and y'a = 0 where the intercept b is free. Rows are at 0, at U_i, or free. With f = K (y a), the gradient of a row is

    g_i = y_i (f_i + b) - z_i + curvature_i a_i,        z_i = 1 - conjugate'(0).

A step goes to the minimum over the free rows, g = 0 there, by the factor of their block of the Hessian; the first row to meet
a bound on the way stays there, and the step is solved for anew. At the minimum the bound row that violates most, g_i < 0 at
0 or g_i > 0 at U_i, becomes free. Where its direction depends on those of the free rows the objective is a line along it: a is
moved along that line until a row meets a bound, and is out of the block. Rows of numbers count twice (``sides``). Every step lowers the objective or ends at a
bound, so that no set of free rows comes twice; where rounding keeps violations alive, the method ends when D stands still.

A start from elsewhere, a feasible a with values between the bounds, is taken to such a point first: rows come into the block one
after the other, and a dependent one is moved along its line to a bound, as a simplex method purifies an interior solution.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from streamsvm.rows import Float64
from streamsvm.solvers.active_set.factor import FreeBlock
from streamsvm.solvers.active_set.spaces import Space

PRECISION = 1e-13
"""A violation of less, relative to the terms of g, is rounding."""
STILL = 200
"""Exchanges without an increase of D that float64 shows, after which there is nothing left to gain."""
CONFIRMATIONS = 3
"""How often the end is looked at again, with f and the factor made anew."""


class DualTerms(NamedTuple):
    """What a row adds to the dual, all float64 (n,)."""

    y: Float64
    """The sign, +1 or -1."""
    z: Float64
    """1 - conjugate'(0), the margin from which on the row costs nothing; of numbers beside the target."""
    curvature: Float64
    """The second derivative of the conjugate, a constant."""
    upper: Float64
    """U_i > 0, inf where there is no bound."""


def terms_of(loss: Any, y: Any, C: Float64) -> DualTerms:
    """The terms of rows with weights ``C`` (n,) above 0, C_i = C s_i, for a loss whose conjugate is a parabola or a line."""
    z = np.array([1.0 - loss.conjugate_slope(0.0, c) for c in C])
    curvature, upper = (np.array([part(c) for c in C]) for part in (loss.curvature, loss.upper))
    return DualTerms(np.asarray(y, np.float64), z, curvature, upper)


@dataclass(slots=True)
class Point:
    """Where the method is: feasible at every moment."""

    a: Float64
    """(n,) the dual variables."""
    f: Float64
    """(n,) K (y a), without the intercept."""
    b: float
    """The free intercept; 0 where there is none."""


class ActiveSetMethod:
    """From a feasible ``a`` (n,), which is changed, to the optimum. ``free_bias``: y'a = 0 holds and is kept."""

    def __init__(self, terms: DualTerms, space: Space, a: Float64, *, free_bias: bool) -> None:
        self._terms, self._space, self._free_bias = terms, space, free_bias
        self._tau = float(space.diagonal.mean()) if free_bias else 0.0
        support = np.flatnonzero(a)
        self.at = Point(a, space.values(support, (terms.y * a)[support]), 0.0)
        self._block = FreeBlock(constrained=free_bias)
        self._inside = np.zeros(len(a), np.bool_)
        self._confirmed = 0
        self.exchanges = 0
        """Rows that came into the block so far."""

    @property
    def free_rows(self) -> int:
        """How many rows are free."""
        return self._block.size

    def run(self, deadline: float = np.inf) -> bool:
        """Exchange rows until the point is optimal to rounding; False where the ``deadline`` came first."""
        self._purify()
        still, best = 0, -np.inf
        while time.perf_counter() <= deadline:
            if not self._descend():
                continue
            row = self._most_violating()
            value = self.dual()
            still, best = (0, value) if value > best else (still + 1, best)
            if row is None or still > STILL:
                if self._confirmed >= CONFIRMATIONS or self._optimal_anew():
                    return True
                still = 0
                continue
            self._enter(row)
        return False

    def recompute(self) -> None:
        """Make f of the present a anew: without what rounding has left in it on the way."""
        support = np.flatnonzero(self.at.a)
        self.at.f = self._space.values(support, (self._terms.y * self.at.a)[support])

    def dual(self) -> float:
        """Return D of the present a."""
        a, f, (y, z, curvature, _) = self.at.a, self.at.f, self._terms
        return float(z @ a) - 0.5 * float(curvature @ (a * a)) - 0.5 * float((y * a) @ f)

    def gradient(self) -> Float64:
        """Return g (n,)."""
        y, z, curvature, _ = self._terms
        return y * (self.at.f + self.at.b) - z + curvature * self.at.a

    def intercept(self) -> float:
        """Return b: where no row is free, the middle of those that are optimal."""
        if self._free_bias and not self._block.size:
            top, bottom = self._levels()
            found = [level for level in (top[0], bottom[0]) if np.isfinite(level)]
            return float(np.mean(found)) if found else 0.0
        return self.at.b

    def _descend(self) -> bool:
        """Step towards the minimum over the free rows; whether it was reached."""
        rows = np.array(self._block.rows, np.int64)
        if len(rows) == 1 and self._free_bias and not 0.0 < self.at.a[rows[0]] < self._terms.upper[rows[0]]:
            self._block.remove(0)  # alone it cannot move, and beside another one perhaps only out of its bounds
            self._inside[rows[0]] = False
            return True
        if not len(rows):
            return True
        total = -float(self._terms.y @ self.at.a) if self._free_bias else 0.0
        step = self._block.solve(-self.gradient()[rows], total)
        length, place = self._longest(rows, step.d)
        if length >= 1.0:
            self._move(rows, step.d)
            self.at.b += step.beta
            return True
        self._move(rows, length * step.d)
        self.at.b += length * step.beta
        self._stop_at_bound(rows, place, step.d[place])
        return False

    def _longest(self, rows: Any, d: Float64) -> tuple[float, int]:
        """How far along d the rows stay within their bounds, and the place of the one that meets its bound first."""
        a, upper = self.at.a[rows], self._terms.upper[rows]
        with np.errstate(divide="ignore", invalid="ignore"):
            lengths = np.where(d < 0.0, -a / d, np.where(d > 0.0, (upper - a) / d, np.inf))
        place = int(np.argmin(lengths))
        return max(float(lengths[place]), 0.0), place

    def _move(self, rows: Any, d: Float64) -> None:
        self.at.a[rows] += d
        self.at.f += self._space.values(rows, self._terms.y[rows] * d)

    def _stop_at_bound(self, rows: Any, place: int, d: float) -> None:
        """A free row has met the bound it moved towards: it leaves the block."""
        row = rows[place]
        self.at.a[row] = 0.0 if d < 0.0 else self._terms.upper[row]
        self._inside[row] = False
        self._block.remove(place)

    def _most_violating(self) -> int | None:
        """The bound row that would gain most by leaving its bound; None where none would."""
        if self._free_bias and not self._block.size:
            return self._first_of_pair()
        a, upper, g = self.at.a, self._terms.upper, self.gradient()
        gain = np.where(a <= 0.0, -g, np.where(a >= upper, g, -np.inf))
        gain[self._inside] = -np.inf
        row = int(np.argmax(gain))
        return row if gain[row] > self._rounding() else None

    def _rounding(self) -> float:
        """What a gradient may be off by."""
        return PRECISION * float(np.abs(self._terms.z).max() + np.abs(self.at.f).max() + abs(self.at.b))

    def _levels(self) -> tuple[tuple[float, int], tuple[float, int]]:
        """The largest b that some row asks for at least, the smallest that some row allows, and which rows they are."""
        a, f, (y, z, curvature, upper) = self.at.a, self.at.f, self._terms
        level = y * (z - curvature * a) - f
        rising = np.where(y > 0.0, a < upper, a > 0.0)
        falling = np.where(y > 0.0, a > 0.0, a < upper)
        low, high = np.where(rising, level, -np.inf), np.where(falling, level, np.inf)
        i, j = int(np.argmax(low)), int(np.argmin(high))
        return (float(low[i]), i), (float(high[j]), j)

    def _first_of_pair(self) -> int | None:
        """No row is free, and none can move alone: of the pair that violates most one is let in, the other is returned."""
        (top, row), (bottom, other) = self._levels()
        if top - bottom <= self._rounding():
            return None
        self.at.b = top
        self._enter(row)
        return other

    def _entries(self, row: int) -> tuple[Float64, float]:
        """What a row has in common with the block: a column of H, and its diagonal entry."""
        y = self._terms.y
        column = (self._space.column(row)[self._block.rows] + self._tau) * y[row] * self._block.signs
        return column, float(self._space.diagonal[row] + self._tau + self._terms.curvature[row])

    def _enter(self, row: int) -> None:
        """Let a row become free; where it depends on those that are, along a line first."""
        self.exchanges += 1
        while True:
            column, diagonal = self._entries(row)
            if self._block.offer(row, self._terms.y[row], column, diagonal):
                self._inside[row] = True
                return
            if self._along_line(row, column):
                return

    def _along_line(self, row: int, column: Float64) -> bool:
        """Move along the direction in which H is 0 until a row meets a bound; whether that was ``row`` itself, or none."""
        y, g = self._terms.y, self.gradient()
        free = self._block.solve(-column, -float(y[row]))
        rows, d = np.array([*self._block.rows, row]), np.append(free.d, 1.0)
        d = -d if float(g[rows] @ d) > 0.0 else d
        length, place = self._longest(rows, d)
        if not np.isfinite(
            length
        ):  # no bound on the way: what bends the objective is lost in rounding, and so is the step
            return True
        self._move(rows, length * d)
        if place == len(rows) - 1:
            self.at.a[row] = 0.0 if d[place] < 0.0 else self._terms.upper[row]
            return True
        self._stop_at_bound(rows, place, d[place])
        return False

    def _purify(self) -> None:
        """Take the rows between their bounds into the block."""
        a, upper = self.at.a, self._terms.upper
        for row in np.flatnonzero((a > 0.0) & (a < upper) & ~self._inside):
            self._enter(int(row))

    def _optimal_anew(self) -> bool:
        """Make f and the factor anew, and step once more: whether there is still no row that violates."""
        self._confirmed += 1
        self.recompute()
        self._block = FreeBlock(constrained=self._free_bias)
        self._inside[:] = False
        self._purify()
        return self._descend() and self._most_violating() is None
