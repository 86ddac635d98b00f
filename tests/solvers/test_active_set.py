"""Active set methods: exact on fuzzed sets with weights, equal to other programs; their steps, and their passes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from streamsvm.errors import DataError, UsageError
from streamsvm.kernels import RBF
from streamsvm.losses import LOSSES, EpsilonInsensitive, Hinge, Huber, SquaredHinge
from streamsvm.rows import Dense
from streamsvm.solvers import kernel_active_set as kernel_machine
from streamsvm.solvers import losses_of
from streamsvm.solvers.active_set import ActiveSet, solve_exactly
from streamsvm.solvers.active_set_method import ActiveSetMethod, DualTerms, FreeBlock, GramSpace, dual_terms
from streamsvm.solvers.evaluation import PointEvaluation, PointSums
from streamsvm.solvers.gathered_rows import GatheredRows
from streamsvm.solvers.kernel_active_set import KernelActiveSet
from streamsvm.types import DUAL, Block, Certificate, Problem
from tests.arrays import csr_of
from tests.axes import each_value
from tests.solvers.kernel_problems import gram64, solve

EXACT_GAP = 1e-11
"""What is left of a relative gap: rounding, of float64 sums and of Gram matrices that are nearly singular."""


def fuzzed(seed: int) -> tuple[Any, Any, Any, float]:
    """Rows, some of them twice, signs, weights (0 among them) and C."""
    rng = np.random.default_rng(seed)
    n, d = int(rng.integers(12, 70)), int(rng.integers(1, 7))
    X = (rng.normal(size=(n, d)) * 10.0 ** rng.integers(-1, 2, d)).astype(np.float32)
    if seed % 3 == 0:
        X = np.repeat(X[: (n + 1) // 2], 2, axis=0)[:n]
    y = np.where(X[:, 0] + rng.normal(size=n) > 0.2, 1.0, -1.0).astype(np.float32)
    y[:2] = 1.0, -1.0
    s = rng.choice([0.0, 0.5, 1.0, 3.0], n).astype(np.float32)
    s[:2] = 1.0
    return X, y, s, 10.0 ** float(rng.integers(-2, 4))


def linear_problem(X: Any, loss: Any, C: float) -> Problem:
    return Problem(loss, C, len(X), X.shape[1], 1, tolerance=0.0)


def value(loss: Any, X: Any, y: Any, s: Any, C: float, w: Any) -> float:
    """P(w), from its definition."""
    f = X.astype(np.float64) @ w[:-1] + w[-1]
    m = f - y if loss.numeric() else y * f
    return float(0.5 * w @ w + C * sum(c * loss.value(v) for c, v in zip(s.astype(float), m, strict=True)))


@pytest.mark.filterwarnings("ignore:Liblinear failed to converge")
@each_value(("seed", range(8)), ("loss", ["hinge", "squared_hinge"]))
def test_active_set_optimum_is_that_of_liblinear(seed: int, loss: str) -> None:
    from sklearn.svm import LinearSVC

    X, y, s, C = fuzzed(seed)
    state, kept, found = solve(ActiveSet(), linear_problem(X, LOSSES[loss](), C), X, y, s, block=17)
    a, v = kept[DUAL], (y * kept[DUAL]) @ np.column_stack([X.astype(np.float64), np.ones(len(y))])
    kind = LOSSES[loss]()
    lower = sum(b - kind.conjugate(b, C * float(c)) for b, c in zip(a, s, strict=True) if c > 0) - 0.5 * float(v @ v)
    other = LinearSVC(C=C, loss=loss, dual=True, tol=1e-12, max_iter=20_000, random_state=0)
    other.fit(X.astype(np.float64), y, sample_weight=s.astype(np.float64))
    reached = value(LOSSES[loss](), X, y, s, C, np.append(other.coef_[0], other.intercept_[0]))
    assert found[-1].final
    assert found[-1].gap == pytest.approx(0.0, abs=EXACT_GAP)
    assert found[-1].dual == pytest.approx(lower, rel=1e-11)
    assert found[-1].dual <= reached * (1 + 1e-12)
    assert found[-1].primal <= reached * (1 + 1e-12)
    assert value(LOSSES[loss](), X, y, s, C, state.best) == pytest.approx(found[-1].primal, rel=1e-12)


@pytest.mark.parametrize("seed", range(8))
def test_active_set_machine_is_that_of_libsvm(seed: int) -> None:
    from sklearn.svm import SVC

    X, y, s, C = fuzzed(seed)
    problem = replace(linear_problem(X, Hinge(), C), kernel=RBF(0.5))
    _, kept, found = solve(KernelActiveSet(), problem, X, y, s, block=17)
    here, a = s > 0.0, kept[DUAL]  # LIBSVM numbers its support among the rows that count
    K, z, c = gram64(X[here], X[here], 0.5), y[here], C * s[here].astype(np.float64)
    other = SVC(kernel="precomputed", C=1.0, tol=1e-9).fit(K, z, sample_weight=c)
    x = np.zeros(len(z))
    x[other.support_] = other.dual_coef_[0]
    theirs = float(np.abs(x).sum() - 0.5 * x @ K @ x)
    above = float(0.5 * x @ K @ x + c @ np.maximum(0.0, 1.0 - z * (K @ x + other.intercept_[0])))
    assert found[-1].final
    assert theirs * (1 - 1e-12) <= found[-1].dual <= above * (1 + 1e-12)
    assert found[-1].primal - found[-1].dual <= EXACT_GAP * found[-1].primal
    assert float(y @ a) == pytest.approx(0.0, abs=1e-12 * C * len(y))
    assert (a >= 0.0).all()
    assert (a <= C * s.astype(np.float64)).all()


@each_value(("loss", [SquaredHinge(), Huber(0.3)]), ("seed", range(6)))
def test_active_set_kernel_machines_of_smooth_losses_are_exact(seed: int, loss: Any) -> None:
    X, y, s, C = fuzzed(seed)
    problem = replace(linear_problem(X, loss, C), kernel=RBF(0.5))
    state, kept, found = solve(KernelActiveSet(), problem, X, y, s, block=17)
    x = y * kept[DUAL]
    f = gram64(X, X, 0.5) @ x
    losses = sum(C * c * loss.value(m) for c, m in zip(s.astype(float), y * (f + state.intercept), strict=True))
    gains = sum(a - loss.conjugate(a, C * c) for a, c in zip(kept[DUAL], s.astype(float), strict=True) if c > 0)
    assert found[-1].primal == pytest.approx(0.5 * x @ f + losses, rel=1e-11)
    assert found[-1].dual == pytest.approx(gains - 0.5 * x @ f, rel=1e-11)
    assert found[-1].primal - found[-1].dual <= EXACT_GAP * found[-1].primal


@each_value(("loss", losses_of("active_set")), ("kernel", [False, True]))
def test_active_set_weight_of_k_is_k_copies(loss: str, kernel: bool) -> None:
    """To a relative 1e-7 of the decision function, which takes a gap of rounding."""
    X, y, _, _ = fuzzed(4)
    times = np.random.default_rng(1).integers(0, 4, len(y))
    times[:2] = 1
    X2, y2 = np.repeat(X, times, axis=0), np.repeat(y, times)
    decisions = []
    for rows, signs, s in ((X, y, times.astype(np.float32)), (X2, y2, np.ones(len(y2), np.float32))):
        problem = linear_problem(rows, LOSSES[loss](), 1.5)
        if kernel:
            solver: Any = KernelActiveSet()
            state, kept, _ = solve(solver, replace(problem, kernel=RBF(0.2)), rows, signs, s)
            decisions.append(gram64(X, rows, 0.2) @ (signs * kept[DUAL]) + solver.solution(state).intercept)
        else:
            state, _, _ = solve(ActiveSet(), problem, rows, signs, s)
            decisions.append(X.astype(np.float64) @ state.best[:-1] + state.best[-1])
    np.testing.assert_allclose(decisions[1], decisions[0], rtol=1e-7)


@each_value(("sparse", [False, True]), ("loss", losses_of("active_set")))
def test_active_set_more_columns_than_rows(loss: str, sparse: bool) -> None:
    rng = np.random.default_rng(3)
    X = (rng.normal(size=(30, 80)) * (rng.random((30, 80)) < 0.3)).astype(np.float32)
    y, s = np.where(rng.random(30) < 0.5, 1.0, -1.0).astype(np.float32), np.ones(30, np.float32)
    state, _, found = solve(ActiveSet(), linear_problem(X, LOSSES[loss](), 2.0), csr_of(X) if sparse else X, y, s)
    assert found[-1].primal - found[-1].dual <= EXACT_GAP * found[-1].primal
    assert value(LOSSES[loss](), X, y, s, 2.0, state.best) == pytest.approx(found[-1].primal, rel=1e-12)


def test_active_set_any_feasible_start_leads_to_the_same_end() -> None:
    X, y, s, C = fuzzed(5)
    here = s > 0
    rows = GatheredRows(Dense(X[here], 1.0), y[here], s[here], np.flatnonzero(here))
    problem = linear_problem(X, Hinge(), C)
    first = solve_exactly(problem, rows)
    start = np.random.default_rng(0).random(here.sum()) * C * s[here]
    again = solve_exactly(problem, rows, a=start)
    assert first.finished
    assert again.finished
    np.testing.assert_allclose(again.w, first.w, rtol=1e-9, atol=1e-12)


def test_active_set_late_end_is_feasible_and_goes_on() -> None:
    """No time at all: what was solved for is a bound, and another pass with time finishes it."""
    X, y, s, C = fuzzed(7)
    K = gram64(X, X, 0.5)[np.ix_(s > 0, s > 0)]
    terms = dual_terms(Hinge(), y[s > 0], C * s[s > 0].astype(np.float64))
    a = np.zeros(len(K))
    method = ActiveSetMethod(terms, GramSpace(K), a, free_bias=True)
    assert not method.run(-np.inf)
    assert method.run()
    later = ActiveSetMethod(terms, GramSpace(K), a, free_bias=True)
    before = method.dual()
    assert later.run()
    assert later.dual() == pytest.approx(before, rel=1e-13)


@pytest.mark.parametrize(
    ("late", "error", "cause"), [(True, UsageError, "time was over"), (False, DataError, "the same decision")]
)
def test_active_set_machine_without_support_says_why(late: bool, error: type[Exception], cause: str) -> None:
    """Numbers that are all within epsilon of one have no other; of others time was over."""
    X, _, s, C = fuzzed(7)
    t = X[:, 0] if late else np.full(len(X), 3.0, np.float32)
    problem = replace(linear_problem(X, EpsilonInsensitive(0.1), C), kernel=RBF(0.5))
    solver = KernelActiveSet()
    state = solver.start(problem)
    solver.set_deadline(state, -np.inf if late else np.inf)
    for _ in range(2):
        order = np.arange(len(X), dtype=np.int32)
        solver.visit(state, Block(Dense(X), t, s, 0, 0, order, 0, rows={DUAL: np.zeros(len(X))}))
        solver.finish(state)
    with pytest.raises(error, match=cause):
        solver.solution(state)


@pytest.mark.parametrize("ending", [False, True])
def test_active_set_kernel_machine_that_had_no_time_goes_on_in_a_pass_that_has(ending: bool) -> None:
    """In the last pass it does not: rows have been told the dual variables of its certificate."""
    X, y, s, C = fuzzed(7)
    problem, solver = replace(linear_problem(X, Hinge(), C), kernel=RBF(0.5), tolerance=1e-9), KernelActiveSet()
    state = solver.start(problem)
    found: list[Certificate] = []
    order, rows = np.arange(len(X), dtype=np.int32), {DUAL: np.zeros(len(X))}
    for deadline in (-np.inf, np.inf, np.inf):
        solver.set_deadline(state, deadline)
        if ending and len(found) == 1:
            solver.certify(state)
        solver.visit(state, Block(Dense(X), y, s, 0, 0, order, 0, rows=rows))
        found.append(solver.finish(state))
    assert [one.exact for one in found] == [False, True, True]
    assert found[1].gap > 0.1
    assert (found[2].gap < 1e-9) == state.solved == (not ending)


@pytest.mark.parametrize("loss", [Hinge(), SquaredHinge()])
def test_active_set_rounding_of_a_kernel_machine_is_that_of_its_coefficients_and_decision_values(
    loss: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Given to the bound: sum |x_j|, sum |x_i f_i| without the intercept, and the losses at margins as they are and less by E."""
    given: list[Any] = []

    def noted(*terms: Any) -> float:
        given.append(terms)
        return 0.0

    monkeypatch.setattr(kernel_machine, "bound_rounding", noted)
    X, y, s, C = fuzzed(7)
    problem, solver = replace(linear_problem(X, loss, C), kernel=RBF(0.5), tolerance=1e-9), KernelActiveSet()
    state, rows = solver.start(problem), {DUAL: np.zeros(len(X))}
    for _ in range(2):
        solver.visit(state, Block(Dense(X), y, s, 0, 0, np.arange(len(X), dtype=np.int32), 0, rows=rows))
        solver.finish(state)
    x, K = y * rows[DUAL], gram64(X, X, 0.5)
    f = K @ x
    _, error, weight, absolute, (losses, risen) = given[-1]
    margins = y * (f + state.intercept)
    costs = [
        sum(C * s_i * max(loss.value(m - off), loss.value(m + off)) for s_i, m in zip(s, margins, strict=True))
        for off in (0.0, error)
    ]
    assert error > 0.0
    assert (weight, absolute) == pytest.approx((np.abs(x).sum(), np.abs(x * f).sum()), rel=1e-9)
    assert (losses, risen) == pytest.approx(costs, rel=1e-6)


