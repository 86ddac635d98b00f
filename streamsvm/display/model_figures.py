"""Sections of a page on the columns: their effects and coefficients, their values, and drift."""

from __future__ import annotations

from itertools import pairwise

from streamsvm.config.units import percent
from streamsvm.display.chart import (
    ACROSS,
    HEIGHT,
    INK,
    REFERENCE,
    SERIES,
    UPWARDS,
    WIDTH,
    Chart,
    format_number,
    group_digits,
    linear_axis,
    share_axis,
    side_by_side,
)
from streamsvm.display.html import Markup, PagePart, element, fold, shorten, table
from streamsvm.display.read_record import (
    ColumnChange,
    ColumnDrift,
    ColumnPair,
    Curve,
    RunRecord,
    Shares,
    TableColumn,
    TopColumns,
)

MAX_COEFFICIENTS_BY_CLASS = 12
"""Maximum number of columns listed for each class if there are several problems."""
MAX_OPEN_COLUMNS = 12
"""Maximum number of columns of the table that are not folded."""
MIN_SHARE = 0.0001
"""Smaller shares of a column are shown as such."""
MIN_KNOTS_TO_CUT = 8
"""Curves with more knots are drawn without the first and the last one."""
SHADES = 8
"""Number of shades of a color in the map of a table."""
MAX_ROW_LABELS, MAX_COLUMN_LABELS = 12, 3
"""Maximum number of labels of the rows and columns of such a map."""
NOTABLE_MISSING = 0.02
"""Smallest difference of the fraction of missing values that is shown."""
COEFFICIENTS_LEAD = (
    "Weights are in the units of the data. A bar shows how much f(x) changes with one standard deviation of the column: to the right it "
    "raises f(x), and speaks for the class that is named, to the left it lowers it."
)


def draw_columns(run: RunRecord) -> PagePart | None:
    """Return the section on the effects of columns; None for kernel models, and if nothing was recorded."""
    if run.facts is None:
        return None
    coefficients = _list_coefficients(run)
    columns_with_effect = [one for one in run.facts.columns if one.share is not None and one.share > 0]
    if not columns_with_effect:
        if coefficients is None:
            return None
        return PagePart("columns", "What matters", COEFFICIENTS_LEAD, coefficients)
    lead = (
        "How much each column of the table moves f(x): the standard deviation of what it adds, as a share of the sum over all columns. "
        "Open one to see its values."
    )
    most = max(one.share or 0.0 for one in columns_with_effect)
    shown = [_draw_column(one, most, run) for one in columns_with_effect]
    parts = shown[:MAX_OPEN_COLUMNS]
    if len(shown) > MAX_OPEN_COLUMNS:
        more = len(shown) - MAX_OPEN_COLUMNS
        parts.append(fold(f"{more} more column{'' if more == 1 else 's'}", *shown[MAX_OPEN_COLUMNS:]))
    if coefficients is not None:
        parts.append(fold("Largest coefficients", element("p", COEFFICIENTS_LEAD, class_="lead"), coefficients))
    return PagePart("columns", "What matters", lead, element("div", *parts))


def draw_pairs(run: RunRecord) -> PagePart | None:
    """Return the section on the pairs of columns; None if there are none."""
    pairs = [] if run.facts is None else run.facts.pairs
    if not pairs:
        return None
    lead = (
        "What two columns together add to f(x), beyond what each of them adds on its own: the mean of a table over either of its columns is 0. "
        "A bar is the standard deviation of what the table adds, as a share of the sum over all columns and pairs. Open one to see its table."
    )
    most = max(one.share for one in pairs)
    shown = []
    for one in pairs:
        name = " × ".join(shorten(name, 24) for name in one.names)
        maps = [_draw_table(one, k, run) for k in range(len(one.effects))]
        shown.append(_fold_with_bar(name, one.share, most, side_by_side(*maps)))
    parts = shown[:MAX_OPEN_COLUMNS]
    if len(shown) > MAX_OPEN_COLUMNS:
        parts.append(fold(f"{len(shown) - MAX_OPEN_COLUMNS} more", *shown[MAX_OPEN_COLUMNS:]))
    return PagePart("pairs", "Pairs of columns", lead, element("div", *parts))


