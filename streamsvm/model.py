"""HOLDS: what a fit found, as pure data. One file: safetensors arrays and a JSON header, sealed by a sha256.

Two kinds: a linear function of the stored columns, and one of kernel values, k(x, z_j) for landmarks or support rows z_j.
Nothing in the file is executed, no path in it is followed.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from streamsvm import __version__, durable
from streamsvm.aliases import Array, JsonObject
from streamsvm.compute.blocks.margins import decision_values
from streamsvm.container import opened, pieces
from streamsvm.errors import DataError, MissingError, StreamSVMError, quote
from streamsvm.features.expansion import Expansion, expansion_of
from streamsvm.rows import Float64, Int32, Rows, row_count

FORMAT = 1
LINEAR, KERNEL = "linear", "kernel"


@dataclass(frozen=True, slots=True)
class Model:
    """A decision function for each problem: f_k(x) = weights[k, :-1].phi(x) + weights[k, -1].

    phi(x) is x as it is stored, or the kernel values of an expansion. With one row of weights, f > 0 means
    ``classes[1]``; with several the largest f names the class.
    """

    weights: Float64
    """Float64 (problems, features + 1); the last column belongs to the constant feature."""
    classes: tuple[str, ...]
    """The label each class code stands for."""
    provenance: JsonObject = field(default_factory=dict)
    """How the model was made, as plain JSON: settings, certificates, the store, how its files were read."""
    expansion: Expansion | None = None
    """The points and kernel of phi; None for a linear function."""

    @property
    def kind(self) -> str:
        """'linear' or 'kernel'."""
        return LINEAR if self.expansion is None else KERNEL

    @property
    def columns(self) -> int:
        """The number of columns of the rows it is applied to."""
        return self.weights.shape[1] - 1 if self.expansion is None else self.expansion.columns

    def decision(self, X: Rows) -> Float64:
        """Return the decision values (n, k) float64 of rows as stored; columns that CSR rows lack count as 0."""
        values = np.empty((row_count(X), len(self.weights)))
        if self.expansion is None:
            decision_values(X._replace(bias=1.0), self.weights, values)
        else:
            self.expansion.decision(X, self.weights, values)
        return values

    def codes(self, decision: Float64) -> Int32:
        """Return the index into ``classes`` (n,) for decision values (n, k)."""
        return outcomes_of(decision)

    def save(self, path: Path) -> None:
        """Write the model to a file, all of it or nothing. Raises StorageError."""
        header = {
            "format": FORMAT,
            "kind": self.kind,
            "classes": list(self.classes),
            "streamsvm": __version__,
            "provenance": self.provenance,
        }
        tensors = {"weights": np.ascontiguousarray(self.weights)}
        if self.expansion is not None:
            header["expansion"] = self.expansion.header()
            tensors |= self.expansion.tensors()
        text = json.dumps(header, sort_keys=True)
        sealed = {"header": text, "sha256": _seal(text, tensors)}
        durable.write_stream(path, pieces(tensors, sealed, by_name=True))


def outcomes_of(decision: Float64) -> Int32:
    """What decision values (n, k) say, (n,): with one column 1 where it is positive and else 0, with several the largest."""
    if decision.shape[1] == 1:
        return (decision[:, 0] > 0).astype(np.int32)
    return np.argmax(decision, axis=1).astype(np.int32)


def _seal(header: str, tensors: dict[str, Array]) -> str:
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
    header, tensors = _open(path)
    return _check(path, header, tensors)


def _open(path: Path) -> tuple[JsonObject, dict[str, Array]]:
    """The header and the arrays of a file whose seal is whole."""
    with opened(path, lambda why: _not_one(path, why)) as file:
        text = file.metadata() or {}
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a dict)
        header = text.get("header", "")
        if text.get("sha256") != _seal(header, tensors):
            raise DataError(f"{path} is damaged: its sha256 does not match", code="E-MODEL", hint="fit again")
        found = json.loads(header)
    if not isinstance(found, dict) or not isinstance(found.get("provenance", {}), dict):
        raise _unusable(path)
    return found, tensors


def _check(path: Path, header: JsonObject, tensors: dict[str, Array]) -> Model:
    kind = header.get("kind")
    if header.get("format") != FORMAT or kind not in (LINEAR, KERNEL):
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
        raise _unusable(path)
    expansion = None if kind == LINEAR else _expansion(path, header, tensors, weights.shape[1] - 1)
    return Model(weights, tuple(str(c) for c in classes), header.get("provenance", {}), expansion)


def _expansion(path: Path, header: JsonObject, tensors: dict[str, Array], points: int) -> Expansion:
    try:
        expansion = expansion_of(header["expansion"], tensors)
    except (StreamSVMError, KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise _unusable(path) from error
    if row_count(expansion.points) != points:
        raise _unusable(path)
    return expansion


def _not_one(path: Path, why: str) -> DataError:
    return DataError(f"{path} is not a model: {why}", code="E-MODEL", hint="fit again")


def _unusable(path: Path) -> DataError:
    return DataError(f"{path} does not hold a usable model", code="E-MODEL", hint="fit again")
