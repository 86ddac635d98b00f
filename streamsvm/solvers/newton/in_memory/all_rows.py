"""The problem itself, all its rows in memory: solved between two readings, which only confirm what was found.

A loss without bound on its dual variables (the squared hinge) is smooth: Newton's method (``newton_steps``), but of sparse rows of about one
length, such as texts, dual coordinate descent first, which is twice as fast there (``coordinate_descent``). So are losses whose
corner is rounded, where a matrix of all columns is affordable: there are then many rows a column, and a few thousand of
them already say about where the optimum is. All other problems begin with dual coordinate descent (``coordinate_descent``); where that
does not move, of sparse rows, the columns they share are held near a center that moves (``proximal_descent``).
Where Newton's steps stay short, and where descent is too slow, an interior point (``interior_point``).
A loss whose conjugate is no parabola (the logistic one) bends everywhere and has no corner to get stuck at: Newton's method alone.
Columns are scaled by the preconditioner alone: the regularizer stays ||w||^2 in the columns as they are given.

D is evaluated in float64 on all rows, at dual variables that are feasible: a lower bound whatever was rounded on the way to them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from streamsvm.compute.passes.in_memory.all_rows import Interior, value_pass
from streamsvm.losses import threshold
from streamsvm.rows import CSR, Float64
from streamsvm.solvers.newton.in_memory.coordinate_descent import CoordinateDescent, DescentState
from streamsvm.solvers.newton.in_memory.linear_systems.preconditioner import ArrowPreconditioner
from streamsvm.solvers.newton.in_memory.memory_rows import MemoryRows
from streamsvm.solvers.newton.in_memory.newton_steps import TARGET, NewtonSteps, has_interior_point
from streamsvm.solvers.newton.in_memory.outer_terms import NO_DUAL_POINT, DualValue, OuterTerms
from streamsvm.solvers.newton.in_memory.proximal_descent import ProximalDescent, ProximalState
from streamsvm.solvers.newton.in_memory.proximal_metric import lengths_differ
from streamsvm.solvers.newton.row_sample import Sample
from streamsvm.tags import saved_as
from streamsvm.types import Problem
from streamsvm.types.problem import has_box

MARGIN = 0.9
"""Of the tolerance: the gap in memory at which the next reading is to confirm it."""
STEPS_INSIDE = 200
"""Of the interior point between two readings, at most. Where it gets anywhere it needs 20 to 60 in all."""
THIN, THIN_PER_COMPONENT = 2_000, 40
"""Newton's method begins with every k-th row, if that leaves so many, ..."""
THIN_TOLERANCE = 1e-2
"""... which tell the optimum no better than to this gap, ..."""
THIN_MU = 0.1
"""... and which rows are in the corner no better than to such margins."""


