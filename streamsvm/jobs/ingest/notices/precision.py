"""What float32 does to the columns of a store, said when it is written: nothing that is lost is lost in silence.

A number x is kept to about |x| 2^-24. Of a column whose mean is more than FAR_FROM_ZERO standard deviations from 0 fewer
than ten bits of the variation are left, and whole numbers above 2^24 become even ones. Numbers that differ in every row
and are whole are names, not quantities: a model can only learn them by heart.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from streamsvm.rows import Rows, row_count
from streamsvm.store import open_store
from streamsvm.store.sources import Source
from streamsvm.store.sources.centering.needed import EXACT, FAR_FROM_ZERO
from streamsvm.store.sources.centering.offsets import Offsets, name_of, offsets_from
from streamsvm.types import Statistics

SAMPLE, LEAST_ROWS, MOST_COLUMNS = 2000, 100, 2000
"""Rows that are looked at for names, the fewest that say something, and the widest rows that are looked at."""
UNIQUE, UNIQUE_ROUNDED = 0.99, 0.2
"""The share of different values from which on whole numbers are taken for names; of those rounded to even ones."""
SHOWN = 5


def precision_notices(stored: Path, source: Source, first: Rows) -> list[str]:
    """Return what float32 has done to the columns of a store just committed; ``first``: the first rows of its source."""
    store, offsets = open_store(stored), offsets_from(source.encoding())
    ids = looks_like_ids(first, source.columns or 0, offsets)
    return precision_warnings(store.statistics(), store.layout.rows, source.names, offsets, ids)


def looks_like_ids(X: Rows, columns: int, offsets: Offsets) -> list[int]:
    """Return the columns of some rows, stored at ``offsets``, whose values are whole, above 1,000 and all but unique."""
    rows = min(row_count(X), SAMPLE)
    if rows < LEAST_ROWS or columns > MOST_COLUMNS:
        return []
    from streamsvm.compute.kernel_values.gram import dense_rows

    values = dense_rows(X, np.arange(rows), columns).astype(np.float64)
    values[:, offsets.columns] += offsets.values
    whole = (values == np.floor(values)).all(axis=0) & (np.abs(values).max(axis=0) > 1000.0)
    # above 2^24 neighbors have become equal, two by two, or four by four, but where they are stored less an offset
    least = np.where(np.abs(values).max(axis=0) > EXACT, UNIQUE_ROUNDED, UNIQUE)
    least[offsets.columns] = UNIQUE
    return [int(j) for j in np.flatnonzero(whole) if len(np.unique(values[:, j])) >= least[j] * rows]


def precision_warnings(
    statistics: Statistics, rows: int, names: Sequence[str] | None, offsets: Offsets, ids: Sequence[int] = ()
) -> list[str]:
    """Return a line each for columns stored less an offset, for those far from 0 nevertheless, and for ids; none where
    all is well.
    """
    deviation = np.sqrt(statistics.M2 / rows)
    largest = np.maximum(np.abs(statistics.minimum), np.abs(statistics.maximum))
    step = np.spacing(largest.astype(np.float32)).astype(np.float64)
    found = []
    if len(offsets.columns):
        shown = [f"{name_of(names, int(j))} less {o:.15g}" for j, o in zip(*offsets, strict=True)]
        found.append(f"stored from another zero, as float32 keeps little of them where they lie: {_listed(shown)}")
    far = np.flatnonzero((np.abs(statistics.mean) > FAR_FROM_ZERO * deviation) & (deviation > 0.0))
    far = np.setdiff1d(far, ids)
    if len(far):
        shown = [
            f"{name_of(names, int(j))} (mean {statistics.mean[j]:.6g}, kept in steps of {step[j]:.2g})" for j in far
        ]
        text = "float32 keeps little of columns this far from 0: " + _listed(shown)
        found.append(f"{text}; subtract a constant from them before ingest, or leave them out with --drop")
    if ids:
        lost = [j for j in ids if largest[j] > EXACT]
        note = f"; above 16,777,216 different ones are stored as the same: {_names(names, lost)}" if lost else ""
        found.append(f"ids rather than quantities, it seems: {_names(names, ids)}; leave them out with --drop{note}")
    return found


def _names(names: Sequence[str] | None, columns: Sequence[int]) -> str:
    return _listed([name_of(names, j) for j in columns])


def _listed(shown: Sequence[str]) -> str:
    more = f" and {len(shown) - SHOWN} more" if len(shown) > SHOWN else ""
    return ", ".join(shown[:SHOWN]) + more
