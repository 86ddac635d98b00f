"""Write a store in any format: cut rows into chunks and units, add statistics and checksums, and write the manifest
last.

The journal of a store that is being built records its sources and settings, and the checksums of the units that are
durable. A resumed build reads its source again from the start. A unit whose checksum equals the checksum in the journal
is not written again; all other units are written. The bytes of the store are the same as without the interruption.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Protocol
from uuid import UUID

import msgspec
import numpy as np

from streamsvm import __version__, durable
from streamsvm.compute import threading
from streamsvm.config.options import field_values
from streamsvm.durable import sweep
from streamsvm.errors import DataError, StorageError, StreamSVMError
from streamsvm.input_files import read_whole
from streamsvm.outputs import ANY_STORE, refuse_foreign
from streamsvm.rows import Dense, Float32, Rows
from streamsvm.store.format import compression, statistics
from streamsvm.store.format import manifest as manifests
from streamsvm.store.format.arrays import ArraySpec, Encoding, manifest_entry, specs_of, split_chunk
from streamsvm.store.format.manifest import JOURNAL_FILE, ChunkEntry, Manifest
from streamsvm.store.format.row_ids import IdWriter
from streamsvm.store.write.chunking import Chunker, new_chunker
from streamsvm.type_aliases import Array, Handle, JsonObject
from streamsvm.types import Chunk
from streamsvm.working_copies import publish_journal, remove_published

MOMENT_FIELDS = ("counts", "mean", "M2", "minimum", "maximum")
NO_CODES = np.empty(0, np.int32)
CHUNKS_PER_SYNC = 16
"""Number of chunks between two calls of fsync: enough to let the disk write without pauses, few enough to bound dirty pages."""
LARGEST_JOURNAL = 1 << 30


class StoreBackend(Protocol):
    """Writes the arrays of a store in one format. The writer calls ``begin``, then for each chunk ``close_full_file``
    and ``write``, then ``finish``.
    """

    name: str
    """The name of the format in ``STORES``."""

    def begin(self, directory: Path, specs: dict[str, ArraySpec]) -> None:
        """Prepare ``directory`` for the arrays; remove nothing that it holds already."""
        ...

    def use_codecs(self, packed: dict[str, str]) -> None:
        """Use these codecs, by array; called before ``begin``. Raises UsageError if the format has no compression."""
        ...

    def close_full_file(self, values: dict[str, Array]) -> bool:
        """Close the current file and make it durable if the next chunk does not fit; return whether it was closed."""
        ...

    def write(self, values: dict[str, Array]) -> None:
        """Write the arrays of a chunk. Raises StorageError."""
        ...

    def sync(self) -> bool:
        """Make all writes durable; return whether a build could be resumed from here."""
        ...

    def finish(self, columns: int) -> None:
        """Complete the arrays and make them durable. Raises StorageError."""
        ...

    def manifest_fields(self) -> JsonObject:
        """Return the fields of the manifest that depend on the format."""
        ...

    def progress(self) -> Handle:
        """Return the state that ``resume`` needs, as plain JSON."""
        ...

    def resume(self, saved: Handle, rows: int) -> None:
        """Continue after ``rows`` rows of a dense store; ``saved`` is what ``progress`` returned."""
        ...

    def reuse(self, notes: list[Handle], *, repair: bool) -> None:
        """Skip the writing of units that are on disk already: those in the ``notes`` of an interrupted build, or those
        of a committed store that is repaired.

        With ``repair`` each unit is read and compared, and only damaged ones are written.
        """
        ...

    def note(self) -> Handle:
        """Return the journal entry, as plain JSON, of what became durable since the last one; called after ``sync``."""
        ...

    def abort(self) -> None:
        """Close open files."""
        ...


@dataclass(slots=True)
class StoreWriter:
    """Writes one store, which can be opened only after ``commit``."""

    root: Path
    sparse: bool
    chunk_bytes: int
    """The size of a chunk in bytes, before compression."""
    backend: StoreBackend
    replaces: bool = False
    """Whether ``commit`` replaces a committed store at ``root``."""
    encoding: Encoding | None = None
    """The encoding of the features of a dense store; None for float32."""
    compression: str = "none"
    """'lz4', 'none', or 'auto', which decides by compressing the first batch of rows."""
    uuid: str = ""
    """The name of this copy of the store; if empty, it is derived from the digest, so that equal data gives equal
    bytes.
    """
    journal: Journal | None = None
    """The journal of a build that can be resumed; None for other builds."""
    repairs: Manifest | None = None
    """The manifest of the committed store whose damaged units are written again; None: no store is repaired."""
    background: Background = field(default_factory=lambda: Background(uses_caller_thread=True))
    """Writes a chunk in the caller's thread, or in another thread while the next chunk is collected. In the second case,
    the caller must not change arrays that were appended.
    """
    _chunker: Chunker | None = None
    _ids: IdWriter | None = None
    _chunks: list[ChunkEntry] = field(default_factory=list)
    _moments: statistics.Moments = field(default_factory=statistics.Moments)
    _saved: JsonObject | None = None
    """The progress up to the last durable chunk."""
    _durable_chunks: int = 0
    """Number of chunks that the journal covers."""

    @property
    def directory(self) -> Path:
        """The directory that the store is built in; ``commit`` exchanges it with ``root`` if that is replaced."""
        return self.root.with_name(f".{self.root.name}.building") if self.replaces else self.root

    def append(self, X: Rows, codes: Array, weight: Float32 | None = None, ids: Array | None = None) -> None:
        """Add rows with class codes (n,) int32, or targets (n,) float64, and optional weights (n,) and ids (n,).
        Raises StorageError.
        """
        if self._chunker is None:
            self._begin(X, codes, weight is not None)
        assert self._chunker is not None
        for chunk in self._chunker.push(Chunk(X, codes, weight)):
            self.background.call(partial(self._write_chunk, chunk))
        if ids is not None and self.repairs is None:  # a store that is repaired has its ids already
            if self._ids is None:
                self._ids = IdWriter(self.directory)
            self._ids.append(ids)

    def commit(self, classes: tuple[str, ...], columns: int, facts: JsonObject) -> Manifest:
        """Finish the arrays, make everything durable, then write the manifest. Raises StorageError, DataError."""
        if self._chunker is None:
            raise DataError("there are no rows to store", code="E-EMPTY", hint="check the source and its format")
        for chunk in self._chunker.rest():
            self.background.call(partial(self._write_chunk, chunk))
        self.background.wait()
        if self._ids is not None:
            self._ids.close()
        self.backend.finish(columns)
        manifest = self._manifest(classes, columns, facts)
        if self.repairs is not None:
            return self._check_repair(manifest)
        manifests.write(self.directory, manifest)
        if self.journal is not None:
            self.journal.end(self.directory)
        if self.replaces:
            refuse_foreign(self.root, ANY_STORE)  # checked again: another program may have written into it meanwhile
            durable.exchange(self.directory, self.root)
            shutil.rmtree(self.directory)
        return manifest

    def progress(self) -> JsonObject | None:
        """Return the state that ``resume`` needs, as plain JSON; for dense stores only, and between two chunks.

        The state covers the durable chunks: all chunks so far, or the chunks up to the end of the last closed file; None
        if no chunk is durable.
        """
        self.background.wait()
        if self.backend.sync():
            self._saved = self._snapshot()
        return self._saved

    def resume(self, saved: JsonObject, X: Dense, *, weighted: bool, numeric: bool) -> None:
        """Continue after the chunks of ``saved``, which are in ``directory``; ``X``: any rows of the right width."""
        self.open(X, weighted=weighted, numeric=numeric)
        self._chunks = msgspec.convert(saved["chunks"], list[ChunkEntry])
        self._moments.rows = saved["rows"]
        for name, empty in field_values(self._moments, MOMENT_FIELDS).items():
            setattr(self._moments, name, np.array(saved["moments"][name], empty.dtype))
        self.backend.resume(saved["medium"], sum(c.rows for c in self._chunks))
        self._saved = saved

    def abort(self) -> None:
        """Remove the unfinished store; a store that was to be replaced or repaired stays unchanged."""
        with suppress(Exception):  # the error that led to the abort is the one to raise
            self.background.wait()
        self._close_ids()
        self.backend.abort()
        if self.repairs is None and self._chunker is not None:
            shutil.rmtree(self.directory, ignore_errors=True)
            with suppress(StreamSVMError):
                remove_published(self.directory)

    def suspend(self) -> int:
        """Keep the unfinished store, so that it can be resumed; return the number of durable chunks."""
        if self._chunker is None:
            return 0
        if self.journal is None:
            self.abort()
            return 0
        with suppress(StorageError):  # the disk may be full
            self.background.wait()
            self._note()
        self._close_ids()
        self.backend.abort()
        return self._durable_chunks

    def _close_ids(self) -> None:
        """Close the file of ids; the next run writes it anew."""
        with suppress(StorageError):
            if self._ids is not None:
                self._ids.close()

    def _begin(self, X: Rows, codes: Array, weighted: bool) -> None:
        building = self.directory
        if self.compression != "none":
            self.backend.use_codecs(
                compression.choose_codecs(self.compression, split_chunk(Chunk(X, NO_CODES, None), self.encoding))
            )
        notes = None if self.journal is None else self.journal.begin(building)
        unfinished = self.replaces or not (building / manifests.FILE).exists()
        if notes is None and self.repairs is None and building.exists() and unfinished:
            refuse_foreign(building, ANY_STORE)
            shutil.rmtree(building)
        if self.journal is not None and notes is None:  # before any other file, so that no build lacks its journal
            durable.make_directory(building)
            self.journal.start(building)
        self.open(X, weighted=weighted, numeric=codes.dtype.kind == "f")
        if self.journal is not None:
            self.backend.reuse(notes or [], repair=False)
        elif self.repairs is not None:
            self.backend.reuse([{"units": self.repairs.units}], repair=True)

    def _note(self) -> None:
        """Make all writes durable and record them in the journal."""
        resumable = self.backend.sync()
        if self.journal is not None:
            self.journal.note(self.directory, self.backend.note())
            publish_journal(self.directory)
            self._durable_chunks = len(self._chunks) if resumable else self._durable_chunks

    def _check_repair(self, manifest: Manifest) -> Manifest:
        assert self.repairs is not None
        if manifest.digest != self.repairs.digest or manifest.statistics != self.repairs.statistics:
            digests = f"{manifest.digest[:16]}, expected {self.repairs.digest[:16]}"
            hint = "restore the source, or ingest again with --overwrite"
            raise DataError(f"the source does not give the rows of {self.root}: {digests}", code="E-SOURCE", hint=hint)
        return self.repairs

    def open(self, X: Rows, *, weighted: bool, numeric: bool) -> None:
        """Prepare the directory and the arrays for rows like ``X``; remove nothing that exists already."""
        self._chunker = new_chunker(X, self.chunk_bytes, self.background.wait)
        columns = X.values.shape[1] if isinstance(X, Dense) else 0
        specs = specs_of(self._kind, columns, self._chunker.rows, weighted=weighted, regression=numeric)
        self.backend.begin(self.directory, specs)

    @property
    def _kind(self) -> str:
        return "csr" if self.sparse else "dense" if self.encoding is None else self.encoding.kind

    def _write_chunk(self, chunk: Chunk) -> None:
        values = split_chunk(chunk, self.encoding)
        entry = manifest_entry(chunk, values)
        self._check(entry)
        if self.backend.close_full_file(values):
            self._saved = None if self.sparse else self._snapshot()
            self._note()
        self.backend.write(values)
        self._moments.add(chunk.X)
        self._chunks.append(entry)
        if len(self._chunks) % CHUNKS_PER_SYNC == 0:
            self._note()

    def _check(self, entry: ChunkEntry) -> None:
        """Raise DataError E-SOURCE if, in a repair, the source gives another chunk than the store has. Nothing of the chunk
        is written then.
        """
        if self.repairs is None:
            return
        number = len(self._chunks)
        if number >= len(self.repairs.chunks) or entry != self.repairs.chunks[number]:
            hint = "restore the source, or ingest again with --overwrite"
            raise DataError(f"the source does not give chunk {number} of {self.root}", code="E-SOURCE", hint=hint)

    def _snapshot(self) -> JsonObject:
        moments = {name: array.tolist() for name, array in field_values(self._moments, MOMENT_FIELDS).items()}
        chunks: list[JsonObject] = msgspec.to_builtins(self._chunks)
        return {"rows": self._moments.rows, "moments": moments, "chunks": chunks, "medium": self.backend.progress()}

    def _manifest(self, classes: tuple[str, ...], columns: int, facts: JsonObject) -> Manifest:
        sha256 = statistics.write(self.directory, self._moments.result(columns, self.sparse))
        # the digest of an embedding does not depend on its scale, which follows from the map
        scale = [] if self.encoding is None or "map" in facts else self.encoding.scale.tolist()
        digest = manifests.content_digest(self._kind, columns, list(classes), self._chunks, scale)
        assert self._chunker is not None
        return Manifest(
            format=manifests.FORMAT,
            store=self.backend.name,
            kind=self._kind,
            columns=columns,
            classes=list(classes),
            chunk_rows=self._chunker.rows,
            chunks=self._chunks,
            statistics=sha256,
            digest=digest,
            uuid=self.uuid or str(UUID(digest[:32])),
            versions={"streamsvm": __version__, "numpy": np.__version__},
            facts=facts,
            **self.backend.manifest_fields(),
        )


@dataclass(slots=True)
class Background:
    """Runs one function at a time in another thread; its error is raised by the next ``call`` or ``wait``."""

    uses_caller_thread: bool = False
    """Whether functions are run in the caller's thread instead."""
    _last: Future[None] | None = None

    def call(self, work: Callable[[], None]) -> None:
        """Wait for the previous function, then start ``work``."""
        if self.uses_caller_thread:
            work()
            return
        self.wait()
        self._last = threading.submit(work)

    def wait(self) -> None:
        """Wait until the last function has returned."""
        if self._last is not None:
            error = self._last.exception()  # if a signal interrupts this line, the next call waits again
            self._last = None
            if error is not None:
                raise error


