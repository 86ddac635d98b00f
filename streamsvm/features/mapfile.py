"""The file of a Nystrom map, stored with the features that it computed: safetensors arrays, verified by a sha256 that
the store of the features contains.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamsvm import durable
from streamsvm.array_file import open_container, pieces
from streamsvm.compute.kernel_values.kernel_matrix import points_of
from streamsvm.errors import DataError
from streamsvm.features.expansion import decode_expansion
from streamsvm.features.nystrom import Projection
from streamsvm.features.scaling import Raw, Standardized
from streamsvm.input_files import read_whole
from streamsvm.kernels import KERNELS
from streamsvm.rows import Dense

FILE = "map.safetensors"
MAX_BYTES = 1 << 40
"""Size in bytes of the largest file that is read. The memory plan of the job that reads it counts its size."""


def write_map(directory: Path, projection: Projection) -> str:
    """Write the file durably and return its sha256. Raises StorageError."""
    expansion = projection.expansion
    tensors = expansion.tensors() | {"W": np.ascontiguousarray(projection.W)}
    digest = hashlib.sha256()
    durable.write_stream(directory / FILE, _hash_pieces(tensors, expansion.header(), digest))
    return digest.hexdigest()


def _hash_pieces(tensors: Mapping[str, NDArray[Any]], header: dict[str, Any], digest: hashlib._Hash) -> Iterator[Any]:
    """Yield the pieces of the file, and update the digest with each."""
    for piece in pieces(tensors, {"expansion": json.dumps(header, sort_keys=True)}):
        digest.update(piece)
        yield piece


def read_map(directory: Path, sha256: str) -> Projection:
    """Return the map in the file. Raises DataError if the file is missing or its sha256 differs."""
    path = directory / FILE
    try:
        raw = read_whole(path, MAX_BYTES)
    except OSError:
        raw = b""
    if hashlib.sha256(raw).hexdigest() != sha256:
        raise _unusable(path, "is missing or damaged")
    with open_container(path, lambda why: _unusable(path, f"is no map: {why}")) as file:
        header = json.loads((file.metadata() or {})["expansion"])
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a dict)
    expansion = decode_expansion(header, tensors)
    scaled = expansion.shift is not None and expansion.scale is not None
    scaling = Standardized(expansion.shift, expansion.scale, 0.0) if scaled else Raw(0.0)  # type: ignore[arg-type]
    assert isinstance(expansion.points, Dense)
    kernel = KERNELS[expansion.kernel](**expansion.parameters)
    return Projection(kernel, scaling, points_of(expansion.points.values), tensors["W"])


def _unusable(path: Path, what: str) -> DataError:
    return DataError(f"{path} {what}", code="E-CRC", hint="embed again with --overwrite")
