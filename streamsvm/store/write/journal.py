"""The journal of a store that is being built: what it is made from, and which of its units are on disk for good.

A build that was stopped reads its source again and compares: a unit that the journal knows and that comes out the same
is not written again. Whatever was lost or torn is written as if nothing had happened, and the bytes are the same.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from streamsvm import durable
from streamsvm.aliases import JsonObject
from streamsvm.errors import DataError
from streamsvm.locks import sweep
from streamsvm.regular import read_whole

FILE = "ingest.journal"
LARGEST_JOURNAL = 1 << 30


@dataclass(frozen=True, slots=True)
class Journal:
    """The journal of one build; ``made_with`` is all that decides the bytes of the store."""

    made_with: JsonObject
    """What the store is made from, as plain JSON."""

    def begin(self, directory: Path) -> list[Any] | None:
        """Return the notes of an earlier build of the same store; None where there is none, and after ``start``."""
        found = _lines(directory / FILE)
        if not found or found[0] != self.made_with:
            return None
        sweep(directory)
        self._write(directory, found)  # without a last line that was cut
        return found[1:]

    def start(self, directory: Path) -> None:
        """Begin a new journal. Raises StorageError."""
        self._write(directory, [self.made_with])

    def note(self, directory: Path, what: Any) -> None:
        """Add what has become durable. Raises StorageError."""
        durable.append_line(directory / FILE, json.dumps(what))

    def end(self, directory: Path) -> None:
        """Remove the journal: the store is committed."""
        (directory / FILE).unlink(missing_ok=True)

    def _write(self, directory: Path, lines: list[Any]) -> None:
        durable.write_file(directory / FILE, "".join(json.dumps(line) + "\n" for line in lines).encode())


def made_with(directory: Path) -> JsonObject | None:
    """Return what an unfinished store in a directory is being made from; None where there is no journal of one."""
    found = _lines(directory / FILE)
    return found[0] if found and isinstance(found[0], dict) else None


def _lines(path: Path) -> list[Any]:
    """The lines of a journal up to the first that is not whole."""
    try:
        text = read_whole(path, LARGEST_JOURNAL).decode()
    except (OSError, UnicodeDecodeError, DataError):
        return []
    found = []
    for line in text.splitlines(keepends=True):
        try:
            if not line.endswith("\n"):
                break
            found.append(json.loads(line))
        except ValueError:
            break
    return found
