"""What an evaluation records for the page of the run whose model it is of: the figures, and curves of bounded size.

Decision values are counted in bins of rising value (``ranking.Ranking``): all curves are made of these counts.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from streamsvm import durable
from streamsvm.aliases import JsonObject
from streamsvm.calibration.reliability import facts_of
from streamsvm.jobs.apply.metrics.accumulate import Accumulator
from streamsvm.jobs.apply.metrics.class_metrics import MetricAccumulator
from streamsvm.jobs.apply.metrics.thresholds import lower_edges
from streamsvm.jobs.fit.results.places import CERTIFICATE, EVALUATION, run_folder
from streamsvm.jobs.report.record import histogram
from streamsvm.jobs.report.run_log import now
from streamsvm.model import Model
from streamsvm.outputs import RUN
from streamsvm.rows import Float64, Int32, Int64

POINTS = 200
"""Points of a curve."""
MOST_CLASSES = 200
"""Classes of a confusion table that is recorded."""


def record_evaluation(path: Path, model: Model, data: Sequence[str], accumulator: Accumulator) -> Path | None:
    """Write the record into the run's folder of the model at ``path``, and return where it is.

    None where there is no such folder, or none that may be written to. Raises StorageError.
    """
    folder = run_folder(path)
    if not (folder / CERTIFICATE).is_file() or RUN.fault(folder) or not os.access(folder, os.W_OK):
        return None
    if isinstance(accumulator, MetricAccumulator) and len(accumulator.truths) > MOST_CLASSES:
        return None
    found = accumulator.result()._asdict()
    primals = [float(c["primal"]) for c in model.provenance.get("certificates", [])]
    record = {"rows": found.pop("rows"), "at": now(), "data": list(data), "primals": primals, **found}
    if isinstance(accumulator, MetricAccumulator):
        if accumulator.probabilities.figures() is not None:
            record["reliability"] = reliability_of(accumulator)
        if accumulator.ranking is not None:
            record |= curves(accumulator.ranking.counts, model.classes)
    durable.write_file(folder / EVALUATION, json.dumps(record).encode())
    return folder / EVALUATION


def reliability_of(accumulator: MetricAccumulator) -> JsonObject:
    """Return what was said and what came true, of decision values taken for log odds and of the model's probabilities."""
    both = {"before": accumulator.uncalibrated, "after": accumulator.probabilities}
    return {name: facts_of(counts) for name, counts in both.items()}


def curves(counts: Int64, classes: Sequence[str]) -> JsonObject:
    """Return ROC, precision over recall, and the margins of both classes; ``counts`` (2, bins) by rising value."""
    totals = counts.sum(axis=1)
    used = np.flatnonzero(counts.any(axis=0))
    if not totals.all():
        return {}
    false, true = np.cumsum(counts[:, used][:, ::-1].astype(np.float64), axis=1)
    shares = np.array([false / totals[0], true / totals[1]])
    along = _evenly(shares.sum(axis=0))
    roc = [(0.0, 0.0), *map(tuple, shares[:, along].T.tolist())]
    recalled = _evenly(shares[1])
    precision = true[recalled] / np.maximum(true[recalled] + false[recalled], 1.0)
    values = np.clip(lower_edges(used, counts.shape[1]), -1e30, 1e30)
    return {
        "roc": roc,
        "precision_recall": list(zip(shares[1][recalled].tolist(), precision.tolist(), strict=True)),
        "margins": _margins(values, counts[:, used], classes),
    }


def _evenly(rising: Float64) -> Int64:
    """Places at which a rising quantity has come to equal parts of its end."""
    return np.unique(np.searchsorted(rising, np.linspace(0.0, rising[-1], POINTS)).clip(max=len(rising) - 1))


def _margins(values: Float64, counts: Int64, classes: Sequence[str]) -> JsonObject:
    """The histogram of y f(x): what is below 0 is wrong for either class."""
    margins = np.concatenate([-values, values])
    truth: Int32 = np.repeat(np.array([0, 1], np.int32), len(values))
    return histogram(margins, truth, classes, np.concatenate(list(counts)))
