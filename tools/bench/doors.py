"""One data set through every door of ``StreamSVC.fit``: peak memory, seconds, certificate, and whether the model's bits are one.

python -m tools.bench.doors FOLDER --mib 4096 --memory 512MiB

The rows are written once, as Parquet and HDF5, block by block; the command line ingests the Parquet file and fits, each door is
a process of its own in a memory control group of that limit, page cache included, whose anonymous memory is sampled
(``tools.bench.memory``; without control groups that alone). FOLDER needs about four times the size.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from streamsvm.config.units import parse_size
from tools.bench.memory import limited

COLUMNS, BLOCK = 100, 50_000
"""Columns, and rows of a block."""
HEAD = "| door | gap | peak, MiB | killed for memory | seconds | bits of the command line |"


def polars_scan(folder: Path) -> tuple[Any, Any]:
    """A lazy frame, and the name of its label."""
    import polars as pl

    return pl.scan_parquet(folder / "rows.parquet"), "y"


def duckdb_result(folder: Path) -> tuple[Any, Any]:
    """A relation of DuckDB, and the name of its label."""
    import duckdb

    connection = duckdb.connect(config={"memory_limit": "128MiB", "threads": 1, "preserve_insertion_order": True})
    return connection.sql(f"select * from '{folder / 'rows.parquet'}'"), "y"


def dask_array(folder: Path) -> tuple[Any, Any]:
    """A dask array over HDF5, and its labels; of a memory map ``from_array`` itself makes a copy in memory."""
    import dask.array as da

    file = h5py.File(folder / "rows.h5")
    return da.from_array(file["X"], chunks=(BLOCK, COLUMNS)), da.from_array(file["y"], chunks=BLOCK)


DOORS: dict[str, Callable[[Path], tuple[Any, Any]]] = {
    "store": lambda folder: (folder / "rows.zarr", None),
    "Parquet": lambda folder: (folder / "rows.parquet", "y"),
    "polars scan": polars_scan,
    "DuckDB": duckdb_result,
    "dask array": dask_array,
    "h5py": lambda folder: (h5py.File(folder / "rows.h5")["X"], h5py.File(folder / "rows.h5")["y"][:]),
}


def write_rows(folder: Path, mib: int) -> None:
    """Write the rows as Parquet and HDF5, a block at a time; a linear rule with noise says the labels."""
    rng, blocks = np.random.default_rng(0), max(1, mib * 2**20 // (4 * COLUMNS * BLOCK))
    rule, names = rng.normal(size=COLUMNS), [f"c{k}" for k in range(COLUMNS)]
    kinds = pa.schema([(name, pa.float32()) for name in names] + [("y", pa.int64())])
    with h5py.File(folder / "rows.h5", "w") as file, pq.ParquetWriter(folder / "rows.parquet", kinds) as writer:
        rows = file.create_dataset("X", (blocks * BLOCK, COLUMNS), np.float32, chunks=(10_000, COLUMNS))
        labels = file.create_dataset("y", len(rows), np.int64)
        for start in range(0, len(rows), BLOCK):
            block = rng.normal(size=(BLOCK, COLUMNS)).astype(np.float32)
            y = (block @ rule + 2.0 * rng.normal(size=BLOCK) > 0).astype(np.int64)
            rows[start : start + BLOCK], labels[start : start + BLOCK] = block, y
            writer.write_table(pa.table([*block.T, y], schema=kinds))


def bits(weights: Any) -> str:
    """The sha256 of weights."""
    return hashlib.sha256(np.ascontiguousarray(weights).tobytes()).hexdigest()


def fit_door(folder: Path, door: str, memory: str) -> None:
    """Fit through a door, and leave what came of it; this is the process that is watched."""
    from streamsvm.sklearn import StreamSVC

    rows, labels = DOORS[door](folder)
    found = StreamSVC(memory=memory, n_jobs=1).fit(rows, labels)
    (folder / "found.json").write_text(json.dumps({"bits": bits(found.model_.weights), "gap": found.gap_}))


def measured(folder: Path, door: str, memory: str, expected: str) -> str:
    """Return a row of the table."""
    words = [sys.executable, "-m", "tools.bench.doors", str(folder), "--door", door, "--memory", memory]
    seen = limited(words, parse_size(memory) >> 20)
    told = f"{seen['peak anon MiB']} | {seen['oom kills']} | {seen['seconds']}"
    if seen["rc"]:
        return f"| {door} | failed: {seen['rc']} | {told} | |"
    found = json.loads((folder / "found.json").read_text())
    same = "yes" if found["bits"] == expected else "no"
    return f"| {door} | {found['gap']:.1e} | {told} | {same} |"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--mib", type=int, default=4096)
    parser.add_argument("--memory", default="512MiB")
    parser.add_argument("--doors", help="names with commas between; default: all")
    parser.add_argument("--door", choices=DOORS, help="fit through one, without a limit: what each process does")
    asked = parser.parse_args()
    if asked.door:
        fit_door(asked.folder, asked.door, asked.memory)
        return
    asked.folder.mkdir(parents=True)
    write_rows(asked.folder, asked.mib)
    program = [sys.executable, "-m", "streamsvm"]
    store, model = asked.folder / "rows.zarr", asked.folder / "model.ssvm"
    limits = ["--memory", asked.memory, "--threads", "1"]
    subprocess.run([*program, "ingest", asked.folder / "rows.parquet", store, "--label", "y", *limits[:2]], check=True)
    subprocess.run([*program, "fit", store, model, *limits], check=True)
    from streamsvm import load_model

    expected = bits(load_model(model).weights)
    print(f"{HEAD}\n|---|---|---|---|---|---|", flush=True)
    for door in asked.doors.split(",") if asked.doors else DOORS:
        print(measured(asked.folder, door, asked.memory, expected), flush=True)


if __name__ == "__main__":
    main()
