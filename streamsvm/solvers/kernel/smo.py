"""The quadratic problem of a pool (``pool.py``), solved in memory: levels of subsets, working sets, pairs of
coordinates.

    min_x  1/2 x'Mx - p'x     subject to  sum x = constant,   low <= x <= high,         v = p - Mx

**Levels.** A subset of a pool is a pool. It is solved without a look at the other rows until its violation is a tenth
of what the whole pool had. Then the gradient of all rows is updated for the moves that were made - once, however often
a coordinate moved on the way. Between all rows and a working set there are as many levels as it takes to keep the ratio
of their sizes small. This is shrinking, with the gradient reconstructed at the end of each level, and the start from a
sample, in one rule.

**Working sets.** At the lowest level, the coordinates that violate the optimality conditions most are optimized on
their Gram matrix; the gradient of all others follows by one matrix product. Where most rows are copies of a few, each
group of equal rows is one coordinate, their sum.

**Pairs, and all free coordinates.** Inside a working set pairs of coordinates (``compute.passes.smo``) soon find which
coordinates are at a bound. Where C is large few are, and a smooth kernel makes an M whose eigenvalues fall from n to
1e-10 of it: a step along two axes then brings next to nothing, and millions of them are made. So pairs take turns with
a step of all free coordinates F to where they are best, the others fixed,

    [ M_FF  1 ] [ d ]   [ v_F ]
    [ 1'    0 ] [ t ] = [  0  ]

or to the bound that is met first, where that coordinate stays. The objective falls all the way to d, as d'Md = v'd > 0
is its curvature. References: Nocedal and Wright, *Numerical Optimization*, 2nd edition, section 16.5; Fan, Chen, Lin,
JMLR 2005, for the pairs.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from streamsvm.aliases import Array
from streamsvm.class_tags import saved_as
from streamsvm.compute.blocks.selection import take_rows
from streamsvm.compute.kernel_values.expansion import expand, gram, weigh
from streamsvm.compute.kernel_values.rounding import SINGLE
from streamsvm.compute.passes.smo import smo
from streamsvm.compute.threading import in_strips
from streamsvm.rows import CSR, Float64, Int64, Rows
from streamsvm.solvers.kernel.pool import Form, Pool, extremes, row_violations, select_rows, violation, worst_rows

LEVEL_RATIO = 8
"""A level has at most this many times the rows of the one below."""
SAMPLED_FROM = 2.5
"""Where there are more violators than this many pools full, the pool is a random sample of them. The worst alone are a
biased lot: solved by themselves they upset all others, and passes undo each other (covtype 50,000 rows, pool 8192: more
than 700 passes against 40)."""
NEGLIGIBLE_SHARE = 0.05
"""Rows that violate by less than this share of the violation of all are not counted among the violators."""
WORST_ROWS = 16
"""This many of the worst rows are always taken, whatever else is drawn."""
INNER_SHARE = 0.1
"""A subset is solved until its violation is this share of the pool's."""
ROUNDS = 4
"""Subsets per pair of the parts a level can be cut into; also those of a pool of all rows on levels before the next
pass: a pass costs little beside them, and it brings a certificate and a check of whether anything is gained."""
MAX_PAIRS = 200_000
"""Pairs moved in a working set at most: some seconds, during which the run cannot be stopped."""
PAIRS_PER_TURN, PAIRS_PER_TURN_AND_ROW = 20_000, 20
"""Pairs between two checks of the clock and of the free coordinates: the smaller of the first number and the second
times rows."""
MAX_SYSTEMS = 50
"""Systems of equations solved in a turn, all but the last of which end at a bound: two seconds or less."""
MAX_FREE = 700
"""Coordinates of a system at most; the matrix of more would be a large part of the memory of a working set."""
RELATIVE_RIDGE = 1e-13
"""Added to the diagonal of a system, relative to its largest entry: equal rows have no curvature between them."""
PROBED_ROWS = 512
"""Rows looked at first where copies are sought."""
STRIP_ROWS = 64
"""Rows of a Gram matrix that are multiplied by one thread; several times as many are worth one."""


@saved_as("kernel.moves")
class Moves(NamedTuple):
    """How much was moved while a pool's problem was solved."""

    steps: int = 0
    """Pairs of coordinates that were moved."""
    travel: float = 0.0
    """sum |change of x|, one term for each row of each working set: it bounds what rounding does to f."""

    def plus(self, other: Moves) -> Moves:
        """Return the sum of both."""
        return Moves(self.steps + other.steps, self.travel + other.travel)


