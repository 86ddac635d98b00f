"""One data set through every door of ``StreamSVC.fit``: peak memory, seconds, certificate, and whether the model's bits are one.

python -m tools.bench.doors FOLDER --mib 4096 --memory 512MiB

The rows are written once, as Parquet, HDF5 and .npy, block by block; the command line ingests the Parquet file and fits, each door is
a process of its own, whose anonymous memory is sampled (``tools.bench.memory``). FOLDER needs about five times the size.
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

from tools.bench.memory import watch

COLUMNS, BLOCK = 100, 50_000
"""Columns, and rows of a block."""


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
    """A dask array over a memory map, and its labels."""
    import dask.array as da

    X, y = (np.load(folder / f"{name}.npy", mmap_mode="r") for name in ("X", "labels"))
    return da.from_array(X, chunks=(BLOCK, COLUMNS)), da.from_array(y, chunks=BLOCK)


DOORS: dict[str, Callable[[Path], tuple[Any, Any]]] = {
    "store": lambda folder: (folder / "rows.zarr", None),
    "Parquet": lambda folder: (folder / "rows.parquet", "y"),
    "polars scan": polars_scan,
    "DuckDB": duckdb_result,
    "dask array": dask_array,
    "h5py": lambda folder: (h5py.File(folder / "rows.h5")["X"], np.load(folder / "labels.npy")),
}


def write_rows(folder: Path, mib: int) -> None:
    """Write the rows in three formats, a block at a time; a linear rule with noise says the labels."""
    rng, blocks = np.random.default_rng(0), max(1, mib * 2**20 // (4 * COLUMNS * BLOCK))
    rule, names = rng.normal(size=COLUMNS), [f"c{k}" for k in range(COLUMNS)]
    kinds = pa.schema([(name, pa.float32()) for name in names] + [("y", pa.int64())])
    X = np.lib.format.open_memmap(folder / "X.npy", "w+", np.float32, (blocks * BLOCK, COLUMNS))
    labels = []
    with h5py.File(folder / "rows.h5", "w") as file, pq.ParquetWriter(folder / "rows.parquet", kinds) as writer:
        rows = file.create_dataset("X", X.shape, np.float32, chunks=(10_000, COLUMNS))
        for start in range(0, len(X), BLOCK):
            block = rng.normal(size=(BLOCK, COLUMNS)).astype(np.float32)
            y = (block @ rule + 2.0 * rng.normal(size=BLOCK) > 0).astype(np.int64)
            X[start : start + BLOCK] = rows[start : start + BLOCK] = block
            writer.write_table(pa.table([*block.T, y], schema=kinds))
            labels.append(y)
    X.flush()
    np.save(folder / "labels.npy", np.concatenate(labels))


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
    seen = watch(subprocess.Popen(words))
    if seen["rc"]:
        return f"| {door} | failed: {seen['rc']} | {seen['peak anon MiB']} | {seen['seconds']} | |"
    found = json.loads((folder / "found.json").read_text())
    same = "yes" if found["bits"] == expected else "no"
    return f"| {door} | {found['gap']:.1e} | {seen['peak anon MiB']} | {seen['seconds']} | {same} |"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--mib", type=int, default=4096)
    parser.add_argument("--memory", default="512MiB")
    parser.add_argument("--door", choices=DOORS)
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
    print("| door | gap | peak, MiB | seconds | bits of the command line |\n|---|---|---|---|---|", flush=True)
    for door in DOORS:
        print(measured(asked.folder, door, asked.memory, expected), flush=True)


if __name__ == "__main__":
    main()
