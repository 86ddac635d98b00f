"""Iceberg tables: the files of a snapshot, from the metadata and manifests that pyiceberg reads, through this package's own files.

Without a catalog, the metadata with the highest number is the current one; two with the same number, as commits at the same time can leave them,
are refused, and the user names one. Columns are found in the files by the ids of their fields. Deletes, by position (in files or deletion
vectors) or by value, are read when the rows of their file are. pyiceberg refuses to plan those by value; here they are planned beside its index of the others.

pyiceberg takes a manifest that ends early for a shorter one, and its compiled decoder reads beyond the end of damaged ones. Manifests are
therefore checked to be whole, and decoded by its decoder in Python.
"""

from __future__ import annotations

import io
import re
import struct
import threading
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from streamsvm.errors import DataError, StreamSVMError, quote
from streamsvm.input_files import find_url
from streamsvm.store.sources.lakes import (
    ICEBERG,
    ICEBERG_METADATA,
    DeletedValues,
    LakeTable,
    TableFile,
    list_names,
    missing_library,
    no_version,
    parse_time,
    unreadable,
)
from streamsvm.store.sources.parquet import explain_parquet_errors
from streamsvm.store.sources.remote_files import file_size, open_ranges, open_stream

if TYPE_CHECKING:
    from pyiceberg.io import FileIO
    from pyiceberg.manifest import DataFile
    from pyiceberg.partitioning import PartitionSpec
    from pyiceberg.schema import Schema
    from pyiceberg.table import StaticTable
    from pyiceberg.table.snapshots import Snapshot
    from pyiceberg.types import IcebergType

LAST_FORMAT = 3
METADATA_NUMBER = re.compile(r"v?(\d+)\D")
NUMBER = re.compile(r"[0-9]+")
S3_SCHEMES = re.compile("s3[an]://")
TYPES = {
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "date": pa.date32(),
    "time": pa.time64("us"),
    "timestamp": pa.timestamp("us"),
    "timestamptz": pa.timestamp("us", "UTC"),
    "timestamp_ns": pa.timestamp("ns"),
    "timestamptz_ns": pa.timestamp("ns", "UTC"),
    "string": pa.string(),
}
VECTOR_BLOB, VECTOR_MAGIC = "deletion-vector-v1", b"\xd1\xd3\x39\x64"
VECTOR_FILE = "referenced-data-file"
DELETE_ROWS = 65_536
"""Rows of a file of deletes that are read at a time."""


def open_iceberg(location: str, version: str | None) -> LakeTable:
    """Return a snapshot of an Iceberg table, given its folder or one of its metadata files. Raises what ``lakes.open_table`` raises."""
    try:
        from pyiceberg.catalog.noop import NoopCatalog
        from pyiceberg.serializers import FromInputFile
        from pyiceberg.table import StaticTable
    except ImportError as error:
        raise missing_library(ICEBERG, location, "pyiceberg") from error

    with _explain_errors(location):
        place = location if location.endswith(".json") else _find_metadata(location)
        files = _make_file_io(location)
        metadata = FromInputFile.table_metadata(files.new_input(place))
        table = StaticTable(("table",), metadata, place, files, NoopCatalog("none"))
        if metadata.format_version > LAST_FORMAT:
            raise unreadable(ICEBERG, location, f"of format version {metadata.format_version}")
        snapshot = table.current_snapshot() if version is None else _find_snapshot(table, location, version)
        chosen = None if version is None or snapshot is None else snapshot.snapshot_id
        scan = table.scan(snapshot_id=chosen)
        schema = scan.projection()
        tasks = () if snapshot is None else _plan_files(table, snapshot)
        data_files = [_table_file(table, schema, task, location) for task in tasks]
        return LakeTable(
            ICEBERG,
            location,
            str(metadata.table_uuid),
            "none" if snapshot is None else str(snapshot.snapshot_id),
            {field.name: _arrow_type(field.field_type) for field in schema.fields},
            tuple(sorted(data_files, key=lambda file: str(file.path))),
            schema=str(schema.schema_id),
            ids_of_names=_map_ids(table),
        )


@contextmanager
def _explain_errors(location: str) -> Iterator[None]:
    """Convert errors of pyiceberg."""
    try:
        yield
    except StreamSVMError:
        raise
    except Exception as error:  # noqa: BLE001 (damaged metadata make pyiceberg raise many kinds)
        raise _bad_metadata(location, error) from None


