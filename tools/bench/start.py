"""A fit of 1,000 rows from the command line, with all compiled passes in the cache: wall clock and CPU seconds of the whole process.

python -m tools.bench.start [--repeats 7] [--rows 1000]

Beside it an interpreter that does nothing, one that imports numpy, and one that imports numba: what no fit can be faster than. The
first run, which may compile, is not counted; the fastest of the others is.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time

from streamsvm.jobs.synth.options import SynthJob
from streamsvm.jobs.synth.run import synth
from tools.measure.harness import REPOSITORY, Row, arguments, scratch, show


def timed(command: list[str]) -> tuple[float, float]:
    """Wall clock and CPU seconds of one process."""
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    before, began = os.times(), time.perf_counter()
    subprocess.run(command, env=environment, cwd=REPOSITORY, check=True, capture_output=True)
    wall, after = time.perf_counter() - began, os.times()
    spent = after.children_user + after.children_system - before.children_user - before.children_system
    return wall, spent


def main() -> None:
    """Time all of them by turns."""
    options = arguments(__doc__, repeats=7, rows=1_000)
    with scratch() as folder:
        store, model = str(folder / "s.zarr"), str(folder / "m.ssvm")
        synth(SynthJob("susy", store, rows=options.rows))
        commands = {
            "python": ["-c", "pass"],
            "numpy": ["-c", "import numpy"],
            "numba": ["-c", "import numba"],
            "fit": ["-m", "streamsvm", "fit", store, model, "--overwrite"],
        }
        found: dict[str, list[tuple[float, float]]] = {name: [] for name in commands}
        for _ in range(options.repeats + 1):
            for name, command in commands.items():
                found[name].append(timed([sys.executable, *command]))
    rows: list[Row] = [
        {"process": name, "wall s": min(wall for wall, _ in runs[1:]), "CPU s": min(cpu for _, cpu in runs[1:])}
        for name, runs in found.items()
    ]
    show(f"start: a fit of {options.rows} rows", rows, options)


if __name__ == "__main__":
    main()
