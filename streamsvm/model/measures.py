"""Compute the measures of --score from held-out rows, chunk by chunk.

``parse_measure`` returns the ``Measure`` of a name. ``error``, ``balanced_error``, ``f1`` and ``cost:fp=X,fn=Y`` depend
on the predicted labels, ``auc`` and ``average_precision`` on the order of decision values, ``log_loss`` and ``brier``
on probabilities, and ``r2``, ``mae`` and ``rmse`` on predicted numbers. For two classes, f1, average_precision and cost
depend on which class is the positive one. For several classes, f1, auc and average_precision are means over the
classes, each against the rest.

``MeasureCounts`` counts several models in one pass over the rows. Its values depend neither on the order of the chunks
nor on how they are grouped: counts are integers, sums over chunks are rounded once (``math.fsum``), and decision values
are sorted at the end. Therefore threads, a cluster and a resumed run compute the same bits. Measures of the order of
decision values keep the decision values of all rows in memory; plans count them (``Measure.bytes_per_row``).

Ties and row weights are treated as in scikit-learn's roc_auc_score and average_precision_score:

    AUC = sum over pairs of a positive and a negative row of w_i w_j ([f_i > f_j] + [f_i = f_j] / 2) / (W+ W-)
    AP  = sum over thresholds t, from the largest down, of (R_t - R_(t-1)) P_t
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from streamsvm.calibration.reliability import MIN_PROBABILITY
from streamsvm.calibration.scores import ScoreCounts, count_scores
from streamsvm.config.units import percent
from streamsvm.errors import DataError, UsageError, quote
from streamsvm.model.model import predict_codes
from streamsvm.registry import did_you_mean
from streamsvm.rows import Float64, Int32
from streamsvm.type_aliases import Array

SORT_BYTES_PER_ROW = 64
"""Bytes per row while the decision values of one model are sorted and summed: order, values, sums of both classes."""
LABELS, RANKS, PROBABILITIES, NUMBERS = "labels", "order of decision values", "probabilities", "numbers"
LARGEST = "largest decision values"
"""What a measure is computed from (``Measure.needs``)."""
NO_BETTER = 0.99
"""A model whose error is at least this fraction of the error of always predicting the most frequent class is no better
than that constant prediction."""
UNBALANCED_SHARE = 0.75
"""If the most frequent class has at least this share of the rows, a model that finds no other class has a small error."""
BETTER_COLUMNS = "The columns may say little about the label; --kernel rbf may find what a linear model cannot"
"""What to do where classes are balanced and a model is no better than none."""
TOP = 5
"""Number of classes with the largest decision values among which ``top_5_error`` looks for that of the row."""
COST = "cost"
COST_FORM = "cost:fp=X,fn=Y"
"""The form in which users write the costs of the two kinds of error."""
Probabilities = Callable[[Float64], Float64]
"""A function from decision values (n, k) to the probabilities of all classes (n, classes)."""


@dataclass(frozen=True, slots=True)
class Measure:
    """A measure of the quality of predictions."""

    name: str
    """The name as the user wrote it, such as 'auc' or 'cost:fp=1,fn=50'."""
    title: str
    """The name in tables and messages."""
    needs: str
    """What it is computed from: ``LABELS``, ``RANKS``, ``LARGEST``, ``PROBABILITIES`` or ``NUMBERS``."""
    higher_is_better: bool = False
    percent: bool = False
    """Whether its values are fractions, shown in percent."""
    costs: tuple[float, float] = (1.0, 1.0)
    """The costs of a false positive and of a false negative."""

    @property
    def kind(self) -> str:
        """The name without the costs."""
        return self.name.partition(":")[0]

    @property
    def has_positive(self) -> bool:
        """Whether the measure depends on which of two classes is the positive one."""
        return self.kind in ("f1", "average_precision", COST)

    @property
    def heading(self) -> str:
        """The heading of a column of values."""
        return f"{self.title} in %" if self.percent else self.title

    def text(self, value: float) -> str:
        """Return a value as text without a unit, for a column with ``heading``."""
        return f"{100 * value:.2f}" if self.percent else f"{value:.4g}"

    def full_text(self, value: float) -> str:
        """Return a value as text with its unit."""
        return percent(value, 4) if self.percent else f"{value:.4g}"

    def rank(self, value: float) -> float:
        """Return a number by which values are ranked: smaller is better."""
        return -value if self.higher_is_better else value

    def bytes_per_row(self, values: int) -> int:
        """Return the bytes that each row takes until the measure is computed; ``values``: decision values per row, over
        all models.
        """
        return 8 * values + SORT_BYTES_PER_ROW if self.needs == RANKS else 0


MEASURES: dict[str, Measure] = {
    one.name: one
    for one in (
        Measure("error", "error", LABELS, percent=True),
        Measure("balanced_error", "balanced error", LABELS, percent=True),
        Measure("f1", "F1", LABELS, higher_is_better=True),
        Measure("auc", "AUC", RANKS, higher_is_better=True),
        Measure("average_precision", "average precision", RANKS, higher_is_better=True),
        Measure("log_loss", "log loss", PROBABILITIES),
        Measure("brier", "Brier score", PROBABILITIES),
        Measure(COST_FORM, "mean cost", LABELS),
        Measure("top_5_error", "top-5 error", LARGEST, percent=True),
        Measure("rmse", "RMSE", NUMBERS),
        Measure("mae", "MAE", NUMBERS),
        Measure("r2", "R2", NUMBERS, higher_is_better=True),
    )
}
"""All measures, by name."""
ERROR, BALANCED_ERROR, RMSE = MEASURES["error"], MEASURES["balanced_error"], MEASURES["rmse"]


def parse_measure(text: str, option: str = "--score") -> Measure:
    """Return the measure of a name, such as 'auc' or 'cost:fp=1,fn=50'. Raises UsageError."""
    kind, colon, rest = text.partition(":")
    if kind == COST:
        return Measure(text, MEASURES[COST_FORM].title, LABELS, costs=_parse_costs(text, rest, option))
    if colon or text not in MEASURES:
        raise UsageError(
            f"{option} cannot be {quote(text)}{did_you_mean(text, MEASURES)}", hint=f"choose from {', '.join(MEASURES)}"
        )
    return MEASURES[text]


def uninformative_error_notice(error: float, majority_error: float | None) -> str | None:
    """Return a notice if an error is no better than that of always predicting the most frequent class, else None."""
    if majority_error is None or error < NO_BETTER * majority_error:
        return None
    if 1.0 - majority_error < UNBALANCED_SHARE:
        return (
            f"the model is no better than one without columns: its error is {percent(error, 4)}, and that of always "
            f"predicting the most frequent class is {percent(majority_error, 4)}. {BETTER_COLUMNS}"
        )
    return (
        f"the error says nothing here: it is {percent(error, 4)}, and that of always predicting the most frequent class is "
        f"{percent(majority_error, 4)}. Choose by a measure that notices the rare class: --score average_precision, auc, f1 "
        "or balanced_error"
    )


def find_measure(name: object) -> Measure:
    """Return the measure with the name in a record (in upper or lower case); ``ERROR`` if there is none of that
    name.
    """
    try:
        return parse_measure(str(name).lower())
    except UsageError:
        return ERROR


def _parse_costs(text: str, rest: str, option: str) -> tuple[float, float]:
    """Return the costs of a false positive and of a false negative from a text such as 'fp=1,fn=50'. Raises
    UsageError.
    """
    costs: dict[str, float] = {}
    try:
        for part in rest.split(","):
            name, _, number = part.partition("=")
            costs[name.strip()] = float(number)
    except ValueError:
        costs = {}
    is_valid = set(costs) == {"fp", "fn"} and all(math.isfinite(cost) and cost >= 0 for cost in costs.values())
    if not is_valid or not any(costs.values()):
        raise UsageError(
            f"{option} {quote(text)} does not say what the two kinds of error cost",
            hint="write what a false positive and a false negative cost: cost:fp=1,fn=50",
        )
    return costs["fp"], costs["fn"]


class PredictionTask(NamedTuple):
    """The facts about a model's predictions on which measures depend."""

    outcomes: int
    """Number of classes; 0 for regression."""
    positive: int = 1
    """The code of the positive one of two classes."""
    pairs: bool = False
    """Whether the model predicts by votes of one-vs-one problems."""
    one_class: bool = False
    probabilities: bool = False
    """Whether probabilities are available while models are compared."""


