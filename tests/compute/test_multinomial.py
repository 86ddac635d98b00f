"""The level above which the numbers of a row count, against halving an interval that holds it; the numbers of an empty row."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from streamsvm.compute.passes.dcd import lone_optimum
from streamsvm.compute.passes.dcd import simplex_level as level
from streamsvm.losses import Hinge, Huber, SquaredHinge
from tests.axes import each_value


def bisected(holds: Any, below: float, above: float) -> float:
    """The least t for which something holds that holds for all larger ones."""
    for _ in range(200):
        t = 0.5 * (below + above)
        below, above = (below, t) if holds(t) else (t, above)
    return above


@pytest.mark.parametrize("find", [level, level.py_func], ids=["compiled", "python"])
@pytest.mark.parametrize("low", [-5.0, -0.5, 0.2, 4.0])
def test_multinomial_pass_level_is_that_of_bisection(low: float, find: Any) -> None:
    """T = low + g sum max(A_k - t, 0) over the other classes, or higher where that sum would be more than ``most``."""
    rng = np.random.default_rng(0)
    for classes, most, g in itertools.product((2, 3, 7), (0.0, 0.4, 3.0, np.inf), (0.0, 0.3, 2.0)):
        A, own = rng.standard_normal(classes), int(rng.integers(classes))
        others = np.delete(A, own)

        def beyond(t: float, others: Any = others) -> float:
            return float(np.maximum(others - t, 0.0).sum())

        line = bisected(lambda t, beyond=beyond, g=g: t >= low + g * beyond(t), low - 1.0, max(low, others.max()) + 1.0)
        box = bisected(lambda t, beyond=beyond, most=most: beyond(t) <= most, low - 1.0, max(low, others.max()) + 1.0)
        assert find(A, own, low, g, most) == pytest.approx(max(line, box), abs=1e-9)


@each_value(("loss", [Hinge(), Hinge(2.0), SquaredHinge(0.5), SquaredHinge(2.0), Huber(0.25)]), ("own", [0, 1, 2]))
def test_multinomial_pass_empty_row_has_the_numbers_of_the_largest_gain(loss: Any, own: int) -> None:
    """B - conjugate(b) is what its dual is made of, whoever has the -b: what a grid finds, to its width."""
    cost = 0.7
    grid = np.linspace(0.0, min(loss.upper(cost), 10.0), 20_001)
    best = grid[np.argmax([b - loss.conjugate(b, cost) for b in grid])]
    for run in (lone_optimum, lone_optimum.py_func):
        a = np.full(3, 9.0)
        run(a, own, cost, loss)
        assert a[own] == pytest.approx(best, abs=1e-3)
        assert a.sum() == 0.0
        assert np.count_nonzero(a) == 2
