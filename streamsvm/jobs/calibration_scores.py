"""Compute out-of-sample scores of rows: by leaving out one row at a time, or by fits of all other folds.

**Leave-one-out** takes one pass over a sample of rows for the Hessians, and one pass over all rows for the scores. The
formulas are in ``solvers/leave_one_out.py``. The sample depends on the seed, the layout and the number of the chunk
only. The correction of a score is proportional to the leverage h, about p / n. With m of n rows in the Hessian, h is too
large by a relative error of about p / m; m = WANTED p rows, if there are more, give an error of about (p / m)^2. Chunks
are scored in groups that depend on the store alone, by the threads of the fit or by the workers of a cluster, each
reading the store with its own copy of the feature map. Chunks of a group, and then groups, are merged in order, so that
the probabilities do not depend on the number of threads or workers.

**Folds** are for problems to which these formulas do not apply, and for rows that must stay together. The fit is repeated
for each fold without its chunks, warm-started from the solution if the solver supports that. Then one pass applies to
each chunk the model that was not trained on it. Folds consist of randomly assigned chunks (``jobs.folds``), so that rows
of a chunk stay together.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import reduce
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from streamsvm.calibration.scores import ScoreTable, build_score_table
from streamsvm.compute.blocks import operators
from streamsvm.compute.blocks.selection import take_rows
from streamsvm.compute.random import visit_seed
from streamsvm.compute.threading import in_strips
from streamsvm.engine.executor import Executor, Task
from streamsvm.engine.loop import FitLoop
from streamsvm.jobs import folds as folding
from streamsvm.jobs.calibrate import Outcomes, TimeLeft
from streamsvm.jobs.fit.outputs import weights_and_expansion
from streamsvm.jobs.fit.plan import Plan
from streamsvm.model import Model
from streamsvm.rows import Float64, Int32, Rows, row_count
from streamsvm.schedule.stream import LoadedChunk, Stream, epoch_visits
from streamsvm.solvers.leave_one_out import HessianSum, LeaveOneOut, SeenRows
from streamsvm.types import FeatureMap, FeaturePart, Layout, LinearSolution, Problem, Store, Visit

WANTED = 100
"""The number of rows per component that are sampled for a Hessian; if there are fewer, all rows are used."""
SPREAD = 4
"""The sample is spread over this multiple of the chunks that it would fill, as rows of a chunk may be alike."""
LEAST_CHUNKS = 32
"""Minimum number of chunks over which the sample is spread."""
MOST_GROUPS = 64
"""Maximum number of groups of chunks, each of which is a task: enough for many workers, with few tables to send."""
HESSIAN, SAMPLE = 1, 2
"""The uses of random numbers; in the seed they take the place of a pass number."""


@dataclass(frozen=True, slots=True)
class _Drawn:
    """The sample of rows for a Hessian."""

    chunks: tuple[int, ...]
    """The chunks of the sample in ascending order."""
    share: float
    """The sampling probability of a row of these chunks."""
    factor: float
    """The inverse sampling probability of a row of any chunk."""

    def factors(self, chunk: int, rows: int, seed: int) -> Float64:
        """Return the inverse probabilities (n,) of the sampled rows of a chunk; 0 for other rows."""
        if self.share >= 1.0:
            return np.full(rows, self.factor if chunk in self.chunks else 0.0)
        if chunk not in self.chunks:
            return np.zeros(rows)
        return np.where(draws(seed, HESSIAN, chunk, rows) < self.share, self.factor, 0.0)


@dataclass(frozen=True, slots=True)
class FinishedFit:
    """The solution of a fit, in terms of the rows that the solver has seen."""

    store: Store
    """The store that the solver has read."""
    features: FeatureMap
    """The map from its rows to the rows that the solver has seen."""
    problems: Sequence[Problem]
    """The problems, ordered by C and then by class."""
    weights: Float64
    """The weights of each problem, (problems, columns + 1)."""
    depth: int
    """The number of blocks that each thread reads ahead."""
    seed: int
    """The seed of samples."""
    time: TimeLeft
    """The time left for the scores, by the clock of this process."""


def draws(seed: int, use: int, chunk: int, rows: int) -> Float64:
    """Return a uniform random number in [0, 1) for each row of a chunk, (n,)."""
    return np.random.default_rng((visit_seed(seed, use, chunk), use)).random(rows)


class _Scoring(NamedTuple):
    """The inputs for scoring chunks."""

    solved: FinishedFit
    drawn: _Drawn
    """The rows in the Hessians."""
    problems: list[LeaveOneOut]
    """The factorized Hessian of each problem, which gives its scores."""
    outcomes: Sequence[Outcomes]
    """The outcomes of each C, for each of which a table is computed."""


def leave_one_out_scores(solved: FinishedFit, outcomes: Sequence[Outcomes], executor: Executor) -> list[ScoreTable]:
    """Return the leave-one-out scores for each of ``outcomes``. Raises CalibrationTimeout and the errors of reading."""
    layout = solved.store.layout
    drawn = _draw_rows(layout, solved.problems[0].columns + 1, solved.seed)
    scoring = _Scoring(solved, drawn, _factorize(solved, _hessians(solved, drawn)), outcomes)
    task, groups = Task("calibrate", tables_of_group), groups_of(len(layout.chunks))
    results = executor.map(task, groups, (executor.share(scoring),), lambda _done: solved.time.check())
    with closing(results) as tables:
        return reduce(_merge_tables, tables)


def groups_of(chunks: int) -> list[range]:
    """Return the numbers of the chunks of each group."""
    ends = np.linspace(0, chunks, min(chunks, MOST_GROUPS) + 1).astype(int).tolist()
    return [range(start, stop) for start, stop in pairwise(ends)]


def tables_of_group(chunks: range, scoring: _Scoring) -> list[ScoreTable]:
    """Return the tables of the scores of some chunks, one for each of the outcomes."""
    with closing(iterate_tables(chunks, scoring)) as tables:
        return reduce(_merge_tables, tables)


def iterate_tables(chunks: Iterable[int], scoring: _Scoring) -> Generator[list[ScoreTable]]:
    """Yield the tables of one chunk after the other, while the next chunk is read."""
    solved, drawn = scoring.solved, scoring.drawn
    features, w = copy.copy(solved.features), np.ascontiguousarray(solved.weights.T)
    for loaded in _read_chunks(solved, chunks):
        chunk, codes, weights = loaded.visit.chunk, loaded.chunk.codes, _weights(loaded)
        factors = drawn.factors(chunk, len(codes), solved.seed)
        scores = np.empty((len(codes), len(scoring.problems)))
        for part in features.parts(loaded.chunk.X):
            span, f = slice(part.start, part.stop), operators.margins(part.X, w)
            for k, leave_one_out in enumerate(scoring.problems):
                rows = find_seen_rows(leave_one_out.problem, part, codes[span], weights[span], factors[span])
                scores[span, k] = leave_one_out.scores(rows, np.ascontiguousarray(f[:, k]))
        lots = draws(solved.seed, SAMPLE, chunk, len(codes))
        yield [
            build_score_table(scores[:, of_C.columns], of_C.truth(codes), weights, lots) for of_C in scoring.outcomes
        ]


def _merge_tables(one: list[ScoreTable], other: list[ScoreTable]) -> list[ScoreTable]:
    return [before.merge(new) for before, new in zip(one, other, strict=True)]


def find_seen_rows(problem: Problem, part: FeaturePart, codes: Int32, weights: Float64, drawn: Float64) -> SeenRows:
    """Return the rows of a part of a block with the targets and weights of a problem."""
    y = problem.kind.targets(codes)
    factors = np.asarray(problem.weights, np.float32)[codes] if problem.weights else np.ones(len(codes), np.float32)
    return SeenRows(part.X, y, factors, weights, drawn)


def _draw_rows(layout: Layout, components: int, seed: int) -> _Drawn:
    """Return the sample of rows for the Hessians: all rows, or some rows of some chunks."""
    rows, chunks = layout.rows, len(layout.chunks)
    fraction = min(1.0, WANTED * components / rows)
    count = min(chunks, max(LEAST_CHUNKS, int(np.ceil(SPREAD * fraction * chunks))))
    chosen = np.random.default_rng((seed, chunks)).permutation(chunks)[:count]
    share = min(1.0, fraction * chunks / count)
    return _Drawn(tuple(sorted(chosen.tolist())), share, chunks / (count * share))


def _hessians(solved: FinishedFit, drawn: _Drawn) -> list[HessianSum]:
    """Return the Hessian of every problem, summed over the sampled rows."""
    sums = [HessianSum(problem) for problem in solved.problems]
    w = np.ascontiguousarray(solved.weights.T)
    for loaded in _read_chunks(solved, drawn.chunks):
        factors = drawn.factors(loaded.visit.chunk, len(loaded.chunk.codes), solved.seed)
        chosen = np.flatnonzero(factors)
        X = loaded.chunk.X if len(chosen) == len(factors) else take_rows(loaded.chunk.X, chosen)
        codes, weights, factors = loaded.chunk.codes[chosen], _weights(loaded)[chosen], factors[chosen]
        for part in solved.features.parts(X):
            _count(sums, part, codes, (weights, factors), operators.margins(part.X, w))
    return sums


def _count(
    sums: list[HessianSum], part: FeaturePart, codes: Int32, counted: tuple[Float64, Float64], f: Float64
) -> None:
    """Add the rows of a part to the Hessians of all problems. ``f``: their decision values (n, problems)."""
    span = slice(part.start, part.stop)
    weights, factors = (values[span] for values in counted)

    def add(start: int, stop: int) -> None:
        for k in range(start, stop):
            rows = find_seen_rows(sums[k].problem, part, codes[span], weights, factors)
            sums[k].add(rows, np.ascontiguousarray(f[:, k]))

    in_strips(add, len(sums), 1)


def _factorize(solved: FinishedFit, totals: list[HessianSum]) -> list[LeaveOneOut]:
    """Return the factorized Hessian of each problem. The matrices of ``totals`` are overwritten."""
    scores = []
    for total in totals:
        solved.time.check()
        scores.append(LeaveOneOut.of(total, solved.seed))
    return scores


def _read_chunks(solved: FinishedFit, chunks: Iterable[int]) -> Iterator[LoadedChunk]:
    """Yield the chunks in order. Raises CalibrationTimeout at the time limit."""
    visits = (Visit(0, chunk, 0, shuffled=False, last=False) for chunk in chunks)
    with Stream(solved.store, visits, depth=solved.depth) as stream:
        for loaded in stream:
            solved.time.check()
            yield loaded


def _weights(loaded: LoadedChunk) -> Float64:
    """Return the weights of the rows of a chunk, (n,)."""
    weight = loaded.chunk.weight
    return np.ones(len(loaded.chunk.codes)) if weight is None else weight.astype(np.float64)


@dataclass(frozen=True, slots=True)
class FoldFits:
    """The inputs of the fits of folds."""

    plan: Plan
    """The plan of the whole fit, warm-started from its solution if the solver supports that."""
    loop: Callable[[Store, Plan], FitLoop]
    """Returns the loop of a fit."""
    seed: int
    """The seed of samples."""
    depth: int
    """The number of blocks to read ahead."""
    max_passes: int
    """Maximum number of passes of each fit."""
    time: TimeLeft
    """The time left for all fits."""
    folds: int = 0
    """The number of folds."""


@dataclass(frozen=True, slots=True)
class FoldDecision:
    """The decision function of a finished fit of a fold."""

    plan: Plan
    weights: Float64 | None
    """The weights of problems that are linear in the solver's features, (components, problems); else None."""
    model: Model | None
    """The model of an exact kernel, for stored rows; else None."""

    def of(self, X: Rows) -> Float64:
        """Return the decision values (n, problems) of rows; ``X`` may be changed."""
        if self.model is not None:
            return self.model.decision(X)
        assert self.weights is not None
        values = np.empty((row_count(X), self.weights.shape[1]))
        for part in self.plan.features.parts(X):
            values[part.start : part.stop] = operators.margins(part.X, self.weights)
        return values


