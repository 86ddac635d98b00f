"""Arrays in npy, IDX and npz files as a source, with labels in a column, in another file or in the archive.

The header of an array is checked before memory is allocated; then rows are read sequentially in slices. Another file has
the labels of the rows of all arrays, in the order of the arrays.
"""

from __future__ import annotations

import math
import re
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from tokenize import TokenError
from typing import Any, Protocol

import numpy as np
from numpy.lib import format as npy_format

from streamsvm.errors import DataError, SecurityError, UsageError, quote
from streamsvm.rows import Dense
from streamsvm.store.format.arrays import FLOAT16, FLOAT32
from streamsvm.store.format.labels import as_labels
from streamsvm.store.sources.array_rows import HINT_DTYPE, KINDS, SLICE_BYTES, as_numbers
from streamsvm.store.sources.byte_stream import Input
from streamsvm.store.sources.options import SourceOptions
from streamsvm.store.sources.read_ahead import BackgroundDigest
from streamsvm.store.sources.source import NO_ROWS, BaseSource, SourceFile
from streamsvm.type_aliases import Array, DType, JsonObject
from streamsvm.types import Batch

HEADER_LIMIT = 10_000
"""The longest npy header that is parsed, in bytes."""
IDX_TYPES = {8: "u1", 9: "i1", 11: ">i2", 12: ">i4", 13: ">f4", 14: ">f8"}
"""The dtypes of IDX files (MNIST) by code. Their header is two zeros, the code, the number of dimensions, and each
dimension as big-endian int32.
"""
FIRST, LAST = "first", "last"
X_MEMBERS = ("X.npy", "x.npy", "data.npy")
Y_MEMBERS = ("y.npy", "Y.npy", "labels.npy", "target.npy")
HINT_CUT = "the file was cut short or written over: save it again"
HINT_LABEL = "pass --label first, --label last, or --labels FILE"