@saved_as("kernel.improvement")
@dataclass(slots=True)
class Progress:
    """How far the work on a pool has come, which is done one subset of its rows after the other."""

    rounds: int
    """Subsets that may still be begun."""
    recent: Int64 = field(default_factory=lambda: np.empty(0, np.int64))
    """Places of the rows that were solved last; none before the first."""
    moves: Moves = field(default_factory=Moves)
    """The moves of all subsets together."""

    def is_over(self, deadline: float) -> bool:
        """Return whether no other subset may begin. Even with no time left, one is made: it leads to a model."""
        return self.rounds <= 0 or bool(len(self.recent) and is_late(deadline))

    def begin(self, chosen: Int64) -> None:
        """Count a subset, of rows at these places."""
        self.rounds, self.recent = self.rounds - 1, chosen

    def end(self, made: Moves, *, moved: bool) -> None:
        """Add the moves of the subset; where nothing ``moved``, no other would either."""
        self.moves = self.moves.plus(made)
        if not moved:
            self.rounds = 0


@saved_as("decomposition.level")
@dataclass(slots=True)
class Level:
    """A pool that is being solved, by subsets, which are the next level, or by working sets."""

    pool: Pool
    """Its rows; their x and v are as the last subset left them."""
    tolerance: float
    """The violation to which it is solved."""
    known: Progress
    """The subset under way included."""


