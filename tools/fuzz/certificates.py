"""Fuzz certificates: python tools/fuzz/certificates.py [--problems 2000] [--seed 0] [--stops 0] [--solvers NAME,...] [--out FILE].

Small random problems - scales from 1e-30 to 1e30, columns constant, equal, opposite or far from 0, rows repeated, with both
labels, separable, weighted - through every registered solver, loss and kernel (of the registries: what is registered is drawn). Of each fit an independent
float64 computation (pair by pair, from differences; the optimum by an interior point, ``independent.py``) says

- whether the printed primal is below that of the model that was saved, or below a dual value of the independent solution;
- whether the printed dual is above the best primal known, that of the model or of the independent solution;
- whether "converged" was said of a gap that is not the one asked for, or anything is not a number;
- whether it took longer than its time limit, and how much, waiting for a processor that others use left out.

Every fourth problem is fitted from a store on disk, the others in memory. With --stops K each problem is fitted in memory once more for each of up to K moments: wherever somebody looks at the clock, the time
limit is over from that look on.

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
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from streamsvm.errors import ConfigError, DataError, InterruptedRun, StreamSVMError, UsageError
from streamsvm.features.nystrom import Embedded, Nystrom
from streamsvm.features.scaling import Standardized
from streamsvm.jobs.fit.driver import fit, fit_in_memory
from streamsvm.jobs.fit.options import FitJob
from streamsvm.losses import LOSSES
from streamsvm.rows import CSR, Dense
from streamsvm.solvers import SOLVERS, losses_of
from streamsvm.store import create
from streamsvm.store.views import MemoryStore
from tools.fuzz.independent import Bound, Features, Gram, Rows, U, kernel_values, primal, solve

FIRST_LOSSES = ("hinge", "squared_hinge", "huber")
KERNELS = ("rbf", "laplacian", "polynomial", "sigmoid", "linear")
SECONDS = 1.0
"""The time limit of every fit."""


class Solvers(NamedTuple):
    """What is drawn from. A seed makes its problem again with the same of it only."""

    linear: tuple[str, ...]
    """Solvers of linear functions."""
    landmarks: tuple[str, ...]
    """Of kernel features."""
    exact: tuple[str, ...]
    """Of kernels as they are."""
    losses: tuple[str, ...] = FIRST_LOSSES
    """Losses; a solver that does not take the one that is drawn is given one of its own."""


def registered() -> Solvers:
    """All solvers of two classes there are, and all losses of a margin."""
    exact = tuple(name for name in SOLVERS if SOLVERS[name]().exact_kernel)
    linear = ("auto", *(name for name in SOLVERS if name not in exact))
    return Solvers(linear, linear, exact, tuple(loss for loss in LOSSES if not LOSSES[loss]().numeric()))


def free_bias(solver: str) -> bool:
    """Whether the intercept costs nothing."""
    made = None if solver == "auto" else SOLVERS[solver]()
    return made.exact_kernel and made.free_bias


class Case(NamedTuple):
    """A problem and how it is to be solved."""

    X: Any
    y: Any
    s: Any
    sparse: bool
    settings: dict[str, Any]


def draw_rows(rng: np.random.Generator) -> tuple[Any, Any]:
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


def case_of(seed: int, solvers: Solvers | None = None) -> Case:
    """The problem of a seed."""
    rng, solvers = np.random.default_rng(seed), solvers or registered()
    X, y = draw_rows(rng)
    s = None
    if rng.random() < 0.3:
        s = rng.choice([0.0, 1e-3, 1.0, 1e3], len(y), p=[0.1, 0.2, 0.5, 0.2]).astype(np.float32)
        s[:2] = 1.0
    kind, C = rng.random(), 10.0 ** rng.uniform(-4, 6)
    settings: dict[str, Any] = {
        "loss": str(rng.choice(solvers.losses)),
        "C": C,
        "max_passes": 300,
        "time_limit": SECONDS,
    }
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
    own = list(LOSSES) if settings["solver"] == "auto" else losses_of(settings["solver"])
    if settings["loss"] not in own:
        settings["loss"] = str(
            np.random.default_rng([seed, 1]).choice([loss for loss in own if loss in solvers.losses])
        )
    return Case(X, y, s, bool(rng.random() < 0.3), settings)


def store_of(path: Path, case: Case) -> None:
    """Write the rows of a case."""
    writer = create(path, sparse=case.sparse, chunk_bytes=4096, overwrite=True)
    writer.append(*_stored(case))
    writer.commit(("a", "b"), case.X.shape[1], {"names": None})


def memory_store_of(case: Case) -> MemoryStore:
    """The same in memory."""
    store = MemoryStore(chunk_bytes=4096)
    store.append(*_stored(case))
    return store.commit(("a", "b"), case.X.shape[1])


def _stored(case: Case) -> tuple[Any, Any, Any]:
    """Rows, class codes and weights."""
    X, rows = case.X, Dense(np.ascontiguousarray(case.X))
    if case.sparse:
        i, j = np.nonzero(X)
        indptr = np.concatenate([[0], np.cumsum(np.bincount(i, minlength=len(X)))]).astype(np.int64)
        rows = CSR(X[i, j], j.astype(np.int32), indptr)  # type: ignore[assignment]
    return rows, (case.y > 0).astype(np.int32), case.s


# -- a clock that jumps ------------------------------------------------------------------------------------------------

FAR = 1e7
"""Seconds: longer than any time limit."""


class Clock:
    """``time.perf_counter`` up to its look number ``at``, and FAR beyond from there on; 0: never."""

    def __init__(self, at: int) -> None:
        self.at, self.looks, self.original = at, 0, time.perf_counter

    def __call__(self) -> float:
        """The time of this look."""
        self.looks += 1
        return self.original() + (FAR if 0 < self.at <= self.looks else 0.0)


@contextmanager
def jumping(at: int) -> Iterator[Clock]:
    """Within it all who look at the clock look at such a one."""
    clock = Clock(at)
    setattr(time, "perf_counter", clock)  # noqa: B010  all modules look it up there
    try:
        yield clock
    finally:
        setattr(time, "perf_counter", clock.original)  # noqa: B010


def spread(looks: int, most: int) -> list[int]:
    """Return up to ``most`` looks: the first half of them one after the other, the rest evenly spread up to the last."""
    if looks <= most:
        return list(range(1, looks + 1))
    first = most // 2
    rest = range(1, most - first + 1)
    return [*range(1, first + 1), *(first + (looks - first) * k // (most - first) for k in rest)]


# -- what an independent computation has against a certificate ---------------------------------------------------------

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
