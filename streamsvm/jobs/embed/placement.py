"""Features on disk or on the fly: estimated from rates measured here and now, and reported in the plan."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Protocol

import numpy as np
from threadpoolctl import threadpool_limits

from streamsvm.aliases import JsonObject, RowRecord
from streamsvm.rows import Dense
from streamsvm.schedule import budget
from streamsvm.types import Store

if TYPE_CHECKING:
    from streamsvm.jobs.embed.kernel_request import NystromRequest

DISK, FLY, AUTO = "disk", "fly", "auto"
DTYPES = {"float32": 4, "float16": 2, "int8": 1}
PROBE_ROWS = 512
"""Rows on which the cost of the map is measured."""
FREE_DISK_FACTOR = 2
"""How many times the embedding must fit on the disk before it is written without being asked for."""
PASSES_UNLESS_STATED = 30
"""Passes that are assumed for a solver that does not say how many it expects."""


@dataclass(frozen=True, slots=True)
class Choice:
    """Where the features live, and the figures that decided it; all times in seconds."""

    where: str
    """'disk' or 'fly'."""
    why: str
    """The reason, in words."""
    dtype: str
    """The type of the features on disk."""
    map_seconds: float = 0.0
    """One pass of making the features, as far as the solver needs them."""
    read_seconds: float = 0.0
    """One pass of reading the features instead, or of computing with them, whichever takes longer."""
    write_seconds: float = 0.0
    """Writing the features once."""
    passes: int = 0
    """The number of passes the choice was made for."""

    def facts(self) -> JsonObject:
        """Return the choice as plain JSON."""
        seconds = {"map": self.map_seconds, "read": self.read_seconds, "write": self.write_seconds}
        return {"where": self.where, "why": self.why, "dtype": self.dtype, "passes": self.passes, "seconds": seconds}


class PlacedJob(Protocol):
    """A fit, as far as the place of its kernel features depends on it."""

    @property
    def embedding(self) -> str:
        """Where the features are to be: ``disk``, ``fly`` or ``auto``."""
        ...

    @property
    def embedding_dtype(self) -> str:
        """The element type of features on disk, a name of ``DTYPES``."""
        ...

    @property
    def model(self) -> str:
        """The path of the model, beside which features on disk lie."""
        ...

    @property
    def memory(self) -> int | None:
        """The bytes the fit may hold; None: as many as the machine allows."""
        ...


def choose_embedding(job: PlacedJob, store: Store, request: NystromRequest, expected: tuple[int, int] | None) -> Choice:
    """Choose disk or fly for a fit that expects so many passes, and features of so many rows in all of them.

    On the fly a pass makes kernel values of all rows, and the features asked for; on disk all features are made once.
    ``expected`` is None for a solver that takes all rows as features, in passes by the dozen.
    """
    from streamsvm.jobs.inspect import disk_speed

    if job.embedding != AUTO:
        return Choice(job.embedding, "asked for", job.embedding_dtype)
    layout, m = store.layout, request.landmarks
    if probe_bytes(layout.columns, m) > budget.memory_limit(job.memory) - budget.anonymous_bytes():
        return Choice(DISK, "not measured: the map alone is more than the memory", job.embedding_dtype)
    rows, cost = layout.rows, measured_map(layout.columns, request)
    if expected is None:
        passes, fly = PASSES_UNLESS_STATED, PASSES_UNLESS_STATED * rows * (cost.features + cost.look)
    else:
        passes, formed = expected
        fly = passes * rows * cost.through_pair + formed * cost.features
    disk = disk_speed(Path(job.model).parent)
    nbytes = rows * m * DTYPES[job.embedding_dtype]
    cached = nbytes <= budget.page_cache_bytes(budget.memory_limit(job.memory))
    write, read = nbytes / disk["write"], max(nbytes / (disk["read"] * (4 if cached else 1)), rows * cost.look)
    from_disk = max(rows * cost.features, write) + passes * read
    room = shutil.disk_usage(Path(job.model).parent).free > FREE_DISK_FACTOR * nbytes
    where = DISK if from_disk < fly and room else FLY
    why = f"in {passes} passes an estimated {fly:.3g} s on the fly, {from_disk:.3g} s on disk" + (
        "" if room else ": no room"
    )
    return Choice(where, why, job.embedding_dtype, fly / passes, read, write, passes)


class MapCost(NamedTuple):
    """What the map costs, in seconds for each row."""

    through_pair: float
    """Making kernel values, and computing with the row through them."""
    features: float
    """Making the row's features."""
    look: float
    """Computing with features that are there."""


def probe_bytes(columns: int, landmarks: int) -> int:
    """Bytes that ``measured_map`` takes: landmarks twice, a projection, kernel values and features of a few rows."""
    return 4 * (2 * landmarks * columns + landmarks**2 + PROBE_ROWS * (columns + 2 * landmarks))


def measured_map(columns: int, request: NystromRequest) -> MapCost:
    """Measure what making features and computing with them cost here and now, on random rows of that size."""
    from streamsvm.compute.blocks.operators import Factored, adjoint, margins
    from streamsvm.compute.kernel_values.gram import kernel_block, points_of
    from streamsvm.features.nystrom import part_rows

    m, random = request.landmarks, np.random.default_rng(0)
    X = Dense(random.random((PROBE_ROWS, columns), np.float32))
    points, W = points_of(random.random((m, columns), np.float32)), random.random((m, m), np.float32)
    values, features = (np.empty((PROBE_ROWS, m), np.float32) for _ in range(2))
    w = np.zeros(m + 1)

    def look(block: RowRecord) -> None:
        adjoint(block, margins(block, w) + 1.0, m)

    def through_pair() -> None:
        kernel_block(X, points, request.record, values)
        look(Factored(values, W))

    def in_full() -> None:
        kernel_block(X, points, request.record, values)
        np.matmul(values, W, out=features)

    runs = (through_pair, lambda: look(Factored(values[:1], W)), in_full, lambda: look(Dense(features)))
    with threadpool_limits(1):
        pair, lifting, full, there = (_seconds(run) for run in runs)
    # W w and W'(sum a k) are paid once a part, whatever its rows
    through_pair_each = max(there, pair - lifting) / PROBE_ROWS + lifting / part_rows(m)
    return MapCost(through_pair_each, full / PROBE_ROWS, there / PROBE_ROWS)


def _seconds(action: Callable[[], object]) -> float:
    """The best of three runs, after one that may compile; of this thread, so that a busy machine changes little."""
    action()
    times = []
    for _ in range(3):
        began = time.thread_time()
        action()
        times.append(time.thread_time() - began)
    return min(times)
