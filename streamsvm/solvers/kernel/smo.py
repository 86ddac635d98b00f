"""Sequential minimal optimization of the quadratic problem of a pool (``pool.py``): levels of subsets, working sets,
and pairs of coordinates.

    min_x  1/2 x'Mx - p'x     subject to  sum x = constant,   low <= x <= high,         v = p - Mx

**Levels.** A subset of the rows of a pool is a pool itself. It is optimized without the other rows until its violation
is a tenth of that of the whole pool. Then the gradient of all rows is updated once for all changes of the subset. The
number of levels between all rows and a working set is such that the ratio of their sizes stays small. This one rule
includes shrinking, with the gradient reconstructed at the end of each level, and the start from a sample.

**Working sets.** At the lowest level, the coordinates that violate the optimality conditions most are optimized on
their Gram matrix, and the gradient of all others is updated by one matrix product. If most rows are copies of a few,
each group of equal rows is one coordinate, their sum.

**Pairs, and all free coordinates.** In a working set, steps of pairs of coordinates (``compute.passes.smo``) soon find
which coordinates are at a bound. If C is large, few of them are. A smooth kernel then gives an M whose eigenvalues fall
from n to 1e-10 n: a step along two axes hardly reduces the objective, and millions of steps would be necessary. So
pairs alternate with steps of all free coordinates F, the others fixed. Such a step d goes to the minimum,

    [ M_FF  1 ] [ d ]   [ v_F ]
    [ 1'    0 ] [ t ] = [  0  ]

or to the first bound on the way, where the coordinate becomes fixed. The objective falls along all of d, since
d'Md = v'd > 0 is its curvature. References: Nocedal and Wright, *Numerical Optimization*, 2nd edition, section 16.5;
Fan, Chen, Lin, JMLR 2005, for the pairs.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from streamsvm.class_tags import saved_as
from streamsvm.compute.blocks.selection import take_rows
from streamsvm.compute.kernel_values.arithmetic import dtype_of
from streamsvm.compute.kernel_values.kernel_products import expand, gram, weigh
from streamsvm.compute.passes.smo import smo
from streamsvm.compute.threading import in_strips
from streamsvm.rows import CSR, Float64, Int64, Rows
from streamsvm.solvers.kernel.pool import Form, Pool, extremes, row_violations, select_rows, violation, worst_rows
from streamsvm.type_aliases import Array

LEVEL_RATIO = 8
"""Maximum ratio of the numbers of rows of a level and the level below."""
SAMPLED_FROM = 2.5
"""If there are more violators than this many times the size of a pool, the pool is a random sample of them. The worst
violators alone are a biased sample: optimizing them makes all other rows worse, and passes undo each other (covtype
50,000 rows, pool 8192: more than 700 passes against 40)."""
NEGLIGIBLE_SHARE = 0.05
"""Rows whose violation is below this fraction of the largest one do not count as violators."""
WORST_ROWS = 16
"""Number of the worst violators that are always included in a random sample."""
INNER_SHARE = 0.1
"""A subset is optimized until its violation is this fraction of that of the pool."""
ROUNDS = 4
"""Number of subsets per pair of parts into which a level can be divided. Also the number of subsets of a pool of all
rows before the next pass, which costs little in comparison, and computes a certificate and checks for progress."""
MAX_PAIRS = 200_000
"""Maximum number of pair steps in a working set: some seconds, during which the fit cannot be stopped."""
PAIRS_PER_TURN, PAIRS_PER_TURN_AND_ROW = 20_000, 20
"""Number of pair steps between two checks of the clock and steps of the free coordinates: the first number, or the
second times the rows, whichever is smaller."""
MAX_SYSTEMS = 50
"""Maximum number of linear systems solved in a turn, all but the last of which end at a bound: at most two seconds."""
MAX_FREE = 700
"""Maximum number of coordinates of a system. A larger matrix would be a large part of the memory of a working set."""
RELATIVE_RIDGE = 1e-13
"""Added to the diagonal of a system, relative to its largest entry, because equal rows make it singular."""
PROBED_ROWS = 512
"""Number of rows that are checked first in the search for copies."""
STRIP_ROWS = 64
"""Number of rows of a Gram matrix that one thread multiplies at a time."""


@saved_as("kernel.moves")
class Moves(NamedTuple):
    """The amount of change while the problem of a pool was optimized."""

    steps: int = 0
    """Number of pair steps."""
    travel: float = 0.0
    """sum |change of x|, with one term for each row of each working set. It bounds the rounding error of f."""

    def add(self, other: Moves) -> Moves:
        """Return the sum of both."""
        return Moves(self.steps + other.steps, self.travel + other.travel)


@saved_as("kernel.improvement")
@dataclass(slots=True)
class Progress:
    """The progress of the work on a pool, which optimizes one subset of its rows after the other."""

    rounds: int
    """Number of subsets that may still be started."""
    recent: Int64 = field(default_factory=lambda: np.empty(0, np.int64))
    """Positions of the rows of the last subset; empty before the first."""
    moves: Moves = field(default_factory=Moves)
    """The sum of the moves of all subsets."""

    def is_over(self, deadline: float) -> bool:
        """Return whether no further subset may start. The first subset always may, so that there is a model even
        without any time.
        """
        return self.rounds <= 0 or bool(len(self.recent) and is_late(deadline))

    def begin(self, chosen: Int64) -> None:
        """Start a subset with the rows at the positions ``chosen``."""
        self.rounds, self.recent = self.rounds - 1, chosen

    def end(self, moves: Moves, *, moved: bool) -> None:
        """Add the moves of the subset. If nothing ``moved``, no further subset would change anything, and none
        starts.
        """
        self.moves = self.moves.add(moves)
        if not moved:
            self.rounds = 0


@saved_as("decomposition.level")
@dataclass(slots=True)
class Level:
    """A pool that is being optimized, by subsets, which are the next level, or by working sets."""

    pool: Pool
    """The rows, with x and v as of the end of the last subset."""
    tolerance: float
    """The violation at which the level is solved."""
    progress: Progress
    """The progress, the current subset included."""


def working_size(working: int, form: Form) -> int:
    """Return the number of coordinates whose Gram matrix, in the form's arithmetic, takes as many bytes as that of
    ``working`` coordinates in float32.
    """
    return working if dtype_of(form.arithmetic) == np.float32 else max(2, math.isqrt(working * working // 2))


def matrix_bytes(working: int) -> int:
    """Return the bytes for optimizing ``working`` coordinates: their Gram matrix, and the systems of the free ones."""
    return 4 * working**2 + system_bytes(working)


def system_bytes(rows: int) -> int:
    """Return the bytes of the systems of free coordinates in a working set of this many rows."""
    return 3 * 8 * min(rows, MAX_FREE) ** 2  # the matrix, a copy, and the rows of M from which it is selected


def max_rounds(size: int, below: int) -> int:
    """Return the maximum number of subsets of ``below`` rows in a level of ``size``: ROUNDS for each pair of its parts.

    A level that is not solved by then hardly ever will be, because kernel values range too widely. Its progress is
    kept.
    """
    return ROUNDS * math.ceil(size / below) ** 2


def is_late(deadline: float) -> bool:
    """Return whether a moment of ``time.perf_counter`` has passed."""
    return time.perf_counter() > deadline


# Levels


def solve_step(levels: list[Level], form: Form, working: int, deadline: float = math.inf) -> bool:
    """Make one step of optimizing the pool of the first level. Return whether further steps are left. Changes the
    levels.

    A step starts or ends a subset, or optimizes a working set. A level ends after its last round or after ``deadline``,
    whatever its violation.
    """
    level = levels[-1]
    pool, progress, current = level.pool, level.progress, violation(level.pool)
    if current <= level.tolerance or progress.is_over(deadline):
        return _leave_level(levels, form)
    count = subset_size(pool.size, working)
    if len(levels) == 1 and pool.size > working and (group := group_equal_rows(pool, working)) is not None:
        optimize_groups(pool, form, group, progress, level.tolerance, deadline=deadline)
        return True
    if count <= working:
        optimize_working_set(pool, form, working, progress, level.tolerance, deadline=deadline)
    else:
        progress.begin(choose_subset(pool, count, progress.recent))
        inner = max(0.5 * level.tolerance, INNER_SHARE * current)
        rounds = max_rounds(count, subset_size(count, working))
        levels.append(Level(select_rows(pool, progress.recent), inner, Progress(rounds)))
    return True


def _leave_level(levels: list[Level], form: Form) -> bool:
    """Remove the last level, and update the level above by its result. Return whether there was a level above."""
    if len(levels) == 1:
        return False
    part, above = levels.pop(), levels[-1]
    moved = apply_subset(above.pool, above.progress.recent, part.pool, form)
    above.progress.end(part.progress.moves, moved=moved)
    return True


def apply_subset(pool: Pool, chosen: Int64, part: Pool, form: Form) -> bool:
    """Update x and v of the pool by the result ``part`` of its rows at ``chosen``. Return whether any x changed."""
    change = part.x - pool.x[chosen]
    moved = np.flatnonzero(change)
    update_gradient(pool, form, take_rows(part.X, moved), (part.sign * change)[moved])
    pool.x[chosen], pool.v[chosen] = part.x, part.v
    return len(moved) > 0


def subset_size(size: int, working: int) -> int:
    """Return the number of rows of the level below one of ``size`` rows. The ratio of sizes is the same on all
    levels.
    """
    if size <= working:
        return working
    levels = math.ceil(math.log(size / working) / math.log(LEVEL_RATIO) - 1e-9)
    return int(size * (working / size) ** (1.0 / levels)) if levels > 1 else working


def choose_subset(pool: Pool, count: int, recent: Int64) -> Int64:
    """Return the rows of the next subset: violators, and at most half of it rows of the last subset that are strictly
    between their bounds.
    """
    free = recent[(pool.x[recent] > pool.low[recent]) & (pool.x[recent] < pool.high[recent])]
    free = np.random.default_rng(len(free)).permutation(free)[: count // 2]
    top, bottom = extremes(pool)
    violators = np.flatnonzero(row_violations(pool, estimate_threshold(pool)) > NEGLIGIBLE_SHARE * (top - bottom))
    if len(violators) > SAMPLED_FROM * count:
        drawn = np.random.default_rng(len(violators)).permutation(violators)[: count - len(free) - WORST_ROWS]
        return np.union1d(free, np.union1d(drawn, worst_rows(pool, WORST_ROWS)))
    return np.union1d(free, worst_rows(pool, count - len(free)))


def estimate_threshold(pool: Pool) -> float:
    """Return an estimate of the common value of v at the optimum, which all rows strictly between their bounds have."""
    free = (pool.x > pool.low) & (pool.x < pool.high)
    return float(np.median(pool.v[free])) if free.any() else 0.5 * sum(extremes(pool))


# Working sets


def optimize_working_set(
    pool: Pool,
    form: Form,
    working: int,
    progress: Progress,
    tolerance: float,
    *,
    growing: float = 0.5,
    deadline: float = math.inf,
) -> None:
    """Optimize the next ``working`` coordinates, to half the ``tolerance`` of the pool or to INNER_SHARE of its
    violation. Changes the pool and ``progress``.

    The gradient of the working set afterwards is not that of the pair steps, which accumulates the rounding error of
    each step, but v - M (change of x). Like that of the other rows it has an error of kernel values times
    ``Moves.travel``. The ridge is subtracted separately, since in float32 its rounding error would exceed small kernel
    values.
    """
    progress.begin(choose_working_set(pool, working, progress.recent, growing))
    chosen = progress.recent
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
    progress.end(Moves(steps, float(np.abs(step).sum())), moved=steps > 0)


def choose_working_set(pool: Pool, working: int, recent: Int64, growing: float) -> Int64:
    """Return the coordinates of the next working set: at most half of them from the last working set and strictly
    between their bounds, the others the worst violators.
    """
    if pool.size <= working:
        return np.arange(pool.size)
    free = recent[(pool.x[recent] > pool.low[recent]) & (pool.x[recent] < pool.high[recent])][: working // 2]
    violators = worst_rows(pool, working - len(free), growing)
    return np.union1d(violators, free)


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
    """Subtract z (k(., moved) + constant) weights from v of the pool, without the ridge. Changes v."""
    change = np.full(pool.size, form.constant * weights.sum())
    expand(pool.X, moved, weights, form.kernel, form.columns, change, form.arithmetic)
    pool.v -= pool.sign * change


def recompute_gradient(pool: Pool, form: Form) -> None:
    """Set v = p - Mx. All rows with x not 0 must be in the pool."""
    support = np.flatnonzero(pool.x)
    pool.v[:] = pool.p - pool.ridge * pool.x
    update_gradient(pool, form, take_rows(pool.X, support), (pool.sign * pool.x)[support])


def group_equal_rows(pool: Pool, most: int) -> Int64 | None:
    """Return the group (n,) of each row, rows with equal features and terms of the problem being one group; None if
    grouping is not useful.

    It is useful if there are at most ``most`` groups, and most rows of an evenly spaced sample are copies.
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
    """Return a key of a row that its copies share: its features and its terms of the problem."""
    X = pool.X
    if isinstance(X, CSR):
        entries = slice(X.indptr[row], X.indptr[row + 1])
        features = X.indices[entries].tobytes() + X.data[entries].tobytes()
    else:
        features = X.values[row].tobytes()
    terms = (pool.sign, pool.ridge, pool.low, pool.high, pool.p)
    return b"".join(column[row : row + 1].tobytes() for column in terms) + features


