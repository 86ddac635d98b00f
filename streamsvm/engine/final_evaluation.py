"""Given weights and dual variables over all rows, in one more reading: nothing is trained."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from streamsvm.compute.blocks import operators
from streamsvm.compute.passes.multinomial import multinomial_dual_sum, multinomial_loss_sum
from streamsvm.engine.problem_rows import block_of, own_rows
from streamsvm.engine.training import RowNumbers
from streamsvm.losses import rounded, threshold
from streamsvm.rows import Float64, Rows, row_where
from streamsvm.schedule.plan import epoch_visits
from streamsvm.schedule.stream import Stream
from streamsvm.solvers.dcd.multinomial import ranked
from streamsvm.solvers.point_evaluation import DualSums, PointSums
from streamsvm.types import Block, FeatureMap, Problem, Store

WIDTHS = (0.3, 0.1, 0.03, 0.01, 3e-3, 1e-3)
"""Of a corner rounded off: the slopes of one of them make a good dual point of a loss that has a corner."""
COMPARED_CHUNKS, COMPARED_ROWS = 8, 256
"""Of how many chunks so many rows are mapped twice, to see what float32 does."""


class Evaluation:
    """What is summed over all rows for one problem, at its weights (p,)."""

    def __init__(self, problem: Problem, weights: Float64) -> None:
        loss = problem.loss
        self.problem, self.weights = problem, weights
        self.slopes = [PointSums(len(weights)) for _ in ([loss] if loss.smooth() else WIDTHS)]
        """Of dual points read off the weights: the slopes of the loss, or of it with a rounded corner."""
        self.unit: float | None = None
        """In which widths are said: 1, of margins that have no unit how large they are in the first block; None before that."""
        self.own: DualSums | None = None
        """Of the solver's dual variables, where it has some."""

    def add(self, block: Block, alpha: Float64 | None) -> None:
        """Count a block, with the dual variables (n,) of its rows."""
        loss = self.problem.loss
        if self.unit is None:
            self.unit = self._unit(block)
        smooth = [loss] if loss.smooth() else [rounded(loss, width * self.unit) for width in WIDTHS]
        for sums, one in zip(self.slopes, smooth, strict=True):
            sums.add(self.problem, one, block, self.weights)
        if alpha is not None:
            self.own = self.own or DualSums(len(self.weights))
            self.own.add(self.problem, block, alpha)

    def _unit(self, block: Block) -> float:
        if self.problem.nu is None:
            return 1.0
        found = float(np.abs(operators.margins(block.X, self.weights)).mean()) if len(block.y) else 0.0
        return found or 1.0

    def transform(self, weights: Float64, change: Callable[[Float64], Float64]) -> None:
        """Go to other features, in which the weights are these and ``change`` makes of each v what it is there."""
        self.weights = weights
        for sums in self.slopes:
            sums.v, sums.low = change(sums.vector()), None
            if sums.rows is not None:
                sums.rows.v = change(sums.rows.v)
        if self.own is not None:
            self.own.v, self.own.low = change(self.own.vector()), np.zeros(len(weights))

    def values(self) -> tuple[float, list[float]]:
        """Return P, and D of every dual point there is."""
        found = [sums.close(self.problem, self.weights) for sums in self.slopes]
        return found[0].primal, [point.dual for point in found] + ([self.own.value()] if self.own else [])


class MultinomialEvaluation:
    """The same for a problem of all classes together, at weights (classes, p) and the solver's dual variables.

    Problem and dual: ``compute.passes.multinomial``.
    """

    def __init__(self, problem: Problem, weights: Float64) -> None:
        self.problem, self.weights = problem, weights
        self._v = np.zeros_like(weights)
        """(classes, p) sum_i a_ik x_i."""
        self._losses = self._gain = 0.0

    def add(self, block: Block, alpha: Float64 | None) -> None:
        """Count a block, with the dual variables (n, classes) of its rows."""
        problem = self.problem
        values = operators.margins(block.X, self.weights.T)
        self._losses += multinomial_loss_sum(values, block.y, block.s, problem.C, problem.loss)
        if alpha is not None:
            alpha = np.ascontiguousarray(alpha)
            self._v += operators.adjoint(block.X, alpha, problem.columns).T
            self._gain += multinomial_dual_sum(alpha, block.y, block.s, problem.C, problem.loss)

    def transform(self, weights: Float64, change: Callable[[Float64], Float64]) -> None:
        """Go to other features, in which the weights are these and ``change`` makes of each v what it is there."""
        self.weights, self._v = weights, np.array([change(v) for v in self._v])

    def values(self) -> tuple[float, list[float]]:
        """Return P, and D of the dual variables; of none it is 0, which D(0) is."""
        return 0.5 * float(np.sum(self.weights**2)) + self._losses, [self._gain - 0.5 * float(np.sum(self._v**2))]


