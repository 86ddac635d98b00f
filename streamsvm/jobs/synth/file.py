"""synth NAME.csv: generated rows as a file of text, such as other programs write."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from streamsvm import durable
from streamsvm.config.checks import build
from streamsvm.engine.progress import Stopwatch
from streamsvm.errors import UsageError
from streamsvm.jobs.synth.options import SynthJob
from streamsvm.outputs import Output, begins, claim
from streamsvm.store.generators import FILE_GENERATORS
from streamsvm.store.generators.raw_table import FileGenerator, csv_lines
from streamsvm.store.write.building import all_locked
from streamsvm.types import Report


def write_file(job: SynthJob, ends: dict[Path, int], report: Report) -> None:
    """Fill the files one after the other, each up to the row it ends at. Raises UsageError, ExistsError, StorageError."""
    if job.name not in set(FILE_GENERATORS):
        made = ", ".join(FILE_GENERATORS)
        raise UsageError(
            f"'{job.name}' makes stores, and no files of text", hint=f"name the output NAME.zarr; files: {made}"
        )
    generator: FileGenerator = build(
        FILE_GENERATORS[job.name], {}, f"generator '{job.name}'", rows=job.rows, seed=job.seed
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

    with all_locked(list(ends)):
        claim([Output(path, begins("a file of generated rows", header)) for path in ends], overwrite=job.overwrite)
        for path, end in ends.items():
            durable.write_stream(path, pieces(start, end))
            start = end
