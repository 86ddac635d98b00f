"""Sections of a page on the quality of a model: measures with those of a baseline, errors, curves, probabilities and margins.

The baseline makes the same prediction for every row: the most frequent class, the mean of the targets, or for probabilities and rankings
the shares of the classes among the evaluated rows. A model that is no better has learned nothing, even if its training has converged.
"""

from __future__ import annotations

import itertools
import math
from typing import NamedTuple

from streamsvm.config.units import percent
from streamsvm.display.chart import (
    ACROSS,
    INK,
    REFERENCE,
    SERIES,
    UPWARDS,
    Chart,
    chart_of_shares,
    format_number,
    group_digits,
    linear_axis,
    share_axis,
    side_by_side,
)
from streamsvm.display.html import Markup, PagePart, element, fold, shorten, table
from streamsvm.display.read_record import Evaluated, EvaluatedNumbers, Margins, Reliability, RunRecord, WorstError
from streamsvm.model.measures import find_measure

MAX_TABLE_CLASSES = 30
"""Maximum number of classes for which the confusion table is shown."""
FEW_CLASSES, MAX_CONFUSIONS = 5, 12
"""Maximum number of classes whose confusion table fits half of the page, and of confusions that are listed."""
MAX_WIDE_CELLS = 16
"""Maximum number of classes whose confusion table has cells of the usual width."""
MIN_RELIABILITY_ROWS = 10
"""Fewer rows of one predicted probability are not drawn: their share of positive rows is chance."""
MAX_DIAGRAMS = 4
"""Maximum number of values of C whose calibration is drawn."""
RELIABILITY_LABELS = ("predicted probability, %", "observed share, %")
MIN_IMPROVEMENT = 0.01
"""The relative improvement over the baseline from which a model counts as useful."""


class MeasureRow(NamedTuple):
    """A measure of a model on the evaluated rows, a row of the table."""

    name: str
    value: str
    baseline: str
    """The value of the baseline; empty if there is none."""
    meaning: str


class Quality(NamedTuple):
    """The verdict on the quality of a model."""

    sentence: list[str | Markup]
    """The sentence of the verdict."""
    is_useful: bool | None
    """Whether the model is better than its baseline; None if it was not evaluated."""
    tiles: list[tuple[str, str, str]]
    """The most important measures: name, value, and value of the baseline."""


def judge_quality(run: RunRecord) -> Quality:
    """Return the verdict of the last evaluation, or without one that of the held-out rows, if there are any."""
    if run.number_evaluation is not None:
        return _judge_numbers(run.number_evaluation, run)
    quality = _judge_held_out(run) if run.evaluation is None else _judge_classes(run.evaluation, run)
    chosen = run.threshold()
    if chosen is None:
        return quality
    measure = find_measure(chosen.measure)
    says = f"{measure.title} {measure.full_text(chosen.score)} on {chosen.rows}"
    return quality._replace(tiles=[*quality.tiles, ("threshold", format_number(chosen.value), says)])


def _judge_numbers(n: EvaluatedNumbers, run: RunRecord) -> Quality:
    explained = "" if n.R2 is None else f", R2 {format_number(n.R2, '.4f')}"
    sentence: list[str | Markup] = [
        element("strong", f"RMSE {n.RMSE:.4g}"),
        f" on {group_digits(n.rows)} rows{_remark_on_training_rows(n.data, run)} (always the mean: {n.target_spread:.4g}){explained}. ",
    ]
    is_useful = n.RMSE < (1.0 - MIN_IMPROVEMENT) * n.target_spread
    tiles = [
        ("test RMSE", f"{n.RMSE:.4g}", f"always the mean: {n.target_spread:.4g}"),
        ("mean absolute error", f"{n.MAE:.4g}", f"{group_digits(n.rows)} rows"),
        ("R2", "–" if n.R2 is None else format_number(n.R2, ".4f"), "always the mean: 0"),
        ("largest error", f"{n.largest_error:.4g}", "of a single row"),
    ]
    return Quality([*sentence, *_useless(is_useful, "the mean")], is_useful, tiles)


