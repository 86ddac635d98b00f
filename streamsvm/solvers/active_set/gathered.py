"""All rows of a problem that count, gathered block by block in a pass and joined by their numbers when it ends."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from streamsvm.compute.blocks import operators
from streamsvm.compute.blocks.operators import form_rows
from streamsvm.errors import DataError
from streamsvm.rows import Float32, Float64, Int64, Rows, Targets
from streamsvm.tags import saved_as
from streamsvm.types import Block

JOINING = 2
"""Times the rows are held while they are joined."""
ARRAYS = 120
"""Bytes a row beside its entries: sign, weight, number, and the float64 arrays of the methods that solve in memory."""


@saved_as("active_set.rows")
class GatheredRows(NamedTuple):
    """Rows of weight above 0; after ``joined`` in the order of their global numbers."""

    X: Any
    """The rows, dense or CSR."""
    y: Targets
    """(n,) +1 or -1, or numbers."""
    s: Float32 | Float64
    """(n,) row weight times class weight."""
    row: Int64
    """(n,) global numbers."""


@saved_as("active_set.gatherer")
@dataclass(slots=True)
class Gatherer:
    """What was gathered so far."""

    parts: list[GatheredRows] = field(default_factory=list)
    """One a block, copied."""

    def add(self, block: Block) -> None:
        """Copy the rows of a block that have a weight."""
        chosen = block.s > 0.0
        if chosen.any():
            row = block.numbers[chosen]
            X = operators.keep_rows(block.X, chosen)
            self.parts.append(GatheredRows(X, block.y[chosen], block.s[chosen], row))

    def merge(self, other: Gatherer) -> None:
        """Add what another worker gathered."""
        self.parts = self.parts + other.parts

    def joined(self) -> GatheredRows:
        """Return all rows by number; nothing stays here. Raises DataError where no row has a weight."""
        parts, self.parts = self.parts, []
        if not parts:
            raise DataError("every row has weight 0", hint="give some rows a weight, or leave the weights out")
        y, s, row = (np.concatenate([part[k] for part in parts]) for k in (1, 2, 3))
        order = np.argsort(row, kind="stable")
        blocks = [part.X for part in parts]
        del parts
        X: Rows = form_rows(blocks, order)
        return GatheredRows(X, y[order], s[order], row[order])
