"""Tiles of kernel values: each pair once, as many at a time as memory allows, and no more memory than is foreseen."""

from __future__ import annotations

import tracemalloc
from typing import Any

import numpy as np
import pytest

from streamsvm.compute import threading
from streamsvm.compute.kernel_values import expansion
from streamsvm.compute.kernel_values.expansion import expand, expand_all, gram, scratch_bytes, tiles, worthwhile
from streamsvm.compute.kernel_values.rounding import DIFFERENCES, DOUBLE, SINGLE
from streamsvm.kernels import RBF
from streamsvm.rows import Dense
from tests.arrays import csr_of

RNG = np.random.default_rng(2)
each_arithmetic = pytest.mark.parametrize("arithmetic", [SINGLE, DOUBLE, DIFFERENCES], ids=["single", "double", "far"])


def rows_of(count: int, columns: int, form: str = "dense") -> Any:
    values = RNG.normal(size=(count, columns)).astype(np.float32)
    return Dense(values) if form == "dense" else csr_of(values)


@each_arithmetic
@pytest.mark.parametrize(("columns", "points", "rows"), [(5, 32, 16), (50, 10, 10), (1000, 1, 1)])
def test_a_tile_is_as_large_as_its_bounds_let_it(
    arithmetic: int, columns: int, points: int, rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``points`` and ``rows`` of so many columns are 4000 bytes of float64; float32 has twice as many points, and as many rows as ever."""
    for name, value in {"TILE_ROWS": 16, "TILE_POINTS": 32, "DENSE_BYTES": 4000}.items():
        monkeypatch.setattr(expansion, name, value)
    width, height = (min(32, 2 * points), 16) if arithmetic == SINGLE and columns < 1000 else (points, rows)
    height = 16 if arithmetic == SINGLE else height
    seen, sizes = np.zeros((37, 71), int), set()
    for i, j, tile in tiles(rows_of(37, columns), rows_of(71, columns), RBF(0.1), columns, arithmetic):
        assert tile.shape == seen[i, j].shape
        assert tile.dtype == (np.float32 if arithmetic == SINGLE else np.float64)
        seen[i, j] += 1
        sizes.add(tile.shape)
    assert (seen == 1).all(), "each pair once"
    assert max(sizes) == (height, width)
    assert {a for a, _ in sizes} == {height, 37 % height or height}
    assert {b for _, b in sizes} == {width, 71 % width or width}


@each_arithmetic
@pytest.mark.parametrize("form", ["dense", "sparse"])
@pytest.mark.parametrize("columns", [10, 300])
def test_no_more_memory_is_taken_than_is_foreseen(arithmetic: int, form: str, columns: int) -> None:
    """Of two tiles in a row the first is gone before the second is made; results apart."""
    X, coefficients = rows_of(1100, columns, form), np.ones((2, 1100))
    out = np.zeros(1100)
    operations: list[Any] = [
        lambda: expand(X, X, coefficients[0], RBF(0.1), columns, out, arithmetic),
        lambda: expand_all(X, X, coefficients, RBF(0.1), columns, arithmetic),
        lambda: gram(X, RBF(0.1), columns, arithmetic),
    ]
    with threading.use_threads(1):
        for operation in operations:
            operation()
            tracemalloc.start()
            result = operation()
            peak = tracemalloc.get_traced_memory()[1] - (0 if result is None else result.nbytes)
            tracemalloc.stop()
            assert peak <= scratch_bytes(columns)


@pytest.mark.parametrize("values", [1, 1000, expansion.WORTHWHILE - 1, expansion.WORTHWHILE, expansion.WORTHWHILE + 1])
def test_pieces_are_worth_a_thread_as_soon_as_they_have_values_enough(values: int) -> None:
    pieces = worthwhile(values)
    assert pieces * values >= expansion.WORTHWHILE > (pieces - 1) * values
    assert worthwhile(0) == expansion.WORTHWHILE
