"""The offset table: python -m tools.measure.offset_table [--rows 300] [--quick].

Columns at 0, 1e3, 1e4 and 1e6, each +- 1; RBF and Laplacian kernels; exact and Nystrom; C of 1, 1e3 and 1e6; widths from
1e-6 to 1e12; a column of ids around 2e7. Beside every fit stands scikit-learn's SVC on the Gram matrix in float64 (tol 1e-10),
whose own P and D are computed here; where it does not settle, P and the plane are those of an interior point. "apart" is by
how much the interval printed, rounding included, misses the interval of those two (0: they meet), as a share of P; "points"
is by how much the accuracies on new rows differ. Nystrom optima are those of another problem, with a regularized bias: there
it is the interior point of tools/fuzz/independent.py, on the features in float64. Accuracies of narrow kernels and large C
differ within the tolerance of either solver.
"""

from __future__ import annotations

import argparse
import itertools
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from streamsvm.features.nystrom import Embedded, Nystrom
from streamsvm.features.scaling import Standardized
from streamsvm.jobs.fit.options import FitJob
from streamsvm.jobs.fit.run import fit
from streamsvm.rows import Dense
from streamsvm.store import create
from tools.fuzz.independent import Features, Gram, Rows, best_bias, kernel_values, solve

HELD = 10_000
"""New rows the accuracy is of."""
MOST_STEPS = 300_000
"""The most steps SVC may take: beyond, at a large C, it has not settled."""

TOLERANCES = {1.0: 1e-5, 1e3: 1e-4, 1e6: 1e-3}
"""By C."""
Data = tuple[Any, Any]
"""Rows float32 and labels."""


class Setting(NamedTuple):
    """A row of the table."""

    offset: float
    kernel: str
    gamma: float
    C: float
    landmarks: int | None = None


class Found(NamedTuple):
    """P and D, and the share of new rows that is right."""

    primal: float
    dual: float
    accuracy: float


def settings(quick: bool) -> list[Setting]:
    """The rows of the table."""
    table = [
        Setting(offset, kernel, 0.5, C, landmarks)
        for offset, kernel, C, landmarks in itertools.product(
            (0.0, 1e3, 1e4, 1e6), ("rbf", "laplacian"), (1.0, 1e3, 1e6), (None, 100)
        )
    ]
    table += [Setting(1e4, kernel, 10.0**e, 1.0) for kernel in ("rbf", "laplacian") for e in (-6, -3, 3, 6, 12)]
    table += [Setting(2e7, kernel, 0.5, C) for kernel in ("rbf", "laplacian") for C in (1.0, 1e3)]
    return [one for one in table if one.C < 1e6 and one.offset in {0.0, 1e6}] if quick else table


