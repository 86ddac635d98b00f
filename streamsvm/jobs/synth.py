"""synth: write generated rows to a store, or raw values to a CSV file (NAME.csv).

The same name, rows and seed make the same store.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from streamsvm import durable
from streamsvm.config.options import build_from_settings
from streamsvm.engine.progress import Stopwatch
from streamsvm.errors import UsageError
from streamsvm.jobs import JobResult
from streamsvm.jobs.common_options import SynthJob
from streamsvm.outputs import Output, check_writable, kind_by_header, output_path
from streamsvm.rows import CSR, Int32, row_slice
from streamsvm.store import create
from streamsvm.store.format.arrays import FLOAT16, FLOAT32, Encoding
from streamsvm.store.generators import FILE_GENERATORS, GENERATORS
from streamsvm.store.generators.raw_table import FileGenerator, csv_lines
from streamsvm.store.generators.simple import Generator
from streamsvm.store.write.resume import lock_all, require_space, store_outputs
from streamsvm.store.write.writer import StoreWriter
from streamsvm.type_aliases import JsonObject, ValuesByName
from streamsvm.types import Batch, Report, silent


@dataclass(frozen=True, slots=True, repr=False)
class SynthResult(JobResult):
    """The result of ``synth``: the paths and the number of rows."""

    store: Path | str
    """The path of the store; a text for a URL."""
    test: Path | str | None
    """The path of the test store; None if there is none."""
    rows: int
    """Number of generated rows, including those of the test store."""
    seconds: float
    """Wall-clock time."""


def synth(job: SynthJob, report: Report = silent) -> SynthResult:
    """Generate rows and write them. Raises UsageError for an unknown name, ExistsError, StorageError."""
    if not job.is_file and job.name in set(FILE_GENERATORS) - set(GENERATORS):
        raise UsageError(
            f"'{job.name}' generates CSV files, and no store", hint="name the output NAME.csv, then ingest it"
        )
    store = output_path(job.store)
    ends = {store: job.training_rows}
    if job.training_rows < job.rows:
        ends[job.test_path()] = job.rows
    began = time.perf_counter()
    if job.is_file:
        write_file(job, ends, report)
    else:
        _write(job, _generator(job), ends, report)
    seconds = time.perf_counter() - began
    test = job.test_path() if len(ends) > 1 else None
    report({"event": "synth", "rows": job.rows, "of": job.rows, "seconds": seconds, "done": True})
    return SynthResult(store, test, job.rows, seconds)


def write_file(job: SynthJob, ends: dict[Path, int], report: Report) -> None:
    """Write the CSV file, and one for testing if rows are set aside. Raises UsageError, ExistsError, StorageError."""
    if job.name not in set(FILE_GENERATORS):
        names = ", ".join(FILE_GENERATORS)
        raise UsageError(
            f"'{job.name}' generates stores, and no CSV files", hint=f"name the output NAME.zarr; CSV files: {names}"
        )
    generator: FileGenerator = build_from_settings(
        FILE_GENERATORS[job.name], _settings(job), f"generator '{job.name}' of files", rows=job.rows, seed=job.seed
    )
    header = (",".join(generator.header) + "\n").encode()
    start, stopwatch = 0, Stopwatch()

    def pieces(begin: int, end: int) -> Iterator[bytes]:
        yield header
        at = 0
        for table in generator.tables():
            first, last = max(begin, at), min(end, at + table.num_rows)
            if first < last:
                yield csv_lines(table.slice(first - at, last - first))
            at += table.num_rows
            if stopwatch.due():
                report({"event": "synth", "rows": at, "of": job.rows, "seconds": stopwatch.seconds, "done": False})
            if at >= end:
                break

    with lock_all(list(ends)):
        check_writable(
            [Output(path, kind_by_header("a file of generated rows", header)) for path in ends], overwrite=job.overwrite
        )
        for path, end in ends.items():
            durable.write_stream(path, pieces(start, end))
            start = end


def _settings(job: SynthJob) -> ValuesByName:
    """Return the settings of the generator that were given."""
    settings: ValuesByName = dict(job.generator_options)
    return settings if job.columns is None else settings | {"columns": job.columns}


def _generator(job: SynthJob) -> Generator:
    what = f"generator '{job.name}'"
    generator: Generator = build_from_settings(GENERATORS[job.name], _settings(job), what, rows=job.rows, seed=job.seed)
    return generator


def _write(job: SynthJob, generator: Generator, ends: dict[Path, int], report: Report) -> None:
    """Write rows to the stores, one store after the other; they are committed when all are complete."""
    with lock_all(list(ends)), ExitStack() as undo:
        check_writable(store_outputs(list(ends), may_exist=False), overwrite=job.overwrite)
        writers = []
        for path in ends:
            sparse, encoding = generator.sparse, _choose_encoding(job, generator)
            writers.append(create(path, sparse=sparse, chunk_bytes=job.chunk_bytes, overwrite=True, encoding=encoding))
            undo.callback(writers[-1].abort)
        targets = list(zip(writers, ends.values(), strict=True))
        done, stopwatch = 0, Stopwatch()
        for batch in generator.batches():
            if not done:
                require_space(next(iter(ends)), bytes_per_row(batch, generator) * job.rows)
            _append_rows(batch, done, targets, generator.classes)
            done += len(batch.labels)
            if stopwatch.due():
                event = {"event": "synth", "rows": done, "of": job.rows, "seconds": stopwatch.seconds}
                report(event | {"done": False})
        for writer in reversed(writers):  # the store last: its existence says that both are complete
            writer.commit(generator.classes, generator.columns, _facts(job, generator))
        undo.pop_all()


def _choose_encoding(job: SynthJob, generator: Generator) -> Encoding | None:
    """Return the encoding of the stored rows; None for float32. Raises UsageError for float16 that would round them."""
    if job.store_dtype == FLOAT16 and generator.dtype != FLOAT16:
        hint = "leave it out; ingest --store-dtype float16 rounds the rows of files and arrays"
        raise UsageError(f"the rows of '{job.name}' are no float16 numbers", hint=hint)
    return Encoding(FLOAT16) if generator.dtype == FLOAT16 and job.store_dtype != FLOAT32 else None


def bytes_per_row(batch: Batch, generator: Generator) -> float:
    """Return the bytes of a row on disk, estimated from the first rows."""
    if isinstance(batch.X, CSR):
        return 8 * len(batch.X.data) / len(batch.labels) + 12
    return np.dtype(generator.dtype).itemsize * generator.columns + 4


def _append_rows(batch: Batch, start: int, targets: list[tuple[StoreWriter, int]], classes: tuple[str, ...]) -> None:
    """Append rows to the stores to which they belong; ``start``: number of the first row."""
    codes: Int32 = np.searchsorted(np.array(classes, np.float64), batch.labels).astype(np.int32)
    taken = 0
    for writer, end in targets:
        stop = min(end - start, len(codes))
        if stop > taken:
            writer.append(row_slice(batch.X, taken, stop), codes[taken:stop], None)
            taken = stop


def _facts(job: SynthJob, generator: Generator) -> JsonObject:
    """Return the facts for the manifest: generator, settings and seed of the rows."""
    settings = {"generator": job.name, "rows": job.rows, "seed": job.seed, **job.generator_options}
    return {"synth": settings, "names": None if generator.names is None else list(generator.names)}
