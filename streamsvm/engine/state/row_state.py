"""Per-row state of solvers: numbers that belong to rows, in memory if the plan allows it, else in a file.

The state of one chunk lies together, all problems after one another, so that a visit is one read and one write
whatever the number of problems.

A checkpoint must not be overwritten by what comes after it. The file has three places for every chunk: a changed chunk
goes to one that neither of the last two checkpoints refers to, so that a checkpoint is no more than the list of places
and costs a sync and not a copy. State that lives in memory is written there when a checkpoint is made, as far as it
has changed.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from crc32c import crc32c
from numpy.typing import NDArray

from streamsvm import durable
from streamsvm.aliases import Array, ByName
from streamsvm.engine.partition import Group
from streamsvm.errors import DataError
from streamsvm.types import Layout, RowState

PLACES = 3
NOWHERE = -1
"""The place of a chunk that has never been changed: its numbers are 0."""


@dataclass(slots=True)
class RowStates:
    """One named state for ``problems`` problems. ``file`` None: in memory, without checkpoints.

    ``load`` gives a chunk's (problems, rows) array, zeros at first; ``save`` puts it back. Where a row has several numbers the
    array is (problems, rows, width), here as wherever (problems, rows) is said.
    """

    state: RowState
    """What the numbers are called, and their type."""
    layout: Layout
    """Of the store the rows are in."""
    problems: int
    """How many problems have such a state."""
    file: Path | None = None
    """Where the numbers are, or go when a checkpoint is made."""
    resident: bool = True
    """Whether the numbers of all rows are in memory (False: those of one chunk)."""
    _values: Array = field(init=False)
    _starts: list[int] = field(init=False)
    _places: NDArray[np.int8] = field(init=False)
    _crcs: NDArray[np.uint32] = field(init=False)
    _changed: NDArray[np.bool_] = field(init=False)
    """Since the last checkpoint."""
    _taken: list[NDArray[np.int8]] = field(default_factory=list)
    """The places of the last two checkpoints."""
    _descriptor: int = -1

    def __post_init__(self) -> None:
        chunks = len(self.layout.chunks)
        self._starts = np.concatenate([[0], np.cumsum(self.layout.chunks)]).tolist()
        self._places, self._crcs = np.full(chunks, NOWHERE, np.int8), np.zeros(chunks, np.uint32)
        self._changed = np.zeros(chunks, bool)
        items = (self.layout.rows if self.resident else self.layout.largest_chunk) * self._numbers
        self._values = np.zeros(items, self.state.dtype)
        if self.file is not None:
            self._descriptor = durable.open_state(self.file, 0 if self.resident else self._file_bytes)

    def load(self, chunk: int) -> Array:
        """The state of a chunk's rows; a view in memory, or the one buffer that is filled from the file."""
        view = self._view(chunk)
        if not self.resident:
            self._read(chunk, view)
        return self._shaped(chunk, view)

    def save(self, chunk: int, values: Array) -> None:
        """Take back what ``load`` gave, (problems, rows), after a visit has changed it."""
        if self.resident:
            self._changed[chunk] = True
        else:
            self._write(chunk, values.reshape(-1))

    def copied(self, chunk: int) -> Array:
        """Return the state of a chunk's rows, (problems, rows), in an array of its own. Any thread may ask. Raises
        DataError.
        """
        if self.resident:
            return self._shaped(chunk, self._view(chunk)).copy()
        values = np.empty(self.layout.chunks[chunk] * self._numbers, self.state.dtype)
        self._read(chunk, values)
        return self._shaped(chunk, values)

    def put(self, chunk: int, values: Array) -> None:
        """Take the state of a chunk's rows, (problems, rows), from another array; one thread at a time."""
        if self.resident:
            self._view(chunk)[:] = values.reshape(-1)
        self.save(chunk, values)

    def checkpoint(self) -> ByName:
        """Make a checkpoint of the present numbers, durably; returns what ``restore`` comes back to them with."""
        assert self.file is not None
        if self.resident:
            for chunk in np.flatnonzero(self._changed).tolist():
                self._changed[chunk] = False
                self._write(chunk, self._view(chunk))
        durable.sync_state(self._descriptor, self.file)
        self._changed[:] = False
        self._taken = [self._places.copy(), *self._taken[:1]]
        return {"places": self._places.copy(), "crcs": self._crcs.copy()}

    def restore(self, saved: ByName | None, older: ByName | None = None) -> None:
        """Come back to a checkpoint; ``older`` is another one that must stay as it is. Raises DataError, KeyError."""
        assert self.file is not None
        saved = saved or {}
        self._places, self._crcs = saved["places"].astype(np.int8), saved["crcs"].astype(np.uint32)
        self.keep({"places": self._places.copy()}, older)
        if self.resident:
            for chunk in range(len(self._places)):
                self._read(chunk, self._view(chunk))

    def keep(self, *checkpoints: ByName | None) -> None:
        """Leave what checkpoints, the newest first, refer to as it is. Raises DataError, KeyError."""
        self._taken = [one["places"].astype(np.int8) for one in checkpoints if one is not None]
        if any(p.shape != self._changed.shape or p.min() < NOWHERE or p.max() >= PLACES for p in self._taken):
            raise self._damaged("does not belong to its checkpoint")

    def close(self) -> None:
        """Give the descriptor back; the file stays."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def _view(self, chunk: int) -> Array:
        items = self.layout.chunks[chunk] * self._numbers
        start = self._starts[chunk] * self._numbers if self.resident else 0
        return self._values[start : start + items]

    def _shaped(self, chunk: int, values: Array) -> Array:
        return values.reshape(self.state.shape(self.problems, self.layout.chunks[chunk]))

    @property
    def _numbers(self) -> int:
        """Of one row, all problems together."""
        return self.problems * self.state.width

    def _read(self, chunk: int, into: Array) -> None:
        place = int(self._places[chunk])
        if place == NOWHERE:
            into[:] = 0
            return
        assert self.file is not None
        durable.read_at(self._descriptor, into, self._offset(chunk, place), self.file)
        if crc32c(into.data) != self._crcs[chunk]:
            raise self._damaged(f"is damaged at chunk {chunk}")

    def _write(self, chunk: int, values: Array) -> None:
        """Put numbers where no checkpoint is harmed; nothing is written where nothing has changed."""
        place = int(self._places[chunk])
        if place == NOWHERE and not values.view(np.uint8).any():
            return
        if not self._changed[chunk]:
            place = next(p for p in range(PLACES) if all(taken[chunk] != p for taken in self._taken))
        assert self.file is not None
        durable.write_at(self._descriptor, values, self._offset(chunk, place), self.file)
        self._places[chunk], self._crcs[chunk] = place, crc32c(values.data)
        self._changed[chunk] = not self.resident

    def _offset(self, chunk: int, place: int) -> int:
        items = place * self.layout.rows + self._starts[chunk]
        return items * self.problems * self.state.nbytes

    @property
    def _file_bytes(self) -> int:
        return self.layout.rows * self.problems * self.state.nbytes

    def _damaged(self, what: str) -> DataError:
        hint = "start again with --overwrite in place of --resume"
        return DataError(f"the per-row state in {self.file} {what}", code="E-CHECKPOINT", hint=hint)


@dataclass(frozen=True, slots=True)
class GroupRowStates:
    """The per-row state of this process as the tasks of a fit come to it (``work.GroupState``).

    A task works on a copy. What it leaves is put back with its result, so that a checkpoint has both or neither.
    """

    rows: RowStates
    """Where the numbers are."""

    @property
    def state(self) -> RowState:
        """What the numbers are called, and their type."""
        return self.rows.state

    def load(self, group: Group, _version: int) -> Array:
        """Return a copy of the numbers of a group's rows, (problems, rows of the group). Raises DataError."""
        copies = [self.rows.copied(chunk) for chunk in group.chunks]
        return copies[0] if len(copies) == 1 else np.concatenate(copies, axis=1)

    def leave(self, _group: Group, _version: int, values: Array, _drop: tuple[int, ...]) -> Array:
        """Return what is to be put back."""
        return values

    def take(self, group: Group, values: Array) -> None:
        """Put back what a task has left, (problems, rows of the group)."""
        ends = np.cumsum([0, *(self.rows.layout.chunks[chunk] for chunk in group.chunks)]).tolist()
        for k, chunk in enumerate(group.chunks):
            self.rows.put(chunk, np.ascontiguousarray(values[:, ends[k] : ends[k + 1]]))
