"""Write the Nystrom features of a store as a store of their own, an embedding, for the command ``embed`` and for fits.

The embedding contains its map. An existing embedding is reused if its key is equal, that is, if the same inputs would
give the same bytes; an interrupted build is resumed; otherwise a new build starts. A reader fetches the next block while
threads compute features (matrix products, which take nearly all of the time) and a writer thread checks, writes and
syncs the last chunk. A journal is written every few chunks. After a kill, the same command continues from the journal,
with the same bytes as a result.

Features are computed for pieces of rows, which are cut at the boundaries of the chunks of the store and of the
embedding. The last bits of a matrix product depend on which rows are multiplied together; therefore the pieces depend
neither on the threads and workers nor on where an earlier run was stopped.
"""

from __future__ import annotations

import copy
import hashlib
import json
import queue
import shutil
import time
from collections.abc import Generator, Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from threading import Thread
from typing import Any, NamedTuple, Self

import numpy as np
from threadpoolctl import threadpool_limits

from streamsvm import durable
from streamsvm.compute import threading
from streamsvm.compute.blocks.selection import take_rows
from streamsvm.compute.kernel_values.kernel_matrix import Points
from streamsvm.compute.threading import end_all, start_all
from streamsvm.config.command_table import format_command
from streamsvm.config.units import mib
from streamsvm.engine import signals, time_limit
from streamsvm.engine.executor import Executor, Task, executor_for, local_executor
from streamsvm.engine.progress import Stopwatch
from streamsvm.engine.store_parts import build_part, chunks_of, part_path
from streamsvm.engine.store_reference import StoreReference, reference_to
from streamsvm.errors import ConfigError, DataError, ExistsError, StorageError, UsageError
from streamsvm.features.landmarks import draw_uniform_rows
from streamsvm.features.mapfile import FILE as MAP
from streamsvm.features.mapfile import read_map, write_map
from streamsvm.features.nystrom import Nystrom, Projection, part_rows
from streamsvm.features.scaling import Raw, Standardized, choose_scaling
from streamsvm.input_files import read_whole
from streamsvm.jobs import JobResult
from streamsvm.jobs.common_options import EmbedJob
from streamsvm.jobs.embed.landmarks import draw_landmarks, iterate_chunks_of_rows
from streamsvm.jobs.embed.plan import (
    NystromRequest,
    embedding_terms,
    feature_blocks_term,
    parameters_of,
    request_features,
)
from streamsvm.locks import hold_lock
from streamsvm.outputs import EMBEDDING, PARTS, Output, check_writable, output_path
from streamsvm.rows import Dense, Float32, row_count
from streamsvm.schedule import budget
from streamsvm.schedule.budget import MemoryPlan
from streamsvm.schedule.machine import count_wanted_threads
from streamsvm.schedule.stream import Stream, epoch_visits
from streamsvm.store import create, open_store
from streamsvm.store.format import manifest
from streamsvm.store.format.arrays import Encoding
from streamsvm.store.sources.offsets import offsets_of_store
from streamsvm.store.write.resume import SPACE_FACTOR, store_outputs
from streamsvm.store.write.writer import LARGEST_JOURNAL, StoreWriter
from streamsvm.type_aliases import Array, JsonObject
from streamsvm.types import Chunk, Report, Store, Term, silent
from streamsvm.types.data import BYTES_OF_TYPE
from streamsvm.working_copies import find_working_folder, publish_journal

FORMAT = 1
JOURNAL = "journal.json"
CHUNKS_PER_JOURNAL = 16
"""The number of chunks between two writes of the journal."""
CHUNK_BUFFERS = 3
"""The number of chunks in memory: one being filled, one waiting, one being written."""
PART_BYTES = 64 << 20
"""The approximate size in bytes of the features that one task computes."""
HEADROOM = 1.5
"""Factor by which a feature may exceed the largest feature of its column in a sample before it is clipped."""
SCALE_ROWS = 8192
"""The number of rows in the sample from which scales of int8 features are derived."""


