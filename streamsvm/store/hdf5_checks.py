"""HDF5 files that others may have made: opened, and checked before a byte of a dataset is read.

An HDF5 file can ask for other files (external storage, external links, virtual datasets) and for code (filters loaded by
number). Data must not ask for either, so all of it is refused. Our own part files are opened in the same way.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

from streamsvm.errors import DataError, MissingError, SecurityError, StorageError, quote
from streamsvm.input_files import open_regular
from streamsvm.store.disk_reads import is_disk_error

H5Object: TypeAlias = Any
"""A file, group or dataset of h5py, which ships no types."""
BUILT_IN_FILTERS = {1: "gzip", 2: "shuffle", 3: "fletcher32", 6: "scale-offset", 32000: "lzf"}
"""The filters of HDF5 and h5py themselves; szip (4) is left out, because not every build can read it."""
HINT_CLOSED = "write it again, or copy it from where it is whole"
HINT_SWMR = "a writer was killed, or still writes: check with h5ls, then 'h5clear -s FILE'"
HINT_LINK = "copy the data into one plain file: h5repack"
MOST_LINKS = 16
"""Soft links that are followed on the way to a member."""


class DatasetChunk(NamedTuple):
    """One chunk of a dataset: its first row, and where its bytes are."""

    row: int
    """The number of its first row."""
    offset: int
    nbytes: int


@contextmanager
def open_h5(path: Path) -> Iterator[H5Object]:
    """Open the file for reading. Raises MissingError, DataError E-HDF5, StorageError."""
    import h5py

    try:
        os.close(open_regular(path, follow=True))  # the library waits for ever for the writer of a pipe
        file = h5py.File(path, "r", rdcc_nbytes=0, locking=False)
    except FileNotFoundError as error:
        raise MissingError(f"{path} does not exist", hint="check the name and the directory") from error
    except OSError as error:
        raise _open_error(path, error) from error
    try:
        yield file
    except (OSError, RuntimeError, KeyError, ValueError) as error:
        if is_disk_error(error):
            raise StorageError(f"reading {path} failed: {os.strerror(errno.EIO)}", hint="check the disk") from error
        raise DataError(f"{path} is damaged: {quote(str(error), 160)}", code="E-HDF5", hint=HINT_CLOSED) from error
    finally:
        file.close()


def _open_error(path: Path, error: OSError) -> DataError | StorageError:
    text = str(error)
    if error.errno is not None and error.errno in (errno.EACCES, errno.EIO):
        return StorageError(
            f"opening {path} failed: {os.strerror(error.errno)}", hint="check the disk and its permissions"
        )
    if "consistency flags" in text or "already open" in text:
        return DataError(f"{path} is marked as open for writing", code="E-HDF5", hint=HINT_SWMR)
    if "truncated" in text or "unable to" in text.lower():
        found = f"{path} was not closed properly, or was cut: {quote(text, 160)}"
        return DataError(found, code="E-HDF5", hint=HINT_CLOSED)
    return DataError(f"{path} is no HDF5 file: {quote(text, 160)}", code="E-HDF5", hint=HINT_CLOSED)


def member(file: H5Object, key: str, path: Path, *, soft_links: bool = False) -> H5Object:
    """Return the dataset or group ``key``; see ``find``. Raises DataError E-SCHEMA, SecurityError."""
    found = find(file, key, path, soft_links=soft_links)
    if found is None:
        there = ", ".join(quote(k, 40) for k in list(file)[:12])
        raise DataError(f"{path} has no array {quote(key)}", code="E-SCHEMA", hint=f"it has {there}")
    return found


def find(file: H5Object, key: str, path: Path, *, soft_links: bool = False) -> H5Object | None:
    """Return the dataset or group ``key``, reached by hard links, and by ``soft_links`` where they are allowed, which
    stay in the file; None where there is none. Raises SecurityError for other links.
    """
    import h5py

    found, names, links = file, _names_in(key), 0
    above: list[H5Object] = []
    while names:
        name = names.pop(0)
        if name == b"..":
            found = above.pop() if above else found
            continue
        if not isinstance(found, h5py.Group) or name not in found.id:
            return None
        kind = found.id.links.get_info(name).type
        if kind == h5py.h5l.TYPE_SOFT and soft_links and links < MOST_LINKS:
            target, links = found.id.links.get_val(name), links + 1
            if target.startswith(b"/"):
                found, above = file, []
            names = _names_in(target) + names
            continue
        if kind != h5py.h5l.TYPE_HARD:
            raise SecurityError(f"{quote(key)} of {path} is a symbolic link", hint=HINT_LINK)
        above.append(found)
        found = found[name]
    return found


def _names_in(place: str | bytes) -> list[bytes]:
    """The names on the way to a place in a file."""
    text = place.encode() if isinstance(place, str) else place
    return [name for name in text.split(b"/") if name not in (b"", b".")]


def require_plain(dataset: H5Object, path: Path) -> H5Object:
    """Return a dataset that lies in this file and needs no filter plugin. Raises SecurityError, DataError."""
    import h5py

    made = dataset.id.get_create_plist()
    if made.get_layout() == h5py.h5d.VIRTUAL:
        raise SecurityError(f"'{dataset.name}' of {path} is a virtual dataset: its data are elsewhere", hint=HINT_LINK)
    if made.get_external_count():
        raise SecurityError(f"'{dataset.name}' of {path} has external storage: its data are elsewhere", hint=HINT_LINK)
    for number in range(made.get_nfilters()):
        code = made.get_filter(number)[0]
        if code not in BUILT_IN_FILTERS:
            known = ", ".join(f"{name} ({k})" for k, name in BUILT_IN_FILTERS.items())
            found = f"'{dataset.name}' of {path} is compressed by filter {code}, which is not part of HDF5"
            raise SecurityError(found, code="E-FILTER", hint=f"write it again with one of {known}: h5repack")
    return dataset


def is_filtered(dataset: H5Object) -> bool:
    """Return whether chunks are compressed or otherwise changed on disk."""
    return bool(dataset.id.get_create_plist().get_nfilters())


def chunks_of(dataset: H5Object, path: Path, *, allow_fill: bool = False) -> list[DatasetChunk]:
    """Return the chunks of a dataset, in the order of rows. Raises DataError E-CHUNKS when one was never written."""
    found: list[DatasetChunk] = []
    dataset.id.chunk_iter(
        lambda chunk: found.append(DatasetChunk(chunk.chunk_offset[0], chunk.byte_offset, chunk.size))
    )
    found.sort()
    expected = 1
    for size, step in zip(dataset.shape, dataset.chunks, strict=True):
        expected *= -(-size // step)
    if len(found) != expected and not allow_fill:
        text = f"'{dataset.name}' of {path} has {len(found)} of {expected} chunks: the others would read as fill values"
        raise DataError(text, code="E-CHUNKS", hint="write it again; if they are meant to be, pass --allow-fill")
    return found


def gaps(units: list[DatasetChunk], nbytes: int) -> list[tuple[int, int]]:
    """Return the (offset, length) of the bytes of a file that belong to no unit."""
    found, at = [], 0
    for unit in sorted(units, key=lambda u: u.offset):
        if unit.offset > at:
            found.append((at, unit.offset - at))
        at = unit.offset + unit.nbytes
    return found if at == nbytes else [*found, (at, nbytes - at)]
