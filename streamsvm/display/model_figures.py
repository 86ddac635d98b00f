"""Figures of a model: margins, evaluation, reliability of probabilities, coefficients, and drift along the store."""

from __future__ import annotations

import itertools

from streamsvm.config.units import percent
from streamsvm.display.chart import ACROSS, INK, SERIES, UPWARDS, Axis, Chart, group_digits, linear_axis, side_by_side
from streamsvm.display.html import Markup, PagePart, element, fold, join, shorten, table
from streamsvm.display.read_record import (
    Drifting,
    Evaluated,
    EvaluatedNumbers,
    Margins,
    Reliability,
    RunRecord,
    Shares,
    TopColumns,
)

MAX_TABLE_CLASSES = 30
"""Largest confusion table that can be read."""
MAX_DIAGRAMS = 4
"""Largest number of values of C whose calibration is drawn."""
COLUMNS_OF_ONE_OF_SEVERAL = 12
"""Columns listed for each class where there are several."""


def draw_margins(run: RunRecord) -> PagePart | None:
    """Return the section on margins: of the evaluated rows and of a sample of the training rows."""
    evaluated = None if run.evaluation is None else run.evaluation.margins
    trained = None if run.facts is None else run.facts.margins
    titles = ("Margins of the evaluated rows", "Margins of a sample of the training rows")
    known = [(found, title) for found, title in zip((evaluated, trained), titles, strict=True) if found is not None]
    if not known:
        return None
    if run.is_regression:
        return _draw_residuals(known[0][0], run)
    binary = run.plan is None or (run.plan.problems <= len(set(run.plan.C)) and run.plan.together <= 2)
    what = "y f(x)" if binary else "how far the value of the true class is above the largest of the others"
    lead = (
        f"A margin is {what}. Where it is below 0 the answer is wrong; only rows whose loss is not 0 shape the model."
    )
    classes = max(len(found.counts) for found, _ in known)
    if classes > SERIES:
        lead += f" The {SERIES} largest of {classes} classes are drawn."
    names = run.in_class_order(list(known[0][0].counts)[:SERIES])
    return PagePart(
        "margins",
        "Margins",
        lead,
        side_by_side(*(_draw_margin_histogram(found, title, run, names) for found, title in known)),
    )


def _draw_residuals(found: Margins, run: RunRecord) -> PagePart:
    lead = "A residual is f(x) less the target; only rows whose loss is not 0 shape the model."
    low, high = found.range
    says = f"Histogram of the residuals of {found.rows} rows, from {low:.3g} to {high:.3g}."
    names = list(found.counts)
    drawn = _draw_histogram(
        found, ("Residuals of a sample of the training rows", says, "residual", "share of the rows, %"), run, names
    )
    return PagePart("margins", "Residuals", lead, side_by_side(drawn))


def _draw_margin_histogram(found: Margins, title: str, run: RunRecord, names: list[str]) -> Markup:
    """Draw a histogram by class; ``names``: the classes that are drawn, in the order of their colors."""
    bins = max((len(c) for c in found.counts.values()), default=1)
    low, high = found.range
    ends = [low + (high - low) * k / bins for k in range(1, bins + 1)]
    wrong = sum(sum(c for c, e in zip(counts, ends, strict=False) if e <= 0) for counts in found.counts.values())
    says = f"Histogram of the margins of {found.rows} rows by class; about {percent(wrong / max(found.rows, 1))} are below 0."
    return _draw_histogram(found, (title, says, "margin", "share of the class, %"), run, names)


