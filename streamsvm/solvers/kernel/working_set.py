"""Working sets: the problem of a pool (``pool.py``) is solved by decomposition in memory.

The ``working`` coordinates that violate the optimality conditions most are optimized on their Gram matrix; the gradient of
all others follows by one matrix product.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from streamsvm.aliases import Array
from streamsvm.compute.blocks.row_selection import take
from streamsvm.compute.kernel_values.expansion import expand, gram, weigh
from streamsvm.compute.kernel_values.rounding import SINGLE
from streamsvm.compute.threading import in_strips
from streamsvm.rows import CSR, Float64, Int64, Rows
from streamsvm.solvers.kernel.box_problem import Interval, solve_box, system_bytes
from streamsvm.solvers.kernel.pool import Form, Pool, violation, worst
from streamsvm.tags import saved_as

INNER_SHARE = 0.1
"""A working set is solved until its violation is this part of the pool's."""
MAX_STEPS = 200_000
"""Of a working set: some seconds, in which nobody looks whether the run is to stop."""
DRAWN = 512
"""Rows that are looked at first where copies are sought."""
STRIP = 64
"""Rows of a Gram matrix that are multiplied by one thread; several times as many are worth one."""
ROUNDS = 4
"""Of a level, for each pair of the subsets it can be cut into; and of a pool on levels that holds all rows, before the next pass: a
pass costs little beside them, and it brings a certificate and a look at whether anything is gained."""


@saved_as("kernel.moves")
class Moves(NamedTuple):
    """What solving a pool's problem came to: steps, and the sum of |change of x| over the working sets it took."""

    steps: int = 0
    """Pairs of coordinates that were moved."""
    travel: float = 0.0
    """sum |change of x|, one term for each row of each working set: it bounds what rounding does to f."""

    def plus(self, other: Moves) -> Moves:
        """Return these moves and others together."""
        return Moves(self.steps + other.steps, self.travel + other.travel)


