"""Notice columns of a table that alone predict the label almost perfectly.

Such a column is often known only with the label or after it (the date on which a loan was charged off, the price in
another currency). The model then looks better than it will be on new rows.

Rows are sampled from chunks all over the store. Two rules are tried for each column. The first predicts the most
frequent class of each value, for columns with few values and for the one-hot columns of a category together. The second,
for numbers and two classes, predicts one class above the best threshold and the other below. Rules are found on every
other sampled row and judged on the rest. For regression, the squared correlation with the target is used.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from streamsvm.config.units import percent
from streamsvm.errors import quote
from streamsvm.jobs.apply.column_names import SourceColumns, group_columns
from streamsvm.rows import CSR, Float64, Int64, Rows, row_count, row_where
from streamsvm.store import read_chunk
from streamsvm.store.sources.offsets import list_first
from streamsvm.store.sources.schema import HASHED, TEXT, shell_word
from streamsvm.type_aliases import Array
from streamsvm.types import Store

SAMPLED_CHUNKS, SAMPLED_ROWS, SAMPLED_ENTRIES = 8, 4_000, 1 << 21
"""Maximum numbers of sampled chunks, of sampled rows, and of entries of these rows."""
MIN_ROWS, MIN_RARE_ROWS = 200, 20
"""Minimum number of sampled rows, and of those outside the most frequent class, from which a rule is found."""
MAX_ERROR = 0.01
"""Maximum error of a column that predicts the label almost perfectly."""
MAX_ERROR_SHARE = 0.05
"""Its error is also at most this fraction of the error of always predicting the most frequent class."""
MIN_SQUARED_CORRELATION = 0.999
"""Minimum squared correlation with the target of a column that predicts it almost perfectly, for regression."""
FEW_VALUES = 50
"""A column of numbers with at most this many values is judged by values."""
SCREENED_ROWS = 400
"""Number of sampled rows on which a column of numbers is tried first."""
MAX_SCREENED_ERROR = 0.1
"""A column of numbers is tried on all sampled rows if its error on the first ones is at most this."""
MAX_NAMED = 3


class _Sample(NamedTuple):
    """Rows of a store, as their entries by column."""

    entry_rows: Int64
    columns: Int64
    """Ascending."""
    values: Float64
    targets: Array
    """(n,) classes or numbers."""

    def column(self, j: int) -> Float64:
        """Return the values of column ``j`` in all rows."""
        low, high = np.searchsorted(self.columns, (j, j + 1))
        column = np.zeros(len(self.targets))
        column[self.entry_rows[low:high]] = self.values[low:high]
        return column

    def one_hot(self, start: int, stop: int) -> Int64:
        """Return, for each row, which of the one-hot columns [start, stop) is 1, counted from 1; 0 if none is."""
        low, high = np.searchsorted(self.columns, (start, stop))
        places = np.zeros(len(self.targets), np.int64)
        chosen = self.values[low:high] != 0.0
        places[self.entry_rows[low:high][chosen]] = self.columns[low:high][chosen] - start + 1
        return places


def label_leak_notice(store: Store) -> list[str]:
    """Return a line with the columns of a table that alone predict the label almost perfectly, if there are any."""
    layout, encoding = store.layout, store.facts.get("encoding")
    if not (encoding or {}).get("schema") or (not layout.numeric and len(layout.classes) < 2):
        return []
    sources = group_columns(store.facts.get("names"), encoding, layout.columns)
    sample = _sample_rows(store)
    leaks: dict[int, str] = {}
    for group, text in (
        _find_proportional_columns(sources, sample) if layout.numeric else _find_predictive_columns(sources, sample)
    ):
        leaks.setdefault(group, text)
    if not leaks:
        return []
    names = [sources.name_of(group) for group in leaks]
    shown = list_first([f"{quote(name)} {text}" for name, text in zip(names, leaks.values(), strict=True)], MAX_NAMED)
    what = "predicts the label almost perfectly" if len(names) == 1 else "predict the label almost perfectly, each"
    drop = " ".join(f"--drop {shell_word(name)}" for name in names[:MAX_NAMED])
    which = "a column" if len(names) == 1 else f"{len(names)} columns"
    return [f"{which} alone {what}: {shown}. If that is known only with the label or after it, leave it out: {drop}"]


def _sample_rows(store: Store) -> _Sample:
    layout, into = store.layout, store.buffers()
    chunks = layout.spread_chunks(SAMPLED_CHUNKS)
    width = layout.columns if layout.nonzeros is None else max(1, sum(layout.nonzeros) // max(1, layout.rows))
    each = max(1, min(SAMPLED_ROWS, SAMPLED_ENTRIES // width) // len(chunks))
    rows, columns, values, targets, count = [], [], [], [], 0
    for chunk in chunks:
        loaded = read_chunk(store, chunk, into)
        chosen = np.arange(row_count(loaded.X)) % max(1, row_count(loaded.X) // each) == 0
        row, column, value = _entries(row_where(loaded.X, chosen))
        rows.append(row + count)
        columns.append(column)
        values.append(value)
        targets.append(loaded.codes[chosen])
        count += int(chosen.sum())
    column = np.concatenate(columns)
    order = np.argsort(column, kind="stable")
    return _Sample(np.concatenate(rows)[order], column[order], np.concatenate(values)[order], np.concatenate(targets))


def _entries(X: Rows) -> tuple[Int64, Int64, Float64]:
    """Return row, column and value of each entry that is not 0."""
    if isinstance(X, CSR):
        row = np.repeat(np.arange(len(X.indptr) - 1), np.diff(X.indptr))
        return row, X.indices.astype(np.int64), X.data.astype(np.float64)
    row, column = np.nonzero(X.values)
    return row, column, X.values[row, column].astype(np.float64)


def _find_proportional_columns(sources: SourceColumns, sample: _Sample) -> Iterator[tuple[int, str]]:
    """Yield the source columns whose numbers are proportional to the target, up to a constant."""
    target = sample.targets - sample.targets.mean()
    if len(target) < MIN_ROWS or not target.any():
        return
    for j in np.unique(sample.columns).tolist():
        values = sample.column(j)
        values -= values.mean()
        squares = float(values @ values) * float(target @ target)
        if squares > 0.0 and float(values @ target) ** 2 >= MIN_SQUARED_CORRELATION * squares:
            yield int(sources.group[j]), "(proportional to it)"


def _find_predictive_columns(sources: SourceColumns, sample: _Sample) -> Iterator[tuple[int, str]]:
    """Yield the source columns that predict the class almost perfectly, with the fraction of rows they are right about."""
    codes = sample.targets.astype(np.int64)
    even = np.arange(len(codes)) % 2 == 0
    counts = np.bincount(codes)
    most, judged = int(counts.argmax()), codes[~even]
    baseline = float((judged != most).mean()) if len(judged) else 0.0
    if len(codes) < MIN_ROWS or len(codes) - counts[most] < MIN_RARE_ROWS:
        return
    limit = min(MAX_ERROR, MAX_ERROR_SHARE * baseline)
    in_block = np.zeros(len(sources.group), np.bool_)
    for start, stop in sources.one_hot:
        in_block[start:stop] = True
        group = int(sources.group[start])
        error = _error_by_values(sample.one_hot(start, stop), codes, even)
        if error <= limit:
            yield group, f"({percent(1.0 - error, 4)} right)"
    for j in np.unique(sample.columns).tolist():
        group = int(sources.group[j])
        if in_block[j] or sources.kind_of(group) in (HASHED, TEXT):
            continue
        error = _error_of_number(sample.column(j), codes, even, limit)
        if error <= limit:
            yield group, f"({percent(1.0 - error, 4)} right)"


def _error_of_number(values: Float64, codes: Int64, even: Array, limit: float) -> float:
    """Return the error of the best rule of a column of numbers; 1 if it cannot be at most ``limit``."""
    distinct, places = np.unique(values[:SCREENED_ROWS], return_inverse=True)
    if len(distinct) <= FEW_VALUES:
        screened_error = _error_by_values(places, codes[:SCREENED_ROWS], even[:SCREENED_ROWS])
    else:
        screened_error = _error_by_threshold(values[:SCREENED_ROWS], codes[:SCREENED_ROWS], even[:SCREENED_ROWS])
    if screened_error > max(MAX_SCREENED_ERROR, limit):
        return 1.0
    distinct, places = np.unique(values, return_inverse=True)
    by_value = _error_by_values(places, codes, even) if len(distinct) <= FEW_VALUES else 1.0
    return min(by_value, _error_by_threshold(values, codes, even))


def _error_by_values(places: Int64, codes: Int64, even: Array) -> float:
    """Return the error on odd rows of predicting, for each value, its most frequent class in even rows."""
    classes = int(codes.max()) + 1
    table = np.bincount(places[even] * classes + codes[even], minlength=(int(places.max()) + 1) * classes)
    table = table.reshape(-1, classes)
    predicted = np.where(table.sum(axis=1) > 0, table.argmax(axis=1), -1)
    return float((predicted[places[~even]] != codes[~even]).mean())


def _error_by_threshold(values: Float64, codes: Int64, even: Array) -> float:
    """Return the error on odd rows of the best threshold on even rows between two classes; 1 for more classes."""
    classes = np.unique(codes)
    if len(classes) != 2:
        return 1.0
    is_second = codes == classes[1]
    x, second = values[even], is_second[even]
    order = np.argsort(x, kind="stable")
    x, second = x[order], second[order]
    below = np.concatenate([[0], np.cumsum(second)])  # rows of the second class among the first k
    k = np.arange(len(x) + 1)
    errors = below + (len(x) - k) - (below[-1] - below)  # the second class lies above the threshold
    possible = np.concatenate([[True], x[1:] > x[:-1], [True]])
    low, high = np.where(possible, errors, len(x)), np.where(possible, len(x) - errors, len(x))
    is_above = low.min() <= high.min()
    cut = int((low if is_above else high).argmin())
    threshold = -np.inf if cut == 0 else np.inf if cut == len(x) else 0.5 * (x[cut - 1] + x[cut])
    predicted = (values[~even] > threshold) == is_above
    return float((predicted != is_second[~even]).mean())
