"""Landmarks: reproducible, independent of chunks, fair; leverages against the formula in float64."""

from __future__ import annotations

from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from streamsvm.compute.kernel_values.gram import points_of, symmetric_gram
from streamsvm.features.landmarks import (
    SMALLEST_SCORE,
    Smallest,
    hashes,
    leverage_sampler,
    ridge_for,
    spread_rows,
    uniform_rows,
)
from streamsvm.features.scaling import Raw
from streamsvm.jobs.embed import kernel_map
from streamsvm.jobs.embed.kernel_request import spread_candidates
from streamsvm.kernels import RBF, Polynomial, Sigmoid
from streamsvm.rows import Dense, row_slice
from streamsvm.store.views.memory import MemoryStore
from tests.arrays import csr_of, sparse_values


def test_hashes_depend_on_seed_and_row_alone():
    whole = hashes(7, 0, 1000)
    assert np.array_equal(whole[300:400], hashes(7, 300, 400))
    assert len(np.unique(whole)) == 1000
    assert not np.any(whole == hashes(8, 0, 1000))


def test_uniform_rows_are_distinct_and_rising():
    rows = uniform_rows(3_000_000, 500, 3)
    assert len(rows) == 500
    assert np.all(np.diff(rows) > 0)
    assert rows[-1] < 3_000_000
    assert np.array_equal(rows, uniform_rows(3_000_000, 500, 3))


def test_every_row_if_there_are_not_more():
    assert np.array_equal(uniform_rows(10, 50, 0), np.arange(10))


def test_uniform_rows_are_uniform():
    counts = sum(np.bincount(uniform_rows(20, 5, seed), minlength=20) for seed in range(2000))
    expected = 2000 * 5 / 20
    assert np.sum((counts - expected) ** 2 / expected) < 45  # chi-square, 19 degrees of freedom, p = 0.0007


@pytest.mark.parametrize("cuts", [[0, 100], [0, 1, 7, 50, 99, 100]])
def test_smallest_does_not_depend_on_portions(cuts):
    keys = np.random.default_rng(0).integers(0, 40, 100)  # with ties: the earlier row wins
    best = Smallest(13)
    for start, stop in pairwise(cuts):
        best.offer(keys[start:stop], start)
    assert np.array_equal(best.rows, np.lexsort((np.arange(100), keys))[:13])


def test_leverages_are_those_of_the_formula():
    rng = np.random.default_rng(1)
    X = rng.normal(size=(300, 4)).astype(np.float32)
    points = points_of(X[:50])
    sampler = leverage_sampler(points, RBF(0.3), 20, 0)
    K = symmetric_gram(points_of(X), RBF(0.3))
    ridge = ridge_for(np.linalg.eigvalsh(K[:50, :50]), 12.5)
    expected = 1.0 - np.einsum("ij,jk,ik->i", K[:, :50], np.linalg.inv(K[:50, :50] + ridge * np.eye(50)), K[:, :50])
    np.testing.assert_allclose(sampler.scores(Dense(X)), expected, rtol=2e-3, atol=2e-6)


def test_leverages_of_a_kernel_that_is_not_positive_definite_are_those_of_its_positive_part():
    X = np.random.default_rng(1).normal(size=(80, 3)).astype(np.float32)
    kernel = Sigmoid(gamma=2.0)
    K, of_points = symmetric_gram(points_of(X), kernel), slice(0, 40)
    e, V = np.linalg.eigh(K[of_points, of_points])
    assert e[0] < -1.0
    projected, e = K[:, of_points] @ V[:, e > 0.0], e[e > 0.0]
    explained = (projected**2 / (e + ridge_for(e, 10.0))).sum(axis=1)
    expected = np.maximum(np.diag(K) - explained, SMALLEST_SCORE * np.diag(K))
    sampler = leverage_sampler(points_of(X[of_points]), kernel, 20, 0)
    np.testing.assert_allclose(sampler.scores(Dense(X)), expected, rtol=2e-3, atol=2e-5)


def test_rows_whose_kernel_values_are_beyond_float32_are_drawn_as_any_others():
    X = np.random.default_rng(1).normal(size=(80, 3)).astype(np.float32) * np.float32(1e15)
    sampler = leverage_sampler(points_of(X[:40]), Polynomial(degree=3), 20, 0)
    with np.errstate(all="ignore"):
        sampler.offer(Dense(X), 0)
    assert len(sampler.rows()) == 20


def test_leverages_of_a_kernel_without_any_positive_eigenvalue_are_the_least():
    X = np.random.default_rng(1).normal(size=(80, 3)).astype(np.float32)
    sampler = leverage_sampler(points_of(X[:1]), Sigmoid(gamma=0.1, coef0=-5.0), 20, 0)
    assert (sampler.scores(Dense(X)) == SMALLEST_SCORE**2).all()


