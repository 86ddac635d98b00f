"""Landmarks: reproducible, independent of chunks, fair; leverages against the formula in float64."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from streamsvm.compute.kernel_values.kernel_matrix import points_of, symmetric_gram
from streamsvm.features.landmarks import (
    SMALLEST_SCORE,
    SmallestKeys,
    draw_kmeanspp_rows,
    draw_uniform_rows,
    find_ridge,
    make_leverage_sampler,
)
from streamsvm.kernels import RBF, Polynomial, Sigmoid
from streamsvm.rows import Dense, row_slice
from tests.arrays import csr_of, sparse_values


def test_landmarks_uniform_rows_are_distinct_and_rising():
    rows = draw_uniform_rows(3_000_000, 500, 3)
    assert len(rows) == 500
    assert np.all(np.diff(rows) > 0)
    assert rows[-1] < 3_000_000
    assert np.array_equal(rows, draw_uniform_rows(3_000_000, 500, 3))


def test_landmarks_uniform_rows_are_uniform():
    counts = sum(np.bincount(draw_uniform_rows(20, 5, seed), minlength=20) for seed in range(2000))
    expected = 2000 * 5 / 20
    assert np.sum((counts - expected) ** 2 / expected) < 45  # chi-square, 19 degrees of freedom, p = 0.0007


@pytest.mark.parametrize("cuts", [[0, 100], [0, 1, 7, 50, 99, 100]])
def test_landmarks_smallest_does_not_depend_on_portions(cuts):
    keys = np.random.default_rng(0).integers(0, 40, 100)  # with ties: the earlier row wins
    best = SmallestKeys(13)
    for start, stop in pairwise(cuts):
        best.offer(keys[start:stop], start)
    assert np.array_equal(best.rows, np.lexsort((np.arange(100), keys))[:13])


def test_landmarks_leverages_are_those_of_the_formula():
    rng = np.random.default_rng(1)
    X = rng.normal(size=(300, 4)).astype(np.float32)
    points = points_of(X[:50])
    sampler = make_leverage_sampler(points, RBF(0.3), 20, 0)
    K = symmetric_gram(points_of(X), RBF(0.3))
    ridge = find_ridge(np.linalg.eigvalsh(K[:50, :50]), 12.5)
    expected = 1.0 - np.einsum("ij,jk,ik->i", K[:, :50], np.linalg.inv(K[:50, :50] + ridge * np.eye(50)), K[:, :50])
    np.testing.assert_allclose(sampler.scores(Dense(X)), expected, rtol=2e-3, atol=2e-6)


def test_landmarks_leverages_of_a_kernel_that_is_not_positive_definite_are_those_of_its_positive_part():
    X = np.random.default_rng(1).normal(size=(80, 3)).astype(np.float32)
    kernel = Sigmoid(gamma=2.0)
    K, of_points = symmetric_gram(points_of(X), kernel), slice(0, 40)
    e, V = np.linalg.eigh(K[of_points, of_points])
    assert e[0] < -1.0
    projected, e = K[:, of_points] @ V[:, e > 0.0], e[e > 0.0]
    explained = (projected**2 / (e + find_ridge(e, 10.0))).sum(axis=1)
    expected = np.maximum(np.diag(K) - explained, SMALLEST_SCORE * np.diag(K))
    sampler = make_leverage_sampler(points_of(X[of_points]), kernel, 20, 0)
    np.testing.assert_allclose(sampler.scores(Dense(X)), expected, rtol=2e-3, atol=2e-5)


def test_landmarks_rows_whose_kernel_values_are_beyond_float32_are_drawn_as_any_others():
    X = np.random.default_rng(1).normal(size=(80, 3)).astype(np.float32) * np.float32(1e15)
    sampler = make_leverage_sampler(points_of(X[:40]), Polynomial(degree=3), 20, 0)
    with np.errstate(all="ignore"):
        sampler.offer(Dense(X), 0)
    assert len(sampler.rows()) == 20


@pytest.mark.parametrize("form", [Dense, csr_of])
def test_landmarks_leverage_rows_do_not_depend_on_blocks(form):
    X = form(sparse_values(np.random.default_rng(2), 500, 6))
    chosen = []
    for cuts in ([0, 500], [0, 3, 200, 500], [200, 500, 0, 200]):
        sampler = make_leverage_sampler(points_of(sparse_values(np.random.default_rng(3), 40, 6)), RBF(0.2), 30, 5)
        for start, stop in pairwise(cuts):
            if stop > start:
                sampler.offer(row_slice(X, start, stop), start)
        chosen.append(sampler.rows())
    assert len(chosen[0]) == 30
    assert np.array_equal(chosen[0], chosen[1])
    assert np.array_equal(chosen[0], chosen[2])


def test_landmarks_rare_rows_are_drawn_by_leverage():
    """One row in a hundred lies apart; its leverage is high, and so are its chances."""
    rng = np.random.default_rng(4)
    X = rng.normal(scale=0.05, size=(2000, 3)).astype(np.float32)
    X[::100] += rng.normal(scale=3.0, size=(20, 3)).astype(np.float32)
    sampler = make_leverage_sampler(points_of(X[draw_uniform_rows(2000, 60, 0)]), RBF(0.5), 60, 0)
    sampler.offer(Dense(X), 0)
    assert np.sum(sampler.rows() % 100 == 0) > 12
    assert np.sum(draw_uniform_rows(2000, 60, 0) % 100 == 0) < 4


def test_landmarks_rows_far_from_each_other_find_more_clusters():
    """Twenty clusters, the first with nine rows in ten: uniform rows miss most of the others."""
    rng = np.random.default_rng(5)
    cluster = np.where(rng.random(2000) < 0.9, 0, rng.integers(0, 20, 2000))
    X = (rng.normal(scale=5.0, size=(20, 4))[cluster] + rng.normal(scale=0.1, size=(2000, 4))).astype(np.float32)
    found = [len(np.unique(cluster[draw_kmeanspp_rows(X, RBF(0.5), 25, seed)])) for seed in range(5)]
    assert min(found) >= 15
    assert max(len(np.unique(cluster[draw_uniform_rows(2000, 25, seed)])) for seed in range(5)) < 8


@pytest.mark.parametrize("count", [1, 31, 32, 33, 100])
def test_landmarks_rows_far_from_each_other_are_as_many_as_asked_for(count):
    X = np.random.default_rng(6).normal(size=(100, 3)).astype(np.float32)
    rows = draw_kmeanspp_rows(X, RBF(1.0), count, 0)
    assert len(rows) == count
    assert np.all(np.diff(rows) > 0)
    assert np.array_equal(rows, draw_kmeanspp_rows(X, RBF(1.0), count, 0))
