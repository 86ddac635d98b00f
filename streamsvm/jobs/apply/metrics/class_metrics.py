"""How good predicted classes are, counted while they stream by: memory does not depend on the number of rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from streamsvm.calibration.reliability import ProbabilityCounts, uncalibrated
from streamsvm.errors import UsageError
from streamsvm.jobs.apply.metrics.ranking import Ranking
from streamsvm.jobs.apply.metrics.thresholds import ThresholdFigures, at_threshold, average_precision, best_threshold
from streamsvm.rows import Float64, Int32


class MetricAccumulator:
    """Counts the confusion table, the losses and the ranking of a model's predictions.

    ``truths`` are the model's classes and, after them, labels the model does not know, which are always errors.
    """

    def __init__(self, classes: Sequence[str], threshold: float | None = None) -> None:
        self.classes = tuple(classes)
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

    @property
    def rows(self) -> int:
        """How many rows were counted."""
        return int(self.confusion.sum())

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
        self.uncalibrated.add(uncalibrated(decision), truth)

    def _add_binary(self, positive: NDArray[np.bool_], known: NDArray[np.bool_], f: Float64) -> None:
        slack = np.maximum(0.0, 1.0 - np.where(positive, f, -f))
        self._hinge += float(slack.sum())
        self._squared += float(slack @ slack)
        self.ranking = self.ranking or Ranking()
        self.ranking.add(f[known], positive[known])
        if self.threshold is not None:
            self._above += np.bincount(positive[known & (f > self.threshold)].astype(np.int64), minlength=2)

    def joined(self, other: MetricAccumulator) -> MetricAccumulator:
        """Return an accumulator of the rows of both; neither changes."""
        both = MetricAccumulator(self.classes, self.threshold)
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
        self.probabilities.count_in(other.probabilities)
        self.uncalibrated.count_in(other.uncalibrated)
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
        counts = self.ranking.counts
        stated = None if self.threshold is None else at_threshold(self.threshold, self._above, counts, costs)
        return stated, None if measure is None else best_threshold(counts, measure, costs)

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
            F1=float(F1[1]) if binary else None,
            F1_macro=float(F1[present | (predicted > 0)].mean()),
            AUC=auc.value if auc else None,
            AUC_error=auc.error if auc else None,
            hinge=self._hinge / rows if binary else None,
            squared_hinge=self._squared / rows if binary else None,
            classes=self.classes,
            truths=tuple(self.truths),
            confusion=tuple(tuple(row) for row in table.tolist()),
            average_precision=average_precision(self.ranking.counts) if self.ranking else None,
            precision=tuple((hits / np.maximum(predicted, 1)).tolist()),
            recall=tuple((hits / np.maximum(actual, 1)).tolist()),
            F1_by_class=tuple(F1.tolist()),
            **({} if said is None else said._asdict()),
        )


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
    """The F1 score of the positive class, ``classes[1]``."""
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
    """The area under precision over recall, as steps."""
    precision: tuple[float, ...]
    """For each of ``truths``, the share of right answers among the rows it was predicted for; 0 where there are none."""
    recall: tuple[float, ...]
    """For each of ``truths``, the share of its rows it was predicted for; 0 where there are none."""
    F1_by_class: tuple[float, ...]
    """For each of ``truths``, the harmonic mean of both."""
    log_loss: float | None = None
    """The mean of - log p of the true class; None for a model without probabilities. Rows of classes it does not know are left out."""
    Brier: float | None = None
    """The mean squared error of the probability of ``classes[1]``; of more than two classes the mean of the sum over all."""
    ECE: float | None = None
    """The expected calibration error over 15 bins: of the probability of ``classes[1]``, or of the class that is said."""
