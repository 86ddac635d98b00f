"""Work in memory is counted in entries of the rows; when descent is too slow, steps are too many and rare columns are at their best."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from streamsvm.losses import EpsilonInsensitive, Hinge, Huber, Logistic, SquaredHinge
from streamsvm.rows import Dense
from streamsvm.solvers.newton.hessian import Hessian, conjugate_gradients
from streamsvm.solvers.newton.in_memory import (
    coordinate_descent,
    memory_rows,
    newton_steps,
    proximal_descent,
    rare_columns,
)
from streamsvm.solvers.newton.in_memory.linear_systems import block_matrix
from streamsvm.solvers.newton.in_memory.linear_systems.conjugate_gradients import ITERATIONS, solve
from streamsvm.solvers.newton.in_memory.memory_rows import MemoryRows
from streamsvm.solvers.newton.in_memory.newton_steps import Moved, NewtonSteps, has_interior_point
from streamsvm.solvers.newton.in_memory.outer_terms import OuterTerms, plain
from streamsvm.solvers.newton.in_memory.rare_columns import RareColumns
from streamsvm.solvers.newton.row_sample import Sample
from streamsvm.types import Problem
from tests.arrays import csr_of, sparse_values

N, COLUMNS = 20, 4


def rows_of(*, sparse: bool = False, offset: Any = None, outer: Any = None) -> tuple[MemoryRows, Any]:
    """Twenty rows of four columns and a constant of 2; and X in float64."""
    rng = np.random.default_rng(2)
    values = sparse_values(rng, N, COLUMNS)
    X = csr_of(values, 2.0) if sparse else Dense(values, 2.0)
    y = np.where(np.arange(N) % 3 == 0, 1.0, -1.0).astype(np.float32)
    s = np.where(np.arange(N) % 2 == 0, 1.0, 3.0).astype(np.float32)
    sample = Sample(X, y, s, np.ones(N), np.zeros(N), np.arange(N), complete=True, offset=offset)
    problem = Problem(SquaredHinge(), 0.5, N, COLUMNS, 1, 2.0)
    return MemoryRows(sample, problem, outer=outer), np.column_stack([values.astype(float), np.full(N, 2.0)])


# -- work --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("sparse", [False, True])
def test_every_product_counts_the_entries_it_visits(sparse: bool) -> None:
    """All of them, the constants included; of a Hessian twice those of the rows that bend, of a sweep of the rows swept."""
    rows, X = rows_of(sparse=sparse)
    entries = np.count_nonzero(X[:, :-1]) + N if sparse else N * (COLUMNS + 1)
    assert rows.entries == entries
    left, w = [rows._left], np.linspace(-1.0, 1.0, COLUMNS + 1)
    np.testing.assert_allclose(rows.margins(w), X @ w, rtol=1e-6)
    left.append(rows._left)
    np.testing.assert_allclose(rows.weighted_sum(np.arange(20.0)), np.arange(20.0) @ X, rtol=1e-6)
    left.append(rows._left)
    h = np.where(np.arange(N) < 5, 2.0, 0.0)
    found = rows.hessian_product(h, w)
    np.testing.assert_allclose(found, w + X.T @ (h * (X @ w)), rtol=1e-6)
    left.append(rows._left)
    order = np.arange(N, dtype=np.int32)
    rows.sweep(order, 10, np.zeros(N), np.zeros(COLUMNS + 1))
    left.append(rows._left)
    rows.visited(7)
    left.append(rows._left)
    assert np.diff(left).tolist() == [-entries, -entries, -(2 * entries * 5 // N), -(2 * entries * 10 // N), -7]
    assert rows.products == 1


@pytest.mark.parametrize(("work", "products", "most"), [(10_000, 3, 10_000), (10, 3, 3 * 2 * 100)])
def test_it_is_time_for_a_reading_after_so_many_entries_or_so_many_products_with_all_rows(
    work: int, products: int, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory_rows, "WORK", work)
    monkeypatch.setattr(memory_rows, "PRODUCTS", products)
    rows = rows_of()[0]
    rows.visited(most - 1)
    assert not rows.exhausted
    rows.visited(1)
    assert rows.exhausted
    assert not rows.late
    rows._deadline = 0.0
    assert rows.late


def test_what_is_added_to_decision_values_is_taken_from_the_dual() -> None:
    offset = np.linspace(-1.0, 2.0, N)
    rows, X = rows_of(offset=offset)
    w, slopes = np.linspace(-1.0, 1.0, COLUMNS + 1), np.linspace(0.0, 1.0, N)
    np.testing.assert_allclose(rows.values(w), X @ w + offset, rtol=1e-6)
    assert rows.gained(slopes) == pytest.approx(-float(offset @ slopes), rel=1e-12)
    assert rows_of()[0].gained(slopes) == 0.0


def test_of_one_row_a_product_is_a_product_of_that_row() -> None:
    one, ones = Dense(np.ones((1, 3), np.float32), 1.0), np.ones(1, np.float32)
    sample = Sample(one, ones, ones, np.ones(1), np.zeros(1), np.arange(1), complete=True)
    rows = MemoryRows(sample, Problem(SquaredHinge(), 1.0, 1, 3, 1))
    before = rows._left
    rows.hessian_product(np.ones(1), np.ones(4))
    rows.sweep(np.zeros(1, np.int32), 1, np.zeros(1), np.zeros(4))
    assert before - rows._left == 2 * 2 * 4


@pytest.mark.parametrize("scale", [1e6, 1e-6])
@pytest.mark.parametrize(("f", "change"), [(1.0, 0.0), (0.0, 1.0), (-1.0, 1.0)])
def test_margins_are_computed_anew_once_rounding_may_be_felt(f: float, change: float, scale: float) -> None:
    """A rounding of the largest, times C sum s, step after step: a thousandth of the gap that is allowed may come of it."""
    rows, X = rows_of()
    w = np.linspace(-1.0, 1.0, COLUMNS + 1)
    step = 2.0**-53 * scale * 0.5 * 40.0
    allowed = 2.5 * step / 1e-3
    at, by = np.r_[scale * f, np.zeros(N - 1)], np.r_[scale * change, np.zeros(N - 1)]
    anew = []
    for _ in range(6):
        found = rows.moved(at, by, w, allowed)
        anew.append(not np.array_equal(found, at + by))
        if anew[-1]:
            np.testing.assert_allclose(found, X @ w, rtol=1e-6)
    assert anew == [False, False, True, False, False, True]


# -- terms that are no sum over rows -----------------------------------------------------------------------------------


def test_outer_terms_are_those_of_their_definition() -> None:
    """1/2 w'Gw + q.w and its conjugate, the value of a dual point: linear - quadratic - 1/2 (v - q)'G^-1 (v - q)."""
    rng = np.random.default_rng(0)
    G, q, w, step, v = rng.uniform(1.0, 3.0, 3), *rng.normal(size=(4, 3))
    terms = OuterTerms(G, q)
    at = [terms.value(w + t * step) for t in (-1.0, 0.0, 1.0)]
    assert terms.value(w) == pytest.approx(0.5 * w @ (G * w) + q @ w, rel=1e-12)
    np.testing.assert_allclose(terms.gradient(w), G * w + q, rtol=1e-12)
    first, second = terms.along(w, step)
    assert first == pytest.approx(0.5 * (at[2] - at[0]), rel=1e-9)
    assert second == pytest.approx(at[2] - 2.0 * at[1] + at[0], rel=1e-9)
    found = terms.dual(SquaredHinge(), 7.0, 2.0, v)
    assert tuple(found) == pytest.approx((5.0 - 0.5 * (v - q) @ ((v - q) / G), 1.0), rel=1e-12)
    apart = OuterTerms(np.ones(2), np.array([0.0, 1.0])).dual(SquaredHinge(), 6.0, 1.0, np.array([2.0, 0.0]))
    assert tuple(apart) == (5.0 - 2.5, 1.0)
    assert plain(2).dual(SquaredHinge(), 6.0, 1.0, np.array([2.0, 0.0])) == pytest.approx((3.0, 1.0), rel=1e-12)
    shared = OuterTerms(np.array([2.0, 1.0]), np.zeros(2)).dual(SquaredHinge(), 6.0, 1.0, np.array([2.0, 0.0]))
    assert shared == pytest.approx((4.5, 1.5), rel=1e-12)  # 6 t - t^2 - t^2 is largest at 3 / 2


# -- linear systems ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("started", [False, True])
def test_conjugate_gradients_take_as_many_products_as_there_are_different_eigenvalues(started: bool) -> None:
    """Of what a preconditioner leaves of them; and one more where they do not begin at 0."""
    rng, made, asked = np.random.default_rng(3), [], []
    Q = np.linalg.qr(rng.normal(size=(12, 12)))[0]
    scale = 10.0 ** rng.uniform(-3.0, 3.0, 12)
    A = scale[:, None] * (Q * np.repeat([1.0, 4.0, 30.0], 4)) @ Q.T * scale
    right = A @ rng.normal(size=12)

    def enough(energy: float, residual: Any) -> bool:
        asked.append((energy, residual.copy()))
        return energy <= 1e-18 * asked[0][0]

    start = rng.normal(size=12) if started else None
    found = solve(lambda d: (made.append(1), A @ d)[1], lambda r: r / scale**2, right, enough, start)
    assert len(made) == 3 + started
    np.testing.assert_allclose(found.x, np.linalg.solve(A, right), rtol=1e-5)
    np.testing.assert_allclose(found.residual, right - A @ found.x, atol=1e-7 * np.abs(right).max())
    for energy, residual in asked:
        assert energy == pytest.approx(float(residual @ (residual / scale**2)), rel=1e-9)


def test_conjugate_gradients_end_at_rounding_or_after_so_many_products() -> None:
    """Though nothing was ever enough; of nothing there is nothing to solve."""
    made = [0, 0, 0]

    def counted(at: int, A: Any) -> Any:
        def product(d: Any) -> Any:
            made[at] += 1
            return A @ d

        return product

    never: Any = lambda energy, residual: False  # noqa: E731
    solve(counted(0, np.diag([1.0, 5.0])), lambda r: r, np.ones(2), never)
    solve(counted(1, np.diag(10.0 ** np.linspace(0.0, 14.0, 3000))), lambda r: r, np.ones(3000), never)
    assert not solve(counted(2, np.eye(2)), lambda r: r, np.zeros(2), never).x.any()
    assert made[0] in {2, 3}
    assert made[1:] == [ITERATIONS, 0]


def test_a_step_of_a_wide_model_ends_at_a_hundredth_of_its_first_error() -> None:
    """In the norm of the residual, scaled by the diagonal; rows that do not bend cost nothing."""
    rng = np.random.default_rng(4)
    X = rng.normal(size=(60, 9)).astype(np.float32) * 10.0 ** np.linspace(-2.0, 2.0, 9).astype(np.float32)
    Z, h = np.column_stack([X.astype(float), np.ones(60)]), rng.random(60) * (rng.random(60) < 0.7)
    diagonal, right = np.linspace(1.0, 2.0, 10), rng.normal(size=10)
    A = np.diag(diagonal) + (Z.T * h) @ Z
    found = conjugate_gradients(Dense(X, 1.0), h, diagonal, right, 9)
    left, scale = right - A @ found, 1.0 / np.diagonal(A)
    ratio = float(left @ (scale * left)) / float(right @ (scale * right))
    assert 1e-10 < ratio <= 1.01e-4


# -- when a method is left ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("gaps", "slow"),
    [
        ([1.0, 0.9, 0.8], False),  # too early to say
        ([1.0, 1.0, 1.0, 1.0], True),
        ([1.0, 0.9, 0.8, 0.7], True),  # 3 log(700) / log(1 / .7) > 40 rounds
        ([1.0, 0.9, 0.8, 0.61], False),  # 39 rounds
        ([9.0, 1.0, 0.9, 0.8, 0.61], False),  # what was before does not count
        ([1.0, 1.0, 1.0, 1e-3], False),
        ([1e-3, 1e-3, 1e-3, 1e-3], False),  # small enough
    ],
)
def test_descent_is_too_slow_where_forty_more_rounds_would_not_do(gaps: list[float], slow: bool) -> None:
    assert coordinate_descent._too_slow(gaps, 1e-3) == slow


@pytest.mark.parametrize(
    ("lags", "slow"),
    [
        ([1.0] * 10, False),
        ([1.0] * 11, True),
        ([1.0] * 10 + [0.51], True),
        ([1.0] * 10 + [0.5], False),  # half of what it was ten rounds ago
        ([4.0] + [1.0] * 10 + [0.51], True),
        ([1e-3] * 50, False),
        ([1e-9] * 99, False),
        ([1e-9] * 100, True),
    ],
)
def test_proximal_descent_is_too_slow_where_its_lag_is_not_halved_in_ten_rounds(lags: list[float], slow: bool) -> None:
    assert proximal_descent._too_slow(lags, 1e-3) == slow


@pytest.mark.parametrize(
    ("loss", "has"),
    [(Hinge(), True), (SquaredHinge(), True), (Huber(0.1), True), (Logistic(), False), (EpsilonInsensitive(), False)],
    ids=str,
)
def test_an_interior_point_is_of_parabolas_and_lines_of_one_sign(loss: Any, has: bool) -> None:
    assert has_interior_point(loss) == has


def steps_of(known: Any, *, whole: bool) -> NewtonSteps:
    found = NewtonSteps.__new__(NewtonSteps)
    found._known, found._preconditioner = known, SimpleNamespace(whole=whole)  # type: ignore[assignment]
    return found


@pytest.mark.parametrize(
    ("whole", "loss", "short", "most"),
    [(False, Hinge(), 2, 40), (True, Hinge(), 40, 200), (False, Logistic(), 40, 200), (True, Logistic(), 40, 200)],
    ids=str,
)
def test_newton_is_left_after_short_steps_or_many(whole: bool, loss: Any, short: int, most: int) -> None:
    """Sooner where an interior point can go on, unless the matrix is of all columns."""
    known = SimpleNamespace(problem=SimpleNamespace(loss=loss), short=0, steps=0)
    lost = []
    for shorts, steps in ((short - 1, most - 1), (short, 0), (0, most)):
        known.short, known.steps = shorts, steps
        lost.append(steps_of(known, whole=whole).lost)
    assert lost == [False, True, True]


@pytest.mark.parametrize(
    ("mu", "lengths", "shorts"),
    [(0.0, [0.29, 0.31, 0.1, 1.0], [1, 1, 2, 2]), (0.5, [0.29, 0.31, 0.1, 0.2], [1, 0, 1, 2])],
)
def test_short_steps_are_counted_one_after_the_other_where_a_corner_narrows(
    mu: float, lengths: list[float], shorts: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """And in all where it does not. A step is short that is less than three tenths of what it was to be."""
    known = SimpleNamespace(short=0, steps=0, mu=mu, w=np.zeros(2))
    steps, seen = steps_of(known, whole=True), []
    steps._rows = SimpleNamespace(margins=lambda step: step)  # type: ignore[assignment]
    monkeypatch.setattr(steps, "_step", lambda here, energy: np.ones(2))
    for length in lengths:
        moved = Moved(length, np.full(2, length), np.full(2, 2.0 * length))
        monkeypatch.setattr(steps, "_settled", lambda *_, moved=moved: moved)
        f = steps._moved(np.zeros(2), SimpleNamespace(value=1.0), 1.0)  # type: ignore[arg-type]
        assert (known.w[0], f[0]) == (length, 2.0 * length)
        seen.append(known.short)
    assert (seen, known.steps) == (shorts, len(lengths))


# -- rare columns ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("squares", "late", "sweeps"), [([5.0, 1.0, 0.0101, 0.01, 0.0], 9, 4), ([5.0] * 30, 9, 9), ([5.0] * 30, 99, 20)]
)
def test_rare_columns_are_swept_until_their_slopes_are_small(
    squares: list[float], late: int, sweeps: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A fiftieth of the gap allowed, all together; slopes of a tenth of that, shared among three columns, are left."""
    rows, seen = rows_of(sparse=True)[0], []
    columns = SimpleNamespace(number=np.arange(3), data=np.ones(11))
    found = RareColumns.__new__(RareColumns)
    found._rows, found._columns, found._outside = rows, columns, None  # type: ignore[assignment]

    def sweep(columns: Any, terms: Any, outside: Any, negligible: float, w: Any, f: Any) -> float:
        seen.append((terms.loss, negligible))
        rows._deadline = 0.0 if len(seen) == late else np.inf
        return squares[len(seen) - 1]

    monkeypatch.setattr(rare_columns, "column_sweep", sweep)
    before = rows._left
    found.settle(np.zeros(5), np.zeros(N), Huber(0.3), 0.5)
    assert len(seen) == sweeps
    assert {loss for loss, _ in seen} == {Huber(0.3)}
    assert seen[0][1] == pytest.approx(2.0 * 0.1 * 0.01 / 3.0, rel=1e-12)
    assert before - rows._left == 2 * 11 * sweeps


