"""What every solver with a kernel of its own promises of classes, through the fit job: a store in, a certified machine out."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from streamsvm import model as models
from streamsvm.compute.kernel_values import kernel_products
from streamsvm.errors import BudgetError, UsageError
from streamsvm.jobs.fit.driver import FitResult, fit
from streamsvm.jobs.fit.options import FitJob
from streamsvm.jobs.fit.outputs import summary
from streamsvm.jobs.fit.plan import make_plan
from streamsvm.losses import LOSSES
from streamsvm.rows import Dense
from streamsvm.solvers import losses_of
from streamsvm.solvers.kernel import cache as cache_module
from streamsvm.solvers.kernel.blended import Blended
from streamsvm.solvers.kernel.decomposition import Decomposition
from streamsvm.solvers.kernel.frank_wolfe import MIN_CACHE
from streamsvm.solvers.kernel.pool import MIN_POOL
from streamsvm.store import create, open_store
from tests.arrays import csr_of

ROWS, COLUMNS = 700, 5


class Case(NamedTuple):
    """A solver's name, its settings, a loss."""

    solver: str
    options: dict[str, Any]
    loss: str


def losses_of_classes(solver: str) -> list[str]:
    """The losses of margins that a solver takes; ``test_optima.py`` is the contract of the others."""
    return [loss for loss in losses_of(solver) if not LOSSES[loss]().numeric()]


EPSILON = {"epsilon": 2e-4}
CASES = [
    *(Case("decomposition", {"pool": 150}, loss) for loss in losses_of_classes("decomposition")),
    Case("decomposition", {"pool": 4096}, "hinge"),
    *(Case("kernel_active_set", {}, loss) for loss in losses_of_classes("kernel_active_set")),
    *(Case("blended", {"pool": pool}, "squared_hinge") for pool in (150, 4096)),
    *(Case(name, EPSILON, "squared_hinge") for name in ("fw", "mfw", "swap", "partan")),
    *(Case(name, {**EPSILON, "sample": 100}, "squared_hinge") for name in ("fw", "mfw", "swap", "partan")),
]


def case_name(case: Case) -> str:
    return "-".join([case.solver, *(f"{k}{v}" for k, v in case.options.items()), case.loss])


each_case = pytest.mark.parametrize("case", CASES, ids=case_name)


def data() -> tuple[Any, Any]:
    rng = np.random.default_rng(4)
    X = (3.0 + 2.0 * rng.normal(size=(ROWS, COLUMNS))).astype(np.float32)
    ring = np.abs(np.hypot(X[:, 0] - 3.0, X[:, 1] - 3.0) - 2.0) < 1.0
    return X, np.where(X[:, 2] > 5.0, 2, ring ^ (rng.random(ROWS) < 0.05)).astype(np.int32)


def stored(folder: Path, classes: int = 2, *, sparse: bool = False) -> Path:
    """The rows in a store, in two classes or three."""
    X, codes = data()
    path = folder / f"store-{classes}-{sparse}"
    if path.exists():
        return path
    writer = create(path, sparse=sparse, chunk_bytes=4000)
    writer.append(csr_of(X) if sparse else Dense(X), np.minimum(codes, classes - 1), None)
    writer.commit(tuple("abc"[:classes]), COLUMNS, {"names": None})
    return path


@pytest.fixture
def store(tmp_path: Path) -> Callable[..., Path]:
    """Writes the rows to a store of the test's own."""
    return partial(stored, tmp_path)


def job_of(case: Case, path: Path, **more: Any) -> FitJob:
    settings: dict[str, Any] = {
        "kernel": "rbf",
        "gamma": 1.0,
        "C": 10.0,
        "standardize": True,
        "overwrite": True,
        **more,
    }
    return FitJob(str(path), str(path) + ".model", solver=case.solver, options=case.options, loss=case.loss, **settings)


def accuracy(result: FitResult, classes: int) -> float:
    X, codes = data()
    return float(np.mean(result.model.codes(result.model.decision(Dense(X))) == np.minimum(codes, classes - 1)))


@each_case
def test_kernel_solver_fit_ends_certified_and_its_model_is_the_machine(case: Case, store: Callable[..., Path]) -> None:
    result = fit(job_of(case, store()))
    certificate = result.training.runs[0].certificate
    assert certificate is not None
    assert certificate.exact
    assert certificate.dual <= certificate.primal * (1.0 + 1e-6)
    assert certificate.final or certificate.gap <= 1e-3
    assert accuracy(result, 2) > 0.85
    again = models.load(Path(str(result.run).removesuffix(".run")))
    X, _ = data()
    np.testing.assert_array_equal(again.decision(Dense(X)), result.model.decision(Dense(X)))
    both = summary(result.training, result.plan)["simplex"]
    assert (both is None) == (case.solver in {"decomposition", "kernel_active_set"})
    assert both is None or both == [certificate.facts["simplex_gap"], certificate.facts["seen_gap"]]
    state = result.training.runs[0].state
    assert again.weights.shape == (1, len(result.plan.solver.solution(state).numbers) + 1)