def rows_of(offset: float, count: int, seed: int) -> tuple[Any, Any]:
    """Rows float32 around an offset, one label in ten wrong: a circle in two of three columns."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1.0, 1.0, (count, 3))
    y = np.where((np.square(X[:, :2]).sum(1) < 0.6) ^ (rng.random(count) < 0.1), 1.0, -1.0)
    if offset == 2e7:  # ids beside quantities near 0: float32 holds every other one
        X[:, 2] = np.arange(count) / count
        X[:, 2] += offset
    else:
        X += offset
    return X.astype(np.float32), y


def ours(directory: Path, one: Setting, seen: Data, new: Data) -> tuple[Found, float, Any]:
    """The fit of this package, its rounding, and all it ended with."""
    (X, y), (fresh, truth) = seen, new
    writer = create(directory / "store", sparse=False, chunk_bytes=1 << 16, overwrite=True)
    writer.append(Dense(X), (y > 0).astype(np.int32), None)
    writer.commit(("a", "b"), X.shape[1], {"names": None})
    kind: dict[str, Any] = {"landmarks": one.landmarks, "solver": "newton"} if one.landmarks else {}
    job = FitJob(
        str(directory / "store"), str(directory / "model"), kernel=one.kernel, gamma=one.gamma, C=one.C, loss="hinge", tolerance=TOLERANCES[one.C],
        time_limit=20.0, overwrite=True, **kind,
    )  # fmt: skip
    result = fit(job)
    found = result.training.runs[0].certificate
    assert found is not None
    right = np.mean(np.where(result.model.decision(Dense(fresh))[:, 0] > 0, 1, -1) == truth)
    return Found(found.primal, found.dual, float(right)), found.rounding, result


def another(one: Setting, result: Any, seen: Data, new: Data) -> Found:
    """The same by scikit-learn, or of features by an interior point, in float64 and from differences."""
    from sklearn.svm import SVC

    (X, y), (fresh, truth) = seen, new
    if isinstance(result.plan.features, Nystrom | Embedded):
        return _of_features(one, result.plan.features.projection, seen, new)
    K, off = kernel_values(one.kernel, {"gamma": one.gamma}, X.astype(float), X.astype(float))
    K_fresh, _ = kernel_values(one.kernel, {"gamma": one.gamma}, fresh.astype(float), X.astype(float))
    machine = SVC(kernel="precomputed", C=one.C, tol=1e-10, max_iter=MOST_STEPS).fit(K, y)
    x, bias = np.zeros(len(y)), float(machine.intercept_[0])
    x[machine.support_] = machine.dual_coef_[0]
    dual = float(np.abs(x).sum()) - 0.5 * float(x @ K @ x)
    if machine.n_iter_[0] >= MOST_STEPS:  # its D holds, but its plane is not the one of least P
        rows = Rows(y, np.full(len(y), one.C), "hinge", free=True)
        x = solve(rows, Gram(K, off))[2] * y
        bias = best_bias(rows, K @ x)
    primal = 0.5 * float(x @ K @ x) + one.C * float(np.maximum(0.0, 1.0 - y * (K @ x + bias)).sum())
    right = np.mean(np.where(K_fresh @ x + bias > 0, 1, -1) == truth)
    return Found(primal, dual, float(right))


def _of_features(one: Setting, projection: Any, seen: Data, new: Data) -> Found:
    """A machine on the features of the map, whose bias is regularized."""
    (X, y), (fresh, truth) = seen, new
    inner, Z = projection.inner, projection.points.columns.T.astype(float)

    def features(rows: Any) -> Any:
        centered = (rows - inner.shift) * inner.scale if isinstance(inner, Standardized) else rows
        K, _ = kernel_values(one.kernel, {"gamma": one.gamma}, centered.astype(float), Z)
        return np.column_stack([K @ projection.W.astype(float), np.ones(len(rows))])

    phi = features(X)
    upper, lower, a = solve(Rows(y, np.full(len(y), one.C), "hinge", free=False), Features(phi, np.zeros(phi.shape[1])))
    right = np.mean(np.where(features(fresh) @ (phi.T @ (a * y)) > 0, 1, -1) == truth)
    return Found(upper.value, lower.value, float(right))


def main() -> int:
    """Print the table. Returns 1 if an interval misses the other one, or an accuracy is off by more than 0.2 points."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=300)
    parser.add_argument("--first", type=int, default=0, help="the row to begin with")
    parser.add_argument("--quick", action="store_true", help="a few rows of the table")
    asked = parser.parse_args()
    print("| offset | kernel | gamma | C | | P | D | rounding | SVC: P | D | apart | points | status | s |")
    print("|---|---|---|---|---|---|---|---|---|---|---|---|---|---|")
    wrong = 0
    for one in settings(asked.quick)[asked.first :]:
        seen, new = rows_of(one.offset, asked.rows, 1), rows_of(one.offset, HELD, 2)
        with tempfile.TemporaryDirectory() as directory:
            began = time.process_time()
            found, rounding, result = ours(Path(directory), one, seen, new)
            spent = time.process_time() - began
        other = another(one, result, seen, new)
        apart = max(found.dual - rounding - other.primal, other.dual - found.primal - rounding, 0.0) / other.primal
        points = 100 * (found.accuracy - other.accuracy)
        wrong += apart > 1e-12 or abs(points) > 0.2
        kind = "exact" if one.landmarks is None else f"{one.landmarks} landmarks"
        print(
            f"| {one.offset:g} | {one.kernel} | {one.gamma:g} | {one.C:g} | {kind} | {found.primal:.9g} | {found.dual:.9g} "
            f"| {rounding:.1g} | {other.primal:.9g} | {other.dual:.9g} | {apart:.1g} | {points:+.2f} "
            f"| {result.training.status.value} | {spent:.1f} |",
            flush=True,
        )
    print(f"{wrong} of {len(settings(asked.quick)) - asked.first} rows miss")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
