"""A resumed fit stays within its plan, and what was freed on the way goes back to the system."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import streamsvm as sv
from streamsvm.solvers import SOLVERS

KERNEL = {"decomposition", "kernel_active_set", "blended", "fw", "mfw", "swap", "partan"}
LOSS = {
    "mpu": "hinge",
    "active_set": "hinge",
    "interior_point": "hinge",
    "decomposition": "hinge",
    "sgd": "hinge",
    "sgd_qn": "hinge",
}


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
store, model, options = sys.argv[1], sys.argv[2], json.loads(sys.argv[3])
sv.fit(store, "warm.ssvm", max_passes=2, **options)  # what is compiled is compiled
options |= {"max_passes": 3, "memory": sv.plan(store, max_passes=3, **options).memory.total + (1 << 20)}
try:
    sv.fit(store, model, on_pass=lambda _: os.kill(os.getpid(), signal.SIGINT), **options)
except sv.InterruptedRun:
    found = sv.fit(store, model, resume=True, **options)
    print(found.training.passes, found.training.peak, found.plan.memory.limit)
"""


@pytest.mark.parametrize("solver", sorted(SOLVERS))
def test_resume_resumed_fit_stays_within_its_plan(store: str, few: str, tmp_path: Path, solver: str) -> None:
    """In a process of its own, whose memory is that of the fit."""
    options: Any = {"solver": solver, "tolerance": 1e-10, "threads": 2}
    options |= {"kernel": "rbf"} if solver in KERNEL else {}
    options |= {"loss": LOSS[solver]} if solver in LOSS else {}
    rows = few if solver in KERNEL | {"active_set"} else store
    command = [sys.executable, "-c", RESUMED, rows, "m.ssvm", json.dumps(options)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    passes, peak, limit = map(int, done.stdout.split())
    assert passes >= 1
    assert peak <= limit


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
def test_resume_large_blocks_go_back_to_the_system_whatever_was_freed_before(store: str) -> None:
    """20 blocks of 8 MiB after one of 24 MiB, which would have the C library keep them."""
    names = ("MALLOC_MMAP_THRESHOLD_", "MALLOC_TRIM_THRESHOLD_", "GLIBC_TUNABLES")
    environment = {name: value for name, value in os.environ.items() if name not in names}
    command = [sys.executable, "-c", FREED, store]
    ran = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
    assert int(ran.stdout) > 140
