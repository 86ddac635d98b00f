"""Ingest on a cluster: each task reads one file; the driver reads the results as one source, in the order in which the
files were named.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from streamsvm import durable
from streamsvm.engine.executor import Executor, Task
from streamsvm.engine.store_parts import build_part, chunks_of, part_path
from streamsvm.errors import DataError, UsageError
from streamsvm.jobs.ingest.options import IngestJob
from streamsvm.rows import Dense, Float32
from streamsvm.store.format.arrays import ScaleFinder
from streamsvm.store.format.labels import ClassCoder, NumberCoder, labels_of_texts
from streamsvm.store.sources import Source, SourceFile, SourceOptions, open_source, options_from
from streamsvm.store.sources.files import expand, with_rows
from streamsvm.store.sources.source import NO_ROWS
from streamsvm.store.write.writer import StoreWriter
from streamsvm.tasks import REGRESSION
from streamsvm.type_aliases import Array, JsonObject
from streamsvm.types import Batch


class FilePart(NamedTuple):
    """One file of an ingest. Its size and modification time are recorded, because it must not change during the job."""

    number: int
    """Position among the files."""
    path: str
    """Absolute path."""
    size: int
    """Size in bytes when the job began."""
    modified: int
    """Modification time when the job began, in nanoseconds."""


class FileFacts(NamedTuple):
    """The facts about a file after a worker has read it."""

    part: FilePart
    key: str
    """The sha256 of the file's identity and of the options for reading it; the part on disk contains it."""
    file: JsonObject
    """The fields of its ``SourceFile``."""
    notices: dict[str, int]
    """Notices about the rows, with counts."""
    columns: int
    """The number of features."""
    rows: int
    """The number of rows."""
    largest: list[float]
    """The largest magnitude of each column, if the scale of int8 is wanted and can be found; else empty."""
    whole: list[bool]
    """Whether all numbers of a column are whole, likewise."""
    labels: tuple[str, ...]
    """The label of each class code."""
    kind: str
    """The kind of the array of labels, in numpy's notation: 'f', 'i', 'u', or 'U' for text."""


@dataclass(frozen=True, slots=True)
class IngestWork:
    """The input that all tasks share: the options for reading files, and the folder of the parts."""

    directory: Path
    """The folder of the parts."""
    options: SourceOptions
    numeric: bool = False
    """Whether labels are numbers to predict."""
    finds_scale: bool = False
    """Whether the scale of int8 is wanted."""


class DistributedSource:
    """A source (``store.sources.Source``) whose files are read by workers, one file per task."""

    exact = False

    def __init__(
        self, paths: Sequence[Path], options: SourceOptions, executor: Executor, directory: Path, *, numeric: bool
    ) -> None:
        self._all_files = open_source(paths, options)
        files = with_rows(expand(paths), options.format)
        self._named, self._paths, self._executor = files, [path.resolve() for path in files], executor
        self._directory, self._options, self._numeric = directory.resolve(), options, numeric
        self.columns, self.names, self.sparse = self._all_files.columns, self._all_files.names, self._all_files.sparse
        self.id_column: str | None = None
        self.proposals = self._all_files.proposals
        self.sources: list[SourceFile] = []
        self._files_read: list[FileFacts] | None = None
        """The facts about all files, if workers have read them for the scale of int8."""
        empty_files = len(paths) - len(files)
        self.notices: dict[str, int] = Counter(
            {**self._all_files.notices, **({NO_ROWS: empty_files} if empty_files else {})}
        )

    def batches(self) -> Iterator[Batch]:
        """Yield all rows in order, while workers read further files. Raises ClusterError, and the errors of reading."""
        for facts in self._read_files() if self._files_read is None else self._files_read:
            name = str(self._named[facts.part.number])  # as the user wrote it; workers have the absolute path
            self.sources.append(SourceFile(**{**facts.file, "name": name}))
            for what, count in facts.notices.items():
                self.notices[what] += count
            self.columns = max(self.columns or 0, facts.columns)
            yield from _batches(self._directory, facts)

    @property
    def dtype(self) -> str:
        """'float16' or 'bfloat16' if the source has its numbers in that type and the steps keep it, else 'float32'."""
        return self._all_files.dtype

    def find_scale(self) -> Float32 | None:
        """Let workers read all rows, and return the scale factor of each column for int8; None for sparse rows whose
        number of columns is unknown.

        ``batches`` then yields the rows that they have read. Raises what ``batches`` raises.
        """
        self._files_read = list(self._read_files(finds_scale=True))
        finder = ScaleFinder()
        for facts in self._files_read:
            if len(facts.largest):
                finder.merge(ScaleFinder(np.array(facts.largest, np.float32), np.array(facts.whole)))
        return finder.find()

    def _read_files(self, *, finds_scale: bool = False) -> Iterator[FileFacts]:
        """Yield the facts about each file when a worker has read it."""
        work = IngestWork(self._directory, self._shared_options(), self._numeric, finds_scale)
        parts = [_describe_file(k, path) for k, path in enumerate(self._paths)]
        yield from self._executor.map(Task("ingest", read_file), parts, (self._executor.share(work),))

    def encoding(self) -> JsonObject:
        """Return the encoding that later reads of such files must use (``Source.encoding``)."""
        encoding = self._all_files.encoding()
        return encoding | {"columns": self.columns} if "columns" in encoding else encoding

    def _shared_options(self) -> SourceOptions:
        """Return the options for reading each file. Offsets and the replacements of missing values come from all
        files.
        """
        encoding = self._all_files.encoding()
        if "schema" in encoding:
            end, unlabeled = self._options.allow_no_final_newline, self._options.missing_label
            return options_from(encoding, allow_no_final_newline=end, missing_label=unlabeled)
        options = replace(self._options, offsets=encoding.get("offsets", ()), filling=encoding.get("missing"))
        if not self.sparse or options.index_base is not None:
            return options
        next(self._all_files.batches(), None)
        return replace(options, format="svmlight", index_base=self._all_files.encoding().get("index_base"))


