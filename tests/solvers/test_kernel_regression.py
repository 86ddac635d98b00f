"""Numbers by exact kernels: the optimum and the bound against LIBSVM and a linear system, with weights; rows at a corner; and by
way of a store, a run and a model what ``tests/contract/test_kernel_solvers.py`` has of classes.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.svm import SVR

from streamsvm import model as models
from streamsvm.engine.checkpoint import Decoder, Encoder
from streamsvm.engine.groups import local_trainer
from streamsvm.engine.loop import RunSettings
from streamsvm.errors import DataError, UsageError
from streamsvm.jobs.fit.driver import FitResult, fit, fit_in_memory
from streamsvm.jobs.fit.job import FitJob
from streamsvm.jobs.fit.plan import make_plan
from streamsvm.losses import LOSSES
from streamsvm.rows import Dense
from streamsvm.solvers import SOLVERS, losses_of
from streamsvm.store import create, open_store
from streamsvm.store.views import MemoryStore
from streamsvm.types import Status, Stop
from tests.axes import each_value

GAMMA, EPSILON = 0.5, 0.1
NUMERIC = [name for name in LOSSES if LOSSES[name]().numeric()]
KERNEL = [name for name in SOLVERS if SOLVERS[name]().exact_kernel]
each_case = pytest.mark.parametrize(
    ("solver", "loss"), [(solver, loss) for solver in KERNEL for loss in losses_of(solver) if loss in NUMERIC]
)


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


@each_value(("loss", NUMERIC), ("seed", range(6)))
def test_kernel_regression_optimum_is_that_of_the_others_and_the_bound_below_it(loss: str, seed: int) -> None:
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


@pytest.mark.parametrize(
    ("solver", "loss"),
    [(one, loss) for one in KERNEL for loss in ("epsilon_insensitive", "squared") if loss in losses_of(one)],
)
def test_kernel_regression_targets_far_from_0_are_the_same_problem(solver: str, loss: str) -> None:
    """The intercept is free: what all targets have in common is its own, P and D are not touched by it."""
    X, t, s, C = drawn(3)
    found = []
    for far in (0.0, 1e6):
        store = MemoryStore(chunk_bytes=400)
        store.append(Dense(X), np.float64(far) + t, s)
        store.commit((), 3)
        job = FitJob("m", "m", solver=solver, loss=loss, C=C, kernel="rbf", gamma=GAMMA, tolerance=1e-4)
        found.append(fit_in_memory(job, store))
    near, away = (result.training.runs[0].certificate for result in found)
    assert near is not None
    assert away is not None
    assert max(near.gap, away.gap) <= 1e-4
    assert away.rounding <= 10.0 * near.rounding
    assert max(near.dual, away.dual) <= min(near.primal, away.primal) * (1 + 1e-8)
    np.testing.assert_allclose(found[1].model.predict(X) - 1e6, found[0].model.predict(X), atol=1e-2)


def test_kernel_regression_numbers_that_are_all_within_the_tube_of_one_are_refused() -> None:
    X, _, _, _ = drawn(0)
    store = MemoryStore()
    store.append(Dense(X), 5.0 + np.linspace(-0.05, 0.05, len(X)), None)
    store.commit((), 3)
    job = FitJob("m", "m", loss="epsilon_insensitive", kernel="rbf", gamma=GAMMA, max_passes=50)
    with pytest.raises(DataError, match="the best function is the same for every row"):
        fit_in_memory(job, store)


@pytest.mark.parametrize("solver", ["decomposition", "kernel_active_set"])
def test_kernel_regression_fit_of_numbers_that_is_cut_short_says_so(solver: str) -> None:
    """No row has a coefficient after one pass of decomposition; what active sets have found is not certified yet."""
    X, t = smooth_rows()
    store = MemoryStore()
    store.append(Dense(X), t, None)
    store.commit((), 3)
    given: dict[str, Any] = {"loss": "epsilon_insensitive", "kernel": "rbf", "gamma": GAMMA, "solver": solver}
    if solver == "decomposition":
        with pytest.raises(UsageError, match="before any row had a coefficient") as caught:
            fit_in_memory(FitJob("m", "m", max_passes=1, **given), store)
        assert "allow more passes" in str(caught.value.hint)
        return
    first, last = (fit_in_memory(FitJob("m", "m", max_passes=passes, **given), store) for passes in (1, 3))
    cut, found = (result.training.runs[0].certificate for result in (first, last))
    assert cut is not None
    assert found is not None
    assert (first.training.status, last.training.status) == (Status.PASSES, Status.CONVERGED)
    assert (cut.exact, cut.primal, cut.dual) == (False, found.primal, found.dual)
    assert found.primal > 1.0


def smooth_rows() -> tuple[Any, Any]:
    """Rows whose numbers are a smooth function and noise."""
    rng = np.random.default_rng(3)
    X = rng.normal(size=(240, 3)).astype(np.float32)
    return X, 5.0 + np.sin(2 * X[:, 0]) + X[:, 1] + 0.1 * rng.normal(size=len(X))


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Smooth rows on disk."""
    X, t = smooth_rows()
    path = tmp_path_factory.mktemp("numbers") / "store"
    writer = create(path, sparse=False, chunk_bytes=1000)
    writer.append(Dense(X), t, None)
    writer.commit((), 3, {"names": None})
    return path