TWO_CLASSES = PredictionTask(2)


def choose_threshold_measure(text: str, task: PredictionTask) -> Measure:
    """Return the measure by which --threshold is chosen.

    Raises UsageError if the measure does not depend on predicted labels, or if the task has not two classes.
    """
    measure = parse_measure(text, "--threshold")
    if task.outcomes != 2 or task.pairs or task.one_class:
        raise UsageError(
            "--threshold is for two classes", hint="leave it out, or name one class against the rest: --positive LABEL"
        )
    if measure.needs != LABELS:
        suitable = ", ".join(name for name, one in MEASURES.items() if one.needs == LABELS)
        raise UsageError(f"--threshold {text}: it does not depend on a threshold", hint=f"choose from {suitable}")
    return measure


def choose_measure(text: str | None, task: PredictionTask, option: str = "--score") -> Measure:
    """Return the measure named ``text``, or the default of the task for None. Raises UsageError if it does not suit the
    task.
    """
    if text is None:
        return RMSE if not task.outcomes else BALANCED_ERROR if task.one_class else ERROR
    measure = parse_measure(text, option)
    refusal = _refusal(measure, task)
    if refusal is not None:
        suitable = ", ".join(name for name, one in MEASURES.items() if _refusal(one, task) is None)
        raise UsageError(f"{option} {text}: {refusal}", hint=f"choose from {suitable}")
    return measure


