"""Columns at the ends of what float32 holds: fits end with a model and a notice, or with an error that names the column."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse

import streamsvm as sv

FITS: tuple[dict[str, Any], ...] = (
    {},
    {"loss": "hinge"},
    {"loss": "logistic"},
    {"l1": 1.0},
    {"nu": 0.3, "loss": "hinge"},
    {"one_class": True},
    {"kernel": "rbf"},
    {"kernel": "rbf", "landmarks": 5},
)


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("size", [1e-42, 1e-39])
def test_a_column_that_float32_cannot_scale_is_left_as_it_is(tmp_path: Path, sparse: bool, size: float) -> None:
    """With --standardize its deviation is no normal float32; a column that is all but 0 changes no model."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(50, 3))
    X[:, 1], X[:, 2] = rng.integers(-5, 6, 50) * size, X[:, 2] + 5.0
    y = (X[:, 0] > 0).astype(int)
    primals = []
    for rows in (X, X * [1.0, 0.0, 1.0]):
        sv.ingest(scipy.sparse.csr_array(rows) if sparse else rows, tmp_path / "s.zarr", y=y, overwrite=True)
        options: dict[str, Any] = {"standardize": True, "overwrite": True, "tolerance": 1e-6}
        found = [sv.fit(tmp_path / "s.zarr", tmp_path / "m.ssvm", **options, **kind) for kind in FITS]
        primals.append([one.model.certificates[0].primal for one in found])
        noticed = [any("column 1" in line for line in one.notices) for one in found]
        assert all(noticed) if rows is X else not any(noticed)
    np.testing.assert_allclose(primals[0], primals[1], rtol=1e-5)
