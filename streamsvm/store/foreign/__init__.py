"""HDF5 files and Zarr directories of other programs; they are checked first and then read by h5py and zarr-python.

They lack the checksums that a streamsvm store has. Before rows are read, it is checked that every chunk exists, that
nothing refers to other files, that no filter plugin is needed, and how much memory a chunk takes.

    store       such a file as a store, read in place
    matrices    find features, labels and names of columns: dense, CSR, CSC, AnnData
    zarr_files  open and check Zarr directories
    hdf5_files  open and check HDF5 files
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
"""The number of sizes of user blocks that are tried, from 512 bytes to 1 MiB; HDF5 may begin after such a block."""
NO_CHECKSUMS = "sources have no checksums of ours: damage to them since they were written cannot be noticed"


def foreign_format(path: Path) -> str | None:
    """Return 'zarr' or 'hdf5' for data of other programs; None for streamsvm's stores and all other paths. Raises
    StorageError.
    """
    if is_folder(path):
        return "zarr" if any((path / name).is_file() for name in ZARR_FILES) and not _is_own_store(path) else None
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
    """Return whether a file has the signature of HDF5, at its start or after a user block, as MATLAB writes one."""
    for offset in (0, *(512 << k for k in range(USER_BLOCKS))):
        file.seek(offset)
        signature = file.read(len(HDF5_MAGIC))
        if signature == HDF5_MAGIC:
            return True
        if len(signature) < len(HDF5_MAGIC):
            break
    return False


def _is_own_store(path: Path) -> bool:
    """Return whether a folder is a store that streamsvm has written, finished or not."""
    if (path / MANIFEST).exists():
        return True
    from streamsvm.store.foreign.zarr_files import read_attributes

    return "streamsvm" in read_attributes(path)


def open_foreign(path: Path, kind: str, keys: Keys) -> Foreign:
    """Open the arrays of features and labels that ``keys`` names.

    ``kind`` is 'zarr' or 'hdf5'. Raises DataError, SecurityError and MissingError for faults of the files, UsageError
    if the required labels are missing.
    """
    from streamsvm.store.foreign.hdf5_files import open_hdf5_file
    from streamsvm.store.foreign.zarr_files import open_zarr_directory

    foreign = (open_zarr_directory if kind == "zarr" else open_hdf5_file)(path, keys)
    if foreign.labels is None and keys.labels_needed:
        hint = "name the array of labels: --labels-key"
        raise UsageError(f"{path} has no array {keys.labels!r}", hint=hint)
    if foreign.labels is not None and foreign.labels.shape != (foreign.features.rows,):
        message = f"{keys.features!r} of {path} has {foreign.features.rows} rows, {keys.labels!r} the shape "
        raise DataError(f"{message}{foreign.labels.shape}", code="E-ROWS", hint="one label a row")
    return foreign