def _refusal(measure: Measure, task: PredictionTask) -> str | None:  # noqa: PLR0911 (a return for each reason)
    """Return the reason why a measure does not suit the task; None if it does."""
    if not task.outcomes:
        return None if measure.needs == NUMBERS else "it is a measure for classes, and this model predicts numbers"
    if measure.needs == NUMBERS:
        return "it is a measure for numbers, and this model predicts classes"
    if measure.needs == PROBABILITIES and (not task.probabilities or task.pairs or task.one_class):
        return "it needs probabilities, which only --loss logistic has before the fit is over"
    if measure.needs == RANKS and task.pairs:
        return "it needs an order of the rows, and one-vs-one models have votes but no decision value to order rows by"
    if measure.needs == LARGEST and (task.outcomes <= TOP or task.pairs):
        return f"it is for models with a decision value for each of more than {TOP} classes"
    if measure.kind == COST and task.outcomes != 2:
        return f"false positives are defined for two classes, and there are {task.outcomes}"
    return None


# -- exact values ------------------------------------------------------------------------------------------------------


def roc_auc(positive: NDArray[np.bool_], decision: Float64, weights: Float64 | None = None) -> float:
    """Return the area under the ROC curve; NaN if one of the two classes has no rows.

    ``positive`` (n,): whether each row is of the positive class. ``decision`` (n,): decision values. ``weights`` (n,):
    row weights; None: all 1.
    """
    _, true, false = _sums_at_thresholds(positive, decision, weights)
    if not len(true) or not true[-1] or not false[-1]:
        return math.nan
    # Pairs with a threshold between them count 1, ties 1/2. Without weights, twice the area is an exact integer.
    up, across = np.concatenate([true[:1], true[1:] + true[:-1]]), np.diff(false, prepend=0)
    return float((up * across).sum()) / (2.0 * float(true[-1]) * float(false[-1]))


def average_precision(positive: NDArray[np.bool_], decision: Float64, weights: Float64 | None = None) -> float:
    """Return the area under the step curve of precision over recall; NaN without positive rows. Arguments as in
    ``roc_auc``.
    """
    _, true, false = _sums_at_thresholds(positive, decision, weights)
    if not len(true) or not true[-1]:
        return math.nan
    taken = (true + false).astype(np.float64)
    precision = np.divide(true, taken, out=np.zeros(len(true)), where=taken > 0)
    return float((np.diff(true, prepend=0) * precision).sum()) / float(true[-1])