def _draw_table(pair: ColumnPair, k: int, run: RunRecord) -> Markup:
    """Draw the table of a pair for a problem as a map of colored cells. Cells without training rows are left empty."""
    effect, (of_rows, of_columns) = pair.effects[k], pair.cells
    left, top, right, bottom = 116.0, 24.0, 426.0, 228.0
    width, height = (right - left) / len(of_columns), (bottom - top) / len(of_rows)
    largest = max((abs(x) for line in effect for x in line), default=0.0) or 1.0
    positive, negative = _effect_colors(run, pair.outcomes[k])
    places: dict[tuple[int, int], list[str]] = {}
    for i, line in enumerate(effect):
        for j, x in enumerate(line):
            shade = min(SHADES, round(SHADES * abs(x) / largest))
            if shade and pair.rows[i][j] > 0.0:
                box = f"M{left + j * width:.1f},{bottom - (i + 1) * height:.1f}h{width:.2f}v{height:.2f}h-{width:.2f}z"
                places.setdefault((positive if x > 0.0 else negative, shade), []).append(box)
    cells = [
        element("path", class_=f"f{color}", d="".join(boxes), fill_opacity=shade / SHADES, stroke="none")
        for (color, shade), boxes in sorted(places.items())
    ]
    frame = element("path", class_="grid", fill="none", d=f"M{left},{top}H{right}V{bottom}H{left}z")
    labels = [element("text", shorten(pair.names[0], 24), class_="axis", x=4, y=15)]
    for i in _choose_labels(len(of_rows), MAX_ROW_LABELS):
        y = bottom - (i + 0.5) * height + 4
        labels.append(element("text", shorten(of_rows[i], 17), class_="tick y", x=left - 6, y=y))
    for j in _choose_labels(len(of_columns), MAX_COLUMN_LABELS):
        x = left + (j + 0.5) * width
        labels.append(element("text", shorten(of_columns[j], 17), class_="tick x", x=x, y=bottom + 15))
    labels.append(element("text", shorten(pair.names[1], 40), class_="axis x", x=(left + right) / 2, y=HEIGHT - 5))
    ends = f"from {format_number(-largest)} to {format_number(largest)}"
    says = f"joint effect of {' and '.join(pair.names)} on the decision value, {ends}"
    drawing = element("svg", *cells, frame, *labels, viewBox=f"0 0 {WIDTH} {HEIGHT}", role="img", aria_label=says)
    keys = [
        element("li", element("i", class_=f"key bars b{color}"), f"{sign} {format_number(largest)}")
        for color, sign in ((positive, "raises f by up to"), (negative, "lowers it by up to"))
    ]
    title = shorten(pair.outcomes[k], 40) if len(pair.effects) > 1 else " × ".join(shorten(n, 24) for n in pair.names)
    return element("figure", element("figcaption", title), element("ul", *keys, class_="legend"), drawing)


def _choose_labels(count: int, most: int) -> list[int]:
    """Return at most ``most`` of the numbers below ``count``, evenly spaced."""
    shown = min(count, most)
    return sorted({round(k * (count - 1) / max(1, shown - 1)) for k in range(shown)})


def _draw_column(one: TableColumn, most: float, run: RunRecord) -> Markup:
    """Return a column of the table with a bar for its share; when it is opened, it shows its values."""
    curves = [_draw_curve(one, v.curve, run) for v in one.values if v.curve is not None and len(v.curve.x) > 1]
    only_curves = len(curves) == len(one.values)
    values = [] if only_curves else [_list_values(one, run)]
    return _fold_with_bar(shorten(one.name, 40), one.share or 0.0, most, *curves, *values)


