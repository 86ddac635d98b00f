"""Rows that a pass keeps in memory: all rows with a positive weight, or those nearest to the kink of the loss.

``Gatherer`` collects all rows for methods that solve in memory. ``NearestRows`` keeps a given number of rows for
``interior_point_out_of_core``, which treats the loss of all other rows as linear. Both concatenate the rows in the
order of their global numbers, so that the result does not depend on the order of the blocks.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from streamsvm.class_tags import saved_as
from streamsvm.compute.blocks import operators
from streamsvm.compute.blocks.curves import Curved
from streamsvm.compute.blocks.operators import form_rows
from streamsvm.compute.passes.priority_sampling import keys_pass
from streamsvm.errors import DataError
from streamsvm.rows import Float32, Float64, Int64, Targets
from streamsvm.types import Block
from streamsvm.types.state import Smallest, Total, merge_states

COPIES_WHILE_JOINED = 2
"""Number of copies of the rows in memory while they are concatenated."""
ARRAY_BYTES = 120
"""Bytes per row besides its entries: sign, weight, number, and the float64 arrays of the methods that solve in
memory."""


@saved_as("active_set.rows")
class GatheredRows(NamedTuple):
    """Rows with a positive weight; after ``Gatherer.join`` in the order of their global numbers."""

    X: Any
    y: Targets
    """(n,) +1 or -1, or targets of a regression."""
    s: Float32 | Float64
    """(n,) row weight times class weight."""
    row: Int64
    """(n,) global row numbers."""


@saved_as("active_set.gatherer")
@dataclass(slots=True)
class Gatherer:
    """The rows gathered so far in a pass."""

    parts: Total[list[GatheredRows]] = field(default_factory=list)
    """Copies of the rows, one part for each block."""

    def add(self, block: Block) -> None:
        """Copy the rows of a block with a positive weight."""
        chosen = block.s > 0.0
        if chosen.any():
            row = block.numbers[chosen]
            X = operators.keep_rows(block.X, chosen)
            self.parts.append(GatheredRows(X, block.y[chosen], block.s[chosen], row))

    def join(self) -> GatheredRows:
        """Return all rows in the order of their numbers, and release the parts. Raises DataError if no row has a
        positive weight.
        """
        parts, self.parts = self.parts, []
        if not parts:
            raise DataError("every row has weight 0", hint="give some rows a weight, or leave the weights out")
        y, s, row = (np.concatenate([part[k] for part in parts]) for k in (1, 2, 3))
        order = np.argsort(row, kind="stable")
        blocks = [part.X for part in parts]
        del parts
        X = form_rows(blocks, order)
        assert not isinstance(X, Curved)  # ``estimate_work`` of solvers that gather rows is None
        return GatheredRows(X, y[order], s[order], row[order])


CANDIDATE_FACTOR = 2.0
"""Candidates are reduced to ``limit`` when there are more than this many times ``limit``."""
NEAREST_DISTANCE = 1e-9
"""Added to the distance of each row to the kink, so that keys are positive."""
TIE_SPREAD = 1e-2
"""The key of a row is its distance times 1 + TIE_SPREAD u, u in [0, 1) being a random number of the row. Of many equal
rows, some are then kept, instead of all or none."""


@saved_as("interior_point.rows")
class NearRows(NamedTuple):
    """Rows with a positive weight; f and df (n,) are X w and X d of the segment."""

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
    """(n,) global row numbers."""

    def select(self, chosen: NDArray[np.bool_]) -> NearRows:
        """Return copies of the chosen rows."""
        X = operators.keep_rows(self.X, chosen)
        columns: list[Any] = [values[chosen] for values in self[1:]]
        return NearRows(X, *columns)


@saved_as("interior_point.nearest")
@dataclass(slots=True)
class NearestRows:
    """The ``limit`` rows of a pass whose margins are nearest to the kink; their dual variables may be between the
    bounds.

    The choice does not depend on the assignment of rows to blocks or workers.
    """

    limit: int
    """Maximum number of rows."""
    threshold: Smallest[float] = np.inf
    """Rows with this key or a larger one are not chosen."""
    held: Total[int] = 0
    """Number of rows in ``parts``."""
    parts: Total[list[NearRows]] = field(default_factory=list)
    """The candidates so far, one part for each block."""

    def add(self, block: Block, distance: Float64, f: Float64, df: Float64) -> None:
        """Add the rows of a block to the candidates; ``distance`` (n,): their distances to the kink."""
        draw = np.empty(len(f))
        keys_pass(np.ones(len(f)), block.start, 0, draw)
        key = (distance + NEAREST_DISTANCE) * (1.0 + TIE_SPREAD * draw)
        chosen = (key < self.threshold) & (block.s > 0.0)
        if chosen.any():
            self.parts.append(NearRows(block.X, block.y, block.s, key, f, df, block.numbers).select(chosen))
            self.held += int(np.count_nonzero(chosen))
        if self.held > CANDIDATE_FACTOR * self.limit:
            self._discard()

    def merge(self, other: NearestRows) -> None:
        """Add the candidates of another part of the pass, and keep the nearest of both."""
        merge_states([self, other])
        self._discard()

    def take(self) -> NearRows | None:
        """Return the chosen rows, sorted by number, and release the candidates; None if no row has a positive
        weight.
        """
        self._discard()
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

    def _discard(self) -> None:
        keys = np.concatenate([part.key for part in self.parts] or [np.empty(0)])
        if len(keys) > self.limit:
            self.threshold = min(self.threshold, float(np.partition(keys, self.limit)[self.limit]))
        for k, part in enumerate(self.parts):  # one part at a time, so that there are never two copies of all rows
            chosen = part.key < self.threshold
            self.parts[k] = part if chosen.all() else part.select(chosen)
        self.held = sum(len(part.key) for part in self.parts)