def _sums_at_thresholds(
    positive: NDArray[np.bool_], decision: Float64, weights: Float64 | None
) -> tuple[Float64, Array, Array]:
    """Return the m distinct decision values in descending order, and for each the summed weights of the positive and of
    the negative rows with at least that value, (m,) each.

    Without weights the sums are int64 and exact.
    """
    order = np.argsort(-decision, kind="stable")
    f, y = decision[order], positive[order]
    s = np.ones(len(f), np.int64) if weights is None else weights[order]
    last = np.append(np.flatnonzero(np.diff(f)), len(f) - 1) if len(f) else np.empty(0, np.int64)
    return f[last], np.cumsum(s * y)[last], np.cumsum(s * ~y)[last]


class Threshold(NamedTuple):
    """A threshold of the decision value, and the value of the measure by which it was chosen."""

    value: float
    """Rows with f(x) > value are predicted as the second of two classes."""
    score: float


def best_threshold(measure: Measure, counts: ScoreCounts, positive: int = 1) -> Threshold:
    """Return the threshold at which a measure of predicted labels is best.

    The threshold lies halfway between two neighboring decision values, or at 0 if 0 lies between them. If several are
    equally good, it is the one nearest to 0, the default threshold of a model.

    ``counts``: the decision values of rows, counted as 'positive' if the row is of the second class. ``positive``: the
    code of the positive class.
    """
    second, first = counts.positive, counts.negative
    # Weights of the rows predicted as the second class, for each threshold: from each distinct value up, and none.
    taken_second = np.append(np.cumsum(second[::-1])[::-1], 0.0)
    taken_first = np.append(np.cumsum(first[::-1])[::-1], 0.0)
    if positive == 1:
        hits, false, positives = taken_second, taken_first, taken_second[0]
    else:
        hits, false, positives = taken_first[0] - taken_first, taken_second[0] - taken_second, taken_first[0]
    total = float(taken_second[0] + taken_first[0])
    scores = _score_counts(measure, hits, false, positives - hits, total=total, positives=float(positives))
    rank = -scores if measure.higher_is_better else scores
    below = np.append(-np.inf, counts.scores)  # rows up to this value are predicted as the first class ...
    above = np.append(counts.scores, np.inf)  # ... and rows from this value up as the second
    with np.errstate(invalid="ignore"):
        edges = 0.5 * (below + above)
    edges[0], edges[-1] = _extend_edge(counts.scores[0], -1.0), _extend_edge(counts.scores[-1], 1.0)
    edges = np.where((below <= 0.0) & (above > 0.0), 0.0, edges)
    edges = np.where(edges < above, edges, below)  # if the midpoint was rounded to the value above
    best = np.flatnonzero(rank <= rank.min())
    place = int(best[np.argmin(np.abs(edges[best]))])
    return Threshold(float(edges[place]), float(scores[place]))


def _extend_edge(value: float, side: float) -> float:
    """Return a threshold beyond the outermost decision value, below it for ``side`` -1 and above it for 1."""
    return float(value + side * max(1.0, abs(value)))


def _score_counts(
    measure: Measure, hits: Array, false: Array, missed: Array, *, total: float, positives: float
) -> Float64:
    """Return the values of a measure of predicted labels for two classes; ``hits`` (true positives), ``false``
    positives and ``missed`` (false negatives) have one shape.
    """
    negatives = total - positives
    if measure.kind == "f1":
        return 2.0 * hits / np.maximum(2.0 * hits + false + missed, 1e-300)
    if measure.kind == "balanced_error":
        shares = [wrong / rows for wrong, rows in ((false, negatives), (missed, positives)) if rows]
        return np.asarray(sum(shares) / max(len(shares), 1))
    fp, fn = measure.costs if measure.kind == COST else (1.0, 1.0)
    return np.asarray((fp * false + fn * missed) / max(total, 1e-300))


