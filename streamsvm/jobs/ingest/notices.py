"""What a user is told of an ingest: label drift, options without effect, and what float32 does to columns.

**Label drift**: classes that are not spread evenly over the chunks of a store make solvers need more passes.

**Precision**: nothing is lost in silence. A number x is kept to about |x| 2^-24. Of a column whose mean is more than
FAR_FROM_ZERO standard deviations from 0 fewer than ten bits of the variation are left, and whole numbers above 2^24
become even ones. Numbers that differ in every row and are whole are names, not quantities: a model can only learn them
by heart.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from streamsvm.aliases import Array
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
from streamsvm.types import Statistics, Store

DRIFT = 0.1
"""The distance of a class's share in a chunk from its share in all rows beyond which a user is warned."""
FEW_CHUNKS = 2
"""Fewer chunks than this say nothing about drift."""
SAMPLE, LEAST_ROWS, MOST_COLUMNS = 2000, 100, 2000
"""Rows that are looked at for names, the fewest that say something, and the widest rows that are looked at."""
UNIQUE, UNIQUE_ROUNDED = 0.99, 0.2
"""The share of different values from which on whole numbers are taken for names; of those rounded to even ones."""
SHOWN = 5
SAMPLED_CHUNKS, MOST_SAMPLED, MOST_NUMBERS = 16, 8000, 1 << 21
"""Chunks, rows and numbers at most that are looked at for rows that crowd."""
LEAST_FAR = 1e4
"""Numbers nearer 0 than this do not crowd: float32 has steps of less than a thousandth there."""
CROWDED, CROWD, LEAST_CROWD = 4, 0.0016, 16
"""Steps of float32, the share of all rows that lie between so many of them where little is kept, and the fewest rows."""


def label_drift(chunks: Sequence[Sequence[int]], counts: Sequence[int]) -> float:
    """Return how far the share of a class in a chunk is from its share in all rows, at most; 0 when classes are well
    mixed.
    """
    table = np.zeros((len(chunks), len(counts)))
    for k, chunk in enumerate(chunks):
        table[k, : len(chunk)] = chunk
    shares = table / table.sum(axis=1, keepdims=True)
    return float(np.abs(shares - np.array(counts) / sum(counts)).max())


def drift_warning(manifest: Manifest) -> list[str]:
    """Return a warning when the classes are not spread over the chunks, else nothing.

    The last chunk may be too small to judge by.
    """
    chunks = manifest.chunks[:-1] if len(manifest.chunks) > FEW_CHUNKS else manifest.chunks
    if len(chunks) < FEW_CHUNKS:
        return []
    drift = label_drift([c.counts for c in chunks], manifest.layout().counts)
    # three standard deviations of a share that is drawn by chance do not count
    chance = 3 * 0.5 / np.sqrt(min(c.rows for c in chunks))
    if drift <= DRIFT + chance:
        return []
    shown = f"the share of a class in a chunk is up to {100 * drift:.0f} % away from its share in all rows"
    return [f"{shown}: most solvers then need more passes; --shuffle stores the rows in random order"]


def idle_options(job: IngestJob, source: Source) -> dict[str, Sequence[str]]:
    """Return which fields nothing looked at in a source that was read to its end, by the reason; see
    ``without_effect``.
    """
    beside = () if job.sources else ("label", "weight")  # which are given with arrays of a program
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
    told = {why: [name for name in names if name not in beside] for why, names in of_others}
    return told | {why: names for why, names in idle.items() if names}


def precision_notices(stored: Path, source: Source, first: Rows) -> list[str]:
    """Return what float32 has done to the columns of a store just committed; ``first``: the first rows of its source."""
    store, offsets = open_store(stored), offsets_from(source.encoding())
    ids = looks_like_ids(first, source.columns or 0, offsets)
    statistics = store.statistics()
    found = precision_warnings(statistics, store.layout.rows, source.names, offsets, ids)
    named = np.union1d(ids, far_columns(statistics, store.layout.rows)).astype(np.int64)
    return found + crowded_warnings(store, statistics, source.names, offsets, named)


def store_precision_notices(store: Store) -> list[str]:
    """Return what float32 has done to the columns of a store, wherever its rows came from."""
    statistics, offsets, names = store.statistics(), offsets_of_store(store.facts), store.facts.get("names")
    here = Offsets(np.empty(0, np.int64), np.empty(0))  # which columns are stored from another zero is no loss
    found = precision_warnings(statistics, store.layout.rows, names, here)
    return found + crowded_warnings(store, statistics, names, offsets, far_columns(statistics, store.layout.rows))


def crowded_warnings(
    store: Store, statistics: Statistics, names: Sequence[str] | None, offsets: Offsets, named: Int64
) -> list[str]:
    """Return a line for columns of which some rows crowd into a few steps of float32, far from the zero that the first
    rows decided; ``named`` are columns that another line names.

    Rows are sampled from chunks all over the store: of those that lie between ``CROWDED`` steps, more than chance puts
    there.
    """
    largest = np.maximum(np.abs(statistics.minimum), np.abs(statistics.maximum))
    far = np.setdiff1d(np.flatnonzero((largest > LEAST_FAR) & (statistics.minimum < statistics.maximum)), named)
    if not len(far):
        return []
    rows, columns, values, fractional = _sample_entries(store, far)
    shown = []
    for j in np.unique(columns).tolist():
        place = _crowd(np.sort(values[columns == j]), rows, whole=j not in fractional)
        if place is not None:
            o = float(offsets.values[offsets.columns == j].sum())
            less = f" (stored less {o:.15g})" if o else ""
            step = float(np.spacing(np.float32(abs(place))))
            shown.append(f"{name_of(names, j)} near {place + o:.9g}{less} in steps of {step:.2g}")
    if not shown:
        return []
    text = f"float32 is too coarse for some rows, whose values lie far from all others: {list_first(shown, SHOWN)}"
    return [f"{text}; subtract a constant from these rows before ingest, or leave the column out with --drop"]


