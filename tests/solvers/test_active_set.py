"""Active set methods, linear and of kernels: exact on drawn sets with weights, as other programs are; ends without time."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import streamsvm as sv
from streamsvm.errors import DataError, UsageError
from streamsvm.losses import LOSSES, EpsilonInsensitive, Hinge, Huber, SquaredHinge
from streamsvm.rows import Dense
from streamsvm.solvers import losses_of
from streamsvm.solvers.active_set import ActiveSet, solve_exactly
from streamsvm.solvers.gathered_rows import GatheredRows
from streamsvm.solvers.kernel import active_set as kernel_machine
from streamsvm.solvers.kernel.active_set import KernelActiveSet
from streamsvm.types import DUAL, Block, Certificate, Problem
from tests.arrays import csr_of
from tests.axes import each_value
from tests.solvers.drawn_rows import DrawnRows, solve_as_liblinear
from tests.solvers.kernel_problems import gram64, problem_of, solve
from tests.solvers.problems import kind_of

GAMMA = 0.5
EXACT_GAP = 1e-11
"""What is left of a relative gap: rounding, of float64 sums and of Gram matrices that are nearly singular."""


def small(seed: int) -> DrawnRows:
    """Few rows, some of them twice; weights with 0 among them."""
    rng = np.random.default_rng(seed)
    n, d = int(rng.integers(12, 70)), int(rng.integers(1, 7))
    X = (rng.normal(size=(n, d)) * 10.0 ** rng.integers(-1, 2, d)).astype(np.float32)
    if seed % 3 == 0:
        X = np.repeat(X[: (n + 1) // 2], 2, axis=0)[:n]
    y = np.where(X[:, 0] + rng.normal(size=n) > 0.2, 1.0, -1.0).astype(np.float32)
    y[:2] = 1.0, -1.0
    s = rng.choice([0.0, 0.5, 1.0, 3.0], n).astype(np.float32)
    s[:2] = 1.0
    return DrawnRows(X, y, s, 10.0 ** float(rng.integers(-2, 4)))


def linear_problem(X: Any, loss: Any, C: float) -> Problem:
    return Problem(loss, C, len(X), X.shape[1], kind_of(loss), tolerance=0.0)


def kernel_problem(X: Any, loss: Any, C: float, tolerance: float = 0.0) -> Problem:
    return problem_of(X, loss, C, GAMMA, tolerance)


@pytest.mark.filterwarnings("ignore:Liblinear failed to converge")
@each_value(("seed", range(8)), ("loss", ["hinge", "squared_hinge"]))
def test_active_set_optimum_is_that_of_liblinear(seed: int, loss: str) -> None:
    drawn, kind = small(seed), LOSSES[loss]()
    state, rows, found = solve_as_liblinear(ActiveSet(), drawn, loss, 0.0, block=17)
    a = rows[DUAL]
    v = (drawn.y * a) @ np.column_stack([drawn.X.astype(np.float64), np.ones(len(a))])
    gains = sum(b - kind.conjugate(b, drawn.C * float(c)) for b, c in zip(a, drawn.s, strict=True) if c > 0)
    assert found[-1].final
    assert found[-1].gap == pytest.approx(0.0, abs=EXACT_GAP)
    assert found[-1].dual == pytest.approx(gains - 0.5 * float(v @ v), rel=1e-11)
    assert found[-1].primal == pytest.approx(drawn.primal(kind, state.best), rel=1e-12)


@pytest.mark.parametrize("seed", range(6))
def test_active_set_machine_is_that_of_libsvm(seed: int) -> None:
    from sklearn.svm import SVC

    X, y, s, C = small(seed)
    problem = kernel_problem(X, Hinge(), C)
    _, kept, found = solve(KernelActiveSet(), problem, X, y, s, block=17)
    here, a = s > 0.0, kept[DUAL]  # LIBSVM numbers its support among the rows that count
    K, z, c = gram64(X[here], X[here], GAMMA), y[here], C * s[here].astype(np.float64)
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
    X, y, s, C = small(seed)
    problem = kernel_problem(X, loss, C)
    state, kept, found = solve(KernelActiveSet(), problem, X, y, s, block=17)
    x = y * kept[DUAL]
    f = gram64(X, X, GAMMA) @ x
    losses = sum(C * c * loss.value(m) for c, m in zip(s.astype(float), y * (f + state.intercept), strict=True))
    gains = sum(a - loss.conjugate(a, C * c) for a, c in zip(kept[DUAL], s.astype(float), strict=True) if c > 0)
    assert found[-1].primal == pytest.approx(0.5 * x @ f + losses, rel=1e-11)
    assert found[-1].dual == pytest.approx(gains - 0.5 * x @ f, rel=1e-11)
    assert found[-1].primal - found[-1].dual <= EXACT_GAP * found[-1].primal


@each_value(("loss", losses_of("active_set")), ("kernel", [False, True]))
def test_active_set_weight_of_k_is_k_copies(loss: str, kernel: bool) -> None:
    """To a relative 1e-7 of the decision function, which takes a gap of rounding."""
    X, y, _, _ = small(4)
    times = np.random.default_rng(1).integers(0, 4, len(y))
    times[:2] = 1
    X2, y2 = np.repeat(X, times, axis=0), np.repeat(y, times)
    decisions = []
    for rows, signs, s in ((X, y, times.astype(np.float32)), (X2, y2, np.ones(len(y2), np.float32))):
        if kernel:
            solver: Any = KernelActiveSet()
            state, kept, _ = solve(solver, kernel_problem(rows, LOSSES[loss](), 1.5), rows, signs, s)
            decisions.append(gram64(X, rows, GAMMA) @ (signs * kept[DUAL]) + solver.solution(state).intercept)
        else:
            state, _, _ = solve(ActiveSet(), linear_problem(rows, LOSSES[loss](), 1.5), rows, signs, s)
            decisions.append(X.astype(np.float64) @ state.best[:-1] + state.best[-1])
    np.testing.assert_allclose(decisions[1], decisions[0], rtol=1e-7)


@each_value(("sparse", [False, True]), ("loss", losses_of("active_set")))
def test_active_set_more_columns_than_rows(loss: str, sparse: bool) -> None:
    rng = np.random.default_rng(3)
    X = (rng.normal(size=(30, 80)) * (rng.random((30, 80)) < 0.3)).astype(np.float32)
    y, s = np.where(rng.random(30) < 0.5, 1.0, -1.0).astype(np.float32), np.ones(30, np.float32)
    drawn, kind = DrawnRows(X, y, s, 2.0), LOSSES[loss]()
    state, _, found = solve(ActiveSet(), drawn.problem_of(kind, 0.0), csr_of(X) if sparse else X, y, s)
    assert found[-1].primal - found[-1].dual <= EXACT_GAP * found[-1].primal
    assert drawn.primal(kind, state.best) == pytest.approx(found[-1].primal, rel=1e-12)


def test_active_set_any_feasible_start_leads_to_the_same_end() -> None:
    X, y, s, C = small(5)
    here = s > 0
    rows = GatheredRows(Dense(X[here], 1.0), y[here], s[here], np.flatnonzero(here))
    problem = linear_problem(X, Hinge(), C)
    first = solve_exactly(problem, rows)
    start = np.random.default_rng(0).random(here.sum()) * C * s[here]
    again = solve_exactly(problem, rows, a=start)
    assert first.finished
    assert again.finished
    np.testing.assert_allclose(again.w, first.w, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize(
    ("late", "error", "cause"),
    [(True, UsageError, "the time limit was reached"), (False, DataError, "the same decision")],
)
def test_active_set_machine_without_support_says_why(late: bool, error: type[Exception], cause: str) -> None:
    """Numbers that are all within epsilon of one have no other; of others time was over."""
    X, _, s, C = small(7)
    t = X[:, 0] if late else np.full(len(X), 3.0, np.float32)
    problem = kernel_problem(X, EpsilonInsensitive(0.1), C)
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
    X, y, s, C = small(7)
    problem, solver = kernel_problem(X, Hinge(), C, tolerance=1e-9), KernelActiveSet()
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
def test_active_set_bound_of_rounding_counts_coefficients_and_decision_values(
    loss: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Given to the bound: sum |x_j|, sum |x_i f_i| without the intercept, and the losses at margins as they are and less by E."""
    given: list[Any] = []

    def noted(*terms: Any) -> float:
        given.append(terms)
        return 0.0

    monkeypatch.setattr(kernel_machine, "bound_rounding", noted)
    X, y, s, C = small(7)
    problem, solver = kernel_problem(X, loss, C, tolerance=1e-9), KernelActiveSet()
    state, rows = solver.start(problem), {DUAL: np.zeros(len(X))}
    for _ in range(2):
        solver.visit(state, Block(Dense(X), y, s, 0, 0, np.arange(len(X), dtype=np.int32), 0, rows=rows))
        solver.finish(state)
    x, K = y * rows[DUAL], gram64(X, X, GAMMA)
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


def test_active_set_rows_that_depend_on_each_other_far_out_end_the_fit() -> None:
    """One column of 1e9: the factor takes the curvature of most rows for 0, and steps along such lines made D fall and
    rise for ever. The fit ends, and says that it is not certified and what to do.
    """
    rng = np.random.default_rng(0)
    x = (rng.normal(size=(90, 1)) * 1e9).astype(np.float32)
    classes = np.argsort(np.argsort(x[:, 0] + 3e8 * rng.normal(size=90))) * 5 // 90
    with pytest.warns(sv.StreamSVMWarning, match="standardize=True"):
        result = sv.fit(x, y=classes, loss="hinge", solver="active_set", tolerance=0.1)
    assert not result.certified
    assert sv.fit(x, y=classes, loss="hinge", solver="active_set", tolerance=0.1, standardize=True).certified
