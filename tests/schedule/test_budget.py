"""The memory plan: its terms are what is really held, and a job that cannot fit is refused before anything is read."""

from __future__ import annotations

import gc
import re
import resource
from mmap import MAP_ANONYMOUS, MAP_PRIVATE, mmap
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamsvm.config.units import mib
from streamsvm.errors import BudgetError
from streamsvm.jobs.fit.driver import fit
from streamsvm.jobs.fit.options import FitJob
from streamsvm.jobs.fit.plan import Plan, make_plan
from streamsvm.rows import Dense
from streamsvm.schedule import budget, machine
from streamsvm.schedule.budget import MIB, anonymous_bytes, memory_limit
from streamsvm.store import create, open_store
from streamsvm.store.views import MemoryStore
from tests.arrays import csr_of, sparse_values
from tests.axes import each_value

BASE = budget.NOMINAL
"""What a process is counted as that has begun."""


def stored(path: Path, *, sparse: bool, weighted: bool = False, rows: int = 4000, chunk: int = 1 << 16) -> Any:
    rng = np.random.default_rng(3)
    values = sparse_values(rng, rows, 30)
    writer = create(path, sparse=sparse, chunk_bytes=chunk)
    codes = (np.arange(rows) % 2).astype(np.int32)
    weight = np.ones(rows, np.float32) if weighted else None
    writer.append(csr_of(values) if sparse else Dense(values), codes, weight)
    writer.commit(("-1", "1"), 30, {})
    return open_store(path)


def memory_store(rows: int = 5000) -> MemoryStore:
    store = MemoryStore(chunk_bytes=40_000)
    store.append(Dense(np.zeros((rows, 10), np.float32)), (np.arange(rows) % 2).astype(np.int32))
    return store.commit(("-1", "1"), 10)


def planned(store: Any, memory: int, **settings: Any) -> Plan:
    return make_plan(FitJob("s", "m", memory=memory, **({"solver": "dcd"} | settings)), store)


@pytest.fixture
def fixed_base(monkeypatch: pytest.MonkeyPatch) -> None:
    """The process as if it held 100 MiB and had compiled all it needs."""
    monkeypatch.setattr(budget, "anonymous_bytes", lambda: BASE)
    monkeypatch.setattr(budget, "passes_loaded", lambda: True)


# -- what the terms say -----------------------------------------------------------------------------------------------


@each_value(("sparse", [False, True]), ("weighted", [False, True]), ("rows", [100, 4000]), ("depth", [0, 2]))
def test_memory_plan_blocks_in_flight_are_what_the_ring_allocates(
    tmp_path: Path, sparse: bool, weighted: bool, rows: int, depth: int
) -> None:
    store = stored(tmp_path / "s", sparse=sparse, weighted=weighted, rows=rows)
    ring = (depth + 1) * (store.buffers().nbytes + 4 * store.layout.largest_chunk)
    terms = {term.name: term.nbytes for term in planned(store, 1 << 40, prefetch=depth).memory.terms}
    assert ring <= terms["blocks in flight"] <= 2 * ring + MIB
    assert terms["block views"] >= store.layout.largest_chunk * (4 + 4)  # signs and weights, float32


@given(limit=st.integers(0, 400 * MIB), rows=st.integers(2, 40_000), standardize=st.booleans())
def test_a_plan_holds_its_limit_or_is_refused(limit: int, rows: int, standardize: bool) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(budget, "anonymous_bytes", lambda: BASE)
        plan = planned(memory_store(rows), max(limit, 1), standardize=standardize)
    assert plan.memory.limit <= max(limit, 1)
    if plan.memory.total > plan.memory.limit:
        with pytest.raises(BudgetError):
            plan.memory.check(plan.remedy)
    else:
        plan.memory.check(plan.remedy)