def job_of(solver: str, loss: str, store: Path, **more: Any) -> FitJob:
    """A pool that holds a third of the rows, where the solver has one."""
    options = {"pool": 80, "working": 32} if solver == "decomposition" else {}
    settings: dict[str, Any] = {"kernel": "rbf", "gamma": GAMMA, "C": 2.0, "overwrite": True, **more}
    return FitJob(str(store), f"{store}.{solver}.{loss}", solver=solver, loss=loss, options=options, **settings)


@pytest.fixture(scope="module")
def read_ahead(store: Path) -> Callable[[str, str], FitResult]:
    """The fit that reads three blocks ahead."""
    return cache(lambda solver, loss: fit(job_of(solver, loss, store, prefetch=3)))


@each_case
def test_kernel_regression_fit_ends_certified_and_its_model_is_the_function(
    solver: str, loss: str, read_ahead: Callable[[str, str], FitResult]
) -> None:
    result = read_ahead(solver, loss)
    certificate, again = result.training.runs[0].certificate, models.load(Path(str(result.run).removesuffix(".run")))
    assert certificate is not None
    assert certificate.exact
    assert certificate.dual <= certificate.primal * (1.0 + 1e-6)
    assert certificate.final or certificate.gap <= 1e-3
    X, t = smooth_rows()
    predicted = again.predict(X)
    np.testing.assert_array_equal(predicted, result.model.predict(X))
    assert np.mean((predicted - t) ** 2) < 0.1 * t.var()
    value = LOSSES[loss]().value
    solution = result.plan.solver.solution(result.training.runs[0].state)
    a, Z = solution.coefficients, X[solution.numbers].astype(np.float64)
    K = np.exp(-GAMMA * ((Z[:, None] - Z[None]) ** 2).sum(-1))
    costs = sum(value(m) for m in (predicted - t).tolist())
    assert certificate.primal == pytest.approx(0.5 * a @ K @ a + 2.0 * costs, rel=1e-5)


@each_case
def test_kernel_regression_state_survives_a_checkpoint(solver: str, loss: str, store: Path) -> None:
    opened = open_store(str(store))
    plan = make_plan(job_of(solver, loss, store), opened)
    trainer = local_trainer(opened, plan.solver, plan.problems, plan.features, RunSettings(), lambda event: None)
    state = trainer.train(Stop(max_passes=6)).runs[0].state  # the first pass shows all rows on one side of 0
    encoder = Encoder()
    tree = encoder.encode(deepcopy(state))
    restored = Decoder(encoder.tensors.__getitem__).decode(tree)
    one, other = (plan.solver.solution(s) for s in (state, restored))
    assert len(one.coefficients) > 0
    np.testing.assert_array_equal(one.coefficients, other.coefficients)
    np.testing.assert_array_equal(one.numbers, other.numbers)