def _judge_classes(e: Evaluated, run: RunRecord) -> Quality:
    base = find_baseline(e)
    sentence: list[str | Markup] = [
        element("strong", f"{percent(e.accuracy, 4)} right"),
        f" on {group_digits(e.rows)} rows{_remark_on_training_rows(e.data, run)} (always ‘{shorten(base.name, 24)}’: {percent(base.share, 4)})",
        ". " if e.AUC is None else f", AUC {e.AUC:.4f}. ",
    ]
    chance = 1.0 / max(base.classes, 1)
    is_useful = (
        e.accuracy > base.share + MIN_IMPROVEMENT * (1.0 - base.share) or e.balanced_accuracy > chance + MIN_IMPROVEMENT
    )
    shown = list_measures(e)
    first = ("accuracy", "AUC", "average precision", "balanced accuracy", "F1", "log loss")
    tiles = [(row.name, row.value, row.baseline) for name in first for row in shown if row.name.startswith(name)][:5]
    if run.settings.get("one_class") and e.rows:
        outside, nu = sum(row[0] for row in e.confusion if row) / e.rows, run.settings.get("nu")
        tiles = [*tiles[:4], ("taken for outliers", percent(outside, 3), "" if nu is None else f"nu = {nu}")]
    return Quality([*sentence, *_useless(is_useful, f"always ‘{shorten(base.name, 24)}’")], is_useful, tiles)


def _useless(is_useful: bool, baseline: str) -> list[str | Markup]:
    return [] if is_useful else [element("strong", f"That is no better than {baseline}. ")]


def _remark_on_training_rows(data: list[str], run: RunRecord) -> str:
    """Return a remark if the evaluated rows are the training rows; else an empty text."""
    store = run.facts.store.path if run.facts is not None else run.job.get("store")
    return " that it was trained on" if store in data else ""


def _judge_held_out(run: RunRecord) -> Quality:
    """Return the verdict of the held-out rows, on which the pass and C were chosen; without them, that the model was not evaluated."""
    held, best = run.best_score_on_held_out_rows(), run.best_held_out
    if held is None:
        return Quality(["Not evaluated yet on rows that it has not seen (streamsvm evaluate). "], None, [])
    text, name = run.measure.full_text(held), f"held-out {run.measure.title}"
    baseline = _baseline_of_held_out_rows(run)
    base = "" if baseline is None else baseline.error_text
    is_useful = baseline is None or held < (1.0 - MIN_IMPROVEMENT) * baseline.error
    chosen = f"which chose pass {best.get('pass', '?')} and C = {best.get('C', '?')}"
    sentence: list[str | Markup] = [
        element("strong", f"{name[0].upper()}{name[1:]} {text}"),
        f" ({base}), {chosen}. " if base else f", {chosen}. ",
    ]
    tiles = [(name, text, base or f"C = {best.get('C', '?')}")]
    return Quality([*sentence, *_useless(is_useful, "the baseline")], is_useful, tiles)


def _baseline_of_held_out_rows(run: RunRecord) -> Baseline | None:
    """Return the most frequent class of the training rows as baseline; None if the measure on held-out rows is not the error."""
    if (
        run.facts is None
        or run.measure.kind != "error"
        or run.settings.get("one_class")
        or run.settings.get("positive")
    ):
        return None
    return find_most_frequent(run.facts.store.classes)


class Baseline(NamedTuple):
    """The most frequent class as a baseline."""

    name: str
    share: float
    """The fraction of rows of this class, its accuracy."""
    shares: list[float]
    """The fractions of rows of all classes that occur."""

    @property
    def classes(self) -> int:
        """The number of classes that occur."""
        return len(self.shares)

    @property
    def error(self) -> float:
        """The error of the baseline."""
        return 1.0 - self.share

    @property
    def error_text(self) -> str:
        """The baseline and its error as text."""
        return f"always ‘{shorten(self.name, 24)}’: {percent(self.error, 4)}"


def find_most_frequent(classes: list[tuple[str, int]]) -> Baseline | None:
    """Return the baseline for classes with their numbers of rows; None without rows."""
    total = sum(n for _, n in classes)
    if not total:
        return None
    name, most = max(classes, key=lambda one: one[1])
    return Baseline(name, most / total, [n / total for _, n in classes if n])


