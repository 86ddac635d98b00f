"""Numbers by exact kernels: the optimum and the bound against LIBSVM and a linear system, with weights, and what rows at a corner do."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sklearn.svm import SVR

from streamsvm.errors import DataError
from streamsvm.jobs.fit.options import FitJob
from streamsvm.jobs.fit_in_memory import fit_in_memory
from streamsvm.losses import LOSSES
from streamsvm.rows import Dense
from streamsvm.store.views.memory import MemoryStore

GAMMA, EPSILON = 0.5, 0.1


def drawn(seed: int) -> tuple[Any, Any, Any, float]:
    """Rows, numbers, weights with zeros among them, and C."""
    rng = np.random.default_rng(seed)
    rows = int(rng.integers(30, 90))
    X = rng.normal(size=(rows, 3)).astype(np.float32)
    t = (
        10.0 ** rng.uniform(-0.5, 1) * (np.sin(2 * X[:, 0]) + X[:, 1])
        + 0.3 * rng.standard_t(3, size=rows)
        + rng.normal()
    )
    return X, t, rng.choice([0.0, 0.5, 1.0, 3.0], rows).astype(np.float32), float(10.0 ** rng.uniform(-1, 1))


def optimum(loss: str, X: Any, t: Any, s: Any, C: float) -> float:
    """The least P, by LIBSVM (of the square with its bend on the diagonal), or of least squares by their linear system."""
    used = s > 0.0
    Z, t, c = X[used].astype(np.float64), t[used], C * s[used].astype(np.float64)
    K = np.exp(-GAMMA * ((Z[:, None] - Z[None]) ** 2).sum(-1))
    if loss == "squared":
        n = len(t)
        system = np.block([[K + np.diag(0.5 / c), np.ones((n, 1))], [np.ones((1, n)), np.zeros((1, 1))]])
        found = np.linalg.solve(system, np.append(t, 0.0))
        a, b = found[:-1], found[-1]
    else:
        square = loss == "squared_epsilon_insensitive"
        matrix, bound = (K + np.diag(0.5 / c), np.full(len(t), 1e6)) if square else (K, c)
        median = loss == "pinball"  # half the absolute error
        bound, epsilon = (0.5 * bound, 0.0) if median else (bound, EPSILON)
        machine = SVR(kernel="precomputed", C=1.0, epsilon=epsilon, tol=1e-9).fit(matrix, t, sample_weight=bound)
        a = np.zeros(len(t))
        a[machine.support_], b = machine.dual_coef_[0], machine.intercept_[0]
    residual, value = K @ a + b - t, LOSSES[loss]().value
    return float(0.5 * a @ K @ a + sum(w * value(m) for w, m in zip(c, residual.tolist(), strict=True)))


@pytest.mark.parametrize("loss", [name for name in LOSSES if LOSSES[name]().numeric()])
@pytest.mark.parametrize("seed", range(6))
def test_the_optimum_is_that_of_the_others_and_the_bound_below_it(loss: str, seed: int) -> None:
    X, t, s, C = drawn(seed)
    store = MemoryStore(chunk_bytes=400)
    store.append(Dense(X), t, s)
    store.commit((), 3)
    options = {"pool": 40, "working": 16} if seed % 2 else {}  # not all rows fit the pool
    job = FitJob("m", "m", loss=loss, C=C, kernel="rbf", gamma=GAMMA, tolerance=1e-4, max_passes=300, options=options)
    result = fit_in_memory(job, store)
    found, best = result.training.runs[0].certificate, optimum(loss, X, t, s, C)
    assert found is not None
    assert found.gap <= 1e-4
    assert found.dual - found.rounding <= best * (1 + 1e-9)
    assert best * (1 - 1e-6) <= found.primal + found.rounding
    assert found.primal <= best * (1 + 1.5e-4)


def test_numbers_that_are_all_within_the_tube_of_one_are_refused() -> None:
    X, _, _, _ = drawn(0)
    store = MemoryStore()
    store.append(Dense(X), 5.0 + np.linspace(-0.05, 0.05, len(X)), None)
    store.commit((), 3)
    job = FitJob("m", "m", loss="epsilon_insensitive", kernel="rbf", gamma=GAMMA, max_passes=50)
    with pytest.raises(DataError, match="the best function is the same for every row"):
        fit_in_memory(job, store)
