"""Pairs of coordinates by turns with all that are free: what they keep, where they end, and what pairs alone do not reach."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamsvm.compute.passes.smo import smo
from streamsvm.solvers.kernel.working_set import Interval, solve_box, solve_free_coordinates


def circle(count: int, C: float) -> tuple[Any, Any, Interval]:
    """A smooth kernel's Gram matrix, the linear term, and the box of labels of which one in ten is wrong."""
    rng = np.random.default_rng(1)
    X = rng.uniform(-1.0, 1.0, (count, 2))
    y = np.where((np.square(X).sum(1) < 0.6) ^ (rng.random(count) < 0.1), 1.0, -1.0)
    M = np.exp(-0.5 * np.square(X[:, None] - X[None]).sum(2))
    return M, y, Interval(np.where(y > 0, 0.0, -C), np.where(y > 0, C, 0.0))


def objective(M: Any, p: Any, x: Any) -> float:
    return float(0.5 * x @ M @ x - p @ x)


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 10_000), n=st.integers(2, 25), rank=st.integers(1, 25))
def test_box_problem_descends_and_stays_in_the_box(seed: int, n: int, rank: int) -> None:
    rng = np.random.default_rng(seed)
    A, p = rng.normal(size=(n, min(rank, n))), rng.normal(size=n)
    M, box = A @ A.T, Interval(np.zeros(n), rng.choice([0.5, 2.0, 100.0], n))
    x = rng.choice([0.0, 0.25, 0.5], n)
    v = p - M @ x
    before, total = objective(M, p, x), x.sum()
    solve_free_coordinates(M, x, v, box)
    assert objective(M, p, x) <= before + 1e-12 * (1 + abs(before))
    assert ((x >= box.low) & (x <= box.high)).all()
    # each of at most 50 systems is off by roundings of its solution, which the box bounds
    assert x.sum() == pytest.approx(total, abs=1e-9 * box.high.sum())
    np.testing.assert_allclose(v, p - M @ x, atol=1e-9 * (1 + np.abs(M).sum(1).max()))


def test_box_problem_ends_at_the_optimum_of_free_coordinates() -> None:
    M, p, box = circle(60, 1e3)
    x, v = np.zeros(60), p.copy()
    smo(M, x, box.low, box.high, v, 1e-3, 600)
    solve_free_coordinates(M, x, v, box)
    free = box.free(x)
    assert len(free) > 3
    assert np.ptp(v[free]) < 1e-9 * np.abs(v).max()


def test_box_problem_reaches_what_pairs_alone_do_not() -> None:
    M, p, box = circle(150, 1e6)
    alone, v = np.zeros(150), p.copy()
    assert smo(M, alone, box.low, box.high, v, 1e-6, 200_000) == 200_000
    together, v = np.zeros(150), p.copy()
    assert solve_box(M, together, v, box, 1e-6, most=200_000, deadline=math.inf) < 200_000
    grow, shrink = v[together < box.high].max(), v[together > box.low].min()
    assert grow - shrink <= 1e-6
    assert objective(M, p, together) < objective(M, p, alone)
