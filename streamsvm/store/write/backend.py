"""Where the arrays of a store are put while it is written: what a format is, to the writer."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Protocol

from numpy.typing import NDArray

from streamsvm.store.format.arrays import ArraySpec


class Medium(Protocol):
    """Where the arrays of a store are put while it is written: what a format is."""

    name: str

    def begin(self, directory: Path, specs: dict[str, ArraySpec]) -> None:
        """Make room for arrays; nothing that is there already is removed."""
        ...

    def compress(self, packed: dict[str, str]) -> None:
        """Use these codecs, by array; called before ``begin``. Raises UsageError where the format has none."""
        ...

    def turn(self, values: dict[str, NDArray[Any]]) -> bool:
        """Whether everything so far was closed and made durable because the next chunk begins a new file."""
        ...

    def write(self, values: dict[str, NDArray[Any]]) -> None:
        """Add what a chunk has of each array."""
        ...

    def sync(self) -> bool:
        """Let the disk catch up; True when all so far is durable and could be gone on from."""
        ...

    def finish(self, columns: int) -> None:
        """Complete the arrays and make them durable."""
        ...

    def described(self) -> dict[str, Any]:
        """The fields of the manifest that are the format's own."""
        ...

    def progress(self) -> Any:
        """What ``resume`` needs, as plain JSON."""
        ...

    def resume(self, saved: Any, rows: int) -> None:
        """Go on after ``rows`` rows, of a dense store."""
        ...

    def known(self, notes: list[Any], *, repair: bool) -> None:
        """What ``note`` told in an earlier build, or all a committed store has; of use where units can be left alone.

        With ``repair`` units are read to see whether they are whole, and must come out as they are known.
        """
        ...

    def note(self) -> Any:
        """What has become durable since the last note, as plain JSON; asked for after ``sync``."""
        ...

    def abort(self) -> None:
        """Close what is open."""
        ...
