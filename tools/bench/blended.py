"""blended beside our own PARTAN: CPU and wall seconds of whole fits to one gap, one thread, in turn.

a9a at C = 1, ijcnn1 at C = 10 (C as the Frank-Wolfe papers have it, gamma by their rule); the smallest of ``--repeats``.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np

from streamsvm.jobs.fit.options import FitJob
from streamsvm.jobs.fit.run import FitResult, fit
from tools.measure.harness import Row, arguments, scratch, show
from tools.measure.paper_data import split, stored

COSTS = {"a9a": 1.0, "ijcnn1": 10.0}
SIDES = ("blended", "partan")


def fitted(store: Path, solver: str, C: float, epsilon: float) -> tuple[float, float, FitResult]:
    """CPU and wall seconds of a fit, and the fit."""
    settings: dict[str, Any] = {"kernel": "rbf", "gamma": "mean-distance", "tolerance": 1e-9}
    cpu, wall = time.process_time(), time.perf_counter()
    settings |= {"solver": solver, "options": {"epsilon": epsilon}, "C": C / 2}
    job = FitJob(str(store), f"{store}.model", overwrite=True, **settings)
    result = fit(job)
    return time.process_time() - cpu, time.perf_counter() - wall, result


def compared(name: str, directory: Path, epsilon: float, repeats: int) -> list[Row]:
    data = split(name, directory)
    store = stored(data.X, data.y, directory / f"{name}.store")
    for solver in SIDES:
        fitted(store, solver, COSTS[name], 1e3)  # compiles
    runs = [{solver: fitted(store, solver, COSTS[name], epsilon) for solver in SIDES} for _ in range(repeats)]
    best = {solver: np.min([run[solver][:2] for run in runs], axis=0) for solver in SIDES}
    rows = []
    for solver in SIDES:
        training = runs[0][solver][2].training
        facts = training.runs[0].certificate.facts
        found = {"gap": facts["simplex_gap"], "iterations": facts["iterations"], "support": facts["support"]}
        row: Row = {"set": name, "who": solver}
        for k, what in enumerate(("CPU s", "wall s")):
            row |= {what: float(best[solver][k]), f"{what}, times": float(best[solver][k] / best["blended"][k])}
        rows.append(row | {"passes": training.passes, **found})
    return rows


def main() -> None:
    options = arguments(__doc__, sets=",".join(COSTS), epsilon=1e-4, repeats=3)
    with scratch() as directory:
        rows = [
            row
            for name in options.sets.split(",")
            for row in compared(name, directory, options.epsilon, options.repeats)
        ]
    show("blended and PARTAN", rows, options)


if __name__ == "__main__":
    main()
