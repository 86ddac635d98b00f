"""What a job may write: the one place that decides whether a path can become an output.

``--overwrite`` means "replace the output of an earlier run", never "delete what is there". So an existing path is
replaced only when it is recognized as an output of the same kind (``outputs.kinds``), and nothing that a job reads -
the file itself under whatever name, a directory around it, something inside a store - is ever written to. Everything
else is refused, before the first row is read.
"""

from __future__ import annotations

import errno
import glob
import os
from collections.abc import Iterable, Iterator, Sequence
from itertools import combinations
from pathlib import Path
from typing import NamedTuple

from streamsvm.durable import explained
from streamsvm.errors import ExistsError, UsageError, quote
from streamsvm.outputs.folders import is_store
from streamsvm.outputs.kinds import Kind
from streamsvm.regular import is_there, refuse_url

__all__ = ["Output", "claim", "output_path", "refuse_foreign"]

ELSEWHERE = "choose another name"
REPLACE = "choose another name, or pass --overwrite"
STORES = ("manifest.json", "zarr.json", ".zgroup", ".zarray")
"""Files that make a directory one input, and not a folder of several."""


_Id = tuple[int, int]


class Output(NamedTuple):
    """A path a job is going to write."""

    path: Path
    """Where the output goes."""
    kind: Kind
    """What it is, and what it may replace."""
    continues: bool = False
    """Whether an earlier output of the same kind is gone on with or added to, and so may be there without --overwrite."""


def claim(outputs: Sequence[Output], inputs: Iterable[Path | str | None] = (), *, overwrite: bool) -> None:
    """Check, before hours of work, that all outputs of a job can be written and that nothing else is lost by it.

    ``inputs`` are the paths the job reads; None, and paths that do not exist, are passed over. Raises ExistsError
    (exit code 73) for what must not be replaced, UsageError when two outputs are in each other's way or one can have no
    such name, StorageError when
    a directory is not there or not writable.
    """
    for output in outputs:
        _nameable(output.path)
    for one, other in combinations(outputs, 2):
        places = Path(os.path.realpath(one.path)), Path(os.path.realpath(other.path))
        if places[0].is_relative_to(places[1]) or places[1].is_relative_to(places[0]):
            raise UsageError(f"{one.path} and {other.path} would be written to the same place", hint=ELSEWHERE)
    read = _Read(inputs)
    for output in outputs:
        _writable(output.path)
        read.keep_apart(output.path)
        _outside_stores(output.path)
        _replaceable(output, overwrite=overwrite)


def refuse_foreign(path: Path, kind: Kind) -> None:
    """Raise ExistsError where something is that is no output of this kind; an absent path and an empty folder are none."""
    if path.is_symlink():
        raise ExistsError(f"{path} is a link to somewhere else", hint="name the place itself, or remove the link")
    if not path.exists():
        return
    found = kind.fault(path)
    if found:
        raise ExistsError(f"{path} is there and is not {kind.name}: {found}", hint=ELSEWHERE)


def _replaceable(output: Output, *, overwrite: bool) -> None:
    path = output.path
    refuse_foreign(path, output.kind)
    empty = path.is_dir() and not any(path.iterdir())
    if path.exists() and not (overwrite or output.continues or empty):
        raise ExistsError(f"{path} exists already", hint=REPLACE)


def output_path(name: Path | str) -> Path:
    """What a user named as an output, as a path. Raises UsageError for what only stands for a directory: '.', '..', '/'."""
    path = Path(name)
    if path.name in ("", ".."):
        raise UsageError(f"{quote(str(name))} is not a name for an output", hint="name a file or folder in it")
    return path


def _nameable(path: Path) -> None:
    """Raise UsageError for what no file can be called: too long, with a NUL, or with what is no character, and for a URL."""
    refuse_url(path)
    try:
        os.lstat(path)
    except (ValueError, OSError) as error:
        if isinstance(error, OSError) and error.errno != errno.ENAMETOOLONG:
            return  # whether it can be written to is another question
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise UsageError(f"{quote(str(path))} cannot be the name of a file: {reason}", hint=ELSEWHERE) from error


def _outside_stores(path: Path) -> None:
    """Raise ExistsError for a path inside a store: what is in there belongs together, whoever reads it."""
    place = Path(os.path.realpath(path.parent))
    for above in (place, *place.parents):
        if is_store(above):
            raise ExistsError(f"{path} lies inside the store {above}", hint=ELSEWHERE)


def _writable(path: Path) -> None:
    parent = path.parent
    with explained("writing to", parent):
        if not os.access(parent, os.W_OK):
            raise OSError(errno.EACCES, os.strerror(errno.EACCES) if parent.exists() else "no such directory")


class _Read:
    """The files a job reads and the directories around them, known by device and inode: a name is one of many."""

    def __init__(self, inputs: Iterable[Path | str | None]) -> None:
        self._files: dict[_Id, Path] = {}
        self._above: dict[_Id, Path] = {}
        self._stores: dict[_Id, Path] = {}
        folders: dict[Path, Path] = {}
        for path in _files(inputs):
            found = _id(path)
            if found is None:
                continue
            self._files[found] = path
            if path.is_dir():
                self._stores[found] = path
            folders.setdefault(path.parent, path)
        for folder, path in folders.items():
            for above in _upwards(folder):
                self._above.setdefault(above, path)

    def keep_apart(self, output: Path) -> None:
        """Raise ExistsError when writing ``output`` would change something that is read."""
        found = _id(output)
        if found in self._files:
            raise ExistsError(f"{output} is read by this job and cannot be its output", hint=ELSEWHERE)
        if found in self._above:
            raise ExistsError(f"{output} holds {self._above[found]}, which this job reads", hint=ELSEWHERE)
        for above in _upwards(output.parent):
            if above in self._stores:
                raise ExistsError(f"{output} lies inside {self._stores[above]}, which this job reads", hint=ELSEWHERE)


def _id(path: Path) -> _Id | None:
    """Device and inode of what a path leads to; None where that is nothing."""
    try:
        found = os.stat(path)
    except (OSError, ValueError):
        return None
    return found.st_dev, found.st_ino


def _upwards(directory: Path) -> Iterator[_Id]:
    """A directory and all above it."""
    place = Path(os.path.realpath(directory))
    for each in (place, *place.parents):
        if (found := _id(each)) is not None:
            yield found


def _files(inputs: Iterable[Path | str | None]) -> Iterator[Path]:
    """The inputs that exist; for a pattern the files it stands for, for a folder of files those files."""
    for name in inputs:
        if name is None or not str(name):
            continue
        path = Path(name)
        for found in [path] if is_there(path) else map(Path, glob.glob(str(name), recursive=True)):
            if not found.is_dir() or any((found / file).exists() for file in STORES):
                yield found
            if found.is_dir():
                yield from (file for file in found.iterdir() if file.is_file())