# -- counting ----------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class MeasureCounts:
    """The counts from which one measure of several models of the same task is computed. Counts of different rows can be
    added in any order.
    """

    measure: Measure
    task: PredictionTask
    models: int
    probabilities: tuple[Probabilities, ...] = ()
    """For measures of probabilities: for each model the function that returns them."""
    labels: list[Array] = field(default_factory=list)
    """For each model the numbers of rows by true class, by predicted class, and of hits by class, (3, outcomes + 1)
    int64; the last column counts unknown labels."""
    pieces: list[list[tuple[Float64, Array]]] = field(default_factory=list)
    """For each model the decision values (n, k) and the class codes (n,) of each chunk."""
    sums: list[list[tuple[float, ...]]] = field(default_factory=list)
    """For each model the sums over the rows of each chunk."""

    def __post_init__(self) -> None:
        self.labels = self.labels or [np.zeros((3, self.task.outcomes + 1), np.int64) for _ in range(self.models)]
        self.pieces = self.pieces or [[] for _ in range(self.models)]
        self.sums = self.sums or [[] for _ in range(self.models)]

    def add(self, model: int, decision: Float64, truth: Array) -> None:
        """Count a chunk: decision values (n, k) of one model, which may be stored without a copy.

        ``truth`` (n,): the class codes that ``predict_codes`` returns, and other codes for labels that the model does
        not know; for regression the true numbers, float64.
        """
        if not len(truth):
            return
        if self.measure.needs == NUMBERS:
            self.sums[model].append(_sum_numbers(decision[:, 0], truth))
        elif self.measure.needs == LARGEST:
            self.sums[model].append(_sum_misses(decision, truth))
        elif self.measure.needs == RANKS:
            self.pieces[model].append((decision, truth))
        elif self.measure.needs == PROBABILITIES:
            self.sums[model].append(_sum_probabilities(self.probabilities[model](decision), truth))
        else:
            outcomes = self.task.outcomes
            predicted = predict_codes(decision, outcomes if self.task.pairs else 0)
            truth = np.where((truth >= 0) & (truth < outcomes), truth, outcomes)
            for row, codes in enumerate((truth, predicted, truth[predicted == truth])):
                self.labels[model][row] += np.bincount(codes, minlength=outcomes + 1)

    def empty(self) -> MeasureCounts:
        """Return counts of no rows for the same models."""
        return MeasureCounts(self.measure, self.task, self.models, self.probabilities)

    def __add__(self, other: MeasureCounts) -> MeasureCounts:
        """Return the counts of both, in a new object."""
        return replace(
            self,
            labels=[one + more for one, more in zip(self.labels, other.labels, strict=True)],
            pieces=[one + more for one, more in zip(self.pieces, other.pieces, strict=True)],
            sums=[one + more for one, more in zip(self.sums, other.sums, strict=True)],
        )

    def values(self) -> list[float]:
        """Return the measure of each model. Raises DataError if it is undefined for these rows."""
        return [self._value(model) for model in range(self.models)]

    def score_counts(self, model: int) -> ScoreCounts:
        """Return the counted decision values of a model of two classes, for measures of their order."""
        decision = np.concatenate([f[:, 0] for f, _ in self.pieces[model]])
        truth = np.concatenate([t for _, t in self.pieces[model]])
        in_task = (truth == 0) | (truth == 1)
        second = (truth[in_task] == 1).astype(np.float64)
        return count_scores(decision[in_task], second, 1.0 - second)

    def majority_error(self) -> float | None:
        """Return the error of always predicting the most frequent class; None if the measure does not count labels."""
        actual = self.labels[0][0]
        return 1.0 - int(actual.max()) / int(actual.sum()) if actual.sum() else None

    def _value(self, model: int) -> float:
        if self.measure.needs == NUMBERS:
            return _score_numbers(self.measure, self.sums[model])
        if self.measure.needs == PROBABILITIES:
            rows, losses, squares = (math.fsum(part) for part in zip(*self.sums[model], strict=True))
            return (losses if self.measure.kind == "log_loss" else squares) / max(rows, 1.0)
        if self.measure.needs == LARGEST:
            rows, misses = (math.fsum(part) for part in zip(*self.sums[model], strict=True))
            return misses / max(rows, 1.0)
        if self.measure.needs == RANKS:
            return self._score_ranks(self.pieces[model])
        return self._score_labels(self.labels[model])

    def _score_labels(self, counts: Array) -> float:
        actual, predicted, hits = counts
        kind, rows = self.measure.kind, max(int(actual.sum()), 1)
        if kind == "error":
            return int(actual.sum() - hits.sum()) / rows
        if kind == COST:
            p, n = self.task.positive, 1 - self.task.positive
            false, missed = predicted[p] - hits[p], predicted[n] - hits[n]
            return float(self.measure.costs[0] * false + self.measure.costs[1] * missed) / rows
        if kind == "balanced_error":
            present = actual > 0
            if self.task.one_class and not present[:2].all():
                raise DataError(
                    "a fold has only rows of the class, or none of them: its error is undefined",
                    code="E-LABEL",
                    hint="fewer folds, or ingest the rows in random order: --shuffle",
                )
            return float(np.mean((actual[present] - hits[present]) / actual[present])) if present.any() else 0.0
        F1 = 2 * hits / np.maximum(actual + predicted, 1)
        if self.task.outcomes == 2:
            return float(F1[self.task.positive])
        return float(F1[(actual > 0) | (predicted > 0)].mean())

    def _score_ranks(self, pieces: Sequence[tuple[Float64, Array]]) -> float:
        """Return the area under the curve; for several classes, its mean over the classes that have rows."""
        decision = np.concatenate([f for f, _ in pieces])
        truth = np.concatenate([t for _, t in pieces])
        in_task = (truth >= 0) & (truth < self.task.outcomes)
        decision, truth = decision[in_task], truth[in_task]
        area = roc_auc if self.measure.kind == "auc" else average_precision
        if decision.shape[1] == 1:
            side = 1.0 if self.task.positive == 1 else -1.0
            areas = [area(truth == self.task.positive, side * decision[:, 0])]
        else:
            areas = [area(truth == k, decision[:, k]) for k in range(decision.shape[1])]
        defined = [value for value in areas if not math.isnan(value)]
        if not defined:
            missing = "rows of both classes" if self.measure.kind == "auc" else "rows of the positive class"
            raise DataError(
                f"{self.measure.title} is undefined: there are no {missing} among the rows held out",
                code="E-LABEL",
                hint="hold out more rows, or fewer folds; ingest with --shuffle spreads a rare class over all chunks",
            )
        return math.fsum(defined) / len(defined)


