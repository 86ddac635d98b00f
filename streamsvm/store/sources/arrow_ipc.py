"""Arrow IPC files as a source: the file format (Feather) and the stream format (Hugging Face ``save_to_disk``).

Both hold the same messages: dictionaries of columns of categories, and record batches. The stream format begins with a
message for the schema and ends with an end mark; the file format has a footer that tells the schema and the place of
each message. Files are mapped into memory, so that a batch without compression takes no memory of its own,
however large its writer made it; compressed ones are decompressed one at a time, and each buffer tells its size first.

Arrow has no checksums. Each batch is validated (offsets, UTF-8, codes of dictionaries), and a stream without its end
mark is refused, because it may have been cut between two batches.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa

from streamsvm.errors import DataError, StorageError, quote
from streamsvm.input_files import open_regular
from streamsvm.store.sources.cell_parsing import as_readable, as_stored, readable_type, storage_type
from streamsvm.store.sources.data_frames import slice_batch
from streamsvm.store.sources.options import SourceOptions
from streamsvm.store.sources.parquet import ENCODING_BYTES
from streamsvm.store.sources.schema import TableWidth, check_width, width_bytes
from streamsvm.store.sources.source import SourceFile
from streamsvm.store.sources.table import TableSource

FILE_MAGIC = b"ARROW1"
STREAM_MAGIC = b"\xff\xff\xff\xff"
END_MARK = STREAM_MAGIC + bytes(4)
CUT = ("Expected to", "Not an Arrow file", "File is too small", "bytes available", "footer length")
"""Parts of pyarrow's messages about a file that ends too early."""
MIN_MESSAGE_BYTES = 64
"""Fewer bytes than any record batch takes; more than an end mark with its padding."""
DICTIONARY, RECORD_BATCH = "dictionary", "record batch"


class ArrowSource(TableSource):
    """Files of Arrow IPC, in the file format or the stream format."""

    format_name = "arrow"
    reads_partitions = True

    def __init__(self, paths: tuple[Path, ...], options: SourceOptions) -> None:
        self._contents: dict[Path, Contents] = {}
        super().__init__(paths, options)

    def _types(self, path: Path) -> dict[str, pa.DataType]:
        self._contents_of(path)
        with _explain_errors(path), _open(path) as reader:
            return {field.name: readable_type(storage_type(field.type)) for field in reader.schema}

    def _check_memory(self, types: Mapping[str, pa.DataType]) -> None:
        path, largest = max(self._contents.items(), key=lambda item: item[1].bytes_to_read)
        where = f" in batches of up to {max(largest.rows, default=0)} rows"
        reading = largest.bytes_to_read + ENCODING_BYTES
        check_width(str(path), types, self._options.memory_limit, reading, where)

    def _read(self, path: Path, rows: int, columns: list[str], file: SourceFile) -> Generator[pa.RecordBatch]:
        contents, first = self._contents_of(path), 0
        all_rows = sum(contents.rows)
        with _explain_errors(path), _open(path, columns if contents.is_compressed else None) as reader:
            names = set(columns)
            places = [k for k, name in enumerate(reader.schema.names) if name in names]
            for number in range(len(contents.rows)):
                with _explain_errors(path, f"record batch {number + 1}, rows from {first + 1} on"):
                    batch = _next_batch(reader, number).select(places)
                    batch.validate(full=True)
                    first += batch.num_rows
                for part in slice_batch(batch, rows):
                    yield as_readable(as_stored(part))
                    file.read = int(file.size * file.position / all_rows)

    def _contents_of(self, path: Path) -> Contents:
        if path not in self._contents:
            self._contents[path] = read_contents(path)
        return self._contents[path]


def table_width(path: Path) -> TableWidth:
    """Return the number of columns of a file and the memory that reading it takes."""
    with _explain_errors(path), _open(path) as reader:
        names = reader.schema.names
    reading = read_contents(path).bytes_to_read + ENCODING_BYTES
    return TableWidth(str(path), len(names), reading + width_bytes(names))


class Contents(NamedTuple):
    """The sizes of the record batches of a file."""

    rows: tuple[int, ...]
    """The rows of each record batch."""
    bytes_to_read: int
    """The bytes of memory that the largest compressed batch takes, together with all compressed dictionaries."""

    @property
    def is_compressed(self) -> bool:
        """Whether any buffer is compressed."""
        return self.bytes_to_read > 0


