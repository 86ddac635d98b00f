"""The results of a search: a table of scores as JSON and CSV, a heat map of the scores, and the command that fits with
the best settings.

The heat map is that of figure 2 of Tanji et al. ("Snacks"): the score by landmarks and C (or nu), with one panel for
each gamma. Reliable settings lie in a flat region of it. If the points do not form a grid, they are listed, the best
first.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from streamsvm import durable
from streamsvm.config.command_table import format_command
from streamsvm.config.options import field_values, options_of
from streamsvm.jobs.common_options import LossWeight
from streamsvm.jobs.fit.options import FitFilesJob, FitJob
from streamsvm.jobs.tune.options import TuneFilesJob, TuneJob
from streamsvm.model.measures import BALANCED_ERROR, ERROR, RMSE, Measure
from streamsvm.rows import Float64
from streamsvm.type_aliases import JsonObject

TABLE, SHEET, MAP, PICTURE = "table.json", "table.csv", "heatmap.txt", "heatmap.png"
SEARCH_FIELDS: set[str] = {
    "out", "C", "nu", "gamma", "landmarks", "folds", "cluster", "insecure_network", "score", "search", "points", "refine", "regret",
}  # fmt: skip
"""Settings that only a search has."""
STOPPING_AND_OUTPUT_FIELDS = {"tolerance", "max_passes", "time_limit", "report", "overwrite"}
"""Settings shared with a fit that control the end and the output of a search; a fit keeps its own defaults for them."""
MOST_LINES = 20
"""Largest number of points that are listed."""


class Score(NamedTuple):
    """A point of the search with its scores: for each fold, the measure of the model trained without that fold."""

    landmarks: int | None
    """Number of landmarks; None without landmarks."""
    gamma: float | None
    """The kernel's gamma; None if it has none."""
    C: float | None
    """The factor of the sum of losses; None if nu is given."""
    folds: tuple[float, ...]
    """The measure on each fold."""
    rank: int
    """Number of features."""
    passes: int
    """The largest number of passes of all folds."""
    gap: float
    """The largest relative gap of all folds."""
    nu: float | None = None
    """The value of nu; None if C is given."""
    share: float = 1.0
    """The share of the rows that were used; less than 1 only in rounds of successive halving."""

    @property
    def loss_weight(self) -> float:
        """C or nu."""
        return LossWeight(self.C, self.nu).value

    @property
    def score(self) -> float:
        """The mean over the folds."""
        return float(np.mean(self.folds))

    @property
    def error(self) -> float:
        """The same as ``score``, under its name for measures that are errors."""
        return self.score

    @property
    def errors(self) -> tuple[float, ...]:
        """The same as ``folds``, under its name for measures that are errors."""
        return self.folds

    @property
    def spread(self) -> float:
        """The standard error of ``score``, if folds are regarded as independent."""
        return float(np.std(self.folds, ddof=1) / len(self.folds) ** 0.5)

    def facts(self, measure: Measure = ERROR) -> JsonObject:
        """Return the row of the table as JSON values."""
        folds = {f"fold_{k + 1}": value for k, value in enumerate(self.folds)}
        point = {"landmarks": self.landmarks, "gamma": self.gamma, "C": self.C}
        point |= {} if self.nu is None else {"nu": self.nu}
        name = "error" if measure in {ERROR, RMSE, BALANCED_ERROR} else "score"
        scores = {name: self.score, "standard_error": self.spread, **folds}
        point |= scores | {"rank": self.rank, "passes": self.passes, "gap": self.gap}
        return point if self.share == 1.0 else point | {"share": self.share}


def best_of(scores: Sequence[Score], measure: Measure = ERROR) -> Score:
    """Return the point with the best score on all rows; among equal scores the one with the fewest landmarks, then with
    the smallest C or nu.
    """
    whole = [score for score in scores if score.share == 1.0]
    return min(whole, key=lambda score: (measure.rank(score.score), score.landmarks or 0, score.loss_weight))


