"""The measured cells of ``frank_wolfe.py`` as Markdown tables, the paper's figures beside ours, and figure 3 as SVG."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import pairwise, product
from pathlib import Path
from typing import Any

import numpy as np

from tools.measure.harness import Row, arguments
from tools.reproduce.frank_wolfe import away_of
from tools.reproduce.paper_figures import (
    EPSILONS,
    METHODS,
    SECONDS_OF_OTHERS,
    TABLE_2,
    TABLE_3,
    TABLE_3_SECONDS,
    TABLE_4,
    Figures,
)

SHOWN = (*METHODS, "blended")
SETS = ("a9a", "w8a", "w8a-all", "ijcnn1", "kdd99", "kdd99-38")
FIGURES = {"accuracy": ".2f", "seconds": ".1f", "iterations": ".0f", "support": ".0f"}
"""What is compared, in the order of ``Figures``, and how it is printed."""
MEANS = (*FIGURES, "gap")
WIDTH, HEIGHT, EDGE = 460.0, 300.0, 45.0
STROKES = dict(zip(SHOWN, ("#888888", "#d62728", "#2ca02c", "#1f77b4", "#000000"), strict=True))


def chosen(rows: list[Row], **wanted: Any) -> list[Row]:
    return [row for row in rows if all(row[key] == value for key, value in wanted.items())]


def set_of(name: str) -> str:
    """Which set of the paper a variant stands for."""
    return name.partition("-")[0]


def lines(heads: list[str], body: list[list[str]]) -> Iterator[str]:
    """A Markdown table."""
    yield "| " + " | ".join(heads) + " |"
    yield "|" + "---|" * len(heads)
    yield from ("| " + " | ".join(cells) + " |" for cells in body)


def beside(ours: float, theirs: float | None, form: str) -> str:
    """Ours, the paper's in brackets."""
    return format(ours, form) + ("" if theirs is None else f" ({theirs:{form}})")


def comparison(rows: list[Row], number: str, paper: dict[str, dict[str, Figures]]) -> Iterator[str]:
    """Table 2 or 4: the mean over the runs there are."""
    body = []
    for name in SETS:
        for method, away in product(SHOWN, ("exact", "drawn")):
            runs = [row for row in chosen(rows, table=number, set=name, method=method) if away_of(row) == away]
            if not runs:
                continue
            mean = {key: float(np.mean([run[key] for run in runs])) for key in MEANS}
            theirs = paper[set_of(name)].get(method, (None,) * 4)
            settings = [f"{runs[0]['C']:g}", f"{runs[0]['gamma']:.3g}", str(len(runs))]
            pairs = zip(FIGURES.items(), theirs, strict=True)
            cells = [beside(mean[key], their, form) for (key, form), their in pairs]
            again = f"{runs[0]['gap64']:.3g}" if "gap64" in runs[0] else "-"
            body.append([name, method + ", drawn" * (away == "drawn"), *settings, *cells, f"{mean['gap']:.3g}", again])
    yield from lines(
        [
            "set",
            "method",
            "C",
            "gamma",
            "runs",
            "accuracy %",
            "CPU s",
            "iterations",
            "support",
            "true gap",
            "in float64",
        ],
        body,
    )


def growth(rows: list[Row]) -> Iterator[str]:
    """Table 3: iterations at each tolerance, and the factor from each to the next."""
    body = []
    for name in SETS:
        for method in METHODS:
            found = [chosen(rows, table="3", set=name, method=method, epsilon=e) for e in EPSILONS]
            if not any(found):
                continue
            counts = [cell[0]["iterations"] if cell else None for cell in found]
            paper = TABLE_3[set_of(name)][method]
            cells = ["-" if c is None else beside(c, t, ".0f") for c, t in zip(counts, paper, strict=True)]
            factors = [f"{b / a:.1f}" for a, b in pairwise(counts) if a and b]
            times = zip(found, TABLE_3_SECONDS[set_of(name)][method], strict=True)
            seconds = ["-" if not cell else beside(cell[0]["seconds"], their, ".3g") for cell, their in times]
            body.append([name, method, *cells, ", ".join(factors), *seconds])
    heads = [f"{e:.0e}" for e in EPSILONS]
    yield from lines(["set", "method", *heads, "factors", *(f"CPU s to {head}" for head in heads)], body)


