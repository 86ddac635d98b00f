"""Fuzz certificates: python tools/fuzz/certificates.py [--problems 2000] [--seed 0] [--out FILE].

Small random problems - scales from 1e-30 to 1e30, columns constant, equal, opposite or far from 0, rows repeated, with both
labels, separable, weighted - through every solver, loss and kernel. Of each fit an independent float64 computation (pair by
pair, from differences) says

- whether the printed primal is below that of the model that was saved, by more than the printed rounding;
- whether the printed dual is above the best primal known, that of the model or of another solver (L-BFGS on the dual);
- whether "converged" was said of a gap that is not the one asked for, or anything is not a number;
- whether it took longer than its time limit and as much again.

An error that names its cause (usage, data, settings) is an answer; an internal error or an exception is a finding. Exit code
1 if there is a finding. The counts go to standard output, the findings, with the seed that makes them again, to --out.
"""

from __future__ import annotations

import argparse
import collections
import json
import sys
import tempfile
import time
import traceback
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import minimize
from scipy.spatial.distance import cdist

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from streamsvm.errors import ConfigError, DataError, StreamSVMError, UsageError
from streamsvm.jobs.fit.options import FitJob
from streamsvm.jobs.fit.run import fit
from streamsvm.rows import CSR, Dense
from streamsvm.store import create

LINEAR = ("auto", "dcd", "newton", "sgd", "pegasos", "assg")
EXACT = ("decomposition", "blended", "fw", "mfw", "swap", "partan")
LOSSES = ("hinge", "squared_hinge", "huber")
KERNELS = ("rbf", "laplacian", "polynomial", "sigmoid", "linear")
SECONDS, SLACK = 5.0, 1e-9
MU = 0.1


class Case(NamedTuple):
    """A problem and how it is to be solved."""

    X: Any
    y: Any
    s: Any
    sparse: bool
    settings: dict[str, Any]