def read_contents(path: Path) -> Contents:
    """Return the sizes of the record batches of a file, from the heads of its messages.

    Raises DataError E-TRUNCATED, E-PARSE for a file that ends too early or has a message that cannot be read.
    """
    rows, next_row, largest, dictionaries = list[int](), 1, 0, 0
    with _explain_errors(path), _map_file(path) as mapped:
        messages = _messages_of_file(mapped) if _is_file_format(mapped) else _messages_of_stream(path, mapped)
        while True:
            with _explain_errors(path, f"record batch {len(rows) + 1}, rows from {next_row} on" if rows else ""):
                message = next(messages, None)
                if message is None:
                    return Contents(tuple(rows), largest + dictionaries)
                if message.type == RECORD_BATCH:
                    count, nbytes = _batch_size(message)
                    rows.append(count)
                    next_row += count
                    largest = max(largest, nbytes)
                elif message.type == DICTIONARY:
                    dictionaries += _batch_size(message)[1]
                else:
                    raise pa.ArrowInvalid(f"unexpected message: {message.type}")


def _messages_of_stream(path: Path, mapped: pa.MemoryMappedFile) -> Iterator[pa.ipc.Message]:
    """Yield the messages of a stream after its schema. Raises DataError E-TRUNCATED if it has no end mark."""
    mapped.seek(0)
    messages, count, last = pa.ipc.MessageReader.open_stream(mapped), 0, None
    with suppress(StopIteration):
        messages.read_next_message()
        while True:
            last = messages.read_next_message()
            count += last.type == RECORD_BATCH
            yield last
    if last is not None and last.type == DICTIONARY:
        raise pa.ArrowInvalid("Expected to find a record batch after the last dictionary")
    mapped.seek(max(0, mapped.tell() - len(END_MARK)))
    if mapped.read(len(END_MARK)) != END_MARK:
        message = f"{path} ends after record batch {count} without the end mark of an Arrow stream"
        raise DataError(
            message, code="E-TRUNCATED", hint="get the file again; if it is whole, write it again with pyarrow"
        )


def _messages_of_file(mapped: pa.MemoryMappedFile) -> Iterator[pa.ipc.Message]:
    """Yield the messages of the dictionaries and the record batches of a file, whose places its footer tells.

    The file ends with the flatbuffer Footer(version, schema, dictionaries, record batches), its length and the magic
    bytes. The last two fields are vectors of blocks: offset, length of the head of the message, length of its body.
    """
    mapped.seek(0)
    with pa.ipc.open_file(mapped):  # which verifies the footer
        pass
    end = mapped.size() - len(FILE_MAGIC) - 4
    (size,) = struct.unpack("<i", _read_at(mapped, end, 4))
    footer = memoryview(_read_at(mapped, end - size, size))
    (root,) = struct.unpack_from("<I", footer)
    last = 0
    for field, kind in ((2, DICTIONARY), (3, RECORD_BATCH)):
        if _field(footer, root, field):
            vector = _subtable(footer, root, field)
            (count,) = struct.unpack_from("<I", footer, vector)
            for offset, head, body in struct.iter_unpack("<qi4xq", footer[vector + 4 : vector + 4 + 24 * count]):
                mapped.seek(offset)
                last = max(last, offset + head + body)
                message = pa.ipc.read_message(mapped)
                if message.type != kind:
                    raise pa.ArrowInvalid(f"the footer names a {kind}, found a message of the type {message.type}")
                yield message
    if last and end - size - last >= MIN_MESSAGE_BYTES:
        raise pa.ArrowInvalid("the footer does not name all record batches")


def _read_at(mapped: pa.MemoryMappedFile, offset: int, size: int) -> bytes:
    mapped.seek(offset)
    return bytes(mapped.read(size))


