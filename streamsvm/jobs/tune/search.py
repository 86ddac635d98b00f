"""The points that a search tries: a grid, random points, or successive halving; and the refinement around the best
point.

A search consists of rounds of cells. A cell is a combination of landmarks and gamma with several values of C (or nu),
which share its passes. The scores of a round determine the next round. Since rounds depend only on settings and scores,
a resumed search makes the same rounds.

**random**: C and gamma are drawn log-uniformly between the smallest and the largest of the given values, landmarks from
the given values. Each gamma gets as many values of C as were given, because they share its passes.

**halving**: all points of the grid are tried on a small share of the rows, the best third of them on three times as
many rows, and so on up to all rows (Jamieson and Talwalkar, AISTATS 2016). On a share s of the rows, C / s is used in
place of C, so that the ratio of losses to regularization is that of all rows.

**refine**: while the best C, or gamma, is the smallest or the largest value tried, the next value beyond it is tried,
with the ratio of the last two values; then the values halfway between the best C and its neighbors are tried, in two
rounds.
"""

from __future__ import annotations

import math
from collections.abc import Generator, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from streamsvm.jobs.common_options import COST, NU_BOUNDS, LossWeight
from streamsvm.jobs.tune.options import HALVING, RANDOM, TuneJob
from streamsvm.jobs.tune.results import Score, axis_of, best_of
from streamsvm.model.measures import Measure

POINTS = 20
"""Default number of points of a random search."""
FACTOR = 3
"""Each round of halving keeps 1 / FACTOR of the points and uses FACTOR times as many rows."""
LEAST_ROWS = 2000
"""Minimum number of rows of a round of halving, if the store has as many."""
ROWS_PER_LANDMARK = 10
"""Minimum number of rows per landmark in a round of halving, if the store has as many."""
BEYOND = 10.0
"""Ratio of the next value of C to the last one if only one was given."""
MAX_EDGE_ROUNDS, NEIGHBOR_ROUNDS = 8, 2
"""Largest number of refinement rounds beyond an edge, and number of rounds between neighbors after them."""


class Cell(NamedTuple):
    """Landmarks (None for an exact or no kernel) and gamma, and the values of C or nu that share their passes."""

    landmarks: int | None
    gamma: float | str
    weights: tuple[LossWeight, ...]
    share: float = 1.0
    """The share of the rows to use."""


Rounds = Generator[list[Cell], list[Score], None]
"""A generator that yields the cells of a round and is sent their scores, in order."""


def search_rounds(job: TuneJob, grid: Sequence[tuple[int | None, float | str]], rows: int, measure: Measure) -> Rounds:
    """Yield the rounds of a search. ``grid``: all given combinations of landmarks and gamma."""
    cells = [Cell(*point, job.loss_weights) for point in grid]
    if job.search == RANDOM:
        cells = _draw_cells(job, grid)
    if job.search == HALVING:
        scores = yield from _halve(cells, rows, measure)
    else:
        scores = yield cells
    if job.refine:
        yield from _refine(scores, measure)


def _draw_cells(job: TuneJob, grid: Sequence[tuple[int | None, float | str]]) -> list[Cell]:
    """Return random cells; together they have ``job.points`` points."""
    rng, points = np.random.default_rng((job.seed, len(grid))), job.points or POINTS
    landmarks = list(dict.fromkeys(m for m, _ in grid))
    gammas = [gamma for _, gamma in grid if not isinstance(gamma, str)]
    each = points if len(grid) == 1 else len(job.loss_weights)
    cells = []
    while points > 0:
        m = landmarks[int(rng.integers(len(landmarks)))]
        gamma = _draw(rng, gammas) if gammas else grid[int(rng.integers(len(grid)))][1]
        weights = sorted(_draw(rng, [weight.value for weight in job.loss_weights]) for _ in range(min(each, points)))
        cells.append(Cell(m, gamma, tuple(map(job.loss_weights[0].with_value, weights))))
        points -= each
    return cells


def _draw(rng: np.random.Generator, values: Sequence[float]) -> float:
    """Return a log-uniform random number between the smallest and the largest value, rounded to four digits."""
    return float(f"{math.exp(rng.uniform(math.log(min(values)), math.log(max(values)))):.4g}")


