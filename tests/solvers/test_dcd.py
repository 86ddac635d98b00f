"""Dual coordinate descent: its optimum is the optimum, and what it says of its distance to it is true at any time."""

from __future__ import annotations

import warnings
from itertools import pairwise, product
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamsvm.engine.block import targets_and_weights
from streamsvm.engine.groups import local_trainer
from streamsvm.engine.loop import RunSettings
from streamsvm.engine.row_state import RowStates
from streamsvm.engine.training import Training
from streamsvm.features.scaling import Raw, fit_standardization
from streamsvm.losses import LOSSES, Hinge, SquaredHinge
from streamsvm.rows import Dense
from streamsvm.solvers.dcd import DCD
from streamsvm.store.views import MemoryStore, Resident
from streamsvm.types import Certificate, Problem, Stop
from tests.arrays import csr_of, sparse_values
from tests.axes import each_value

RECORDS = {name: LOSSES[name]() for name in ("hinge", "squared_hinge", "huber")}

each_loss = pytest.mark.parametrize("loss", RECORDS.values(), ids=RECORDS)
each_form = pytest.mark.parametrize("sparse", [False, True], ids=["dense", "csr"])


class Case(NamedTuple):
    """Rows, class codes, row weights or None, and a problem of class 1 against the rest."""

    values: Any
    codes: Any
    weight: Any
    problem: Problem


def case(
    loss: Any,
    *,
    rows: int = 240,
    columns: int = 6,
    C: float = 0.5,
    bias: float = 1.0,
    weighted: bool = False,
    factors: tuple[float, ...] = (),
    tolerance: float = 1e-9,
    seed: int = 0,
) -> Case:
    rng = np.random.default_rng(seed)
    values = sparse_values(rng, rows, columns)
    codes = (values @ rng.normal(size=columns) + 0.8 * rng.normal(size=rows) > 0.3).astype(np.int32)
    weight = rng.choice([0.0, 0.5, 1.0, 3.0], rows).astype(np.float32) if weighted else None
    return Case(values, codes, weight, Problem(loss, C, rows, columns, 1, bias, factors, tolerance))


