"""Scores of rows by models of the other folds: what leave-one-out formulas do not reach, and rows that must stay together.

The fit is made once more for each fold, without its chunks, and started from the solution where the solver can be; then
one reading shows each chunk to the model that did not see it. Folds are chunks that were dealt at random (``jobs.tune.folds``): rows
that lie together stay together.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, replace

import numpy as np

from streamsvm.calibration.scores import ScoreTable, table_of
from streamsvm.compute.blocks import operators
from streamsvm.engine.trainer import FitLoop
from streamsvm.jobs.calibrate.leave_one_out import SAMPLE, draws
from streamsvm.jobs.calibrate.outcomes import Outcomes
from streamsvm.jobs.calibrate.time_left import TimeLeft
from streamsvm.jobs.fit.planning.plan import Plan
from streamsvm.jobs.fit.results.models import function_of
from streamsvm.jobs.tune import folds as folding
from streamsvm.model import Model
from streamsvm.rows import Float64, Rows, row_count
from streamsvm.schedule.plan import epoch_visits
from streamsvm.schedule.stream import Stream
from streamsvm.types import LinearSolution, Store


@dataclass(frozen=True, slots=True)
class FoldFits:
    """What the fits of folds are made with."""

    plan: Plan
    """Of the whole fit; its problems start from what they have come to, where they can."""
    loop: Callable[[Store, Plan], FitLoop]
    """Makes the loop of a fit."""
    seed: int
    """Of what is drawn."""
    depth: int
    """Blocks read ahead."""
    max_passes: int
    """What a fit may cost ..."""
    time: TimeLeft
    """... and all of them."""
    folds: int = 0
    """How many."""


@dataclass(frozen=True, slots=True)
class _Decision:
    """The decision values of a fit whose solutions are known."""

    plan: Plan
    weights: Float64 | None
    """Of problems that are linear in what the solver sees, (components, problems)."""
    model: Model | None
    """Of exact kernels, on rows as they are stored."""

    def of(self, X: Rows) -> Float64:
        """Return them (n, problems); ``X`` may be changed."""
        if self.model is not None:
            return self.model.decision(X)
        assert self.weights is not None
        found = np.empty((row_count(X), self.weights.shape[1]))
        for part in self.plan.features.parts(X):
            found[part.start : part.stop] = operators.margins(part.X, self.weights)
        return found


def fold_scores(fits: FoldFits, seen: Store, outcomes: Sequence[Outcomes]) -> list[ScoreTable]:
    """Return the scores for each of ``outcomes``. Raises UsageError for too few rows, CalibrationTimeout, and what training raises."""
    store = folding.cut_finer(seen, fits.folds, fits.depth)
    fold = folding.round_robin(store.layout, fits.folds, fits.seed)
    decisions = []
    for number in range(fits.folds):
        chunks = tuple(np.flatnonzero(fold == number).tolist())
        rows = store.layout.rows - sum(store.layout.chunks[chunk] for chunk in chunks)
        problems = [replace(problem, rows=rows, held_out=chunks) for problem in fits.plan.problems]
        decisions.append(_fitted(fits, store, replace(fits.plan, problems=problems, layout=store.layout)))
    return _scores(fits, store, fold.tolist(), decisions, outcomes)


def _fitted(fits: FoldFits, store: Store, plan: Plan) -> _Decision:
    """Train on all but the chunks that the problems do not see; the files of row state are those of the whole fit."""
    plan = replace(plan, memory=replace(plan.memory, cached=False, resident=True))
    with closing(fits.loop(store, plan)) as loop:
        training = loop.train(fits.time.stop(fits.max_passes), fits.time)
        fits.time.whole(training)
        solutions = [plan.solver.solution(run.state) for run in training.runs]
        linear = [
            problem.decision_weights(solution.w)
            for problem, solution in zip(plan.problems, solutions, strict=True)
            if isinstance(solution, LinearSolution)
        ]
        if linear:
            return _Decision(plan, np.concatenate(linear).T, None)
        weights, expansion = function_of(plan, training)
        return _Decision(plan, None, Model(weights, plan.class_names, {}, expansion))


def _scores(
    fits: FoldFits, store: Store, fold: list[int], decisions: Sequence[_Decision], outcomes: Sequence[Outcomes]
) -> list[ScoreTable]:
    """One reading: each chunk through the model of its fold."""
    tables: list[ScoreTable | None] = [None] * len(outcomes)
    with Stream(store, epoch_visits(store.layout, 0, 0, shuffled=False), depth=fits.depth) as stream:
        for loaded in stream:
            fits.time.check()
            chunk, (X, codes, weight) = loaded.visit.chunk, loaded.chunk
            weights = np.ones(len(codes)) if weight is None else weight.astype(np.float64)
            f = decisions[fold[chunk]].of(X)
            lots = draws(fits.seed, SAMPLE, chunk, len(codes))
            for number, mine in enumerate(outcomes):
                new, before = table_of(f[:, mine.columns], mine.truth(codes), weights, lots), tables[number]
                tables[number] = new if before is None else before.joined(new)
    return [table for table in tables if table is not None]
