"""Squared distances in integers: they are exact, with and without the instruction, and so are kernel machines of pixels."""

from __future__ import annotations

import numpy as np
import pytest

from streamsvm.compute.kernel_values import whole_numbers
from streamsvm.compute.kernel_values.arithmetic import WHOLE_DOUBLE, WHOLE_SINGLE, error_of
from streamsvm.compute.kernel_values.kernel_products import gram
from streamsvm.compute.kernel_values.whole_numbers import exact_half_squares, is_exact_faster, pack_points
from streamsvm.kernels import RBF
from streamsvm.rows import Dense, Reach
from streamsvm.sklearn import StreamSVC

WAYS = [False, *([True] if whole_numbers.HAS_INSTRUCTION else [])]


def draw(rows: int, columns: int, most: int = 256) -> np.ndarray:
    return np.random.default_rng(rows).integers(0, most, (rows, columns)).astype(np.float32)


@pytest.mark.parametrize("by_instruction", WAYS)
@pytest.mark.parametrize(("n", "m", "columns"), [(1, 1, 1), (9, 33, 7), (20, 64, 1030)])
def test_whole_numbers_half_squares_are_exact(
    n: int, m: int, columns: int, by_instruction: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(whole_numbers, "HAS_INSTRUCTION", by_instruction)
    X, Z = draw(n, columns), draw(m + 100, columns)[:m]
    X[0], Z[0] = 255.0, 0.0  # the largest distance
    exact = np.square(X[:, None].astype(np.int64) - Z[None].astype(np.int64)).sum(axis=2)
    for dtype in (np.float32, np.float64):
        out = np.empty((n, m), dtype)
        exact_half_squares(X, pack_points(Z), out)
        np.testing.assert_array_equal(out, -0.5 * exact.astype(dtype))


def test_whole_numbers_are_recognized() -> None:
    X = draw(50, 100)
    assert is_exact_faster(X)
    assert not is_exact_faster(X[:, :50])
    for other in (0.5, -1.0, 256.0, np.nan, np.inf):
        changed = X.copy()
        changed[49, 99] = other
        assert not is_exact_faster(changed)


def test_whole_numbers_errors_of_kernel_values_are_within_their_bound() -> None:
    X, kernel = draw(200, 120), RBF(0.01 / 255.0**2 * 4.0)
    reach = Reach(120, float(np.square(X).sum(axis=1).max()), whole=True)
    exact = np.exp(-kernel.gamma * np.square(X[:, None].astype(float) - X[None].astype(float)).sum(axis=2))
    for arithmetic in (WHOLE_SINGLE, WHOLE_DOUBLE):
        error = np.abs(gram(Dense(X), kernel, 120, arithmetic) - exact).max()
        assert error <= error_of(kernel, reach, arithmetic) + 1e-15


def test_whole_numbers_machines_have_the_same_bits_with_and_without_the_instruction(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    X = draw(900, 100, 40)
    y = (X[:, :50].sum(axis=1) > X[:, 50:].sum(axis=1)).astype(int)
    given = StreamSVC(10.0, kernel="rbf", gamma=1e-4, loss="hinge", solver="decomposition")
    fits = []
    for by_instruction in WAYS:
        monkeypatch.setattr(whole_numbers, "HAS_INSTRUCTION", by_instruction)
        fits.append(given.fit(X, y).model_)
    for model in fits:
        np.testing.assert_array_equal(model.weights, fits[0].weights)
    monkeypatch.setattr(whole_numbers, "MIN_ENTRIES", 1000)
    as_floats = given.fit(X, y)
    certificates = [model.provenance["certificates"][0] for model in (*fits, as_floats.model_)]
    for one in certificates:
        assert one["gap"] <= 1e-3
        assert one["primal"] == pytest.approx(certificates[0]["primal"], rel=2e-3)
    X64, c = fits[0].expansion.points.values.astype(float), fits[0].weights[0, :-1]
    K = np.exp(-1e-4 * np.square(X64[:, None] - X64[None]).sum(axis=2))
    dual = np.abs(c).sum() - 0.5 * c @ K @ c
    assert dual == pytest.approx(certificates[0]["dual"], rel=1e-12)