def _batch_size(message: pa.ipc.Message) -> tuple[int, int]:
    """Return the rows of a record batch or a dictionary, and the bytes that it takes, compressed and decompressed; 0 bytes
    if it is not compressed, because it is then used where the file is mapped.

    Of the flatbuffer Message(version, type, header, ...), the header is RecordBatch(length, nodes, buffers, compression)
    or DictionaryBatch(id, RecordBatch). A buffer is (offset, length) in the body; a compressed one begins with its
    length when decompressed, or with -1 where it was left as it is.
    """
    head, body = memoryview(message.metadata), memoryview(message.body)
    (root,) = struct.unpack_from("<I", head)
    batch = _subtable(head, root, 2)
    if message.type == DICTIONARY:
        batch = _subtable(head, batch, 1)
    length = _field(head, batch, 0)
    rows = struct.unpack_from("<q", head, length)[0] if length else 0
    if not _field(head, batch, 3):
        return rows, 0
    vector = _subtable(head, batch, 2)
    (count,) = struct.unpack_from("<I", head, vector)
    needed = len(body)
    for offset, nbytes in struct.iter_unpack("<qq", head[vector + 4 : vector + 4 + 16 * count]):
        if nbytes:
            (decompressed,) = struct.unpack_from("<q", body, offset)
            needed += max(decompressed, 0)
    return rows, needed


def _field(head: memoryview, table: int, number: int) -> int:
    """Return the position of a field of a table of a flatbuffer; 0 if the field is absent."""
    vtable = table - struct.unpack_from("<i", head, table)[0]
    (size,) = struct.unpack_from("<H", head, vtable)
    entry = 4 + 2 * number
    offset = struct.unpack_from("<H", head, vtable + entry)[0] if entry < size else 0
    return table + offset if offset else 0


def _subtable(head: memoryview, table: int, number: int) -> int:
    """Return the position of the table or vector to which a field of a table points."""
    field = _field(head, table, number)
    return int(field + struct.unpack_from("<I", head, field)[0])


@contextmanager
def _map_file(path: Path) -> Iterator[pa.MemoryMappedFile]:
    """Map a regular file into memory."""
    os.close(open_regular(path, follow=True))
    with pa.memory_map(str(path)) as mapped:
        yield mapped


def _is_file_format(mapped: pa.MemoryMappedFile) -> bool:
    """Return whether a file has the file format, and not the stream format."""
    mapped.seek(0)
    return bool(mapped.read(len(FILE_MAGIC)) == FILE_MAGIC)


@contextmanager
def _open(path: Path, columns: list[str] | None = None) -> Iterator[Any]:
    """Open some columns of a file; None: all columns.

    pyarrow copies each batch of which it leaves out columns, so that only compressed files gain by it.
    """
    with _map_file(path) as mapped:
        open_reader = pa.ipc.open_file if _is_file_format(mapped) else pa.ipc.open_stream
        options = None
        if columns is not None:
            mapped.seek(0)
            with open_reader(mapped) as all_columns:
                names = set(columns)
                places = [k for k, name in enumerate(all_columns.schema.names) if name in names]
            options = pa.ipc.IpcReadOptions(included_fields=places)
        mapped.seek(0)
        with open_reader(mapped, options=options) as reader:
            yield reader


def _next_batch(reader: Any, number: int) -> pa.RecordBatch:
    """Return the record batch at position ``number`` of a file, or the next one of a stream."""
    is_file = isinstance(reader, pa.ipc.RecordBatchFileReader)
    return reader.get_batch(number) if is_file else reader.read_next_batch()


@contextmanager
def _explain_errors(path: Path, place: str = "") -> Iterator[None]:
    """Convert errors of pyarrow to DataError and StorageError that name the file and the ``place`` in it."""
    where = f"{path}, {place}," if place else str(path)
    try:
        yield
    except pa.ArrowNotImplementedError as error:
        hint = "write it again with pyarrow, without this feature"
        raise DataError(f"{where} cannot be read: {quote(str(error), 160)}", code="E-FORMAT", hint=hint) from error
    except (OSError, pa.ArrowException, struct.error) as error:
        reason = quote(str(error), 160)
        if isinstance(error, OSError) and error.errno is not None:  # else the bytes are wrong, not the disk
            raise StorageError(f"reading {where} failed: {reason}", hint="check the file") from error
        is_cut = any(words in str(error) for words in CUT)
        code = "E-TRUNCATED" if is_cut else "E-PARSE"
        raise DataError(f"{where} is not complete Arrow IPC: {reason}", code=code, hint="get the file again") from error
