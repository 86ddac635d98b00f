"""Newton's method in passes: a pass evaluates a point and samples its rows, the next point is found in memory.

    min_w  P(w) = 1/2 ||w||^2 + sum_i C_i l(m_i),   grad = w - sum_i a_i y_i x_i,   a_i = -C_i l'(m_i)

A pass gives P, the gradient and a sample of rows (``solvers.newton.row_sample``) in which every row whose loss may bend nearby, and
every row that is much of its columns, has a large share. A model made of the sample and the exact gradient
(``solvers.newton.surrogate``) is minimized in memory; where it ends the next pass looks. How far it is trusted, and how the
corner of a hinge, rounded over a width 2 mu (``losses.Huber``), narrows on the way, is ``solvers.newton.trust_region``. The a_i of the
rounded loss are a feasible dual point, and

    P - D = smoothing + 1/2 ||grad||^2,    smoothing = sum_i C_i (l(m_i) - b_i (1 - m_i)),   b_i = a_i / C_i.

The first part falls with mu. The second need not be waited for: with the a_i of all other rows fixed, those of the
sample are solved for in memory, which makes the gradient vanish, so that a pass proves nearly what smoothing allows.

References: Keerthi and DeCoste, JMLR 2005; Chapelle, Neural Computation 2007; Shamir, Srebro and Zhang, ICML 2014.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, ClassVar

import numpy as np

from streamsvm.compute.blocks import operators
from streamsvm.compute.blocks.operators import UnformedRows
from streamsvm.compute.passes.newton import leverages, scores_pass, squares
from streamsvm.config.fields import Bounds, Option
from streamsvm.rows import Float64
from streamsvm.solvers.newton.memory import cost_of
from streamsvm.solvers.newton.next_point import NextPoint, more_in_memory, proceed_in_memory, stuck
from streamsvm.solvers.newton.row_sample import (
    LARGEST_SHARE,
    SPARE,
    SPARE_WIDE,
    PrioritySampler,
    is_wide,
    join_alike,
    least_rows,
    sample_rows,
    usual_rows,
)
from streamsvm.solvers.newton.state import NewtonState
from streamsvm.solvers.newton.trust_region import first_mu
from streamsvm.solvers.point_evaluation import DualPoint, PointSums, slopes_at
from streamsvm.solvers.second_derivatives import added, second_derivatives_of
from streamsvm.types import (
    Block,
    Certificate,
    Cost,
    Layout,
    LinearSolution,
    LossRequirement,
    Problem,
    RowState,
    Solver,
)

if TYPE_CHECKING:
    from streamsvm.solvers.elastic_net import ElasticNet

CORNER_REACH = 0.1
"""Rows within so much of the corner, at least, are sampled as if in it."""
SMOOTH_REACH = 0.5
"""The same where the loss is smooth by itself."""
SMALLER = 0.8
"""Where the sample is to fill the memory, the next smaller one has so much of its rows."""


@dataclass(frozen=True, slots=True)
class Newton(Solver[NewtonState]):
    """Settings of Newton's method in passes."""

    sample: Annotated[
        int | None,
        Option(
            "Rows the quadratic model is made of.",
            bounds=Bounds(least=1),
            default="by the number of columns and of rows whose loss bends",
        ),
    ] = None
    narrowing: Annotated[
        float,
        Option(
            "Losses with a corner: the half width mu of the rounded corner falls to this share of itself in a pass, at most.",
            bounds=Bounds(above=0, below=1),
        ),
    ] = 0.24
    polish: Annotated[
        bool,
        Option(
            "Improve the dual point by a sample. Without, the dual variables of every row are known, as --dual needs it."
        ),
    ] = True
    driver_fields: ClassVar[tuple[str, ...]] = ("trust_region", "dual_point", "all_rows", "steps", "exact_steps")
    """Of the state, what visits do not look at: it is not sent to workers."""
    row_state: ClassVar[tuple[RowState, ...]] = ()
    """Empty: what passes on is a few vectors of weights and a sample, and no number per row of the data."""
    shuffled: ClassVar[bool] = False
    """False: no step is taken while rows are read, so that their order does not matter."""
    losses: ClassVar[LossRequirement] = LossRequirement()
    """Any: a dual value follows from two sums over the rows."""
    has_candidates: ClassVar[bool] = True
    has_dual_witness: ClassVar[bool] = True
    stops_early: ClassVar[bool] = True
    warm_start: ClassVar[bool] = True

    def idle(self, problem: Problem) -> dict[str, tuple[str, ...]]:
        return {
            "the elastic net is solved on all rows": ("sample", "polish") if problem.l1 is not None else (),
            "the loss has no corner": ("narrowing",) if problem.loss.smooth() else (),
        }

    def cost(self, problem: Problem, layout: Layout) -> Cost:
        """Bytes of the Hessian where it is explicit, of twenty vectors, and of rows while they are gathered."""
        return cost_of(problem, layout, self.sample)

    def smaller(self, problem: Problem, asked: Collection[str]) -> Newton | None:
        """The same with a sample, or a smaller one; None where it would be too small to be of use, or was ``asked`` for."""
        if "sample" in asked:
            return None
        if is_wide(problem):
            less = int(LARGEST_SHARE * problem.rows if self.sample is None else SMALLER * self.sample)
            return replace(self, sample=less) if less >= least_rows(problem) else None
        if self.sample is None:
            return replace(self, sample=min(problem.rows, usual_rows(problem)))
        return replace(self, sample=self.sample // 2) if self.sample // 2 >= least_rows(problem) else None

    def memory_settings(self) -> dict[str, int | None]:
        """How many rows the model is made of; None: all, or as many as are usual."""
        return {"sample": self.sample}

    def with_l1(self) -> ElasticNet:
        """On all rows, in readings."""
        from streamsvm.solvers.elastic_net import ElasticNet

        return ElasticNet(narrowing=self.narrowing)

    def expected(self, problem: Problem) -> tuple[int, int]:
        """Passes, and rows whose features they ask for in all where they are shown factored pairs."""
        rows = sample_rows(self.sample, problem)
        return (3, rows) if rows == problem.rows else (5, 5 * rows)

    def start(self, problem: Problem) -> NewtonState:
        """Begin at w = 0, or at the warm weights, with a corner as wide as either asks for."""
        p, point = problem.columns + 1, problem.first_weights()
        spare = SPARE_WIDE if self.sample and is_wide(problem) else SPARE
        sampler = PrioritySampler(sample_rows(self.sample, problem), spare=spare)
        return NewtonState(problem, point, first_mu(problem), PointSums(p), sampler, np.zeros(p), point.copy())

    def needs_features(self, state: NewtonState) -> bool:
        """Not at w = 0, where the first model has no gradient to agree with,."""
        return state.passes > 0 or state.problem.warm is not None

    def visit(self, state: NewtonState, block: Block) -> None:
        """Add the block to value, gradient and dual sums at the point, and offer its rows to the sample."""
        f = state.evaluation.add(state.problem, state.smooth, block, state.point)
        if state.summing:
            state.hessian = added(state.hessian, second_derivatives_of(state.problem, block, f))
        if state.gathered or state.looking:
            return
        state.factored = state.factored or operators.is_rounded_when_formed(block.X)
        if state.whole:
            state.margins.append((block.start, block.spread(f)))
        else:
            state.sampler.add(block, f, self._scores(state, block, f))

    def join_gathered(self, states: list[NewtonState]) -> None:
        """Problems that gather all rows have one copy of them."""
        join_alike([state.sampler for state in states if not (state.gathered or state.whole)])

    def sample_bound(self, state: NewtonState) -> float:
        """Of the sample's keys."""
        return state.sampler.bound()

    def set_bound(self, state: NewtonState, bound: float) -> None:
        """Rows of keys beyond the bound are not even taken up."""
        state.sampler.threshold = min(state.sampler.threshold, bound)

    def _scores(self, state: NewtonState, block: Block, f: Float64) -> Float64:
        problem, factored = state.problem, isinstance(block.X, operators.Factored | UnformedRows)
        if state.passes == 0:
            if not factored:
                state.squares += squares(block.X, block.s.astype(np.float64), problem.columns)
            if problem.warm is None:
                return block.s.astype(np.float64)
        share = len(state.point) / problem.rows
        if factored or state.passes == 0:
            scores = np.full(len(f), share)
        else:
            scores = leverages(block.X, 1.0 / (state.squares + 1.0 / problem.C), share)
        width = max(state.mu, CORNER_REACH) if state.mu else SMOOTH_REACH
        scores_pass(block.y, block.s, f, state.smooth, width, scores)
        return scores

    def finish(self, state: NewtonState) -> Certificate:
        """Close the pass: both bounds at the point are exact; then the model is improved and minimized in memory."""
        found = state.evaluation.close(state.problem, state.point)
        state.passes += 1
        if found.primal < state.primal:
            state.primal, state.best = found.primal, state.point
        if found.dual > state.dual:
            state.dual, state.dual_point = found.dual, DualPoint(state.point, state.mu, found.scale)
        led = state.steps or state.trust_region
        facts = {"mu": state.mu, "damping": led.damping if led else 0.0}
        if not state.done:
            NextPoint(self.sample, self.narrowing, self.polish).advance(state, found)
        if state.all_rows is not None:
            facts = state.all_rows.facts()
        state.evaluation.clear()
        state.sampler.clear()
        state.margins, state.hessian = [], None
        return Certificate(state.primal, state.dual, final=stuck(state), facts=facts)

    def pending(self, state: NewtonState) -> bool:
        """Whether the problem in memory is gone on with before the next reading."""
        return more_in_memory(state)

    def proceed(self, state: NewtonState) -> None:
        """Some seconds of work in memory; where they bring nothing a reading comes next."""
        proceed_in_memory(state)

    def set_deadline(self, state: NewtonState, moment: float) -> None:
        """Steps in memory end at ``moment``."""
        state.deadline = moment

    def certify(self, state: NewtonState) -> None:
        """Every pass is an exact evaluation."""

    def part(self, state: NewtonState) -> NewtonState:
        """The point, without the sums and the rows of other parts, and without what led to the point."""
        return replace(
            state,
            evaluation=PointSums(len(state.point)),
            sampler=replace(state.sampler, parts=[], held=0),
            squares=state.squares if state.passes else np.zeros_like(state.squares),
            margins=[],
            trust_region=None,
            dual_point=None,
            all_rows=None,
            steps=None,
            exact_steps=None,
            hessian=None,
        )

    def merge(self, states: list[NewtonState]) -> NewtonState:
        """Add up the sums, join the samples; the points are the same."""
        first = states[0]
        for other in states[1:]:
            first.evaluation.merge(other.evaluation)
            first.sampler.merge(other.sampler)
            first.margins = first.margins + other.margins
            first.factored = first.factored or other.factored
            first.hessian = added(first.hessian, other.hessian)
            if first.passes == 0:
                first.squares = first.squares + other.squares
        return first

    def candidate(self, state: NewtonState) -> Float64:
        """Where the model led; not evaluated yet."""
        return state.point.copy()

    def keeping_dual_point(self) -> Newton:
        """Without polish: the dual point of the certificate stays one whose variables are known of every row."""
        return replace(self, polish=False)

    def witness(self, state: NewtonState) -> NewtonState:
        """The slopes of the rows in memory where theirs is the largest D, and the weights whose slopes are used elsewhere."""
        rows = state.proven_in_memory
        return replace(self.part(state), dual_point=state.dual_point, all_rows=rows and rows.slopes_alone())

    def dual_values(self, state: NewtonState, block: Block) -> Float64 | None:
        """The dual variables (n,) of the largest D: those found in memory, or the slopes at some weights, scaled."""
        if state.proven_in_memory is not None:
            found = state.proven_in_memory.dual_values(block.start, block.span)
            return None if found is None else block.gathered(found)
        if state.dual_point is None:
            return None
        return slopes_at(state.problem, state.dual_point, block)

    def solution(self, state: NewtonState) -> LinearSolution:
        """The point of least primal that was evaluated."""
        return LinearSolution(state.best.copy(), state.problem.bias)
