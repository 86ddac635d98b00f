"""Linear solvers x data sets: passes, seconds and certified gap, beside one warm reading of the store.

Each run is a fit as a user starts it, without writing a model, ended at the tolerance or at --passes. CPU seconds are
those of the whole process, reader included; the first run of each kind compiles and is not counted.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import scipy.linalg  # noqa: F401  before its BLAS is limited
from datasets import load, stored
from harness import DATA, Row, arguments, scratch, show
from threadpoolctl import threadpool_limits

from streamsvm.jobs.ingest import IngestJob, ingest
from streamsvm.jobs.planning import FitJob, make_plan
from streamsvm.jobs.synth import SynthJob, synth
from streamsvm.jobs.training import Course, Trainer
from streamsvm.schedule.plan import visits
from streamsvm.schedule.stream import Stream
from streamsvm.store import open_store
from streamsvm.types import Stop


def made(name: str, rows: int, directory: Path) -> Any:
    """A store by name: susy, flights, or one of ``datasets``."""
    path = directory / f"{name}.zarr"
    if name == "susy":
        synth(SynthJob("susy", str(path), rows=rows))
    elif name == "flights":
        ingest(
            IngestJob(
                sources=(DATA / "flights-3m.parquet",),
                store=path,
                label="delay",
                label_threshold=15.0,
                categorical=("origin", "destination"),
                calendar=("date",),
            )
        )
    else:
        return stored(load(name, directory), path)
    return open_store(path)


def reading(store: Any) -> float:
    """Seconds of one reading, the store in the page cache."""
    taken = []
    for _ in range(3):
        began = time.perf_counter()
        with Stream(store, visits(store.layout, 0, False), depth=2) as stream:
            for _loaded in stream.epoch():
                pass
        taken.append(time.perf_counter() - began)
    return min(taken)


def run(store: Any, job: FitJob, passes: int) -> Row:
    """One fit; its plan decides what is kept and what is read again."""
    plan = make_plan(job, store)
    cpu, began = time.process_time(), time.perf_counter()
    course = Course(job.seed, job.prefetch, plan.memory.retain)
    trainer = Trainer(store, plan.solver, plan.problems, plan.features, course, lambda _: None)
    result = trainer.train(Stop(passes))
    seconds, cpu = time.perf_counter() - began, time.process_time() - cpu
    certificate = result.runs[0].certificate
    assert certificate is not None
    gap = f"{certificate.gap:.1e}" + ("" if certificate.exact else " ~")
    return {"solver": plan.solver_name, "passes": result.passes, "s": seconds, "CPU s": cpu, "gap": gap}


def main() -> None:
    options = arguments(
        __doc__, sets="a9a,covtype,flights,susy", losses="hinge,squared_hinge", solvers="auto,dcd",
        lams="1e-3,1e-4,1e-5,1e-6", tolerance=1e-3, passes=40, rows=5_000_000,
    )  # fmt: skip
    rows: list[Row] = []
    with scratch() as directory, threadpool_limits(1):
        for name in options.sets.split(","):
            store = made(name, options.rows, directory)
            once = reading(store)
            for loss in options.losses.split(","):
                for solver in options.solvers.split(","):
                    jobs = [
                        FitJob(store.name, "unused", solver=solver, loss=loss, lambda_=float(lam),
                               tolerance=options.tolerance, standardize=name == "flights")
                        for lam in options.lams.split(",")
                    ]  # fmt: skip
                    run(store, jobs[0], 2)
                    for job in jobs:
                        found = run(store, job, options.passes)
                        rows.append(
                            {"set": name, "loss": loss, "lambda": job.lambda_, **found, "x reading": found["s"] / once}
                        )
    show(f"linear solvers, certified gap {options.tolerance:g}, one BLAS thread", rows, options)


if __name__ == "__main__":
    main()
