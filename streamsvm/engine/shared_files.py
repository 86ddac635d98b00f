"""Files that the workers of a cluster share: in a folder that all of them see, or as objects below a URL.

A name is written once with the same bytes, also by a task that runs twice, so that nobody sees a file change.

A task that runs twice may write when its run has ended and the files below a URL have been removed. So each place at a URL
has a mark as long as its run goes on (``open_place``). At the end the marks are removed first; then the files are listed and
removed (``close_place``). A task looks for the mark after it has written: if it is gone, the task removes its file itself;
if it is there, the file was written before the list was made. Only a task that is killed in between leaves its file.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TypeAlias, TypeVar

from streamsvm import durable, object_store
from streamsvm.errors import DataError, MissingError
from streamsvm.type_aliases import BytesLike
from streamsvm.working_copies import download_file

Place: TypeAlias = Path | str
"""A folder, or the URL of one."""
NOT_SHARED_HINT = (
    "do all workers see the same files? if not, give the model a URL, or pass --scratch; "
    "else start again with --overwrite in place of --resume"
)
LARGEST_FILE = 1 << 40
OPEN_MARK = "open"
"""The object of a place that says that its run goes on."""
ARRIVALS = 4
"""How often an object that arrives damaged is asked for."""
_Result = TypeVar("_Result")


def join_place(place: Place, name: str) -> Place:
    """Return the file or folder ``name`` of a place."""
    return f"{place}/{name}" if isinstance(place, str) else place / name


def open_place(url: str) -> None:
    """Let tasks keep files at a URL. Raises StorageError, SecurityError."""
    object_store.write_object(f"{url}/{OPEN_MARK}", b"open")


def close_place(url: str) -> None:
    """Remove the files of the places at and below a URL, also those that tasks write later. Raises StorageError, SecurityError."""
    listed = object_store.list_objects(url)
    object_store.remove_objects(one.url for one in listed if one.url.endswith(f"/{OPEN_MARK}"))
    object_store.remove_objects(one.url for one in object_store.list_objects(url))


def _remove_if_closed(url: str, name: str) -> None:
    """Remove a file that was written when its run had ended."""
    if not object_store.is_object(f"{url}/{OPEN_MARK}"):
        object_store.remove_objects([f"{url}/{name}"])


def write_shared(place: Place, name: str, *pieces: BytesLike) -> None:
    """Write a file. Raises StorageError, SecurityError."""
    if isinstance(place, str):
        object_store.write_object(f"{place}/{name}", b"".join(pieces))
        _remove_if_closed(place, name)
    else:
        durable.write_file(place / name, *pieces)


def read_shared(place: Place, name: str, check: Callable[[bytes], _Result]) -> _Result:
    """Return what ``check`` makes of the content of a file, b"" if it is missing; ``check`` raises DataError for damage.

    Raises DataError, StorageError, SecurityError.
    """
    if not isinstance(place, str):
        path = place / name
        return check(path.read_bytes() if path.is_file() else b"")

    def read() -> bytes:
        try:
            return object_store.read_object(f"{place}/{name}", LARGEST_FILE)
        except MissingError:
            return b""

    return _read_again_if_damaged(lambda: check(read()))


def write_shared_file(place: Place, name: str, write: Callable[[Path], None]) -> None:
    """Write a file by the function ``write``, which is given its path on this machine. Raises what it raises, StorageError, SecurityError."""
    if not isinstance(place, str):
        write(place / name)
        return
    with tempfile.TemporaryDirectory(prefix="streamsvm-") as folder:
        copy = Path(folder, name)
        write(copy)
        object_store.upload_file(copy, f"{place}/{name}")
    _remove_if_closed(place, name)


def read_shared_file(place: Place, name: str, read: Callable[[Path], _Result]) -> _Result:
    """Return what ``read`` makes of a file, of which it is given the path on this machine; it raises DataError for damage.

    Raises DataError, StorageError, SecurityError.
    """
    if not isinstance(place, str):
        return read(place / name)
    with tempfile.TemporaryDirectory(prefix="streamsvm-") as folder:
        copy = Path(folder, name)

        def fetch() -> _Result:
            download_file(f"{place}/{name}", copy)
            return read(copy)

        return _read_again_if_damaged(fetch)


def remove_shared(place: Place, names: Iterable[str]) -> None:
    """Remove files; one that is not there is no error. Raises StorageError, SecurityError."""
    if isinstance(place, str):
        object_store.remove_objects(f"{place}/{name}" for name in names)
        return
    for name in names:
        (place / name).unlink(missing_ok=True)


def _read_again_if_damaged(read: Callable[[], _Result]) -> _Result:
    for _ in range(ARRIVALS - 1):
        try:
            return read()
        except DataError:
            object_store.note_retry()
    return read()
