"""Delta tables with what deltalake reads and does not write: column mapping and deletion vectors."""

from __future__ import annotations

import json
import os
import struct
import time
import uuid
import zlib
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyroaring import BitMap

Z85 = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
VECTOR_MAGIC = 1681511377


def encode_z85(data: bytes) -> str:
    text = ""
    for start in range(0, len(data), 4):
        value, digits = int.from_bytes(data[start : start + 4], "big"), ""
        for _ in range(5):
            value, digit = divmod(value, 85)
            digits = Z85[digit] + digits
        text += digits
    return text


class DeltaWriter:
    """A table whose log is written line by line."""

    def __init__(
        self, root: Path, mode: str = "none", partitions: tuple[str, ...] = (), features: tuple[str, ...] = ()
    ) -> None:
        self.root, self.mode, self.partitions, self.features = root, mode, partitions, features
        self.version = 0
        os.makedirs(root / "_delta_log")

    def commit(self, *actions: Any, when: int | None = None) -> None:
        """Write a version. ``when``: its time in milliseconds."""
        stamp = int(time.time() * 1000) if when is None else when
        lines = [{"commitInfo": {"timestamp": stamp, "operation": "WRITE"}}, *actions]
        text = "".join(json.dumps(line) + "\n" for line in lines)
        (self.root / "_delta_log" / f"{self.version:020d}.json").write_text(text)
        self.version += 1

    def protocol(self) -> Any:
        features = [*(["columnMapping"] if self.mode != "none" else []), "deletionVectors", *self.features]
        return {
            "protocol": {
                "minReaderVersion": 3,
                "minWriterVersion": 7,
                "readerFeatures": features,
                "writerFeatures": features,
            }
        }

    def schema(self, **columns: tuple[str, int]) -> Any:
        """The columns: by name, their type and the id of the field, from which their names in the files are made."""
        fields = [
            {"name": name, "type": kind, "nullable": True, "metadata": self._mapping(number)}
            for name, (kind, number) in columns.items()
        ]
        configuration = {"delta.enableDeletionVectors": "true"}
        if self.mode != "none":
            configuration |= {"delta.columnMapping.mode": self.mode, "delta.columnMapping.maxColumnId": "99"}
        return {
            "metaData": {
                "id": "5fba94ed-9794-4965-ba6e-6ee3c0d22af9",
                "format": {"provider": "parquet", "options": {}},
                "schemaString": json.dumps({"type": "struct", "fields": fields}),
                "partitionColumns": list(self.partitions),
                "configuration": configuration,
                "createdTime": 0,
            }
        }

    def _mapping(self, number: int) -> Any:
        if self.mode == "none":
            return {}
        return {"delta.columnMapping.id": number, "delta.columnMapping.physicalName": f"col-{number}"}

    def add(
        self,
        name: str,
        table: pa.Table,
        values: Mapping[str, Any] = MappingProxyType({}),
        vector: Any = None,
        **options: Any,
    ) -> Any:
        """Write a file and return the action that adds it. ``values``: those of the columns of partitions."""
        pq.write_table(table, self.root / name, **options)
        return self.action(name, table.num_rows, values, vector)

    def action(self, name: str, rows: int, values: Mapping[str, Any] = MappingProxyType({}), vector: Any = None) -> Any:
        """Return the action that adds a file that was written."""
        add = {"path": name, "partitionValues": dict(values), "size": os.path.getsize(self.root / name)}
        add |= {"modificationTime": 0, "dataChange": True, "stats": json.dumps({"numRecords": rows})}
        return {"add": add | ({"deletionVector": vector} if vector else {})}

    def remove(self, name: str, vector: Any = None) -> Any:
        action = {"path": name, "deletionTimestamp": 0, "dataChange": True}
        return {"remove": action | ({"deletionVector": vector} if vector else {})}

    def vector(self, rows: list[int], *, inline: bool = False) -> Any:
        """Return the description of a deletion vector, and write it to a file unless it is ``inline``."""
        data = struct.pack("<IQ", VECTOR_MAGIC, 1) + struct.pack("<I", 0) + BitMap(rows).serialize()
        facts = {"sizeInBytes": len(data), "cardinality": len(rows)}
        if inline:
            return {"storageType": "i", "pathOrInlineDv": encode_z85(data + bytes(-len(data) % 4)), **facts}
        name = uuid.uuid4()
        content = b"\x01" + struct.pack(">I", len(data)) + data + struct.pack(">I", zlib.crc32(data))
        (self.root / f"deletion_vector_{name}.bin").write_bytes(content)
        return {"storageType": "u", "pathOrInlineDv": encode_z85(name.bytes), "offset": 1, **facts}
