"""Rows that stay where they are while scikit-learn's tools number them, cut them and hand them around."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from copy import copy
from functools import cached_property
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from streamsvm.aliases import Array
from streamsvm.errors import UsageError
from streamsvm.kinds_of_rows import gives_batches, is_dask
from streamsvm.regular import refuse_url
from streamsvm.rows import Int32, Int64, Rows
from streamsvm.schedule.stream import Stream, epoch_visits
from streamsvm.store import open_store
from streamsvm.store.format.labels import label_text, typed_labels
from streamsvm.store.views import SelectedRows, SlicedStore
from streamsvm.types import Store


class StreamRows:
    """The rows of a store, or of an array on disk, as an array that is never read whole: what ``cross_validate`` may cut.

    ``rows[numbers]`` are the same rows restricted to some, each at most once; nothing is copied. The estimators of this package
    fit and predict such rows by reading the store chunk by chunk.

    Parameters
    ----------
    source : str, Path or array (n_samples, n_features)
        A store, or its path; or a memory map, an array of h5py or Zarr, a scipy.sparse matrix with rows.
    y : array (n_samples,), optional
        The labels of an array; a store has its own.

    Attributes
    ----------
    shape : tuple (n_samples, n_features)
    labels : ndarray (n_samples,)
        The labels of these rows; of a store read once, when they are first asked for.

    Examples
    --------
    >>> import numpy as np
    >>> from streamsvm.sklearn import StreamRows
    >>> rows = StreamRows(np.eye(4), [0, 1, 0, 1])
    >>> rows[[1, 3]].labels
    array([1, 1])
    """

    ndim = 2
    """Rows and columns."""

    def __init__(self, source: Any, y: Any = None) -> None:
        if isinstance(source, str | PathLike):
            if y is not None:
                raise UsageError(f"{source} has its labels in it", hint="leave out y")
            refuse_url(source)
            self._whole = _Whole(path=str(Path(source).resolve()))
        elif is_dask(source) or gives_batches(source):
            hint = "store them first: sv.ingest(X, 'rows.zarr', y=y), and StreamRows('rows.zarr')"
            raise UsageError(
                f"rows of {type(source).__module__}.{type(source).__name__} cannot be taken by their numbers", hint=hint
            )
        else:
            if y is None:
                raise UsageError("an array has no labels in it", hint="StreamRows(X, y)")
            self._whole = _Whole(X=source, y=np.asarray(y))
        self._numbers: Int64 | None = None

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns."""
        layout = self._whole.store.layout
        return (layout.rows if self._numbers is None else len(self._numbers)), layout.columns

    def __len__(self) -> int:
        return self.shape[0]

    @property
    def codes(self) -> Int32:
        """The class codes of these rows (n,) in the order in which they lie, as ``store`` has them."""
        codes = self._whole.codes
        return codes if self._numbers is None else codes[np.sort(self._numbers)]

    @property
    def labels(self) -> Array:
        """The labels of these rows (n,): numbers where all classes are such, else text."""
        codes = self._whole.codes
        return self._whole.classes[codes if self._numbers is None else codes[self._numbers]]

    def __getitem__(self, key: Any) -> StreamRows:
        """Return some of the rows, in any order. Raises IndexError, ValueError for a row that is chosen twice."""
        rows = key[0] if isinstance(key, tuple) else key
        known = np.arange(self._whole.store.layout.rows) if self._numbers is None else self._numbers
        chosen = np.atleast_1d(known[np.asarray(rows) if isinstance(rows, list) else rows])
        if len(np.unique(chosen)) < len(chosen):
            raise ValueError("a row is chosen twice: give it the weight 2 instead")
        found = copy(self)
        vars(found)["_numbers"] = chosen
        return found

    def store(self) -> Store:
        """Return these rows as a store, in the order in which they lie. Raises DataError where there are none."""
        if self._numbers is None:
            return self._whole.store
        chosen = np.zeros(self._whole.store.layout.rows, np.bool_)
        chosen[self._numbers] = True
        return SelectedRows(self._whole.store, chosen, self._whole.codes)

    def blocks(self) -> Iterator[tuple[Rows, Int64]]:
        """Yield all rows, some at a time, with their places among these rows (k,)."""
        places = np.arange(len(self)) if self._numbers is None else np.argsort(self._numbers)
        store, start = self.store(), 0
        with Stream(store, epoch_visits(store.layout, 0, 0, shuffled=False)) as stream:
            for loaded in stream:
                stop = start + len(loaded.chunk.codes)
                yield loaded.chunk.X, places[start:stop]
                start = stop

    def known(self, texts: Sequence[str]) -> Array:
        """Return the labels (k,) that a model calls by these texts."""
        names = list(self._whole.texts)
        return self._whole.classes[[names.index(text) for text in texts]]

    @property
    def pieces(self) -> tuple[int, ...] | None:
        """The rows of each chunk of the whole store; None for rows that are some of it."""
        return self._whole.store.layout.chunks if self._numbers is None else None


def check_own(X: StreamRows, y: Any, sample_weight: Any) -> None:
    """Raise ValueError unless labels are those that the rows have themselves, and there are no weights beside them."""
    if sample_weight is not None:
        raise ValueError("rows of a store have their weights in it: ingest them with weight=")
    if y is not None and not np.array_equal(np.asarray(y), X.labels):
        raise ValueError("y are not the labels of these rows: pass rows.labels, cut as the rows are")


class _Whole:
    """All rows of a source; it travels to other processes as a path, or with the array."""

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
        """The labels as a store writes them, by code."""
        return self.store.layout.classes if self._path else tuple(map(label_text, self.classes.tolist()))

    @cached_property
    def classes(self) -> Array:
        """The label each code stands for."""
        if not self._path:
            return np.unique(np.asarray(self._y))
        return typed_labels(self.store.layout.classes, (self.store.facts.get("labels") or {}).get("type", ""))

    @cached_property
    def codes(self) -> Int32:
        """The class code of each row (n,)."""
        if self._y is not None:
            return np.searchsorted(self.classes, self._y).astype(np.int32)
        visits = epoch_visits(self.store.layout, 0, 0, shuffled=False)
        with Stream(self.store, visits) as stream:
            return np.concatenate([loaded.chunk.codes.copy() for loaded in stream])
