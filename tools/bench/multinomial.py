"""All classes in one problem on letter and mnist: the objective beside that of LIBLINEAR -s 4, readings beside those of one class.

python -m tools.bench.multinomial --sets letter,mnist --rows 10000
"""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.datasets import load_svmlight_file
from sklearn.svm import LinearSVC

from streamsvm.jobs.fit.options import FitJob
from streamsvm.jobs.fit.run import FitResult, fit
from streamsvm.rows import Dense
from streamsvm.store import create
from tools.bench.calibration import mnist
from tools.measure.harness import DATA, Row, arguments, scratch, show, unpacked
from tools.measure.kernel_features import cpu_of

COSTS = {"letter": 0.1, "mnist": 0.01}
LETTER_COLUMNS = 16


def rows_of(name: str, directory: Path, limit: int) -> tuple[Any, Any]:
    """Return the first rows (n, d) float32 of a set, and their class codes (n,)."""
    if name == "mnist":
        X, y, _, _ = mnist(DATA)
    else:
        X, y = load_svmlight_file(str(unpacked("letter.xz", directory)), n_features=LETTER_COLUMNS)
        X = X.toarray()
    return np.ascontiguousarray(X[:limit], np.float32), np.unique(y[:limit], return_inverse=True)[1].astype(np.int32)


def objective(W: Any, C: float, X: Any, codes: Any) -> float:
    """P of weights (classes, columns + 1), in float64."""
    F = X.astype(np.float64) @ W[:, :-1].T + W[:, -1]
    rows = np.arange(len(X))
    own = F[rows, codes]
    F[rows, codes] = -np.inf
    return float(0.5 * np.sum(W**2) + C * np.maximum(0.0, 1.0 - own + F.max(axis=1)).sum())


def ours(who: str, job: FitJob) -> tuple[Row, FitResult]:
    seconds, _, result = cpu_of(lambda: fit(job))
    gap = max(run.certificate.gap for run in result.training.runs if run.certificate)
    return {"who": who, "passes": result.training.passes, "CPU s": seconds, "gap": gap}, result


def compared(name: str, directory: Path, limit: int, tolerance: float) -> list[Row]:
    X, codes = rows_of(name, directory, limit)
    C, classes = COSTS[name], int(codes.max()) + 1
    writer = create(directory / "s", sparse=False, chunk_bytes=1 << 18)
    writer.append(Dense(X), codes, None)
    writer.commit(tuple(f"{k:02d}" for k in range(classes)), X.shape[1], {})
    settings: dict[str, Any] = {"C": C, "loss": "hinge", "solver": "dcd", "tolerance": tolerance, "overwrite": True}
    settings |= {"max_passes": 5000}
    together, result = ours(
        "together", FitJob(str(directory / "s"), str(directory / "m"), multi_class="crammer_singer", **settings)
    )
    P = objective(result.model.weights, C, X, codes)
    alone = [
        ours("one of them", FitJob(str(directory / "s"), str(directory / "m"), positive=f"{k:02d}", **settings))[0]
        for k in range(classes)
    ]
    alone.sort(key=lambda row: row["passes"])
    warnings.simplefilter("ignore")
    model = LinearSVC(multi_class="crammer_singer", C=C, tol=tolerance, intercept_scaling=1.0, max_iter=5000)
    seconds, _, theirs = cpu_of(lambda: model.fit(X, codes))
    best = objective(np.column_stack([theirs.coef_, theirs.intercept_]), C, X, codes)
    found = {"set": name, "rows": len(X), "classes": classes}
    return [
        found | together | {"P": P, "P - LIBLINEAR": P / best - 1.0},
        found | alone[len(alone) // 2] | {"who": "median of one class"},
        found | alone[-1] | {"who": "slowest of one class"},
        found | {"who": "LIBLINEAR -s 4", "CPU s": seconds, "P": best},
    ]


def main() -> None:
    options = arguments(__doc__, sets="letter,mnist", rows=60_000, tolerance=1e-3)
    rows: list[Row] = []
    for name in options.sets.split(","):
        with scratch() as directory:
            rows += compared(name, directory, options.rows, options.tolerance)
    show("all classes in one problem", rows, options)


if __name__ == "__main__":
    main()