def stored(given: Case, *, sparse: bool = False, chunks: int = 4) -> MemoryStore:
    rows, columns = given.values.shape
    size = -(-rows // chunks) * 4 * columns
    store = MemoryStore(chunk_bytes=size)
    store.append(csr_of(given.values) if sparse else Dense(given.values), given.codes, given.weight)
    return store.commit(tuple(map(str, range(given.codes.max() + 1))), columns)


class Events(list[dict[str, Any]]):
    """What a training tells, pass by pass."""

    def __call__(self, event: dict[str, Any]) -> None:
        if event["event"] == "pass":
            self.append(event)


def trained(
    store: Any, problems: list[Problem], passes: int, *, solver: DCD | None = None, features: Any = None, **course: Any
) -> tuple[Training, Events]:
    events = Events()
    settings = RunSettings(**({"depth": 0} | course))
    trainer = local_trainer(store, solver or DCD(), problems, features or Raw(problems[0].bias), settings, events)
    return trainer.train(Stop(passes)), events


def solved(given: Case, passes: int = 2000, **more: Any) -> tuple[Any, Any, Certificate]:
    """w, alpha and the certificate at the end."""
    cached = more.pop("cached", True)
    store = stored(given, sparse=more.pop("sparse", False), chunks=more.pop("chunks", 1 if cached else 4))
    result, _ = trained(store, [given.problem], passes, cached=cached, **more)
    return read(result)


def read(result: Training, k: int = 0) -> tuple[Any, Any, Certificate]:
    run, rows = result.runs[k], result.row_states["alpha"]
    assert isinstance(rows, RowStates)
    alpha = np.concatenate([rows.load(c)[k].copy() for c in range(len(rows.layout.chunks))])
    assert run.certificate is not None
    return DCD().solution(run.state).w, alpha, run.certificate


# -- the same, slowly --------------------------------------------------------------------------------------------------


def signed(given: Case) -> tuple[Any, Any]:
    """y_i (x_i, bias) in float64, and C_i = C s_i."""
    problem = given.problem
    y, s = targets_and_weights(problem, given.codes, given.weight)
    X = np.hstack([given.values.astype(np.float64), np.full((len(y), 1), problem.bias)])
    return y.astype(np.float64)[:, None] * X, problem.C * s.astype(np.float64)


def primal(given: Case, w: Any) -> float:
    Z, C = signed(given)
    return float(0.5 * w @ w + sum(c * given.problem.loss.value(m) for c, m in zip(C, Z @ w, strict=True)))


def dual(given: Case, alpha: Any) -> float:
    Z, C = signed(given)
    v, loss = alpha @ Z, given.problem.loss
    return float(sum(a - loss.conjugate(a, c) for a, c in zip(alpha, C, strict=True) if c > 0.0) - 0.5 * v @ v)


def assert_feasible(given: Case, alpha: Any) -> None:
    _, C = signed(given)
    assert np.all(alpha >= 0.0)
    assert np.all(alpha <= [given.problem.loss.upper(c) for c in C])
    assert not alpha[C == 0.0].any()


# -- it finds the optimum ---------------------------------------------------------------------------------------------


def best_by_trying_everything(given: Case) -> float:
    """The largest dual value: for every choice of which a_i are 0, at the top or between, solve for those between."""
    Z, C = signed(given)
    loss = given.problem.loss
    tops = np.array([loss.upper(c) for c in C])
    Q, best = Z @ Z.T + np.diag([loss.curvature(c) for c in C]), 0.0
    linear = np.array([1.0 - loss.conjugate_slope(0.0, c) for c in C])
    for choice in product((0, 1, 2), repeat=len(C)):
        state = np.array(choice)
        if not np.isfinite(tops[state == 1]).all():
            continue
        a, free = np.where(state == 1, tops, 0.0), state == 2
        a[~np.isfinite(a)] = 0.0
        if free.any():
            right = linear[free] - Q[np.ix_(free, ~free)] @ a[~free]
            a[free] = np.linalg.lstsq(Q[np.ix_(free, free)], right, rcond=None)[0]
        if np.all(a >= 0.0) and np.all(a <= tops):
            best = max(best, dual(given, a))
    return best


@each_loss
@each_value(("seed", [0, 1, 2]), ("bias", [0.0, 2.0]))
def test_dcd_finds_the_optimum_of_tiny_problems_by_enumeration(loss: Any, seed: int, bias: float) -> None:
    tiny = case(loss, rows=6, columns=2, C=0.7, bias=bias, weighted=seed == 2, seed=seed)
    best = best_by_trying_everything(tiny)
    w, alpha, certificate = solved(tiny)
    assert best > 0.0
    assert certificate.dual == pytest.approx(best, rel=1e-8)
    assert certificate.primal == pytest.approx(best, rel=1e-8)
    assert dual(tiny, alpha) == pytest.approx(best, rel=1e-8)
    assert primal(tiny, w) == pytest.approx(best, rel=1e-8)


@each_loss
def test_dcd_agrees_with_a_general_optimizer(loss: Any) -> None:
    from scipy.optimize import minimize

    given = case(loss, rows=40, columns=3, C=0.4, weighted=True)
    Z, C = signed(given)
    heavy = C > 0.0

    def negative(a: Any) -> tuple[float, Any]:
        full = np.zeros(len(C))
        full[heavy] = a
        slopes = np.array([1.0 - loss.conjugate_slope(x, c) for x, c in zip(a, C[heavy], strict=True)])
        return -dual(given, full), Z[heavy] @ (full @ Z) - slopes

    bounds = [(0.0, top if np.isfinite(top := loss.upper(c)) else None) for c in C[heavy]]
    options = {"ftol": 1e-15, "gtol": 1e-10, "maxiter": 20_000, "maxfun": 100_000}
    found = minimize(negative, np.zeros(heavy.sum()), jac=True, bounds=bounds, method="L-BFGS-B", options=options)
    certificate = solved(given)[2]
    assert certificate.dual == pytest.approx(-found.fun, rel=1e-7)
    assert certificate.dual >= -found.fun * (1 - 1e-9)


@each_value(
    ("loss", [Hinge(), SquaredHinge()]),
    (
        "weighted, factors, bias",
        [
            (False, (), 1.0),
            (False, (), 0.0),
            (False, (), 3.0),
            (True, (), 1.0),
            (False, (0.25, 2.0), 1.0),
            (True, (0.5, 4.0), 0.0),
        ],
    ),
)
@each_form
def test_dcd_objective_is_scikit_learns(loss: Any, sparse: bool, weighted: bool, factors: Any, bias: float) -> None:
    """The dual is below any primal; ours is above theirs by no more than the gap it admits."""
    from sklearn.svm import LinearSVC

    given = case(loss, bias=bias, weighted=weighted, factors=factors, tolerance=1e-7)
    name = "hinge" if isinstance(loss, Hinge) else "squared_hinge"
    model = LinearSVC(
        loss=name, C=given.problem.C, fit_intercept=bias != 0.0, intercept_scaling=bias or 1.0, tol=1e-10,
        max_iter=200_000, random_state=0, class_weight=dict(enumerate(factors)) or None,
    )  # fmt: skip
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that it stopped at max_iter is for the comparison to find out
        model.fit(given.values.astype(np.float64), given.codes, sample_weight=given.weight)
    theirs = np.append(model.coef_[0], model.intercept_[0] / bias if bias else 0.0)
    w, _, certificate = solved(given, sparse=sparse)
    assert certificate.gap <= 1e-7
    assert certificate.dual <= primal(given, theirs) * (1 + 1e-10)
    assert primal(given, w) <= primal(given, theirs) * (1 + 2e-7)


@each_loss
@pytest.mark.parametrize("sweeps", [2, 10])
def test_dcd_shrinking_within_a_visit_does_not_change_the_optimum(loss: Any, sweeps: int) -> None:
    """With one sweep a visit nothing is ever left out; with more, rows held at a bound are."""
    given = case(loss, tolerance=1e-8)
    values = [solved(given, solver=DCD(n), cached=False)[2].dual for n in (1, sweeps)]
    assert values[1] == pytest.approx(values[0], rel=2e-8)


@each_loss
@each_form
def test_dcd_empty_rows_without_a_constant_do_not_keep_the_gap_open(loss: Any, sparse: bool) -> None:
    """Such a row costs C s l(0) whatever w is; its part of the dual has to say so."""
    given = case(loss, bias=0.0, weighted=True, tolerance=1e-8)
    given.values[::7] = 0.0
    _, alpha, certificate = solved(given, sparse=sparse)
    assert certificate.gap <= 1e-8
    assert_feasible(given, alpha)


# -- what it says is true ---------------------------------------------------------------------------------------------


@each_loss
@each_form
@each_value(("passes", [1, 2, 3, 7]), ("sweeps", [1, 4]))
def test_dcd_weights_are_the_sum_of_rows_and_alpha_is_in_its_box(
    loss: Any, sparse: bool, passes: int, sweeps: int
) -> None:
    given = case(loss, weighted=True, factors=(2.0, 0.5))
    result, _ = trained(stored(given, sparse=sparse), [given.problem], passes, solver=DCD(sweeps))
    alpha, Z = read(result)[1], signed(given)[0]
    assert_feasible(given, alpha)
    np.testing.assert_allclose(result.runs[0].state.w, alpha @ Z, rtol=1e-10, atol=1e-11)
    assert alpha.any() == (passes > 1)  # the last pass only evaluates


@each_loss
@each_form
@each_value(("passes", [2, 5, 60]), ("bias, factors", [(1.0, ()), (0.0, (3.0, 0.5))]))
def test_dcd_exact_certificate_is_what_anyone_would_compute(
    loss: Any, sparse: bool, passes: int, bias: float, factors: Any
) -> None:
    given = case(loss, weighted=True, bias=bias, factors=factors, tolerance=1e-14)
    w, alpha, certificate = solved(given, passes, sparse=sparse, cached=False)
    assert certificate.exact
    assert certificate.primal == pytest.approx(primal(given, w), rel=1e-9)
    assert certificate.dual == pytest.approx(dual(given, alpha), rel=1e-9)
    assert certificate.gap == pytest.approx((certificate.primal - certificate.dual) / certificate.primal)
    assert certificate.gap >= -1e-12


@given(
    loss=st.sampled_from(list(RECORDS.values())),
    seed=st.integers(0, 1000),
    C=st.floats(1e-3, 100.0),
    chunks=st.integers(1, 6),
    sweeps=st.integers(0, 4),
    weighted=st.booleans(),
    bias=st.sampled_from([0.0, 1.0]),
)
def test_dcd_dual_never_falls(
    loss: Any, seed: int, C: float, chunks: int, sweeps: int, weighted: bool, bias: float
) -> None:
    given = case(loss, rows=60, columns=4, C=C, bias=bias, weighted=weighted, tolerance=1e-14, seed=seed)
    _, events = trained(stored(given, chunks=chunks), [given.problem], 9, solver=DCD(sweeps), seed=seed)
    duals = [event["dual"] for event in events]
    assert all(later >= earlier - 1e-9 * abs(earlier) for earlier, later in pairwise(duals))
    exact = [event["primal"] for event in events if event["exact"]]
    assert exact
    assert max(duals) <= min(exact) * (1 + 1e-9)


@each_loss
def test_dcd_only_an_exact_certificate_ends_a_run(loss: Any) -> None:
    given = case(loss, tolerance=1e-2)
    result, events = trained(stored(given), [given.problem], 1000)
    assert result.runs[0].done
    assert [event["exact"] for event in events][-1]
    assert not any(event["exact"] and event["gap"] <= 1e-2 for event in events[:-1])


@each_loss
def test_dcd_solution_is_the_best_of_what_was_evaluated(loss: Any) -> None:
    """w, its mean over the pass, or its mean over all: the one of least primal."""
    given = case(loss, C=20.0)
    result, _ = trained(stored(given), [given.problem], 5)
    state = result.runs[0].state
    values = [primal(given, w) for w in state.candidates]
    w, _, certificate = read(result)
    assert primal(given, w) == min(values)
    assert certificate.primal == pytest.approx(min(values), rel=1e-12)
    assert len({round(value, 9) for value in values}) == 3


# -- what it is made to read ------------------------------------------------------------------------------------------


@each_loss
@each_form
def test_dcd_standardizing_on_the_fly_is_standardizing_beforehand(loss: Any, sparse: bool) -> None:
    """The same bits; and the model folded to raw features is the same function."""
    raw = case(loss)
    raw.values[:] = raw.values * np.geomspace(0.01, 100.0, 6, dtype=np.float32)
    raw.values[:, 5] = 3.0  # constant: not scaled
    store = stored(raw, sparse=sparse)
    statistics = store.statistics()
    features = fit_standardization(statistics, len(raw.values), sparse=sparse, bias=1.0)
    np.testing.assert_allclose(statistics.mean, raw.values.mean(0, dtype=np.float64), rtol=1e-6, atol=1e-9)
    deviation = raw.values.astype(np.float64).std(0)
    np.testing.assert_allclose(features.scale[:5], 1.0 / deviation[:5], rtol=1e-6)
    assert features.scale[5] == 1.0
    shift = np.float32(0.0) if sparse else features.shift
    ready = raw._replace(values=(raw.values - shift) * features.scale)
    on_the_fly = trained(store, [raw.problem], 12, features=features)[0]
    beforehand = trained(rechunked(ready, store, sparse=sparse), [raw.problem], 12)[0]
    for one, other in zip(read(on_the_fly), read(beforehand), strict=True):
        np.testing.assert_array_equal(one, other) if isinstance(one, np.ndarray) else assert_equal(one, other)
    w = read(on_the_fly)[0]
    folded = features.fold(DCD().solution(on_the_fly.runs[0].state))
    expected = ready.values.astype(np.float64) @ w[:-1] + w[-1]
    found = raw.values.astype(np.float64) @ folded.w[:-1] + folded.bias * folded.w[-1]
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


def assert_equal(one: Any, other: Any) -> None:
    assert one == other


def rechunked(given: Case, like: MemoryStore, *, sparse: bool) -> MemoryStore:
    """The rows in the chunks of another store."""
    store, start = MemoryStore(), 0
    for rows in like.layout.chunks:
        part, codes = given.values[start : start + rows], given.codes[start : start + rows]
        store.append(csr_of(part) if sparse else Dense(part), codes)
        store._chunks += store._chunker.rest()
        store._chunker, start = None, start + rows
    store.append(csr_of(given.values[:0]) if sparse else Dense(given.values[:0]), given.codes[:0])
    return store.commit(like.layout.classes, like.layout.columns)


class Counting(MemoryStore):
    """Counts the chunks it is asked for."""

    fetched = 0

    def fetch(self, chunk: int, into: Any) -> None:
        self.fetched += 1


def three_classes(rows: int = 300) -> tuple[Case, Counting]:
    given = case(SquaredHinge(), rows=rows)
    codes = (np.digitize(given.values[:, 0] + given.values[:, 1], [-0.5, 0.5])).astype(np.int32)
    store = Counting(chunk_bytes=24 * 50)
    store.append(Dense(given.values), codes)
    store.commit(("a", "b", "c"), 6)
    return given._replace(codes=codes), store


def test_dcd_classes_share_every_read_and_do_not_disturb_each_other() -> None:
    given, store = three_classes()
    problems = [Problem(given.problem.loss, 0.5, 300, 6, k, 1.0, (), 1e-4) for k in range(3)]
    result, events = trained(store, problems, 400)
    assert store.fetched == result.passes * len(store.layout.chunks)
    assert all(run.done for run in result.runs)
    lengths = [sum(event["problem"] == k for event in events) for k in range(3)]
    assert result.passes == max(lengths)  # one that is done is not visited again
    for k, problem in enumerate(problems):
        alone, _ = trained(three_classes()[1], [problem], 400)
        for one, other in zip(read(result, k), read(alone), strict=True):
            np.testing.assert_array_equal(one, other) if isinstance(one, np.ndarray) else assert_equal(one, other)


@each_form
def test_dcd_store_kept_in_memory_is_one_chunk_with_the_same_optimum(sparse: bool) -> None:
    given = case(SquaredHinge(), tolerance=1e-8)
    store = stored(given, sparse=sparse, chunks=5)
    resident = Resident(store, Raw(1.0).apply)
    kept, _ = trained(resident, [given.problem], 2000, cached=True)
    streamed, _ = trained(store, [given.problem], 2000)
    assert read(kept)[2].gap <= 1e-8
    assert read(kept)[2].dual == pytest.approx(read(streamed)[2].dual, rel=2e-8)
    np.testing.assert_allclose(read(kept)[1], read(streamed)[1], atol=1e-3)
