"""Products in memory by several threads are those of one, to the bit."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from streamsvm.compute import threading
from streamsvm.compute.blocks import operators
from streamsvm.compute.blocks.formed_rows import formed
from streamsvm.compute.blocks.operators import TILE, Factored
from streamsvm.rows import Dense
from tests.arrays import csr_of

ROWS = 5 * TILE + 77
RNG = np.random.default_rng(3)
X = RNG.standard_normal((ROWS, 9)).astype(np.float32)
WIDE = RNG.standard_normal((ROWS, operators.PRECISE + 4)).astype(np.float32)
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
    "margins": lambda block, p: operators.margins(block, WEIGHTS[: p + 1]),
    "formed": lambda block, p: formed(pieces(block), ORDER)[0],
}


@pytest.mark.parametrize(
    ("operation", "name"),
    [(operation, name) for operation in OPERATIONS for name in BLOCKS if (operation, name) != ("formed", "sparse")],
)
def test_the_count_of_threads_does_not_show(name: str, operation: str) -> None:
    block = BLOCKS[name]
    columns = operators.shape(block, 9)[1] - 1
    with threading.using(1):
        alone = OPERATIONS[operation](block, columns)
    for threads in (2, 3, 7):
        with threading.using(threads):
            np.testing.assert_array_equal(OPERATIONS[operation](block, columns), alone)


def test_what_is_made_side_by_side_comes_in_order_and_lanes_are_not_shared() -> None:
    held, most = set[int](), 0

    def make(number: int, lane: int) -> int:
        nonlocal most
        assert lane not in held
        held.add(lane)
        most = max(most, len(held))
        held.remove(lane)
        return number * number

    with threading.using(4):
        assert list(threading.in_order(make, 10, 3)) == [number * number for number in range(10)]
    assert 1 <= most <= 3


def test_an_error_of_one_of_them_is_raised() -> None:
    def fail(number: int, _lane: int) -> int:
        if number == 4:
            raise ValueError("number 4")
        return number

    with threading.using(3), pytest.raises(ValueError, match="number 4"):
        list(threading.in_order(fail, 9, 3))


def test_lanes_are_bounded_by_threads_and_by_memory() -> None:
    with threading.using(7):
        assert threading.lanes(1) == 7
        assert threading.lanes(threading.SIDE_BYTES // 2) == 3
        assert threading.lanes(threading.SIDE_BYTES + 1) == 1
