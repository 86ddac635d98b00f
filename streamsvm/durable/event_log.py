"""Logs that events are appended to, a line at a time."""

from __future__ import annotations

from pathlib import Path
from typing import Self

from streamsvm.durable.steps import explained
from streamsvm.errors import StorageError


class Log:
    """A text file that events are appended to, a line at a time; a context manager. Raises StorageError."""

    def __init__(self, path: Path) -> None:
        self._path = path
        with explained("opening", path):
            self._file = open(path, "a", encoding="utf-8", buffering=1)  # noqa: SIM115  closed by ``__exit__``

    def write(self, line: str) -> None:
        """Append a line with its line feed; it is in the file when this returns, if not yet durable."""
        with explained("writing", self._path):
            self._file.write(line)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            with explained("writing", self._path):
                self._file.close()
        except StorageError:
            if kind is None:  # else what ended the job is the thing to say
                raise


def open_log(path: Path) -> Log:
    """Open a line-buffered text file to append events to. Raises StorageError."""
    return Log(path)
