"""How good predictions are, counted while rows stream by: memory does not depend on the number of rows.

``MetricAccumulator`` counts classes: confusion, losses, a ranking of decision values in bins of rising value
(``Ranking``, 4 MiB), from which the area under the ROC curve and all thresholds are computed; thresholds at the lower
edge of a bin have exact counts. ``NumberAccumulator`` sums the errors of a regression. Rows that choose among models
are counted by ``model.measures``.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple, TypeAlias, cast

import numpy as np
from numpy.typing import NDArray

from streamsvm.aliases import Array
from streamsvm.calibration.reliability import ProbabilityCounts, read_as_log_odds
from streamsvm.errors import DataError, UsageError, quote
from streamsvm.jobs.apply.row_samples import RowSamples
from streamsvm.jobs.apply.rows import RowBatch, RowBatches
from streamsvm.model import Model
from streamsvm.rows import Float64, Int32, Int64

KEY_BITS = 18
"""Decision values are ranked by the first 18 bits of their float32: sign, exponent, 9 bits of mantissa (0.2 %)."""


def make_accumulator(
    model: Model, rows: RowBatches, threshold: float | None = None, positive: str | None = None
) -> Accumulator:
    """Return an empty accumulator with the outcomes of ``rows``. Raises UsageError."""
    found = empty_accumulator(model, threshold, positive)
    if isinstance(found, MetricAccumulator):
        found.truths = rows.truths
    return found


def empty_accumulator(model: Model, threshold: float | None = None, positive: str | None = None) -> Accumulator:
    """Return an accumulator of no rows. ``positive``: the positive class that was asked for; None: that of the fit, if it
    had one.

    Raises UsageError for a threshold of numbers, and for a class that is not one of two.
    """
    if not model.numeric:
        if positive is not None and (len(model.weights) > 1 or positive not in model.classes):
            found = f"the model's classes are {', '.join(map(quote, model.classes[:10]))}"
            if len(model.weights) > 1:
                raise UsageError(
                    f"--positive is for two classes, and {found}", hint="leave it out: each class has its figures"
                )
            raise UsageError(f"--positive {quote(positive)} is no class of the model", hint=found)
        return MetricAccumulator(model.classes, threshold, positive or _recorded_positive(model))
    if positive is not None:
        raise UsageError("--positive is for classes, and the model predicts numbers", hint="leave it out")
    if threshold is not None:
        raise UsageError("a threshold is for two classes", hint="leave out --threshold and --best-threshold")
    return NumberAccumulator()


def _recorded_positive(model: Model) -> str | None:
    """Return the positive class that is recorded of a model of two classes: of its threshold, else of its settings; else None."""
    stated = (model.provenance.get("threshold") or model.provenance.get("settings") or {}).get("positive")
    return stated if stated in model.classes and len(model.weights) == 1 else None


def accumulate(model: Model, rows: Iterable[RowBatch], accumulator: Accumulator) -> Accumulator:
    """Count all rows, and return the accumulator. Raises DataError E-LABEL for rows without labels."""
    for batch in rows:
        decision, first = model.decision(batch.X), batch.first or accumulator.rows
        count_rows(model, accumulator, decision, batch.truth)
        if accumulator.samples is not None and batch.truth is not None:
            accumulator.samples.add(model, batch.X, decision, batch.truth, first, batch.ids)
    return accumulator


def _join_samples(one: RowSamples | None, other: RowSamples | None) -> RowSamples | None:
    """Return what both have kept; neither changes."""
    if one is None or other is None:
        return one or other
    both = replace(one, worst=list(one.worst))
    both.count_in(other)
    return both


def count_rows(model: Model, accumulator: Accumulator, decision: Float64, truth: Array | None) -> None:
    """Count rows with decision values (n, k) and outcomes, or numbers, (n,). Raises DataError E-LABEL for rows
    without.
    """
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


def merge_accumulators(one: Accumulator, other: Accumulator) -> Accumulator:
    """Return an accumulator of the rows of both, which are of one model; neither changes."""
    return one.merge(cast(Any, other))


Z_95 = 1.959963984540054
"""The 97.5 % quantile of the normal distribution."""


def wilson_interval(share: float, rows: int) -> tuple[float, float]:
    """Return the interval in which the share of all rows lies with a probability of 95 %, for the share of ``rows`` independent ones.

    (p + z^2/2n +- z sqrt(p (1 - p)/n + z^2/4n^2)) / (1 + z^2/n): E. B. Wilson, J. American Statistical Association 22 (1927).
    """
    z2 = Z_95 * Z_95 / rows
    middle, half = share + z2 / 2, Z_95 * float(np.sqrt(share * (1.0 - share) / rows + z2 / (4 * rows)))
    return max(0.0, (middle - half) / (1.0 + z2)), min(1.0, (middle + half) / (1.0 + z2))


class ModelEvaluation(NamedTuple):
    """How good a model is on some rows, each row counted once whatever its weight.

    Figures that are for two classes only are None for more.
    """

    rows: int
    """The number of rows."""
    accuracy: float
    """The share of right answers."""
    balanced_accuracy: float
    """The mean share of right answers over the classes that occur."""
    F1: float | None
    """The F1 score of the class ``positive``."""
    F1_macro: float
    """The mean F1 score of the classes that occur or were predicted."""
    AUC: float | None
    """The area under the ROC curve."""
    AUC_error: float | None
    """How far at most the exact AUC is from ``AUC``."""
    hinge: float | None
    """The mean hinge loss."""
    squared_hinge: float | None
    """The mean squared hinge loss."""
    classes: tuple[str, ...]
    """The classes of the model."""
    truths: tuple[str, ...]
    """The labels that occurred: the model's classes, then labels it does not know."""
    confusion: tuple[tuple[int, ...], ...]
    """Rows of each of ``truths`` by which of ``classes`` was predicted for them."""
    average_precision: float | None
    """The area under precision over recall of the class ``positive``, as steps."""
    precision: tuple[float, ...]
    """For each of ``truths``, the share of right answers among the rows it was predicted for; 0 where there are none."""
    recall: tuple[float, ...]
    """For each of ``truths``, the share of its rows it was predicted for; 0 where there are none."""
    F1_by_class: tuple[float, ...]
    """For each of ``truths``, the harmonic mean of both."""
    log_loss: float | None = None
    """The mean of - log p of the true class; None for a model without probabilities. Rows of classes it does not know
    are left out.
    """
    Brier: float | None = None
    """The mean squared error of the probability of ``classes[1]``; of more than two classes the mean of the sum over
    all.
    """
    ECE: float | None = None
    """The expected calibration error over 15 bins: of the probability of ``classes[1]``, or of the predicted class."""
    positive: str | None = None
    """Of two classes the positive one: that of --positive, of the fit or of evaluate, else the rarer one."""