def test_less_memory_gives_up_kept_rows_first_and_row_state_second(fixed_base: None) -> None:
    store = memory_store(200_000)  # 8 MB of features, 1.6 MB of dual variables
    seen = []
    for limit in range(BASE, BASE + 60 * MIB, MIB // 4):
        memory = planned(store, limit).memory
        if memory.total <= memory.limit and (memory.cached, memory.resident) not in seen:
            seen.append((memory.cached, memory.resident))
    assert seen == [(False, False), (False, True), (True, True)]


# -- refusal ----------------------------------------------------------------------------------------------------------


def test_memory_plan_refusal_comes_before_the_first_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = stored(tmp_path / "s", sparse=False)

    def untouchable(*_: object) -> None:
        raise AssertionError("a chunk was read")

    monkeypatch.setattr(type(store), "fetch", untouchable)
    with pytest.raises(BudgetError) as refused:
        fit(FitJob(str(tmp_path / "s"), str(tmp_path / "m.ssvm"), memory=MIB))
    assert refused.value.exit_code == 78
    assert sorted(path.name for path in tmp_path.iterdir()) == ["s"]
    with pytest.raises(AssertionError, match="a chunk was read"):  # it would have been, otherwise
        fit(FitJob(str(tmp_path / "s"), str(tmp_path / "m.ssvm"), memory=1 << 40))


def test_memory_plan_refusal_names_every_term_and_their_sum(fixed_base: None) -> None:
    plan = planned(memory_store(), 3 * MIB, standardize=True)
    with pytest.raises(BudgetError) as refused:
        plan.memory.check(plan.remedy)
    for term in plan.memory.terms:
        assert f"{mib(term.nbytes)} {term.name}" in refused.value.message
    assert refused.value.message.startswith("--memory 3MiB is not enough")
    assert refused.value.message.endswith(f"= {mib(plan.memory.total)}")


@each_value(("rows", [10, 5000, 200_000]), ("solver", ["dcd", "newton", "auto"]), ("standardize", [False, True]))
def test_memory_plan_what_the_refusal_advises_does_fit(
    fixed_base: None, rows: int, solver: str, standardize: bool
) -> None:
    store = memory_store(rows)
    plan = planned(store, MIB, standardize=standardize, solver=solver)
    with pytest.raises(BudgetError) as refused:
        plan.memory.check(plan.remedy)
    advised = re.search(r"use --memory (\d+)MiB", refused.value.hint)
    assert advised
    better = planned(store, int(advised[1]) * MIB, standardize=standardize, solver=solver)
    better.memory.check(better.remedy)
    assert "smaller chunks" in refused.value.hint


# -- where the limit comes from ---------------------------------------------------------------------------------------

V2 = "0::/user.slice/job\n"
V1 = "12:cpu,cpuacct:/a\n5:memory:/docker/abc\n0::/\n"
GROUP = "/sys/fs/cgroup"


@pytest.mark.parametrize(
    ("files", "limits"),
    [
        ({}, []),
        ({"/proc/self/cgroup": V2, f"{GROUP}/user.slice/job/memory.max": "268435456\n"}, [256 * MIB]),
        (
            {
                "/proc/self/cgroup": V2,
                f"{GROUP}/user.slice/job/memory.max": "max\n",
                f"{GROUP}/user.slice/memory.max": "1048576",
            },
            [MIB],
        ),
        ({"/proc/self/cgroup": V2, f"{GROUP}/memory.max": "2097152\n"}, [2 * MIB]),
        # the name of a group may have colons in it
        ({"/proc/self/cgroup": "0::/job:1:a\n", f"{GROUP}/job:1:a/memory.max": "2097152\n"}, [2 * MIB]),
        ({"/proc/self/cgroup": V1, f"{GROUP}/memory/docker/abc/memory.limit_in_bytes": "1048576\n"}, [MIB]),
        # a container sees its own group as the root, under a path it cannot see
        ({"/proc/self/cgroup": V1, f"{GROUP}/memory/memory.limit_in_bytes": "3145728\n"}, [3 * MIB]),
        # so much is no limit, as what version 1 writes for "no limit"
        ({"/proc/self/cgroup": V2, f"{GROUP}/memory.max": f"{1 << 60}\n"}, []),
        ({"/proc/self/cgroup": V2, f"{GROUP}/memory.max": f"{(1 << 60) - 1}\n"}, [(1 << 60) - 1]),
        ({"/proc/self/cgroup": V1, f"{GROUP}/memory/memory.limit_in_bytes": "9223372036854771712\n"}, []),
        (
            {
                "/proc/self/cgroup": V2 + "3:memory:/old\n",
                f"{GROUP}/user.slice/memory.max": "2097152",
                f"{GROUP}/memory/old/memory.limit_in_bytes": "1048576",
            },
            [2 * MIB, MIB],
        ),
    ],
)
def test_memory_plan_control_groups_are_found(
    files: dict[str, str], limits: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (budget, machine):
        monkeypatch.setattr(module, "text_of", lambda path: files.get(str(path), ""))
    assert budget.group_limits() == limits


def test_memory_plan_lowest_limit_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(budget, "group_limits", lambda: [300 * MIB, 200 * MIB])
    assert memory_limit(None) <= 200 * MIB
    assert memory_limit(150 * MIB) == 150 * MIB
    assert memory_limit(1 << 50) == 200 * MIB


def test_memory_plan_without_any_limit_three_quarters_of_what_is_available(monkeypatch: pytest.MonkeyPatch) -> None:
    import psutil

    monkeypatch.setattr(budget, "group_limits", list)
    found, available = memory_limit(None), psutil.virtual_memory().available
    assert 0.5 * available < found < available + anonymous_bytes()


# -- what is measured -------------------------------------------------------------------------------------------------


def test_anonymous_memory_counts_what_is_touched_and_is_given_back() -> None:
    gc.collect()  # or it is others who give back
    before = anonymous_bytes()
    with mmap(
        -1, 64 * MIB, MAP_PRIVATE | MAP_ANONYMOUS
    ) as held:  # memory of its own: an array may get what an earlier test has given back
        held.write(b"1" * MIB * 64)
        grown = anonymous_bytes()
        assert 60 * MIB < grown - before < 80 * MIB
    assert anonymous_bytes() < before + 16 * MIB


def test_anonymous_memory_does_not_count_pages_of_files(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(bytes(32 * MIB))
    before = anonymous_bytes()
    mapped = np.memmap(path, np.uint8, "r")
    assert int(mapped.sum()) == 0
    assert anonymous_bytes() - before < 16 * MIB


def held(patch: pytest.MonkeyPatch, nbytes: int, *, loaded: bool) -> None:
    """The process as if it held so much."""
    patch.setattr(budget, "anonymous_bytes", lambda: nbytes)
    patch.setattr(budget, "passes_loaded", lambda: loaded)


def test_memory_plan_kernel_fit_is_planned_alike_whatever_the_process_did_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """How many rows it solves for at a time follows from what is left, and the last digits of its weights from that."""
    store, found = memory_store(300_000), []
    for nbytes, loaded in ((57 * MIB, False), (100 * MIB, True), (131 * MIB, True)):
        held(monkeypatch, nbytes, loaded=loaded)
        plans = [
            planned(store, m * MIB, solver="decomposition", kernel="rbf", loss="hinge") for m in range(190, 330, 20)
        ]
        found.append([(plan.solver, plan.memory.total, plan.memory.resident, plan.memory.cached) for plan in plans])
    assert found[0] == found[1] == found[2]
    assert len({solver for solver, *_ in found[0]}) > 1


def test_memory_plan_limit_of_the_address_space_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(budget, "group_limits", list)
    monkeypatch.setattr(resource, "getrlimit", lambda _: (50 * MIB, 50 * MIB))
    assert budget.memory_limit(80 * MIB) == 50 * MIB
    monkeypatch.setattr(resource, "getrlimit", lambda _: (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    assert budget.memory_limit(80 * MIB) == 80 * MIB
