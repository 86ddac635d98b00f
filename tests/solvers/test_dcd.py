"""Dual coordinate descent, for two classes, several and numbers, and the perceptron: its optimum, its certificate, groups that move at once."""

from __future__ import annotations

import warnings
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamsvm.engine.block_visitor import targets_and_weights
from streamsvm.engine.fit_state import Training
from streamsvm.engine.local_loop import local_trainer
from streamsvm.engine.loop import RunSettings
from streamsvm.engine.row_state import RowStates
from streamsvm.features.scaling import Raw
from streamsvm.losses import (
    LOSSES,
    EpsilonInsensitive,
    Hinge,
    Logistic,
    Pinball,
    Squared,
    SquaredEpsilonInsensitive,
    SquaredHinge,
)
from streamsvm.rows import Dense
from streamsvm.solvers.dcd import DCD, MPU, Joint, MPUState, MultinomialDCD
from streamsvm.solvers.evaluation import MultinomialEvaluation, slopes_of
from streamsvm.solvers.problem_kinds import Multinomial
from streamsvm.store.views import MemoryStore
from streamsvm.types import Block, Certificate, Problem, Stop
from streamsvm.types.state import merge_states
from tests.arrays import csr_of, sparse_values
from tests.axes import each_value
from tests.solvers.problems import ROWS as SMALL_ROWS
from tests.solvers.problems import epoch_blocks, explicit_dual, kind_of
from tests.solvers.problems import problem_of as small_problem

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
    return Case(values, codes, weight, Problem(loss, C, rows, columns, kind_of(loss), bias, factors, tolerance))


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
def test_dcd_shrinking_within_a_visit_does_not_change_the_optimum(loss: Any) -> None:
    """With one sweep a visit nothing is ever left out; with more, rows held at a bound are."""
    given = case(loss, tolerance=1e-8)
    values = [solved(given, solver=DCD(n), cached=False)[2].dual for n in (1, 10)]
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
@each_form
@each_value(("passes", [1, 2, 5, 60]), ("sweeps", [1, 4]), ("bias, factors", [(1.0, (2.0, 0.5)), (0.0, ())]))
def test_dcd_certificate_is_what_anyone_would_compute(
    loss: Any, sparse: bool, passes: int, sweeps: int, bias: float, factors: Any
) -> None:
    """P of the weights, D of the dual variables, which are in their box and whose rows the weights sum up."""
    given = case(loss, weighted=True, bias=bias, factors=factors, tolerance=1e-14)
    result, _ = trained(stored(given, sparse=sparse), [given.problem], passes, solver=DCD(sweeps))
    w, alpha, certificate = read(result)
    assert_feasible(given, alpha)
    assert alpha.any() == (passes > 1)  # the last pass only evaluates
    np.testing.assert_allclose(result.runs[0].state.w, alpha @ signed(given)[0], rtol=1e-10, atol=1e-11)
    assert certificate.exact
    assert certificate.primal == pytest.approx(primal(given, w), rel=1e-9)
    assert certificate.dual == pytest.approx(dual(given, alpha), rel=1e-9)
    assert certificate.gap >= -1e-12


# -- groups that move at once --------------------------------------------------------------------------------------------


PARTS = 3
NUMERIC = [EpsilonInsensitive(0.1), SquaredEpsilonInsensitive(0.1), Squared(), Pinball(0.3)]


class Groups:
    """Rows in three groups, each of which makes its own pass; then all move by what the joint decides."""

    def __init__(self, solver: Any, problem: Problem, X: Any, y: Any, s: Any, width: tuple[int, ...] = ()) -> None:
        self.solver, self.problem, self.X, self.y, self.s = solver, problem, X, y, s
        self.rows = {name: np.zeros((len(y), *width)) for name in ("alpha", "before")}
        self.groups = np.array_split(np.arange(len(y)), PARTS)
        self.state = solver.start(problem)

    def block_of(self, k: int, number: int, rows: dict[str, Any]) -> Block:
        mine = self.groups[k]
        part = slice(mine[0], mine[-1] + 1)
        order = np.random.default_rng(number).permutation(len(mine)).astype(np.int32)
        given = {name: values[part] for name, values in rows.items()}
        return Block(Dense(self.X[mine], 1.0), self.y[mine], self.s[mine], k, part.start, order, number, rows=given)

    def move(self, number: int) -> Any:
        """The dual variables after one round."""
        copies, joint = [], self.state.joint
        for k in range(PARTS):
            copy = self.solver.start(self.problem)
            copy.w = self.state.w.copy()
            copy.joint = Joint(joint.sigma, joint.origin.copy(), joint.steps.copy(), np.zeros_like(joint.vectors))
            self.solver.visit(copy, self.block_of(k, number, self.rows))
            copies.append(copy)
        self.state = self.solver.merge(copies)
        moved = {name: values.copy() for name, values in self.rows.items()}
        for k in range(PARTS):
            self.solver.apply_steps(self.state.joint, self.problem, self.block_of(k, number, moved))
        return moved["alpha"]


