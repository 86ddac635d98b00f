"""The simplex, by Frank-Wolfe steps and by blended ones: certificates are those of the model, and its support stays within bounds."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest

from streamsvm.compute.blocks.selection import take_rows
from streamsvm.compute.kernel_values.arithmetic import DOUBLE
from streamsvm.kernels import RBF
from streamsvm.losses import SquaredHinge
from streamsvm.rows import Dense
from streamsvm.solvers.kernel.blended import Blended
from streamsvm.solvers.kernel.cache import evaluate_shared, is_sharing_worthwhile
from streamsvm.solvers.kernel.frank_wolfe import (
    FrankWolfe,
    Iterations,
    ModifiedFrankWolfe,
    Partan,
    SampledIterations,
    Swap,
)
from streamsvm.solvers.kernel.pool import Form, Pool
from streamsvm.solvers.kernel.rounding import error_of_values
from streamsvm.solvers.kernel.smo import recompute_gradient
from streamsvm.types import Block
from tests.arrays import csr_of
from tests.solvers.kernel_problems import gram64, noisy_rows, problem_of, solve, weights_of

GAMMA, RIDGE, C = 0.5, 0.25, 2.0
METHODS = [FrankWolfe, ModifiedFrankWolfe, Swap, Partan]


class MatrixOf:
    """The columns of a matrix that is there."""

    def __init__(self, K: Any) -> None:
        self._K, self.diagonal = K, np.ascontiguousarray(np.diagonal(K))

    def column(self, i: int, g: Any) -> Any:
        """As ``MatrixColumns`` has it."""
        return self._K[i]


def test_frank_wolfe_vertex_that_a_step_takes_all_weight_from_has_none() -> None:
    """Nor less than none, whatever rounding makes of a (1 + t) - t at t = a / (1 - a)."""
    K = np.array([[0.1, 0.0, 0.9], [0.0, 0.1, 0.9], [0.9, 0.9, 20.0]])  # without the last vertex f is least
    pool, _ = spread_pool_of(8)
    for a in (0.4 * np.random.default_rng(0).random(1000)).tolist():
        weights = np.array([0.75 * (1.0 - a), 0.25 * (1.0 - a), a])
        exact = Iterations(weights.copy(), K @ weights, MatrixOf(K), "mfw")
        exact.gap()
        exact.advance()
        assert exact.a[2] == 0.0
        assert exact.a.sum() == pytest.approx(1.0, rel=1e-12)
        pool.x[:3], pool.x[3:] = weights, 0.0
        sampled = SampledIterations(pool, FORM, "mfw", f=0.0)
        sampled.away_vertex = 2
        sampled.step_away(a, 100.0, 1.0)
        assert sampled.a[2] == 0.0
        assert sampled.a[:3].sum() == pytest.approx(1.0, rel=1e-12)


ROWS = 120
FORM = Form(RBF(GAMMA), 4, 1.0, DOUBLE)


def spread_pool_of(n: int = ROWS, *, support: int = 3) -> tuple[Pool, Any]:
    """Weight on the first rows; the matrix in float64."""
    X, y = noisy_rows(n)
    z, zero = y.astype(np.float64), np.zeros(n)
    pool = Pool(Dense(X), np.arange(n), z, zero + RIDGE, zero, zero + 1.0, zero.copy(), zero.copy(), zero.copy())
    weights = np.arange(1.0, support + 1.0)  # no two of them alike, so that no two gradients are
    pool.x[:support] = weights / weights.sum()
    recompute_gradient(pool, FORM)
    return pool, np.outer(z, z) * (gram64(X, X, GAMMA) + 1.0) + RIDGE * np.eye(n)


SMALLER: dict[str, dict[str, Any]] = {"all vertices": {}, "a sample": {"sample": 194}, "a small pool": {"pool": 60}}
"""What is looked at in an iteration."""


@pytest.fixture(scope="module")
def least() -> float:
    """The least f on the simplex."""
    X, y = noisy_rows()
    problem = problem_of(X, SquaredHinge(), C, GAMMA, 1e-9)
    return float(solve(Blended(epsilon=1e-6), problem, X, y)[2][-1].facts["f"])


@pytest.mark.parametrize("method", METHODS, ids=lambda method: method.variant)
@pytest.mark.parametrize("smaller", SMALLER)
def test_frank_wolfe_gap_is_met_and_its_certificate_is_that_of_the_model(
    method: Any, smaller: str, least: float
) -> None:
    X, y = noisy_rows()
    solver = method(epsilon=1e-3, **SMALLER[smaller])
    state, _, found = solve(solver, problem_of(X, SquaredHinge(), C, GAMMA, 1e-9), X, y)
    facts, solution = found[-1].facts, solver.solution(state)
    assert found[-1].final
    assert len(found) <= 4 or "pool" in smaller
    assert facts["f"] >= least - 1e-7
    assert facts["f"] - least <= facts["simplex_gap"] + 1e-7
    assert facts["simplex_gap"] <= (1e-2 if "sample" in smaller else 1e-3)
    assert facts["seen_gap"] <= 1e-3
    assert facts["support"] <= facts["iterations"] + 1
    f = (gram64(X, X[solution.numbers], GAMMA) + 1.0) @ solution.coefficients
    losses = C * float(np.square(np.maximum(0, 1 - y * f)).sum())
    primal = 0.5 * float(solution.coefficients @ f[solution.numbers]) + losses
    assert found[-1].primal == pytest.approx(primal, rel=1e-3)


# -- blended steps -------------------------------------------------------------------------------------------------------


def explicit(X: Any, y: Any, s: Any, support: Any) -> tuple[Any, Any, Any]:
    """K, a and the part of K without the ridge, in float64; rows of weight 0 have none."""
    a = np.zeros(len(y))
    a[support.index] = support.x
    signed = np.outer(y, y).astype(np.float64) * (gram64(X, X, GAMMA) + 1.0)
    ridge = np.divide(1.0, 2.0 * C * s, out=np.zeros(len(s)), where=s > 0)
    return signed + np.diag(ridge), a, signed


@pytest.mark.parametrize("pool", [40, 100_000])
def test_simplex_blended_certifies_what_is_true(pool: int) -> None:
    X, y = noisy_rows()
    s = weights_of(len(y))
    state, _, found = solve(Blended(pool=pool, working=64), problem_of(X, SquaredHinge(), C, GAMMA, 1e-4), X, y, s)
    K, a, signed = explicit(X, y, s, state.support)
    f, g = 0.5 * float(a @ K @ a), K @ a
    assert found[-1].gap <= 1e-4
    assert a.min() >= 0.0
    assert a.sum() == pytest.approx(1.0)
    assert a[s == 0].max() == 0.0
    assert found[-1].facts["f"] == pytest.approx(f, rel=1e-5)
    assert found[-1].facts["simplex_gap"] == pytest.approx(2 * f - g[s > 0].min(), abs=1e-6 * f + 1e-7)
    t = 0.5 / f
    margins = t * (signed @ a)
    primal = 0.5 * t * t * float(a @ signed @ a) + C * float(s @ np.maximum(0.0, 1.0 - margins) ** 2)
    assert found[-1].primal == pytest.approx(primal, rel=1e-5)
    assert found[-1].dual == pytest.approx(1.0 / (4.0 * f), rel=1e-5)
    assert primal <= 1.0 / (4.0 * f) / (1.0 - (2 * f - g[s > 0].min()) / (2 * f)) ** 2 * (1.0 + 1e-5)


def test_simplex_gaps_do_not_depend_on_the_blocks() -> None:
    X, y = noisy_rows()
    problem = problem_of(X, SquaredHinge(), C, GAMMA, 1e-4)
    duals = [solve(Blended(), problem, X, y, block=block)[2][-1].dual for block in (50, 130, 400)]
    np.testing.assert_allclose(duals, duals[0], rtol=1e-9)


def test_simplex_support_is_kept_within_bounds() -> None:
    X, y = noisy_rows()
    problem = problem_of(X, SquaredHinge(), C, GAMMA, 1e-4)
    state, _, found = solve(Blended(pool=60, keep=80), problem, X, y)
    best = solve(Blended(), problem, X, y)[2][-1].facts["f"]
    K, a, _ = explicit(X, y, np.ones(len(y)), state.support)
    assert max(certificate.facts.get("support", 0) for certificate in found) == 80
    assert a.sum() == pytest.approx(1.0)
    assert found[-1].final
    assert len(found) < 30
    assert found[-1].facts["simplex_gap"] == pytest.approx(float(a @ K @ a) - (K @ a).min(), abs=1e-6)
    assert best < found[-1].facts["f"] < min(4.0 * best, found[1].facts["f"])


@pytest.mark.parametrize("count", [1, 20])
def test_simplex_short_model_says_its_gap(count: int) -> None:
    X, y = noisy_rows()
    problem = problem_of(X, SquaredHinge(), C, GAMMA, 1e-3)
    solver = Blended(max_support=count)
    state, _, found = solve(solver, problem, X, y)
    solution = solver.solution(state)
    assert found[-1].final
    assert found[-1].exact
    assert not found[-2].exact
    assert len(solution.coefficients) == count
    f = gram64(X, X[solution.numbers], GAMMA) @ solution.coefficients + solution.intercept
    K = gram64(X[solution.numbers], X[solution.numbers], GAMMA) + 1.0
    norm = float(solution.coefficients @ K @ solution.coefficients)
    primal = 0.5 * norm + C * float((np.maximum(0.0, 1.0 - y * f) ** 2).sum())
    assert found[-1].primal == pytest.approx(primal, rel=1e-4)
    assert found[-1].dual == pytest.approx(found[-2].dual, rel=1e-6)


@pytest.mark.parametrize("sparse", [False, True])
def test_simplex_values_of_several_problems_at_once(sparse: bool) -> None:
    X, y = noisy_rows(90)
    rng = np.random.default_rng(3)
    stored = csr_of(X) if sparse else Dense(X)
    supports, expected = [], []
    for count in (20, 35, 1):
        index = np.sort(rng.choice(90, count, replace=False))
        zero, x = np.zeros(count), rng.random(count)
        supports.append(
            Pool(take_rows(stored, index), index, y[index].astype(np.float64), zero, zero, zero, zero, x, zero)
        )
        expected.append(gram64(X, X[index], GAMMA) @ (y[index] * x))
    assert not is_sharing_worthwhile(supports, stored)
    assert is_sharing_worthwhile(supports * 20, csr_of(np.ones((90, 40), np.float32)))
    found = evaluate_shared(supports, Form(RBF(GAMMA), X.shape[1], 1.0), stored)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("cuts", [(70, 130), (0, 200)])
def test_simplex_workers_find_what_one_finds(cuts: tuple[int, ...]) -> None:
    """One of them may have met no row at all; g of a row with weight is that of who met it."""
    X, y = noisy_rows(200)
    solver = Blended(working=64, pool=40)
    state, _, _ = solve(solver, problem_of(X, SquaredHinge(), C, GAMMA, 1e-12), X, y, passes=2)
    found = []
    for bounds in ((0, 200), (0, *cuts, 200)):
        parts = [solver.part(state) for _ in bounds[1:]]
        for part, first, last in zip(parts, bounds[:-1], bounds[1:], strict=True):
            if first < last:
                ones, order = np.ones(last - first, np.float32), np.arange(last - first, dtype=np.int32)
                solver.visit(part, Block(Dense(X[first:last], 1.0), y[first:last], ones, 0, first, order, 0))
        found.append(solver.merge(parts))
    alone, together = found
    assert alone.support is not None
    assert together.support is not None
    assert np.isfinite(alone.support.v).all()
    np.testing.assert_allclose(together.support.v, alone.support.v, rtol=1e-5)
    for name in ("square", "ridge", "absolute", "lowest", "error"):
        assert getattr(together, name) == pytest.approx(getattr(alone, name), rel=1e-5), name
    np.testing.assert_allclose(together.losses, alone.losses, rtol=1e-5)
    assert state.support is not None
    assert together.candidates.take(partial(solver.choose, state)).size == solver.pool


def test_simplex_bound_of_rounding_counts_every_row_of_a_pass() -> None:
    """In float64: the norm of the model without ridges, and with them; absolute values; losses, and those at margins that are less."""
    X, y = noisy_rows(200)
    s = weights_of(200)
    solver, problem = Blended(working=64), replace(problem_of(X, SquaredHinge(), C, GAMMA, 1e-12), bias=0.5)
    state, _, _ = solve(solver, problem, X, y, s, passes=2)
    state.form = state.form._replace(arithmetic=DOUBLE)
    state.certifying = False
    solver.visit(state, Block(Dense(X, 0.5), y, s, 0, 0, np.arange(200, dtype=np.int32), 0))
    a = np.zeros(200)
    a[state.support.index] = state.support.x
    f = (gram64(X, X, GAMMA) + 0.25) @ (y * a)
    ridge = np.divide(0.5, C * s, out=np.zeros(200), where=s > 0.0)
    assert state.square == pytest.approx((y * a) @ f, rel=1e-9)
    assert state.ridge == pytest.approx(ridge @ a**2, rel=1e-9)
    assert state.absolute == pytest.approx(a @ np.abs(f), rel=1e-9)
    assert state.lowest == pytest.approx((y * f + ridge * a)[s > 0.0].min(), rel=1e-9)
    t = 0.5 / state.f
    error = t * error_of_values(state.form, state.reach, int(np.count_nonzero(a)), float(a.sum()))
    assert state.error == pytest.approx(error, rel=1e-12, abs=0.0)
    for sums, off in ((state.losses, 0.0), (state.upper_losses, error)):
        margins = np.maximum(0.0, 1.0 - t * (y * f) + off)
        assert sums[0] == pytest.approx(C * float(s @ margins**2), rel=1e-9)
    assert state.upper_losses[0] > state.losses[0]