def test_a_single_rare_column_is_held_to_all_of_that(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[float] = []
    found = RareColumns.__new__(RareColumns)
    found._rows, found._outside = rows_of(sparse=True)[0], None  # type: ignore[assignment]
    found._columns = SimpleNamespace(number=np.arange(1), data=np.ones(2))  # type: ignore[assignment]
    monkeypatch.setattr(rare_columns, "column_sweep", lambda *given: (seen.append(given[3]), 0.0)[1])
    found.settle(np.zeros(5), np.zeros(N), Huber(0.3), 0.5)
    assert seen == [pytest.approx(2.0 * 0.1 * 0.01, rel=1e-12)]


@pytest.mark.parametrize(("sparse", "whole", "some"), [(True, False, True), (True, True, False), (False, False, False)])
def test_columns_are_rare_of_sparse_rows_where_some_are_outside_the_block(
    sparse: bool, whole: bool, some: bool
) -> None:
    arrow: Any = SimpleNamespace(whole=whole, chosen=np.array([0, 4]))
    found = rare_columns.rare_columns(rows_of(sparse=sparse)[0], arrow)
    assert (found is not None) == some
    if found is not None:
        assert found._columns.number.tolist() == [1, 2, 3]


def test_a_step_after_which_rare_columns_are_settled_is_shortened_until_the_objective_falls(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """1, .4 and .16 of it; none where nothing falls, nor where there are no such columns."""
    rows, X = rows_of()
    known = SimpleNamespace(problem=rows.problem, mu=0.0, w=np.linspace(-1.0, 1.0, 5), allowed=1.0)
    steps, step, tried = steps_of(known, whole=False), np.linspace(1.0, 2.0, 5), []
    steps._rows = rows
    steps._rare = SimpleNamespace(settle=lambda w, f, smooth, allowed: tried.append(w.copy()))  # type: ignore[assignment]

    def objective(w: Any) -> float:
        m = rows.terms.y * (X @ w)
        return float(0.5 * w @ w + 0.5 * rows.terms.s @ np.maximum(0.0, 1.0 - m) ** 2)

    values = [objective(known.w + length * step) for length in newton_steps.SETTLED_LENGTHS]
    assert newton_steps.SETTLED_LENGTHS == (1.0, 0.4, 0.16)
    assert values == sorted(values, reverse=True)
    f, df = X @ known.w, X @ step
    for value, taken in ((values[0] + 1e-3, 0), (values[1] + 1e-3, 1), (values[2] + 1e-3, 2), (values[2] - 1e-3, None)):
        tried.clear()
        found = steps._settled(f, df, step, value)
        assert (found is None) == (taken is None)
        if found is not None and taken is not None:
            length = newton_steps.SETTLED_LENGTHS[taken]
            assert found.length == length
            np.testing.assert_allclose(found.w, known.w + length * step, rtol=1e-12)
            np.testing.assert_allclose(found.f, f + length * df, rtol=1e-12)
        assert len(tried) == (3 if taken is None else taken + 1)
    steps._rare = None
    assert steps._settled(f, df, step, 1e9) is None


# -- which system is a matrix, and of which rows -------------------------------------------------------------------------


@pytest.mark.parametrize(("columns", "matrix"), [(3, True), (4, False)])
def test_the_hessian_of_just_so_many_components_is_still_a_matrix(
    columns: int, matrix: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("streamsvm.solvers.newton.hessian.most_explicit", lambda *, dense: 4)
    hessian = Hessian(Dense(np.ones((5, columns), np.float32), 1.0), columns, np.ones(columns + 1))
    assert (hessian._whole is not None) == matrix


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("rows", [50, 200, 800])
def test_so_many_rows_are_drawn_as_are_wanted(seed: int, rows: int) -> None:
    """Of weights that range over orders of magnitude, of which the largest are certain: sum min(1, h / t) is their number."""
    h = np.random.default_rng(seed).lognormal(0.0, 2.0, 1_000)
    t = block_matrix._threshold(h, rows)
    assert (h > t).any()
    assert np.minimum(1.0, h / t).sum() == pytest.approx(rows, rel=0.02)


def test_of_no_gradient_conjugate_gradients_make_no_step() -> None:
    X, bends = Dense(np.eye(4, 3, dtype=np.float32), 1.0), np.ones(4)
    found = conjugate_gradients(X, bends, np.ones(4), np.zeros(4), 3)
    np.testing.assert_array_equal(found, np.zeros(4))
