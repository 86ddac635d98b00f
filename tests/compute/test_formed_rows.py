"""Rows of several blocks put together as one matrix of features, against stacking them and taking them in order."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from streamsvm.compute.blocks import operators
from streamsvm.compute.blocks.operators import Factored, UnformedRows, form_rows
from streamsvm.compute.kernel_values.gram import points_of
from streamsvm.kernels import RBF
from streamsvm.rows import Dense, to_matrix
from tests.arrays import csr_of, sparse_values
from tests.axes import each_value

SIZES = [3, 1, 8, 2, 2, 5, 9, 1]
"""Rows of the parts; a tile is made of 8 and more."""
ROWS, D, M = sum(SIZES), 5, 6
RNG = np.random.default_rng(0)
VALUES, LANDMARKS = sparse_values(RNG, ROWS, D), sparse_values(RNG, M, D)
PROJECTION = RNG.normal(size=(M, 4))
ORDERS = {
    "as they are": np.arange(ROWS),
    "backwards": np.arange(ROWS)[::-1].copy(),
    "two neighbors exchanged": np.array([0, 2, 1, *range(3, ROWS)]),
    "every other one first": np.argsort(np.arange(ROWS) % 2, kind="stable"),
    "parts behind one another": np.roll(np.arange(ROWS), 12),
    "shuffled": RNG.permutation(ROWS),
}
"""Which row comes at each place."""


def parts_of(kind: str, dtype: Any) -> tuple[list[Any], Any]:
    """The rows in parts of one kind, and the features (n, r) they stand for."""
    edges = np.cumsum([0, *SIZES])
    pieces = [VALUES[a:b] for a, b in pairwise(edges)]
    if kind in ("dense", "sparse"):
        return [(Dense if kind == "dense" else csr_of)(piece.copy(), 0.5) for piece in pieces], VALUES
    points, W = points_of(LANDMARKS, dtype), PROJECTION.astype(dtype)
    unformed = [UnformedRows(Dense(piece.copy()), points, RBF(0.4), W, 0.5, by_differences=False) for piece in pieces]
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
def test_they_are_the_rows_of_all_parts_in_this_order(
    kind: str, dtype: Any, order: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(operators, "TILE", 8)
    parts, features = parts_of(kind, dtype)
    found = form_rows(parts, ORDERS[order])
    assert found.bias == 0.5
    assert parts == [], "they are used up"
    assert found[0].dtype == dtype
    expected = features[ORDERS[order]]
    np.testing.assert_allclose(
        to_matrix(found, expected.shape[1]), expected, atol=1e-6 if dtype == np.float32 else 1e-14
    )
