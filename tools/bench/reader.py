"""Our reader against raw preadv into a reused buffer, same block sizes, in turn in one process, warm and cold.

The raw side reads one file that holds the blocks one after the other, which is the most a disk layout can give; the
chunk files are read raw as well, to tell the price of the layout from the price of our code. A timing is some passes
over the data, as a fit makes them: its threads and buffers are made once.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from streamsvm.jobs.common_options import SynthJob
from streamsvm.jobs.synth import synth
from streamsvm.schedule.stream import Stream, iterate_visits
from streamsvm.store import open_store, read_chunk
from tools.measure.harness import arguments, evict, interleaved, scratch, show

PAST_CACHE = "streamsvm, reader threads, past the cache"
"""As stores are read that the page cache does not hold; only the first chunk of each pass over the store goes through it."""
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
            sizes.append(joined.write(values.data.cast("B")))
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


def streamed(store: Any, depth: int, shuffled: bool, passes: int, *, retain: bool = True) -> None:
    order = islice(iterate_visits(store.layout, 0, shuffled), passes * len(store.layout.chunks))
    with Stream(store, order, depth=depth, retain=retain) as stream:
        assert sum(len(loaded.chunk.codes) for loaded in stream) == passes * store.layout.rows


class Contest:
    """A store, the same bytes in one file, and the ways to read them."""

    def __init__(self, root: Path, joined: Path, passes: int) -> None:
        store, raw = open_store(root), block_files(root)
        sizes = one_file(store, joined)
        buffer = np.ones(max(sizes), np.uint8).data
        self.runs: dict[str, Callable[[], object]] = {
            "raw, one file": lambda: [raw_single(joined, sizes, buffer) for _ in range(passes)],
            "raw, files of the store": lambda: [raw_files(raw, buffer) for _ in range(passes)],
            "streamsvm, one thread": lambda: streamed(store, 0, False, passes),
            "streamsvm, reader threads": lambda: streamed(store, 2, False, passes),
            "streamsvm, reader threads, shuffled": lambda: streamed(store, 2, True, passes),
            PAST_CACHE: lambda: streamed(open_store(root), 2, False, passes, retain=False),
        }
        nbytes = dict.fromkeys(self.runs, store.layout.bytes_per_pass)
        nbytes |= {"raw, one file": sum(sizes), "raw, files of the store": sum(path.stat().st_size for path in raw)}
        self.nbytes = {name: passes * size for name, size in nbytes.items()}
        self.files = [joined, *(p for p in root.rglob("*") if p.is_file())]

    def rows(self, state: str, repeats: int) -> list[dict[str, Any]]:
        seconds = interleaved(self.runs, repeats, (lambda: evict(self.files)) if state == "cold" else None)
        speed = {name: self.nbytes[name] / seconds[name] / 1e6 for name in self.runs}
        best = speed["raw, one file"]
        return [
            {"reader": n, "cache": state, "MB/s": speed[n], "x raw": speed[n] / best}
            for n in self.runs
            if n != PAST_CACHE or state == "cold"
        ]


def main() -> None:
    options = arguments(__doc__, rows=4_000_000, repeats=7, chunk_mib=4, passes=4, format="zarr")
    with scratch() as directory:
        root = directory / f"susy{SUFFIX[options.format]}"
        synth(SynthJob("susy", str(root), rows=options.rows, chunk_bytes=options.chunk_mib << 20))
        rows = Contest(root, directory / "joined", options.passes).rows("warm", options.repeats)
        rows += Contest(root, directory / "joined", 1).rows("cold", options.repeats)
        show(
            f"reader: {options.rows:,} x 18 float32 in {options.format}, blocks of {options.chunk_mib} MiB",
            rows,
            options,
        )


if __name__ == "__main__":
    main()
