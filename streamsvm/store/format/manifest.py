"""The manifest of a store. It is written last: a directory without a manifest is a store that was never finished."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from streamsvm import durable
from streamsvm.config.units import mib, size_text
from streamsvm.errors import BudgetError, DataError, MissingError, StorageError, quote
from streamsvm.input_files import is_folder, read_whole
from streamsvm.store.format.labels import MOST_CLASSES
from streamsvm.type_aliases import JsonObject
from streamsvm.types import Layout
from streamsvm.types.data import check_recorded

FILE = "manifest.json"
JOURNAL_FILE = "ingest.journal"
"""The journal of a store that is being written; the commit removes it."""
FORMAT = 1
DENSE_DTYPES = {
    "dense": "float32",
    "dense-float16": "float16",
    "dense-bfloat16": "bfloat16",
    "dense-int8": "int8",
    "dense-uint8": "uint8",
}
"""The type of the features on disk, by kind of dense store."""
MAX_MANIFEST_BYTES = 256 << 20
"""Larger manifests are refused; one of this size describes some two million chunks."""
MEMORY_PER_FILE_BYTE = 9
"""Bytes of memory per byte of the file while the manifest is read and decoded (measured: 4.3 to 8.2)."""
MAX_UNCHECKED_BYTES = 1 << 20
"""Up to this size a manifest is read without checking the memory limit: every job has enough memory to decode it."""
MAX_COLUMNS = 2**31 - 1
"""The most columns a store can have: column indices are int32."""
MAX_CHUNK_BYTES = 2**50
"""A chunk has at most this many bytes. No machine has so much memory, and a product of rows, columns and
bytes per value that stays below it does not overflow int64."""


class ChunkEntry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The entry of one chunk in the manifest."""

    rows: int
    nonzeros: int | None
    """Stored entries of the chunk; None in a dense store."""
    counts: list[int]
    """Rows of each class, up to the last class that occurs; for regression, one number: all rows."""
    crc: dict[str, int]
    """The crc32c of the chunk's values in each array, by array."""


class PartFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One of the part files of an HDF5 store."""

    name: str
    chunks: int
    nbytes: int
    index: list[tuple[int, int]]
    """The byte ranges, as (offset, length), that hold HDF5 metadata and no unit (``arrays.ArraySpec``) of an array."""
    crc: int
    """The crc32c of the bytes of ``index``."""


class Manifest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The description of a store; the file ``manifest.json`` holds it and its sha256."""

    format: int
    """The version of the format, ``FORMAT``."""
    store: str
    """The container of the arrays on disk: 'zarr' or 'hdf5'."""
    kind: str
    """'dense', 'csr', or a dense kind with a narrower element type (the keys of ``DENSE_DTYPES``)."""
    columns: int
    classes: list[str]
    """The label of each class code; empty for regression, where y is an array of float64."""
    chunk_rows: int
    """Rows of a full chunk."""
    chunks: list[ChunkEntry]
    units: dict[str, list[int]]
    """The crc32c that each unit's file ends with, by array; empty lists in a store whose units are not files (HDF5).
    A unit is what is stored and checked as a whole: a Zarr or HDF5 chunk."""
    statistics: str
    """The sha256 of the file of column statistics."""
    digest: str
    """The sha256 of the content, as ``content_digest`` computes it."""
    uuid: str
    """The name of this copy of the store: random, or derived from ``digest``."""
    versions: dict[str, str]
    """The versions of the programs that wrote the store, by program, for people to read."""
    facts: JsonObject
    """What ingest recorded about the sources: names of columns, encoding, index base."""
    stored: dict[str, list[int]] = {}
    """The bytes of each compressed unit, by compressed array."""
    packed: dict[str, str] = {}
    """The name of the codec, by compressed array."""
    files: list[PartFile] = []
    """The part files of an HDF5 store; empty in a Zarr store, which has one file per unit."""

    def layout(self) -> Layout:
        """Return the layout of the store, as solvers and plans use it."""
        nonzeros = tuple(c.nonzeros or 0 for c in self.chunks) if self.kind == "csr" else None
        counts = [0] * max(1, len(self.classes))
        for chunk in self.chunks:
            for code, count in enumerate(chunk.counts):
                counts[code] += count
        rows = tuple(c.rows for c in self.chunks)
        weighted, dtype = "weight" in self.units, DENSE_DTYPES.get(self.kind, "float32")
        return Layout(self.columns, rows, nonzeros, tuple(self.classes), tuple(counts), weighted, dtype=dtype)


