"""Embeddings: what they hold, when they are reused, and that a kill changes nothing. Fits through them and without."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from streamsvm import model as models
from streamsvm.engine.executor import SerialExecutor
from streamsvm.errors import DataError, ExistsError, InterruptedRun, StorageError
from streamsvm.features.mapfile import read_map
from streamsvm.features.nystrom import Nystrom
from streamsvm.jobs.common_options import EmbedJob
from streamsvm.jobs.embed import plan
from streamsvm.jobs.embed.build import embed
from streamsvm.jobs.fit.driver import fit
from streamsvm.jobs.fit.options import FitJob
from streamsvm.locks import hold_lock
from streamsvm.rows import CSR, Dense
from streamsvm.schedule import machine
from streamsvm.store import create, open_store
from streamsvm.types import Status, silent
from tests.arrays import csr_of
from tests.axes import each_value

ROWS, COLUMNS = 7000, 5
CHUNK = 64 << 10


def moons():
    """Two rings, inseparable by a plane."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(ROWS, COLUMNS)).astype(np.float32)
    y = (np.square(X[:, :2]).sum(1) > 1.4).astype(np.int32)
    return X, y


def write(path: Path, rows, codes) -> str:
    writer = create(path, sparse=isinstance(rows, CSR), chunk_bytes=17_000)
    writer.append(rows, codes, None)
    writer.commit(("in", "out"), COLUMNS, {"names": None})
    return str(path)


@pytest.fixture(scope="module")
def dense(tmp_path_factory):
    X, y = moons()
    return write(tmp_path_factory.mktemp("stores") / "dense.zarr", Dense(X), y)


@pytest.fixture(scope="module")
def sparse(tmp_path_factory):
    X, y = moons()
    X[np.abs(X) < 0.5] = 0.0
    return write(tmp_path_factory.mktemp("stores") / "sparse.zarr", csr_of(X), y)


def job(store: str, out: Path, **settings) -> EmbedJob:
    defaults = {"landmarks": 60, "gamma": 0.3, "chunk_bytes": CHUNK}
    return EmbedJob(store, str(out), **{**defaults, **settings})


def rows_of(path) -> np.ndarray:
    store = open_store(path)
    buffers, found = store.buffers(), []
    for chunk in range(len(store.layout.chunks)):
        store.fetch(chunk, buffers)
        found.append(store.check(chunk, buffers).X.values.copy())
    return np.concatenate(found)


def files_of(root: Path) -> dict[str, bytes]:
    return {str(p.relative_to(root)): p.read_bytes() for p in root.rglob("*") if p.is_file()}


@each_value(("kind", ["dense", "sparse"]), ("dtype, tolerance", [("float32", 1e-5), ("float16", 1e-3), ("int8", 0.02)]))
def test_embed_embedding_holds_the_features(kind, dtype, tolerance, request, tmp_path):
    store = request.getfixturevalue(kind)
    found = embed(job(store, tmp_path / "e", dtype=dtype))
    X, y = moons()
    if kind == "sparse":
        X[np.abs(X) < 0.5] = 0.0
    expected = np.concatenate([p.X.values.copy() for p in Nystrom(found.projection, 0.0).parts(Dense(X))])
    np.testing.assert_allclose(rows_of(tmp_path / "e"), expected, atol=tolerance * np.abs(expected).max())
    layout = open_store(tmp_path / "e").layout
    assert (layout.rows, layout.columns) == (ROWS, found.projection.rank)
    assert layout.counts == tuple(np.bincount(y))
    assert not (tmp_path / "e" / "journal.json").exists()


def test_embed_map_in_the_embedding_is_the_one_it_was_made_with(dense, tmp_path):
    found = embed(job(dense, tmp_path / "e", standardize=True))
    again = read_map(tmp_path / "e", open_store(tmp_path / "e").facts["map"])
    assert np.array_equal(again.W, found.projection.W)
    assert np.array_equal(again.points.columns, found.projection.points.columns)
    assert np.array_equal(again.scaling.scale, found.projection.scaling.scale)


def test_embed_equal_embedding_is_reused_and_another_is_not(dense, tmp_path):
    out = tmp_path / "e"
    embed(job(dense, out))
    before = files_of(out)
    assert embed(job(dense, out)).reused
    assert files_of(out) == before
    changes = (
        {"gamma": 0.4},
        {"landmarks": 61},
        {"seed": 1},
        {"cutoff": 1e-3},
        {"dtype": "int8"},
        {"standardize": True},
    )
    for change in changes:
        with pytest.raises(ExistsError):
            embed(job(dense, out, **change))
        assert not embed(job(dense, out, **change, overwrite=True)).reused
    assert not embed(job(dense, out, overwrite=True)).reused
    assert files_of(out) == before


