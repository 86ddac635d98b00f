"""Linear solvers x data sets: passes, seconds and certified gap, beside one warm reading of the store.

Each run is a fit as a user starts it, within --memory, without writing a model, ended at the tolerance, at --passes or
after --seconds. lambda = 1 / (C n): 1e-2, 1e-4, 1e-6 are C = 0.01, 1, 100 times 10^4 / n. CPU seconds are those of the
whole process, reader included; the first run of each kind compiles and is not counted. All solvers are compiled in one process, which
a fit does not do: --memory 256 is enough for --solvers auto, not for all of them. "one optimum": whether the
intervals [dual, primal] of all solvers of a problem have a point in common, as they must.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import scipy.linalg  # noqa: F401  before its BLAS is limited
from threadpoolctl import threadpool_limits

from streamsvm.jobs.fit.options import FitJob
from streamsvm.jobs.fit.planning.plan import make_plan
from streamsvm.jobs.fit.trained import local_loop
from streamsvm.schedule.plan import visits
from streamsvm.schedule.stream import Stream
from streamsvm.solvers import losses_of
from streamsvm.types import Certificate, Stop
from tools.bench.stores import SCALED, made
from tools.measure.harness import Row, arguments, scratch, show

ROUNDING = 1e-9


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


def main() -> None:
    options = arguments(
        __doc__, sets="a9a,ijcnn1,covtype,imdb,flights,kdd99,susy", losses="hinge,squared_hinge",
        solvers="auto,dcd,sgd,pegasos,assg", lams="1e-2,1e-4,1e-6", tolerance=1e-3, passes=40, seconds=20.0,
        rows=5_000_000, memory=400,
    )  # fmt: skip
    rows: list[Row] = []
    with threadpool_limits(1):
        for name in options.sets.split(","):
            with scratch() as directory:
                rows += table(made(name, options.rows, directory), name, options, directory)
    show(f"linear solvers, certified gap {options.tolerance:g}, one BLAS thread", rows, options)


if __name__ == "__main__":
    main()
