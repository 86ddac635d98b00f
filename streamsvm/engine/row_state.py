"""Store the per-row state of solvers (dual variables) in memory, in one file, or in a file for each group of chunks.

``RowStates`` is for fits in one process. The numbers of one chunk are contiguous, all problems one after another, so
that a visit is one read and one write. Later writes must not overwrite a checkpoint. Therefore the file has three slots
for every chunk, and a changed chunk is written to a slot to which neither of the last two checkpoints refers. A
checkpoint is then a list of slots, and costs a sync instead of a copy. If the numbers are in memory, the chunks that
have changed are written to the file when a checkpoint is made.

``GroupStateFiles`` is for fits on a cluster: one file for each group, state and pass, in a folder that all workers see or below a URL.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from crc32c import crc32c
from numpy.typing import NDArray

from streamsvm import durable
from streamsvm.engine.partition import Group, spans_in_group
from streamsvm.engine.shared_files import (
    NOT_SHARED_HINT,
    Place,
    join_place,
    read_shared,
    remove_shared,
    write_shared,
)
from streamsvm.errors import DataError
from streamsvm.type_aliases import Array, ValuesByName
from streamsvm.types import Layout, RowState

SLOTS = 3
"""Number of slots for each chunk in a file."""
NO_SLOT = -1
"""Slot number of a chunk that was never changed: its numbers are 0."""
IN_STATES = "in_states"
"""Key in checkpoints of one process: the fields that only ``finish`` reads (``Solver.driver_fields``) are in the
states, not in files."""
IN_ONE_FILE = "places"
"""Key in checkpoints of one process: slots of per-row state in one file (``RowStates``)."""
CRC_BYTES = 4
"""Bytes at the end of a file: the crc32c of the bytes before, little-endian."""


@dataclass(slots=True)
class RowStates:
    """The per-row state with one name, for ``problems`` problems. ``file`` None: in memory, without checkpoints.

    ``load`` returns a chunk's (problems, rows) array, zeros at first; ``save`` stores it after a visit. If a row has
    several numbers, (problems, rows) stands for (problems, rows, width) in this module.
    """

    state: RowState
    """Name and dtype of the numbers."""
    layout: Layout
    """Layout of the store."""
    problems: int
    """Number of problems."""
    file: Path | None = None
    """File of the numbers; if the numbers are in memory, the file of their checkpoints."""
    resident: bool = True
    """Whether the numbers of all rows are in memory; else only those of one chunk."""
    _values: Array = field(init=False)
    _starts: list[int] = field(init=False)
    _slots: NDArray[np.int8] = field(init=False)
    _crcs: NDArray[np.uint32] = field(init=False)
    _changed: NDArray[np.bool_] = field(init=False)
    """Whether a chunk has changed since the last checkpoint."""
    _protected: list[NDArray[np.int8]] = field(default_factory=list)
    """Slots of the last two checkpoints, which must not be overwritten."""
    _descriptor: int = -1

    def __post_init__(self) -> None:
        chunks = len(self.layout.chunks)
        self._starts = self.layout.starts
        self._slots, self._crcs = np.full(chunks, NO_SLOT, np.int8), np.zeros(chunks, np.uint32)
        self._changed = np.zeros(chunks, bool)
        items = (self.layout.rows if self.resident else self.layout.largest_chunk) * self._numbers_per_row
        self._values = np.zeros(items, self.state.dtype)
        if self.file is not None:
            self._descriptor = durable.open_state(self.file, 0 if self.resident else self._file_bytes)

    def load(self, chunk: int) -> Array:
        """Return the numbers of a chunk's rows: a view into memory, or the buffer, filled from the file."""
        view = self._view(chunk)
        if not self.resident:
            self._read(chunk, view)
        return self._reshape(chunk, view)

    def save(self, chunk: int, values: Array) -> None:
        """Save the array that ``load`` returned, (problems, rows), after a visit has changed it."""
        if self.resident:
            self._changed[chunk] = True
        else:
            self._write(chunk, values.reshape(-1))

    def copy_chunk(self, chunk: int) -> Array:
        """Return a copy of the numbers of a chunk's rows, (problems, rows). Any thread may call it. Raises
        DataError.
        """
        if self.resident:
            return self._reshape(chunk, self._view(chunk)).copy()
        values = np.empty(self.layout.chunks[chunk] * self._numbers_per_row, self.state.dtype)
        self._read(chunk, values)
        return self._reshape(chunk, values)

    def put(self, chunk: int, values: Array) -> None:
        """Set the numbers of a chunk's rows, (problems, rows). Only one thread at a time may call it."""
        if self.resident:
            self._view(chunk)[:] = values.reshape(-1)
        self.save(chunk, values)

    def checkpoint(self) -> ValuesByName:
        """Write the current numbers to disk and return the record from which ``restore`` restores them."""
        assert self.file is not None
        if self.resident:
            for chunk in np.flatnonzero(self._changed).tolist():
                self._changed[chunk] = False
                self._write(chunk, self._view(chunk))
        durable.sync_state(self._descriptor, self.file)
        self._changed[:] = False
        self._protected = [self._slots.copy(), *self._protected[:1]]
        return {"places": self._slots.copy(), "crcs": self._crcs.copy()}

    def restore(self, saved: ValuesByName | None, older: ValuesByName | None = None) -> None:
        """Restore the numbers of checkpoint ``saved``; ``older`` is a second one that must stay valid. Raises
        DataError, KeyError.
        """
        assert self.file is not None
        saved = saved or {}
        self._slots, self._crcs = saved["places"].astype(np.int8), saved["crcs"].astype(np.uint32)
        self.protect({"places": self._slots.copy()}, older)
        if self.resident:
            for chunk in range(len(self._slots)):
                self._read(chunk, self._view(chunk))

    def protect(self, *checkpoints: ValuesByName | None) -> None:
        """Protect the slots of some checkpoints (newest first) from being overwritten. Raises DataError, KeyError."""
        self._protected = [record["places"].astype(np.int8) for record in checkpoints if record is not None]
        if any(s.shape != self._changed.shape or s.min() < NO_SLOT or s.max() >= SLOTS for s in self._protected):
            raise self._damage_error("does not belong to its checkpoint")

    def close(self) -> None:
        """Close the file."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def _view(self, chunk: int) -> Array:
        items = self.layout.chunks[chunk] * self._numbers_per_row
        start = self._starts[chunk] * self._numbers_per_row if self.resident else 0
        return self._values[start : start + items]

    def _reshape(self, chunk: int, values: Array) -> Array:
        return values.reshape(self.state.shape(self.problems, self.layout.chunks[chunk]))

    @property
    def _numbers_per_row(self) -> int:
        """How many numbers a row has, for all problems together."""
        return self.problems * self.state.width

    def _read(self, chunk: int, into: Array) -> None:
        slot = int(self._slots[chunk])
        if slot == NO_SLOT:
            into[:] = 0
            return
        assert self.file is not None
        durable.read_at(self._descriptor, into, self._offset(chunk, slot), self.file)
        if crc32c(into.data) != self._crcs[chunk]:
            raise self._damage_error(f"is damaged at chunk {chunk}")

    def _write(self, chunk: int, values: Array) -> None:
        """Write the numbers of a chunk to a slot that no checkpoint needs. Write nothing if they are zeros and the chunk
        never had other numbers.
        """
        slot = int(self._slots[chunk])
        if slot == NO_SLOT and not values.view(np.uint8).any():
            return
        if not self._changed[chunk]:
            slot = next(s for s in range(SLOTS) if all(slots[chunk] != s for slots in self._protected))
        assert self.file is not None
        durable.write_at(self._descriptor, values, self._offset(chunk, slot), self.file)
        self._slots[chunk], self._crcs[chunk] = slot, crc32c(values.data)
        self._changed[chunk] = not self.resident

    def _offset(self, chunk: int, slot: int) -> int:
        items = slot * self.layout.rows + self._starts[chunk]
        return items * self.problems * self.state.nbytes

    @property
    def _file_bytes(self) -> int:
        return self.layout.rows * self.problems * self.state.nbytes

    def _damage_error(self, what: str) -> DataError:
        hint = "start again with --overwrite in place of --resume"
        return DataError(f"the per-row state in {self.file} {what}", code="E-CHECKPOINT", hint=hint)


@dataclass(frozen=True, slots=True)
class GroupRowStates:
    """Gives tasks access to the per-row state of this process (``group_tasks.GroupState``).

    A task works on a copy. The changed copy is stored together with the result of the task, so that a checkpoint has
    both or neither.
    """

    rows: RowStates

    @property
    def state(self) -> RowState:
        """Name and dtype of the numbers."""
        return self.rows.state

    def load(self, group: Group, _version: int) -> Array:
        """Return a copy of the numbers of a group's rows, (problems, rows of the group). Raises DataError."""
        copies = [self.rows.copy_chunk(chunk) for chunk in group.chunks]
        return copies[0] if len(copies) == 1 else np.concatenate(copies, axis=1)

    def save_or_return(self, _group: Group, _version: int, values: Array, _drop: tuple[int, ...]) -> Array:
        """Return the numbers, which the driver stores with the result."""
        return values

    def store(self, group: Group, values: Array) -> None:
        """Store the numbers of a group after a task, (problems, rows of the group)."""
        for chunk, span in spans_in_group(self.rows.layout, group).items():
            self.rows.put(chunk, np.ascontiguousarray(values[:, span]))


