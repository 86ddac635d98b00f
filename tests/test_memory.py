"""The promise about memory, measured from outside: fits in processes of their own, watched while they run, resumed, and in a control group."""

from __future__ import annotations

import json
import os
import platform
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import streamsvm as sv
from streamsvm.rows import CSR, Dense
from streamsvm.store import create, open_store

MIB = 1 << 20
REPOSITORY = Path(__file__).parent.parent
COLUMNS = 18
LITTLE = 190 * MIB
"""What an ingest can begin with, and no wide table can be read in."""
SLACK = 4 * MIB
"""By what the imports of 'plan' and of 'fit' may differ."""
SAME = 8 * MIB
"""Peaks of runs that hold the same: what is open, when, differs from run to run."""
PROCESS = ("interpreter and imports", "compiled passes", "margin")
pytestmark = pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs /proc")


class Watched(NamedTuple):
    """How a command ended, what it said, the most anonymous memory it was seen with, and its errors."""

    code: int
    said: str
    peak: int
    complaint: str


PAUSING = """
import time
from streamsvm.engine.block_visitor import BlockVisitor
from streamsvm.__main__ import main
plain, visits = BlockVisitor.visit, []
def pausing(*values):
    plain(*values)
    visits.append(None)
    if len(visits) == 40:
        time.sleep(0.3)
BlockVisitor.visit = pausing
main()
"""
"""The program, which pauses once while it holds its rows: however fast it is, who watches it has seen them."""


def watched(*arguments: object) -> Watched:
    program = ["-c", PAUSING] if arguments[0] == "fit" else ["-m", "streamsvm"]
    command = [sys.executable, *program, *map(str, arguments)]
    environment = os.environ | {"PYTHONPATH": str(REPOSITORY)}
    process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    peak = 0
    while process.poll() is None:
        found = re.search(r"RssAnon:\s+(\d+) kB", Path(f"/proc/{process.pid}/status").read_text(encoding="ascii"))
        peak = max(peak, int(found[1]) << 10 if found else 0)
        time.sleep(0.004)
    said, complaint = process.communicate()
    return Watched(process.returncode, said, peak, complaint)


def planned(store: Path) -> dict[str, Any]:
    """The least a fit can be given: the plan made for too little."""
    done = watched("plan", store, "--memory", "1MiB", "--solver", "dcd", "--json")
    assert done.code == 78
    found: dict[str, Any] = json.loads(done.said)
    return found


def fitted(store: Path, model: Path, memory: int, *more: object) -> tuple[Watched, dict[str, Any], dict[str, Any]]:
    """The run, its plan and how it ended."""
    settings = ["--memory", memory, "--max-passes", 2, "--tolerance", 1e-9, "--solver", "dcd", "--overwrite", *more]
    done = watched("fit", store, model, *settings)
    assert done.code == 0, done.said
    run = model.with_name(model.name + ".run")
    certificate = json.loads((run / "certificate.json").read_text())
    assert certificate["passes"] == 2
    return done, json.loads((run / "plan.json").read_text()), certificate


