"""Draw the chart of the README from what was measured: ``python -m tools.pages.front_chart``.

Reads ``tools/docs/measured/front.json`` and writes ``tools/docs/_static/front-light.svg`` and ``front-dark.svg``;
``tests/docs/test_documents.py`` checks that they are what this draws.
"""

from __future__ import annotations

import html
import json
import textwrap
from pathlib import Path
from typing import Any

DOCS = Path(__file__).parent.parent / "docs"
MEASURED = DOCS / "measured" / "front.json"
COLORS = {
    "light": {"paper": "#ffffff", "ink": "#1a1d21", "soft": "#575e68", "ours": "#0072b2", "others": "#b9c0c9"},
    "dark": {"paper": "#0d1117", "ink": "#e8eaed", "soft": "#a3abb6", "ours": "#56b4e9", "others": "#4a525d"},
}
WIDTH, STEP, TOP, BAR = 860, 34, 92, 18
PANELS = ((190, 300), (560, 230))
"""Where the bars of each of the two halves begin, and how long the longest may be."""


def drawn(measured: dict[str, Any], theme: str) -> str:
    """The chart as SVG, in the colors of a theme."""
    color, rows = COLORS[theme], measured["rows"]
    note = textwrap.wrap(measured["note"], 128)
    height = TOP + STEP * len(rows) + 18 * len(note) + 18
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" role="img">',
        f"<title>{html.escape(_spoken(measured))}</title>",
        f'<rect width="{WIDTH}" height="{height}" fill="{color["paper"]}"/>',
        f'<g font-family="system-ui,-apple-system,Segoe UI,Helvetica,Arial,sans-serif" font-size="14" fill="{color["ink"]}">',
        _text(12, 30, measured["title"], 'font-size="17" font-weight="600"'),
        _text(PANELS[0][0], 70, "CPU seconds", f'fill="{color["soft"]}"'),
        _text(PANELS[1][0], 70, "peak memory, MiB", f'fill="{color["soft"]}"'),
    ]
    most = max(row["mebibytes"] for row in rows)
    for number, row in enumerate(rows):
        y, ours = TOP + STEP * number, number == 0
        fill = color["ours" if ours else "others"]
        weight = 'font-weight="600"' if ours else ""
        parts.append(_text(PANELS[0][0] - 12, y + 14, row["name"], f'text-anchor="end" {weight}'))
        parts += _seconds(row, measured["limit"], y, fill, weight)
        length = PANELS[1][1] * row["mebibytes"] / most
        parts.append(_bar(PANELS[1][0], y, length, fill))
        parts.append(_text(PANELS[1][0] + length + 7, y + 14, f"{row['mebibytes']:,}".replace(",", " "), weight))
    for number, line in enumerate(note):
        y = TOP + STEP * len(rows) + 18 * (number + 1)
        parts.append(_text(12, y, line, f'font-size="12" fill="{color["soft"]}"'))
    return "\n".join([*parts, "</g>", "</svg>", ""])


def _seconds(row: dict[str, Any], limit: float, y: float, fill: str, weight: str) -> list[str]:
    """The bar of a time; one that was not there at the limit is open at its end."""
    start, longest = PANELS[0]
    if row["seconds"] is not None:
        length = longest * 0.8 * row["seconds"] / limit
        return [_bar(start, y, length, fill), _text(start + length + 7, y + 14, f"{row['seconds']:g}", weight)]
    length = longest * 0.8
    outline = f'fill="none" stroke="{fill}" stroke-width="1.5" stroke-dasharray="5 4"'
    open_bar = f'<path d="M{start + length},{y}H{start}V{y + BAR}H{start + length}" {outline}/>'
    return [open_bar, _text(start + 10, y + 14, f"not there after {limit:g}", 'font-size="13"')]


def _bar(x: float, y: float, length: float, fill: str) -> str:
    return f'<rect x="{x}" y="{y}" width="{max(length, 2):.1f}" height="{BAR}" rx="2" fill="{fill}"/>'


def _text(x: float, y: float, text: str, more: str = "") -> str:
    return f'<text x="{x:.1f}" y="{y}" {more}>{html.escape(text)}</text>'


def _spoken(measured: dict[str, Any]) -> str:
    """The chart in words."""
    limit = measured["limit"]
    said = (
        f"{row['name']} {'more than ' + str(limit) if row['seconds'] is None else row['seconds']} s and {row['mebibytes']} MiB"
        for row in measured["rows"]
    )
    return f"{measured['title']}: {', '.join(said)}."


def charts() -> dict[Path, str]:
    """What is drawn, by where it goes."""
    measured = json.loads(MEASURED.read_text(encoding="utf-8"))
    return {DOCS / "_static" / f"front-{theme}.svg": drawn(measured, theme) for theme in COLORS}


if __name__ == "__main__":
    for path, chart in charts().items():
        path.write_text(chart, encoding="utf-8")
