"""The writer of a store of any format: rows to chunks to units, statistics and checksums, the manifest last.

The journal of a store that is being built says what it is made from, and which of its units are durable. A build that
was stopped reads its source again and compares: a unit that the journal has and that comes out the same is not written
again. Whatever was lost or torn is written as if nothing had happened, and the bytes are the same.
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
from streamsvm.aliases import Array, Handle, JsonObject
from streamsvm.compute import threading
from streamsvm.config.options import field_values
from streamsvm.errors import DataError, StorageError
from streamsvm.input_files import read_whole
from streamsvm.locks import sweep
from streamsvm.outputs import ANY_STORE, refuse_foreign
from streamsvm.rows import Dense, Float32, Rows
from streamsvm.store.format import compression, statistics
from streamsvm.store.format import manifest as manifests
from streamsvm.store.format.arrays import ArraySpec, Encoding, entry_of, specs_of, values_of
from streamsvm.store.format.manifest import JOURNAL_FILE, ChunkEntry, Manifest
from streamsvm.store.write.chunking import Chunker, new_chunker
from streamsvm.types import Chunk

MOMENTS = ("counts", "mean", "M2", "minimum", "maximum")
NO_CODES = np.empty(0, np.int32)
SYNC_EVERY = 16
"""Chunks between two fsync barriers: enough to let the disk stream, few enough to bound dirty pages."""
LARGEST_JOURNAL = 1 << 30


class StoreBackend(Protocol):
    """Writes the arrays of a store in a format. The writer calls ``begin``, then for each chunk ``turn`` and ``write``,
    then ``finish``.
    """

    name: str
    """The name of the format in ``STORES``."""

    def begin(self, directory: Path, specs: dict[str, ArraySpec]) -> None:
        """Make room for arrays; nothing that is there already is removed."""
        ...

    def compress(self, packed: dict[str, str]) -> None:
        """Use these codecs, by array. It is called before ``begin``; raises UsageError where the format has none."""
        ...

    def turn(self, values: dict[str, Array]) -> bool:
        """Begin a new file if the next chunk needs one; return whether the file before was closed and made durable."""
        ...

    def write(self, values: dict[str, Array]) -> None:
        """Add what a chunk has of each array. Raises StorageError."""
        ...

    def sync(self) -> bool:
        """Make what was written durable; return whether a build could be resumed from here."""
        ...

    def finish(self, columns: int) -> None:
        """Complete the arrays and make them durable. Raises StorageError."""
        ...

    def manifest_fields(self) -> JsonObject:
        """Return the fields of the manifest that are the format's own."""
        ...

    def progress(self) -> Handle:
        """Return what ``resume`` needs, as plain JSON."""
        ...

    def resume(self, saved: Handle, rows: int) -> None:
        """Continue after ``rows`` rows of a dense store; ``saved`` is what ``progress`` returned."""
        ...

    def reuse(self, notes: list[Handle], *, repair: bool) -> None:
        """Do not write units again that are on disk: those in the ``notes`` of an earlier build, or all of a committed
        store.

        With ``repair`` units are read to see whether they are whole.
        """
        ...

    def note(self) -> Handle:
        """Return what has become durable since the last note, as plain JSON; called after ``sync``."""
        ...

    def abort(self) -> None:
        """Close open files."""
        ...


