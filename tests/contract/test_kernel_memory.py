"""Solvers with a kernel of their own hold no more than their plan says: the rise of memory over a fit, by its terms."""

from __future__ import annotations

import gc
import threading
import time
from pathlib import Path
from typing import Any, Self

import numpy as np
import pytest

from streamsvm.jobs.fit.options import FitJob
from streamsvm.jobs.fit.plan import make_plan
from streamsvm.jobs.fit.run import fit
from streamsvm.rows import Dense
from streamsvm.schedule.budget import anonymous_bytes
from streamsvm.store import create, open_store

ROWS, COLUMNS = 40_000, 60
BEFORE = ("interpreter and imports", "compiled passes")
"""Terms of a plan that are there, once a fit has been run."""
CASES: list[tuple[str, dict[str, Any]]] = [
    ("decomposition", {}),
    ("decomposition", {"pool": 6000}),
    ("decomposition", {"max_support": 500}),
    ("blended", {"pool": 8000}),
    ("blended", {"pool": 4000, "max_support": 500}),
    ("partan", {"iterations": 150, "cache": 16 << 20}),
    ("partan", {"iterations": 150, "sample": 194}),
]


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The rows, and so many of them that a fit compiles all it needs."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(ROWS, COLUMNS)).astype(np.float32)
    codes = (X[:, 0] + X[:, 1] ** 2 + 0.3 * rng.normal(size=ROWS) > 1.0).astype(np.int32)
    paths = []
    for rows in (ROWS, 5000):
        path = tmp_path_factory.mktemp("store") / "s"
        writer = create(path, sparse=False, chunk_bytes=1 << 20)
        writer.append(Dense(X[:rows]), codes[:rows], None)
        writer.commit(("a", "b"), COLUMNS, {"names": None})
        paths.append(path)
    return paths[0], paths[1]


class Peak:
    """The most memory there was while it was watched."""

    def __enter__(self) -> Self:
        gc.collect()
        self.before = self.most = anonymous_bytes()
        self.over = threading.Event()
        self.thread = threading.Thread(target=self._watch, daemon=True)
        self.thread.start()
        return self

    def _watch(self) -> None:
        while not self.over.is_set():
            self.most = max(self.most, anonymous_bytes())
            time.sleep(0.002)

    def __exit__(self, *outcome: object) -> None:
        self.over.set()
        self.thread.join()


@pytest.mark.parametrize(("solver", "options"), CASES, ids=str)
def test_memory_rises_by_what_was_planned(solver: str, options: dict[str, Any], stores: tuple[Path, Path]) -> None:
    loss = "hinge" if solver == "decomposition" else "squared_hinge"
    settings: dict[str, Any] = {
        "kernel": "rbf",
        "gamma": 0.01,
        "C": 0.1,
        "overwrite": True,
        "max_passes": 3,
        "tolerance": 0.1,
    }
    warm, job = (
        FitJob(str(path), f"{path}.model", solver=solver, options=options, loss=loss, **settings)
        for path in stores[::-1]
    )
    fit(warm)
    memory = make_plan(job, open_store(job.store)).memory
    planned = sum(term.nbytes for term in memory.terms if term.name not in BEFORE)
    with Peak() as peak:
        fit(job)
    assert peak.most - peak.before <= planned
