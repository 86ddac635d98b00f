"""Which rounds' files are on disk: the present ones, those a checkpoint comes back to, and those that may go.

A round reads what the round before it has left and writes files of its own, so that a round that is run again, or twice
at the same time, starts from the same numbers and writes the same files. What no round and no checkpoint will come back
to is removed by the next round.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(slots=True)
class Versions:
    """Counts the rounds that are closed; version 0 is the beginning, of which there are no files."""

    version: int = 0
    _there: set[int] = field(default_factory=set)
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

    def keep(self) -> dict[str, Any]:
        """What ``restore`` comes back to the present files with; they are durable already."""
        if self.version not in self._taken[:1]:
            self._taken = [self.version, *self._taken[:1]]
        return {"version": self.version}

    def restore(self, kept: dict[str, Any] | None, older: dict[str, Any] | None = None) -> None:
        """Come back to a checkpoint, or of one that knows no versions to the beginning; ``older`` must stay too."""
        self.version = int(kept["version"]) if kept else 0
        self._taken = [self.version, *([] if older is None else [int(older["version"])])]
        self._there = set(self._taken)

    def close(self) -> None:
        """Nothing is open."""