def fold_scores(fits: FoldFits, feature_store: Store, outcomes: Sequence[Outcomes]) -> list[ScoreTable]:
    """Return the scores by folds for each of ``outcomes``. Raises UsageError for too few rows, CalibrationTimeout, and
    the errors of training.
    """
    store = folding.cut_finer(feature_store, fits.folds, fits.depth)
    fold = folding.deal_chunks(store.layout, fits.folds, fits.seed)
    decisions = []
    for number in range(fits.folds):
        chunks = tuple(np.flatnonzero(fold == number).tolist())
        rows = store.layout.rows - sum(store.layout.chunks[chunk] for chunk in chunks)
        problems = [replace(problem, rows=rows, held_out=chunks) for problem in fits.plan.problems]
        decisions.append(_fit_without_fold(fits, store, replace(fits.plan, problems=problems, layout=store.layout)))
    return _scores(fits, store, fold.tolist(), decisions, outcomes)


def _fit_without_fold(fits: FoldFits, store: Store, plan: Plan) -> FoldDecision:
    """Train without the held-out chunks of the problems, and return the decision function."""
    plan = replace(plan, memory=replace(plan.memory, cached=False, resident=True))
    with closing(fits.loop(store, plan)) as loop:
        training = loop.train(fits.time.stop(fits.max_passes), fits.time)
        fits.time.whole(training)
        solutions = [plan.solver.solution(run.state) for run in training.runs]
        linear = [
            problem.kind.decision_weights(solution.w)
            for problem, solution in zip(plan.problems, solutions, strict=True)
            if isinstance(solution, LinearSolution)
        ]
        if linear:
            return FoldDecision(plan, np.concatenate(linear).T, None)
        weights, expansion = weights_and_expansion(plan, training)
        return FoldDecision(plan, None, Model(weights, plan.class_names, {}, expansion))


def _scores(
    fits: FoldFits, store: Store, fold: list[int], decisions: Sequence[FoldDecision], outcomes: Sequence[Outcomes]
) -> list[ScoreTable]:
    """Return the tables of the scores, from one pass that applies to each chunk the model of its fold."""
    tables: list[ScoreTable | None] = [None] * len(outcomes)
    with Stream(store, epoch_visits(store.layout, 0, 0, shuffled=False), depth=fits.depth) as stream:
        for loaded in stream:
            fits.time.check()
            chunk, (X, codes, weight) = loaded.visit.chunk, loaded.chunk
            weights = np.ones(len(codes)) if weight is None else weight.astype(np.float64)
            f = decisions[fold[chunk]].of(X)
            lots = draws(fits.seed, SAMPLE, chunk, len(codes))
            for number, of_C in enumerate(outcomes):
                new, before = build_score_table(f[:, of_C.columns], of_C.truth(codes), weights, lots), tables[number]
                tables[number] = new if before is None else before.merge(new)
    return [table for table in tables if table is not None]
