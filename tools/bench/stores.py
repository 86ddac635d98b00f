"""The real data sets as stores, made the way a user would: the same ones for every benchmark of linear solvers."""

from __future__ import annotations

from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from streamsvm.jobs.ingest.options import IngestJob
from streamsvm.jobs.ingest.run import ingest
from streamsvm.jobs.synth.options import SynthJob
from streamsvm.jobs.synth.run import synth
from streamsvm.store import open_store
from tools.measure.datasets import load, stored
from tools.measure.harness import DATA

SCALED = ("flights", "flights0", "kdd99")
"""Sets a fit standardizes; covtype is standardized as it is stored."""
FLIGHTS: dict[str, Any] = {"label": "delay", "categorical": ("origin", "destination"), "calendar": ("date",)}
KDD99: dict[str, Any] = {"label": "last", "header": False, "categorical": ("*",), "positive": "normal."}


def made(name: str, rows: int, directory: Path) -> Any:
    """A store by name: susy (5M rows or as many as said), flights (3M rows, 15 minutes late), flights0 (late at all, 80 % of
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
    elif name == "flights":
        ingest(IngestJob(sources=(DATA / "flights-3m.parquet",), store=path, label_threshold=15.0, **FLIGHTS))
    elif name == "flights0":
        late: dict[str, Any] = {"label_threshold": 1.0, "test_fraction": 0.2, "shuffle": True}
        ingest(IngestJob(sources=(DATA / "flights-3m.parquet",), store=path, **FLIGHTS, **late))
    elif name == "kdd99":
        ingest(IngestJob(sources=(DATA / "kddcup.data_10_percent.gz",), store=path, **KDD99))
    else:
        stored(load(name, path.parent), path)
