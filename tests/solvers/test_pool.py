"""What is known of the rows of a pool, by numbers: which may move, what they ask for, which are solved next, and both bounds."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from streamsvm.kernels import RBF
from streamsvm.losses import Hinge
from streamsvm.rows import Dense
from streamsvm.solvers.kernel.decomposition.closing import _bounds
from streamsvm.solvers.kernel.decomposition.multilevel import WORST_ROWS, subset, threshold
from streamsvm.solvers.kernel.pool import Pool, depth, extremes, violation, worst
from tests.solvers.problems import problem_of


def pool_of(x: list[float], v: list[float]) -> Pool:
    """Rows with coordinates between 0 and 1 and these negative gradients."""
    n, zero = len(x), np.zeros(len(x))
    features = Dense(np.zeros((n, 1), dtype=np.float32))
    return Pool(features, np.arange(n), zero + 1.0, zero, zero, zero + 1.0, zero, np.array(x), np.array(v))


def test_rows_at_a_bound_move_one_way() -> None:
    pool = pool_of([0.0, 1.0, 0.5, 0.5], [-5.0, 7.0, 2.0, 1.0])
    assert extremes(pool) == (2.0, 1.0)
    assert violation(pool) == 1.0
    assert depth(pool, 3.0).tolist() == [-8.0, -4.0, 1.0, 2.0]


def test_the_threshold_is_that_of_rows_between_their_bounds() -> None:
    assert threshold(pool_of([0.0, 1.0, 0.5, 0.5, 0.25], [4.0, -6.0, 2.0, 1.0, 9.0])) == 2.0
    assert threshold(pool_of([0.0, 1.0], [4.0, -6.0])) == -1.0


def test_the_worst_rows_are_those_that_ask_for_most() -> None:
    pool = pool_of([0.0, 0.0, 0.0, 1.0, 1.0, 1.0], [3.0, 9.0, 5.0, -3.0, -9.0, 40.0])
    assert worst(pool, 2).tolist() == [1, 4]
    assert worst(pool, 4).tolist() == [1, 2, 3, 4]
    assert worst(pool, 4, growing=0.25).size == 4
    assert worst(pool, 6).tolist() == [0, 1, 2, 3, 4, 5]


@pytest.mark.parametrize(("rows", "count"), [(30, 12), (400, 40)])
def test_as_many_rows_are_solved_next_as_there_is_room_for(rows: int, count: int) -> None:
    """Half at most of those solved last, and the worst always; of very many violators most are drawn."""
    x = [0.5] * (rows // 3) + [0.0] * (rows - rows // 3)
    v = [0.0] * (rows // 3) + [float(k) for k in range(rows - rows // 3)]
    pool, recent = pool_of(x, v), np.arange(rows // 3)
    found = subset(pool, count, recent)
    assert count - WORST_ROWS // 2 <= len(found) <= count
    assert set(found) >= set(range(rows - min(count // 4, WORST_ROWS // 2), rows))
    assert count // 2 - WORST_ROWS // 2 <= np.isin(found, recent).sum() <= count // 2 + WORST_ROWS // 2
    assert len(subset(pool, count, np.arange(rows - 5, rows))) <= count  # none of these is between its bounds


@pytest.mark.parametrize(
    ("best", "violation", "reach"),
    [(0, 0.5, 8.0), (1, 0.5, 0.5), (64, 0.5, 0.5), (127, 0.5, 0.5), (128, 0.5, 8.0), (128, 9.0, 9.0), (64, 0.0, 1e-6)],
)
def test_the_next_intercepts_are_about_the_best_and_further_apart_where_it_is_at_an_end(
    best: int, violation: float, reach: float
) -> None:
    """There are 129; P is that of the best, and D needs none. As far apart as rows violate, or a millionth where none does."""
    tried, losses = np.linspace(-2.0, 2.0, 129), np.full(129, 19.0)
    losses[best] = 3.0
    state: Any = SimpleNamespace(
        losses=losses, mass=2.0, shifts=lambda: tried, violation=violation, reduced=None, square=8.0, dual=5.0,
        problem=replace(problem_of(Hinge()), kernel=RBF(1.0)), weight=1.0, rounding=lambda _: 0.25, reach=2.0, support_size=6,
    )  # fmt: skip
    found = _bounds(state)
    least = min(3.0 + 2.0 * tried[best], float((losses + 2.0 * tried).min()))
    assert (found.primal, found.dual, found.rounding) == (4.0 + least, 1.0, 0.25)
    assert found.facts == {"violation": violation, "support": 6, "points": None}
    chosen = int(np.argmin(losses + 2.0 * tried))
    assert chosen == best
    assert (state.intercept, state.reach) == (tried[best], pytest.approx(reach))
