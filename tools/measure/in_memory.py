"""Runs of a linear solver on rows in memory, without files: what a method takes, and nothing else."""

from __future__ import annotations

from typing import Any

import numpy as np

from streamsvm.engine.local import local_trainer
from streamsvm.engine.trainer import FitLoop, RunSettings
from streamsvm.jobs.fit.options import FitJob
from streamsvm.jobs.fit.planning.plan import make_plan
from streamsvm.rows import CSR, Dense
from streamsvm.store.views.memory import MemoryStore
from streamsvm.types import Certificate, Stop, silent
from tools.measure.datasets import Data

WHOLE = 1 << 40
"""Bytes of a block that any set fits in."""


def store_of(data: Data, chunk: int = WHOLE) -> MemoryStore:
    """The rows in random order, in blocks of so many bytes."""
    order = np.random.default_rng(1).permutation(data.rows)
    X, store = data.X[order], MemoryStore(chunk)
    rows = Dense(X) if isinstance(X, np.ndarray) else CSR(X.data, X.indices.astype(np.int32), X.indptr.astype(np.int64))
    store.append(rows, (data.y[order] > 0).astype(np.int32))
    return store.commit(("-1", "1"), X.shape[1])


def trainer_of(store: MemoryStore, report: Any = silent, **job: Any) -> FitLoop:
    """A fit of these settings on the store, not yet begun."""
    asked = FitJob("memory", "none", **job)
    plan = make_plan(asked, store)
    return local_trainer(store, plan.solver, plan.problems, plan.features, RunSettings(depth=0), report)


def certificate_of(trainer: FitLoop, stop: Stop) -> tuple[Certificate, int]:
    """The last certificate, and how many readings led to it."""
    result = trainer.train(stop)
    certificate = result.runs[0].certificate
    assert certificate is not None
    return certificate, result.passes