def test_ridge_has_the_effective_dimension_asked_for():
    values = np.geomspace(1e-6, 10.0, 100)
    ridge = ridge_for(values, 25.0)
    assert (values / (values + ridge)).sum() == pytest.approx(25.0, rel=1e-6)


@pytest.mark.parametrize("form", [Dense, csr_of])
def test_leverage_rows_do_not_depend_on_blocks(form):
    X = form(sparse_values(np.random.default_rng(2), 500, 6))
    chosen = []
    for cuts in ([0, 500], [0, 3, 200, 500], [200, 500, 0, 200]):
        sampler = leverage_sampler(points_of(sparse_values(np.random.default_rng(3), 40, 6)), RBF(0.2), 30, 5)
        for start, stop in pairwise(cuts):
            if stop > start:
                sampler.offer(row_slice(X, start, stop), start)
        chosen.append(sampler.rows())
    assert len(chosen[0]) == 30
    assert np.array_equal(chosen[0], chosen[1])
    assert np.array_equal(chosen[0], chosen[2])


def test_rare_rows_are_drawn_by_leverage():
    """One row in a hundred lies apart; its leverage is high, and so are its chances."""
    rng = np.random.default_rng(4)
    X = rng.normal(scale=0.05, size=(2000, 3)).astype(np.float32)
    X[::100] += rng.normal(scale=3.0, size=(20, 3)).astype(np.float32)
    sampler = leverage_sampler(points_of(X[uniform_rows(2000, 60, 0)]), RBF(0.5), 60, 0)
    sampler.offer(Dense(X), 0)
    assert np.sum(sampler.rows() % 100 == 0) > 12
    assert np.sum(uniform_rows(2000, 60, 0) % 100 == 0) < 4


def test_rows_far_from_each_other_find_more_clusters():
    """Twenty clusters, the first with nine rows in ten: uniform rows miss most of the others."""
    rng = np.random.default_rng(5)
    cluster = np.where(rng.random(2000) < 0.9, 0, rng.integers(0, 20, 2000))
    X = (rng.normal(scale=5.0, size=(20, 4))[cluster] + rng.normal(scale=0.1, size=(2000, 4))).astype(np.float32)
    found = [len(np.unique(cluster[spread_rows(X, RBF(0.5), 25, seed)])) for seed in range(5)]
    assert min(found) >= 15
    assert max(len(np.unique(cluster[uniform_rows(2000, 25, seed)])) for seed in range(5)) < 8


@pytest.mark.parametrize("count", [1, 31, 32, 33, 100])
def test_rows_far_from_each_other_are_as_many_as_asked_for(count):
    X = np.random.default_rng(6).normal(size=(100, 3)).astype(np.float32)
    rows = spread_rows(X, RBF(1.0), count, 0)
    assert len(rows) == count
    assert np.all(np.diff(rows) > 0)
    assert np.array_equal(rows, spread_rows(X, RBF(1.0), count, 0))


@pytest.mark.parametrize(("landmarks", "first"), [(20, 20), (60, 40)])
def test_leverages_are_estimated_from_a_bounded_sample(landmarks, first, monkeypatch):
    """Whose kernel values a plan counts: as many rows as landmarks are wanted, and no more than FIRST_SAMPLE."""
    store = MemoryStore()
    X = sparse_values(np.random.default_rng(1), 200, 4)
    store.append(Dense(X), (np.arange(200) % 2).astype(np.int32))
    store.commit(("a", "b"), 4)
    monkeypatch.setattr(kernel_map, "FIRST_SAMPLE", 40)
    given = []

    def sampler(points, kernel, wanted, seed):
        given.append(points)
        return leverage_sampler(points, kernel, wanted, seed)

    monkeypatch.setattr(kernel_map, "leverage_sampler", sampler)
    request: Any = SimpleNamespace(landmarks=landmarks, seed=3, inner=Raw(0.0), record=RBF(0.3))
    rows = kernel_map._by_leverage(request, store, 0)
    assert len(rows) == landmarks
    np.testing.assert_array_equal(given[0].columns.T, X[uniform_rows(200, first, 3)])


def test_rows_far_apart_are_drawn_of_a_sample_by_another_seed_than_its_own():
    store = MemoryStore()
    X = sparse_values(np.random.default_rng(2), 400, 4)
    store.append(Dense(X), (np.arange(400) % 2).astype(np.int32))
    store.commit(("a", "b"), 4)
    request: Any = SimpleNamespace(landmarks=12, seed=3, inner=Raw(0.0), record=RBF(0.3))
    first = uniform_rows(400, spread_candidates(12, 400), 3)
    wanted = first[spread_rows(X[first], RBF(0.3), 12, 4)]
    np.testing.assert_array_equal(kernel_map._far_apart(request, store, 0), wanted)


def test_points_take_the_bytes_of_their_columns_and_squares() -> None:
    rows = np.ones((3, 5))
    assert points_of(rows).nbytes == 4 * (3 * 5 + 3)
    assert points_of(rows, np.float64).nbytes == 8 * (3 * 5 + 3)
