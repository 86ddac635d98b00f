"""Every solver against a slow float64 reference: each loss and its parameters, feature maps, biases and weights.

Registering a solver, a loss or a kernel puts it here. What is asked: no dual above the optimum, no exact primal below it,
the last primal is what the solution really costs, and whoever converges does so to the optimum.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import pytest

from streamsvm.engine.fit_state import ProblemRun, Training
from streamsvm.engine.local_loop import local_trainer
from streamsvm.engine.loop import RunSettings
from streamsvm.errors import StreamSVMError, UsageError
from streamsvm.jobs.embed.landmarks import make_map
from streamsvm.jobs.fit.options import FitJob
from streamsvm.jobs.fit.plan import Plan, make_plan, with_map
from streamsvm.kernels import RBF, Sigmoid
from streamsvm.losses import LOSSES
from streamsvm.rows import Dense
from streamsvm.solvers import SOLVERS, losses_of
from streamsvm.store.views import MemoryStore
from streamsvm.types import Certificate, Stop, SupportSolution
from tests.contract.references import Optimum, optimum_of, shape_of

ROWS, COLUMNS, C, GAMMA = 90, 4, 0.3, 0.4
ROUNDING = 2e-5
"""Relative: features and kernel values are float32."""
TOLERANCE = 1e-3
PARAMETERS: dict[str, list[dict[str, float]]] = {
    "hinge": [{}, {"margin": 0.5}, {"margin": 8.0}],
    "squared_hinge": [{}, {"margin": 0.5}, {"margin": 8.0}],
    "logistic": [{}, {"sharpness": 0.3}, {"sharpness": 4.0}],
    "huber": [{}, {"mu": 0.05, "margin": 0.5}, {"mu": 3.0, "margin": 8.0}],
}
MAPS: dict[str, dict[str, Any]] = {
    "plain": {},
    "standardized": {"standardize": True},
    "nystrom": {"kernel": "rbf", "gamma": GAMMA, "landmarks": 20, "embedding": "fly"},
}
BIASES = (1.0, 0.0, 3.0)
EXACT = {"dcd", "newton", "active_set", "interior_point", "cutting_plane"} | {
    "kernel_active_set",
    "decomposition",
    "blended",
}
"""Solvers that reach a small gap in the passes they are given; the others are held to their certificates."""
OPTIONS: dict[str, list[dict[str, Any]]] = {
    "dcd": [{"shrinking": True}, {"online": True}],
    "mpu": [{"multiplicity": 1}],
    "sgd": [{"variant": "s"}, {"variant": "r"}, {"variant": "r", "draws": "all"}],
    "pegasos": [{"batch": 16}, {"averaging": "all"}, {"projection": False, "batch": 4}],
    "assg": [{"batch": 16}],
    "interior_point": [{"kept": 25}],
    "cutting_plane": [{"planes": 16}],
    **{name: [{"sample": 40, "iterations": 300}] for name in ("fw", "mfw", "swap", "partan")},
}
"""Settings beside the usual ones."""
USUAL: dict[str, dict[str, Any]] = {name: {"iterations": 3000} for name in ("fw", "mfw", "swap", "partan")}


class Case(NamedTuple):
    """One fit."""

    solver: str
    options: dict[str, Any]
    loss: str
    parameters: dict[str, float]
    features: str
    bias: float
    weighted: bool

    def __str__(self) -> str:
        said = [self.solver, *self.options.values(), self.loss, *self.parameters.values(), self.features, self.bias]
        return "-".join(map(str, [*said, "weighted" if self.weighted else "plain"]))


def case_of(solver: str, loss: str, options: dict[str, Any], k: int) -> Case:
    """The k-th set of parameters, map, bias and weights for a solver and a loss, which are other ones with the next."""
    kernel, number, own = SOLVERS[solver]().exact_kernel, list(SOLVERS).index(solver), list(LOSSES).index(loss)
    biases = [bias for bias in BIASES if bias or not (kernel and SOLVERS[solver]().free_bias)]
    maps = ["rbf", "linear"] if kernel else list(MAPS)
    parameters, features = PARAMETERS[loss][k % len(PARAMETERS[loss])], maps[(k + number + own) % len(maps)]
    return Case(solver, options, loss, parameters, features, biases[(2 * k + number) % len(biases)], (k + own) % 2 == 1)


def cases() -> list[Case]:
    """With each solver and loss every set of parameters and every map once; other settings of a solver meet one of each."""
    found = []
    for solver in SOLVERS:
        for loss in (name for name in losses_of(solver) if name in PARAMETERS):
            found += [case_of(solver, loss, USUAL.get(solver, {}), k) for k in range(3)]
            found += [case_of(solver, loss, options, k) for k, options in enumerate(OPTIONS.get(solver, []))]
    return found


def data(*, weighted: bool) -> tuple[Any, Any, Any]:
    rng = np.random.default_rng(11)
    X = (rng.normal(size=(ROWS, COLUMNS)) * [1.0, 0.5, 2.0, 1.0] + [0.0, 0.3, -0.5, 0.0]).astype(np.float32)
    codes = (X @ rng.normal(size=COLUMNS) + rng.normal(size=ROWS) > 0.2).astype(np.int32)
    return X, codes, rng.choice([0.0, 0.5, 1.0, 3.0], ROWS).astype(np.float32) if weighted else None


@lru_cache
def store_of(weighted: bool) -> MemoryStore:
    X, codes, weight = data(weighted=weighted)
    store = MemoryStore(chunk_bytes=480)
    store.append(Dense(X), codes, weight)
    return store.commit(("-1", "1"), COLUMNS)


def job_of(case: Case) -> FitJob:
    if SOLVERS[case.solver]().exact_kernel:
        features: dict[str, Any] = {"kernel": case.features, **({"gamma": GAMMA} if case.features == "rbf" else {})}
    else:
        features = MAPS[case.features]
    return FitJob(
        "memory", "model", solver=case.solver, options=case.options, loss=case.loss, loss_options=case.parameters,
        C=C, bias=case.bias, class_weight={"-1": 2.0, "1": 0.5} if case.weighted else None, tolerance=TOLERANCE, **features,
    )  # fmt: skip


def trained(case: Case) -> tuple[Plan, Training, list[dict[str, Any]]]:
    store, events = store_of(case.weighted), list[dict[str, Any]]()
    plan = make_plan(job_of(case), store)
    if plan.request is not None:
        plan = with_map(plan, make_map(plan.request, store, lambda event: None))
    trainer = local_trainer(store, plan.solver, plan.problems, plan.features, RunSettings(depth=0), events.append)
    passes = 1500 if case.solver in EXACT else 160  # SGD-QN is slow where the constant column is long beside the others
    return plan, trainer.train(Stop(passes)), [event for event in events if event["event"] == "pass"]


def gram(case: Case, plan: Plan) -> Any:
    """K of what the solver sees, in float64, the regularized constant included."""
    if plan.solver.exact_kernel:
        X64 = data(weighted=False)[0].astype(np.float64)
        distances = ((X64[:, None] - X64[None]) ** 2).sum(2)
        K = np.exp(-GAMMA * distances) if case.features == "rbf" else X64 @ X64.T
        return K + (0.0 if plan.solver.free_bias else case.bias**2)
    found = features_of(plan)
    return found @ found.T + case.bias**2


def features_of(plan: Plan) -> Any:
    """The rows as a linear solver sees them, without the constant one: (n, columns) float64."""
    X = data(weighted=False)[0]
    return np.vstack([dense(part.X) for part in plan.features.parts(Dense(X))])


def dense(X: Any) -> Any:
    """Features as a float64 matrix."""
    return (
        X.values.astype(np.float64)
        if isinstance(X, Dense)
        else X.kernel_values.astype(np.float64) @ X.projection.astype(np.float64)
    )


def optimum(case: Case, plan: Plan, known: dict[str, Optimum]) -> Optimum:
    """Of the problem: solvers that see the same features share it."""
    free = plan.solver.exact_kernel and plan.solver.free_bias
    key = str(case._replace(solver="", options={})) + str(free)
    if key not in known:
        shape = shape_of(case.loss, **case.parameters)
        known[key] = optimum_of(gram(case, plan), signs(), costs_of(case), shape, free_bias=free)
    return known[key]


@pytest.fixture(scope="module")
def known() -> dict[str, Optimum]:
    """Optima that were found already."""
    return {}


def signs() -> Any:
    """Y (n,)."""
    return 2.0 * data(weighted=False)[1] - 1.0


def costs_of(case: Case) -> Any:
    """C_i (n,), the weights of rows and classes in them."""
    _, codes, weight = data(weighted=case.weighted)
    factors = np.array([2.0, 0.5])[codes] if case.weighted else np.ones(ROWS)
    return C * factors * (np.ones(ROWS) if weight is None else weight)


def really_costs(case: Case, plan: Plan, state: Any) -> float:
    """P of the solution, from its definition."""
    solution = plan.solver.solution(state)
    if isinstance(solution, SupportSolution):
        beta = np.zeros(ROWS)
        beta[solution.numbers] = solution.coefficients
        K = gram(case, plan)
        f = K @ beta
        square = float(beta @ f)
        f = f + (solution.intercept if plan.solver.free_bias else 0.0)
    else:
        phi = features_of(plan)
        f = phi @ solution.w[:-1] + case.bias * solution.w[-1]
        square = float(solution.w @ solution.w)
    return 0.5 * square + float(costs_of(case) @ shape_of(case.loss, **case.parameters).values(signs() * f))


@pytest.mark.parametrize("case", cases(), ids=str)
def test_reference_certificate_is_true(case: Case, known: dict[str, Optimum]) -> None:
    plan, training, passes = trained(case)
    best = optimum(case, plan, known)
    assert best.gap <= 1e-6, "the reference has not converged"
    for event in passes:
        assert event["dual"] <= best.primal * (1.0 + ROUNDING)
        if event["exact"]:
            assert event["primal"] >= best.dual * (1.0 - ROUNDING)
    run = training.runs[0]
    assert run.certificate is not None
    assert run.certificate.exact
    assert run.certificate.primal == pytest.approx(really_costs(case, plan, run.state), rel=ROUNDING)
    if case.solver in EXACT:
        assert run.certificate.gap <= TOLERANCE
        assert run.certificate.primal <= best.primal * (1.0 + TOLERANCE + ROUNDING)
    else:
        nothing = costs_of(case) @ shape_of(case.loss, **case.parameters).values(np.zeros(ROWS))
        assert run.certificate.primal <= best.primal + 0.1 * (nothing - best.primal)


def test_reference_gap_below_zero_is_an_error_and_no_convergence() -> None:
    problem = make_plan(job_of(cases()[0]), store_of(False)).problems[0]
    run = ProblemRun(problem, None)
    run.record_certificate(Certificate(1.0, 1.0 + 1e-6))
    assert run.done
    with pytest.raises(StreamSVMError, match="contradicts itself") as caught:
        run.record_certificate(Certificate(1.0, 3.1))
    assert caught.value.code == "E-INTERNAL"
    ProblemRun(problem, None).record_certificate(Certificate(1.0, 3.1, exact=False))  # an estimate ends nothing


def test_reference_similarity_that_is_no_kernel_is_told_from_a_defect_of_ours() -> None:
    problem = make_plan(job_of(cases()[0]), store_of(False)).problems[0]
    with pytest.raises(UsageError, match="not positive semidefinite"):
        ProblemRun(replace(problem, kernel=Sigmoid()), None).record_certificate(Certificate(1.0, 1.1))
    with pytest.raises(StreamSVMError, match="defect"):
        ProblemRun(replace(problem, kernel=RBF()), None).record_certificate(Certificate(1.0, 1.1))


def test_reference_every_loss_and_solver_is_here() -> None:
    """A loss without parameters of its own here would only be tried as it is."""
    assert set(PARAMETERS) == {name for name in LOSSES if not LOSSES[name]().numeric()}
    assert {case.solver for case in cases()} == set(SOLVERS)