@pytest.mark.parametrize("loss", ["hinge", "squared_hinge"])
@pytest.mark.parametrize("sparse", [False, True])
def test_kernel_solver_classes_share_their_points(loss: str, sparse: bool, store: Callable[..., Path]) -> None:
    result = fit(job_of(Case("auto", {}, loss), store(3, sparse=sparse), standardize=False))
    supports = [result.plan.solver.solution(run.state).numbers for run in result.training.runs]
    assert result.model.weights.shape == (3, len(np.unique(np.concatenate(supports))) + 1)
    assert accuracy(result, 3) > 0.85
    assert result.plan.solver_name == "decomposition"


@pytest.mark.parametrize(
    ("solver", "case"),
    [
        (Blended, Case("blended", {"pool": 200, "working": 64}, "squared_hinge")),
        (Decomposition, Case("decomposition", {"pool": 80, "working": 80}, "hinge")),
    ],
)
def test_problems_share_kernel_values(
    solver: Any, case: Case, store: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    counts, duals = [], []
    evaluated: list[int] = []
    plain = kernel_products.kernel_block

    def counted(X: Any, Z: Any, kernel: Any, out: Any, **how: Any) -> None:
        evaluated.append(out.size)
        plain(X, Z, kernel, out, **how)

    monkeypatch.setattr(kernel_products, "kernel_block", counted)
    monkeypatch.setattr(cache_module, "WEIGHING_COST", 0)  # the rows are narrow
    for prepare_shared in (solver.prepare_shared, lambda *_: None):
        monkeypatch.setattr(solver, "prepare_shared", prepare_shared)
        evaluated.clear()
        result = fit(job_of(case, store(3), max_passes=5))
        counts.append(sum(evaluated))
        duals.append([run.certificate.dual for run in result.training.runs if run.certificate])
    np.testing.assert_allclose(duals[0], duals[1], rtol=0.01)
    assert counts[0] < 0.95 * counts[1]


def test_kernel_solver_gap_on_the_simplex_is_for_blended(store: Callable[..., Path]) -> None:
    plan = make_plan(job_of(Case("auto", EPSILON, "squared_hinge"), store()), open_store(str(store())))
    assert plan.solver_name == "blended"


def test_kernel_solver_small_budget_makes_the_pool_smaller(store: Callable[..., Path]) -> None:
    opened = open_store(str(store()))
    plan = make_plan(job_of(Case("partan", {"pool": 4096}, "squared_hinge"), store(), memory=1), opened)
    solver: Any = plan.solver
    assert solver.pool < 2 * MIN_POOL
    assert solver.keep == 2 * solver.pool
    assert solver.cache < 2 * MIN_CACHE
    with pytest.raises(BudgetError):
        plan.memory.check(plan.remedy)


@pytest.mark.parametrize("loss", ["hinge", "squared_hinge"])
def test_kernel_solver_short_model_is_short(loss: str, store: Callable[..., Path]) -> None:
    wide = {"gamma": 0.2, "C": 1.0}  # of a narrow kernel 60 rows say nothing, whatever their coefficients
    job = job_of(Case("decomposition", {"pool": 200}, loss), store(), max_support=60, **wide)
    result = fit(job)
    found = result.training.runs[0].certificate
    assert result.model.weights.shape == (1, 61)
    assert found is not None
    assert found.exact
    assert found.facts["points"] == 60 < found.facts["support"]
    assert found.gap > 1e-3
    assert accuracy(result, 2) > 0.7


def test_kernel_solver_short_model_needs_no_room_for_all_rows(store: Callable[..., Path]) -> None:
    opened = open_store(str(store()))
    case = Case("decomposition", {"pool": 100, "working": 16}, "hinge")
    tight = make_plan(job_of(case, store(), memory=1), opened)
    short = make_plan(job_of(case, store(), memory=1, max_support=5), opened)
    assert short.memory.total < tight.memory.total
    with pytest.raises(BudgetError, match="--max-support"):
        tight.memory.check(tight.remedy)


def test_kernel_solver_refuses_incompatible_options(store: Callable[..., Path]) -> None:
    path = store()
    opened = open_store(str(path))
    refused: list[tuple[Case, dict[str, Any], str]] = [
        (Case("dcd", {}, "hinge"), {}, "does not evaluate kernels"),
        (Case("decomposition", {}, "hinge"), {"landmarks": 10}, "exactly"),
        (Case("decomposition", {}, "hinge"), {"bias": 0.0}, "free bias"),
        (Case("fw", {}, "hinge"), {}, "does not solve"),
    ]
    for case, more, words in refused:
        with pytest.raises(UsageError, match=words):
            make_plan(job_of(case, path, **more), opened)