@saved_as("newton.all_rows")
@dataclass(slots=True)
class AllRows:
    """What is known between two readings. ``w`` is where the iteration is, ``best`` the least primal it has met."""

    problem: Problem
    """What is solved: loss, C, the number of rows and columns, the weights to start from."""
    sample: Sample
    """All rows that count."""
    w: Float64
    """(columns + 1,) the weights the next iteration begins at."""
    best: Float64
    """(columns + 1,) the weights of least P so far: the next reading confirms them."""
    primal: float = np.inf
    """P of ``best``, summed over the rows in memory; inf before the first iteration."""
    dual: float = -np.inf
    """The largest D met; -inf before the first iteration."""
    interior: Interior | None = None
    """Dual variables and multipliers of the interior point; None as long as Newton's method on P is at work."""
    target: float = TARGET
    """The share of the gap allowed at which conjugate gradients may end; falls where that did not do."""
    steps: int = 0
    """Newton steps on P and iterations of the interior point so far."""
    short: int = 0
    """How many of the Newton steps were shorter than SHORT_STEP."""
    products: int = 0
    """Products of X' diag(h) X with a vector so far, which is what the work costs."""
    outer: OuterTerms | None = None
    """What of the objective is not a sum over rows; None: 1/2 ||w||^2."""
    wanted: float = 0.0
    """The gap that is asked for; 0: the problem's tolerance says it."""
    share: float = 0.0
    """This share of the decrease that was reached will do, where that is more."""
    first: float = np.inf
    """The objective where the iteration began."""
    mu: float = 0.0
    """Half the width over which a corner is rounded; 0: it is not."""
    descent: DescentState | None = None
    """Where dual coordinate descent is, or was when it was left; None before its first round."""
    slopes: Float64 | None = None
    """(n,) a_i y_i of the largest D met; None before."""
    advances: int = 0
    """How often it was gone on with."""

    @property
    def allowed(self) -> float:
        """The gap that is asked for."""
        if not self.wanted:
            return self.problem.tolerance * abs(self.primal)
        return max(self.wanted, self.share * (self.first - self.primal)) if self.share else self.wanted

    @property
    def size(self) -> float:
        """What gaps are relative to."""
        return self.allowed / self.problem.tolerance if self.problem.tolerance else abs(self.primal)

    @property
    def solved(self) -> bool:
        """Whether the gap, with all rows in memory, is what is asked for."""
        return bool(self.primal < np.inf) and self.primal - self.dual <= MARGIN * self.allowed

    @property
    def lacks(self) -> float:
        """What falls from step to step: the gap; of proximal descent, which proves nothing for long, its least lag."""
        if isinstance(self.descent, ProximalState) and self.descent.gaps and self.interior is None:
            return min(self.descent.gaps) * abs(self.primal)
        return self.primal - self.dual

    @property
    def work(self) -> tuple[int, int, int]:
        """Steps, products and rounds of descent so far: what is the same after ``advance`` as before has made none."""
        return self.steps, self.products, 0 if self.descent is None else len(self.descent.gaps)

    def facts(self) -> dict[str, Any]:
        """What there is to say of it in the events of a run."""
        held = "proximal " if isinstance(self.descent, ProximalState) else ""
        method = "newton" if self.descent is None or self.steps else f"{held}dual coordinate descent"
        method = method if self.interior is None else "interior point"
        return {"rows": "all in memory", "method": method, "steps": self.steps, "products": self.products}

    def advance(self, deadline: float) -> None:
        """Iterate until the gap is small enough, or until so much was done as a step between two readings may take."""
        self.advances += 1
        rows = MemoryRows(self.sample, self.problem, deadline, self.outer)
        preconditioner = ArrowPreconditioner(rows.X, self.problem.columns, rows.outer.diagonal)
        if self.interior is None and self._like_texts(rows, preconditioner):
            CoordinateDescent(self, rows).run()
            self.w = self.best
        if not self._over(rows):
            self._by_newton_or_descent(rows, preconditioner, deadline)
        if has_interior_point(self.problem.loss) and not self._over(rows):
            self._inside(rows, preconditioner)
        self.products += rows.products

    def _over(self, rows: MemoryRows) -> bool:
        """Whether a reading comes next: there is something for it to confirm."""
        return self.solved or (rows.exhausted and self.primal < np.inf)

    def _by_newton_or_descent(self, rows: MemoryRows, preconditioner: ArrowPreconditioner, deadline: float) -> None:
        """What comes before an interior point."""
        loss = self.problem.loss
        rounded, open_ended = loss.smooth() or self.mu > 0.0, not (has_box(loss) and has_interior_point(loss))
        if self.interior is None and rounded and (preconditioner.whole or open_ended):
            if not self.steps:
                self._begin(rows, deadline)
            NewtonSteps(self, rows, preconditioner).run()
        elif self.interior is None and self.outer is None:
            self._descend(rows, preconditioner)

    def _like_texts(self, rows: MemoryRows, preconditioner: ArrowPreconditioner) -> bool:
        """Whether a loss without corners has dual coordinate descent first: of sparse rows of about one length, until it is left."""
        smooth = has_interior_point(self.problem.loss) and not has_box(self.problem.loss)
        if not smooth or self.outer is not None or preconditioner.whole:
            return False
        if self.descent is not None:
            return not self.descent.left
        return isinstance(rows.X, CSR) and not lengths_differ(rows.X, self.problem.columns)

    def _descend(self, rows: MemoryRows, preconditioner: ArrowPreconditioner) -> None:
        """Dual coordinate descent; where that is left, or of rows so different not begun, the same with shared columns held."""
        X = rows.X if isinstance(rows.X, CSR) and not preconditioner.whole else None
        held = isinstance(self.descent, ProximalState)
        if not held and not (self.descent is None and X is not None and lengths_differ(X, self.problem.columns)):
            CoordinateDescent(self, rows).run()
        left = self.descent is not None and self.descent.left
        if X is not None and (self.descent is None or left != held) and not (self.solved or rows.exhausted):
            ProximalDescent(self, rows, preconditioner, X).run()

    def _begin(self, rows: MemoryRows, deadline: float) -> None:
        """Go to about the optimum of a part of the rows, if they are many."""
        problem = self.problem
        step = rows.count // max(THIN, THIN_PER_COMPONENT * (problem.columns + 1))
        if step > 1 and not self.w.any() and self.outer is None:
            few = self.sample.every(step)
            coarse = replace(problem, C=step * problem.C, tolerance=max(THIN_TOLERANCE, problem.tolerance))
            part = AllRows(coarse, few, self.w, self.w, mu=self.mu)
            in_memory = MemoryRows(few, coarse, deadline)
            ones = in_memory.outer.diagonal
            NewtonSteps(part, in_memory, ArrowPreconditioner(few.X, problem.columns, ones)).run()
            self.w = part.best
            if self.mu:
                self.mu = max(part.mu, THIN_MU * threshold(problem.loss))

    def dual_values(self, start: int, count: int) -> Float64 | None:
        """Return a_i (count,) of the largest D met, of the rows with global numbers from ``start``; those not here have 0."""
        if self.slopes is None:
            return None
        low, high = np.searchsorted(self.sample.row, (start, start + count))
        found = np.zeros(count)
        found[self.sample.row[low:high] - start] = self.slopes[low:high] * self.problem.task.signs(
            self.sample.y[low:high]
        )
        return found

    def slopes_alone(self) -> AllRows:
        """Return what ``dual_values`` looks at: signs, numbers and slopes of the rows, but not the rows."""
        none = np.empty(0)
        sample = self.sample._replace(X=None, s=none, probability=none, f=none)
        return replace(self, sample=sample, w=none, best=none, interior=None, descent=None, outer=None)

    def seen(self, rows: MemoryRows, w: Float64, losses: float, dual: DualValue, slopes: Float64 | None) -> None:
        """An iterate was evaluated: the sum of its losses, and the value of the dual point with a_i y_i = ``slopes`` (n,), scaled.

        None: it was no dual point, and its value is -inf.
        """
        primal = rows.outer.value(w) + losses
        if self.primal == np.inf:
            self.first = primal
        if primal < self.primal:
            self.primal, self.best = primal, w
        if dual.value > self.dual:
            self.dual, self.slopes = dual.value, None if slopes is None else dual.scale * slopes

    def confirmed(self, primal: float) -> None:
        """Take in what a reading has found P of ``best`` to be: where it is more, the problem is not as solved as it seemed."""
        self.primal = max(self.primal, primal)

    def _look(self, rows: MemoryRows) -> None:
        """Evaluate the iterate, before it is left for a point that is farther from the optimum."""
        none = np.zeros(rows.count)
        losses, *_ = value_pass(rows.terms, rows.values(self.w), Interior(none, none, none), np.empty(rows.count))
        self.seen(rows, self.w, losses, NO_DUAL_POINT, None)

    def _inside(self, rows: MemoryRows, preconditioner: ArrowPreconditioner) -> None:
        """Iterations until the gap is small enough, or it is time for a reading."""
        from streamsvm.solvers.newton.in_memory.interior_point import Centering, InteriorStep, Iterate

        at = self.interior
        if at is None:
            self._look(rows)
            self.w, at, centered = Centering(rows, preconditioner).run(self.w)
            self.interior = at if centered else None
        f, slopes = rows.values(self.w), np.empty(rows.count)
        for _ in range(STEPS_INSIDE):  # numbers that float64 cannot hold together keep it from the end for ever
            losses, linear, quadratic, products = value_pass(rows.terms, f, at, slopes)
            v, linear = rows.weighted_sum(slopes), linear + rows.gained(slopes)
            self.seen(rows, self.w, losses, rows.outer.dual(self.problem.loss, linear, quadratic, v), slopes)
            if self.solved or rows.exhausted:
                return
            step = InteriorStep(rows, preconditioner, at, Iterate(self.w, f, v, products))
            self.w, f = step.take(self.allowed)
            self.steps += 1
