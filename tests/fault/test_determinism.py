"""The bits of a model depend on the data, the settings and the seed, and on nothing else: neither on the way of running nor on names."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load
from threadpoolctl import threadpool_limits

from streamsvm.engine.local_loop import local_trainer
from streamsvm.engine.loop import RunSettings
from streamsvm.jobs.fit.driver import fit
from streamsvm.jobs.fit.options import FitJob
from streamsvm.jobs.fit.outputs import model_paths
from streamsvm.jobs.fit.plan import make_plan
from streamsvm.jobs.fit.problems import resolve_costs
from streamsvm.jobs.ingest.options import IngestJob
from streamsvm.jobs.ingest.run import ingest
from streamsvm.rows import Dense
from streamsvm.store import open_store
from streamsvm.store.views import MemoryStore
from streamsvm.types import Stop
from tests.fault.golden import CHUNK, FITS, NYSTROM, RBF, ROWS, fit_job, ingested, placed, write_table
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
    return bits_of(job)


def bits_of(job: FitJob) -> bytes:
    """Those of all models of a fit: several values of C have one each."""
    paths = model_paths(job, resolve_costs(job, ROWS))
    models = [load(path.read_bytes()) for path in paths]
    return b"".join(array.tobytes() for arrays in models for _, array in sorted(arrays.items()))


@pytest.mark.parametrize("name", FITS)
def test_bits_do_not_depend_on_how_a_fit_is_run(
    name: str, directory: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Prefetch depth, threads of the products, where per-row state is, the format of the store, checkpoints."""
    placed(monkeypatch)
    job = fit_job(directory / "s.zarr", tmp_path / "m", **FITS[name])
    reference = bits(replace(job, prefetch=0))
    placed(monkeypatch, resident=False)
    with threadpool_limits(2):
        assert bits(replace(job, prefetch=3, store=str(directory / "s.h5"), checkpoint_every=1e-9)) == reference


def test_bits_do_not_depend_on_the_source(tmp_path: Path) -> None:
    """The same rows as text, compressed text, Parquet, svmlight and arrays, compressed or not: one digest, one model."""
    found, digests = [], set()
    for source in SOURCES:
        (tmp_path / source.__name__).mkdir()
        paths, options = source(tmp_path / source.__name__)
        for compression in ("none", "lz4"):
            store = tmp_path / source.__name__ / f"{compression}.zarr"
            shape: dict[str, Any] = {"layout": "dense", "features": 4, "chunk_bytes": CHUNK, "compression": compression}
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
def test_bits_rows_in_memory_give_the_same_bits(name: str, directory: Path) -> None:
    job = fit_job(directory / "s.zarr", directory / "unused", **FITS[name])
    found = [
        solution_of(job, store) for store in (open_store(directory / "s.zarr"), memory_store(directory / "s.zarr"))
    ]
    assert found[0] == found[1]


def solution_of(job: FitJob, store: Any) -> bytes:
    plan = make_plan(job, store)
    trainer = local_trainer(store, plan.solver, plan.problems, plan.features, RunSettings(), lambda _: None)
    result = trainer.train(Stop(job.max_passes))
    return plan.solver.solution(result.runs[0].state).w.tobytes()


OTHER_PROCESS = """
import json, sys
from streamsvm.jobs.fit.driver import fit
from streamsvm.jobs.fit.options import FitJob
for settings in json.loads(sys.argv[1]):
    fit(FitJob(**settings))
"""


THREADS = {"PYTHONHASHSEED": "1", "OPENBLAS_NUM_THREADS": "2", "OMP_NUM_THREADS": "2", "NUMBA_NUM_THREADS": "2"}


def in_another_process(program: str, *arguments: str) -> str:
    """What a program says that is run where everything may have two threads."""
    command, environment = [sys.executable, "-c", program, *arguments], {"PYTHONPATH": str(REPOSITORY), **THREADS}
    ran = subprocess.run(command, env={**os.environ, **environment}, check=True, capture_output=True, text=True)
    return ran.stdout