def _draw_histogram(found: Margins, labels: tuple[str, str, str, str], run: RunRecord, names: list[str]) -> Markup:
    """Draw a histogram; ``labels``: the title, the description, and the names of both axes."""
    title, says, across, upwards = labels
    low, high = found.range
    if len(found.counts) > 2:
        found = _merge_bins(found)
    bins = max((len(c) for c in found.counts.values()), default=1)
    edges = [low + (high - low) * k / bins for k in range(bins + 1)]
    heights = {name: [c / max(sum(counts), 1) for c in counts] for name, counts in found.counts.items()}
    top = max((max(h) for h in heights.values() if h), default=1.0)
    x, y = linear_axis(low, high, ACROSS), linear_axis(0.0, top * 1.08, UPWARDS, text=lambda v: f"{100 * v:.3g}")
    chart = Chart(title, says, x, y, (across, upwards))
    for number, name in enumerate(names):
        if name not in heights:
            continue
        shares = heights[name]
        if len(heights) <= 2:
            chart.bars(edges, shares, number, shorten(name, 24))
        else:
            middles = [(a + b) / 2 for a, b in itertools.pairwise(edges)]
            chart.line(zip(middles, shares, strict=False), number, shorten(name, 24))
    chart.upright(0.0)
    if len(found.loss) > 1:
        most = max(found.loss) or 1.0
        points = [(low + (high - low) * k / (len(found.loss) - 1), v / most * top) for k, v in enumerate(found.loss)]
        name = str((run.facts.loss if run.facts is not None else {}).get("name", ""))
        chart.line(points, INK, f"loss {name.replace('_', ' ')}, not to scale", kind="dashed")
    return chart.render()


def _merge_bins(found: Margins) -> Margins:
    """Return the histogram with a third of the bins: several lines can only be told apart where they are smooth."""
    counts = {name: [sum(c[k : k + 3]) for k in range(0, len(c), 3)] for name, c in found.counts.items()}
    return Margins(found.range, counts, found.rows, found.loss)


def draw_evaluation(run: RunRecord) -> PagePart | None:
    """Return the section on the evaluation; None where there was none."""
    if run.number_evaluation is not None:
        return _list_regression_scores(run.number_evaluation)
    e = run.evaluation
    if e is None:
        return None
    when = f", evaluated on {e.at} UTC" if e.at else ""
    lead = f"{group_digits(e.rows)} rows of {', '.join(shorten(d) for d in e.data[:3])}{when}."
    curves = [_draw_curve(e.roc, "ROC", ("false positives, %", "true positives, %"), _auc_text(e), chance=True)]
    curves.append(
        _draw_curve(
            e.precision_recall, "Precision and recall", ("recall, %", "precision, %"), _precision_text(e), chance=False
        )
    )
    parts = [side_by_side(*curves)] if any(curves) else []
    return PagePart("evaluation", "Evaluation", lead, element("div", join(parts), _class_table(e), _confusion_table(e)))


def _list_regression_scores(n: EvaluatedNumbers) -> PagePart:
    when = f", evaluated on {n.at} UTC" if n.at else ""
    lead = f"{group_digits(n.rows)} rows of {', '.join(shorten(d) for d in n.data[:3])}{when}. All but R2 is in the units of the target."
    figures = [
        ("R2, the share of the variance that is explained", "–" if n.R2 is None else f"{n.R2:.5g}"),
        ("mean absolute error", f"{n.MAE:.5g}"),
        ("RMSE, the root of the mean squared error", f"{n.RMSE:.5g}"),
        ("largest error", f"{n.largest_error:.5g}"),
        ("mean of the targets", f"{n.target_mean:.5g}".replace("-", "−")),
        ("standard deviation of the targets", f"{n.target_spread:.5g}"),
    ]
    return PagePart("evaluation", "Evaluation", lead, table(("what", "value"), figures, kind="words"))


def _auc_text(e: Evaluated) -> str:
    return "" if e.AUC is None else f"area {e.AUC:.5f}, within {e.AUC_error or 0:.1g}"


def _precision_text(e: Evaluated) -> str:
    of = "" if e.positive is None else f" of {e.positive}"
    return "" if e.average_precision is None else f"average precision {e.average_precision:.5f}{of}"


def _draw_curve(
    points: list[tuple[float, float]], title: str, labels: tuple[str, str], says: str, *, chance: bool
) -> Markup | None:
    if not points:
        return None
    as_percent = lambda v: f"{100 * v:.0f}"  # noqa: E731
    x, y = linear_axis(0.0, 1.0, ACROSS, text=as_percent), linear_axis(0.0, 1.0, UPWARDS, text=as_percent)
    chart = Chart(title, f"{title}: {says}", x, y, labels)
    if chance:
        chart.line([(0.0, 0.0), (1.0, 1.0)], INK, kind="dashed")
    chart.band([(a, 0.0) for a, _ in points], points, 0)
    chart.line(points, 0, says)
    return chart.render()