def write_results(out: Path, scores: Sequence[Score], facts: JsonObject, measure: Measure = ERROR) -> tuple[str, ...]:
    """Write the CSV table, the heat map and, last, the JSON table; return a notice if no picture could be drawn. Raises
    StorageError.
    """
    rows, best, is_grid = [score.facts(measure) for score in scores], best_of(scores, measure), _is_grid(scores)
    sheet = io.StringIO()
    columns = list(dict.fromkeys(name for row in rows for name in row))
    # points that used all rows have no value in the column "share": write 1
    writer = csv.DictWriter(sheet, columns, restval=1.0, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    durable.write_file(out / SHEET, sheet.getvalue().encode())
    durable.write_file(out / MAP, ("\n".join(map_lines(scores, measure)) + "\n").encode())
    picture = picture_of(scores, measure) if is_grid else None
    if picture is not None:
        durable.write_file(out / PICTURE, picture)
    table = {
        **facts,
        "measure": measure.title,
        "in_percent": measure.percent,
        **({"higher_is_better": True} if measure.higher_is_better else {}),
        "best": best.facts(measure),
        "best_folds": list(best.folds),
        "scores": rows,
    }
    durable.write_file(out / TABLE, json.dumps(table, indent=1).encode())
    if picture is not None or not is_grid:
        return ()
    return (f"{MAP} is text: a picture needs pip install 'streamsvm[plot]'",)


class Panel(NamedTuple):
    """The scores for one gamma."""

    gamma: float | None
    """None if the kernel has no gamma."""
    landmarks: list[int | None]
    """Number of landmarks of each row."""
    weights: list[float]
    """C or nu of each column."""
    scores: Float64
    """Scores (landmarks, weights); NaN for points that were not tried."""


def panels(scores: Sequence[Score]) -> list[Panel]:
    """Return one panel for each gamma, all of the same size."""
    scores = [score for score in scores if score.share == 1.0]
    landmarks = list(dict.fromkeys(score.landmarks for score in scores))
    weights = sorted({score.loss_weight for score in scores})
    all_panels = []
    for gamma in dict.fromkeys(score.gamma for score in scores):
        table = np.full((len(landmarks), len(weights)), np.nan)
        for score in scores:
            if score.gamma == gamma:
                table[landmarks.index(score.landmarks), weights.index(score.loss_weight)] = score.score
        all_panels.append(Panel(gamma, landmarks, weights, table))
    return all_panels


def _is_grid(scores: Sequence[Score]) -> bool:
    """Return whether all combinations of the values tried have a score."""
    return not any(np.isnan(panel.scores).any() for panel in panels(scores))


def axis_of(scores: Sequence[Score]) -> str:
    """Return the name of the parameter whose values are the columns of the heat map."""
    return "C" if scores[0].nu is None else "nu"


def map_lines(scores: Sequence[Score], measure: Measure = ERROR) -> Iterator[str]:
    """Yield the scores as lines of text; * marks the best score, + scores within its standard error."""
    best = best_of(scores, measure)
    if _is_grid(scores):
        yield from _panel_lines(scores, best, measure)
    else:
        yield from _list_lines(scores, best, measure)
    unit = " %" if measure.percent else ""
    yield f"* best, {measure.text(best.score)}{unit}; + within its standard error, {measure.text(best.spread)}"


def _panel_lines(scores: Sequence[Score], best: Score, measure: Measure) -> Iterator[str]:
    for panel in panels(scores):
        yield measure.heading + (f", gamma {panel.gamma:.4g}" if panel.gamma is not None else "")
        corner = f"landmarks \\ {axis_of(scores)}"
        yield corner.ljust(14) + "".join(f"{weight:>10.4g} " for weight in panel.weights)
        for m, values in zip(panel.landmarks, panel.scores, strict=True):
            cells = (f"{measure.text(value):>10}{_mark(value, best, measure)}" for value in values.tolist())
            yield f"{m or '-':<14}" + "".join(cells)
        yield ""


def _list_lines(scores: Sequence[Score], best: Score, measure: Measure) -> Iterator[str]:
    """Yield one line for each point, the best first."""
    whole = sorted((s for s in scores if s.share == 1.0), key=lambda s: measure.rank(s.score))
    yield f"{axis_of(scores):>10} {'gamma':>10} {'landmarks':>10} {measure.heading:>20}"
    for s in whole[:MOST_LINES]:
        gamma = "-" if s.gamma is None else f"{s.gamma:.4g}"
        value = f"{measure.text(s.score):>20}{_mark(s.score, best, measure)}"
        yield f"{s.loss_weight:>10.4g} {gamma:>10} {s.landmarks or '-':>10} {value}".rstrip()
    if len(whole) > MOST_LINES:
        yield f"... and {len(whole) - MOST_LINES} more in {TABLE}"
    yield ""


def _mark(value: float, best: Score, measure: Measure) -> str:
    if value == best.score:
        return "*"
    return "+" if measure.rank(value) <= measure.rank(best.score) + best.spread else " "


def picture_of(scores: Sequence[Score], measure: Measure = ERROR) -> bytes | None:
    """Return the heat map as PNG; None without matplotlib."""
    try:
        from matplotlib.figure import Figure
    except ModuleNotFoundError:
        return None
    drawn, factor = panels(scores), 100.0 if measure.percent else 1.0
    height, width = drawn[0].scores.shape
    figure = Figure(figsize=(len(drawn) * (1.5 + 0.7 * width), 1.6 + 0.45 * height), layout="constrained")
    low, high = (factor * f(score.score for score in scores if score.share == 1.0) for f in (min, max))
    colors = "viridis" if measure.higher_is_better else "viridis_r"
    for axes, panel in zip(figure.subplots(1, len(drawn), squeeze=False)[0], drawn, strict=True):
        image = axes.imshow(factor * panel.scores, vmin=low, vmax=high, cmap=colors, aspect="auto")
        axes.set_xticks(range(width), [f"{weight:.3g}" for weight in panel.weights], rotation=45)
        axes.set_yticks(range(height), [str(m or "-") for m in panel.landmarks])
        axes.set(xlabel=axis_of(scores), ylabel="landmarks")
        axes.set_title(measure.heading + (f", gamma {panel.gamma:.4g}" if panel.gamma is not None else ""))
        for (i, j), value in np.ndenumerate(factor * panel.scores):
            bright = (value < (low + high) / 2) != measure.higher_is_better
            axes.text(
                j,
                i,
                f"{value:.1f}" if measure.percent else f"{value:.3g}",
                ha="center",
                va="center",
                color="black" if bright else "white",
            )
    figure.colorbar(image, ax=figure.axes)
    stream = io.BytesIO()
    figure.savefig(stream, format="png", dpi=120)
    return stream.getvalue()


def command_of_best(job: TuneJob, best: Score) -> str:
    """Return the command that fits a model to all rows with the settings of the best point."""
    kind, asked = (FitFilesJob, TuneFilesJob) if isinstance(job, TuneFilesJob) else (FitJob, TuneJob)
    names = {field.name for field in options_of(kind)} & {field.name for field in options_of(asked)}
    shared = field_values(job, names - SEARCH_FIELDS - STOPPING_AND_OUTPUT_FIELDS)
    width: dict[str, Any] = {} if best.gamma is None else {"gamma": best.gamma}
    point = kind(**shared, **width, C=best.C, nu=best.nu, landmarks=best.landmarks, model="model.ssvm")
    return format_command("fit", point)
