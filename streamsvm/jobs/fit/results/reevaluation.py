"""Certificates that are computed anew, in float64, of what is saved: where features, or the scaling of columns, were float32 to the solver."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache, partial

import numpy as np

from streamsvm.engine.evaluation import Evaluation, MarginChange, evaluated, margins_apart
from streamsvm.engine.training import RowNumbers, Training
from streamsvm.features.nystrom import Embedded, Nystrom
from streamsvm.features.scaling import Raw, Standardized, column_sizes, farthest_reach
from streamsvm.jobs.fit.planning.plan import Plan
from streamsvm.jobs.fit.results.evaluations import Inexact, take_evaluation, weights_of
from streamsvm.jobs.fit.results.row_weights import row_weights
from streamsvm.rows import Float64, row_where
from streamsvm.solvers.rounding import OWN, UNIT, RowWeights, VectorSum, reach_of_weights, two_sum_terms
from streamsvm.types import DUAL, Block, LinearSolution, Store


def evaluate_scaled(
    plan: Plan, training: Training, raw: Store, features: Standardized, known: RowWeights | None
) -> None:
    """Put certificates in place that are computed in float64, of weights folded to the rows as they are stored."""
    solutions = [LinearSolution(weights_of(plan, run), features.bias) for run in training.runs]
    problems = [run.problem for run in training.runs]
    weights = [_folded(features, solution) for solution in solutions]

    def dual_values(k: int, block: Block) -> Float64 | None:
        if not plan.solver.has_dual_witness:
            return None
        copy = row_where(block.X, np.ones(len(block.y), np.bool_))
        return _dual_values(plan, training, k, replace(block, X=features.apply(copy)))

    sums = evaluated(raw, Raw(1.0), problems, weights, _dual_rows(training), dual_values)
    sizes = np.append(column_sizes(Raw(1.0), raw, 1.0)[0][:-1] * features.scale, abs(features.bias))
    for run, solution, evaluation in zip(training.runs, solutions, sums, strict=True):
        evaluation.transform(solution.w, features.unfold)
        size = float(sizes @ reach_of_weights(solution.w))
        off = 2 * (len(sizes) + 2) * UNIT * size  # twice: the folded constant is a sum too
        terms = plan.layout.rows
        if isinstance(evaluation, Evaluation):  # sums in twice the precision, and their way to the scaled columns
            terms = two_sum_terms(terms) + OWN
        v = VectorSum(terms, running=False, spread=float(np.linalg.norm(sizes)))
        take_evaluation(plan, run, evaluation, Inexact(off, v, known, size))


def evaluate_features(plan: Plan, training: Training, raw: Store, map_: Nystrom | Embedded) -> None:
    """Put certificates in place that are computed in float64, of models on kernel features."""
    projection = map_.projection
    weights = [weights_of(plan, run) for run in training.runs]
    problems, dual_values = [run.problem for run in training.runs], partial(_dual_values, plan, training)
    sums = evaluated(raw, map_.in_full(), problems, weights, _dual_rows(training), dual_values, projection.full_bytes)
    known, vectors = row_weights(plan, raw), [evaluation.vector() for evaluation in sums]
    moved = _margin_changes(raw, map_, weights, vectors)
    value, largest = projection.rounding(farthest_reach(projection.inner, raw))
    for run, w, evaluation, apart in zip(training.runs, weights, sums, moved, strict=True):
        reach = reach_of_weights(w)
        coefficients = float(reach_of_weights((projection.W @ w[..., :-1].T).T).sum())
        off = coefficients * value + 2 * UNIT * abs(map_.bias * float(reach[-1]))
        # features, v of which is made, are sums over W: to first order what they are off by counts once more
        off += value * float(reach[:-1] @ np.abs(projection.W).sum(axis=0, dtype=np.float64))
        v = VectorSum(plan.layout.rows, running=False, spread=float(np.sqrt(largest + map_.bias**2)))
        size = float(np.sqrt(largest) * np.linalg.norm(reach[:-1]) + abs(map_.bias * reach[-1]))
        take_evaluation(plan, run, evaluation, Inexact(off, v, known, size, apart))


def _margin_changes(
    raw: Store, map_: Nystrom | Embedded, weights: list[Float64], vectors: list[Float64]
) -> list[Callable[[], MarginChange]]:
    """For each weights what says by how much margins differ in both arithmetics: rows are mapped twice when the first is asked.

    The optimum lies between the weights and the ``vectors`` of their dual points: at w = 0 no margin differs.
    """

    @cache
    def compared() -> list[MarginChange]:
        found = margins_apart(raw, map_.in_single(), map_.in_full(), [*weights, *vectors])
        return [MarginChange.joined(*pair) for pair in zip(found[: len(weights)], found[len(weights) :], strict=True)]

    def of(k: int) -> MarginChange:
        return compared()[k]

    return [partial(of, k) for k in range(len(weights))]


def _folded(features: Standardized, solution: LinearSolution) -> Float64:
    """The weights of raw columns, in the shape they have."""
    rows = [features.fold(LinearSolution(w, solution.bias)).w for w in np.atleast_2d(solution.w)]
    return np.array(rows).reshape(solution.w.shape)


def _dual_values(plan: Plan, training: Training, k: int, block: Block) -> Float64 | None:
    """Those of the rows of a block in problem k, where the solver can say them."""
    solver = plan.solver
    return solver.dual_values(training.runs[k].witnessed(), block) if solver.has_dual_witness else None


def _dual_rows(training: Training) -> RowNumbers | None:
    """The dual variables of all rows, where the solver has them."""
    states = training.row_states.get(DUAL)
    assert states is None or isinstance(states, RowNumbers)
    return states
