"""What ``--report`` adds to a fit: CPU seconds and peak memory of whole processes, with it and without, by turns."""

from __future__ import annotations

import statistics
from pathlib import Path

import streamsvm as sv
from tools.measure.harness import Row, arguments, in_child, scratch, show

FIT = """
import json, resource, sys
from streamsvm.cli import cli
cli.main(sys.argv[1:], standalone_mode=False)
used = resource.getrusage(resource.RUSAGE_SELF)
print(json.dumps({"cpu s": used.ru_utime + used.ru_stime}))
"""


def fitted(folder: Path, *options: str) -> Row:
    """One fit in a process of its own."""
    settings = ("--standardize", "--memory", "256MiB", "--threads", "1", "--overwrite")
    return in_child(FIT, "-q", "fit", str(folder / "rows.zarr"), str(folder / "m.ssvm"), *settings, *options)


def median_of(name: str, runs: list[Row]) -> Row:
    """A line of the table."""
    return {"fit": name} | {key: statistics.median(run[key] for run in runs) for key in ("cpu s", "peak MiB")}


def main() -> None:
    options = arguments(__doc__, rows=5_000_000, repeats=7)
    with scratch() as folder:
        sv.synth("susy", folder / "rows.zarr", rows=options.rows)
        page = ("--report", str(folder / "p.html"))
        fitted(folder, *page)  # compiles
        runs = [(fitted(folder), fitted(folder, *page)) for _ in range(options.repeats)]
    without, drawn = (list(side) for side in zip(*runs, strict=True))
    rows = [median_of("without", without), median_of("with --report", drawn)]
    ratio = statistics.median(b["cpu s"] / a["cpu s"] for a, b in runs)
    show(f"susy, {options.rows} rows: CPU with a page over CPU without, median of pairs: {ratio:.3f}", rows, options)


if __name__ == "__main__":
    main()
