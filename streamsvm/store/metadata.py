"""The ``zarr.json`` files of a store: Zarr v3 groups and arrays that any client can open."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from streamsvm import durable
from streamsvm.store import packing
from streamsvm.store.arrays import FILL, ArraySpec


def write_group(directory: Path, attributes: dict[str, Any]) -> None:
    """Make ``directory`` a Zarr v3 group."""
    durable.make_directory(directory)
    _write(directory, {"zarr_format": 3, "node_type": "group", "attributes": attributes})


def write_array(directory: Path, spec: ArraySpec, items: int, names: list[str], packed: str | None = None) -> None:
    """Describe units of an array of ``items`` items (rows) as a Zarr v3 array: bytes, perhaps blosc, crc32c."""
    matrix = [spec.width] if spec.width else []
    middle = [] if packed is None else [packing.described(spec)]
    codecs = [{"name": "bytes", "configuration": {"endian": "little"}}, *middle, {"name": "crc32c"}]
    _write(
        directory,
        {
            "zarr_format": 3,
            "node_type": "array",
            "shape": [items, *matrix],
            "data_type": spec.dtype,
            "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": list(spec.shape)}},
            "chunk_key_encoding": {"name": "default", "configuration": {"separator": "."}},
            "fill_value": FILL[spec.dtype],
            "codecs": codecs,
            "attributes": {},
            "dimension_names": names,
        },
    )


def _write(directory: Path, node: dict[str, Any]) -> None:
    durable.write_file(directory / "zarr.json", json.dumps(node, indent=1).encode())
