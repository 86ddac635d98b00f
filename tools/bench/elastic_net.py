"""The elastic net beside scikit-learn's: CPU seconds, peak memory and P, each contestant in a process of its own.

python -m tools.bench.elastic_net --sets covtype --losses logistic,squared --C 1e-3 --l1 20

All minimize 1/2 ||w||^2 + l1 ||w||_1 + C sum_i l(m_i), a constant 1 among the columns. Ours reads a store under --memory and proves its gap; the others have
the rows in memory, with ``--iterations`` at most, and prove nothing: what is shown of P is how far it is above the D that ours proved at a tolerance of 1e-6.
Loading and compilation are not timed. Peak: the most resident memory of the process.
"""

from __future__ import annotations

import resource
import time
import warnings
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np

from tools.bench.linear_peers import export
from tools.bench.stores import made
from tools.measure.harness import Row, arguments, scratch, show

TIGHT, MEMORY = 1e-6, 256 << 20
CONTESTANTS = {"logistic": ("streamsvm", "saga", "SGDClassifier"), "squared": ("streamsvm", "ElasticNet")}


def rows_of(store: str) -> tuple[Any, Any]:
    """X (n, p) float32 with the constant last, and y (n,)."""
    path = Path(store)
    X, y = (np.load(path.parent / f"{path.stem}.{name}.npy") for name in ("values", "y"))
    return np.hstack([X, np.ones((len(X), 1), np.float32)]), y


def peer(who: str, C: float, l1: float, rows: int, iterations: int) -> Any:
    """An estimator of scikit-learn whose objective is a multiple of ours."""
    from sklearn.linear_model import ElasticNet, LogisticRegression, SGDClassifier

    ratio = l1 / (1.0 + l1)
    shared: dict[str, Any] = {"l1_ratio": ratio, "fit_intercept": False, "max_iter": iterations, "random_state": 0}
    alpha = 1.0 / (rows * C * (1.0 - ratio))
    if who == "saga":
        return LogisticRegression(C=C * (1.0 - ratio), solver="saga", tol=1e-5, **shared)
    if who == "SGDClassifier":
        return SGDClassifier(loss="log_loss", penalty="elasticnet", alpha=alpha, tol=None, **shared)
    return ElasticNet(alpha=0.5 * alpha, tol=1e-6, **shared)


def ours(store: str, loss: str, C: float, l1: float, tolerance: float) -> Row:
    """A fit that was compiled before."""
    from streamsvm.jobs.fit.options import FitJob
    from streamsvm.jobs.fit_in_memory import fit_in_memory
    from streamsvm.store import open_store

    job = FitJob(store, "none", loss=loss, C=C, l1=l1, tolerance=tolerance, memory=MEMORY, threads=1)
    for _ in range(2):
        began = time.process_time()
        found = fit_in_memory(job, open_store(store))
        seconds = time.process_time() - began
    run = found.training.runs[0].certificate
    assert run is not None
    w = found.model.weights[0]
    return {"CPU s": seconds, "P": run.primal, "D": run.dual, "used": int(np.count_nonzero(w[:-1]))}


def theirs(who: str, store: str, C: float, l1: float, iterations: int) -> Row:
    """A fit, and P of it, in float64."""
    warnings.simplefilter("ignore")
    X, y = rows_of(store)
    machine, began = peer(who, C, l1, len(y), iterations), time.process_time()
    machine.fit(X, y)
    seconds, w = time.process_time() - began, np.ravel(machine.coef_).astype(np.float64)
    f = X @ w
    lost = np.square(f - y).sum() if who == "ElasticNet" else np.logaddexp(0.0, -y * f).sum()
    P = float(0.5 * w @ w + l1 * np.abs(w).sum() + C * lost)
    return {"CPU s": seconds, "P": P, "used": int(np.count_nonzero(w[:-1]))}


def measured(who: str, store: str, loss: str, options: Any, tolerance: float) -> Row:
    """What a contestant came to, and the peak of this process."""
    if who == "streamsvm":
        found = ours(store, loss, options.C, options.l1, tolerance)
    else:
        found = theirs(who, store, options.C, options.l1, options.iterations)
    return found | {"peak MiB": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10}


def alone(*given: Any) -> Row:
    """The same in a process of its own."""
    with ProcessPoolExecutor(1, get_context("spawn")) as pool:
        return pool.submit(partial(measured, *given)).result()


def main() -> None:
    options = arguments(
        __doc__, sets="covtype", losses="logistic", C=1e-3, l1=20.0, rows=500_000, iterations=100, who=""
    )
    rows: list[Row] = []
    for name in options.sets.split(","):
        with scratch() as directory:
            store = made(name, options.rows, directory)
            export(store, False)
            for loss in options.losses.split(","):
                best = alone("streamsvm", store.name, loss, options, TIGHT)["D"]
                for who in options.who.split(",") if options.who else CONTESTANTS[loss]:
                    found = alone(who, store.name, loss, options, 1e-3)
                    rows.append({"set": name, "loss": loss, "who": who, **found, "above D": found["P"] / best - 1.0})
                    print(rows[-1], flush=True)
    show("elastic net", rows, options)


if __name__ == "__main__":
    main()