def _fold_with_bar(name: str, share: float, most: float, *content: Markup) -> Markup:
    """Return a line with a bar for a share, relative to the largest one, that shows ``content`` when it is opened."""
    bar = element(
        "svg",
        element("rect", class_=f"f{INK}", x=0, y=3, width=max(0.5, 100 * share / most), height=8),
        viewBox="0 0 100 14",
        preserveAspectRatio="none",
        aria_hidden="true",
    )
    shown = percent(share, 3) if share >= MIN_SHARE or not share else f"< {percent(MIN_SHARE, 3)}"
    line = [element("span", name), bar, element("span", shown)]
    return element("details", element("summary", *line), *content, class_="col")


def _draw_curve(one: TableColumn, curve: Curve, run: RunRecord) -> Markup:
    """Draw the curves of a column, with a histogram of the training rows. The first and the last knot, which may lie far out,
    are left out if there are many.
    """
    inner = slice(1, -1) if len(curve.x) > MIN_KNOTS_TO_CUT else slice(None)
    x, rows = curve.x[inner], curve.rows[inner]
    shown = [effect[inner] for effect in curve.effects[:SERIES]]
    jumps = [
        [point for point in zip(curve.jumps, effects, strict=False) if x[0] <= point[0] <= x[-1]]
        for effects in curve.jump_effects
    ]
    heights = [*shown, *([y for _, y in points] for points in jumps[:SERIES] if points)]
    low, high = min(map(min, heights)), max(map(max, heights))
    high = high if high > low else low + 1.0
    across, upwards = linear_axis(x[0], x[-1], ACROSS), linear_axis(low - 0.25 * (high - low), high, UPWARDS)
    says = f"effect of {one.name} on the decision value, from {format_number(low)} to {format_number(high)}"
    chart = Chart(shorten(one.name, 40), says, across, upwards, (shorten(one.name, 40), "effect on f"))
    edges = [x[0], *((a + b) / 2 for a, b in pairwise(x)), x[-1]]
    densities = [share / (b - a) if b > a else 0.0 for share, (a, b) in zip(rows, pairwise(edges), strict=True)]
    most = max(densities) or 1.0
    chart.bars(
        edges,
        [upwards.low + 0.2 * (upwards.high - upwards.low) * d / most for d in densities],
        REFERENCE,
        "training rows",
    )
    classes = run.classes_to_draw()
    for k, effect in enumerate(shown):
        outcome = curve.outcomes[k]
        series = classes.index(outcome) if outcome in classes else k
        chart.line(zip(x, effect, strict=True), series % SERIES, shorten(outcome, 24))
        if k < len(jumps) and jumps[k]:
            chart.scatter(jumps[k], series % SERIES, "values with an effect of their own" if k == 0 else "", solid=True)
    return chart.render()


def _list_values(one: TableColumn, run: RunRecord) -> Markup:
    """Return the table of values of a column with their effects on f; with several problems, the classes with the largest effects."""
    problems = [] if run.facts is None else [top.positive for top in run.facts.coefficients]
    one_problem = all(len(v.pulls) <= 1 for v in one.values)
    most = max((abs(v.pulls[0]) for v in one.values if v.pulls), default=1.0) or 1.0
    colors = _effect_colors(run, problems[0] if problems else "")
    rows = []
    for v in one.values:
        if v.curve is not None:
            continue
        name = shorten(v.name, 32) if v.name else "one standard deviation more"
        rows_with = percent(v.mean, 3) if v.is_share else f"mean {format_number(v.mean)} ± {format_number(v.deviation)}"
        if one_problem:
            pull = v.pulls[0] if v.pulls else 0.0
            moved: Markup | str = element("td", _draw_effect(pull / most, colors), class_="bar")
            rows.append((name, rows_with, format_number(pull, "+.3g"), moved))
        else:
            rows.append((name, rows_with, *_extremes(v.pulls, problems)))
    more = "" if len(rows) == one.of or one.of <= 2 else f", the {len(rows)} of {group_digits(one.of)} that move f most"
    head = ("value", "rows", "moves f by", "") if one_problem else ("value", "rows", "speaks for", "speaks against")
    return table(head, rows, kind="spread words", caption=f"{one.kind}{more}")


