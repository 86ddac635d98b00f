"""What is decided before the first read: the solver, the memory, the landmarks, and what a machine without --memory decides."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tracemalloc
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import sparse

import streamsvm as sv
from streamsvm.engine.checkpoint import CheckpointFile
from streamsvm.errors import UsageError
from streamsvm.jobs.fit import resume
from streamsvm.jobs.fit.options import FitJob
from streamsvm.jobs.fit.plan import Plan, make_plan
from streamsvm.jobs.fit.problems import check_cost, resolve_costs
from streamsvm.rows import Dense
from streamsvm.schedule import budget
from streamsvm.schedule.budget import MIB
from streamsvm.solvers.newton.priority_sampling import min_useful_rows, sample_rows
from streamsvm.store.views import MemoryStore
from tests.axes import each_value

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
    return make_plan(FitJob("memory", "model", memory=memory, threads=2, **more), store())


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
    assert sizes[0] > sizes[-1] >= min_useful_rows(ample.problems[0])


@pytest.mark.parametrize(("classes", "is_shared"), [(24, True), (4, False)])
def test_plan_of_many_classes_shares_one_copy_of_all_rows_where_their_samples_take_more(
    classes: int, is_shared: bool
) -> None:
    many, each = store(), 400_000 // classes
    names, counts = tuple(map(str, range(classes))), (*(each,) * (classes - 1), 400_000 - each * (classes - 1))
    many.layout = replace(many.layout, chunks=(5_000,) * 80, counts=counts, classes=names)
    job = FitJob("memory", "model", memory=65536 * MIB, threads=2)
    plan, with_samples = make_plan(job, many), make_plan(replace(job, options={"sample": 50_000}), many)
    assert (rows(plan) == 400_000) == is_shared
    assert rows(with_samples) == 50_000


def test_plan_takes_dcd_or_refuses_where_newton_does_not_fit() -> None:
    ample = planned(4096 * MIB)
    bare = sum(term.nbytes for term in ample.memory.terms if term.name not in ("solver", "all rows"))
    assert planned(bare + 4 * MIB).solver_name == "dcd"
    refused = planned(bare + 4 * MIB, solver="newton")
    assert refused.memory.total > refused.memory.limit
    assert rows(refused) < 2 * min_useful_rows(refused.problems[0])


def test_plan_of_a_resumed_run_keeps_its_sample() -> None:
    ample = planned(4096 * MIB)
    needs = ample.memory.total - (ample.memory.terms[-1].nbytes if ample.memory.cached else 0)
    job = FitJob("memory", "model", memory=needs - 230 * MIB)
    first = make_plan(job, store())
    saved = CheckpointFile(1, resume.fit_identity(job, store(), first), None, {}, Path())
    _, again = resume.plan_fit(replace(job, memory=4096 * MIB), store(), [saved])
    assert rows(again) == rows(first) < rows(ample)


def test_plan_converts_lambda_to_C() -> None:
    assert resolve_costs(FitJob("s", "m", lambda_=0.01), 50) == [2.0]
    assert resolve_costs(FitJob("s", "m"), 50) == [1.0]
    assert resolve_costs(FitJob("s", "m", C=(0.5, 4.0)), 50) == [0.5, 4.0]
    assert check_cost(1e-30) == 1e-30
    for C in (0.0, -1.0, float("inf"), float("nan")):
        with pytest.raises(UsageError, match="positive number"):
            check_cost(C)


@each_value(("embedding", ["auto", "disk", "fly"]), ("solver", ["auto", "newton", "dcd"]))
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


@pytest.mark.parametrize("loss", ["hinge", "squared_hinge", "logistic"])
def test_solver_choice_few_rows_of_many_columns_need_no_matrix_of_all_columns(loss: Any, tmp_path: Path) -> None:
    """It has to be factorized: seconds at 2,000 columns, and minutes at 5,000."""
    columns = 3000
    X = np.random.default_rng(0).normal(size=(60, columns)).astype(np.float32)
    sv.ingest(X, str(tmp_path / "s.zarr"), y=np.arange(60) % 2)
    tracemalloc.start()
    model = sv.fit(str(tmp_path / "s.zarr"), str(tmp_path / "m.ssvm"), loss=loss).model
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert model.provenance["status"] == "converged"
    assert peak < 8 * columns**2 / 2


# -- without --memory --------------------------------------------------------------------------------------------------


def machine(monkeypatch: pytest.MonkeyPatch, available: int) -> None:
    """Have the machine report so many bytes of memory as available."""
    monkeypatch.setattr(budget, "available_bytes", lambda: available)


def small_store(place: Path) -> str:
    """Rows of which second order on all of them takes some 100 MiB beside the process."""
    draw = np.random.default_rng(0)
    X = draw.normal(size=(40_000, 60)).astype(np.float32)
    sv.ingest(X, str(place / "small.zarr"), y=(X[:, 0] > 0).astype(int))
    return str(place / "small.zarr")


def wide_store(place: Path) -> str:
    """A hundred classes of many columns: second order takes more than a gigabyte."""
    X = sparse.random(300, 60_000, 0.001, "csr", np.float32, random_state=0)
    sv.ingest(X, str(place / "wide.zarr"), y=np.arange(300) % 100)
    return str(place / "wide.zarr")


def test_default_memory_small_data_has_the_same_plan_on_machines_of_any_size(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, found = small_store(tmp_path), []
    needed = sv.plan(store, threads=2).memory.total
    for available in (2 * needed // 3, 64 << 30):  # a limit of little more than is needed, and of much more
        machine(monkeypatch, available + needed // 10)
        plan = sv.plan(store, threads=2)
        found.append((plan.solver_name, plan.solver, plan.why, plan.memory.cached, plan.memory.total))
        assert not plan.facts()["limit_taken"]
    assert found[0] == found[1]


@pytest.mark.parametrize("command", ["fit", "tune"])
def test_default_memory_limit_that_decides_is_printed_and_recorded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    store = wide_store(tmp_path)
    solvers: list[str] = []
    found: Any = None
    for available in (600 * MIB, 64 << 30):
        machine(monkeypatch, available)
        solvers.append(sv.plan(store).solver_name)
    assert solvers == ["dcd", "newton"]
    machine(monkeypatch, 600 * MIB)
    options: Any = {"max_passes": 1, "threads": 1}
    if command == "fit":
        with pytest.warns(sv.StreamSVMWarning, match="not certified"):
            found = sv.fit(store, str(tmp_path / "m.ssvm"), **options)
        taken = f"--memory {found.plan.memory.limit // MIB}MiB"
        events = (tmp_path / "m.ssvm.run" / "events.jsonl").read_text().splitlines()
        assert taken in json.loads(events[0])["command"]
        taken = f"memory='{found.plan.memory.limit // MIB}MiB'"
    else:
        found = sv.tune(store, str(tmp_path / "t"), folds=2, **options)
        taken = "memory="
    assert sum(taken in line for line in found.notices) == 1


@pytest.mark.parametrize("options", [{"C": (1.0, 10.0)}, {"kernel": "rbf", "landmarks": (20, 400), "C": (1.0,)}])
@pytest.mark.filterwarnings("ignore")
def test_default_memory_limit_that_a_refused_search_is_told_will_do(tmp_path: Path, options: Any) -> None:
    draw = np.random.default_rng(0)
    X, store = draw.normal(size=(3000, 30)).astype(np.float32), str(tmp_path / "s.zarr")
    sv.ingest(X, store, y=draw.integers(0, 5, 3000))
    with pytest.raises(sv.StreamSVMError, match="is not enough") as refused:
        sv.tune(store, str(tmp_path / "t"), folds=3, max_passes=1, memory="60MiB", **options)
    told = re.search(r"use memory='(\d+MiB)'", str(refused.value))
    assert told is not None
    assert sv.tune(store, str(tmp_path / "t"), folds=3, max_passes=1, memory=told[1], **options).scores


GROUPS = Path("/sys/fs/cgroup/memory")


def test_default_memory_group_below_what_is_imported_is_refused_before_anything_is(tmp_path: Path) -> None:
    """The kernel ended such a process without a word."""
    if not (GROUPS / "memory.limit_in_bytes").exists():
        pytest.skip("there is no control group (v1) that may be changed here")
    group = GROUPS / f"streamsvm-refused-{tmp_path.name}"
    try:
        group.mkdir()
    except OSError:
        pytest.skip("no control group may be made here")
    try:
        (group / "memory.limit_in_bytes").write_text(str(100 * MIB))
        command = [sys.executable, "-m", "streamsvm", "fit", small_store(tmp_path), str(tmp_path / "m.ssvm")]
        join = ["/bin/sh", "-c", 'echo $$ > "$0/cgroup.procs" && exec "$@"', str(group), *command]
        ran = subprocess.run(join, capture_output=True, text=True, check=False)
    finally:
        group.rmdir()
    assert ran.returncode == 78
    assert "limited to 100MiB, 144MiB are needed" in ran.stderr


def test_plan_counts_matrices_once_that_newton_holds_for_one_class_at_a_time() -> None:
    """Of 40 columns and the logistic loss: each class keeps two matrices of second derivatives, and a step takes six more."""

    def solver_bytes(classes: int) -> int:
        codes = np.arange(400, dtype=np.int32) % classes
        store = MemoryStore(chunk_bytes=1 << 14)
        store.append(Dense(np.ones((400, 40), np.float32)), codes, None)
        plan = make_plan(
            FitJob("memory", "model", solver="newton", loss="logistic", options={"sample": 50}),
            store.commit(tuple(f"c{k:02}" for k in range(classes)), 40),
        )
        return next(term.nbytes for term in plan.memory.terms if term.name == "solver")

    matrix = 8 * 41 * 41
    a_class = (solver_bytes(20) - solver_bytes(10)) / 10
    assert 2 * matrix < a_class
    assert solver_bytes(10) - 10 * a_class > 6 * matrix
