"""Which points a search tries: a grid, random points, or successive halving; and where it goes on around the best one.

A search makes rounds of cells. A cell has landmarks, gamma, and several values of C (or nu) that share its passes; the
scores of a round decide the next one. As the rounds are a function of settings and scores, a search that was stopped
comes to the same ones again.

**random**: C and gamma are drawn evenly by their logarithm between the least and the largest that are given, landmarks
from those that are given. A drawn gamma gets as many values of C as are given, since they share its passes.

**halving**: all points of the grid are tried on a small share of the rows; the best third of them on three times as
many, and so on up to all rows (Jamieson and Talwalkar, AISTATS 2016). On a share s of the rows C is C / s, so that the
norm of the weights counts as it does for all rows.

**refine**: while the best C, or gamma, is the least or the largest that was tried, the next one beyond it is tried, by
the factor of the last two; then the values halfway between the best C and its neighbors, twice.
"""

from __future__ import annotations

import math
from collections.abc import Generator, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from streamsvm.jobs.common_options import COST, SHARE
from streamsvm.jobs.tune.options import HALVING, RANDOM, LossWeight, TuneJob
from streamsvm.jobs.tune.results import Score, axis_of, best_of
from streamsvm.model.measures import Measure

POINTS = 20
"""Random points where their number is not given."""
FACTOR = 3
"""Each round of halving keeps one point in this many, and uses this many times the rows of the one before."""
LEAST_ROWS = 2000
"""The fewest rows of a round of halving; a smaller store is used whole."""
ROWS_PER_LANDMARK = 10
"""A round of halving has at least this many rows for each landmark, where the store has them."""
BEYOND = 10.0
"""Factor by which the next C is larger where only one was given."""
MOST_BEYOND, HALVES = 8, 2
"""Rounds of refinement beyond an edge at most, and those between neighbors after them."""


class Cell(NamedTuple):
    """A map or an exact kernel, and the weights that are tried with it on the same passes."""

    landmarks: int | None
    gamma: float | str
    weights: tuple[LossWeight, ...]
    share: float = 1.0
    """The share of the rows that is used."""


Rounds = Generator[list[Cell], list[Score], None]
"""Yields the cells of a round, and takes their scores in order."""


def search_rounds(job: TuneJob, grid: Sequence[tuple[int | None, float | str]], rows: int, measure: Measure) -> Rounds:
    """Yield the rounds of a search. ``grid``: landmarks and gamma of the points that are given."""
    cells = [Cell(*point, job.loss_weights) for point in grid]
    if job.search == RANDOM:
        cells = _draw_cells(job, grid)
    if job.search == HALVING:
        found = yield from _halve(cells, rows, measure)
    else:
        found = yield cells
    if job.refine:
        yield from _refine(found, measure)


def _draw_cells(job: TuneJob, grid: Sequence[tuple[int | None, float | str]]) -> list[Cell]:
    """Return random cells with ``points`` points in all."""
    rng, points = np.random.default_rng((job.seed, len(grid))), job.points or POINTS
    landmarks = list(dict.fromkeys(m for m, _ in grid))
    widths = [gamma for _, gamma in grid if not isinstance(gamma, str)]
    each = points if len(grid) == 1 else len(job.loss_weights)
    cells = []
    while points > 0:
        m = landmarks[int(rng.integers(len(landmarks)))]
        gamma = _draw(rng, widths) if widths else grid[int(rng.integers(len(grid)))][1]
        weights = sorted(_draw(rng, [weight.value for weight in job.loss_weights]) for _ in range(min(each, points)))
        cells.append(Cell(m, gamma, tuple(map(job.loss_weights[0].with_value, weights))))
        points -= each
    return cells


def _draw(rng: np.random.Generator, values: Sequence[float]) -> float:
    """Return a number evenly by its logarithm between the least and the largest, rounded to four digits."""
    return float(f"{math.exp(rng.uniform(math.log(min(values)), math.log(max(values)))):.4g}")


