"""Bad lines: those that --on-bad-line skip leaves out are counted, listed beside the output, and limited to a share of all."""

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
    """The bad lines of a source; its files share it."""

    lines: list[tuple[str, int, str, str]] = field(default_factory=list)
    """The file, line number, code and reason of each bad line."""
    count: int = 0
    read: int = 0
    """Lines looked at, good ones included."""

    def add(self, name: str, number: int, error: DataError) -> None:
        """Note a bad line."""
        self.count += 1
        if len(self.lines) < LISTED_REJECTS:
            place = f"line {number}" if f"line {number}" in error.message else f"row {number}"
            reason = error.message.partition(place)[2].lstrip(":, ") or error.message
            self.lines.append((name, number, error.code, reason))

    def check(self, share: float, *, last: bool = False) -> None:
        """Raise DataError E-BAD-LINES when there are more than ``share`` of them."""
        if (last or self.read >= LINES_BEFORE_JUDGING) and self.count > share * self.read:
            found = f"{self.count} of {self.read} lines cannot be read, {100 * share:g} % are allowed"
            first = f"the first is {self.lines[0][0]} line {self.lines[0][1]}: {self.lines[0][3]}"
            raise DataError(f"{found}; {first}", code=BAD_LINES, hint="check the format, or pass a larger --max-bad")

    def write(self, path: Path) -> str:
        """Write file, line, code and reason of every bad line as tab-separated text; return a notice that says so.

        Raises StorageError.
        """
        lines = ("\t".join(map(str, reject)) + "\n" for reject in self.lines)
        durable.write_file(path, REJECTS_HEADER + "".join(lines).encode())
        return f"{self.summary()}: see {path}"

    def summary(self) -> str:
        """Return how many lines were left out, as a notice."""
        return f"{self.count} {SKIPPED}"

    def clear(self) -> None:
        """Forget all lines, because the files are read again."""
        self.lines.clear()
        self.count = self.read = 0
