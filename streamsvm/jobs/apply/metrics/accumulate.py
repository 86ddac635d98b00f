"""A model applied to rows, and its predictions counted: of classes (``class_metrics``) or of numbers (``number_metrics``)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeAlias, cast

from streamsvm.aliases import Array
from streamsvm.errors import DataError, UsageError
from streamsvm.jobs.apply.metrics.class_metrics import MetricAccumulator, ModelEvaluation
from streamsvm.jobs.apply.metrics.number_metrics import NumberAccumulator, RegressionEvaluation
from streamsvm.jobs.apply.row_batches import RowBatch, RowBatches
from streamsvm.model import Model
from streamsvm.rows import Float64

Accumulator: TypeAlias = MetricAccumulator | NumberAccumulator
"""What counts the predictions of a model: of classes, or of numbers."""
Evaluation: TypeAlias = ModelEvaluation | RegressionEvaluation
"""What it comes to."""


def joined(one: Accumulator, other: Accumulator) -> Accumulator:
    """Return an accumulator of the rows of both, which are of one model; neither changes."""
    return one.joined(cast(Any, other))


def accumulator_for(model: Model, rows: RowBatches, threshold: float | None = None) -> Accumulator:
    """Return an accumulator that has counted nothing, and calls outcomes as ``rows`` does. Raises UsageError."""
    found = empty_accumulator(model, threshold)
    if isinstance(found, MetricAccumulator):
        found.truths = rows.truths
    return found


def empty_accumulator(model: Model, threshold: float | None = None) -> Accumulator:
    """Return an accumulator of no rows. Raises UsageError for a threshold of numbers."""
    if not model.numeric:
        return MetricAccumulator(model.classes, threshold)
    if threshold is not None:
        raise UsageError("a threshold is for two classes", hint="leave out --threshold and --best-threshold")
    return NumberAccumulator()


def count_rows(model: Model, accumulator: Accumulator, decision: Float64, truth: Array | None) -> None:
    """Count rows with decision values (n, k) and outcomes, or numbers, (n,). Raises DataError E-LABEL for rows without."""
    if truth is None:
        what = "numbers" if model.numeric else "classes"
        hint = f"the model predicts {what}: ingest the rows like those of its training, or say where labels are: --label COLUMN"
        raise DataError("there are no labels to compare with", code="E-LABEL", hint=hint)
    if isinstance(accumulator, NumberAccumulator):
        accumulator.add(truth, decision)
        return
    accumulator.add(truth, model.codes(decision), decision)
    if model.calibration is not None:
        accumulator.add_probabilities(truth, decision, model.probabilities(decision))


def accumulate(model: Model, rows: Iterable[RowBatch], accumulator: Accumulator) -> Accumulator:
    """Count all rows, and return the accumulator. Raises DataError E-LABEL for rows without labels."""
    for batch in rows:
        count_rows(model, accumulator, model.decision(batch.X), batch.truth)
    return accumulator
