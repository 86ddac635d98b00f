"""What a format is to the writer: where the arrays of a store are put while it is written."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from streamsvm.aliases import Array, Handle, JsonObject
from streamsvm.store.format.arrays import ArraySpec


class Medium(Protocol):
    """Where the arrays of a store are put while it is written. The writer calls ``begin``, then for each chunk ``turn``
    and ``write``, then ``finish``.
    """

    name: str
    """The name of the format in ``STORES``."""

    def begin(self, directory: Path, specs: dict[str, ArraySpec]) -> None:
        """Make room for arrays; nothing that is there already is removed."""
        ...

    def compress(self, packed: dict[str, str]) -> None:
        """Use these codecs, by array. It is called before ``begin``; raises UsageError where the format has none."""
        ...

    def turn(self, values: dict[str, Array]) -> bool:
        """Return whether everything so far was closed and made durable because the next chunk begins a new file."""
        ...

    def write(self, values: dict[str, Array]) -> None:
        """Add what a chunk has of each array. Raises StorageError."""
        ...

    def sync(self) -> bool:
        """Let the disk catch up; return True when all so far is durable and could be gone on from."""
        ...

    def finish(self, columns: int) -> None:
        """Complete the arrays and make them durable. Raises StorageError."""
        ...

    def described(self) -> JsonObject:
        """Return the fields of the manifest that are the format's own."""
        ...

    def progress(self) -> Handle:
        """Return what ``resume`` needs, as plain JSON."""
        ...

    def resume(self, saved: Handle, rows: int) -> None:
        """Go on after ``rows`` rows of a dense store; ``saved`` is what ``progress`` returned."""
        ...

    def known(self, notes: list[Handle], *, repair: bool) -> None:
        """Take over what ``note`` returned in an earlier build, or all a committed store has, so that units can be left
        alone.

        With ``repair`` units are read to see whether they are whole, and must come out as they are known.
        """
        ...

    def note(self) -> Handle:
        """Return what has become durable since the last note, as plain JSON; it is asked for after ``sync``."""
        ...

    def abort(self) -> None:
        """Close what is open."""
        ...