def _sample_entries(store: Store, wanted: Int64) -> tuple[int, Array, Float64, set[int]]:
    """Return rows that were sampled, the column and the value of each of their entries far from 0 in the wanted
    columns, and the columns that have fractions.
    """
    layout, into = store.layout, store.buffers()
    chunks = np.unique(np.linspace(0, len(layout.chunks) - 1, SAMPLED_CHUNKS).astype(int)).tolist()
    width = layout.columns if layout.nonzeros is None else max(1, sum(layout.nonzeros) // max(1, layout.rows))
    each = max(1, min(MOST_SAMPLED // len(chunks), MOST_NUMBERS // width // len(chunks)))
    rows, columns, values, fractional = 0, [], [], set[int]()
    for chunk in chunks:
        X = read_chunk(store, chunk, into).X
        stride = max(1, row_count(X) // each)
        chosen = np.arange(row_count(X)) % stride == 0
        part = row_where(X, chosen)
        rows += int(chosen.sum())
        if isinstance(part, CSR):
            column, value = part.indices, part.data
        else:
            column, value = np.tile(np.arange(part.values.shape[1]), len(part.values)), part.values.ravel()
        fractional.update(np.unique(column[value != np.floor(value)]).tolist())
        kept = (np.abs(value) > LEAST_FAR) & np.isin(column, wanted)
        columns.append(column[kept].astype(np.int64))
        values.append(value[kept].astype(np.float64))
    return rows, np.concatenate(columns), np.concatenate(values), fractional


def _crowd(values: Float64, rows: int, *, whole: bool) -> float | None:
    """Return where more of the values (ascending) than chance puts there lie between a few steps of float32; None
    where nowhere.

    The numbers of a ``whole`` column are exact up to 2^24; equal fractions up to a fourth of it may well be equal.
    """
    many = max(LEAST_CROWD, int(CROWD * rows))
    if len(values) < many:
        return None
    low, high = values[: len(values) - many + 1], values[many - 1 :]
    step = np.spacing(np.abs(low).astype(np.float32)).astype(np.float64)
    crowded = high - low <= CROWDED * step
    rounded = np.abs(low) > LARGEST_EXACT if whole else (np.abs(low) > LARGEST_EXACT / 4) | (high > low)
    places = np.flatnonzero(crowded & rounded)
    return float(low[places[0]]) if len(places) else None


def far_columns(statistics: Statistics, rows: int) -> Int64:
    """Return the columns whose mean is too many standard deviations from 0."""
    deviation = np.sqrt(statistics.M2 / rows)
    return np.flatnonzero((np.abs(statistics.mean) > FAR_FROM_ZERO * deviation) & (deviation > 0.0))


def looks_like_ids(X: Rows, columns: int, offsets: Offsets) -> list[int]:
    """Return the columns of some rows, stored at ``offsets``, whose values are whole, above 1,000 and all but unique."""
    rows = min(row_count(X), SAMPLE)
    if rows < LEAST_ROWS or columns > MOST_COLUMNS:
        return []
    from streamsvm.compute.kernel_values.kernel_matrix import dense_rows

    values = dense_rows(X, np.arange(rows), columns).astype(np.float64)
    values[:, offsets.columns] += offsets.values
    whole = (values == np.floor(values)).all(axis=0) & (np.abs(values).max(axis=0) > 1000.0)
    # above 2^24 neighbors have become equal, two by two, or four by four, but where they are stored less an offset
    least = np.where(np.abs(values).max(axis=0) > LARGEST_EXACT, UNIQUE_ROUNDED, UNIQUE)
    least[offsets.columns] = UNIQUE
    return [int(j) for j in np.flatnonzero(whole) if len(np.unique(values[:, j])) >= least[j] * rows]


def precision_warnings(
    statistics: Statistics, rows: int, names: Sequence[str] | None, offsets: Offsets, ids: Sequence[int] = ()
) -> list[str]:
    """Return a line each for columns stored less an offset, for those far from 0 nevertheless, and for ids; none where
    all is well.
    """
    largest = np.maximum(np.abs(statistics.minimum), np.abs(statistics.maximum))
    step = np.spacing(largest.astype(np.float32)).astype(np.float64)
    found = []
    if len(offsets.columns):
        shown = [f"{name_of(names, int(j))} less {o:.15g}" for j, o in zip(*offsets, strict=True)]
        found.append(
            f"stored with an offset subtracted, because float32 is too coarse that far from 0: {list_first(shown, SHOWN)}"
        )
    far = np.setdiff1d(far_columns(statistics, rows), ids)
    if len(far):
        shown = [
            f"{name_of(names, int(j))} (mean {statistics.mean[j]:.6g}, kept in steps of {step[j]:.2g})" for j in far
        ]
        text = "float32 is too coarse for columns this far from 0: " + list_first(shown, SHOWN)
        found.append(f"{text}; subtract a constant from them before ingest, or leave them out with --drop")
    if ids:
        lost = [j for j in ids if largest[j] > LARGEST_EXACT]
        note = f"; above 16,777,216 different ones are stored as the same: {_names(names, lost)}" if lost else ""
        found.append(f"ids rather than quantities, it seems: {_names(names, ids)}; leave them out with --drop{note}")
    return found


def _names(names: Sequence[str] | None, columns: Sequence[int]) -> str:
    return list_first([name_of(names, j) for j in columns], SHOWN)
