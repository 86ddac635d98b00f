"""Fuzz certificates: python tools/fuzz/certificates.py [--problems 2000] [--seed 0] [--stops 0] [--solvers NAME,...] [--out FILE].

Small random problems - scales from 1e-30 to 1e30, columns constant, equal, opposite or far from 0, rows repeated, with both
labels, separable, weighted - through every registered solver, loss and kernel (``certificate_cases``). Of each fit an independent
float64 computation (pair by pair, from differences; the optimum by an interior point, ``independent.py``) says

- whether the printed primal is below that of the model that was saved, or below a dual value of the independent solution;
- whether the printed dual is above the best primal known, that of the model or of the independent solution;
- whether "converged" was said of a gap that is not the one asked for, or anything is not a number;
- whether it took longer than its time limit, and how much, waiting for a processor that others use left out.

Every fourth problem is fitted from a store on disk, the others in memory. With --stops K each problem is fitted in memory once more for each of up to K moments: wherever somebody looks at the clock, the time
limit is over from that look on (``stops``).

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
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from streamsvm.errors import ConfigError, DataError, InterruptedRun, StreamSVMError, UsageError
from streamsvm.features.nystrom import Embedded, Nystrom
from streamsvm.features.scaling import Standardized
from streamsvm.jobs.fit.options import FitJob
from streamsvm.jobs.fit.run import fit
from streamsvm.jobs.fit_in_memory import fit_in_memory
from streamsvm.rows import CSR, Dense
from tools.fuzz.certificate_cases import SECONDS, Case, case_of, free_bias, memory_store_of, store_of
from tools.fuzz.independent import Bound, Features, Gram, Rows, U, kernel_values, primal, solve
from tools.fuzz.stops import jumping, spread

CUT_PASSES = 40
"""Passes at most of a fit that is stopped at one moment after the other."""
LATE = 5.0
"""How many seconds after its time limit a fit may end."""


class Seen(NamedTuple):
    """A saved model over all rows: its P, the problem, and the space it is solved in."""

    primal: Bound
    rows: Rows
    space: Gram | Features


def seen_by(case: Case, result: Any) -> Seen:
    """The value of a saved model, and the problem it is of."""
    plan, model = result.plan, result.model
    C = case.settings["C"] * (np.ones(len(case.y)) if case.s is None else case.s.astype(np.float64))
    rows = Rows(case.y.astype(np.float64), C, case.settings["loss"], free_bias(plan.solver_name))
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


Attempt = tuple[str, list[str], float]
"""How a fit ended, what is wrong with it, and the seconds it took."""


def findings_of(case: Case, tried: Callable[[Case], Attempt]) -> tuple[str, list[str]]:
    """What came of a case, and what is wrong with it. What was slow is timed again: passes may have been compiled."""
    ended, wrong, spent = tried(case)
    if spent > SECONDS + LATE:
        ended, wrong, spent = tried(case)
    return ended, wrong + ([f"took {spent:.1f} s"] if spent > SECONDS + LATE else [])


def attempt(case: Case, directory: Path) -> Attempt:
    """A case on disk."""
    store_of(directory / "store", case)
    job = FitJob(str(directory / "store"), str(directory / "model"), overwrite=True, **case.settings)
    return _judged(case, lambda: fit(job))


def attempt_in_memory(case: Case) -> Attempt:
    """A case in memory."""
    return _judged(case, lambda: fit_in_memory(FitJob("memory", "none", **case.settings), memory_store_of(case)))


def cut_short(case: Case, most: int) -> list[str]:
    """What is wrong with a case that is stopped at one look at the clock, for up to ``most`` of its looks."""
    passes = min(CUT_PASSES, case.settings["max_passes"])
    settings = case.settings | {"max_passes": passes, "prefetch": 0, "threads": 1}
    job, store = FitJob("memory", "none", **settings), memory_store_of(case)

    def wrong_at(look: int) -> tuple[list[str], int]:
        with jumping(look) as clock:
            return _judged(case, lambda: fit_in_memory(job, store))[1], clock.looks

    wrong, looks = wrong_at(0)
    for look in spread(looks, most):
        wrong += [f"stopped at look {look} of {looks}: {text}" for text in wrong_at(look)[0]]
    return wrong


def _judged(case: Case, fitted: Callable[[], Any]) -> Attempt:
    """What comes of a fit."""
    began = time.monotonic() - _waited()
    try:
        result = fitted()
    except (UsageError, DataError, ConfigError) as error:
        return f"refused {error.code}", [], 0.0
    except InterruptedRun:  # before there was a result to certify
        return "stopped", [], time.monotonic() - _waited() - began
    except StreamSVMError as error:
        return f"error {error.code}", [str(error)], 0.0
    except Exception:  # noqa: BLE001  this is what is looked for
        return "exception", [traceback.format_exc()[-1500:]], 0.0
    spent, found, wrong = time.monotonic() - _waited() - began, result.training.runs[0].certificate, []
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
    parser.add_argument("--stops", type=int, default=0)
    parser.add_argument("--solvers", default="", help="problems of other solvers are left out")
    parser.add_argument("--out", type=Path)
    asked = parser.parse_args()
    counts: collections.Counter[str] = collections.Counter()
    drawn: collections.Counter[str] = collections.Counter()
    found: list[dict[str, Any]] = []
    chosen, seed = [name for name in asked.solvers.split(",") if name], asked.seed
    with tempfile.TemporaryDirectory() as directory:
        while drawn.total() < asked.problems:
            case, seed = case_of(seed), seed + 1
            if chosen and case.settings["solver"] not in chosen:
                continue
            on_disk = drawn.total() % 4 == 0  # writing and reading files takes four times as long as small fits do
            ended, wrong = findings_of(
                case, partial(attempt, directory=Path(directory)) if on_disk else attempt_in_memory
            )
            if asked.stops and not ended.startswith("refused"):
                wrong += cut_short(case, asked.stops)
            counts[ended] += 1
            drawn[case.settings["solver"]] += 1
            counts["blunt"] += any("blunt: " in text for text in wrong)
            for text in wrong:
                if "blunt: " not in text:
                    found.append({"seed": seed - 1, "settings": case.settings, "found": text})
                    print(json.dumps(found[-1]), flush=True)
            if drawn.total() % 100 == 0:
                print(f"{drawn.total()} problems, next seed {seed}: {dict(counts)}", file=sys.stderr, flush=True)
    record = {"seeds": [asked.seed, seed - 1], "problems": asked.problems, "findings": len(found), **counts}
    print(json.dumps(record | {"solvers": drawn}))
    if asked.out:
        asked.out.write_text(json.dumps({"counts": counts, "solvers": drawn, "findings": found}, indent=1))
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
