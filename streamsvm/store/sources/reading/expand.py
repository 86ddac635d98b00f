"""What a user names as sources, as files: directories and patterns stand for the files in them, in order of name."""

from __future__ import annotations

import glob
import stat
from collections.abc import Sequence
from pathlib import Path

from streamsvm.errors import MissingError, UsageError, quote
from streamsvm.regular import is_folder, is_there, what_is
from streamsvm.store.format.manifest import FILE
from streamsvm.store.sources.reading.lakes import refuse_lake, refuse_partitioned
from streamsvm.store.sources.reading.standard_input import STANDARD_INPUT

PATTERN = frozenset("*?[")


def expand(paths: Sequence[Path | str]) -> tuple[Path, ...]:
    """Return the files that are meant, directories that are Zarr arrays, and "-" as it is. Raises MissingError, UsageError,
    and DataError for tables whose files are not their rows (``lakes``).
    """
    found: list[Path] = []
    for path in map(Path, paths):
        if str(path) == STANDARD_INPUT:
            found.append(path)
        elif is_there(path):
            found += _in_directory(path) if is_folder(path) else [_regular(path)]
        elif PATTERN & set(str(path)):
            found += _matching(str(path))
        else:
            raise MissingError(f"{path} does not exist", hint="name the files to read")
    for file in {file.parent: file for file in reversed(found) if str(file) != STANDARD_INPUT}.values():
        refuse_lake(file)
    return tuple(found)


def _regular(path: Path) -> Path:
    """The path of a file that can be read more than once. Raises UsageError for pipes, before anything is taken out."""
    mode = path.stat().st_mode
    if stat.S_ISREG(mode):
        return path
    hint = "a source is read more than once: name - and pipe it in, as in 'zcat FILE | streamsvm ingest - STORE'"
    raise UsageError(f"{path} is {what_is(mode)}, not a regular file", hint=hint)


def _in_directory(path: Path) -> list[Path]:
    from streamsvm.store.foreign import foreign_format  # which itself reads through this package

    if (path / FILE).exists():
        raise UsageError(f"{path} is a store already", hint="name the files it was made of")
    if foreign_format(path) == "zarr":
        return [path]
    refuse_lake(path)
    refuse_partitioned(path, sorted(p.name for p in path.iterdir() if p.is_dir()))
    files = sorted(p for p in path.iterdir() if p.is_file() and not p.name.startswith((".", "_")))
    if not files:
        raise MissingError(f"{path} holds no files", hint="name the files to read")
    return files


def _matching(pattern: str) -> list[Path]:
    matches = sorted(glob.glob(pattern, recursive=True))
    if not matches:
        raise MissingError(f"nothing is called {quote(pattern)}", hint="check the pattern and the directory")
    return list(dict.fromkeys(expand(matches)))  # '**' names a folder, and the files in it
