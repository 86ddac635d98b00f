"""One class: nu and C, linear, Nystrom and exact kernels, from a labeled store or one of a class; what goes with it and what does not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from streamsvm.jobs.apply.evaluate import evaluate
from streamsvm.jobs.apply.options import EvaluateJob
from streamsvm.jobs.fit.driver import fit, fit_in_memory
from streamsvm.jobs.fit.options import FitJob
from streamsvm.rows import Dense
from streamsvm.store import create
from streamsvm.store.format.labels import REST
from streamsvm.store.views import MemoryStore
from streamsvm.types import Status

ROWS, COLUMNS = 300, 4


def values() -> tuple[Any, Any]:
    """Rows about a point away from the origin, one in twenty of them somewhere else; 1 for those."""
    rng = np.random.default_rng(5)
    codes = (rng.random(ROWS) < 0.05).astype(np.int32)
    X = rng.normal(size=(ROWS, COLUMNS)) + np.where(codes[:, None] == 1, -2.0, 4.0)
    return X.astype(np.float32), codes


def rows_of(names: tuple[str, ...] = ("good", "bad"), *, offset: float = 0.0) -> MemoryStore:
    X, codes = values()
    store = MemoryStore(name="X", facts={})
    store.append(Dense(X + np.float32(offset)), np.minimum(codes, len(names) - 1), None)
    store.end_chunk()
    return store.commit(names, COLUMNS)


def asked(**settings: Any) -> FitJob:
    return FitJob("", "", one_class=True, **settings)


def share_outside(model: Any, X: Any) -> float:
    return float(np.mean(model.decision_function(X) < 0.0))


@pytest.mark.parametrize(
    "settings",
    [{}, {"standardize": True}, {"kernel": "rbf", "gamma": 0.1, "landmarks": 40}],
    ids=["linear", "scaled", "nystrom"],
)
def test_one_class_share_of_the_rows_is_outside(settings: Any) -> None:
    X, codes = values()
    found = fit_in_memory(asked(nu=0.2, tolerance=1e-4, **settings), rows_of(("one",)))
    assert found.training.status == Status.CONVERGED
    assert found.model.certificate.gap <= 1e-4
    assert share_outside(found.model, X) == pytest.approx(0.2, abs=0.02)
    assert found.model.classes == (REST, "one")
    if "kernel" not in settings:
        assert found.model.decision_function(X)[codes == 1].max() < 0.0


@pytest.mark.parametrize(("pool", "nu"), [(32768, 0.1), (160, 0.3)])
def test_one_class_exact_kernel_has_the_optimum_of_libsvm(nu: float, pool: int) -> None:
    from sklearn.svm import OneClassSVM

    X, _ = values()
    s = np.random.default_rng(1).choice([0.5, 1.0, 2.0], ROWS)
    store = MemoryStore(name="X", facts={})
    store.append(Dense(X), np.zeros(ROWS, np.int32), s.astype(np.float32))
    store.end_chunk()
    options = {"pool": pool, "working": 64}
    job = asked(nu=nu, kernel="rbf", gamma=0.1, tolerance=1e-5, options=options)
    found = fit_in_memory(job, store.commit(("one",), COLUMNS))
    other = OneClassSVM(nu=nu, gamma=0.1, tol=1e-9).fit(X.astype(np.float64), sample_weight=s)
    a, Z = other.dual_coef_[0], X[other.support_].astype(np.float64)
    optimum = -0.5 * a @ np.exp(-0.1 * ((Z[:, None] - Z) ** 2).sum(2)) @ a
    certificate = found.model.certificate
    assert found.plan.solver_name == "decomposition"
    assert certificate.gap <= 1e-5
    assert certificate.dual - certificate.rounding <= optimum * (1 - 1e-8)
    assert certificate.primal + certificate.rounding >= optimum * (1 + 1e-8)
    f = found.model.decision_function(X)
    assert np.abs(f - other.decision_function(X.astype(np.float64))).max() < 0.02 * np.abs(f).max()


@pytest.mark.parametrize("solver", ["newton", "dcd", "blended", "mfw"])
def test_one_class_with_C_it_is_a_problem_for_every_solver(solver: str) -> None:
    """The optimum has sum a_i = 2 P, as P is a parabola along w, and a share of the rows inside."""
    exact = {"kernel": "rbf", "gamma": 0.1} if solver in {"blended", "mfw"} else {}
    found = fit_in_memory(asked(C=0.1, solver=solver, tolerance=1e-3, **exact), rows_of(("one",)))
    X, _ = values()
    f, certificate = found.model.decision_function(X), found.model.certificate
    assert found.training.status == Status.CONVERGED
    a = 2.0 * 0.1 * np.maximum(0.0, -f)  # slopes, at the margin that decision values are counted from
    assert float(a.sum()) == pytest.approx(2.0 * certificate.primal, rel=0.05)


def test_one_class_of_a_labeled_store_the_rows_of_one_class_are_learned_and_all_are_evaluated(tmp_path: Path) -> None:
    X, codes = values()
    writer = create(tmp_path / "store.zarr", sparse=False, chunk_bytes=1024)
    writer.append(Dense(X), codes, None)
    writer.commit(("good", "bad"), COLUMNS, {"names": None})
    store, model = str(tmp_path / "store.zarr"), str(tmp_path / "model.ssvm")
    result = fit(FitJob(store, model, one_class=True, nu=0.1, positive="good", tolerance=1e-4))
    assert result.model.classes == ("bad", "good")
    assert share_outside(result.model, X[codes == 0]) == pytest.approx(0.1, abs=0.02)
    assert evaluate(EvaluateJob(model, (store,))).evaluation.AUC == pytest.approx(1.0, abs=1e-3)
    again = fit(FitJob(store, model, one_class=True, nu=0.1, positive="good", tolerance=1e-4, resume=True))
    np.testing.assert_array_equal(again.model.weights, result.model.weights)
