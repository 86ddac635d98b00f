"""Nystrom features against the kernel they stand for."""

from __future__ import annotations

import numpy as np
import pytest

from streamsvm.compute.blocks import operators
from streamsvm.compute.kernel_values.kernel_matrix import points_of, symmetric_gram
from streamsvm.errors import DataError
from streamsvm.features.nystrom import Nystrom, make_projection, part_rows
from streamsvm.features.scaling import Raw, fit_standardization
from streamsvm.kernels import RBF, Laplacian, Polynomial, Sigmoid
from streamsvm.model import Model
from streamsvm.rows import CSR, Dense
from streamsvm.types import LinearSolution, Statistics
from tests.arrays import csr_of, sparse_values

N, D, M = 9000, 6, 150
CUTOFF = 1e-6


@pytest.fixture(scope="module")
def X():
    return sparse_values(np.random.default_rng(0), N, D)


def dense_features(features, block):
    return np.concatenate([part.X.values for part in features.parts(block)])


@pytest.mark.parametrize("kernel", [RBF(0.2), Laplacian(0.2), Polynomial(0.3, 1.0, 2.0)], ids=str)
def test_nystrom_features_reproduce_the_kernel_of_the_landmarks(X, kernel):
    points = points_of(X[:M])
    projection = make_projection(points, kernel, Raw(0.0), CUTOFF)
    phi = dense_features(Nystrom(projection, 0.0), Dense(X[:M])).astype(np.float64)
    K = symmetric_gram(points, kernel)
    assert np.abs(phi @ phi.T - K).max() < 2e-4 * np.abs(K).max()


def test_nystrom_eigenvalues_below_the_cut_are_left_out():
    Z = np.repeat(sparse_values(np.random.default_rng(1), 20, D), 3, axis=0)
    projection = make_projection(points_of(Z), RBF(0.2), Raw(0.0), CUTOFF)
    values = np.linalg.eigvalsh(symmetric_gram(points_of(Z), RBF(0.2)))
    assert projection.rank == np.sum(values > CUTOFF * values[-1]) <= 20
    coarse = make_projection(points_of(Z), RBF(0.2), Raw(0.0), 1e-2)
    assert 0 < coarse.rank == np.sum(values > 1e-2 * values[-1]) < projection.rank
    np.testing.assert_array_equal(coarse.W, projection.W[:, : coarse.rank])


def test_nystrom_indefinite_kernel_keeps_its_positive_part(X):
    projection = make_projection(points_of(X[:M]), Sigmoid(0.5, -1.0), Raw(0.0), CUTOFF)
    assert 0 < projection.rank < M
    assert np.isfinite(projection.W).all()


def test_nystrom_kernel_without_a_positive_part_is_refused(X):
    with pytest.raises(DataError):
        make_projection(points_of(X[:M]), Polynomial(0.0, 0.0, 1.0), Raw(0.0), CUTOFF)


@pytest.mark.parametrize("kernel", [RBF(0.2), Laplacian(0.2), Polynomial(0.3, 1.0, 2.0)], ids=str)
def test_nystrom_csr_and_dense_rows_have_the_same_features(X, kernel):
    projection = make_projection(points_of(X[:M]), kernel, Raw(0.0), CUTOFF)
    dense, sparse = (dense_features(Nystrom(projection, 1.0), form(X[:500])) for form in (Dense, csr_of))
    np.testing.assert_allclose(dense, sparse, atol=3e-4 * np.abs(dense).max())


def test_nystrom_parts_cover_the_block_and_the_factored_form_is_the_same(X):
    projection = make_projection(points_of(X[:M]), RBF(0.2), Raw(0.0), CUTOFF)
    w = np.random.default_rng(2).normal(size=projection.rank + 1)
    found = []
    for factored in (False, True):
        ends = [0]
        margins = []
        for part in Nystrom(projection, 0.7, factored).parts(Dense(X)):
            assert part.start == ends[-1]
            ends.append(part.stop)
            margins.append(operators.margins(part.X, w))
        assert ends[-1] == N
        assert len(ends) > 2
        assert max(np.diff(ends)) == part_rows(M)
        found.append(np.concatenate(margins))
    np.testing.assert_allclose(found[0], found[1], atol=1e-3)


def test_nystrom_model_of_a_solution_has_its_margins(X):
    """Through standardization, projection and back: f(x) from stored rows alone."""
    statistics = Statistics(X.mean(0, np.float64), X.var(0, dtype=np.float64) * N, X.min(0), X.max(0))
    inner = fit_standardization(statistics, N, sparse=False, bias=0.0)
    Z = inner.apply(Dense(X[:M].copy()))
    projection = make_projection(points_of(Z.values), RBF(0.1), inner, CUTOFF)
    features = Nystrom(projection, 0.7, factored=True, exact=True)
    w = np.random.default_rng(2).normal(size=projection.rank + 1)
    expected = np.concatenate([operators.margins(p.X, w) for p in features.parts(Dense(X.copy()))])
    found = features.to_input_space(LinearSolution(w, 0.7))
    weights = np.append(found.coefficients, found.intercept)[None]
    before = X.copy()
    decision = Model(weights, ("a", "b"), {}, features.expansion).decision(Dense(X))
    assert np.array_equal(X, before)
    np.testing.assert_allclose(decision[:, 0], expected, atol=1e-14 * np.abs(weights).sum())


def support_model(form):
    rng = np.random.default_rng(3)
    inner_points = sparse_values(rng, 40, D)
    from streamsvm.features.expansion import Expansion

    expansion = Expansion("rbf", {"gamma": 0.3}, form(inner_points), D)
    return Model(rng.normal(size=(3, 41)), ("a", "b", "c"), {"x": 1}, expansion), inner_points


@pytest.mark.parametrize("form", [Dense, csr_of])
def test_nystrom_kernel_model_survives_the_file(form, tmp_path, X):
    from streamsvm import model as models

    model, Z = support_model(form)
    model.save(tmp_path / "m.ssvm")
    loaded = models.load(tmp_path / "m.ssvm")
    assert loaded.kind == "kernel"
    assert loaded.columns == D
    expected = np.exp(-0.3 * ((X[:300, None] - Z[None]) ** 2).sum(-1)) @ model.weights[:, :-1].T + model.weights[:, -1]
    for rows in (Dense(X[:300]), csr_of(X[:300])):
        found = loaded.decision(rows)
        assert np.array_equal(found, model.decision(rows))
        np.testing.assert_allclose(found, expected, atol=1e-5)


@pytest.mark.parametrize("damage", ["indices", "nan", "gamma", "kernel", "count"])
def test_nystrom_unusable_expansion_is_refused(damage, tmp_path):
    from streamsvm import model as models

    model, _ = support_model(csr_of)
    points = model.expansion.points
    assert isinstance(points, CSR)
    if damage == "indices":
        points.indices[0] = 1000
    elif damage == "nan":
        points.data[0] = np.nan
    elif damage == "gamma":
        model.expansion.parameters["gamma"] = float("nan")
    elif damage == "kernel":
        model.expansion.parameters["degree"] = 1.0
    else:
        model = Model(model.weights[:, 1:], model.classes, {}, model.expansion)
    model.save(tmp_path / "m.ssvm")
    with pytest.raises(DataError):
        models.load(tmp_path / "m.ssvm")


@pytest.mark.parametrize("form", [Dense, csr_of])
def test_nystrom_rows_of_another_width_are_refused(form):
    model, _ = support_model(form)
    with pytest.raises(DataError):
        model.decision(form(np.ones((2, D + 1), np.float32)))
