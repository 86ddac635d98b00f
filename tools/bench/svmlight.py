"""Our whole ingest of libsvm text - parse, check, write a store - against scikit-learn's parser, which only parses.

On imdb's text, uncompressed first. Each runs in a process of its own; a small file goes first, so that neither
compiling nor importing is in the seconds. Memory is the peak anonymous memory of the process.
"""

from __future__ import annotations

import statistics
from pathlib import Path

from tools.measure.harness import Row, arguments, in_child, scratch, show, unpacked

OURS = """
import json, sys, time
from pathlib import Path
from streamsvm.jobs.ingest.options import IngestJob
from streamsvm.jobs.ingest.run import ingest
text, small, store = map(Path, sys.argv[1:])
ingest(IngestJob(sources=(small,), store=store, overwrite=True))
began, cpu = time.perf_counter(), time.process_time()
result = ingest(IngestJob(sources=(text,), store=store, overwrite=True))
print(json.dumps({"seconds": time.perf_counter() - began, "cpu s": time.process_time() - cpu, "rows": result.rows}))
"""

THEIRS = """
import json, sys, time
from sklearn.datasets import load_svmlight_file
text, small, _ = sys.argv[1:]
load_svmlight_file(small)
began, cpu = time.perf_counter(), time.process_time()
X, y = load_svmlight_file(text)
print(json.dumps({"seconds": time.perf_counter() - began, "cpu s": time.process_time() - cpu, "rows": len(y)}))
"""


def head(text: Path, rows: int, target: Path) -> Path:
    """The first rows of a file."""
    with open(text, "rb") as whole, open(target, "wb") as part:
        part.writelines(line for line, _ in zip(whole, range(rows), strict=False))
    return target


def median_of(runs: list[Row]) -> Row:
    """The run with the median time, with the largest peak of all."""
    middle = statistics.median_low(run["seconds"] for run in runs)
    peak = max(run["peak MiB"] for run in runs)
    return next(run for run in runs if run["seconds"] == middle) | {"peak MiB": peak}


def main() -> None:
    options = arguments(__doc__, repeats=3, set="imdb")
    with scratch() as directory:
        text = unpacked(f"{options.set}.xz", directory)
        small, size = head(text, 200, directory / "small"), text.stat().st_size / 1e6
        contestants = {"streamsvm ingest": OURS, "scikit-learn load_svmlight_file": THEIRS}
        runs: dict[str, list[Row]] = {name: [] for name in contestants}
        for _ in range(options.repeats):
            for name, script in contestants.items():
                runs[name].append(in_child(script, str(text), str(small), str(directory / "store")))
        found = {name: median_of(r) for name, r in runs.items()}
        slowest = found["scikit-learn load_svmlight_file"]["seconds"]
        rows = [{"who": n, **r, "MB/s": size / r["seconds"], "times": slowest / r["seconds"]} for n, r in found.items()]
        show(f"svmlight: {text.name}, {size:.1f} MB of text", rows, options)


if __name__ == "__main__":
    main()
