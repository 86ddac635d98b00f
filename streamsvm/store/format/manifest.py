"""The manifest of a store: written last, so that a store without one is a store that was never finished."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import msgspec

from streamsvm import durable
from streamsvm.aliases import JsonObject
from streamsvm.config.units import mib, size_text
from streamsvm.errors import BudgetError, DataError, MissingError, StorageError, quote
from streamsvm.input_files import is_folder, read_whole
from streamsvm.store.format.labels import MOST_CLASSES
from streamsvm.types import Layout
from streamsvm.types.data import check_recorded

FILE = "manifest.json"
JOURNAL_FILE = "ingest.journal"
"""Lies in a store that is being written, and is gone when it is committed."""
FORMAT = 1
KINDS = {"dense": "float32", "dense-float16": "float16", "dense-int8": "int8"}
"""By kind of dense store, the type of its numbers on disk."""
LARGEST_MANIFEST = 256 << 20
"""The largest manifest that is read, in bytes: some two million chunks."""
READ_BYTES = 9
"""Bytes of memory for each byte of the file while it is read and made into objects (measured: 4.3 to 8.2)."""
SMALL_MANIFEST = 1 << 20
"""Bytes of a file for which nobody is asked: the least a job needs covers what is made of it."""
MOST_COLUMNS = 2**31 - 1
"""The most columns a store can have: their numbers are int32."""
MOST_CHUNK_BYTES = 2**50
"""More than any machine has for a chunk; sizes made of it do not overflow."""


class ChunkEntry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What the manifest says of one chunk."""

    rows: int
    nonzeros: int | None
    """Its stored entries; None in a dense store."""
    counts: list[int]
    """Rows of each class, up to the last class that occurs; where the target is a number, of all rows."""
    crc: dict[str, int]
    """By array, the crc32c of its range in that array."""


class PartFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One of several files a store consists of."""

    name: str
    chunks: int
    nbytes: int
    index: list[tuple[int, int]]
    """Where what is not payload lies, as (offset, length)."""
    crc: int
    """The crc32c of those bytes."""


class Manifest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """All that is known of a store; the file ``manifest.json`` holds it and its sha256."""

    format: int
    """The version of the format, ``FORMAT``."""
    store: str
    """A name of ``STORES``: how the arrays lie on disk."""
    kind: str
    """'dense', 'csr', or a kind of dense store with encoded columns (``KINDS``)."""
    columns: int
    classes: list[str]
    """The label each class code stands for; empty where the target is a number, and y an array of float64."""
    chunk_rows: int
    """Rows of a full chunk."""
    chunks: list[ChunkEntry]
    units: dict[str, list[int]]
    """By array, the crc32c that follows each unit in its file; empty where a unit is not a file of its own."""
    statistics: str
    """The sha256 of the file of column statistics."""
    digest: str
    """The sha256 of the content; see ``content_digest``."""
    uuid: str
    """A random name of this very store."""
    versions: dict[str, str]
    """The versions of the programs that wrote it, by name, for people to read."""
    facts: JsonObject
    """What ingest recorded of the sources: names of columns, encoding, index base."""
    stored: dict[str, list[int]] = {}
    """By compressed array, the bytes of each unit."""
    packed: dict[str, str] = {}
    """By compressed array, the name of its codec."""
    files: list[PartFile] = []
    """The files of a store that is not one file for each unit."""

    def layout(self) -> Layout:
        """Return the layout that solvers and plans go by."""
        nonzeros = tuple(c.nonzeros or 0 for c in self.chunks) if self.kind == "csr" else None
        counts = [0] * max(1, len(self.classes))
        for chunk in self.chunks:
            for code, count in enumerate(chunk.counts):
                counts[code] += count
        rows = tuple(c.rows for c in self.chunks)
        return Layout(self.columns, rows, nonzeros, tuple(self.classes), tuple(counts), "weight" in self.units)


def content_digest(kind: str, columns: int, classes: list[str], chunks: list[ChunkEntry]) -> str:
    """Return the sha256 of the content: equal for equal data in equal chunks, whatever its path or age."""
    return hashlib.sha256(msgspec.json.encode([FORMAT, kind, columns, classes, chunks])).hexdigest()


def write(root: Path, manifest: Manifest) -> None:
    """Write the manifest, which commits the store. Raises StorageError."""
    try:
        body = msgspec.json.encode(manifest)
    except UnicodeEncodeError:
        body = msgspec.json.encode(msgspec.structs.replace(manifest, facts=_text(manifest.facts)))
    before, after = _around(body)
    durable.write_file(root / FILE, before, body, after)


def _text(value: Any) -> Any:
    """The same with names of files that are not UTF-8 as people would write them: JSON has no other bytes."""
    if isinstance(value, str):
        return value.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
    if isinstance(value, dict):
        return {_text(key): _text(item) for key, item in value.items()}
    return [_text(item) for item in value] if isinstance(value, list | tuple) else value


def _around(body: bytes) -> tuple[bytes, bytes]:
    """What is in the file before and after the manifest: the sha256 of it."""
    return b'{"sha256":"' + hashlib.sha256(body).hexdigest().encode() + b'","manifest":', b"}\n"


def manifest_file(body: bytes) -> bytes:
    """Return the whole file of a manifest."""
    before, after = _around(body)
    return before + body + after


class _Versioned(msgspec.Struct):
    """The part of a manifest that decides how the rest is read."""

    format: Any = None


class _Sealed(msgspec.Struct, forbid_unknown_fields=True):
    sha256: str
    manifest: msgspec.Raw


def read(root: Path, memory_limit: int | None = None) -> Manifest:
    """Read and verify a manifest, for which there are ``memory_limit`` bytes; None asks nothing.

    Raises MissingError (no such store), DataError (E-INCOMPLETE: never committed; E-META: damaged; E-VERSION), and
    BudgetError before anything is read.
    """
    if not is_folder(root):
        raise MissingError(
            f"there is no store at {root}", hint="create one with 'streamsvm ingest' or 'streamsvm synth'"
        )
    try:
        if memory_limit is not None:
            _check_memory(root / FILE, memory_limit)
        raw = read_whole(root / FILE, LARGEST_MANIFEST)
    except FileNotFoundError as error:
        if not _is_begun(root):
            hint = "if it holds files of rows, ingest them first: streamsvm ingest DIRECTORY STORE"
            raise DataError(f"{root} is a directory and no store", code="E-INCOMPLETE", hint=hint) from error
        raise DataError(
            f"{root} has no manifest: its ingest never finished",
            code="E-INCOMPLETE",
            hint="run the same 'streamsvm ingest' again: it goes on where it was stopped",
        ) from error
    except OSError as error:
        raise StorageError(
            f"reading the manifest of {root} failed: {error.strerror}", hint="check the disk and its permissions"
        ) from error
    return _parse(raw, root)


def _check_memory(path: Path, limit: int) -> None:
    size = path.stat().st_size
    needed = READ_BYTES * size
    if SMALL_MANIFEST < size <= LARGEST_MANIFEST and limit < needed:  # more is refused when it is opened
        found = f"{path} has {size_text(size)}: about {mib(needed, up=True)} are needed to read it"
        hint = "give more with --memory, or ingest with larger chunks: --chunk"
        raise BudgetError(f"{found}, there are {mib(limit)}", hint=hint)


def _is_begun(root: Path) -> bool:
    """Whether a directory looks like a store that was never finished, or has lost its manifest."""
    names = {"ingest.journal", "journal.json", "zarr.json", "statistics.safetensors", "X", "y"}
    return not any(root.iterdir()) or any((root / name).exists() for name in names) or any(root.glob("part-*.h5"))


def _parse(raw: bytes, root: Path) -> Manifest:
    hint = "restore manifest.json, or ingest again"
    try:
        sealed = msgspec.json.decode(raw, type=_Sealed)
        body = bytes(sealed.manifest)
        found = hashlib.sha256(body).hexdigest()
        if found != sealed.sha256:
            message = f"the manifest of {root} is damaged: sha256 {found[:12]}, expected {quote(sealed.sha256[:12])}"
            raise DataError(message, code="E-META", hint=hint)
        before, after = _around(body)
        if not (raw.startswith(before) and raw.endswith(after) and len(raw) == len(before) + len(body) + len(after)):
            raise DataError(f"the manifest of {root} is damaged around what is sealed", code="E-META", hint=hint)
        _check_version(body, root)
        manifest = msgspec.json.decode(body, type=Manifest)
        check_recorded(manifest.facts, manifest.columns)
    except (msgspec.DecodeError, RecursionError, ValueError) as error:
        raise DataError(f"the manifest of {root} is damaged: {error}", code="E-META", hint=hint) from error
    if not _adds_up(manifest):
        raise DataError(f"the manifest of {root} describes no store", code="E-META", hint=hint)
    return manifest


def _adds_up(m: Manifest) -> bool:
    """Whether a manifest, whoever sealed it, can be that of a store; everything that is read from it relies on this."""
    if m.columns > MOST_COLUMNS or len(m.classes) > MOST_CLASSES:
        return False
    if m.kind not in ("csr", *KINDS) or m.columns < 1 or m.chunk_rows < 1 or not m.chunks:
        return False
    if m.chunk_rows * (8 if m.kind == "csr" else 4 * m.columns + 8) > MOST_CHUNK_BYTES:
        return False
    counted = all(sum(c.counts) == c.rows > 0 and min(c.counts) >= 0 for c in m.chunks)
    coded = max(len(c.counts) for c in m.chunks) <= max(1, len(m.classes))
    whole = all(c.nonzeros is None if m.kind != "csr" else (c.nonzeros or 0) >= 0 for c in m.chunks)
    return counted and coded and whole and all(map(_whole_file, m.files))


def _whole_file(file: PartFile) -> bool:
    """Whether what is not payload lies inside of the file, one piece after the other."""
    at = 0
    for offset, nbytes in file.index:
        if offset < at or nbytes < 0:
            return False
        at = offset + nbytes
    return file.chunks >= 1 and at <= file.nbytes


def _check_version(body: bytes, root: Path) -> None:
    version = msgspec.json.decode(body, type=_Versioned).format
    if version != FORMAT:
        made = "a newer" if isinstance(version, int) and version > FORMAT else "another"
        raise DataError(
            f"{root} was made by {made} streamsvm (format {quote(version)}, this one reads {FORMAT})",
            code="E-VERSION",
            hint="install the version that made it, or ingest again",
        )
