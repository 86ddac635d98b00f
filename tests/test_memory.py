"""The promise about memory, measured from outside: a fit in a process of its own, watched while it runs."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

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


def watched(*arguments: object) -> Watched:
    command = [sys.executable, "-m", "streamsvm", *map(str, arguments)]
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
def test_rows_kept_in_memory_are_in_the_plan(
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