@dataclass(frozen=True, slots=True, repr=False)
class EmbedResult(JobResult):
    """The result of ``embed``: an embedding that was built or reused."""

    embedding: Path | str
    """The path of the embedding; a text for a URL."""
    projection: Projection
    """The landmarks and W of its map."""
    rows: int
    """The number of rows."""
    reused: bool
    """Whether an embedding with the same key already existed."""
    resumed: int
    """The number of rows that an earlier, interrupted run had written."""
    seconds: float
    """The duration in seconds."""


def embed(job: EmbedJob, report: Report = silent, executor: Executor | None = None) -> EmbedResult:
    """Build the embedding of a store. Raises BudgetError, ExistsError, StorageError, DataError, ClusterError."""
    resume_command = format_command("embed", job)
    limit = time_limit.limit_time(job.time_limit)
    resume = signals.set_resume_command(resume_command)
    with resume, limit, executor_for(job, executor) as cluster, threadpool_limits(1):
        # one BLAS thread: more would compete with reader and writer for cores
        if cluster is not None:
            job = replace(job, memory=budget.memory_limit(cluster.memory_limit(job.memory)), threads=1)
        store = open_store(job.store, memory_limit=budget.memory_limit(job.memory), disk_cache=job.disk_cache or 0)
        scaling = choose_scaling(store, standardize=job.standardize, every=bool(job.standardize_all), bias=0.0)
        request = request_features(job, store, scaling)
        if request is None:
            raise UsageError("how many landmarks?", hint="--landmarks 1000")
        wanted_threads = count_wanted_threads(job.threads)
        plan = budget.with_most_threads(partial(plan_memory, job, store, request), wanted_threads)
        plan.check("")
        builder = Builder(store, request, output_path(job.embedding), job, report, cluster, (job.landmark_file,))
        with threading.use_threads(plan.threads):
            return replace(builder.build(), notices=plan.notices_of_missing_threads(wanted_threads))


def plan_memory(job: EmbedJob, store: Store, request: NystromRequest, threads: int = 1) -> MemoryPlan:
    """Return the memory plan of building an embedding."""
    m = request.landmarks
    chunk = max(job.chunk_bytes, 4 * m)
    terms = [*budget.steady_terms(), *budget.block_terms(store.layout, job.prefetch, store.buffers().nbytes)]
    terms += [t for t in embedding_terms(request, store.layout) if t.name != "feature buffers"]
    terms.append(Term("kernel values", threads * 4 * part_rows(m) * m, f"{threads} x {part_rows(m)} rows at a time"))
    terms.append(Term("chunks being written", 3 * chunk, f"3 x {mib(chunk)}"))
    terms += budget.upload_terms([Path(job.embedding)], chunk)
    terms.append(feature_blocks_term(chunk, store.layout, m, threads))
    if job.dtype == "int8":
        terms.append(Term("column scales", 4 * part_rows(m) * m, "features of a sample, as many rows at a time"))
    return MemoryPlan(
        tuple(terms), budget.memory_limit(job.memory), resident=True, cached=False, retain=True, threads=threads
    )


