"""Every registered kernel is what it says of itself: bounds, invariance, width, definiteness."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from streamsvm.kernels import KERNELS

SETTINGS: dict[str, list[dict[str, float]]] = {
    "rbf": [{}, {"gamma": 0.1}],
    "polynomial": [{}, {"coef0": 0.0, "degree": 2.0}, {"coef0": -1.0, "degree": 1.0}],
    "sigmoid": [{}, {"gamma": 0.5, "coef0": -1.0}],
    "linear": [{}, {"scale": 2.0}],
}
CASES = [KERNELS[name](**settings) for name in KERNELS for settings in SETTINGS.get(name, [{}])]
each_kernel = pytest.mark.parametrize("kernel", CASES, ids=str)


def gram(kernel: Any, X: Any) -> Any:
    """Every entry by the record's own function."""
    distances = np.abs(X[:, None] - X[None]).sum(2)
    products = distances if kernel.city_block() else X @ X.T
    squares = (X * X).sum(1)
    return np.array(
        [[kernel.similarity(products[i, j], squares[i], squares[j]) for j in range(len(X))] for i in range(len(X))]
    )


def rows(seed: int) -> Any:
    return np.random.default_rng(seed).normal(size=(25, 3))


@each_kernel
def test_kernel_gram_matrix_is_symmetric_and_as_definite_as_it_says(kernel: Any) -> None:
    least = []
    for seed in range(5):
        K = gram(kernel, rows(seed))
        np.testing.assert_allclose(K, K.T, rtol=1e-12)
        least.append(np.linalg.eigvalsh(K)[0] / np.abs(K).max())
    if kernel.positive_semidefinite():
        assert min(least) >= -1e-10


@each_kernel
def test_kernel_shift_of_all_rows_changes_nothing_where_it_says_so(kernel: Any) -> None:
    X = rows(7)
    same = np.allclose(gram(kernel, X), gram(kernel, np.add(X, [1.0, -2.0, 0.5])), rtol=1e-9)
    assert same == kernel.translation_invariant()


@each_kernel
def test_kernel_width_is_the_one_it_is_given(kernel: Any) -> None:
    wider = kernel.with_gamma(0.25)
    if kernel.gamma is None:
        assert wider == kernel
    else:
        assert wider.gamma == 0.25
        assert type(wider) is type(kernel)
        assert not np.allclose(gram(wider, rows(1)), gram(kernel, rows(1)))


@each_kernel
def test_kernel_record_is_one_the_compiler_takes(kernel: Any) -> None:
    assert len(kernel) > 0
    assert all(type(value) is float for value in kernel)
