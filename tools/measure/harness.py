"""What the benchmarks share: timing side by side, a table, JSON, and what machine it was.

Benchmarks are run from the repository root, for example ``python -m tools.bench.linear --help``; with an editable install
``python tools/bench/linear.py`` does the same.
"""

from __future__ import annotations

import argparse
import gzip
import json
import lzma
import os
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parents[2]
DATA = Path(os.environ.get("STREAMSVM_DATA", REPOSITORY.parent / "shared" / "data"))
SAMPLE_SECONDS = 0.05

Row = dict[str, Any]


def arguments(description: str | None, **defaults: Any) -> argparse.Namespace:
    """Options of a benchmark: ``--json`` and one for each default, of the default's type."""
    parser = argparse.ArgumentParser(description=(description or "").split("\n")[0])
    parser.add_argument("--json", type=Path, help="write the figures there too")
    for name, default in defaults.items():
        parser.add_argument(f"--{name.replace('_', '-')}", type=type(default), default=default, help=f"[{default}]")
    return parser.parse_args()


def hardware() -> str:
    """One line: processor, cores, memory, versions."""
    cpu = next((x.split(":")[1].strip() for x in _lines("/proc/cpuinfo") if x.startswith("model name")), "?")
    kib = next((int(x.split()[1]) for x in _lines("/proc/meminfo") if x.startswith("MemTotal")), 0)
    from importlib.metadata import version

    packages = ", ".join(f"{p} {version(p)}" for p in ("numpy", "numba", "scikit-learn"))
    cores = len(os.sched_getaffinity(0))
    load = os.getloadavg()[0]
    return f"{cpu}, {cores} cores, {kib >> 20} GiB, load {load:.1f}; Python {platform.python_version()}, {packages}"


def _lines(path: str) -> list[str]:
    try:
        return Path(path).read_text().splitlines()
    except OSError:
        return []


def show(title: str, rows: list[Row], options: argparse.Namespace) -> None:
    """Print the table with the machine under it, and write JSON if asked."""
    machine = hardware()
    print(f"\n{title}")
    print_table(rows)
    print(machine)
    if options.json:
        settings = {k: str(v) for k, v in vars(options).items()}
        options.json.write_text(
            json.dumps({"title": title, "hardware": machine, "settings": settings, "rows": rows}, indent=2)
        )


def print_table(rows: list[Row]) -> None:
    """One line a row, the columns in the order in which they are met."""
    names = list(dict.fromkeys(key for row in rows for key in row))
    cells = [names, *([_cell(row.get(n)) for n in names] for row in rows)]
    widths = [max(len(line[j]) for line in cells) for j in range(len(names))]
    for k, line in enumerate(cells):
        print(
            "  ".join(
                text.rjust(width) if j else text.ljust(width)
                for j, (text, width) in enumerate(zip(line, widths, strict=True))
            )
        )
        if k == 0:
            print("  ".join("-" * width for width in widths))


def _cell(value: Any) -> str:
    if value is None:
        return "-"
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def interleaved(
    contestants: dict[str, Callable[[], Any]], repeats: int, before: Callable[[], Any] | None = None
) -> dict[str, float]:
    """Median wall seconds of each, run in turn so that a busy moment of the machine hits them alike.

    ``before`` is called, untimed, before each run. One untimed round comes first.
    """
    taken: dict[str, list[float]] = {name: [] for name in contestants}
    for repeat in range(repeats + 1):
        for name, run in contestants.items():
            if before:
                before()
            began = time.perf_counter()
            run()
            if repeat:
                taken[name].append(time.perf_counter() - began)
    return {name: statistics.median(seconds) for name, seconds in taken.items()}


def evict(paths: list[Path]) -> None:
    """Drop files from the page cache."""
    for path in paths:
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(descriptor)


@contextmanager
def scratch() -> Iterator[Path]:
    """A directory on disk for the length of a benchmark; $STREAMSVM_SCRATCH says where."""
    with tempfile.TemporaryDirectory(prefix="streamsvm-bench-", dir=os.environ.get("STREAMSVM_SCRATCH")) as path:
        yield Path(path)


def unpacked(name: str, directory: Path) -> Path:
    """A file of the data folder, uncompressed. Ends the benchmark when it is not there."""
    source = DATA / name
    if not source.exists():
        sys.exit(f"{source} does not exist: this benchmark needs the real data (set STREAMSVM_DATA)")
    target = directory / source.stem
    opener: Any = {".gz": gzip.open, ".xz": lzma.open}[source.suffix]
    with opener(source, "rb") as packed, open(target, "wb") as plain:
        shutil.copyfileobj(packed, plain, 1 << 20)
    return target


def in_child(script: str, *arguments: str, limit: float = float("inf")) -> Row:
    """Run Python code in a process of its own; it prints JSON last. Adds its peak anonymous memory in MiB.

    After ``limit`` seconds it is ended, and the row says so in place of figures.
    """
    command = [sys.executable, "-c", script, *arguments]
    environment = os.environ | {"PYTHONPATH": str(REPOSITORY), "OMP_NUM_THREADS": "1"}
    child = subprocess.Popen(command, stdout=subprocess.PIPE, env=environment, text=True)
    peak, began = 0, time.monotonic()
    while child.poll() is None:
        peak = max(peak, anonymous_bytes(child.pid))
        time.sleep(SAMPLE_SECONDS)
        if time.monotonic() - began > limit:
            child.kill()
            child.wait()
            return {"ended": f"after {limit:g} s", "peak MiB": round(peak / 2**20)}
    printed = child.stdout.read() if child.stdout else ""
    if child.returncode:
        sys.exit(f"the process of a contestant failed with {child.returncode}")
    return json.loads(printed.splitlines()[-1]) | {"peak MiB": round(peak / 2**20)}


def anonymous_bytes(pid: int) -> int:
    """Anonymous memory of a process now; 0 when it is gone."""
    fields = [x.split() for x in _lines(f"/proc/{pid}/status") if x.startswith(("RssAnon", "RssShmem"))]
    return sum(int(f[1]) * 1024 for f in fields)
