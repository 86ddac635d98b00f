"""What the page of a run draws beside its certificate: of the data, of the model, and of a sample of rows.

All of it is bounded, whatever the store: at most BINS parts of the store, CLASSES classes, COLUMNS columns of a class. The
sample is of four to sixteen chunks that lie evenly in the store, of which every so many rows are looked at: a hundredth of
the rows that all passes have seen, and no more than SAMPLE.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from streamsvm import durable
from streamsvm.aliases import Array, JsonObject
from streamsvm.errors import DataError, StorageError
from streamsvm.jobs.apply.column_names import name_by_number
from streamsvm.jobs.fit.options import FitJob
from streamsvm.jobs.fit.planning.plan import Plan
from streamsvm.jobs.fit.results.places import RECORD, run_folder
from streamsvm.model import Model
from streamsvm.model.model import TARGET
from streamsvm.rows import CSR, Float64, Int32, Int64, Rows, row_count, row_where
from streamsvm.schedule.stream import Stream
from streamsvm.store import open_store
from streamsvm.types import Store, StoredFiles, Visit

BINS, CLASSES, COLUMNS, DRIFTING = 60, 10, 20, 6
"""At most: parts of the store and bars of a histogram; classes; columns of a class; columns whose drift is shown."""
SAMPLE, LEAST = 20_000, 4_000
"""Rows of the sample at most, and at least where the store has so many."""
WIDEST = 20_000
"""Columns: of wider stores the means of chunks are not looked at."""


class SampledRows(NamedTuple):
    """Some rows of a chunk."""

    chunk: int
    """Its number."""
    X: Rows
    """The rows."""
    codes: Array
    """Their classes (n,), or numbers."""


def write_record(  # noqa: PLR0917 (what a page tells of)
    job: FitJob, store: Store, plan: Plan, model: Model, passes: int, said: tuple[tuple[str, ...], tuple[str, ...]]
) -> None:
    """Write the record into the run's folder; ``said``: warnings and notices. Raises StorageError.

    A chunk that cannot be read now is no failure of the fit: the record then lacks the sample.
    """
    record = {
        "store": {"path": job.store, "digest": store.digest, "classes": _classes(store)},
        "model": {"classes": list(model.classes), "points": None if model.expansion is None else _points(model)},
        "loss": {"name": job.loss},
        "warnings": list(said[0]),
        "notices": list(said[1]),
        "coefficients": _coefficients(model, store),
        "label_drift": _label_drift(open_store(job.store, features_key=job.features_key, labels_key=job.labels_key)),
    }
    try:
        record |= _of_sample(store, plan, model, passes)
    except (DataError, StorageError):
        record["sample"] = None
    durable.write_file(run_folder(Path(job.model)) / RECORD, json.dumps(record).encode())


def _points(model: Model) -> int:
    return model.weights.shape[1] - 1


def _classes(store: Store) -> list[tuple[str, int]]:
    """The classes with most rows, and how many these are; nothing of numbers."""
    if store.layout.numeric:
        return []
    found = sorted(zip(store.layout.classes, store.layout.counts, strict=True), key=lambda one: -one[1])
    return found[:BINS]


def _coefficients(model: Model, store: Store) -> list[JsonObject]:
    """Of each class the columns that move f most when they change by their standard deviation; none of a kernel.

    A row: the name of the column, its weight in the units of the data, and its standard deviation.
    """
    if model.expansion is not None:
        return []
    name_of = _feature_names(store)
    deviation = np.sqrt(store.statistics().M2 / store.layout.rows)
    found = []
    for k, w in enumerate(model.weights[:CLASSES]):
        known = min(len(deviation), len(w) - 1)
        effect = np.abs(w[:known] * deviation[:known])
        top = np.argsort(-effect, kind="stable")[:COLUMNS]
        rows = [(name_of(j), float(w[j]), float(deviation[j])) for j in top.tolist() if effect[j] > 0]
        found.append({"positive": model.outcomes[k], "rows": rows, "intercept": float(w[-1]), "of": len(w) - 1})
    return found


def _feature_names(store: Store) -> Callable[[int], str]:
    """What tells the name of a column; of a hashed table, whose columns have none, the column that it was made of."""
    return name_by_number(store.facts.get("names"), store.facts.get("encoding"), store.layout.columns, "column {}")


def _label_drift(store: StoredFiles) -> JsonObject | None:
    """The share of the classes with most rows in parts of the whole store, in its order; None where there is one part."""
    if len(store.census) < 2 or store.layout.numeric:
        return None
    table = np.zeros((len(store.census), len(store.layout.classes)))
    for row, counts in zip(table, store.census, strict=True):
        row[: len(counts)] = counts
    parts = np.array_split(np.arange(len(table)), min(BINS, len(table)))
    sums = np.array([table[part].sum(axis=0) for part in parts])
    most = np.argsort(-np.array(store.layout.counts), kind="stable")[:CLASSES].tolist()
    shares = sums / np.maximum(sums.sum(axis=1, keepdims=True), 1.0)
    ends = np.cumsum(sums.sum(axis=1)).tolist()
    return {"rows": ends, "shares": {store.layout.classes[k]: shares[:, k].tolist() for k in most}}


def _of_sample(store: Store, plan: Plan, model: Model, passes: int) -> JsonObject:
    """Margins of the sampled rows by class, and columns whose mean drifts along the sampled chunks."""
    margins: list[Float64] = []
    truths: list[Int32] = []
    means: list[Float64] = []
    places = [model.classes.index(name) if name in model.classes else -1 for name in store.layout.classes]
    to_model = np.array(places, np.int32)
    for part in _sampled(store, passes):
        if model.numeric:
            margins.append(model.decision(part.X)[:, 0] - part.codes)
            truths.append(np.zeros(len(part.codes), np.int32))
        else:
            truth = to_model[part.codes]
            known = truth >= 0
            margins.append(_margins(model.decision(part.X)[known], truth[known]))
            truths.append(truth[known])
        if store.layout.columns <= WIDEST:
            means.append(_means(part.X, store.layout.columns))
    found = histogram(np.concatenate(margins), np.concatenate(truths), model.classes or (TARGET,))
    low, high = found["range"]
    values = [float(plan.problems[0].loss.value(m)) for m in np.linspace(low, high, BINS + 1).tolist()]
    drift = _feature_drift(store, means) if len(means) > 1 else []
    return {"margins": {**found, "loss": values}, "feature_drift": drift}


def _margins(decision: Float64, truth: Int32) -> Float64:
    """Return y f(x) of two classes, else how far the decision value of the true class is above all others; (n,)."""
    if decision.shape[1] == 1:
        return np.where(truth == 1, decision[:, 0], -decision[:, 0])
    rows = np.arange(len(decision))
    own = decision[rows, truth].copy()
    decision[rows, truth] = -np.inf
    return own - decision.max(axis=1)


def _sampled(store: Store, passes: int) -> Iterator[SampledRows]:
    """Yield rows of chunks that lie evenly in the store. Raises what reading raises."""
    layout = store.layout
    wanted = min(SAMPLE, max(LEAST, layout.rows * passes // 100))
    count = min(len(layout.chunks), max(4, min(16, passes * len(layout.chunks) // 100)))
    chosen = sorted(set(np.linspace(0, len(layout.chunks) - 1, count).round().astype(int).tolist()))
    order = (Visit(0, chunk, 0, shuffled=False, last=chunk == chosen[-1]) for chunk in chosen)
    with Stream(store, order, depth=0) as stream:
        for loaded in stream:
            X, codes = loaded.chunk.X, loaded.chunk.codes
            step = -(-len(codes) * len(chosen) // wanted)
            every = np.arange(len(codes)) % step == 0
            yield SampledRows(loaded.visit.chunk, row_where(X, every), codes[every].copy())


def _means(X: Rows, columns: int) -> Float64:
    """The mean of each column (columns,), and how many rows it is of."""
    if isinstance(X, CSR):
        sums = np.bincount(X.indices, weights=X.data, minlength=columns)
    else:
        sums = X.values.sum(axis=0, dtype=np.float64)
    return np.append(sums / row_count(X), row_count(X))


def _feature_drift(store: Store, means: Sequence[Float64]) -> list[JsonObject]:
    """The columns whose mean in a chunk is furthest from that of all rows, in standard errors; in standard deviations."""
    statistics, table = store.statistics(), np.array(means)
    rows, table = table[:, -1:], table[:, :-1]
    deviation = np.sqrt(statistics.M2 / store.layout.rows)
    scaled = (table - statistics.mean) / np.where(deviation > 0, deviation, np.inf)
    far = np.abs(scaled * np.sqrt(rows)).max(axis=0)
    top = np.argsort(-far, kind="stable")[:DRIFTING].tolist()
    name_of = _feature_names(store)
    return [{"column": name_of(j), "means": scaled[:, j].tolist(), "errors": float(far[j])} for j in top]


def histogram(margins: Float64, truth: Int32, classes: Sequence[str], rows: Int64 | None = None) -> JsonObject:
    """Return counts of margins in bins of equal width, of the classes with most rows; the outer bins have what lies beyond.

    ``margins``, ``truth`` (n,); ``rows`` (n,): how many rows each entry stands for, by default one.
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
    """What 99 % of the margins lie within, 0 and 1 in any case."""
    if not len(margins):
        return -0.5, 1.5
    order = np.argsort(margins, kind="stable")
    shares = np.cumsum(rows[order]) / max(int(rows.sum()), 1)
    low, high = margins[order[np.searchsorted(shares, [0.005, 0.995]).clip(max=len(order) - 1)]].tolist()
    return min(low, -0.5), max(high, 1.5)
