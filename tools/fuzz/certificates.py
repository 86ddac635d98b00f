"""Fuzz certificates: python tools/fuzz/certificates.py [--problems 2000] [--seed 0] [--later] [--out FILE].

Small random problems - scales from 1e-30 to 1e30, columns constant, equal, opposite or far from 0, rows repeated, with both
labels, separable, weighted - through every solver, loss and kernel. Of each fit an independent float64 computation (pair by
pair, from differences; the optimum by an interior point, ``independent.py``) says

- whether the printed primal is below that of the model that was saved, or below a dual value of the independent solution;
- whether the printed dual is above the best primal known, that of the model or of the independent solution;
- whether "converged" was said of a gap that is not the one asked for, or anything is not a number;
- whether it took longer than its time limit, and how much, waiting for a processor that others use left out.

Values are apart if they are by more than the printed rounding and what rounding can have done to the independent ones,
which is derived, and shown where it is as much as the tolerance ("blunt"): such a comparison says little. An error that
names its cause (usage, data, settings) is an answer; an internal error or an exception is a finding. Exit code 1 if there
is a finding. The counts go to standard output, the findings, with the seed that makes them again, to --out.
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

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from streamsvm.errors import ConfigError, DataError, InterruptedRun, StreamSVMError, UsageError
from streamsvm.features.nystrom import Embedded, Nystrom
from streamsvm.features.scaling import Standardized
from streamsvm.jobs.fit.options import FitJob
from streamsvm.jobs.fit.run import fit
from streamsvm.rows import CSR, Dense
from streamsvm.store import create
from tools.fuzz.independent import Bound, Features, Gram, Rows, U, kernel_values, primal, solve

FREE = ("decomposition", "kernel_active_set")
"""Their intercept is free, and any loss is theirs."""
LOSSES = ("hinge", "squared_hinge", "huber")
KERNELS = ("rbf", "laplacian", "polynomial", "sigmoid", "linear")
SECONDS, LATE = 1.0, 5.0
"""The time limit of every fit, and how much later it may end."""


class Solvers(NamedTuple):
    """Which solvers are drawn from. A seed makes its problem again with the same of them only."""

    linear: tuple[str, ...]
    """Of linear functions."""
    landmarks: tuple[str, ...]
    """Of kernel features."""
    exact: tuple[str, ...]
    """Of kernels as they are."""


FIRST = Solvers(
    ("auto", "dcd", "newton", "sgd", "pegasos", "assg"),
    ("auto", "newton", "dcd"),
    ("decomposition", "blended", "fw", "mfw", "swap", "partan"),
)
LATER = Solvers(
    ("interior_point", "active_set", "cutting_plane", "mpu", "sgd_qn"),
    ("interior_point", "cutting_plane", "assg"),
    ("kernel_active_set",),
)
"""Solvers that came after the first seeds had been noted."""


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


def case_of(seed: int, solvers: Solvers = FIRST) -> Case:
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
        settings |= {"solver": str(rng.choice(solvers.linear)), "standardize": bool(rng.random() < 0.2)}
    else:
        gamma: Any = "scale" if rng.random() < 0.5 else 10.0 ** rng.uniform(-6, 12)
        settings |= {"kernel": str(rng.choice(KERNELS[:-1] if kind < 0.6 else KERNELS)), "gamma": gamma}
        if kind < 0.6:
            settings |= {"landmarks": int(rng.integers(1, 30)), "solver": str(rng.choice(solvers.landmarks))}
        else:
            settings["solver"] = str(rng.choice(solvers.exact))
            if settings["solver"] not in FREE:
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


class Seen(NamedTuple):
    """A saved model over all rows: its P, the problem, and the space it is solved in."""

    primal: Bound
    rows: Rows
    space: Gram | Features


def seen_by(case: Case, result: Any) -> Seen:
    """The value of a saved model, and the problem it is of."""
    plan, model = result.plan, result.model
    C = case.settings["C"] * (np.ones(len(case.y)) if case.s is None else case.s.astype(np.float64))
    rows = Rows(case.y.astype(np.float64), C, case.settings["loss"], plan.solver_name in FREE)
    if model.expansion is None:
        return _linear(case, result, rows)
    f, off, Z, K_xz, off_k = _decisions(case, model)
    if isinstance(plan.features, Nystrom | Embedded):
        W = plan.features.projection.W.astype(np.float64)
        phi = np.column_stack([K_xz @ W, np.ones(len(f))])
        sums = off_k + len(W) * U * float(np.abs(K_xz).max(initial=0.0))
        space = Features(phi, np.append(sums * np.abs(W).sum(axis=0), 0.0))
        w = plan.solver.solution(result.training.runs[0].state).w
        return Seen(primal(rows, f, off, space.of(w)[2]), rows, space)
    w, b = model.weights[0, :-1], float(model.weights[0, -1])
    K_zz, off_z = kernel_values(model.expansion.kernel, model.expansion.parameters, Z, Z)
    _, _, square = Gram(K_zz, off_z).values(w)
    if not rows.free:
        square = Bound(square.value + b * b, square.off + 4 * U * b * b)
    X = _rows_of(case, model.expansion)
    K, off_x = kernel_values(model.expansion.kernel, model.expansion.parameters, X, X)
    return Seen(primal(rows, f, off, square), rows, Gram(K + (0.0 if rows.free else 1.0), off_x + U))


def _linear(case: Case, result: Any, rows: Rows) -> Seen:
    """The same for weights of columns, which may have been scaled."""
    w, b = result.model.weights[0, :-1], float(result.model.weights[0, -1])
    X, features = case.X.astype(np.float64), result.plan.features
    seen = X
    if isinstance(features, Standardized):  # in float64: what scaling in float32 does is to be counted
        seen = (X - features.shift.astype(np.float64)) * features.scale.astype(np.float64)
    space = Features(np.column_stack([seen, np.ones(len(X))]), np.append(8 * U * np.abs(seen).max(axis=0), 0.0))
    off = (len(w) + 6) * U * float(np.abs(X).max(axis=0) @ np.abs(w) + abs(b))
    own = result.plan.solver.solution(result.training.runs[0].state).w
    return Seen(primal(rows, X @ w + b, off, space.of(own)[2]), rows, space)


def _decisions(case: Case, model: Any) -> tuple[Any, float, Any, Any, float]:
    """Decision values of a kernel machine, how far off they can be, its points, their kernel values and how far those."""
    e, w, b = model.expansion, model.weights[0, :-1], float(model.weights[0, -1])
    points = e.points.values if isinstance(e.points, Dense) else dense_of(e.points, case.X.shape[1])
    Z = points.astype(np.float64)
    K, off = kernel_values(e.kernel, e.parameters, _rows_of(case, e), Z)
    sums = off + (len(w) + 2) * U * float(np.abs(K).max(initial=0.0))
    return K @ w + b, float(np.abs(w).sum()) * sums + 2 * U * abs(b), Z, K, off


def _rows_of(case: Case, expansion: Any) -> Any:
    """The rows as the kernel sees them, float64."""
    X = case.X if expansion.scale is None else (case.X - expansion.shift) * expansion.scale
    return X.astype(np.float64)


def dense_of(rows: CSR, columns: int) -> Any:
    """CSR rows as a matrix."""
    out = np.zeros((len(rows.indptr) - 1, columns), np.float32)
    out[np.repeat(np.arange(len(out)), np.diff(rows.indptr)), rows.indices] = rows.data
    return out


def findings_of(case: Case, directory: Path) -> tuple[str, list[str]]:
    """What came of a case, and what is wrong with it. What was slow is timed again: passes may have been compiled."""
    ended, wrong, spent = _attempt(case, directory)
    if spent > SECONDS + LATE:
        ended, wrong, spent = _attempt(case, directory)
    return ended, wrong + ([f"took {spent:.1f} s"] if spent > SECONDS + LATE else [])


def _attempt(case: Case, directory: Path) -> tuple[str, list[str], float]:
    """What came of a case, what is wrong, and the seconds it took."""
    store_of(directory / "store", case)
    began = time.perf_counter() - _waited()
    try:
        result = fit(FitJob(str(directory / "store"), str(directory / "model"), overwrite=True, **case.settings))
    except (UsageError, DataError, ConfigError) as error:
        return f"refused {error.code}", [], 0.0
    except InterruptedRun:  # before there was a result to certify
        return "stopped", [], time.perf_counter() - _waited() - began
    except StreamSVMError as error:
        return f"error {error.code}", [str(error)], 0.0
    except Exception:  # noqa: BLE001  this is what is looked for
        return "exception", [traceback.format_exc()[-1500:]], 0.0
    spent, found, wrong = time.perf_counter() - _waited() - began, result.training.runs[0].certificate, []
    assert found is not None
    values = [found.primal, found.dual, found.rounding, *result.model.weights.ravel()]
    if not np.isfinite(values).all():
        wrong.append(f"not finite: {found}")
    status = result.training.status.value
    epsilon = "simplex_gap" in found.facts
    if status == "converged" and found.gap > case.settings["tolerance"] and not epsilon:
        wrong.append(f"converged with a gap of {found.gap}")
    wrong += contradictions(case, result, found)
    return status, wrong, spent


def _waited() -> float:
    """Seconds for which this thread was ready to run and had no processor."""
    return int(Path("/proc/thread-self/schedstat").read_text().split()[1]) / 1e9


def contradictions(case: Case, result: Any, found: Any) -> list[str]:
    """What an independent computation has against a certificate; a line that begins with "blunt" is no finding."""
    with np.errstate(all="ignore"):
        seen = seen_by(case, result)
    wrong, shown = [], f"+- {found.rounding:.2g}"
    if seen.primal.value - seen.primal.off > found.primal + found.rounding:
        wrong.append(f"primal {found.primal!r} {shown} below the model's {seen.primal}")
    plan = result.plan
    kernel = plan.problems[0].kernel if plan.request is None else None
    if kernel is not None and not kernel.positive_semidefinite():
        return wrong
    upper, lower, _ = solve(seen.rows, seen.space)
    upper = min(upper, seen.primal, key=lambda bound: bound.value + bound.off)
    if found.dual - found.rounding > upper.value + upper.off:
        wrong.append(f"dual {found.dual!r} {shown} above a primal of {upper}")
    if found.primal + found.rounding < lower.value - lower.off:
        wrong.append(f"primal {found.primal!r} {shown} below a dual of {lower}")
    if upper.off > case.settings["tolerance"] * abs(upper.value):
        wrong.append(f"blunt: {upper}")
    return wrong


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--problems", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--later", action="store_true", help="the solvers that came later: " + ", ".join(LATER.linear + LATER.exact)
    )
    parser.add_argument("--out", type=Path)
    asked = parser.parse_args()
    counts: collections.Counter[str] = collections.Counter()
    found: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as directory:
        for seed in range(asked.seed, asked.seed + asked.problems):
            case = case_of(seed, LATER if asked.later else FIRST)
            ended, wrong = findings_of(case, Path(directory))
            counts[ended] += 1
            if seed % 100 == 99:
                print(f"seed {seed}: {dict(counts)}", file=sys.stderr, flush=True)
            counts["blunt"] += sum(text.startswith("blunt") for text in wrong)
            for text in wrong:
                if text.startswith("blunt"):
                    continue
                found.append({"seed": seed, "settings": case.settings, "found": text})
                print(json.dumps(found[-1]), flush=True)
    print(json.dumps({"problems": asked.problems, "findings": len(found), **counts}))
    if asked.out:
        asked.out.write_text(json.dumps({"counts": counts, "findings": found}, indent=1), encoding="utf-8")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
