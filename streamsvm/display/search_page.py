"""The page of a search: the error over C or nu, and how much it depends on the settings."""

from __future__ import annotations

import math

from streamsvm.config.units import percent
from streamsvm.display.chart import ACROSS, SERIES, UPWARDS, Chart, keep_finite, linear_axis, log_axis
from streamsvm.display.html import Markup, PagePart, build_tiles, element, join, table
from streamsvm.display.read_record import GridPoint, Search


def summarize_search(found: Search) -> Markup:
    """Return the sentence and the tiles of a search."""
    best, kernel = found.best, _kernel_text(found.best)
    spread = [s for s in found.scores if s.error <= best.error + best.standard_error]
    said = [
        element("strong", f"Best: {found.axis} = {best.loss_weight:g}{kernel}. "),
        f"Its cross-validated {found.measure} is {found.text(best.error, 4)} ± {found.text(best.standard_error, 2)}; ",
        f"{len(spread)} of {len(found.scores)} points of the grid are within that.",
    ]
    worst = max(keep_finite(s.gap for s in found.scores), default=0.0)
    figures = [
        (found.measure, found.text(best.error, 4), f"± {found.text(best.standard_error, 2)}"),
        ("points", str(len(found.scores)), f"{found.settings.get('folds', '?')} folds each"),
        ("widest gap", percent(worst), f"of {percent(float(found.settings.get('tolerance', 0)))} asked for"),
    ]
    return join([element("p", *said, class_="verdict"), build_tiles(figures)])


def _kernel_text(score: GridPoint) -> str:
    found = [] if score.landmarks is None else [f"{score.landmarks} landmarks"]
    found += [] if score.gamma is None else [f"gamma = {score.gamma:.4g}"]
    return "".join(f", {one}" for one in found)


def draw_path(found: Search) -> PagePart | None:
    """Return the section with the error over C or nu, a line for each gamma and number of landmarks; None for a single value."""
    weights = sorted({s.loss_weight for s in found.scores})
    if len(weights) < 2 or not keep_finite(s.error for s in found.scores):
        return None
    low = min(s.error - s.standard_error for s in found.scores)
    high = max(s.error + s.standard_error for s in found.scores)
    margin = 0.06 * (high - low) or 0.01
    y = linear_axis(
        max(0.0, low - margin), high + margin, UPWARDS, text=lambda v: f"{(100 if found.in_percent else 1) * v:.3g}"
    )
    x = log_axis(weights[0] * 0.6, weights[-1] / 0.6, ACROSS, powers=False)
    axis, least = found.axis, found.text(found.best.error, 4)
    says = f"Cross-validated {found.measure} over {axis}: least {least} at {axis} = {found.best.loss_weight:g}."
    label = f"{found.measure}, %" if found.in_percent else found.measure
    chart = Chart(f"Error over {axis}, with its standard error", says, x, y, (axis, label))
    kinds = list(dict.fromkeys((s.landmarks, s.gamma) for s in found.scores))
    kinds.sort(key=lambda kind: min(s.error for s in found.scores if (s.landmarks, s.gamma) == kind))
    for number, kind in enumerate(kinds[:SERIES]):
        scores = sorted((s for s in found.scores if (s.landmarks, s.gamma) == kind), key=lambda s: s.loss_weight)
        for s in scores:
            ends = [(s.loss_weight, s.error + sign * s.standard_error) for sign in (-1, 1)]
            chart.line(ends, number, kind="range")
        chart.line([(s.loss_weight, s.error) for s in scores], number, _kernel_text(scores[0])[2:], dots=True)
    more = f" The best {SERIES} of {len(kinds)} are drawn." if len(kinds) > SERIES else ""
    return PagePart("path", f"Path of {axis}", "Prefer settings where the curve is flat." + more, chart.render())


def draw_error_tables(found: Search) -> PagePart:
    """Return the section with tables of errors, landmarks by C, one for each gamma."""
    errors = keep_finite(s.error for s in found.scores)
    low, high = (min(errors), max(errors)) if errors else (0.0, 1.0)
    tables = []
    for gamma in dict.fromkeys(s.gamma for s in found.scores):
        mine = [s for s in found.scores if s.gamma == gamma]
        weights = sorted({s.loss_weight for s in mine})
        rows = []
        for count in dict.fromkeys(s.landmarks for s in mine):
            cells = {s.loss_weight: s for s in mine if s.landmarks == count}
            exact = "linear" if gamma is None else "exact"
            name = element("th", exact if count is None else str(count), scope="row")
            rows.append([name, *(_error_cell(cells.get(weight), found, low, high) for weight in weights)])
        caption = (f"{found.measure.capitalize()} in %" if found.in_percent else found.measure) + (
            "" if gamma is None else f", gamma {gamma:.4g}"
        )
        tables.append(
            table(
                [f"landmarks / {found.axis}", *(f"{weight:g}" for weight in weights)],
                rows,
                kind="heat",
                caption=caption,
            )
        )
    lead = f"Cross-validated {found.measure}; the darker the better. The best is outlined, * are within its standard error."
    return PagePart("grid", "Grid", lead, element("div", *tables))


def _error_cell(score: GridPoint | None, found: Search, low: float, high: float) -> Markup:
    if score is None or not math.isfinite(score.error):
        return element("td", "–")
    depth = int(9.99 * (1.0 - (score.error - low) / (high - low))) if high > low else 5
    best = found.best
    mark = "" if score == best or score.error > best.error + best.standard_error else "*"
    kind = f"q{depth} best" if score == best else f"q{depth}"
    return element(
        "td", f"{100 * score.error:.2f}{mark}" if found.in_percent else f"{score.error:.4g}{mark}", class_=kind
    )