class MetricAccumulator:
    """Counts the confusion table, the losses and the ranking of a model's predictions.

    ``truths`` are the model's classes and, after them, labels the model does not know, which are always errors.
    """

    def __init__(self, classes: Sequence[str], threshold: float | None = None, positive: str | None = None) -> None:
        self.classes, self._stated = tuple(classes), positive
        self.truths = list(classes)
        self.confusion = np.zeros((len(self.classes), len(self.classes)), np.int64)
        self._hinge = self._squared = 0.0
        self.ranking: Ranking | None = None
        self.threshold = threshold
        self._above = np.zeros(2, np.int64)
        self.probabilities = ProbabilityCounts()
        """Of the model's probabilities; of no rows where it has none."""
        self.uncalibrated = ProbabilityCounts()
        """Of its decision values, taken for log odds."""
        self.samples: RowSamples | None = None
        """What is kept of the rows for a page; None where there is none."""

    @property
    def rows(self) -> int:
        """How many rows were counted."""
        return int(self.confusion.sum())

    @property
    def positive(self) -> int:
        """Which of two classes is the positive one: the one that was stated, else the rarer one, of equal ones the second."""
        if self._stated is not None:
            return self.classes.index(self._stated)
        first, second = self.confusion[:2].sum(axis=1).tolist()
        return 0 if first < second else 1

    def add(self, truth: Int32, predicted: Int32, decision: Float64) -> None:
        """Count rows: indices into ``truths`` and ``classes`` (n,), decision values (n, k)."""
        rows, columns = len(self.truths), len(self.classes)
        if len(self.confusion) < rows:
            self.confusion = np.pad(self.confusion, ((0, rows - len(self.confusion)), (0, 0)))
        cells = truth.astype(np.int64) * columns + predicted
        self.confusion += np.bincount(cells, minlength=rows * columns).reshape(rows, columns)
        if decision.shape[1] == 1:
            self._add_binary(truth == 1, truth < columns, decision[:, 0])

    def add_probabilities(self, truth: Int32, decision: Float64, probabilities: Float64) -> None:
        """Count the probabilities (n, classes) of rows, beside ``add``."""
        self.probabilities.add(probabilities, truth)
        self.uncalibrated.add(read_as_log_odds(decision), truth)

    def _add_binary(self, positive: NDArray[np.bool_], known: NDArray[np.bool_], f: Float64) -> None:
        slack = np.maximum(0.0, 1.0 - np.where(positive, f, -f))
        self._hinge += float(slack.sum())
        self._squared += float(slack @ slack)
        self.ranking = self.ranking or Ranking()
        self.ranking.add(f[known], positive[known])
        if self.threshold is not None:
            self._above += np.bincount(positive[known & (f > self.threshold)].astype(np.int64), minlength=2)

    def merge(self, other: MetricAccumulator) -> MetricAccumulator:
        """Return an accumulator of the rows of both; neither changes."""
        both = MetricAccumulator(self.classes, self.threshold, self._stated)
        both.count_in(self)
        both.count_in(other)
        return both

    def count_in(self, other: MetricAccumulator) -> None:
        """Count the rows of another accumulator of the same model."""
        self.truths += [name for name in other.truths if name not in self.truths]
        self.confusion = np.pad(self.confusion, ((0, len(self.truths) - len(self.confusion)), (0, 0)))
        places = [self.truths.index(name) for name in other.truths[: len(other.confusion)]]
        self.confusion[places] += other.confusion
        self._hinge += other._hinge
        self._squared += other._squared
        self._above += other._above
        self.probabilities.merge(other.probabilities)
        self.uncalibrated.merge(other.uncalibrated)
        self.samples = _join_samples(self.samples, other.samples)
        if other.ranking is not None:
            self.ranking = self.ranking or Ranking()
            self.ranking.counts += other.ranking.counts

    def at_thresholds(
        self, measure: str | None, costs: tuple[float, float]
    ) -> tuple[ThresholdFigures | None, ThresholdFigures | None]:
        """Return the figures at the threshold that was stated, and at the best one by a measure, where asked for.

        Raises UsageError for more than two classes.
        """
        if self.ranking is None:
            if measure is None and self.threshold is None:
                return None, None
            raise UsageError("a threshold is for two classes", hint="leave out --threshold and --best-threshold")
        counts, positive = self.ranking.counts, self.positive
        stated = (
            None
            if self.threshold is None
            else figures_at_threshold(self.threshold, self._above, counts, costs, positive)
        )
        return stated, None if measure is None else best_threshold(counts, measure, costs, positive)

    def result(self) -> ModelEvaluation:
        """Return the figures of all rows counted."""
        table, rows = self.confusion, self.rows
        actual = table.sum(axis=1)
        # a class that the model does not know is never predicted: its recall and its F1 are 0, and they count
        predicted, hits = np.zeros(len(actual), np.int64), np.zeros(len(actual))
        predicted[: len(self.classes)] = table.sum(axis=0)
        hits[: len(self.classes)] = np.diag(table[: len(self.classes)])
        present = actual > 0
        F1 = 2 * hits / np.maximum(actual + predicted, 1)
        binary = self.ranking is not None
        auc = self.ranking.auc() if self.ranking else None
        said = self.probabilities.figures()
        return ModelEvaluation(
            rows=rows,
            accuracy=float(hits.sum()) / rows,
            balanced_accuracy=float(np.mean(hits[present] / actual[present])) if present.any() else 0.0,
            F1=float(F1[self.positive]) if binary else None,
            F1_macro=float(F1[present | (predicted > 0)].mean()),
            AUC=auc.value if auc else None,
            AUC_error=auc.error if auc else None,
            hinge=self._hinge / rows if binary else None,
            squared_hinge=self._squared / rows if binary else None,
            classes=self.classes,
            truths=tuple(self.truths),
            confusion=tuple(tuple(row) for row in table.tolist()),
            average_precision=average_precision(self.ranking.of_positive(self.positive)) if self.ranking else None,
            precision=tuple((hits / np.maximum(predicted, 1)).tolist()),
            recall=tuple((hits / np.maximum(actual, 1)).tolist()),
            F1_by_class=tuple(F1.tolist()),
            **({} if said is None else said._asdict()),
            positive=self.classes[self.positive] if binary else None,
        )


