"""The problem of a working set, solved in memory: pairs of coordinates, by turns with all that are free.

    min_x  1/2 x'Mx - p'x     subject to  sum x = constant,   low <= x <= high,         v = p - Mx

Pairs (``compute.passes.smo``) soon find which coordinates are at a bound. Where C is large few are, and a smooth kernel makes an M
whose eigenvalues fall from n to 1e-10 of it: a step along two axes then brings next to nothing, and millions of them are
made. All free coordinates F at once go to where they are best, the others fixed,

    [ M_FF  1 ] [ d ]   [ v_F ]
    [ 1'    0 ] [ t ] = [  0  ]

or to the bound that is met first, where that coordinate stays. The objective falls all the way to d, as d'Md = v'd > 0 is its curvature.
Reference: Nocedal and Wright, *Numerical Optimization*, 2nd edition, section 16.5; Fan, Chen, Lin, JMLR 2005, for the pairs.
"""

from __future__ import annotations

import time
from typing import NamedTuple

import numpy as np

from streamsvm.aliases import Array
from streamsvm.compute.passes.smo import smo
from streamsvm.rows import Float64

TURN, TURN_PER_ROW = 20_000, 20
"""Pairs between two looks at the clock and at the free coordinates: so many, or so many for each row if that is less."""
SYSTEMS = 50
"""Systems of equations at a time, all but the last of which end at a bound: two seconds or less."""
MOST_FREE = 700
"""Coordinates of a system; the matrix of more would be a large part of what a working set takes."""
RIDGE = 1e-13
"""Added to the diagonal, of its largest entry: rows that are there twice have no curvature between them."""


class Interval(NamedTuple):
    """The bounds, (n,) each."""

    low: Float64
    """The least x; -inf where there is none."""
    high: Float64
    """The largest x; inf where there is none."""

    def free(self, x: Float64) -> Array:
        """The coordinates between their bounds."""
        return np.flatnonzero((x > self.low) & (x < self.high))


def system_bytes(rows: int) -> int:
    """Return what a system takes: its matrix, a copy, and what the rows of M are picked into."""
    return 3 * 8 * min(rows, MOST_FREE) ** 2


def solve_box(M: Array, x: Float64, v: Float64, box: Interval, tolerance: float, *, most: int, deadline: float) -> int:
    """Optimize x in its box until v differs by ``tolerance`` at most between coordinates that could change places.

    Given: M (n, n) symmetric, ``most`` pairs, the moment of ``time.perf_counter`` after which no other turn is begun.
    Changed: x and v, (n,), kept in step. Returned: the pairs that were moved.
    """
    made, turn = 0, min(TURN, TURN_PER_ROW * len(x))
    while made < most and not (made and time.perf_counter() > deadline):
        moved = int(smo(M, x, box.low, box.high, v, tolerance, turn))
        made += moved
        if moved < turn:
            break
        settle(M, x, v, box)
    return made


def settle(M: Array, x: Float64, v: Float64, box: Interval) -> None:
    """Go to where the free coordinates are best, from one bound to the next. Changes x and v as ``solve_box`` does."""
    for _ in range(SYSTEMS):
        free = box.free(x)
        if not 2 <= len(free) <= MOST_FREE or _step(M, x, v, free, box):
            return


def _step(M: Array, x: Float64, v: Float64, free: Array, box: Interval) -> bool:
    """Go along d as far as the box allows; whether that was the whole of it."""
    d = _direction(M[np.ix_(free, free)].astype(np.float64), v[free])
    if not v[free] @ d > 0.0:  # rounding is all there is
        return True
    room = np.where(d > 0.0, box.high[free] - x[free], x[free] - box.low[free])
    with np.errstate(divide="ignore"):
        shares = room / np.abs(d)
    first = int(np.argmin(shares))
    share = min(1.0, float(shares[first]))
    met = free[first]
    x[free] = np.clip(x[free] + share * d, box.low[free], box.high[free])
    if share < 1.0:
        x[met] = box.high[met] if d[first] > 0.0 else box.low[met]
    v -= M[:, free] @ (share * d)
    return share == 1.0


def _direction(M: Float64, v: Float64) -> Float64:
    """The d of the system, its sum 0 but for rounding. Changes M."""
    M[np.diag_indices_from(M)] += RIDGE * M.diagonal().max()
    to_v, to_one = np.linalg.solve(M, np.column_stack([v, np.ones(len(v))])).T
    d = to_v - to_one * (to_v.sum() / to_one.sum())
    return np.asarray(d - d.mean())
