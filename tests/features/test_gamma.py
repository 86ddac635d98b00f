"""gamma by rule against the definitions on explicit data."""

from __future__ import annotations

import numpy as np
import pytest

from streamsvm.errors import UsageError
from streamsvm.features.scaling import moments_seen_by_kernel
from streamsvm.kernels import choose_gamma
from streamsvm.types import Statistics


@pytest.fixture
def X():
    return np.random.default_rng(0).normal(2.0, [0.5, 1.0, 3.0], size=(500, 3))


def statistics(X):
    return Statistics(X.mean(0), ((X - X.mean(0)) ** 2).sum(0), X.min(0), X.max(0))


def test_gamma_scale_is_that_of_scikit_learn(X):
    assert choose_gamma("scale", X.mean(0), X.var(0)) == pytest.approx(1.0 / (3 * X.var()))


def test_gamma_mean_distance_is_the_mean_over_all_pairs(X):
    pairs = ((X[:, None] - X[None]) ** 2).sum(-1).mean()
    assert choose_gamma("mean-distance", X.mean(0), X.var(0)) == pytest.approx(1.0 / pairs)


def test_gamma_standardized_columns_are_seen_as_such(X):
    mean, variance = moments_seen_by_kernel(statistics(X), len(X), X.mean(0), 1.0 / X.std(0))
    np.testing.assert_allclose(mean, 0.0, atol=1e-12)
    np.testing.assert_allclose(variance, 1.0)
    assert choose_gamma("mean-distance", mean, variance) == pytest.approx(1.0 / 6.0)


@pytest.mark.parametrize("rule", ["wide", 0.0, -1.0, "-2", "nan", float("inf")])
def test_gamma_refuses_other_rules(rule):
    with pytest.raises(UsageError):
        choose_gamma(rule, np.zeros(2), np.ones(2))


def test_gamma_takes_numbers(X):
    assert choose_gamma(0.25, X.mean(0), X.var(0)) == choose_gamma("0.25", X.mean(0), X.var(0)) == 0.25
