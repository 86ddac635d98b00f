"""Open HDF5 files that other programs may have written, and check them before a byte of a dataset is read.

An HDF5 file can make the library open other files (external storage, external links, virtual datasets) and load code
(filter plugins). Both are refused, because data must not decide what is opened or run. The part files of an HDF5 store
are opened in the same way.
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
"""The filters that are part of HDF5 or h5py, except szip (4), which not every build can read."""
HINT_CLOSED = "write it again, or copy it from where it is whole"
HINT_SWMR = "a writer was killed, or still writes: check with h5ls, then 'h5clear -s FILE'"
HINT_LINK = "copy the data into one plain file: h5repack"
MOST_LINKS = 16
"""The most soft links that are followed to reach a member."""


class DatasetChunk(NamedTuple):
    """The first row of a chunk of a dataset, and the place of its bytes in the file."""

    row: int
    offset: int
    nbytes: int


@contextmanager
def open_h5(path: Path) -> Iterator[H5Object]:
    """Open the file for reading. Raises MissingError, DataError E-HDF5, StorageError."""
    import h5py

    try:
        os.close(open_regular(path, follow=True))  # refuses a pipe, on whose writer the library would wait for ever
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
        message = f"{path} was not closed properly, or was cut: {quote(text, 160)}"
        return DataError(message, code="E-HDF5", hint=HINT_CLOSED)
    return DataError(f"{path} is no HDF5 file: {quote(text, 160)}", code="E-HDF5", hint=HINT_CLOSED)


def member(file: H5Object, key: str, path: Path, *, soft_links: bool = False) -> H5Object:
    """Return the dataset or group ``key``, as ``find`` does. Raises DataError E-SCHEMA, SecurityError."""
    node = find(file, key, path, soft_links=soft_links)
    if node is None:
        names = ", ".join(quote(k, 40) for k in list(file)[:12])
        raise DataError(f"{path} has no array {quote(key)}", code="E-SCHEMA", hint=f"it has {names}")
    return node


def find(file: H5Object, key: str, path: Path, *, soft_links: bool = False) -> H5Object | None:
    """Return the dataset or group ``key``; None if there is none.

    Hard links are followed; soft links, which stay in the file, only if ``soft_links`` is set. Raises SecurityError for
    any other link.
    """
    import h5py

    node, names, links = file, _split_path(key), 0
    parents: list[H5Object] = []
    while names:
        name = names.pop(0)
        if name == b"..":
            node = parents.pop() if parents else node
            continue
        if not isinstance(node, h5py.Group) or name not in node.id:
            return None
        kind = node.id.links.get_info(name).type
        if kind == h5py.h5l.TYPE_SOFT and soft_links and links < MOST_LINKS:
            target, links = node.id.links.get_val(name), links + 1
            if target.startswith(b"/"):
                node, parents = file, []
            names = _split_path(target) + names
            continue
        if kind != h5py.h5l.TYPE_HARD:
            raise SecurityError(f"{quote(key)} of {path} is a symbolic link", hint=HINT_LINK)
        parents.append(node)
        node = node[name]
    return node


def _split_path(path: str | bytes) -> list[bytes]:
    """Return the names in a path inside a file."""
    text = path.encode() if isinstance(path, str) else path
    return [name for name in text.split(b"/") if name not in (b"", b".")]


def require_plain(dataset: H5Object, path: Path) -> H5Object:
    """Return the dataset if its data are in this file and need no filter plugin. Raises SecurityError otherwise."""
    import h5py

    properties = dataset.id.get_create_plist()
    if properties.get_layout() == h5py.h5d.VIRTUAL:
        raise SecurityError(f"'{dataset.name}' of {path} is a virtual dataset: its data are elsewhere", hint=HINT_LINK)
    if properties.get_external_count():
        raise SecurityError(f"'{dataset.name}' of {path} has external storage: its data are elsewhere", hint=HINT_LINK)
    for number in range(properties.get_nfilters()):
        code = properties.get_filter(number)[0]
        if code not in BUILT_IN_FILTERS:
            filters = ", ".join(f"{name} ({k})" for k, name in BUILT_IN_FILTERS.items())
            message = f"'{dataset.name}' of {path} is compressed by filter {code}, which is not part of HDF5"
            raise SecurityError(message, code="E-FILTER", hint=f"write it again with one of {filters}: h5repack")
    return dataset


def is_filtered(dataset: H5Object) -> bool:
    """Return whether the chunks of a dataset pass through filters, such as compression."""
    return bool(dataset.id.get_create_plist().get_nfilters())


def chunks_of(dataset: H5Object, path: Path, *, allow_fill: bool = False) -> list[DatasetChunk]:
    """Return the chunks of a dataset in the order of rows. Raises DataError E-CHUNKS if one was never written, unless
    ``allow_fill`` is set.
    """
    chunks: list[DatasetChunk] = []
    dataset.id.chunk_iter(
        lambda chunk: chunks.append(DatasetChunk(chunk.chunk_offset[0], chunk.byte_offset, chunk.size))
    )
    chunks.sort()
    expected = 1
    for size, step in zip(dataset.shape, dataset.chunks, strict=True):
        expected *= -(-size // step)
    if len(chunks) != expected and not allow_fill:
        message = (
            f"'{dataset.name}' of {path} has {len(chunks)} of {expected} chunks: the others would read as fill values"
        )
        hint = "write it again; if the missing chunks are meant to be fill values, pass --allow-fill"
        raise DataError(message, code="E-CHUNKS", hint=hint)
    return chunks


def find_gaps(units: list[DatasetChunk], nbytes: int) -> list[tuple[int, int]]:
    """Return the byte ranges, as (offset, length), of a file of ``nbytes`` bytes that belong to no unit."""
    gaps, end = [], 0
    for unit in sorted(units, key=lambda u: u.offset):
        if unit.offset > end:
            gaps.append((end, unit.offset - end))
        end = unit.offset + unit.nbytes
    return gaps if end == nbytes else [*gaps, (end, nbytes - end)]
