"""What a search found: a table of errors as JSON and CSV, and a map of how much they depend on the settings.

The map is figure 2 of Tanji et al. ("Snacks"): error by landmarks and C, one panel a width of the kernel. Settings one
can trust lie in a flat region of it.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from streamsvm import durable
from streamsvm.aliases import JsonObject
from streamsvm.rows import Float64

TABLE, SHEET, MAP, PICTURE = "table.json", "table.csv", "heatmap.txt", "heatmap.png"


class Score(NamedTuple):
    """A point of the grid, and the share of wrong answers on each fold by the model that did not see it."""

    landmarks: int | None
    """The number of landmarks; None without a map."""
    gamma: float | None
    """The width of the kernel; None where it has none."""
    C: float
    """The weight of the loss sum."""
    errors: tuple[float, ...]
    """The share of wrong answers on each fold."""
    rank: int
    """The number of columns of the features."""
    passes: int
    """The most passes of all folds."""
    gap: float
    """The largest relative gap of all folds."""

    @property
    def error(self) -> float:
        """The mean over the folds."""
        return float(np.mean(self.errors))

    @property
    def spread(self) -> float:
        """The standard error of ``error``, as far as folds are independent."""
        return float(np.std(self.errors, ddof=1) / len(self.errors) ** 0.5)

    def facts(self) -> JsonObject:
        """Return the row of the table."""
        folds = {f"fold_{k + 1}": error for k, error in enumerate(self.errors)}
        point = {"landmarks": self.landmarks, "gamma": self.gamma, "C": self.C}
        found = {"error": self.error, "standard_error": self.spread, **folds}
        return {**point, **found, "rank": self.rank, "passes": self.passes, "gap": self.gap}


def best_of(scores: Sequence[Score]) -> Score:
    """Return the score with the smallest error; among equals the fewest landmarks, then the smallest C."""
    return min(scores, key=lambda score: (score.error, score.landmarks or 0, score.C))


def write_results(out: Path, scores: Sequence[Score], facts: JsonObject) -> tuple[str, ...]:
    """Write table, sheet and map, the table last; return a notice of what could not be drawn. Raises StorageError."""
    rows = [score.facts() for score in scores]
    sheet = io.StringIO()
    writer = csv.DictWriter(sheet, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    durable.write_file(out / SHEET, sheet.getvalue().encode())
    durable.write_file(out / MAP, ("\n".join(map_lines(scores)) + "\n").encode())
    picture = picture_of(scores)
    if picture is not None:
        durable.write_file(out / PICTURE, picture)
    table = {**facts, "best": best_of(scores).facts(), "scores": rows}
    durable.write_file(out / TABLE, json.dumps(table, indent=1).encode())
    return () if picture is not None else (f"{MAP} is text: a picture needs pip install 'streamsvm[plot]'",)


class Panel(NamedTuple):
    """The errors of one width."""

    gamma: float | None
    """The width; None where the kernel has none."""
    landmarks: list[int | None]
    """The numbers of landmarks, one a row."""
    costs: list[float]
    """The values of C, one a column."""
    errors: Float64
    """The errors (landmarks, costs); NaN where there is none."""


def panels(scores: Sequence[Score]) -> list[Panel]:
    """Return one panel for each width, all of the same size."""
    landmarks = list(dict.fromkeys(score.landmarks for score in scores))
    costs = sorted({score.C for score in scores})
    found = []
    for gamma in dict.fromkeys(score.gamma for score in scores):
        errors = np.full((len(landmarks), len(costs)), np.nan)
        for score in scores:
            if score.gamma == gamma:
                errors[landmarks.index(score.landmarks), costs.index(score.C)] = score.error
        found.append(Panel(gamma, landmarks, costs, errors))
    return found


def map_lines(scores: Sequence[Score]) -> Iterator[str]:
    """Return the errors in percent as lines of text; * marks the best, + those within its standard error."""
    best = best_of(scores)
    for panel in panels(scores):
        yield f"error in %, gamma {panel.gamma:.4g}" if panel.gamma is not None else "error in %"
        yield "landmarks \\ C".ljust(14) + "".join(f"{C:>10.4g} " for C in panel.costs)
        for m, errors in zip(panel.landmarks, panel.errors, strict=True):
            cells = (f"{100 * error:>10.2f}{_mark(error, best)}" for error in errors.tolist())
            yield f"{m or '-':<14}" + "".join(cells)
        yield ""
    yield f"* best, {100 * best.error:.2f} %; + within its standard error, {100 * best.spread:.2f}"


def _mark(error: float, best: Score) -> str:
    if error == best.error:
        return "*"
    return "+" if error <= best.error + best.spread else " "


def picture_of(scores: Sequence[Score]) -> bytes | None:
    """Return the map as PNG; None without matplotlib."""
    try:
        from matplotlib.figure import Figure
    except ModuleNotFoundError:
        return None
    drawn = panels(scores)
    height, width = drawn[0].errors.shape
    figure = Figure(figsize=(len(drawn) * (1.5 + 0.7 * width), 1.6 + 0.45 * height), layout="constrained")
    low, high = (100 * f(score.error for score in scores) for f in (min, max))
    for axes, panel in zip(figure.subplots(1, len(drawn), squeeze=False)[0], drawn, strict=True):
        image = axes.imshow(100 * panel.errors, vmin=low, vmax=high, cmap="viridis_r", aspect="auto")
        axes.set_xticks(range(width), [f"{C:.3g}" for C in panel.costs], rotation=45)
        axes.set_yticks(range(height), [str(m or "-") for m in panel.landmarks])
        axes.set(xlabel="C", ylabel="landmarks")
        axes.set_title("error in %" + (f", gamma {panel.gamma:.4g}" if panel.gamma is not None else ""))
        for (i, j), error in np.ndenumerate(100 * panel.errors):
            dark = error < (low + high) / 2
            axes.text(j, i, f"{error:.1f}", ha="center", va="center", color="white" if dark else "black")
    figure.colorbar(image, ax=figure.axes)
    stream = io.BytesIO()
    figure.savefig(stream, format="png", dpi=120)
    return stream.getvalue()