@dataclass(slots=True)
class Builder:
    """Builds one embedding."""

    store: Store
    """The rows to embed."""
    request: NystromRequest
    """The kernel features to compute."""
    target: Path
    """The path of the embedding."""
    job: Any
    """The settings dtype, chunk_bytes, prefetch and overwrite: an ``EmbedJob``, or settings of a fit."""
    report: Report
    """The receiver of progress events."""
    executor: Executor | None = None
    """The executor that computes features; None: threads of this process."""
    inputs: tuple[str | None, ...] = ()
    """Files that the job reads, apart from the store."""
    remedy: str = "use fewer landmarks (--landmarks), or --dtype int8"
    """The advice if the disk is too small."""

    def build(self) -> EmbedResult:
        """Reuse the embedding, resume its build, or build it.

        Raises ExistsError (E-LOCKED: another process builds it), StorageError, DataError.
        """
        began = time.perf_counter()
        outputs = store_outputs([self.target], may_exist=True, kind=EMBEDDING)
        outputs.append(Output(self._parts, PARTS, may_exist=True))
        check_writable(outputs, [self.store.name, *self.inputs], overwrite=self.job.overwrite)
        points = draw_landmarks(self.request, self.store, self.job.prefetch)
        key = digest_embedding(self.store, points, self.request, self.job.dtype, self.job.chunk_bytes)
        if self._find_committed_key() == key:  # reused without the lock, as others may be reading it
            return self._reuse(began)
        with hold_lock(self.target):
            existing = self._find_committed_key()
            return self._reuse(began) if existing == key else self._resume_or_begin(points, key, existing, began)

    def _find_committed_key(self) -> str | None:
        """Return the key of the target, as ``read_committed_key``; "" for a damaged embedding to be overwritten."""
        try:
            return read_committed_key(self.target)
        except DataError:
            if not self.job.overwrite:
                raise
            return ""

    def _reuse(self, began: float) -> EmbedResult:
        return self._result(read_map(self.target, open_store(self.target).facts["map"]), began, reused=True)

    def _resume_or_begin(self, points: Points, key: str, existing: str | None, began: float) -> EmbedResult:
        """Resume an interrupted build of the same embedding, or start one. ``existing``: the key of the target, if any."""
        if (existing is not None or not _is_unfinished_build(self.target)) and not self.job.overwrite:
            hint = "choose another name, or pass --overwrite"
            raise ExistsError(f"{self.target} exists already and is not this embedding", hint=hint)
        writer = create(self.target, sparse=False, chunk_bytes=self.job.chunk_bytes, overwrite=True)
        saved = read_journal(writer.directory, key)
        if saved is None and has_journal(self.target) and not self.job.overwrite:
            raise ConfigError(
                f"{self.target} was started with other settings or other rows, and was interrupted",
                code="E-CONFIG",
                hint="run the original command again to continue, pass --overwrite to start again, or choose another name",
            )
        if saved is None:
            shutil.rmtree(writer.directory, ignore_errors=True)
            durable.make_directory(writer.directory)
            projection = self.request.projection(points)
            map_sha256 = write_map(writer.directory, projection)
            scale = column_scale(projection, self.request, self.store) if self.job.dtype == "int8" else None
            saved = {
                "key": key,
                "map": map_sha256,
                "scale": None if scale is None else scale.tolist(),
                "progress": None,
            }
            durable.write_file(writer.directory / JOURNAL, json.dumps(saved).encode())
        else:
            projection = read_map(writer.directory, saved["map"])
        if self.job.dtype != "float32":
            writer.encoding = Encoding(self.job.dtype, np.array(saved["scale"] or [], np.float32))
        self.report({"event": "landmarks", **self.request.describe(), "drawn": points.size, "rank": projection.rank})
        self._check_space(projection.rank, writer.directory)
        resumed = self._write(projection, writer, saved)
        return self._result(projection, began, resumed=resumed)

    def _result(self, projection: Projection, began: float, *, reused: bool = False, resumed: int = 0) -> EmbedResult:
        seconds, rows = time.perf_counter() - began, self.store.layout.rows
        self.report({"event": "embed", "rows": rows, "of": rows, "seconds": seconds, "reused": reused, "done": True})
        return EmbedResult(self.target, projection, rows, reused, resumed, seconds)

    def _check_space(self, rank: int, directory: Path) -> None:
        """Raise StorageError if the disk has less free space than the rest of the embedding needs."""
        if find_working_folder(directory) is not None:
            return
        needed = round(SPACE_FACTOR * self.store.layout.rows * (rank * BYTES_OF_TYPE[self.job.dtype] + 8))
        written = sum(f.stat().st_size for f in directory.rglob("*") if f.is_file())
        free = shutil.disk_usage(directory).free
        if needed - written > free:
            raise StorageError(
                f"{directory} has {mib(free)} free, the embedding needs {mib(needed - written, round_up=True)} more",
                code="E-NOSPACE",
                hint=f"free space, or {self.remedy}",
            )

    def _write(self, projection: Projection, writer: Any, saved: JsonObject) -> int:
        """Compute and write the features of the rows not yet written; return the number of the first of these rows."""
        layout, features = self.store.layout, Nystrom(projection, 0.0, factored=True)
        rows = max(1, self.job.chunk_bytes // (4 * projection.rank))
        first, shape = 0, Dense(np.empty((0, projection.rank), np.float32))
        if saved["progress"] is None:
            writer.open(shape, weighted=layout.weighted, numeric=layout.numeric)
        else:
            first = saved["progress"]["rows"]
            writer.resume(saved["progress"], shape, weighted=layout.weighted, numeric=layout.numeric)
        facts = self._facts(projection, saved)
        if self.executor is not None and first == 0:
            self._write_features_of_workers(projection, writer, saved, rows, self.executor)
            writer.commit(layout.classes, projection.rank, facts)
            shutil.rmtree(self._parts, ignore_errors=True)
            (self.target / JOURNAL).unlink(missing_ok=True)
            return first
        with FeatureWriter(writer, rows, projection.rank, saved, numeric=layout.numeric) as feature_writer:
            self._write_own_features(features, feature_writer, first, rows)
            feature_writer.finish()
            writer.commit(layout.classes, projection.rank, facts)
        (self.target / JOURNAL).unlink(missing_ok=True)
        return first

    @property
    def _parts(self) -> Path:
        """The folder, beside the embedding, of the parts that workers write. A resumed build reuses them."""
        return self.target.resolve().with_name(f".{self.target.name}.parts")

    def _write_features_of_workers(
        self, projection: Projection, writer: Any, saved: JsonObject, rows: int, executor: Executor
    ) -> None:
        """Let workers compute the features, and write the features in the order of the rows."""
        durable.make_directory(self._parts)
        store, stopwatch, done, total = self.store, Stopwatch(), 0, self.store.layout.rows
        map_directory = writer.directory.resolve()
        work = EmbedWork(reference_to(store), self._parts, map_directory, saved["map"], saved["key"], rows)
        for chunk in iterate_features_of_workers(work, total, projection, executor):
            writer.append(chunk.X, chunk.codes, chunk.weight)
            done += len(chunk.codes)
            self._report_progress(done, stopwatch)

    def _write_own_features(self, features: Nystrom, feature_writer: FeatureWriter, first: int, rows: int) -> None:
        """Compute the features of row ``first`` and all rows after it, and pass them to the writer in chunks of ``rows``."""
        stopwatch, done = Stopwatch(), first
        pieces = read_pieces(self.store, self.request.scaling, rows, depth=self.job.prefetch, first=first)
        with closing(make_features(pieces, features, threading.threads())) as feature_chunks:
            for chunk in feature_chunks:
                time_limit.check_time()
                assert isinstance(chunk.X, Dense)
                feature_writer.reserve_rows(len(chunk.codes), chunk, 0)[:] = chunk.X.values
                feature_writer.hand_over_if_full()
                done += len(chunk.codes)
                if stopwatch.due():
                    self._report_progress(done, stopwatch)

    def _report_progress(self, done: int, stopwatch: Stopwatch) -> None:
        event = {"event": "embed", "rows": done, "of": self.store.layout.rows, "seconds": stopwatch.seconds}
        self.report(event | {"done": False})

    def _facts(self, projection: Projection, saved: JsonObject) -> JsonObject:
        """Return the facts of the manifest: the origin of the features."""
        origin = self.store.facts
        facts: JsonObject = {
            "embedding": {**self.request.describe(), "key": saved["key"], "store": self.store.digest},
            "map": saved["map"],
            "rank": projection.rank,
            "encoding": origin.get("encoding"),
            "labels": origin.get("labels"),
            "names": None,
        }
        return facts if saved["scale"] is None else facts | {"scale": saved["scale"]}


def _is_unfinished_build(target: Path) -> bool:
    """Return whether the target does not exist or is an unfinished build: it has a journal, or was killed before the
    journal was written.
    """
    if not target.is_dir() or (target / JOURNAL).exists():
        return target.is_dir() or not target.exists()
    return all(path.name == MAP or path.name.endswith(durable.PARTIAL) for path in target.iterdir())


def read_journal(directory: Path, key: str) -> JsonObject | None:
    """Return the journal of an interrupted build of the same embedding; None if there is none, or it is not readable."""
    saved = _journal(directory)
    return saved if saved is not None and saved["key"] == key else None


def has_journal(directory: Path) -> bool:
    """Return whether an interrupted build of any embedding has left a readable journal."""
    return _journal(directory) is not None


def _journal(directory: Path) -> JsonObject | None:
    try:
        saved = json.loads(read_whole(directory / JOURNAL, LARGEST_JOURNAL))
    except (OSError, ValueError, DataError):
        return None
    return saved if isinstance(saved, dict) and "key" in saved else None


def digest_embedding(store: Store, points: Points, request: NystromRequest, dtype: str, chunk_bytes: int) -> str:
    """Return the key of an embedding: the sha256 of all inputs that determine its bytes."""
    scaling = request.scaling
    factors = [scaling.shift, scaling.scale] if isinstance(scaling, Standardized) else []
    arrays = [hashlib.sha256(a.tobytes()).hexdigest() for a in (points.columns, *factors)]
    kernel = {"kernel": request.kernel_name, **parameters_of(request.kernel)}
    parts = [FORMAT, store.digest, points.size, arrays, kernel, dtype, chunk_bytes, request.cutoff]
    if offsets := offsets_of_store(store.facts).to_json():  # equal stored rows differ if their offsets differ
        parts.append(offsets)
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def read_committed_key(target: Path) -> str | None:
    """Return the key of a finished embedding, "" for another store, None if there is no store. Raises DataError."""
    if not (target / manifest.FILE).exists():
        return None
    return str(open_store(target).facts.get("embedding", {}).get("key", ""))


def read_pieces(
    store: Store, scaling: Raw | Standardized, rows: int, *, depth: int, first: int = 0, stop: int | None = None
) -> Generator[Chunk]:
    """Yield copies of rows [first, stop), scaled for the kernel, with codes and weights, piece by piece.

    ``rows``: the number of rows in a chunk of the embedding. ``depth``: the number of blocks to read ahead.
    """
    layout = store.layout
    starts = layout.starts
    stop = starts[-1] if stop is None else stop
    visits = (
        v for v in epoch_visits(layout, 0, 0, shuffled=False) if first < starts[v.chunk + 1] and starts[v.chunk] < stop
    )
    retain = layout.bytes_per_pass <= budget.page_cache_bytes(0)
    with Stream(store, visits, depth=depth, retain=retain) as stream:
        for loaded in stream:
            X, base = scaling.apply(loaded.chunk.X), starts[loaded.visit.chunk]
            low, end = max(0, first - base), min(stop - base, row_count(X))
            while low < end:
                high = min(low + rows - (base + low) % rows, end)
                weight = None if loaded.chunk.weight is None else loaded.chunk.weight[low:high].copy()
                yield Chunk(take_rows(X, np.arange(low, high)), loaded.chunk.codes[low:high].copy(), weight)
                low = high


def make_features(pieces: Generator[Chunk], features: Nystrom, threads: int) -> Generator[Chunk]:
    """Yield the features of all pieces in order, dense float32, with codes and weights, in new arrays.

    Raises the errors of reading the rows.
    """
    task = Task("embed", map_piece, function_of_parts=_map_pieces)
    with closing(pieces), closing(local_executor(threads).map(task, pieces, (features,))) as chunks:
        yield from chunks


def map_piece(piece: Chunk, features: Nystrom) -> Chunk:
    """Return the features of one piece."""
    with closing(_map_pieces(iter([piece]), features)) as chunks:
        return next(chunks)


def _map_pieces(pieces: Iterator[Chunk], features: Nystrom) -> Generator[Chunk]:
    thread_features = copy.copy(features)  # each thread needs its own buffers
    for piece in pieces:
        out = np.empty((row_count(piece.X), features.columns), np.float32)
        thread_features.write_features(piece.X, out)
        yield piece._replace(X=Dense(out))


class Span(NamedTuple):
    """Rows [first, stop) of a store, which one task embeds."""

    number: int
    """The position among all spans."""
    first: int
    stop: int


@dataclass(frozen=True, slots=True)
class EmbedWork:
    """The inputs of the tasks that compute an embedding."""

    store: StoreReference
    """The rows to embed."""
    directory: Path
    """The folder of the parts."""
    map_directory: Path
    """The folder with the file of the map."""
    map_sha256: str
    """The expected sha256 of the file of the map."""
    key: str
    """The key of the embedding."""
    rows: int
    """The number of rows in a chunk of the embedding."""


def iterate_features_of_workers(
    work: EmbedWork, total: int, projection: Projection, executor: Executor
) -> Iterator[Chunk]:
    """Yield the features of all ``total`` rows in order, with codes and weights, as computed by workers.

    Raises ClusterError and the errors of tasks.
    """
    rank, task = projection.rank, Task("embed", embed_span, projection.nbytes)
    shared = (executor.share(work),)
    step = max(1, PART_BYTES // (4 * rank * work.rows)) * work.rows
    spans = [Span(k, first, min(first + step, total)) for k, first in enumerate(range(0, total, step))]
    for span in executor.map(task, spans, shared):
        yield from chunks_of(part_path(work.directory, span.number), _part_key(work, span))


def embed_span(span: Span, work: EmbedWork) -> Span:
    """Write the features of a span as a part; the task of ``iterate_features_of_workers``. Raises DataError, StorageError."""

    def fill(writer: StoreWriter) -> tuple[tuple[str, ...], int, JsonObject]:
        projection, store = read_map(work.map_directory, work.map_sha256), work.store.open()
        features = Nystrom(projection, 0.0, factored=True)
        pieces = read_pieces(store, projection.scaling, work.rows, depth=1, first=span.first, stop=span.stop)
        with closing(pieces), closing(_map_pieces(pieces, features)) as chunks:
            for chunk in chunks:
                writer.append(chunk.X, chunk.codes, chunk.weight)
        return store.layout.classes, projection.rank, {}

    build_part(work.directory, span.number, _part_key(work, span), sparse=False, fill=fill)
    return span


def _part_key(work: EmbedWork, span: Span) -> str:
    return f"{work.key} {span.first}-{span.stop}"


class _ChunkBuffer:
    """The memory of one chunk."""

    def __init__(self, rows: int, columns: int, *, numeric: bool) -> None:
        self.features = np.empty((rows, columns), np.float32)
        self.codes: Array = np.empty(rows, np.float64 if numeric else np.int32)
        self.weight = np.empty(rows, np.float32)
        self.weighted = False
        self.count = 0


class FeatureWriter:
    """Collects features in chunks, which a background thread writes; a context manager.

    Call ``reserve_rows`` to reserve rows of the current chunk, fill them, and call ``hand_over_if_full``; call ``finish`` at the
    end. Errors of the writer thread are raised by the next call. Every few chunks, ``journal`` is written with the
    progress of the writer, after all data that the journal refers to is durable. ``numeric``: codes are numbers to
    predict.
    """

    def __init__(self, writer: StoreWriter, rows: int, columns: int, journal: JsonObject, *, numeric: bool) -> None:
        self._writer, self._journal = writer, journal
        self._free: queue.SimpleQueue[_ChunkBuffer] = queue.SimpleQueue()
        self._full: queue.SimpleQueue[_ChunkBuffer | None] = queue.SimpleQueue()
        for _ in range(CHUNK_BUFFERS):
            self._free.put(_ChunkBuffer(rows, columns, numeric=numeric))
        self._rows = rows
        self._error: BaseException | None = None
        self._slot = self._free.get()
        self._thread = Thread(target=self._write_all, name="streamsvm-writer", daemon=True)

    def __enter__(self) -> Self:
        start_all([self._thread], self._end)
        return self

    def __exit__(self, *_: object) -> None:
        self._end()

    @property
    def free_rows(self) -> int:
        """The number of free rows in the current chunk."""
        return self._rows - self._slot.count

    def reserve_rows(self, count: int, chunk: Chunk, first: int) -> Float32:
        """Reserve the next ``count`` rows of the current chunk, and copy the codes and weights of the rows of ``chunk``
        from ``first`` on into them. Return the memory for their features, (count, columns) float32.
        """
        slot, start = self._slot, self._slot.count
        slot.codes[start : start + count] = chunk.codes[first : first + count]
        slot.weighted = chunk.weight is not None
        if chunk.weight is not None:
            slot.weight[start : start + count] = chunk.weight[first : first + count]
        slot.count += count
        return slot.features[start : start + count]

    def hand_over_if_full(self) -> None:
        """Pass the chunk to the writer if it is full; all reserved rows must be filled. Raises errors of the writer."""
        if self.free_rows == 0:
            self._hand_over()

    def finish(self) -> None:
        """Pass the last chunk to the writer and wait until everything is written. Raises errors of the writer."""
        if self._slot.count:
            self._hand_over()
        self._end()
        self._raise_error()

    def _end(self) -> None:
        """Stop the writer thread if it is running."""
        end_all([self._thread], lambda: self._full.put(None))

    def _hand_over(self) -> None:
        self._raise_error()
        self._full.put(self._slot)
        self._slot = self._free.get()
        self._slot.count = 0
        self._raise_error()

    def _raise_error(self) -> None:
        if self._error is not None:
            raise self._error

    def _write_all(self) -> None:
        written = 0
        while (slot := self._full.get()) is not None:
            try:
                if self._error is None:
                    self._write(slot)
                    written += 1
                    if written % CHUNKS_PER_JOURNAL == 0 and slot.count == self._rows:
                        self._write_journal()
            except BaseException as error:  # noqa: BLE001  raised again by the thread that fills chunks
                self._error = error
            if slot.count == self._rows:  # the writer uses the last, shorter chunk until it commits
                self._free.put(slot)
        self._free.put(_ChunkBuffer(0, 0, numeric=False))

    def _write(self, slot: _ChunkBuffer) -> None:
        weight = slot.weight[: slot.count] if slot.weighted else None
        self._writer.append(Dense(slot.features[: slot.count]), slot.codes[: slot.count], weight)

    def _write_journal(self) -> None:
        self._journal["progress"] = self._writer.progress()
        durable.write_file(self._writer.directory / JOURNAL, json.dumps(self._journal).encode())
        publish_journal(self._writer.directory)


def column_scale(projection: Projection, request: NystromRequest, store: Store) -> Float32:
    """Return the scale of each column for int8: 127 represents ``HEADROOM`` times the largest feature in a sample of rows.

    The landmarks are not used as the sample: their features along small eigenvalues are far smaller than those of other rows.
    """
    features, max_rows = Nystrom(projection, 0.0, factored=True), part_rows(len(projection.W))
    values, largest = np.empty((max_rows, projection.rank), np.float32), np.zeros(projection.rank, np.float32)
    for chunk, rows, _ in iterate_chunks_of_rows(
        store, draw_uniform_rows(store.layout.rows, SCALE_ROWS, request.seed + 1), request.scaling
    ):
        for start in range(0, len(rows), max_rows):
            part = take_rows(chunk.X, rows[start : start + max_rows])
            part_values = values[: row_count(part)]
            features.write_features(part, part_values)
            np.maximum(largest, np.abs(part_values, out=part_values).max(axis=0), out=largest)
    return np.asarray(HEADROOM * np.maximum(largest, np.float32(1e-30)) / 127, np.float32)