def _bad_metadata(location: str, error: Exception) -> DataError:
    first = str(error).partition("\n")[0] or type(error).__name__
    return unreadable(
        ICEBERG, location, f"whose metadata cannot be read: {quote(first, 160)}", "check the folder 'metadata'"
    )


def _find_metadata(location: str) -> str:
    """Return the metadata file with the highest number. Raises DataError E-FORMAT if there are several."""
    names = [name for name in list_names(f"{location}/metadata") or () if ICEBERG_METADATA.fullmatch(name)]
    numbers = {name: int(match[1]) for name in names if (match := METADATA_NUMBER.match(name))}
    newest = sorted(name for name, number in numbers.items() if number == max(numbers.values()))
    if len(newest) != 1:
        found = (
            f"{len(newest)} metadata files with the highest number, {', '.join(newest)}"
            if newest
            else "no metadata file"
        )
        hint = "name the file that is current by its catalog, or give the folder of the whole table"
        raise unreadable(ICEBERG, location, f"with {found}", hint)
    return f"{location}/metadata/{newest[0]}"


def _find_snapshot(table: StaticTable, location: str, version: str) -> Snapshot:
    """Return the snapshot with an id, of a branch or tag, or that was current at a time. Raises UsageError."""
    found = table.snapshot_by_name(version)
    if found is None and NUMBER.fullmatch(version):
        found = table.snapshot_by_id(int(version))
        if found is None:
            raise no_version(location, version, f"the current snapshot is {table.metadata.current_snapshot_id}")
    if found is not None:
        return found
    time = parse_time(version, f"the table {location}", "the id of a snapshot, the name of a branch or tag")
    found = table.snapshot_as_of_timestamp(int(time))
    if found is None:
        raise no_version(location, version, "its history begins later")
    return found


class _Task(NamedTuple):
    """A data file with the files of deletes that apply to it."""

    file: DataFile
    by_position: list[DataFile]
    by_value: list[DataFile]


def _plan_files(table: StaticTable, snapshot: Snapshot) -> Iterator[_Task]:
    """Yield the data files of a snapshot with their deletes. Deletes apply to files of the same partition that are older, deletes by position
    also to those of the same commit; deletes by value that were written without partitions apply to all partitions.

    Raises DataError E-TRUNCATED for manifests of another size than was recorded.
    """
    from pyiceberg.manifest import DataFileContent
    from pyiceberg.table import ManifestGroupPlanner
    from pyiceberg.table.delete_file_index import DeleteFileIndex

    with _decode_in_python():
        manifests = snapshot.manifests(table.io)
        for manifest in manifests:
            size = len(table.io.new_input(manifest.manifest_path))
            if size != manifest.manifest_length:
                message = f"{manifest.manifest_path} has {size} bytes, {manifest.manifest_length} are recorded"
                raise DataError(message, code="E-TRUNCATED", hint="get the file again")
        planned = ManifestGroupPlanner(table.metadata, table.io).plan_manifest_entries(manifests)
        entries = [entry for of_manifest in planned for entry in of_manifest]
    specs, by_position = table.specs(), DeleteFileIndex()
    by_value: dict[Any, list[tuple[int, DataFile]]] = {}
    for entry in entries:
        file = entry.data_file
        if file.content == DataFileContent.POSITION_DELETES:
            by_position.add_delete_file(entry, partition_key=file.partition)
        elif file.content == DataFileContent.EQUALITY_DELETES:
            place = None if specs[file.spec_id].is_unpartitioned() else (file.spec_id, file.partition)
            by_value.setdefault(place, []).append((entry.sequence_number or 0, file))
    for entry in entries:
        file, age = entry.data_file, entry.sequence_number or 0
        if file.content == DataFileContent.DATA:
            positions = by_position.for_data_file(age, file, partition_key=file.partition)
            places = dict.fromkeys([None, (file.spec_id, file.partition)])
            values = [one for place in places for since, one in by_value.get(place, ()) if since > age]
            yield _Task(file, sorted(positions, key=_name_of), sorted(values, key=_name_of))


def _name_of(file: DataFile) -> str:
    return str(file.file_path)


def _arrow_type(kind: IcebergType) -> pa.DataType | None:
    """Return the type of a column that can be a feature, else None."""
    from pyiceberg.types import DecimalType, ListType, PrimitiveType

    if isinstance(kind, DecimalType):
        return pa.decimal128(kind.precision, kind.scale)
    if isinstance(kind, ListType):
        element = _arrow_type(kind.element_type) if isinstance(kind.element_type, PrimitiveType) else None
        return None if element is None else pa.list_(element)
    return TYPES.get(str(kind))


