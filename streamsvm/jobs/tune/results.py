"""What a search found: a table of errors as JSON and CSV, and a map of how much they depend on the settings.

The map is figure 2 of Tanji et al. ("Snacks"): error by landmarks and C (or nu), one panel a width of the kernel.
Settings one can trust lie in a flat region of it.
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


class Measure(NamedTuple):
    """What the error of a search is."""

    name: str
    """What people call it."""
    percent: bool = True
    """Whether it is a share, which is shown in percent."""

    def text(self, error: float) -> str:
        """Return an error as people read it."""
        return f"{100 * error:.2f}" if self.percent else f"{error:.4g}"

    @property
    def heading(self) -> str:
        """What stands above errors."""
        return f"{self.name} in %" if self.percent else self.name


WRONG, BALANCED, RMSE = Measure("error"), Measure("balanced error"), Measure("RMSE", percent=False)
"""The share of wrong answers; of one class its mean over rows of the class and all others (``BalancedCounts``); of
numbers the root of the mean squared error.
"""


class Score(NamedTuple):
    """A point of the grid, and the error on each fold by the model that did not see it."""

    landmarks: int | None
    """The number of landmarks; None without a map."""
    gamma: float | None
    """The width of the kernel; None where it has none."""
    C: float | None
    """The weight of the loss sum; None where nu stands in its place."""
    errors: tuple[float, ...]
    """The error on each fold."""
    rank: int
    """The number of columns of the features."""
    passes: int
    """The most passes of all folds."""
    gap: float
    """The largest relative gap of all folds."""
    nu: float | None = None
    """The share of rows outside or beyond their margin; None where C says it."""

    @property
    def loss_weight(self) -> float:
        """C or nu."""
        found = self.C if self.nu is None else self.nu
        assert found is not None
        return found

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
        point |= {} if self.nu is None else {"nu": self.nu}
        found = {"error": self.error, "standard_error": self.spread, **folds}
        return {**point, **found, "rank": self.rank, "passes": self.passes, "gap": self.gap}


def best_of(scores: Sequence[Score]) -> Score:
    """Return the score with the smallest error; among equals the fewest landmarks, then the smallest C or nu."""
    return min(scores, key=lambda score: (score.error, score.landmarks or 0, score.loss_weight))


def write_results(out: Path, scores: Sequence[Score], facts: JsonObject, measure: Measure = WRONG) -> tuple[str, ...]:
    """Write table, sheet and map, the table last; return a notice of what could not be drawn. Raises StorageError."""
    rows = [score.facts() for score in scores]
    sheet = io.StringIO()
    writer = csv.DictWriter(sheet, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    durable.write_file(out / SHEET, sheet.getvalue().encode())
    durable.write_file(out / MAP, ("\n".join(map_lines(scores, measure)) + "\n").encode())
    picture = picture_of(scores, measure)
    if picture is not None:
        durable.write_file(out / PICTURE, picture)
    table = {
        **facts,
        "measure": measure.name,
        "in_percent": measure.percent,
        "best": best_of(scores).facts(),
        "scores": rows,
    }
    durable.write_file(out / TABLE, json.dumps(table, indent=1).encode())
    return () if picture is not None else (f"{MAP} is text: a picture needs pip install 'streamsvm[plot]'",)


class Panel(NamedTuple):
    """The errors of one width."""

    gamma: float | None
    """The width; None where the kernel has none."""
    landmarks: list[int | None]
    """The numbers of landmarks, one a row."""
    weights: list[float]
    """The values of C or nu, one a column."""
    errors: Float64
    """The errors (landmarks, weights); NaN where there is none."""


def panels(scores: Sequence[Score]) -> list[Panel]:
    """Return one panel for each width, all of the same size."""
    landmarks = list(dict.fromkeys(score.landmarks for score in scores))
    weights = sorted({score.loss_weight for score in scores})
    found = []
    for gamma in dict.fromkeys(score.gamma for score in scores):
        errors = np.full((len(landmarks), len(weights)), np.nan)
        for score in scores:
            if score.gamma == gamma:
                errors[landmarks.index(score.landmarks), weights.index(score.loss_weight)] = score.error
        found.append(Panel(gamma, landmarks, weights, errors))
    return found


def axis_of(scores: Sequence[Score]) -> str:
    """Return what the columns of the map are values of."""
    return "C" if scores[0].nu is None else "nu"


def map_lines(scores: Sequence[Score], measure: Measure = WRONG) -> Iterator[str]:
    """Return the errors as lines of text; * marks the best, + those within its standard error."""
    best = best_of(scores)
    for panel in panels(scores):
        yield measure.heading + (f", gamma {panel.gamma:.4g}" if panel.gamma is not None else "")
        corner = f"landmarks \\ {axis_of(scores)}"
        yield corner.ljust(14) + "".join(f"{weight:>10.4g} " for weight in panel.weights)
        for m, errors in zip(panel.landmarks, panel.errors, strict=True):
            cells = (f"{measure.text(error):>10}{_mark(error, best)}" for error in errors.tolist())
            yield f"{m or '-':<14}" + "".join(cells)
        yield ""
    unit = " %" if measure.percent else ""
    yield f"* best, {measure.text(best.error)}{unit}; + within its standard error, {measure.text(best.spread)}"


def _mark(error: float, best: Score) -> str:
    if error == best.error:
        return "*"
    return "+" if error <= best.error + best.spread else " "


def picture_of(scores: Sequence[Score], measure: Measure = WRONG) -> bytes | None:
    """Return the map as PNG; None without matplotlib."""
    try:
        from matplotlib.figure import Figure
    except ModuleNotFoundError:
        return None
    drawn, factor = panels(scores), 100.0 if measure.percent else 1.0
    height, width = drawn[0].errors.shape
    figure = Figure(figsize=(len(drawn) * (1.5 + 0.7 * width), 1.6 + 0.45 * height), layout="constrained")
    low, high = (factor * f(score.error for score in scores) for f in (min, max))
    for axes, panel in zip(figure.subplots(1, len(drawn), squeeze=False)[0], drawn, strict=True):
        image = axes.imshow(factor * panel.errors, vmin=low, vmax=high, cmap="viridis_r", aspect="auto")
        axes.set_xticks(range(width), [f"{weight:.3g}" for weight in panel.weights], rotation=45)
        axes.set_yticks(range(height), [str(m or "-") for m in panel.landmarks])
        axes.set(xlabel=axis_of(scores), ylabel="landmarks")
        axes.set_title(measure.heading + (f", gamma {panel.gamma:.4g}" if panel.gamma is not None else ""))
        for (i, j), error in np.ndenumerate(factor * panel.errors):
            dark = error < (low + high) / 2
            axes.text(
                j,
                i,
                f"{error:.1f}" if measure.percent else f"{error:.3g}",
                ha="center",
                va="center",
                color="white" if dark else "black",
            )
    figure.colorbar(image, ax=figure.axes)
    stream = io.BytesIO()
    figure.savefig(stream, format="png", dpi=120)
    return stream.getvalue()
