"""The ``zarr.json`` files of a store: Zarr v3 groups and arrays that any client can open."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from streamsvm import durable
from streamsvm.store.units import UnitArray

FILL: dict[str, Any] = {"float32": "NaN", "float16": "NaN", "int8": -128, "int32": -1, "int64": -1}
"""A missing chunk must never read as something plausible."""


def write_group(directory: Path, attributes: dict[str, Any]) -> None:
    """Make ``directory`` a Zarr v3 group."""
    durable.make_directory(directory)
    _write(directory, {"zarr_format": 3, "node_type": "group", "attributes": attributes})


def write_array(array: UnitArray, items: int, names: list[str]) -> None:
    """Describe a unit array of ``items`` items (rows) as a Zarr v3 array: codecs bytes, crc32c; no sharding."""
    matrix = [array.width] if array.width else []
    codecs = [{"name": "bytes", "configuration": {"endian": "little"}}, {"name": "crc32c"}]
    _write(
        array.directory,
        {
            "zarr_format": 3,
            "node_type": "array",
            "shape": [items, *matrix],
            "data_type": array.dtype,
            "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [array.unit, *matrix]}},
            "chunk_key_encoding": {"name": "default", "configuration": {"separator": "."}},
            "fill_value": FILL[array.dtype],
            "codecs": codecs,
            "attributes": {},
            "dimension_names": names,
        },
    )


def _write(directory: Path, node: dict[str, Any]) -> None:
    durable.write_file(directory / "zarr.json", json.dumps(node, indent=1).encode())
