"""Linear solvers on real sets: ``--what passes`` to a certified gap, ``--what peers`` beside other programs, ``--what probes`` of
embeddings with many classes, ``--what path`` of ten values of C on these.

passes: each run is a fit as a user starts it, within --memory, without writing a model, ended at the tolerance, at --passes or
after --seconds. lambda = 1 / (C n). CPU seconds are those of the whole process, reader included; the first run of each kind
compiles and is not counted. "x reading": beside one warm reading of the store. "one optimum": whether the intervals
[dual, primal] of all solvers of a problem have a point in common, as they must.

peers: CPU seconds and peak memory to a relative suboptimality, each contestant in a process of its own. All solve the same problem,
C = 1 / (lambda n), the bias an appended constant 1, on the same rows. ``auto`` reads them from a store, pass after pass, under
--memory, checksums and certificate included; averaged SGD and Vowpal Wabbit stream them from files too; LIBLINEAR and LinearSVC
hold them in memory. What is not timed: loading, each peer's own form of the data, compilation, and evaluating the primal between
two points. Peak: anonymous memory of the process, all of that included. Suboptimality is (P - P*) / P*, P* the certified dual of a
long run of ours: what is shown is an upper bound.

probes: rows as embedding models make them (``PROBES``), mnist, or NAME.npz with X and y. Ours ends at its tolerance, and each
peer when its P is at most ours or above it by no more than our gap, so that its own stopping rule does not count. CPU seconds
and peaks are medians of ``--repeats`` runs in turn, each in a process of its own. Passes of peers are iterations or epochs.

path: passes and CPU seconds of all values of C in the same passes, in groups of three, one after the other, and each alone, and the
C that is best on a fifth of the rows held out.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import scipy.linalg  # noqa: F401  before its BLAS is limited
from threadpoolctl import threadpool_limits

from streamsvm.jobs.fit.driver import fit, local_loop
from streamsvm.jobs.fit.options import FitJob
from streamsvm.jobs.fit.plan import make_plan
from streamsvm.jobs.fit.validate import find_best_C
from streamsvm.jobs.ingest.options import IngestJob
from streamsvm.jobs.ingest.run import ingest
from streamsvm.rows import CSR
from streamsvm.schedule.stream import Stream, iterate_visits
from streamsvm.solvers import losses_of
from streamsvm.store import read_chunk
from streamsvm.store.generators.simple import Embeddings
from streamsvm.types import Certificate, Stop
from tools.measure.datasets import SCALED, digits, made
from tools.measure.harness import REPOSITORY, Row, anonymous_bytes, arguments, scratch, show

ROUNDING = 1e-9
TARGETS = (1e-2, 1e-3, 1e-4)
CONTESTANTS = {
    "hinge": ("auto", "LIBLINEAR -s 3", "LinearSVC", "averaged SGD", "VW --sgd"),
    "squared_hinge": ("auto", "LIBLINEAR -s 1", "LIBLINEAR -s 2", "LinearSVC", "averaged SGD"),
}
"""Vowpal Wabbit has no squared hinge."""
PROBES: dict[str, tuple[float, dict[str, Any]]] = {
    "spectrum": (0.316, {"columns": 512, "length": 10.0}),
    "separable": (10.0, {"columns": 256, "spectrum": 0.0, "offset": 0.0, "noise": 0.0, "separation": 0.6}),
    "noise": (10.0, {"columns": 256, "spectrum": 0.0, "offset": 0.0, "noise": 0.2, "separation": 0.2}),
}
"""C and the settings of ``synth embeddings``, of 100 classes; the spectrum is the generator's own, j^-0.7, off center."""
MNIST_C, OTHER_C = 0.01, 10.0
C_PATH = tuple(float(C) for C in np.logspace(-2, 2, 10))
PEERS = {
    "softmax": ("LogisticRegression", "torch LBFGS"),
    "squared_hinge": ("LinearSVC, all classes",),
    "logistic": ("SGDClassifier",),
}
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
    y = np.where(np.concatenate(codes) == 1, 1.0, -1.0)
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
    return os.environ | single | {"PYTHONPATH": os.pathsep.join([str(REPOSITORY), os.environ.get("PYTHONPATH", "")])}


def race(task: dict[str, Any], options: Any) -> list[Row]:
    reference, _, why = contest("reference", task, 4 * options.limit)
    if why:
        sys.exit(f"the reference run failed: {why}")
    best, found = reference[-1]["dual"], []
    head = {"set": task["set"], "loss": task["loss"], "lambda": task["lam"]}
    print(head, f"P* within {reference[-1]['primal'] / best - 1:.1e}", flush=True)
    for who in CONTESTANTS[task["loss"]]:
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