class NpySource(BaseSource):
    """Arrays in npy, IDX and npz files. The labels are the first or last column of X, or another array."""

    def __init__(self, paths: tuple[Path, ...], options: SourceOptions) -> None:
        super().__init__()
        self._options = options
        self._format = options.format
        self._missing = options.missing != "error"
        self._label = options.label
        self._labels = None if options.format == "npz" else options.labels
        self._widths: dict[Path, int] = {}
        self._rows = 0
        dtypes: set[DType] = set()
        paths = self._without_labels_file(paths)
        for path in paths:
            with self._arrays(path) as (X, y):
                if len(paths) == 1 or len(X.shape) != 2 or X.rows or not X.shape[1]:
                    self._check(X, y, path)
                    dtypes.add(X.dtype)
                    self._rows += X.rows
        self.dtype_read = FLOAT16 if {dtype.name for dtype in dtypes} == {FLOAT16} else FLOAT32
        self._paths = tuple(path for path in paths if path in self._widths)
        if self._labels is not None and self._rows:
            with ExitStack() as stack:
                name = str(paths[0]) if len(paths) == 1 else f"{len(paths)} arrays from {paths[0]} on"
                _check_labels(_open_file(stack, self._labels), self._rows, name)
        if not self._paths:
            raise DataError(f"{paths[0]} holds no rows", code="E-EMPTY", hint="check that it is the right file")
        if len(self._paths) < len(paths):
            self.notices[NO_ROWS] = len(paths) - len(self._paths)
        self.columns_read = self._widths[self._paths[0]] - (self._label is not None)

    def _without_labels_file(self, paths: tuple[Path, ...]) -> tuple[Path, ...]:
        """Return the files without that of the labels, which may lie in the folder that was named.

        Raises UsageError for several arrays whose order is not certain: rows-10.npy before rows-2.npy.
        """
        labels = self._labels
        if labels is None or len(paths) == 1:
            return paths
        arrays = tuple(path for path in paths if path.resolve() != labels.resolve())
        for one, other in pairwise(arrays):
            if one.parent == other.parent and one < other and _by_number(one) > _by_number(other):
                raise UsageError(
                    f"{one} comes before {other}: in which order are the labels of {labels}?",
                    hint="name the arrays in the order of their labels, or write their numbers with as many digits",
                )
        return arrays

    def read(self) -> Iterator[Batch]:
        """Yield all rows in order. Raises DataError, StorageError."""
        with ExitStack() as stack:
            beside = None if self._labels is None else _open_file(stack, self._labels)
            for path in self._paths:
                file = SourceFile(str(path), path.stat().st_size)
                self.sources.append(file)
                with self._arrays(path) as (X, inside), BackgroundDigest(path) as digest:
                    y = inside if beside is None else beside
                    for values in X.slices(max(1, SLICE_BYTES // (4 * X.shape[1]))):
                        labels = None if y is None else y.read(len(values))
                        yield self._batch(values, labels, X.name, file.rows)
                        file.rows += len(values)
                        file.read = file.size * file.rows // X.rows
                    if inside is not None:
                        inside.check_end()
                    file.sha256 = digest.result()
            if beside is not None:
                beside.check_end()

    def read_encoding(self) -> JsonObject:
        """Return how to read other files into the same columns, as plain JSON."""
        return {"format": self._format, "options": {"label": self._label}, "columns": self.columns_read}

    def _batch(self, values: Array, labels: Array | None, name: str, first_row: int) -> Batch:
        if self._label is None:
            batch_labels = np.empty(0) if labels is None else as_labels(labels.reshape(len(values)), name)
            X = as_numbers(values, name, first_row, missing=self._missing, exact=self.exact)
            return Batch(Dense(X), batch_labels)
        first = self._label == FIRST
        features = values[:, 1:] if first else values[:, :-1]
        X = as_numbers(features, name, first_row, int(first), missing=self._missing, exact=self.exact)
        return Batch(Dense(X), as_labels(values[:, 0 if first else -1], name))

    @contextmanager
    def _arrays(self, path: Path) -> Iterator[tuple[ArrayStream, ArrayStream | None]]:
        """Open X and y and read their headers; errors of zip archives name the file."""
        with ExitStack() as stack:
            try:
                yield self._open_npz(stack, path) if self._format == "npz" else (_open_file(stack, path), None)
            except zipfile.BadZipFile as error:
                code = "E-CRC" if "CRC" in str(error) else "E-TRUNCATED"
                raise DataError(f"{path} is damaged: {quote(str(error))}", code=code, hint=HINT_CUT) from error
            except (zlib.error, EOFError) as error:
                raise DataError(f"{path} is damaged: {quote(str(error))}", code="E-CRC", hint=HINT_CUT) from error

    def _open_npz(self, stack: ExitStack, path: Path) -> tuple[ArrayStream, ArrayStream | None]:
        archive = stack.enter_context(zipfile.ZipFile(path))
        members = archive.namelist()
        X = next((name for name in X_MEMBERS if name in members), None)
        y = next((name for name in Y_MEMBERS if name in members), None)
        if X is None:
            names = ", ".join(quote(name, 40) for name in members[:8])
            raise DataError(
                f"{path} has no array 'X', only {names}", code="E-FORMAT", hint="save it as np.savez(X=, y=)"
            )
        labels = None if y is None or self._label is not None else _open_member(stack, archive, y)
        return _open_member(stack, archive, X), labels

    def _check(self, X: ArrayStream, y: ArrayStream | None, path: Path) -> None:
        if len(X.shape) != 2 or 0 in X.shape:
            raise DataError(f"{X.name} has the shape {X.shape}", code="E-SHAPE", hint="expected (rows, columns)")
        if X.dtype.kind == "U":
            raise DataError(f"{X.name} holds text, not numbers", code="E-DTYPE", hint=HINT_DTYPE)
        if y is not None:
            _check_labels(y, X.rows, X.name)
        self._check_label(X, y is not None or self._labels is not None, path)
        self._check_width(X.shape[1], path)

    def _check_label(self, X: ArrayStream, has_labels: bool, path: Path) -> None:
        """Set ``_label`` to the column of the labels, None if X has no such column, as rows to predict may."""
        recorded = (self._options.encoding or {}).get("columns")
        if has_labels or self._label == "none" or X.shape[1] == recorded:
            self._label = None
        elif self._label is None and recorded is None:
            labels_file = find_labels_file(path)
            hint = HINT_LABEL if labels_file is None else f"pass --labels {labels_file}, which lies beside it"
            raise UsageError(f"where are the labels of {X.name}?", hint=hint)
        if self._label not in (None, FIRST, LAST):
            raise UsageError(f"arrays have no column {quote(self._label)}", hint=HINT_LABEL)

    def _check_width(self, width: int, path: Path) -> None:
        recorded = (self._options.encoding or {}).get("columns", width - (self._label is not None))
        expected = next(iter(self._widths.values()), recorded + (self._label is not None))
        if width != expected:
            hint = "read arrays with the same columns"
            raise DataError(f"{path} has {width} columns, expected {expected}", code="E-SCHEMA", hint=hint)
        self._widths[path] = width


def _by_number(path: Path) -> list[tuple[bool, int, str]]:
    """Return the name of a file as a key by which numbers in it are ordered as numbers."""
    return [(part.isdecimal(), int(part) if part.isdecimal() else 0, part) for part in re.split(r"(\d+)", path.name)]


def _check_labels(y: ArrayStream, rows: int, name: str) -> None:
    """Raise DataError E-ROWS unless there is one label for each of ``rows`` rows of ``name``."""
    if not y.shape or y.rows != rows or np.prod(y.shape, dtype=object) != rows:
        message = f"{name} has {rows} rows, {y.name} the shape {y.shape}"
        raise DataError(message, code="E-ROWS", hint="one label a row")


def find_labels_file(path: Path) -> Path | None:
    """Return the file in the same folder that by its name holds the labels of an array; None if there is none."""
    pairs = (("images-idx3", "labels-idx1"), ("images.idx3", "labels.idx1"), ("images", "labels"), ("X", "y"))
    for old, new in (*pairs, ("features", "labels"), ("data", "labels")):
        other = path.with_name(path.name.replace(old, new, 1))
        if other != path and other.is_file():
            return other
    return None


def _open_file(stack: ExitStack, path: Path) -> ArrayStream:
    stream = stack.enter_context(Input(path))
    return open_array(stream, str(path), None if stream.compression else stream.size)


def _open_member(stack: ExitStack, archive: zipfile.ZipFile, name: str) -> ArrayStream:
    try:
        stream = stack.enter_context(archive.open(name))
    except (RuntimeError, NotImplementedError) as error:
        message = f"{archive.filename}: {quote(str(error))}"
        raise DataError(message, code="E-FORMAT", hint="save it with numpy.savez_compressed") from error
    return open_array(stream, f"{archive.filename}:{name}", archive.getinfo(name).file_size)


class ByteStream(Protocol):
    """A stream of bytes that is read sequentially."""

    def read(self, size: int = ..., /) -> bytes:
        """Return at most ``size`` bytes; no bytes at the end of the stream."""
        ...


@dataclass(slots=True)
class ArrayStream:
    """An open array whose header was read; the stream is at its first row."""

    name: str
    """The name in messages: the file, and the member of an archive."""
    shape: tuple[int, ...]
    dtype: DType
    stream: ByteStream
    rows_read: int = 0

    @property
    def rows(self) -> int:
        """The number of rows."""
        return self.shape[0]

    def slices(self, rows: int) -> Iterator[Array]:
        """Yield at most ``rows`` rows at a time. Raises DataError E-TRUNCATED if the stream is shorter or longer than
        the header says.
        """
        while self.rows_read < self.rows:
            yield self.read(min(rows, self.rows - self.rows_read))
        self.check_end()

    def read(self, count: int) -> Array:
        """Return the next ``count`` rows. Raises DataError E-TRUNCATED if the stream is shorter."""
        row_bytes = self.dtype.itemsize * int(np.prod(self.shape[1:], dtype=np.int64))
        data = read_fully(self.stream, count * row_bytes)
        if len(data) < count * row_bytes:
            message = f"{self.name} ends in row {self.rows_read + len(data) // row_bytes + 1} of {self.rows}"
            raise DataError(message, code="E-TRUNCATED", hint=HINT_CUT)
        self.rows_read += count
        return np.frombuffer(data, self.dtype).reshape(count, *self.shape[1:])

    def check_end(self) -> None:
        """Raise DataError E-TRUNCATED if the stream goes on after the last row."""
        if extra := len(self.stream.read(1 << 16)):
            message = f"{self.name} has {extra} or more bytes after its last row"
            raise DataError(message, code="E-TRUNCATED", hint=HINT_CUT)


def open_array(stream: ByteStream, name: str, nbytes: int | None) -> ArrayStream:
    """Read and check the header of an npy or IDX array. ``nbytes``: the bytes of header and data; None if unknown.

    Raises DataError E-PARSE, E-TRUNCATED, E-DTYPE, E-SHAPE, E-LAYOUT; SecurityError for pickled objects.
    """
    counted = _CountingStream(stream)
    magic = counted.read(6)
    read = _idx_header if is_idx(magic) else _npy_header
    shape, by_column, dtype = read(_RewoundStream(magic, counted), name)
    _check_dtype(dtype, name)
    if by_column and len(shape) > 1 and min(shape) > 1:
        message = f"{name} is stored by columns (Fortran order)"
        raise DataError(message, code="E-LAYOUT", hint="save numpy.ascontiguousarray(X)")
    expected = counted.count + dtype.itemsize * int(np.prod(shape, dtype=object))
    if nbytes is not None and nbytes != expected:
        message = f"{name} has {nbytes} bytes, its header says {expected}"
        raise DataError(message, code="E-TRUNCATED", hint=HINT_CUT)
    return ArrayStream(name, shape, dtype, stream)


def read_fully(stream: ByteStream, size: int) -> bytes:
    """Return ``size`` bytes, or fewer at the end of the stream."""
    pieces: list[bytes] = []
    while size > 0 and (piece := stream.read(size)):
        pieces.append(piece)
        size -= len(piece)
    return pieces[0] if len(pieces) == 1 else b"".join(pieces)


@dataclass(slots=True)
class _RewoundStream:
    """A stream whose first bytes, which were read already, are returned again."""

    first: bytes
    stream: ByteStream

    def read(self, size: int = -1, /) -> bytes:
        head, self.first = self.first[:size], self.first[size:]
        return head + read_fully(self.stream, size - len(head))


@dataclass(slots=True)
class _CountingStream:
    """A stream that counts the bytes that were read from it."""

    stream: ByteStream
    count: int = 0

    def read(self, size: int = -1, /) -> bytes:
        data = read_fully(self.stream, size)
        self.count += len(data)
        return data


def is_idx(head: bytes) -> bool:
    """Return whether these are the first bytes of an IDX file."""
    return len(head) >= 4 and head[:2] == b"\0\0" and head[2] in IDX_TYPES and 1 <= head[3] <= 4


def _idx_header(stream: Any, name: str) -> tuple[tuple[int, ...], bool, DType]:
    """Return shape, whether the order is Fortran's (never), and dtype; images (n, h, w) have the shape (n, h * w)."""
    kind, dimensions = read_fully(stream, 4)[2:]
    raw = read_fully(stream, 4 * dimensions)
    sizes = [int.from_bytes(raw[at : at + 4], "big", signed=True) for at in range(0, 4 * dimensions, 4)]
    if len(raw) < 4 * dimensions or min(sizes) < 0:
        raise DataError(f"the IDX header of {name} cannot be read", code="E-PARSE", hint="get the file again")
    shape = (sizes[0], math.prod(sizes[1:])) if dimensions > 1 else (sizes[0],)
    return shape, False, np.dtype(IDX_TYPES[kind])


def _npy_header(stream: Any, name: str) -> tuple[tuple[int, ...], bool, DType]:
    try:
        version = npy_format.read_magic(stream)
        read = npy_format.read_array_header_1_0 if version == (1, 0) else npy_format.read_array_header_2_0
        shape, by_column, dtype = read(stream, max_header_size=HEADER_LIMIT)
    except (ValueError, TypeError, SyntaxError, TokenError, RecursionError, MemoryError) as error:
        message = f"the npy header of {name} cannot be read: {quote(str(error), 120)}"
        raise DataError(message, code="E-PARSE", hint="save the array again with numpy.save") from error
    if any(n < 0 for n in shape):
        raise DataError(f"{name} has the impossible shape {shape}", code="E-SHAPE", hint="save the array again")
    return shape, by_column, dtype


def _check_dtype(dtype: DType, name: str) -> None:
    if dtype.hasobject:
        message = f"{name} holds pickled Python objects, which can run code when they are read"
        raise SecurityError(message, hint=HINT_DTYPE)
    if dtype.kind not in KINDS and dtype.kind != "U":
        raise DataError(f"{name} holds {dtype}, not numbers", code="E-DTYPE", hint=HINT_DTYPE)