def coordinates(working: int, form: Form) -> int:
    """The coordinates whose Gram matrix takes the bytes that ``working`` of them do in float32, in the form's arithmetic."""
    return working if form.arithmetic == SINGLE else max(2, math.isqrt(working * working // 2))


@saved_as("kernel.improvement")
@dataclass(slots=True)
class Improvement:
    """How far the work on a pool has come, which is done one subset of its rows after the other."""

    rounds: int
    """Subsets that may still be begun."""
    recent: Int64 = field(default_factory=lambda: np.empty(0, np.int64))
    """Places of the rows that were solved last; none before the first."""
    moves: Moves = field(default_factory=Moves)
    """What all of them came to."""

    def over(self, deadline: float) -> bool:
        """Whether no other is begun. After the moment ``deadline`` that is so of all but the first.

        What comes of a run without time is a machine too.
        """
        return self.rounds <= 0 or bool(len(self.recent) and late(deadline))

    def begin(self, chosen: Int64) -> None:
        """Count a subset, of rows at these places."""
        self.rounds, self.recent = self.rounds - 1, chosen

    def end(self, made: Moves, *, moved: bool) -> None:
        """Count what it came to; where nothing ``moved``, nothing will."""
        self.moves = self.moves.plus(made)
        if not moved:
            self.rounds = 0


def matrix_bytes(working: int) -> int:
    """Return what optimizing so many coordinates takes: their Gram matrix, and systems of those that are free."""
    return 4 * working**2 + system_bytes(working)


def rounds_for(size: int, below: int) -> int:
    """Subsets of ``below`` rows after which a level of ``size`` is left: some for each pair of them.

    One that is not solved by then hardly ever is: values of the kernel range too far. What there is goes to the level above.
    """
    return ROUNDS * math.ceil(size / below) ** 2


def improve(
    pool: Pool,
    form: Form,
    working: int,
    known: Improvement,
    tolerance: float,
    *,
    growing: float = 0.5,
    deadline: float = math.inf,
) -> None:
    """Optimize the next ``working`` coordinates, to the ``tolerance`` of the whole or roughly. Changes pool and ``known``."""
    known.begin(working_set(pool, working, known.recent, growing))
    made = _optimize(pool, form, known.recent, max(0.5 * tolerance, INNER_SHARE * violation(pool)), deadline)
    known.end(made, moved=made.steps > 0)


def group_equal_rows(pool: Pool, most: int) -> NDArray[np.int64] | None:
    """Return the group (n,) of each row, where rows that are equal in all the problem knows of them are one; None where that is of no use.

    It is of use where there are ``most`` groups at most, and rows that are drawn evenly are copies for the greater part.
    """
    drawn = np.linspace(0, pool.size - 1, min(pool.size, DRAWN)).astype(np.int64)
    if 2 * len({_row_key(pool, row) for row in drawn.tolist()}) > len(drawn):
        return None
    numbers: dict[bytes, int] = {}
    group = np.empty(pool.size, np.int64)
    for row in range(pool.size):
        group[row] = numbers.setdefault(_row_key(pool, row), len(numbers))
        if len(numbers) > most:
            return None
    return group


def _row_key(pool: Pool, row: int) -> bytes:
    """Return what a row has in common with its copies: its features, and its terms of the problem."""
    X = pool.X
    if isinstance(X, CSR):
        entries = slice(X.indptr[row], X.indptr[row + 1])
        features = X.indices[entries].tobytes() + X.data[entries].tobytes()
    else:
        features = X.values[row].tobytes()
    terms = (pool.sign, pool.ridge, pool.low, pool.high, pool.p)
    return b"".join(column[row : row + 1].tobytes() for column in terms) + features


def improve_groups(
    pool: Pool, form: Form, group: NDArray[np.int64], known: Improvement, tolerance: float, *, deadline: float
) -> None:
    """Optimize all rows at once, each ``group`` of equal rows as one coordinate, which is their sum. Changes pool and ``known``.

    Pairs of single rows move from copy to copy, and working sets of some copies undo each other.
    """
    _, rows, sizes = np.unique(group, return_index=True, return_counts=True)
    known.begin(rows)
    total: Float64 = np.bincount(group, pool.x).astype(np.float64)
    pool.v += pool.ridge * (pool.x - (total / sizes)[group])  # equal rows have equal shares from here on
    low, high, ridge, sign = (column[rows] for column in (pool.low, pool.high, pool.ridge, pool.sign))
    X = take(pool.X, rows)
    M = _signed_gram(X, form, sign)
    M[np.diag_indices_from(M)] += (ridge / sizes).astype(M.dtype)
    x, v, box = total.copy(), pool.v[rows], Interval(low * sizes, high * sizes)
    steps = solve_box(
        M, x, v, box, max(0.5 * tolerance, INNER_SHARE * violation(pool)), most=MAX_STEPS, deadline=deadline
    )
    step = x - total
    follow(pool, form, X, sign * step)
    pool.v -= (ridge * step / sizes)[group]
    share = np.where(x >= box.high, high, np.where(x <= box.low, low, x / sizes))
    pool.x[:] = share[group]
    known.end(Moves(steps, float(np.abs(step).sum())), moved=steps > 0)


def late(deadline: float) -> bool:
    """Whether a moment of ``time.perf_counter`` has passed."""
    return time.perf_counter() > deadline


def working_set(pool: Pool, working: int, recent: NDArray[np.int64], growing: float) -> NDArray[np.int64]:
    """Half by violation, half of those that were optimized last and are still between their bounds."""
    if pool.size <= working:
        return np.arange(pool.size)
    free = recent[(pool.x[recent] > pool.low[recent]) & (pool.x[recent] < pool.high[recent])][: working // 2]
    fresh = worst(pool, working - len(free), growing)
    return np.union1d(fresh, free)


def _optimize(pool: Pool, form: Form, chosen: NDArray[np.int64], tolerance: float, deadline: float) -> Moves:
    """Optimize some coordinates and let the gradient of all follow.

    That of the coordinates themselves is not what the steps have made of it, which adds up the rounding of each of
    them, but v - M (change of x): like that of the others it is off by an error of kernel values times ``Moves.travel``. The ridge
    is apart there: in float32 it would be off by more than small values of a kernel are large.
    """
    X, old, ridge = take(pool.X, chosen), pool.x[chosen], pool.ridge[chosen]
    M = _signed_gram(X, form, pool.sign[chosen])
    diagonal, places = M.diagonal().copy(), np.diag_indices_from(M)
    M[places] += ridge.astype(M.dtype)
    x, v, box = old.copy(), pool.v[chosen], Interval(pool.low[chosen], pool.high[chosen])
    steps = solve_box(M, x, v, box, tolerance, most=MAX_STEPS, deadline=deadline)
    moved = np.flatnonzero(x != old)
    change = np.zeros(len(x))
    M[places] = diagonal
    step = x - old
    in_strips(lambda start, stop: weigh(M[start:stop], step, change[start:stop]), len(step), STRIP)
    v = pool.v[chosen] - change - ridge * step
    follow(pool, form, take(X, moved), (pool.sign[chosen] * step)[moved])
    pool.x[chosen], pool.v[chosen] = x, v
    return Moves(steps, float(np.abs(step).sum()))


def _signed_gram(X: Rows, form: Form, sign: Float64) -> Array:
    """The matrix of a working set, the ridge apart."""
    M = gram(X, form.kernel, form.columns, form.arithmetic)
    if form.constant:
        M += M.dtype.type(form.constant)
    z = sign.astype(M.dtype)
    if (z < 0).any():
        M *= z
        M *= z[:, None]
    return M


def follow(pool: Pool, form: Form, moved: Rows, weights: Float64) -> None:
    """V -= z (k(., moved) + constant) weights, the ridge apart. Changes v."""
    change = np.full(pool.size, form.constant * weights.sum())
    expand(pool.X, moved, weights, form.kernel, form.columns, change, form.arithmetic)
    pool.v -= pool.sign * change


def refresh(pool: Pool, form: Form) -> None:
    """Set v = p - Mx from scratch, with all weight inside the pool."""
    support = np.flatnonzero(pool.x)
    pool.v[:] = pool.p - pool.ridge * pool.x
    follow(pool, form, take(pool.X, support), (pool.sign * pool.x)[support])
