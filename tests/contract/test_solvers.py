"""What every solver promises, for every loss it says it can solve for. Registering one is what puts it under test."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import pytest

from streamsvm.engine.block_visitor import targets_and_weights
from streamsvm.engine.fit_state import Training
from streamsvm.engine.local_loop import local_trainer
from streamsvm.engine.loop import RunSettings
from streamsvm.errors import UsageError
from streamsvm.jobs.fit.options import FitJob
from streamsvm.jobs.fit.plan import make_plan
from streamsvm.losses import LOSSES
from streamsvm.rows import CSR, Dense
from streamsvm.solvers import SOLVERS, losses_of
from streamsvm.store.views import MemoryStore
from streamsvm.types import Block, Stop
from tests.arrays import csr_of

ROWS, COLUMNS, C = 600, 8, 0.05
ROUNDING = 1e-6


class Case(NamedTuple):
    """A solver's name, settings that are not its own defaults, and a loss."""

    solver: str
    options: dict[str, Any]
    loss: str


VARIANTS: dict[str, list[dict[str, Any]]] = {
    "dcd": [{"shrinking": True}, {"online": True}],
    "mpu": [{"multiplicity": 1}],
    "sgd": [{"variant": "s"}, {"variant": "r"}, {"variant": "r", "draws": "all"}],
    "pegasos": [{"batch": 16}, {"projection": False, "averaging": "all"}, {"averaging": "none"}],
    "assg": [{"batch": 16}],
    "interior_point": [{"kept": 120}],
    "cutting_plane": [{"planes": 24}],
    "lbfgs": [{"history": 2}],
}


def case_name(case: Case) -> str:
    return "-".join([case.solver, *(str(v) for v in case.options.values()), case.loss])


def cases() -> list[Case]:
    """Of each solver two losses, others with the next solver, and one with each of its other settings: a pass takes seconds to compile.

    ``test_reference.py`` has every loss; ``test_kernel_solvers.py`` and ``test_optima.py`` are the contract of kernels and numbers.
    """
    found = []
    for number, name in enumerate(name for name in SOLVERS if not SOLVERS[name]().exact_kernel):
        losses = [loss for loss in losses_of(name) if not LOSSES[loss]().numeric()]
        found += [Case(name, {}, losses[(number + k) % len(losses)]) for k in range(2)]
        found += [
            Case(name, options, losses[(number + k) % len(losses)])
            for k, options in enumerate(VARIANTS.get(name, []), start=2)
        ]
    return found


CASES = cases()
each_case = pytest.mark.parametrize("case", CASES, ids=case_name)


def data(*, weighted: bool) -> tuple[Any, Any, Any]:
    rng = np.random.default_rng(7)
    X = (rng.normal(size=(ROWS, COLUMNS)) * (rng.random((ROWS, COLUMNS)) < 0.6)).astype(np.float32)
    codes = (X @ rng.normal(size=COLUMNS) + 0.7 * rng.normal(size=ROWS) > 0).astype(np.int32)
    weight = rng.choice([0.0, 0.5, 1.0, 3.0], ROWS).astype(np.float32) if weighted else None
    return X, codes, weight


def store_of(*, weighted: bool = False, sparse: bool = False) -> MemoryStore:
    X, codes, weight = data(weighted=weighted)
    store = MemoryStore(chunk_bytes=3200)
    store.append(csr_of(X) if sparse else Dense(X), codes, weight)
    return store.commit(("-1", "1"), COLUMNS)


def same_chunks(*, sparse: bool) -> MemoryStore:
    """The same rows in the same chunks, whatever their form."""
    store, X = store_of(), data(weighted=False)[0]
    if sparse:
        starts = np.cumsum([0, *store.layout.chunks])
        store.chunks = [
            piece._replace(X=csr_of(X[a:b])) for piece, a, b in zip(store.chunks, starts, starts[1:], strict=False)
        ]
        nonzeros = tuple(len(piece.X.data) for piece in store.chunks if isinstance(piece.X, CSR))
        store.layout = replace(store.layout, nonzeros=nonzeros)
    return store


def job_of(case: Case, tolerance: float, **more: Any) -> FitJob:
    return FitJob(
        "memory", "model", solver=case.solver, options=case.options, loss=case.loss, C=C, tolerance=tolerance, **more
    )


def trained(
    case: Case, store: MemoryStore, passes: int, tolerance: float = 1e-12, depth: int = 0, **more: Any
) -> tuple[Training, list[dict[str, Any]], Any]:
    events: list[dict[str, Any]] = []
    plan = make_plan(job_of(case, tolerance, **more), store)
    trainer = local_trainer(store, plan.solver, plan.problems, plan.features, RunSettings(depth=depth), events.append)
    result = trainer.train(Stop(passes))
    return result, [e for e in events if e["event"] == "pass"], plan.solver


def objective(case: Case, w: Any, *, weighted: bool, factors: tuple[float, ...] = ()) -> float:
    """P(w), in plain numpy."""
    X, codes, weight = data(weighted=weighted)
    loss, y = LOSSES[case.loss](), 2.0 * codes - 1.0
    s = np.ones(ROWS) if weight is None else weight.astype(np.float64)
    s = s * np.array(factors)[codes] if factors else s
    m = y * (X.astype(np.float64) @ w[:-1] + w[-1])
    return float(0.5 * w @ w + C * sum(c * loss.value(v) for c, v in zip(s, m, strict=True)))


