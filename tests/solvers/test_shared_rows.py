"""Problems that gather the same rows have one copy of them, and come to the same bits as with copies of their own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from streamsvm.jobs.fit.driver import FitResult, fit
from streamsvm.jobs.fit.job import FitJob
from streamsvm.jobs.fit.plan import make_plan
from streamsvm.rows import Dense
from streamsvm.solvers.newton.solver import Newton
from streamsvm.store import create, open_store

CLASSES = 4
KINDS: dict[str, dict[str, Any]] = {
    "features": {"kernel": "rbf", "gamma": 0.2, "landmarks": 20, "embedding": "fly"},
    "columns": {},
}


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """1,200 rows of four classes in chunks of some 130, which are several groups."""
    path = tmp_path_factory.mktemp("stores") / "rows.zarr"
    rng = np.random.default_rng(5)
    codes = rng.integers(0, CLASSES, 1_200).astype(np.int32)
    X = (rng.normal(size=(1_200, 6)) + codes[:, None] * np.eye(6)[1]).astype(np.float32)
    writer = create(path, sparse=False, chunk_bytes=3_200)
    writer.append(Dense(X), codes)
    writer.commit(tuple("abcd"), 6, {"names": None})
    return path


def fitted(store: Path, model: Path, kind: str, **more: Any) -> FitResult:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("streamsvm.engine.partition.PASS_GROUP_BYTES", 8_000)
        job = FitJob(
            str(store), str(model), solver="newton", C=0.1, tolerance=1e-9, max_passes=6, **KINDS[kind], **more
        )
        return fit(job)


def arrays(result: FitResult) -> list[Any]:
    states: list[Any] = [run.state for run in result.training.runs]
    found = [state.all_rows.sample if state.all_rows else state.trust_region.model.sample for state in states]
    assert all(sample.complete for sample in found)
    return [sample.X.values for sample in found]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("threads", [1, 3])
def test_shared_rows_classes_have_one_copy(
    store: Path, tmp_path: Path, kind: str, threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared = fitted(store, tmp_path / "m", kind, threads=threads)
    assert len({id(array) for array in arrays(shared)}) == 1
    monkeypatch.setattr(Newton, "join_gathered", lambda *_: None)
    alone = fitted(store, tmp_path / "n", kind, threads=threads)
    assert len({id(array) for array in arrays(alone)}) == CLASSES
    np.testing.assert_array_equal(shared.model.weights, alone.model.weights)
    assert [run.certificate for run in shared.training.runs] == [run.certificate for run in alone.training.runs]
    np.testing.assert_array_equal(arrays(shared)[0], arrays(alone)[1])


def test_shared_rows_plan_counts_it_once(store: Path, tmp_path: Path) -> None:
    def solving(**more: Any) -> int:
        job = FitJob(str(store), str(tmp_path / "m"), solver="newton", **KINDS["features"], **more)
        return next(term.nbytes for term in make_plan(job, open_store(store)).memory.terms if term.name == "solver")

    one, all_of_them = solving(positive="a"), solving()
    each = (all_of_them - one) // (CLASSES - 1)
    assert 4 * 20 * 1_200 < one - each  # at least the rows
    assert each < all_of_them / CLASSES
