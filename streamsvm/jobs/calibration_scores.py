"""Scores of rows by models that did not see them: by leaving each row out of the fit, or by fits of the other folds.

**Leave one out** takes a reading of some rows for the Hessians, and one of all rows for the scores. The formulas are
in ``solvers/leave_one_out.py``. Which rows are drawn is a function of the seed, the layout and the number of the
chunk. With m of n rows in H, h comes out about p / m of itself too large, and h, p / n or so, is the correction of a
score in units of what the row lacks to the margin: m = WANTED p rows, where there are more, leave an error of (p /
m)^2 or so. The chunks are scored in groups that the store decides, by the threads of the fit or the workers of a
cluster, each with a reading and a feature map of its own; chunks of a group, and then groups, are counted in their
order. So probabilities do not depend on who made them.

**Folds** are for what these formulas do not reach, and for rows that must stay together. The fit is made once more for
each fold, without its chunks, and started from the solution where the solver can be; then one reading shows each chunk
to the model that did not see it. Folds are chunks that were dealt at random (``jobs.folds``): rows that lie together
stay together.
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
from streamsvm.compute.threading import in_strips
from streamsvm.engine.executor import Executor, Task
from streamsvm.engine.loop import FitLoop
from streamsvm.jobs import folds as folding
from streamsvm.jobs.calibrate import Outcomes, TimeLeft
from streamsvm.jobs.fit.outputs import weights_and_expansion
from streamsvm.jobs.fit.plan import Plan
from streamsvm.model import Model
from streamsvm.rows import Float64, Int32, Rows, row_count
from streamsvm.schedule.stream import Loaded, Stream, epoch_visits, visit_seed
from streamsvm.solvers.leave_one_out import HessianSum, LeaveOneOut, SeenRows
from streamsvm.types import FeatureMap, FeaturePart, Layout, LinearSolution, Problem, Store, Visit

WANTED = 100
"""Rows drawn for each component; of fewer all are taken."""
SPREAD = 4
"""Times the chunks that would do are read: rows of one chunk may be alike ..."""
LEAST_CHUNKS = 32
"""... and so many at least."""
MOST_GROUPS = 64
"""Groups of chunks whose scores are one task: enough for many workers, few tables to be sent."""
HESSIAN, SAMPLE = 1, 2
"""What draws are for: numbers of epochs that no pass has, to the generator of seeds."""


@dataclass(frozen=True, slots=True)
class _Drawn:
    """The rows a Hessian is made of."""

    chunks: tuple[int, ...]
    """The chunks they lie in, rising."""
    share: float
    """The share of the rows of these chunks that is drawn."""
    factor: float
    """One over the probability of a row, of any chunk."""

    def factors(self, chunk: int, rows: int, seed: int) -> Float64:
        """Return one over the probability (n,) of the rows of a chunk that were drawn, 0 for others."""
        if self.share >= 1.0:
            return np.full(rows, self.factor if chunk in self.chunks else 0.0)
        if chunk not in self.chunks:
            return np.zeros(rows)
        return np.where(draws(seed, HESSIAN, chunk, rows) < self.share, self.factor, 0.0)


@dataclass(frozen=True, slots=True)
class FinishedFit:
    """What a fit has found, as it saw the rows."""

    store: Store
    """What was trained on."""
    features: FeatureMap
    """From its rows to what the solver saw."""
    problems: Sequence[Problem]
    """What was solved, by C and then by class."""
    weights: Float64
    """Of each problem, (problems, columns + 1)."""
    depth: int
    """Blocks read ahead, by each thread."""
    seed: int
    """Of what is drawn."""
    time: TimeLeft
    """What the scores may take, by the clock of this process."""


def draws(seed: int, use: int, chunk: int, rows: int) -> Float64:
    """Return a random number from 0 to 1 for each row of a chunk, (n,)."""
    return np.random.default_rng((visit_seed(seed, use, chunk), use)).random(rows)


class _Scoring(NamedTuple):
    """What turns chunks into scores."""

    solved: FinishedFit
    """The fit."""
    drawn: _Drawn
    """The rows its Hessians were made of."""
    problems: list[LeaveOneOut]
    """What gives the scores of each problem."""
    outcomes: Sequence[Outcomes]
    """Whose tables are made."""


def leave_one_out_scores(solved: FinishedFit, outcomes: Sequence[Outcomes], executor: Executor) -> list[ScoreTable]:
    """Return the scores for each of ``outcomes``, whose problems follow each other. Raises CalibrationTimeout, what
    reading raises.
    """
    layout = solved.store.layout
    drawn = _draw_rows(layout, solved.problems[0].columns + 1, solved.seed)
    scoring = _Scoring(solved, drawn, _factorize(solved, _hessians(solved, drawn)), outcomes)
    task, groups = Task("calibrate", tables_of_group), groups_of(len(layout.chunks))
    made = executor.map(task, groups, (executor.share(scoring),), lambda _done: solved.time.check())
    with closing(made) as found:
        return reduce(_merge_tables, found)


def groups_of(chunks: int) -> list[range]:
    """Return the numbers of the chunks of each group."""
    ends = np.linspace(0, chunks, min(chunks, MOST_GROUPS) + 1).astype(int).tolist()
    return [range(start, stop) for start, stop in pairwise(ends)]


def tables_of_group(chunks: range, scoring: _Scoring) -> list[ScoreTable]:
    """Return the tables of the scores of some chunks, one for each of the outcomes."""
    with closing(iterate_tables(chunks, scoring)) as found:
        return reduce(_merge_tables, found)


def iterate_tables(chunks: Iterable[int], scoring: _Scoring) -> Generator[list[ScoreTable]]:
    """Yield the tables of chunk after chunk; the next one is read meanwhile."""
    solved, drawn = scoring.solved, scoring.drawn
    features, w = copy.copy(solved.features), np.ascontiguousarray(solved.weights.T)
    for loaded in _read_chunks(solved, chunks):
        chunk, codes, weights = loaded.visit.chunk, loaded.chunk.codes, _weights(loaded)
        factors = drawn.factors(chunk, len(codes), solved.seed)
        scores = np.empty((len(codes), len(scoring.problems)))
        for part in features.parts(loaded.chunk.X):
            span, f = slice(part.start, part.stop), operators.margins(part.X, w)
            for k, one in enumerate(scoring.problems):
                rows = find_seen_rows(one.problem, part, codes[span], weights[span], factors[span])
                scores[span, k] = one.scores(rows, np.ascontiguousarray(f[:, k]))
        lots = draws(solved.seed, SAMPLE, chunk, len(codes))
        yield [
            build_score_table(scores[:, mine.columns], mine.truth(codes), weights, lots) for mine in scoring.outcomes
        ]


def _merge_tables(one: list[ScoreTable], other: list[ScoreTable]) -> list[ScoreTable]:
    return [before.merge(new) for before, new in zip(one, other, strict=True)]


def find_seen_rows(problem: Problem, part: FeaturePart, codes: Int32, weights: Float64, drawn: Float64) -> SeenRows:
    """Return the rows of a part of a block as a problem sees them."""
    y = problem.kind.targets(codes)
    factors = np.asarray(problem.weights, np.float32)[codes] if problem.weights else np.ones(len(codes), np.float32)
    return SeenRows(part.X, y, factors, weights, drawn)


def _draw_rows(layout: Layout, components: int, seed: int) -> _Drawn:
    """Return the rows for the Hessians: all, or some of some chunks."""
    rows, chunks = layout.rows, len(layout.chunks)
    wanted = min(1.0, WANTED * components / rows)
    read = min(chunks, max(LEAST_CHUNKS, int(np.ceil(SPREAD * wanted * chunks))))
    chosen = np.random.default_rng((seed, chunks)).permutation(chunks)[:read]
    share = min(1.0, wanted * chunks / read)
    return _Drawn(tuple(sorted(chosen.tolist())), share, chunks / (read * share))


def _hessians(solved: FinishedFit, drawn: _Drawn) -> list[HessianSum]:
    """Return the sums of every problem, over the rows that were drawn: nothing is computed of others."""
    found = [HessianSum(problem) for problem in solved.problems]
    w = np.ascontiguousarray(solved.weights.T)
    for loaded in _read_chunks(solved, drawn.chunks):
        factors = drawn.factors(loaded.visit.chunk, len(loaded.chunk.codes), solved.seed)
        chosen = np.flatnonzero(factors)
        X = loaded.chunk.X if len(chosen) == len(factors) else take_rows(loaded.chunk.X, chosen)
        codes, weights, factors = loaded.chunk.codes[chosen], _weights(loaded)[chosen], factors[chosen]
        for part in solved.features.parts(X):
            _count(found, part, codes, (weights, factors), operators.margins(part.X, w))
    return found


def _count(
    found: list[HessianSum], part: FeaturePart, codes: Int32, counted: tuple[Float64, Float64], f: Float64
) -> None:
    """Add the rows of a part to the sums of all problems; f (n, problems) is what the solutions say of them."""
    span = slice(part.start, part.stop)
    weights, factors = (values[span] for values in counted)

    def add(start: int, stop: int) -> None:
        for k in range(start, stop):
            rows = find_seen_rows(found[k].problem, part, codes[span], weights, factors)
            found[k].add(rows, np.ascontiguousarray(f[:, k]))

    in_strips(add, len(found), 1)


def _factorize(solved: FinishedFit, totals: list[HessianSum]) -> list[LeaveOneOut]:
    """Return what gives the scores of each problem; the matrices of ``totals`` are used up."""
    found = []
    for total in totals:
        solved.time.check()
        found.append(LeaveOneOut.of(total, solved.seed))
    return found


def _read_chunks(solved: FinishedFit, chunks: Iterable[int]) -> Iterator[Loaded]:
    """Yield chunk after chunk, as long as there is time."""
    visits = (Visit(0, chunk, 0, shuffled=False, last=False) for chunk in chunks)
    with Stream(solved.store, visits, depth=solved.depth) as stream:
        for loaded in stream:
            solved.time.check()
            yield loaded


def _weights(loaded: Loaded) -> Float64:
    """Return how often each row of a chunk counts, (n,)."""
    weight = loaded.chunk.weight
    return np.ones(len(loaded.chunk.codes)) if weight is None else weight.astype(np.float64)


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
class FoldDecision:
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
    """Return the scores for each of ``outcomes``. Raises UsageError for too few rows, CalibrationTimeout, and what
    training raises.
    """
    store = folding.cut_finer(seen, fits.folds, fits.depth)
    fold = folding.deal_chunks(store.layout, fits.folds, fits.seed)
    decisions = []
    for number in range(fits.folds):
        chunks = tuple(np.flatnonzero(fold == number).tolist())
        rows = store.layout.rows - sum(store.layout.chunks[chunk] for chunk in chunks)
        problems = [replace(problem, rows=rows, held_out=chunks) for problem in fits.plan.problems]
        decisions.append(_fit_without_fold(fits, store, replace(fits.plan, problems=problems, layout=store.layout)))
    return _scores(fits, store, fold.tolist(), decisions, outcomes)


def _fit_without_fold(fits: FoldFits, store: Store, plan: Plan) -> FoldDecision:
    """Train on all but the chunks that the problems do not see; the files of row state are those of the whole fit."""
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
    """Read the store once, each chunk through the model of its fold, and return the tables."""
    tables: list[ScoreTable | None] = [None] * len(outcomes)
    with Stream(store, epoch_visits(store.layout, 0, 0, shuffled=False), depth=fits.depth) as stream:
        for loaded in stream:
            fits.time.check()
            chunk, (X, codes, weight) = loaded.visit.chunk, loaded.chunk
            weights = np.ones(len(codes)) if weight is None else weight.astype(np.float64)
            f = decisions[fold[chunk]].of(X)
            lots = draws(fits.seed, SAMPLE, chunk, len(codes))
            for number, mine in enumerate(outcomes):
                new, before = build_score_table(f[:, mine.columns], mine.truth(codes), weights, lots), tables[number]
                tables[number] = new if before is None else before.merge(new)
    return [table for table in tables if table is not None]
