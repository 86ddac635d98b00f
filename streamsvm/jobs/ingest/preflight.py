"""What an ingest needs in memory and on disk, asked for before it takes either."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from streamsvm.config.units import mib
from streamsvm.jobs.ingest.stores.shuffle import SHUFFLE_BYTES
from streamsvm.rows import CSR, row_count
from streamsvm.schedule import budget
from streamsvm.store.sources import Source
from streamsvm.store.sources.schema import NO_TABLE, TableWidth
from streamsvm.store.write.building import require_space
from streamsvm.types import Batch, Term

SOURCE_BYTES = 64 << 20
"""Bytes for parser, text and rows in flight; the most is a Parquet file with one-hot columns (measured: 60 MiB with
pyarrow)."""
CHUNKS_PER_WRITER = 3
"""Chunks a writer holds at once: the one that fills, the rows it is joined from, the unit on its way to disk.
Where a thread writes a chunk while the next one fills, that one is joined when the other is written."""


PARSER_BYTES = 16 << 20
"""Bytes of each further thread that parses: text, arrays it is parsed into, rows (measured: 9 MiB with short rows)."""


class SourceMemory(NamedTuple):
    """What a source may take, and how many threads there is memory for."""

    limit: int
    """Bytes of a table, which one thread reads."""
    threads: int
    """Threads, one at least."""
    notices: tuple[str, ...]
    """A line where these are fewer than were wanted."""


def memory_for_source(
    stated: int | None,
    chunk_bytes: int,
    stores: int,
    *,
    shuffle: bool,
    threads: int = 1,
    files: Sequence[Path] = (),
    width: Callable[[], TableWidth] = lambda: NO_TABLE,
) -> SourceMemory:
    """Return what a source may take beside what ``stores`` writers hold, on as many of ``threads`` as there is memory for.

    ``files``: the paths that are read; ``width`` says what the columns of a table take. Raises BudgetError when not
    even the least fits, with a limit that is enough for all.
    """
    limit = budget.memory_limit(stated)
    names = budget.files_term(files)

    def planned(count: int, wide: int = 0) -> budget.MemoryPlan:
        terms = (
            *budget.base_terms(),
            Term("source", SOURCE_BYTES, "text, parser and rows in flight, at most"),
            names,
            *([Term("columns", wide, "more of a wide table")] if wide else []),
            Term("parsers", (count - 1) * PARSER_BYTES, f"{count - 1} more threads"),
            Term(
                "chunks",
                CHUNKS_PER_WRITER * chunk_bytes * stores,
                f"{CHUNKS_PER_WRITER} of {mib(chunk_bytes)} for each store",
            ),
            *([Term("shuffle", SHUFFLE_BYTES * stores, "a run or a bucket of rows")] if shuffle else []),
        )
        return budget.MemoryPlan(terms, limit, resident=True, cached=False, retain=True, threads=count)

    plan, alone = budget.with_most_threads(planned, threads), planned(1).total
    # tables, which ask for the limit, are not parsed by further threads
    left, table = limit - alone + SOURCE_BYTES, width()
    wide = planned(1, max(0, table.nbytes - SOURCE_BYTES))
    if alone > min(limit, budget.machine_bytes()):
        wide.check(", or smaller chunks: --chunk")
    if table.nbytes > left:
        raise table.refusal(left, wide.total)
    return SourceMemory(left, plan.threads, plan.short_of(threads))


def check_disk(target: Path, total: int, read: Source, first: Batch, columns: int | None) -> None:
    """Refuse what the disk has no room for, judging by the rows read first of sources of ``total`` bytes.

    ``columns`` is that of a dense store; None for CSR. Raises StorageError E-NOSPACE.
    """
    entries_read = first.X.data if isinstance(first.X, CSR) else first.X.values
    entries = 4 * columns if columns else 8 + 8 * np.count_nonzero(entries_read) / row_count(first.X)
    per_row = entries + 4 + 4 * (first.weight is not None)
    known, nbytes = sum(file.rows for file in read.sources), sum(file.read for file in read.sources)
    if known and nbytes:
        require_space(target, per_row * known / nbytes * total)