def read_file(part: FilePart, work: IngestWork) -> FileFacts:
    """Read a file and write its rows as a part of the store (the task of a worker). Raises DataError, StorageError."""
    current = _describe_file(part.number, Path(part.path))
    if current != part:
        raise DataError(
            f"{part.path} has changed", code="E-CHANGED", hint="run the job again when the file is complete"
        )
    key = _digest_part(part, work)
    source = open_source([part.path], work.options)

    def fill(writer: StoreWriter) -> tuple[tuple[str, ...], int, JsonObject]:
        coder, kind, rows, finder = NumberCoder() if work.numeric else ClassCoder(), "f", 0, ScaleFinder()
        for batch in source.batches():
            if not len(batch.labels):
                raise DataError(f"{part.path} holds no labels", code="E-LABEL", hint="name their column: --label")
            kind = batch.labels.dtype.kind
            writer.append(batch.X, coder.codes(batch.labels), batch.weight)
            rows += len(batch.labels)
            if work.finds_scale and (isinstance(batch.X, Dense) or source.columns is not None):
                finder.add(batch.X, source.columns)
        scale = {"largest": _as_list(finder.largest), "whole": _as_list(finder.whole)}
        facts = scale | {"file": asdict(source.sources[0]), "notices": dict(source.notices), "kind": kind, "rows": rows}
        classes = () if isinstance(coder, NumberCoder) else tuple(coder.classes)
        return classes, source.columns or 0, facts | {"labels": list(classes), "columns": source.columns}

    facts = build_part(work.directory, part.number, key, sparse=source.sparse, fill=fill)
    return FileFacts(
        part,
        key,
        facts["file"],
        facts["notices"],
        facts["columns"],
        facts["rows"],
        facts["largest"],
        facts["whole"],
        tuple(facts["labels"]),
        facts["kind"],
    )


def _as_list(values: Array | None) -> list[Any]:
    return [] if values is None else values.tolist()


def _batches(directory: Path, facts: FileFacts) -> Iterator[Batch]:
    labels = labels_of_texts(facts.labels, facts.kind)
    for chunk in chunks_of(part_path(directory, facts.part.number), facts.key):
        numeric = chunk.codes.dtype.kind == "f"
        yield Batch(chunk.X, chunk.codes if numeric else labels[chunk.codes], chunk.weight)


def _describe_file(number: int, path: Path) -> FilePart:
    status = path.stat()
    return FilePart(number, str(path), status.st_size, status.st_mtime_ns)


def _digest_part(part: FilePart, work: IngestWork) -> str:
    options = {name: value for name, value in asdict(work.options).items() if name != "encoding"}
    recorded = json.dumps(
        [part.path, part.size, part.modified, options, work.options.encoding, work.finds_scale],
        default=str,
        sort_keys=True,
    )
    return hashlib.sha256(recorded.encode()).hexdigest()


def source_for(job: IngestJob, options: SourceOptions, executor: Executor | None, directory: Path) -> Source:
    """Return one source of all files of an ingest, which are read by this process or by the workers of a cluster."""
    if executor is None or len(job.sources) == 1:
        return open_source(job.sources, options)
    if options.on_bad_line != "error":
        raise UsageError("workers of a cluster cannot skip bad lines", hint="ingest without --cluster")
    if options.id_column is not None:
        raise UsageError("workers of a cluster cannot keep ids of rows", hint="ingest without --cluster")
    if options.labels is not None:
        raise UsageError("workers of a cluster cannot share one file of labels", hint="ingest without --cluster")
    if options.split_by or options.split_after:
        raise UsageError("workers of a cluster cannot hold rows out by a column", hint="ingest without --cluster")
    return DistributedSource(job.sources, options, executor, directory, numeric=job.task == REGRESSION)


def parts_path(store: Path) -> Path:
    """Return the folder in which workers write the parts of a store."""
    return store.resolve().with_name(f".{store.name}.parts")


@contextmanager
def parts_beside(store: Path, executor: Executor | None) -> Iterator[Path]:
    """Create the folder of the parts of a store; remove it at the end of the context.

    In case of an error it is kept, so that the next run can use the finished parts.
    """
    directory = parts_path(store)
    if executor is not None:
        durable.make_directory(directory)
    yield directory
    if executor is not None:
        shutil.rmtree(directory, ignore_errors=True)
