"""Jumps of curves in a fit (--jumps): given values, or frequent values that a test finds.

The pass that chooses knots also collects candidates, the most frequent values of each column. The next one sums the targets of
the training rows by candidate, and of all other rows by the cells of the histogram, from which the test (``features.jumps``) compares each candidate
with the rows around it. One thread reads the rows in their order, so that the jumps do not depend on threads or workers.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from streamsvm.compute.blocks.curves import LEVELS, lower_bounds
from streamsvm.compute.blocks.frequent_values import TABLE, candidates_of, find_frequent, sum_by_value
from streamsvm.errors import UsageError, quote
from streamsvm.features.curves import ColumnHistograms, Hats
from streamsvm.features.jumps import Jumps, find_jumps
from streamsvm.jobs.apply.column_names import group_columns, name_variable
from streamsvm.jobs.fit.options import AUTO_JUMPS, NO_JUMPS, FitJob
from streamsvm.registry import did_you_mean
from streamsvm.rows import Float32, Float64, Int64, Rows, row_where
from streamsvm.schedule.stream import Stream, epoch_visits
from streamsvm.store.sources.offsets import offsets_from
from streamsvm.types import Chunk, Store

MAX_TARGETS = 8
"""Maximum number of classes, those with the most rows, whose fractions are compared."""
TABLE_BYTES = 12 * TABLE
"""Bytes of the table of candidates of a column."""


class FrequentValues:
    """Tables of the most frequent values of columns."""

    def __init__(self, columns: Int64) -> None:
        q = len(columns)
        self.columns = columns
        self._keys, self._counts = np.zeros((q, TABLE), np.uint32), np.zeros((q, TABLE), np.int64)
        self._used = np.zeros(q, np.int64)

    def add(self, X: Rows) -> None:
        """Count the values of stored rows."""
        find_frequent(X, self.columns, self._keys, self._counts, self._used)

    def candidates(self, j: int) -> Float32:
        """Return the candidates of the column at place j, rising; 0 is one of them."""
        return np.union1d(candidates_of(self._keys[j], self._counts[j]), np.zeros(1, np.float32))


def request_jumps(job: FitJob, store: Store, columns: Int64) -> str | tuple[tuple[int, float], ...] | None:
    """Return AUTO_JUMPS, the given jumps as column and stored value, or None. Raises UsageError."""
    if job.jumps in {None, NO_JUMPS}:
        return None
    if job.jumps == AUTO_JUMPS:
        return AUTO_JUMPS
    sources = group_columns(store.facts.get("names"), store.facts.get("encoding"), store.layout.columns)
    known = {name_variable(sources, [j], number=True): j for j in columns.tolist()}
    offsets = offsets_from(store.facts.get("encoding"))
    of_column = dict(zip(offsets.columns.tolist(), offsets.values.tolist(), strict=True))
    jumps: list[tuple[int, float]] = []
    for part in str(job.jumps).split(","):
        name, _, text = (piece.strip() for piece in part.rpartition("="))
        if name not in known:
            raise UsageError(
                f"--jumps: there is no column {quote(name)} with a curve{did_you_mean(name, known)}",
                hint="auto, none, or values such as term=84,amount=25000",
            )
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if not math.isfinite(value):
            raise UsageError(f"--jumps: {quote(text)} is not a number", hint="values such as term=84,amount=25000")
        jumps.append((known[name], value - of_column.get(known[name], 0.0)))
    return tuple(jumps)


def select_weighted(chunk: Chunk) -> Chunk:
    """Return the rows of a chunk whose weight is not 0."""
    if chunk.weight is None or (chunk.weight > 0.0).all():
        return chunk
    chosen = chunk.weight > 0.0
    return chunk._replace(X=row_where(chunk.X, chosen), codes=chunk.codes[chosen], weight=chunk.weight[chosen])


def take_values(given: Sequence[tuple[int, float]] | str, hats: Hats) -> Jumps | None:
    """Return the given jumps; None if there are none."""
    assert not isinstance(given, str)  # AUTO_JUMPS needs a test
    by_column = {
        column: np.unique(np.array([value for other, value in given if other == column], np.float32))
        for column in sorted({column for column, _ in given}.intersection(hats.curved.tolist()))
    }
    return _join({column: (values, np.zeros(len(values))) for column, values in by_column.items()})


def find_jumping_values(  # noqa: PLR0917
    frequent: FrequentValues, hats: Hats, histograms: ColumnHistograms, knots: int, store: Store, depth: int
) -> Jumps | None:
    """Read the rows once and return the jumps that the test finds; None if there are none."""
    layout, is_curved = store.layout, set(hats.curved.tolist())
    places = [
        j
        for j, column in enumerate(frequent.columns.tolist())
        if column in is_curved and np.count_nonzero(histograms.counts[j]) > knots - 2
    ]
    columns = frequent.columns[places]
    of_column = [frequent.candidates(j) for j in places]
    starts = np.concatenate([[0], np.cumsum([len(one) for one in of_column], dtype=np.int64)]).astype(np.int64)
    candidates = np.concatenate([np.empty(0, np.float32), *of_column])
    classes = np.argsort(-np.array(layout.counts), kind="stable")[: MAX_TARGETS if len(layout.classes) > 2 else 1]
    targets = 1 + (2 if layout.numeric else len(classes))
    sums, level_sums = np.zeros((len(candidates), targets)), np.zeros((len(columns), LEVELS, targets))
    rows = 0
    with Stream(store, epoch_visits(layout, 0, 0, shuffled=False), depth=depth) as stream:
        for loaded in stream if len(columns) else ():
            chunk = select_weighted(loaded.chunk)
            rows += len(chunk.codes)
            if layout.numeric:
                of_rows = np.column_stack([np.ones(len(chunk.codes)), chunk.codes, np.square(chunk.codes)])
            else:
                of_rows = np.column_stack([np.ones(len(chunk.codes)), *(chunk.codes == code for code in classes)])
            sum_by_value(chunk.X, of_rows, columns, candidates, starts, sums, level_sums)
    bounds, found = lower_bounds(), {}
    for j, column in enumerate(columns.tolist()):
        part = slice(starts[j], starts[j + 1])
        found[column] = _test_column(candidates[part], sums[part], bounds, level_sums[j], rows, numeric=layout.numeric)
    return _join({column: one for column, one in found.items() if len(one[0])})


def _test_column(
    candidates: Float32, sums: Float64, bounds: Float32, level_sums: Float64, rows: int, *, numeric: bool
) -> tuple[Float32, Float64]:
    """Return the values of a column that jump, and their shares of the rows."""
    present, levels = np.flatnonzero(sums[:, 0]), np.flatnonzero(level_sums[:, 0])
    values = np.concatenate([candidates[present], bounds[levels]])
    order = np.argsort(values, kind="stable")
    all_sums = np.concatenate([sums[present], level_sums[levels]])[order]
    is_candidate = np.concatenate([np.ones(len(present), np.bool_), np.zeros(len(levels), np.bool_)])[order]
    chosen = find_jumps(is_candidate, all_sums, rows, numeric=numeric)
    return values[order][chosen], all_sums[chosen, 0] / rows


def _join(by_column: dict[int, tuple[Float32, Float64]]) -> Jumps | None:
    """Return the jumps of all columns; None if there are none. Of two values next to each other in float32 the first is kept."""
    if not by_column:
        return None
    kept = {}
    for column, (values, rows) in by_column.items():
        apart = np.concatenate([[True], np.nextafter(values[:-1], np.float32(np.inf)) < values[1:]])
        kept[column] = values[apart], rows[apart]
    starts = np.concatenate([[0], np.cumsum([len(values) for values, _ in kept.values()], dtype=np.int64)])
    values, rows = (np.concatenate([one[k] for one in kept.values()]) for k in (0, 1))
    return Jumps(np.array(list(kept), np.int32), values.astype(np.float32), starts.astype(np.int64), rows)
