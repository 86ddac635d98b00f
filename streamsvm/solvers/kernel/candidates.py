"""Rows put forward in a pass for the method that works in memory: never more than three times as many as it takes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from streamsvm.rows import Float64, Int64
from streamsvm.solvers.kernel.working_set import Pool, select, unite
from streamsvm.tags import saved_as

Choose = Callable[[Int64, Float64, int], Int64]
"""Places of so many rows, by their global numbers and v."""


@saved_as("kernel.candidates")
@dataclass(slots=True)
class Candidates:
    """``capacity``: rows that are taken in the end."""

    capacity: int
    parts: list[Pool] = field(default_factory=list)

    @property
    def size(self) -> int:
        """Rows put forward so far, in all parts."""
        return sum(part.size for part in self.parts)

    def add(self, rows: Pool, among: Int64, choose: Choose) -> None:
        """Offer the rows of a block whose places are ``among``, or those that are chosen from them."""
        if len(among) > self.capacity:
            among = np.sort(among[choose(rows.index[among], rows.v[among], self.capacity)])
        self.parts.append(select(rows, among))
        if self.size > 2 * self.capacity:
            self.taken(choose)

    def taken(self, choose: Choose) -> Pool:
        """What is taken of all that was offered; the rest is forgotten."""
        every = unite(self.parts)
        if every.size > self.capacity:
            every = select(every, np.sort(choose(every.index, every.v, self.capacity)))
        self.parts = [every]
        return every
