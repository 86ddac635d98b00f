"""What the model looks at, and whether the store is of one piece: coefficients, and drift along its rows."""

from __future__ import annotations

from streamsvm.display.page.drawing.axis import Axis, grouped, linear
from streamsvm.display.page.drawing.chart import ACROSS, SERIES, UPWARDS, Chart, row
from streamsvm.display.page.drawing.document import PagePart, folded, table
from streamsvm.display.page.drawing.markup import Markup, element, shortened
from streamsvm.display.page.findings import Drifting, Shares, TopColumns
from streamsvm.display.page.record import RunRecord

FEW = 12
"""Columns of a class that are shown at once."""


def coefficients(run: RunRecord) -> PagePart | None:
    """Return the part on coefficients; None for kernels, and for runs that recorded none."""
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
    tables = [_table(one, several=several) for one in found]
    body = (
        tables
        if not several
        else [
            tables[0],
            *(folded(f"class {shortened(o.positive)}", t) for o, t in zip(found[1:], tables[1:], strict=True)),
        ]
    )
    return PagePart("coefficients", "Largest coefficients", lead, element("div", *body))


def _table(found: TopColumns, *, several: bool) -> Markup:
    most = max((abs(w * s) for _, w, s in found.rows), default=1.0) or 1.0
    rows = [
        (shortened(name), element("td", _bar(w * s / most), class_="bar"), f"{w:+.4g}".replace("-", "−"), f"{s:.4g}")
        for name, w, s in found.rows[: FEW if several else None]
    ]
    intercept = f"{found.intercept:.4g}".replace("-", "−")
    shown = f"{len(rows)} of {grouped(found.of)} columns, for class {shortened(found.positive)}; intercept {intercept}"
    return table(("column", "effect", "weight", "deviation"), rows, kind="full", caption=shown)


def _bar(share: float) -> Markup:
    """A bar from the middle, to the right for what is positive."""
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


def drift(run: RunRecord) -> PagePart | None:
    """Return the part on how labels and columns change along the store; None where nothing was recorded."""
    if run.facts is None:
        return None
    figures = []
    if run.facts.label_drift is not None and len(run.facts.label_drift.rows) > 1:
        figures.append(_labels(run.facts.label_drift, run))
    if len(run.facts.feature_drift) > 0 and len(run.facts.feature_drift[0].means) > 1:
        figures.append(_features(run.facts.feature_drift))
    if not figures:
        return None
    lead = "Rows in the order of the store. A line that is not level means that the order carries meaning: ingest with --shuffle."
    return PagePart("drift", "Drift along the store", lead, row(*figures))


def _labels(found: Shares, run: RunRecord) -> Markup:
    total = found.rows[-1]
    x, y = _rows_axis(total), linear(0.0, 1.0, UPWARDS, text=lambda v: f"{100 * v:.0f}")
    farthest = max((max(s) - min(s) for s in found.shares.values() if s), default=0.0)
    says = f"Share of each class along {total:.0f} rows; it varies by {100 * farthest:.1f} % at most."
    chart = Chart("Classes", says, x, y, ("rows", "share, %"))
    names = run.in_class_order(list(found.shares)[:SERIES])
    for number, name in enumerate(names):
        starts = [0.0, *found.rows]
        shares = found.shares[name]
        chart.steps([*zip(starts, shares, strict=False), (total, shares[-1])], number, shortened(name, 24))
    return chart.drawn()


def _rows_axis(total: float) -> Axis:
    return linear(0.0, total, ACROSS)


def _features(found: list[Drifting]) -> Markup:
    values = [v for one in found for v in one.means]
    far = max(0.1, 1.1 * max(abs(v) for v in values))
    count = len(found[0].means)
    x, y = linear(1.0, float(count), ACROSS), linear(-far, far, UPWARDS)
    says = (
        f"Means of {len(found)} columns in {count} chunks of the store, in standard deviations from that of all rows."
    )
    chart = Chart("Columns that drift most", says, x, y, (f"chunk, of {count} sampled", "mean, in standard deviations"))
    chart.level(0.0, "")
    for number, one in enumerate(found[:SERIES]):
        points = [(float(k), v) for k, v in enumerate(one.means, 1)]
        chart.line(points, number, shortened(one.column, 24), dots=count <= 20)
    return chart.drawn()