class Ranking:
    """The decision values of two classes as histograms over 2^18 bins in rising order: 4 MiB, whatever the number of
    rows.
    """

    def __init__(self) -> None:
        self.counts = np.zeros((2, 1 << KEY_BITS), np.int64)

    def add(self, decision: Float64, positive: NDArray[np.bool_]) -> None:
        """Count rows with decision values (n,) and ``positive`` (n,) bool."""
        keys = sort_keys(decision)
        for side, mask in enumerate((~positive, positive)):
            self.counts[side] += np.bincount(keys[mask], minlength=1 << KEY_BITS)

    def of_positive(self, positive: int) -> Int64:
        """Return the counts (2, bins) of the other and of the positive class, by how much rows look like the positive one."""
        return self.counts if positive == 1 else self.counts[::-1, ::-1]

    def auc(self) -> AUC | None:
        """Return the area under the ROC curve, in which pairs of one bin count as half a pair; None when there is one
        class only.
        """
        negatives, positives = self.counts.astype(np.float64)
        pairs = float(negatives.sum() * positives.sum())
        if not pairs:
            return None
        below = np.cumsum(negatives) - negatives
        tied = float(positives @ negatives)
        return AUC((float(positives @ below) + 0.5 * tied) / pairs, 0.5 * tied / pairs)