@dataclass(frozen=True, slots=True)
class Journal:
    """The journal of one build: a line with the sources and settings, then a line per note of durable units."""

    sources_and_settings: JsonObject
    """What determines the bytes of the store, as plain JSON."""

    def begin(self, directory: Path) -> list[Any] | None:
        """Return the notes of an interrupted build with the same sources and settings; None if there is none."""
        lines = _read_lines(directory / JOURNAL_FILE)
        if not lines or lines[0] != self.sources_and_settings:
            return None
        sweep(directory)
        self._write(directory, lines)  # drops a last line that was cut off
        return lines[1:]

    def start(self, directory: Path) -> None:
        """Write a new journal. Raises StorageError."""
        self._write(directory, [self.sources_and_settings])

    def note(self, directory: Path, entry: Any) -> None:
        """Append a note of what became durable. Raises StorageError."""
        durable.append_line(directory / JOURNAL_FILE, json.dumps(entry))

    def end(self, directory: Path) -> None:
        """Remove the journal of a committed store."""
        (directory / JOURNAL_FILE).unlink(missing_ok=True)

    def _write(self, directory: Path, lines: list[Any]) -> None:
        durable.write_file(directory / JOURNAL_FILE, "".join(json.dumps(line) + "\n" for line in lines).encode())


def read_unfinished_build(directory: Path) -> JsonObject | None:
    """Return the sources and settings of the unfinished store in a directory; None if it has no journal."""
    lines = _read_lines(directory / JOURNAL_FILE)
    return lines[0] if lines and isinstance(lines[0], dict) else None


def _read_lines(path: Path) -> list[Any]:
    """Return the decoded lines of a journal up to the first line that is cut off or damaged."""
    try:
        text = read_whole(path, LARGEST_JOURNAL).decode()
    except (OSError, UnicodeDecodeError, DataError):
        return []
    lines = []
    for line in text.splitlines(keepends=True):
        try:
            if not line.endswith("\n"):
                break
            lines.append(json.loads(line))
        except ValueError:
            break
    return lines
