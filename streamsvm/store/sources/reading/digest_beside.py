"""The sha256 of a file that another library reads, made by another thread meanwhile."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from pathlib import Path
from threading import Event
from types import TracebackType
from typing import Self

from streamsvm.compute import threading
from streamsvm.store.sources.reading.input import digest_of


class DigestBeside:
    """The sha256 of a path; a context manager, at whose end nobody wants it any more.

    Where there is one thread it is made when it is asked for: at the end, as the rows come first.
    """

    def __init__(self, path: Path, make: Callable[[Path, Event], str] = digest_of) -> None:
        self._unwanted = Event()
        self._work = partial(make, path, self._unwanted)
        self._made: Future[str] | None = threading.submitted(self._work) if threading.threads() > 1 else None

    def result(self) -> str:
        """Return it, as hex digits. Raises MissingError, StorageError."""
        return self._work() if self._made is None else self._made.result()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._unwanted.set()
