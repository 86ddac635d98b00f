"""Our reader against raw preadv into a reused buffer, same block sizes, in turn in one process, warm and cold.

The raw side reads one file that holds the blocks one after the other, which is the most a disk layout can give; the
chunk files are read raw as well, to tell the price of the layout from the price of our code.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from harness import arguments, evict, interleaved, scratch, show

from streamsvm.jobs.synth import SynthJob, synth
from streamsvm.schedule.plan import epoch_visits
from streamsvm.schedule.stream import Stream
from streamsvm.store import open_store, read_chunk

SUFFIX = {"zarr": ".zarr", "hdf5": ".h5"}


def block_files(root: Path) -> list[Path]:
    """The files that hold X in order: one a chunk (Zarr), or parts with many (HDF5)."""
    chunks = sorted((root / "X").glob("c.*"), key=lambda p: int(p.name.split(".")[1]))
    return chunks or sorted(root.glob("part-*.h5"))


def one_file(store: Any, target: Path) -> list[int]:
    """The blocks of X one after the other in one file; returns their sizes."""
    sizes, buffers = [], store.buffers()
    with open(target, "wb") as joined:
        for chunk in range(len(store.layout.chunks)):
            values = read_chunk(store, chunk, buffers).X.values
            sizes.append(joined.write(memoryview(values).cast("B")))
    return sizes


def raw_single(path: Path, sizes: list[int], buffer: Any) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    offset = 0
    for size in sizes:
        assert os.preadv(descriptor, [buffer[:size]], offset) == size
        offset += size
    os.close(descriptor)


def raw_files(files: list[Path], buffer: Any) -> None:
    for path in files:
        descriptor, offset = os.open(path, os.O_RDONLY), 0
        while got := os.preadv(descriptor, [buffer], offset):
            offset += got
        os.close(descriptor)


def streamed(store: Any, depth: int, shuffled: bool) -> None:
    with Stream(store, epoch_visits(store.layout, 0, 0, shuffled), depth=depth) as stream:
        assert sum(len(loaded.chunk.codes) for loaded in stream) == store.layout.rows


def contestants(root: Path, joined: Path) -> tuple[dict[str, Callable[[], None]], list[Path], dict[str, int]]:
    store, files = open_store(root), block_files(root)
    sizes = one_file(store, joined)
    buffer = memoryview(np.ones(max(sizes), np.uint8))
    runs: dict[str, Callable[[], None]] = {
        "raw, one file": lambda: raw_single(joined, sizes, buffer),
        "raw, files of the store": lambda: raw_files(files, buffer),
        "streamsvm, one thread": lambda: streamed(store, 0, False),
        "streamsvm, reader thread": lambda: streamed(store, 2, False),
        "streamsvm, reader thread, shuffled": lambda: streamed(store, 2, True),
    }
    nbytes = dict.fromkeys(runs, store.layout.bytes_per_pass)
    nbytes |= {"raw, one file": sum(sizes), "raw, files of the store": sum(path.stat().st_size for path in files)}
    return runs, [joined, *(p for p in root.rglob("*") if p.is_file())], nbytes


def main() -> None:
    options = arguments(__doc__, rows=4_000_000, repeats=7, chunk_mib=4, format="zarr")
    with scratch() as directory:
        root = directory / f"susy{SUFFIX[options.format]}"
        synth(SynthJob("susy", str(root), rows=options.rows, chunk_bytes=options.chunk_mib << 20))
        runs, files, nbytes = contestants(root, directory / "joined")
        rows = []
        for state in ("warm", "cold"):
            seconds = interleaved(runs, options.repeats, (lambda: evict(files)) if state == "cold" else None)
            speed = {name: nbytes[name] / seconds[name] / 1e6 for name in runs}
            best = speed["raw, one file"]
            rows += [{"reader": n, "cache": state, "MB/s": speed[n], "x raw": speed[n] / best} for n in runs]
        show(
            f"reader: {options.rows:,} x 18 float32 in {options.format}, blocks of {options.chunk_mib} MiB",
            rows,
            options,
        )


if __name__ == "__main__":
    main()
