"""Files to a store: labels to codes, rows to the layout of the store, some rows to a test store."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack, closing
from dataclasses import asdict, dataclass, field, fields
from itertools import chain
from pathlib import Path

from streamsvm.errors import DataError, UsageError
from streamsvm.jobs.holdout import Stores, refuse_existing
from streamsvm.rows import row_count
from streamsvm.schedule import budget
from streamsvm.store.forms import DENSE_FROM, LAYOUTS, density, in_layout
from streamsvm.store.labels import Labels, added, check_codings, few_labels, label_coder
from streamsvm.store.sources import Source, SourceOptions, open_source
from streamsvm.store.sources.ahead import ahead
from streamsvm.types import Batch, Report, Term, silent

REPORT_SECONDS = 0.2
SOURCE_BYTES = 64 << 20
"""Parser, text and rows in flight; the most is a Parquet file with one-hot columns (measured: 60 MiB with pyarrow)."""
CHUNKS_HELD = 3
"""By a writer: the chunk that fills, the rows it is joined from, the unit on its way to disk."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IngestJob:
    """What to read, how, and where to. Fields without a docstring are those of ``SourceOptions``."""

    sources: tuple[Path, ...]
    store: Path
    format: str = "auto"
    label: str | None = None
    positive: str | None = None
    """One class against the rest: the label that becomes class 1."""
    label_threshold: float | None = None
    """Numbers as labels: from here on class 1, below class 0."""
    labels: Path | None = None
    weight: str | None = None
    layout: str = "auto"
    """'dense', 'csr', or 'auto': csr for svmlight that is mostly empty and for tables with many one-hot columns."""
    drop: tuple[str, ...] = ()
    categorical: tuple[str, ...] = ()
    calendar: tuple[str, ...] = ()
    test_fraction: float = 0.0
    """Share of the rows that go to the test store, chosen by a hash of seed and row number."""
    test_store: Path | None = None
    """None: NAME.test.zarr beside NAME.zarr."""
    seed: int = 0
    header: bool = True
    delimiter: str | None = None
    chunk_bytes: int = 4 << 20
    memory: int | None = None
    """Bytes the process may use; refused when ingest needs more."""
    index_base: int | None = None
    features: int | None = None
    overwrite: bool = False
    allow_no_final_newline: bool = False
    ignore_qid: bool = False

    def __post_init__(self) -> None:
        if self.layout not in LAYOUTS:
            raise UsageError(f"there is no layout '{self.layout}'", hint=f"choose from {', '.join(LAYOUTS)}")
        if not 0.0 <= self.test_fraction < 1.0:
            raise UsageError(f"a test fraction of {self.test_fraction} is not in [0, 1)")
        if self.chunk_bytes < 4096:
            raise UsageError(f"chunks of {self.chunk_bytes} bytes are too small", hint="4 MiB is a good size")

    def options(self) -> SourceOptions:
        """The part that says how to read."""
        shared = {f.name for f in fields(SourceOptions)} - {"encoding"}
        return SourceOptions(**{name: getattr(self, name) for name in shared})

    def test_path(self) -> Path:
        """Where the test store goes."""
        return self.test_store or self.store.with_name(f"{self.store.stem}.test{self.store.suffix or '.zarr'}")

    def targets(self) -> list[Path]:
        """The store and, if rows are held out, the test store."""
        return [self.store, self.test_path()] if self.test_fraction else [self.store]


@dataclass(frozen=True, slots=True)
class IngestResult:
    """What was stored."""

    store: Path
    test_store: Path | None
    rows: int
    test_rows: int
    columns: int
    sparse: bool
    classes: tuple[str, ...]
    counts: tuple[int, ...]
    """Rows of each class, those of the test store included."""
    bytes_read: int
    seconds: float
    notices: dict[str, int]


@dataclass(slots=True)
class _Tally:
    """Rows written so far and their labels."""

    coder: Labels
    rows: int = 0
    test_rows: int = 0
    counts: list[int] = field(default_factory=list)
    labels: dict[int, set[str]] = field(default_factory=dict)
    """Those of each file, by its position; as long as there are no more than two."""
    began: float = field(default_factory=time.monotonic)
    reported: float = 0.0