def _halve(cells: Sequence[Cell], rows: int, measure: Measure) -> Generator[list[Cell], list[Score], list[Score]]:
    """Yield rounds on more and more rows, of fewer and fewer points; return the scores of the last one, of all rows."""
    points = [(cell, weight) for cell in cells for weight in cell.weights]
    landmarks = max((cell.landmarks or 0 for cell in cells), default=0)
    least = min(1.0, max(LEAST_ROWS, ROWS_PER_LANDMARK * landmarks) / max(rows, 1))
    share = max(least, FACTOR ** -float(math.ceil(math.log(max(len(points), 1), FACTOR))))
    while True:
        found = yield _as_cells(points, share)
        if share >= 1.0:
            return found
        order = sorted(range(len(points)), key=lambda k: (measure.rank(found[k].score), k))
        kept = set(order[: max(1, -(-len(points) // FACTOR))])
        points = [point for k, point in enumerate(points) if k in kept]
        share = 1.0 if len(points) == 1 or FACTOR * share > 1.0 - 1e-9 else FACTOR * share


def _as_cells(points: Sequence[tuple[Cell, LossWeight]], share: float) -> list[Cell]:
    """Return points as cells, those of one map together."""
    together: dict[tuple[int | None, float | str], list[LossWeight]] = {}
    for cell, weight in points:
        together.setdefault((cell.landmarks, cell.gamma), []).append(weight)
    return [Cell(*at, tuple(weights), share) for at, weights in together.items()]


def _refine(found: Sequence[Score], measure: Measure) -> Rounds:
    """Yield rounds of one cell around the best point."""
    known = list(found)
    for _ in range(MOST_BEYOND):
        cell = _beyond_edge(known, measure)
        if cell is None:
            break
        known += yield [cell]
    for _ in range(HALVES):
        best = best_of(known, measure)
        tried = sorted({score.loss_weight for score in known if _is_beside(score, best)})
        between = [_middle(*pair) for pair in pairwise(tried) if best.loss_weight in pair]
        fresh = [value for value in between if value not in tried]
        if not fresh:
            break
        known += yield [_cell_at(best, fresh)]


def _beyond_edge(known: Sequence[Score], measure: Measure) -> Cell | None:
    """Return the cell beyond the edge at which the best point lies; None where it lies at none."""
    best = best_of(known, measure)
    tried = sorted({score.loss_weight for score in known if _is_beside(score, best)})
    value = next_beyond(tried, best.loss_weight)
    bounds = COST if best.nu is None else SHARE
    if value is not None and bounds.holds(value):
        return _cell_at(best, [value])
    widths = sorted({s.gamma for s in known if s.gamma is not None and s.landmarks == best.landmarks})
    width = None if best.gamma is None or len(widths) < 2 else next_beyond(widths, best.gamma)
    if width is None:
        return None
    return _cell_at(best._replace(gamma=width), tried)


def _is_beside(score: Score, best: Score) -> bool:
    """Return whether a point differs from the best one in C, or nu, alone."""
    return (score.landmarks, score.gamma) == (best.landmarks, best.gamma)


def next_beyond(tried: Sequence[float], best: float, factor: float = BEYOND) -> float | None:
    """Return the next value beyond the edge, to four digits; None where the best one is inside."""
    if best not in {tried[0], tried[-1]}:
        return None
    up = best == tried[-1]
    if len(tried) > 1:
        factor = tried[-1] / tried[-2] if up else tried[1] / tried[0]
    return float(f"{best * factor if up else best / factor:.4g}")


def _middle(one: float, other: float) -> float:
    return float(f"{math.sqrt(one * other):.4g}")


def _cell_at(best: Score, values: Sequence[float]) -> Cell:
    """Return the cell of a point with other values of C or nu."""
    weights = tuple(map(LossWeight(best.C, best.nu).with_value, values))
    return Cell(best.landmarks, "scale" if best.gamma is None else best.gamma, weights)


def edge_notices(scores: Sequence[Score], measure: Measure, *, refined: bool) -> tuple[str, ...]:
    """Return a notice for the best C, nu and gamma that are the least or the largest of those that were tried."""
    best, found = best_of(scores, measure), []
    axes = {axis_of(scores): ([s.loss_weight for s in scores if _is_beside(s, best)], best.loss_weight)}
    if best.gamma is not None:
        axes["gamma"] = ([s.gamma for s in scores if s.gamma is not None], best.gamma)
    for name, (values, value) in axes.items():
        tried = sorted(set(values))
        beyond = next_beyond(tried, value) if len(tried) > 1 else None
        if beyond is not None and (name != "nu" or beyond <= 1.0):
            found.append(edge_notice(name, tried, value, beyond, "" if refined else "--refine goes on there, or try "))
    return tuple(found)


def edge_notice(name: str, tried: Sequence[float], best: float, beyond: float, advice: str = "try ") -> str:
    """Return the notice of a best value that lies at an edge of those that were tried."""
    end, other = ("largest", "larger") if best == max(tried) else ("least", "smaller")
    values = ",".join(f"{value:g}" for value in sorted([best, beyond, beyond * beyond / best]))
    return f"the best {name}, {best:g}, is the {end} that was tried, and a {other} one may be better: {advice or 'try '}--{name} {values}"
