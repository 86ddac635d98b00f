"""What a run on the simplex carries from pass to pass, and what the method in memory is told and says."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

import numpy as np

from streamsvm.losses import threshold
from streamsvm.rows import Float64, Int64, Reach
from streamsvm.solvers.kernel.pool import Form, Pool, join_pools, select_rows
from streamsvm.solvers.kernel.rounding import error_of_values, join_reaches
from streamsvm.solvers.kernel.working_set import is_late
from streamsvm.tags import saved_as
from streamsvm.types import Problem

Choose = Callable[[Int64, Float64, int], Int64]
"""Places of so many rows, by their global numbers and v."""


@saved_as("kernel.candidates")
@dataclass(slots=True)
class Candidates:
    """``capacity``: rows that are taken in the end."""

    capacity: int
    """Rows that are taken in the end; each pass may double it, up to the pool's size."""
    parts: list[Pool] = field(default_factory=list)
    """The rows put forward so far, with their v = -g, a part for each block until there are too many."""

    @property
    def size(self) -> int:
        """Rows put forward so far, in all parts."""
        return sum(part.size for part in self.parts)

    def add(self, rows: Pool, among: Int64, choose: Choose) -> None:
        """Offer the rows of a block whose places are ``among``, or those that are chosen from them."""
        if len(among) > self.capacity:
            among = np.sort(among[choose(rows.index[among], rows.v[among], self.capacity)])
        self.parts.append(select_rows(rows, among))
        self.shorten(choose)

    def shorten(self, choose: Choose) -> None:
        """Leave as many rows as are taken in the end, where there are more than twice as many."""
        if self.size > 2 * self.capacity:
            self.taken(choose)

    def taken(self, choose: Choose) -> Pool:
        """What is taken of all that was offered; the rest is forgotten."""
        every = join_pools(self.parts)
        if every.size > self.capacity:
            every = select_rows(every, np.sort(choose(every.index, every.v, self.capacity)))
        self.parts = [every]
        return every


STALLED, STALLED_POOLS = 0.9, 12
"""The method leads nowhere where the gap is still this share of what it was so many pools ago."""
TRAJECTORY_RATIO = 1.1
"""The trajectory is noted whenever the iterations have grown by this factor."""


class Method(Protocol):
    """A method under way: iterations made, f, rows with weight."""

    count: int
    """Iterations made since the run began."""
    f: float
    """1/2 a'Ka at its weights."""

    @property
    def support(self) -> int:
        """Rows with weight."""
        ...


@saved_as("simplex.reached")
class Reached(NamedTuple):
    """Where a method stopped, as it saw things itself: from the rows in memory, or those drawn."""

    gap: float
    """2 f - min g over those rows."""
    f: float
    """1/2 a'Ka."""


@saved_as("simplex.target")
class Target(NamedTuple):
    """When a method in memory may stop: at a gap of ``epsilon``, of ``relative`` f, or of both ``most`` and ``fair`` f."""

    epsilon: float
    """A gap that will do whatever f is; 0: none will."""
    relative: float
    """A gap of this share of f will do."""
    most: float = 0.0
    """For a pool of some of the rows: a gap that will do if it is also at most ``fair`` f."""
    fair: float = 0.0
    """The share of f that ``most`` may not exceed."""

    def allowed(self, f: float) -> float:
        """The gap that is small enough at f."""
        return max(self.epsilon, self.relative * f, min(self.most, self.fair * f))


@saved_as("simplex.work")
@dataclass(slots=True)
class PoolWork:
    """A pool that a method is working on between two passes."""

    pool: Pool
    """The rows of the support and those that have come in, in order."""
    target: Target
    """When the method may stop."""
    before: float
    """f when the pool was made."""
    left: int
    """Iterations, or working sets, that may still be made."""
    lightened: bool = False
    """Whether rows have had to go, and the method works on those that were left."""
    method: Any = None
    """What the method knows, a dataclass of its own; None before its first step."""


