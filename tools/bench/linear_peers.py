"""Linear solvers beside their peers: CPU seconds and peak memory to a relative suboptimality, each in a process of its own.

All solve the same problem, C = 1 / (lambda n), the bias an appended constant 1, on the same rows. ``auto`` reads them
from a store, pass after pass, under --memory, checksums and certificate included; averaged SGD and Vowpal Wabbit stream
them from files too; LIBLINEAR and LinearSVC hold them in memory. What is not timed: loading, each peer's own form of the
data, compilation, and evaluating the primal between two points. Peak: anonymous memory of the process, all of that
included. Of susy0 (``--losses squared_epsilon_insensitive``) the first column of susy is predicted from the others, epsilon 0.1. Suboptimality is (P - P*) / P*, P* the certified dual of a long run of ours: what is shown is an upper bound.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np

from streamsvm.rows import CSR
from streamsvm.store import read_chunk
from tools.bench.stores import SCALED, made
from tools.measure.harness import REPOSITORY, Row, anonymous_bytes, arguments, scratch, show

TARGETS = (1e-2, 1e-3, 1e-4)
CONTESTANTS = {
    "hinge": ("auto", "LIBLINEAR -s 3", "LinearSVC", "averaged SGD", "VW --sgd"),
    "squared_hinge": ("auto", "LIBLINEAR -s 1", "LIBLINEAR -s 2", "LinearSVC", "averaged SGD"),
    "squared_epsilon_insensitive": ("auto", "LIBLINEAR -s 11", "LIBLINEAR -s 12"),
    "epsilon_insensitive": ("auto", "LIBLINEAR -s 13"),
    "logistic": ("auto", "LIBLINEAR -s 0", "LIBLINEAR -s 7", "newton-cholesky", "lbfgs", "saga", "snapml"),
}
"""Vowpal Wabbit has no squared hinge. With ``--who`` others, of those in ``linear_contestants.py``."""
SCRIPT = Path(__file__).with_name("linear_contestants.py")
SAMPLE_SECONDS = 0.02


def export(store: Any, standardize: bool) -> None:
    """The rows of a store as .npy files beside it, float32: ``values``, or ``data``, ``indices``, ``indptr``; and ``y``."""
    path = Path(store.name)
    deviation = np.sqrt(store.statistics().M2 / store.layout.rows)
    scale = 1.0 / np.where(standardize & (deviation > 0), deviation, 1.0)
    buffers, codes = store.buffers(), []
    parts: list[tuple[Any, ...]] = []
    for chunk in range(len(store.layout.chunks)):
        found = read_chunk(store, chunk, buffers)
        codes.append(found.codes.copy())
        X = found.X
        if isinstance(X, CSR):
            parts.append((X.data * scale[X.indices].astype(np.float32), X.indices.copy(), np.diff(X.indptr)))
        else:
            parts.append((((X.values - standardize * store.statistics().mean) * scale).astype(np.float32),))
    joined = [np.concatenate(arrays) for arrays in zip(*parts, strict=True)]
    names = ("values",) if store.layout.dense else ("data", "indices", "indptr")
    if not store.layout.dense:
        joined[2] = np.concatenate([[0], np.cumsum(joined[2])])
    y = np.concatenate(codes)
    if not store.layout.numeric:
        y = np.where(y == 1, 1.0, -1.0)
    for name, array in zip((*names, "y", "columns"), (*joined, y, np.array(store.layout.columns)), strict=True):
        np.save(path.parent / f"{path.stem}.{name}.npy", array)


def contest(who: str, task: dict[str, Any], limit: float) -> tuple[list[Row], int, str]:
    """The points a contestant reached, its peak in MiB, and why there are none if so."""
    child = subprocess.Popen(
        [sys.executable, str(SCRIPT), json.dumps(task | {"who": who, "limit": limit})],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment(),
    )  # fmt: skip
    peak = [0]

    def sample() -> None:
        while child.poll() is None:
            peak[0] = max(peak[0], anonymous_bytes(child.pid))
            time.sleep(SAMPLE_SECONDS)

    watcher = threading.Thread(target=sample)
    watcher.start()
    printed, complaint = child.communicate()
    watcher.join()
    points = [json.loads(line) for line in printed.splitlines() if line.startswith("{")]
    why = "" if points else f"{(complaint.splitlines() or ['no point in time'])[-1][:60]} ({child.returncode})"
    return points, peak[0] >> 20, why


def ours(task: dict[str, Any], limit: float) -> tuple[list[Row], int, str]:
    """The points of fits to three tolerances, each in a process of its own, as the plan looks at the memory there is."""
    found = [contest("auto", task | {"tolerance": tolerance}, limit) for tolerance in TARGETS]
    why = next((complaint for _, _, complaint in found if complaint), "")
    return [point for points, _, _ in found for point in points], max(peak for _, peak, _ in found), why


def environment() -> dict[str, str]:
    single = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS"), "1")
    return os.environ | single | {"PYTHONPATH": str(REPOSITORY)}


def rows_of(task: dict[str, Any], options: Any) -> list[Row]:
    reference, _, why = contest("reference", task, 4 * options.limit)
    if why:
        sys.exit(f"the reference run failed: {why}")
    best, found = reference[-1]["dual"], []
    head = {"set": task["set"], "loss": task["loss"], "lambda": task["lam"]}
    print(head, f"P* within {reference[-1]['primal'] / best - 1:.1e}", flush=True)
    for who in options.who.split(",") if options.who else CONTESTANTS[task["loss"]]:
        points, peak, why = ours(task, options.limit) if who == "auto" else contest(who, task, options.limit)
        row: Row = {**head, "who": who}
        for target in TARGETS:
            row[f"{target:.0e}"] = min((p["cpu"] for p in points if p["primal"] <= best * (1 + target)), default=None)
        certified = [p["cpu"] for p in points if p.get("gap", 1.0) <= 1e-3]
        row |= {"certified 1e-3": min(certified, default=None), "peak MiB": peak}
        row["best"] = min((p["primal"] / best - 1 for p in points), default=None)
        found.append(row | {"why": why or None})
        print(found[-1], flush=True)
    return found


def main() -> None:
    options = arguments(
        __doc__, sets="covtype,flights0,susy,imdb,a9a", losses="hinge,squared_hinge", lams="1e-4,1e-6", limit=30.0,
        rows=5_000_000, memory=256, who="",
    )  # fmt: skip
    rows: list[Row] = []
    for name in options.sets.split(","):
        with scratch() as directory:
            store, standardize = made(name, options.rows, directory), name in SCALED
            export(store, standardize)
            for loss in options.losses.split(","):
                for lam in options.lams.split(","):
                    task = {
                        "set": name, "store": store.name, "loss": loss, "lam": float(lam),
                        "C": 1 / (float(lam) * store.layout.rows),
                        "standardize": standardize, "memory": options.memory << 20,
                    }  # fmt: skip
                    rows += rows_of(task, options)
    show("linear solvers: CPU seconds to a relative suboptimality", rows, options)


if __name__ == "__main__":
    main()
