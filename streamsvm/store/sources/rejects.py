"""Bad lines: they are left out, counted, listed, and limited to a share of all lines."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from streamsvm import durable
from streamsvm.errors import DataError
from streamsvm.outputs import REJECTS_HEADER

BAD_LINES = "E-BAD-LINES"
SKIPPED = "lines could not be read and were skipped"
LISTED_REJECTS = 100_000
"""The most bad lines that are listed; more are only counted."""
LINES_BEFORE_JUDGING = 1000
"""Lines after which the share of bad ones is checked: among fewer, one may be too large a share."""


@dataclass(slots=True)
class Rejects:
    """The bad lines of all files of a source, which were left out."""

    lines: list[tuple[str, int, str, str]] = field(default_factory=list)
    """The file, line number, code and reason of each bad line."""
    count: int = 0
    lines_read: int = 0
    """The lines that were read, good and bad."""

    def add(self, name: str, number: int, error: DataError) -> None:
        """Count a bad line, and list it unless the list is full."""
        self.count += 1
        if len(self.lines) < LISTED_REJECTS:
            place = f"line {number}" if f"line {number}" in error.message else f"row {number}"
            reason = error.message.partition(place)[2].lstrip(":, ") or error.message
            self.lines.append((name, number, error.code, reason))

    def check(self, share: float, *, last: bool = False) -> None:
        """Raise DataError E-BAD-LINES if more than ``share`` of the lines are bad. ``last``: no lines follow."""
        if (last or self.lines_read >= LINES_BEFORE_JUDGING) and self.count > share * self.lines_read:
            from streamsvm.store.sources.byte_stream import CHARSET_HINT  # imports numpy, which --help does without

            message = f"{self.count} of {self.lines_read} lines cannot be read, {100 * share:g} % are allowed"
            first = f"the first is {self.lines[0][0]} line {self.lines[0][1]}: {self.lines[0][3]}"
            hint = CHARSET_HINT if self.lines[0][2] == "E-ENCODING" else "check the format"
            raise DataError(f"{message}; {first}", code=BAD_LINES, hint=f"{hint}, or pass a larger --max-bad")

    def write(self, path: Path) -> list[str]:
        """Write file, line, code and reason of the listed lines as tab-separated text, or remove the list of an earlier
        run if no line is bad. Return the notices: one that names the file, or none.

        Raises StorageError.
        """
        if not self.count:
            path.unlink(missing_ok=True)
            return []
        lines = ("\t".join(map(str, reject)) + "\n" for reject in self.lines)
        durable.write_file(path, REJECTS_HEADER + "".join(lines).encode())
        return [f"{self.summary()}: see {path}"]

    def summary(self) -> str:
        """Return a notice with the number of bad lines."""
        return f"{self.count} {SKIPPED}"

    def clear(self) -> None:
        """Remove all lines, before the files are read again."""
        self.lines.clear()
        self.count = self.lines_read = 0