def _sum_numbers(predicted: Float64, truth: Float64) -> tuple[float, ...]:
    """Return the number of rows, sum |e|, sum e^2, mean t and sum (t - mean t)^2 of a chunk, with errors e and targets
    t.
    """
    error, mean = predicted - truth, float(truth.mean())
    away = truth - mean
    return len(truth), float(np.abs(error).sum()), float(error @ error), mean, float(away @ away)


def _score_numbers(measure: Measure, sums: Sequence[tuple[float, ...]]) -> float:
    """Return a measure of predicted numbers from the sums over chunks."""
    rows = max(math.fsum(part[0] for part in sums), 1.0)
    if measure.kind == "mae":
        return math.fsum(part[1] for part in sums) / rows
    squares = math.fsum(part[2] for part in sums)
    if measure.kind == "rmse":
        return math.sqrt(squares / rows)
    mean = math.fsum(part[0] * part[3] for part in sums) / rows
    spread = math.fsum(part[4] + part[0] * (part[3] - mean) ** 2 for part in sums)
    if not spread:  # as in scikit-learn
        return 0.0 if squares else 1.0
    return 1.0 - squares / spread


def _sum_misses(decision: Float64, truth: Int32) -> tuple[float, ...]:
    """Return the number of rows of a chunk and the number of misses: rows in which TOP or more classes are above the
    true one, and rows with unknown labels.
    """
    in_task = (truth >= 0) & (truth < decision.shape[1])
    f = decision[in_task]
    above = (f > f[np.arange(len(f)), truth[in_task]][:, None]).sum(axis=1)
    return len(truth), len(truth) - int((above < TOP).sum())


def _sum_probabilities(p: Float64, truth: Int32) -> tuple[float, ...]:
    """Return the number of rows, the sum of log losses and the sum of squared errors of a chunk, without rows of
    unknown labels.
    """
    in_task = (truth >= 0) & (truth < p.shape[1])
    p, truth = p[in_task], truth[in_task]
    of_truth = p[np.arange(len(p)), truth]
    losses = -np.log(np.maximum(of_truth, MIN_PROBABILITY))
    squares = (p[:, 1] - (truth == 1)) ** 2 if p.shape[1] == 2 else (p * p).sum(axis=1) - 2.0 * of_truth + 1.0
    return len(p), float(losses.sum()), float(squares.sum())
