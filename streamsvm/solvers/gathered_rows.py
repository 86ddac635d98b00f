"""All rows with a positive weight, gathered block by block in a pass, and concatenated in the order of their
numbers.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from streamsvm.class_tags import saved_as
from streamsvm.compute.blocks import operators
from streamsvm.compute.blocks.operators import form_rows
from streamsvm.errors import DataError
from streamsvm.rows import Float32, Float64, Int64, Rows, Targets
from streamsvm.types import Block
from streamsvm.types.state import Total

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
        X: Rows = form_rows(blocks, order)
        return GatheredRows(X, y[order], s[order], row[order])