def content_digest(
    kind: str, columns: int, classes: list[str], chunks: list[ChunkEntry], column_scales: Sequence[float] = ()
) -> str:
    """Return the sha256 of the content. It is equal for equal data in equal chunks, whatever the path and the time.

    ``column_scales``: the factors of the columns of a store of encoded values; empty for others.
    """
    content = [FORMAT, kind, columns, classes, chunks, *([list(column_scales)] if len(column_scales) else [])]
    return hashlib.sha256(msgspec.json.encode(content)).hexdigest()


def write(root: Path, manifest: Manifest) -> None:
    """Write the manifest, which commits the store. Raises StorageError."""
    try:
        body = msgspec.json.encode(manifest)
    except UnicodeEncodeError:
        body = msgspec.json.encode(msgspec.structs.replace(manifest, facts=_escape_bytes(manifest.facts)))
    head, tail = _head_and_tail(body)
    durable.write_file(root / FILE, head, body, tail)


def _escape_bytes(value: Any) -> Any:
    r"""Escape, as ``\xNN``, the bytes of file names in a value that are not valid UTF-8; JSON cannot hold them otherwise."""
    if isinstance(value, str):
        return value.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
    if isinstance(value, dict):
        return {_escape_bytes(key): _escape_bytes(item) for key, item in value.items()}
    return [_escape_bytes(item) for item in value] if isinstance(value, list | tuple) else value


def _head_and_tail(body: bytes) -> tuple[bytes, bytes]:
    """Return the bytes of the file before and after the manifest; the bytes before it hold its sha256."""
    return b'{"sha256":"' + hashlib.sha256(body).hexdigest().encode() + b'","manifest":', b"}\n"


def encode_file(body: bytes) -> bytes:
    """Return the content of ``manifest.json`` for an encoded manifest."""
    head, tail = _head_and_tail(body)
    return head + body + tail


class _Versioned(msgspec.Struct):
    """The version of a manifest, which is read before all other fields."""

    format: Any = None


class _Envelope(msgspec.Struct, forbid_unknown_fields=True):
    sha256: str
    manifest: msgspec.Raw


def read(root: Path, memory_limit: int | None = None) -> Manifest:
    """Read and verify a manifest.

    ``memory_limit``: bytes that reading it may take; None does not limit it. Raises MissingError (no such store),
    DataError (E-INCOMPLETE: never committed; E-META: damaged; E-VERSION), and BudgetError before anything is read.
    """
    if not is_folder(root):
        raise MissingError(
            f"there is no store at {root}", hint="create one with 'streamsvm ingest' or 'streamsvm synth'"
        )
    try:
        if memory_limit is not None:
            check_memory(root / FILE, (root / FILE).stat().st_size, memory_limit)
        raw = read_whole(root / FILE, MAX_MANIFEST_BYTES)
    except FileNotFoundError as error:
        if not _looks_unfinished(root):
            hint = "if it contains data files, ingest them first: streamsvm ingest DIRECTORY STORE"
            raise DataError(f"{root} is a directory, but not a store", code="E-INCOMPLETE", hint=hint) from error
        raise DataError(
            f"{root} has no manifest: its ingest never finished",
            code="E-INCOMPLETE",
            hint="run the same 'streamsvm ingest' again: it goes on where it was stopped",
        ) from error
    except OSError as error:
        raise StorageError(
            f"reading the manifest of {root} failed: {error.strerror}", hint="check the disk and its permissions"
        ) from error
    return parse(raw, root)


