"""All rows in memory: passes against plain numpy, bounds against independent solvers, budgets, deadlines, state."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.optimize
from hypothesis import given, settings
from hypothesis import strategies as st

import streamsvm as sv
from streamsvm.compute.passes import interior_point as interior_passes
from streamsvm.compute.passes import rows_in_memory as passes
from streamsvm.engine.checkpoint import Decoder, Encoder
from streamsvm.jobs.fit.driver import fit
from streamsvm.jobs.fit.job import FitJob
from streamsvm.jobs.fit.memory import memory_settings
from streamsvm.jobs.fit.plan import make_plan
from streamsvm.jobs.options import SynthJob
from streamsvm.jobs.synth import synth
from streamsvm.losses import Hinge, Huber, SquaredHinge
from streamsvm.rows import Dense, Rows
from streamsvm.solvers.newton import rows_in_memory as memory
from streamsvm.solvers.newton.all_rows import AllRows, NewtonSteps
from streamsvm.solvers.newton.linear_algebra import ArrowPreconditioner, solve
from streamsvm.solvers.newton.model import first_mu
from streamsvm.solvers.newton.rows_in_memory import MemoryRows, OuterTerms, step_length
from streamsvm.solvers.newton.sample import Sample
from streamsvm.store import open_store
from streamsvm.types import Problem
from tests.arrays import csr_of, sparse_values
from tests.axes import each_value

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
def test_newton_in_memory_products_are_those_of_the_hessian(sparse: bool) -> None:
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
def test_newton_in_memory_steps_solve_the_system_at_any_scale(
    sparse: bool, least: int, all_columns: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {
        "LEAST_BLOCK": least,
        "LARGEST_BLOCK": least,
        "most_explicit": lambda *, dense: all_columns,
    }.items():
        monkeypatch.setattr(f"streamsvm.solvers.newton.linear_algebra.{name}", value)
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
def test_line_search_ends_where_the_slope_does(loss: Any) -> None:
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


@each_value(("where", [1e-15, 3e-9, 0.4, 7.0, 1e6]), ("bend", [1.0, 1e12, np.inf]))
def test_line_search_finds_a_corner_of_any_scale(where: float, bend: float) -> None:
    def slopes(t: float) -> tuple[float, float]:
        beyond = max(0.0, t / where - 1.0)
        return -1.0 + (bend * beyond if beyond else 0.0), bend / where if beyond and bend < np.inf else 0.0

    end = where * (1.0 + 1.0 / bend)
    assert 0.9 * where <= step_length(slopes) <= 1.05 * end + 1e-9 * where


@pytest.mark.parametrize("loss", [Hinge(), Huber(0.1)], ids=["hinge", "huber"])
def test_newton_in_memory_margins_do_not_drift_on_separable_rows(loss: Any) -> None:
    rng = np.random.default_rng(0)
    values = np.exp(rng.normal(size=(112, 30))) * (rng.random((112, 30)) < 0.6) * 10.0 ** rng.uniform(-2, 6, 30)
    y = np.where(np.arange(112) == 3, 1.0, -1.0)
    values, ones = values.astype(np.float32), np.ones(112)
    found = solver_of(rows_in_memory(csr_of(values, 1.0), y), 30, loss)
    found.advance(np.inf)
    assert found.solved
    assert found.primal < 1e-4
    assert found.primal == pytest.approx(primal(values, y, ones, found.best, loss, 1.0), rel=1e-4)


def test_newton_in_memory_certificate_counts_what_smoothing_costs() -> None:
    rng = np.random.default_rng(6)
    values, y = rng.normal(size=(30, 4)).astype(np.float32), np.where(rng.random(30) < 0.5, 1.0, -1.0)
    known = solver_of(rows_in_memory(Dense(values, 1.0), y), 4, Hinge(), C=0.7)
    known.w, known.mu = 0.5 * rng.normal(size=5), 0.25
    rows = MemoryRows(known.sample, known.problem)
    here = NewtonSteps(known, rows, ArrowPreconditioner(rows.X, 4, rows.outer.diagonal))._evaluate(
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


@pytest.mark.timeout(120)
def test_newton_in_memory_ends_on_numbers_of_very_different_sizes() -> None:
    rng = np.random.default_rng(0)
    X = np.where(rng.random((40, 3)) < 0.4, np.uint64(2**64 - 1), np.uint64(1))
    with pytest.warns(sv.StreamSVMWarning, match="not certified"):
        found = sv.fit(X, rng.integers(0, 2, 40), loss="hinge", max_passes=2)
    assert found.training.passes == 2


@each_loss
def test_interior_point_passes_are_their_python(loss: Any) -> None:
    rng, n = np.random.default_rng(2), 30
    y, s, f = rng.choice([-1, 1], n).astype(np.float32), rng.integers(0, 3, n).astype(float), rng.normal(size=n)
    results = []
    for compiled in (True, False):
        run: dict[str, Any] = {
            name: getattr(interior_passes, name) if compiled else getattr(interior_passes, name).py_func
            for name in ("system_pass", "step_pass", "affine_products", "move_pass", "value_pass")
        }
        begin = interior_passes.center_pass if compiled else interior_passes.center_pass.py_func
        line = interior_passes.center_line_pass if compiled else interior_passes.center_line_pass.py_func
        affinely, aim = interior_passes.Aim(0.0, 0.0), interior_passes.Aim(0.02, 0.7)
        rows, at = passes.RowTerms(y, s, 0.5, loss), interior_passes.Interior(np.empty(n), np.empty(n), np.empty(n))
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
def test_interior_point_stays_inside_its_box_under_rounding(loss: Any, margin: float) -> None:
    """Of rows that are far beyond the corner the distance to a bound is less than a rounding of the dual variable."""
    y, f = np.ones(3, np.float32), np.array([margin, 0.5, 0.0])
    rows, at = (
        passes.RowTerms(y, np.ones(3), 1e5, loss),
        interior_passes.Interior(np.empty(3), np.empty(3), np.empty(3)),
    )
    theta, right, da, aim = np.empty(3), np.empty(3), np.empty(3), interior_passes.Aim(1e-9, 1.0)
    interior_passes.center_pass(rows, f, 1e-6, at)
    for _ in range(3):
        assert (at.a > 0.0).all()
        assert (at.a < loss.upper(1e5)).all()
        interior_passes.system_pass(rows, f, at, aim, np.zeros(3), theta, right)
        length = interior_passes.step_pass(rows, at, aim, np.zeros(3), theta, right, np.zeros(3), da)
        interior_passes.move_pass(rows, at, aim, np.zeros(3), da, length)
        assert np.isfinite(theta).all()
    assert np.isfinite(interior_passes.center_line_pass(rows, f, f, 1e-6, 0.1)).all()


# -- bounds ------------------------------------------------------------------------------------------------------------


@each_loss
@settings(max_examples=15, deadline=None)
@given(
    seed=st.integers(0, 10**6), rows=st.integers(20, 300), columns=st.integers(2, 40),
    exponents=st.sampled_from([0.0, 4.0, 8.0, 10.0]), C=st.sampled_from([1e-3, 1.0, 100.0]), sparse=st.booleans(),
)  # fmt: skip
def test_newton_in_memory_bounds_meet_at_any_scale(
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
def test_newton_in_memory_bounds_hold_the_optimum_of_liblinear(loss: Any, number: int) -> None:
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
def test_newton_in_memory_bounds_count_outer_terms(loss: Any) -> None:
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


# -- budgets, deadlines, state -----------------------------------------------------------------------------------------


def wide(loss: Any, tolerance: float = 1e-3) -> AllRows:
    values, y, _ = table(300, 40, 5, 8.0)
    return solver_of(rows_in_memory(csr_of(values, 1.0), y), 40, loss, tolerance=tolerance)


def decoded(value: Any) -> Any:
    encoder = Encoder()
    tree = encoder.encode(value)
    return Decoder(encoder.tensors.__getitem__).decode(tree)


@each_loss
def test_newton_in_memory_resumes_to_the_same_bits(loss: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "WORK", 1)
    monkeypatch.setattr(memory, "PRODUCTS", 2)
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


def test_newton_in_memory_ends_at_its_deadline_with_bounds() -> None:
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


@pytest.mark.parametrize("loss", ["squared_hinge", "hinge"])
def test_newton_in_memory_on_a_cluster_finds_the_same_optimum(loss: str, store: Path, tmp_path: Path) -> None:
    alone = fit(FitJob(str(store), str(tmp_path / "a"), loss=loss, memory=4 << 30))
    job = FitJob(str(store), str(tmp_path / "b"), loss=loss, memory=4 << 30, cluster="here:", groups=3)
    spread = fit(job)
    bounds = [found.training.runs[0].certificate for found in (alone, spread)]
    assert max(b.dual for b in bounds if b) <= min(b.primal for b in bounds if b) * (1 + 1e-9)
    assert all(b.gap <= 1e-3 for b in bounds if b)


def test_auto_takes_a_smaller_solver_where_no_sample_fits(store: Path, tmp_path: Path) -> None:
    ample = make_plan(FitJob(str(store), str(tmp_path / "m"), memory=4 << 30, threads=1), open_store(store))
    solver = next(t.nbytes for t in ample.memory.terms if t.name == "solver")
    assert memory_settings(ample.solver) == {"sample": None}
    tight = FitJob(str(store), str(tmp_path / "m"), memory=ample.memory.total - solver // 2, threads=1)
    plan = make_plan(tight, open_store(store))
    assert plan.solver_name == "dcd"
    assert "second order" in plan.why
    assert plan.memory.total <= plan.memory.limit