# -- passes to a certified gap -----------------------------------------------------------------------------------------


def reading(store: Any) -> float:
    """Seconds of one reading, the store in the page cache."""
    taken = []
    for _ in range(3):
        began = time.perf_counter()
        with Stream(store, iterate_visits(store.layout, 0, False), depth=2) as stream:
            for _loaded in stream.epoch():
                pass
        taken.append(time.perf_counter() - began)
    return min(taken)


def run(store: Any, job: FitJob, stop: Stop, directory: Path) -> tuple[Row, Certificate]:
    """One fit; its plan decides what is kept and what is read again."""
    plan = make_plan(job, store)
    plan.memory.check(plan.remedy)
    cpu, began = time.process_time(), time.perf_counter()
    trainer = local_loop(job, store, plan, directory, lambda _: None)
    result = trainer.train(stop)
    trainer.close()
    seconds, cpu = time.perf_counter() - began, time.process_time() - cpu
    certificate = result.runs[0].certificate
    assert certificate is not None
    gap = f"{certificate.gap:.1e}" + ("" if certificate.exact else " ~")
    solver = plan.solver_name if job.solver != "auto" else f"auto: {plan.solver_name}"
    peak = result.peak >> 20
    return {"solver": solver, "passes": result.passes, "s": seconds, "CPU s": cpu, "gap": gap, "MiB": peak}, certificate


def agreed(found: list[Certificate]) -> str:
    """Whether there is a value no dual is above and no primal below."""
    low, high = max(c.dual for c in found), min(c.primal for c in found if c.exact)
    return "yes" if low <= high * (1.0 + ROUNDING) else f"NO: {low:.9g} > {high:.9g}"


def table(store: Any, name: str, options: Any, directory: Path) -> list[Row]:
    rows: list[Row] = []
    once, stop = reading(store), Stop(options.passes, options.seconds)
    for loss in options.losses.split(","):
        solvers = [s for s in options.solvers.split(",") if s == "auto" or loss in losses_of(s)]
        compiled: set[str] = set()
        for lam in map(float, options.lams.split(",")):
            certificates = []
            for solver in solvers:
                job = FitJob(
                    store.name, "unused", solver=solver, loss=loss, lambda_=lam, tolerance=options.tolerance,
                    standardize=name in SCALED, memory=options.memory << 20,
                )  # fmt: skip
                if solver not in compiled:
                    run(store, job, Stop(2), directory)
                    compiled.add(solver)
                row, certificate = run(store, job, stop, directory)
                certificates.append(certificate)
                rows.append({"set": name, "loss": loss, "lambda": lam, **row, "x reading": row["s"] / once})
                print(rows[-1], flush=True)
            rows[-1]["one optimum"] = agreed(certificates)
    return rows


def passes(options: Any) -> list[Row]:
    """Run every solver on every set."""
    rows: list[Row] = []
    with threadpool_limits(1):
        for name in options.sets.split(","):
            with scratch() as directory:
                rows += table(made(name, options.rows, directory), name, options, directory)
    return rows


def peers(options: Any) -> list[Row]:
    """Run every contestant on every set."""
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
                    rows += race(task, options)
    return rows


# -- many classes ------------------------------------------------------------------------------------------------------


def probe_task(name: str, rows: int, directory: Path) -> dict[str, Any]:
    """Write the rows of a set as arrays and as a store, float32."""
    C, settings = PROBES.get(name, (OTHER_C, {}))
    if name in PROBES:
        batches = list(Embeddings(rows, **settings).batches())
        X = np.concatenate([batch.X.values for batch in batches])
        codes = np.concatenate([batch.labels for batch in batches]).astype(np.int64)
    elif name == "mnist":
        C = MNIST_C
        X, codes = (values[:rows] for values in digits())
    else:
        with np.load(name) as given:
            X, codes = given["X"].astype(np.float32), np.unique(given["y"], return_inverse=True)[1]
    np.save(directory / "rows.npy", X)
    np.save(directory / "codes.npy", codes)
    ingest(IngestJob(sources=(directory / "rows.npy",), store=directory / "rows.zarr", labels=directory / "codes.npy"))
    return {
        "set": f"{Path(name).stem} {X.shape[0]:,} x {X.shape[1]}, {codes.max() + 1} classes", "rows": str(directory / "rows.npy"),
        "codes": str(directory / "codes.npy"), "store": str(directory / "rows.zarr"), "C": C, "classes": int(codes.max() + 1),
    }  # fmt: skip


