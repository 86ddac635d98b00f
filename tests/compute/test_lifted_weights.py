"""Weights on kernel values are made once for a point, and are never those of another point, projection or constant."""

from __future__ import annotations

import gc
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from streamsvm.compute.blocks import operators
from streamsvm.compute.blocks.operators import WEIGHTS_CACHE_BYTES, lift_weights


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


def test_lifted_weights_little_is_kept_and_large_weights_are_not() -> None:
    projection = np.ones((100, 50), np.float32)

    def kept() -> int:
        for k in range(200):
            lift_weights(projection, 1.0, np.full((1, 51), float(k)))
        large = np.ones((WEIGHTS_CACHE_BYTES // (8 * 51), 51))
        assert lift_weights(projection, 1.0, large) is not lift_weights(projection, 1.0, large)
        return sum(len(key[-1]) + known.weights.nbytes for key, known in operators._WEIGHTS.found.items())

    with ThreadPoolExecutor(1) as pool:  # a thread of its own begins with nothing
        assert 0 <= pool.submit(kept).result() <= WEIGHTS_CACHE_BYTES