ROWS, COLUMNS, C = 40, 60, 1.5


def problem_of(loss: Any, **more: Any) -> Problem:
    return Problem(loss, C, ROWS, COLUMNS, 1, **({"tolerance": 1e-9} | more))


class Found(PointSums):
    """Sums that come to certain bounds."""

    bounds = 0.0, 0.0

    def close(self, problem: Problem, w: Any) -> PointEvaluation:
        """As the sums of a pass have it."""
        return super().close(problem, w)._replace(primal=self.bounds[0], dual=self.bounds[1])


def closed_at(bounds: tuple[float, float], **known: Any) -> Any:
    """A solved state whose pass found these bounds at its point, which is all threes."""
    state = ActiveSet().start(problem_of(Hinge()))
    state.point, state.solved, state.evaluation = np.full(COLUMNS + 1, 3.0), True, Found(COLUMNS + 1)
    state.evaluation.bounds = bounds
    for name, value in known.items():
        setattr(state, name, value)
    return state


def test_active_set_keeps_the_least_primal_and_the_largest_dual() -> None:
    """D is that of the slopes at the point, or of the dual variables that rows have."""
    solver, v = ActiveSet(), np.zeros(COLUMNS + 1)
    v[0] = 2.0
    for gain, bound in ((2.5, 1.0), (4.0, 2.0)):
        state = closed_at((1.75, 1.0), gain=gain, v=v.copy(), exchanges=7, dual=0.25)
        found = solver.finish(state)
        assert (found.primal, found.dual, found.final, found.facts) == (1.75, bound, True, {"exchanges": 7})
        assert (state.best == 3.0).all()
        assert (state.gain, np.abs(state.v).max()) == (0.0, 0.0)
    worse = closed_at((9.0, 0.125), primal=1.5, dual=1.25)
    found = solver.finish(worse)
    assert (found.primal, found.dual) == (1.5, 1.25)
    assert not worse.best.any()


