"""What lies beside an output until it is complete, and what killed writers left there.

All of it is called ``.NAME.*.partial``, so that the next writer of NAME, who has its lock, knows what is nobody's.
"""

from __future__ import annotations

import re
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from streamsvm import durable
from streamsvm.durable import PARTIAL, explained

_OURS = re.compile(r"\.(.+)\.[0-9a-z_]{8}")
"""Names as ``scratch_beside`` and ``durable`` make them, without their ending; group 1: the output they belong to."""
_PART = re.compile(r"\.part-\d+\.h5" + re.escape(PARTIAL))


@contextmanager
def scratch_beside(target: Path) -> Iterator[Path]:
    """Give a directory for what an output is made of; it is removed when the context ends. Raises StorageError."""
    with explained("writing beside", target):
        made = tempfile.TemporaryDirectory(dir=target.resolve().parent, prefix=f".{target.name}.", suffix=PARTIAL)
    with made as directory:
        yield Path(directory)


def restore(target: Path) -> None:
    """Give back what a killed writer had put aside for an output that never took its place.

    What was put aside for one that did is removed. The caller is the only writer of ``target``. Raises StorageError.
    """
    asides = [path for path in target.parent.glob(f".*{durable.ASIDE}") if _owner(path, durable.ASIDE) == target.name]
    if asides and not target.exists() and not target.is_symlink():
        durable.rename(asides.pop(), target)
    for aside in asides:
        _remove(aside)


def sweep(directory: Path) -> None:
    """Remove what killed writers left below a directory. The caller is the only writer there."""
    for leftover in list(directory.rglob(f".*{PARTIAL}")):
        if _owner(leftover) is not None or _PART.fullmatch(leftover.name):
            _remove(leftover)


def sweep_beside(target: Path) -> None:
    """Remove what killed writers of one output left beside it. The caller is the only writer of it."""
    for leftover in list(target.parent.glob(f".*{PARTIAL}")):
        if _owner(leftover) == target.name:
            _remove(leftover)


def _owner(leftover: Path, ending: str = PARTIAL) -> str | None:
    """The name of the output that a temporary file was made for; None for files of other people."""
    found = _OURS.fullmatch(leftover.name.removesuffix(ending))
    return found[1] if found and leftover.name.endswith(ending) else None


def _remove(leftover: Path) -> None:
    if leftover.is_dir() and not leftover.is_symlink():
        shutil.rmtree(leftover, ignore_errors=True)
    else:
        leftover.unlink(missing_ok=True)
