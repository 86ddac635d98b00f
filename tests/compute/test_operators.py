"""The operators on blocks of rows against explicit matrices in float64, sums in twice the precision, and rows of several blocks as one matrix."""

from __future__ import annotations

import gc
import math
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from streamsvm.compute.blocks import operators
from streamsvm.compute.blocks.operators import Factored, LazyRows, form_rows, lift_weights
from streamsvm.compute.kernel_values.kernel_matrix import points_of
from streamsvm.kernels import RBF
from streamsvm.losses import SquaredHinge
from streamsvm.rows import CSR, Dense, to_matrix
from streamsvm.solvers.evaluation import PointSums
from streamsvm.solvers.linear_rounding import UNIT, two_sum_terms
from streamsvm.solvers.problem_kinds import OneAgainstRest
from streamsvm.types import Block, Problem
from tests.arrays import csr_of, sparse_values
from tests.axes import each_value

D = 9
ROWS = operators.TILE + 100


def case(kind: str) -> tuple[Any, Any]:
    """A block, and the matrix with the constant feature as its last column that it stands for."""
    rng = np.random.default_rng(1)
    values = sparse_values(rng, ROWS, D)
    if kind == "factored":
        K, W = rng.random((ROWS, 14)).astype(np.float32), rng.normal(size=(14, D)).astype(np.float32)
        block: Any = Factored(K, W, 0.5)
        values = K.astype(np.float64) @ W
    else:
        block = Dense(values, 0.5) if kind == "dense" else csr_of(values, 0.5)
    return block, np.column_stack([values, np.full(ROWS, 0.5)]).astype(np.float64)


@pytest.fixture(params=["dense", "csr", "factored"])
def pair(request: pytest.FixtureRequest) -> tuple[Any, Any]:
    return case(request.param)


