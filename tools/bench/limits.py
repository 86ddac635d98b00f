"""Every solver on one and two threads within a control group of its ``--memory``: kills, and the peak that is printed beside what was seen.

python -m tools.bench.limits [--memory 256] [--rows 1000000] [--kernel-rows 8000] [--threads 1,2] [--solvers newton,dcd]

A group's limit includes the page cache; without control groups nothing is enforced, and peaks are still compared. What was seen are the
anonymous bytes of the process and its children, 20 times a second. Solvers that hold all rows have a fifth of them. Exits 1 where
a run failed, was killed, held more than its limit, or another amount than was printed, by more than 2 %.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from streamsvm.jobs.synth.options import SynthJob
from streamsvm.jobs.synth.run import synth
from streamsvm.solvers import SOLVERS
from tools.bench.memory import limited
from tools.measure.harness import Row, arguments, scratch, show

NYSTROM = ["--kernel", "rbf", "--gamma", "0.02", "--landmarks", "300"]
"""Of further runs: features on the fly and on disk."""
EXTRA = {"newton, on the fly": ["--embedding", "fly"], "newton, on disk": ["--embedding", "disk"]}
OWN = {"sgd": ["--loss", "hinge"], "sgd_qn": ["--loss", "hinge"]}
"""What solvers need that do not take the default loss."""
ALL_ROWS = {"active_set": "rows-fifth.zarr", "kernel_active_set": "few-fifth.zarr"}
"""The stores of solvers that hold all rows, or matrices of all."""
OFF = 0.02
"""By how much the peak that is printed may be off, as a share."""


def commands(names: list[str]) -> dict[str, list[str]]:
    """The options of each run, by its name."""
    found = {}
    for name in names:
        exact = SOLVERS[name]().exact_kernel
        found[name] = ["--solver", name, *OWN.get(name, []), *(["--kernel", "rbf", "--gamma", "0.02"] if exact else [])]
    if "newton" in names:
        found |= {name: ["--solver", "newton", *NYSTROM, *more] for name, more in EXTRA.items()}
    return found


def one_run(folder: Path, store: str, given: list[str], memory: int, threads: int) -> Row:
    """One fit within its limit: what was seen, and what it said."""
    model = folder / "model.ssvm"
    options = [*given, "--memory", f"{memory}MiB", "--threads", str(threads), "--max-passes", "12", "--overwrite"]
    command = [sys.executable, "-m", "streamsvm", "--quiet", "fit", str(folder / store), str(model), *options]
    seen = limited(command, memory)
    row: Row = {
        "threads": threads,
        "rc": seen["rc"],
        "s": seen["seconds"],
        "kills": seen["oom kills"],
        "seen MiB": seen["peak anon MiB"],
    }
    events = Path(f"{model}.run") / "events.jsonl"
    if seen["rc"] == 0:
        done = [json.loads(line) for line in events.read_text().splitlines() if '"done"' in line][-1]
        row |= {
            "printed MiB": round(done["peak"] / 2**20, 1),
            "seen / printed": round(seen["peak anon MiB"] * 2**20 / done["peak"], 3),
        }
    return row


def main() -> int:
    """Run all of them."""
    options = arguments(__doc__, memory=256, rows=1_000_000, kernel_rows=8_000, threads="1,2", solvers="")
    names = [name for name in options.solvers.split(",") if name] or list(SOLVERS)
    rows: list[Row] = []
    with scratch() as folder:
        for store, count in (("rows", options.rows), ("few", options.kernel_rows)):
            synth(SynthJob("susy", str(folder / f"{store}.zarr"), rows=count))
            synth(SynthJob("susy", str(folder / f"{store}-fifth.zarr"), rows=count // 5))
        for name, given in commands(names).items():
            exact = "--kernel" in given and "--landmarks" not in given
            store = ALL_ROWS.get(name, "few.zarr" if exact else "rows.zarr")
            for threads in options.threads.split(","):
                row = {"run": name} | one_run(folder, store, given, options.memory, int(threads))
                print(json.dumps(row), flush=True)
                rows.append(row)
    show(f"limits: {options.memory} MiB, {options.rows} x 18, exact kernels {options.kernel_rows}", rows, options)
    return int(any(failed(row, options.memory) for row in rows))


def failed(row: Row, memory: int) -> bool:
    """Whether a run is not as it should be."""
    killed = row["kills"] not in {"0", "no control group: sampled only"}
    off = abs(row.get("seen / printed", 1.0) - 1.0) > OFF
    return bool(row["rc"] != 0 or killed or off or row["seen MiB"] > memory)


if __name__ == "__main__":
    sys.exit(main())