def _extremes(pulls: list[float], problems: list[str]) -> tuple[str, str]:
    """Return the problems with the largest and the smallest effect of a value, with these effects."""
    pairs = list(zip(pulls, problems, strict=False))
    if not pairs:
        return "–", "–"
    (high, most), (low, least) = max(pairs), min(pairs)
    return (
        f"{shorten(most, 24)} {format_number(high, '+.3g')}",
        f"{shorten(least, 24)} {format_number(low, '+.3g')}",
    )


def _list_coefficients(run: RunRecord) -> Markup | None:
    """Return the tables of coefficients, all but the first folded; None if none were recorded."""
    coefficients = [] if run.facts is None else run.facts.coefficients
    if not coefficients:
        return None
    several = len(coefficients) > 1
    tables = [_coefficient_table(one, _effect_colors(run, one.positive), several=several) for one in coefficients]
    folded = [fold(f"class {shorten(o.positive)}", t) for o, t in zip(coefficients[1:], tables[1:], strict=True)]
    return element("div", tables[0], *folded)


def _effect_colors(run: RunRecord, positive: str) -> tuple[int, int]:
    """Return the series for positive and for negative effects: the colors of the classes that they favor, if these have one."""
    classes = run.classes_to_draw()
    if positive not in classes:
        return INK, REFERENCE
    right = classes.index(positive)
    return right, 1 - right if len(classes) == 2 else REFERENCE


def _coefficient_table(top: TopColumns, colors: tuple[int, int], *, several: bool) -> Markup:
    most = max((abs(w * s) for _, w, s in top.rows), default=1.0) or 1.0
    bounds = [[f"{format_number(low, '+.4g')} to {format_number(high, '+.4g')}"] for low, high in top.intervals]
    listed = top.rows[: MAX_COEFFICIENTS_BY_CLASS if several else None]
    rows = [
        (
            shorten(name),
            element("td", _draw_effect(w * s / most, colors), class_="bar"),
            format_number(w, "+.4g"),
            *bound,
            f"{s:.4g}",
        )
        for (name, w, s), bound in zip(listed, bounds or [[]] * len(listed), strict=False)
    ]
    shown = f"{len(rows)} of {group_digits(top.of)} columns, for class {shorten(top.positive)}"
    shown += f"; intercept {format_number(top.intercept)}"
    proved = ("at the optimum",) if top.intervals else ()
    return table(("column", "effect", "weight", *proved, "deviation"), rows, kind="full", caption=shown)


def _draw_effect(share: float, colors: tuple[int, int]) -> Markup:
    """Draw a bar from the middle, to the right for a positive effect, relative to the largest one."""
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


def draw_data(run: RunRecord) -> PagePart | None:
    """Return the section on the data: values, missing values and drift of columns; None if nothing was recorded."""
    drift = _draw_store_drift(run)
    parts = [*_list_changes(run), *_list_columns(run), *([] if drift is None else [drift])]
    if not parts:
        return None
    return PagePart("data", "The data", _data_lead(run), element("div", *parts))


def _data_lead(run: RunRecord) -> str:
    if run.facts is None or not run.facts.store.classes:
        return ""
    total = max(sum(n for _, n in run.facts.store.classes), 1)
    shares = ", ".join(f"‘{shorten(name, 20)}’ {percent(n / total, 3)}" for name, n in run.facts.store.classes[:8])
    more = f" and {len(run.facts.store.classes) - 8} more" if len(run.facts.store.classes) > 8 else ""
    return f"Classes of the {group_digits(total)} training rows: {shares}{more}."


def _list_changes(run: RunRecord) -> list[Markup]:
    """Return the table of columns that differ between evaluated rows and training rows."""
    if not run.changes:
        return []
    notable = [one for one in run.changes if one.is_notable]
    if not notable:
        text = "The evaluated rows are like the training rows: no column differs by more than chance explains."
        return [element("p", text)]
    rows = [(shorten(one.name), *_change_texts(one)) for one in notable[:MAX_OPEN_COLUMNS]]
    text = (
        f"The evaluated rows differ from the training rows in {len(notable)} of {len(run.changes)} columns: numbers by the change of their "
        "mean in standard deviations (sd), categories by the share of rows that have another value."
    )
    head = ("column", "difference", "training", "evaluated")
    return [element("p", text), table(head, rows, kind="words")]


