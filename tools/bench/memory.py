"""Whether jobs keep to the memory they are given: python -m tools.bench.memory WHAT [options].

``run --limit-mib 256 -- streamsvm fit ...``: a command below a limit, and its peak.
``solvers``: every solver on one and two threads, features on the fly and on disk, within a control group of its ``--memory``: kills,
and the peak that is printed beside what was seen. Solvers that hold all rows have a fifth of them.
``wide``: tables of many columns are ingested with too little memory, which is refused with what would do, and then with that.
``resumed``: eight kinds of fit are killed (SIGKILL) at a moment that is drawn from the time they take uninterrupted, and resumed below
their memory limit: whether memory was above it, and whether the model has the bits of the uninterrupted one.

A limit is that of a memory control group (v1), page cache included, where one can be made. Elsewhere nothing is enforced; what was seen
are the anonymous bytes of the process and its children, 20 times a second. Exits 1 where something is not as it should be.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import random
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import theilslopes

import streamsvm as sv
from streamsvm.jobs.common_options import SynthJob
from streamsvm.jobs.synth import synth
from streamsvm.solvers import SOLVERS
from tools.measure.harness import SAMPLE_SECONDS, Row, anonymous_bytes, hardware, print_table, scratch

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


def run(options: argparse.Namespace) -> bool:
    """A command below the limit."""
    command = options.command[1:] if options.command[:1] == ["--"] else options.command
    row = limited(command, options.limit_mib)
    print(f"memory: {' '.join(command)}")
    print("  ".join(f"{name} {value}" for name, value in row.items()))
    return row["rc"] == 0


# -- solvers -----------------------------------------------------------------------------------------------------------

NYSTROM = ["--kernel", "rbf", "--gamma", "0.02", "--landmarks", "300"]
"""Of further runs: features on the fly and on disk."""
EXTRA = {"newton, on the fly": ["--embedding", "fly"], "newton, on disk": ["--embedding", "disk"]}
OWN = {"sgd": ["--loss", "hinge"], "sgd_qn": ["--loss", "hinge"]}
"""What solvers need that do not take the default loss."""
ALL_ROWS = {"active_set": "rows-fifth.zarr", "kernel_active_set": "few-fifth.zarr"}
"""The stores of solvers that hold all rows, or matrices of all."""
OFF = 0.02
"""By how much the peak that is printed may be off, as a share."""


def fit_options(names: list[str]) -> dict[str, list[str]]:
    """The options of each run, by its name."""
    found = {}
    for name in names:
        exact = SOLVERS[name]().exact_kernel
        found[name] = ["--solver", name, *OWN.get(name, []), *(["--kernel", "rbf", "--gamma", "0.02"] if exact else [])]
    if "newton" in names:
        found |= {name: ["--solver", "newton", *NYSTROM, *more] for name, more in EXTRA.items()}
    return found


def fit_within(folder: Path, store: str, given: list[str], memory: int, threads: int) -> Row:
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


def solvers(options: argparse.Namespace) -> bool:
    """Every solver within its limit."""
    names = [name for name in options.solvers.split(",") if name] or list(SOLVERS)
    rows: list[Row] = []
    with scratch() as folder:
        for store, count in (("rows", options.rows), ("few", options.kernel_rows)):
            synth(SynthJob("susy", str(folder / f"{store}.zarr"), rows=count))
            synth(SynthJob("susy", str(folder / f"{store}-fifth.zarr"), rows=count // 5))
        for name, given in fit_options(names).items():
            exact = "--kernel" in given and "--landmarks" not in given
            store = ALL_ROWS.get(name, "few.zarr" if exact else "rows.zarr")
            for threads in options.threads.split(","):
                rows.append({"run": name} | fit_within(folder, store, given, options.memory, int(threads)))
                print(json.dumps(rows[-1]), flush=True)
    print_table(rows)
    return not any(failed(row, options.memory) for row in rows)


def failed(row: Row, memory: int) -> bool:
    """Whether a run is not as it should be."""
    killed = row["kills"] not in {"0", "no control group: sampled only"}
    off = abs(row.get("seen / printed", 1.0) - 1.0) > OFF
    return bool(row["rc"] != 0 or killed or off or row["seen MiB"] > memory)


# -- wide tables -------------------------------------------------------------------------------------------------------

LITTLE = 190
"""MiB that an ingest can begin with, and no wide table can be read in."""
SLACK = 4
"""MiB by which two processes differ."""


def numbers(rows: int, columns: int) -> tuple[list[str], Any]:
    """Names, and values (rows, columns) of which the first is the label."""
    values = np.random.default_rng(0).normal(size=(rows, columns)).round(3)
    values[:, 0] = np.arange(rows) % 2
    return ["y", *(f"x{j:05d}" for j in range(1, columns))], values


def csv(path: Path, names: list[str], values: Any, _group: int) -> None:
    with open(path, "w", encoding="ascii") as file:
        file.write(",".join(names) + "\n")
        file.writelines(",".join(map(str, row)) + "\n" for row in values.tolist())


def jsonl(path: Path, names: list[str], values: Any, _group: int) -> None:
    with open(path, "w", encoding="ascii") as file:
        file.writelines(json.dumps(dict(zip(names, row, strict=True))) + "\n" for row in values.tolist())


def parquet(path: Path, names: list[str], values: Any, group: int) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    pq.write_table(pa.table(dict(zip(names, values.T, strict=True))), path, row_group_size=group)


FORMS: dict[str, Callable[[Path, list[str], Any, int], None]] = {"csv": csv, "jsonl": jsonl, "parquet": parquet}


def ingested(source: Path, memory: int) -> tuple[Row, str]:
    """Peak and what was said of an ingest with so many MiB."""
    target = source.with_name("s.zarr")
    command = [sys.executable, "-m", "streamsvm", "ingest", str(source), str(target), "--label", "y", "--overwrite"]
    process = subprocess.Popen(
        [*command, "--memory", f"{memory}MiB"], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    )
    row = watch(process)
    assert process.stderr is not None
    return row, process.stderr.read().decode()


def least(source: Path) -> Row:
    """What an ingest of a file is refused with, as often as it is, and what it takes with that."""
    memory, (row, said) = LITTLE, ingested(source, LITTLE)
    while row["rc"] == 78 and (hint := re.search(r"give (\d+)MiB more|use --memory (\d+)MiB", said)):
        memory = (memory + int(hint[1]) if hint[1] else int(hint[2])) + SLACK
        row, said = ingested(source, memory)
    return {"given MiB": memory, **row}


def wide(options: argparse.Namespace) -> bool:
    """Every form of a wide table."""
    names, values = numbers(options.rows, options.columns)
    rows = []
    for form in options.forms.split(","):
        with scratch() as folder:
            source = folder / f"t.{form}"
            FORMS[form](source, names, values, options.group)
            rows.append({"form": form, **least(source)})
    print_table(rows)
    return not any(row["rc"] or row["peak anon MiB"] > row["given MiB"] for row in rows)


# -- killed and resumed ------------------------------------------------------------------------------------------------

LIMIT = 320
"""MiB: --memory of every fit, and the limit of the control group it is resumed in."""
KINDS = {
    "newton hinge": ["--loss", "hinge", "--solver", "newton", "--tolerance", "1e-4"],
    "newton squared hinge": ["--solver", "newton", "--tolerance", "1e-4"],
    "newton logistic": ["--loss", "logistic", "--solver", "newton", "--tolerance", "1e-4"],
    "standardized": ["--loss", "hinge", "--standardize", "--solver", "newton"],
    "interior point": ["--loss", "hinge", "--solver", "interior_point", "--max-passes", "6"],
    "dcd": ["--loss", "hinge", "--solver", "dcd", "--max-passes", "8"],
    "sgd": ["--loss", "hinge", "--solver", "sgd", "--max-passes", "6"],
    "landmarks": ["--kernel", "rbf", "--landmarks", "100", "--embedding", "fly"],
}


def make_store(path: Path, rows: int, columns: int) -> None:
    """Write a store of two classes that overlap."""
    draw = np.random.default_rng(0)
    X = draw.normal(size=(rows, columns)).astype(np.float32)
    y = X @ draw.normal(size=columns) + 3.0 * draw.normal(size=rows) > 0.0
    sv.ingest(X, str(path), y=y.astype(int))


def fit_command(store: Path, model: Path, options: list[str], *, resume: bool = False) -> list[str]:
    """Return the command of a fit that saves a checkpoint as often as it may."""
    command = [sys.executable, "-m", "streamsvm", "-q", "fit", str(store), str(model), *options]
    command += ["--memory", f"{LIMIT}MiB", "--threads", "1", "--checkpoint-every", "0.1s"]
    return command + ["--resume"] * resume


def digest_of(model: Path) -> str:
    """Return the sha256 of a model; nothing where there is none."""
    return hashlib.sha256(model.read_bytes()).hexdigest() if model.is_file() else ""


def kill_and_resume(place: Path, store: Path, options: list[str], moment: float, name: str) -> tuple[str, float, bool]:
    """Return the digest of the resumed model, the most anonymous MiB, and whether a checkpoint was there to resume from."""
    model = place / name
    process = subprocess.Popen(fit_command(store, model, options), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    time.sleep(moment)
    process.kill()
    process.wait()
    resumed = any((place / f"{name}.run" / "checkpoint").glob("ckpt-*"))
    row = limited(fit_command(store, model, options, resume=True), LIMIT)
    over = float(row["peak anon MiB"]) if str(row["oom kills"]) == "0" else float("inf")
    found = digest_of(model)
    shutil.rmtree(place / f"{name}.run", ignore_errors=True)
    return found, over, resumed


def uninterrupted(place: Path, store: Path, options: list[str]) -> tuple[str, float]:
    """Return the digest of the model and the seconds the fit takes, of a second one: the first compiles."""
    model, found = place / "whole.ssvm", ("", 0.0)
    for _ in range(2):
        began = time.monotonic()
        subprocess.run(fit_command(store, model, options), check=True, capture_output=True)
        found = digest_of(model), time.monotonic() - began
        shutil.rmtree(place / "whole.ssvm.run")
        model.unlink()
    return found


def resumed(options: argparse.Namespace) -> bool:
    """Kinds of fit by turns."""
    draw, began, above, differ, made = random.Random(options.seed), time.monotonic(), 0, 0, 0
    with scratch() as place:
        store, whole = place / "s.zarr", dict[str, tuple[str, float]]()
        make_store(store, options.rows, options.columns)
        for number in range(options.kills):
            if time.monotonic() - began > 60.0 * options.minutes:
                break
            kind = list(KINDS)[number % len(KINDS)]
            if kind not in whole:
                whole[kind] = uninterrupted(place, store, KINDS[kind])
            expected, seconds = whole[kind]
            moment = draw.uniform(0.2, 1.0) * seconds
            found, peak, from_checkpoint = kill_and_resume(place, store, KINDS[kind], moment, f"m{number}.ssvm")
            above, differ, made = above + (peak > LIMIT), differ + (found != expected), made + 1
            print(
                f"{number:3d} {kind:<21} killed at {moment:5.1f} of {seconds:5.1f} s, peak {peak:6.1f} of {LIMIT} MiB, "
                f"{'same bits' if found == expected else 'OTHER BITS'}{'' if from_checkpoint else ', from the beginning'}",
                flush=True,
            )
    print(f"{made} kills: memory above the limit {above} times, other bits {differ} times")
    return above == differ == 0


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    kinds = parser.add_subparsers(required=True, metavar="WHAT")

    def kind(job: Callable[[argparse.Namespace], bool], **defaults: Any) -> argparse.ArgumentParser:
        one = kinds.add_parser(job.__name__, help=(job.__doc__ or "").split("\n")[0])
        for name, default in defaults.items():
            one.add_argument(f"--{name.replace('_', '-')}", type=type(default), default=default, help=f"[{default}]")
        one.set_defaults(job=job)
        return one

    kind(run, limit_mib=256).add_argument("command", nargs=argparse.REMAINDER)
    kind(solvers, memory=256, rows=1_000_000, kernel_rows=8_000, threads="1,2", solvers="")
    kind(wide, forms="csv,jsonl,parquet", columns=20_000, rows=40, group=200)
    kind(resumed, kills=40, seed=0, rows=60_000, columns=496, minutes=15.0)
    options = parser.parse_args()
    good = options.job(options)
    print(hardware())
    return int(not good)


if __name__ == "__main__":
    sys.exit(main())