@dataclass(frozen=True, slots=True)
class ProcessRows:
    """Per-row state in this process; restores checkpoints of one process or of a cluster
    (``fit_state.RowStateStore``).
    """

    states: GroupRowStates
    groups: list[Group]
    """All groups of the fit."""
    shared: Place
    """Where a run on a cluster has left its files."""

    @property
    def layout(self) -> Layout:
        """Layout of the training store."""
        return self.states.rows.layout

    def checkpoint(self) -> ValuesByName:
        """Write the current numbers to disk and return the record from which ``restore`` restores them."""
        return self.states.rows.checkpoint()

    def restore(self, saved: ValuesByName | None, older: ValuesByName | None = None) -> None:
        """Restore the numbers of checkpoint ``saved``; ``older`` is a second one that must stay valid. Raises
        DataError, KeyError.
        """
        rows, older = self.states.rows, older if older is not None and IN_ONE_FILE in older else None
        if saved is None or IN_ONE_FILE in saved:
            rows.restore(saved, older)
            return
        rows.protect(older)
        files = GroupStateFiles(self.shared, rows.state, rows.problems)
        for group in self.groups:
            self.states.store(group, files.load(group, int(saved["version"])))

    def load(self, chunk: int) -> Array:
        """Return the numbers of a chunk's rows, (problems, rows of the chunk). Raises DataError."""
        return self.states.rows.load(chunk)

    def close(self) -> None:
        """Close the files."""
        self.states.rows.close()


