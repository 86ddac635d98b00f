"""The bits of a model depend on the data, the settings and the seed, and on nothing else."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load
from threadpoolctl import threadpool_limits

from streamsvm.jobs.fit import fit
from streamsvm.jobs.ingest import IngestJob, ingest
from streamsvm.jobs.planning import FitJob, make_plan
from streamsvm.jobs.training import Course, Trainer
from streamsvm.rows import Dense
from streamsvm.schedule import plan as schedule
from streamsvm.store import open_store
from streamsvm.store.memory import MemoryStore
from streamsvm.types import Stop
from tests.fault.golden import CHUNK, FITS, fit_job, ingested, placed, write_table
from tests.fault.test_alignment import SOURCES

REPOSITORY = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("data")
    ingested(made)
    ingested(made, store=made / "s.h5")
    return made


def bits(job: FitJob) -> bytes:
    fit(replace(job, overwrite=True))
    return b"".join(array.tobytes() for _, array in sorted(load(Path(job.model).read_bytes()).items()))


@pytest.mark.parametrize("name", FITS)
def test_how_it_is_run_does_not_matter(
    name: str, directory: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Prefetch depth, threads of the products, where per-row state is, the format of the store, checkpoints."""
    placed(monkeypatch)
    job = fit_job(directory / "s.zarr", tmp_path / "m", **FITS[name])
    reference = bits(replace(job, prefetch=0))
    for depth in (1, 2, 4) if name in ("dcd", "newton") else (2,):
        assert bits(replace(job, prefetch=depth)) == reference
    assert bits(replace(job, store=str(directory / "s.h5"))) == reference
    assert bits(replace(job, checkpoint_every=1e-9)) == reference
    with threadpool_limits(2):
        assert bits(job) == reference
    with monkeypatch.context() as patch:
        placed(patch, resident=False)
        assert bits(job) == reference


def test_where_the_rows_are_from_does_not_matter(tmp_path: Path) -> None:
    """The same rows as text, compressed text, Parquet, svmlight and arrays, compressed or not: one digest, one model."""
    found, digests = [], set()
    for source in SOURCES:
        (tmp_path / source.__name__).mkdir()
        paths, options = source(tmp_path / source.__name__)
        for compression in ("none", "lz4"):
            store = tmp_path / source.__name__ / f"{compression}.zarr"
            shape = {"layout": "dense", "features": 4, "chunk_bytes": CHUNK, "compression": compression}
            ingest(IngestJob(sources=tuple(paths), store=store, **shape, **options))
            digests.add(open_store(store).digest)
            found.append(bits(fit_job(store, tmp_path / "m")))
    assert len(digests) == 1
    assert found == [found[0]] * 2 * len(SOURCES)


def memory_store(path: Path) -> MemoryStore:
    """The rows of a store on disk, in the same chunks."""
    from streamsvm.store import read_chunk

    store = open_store(path)
    copy, buffers = MemoryStore(chunk_bytes=CHUNK), store.buffers()
    for chunk in range(len(store.layout.chunks)):
        found = read_chunk(store, chunk, buffers)
        assert isinstance(found.X, Dense)
        copy.append(Dense(found.X.values.copy()), found.codes.copy(), None)
    return copy.commit(store.layout.classes, store.layout.columns)


@pytest.mark.parametrize("name", ["dcd", "newton", "sgd"])
def test_rows_in_memory_give_the_same_bits(name: str, directory: Path) -> None:
    job = fit_job(directory / "s.zarr", directory / "unused", **FITS[name])
    found = [
        solution_of(job, store) for store in (open_store(directory / "s.zarr"), memory_store(directory / "s.zarr"))
    ]
    assert found[0] == found[1]


def solution_of(job: FitJob, store: Any) -> bytes:
    plan = make_plan(job, store)
    trainer = Trainer(store, plan.solver, plan.problems, plan.features, Course(), lambda _: None)
    result = trainer.train(Stop(job.max_passes))
    return plan.solver.solution(result.runs[0].state).w.tobytes()  # type: ignore[union-attr]


OTHER_PROCESS = """
import sys
from streamsvm.jobs.fit import fit
from streamsvm.jobs.planning import FitJob
fit(FitJob(sys.argv[1], sys.argv[2], solver="dcd", loss="hinge", tolerance=1e-12, max_passes=3))
"""


@pytest.mark.parametrize(
    "environment", [{"PYTHONHASHSEED": "1", "OPENBLAS_NUM_THREADS": "2", "NUMBA_NUM_THREADS": "1"}]
)
def test_another_process_gives_the_same_bits(environment: dict[str, str], directory: Path, tmp_path: Path) -> None:
    import os

    reference = bits(fit_job(directory / "s.zarr", tmp_path / "m"))
    command = [sys.executable, "-c", OTHER_PROCESS, str(directory / "s.zarr"), str(tmp_path / "other")]
    subprocess.run(command, env={**os.environ, "PYTHONPATH": str(REPOSITORY), **environment}, check=True)
    assert b"".join(a.tobytes() for _, a in sorted(load((tmp_path / "other").read_bytes()).items())) == reference


@pytest.mark.parametrize("solver", ["dcd", "newton"])
def test_chunks_do_not_matter_once_it_has_converged(
    solver: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    placed(monkeypatch)
    write_table(tmp_path, rows=300, columns=5)
    found = []
    for size in (4096, 8192, 1 << 20):
        store = ingested(tmp_path, store=tmp_path / f"{size}.zarr", chunk_bytes=size)
        settings = {"solver": solver, "loss": "squared_hinge", "C": 0.01, "standardize": True, "tolerance": 1e-13}
        bits(fit_job(store, tmp_path / "m", max_passes=400, **settings))
        found.append(load((tmp_path / "m").read_bytes())["weights"])
    for other in found[1:]:
        assert np.linalg.norm(other - found[0]) <= 1e-6 * np.linalg.norm(found[0])


def by_arrival() -> Callable[..., list[int]]:
    """Another order every time, as when parts are summed up in the order in which they arrive."""
    counter: Iterator[int] = iter(range(10**6))
    return lambda layout, *_: np.random.default_rng(next(counter)).permutation(len(layout.chunks)).tolist()


@pytest.mark.parametrize("name", ["dcd", "newton", "sgd"])
def test_another_order_of_the_sums_is_noticed(
    name: str, directory: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The comparison of bits is fine enough: a reduction in the order of arrival would fail it."""
    placed(monkeypatch)
    job = fit_job(directory / "s.zarr", tmp_path / "m", **FITS[name])
    reference = bits(job)
    monkeypatch.setattr(schedule, "epoch_order", by_arrival())
    assert any(bits(job) != reference for _ in range(3))
