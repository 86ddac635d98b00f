"""Reading: ``--what blocks``, our reader beside raw reads; ``--what types``, fits of stores of float32 and float16 that wait for a disk.

blocks: our reader against raw preadv into a reused buffer, same block sizes, in turn in one process, warm and cold.

The raw side reads one file that holds the blocks one after the other, which is the most a disk layout can give; the
chunk files are read raw as well, to tell the price of the layout from the price of our code. A timing is some passes
over the data, as a fit makes them: its threads and buffers are made once.

types: softmax fits of vectors that float16 rounds, from a store of each type, under --memory that rows do not fit in. ``os.preadv``
is slowed down to --rate MB/s in all, as a network disk would be, so that other programs on the machine do not decide the figures.
"right" is the share of held-out rows.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from itertools import islice
from multiprocessing import get_context
from pathlib import Path
from typing import Any, Self

import numpy as np

import streamsvm as sv
from streamsvm.jobs.common_options import SynthJob
from streamsvm.jobs.synth import synth
from streamsvm.schedule.stream import Stream, iterate_visits
from streamsvm.store import open_store, read_chunk
from streamsvm.store.generators.simple import Embeddings
from tools.measure.harness import arguments, evict, interleaved, scratch, show

PAST_CACHE = "streamsvm, reader threads, past the cache"
"""As stores are read that the page cache does not hold; only the first chunk of each pass over the store goes through it."""
TYPES = ("float32", "float16")
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


class SlowDisk:
    """``os.preadv`` at a limited rate, that of all threads together."""

    def __init__(self, bytes_per_second: float) -> None:
        self._rate, self._preadv, self._lock = bytes_per_second, os.preadv, threading.Lock()
        self._free = 0.0
        self.read = 0
        """Bytes read so far."""

    def __enter__(self) -> Self:
        vars(os)["preadv"] = self._read_slowly
        return self

    def __exit__(self, *_: object) -> None:
        vars(os)["preadv"] = self._preadv

    def _read_slowly(self, *arguments: Any) -> int:
        count = self._preadv(*arguments)
        with self._lock:
            self._free = max(self._free, time.monotonic()) + count / self._rate
            ready = self._free
            self.read += count
        time.sleep(max(0.0, ready - time.monotonic()))
        return count


def fit_slowly(directory: Path, dtype: str, memory: int, rate: float) -> dict[str, Any]:
    """Fit the store of a type behind the slow disk; in a process of its own, as what a process holds counts against --memory."""
    with SlowDisk(rate) as disk:
        began = time.perf_counter()
        found = sv.fit(
            directory / f"{dtype}.zarr", directory / "m.ssvm", loss="logistic", multi_class="softmax", C=1.0, memory=memory,
            overwrite=True, report="none",
        )  # fmt: skip
        seconds = time.perf_counter() - began
    with np.load(directory / "held_out.npz") as held_out:
        right = float(np.mean(found.model.predict(held_out["X"]).astype(float) == held_out["y"]))
    return {
        "store": dtype,
        "passes": found.passes,
        "MB": disk.read / 1e6,
        "s": seconds,
        "gap": found.gap,
        "right": right,
    }


def types(options: Any) -> None:
    """Fit from a store of each type behind the slow disk, in turn."""
    # scaled by a number that is no power of two, so that float16 has to round
    batches = list(Embeddings(options.rows, columns=512, n_classes=20, noise=0.2).batches())
    X = np.concatenate([batch.X.values for batch in batches]) * np.float32(1.1)
    y, held_out = np.concatenate([batch.labels for batch in batches]), options.rows // 5
    rows: list[dict[str, Any]] = []
    with scratch() as directory:
        np.savez(directory / "held_out.npz", X=X[:held_out], y=y[:held_out])
        for dtype in TYPES:
            stored: dict[str, Any] = {"store_dtype": dtype, "chunk": "1MiB"}
            sv.ingest(X[held_out:], directory / f"{dtype}.zarr", y=y[held_out:], **stored)
        for _ in range(options.repeats):
            for dtype in TYPES:
                with ProcessPoolExecutor(1, get_context("spawn")) as pool:
                    given = directory, dtype, options.memory << 20, options.rate * 1e6
                    rows.append(pool.submit(fit_slowly, *given).result())
                print(rows[-1], flush=True)
    single, half = (np.median([row["s"] for row in rows if row["store"] == dtype]) for dtype in TYPES)
    title = f"types: {options.rows - held_out:,} x 512 at {options.rate} MB/s; float16 takes {half / single:.2f} of the time"
    show(title, rows, options)


def main() -> None:
    options = arguments(
        __doc__, what="blocks", rows=4_000_000, repeats=7, chunk_mib=4, passes=4, format="zarr", memory=250, rate=10.0
    )
    if options.what == "types":
        types(options)
        return
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
