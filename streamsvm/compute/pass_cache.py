"""The directory of compiled passes, named by a hash of the sources.

Numba stores a compiled function with a time stamp of the file that defines it, and therefore does not notice an edit of
another file that the function inlines, such as a loss or a row format. Here the directory is named by a hash of every
file whose code a pass can contain, so that an edit of any of them starts with an empty cache.
"""

from __future__ import annotations

import atexit
import hashlib
import os
import shutil
import sys
import tempfile
import time
import warnings
from pathlib import Path
from typing import Any

from streamsvm.errors import SecurityError

KEEP_SECONDS = 30 * 24 * 3600
_PACKAGE = Path(__file__).resolve().parent.parent
_LOADED_PASSES: list[Any] = []
"""Passes that were found to have machine code; empty before. The search takes a millisecond."""
# A pass can inline only code of compute/ and of the layers below it (pyproject.toml, "Data flows one way").
_INLINED = ("rows.py", "types/*.py", "losses.py", "kernels.py", "compute/**/*.py")


def _root() -> Path:
    base = os.environ.get("XDG_CACHE_HOME", "")
    return Path(base if os.path.isabs(base) else os.path.expanduser("~/.cache")) / "streamsvm"


def sources() -> list[Path]:
    """Return every file whose code a pass can contain."""
    return sorted(file for pattern in _INLINED for file in _PACKAGE.glob(pattern))


def source_hash() -> str:
    """Return sixteen hexadecimal digits that change when the source of any pass changes."""
    digest = hashlib.sha256()
    for path in sources():
        digest.update(path.relative_to(_PACKAGE).as_posix().encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()[:16]


def cache_directory() -> Path:
    """Return the directory of compiled passes: the user's NUMBA_CACHE_DIR, else the one named by the hash."""
    chosen = os.environ.get("NUMBA_CACHE_DIR")
    # A path below ``_root`` was set by a parent process, which may have run other sources; it is ignored.
    if chosen and not Path(chosen).is_relative_to(_root()):
        return Path(chosen)
    return _root() / source_hash()


def _make_private(directory: Path) -> None:
    """Create a directory to which only this user can write, because numba loads code from it.

    Raises SecurityError if other users can write to the directory, OSError if this user cannot.
    """
    directory.mkdir(parents=True, exist_ok=True, mode=0o700)
    status = directory.stat()
    if status.st_uid not in (os.getuid(), 0):
        raise PermissionError(f"{directory} belongs to another user")
    if status.st_mode & 0o022:
        raise SecurityError(
            f"{directory} can be written to by others; compiled code would be loaded from it",
            hint=f"chmod 700 {directory}, or set NUMBA_CACHE_DIR to a directory of your own",
        )
    if not os.access(directory, os.W_OK):
        raise PermissionError(f"{directory} cannot be written to")


def _sweep(root: Path, keep: Path) -> None:
    """Remove the caches, other than ``keep``, of sources that were not used for KEEP_SECONDS."""
    oldest = time.time() - KEEP_SECONDS
    for entry in root.iterdir():
        if entry != keep and entry.is_dir() and not entry.is_symlink() and entry.stat().st_mtime < oldest:
            shutil.rmtree(entry, ignore_errors=True)


def _temporary() -> Path:
    """Return a directory for this process only, in case the home directory is not writable."""
    directory = tempfile.mkdtemp(prefix="streamsvm-")
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    return Path(directory)


def use_cache() -> Path:
    """Set the directory in which numba keeps compiled passes, and return it.

    Raises SecurityError if other users can write to the directory. If it belongs to another user or is not writable,
    warn, and use a temporary directory for this process.
    """
    directory = cache_directory()
    try:
        _make_private(directory)
        if directory.is_relative_to(_root()):
            os.utime(directory)
            _sweep(directory.parent, directory)
    except OSError as error:
        warnings.warn(f"compiled passes are not kept: {directory}: {error.strerror or error}", stacklevel=2)
        directory = _temporary()
    os.environ["NUMBA_CACHE_DIR"] = str(directory)
    if numba := sys.modules.get("numba"):  # it was imported earlier and has read the environment already
        numba.config.CACHE_DIR = str(directory)
    return directory


def passes_loaded() -> bool:
    """Return whether this process has compiled or loaded a pass, and therefore holds LLVM in memory, to its end."""
    if not _LOADED_PASSES:
        _LOADED_PASSES.extend(_find_loaded_passes())
    return bool(_LOADED_PASSES)


def _find_loaded_passes() -> list[Any]:
    """Return the passes that have machine code in this process."""
    dispatching = sys.modules.get("numba.core.dispatcher")
    if dispatching is None:
        return []
    modules = [module for name, module in list(sys.modules.items()) if name.startswith(f"{__package__}.")]
    values = (value for module in modules for value in vars(module).values())
    return [value for value in values if isinstance(value, dispatching.Dispatcher) and value.signatures]