def find_baseline(e: Evaluated) -> Baseline:
    """Return the baseline on the evaluated rows: the most frequent of the classes of the model."""
    counts = [sum(row) for row in e.confusion]
    total = max(sum(counts), 1)
    counted = [(n, name) for n, name in zip(counts, e.truths, strict=False) if name in e.classes]
    most, name = max(counted, default=(0, "–"), key=lambda one: one[0])
    return Baseline(name, most / total, [n / total for n in counts if n])


def list_measures(e: Evaluated) -> list[MeasureRow]:
    """Return the measures of a classifier with those of the baseline."""
    base = find_baseline(e)
    entropy = -sum(share * math.log(share) for share in base.shares)
    spread = 1.0 - sum(share * share for share in base.shares)
    always = f"always ‘{shorten(base.name, 24)}’: "
    rows = [
        MeasureRow("accuracy", percent(e.accuracy, 4), f"{always}{percent(base.share, 4)}", "share of right answers"),
        MeasureRow(
            "balanced accuracy",
            percent(e.balanced_accuracy, 4),
            f"{always}{percent(1.0 / max(base.classes, 1), 4)}",
            "mean over the classes of the share of right answers",
        ),
    ]
    if e.AUC is not None and len(e.classes) == 2:
        positive = e.classes.index(e.positive) if e.positive in e.classes else 1
        name, counts = e.classes[positive], [sum(row) for row in e.confusion]
        share = counts[positive] / max(e.rows, 1) if len(counts) > positive else 0.0
        precision_and_recall = [one[positive] if len(one) > positive else 0.0 for one in (e.precision, e.recall)]
        rows += [
            MeasureRow(
                f"F1 of {shorten(name, 20)}",
                f"{_harmonic_mean(*precision_and_recall):.4f}",
                f"always ‘{shorten(name, 24)}’: {2 * share / (1 + share):.4f}",
                "harmonic mean of its precision and its recall",
            ),
            MeasureRow(
                "AUC", f"{e.AUC:.4f}", "by chance: 0.5", "how often a row of the class is ranked above one of the other"
            ),
        ]
        if e.average_precision is not None:
            what = "area under precision over recall"
            rows.append(MeasureRow("average precision", f"{e.average_precision:.4f}", f"by chance: {share:.4f}", what))
    else:
        rows.append(MeasureRow("F1, mean", f"{e.F1_macro:.4f}", "", "mean over the classes of their F1"))
    if e.reliability is not None:
        after = e.reliability.after
        if after.log_loss is not None:
            rows.append(
                MeasureRow(
                    "log loss", f"{after.log_loss:.4f}", f"shares of the classes: {entropy:.4f}", "of the probabilities"
                )
            )
        if after.Brier is not None:
            value = spread / 2 if len(e.classes) == 2 else spread
            what = "mean squared error of the probabilities"
            rows.append(MeasureRow("Brier score", f"{after.Brier:.4f}", f"shares of the classes: {value:.4f}", what))
    return rows


def _harmonic_mean(a: float, b: float) -> float:
    return 2 * a * b / (a + b) if a + b > 0 else 0.0


def draw_evaluation(run: RunRecord) -> PagePart | None:
    """Return the section on the evaluated rows: measures, errors and curves; None without an evaluation."""
    if run.number_evaluation is not None:
        return _list_regression_scores(run.number_evaluation)
    e = run.evaluation
    if e is None:
        return None
    head = ("measure", "this model", "baseline", "what it is")
    measures = table(head, list_measures(e), kind="words measures")
    curves = [_draw_curve(e.roc, "ROC", ("false positives, %", "true positives, %"), _auc_text(e), chance=True)]
    curves.append(
        _draw_curve(
            e.precision_recall, "Precision and recall", ("recall, %", "precision, %"), _precision_text(e), chance=False
        )
    )
    chosen = run.threshold()
    own = 0.0 if chosen is None else chosen.value
    if len(e.classes) <= FEW_CLASSES:
        shown = [measures, side_by_side(_confusion_table(e, own), _class_table(e))]
    else:
        shown = [measures, _confusion_table(e, own), side_by_side(_class_table(e), _list_confusions(e))]
    shown += [side_by_side(*curves)] if any(curves) else []
    shown += _draw_thresholds(e, own)
    return PagePart("evaluation", "Quality", _lead_of_evaluation(e), element("div", *shown))


