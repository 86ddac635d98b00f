"""Stores and models that somebody has changed and sealed again: refused, or read without harm."""

from __future__ import annotations

import json
import random
import shutil
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import safe_open
from safetensors.numpy import save

from streamsvm import model as models
from streamsvm.jobs.fit.options import FitJob
from streamsvm.jobs.fit.run import fit
from streamsvm.jobs.inspect import info
from streamsvm.rows import CSR, Dense
from streamsvm.store import create, open_store, read_chunk
from streamsvm.store.format import manifest as manifests
from tools.fuzz.mutations import changed
from tools.fuzz.structures import Trial

ROWS, COLUMNS = 60, 3


def small_store(path: Path, *, sparse: bool) -> str:
    """Two classes that overlap, in a few chunks."""
    X = np.random.default_rng(0).normal(size=(ROWS, COLUMNS)).astype(np.float32)
    writer = create(path, sparse=sparse, chunk_bytes=512)
    whole = CSR(X.ravel(), np.tile(np.arange(COLUMNS, dtype=np.int32), ROWS), np.arange(ROWS + 1) * COLUMNS)
    writer.append(whole if sparse else Dense(X), (X[:, 0] + 0.7 * X[:, 1] > 0).astype(np.int32), None)
    writer.commit(("0", "1"), COLUMNS, {"names": ["a", "b", "c"]})
    return str(path)


def manifest(scratch: Path) -> Trial:
    """The manifest of a store, changed and sealed again; then all is read, told and trained on."""
    stores = [Path(small_store(scratch / name, sparse="s" in name)) for name in ("d.zarr", "s.zarr", "d.h5", "s.h5")]
    bodies = [json.loads((store / manifests.FILE).read_text())["manifest"] for store in stores]
    copy = scratch / "copy"

    def trial(draw: random.Random) -> str:
        number = draw.randrange(len(stores))
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(stores[number], copy)
        body = changed(bodies[number], draw)
        body = changed(body, draw) if draw.random() < 0.3 else body
        raw = json.dumps(body, separators=(",", ":")).encode()
        (copy / manifests.FILE).write_bytes(manifests.sealed(raw))
        store = open_store(copy)
        buffers = store.buffers()
        for chunk in range(len(store.layout.chunks)):
            read_chunk(store, chunk, buffers)
        store.statistics()
        info(copy)
        fit(FitJob(str(copy), str(scratch / "m"), max_passes=2, memory=400 << 20, overwrite=True))
        return "read and trained on"

    return trial


def model(scratch: Path) -> Trial:
    """The header of a model, changed and sealed again; then it is loaded, told and asked."""
    store = small_store(scratch / "s.zarr", sparse=False)
    fit(FitJob(store, str(scratch / "linear")))
    fit(FitJob(store, str(scratch / "nystrom"), kernel="rbf", landmarks=5, standardize=True))
    fit(FitJob(store, str(scratch / "kernel"), kernel="polynomial", kernel_options={"degree": 2.0}))
    made = [_taken_apart(scratch / name) for name in ("linear", "nystrom", "kernel")]
    rows = Dense(np.ones((4, COLUMNS), np.float32))

    def trial(draw: random.Random) -> str:
        header, tensors = draw.choice(made)
        text = json.dumps(changed(header, draw), sort_keys=True)
        if draw.random() < 0.3:
            name = draw.choice(list(tensors))
            tensors = {**tensors, name: _harmed(tensors[name], draw)}
        path = scratch / "changed"
        path.write_bytes(save(tensors, {"header": text, "sha256": models.hash_model(text, tensors)}))
        found = models.load(path)
        info(path)
        if found.columns == COLUMNS:
            decision = found.decision(rows)
            assert len(decision) == 4
            found.codes(decision)
        return "loaded"

    return trial


def _taken_apart(path: Path) -> tuple[Any, dict[str, Any]]:
    with safe_open(str(path), framework="np") as file:
        return json.loads(file.metadata()["header"]), {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118


def _harmed(array: Any, draw: random.Random) -> Any:
    """Another shape, another type, or numbers that are none."""
    ways = (
        lambda: array[:0],
        array.ravel,
        lambda: array.astype(np.float16 if array.dtype.kind == "f" else np.int8),
        lambda: np.full_like(array, np.nan) if array.dtype.kind == "f" else array - 1000,
        array[..., :1].copy,
    )
    return np.ascontiguousarray(draw.choice(ways)())
