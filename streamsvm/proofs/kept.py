"""Keep in a model what proves its answers: the enclosures of its decision functions, and what later changes of rows need.

The mathematics is in ``streamsvm.proofs.enclosure`` and ``streamsvm.proofs.row_changes``; here are the bytes, and rows as the problem sees them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from streamsvm.compute.passes.enclosure import UNIT
from streamsvm.errors import DataError
from streamsvm.proofs.enclosure import INTERVAL_ROUNDING, TILE, Enclosure, lengths_of
from streamsvm.proofs.row_changes import ChangeableProblem, decode_changeable
from streamsvm.rows import CSR, Dense, Float32, Float64, Rows, row_count, row_slice, to_matrix
from streamsvm.type_aliases import Array, JsonObject

TILE_BYTES = 1 << 20
"""Bytes, at most, of the rows of a tile to which enclosures are applied. Larger arrays are mapped anew for every tile, which takes longer than the products."""
MOST_ROOT_BYTES = 16 << 20
"""Bytes, at most, of the matrices of all problems in a model; with more, each becomes the ball around it."""


@dataclass(frozen=True, slots=True, eq=False)
class Enclosures:
    """The enclosures of all decision functions of a linear model, for rows as they are stored.

    A row of the solver is (x_j - shift_j) scale_j, computed in float64, and a constant feature of value ``bias``.
    """

    parts: tuple[Enclosure, ...]
    bias: float
    shift: Float32 | None = None
    """(d,); None: rows are not scaled."""
    scale: Float32 | None = None
    """(d,)."""
    changes: tuple[ChangeableProblem, ...] = ()
    """What rows can be removed from and added to, of each decision function; empty: nothing is kept for that."""

    def intervals(self, X: Rows) -> tuple[Float64, Float64]:
        """Return the least and the largest decision values (n, k) of the exact optima for rows X (n, d)."""
        rows, count = row_count(X), len(self.parts)
        if (
            isinstance(X, CSR)
            and all(part.root is None for part in self.parts)
            and (self.shift is None or not self.shift.any())
        ):
            return self._sparse_intervals(X)
        low, high = np.empty((rows, count)), np.empty((rows, count))
        step = max(1, min(TILE, TILE_BYTES // (8 * len(self.parts[0].center))))
        centers = np.ascontiguousarray(np.array([part.center for part in self.parts]).T)
        for start in range(0, rows, step):
            stop = min(rows, start + step)
            middle, single = self._middle(row_slice(X, start, stop), centers)
            for k, part in enumerate(self.parts):
                low[start:stop, k], high[start:stop, k] = part.interval_around(middle[:, k], single)
        return low, high

    def _middle(self, X: Rows, centers: Float64) -> tuple[Float64, Float32]:
        """Return x.center (n, k) of rows for all centers (p, k), and the rows in float32 (n, p)."""
        if isinstance(X, Dense) and self.shift is None:
            single = np.empty((len(X.values), len(centers)), np.float32)
            single[:, :-1], single[:, -1] = X.values, self.bias
            return X.values.astype(np.float64) @ centers[:-1] + self.bias * centers[-1], single
        features = self.features(X)
        with np.errstate(over="ignore"):
            return features @ centers, features.astype(np.float32)

    def _sparse_intervals(self, X: CSR) -> tuple[Float64, Float64]:
        """Return the intervals of balls, at the cost of the entries that are stored."""
        rows, data = row_count(X), X.data.astype(np.float64)
        number = np.repeat(np.arange(rows), np.diff(X.indptr))
        if self.scale is not None:
            data *= self.scale[X.indices]
        lengths = np.sqrt(np.bincount(number, data * data, rows) + self.bias * self.bias)
        rounding = INTERVAL_ROUNDING + float(np.diff(X.indptr).max(initial=0)) * UNIT  # rows may have very many entries
        ends = []
        for part in self.parts:
            middle = np.bincount(number, data * part.center[X.indices], rows) + self.bias * part.center[-1]
            half = part.slack * lengths * (1.0 + rounding)
            ends.append((middle - half, middle + half))
        return np.array([low for low, _ in ends]).T, np.array([high for _, high in ends]).T

    @property
    def nbytes(self) -> int:
        """Bytes of all matrices and centers."""
        roots = sum(part.center.nbytes + (0 if part.root is None else part.root.nbytes) for part in self.parts)
        return roots + sum(one.nbytes for one in self.changes)

    def features(self, X: Rows) -> Float64:
        """Return rows as the problem sees them, (n, d + 1) float64."""
        columns = len(self.parts[0].center) - 1
        return exact_features(X, columns, self.bias, self.shift, self.scale)

    def select(self, problems: Sequence[int]) -> Enclosures:
        """Return the enclosures of some decision functions."""
        changes = tuple(self.changes[k] for k in problems) if self.changes else ()
        return replace(self, parts=tuple(self.parts[k] for k in problems), changes=changes)

    def coefficients(self) -> tuple[Float64, Float64]:
        """Return the least and the largest coefficients (k, d) of the exact optima, in the units of the columns."""
        d = len(self.parts[0].center) - 1
        scale = np.ones(d) if self.scale is None else self.scale.astype(np.float64)
        ends = []
        for part in self.parts:
            half = np.full(d, part.slack)
            if part.root is not None:
                half += part.radius * lengths_of(part.root.T)[:-1]
            half *= 1.0 + INTERVAL_ROUNDING
            middle = part.center[:-1]
            pad = 4 * UNIT * (np.abs(middle) + half) * scale
            ends.append(((middle - half) * scale - pad, (middle + half) * scale + pad))
        return np.array([low for low, _ in ends]), np.array([high for _, high in ends])

    def header(self) -> JsonObject:
        """Return the numbers as plain JSON."""
        parts = [{"radius": part.radius, "slack": part.slack} for part in self.parts]
        kept = {"changes": [one.header() for one in self.changes]} if self.changes else {}
        return {"bias": self.bias, "parts": parts, **kept}

    def tensors(self) -> dict[str, Array]:
        """Return the arrays, by name; of matrices the lower triangles, one after the other."""
        found: dict[str, Array] = {"enclosure.center": np.array([part.center for part in self.parts])}
        if self.shift is not None and self.scale is not None:
            found |= {"enclosure.shift": self.shift, "enclosure.scale": self.scale}
        for k, part in enumerate(self.parts):
            if part.root is not None:
                found[f"enclosure.root.{k}"] = part.root[np.tril_indices(len(part.root))]
        for k, one in enumerate(self.changes):
            found |= {f"changes.{k}.{name}": array for name, array in one.tensors().items()}
        return found


def decode_enclosures(header: Any, tensors: dict[str, Array], problems: int, columns: int) -> Enclosures:
    """Return the enclosures of a file. Raises DataError, KeyError, TypeError, ValueError for what is none."""
    center, p = tensors["enclosure.center"], columns + 1
    if center.dtype != np.float64 or center.shape != (problems, p) or len(header["parts"]) != problems:
        raise DataError("the enclosure is not usable")
    scaling: list[Float32 | None] = [tensors.get(f"enclosure.{name}") for name in ("shift", "scale")]
    for array in scaling:
        if array is not None and (array.dtype != np.float32 or array.shape != (columns,)):
            raise DataError("the enclosure is not usable")
    parts = []
    for k, numbers in enumerate(header["parts"]):
        root, packed = None, tensors.get(f"enclosure.root.{k}")
        if packed is not None:
            if packed.dtype != np.float64 or packed.shape != (p * (p + 1) // 2,):
                raise DataError("the enclosure is not usable")
            root = np.zeros((p, p))
            root[np.tril_indices(p)] = packed
        part = Enclosure(center[k], root, float(numbers["radius"]), float(numbers["slack"]))
        if not (part.radius >= 0.0 and part.slack >= 0.0):
            raise DataError("the enclosure is not usable")
        parts.append(part)
    changes = [
        decode_changeable(one, {name: tensors[f"changes.{k}.{name}"] for name in ("vectors", "matrices")}, columns)
        for k, one in enumerate(header.get("changes", ()))
    ]
    if len(changes) not in (0, problems):
        raise DataError("what is kept for changes of rows is not usable")
    found = Enclosures(tuple(parts), float(header["bias"]), scaling[0], scaling[1], tuple(changes))
    if not all(np.isfinite(array).all() for array in found.tensors().values()) or (scaling[0] is None) != (
        scaling[1] is None
    ):
        raise DataError("the enclosure is not usable")
    return found


def exact_features(
    X: Rows, columns: int, bias: float, shift: Float32 | None = None, scale: Float32 | None = None
) -> Float64:
    """Return stored rows as float64 (n, columns + 1), scaled, with the constant feature; columns that CSR rows lack are 0."""
    features = np.empty((row_count(X), columns + 1))
    features[:, :-1] = to_matrix(X, columns) if isinstance(X, CSR) else X.values
    if shift is not None and scale is not None:
        features[:, :-1] -= shift
        features[:, :-1] *= scale
    features[:, -1] = bias
    return features


def limit_bytes(parts: Sequence[Enclosure]) -> list[Enclosure]:
    """Return the enclosures, as balls if their matrices together are larger than ``MOST_ROOT_BYTES``."""
    nbytes = sum(4 * len(part.center) * (len(part.center) + 1) for part in parts if part.root is not None)
    if nbytes <= MOST_ROOT_BYTES:
        return list(parts)
    return [_as_ball(part) for part in parts]


def _as_ball(part: Enclosure) -> Enclosure:
    """Return the ball around an enclosure: |root x| <= ||root|| ||x||."""
    if part.root is None:
        return part
    squares = part.root.T @ part.root
    largest = float(np.linalg.eigvalsh(squares)[-1]) + 4 * len(squares) * UNIT * float(np.linalg.norm(part.root)) ** 2
    return Enclosure(
        part.center, None, 0.0, part.slack + part.radius * float(np.sqrt(max(largest, 0.0))) * (1.0 + 1e-9)
    )
