"""Rows that are not an array in memory - stores, files, tables, arrays on disk - fitted as the command line fits them."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from streamsvm.aliases import Array
from streamsvm.api.commands import ingest
from streamsvm.api.given import stored
from streamsvm.jobs.fit.options import FitJob
from streamsvm.store.sources.parts.arrow_stream import gives_batches

ON_DISK = ("h5py", "zarr", "dask")
"""Packages whose arrays are read in slices, or block by block, and never put together."""


def is_elsewhere(X: Any) -> bool:
    """Return whether X is anything but numbers in memory: a path, a table with other columns than numbers, an array on disk."""
    if isinstance(X, str | PathLike):
        return True
    if hasattr(X, "obs") or hasattr(X, "__dask_graph__"):
        return True
    if type(X).__module__.partition(".")[0] in ON_DISK:
        return True
    return gives_batches(X) and not _only_numbers(X)


def _only_numbers(frame: Any) -> bool:
    """Whether a table is a data frame in memory that is an array as it stands: of pandas or polars."""
    kinds = getattr(frame, "dtypes", None)
    if kinds is None or not hasattr(frame, "to_numpy"):
        return False
    return all(
        kind.is_numeric() if hasattr(kind, "is_numeric") else getattr(kind, "kind", "O") in "fiub" for kind in kinds
    )


@contextmanager
def located(job: FitJob, X: Any, y: Any, sample_weight: Any) -> Iterator[FitJob]:
    """Give the job of a fit of X: of a store as it is, of other rows by way of one that is removed at the end.

    The model is written beside it, in a folder of its own. Raises UsageError for labels beside a store, and what
    ``ingest`` raises.
    """
    with tempfile.TemporaryDirectory(prefix="streamsvm-") as folder:
        place = stored(ingest, X, y, sample_weight, Path(folder))
        yield replace(job, store=str(place), model=str(Path(folder) / "model.ssvm"))


def classes_of(labels: Sequence[str]) -> Array:
    """Return class labels as an array: numbers where all of them are, else text."""
    for kind in (np.int64, np.float64):
        try:
            return np.array([kind(label) for label in labels])
        except ValueError:
            continue
    return np.array(labels)