def _lead_of_evaluation(e: Evaluated | EvaluatedNumbers) -> str:
    when = f", evaluated on {e.at} UTC" if e.at else ""
    more = f" and {len(e.data) - 3} more" if len(e.data) > 3 else ""
    return f"{group_digits(e.rows)} rows of {', '.join(shorten(d) for d in e.data[:3])}{more}{when}."


def _list_regression_scores(n: EvaluatedNumbers) -> PagePart:
    figures = [
        ("RMSE", f"{n.RMSE:.5g}", f"always the mean: {n.target_spread:.5g}", "root of the mean squared error"),
        (
            "MAE",
            f"{n.MAE:.5g}",
            "" if n.MAE_of_mean is None else f"always the mean: {n.MAE_of_mean:.5g}",
            "mean absolute error",
        ),
        (
            "R2",
            "–" if n.R2 is None else format_number(n.R2, ".5g"),
            "always the mean: 0",
            "share of the variance that is explained",
        ),
        ("largest error", f"{n.largest_error:.5g}", "", "of a single row"),
        ("targets", format_number(n.target_mean, ".5g"), f"standard deviation {n.target_spread:.5g}", "their mean"),
    ]
    lead = _lead_of_evaluation(n) + " All but R2 is in the units of the target."
    shown = [table(("measure", "this model", "baseline", "what it is"), figures, kind="words measures")]
    drawings = [_draw_scatter(n), _draw_number_residuals(n)]
    shown += [side_by_side(*drawings)] if any(drawings) else []
    return PagePart("evaluation", "Quality", lead, element("div", *shown))


def _draw_scatter(n: EvaluatedNumbers) -> Markup | None:
    """Draw predictions over targets for a sample of rows."""
    if len(n.scatter) < 2:
        return None
    targets, predictions = sorted(t for t, _ in n.scatter), sorted(p for _, p in n.scatter)
    low, high = min(targets[0], predictions[0]), max(targets[-1], predictions[-1])
    x, y = linear_axis(low, high, ACROSS), linear_axis(low, high, UPWARDS)
    says = f"Predictions over targets of {len(n.scatter)} of the rows: the nearer to the diagonal the better."
    chart = Chart("Predicted over true", says, x, y, ("target", "prediction"))
    chart.line([(low, low), (high, high)], REFERENCE, "right", kind="dashed")
    chart.scatter(n.scatter, INK, f"{len(n.scatter)} of the rows")
    return chart.render()


def _draw_number_residuals(n: EvaluatedNumbers) -> Markup | None:
    histogram = n.residuals
    if histogram is None:
        return None
    says = f"Histogram of the residuals of {histogram.rows} evaluated rows."
    labels = ("Residuals of a sample of the evaluated rows", says, "residual", "share of the rows, %")
    return _draw_histogram(histogram, labels, "", dict.fromkeys(histogram.counts, INK))


def draw_worst_errors(run: RunRecord) -> PagePart | None:
    """Return the section on the rows with the worst errors; None if none were recorded."""
    evaluation = run.evaluated
    if evaluation is None or not evaluation.worst:
        return None
    has_ids = any(one.id is not None for one in evaluation.worst)
    has_reasons = any(one.reasons for one in evaluation.worst)
    head = ["id" if has_ids else "row", "true", "predicted", "off by" if run.is_regression else "how sure"]
    rows = [_worst_row(one, run, has_ids=has_ids) for one in evaluation.worst]
    lead = "The rows with the largest errors: look at them to see whether a label is wrong, or a column is missing."
    if has_reasons:
        head.append("what moved it most")
        rows = [[*row, _list_reasons(one)] for row, one in zip(rows, evaluation.worst, strict=True)]
        lead += " In brackets: the effect of a value on f(x), relative to the average row"
        lead += "." if run.is_regression else "; a positive effect favors the prediction."
    if not has_ids:
        lead += " Rows are numbered from 0."
    return PagePart("worst", "Worst errors", lead, table(head, rows, kind="words worst"))


