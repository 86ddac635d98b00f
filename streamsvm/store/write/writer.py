"""Builds a store of any format: rows to chunks to units, statistics and checksums, the manifest last."""

from __future__ import annotations

import shutil
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from uuid import UUID

import msgspec
import numpy as np

from streamsvm import __version__, durable
from streamsvm.aliases import Array, JsonObject
from streamsvm.config.fields import field_values
from streamsvm.errors import DataError, StorageError
from streamsvm.outputs import ANY_STORE, refuse_foreign
from streamsvm.rows import Dense, Float32, Rows
from streamsvm.store.format import compression, statistics
from streamsvm.store.format import manifest as manifests
from streamsvm.store.format.arrays import entry_of, specs_of, values_of
from streamsvm.store.format.column_encoding import Encoding
from streamsvm.store.format.manifest import ChunkEntry, Manifest
from streamsvm.store.write.backend import Medium
from streamsvm.store.write.background import Background
from streamsvm.store.write.chunker import Chunker, Piece
from streamsvm.store.write.journal import Journal

MOMENTS = ("counts", "mean", "M2", "minimum", "maximum")
NO_CODES = np.empty(0, np.int32)
SYNC_EVERY = 16
"""Chunks between two fsync barriers: enough to let the disk stream, few enough to bound dirty pages."""


