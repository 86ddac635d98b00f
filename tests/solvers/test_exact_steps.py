"""Steps with the second derivatives of all rows: few readings to any gap, bounds that hold, and the same from parts."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import scipy.linalg
import scipy.optimize
import scipy.sparse as sp

from streamsvm.losses import Logistic, SquaredHinge
from streamsvm.rows import CSR, Dense
from streamsvm.solvers.newton import exact_steps
from streamsvm.solvers.newton.exact_steps import ExactSteps, are_worth_it, first_steps, rows_of_a_sample
from streamsvm.solvers.newton.row_sample import Sample
from streamsvm.solvers.newton.solver import Newton
from streamsvm.solvers.newton.surrogate import Surrogate, model_at
from streamsvm.solvers.point_evaluation import PointSums
from streamsvm.types import Block, Problem
from tests.solvers.kernel_problems import solve

ROWS = 6000


def drawn(seed: int, sparse: bool) -> tuple[Any, Any, Any]:
    """Rows of columns of several scales, one of them rare; two classes; weights with 0 among them."""
    rng = np.random.default_rng(seed)
    X = (rng.normal(size=(ROWS, 8)) * 10.0 ** rng.uniform(-1, 1, 8)).astype(np.float32)
    X[:, 3] = 30.0 * (rng.random(ROWS) < 0.005)
    score = X @ rng.normal(size=8)
    y = np.where(score + score.std() * rng.normal(size=ROWS) > 0.0, 1.0, -1.0).astype(np.float32)
    if not sparse:
        return Dense(X, 1.0), y, rng.choice([0.0, 0.5, 1.0, 3.0], ROWS).astype(np.float32)
    X[rng.random(X.shape) < 0.5] = 0.0
    stored = sp.csr_matrix(X)
    rows = CSR(stored.data, stored.indices.astype(np.int32), stored.indptr.astype(np.int64), 1.0)
    return rows, y, rng.choice([0.0, 0.5, 1.0, 3.0], ROWS).astype(np.float32)


def problem_of(C: float, tolerance: float) -> Problem:
    return Problem(Logistic(), C, ROWS, 8, 1, 1.0, tolerance=tolerance)


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("C", [1e-3, 1.0, 100.0])
def test_the_gap_is_closed_in_few_readings_without_all_rows(C: float, sparse: bool) -> None:
    X, y, s = drawn(int(1000 * C), sparse)
    _, _, best = solve(Newton(), problem_of(C, 1e-11), X, y, s, passes=30)
    state, _, found = solve(Newton(sample=1500), problem_of(C, 1e-9), X, y, s, passes=30)
    assert best[-1].gap <= 1e-11
    assert state.all_rows is None
    assert state.exact_steps is not None
    assert found[-1].gap <= 1e-9
    assert len(found) <= 9
    assert all(one.dual <= best[-1].primal * (1.0 + 1e-12) for one in found)
    assert all(one.primal >= best[-1].dual * (1.0 - 1e-12) for one in found)


def test_a_pass_in_parts_sums_up_what_one_pass_does() -> None:
    X, y, s = drawn(2, sparse=False)
    solver, problem, order = Newton(sample=1500), problem_of(1.0, 1e-9), np.arange(ROWS, dtype=np.int32)
    state, cut = solver.start(problem), 2500
    whole = Block(X, y, s, 0, 0, order, 0)
    pieces = [
        Block(Dense(X.values[a:b], 1.0), y[a:b], s[a:b], 0, a, order[: b - a], 0) for a, b in [(0, cut), (cut, ROWS)]
    ]
    solver.visit(state, whole)
    solver.finish(state)
    assert state.summing
    parts = [solver.part(state), solver.part(state)]
    for part, piece in zip(parts, pieces, strict=True):
        solver.visit(part, piece)
    alone = solver.part(state)
    solver.visit(alone, whole)
    joined = solver.merge(parts)
    assert joined.hessian is not None
    assert alone.hessian is not None
    assert joined.hessian == pytest.approx(alone.hessian, rel=1e-12)


def test_after_a_step_that_was_cut_the_next_ones_are_whole_again() -> None:
    """Of rare columns a small sample has few rows: steps made of what bent before had to be cut again and again, 17 readings."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(ROWS, 8)).astype(np.float32)
    for column, share in ((5, 0.01), (6, 0.005), (7, 0.002)):
        X[:, column] = 10.0 * (rng.random(ROWS) < share)
    score = X[:, :5] @ rng.normal(size=5) - 0.15 * X[:, 7] + 0.1 * X[:, 6]
    y = np.where(score + score.std() * rng.normal(size=ROWS) > 0.0, 1.0, -1.0).astype(np.float32)
    solver, s = Newton(sample=600), np.ones(ROWS, np.float32)
    _, _, found = solve(solver, problem_of(100.0, 1e-3), Dense(X, 1.0), y, s, passes=20)
    assert found[-1].gap <= 1e-3
    assert len(found) <= 9


