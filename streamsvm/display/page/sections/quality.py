"""How good the model is: margins by class, what every threshold would do, and which class is taken for which."""

from __future__ import annotations

import itertools

from streamsvm.config.units import percent
from streamsvm.display.page.drawing.axis import grouped, linear
from streamsvm.display.page.drawing.chart import ACROSS, SERIES, UPWARDS, Chart, row
from streamsvm.display.page.drawing.document import PagePart, table
from streamsvm.display.page.drawing.markup import Markup, element, joined, shortened
from streamsvm.display.page.findings import Evaluated, EvaluatedNumbers, Margins
from streamsvm.display.page.record import RunRecord
from streamsvm.display.page.sections.resources import INK

WIDEST_TABLE = 30
"""Classes of a confusion table that can be read."""


def margins(run: RunRecord) -> PagePart | None:
    """Return the part on margins: of the rows it was evaluated on, else of a sample of those it was trained on."""
    evaluated = None if run.evaluation is None else run.evaluation.margins
    trained = None if run.facts is None else run.facts.margins
    titles = ("Margins of the evaluated rows", "Margins of a sample of the training rows")
    known = [(found, title) for found, title in zip((evaluated, trained), titles, strict=True) if found is not None]
    if not known:
        return None
    if run.is_regression:
        return _residuals(known[0][0], run)
    binary = run.plan is None or (run.plan.problems <= len(set(run.plan.C)) and run.plan.together <= 2)
    what = "y f(x)" if binary else "how far the value of the true class is above the largest of the others"
    lead = (
        f"A margin is {what}. Where it is below 0 the answer is wrong; only rows whose loss is not 0 shape the model."
    )
    classes = max(len(found.counts) for found, _ in known)
    if classes > SERIES:
        lead += f" The {SERIES} largest of {classes} classes are drawn."
    names = run.in_class_order(list(known[0][0].counts)[:SERIES])
    return PagePart("margins", "Margins", lead, row(*(_margins(found, title, run, names) for found, title in known)))


def _residuals(found: Margins, run: RunRecord) -> PagePart:
    lead = "A residual is f(x) less the target; only rows whose loss is not 0 shape the model."
    low, high = found.range
    says = f"Histogram of the residuals of {found.rows} rows, from {low:.3g} to {high:.3g}."
    names = list(found.counts)
    drawn = _histogram(
        found, ("Residuals of a sample of the training rows", says, "residual", "share of the rows, %"), run, names
    )
    return PagePart("margins", "Residuals", lead, row(drawn))


def _margins(found: Margins, title: str, run: RunRecord, names: list[str]) -> Markup:
    """A histogram by class; ``names``: the classes that are drawn, in the order of their colors."""
    bins = max((len(c) for c in found.counts.values()), default=1)
    low, high = found.range
    ends = [low + (high - low) * k / bins for k in range(1, bins + 1)]
    wrong = sum(sum(c for c, e in zip(counts, ends, strict=False) if e <= 0) for counts in found.counts.values())
    says = f"Histogram of the margins of {found.rows} rows by class; about {percent(wrong / max(found.rows, 1))} are below 0."
    return _histogram(found, (title, says, "margin", "share of the class, %"), run, names)


def _histogram(found: Margins, labels: tuple[str, str, str, str], run: RunRecord, names: list[str]) -> Markup:
    """``labels``: the title, what the figure says, and the names of both axes."""
    title, says, across, upwards = labels
    low, high = found.range
    if len(found.counts) > 2:
        found = _coarser(found)
    bins = max((len(c) for c in found.counts.values()), default=1)
    edges = [low + (high - low) * k / bins for k in range(bins + 1)]
    heights = {name: [c / max(sum(counts), 1) for c in counts] for name, counts in found.counts.items()}
    top = max((max(h) for h in heights.values() if h), default=1.0)
    x, y = linear(low, high, ACROSS), linear(0.0, top * 1.08, UPWARDS, text=lambda v: f"{100 * v:.3g}")
    chart = Chart(title, says, x, y, (across, upwards))
    for number, name in enumerate(names):
        if name not in heights:
            continue
        shares = heights[name]
        if len(heights) <= 2:
            chart.bars(edges, shares, number, shortened(name, 24))
        else:
            middles = [(a + b) / 2 for a, b in itertools.pairwise(edges)]
            chart.line(zip(middles, shares, strict=False), number, shortened(name, 24))
    chart.upright(0.0)
    if len(found.loss) > 1:
        most = max(found.loss) or 1.0
        points = [(low + (high - low) * k / (len(found.loss) - 1), v / most * top) for k, v in enumerate(found.loss)]
        name = str((run.facts.loss if run.facts is not None else {}).get("name", ""))
        chart.line(points, INK, f"loss {name.replace('_', ' ')}, not to scale", kind="dashed")
    return chart.drawn()


