"""Per-row state of a group of chunks, in files beside the run: one file a group, state and round (``versions``)."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
from crc32c import crc32c

from streamsvm import durable
from streamsvm.aliases import Array, ByName
from streamsvm.config.fields import field_values
from streamsvm.engine.checkpoint import checkpoint_file
from streamsvm.engine.partition import Group
from streamsvm.engine.state.row_state import GroupRowStates, RowStates
from streamsvm.errors import DataError
from streamsvm.types import Layout, RowState, State

IN_STATES = "in_states"
"""What a run in one process says in its checkpoints, of what one on a cluster has in files: its states have it all."""
IN_ONE_FILE = "places"
"""What a run in one process says of per-row state (``engine.state.row_state``)."""
CRC_BYTES = 4
"""At the end of a file: the crc32c of what stands before it, little-endian."""


@dataclass(slots=True)
class Versions:
    """Counts the rounds that are closed; version 0 is the beginning, of which there are no files."""

    version: int = 0
    """Of the last round that is closed."""
    to_write: bool = False
    """Whether there are no files of ``version`` yet: the checkpoint that was resumed is one of a run in one process."""
    _there: set[int] = field(default_factory=set)
    """Versions whose files are on disk."""
    _taken: list[int] = field(default_factory=list)
    """The versions of the last two checkpoints."""

    def advance(self) -> None:
        """A round has been closed: its files are all there."""
        self.version += 1
        self._there.add(self.version)

    def drop(self) -> tuple[int, ...]:
        """Versions the next round may remove."""
        gone = tuple(sorted(self._there - {self.version, *self._taken}))
        self._there -= set(gone)
        return gone

    def checkpoint(self) -> ByName:
        """Return what ``restore`` comes back to the present files with; they are durable already."""
        if self.version not in self._taken[:1]:
            self._taken = [self.version, *self._taken[:1]]
        return {"version": self.version}

    def restore(self, saved: ByName | None, older: ByName | None = None) -> None:
        """Come back to a checkpoint; ``older`` must stay too. After one of a run in one process comes a version of its own."""
        before = [int(older["version"])] if older else []
        self.to_write = not saved or IN_STATES in saved
        known = ([int(saved["version"])] if saved else []) + before
        self.version = max(known, default=0) + 1 if self.to_write else known[0]
        self._taken = [self.version, *before]
        self._there = set(self._taken)

    def close(self) -> None:
        """Nothing is open."""


@dataclass(frozen=True, slots=True)
class GroupStateFiles:
    """One per-row state of a fit on disk: a file a group and version with (problems, rows of the group) numbers.

    There are no files of version 0: its numbers are zeros.
    """

    directory: Path
    """Where the files are; all workers see it under this name."""
    state: RowState
    """What the numbers are called, and their type."""
    problems: int
    """How many problems have such a state."""

    def load(self, group: Group, version: int) -> Array:
        """Return what round ``version`` left, (problems, rows of the group). Raises DataError."""
        shape = self.state.shape(self.problems, group.rows)
        if version == 0:
            return np.zeros(shape, self.state.dtype)
        path = self.path(group, version)
        raw = path.read_bytes() if path.is_file() else b""
        body, tail = memoryview(raw)[:-CRC_BYTES], raw[-CRC_BYTES:]
        whole = len(body) == group.rows * self.problems * self.state.nbytes
        if not whole or crc32c(body) != int.from_bytes(tail, "little"):
            hint = "do all workers see the same files? else start again with --overwrite in place of --resume"
            raise DataError(f"{path} is missing or damaged", code="E-CHECKPOINT", hint=hint)
        return np.frombuffer(body, self.state.dtype).reshape(shape).copy()

    def save(self, group: Group, version: int, values: Array, drop: Iterable[int]) -> None:
        """Save what a round leaves and remove the versions nobody will ask for. Raises StorageError."""
        body = values.tobytes()
        durable.write_file(self.path(group, version), body, crc32c(body).to_bytes(CRC_BYTES, "little"))
        for old in drop:
            self.path(group, old).unlink(missing_ok=True)

    def leave(self, group: Group, version: int, values: Array, drop: tuple[int, ...]) -> None:
        """Save what a round leaves; there is nothing else to do."""
        self.save(group, version, values, drop)

    def path(self, group: Group, version: int) -> Path:
        """Where the numbers of a group are after round ``version``."""
        return self.directory / f"{self.state.name}.{group.number:05d}.{version}"


@dataclass(slots=True)
class GroupRows:
    """One per-row state of all rows as the driver sees it.

    To checkpoints and to whoever wants the numbers it is what ``engine.state.row_state.RowStates`` is.
    """

    files: GroupStateFiles
    """Where the numbers are."""
    layout: Layout
    """Of the store that is trained on."""
    groups: list[Group]
    """All groups of the fit."""
    versions: Versions = field(default_factory=Versions)
    """Shared by all that a fit leaves on disk between its rounds."""

    def checkpoint(self) -> ByName:
        """Return what ``restore`` comes back to the present numbers with; they are durable already."""
        return self.versions.checkpoint()

    def restore(self, saved: ByName | None, older: ByName | None = None) -> None:
        """Come back to a checkpoint, perhaps of a run in one process; ``older`` is another one that must stay as it is.

        Raises DataError, KeyError, StorageError.
        """
        in_one_file = saved is not None and IN_ONE_FILE in saved
        before = None if older is None or IN_ONE_FILE in older else older
        self.versions.restore(None if in_one_file else {"version": (saved or {})["version"]}, before)
        if in_one_file:
            file, version = self.files.directory / self.files.state.name, self.versions.version
            with closing(RowStates(self.files.state, self.layout, self.files.problems, file, resident=False)) as rows:
                rows.restore(saved)
                for group in self.groups:
                    self.files.save(group, version, GroupRowStates(rows).load(group, version), ())

    def load(self, chunk: int) -> Array:
        """Return the numbers of a chunk's rows, (problems, rows of the chunk). Raises DataError."""
        group = next(g for g in self.groups if chunk in g.chunks)
        before = sum(self.layout.chunks[c] for c in group.chunks if c < chunk)
        return self.files.load(group, self.versions.version)[:, before : before + self.layout.chunks[chunk]]

    def close(self) -> None:
        """Nothing is open."""


@dataclass(frozen=True, slots=True)
class DriverState:
    """That part of a solver's state which only the end of a pass looks at, on disk between two rounds."""

    directory: Path
    """Where the files are; whoever closes a round sees it under this name."""
    names: tuple[str, ...]
    """The fields of the state; each may be None."""

    def without(self, state: State) -> State:
        """Return the state as it is sent to those who visit blocks."""
        return replace(state, **dict.fromkeys(self.names))

    def load(self, version: int, states: dict[int, State]) -> None:
        """Complete the states of some problems with what round ``version`` left. Raises DataError."""
        if version == 0:
            return
        saved: dict[int, ByName] = checkpoint_file.read(self._path(version)).content()
        for k, state in states.items():
            for name, value in saved[k].items():
                setattr(state, name, value)

    def save(self, version: int, states: dict[int, State], drop: Iterable[int]) -> None:
        """Save what a round leaves and remove the versions nobody will ask for. Raises StorageError."""
        fields = {k: field_values(state, self.names) for k, state in states.items()}
        checkpoint_file.write(self._path(version), version, {}, fields)
        for old in drop:
            self._path(old).unlink(missing_ok=True)

    def _path(self, version: int) -> Path:
        return self.directory / f"home.{version}"
