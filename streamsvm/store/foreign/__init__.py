"""Arrays other programs wrote, in HDF5 files and Zarr directories: read by their libraries, once they are found
harmless.

They have no checksums of ours. What can be known is checked before anything is read: that every chunk is there, that
nothing points to other files, that no filter plugin is needed, and how much memory a chunk needs.

    store       as a store, read in place
    matrices    which arrays are features, labels and names; dense, CSR, CSC, AnnData
    zarr_files  Zarr directories, checked
    hdf5_files  HDF5 files, checked
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from streamsvm.errors import DataError, StorageError, UsageError
from streamsvm.input_files import is_file, is_folder, open_regular

if TYPE_CHECKING:
    from streamsvm.store.foreign.matrices import Foreign, Keys

MANIFEST = "manifest.json"
ZARR_FILES = ("zarr.json", ".zgroup", ".zarray")
HDF5_MAGIC = b"\x89HDF\r\n\x1a\n"
USER_BLOCKS = 12
"""HDF5 may begin after a user block of 512, 1024, ... bytes: the number of sizes that are tried, up to 1 MiB."""
NO_CHECKSUMS = "sources have no checksums of ours: damage to them since they were written cannot be noticed"


def foreign_format(path: Path) -> str | None:
    """Return 'zarr' or 'hdf5' for files that other programs wrote; None for our own stores and everything else."""
    if is_folder(path):
        return "zarr" if any((path / name).is_file() for name in ZARR_FILES) and not _is_ours(path) else None
    if not is_file(path):
        return None
    try:
        with open(open_regular(path, follow=True), "rb") as file:
            return "hdf5" if _is_hdf5(file) else None
    except OSError as error:
        raise StorageError(
            f"reading {path} failed: {error.strerror}", hint="check the disk and its permissions"
        ) from error


def _is_hdf5(file: BinaryIO) -> bool:
    """Return whether a file is HDF5: it begins with the signature, perhaps after a user block, as MATLAB writes one."""
    for at in (0, *(512 << k for k in range(USER_BLOCKS))):
        file.seek(at)
        found = file.read(len(HDF5_MAGIC))
        if found == HDF5_MAGIC:
            return True
        if len(found) < len(HDF5_MAGIC):
            break
    return False


def _is_ours(path: Path) -> bool:
    """Whether a folder is a store of ours, perhaps unfinished."""
    if (path / MANIFEST).exists():
        return True
    from streamsvm.store.foreign.zarr_files import read_attributes

    return "streamsvm" in read_attributes(path)


def open_foreign(path: Path, kind: str, keys: Keys) -> Foreign:
    """Open the arrays of features and labels that ``keys`` names.

    ``kind`` is 'zarr' or 'hdf5'. Raises DataError, SecurityError, MissingError, UsageError.
    """
    from streamsvm.store.foreign.hdf5_files import open_hdf5_file
    from streamsvm.store.foreign.zarr_files import open_zarr_directory

    found = (open_zarr_directory if kind == "zarr" else open_hdf5_file)(path, keys)
    if found.labels is None and keys.labels_needed:
        hint = "name the array of labels: --labels-key"
        raise UsageError(f"{path} has no array {keys.labels!r}", hint=hint)
    if found.labels is not None and found.labels.shape != (found.features.rows,):
        text = f"{keys.features!r} of {path} has {found.features.rows} rows, {keys.labels!r} the shape "
        raise DataError(f"{text}{found.labels.shape}", code="E-ROWS", hint="one label a row")
    return found
