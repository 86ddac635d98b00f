"""The rows of a pass whose margins come nearest to the corner of the loss: those whose dual variables are between their bounds."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from streamsvm.compute.blocks import operators
from streamsvm.compute.blocks.operators import form_rows
from streamsvm.compute.passes.newton import keys_pass
from streamsvm.rows import Float32, Float64, Int64, Targets
from streamsvm.tags import saved_as
from streamsvm.types import Block

SPARE = 2.0
"""Times as many rows may be held before some are thrown out."""
LEAST, SPREAD = 1e-9, 1e-2
"""Distances, this added, are multiplied by up to 1 + SPREAD by the row's draw: of rows that are alike some are taken."""


@saved_as("interior_point.rows")
class NearRows(NamedTuple):
    """Rows of weight above 0; f and df (n,) are X w and X d of the segment."""

    X: Any
    """The rows, dense or CSR."""
    y: Targets
    """(n,) +1 or -1, or numbers."""
    s: Float32 | Float64
    """(n,) row weight times class weight."""
    key: Float64
    """(n,) the distance, spread."""
    f: Float64
    """(n,)."""
    df: Float64
    """(n,)."""
    row: Int64
    """(n,) global numbers."""

    def where(self, chosen: NDArray[np.bool_]) -> NearRows:
        """Return some of the rows, copied."""
        X = operators.keep_rows(self.X, chosen)
        columns: list[Any] = [values[chosen] for values in self[1:]]
        return NearRows(X, *columns)


@saved_as("interior_point.nearest")
@dataclass(slots=True)
class NearestRows:
    """Up to ``limit`` rows; which ones does not depend on how they were dealt to blocks or workers."""

    limit: int
    """Rows at most."""
    threshold: float = np.inf
    """Rows of this key or a larger one are out."""
    held: int = 0
    """Rows in ``parts``."""
    parts: list[NearRows] = field(default_factory=list)
    """Those kept so far, a part for each block."""

    def clear(self) -> None:
        """A pass begins."""
        self.threshold, self.held, self.parts = np.inf, 0, []

    def add(self, block: Block, distance: Float64, f: Float64, df: Float64) -> None:
        """Offer the rows of a block that are so far (n,) from the corner."""
        draw = np.empty(len(f))
        keys_pass(np.ones(len(f)), block.start, 0, draw)
        key = (distance + LEAST) * (1.0 + SPREAD * draw)
        chosen = (key < self.threshold) & (block.s > 0.0)
        if chosen.any():
            self.parts.append(NearRows(block.X, block.y, block.s, key, f, df, block.numbers).where(chosen))
            self.held += int(np.count_nonzero(chosen))
        if self.held > SPARE * self.limit:
            self._throw_out()

    def merge(self, other: NearestRows) -> None:
        """Join the rows another worker kept of other rows."""
        self.threshold = min(self.threshold, other.threshold)
        self.parts = self.parts + other.parts
        self._throw_out()

    def taken(self) -> NearRows | None:
        """Return the rows by number, and keep nothing; None where no row has a weight."""
        self._throw_out()
        parts, self.parts = self.parts, []
        if not self.held:
            return None
        parts = [part for part in parts if len(part.key)]
        y, s, key, f, df, row = (np.concatenate([part[k] for part in parts]) for k in range(1, len(NearRows._fields)))
        order = np.argsort(row, kind="stable")
        blocks = [part.X for part in parts]
        del parts
        X = form_rows(blocks, order)
        return NearRows(X, *(values[order] for values in (y, s, key, f, df, row)))

    def _throw_out(self) -> None:
        keys = np.concatenate([part.key for part in self.parts] or [np.empty(0)])
        if len(keys) > self.limit:
            self.threshold = min(self.threshold, float(np.partition(keys, self.limit)[self.limit]))
        for k, part in enumerate(self.parts):  # one by one: never two copies of all
            chosen = part.key < self.threshold
            self.parts[k] = part if chosen.all() else part.where(chosen)
        self.held = sum(len(part.key) for part in self.parts)
