"""Small tables, many of them: whether each fit is certified within ten seconds, with every loss, linear and with a kernel.

Table k has 100 to 100,000 rows, 3 to 400 columns and classes 1:1 to 1:500, raw and standardized; of one class it does not count.
Fits run one after the other in this process, with ``streamsvm fit``'s defaults but for what varies. --first and --count say which
tables, --exact up to how many rows the kernel is evaluated on the rows, --landmarks beyond: 0 leaves larger tables out. --least: tables
of fewer rows are left out. Shown is every fit that is not certified or took longer, and what all of them took; --lines FILE has a line of JSON for each.
"""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from streamsvm.jobs.fit.options import FitJob
from streamsvm.jobs.fit.run import fit
from streamsvm.jobs.synth.options import SynthJob
from streamsvm.jobs.synth.run import synth
from streamsvm.store import open_store
from streamsvm.types import Status
from tools.measure.harness import Row, arguments, scratch, show

SECONDS = 10.0
"""What a fit may take, of the processor."""


class Table(NamedTuple):
    """One drawn table."""

    number: int
    rows: int
    columns: int
    positive: float
    """The share of the rarer class."""

    def store(self, folder: Path) -> Path | None:
        """Make it; None where it has come out with one class."""
        path = folder / f"{self.number}.zarr"
        settings = {"positive": self.positive}
        synth(SynthJob("table", str(path), self.rows, self.columns, settings, seed=self.number, overwrite=True))
        return path if min(open_store(path).layout.counts, default=0) else None


def tables() -> Iterator[Table]:
    """All tables there are, in order."""
    rng = np.random.default_rng(0)
    for k in itertools.count():
        rows, columns = int(10 ** rng.uniform(2, 5)), int(10 ** rng.uniform(np.log10(3), np.log10(400)))
        yield Table(k, rows, columns, 1.0 / (1.0 + 10 ** rng.uniform(0, np.log10(500))))


def fits(table: Table, store: Path, options: Any) -> Iterator[Row]:
    """What each kind of fit of a table comes to."""
    kinds = itertools.product(options.kernels.split(","), options.losses.split(","), (False, True))
    for kernel, loss, standardize in kinds:
        exact = kernel == "linear" or table.rows <= options.exact
        if exact or options.landmarks:
            yield {
                "table": table.number, "rows": table.rows, "columns": table.columns, "kernel": kernel, "loss": loss,
                "std": standardize, **fitted(store, kernel, loss, standardize, None if exact else options.landmarks),
            }  # fmt: skip


def fitted(store: Path, kernel: str, loss: str, standardize: bool, landmarks: int | None) -> Row:
    """Seconds of a fit by the clock and of the processor, and its certificate."""
    job = FitJob(
        str(store), str(store) + ".model", kernel=kernel, loss=loss, standardize=standardize, landmarks=landmarks,
        memory=1 << 30, overwrite=True, time_limit=600.0,
    )  # fmt: skip
    began, cpu = time.perf_counter(), time.process_time()
    found = fit(job)
    spent = {"s": time.perf_counter() - began, "CPU s": time.process_time() - cpu}
    certificate = found.training.runs[0].certificate
    assert certificate is not None
    values = {"P": certificate.primal, "D": certificate.dual, "rounding": certificate.rounding}
    ended = {"status": str(found.training.status), "readings": found.training.passes, "gap": certificate.gap}
    return {"solver": found.plan.solver_name, **spent, **ended, **values}


def main() -> None:
    options = arguments(
        __doc__, first=0, count=200, losses="hinge,squared_hinge,huber", kernels="linear,rbf", exact=6_000,
        landmarks=0, least=0, lines="",
    )  # fmt: skip
    rows: list[Row] = []
    with scratch() as directory:
        for table in itertools.islice(tables(), options.first, options.first + options.count):
            store = table.store(directory) if table.rows >= options.least else None
            for row in fits(table, store, options) if store else ():
                rows.append(row)
                if options.lines:
                    with open(options.lines, "a") as lines:
                        lines.write(json.dumps(row) + "\n")
    bad = [row for row in rows if row["status"] != Status.CONVERGED or row["CPU s"] > SECONDS]
    slowest = max((row["CPU s"] for row in rows), default=0.0)
    last = {"table": "all", "rows": len(rows), "status": f"{len(bad)} not certified or slow", "CPU s": slowest}
    show("small tables, certified gap 1e-3", [*bad, last], options)


if __name__ == "__main__":
    main()