@pytest.mark.parametrize(
    ("rise", "slope", "length"),
    [(0.5, 1.0, 0.25), (0.5, 0.6, 1 / 12), (0.5, 0.5, 0.005), (0.0, -1.0, 0.5), (0.5, 0.0, 0.5)],
)
def test_a_step_is_cut_to_half_of_where_the_tangent_is_below_the_center(
    rise: float, slope: float, length: float
) -> None:
    direction = np.array([2.0, 4.0])
    steps, sums = ExactSteps(np.zeros(2), 1.0, direction, promised=1.0), PointSums(2)
    found = sums.close(Problem(Logistic(), 1.0, 1, 1, 1, 1.0), steps.point)
    gradient = slope * direction / (direction @ direction)
    assert not steps.taken(found._replace(value=1.0 + rise, v=steps.point - gradient))
    assert steps.length == pytest.approx(length)
    assert steps.taken(found._replace(value=0.5))


def test_a_step_that_was_cut_is_cut_in_shares_of_what_is_left_of_it() -> None:
    """Half of the way is gone; the tangent is below the center from a fifth of the whole way on."""
    steps, direction = (
        ExactSteps(np.zeros(2), 1.0, np.array([2.0, 4.0]), promised=1.0, length=0.5),
        np.array([2.0, 4.0]),
    )
    found = PointSums(2).close(Problem(Logistic(), 1.0, 1, 1, 1, 1.0), steps.point)
    assert not steps.taken(found._replace(value=1.3, v=steps.point - direction / (direction @ direction)))
    assert steps.length == pytest.approx(0.1)


@pytest.mark.parametrize(("rows", "columns", "kept"), [(10**6, 3, 2_000), (10**6, 99, 20_000), (1_500, 99, 1_500)])
def test_a_sample_has_two_thousand_rows_or_two_hundred_a_component_and_no_more_than_there_are(
    rows: int, columns: int, kept: int
) -> None:
    assert rows_of_a_sample(Problem(Logistic(), 1.0, rows, columns, 1)) == kept


# -- the model of all rows, against slow versions ------------------------------------------------------------------------


def small(seed: int = 4, rows: int = 60) -> tuple[Any, Any, Sample]:
    """y_i (x_i, 1) in float64, C s_i, and a sample of every other row, each of which stands for two."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(rows, 3)).astype(np.float32)
    y = np.where(X[:, 0] + rng.normal(size=rows) > 0.0, 1.0, -1.0).astype(np.float32)
    s = rng.choice([0.5, 1.0, 3.0], rows).astype(np.float32)
    part = np.arange(0, rows, 2)
    n = len(part)
    sample = Sample(Dense(X[part], 1.0), y[part], s[part], np.full(n, 0.5), np.zeros(n), part, complete=False)
    return y[:, None] * np.column_stack([X.astype(float), np.ones(rows)]), 0.7 * s.astype(float), sample


SMALL = Problem(Logistic(), 0.7, 60, 3, 1, 1.0, tolerance=1e-6)


def bends(Z: Any, c: Any, w: Any) -> Any:
    """Sum C_i l''(m_i) x_i x_i'."""
    q = 1.0 / (1.0 + np.exp(-Z @ w))
    return (Z.T * (c * q * (1.0 - q))) @ Z


def evaluated(Z: Any, c: Any, w: Any) -> Any:
    """What a pass over all rows finds at w."""
    found, m = PointSums(4).close(SMALL, w), Z @ w
    v = Z.T @ (c / (1.0 + np.exp(m)))
    value = float(0.5 * w @ w + c @ np.logaddexp(0.0, -m))
    return found._replace(primal=value, value=value, v=v, gradient=w - v)


def begun(w: Any, value: float = 1.0) -> ExactSteps:
    return ExactSteps(w, value, np.zeros(4))


