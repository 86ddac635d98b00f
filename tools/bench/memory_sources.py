"""Memory with data 4 and 10 times the limit, for every source: python memory_sources.py [--sources csv,npy] [--factors 4,10].

Each source is made up, ingested, fitted and predicted by processes in a memory control group (see memory.py) with
--memory below its limit; where there is no such group the anonymous memory is measured and nothing is enforced.
Anonymous memory must stay below --memory, and over the last 60 % of a run it must not rise by more than 1 MiB for each
GiB that is read. Exits 1 when it does; --json FILE keeps the rows, and a later run adds to them.
"""

from __future__ import annotations

import argparse
import bz2
import gzip
import io
import json
import lzma
import os
import sys
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from tools.bench.memory import limited
from tools.measure.harness import Row, hardware, print_table

COLUMNS = 40
BLOCK = 4096
"""Rows drawn once and written again and again: memory does not depend on what the numbers are."""
ENOUGH = 6 << 30
"""Bytes a fit reads at least, in as many passes as that takes: enough to see whether memory rises."""
ROW_GROUP = 1 << 16
"""Rows of a row group of Parquet: the footer describes each of them, and is read as a whole."""
MOST_RISE = 1.0
"""MiB of anonymous memory for each GiB read."""
Make = Callable[[Path, int], tuple[Path, list[str], int]]
"""Writes about so many bytes below a directory; the source, the options it needs, its bytes when unpacked."""


def block() -> tuple[Any, Any]:
    """X float32 (BLOCK, COLUMNS) and labels (BLOCK,) uint8 that follow from it."""
    X = np.random.default_rng(0).normal(size=(BLOCK, COLUMNS)).round(3).astype(np.float32)
    return X, (X[:, 0] > 0).astype(np.uint8)


def delimited(mark: str) -> tuple[bytes, bytes]:
    """Header and body of a table as text."""
    X, y = block()
    rows = (mark.join(map(repr, row)) + f"{mark}{c}\n" for row, c in zip(X.tolist(), y.tolist(), strict=True))
    return (mark.join([*(f"x{j}" for j in range(COLUMNS)), "y"]) + "\n").encode(), "".join(rows).encode()


def csv_text() -> tuple[bytes, bytes]:
    return delimited(",")


def tsv_text() -> tuple[bytes, bytes]:
    return delimited("\t")


def svmlight_text() -> tuple[bytes, bytes]:
    X, y = block()
    entries = (" ".join(f"{j + 1}:{v!r}" for j, v in enumerate(row) if j % 2) for row in X.tolist())
    return b"", "".join(f"{c} {row}\n" for row, c in zip(entries, y.tolist(), strict=True)).encode()