def rows_of(rng: np.random.Generator) -> tuple[Any, Any]:
    """Rows float32 and labels, with what real tables have."""
    n, d = int(rng.integers(4, 120)), int(rng.integers(1, 7))
    X = rng.normal(size=(n, d)) if rng.random() < 0.7 else rng.integers(-3, 4, (n, d)).astype(float)
    y = np.where(X @ rng.normal(size=d) + (0.0 if rng.random() < 0.3 else 1.0) * rng.normal(size=n) > 0, 1, -1)
    y[:2] = 1, -1
    if rng.random() < 0.5:
        X = X * 10.0 ** (rng.uniform(-30, 30) if rng.random() < 0.3 else rng.uniform(-4, 4, d))
    if rng.random() < 0.3:
        X = X + rng.choice([1e3, 1e4, 1e6, 2e7]) * (rng.random(d) < 0.7)
    if rng.random() < 0.2:
        X[:, int(rng.integers(d))] = rng.choice([0.0, 1.0, 1e4])
    if rng.random() < 0.2:
        X[:, int(rng.integers(d))] = rng.choice([-1.0, 1.0]) * X[:, int(rng.integers(d))]
    if rng.random() < 0.3:
        again = rng.integers(0, n, n // 2)
        X, y = np.vstack([X, X[again]]), np.concatenate([y, rng.choice([-1, 1]) * y[again]])
    return np.clip(X, -3e38, 3e38).astype(np.float32), y


def case_of(seed: int) -> Case:
    """The problem of a seed."""
    rng = np.random.default_rng(seed)
    X, y = rows_of(rng)
    s = None
    if rng.random() < 0.3:
        s = rng.choice([0.0, 1e-3, 1.0, 1e3], len(y), p=[0.1, 0.2, 0.5, 0.2]).astype(np.float32)
        s[:2] = 1.0
    kind, C = rng.random(), 10.0 ** rng.uniform(-4, 6)
    settings: dict[str, Any] = {"loss": str(rng.choice(LOSSES)), "C": C, "max_passes": 300, "time_limit": SECONDS}
    settings["tolerance"] = float(rng.choice([1e-2, 1e-3, 1e-5]))
    if kind < 0.4:
        settings |= {"solver": str(rng.choice(LINEAR)), "standardize": bool(rng.random() < 0.2)}
    else:
        gamma: Any = "scale" if rng.random() < 0.5 else 10.0 ** rng.uniform(-6, 12)
        settings |= {"kernel": str(rng.choice(KERNELS[:-1] if kind < 0.6 else KERNELS)), "gamma": gamma}
        if kind < 0.6:
            settings |= {"landmarks": int(rng.integers(1, 30)), "solver": str(rng.choice(("auto", "newton", "dcd")))}
        else:
            settings["solver"] = str(rng.choice(EXACT))
            if settings["solver"] != "decomposition":
                settings["loss"] = "squared_hinge"
    return Case(X, y, s, bool(rng.random() < 0.3), settings)


def store_of(path: Path, case: Case) -> None:
    """Write the rows of a case."""
    X, rows = case.X, Dense(np.ascontiguousarray(case.X))
    if case.sparse:
        i, j = np.nonzero(X)
        indptr = np.concatenate([[0], np.cumsum(np.bincount(i, minlength=len(X)))]).astype(np.int64)
        rows = CSR(X[i, j], j.astype(np.int32), indptr)  # type: ignore[assignment]
    writer = create(path, sparse=case.sparse, chunk_bytes=4096, overwrite=True)
    writer.append(rows, (case.y > 0).astype(np.int32), case.s)
    writer.commit(("a", "b"), X.shape[1], {"names": None})


def losses(loss: str, m: Any) -> Any:
    """The loss at each margin."""
    if loss == "huber":
        z = 1.0 + MU - m
        return np.where(z <= 0, 0.0, np.where(z >= 2 * MU, 1.0 - m, z * z / (4 * MU)))
    z = np.maximum(0.0, 1.0 - m)
    return z if loss == "hinge" else z * z


def kernel64(name: str, p: dict[str, float], X: Any, Z: Any) -> Any:
    """Kernel values in float64, distances from differences."""
    if name == "rbf":
        return np.exp(-p["gamma"] * cdist(X, Z, "sqeuclidean"))
    if name == "laplacian":
        return np.exp(-p["gamma"] * cdist(X, Z, "cityblock"))
    if name == "linear":
        return p["scale"] * (X @ Z.T)
    product = p["gamma"] * (X @ Z.T) + p["coef0"]
    return np.tanh(product) if name == "sigmoid" else product ** p["degree"]


class Seen(NamedTuple):
    """A model over all rows: its value, the Gram matrix it is regularized in, and how large the sums were."""

    primal: float
    K: Any
    free: bool
    size: float


def seen_by(case: Case, model: Any, solver: str) -> Seen:
    """The value of a saved model."""
    C = case.settings["C"] * (np.ones(len(case.y)) if case.s is None else case.s.astype(np.float64))
    w, b, loss = model.weights[0, :-1], float(model.weights[0, -1]), case.settings["loss"]
    if model.expansion is None:
        X = case.X.astype(np.float64)
        f, K, square = X @ w + b, X @ X.T + 1.0, float(w @ w) + b * b
        if case.settings.get("standardize"):
            K, square = None, float("nan")
        sums = np.abs(X) @ np.abs(w) + abs(b)
        value = 0.5 * square + float(C @ losses(loss, case.y * f))
        return Seen(value, K, False, float(C @ sums) + abs(value))
    e = model.expansion
    X = case.X if e.scale is None else (case.X - e.shift) * e.scale
    points = e.points.values if isinstance(e.points, Dense) else dense_of(e.points, X.shape[1])
    X, Z = X.astype(np.float64), points.astype(np.float64)
    K_xz, K_zz = kernel64(e.kernel, e.parameters, X, Z), kernel64(e.kernel, e.parameters, Z, Z)
    f, free = K_xz @ w + b, solver == "decomposition"
    square = float(w @ K_zz @ w) + (0.0 if free else b * b)
    K = kernel64(e.kernel, e.parameters, X, X) + (0.0 if free else 1.0) if "landmarks" not in case.settings else None
    # W is float32: the norm that was minimized is that of w, and w'W'K W w is it only nearly
    nearly = 1e8 * abs(square) if "landmarks" in case.settings else 0.0
    size = nearly + float(np.abs(w) @ np.abs(K_zz) @ np.abs(w)) + float(C @ (np.abs(K_xz) @ np.abs(w) + abs(b)))
    return Seen(0.5 * square + float(C @ losses(loss, case.y * f)), K, free, size)


def dense_of(rows: CSR, columns: int) -> Any:
    """CSR rows as a matrix."""
    out = np.zeros((len(rows.indptr) - 1, columns), np.float32)
    out[np.repeat(np.arange(len(out)), np.diff(rows.indptr)), rows.indices] = rows.data
    return out


def another_primal(case: Case, K: Any) -> float:
    """The primal value of what L-BFGS makes of the dual of a problem without a free bias; infinity where it fails."""
    C = case.settings["C"] * (np.ones(len(case.y)) if case.s is None else case.s.astype(np.float64))
    y, loss = case.y.astype(np.float64), case.settings["loss"]
    Q = y[:, None] * K * y
    used = C > 0
    box = [(0.0, (None if loss == "squared_hinge" else c) if u else 0.0) for c, u in zip(C, used, strict=True)]
    ridge = np.where(used, {"hinge": 0.0, "squared_hinge": 0.5, "huber": 2 * MU}[loss] / np.where(used, C, 1.0), 0.0)
    linear = 1.0 + (MU if loss == "huber" else 0.0)

    def dual(a: Any) -> tuple[float, Any]:
        g = Q @ a + ridge * a
        return float(0.5 * a @ g - linear * a.sum()), g - linear

    with np.errstate(all="ignore"):
        found = minimize(dual, np.zeros(len(y)), jac=True, bounds=box, method="L-BFGS-B", options={"maxiter": 2000})
        f = K @ (found.x * y)
        value = 0.5 * float((found.x * y) @ f) + float(C @ losses(loss, y * f))
    return value if np.isfinite(value) else float("inf")


def findings_of(case: Case, directory: Path) -> tuple[str, list[str]]:
    """What came of a case, and what is wrong with it. What was slow is timed again: passes may have been compiled."""
    ended, wrong, spent = _attempt(case, directory)
    if spent > 2 * SECONDS:
        ended, wrong, spent = _attempt(case, directory)
    return ended, wrong + ([f"took {spent:.1f} s"] if spent > 2 * SECONDS else [])


def _attempt(case: Case, directory: Path) -> tuple[str, list[str], float]:
    """What came of a case, what is wrong, and the seconds it took."""
    store_of(directory / "store", case)
    began = time.perf_counter()
    try:
        result = fit(FitJob(str(directory / "store"), str(directory / "model"), overwrite=True, **case.settings))
    except (UsageError, DataError, ConfigError) as error:
        return f"refused {error.code}", [], 0.0
    except StreamSVMError as error:
        return f"error {error.code}", [str(error)], 0.0
    except Exception:  # noqa: BLE001  this is what is looked for
        return "exception", [traceback.format_exc()[-1500:]], 0.0
    spent, found, wrong = time.perf_counter() - began, result.training.runs[0].certificate, []
    assert found is not None
    values = [found.primal, found.dual, found.rounding, *result.model.weights.ravel()]
    if not np.isfinite(values).all():
        wrong.append(f"not finite: {found}")
    status = result.training.status.value
    epsilon = "simplex_gap" in found.facts
    if status == "converged" and found.gap > case.settings["tolerance"] and not epsilon:
        wrong.append(f"converged with a gap of {found.gap}")
    with np.errstate(all="ignore"):
        seen = seen_by(case, result.model, result.plan.solver_name)
    slack = SLACK * abs(seen.primal) + 1e-13 * seen.size + found.rounding
    if seen.primal > found.primal + slack:
        wrong.append(f"primal {found.primal!r} +- {found.rounding:.2g} below the model's {seen.primal!r}")
    kernel = result.plan.problems[0].kernel
    if seen.K is None or (kernel is not None and not kernel.positive_semidefinite()):
        return status, wrong, spent
    best = seen.primal if seen.free else min(seen.primal, another_primal(case, seen.K))
    if found.dual > best + slack:
        wrong.append(f"dual {found.dual!r} +- {found.rounding:.2g} above a primal of {best!r}")
    return status, wrong, spent


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--problems", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path)
    asked = parser.parse_args()
    counts: collections.Counter[str] = collections.Counter()
    found: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as directory:
        for seed in range(asked.seed, asked.seed + asked.problems):
            case = case_of(seed)
            ended, wrong = findings_of(case, Path(directory))
            counts[ended] += 1
            for text in wrong:
                found.append({"seed": seed, "settings": case.settings, "found": text})
                print(json.dumps(found[-1]), flush=True)
    print(json.dumps({"problems": asked.problems, "findings": len(found), **counts}))
    if asked.out:
        asked.out.write_text(json.dumps({"counts": counts, "findings": found}, indent=1), encoding="utf-8")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
