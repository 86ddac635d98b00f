"""The page of a search: the score over C or nu, tables of scores, and the best points."""

from __future__ import annotations

import math

from streamsvm.config.units import percent, seconds_text
from streamsvm.display.chart import (
    ACROSS,
    INK,
    SERIES,
    UPWARDS,
    Chart,
    group_digits,
    keep_finite,
    linear_axis,
    log_axis,
)
from streamsvm.display.html import Markup, PagePart, build_tiles, element, join, table
from streamsvm.display.quality_page import Baseline, find_most_frequent
from streamsvm.display.read_record import GridPoint, Search

MAX_POINTS = 20
"""Maximum number of points in the list."""


def summarize_search(search: Search) -> Markup:
    """Return the sentence and the tiles of a search."""
    best, kernel, whole = search.best, _kernel_text(search.best), search.whole
    spread = [s for s in whole if search.rank(s.value) <= search.rank(best.value) + best.standard_error]
    baseline = _find_baseline(search)
    base = "" if baseline is None else baseline.error_text
    said = [
        element("strong", f"Best: {search.axis} = {best.loss_weight:g}{kernel}. "),
        f"Its cross-validated {search.measure} is ",
        element("strong", search.text(best.value, 4)),
        f" ± {search.text(best.standard_error, 2)}{f' ({base})' if base else ''}; ",
        f"{len(spread)} of {len(whole)} points of the grid are within that.",
    ]
    is_useful = baseline is None or best.value < baseline.error
    said += [f" {search.proof[0].upper()}{search.proof[1:]}."] if search.proof else []
    notes = [] if is_useful else [element("strong", " That is no better than the baseline.")]
    worst = max(keep_finite(s.gap for s in search.scores), default=0.0)
    figures = [
        (search.measure, search.text(best.value, 4), base or f"± {search.text(best.standard_error, 2)}"),
        ("points", str(len(search.scores)), f"{search.settings.get('folds', '?')} folds each"),
        ("widest gap", percent(worst), f"of {percent(float(search.settings.get('tolerance', 0)))} asked for"),
    ]
    if search.seconds is not None:
        figures.append(
            ("time", seconds_text(search.seconds), f"{group_digits(search.rows)} rows" if search.rows else "")
        )
    verdict = element("p", *said, *notes, class_="verdict" if is_useful else "verdict mild")
    return join([verdict, build_tiles(figures), *(element("p", text, class_="warn mild") for text in search.notices)])


def _find_baseline(search: Search) -> Baseline | None:
    """Return the most frequent class of the store as baseline.

    None if the measure is not the error, if a single class is trained against the rest, or if the classes are unknown.
    """
    if search.measure != "error" or search.settings.get("positive"):
        return None
    return find_most_frequent(search.classes)


def list_points(search: Search) -> PagePart:
    """Return the section with the best points, and the scores of the best point on each fold."""
    ordered = sorted(search.whole, key=lambda s: (search.rank(s.value), s.loss_weight))
    has_kernel = any(s.landmarks is not None or s.gamma is not None for s in ordered)
    rows = [
        (
            f"{s.loss_weight:g}",
            *([_kernel_text(s)[2:] or "linear"] if has_kernel else []),
            search.text(s.value, 4),
            f"± {search.text(s.standard_error, 2)}",
            str(s.passes),
            percent(s.gap),
        )
        for s in ordered[:MAX_POINTS]
    ]
    head = (search.axis, *(["kernel"] if has_kernel else []), search.measure, "standard error", "passes", "gap")
    parts = [table(head, rows, kind="points" if has_kernel else "")]
    if search.best_folds:
        folds = ", ".join(search.text(value, 4) for value in search.best_folds)
        parts.append(element("p", f"The best point, fold by fold: {folds}.", class_="lead"))
    rounds = len(search.scores) - len(search.whole)
    if rounds:
        parts.append(element("p", f"{rounds} more were judged on a part of the rows and left out.", class_="lead"))
    lead = "The best points first; what is within the standard error of the best is as good."
    return PagePart("points", "Points", lead, element("div", *parts))


def _kernel_text(score: GridPoint) -> str:
    parts = [] if score.landmarks is None else [f"{score.landmarks} landmarks"]
    parts += [] if score.gamma is None else [f"gamma = {score.gamma:.4g}"]
    return "".join(f", {one}" for one in parts)


