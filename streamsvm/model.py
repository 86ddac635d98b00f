"""HOLDS: what a fit found, as pure data. One file: safetensors arrays and a JSON header, sealed by a sha256.

Nothing in it is executed, no path in it is followed.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamsvm import __version__, durable
from streamsvm.compute.margins import decision_values
from streamsvm.errors import DataError, MissingError, quote
from streamsvm.types import Float64, Int32, Rows, row_count

FORMAT = 1
LARGEST_HEADER = 100 << 20


@dataclass(frozen=True, slots=True)
class Model:
    """f_k(x) = W[k, :-1].x + W[k, -1] on raw features; one row of ``weights`` (k, columns + 1) float64 a problem.

    With one row, f > 0 means ``classes[1]``; with several the largest f names the class.
    """

    weights: Float64
    classes: tuple[str, ...]
    provenance: dict[str, Any] = field(default_factory=dict)

    @property
    def columns(self) -> int:
        return self.weights.shape[1] - 1

    def decision(self, X: Rows) -> Float64:
        """Decision values (n, k) float64 of raw rows; columns the rows lack count as 0."""
        values = np.empty((row_count(X), len(self.weights)))
        decision_values(X._replace(bias=1.0), self.weights, values)
        return values

    def codes(self, decision: Float64) -> Int32:
        """Index into ``classes`` (n,) for decision values (n, k)."""
        if decision.shape[1] == 1:
            return (decision[:, 0] > 0).astype(np.int32)
        return np.argmax(decision, axis=1).astype(np.int32)

    def save(self, path: Path) -> None:
        """Write the file, all of it or nothing. Raises StorageError."""
        from safetensors.numpy import save

        header = {
            "format": FORMAT,
            "kind": "linear",
            "classes": list(self.classes),
            "streamsvm": __version__,
            "provenance": self.provenance,
        }
        text = json.dumps(header, sort_keys=True)
        tensors = {"weights": np.ascontiguousarray(self.weights)}
        durable.write_file(path, save(tensors, {"header": text, "sha256": _seal(text, tensors)}))


def _seal(header: str, tensors: dict[str, NDArray[Any]]) -> str:
    digest = hashlib.sha256(header.encode())
    for name in sorted(tensors):
        array = tensors[name]
        digest.update(f"\0{name} {array.dtype.str} {array.shape}\0".encode())
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()


def load(path: Path) -> Model:
    """Read and verify a model file. Raises MissingError, DataError (E-MODEL, E-VERSION)."""
    if not path.is_file():
        raise MissingError(f"there is no model at {path}", hint="create one with 'streamsvm fit'")
    try:
        header, tensors = _open(path)
    except DataError:
        raise
    except Exception as error:  # whatever the container's parser says of foreign bytes
        raise DataError(f"{path} is not a model: {quote(error)}", code="E-MODEL", hint="fit again") from error
    return _check(path, header, tensors)


def _open(path: Path) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    from safetensors import safe_open

    with open(path, "rb") as file:
        if int.from_bytes(file.read(8), "little") > LARGEST_HEADER:
            raise DataError(f"{path} is not a model: its header is too large", code="E-MODEL", hint="fit again")
    with safe_open(path, framework="np") as file:
        metadata = file.metadata() or {}
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a dict)
    header = metadata.get("header", "")
    if metadata.get("sha256") != _seal(header, tensors):
        raise DataError(f"{path} is damaged: its sha256 does not match", code="E-MODEL", hint="fit again")
    return json.loads(header), tensors


def _check(path: Path, header: dict[str, Any], tensors: dict[str, NDArray[Any]]) -> Model:
    if header.get("format") != FORMAT or header.get("kind") != "linear":
        raise DataError(
            f"{path} was made by another streamsvm (format {quote(header.get('format'))}, this one reads {FORMAT})",
            code="E-VERSION",
            hint="use the version that made it, or fit again",
        )
    weights, classes = tensors.get("weights"), header.get("classes")
    good = (
        weights is not None
        and weights.dtype == np.float64
        and weights.ndim == 2
        and weights.size > 0
        and bool(np.isfinite(weights).all())
        and isinstance(classes, list)
        and len(classes) == max(2, len(weights))
    )
    if not good or weights is None or not isinstance(classes, list):
        raise DataError(f"{path} does not hold a usable model", code="E-MODEL", hint="fit again")
    return Model(weights, tuple(str(c) for c in classes), header.get("provenance", {}))
