"""Memory of wide tables: python -m tools.bench.memory_wide [--forms csv,jsonl,parquet] [--columns 20000] [--rows 40] [--group 200].

Each is made up and ingested with too little memory, which is refused with what would do, and then with that: the most
anonymous memory that was seen beside it. Exits 1 where it was more.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from tools.bench.memory import watch
from tools.measure.harness import Row, hardware, print_table

LITTLE = 190
"""MiB that an ingest can begin with, and no wide table can be read in."""
SLACK = 4
"""MiB by which two processes differ."""


def numbers(rows: int, columns: int) -> tuple[list[str], Any]:
    """Names, and values (rows, columns) of which the first is the label."""
    values = np.random.default_rng(0).normal(size=(rows, columns)).round(3)
    values[:, 0] = np.arange(rows) % 2
    return ["y", *(f"x{j:05d}" for j in range(1, columns))], values


def csv(path: Path, names: list[str], values: Any, _group: int) -> None:
    with open(path, "w", encoding="ascii") as file:
        file.write(",".join(names) + "\n")
        file.writelines(",".join(map(str, row)) + "\n" for row in values.tolist())


def jsonl(path: Path, names: list[str], values: Any, _group: int) -> None:
    with open(path, "w", encoding="ascii") as file:
        file.writelines(json.dumps(dict(zip(names, row, strict=True))) + "\n" for row in values.tolist())


def parquet(path: Path, names: list[str], values: Any, group: int) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    pq.write_table(pa.table(dict(zip(names, values.T, strict=True))), path, row_group_size=group)


FORMS: dict[str, Callable[[Path, list[str], Any, int], None]] = {"csv": csv, "jsonl": jsonl, "parquet": parquet}


def ingested(source: Path, memory: int) -> tuple[Row, str]:
    """Peak and what was said of an ingest with so many MiB."""
    target = source.with_name("s.zarr")
    command = [sys.executable, "-m", "streamsvm", "ingest", str(source), str(target), "--label", "y", "--overwrite"]
    process = subprocess.Popen(
        [*command, "--memory", f"{memory}MiB"], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    )
    row = watch(process)
    assert process.stderr is not None
    return row, process.stderr.read().decode()


def least(source: Path) -> Row:
    """What an ingest of a file is refused with, as often as it is, and what it takes with that."""
    memory, (row, said) = LITTLE, ingested(source, LITTLE)
    while row["rc"] == 78 and (hint := re.search(r"give (\d+)MiB more|use --memory (\d+)MiB", said)):
        memory = (memory + int(hint[1]) if hint[1] else int(hint[2])) + SLACK
        row, said = ingested(source, memory)
    return {"given MiB": memory, **row}


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--forms", default="csv,jsonl,parquet")
    parser.add_argument("--columns", type=int, default=20_000)
    parser.add_argument("--rows", type=int, default=40)
    parser.add_argument("--group", type=int, default=200, help="rows of a row group of Parquet")
    options = parser.parse_args()
    names, values = numbers(options.rows, options.columns)
    rows = []
    for form in options.forms.split(","):
        with tempfile.TemporaryDirectory() as folder:
            source = Path(folder) / f"t.{form}"
            FORMS[form](source, names, values, options.group)
            rows.append({"form": form, **least(source)})
    print_table(rows)
    print(hardware())
    return int(any(row["rc"] or row["peak anon MiB"] > row["given MiB"] for row in rows))


if __name__ == "__main__":
    sys.exit(main())
