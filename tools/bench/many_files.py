"""Many small files in one ingest: processor seconds for each 10,000, and whether the store holds every row.

Each file is CSV with a header and two rows that no other file has. What reading costs must not grow with the files that were read before;
the seconds of the first lot hold the start and what is looked at of all files. At the end every chunk is verified, and rows, classes and
means are compared with what was written. Exits 1 where they differ, or where the last lot took twice what the second took.
"""

from __future__ import annotations

import resource
import sys
import time
from pathlib import Path

import numpy as np

from streamsvm.aliases import JsonMapping
from streamsvm.jobs.ingest.options import IngestJob
from streamsvm.jobs.ingest.run import ingest
from streamsvm.jobs.inspect.info import verify
from streamsvm.store import open_store
from tools.measure.harness import Row, arguments, scratch, show

ROWS, FOLDER = 2, 1000
"""Rows of a file, and files of a folder."""


def written(folder: Path, count: int) -> list[Path]:
    """Write so many files, their rows numbered through: a is the number of the row, b half of it, y whether the file is even."""
    made = []
    for number in range(count):
        path = folder / f"{number // FOLDER:05}" / f"{number:07}.csv"
        path.parent.mkdir(exist_ok=True)
        rows = range(ROWS * number, ROWS * (number + 1))
        path.write_text("a,b,y\n" + "".join(f"{row},{row / 2},{number % 2}\n" for row in rows), encoding="ascii")
        made.append(path)
    return made


class Lots:
    """Takes the events of an ingest: what each lot of files took."""

    def __init__(self, lot: int) -> None:
        self.rows: list[Row] = []
        self._lot, self._at, self._cpu, self._began = lot, 0, time.process_time(), time.perf_counter()

    def __call__(self, event: JsonMapping) -> None:
        """Look at an event; those of progress come five times a second."""
        files = int(event.get("rows", 0)) // ROWS
        if files < self._at + self._lot and not (event.get("done") and files > self._at):
            return
        cpu, resident = time.process_time(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
        spent, some = cpu - self._cpu, files - self._at
        row = {"files": files, "CPU s": spent, "ms a file": 1e3 * spent / some, "peak resident MiB": resident}
        self.rows.append(row | {"s": time.perf_counter() - self._began})
        self._at, self._cpu = files, cpu
        print(self.rows[-1], flush=True)


def wrong(store: Path, count: int) -> list[str]:
    """What of the store is not as it was written."""
    found = [str(fault) for fault in verify(store)["bad"]]
    opened, rows = open_store(store), ROWS * count
    means, expected = opened.statistics().mean[:2], np.array([1.0, 0.5]) * (rows - 1) / 2
    if opened.layout.rows != rows:
        found.append(f"{opened.layout.rows} rows of {rows}")
    if opened.layout.counts != (ROWS * (count - count // 2), ROWS * (count // 2)):
        found.append(f"classes of {opened.layout.counts} rows")
    return found if np.allclose(means, expected, rtol=1e-9) else [*found, f"means {means} of {expected}"]


def main() -> None:
    options = arguments(__doc__, files=100_000, lot=10_000, memory=512)
    with scratch() as folder:
        sources = tuple(written(folder, options.files))
        store, lots = folder / "many.zarr", Lots(options.lot)
        job = IngestJob(sources=sources, store=store, label="y", memory=options.memory << 20, threads=1)
        ingest(job, lots)
        found = wrong(store, options.files)
    show(f"{options.files} files of {ROWS} rows", lots.rows, options)
    print("; ".join(found) or "every row is there")
    slower = len(lots.rows) > 2 and lots.rows[-1]["ms a file"] > 2 * lots.rows[1]["ms a file"]
    sys.exit(bool(found) or slower)


if __name__ == "__main__":
    main()