@dataclass(slots=True)
class StoreWriter:
    """Writes one store; nothing of it can be opened before ``commit``."""

    root: Path
    """The path of the store."""
    sparse: bool
    """Whether rows are CSR."""
    chunk_bytes: int
    """The size of a chunk before compression."""
    medium: Medium
    """Where the arrays are put."""
    replaces: bool = False
    """Whether there is a committed store at ``root``, which stays until ``commit``."""
    encoding: Encoding | None = None
    """How the numbers of a dense store are written; None for float32."""
    compression: str = "none"
    """'lz4', 'none', or 'auto', which decides by a trial on the rows that come first."""
    uuid: str = ""
    """The name of this very store; empty makes one from the digest of the content, so that a build that was interrupted
    is the same to the last byte."""
    journal: Journal | None = None
    """The journal of a build that can be gone on with when it was stopped; None for any other."""
    repairs: Manifest | None = None
    """The manifest of a committed store whose units are written again where they are not what it says."""
    background: Background | None = None
    """What has a thread write a chunk while the next one is collected: arrays that were appended must stay as they are then. None
    writes it at once.
    """
    _chunker: Chunker | None = None
    _chunks: list[ChunkEntry] = field(default_factory=list)
    _moments: statistics.Moments = field(default_factory=statistics.Moments)
    _saved: JsonObject | None = None
    """The progress up to the last point that is durable."""
    _safe: int = 0
    """Chunks the journal knows of."""

    @property
    def directory(self) -> Path:
        """Where the parts are put until ``commit``."""
        return self.root.with_name(f".{self.root.name}.building") if self.replaces else self.root

    def append(self, X: Rows, codes: Array, weight: Float32 | None = None) -> None:
        """Add rows with their class codes (n,) int32, or numbers (n,) float64, and, where there are any, weights (n,). Raises StorageError."""
        if self._chunker is None:
            self._begin(X, codes, weight is not None)
        assert self._chunker is not None
        for piece in self._chunker.push(Piece(X, codes, weight)):
            self._hand_over(piece)

    def commit(self, classes: tuple[str, ...], columns: int, facts: JsonObject) -> Manifest:
        """Finish the arrays, make everything durable, then write the manifest. Raises StorageError, DataError."""
        if self._chunker is None:
            raise DataError("there are no rows to store", code="E-EMPTY", hint="check the source and its format")
        for piece in self._chunker.rest():
            self._hand_over(piece)
        self._wait()
        self.medium.finish(columns)
        manifest = self._manifest(classes, columns, facts)
        if self.repairs is not None:
            return self._repaired(manifest)
        manifests.write(self.directory, manifest)
        if self.journal is not None:
            self.journal.end(self.directory)
        if self.replaces:
            refuse_foreign(self.root, ANY_STORE)  # once more: what was put into it since is not ours to remove
            durable.exchange(self.directory, self.root)
            shutil.rmtree(self.directory)
        return manifest

    def progress(self) -> JsonObject | None:
        """Return what ``resume`` needs, as plain JSON; only of dense stores, between two chunks.

        It covers what is durable: all so far, or up to the last file that is complete; None before the first.
        """
        self._wait()
        if self.medium.sync():
            self._saved = self._snapshot()
        return self._saved

    def resume(self, saved: JsonObject, X: Dense, *, weighted: bool, numeric: bool) -> None:
        """Go on after the chunks of ``saved``, in the directory they lie in; ``X`` is any rows of the right width."""
        self.open(X, weighted=weighted, numeric=numeric)
        self._chunks = msgspec.convert(saved["chunks"], list[ChunkEntry])
        self._moments.rows = saved["rows"]
        for name, before in field_values(self._moments, MOMENTS).items():
            setattr(self._moments, name, np.array(saved["moments"][name], before.dtype))
        self.medium.resume(saved["medium"], sum(c.rows for c in self._chunks))
        self._saved = saved

    def abort(self) -> None:
        """Remove what was built; a store that is being replaced or repaired stays as it was."""
        with suppress(Exception):  # what else went wrong is what is told
            self._wait()
        self.medium.abort()
        if self.repairs is None and self._chunker is not None:
            shutil.rmtree(self.directory, ignore_errors=True)

    def suspend(self) -> int:
        """Leave what was built for the same build later; return how many chunks are safe."""
        if self._chunker is None:
            return 0
        if self.journal is None:
            self.abort()
            return 0
        with suppress(StorageError):  # a disk that is full, perhaps: what was noted before stands
            self._wait()
            self._note()
        self.medium.abort()
        return self._safe

    def _begin(self, X: Rows, codes: Array, weighted: bool) -> None:
        building = self.directory
        if self.compression != "none":
            self.medium.compress(
                compression.chosen(self.compression, values_of(Piece(X, NO_CODES, None), self.encoding))
            )
        notes = None if self.journal is None else self.journal.begin(building)
        unfinished = self.replaces or not (building / manifests.FILE).exists()
        if notes is None and self.repairs is None and building.exists() and unfinished:
            refuse_foreign(building, ANY_STORE)
            shutil.rmtree(building)
        if self.journal is not None and notes is None:  # first of all: what is there without it belongs to nobody
            durable.make_directory(building)
            self.journal.start(building)
        self.open(X, weighted=weighted, numeric=codes.dtype.kind == "f")
        if self.journal is not None:
            self.medium.known(notes or [], repair=False)
        elif self.repairs is not None:
            self.medium.known([{"units": self.repairs.units}], repair=True)

    def _note(self) -> None:
        whole = self.medium.sync()
        if self.journal is not None:
            self.journal.note(self.directory, self.medium.note())
            self._safe = len(self._chunks) if whole else self._safe

    def _repaired(self, manifest: Manifest) -> Manifest:
        assert self.repairs is not None
        if manifest.digest != self.repairs.digest or manifest.statistics != self.repairs.statistics:
            found = f"{manifest.digest[:16]}, expected {self.repairs.digest[:16]}"
            hint = "restore the source, or ingest again with --overwrite"
            raise DataError(f"the source does not give the rows of {self.root}: {found}", code="E-SOURCE", hint=hint)
        return self.repairs

    def open(self, X: Rows, *, weighted: bool, numeric: bool) -> None:
        """Make directories and a writer for each array; nothing that is there already is removed."""
        if isinstance(X, Dense):
            columns = X.values.shape[1]
            rows = max(1, self.chunk_bytes // (4 * columns))
            self._chunker = Chunker(rows, before_joining=self._wait)
        else:
            rows, columns = self.chunk_bytes // 8, 0
            self._chunker = Chunker(rows, nonzeros=rows, before_joining=self._wait)
        self.medium.begin(self.directory, specs_of(self._kind, columns, rows, weighted=weighted, numeric=numeric))

    @property
    def _kind(self) -> str:
        return "csr" if self.sparse else "dense" if self.encoding is None else self.encoding.kind

    def _hand_over(self, piece: Piece) -> None:
        if self.background is None:
            self._write_chunk(piece)
        else:
            self.background.call(partial(self._write_chunk, piece))

    def _wait(self) -> None:
        """Wait for the chunk that is being written. Raises what was raised there."""
        if self.background is not None:
            self.background.wait()

    def _write_chunk(self, piece: Piece) -> None:
        values = values_of(piece, self.encoding)
        entry = entry_of(piece, values)
        self._check(entry)
        if self.medium.turn(values):
            self._saved = None if self.sparse else self._snapshot()
            self._note()
        self.medium.write(values)
        self._moments.add(piece.X)
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
        return {"rows": self._moments.rows, "moments": moments, "chunks": chunks, "medium": self.medium.progress()}

    def _manifest(self, classes: tuple[str, ...], columns: int, facts: JsonObject) -> Manifest:
        sha256 = statistics.write(self.directory, self._moments.result(columns, self.sparse))
        digest = manifests.content_digest(self._kind, columns, list(classes), self._chunks)
        assert self._chunker is not None
        return Manifest(
            format=manifests.FORMAT,
            store=self.medium.name,
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
            **self.medium.described(),
        )
