"""What a method on the simplex does between two passes: it works in memory on a pool, the support and rows that were offered.

A pool that holds all rows is solved; one that does not is solved to a part of the gap that is left over all of them, and the next
has other rows. What has weight in the end is the support, of which ``keep`` rows at most stay.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Collection
from dataclasses import dataclass, replace
from functools import partial
from typing import Annotated, Any, ClassVar, Self

import numpy as np

from streamsvm.compute.random import draw_lots, smallest_keys
from streamsvm.config.fields import Bounds, Option
from streamsvm.rows import Float64, Int64
from streamsvm.solvers.kernel.pool import MIN_POOL, Pool, join_pools, select_rows, sort_rows
from streamsvm.solvers.kernel.simplex.state import PoolWork, Reached, SimplexState, Target
from streamsvm.solvers.kernel.working_set import recompute_gradient
from streamsvm.types import Problem, Solver

POOL_SHARE = 0.1
"""Where the pool does not hold all rows, it is optimized to this part of the gap found over all of them."""
STALLED_SHARE = 0.99
"""A pass in which rows of the support had to go, and f did not fall to this part of what it was, is the last."""


@dataclass(frozen=True)
class PoolMethod(Solver[Any]):
    """Settings of pools and the work on them; ``improve`` is the method's own."""

    epsilon: Annotated[
        float,
        Option(
            "Also end at this absolute gap on the simplex. 0: only the relative gap counts.", bounds=Bounds(least=0)
        ),
    ] = 0.0
    pool: Annotated[
        int, Option("Rows offered to the method in memory, beside the support.", bounds=Bounds(least=1))
    ] = 65536
    keep: Annotated[
        int,
        Option("Rows of the support at most: those with the least weight go. 0: no bound.", bounds=Bounds(least=0)),
    ] = 0
    share: ClassVar[float] = 1.0
    """Of all rows: a pool of so many is worth its memory."""
    first: ClassVar[float] = np.inf
    """Rows of the first pool; each next may have twice as many, up to ``pool``."""
    fair: ClassVar[float] = np.inf
    """The part of f to which a pool is optimized that does not hold all rows, if that is less than POOL_SHARE says."""
    exact_kernel: ClassVar[bool] = True
    stops_early: ClassVar[bool] = True

    @abstractmethod
    def rounds(self, pool: Pool) -> int:
        """Iterations, or working sets, between two passes at most."""

    @abstractmethod
    def improve(self, state: SimplexState, work: PoolWork) -> Reached | None:
        """Lower f over the rows of the pool by some steps; where it stopped once the gap there is what is allowed.

        Changes ``work``: x and v of the pool are right when it has stopped.
        """

    @abstractmethod
    def scratch(self, rows: int) -> int:
        """Bytes ``improve`` needs for a pool of so many rows."""

    def choose(self, state: SimplexState, index: Int64, v: Float64, count: int) -> Int64:
        """Places of the rows to offer: those with the smallest g; in the first pass, where there is none, any."""
        return smallest_keys(draw_lots(index, 0) if state.support is None else -v, count)

    def sized(self, rows: int, asked: Collection[str]) -> Self:
        """With a pool of the ``share`` of all rows that is worth its memory, unless its size was ``asked`` for."""
        return self if "pool" in asked else replace(self, pool=max(self.pool, int(self.share * rows)))

    def smaller(self, problem: Problem, asked: Collection[str]) -> Self | None:
        """With half the pool, and a support of at most twice the rows that then come in at a time; None at the least."""
        if self.pool < 2 * MIN_POOL:
            return None
        return replace(self, pool=self.pool // 2, keep=min(self.keep or self.pool, 2 * (self.pool // 2)))

    def memory_settings(self) -> dict[str, int | None]:
        """Rows of the pool, and of the support; 0: any number."""
        return {"pool": self.pool, "keep": self.keep}

    def set_deadline(self, state: SimplexState, moment: float) -> None:
        """The method in memory ends with the first step after that moment."""
        state.deadline = moment

    def begin_work(self, state: SimplexState) -> None:
        """Make the pool of the support and of what was offered."""
        fresh = state.candidates.taken(partial(self.choose, state))
        pool = sort_rows(fresh if state.support is None else join_pools([state.support, fresh]))
        if state.support is None:
            self.begin(state, pool)
        state.work = PoolWork(pool, self._target(state, pool), state.f, self.rounds(pool))

    def pending(self, state: SimplexState) -> bool:
        """Whether the method works on a pool."""
        return state.work is not None

    def proceed(self, state: SimplexState) -> None:
        """Let the method take some steps; when it has stopped, keep what has weight."""
        work = state.work
        assert work is not None  # a step is pending
        reached = self.improve(state, work)
        if reached is None:
            return
        (state.seen, state.f), pool = reached, work.pool
        if not work.lightened and 0 < self.keep < np.count_nonzero(pool.x):
            pool = self._lightened(state, pool)
            state.work = PoolWork(pool, work.target, work.before, self.rounds(pool), lightened=True)
            return
        if work.lightened:
            state.stopped = 0.0 < STALLED_SHARE * work.before <= state.f
        state.support, state.work = select_rows(pool, np.flatnonzero(pool.x > 0.0)), None
        state.candidates.capacity = min(2 * state.candidates.capacity, self.pool)
        state.note_gap(pool)
        state.note(state.seen, state.f, state.support.size)

    def _target(self, state: SimplexState, pool: Pool) -> Target:
        relative = 0.0 if self.epsilon > 0.0 else 0.5 * state.problem.tolerance
        if pool.size >= state.problem.rows:
            return Target(self.epsilon, relative)
        return Target(self.epsilon, relative, POOL_SHARE * min(state.gap, 1.0), self.fair)

    def _lightened(self, state: SimplexState, pool: Pool) -> Pool:
        """The ``keep`` rows with the most weight, which sums to 1 again."""
        pool = select_rows(pool, np.sort(smallest_keys(-pool.x, self.keep)))
        pool.x /= pool.x.sum()
        recompute_gradient(pool, state.form)
        return pool

    def begin(self, state: SimplexState, pool: Pool) -> None:
        """The first a: one row drawn at random has all the weight."""
        self.spread(state, pool, np.random.default_rng(pool.size).integers(0, pool.size, 1))

    def spread(self, state: SimplexState, pool: Pool, chosen: Int64) -> None:
        """Equal weight on the chosen rows; v from scratch."""
        pool.x[:] = 0.0
        pool.x[chosen] = 1.0 / len(chosen)
        recompute_gradient(pool, state.form)
