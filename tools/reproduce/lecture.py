"""The lecture's table of methods ("Optimization Methods for SVMs", its slides on complexity), measured beside what it states.

All solve the same problem, hinge without an intercept of its own, to a certified gap of 1e-2, 1e-4 and 1e-6; on the first
n rows of a set in random order, for growing n. "growth" is the exponent p of seconds ~ n^p between the smallest
and the largest n at 1e-4; the lecture states 1 for an interior point and for gradients, 2 for active sets and
decomposition. ``lambda`` does not change with n, so that 1 / epsilon and not n decides what a gradient method takes, as the
lecture says. Seconds are CPU seconds of the whole fit. A dash: not there after ``--limit`` seconds or ``--passes`` readings.

**Smoothing.** Readings of all rows until lambda/2 ||w||^2 + mean hinge is within epsilon of its optimum: subgradient steps, whose number the lecture has grow with
1 / epsilon^2, here with 1 / (lambda epsilon), and Nesterov's method on phi_mu with mu = epsilon, with 1 / epsilon. Both are those of ``baselines.py``.

**More data, less work.** CPU seconds until the error on test rows is within ``--margin`` points of what coordinate descent comes to in SWEEPS readings of all of them, against the number n of rows there are
to train on; the best of some lambda for each n. A stochastic method takes no longer with more rows, the lecture says, and less where more rows allow a larger lambda or
a rougher optimum; dual coordinate descent reads all of them. Looking at the error is not timed. A dash: n rows do not get there, or not in ``--error-limit`` seconds.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from itertools import islice
from math import log
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from streamsvm.jobs.fit.driver import fit
from streamsvm.jobs.fit.options import FitJob
from tools.measure.datasets import Data, covtype, load, stored
from tools.measure.fits import cpu_of
from tools.measure.harness import Row, arguments, scratch, show
from tools.reproduce.baselines import (
    Primal,
    accelerated,
    dcd,
    entries_of,
    sgd_steps,
    subgradient,
    with_constant,
)

TOLERANCES = (1e-2, 1e-4, 1e-6)
GROWTH_AT = 1e-4
EPSILONS = (0.1, 0.03, 0.01, 0.003)
"""Of the readings to an absolute accuracy of the mean loss and its regularizer."""
LAMBDAS = (1e-6, 1e-5, 1e-4, 1e-3)
"""What is tried for a test error."""
SWEEPS = 30
"""Readings of the run whose test error is the measure."""
PIECE = 500
"""Rows between two looks at the test error of a stochastic method."""


class Method(NamedTuple):
    """A row of the lecture's table, and the solver that is of this kind here."""

    lecture: str
    """The cost and the accuracy that the lecture states; k is the rank, s the entries of a row, R its length."""
    settings: dict[str, Any]


METHODS = {
    "interior_point": Method("O(k^2 n log 1/e), very accurate", {"solver": "interior_point"}),
    "active_set": Method("O(n_s n^2) in practice, very accurate", {"solver": "active_set"}),
    "decomposition": Method("O(n^2/e), reasonably accurate", {"solver": "decomposition", "kernel": "linear"}),
    "cutting_plane": Method("O(R n s/e), not accurate", {"solver": "cutting_plane"}),
    "pegasos": Method("O(R s/e), not accurate", {"solver": "pegasos"}),
    "dcd": Method("not in the table", {"solver": "dcd"}),
    "newton": Method("not in the table", {"solver": "newton"}),
}


def sizes(options: Any, rows: int) -> list[int]:
    """``--smallest`` rows, four times as many, and so on."""
    found = [options.smallest]
    while found[-1] * 4 <= min(rows, options.largest):
        found.append(found[-1] * 4)
    return found


def seconds_of(method: Method, store: Path, tolerance: float, options: Any) -> float | None:
    """CPU seconds to a certificate of this gap; None where the limits came first."""
    job = FitJob(
        str(store), f"{store}.model", loss="hinge", lambda_=options.lam, tolerance=tolerance, overwrite=True, **method.settings,
        max_passes=options.passes, time_limit=options.limit,
    )  # fmt: skip
    taken, _, result = cpu_of(lambda: fit(job))
    certificate = result.training.runs[0].certificate
    return taken if certificate is not None and certificate.exact and certificate.gap <= tolerance else None


def measured(name: str, stores: dict[int, Path], options: Any) -> Row:
    """One line of the table."""
    method = METHODS[name]
    row: Row = {"method": name, "lecture": method.lecture}
    seconds_of(method, stores[min(stores)], 0.1, options)  # compiles
    for tolerance in TOLERANCES:
        row[f"s to {tolerance:g}"] = seconds_of(method, stores[max(stores)], tolerance, options)
        print(f"{name}, {max(stores)} rows, to {tolerance:g}: {row[f's to {tolerance:g}'] or '-'} s", flush=True)
    small, large = seconds_of(method, stores[min(stores)], GROWTH_AT, options), row[f"s to {GROWTH_AT:g}"]
    row["growth"] = log(large / small) / log(max(stores) / min(stores)) if small and large else None
    return row


def nested(data: Data, counts: list[int], directory: Path) -> dict[int, Path]:
    """Stores of the first rows of ``data`` in one random order."""
    found = {}
    for count in counts:
        found[count] = directory / f"{data.name}.{count}.zarr"
        stored(first_rows(data, count), found[count])
    return found