@each_value(("loss", [*RECORDS.values(), Logistic(), *NUMERIC]), ("sigma", [1.0, 3.0]))
def test_cocoa_joined_dual_is_that_of_the_rows_and_never_falls(loss: Any, sigma: float) -> None:
    """Where the dual along a move is no parabola it is bounded from below."""
    rng, C, n = np.random.default_rng(4), 0.7, 90
    X = rng.normal(size=(n, 6)).astype(np.float32) + 0.5  # what all rows share is what makes groups disagree
    y = X[:, 0] + rng.normal(size=n)
    y = y if loss.numeric() else np.where(y > 0.5, 1.0, -1.0).astype(np.float32)
    s = rng.choice([0.0, 0.5, 2.0], n).astype(np.float32)
    counted = s > 0.0
    Z = np.hstack([X.astype(np.float64), np.ones((n, 1))]) * (1.0 if loss.numeric() else y[:, None])
    groups = Groups(DCD(parts=PARTS, sweeps=2), Problem(loss, C, n, 6, kind_of(loss)), X, y, s)
    groups.state.joint.sigma = sigma
    before = -np.inf
    for number in range(8):
        a = groups.move(number)
        lowest = [-c * loss.slope(np.inf) if loss.numeric() else 0.0 for c in C * s[counted].astype(float)]
        assert (a[counted] >= np.array(lowest) - 1e-12).all()
        assert (a[counted] <= [loss.upper(c) * (1 + 1e-12) for c in C * s[counted].astype(float)]).all()
        assert not a[~counted].any()
        w = groups.state.w
        np.testing.assert_allclose(w, a @ Z, rtol=1e-9, atol=1e-9)
        rows = zip(a[counted], y[counted].astype(float), s[counted].astype(float), strict=True)
        gains = sum((x * t if loss.numeric() else 0.0) + x - loss.conjugate(x, C * c) for x, t, c in rows)
        told, value = groups.state.duals - 0.5 * float(w @ w), float(gains - 0.5 * w @ w)
        assert told <= value + 1e-9 * abs(value)
        if loss.quadratic() and not loss.numeric():
            assert told == pytest.approx(value, rel=1e-9)
        assert value >= before - 1e-9 * abs(value)
        before = value
    assert before > 0.0


# -- all classes in one problem ------------------------------------------------------------------------------------------


CLASSES, MANY_ROWS, MANY_COLUMNS, MANY_C = 4, 90, 5, 0.7


@each_loss
@pytest.mark.parametrize("sigma", [1.0, 3.0])
def test_multinomial_joined_dual_is_that_of_the_rows_and_never_falls(loss: Any, sigma: float) -> None:
    X, y, s = table()
    solver = MultinomialDCD(sweeps=2, parts=PARTS, classes=CLASSES)
    groups = Groups(solver, many_problem(loss), X, y, s, (CLASSES,))
    groups.state.joint.sigma = sigma
    before, cut = -np.inf, 0
    for number in range(8):
        a, state = groups.move(number), groups.state
        cut += int((state.joint.steps[:, 0] < 1.0).sum())
        assert (state.joint.steps[:, 1] == 0.0).all()  # a group proposes its move alone
        own = a[np.arange(MANY_ROWS), y.astype(int)]
        np.testing.assert_allclose(a.sum(1), 0.0, atol=1e-12)
        assert (own >= 0.0).all()
        tops = [loss.upper(MANY_C * c) * (1.0 + 1e-12) if c else np.inf for c in s.astype(float)]
        assert (own <= tops).all()
        assert not a[s == 0.0].any()
        np.testing.assert_allclose(state.w.reshape(CLASSES, -1), a.T @ with_constant(), rtol=1e-9, atol=1e-9)
        value = state.duals - 0.5 * float(state.w @ state.w)
        assert value == pytest.approx(many_dual(loss, a), rel=1e-9)
        assert value >= before - 1e-9 * abs(value)
        before = value
    assert before > 0.0
    assert cut > 0 or sigma > 1.0


def table() -> tuple[Any, Any, Any]:
    rng = np.random.default_rng(4)
    X = rng.normal(size=(MANY_ROWS, MANY_COLUMNS)).astype(np.float32) + 0.5
    y = np.argmax(X[:, :CLASSES] + rng.normal(size=(MANY_ROWS, CLASSES)), axis=1).astype(np.float32)
    return X, y, rng.choice([0.0, 0.5, 2.0], MANY_ROWS).astype(np.float32)


def many_problem(loss: Any, **more: Any) -> Problem:
    return Problem(loss, MANY_C, MANY_ROWS, MANY_COLUMNS, Multinomial(CLASSES), **more)


def with_constant() -> Any:
    return np.hstack([table()[0].astype(float), np.ones((MANY_ROWS, 1))])


def many_rows(mine: Any, **rows: Any) -> Block:
    X, y, s = table()
    order = np.random.default_rng(0).permutation(len(mine)).astype(np.int32)
    return Block(Dense(X[mine], 1.0), y[mine], s[mine], 0, int(mine[0]), order, 0, rows=rows)