def test_embed_that_the_disk_has_no_room_for_is_refused_at_once(dense, tmp_path, monkeypatch):
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(total=1000, used=0, free=1000))
    with pytest.raises(StorageError) as caught:
        embed(job(dense, tmp_path / "e"))
    assert caught.value.code == "E-NOSPACE"


def test_embed_one_writer_at_a_time(dense, tmp_path):
    """A second one is told; who finds the embedding he asks for needs no lock."""
    with hold_lock(tmp_path / "e"), pytest.raises(ExistsError, match="is being written by pid") as caught:
        embed(job(dense, tmp_path / "e"))
    assert (caught.value.code, caught.value.exit_code) == ("E-LOCKED", 73)
    embed(job(dense, tmp_path / "e"))
    with hold_lock(tmp_path / "e"):
        assert embed(job(dense, tmp_path / "e")).reused


KILLED = """
import os, signal, sys, json
from streamsvm.jobs.common_options import EmbedJob
from streamsvm.jobs.embed.build import embed
from streamsvm.store.write.writer import StoreWriter
job = EmbedJob(**json.loads(sys.argv[1]))
original, count = StoreWriter.append, [0]
def append(*given):
    count[0] += 1
    if count[0] == chunk:
        os.kill(os.getpid(), signal.SIGKILL)
    original(*given)
StoreWriter.append = append
for chunk in map(int, sys.argv[2:]):
    child = os.fork()
    if not child:
        embed(job)
        os._exit(0)
    ended = os.waitpid(child, 0)[1]
    with open(job.embedding + "/journal.json") as journal:
        print(json.dumps([os.waitstatus_to_exitcode(ended), json.load(journal)["progress"]]))
"""
"""Children that are killed, one after the other, at so many chunks; how each ended, and what its journal says is there."""


@pytest.mark.parametrize(("dtype", "suffix"), [("float32", ""), ("int8", ""), ("float32", ".h5store")])
def test_embed_killed_build_goes_on_and_ends_with_the_same_bytes(dense, tmp_path, dtype, suffix):
    a, b = (tmp_path / (name + suffix) for name in "ab")
    settings = {"landmarks": 60, "gamma": 0.3, "chunk_bytes": 4 * 60 * 100, "dtype": dtype}
    straight = embed(EmbedJob(dense, str(a), **settings))
    text = json.dumps({"store": dense, "embedding": str(b), **settings})
    command = [sys.executable, "-c", KILLED, text, "2", "40", "5"]
    killed = subprocess.run(command, cwd=Path.cwd(), check=True, capture_output=True, text=True).stdout
    ended, resumed = zip(*map(json.loads, killed.splitlines()), strict=True)
    assert ended == (-signal.SIGKILL,) * 3
    found = embed(EmbedJob(dense, str(b), **settings))
    assert resumed[0] is None
    assert found.resumed == (resumed[2] or {"rows": 0})["rows"]
    assert found.resumed >= 3200 or suffix  # HDF5: what counts is whole files, and these rows make one
    assert straight.resumed == 0
    assert files_of(a) == files_of(b)


EARLY = """
import os, signal, sys, json
from streamsvm import durable
from streamsvm.jobs.embed import build
from streamsvm.jobs.common_options import EmbedJob
from streamsvm.jobs.embed.build import embed
def killed(*_):
    os.kill(os.getpid(), signal.SIGKILL)
if sys.argv[2] == "map":
    durable.os.replace = killed
else:
    build.column_scale = killed
embed(EmbedJob(**json.loads(sys.argv[1])))
"""


@pytest.mark.parametrize("moment", ["map", "scale"])
def test_embed_build_killed_before_it_has_a_journal_is_begun_again(dense, tmp_path, moment):
    settings: dict[str, Any] = {"landmarks": 60, "gamma": 0.3, "chunk_bytes": CHUNK, "dtype": "int8"}
    text = json.dumps({"store": dense, "embedding": str(tmp_path / "b"), **settings})
    ended = subprocess.run([sys.executable, "-c", EARLY, text, moment], cwd=Path.cwd(), check=False)
    assert ended.returncode == -signal.SIGKILL
    assert any((tmp_path / "b").iterdir())
    embed(EmbedJob(dense, str(tmp_path / "b"), **settings))
    embed(EmbedJob(dense, str(tmp_path / "a"), **settings))
    assert files_of(tmp_path / "a") == files_of(tmp_path / "b")


@pytest.mark.parametrize("executor", [None, SerialExecutor()], ids=["here", "tasks"])
def test_embed_time_limit_ends_what_no_alarm_reaches(dense, tmp_path, executor):
    """In a thread, as in a task of Dask; the same command goes on."""
    late = job(dense, tmp_path / "e", time_limit=1e-9)
    with (
        ThreadPoolExecutor(1) as thread,
        pytest.raises(InterruptedRun, match=r"time limit: .* Resume: streamsvm embed"),
    ):
        thread.submit(embed, late, silent, executor).result()
    assert not (tmp_path / "e" / "manifest.json").exists()
    assert embed(job(dense, tmp_path / "e"), executor=executor).rows == open_store(dense).layout.rows


