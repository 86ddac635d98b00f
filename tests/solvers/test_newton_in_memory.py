"""Newton's method with all rows in memory, by steps, interior points and coordinate descent: bounds that meet, few readings, resumed states."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.optimize
from hypothesis import given, settings
from hypothesis import strategies as st

import streamsvm as sv
from streamsvm.compute import threading
from streamsvm.compute.passes import interior_point as interior_passes
from streamsvm.compute.passes import rows_in_memory as passes
from streamsvm.engine.checkpoint import Decoder, Encoder
from streamsvm.jobs.common_options import SynthJob
from streamsvm.jobs.fit.driver import fit
from streamsvm.jobs.fit.options import FitJob
from streamsvm.jobs.fit.plan import make_plan
from streamsvm.jobs.synth import synth
from streamsvm.losses import Hinge, Huber, SquaredHinge
from streamsvm.rows import Dense, Rows
from streamsvm.solvers.cholesky import BLOCK, STRIP, cholesky
from streamsvm.solvers.newton import row_products as memory
from streamsvm.solvers.newton.in_memory import AllRows
from streamsvm.solvers.newton.priority_sampling import Sample
from streamsvm.solvers.newton.row_products import OuterTerms
from streamsvm.solvers.newton.trust_region import first_mu
from streamsvm.store import open_store
from streamsvm.types import Problem
from tests.arrays import csr_of, sparse_values
from tests.axes import each_value
from tests.solvers.problems import kind_of

LOSSES = [Hinge(), SquaredHinge(), Huber(0.3)]
each_loss = pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: type(loss).__name__)


def rows_in_memory(X: Rows, y: Any, s: Any = None) -> Sample:
    n = len(y)
    weights = np.ones(n, np.float32) if s is None else np.asarray(s, np.float32)
    return Sample(X, np.asarray(y, np.float32), weights, np.ones(n), np.zeros(n), np.arange(n), complete=True)


def solver_of(sample: Sample, columns: int, loss: Any, C: float = 1.0, tolerance: float = 1e-3) -> AllRows:
    problem = Problem(loss, C, len(sample.y), columns, kind_of(loss), tolerance=tolerance)
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


@pytest.mark.timeout(120)
def test_newton_in_memory_ends_on_numbers_of_very_different_sizes() -> None:
    rng = np.random.default_rng(0)
    X = np.where(rng.random((40, 3)) < 0.4, np.uint64(2**64 - 1), np.uint64(1))
    with pytest.warns(sv.StreamSVMWarning, match="not certified"):
        found = sv.fit(X, rng.integers(0, 2, 40), loss="hinge", max_passes=2)
    assert found.training.passes == 2


@each_value(("loss", LOSSES), ("margin", [-1e40, -1e18, 1e18, 1e40]))
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
    if found.interior_point is not None:
        a = found.interior_point.a
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
    found.outer, found.target_gap = outer, 1e-5
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


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("wide") / "t.zarr"
    synth(SynthJob("table", str(path), rows=3_000, columns=2_000, chunk_bytes=1 << 16))
    return path


def test_newton_in_memory_on_a_cluster_finds_the_same_optimum(store: Path, tmp_path: Path) -> None:
    alone = fit(FitJob(str(store), str(tmp_path / "a"), loss="hinge", memory=4 << 30))
    job = FitJob(str(store), str(tmp_path / "b"), loss="hinge", memory=4 << 30, cluster="here:", groups=3)
    spread = fit(job)
    bounds = [found.training.runs[0].certificate for found in (alone, spread)]
    assert max(b.dual for b in bounds if b) <= min(b.primal for b in bounds if b) * (1 + 1e-9)
    assert all(b.gap <= 1e-3 for b in bounds if b)


def test_auto_takes_a_smaller_solver_where_no_sample_fits(store: Path, tmp_path: Path) -> None:
    ample = make_plan(FitJob(str(store), str(tmp_path / "m"), memory=4 << 30, threads=1), open_store(store))
    solver = next(t.nbytes for t in ample.memory.terms if t.name == "solver")
    assert ample.solver.memory_settings() == {"sample": None}
    tight = FitJob(str(store), str(tmp_path / "m"), memory=ample.memory.total - solver // 2, threads=1)
    plan = make_plan(tight, open_store(store))
    assert plan.solver_name == "dcd"
    assert "second order" in plan.why
    assert plan.memory.total <= plan.memory.limit


@pytest.mark.parametrize("loss", ["squared_hinge", "hinge"])
@pytest.mark.parametrize("standardize", [False, True], ids=["raw", "standardized"])
def test_auto_certifies_a_wide_table_in_three_readings(
    loss: str, standardize: bool, store: Path, tmp_path: Path
) -> None:
    """Standardized, a column that is in one row is scaled to 55: steps of Newton's method that do not settle such
    columns stay short, and the interior point that takes over needs five times the products.
    """
    events: list[Any] = []
    job = FitJob(str(store), str(tmp_path / "m"), loss=loss, standardize=standardize, memory=4 << 30)
    fit(job, events.append)
    last = [event for event in events if event["event"] == "pass"][-1]
    assert make_plan(job, open_store(store)).solver_name == "newton"
    assert last["gap"] <= 1e-3, f"not certified: {last}"
    assert last["pass"] <= 3
    if loss == "squared_hinge":
        assert last["facts"]["method"] == "newton", "steps stayed short: are rare columns settled after a step?"
        assert last["facts"]["products"] <= 150, "Hessian products: are rare columns settled, dense ones closed?"


def test_newton_in_memory_takes_steps_at_once_where_few_of_the_columns_have_an_entry() -> None:
    """Hashed categories of few values: rounds of coordinate descent would only come before the steps."""
    rng = np.random.default_rng(0)
    dense = np.zeros((3000, 1600), np.float32)
    dense[np.arange(3000), 50 * rng.integers(0, 30, 3000)] = 1
    y = np.where(rng.random(3000) < 0.2 + 0.6 * (dense[:, ::100].sum(axis=1) > 0), 1.0, -1.0)
    found = solver_of(rows_in_memory(csr_of(dense), y), 1600, SquaredHinge())
    found.advance_until_solved(np.inf, 5)
    assert found.solved
    assert found.descent is None


# -- coordinate descent in the dual --------------------------------------------------------------------------------------


@pytest.fixture
def narrow_block(monkeypatch: pytest.MonkeyPatch) -> None:
    """Four columns are in the block, all others are rare ones."""
    for name, value in {"MIN_BLOCK": 4, "MAX_BLOCK": 4, "max_explicit_components": lambda *, dense: 0}.items():
        monkeypatch.setattr(f"streamsvm.solvers.newton.preconditioner.{name}", value)


def texts(n: int = 300, d: int = 900) -> tuple[Any, Any]:
    """Rows of length 1, more columns than rows."""
    rng = np.random.default_rng(7)
    values = np.abs(sparse_values(rng, n, d))
    values /= np.sqrt((values * values).sum(axis=1, keepdims=True))
    score = values @ rng.normal(size=d)
    return values, np.where(score + 0.02 * rng.normal(size=n) > np.median(score), 1.0, -1.0)


def with_a_large_column() -> tuple[Any, Any]:
    """The rows of ``texts`` with a column that is large in all of them."""
    values, y = texts()
    values[:, 0] = 1e4 * (0.1 + np.abs(np.random.default_rng(1).normal(size=len(y))))
    return values, y


@pytest.mark.parametrize(
    ("loss", "proximal"),
    [(SquaredHinge(), False), *((loss, way) for loss in (Hinge(), Hinge(2.0), Huber(0.2)) for way in (False, True))],
    ids=str,
)
@pytest.mark.usefixtures("narrow_block")
def test_newton_in_memory_coordinate_descent_has_true_bounds(loss: Any, proximal: bool) -> None:
    """Of rows whose columns are alike, and around proximal points where one column is large."""
    values, y = with_a_large_column() if proximal else texts()
    C = 1.0 if proximal else 30.0
    found = solver_of(rows_in_memory(csr_of(values.astype(np.float32), 1.0), y), values.shape[1], loss, C)
    found.advance(np.inf)
    assert found.solved
    assert found.facts()["method"] == ("proximal " if proximal else "") + "dual coordinate descent"
    assert found.primal == pytest.approx(primal(values, y, np.ones(len(y)), found.best, loss, C), rel=1e-9)
    if proximal:
        assert found.slopes is not None
        a = found.slopes * y
    else:
        assert found.descent is not None
        a = found.descent.a
    assert a.min() >= 0.0
    assert a.max() <= loss.upper(C)
    assert found.dual == pytest.approx(dual(values, y, np.ones(len(y)), a, loss, C), rel=1e-9 if proximal else 1e-3)
    assert found.dual <= found.primal


def test_newton_in_memory_hinge_of_few_wide_rows_needs_no_matrix_of_the_columns() -> None:
    rng = np.random.default_rng(3)
    values = rng.normal(size=(40, 600)).astype(np.float32)
    y, loss = np.where(values[:, 0] + rng.normal(size=40) > 0.0, 1.0, -1.0), Hinge()
    found = solver_of(rows_in_memory(Dense(values, 1.0), y), 600, loss, 1.0)
    found.advance(np.inf)
    assert found.solved
    assert found.facts()["method"] == "dual coordinate descent"
    assert found.primal == pytest.approx(primal(values, y, np.ones(40), found.best, loss, 1.0), rel=1e-9)


# -- triangular systems by blocks ----------------------------------------------------------------------------------------


def positive_definite(p: int) -> np.ndarray:
    X = np.random.default_rng(p).standard_normal((2 * p + 3, p))
    return X.T @ X + np.eye(p)


@pytest.mark.parametrize("p", [1, STRIP, STRIP + 1, 2 * STRIP + BLOCK + 3])
def test_triangular_factor_in_blocks_is_that_of_the_whole_whoever_makes_it(p: int) -> None:
    matrix = positive_definite(p)
    found = []
    for threads in (1, 2, 5):
        with threading.use_threads(threads):
            found.append(cholesky(matrix + np.triu(np.full_like(matrix, 7.0), 1)))
        np.testing.assert_array_equal(found[-1], found[0])
    np.testing.assert_allclose(found[0], np.linalg.cholesky(matrix), rtol=1e-9, atol=1e-9 * np.sqrt(p))
    matrix[p - 1, p - 1] = -1.0
    with pytest.raises(np.linalg.LinAlgError):
        cholesky(matrix)
