"""Landmarks by the labels: the choice is that of orthogonal least squares done plainly, and is worth its price."""

from __future__ import annotations

import numpy as np
import pytest

from streamsvm.compute.kernel_values.kernel_matrix import points_of
from streamsvm.features.landmarks import GreedySelection, choose_pivots, draw_uniform_rows, make_targets
from streamsvm.features.scaling import Raw
from streamsvm.jobs.embed.landmarks import draw_landmarks
from streamsvm.jobs.embed.plan import NystromRequest
from streamsvm.kernels import RBF
from streamsvm.rows import CSR, Dense
from streamsvm.store import create, open_store
from tests.arrays import csr_of


def left(K, T, columns) -> float:
    """The squared distance of T to the span of some columns."""
    basis = K[:, columns]
    return float(np.square(T - basis @ np.linalg.lstsq(basis, T, rcond=None)[0]).sum())


@pytest.mark.parametrize("targets", [1, 3])
def test_greedy_landmarks_each_column_is_the_one_that_leaves_least(targets):
    rng = np.random.default_rng(targets)
    K, T = rng.normal(size=(60, 12)), rng.normal(size=(60, targets))
    taken = choose_pivots(K.T @ K, K.T @ T, 8, first=11).tolist()
    assert taken[0] == 11
    for step in range(1, 8):
        rest = [j for j in range(12) if j not in taken[:step]]
        assert taken[step] == min(rest, key=lambda j: left(K, T, [*taken[:step], j]))


def test_greedy_landmarks_sums_are_those_of_all_rows():
    rng = np.random.default_rng(2)
    X, Z = (rng.normal(size=(n, 3)).astype(np.float32) for n in (500, 20))
    T = make_targets(rng.integers(0, 2, 500), 2)
    chooser = GreedySelection(points_of(Z), RBF(0.4), 1)
    for start in range(0, 500, 130):
        chooser.add(Dense(X[start : start + 130]), T[start : start + 130])
    K = np.exp(-0.4 * np.square(X[:, None] - Z[None]).sum(2, dtype=np.float64))
    K = np.concatenate([K, np.ones((500, 1))], axis=1)
    np.testing.assert_allclose(chooser.gram, K.T @ K, rtol=1e-5)
    np.testing.assert_allclose(chooser.products, K.T @ T, atol=1e-3)


def test_greedy_landmarks_row_of_weight_k_is_as_k_rows_and_one_of_weight_0_as_none():
    rng = np.random.default_rng(3)
    X, Z = (rng.normal(size=(n, 3)).astype(np.float32) for n in (200, 20))
    T, weight = make_targets(rng.integers(0, 2, 200), 2), rng.integers(0, 4, 200)
    weighted, copied = (GreedySelection(points_of(Z), RBF(0.4), 1) for _ in range(2))
    weighted.add(Dense(X), T, weight.astype(np.float32))
    copied.add(Dense(np.repeat(X, weight, axis=0)), np.repeat(T, weight, axis=0))
    np.testing.assert_allclose(weighted.gram, copied.gram, rtol=1e-9)
    np.testing.assert_allclose(weighted.products, copied.products, atol=1e-9)
    assert np.array_equal(weighted.choose(8), copied.choose(8))


ROWS = 4000


def bumps():
    """One class in three small balls: most rows tell nothing about where they are."""
    rng = np.random.default_rng(5)
    X = rng.uniform(-3, 3, size=(ROWS, 4)).astype(np.float32)
    centers = rng.uniform(-2, 2, size=(3, 4))
    near = np.square(X[:, None] - centers).sum(2).min(1) < 2.5
    return X, near.astype(np.int32)


def store_of(path, rows, codes, chunk_bytes):
    writer = create(path, sparse=isinstance(rows, CSR), chunk_bytes=chunk_bytes)
    writer.append(rows, codes, None)
    writer.commit(("out", "in"), 4, {"names": None})
    return open_store(path)


@pytest.mark.parametrize("form", [Dense, csr_of])
def test_the_landmarks_do_not_depend_on_the_chunks_and_explain_the_labels(form, tmp_path):
    X, codes = bumps()
    request = NystromRequest("rbf", RBF(0.5), 20, Raw(0.0), sampling="greedy", seed=3)
    stores = [store_of(tmp_path / f"{size}.zarr", form(X), codes, size) for size in (1 << 20, 3000)]
    drawn = [draw_landmarks(request, store) for store in stores]
    assert np.array_equal(drawn[0].columns, drawn[1].columns)
    T = make_targets(codes, 2)

    def unexplained(Z) -> float:
        K = np.exp(-0.5 * np.square(X[:, None] - Z[None]).sum(2))
        return left(np.concatenate([K, np.ones((ROWS, 1))], axis=1), T, list(range(21)))

    by_chance = min(unexplained(X[draw_uniform_rows(ROWS, 20, seed)]) for seed in range(5))
    assert unexplained(drawn[0].columns.T) < 0.8 * by_chance
