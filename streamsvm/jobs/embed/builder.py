"""Building an embedding: found and reused, gone on with, or begun, chunk by chunk, whatever interrupts it.

Three things overlap: the reader fetches the next block, threads make features (the products, which are nearly all of the
time), a writer thread checks, writes and syncs the last chunk. A journal is kept every few chunks: after a kill
the same command goes on there, and the bytes are the same.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import time
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from streamsvm import durable
from streamsvm.aliases import JsonObject
from streamsvm.compute import threading
from streamsvm.compute.kernel_values.gram import Points
from streamsvm.config.units import mib
from streamsvm.engine.executor import Executor
from streamsvm.engine.stores import reference_to
from streamsvm.engine.training import Stopwatch
from streamsvm.errors import ConfigError, DataError, ExistsError, StorageError
from streamsvm.features.mapfile import FILE as MAP
from streamsvm.features.mapfile import read_map, write_map
from streamsvm.features.nystrom import Nystrom, Projection
from streamsvm.features.scaling import Standardized
from streamsvm.jobs import JobResult
from streamsvm.jobs.embed.distributed import EmbedWork, features_of
from streamsvm.jobs.embed.feature_writer import JOURNAL, Sink, column_scale
from streamsvm.jobs.embed.kernel_map import draw_landmarks
from streamsvm.jobs.embed.kernel_request import NystromRequest, parameters_of
from streamsvm.jobs.embed.on_threads import RowPieces, features_in_order
from streamsvm.jobs.embed.placement import DTYPES
from streamsvm.locks import locked
from streamsvm.outputs import EMBEDDING, PARTS, Output, claim
from streamsvm.regular import read_whole
from streamsvm.rows import Dense
from streamsvm.store import create, open_store
from streamsvm.store.format import manifest
from streamsvm.store.format.column_encoding import Encoding
from streamsvm.store.sources.offsets import offsets_of_store
from streamsvm.store.write.building import SPACE_FACTOR, store_outputs
from streamsvm.store.write.writer import LARGEST_JOURNAL
from streamsvm.types import Report, Store


@dataclass(frozen=True, slots=True)
class EmbedResult(JobResult):
    """The embedding that was built, or found to be there already."""

    embedding: Path
    """The path of the embedding."""
    projection: Projection
    """The landmarks and W of its map."""
    rows: int
    """The number of rows."""
    reused: bool
    """Whether it was there already, made of the same."""
    resumed: int
    """Rows that an earlier, interrupted run had written."""
    seconds: float
    """How long it took."""


@dataclass(slots=True)
class Builder:
    """Builds one embedding."""

    store: Store
    """The rows that are embedded."""
    request: NystromRequest
    """The kernel features that are asked for."""
    target: Path
    """The path of the embedding."""
    job: Any
    """Says dtype, chunk_bytes, prefetch and overwrite: an ``EmbedJob`` or a fit's own."""
    report: Report
    """Takes the events of progress."""
    executor: Executor | None = None
    """Where features are made; None makes them here."""
    inputs: tuple[str | None, ...] = ()
    """What the job reads beside the store."""
    remedy: str = "use fewer landmarks (--landmarks), or --dtype int8"
    """What the command that builds has against a disk that is too small."""

    def build(self) -> EmbedResult:
        """Reuse the embedding, go on with it or build it anew. Raises ExistsError (E-LOCKED: another process builds
        it), StorageError, DataError.
        """
        began = time.perf_counter()
        outputs = store_outputs([self.target], continues=True, kind=EMBEDDING)
        outputs.append(Output(self._parts, PARTS, continues=True))
        claim(outputs, [self.store.name, *self.inputs], overwrite=self.job.overwrite)
        points = draw_landmarks(self.request, self.store, self.job.prefetch)
        key = key_of(self.store, points, self.request, self.job.dtype, self.job.chunk_bytes)
        if self._committed_key() == key:  # nothing is written: it may be in use
            return self._reused(began)
        with locked(self.target):
            found = self._committed_key()
            return self._reused(began) if found == key else self._built(points, key, found, began)

    def _committed_key(self) -> str | None:
        """Return ``committed_key`` of the target; "" for a damaged embedding that is to be overwritten."""
        try:
            return committed_key(self.target)
        except DataError:
            if not self.job.overwrite:
                raise
            return ""

    def _reused(self, began: float) -> EmbedResult:
        return self._result(read_map(self.target, open_store(self.target).facts["map"]), began, reused=True)

    def _built(self, points: Points, key: str, found: str | None, began: float) -> EmbedResult:
        """Go on with what an interrupted build of the same left, or begin; ``found``: the key of what is there."""
        if (found is not None or not _ours(self.target)) and not self.job.overwrite:
            hint = "choose another name, or pass --overwrite"
            raise ExistsError(f"{self.target} exists already and is not this embedding", hint=hint)
        writer = create(self.target, sparse=False, chunk_bytes=self.job.chunk_bytes, overwrite=True)
        saved = read_journal(writer.directory, key)
        if saved is None and has_journal(self.target) and not self.job.overwrite:
            raise ConfigError(
                f"{self.target} was begun with other settings or other rows, and was interrupted",
                code="E-CONFIG",
                hint="run the command it was begun with to go on, pass --overwrite to start again, or choose another name",
            )
        if saved is None:
            shutil.rmtree(writer.directory, ignore_errors=True)
            durable.make_directory(writer.directory)
            projection = self.request.projection(points)
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
        needed = round(SPACE_FACTOR * self.store.layout.rows * (rank * DTYPES[self.job.dtype] + 8))
        there = sum(f.stat().st_size for f in directory.rglob("*") if f.is_file())
        free = shutil.disk_usage(directory).free
        if needed - there > free:
            raise StorageError(
                f"{directory} has {mib(free)} free, the embedding needs {mib(needed - there, up=True)} more",
                code="E-NOSPACE",
                hint=f"free space, or {self.remedy}",
            )

    def _write(self, projection: Projection, writer: Any, saved: JsonObject) -> int:
        """Map and write every row that is not there yet; returns the first of them."""
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
            self._fetch(projection, writer, saved, rows, self.executor)
            writer.commit(layout.classes, projection.rank, facts)
            shutil.rmtree(self._parts, ignore_errors=True)
            (self.target / JOURNAL).unlink(missing_ok=True)
            return first
        with Sink(writer, rows, projection.rank, saved, numeric=layout.numeric) as sink:
            self._map(features, sink, first, rows)
            sink.finish()
            writer.commit(layout.classes, projection.rank, facts)
        (self.target / JOURNAL).unlink(missing_ok=True)
        return first

    @property
    def _parts(self) -> Path:
        """Where workers leave features, beside the embedding: what is there after a stop is not made again."""
        return self.target.resolve().with_name(f".{self.target.name}.parts")

    def _fetch(self, projection: Projection, writer: Any, saved: JsonObject, rows: int, executor: Executor) -> None:
        """Have the features made by workers and write them in order."""
        durable.make_directory(self._parts)
        store, stopwatch, done, of = self.store, Stopwatch(), 0, self.store.layout.rows
        place = writer.directory.resolve()
        work = EmbedWork(reference_to(store), self._parts, place, saved["map"], saved["key"], rows)
        for chunk in features_of(work, of, projection, executor):
            writer.append(chunk.X, chunk.codes, chunk.weight)
            done += len(chunk.codes)
            self._tell(done, stopwatch)

    def _map(self, features: Nystrom, sink: Sink, first: int, rows: int) -> None:
        """Fill the sink's chunks of ``rows`` with features from row ``first`` on."""
        stopwatch, done = Stopwatch(), first
        pieces = RowPieces(self.store, self.request.inner, rows, self.job.prefetch, first)
        with closing(features_in_order(pieces, features, threading.threads())) as made:
            for chunk in made:
                assert isinstance(chunk.X, Dense)
                sink.take(len(chunk.codes), chunk, 0)[:] = chunk.X.values
                sink.filled()
                done += len(chunk.codes)
                if stopwatch.due():
                    self._tell(done, stopwatch)

    def _tell(self, done: int, stopwatch: Stopwatch) -> None:
        event = {"event": "embed", "rows": done, "of": self.store.layout.rows, "seconds": stopwatch.seconds}
        self.report(event | {"done": False})

    def _facts(self, projection: Projection, saved: JsonObject) -> JsonObject:
        """What the manifest says of where the features are from."""
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


