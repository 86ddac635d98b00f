"""What every kind of problem and every regularizer promises. A line in ``tests.contract.kinds`` is what puts one under test."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from streamsvm.engine.block_visitor import targets_and_weights
from streamsvm.engine.checkpoint import Decoder, Encoder
from streamsvm.engine.local_loop import local_trainer
from streamsvm.engine.loop import RunSettings
from streamsvm.features.scaling import Raw
from streamsvm.rows import Dense
from streamsvm.solvers import SOLVERS
from streamsvm.solvers.linear_rounding import RowWeights, VectorSum, rounding_of_dual, rounding_of_primal
from streamsvm.solvers.softmax import Softmax
from streamsvm.store.views import MemoryStore
from streamsvm.types import Block, Certificate, Kind, Problem, Regularizer, Stop
from tests.contract.kinds import CASES, CLASSES, Case, saved_subclasses

ROWS, COLUMNS = 400, 5

each_kind = pytest.mark.parametrize("case", CASES.values(), ids=CASES)


def rows_of(case: Case) -> tuple[Any, Any, Any]:
    """X float32, codes or numbers, and weights of rows."""
    rng = np.random.default_rng(11)
    X = (rng.normal(size=(ROWS, COLUMNS)) + 0.6).astype(np.float32)
    score = X @ rng.normal(size=COLUMNS) + 0.5 * rng.normal(size=ROWS)
    codes = np.digitize(score, np.quantile(score, np.linspace(0, 1, CLASSES + 1)[1:-1])).astype(np.int32)
    return X, score if case.loss.numeric() else codes, rng.choice([0.5, 1.0, 3.0], ROWS).astype(np.float32)


def problem_of(case: Case, tolerance: float = 1e-5) -> Problem:
    rows = int(np.isfinite(case.targets(rows_of(case)[1])).sum())
    return Problem(
        case.loss, case.C, rows, COLUMNS, case.kind, case.bias, tolerance=tolerance, regularizer=case.regularizer
    )


def primal(case: Case, w: Any) -> float:
    """P by its definition, of weights as a solution has them."""
    X, codes, s = rows_of(case)
    y, s = case.targets(codes), s.astype(np.float64)
    f = np.column_stack([X.astype(np.float64), np.full(ROWS, case.bias)]) @ w.T
    if f.ndim == 2:
        own = f[np.arange(ROWS), y]
        f[np.arange(ROWS), y] = -np.inf
        if isinstance(case.kind, Softmax):
            m = own - np.logaddexp.reduce(case.kind.sharpness * f, axis=1) / case.kind.sharpness
        else:
            m = own - f.max(axis=1)
    else:
        m = f - y if case.loss.numeric() else y * f
    mine = np.isfinite(y)
    losses = sum(c * case.loss.value(v) for c, v in zip(s[mine], m[mine], strict=True))
    return case.value(w, case.C * float(losses), s[mine])


def blocks_of(case: Case, problem: Problem) -> list[Block]:
    X, codes, weight = rows_of(case)
    found = []
    for k in range(4):
        part = np.arange(100 * k, 100 * k + 100)
        chosen = case.kind.select(codes[part])
        part = part if chosen is None else part[chosen]
        y, s = targets_and_weights(problem, codes[part], weight[part])
        order = np.arange(len(part), dtype=np.int32)
        found.append(Block(Dense(X[part], case.bias), y, s, k, 100 * k, order, k, places=part - 100 * k))
    return found


def points(case: Case, count: int) -> list[Any]:
    """Weights as a solution has them, small enough for a ball."""
    rng, components = np.random.default_rng(3), problem_of(case).components
    drawn = rng.normal(size=(count, components))
    return [case.kind.shape(0.4 * w / np.abs(w).sum()) for w in drawn]


def test_kind_every_one_and_every_regularizer_is_under_test() -> None:
    assert {type(case.kind) for case in CASES.values()} == set(saved_subclasses(Kind))
    assert {type(case.regularizer) for case in CASES.values()} == set(saved_subclasses(Regularizer))


@each_kind
def test_kind_reads_codes_and_says_which_rows_belong_to_it(case: Case) -> None:
    _, codes, _ = rows_of(case)
    y, chosen, wanted = case.kind.targets(codes), case.kind.select(codes), case.targets(codes)
    mine, numbers = np.isfinite(wanted), case.loss.numeric()
    assert y.dtype == (np.float64 if numbers else np.float32)
    np.testing.assert_allclose(y[mine], wanted[mine], rtol=1e-15)
    assert np.array_equal(np.ones(ROWS, bool) if chosen is None else chosen, mine)
    assert (chosen is None) != case.kind.selects_rows
    signs = np.ones(ROWS) if numbers or case.kind.classes else wanted
    assert np.array_equal(case.kind.signs(y)[mine], signs[mine])


@each_kind
def test_kind_is_the_same_after_a_checkpoint(case: Case) -> None:
    encoder, problem = Encoder(), problem_of(case)
    tree = encoder.encode(problem)
    assert Decoder(lambda name: encoder.tensors[name]).decode(tree) == problem


@each_kind
def test_kind_bounds_hold_at_any_weights(case: Case) -> None:
    """P is what its definition says, and no D is above any P."""
    problem, values, duals = problem_of(case), [], []
    for w in points(case, 8):
        sums = case.kind.start_evaluation(problem, w, 1.0)
        for block in blocks_of(case, problem):
            sums.add(block, None)
        value, found = sums.values()
        assert value == pytest.approx(primal(case, w), rel=1e-6, abs=1e-9)
        values.append(value)
        duals += found
    assert max(duals) <= min(values) + 1e-9 * abs(min(values))


@each_kind
def test_kind_is_solved_by_its_solvers(case: Case) -> None:
    X, codes, weight = rows_of(case)
    store = MemoryStore(chunk_bytes=3200)
    store.append(Dense(X), codes, weight)
    sealed = store.commit(() if case.loss.numeric() else tuple("abcd"), COLUMNS)
    certificates = []
    for name in case.solvers:
        solver = case.regularizer.adapt(case.kind.adapt(SOLVERS[name]()))
        trainer = local_trainer(
            sealed, solver, [problem_of(case)], Raw(case.bias), RunSettings(depth=0), lambda event: None
        )
        run = trainer.train(Stop(500)).runs[0]
        found, w = run.certificate, solver.solution(run.state).w
        assert found is not None
        assert found.exact
        assert found.gap <= 1e-5, name
        assert found.primal == pytest.approx(primal(case, w), rel=1e-6)
        assert case.kind.decision_weights(w).shape == (len(case.kind.positives), COLUMNS + 1)
        certificates.append(found)
    size = abs(certificates[0].primal)
    assert max(found.dual for found in certificates) <= min(found.primal for found in certificates) + 1e-9 * size


@each_kind
def test_kind_solvers_without_a_form_for_it_are_refused_with_a_reason(case: Case) -> None:
    for part in (case.kind, case.regularizer):
        forms = {name: part.adapt(SOLVERS[name]()) for name in SOLVERS}
        assert all(forms[name] is not None for name in case.solvers)
        assert bool(part.refusal) == any(form is None for form in forms.values())


@each_kind
def test_kind_rounding_is_bounded_and_small(case: Case) -> None:
    problem, weights = problem_of(case), RowWeights(600.0, 1500.0, 3.0)
    found = Certificate(10.0 if case.regularizer.has_scale else -10.0, 9.0 if case.regularizer.has_scale else -11.0)
    of_dual = rounding_of_dual(problem, found, VectorSum(4, running=False, spread=2.0), weights, 1.0)
    of_primal = rounding_of_primal(problem, 10.0, 1e-15, weights)
    assert 0.0 < of_dual < 1e-8
    assert 0.0 < of_primal < 1e-8
