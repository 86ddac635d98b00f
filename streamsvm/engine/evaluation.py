"""Evaluation of given weights and dual variables in one pass over all rows, group by group, without training."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from streamsvm.compute.blocks import operators
from streamsvm.engine.fit_state import RowNumbers
from streamsvm.engine.row_sums import ProblemBlock, RowsInGroups, Summation, sum_groups
from streamsvm.losses import threshold
from streamsvm.rows import Float64, Rows, row_where
from streamsvm.schedule.stream import Stream, epoch_visits
from streamsvm.solvers.evaluation import HALF_WIDTHS
from streamsvm.types import Block, FeatureMap, Problem, Store
from streamsvm.types.state import merge_states

COMPARED_CHUNKS, COMPARED_ROWS = 8, 256
"""Number of chunks, and rows of each, whose features are computed by two maps to measure the effect of rounding in
float32."""


def evaluate_problems(  # noqa: PLR0917
    store: Store,
    features: FeatureMap,
    problems: list[Problem],
    weights: list[Float64],
    dual: RowNumbers | None,
    dual_values: Callable[[int, Block], Float64 | None] = lambda _k, _block: None,
    working: int = 0,
) -> list[Any]:
    """Return for every problem the sums of its evaluation at its weights, and at its dual variables if they are known.

    The dual variables are read from ``dual``; if it is None, ``dual_values`` returns those of problem k and a block.
    Chunks that a problem holds out are not counted. ``working``: bytes of memory that each thread's map needs. Raises
    what reading the store raises.
    """
    rows = RowsInGroups(store, features, problems, dual, working)
    units = _units(rows, weights)

    def start() -> list[Any]:
        return [
            problem.kind.start_evaluation(problem, w, unit)
            for problem, w, unit in zip(problems, weights, units, strict=True)
        ]

    def add(evaluations: list[Any], problem_block: ProblemBlock) -> None:
        k, block, alpha = problem_block
        evaluations[k].add(block, dual_values(k, block) if alpha is None else alpha)

    vectors = sum(2 * len(HALF_WIDTHS) * w.nbytes for w in weights)
    return sum_groups(rows, Summation(start, add, _merge_evaluations, vectors))


def _merge_evaluations(left: list[Any], right: list[Any]) -> list[Any]:
    return [merge_states([a, b]) for a, b in zip(left, right, strict=True)]


def _units(rows: RowsInGroups, weights: list[Float64]) -> list[float]:
    """Return the unit of each problem's margins: 1, or without scale, their mean absolute value in the first block."""
    units = {k: 1.0 for k, problem in enumerate(rows.problems) if problem.regularizer.has_scale}
    for k, block, _ in rows.blocks() if len(units) < len(weights) else ():
        if k not in units:
            mean = float(np.abs(operators.margins(block.X, weights[k])).mean()) if len(block.y) else 0.0
            units[k] = mean or 1.0
        if len(units) == len(weights):
            break
    return [units.get(k, 1.0) for k in range(len(weights))]


class MarginChange(NamedTuple):
    """Differences of margins between two feature maps, over some rows from all parts of a store."""

    largest: float = 0.0
    """The largest absolute difference."""
    root_mean_square: float = 0.0
    """The root of the mean square: the typical difference, since rounding errors have either sign."""

    def larger(self, other: MarginChange) -> MarginChange:
        """Return the larger value of each field."""
        return MarginChange(*map(max, self, other))


def measure_margin_changes(
    store: Store, one: FeatureMap, other: FeatureMap, weights: list[Float64]
) -> list[MarginChange]:
    """Return for each array of weights, (p,) or (classes, p), how much margins differ between two feature maps."""
    all_differences: list[list[Float64]] = [[] for _ in weights]
    visits = list(epoch_visits(store.layout, 0, 0, shuffled=False))
    with Stream(store, iter(visits[:: -(-len(visits) // COMPARED_CHUNKS)])) as stream:
        for loaded in stream:
            chosen = np.arange(len(loaded.chunk.codes)) < COMPARED_ROWS
            values = [_decision_values(map_, row_where(loaded.chunk.X, chosen), weights) for map_ in (one, other)]
            for differences, f, g in zip(all_differences, *values, strict=True):
                # A multinomial margin is a difference of two decision values, hence the factor f.ndim = 2.
                differences.append(f.ndim * np.abs(f - g).ravel())
    return [_margin_change(np.concatenate(differences)) for differences in all_differences]


def _margin_change(differences: Float64) -> MarginChange:
    return MarginChange(float(differences.max(initial=0.0)), float(np.sqrt(np.mean(np.square(differences)))))


def _decision_values(map_: FeatureMap, X: Rows, weights: list[Float64]) -> list[Float64]:
    """Return the decision values of rows, (n,) or (n, classes), for each array of weights. The map may change ``X``."""
    parts = [[operators.margins(part.X, w.T) for w in weights] for part in map_.parts(X)]
    return [np.concatenate(values) for values in zip(*parts, strict=True)]


def sum_weight_with_loss(
    store: Store, features: FeatureMap, problems: list[Problem], weights: list[Float64], error: list[float]
) -> list[float]:
    """Return for every problem sum C_i over the rows whose loss can be above 0, if margins may be wrong by
    ``error``.
    """

    def add(totals: list[float], problem_block: ProblemBlock) -> None:
        k, block, _ = problem_block
        problem = problems[k]
        m = problem.kind.margins(operators.margins(block.X, weights[k].T), block.y)
        may_have_loss = m < threshold(problem.loss) + error[k]
        totals[k] += problem.C * float(block.s[may_have_loss].sum(dtype=np.float64))

    sums = Summation(
        lambda: [0.0] * len(problems), add, lambda left, right: [a + b for a, b in zip(left, right, strict=True)]
    )
    return sum_groups(RowsInGroups(store, features, problems), sums)
