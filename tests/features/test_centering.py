"""Kernels of x - z on columns far from 0: the rows are centered, whatever their form, and the model keeps by how much."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from streamsvm import model as models
from streamsvm.features.scaling import Raw, Standardized, center, choose_scaling, column_sizes, fit_standardization
from streamsvm.jobs.embed.plan import build_kernel
from streamsvm.jobs.fit.driver import fit
from streamsvm.jobs.fit.options import FitJob
from streamsvm.rows import CSR, Dense
from streamsvm.store import create, open_store
from streamsvm.store.views import MemoryStore, Section
from tests.arrays import csr_of
from tests.solvers.kernel_problems import noisy_rows

OFFSETS = np.array([0.0, 1e4, -3e6, 20.0], np.float32)


def rows_of(n: int = 300) -> tuple[Any, Any]:
    """Rows float32 whose last two columns are far from 0, and labels that only x - z knows."""
    X, y = noisy_rows(n)
    return (X + OFFSETS).astype(np.float32), y


def store_of(path: Path, X: Any, y: Any, *, sparse: bool) -> Any:
    writer = create(path, sparse=sparse, chunk_bytes=4096)
    writer.append(csr_of(X) if sparse else Dense(X), (y > 0).astype(np.int32), None)
    writer.commit(("a", "b"), X.shape[1], {"names": None})
    return open_store(path)


def rbf(X: Any, Z: Any, gamma: float) -> Any:
    """exp(-gamma ||x - z||^2) from differences, in float64."""
    difference = X[:, None, :].astype(np.float64) - Z[None, :, :].astype(np.float64)
    return np.exp(-gamma * np.square(difference).sum(2))


@pytest.mark.parametrize("sparse", [False, True])
def test_centering_columns_far_from_zero_are_centered_and_the_others_left_alone(tmp_path: Path, sparse: bool) -> None:
    X, y = rows_of()
    map_ = center(Raw(1.0), store_of(tmp_path / "s", X, y, sparse=sparse))
    assert isinstance(map_, Standardized)
    assert map_.shift[0] == 0.0
    assert (map_.shift[1:] != 0.0).all()
    np.testing.assert_allclose(map_.shift[1:], X[:, 1:].mean(0, dtype=np.float64), rtol=1e-7)
    np.testing.assert_array_equal(map_.scale, 1.0)


def test_centering_width_by_scale_does_not_feel_where_a_far_column_lies(tmp_path: Path) -> None:
    X, y = rows_of()
    near = X - np.array([0.0, 1e4, -3e6, 20.0], np.float32)
    far, close = (store_of(tmp_path / name, rows, y, sparse=False) for name, rows in (("far", X), ("near", near)))
    gamma = [build_kernel("rbf", {}, "scale", store, Raw(1.0)).gamma for store in (far, close)]
    assert gamma[0] == pytest.approx(gamma[1], rel=0.02)
    raw = [build_kernel("polynomial", {}, "scale", store, Raw(1.0)).gamma for store in (far, close)]
    assert raw[0] == pytest.approx(1.0 / (4 * np.var(X, dtype=np.float64)), rel=1e-6)
    assert raw[1] == pytest.approx(1.0 / (4 * np.var(near, dtype=np.float64)), rel=1e-6)


def test_centering_column_that_some_sparse_row_lacks_is_not_centered(tmp_path: Path) -> None:
    X, y = rows_of()
    X[7, 1] = 0.0
    map_ = center(Raw(1.0), store_of(tmp_path / "s", X, y, sparse=True))
    assert isinstance(map_, Standardized)
    assert (map_.shift != 0.0).tolist() == [False, False, True, True]


def test_centering_what_is_near_zero_or_standardized_stays_as_it_is(tmp_path: Path) -> None:
    X, y = noisy_rows()
    store = store_of(tmp_path / "s", X, y, sparse=False)
    raw = Raw(1.0)
    assert center(raw, store) is raw
    scaled = fit_standardization(store.statistics(), len(X), sparse=False, bias=1.0)
    assert center(scaled, store) is scaled


@pytest.mark.parametrize("landmarks", [None, 60])
@pytest.mark.parametrize("standardize", [False, True])
@pytest.mark.parametrize("sparse", [False, True])
def test_centering_model_of_offset_columns_is_that_of_the_same_columns_without(
    tmp_path: Path, sparse: bool, standardize: bool, landmarks: int | None
) -> None:
    X, y = rows_of()
    plain = X.astype(np.float64) - OFFSETS.astype(np.float64)
    assert (plain.astype(np.float32) == plain).all()
    found = []
    for name, rows in (("near", plain.astype(np.float32)), ("far", X)):
        store_of(tmp_path / name, rows, y, sparse=sparse)
        asked = FitJob(
            str(tmp_path / name), str(tmp_path / f"{name}.ssvm"), loss="squared_hinge", kernel="rbf", gamma=0.7,
            landmarks=landmarks, tolerance=1e-4, standardize=standardize,
        )  # fmt: skip
        primal = fit(asked).training.runs[0].certificate
        assert primal is not None
        decision = models.load(tmp_path / f"{name}.ssvm").decision(csr_of(rows) if sparse else Dense(rows))
        found.append((primal.primal, decision[:, 0]))
    (near, expected), (far, decisions) = found
    assert abs(near - far) <= 2e-4 * near
    np.testing.assert_allclose(decisions, expected, atol=0.03)


def test_centering_sparse_row_without_the_entry_is_predicted_as_one_with_a_zero(tmp_path: Path) -> None:
    X, y = rows_of()
    store_of(tmp_path / "s", X, y, sparse=True)
    fit(FitJob(str(tmp_path / "s"), str(tmp_path / "m"), kernel="rbf", gamma=1e-8))
    model = models.load(tmp_path / "m")
    assert model.expansion is not None
    assert model.expansion.shift is not None
    asked = X[:5].copy()
    asked[:, 1] = 0.0
    points = np.zeros((len(model.weights[0]) - 1, 4), np.float32)
    held = model.expansion.points
    assert isinstance(held, CSR)
    for i in range(len(points)):
        part = slice(held.indptr[i], held.indptr[i + 1])
        points[i, held.indices[part]] = held.data[part]
    seen = asked.astype(np.float64) - model.expansion.shift.astype(np.float64)
    expected = rbf(seen, points, 1e-8) @ model.weights[0, :-1] + model.weights[0, -1]
    np.testing.assert_allclose(model.decision(csr_of(asked))[:, 0], expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    "rows", [np.random.default_rng(3).normal(size=(60, 3)), np.eye(60, 3)], ids=["dense", "sparse"]
)
def test_scaling_of_some_chunks_is_that_of_the_whole_store_and_its_bound_holds_for_their_rows(rows: Any) -> None:
    rows = rows.astype(np.float32)
    rows[40:] += 5.0 * (rows[40:] != 0)
    store = MemoryStore()
    for part in np.split(rows, 3):
        store.append(csr_of(part) if rows[0, 1] == 0 else Dense(part), np.zeros(20, np.int32))
        store.end_chunk()
    store.commit(("a", "b"), 3)
    whole = choose_scaling(store, standardize=True, bias=1.0)
    for chunks in ([2], [0, 1]):
        section = Section(Section(store, chunks), range(len(chunks)))
        scaling = choose_scaling(section, standardize=True, bias=1.0)
        assert isinstance(whole, Standardized)
        assert isinstance(scaling, Standardized)
        np.testing.assert_allclose(scaling.scale, whole.scale, rtol=1e-6)
        seen = np.concatenate([rows[20 * c : 20 * c + 20] for c in chunks]).astype(np.float64)
        for map_, mapped in ((Raw(1.0), seen), (scaling, (seen - scaling.shift) * scaling.scale)):
            sizes = column_sizes(map_, section, 1.0)[0][:3]
            assert (sizes >= (1 - 1e-12) * np.sqrt(np.square(mapped).mean(0))).all()
    assert column_sizes(Raw(1.0), store, 1.0)[0][:3] == pytest.approx(np.sqrt(np.square(rows.astype(float)).mean(0)))