def test_of_what_a_sample_bends_less_than_all_rows_do_only_the_positive_part_is_kept() -> None:
    """As I + H measures it: the generalized eigenvalues of I + H - H_S and I + H that are below 0 become 0."""
    Z, c, sample = small()
    w = np.array([0.5, -1.0, 0.3, 0.1])
    H, own = bends(Z, c, w), bends(Z[::2], 2.0 * c[::2], w)
    for factor in (0.1, 1.0, 40.0):  # the last leaves next to nothing of I + H
        steps = begun(w)
        steps.renew(SMALL, sample._replace(probability=sample.probability / factor), H, w)
        values, vectors = scipy.linalg.eigh(np.eye(4) + H - factor * own, np.eye(4) + H)
        left = (np.eye(4) + H) @ vectors
        expected = (left * np.maximum(values, 0.0)) @ left.T
        assert steps.model is not None
        assert (values.min() < 0.0) == (factor >= 1.0)
        np.testing.assert_allclose(steps.model.rest, expected, rtol=1e-6, atol=1e-6)
        np.testing.assert_allclose(steps.model.factor, 2.0 * factor * sample.s, rtol=1e-6)


@pytest.mark.parametrize("tolerance", [1e-6, 10.0])
def test_the_minimum_of_a_model_is_that_of_its_definition(tolerance: float) -> None:
    """By an independent method, but for a thousandth of the gap that is asked for; the change of M goes with it."""
    Z, c, sample = small()
    center = np.array([0.5, -1.0, 0.3, 0.1])
    found, steps = evaluated(Z, c, center), begun(center)
    steps.renew(SMALL, sample, bends(Z, c, center), center)
    assert steps.model is not None
    rest, own, weight = steps.model.rest, Z[::2], 2.0 * c[::2]

    def losses(w: Any) -> float:
        return float(weight @ np.logaddexp(0.0, -(own @ w)))

    at = 1.0 / (1.0 + np.exp(own @ center))
    shift = center - found.v + own.T @ (weight * at)  # M has the gradient of P at the center

    def model(w: Any) -> float:
        d = w - center
        return losses(w) - losses(center) + float(shift @ d + 0.5 * d @ rest @ d)

    w, change = steps.model.minimum(replace(SMALL, tolerance=tolerance), found, center)
    best = scipy.optimize.minimize(model, w, options={"gtol": 1e-10}).fun
    assert change == pytest.approx(model(w), rel=1e-6)
    assert best - 1e-9 <= change <= best + 2e-3 * tolerance * found.primal
    assert change < 0.5 * best < 0.0
    if tolerance > 1.0:  # a step that promises less than what is allowed is the last one: two make more than one
        assert change > best + 1e-9


def test_a_step_goes_from_the_point_that_was_read_to_the_minimum_of_the_model() -> None:
    Z, c, sample = small()
    steps = begun(np.full(4, 0.1))
    steps.direction, steps.length = np.ones(4), 0.5
    read = np.full(4, 0.6)
    np.testing.assert_array_equal(steps.point, read)
    found = evaluated(Z, c, read)
    steps.renew(SMALL, sample, bends(Z, c, read), read)
    assert steps.model is not None
    w, change = steps.model.minimum(SMALL, found, read)
    steps.go_on(SMALL, found, steps.model)
    assert (steps.value, steps.length, steps.promised) == (found.value, 1.0, -change)
    np.testing.assert_array_equal(steps.center, read)
    np.testing.assert_allclose(steps.point, w, rtol=1e-12)


@pytest.mark.parametrize(
    ("value", "promised", "length", "taken"),
    [
        (99.0, 1.0, 1.0, True),
        (99.9999001, 1.0, 1.0, False),  # a ten thousandth of what was promised is asked for, ...
        (99.9998999, 1.0, 1.0, True),
        (99.99995, 1.0, 0.25, True),  # ... or so much of the part of the way that was gone
        (99.99998, 1.0, 0.25, False),
        (100.0 + 5e-12, 0.0, 1.0, True),  # rounding is no rise
        (100.0, 0.0, 1.0, True),
        (100.0 + 5e-11, 0.0, 1.0, False),
    ],
)
def test_a_step_is_taken_where_the_objective_falls_by_a_share_of_the_promise(
    value: float, promised: float, length: float, taken: bool
) -> None:
    Z, c, _ = small()
    steps = ExactSteps(np.zeros(4), 100.0, np.ones(4), promised=promised, length=length)
    found = evaluated(Z, c, steps.point)._replace(value=value)
    assert steps.taken(found) == taken
    assert (steps.length == length) == taken


