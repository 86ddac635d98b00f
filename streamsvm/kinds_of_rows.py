"""The kinds of objects that can be passed as rows: arrays, data frames, Arrow streams, files. ``kind_of`` returns the kind of an object.

Kinds are recognized by the attributes and methods of an object, which are declared here as protocols, and not by its class. So no package
has to be installed or imported only to recognize its objects.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from enum import Enum, auto
from os import PathLike
from typing import Any, Protocol, cast, runtime_checkable

from streamsvm.errors import UsageError

ON_DISK = ("h5py", "zarr")
"""Packages whose arrays are on disk; they are read in slices and never as a whole."""
STORED_TABLES = {
    "deltalake": ("to_pyarrow_dataset",),
    "pyiceberg": ("scan", "to_arrow_batch_reader"),
    "lance": ("to_batches",),
    "datasets": ("iter",),
}
"""The methods, by package, that return the rows of its tables; the packages are not imported."""
UNREADABLE = {
    "pyspark": "write them, X.write.parquet('rows'), and name the files: 'rows/*.parquet'",
    "ray": "write them, X.write_parquet('rows'), and name the files: 'rows/*.parquet'",
    "datasets": "choose a part, such as X['train']",
    "numpy": "give it two dimensions, (rows, columns): X.reshape(-1, 1) for one column",
    "builtins": "give rows as an array, np.asarray(X), or name files",
}
"""Hints, by package, for rows of a kind that cannot be read directly."""


class RowKind(Enum):
    """Kinds of rows; each is read in another way."""

    FILES = auto()
    """Paths of files, of directories or of a store; also None."""
    ARRAY = auto()
    """A numeric array in memory, (n, d): of numpy, scipy.sparse, or any object whose rows can be indexed."""
    DISK_ARRAY = auto()
    """An array of h5py or Zarr."""
    ANNOTATED = auto()
    """An annotated matrix (AnnData): the values ``X.X``, with tables ``X.obs`` about its rows and ``X.var`` about its columns."""
    FRAME = auto()
    """A table in memory: a data frame of pandas or polars, or a table of pyarrow. It can be read several times."""
    STREAM = auto()
    """A table that provides record batches through the Arrow PyCapsule interface, possibly only once."""
    DATASET = auto()
    """A dataset or a scanner of pyarrow."""
    LAZY_FRAME = auto()
    """A LazyFrame of polars, which has no Arrow stream."""
    STORED_TABLE = auto()
    """A table of Delta Lake, Iceberg, Lance or Hugging Face datasets, stored in files that these packages read."""
    DASK_ARRAY = auto()
    DASK_FRAME = auto()
    OTHER = auto()
    """Any other object; rows cannot be read from it."""


TABLES = frozenset({RowKind.FRAME, RowKind.STREAM, RowKind.DATASET, RowKind.LAZY_FRAME, RowKind.STORED_TABLE})
"""Kinds that provide Arrow record batches."""
ARRAYS = frozenset({RowKind.ARRAY, RowKind.DISK_ARRAY, RowKind.ANNOTATED})
"""Kinds whose rows can be indexed by number."""
DASK = frozenset({RowKind.DASK_ARRAY, RowKind.DASK_FRAME})
"""Kinds whose blocks are computed when they are read."""
WITH_COLUMN_NAMES = TABLES | {RowKind.DASK_FRAME}
"""Kinds whose columns have names."""


@runtime_checkable
class Tensor(Protocol):
    """An array of the array API, or a tensor."""

    device: Any
    """Where its numbers are."""

    def __dlpack__(self, *, stream: Any = None) -> Any:
        """Return its memory as DLPack has it."""


@runtime_checkable
class DaskCollection(Protocol):
    """A dask array or data frame."""

    def __dask_graph__(self) -> Any:
        """Return the task graph."""


@runtime_checkable
class AnnotatedMatrix(Protocol):
    """A matrix with tables about its rows and columns (AnnData)."""

    obs: Any
    """The table about the rows."""


@runtime_checkable
class ArrowStream(Protocol):
    """A table that provides record batches through the Arrow PyCapsule interface."""

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        """Return a capsule of the stream."""


@runtime_checkable
class RecordBatches(Protocol):
    """A dataset or a scanner of pyarrow."""

    def to_batches(self) -> Any:
        """Return its record batches."""


@runtime_checkable
class SunkFrame(Protocol):
    """A LazyFrame of polars, which can write its rows to a file as they are computed."""

    def sink_parquet(self, path: Any) -> Any:
        """Write the rows to a file."""


@runtime_checkable
class FrameInBatches(Protocol):
    """A LazyFrame of a recent polars, which provides its rows in batches as they are computed."""

    collect_batches: Callable[..., Any]
    """Returns frames of ``chunk_size`` rows each, in order with ``maintain_order``."""


@runtime_checkable
class Relation(Protocol):
    """A relation of DuckDB. Its reader computes record batches one by one; its Arrow stream would first compute the whole result."""

    columns: Any
    """The names of its columns."""

    to_arrow_reader: Callable[[int], Any]
    """Takes the number of rows of a batch; returns a reader of record batches."""


@runtime_checkable
class FormerRelation(Protocol):
    """A relation of an older DuckDB."""

    columns: Any
    """The names of its columns."""

    fetch_arrow_reader: Callable[[int], Any]
    """Takes the number of rows of a batch; returns a reader of record batches."""


@runtime_checkable
class Shaped(Protocol):
    """An array with a shape, whose rows can be indexed."""

    shape: Any

    def __getitem__(self, rows: Any) -> Any:
        """Return the rows with these indices."""


@runtime_checkable
class SparseMatrix(Protocol):
    """A sparse matrix."""

    nnz: int
    """The number of stored entries."""


@runtime_checkable
class Chunked(Protocol):
    """An array on disk that is stored in chunks."""

    chunks: Any
    """The shape of a chunk; None if the array is not chunked."""


@runtime_checkable
class NamedColumns(Protocol):
    """A table whose columns have names."""

    columns: Any


@runtime_checkable
class FrameInMemory(Protocol):
    """A data frame of pandas or polars in memory."""

    def to_numpy(self) -> Any:
        """Return the values as an array."""


@runtime_checkable
class TypedColumns(Protocol):
    """A table whose columns have types."""

    dtypes: Iterable[Any]


@runtime_checkable
class PolarsType(Protocol):
    """The type of a column in polars."""

    def is_numeric(self) -> bool:
        """Return whether the values are numbers."""


@runtime_checkable
class NumpyType(Protocol):
    """The type of a column in pandas or numpy."""

    kind: str
    """The letter of the type: f, i, u, b, O, ..."""


def _are_names(X: Any) -> bool:
    if isinstance(X, list | tuple):
        return all(isinstance(part, str | PathLike) for part in X)
    return X is None or isinstance(X, str | bytes | PathLike)


def _is_stored_table(X: Any) -> bool:
    return any(hasattr(X, method) for method in STORED_TABLES.get(package_of(X), ()))


def _is_table_in_memory(X: Any) -> bool:
    in_memory = isinstance(X, FrameInMemory) or package_of(X) == "pyarrow"
    return in_memory and isinstance(X, ArrowStream) and isinstance(X, NamedColumns)


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
"""The test for each kind; the kind of an object is that of the first test which it passes."""


PLAIN_KINDS: dict[type, RowKind] = {
    str: RowKind.FILES, type(None): RowKind.FILES,
    bool: RowKind.OTHER, int: RowKind.OTHER, float: RowKind.OTHER, dict: RowKind.OTHER,
}  # fmt: skip
"""The kinds of objects whose class alone decides."""


def is_numpy_array(X: object) -> bool:
    """Return whether X is an array of numpy itself, not of a subclass such as a memory map."""
    return type(X).__module__ == "numpy" and type(X).__name__ == "ndarray"


def kind_of(X: object) -> RowKind:
    """Return the kind of an object that was passed as rows."""
    if type(X) in PLAIN_KINDS:  # the tests cost some ten microseconds each, and options are tested as well
        return PLAIN_KINDS[type(X)]
    if is_numpy_array(X):
        return RowKind.ARRAY if cast(Any, X).ndim == 2 else RowKind.OTHER
    return next((kind for kind, passes in _TESTS if passes(X)), RowKind.OTHER)


def as_numpy(X: Any) -> Any:
    """Return an array of the array API or a tensor as a numpy array without a copy, one of bfloat16 as a
    ``BFloat16Array``, anything else unchanged.

    Raises UsageError for a tensor on an accelerator, since all computation is on CPUs, and for one that records
    gradients.
    """
    import numpy as np

    from streamsvm.bfloat16 import BFLOAT16, BFloat16Array

    is_bfloat16 = str(getattr(X, "dtype", "")).rpartition(".")[2] == BFLOAT16
    if isinstance(X, np.ndarray) and is_bfloat16:
        return BFloat16Array(X.view(np.uint16))
    if isinstance(X, np.ndarray) or package_of(X) in ON_DISK or not isinstance(X, Tensor):
        return X
    try:
        if is_bfloat16 and not getattr(X, "requires_grad", False):
            # the bits as a type that numpy has; torch.int16 is an attribute of the module that X comes from
            bits = cast(Any, X).view(sys.modules[package_of(X)].int16)
            return BFloat16Array(np.from_dlpack(bits).view(np.uint16))
        return np.from_dlpack(X)
    except (AttributeError, BufferError, RuntimeError, TypeError, ValueError) as error:
        name = f"{type(X).__module__}.{type(X).__qualname__}"
        if isinstance(error, AttributeError):
            raise UsageError(
                f"the bits of this {name} of bfloat16 cannot be read", hint="pass it as float32"
            ) from error
        if getattr(X, "requires_grad", False):
            raise UsageError(f"this {name} records gradients", hint="pass X.detach()") from error
        raise UsageError(
            f"X and y must lie in the memory of this machine, not on {X.device}", hint="pass X.to('cpu'), or X.get()"
        ) from error


def check_readable(X: object) -> None:
    """Raise UsageError for an object from which rows cannot be read; the hint says what to pass instead."""
    if kind_of(X) is not RowKind.OTHER:
        return
    hint = "give a data frame, an Arrow table or reader, or an array; or write the rows to Parquet and name the file"
    hint = UNREADABLE.get(package_of(X), hint)
    raise UsageError(f"rows cannot be read from an object of {type(X).__module__}.{type(X).__qualname__}", hint=hint)


def needs_ingest(X: object) -> bool:
    """Return whether X has to be ingested before a fit: a path, a table with columns that are not numeric, or an array on disk."""
    kind = kind_of(X)
    if kind is RowKind.FILES:
        return isinstance(X, str | PathLike)
    if kind is RowKind.FRAME:
        return not is_numeric_frame(X)
    return kind not in (RowKind.ARRAY, RowKind.OTHER) or package_of(X) in ON_DISK


def count_bytes(X: Any) -> int | None:
    """Return the bytes that the numbers of X take as float32, with text counted as numbers; None if its size is not
    known without computing its rows.
    """
    if kind_of(X) not in (RowKind.FRAME, RowKind.ARRAY, RowKind.DISK_ARRAY) or not isinstance(X, Shaped):
        return None
    if isinstance(X, SparseMatrix):
        return 8 * X.nnz
    rows, columns = X.shape
    return int(4 * rows * columns)


def is_lazy(values: object) -> bool:
    """Return whether labels or weights are a query of dask, polars or DuckDB that has not been computed yet."""
    if is_numpy_array(values):
        return False
    lazy = kind_of(values) in (*DASK, RowKind.LAZY_FRAME)
    return lazy or isinstance(values, Relation | FormerRelation)


def is_frame(X: object) -> bool:
    """Return whether X is a data frame: a table whose columns have names."""
    return isinstance(X, NamedColumns)


def is_numeric_frame(X: object) -> bool:
    """Return whether X is a data frame of pandas or polars in memory whose columns are all numeric."""
    # test first whether it is in memory: a lazy frame has to run part of its query to know its types
    return isinstance(X, FrameInMemory) and isinstance(X, TypedColumns) and all(map(_is_number_type, X.dtypes))


def package_of(X: object) -> str:
    """Return the name of the package of an object's class."""
    return type(X).__module__.partition(".")[0]


def _is_number_type(kind: object) -> bool:
    if isinstance(kind, PolarsType):
        return kind.is_numeric()
    return isinstance(kind, NumpyType) and kind.kind in "fiub"
