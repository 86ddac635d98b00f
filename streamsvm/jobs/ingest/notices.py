"""The notices of an ingest: label drift, options without effect, and the loss of precision in float32.

**Label drift**: if the classes are not spread evenly over the chunks of a store, solvers need more passes.

**Precision**: each loss of precision is reported. float32 rounds a number x by up to about |x| 2^-24. If the mean of a
column is more than FAR_FROM_ZERO standard deviations from 0, fewer than ten bits of its variation remain, and integers
above 2^24 are rounded to even ones. A column of integers that differ in every row is probably an identifier, not a
quantity; a model could only memorize it.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from streamsvm.jobs.ingest.options import IngestJob
from streamsvm.jobs.without_effect import other_formats
from streamsvm.rows import CSR, Float64, Int64, Rows, row_count, row_where
from streamsvm.store import open_store, read_chunk
from streamsvm.store.format.manifest import Manifest
from streamsvm.store.sources import Source
from streamsvm.store.sources.offsets import (
    FAR_FROM_ZERO,
    LARGEST_EXACT,
    Offsets,
    list_first,
    name_of,
    offsets_from,
    offsets_of_store,
)
from streamsvm.store.sources.schema import CATEGORY, HASHED, TEXT
from streamsvm.type_aliases import Array
from streamsvm.types import Statistics, Store

DRIFT = 0.1
"""Difference between the share of a class in a chunk and in all rows above which a warning is given."""
FEW_CHUNKS = 2
"""With fewer chunks than this, drift is not judged."""
SAMPLE, LEAST_ROWS, MOST_COLUMNS = 2000, 100, 2000
"""Number of rows that are searched for identifiers, the minimum number of rows, and the maximum number of columns."""
UNIQUE, UNIQUE_ROUNDED = 0.99, 0.2
"""Share of distinct values from which a column of integers counts as identifiers, and the same for integers above 2^24,
which are rounded."""
SHOWN = 5
"""Number of columns that a notice names."""
SAMPLED_CHUNKS, MOST_SAMPLED, MOST_NUMBERS = 16, 8000, 1 << 21
"""Number of chunks, rows and numbers that are sampled at most to find crowded values."""
LEAST_FAR = 1e4
"""Numbers with a smaller absolute value are not searched, because there the steps of float32 are less than 0.001."""
CROWDED, CROWD, LEAST_CROWD = 4, 0.0016, 16
"""Values are crowded if the share CROWD of all rows, and at least LEAST_CROWD rows, lie within CROWDED steps of
float32."""


def label_drift(chunks: Sequence[Sequence[int]], counts: Sequence[int]) -> float:
    """Return the largest difference between the share of a class in a chunk and its share in all rows.

    ``chunks``: rows of each class, for each chunk. ``counts``: rows of each class in all chunks.
    """
    table = np.zeros((len(chunks), len(counts)))
    for k, chunk in enumerate(chunks):
        table[k, : len(chunk)] = chunk
    shares = table / table.sum(axis=1, keepdims=True)
    return float(np.abs(shares - np.array(counts) / sum(counts)).max())


def drift_warning(manifest: Manifest) -> list[str]:
    """Return a warning if the classes are not spread evenly over the chunks, else an empty list.

    The last chunk is ignored, because it may be small.
    """
    chunks = manifest.chunks[:-1] if len(manifest.chunks) > FEW_CHUNKS else manifest.chunks
    if len(chunks) < FEW_CHUNKS:
        return []
    drift = label_drift([c.counts for c in chunks], manifest.layout().counts)
    # up to three standard deviations of a random share are not drift
    chance = 3 * 0.5 / np.sqrt(min(c.rows for c in chunks))
    if drift <= DRIFT + chance:
        return []
    shown = f"the share of a class in a chunk is up to {100 * drift:.0f} % away from its share in all rows"
    return [f"{shown}: most solvers then need more passes; --shuffle stores the rows in random order"]


def idle_options(job: IngestJob, source: Source) -> dict[str, Sequence[str]]:
    """Return the options that had no effect, by the reason (``without_effect``), after all of the source was read."""
    given_with_arrays = () if job.sources else ("label", "weight")  # given together with arrays of a program
    encoding = source.encoding()
    schema = encoding.get("schema")
    kinds = None if schema is None else {column["kind"] for column in schema["columns"]}
    idle = {
        "no rows are held out": not job.holds_out and ("test_store",),
        "nothing is drawn": not (job.shuffle or job.test_fraction) and ("seed",),
        "no cluster is named": job.cluster is None and ("insecure_network",),
        "every line that cannot be read is an error": job.on_bad_line == "error" and ("max_bad",),
        "no column is a category": kinds is not None and CATEGORY not in kinds and ("min_count",),
        "no column is hashed": kinds is not None and HASHED not in kinds and ("hash_bits",),
        "no column is text": kinds is not None and TEXT not in kinds and ("text_bits",),
    }
    of_others = other_formats(job, encoding["format"]).items()
    by_format = {why: [name for name in names if name not in given_with_arrays] for why, names in of_others}
    return by_format | {why: names for why, names in idle.items() if names}


def precision_notices(stored: Path, source: Source, first: Rows) -> list[str]:
    """Return notices about the precision of the columns of a store that was just committed.

    ``first``: the first rows of its source.
    """
    store, offsets = open_store(stored), offsets_from(source.encoding())
    ids = find_id_columns(first, source.columns or 0, offsets)
    statistics = store.statistics()
    lines = precision_warnings(statistics, store.layout.rows, source.names, offsets, ids)
    named = np.union1d(ids, far_columns(statistics, store.layout.rows)).astype(np.int64)
    return lines + warn_of_crowded_columns(store, statistics, source.names, offsets, named)


def store_precision_notices(store: Store) -> list[str]:
    """Return notices about the precision of the columns of any store."""
    statistics, offsets, names = store.statistics(), offsets_of_store(store.facts), store.facts.get("names")
    here = Offsets(
        np.empty(0, np.int64), np.empty(0)
    )  # columns with an offset are not reported, because nothing is lost
    lines = precision_warnings(statistics, store.layout.rows, names, here)
    return lines + warn_of_crowded_columns(
        store, statistics, names, offsets, far_columns(statistics, store.layout.rows)
    )


def warn_of_crowded_columns(
    store: Store, statistics: Statistics, names: Sequence[str] | None, offsets: Offsets, named: Int64
) -> list[str]:
    """Return one line about columns in which the values of some rows are crowded within a few steps of float32, because
    they lie far from the offset that the first rows determined; empty if there are none.

    Rows are sampled from chunks in all parts of the store. ``named``: columns that another notice names already.
    """
    largest = np.maximum(np.abs(statistics.minimum), np.abs(statistics.maximum))
    far = np.setdiff1d(np.flatnonzero((largest > LEAST_FAR) & (statistics.minimum < statistics.maximum)), named)
    if not len(far):
        return []
    rows, columns, values, fractional = _sample_entries(store, far)
    shown = []
    for j in np.unique(columns).tolist():
        place = _find_crowded_value(np.sort(values[columns == j]), rows, whole=j not in fractional)
        if place is not None:
            o = float(offsets.values[offsets.columns == j].sum())
            less = f" (stored less {o:.15g})" if o else ""
            step = float(np.spacing(np.float32(abs(place))))
            shown.append(f"{name_of(names, j)} near {place + o:.9g}{less} in steps of {step:.2g}")
    if not shown:
        return []
    text = f"float32 is too coarse for some rows, whose values lie far from all others: {list_first(shown, SHOWN)}"
    return [f"{text}; subtract a constant from these rows before ingest, or leave the column out with --drop"]


def _sample_entries(store: Store, chosen_columns: Int64) -> tuple[int, Array, Float64, set[int]]:
    """Return the number of sampled rows; the column and the value of each of their entries far from 0 in the ``chosen_columns``
    columns; and the columns with values that are not integers.
    """
    layout, into = store.layout, store.buffers()
    chunks = layout.spread_chunks(SAMPLED_CHUNKS)
    width = layout.columns if layout.nonzeros is None else max(1, sum(layout.nonzeros) // max(1, layout.rows))
    rows_per_chunk = max(1, min(MOST_SAMPLED // len(chunks), MOST_NUMBERS // width // len(chunks)))
    rows, columns, values, fractional = 0, [], [], set[int]()
    for chunk in chunks:
        X = read_chunk(store, chunk, into).X
        stride = max(1, row_count(X) // rows_per_chunk)
        chosen = np.arange(row_count(X)) % stride == 0
        part = row_where(X, chosen)
        rows += int(chosen.sum())
        if isinstance(part, CSR):
            column, value = part.indices, part.data
        else:
            column, value = np.tile(np.arange(part.values.shape[1]), len(part.values)), part.values.ravel()
        fractional.update(np.unique(column[value != np.floor(value)]).tolist())
        kept = (np.abs(value) > LEAST_FAR) & np.isin(column, chosen_columns)
        columns.append(column[kept].astype(np.int64))
        values.append(value[kept].astype(np.float64))
    return rows, np.concatenate(columns), np.concatenate(values), fractional


def _find_crowded_value(values: Float64, rows: int, *, whole: bool) -> float | None:
    """Return a value at which the ascending ``values`` of a column are crowded within a few steps of float32; None if
    there is none.

    ``rows``: number of sampled rows. ``whole``: whether all values are integers, which are exact up to 2^24. Equal
    values of other columns up to 2^22 are not counted as crowded, because they may have been equal before rounding.
    """
    crowd_size = max(LEAST_CROWD, int(CROWD * rows))
    if len(values) < crowd_size:
        return None
    low, high = values[: len(values) - crowd_size + 1], values[crowd_size - 1 :]
    step = np.spacing(np.abs(low).astype(np.float32)).astype(np.float64)
    crowded = high - low <= CROWDED * step
    rounded = np.abs(low) > LARGEST_EXACT if whole else (np.abs(low) > LARGEST_EXACT / 4) | (high > low)
    places = np.flatnonzero(crowded & rounded)
    return float(low[places[0]]) if len(places) else None


def far_columns(statistics: Statistics, rows: int) -> Int64:
    """Return the columns whose mean is more than FAR_FROM_ZERO standard deviations from 0."""
    deviation = np.sqrt(statistics.M2 / rows)
    return np.flatnonzero((np.abs(statistics.mean) > FAR_FROM_ZERO * deviation) & (deviation > 0.0))


def find_id_columns(X: Rows, columns: int, offsets: Offsets) -> list[int]:
    """Return the columns that are probably identifiers: integers, above 1,000 and nearly all distinct.

    ``X``: some rows, from which ``offsets`` have been subtracted.
    """
    rows = min(row_count(X), SAMPLE)
    if rows < LEAST_ROWS or columns > MOST_COLUMNS:
        return []
    from streamsvm.compute.kernel_values.kernel_matrix import dense_rows

    values = dense_rows(X, np.arange(rows), columns).astype(np.float64)
    values[:, offsets.columns] += offsets.values
    whole = (values == np.floor(values)).all(axis=0) & (np.abs(values).max(axis=0) > 1000.0)
    # above 2^24, two or more neighboring integers are rounded to the same number, except in columns with an offset
    least = np.where(np.abs(values).max(axis=0) > LARGEST_EXACT, UNIQUE_ROUNDED, UNIQUE)
    least[offsets.columns] = UNIQUE
    return [int(j) for j in np.flatnonzero(whole) if len(np.unique(values[:, j])) >= least[j] * rows]


def precision_warnings(
    statistics: Statistics, rows: int, names: Sequence[str] | None, offsets: Offsets, ids: Sequence[int] = ()
) -> list[str]:
    """Return up to three lines: about columns with an offset, about columns that are far from 0 in spite of it, and
    about identifiers.
    """
    largest = np.maximum(np.abs(statistics.minimum), np.abs(statistics.maximum))
    step = np.spacing(largest.astype(np.float32)).astype(np.float64)
    lines = []
    if len(offsets.columns):
        shown = [f"{name_of(names, int(j))} less {o:.15g}" for j, o in zip(*offsets, strict=True)]
        lines.append(
            f"stored with an offset subtracted, because float32 is too coarse that far from 0: {list_first(shown, SHOWN)}"
        )
    far = np.setdiff1d(far_columns(statistics, rows), ids)
    if len(far):
        shown = [
            f"{name_of(names, int(j))} (mean {statistics.mean[j]:.6g}, kept in steps of {step[j]:.2g})" for j in far
        ]
        text = "float32 is too coarse for columns this far from 0: " + list_first(shown, SHOWN)
        lines.append(f"{text}; subtract a constant from them before ingest, or leave them out with --drop")
    if ids:
        lost = [j for j in ids if largest[j] > LARGEST_EXACT]
        note = f"; above 16,777,216 different ones are stored as the same: {_names(names, lost)}" if lost else ""
        lines.append(f"ids rather than quantities, it seems: {_names(names, ids)}; leave them out with --drop{note}")
    return lines


def _names(names: Sequence[str] | None, columns: Sequence[int]) -> str:
    return list_first([name_of(names, j) for j in columns], SHOWN)