def draw_path(search: Search) -> PagePart | None:
    """Return the section with the score over C or nu, with a line for each gamma and number of landmarks; None for a single value."""
    whole = search.whole
    weights = sorted({s.loss_weight for s in whole})
    if len(weights) < 2 or not keep_finite(s.value for s in whole):
        return None
    low = min(s.value - s.standard_error for s in whole)
    high = max(s.value + s.standard_error for s in whole)
    margin = 0.06 * (high - low) or 0.01
    bottom = low - margin if low < 0.0 else max(0.0, low - margin)
    y = linear_axis(bottom, high + margin, UPWARDS, text=lambda v: f"{(100 if search.in_percent else 1) * v:.3g}")
    x = log_axis(weights[0] * 0.6, weights[-1] / 0.6, ACROSS, powers=False)
    axis, end = search.axis, "greatest" if search.higher_is_better else "least"
    says = (
        f"Cross-validated {search.measure} over {axis}: {end} {search.text(search.best.value, 4)} at {axis} = "
        f"{search.best.loss_weight:g}."
    )
    label = f"{search.measure}, %" if search.in_percent else search.measure
    title = f"{search.measure[0].upper()}{search.measure[1:]} over {axis}, with its standard error"
    chart = Chart(title, says, x, y, (axis, label))
    if search.regret is not None:
        corners = [(C, cell) for cell in search.regret.band for C in (cell.C_from, cell.C_to)]
        lower = [(C, max(bottom, cell.low)) for C, cell in corners]
        # cut off at the highest point that is drawn: far from the best C the bounds may be far apart
        upper = [(C, min(high + margin, cell.high)) for C, cell in corners]
        chart.band(lower, upper, 0, "proved for all C")
    kinds = list(dict.fromkeys((s.landmarks, s.gamma) for s in whole))
    kinds.sort(key=lambda kind: min(search.rank(s.value) for s in whole if (s.landmarks, s.gamma) == kind))
    for number, kind in enumerate(kinds[:SERIES]):
        scores = sorted((s for s in whole if (s.landmarks, s.gamma) == kind), key=lambda s: s.loss_weight)
        number = number if len(kinds) > 1 else INK  # noqa: PLW2901
        for s in scores:
            ends = [(s.loss_weight, s.value + sign * s.standard_error) for sign in (-1, 1)]
            chart.line(ends, number, kind="range")
        chart.line([(s.loss_weight, s.value) for s in scores], number, _kernel_text(scores[0])[2:], dots=True)
    baseline = _find_baseline(search)
    if baseline is not None and low < baseline.error <= high + margin:
        chart.level(baseline.error, "always the most frequent class")
    more = f" The best {SERIES} of {len(kinds)} are drawn." if len(kinds) > SERIES else ""
    return PagePart("path", f"Path of {axis}", "Prefer settings where the curve is flat." + more, chart.render())


def draw_error_tables(search: Search) -> PagePart:
    """Return the section with tables of scores by landmarks and C, a table for each gamma."""
    whole = search.whole
    values = keep_finite(s.value for s in whole)
    low, high = (min(values), max(values)) if values else (0.0, 1.0)
    tables = []
    for gamma in dict.fromkeys(s.gamma for s in whole):
        scores_of_gamma = [s for s in whole if s.gamma == gamma]
        weights = sorted({s.loss_weight for s in scores_of_gamma})
        rows = []
        for count in dict.fromkeys(s.landmarks for s in scores_of_gamma):
            cells = {s.loss_weight: s for s in scores_of_gamma if s.landmarks == count}
            exact = "linear" if gamma is None else "exact"
            name = element("th", exact if count is None else str(count), scope="row")
            rows.append([name, *(_score_cell(cells.get(weight), search, low, high) for weight in weights)])
        title = search.measure[0].upper() + search.measure[1:]
        caption = (f"{title} in %" if search.in_percent else title) + ("" if gamma is None else f", gamma {gamma:.4g}")
        tables.append(
            table(
                [
                    f"landmarks / {search.axis}" if any(s.landmarks for s in scores_of_gamma) else search.axis,
                    *(f"{weight:g}" for weight in weights),
                ],
                rows,
                kind="heat",
                caption=caption,
            )
        )
    lead = f"Cross-validated {search.measure}; the stronger its shade, the better. The best is outlined, * are within its standard error."
    return PagePart("grid", "Grid", lead, element("div", *tables))


def _score_cell(score: GridPoint | None, search: Search, low: float, high: float) -> Markup:
    if score is None or not math.isfinite(score.value):
        return element("td", "–")
    best = search.best
    good = (high - score.value) / (high - low) if high > low else 0.5
    depth = int(9.99 * (1.0 - good if search.higher_is_better else good)) if high > low else 5
    is_worse = search.rank(score.value) > search.rank(best.value) + best.standard_error
    mark = "" if score == best or is_worse else "*"
    kind = f"q{depth} best" if score == best else f"q{depth}"
    text = f"{100 * score.value:.2f}{mark}" if search.in_percent else f"{score.value:.4g}{mark}"
    return element("td", text, class_=kind)