class AUC(NamedTuple):
    """The area under the ROC curve; the exact one is within ``error`` of ``value``."""

    value: float
    """The area, from 0 to 1."""
    error: float
    """How far at most the exact area is from it."""


def sort_keys(values: Float64) -> Int64:
    """Return the leading bits of float32 values as integers (n,) in the order of the values."""
    bits = (values.astype(np.float32) + np.float32(0)).view(np.uint32)  # + 0: -0.0 is 0.0
    ordered = np.where(bits >> 31 == 1, ~bits, bits | np.uint32(1 << 31))
    return (ordered >> np.uint32(32 - KEY_BITS)).astype(np.int64)


class ThresholdFigures(NamedTuple):
    """How good a model is where rows from ``threshold`` on are taken for ``classes[1]``."""

    threshold: float
    """The decision value: f > threshold where it was stated, f >= threshold where it was found."""
    precision: float
    """The share of positives among the rows that are taken for positive; 0 where there are none."""
    recall: float
    """The share of the positives that are taken for positive."""
    F1: float
    """The harmonic mean of both."""
    balanced_accuracy: float
    """The mean of the recall of both classes."""
    accuracy: float
    """The share of right answers."""
    cost: float
    """The mean cost of a row: that of a false positive or a false negative, or 0; by default 1 each."""


def compute_figures(
    thresholds: Float64, taken: Int64, rows: Int64, costs: tuple[float, float], positive: int = 1
) -> list[Float64]:
    """Return the fields of ``ThresholdFigures`` for many thresholds at once.

    ``taken``: rows of both classes (2, k) taken for the second one; ``rows``: how many there are (2,). ``positive``: the
    class that precision, recall, F1 and cost are of.
    """
    if positive == 0:
        taken, rows = (rows[:, None] - taken)[::-1], rows[::-1]
    false, true = taken.astype(np.float64)
    negatives, positives = (max(float(count), 1.0) for count in rows)
    missed, total = rows[1] - true, max(float(rows.sum()), 1.0)
    precision, recall = true / np.maximum(true + false, 1.0), true / positives
    F1 = 2 * true / np.maximum(2 * true + false + missed, 1.0)
    balanced = (recall + 1 - false / negatives) / 2
    return [
        thresholds,
        precision,
        recall,
        F1,
        balanced,
        1 - (false + missed) / total,
        (costs[0] * false + costs[1] * missed) / total,
    ]


def figures_at_threshold(
    threshold: float, taken: Int64, counts: Int64, costs: tuple[float, float] = (1.0, 1.0), positive: int = 1
) -> ThresholdFigures:
    """Return the figures at one threshold; ``taken`` (2,) as counted there, ``counts`` (2, bins) of the ranking."""
    found = compute_figures(np.array([threshold]), taken[:, None], counts.sum(axis=1), costs, positive)
    return ThresholdFigures(*(float(values[0]) for values in found))


def best_threshold(
    counts: Int64, measure: str, costs: tuple[float, float] = (1.0, 1.0), positive: int = 1
) -> ThresholdFigures:
    """Return the figures at the threshold that is best by one of ``job.MEASURES``, the largest if there are
    several.

    ``counts`` (2, bins): rows of both classes by rising decision value.
    """
    used = np.flatnonzero(counts.any(axis=0))
    taken = np.cumsum(counts[:, used][:, ::-1], axis=1)
    edges = lower_edges(used[::-1], counts.shape[1])
    found = ThresholdFigures(*compute_figures(edges, taken, counts.sum(axis=1), costs, positive))  # type: ignore[arg-type]
    values = np.asarray(found[ThresholdFigures._fields.index(measure)])
    place = int(np.argmin(values) if measure == "cost" else np.argmax(values))
    return ThresholdFigures(*(float(np.asarray(column)[place]) for column in found))