def optimize_groups(
    pool: Pool, form: Form, group: Int64, progress: Progress, tolerance: float, *, deadline: float
) -> None:
    """Optimize all rows at once, each ``group`` of equal rows as one coordinate, their sum. Changes the pool and
    ``progress``.

    Pairs of single rows would move weight between copies, and working sets with some of the copies would undo each
    other.
    """
    _, rows, sizes = np.unique(group, return_index=True, return_counts=True)
    progress.begin(rows)
    total: Float64 = np.bincount(group, pool.x).astype(np.float64)
    pool.v += pool.ridge * (pool.x - (total / sizes)[group])  # from here on equal rows have equal x
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
    progress.end(Moves(steps, float(np.abs(step).sum())), moved=steps > 0)


# Pairs of coordinates, alternating with all free coordinates


class Interval(NamedTuple):
    """Bounds of coordinates, (n,) each; infinite if a coordinate has none."""

    low: Float64
    high: Float64

    def free(self, x: Float64) -> Array:
        """Return the coordinates strictly between their bounds."""
        return np.flatnonzero((x > self.low) & (x < self.high))


def solve_box(M: Array, x: Float64, v: Float64, box: Interval, tolerance: float, *, most: int, deadline: float) -> int:
    """Optimize x in its box until the violation is at most ``tolerance``. Return the number of pair steps.

    M (n, n) is symmetric. ``most``: maximum number of pair steps. ``deadline``: the time of ``time.perf_counter`` after
    which no further turn starts. Changes x and v, (n,), consistently.
    """
    steps, turn = 0, min(PAIRS_PER_TURN, PAIRS_PER_TURN_AND_ROW * len(x))
    while steps < most and not (steps and is_late(deadline)):
        moved = int(smo(M, x, box.low, box.high, v, tolerance, turn))
        steps += moved
        if moved < turn:
            break
        solve_free_coordinates(M, x, v, box)
    return steps


