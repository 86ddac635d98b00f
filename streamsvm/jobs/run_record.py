"""Write the record of a run for its page: the log of events, facts about data and model, and the results of evaluations.

**The log**, ``events.jsonl``, is short enough to read and draw even after a week. Every event is written, except that
events of progress, which occur five times a second, are thinned: one is written after another 1 % of the run's time has
passed since the last one. So n lines cover a time that grows like 1.01^n, and a week gives one or two thousand lines.

**The record** has the facts that the page shows in addition to the certificate: about the data, the model and a sample
of the training rows (histograms of margins or residuals, and columns whose mean drifts along the store). Its size is
bounded for any store: at most BINS parts of the store, CLASSES classes, and few columns of a class. The sample consists
of evenly spaced rows of four to sixteen evenly spaced chunks: 1 % of the rows read in all passes, and at most 20,000
rows (``measure_sample``).

**The results of an evaluation** are measures and curves of bounded size: all curves are computed from the histogram of
decision values (``measures.Ranking``).
"""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from streamsvm import __version__, durable
from streamsvm.errors import DataError, StorageError, StreamSVMError
from streamsvm.input_files import read_whole
from streamsvm.jobs.apply.column_names import SourceColumns, group_columns
from streamsvm.jobs.apply.measures import Accumulator, ClassAccumulator, build_curves, lower_edges
from streamsvm.jobs.apply.row_samples import RowSamples, WorstRow, measure_margins, sum_columns
from streamsvm.jobs.column_facts import (
    compare_columns,
    describe_columns,
    describe_pairs,
    feature_names,
    list_largest_coefficients,
)
from streamsvm.jobs.fit.options import FitJob
from streamsvm.jobs.fit.outputs import CERTIFICATE, EVALUATION, RECORD, run_folder
from streamsvm.jobs.fit.plan import Plan
from streamsvm.model import Model
from streamsvm.model.model import KERNEL, TARGET
from streamsvm.outputs import RUN
from streamsvm.rows import Float64, Int32, Int64, Rows, row_count, row_where
from streamsvm.schedule.stream import Stream
from streamsvm.store import open_store
from streamsvm.type_aliases import Array, JsonObject
from streamsvm.types import Report, Store, StoredFiles, Visit

BINS, CLASSES, DRIFTING = 60, 10, 6
"""Maximum numbers of parts of the store and bars of a histogram; of classes; of columns whose drift is shown."""
SAMPLE, LEAST = 20_000, 4_000
"""Maximum and minimum number of rows in the sample; smaller stores have fewer."""
WIDEST = 20_000
"""Maximum number of columns of a store for which the means of chunks are computed."""
SHARE = 0.01
"""Minimum time between two logged events of progress, as a fraction of the run's time."""
SCATTER, REASONS = 400, 4
"""The number of targets drawn against their predictions, and of reasons listed for a row with a large error."""
MAX_RECORD_BYTES = 16 << 20
MOST_CLASSES = 200
"""Maximum number of classes for which an evaluation, with its confusion matrix, is recorded."""


class Thinning:
    """Chooses which events of progress are written."""

    def __init__(self) -> None:
        self._last = float("-inf")

    def keeps(self, event: JsonObject) -> bool:
        """Return whether the event is to be written. Events without seconds are always written."""
        seconds = event.get("seconds")
        if event["event"] != "progress" or seconds is None:
            return True
        if 0 <= seconds - self._last < SHARE * seconds:
            return False
        self._last = seconds
        return True


@contextmanager
def run_log(report: Report, path: Path, began: JsonObject) -> Iterator[Callable[[JsonObject], None]]:
    """Pass every event to ``report`` and to the log of the run. The first line of the log has the facts ``began``; if the
    run is stopped by an error, the last line has the error.
    """
    thinning = Thinning()
    with durable.open_log(path) as log:

        def record(event: JsonObject) -> None:
            if thinning.keeps(event):
                log.write(json.dumps(event) + "\n")
            report(event)

        log.write(json.dumps({"event": "began", "at": utc_now(), **began, "machine": machine()}) + "\n")
        try:
            yield record
        except StreamSVMError as error:
            stopped = {"event": "stopped", "code": error.code, "message": error.message, "hint": error.hint}
            log.write(json.dumps(stopped) + "\n")
            raise


def utc_now() -> str:
    """Return the current time in UTC: '2026-11-22 15:50:07'."""
    return datetime.now(UTC).strftime("%Y-%m-%d %H:%M:%S")


def machine() -> JsonObject:
    """Return the software versions, the processor and the number of CPUs as plain JSON."""
    return {
        "streamsvm": __version__,
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
        "cpus": len(os.sched_getaffinity(0)),
    }


