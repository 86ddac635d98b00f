"""A projection as a file beside the embedding it made: safetensors arrays, checked against a sha256 kept elsewhere."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import numpy as np

from streamsvm import durable
from streamsvm.compute.kernel_values.gram import points_of
from streamsvm.errors import DataError
from streamsvm.features.expansion import expansion_of
from streamsvm.features.nystrom import Projection
from streamsvm.features.scaling import Raw, Standardized
from streamsvm.kernels import KERNELS
from streamsvm.rows import Dense

FILE = "map.safetensors"


def write_map(directory: Path, projection: Projection) -> str:
    """Write the file durably; returns its sha256. Raises StorageError."""
    from safetensors.numpy import save

    expansion = projection.expansion
    tensors = expansion.tensors() | {"W": np.ascontiguousarray(projection.W)}
    raw = save(tensors, {"expansion": json.dumps(expansion.header(), sort_keys=True)})
    durable.write_file(directory / FILE, raw)
    return hashlib.sha256(raw).hexdigest()


def read_map(directory: Path, sha256: str) -> Projection:
    """Read and verify the file. Raises DataError."""
    from safetensors import safe_open

    path = directory / FILE
    raw = path.read_bytes() if path.is_file() else b""
    if hashlib.sha256(raw).hexdigest() != sha256:
        raise DataError(f"{path} is missing or damaged", code="E-CRC", hint="embed again with --overwrite")
    with safe_open(path, framework="np") as file:
        header = json.loads((file.metadata() or {})["expansion"])
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a dict)
    expansion = expansion_of(header, tensors)
    scaled = expansion.shift is not None and expansion.scale is not None
    inner = Standardized(expansion.shift, expansion.scale, 0.0) if scaled else Raw(0.0)  # type: ignore[arg-type]
    assert isinstance(expansion.points, Dense)
    kernel = KERNELS[expansion.kernel](**expansion.parameters)
    return Projection(kernel, inner, points_of(expansion.points.values), tensors["W"])