def text(name: str, content: Callable[[], tuple[bytes, bytes]], pack: Callable[[bytes], bytes] = bytes) -> Make:
    """A text file; compressed, each block is a member of its own."""

    def make(directory: Path, nbytes: int) -> tuple[Path, list[str], int]:
        head, body = content()
        options = [] if name.startswith("t.svm") else ["--label", "y"]
        if pack is not bytes:
            body = body * (1 + (4 << 20) // len(body))
        member, count = pack(body), -(-nbytes // len(body))
        with open(directory / name, "wb") as file:
            file.write(pack(head) if head else b"")
            file.writelines(member for _ in range(count))
        return directory / name, options, count * len(body)

    return make


def zstd(raw: bytes) -> bytes:
    import pyarrow as pa

    return bytes(pa.compress(raw, codec="zstd", asbytes=True))


def blocks(nbytes: int, item: int) -> tuple[int, Iterator[int]]:
    """Blocks that make up ``nbytes`` of ``item`` bytes a value, and their first rows."""
    count = -(-nbytes // (BLOCK * COLUMNS * item))
    return count, iter(range(0, count * BLOCK, BLOCK))


def parquet(directory: Path, nbytes: int) -> tuple[Path, list[str], int]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    (X, y), (count, _) = block(), blocks(nbytes, 4)
    group = -(-ROW_GROUP // BLOCK)
    table = pa.concat_tables([pa.table({**{f"x{j}": X[:, j] for j in range(COLUMNS)}, "y": y})] * group)
    with pq.ParquetWriter(directory / "t.parquet", table.schema, compression="none", use_dictionary=False) as file:
        for _ in range(0, count, group):
            file.write_table(table)
    return directory / "t.parquet", ["--label", "y"], -(-count // group) * group * X.nbytes


def npy_header(shape: tuple[int, ...], dtype: Any) -> bytes:
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(header, {"descr": np.dtype(dtype).str, "fortran_order": False, "shape": shape})
    return header.getvalue()


def npy(directory: Path, nbytes: int) -> tuple[Path, list[str], int]:
    (X, y), (count, starts) = block(), blocks(nbytes, 4)
    with open(directory / "t.npy", "wb") as file:
        file.write(npy_header((count * BLOCK, COLUMNS), X.dtype))
        file.writelines(X.tobytes() for _ in starts)
    np.save(directory / "y.npy", np.tile(y, count))
    return directory / "t.npy", ["--labels", str(directory / "y.npy")], count * X.nbytes


def npz(directory: Path, nbytes: int) -> tuple[Path, list[str], int]:
    (X, y), (count, starts) = block(), blocks(nbytes, 4)
    with zipfile.ZipFile(directory / "t.npz", "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        with archive.open("X.npy", "w", force_zip64=True) as file:
            file.write(npy_header((count * BLOCK, COLUMNS), X.dtype))
            for _ in starts:
                file.write(X.tobytes())
        with archive.open("y.npy", "w") as file:
            file.write(npy_header((count * BLOCK,), y.dtype) + np.tile(y, count).tobytes())
    return directory / "t.npz", [], count * X.nbytes


def idx(directory: Path, nbytes: int) -> tuple[Path, list[str], int]:
    """Bytes of pixels, counted as the float32 they become."""
    (X, y), (count, starts) = block(), blocks(nbytes, 4)
    pixels = (64 * np.abs(X)).astype(np.uint8)
    with open(directory / "t.idx", "wb") as file:
        file.write(bytes([0, 0, 8, 2]) + (count * BLOCK).to_bytes(4, "big") + COLUMNS.to_bytes(4, "big"))
        file.writelines(pixels.tobytes() for _ in starts)
    labels = directory / "y.idx"
    labels.write_bytes(bytes([0, 0, 8, 1]) + (count * BLOCK).to_bytes(4, "big") + np.tile(y, count).tobytes())
    return directory / "t.idx", ["--labels", str(labels)], count * X.nbytes


def hdf5(directory: Path, nbytes: int) -> tuple[Path, list[str], int]:
    import h5py

    (X, y), (count, starts) = block(), blocks(nbytes, 4)
    with h5py.File(directory / "t.h5", "w") as file:
        stored = file.create_dataset("X", (count * BLOCK, COLUMNS), "f4", chunks=(BLOCK, COLUMNS))
        for start in starts:
            stored[start : start + BLOCK] = X
        file["y"] = np.tile(y, count)
    return directory / "t.h5", [], count * X.nbytes


def zarr(directory: Path, nbytes: int) -> tuple[Path, list[str], int]:
    import zarr as library

    (X, y), (count, starts) = block(), blocks(nbytes, 4)
    group = library.open_group(directory / "t.zarr", mode="w")
    stored = group.create_array("X", shape=(count * BLOCK, COLUMNS), chunks=(BLOCK, COLUMNS), dtype="f4")
    for start in starts:
        stored[start : start + BLOCK] = X
    group.create_array("y", data=np.tile(y, count), chunks=(1 << 20,))
    return directory / "t.zarr", [], count * X.nbytes


SOURCES: dict[str, Make] = {
    "svmlight": text("t.svm", svmlight_text),
    "csv": text("t.csv", csv_text),
    "tsv": text("t.tsv", tsv_text),
    "parquet": parquet,
    "npy": npy,
    "npz": npz,
    "hdf5": hdf5,
    "zarr": zarr,
    "idx": idx,
    "csv.gz": text("t.csv.gz", csv_text, lambda raw: gzip.compress(raw, 1)),
    "svm.xz": text("t.svm.xz", svmlight_text, lambda raw: lzma.compress(raw, preset=0)),
    "csv.zst": text("t.csv.zst", csv_text, zstd),
    "tsv.bz2": text("t.tsv.bz2", tsv_text, lambda raw: bz2.compress(raw, 1)),
}


def uncached(directory: Path) -> None:
    """Drop the pages of what was written: else they are charged to whoever wrote them, not to the group that reads."""
    for path in directory.rglob("*"):
        if path.is_file():
            descriptor = os.open(path, os.O_RDONLY)
            os.fsync(descriptor)
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(descriptor)


def size(directory: Path) -> int:
    return sum(path.stat().st_size for path in directory.rglob("*") if path.is_file())


def commands(
    name: str, source: Path, nbytes: int, options: list[str], directory: Path
) -> Iterator[tuple[str, list[object], int]]:
    """What is run on a source of ``nbytes``: its name, the arguments, and the bytes it reads."""
    suffix = "h5" if name in ("hdf5", "idx", "tsv") else "zarr"
    store, model = directory / f"s.{suffix}", directory / "m.ssvm"
    yield "ingest", ["ingest", source, store, *options], nbytes
    stored = size(store)
    passes = max(3, -(-ENOUGH // stored))
    fit = ["--loss", "hinge", "--solver", "dcd", "--max-passes", passes, "--tolerance", "1e-12"]
    yield "fit", ["fit", store, model, *fit], passes * stored
    yield "predict", ["predict", model, source, directory / "p.npy", "--output", "decision"], nbytes
    if name in ("hdf5", "zarr"):
        yield "fit in place", ["fit", source, directory / "n.ssvm", *fit], (passes + 1) * nbytes


def tried(name: str, factor: int, options: argparse.Namespace) -> Iterator[Row]:
    """Every job on one source of ``factor`` times the limit."""
    with tempfile.TemporaryDirectory(prefix="streamsvm-memory-", dir=options.directory) as made:
        directory = Path(made)
        source, needed, nbytes = SOURCES[name](directory, factor * options.limit_mib << 20)
        memory = ["--memory", f"{options.memory_mib}MiB"]
        for job, arguments, read in commands(name, source, nbytes, needed, directory):
            uncached(directory)
            row = limited([sys.executable, "-m", "streamsvm", "-q", *map(str, arguments), *memory], options.limit_mib)
            rise = row["rise MiB"] / (read / 2**30)
            kept = row["rc"] == 0 and row["peak anon MiB"] <= options.memory_mib and rise < MOST_RISE
            yield {
                "source": name, "times the limit": factor, "job": job, "GiB read": round(read / 2**30, 2),
                "seconds": row["seconds"], "peak anon MiB": row["peak anon MiB"], "promised": options.memory_mib,
                "MiB a GiB": round(rise, 2), "oom kills": row["oom kills"], "kept": "yes" if kept else "NO",
            }  # fmt: skip
            if row["rc"]:
                print(f"{name} x {factor}, {job}: exit code {row['rc']}", file=sys.stderr)
                return


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--sources", default=",".join(SOURCES))
    parser.add_argument("--factors", default="4,10")
    parser.add_argument("--limit-mib", type=int, default=256)
    parser.add_argument("--memory-mib", type=int, default=252)
    parser.add_argument("--directory", help="where the data is put [the system's place for temporary files]")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    known = json.loads(options.json.read_text()) if options.json and options.json.exists() else []
    rows: list[Row] = []
    for name in options.sources.split(","):
        for factor in map(int, options.factors.split(",")):
            rows += tried(name, factor, options)
            if options.json:
                options.json.write_text(json.dumps(known + rows, indent=1))
    print_table(rows)
    print(hardware())
    return int(any(row["kept"] != "yes" for row in rows))


if __name__ == "__main__":
    sys.exit(main())
