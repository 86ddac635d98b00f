"""One class with a free offset, and two classes by nu: the optimum of LIBSVM with few rows kept, and bounds that hold for any weights."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from sklearn.svm import NuSVC

from streamsvm.errors import UsageError
from streamsvm.jobs.fit.driver import fit_in_memory
from streamsvm.jobs.fit.options import FitJob
from streamsvm.rows import Dense
from streamsvm.solvers.evaluation import PointSums
from streamsvm.solvers.interior_point_out_of_core import InteriorPoint
from streamsvm.solvers.nu import UNIT_HINGE, NuClasses, NuMargin, primal_of_weights
from streamsvm.solvers.one_class import HINGE_AT_ZERO, OFFSET, FreeOffset, OffsetObjective, RowSums
from streamsvm.solvers.problem_kinds import OneAgainstRest, OneClass
from streamsvm.store.views import MemoryStore
from streamsvm.types import Block, Problem
from tests.arrays import csr_of
from tests.solvers.kernel_problems import solve

# -- two classes by nu ---------------------------------------------------------------------------------------------------


pytestmark = pytest.mark.filterwarnings("ignore:Solver terminated early")
BIAS = 30.0
"""Of the constant feature: so large that its weight costs little, as LIBSVM's costs nothing."""


def fuzzed(seed: int) -> tuple[Any, Any, Any, float]:
    """Rows of columns of several scales, two classes that overlap, weights with 0 among them, and a nu for which w is not 0."""
    rng = np.random.default_rng(seed)
    n, d = int(rng.integers(60, 140)), int(rng.integers(2, 7))
    X = rng.normal(size=(n, d)) * 10.0 ** rng.uniform(-0.5, 0.5, d)
    y = np.where(X @ rng.normal(size=d) + 0.5 * rng.normal(size=n) > 0.3, 1.0, -1.0).astype(np.float32)
    s = rng.choice([0.0, 0.5, 1.0, 3.0], n).astype(np.float32)
    most = 2.0 * min(s[y > 0].sum(), s[y < 0].sum()) / s.sum()
    return X.astype(np.float32), y, s, float(rng.choice([0.6, 0.8, 0.95])) * float(most)


def problem_of(X: Any, nu: float, tolerance: float, bias: float = BIAS) -> Problem:
    return Problem(
        UNIT_HINGE, 1.0, len(X), X.shape[1], OneAgainstRest(1), bias, tolerance=tolerance, regularizer=NuMargin(nu)
    )


def value(X: Any, y: Any, s: Any, nu: float, w: Any, square: float) -> float:
    """P at the best multiple of a function with the weights w, the constant last, whose ||w||^2 is ``square``: from its definition, by a search."""
    f, s = y * (X.astype(np.float64) @ w[:-1] + w[-1]), s.astype(np.float64)
    values = [
        0.5 * q * q * square - nu * s.sum() * q + q * float(s @ np.maximum(0.0, 1.0 - f)) for q in (0.0, 1.0, 2.0)
    ]
    bend, slope = values[2] - 2.0 * values[1], 2.0 * values[1] - 0.5 * values[2]  # of a parabola through 0
    return -0.5 * slope * slope / bend if slope < 0.0 else 0.0


def libsvm(X: Any, y: Any, s: Any, nu: float) -> Any:
    """The weights of LIBSVM, the constant last."""
    kept = s > 0
    found = NuSVC(kernel="linear", nu=nu, tol=1e-8, max_iter=500_000)
    found.fit(X[kept].astype(np.float64), y[kept], sample_weight=s[kept].astype(np.float64))
    return np.append(found.coef_[0], found.intercept_[0])


