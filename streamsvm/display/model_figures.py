"""What a model consists of and the data it was trained on: coefficients, and drift along the store."""

from __future__ import annotations

from streamsvm.display.chart import (
    ACROSS,
    INK,
    REFERENCE,
    UPWARDS,
    Axis,
    Chart,
    group_digits,
    linear_axis,
    side_by_side,
)
from streamsvm.display.html import Markup, PagePart, element, fold, shorten, table
from streamsvm.display.read_record import (
    ColumnDrift,
    RunRecord,
    Shares,
    TopColumns,
)

COLUMNS_OF_ONE_OF_SEVERAL = 12
"""Columns listed for each class where there are several."""


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
    tables = [_coefficient_table(one, _effect_colors(run, one.positive), several=several) for one in found]
    body = (
        tables
        if not several
        else [
            tables[0],
            *(fold(f"class {shorten(o.positive)}", t) for o, t in zip(found[1:], tables[1:], strict=True)),
        ]
    )
    return PagePart("coefficients", "Largest coefficients", lead, element("div", *body))


def _effect_colors(run: RunRecord, positive: str) -> tuple[int, int]:
    """Return the series of bars to the right and to the left: those of the class they speak for, where it has a color."""
    classes = run.drawn_classes()
    if positive not in classes:
        return INK, REFERENCE
    right = classes.index(positive)
    return right, 1 - right if len(classes) == 2 else REFERENCE


def _coefficient_table(found: TopColumns, colors: tuple[int, int], *, several: bool) -> Markup:
    most = max((abs(w * s) for _, w, s in found.rows), default=1.0) or 1.0
    rows = [
        (
            shorten(name),
            element("td", _draw_effect(w * s / most, colors), class_="bar"),
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


def _draw_effect(share: float, colors: tuple[int, int]) -> Markup:
    """Draw a bar from the middle, to the right for a positive share."""
    width = 99 * min(abs(share), 1.0)
    left = 100 if share >= 0 else 100 - width
    says = f"{100 * share:.0f} % of the largest"
    return element(
        "svg",
        element("line", class_="base", x1=100, x2=100, y1=0, y2=14),
        element("rect", class_=f"f{colors[share < 0]}", x=left, y=2, width=width, height=10),
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
    for number, name in enumerate(run.drawn_classes()):
        if name not in found.shares:
            continue
        starts = [0.0, *found.rows]
        shares = found.shares[name]
        chart.steps([*zip(starts, shares, strict=False), (total, shares[-1])], number, shorten(name, 24))
    return chart.render()


def _rows_axis(total: float) -> Axis:
    return linear_axis(0.0, total, ACROSS)


def _draw_feature_drift(found: list[ColumnDrift]) -> Markup:
    """Draw the means of each column in the chunks as bars of one scale, column by column."""
    far = max(0.1, *(abs(v) for one in found for v in one.means))
    rows = [
        (
            shorten(one.column),
            element("td", _draw_means(one.means, far), class_="bar"),
            f"{min(one.means):+.2f} to {max(one.means):+.2f}".replace("-", "−"),
        )
        for one in found
    ]
    caption = (
        f"Columns that drift most: means in {len(found[0].means)} chunks, in standard deviations from that of all rows"
    )
    return table(("column", "chunk by chunk", "from, to"), rows, kind="full", caption=caption)


def _draw_means(means: list[float], far: float) -> Markup:
    """Draw values from -far to far as bars on a line."""
    wide = 200 / len(means)
    bars = [
        element(
            "rect",
            class_=f"f{INK}",
            x=k * wide + 0.1 * wide,
            y=10 - 10 * max(v, 0.0) / far,
            width=0.8 * wide,
            height=max(0.4, 10 * abs(v) / far),
        )
        for k, v in enumerate(means)
    ]
    says = "means " + ", ".join(f"{v:+.2f}" for v in means[:20])
    axis = element("line", class_="base", x1=0, x2=200, y1=10, y2=10)
    return element("svg", *bars, axis, viewBox="0 0 200 20", preserveAspectRatio="none", role="img", aria_label=says)
