"""The rows of a pass that are nearest to the corner of the loss: those that are kept in memory to be solved for exactly,
while all others count as linear (``interior_point_out_of_core``).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from streamsvm.class_tags import saved_as
from streamsvm.compute.blocks import operators
from streamsvm.compute.blocks.operators import form_rows
from streamsvm.compute.passes.priority_sampling import keys_pass
from streamsvm.rows import Float32, Float64, Int64, Targets
from streamsvm.types import Block
from streamsvm.types.state import Smallest, Total, merge_states

SPARE = 2.0
"""Multiple of ``limit`` of the rows that may be held before some are thrown out."""
NEAREST_DISTANCE, TIE_SPREAD = 1e-9, 1e-2
"""key = (distance + the first) (1 + the second u), u in [0, 1) a random number of the row: of many equal rows some are
kept, instead of all or none."""


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
    """(n,) the distance, with a small random spread that breaks ties."""
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
    """The rows of a pass whose margins come nearest to the corner: those whose dual variables are between their bounds.

    There are up to ``limit`` of them; which ones does not depend on how rows were dealt to blocks or workers.
    """

    limit: int
    """Rows at most."""
    threshold: Smallest[float] = np.inf
    """Rows of this key or a larger one are out."""
    held: Total[int] = 0
    """Rows in ``parts``."""
    parts: Total[list[NearRows]] = field(default_factory=list)
    """Those kept so far, a part for each block."""

    def add(self, block: Block, distance: Float64, f: Float64, df: Float64) -> None:
        """Offer the rows of a block; ``distance`` (n,) is how far each is from the corner."""
        draw = np.empty(len(f))
        keys_pass(np.ones(len(f)), block.start, 0, draw)
        key = (distance + NEAREST_DISTANCE) * (1.0 + TIE_SPREAD * draw)
        chosen = (key < self.threshold) & (block.s > 0.0)
        if chosen.any():
            self.parts.append(NearRows(block.X, block.y, block.s, key, f, df, block.numbers).where(chosen))
            self.held += int(np.count_nonzero(chosen))
        if self.held > SPARE * self.limit:
            self._throw_out()

    def merge(self, other: NearestRows) -> None:
        """Join the rows that were kept of other rows: the nearest of both stay."""
        merge_states([self, other])
        self._throw_out()

    def take(self) -> NearRows | None:
        """Return the rows kept, sorted by number, and forget them; None where no row has a weight."""
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
