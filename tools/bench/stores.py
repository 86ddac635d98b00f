"""The real data sets as stores, made the way a user would: the same ones for every benchmark of linear solvers."""

from __future__ import annotations

from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np

from streamsvm.jobs.ingest.options import IngestJob
from streamsvm.jobs.ingest.run import ingest
from streamsvm.jobs.synth.options import SynthJob
from streamsvm.jobs.synth.run import synth
from streamsvm.rows import Dense
from streamsvm.store import create, open_store, read_chunk
from tools.measure.datasets import load, stored
from tools.measure.harness import DATA

SCALED = ("flights", "flights0", "kdd99")
"""Sets a fit standardizes; covtype is standardized as it is stored."""
FLIGHTS: dict[str, Any] = {"label": "delay", "categorical": ("origin", "destination"), "calendar": ("date",)}
KDD99: dict[str, Any] = {"label": "last", "header": False, "categorical": ("*",), "positive": "normal."}


def made(name: str, rows: int, directory: Path) -> Any:
    """A store by name: susy (5M rows or as many as said), susy0 (its first column, to be predicted from the others), flights (3M rows, 15 minutes late), flights0 (late at all, 80 % of
    the rows, shuffled), kdd99 (one-hot), or one of ``datasets``.

    A process of its own makes it: what that took of memory is not the benchmark's to plan with.
    """
    path = directory / f"{name}.zarr"
    with ProcessPoolExecutor(1, get_context("spawn")) as pool:
        pool.submit(_make, name, rows, path).result()
    return open_store(path)


def _make(name: str, rows: int, path: Path) -> None:
    if name == "susy":
        synth(SynthJob("susy", str(path), rows=rows))
    elif name == "susy0":
        _first_column(rows, path)
    elif name == "flights":
        ingest(IngestJob(sources=(DATA / "flights-3m.parquet",), store=path, label_threshold=15.0, **FLIGHTS))
    elif name == "flights0":
        late: dict[str, Any] = {"label_threshold": 1.0, "test_fraction": 0.2, "shuffle": True}
        ingest(IngestJob(sources=(DATA / "flights-3m.parquet",), store=path, **FLIGHTS, **late))
    elif name == "kdd99":
        ingest(IngestJob(sources=(DATA / "kddcup.data_10_percent.gz",), store=path, **KDD99))
    else:
        stored(load(name, path.parent), path)


def _first_column(rows: int, path: Path) -> None:
    """The first column of susy as numbers, float64, and the others as rows."""
    classes = path.with_suffix(".classes")
    synth(SynthJob("susy", str(classes), rows=rows))
    source = open_store(classes)
    buffers, writer = source.buffers(), create(path, sparse=False)
    for chunk in range(len(source.layout.chunks)):
        X = read_chunk(source, chunk, buffers).X.values
        writer.append(Dense(np.ascontiguousarray(X[:, 1:])), X[:, 0].astype(np.float64), None)
    writer.commit((), source.layout.columns - 1, {"names": None})
