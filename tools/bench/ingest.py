"""Ingest beside parsers that only parse: covtype's CSV, flights' Parquet and imdb's libsvm text. MB/s of the file and peak memory.

Each run is a process of its own, of which the fastest of --repeats counts, with the largest peak of all; a small file goes first, so
that neither compiling nor importing is in the seconds. Ours is the whole way: parse, check, write a store.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tools.measure.harness import DATA, Row, arguments, in_child, scratch, show, unpacked

INGEST = """
import json, sys, time
from pathlib import Path
from streamsvm.jobs.ingest.job import IngestJob
from streamsvm.jobs.ingest.run import ingest
source, small, store, settings = sys.argv[1:]
settings = {k: tuple(v) if isinstance(v, list) else v for k, v in json.loads(settings).items()}
def run(path):
    return ingest(IngestJob(sources=(Path(path),), store=Path(store), overwrite=True, **settings))
if small:
    run(small)
began, cpu = time.perf_counter(), time.process_time()
result = run(source)
seconds = time.perf_counter() - began
print(json.dumps({"rows": result.rows, "columns": result.columns, "seconds": seconds, "cpu s": time.process_time() - cpu}))
"""

PARSE_ONLY = """
import json, sys, time
from pyarrow import csv
began, cpu = time.perf_counter(), time.process_time()
rows = sum(len(batch) for batch in csv.open_csv(sys.argv[1]))
print(json.dumps({"rows": rows, "seconds": time.perf_counter() - began, "cpu s": time.process_time() - cpu}))
"""

SKLEARN = """
import json, sys, time
from sklearn.datasets import load_svmlight_file
text, small = sys.argv[1:]
load_svmlight_file(small)
began, cpu = time.perf_counter(), time.process_time()
X, y = load_svmlight_file(text)
print(json.dumps({"rows": len(y), "seconds": time.perf_counter() - began, "cpu s": time.process_time() - cpu}))
"""


def head(text: Path, rows: int, target: Path) -> Path:
    """The first rows of a file."""
    with open(text, "rb") as whole, open(target, "wb") as part:
        part.writelines(line for line, _ in zip(whole, range(rows), strict=False))
    return target


def speed(what: str, source: Path, runs: list[Row]) -> Row:
    """The fastest of some runs, with the largest peak of all."""
    best = min(runs, key=lambda row: row["seconds"]) | {"peak MiB": max(row["peak MiB"] for row in runs)}
    return {"what": what, **best, "MB/s": source.stat().st_size / 1e6 / best["seconds"]}


def ingested(source: Path, small: Path | None, store: Path, **settings: Any) -> Row:
    return in_child(INGEST, str(source), str(small or ""), str(store), json.dumps(settings))


def main() -> None:
    options = arguments(__doc__, repeats=3, set="imdb")
    with scratch() as directory:
        store, rounds, flights = directory / "store", range(options.repeats), DATA / "flights-3m.parquet"
        csv, text = unpacked("covtype.csv.gz", directory), unpacked(f"{options.set}.xz", directory)
        few, little = head(csv, 500, directory / "small.csv"), head(text, 200, directory / "small")
        late: dict[str, Any] = {"label": "delay", "label_threshold": 15.0}
        late |= {"categorical": ["origin", "destination"], "calendar": ["date"]}
        rows = [
            speed("covtype.csv", csv, [ingested(csv, few, store, label="last") for _ in rounds]),
            speed("covtype.csv, pyarrow alone", csv, [in_child(PARSE_ONLY, str(csv)) for _ in rounds]),
            speed("flights-3m.parquet", flights, [ingested(flights, None, store, **late) for _ in rounds]),
            speed(f"{options.set}, libsvm text", text, [ingested(text, little, store) for _ in rounds]),
            speed("the same, scikit-learn", text, [in_child(SKLEARN, str(text), str(little)) for _ in rounds]),
        ]
        show("ingest, MB/s of the file as it lies on disk", rows, options)


if __name__ == "__main__":
    main()
