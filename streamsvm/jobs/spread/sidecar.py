"""Per-row state of a group of chunks, in files beside the run: one file a group, state and round (``versions``)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from crc32c import crc32c
from numpy.typing import NDArray

from streamsvm import durable
from streamsvm.errors import DataError
from streamsvm.jobs.spread.groups import Group
from streamsvm.jobs.spread.versions import Versions
from streamsvm.types import Layout, RowState

CRC_BYTES = 4


@dataclass(frozen=True, slots=True)
class Sidecar:
    """The numbers of one state for so many problems, (problems, rows of a group); zeros in version 0."""

    directory: Path
    state: RowState
    problems: int

    def load(self, group: Group, version: int) -> NDArray[Any]:
        """What round ``version`` left. Raises DataError."""
        shape = (self.problems, group.rows)
        if version == 0:
            return np.zeros(shape, self.state.dtype)
        path = self.path(group, version)
        raw = path.read_bytes() if path.is_file() else b""
        body, tail = memoryview(raw)[:-CRC_BYTES], raw[-CRC_BYTES:]
        whole = len(body) == group.rows * self.problems * np.dtype(self.state.dtype).itemsize
        if not whole or crc32c(body) != int.from_bytes(tail, "little"):
            hint = "do all workers see the same files? else start again, without --resume"
            raise DataError(f"{path} is missing or damaged", code="E-CHECKPOINT", hint=hint)
        return np.frombuffer(body, self.state.dtype).reshape(shape).copy()

    def save(self, group: Group, version: int, values: NDArray[Any], drop: Iterable[int]) -> None:
        """Keep what a round leaves and remove the versions nobody will ask for. Raises StorageError."""
        body = values.tobytes()
        durable.write_file(self.path(group, version), body, crc32c(body).to_bytes(CRC_BYTES, "little"))
        for old in drop:
            self.path(group, old).unlink(missing_ok=True)

    def path(self, group: Group, version: int) -> Path:
        return self.directory / f"{self.state.name}.{group.number:05d}.{version}"


@dataclass(slots=True)
class GroupRows:
    """The state of all rows as the driver sees it.

    To checkpoints and to whoever wants the numbers it is what ``schedule.rows.RowStates`` is.
    """

    sidecar: Sidecar
    layout: Layout
    groups: list[Group]
    versions: Versions = field(default_factory=Versions)
    """Shared by all that a fit leaves on disk between its rounds."""

    def keep(self) -> dict[str, Any]:
        """What ``restore`` comes back to the present numbers with."""
        return self.versions.keep()

    def restore(self, kept: dict[str, Any], older: dict[str, Any] | None = None) -> None:
        """Come back to a checkpoint; ``older`` is another one that must stay as it is."""
        self.versions.restore({"version": kept["version"]}, older)

    def load(self, chunk: int) -> NDArray[Any]:
        """(problems, rows of the chunk)."""
        group = next(g for g in self.groups if chunk in g.chunks)
        before = sum(self.layout.chunks[c] for c in group.chunks if c < chunk)
        return self.sidecar.load(group, self.versions.version)[:, before : before + self.layout.chunks[chunk]]

    def close(self) -> None:
        """Nothing is open."""
