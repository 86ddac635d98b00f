"""Leave-one-out scores of a fit: a reading of some rows for the Hessians, and one of all rows for the scores.

The formulas are in ``solvers/leave_one_out.py``. Which rows are drawn is a function of the seed, the layout and the number of the chunk.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from streamsvm.calibration.scores import ScoreTable, table_of
from streamsvm.compute.blocks import operators
from streamsvm.jobs.calibrate.outcomes import Outcomes
from streamsvm.jobs.calibrate.time_left import TimeLeft
from streamsvm.rows import Float64, Int32
from streamsvm.schedule.plan import visit_seed
from streamsvm.schedule.stream import Stream
from streamsvm.solvers.leave_one_out import HessianSum, LeaveOneOut, SeenRows
from streamsvm.types import FeatureMap, FeaturePart, Layout, Problem, Store, Visit

WANTED = 400
"""Rows drawn for each component; of fewer all are taken."""
SPREAD = 4
"""Times the chunks that would do are read: rows of one chunk may be alike ..."""
LEAST_CHUNKS = 32
"""... and so many at least."""
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
        """One over the probability (n,) of the rows of a chunk that were drawn, 0 for others."""
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
    """Blocks read ahead."""
    seed: int
    """Of what is drawn."""
    time: TimeLeft
    """What the scores may take."""


def draws(seed: int, use: int, chunk: int, rows: int) -> Float64:
    """Return a random number from 0 to 1 for each row of a chunk, (n,)."""
    return np.random.default_rng((visit_seed(seed, use, chunk), use)).random(rows)


def leave_one_out_scores(solved: FinishedFit, outcomes: Sequence[Outcomes]) -> list[ScoreTable]:
    """Return the scores for each of ``outcomes``, whose problems follow each other. Raises CalibrationTimeout, what reading raises."""
    drawn = _drawn(solved.store.layout, solved.problems[0].columns + 1, solved.seed)
    found = [_factorized(solved, total) for total in _hessians(solved, drawn)]
    tables: list[ScoreTable | None] = [None] * len(outcomes)
    for visit, codes, weights, parts in _blocks(solved, range(len(solved.store.layout.chunks))):
        factors = drawn.factors(visit.chunk, len(codes), solved.seed)
        scores = np.empty((len(codes), len(found)))
        for part, f in parts:
            span = slice(part.start, part.stop)
            for k, one in enumerate(found):
                rows = seen_rows(one.problem, part, codes[span], weights[span], factors[span])
                scores[span, k] = one.scores(rows, f[:, k])
        lots = draws(solved.seed, SAMPLE, visit.chunk, len(codes))
        for number, mine in enumerate(outcomes):
            new = table_of(scores[:, mine.columns], mine.truth(codes), weights, lots)
            before = tables[number]
            tables[number] = new if before is None else before.joined(new)
    return [table for table in tables if table is not None]


def seen_rows(problem: Problem, part: FeaturePart, codes: Int32, weights: Float64, drawn: Float64) -> SeenRows:
    """Return the rows of a part of a block as a problem sees them."""
    y = np.where(codes == problem.positive, 1.0, -1.0).astype(np.float32)
    factors = np.asarray(problem.weights, np.float32)[codes] if problem.weights else np.ones(len(codes), np.float32)
    return SeenRows(part.X, y, factors, weights, drawn)


def _drawn(layout: Layout, components: int, seed: int) -> _Drawn:
    """The rows for the Hessians: all, or some of some chunks."""
    rows, chunks = layout.rows, len(layout.chunks)
    wanted = min(1.0, WANTED * components / rows)
    read = min(chunks, max(LEAST_CHUNKS, int(np.ceil(SPREAD * wanted * chunks))))
    chosen = np.random.default_rng((seed, chunks)).permutation(chunks)[:read]
    share = min(1.0, wanted * chunks / read)
    return _Drawn(tuple(sorted(chosen.tolist())), share, chunks / (read * share))


def _hessians(solved: FinishedFit, drawn: _Drawn) -> list[HessianSum]:
    """The sums of every problem."""
    found = [HessianSum(problem) for problem in solved.problems]
    for visit, codes, weights, parts in _blocks(solved, drawn.chunks):
        factors = drawn.factors(visit.chunk, len(codes), solved.seed)
        for part, f in parts:
            span = slice(part.start, part.stop)
            for k, total in enumerate(found):
                total.add(seen_rows(total.problem, part, codes[span], weights[span], factors[span]), f[:, k])
    return found


def _factorized(solved: FinishedFit, total: HessianSum) -> LeaveOneOut:
    """What gives the scores of a problem; the matrix of ``total`` is used up."""
    solved.time.check()
    return LeaveOneOut.of(total, solved.seed)


def _blocks(
    solved: FinishedFit, chunks: Sequence[int]
) -> Iterator[tuple[Visit, Int32, Float64, Iterator[tuple[FeaturePart, Float64]]]]:
    """Chunk by chunk: the visit, the classes of the rows, how often each counts, and parts with decision values (n, problems)."""
    visits = (Visit(0, chunk, 0, shuffled=False, last=chunk == chunks[-1]) for chunk in chunks)
    w = np.ascontiguousarray(solved.weights.T)
    with Stream(solved.store, visits, depth=solved.depth) as stream:
        for loaded in stream:
            solved.time.check()
            X, codes, weight = loaded.chunk
            weights = np.ones(len(codes)) if weight is None else weight.astype(np.float64)
            parts = ((part, operators.margins(part.X, w)) for part in solved.features.parts(X))
            yield loaded.visit, codes, weights, parts