def check_memory(where: Path | str, size: int, limit: int) -> None:
    """Raise BudgetError if a manifest of ``size`` bytes cannot be read within ``limit`` bytes of memory."""
    needed = MEMORY_PER_FILE_BYTE * size
    if MAX_UNCHECKED_BYTES < size <= MAX_MANIFEST_BYTES and limit < needed:  # read_whole refuses a larger file
        message = f"{where} has {size_text(size)}: about {mib(needed, round_up=True)} of memory are needed to read it"
        hint = "give more with --memory, or ingest with larger chunks: --chunk"
        raise BudgetError(f"{message}, and the limit is {mib(limit)}", hint=hint)


def _looks_unfinished(root: Path) -> bool:
    """Return whether a directory looks like a store that was never finished or has lost its manifest."""
    names = {"ingest.journal", "journal.json", "zarr.json", "statistics.safetensors", "X", "y"}
    return not any(root.iterdir()) or any((root / name).exists() for name in names) or any(root.glob("part-*.h5"))


def parse(raw: bytes, root: Path | str) -> Manifest:
    """Decode and verify the content of a manifest file. Raises DataError E-META, E-VERSION.

    ``root``: the store's path, for error messages.
    """
    hint = "restore manifest.json, or ingest again"
    try:
        envelope = msgspec.json.decode(raw, type=_Envelope)
        body = bytes(envelope.manifest)
        sha256 = hashlib.sha256(body).hexdigest()
        if sha256 != envelope.sha256:
            message = f"the manifest of {root} is damaged: sha256 {sha256[:12]}, expected {quote(envelope.sha256[:12])}"
            raise DataError(message, code="E-META", hint=hint)
        head, tail = _head_and_tail(body)
        if not (raw.startswith(head) and raw.endswith(tail) and len(raw) == len(head) + len(body) + len(tail)):
            raise DataError(
                f"the manifest of {root} is damaged outside the part that its sha256 covers", code="E-META", hint=hint
            )
        _check_version(body, root)
        manifest = msgspec.json.decode(body, type=Manifest)
        check_recorded(manifest.facts, manifest.columns)
    except (msgspec.DecodeError, RecursionError, ValueError) as error:
        raise DataError(f"the manifest of {root} is damaged: {error}", code="E-META", hint=hint) from error
    if not _is_consistent(manifest):
        raise DataError(f"the manifest of {root} is inconsistent", code="E-META", hint=hint)
    return manifest


def _is_consistent(m: Manifest) -> bool:
    """Return whether a manifest describes a possible store. Readers rely on this, and a valid sha256 does not prove it."""
    if m.columns > MAX_COLUMNS or len(m.classes) > MOST_CLASSES:
        return False
    if m.kind not in ("csr", *DENSE_DTYPES) or m.columns < 1 or m.chunk_rows < 1 or not m.chunks:
        return False
    if m.chunk_rows * (8 if m.kind == "csr" else 4 * m.columns + 8) > MAX_CHUNK_BYTES:
        return False
    counts_match_rows = all(sum(c.counts) == c.rows > 0 and min(c.counts) >= 0 for c in m.chunks)
    classes_known = max(len(c.counts) for c in m.chunks) <= max(1, len(m.classes))
    nonzeros_match_kind = all(c.nonzeros is None if m.kind != "csr" else (c.nonzeros or 0) >= 0 for c in m.chunks)
    return counts_match_rows and classes_known and nonzeros_match_kind and all(map(_has_valid_index, m.files))


def _has_valid_index(file: PartFile) -> bool:
    """Return whether the byte ranges of the index are in order, do not overlap and lie inside the file."""
    end = 0
    for offset, nbytes in file.index:
        if offset < end or nbytes < 0:
            return False
        end = offset + nbytes
    return file.chunks >= 1 and end <= file.nbytes


def _check_version(body: bytes, root: Path | str) -> None:
    version = msgspec.json.decode(body, type=_Versioned).format
    if version != FORMAT:
        which = "a newer" if isinstance(version, int) and version > FORMAT else "another"
        raise DataError(
            f"{root} was made by {which} streamsvm (format {quote(version)}, this one reads {FORMAT})",
            code="E-VERSION",
            hint="install the version that made it, or ingest again",
        )
