"""Products in memory by several threads are those of one, to the bit."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from math import fsum
from threading import Event
from typing import Any

import numpy as np
import pytest

from streamsvm.compute import threading
from streamsvm.compute.blocks import operators
from streamsvm.compute.blocks.operators import TILE, Factored, form_rows
from streamsvm.rows import Dense
from tests.arrays import csr_of

ROWS = 5 * TILE + 77
RNG = np.random.default_rng(3)
X = RNG.standard_normal((ROWS, 9)).astype(np.float32)
WIDE = RNG.standard_normal((ROWS, operators.MOST_FLOAT64_COMPONENTS + 4)).astype(np.float32)
WEIGHTS = RNG.standard_normal((WIDE.shape[1] + 1, 2))
ORDER = RNG.permutation(ROWS)
BLOCKS: dict[str, Any] = {
    "dense": Dense(X, 1.0),
    "wide": Dense(WIDE, 1.0),
    "sparse": csr_of(X),
    "factored": Factored(X, RNG.standard_normal((9, 5)).astype(np.float32), 1.0),
}


def pieces(block: Any) -> list[Any]:
    """The rows of a dense or a factored block in parts of uneven sizes."""
    edges = [0, 10, TILE + 11, TILE + 12, 4 * TILE, ROWS]
    return [block._replace(**{block._fields[0]: block[0][a:b].copy()}) for a, b in pairwise(edges)]


OPERATIONS: dict[str, Callable[[Any, int], Any]] = {
    "gram": lambda block, p: operators.gram(block, np.abs(X[:, 0]).astype(np.float64), p),
    "adjoint": lambda block, p: operators.adjoint(block, X[:, :2].astype(np.float64), p),
    "margins": lambda block, p: operators.margins(block, WEIGHTS[: p + 1]),
    "formed": lambda block, p: form_rows(pieces(block), ORDER)[0],
}


@pytest.mark.parametrize(
    ("operation", "name"),
    [(operation, name) for operation in OPERATIONS for name in BLOCKS if (operation, name) != ("formed", "sparse")],
)
def test_the_count_of_threads_does_not_show(name: str, operation: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(operators, "PIECE_ENTRIES", 20_000)
    block = BLOCKS[name]
    columns = operators.shape(block, 9)[1] - 1
    with threading.use_threads(1):
        alone = OPERATIONS[operation](block, columns)
    for threads in (2, 3, 7):
        with threading.use_threads(threads):
            np.testing.assert_array_equal(OPERATIONS[operation](block, columns), alone)


@pytest.mark.parametrize("where", ["make", "take"])
def test_threads_error_of_one_of_them_is_raised(where: str) -> None:
    def fail(number: int, _lane: int = 0) -> int:
        if number == 4:
            raise ValueError("number 4")
        return number

    def pass_on(number: int, _lane: int = 0) -> int:
        return number

    make, take = (fail, pass_on) if where == "make" else (pass_on, fail)
    with threading.use_threads(3), pytest.raises(ValueError, match="number 4"):
        threading.in_turn(make, take, 9, 3)


def test_threads_who_waits_for_the_turn_of_one_that_fails_does_not_wait_for_ever() -> None:
    second = Event()

    def make(number: int, _lane: int) -> int:
        if number == 0:
            second.wait(10.0)
            raise ValueError("the first one")
        second.set()
        return number

    taken = list[int]()
    with threading.use_threads(2), pytest.raises(ValueError, match="the first one"):
        threading.in_turn(make, taken.append, 5, 2)
    assert taken == []


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("shape", [(), (3,)])
def test_threads_sum_of_rows_in_pieces_is_that_in_twice_the_precision(
    shape: tuple[int, ...], sparse: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    values, factors = X.copy(), RNG.standard_normal((ROWS, *shape))
    values[:, 0] *= 1e6
    block: Any = csr_of(values) if sparse else Dense(values, 1.0)
    whole = operators.adjoint(block, factors, 9)
    monkeypatch.setattr(operators, "PIECE_ENTRIES", 9 * 1000)
    for threads in (1, 2, 5):
        with threading.use_threads(threads):
            found = operators.adjoint(block, factors, 9)
        np.testing.assert_allclose(found, whole, rtol=1e-15)
    terms = np.hstack([values.astype(np.float64), np.ones((ROWS, 1))])[:, :, None] * factors.reshape(ROWS, 1, -1)
    exact = np.array([[fsum(terms[:, j, k]) for k in range(terms.shape[2])] for j in range(10)]).reshape(10, *shape)
    np.testing.assert_allclose(found[:9], exact[:9], rtol=1e-12)