def _halve(cells: Sequence[Cell], rows: int, measure: Measure) -> Generator[list[Cell], list[Score], list[Score]]:
    """Yield the rounds of successive halving; return the scores of the last round, on all rows."""
    points = [(cell, weight) for cell in cells for weight in cell.weights]
    landmarks = max((cell.landmarks or 0 for cell in cells), default=0)
    least = min(1.0, max(LEAST_ROWS, ROWS_PER_LANDMARK * landmarks) / max(rows, 1))
    share = max(least, FACTOR ** -float(math.ceil(math.log(max(len(points), 1), FACTOR))))
    while True:
        scores = yield _as_cells(points, share)
        if share >= 1.0:
            return scores
        order = sorted(range(len(points)), key=lambda k: (measure.rank(scores[k].score), k))
        kept = set(order[: max(1, -(-len(points) // FACTOR))])
        points = [point for k, point in enumerate(points) if k in kept]
        share = 1.0 if len(points) == 1 or FACTOR * share > 1.0 - 1e-9 else FACTOR * share


def _as_cells(points: Sequence[tuple[Cell, LossWeight]], share: float) -> list[Cell]:
    """Return cells with these points; points with the same landmarks and gamma share a cell."""
    weights_at: dict[tuple[int | None, float | str], list[LossWeight]] = {}
    for cell, weight in points:
        weights_at.setdefault((cell.landmarks, cell.gamma), []).append(weight)
    return [Cell(*at, tuple(weights), share) for at, weights in weights_at.items()]


def _refine(scores: Sequence[Score], measure: Measure) -> Rounds:
    """Yield refinement rounds, of one cell each, around the best point."""
    known = list(scores)
    for _ in range(MAX_EDGE_ROUNDS):
        cell = _beyond_edge(known, measure)
        if cell is None:
            break
        known += yield [cell]
    for _ in range(NEIGHBOR_ROUNDS):
        best = best_of(known, measure)
        tried = sorted({score.loss_weight for score in known if _has_same_features(score, best)})
        between = [_geometric_mean(*pair) for pair in pairwise(tried) if best.loss_weight in pair]
        fresh = [value for value in between if value not in tried]
        if not fresh:
            break
        known += yield [_cell_at(best, fresh)]


def _beyond_edge(known: Sequence[Score], measure: Measure) -> Cell | None:
    """Return a cell beyond the edge at which the best point lies; None if it lies at no edge."""
    best = best_of(known, measure)
    tried = sorted({score.loss_weight for score in known if _has_same_features(score, best)})
    value = next_beyond(tried, best.loss_weight)
    bounds = COST if best.nu is None else NU_BOUNDS
    if value is not None and bounds.holds(value):
        return _cell_at(best, [value])
    gammas = sorted({s.gamma for s in known if s.gamma is not None and s.landmarks == best.landmarks})
    next_gamma = None if best.gamma is None or len(gammas) < 2 else next_beyond(gammas, best.gamma)
    if next_gamma is None:
        return None
    return _cell_at(best._replace(gamma=next_gamma), tried)


def _has_same_features(score: Score, best: Score) -> bool:
    """Return whether a point has the landmarks and the gamma of the best one."""
    return (score.landmarks, score.gamma) == (best.landmarks, best.gamma)


def next_beyond(tried: Sequence[float], best: float, factor: float = BEYOND) -> float | None:
    """Return the next value beyond the edge at which ``best`` lies, rounded to four digits; None if it lies at no edge.

    ``tried``: the values tried, in ascending order. ``factor``: the ratio to use if there is only one.
    """
    if best not in {tried[0], tried[-1]}:
        return None
    up = best == tried[-1]
    if len(tried) > 1:
        factor = tried[-1] / tried[-2] if up else tried[1] / tried[0]
    return float(f"{best * factor if up else best / factor:.4g}")


def _geometric_mean(one: float, other: float) -> float:
    return float(f"{math.sqrt(one * other):.4g}")


def _cell_at(best: Score, values: Sequence[float]) -> Cell:
    """Return a cell with the landmarks and the gamma of the best point, and other values of C or nu."""
    weights = tuple(map(LossWeight(best.C, best.nu).with_value, values))
    return Cell(best.landmarks, "scale" if best.gamma is None else best.gamma, weights)


def edge_notices(scores: Sequence[Score], measure: Measure, *, refined: bool) -> tuple[str, ...]:
    """Return a notice for each best C, nu or gamma that is the smallest or the largest value tried."""
    best, notices = best_of(scores, measure), []
    axes = {axis_of(scores): ([s.loss_weight for s in scores if _has_same_features(s, best)], best.loss_weight)}
    if best.gamma is not None:
        axes["gamma"] = ([s.gamma for s in scores if s.gamma is not None], best.gamma)
    for name, (values, value) in axes.items():
        tried = sorted(set(values))
        beyond = next_beyond(tried, value) if len(tried) > 1 else None
        if beyond is not None and (name != "nu" or beyond <= 1.0):
            notices.append(
                edge_notice(name, tried, value, beyond, "" if refined else "--refine goes on there, or try ")
            )
    return tuple(notices)


def edge_notice(name: str, tried: Sequence[float], best: float, beyond: float, advice: str = "try ") -> str:
    """Return the notice for a best value that is the smallest or the largest value tried."""
    end, other = ("largest", "larger") if best == max(tried) else ("least", "smaller")
    values = ",".join(f"{value:g}" for value in sorted([best, beyond, beyond * beyond / best]))
    return f"the best {name}, {best:g}, is the {end} that was tried, and a {other} one may be better: {advice or 'try '}--{name} {values}"
