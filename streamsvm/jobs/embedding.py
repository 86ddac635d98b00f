"""Features on disk or on the fly: estimated from rates measured here and now, said in the plan."""

from __future__ import annotations

import shutil
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from streamsvm.compute.gram import kernel_block, points_of
from streamsvm.compute.operators import Factored, adjoint, margins
from streamsvm.errors import UsageError
from streamsvm.jobs.doctor import disk_speed
from streamsvm.jobs.nystrom import THROUGH_OPERATORS, NystromRequest
from streamsvm.rows import Dense
from streamsvm.schedule import budget
from streamsvm.types import Store

DISK, FLY, AUTO = "disk", "fly", "auto"
DTYPES = {"float32": 4, "float16": 2, "int8": 1}
PROBE_ROWS = 512
SPARE = 2
"""How many times the embedding must fit on the disk before it is written without being asked for."""
PASSES = {"newton": 10}
SECOND_ORDER_SHARE = 0.3
"""Of the rows whose features a solver needs in full although it sees them through operators: those that bend."""
USUAL_PASSES = 30
"""Expected of a solver that is not named above."""


@dataclass(frozen=True, slots=True)
class Choice:
    """Where the features live, and the figures that decided it; all times in seconds."""

    where: str
    why: str
    dtype: str
    map_seconds: float = 0.0
    """One pass of making the features."""
    read_seconds: float = 0.0
    """One pass of reading them instead."""
    write_seconds: float = 0.0
    passes: int = 0

    def facts(self) -> dict[str, Any]:
        """The choice as plain JSON."""
        seconds = {"map": self.map_seconds, "read": self.read_seconds, "write": self.write_seconds}
        return {"where": self.where, "why": self.why, "dtype": self.dtype, "passes": self.passes, "seconds": seconds}


def choose_embedding(job: Any, store: Store, request: NystromRequest, solver: str) -> Choice:
    """Disk or fly for a fit. Raises UsageError."""
    if job.embedding not in (DISK, FLY, AUTO):
        raise UsageError(f"there is no embedding '{job.embedding}'", hint="choose from auto, disk, fly")
    if job.embedding_dtype not in DTYPES:
        raise UsageError(f"there is no embedding dtype '{job.embedding_dtype}'", hint=f"one of {', '.join(DTYPES)}")
    if job.embedding != AUTO:
        return Choice(job.embedding, "asked for", job.embedding_dtype)
    layout, m = store.layout, request.landmarks
    rows, passes = layout.rows, PASSES.get(solver, USUAL_PASSES)
    visited, mapped = measured_map(layout.columns, request, factored=solver in THROUGH_OPERATORS)
    disk = disk_speed(Path(job.model).parent)
    nbytes = rows * m * DTYPES[job.embedding_dtype]
    cached = nbytes <= budget.page_cache_bytes(budget.memory_limit(job.memory))
    read, write = nbytes / (disk["read"] * (4 if cached else 1)), nbytes / disk["write"]
    fly = passes * rows * visited
    kept = rows * mapped + write + passes * read
    room = shutil.disk_usage(Path(job.model).parent).free > SPARE * nbytes
    where = DISK if kept < fly and room else FLY
    why = f"in {passes} passes an estimated {fly:.3g} s on the fly, {kept:.3g} s on disk" + (
        "" if room else ": no room"
    )
    return Choice(where, why, job.embedding_dtype, rows * visited, read, write, passes)


def measured_map(columns: int, request: NystromRequest, *, factored: bool) -> tuple[float, float]:
    """Seconds a row to visit features made on the fly, and to make them in full, on random rows of that size."""
    m, random = request.landmarks, np.random.default_rng(0)
    X = Dense(random.random((PROBE_ROWS, columns), np.float32))
    points, W = points_of(random.random((m, columns), np.float32)), random.random((m, m), np.float32)
    values, features = (np.empty((PROBE_ROWS, m), np.float32) for _ in range(2))
    w, a = np.zeros(m + 1), np.zeros(PROBE_ROWS)

    def through_operators() -> None:
        kernel_block(X, points, request.record, values)
        block = Factored(values, W)
        adjoint(block, a + margins(block, w), m)

    def in_full() -> None:
        kernel_block(X, points, request.record, values)
        np.matmul(values, W, out=features)

    with threadpool_limits(1):
        full = _seconds(in_full) / PROBE_ROWS
        if not factored:
            return full, full
        seen = _seconds(through_operators) / PROBE_ROWS
        return seen + SECOND_ORDER_SHARE * full, full


def _seconds(action: Any) -> float:
    """The best of three runs, after one that may compile; of this thread, so that a busy machine changes little."""
    action()
    times = []
    for _ in range(3):
        began = time.thread_time()
        action()
        times.append(time.thread_time() - began)
    return min(times)
