"""blended beside our own PARTAN: CPU seconds of whole fits to one gap, one thread, in turn.

a9a at C = 1, ijcnn1 at C = 10 (C as the Frank-Wolfe papers have it, gamma by their rule); the smallest of ``--repeats``.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "reproduce"))

from harness import Row, arguments, scratch, show
from paper_data import split, stored

from streamsvm.jobs.fit import FitResult, fit
from streamsvm.jobs.planning import FitJob

COSTS = {"a9a": 1.0, "ijcnn1": 10.0}
SIDES = ("blended", "partan")


def fitted(store: Path, solver: str, C: float, epsilon: float) -> tuple[float, FitResult]:
    """A fit and its CPU seconds."""
    began, settings = time.process_time(), {"kernel": "rbf", "gamma": "mean-distance", "tolerance": 1e-9}
    job = FitJob(str(store), f"{store}.model", solver, {"epsilon": epsilon}, C=C / 2, overwrite=True, **settings)
    result = fit(job)
    return time.process_time() - began, result


def compared(name: str, directory: Path, epsilon: float, repeats: int) -> list[Row]:
    data = split(name, directory)
    store = stored(data.X, data.y, directory / f"{name}.store")
    for solver in SIDES:
        fitted(store, solver, COSTS[name], 1e3)  # compiles
    runs = [{solver: fitted(store, solver, COSTS[name], epsilon) for solver in SIDES} for _ in range(repeats)]
    best = {solver: min(run[solver][0] for run in runs) for solver in SIDES}
    rows = []
    for solver in SIDES:
        training = runs[0][solver][1].training
        facts = training.runs[0].certificate.facts
        found = {"gap": facts["simplex_gap"], "iterations": facts["iterations"], "support": facts["support"]}
        ratio = best[solver] / best["blended"]
        rows.append({"set": name, "who": solver, "CPU s": best[solver], "x": ratio, "passes": training.passes, **found})
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
