"""Kinds of problems: one-vs-rest, one-vs-one, regression, one-class and multinomial.

Each kind is a Python class. A problem has a kind, a loss and a regularizer (``types.problem``). The regularizers are in
the modules of their mathematics: the elastic net and the l1 ball in ``regularizers``, one-class with a free offset in
``one_class``, and the nu-SVM for two classes in ``nu``.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from streamsvm.class_tags import saved_as
from streamsvm.compute.blocks import operators
from streamsvm.compute.passes.dcd import multinomial_loss_sum
from streamsvm.errors import UsageError
from streamsvm.losses import threshold
from streamsvm.rows import Float32, Float64, Targets
from streamsvm.solvers.evaluation import Evaluation, MultinomialEvaluation, PointSums, margins_to_next
from streamsvm.type_aliases import Array, JsonObject
from streamsvm.types import AnySolver, Block, Kind, Loss, Problem
from streamsvm.types.problem import BINARY


class OneFunction(Kind):
    """Kinds with one decision function."""

    __slots__ = ()

    def start_evaluation(self, problem: Problem, w: Float64, unit: float) -> Evaluation:
        """Return empty sums over the rows of a problem."""
        return Evaluation(problem, w, unit)


@saved_as("kind.one_against_rest")
@dataclass(frozen=True, slots=True)
class OneAgainstRest(OneFunction):
    """One-vs-rest: a class (+1) against all others (-1)."""

    positive: int
    """The code of the class that is +1."""

    @property
    def positives(self) -> tuple[int, ...]:
        return (self.positive,)

    def targets(self, codes: Array) -> Targets:
        y = (codes == self.positive).astype(np.float32)
        y *= 2  # takes a quarter of the time of np.where
        y -= 1
        return y


@saved_as("kind.one_vs_one")
@dataclass(frozen=True, slots=True)
class OneVsOne(OneAgainstRest):
    """One-vs-one: a class (+1) against another one (-1). Rows of other classes do not belong to the problem."""

    negative: int
    """The code of the class that is -1."""
    selects_rows: ClassVar[bool] = True
    votes: ClassVar[bool] = True

    def select(self, codes: Array) -> Array:
        chosen: Array = (codes == self.positive) | (codes == self.negative)
        return chosen

    def facts(self) -> JsonObject:
        return {"positive": self.positive, "negative": self.negative}


@saved_as("kind.regression")
@dataclass(frozen=True, slots=True)
class Regression(OneFunction):
    """Regression: targets t_i are predicted by f(x); m_i = f(x_i) - t_i."""

    center: float = 0.0
    """With a free intercept: subtracted from every target, and added to the intercept of the solution. As sum a_i = 0,
    P and D do not change. Without it both would be differences of large numbers if targets are far from 0."""

    @property
    def positives(self) -> tuple[int, ...]:
        return (0,)

    def targets(self, codes: Array) -> Targets:
        """Return the targets minus the center; not a copy if the center is 0."""
        return codes - self.center if self.center else codes

    def signs(self, y: Targets) -> Float64:
        return np.ones(len(y))

    def margins(self, f: Float64, y: Targets) -> Float64:
        residuals: Float64 = f - y
        return residuals

    def outcomes(self, codes: Array, positives: list[int], factors: Float32 | Float64) -> Array:
        return codes


@saved_as("kind.one_class")
@dataclass(frozen=True, slots=True)
class OneClass(OneFunction):
    """One-class: all rows have the sign +1, whatever their codes."""

    one_class: ClassVar[bool] = True

    @property
    def positives(self) -> tuple[int, ...]:
        return (-1,)

    def targets(self, codes: Array) -> Targets:
        return np.ones(len(codes), np.float32)

    def decision_margin(self, loss: Loss) -> float:
        """Return the margin of the loss, which is 0 if the offset is free: rows with a value above it are inliers."""
        return threshold(loss)

    def outcomes(self, codes: Array, positives: list[int], factors: Float32 | Float64) -> Array:
        """Return 1 for rows on which the class is trained, 0 for all others."""
        return (factors > 0.0).astype(np.int32)


@saved_as("kind.multinomial")
@dataclass(frozen=True, slots=True)
class Multinomial(Kind):
    """All classes in one problem, each by weights of its own (Crammer and Singer, JMLR 2, 2001; ``solvers.dcd``).

    m_i is how far the decision value of a row's class is above all others. The targets are the codes of the classes.
    """

    classes: int = field()
    positive: int = 0
    """Of two classes, the one that a positive decision value of the model stands for."""
    entries: ClassVar[float] = 2.0
    refusal: ClassVar[str] = "does not solve for all classes together"

    @property
    def positives(self) -> tuple[int, ...]:
        return tuple(range(self.classes)) if self.classes > BINARY else (self.positive,)

    def targets(self, codes: Array) -> Targets:
        return codes.astype(np.float32)

    def signs(self, y: Targets) -> Float64:
        """Return +1, the sign in the weights of the row's own class."""
        return np.ones(len(y))

    def margins(self, f: Float64, y: Targets) -> Float64:
        return margins_to_next(f, y.astype(np.int32))[0]

    def shape(self, w: Float64) -> Float64:
        return w.reshape(self.classes, -1)

    def decision_weights(self, w: Float64) -> Float64:
        """Return the weights of all classes; for two classes, their difference."""
        rows = self.shape(w)
        return rows[[self.positive]] - rows[[1 - self.positive]] if self.classes == BINARY else rows

    def adapt(self, solver: AnySolver) -> AnySolver | None:
        """Return the form of the solver for multinomial problems, or None. Raises UsageError if a setting has no effect
        in this form.
        """
        from streamsvm.solvers.dcd import DCD, MultinomialDCD
        from streamsvm.solvers.interior_point_multinomial import MultinomialInteriorPoint
        from streamsvm.solvers.interior_point_out_of_core import InteriorPoint

        if isinstance(solver, DCD):
            if solver.shrinking or solver.online:
                what = "shrinking" if solver.shrinking else "online"
                raise UsageError(f"all classes in one problem are not solved with {what}", hint=f"leave out {what}")
            return MultinomialDCD(solver.sweeps, solver.parts, classes=self.classes)
        if isinstance(solver, InteriorPoint):
            if solver.kept is not None:
                raise UsageError("all classes in one problem are solved with all rows", hint="leave out kept")
            return MultinomialInteriorPoint(self.classes)
        return None

    def start_evaluation(self, problem: Problem, w: Float64, unit: float) -> MultinomialEvaluation:
        """Return empty sums over the rows of a problem."""
        return MultinomialEvaluation(problem, w)

    def add_block(self, sums: PointSums, problem: Problem, block: Block, w: Float64) -> None:
        """Add the block to the sums for P alone. The slopes would be a poor dual point, and the solver has a better
        one.
        """
        values = operators.margins(block.X, self.shape(w).T)
        losses = multinomial_loss_sum(values, block.y, block.s, problem.C, problem.loss)
        sums.sums = sums.sums.plus((losses, losses, 0.0, 0.0))