def _change_texts(one: ColumnChange) -> tuple[str, str, str]:
    if not one.value:
        texts = (
            f"{one.difference:.2f} sd",
            f"mean {format_number(one.trained)}",
            f"mean {format_number(one.evaluated)}",
        )
    else:
        value = shorten(one.value, 20)
        texts = (
            percent(one.difference, 3),
            f"{value} {percent(one.trained, 3)}",
            f"{value} {percent(one.evaluated, 3)}",
        )
    if one.missing is None or abs(one.missing[1] - one.missing[0]) < NOTABLE_MISSING:
        return texts
    trained, evaluated = (f"{text}, missing {percent(m, 3)}" for text, m in zip(texts[1:], one.missing, strict=True))
    return texts[0], trained, evaluated


def _list_columns(run: RunRecord) -> list[Markup]:
    """Return the folded table of the kinds and typical values of columns, those with missing values first."""
    columns = [] if run.facts is None else [one for one in run.facts.columns if one.values]
    if not columns:
        return []
    lacking = [one for one in columns if one.missing]
    summary = f"{len(columns)} columns" + (f", {len(lacking)} of them with missing values" if lacking else "")
    ordered = sorted(columns, key=lambda one: -(one.missing or 0.0))
    rows = [
        (
            shorten(one.name),
            one.kind,
            "–" if one.missing is None else percent(one.missing, 3),
            _typical(one),
        )
        for one in ordered
    ]
    content = table(("column", "kind", "missing", "typical"), rows, kind="words")
    return [fold(f"What the columns hold: {summary}", content)]


def _typical(one: TableColumn) -> str:
    """Return the mean of a numeric column, or the most frequent recorded value of a category."""
    number = next((v for v in one.values if not v.is_share), None)
    if number is not None and not number.name:
        return f"{format_number(number.mean)} ± {format_number(number.deviation)}"
    shares = [v for v in one.values if v.is_share]
    if not shares:
        return f"{group_digits(one.of)} columns of rows"
    most = max(shares, key=lambda v: v.mean)
    return f"{shorten(most.name, 24)} {percent(most.mean, 3)}, {group_digits(one.of)} values"


def _draw_store_drift(run: RunRecord) -> Markup | None:
    """Return the folded charts of the drift of labels and columns along the store; None if nothing was recorded."""
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
    return fold("Change along the store", element("p", lead, class_="lead"), side_by_side(*figures))


def _draw_label_drift(drift: Shares, run: RunRecord) -> Markup:
    total = drift.rows[-1]
    x, y = linear_axis(0.0, total, ACROSS), share_axis(UPWARDS)
    farthest = max((max(s) - min(s) for s in drift.shares.values() if s), default=0.0)
    says = f"Share of each class along {total:.0f} rows; it varies by {100 * farthest:.1f} % at most."
    chart = Chart("Classes", says, x, y, ("rows", "share, %"))
    for number, name in enumerate(run.classes_to_draw()):
        if name not in drift.shares:
            continue
        starts = [0.0, *drift.rows]
        shares = drift.shares[name]
        chart.steps([*zip(starts, shares, strict=False), (total, shares[-1])], number, shorten(name, 24))
    return chart.render()


def _draw_feature_drift(drifts: list[ColumnDrift]) -> Markup:
    """Return a table with the means of each column by chunk, drawn as bars of a common scale."""
    far = max(0.1, *(abs(v) for one in drifts for v in one.means))
    rows = [
        (
            shorten(one.column),
            element("td", _draw_means(one.means, far), class_="bar"),
            f"{format_number(min(one.means), '+.2f')} to {format_number(max(one.means), '+.2f')}",
        )
        for one in drifts
    ]
    caption = (
        f"Columns that drift most: means in {len(drifts[0].means)} chunks, in standard deviations from that of all rows"
    )
    return table(("column", "chunk by chunk", "from, to"), rows, kind="full", caption=caption)


def _draw_means(means: list[float], far: float) -> Markup:
    """Draw values between -far and far as bars on a line."""
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
