"""What kind of rows an object of a program is. The one place that says it.

An object is asked what it has, not of which class it is: so no package has to be there, nor be imported, whose objects
nobody gave.
"""

from __future__ import annotations

from typing import Any

ON_DISK = ("h5py", "zarr", "dask")
"""Packages whose arrays are read in slices, or block by block, and never put together."""


def is_dask(X: Any) -> bool:
    """Return whether X is a dask array or data frame: its blocks are computed when they are asked for."""
    return hasattr(X, "__dask_graph__")


def is_annotated(X: Any) -> bool:
    """Return whether X is a matrix with what is said of its rows and columns (AnnData): ``X.X``, ``X.obs``, ``X.var_names``."""
    return hasattr(X, "obs")


def is_lazy_frame(X: Any) -> bool:
    """Return whether X is a frame of polars that has not been computed: it has no stream, and writes its rows itself."""
    return hasattr(X, "sink_parquet") and not hasattr(X, "__arrow_c_stream__")


def gives_batches(X: Any) -> bool:
    """Return whether X is a table that gives record batches of Arrow: by the Arrow PyCapsule interface, as a dataset or
    a scanner of pyarrow, or as a lazy frame.
    """
    dataset = _package(X) == "pyarrow" and hasattr(X, "to_batches")
    return hasattr(X, "__arrow_c_stream__") or dataset or is_lazy_frame(X)


def is_array(X: Any) -> bool:
    """Return whether rows can be taken of X by their numbers: arrays, sparse ones included, and what ``is_annotated``."""
    return is_annotated(X) or (hasattr(X, "__getitem__") and len(getattr(X, "shape", ())) == 2)


def is_given(X: Any) -> bool:
    """Return whether X is rows, not names of files: a table, or an array."""
    return gives_batches(X) or is_array(X)


def is_on_disk(X: Any) -> bool:
    """Return whether X is an array that is read in slices or block by block."""
    return is_annotated(X) or is_dask(X) or _package(X) in ON_DISK


def is_frame(X: Any) -> bool:
    """Return whether X is a table whose columns have names: a data frame."""
    return hasattr(X, "columns")


def is_numeric_frame(X: Any) -> bool:
    """Return whether X is a data frame in memory that is an array of numbers as it stands: of pandas or polars."""
    if not hasattr(X, "to_numpy"):  # asked first: a lazy frame would have to work for its types
        return False
    kinds = getattr(X, "dtypes", None)
    return kinds is not None and all(
        kind.is_numeric() if hasattr(kind, "is_numeric") else getattr(kind, "kind", "O") in "fiub" for kind in kinds
    )


def _package(X: Any) -> str:
    return type(X).__module__.partition(".")[0]
