"""Sums of rows in twice the precision: against math.fsum, where a plain sum loses everything."""

from __future__ import annotations

import math

import numpy as np
import pytest

from streamsvm.compute.blocks import operators
from streamsvm.losses import SquaredHinge
from streamsvm.rows import CSR, Dense
from streamsvm.solvers.evaluation import PointSums
from streamsvm.solvers.kinds import OneAgainstRest
from streamsvm.solvers.rounding import UNIT, two_sum_terms
from streamsvm.types import Block, Problem
from tests.arrays import csr_of

ROWS, COLUMNS = 20_000, 3


def cancelling() -> tuple[np.ndarray, np.ndarray]:
    """Values of very different sizes, and factors with which each column sums to nearly nothing."""
    rng = np.random.default_rng(0)
    values = (10.0 ** rng.uniform(-3, 7, (ROWS, COLUMNS))).astype(np.float32)
    a = rng.normal(size=ROWS)
    values[ROWS // 2 :], a[ROWS // 2 :] = (
        values[: ROWS // 2],
        -a[: ROWS // 2] * (1 + 1e-13 * rng.normal(size=ROWS // 2)),
    )
    order = rng.permutation(ROWS)
    return values[order], a[order]


@pytest.mark.parametrize("sparse", [False, True])
def test_a_sum_is_as_good_as_its_products(sparse: bool) -> None:
    values, a = cancelling()
    X: Dense | CSR = csr_of(values, 2.0) if sparse else Dense(values, 2.0)
    found = operators.adjoint(X, a, COLUMNS)
    full = np.hstack([values.astype(np.float64), np.full((ROWS, 1), 2.0)])
    for j in range(COLUMNS + 1):
        terms = [x * c for x, c in zip(full[:, j].tolist(), a.tolist(), strict=True)]
        exact, size = math.fsum(terms), sum(map(abs, terms))
        assert abs(found[j] - exact) <= UNIT * abs(exact) * 2
        assert abs(found[j] - exact) <= two_sum_terms(ROWS) * UNIT * size
    plain = a @ full
    assert np.abs(plain - found)[:COLUMNS].max() > 100 * UNIT * np.abs(found).max()


@pytest.mark.parametrize("workers", [1, 3])
def test_a_pass_sums_so_too_and_so_do_those_who_share_it(workers: int) -> None:
    values, a = cancelling()
    y, ones = np.sign(a).astype(np.float32), np.abs(a).astype(np.float32)
    problem, w = Problem(SquaredHinge(), 1.0, ROWS, COLUMNS, OneAgainstRest(1)), np.zeros(COLUMNS + 1)
    copies = [PointSums(COLUMNS + 1) for _ in range(workers)]
    for k, start in enumerate(range(0, ROWS, 500)):
        rows = slice(start, start + 500)
        block = Block(csr_of(values[rows], 1.0), y[rows], ones[rows], k, start, np.arange(500, dtype=np.int32), 0)
        copies[k % workers].add(problem, problem.loss, block, w)
    for other in copies[1:]:
        copies[0].merge(other)
    found = copies[0].close(problem, w).v
    for j in range(COLUMNS):
        slopes = 2.0 * ones.astype(np.float64) * y
        exact = math.fsum((slopes * values[:, j].astype(np.float64)).tolist())
        assert found[j] == pytest.approx(exact, rel=4 * UNIT)
