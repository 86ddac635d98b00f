"""Wide, badly scaled tables: readings and CPU seconds of auto to a certified gap, beside LIBLINEAR, LinearSVC and snapml.

Each of ours is ``streamsvm fit`` as a user starts it, in a process of its own, within --memory: CPU is that of the whole process, imports and
the final reading included (passes are compiled by an untimed run before). Peers are given the rows in memory, in their own form;
only training is timed, from loose to tight; shown are the first that is within --tolerance of our lower bound, and the first that
is as near the optimum as our solution. --folder keeps the stores for the next run.
Small tables: ``tools.bench.small_tables``.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

from streamsvm.store import open_store
from tools.bench.linear_peers import contest, export
from tools.measure.harness import DATA, REPOSITORY, Row, arguments, scratch, show, unpacked

READ_KDD99 = ("--no-header", "--label", "last", "--positive", "normal.")
READ_FLIGHTS = ("--label", "delay", "--label-threshold", "15", "--column", "origin=hash,destination=hash")


class RacedSet(NamedTuple):
    """How a store is made, and what is fitted on it."""

    command: tuple[str, ...]
    """What makes the store, its name left out: it is the last word."""
    standardize: tuple[bool, ...] = (False,)
    """As raw columns, and with all of them standardized."""
    lam: float | None = None
    """lambda; None: C = 1."""


SETS = {
    "t100k": RacedSet(("synth", "table", "--rows", "100000", "--columns", "70000"), (False, True)),
    "t1m": RacedSet(("synth", "table", "--rows", "1000000", "--columns", "20000"), (False, True)),
    "kdd99": RacedSet(("ingest", str(DATA / "kddcup.data_10_percent.gz"), *READ_KDD99)),
    "covtype": RacedSet(("ingest", str(DATA / "covtype.csv.gz"), "--label", "Cover_Type", "--positive", "2")),
    "flights": RacedSet(
        ("ingest", str(DATA / "flights-3m.parquet"), *READ_FLIGHTS, "--hash", "18", "--cross", "origin*destination")
    ),
    "imdb": RacedSet(("ingest", "imdb.xz", "--format", "svmlight"), lam=1e-6),
}
PEERS = {
    "squared_hinge": ("LIBLINEAR -s 2", "LIBLINEAR -s 1", "LinearSVC", "snapml"),
    "hinge": ("LIBLINEAR -s 3", "snapml"),
    "huber": (),
}


class Fit(NamedTuple):
    """What of a set is fitted."""

    C: float
    """The weight of the losses."""
    standardize: bool
    """Whether all columns are standardized."""


def command(*words: str) -> tuple[list[dict[str, Any]], float, int]:
    """The events of ``streamsvm ... --json``, CPU seconds of its process, and its exit code."""
    # as installed: with bytecode, which the untimed run before writes; compiling our sources anew takes 0.4 s of every start
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    environment["PYTHONPATH"] = str(REPOSITORY)
    before = os.times()
    found = subprocess.run(
        [sys.executable, "-m", "streamsvm", *words], capture_output=True, text=True, check=False, env=environment
    )
    after = os.times()
    cpu = after.children_user + after.children_system - before.children_user - before.children_system
    return [json.loads(line) for line in found.stdout.splitlines() if line.startswith("{")], cpu, found.returncode


def ours(store: Path, loss: str, this: Fit, options: Any) -> Row:
    """One fit, after one of the same kind that loads what is compiled."""
    words = ["fit", str(store), str(store) + ".model", "--overwrite", "--json", "--loss", loss]
    words += ["--memory", f"{options.memory}MiB", "--tolerance", str(options.tolerance), "--C", repr(this.C)]
    words += [
        "--time-limit",
        f"{options.limit:g}s",
        *(["--standardize", "--standardize-all"] if this.standardize else []),
    ]
    command(*words, "--max-passes", "3")
    began = time.perf_counter()
    events, cpu, code = command(*words)
    row: Row = {"who": "auto", "CPU s": cpu, "s": time.perf_counter() - began, "exit": code}
    for event in events:
        if event["event"] == "plan":
            row["who"] = f"auto: {event['solver']}"
        if event["event"] == "done":
            row |= {"readings": event["passes"], "gap": event["gap"], "MiB": event["peak"] >> 20}
            row |= {"primal": event["primal"], "dual": event["dual"], "status": event["status"]}
    return row


def peers(store: Path, loss: str, this: Fit, found: Row, options: Any) -> list[Row]:
    """What each takes to within the tolerance of our bound, and to our primal; how near it came."""
    task = {"store": str(store), "loss": loss, "C": this.C, "lam": 1.0, "standardize": this.standardize}
    rows = []
    for who in PEERS[loss]:
        if options.who and who not in options.who.split(","):
            continue
        points, peak, why = contest(who, task, options.limit)
        row: Row = {"who": who, "MiB": peak, "status": why or None}
        for name, least in (("CPU s", found["dual"] * (1 + options.tolerance)), ("CPU s to ours", found["primal"])):
            row[name] = min((p["cpu"] for p in points if p["primal"] <= least), default=None)
        rows.append(row | {"gap": min((p["primal"] / found["dual"] - 1 for p in points), default=None)})
        print(rows[-1], flush=True)
    return rows


def made(name: str, folder: Path) -> Path:
    """The store of a set; one that is there from before is taken as it is."""
    path, words = folder / f"{name}.zarr", list(SETS[name].command)
    if not path.exists():
        if name == "imdb":
            words[1] = str(unpacked("imdb.xz", folder))
        command(*words, str(path))
    return path


def large(options: Any) -> list[Row]:
    """The named sets, raw and standardized."""
    rows: list[Row] = []
    for name in options.sets.split(","):
        with scratch() as directory:
            store = made(name, Path(options.folder) if options.folder else directory)
            lam = SETS[name].lam
            C = 1.0 if lam is None else 1.0 / (lam * open_store(store).layout.rows)
            for standardize in SETS[name].standardize:
                if options.peers == "yes":
                    export(open_store(store), standardize)
                for loss in options.losses.split(","):
                    head: Row = {"set": name + (" std" if standardize else ""), "loss": loss}
                    found = ours(store, loss, Fit(C, standardize), options)
                    rows.append(head | found)
                    print(rows[-1], flush=True)
                    if options.peers == "yes" and "dual" in found:
                        rows += [head | row for row in peers(store, loss, Fit(C, standardize), found, options)]
    return rows


def main() -> None:
    options = arguments(
        __doc__, sets=",".join(SETS), losses="squared_hinge,hinge", peers="yes", who="", memory=1024, tolerance=1e-3,
        limit=120.0, folder="",
    )  # fmt: skip
    show(f"wide tables, certified gap {options.tolerance:g}, {options.memory} MiB", large(options), options)


if __name__ == "__main__":
    main()