@dataclass(slots=True)
class StoreWriter:
    """Writes one store; nothing of it can be opened before ``commit``."""

    root: Path
    sparse: bool
    chunk_bytes: int
    """The size of a chunk before compression."""
    backend: StoreBackend
    replaces: bool = False
    """Whether a committed store at ``root`` is replaced by ``commit``."""
    encoding: Encoding | None = None
    """The encoding of the numbers of a dense store; None for float32."""
    compression: str = "none"
    """'lz4', 'none', or 'auto', which decides by a trial on the rows that come first."""
    uuid: str = ""
    """The name of this very store; empty makes one from the digest of the content, to have the same bytes again."""
    journal: Journal | None = None
    """The journal of a build that can be resumed; None for any other."""
    repairs: Manifest | None = None
    """The manifest of a committed store whose damaged units are written again."""
    background: Background = field(default_factory=lambda: Background(at_once=True))
    """Writes a chunk; unless at once, while the next is collected, so that appended arrays must not change."""
    _chunker: Chunker | None = None
    _chunks: list[ChunkEntry] = field(default_factory=list)
    _moments: statistics.Moments = field(default_factory=statistics.Moments)
    _saved: JsonObject | None = None
    """The progress up to the last durable chunk."""
    _safe: int = 0
    """Chunks that are in the journal."""

    @property
    def directory(self) -> Path:
        """Where the parts are put until ``commit``."""
        return self.root.with_name(f".{self.root.name}.building") if self.replaces else self.root

    def append(self, X: Rows, codes: Array, weight: Float32 | None = None) -> None:
        """Add rows with their class codes (n,) int32, or numbers (n,) float64, and, where there are any, weights (n,).
        Raises StorageError.
        """
        if self._chunker is None:
            self._begin(X, codes, weight is not None)
        assert self._chunker is not None
        for chunk in self._chunker.push(Chunk(X, codes, weight)):
            self.background.call(partial(self._write_chunk, chunk))

    def commit(self, classes: tuple[str, ...], columns: int, facts: JsonObject) -> Manifest:
        """Finish the arrays, make everything durable, then write the manifest. Raises StorageError, DataError."""
        if self._chunker is None:
            raise DataError("there are no rows to store", code="E-EMPTY", hint="check the source and its format")
        for chunk in self._chunker.rest():
            self.background.call(partial(self._write_chunk, chunk))
        self.background.wait()
        self.backend.finish(columns)
        manifest = self._manifest(classes, columns, facts)
        if self.repairs is not None:
            return self._check_repair(manifest)
        manifests.write(self.directory, manifest)
        if self.journal is not None:
            self.journal.end(self.directory)
        if self.replaces:
            refuse_foreign(self.root, ANY_STORE)  # once more: another program may have written into it since
            durable.exchange(self.directory, self.root)
            shutil.rmtree(self.directory)
        return manifest

    def progress(self) -> JsonObject | None:
        """Return what ``resume`` needs, as plain JSON; only of dense stores, between two chunks.

        It covers what is durable: all so far, or up to the last file that is complete; None before the first.
        """
        self.background.wait()
        if self.backend.sync():
            self._saved = self._snapshot()
        return self._saved

    def resume(self, saved: JsonObject, X: Dense, *, weighted: bool, numeric: bool) -> None:
        """Continue after the chunks of ``saved`` in their directory; ``X`` is any rows of the right width."""
        self.open(X, weighted=weighted, numeric=numeric)
        self._chunks = msgspec.convert(saved["chunks"], list[ChunkEntry])
        self._moments.rows = saved["rows"]
        for name, before in field_values(self._moments, MOMENTS).items():
            setattr(self._moments, name, np.array(saved["moments"][name], before.dtype))
        self.backend.resume(saved["medium"], sum(c.rows for c in self._chunks))
        self._saved = saved

    def abort(self) -> None:
        """Remove what was built; a store that is being replaced or repaired stays as it was."""
        with suppress(Exception):  # the first error is the one to raise
            self.background.wait()
        self.backend.abort()
        if self.repairs is None and self._chunker is not None:
            shutil.rmtree(self.directory, ignore_errors=True)

    def suspend(self) -> int:
        """Keep what was built, to be resumed; return how many chunks are durable."""
        if self._chunker is None:
            return 0
        if self.journal is None:
            self.abort()
            return 0
        with suppress(StorageError):  # the disk may be full
            self.background.wait()
            self._note()
        self.backend.abort()
        return self._safe

    def _begin(self, X: Rows, codes: Array, weighted: bool) -> None:
        building = self.directory
        if self.compression != "none":
            self.backend.compress(
                compression.choose_codecs(self.compression, values_of(Chunk(X, NO_CODES, None), self.encoding))
            )
        notes = None if self.journal is None else self.journal.begin(building)
        unfinished = self.replaces or not (building / manifests.FILE).exists()
        if notes is None and self.repairs is None and building.exists() and unfinished:
            refuse_foreign(building, ANY_STORE)
            shutil.rmtree(building)
        if self.journal is not None and notes is None:  # first of all, so that nothing is without a journal
            durable.make_directory(building)
            self.journal.start(building)
        self.open(X, weighted=weighted, numeric=codes.dtype.kind == "f")
        if self.journal is not None:
            self.backend.reuse(notes or [], repair=False)
        elif self.repairs is not None:
            self.backend.reuse([{"units": self.repairs.units}], repair=True)

    def _note(self) -> None:
        whole = self.backend.sync()
        if self.journal is not None:
            self.journal.note(self.directory, self.backend.note())
            self._safe = len(self._chunks) if whole else self._safe

    def _check_repair(self, manifest: Manifest) -> Manifest:
        assert self.repairs is not None
        if manifest.digest != self.repairs.digest or manifest.statistics != self.repairs.statistics:
            found = f"{manifest.digest[:16]}, expected {self.repairs.digest[:16]}"
            hint = "restore the source, or ingest again with --overwrite"
            raise DataError(f"the source does not give the rows of {self.root}: {found}", code="E-SOURCE", hint=hint)
        return self.repairs

    def open(self, X: Rows, *, weighted: bool, numeric: bool) -> None:
        """Make directories and a writer for each array; nothing that is there already is removed."""
        self._chunker = new_chunker(X, self.chunk_bytes, self.background.wait)
        columns = X.values.shape[1] if isinstance(X, Dense) else 0
        specs = specs_of(self._kind, columns, self._chunker.rows, weighted=weighted, numeric=numeric)
        self.backend.begin(self.directory, specs)

    @property
    def _kind(self) -> str:
        return "csr" if self.sparse else "dense" if self.encoding is None else self.encoding.kind

    def _write_chunk(self, chunk: Chunk) -> None:
        values = values_of(chunk, self.encoding)
        entry = entry_of(chunk, values)
        self._check(entry)
        if self.backend.turn(values):
            self._saved = None if self.sparse else self._snapshot()
            self._note()
        self.backend.write(values)
        self._moments.add(chunk.X)
        self._chunks.append(entry)
        if len(self._chunks) % SYNC_EVERY == 0:
            self._note()

    def _check(self, entry: ChunkEntry) -> None:
        """Raise DataError when a repair does not get the next chunk from the source as it was, before it is written."""
        if self.repairs is None:
            return
        number = len(self._chunks)
        if number >= len(self.repairs.chunks) or entry != self.repairs.chunks[number]:
            hint = "restore the source, or ingest again with --overwrite"
            raise DataError(f"the source does not give chunk {number} of {self.root}", code="E-SOURCE", hint=hint)

    def _snapshot(self) -> JsonObject:
        moments = {name: array.tolist() for name, array in field_values(self._moments, MOMENTS).items()}
        chunks: list[JsonObject] = msgspec.to_builtins(self._chunks)
        return {"rows": self._moments.rows, "moments": moments, "chunks": chunks, "medium": self.backend.progress()}

    def _manifest(self, classes: tuple[str, ...], columns: int, facts: JsonObject) -> Manifest:
        sha256 = statistics.write(self.directory, self._moments.result(columns, self.sparse))
        digest = manifests.content_digest(self._kind, columns, list(classes), self._chunks)
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
    """Hands work to another thread, one piece at a time; its errors are raised by the next ``call`` or ``wait``."""

    at_once: bool = False
    """Whether work is done by the caller's thread instead."""
    _last: Future[None] | None = None

    def call(self, work: Callable[[], None]) -> None:
        """Wait for the piece before, then hand over ``work``."""
        if self.at_once:
            work()
            return
        self.wait()
        self._last = threading.submit(work)

    def wait(self) -> None:
        """Wait until the last piece is done."""
        if self._last is not None:
            error = self._last.exception()  # where a signal ends this, the work is still waited for by the next one
            self._last = None
            if error is not None:
                raise error