def test_the_dual_variables_of_the_sample_are_solved_for_all_others_staying() -> None:
    """Without a sample D is what the pass has found; with one it is more, and below the optimum."""
    Z, c, sample = small()
    best = scipy.optimize.minimize(
        lambda w: 0.5 * w @ w + c @ np.logaddexp(0.0, -Z @ w), np.zeros(4), options={"gtol": 1e-9}
    )
    w = best.x * 1.05
    sums = PointSums(4)
    y = np.sign(Z[:, 3]).astype(np.float32)
    rows = Dense((Z[:, :3] * y[:, None]).astype(np.float32), 1.0)
    s = (c / 0.7).astype(np.float32)
    sums.add(SMALL, Logistic(), Block(rows, y, s, 0, 0, np.arange(60, dtype=np.int32), 0), w)
    found, steps = sums.close(SMALL, w), begun(w)
    assert steps.polished(SMALL, found, np.inf) == found.dual
    steps.renew(SMALL, sample, bends(Z, c, w), w)
    polished = steps.polished(SMALL, found, np.inf)
    assert found.dual < polished <= best.fun * (1.0 + 1e-12)
    assert best.fun - polished < 0.9 * (best.fun - found.dual)


def test_a_step_on_the_model_is_halved_until_the_model_falls(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where rows are far from the corner a whole step of Newton's method goes far beyond the minimum, here of their losses alone."""
    monkeypatch.setattr(exact_steps, "ITERATIONS", 1)
    Z, c, sample = small()
    center, factor = np.array([9.0, -4.0, 3.0, 1.0]), 1e-3 * sample.s.astype(float)
    pull = Z[::2].T @ (0.7 * factor / (1.0 + np.exp(Z[::2] @ center)))
    found = evaluated(Z, c, center)._replace(v=center + pull)
    w, change = exact_steps.ExactModel(sample, factor, 1e-9 * np.eye(4)).minimum(SMALL, found, center)
    before, after = (0.7 * factor @ np.logaddexp(0.0, -Z[::2] @ at) for at in (center, w))
    assert change == pytest.approx(after - before, rel=1e-3)
    assert change < 0.0


@pytest.mark.parametrize("center", [0.0, 0.1])
@pytest.mark.parametrize(
    ("least", "each", "thinned"), [(10, 2, [3]), (20, 2, []), (14, 2, [2]), (1, 10, []), (1, 5, [])]
)
def test_the_first_step_is_solved_on_every_kth_row_before(
    least: int, each: int, thinned: list[int], center: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So many rows at least, and so many for each of four components, are left of 30; nothing is damped.

    It is solved crudely: a tolerance of 0 asks for no more steps.
    """
    monkeypatch.setattr(exact_steps, "THIN", least)
    monkeypatch.setattr(exact_steps, "THIN_PER_COMPONENT", each)
    Z, c, sample = small()
    begin, problem, taken, plain = np.full(4, center), replace(SMALL, tolerance=0.0), [], Surrogate.thinned
    monkeypatch.setattr(Surrogate, "thinned", lambda self, k: (taken.append(k), plain(self, k))[1])
    model, looks, look = model_at(problem, sample, sample.s / sample.probability, begin), [], Surrogate.values_at
    monkeypatch.setattr(Surrogate, "values_at", lambda self, *at: (looks.append(1), look(self, *at))[1])
    model.damping = np.ones(4)
    found = evaluated(Z, c, begin)
    steps = first_steps(model, found)
    assert taken == thinned
    assert not model.damping.any()
    assert len(looks) <= 5 * (1 + len(thinned))
    assert (steps.value, steps.promised, steps.length) == (found.value, 0.0, 1.0)
    np.testing.assert_array_equal(steps.center, begin)
    at, start = (model.gradient(model.values_at(Logistic(), w), w) for w in (steps.point, begin))
    assert np.linalg.norm(at) < 0.05 * np.linalg.norm(start)


@pytest.mark.parametrize(
    ("loss", "columns", "worth"), [(Logistic(), 127, True), (Logistic(), 128, False), (SquaredHinge(), 3, False)]
)
def test_second_derivatives_of_all_rows_are_summed_up_of_few_columns_where_a_loss_bends_everywhere(
    loss: Any, columns: int, worth: bool
) -> None:
    assert are_worth_it(Problem(loss, 1.0, 1000, columns, 1)) == worth
