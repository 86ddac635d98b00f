"""What kind of rows an object of a program is. The one place that says it.

An object is asked what it has, not of which class it is: so no package has to be there, nor be imported, whose objects
nobody gave. What is asked for is written down as protocols, one for each door there is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from os import PathLike
from typing import Any, Protocol, runtime_checkable

from streamsvm.errors import UsageError

ON_DISK = ("h5py", "zarr", "dask")
"""Packages whose arrays are read in slices, or block by block, and never put together."""


STORED_TABLES = {
    "deltalake": ("to_pyarrow_dataset",),
    "pyiceberg": ("scan", "to_arrow_batch_reader"),
    "lance": ("to_batches",),
    "datasets": ("iter",),
}
"""By package, the method of its tables that gives their rows; the packages are not imported."""
UNREADABLE = {
    "pyspark": "write them, X.write.parquet('rows'), and name the files: 'rows/*.parquet'",
    "ray": "write them, X.write_parquet('rows'), and name the files: 'rows/*.parquet'",
    "datasets": "choose a part, such as X['train']",
    "numpy": "give it two dimensions, (rows, columns): X.reshape(-1, 1) for one column",
    "builtins": "give rows as an array, np.asarray(X), or name files",
}
"""By package, what to do with rows that are not read as they are."""


@runtime_checkable
class DaskCollection(Protocol):
    """A dask array or data frame."""

    def __dask_graph__(self) -> Any:
        """Return the tasks that compute it."""


@runtime_checkable
class AnnotatedMatrix(Protocol):
    """A matrix with what is said of its rows and columns (AnnData): ``X.X``, ``X.obs``, ``X.var_names``."""

    obs: Any
    """A table of what is said of the rows."""


@runtime_checkable
class ArrowStream(Protocol):
    """A table that gives record batches by the Arrow PyCapsule interface."""

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        """Return a capsule of the stream."""


@runtime_checkable
class RecordBatches(Protocol):
    """A dataset or a scanner of pyarrow."""

    def to_batches(self) -> Any:
        """Return its record batches."""


@runtime_checkable
class SunkFrame(Protocol):
    """A frame of polars that writes its rows itself."""

    def sink_parquet(self, path: Any) -> Any:
        """Write the rows to a file."""


@runtime_checkable
class FrameInBatches(Protocol):
    """A lazy frame of a polars that gives its rows as they are computed."""

    collect_batches: Callable[..., Any]
    """Returns frames of so many rows each (``chunk_size``), in order if that is asked for (``maintain_order``)."""


@runtime_checkable
class Relation(Protocol):
    """A relation of DuckDB, whose stream is of a result that is all there; its record batches are made as they are asked for."""

    columns: Any
    """The names of its columns."""

    to_arrow_reader: Callable[[int], Any]
    """Returns its record batches, of so many rows."""


@runtime_checkable
class FormerRelation(Protocol):
    """A relation of an earlier DuckDB."""

    columns: Any
    """The names of its columns."""

    fetch_arrow_reader: Callable[[int], Any]
    """Returns its record batches, of so many rows."""


@runtime_checkable
class Shaped(Protocol):
    """An array of which rows can be taken."""

    shape: Any
    """Rows and columns."""

    def __getitem__(self, rows: Any) -> Any:
        """Return some rows."""


@runtime_checkable
class SparseMatrix(Protocol):
    """A matrix that knows how many of its entries are stored."""

    nnz: int
    """The number of stored entries."""


@runtime_checkable
class Chunked(Protocol):
    """An array on disk that is stored in chunks."""

    chunks: Any
    """The rows and columns of one; None where it lies there as a whole."""


@runtime_checkable
class NamedColumns(Protocol):
    """A table whose columns have names."""

    columns: Any
    """The names."""


@runtime_checkable
class FrameInMemory(Protocol):
    """A data frame that is there as a whole: of pandas or polars."""

    def to_numpy(self) -> Any:
        """Return it as an array."""


@runtime_checkable
class TypedColumns(Protocol):
    """A table whose columns have types."""

    dtypes: Iterable[Any]
    """The types."""


@runtime_checkable
class PolarsType(Protocol):
    """The type of a column of polars."""

    def is_numeric(self) -> bool:
        """Return whether it is one of numbers."""


@runtime_checkable
class NumpyType(Protocol):
    """The type of a column of pandas or numpy."""

    kind: str
    """Its letter."""


def is_dask(X: object) -> bool:
    """Return whether X is a dask array or data frame: its blocks are computed when they are asked for."""
    return isinstance(X, DaskCollection)


def is_dask_frame(X: object) -> bool:
    """Return whether X is a data frame of dask."""
    return is_dask(X) and isinstance(X, NamedColumns)


def is_annotated(X: object) -> bool:
    """Return whether X is a matrix with what is said of its rows and columns (AnnData): ``X.X``, ``X.obs``, ``X.var_names``."""
    return isinstance(X, AnnotatedMatrix)


def is_lazy_frame(X: object) -> bool:
    """Return whether X is a frame of polars that has not been computed: it has no stream, and writes its rows itself."""
    return isinstance(X, SunkFrame) and not isinstance(X, ArrowStream)


def is_stored_table(X: object) -> bool:
    """Return whether X is a table of Delta Lake, Iceberg, Lance or Hugging Face that lies in files of its own and can give record batches."""
    return any(hasattr(X, method) for method in STORED_TABLES.get(_package(X), ()))


def check_readable(X: object) -> None:
    """Raise UsageError for an object that is neither rows nor names of files, with what to pass in its place."""
    if isinstance(X, str | bytes | PathLike | None) or is_given(X) or is_dask(X):
        return
    hint = "give a data frame, an Arrow table or reader, or an array; or write the rows to Parquet and name the file"
    hint = UNREADABLE.get(_package(X), hint)
    raise UsageError(f"rows cannot be read from an object of {type(X).__module__}.{type(X).__qualname__}", hint=hint)


def is_lazy(X: object) -> bool:
    """Return whether X has to be computed before there are values: a collection of dask, a lazy frame, a relation."""
    return is_dask(X) or is_lazy_frame(X) or isinstance(X, Relation | FormerRelation)


def gives_batches(X: object) -> bool:
    """Return whether X is a table that gives record batches of Arrow: by the Arrow PyCapsule interface, as a dataset or
    a scanner of pyarrow, or as a lazy frame.
    """
    dataset = _package(X) == "pyarrow" and isinstance(X, RecordBatches)
    return isinstance(X, ArrowStream) or dataset or is_lazy_frame(X) or is_stored_table(X)


def is_array(X: object) -> bool:
    """Return whether rows can be taken of X by their numbers: arrays, sparse ones included, and what ``is_annotated``."""
    return is_annotated(X) or (isinstance(X, Shaped) and len(X.shape) == 2)


def is_given(X: object) -> bool:
    """Return whether X is rows, not names of files: a table, or an array."""
    return gives_batches(X) or is_array(X)


def is_on_disk(X: object) -> bool:
    """Return whether X is an array that is read in slices or block by block."""
    return is_annotated(X) or is_dask(X) or _package(X) in ON_DISK


def needs_ingest(X: object) -> bool:
    """Return whether X is anything but numbers in memory: a path, a table with other columns than numbers, an array on disk."""
    if isinstance(X, str | PathLike):
        return True
    return is_on_disk(X) or (gives_batches(X) and not is_numeric_frame(X))


def is_frame(X: object) -> bool:
    """Return whether X is a table whose columns have names: a data frame."""
    return isinstance(X, NamedColumns)


def is_numeric_frame(X: object) -> bool:
    """Return whether X is a data frame in memory that is an array of numbers as it stands: of pandas or polars."""
    # whether it is in memory is asked first: a lazy frame would have to work for its types
    return isinstance(X, FrameInMemory) and isinstance(X, TypedColumns) and all(map(_is_number_type, X.dtypes))


def _is_number_type(kind: object) -> bool:
    if isinstance(kind, PolarsType):
        return kind.is_numeric()
    return isinstance(kind, NumpyType) and kind.kind in "fiub"


def _package(X: object) -> str:
    return type(X).__module__.partition(".")[0]
