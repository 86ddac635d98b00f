"""Rows that are not an array in memory - stores, files, tables, arrays on disk - fitted as the command line fits them."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from os import PathLike
from pathlib import Path
from typing import Any

from streamsvm.aliases import ByName
from streamsvm.api.commands import ingest
from streamsvm.api.given import stored, without_the_way_back
from streamsvm.jobs.fit.job import FitJob
from streamsvm.kinds_of_rows import gives_batches, is_numeric_frame, is_on_disk


def is_elsewhere(X: Any) -> bool:
    """Return whether X is anything but numbers in memory: a path, a table with other columns than numbers, an array on disk."""
    if isinstance(X, str | PathLike):
        return True
    return is_on_disk(X) or (gives_batches(X) and not is_numeric_frame(X))


@contextmanager
def located(job: FitJob, X: Any, y: Any, sample_weight: Any, options: ByName) -> Iterator[FitJob]:
    """Give the job of a fit of X: of a store as it is, of other rows by way of one that is removed at the end.

    ``options`` are those of the ingest. The model is written beside it, in a folder of its own. Raises UsageError for labels beside a store, and what
    ``ingest`` raises.
    """
    with tempfile.TemporaryDirectory(prefix="streamsvm-") as folder, without_the_way_back(None):
        place = stored(partial(ingest, **options), X, y, sample_weight, Path(folder))
        yield replace(job, store=str(place), model=str(Path(folder) / "model.ssvm"))