def solve_free_coordinates(M: Array, x: Float64, v: Float64, box: Interval) -> None:
    """Minimize over the free coordinates, fixing each that reaches a bound. Changes x and v like ``solve_box``."""
    for _ in range(MAX_SYSTEMS):
        free = box.free(x)
        if not 2 <= len(free) <= MAX_FREE or _step_to_bound(M, x, v, free, box):
            return


def _step_to_bound(M: Array, x: Float64, v: Float64, free: Array, box: Interval) -> bool:
    """Step along d as far as the box allows. Return whether the full step was possible."""
    d = _free_direction(M[np.ix_(free, free)].astype(np.float64), v[free])
    if not v[free] @ d > 0.0:  # d is rounding error
        return True
    room = np.where(d > 0.0, box.high[free] - x[free], x[free] - box.low[free])
    with np.errstate(divide="ignore"):
        lengths = room / np.abs(d)
    first = int(np.argmin(lengths))
    length = min(1.0, float(lengths[first]))
    at_bound = free[first]
    x[free] = np.clip(x[free] + length * d, box.low[free], box.high[free])
    if length < 1.0:
        x[at_bound] = box.high[at_bound] if d[first] > 0.0 else box.low[at_bound]
    v -= M[:, free] @ (length * d)
    return length == 1.0


def _free_direction(M: Float64, v: Float64) -> Float64:
    """Return the solution d of the system, with the sum 0 up to rounding. Changes M."""
    M[np.diag_indices_from(M)] += RELATIVE_RIDGE * M.diagonal().max()
    to_v, to_one = np.linalg.solve(M, np.column_stack([v, np.ones(len(v))])).T
    d = to_v - to_one * (to_v.sum() / to_one.sum())
    return np.asarray(d - d.mean())