@saved_as("simplex.state")
@dataclass(slots=True)
class SimplexState:
    """``support``: rows with a_i > 0, in order, v = -g; the sums are those of the pass under way."""

    problem: Problem
    """What is solved: loss, C, kernel, the number of rows and columns."""
    form: Form
    """The matrix of the problem and the arithmetic of kernel values, which a later pass may make float64."""
    candidates: Candidates
    """Rows outside the support that are put forward for the next pool."""
    support: Pool | None = None
    """The rows with a_i > 0, by number; x = a, v = -g as the last pass found it. None: nothing is known yet."""
    square: float = 0.0
    """a'(K - ridge)a = ||sum a_i y_i phi_i||^2."""
    ridge: float = 0.0
    """sum ridge_i a_i^2 over the rows met, so that 2 f is this and ``square`` together."""
    f: float = 0.0
    """1/2 a'Ka, as the last pass measured it or the method has since left it."""
    lowest: float = np.inf
    """The smallest g of the rows met in the pass that may have weight."""
    losses: Float64 = field(default_factory=lambda: np.zeros(1))
    """(1,) sum C s_i l(m_i) of the model t a, or of the reduced one, over the rows met."""
    gap: float = np.inf
    """2 f - min g over all rows, as of the last pass; inf before the first."""
    seen: float = np.inf
    """The gap at which the method in memory stopped; ``gap`` is that over all rows."""
    shared_values: Float64 | None = None
    """What the support says of the rows that are visited next, without the constant, if it is known already."""
    certifying: bool = False
    """Whether the pass only evaluates: no rows are put forward."""
    deadline: float = math.inf
    """When the work in memory is to end."""
    passes: int = 0
    """Passes that were closed."""
    iterations: int = 0
    """Iterations of the method in memory since the run began."""
    reduced: Pool | None = None
    """The reduced model, when it is the one whose primal is summed; x its coefficients."""
    reduced_square: float = 0.0
    """The squared norm of the reduced model, as far as the pass has summed it."""
    stopped: bool = False
    """The method in memory has met a criterion of its own; the next pass says what is true."""
    began: float = field(default_factory=time.perf_counter)
    """When the trajectory's clock began, in seconds of ``time.perf_counter``."""
    trajectory: list[list[float]] = field(default_factory=list)
    """Per entry: iterations, gap as the method sees it, f, support, seconds, passes."""
    due: float = 0.0
    """Iterations at which the next entry is made."""
    reach: Reach | None = None
    """Of the rows met so far."""
    absolute: float = 0.0
    """sum |a_i f_i|."""
    upper_losses: Float64 = field(default_factory=lambda: np.zeros(1))
    """The losses at margins that are less by what they can be off."""
    error: float = 0.0
    """By how much decision values can be off, those of the model (t f)."""
    scale: float | None = None
    """The t of the last certificate, which is that of the model; None: there was none."""
    pace: float = 0.0
    """Seconds that a kernel value and what is done with it take, as it was timed; looked at where there is a deadline."""
    gaps: list[float] = field(default_factory=list)
    """The gap at which the method stopped in each pool of all rows, as a share of f."""
    work: PoolWork | None = None
    """What is done in memory before the next pass; None: nothing, or nothing any more."""

    def time_is_up(self, a: Float64) -> bool:
        """Whether the pass that certifies has to begin now, which evaluates the kernel between all rows and those with weight.

        These are counted only where there is a deadline: that takes a quarter of a step toward a vertex.
        """
        if self.deadline == math.inf:
            return False
        return is_late(self.deadline - self.pace * self.problem.rows * int(np.count_nonzero(a)))

    def note_gap(self, pool: Pool) -> None:
        """Note what was reached in a pool of all rows; the run ends where all of them lead nowhere, though there is time."""
        if pool.size < self.problem.rows or self.time_is_up(pool.x):
            return
        self.gaps.append(self.seen / self.f if self.f > 0.0 else 0.0)
        earlier = self.gaps[-1 - STALLED_POOLS] if len(self.gaps) > STALLED_POOLS else np.inf
        self.stopped = self.stopped or self.gaps[-1] > STALLED * earlier

    def record_progress(self, iterations: Method, gap: float) -> None:
        """Note where a method is, if it is time to."""
        if iterations.count >= self.due:
            self.iterations, self.due = iterations.count, max(iterations.count * TRAJECTORY_RATIO, iterations.count + 1)
            self.note(gap, iterations.f, iterations.support)

    def note(self, gap: float, f: float, support: int) -> None:
        """Add an entry to the trajectory: the gap as the method sees it, f, rows with weight."""
        self.trajectory.append([self.iterations, gap, f, support, time.perf_counter() - self.began, self.passes])

    def close(self) -> None:
        """Forget the sums of a pass and the rows put forward in it."""
        self.certifying = False
        self.clear_sums()

    def clear_sums(self) -> None:
        """Begin to sum up."""
        self.candidates.parts = []
        self.square = self.ridge = self.reduced_square = self.losses[0] = 0.0
        self.lowest, self.absolute, self.upper_losses[0], self.error = np.inf, 0.0, 0.0, 0.0

    def join(self, other: SimplexState) -> None:
        """Add what another worker found on other rows, at the same a."""
        self.candidates.parts += other.candidates.parts
        self.square += other.square
        self.ridge += other.ridge
        self.reduced_square += other.reduced_square
        self.losses += other.losses
        self.lowest = min(self.lowest, other.lowest)
        self.absolute += other.absolute
        self.upper_losses += other.upper_losses
        self.error = max(self.error, other.error)
        self.reach = join_reaches(self.reach, other.reach)
        if self.support is not None and other.support is not None:
            self.support.v[:] = np.maximum(self.support.v, other.support.v)

    def dual_scale(self) -> float:
        """Return the t = k / (2 f) at which the dual of t a is largest; 0 where there is no a yet."""
        return 0.5 * threshold(self.problem.loss) / self.f if self.f > 0.0 else 0.0

    def value_error(self) -> float:
        """By how much the decision values of the model can be off, in the arithmetic of the pass."""
        points = self.reduced or self.support
        if points is None:
            return 0.0
        weight = float(np.abs(points.x).sum()) * (1.0 if self.reduced else self.dual_scale())
        return error_of_values(self.form, self.reach, points.size, weight)
