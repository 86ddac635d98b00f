"""Compute the measures of predictions batch by batch, in memory that does not depend on the number of rows.

``ClassAccumulator`` is for classification: it counts the confusion matrix, the losses and a histogram of decision values
(``Ranking``, 4 MiB), from which the area under the ROC curve and the measures at all thresholds are computed. Counts at a
threshold equal to the lower edge of a bin are exact. ``NumberAccumulator`` sums the errors of a regression. The measures
by which models are selected are in ``model.measures``.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple, TypeAlias, cast

import numpy as np
from numpy.typing import NDArray

from streamsvm.calibration.reliability import ProbabilityCounts, read_as_log_odds
from streamsvm.errors import DataError, UsageError, quote
from streamsvm.jobs.apply.row_samples import RowSamples
from streamsvm.jobs.apply.rows import RowBatch, RowBatches
from streamsvm.model import Model
from streamsvm.model.model import DIFFERS, PROVED, count_possible_errors, find_right
from streamsvm.rows import Float64, Int32, Int64, Rows
from streamsvm.type_aliases import Array, JsonObject

CURVE_POINTS = 200
"""Number of points of a recorded curve."""
KEY_BITS = 18
"""Leading bits of float32 decision values by which they are binned: sign, exponent, 9 bits of the mantissa (0.2 %)."""


def make_accumulator(
    model: Model, rows: RowBatches, threshold: float | None = None, positive: str | None = None
) -> Accumulator:
    """Return an empty accumulator for ``rows``, with the labels that occur in them. Raises UsageError."""
    accumulator = empty_accumulator(model, threshold, positive)
    if isinstance(accumulator, ClassAccumulator):
        accumulator.truths = rows.truths
    return accumulator


def empty_accumulator(model: Model, threshold: float | None = None, positive: str | None = None) -> Accumulator:
    """Return an empty accumulator. ``positive``: the positive class; None: the one recorded by the fit, if there is one.

    Raises UsageError for a threshold in regression, and for a positive class that is not one of two classes.
    """
    if not model.numeric:
        if positive is not None and (len(model.weights) > 1 or positive not in model.classes):
            hint = f"the model's classes are {', '.join(map(quote, model.classes[:10]))}"
            if len(model.weights) > 1:
                raise UsageError(
                    f"--positive is for two classes, and {hint}", hint="leave it out: each class has its figures"
                )
            raise UsageError(f"--positive {quote(positive)} is no class of the model", hint=hint)
        return ClassAccumulator(model.classes, threshold, positive or _positive_class_in_model(model))
    if positive is not None:
        raise UsageError("--positive is for classes, and the model predicts numbers", hint="leave it out")
    if threshold is not None:
        raise UsageError("a threshold is for two classes", hint="leave out --threshold and --best-threshold")
    return NumberAccumulator()


def _positive_class_in_model(model: Model) -> str | None:
    """Return the positive class that a binary model records with its threshold or in its settings; else None."""
    recorded = (model.provenance.get("threshold") or model.provenance.get("settings") or {}).get("positive")
    return recorded if recorded in model.classes and len(model.weights) == 1 else None


class ProvedFigures(NamedTuple):
    """What is proved of the predictions and figures of the exact optimum, which training comes ever nearer to."""

    rows: int
    """The number of rows."""
    proved: int
    """Rows whose label the optimum predicts, too."""
    open: int
    """Rows for which that is not known."""
    differs: int
    """Rows for which the optimum predicts another label."""
    error: tuple[float, float] | None
    """Bounds of the fraction of rows that the optimum predicts wrongly; None in regression."""
    AUC: tuple[float, float] | None
    """Bounds of its area under the ROC curve; None unless there are two classes."""
    MAE: tuple[float, float] | None
    """Bounds of its mean absolute error; None for classes."""
    RMSE: tuple[float, float] | None
    """Bounds of the root of its mean squared error; None for classes."""


def sum_possible_errors(low: Float64, high: Float64, targets: Float64) -> Float64:
    """Return sums (4,) over rows: of the least and of the largest absolute errors of predictions between low and high (n,), and of the squares of both."""
    largest = np.maximum(np.abs(low - targets), np.abs(high - targets))
    least = np.maximum(np.maximum(low - targets, targets - high), 0.0)
    return np.array([least.sum(), largest.sum(), least @ least, largest @ largest])


def bound_mean_errors(sums: Float64, rows: int, slack: float) -> tuple[tuple[float, float], tuple[float, float]]:
    """Return the bounds of MAE and of RMSE, given the sums (4,) of ``sum_possible_errors`` over all rows, and their relative rounding error ``slack``."""
    least, largest, least_square, largest_square = (sums / max(rows, 1)).tolist()
    down, up = 1.0 - slack, 1.0 + slack
    MAE = down * least, up * largest
    return MAE, (down * float(np.sqrt(least_square)), up * float(np.sqrt(largest_square)))


class ProvedCounts:
    """Counts what is proved of rows (``ProvedFigures``), from intervals of decision values."""

    def __init__(self) -> None:
        self.rows = self.proved = self.differs = self.wrong = self.possibly_wrong = 0
        self.worst: Ranking | None = None
        """Positives at the least and negatives at the largest decision values: the least AUC."""
        self.best: Ranking | None = None
        self._sums = np.zeros(4)
        """Of the least and the largest absolute errors, and of their squares; of numbers."""

    def add(self, model: Model, truth: Array, decision: Float64, bounds: tuple[Float64, Float64]) -> None:
        """Add rows with true outcomes or targets (n,), decision values (n, k) and their least and largest values."""
        low, high = bounds
        self.rows += len(truth)
        if model.numeric:
            self._add_numbers(truth, low[:, 0], high[:, 0])
            return
        verdicts, possible = model.prove(model.codes(decision), low, high), model.possible_classes(low, high)
        self.proved += int((verdicts == PROVED).sum())
        self.differs += int((verdicts == DIFFERS).sum())
        wrong, possibly_wrong = count_possible_errors(possible, truth)
        self.wrong += wrong
        self.possibly_wrong += possibly_wrong
        if low.shape[1] == 1:
            self.worst, self.best = self.worst or Ranking(), self.best or Ranking()
            in_classes = truth < possible.shape[1]
            positive = (truth == 1)[in_classes]
            for ranking, (above, below) in ((self.worst, (low, high)), (self.best, (high, low))):
                ranking.add(np.where(positive, above[in_classes, 0], below[in_classes, 0]), positive)

    def _add_numbers(self, truth: Float64, low: Float64, high: Float64) -> None:
        self.proved += int(np.isfinite(high - low).sum())
        self._sums += sum_possible_errors(low, high, truth)

    def count_in(self, other: ProvedCounts) -> None:
        """Count the rows of another part."""
        for name in ("rows", "proved", "differs", "wrong", "possibly_wrong"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self._sums = self._sums + other._sums
        for name in ("worst", "best"):
            ranking = getattr(other, name)
            if ranking is not None:
                own_ranking = getattr(self, name) or Ranking()
                own_ranking.counts += ranking.counts
                setattr(self, name, own_ranking)

    def result(self, *, numeric: bool) -> ProvedFigures:
        """Return the figures of all rows counted."""
        rows, slack = max(self.rows, 1), 4 * (self.rows + (1 << KEY_BITS)) * 2.0**-53  # of sums of terms of one sign
        MAE, RMSE = bound_mean_errors(self._sums, self.rows, slack) if numeric else (None, None)
        auc = None
        if self.worst is not None and self.best is not None:
            ends = self.worst.auc(), self.best.auc()
            if ends[0] is not None and ends[1] is not None:
                auc = (max(0.0, ends[0].value - ends[0].error - slack), min(1.0, ends[1].value + ends[1].error + slack))
        return ProvedFigures(
            self.rows,
            self.proved,
            self.rows - self.proved - self.differs,
            self.differs,
            None if numeric else (self.wrong / rows, self.possibly_wrong / rows),
            auc,
            MAE,
            RMSE,
        )


class ComparisonFigures(NamedTuple):
    """How two classifiers differ on some rows, row by row. It says nothing about other rows: it is no test of significance."""

    rows: int
    """The number of rows."""
    only_this: int
    """Rows that only this model predicts correctly."""
    only_other: int
    """Rows that only the other model predicts correctly."""
    difference: float
    """The error of this model minus that of the other."""
    proved_only_this: tuple[int, int] | None = None
    """Bounds of the rows that only the exact optimum of this model predicts correctly; None where that is not asked for."""
    proved_only_other: tuple[int, int] | None = None
    """Bounds of the rows that only the exact optimum of the other model predicts correctly."""
    proved_difference: tuple[float, float] | None = None
    """Bounds of the error of the exact optimum of this model minus that of the other one."""


class ComparisonCounts:
    """Counts rows for ``ComparisonFigures``.

    A row counts -1, 0 or 1 in the difference of errors, so that rows of which both labels are proved add nothing to the width of its bounds.
    """

    def __init__(self, other: Model | None, codes: Sequence[int], *, certified: bool) -> None:
        """``codes``: of each class of this model, its index in the other one, which may have them in another order."""
        self.codes = list(codes)
        self.other = other
        """The other model; None where the counts come from a worker."""
        self.certified = certified
        self.rows = self.only_this = self.only_other = 0
        self.bounds = np.zeros(6, np.int64)
        """Least and largest numbers of rows that are right only in this model, only in the other one, and of the difference of wrong rows."""

    def compare(self, X: Rows) -> Decided:
        """Return what the other model says of rows."""
        assert self.other is not None
        return Decided(self.other.decision(X), self.other.intervals(X) if self.certified else None)

    def add(self, model: Model, truth: Array, decided: Decided, other: Decided) -> None:
        """Add rows with true classes (n,), and what this model and the other one say of them."""
        assert self.other is not None
        codes = np.array([*self.codes, -1], truth.dtype)  # -1: a class that neither model knows
        other_truth = codes[np.minimum(truth, len(self.codes))]
        right = model.codes(decided.decision) == truth
        other_right = self.other.codes(other.decision) == other_truth
        self.rows += len(truth)
        self.only_this += int((right & ~other_right).sum())
        self.only_other += int((other_right & ~right).sum())
        if decided.bounds is None or other.bounds is None:
            return
        sure, can = find_right(model.possible_classes(*decided.bounds), truth)
        other_sure, other_can = find_right(self.other.possible_classes(*other.bounds), other_truth)
        counts = [(sure & ~other_can), (can & ~other_sure), (other_sure & ~can), (other_can & ~sure)]
        least = np.sum(~can, dtype=np.int64) - np.sum(~other_sure, dtype=np.int64)
        largest = np.sum(~sure, dtype=np.int64) - np.sum(~other_can, dtype=np.int64)
        self.bounds += np.array([*(count.sum() for count in counts), least, largest], np.int64)

    def merge(self, other: ComparisonCounts) -> ComparisonCounts:
        """Return the counts of the rows of both; the inputs do not change."""
        both = ComparisonCounts(self.other or other.other, self.codes, certified=self.certified)
        for name in ("rows", "only_this", "only_other", "bounds"):
            setattr(both, name, getattr(self, name) + getattr(other, name))
        return both

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"other": None}  # counts travel from workers, the model does not

    def result(self) -> ComparisonFigures:
        """Return the figures of all rows counted."""
        rows = max(self.rows, 1)
        difference = (self.only_other - self.only_this) / rows
        found = ComparisonFigures(self.rows, self.only_this, self.only_other, difference)
        if not self.certified:
            return found
        this, other, ends = self.bounds.reshape(3, 2).tolist()
        return found._replace(
            proved_only_this=(this[0], this[1]),
            proved_only_other=(other[0], other[1]),
            proved_difference=(ends[0] / rows, ends[1] / rows),
        )


class Decided(NamedTuple):
    """What a model says of some rows."""

    decision: Float64
    """(n, k)."""
    bounds: tuple[Float64, Float64] | None
    """The least and the largest decision values (n, k) of the exact optima; None where they are not asked for."""


def _join_proved(one: ProvedCounts | None, other: ProvedCounts | None) -> ProvedCounts | None:
    """Return the counts of both; the inputs do not change."""
    if one is None or other is None:
        return one or other
    both = ProvedCounts()
    both.count_in(one)
    both.count_in(other)
    return both


def accumulate(model: Model, rows: Iterable[RowBatch], accumulator: Accumulator) -> Accumulator:
    """Add all rows to the accumulator and return it. Raises DataError E-LABEL for rows without labels."""
    for batch in rows:
        decision, first = model.decision(batch.X), batch.first or accumulator.rows
        count_rows(model, accumulator, decision, batch.truth)
        if batch.truth is None:
            continue
        bounds = None if accumulator.proved is None else model.intervals(batch.X)
        other = None if accumulator.compared is None else accumulator.compared.compare(batch.X)
        count_proved(model, accumulator, batch.truth, Decided(decision, bounds), other)
        if accumulator.samples is not None:
            accumulator.samples.add(model, batch.X, decision, batch.truth, first, batch.ids)
    return accumulator


def count_proved(model: Model, accumulator: Accumulator, truth: Array, decided: Decided, other: Decided | None) -> None:
    """Add what is proved of rows, and what another model says of them, if that is asked for."""
    if accumulator.proved is not None and decided.bounds is not None:
        accumulator.proved.add(model, truth, decided.decision, decided.bounds)
    if accumulator.compared is not None and other is not None:
        accumulator.compared.add(model, truth, decided, other)


def _join_samples(one: RowSamples | None, other: RowSamples | None) -> RowSamples | None:
    """Return the merged samples; the inputs do not change."""
    if one is None or other is None:
        return one or other
    both = replace(one, worst=list(one.worst))
    both.count_in(other)
    return both


def count_rows(model: Model, accumulator: Accumulator, decision: Float64, truth: Array | None) -> None:
    """Add rows with decision values (n, k) and true outcomes or targets (n,). Raises DataError E-LABEL without labels."""
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
    """Return an accumulator of the rows of two accumulators of the same model; the inputs do not change."""
    return one.merge(cast(Any, other))


Z_95 = 1.959963984540054
"""The 97.5 % quantile of the normal distribution."""


def wilson_interval(share: float, rows: int) -> tuple[float, float]:
    """Return the 95 % confidence interval of a proportion, observed as ``share`` among ``rows`` independent rows.

    (p + z^2/2n +- z sqrt(p (1 - p)/n + z^2/4n^2)) / (1 + z^2/n): E. B. Wilson, J. American Statistical Association 22 (1927).
    """
    z2 = Z_95 * Z_95 / rows
    middle, half = share + z2 / 2, Z_95 * float(np.sqrt(share * (1.0 - share) / rows + z2 / (4 * rows)))
    return max(0.0, (middle - half) / (1.0 + z2)), min(1.0, (middle + half) / (1.0 + z2))


class ModelEvaluation(NamedTuple):
    """The measures of a classifier on some rows. Every row counts once, whatever its weight.

    Measures for two classes are None for more classes.
    """

    rows: int
    """The number of rows."""
    accuracy: float
    """The fraction of rows that are predicted correctly."""
    balanced_accuracy: float
    """The mean recall of the classes that occur."""
    F1: float | None
    """The F1 score of the class ``positive``."""
    F1_macro: float
    """The mean F1 score of the classes that occur or were predicted."""
    AUC: float | None
    """The area under the ROC curve."""
    AUC_error: float | None
    """An upper bound of the difference between ``AUC`` and the exact AUC."""
    hinge: float | None
    """The mean hinge loss."""
    squared_hinge: float | None
    """The mean squared hinge loss."""
    classes: tuple[str, ...]
    """The classes of the model."""
    truths: tuple[str, ...]
    """The labels that occurred: the model's classes, then labels it does not know."""
    confusion: tuple[tuple[int, ...], ...]
    """The number of rows for each true label (one of ``truths``) and predicted class (one of ``classes``)."""
    average_precision: float | None
    """The area under the step curve of precision over recall, for the class ``positive``."""
    precision: tuple[float, ...]
    """The precision of each of ``truths``; 0 if the class was never predicted."""
    recall: tuple[float, ...]
    """The recall of each of ``truths``; 0 if the class does not occur."""
    F1_by_class: tuple[float, ...]
    """The F1 score of each of ``truths``, the harmonic mean of precision and recall."""
    log_loss: float | None = None
    """The mean of - log p of the true class, over the rows of the model's classes; None for a model without
    probabilities.
    """
    Brier: float | None = None
    """The mean squared error of the probability of ``classes[1]``; for more than two classes the mean over rows of the sum
    over all classes.
    """
    ECE: float | None = None
    """The expected calibration error over 15 bins: of the probability of ``classes[1]``, or of the predicted class."""
    positive: str | None = None
    """The positive class of a binary model: that of --positive in evaluate, else that of the fit, else the rarer one."""