def method_at(a: Any, f: Any, y: Any, z: Any, upper: Any, *, b: float = 0.0, free_bias: bool = False) -> Any:
    """The method where it is said to be, whatever the matrix."""
    n = len(a)
    terms = DualTerms(np.array(y, float), np.array(z, float), np.zeros(n), np.array(upper, float))
    method = ActiveSetMethod(terms, GramSpace(np.eye(n)), np.array(a, float), free_bias=free_bias)
    method.at.f, method.at.b = np.array(f, float), b
    return method


def test_exchange_step_stops_at_the_first_bound() -> None:
    method = method_at([0.5, 0.5, 0.5, 1.0, 0.0], np.zeros(5), np.ones(5), np.ones(5), [1.0, 1.0, np.inf, 1.0, 1.0])
    longest = method._longest
    assert longest(np.arange(3), np.array([0.0, -0.25, 8.0])) == (2.0, 1)
    assert longest(np.arange(3), np.array([0.4, -0.25, 8.0])) == (1.25, 0)
    assert longest(np.array([2, 0]), np.array([1.0, 0.0])) == (np.inf, 0)
    assert longest(np.array([0, 3]), np.array([0.25, 1e-3])) == (0.0, 1)
    assert longest(np.array([0, 4]), np.array([0.25, -1e-3])) == (0.0, 1)
    method.at.a[3] = 1.0 + 1e-15  # a row that rounding has left beyond its bound takes no step back
    assert longest(np.array([0, 3]), np.array([0.25, 1e-3])) == (0.0, 1)


