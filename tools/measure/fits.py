"""Fits that benchmarks and tables of papers share: linear ones on rows in memory, without files, and ones of kernel features as the
papers set them, beside scikit-learn's of the same landmarks.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from streamsvm.engine.local_loop import local_trainer
from streamsvm.engine.loop import FitLoop, RunSettings
from streamsvm.jobs.common_options import KernelOptions
from streamsvm.jobs.fit.options import FitJob
from streamsvm.jobs.fit.plan import make_plan
from streamsvm.store.views import MemoryStore
from streamsvm.types import Certificate, Stop, silent
from tools.measure.datasets import Data, Split, rows_of
from tools.measure.harness import Row

WHOLE = 1 << 40
"""Bytes of a block that any set fits in."""


def store_of(data: Data, chunk: int = WHOLE) -> MemoryStore:
    """The rows in random order, in blocks of so many bytes."""
    order = np.random.default_rng(1).permutation(data.rows)
    store = MemoryStore(chunk)
    store.append(rows_of(data.X[order]), (data.y[order] > 0).astype(np.int32))
    return store.commit(("-1", "1"), data.X.shape[1])


def trainer_of(store: MemoryStore, report: Any = silent, **job: Any) -> FitLoop:
    """A fit of these settings on the store, not yet begun."""
    asked = FitJob("memory", "none", **job)
    plan = make_plan(asked, store)
    return local_trainer(store, plan.solver, plan.problems, plan.features, RunSettings(depth=0), report)


def certificate_of(trainer: FitLoop, stop: Stop) -> tuple[Certificate, int]:
    """The last certificate, and how many readings led to it."""
    result = trainer.train(stop)
    certificate = result.runs[0].certificate
    assert certificate is not None
    return certificate, result.passes


# -- kernel features ---------------------------------------------------------------------------------------------------

SETTINGS = {
    "a9a": (800, 0.01, 1e-5),
    "ijcnn1": (5000, 2.0, 1e-8),
    "mnist": (3000, 0.02, 1e-7),
    "covtype": (1000, 0.1, 2e-6),
    "rcv1": (1000, 1.0, 1e-6),
    "SUSY": (1000, 0.02, 1e-8),
}
"""Landmarks, gamma and lambda (of lambda ||w||^2 + mean loss, so that C = 1 / (2 lambda n)); --m and --C override them."""
CUTOFFS = {"ijcnn1": 1e-3}
"""The rank as needed: with lambda 1e-8 weak directions fit the noise. --cutoff overrides."""
PIECE = 20_000
"""Rows whose features are made and judged at a time."""


def cpu_of(run: Callable[[], Any]) -> tuple[float, float, Any]:
    """CPU and wall seconds of a call, and what it gave."""
    gc.collect()
    cpu, wall = time.process_time(), time.perf_counter()
    result = run()
    return time.process_time() - cpu, time.perf_counter() - wall, result


def setting(name: str, rows: int, options: Any) -> tuple[int, float, float]:
    """Landmarks, gamma, C of a set with so many training rows: the paper's, unless others are asked for."""
    m, gamma, lam = SETTINGS[name]
    return options.m or m, gamma, options.C or 1 / (2 * lam * rows)


def cutoff_of(name: str, options: Any) -> float:
    """Of the eigenvalues: asked for, or the set's own."""
    return float(options.cutoff or CUTOFFS.get(name, KernelOptions.cutoff))


def sklearn_fitted(split: Split, options: Any, landmarks: Any) -> Row:
    """Nystroem + LinearSVC on the same landmarks: error, objective (the same as ours, constant included), CPU seconds."""
    from sklearn.kernel_approximation import Nystroem
    from sklearn.svm import LinearSVC

    m, gamma, C = setting(split.name, len(split.y), options)
    features = Nystroem(kernel="rbf", gamma=gamma, n_components=m, random_state=0)
    solver = LinearSVC(C=C, dual=False, tol=options.sklearn_tol, max_iter=20_000)
    cpu, _, _ = cpu_of(lambda: solver.fit(features.fit(landmarks).transform(split.X), split.y))
    wrong = [solver.predict(features.transform(X)) != y for X, y in pieces(split.X_test, split.y_test)]
    w = np.append(solver.coef_[0], solver.intercept_)
    short = [
        np.maximum(0.0, 1 - y * solver.decision_function(features.transform(X))) for X, y in pieces(split.X, split.y)
    ]
    primal = 0.5 * w @ w + C * float(np.square(np.concatenate(short)).sum())
    error = 100 * float(np.mean(np.concatenate(wrong)))
    return {"sklearn error %": error, "sklearn CPU s": cpu, "sklearn primal": primal, "steps": int(solver.n_iter_)}


def pieces(X: Any, y: Any) -> Any:
    """Rows in pieces that fit in memory once embedded."""
    return ((X[i : i + PIECE], y[i : i + PIECE]) for i in range(0, len(y), PIECE))
