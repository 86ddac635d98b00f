"""Ingest of tables: covtype's CSV, uncompressed first, and the flights Parquet. MB/s of the file and peak memory."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tools.measure.harness import DATA, Row, arguments, in_child, scratch, show, unpacked

INGEST = """
import json, sys, time
from pathlib import Path
from streamsvm.jobs.ingest.options import IngestJob
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


def ingested(what: str, source: Path, small: Path | None, store: Path, **settings: Any) -> Row:
    row = in_child(INGEST, str(source), str(small or ""), str(store), json.dumps(settings))
    return {"what": what, **row, "MB/s": source.stat().st_size / 1e6 / row["seconds"]}


def best(rows: list[Row]) -> Row:
    """The fastest of some runs, with the largest peak of all."""
    return min(rows, key=lambda r: r["seconds"]) | {"peak MiB": max(r["peak MiB"] for r in rows)}


def main() -> None:
    options = arguments(__doc__, repeats=3)
    with scratch() as directory:
        text, store = unpacked("covtype.csv.gz", directory), directory / "store"
        small = directory / "small.csv"
        with open(text, "rb") as whole:
            small.write_bytes(b"".join(line for line, _ in zip(whole, range(500), strict=False)))
        flights, rounds = DATA / "flights-3m.parquet", range(options.repeats)
        calendar = {
            "label": "delay",
            "label_threshold": 15.0,
            "categorical": ["origin", "destination"],
            "calendar": ["date"],
        }
        parse = best([in_child(PARSE_ONLY, str(text)) for _ in rounds])
        rows = [
            best([ingested("covtype.csv", text, small, store, label="last") for _ in rounds]),
            {"what": "covtype.csv, pyarrow alone", **parse, "MB/s": text.stat().st_size / 1e6 / parse["seconds"]},
            best([ingested("flights-3m.parquet", flights, None, store, **calendar) for _ in rounds]),
        ]
        show("tables: ingest, MB/s of the file as it lies on disk", rows, options)


if __name__ == "__main__":
    main()