@dataclass(frozen=True, slots=True)
class Journal:
    """The journal of one build; ``made_with`` is all that decides the bytes of the store."""

    made_with: JsonObject
    """What the store is made from, as plain JSON."""

    def begin(self, directory: Path) -> list[Any] | None:
        """Return the notes of an earlier build of the same store; None where there is none, and after ``start``."""
        found = _lines(directory / JOURNAL_FILE)
        if not found or found[0] != self.made_with:
            return None
        sweep(directory)
        self._write(directory, found)  # without a last line that was cut
        return found[1:]

    def start(self, directory: Path) -> None:
        """Begin a new journal. Raises StorageError."""
        self._write(directory, [self.made_with])

    def note(self, directory: Path, what: Any) -> None:
        """Add what has become durable. Raises StorageError."""
        durable.append_line(directory / JOURNAL_FILE, json.dumps(what))

    def end(self, directory: Path) -> None:
        """Remove the journal: the store is committed."""
        (directory / JOURNAL_FILE).unlink(missing_ok=True)

    def _write(self, directory: Path, lines: list[Any]) -> None:
        durable.write_file(directory / JOURNAL_FILE, "".join(json.dumps(line) + "\n" for line in lines).encode())


def unfinished_build(directory: Path) -> JsonObject | None:
    """Return what an unfinished store in a directory is made from; None where there is no journal."""
    found = _lines(directory / JOURNAL_FILE)
    return found[0] if found and isinstance(found[0], dict) else None


def _lines(path: Path) -> list[Any]:
    """The lines of a journal up to the first that is not whole."""
    try:
        text = read_whole(path, LARGEST_JOURNAL).decode()
    except (OSError, UnicodeDecodeError, DataError):
        return []
    found = []
    for line in text.splitlines(keepends=True):
        try:
            if not line.endswith("\n"):
                break
            found.append(json.loads(line))
        except ValueError:
            break
    return found
