"""All rows in memory: passes against plain numpy, bounds against independent solvers, budgets, deadlines, state."""

from __future__ import annotations

import time
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import scipy.optimize
from hypothesis import given, settings
from hypothesis import strategies as st

import streamsvm as sv
from streamsvm.compute.passes.in_memory import all_rows as passes
from streamsvm.compute.passes.in_memory import central_path
from streamsvm.compute.passes.newton import keys_pass
from streamsvm.engine.checkpoint.codec import Decoder, Encoder
from streamsvm.engine.local import local_trainer
from streamsvm.engine.trainer import RunSettings
from streamsvm.jobs.fit.options import FitJob
from streamsvm.jobs.fit.planning.memory_plan import memory_settings
from streamsvm.jobs.fit.planning.plan import make_plan
from streamsvm.jobs.fit.run import fit
from streamsvm.jobs.synth.options import SynthJob
from streamsvm.jobs.synth.run import synth
from streamsvm.losses import Hinge, Huber, SquaredHinge
from streamsvm.rows import Dense, Rows
from streamsvm.solvers.newton import row_sample
from streamsvm.solvers.newton.in_memory import all_rows, interior_point, memory_rows, newton_steps
from streamsvm.solvers.newton.in_memory.all_rows import AllRows
from streamsvm.solvers.newton.in_memory.line_search import step_length
from streamsvm.solvers.newton.in_memory.linear_systems import block_matrix
from streamsvm.solvers.newton.in_memory.linear_systems.conjugate_gradients import Solved, solve
from streamsvm.solvers.newton.in_memory.linear_systems.preconditioner import ArrowPreconditioner
from streamsvm.solvers.newton.in_memory.memory_rows import MemoryRows
from streamsvm.solvers.newton.in_memory.newton_steps import Here, NewtonSteps
from streamsvm.solvers.newton.in_memory.outer_terms import OuterTerms
from streamsvm.solvers.newton.in_memory.proximal_descent import ProximalDescent
from streamsvm.solvers.newton.row_sample import Sample
from streamsvm.solvers.newton.trust_region import first_mu
from streamsvm.store import open_store
from streamsvm.store.views.memory import MemoryStore
from streamsvm.types import Problem, Stop
from tests.arrays import csr_of, sparse_values

LOSSES = [Hinge(), SquaredHinge(), Huber(0.3)]
each_loss = pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: type(loss).__name__)


def rows_in_memory(X: Rows, y: Any, s: Any = None) -> Sample:
    n = len(y)
    weights = np.ones(n, np.float32) if s is None else np.asarray(s, np.float32)
    return Sample(X, np.asarray(y, np.float32), weights, np.ones(n), np.zeros(n), np.arange(n), complete=True)


def solver_of(sample: Sample, columns: int, loss: Any, C: float = 1.0, tolerance: float = 1e-3) -> AllRows:
    problem = Problem(loss, C, len(sample.y), columns, 1, tolerance=tolerance)
    return AllRows(problem, sample, np.zeros(columns + 1), np.zeros(columns + 1), mu=first_mu(problem))


def table(rows: int, columns: int, seed: int, exponents: float, share: float = 0.3) -> tuple[Any, Any, Any]:
    """Values (n, d) of columns whose scales differ by 10^exponents, some rare; labels; row weights with zeros."""
    rng = np.random.default_rng(seed)
    values = rng.normal(1.0, 1.0, (rows, columns)) * (rng.random((rows, columns)) < rng.random(columns))
    score = values @ rng.normal(size=columns) + rng.normal(size=rows)
    y = np.where(score > np.quantile(score, 1 - share), 1.0, -1.0)
    values *= 10.0 ** rng.uniform(-exponents / 2, exponents / 2, columns)
    return values.astype(np.float32), y, rng.integers(0, 3, rows).astype(np.float32)


def primal(values: Any, y: Any, s: Any, w: Any, loss: Any, C: float) -> float:
    margins = y * (values.astype(np.float64) @ w[:-1] + w[-1])
    return float(0.5 * w @ w + sum(C * c * loss.value(m) for c, m in zip(s, margins, strict=True)))


def dual(values: Any, y: Any, s: Any, a: Any, loss: Any, C: float) -> float:
    counted = s > 0
    full = np.hstack([values.astype(np.float64), np.ones((len(y), 1))])
    v = full.T @ (a * y)
    value = sum(
        x - loss.conjugate(x, C * c) for x, c, some in zip(a, s.astype(np.float64), counted, strict=True) if some
    )
    return float(value - 0.5 * v @ v)


# -- passes and parts --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("sparse", [False, True])
def test_products_and_blocks_are_those_of_the_hessian(sparse: bool) -> None:
    values = sparse_values(np.random.default_rng(0), 60, 9)
    X, h = (csr_of(values, 2.0) if sparse else Dense(values, 2.0)), np.arange(60.0) % 4
    full = np.hstack([values.astype(np.float64), np.full((60, 1), 2.0)])
    hessian, d = np.eye(10) + full.T @ (h[:, None] * full), np.linspace(-1, 1, 10)
    out = d.copy()
    assert passes.hessian_product(X, h, d, out) == np.count_nonzero(h)
    np.testing.assert_allclose(out, hessian @ d, rtol=1e-9)
    if sparse:
        place = np.array([-1, 0, -1, 3, 1, -1, -1, -1, -1, 2], np.int32)
        block = np.zeros((4, 4))
        passes.sparse_block(X.data, X.indices, X.indptr, X.bias, h, place, block)
        chosen = [1, 4, 9, 3]
        np.testing.assert_allclose(block, np.tril(full[:, chosen].T @ (h[:, None] * full[:, chosen])), rtol=1e-6)