def _coarser(found: Margins) -> Margins:
    """The same with a third of the bins: several lines are only told apart where they are smooth."""
    counts = {name: [sum(c[k : k + 3]) for k in range(0, len(c), 3)] for name, c in found.counts.items()}
    return Margins(found.range, counts, found.rows, found.loss)


def evaluation(run: RunRecord) -> PagePart | None:
    """Return the part on rows with labels the model was compared with; None where there are none."""
    if run.number_evaluation is not None:
        return _number_evaluation(run.number_evaluation)
    e = run.evaluation
    if e is None:
        return None
    when = f", evaluated on {e.at} UTC" if e.at else ""
    lead = f"{grouped(e.rows)} rows of {', '.join(shortened(d) for d in e.data[:3])}{when}."
    curves = [_curve(e.roc, "ROC", ("false positives, %", "true positives, %"), _auc(e), chance=True)]
    curves.append(
        _curve(e.precision_recall, "Precision and recall", ("recall, %", "precision, %"), _precision(e), chance=False)
    )
    parts = [row(*curves)] if any(curves) else []
    return PagePart("evaluation", "Evaluation", lead, element("div", joined(parts), _classes(e), _confusion(e)))


def _number_evaluation(n: EvaluatedNumbers) -> PagePart:
    when = f", evaluated on {n.at} UTC" if n.at else ""
    lead = f"{grouped(n.rows)} rows of {', '.join(shortened(d) for d in n.data[:3])}{when}. All but R2 is in the units of the target."
    figures = [
        ("R2, the share of the variance that is explained", "–" if n.R2 is None else f"{n.R2:.5g}"),
        ("mean absolute error", f"{n.MAE:.5g}"),
        ("RMSE, the root of the mean squared error", f"{n.RMSE:.5g}"),
        ("largest error", f"{n.largest_error:.5g}"),
        ("mean of the targets", f"{n.target_mean:.5g}".replace("-", "−")),
        ("standard deviation of the targets", f"{n.target_spread:.5g}"),
    ]
    return PagePart("evaluation", "Evaluation", lead, table(("what", "value"), figures, kind="words"))


def _auc(e: Evaluated) -> str:
    return "" if e.AUC is None else f"area {e.AUC:.5f}, within {e.AUC_error or 0:.1g}"


def _precision(e: Evaluated) -> str:
    return "" if e.average_precision is None else f"average precision {e.average_precision:.5f}"


def _curve(
    points: list[tuple[float, float]], title: str, labels: tuple[str, str], says: str, *, chance: bool
) -> Markup | None:
    if not points:
        return None
    as_percent = lambda v: f"{100 * v:.0f}"  # noqa: E731
    x, y = linear(0.0, 1.0, ACROSS, text=as_percent), linear(0.0, 1.0, UPWARDS, text=as_percent)
    chart = Chart(title, f"{title}: {says}", x, y, labels)
    if chance:
        chart.line([(0.0, 0.0), (1.0, 1.0)], INK, kind="dashed")
    chart.band([(a, 0.0) for a, _ in points], points, 0)
    chart.line(points, 0, says)
    return chart.drawn()


def _classes(e: Evaluated) -> Markup:
    counts = [sum(row_) for row_ in e.confusion]
    rows = [
        (shortened(name), percent(p, 3), percent(r, 3), grouped(n))
        for name, p, r, n in zip(e.truths, e.precision, e.recall, counts, strict=False)
    ]
    return table(("class", "precision", "recall", "rows"), rows[:WIDEST_TABLE])


def _confusion(e: Evaluated) -> Markup:
    """The table of truths by answers; a cell is the darker the larger its share of the row."""
    if len(e.classes) > WIDEST_TABLE or len(e.truths) > WIDEST_TABLE:
        return element("p", f"{len(e.classes)} classes: their confusion table is in evaluation.json.", class_="lead")
    rows = []
    for name, counts in zip(e.truths, e.confusion, strict=False):
        total = max(sum(counts), 1)
        cells = [element("td", grouped(n), class_=f"q{min(9, int(10 * n / total))}") for n in counts]
        rows.append([element("th", shortened(name, 20), scope="row"), *cells])
    head = ["true / predicted", *(shortened(name, 12) for name in e.classes)]
    return table(
        head, rows, kind="heat", caption="Confusion: rows by true class (down) and by predicted class (across)"
    )
