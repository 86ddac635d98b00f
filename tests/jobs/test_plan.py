"""What is decided before the first read, where memory is short: fewer rows in newton's model, then another solver."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from streamsvm.engine.checkpoint import Saved
from streamsvm.errors import UsageError
from streamsvm.jobs.fit import identity
from streamsvm.jobs.fit.job import FitJob
from streamsvm.jobs.fit.plan import Plan, make_plan
from streamsvm.jobs.fit.problems import check_cost, resolve_costs
from streamsvm.rows import Dense
from streamsvm.schedule.budget import MIB
from streamsvm.solvers.newton.sample import least_rows, sample_rows
from streamsvm.store.views import MemoryStore

CHUNKS, COLUMNS = (5_000,) * 40, 200


def store() -> Any:
    """200,000 rows x 200 as far as a plan can see."""
    small = MemoryStore()
    rng = np.random.default_rng(0)
    small.append(Dense(rng.normal(size=(10, COLUMNS)).astype(np.float32)), np.arange(10, dtype=np.int32) % 2)
    small.commit(("a", "b"), COLUMNS)
    small.layout = replace(small.layout, chunks=CHUNKS, counts=(100_000, 100_000))
    return small


def planned(memory: int, **more: Any) -> Plan:
    return make_plan(FitJob("memory", "model", memory=memory, **more), store())


def rows(plan: Plan) -> int:
    found: Any = plan.solver
    return sample_rows(found.sample, plan.problems[0])


@pytest.mark.parametrize("solver", ["auto", "newton"])
def test_plan_shrinks_the_sample_of_newton_to_the_memory_limit(solver: str) -> None:
    ample = planned(4096 * MIB, solver=solver)
    assert "short" not in ample.why
    needs = ample.memory.total - (ample.memory.terms[-1].nbytes if ample.memory.cached else 0)
    sizes = [rows(ample)]
    for less in (20 * MIB, 230 * MIB, 270 * MIB):
        plan = planned(needs - less, solver=solver)
        assert plan.memory.total <= plan.memory.limit
        assert plan.solver_name == "newton"
        assert f"memory is short: sample {rows(plan)}" in plan.why
        sizes.append(rows(plan))
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[0] > sizes[-1] >= least_rows(ample.problems[0])


def test_plan_takes_dcd_or_refuses_where_newton_does_not_fit() -> None:
    ample = planned(4096 * MIB)
    bare = sum(term.nbytes for term in ample.memory.terms if term.name not in ("solver", "all rows"))
    assert planned(bare + 4 * MIB).solver_name == "dcd"
    refused = planned(bare + 4 * MIB, solver="newton")
    assert refused.memory.total > refused.memory.limit
    assert rows(refused) < 2 * least_rows(refused.problems[0])


def test_plan_of_a_resumed_run_keeps_its_sample() -> None:
    ample = planned(4096 * MIB)
    needs = ample.memory.total - (ample.memory.terms[-1].nbytes if ample.memory.cached else 0)
    job = FitJob("memory", "model", memory=needs - 230 * MIB)
    first = make_plan(job, store())
    saved = Saved(1, identity.identity_of(job, store(), first), None, {}, Path())
    _, again = identity.plan_fit(replace(job, memory=4096 * MIB), store(), [saved])
    assert rows(again) == rows(first) < rows(ample)


def test_plan_converts_lambda_to_C() -> None:
    assert resolve_costs(FitJob("s", "m", lambda_=0.01), 50) == [2.0]
    assert resolve_costs(FitJob("s", "m"), 50) == [1.0]
    assert resolve_costs(FitJob("s", "m", C=(0.5, 4.0)), 50) == [0.5, 4.0]
    assert check_cost(1e-30) == 1e-30
    for C in (0.0, -1.0, float("inf"), float("nan")):
        with pytest.raises(UsageError, match="positive number"):
            check_cost(C)


@pytest.mark.parametrize("embedding", ["auto", "disk", "fly"])
@pytest.mark.parametrize("solver", ["auto", "newton", "dcd"])
def test_plan_names_the_landmarks_that_would_fit(solver: str, embedding: str) -> None:
    """Of Newton's method with the sample it then takes, which is another one than so many components leave."""
    asked: dict[str, Any] = {"kernel": "rbf", "gamma": 0.1, "solver": solver, "embedding": embedding}
    plan = planned(400 * MIB, landmarks=20_000, **asked)
    assert plan.memory.total > plan.memory.limit
    found = re.search(r", or --landmarks (\d+)$", plan.remedy)
    assert found
    fewer = planned(400 * MIB, landmarks=int(found[1]), **asked)
    assert 0 < int(found[1]) < 20_000
    assert fewer.memory.total <= fewer.memory.limit
    assert "--landmarks" not in fewer.remedy
    if embedding != "auto":  # else there is room for both
        more = planned(400 * MIB, landmarks=int(found[1]) + 1, **asked)
        assert more.memory.total > more.memory.limit