@dataclass(slots=True)
class RowsInOrder:
    """Numbers of all rows, taken one part after the other; the chunks they lie in need not be those that are read."""

    states: RowNumbers
    """Where they are."""
    chunk: int = 0
    """The next chunk."""
    rest: Float64 | None = None
    """What is left of the one before, (problems, n)."""

    def take(self, rows: int) -> Float64:
        """Return those of the next rows, (problems, rows)."""
        while self.rest is None or self.rest.shape[1] < rows:
            found = self.states.load(self.chunk).copy()
            self.rest = found if self.rest is None else np.concatenate([self.rest, found], axis=1)
            self.chunk += 1
        taken, self.rest = self.rest[:, :rows], self.rest[:, rows:]
        return taken


def evaluated(  # noqa: PLR0917  what is evaluated, and where
    store: Store,
    features: FeatureMap,
    problems: list[Problem],
    weights: list[Float64],
    dual: RowsInOrder | None,
    dual_values: Callable[[int, Block], Float64 | None] = lambda _k, _block: None,
) -> list[Evaluation | MultinomialEvaluation]:
    """Return the sums of every problem at its weights, and at the dual variables of all rows if there are any.

    ``dual`` has those, or ``dual_values`` says them of problem k and a block of features. Held-out chunks are left out. Raises what reading the store raises.
    """
    found = [
        MultinomialEvaluation(problem, w) if problem.classes else Evaluation(problem, w)
        for problem, w in zip(problems, weights, strict=True)
    ]
    for k, block, alpha in _blocks(store, features, problems, dual):
        found[k].add(block, dual_values(k, block) if alpha is None else alpha)
    return found


class MarginChange(NamedTuple):
    """By how much margins differ between two maps, of some rows all over a store."""

    largest: float = 0.0
    """At most."""
    root_mean_square: float = 0.0
    """As a rule: what float32 rounds has either sign."""


def margins_apart(store: Store, one: FeatureMap, other: FeatureMap, weights: list[Float64]) -> list[MarginChange]:
    """Return for each weights (p,) or (classes, p) what margins are apart in two maps."""
    found: list[list[Float64]] = [[] for _ in weights]
    visits = list(epoch_visits(store.layout, 0, 0, shuffled=False))
    with Stream(store, iter(visits[:: -(-len(visits) // COMPARED_CHUNKS)])) as stream:
        for loaded in stream:
            chosen = np.arange(len(loaded.chunk.codes)) < COMPARED_ROWS
            values = [_decision_values(map_, row_where(loaded.chunk.X, chosen), weights) for map_ in (one, other)]
            for differences, f, g in zip(found, *values, strict=True):
                differences.append(f.ndim * np.abs(f - g).ravel())  # of classes a margin is a difference of two values
    return [_margin_change(np.concatenate(differences)) for differences in found]


def _margin_change(differences: Float64) -> MarginChange:
    return MarginChange(float(differences.max(initial=0.0)), float(np.sqrt(np.mean(np.square(differences)))))


def _decision_values(map_: FeatureMap, X: Rows, weights: list[Float64]) -> list[Float64]:
    """Those of rows, which the map may change, (n,) or (n, classes) for each."""
    parts = [[operators.margins(part.X, w.T) for w in weights] for part in map_.parts(X)]
    return [np.concatenate(values) for values in zip(*parts, strict=True)]


def weight_that_costs(
    store: Store, features: FeatureMap, problems: list[Problem], weights: list[Float64], off: list[float]
) -> list[float]:
    """Return for every problem sum C_i of the rows that cost something at its weights, or would if margins are off by ``off``."""
    found = [0.0] * len(problems)
    for k, block, _ in _blocks(store, features, problems, None):
        problem, m = problems[k], _margins(problems[k], block, weights[k])
        near = m < threshold(problem.loss) + off[k]
        found[k] += problem.C * float(block.s[near].sum(dtype=np.float64))
    return found


def _margins(problem: Problem, block: Block, weights: Float64) -> Float64:
    """The margins m_i (n,) of a block's rows."""
    if problem.classes:
        return ranked(operators.margins(block.X, weights.T), block.y.astype(np.int32))[0]
    return block.y * operators.margins(block.X, weights)


class _ProblemBlock(NamedTuple):
    """A block of a problem, and its dual variables (n,) where they are known."""

    problem: int
    block: Block
    alpha: Float64 | None


def _blocks(
    store: Store, features: FeatureMap, problems: list[Problem], dual: RowsInOrder | None
) -> Iterator[_ProblemBlock]:
    """All blocks of all problems but those of held-out chunks, in one reading; each is valid until the next."""
    starts = np.concatenate([[0], np.cumsum(store.layout.chunks)]).tolist()
    with Stream(store, epoch_visits(store.layout, 0, 0, shuffled=False)) as stream:
        for loaded in stream:
            chunk = loaded.visit.chunk
            alpha = None if dual is None else dual.take(len(loaded.chunk.codes))
            for part in features.parts(loaded.chunk.X):
                for k, problem in enumerate(problems):
                    if chunk in problem.held_out:
                        continue
                    block = block_of(problem, loaded, part, starts[chunk], reused=True)
                    if block is None:
                        continue
                    mine = None if alpha is None else own_rows(alpha[k, part.start : part.stop], block.places)
                    yield _ProblemBlock(k, block, mine)