def working_size(working: int, form: Form) -> int:
    """Return how many coordinates have a Gram matrix, in the form's arithmetic, of the bytes that ``working`` have in
    float32.
    """
    return working if form.arithmetic == SINGLE else max(2, math.isqrt(working * working // 2))


def matrix_bytes(working: int) -> int:
    """Return the bytes to optimize this many coordinates: their Gram matrix, and the systems of the free ones."""
    return 4 * working**2 + system_bytes(working)


def system_bytes(rows: int) -> int:
    """Return the bytes of the systems of free coordinates in a working set of this many rows."""
    return 3 * 8 * min(rows, MAX_FREE) ** 2  # the matrix, a copy, and the rows of M it is picked from


def max_rounds(size: int, below: int) -> int:
    """Return the subsets of ``below`` rows after which a level of ``size`` is left: ROUNDS for each pair of its parts.

    A level that is not solved by then hardly ever is, because values of the kernel range too far. What was gained is
    kept.
    """
    return ROUNDS * math.ceil(size / below) ** 2


def is_late(deadline: float) -> bool:
    """Return whether a moment of ``time.perf_counter`` has passed."""
    return time.perf_counter() > deadline


# Levels


def solve_step(levels: list[Level], form: Form, working: int, deadline: float = math.inf) -> bool:
    """Make one step of solving the problem of the first level; return whether there is another to make. Changes the
    levels.

    A step begins or ends a subset, or optimizes a working set. A level is left after its last round, or once the moment
    ``deadline`` has passed, whatever its violation.
    """
    level = levels[-1]
    pool, known, found = level.pool, level.known, violation(level.pool)
    if found <= level.tolerance or known.is_over(deadline):
        return _leave_level(levels, form)
    count = size_below(pool.size, working)
    if len(levels) == 1 and pool.size > working and (group := group_equal_rows(pool, working)) is not None:
        optimize_groups(pool, form, group, known, level.tolerance, deadline=deadline)
        return True
    if count <= working:
        optimize_working_set(pool, form, working, known, level.tolerance, deadline=deadline)
    else:
        known.begin(choose_subset(pool, count, known.recent))
        inner = max(0.5 * level.tolerance, INNER_SHARE * found)
        rounds = max_rounds(count, size_below(count, working))
        levels.append(Level(select_rows(pool, known.recent), inner, Progress(rounds)))
    return True


def _leave_level(levels: list[Level], form: Form) -> bool:
    """Bring the level above to where the last level was solved to, and drop that; return whether there
    was one above.
    """
    if len(levels) == 1:
        return False
    part, above = levels.pop(), levels[-1]
    moved = apply_subset(above.pool, above.known.recent, part.pool, form)
    above.known.end(part.known.moves, moved=moved)
    return True


def apply_subset(pool: Pool, chosen: Int64, part: Pool, form: Form) -> bool:
    """Bring x and v of the pool to where its rows at ``chosen`` were solved to; return whether anything moved."""
    change = part.x - pool.x[chosen]
    moved = np.flatnonzero(change)
    update_gradient(pool, form, take_rows(part.X, moved), (part.sign * change)[moved])
    pool.x[chosen], pool.v[chosen] = part.x, part.v
    return len(moved) > 0


def size_below(size: int, working: int) -> int:
    """Return the rows of the level below one of ``size``: equal ratios down to a working set."""
    if size <= working:
        return working
    levels = math.ceil(math.log(size / working) / math.log(LEVEL_RATIO) - 1e-9)
    return int(size * (working / size) ** (1.0 / levels)) if levels > 1 else working


def choose_subset(pool: Pool, count: int, recent: Int64) -> Int64:
    """Return the rows to solve next: violators, and at most half of them rows solved last that are between their
    bounds.
    """
    free = recent[(pool.x[recent] > pool.low[recent]) & (pool.x[recent] < pool.high[recent])]
    free = np.random.default_rng(len(free)).permutation(free)[: count // 2]
    top, bottom = extremes(pool)
    fresh = np.flatnonzero(row_violations(pool, estimate_threshold(pool)) > NEGLIGIBLE_SHARE * (top - bottom))
    if len(fresh) > SAMPLED_FROM * count:
        drawn = np.random.default_rng(len(fresh)).permutation(fresh)[: count - len(free) - WORST_ROWS]
        return np.union1d(free, np.union1d(drawn, worst_rows(pool, WORST_ROWS)))
    return np.union1d(free, worst_rows(pool, count - len(free)))


def estimate_threshold(pool: Pool) -> float:
    """Return an estimate of the value that all v between their bounds have at the optimum."""
    free = (pool.x > pool.low) & (pool.x < pool.high)
    return float(np.median(pool.v[free])) if free.any() else 0.5 * sum(extremes(pool))


# Working sets


def optimize_working_set(
    pool: Pool,
    form: Form,
    working: int,
    known: Progress,
    tolerance: float,
    *,
    growing: float = 0.5,
    deadline: float = math.inf,
) -> None:
    """Optimize the next ``working`` coordinates, to half the ``tolerance`` of the pool or roughly. Changes pool and
    ``known``.

    The gradient of the coordinates themselves is not the one that the pairs have kept up, which adds up the rounding of
    each of them, but v - M (change of x): like that of the others it is off by an error of kernel values times
    ``Moves.travel``. The ridge is added apart there: in float32 it would be off by more than small values of a kernel
    are large.
    """
    known.begin(choose_working_set(pool, working, known.recent, growing))
    chosen = known.recent
    tolerance = max(0.5 * tolerance, INNER_SHARE * violation(pool))
    X, old, ridge = take_rows(pool.X, chosen), pool.x[chosen], pool.ridge[chosen]
    M = _sign_gram(X, form, pool.sign[chosen])
    diagonal, places = M.diagonal().copy(), np.diag_indices_from(M)
    M[places] += ridge.astype(M.dtype)
    x, v, box = old.copy(), pool.v[chosen], Interval(pool.low[chosen], pool.high[chosen])
    steps = solve_box(M, x, v, box, tolerance, most=MAX_PAIRS, deadline=deadline)
    moved = np.flatnonzero(x != old)
    change = np.zeros(len(x))
    M[places] = diagonal
    step = x - old
    in_strips(lambda start, stop: weigh(M[start:stop], step, change[start:stop]), len(step), STRIP_ROWS)
    v = pool.v[chosen] - change - ridge * step
    update_gradient(pool, form, take_rows(X, moved), (pool.sign[chosen] * step)[moved])
    pool.x[chosen], pool.v[chosen] = x, v
    known.end(Moves(steps, float(np.abs(step).sum())), moved=steps > 0)


def choose_working_set(pool: Pool, working: int, recent: Int64, growing: float) -> Int64:
    """Return half by violation, half of those that were optimized last and are still between their bounds."""
    if pool.size <= working:
        return np.arange(pool.size)
    free = recent[(pool.x[recent] > pool.low[recent]) & (pool.x[recent] < pool.high[recent])][: working // 2]
    fresh = worst_rows(pool, working - len(free), growing)
    return np.union1d(fresh, free)


def _sign_gram(X: Rows, form: Form, sign: Float64) -> Array:
    """Return the matrix of a working set without the ridge."""
    M = gram(X, form.kernel, form.columns, form.arithmetic)
    if form.constant:
        M += M.dtype.type(form.constant)
    z = sign.astype(M.dtype)
    if (z < 0).any():
        M *= z
        M *= z[:, None]
    return M


def update_gradient(pool: Pool, form: Form, moved: Rows, weights: Float64) -> None:
    """V -= z (k(., moved) + constant) weights, the ridge apart. Changes v."""
    change = np.full(pool.size, form.constant * weights.sum())
    expand(pool.X, moved, weights, form.kernel, form.columns, change, form.arithmetic)
    pool.v -= pool.sign * change


def recompute_gradient(pool: Pool, form: Form) -> None:
    """Set v = p - Mx from scratch, with all weight inside the pool."""
    support = np.flatnonzero(pool.x)
    pool.v[:] = pool.p - pool.ridge * pool.x
    update_gradient(pool, form, take_rows(pool.X, support), (pool.sign * pool.x)[support])


def group_equal_rows(pool: Pool, most: int) -> Int64 | None:
    """Return the group (n,) of each row, where rows that are equal in all the problem knows of them are one; None where
    useless.

    It is useful where there are ``most`` groups at most, and most of an even draw of rows are copies.
    """
    drawn = np.linspace(0, pool.size - 1, min(pool.size, PROBED_ROWS)).astype(np.int64)
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


def optimize_groups(
    pool: Pool, form: Form, group: Int64, known: Progress, tolerance: float, *, deadline: float
) -> None:
    """Optimize all rows at once, each ``group`` of equal rows as one coordinate, their sum. Changes pool and ``known``.

    Pairs of single rows would move weight from copy to copy, and working sets of some copies would undo each other.
    """
    _, rows, sizes = np.unique(group, return_index=True, return_counts=True)
    known.begin(rows)
    total: Float64 = np.bincount(group, pool.x).astype(np.float64)
    pool.v += pool.ridge * (pool.x - (total / sizes)[group])  # equal rows have equal shares from here on
    low, high, ridge, sign = (column[rows] for column in (pool.low, pool.high, pool.ridge, pool.sign))
    X = take_rows(pool.X, rows)
    M = _sign_gram(X, form, sign)
    M[np.diag_indices_from(M)] += (ridge / sizes).astype(M.dtype)
    x, v, box = total.copy(), pool.v[rows], Interval(low * sizes, high * sizes)
    steps = solve_box(
        M, x, v, box, max(0.5 * tolerance, INNER_SHARE * violation(pool)), most=MAX_PAIRS, deadline=deadline
    )
    step = x - total
    update_gradient(pool, form, X, sign * step)
    pool.v -= (ridge * step / sizes)[group]
    share = np.where(x >= box.high, high, np.where(x <= box.low, low, x / sizes))
    pool.x[:] = share[group]
    known.end(Moves(steps, float(np.abs(step).sum())), moved=steps > 0)


# Pairs of coordinates, by turns with all that are free


class Interval(NamedTuple):
    """Bounds of coordinates, (n,) each; infinite where there is none."""

    low: Float64
    high: Float64

    def free(self, x: Float64) -> Array:
        """Return the coordinates between their bounds."""
        return np.flatnonzero((x > self.low) & (x < self.high))


def solve_box(M: Array, x: Float64, v: Float64, box: Interval, tolerance: float, *, most: int, deadline: float) -> int:
    """Optimize x in its box until v differs by ``tolerance`` at most between coordinates that could trade weight.

    Given: M (n, n) symmetric, ``most`` pairs, the moment of ``time.perf_counter`` after which no other turn begins.
    Changed: x and v, (n,), kept in step. Returned: the number of pairs that were moved.
    """
    made, turn = 0, min(PAIRS_PER_TURN, PAIRS_PER_TURN_AND_ROW * len(x))
    while made < most and not (made and is_late(deadline)):
        moved = int(smo(M, x, box.low, box.high, v, tolerance, turn))
        made += moved
        if moved < turn:
            break
        solve_free_coordinates(M, x, v, box)
    return made


def solve_free_coordinates(M: Array, x: Float64, v: Float64, box: Interval) -> None:
    """Go to where the free coordinates are best, from one bound to the next. Changes x and v as ``solve_box`` does."""
    for _ in range(MAX_SYSTEMS):
        free = box.free(x)
        if not 2 <= len(free) <= MAX_FREE or _step_to_bound(M, x, v, free, box):
            return


def _step_to_bound(M: Array, x: Float64, v: Float64, free: Array, box: Interval) -> bool:
    """Go along d as far as the box allows; return whether that was the whole of it."""
    d = _free_direction(M[np.ix_(free, free)].astype(np.float64), v[free])
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


def _free_direction(M: Float64, v: Float64) -> Float64:
    """Return the d of the system, its sum 0 but for rounding. Changes M."""
    M[np.diag_indices_from(M)] += RELATIVE_RIDGE * M.diagonal().max()
    to_v, to_one = np.linalg.solve(M, np.column_stack([v, np.ones(len(v))])).T
    d = to_v - to_one * (to_v.sum() / to_one.sum())
    return np.asarray(d - d.mean())
