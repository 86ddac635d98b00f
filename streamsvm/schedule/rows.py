"""Per-row state of solvers: numbers that belong to rows, in memory if the plan allows it, else in a file.

The state of one chunk lies together, all problems after one another, so that a visit is one read and one write
whatever the number of problems.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamsvm import durable
from streamsvm.types import Layout, RowState


@dataclass(slots=True)
class RowStates:
    """One named state for ``problems`` problems; ``sidecar`` None keeps it in memory.

    ``load`` gives a chunk's (problems, rows) array, zeros at first; ``save`` puts it back.
    """

    state: RowState
    layout: Layout
    problems: int
    sidecar: Path | None = None
    _values: NDArray[Any] = field(default_factory=lambda: np.empty(0))
    _descriptor: int = -1
    _starts: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._starts = np.concatenate([[0], np.cumsum(self.layout.chunks)]).tolist()
        items = self.layout.rows * self.problems
        if self.sidecar is None:
            self._values = np.zeros(items, self.state.dtype)
        else:
            self._descriptor = durable.open_scratch(self.sidecar, items * self._values_size())
            largest = self.layout.largest_chunk * self.problems
            self._values = np.empty(largest, self.state.dtype)

    def load(self, chunk: int) -> NDArray[Any]:
        """The state of a chunk's rows; a view in memory, or the one buffer that is filled from the file."""
        items = self.layout.chunks[chunk] * self.problems
        if self.sidecar is None:
            start = self._starts[chunk] * self.problems
            view = self._values[start : start + items]
        else:
            view = self._values[:items]
            durable.read_at(self._descriptor, view, self._offset(chunk))
        return view.reshape(self.problems, -1)

    def save(self, chunk: int, values: NDArray[Any]) -> None:
        """Keep what ``load`` gave and a visit changed."""
        if self.sidecar is not None:
            durable.write_at(self._descriptor, values.reshape(-1), self._offset(chunk))

    def close(self) -> None:
        """Give the descriptor back and remove the file."""
        if self.sidecar is not None and self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1
            self.sidecar.unlink(missing_ok=True)

    def _offset(self, chunk: int) -> int:
        return self._starts[chunk] * self.problems * self._values_size()

    def _values_size(self) -> int:
        return np.dtype(self.state.dtype).itemsize
