"""The lecture's table of methods ("Optimization Methods for SVMs", its slides on complexity), measured beside what it states.

All solve the same problem, hinge without an intercept of its own, to a certified gap of 1e-2, 1e-4 and 1e-6; on the first
n rows of a set in random order, for growing n. "growth" is the exponent p of seconds ~ n^p between the smallest
and the largest n at 1e-4; the lecture states 1 for an interior point and for gradients, 2 for active sets and
decomposition. ``lambda`` does not change with n, so that 1 / epsilon and not n decides what a gradient method takes, as the
lecture says. Seconds are CPU seconds of the whole fit. A dash: not there after ``--limit`` seconds or ``--passes`` readings.
"""

from __future__ import annotations

from math import log
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from streamsvm.jobs.fit.options import FitJob
from streamsvm.jobs.fit.run import fit
from tools.measure.datasets import Data, load, stored
from tools.measure.harness import Row, arguments, scratch, show
from tools.measure.kernel_features import cpu_of

TOLERANCES = (1e-2, 1e-4, 1e-6)
GROWTH_AT = 1e-4


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
    small, large = seconds_of(method, stores[min(stores)], GROWTH_AT, options), row[f"s to {GROWTH_AT:g}"]
    row["growth"] = log(large / small) / log(max(stores) / min(stores)) if small and large else None
    return row


def nested(data: Data, counts: list[int], directory: Path) -> dict[int, Path]:
    """Stores of the first rows of ``data`` in one random order."""
    order, found = np.random.default_rng(0).permutation(data.rows), {}
    for count in counts:
        found[count] = directory / f"{data.name}.{count}.zarr"
        stored(Data(data.name, data.X[order[:count]], data.y[order[:count]]), found[count])
    return found


def main() -> None:
    options = arguments(
        __doc__, data="covtype,a9a", methods=",".join(METHODS), lam=1e-4, smallest=2_000, largest=32_000, passes=1000,
        limit=60.0,
    )  # fmt: skip
    with scratch() as directory:
        for name in options.data.split(","):
            data = load(name, directory)
            counts = sizes(options, data.rows)
            stores = nested(data, counts, directory)
            rows = [measured(method, stores, options) for method in options.methods.split(",")]
            show(f"{name}, hinge, lambda {options.lam:g}, {max(counts)} rows; growth from {min(counts)}", rows, options)


if __name__ == "__main__":
    main()