def first_rows(data: Data, count: int) -> Data:
    """The first rows in that order."""
    order = np.random.default_rng(0).permutation(data.rows)[:count]
    return Data(data.name, data.X[order], data.y[order])


def readings_to(steps: Iterator[tuple[Any, float]], task: Primal, bound: float, most: int) -> int | None:
    """How many readings bring P below ``bound``; None where so many do not."""
    for reading in range(1, most + 1):
        if task.value(next(steps)[0]) <= bound:
            return reading
    return None


def smoothing(data: Data, store: Path, options: Any) -> list[Row]:
    """A line for each epsilon."""
    lam = options.smoothing_lam
    task = Primal(with_constant(data.X), data.y, 1.0 / (lam * data.rows))
    best = fit(FitJob(str(store), f"{store}.model", loss="hinge", lambda_=lam, tolerance=1e-5, overwrite=True))
    certificate = best.training.runs[0].certificate
    assert certificate is not None
    rows: list[Row] = []
    for epsilon in EPSILONS:
        bound = certificate.dual + epsilon * task.C * data.rows
        found = (subgradient(task), accelerated(task, epsilon))
        counts = [readings_to(steps, task, bound, options.readings) for steps in found]
        rows.append({"epsilon": epsilon, "subgradient": counts[0], "accelerated, mu = epsilon": counts[1]})
        print(rows[-1], flush=True)
    return rows


def sgd_pieces(task: Primal, seed: int = 0) -> Iterator[tuple[Any, float]]:
    """Pegasos' steps of one row without a projection, a piece of a reading at a time; the mean of w at the ends of the later half of the pieces."""
    rows, n, draw = entries_of(task.X, task.y), len(task.y), np.random.default_rng(seed)
    w, t, ends = np.zeros(task.X.shape[1]), 2.0, []
    while True:
        for piece in np.array_split(draw.permutation(n), max(1, n // PIECE)):
            sgd_steps(rows, piece, w, 1.0 / (task.C * n), t)
            t += len(piece)
            ends.append(w.copy())
            yield np.mean(ends[len(ends) // 2 :], axis=0), 0.0


def seconds_to_error(
    steps: Iterator[tuple[Any, float]], test: Any, signs: Any, target: float, limit: float
) -> float | None:
    """CPU seconds until so few of the test rows are wrong; None after ``limit`` of them."""
    seconds = 0.0
    while seconds < limit:
        began = time.process_time()
        w, _ = next(steps)
        seconds += time.process_time() - began
        if np.mean((test @ w > 0) != (signs > 0)) <= target:
            return seconds
    return None


def time_to_error(data: Data, held: Data, options: Any) -> list[Row]:
    """A line for each number of rows."""
    order = np.random.default_rng(0).permutation(data.rows)
    X, y, test = with_constant(data.X)[order], data.y[order], with_constant(held.X)
    whole = [Primal(X, y, 1.0 / (lam * data.rows)) for lam in LAMBDAS]
    solved = [next(islice(dcd(task), SWEEPS, None))[0] for task in whole]
    target = float(min(np.mean((test @ w > 0) != (held.y > 0)) for w in solved)) + 0.01 * options.margin
    print(f"{data.name}: target {100 * target:.2f} % of the test rows wrong", flush=True)
    rows: list[Row] = []
    for count in sizes(options, data.rows):
        row: Row = {"rows": count, "target %": 100 * target}
        for name, method in {"sgd": sgd_pieces, "dcd": dcd}.items():
            found: dict[float, float] = {}
            for lam in LAMBDAS:
                task = Primal(X[:count], y[:count], 1.0 / (lam * count))
                seconds = seconds_to_error(method(task), test, held.y, target, options.error_limit)
                found |= {} if seconds is None else {lam: seconds}
            best = min(found, key=found.__getitem__) if found else None
            row |= {f"{name} s": None if best is None else found[best], f"{name} lambda": best}
        rows.append(row)
        print(row, flush=True)
    return rows


def main() -> None:
    options = arguments(
        __doc__, data="covtype,a9a", methods=",".join(METHODS), lam=1e-4, smallest=2_000, largest=32_000, passes=1000,
        limit=60.0, smoothing_lam=1e-3, readings=5000, margin=0.5, error_limit=2.0, parts="methods,smoothing,error",
    )  # fmt: skip
    with scratch() as directory:
        for name in options.data.split(","):
            data = load(name, directory)
            counts = sizes(options, data.rows)
            stores = nested(data, counts, directory)
            parts = options.parts.split(",")
            if "methods" in parts:
                rows = [measured(method, stores, options) for method in options.methods.split(",")]
                show(
                    f"{name}, hinge, lambda {options.lam:g}, {max(counts)} rows; growth from {min(counts)}",
                    rows,
                    options,
                )
            if "smoothing" in parts:
                few = first_rows(data, min(counts))
                rows = smoothing(few, stores[min(counts)], options)
                show(f"{name}, readings of {few.rows} rows to epsilon, lambda {options.smoothing_lam:g}", rows, options)
            if "error" in parts:
                held = covtype(directory, test=True) if name == "covtype" else load(f"{name}.t", directory)
                show(f"{name}, CPU seconds to a test error", time_to_error(data, held, options), options)


if __name__ == "__main__":
    main()
