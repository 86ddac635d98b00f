"""Iceberg tables with what pyiceberg reads and does not write: deletes by position, in Parquet files and in deletion vectors."""

from __future__ import annotations

import json
import struct
import uuid
import zlib
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.io.pyarrow import PyArrowFile, PyArrowFileIO
from pyiceberg.manifest import (
    DataFile,
    DataFileContent,
    FileFormat,
    ManifestContent,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestWriterV2,
    write_manifest_list,
)
from pyiceberg.table import StaticTable, Table
from pyiceberg.typedef import Record
from pyroaring import BitMap


class DeleteManifestWriter(ManifestWriterV2):
    def content(self) -> ManifestContent:
        return ManifestContent.DELETES

    @property
    def _meta(self) -> dict[str, str]:
        return {**super()._meta, "content": "deletes"}


BUCKET = "s3://bucket"


class BucketOnDisk(PyArrowFileIO):
    """Writes what has names in a bucket to the folder ``lake``, from which a server of a test can serve it."""

    def new_input(self, location: str) -> PyArrowFile:
        return self._with_name(super().new_input(on_disk(location)), location)

    def new_output(self, location: str) -> PyArrowFile:
        return self._with_name(super().new_output(on_disk(location)), location)

    def _with_name(self, file: PyArrowFile, location: str) -> PyArrowFile:
        file._location = location
        return file


def on_disk(location: str) -> str:
    return location.removeprefix("file://").replace(BUCKET, f"{Path.cwd()}/lake")


def new_catalog(folder: Path, warehouse: str | None = None) -> SqlCatalog:
    io = {} if warehouse is None else {"py-io-impl": f"{__name__}.BucketOnDisk"}
    place = warehouse or f"file://{folder}/lake"
    catalog = SqlCatalog("c", uri=f"sqlite:///{folder}/catalog.db", warehouse=place, **io)
    catalog.create_namespace("n")
    return catalog


def delete_positions(
    table: Table, places: dict[str, list[int]], *, vectors: bool = False, content: Any = None, metadata: int = 99
) -> str:
    """Write a snapshot without some rows, given by the names of their files, as new metadata; return its path.

    ``content``: delete by equality with values instead, as (ids of the fields, table).
    """
    folder, snapshot = table.location(), table.current_snapshot()
    assert snapshot is not None
    name = f"{folder}/data/deletes-{uuid.uuid4()}.{'puffin' if vectors else 'parquet'}"
    if content is not None:
        pq.write_table(content[1], on_disk(name))
    elif vectors:
        Path(on_disk(name)).write_bytes(_puffin(places, snapshot.snapshot_id))
    else:
        pairs = sorted((file, place) for file, rows in places.items() for place in rows)
        files, rows = zip(*pairs, strict=True)
        pq.write_table(pa.table({"file_path": files, "pos": rows}), on_disk(name))
    number, sequence = snapshot.snapshot_id + 1, table.metadata.last_sequence_number + 1
    file = DataFile.from_args(
        content=DataFileContent.POSITION_DELETES if content is None else DataFileContent.EQUALITY_DELETES,
        file_path=name,
        file_format=FileFormat.PUFFIN if vectors else FileFormat.PARQUET,
        partition=Record(),
        record_count=sum(map(len, places.values())) if content is None else content[1].num_rows,
        file_size_in_bytes=Path(on_disk(name)).stat().st_size,
        equality_ids=None if content is None else content[0],
    )
    file.spec_id = 0
    manifest = table.io.new_output(f"{folder}/metadata/deletes-{uuid.uuid4()}.avro")
    with DeleteManifestWriter(table.specs()[0], table.schema(), manifest, number, "deflate") as writer:
        entry = ManifestEntry.from_args(status=ManifestEntryStatus.ADDED, snapshot_id=number, data_file=file)
        writer.add_entry(entry)
    listed = f"{folder}/metadata/snap-{number}.avro"
    with write_manifest_list(
        2, table.io.new_output(listed), number, snapshot.snapshot_id, sequence, "deflate"
    ) as manifests:
        manifests.add_manifests([*snapshot.manifests(table.io), writer.to_manifest_file()])
    return _write_metadata(table, f"{metadata:05d}", number, sequence, listed)


def _write_metadata(table: Table, name: str, number: int, sequence: int, listed: str) -> str:
    facts = json.loads(table.metadata.model_dump_json())
    last = facts["snapshots"][-1]
    moment = facts["last-updated-ms"] + 1
    facts["snapshots"].append(
        last | {"snapshot-id": number, "sequence-number": sequence, "manifest-list": listed, "timestamp-ms": moment}
    )
    facts |= {"current-snapshot-id": number, "last-sequence-number": sequence, "last-updated-ms": moment}
    facts["refs"]["main"]["snapshot-id"] = number
    facts["snapshot-log"].append({"snapshot-id": number, "timestamp-ms": moment})
    place = f"{table.location()}/metadata/{name}-{uuid.uuid4()}.metadata.json"
    Path(on_disk(place)).write_text(json.dumps(facts))
    return place


def _puffin(places: dict[str, list[int]], snapshot: int) -> bytes:
    content, blobs = b"PFA1", []
    for file, rows in places.items():
        body = b"\xd1\xd3\x39\x64" + struct.pack("<Q", 1) + struct.pack("<I", 0) + BitMap(rows).serialize()
        blob = struct.pack(">I", len(body)) + body + struct.pack(">I", zlib.crc32(body))
        blobs.append(
            {
                "type": "deletion-vector-v1",
                "fields": [2147483645],
                "snapshot-id": snapshot,
                "sequence-number": 1,
                "offset": len(content),
                "length": len(blob),
                "properties": {"referenced-data-file": file, "cardinality": str(len(rows))},
            }
        )
        content += blob
    footer = json.dumps({"blobs": blobs}).encode()
    return content + b"PFA1" + footer + struct.pack("<I", len(footer)) + bytes(4) + b"PFA1"


def read_by_library(place: str, snapshot: int | None = None) -> pa.Table:
    return StaticTable.from_metadata(place).scan(snapshot_id=snapshot).to_arrow()
