"""Standard input as a source: kept in a file beside the output, because a source is read more than once."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from streamsvm.durable import PARTIAL, write_stream
from streamsvm.errors import UsageError
from streamsvm.locks import scratch_beside

STANDARD_INPUT = "-"
"""What stands for standard input among the names of sources."""
NAME = "standard-input"
"""The file it is kept in, which messages call it by."""
PIECE = 1 << 20
"""Bytes that are copied at a time."""


def source_name(name: str) -> str:
    """Return the name a source is recorded by: the file that standard input was kept in is called by what it holds."""
    path = Path(name)
    return "standard input" if path.name == NAME and path.parent.name.endswith(PARTIAL) else name


@contextmanager
def standard_input(names: Sequence[Path | str], beside: Path, *, cluster: bool) -> Iterator[tuple[str, ...]]:
    """Give the names with "-" replaced by a file of what standard input holds, which lies beside an output.

    The bytes are copied as they are, so that all that may be in a file may come this way, and the file is removed when
    the context ends. Raises UsageError before a byte is taken for a terminal, for "-" twice and where a ``cluster``
    would have to see the file; StorageError when there is no room for it.
    """
    if STANDARD_INPUT not in map(str, names):
        yield tuple(map(str, names))
        return
    _check(names, cluster=cluster)
    with scratch_beside(beside) as directory:
        file = directory / NAME
        write_stream(file, iter(partial(sys.stdin.buffer.read, PIECE), b""))
        yield tuple(str(file) if str(name) == STANDARD_INPUT else str(name) for name in names)


def _check(names: Sequence[Path | str], *, cluster: bool) -> None:
    if cluster:
        hint = "write it to a file that they can read, or leave out --cluster"
        raise UsageError("the workers of a cluster cannot read standard input", hint=hint)
    if list(map(str, names)).count(STANDARD_INPUT) > 1:
        raise UsageError("standard input, -, is named twice, and can be read once", hint="name it once")
    if sys.stdin is None or sys.stdin.isatty():
        hint = "pipe rows in, as in 'zcat FILE | streamsvm ... -', or name a file"
        raise UsageError("- is standard input, and that is a terminal", hint=hint)
