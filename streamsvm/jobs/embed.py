"""embed: a store and a kernel in, a store of Nystrom features out, chunk by chunk within the budget.

Three things overlap: the reader fetches the next block, this thread makes features (the products, which are nearly all
of the time), a writer thread checks, writes and syncs the last chunk. The embedding carries its map. It is named by a
sha256 of all it is made of - store, landmarks, kernel, scaling, type - and reused only where that is equal. A journal
is kept every few chunks: after a kill the same command goes on there, and the bytes are the same.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import time
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from streamsvm import durable
from streamsvm.compute.gram import Points
from streamsvm.compute.subset import take
from streamsvm.errors import ExistsError, StorageError, UsageError
from streamsvm.features.landmarks import uniform_rows
from streamsvm.features.mapfile import read_map, write_map
from streamsvm.features.nystrom import CUT, Nystrom, Projection, part_rows, projection_of
from streamsvm.features.scaling import Standardised, scaling_of
from streamsvm.jobs.building import RESERVE
from streamsvm.jobs.embedding import DTYPES
from streamsvm.jobs.nystrom import NystromRequest, chosen, draw_landmarks, memory_terms, request_of
from streamsvm.jobs.sink import JOURNAL, Sink
from streamsvm.jobs.spread.embed import EmbedWork, features_of
from streamsvm.jobs.spread.executor import Executor, executor_for, task_limit
from streamsvm.locks import locked
from streamsvm.rows import Dense, Float32, row_count, row_slice
from streamsvm.schedule import budget
from streamsvm.schedule.budget import MemoryPlan, mib
from streamsvm.schedule.plan import epoch_visits
from streamsvm.schedule.stream import Stream
from streamsvm.store import create, manifest, open_store
from streamsvm.store.encoding import Encoding
from streamsvm.types import Report, Store, Term, silent

FORMAT = 1
HEADROOM = 1.5
"""int8: how far beyond the largest feature of a sample a column can go before it is clipped."""
SCALE_ROWS = 8192
REPORT_SECONDS = 0.2


@dataclass(frozen=True, slots=True)
class EmbedJob:
    """What ``streamsvm embed`` is asked for; the keys of a job file are these fields."""

    store: str
    embedding: str
    kernel: str = "rbf"
    kernel_options: dict[str, float] = field(default_factory=dict)
    """Settings of the kernel beside gamma: coef0, degree."""
    gamma: float | str = "scale"
    """Width of the kernel: a number, 'scale' for 1 / (columns x variance), or 'mean-distance'."""
    landmarks: int | None = 1000
    landmark_file: str | None = None
    """A .npy file of landmarks, rows as they are stored."""
    sampling: str = "uniform"
    """How landmarks are drawn: 'uniform', 'leverage' (one pass more), or 'kmeans++' (far from each other)."""
    standardize: bool = False
    dtype: str = "float32"
    """Of the features on disk: float32, float16, or int8 with a scale a column."""
    chunk_bytes: int = 4 << 20
    memory: int | None = None
    """Bytes of anonymous memory the process may use."""
    seed: int = 0
    prefetch: int = 2
    overwrite: bool = False
    cluster: str | None = None
    """Dask workers to do it on: tcp://127.0.0.1:8786, tls://HOST:8786, local:N (started here), scheduler-file:PATH."""
    insecure_network: bool = False
    """Allow a cluster that is neither encrypted nor on this machine."""

    def __post_init__(self) -> None:
        if self.dtype not in DTYPES:
            raise UsageError(f"there is no dtype '{self.dtype}'", hint=f"choose from {', '.join(DTYPES)}")


@dataclass(frozen=True, slots=True)
class EmbedResult:
    """What was built, or found to be there already."""

    embedding: Path
    projection: Projection
    rows: int
    reused: bool
    resumed: int
    """Rows that an earlier, interrupted run had written."""
    seconds: float


def embed(job: EmbedJob, report: Report = silent, executor: Executor | None = None) -> EmbedResult:
    """Build the embedding of a store. Raises BudgetError, ExistsError, StorageError, DataError, ClusterError."""
    with executor_for(job, executor) as found, threadpool_limits(1):
        # a second BLAS thread fights reader and writer for their core
        job = job if found is None else replace(job, memory=task_limit(found, job.memory))
        store = open_store(job.store)
        inner = scaling_of(store, standardize=job.standardize, bias=0.0)
        request = request_of(job, store, inner)
        if request is None:
            raise UsageError("how many landmarks?", hint="--landmarks 1000")
        embed_plan(job, store, request).check("")
        return Builder(store, request, Path(job.embedding), job, report, found).build()


