"""Rows, labels and weights as scikit-learn passes them: checks, conversion to a store in memory, and ``StreamRows``.

**Copies.** A weight of k is equivalent to k copies of a row: the objective and its optimum are the same. But the choice of landmarks and
folds, the order of coordinate descent and the rounding of float32 products depend on the rows and their order. Therefore rows that fit into
one chunk are first brought into a canonical form (``merge_copies``): distinct rows, with the sums of the weights of their copies, sorted by
a hash. The store, and so the model, is then the same to the last bit for copies or weights in any order.

A row is hashed by the sum of the bits of its numbers times odd multipliers, one for each column, modulo 2^64 (Dietzfelbinger, Hagerup,
Katajainen, Penttonen, "A reliable randomized algorithm for the closest-pair problem", J. Algorithms 1997). Rows with equal hashes are merged
only if they are equal.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from copy import copy
from functools import cached_property
from itertools import pairwise
from os import PathLike
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import scipy.sparse
from numpy.typing import NDArray
from sklearn.utils.validation import validate_data

from streamsvm.api.wording import python_words
from streamsvm.bfloat16 import BFloat16Array
from streamsvm.compute.blocks.selection import take_rows
from streamsvm.compute.random import STEP, mix_bits
from streamsvm.errors import BudgetError, ConfigError, DataError, StreamSVMError, UsageError
from streamsvm.input_files import refuse_url
from streamsvm.jobs.ingest.frames_and_arrays import column_of
from streamsvm.kinds_of_rows import (
    DASK,
    TABLES,
    UNREADABLE,
    RowKind,
    as_numpy,
    check_readable,
    is_frame,
    is_lazy,
    kind_of,
    package_of,
)
from streamsvm.rows import CSR, Dense, Float64, Int32, Int64, Rows, row_slice
from streamsvm.schedule.stream import Stream, epoch_visits
from streamsvm.store import open_store
from streamsvm.store.format.labels import convert_labels, label_text
from streamsvm.store.sources.array_rows import rows_of
from streamsvm.store.sources.offsets import cut_first_rows, find_offsets, sample_rows
from streamsvm.store.views import MemoryStore, SelectedRows, SlicedStore
from streamsvm.type_aliases import Array, JsonObject
from streamsvm.types import Store

Hashes: TypeAlias = NDArray[np.uint64]
MAX_MERGED_BYTES = 4 << 20
"""Maximum size of rows whose copies are merged, that of a chunk. Sorting them takes about as long as a pass."""


def is_small(X: Rows) -> bool:
    """Return whether copies of rows are merged, because the rows fit into a chunk."""
    return (X.values.nbytes if isinstance(X, Dense) else X.data.nbytes + X.indices.nbytes) <= MAX_MERGED_BYTES


def merge_copies(X: Rows, y: Array, weights: Float64 | None, columns: int) -> tuple[Rows, Array, Float64]:
    """Return the distinct rows of X (n, columns) with their labels y (n,) and total weights (k,), sorted by hash, then by label.

    ``weights`` (n,): weight of each row; None: 1.
    """
    keys = hash_rows(X, columns)
    order = np.lexsort((y, keys))
    X, y, keys = take_rows(X, order), y[order], keys[order]
    counts = np.ones(len(y)) if weights is None else weights[order]
    copies = np.flatnonzero((keys[1:] == keys[:-1]) & (y[1:] == y[:-1]))
    copies = copies[_equal_to_next(X, copies)] + 1
    if not len(copies):
        return X, y, counts
    first = np.ones(len(y), bool)
    first[copies] = False
    starts = np.flatnonzero(first)
    return take_rows(X, starts), y[starts], np.add.reduceat(counts, starts)


def hash_rows(X: Rows, columns: int) -> Hashes:
    """Return a hash of each row (n,), without its label, so that rows without labels are sorted in the same order."""
    factors = mix_bits(np.arange(1, columns + 1, dtype=np.uint64) * STEP) | np.uint64(1)
    if isinstance(X, Dense):
        return mix_bits(X.values.view(np.uint32).astype(np.uint64) @ factors + STEP)
    terms = X.data.view(np.uint32).astype(np.uint64) * factors[X.indices]
    before = np.concatenate([np.zeros(1, np.uint64), np.cumsum(terms)])[X.indptr]
    return mix_bits(before[1:] - before[:-1] + STEP)


def _equal_to_next(X: Rows, rows: Array) -> NDArray[np.bool_]:
    """Return whether each of these rows (k,) equals the next one, number by number."""
    if isinstance(X, Dense):
        return np.all(X.values[rows] == X.values[rows + 1], axis=1)
    lengths = np.diff(X.indptr)
    equal = lengths[rows] == lengths[rows + 1]
    one, other = take_rows(X, rows[equal]), take_rows(X, rows[equal] + 1)
    assert isinstance(one, CSR)
    assert isinstance(other, CSR)
    differing = np.cumsum((one.data != other.data) | (one.indices != other.indices))
    before = np.concatenate([np.zeros(1, np.int64), differing])[one.indptr]
    equal[equal] = before[1:] == before[:-1]
    return equal


KEPT_DTYPES = (np.float64, np.float32)
"""Dtypes of X that are kept; others are converted to the first."""


def load_labels(X: Any, y: Any) -> Any:
    """Return labels in memory: compute lazy ones, replace a name by that column of X, and convert nullable pandas labels to numpy.

    Other labels are returned unchanged.
    """
    if isinstance(y, str) and is_frame(X):
        y = X.select(y) if kind_of(X) is RowKind.LAZY_FRAME else X[y]
    if is_lazy(y):
        return column_of(y)
    # the numpy dtype of a nullable dtype of pandas (boolean, Int64, ...), which scikit-learn would convert to float64
    dtype = getattr(getattr(y, "dtype", None), "numpy_dtype", None)
    return y if dtype is None or y.isna().any() else y.to_numpy(dtype)


def check_rows(estimator: Any, X: Any, *y: Any, **more: Any) -> Any:
    """Return rows X, and labels y if passed, checked by scikit-learn: float32 or float64, dense or CSR. Raises ValueError."""
    with as_value_errors():
        if package_of(X) in UNREADABLE.keys() - {"numpy", "builtins"}:
            check_readable(X)
    labels = [load_labels(X, one) for one in y]
    with as_value_errors():
        rows, labels = as_numpy(X), [as_numpy(one) for one in labels]
    if isinstance(rows, BFloat16Array) or (isinstance(rows, np.ndarray) and rows.dtype == np.float16):
        rows = np.asarray(rows, np.float32)  # scikit-learn would make float64 of float16
    return validate_data(
        estimator, rows, *labels, accept_sparse="csr", dtype=KEPT_DTYPES, accept_large_sparse=True, **more
    )


PARAMETER_NAMES = {
    "missing": "missing", "seed": "random_state", "threads": "n_jobs", "label": "y", "weight": "sample_weight", "score": "scoring",
    "drop": "DataFrame.drop(columns=...)",
}  # fmt: skip
"""The names of the parameters of estimators for options with other names, and for options of the ingest; of an option
that they do not have, the call that does the same.
"""


@contextmanager
def as_value_errors() -> Iterator[None]:
    """Convert errors about data and parameters to ValueError, as in scikit-learn; other errors keep their class. All name parameters."""
    try:
        with python_words("fit", PARAMETER_NAMES):
            yield
    except StreamSVMError as error:
        if isinstance(error, BudgetError) or not isinstance(error, DataError | UsageError | ConfigError):
            raise
        raise ValueError(f"{error.message}; {error.hint}") from error


def check_weights(sample_weight: Any, rows: int) -> Float64 | None:
    """Return the weights of rows (n,) float64; None if there are none. Raises ValueError."""
    if sample_weight is None:
        return None
    weights = np.asarray(sample_weight)
    if weights.ndim == 0:  # one weight for all rows
        weights = np.full(rows, weights)
    if weights.ndim != 1 or len(weights) != rows:
        raise ValueError(f"sample_weight has the shape {weights.shape}, expected ({rows},)")
    weights = weights.astype(np.float64)
    if not np.isfinite(weights).all() or (weights < 0).any():
        raise ValueError("sample_weight must be finite and not negative: a weight is how often a row counts")
    if not weights.any():
        raise ValueError("sample_weight is zero for all rows: there is nothing to fit")
    return weights


def count_rows(weights: Float64 | None, rows: int) -> int:
    """Return the number of rows with a weight above 0; all ``rows`` without weights."""
    return rows if weights is None else int(np.count_nonzero(weights))


def make_store(
    X: Any, codes: Array, weights: Float64 | None, classes: int, *, ends: Sequence[int] | None = None, least: int = 2
) -> MemoryStore:
    """Return a store in memory with rows, their class codes (n,) int32 or targets (n,) float64, and their weights (n,).

    Rows of weight 0 are dropped, and copies of rows are merged if there are few rows (``merge_copies``). ``ends``: indices at which a chunk
    ends; rows are then not merged, and no weight may be 0. ``least``: minimum number of classes with rows.
    Raises ValueError if too few classes have rows, DataError for numbers that float32 cannot represent.
    """
    if weights is not None and (weights == 0).any():
        counted = weights > 0
        X, codes, weights = X[counted], codes[counted], weights[counted]
    present = np.unique(codes)
    if len(present) < least:
        raise ValueError(
            f"rows of {len(present)} class have a weight, the others are zero: at least {least} classes are needed"
        )
    rows, offsets = center_rows(X)
    if ends is None and is_small(rows):
        rows, codes, weights = merge_copies(rows, codes, weights, X.shape[1])
    kept = None if weights is None or (weights == 1).all() else weights.astype(np.float32)
    store = MemoryStore(name="X", facts=offsets, copies=True)
    for start, stop in pairwise((0, *(ends or ()), len(codes))):
        store.append(row_slice(rows, start, stop), codes[start:stop], None if kept is None else kept[start:stop])
        store.end_chunk()
    return store.commit(tuple(map(str, range(classes))), X.shape[1])


def center_rows(X: Any) -> tuple[Rows, JsonObject]:
    """Return rows as an ingest stores them, with offsets subtracted from columns that would lose precision in float32, and their record."""
    head = X[: sample_rows(X.shape[1], sparse=scipy.sparse.issparse(X))]
    offsets = find_offsets(lambda exact: cut_first_rows(rows_of(head, "X", exact=exact)))
    if offsets is None or not len(offsets.columns):
        return rows_of(X, "X"), {}
    return offsets.apply(rows_of(X, "X", exact=True)), {"encoding": {"offsets": offsets.to_json()}}


def balance_classes(codes: Int32, weights: Float64 | None, classes: int) -> Array:
    """Return the factors (classes,) that balance the classes with a weight: n / (classes n_c); 1 for classes without rows."""
    counts = np.bincount(codes, weights, minlength=classes)
    present = counts > 0
    factors = np.ones(classes)
    factors[present] = counts.sum() / (present.sum() * counts[present])
    return factors


class StreamRows:
    """Rows of a store, or of an array on disk, as an array that ``cross_validate`` can index and that is never loaded as a whole.

    ``rows[indices]`` is a selection of rows, each at most once, without a copy. The estimators of this package fit and predict these rows
    by reading the store chunk by chunk.

    Parameters
    ----------
    source : str, Path or array (n_samples, n_features)
        A store, or its path; or a memory map, an array of h5py or Zarr, or a scipy.sparse matrix.
    y : array (n_samples,), optional
        The labels of an array; a store contains its labels.

    Attributes
    ----------
    shape : tuple (n_samples, n_features)
        Numbers of rows and columns.
    labels : ndarray (n_samples,)
        The labels of these rows; those of a store are read on first use.

    Examples
    --------
    >>> import numpy as np
    >>> from streamsvm.sklearn import StreamRows
    >>> rows = StreamRows(np.eye(4), [0, 1, 0, 1])
    >>> rows[[1, 3]].labels
    array([1, 1])
    """

    ndim = 2

    def __init__(self, source: Any, y: Any = None) -> None:
        if isinstance(source, str | PathLike):
            if y is not None:
                raise UsageError(f"{source} has its labels in it", hint="leave out y")
            refuse_url(source)
            self._whole = _WholeSource(path=str(Path(source).resolve()))
        elif kind_of(source) in DASK | TABLES:
            hint = "store them first: sv.ingest(X, 'rows.zarr', y=y), and StreamRows('rows.zarr')"
            raise UsageError(
                f"rows of {type(source).__module__}.{type(source).__name__} cannot be taken by their numbers", hint=hint
            )
        else:
            if y is None:
                raise UsageError("an array has no labels in it", hint="StreamRows(X, y)")
            self._whole = _WholeSource(X=source, y=np.asarray(y))
        self._numbers: Int64 | None = None

    @property
    def shape(self) -> tuple[int, int]:
        """Numbers of rows and columns."""
        layout = self._whole.store.layout
        return (layout.rows if self._numbers is None else len(self._numbers)), layout.columns

    def __repr__(self) -> str:
        return "<StreamRows: {} rows x {} columns>".format(*self.shape)

    def __len__(self) -> int:
        return self.shape[0]

    @property
    def codes(self) -> Int32:
        """The class codes of these rows (n,) in the order of the store."""
        codes = self._whole.codes
        return codes if self._numbers is None else codes[np.sort(self._numbers)]

    @property
    def labels(self) -> Array:
        """The labels of these rows (n,): numbers if all classes are numbers, else text."""
        codes = self._whole.codes
        return self._whole.classes[codes if self._numbers is None else codes[self._numbers]]

    def __getitem__(self, key: Any) -> StreamRows:
        """Return a selection of the rows, in any order. Raises IndexError, and ValueError for a row that is selected twice."""
        rows = key[0] if isinstance(key, tuple) else key
        numbers = np.arange(self._whole.store.layout.rows) if self._numbers is None else self._numbers
        chosen = np.atleast_1d(numbers[np.asarray(rows) if isinstance(rows, list) else rows])
        if len(np.unique(chosen)) < len(chosen):
            raise ValueError("a row is chosen twice: give it the weight 2 instead")
        selection = copy(self)
        vars(selection)["_numbers"] = chosen
        return selection

    def store(self) -> Store:
        """Return these rows as a store, in the order of the whole store. Raises DataError if there are none."""
        if self._numbers is None:
            return self._whole.store
        chosen = np.zeros(self._whole.store.layout.rows, np.bool_)
        chosen[self._numbers] = True
        return SelectedRows(self._whole.store, chosen, self._whole.codes)

    def blocks(self) -> Iterator[tuple[Rows, Int64]]:
        """Yield all rows, a chunk at a time, with their positions among these rows (k,)."""
        places = np.arange(len(self)) if self._numbers is None else np.argsort(self._numbers)
        store, start = self.store(), 0
        with Stream(store, epoch_visits(store.layout, 0, 0, shuffled=False)) as stream:
            for loaded in stream:
                stop = start + len(loaded.chunk.codes)
                yield loaded.chunk.X, places[start:stop]
                start = stop

    def labels_of(self, texts: Sequence[str]) -> Array:
        """Return the labels (k,) for classes of a model, which are text."""
        names = list(self._whole.texts)
        return self._whole.classes[[names.index(text) for text in texts]]

    @property
    def pieces(self) -> tuple[int, ...] | None:
        """The number of rows of each chunk of the store; None for a selection of rows."""
        return self._whole.store.layout.chunks if self._numbers is None else None


def check_own_labels(X: StreamRows, y: Any, sample_weight: Any) -> None:
    """Raise ValueError for weights, and for labels that are not the labels of these rows."""
    if sample_weight is not None:
        raise ValueError("rows of a store have their weights in it: ingest them with weight=")
    if y is not None and not np.array_equal(np.asarray(y), X.labels):
        raise ValueError("y are not the labels of these rows: pass rows.labels, indexed like the rows")


class _WholeSource:
    """All rows of a source. It is pickled as the path of a store, or with the array."""

    def __init__(self, path: str = "", X: Any = None, y: Array | None = None) -> None:
        self._path, self._X, self._y = path, X, y

    def __getstate__(self) -> dict[str, Any]:
        return {"_path": self._path, "_X": self._X, "_y": self._y}

    @cached_property
    def store(self) -> Store:
        """The rows as a store."""
        if self._path:
            return open_store(self._path)
        return SlicedStore(self._X, self.codes, self.texts)

    @property
    def texts(self) -> tuple[str, ...]:
        """The labels as text, by code."""
        return self.store.layout.classes if self._path else tuple(map(label_text, self.classes.tolist()))

    @cached_property
    def classes(self) -> Array:
        """The labels by class code."""
        if not self._path:
            return np.unique(np.asarray(self._y))
        return convert_labels(self.store.layout.classes, (self.store.facts.get("labels") or {}).get("type", ""))

    @cached_property
    def codes(self) -> Int32:
        """The class code of each row (n,)."""
        if self._y is not None:
            return np.searchsorted(self.classes, self._y).astype(np.int32)
        visits = epoch_visits(self.store.layout, 0, 0, shuffled=False)
        with Stream(self.store, visits) as stream:
            return np.concatenate([loaded.chunk.codes.copy() for loaded in stream])
