"""The logistic loss: 50 fuzzed sets with weights against scikit-learn, by each solver to its gap, and through the fit job."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

from streamsvm.engine.groups import local_trainer
from streamsvm.engine.loop import RunSettings
from streamsvm.jobs.fit.driver import fit
from streamsvm.jobs.fit.job import FitJob
from streamsvm.jobs.fit.plan import make_plan
from streamsvm.losses import Logistic
from streamsvm.rows import CSR, Dense
from streamsvm.store import create
from streamsvm.store.views import MemoryStore
from streamsvm.types import Certificate, Stop
from tests.axes import each_value


def fuzzed(seed: int) -> tuple[Any, Any, Any, float]:
    """Rows with columns of several scales, class codes, weights (0 among them) and C."""
    rng = np.random.default_rng(seed)
    n, d = int(rng.integers(40, 300)), int(rng.integers(1, 7))
    X = (rng.normal(size=(n, d)) * 10.0 ** rng.integers(-1, 2, d)).astype(np.float32)
    codes = (X[:, 0] / np.abs(X[:, 0]).max() + 0.4 * rng.normal(size=n) > 0.1).astype(np.int32)
    codes[:2] = 0, 1
    s = rng.choice([0.0, 0.5, 1.0, 3.0], n).astype(np.float32)
    s[:2] = 1.0
    return X, codes, s, 10.0 ** float(rng.integers(-3, 3))


def store_of(X: Any, codes: Any, s: Any) -> MemoryStore:
    dense = isinstance(X, np.ndarray)
    store = MemoryStore(chunk_bytes=1000 if dense else 20_000)
    store.append(Dense(X) if dense else CSR(X.data, X.indices.astype(np.int32), X.indptr.astype(np.int64)), codes, s)
    return store.commit(("-1", "1"), X.shape[1])


def certified(
    solver: str, X: Any, codes: Any, s: Any, C: float, tolerance: float, **options: Any
) -> tuple[Certificate, Any]:
    """The last certificate and the weights."""
    store = store_of(X, codes, s)
    job = FitJob("memory", "model", solver=solver, loss="logistic", C=C, tolerance=tolerance, options=options)
    plan = make_plan(job, store)
    trainer = local_trainer(store, plan.solver, plan.problems, plan.features, RunSettings(depth=0), lambda _: None)
    run = trainer.train(Stop(400)).runs[0]
    assert run.certificate is not None
    return run.certificate, plan.solver.solution(run.state).w


def value(X: Any, codes: Any, s: Any, C: float, w: Any) -> float:
    """P(w), from its definition."""
    m = (2.0 * codes - 1.0) * (X.astype(np.float64) @ w[:-1] + w[-1])
    return float(0.5 * w @ w + C * s.astype(np.float64) @ np.logaddexp(0.0, -m))


@each_value(("seed", range(8)), ("solver, tolerance", [("newton", 1e-12), ("interior_point", 1e-10), ("dcd", 1e-4)]))
def test_logistic_optimum_is_that_of_scikit_learn(seed: int, solver: str, tolerance: float) -> None:
    from sklearn.linear_model import LogisticRegression

    X, codes, s, C = fuzzed(seed)
    found, w = certified(solver, X, codes, s, C, tolerance)
    other = LogisticRegression(C=C, solver="newton-cholesky", tol=1e-12, fit_intercept=False)
    other.fit(np.column_stack([X.astype(np.float64), np.ones(len(X))]), codes, sample_weight=s.astype(np.float64))
    optimum = value(X, codes, s, C, other.coef_[0])
    assert found.dual <= optimum * (1 + 1e-12)
    assert found.primal == pytest.approx(value(X, codes, s, C, w), rel=1e-11)
    assert optimum * (1 - 1e-12) <= found.primal
    if solver != "dcd" or C < 0.05:  # coordinates take more passes for a large C
        assert found.gap <= tolerance
        assert found.primal <= optimum * (1 + tolerance)


@pytest.mark.parametrize("sparse", [False, True], ids=["matrix", "products"])
def test_logistic_sample_leads_newton_to_the_optimum_of_all_rows(sparse: bool) -> None:
    """Where rows do not fit: a model with a matrix, and beyond 1,500 sparse columns one solved by conjugate gradients."""
    rng = np.random.default_rng(3)
    rows, columns = (4000, 1600) if sparse else (12_000, 6)
    X = sp.random(rows, columns, density=0.01, format="csr", random_state=3, dtype=np.float32) if sparse else None
    X = (rng.normal(size=(rows, columns)) * 10.0 ** rng.integers(-1, 2, columns)).astype(np.float32) if X is None else X
    score = X @ rng.normal(size=columns)
    codes = (score + score.std() * rng.normal(size=rows) > 0.0).astype(np.int32)
    s = rng.choice([0.0, 0.5, 1.0, 3.0], rows).astype(np.float32)
    best, _ = certified("newton", X, codes, s, 1.0, 1e-10)
    found, w = certified("newton", X, codes, s, 1.0, 1e-3, sample=rows // 2 if sparse else 2500)
    assert best.gap <= 1e-10
    assert "rows" not in found.facts  # a sample it was: nothing was solved with all rows in memory
    assert found.gap <= 1e-3
    assert found.dual <= best.primal * (1.0 + 1e-12)
    assert best.dual * (1.0 - 1e-12) <= found.primal
    assert found.primal == pytest.approx(value(X, codes, s, 1.0, w), rel=1e-11)


@pytest.mark.parametrize("kernel", [{}, {"kernel": "rbf", "gamma": 0.5, "landmarks": 30}])
def test_logistic_auto_solves_and_decision_values_are_log_odds(tmp_path: Path, kernel: dict[str, Any]) -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(4000, 3)).astype(np.float32)
    odds = 1.5 * X[:, 0] - X[:, 1]
    codes = (rng.random(4000) < 1.0 / (1.0 + np.exp(-odds))).astype(np.int32)
    writer = create(tmp_path / "s", sparse=False)
    writer.append(Dense(X), codes, None)
    writer.commit(("no", "yes"), 3, {"names": None})
    result = fit(FitJob(str(tmp_path / "s"), str(tmp_path / "m"), loss="logistic", C=1.0, **kernel))
    assert result.plan.solver_name == "newton"
    certificate = result.training.runs[0].certificate
    assert certificate is not None
    assert certificate.gap <= 1e-3
    decision = result.model.decision(Dense(X))[:, 0]
    near = np.abs(odds) < 2.0
    assert np.abs(decision - odds)[near].mean() < 0.25


def test_logistic_far_margins_neither_overflow_nor_lose_the_tail() -> None:
    loss = Logistic()
    assert loss.value(-1e5) == 1e5
    assert loss.value(1e5) == 0.0
    assert loss.slope(-1e5) == -1.0
    assert loss.slope(1e5) == 0.0
    assert loss.value(40.0) == pytest.approx(np.exp(-40.0), rel=1e-12)
    assert loss.slope(40.0) == pytest.approx(-np.exp(-40.0), rel=1e-12)