@dataclass(slots=True)
class Versions:
    """Version number of the files of a cluster fit: the number of closed passes. Version 0 has no files."""

    version: int = 0
    """Version written by the last closed pass."""
    must_write_files: bool = False
    """Whether files of ``version`` must be written before the next pass, because the resumed checkpoint was made by one
    process."""
    _on_disk: set[int] = field(default_factory=set)
    """Versions that have files on disk."""
    _protected: list[int] = field(default_factory=list)
    """Versions of the last two checkpoints, which must not be removed."""

    def advance(self) -> None:
        """Count a closed pass, whose files are complete."""
        self.version += 1
        self._on_disk.add(self.version)

    def drop(self) -> tuple[int, ...]:
        """Return the versions whose files the next pass is to remove, and forget them."""
        unused = tuple(sorted(self._on_disk - {self.version, *self._protected}))
        self._on_disk -= set(unused)
        return unused

    def checkpoint(self) -> ValuesByName:
        """Return the record from which ``restore`` restores the current files, which are on disk already."""
        if self.version not in self._protected[:1]:
            self._protected = [self.version, *self._protected[:1]]
        return {"version": self.version}

    def restore(self, saved: ValuesByName | None, older: ValuesByName | None = None) -> None:
        """Restore checkpoint ``saved``; ``older`` must stay valid too. A checkpoint of one process gets a new
        version.
        """
        older_versions = [int(older["version"])] if older else []
        self.must_write_files = not saved or IN_STATES in saved
        versions = ([int(saved["version"])] if saved else []) + older_versions
        self.version = max(versions, default=0) + 1 if self.must_write_files else versions[0]
        self._protected = [self.version, *older_versions]
        self._on_disk = set(self._protected)

    def close(self) -> None:
        """Do nothing: no file is open."""


