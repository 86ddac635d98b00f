"""Whether --time-limit ends every kind of run in time: python -m tools.measure.time_limits [--only WORD] [--first 0] [--count 999].

Each setting is a process of its own, as a user starts it, with a limit of --limit seconds, on data that takes it much longer: every solver
with every loss it takes, kernels on rows, landmarks made in passes and on disk, 5,000 of them too, a search and an embedding. Shown
are seconds by the clock, those of the processor, and what the run would take on a core of its own: processor seconds until
the job began, the limit, and processor seconds after it. A setting that takes more than --most of these is late: exit code 1.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from streamsvm.losses import LOSSES
from streamsvm.solvers import SOLVERS
from tools.measure.harness import REPOSITORY, Row, arguments, scratch, show

STORES = {
    "dense": ("synth", "susy", "--rows", "500000"),
    "table": ("synth", "table", "--rows", "200000", "--columns", "20000"),
}
TICK = os.sysconf("SC_CLK_TCK")
POLL = 0.02


class Setting(NamedTuple):
    """One run."""

    name: str
    words: tuple[str, ...]
    """The command but for its limit; STORE and OUT stand for places."""


def settings() -> Iterator[Setting]:
    """Every kind of run."""
    for name, kind in SOLVERS.items():
        solver: Any = kind()
        rows = ("dense", "OUT", "--kernel", "rbf") if solver.exact_kernel else ("table", "OUT")
        for loss in LOSSES:  # the stores have classes
            if solver.losses.refusal(LOSSES[loss]()) is None and not LOSSES[loss]().numeric():
                yield Setting(f"{name} {loss}", ("fit", *rows, "--solver", name, "--loss", loss))
    for kernel in ("laplacian", "polynomial", "sigmoid"):
        yield Setting(f"decomposition {kernel}", ("fit", "dense", "OUT", "--kernel", kernel))
    for where in ("fly", "disk"):
        for count in ("300", "5000"):
            for solver in ("newton", "dcd"):
                features = ("--kernel", "rbf", "--landmarks", count, "--embedding", where, "--memory", "8GiB")
                yield Setting(
                    f"{count} landmarks {where} {solver}", ("fit", "dense", "OUT", "--solver", solver, *features)
                )
    yield Setting("standardized", ("fit", "table", "OUT", "--standardize", "--standardize-all"))
    table = ("fit", "table", "OUT", "--solver", "newton", "--calibrate", "sigmoid")
    yield Setting("calibrated by folds", (*table, "--calibration-folds", "50"))
    yield Setting("calibrated kernel", ("fit", "dense", "OUT", "--kernel", "rbf", "--calibrate", "sigmoid"))
    yield Setting("stop at the limit", ("fit", "table", "OUT", "--at-limit", "stop", "--solver", "dcd"))
    yield Setting("tune linear", ("tune", "table", "OUT", "--kernel", "linear", "--C", "1,10,100"))
    yield Setting("tune 1000 landmarks", ("tune", "dense", "OUT", "--landmarks", "1000"))
    yield Setting("embed 1000 landmarks", ("embed", "dense", "OUT", "--landmarks", "1000"))
    yield Setting("embed 5000 landmarks", ("embed", "dense", "OUT", "--landmarks", "5000", "--memory", "8GiB"))


def processor_seconds(pid: int) -> float:
    """What a process has had of the processor so far; 0 when it is gone."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rsplit(") ", 1)[1].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / TICK


def run(setting: Setting, stores: dict[str, Path], out: Path, limit: float) -> Row:
    """What a setting took, and how it ended."""
    words = [str(stores.get(word, out if word == "OUT" else word)) for word in setting.words]
    command = [sys.executable, "-m", "streamsvm", *words, "--time-limit", f"{limit:g}s", "--overwrite", "--json"]
    environment = os.environ | {"PYTHONPATH": str(REPOSITORY)}
    began = time.perf_counter()
    child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)
    events: list[tuple[float, dict[str, Any]]] = []
    assert child.stdout is not None

    def listen(lines: Any) -> None:
        events.extend((time.perf_counter(), json.loads(line)) for line in lines if line.startswith("{"))

    listener = threading.Thread(target=listen, args=(child.stdout,))
    listener.start()
    seen = [(began, 0.0)]
    while child.poll() is None:
        seen.append((time.perf_counter(), processor_seconds(child.pid) or seen[-1][1]))
        time.sleep(POLL)
    listener.join()
    first, cpu = events[0][0] if events else began, seen[-1][1]
    start, at_limit = (max(c for t, c in seen if t <= moment) for moment in (first, first + limit))
    ended = [event for _, event in events if event["event"] in {"done", "error"}]
    status = ended[-1].get("status", ended[-1].get("code")) if ended else "-"
    row = {"s": time.perf_counter() - began, "CPU s": cpu, "own core s": start + limit + cpu - at_limit}
    return {"setting": setting.name, **row, "exit": child.returncode, "status": status}


def main() -> None:
    options = arguments(__doc__, limit=5.0, most=10.0, only="", first=0, count=999, folder="")
    rows: list[Row] = []
    with scratch() as directory:
        folder = Path(options.folder) if options.folder else directory
        stores = {name: folder / f"{name}.zarr" for name in STORES}
        for name, words in STORES.items():
            if not stores[name].exists():
                made = [sys.executable, "-m", "streamsvm", *words, str(stores[name])]
                subprocess.run(made, check=True, capture_output=True, env=os.environ | {"PYTHONPATH": str(REPOSITORY)})
        chosen = [one for one in settings() if options.only in one.name][options.first : options.first + options.count]
        for number, setting in enumerate(chosen):
            rows.append(run(setting, stores, directory / f"out{number}", options.limit))
            print(rows[-1], flush=True)
    show(f"runs with --time-limit {options.limit:g}s", rows, options)
    sys.exit(any(row["own core s"] > options.most for row in rows))


if __name__ == "__main__":
    main()