def _class_table(e: Evaluated) -> Markup:
    counts = [sum(row_) for row_ in e.confusion]
    rows = [
        (shorten(name), percent(p, 3), percent(r, 3), group_digits(n))
        for name, p, r, n in zip(e.truths, e.precision, e.recall, counts, strict=False)
    ]
    return table(("class", "precision", "recall", "rows"), rows[:MAX_TABLE_CLASSES])


def _confusion_table(e: Evaluated) -> Markup:
    """Return the table of true by predicted classes; the larger its share of the row, the darker a cell."""
    if len(e.classes) > MAX_TABLE_CLASSES or len(e.truths) > MAX_TABLE_CLASSES:
        return element("p", f"{len(e.classes)} classes: their confusion table is in evaluation.json.", class_="lead")
    rows = []
    for name, counts in zip(e.truths, e.confusion, strict=False):
        total = max(sum(counts), 1)
        cells = [element("td", group_digits(n), class_=f"q{min(9, int(10 * n / total))}") for n in counts]
        rows.append([element("th", shorten(name, 20), scope="row"), *cells])
    head = ["true / predicted", *(shorten(name, 12) for name in e.classes)]
    return table(
        head, rows, kind="heat", caption="Confusion: rows by true class (down) and by predicted class (across)"
    )


def draw_reliability(run: RunRecord) -> PagePart | None:
    """Return the section on probabilities: on the evaluated rows, and on the scores they were learned from."""
    figures, counts = [], []
    if run.evaluation is not None and run.evaluation.reliability is not None:
        found = run.evaluation.reliability
        figures.append(_draw_diagram(found.before, found.after, "Reliability on the evaluated rows"))
        counts.append(_reliability_table(found.after, "Rows of the evaluation by predicted probability"))
    for one in run.calibrations[:MAX_DIAGRAMS]:
        title = f"Reliability of {one.scores} scores" + (f", C = {one.C:g}" if len(run.calibrations) > 1 else "")
        figures.append(_draw_diagram(one.before, one.after, title))
        counts.append(
            _reliability_table(one.after, f"Weight of the training rows by predicted probability, C = {one.C:g}")
        )
    if not figures:
        return None
    methods = {one.method for one in run.calibrations}
    lead = "On the diagonal, a predicted probability equals the share of positive rows. Before: decision values read as log odds."
    if methods:
        lead += f" After: {' and '.join(sorted(methods))} calibration, judged in the second drawing by the scores it was made of."
    return PagePart(
        "reliability", "Probabilities", lead, element("div", side_by_side(*figures), fold("Counts", *counts))
    )


def _draw_diagram(before: Reliability, after: Reliability, title: str) -> Markup:
    as_percent = lambda v: f"{100 * v:.0f}"  # noqa: E731
    x, y = linear_axis(0.0, 1.0, ACROSS, text=as_percent), linear_axis(0.0, 1.0, UPWARDS, text=as_percent)
    says = f"{title}: calibration error {_format_or_dash(before.ECE)} before, {_format_or_dash(after.ECE)} after."
    chart = Chart(title, says, x, y, ("said, %", "came true, %"))
    chart.line([(0.0, 0.0), (1.0, 1.0)], INK, kind="dashed")
    for number, (name, found) in enumerate((("after", after), ("before", before))):
        points = list(zip(found.said, found.came_true, strict=False))
        chart.line(
            points,
            number,
            f"{name}: ECE {_format_or_dash(found.ECE)}, log loss {_format_or_dash(found.log_loss)}",
            dots=True,
        )
    return chart.render()


def _reliability_table(found: Reliability, caption: str) -> Markup:
    rows = [
        (f"{100 * said:.1f} %", f"{100 * true:.1f} %", group_digits(round(weight)))
        for said, true, weight in zip(found.said, found.came_true, found.weight, strict=False)
    ]
    return table(("said", "came true", "rows"), rows, caption=caption)


def _format_or_dash(value: float | None) -> str:
    return "–" if value is None else f"{value:.4f}"


def draw_coefficients(run: RunRecord) -> PagePart | None:
    """Return the section on coefficients; None for kernels, and for runs that recorded none."""
    if run.facts is None or not run.facts.coefficients:
        return None
    found = run.facts.coefficients
    lead = (
        "Weights are in the units of the data. A bar shows how much f(x) changes with one standard deviation of the column: "
        + (
            "to the right it raises the number."
            if run.is_regression
            else "to the right it speaks for the class, to the left against it."
        )
    )
    several = len(found) > 1
    tables = [_coefficient_table(one, several=several) for one in found]
    body = (
        tables
        if not several
        else [
            tables[0],
            *(fold(f"class {shorten(o.positive)}", t) for o, t in zip(found[1:], tables[1:], strict=True)),
        ]
    )
    return PagePart("coefficients", "Largest coefficients", lead, element("div", *body))


