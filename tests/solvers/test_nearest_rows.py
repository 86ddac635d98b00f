"""The rows nearest to the corner: which ones are kept, how many are held on the way, and how they are handed out."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from streamsvm.compute.passes.newton import keys_pass
from streamsvm.rows import Dense
from streamsvm.solvers.interior_point.nearest_rows import NearestRows
from streamsvm.types import Block

N = 120


def distances() -> Any:
    """How far rows are from the corner; many are alike."""
    return np.round(np.random.default_rng(2).random(N), 1)


def keys_of(distance: Any) -> Any:
    """A distance and a billionth, longer by up to a hundredth by the draw of the row."""
    draw = np.empty(N)
    keys_pass(np.ones(N), 0, 0, draw)
    return (distance + 1e-9) * (1.0 + 0.01 * draw)


def offered(near: NearestRows, pieces: Any, weight: Any = None) -> NearestRows:
    values, distance = np.arange(2.0 * N, dtype=np.float32).reshape(N, 2), distances()
    s = np.ones(N, np.float32) if weight is None else weight
    for start, stop in pieces:
        part, order = slice(start, stop), np.arange(stop - start, dtype=np.int32)
        block = Block(Dense(values[part], 1.0), np.ones(stop - start, np.float32), s[part], 0, start, order, 0)
        near.add(block, distance[part], np.arange(start, stop) + 0.5, -np.arange(start, stop) - 0.25)
    return near


@pytest.mark.parametrize("pieces", [[(0, N)], [(60, N), (0, 10), (10, 60)]], ids=len)
@pytest.mark.parametrize("limit", [1, 40, N - 1, N, 500])
def test_nearest_rows_are_those_of_the_smallest_keys(pieces: Any, limit: int) -> None:
    near = offered(NearestRows(limit), pieces)
    found = near.taken()
    chosen = np.sort(np.argsort(keys_of(distances()))[:limit])
    assert found is not None
    np.testing.assert_array_equal(found.row, chosen)
    np.testing.assert_array_equal(found.X.values[:, 0], 2.0 * chosen)
    np.testing.assert_array_equal(found.f, chosen + 0.5)
    np.testing.assert_array_equal(found.df, -chosen - 0.25)
    np.testing.assert_array_equal(found.key, keys_of(distances())[chosen])
    assert near.parts == []
    expected = np.sort(keys_of(distances()))[limit] if limit < N else np.inf
    assert near.threshold == expected


@pytest.mark.parametrize("cut", [0, 7, 60, N])
def test_nearest_rows_of_two_workers_are_those_of_one(cut: int) -> None:
    one = offered(NearestRows(30), [(0, N)])
    left, right = (offered(NearestRows(30), [part]) for part in ((0, cut), (cut, N)))
    left.merge(right)
    assert left.held == 30
    assert left.threshold == np.sort(keys_of(distances()))[30]
    first, second = one.taken(), left.taken()
    assert first is not None
    assert second is not None
    np.testing.assert_array_equal(first.row, second.row)
