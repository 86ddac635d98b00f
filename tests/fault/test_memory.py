"""Data four times the limit of a control group: nothing is killed, and the process keeps its promise."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from streamsvm.store import open_store
from tests.test_memory import stored

REPOSITORY = Path(__file__).resolve().parents[2]
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