def test_exchange_ends_with_decision_values_computed_anew() -> None:
    rng = np.random.default_rng(3)
    A, y = rng.normal(size=(20, 30)), rng.choice([-1.0, 1.0], 20)
    K = A @ A.T
    method = ActiveSetMethod(dual_terms(SquaredHinge(), y, np.ones(20)), GramSpace(K), np.zeros(20), free_bias=True)
    assert method.run()
    best = method.dual()
    method.at.f += 1e-3 * rng.normal(size=20)
    method._confirmed = 0
    assert method.run()
    np.testing.assert_allclose(method.at.f, K @ (y * method.at.a), rtol=1e-10, atol=1e-12)
    assert method.dual() == pytest.approx(best, rel=1e-12)


@pytest.mark.parametrize("seed", range(4))
def test_exchange_step_solves_both_equations_of_a_free_intercept(seed: int) -> None:
    """H d + y beta = right and y'd = total, rows having come and gone."""
    rng = np.random.default_rng(seed)
    A, y = rng.normal(size=(80, 90)), rng.choice([-1.0, 1.0], 80)
    H, block = A @ A.T, FreeBlock(constrained=True)
    for row in rng.permutation(80).tolist():
        assert block.try_add(row, y[row], H[row, block.rows], H[row, row])
        if block.size % 5 == 4:
            block.remove(int(rng.integers(0, block.size)))
    rows, right, total = block.rows, rng.normal(size=block.size), 0.7
    step = block.solve(right, total)
    np.testing.assert_array_equal(block.signs, y[rows])
    np.testing.assert_allclose(H[np.ix_(rows, rows)] @ step.d + y[rows] * step.beta, right, atol=1e-7)
    assert y[rows] @ step.d == pytest.approx(total, abs=1e-9)