def test_embed_damaged_map_is_noticed(dense, tmp_path):
    embed(job(dense, tmp_path / "e"))
    path = tmp_path / "e" / "map.safetensors"
    raw = bytearray(path.read_bytes())
    raw[-5] ^= 1
    path.write_bytes(raw)
    with pytest.raises(DataError):
        embed(job(dense, tmp_path / "e"))


# -- fits -------------------------------------------------------------------------------------------------------------


def error_of(model, store: str, truth) -> float:
    X, _ = moons()
    if "sparse" in store:
        X[np.abs(X) < 0.5] = 0.0
    return float(np.mean(model.codes(model.decision(Dense(X))) != truth))


def kernel_fit(store: str, out: Path, **settings):
    defaults = {"kernel": "rbf", "gamma": 0.3, "landmarks": 60, "C": 1.0, "embedding": "fly", "solver": "newton"}
    return fit(FitJob(store, str(out), **{**defaults, **settings}))


@pytest.mark.parametrize("kind", ["dense", "sparse"])
def test_embed_features_on_disk_and_on_the_fly_give_the_same_model(kind, request, tmp_path):
    store = request.getfixturevalue(kind)
    _, y = moons()
    linear = error_of(fit(FitJob(store, str(tmp_path / "l"), solver="newton")).model, store, y)
    fly = kernel_fit(store, tmp_path / "a")
    disk = kernel_fit(store, tmp_path / "b", embedding="disk")
    embed(EmbedJob(store, str(tmp_path / "e"), gamma=0.3, landmarks=60, sampling="greedy"))
    direct = fit(FitJob(str(tmp_path / "e"), str(tmp_path / "c"), solver="newton"))
    primals = [found.training.runs[0].certificate.primal for found in (fly, disk, direct)]
    np.testing.assert_allclose(primals, primals[0], rtol=1e-3)
    errors = [error_of(models.load(tmp_path / name), store, y) for name in "abc"]
    assert max(errors) < linear / 3
    assert max(errors) - min(errors) < 0.005
    assert fly.training.runs[0].certificate.gap <= 1e-3


def test_embed_a_small_fit_has_one_model_however_fast_disk_and_processor_are(dense, tmp_path, monkeypatch):
    for name, seconds, speed in (("a", 1e-12, 1.0), ("b", 1e3, 1e15)):
        monkeypatch.setattr(plan, "measure_map", lambda *_, s=seconds: plan.MapCost(s, s, 1e-9 * s))
        monkeypatch.setattr(machine, "disk_speed", lambda _, v=speed: {"read": v, "write": v})
        kernel_fit(dense, tmp_path / name, embedding="auto")
    assert models.load(tmp_path / "a") == models.load(tmp_path / "b")


@pytest.mark.parametrize("loss", ["hinge", "squared_hinge"])
def test_embed_large_C_is_certified_on_the_fly(loss, tmp_path):
    """Features in float32 times large weights are off by more than the corner is wide: their margins must be mended."""
    rng = np.random.default_rng(0)
    X = rng.random((3000, COLUMNS)).astype(np.float32)
    wave = np.sin(9 * X[:, 0]) * np.sin(7 * X[:, 1])
    y = (wave + 0.3 * rng.normal(size=len(X)) > 0).astype(np.int32)
    store = write(tmp_path / "noisy.zarr", Dense(X), y)
    settings = {"gamma": 2.0, "landmarks": 300, "C": 1e5, "loss": loss, "max_passes": 20, "tolerance": 1e-3}
    found = kernel_fit(store, tmp_path / "m", **settings)
    assert found.training.runs[0].certificate.gap <= 1e-3
    assert found.training.status == Status.CONVERGED


def test_embed_embedding_of_a_fit_is_reused_by_the_next(dense, tmp_path):
    kernel_fit(dense, tmp_path / "m", embedding="disk")
    before = (tmp_path / "m.run" / "embedding.zarr" / "manifest.json").stat().st_mtime_ns
    time.sleep(0.01)
    kernel_fit(dense, tmp_path / "m", embedding="disk", C=0.1, overwrite=True)
    assert (tmp_path / "m.run" / "embedding.zarr" / "manifest.json").stat().st_mtime_ns == before
    kernel_fit(dense, tmp_path / "m", embedding="disk", gamma=0.2, overwrite=True)
    assert (tmp_path / "m.run" / "embedding.zarr" / "manifest.json").stat().st_mtime_ns > before
