"""The page that compares several runs: the best one, measures, curves, columns that matter, training and settings.

A run has the same color on the whole page. The best run is marked only if all runs were evaluated on the same data.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from streamsvm.config.units import percent, seconds_text, size_text
from streamsvm.display.chart import (
    ACROSS,
    SERIES,
    UPWARDS,
    Chart,
    chart_of_shares,
    format_number,
    group_digits,
    keep_finite,
    log_axis,
    side_by_side,
    time_axis,
)
from streamsvm.display.fit_page import MIB, MIN_GAP
from streamsvm.display.html import Markup, PagePart, build_document, element, fold, join, shorten, table
from streamsvm.display.quality_page import RELIABILITY_LABELS, find_baseline, reliability_points
from streamsvm.display.read_record import Evaluated, EvaluatedNumbers, RunRecord
from streamsvm.display.settings_table import format_setting

IGNORED_SETTINGS = {"model", "out", "report", "overwrite", "resume"}
"""Settings that are not compared, because they are paths or control only the run."""
MAX_COLUMNS = 12
"""Maximum number of columns of the table whose shares are compared."""


class ComparedMeasure(NamedTuple):
    """A measure by which runs are compared."""

    name: str
    value: Callable[[RunRecord], float | None]
    text: Callable[[float], str]
    higher_is_better: bool = True


def _read_classifier(read: Callable[[Evaluated], float | None]) -> Callable[[RunRecord], float | None]:
    return lambda run: None if run.evaluation is None else read(run.evaluation)


def _read_regression(read: Callable[[EvaluatedNumbers], float | None]) -> Callable[[RunRecord], float | None]:
    return lambda run: None if run.number_evaluation is None else read(run.number_evaluation)


def _format_decimals(value: float) -> str:
    return f"{value:.4f}"


def _log_loss(e: Evaluated) -> float | None:
    return None if e.reliability is None else e.reliability.after.log_loss


MEASURES = (
    ComparedMeasure("AUC", _read_classifier(lambda e: e.AUC), _format_decimals),
    ComparedMeasure("average precision", _read_classifier(lambda e: e.average_precision), _format_decimals),
    ComparedMeasure("accuracy", _read_classifier(lambda e: e.accuracy), lambda v: percent(v, 4)),
    ComparedMeasure("balanced accuracy", _read_classifier(lambda e: e.balanced_accuracy), lambda v: percent(v, 4)),
    ComparedMeasure("F1, mean", _read_classifier(lambda e: e.F1_macro), _format_decimals),
    ComparedMeasure("log loss", _read_classifier(_log_loss), _format_decimals, higher_is_better=False),
    ComparedMeasure("RMSE", _read_regression(lambda n: n.RMSE), lambda v: f"{v:.4g}", higher_is_better=False),
    ComparedMeasure("MAE", _read_regression(lambda n: n.MAE), lambda v: f"{v:.4g}", higher_is_better=False),
    ComparedMeasure("R2", _read_regression(lambda n: n.R2), lambda v: format_number(v, ".4f")),
)
"""All measures; the first one that every run has determines the best run."""


def build_comparison(runs: Sequence[RunRecord]) -> str:
    """Return the HTML page that compares several runs."""
    names = number_names([run.name for run in runs])
    parts = [
        _compare_quality(runs, names),
        _compare_curves(runs, names),
        _compare_columns(runs, names),
        _compare_training(runs, names),
        PagePart("settings", "Settings that differ", "", _settings_table(runs, names)),
    ]
    title = " · ".join(names[:4]) + (" · …" if len(names) > 4 else "")
    opening = _summarize(runs, names)
    return build_document(
        title, f"A comparison of {len(runs)} runs", opening, [part for part in parts if part is not None]
    )


def number_names(names: Sequence[str]) -> list[str]:
    """Return the names; names that occur several times get a number."""
    return [f"{name} ({k + 1})" if list(names).count(name) > 1 else name for k, name in enumerate(names)]


def _summarize(runs: Sequence[RunRecord], names: Sequence[str]) -> Markup:
    """Return the verdict: the best run with its measure, and how many runs are certified."""
    certified = sum(run.is_certified for run in runs)
    chosen = sum(not run.is_certified and run.kept_pass is not None for run in runs)
    count = f"{certified} of {len(runs)} runs are certified to the gap that was asked for"
    count += f", {chosen} more {'is' if chosen == 1 else 'are'} chosen on held-out rows." if chosen else "."
    best: list[str | Markup] = []
    measure = find_deciding_measure(runs)
    if measure is not None:
        values = [measure.value(run) or 0.0 for run in runs]
        position = _find_best(values, measure)
        others = sorted((v for k, v in enumerate(values) if k != position), reverse=measure.higher_is_better)
        next_one = "is the same" if others[0] == values[position] else measure.text(others[0])
        best = [
            element("strong", f"Best: {shorten(names[position], 40)}. "),
            f"Its {measure.name} is {measure.text(values[position])}, the next one's {next_one}. ",
        ]
    elif any(run.evaluated for run in runs):
        best = [
            "They were not all evaluated on the same rows and for the same positive class: none is marked as the best. "
        ]
    kind = "verdict" if certified + chosen == len(runs) else "verdict mild" if certified + chosen else "verdict open"
    return element("p", *best, count, class_=kind)


def find_deciding_measure(runs: Sequence[RunRecord]) -> ComparedMeasure | None:
    """Return the measure that determines the best run; None unless all runs were evaluated on the same data."""
    evaluations = [run.evaluated for run in runs]
    rows = {(tuple(one.data), one.rows, getattr(one, "positive", None)) for one in evaluations if one is not None}
    if len(rows) > 1 or None in evaluations:
        return None
    return next((m for m in MEASURES if all(m.value(run) is not None for run in runs)), None)


def _find_best(values: Sequence[float], measure: ComparedMeasure) -> int:
    choose = max if measure.higher_is_better else min
    return choose(range(len(values)), key=lambda k: values[k])


def _compare_quality(runs: Sequence[RunRecord], names: Sequence[str]) -> PagePart:
    """Return the section with the measures of each run; if all runs were evaluated on the same rows, the best values are outlined."""
    shown = [m for m in MEASURES if any(m.value(run) is not None for run in runs)]
    is_same = find_deciding_measure(runs) is not None
    held = any(run.best_score_on_held_out_rows() is not None for run in runs)
    rows = [[_name_cell(name, k)] for k, name in enumerate(names)]
    for m in shown:
        values = [m.value(run) for run in runs]
        comparable = [v if v is not None else (float("-inf") if m.higher_is_better else float("inf")) for v in values]
        best = comparable[_find_best(comparable, m)]
        for row, value in zip(rows, values, strict=True):
            mark = "best" if is_same and value == best else None
            row.append(element("td", "–" if value is None else m.text(value), class_=mark))
    for row, run in zip(rows, runs, strict=True):
        if held:
            row.append(element("td", _describe_held_out_score(run)))
        if not is_same:
            row.append(element("td", _describe_evaluations(run)))
    head = ["run", *(m.name for m in shown), *(["held out"] if held else []), *([] if is_same else ["evaluated on"])]
    lead = f"{_describe_evaluations(runs[0])}. The best of each column is outlined." if is_same else ""
    return PagePart("quality", "Quality", lead, join([table(head, rows, kind="compare"), *_baseline_text(runs)]))


def _name_cell(name: str, number: int) -> Markup:
    key = [element("i", class_=f"key b{number}")] if number < SERIES else []
    return element("th", *key, shorten(name, 32), scope="row")


def _describe_held_out_score(run: RunRecord) -> str:
    held, measure = run.best_score_on_held_out_rows(), run.measure
    return "–" if held is None else measure.full_text(held) + ("" if measure.percent else f" {measure.title}")


def _describe_evaluations(run: RunRecord) -> str:
    evaluation = run.evaluated
    if evaluation is None:
        return "–"
    return f"{group_digits(evaluation.rows)} rows of {', '.join(shorten(name, 32) for name in evaluation.data[:2])}"


def _baseline_text(runs: Sequence[RunRecord]) -> list[Markup]:
    if find_deciding_measure(runs) is None:
        return []
    first = runs[0]
    if first.number_evaluation is not None:
        return [
            element("p", f"Always the mean: RMSE {first.number_evaluation.target_spread:.4g}, R2 0.", class_="lead")
        ]
    assert first.evaluation is not None
    base = find_baseline(first.evaluation)
    return [element("p", f"Always ‘{shorten(base.name, 24)}’: accuracy {percent(base.share, 4)}.", class_="lead")]


def _compare_curves(runs: Sequence[RunRecord], names: Sequence[str]) -> PagePart | None:
    """Return the section with ROC, precision over recall and reliability; None if no run has them."""
    figures = [
        _draw_curves(runs, names, "ROC", ("false positives, %", "true positives, %"), lambda e: e.roc, diagonal=True),
        _draw_curves(
            runs,
            names,
            "Precision and recall",
            ("recall, %", "precision, %"),
            lambda e: e.precision_recall,
            diagonal=False,
        ),
        _draw_curves(runs, names, "Reliability", RELIABILITY_LABELS, _reliability_points, diagonal=True),
    ]
    if not any(figures):
        return None
    return PagePart("curves", "Curves", "", side_by_side(*figures))


def _reliability_points(e: Evaluated) -> list[tuple[float, float]]:
    if e.reliability is None:
        return []
    return reliability_points(e.reliability.after)


def _draw_curves(
    runs: Sequence[RunRecord],
    names: Sequence[str],
    title: str,
    labels: tuple[str, str],
    read: Callable[[Evaluated], list[tuple[float, float]]],
    *,
    diagonal: bool,
) -> Markup | None:
    lines = {
        k: points
        for k, run in enumerate(runs[:SERIES])
        if run.evaluation is not None and (points := read(run.evaluation))
    }
    if not lines:
        return None
    says = f"{title} of {', '.join(names[k] for k in lines)}"
    chart = chart_of_shares(title, says, labels, diagonal="" if diagonal else None)
    for k, points in lines.items():
        chart.line(points, k, shorten(names[k], 32))
    return chart.render()


def _compare_columns(runs: Sequence[RunRecord], names: Sequence[str]) -> PagePart | None:
    """Return the section with the share of each column of the table in the effects on f, for each run; None if no run recorded them."""
    shares = [
        {} if run.facts is None else {one.name: one.share for one in run.facts.columns if one.share is not None}
        for run in runs
    ]
    column_names = list(dict.fromkeys(name for one in shares for name in one))
    if not column_names:
        return None
    column_names.sort(key=lambda name: -max(one.get(name, 0.0) for one in shares))
    rows = []
    for name in column_names[:MAX_COLUMNS]:
        cells = [one.get(name) for one in shares]
        rows.append(
            [
                element("th", shorten(name, 32), scope="row"),
                *(
                    element(
                        "td",
                        "–" if v is None else percent(v, 3),
                        class_=None if v is None else f"q{min(9, int(10 * v))}",
                    )
                    for v in cells
                ),
            ]
        )
    lead = "The share of each column of the table in the effects on f(x): the stronger the shade, the larger."
    if len(column_names) > MAX_COLUMNS:
        lead += f" The first {MAX_COLUMNS} of {len(column_names)} columns."
    return PagePart(
        "columns", "What matters", lead, table(["column", *(shorten(n, 24) for n in names)], rows, kind="heat")
    )


def _compare_training(runs: Sequence[RunRecord], names: Sequence[str]) -> PagePart:
    """Return the section with passes, time and memory of each run, and the gap over time."""
    head = ("run", "solver", "gap", "passes", "time", "compiling", "peak", "read")
    parts = [table(head, [_training_row(run, name, k) for k, (run, name) in enumerate(zip(runs, names, strict=True))])]
    gaps = _draw_gaps(runs, names)
    if gaps is not None:
        lead = "How far each run was from the optimum of its own problem, over time."
        parts.append(fold("Gap over time", element("p", lead, class_="lead"), gaps))
    lead = "Compiling happens once on a machine; where its time is known, it is listed apart and not part of the time."
    return PagePart("training", "Training", lead, element("div", *parts))


def _training_row(run: RunRecord, name: str, number: int) -> list[str]:
    end, solver = run.end, run.plan.solver if run.plan is not None else "–"
    if end is None:
        last = run.passes[-1] if run.passes else None
        cells = ["–"] * 3 if last is None else [percent(last.gap), str(last.number), seconds_text(last.seconds)]
        return [_name_cell(name, number), solver, *cells, "–", "–", "not finished"]
    compiling = None if run.facts is None else run.facts.compile_seconds
    how = "" if run.is_certified else " (chosen on held-out rows)" if run.kept_pass is not None else " (not certified)"
    return [
        _name_cell(name, number),
        solver,
        percent(end.gap) + how,
        str(end.passes),
        seconds_text(end.seconds - (compiling or 0.0)) if end.seconds > (compiling or 0.0) else "–",
        "–" if compiling is None else seconds_text(compiling),
        f"{end.peak / MIB:.0f} MiB",
        size_text(end.bytes_read),
    ]


def _draw_gaps(runs: Sequence[RunRecord], names: Sequence[str]) -> Markup | None:
    lines = [[(p.seconds, max(p.gap, MIN_GAP)) for p in run.widest() if keep_finite([p.gap])] for run in runs]
    points = [point for line in lines for point in line]
    if not points:
        return None
    x = time_axis(1.02 * max(s for s, _ in points), ACROSS)
    y = log_axis(min(g for _, g in points), max(g for _, g in points), UPWARDS)
    says = "Relative gap over time: " + "; ".join(
        f"{n} {percent(p[-1][1])}" for n, p in zip(names, lines, strict=True) if p
    )
    chart = Chart("Relative gap over time", says, x, y, ("time", "gap / P"))
    for number, (name, line) in enumerate(zip(names[:SERIES], lines, strict=False)):
        if line:
            chart.line(line, number, shorten(name, 32), dots=len(line) <= 40)
    more = (
        [element("p", f"The first {SERIES} of {len(runs)} runs are drawn.", class_="lead")]
        if len(runs) > SERIES
        else []
    )
    return chart.render(*more)


def _settings_table(runs: Sequence[RunRecord], names: Sequence[str]) -> Markup:
    keys = list(dict.fromkeys(key for run in runs for key in run.settings if key not in IGNORED_SETTINGS))
    differing = [key for key in keys if len({format_setting(key, run.settings.get(key)) for run in runs}) > 1]
    if not differing:
        return element("p", "Their settings are the same.")
    rows = [(key, *(format_setting(key, run.settings.get(key)) for run in runs)) for key in differing]
    return table(("setting", *(shorten(name, 32) for name in names)), rows, kind="words settings")
