"""Measure a sample of the training rows for the record of a fit: histograms of margins or residuals, and the drift of
columns along the store.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from streamsvm.aliases import Array, JsonObject
from streamsvm.jobs.apply.metrics import lower_edges
from streamsvm.jobs.apply.row_samples import measure_margins, sum_columns
from streamsvm.jobs.column_facts import feature_names
from streamsvm.jobs.fit.plan import Plan
from streamsvm.model import Model
from streamsvm.model.model import TARGET
from streamsvm.rows import Float64, Int32, Int64, Rows, row_count, row_where
from streamsvm.schedule.stream import Stream
from streamsvm.types import Store, Visit

BINS, CLASSES, DRIFTING = 60, 10, 6
"""Maximum numbers of parts of the store and bars of a histogram; of classes; of columns whose drift is shown."""
SAMPLE, LEAST = 20_000, 4_000
"""Maximum and minimum number of rows in the sample; smaller stores have fewer."""
WIDEST = 20_000
"""Maximum number of columns of a store for which the means of chunks are computed."""


def measure_sample(store: Store, plan: Plan, model: Model, passes: int) -> JsonObject:
    """Return the histogram of the margins of sampled rows, and the columns whose mean drifts along the sampled chunks."""
    margins: list[Float64] = []
    truths: list[Int32] = []
    means: list[Float64] = []
    places = [model.classes.index(name) if name in model.classes else -1 for name in store.layout.classes]
    to_model = np.array(places, np.int32)
    for X, codes in _sample_rows(store, passes):
        if model.numeric:
            margins.append(model.decision(X)[:, 0] - codes)
            truths.append(np.zeros(len(codes), np.int32))
        else:
            truth = to_model[codes]
            known = truth >= 0
            margins.append(measure_margins(model, model.decision(X)[known], truth[known]))
            truths.append(truth[known])
        if store.layout.columns <= WIDEST:
            means.append(_means(X, store.layout.columns))
    found = build_histogram(np.concatenate(margins), np.concatenate(truths), model.classes or (TARGET,))
    low, high = found["range"]
    values = [float(plan.problems[0].loss.value(m)) for m in np.linspace(low, high, BINS + 1).tolist()]
    drift = _feature_drift(store, means) if len(means) > 1 else []
    # no curve of the loss: a threshold shifts it differently for both classes, and votes have no loss
    loss = [] if model.threshold or model.pairs else values
    return {"margins": {**found, "loss": loss}, "feature_drift": drift}


def _sample_rows(store: Store, passes: int) -> Iterator[tuple[Rows, Array]]:
    """Yield sampled rows of evenly spaced chunks, with their class codes or targets (n,). Raises the errors of reading."""
    layout = store.layout
    wanted = min(SAMPLE, max(LEAST, layout.rows * passes // 100))
    count = min(len(layout.chunks), max(4, min(16, passes * len(layout.chunks) // 100)))
    chosen = layout.spread_chunks(count)
    order = (Visit(0, chunk, 0, shuffled=False, last=chunk == chosen[-1]) for chunk in chosen)
    with Stream(store, order, depth=0) as stream:
        for loaded in stream:
            X, codes = loaded.chunk.X, loaded.chunk.codes
            step = -(-len(codes) * len(chosen) // wanted)
            selected = np.arange(len(codes)) % step == 0
            yield row_where(X, selected), codes[selected].copy()


def _means(X: Rows, columns: int) -> Float64:
    """Return the mean of each column, and the number of rows as the last entry, (columns + 1,)."""
    return np.append(sum_columns(X, columns) / row_count(X), row_count(X))


def _feature_drift(store: Store, means: Sequence[Float64]) -> list[JsonObject]:
    """Return the columns whose mean in a chunk differs most from that of all rows, measured in standard errors.

    ``means`` of each column: the differences in the sampled chunks, in standard deviations of the column.
    """
    statistics, table = store.statistics(), np.array(means)
    rows, table = table[:, -1:], table[:, :-1]
    deviation = np.sqrt(statistics.M2 / store.layout.rows)
    scaled = (table - statistics.mean) / np.where(deviation > 0, deviation, np.inf)
    far = np.abs(scaled * np.sqrt(rows)).max(axis=0)
    top = np.argsort(-far, kind="stable")[:DRIFTING].tolist()
    name_of = feature_names(store)
    return [{"column": name_of(j), "means": scaled[:, j].tolist(), "errors": float(far[j])} for j in top]


def build_histogram(margins: Float64, truth: Int32, classes: Sequence[str], rows: Int64 | None = None) -> JsonObject:
    """Return histograms of margins for the most frequent classes, in bins of equal width; values outside of the range are
    counted in the outer bins.

    ``margins``, ``truth`` (n,): margin and class index. ``rows`` (n,): the number of rows for each entry, by default 1.
    """
    rows = np.ones(len(margins), np.int64) if rows is None else rows
    low, high = _bulk(margins, rows)
    bins = np.clip(((margins - low) / (high - low) * BINS).astype(np.int64), 0, BINS - 1)
    counts = {
        name: np.bincount(bins[truth == k], rows[truth == k], minlength=BINS).astype(np.int64).tolist()
        for k, name in enumerate(classes)
    }
    most = sorted(counts, key=lambda name: -sum(counts[name]))[:CLASSES]
    return {"range": [low, high], "counts": {name: counts[name] for name in most}, "rows": int(rows.sum())}


def _bulk(margins: Float64, rows: Int64) -> tuple[float, float]:
    """Return the range of the central 99 % of the margins, extended to contain [-0.5, 1.5]."""
    if not len(margins):
        return -0.5, 1.5
    order = np.argsort(margins, kind="stable")
    shares = np.cumsum(rows[order]) / max(int(rows.sum()), 1)
    low, high = margins[order[np.searchsorted(shares, [0.005, 0.995]).clip(max=len(order) - 1)]].tolist()
    return min(low, -0.5), max(high, 1.5)


def count_margins(counts: Int64, classes: Sequence[str], threshold: float) -> JsonObject:
    """Return histograms of the margins y f(x) of both classes, where a margin below 0 is an error.

    ``counts`` (2, bins): the histograms of decision values of both classes, in ascending order.
    """
    used = np.flatnonzero(counts.any(axis=0))
    values = np.clip(lower_edges(used, counts.shape[1]), -1e30, 1e30) - threshold
    margins = np.concatenate([-values, values])
    truth: Int32 = np.repeat(np.array([0, 1], np.int32), len(values))
    return build_histogram(margins, truth, classes, np.concatenate(list(counts[:, used])))
