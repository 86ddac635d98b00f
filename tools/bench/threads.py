"""Jobs on one thread and on several, by turns: wall clock and CPU seconds of the job alone, and their ratios.

Each run is a process of its own in which the job has been made once on a small store, so that packages and compiled code are
loaded; then it is timed on the large one. The fastest of --repeats counts. --cases chooses some of the jobs below.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from argparse import Namespace
from pathlib import Path
from typing import Any, NamedTuple

from streamsvm.jobs.common_options import SynthJob
from streamsvm.jobs.synth import synth
from tools.measure.datasets import load, stored
from tools.measure.harness import REPOSITORY, Row, arguments, scratch, show

RBF: dict[str, Any] = {"kernel": "rbf", "gamma": 0.02}
SMALL_ROWS = 3_000
RUN = """
import json, os, sys, time
import streamsvm as sv
name, small, large, settings = json.loads(sys.argv[1])
call = getattr(sv, name)
call(*small, **settings)
wall, cpu = time.perf_counter(), os.times()
call(*large, **settings)
wall, after = time.perf_counter() - wall, os.times()
print(json.dumps({"wall": wall, "cpu": after.user + after.system - cpu.user - cpu.system}))
"""


class Case(NamedTuple):
    """A job that is timed."""

    command: str
    """A function of ``streamsvm``."""
    source: str
    """What it reads: a store or a file in the benchmark's folder, its small kin has ``small-`` before the name."""
    settings: dict[str, Any]
    """Its other options."""
    model: bool = False
    """Whether it applies a model, made before from the same source."""


CASES = {
    "newton": Case("fit", "susy.zarr", {"solver": "newton", "tolerance": 1e-3}),
    "nystrom on the fly": Case("fit", "part.zarr", {**RBF, "solver": "newton", "landmarks": 1000, "embedding": "fly"}),
    "decomposition": Case("fit", "covtype.zarr", {"solver": "decomposition", "kernel": "rbf", "gamma": 0.1, "C": 10.0}),
    "predict": Case("predict", "susy.zarr", {"output": "decision"}, model=True),
    "evaluate": Case("evaluate", "susy.zarr", {}, model=True),
    "embed int8": Case("embed", "part.zarr", {**RBF, "landmarks": 1000, "dtype": "int8"}),
    "ingest svmlight": Case("ingest", "susy.svm", {"format": "svmlight"}),
}
OUTPUTS = {"fit": "out.ssvm", "predict": "out.npy", "embed": "features.zarr", "ingest": "out.zarr"}


PREFIXES = {"small-": 0.0, "": 1.0}
"""Of names of what is read, and the share of its rows that is made."""


def prepared(folder: Path, chosen: list[str], options: Namespace) -> None:
    """Make what the jobs read."""
    sources = {CASES[name].source for name in chosen}
    covtype = load("covtype", folder) if "covtype.zarr" in sources else None
    for prefix, share in PREFIXES.items():
        for name, rows in (("susy", options.rows), ("part", options.part)):
            synth(SynthJob("susy", str(folder / f"{prefix}{name}.zarr"), rows=max(SMALL_ROWS, int(share * rows))))
        if covtype is not None:
            rows = max(SMALL_ROWS, int(share * options.kernel_rows))
            stored(covtype._replace(X=covtype.X[:rows], y=covtype.y[:rows]), folder / f"{prefix}covtype.zarr")
        if "susy.svm" in sources:
            write_svmlight(folder / f"{prefix}part.zarr", folder / f"{prefix}susy.svm")
    if any(CASES[name].model for name in chosen):
        timed(Case("fit", "susy.zarr", {"solver": "newton"}), folder, 1)
        for prefix in PREFIXES:
            (folder / f"{prefix}out.ssvm").rename(folder / f"{prefix}model.ssvm")


def write_svmlight(store: Path, target: Path) -> None:
    """The rows of a store as svmlight text."""
    from streamsvm.store import open_store, read_chunk

    opened = open_store(store)
    buffers = opened.buffers()
    with target.open("w") as file:
        for number in range(len(opened.layout.chunks)):
            chunk = read_chunk(opened, number, buffers)
            for code, row in zip(chunk.codes, chunk.X.values, strict=True):
                file.write(f"{2 * code - 1:d} " + " ".join(f"{j}:{x:.6g}" for j, x in enumerate(row, 1)) + "\n")


def arguments_of(case: Case, folder: Path, prefix: str) -> list[str]:
    """The names a job is given."""
    source, out = str(folder / f"{prefix}{case.source}"), OUTPUTS.get(case.command)
    model = [str(folder / f"{prefix}model.ssvm")] if case.model else []
    return [*model, source, *([str(folder / f"{prefix}{out}")] if out else [])]


def timed(case: Case, folder: Path, threads: int) -> dict[str, float]:
    """Wall clock and CPU seconds of one run in a process of its own."""
    settings = case.settings | {"threads": threads}
    if case.command in OUTPUTS:
        settings["overwrite"] = True
        for prefix in PREFIXES:  # an embedding that is there already is not made again
            shutil.rmtree(folder / f"{prefix}{OUTPUTS[case.command]}", ignore_errors=True)
    names = [arguments_of(case, folder, prefix) for prefix in PREFIXES]
    command = [sys.executable, "-c", RUN, json.dumps([case.command, *names, settings])]
    ran = subprocess.run(
        command, env=os.environ | {"PYTHONPATH": str(REPOSITORY)}, cwd=REPOSITORY, check=True, stdout=subprocess.PIPE
    )
    found: dict[str, float] = json.loads(ran.stdout.splitlines()[-1])
    return found


def raced(name: str, case: Case, folder: Path, options: Namespace) -> Row:
    """One case, all numbers of threads by turns."""
    counts = [int(count) for count in options.threads.split(",")]
    best: dict[int, dict[str, float]] = {}
    for _ in range(options.repeats):
        for count in counts:
            found = timed(case, folder, count)
            best[count] = min(best.get(count, found), found, key=lambda one: one["wall"])
    row: Row = {"job": name}
    for count, found in best.items():
        row |= {f"wall s, {count}": found["wall"], f"CPU s, {count}": found["cpu"]}
    return row | {f"faster on {count}": best[counts[0]]["wall"] / best[count]["wall"] for count in counts[1:]}


def main() -> None:
    """Run the cases."""
    options = arguments(__doc__, rows=5_000_000, part=200_000, kernel_rows=100_000, threads="1,2", repeats=3, cases="")
    chosen = [name for name in options.cases.split(",") if name] or list(CASES)
    with scratch() as folder:
        prepared(folder, chosen, options)
        rows = [raced(name, CASES[name], folder, options) for name in chosen]
    show(f"threads: susy {options.rows} x 18, {options.part} rows where features or text are made", rows, options)


if __name__ == "__main__":
    main()