def write_record(  # noqa: PLR0917
    job: FitJob,
    store: Store,
    plan: Plan,
    model: Model,
    passes: int,
    messages: tuple[tuple[str, ...], tuple[str, ...]],
    compile_seconds: float,
) -> None:
    """Write the record into the folder of the run. Raises StorageError.

    ``messages``: the warnings and the notices. ``compile_seconds``: the time spent in the compiler. If a chunk cannot be
    read, the fit is still valid, and the record has no sample.
    """
    record = {
        "store": {"path": job.store, "digest": store.digest, "classes": frequent_classes(store)},
        "model": {"classes": list(model.classes), "points": _points(model)},
        "loss": {"name": job.loss},
        "compile_seconds": compile_seconds,
        "warnings": list(messages[0]),
        "notices": list(messages[1]),
        "coefficients": list_largest_coefficients(model, store),
        "columns": describe_columns(model, store),
        "pairs": describe_pairs(model, store),
        "label_drift": _label_drift(open_store(job.store, features_key=job.features_key, labels_key=job.labels_key)),
    }
    try:
        record |= measure_sample(store, plan, model, passes)
    except (DataError, StorageError):
        record["sample"] = None
    durable.write_file(run_folder(Path(job.model)) / RECORD, json.dumps(record).encode())


def _points(model: Model) -> int | None:
    """Return the number of points of a kernel model; None for other models."""
    return None if model.kind != KERNEL else model.weights.shape[1] - 1


def frequent_classes(store: Store) -> list[tuple[str, int]]:
    """Return the most frequent classes with their numbers of rows; empty for regression."""
    if store.layout.numeric:
        return []
    classes = sorted(zip(store.layout.classes, store.layout.counts, strict=True), key=lambda pair: -pair[1])
    return classes[:BINS]


def _label_drift(store: StoredFiles) -> JsonObject | None:
    """Return the shares of the most frequent classes in consecutive parts of the store; None if there is only one part, and
    for regression.
    """
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


# -- a sample of the training rows


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
            in_classes = truth >= 0
            margins.append(measure_margins(model, model.decision(X)[in_classes], truth[in_classes]))
            truths.append(truth[in_classes])
        if store.layout.columns <= WIDEST:
            means.append(_means(X, store.layout.columns))
    histogram = build_histogram(np.concatenate(margins), np.concatenate(truths), model.classes or (TARGET,))
    low, high = histogram["range"]
    values = [float(plan.problems[0].loss.value(m)) for m in np.linspace(low, high, BINS + 1).tolist()]
    drift = _feature_drift(store, means) if len(means) > 1 else []
    # no curve of the loss: a threshold shifts it differently for both classes, and votes have no loss
    loss = [] if model.threshold or model.pairs else values
    return {"margins": {**histogram, "loss": loss}, "feature_drift": drift}


