"""Solvers with a kernel of their own hold no more than their plan says: the rise of memory over a fit, by its terms."""

from __future__ import annotations

import ctypes
import gc
import threading
import time
import tracemalloc
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

import numpy as np
import pytest

from streamsvm.compute.kernel_values.arithmetic import DIFFERENCES
from streamsvm.jobs.fit.driver import fit
from streamsvm.jobs.fit.options import FitJob
from streamsvm.jobs.fit.plan import make_plan
from streamsvm.losses import Hinge, SquaredHinge
from streamsvm.rows import Dense, Reach
from streamsvm.schedule.machine import anonymous_bytes
from streamsvm.solvers.kernel.blended import Blended
from streamsvm.solvers.kernel.decomposition import Decomposition
from streamsvm.solvers.kernel.frank_wolfe import Partan, Swap
from streamsvm.store import create, open_store
from streamsvm.types import Block, Layout
from tests.solvers.kernel_problems import closed, noisy_rows, problem_of

ROWS, COLUMNS = 12_000, 60
BEFORE = ("interpreter and imports", "compiled passes")
"""Terms of a plan that are there, once a fit has been run."""
CASES: list[tuple[str, dict[str, Any]]] = [
    ("decomposition", {}),
    ("decomposition", {"max_support": 500}),
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
    """The most memory there was while it was watched; what was freed before is given back, and counts if taken again."""

    def __enter__(self) -> Self:
        gc.collect()
        ctypes.CDLL(None).malloc_trim(0)
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
def test_kernel_solver_memory_rises_by_what_was_planned(
    solver: str, options: dict[str, Any], stores: tuple[Path, Path]
) -> None:
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


@pytest.mark.parametrize(
    "solver",
    [Decomposition(working=2048), Blended(working=2048), Partan(iterations=60), Swap(iterations=20, sample=194)],
    ids=str,
)
def test_kernel_solver_what_is_solved_in_float64_takes_no_more_than_was_planned(solver: Any) -> None:
    """A kernel so narrow that distances are sums of differences in float64: all that a pass and its end allocate."""
    passes_in_full(solver, 300)  # compiles
    tracemalloc.start()
    planned = passes_in_full(solver, 2048)
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert most <= planned


def passes_in_full(solver: Any, count: int) -> int:
    """Make three passes over rows in one block, and return the bytes that were planned for them."""
    X, y = noisy_rows(count)
    loss = Hinge() if isinstance(solver, Decomposition) else SquaredHinge()
    reach = Reach(X.shape[1], float(np.square(X).sum(1).max()))
    problem = replace(problem_of(X, loss, 1.0, 1e9), reach=reach, tolerance=1e-6)
    cost = solver.cost(problem, Layout(X.shape[1], (count,), None, ("a", "b"), (count // 2, count - count // 2)))
    state, rows = solver.start(problem), {one.name: np.zeros(count) for one in solver.row_state}
    assert state.form.arithmetic == DIFFERENCES
    s, order = np.ones(count, np.float32), np.arange(count, dtype=np.int32)
    for _ in range(3):
        solver.visit(state, Block(Dense(X), y.astype(np.float32), s, 0, 0, order, 0, rows=rows))
        closed(solver, state)
    return int(cost.fixed + (cost.per_row + cost.per_block_row) * count)