def probe_race(task: dict[str, Any], options: Any) -> list[Row]:
    """Ours at its tolerance, and each peer until it is as good, in turn."""
    reference, _, why = contest("streamsvm", task | {"tolerance": 1e-6}, 20 * options.limit)
    found, _, complaint = contest("streamsvm", task | {"tolerance": options.tolerance}, options.limit)
    if why or complaint:
        sys.exit(f"{task['set']}, {task['loss']}: {why or complaint}")
    best, target = reference[0]["dual"], found[0]["primal"] * (1.0 + found[0]["gap"])
    asked = task | {"tolerance": options.tolerance, "until": target}
    runs: dict[str, list[tuple[Row, int]]] = {who: [] for who in ("streamsvm", *PEERS[task["loss"]])}
    for _ in range(options.repeats):
        for who in runs:
            points, peak, why = contest(who, asked, options.limit)
            runs[who] += [(points[-1], peak)] if points else []
            if why:
                print(f"{who}: {why}", flush=True)
    rows: list[Row] = []
    for who, ended in runs.items():
        row: Row = {"set": task["set"], "loss": task["loss"], "C": task["C"], "who": who}
        if ended:
            last = ended[-1][0]
            row |= {
                "CPU s": float(np.median([point["cpu"] for point, _ in ended])), "peak MiB": int(np.median([peak for _, peak in ended])),
                "passes": last["passes"], "(P - P*) / P*": last["primal"] / best - 1, "as good": last["primal"] <= target,
                "gap": last.get("gap"), "solver": last.get("solver"),
            }  # fmt: skip
        rows.append(row)
        print(row, flush=True)
    return rows


def probes(options: Any) -> list[Row]:
    """Run every contestant of many classes on every set."""
    rows: list[Row] = []
    for name in options.sets.split(","):
        with scratch() as directory:
            task = probe_task(name, options.rows, directory) | {"memory": options.memory << 20}
            for loss in options.losses.split(","):
                rows += probe_race(task | {"loss": loss}, options)
    return rows


def path(options: Any) -> list[Row]:
    """Fit the values of C together, in groups, and alone, on every set."""
    rows: list[Row] = []
    for name in options.sets.split(","):
        with scratch() as directory, threadpool_limits(1):
            task = probe_task(name, options.rows, directory)
            for loss in options.losses.split(","):
                rows += fit_path(task | {"loss": loss}, options, directory)
    return rows


def fit_path(task: dict[str, Any], options: Any, directory: Path) -> list[Row]:
    kind = {"loss": "logistic", "multi_class": "softmax"} if task["loss"] == "softmax" else {"loss": task["loss"]}
    settings = kind | {"solver": "lbfgs", "tolerance": options.tolerance, "memory": options.memory << 20, "threads": 1}
    job = FitJob(task["store"], str(directory / "m"), C=C_PATH, validation=0.2, overwrite=True, **settings)

    def run(how: str, job: FitJob) -> tuple[Row, Any]:
        cpu = time.process_time()
        found = fit(job)
        row = {"set": task["set"], "loss": task["loss"], "how": how, "passes": found.passes, "gap": found.gap}
        return row | {"CPU s": time.process_time() - cpu, "C": find_best_C(found.plan, found.training)}, found

    each = 1 if task["loss"] == "softmax" else task["classes"]
    rows = [run("together", job)[0]]
    rows += [run(f"groups of {count} C", replace(job, options={"problems": count * each}))[0] for count in (3, 1)]
    alone = [run(f"C = {C:.3g} alone", replace(job, C=C)) for C in C_PATH]
    score = {C: found.training.validation_state[repr(C)]["score"] for C, (_, found) in zip(C_PATH, alone, strict=True)}
    ones = [row for row, _ in alone]
    head = {"set": task["set"], "loss": task["loss"], "C": min(C_PATH, key=lambda C: score[C])}
    rows.append({**head, "how": "each alone: the slowest", "passes": max(row["passes"] for row in ones)})
    rows.append(
        {
            **head,
            "how": "each alone: all",
            "passes": sum(row["passes"] for row in ones),
            "CPU s": sum(row["CPU s"] for row in ones),
        }
    )
    for row in rows:
        print(row, flush=True)
    return rows


def main() -> None:
    options = arguments(
        __doc__, what="peers", sets="covtype,flights0,susy,imdb,a9a", losses="hinge,squared_hinge", solvers="auto", lams="1e-4,1e-6",
        tolerance=1e-3, passes=40, seconds=20.0, limit=30.0, rows=5_000_000, memory=256, repeats=3,
    )  # fmt: skip
    run = {"passes": passes, "peers": peers, "probes": probes, "path": path}[options.what]
    show(f"linear solvers: {options.what}", run(options), options)


if __name__ == "__main__":
    main()