def _worst_row(one: WorstError, run: RunRecord, *, has_ids: bool) -> list[str]:
    if run.is_regression:
        sure = f"{one.error:.4g}"
    elif one.probability is not None:
        sure = percent(one.probability, 4)
    else:
        sure = f"margin\u00a0−{one.error:.3g}"
    name = (one.id or "–") if has_ids else group_digits(one.row)
    return [shorten(name, 24), shorten(one.truth, 24), shorten(one.predicted, 24), sure]


def _list_reasons(one: WorstError) -> str:
    moved = (f"{shorten(text, 40)} ({format_number(value, '+.3g')})" for text, value in one.reasons)
    return ", ".join(moved) or "–"


def _draw_thresholds(e: Evaluated, own: float) -> list[Markup]:
    """Draw precision, recall and F1 over the threshold, with that of the model (``own``), beside a table of some thresholds.

    Empty if thresholds were not recorded.
    """
    points_by_threshold = sorted(e.thresholds)
    if len(points_by_threshold) < 3:
        return []
    inner = points_by_threshold[len(points_by_threshold) // 100 : -(len(points_by_threshold) // 100) or None]
    low, high = inner[0][0], inner[-1][0]
    if not high > low:
        return []
    x, y = linear_axis(low, high, ACROSS), share_axis(UPWARDS)
    best = max(points_by_threshold, key=lambda one: _harmonic_mean(one[1], one[2]))
    F1 = _harmonic_mean(best[1], best[2])
    says = f"Precision, recall and F1 over the threshold: F1 is largest, {F1:.4f}, at {best[0]:.4g}."
    labels = ("threshold of the decision value", "%")
    chart = Chart(f"Thresholds for class {shorten(e.positive or e.classes[-1], 24)}", says, x, y, labels)
    chart.line([(t, r) for t, _, r in inner], INK, "recall", kind="dotted")
    chart.line([(t, p) for t, p, _ in inner], INK, "precision", kind="dashed")
    chart.line([(t, _harmonic_mean(p, r)) for t, p, r in inner], INK, "F1")
    if low < own < high:
        chart.upright(own)
    recalls = [
        (f"recall {percent(share)}", _threshold_with_recall(points_by_threshold, share))
        for share in (0.99, 0.95, 0.9, 0.8, 0.5)
    ]
    rows = [
        (name, format_number(t), percent(p, 3), percent(r, 3), f"{_harmonic_mean(p, r):.4f}")
        for name, (t, p, r) in [("the best F1", best), *recalls]
    ]
    on = "below" if e.positive == e.classes[0] else "from"
    caption = f"Rows are taken for the class {on} this decision value"
    caption += "" if on == "below" else " on"
    numbers = table(("for", "threshold", "precision", "recall", "F1"), rows, caption=caption)
    return [side_by_side(chart.render(), numbers)]


def _threshold_with_recall(points: list[tuple[float, float, float]], recall: float) -> tuple[float, float, float]:
    """Return the threshold with the largest precision among those with at least this recall; ``points``: (threshold, precision, recall)."""
    return max((one for one in points if one[2] >= recall), key=lambda one: one[1], default=points[0])


def _auc_text(e: Evaluated) -> str:
    return "" if e.AUC is None else f"area {e.AUC:.5f}, within {e.AUC_error or 0:.1g}"


def _precision_text(e: Evaluated) -> str:
    of = "" if e.positive is None else f" of {shorten(e.positive, 24)}"
    return "" if e.average_precision is None else f"average precision {e.average_precision:.5f}{of}"


def _draw_curve(
    points: list[tuple[float, float]], title: str, labels: tuple[str, str], says: str, *, chance: bool
) -> Markup | None:
    if not points:
        return None
    chart = chart_of_shares(title, f"{title}: {says}", labels, diagonal="by chance" if chance else None)
    chart.band([(a, 0.0) for a, _ in points], points, REFERENCE)
    chart.line(points, INK, says)
    return chart.render()


def _class_table(e: Evaluated) -> Markup:
    counts = [sum(row_) for row_ in e.confusion]
    rows = [
        (shorten(name, 24), percent(p, 3), percent(r, 3), f"{_harmonic_mean(p, r):.4f}", group_digits(n))
        for name, p, r, n in zip(e.truths, e.precision, e.recall, counts, strict=False)
    ]
    return table(("class", "precision", "recall", "F1", "rows"), rows[:MAX_TABLE_CLASSES], caption="By class")


def _list_confusions(e: Evaluated) -> Markup | None:
    """Return the table of the most frequent confusions; None without any."""
    confusions = [
        (n, name, other, n / max(sum(counts), 1))
        for name, counts in zip(e.truths, e.confusion, strict=False)
        for other, n in zip(e.classes, counts, strict=False)
        if other != name and n
    ]
    confusions.sort(key=lambda one: -one[0])
    rows = [
        (shorten(name, 24), shorten(other, 24), group_digits(n), percent(share, 3))
        for n, name, other, share in confusions[:MAX_CONFUSIONS]
    ]
    if not rows:
        return None
    return table(("true", "taken for", "rows", "of the class"), rows, caption="Most frequent confusions", kind="words")


def _confusion_table(e: Evaluated, threshold: float) -> Markup:
    """Return the confusion table; a cell is darker the larger its fraction of the row is."""
    if len(e.classes) > MAX_TABLE_CLASSES or len(e.truths) > MAX_TABLE_CLASSES:
        return element("p", f"{len(e.classes)} classes: their confusion table is in evaluation.json.", class_="lead")
    rows = []
    for name, counts in zip(e.truths, e.confusion, strict=False):
        total = max(sum(counts), 1)
        cells = [element("td", group_digits(n), class_=f"q{min(9, int(10 * n / total))}") for n in counts]
        rows.append([element("th", shorten(name, 20), scope="row"), *cells])
    head = ["true / predicted", *(shorten(name, 12) for name in e.classes)]
    caption = "Confusion: true class down, predicted across"
    if e.AUC is not None and len(e.classes) == 2:
        caption += f"; {shorten(e.classes[1], 16)} where f(x) > {format_number(threshold)}"
    return table(head, rows, kind="heat many" if len(e.classes) > MAX_WIDE_CELLS else "heat", caption=caption)


def draw_reliability(run: RunRecord) -> PagePart | None:
    """Return the section on probabilities: on the evaluated rows, and on the scores used for calibration; None without any."""
    figures, counts = [], []
    if run.evaluation is not None and run.evaluation.reliability is not None:
        reliability = run.evaluation.reliability
        figures.append(_draw_diagram(reliability.before, reliability.after, "Reliability on the evaluated rows"))
        counts.append(_reliability_table(reliability.after, "Rows of the evaluation by predicted probability"))
    for one in run.calibrations[:MAX_DIAGRAMS]:
        scores = f"scores by {one.scores}" if one.scores.endswith("folds") else f"{one.scores} scores"
        title = f"Reliability of {scores}" + (f", C = {one.C:g}" if len(run.calibrations) > 1 else "")
        figures.append(_draw_diagram(one.before, one.after, title))
        counts.append(
            _reliability_table(one.after, f"Weight of the training rows by predicted probability, C = {one.C:g}")
        )
    if not figures:
        return None
    folded = f"Counts, also where fewer than {MIN_RELIABILITY_ROWS} rows are too few to be drawn"
    methods = {one.method for one in run.calibrations}
    lead = "On the diagonal, a predicted probability equals the share of positive rows. Before: decision values read as log odds."
    if methods:
        lead += f" After: {' and '.join(sorted(methods))} calibration; the second drawing evaluates it on the scores to which it was fitted."
    return PagePart("reliability", "Probabilities", lead, element("div", side_by_side(*figures), fold(folded, *counts)))


def _draw_diagram(before: Reliability, after: Reliability, title: str) -> Markup:
    says = f"{title}: calibration error {_format_or_dash(before.ECE)} before, {_format_or_dash(after.ECE)} after."
    chart = chart_of_shares(title, says, RELIABILITY_LABELS, diagonal="")
    for number, name, diagram in ((REFERENCE, "before", before), (INK, "after", after)):
        chart.line(
            reliability_points(diagram),
            number,
            f"{name}: ECE {_format_or_dash(diagram.ECE)}, log loss {_format_or_dash(diagram.log_loss)}",
            dots=True,
        )
    return chart.render()


def reliability_points(reliability: Reliability) -> list[tuple[float, float]]:
    """Return predicted probability and share of positive rows of the bins with enough rows; of all bins if none has enough."""
    points = list(zip(reliability.said, reliability.came_true, strict=False))
    enough = [point for point, rows in zip(points, reliability.weight, strict=False) if rows >= MIN_RELIABILITY_ROWS]
    return enough or points


def _reliability_table(reliability: Reliability, caption: str) -> Markup:
    rows = [
        (f"{100 * said:.1f} %", f"{100 * true:.1f} %", group_digits(round(weight)))
        for said, true, weight in zip(reliability.said, reliability.came_true, reliability.weight, strict=False)
    ]
    return table(("predicted", "observed", "rows"), rows, caption=caption)


def _format_or_dash(value: float | None) -> str:
    return "–" if value is None else f"{value:.4f}"


def draw_margins(run: RunRecord) -> PagePart | None:
    """Return the section on margins of the evaluated rows and of a sample of the training rows; None without any."""
    evaluated = None if run.evaluation is None else run.evaluation.margins
    trained = None if run.facts is None else run.facts.margins
    of_sample = evaluated is not None and run.evaluation is not None and evaluated.rows < run.evaluation.rows
    first = "Margins of a sample of the evaluated rows" if of_sample else "Margins of the evaluated rows"
    titles = (first, "Margins of a sample of the training rows")
    histograms = [
        (histogram, title)
        for histogram, title in zip((evaluated, trained), titles, strict=True)
        if histogram is not None
    ]
    if not histograms:
        return None
    if run.is_regression:
        return _draw_residuals(histograms[0][0], run)
    binary = run.plan is None or (run.plan.problems <= len(set(run.plan.C)) and run.plan.together <= 2)
    of_f = "y f(x)" if run.threshold() is None else "y (f(x) − the threshold)"
    of_classes = "how far the value of the true class is above the largest of the others"
    if run.settings.get("multi_class") == "ovo":
        of_classes = "how many more votes of pairs the true class has than any other"
    what = of_f if binary else of_classes
    lead = (
        f"A margin is {what}. Where it is below 0 the answer is wrong; only rows whose loss is not 0 shape the model."
    )
    is_one_class = run.settings.get("one_class") and all(
        sum(map(any, histogram.counts.values())) == 1 for histogram, _ in histograms
    )
    if is_one_class:
        lead = "Where f(x) is below 0, a row is unlike the rows that the model was trained on"
        lead += "." if not (nu := run.settings.get("nu")) else f", of which at most {percent(float(nu), 3)} are there."
        histograms = [
            (_trim_empty_bins(histogram), title.replace("Margins", "Values f(x)")) for histogram, title in histograms
        ]
    classes = max(len(histogram.counts) for histogram, _ in histograms)
    if classes > SERIES:
        lead += f" The {SERIES} largest of {classes} classes are drawn."
    if is_one_class:
        return PagePart("margins", "Values", lead, side_by_side(*(_draw_values(*one) for one in histograms)))
    figures = side_by_side(*(_draw_margin_histogram(histogram, title, run) for histogram, title in histograms))
    return PagePart("margins", "Margins", lead, figures)


def _draw_values(margins: Margins, title: str) -> Markup:
    """Draw a histogram of the decision values of a one-class model."""
    low, high = margins.range
    says = f"Histogram of f(x) of {margins.rows} rows, from {low:.3g} to {high:.3g}."
    return _draw_histogram(
        margins, (title, says, "f(x)", "share of the rows, %"), "", dict.fromkeys(margins.counts, INK)
    )


def _trim_empty_bins(margins: Margins) -> Margins:
    """Return the histograms of classes with rows, without the bins at both ends that are empty."""
    counts = {name: list(bins) for name, bins in margins.counts.items() if any(bins)}
    size = max((len(bins) for bins in counts.values()), default=0)
    used = [k for k in range(size) if any(bins[k] for bins in counts.values() if k < len(bins))]
    low, high = margins.range
    if not used or not low < high:
        return margins
    width = (high - low) / size
    zero = min(max(int(-low / width), 0), size - 1)  # stays in sight
    first, last = min(used[0], zero), max(used[-1], zero) + 1
    kept = {name: bins[first:last] for name, bins in counts.items()}
    return Margins((low + first * width, low + last * width), kept, margins.rows)


def _draw_residuals(histogram: Margins, run: RunRecord) -> PagePart:
    lead = "A residual is f(x) minus the target; only rows whose loss is not 0 shape the model."
    low, high = histogram.range
    says = f"Histogram of the residuals of {histogram.rows} rows, from {low:.3g} to {high:.3g}."
    labels = ("Residuals of a sample of the training rows", says, "residual", "share of the rows, %")
    drawn = _draw_histogram(histogram, labels, _loss_name(run), dict.fromkeys(histogram.counts, INK))
    return PagePart("margins", "Residuals", lead, side_by_side(drawn))


def _draw_margin_histogram(histogram: Margins, title: str, run: RunRecord) -> Markup:
    """Draw a histogram of margins by class."""
    bins = max((len(c) for c in histogram.counts.values()), default=1)
    low, high = histogram.range
    ends = [low + (high - low) * k / bins for k in range(1, bins + 1)]
    wrong = sum(sum(c for c, e in zip(counts, ends, strict=False) if e <= 0) for counts in histogram.counts.values())
    says = f"Histogram of the margins of {histogram.rows} rows by class; about {percent(wrong / max(histogram.rows, 1))} are below 0."
    colors = {name: number for number, name in enumerate(run.classes_to_draw())}
    return _draw_histogram(histogram, (title, says, "margin", "share of the class, %"), _loss_name(run), colors)


def _draw_histogram(histogram: Margins, labels: tuple[str, str, str, str], loss: str, colors: dict[str, int]) -> Markup:
    """Draw a histogram. ``labels``: title, description and names of both axes. ``colors``: the series by name."""
    title, says, across, upwards = labels
    low, high = histogram.range
    if len(histogram.counts) > 2:
        histogram = _merge_bins(histogram)
    bins = max((len(c) for c in histogram.counts.values()), default=1)
    edges = [low + (high - low) * k / bins for k in range(bins + 1)]
    heights = {name: [c / max(sum(counts), 1) for c in counts] for name, counts in histogram.counts.items()}
    top = max((max(h) for h in heights.values() if h), default=1.0)
    x, y = linear_axis(low, high, ACROSS), linear_axis(0.0, top * 1.08, UPWARDS, text=lambda v: f"{100 * v:.3g}")
    chart = Chart(title, says, x, y, (across, upwards))
    for name, number in colors.items():
        if name not in heights:
            continue
        shares = heights[name]
        if len(heights) <= 2:
            chart.bars(edges, shares, number, "" if number == INK else shorten(name, 24))
        else:
            middles = [(a + b) / 2 for a, b in itertools.pairwise(edges)]
            chart.line(zip(middles, shares, strict=False), number, shorten(name, 24))
    chart.upright(0.0)
    if len(histogram.loss) > 1 and loss:
        most = max(histogram.loss) or 1.0
        points = [
            (low + (high - low) * k / (len(histogram.loss) - 1), v / most * top) for k, v in enumerate(histogram.loss)
        ]
        chart.line(points, REFERENCE, f"loss {loss}, not to scale", kind="dashed")
    return chart.render()


def _loss_name(run: RunRecord) -> str:
    """Return the name of the loss; empty for one-class models, whose loss is not a function of the margin."""
    if run.settings.get("one_class"):
        return ""
    return str((run.facts.loss if run.facts is not None else {}).get("name", "")).replace("_", " ")


def _merge_bins(histogram: Margins) -> Margins:
    """Return the histogram with a third of the bins, so that several lines are smooth enough to be distinguished."""
    counts = {name: [sum(c[k : k + 3]) for k in range(0, len(c), 3)] for name, c in histogram.counts.items()}
    return Margins(histogram.range, counts, histogram.rows, histogram.loss)