def ingest(job: IngestJob, report: Report = silent) -> IngestResult:
    """Read the sources once and commit the store (and the test store), or leave nothing behind.

    Raises what ``open_source`` and its batches raise, ExistsError, StorageError, BudgetError, DataError E-LABEL.
    """
    refuse_existing(job.targets(), overwrite=job.overwrite)
    _check_memory(job)
    source = open_source(job.sources, job.options())
    tally = _Tally(label_coder(job.positive, job.label_threshold))
    columns = source.columns  # asked before the thread begins, which may learn more at any time
    with closing(ahead(_with_file(source))) as batches, ExitStack() as on_failure:
        first = next(batches, None)
        if first is None or not len(first[1].labels):
            raise _nothing(job, first)
        sparse = _is_sparse(job.layout, source.sparse, columns, first[1])
        stores = Stores(job.targets(), sparse, job.chunk_bytes, job.overwrite, (job.seed, job.test_fraction))
        on_failure.callback(stores.abort)
        for file, batch in chain((first,), batches):
            _store(batch, file, stores, columns, tally)
            _tell(report, job, source, tally)
        _commit(job, source, tally, stores)
        on_failure.pop_all()
    _tell(report, job, source, tally, last=True)
    return _result(job, source, tally, sparse)


def _check_memory(job: IngestJob) -> None:
    """Refuse what does not fit. Raises BudgetError."""
    held = CHUNKS_HELD * job.chunk_bytes * len(job.targets())
    terms = (
        *budget.base_terms(),
        Term("source", SOURCE_BYTES, "text, parser and rows in flight, at most"),
        Term("chunks", held, f"{CHUNKS_HELD} of {budget.mib(job.chunk_bytes)} for each store"),
    )
    limit = budget.memory_limit(job.memory)
    budget.MemoryPlan(terms, limit, resident=True, kept=False, retain=True).check(", or smaller chunks: --chunk-bytes")


def _with_file(source: Source) -> Iterator[tuple[int, Batch]]:
    """The batches, each with the position of its file."""
    for batch in source.batches():
        yield len(source.sources) - 1, batch


def _nothing(job: IngestJob, first: object) -> DataError:
    if first is None:
        return DataError(f"{job.sources[0]} holds no rows", code="E-EMPTY", hint="check the source")
    return DataError(f"{job.sources[0]} holds no labels", code="E-LABEL", hint="say where they are: --label")


def _is_sparse(layout: str, sparse: bool, columns: int | None, first: Batch) -> bool:
    if layout == "dense" and sparse and columns is None:
        raise UsageError("a dense store needs the number of columns before the first row", hint="pass --features N")
    if layout != "auto":
        return layout == "csr"
    return sparse and (columns is None or density(first.X, columns) < DENSE_FROM)


def _store(batch: Batch, file: int, stores: Stores, columns: int | None, tally: _Tally) -> None:
    rows = row_count(batch.X)
    if len(batch.labels) != rows:
        raise DataError(f"{rows} rows have {len(batch.labels)} labels", code="E-ROWS", hint="check the label source")
    codes = tally.coder.codes(batch.labels)
    X = in_layout(batch.X, sparse=stores.sparse, columns=columns)
    tally.test_rows += stores.append(X, codes, batch.weight, tally.rows)
    tally.rows += rows
    tally.counts = added(tally.counts, codes)
    few_labels(batch.labels, tally.labels.setdefault(file, set()))


def _commit(job: IngestJob, source: Source, tally: _Tally, stores: Stores) -> None:
    check_codings({source.sources[file].name: found for file, found in tally.labels.items()})
    columns = source.columns
    assert columns is not None
    encoding = source.encoding()
    facts = {
        "names": None if source.names is None else list(source.names),
        "index_base": encoding.get("index_base"),
        "sources": [{k: v for k, v in asdict(f).items() if k != "read"} for f in source.sources],
        "encoding": encoding,
        "labels": {"positive": job.positive, "threshold": job.label_threshold},
        "test": {"fraction": job.test_fraction, "seed": job.seed},
        "notices": dict(source.notices),
    }
    stores.commit(tally.coder.table(), columns, facts)


def _tell(report: Report, job: IngestJob, source: Source, tally: _Tally, *, last: bool = False) -> None:
    now = time.monotonic()
    if last or now - tally.reported >= REPORT_SECONDS:
        tally.reported = now
        total = sum(path.stat().st_size for path in job.sources)
        read, seconds = sum(f.read for f in source.sources), now - tally.began
        event = {"event": "ingest", "rows": tally.rows, "bytes": read, "seconds": seconds}
        report(event | {"total_bytes": total, "done": last})


def _result(job: IngestJob, source: Source, tally: _Tally, sparse: bool) -> IngestResult:
    assert source.columns is not None
    return IngestResult(
        store=job.store,
        test_store=job.test_path() if job.test_fraction else None,
        rows=tally.rows - tally.test_rows,
        test_rows=tally.test_rows,
        columns=source.columns,
        sparse=sparse,
        classes=tally.coder.table(),
        counts=tuple(tally.counts),
        bytes_read=sum(f.read for f in source.sources),
        seconds=time.monotonic() - tally.began,
        notices={k: v for k, v in source.notices.items() if v},
    )