def many_dual(loss: Any, a: Any) -> float:
    """D(a), row by row: b_i - conjugate(b_i) less half the norm of W = sum a_i x_i'."""
    _, y, s = table()
    own = a[np.arange(MANY_ROWS), y.astype(int)]
    gains = [b - loss.conjugate(b, MANY_C * c) for b, c in zip(own, s.astype(float), strict=True) if c > 0.0]
    return float(sum(gains) - 0.5 * np.sum((a.T @ with_constant()) ** 2))


def many_primal(loss: Any, W: Any) -> float:
    """P(W): a margin is how far the value of a row's own class is above the largest other one."""
    _, y, s = table()
    values, total = with_constant() @ W.T, 0.5 * float(np.sum(W**2))
    for f, k, c in zip(values, y.astype(int), s.astype(float), strict=True):
        total += MANY_C * c * loss.value(f[k] - max(np.delete(f, k)))
    return total


@each_loss
def test_multinomial_warm_start_gives_rows_the_slopes_at_their_margins(loss: Any) -> None:
    """All of it taken from the class that comes next; best scaled it proves what the sums say."""
    W = np.random.default_rng(1).normal(size=(CLASSES, MANY_COLUMNS + 1))
    solver = MultinomialDCD(classes=CLASSES)
    state = solver.start(many_problem(loss, warm=W.ravel()))
    alpha = np.ones((MANY_ROWS, CLASSES))
    solver.visit(state, many_rows(np.arange(MANY_ROWS), alpha=alpha))
    _, y, s = table()
    values, expected = with_constant() @ W.T, np.zeros((MANY_ROWS, CLASSES))
    for i, k in enumerate(y.astype(int)):
        others = values[i].copy()
        others[k] = -np.inf
        following = int(np.argmax(others))
        b = -MANY_C * float(s[i]) * slopes_of(loss).slope(values[i, k] - others[following])
        expected[i, k], expected[i, following] = b, -b
    np.testing.assert_allclose(alpha, expected, rtol=1e-6, atol=1e-9)
    found = solver.finish(state)
    assert found.exact
    assert found.primal == pytest.approx(many_primal(loss, W), rel=1e-6)
    duals = [
        many_dual(loss, t * expected) for t in np.geomspace(1e-4, 2.0 if isinstance(loss, SquaredHinge) else 1.0, 2001)
    ]
    assert found.dual == pytest.approx(max(duals), rel=1e-4)
    assert found.dual == pytest.approx(many_dual(loss, state.scale * expected), rel=1e-6)
    np.testing.assert_allclose(state.w.reshape(CLASSES, -1), state.scale * expected.T @ with_constant(), rtol=1e-5)


@each_loss
def test_multinomial_last_evaluation_of_parts_is_that_of_all_rows(loss: Any) -> None:
    """P at weights, D of dual variables and their W, from three parts of the rows."""
    rng, W = np.random.default_rng(6), np.linspace(-0.5, 0.7, CLASSES * (MANY_COLUMNS + 1)).reshape(CLASSES, -1)
    _, y, s = table()
    a = -rng.random((MANY_ROWS, CLASSES)) * 0.2 * MANY_C * (s[:, None] > 0.0)
    own = np.arange(MANY_ROWS), y.astype(int)
    a[own] = 0.0
    a[own] = -a.sum(axis=1)
    parts = [MultinomialEvaluation(many_problem(loss), W) for _ in range(PARTS)]
    for part, mine in zip(parts, np.array_split(np.arange(MANY_ROWS), PARTS), strict=True):
        part.add(many_rows(mine), a[mine])
    merge_states(parts)
    primal, duals = parts[0].values()
    assert primal == pytest.approx(many_primal(loss, W), rel=1e-9)
    assert duals == pytest.approx([many_dual(loss, a)], rel=1e-9)
    np.testing.assert_allclose(parts[0].vector(), a.T @ with_constant(), rtol=1e-9)


# -- the perceptron with unlearning --------------------------------------------------------------------------------------


def test_mpu_grid_follows_the_gap() -> None:
    """Its dual is that of its variables after every pass, and the run comes to a gap that the first grid would have hidden."""
    solver, problem = MPU(), small_problem(Hinge())
    state = solver.start(problem)
    assert isinstance(state, MPUState)
    alpha, lengths = np.zeros(SMALL_ROWS), []
    for epoch in range(80):
        trains = not state.certifying
        for block in epoch_blocks(epoch):
            part = slice(block.start, block.start + 100)
            block.rows["alpha"] = alpha[part]
            solver.visit(state, block)
        certificate = solver.finish(state)
        lengths.append(state.spacing)
        if trains:
            assert certificate.dual == pytest.approx(explicit_dual(alpha, problem.loss, problem.C), rel=1e-9)
    solver.certify(state)
    for block in epoch_blocks(0):
        block.rows["alpha"] = alpha[block.start : block.start + 100]
        solver.visit(state, block)
    certificate = solver.finish(state)
    assert certificate.exact
    assert 0.0 <= certificate.gap < 3e-4
    assert lengths == sorted(lengths, reverse=True)
    assert lengths[-1] < 1e-2 * lengths[0]
