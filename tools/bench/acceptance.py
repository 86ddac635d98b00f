"""The whole way on real files: ingest, fit, evaluate, and the objective beside LIBLINEAR's, for hinge and squared hinge.

LIBLINEAR solves the same problem (a constant feature of 1 as bias) to ``--epsilon``; where its dual method does not get
there in ``--seconds`` the cell is what it had, so the honest comparison is with our bracket [dual, primal].
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from streamsvm.jobs.apply.evaluate import evaluate
from streamsvm.jobs.apply.options import EvaluateJob
from streamsvm.jobs.fit.options import FitJob
from streamsvm.jobs.fit.run import fit
from streamsvm.jobs.ingest.options import IngestJob
from streamsvm.jobs.ingest.run import ingest
from streamsvm.store import open_store, read_chunk
from tools.measure.harness import DATA, arguments, scratch, show


class Case(NamedTuple):
    """A data set: its training file, its test file (None: a fifth of the rows), and how to read them."""

    train: str
    test: str | None
    ingest: dict[str, Any]
    standardize: bool = False


FLIGHTS = {"label": "delay", "label_threshold": 15.0, "categorical": ("origin", "destination"), "calendar": ("date",)}
CASES = {
    "a9a": Case("a9a.xz", "a9a.t.xz", {"features": 123}),
    "imdb": Case("imdb.xz", "imdb.t.xz", {"features": 35_855}),
    "covtype": Case("covtype.csv.gz", None, {"label": "Cover_Type", "positive": "2"}, standardize=True),
    "flights": Case("flights-3m.parquet", None, FLIGHTS, standardize=True),
}


def ingested(case: Case, directory: Path) -> tuple[Path, Path]:
    """The training and the test store."""
    train, test = directory / "train.zarr", directory / "train.test.zarr"
    fraction = 0.0 if case.test else 0.2
    ingest(IngestJob(sources=(DATA / case.train,), store=train, test_fraction=fraction, **case.ingest))
    if case.test:
        ingest(IngestJob(sources=(DATA / case.test,), store=test, **case.ingest))
    return train, test


def liblinear(store: Path, loss: str, C: float, standardize: bool, epsilon: float) -> tuple[float, float]:
    """LIBLINEAR's objective and its CPU seconds, on the same numbers."""
    from liblinear.liblinearutil import parameter, problem, train

    X, y = arrays(store, standardize)
    kind = 3 if loss == "hinge" else 2
    began = time.process_time()
    model = train(problem(y, X, bias=1), parameter(f"-s {kind} -c {C} -B 1 -e {epsilon} -q"))
    seconds = time.process_time() - began
    w = np.array(model.get_decfun()[0] + [model.get_decfun()[1]])
    w *= 1.0 if model.get_labels()[0] == 1 else -1.0
    z = np.maximum(0.0, 1.0 - y * (X @ w[:-1] + w[-1]))
    return float(0.5 * w @ w + C * (z.sum() if loss == "hinge" else z @ z)), seconds


def arrays(path: Path, standardize: bool) -> tuple[Any, Any]:
    """The rows of a store for LIBLINEAR: CSR float64 and labels +-1."""
    store = open_store(path)
    buffers, parts, labels = store.buffers(), [], []
    for chunk in range(len(store.layout.chunks)):
        found = read_chunk(store, chunk, buffers)
        rows, shape = found.X, (len(found.codes), store.layout.columns)
        dense = store.layout.dense
        parts.append(rows.values.astype(float) if dense else sp.csr_matrix(tuple(a.copy() for a in rows[:3]), shape))
        labels.append(np.where(found.codes == positive(store.layout.classes), 1.0, -1.0))
    X = np.concatenate(parts) if store.layout.dense else sp.vstack(parts).astype(float)
    if standardize:
        statistics = store.statistics()
        scale = 1.0 / np.sqrt(np.where(statistics.M2 > 0, statistics.M2, store.layout.rows) / store.layout.rows)
        X = (X - statistics.mean) * scale if store.layout.dense else X @ sp.diags(scale)
    return sp.csr_matrix(X), np.concatenate(labels)


def positive(classes: tuple[str, ...]) -> int:
    """The class taken as +1, as a fit of two classes takes it."""
    from streamsvm.jobs.fit.planning.problems import sort_key

    return max(range(len(classes)), key=lambda code: sort_key(classes[code]))


def row_of(name: str, case: Case, stores: tuple[Path, Path], loss: str, options: Any) -> dict[str, Any]:
    model = stores[0].with_name(f"{loss}.ssvm")
    job = FitJob(
        str(stores[0]), str(model), solver=options.solver, loss=loss, C=options.c, standardize=case.standardize,
        tolerance=options.tolerance, time_limit=options.seconds, overwrite=True,
    )  # fmt: skip
    result = fit(job)
    found = result.training.runs[0].certificate
    assert found is not None
    peer, seconds = liblinear(stores[0], loss, options.c, case.standardize, options.epsilon)
    return {
        "set": name, "loss": loss, "solver": result.plan.solver_name, "passes": result.training.passes,
        "seconds": result.training.seconds, "gap": found.gap, "primal": found.primal, "dual": found.dual,
        "LIBLINEAR": peer, "ours / LIBLINEAR - 1": found.primal / peer - 1, "LIBLINEAR s": seconds,
        "accuracy": evaluate(EvaluateJob(model=str(model), data=(str(stores[1]),))).evaluation.accuracy,
    }  # fmt: skip


def main() -> None:
    defaults = {"data": ",".join(CASES), "c": 1.0, "tolerance": 1e-4, "solver": "auto", "seconds": 120.0}
    options = arguments(__doc__, **defaults, epsilon=1e-3)
    rows = []
    for name in options.data.split(","):
        with scratch() as directory:
            stores = ingested(CASES[name], directory)
            rows += [row_of(name, CASES[name], stores, loss, options) for loss in ("squared_hinge", "hinge")]
    show(f"C = {options.c}, tolerance {options.tolerance}", rows, options)


if __name__ == "__main__":
    main()