def _map_ids(table: StaticTable) -> dict[str, int]:
    """Return the ids of columns by their names in files without ids, which were written by other programs."""
    mapping = table.metadata.name_mapping()
    return (
        {}
        if mapping is None
        else {name: field.field_id for field in mapping for name in field.names if field.field_id is not None}
    )


def _table_file(table: StaticTable, schema: Schema, task: _Task, location: str) -> TableFile:
    file = task.file
    name = file.file_path
    if str(file.file_format).rpartition(".")[2].upper() != "PARQUET":
        raise unreadable(ICEBERG, location, f"with files that are not Parquet: {quote(name)}")
    if any(one.key_metadata for one in (file, *task.by_position, *task.by_value)):
        raise unreadable(ICEBERG, location, "with encrypted files, which are not read")
    path = _path_of(name, location)
    deletes = [(_path_of(one.file_path, location), str(one.file_format)) for one in task.by_position]
    names = {field.field_id: field.name for field in schema.fields if _arrow_type(field.field_type) is not None}
    deleted_values = []
    for one in task.by_value:
        ids = one.equality_ids or []
        if not set(ids) <= set(names) or not ids:
            raise unreadable(
                ICEBERG, location, "with deletes by the values of a column that was dropped or is no value"
            )
        deleted_values.append(DeletedValues(_path_of(one.file_path, location), {names[k]: k for k in ids}))
    constants = {
        field.name: value
        for field in schema.fields
        if (value := _constant(field, file, table.specs()[file.spec_id])) is not None
    }
    columns = {field.name: field.field_id for field in schema.fields}
    find_kept_rows = partial(_find_kept_rows, name=name, deletes=deletes) if deletes else None
    return TableFile(path, file.file_size_in_bytes, columns, constants, find_kept_rows, tuple(deleted_values))


def _constant(field: Any, file: DataFile, spec: PartitionSpec) -> pa.Scalar | None:
    """Return the value of a column in a file that does not have it: that by which the file is partitioned, or the default of a column that was
    added later; None for a missing value.
    """
    from pyiceberg.transforms import IdentityTransform

    kind = _arrow_type(field.field_type)
    if kind is None:
        return None
    value = field.initial_default
    for place, part in enumerate(spec.fields):
        if part.source_id == field.field_id and isinstance(part.transform, IdentityTransform):
            value = file.partition[place]
    return None if value is None else pa.scalar(value, kind)


def _path_of(name: str, location: str) -> Path:
    """Return the path of a file by its name in the metadata. Raises DataError E-FORMAT for a file that lies neither on this machine nor in the
    same kind of object store as the table.
    """
    if name.startswith("file:"):
        name = f"/{name.removeprefix('file:').lstrip('/')}"
    name = S3_SCHEMES.sub("s3://", name)
    url = find_url(name)
    if (url or "").partition(":")[0] != (find_url(location) or "").partition(":")[0]:
        raise unreadable(ICEBERG, location, f"with a file elsewhere: {quote(name)}")
    return Path(name)


def _make_file_io(location: str) -> FileIO:
    """Return what pyiceberg reads files with: files of this machine and objects, of the same kind as the table."""
    from pyiceberg.io import FileIO, InputFile, InputStream

    class Input(InputFile):
        def __init__(self, name: str) -> None:
            super().__init__(name)
            self._path = _path_of(name, location)

        def __len__(self) -> int:
            return file_size(self._path)

        def exists(self) -> bool:
            return find_url(self._path) is not None or self._path.is_file()

        def open(self, seekable: bool = True) -> InputStream:
            stream: InputStream = open_stream(self._path)
            if self._path.suffix != ".avro":
                return stream
            with stream:
                content = stream.read(-1)
            _check_container(self._path, content)
            return io.BytesIO(content)

    class Files(FileIO):
        def new_input(self, location: str) -> InputFile:
            return Input(location)

        def new_output(self, location: str) -> NoReturn:
            raise NotImplementedError(location)

        def delete(self, location: Any) -> NoReturn:
            raise NotImplementedError(location)

    return Files()


