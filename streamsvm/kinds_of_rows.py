"""What kind of rows an object of a program is: ``kind_of`` alone decides it, for commands, estimators and models.

An object is asked what it has, not of which class it is: so no package has to be there, nor be imported, whose objects
nobody gave. What is asked for is written down as protocols.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from enum import Enum, auto
from os import PathLike
from typing import Any, Protocol, runtime_checkable

from streamsvm.errors import UsageError

ON_DISK = ("h5py", "zarr")
"""Packages whose arrays are read in slices and never put together."""
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


class RowKind(Enum):
    """Kinds of rows, by how they are read."""

    FILES = auto()
    """Names of files, of directories, or of a store; also None."""
    ARRAY = auto()
    """Numbers in memory, (n, d): of numpy, scipy.sparse, or anything that gives rows by their numbers."""
    DISK_ARRAY = auto()
    """An array of h5py or Zarr."""
    ANNOTATED = auto()
    """A matrix with what is said of its rows and columns (AnnData): ``X.X``, ``X.obs``, ``X.var_names``."""
    FRAME = auto()
    """A table in memory that can be read again and again: a data frame of pandas or polars, a table of pyarrow."""
    STREAM = auto()
    """A table that gives record batches by the Arrow PyCapsule interface, perhaps once."""
    DATASET = auto()
    """A dataset or a scanner of pyarrow."""
    LAZY_FRAME = auto()
    """A frame of polars that was not computed: it has no stream."""
    STORED_TABLE = auto()
    """A table of Delta Lake, Iceberg, Lance or Hugging Face, which lies in files of its own."""
    DASK_ARRAY = auto()
    DASK_FRAME = auto()
    OTHER = auto()
    """Nothing that rows can be read from."""


TABLES = frozenset({RowKind.FRAME, RowKind.STREAM, RowKind.DATASET, RowKind.LAZY_FRAME, RowKind.STORED_TABLE})
"""Kinds that give record batches of Arrow."""
ARRAYS = frozenset({RowKind.ARRAY, RowKind.DISK_ARRAY, RowKind.ANNOTATED})
"""Kinds of which rows can be taken by their numbers."""
DASK = frozenset({RowKind.DASK_ARRAY, RowKind.DASK_FRAME})
"""Kinds whose blocks are computed when they are asked for."""
WITH_COLUMN_NAMES = TABLES | {RowKind.DASK_FRAME}
"""Kinds whose columns are found by their names."""


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


def _are_names(X: Any) -> bool:
    if isinstance(X, list | tuple):
        return all(isinstance(part, str | PathLike) for part in X)
    return X is None or isinstance(X, str | bytes | PathLike)


def _is_stored_table(X: Any) -> bool:
    return any(hasattr(X, method) for method in STORED_TABLES.get(package_of(X), ()))


def _is_table_in_memory(X: Any) -> bool:
    there = isinstance(X, FrameInMemory) or package_of(X) == "pyarrow"
    return there and isinstance(X, ArrowStream) and isinstance(X, NamedColumns)


def _is_matrix(X: Any) -> bool:
    return isinstance(X, Shaped) and len(X.shape) == 2


_TESTS: tuple[tuple[RowKind, Callable[[Any], bool]], ...] = (
    (RowKind.FILES, _are_names),
    (RowKind.DASK_FRAME, lambda X: isinstance(X, DaskCollection) and isinstance(X, NamedColumns)),
    (RowKind.DASK_ARRAY, lambda X: isinstance(X, DaskCollection)),
    (RowKind.STORED_TABLE, _is_stored_table),
    (RowKind.FRAME, _is_table_in_memory),
    (RowKind.STREAM, lambda X: isinstance(X, ArrowStream)),
    (RowKind.LAZY_FRAME, lambda X: isinstance(X, SunkFrame)),
    (RowKind.DATASET, lambda X: package_of(X) == "pyarrow" and isinstance(X, RecordBatches)),
    # after tables, which may have a column of this name
    (RowKind.ANNOTATED, lambda X: isinstance(X, AnnotatedMatrix)),
    (RowKind.DISK_ARRAY, lambda X: package_of(X) in ON_DISK and _is_matrix(X)),
    (RowKind.ARRAY, _is_matrix),
)
"""By kind, the test that its objects pass; the first that an object passes is its kind."""


def kind_of(X: object) -> RowKind:
    """Return the kind of an object that stands for rows."""
    return next((kind for kind, passes in _TESTS if passes(X)), RowKind.OTHER)


def check_readable(X: object) -> None:
    """Raise UsageError for an object that is neither rows nor names of files, with what to pass in its place."""
    if kind_of(X) is not RowKind.OTHER:
        return
    hint = "give a data frame, an Arrow table or reader, or an array; or write the rows to Parquet and name the file"
    hint = UNREADABLE.get(package_of(X), hint)
    raise UsageError(f"rows cannot be read from an object of {type(X).__module__}.{type(X).__qualname__}", hint=hint)


def needs_ingest(X: object) -> bool:
    """Return whether X is anything but numbers in memory: a path, a table with other columns than numbers, an array on disk."""
    kind = kind_of(X)
    if kind is RowKind.FILES:
        return isinstance(X, str | PathLike)
    if kind is RowKind.FRAME:
        return not is_numeric_frame(X)
    return kind not in (RowKind.ARRAY, RowKind.OTHER) or package_of(X) in ON_DISK


def is_lazy(values: object) -> bool:
    """Return whether labels or weights have to be computed before there are values: by dask, polars or DuckDB."""
    lazy = kind_of(values) in (*DASK, RowKind.LAZY_FRAME)
    return lazy or isinstance(values, Relation | FormerRelation)


def is_frame(X: object) -> bool:
    """Return whether X is a table whose columns have names: a data frame."""
    return isinstance(X, NamedColumns)


def is_numeric_frame(X: object) -> bool:
    """Return whether X is a data frame in memory that is an array of numbers as it stands: of pandas or polars."""
    # whether it is in memory is asked first: a lazy frame would have to work for its types
    return isinstance(X, FrameInMemory) and isinstance(X, TypedColumns) and all(map(_is_number_type, X.dtypes))


def package_of(X: object) -> str:
    """Return the name of the package of an object's class."""
    return type(X).__module__.partition(".")[0]


def _is_number_type(kind: object) -> bool:
    if isinstance(kind, PolarsType):
        return kind.is_numeric()
    return isinstance(kind, NumpyType) and kind.kind in "fiub"
