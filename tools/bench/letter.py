"""letter, 26 classes: passes and accuracy of one-vs-rest, beside a binary fit and scikit-learn's LinearSVC."""

from __future__ import annotations

import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np

from streamsvm.jobs.apply.evaluate import evaluate
from streamsvm.jobs.apply.options import EvaluateJob
from streamsvm.jobs.fit.options import FitJob
from streamsvm.jobs.fit.run import fit
from streamsvm.jobs.ingest.options import IngestJob
from streamsvm.jobs.ingest.run import ingest
from tools.measure.harness import DATA, Row, arguments, scratch, show, unpacked


def ours(directory: Path, solver: str, loss: str, C: float, tolerance: float) -> list[Row]:
    """All classes, then the one that needed most passes alone."""
    store, test = (str(directory / f"{part}.zarr") for part in ("train", "test"))
    job = FitJob(store, str(directory / "m"), solver=solver, loss=loss, C=C, tolerance=tolerance, overwrite=True)
    result = fit(job)
    accuracy = evaluate(EvaluateJob(job.model, (test,))).evaluation.accuracy
    gap = max(run.certificate.gap for run in result.training.runs if run.certificate)
    row = {"who": solver, "loss": loss, "problems": len(result.plan.problems), "passes": result.training.passes}
    found = [row | {"s": result.training.seconds, "gap": gap, "accuracy": accuracy}]
    alone = []
    for name in result.plan.class_names:
        one = fit(
            FitJob(store, job.model, solver=solver, loss=loss, C=C, tolerance=tolerance, overwrite=True, positive=name)
        )
        alone.append((one.training.passes, one.training.seconds, one.training.runs[0].certificate.gap))
    passes, seconds, gap = max(alone)
    return [*found, row | {"problems": 1, "passes": passes, "s": seconds, "gap": gap}]


def linear_svc(directory: Path, loss: str, C: float) -> Row:
    from sklearn.datasets import load_svmlight_file
    from sklearn.svm import LinearSVC

    parts: list[Any] = []
    for name in ("letter.xz", "letter.t.xz"):
        X, y = load_svmlight_file(str(unpacked(name, directory)), n_features=16)
        parts += [np.asarray(X.todense()), y]
    warnings.simplefilter("ignore")
    began = time.perf_counter()
    model = LinearSVC(loss=loss, C=C, max_iter=20_000, random_state=0).fit(parts[0], parts[1])
    seconds = time.perf_counter() - began
    return {"who": "LinearSVC", "loss": loss, "problems": 26, "s": seconds, "accuracy": model.score(parts[2], parts[3])}


def main() -> None:
    options = arguments(__doc__, losses="squared_hinge,hinge", solvers="newton,dcd", c=1.0, tolerance=1e-3)
    rows: list[Row] = []
    with scratch() as directory:
        for part, name in (("train", "letter.xz"), ("test", "letter.t.xz")):
            ingest(IngestJob(sources=(DATA / name,), store=directory / f"{part}.zarr", features=16))
        for loss in options.losses.split(","):
            for solver in options.solvers.split(","):
                rows += ours(directory, solver, loss, options.c, options.tolerance)
            rows.append(linear_svc(directory, loss, options.c))
    show(f"letter, one against the rest, C = {options.c:g}", rows, options)


if __name__ == "__main__":
    main()
