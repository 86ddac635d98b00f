"""The ``zarr.json`` files of a store: Zarr v3 groups and arrays that any client can open.

We never read them to find data - the manifest says all - but other clients do, and they believe what they read.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from streamsvm.aliases import JsonObject
from streamsvm.store.format import compression
from streamsvm.store.format.arrays import FILL, INDPTR, MATRIX, ArraySpec

FILE = "zarr.json"


def nodes(
    specs: Mapping[str, ArraySpec], items: Mapping[str, int], columns: int, version: int, packed: Mapping[str, str]
) -> dict[str, bytes]:
    """Return the files of a store of ``items`` items (rows) in each array, by their path in it."""
    found = {FILE: _group({"streamsvm": {"format": version}})}
    if INDPTR in specs:
        shape = [items[INDPTR] - 1, columns]
        csr = {"encoding-type": "csr_matrix", "encoding-version": "0.1.0", "shape": shape}
        found[f"{MATRIX}/{FILE}"] = _group(csr)
    return found | {f"{name}/{FILE}": _array(spec, items[name], packed.get(name)) for name, spec in specs.items()}


def _group(attributes: JsonObject) -> bytes:
    return _encoded({"zarr_format": 3, "node_type": "group", "attributes": attributes})


def _array(spec: ArraySpec, items: int, packed: str | None) -> bytes:
    """Units of an array as a Zarr v3 array: bytes, perhaps blosc, crc32c."""
    matrix = [spec.width] if spec.width else []
    middle = [] if packed is None else [compression.described(spec)]
    codecs = [{"name": "bytes", "configuration": {"endian": "little"}}, *middle, {"name": "crc32c"}]
    return _encoded(
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
            "dimension_names": ["row", "feature"] if spec.width else [spec.name.rpartition("/")[2]],
        }
    )


def _encoded(node: JsonObject) -> bytes:
    return json.dumps(node, indent=1).encode()
