"""Run a command under a memory limit and tell its peak: python memory.py --limit-mib 256 -- streamsvm fit ...

A memory control group (v1) where one can be made: the limit is the kernel's, page cache included. Elsewhere the
anonymous memory of the process and its children is sampled 20 times a second and nothing is enforced.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
from scipy.stats import theilslopes

from tools.measure.harness import SAMPLE_SECONDS, Row, anonymous_bytes, hardware

GROUPS = Path("/sys/fs/cgroup/memory")
MOST_SAMPLES = 600


def with_children(pid: int) -> list[int]:
    """A process and all that descend from it."""
    try:
        direct = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except OSError:
        return [pid]
    return [pid, *(p for child in direct for p in with_children(int(child)))]


def watch(child: subprocess.Popen[bytes]) -> Row:
    """Wait for a process; its peak anonymous memory, with its children's, and how it rises."""
    samples, began = [(0.0, 0.0)], time.perf_counter()
    while child.poll() is None:
        held = sum(anonymous_bytes(pid) for pid in with_children(child.pid))
        samples.append((time.perf_counter() - began, held / 2**20))
        time.sleep(SAMPLE_SECONDS)
    return {
        "rc": child.returncode,
        "seconds": round(time.perf_counter() - began, 2),
        "peak anon MiB": round(max(held for _, held in samples), 1),
        "rise MiB": round(rise(samples), 2),
    }


def rise(samples: list[tuple[float, float]]) -> float:
    """MiB by which memory would grow over a whole run, by a line through what was measured in its last 60 %.

    The last samples, of a process that is giving everything back, are left out. The slope is the median of those of all
    pairs of samples: one step, such as into the checksums that end a job, is no rise.
    """
    seconds, held = np.array(samples).T
    late = (seconds > 0.4 * seconds[-1]) & (seconds < 0.98 * seconds[-1]) & (held > 0)
    if late.sum() < 3:
        return 0.0
    every = -(-int(late.sum()) // MOST_SAMPLES)
    return float(theilslopes(held[late][::every], seconds[late][::every])[0] * seconds[-1])


def in_group(command: list[str], limit: int) -> Row:
    """Run in a new control group of ``limit`` bytes."""
    group = GROUPS / f"streamsvm-bench-{os.getpid()}"
    group.mkdir()
    try:
        (group / "memory.limit_in_bytes").write_text(str(limit))
        join = 'echo $$ > "$0/cgroup.procs" && exec "$@"'
        row = watch(subprocess.Popen(["/bin/sh", "-c", join, str(group), *command]))
        read = {
            name: (group / f"memory.{name}").read_text() for name in ("max_usage_in_bytes", "failcnt", "oom_control")
        }
        kills = dict(line.split() for line in read["oom_control"].splitlines()).get("oom_kill", "?")
        row |= {"group peak MiB": round(int(read["max_usage_in_bytes"]) / 2**20, 1), "limit hits": int(read["failcnt"])}
        return row | {"oom kills": kills, "limit MiB": limit >> 20}
    finally:
        group.rmdir()


def limited(command: list[str], mib: int) -> Row:
    """Run below ``mib`` MiB where the kernel can enforce it; the figures."""
    if os.access(GROUPS, os.W_OK) and (GROUPS / "memory.limit_in_bytes").exists():
        return in_group(command, mib << 20)
    return watch(subprocess.Popen(command)) | {"oom kills": "no control group: sampled only"}


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--limit-mib", type=int, default=256)
    parser.add_argument("--json", type=Path)
    parser.add_argument("command", nargs=argparse.REMAINDER)
    options = parser.parse_args()
    command = options.command[1:] if options.command[:1] == ["--"] else options.command
    row = limited(command, options.limit_mib)
    print(f"memory: {' '.join(command)}")
    print("  ".join(f"{name} {value}" for name, value in row.items()))
    print(hardware())
    if options.json:
        options.json.write_text(json.dumps({"command": command, "hardware": hardware(), "row": row}, indent=2))
    return int(row["rc"])


if __name__ == "__main__":
    sys.exit(main())
