"""How far probabilities are to be trusted: what they said against what came true, before and after calibration."""

from __future__ import annotations

from streamsvm.display.page.drawing.axis import grouped, linear
from streamsvm.display.page.drawing.chart import ACROSS, UPWARDS, Chart, row
from streamsvm.display.page.drawing.document import PagePart, folded, table
from streamsvm.display.page.drawing.markup import Markup, element
from streamsvm.display.page.findings import Said
from streamsvm.display.page.record import RunRecord
from streamsvm.display.page.sections.resources import INK

MOST = 4
"""Values of C whose calibration is drawn."""


def reliability(run: RunRecord) -> PagePart | None:
    """Return the part on probabilities: on the rows of an evaluation, and on the scores they were learned from."""
    figures, counts = [], []
    if run.evaluation is not None and run.evaluation.reliability is not None:
        found = run.evaluation.reliability
        figures.append(_diagram(found.before, found.after, "Reliability on the evaluated rows"))
        counts.append(_counts(found.after, "Rows of the evaluation by what they were given"))
    for one in run.calibrations[:MOST]:
        title = f"Reliability of {one.scores} scores" + (f", C = {one.C:g}" if len(run.calibrations) > 1 else "")
        figures.append(_diagram(one.before, one.after, title))
        counts.append(_counts(one.after, f"Weight of the training rows by what they were given, C = {one.C:g}"))
    if not figures:
        return None
    methods = {one.method for one in run.calibrations}
    lead = "On the diagonal, of the rows that are given a probability as many come true. Before: decision values taken for log odds."
    if methods:
        lead += f" After: {' and '.join(sorted(methods))} calibration, judged in the second drawing by the scores it was made of."
    return PagePart("reliability", "Probabilities", lead, element("div", row(*figures), folded("Counts", *counts)))


def _diagram(before: Said, after: Said, title: str) -> Markup:
    as_percent = lambda v: f"{100 * v:.0f}"  # noqa: E731
    x, y = linear(0.0, 1.0, ACROSS, text=as_percent), linear(0.0, 1.0, UPWARDS, text=as_percent)
    says = f"{title}: calibration error {_figure(before.ECE)} before, {_figure(after.ECE)} after."
    chart = Chart(title, says, x, y, ("said, %", "came true, %"))
    chart.line([(0.0, 0.0), (1.0, 1.0)], INK, kind="dashed")
    for number, (name, found) in enumerate((("after", after), ("before", before))):
        points = list(zip(found.said, found.came_true, strict=False))
        chart.line(points, number, f"{name}: ECE {_figure(found.ECE)}, log loss {_figure(found.log_loss)}", dots=True)
    return chart.drawn()


def _counts(found: Said, caption: str) -> Markup:
    rows = [
        (f"{100 * said:.1f} %", f"{100 * true:.1f} %", grouped(round(weight)))
        for said, true, weight in zip(found.said, found.came_true, found.weight, strict=False)
    ]
    return table(("said", "came true", "rows"), rows, caption=caption)


def _figure(value: float | None) -> str:
    return "–" if value is None else f"{value:.4f}"
