"""nu-SVM of two classes: the optimum of LIBSVM's -s 1, whatever share of the rows is kept; bounds that hold for any weights; from a store on."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from sklearn.svm import NuSVC

from streamsvm.errors import UsageError
from streamsvm.jobs.fit.driver import fit_in_memory
from streamsvm.jobs.fit.job import FitJob
from streamsvm.rows import CSR, Dense
from streamsvm.solvers.evaluation import PointSums
from streamsvm.solvers.interior_point import InteriorPoint
from streamsvm.solvers.nu import MARGIN, NuClasses
from streamsvm.solvers.one_class import primal_of_weights
from streamsvm.store.views import MemoryStore
from streamsvm.types import Block, Problem
from tests.solvers.kernel_problems import solve

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
    return Problem(MARGIN, 1.0, len(X), X.shape[1], 1, bias, tolerance=tolerance, nu=nu)


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


@pytest.mark.parametrize("seed", range(8))
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


@pytest.mark.parametrize(("losses", "primal"), [(1.0, -1.0 / 50.0), (0.0, -4.0 / 50.0), (2.0, 0.0), (3.0, 0.0)])
def test_nu_classes_weights_are_worth_what_the_best_multiple_of_them_is(losses: float, primal: float) -> None:
    """1/2 q^2 ||w||^2 - nu S q + q sum s max(0, 1 - m), of which q >= 0 is the best by a grid as well."""
    w = np.array([3.0, -4.0])
    q = np.linspace(0.0, 1.0, 1_001)
    assert (0.5 * 25.0 * q**2 - 0.5 * 4.0 * q + losses * q).min() == pytest.approx(primal, abs=1e-9)
    assert primal_of_weights(0.5, 4.0, losses, w) == pytest.approx(primal, rel=1e-12)
    assert primal_of_weights(0.5, 4.0, losses, np.zeros(2)) == 0.0
    assert primal_of_weights(0.5, 4.0, losses, 0.1 * w) == pytest.approx(100.0 * primal, rel=1e-12)


@pytest.mark.parametrize("bias", [0.0, 2.0])
def test_nu_classes_sparse_rows_and_parts_are_the_same_problem(bias: float) -> None:
    from scipy.sparse import csr_matrix

    X, y, s, nu = fuzzed(3)
    X = X * (np.random.default_rng(1).random(X.shape) < 0.6)
    stored = csr_matrix(X)
    rows = CSR(stored.data, stored.indices.astype(np.int32), stored.indptr.astype(np.int64), bias)
    solver, problem = NuClasses(InteriorPoint()), problem_of(X, nu, 1e-7, bias)
    one, two = (solve(solver, problem, X_, y, s, passes=30) for X_ in (Dense(X, bias), rows))
    assert one[2][-1].primal == pytest.approx(two[2][-1].primal, rel=1e-6)
    np.testing.assert_allclose(solver.solution(one[0]).w, solver.solution(two[0]).w, rtol=1e-3, atol=1e-4)
    assert (solver.solution(one[0]).w[-1] == 0.0) == (bias == 0.0)
    order, parts = np.arange(len(X), dtype=np.int32), [solver.start(problem), copy.deepcopy(solver.start(problem))]
    for part, (a, b) in zip(parts, [(0, 30), (30, len(X))], strict=True):
        solver.visit(part, Block(Dense(X[a:b], bias), y[a:b], s[a:b], 0, a, order[: b - a], 0))
    whole = solver.start(problem)
    solver.visit(whole, Block(Dense(X, bias), y, s, 0, 0, order, 0))
    assert solver.finish(solver.merge(parts)).dual == pytest.approx(solver.finish(whole).dual, rel=1e-9)


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
    "settings",
    [{}, {"standardize": True}, {"kernel": "rbf", "landmarks": 20}],
    ids=["raw", "standardized", "landmarks"],
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
        ({"solver": "newton"}, "does not find C by nu"),
        ({"multi_class": "crammer_singer"}, "--nu is of two classes"),
        ({"l1": 1.0}, "--l1 cannot be combined with --nu"),
    ],
)
def test_nu_classes_refuses_incompatible_options(settings: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        fit_in_memory(FitJob("memory", "model", nu=0.4, **settings), store_of())