def _sample_rows(store: Store, passes: int) -> Iterator[tuple[Rows, Array]]:
    """Yield sampled rows of evenly spaced chunks, with their class codes or targets (n,). Raises the errors of reading."""
    layout = store.layout
    row_count_wanted = min(SAMPLE, max(LEAST, layout.rows * passes // 100))
    count = min(len(layout.chunks), max(4, min(16, passes * len(layout.chunks) // 100)))
    chosen = layout.spread_chunks(count)
    order = (Visit(0, chunk, 0, shuffled=False, last=chunk == chosen[-1]) for chunk in chosen)
    with Stream(store, order, depth=0) as stream:
        for loaded in stream:
            X, codes = loaded.chunk.X, loaded.chunk.codes
            step = -(-len(codes) * len(chosen) // row_count_wanted)
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


# -- results of an evaluation


def evaluation_folder(path: Path) -> Path | None:
    """Return the folder of the run of the model at ``path``, in which evaluations are recorded; None if there is no such
    folder, or if it is not writable.
    """
    folder = run_folder(path)
    if not (folder / CERTIFICATE).is_file() or RUN.fault(folder) or not os.access(folder, os.W_OK):
        return None
    return folder


def record_evaluation(path: Path, model: Model, data: Sequence[str], accumulator: Accumulator) -> Path | None:
    """Write the results of an evaluation into the folder of the run of the model at ``path``, and return their path.

    Returns None, and writes nothing, without a writable folder or with too many classes. Raises StorageError.
    """
    folder = evaluation_folder(path)
    if folder is None:
        return None
    if isinstance(accumulator, ClassAccumulator) and len(accumulator.truths) > MOST_CLASSES:
        return None
    figures = accumulator.result()._asdict()
    primals = [float(c["primal"]) for c in model.provenance.get("certificates", [])]
    record = {"rows": figures.pop("rows"), "at": utc_now(), "data": list(data), "primals": primals, **figures}
    if isinstance(accumulator, ClassAccumulator):
        if accumulator.probabilities.figures() is not None:
            record["reliability"] = reliability_facts(accumulator)
        if accumulator.ranking is not None:
            counts = accumulator.ranking.counts
            if curves := build_curves(counts, accumulator.positive):
                record |= curves | {"margins": count_margins(counts, model.classes, model.threshold)}
    if accumulator.samples is not None:
        record |= describe_samples(accumulator.samples, model, list(getattr(accumulator, "truths", ())))
        if accumulator.samples.means is not None:
            recorded = _read_column_facts(folder / RECORD)
            record["drift"] = compare_columns(recorded, accumulator.samples.means, accumulator.samples.rows)
    durable.write_file(folder / EVALUATION, json.dumps(record).encode())
    return folder / EVALUATION


def _read_column_facts(path: Path) -> Any:
    """Return the facts about columns in the record of the fit; None if there are none, or if they cannot be read."""
    try:
        return json.loads(read_whole(path, MAX_RECORD_BYTES)).get("columns")
    except (OSError, ValueError, RecursionError, AttributeError, DataError):
        return None


def describe_samples(samples: RowSamples, model: Model, truths: Sequence[str]) -> JsonObject:
    """Return the rows with the worst errors, and for the sampled rows histograms of margins or residuals, and some targets
    with their predictions.
    """
    sources = group_columns(model.names, model.provenance.get("encoding"), model.columns)
    facts: JsonObject = {"worst": [_describe_worst(one, samples, model, sources, truths) for one in samples.worst]}
    points = samples.points
    if not len(points):
        return facts
    if model.numeric:
        residuals = points[:, 1] - points[:, 0]
        facts["residuals"] = build_histogram(residuals, np.zeros(len(points), np.int32), (TARGET,))
        facts["scatter"] = points[:SCATTER].tolist()
        facts["MAE_of_mean"] = float(np.abs(points[:, 0] - points[:, 0].mean()).mean())
    elif len(model.weights) > 1:
        facts["margins"] = build_histogram(points[:, 1], points[:, 0].astype(np.int32), model.classes)
    return facts


def _describe_worst(
    one: WorstRow, samples: RowSamples, model: Model, sources: SourceColumns, truths: Sequence[str]
) -> JsonObject:
    decision = one.decision[None]
    facts: JsonObject = {"row": one.row, "id": None if one.id is None else str(one.id), "error": one.error}
    if model.numeric:
        return facts | {
            "truth": f"{one.truth:.6g}",
            "predicted": f"{float(one.decision[0]):.6g}",
            "reasons": _list_reasons(one, samples, model, sources, model.weights[0]),
        }
    code, truth = int(model.codes(decision)[0]), int(one.truth)
    if model.calibration is not None:
        facts["probability"] = float(model.probabilities(decision)[0, code])
    towards = None
    if len(model.weights) == 1:
        towards = model.weights[0] if code == 1 else -model.weights[0]
    elif not model.pairs:
        towards = model.weights[code] - model.weights[truth]
    return facts | {
        "truth": truths[truth],
        "predicted": model.classes[code],
        "reasons": _list_reasons(one, samples, model, sources, towards),
    }


def _list_reasons(
    one: WorstRow, samples: RowSamples, model: Model, sources: SourceColumns, w: Float64 | None
) -> list[tuple[str, float]]:
    """Return the columns and values of a row with the largest contributions w_j (x_j - mean x_j), as texts, with these
    contributions; empty for a kernel model.
    """
    if model.expansion is not None or w is None or not len(one.columns):
        return []
    means = np.zeros(model.columns) if samples.means is None else samples.means
    contributions = w[one.columns] * (one.values - means[one.columns])
    offsets, reasons = model.offsets, []
    for k in np.argsort(-np.abs(contributions), kind="stable")[:REASONS].tolist():
        j = int(one.columns[k])
        name, value = sources.name_of(int(sources.group[j])), sources.value_of(j)
        number = f"{one.values[k] + offsets.get(j, 0.0):.4g}"
        is_one = one.values[k] == sources.sign_of(j) and value
        text = f"{name}: {value}" if is_one else f"{name} {value} = {number}".replace("  ", " ")
        reasons.append((text, float(f"{contributions[k]:.4g}")))
    return reasons


def reliability_facts(accumulator: ClassAccumulator) -> JsonObject:
    """Return the reliability of the decision values read as log odds, and of the model's probabilities, as plain JSON."""
    both = {"before": accumulator.uncalibrated, "after": accumulator.probabilities}
    return {name: counts.facts() for name, counts in both.items()}