@pytest.mark.parametrize(("sparse", "least", "all_columns"), [(False, 4, 0), (True, 4, 0), (True, 64, 1500)])
def test_preconditioned_steps_solve_the_system_whatever_the_scales(
    sparse: bool, least: int, all_columns: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {
        "LEAST_BLOCK": least,
        "LARGEST_BLOCK": least,
        "most_explicit": lambda *, dense: all_columns,
    }.items():
        monkeypatch.setattr(f"streamsvm.solvers.newton.in_memory.linear_systems.preconditioner.{name}", value)
    values, y, _ = table(200, 12, 3, 8.0)
    X = csr_of(values, 1.0) if sparse else Dense(values, 1.0)
    outer = OuterTerms(np.linspace(1.0, 3.0, 13), np.zeros(13))
    rows = MemoryRows(rows_in_memory(X, y), Problem(SquaredHinge(), 1.0, 200, 12, 1), outer=outer)
    h, arrow = np.linspace(0, 2, 200), ArrowPreconditioner(X, 12, outer.diagonal)
    arrow.update(h)
    full = np.hstack([values.astype(np.float64), np.ones((200, 1))])
    right = full.T @ y
    found = solve(lambda d: rows.hessian_product(h, d), arrow, right, lambda energy, _: energy < 1e-20)
    exact = np.linalg.solve(np.diag(outer.diagonal) + full.T @ (h[:, None] * full), right)
    np.testing.assert_allclose(full @ found.x, full @ exact, rtol=1e-5, atol=1e-6)
    chosen = arrow.block_step(right) != 0
    assert chosen[-1]
    assert arrow.outside(right) == pytest.approx(0.5 * float(np.square(right[~chosen]).sum()), rel=1e-9, abs=1e-6)


@each_loss
def test_a_line_search_ends_where_the_slope_does(loss: Any) -> None:
    rng = np.random.default_rng(1)
    y, f, df = rng.choice([-1.0, 1.0], 80).astype(np.float32), rng.normal(size=80), rng.normal(size=80)
    smooth, C = (Huber(0.2) if isinstance(loss, Hinge) else loss), 0.7

    def slopes(t: float) -> tuple[float, float]:
        slope, curvature = passes.line_pass(y, np.ones(80), f, df, C, smooth, t)
        return first + 0.4 * t + slope, 0.4 + curvature

    def slope(t: float) -> float:
        m = y * (f + t * df)
        return first + 0.4 * t + sum(C * smooth.slope(a) * b for a, b in zip(m, y * df, strict=True))

    first = -0.9 - max(0.0, sum(C * smooth.slope(a) * b for a, b in zip(y * f, y * df, strict=True)))
    assert slopes(0.3)[0] == pytest.approx(slope(0.3))
    assert abs(slope(step_length(slopes))) <= 0.05 * abs(slope(0.0)) + 1e-9


@pytest.mark.parametrize("where", [1e-15, 3e-9, 0.4, 7.0, 1e6])
@pytest.mark.parametrize("bend", [1.0, 1e12, np.inf])
def test_a_line_search_finds_a_bend_of_any_scale_and_is_never_beyond_the_minimum(where: float, bend: float) -> None:
    def slopes(t: float) -> tuple[float, float]:
        beyond = max(0.0, t / where - 1.0)
        return -1.0 + (bend * beyond if beyond else 0.0), bend / where if beyond and bend < np.inf else 0.0

    end = where * (1.0 + 1.0 / bend)
    assert 0.9 * where <= step_length(slopes) <= 1.05 * end + 1e-9 * where


@pytest.mark.parametrize(("first", "beyond", "length"), [(-2.5, 0.1, 1.0), (-2.5, 0.11, 0.89), (-1.9, 0.1, 0.9)])
def test_a_line_search_may_end_a_tenth_beyond_the_minimum(first: float, beyond: float, length: float) -> None:
    """With a slope that is a twentieth of the first one at most; else it goes on to the minimum."""
    found = step_length(lambda t: (first, 1.0) if t == 0.0 else (beyond + (t - 1.0), 1.0))
    assert found == pytest.approx(length, rel=1e-12)


def test_a_line_search_does_not_take_a_small_slope_far_beyond_the_minimum_for_its_end() -> None:
    def slopes(t: float) -> tuple[float, float]:
        return t - (1.0 if t < 1e-12 else 0.0), 1.0

    t = step_length(slopes)
    assert 0.0 < t
    assert 0.5 * t * t < min(t, 1e-12)  # what was gained is more than what was lost again


@pytest.mark.parametrize("loss", [Hinge(), Huber(0.1)], ids=["hinge", "huber"])
def test_margins_that_were_large_once_do_not_blur_those_of_separable_rows(loss: Any) -> None:
    rng = np.random.default_rng(0)
    values = np.exp(rng.normal(size=(112, 30))) * (rng.random((112, 30)) < 0.6) * 10.0 ** rng.uniform(-2, 6, 30)
    y = np.where(np.arange(112) == 3, 1.0, -1.0)
    values, ones = values.astype(np.float32), np.ones(112)
    found = solver_of(rows_in_memory(csr_of(values, 1.0), y), 30, loss)
    found.advance(np.inf)
    assert found.solved
    assert found.primal < 1e-4
    assert found.primal == pytest.approx(primal(values, y, ones, found.best, loss, 1.0), rel=1e-4)


def test_steps_go_on_where_a_reading_finds_more_than_was_thought() -> None:
    values, y, _ = table(300, 12, 4, 1.0)
    found = solver_of(rows_in_memory(csr_of(values, 1.0), y), 12, SquaredHinge())
    found.advance(np.inf)
    optimum, found.primal = found.primal, 0.5 * (found.primal + found.dual)
    found.confirmed(1.1 * optimum)
    assert not found.solved
    found.advance(np.inf)
    assert found.solved
    assert found.primal == pytest.approx(optimum, rel=1e-3)
    before = found.work
    found.advance(np.inf)
    assert found.work == before


@each_loss
@pytest.mark.parametrize("sparse", [False, True])
def test_a_block_follows_the_rows_that_bend_and_is_about_right_where_rows_are_drawn(
    loss: Any, sparse: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(block_matrix, "LEAST_DRAWN", 400)
    rng, n = np.random.default_rng(8), 4000
    values = sparse_values(rng, n, 9)
    X, full = (csr_of(values, 2.0) if sparse else Dense(values, 2.0)), np.hstack([values, np.full((n, 1), 2.0)])
    chosen = np.array([1, 4, 9])
    block, h = block_matrix.BlockMatrix(X, 9, chosen), np.where(rng.random(n) < 0.5, 3.0, 0.0)
    for turn, (estimated, moved) in enumerate([(True, 1.0), (False, 0.05), (True, 0.02), (False, 1.0)]):
        h = np.where(rng.random(n) < moved, 3.0 * (rng.random(n) < 0.5), h) * (0.5 if turn == 2 else 1.0)
        exact = full[:, chosen].T @ (h[:, None] * full[:, chosen])
        found = block.at(h, estimated=estimated)
        assert block.exact == (turn > 0)
        np.testing.assert_allclose(found, exact, rtol=1e-5 if turn else 0.5, atol=1e-6 if turn else 0.1 * exact.max())
        np.testing.assert_allclose(np.diagonal(found), np.diagonal(exact), rtol=1e-5)


def test_a_block_is_made_anew_where_rows_that_left_it_were_nearly_all_of_it() -> None:
    """What is left of a sum of float32 products is their rounding: a diagonal below 0, which has no factor."""
    values = np.random.default_rng(4).normal(size=(50, 3)).astype(np.float32)
    values[7] *= 1e9
    block, h = block_matrix.BlockMatrix(Dense(values, 1.0), 3, np.arange(4)), np.ones(50)
    block.at(h, estimated=False)
    h[7] = 0.0
    full = np.hstack([values, np.ones((50, 1))]).astype(np.float64)
    np.testing.assert_allclose(block.at(h, estimated=False), full.T @ (h[:, None] * full), rtol=1e-5, atol=1e-5)


@pytest.fixture
def summed(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many rows each sum over rows took that a block made."""
    found, plain = [], block_matrix.BlockMatrix._sum

    def counting(self: Any, h: Any) -> Any:
        found.append(int(np.count_nonzero(h)))
        return plain(self, h)

    monkeypatch.setattr(block_matrix.BlockMatrix, "_sum", counting)
    return found


@pytest.mark.parametrize("rest", [1.0, 2.0])
def test_a_block_changes_by_the_row_that_left_it_though_its_weight_was_the_largest(
    rest: float, summed: list[int]
) -> None:
    """Or, where a corner has narrowed, all others are ``rest`` times what they were."""
    values, h = np.random.default_rng(4).normal(size=(50, 3)).astype(np.float32), np.ones(50)
    h[7] = 5.0 if rest == 1.0 else 1.0
    block = block_matrix.BlockMatrix(Dense(values, 1.0), 3, np.arange(4))
    block.at(h, estimated=False)
    h *= rest
    h[7] = 0.0
    full = np.hstack([values, np.ones((50, 1))]).astype(np.float64)
    np.testing.assert_allclose(block.at(h, estimated=False), full.T @ (h[:, None] * full), rtol=1e-5, atol=1e-5)
    assert summed == [50, 1]


def test_rows_are_drawn_as_often_as_their_second_derivatives_ask_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """min(1, h_i / t) sums up to as many as are wanted; who is drawn hangs on its number alone, and counts for t at least."""
    monkeypatch.setattr(block_matrix, "LEAST_DRAWN", 40)
    monkeypatch.setattr(block_matrix, "DRAWN_PER_COLUMN", 1)
    h = np.random.default_rng(3).exponential(size=400) * (np.arange(400) % 3 > 0)
    found = block_of(400)._drawn(h)
    assert found is not None
    t = float(found[found > 0.0].min())
    assert np.minimum(1.0, h / t).sum() == pytest.approx(40.0, rel=1e-2)
    keys = np.empty(400)
    keys_pass(h, 0, 0, keys)
    np.testing.assert_array_equal(found > 0.0, keys < 1.0 / t)
    np.testing.assert_array_equal(found[found > 0.0], np.maximum(h, t)[found > 0.0])
    assert block_of(400)._drawn(np.minimum(h, 0.0)) is None


def block_of(rows: int) -> block_matrix.BlockMatrix:
    values = np.random.default_rng(4).normal(size=(rows, 2)).astype(np.float32)
    return block_matrix.BlockMatrix(Dense(values, 1.0), 2, np.arange(3))


@pytest.mark.parametrize(("rows", "left", "sums"), [(12, 3, [12, 3]), (12, 4, [12, 8]), (10, 3, [10, 3])])
def test_a_block_is_changed_by_rows_that_are_less_than_half_of_those_in_it(
    rows: int, left: int, sums: list[int], summed: list[int]
) -> None:
    block, h = block_of(rows), np.full(rows, 2.0)
    block.at(h, estimated=False)
    h[:left] = 0.0
    block.at(h, estimated=False)
    assert summed == sums


def test_a_block_is_made_anew_where_what_changed_adds_up_to_a_share_of_it(
    summed: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Units are those of the first h: 1 is 2. Of 11, 10 and 11 units a fifth is 2.2, 2 and 2.2; changed have 1, 2 and 3."""
    monkeypatch.setattr(block_matrix, "STALE", 0.2)
    block, h = block_of(10), np.full(10, 2.0)
    for first in (2.0, 4.0, 2.0, 4.0):
        h[0] = first
        block.at(h, estimated=False)
    assert summed == [10, 1, 1, 10]


def test_a_block_does_not_change_by_rounding_of_weights_however_small_they_are(summed: list[int]) -> None:
    block, h = block_of(10), np.r_[np.ones(5), np.full(5, 1e-3)]
    for by in (1.0, 1.0 + 1e-13, 1.0 + 1e-10):
        block.at(np.r_[h[:8], h[8:] * by], estimated=False)
    assert summed == [10, 0, 2]


@pytest.mark.parametrize(("scale", "sums"), [(1e3, [50, 1]), (1e4, [50, 1, 49])])
def test_a_block_is_made_anew_where_less_than_a_millionth_of_a_diagonal_is_left(
    scale: float, sums: list[int], summed: list[int]
) -> None:
    """Of the column that one row has 1e3, or 1e4, times more of. A column without entries has nothing to lose."""
    values = np.ones((50, 2), np.float32)
    values[7, 0], values[:, 1] = scale, 0.0
    block, h = block_matrix.BlockMatrix(Dense(values, 1.0), 2, np.arange(3)), np.ones(50)
    block.at(h, estimated=False)
    h[7] = 0.0
    block.at(h, estimated=False)
    assert [rows for rows in summed if rows] == sums


def test_a_proximal_point_knows_its_lag() -> None:
    """P(w) - D(a) less 1/2 ||w - v||^2, for a loss whose conjugate is a parabola."""
    rng = np.random.default_rng(6)
    values, y = rng.normal(size=(30, 4)).astype(np.float32), np.where(rng.random(30) < 0.5, 1.0, -1.0)
    known = solver_of(rows_in_memory(Dense(values, 1.0), y), 4, Huber(0.3), C=0.7)
    descent, w, a = ProximalDescent.__new__(ProximalDescent), rng.normal(size=5), 0.7 * rng.random(30)
    descent._known, descent._rows, descent._slopes = known, MemoryRows(known.sample, known.problem), np.empty(30)
    here, ones = descent._evaluated(w, a), np.ones(30)
    full = np.hstack([values, np.ones((30, 1))]).astype(np.float64)
    v, P = full.T @ (a * y), primal(values, y, ones, w, Huber(0.3), 0.7)
    assert here.primal == pytest.approx(P, rel=1e-9)
    apart = P - dual(values, y, ones, a, Huber(0.3), 0.7)
    assert here.lag == pytest.approx(apart - 0.5 * np.square(w - v).sum(), rel=1e-9)
    np.testing.assert_allclose(here.v, v, rtol=1e-9, atol=1e-12)


def test_an_iterate_is_evaluated_with_what_the_corner_is_rounded_by() -> None:
    rng = np.random.default_rng(6)
    values, y = rng.normal(size=(30, 4)).astype(np.float32), np.where(rng.random(30) < 0.5, 1.0, -1.0)
    known = solver_of(rows_in_memory(Dense(values, 1.0), y), 4, Hinge(), C=0.7)
    known.w, known.mu = 0.5 * rng.normal(size=5), 0.25
    rows = MemoryRows(known.sample, known.problem)
    here = NewtonSteps(known, rows, ArrowPreconditioner(rows.X, 4, rows.outer.diagonal))._evaluated(
        rows.margins(known.w)
    )
    full = np.hstack([values, np.ones((30, 1))]).astype(np.float64)
    z = 1.0 - y * (full @ known.w)  # beyond the corner; rounded over |z| <= mu: (z + mu)^2 / 4 mu
    inside = np.abs(z) < 0.25
    assert inside.any()
    a = 0.7 * np.where(inside, (z + 0.25) / 0.5, z > 0.0)
    smooth = 0.7 * np.where(inside, np.square(z + 0.25), 2.0 * 0.5 * np.maximum(z, 0.0)).sum() / (2.0 * 0.5)
    v, square = full.T @ (a * y), 0.5 * float(known.w @ known.w)
    assert here.value == pytest.approx(square + smooth, rel=1e-9)
    np.testing.assert_allclose(here.gradient, known.w - v, rtol=1e-9, atol=1e-12)
    losses = 0.7 * np.maximum(z, 0.0).sum()
    assert here.smoothing == pytest.approx(losses - a @ z, rel=1e-6)


@pytest.mark.parametrize(
    ("energy", "size", "target", "least"),
    [
        (0.05, 1.0, 0.0, 0.05 * 0.05**2),
        (0.05, 2.0, 0.0, 0.05 * 0.025**2),
        (3.0, 2.0, 0.0, 3.0 * 0.1**2),  # a tenth at most
        (1e-6, 1.0, 0.0, 1e-6 * 1e-4**2),  # a ten thousandth at least
        (0.05, 1.0, 0.25, 0.25 * 8e-3),  # of what is allowed
    ],
)
def test_a_step_is_as_exact_as_the_energy_is_small(
    energy: float, size: float, target: float, least: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = SimpleNamespace(size=size, target=target, allowed=8e-3, outer=OuterTerms(np.ones(1), np.zeros(1)))
    ended: list[bool] = []
    rows = SimpleNamespace(count=1, late=False)

    def solved(product: Any, preconditioner: Any, right: Any, enough: Any) -> Any:
        ended.extend(enough(share * least, right) for share in (1.001, 0.999))
        rows.late = True
        ended.append(enough(1e9, right))
        return Solved(-right, right)

    monkeypatch.setattr(newton_steps, "solve", solved)
    steps = NewtonSteps(known, rows, SimpleNamespace(whole=False))  # type: ignore[arg-type]
    assert steps._step(Here(1.0, 0.0, np.array([3.0])), energy).tolist() == [3.0]
    assert ended == [False, True, True]


@pytest.mark.parametrize("whole", [True, False])
def test_what_a_step_lacks_is_taken_away_where_the_block_is_of_all_columns(
    whole: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No product of conjugate gradients is asked for. The block is of second derivatives that are up to a fifth off."""
    for name in ("LEAST_BLOCK", "LARGEST_BLOCK"):
        monkeypatch.setattr(f"streamsvm.solvers.newton.in_memory.linear_systems.preconditioner.{name}", 5)
    if not whole:
        monkeypatch.setattr(
            "streamsvm.solvers.newton.in_memory.linear_systems.preconditioner.most_explicit", lambda *, dense: 0
        )
    rng = np.random.default_rng(6)
    values, y = rng.normal(size=(60, 8)).astype(np.float32), np.where(rng.random(60) < 0.5, 1.0, -1.0)
    known, h = solver_of(rows_in_memory(Dense(values, 1.0), y), 8, SquaredHinge()), 1.0 + rng.random(60)
    rows, gradient = MemoryRows(known.sample, known.problem), rng.normal(size=9)
    arrow = ArrowPreconditioner(rows.X, 8, rows.outer.diagonal)
    arrow.update(h * (1.0 + 0.2 * rng.random(60)))
    steps = NewtonSteps(known, rows, arrow)
    steps._h[:] = h
    step = steps._step(Here(1.0, 0.0, gradient), 1e9)
    lacking = float(np.linalg.norm(gradient + rows.hessian_product(h, step)) / np.linalg.norm(gradient))
    assert (lacking < 0.2) if whole else (lacking == 1.0)


@pytest.mark.parametrize(
    ("mu", "energy", "smoothing", "after"),
    [
        (0.5, 1.0, 9.0, 0.25),  # half of it at most
        (0.5, 1.0, 0.6, 0.5),  # smoothing costs no more than .3 of what is allowed
        (0.5, 1.0, 0.61, 0.5 * np.sqrt(0.95 * 0.6 / 0.61)),
        (0.5, 1.1, 9.0, 0.5),  # the energy is more than 1e-4 of the objective
        (0.0, 1.0, 9.0, 0.0),
    ],
)
def test_a_corner_narrows_where_rounding_it_costs_too_much(
    mu: float, energy: float, smoothing: float, after: float
) -> None:
    known = SimpleNamespace(mu=mu, allowed=2.0, outer=OuterTerms(np.ones(1), np.zeros(1)))
    steps = NewtonSteps(known, SimpleNamespace(count=1), None)  # type: ignore[arg-type]
    here = Here(-1e4, smoothing, np.zeros(1))
    assert steps._narrowed(here, energy) == (after != mu)
    assert known.mu == pytest.approx(after, rel=1e-12)


@pytest.mark.timeout(120)
def test_numbers_that_float64_cannot_hold_together_do_not_keep_it_from_the_end() -> None:
    rng = np.random.default_rng(0)
    X = np.where(rng.random((40, 3)) < 0.4, np.uint64(2**64 - 1), np.uint64(1))
    with pytest.warns(sv.StreamSVMWarning, match="not certified"):
        found = sv.fit(X, rng.integers(0, 2, 40), loss="hinge", max_passes=2)
    assert found.training.passes == 2


@pytest.mark.parametrize(("steps", "read", "centered"), [(30, False, True), (1, False, True), (30, True, False)])
def test_a_point_is_gone_on_from_unless_it_was_time_for_a_reading(
    steps: int, read: bool, centered: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that is not on the path after so many steps is as good as will be found."""
    monkeypatch.setattr(interior_point, "CENTERING_STEPS", steps)
    values, y, s = table(200, 12, 3, 8.0)
    problem, X = Problem(Hinge(), 1.0, 200, 12, 1), csr_of(values)
    rows, arrow = MemoryRows(rows_in_memory(X, y, s), problem), ArrowPreconditioner(X, 12, np.ones(13))
    if read:
        rows.visited(2 * memory_rows.WORK)
    w, at, found = interior_point.Centering(rows, arrow).run(np.zeros(13))
    assert found == centered
    assert (not w.any()) == read
    gradient = w - rows.weighted_sum(at.a * rows.terms.y)
    energy = float(gradient @ arrow(gradient))
    assert (energy <= interior_point.FIRST_TARGET) == (steps == 30 and not read)


@pytest.mark.parametrize(("bound", "curvature"), [(2.0, 0.0), (np.inf, 0.3), (2.0, 0.3)])
@pytest.mark.parametrize("z", [-1e9, -2.0, 0.0, 1.5, 1e9])
@pytest.mark.parametrize("target", [1e-9, 0.1, 50.0])
def test_a_point_on_the_central_path_solves_its_equation(
    z: float, target: float, bound: float, curvature: float
) -> None:
    a, room = central_path.central(z, target, bound, curvature)
    assert a > 0
    assert room > 0
    if bound < np.inf:
        assert a + room == pytest.approx(bound)
    terms = z, -curvature * a, target / a, -target / room
    assert abs(sum(terms)) <= 1e-6 * max(map(abs, terms))


@each_loss
def test_compiled_interior_passes_are_their_python(loss: Any) -> None:
    rng, n = np.random.default_rng(2), 30
    y, s, f = rng.choice([-1, 1], n).astype(np.float32), rng.integers(0, 3, n).astype(float), rng.normal(size=n)
    results = []
    for compiled in (True, False):
        run: dict[str, Any] = {
            name: getattr(passes, name) if compiled else getattr(passes, name).py_func
            for name in ("system_pass", "step_pass", "affine_products", "move_pass", "value_pass")
        }
        begin = central_path.center_pass if compiled else central_path.center_pass.py_func
        line = central_path.center_line_pass if compiled else central_path.center_line_pass.py_func
        affinely, aim = passes.Aim(0.0, 0.0), passes.Aim(0.02, 0.7)
        rows, at = passes.RowTerms(y, s, 0.5, loss), passes.Interior(np.empty(n), np.empty(n), np.empty(n))
        begin(rows, f, 0.5, at)
        affine, theta, right, da, slopes = np.zeros(n), np.empty(n), np.empty(n), np.empty(n), np.empty(n)
        run["system_pass"](rows, f, at, affinely, affine, theta, right)
        first = run["step_pass"](rows, at, affinely, affine, theta, right, 0.1 * f, affine)
        left = run["affine_products"](rows, at, affine, first)
        run["system_pass"](rows, f, at, aim, affine, theta, right)
        length = run["step_pass"](rows, at, aim, affine, theta, right, 0.1 * f, da)
        run["move_pass"](rows, at, aim, affine, da, 0.9 * length)
        along = line(rows, f, 0.1 * f, 0.5, 0.3)
        results.append([first, left, length, *at, *run["value_pass"](rows, f, at, slopes), slopes, *along])
        counted = s > 0
        assert (at.a[counted] > 0).all()
        assert (at.below[counted] > 0).all()
        assert (at.a[~counted] == 0).all()
    for one, other in zip(*results, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-6, atol=1e-9)


@each_loss
@pytest.mark.parametrize("margin", [-1e40, -1e18, 1e18, 1e40])
def test_what_rounding_takes_to_a_bound_stays_inside(loss: Any, margin: float) -> None:
    """Of rows that are far beyond the corner the distance to a bound is less than a rounding of the dual variable."""
    y, f = np.ones(3, np.float32), np.array([margin, 0.5, 0.0])
    rows, at = passes.RowTerms(y, np.ones(3), 1e5, loss), passes.Interior(np.empty(3), np.empty(3), np.empty(3))
    theta, right, da, aim = np.empty(3), np.empty(3), np.empty(3), passes.Aim(1e-9, 1.0)
    central_path.center_pass(rows, f, 1e-6, at)
    for _ in range(3):
        assert (at.a > 0.0).all()
        assert (at.a < loss.upper(1e5)).all()
        passes.system_pass(rows, f, at, aim, np.zeros(3), theta, right)
        length = passes.step_pass(rows, at, aim, np.zeros(3), theta, right, np.zeros(3), da)
        passes.move_pass(rows, at, aim, np.zeros(3), da, length)
        assert np.isfinite(theta).all()
    assert np.isfinite(central_path.center_line_pass(rows, f, f, 1e-6, 0.1)).all()


# -- bounds ------------------------------------------------------------------------------------------------------------


@each_loss
@settings(max_examples=15, deadline=None)
@given(
    seed=st.integers(0, 10**6), rows=st.integers(20, 300), columns=st.integers(2, 40),
    exponents=st.sampled_from([0.0, 4.0, 8.0, 10.0]), C=st.sampled_from([1e-3, 1.0, 100.0]), sparse=st.booleans(),
)  # fmt: skip
def test_bounds_hold_and_meet_whatever_the_scales(
    loss: Any, seed: int, rows: int, columns: int, exponents: float, C: float, sparse: bool
) -> None:
    values, y, s = table(rows, columns, seed, exponents)
    sample = rows_in_memory(csr_of(values, 1.0) if sparse else Dense(values, 1.0), y, s)
    found = solver_of(sample, columns, loss, C)
    found.advance(np.inf)
    assert found.solved
    assert found.primal == pytest.approx(primal(values, y, s, found.best, loss, C), rel=1e-6)
    assert found.dual <= found.primal * (1 + 1e-9)
    if found.interior is not None:
        a = found.interior.a
        assert (a >= 0).all()
        assert (a <= [loss.upper(C * c) if c > 0 else 0.0 for c in s.astype(np.float64)]).all()
        assert dual(values, y, s, a, loss, C) <= found.primal * (1 + 1e-6)


@pytest.mark.parametrize(("loss", "number"), [(SquaredHinge(), 2), (Hinge(), 3)], ids=["squared hinge", "hinge"])
def test_the_optimum_of_liblinear_is_between_the_bounds(loss: Any, number: int) -> None:
    pytest.importorskip("liblinear")
    from liblinear.liblinearutil import parameter, problem, train

    values, y, _ = table(400, 30, 11, 1.0)
    found = solver_of(rows_in_memory(csr_of(values, 1.0), y), 30, loss, tolerance=1e-6)
    found.advance(np.inf)
    model = train(problem(y, values.astype(np.float64), bias=1), parameter(f"-s {number} -c 1 -B 1 -e 1e-8 -q"))
    sign = 1.0 if model.get_labels()[0] > 0 else -1.0
    theirs = primal(values, y, np.ones(400), sign * np.append(*model.get_decfun()), loss, 1.0)
    assert found.solved
    assert found.dual <= theirs * (1 + 1e-9)
    assert found.primal <= theirs * (1 + 1e-6)


@each_loss
def test_terms_that_are_no_sum_over_rows_are_part_of_both_bounds(loss: Any) -> None:
    """Damped around a center and shifted: the optimum is between the bounds, which an independent minimizer confirms."""
    values, y, _ = table(300, 12, 4, 1.0)
    rng = np.random.default_rng(9)
    outer = OuterTerms(rng.uniform(1.0, 5.0, 13), rng.normal(0.0, 20.0, 13))
    found = solver_of(rows_in_memory(csr_of(values, 1.0), y), 12, loss)
    found.outer, found.wanted = outer, 1e-5
    found.advance(np.inf)
    full = np.hstack([values.astype(np.float64), np.ones((300, 1))])

    def value(w: Any, smooth: Any) -> float:
        return 0.5 * w @ (outer.diagonal * w) + outer.linear @ w + sum(map(smooth.value, y * (full @ w)))

    def gradient(w: Any, smooth: Any) -> Any:
        slopes = np.array([smooth.slope(m) for m in y * (full @ w)])
        return outer.diagonal * w + outer.linear + full.T @ (y * slopes)

    smooth = Huber(1e-4) if isinstance(loss, Hinge) else loss
    theirs = scipy.optimize.minimize(value, found.best, (smooth,), "L-BFGS-B", gradient, options={"maxiter": 2000})
    assert found.solved
    assert found.primal == pytest.approx(value(found.best, loss), rel=1e-10)
    assert found.dual <= value(theirs.x, loss) + 1e-9
    assert found.primal <= value(theirs.x, loss) + 1e-4


def test_a_share_of_the_decrease_will_do_where_that_is_more() -> None:
    loose, sharp = wide(Hinge()), wide(Hinge())
    for found, share in ((loose, 0.3), (sharp, 0.0)):
        found.wanted, found.share = 1e-6, share
        found.advance(np.inf)
        assert found.solved
    assert loose.primal - loose.dual <= 0.3 * (loose.first - loose.primal)
    assert loose.steps < sharp.steps


# -- budgets, deadlines, state -----------------------------------------------------------------------------------------


def wide(loss: Any, tolerance: float = 1e-3) -> AllRows:
    values, y, _ = table(300, 40, 5, 8.0)
    return solver_of(rows_in_memory(csr_of(values, 1.0), y), 40, loss, tolerance=tolerance)


def decoded(value: Any) -> Any:
    encoder = Encoder()
    tree = encoder.encode(value)
    return Decoder(encoder.tensors.__getitem__).decode(tree)


@each_loss
def test_work_between_readings_is_bounded_and_what_is_saved_goes_on_to_the_same_bits(
    loss: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory_rows, "WORK", 1)
    monkeypatch.setattr(memory_rows, "PRODUCTS", 2)
    straight, saved = wide(loss), wide(loss)
    readings = 0
    while not straight.solved and readings < 400:
        readings += 1
        straight.advance(np.inf)
        saved.advance(np.inf)
        saved = decoded(saved)
    assert straight.solved
    assert readings > 1
    np.testing.assert_array_equal(straight.best, saved.best)
    assert straight.dual == saved.dual


def test_a_deadline_that_has_passed_ends_it_with_bounds() -> None:
    found = wide(Hinge(), 1e-9)
    found.advance(time.perf_counter() - 1.0)
    assert found.steps == 0
    assert not found.solved
    assert found.dual <= found.primal < np.inf


# -- through a fit -----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("wide") / "t.zarr"
    synth(SynthJob("table", str(path), rows=3_000, columns=2_500, chunk_bytes=1 << 16))
    return path


@pytest.mark.parametrize("standardize", [False, True])
@pytest.mark.parametrize("loss", ["squared_hinge", "hinge", "huber"])
def test_auto_certifies_a_wide_raw_table_in_three_readings(
    loss: str, standardize: bool, store: Path, tmp_path: Path
) -> None:
    job = FitJob(str(store), str(tmp_path / "m"), loss=loss, standardize=standardize, memory=4 << 30)
    assert make_plan(job, open_store(store)).solver_name == "newton"
    found = fit(job)
    assert found.training.passes <= 3
    certificate = found.training.runs[0].certificate
    assert certificate is not None
    assert certificate.gap <= 1e-3


def test_readings_grow_with_the_logarithm_of_the_work_in_memory(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory_rows, "WORK", 1)
    monkeypatch.setattr(memory_rows, "PRODUCTS", 2)
    found = fit(FitJob(str(store), str(tmp_path / "m"), loss="hinge", memory=4 << 30))
    state = found.training.runs[0].state
    assert state.all_rows.advances > 12
    assert found.training.passes <= np.log2(state.all_rows.advances + 1) + 4
    assert found.training.runs[0].certificate.gap <= 1e-3


@pytest.mark.parametrize("loss", ["squared_hinge", "hinge"])
def test_a_cluster_finds_the_same_optimum(loss: str, store: Path, tmp_path: Path) -> None:
    alone = fit(FitJob(str(store), str(tmp_path / "a"), loss=loss, memory=4 << 30))
    job = FitJob(str(store), str(tmp_path / "b"), loss=loss, memory=4 << 30, cluster="here:", groups=3)
    spread = fit(job)
    bounds = [found.training.runs[0].certificate for found in (alone, spread)]
    assert max(b.dual for b in bounds if b) <= min(b.primal for b in bounds if b) * (1 + 1e-9)
    assert all(b.gap <= 1e-3 for b in bounds if b)


def test_where_neither_all_rows_nor_a_sample_of_use_fits_auto_says_so_and_takes_less(
    store: Path, tmp_path: Path
) -> None:
    ample = make_plan(FitJob(str(store), str(tmp_path / "m"), memory=4 << 30, threads=1), open_store(store))
    solver = next(t.nbytes for t in ample.memory.terms if t.name == "solver")
    assert memory_settings(ample.solver) == {"sample": None}
    tight = FitJob(str(store), str(tmp_path / "m"), memory=ample.memory.total - solver // 2, threads=1)
    plan = make_plan(tight, open_store(store))
    assert plan.solver_name == "dcd"
    assert "second order" in plan.why
    assert plan.memory.total <= plan.memory.limit


@pytest.mark.parametrize("loss", ["squared_hinge", "hinge"])
def test_a_sample_that_leads_nowhere_is_left_for_all_rows(loss: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Columns with a few values that are 10^6 times as large as most: none of 200 rows is like the rest."""
    for name, value in {"ROWS": 200, "PER_COMPONENT": 2, "FEWEST": 200, "LARGEST": 1, "WHOLE": 1}.items():
        monkeypatch.setattr(row_sample, name, value)
    rng = np.random.default_rng(3)
    X = np.hstack([rng.lognormal(0.0, 5.0, (6000, 4)), rng.normal(size=(6000, 4))])
    y = X[:, 4:] @ rng.normal(size=4) + 0.3 * np.log(X[:, 0]) + 0.5 * rng.normal(size=6000) > 0
    rows = MemoryStore(chunk_bytes=1 << 18)
    rows.append(Dense(X.astype(np.float32)), y.astype(np.int32), None)
    stored = rows.commit(("-1", "1"), 8)
    plan = make_plan(FitJob("memory", "model", loss=loss, C=1.0), stored)
    events: list[Any] = []
    loop = local_trainer(stored, plan.solver, plan.problems, plan.features, RunSettings(depth=0), events.append)
    found = loop.train(Stop(12)).runs[0].certificate
    assert found is not None
    assert found.gap <= 1e-3
    facts = [event["facts"] for event in events if event["event"] == "pass"]
    assert [known.get("rows") for known in facts[:4]] == [None] * 4
    assert facts[-1]["rows"] == "all in memory"


@pytest.mark.parametrize(("rows", "step"), [(95, 1), (96, 2), (144, 3)])
def test_work_begins_with_every_kth_row_where_that_leaves_so_many_a_component(
    rows: int, step: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """12 rows for each of the 4 components here."""
    monkeypatch.setattr(all_rows, "THIN", 10)
    monkeypatch.setattr(all_rows, "THIN_PER_COMPONENT", 12)
    taken: list[int] = []

    def every(k: int) -> Any:
        taken.append(k)
        raise TimeoutError

    known: Any = AllRows.__new__(AllRows)
    known.problem, known.w, known.outer = Problem(SquaredHinge(), 1.0, rows, 3, 1), np.zeros(4), None
    known.sample, known.descent, known.interior = SimpleNamespace(every=every), None, None
    given: Any = SimpleNamespace(count=rows)
    with pytest.raises(TimeoutError) if step > 1 else nullcontext():
        known._begin(given, np.inf)
    assert taken == [step] * (step > 1)
