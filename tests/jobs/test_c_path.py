"""Several C at once: the models are those of fits one by one, and the data is read as often as for one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from streamsvm.errors import ExistsError, UsageError
from streamsvm.jobs.fit.driver import fit
from streamsvm.jobs.fit.job import FitJob
from streamsvm.model import load
from streamsvm.rows import Dense
from streamsvm.store import create


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """Three classes, 600 x 4, in several chunks."""
    rng = np.random.default_rng(3)
    codes = rng.integers(0, 3, 600).astype(np.int32)
    X = (rng.normal(size=(600, 4)) + np.eye(3, 4)[codes] * 2).astype(np.float32)
    writer = create(tmp_path / "s.zarr", sparse=False, chunk_bytes=4096)
    writer.append(Dense(X), codes, None)
    writer.commit(("a", "b", "c"), 4, {"names": None})
    return tmp_path / "s.zarr"


def fitted(store: Path, name: str, **more: Any) -> Any:
    job = FitJob(str(store), str(store.parent / name), tolerance=1e-4, overwrite=False, **more)
    return fit(job)


@pytest.mark.parametrize("solver", ["newton", "dcd"])
def test_a_path_is_its_members(store: Path, solver: str) -> None:
    path = fitted(store, "p.ssvm", solver=solver, C=(0.01, 1.0))
    for C in (0.01, 1.0):
        alone = fitted(store, f"{C:g}.ssvm", solver=solver, C=C)
        found = load(store.parent / f"p.C={C:g}.ssvm")
        assert found.weights.shape == (3, 5)
        np.testing.assert_allclose(found.weights, alone.model.weights, rtol=1e-9)
        assert [c["C"] for c in found.provenance["certificates"]] == [C] * 3
        assert path.training.passes >= alone.training.passes
    assert not (store.parent / "p.ssvm").exists()


def test_path_of_C_all_members_are_claimed_first(store: Path) -> None:
    (store.parent / "p.C=1.ssvm").write_text("taken")
    with pytest.raises(ExistsError):
        fitted(store, "p.ssvm", C=(0.01, 1.0))


@pytest.mark.parametrize("C", [(1.0, 1.0), (), (1.0, -1.0)])
def test_path_of_C_values_must_be_different_and_positive(store: Path, C: Any) -> None:
    with pytest.raises(UsageError, match=r"C (must|cannot) be"):
        fitted(store, "p.ssvm", C=C)
