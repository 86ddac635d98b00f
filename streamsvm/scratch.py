"""What lies beside an output until it is complete, and what killed writers left there.

All of it is called ``.NAME.*.partial``, so that the next writer of NAME, who has its lock, knows what is nobody's.
"""

from __future__ import annotations

import glob
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from streamsvm.durable import PARTIAL, explained


@contextmanager
def scratch_beside(target: Path) -> Iterator[Path]:
    """A directory for what an output is made of, gone in the end. Raises StorageError."""
    with explained("writing beside", target):
        made = tempfile.TemporaryDirectory(dir=target.resolve().parent, prefix=f".{target.name}.", suffix=PARTIAL)
    with made as directory:
        yield Path(directory)


def sweep(directory: Path) -> None:
    """Remove what killed writers left below a directory. The caller is the only writer there."""
    for leftover in list(directory.rglob(f".*{PARTIAL}")):
        _remove(leftover)


def sweep_beside(target: Path) -> None:
    """Remove what killed writers of one output left beside it. The caller is the only writer of it."""
    for leftover in target.parent.glob(f".{glob.escape(target.name)}.*{PARTIAL}"):
        _remove(leftover)


def _remove(leftover: Path) -> None:
    if leftover.is_dir() and not leftover.is_symlink():
        shutil.rmtree(leftover, ignore_errors=True)
    else:
        leftover.unlink(missing_ok=True)