def embed_plan(job: Any, store: Store, request: NystromRequest) -> MemoryPlan:
    """What building holds."""
    m = request.landmarks
    chunk = max(job.chunk_bytes, 4 * m)
    terms = [*budget.base_terms(), *budget.block_terms(store.layout, job.prefetch, store.buffers().nbytes)]
    terms += [t for t in memory_terms(request, store.layout) if t.name != "feature buffers"]
    terms.append(Term("kernel values", 4 * part_rows(m) * m, f"{part_rows(m)} rows at a time"))
    terms.append(Term("chunks being written", 3 * chunk, f"3 x {mib(chunk)}"))
    if job.dtype == "int8":
        terms.append(Term("column scales", 4 * part_rows(m) * m, "features of a sample, as many rows at a time"))
    return MemoryPlan(tuple(terms), budget.memory_limit(job.memory), resident=True, kept=False, retain=True)


@dataclass(slots=True)
class Builder:
    """One embedding on its way to ``target``. ``job``: dtype, chunk_bytes, prefetch, overwrite."""

    store: Store
    request: NystromRequest
    target: Path
    job: Any
    report: Report
    executor: Executor | None = None

    def build(self) -> EmbedResult:
        """Reuse, resume or build anew. Raises ExistsError (E-LOCKED: another process builds it), StorageError, DataError."""
        began = time.perf_counter()
        points = draw_landmarks(self.request, self.store, self.job.prefetch)
        key = key_of(self.store, points, self.request, self.job.dtype, self.job.chunk_bytes)
        if committed_key(self.target) == key:  # nothing is written: it may be in use
            return self._reused(began)
        with locked(self.target):
            found = committed_key(self.target)
            return self._reused(began) if found == key else self._built(points, key, found, began)

    def _reused(self, began: float) -> EmbedResult:
        return self._result(read_map(self.target, open_store(self.target).facts["map"]), began, reused=True)

    def _built(self, points: Points, key: str, found: str | None, began: float) -> EmbedResult:
        """Go on with what an interrupted build of the same left, or begin; ``found``: the key of what is there."""
        foreign = found is not None or (self.target.exists() and not (self.target / JOURNAL).exists())
        if foreign and not self.job.overwrite:
            hint = "choose another name, or pass --overwrite"
            raise ExistsError(f"{self.target} exists already and is not this embedding", hint=hint)
        writer = create(self.target, sparse=False, chunk_bytes=self.job.chunk_bytes, overwrite=True)
        saved = read_journal(writer.directory, key)
        if saved is None:
            shutil.rmtree(writer.directory, ignore_errors=True)
            durable.make_directory(writer.directory)
            projection = projection_of(points, self.request.record, self.request.inner)
            seal = write_map(writer.directory, projection)
            scale = column_scale(projection, self.request, self.store) if self.job.dtype == "int8" else None
            saved = {"key": key, "map": seal, "scale": None if scale is None else scale.tolist(), "progress": None}
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
        """Raise StorageError when the disk has less room than the embedding still needs."""
        needed = round(RESERVE * self.store.layout.rows * (rank * DTYPES[self.job.dtype] + 8))
        there = sum(f.stat().st_size for f in directory.rglob("*") if f.is_file())
        free = shutil.disk_usage(directory).free
        if needed - there > free:
            raise StorageError(
                f"{directory} has {mib(free)} free, the embedding needs {mib(needed - there, up=True)} more",
                code="E-NOSPACE",
                hint="free space, ask for fewer landmarks, or --dtype int8; features can also be made on the fly",
            )

    def _write(self, projection: Projection, writer: Any, saved: dict[str, Any]) -> int:
        """Map and write every row that is not there yet; returns the first of them."""
        layout, features = self.store.layout, Nystrom(projection, 0.0, factored=True)
        rows = max(1, self.job.chunk_bytes // (4 * projection.rank))
        first, shape = 0, Dense(np.empty((0, projection.rank), np.float32))
        if saved["progress"] is None:
            writer.open(shape, weighted=layout.weighted)
        else:
            first = saved["progress"]["rows"]
            writer.resume(saved["progress"], shape, weighted=layout.weighted)
        facts = self._facts(projection, saved)
        if self.executor is not None and first == 0:
            self._fetch(projection, writer, saved, rows, self.executor)
            writer.commit(layout.classes, projection.rank, facts)
            shutil.rmtree(self._parts, ignore_errors=True)
            (self.target / JOURNAL).unlink(missing_ok=True)
            return first
        with Sink(writer, rows, projection.rank, saved) as sink:
            self._map(features, sink, first)
            sink.finish()
            writer.commit(layout.classes, projection.rank, facts)
        (self.target / JOURNAL).unlink(missing_ok=True)
        return first

    @property
    def _parts(self) -> Path:
        """Where workers leave features, beside the embedding: what is there after a stop is not made again."""
        return self.target.resolve().with_name(f".{self.target.name}.parts")

    def _fetch(self, projection: Projection, writer: Any, saved: dict[str, Any], rows: int, executor: Executor) -> None:
        """Have the features made by workers and write them in order."""
        durable.make_directory(self._parts)
        store, began, done, of = self.store, time.perf_counter(), 0, self.store.layout.rows
        place = writer.directory.resolve()
        work = EmbedWork(
            str(Path(store.name).resolve()), store.digest, self._parts, place, saved["map"], saved["key"], rows
        )
        for chunk in features_of(work, of, projection, executor):
            writer.append(chunk.X, chunk.codes, chunk.weight)
            done += len(chunk.codes)
            seconds = time.perf_counter() - began
            self.report({"event": "embed", "rows": done, "of": of, "seconds": seconds, "done": False})

    def _map(self, features: Nystrom, sink: Sink, first: int) -> None:
        """Read the blocks from row ``first`` on and fill the sink's chunks."""
        layout, told, began = self.store.layout, 0.0, time.perf_counter()
        starts = np.concatenate([[0], np.cumsum(layout.chunks)])
        visits = (v for v in epoch_visits(layout, 0, 0, shuffled=False) if starts[v.chunk + 1] > first)
        retain = layout.bytes_per_pass <= budget.page_cache_bytes(0)
        with Stream(self.store, visits, depth=self.job.prefetch, retain=retain) as stream:
            for loaded in stream:
                X = self.request.inner.apply(loaded.chunk.X)
                at = max(0, first - int(starts[loaded.visit.chunk]))
                while at < row_count(X):
                    stop = min(at + sink.room, row_count(X))
                    out = sink.take(stop - at, loaded.chunk, at)
                    features.into(row_slice(X, at, stop), out)
                    sink.filled()
                    at = stop
                seconds = time.perf_counter() - began
                if seconds - told >= REPORT_SECONDS:
                    told, done = seconds, int(starts[loaded.visit.chunk + 1])
                    self.report({"event": "embed", "rows": done, "of": layout.rows, "seconds": seconds, "done": False})

    def _facts(self, projection: Projection, saved: dict[str, Any]) -> dict[str, Any]:
        """What the manifest says of where the features are from."""
        origin: Any = getattr(self.store, "facts", {})
        facts: dict[str, Any] = {
            "embedding": {**self.request.describe(), "key": saved["key"], "store": self.store.digest},
            "map": saved["map"],
            "rank": projection.rank,
            "encoding": origin.get("encoding"),
            "labels": origin.get("labels"),
            "names": None,
        }
        return facts if saved["scale"] is None else facts | {"scale": saved["scale"]}


def column_scale(projection: Projection, request: NystromRequest, store: Store) -> Float32:
    """Of int8 features: 127 stands for a bit more than the largest feature in a sample of rows, or in all of few.

    Not of the landmarks: their features along small eigenvalues are far smaller than those of other rows.
    """
    features, most = Nystrom(projection, 0.0, factored=True), part_rows(len(projection.W))
    values, largest = np.empty((most, projection.rank), np.float32), np.zeros(projection.rank, np.float32)
    for X, rows, _ in chosen(store, uniform_rows(store.layout.rows, SCALE_ROWS, request.seed + 1), request.inner):
        for start in range(0, len(rows), most):
            part = take(X, rows[start : start + most])
            found = values[: row_count(part)]
            features.into(part, found)
            np.maximum(largest, np.abs(found, out=found).max(axis=0), out=largest)
    return np.asarray(HEADROOM * np.maximum(largest, np.float32(1e-30)) / 127, np.float32)


def key_of(store: Store, points: Points, request: NystromRequest, dtype: str, chunk_bytes: int) -> str:
    """sha256 of all that decides an embedding's bytes."""
    inner = request.inner
    scaling = [inner.shift, inner.scale] if isinstance(inner, Standardised) else []
    arrays = [hashlib.sha256(a.tobytes()).hexdigest() for a in (points.columns, *scaling)]
    kernel = {"kernel": request.kernel, **{name: float(value) for name, value in request.record._asdict().items()}}
    parts = [FORMAT, store.digest, points.size, arrays, kernel, dtype, chunk_bytes, CUT]
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def committed_key(target: Path) -> str | None:
    """The key of a finished embedding; "" for another store, None where there is none. Raises DataError."""
    if not (target / manifest.FILE).exists():
        return None
    return str(open_store(target).facts.get("embedding", {}).get("key", ""))


def read_journal(directory: Path, key: str) -> dict[str, Any] | None:
    """The journal of an interrupted build of the same embedding; None when there is none that can be used."""
    try:
        saved = json.loads((directory / JOURNAL).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return saved if isinstance(saved, dict) and saved.get("key") == key else None