@pytest.fixture(scope="module")
def optimum() -> Any:
    """The optimal value by dual coordinate descent, to 1e-7."""
    known: dict[tuple[str, bool, tuple[float, ...]], float] = {}

    def find(loss: str, weighted: bool, factors: tuple[float, ...] = ()) -> float:
        key = (loss, weighted, factors)
        if key not in known:
            class_weight = dict(zip(("-1", "1"), factors, strict=True)) if factors else None
            case, store = Case("dcd", {"sweeps": 20}, loss), store_of(weighted=weighted)
            result, _, _ = trained(case, store, 3000, 1e-7, class_weight=class_weight)
            certificate = result.runs[0].certificate
            assert certificate is not None
            assert certificate.gap < 1e-6
            known[key] = certificate.dual
        return known[key]

    return find


@each_case
def test_solver_warm_start_from_anywhere_is_honest(case: Case, optimum: Any) -> None:
    """From weights that are of no use: no dual above the optimum, and the end is not worse than the beginning."""
    store, plan = store_of(), make_plan(job_of(case, 1e-12), store_of())
    warm = 2.0 * np.random.default_rng(9).normal(size=COLUMNS + 1)
    problems = [replace(p, warm=warm) for p in plan.problems]
    events: list[dict[str, Any]] = []
    trainer = local_trainer(store, plan.solver, problems, plan.features, RunSettings(depth=0), events.append)
    result, best = trainer.train(Stop(20)), optimum(case.loss, False)
    passes = [event for event in events if event["event"] == "pass"]
    assert passes[0]["exact"]
    assert passes[0]["primal"] == pytest.approx(objective(case, warm, weighted=False), rel=1e-6)
    assert max(event["dual"] for event in passes) <= best * (1 + 1e-6)
    reached = objective(case, plan.solver.solution(result.runs[0].state).w, weighted=False)
    assert best * (1 - 1e-6) <= reached < 0.5 * (best + objective(case, warm, weighted=False))


@each_case
def test_solver_gap_falls_and_the_solution_nears_the_optimum(case: Case, optimum: Any) -> None:
    early = trained(case, store_of(), 3)[0].runs[0].certificate
    result, _, solver = trained(case, store_of(), 40)
    late = result.runs[0].certificate
    assert early is not None
    assert late is not None
    assert late.gap < max(early.gap, 1e-4)
    reached = objective(case, solver.solution(result.runs[0].state).w, weighted=False)
    zero = objective(case, np.zeros(COLUMNS + 1), weighted=False)
    best = optimum(case.loss, False)
    assert reached < zero
    assert reached <= best + 0.02 * (zero - best)


@each_case
def test_solver_run_ends_when_the_gap_is_small(case: Case) -> None:
    result, _, _ = trained(case, store_of(), 1000, tolerance=0.3)
    certificate = result.runs[0].certificate
    assert certificate is not None
    assert certificate.exact
    assert certificate.gap <= 0.3
    assert result.passes < 1000


@pytest.mark.parametrize("case", [case for case in CASES if SOLVERS[case.solver]().shuffled], ids=case_name)
def test_solver_prefetch_changes_nothing(case: Case) -> None:
    """``test_threads.py`` has the solvers that do not shuffle rows."""
    results = []
    for depth in (0, 3):
        result, _, solver = trained(case, store_of(weighted=True), 7, depth=depth)
        results.append((solver.solution(result.runs[0].state).w, result.runs[0].certificate))
    np.testing.assert_array_equal(results[0][0], results[1][0])
    assert results[0][1] == results[1][1]


@each_case
def test_solver_row_format_changes_rounding_only(case: Case) -> None:
    found = []
    for sparse in (False, True):
        result, _, solver = trained(case, same_chunks(sparse=sparse), 6)
        found.append(solver.solution(result.runs[0].state).w)
    np.testing.assert_allclose(found[1], found[0], rtol=ROUNDING, atol=ROUNDING)


@pytest.mark.parametrize("case", [case for case in CASES if not SOLVERS[case.solver]().row_state], ids=case_name)
def test_solver_two_workers_have_a_valid_certificate(case: Case, optimum: Any) -> None:
    """Chunks are dealt to two copies of a state, joined at the end of every pass. Per-row state travels with the job, not with this test."""
    plan = make_plan(job_of(case, 1e-12), store_of())
    solver, problem = plan.solver, plan.problems[0]
    state, best = solver.start(problem), optimum(case.loss, False)
    for epoch in range(1, 9):
        if epoch == 8:
            solver.certify(state)
        copies = [deepcopy(state), deepcopy(state)]
        for k, block in enumerate(blocks(problem, plan.features, epoch)):
            solver.visit(copies[k % 2], block)
        state = solver.merge(copies)
        certificate = solver.finish(state)
        assert certificate.dual <= best * (1 + 1e-6)
    w = solver.solution(state).w
    assert certificate.exact
    assert certificate.primal == pytest.approx(objective(case, w, weighted=False), rel=1e-6)
    assert certificate.primal < objective(case, np.zeros(COLUMNS + 1), weighted=False)


def blocks(problem: Any, features: Any, epoch: int) -> list[Block]:
    X, codes, _ = data(weighted=False)
    found = []
    for k, start in enumerate(range(0, ROWS, 100)):
        rows = slice(start, start + 100)
        y, s = targets_and_weights(problem, codes[rows], None)
        order = np.random.default_rng((epoch, k)).permutation(100).astype(np.int32)
        found.append(Block(features.apply(Dense(X[rows])), y, s, k, start, order, 1000 * epoch + k))
    return found


@pytest.mark.parametrize("name", list(SOLVERS))
def test_solver_other_losses_are_refused_before_reading(name: str) -> None:
    for loss in {loss for loss in LOSSES if not LOSSES[loss]().numeric()} - set(losses_of(name)):
        with pytest.raises(UsageError, match="does not solve for the loss"):
            make_plan(job_of(Case(name, {}, loss), 1e-3), store_of())
