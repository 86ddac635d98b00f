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

from harness import SAMPLE_SECONDS, Row, anonymous_bytes, hardware

GROUPS = Path("/sys/fs/cgroup/memory")


def with_children(pid: int) -> list[int]:
    """A process and all that descend from it."""
    try:
        direct = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except OSError:
        return [pid]
    return [pid, *(p for child in direct for p in with_children(int(child)))]


def watch(child: subprocess.Popen[bytes]) -> Row:
    """Wait for a process; its peak anonymous memory, with its children's."""
    peak, began = 0, time.perf_counter()
    while child.poll() is None:
        peak = max(peak, sum(anonymous_bytes(pid) for pid in with_children(child.pid)))
        time.sleep(SAMPLE_SECONDS)
    return {
        "rc": child.returncode,
        "seconds": round(time.perf_counter() - began, 2),
        "peak anon MiB": round(peak / 2**20, 1),
    }


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


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--limit-mib", type=int, default=256)
    parser.add_argument("--json", type=Path)
    parser.add_argument("command", nargs=argparse.REMAINDER)
    options = parser.parse_args()
    command = options.command[1:] if options.command[:1] == ["--"] else options.command
    if os.access(GROUPS, os.W_OK) and (GROUPS / "memory.limit_in_bytes").exists():
        row = in_group(command, options.limit_mib << 20)
    else:
        row = watch(subprocess.Popen(command)) | {"oom kills": "no control group: sampled only"}
    print(f"memory: {' '.join(command)}")
    print("  ".join(f"{name} {value}" for name, value in row.items()))
    print(hardware())
    if options.json:
        options.json.write_text(json.dumps({"command": command, "hardware": hardware(), "row": row}, indent=2))
    return int(row["rc"])


if __name__ == "__main__":
    sys.exit(main())