def _coefficient_table(found: TopColumns, *, several: bool) -> Markup:
    most = max((abs(w * s) for _, w, s in found.rows), default=1.0) or 1.0
    rows = [
        (
            shorten(name),
            element("td", _draw_effect(w * s / most), class_="bar"),
            f"{w:+.4g}".replace("-", "−"),
            f"{s:.4g}",
        )
        for name, w, s in found.rows[: COLUMNS_OF_ONE_OF_SEVERAL if several else None]
    ]
    intercept = f"{found.intercept:.4g}".replace("-", "−")
    shown = (
        f"{len(rows)} of {group_digits(found.of)} columns, for class {shorten(found.positive)}; intercept {intercept}"
    )
    return table(("column", "effect", "weight", "deviation"), rows, kind="full", caption=shown)


def _draw_effect(share: float) -> Markup:
    """Draw a bar from the middle, to the right for a positive share."""
    width = 99 * min(abs(share), 1.0)
    left = 100 if share >= 0 else 100 - width
    says = f"{100 * share:.0f} % of the largest"
    return element(
        "svg",
        element("line", class_="base", x1=100, x2=100, y1=0, y2=14),
        element("rect", class_="f0" if share >= 0 else "f1", x=left, y=2, width=width, height=10),
        viewBox="0 0 200 14",
        preserveAspectRatio="none",
        role="img",
        aria_label=says,
    )


def draw_drift(run: RunRecord) -> PagePart | None:
    """Return the section on how labels and columns change along the store; None where nothing was recorded."""
    if run.facts is None:
        return None
    figures = []
    if run.facts.label_drift is not None and len(run.facts.label_drift.rows) > 1:
        figures.append(_draw_label_drift(run.facts.label_drift, run))
    if len(run.facts.feature_drift) > 0 and len(run.facts.feature_drift[0].means) > 1:
        figures.append(_draw_feature_drift(run.facts.feature_drift))
    if not figures:
        return None
    lead = "Rows in the order of the store. A line that is not flat means that the order of rows carries information: ingest with --shuffle."
    return PagePart("drift", "Drift along the store", lead, side_by_side(*figures))


def _draw_label_drift(found: Shares, run: RunRecord) -> Markup:
    total = found.rows[-1]
    x, y = _rows_axis(total), linear_axis(0.0, 1.0, UPWARDS, text=lambda v: f"{100 * v:.0f}")
    farthest = max((max(s) - min(s) for s in found.shares.values() if s), default=0.0)
    says = f"Share of each class along {total:.0f} rows; it varies by {100 * farthest:.1f} % at most."
    chart = Chart("Classes", says, x, y, ("rows", "share, %"))
    names = run.in_class_order(list(found.shares)[:SERIES])
    for number, name in enumerate(names):
        starts = [0.0, *found.rows]
        shares = found.shares[name]
        chart.steps([*zip(starts, shares, strict=False), (total, shares[-1])], number, shorten(name, 24))
    return chart.render()


def _rows_axis(total: float) -> Axis:
    return linear_axis(0.0, total, ACROSS)


def _draw_feature_drift(found: list[Drifting]) -> Markup:
    values = [v for one in found for v in one.means]
    far = max(0.1, 1.1 * max(abs(v) for v in values))
    count = len(found[0].means)
    x, y = linear_axis(1.0, float(count), ACROSS), linear_axis(-far, far, UPWARDS)
    says = (
        f"Means of {len(found)} columns in {count} chunks of the store, in standard deviations from that of all rows."
    )
    chart = Chart("Columns that drift most", says, x, y, (f"chunk, of {count} sampled", "mean, in standard deviations"))
    chart.level(0.0, "")
    for number, one in enumerate(found[:SERIES]):
        points = [(float(k), v) for k, v in enumerate(one.means, 1)]
        chart.line(points, number, shorten(one.column, 24), dots=count <= 20)
    return chart.render()