def average_precision(counts: Int64) -> float | None:
    """Return the area under precision over recall as steps, where rows of one bin count as ties; None without
    positives.

    AP = sum over bins, from the largest decision value down, of (R_k - R_(k-1)) P_k.
    """
    false, true = np.cumsum(counts[:, ::-1].astype(np.float64), axis=1)
    if not true[-1]:
        return None
    precision = true / np.maximum(true + false, 1.0)
    return float(np.diff(true, prepend=0.0) @ precision / true[-1])


def lower_edges(bins: Int64, count: int) -> Float64:
    """Return the smallest float32 that ``ranking.sort_keys`` puts into each bin, of ``count`` bins, as float64."""
    ordered = bins.astype(np.uint32) << np.uint32(33 - count.bit_length())
    bits = np.where(ordered >> 31 == 1, ordered & np.uint32((1 << 31) - 1), ~ordered)
    return bits.astype(np.uint32).view(np.float32).astype(np.float64)


class RegressionEvaluation(NamedTuple):
    """How far a model is off on some rows, each row counted once whatever its weight; all in the units of the target
    but R2.
    """

    rows: int
    """The number of rows."""
    R2: float | None
    """The share of the targets' variance that is explained; None where all targets are equal. May be below 0."""
    MAE: float
    """The mean absolute error."""
    RMSE: float
    """The root of the mean squared error."""
    largest_error: float
    """The largest absolute error."""
    target_mean: float
    """The mean of the targets."""
    target_spread: float
    """The standard deviation of the targets."""


class NumberAccumulator:
    """Sums the errors of a model's predictions, and the moments of the targets.

        MAE = mean |e|,   RMSE = sqrt(mean e^2),   R2 = 1 - sum e^2 / sum (t - mean t)^2,   e = f - t

    Means and squares of two parts are joined as Chan, Golub and LeVeque do, so that no square of a large mean is ever
    taken.
    """

    def __init__(self) -> None:
        self.rows = 0
        self._absolute = self._squares = self._largest = self._mean = self._M2 = 0.0
        self.samples: RowSamples | None = None
        """What is kept of the rows for a page; None where there is none."""

    def add(self, truth: Float64, decision: Float64) -> None:
        """Count rows: targets (n,), predictions (n, 1)."""
        if not len(truth):
            return
        error, mean = decision[:, 0] - truth, float(truth.mean())
        away = truth - mean
        self._join(len(truth), mean, float(away @ away))
        self._absolute += float(np.abs(error).sum())
        self._squares += float(error @ error)
        self._largest = max(self._largest, float(np.abs(error).max()))

    def merge(self, other: NumberAccumulator) -> NumberAccumulator:
        """Return an accumulator of the rows of both; neither changes."""
        both = NumberAccumulator()
        both.count_in(self)
        both.count_in(other)
        return both

    def count_in(self, other: NumberAccumulator) -> None:
        """Count the rows of another accumulator of the same model."""
        self._join(other.rows, other._mean, other._M2)
        self._absolute += other._absolute
        self._squares += other._squares
        self._largest = max(self._largest, other._largest)
        self.samples = _join_samples(self.samples, other.samples)

    def at_thresholds(self, measure: str | None, costs: tuple[float, float]) -> tuple[None, None]:
        """Return nothing. Raises UsageError where a threshold is asked for: there are no classes."""
        if measure is not None:
            raise UsageError("a threshold is for two classes", hint="leave out --threshold and --best-threshold")
        return None, None

    def result(self) -> RegressionEvaluation:
        """Return the figures of all rows counted."""
        rows = max(self.rows, 1)
        R2 = 1.0 - self._squares / self._M2 if self._M2 > 0.0 else None
        MAE, RMSE = self._absolute / rows, float(np.sqrt(self._squares / rows))
        spread = float(np.sqrt(self._M2 / rows))
        return RegressionEvaluation(self.rows, R2, MAE, RMSE, self._largest, self._mean, spread)

    def _join(self, rows: int, mean: float, M2: float) -> None:
        if not rows:
            return
        total, delta = self.rows + rows, mean - self._mean
        self._M2 += M2 + delta * delta * self.rows * rows / total
        self._mean += delta * rows / total
        self.rows = total


Accumulator: TypeAlias = MetricAccumulator | NumberAccumulator
"""What counts the predictions of a model: of classes, or of numbers."""


Evaluation: TypeAlias = ModelEvaluation | RegressionEvaluation
"""What it comes to."""