def _ours(target: Path) -> bool:
    """Whether there is nothing yet, or what a build left: a journal, or less where it was killed before it had one."""
    if not target.is_dir() or (target / JOURNAL).exists():
        return target.is_dir() or not target.exists()
    return all(path.name == MAP or path.name.endswith(durable.PARTIAL) for path in target.iterdir())


def read_journal(directory: Path, key: str) -> JsonObject | None:
    """Return the journal of an interrupted build of the same embedding; None when there is none that can be used."""
    saved = _journal(directory)
    return saved if saved is not None and saved["key"] == key else None


def has_journal(directory: Path) -> bool:
    """Return whether an interrupted build of any embedding has left a journal that can be used."""
    return _journal(directory) is not None


def _journal(directory: Path) -> JsonObject | None:
    try:
        saved = json.loads(read_whole(directory / JOURNAL, LARGEST_JOURNAL))
    except (OSError, ValueError, DataError):
        return None
    return saved if isinstance(saved, dict) and "key" in saved else None


FORMAT = 1


def key_of(store: Store, points: Points, request: NystromRequest, dtype: str, chunk_bytes: int) -> str:
    """Return the sha256 of all that decides an embedding's bytes."""
    inner = request.inner
    scaling = [inner.shift, inner.scale] if isinstance(inner, Standardized) else []
    arrays = [hashlib.sha256(a.tobytes()).hexdigest() for a in (points.columns, *scaling)]
    kernel = {"kernel": request.kernel, **parameters_of(request.record)}
    parts = [FORMAT, store.digest, points.size, arrays, kernel, dtype, chunk_bytes, request.cutoff]
    if offsets := offsets_of_store(store.facts).to_json():  # the same stored rows at other offsets are other rows
        parts.append(offsets)
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def committed_key(target: Path) -> str | None:
    """Return the key of a finished embedding, "" for another store, None where there is none. Raises DataError."""
    if not (target / manifest.FILE).exists():
        return None
    return str(open_store(target).facts.get("embedding", {}).get("key", ""))