class ClassAccumulator:
    """Counts the confusion matrix, the losses and the ranking of the predictions of a classifier.

    ``truths`` are the model's classes, followed by labels that the model does not know; rows of the latter are errors.
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
        """The counts of the model's probabilities; empty if the model has none."""
        self.uncalibrated = ProbabilityCounts()
        """The counts of the probabilities whose log odds are the decision values."""
        self.samples: RowSamples | None = None
        """The rows kept for a page; None without a page."""
        self.proved: ProvedCounts | None = None
        """What is proved of the rows; None where that is not asked for."""
        self.compared: ComparisonCounts | None = None
        """How another model differs on the rows; None without one."""

    @property
    def rows(self) -> int:
        """The number of rows counted."""
        return int(self.confusion.sum())

    @property
    def positive(self) -> int:
        """The index of the positive class of two: the one stated, else the rarer one, in a tie the second."""
        if self._stated is not None:
            return self.classes.index(self._stated)
        first, second = self.confusion[:2].sum(axis=1).tolist()
        return 0 if first < second else 1

    def add(self, truth: Int32, predicted: Int32, decision: Float64) -> None:
        """Add rows with indices into ``truths`` and ``classes`` (n,), and decision values (n, k)."""
        rows, columns = len(self.truths), len(self.classes)
        if len(self.confusion) < rows:
            self.confusion = np.pad(self.confusion, ((0, rows - len(self.confusion)), (0, 0)))
        cells = truth.astype(np.int64) * columns + predicted
        self.confusion += np.bincount(cells, minlength=rows * columns).reshape(rows, columns)
        if decision.shape[1] == 1:
            self._add_binary(truth == 1, truth < columns, decision[:, 0])

    def add_probabilities(self, truth: Int32, decision: Float64, probabilities: Float64) -> None:
        """Add the probabilities (n, classes) of rows that were added by ``add``."""
        self.probabilities.add(probabilities, truth)
        self.uncalibrated.add(read_as_log_odds(decision), truth)

    def _add_binary(self, positive: NDArray[np.bool_], in_classes: NDArray[np.bool_], f: Float64) -> None:
        slack = np.maximum(0.0, 1.0 - np.where(positive, f, -f))
        self._hinge += float(slack.sum())
        self._squared += float(slack @ slack)
        self.ranking = self.ranking or Ranking()
        self.ranking.add(f[in_classes], positive[in_classes])
        if self.threshold is not None:
            self._above += np.bincount(positive[in_classes & (f > self.threshold)].astype(np.int64), minlength=2)

    def merge(self, other: ClassAccumulator) -> ClassAccumulator:
        """Return an accumulator of the rows of both; the inputs do not change."""
        both = ClassAccumulator(self.classes, self.threshold, self._stated)
        both.count_in(self)
        both.count_in(other)
        return both

    def count_in(self, other: ClassAccumulator) -> None:
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
        self.proved = _join_proved(self.proved, other.proved)
        if other.compared is not None:
            self.compared = other.compared if self.compared is None else self.compared.merge(other.compared)
        if other.ranking is not None:
            self.ranking = self.ranking or Ranking()
            self.ranking.counts += other.ranking.counts

    def at_thresholds(
        self, measure: str | None, costs: tuple[float, float]
    ) -> tuple[ThresholdFigures | None, ThresholdFigures | None]:
        """Return the measures at the stated threshold, and those at the best threshold by ``measure``; None for each that
        was not asked for.

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
        """Return the measures of all rows counted."""
        table, rows = self.confusion, self.rows
        actual = table.sum(axis=1)
        # labels that the model does not know are never predicted: their recall and F1 are 0, and are part of the means
        predicted, hits = np.zeros(len(actual), np.int64), np.zeros(len(actual))
        predicted[: len(self.classes)] = table.sum(axis=0)
        hits[: len(self.classes)] = np.diag(table[: len(self.classes)])
        present = actual > 0
        F1 = 2 * hits / np.maximum(actual + predicted, 1)
        binary = self.ranking is not None
        auc = self.ranking.auc() if self.ranking else None
        probability_measures = self.probabilities.figures()
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
            average_precision=average_precision(self.ranking.counts_by_score(self.positive)) if self.ranking else None,
            precision=tuple((hits / np.maximum(predicted, 1)).tolist()),
            recall=tuple((hits / np.maximum(actual, 1)).tolist()),
            F1_by_class=tuple(F1.tolist()),
            **({} if probability_measures is None else probability_measures._asdict()),
            positive=self.classes[self.positive] if binary else None,
        )


class Ranking:
    """Histograms of the decision values of two classes, over 2^18 bins in ascending order: 4 MiB for any number of rows."""

    def __init__(self) -> None:
        self.counts = np.zeros((2, 1 << KEY_BITS), np.int64)

    def add(self, decision: Float64, positive: NDArray[np.bool_]) -> None:
        """Add rows with decision values (n,); ``positive`` (n,) bool: whether a row is of the second class."""
        keys = sort_keys(decision)
        for code, mask in enumerate((~positive, positive)):
            self.counts[code] += np.bincount(keys[mask], minlength=1 << KEY_BITS)

    def counts_by_score(self, positive: int) -> Int64:
        """Return the counts (2, bins) of the negative and the positive class, with bins in ascending order of the score of
        the class ``positive``.
        """
        return self.counts if positive == 1 else self.counts[::-1, ::-1]

    def auc(self) -> AUC | None:
        """Return the area under the ROC curve, where a pair in the same bin counts half; None if only one class occurs."""
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
    """An upper bound of the difference between ``value`` and the exact area."""


def sort_keys(values: Float64) -> Int64:
    """Return the leading bits of float32 values as integers (n,) in the order of the values."""
    bits = (values.astype(np.float32) + np.float32(0)).view(np.uint32)  # + 0: -0.0 is 0.0
    ordered = np.where(bits >> 31 == 1, ~bits, bits | np.uint32(1 << 31))
    return (ordered >> np.uint32(32 - KEY_BITS)).astype(np.int64)


class ThresholdFigures(NamedTuple):
    """The measures of a binary model that predicts ``classes[1]`` for decision values above ``threshold``."""

    threshold: float
    """The threshold. ``classes[1]`` is predicted if f > threshold for a threshold given by the user, and if
    f >= threshold for one chosen as the best.
    """
    precision: float
    """The fraction of positives among the rows predicted positive; 0 if there are none."""
    recall: float
    """The fraction of the positives that are predicted positive."""
    F1: float
    """The harmonic mean of precision and recall."""
    balanced_accuracy: float
    """The mean of the recall of both classes."""
    accuracy: float
    """The fraction of rows that are predicted correctly."""
    cost: float
    """The mean cost per row of false positives and false negatives, by default 1 each."""


def compute_figures(
    thresholds: Float64, above: Int64, rows: Int64, costs: tuple[float, float], positive: int = 1
) -> list[Float64]:
    """Return the fields of ``ThresholdFigures`` for many thresholds at once.

    ``above`` (2, k): for each threshold the number of rows of each class above it, for which the second class is
    predicted. ``rows`` (2,): the number of rows of each class. ``positive``: the class to which precision, recall, F1 and
    cost refer.
    """
    if positive == 0:
        above, rows = (rows[:, None] - above)[::-1], rows[::-1]
    false, true = above.astype(np.float64)
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
    threshold: float, above: Int64, counts: Int64, costs: tuple[float, float] = (1.0, 1.0), positive: int = 1
) -> ThresholdFigures:
    """Return the measures at one threshold, from the rows above it (2,) and the histograms of the ranking (2, bins)."""
    fields = compute_figures(np.array([threshold]), above[:, None], counts.sum(axis=1), costs, positive)
    return ThresholdFigures(*(float(values[0]) for values in fields))


def best_threshold(
    counts: Int64, measure: str, costs: tuple[float, float] = (1.0, 1.0), positive: int = 1
) -> ThresholdFigures:
    """Return the measures at the best threshold by ``measure`` (one of ``options.MEASURES``); in a tie the largest one.

    ``counts`` (2, bins): the histograms of both classes, in ascending order of decision values.
    """
    used = np.flatnonzero(counts.any(axis=0))
    above = np.cumsum(counts[:, used][:, ::-1], axis=1)
    edges = lower_edges(used[::-1], counts.shape[1])
    curves = ThresholdFigures(*compute_figures(edges, above, counts.sum(axis=1), costs, positive))  # type: ignore[arg-type]
    values = np.asarray(curves[ThresholdFigures._fields.index(measure)])
    best = int(np.argmin(values) if measure == "cost" else np.argmax(values))
    return ThresholdFigures(*(float(np.asarray(curve)[best]) for curve in curves))


def average_precision(counts: Int64) -> float | None:
    """Return the area under the step curve of precision over recall, where rows of one bin are ties; None without
    positives.

    AP = sum over bins, from the largest decision value down, of (R_k - R_(k-1)) P_k.
    """
    false, true = np.cumsum(counts[:, ::-1].astype(np.float64), axis=1)
    if not true[-1]:
        return None
    precision = true / np.maximum(true + false, 1.0)
    return float(np.diff(true, prepend=0.0) @ precision / true[-1])


def build_curves(counts: Int64, positive: int = 1) -> JsonObject:
    """Return the points of the ROC curve, of the curve of precision over recall and of both over the threshold.

    They are for the positive class, and empty if a class has no rows. ``counts`` (2, bins): the histograms of decision values of
    both classes, in ascending order.
    """
    used = np.flatnonzero(counts.any(axis=0))
    if not counts.any(axis=1).all():
        return {}
    counts_by_score = counts[:, used] if positive == 1 else counts[::-1, used[::-1]]
    false, true = np.cumsum(counts_by_score[:, ::-1].astype(np.float64), axis=1)
    shares = np.array([false / false[-1], true / true[-1]])
    roc_points = _space_evenly(shares.sum(axis=0))
    roc = [(0.0, 0.0), *map(tuple, shares[:, roc_points].T.tolist())]
    recall_points = _space_evenly(shares[1])
    precision = true[recall_points] / np.maximum(true[recall_points] + false[recall_points], 1.0)
    values = np.clip(lower_edges(used, counts.shape[1]), -1e30, 1e30)
    edges = values[::-1] if positive == 1 else np.append(values[1:], 1e30)
    return {
        "roc": roc,
        "precision_recall": list(zip(shares[1][recall_points].tolist(), precision.tolist(), strict=True)),
        "thresholds": np.array([edges[recall_points], precision, shares[1][recall_points]]).T.tolist(),
    }


def _space_evenly(rising: Float64) -> Int64:
    """Return indices at which an ascending array reaches equal fractions of its last value."""
    return np.unique(np.searchsorted(rising, np.linspace(0.0, rising[-1], CURVE_POINTS)).clip(max=len(rising) - 1))


def lower_edges(bins: Int64, count: int) -> Float64:
    """Return the smallest float32 value, as float64, that ``sort_keys`` maps to each of ``bins``, among ``count`` bins."""
    ordered = bins.astype(np.uint32) << np.uint32(33 - count.bit_length())
    bits = np.where(ordered >> 31 == 1, ordered & np.uint32((1 << 31) - 1), ~ordered)
    return bits.astype(np.uint32).view(np.float32).astype(np.float64)


class RegressionEvaluation(NamedTuple):
    """The measures of a regression on some rows, in the unit of the target except for R2. Every row counts once."""

    rows: int
    """The number of rows."""
    R2: float | None
    """The fraction of the variance of the targets that is explained, possibly below 0; None if all targets are equal."""
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

    Means and sums of squares of two parts are merged by the method of Chan, Golub and LeVeque, which never squares a large
    mean.
    """

    def __init__(self) -> None:
        self.rows = 0
        self._absolute = self._squares = self._largest = self._mean = self._M2 = 0.0
        self.samples: RowSamples | None = None
        """The rows kept for a page; None without a page."""
        self.proved: ProvedCounts | None = None
        """What is proved of the rows; None where that is not asked for."""
        self.compared: ComparisonCounts | None = None
        """None: predicted numbers are not compared with another model's."""

    def add(self, truth: Float64, decision: Float64) -> None:
        """Add rows with targets (n,) and predictions (n, 1)."""
        if not len(truth):
            return
        error, mean = decision[:, 0] - truth, float(truth.mean())
        centered = truth - mean
        self._join(len(truth), mean, float(centered @ centered))
        self._absolute += float(np.abs(error).sum())
        self._squares += float(error @ error)
        self._largest = max(self._largest, float(np.abs(error).max()))

    def merge(self, other: NumberAccumulator) -> NumberAccumulator:
        """Return an accumulator of the rows of both; the inputs do not change."""
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
        self.proved = _join_proved(self.proved, other.proved)

    def at_thresholds(self, measure: str | None, costs: tuple[float, float]) -> tuple[None, None]:
        """Return (None, None). Raises UsageError if a threshold is asked for, as there are no classes."""
        if measure is not None:
            raise UsageError("a threshold is for two classes", hint="leave out --threshold and --best-threshold")
        return None, None

    def result(self) -> RegressionEvaluation:
        """Return the measures of all rows counted."""
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


Accumulator: TypeAlias = ClassAccumulator | NumberAccumulator
"""An accumulator of the measures of a classifier or a regression."""


Evaluation: TypeAlias = ModelEvaluation | RegressionEvaluation
"""The measures of a classifier or a regression."""
