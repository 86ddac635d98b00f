"""The stochastic solvers agree with dual coordinate descent on a9a: all certified intervals hold its optimum."""

from __future__ import annotations

import lzma
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from sklearn.datasets import load_svmlight_file

from streamsvm.engine.local_loop import local_trainer
from streamsvm.engine.loop import RunSettings
from streamsvm.jobs.fit.options import FitJob
from streamsvm.jobs.fit.plan import make_plan
from streamsvm.rows import CSR
from streamsvm.store.views import MemoryStore
from streamsvm.types import Certificate, Stop

LAMBDA = 1e-3
ROUNDING = 1e-6


@pytest.fixture(scope="module")
def a9a(data_file: Callable[[str], Path]) -> MemoryStore:
    with lzma.open(data_file("a9a.xz")) as file:
        X, y = load_svmlight_file(file, n_features=123, dtype=np.float32)
    store = MemoryStore(chunk_bytes=1 << 19)
    store.append(CSR(X.data, X.indices.astype(np.int32), X.indptr.astype(np.int64)), (y > 0).astype(np.int32))
    return store.commit(("-1", "1"), 123)


def certified(store: MemoryStore, solver: str, tolerance: float) -> Certificate:
    job = FitJob("a9a", "model", solver=solver, loss="hinge", lambda_=LAMBDA, tolerance=tolerance)
    plan = make_plan(job, store)
    trainer = local_trainer(store, plan.solver, plan.problems, plan.features, RunSettings(), lambda _: None)
    certificate = trainer.train(Stop(300)).runs[0].certificate
    assert certificate is not None
    assert certificate.exact
    return certificate


@pytest.mark.data
@pytest.mark.slow
def test_stochastic_intervals_hold_the_optimum_of_a9a(a9a: MemoryStore) -> None:
    reference = certified(a9a, "dcd", 1e-3)
    assert reference.gap <= 1e-3
    for solver in ("pegasos", "assg", "sgd", "sgd_qn"):
        found = certified(a9a, solver, 0.02)
        assert found.gap <= 0.02, solver
        assert found.dual <= reference.primal * (1 + ROUNDING), solver
        assert found.primal >= reference.dual * (1 - ROUNDING), solver