@pytest.mark.parametrize("q", [None, 1, 3])
def test_operators_margins(pair: Any, q: int | None) -> None:
    X, M = pair
    w = np.random.default_rng(2).normal(size=D + 1 if q is None else (D + 1, q))
    found = operators.margins(X, w)
    assert found.dtype == np.float64
    np.testing.assert_allclose(found, M @ w, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("q", [None, 1, 3])
def test_operators_adjoint(pair: Any, q: int | None) -> None:
    X, M = pair
    a = np.random.default_rng(3).normal(size=ROWS if q is None else (ROWS, q))
    found = operators.adjoint(X, a, D)
    assert found.dtype == np.float64
    np.testing.assert_allclose(found, M.T @ a, rtol=1e-9, atol=1e-9)


@each_value(("share", [0.0, 0.01, 1.0]), ("dtype", [np.float32, np.float64]))
def test_operators_gram(pair: Any, share: float, dtype: Any) -> None:
    X, M = pair
    rng = np.random.default_rng(4)
    a = (rng.random(ROWS) * (rng.random(ROWS) < share)).astype(dtype)
    found = operators.gram(X, a, D)
    assert found.dtype == np.float64
    np.testing.assert_array_equal(found, found.T)
    expected = M.T @ (a[:, None] * M)
    np.testing.assert_allclose(found, expected, atol=1e-5 * max(1.0, np.abs(expected).max()))


# -- sums in twice the precision -----------------------------------------------------------------------------------------


MANY, FEW = 20_000, 3


def cancelling() -> tuple[np.ndarray, np.ndarray]:
    """Values of very different sizes, and factors with which each column sums to nearly nothing."""
    rng = np.random.default_rng(0)
    values = (10.0 ** rng.uniform(-3, 7, (MANY, FEW))).astype(np.float32)
    a = rng.normal(size=MANY)
    values[MANY // 2 :], a[MANY // 2 :] = (
        values[: MANY // 2],
        -a[: MANY // 2] * (1 + 1e-13 * rng.normal(size=MANY // 2)),
    )
    order = rng.permutation(MANY)
    return values[order], a[order]


@pytest.mark.parametrize("sparse", [False, True])
def test_operators_sum_is_as_good_as_its_products(sparse: bool) -> None:
    values, a = cancelling()
    X: Dense | CSR = csr_of(values, 2.0) if sparse else Dense(values, 2.0)
    found = operators.adjoint(X, a, FEW)
    full = np.hstack([values.astype(np.float64), np.full((MANY, 1), 2.0)])
    for j in range(FEW + 1):
        terms = [x * c for x, c in zip(full[:, j].tolist(), a.tolist(), strict=True)]
        exact, size = math.fsum(terms), sum(map(abs, terms))
        assert abs(found[j] - exact) <= UNIT * abs(exact) * 2
        assert abs(found[j] - exact) <= two_sum_terms(MANY) * UNIT * size
    plain = a @ full
    assert np.abs(plain - found)[:FEW].max() > 100 * UNIT * np.abs(found).max()


@pytest.mark.parametrize("workers", [1, 3])
def test_operators_pass_shared_by_workers_sums_in_twice_the_precision(workers: int) -> None:
    values, a = cancelling()
    y, ones = np.sign(a).astype(np.float32), np.abs(a).astype(np.float32)
    problem, w = Problem(SquaredHinge(), 1.0, MANY, FEW, OneAgainstRest(1)), np.zeros(FEW + 1)
    copies = [PointSums(FEW + 1) for _ in range(workers)]
    for k, start in enumerate(range(0, MANY, 500)):
        rows = slice(start, start + 500)
        block = Block(csr_of(values[rows], 1.0), y[rows], ones[rows], k, start, np.arange(500, dtype=np.int32), 0)
        copies[k % workers].add(problem, problem.loss, block, w)
    for other in copies[1:]:
        copies[0].merge(other)
    found = copies[0].close(problem, w).v
    for j in range(FEW):
        slopes = 2.0 * ones.astype(np.float64) * y
        exact = math.fsum((slopes * values[:, j].astype(np.float64)).tolist())
        assert found[j] == pytest.approx(exact, rel=4 * UNIT)


# -- rows of several blocks as one matrix --------------------------------------------------------------------------------


SIZES = [3, 1, 8, 2, 2, 5, 9, 1]
"""Rows of the parts; a tile is made of 8 and more."""
FORMED, WIDTH, M = sum(SIZES), 5, 6
RNG = np.random.default_rng(0)
VALUES, LANDMARKS = sparse_values(RNG, FORMED, WIDTH), sparse_values(RNG, M, WIDTH)
PROJECTION = RNG.normal(size=(M, 4))
ORDERS = {
    "as they are": np.arange(FORMED),
    "backwards": np.arange(FORMED)[::-1].copy(),
    "two neighbors exchanged": np.array([0, 2, 1, *range(3, FORMED)]),
    "every other one first": np.argsort(np.arange(FORMED) % 2, kind="stable"),
    "parts behind one another": np.roll(np.arange(FORMED), 12),
    "shuffled": RNG.permutation(FORMED),
}
"""Which row comes at each place."""


def parts_of(kind: str, dtype: Any) -> tuple[list[Any], Any]:
    """The rows in parts of one kind, and the features (n, r) they stand for."""
    edges = np.cumsum([0, *SIZES])
    pieces = [VALUES[a:b] for a, b in pairwise(edges)]
    if kind in ("dense", "sparse"):
        return [(Dense if kind == "dense" else csr_of)(piece.copy(), 0.5) for piece in pieces], VALUES
    points, W = points_of(LANDMARKS, dtype), PROJECTION.astype(dtype)
    unformed = [LazyRows(Dense(piece.copy()), points, RBF(0.4), W, 0.5, by_differences=False) for piece in pieces]
    distances = np.square(VALUES[:, None].astype(np.float64) - LANDMARKS[None]).sum(2)
    features = np.exp(-0.4 * distances) @ PROJECTION
    return unformed if kind == "unformed" else [Factored(part.kernel_values(), W, 0.5) for part in unformed], features


@each_value(
    ("order", ORDERS),
    (
        "kind, dtype",
        [
            ("dense", np.float32),
            ("sparse", np.float32),
            ("factored", np.float32),
            ("factored", np.float64),
            ("unformed", np.float32),
            ("unformed", np.float64),
        ],
    ),
)
def test_form_rows_has_the_rows_of_all_parts_in_this_order(
    kind: str, dtype: Any, order: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(operators, "TILE", 8)
    parts, features = parts_of(kind, dtype)
    found: Any = form_rows(parts, ORDERS[order])
    assert found.bias == 0.5
    assert parts == [], "they are used up"
    assert found[0].dtype == dtype
    expected = features[ORDERS[order]]
    np.testing.assert_allclose(
        to_matrix(found, expected.shape[1]), expected, atol=1e-6 if dtype == np.float32 else 1e-14
    )


# -- weights on kernel values --------------------------------------------------------------------------------------------


def explicit(projection: np.ndarray, bias: float, W: np.ndarray) -> np.ndarray:
    return np.column_stack([W[:, :-1] @ projection.T.astype(np.float64), bias * W[:, -1]])


def test_lifted_weights_same_point_is_made_once_and_others_are_made_anew() -> None:
    rng = np.random.default_rng(0)
    one, other = (rng.normal(size=(14, 9)).astype(np.float32) for _ in range(2))
    W = rng.normal(size=(2, 10))
    first = lift_weights(one, 0.5, W)
    assert lift_weights(one, 0.5, W.copy()) is first
    for projection, bias, at in (
        (one, 0.5, W),
        (other, 0.5, W),
        (one, 0.25, W),
        (one, 0.5, W[:1]),
        (one, 0.5, W + 1.0),
    ):
        np.testing.assert_allclose(
            lift_weights(projection, bias, at), explicit(projection, bias, at), rtol=1e-12, atol=1e-12
        )


def test_lifted_weights_projection_that_came_to_lie_where_another_was_is_not_taken_for_it() -> None:
    rng, W = np.random.default_rng(1), np.ones((1, 10))
    seen = set()
    for _ in range(20):  # one after the other is freed, and the next often has its address
        projection = rng.normal(size=(14, 9)).astype(np.float32)
        seen.add(id(projection))
        np.testing.assert_allclose(
            lift_weights(projection, 1.0, W), explicit(projection, 1.0, W), rtol=1e-12, atol=1e-12
        )
        del projection
        gc.collect()
    assert len(seen) < 20, "no address came twice: nothing was tried"