@pytest.mark.parametrize("seed", range(4))
def test_nu_classes_optimum_is_that_of_libsvm_with_few_rows_kept(seed: int) -> None:
    X, y, s, nu = fuzzed(seed)
    solver = NuClasses(InteriorPoint(kept=2 * len(X) // 3))
    state, _, found = solve(solver, problem_of(X, nu, 1e-6), X, y, s, block=37, passes=60)
    w, peer = solver.solution(state).w, libsvm(X, y, s, nu)
    inner = float(peer[:-1] @ peer[:-1])
    free, held = (value(X, y, s, nu, peer, inner + c) for c in (0.0, (float(peer[-1]) / BIAS) ** 2))
    assert found[-1].gap <= 1e-6
    assert max(one.dual for one in found) <= held * (1 - 1e-6)  # the constant is held, LIBSVM's is not
    assert free * (1 + 1e-6) <= found[-1].primal <= held * (1 - 2e-6)
    own = np.append(w[:-1], BIAS * w[-1])
    assert value(X, y, s, nu, own, float(w @ w)) == pytest.approx(found[-1].primal, rel=2e-6)
    f = y * (X.astype(np.float64) @ own[:-1] + own[-1])
    assert s[f < 1.0 - 1e-3].sum() <= nu * s.sum() * 1.001  # few are beyond the margin
    assert s[f <= 1.0 + 1e-3].sum() >= nu * s.sum() * 0.999
    assert found[-1].facts["equivalent_C"] == pytest.approx(
        float(w @ w) / (nu * s.sum() - s @ np.maximum(0.0, 1.0 - f)), rel=1e-2
    )


def test_nu_classes_slopes_at_any_weights_are_made_a_feasible_dual_point() -> None:
    X, y, s, nu = fuzzed(7)
    problem, rng = problem_of(X, nu, 1e-8), np.random.default_rng(2)
    best = solve(NuClasses(InteriorPoint()), problem, X, y, s, passes=30)[2][-1]
    assert best.gap <= 1e-8
    order = np.arange(len(X), dtype=np.int32)
    for _ in range(30):
        w, sums = rng.normal(size=X.shape[1] + 1) * 10.0 ** rng.uniform(-2.0, 1.0), PointSums(X.shape[1] + 1)
        w[-1] /= BIAS
        sums.add(problem, problem.loss, Block(Dense(X, BIAS), y, s, 0, 0, order, 0), w)
        found = sums.close(problem, w)
        assert found.dual <= best.primal * (1 - 1e-9)
        assert found.primal >= best.dual * (1 + 1e-9)
        own = np.append(w[:-1], BIAS * w[-1])
        assert found.primal == pytest.approx(value(X, y, s, nu, own, float(w @ w)), rel=1e-6, abs=1e-9)
    assert primal_of_weights(0.5, 4.0, 3.0, np.ones(2)) == 0.0


@pytest.mark.parametrize("kept", [40, None])
def test_nu_classes_ends_at_zero_where_classes_overlap_too_much(kept: int | None) -> None:
    X, y, s, nu = fuzzed(1)
    solver, problem = NuClasses(InteriorPoint(kept=kept)), problem_of(X, 0.1 * nu, 1e-6)
    state, _, found = solve(solver, problem, X, y, s, block=37, passes=30)
    assert found[-1].final
    assert len(found) <= 10
    assert found[-1].dual <= found[-1].primal == 0.0
    assert found[-1].facts["equivalent_C"] is None
    assert not solver.solution(state).w.any()


def store_of(seed: int = 5) -> MemoryStore:
    X, y, s, _ = fuzzed(seed)
    store = MemoryStore(chunk_bytes=800)
    store.append(Dense(X[s > 0]), (y[s > 0] > 0).astype(np.int32), s[s > 0])
    return store.commit(("a", "b"), X.shape[1])


@pytest.mark.parametrize(
    "settings", [{"standardize": True}, {"kernel": "rbf", "landmarks": 20}], ids=["standardized", "landmarks"]
)
def test_nu_classes_fit_is_certified_and_is_the_machine_of_the_c_that_it_found(settings: dict[str, Any]) -> None:
    job = FitJob("memory", "model", nu=0.4, tolerance=1e-4, **settings)
    found = fit_in_memory(job, store_of())
    run = found.training.runs[0]
    assert run.certificate is not None
    assert found.plan.solver_name == "interior_point"
    assert run.certificate.gap <= 1e-4
    same = replace(job, nu=None, C=run.certificate.facts["equivalent_C"], loss="hinge")
    peer = fit_in_memory(same, store_of()).training.runs[0].certificate
    assert peer is not None
    rho, S = run.certificate.facts["rho"], run.certificate.facts["weight"]
    assert peer.primal * rho**2 - 0.4 * S * rho == pytest.approx(run.certificate.primal, rel=1e-3)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"C": 1.0}, "--C cannot be combined with --nu"),
        ({"lambda_": 1.0}, "--lambda cannot be combined with --nu"),
        ({"kernel": "rbf"}, "not for exact kernels"),
        ({"solver": "newton"}, "does not support --nu"),
        ({"multi_class": "crammer_singer"}, "--nu cannot be combined with --multi-class"),
        ({"l1": 1.0}, "--l1 cannot be combined with --nu"),
    ],
)
def test_nu_classes_refuses_incompatible_options(settings: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        fit_in_memory(FitJob("memory", "model", nu=0.4, **settings), store_of())


@pytest.mark.parametrize("bias", [0.0, 2.0])
def test_nu_classes_sparse_rows_are_the_same_problem(bias: float) -> None:
    X, y, s, nu = fuzzed(3)
    X = X * (np.random.default_rng(1).random(X.shape) < 0.6)
    solver, problem = NuClasses(InteriorPoint()), problem_of(X, nu, 1e-7, bias)
    one, two = (solve(solver, problem, rows, y, s, passes=30) for rows in (Dense(X, bias), csr_of(X, bias)))
    assert one[2][-1].primal == pytest.approx(two[2][-1].primal, rel=1e-6)
    np.testing.assert_allclose(solver.solution(one[0]).w, solver.solution(two[0]).w, rtol=1e-3, atol=1e-4)
    assert (solver.solution(one[0]).w[-1] == 0.0) == (bias == 0.0)


# -- one class -----------------------------------------------------------------------------------------------------------


def far_rows(seed: int) -> tuple[Any, Any, float]:
    """Rows with columns of several scales, one of about 0 and 1, about a point away from 0; weights, 0 among them, and nu."""
    rng = np.random.default_rng(seed)
    n, d = int(rng.integers(60, 120)), int(rng.integers(2, 7))
    X = rng.normal(size=(n, d)) * 10.0 ** rng.integers(-1, 2, d)
    X[:, -1] = (rng.random(n) < 0.3) + 0.05 * rng.normal(size=n)
    X += rng.uniform(0.0, 3.0, d) * np.abs(X).mean(0)
    s = rng.choice([0.0, 0.5, 1.0, 3.0], n).astype(np.float32)
    return X.astype(np.float32), s, float(rng.choice([0.05, 0.1, 0.3, 0.5, 0.9]))


def one_class_problem(X: Any, nu: float, tolerance: float) -> Problem:
    return Problem(
        HINGE_AT_ZERO, 1.0, len(X), X.shape[1], OneClass(), OFFSET, tolerance=tolerance, regularizer=FreeOffset(nu)
    )


def one_class_primal(X: Any, s: Any, nu: float, w: Any) -> float:
    """P(w, rho), from its definition."""
    f, s = X.astype(np.float64) @ w[:-1], s.astype(np.float64)
    return float(0.5 * w[:-1] @ w[:-1] - nu * s.sum() * w[-1] + s @ np.maximum(0.0, w[-1] - f))


def optimum(X: Any, s: Any, nu: float) -> float:
    """What LIBSVM finds; it is given no rows of weight 0, which it would leave out of what it numbers."""
    from sklearn.svm import OneClassSVM

    X, s = X[s > 0].astype(np.float64), s[s > 0].astype(np.float64)
    found = OneClassSVM(kernel="linear", nu=nu, tol=1e-9, max_iter=300_000).fit(X, sample_weight=s)
    v = found.dual_coef_[0] @ X[found.support_]
    return float(-0.5 * v @ v)


@pytest.mark.parametrize("seed", range(4))
def test_one_class_optimum_is_that_of_libsvm_with_few_rows_kept(seed: int) -> None:
    X, s, nu = far_rows(seed)
    ones = np.ones(len(X), np.float32)
    state, _, found = solve(InteriorPoint(kept=40), one_class_problem(X, nu, 1e-6), X, ones, s, block=37, passes=60)
    best = optimum(X, s, nu)
    assert found[-1].gap <= 1e-6
    assert max(one.dual for one in found) <= best * (1 - 1e-7)
    assert found[-1].primal <= best * (1 - 2e-6)
    assert one_class_primal(X, s, nu, state.point) == pytest.approx(found[-1].primal, rel=1e-9)
    f = X.astype(np.float64) @ state.point[:-1] - state.point[-1]
    edge = 1e-3 * np.abs(f).max()
    assert s[f < -edge].sum() <= nu * s.sum() * 1.001  # few are outside
    assert s[f <= edge].sum() >= nu * s.sum() * 0.999


@pytest.mark.parametrize("nu", [0.1, 0.6, 0.95])
def test_one_class_slopes_at_any_weights_are_made_a_feasible_dual_point(nu: float) -> None:
    X, s, _ = far_rows(7)
    Z = np.hstack([X, np.full((len(X), 1), OFFSET)]).astype(np.float64)
    sums, block = (
        RowSums(Z.shape[1]),
        Block(Dense(X, OFFSET), np.ones(len(X), np.float32), s, 0, 0, np.arange(1, dtype=np.int32), 0),
    )
    sums.add(one_class_problem(X, nu, 0.0), block)
    objective, rng, best = OffsetObjective(nu, sums), np.random.default_rng(2), optimum(X, s, nu)
    for _ in range(30):
        w = np.append(rng.normal(size=X.shape[1]), 0.0)
        w[-1] = np.quantile(X @ w[:-1], rng.random())
        a = np.where(Z @ w < 0.0, s, 0.0).astype(np.float64)
        assert objective.dual(0.0, a @ Z) <= best * (1 - 1e-7)
        assert objective.value(w) + float(s @ np.maximum(0.0, -(Z @ w))) >= best * (1 + 1e-7)
    assert objective.least <= best * (1 - 1e-7)


def test_one_class_rows_around_the_origin_have_no_hyperplane_and_the_run_says_so() -> None:
    rng = np.random.default_rng(3)
    X = rng.normal(size=(400, 3)).astype(np.float32)
    X = np.concatenate([X, -X])
    ones = np.ones(len(X), np.float32)
    state, _, found = solve(InteriorPoint(), one_class_problem(X, 0.5, 1e-6), X, ones, ones, passes=10)
    assert found[-1].final
    assert found[-1].primal == pytest.approx(0.0, abs=1e-3)
    assert np.abs(state.point[:-1]).max() < 1e-2 * 0.5 * len(X)