@dataclass(frozen=True, slots=True)
class GroupStateFiles:
    """Per-row state of a cluster fit: one file for each group and version, with (problems, rows of the group) numbers.

    There are no files of version 0: its numbers are zeros.
    """

    directory: Place
    """The folder of the files, at the same path on all workers, or its URL."""
    state: RowState
    """Name and dtype of the numbers."""
    problems: int
    """Number of problems."""

    def load(self, group: Group, version: int) -> Array:
        """Return the numbers of a version, (problems, rows of the group). Raises DataError."""
        shape = self.state.shape(self.problems, group.rows)
        if version == 0:
            return np.zeros(shape, self.state.dtype)
        name = self.name(group, version)

        def decode(raw: bytes) -> Array:
            body, crc = memoryview(raw)[:-CRC_BYTES], raw[-CRC_BYTES:]
            is_complete = len(body) == group.rows * self.problems * self.state.nbytes
            if not is_complete or crc32c(body) != int.from_bytes(crc, "little"):
                message = f"{join_place(self.directory, name)} is missing or damaged"
                raise DataError(message, code="E-CHECKPOINT", hint=NOT_SHARED_HINT)
            return np.frombuffer(body, self.state.dtype).reshape(shape).copy()

        return read_shared(self.directory, name, decode)

    def save(self, group: Group, version: int, values: Array, drop: Iterable[int]) -> None:
        """Save the numbers of a group as ``version`` and remove the versions ``drop``. Raises StorageError."""
        body = values.tobytes()
        crc = crc32c(body).to_bytes(CRC_BYTES, "little")
        write_shared(self.directory, self.name(group, version), body, crc)
        remove_shared(self.directory, [self.name(group, old) for old in drop])

    def save_or_return(self, group: Group, version: int, values: Array, drop: tuple[int, ...]) -> None:
        """Save the numbers; the driver needs none of them (``group_tasks.GroupState``). Raises StorageError."""
        self.save(group, version, values, drop)

    def name(self, group: Group, version: int) -> str:
        """Return the name of a group's file of a version."""
        return f"{self.state.name}.{group.number:05d}.{version}"


@dataclass(slots=True)
class GroupRows:
    """Per-row state of a cluster fit, as the driver uses it (``fit_state.PerRowValues``)."""

    files: GroupStateFiles
    layout: Layout
    """Layout of the training store."""
    groups: list[Group]
    """The groups of the fit."""
    directory: Path
    """The folder in which a run in one process has left its file."""
    versions: Versions = field(default_factory=Versions)
    """Version counter shared by all files of a fit."""

    def checkpoint(self) -> ValuesByName:
        """Return the record from which ``restore`` restores the current numbers, which are on disk already."""
        return self.versions.checkpoint()

    def restore(self, saved: ValuesByName | None, older: ValuesByName | None = None) -> None:
        """Restore checkpoint ``saved``, of a cluster or of one process; ``older`` is a second one that must stay valid.

        Raises DataError, KeyError, StorageError.
        """
        in_one_file = saved is not None and IN_ONE_FILE in saved
        older = None if older is None or IN_ONE_FILE in older else older
        self.versions.restore(None if in_one_file else {"version": (saved or {})["version"]}, older)
        if in_one_file:
            file, version = self.directory / self.files.state.name, self.versions.version
            with closing(RowStates(self.files.state, self.layout, self.files.problems, file, resident=False)) as rows:
                rows.restore(saved)
                for group in self.groups:
                    self.files.save(group, version, GroupRowStates(rows).load(group, version), ())

    def load(self, chunk: int) -> Array:
        """Return the numbers of a chunk's rows, (problems, rows of the chunk). Raises DataError."""
        group = next(g for g in self.groups if chunk in g.chunks)
        return self.files.load(group, self.versions.version)[:, spans_in_group(self.layout, group)[chunk]]

    def close(self) -> None:
        """Do nothing: no file is open."""