def speedups(rows: list[Row]) -> Iterator[str]:
    """Of table 2: how many times the CPU seconds of PARTAN fw takes, by set and on average, as the paper's abstract has it."""
    body, ours, theirs = [], [], []
    for name in TABLE_2:
        paper = TABLE_2[name]["fw"].seconds / TABLE_2[name]["partan"].seconds
        theirs.append(paper)
        means = [
            np.mean([row["seconds"] for row in chosen(rows, table="2", set=name, method=m)] or [np.nan])
            for m in ("fw", "partan")
        ]
        ratio = float(means[0] / means[1])
        ours += [ratio] if ratio > 0.0 else []
        body.append([name, f"{ratio:.2f}" if ratio > 0.0 else "-", f"{paper:.2f}"])
    others = [fw / partan for fw, partan in SECONDS_OF_OTHERS.values()]
    body += [[name, "-", f"{each:.2f}"] for name, each in zip(SECONDS_OF_OTHERS, others, strict=True)]
    body.append(["average of the sets here", f"{np.mean(ours):.2f}" if ours else "-", f"{np.mean(theirs):.2f}"])
    body.append(["average of all", "-", f"{np.mean([*theirs, *others]):.2f}"])
    yield from lines(["set", "ours", "the paper"], body)


def curves_of(rows: list[Row], name: str) -> dict[str, Any]:
    """log10 of iterations and gap, of each method at the smallest tolerance it was run to."""
    curves = {}
    for method in SHOWN:
        cells = sorted(chosen(rows, table="3", set=name, method=method), key=lambda r: float(r["epsilon"]))
        if cells:
            curves[method] = np.log10([(k, gap) for k, gap in cells[0]["trajectory"] if k > 0 and gap > 0])
    return curves


def figure(rows: list[Row], name: str) -> str:
    """Figure 3 as SVG: the gap against the iterations, both logarithmic."""
    curves = curves_of(rows, name)
    points = np.concatenate(list(curves.values()))
    low, high = np.floor(points.min(0)), np.ceil(points.max(0))

    def place(at: Any) -> str:
        x, y = (np.asarray(at) - low) / (high - low)
        return f"{EDGE + x * (WIDTH - 2 * EDGE):.1f},{HEIGHT - EDGE - y * (HEIGHT - 2 * EDGE):.1f}"

    drawn = [f'<text x="{WIDTH / 2:.0f}" y="18" text-anchor="middle">{name}: gap against iterations</text>']
    for k, shift in enumerate(('dy="16" text-anchor="middle"', 'dx="-5" text-anchor="end"')):
        for tick in np.arange(low[k], high[k] + 1):
            x, y = place(np.where(np.arange(2) == k, tick, low)).split(",")
            drawn.append(f'<text x="{x}" y="{y}" {shift}>1e{tick:.0f}</text>')
    for row, (method, curve) in enumerate(curves.items()):
        path = " ".join(place(point) for point in curve)
        drawn.append(f'<polyline fill="none" stroke="{STROKES[method]}" points="{path}"/>')
        drawn.append(f'<text x="{WIDTH - EDGE:.0f}" y="{40 + 14 * row}" fill="{STROKES[method]}">{method}</text>')
    box = f'viewBox="0 0 {WIDTH:.0f} {HEIGHT:.0f}" font-family="sans-serif" font-size="11"'
    return f'<svg xmlns="http://www.w3.org/2000/svg" {box}>\n' + "\n".join(drawn) + "\n</svg>\n"


def main() -> None:
    options = arguments(__doc__, results="frank_wolfe.results.json", figures="")
    rows = [row for path in options.results.split(",") for row in json.loads(Path(path).read_text())]
    for title, table in (
        ("Table 2, deterministic, epsilon 1e-4", comparison(rows, "2", TABLE_2)),
        ("CPU seconds of fw over those of partan, table 2", speedups(rows)),
        ("Table 3, iterations and CPU seconds by tolerance", growth(rows)),
        ("Table 4, 194 rows drawn for a vertex, epsilon 1e-4", comparison(rows, "4", TABLE_4)),
    ):
        print(f"\n**{title}** - ours (the paper's)\n")
        print("\n".join(table))
    for name in SETS:
        if options.figures and chosen(rows, table="3", set=name):
            path = Path(options.figures) / f"figure3-{name}.svg"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(figure(rows, name))
            print(f"\n{path}")


if __name__ == "__main__":
    main()