def stored(path: Path, nbytes: int, *, sparse: bool = False, chunk_bytes: int = MIB // 2) -> Path:
    """So many bytes of features, the same rows appended again and again."""
    rng = np.random.default_rng(0)
    piece = 1 << 16
    values = rng.standard_normal((piece, COLUMNS), np.float32)
    codes = (values[:, 0] + rng.standard_normal(piece) > 0).astype(np.int32)
    indices = np.tile(np.arange(COLUMNS, dtype=np.int32), piece)
    entries = CSR(values.reshape(-1), indices, np.arange(piece + 1, dtype=np.int64) * COLUMNS)
    writer = create(path, sparse=sparse, chunk_bytes=chunk_bytes)
    for _ in range(nbytes // (values.nbytes * (1 + sparse))):
        writer.append(entries if sparse else Dense(values), codes, None)
    writer.commit(("-1", "1"), COLUMNS, {})
    return path


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    root = tmp_path_factory.mktemp("memory")
    small, large = stored(root / "small", 15 * MIB), stored(root / "large", 60 * MIB)
    watched("fit", small, root / "warm", "--solver", "dcd", "--max-passes", 2)  # compiles what is not yet compiled
    return {"small": small, "large": large, "csr": stored(root / "csr", 15 * MIB, sparse=True)}


def test_memory_does_not_grow_with_the_data(stores: dict[str, Path], tmp_path: Path) -> None:
    """The least memory that is enough, and eight times as much data as it leaves room for beside the process itself."""
    peaks = []
    for name in ("small", "large"):
        least = planned(stores[name])
        memory = least["total"] + SLACK
        base = sum(term["bytes"] for term in least["memory"] if term["term"] in PROCESS)
        done, plan, certificate = fitted(stores[name], tmp_path / name, memory)
        if name == "large":
            assert open_store(stores[name]).layout.bytes_per_pass >= 8 * (memory - base)
            assert plan["row_state"] == "file beside the run"
        assert plan["blocks"] == "read in every pass"
        assert done.peak <= plan["total"] <= memory
        assert certificate["peak"] <= plan["total"]
        assert abs(certificate["peak"] - done.peak) < SAME  # what it says of itself is what is seen
        peaks.append(done.peak)
    assert abs(peaks[1] - peaks[0]) <= SAME


@pytest.mark.parametrize(("name", "more"), [("small", ()), ("csr", ("--standardize",))])
def test_memory_of_rows_kept_in_memory_is_in_the_plan(
    stores: dict[str, Path], name: str, more: tuple[str, ...], tmp_path: Path
) -> None:
    done, plan, _ = fitted(stores[name], tmp_path / "m", 1 << 30, *more)
    layout = open_store(stores[name]).layout
    assert plan["blocks"] == "kept in memory"
    assert done.peak <= plan["total"]
    assert done.peak >= layout.bytes_per_pass + 8 * layout.rows  # what is watched is what is meant


REGIMES: dict[str, dict[str, int]] = {
    "blended": {"pool": 2000, "keep": 3000},
    "decomposition": {"pool": 2000},
    "partan": {"pool": 20_000, "iterations": 40},
    "mfw": {"pool": 20_000, "iterations": 40, "sample": 50},
}


@pytest.mark.parametrize("solver", REGIMES)
def test_memory_solvers_that_evaluate_the_kernel_keep_to_the_plan(
    stores: dict[str, Path], solver: str, tmp_path: Path
) -> None:
    """Pools of a part of the rows."""
    settings = [part for name, value in REGIMES[solver].items() for part in ("--set", f"solver.{name}={value}")]
    kernel = ["--kernel", "rbf", "--gamma", 0.05, "--loss", "squared_hinge", "--solver", solver]
    done, plan, certificate = fitted(stores["small"], tmp_path / "m", 360 * MIB, *kernel, *settings)
    assert done.peak <= plan["total"] <= 360 * MIB
    assert plan["solver"] == solver
    assert certificate["peak"] <= plan["total"]


@pytest.mark.parametrize("length", [8, 60])
def test_memory_wide_table_of_text_keeps_to_the_least_memory_it_is_given(length: int, tmp_path: Path) -> None:
    """What is refused names what would do, and that is enough: 20,000 columns once took more than twice of it."""
    columns, rows = 20_000, 40
    values = np.random.default_rng(0).normal(size=(rows, columns)).round(3)
    with open(tmp_path / "t.csv", "w", encoding="ascii") as file:
        file.write(",".join(f"{j:0{length}d}x" for j in range(columns)) + ",y\n")
        file.writelines(",".join(map(str, row)) + f",{k % 2}\n" for k, row in enumerate(values.tolist()))
    keeps_to_the_least_memory(tmp_path / "t.csv", columns)


def test_memory_wide_table_in_row_groups_keeps_to_the_least_memory_it_is_given(tmp_path: Path) -> None:
    """A reader for each column took six times of what was planned."""
    columns, rows = 5000, 200
    values = np.random.default_rng(0).normal(size=(columns, rows))
    table = pa.table({f"x{j}": values[j] for j in range(columns)} | {"y": np.arange(rows) % 2})
    pq.write_table(table, tmp_path / "t.parquet", row_group_size=rows // 2)
    keeps_to_the_least_memory(tmp_path / "t.parquet", columns)


def keeps_to_the_least_memory(source: Path, columns: int) -> None:
    """An ingest is refused with what would do, and that is enough."""
    command = ["ingest", source, source.with_name("s.zarr"), "--label", "y", "--memory"]
    refused = watched(*command, LITTLE)
    assert refused.code == 78
    assert refused.peak < LITTLE
    named = re.search(r"use --memory (\d+)MiB", refused.complaint)
    assert named, refused.complaint
    memory = int(named[1]) * MIB + SLACK
    done = watched(*command, memory)
    assert done.code == 0, done.complaint
    assert done.peak <= memory
    assert open_store(source.with_name("s.zarr")).layout.columns == columns


# -- resumed fits ------------------------------------------------------------------------------------------------------

KERNEL = {"decomposition", "blended", "partan"}


RESUMING = {
    "dcd": "squared_hinge",
    "newton": "squared_hinge",
    "interior_point": "hinge",
    "cutting_plane": "squared_hinge",
    "active_set": "hinge",
    "mpu": "hinge",
    "sgd": "hinge",
    "decomposition": "hinge",
    "blended": "squared_hinge",
    "partan": "squared_hinge",
}
"""A solver of each family, with a loss it takes."""


def store_of(place: Path, rows: int) -> str:
    """Return a store of so many rows in several chunks."""
    draw = np.random.default_rng(0)
    X = draw.normal(size=(rows, 20)).astype(np.float32)
    sv.ingest(X, str(place / "s.zarr"), y=(X[:, 0] + draw.normal(size=rows) > 0).astype(int), chunk="16KiB")
    return str(place / "s.zarr")


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> str:
    return store_of(tmp_path_factory.mktemp("many"), 6000)


@pytest.fixture(scope="module")
def few(tmp_path_factory: pytest.TempPathFactory) -> str:
    return store_of(tmp_path_factory.mktemp("few"), 300)


RESUMED = """
import json, os, signal, sys, warnings
import streamsvm as sv
warnings.simplefilter("ignore")
def resume(store, options):
    name = options["solver"]
    sv.fit(store, f"{name}.warm", max_passes=2, **options)  # what is compiled is compiled
    options |= {"max_passes": 3, "memory": sv.plan(store, max_passes=3, **options).memory.total + (1 << 20)}
    try:
        sv.fit(store, name, on_pass=lambda _: os.kill(os.getpid(), signal.SIGINT), **options)
    except sv.InterruptedRun:
        found = sv.fit(store, name, resume=True, **options)
        print(name, found.training.passes, found.training.peak, found.plan.memory.limit, flush=True)
sv.plan(sys.argv[1])  # what is imported is imported
for store, options in json.loads(sys.argv[2]):
    child = os.fork()
    if not child:
        resume(store, options)
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0, options
"""
"""Children of one program, one a fit: the memory of each is that of its fit."""


def test_memory_resumed_fit_stays_within_its_plan(store: str, few: str, tmp_path: Path) -> None:
    jobs = []
    for solver, loss in RESUMING.items():
        options = {"solver": solver, "loss": loss, "tolerance": 1e-10, "threads": 2}
        options |= {"kernel": "rbf"} if solver in KERNEL else {}
        jobs.append((few if solver in KERNEL | {"active_set"} else store, options))
    command = [sys.executable, "-c", RESUMED, store, json.dumps(jobs)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found = {name: list(map(int, numbers)) for name, *numbers in map(str.split, done.stdout.splitlines())}
    assert found.keys() == RESUMING.keys()
    over = {name: numbers for name, numbers in found.items() if numbers[0] < 1 or numbers[1] > numbers[2]}
    assert not over, "passes, peak and limit of fits beyond their plans"


FREED = """
import sys
import numpy as np, streamsvm as sv
def held():
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) >> 10 for line in file if line.startswith("RssAnon"))
sv.plan(sys.argv[1])
large = np.ones(3 << 20)
del large
blocks, between = [], []
for _ in range(20):
    blocks.append(np.ones(1 << 20))
    between.append(bytearray(100_000))
full = held()
del blocks
print(full - held())
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="the size is one of this C library")
def test_memory_large_blocks_go_back_to_the_system_whatever_was_freed_before(store: str) -> None:
    """20 blocks of 8 MiB after one of 24 MiB, which would have the C library keep them."""
    names = ("MALLOC_MMAP_THRESHOLD_", "MALLOC_TRIM_THRESHOLD_", "GLIBC_TUNABLES")
    environment = {name: value for name, value in os.environ.items() if name not in names}
    command = [sys.executable, "-c", FREED, store]
    ran = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
    assert int(ran.stdout) > 140


# -- in a control group ------------------------------------------------------------------------------------------------

GROUPS = Path("/sys/fs/cgroup/memory")
LIMIT, PROMISE = 208 << 20, 184 << 20
"""Bytes of the group, and of --memory inside it."""
Limited = Callable[..., int]


def anonymous(pid: int) -> int:
    """Anonymous and shared memory of a process (pages of files are not its own)."""
    try:
        text = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return 0
    found = dict(line.split(":", 1) for line in text.splitlines() if line.startswith("Rss"))
    return sum(int(found.get(key, "0 kB").split()[0]) << 10 for key in ("RssAnon", "RssShmem"))


@pytest.fixture
def limited(tmp_path: Path) -> Iterator[Limited]:
    """Run streamsvm in a group of LIMIT bytes; its peak anonymous memory."""
    if not os.access(GROUPS, os.W_OK) or not (GROUPS / "memory.limit_in_bytes").exists():
        pytest.skip("there is no control group (v1) that may be changed here")
    group = GROUPS / f"streamsvm-test-{os.getpid()}"
    group.mkdir()
    (group / "memory.limit_in_bytes").write_text(str(LIMIT))

    def run(*arguments: object) -> int:
        command = [sys.executable, "-m", "streamsvm", "-q", *map(str, arguments), "--memory", str(PROMISE)]
        join = ["/bin/sh", "-c", 'echo $$ > "$0/cgroup.procs" && exec "$@"', str(group), *command]
        environment = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
        with subprocess.Popen(
            join, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
        ) as process:
            peak = 0
            while process.poll() is None:
                peak = max(peak, anonymous(process.pid))
                time.sleep(0.02)
            assert process.stderr is not None
            assert process.returncode == 0, process.stderr.read()
        kills = dict(line.split() for line in (group / "memory.oom_control").read_text().splitlines())
        assert int(kills.get("oom_kill", 0)) == 0
        return peak

    yield run
    group.rmdir()


def test_memory_fit_of_four_times_the_limit(limited: Limited, tmp_path: Path) -> None:
    store = stored(tmp_path / "s.zarr", 4 * LIMIT, chunk_bytes=4 << 20)
    assert open_store(store).layout.bytes_per_pass > 3.9 * LIMIT
    os.sync()
    Path("/proc/sys/vm/drop_caches").write_text("3")  # else the pages are somebody else's, and the test tests nothing
    assert limited("fit", store, tmp_path / "m", "--loss", "hinge", "--max-passes", "1") <= PROMISE