def _check_container(path: Path, content: bytes) -> None:
    """Raise DataError E-TRUNCATED unless an Avro file consists of whole blocks: magic number, metadata, sync marker; then blocks of a count of
    rows, a number of bytes, these bytes, and the sync marker.
    """
    from pyiceberg.avro.decoder import StreamingBinaryDecoder

    decoder = StreamingBinaryDecoder(content)
    try:
        decoder.skip(4)
        while count := decoder.read_int():
            if count < 0:  # the bytes of the entries follow
                decoder.skip_int()
            for _ in range(abs(count)):
                decoder.read_bytes()
                decoder.read_bytes()
        sync = decoder.read(16)
        is_whole = True
        while is_whole and decoder.tell() < len(content):
            decoder.skip_int()
            decoder.read_bytes()
            is_whole = decoder.read(16) == sync
    except (EOFError, TypeError, ValueError):  # TypeError: a number of which no byte is left
        is_whole = False
    if not is_whole:
        message = f"{find_url(path) or path}, a manifest of an Iceberg table, is damaged or cut"
        raise DataError(message, code="E-TRUNCATED", hint="get the file again")


@contextmanager
def _decode_in_python() -> Iterator[None]:
    """Let pyiceberg decode manifests in Python while the context lasts."""
    from pyiceberg.avro import file
    from pyiceberg.avro.decoder import StreamingBinaryDecoder

    with _decoding:
        compiled, file.new_decoder = file.new_decoder, StreamingBinaryDecoder  # type: ignore[assignment]
        try:
            yield
        finally:
            file.new_decoder = compiled


_decoding = threading.Lock()


# -- deletes -----------------------------------------------------------------------------------------------------------


def _find_kept_rows(rows: int, name: str, deletes: Sequence[tuple[Path, str]]) -> pa.BooleanArray:
    """Return which of the rows of a file are kept. ``name``: the name of the file in the metadata."""
    kept = np.ones(rows, np.bool_)
    for path, form in deletes:
        for positions in _vector_positions(path, name) if "PUFFIN" in form.upper() else _list_positions(path, name):
            kept[positions[positions < rows]] = False
    return pa.array(kept)


def _list_positions(path: Path, name: str) -> Iterator[np.ndarray[Any, Any]]:
    """Yield the positions of deleted rows of a file, from a Parquet file of deletes."""
    with (
        explain_parquet_errors(path),
        pq.ParquetFile(open_ranges(path), read_dictionary=["file_path"], page_checksum_verification=True) as opened,
    ):
        for batch in opened.iter_batches(DELETE_ROWS, columns=["file_path", "pos"], use_threads=False):
            files = batch.column("file_path")
            is_of_file = pc.equal(files.dictionary, name).take(files.indices)
            yield batch.column("pos").filter(is_of_file).to_numpy(zero_copy_only=False)


def _vector_positions(path: Path, name: str) -> Iterator[np.ndarray[Any, Any]]:
    """Yield the positions of deleted rows of a file, from a Puffin file with deletion vectors.

    A vector is its length and a magic number, 64-bit roaring bitmaps (a count, then the upper 32 bits and a bitmap of the lower ones), and a
    CRC32 of all from the magic number on.
    """
    from pyiceberg.table.puffin import PuffinFile
    from pyroaring import BitMap

    corrupt = DataError(
        f"the deletion vector of {name} in {find_url(path) or path} is damaged or cut",
        code="E-CRC",
        hint="get the file again",
    )
    with open_stream(path) as stream:
        content = stream.read()
    try:
        puffin = PuffinFile(content)
        blobs = [blob for blob in puffin.footer.blobs if blob.properties.get(VECTOR_FILE) == name]
        payloads = [puffin.get_blob_payload(blob) for blob in blobs]
    except ValueError as error:
        raise corrupt from error
    for blob, payload in zip(blobs, payloads, strict=True):
        length = int.from_bytes(payload[:4], "big")
        body, crc = payload[4 : 4 + length], int.from_bytes(payload[4 + length : 8 + length], "big")
        if blob.type != VECTOR_BLOB or body[:4] != VECTOR_MAGIC or zlib.crc32(body) != crc:
            raise corrupt
        (count,) = struct.unpack_from("<Q", body, 4)
        place = 12
        for _ in range(count):
            (upper,) = struct.unpack_from("<I", body, place)
            bitmap = BitMap.deserialize(body[place + 4 :])
            place += 4 + len(bitmap.serialize())
            yield (upper << 32) + np.array(bitmap.to_array(), np.int64)