def test_bits_another_process_gives_the_same_bits(directory: Path, tmp_path: Path) -> None:
    names = ["dcd", "newton", "nystrom", "decomposition", "partan sampled"]
    jobs = {name: fit_job(directory / "s.zarr", tmp_path / name, **FITS[name]) for name in names}
    reference = {name: bits(job) for name, job in jobs.items()}
    in_another_process(OTHER_PROCESS, json.dumps([asdict(replace(job, overwrite=True)) for job in jobs.values()]))
    assert {name: bits_of(job) for name, job in jobs.items()} == reference


CONVERGED: dict[str, dict[str, Any]] = {
    "dcd": {"solver": "dcd", "C": 0.01},
    "newton": {"solver": "newton", "C": 0.01},
    "nystrom": {"solver": "newton", "C": 0.1, **NYSTROM},
    "decomposition": {"solver": "decomposition", **RBF},
}
"""Fits that can be taken to the optimum; how near the others come in so many passes depends on the order of the rows."""


@pytest.mark.parametrize("name", CONVERGED)
def test_bits_of_a_converged_fit_do_not_depend_on_chunks(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The decision values of rows: a model with a kernel may be written down in more than one way."""
    placed(monkeypatch)
    write_table(tmp_path, rows=300, columns=5)
    found = []
    for size in (4096, 1 << 20):
        store = ingested(tmp_path, store=tmp_path / f"{size}.zarr", chunk_bytes=size)
        settings = {"loss": "squared_hinge", "standardize": True, "tolerance": 1e-13, **CONVERGED[name]}
        model = fit(fit_job(store, tmp_path / "m", max_passes=400, overwrite=True, **settings)).model
        rows = np.random.default_rng(0).uniform(-1, 1, (200, 5)) * [300, 2, 2, 2, 2] + [150, 0, 0, 0, 0]
        found.append((model.decision(Dense(rows.astype(np.float32))), model.weights))
    for decision, weights in found[1:]:
        assert np.linalg.norm(decision - found[0][0]) <= 1e-6 * np.linalg.norm(found[0][0])
        if "kernel" not in CONVERGED[name]:
            assert np.linalg.norm(weights - found[0][1]) <= 1e-6 * np.linalg.norm(found[0][1])


# -- names -------------------------------------------------------------------------------------------------------------

SETTINGS: dict[str, dict[str, Any]] = {
    "linear": {},
    "several": {"C": (0.5, 2.0), "validation": 0.2},
    "nystrom": {"kernel": "rbf", "landmarks": 8, "embedding": "fly"},
    "on disk": {"kernel": "rbf", "landmarks": 8, "embedding": "disk"},
    "landmark file": {"kernel": "rbf", "landmark_file": "landmarks.npy", "embedding": "fly"},
    "warm": {"warm_start": "start"},
    "held out": {"validation": "held.zarr"},
}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("bits")
    store = ingested(directory)
    shutil.copytree(store, directory / "held.zarr")
    columns = json.loads((store / "X" / "zarr.json").read_text())["shape"][1]
    np.save(directory / "landmarks.npy", np.random.default_rng(0).standard_normal((6, columns)))
    fit(fit_job(store, directory / "start"))
    return directory


@pytest.mark.parametrize("settings", SETTINGS)
def test_bits_do_not_depend_on_names(
    settings: str, place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found: list[list[bytes]] = []
    asked = SETTINGS[settings]
    for name in ("here", "elsewhere/with a long name"):
        folder = tmp_path / name
        shutil.copytree(place, folder)
        (folder / "s.zarr").rename(folder / f"{folder.name}.zarr")
        paths = {k: str(folder / v) for k, v in asked.items() if isinstance(v, str) and (folder / v).exists()}
        job = fit_job(folder / f"{folder.name}.zarr", folder / f"{folder.name}.ssvm", **{**asked, **paths})
        monkeypatch.chdir(folder)
        fit(replace(job, memory=(4 << 30) + len(found)))
        found.append([path.read_bytes() for path in sorted(folder.glob("*.ssvm"))])
        record = json.loads((folder / f"{folder.name}.ssvm.run" / "job.json").read_text())
        assert record["store"] == job.store  # where it is kept instead
    assert found[0] == found[1]
    assert found[0]
    for content in found[0]:
        assert str(tmp_path).encode() not in content
        assert b"here" not in content
