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

import time
from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Annotated, ClassVar

import numpy as np

from streamsvm.compute.blocks import operators
from streamsvm.compute.passes.newton import leverages, scores_pass, squares
from streamsvm.config.fields import Bounds, Option
from streamsvm.rows import Float64
from streamsvm.solvers.newton.in_memory.all_rows import AllRows
from streamsvm.solvers.newton.inner_solver import polished_dual
from streamsvm.solvers.newton.memory import cost_of
from streamsvm.solvers.newton.out_of_core import Reading, first_steps
from streamsvm.solvers.newton.row_sample import (
    LARGEST_SHARE,
    SPARE,
    SPARE_WIDE,
    PrioritySampler,
    Sample,
    is_wide,
    join_alike,
    least_rows,
    sample_rows,
    usual_rows,
)
from streamsvm.solvers.newton.state import NewtonState
from streamsvm.solvers.newton.surrogate import model_at
from streamsvm.solvers.newton.trust_region import TrustRegion, first_damping, first_mu
from streamsvm.solvers.point_evaluation import DualPoint, PointEvaluation, PointSums, slopes_at
from streamsvm.types import (
    Block,
    Certificate,
    Cost,
    Layout,
    LinearSolution,
    LossRequirement,
    Problem,
    RowState,
    WarmStart,
)

CORNER_REACH = 0.1
"""Rows within so much of the corner, at least, are sampled as if in it."""
SMOOTH_REACH = 0.5
"""The same where the loss is smooth by itself."""
SMALLER = 0.8
"""Where the sample is to fill the memory, the next smaller one has so much of its rows."""
STALLED, STALLED_PASSES = 0.9, 3
"""A sample leads nowhere where the gap is still this share of what it was so many passes ago."""
NOTHING = 0.99
"""What a step in memory leaves of the gap, where it brings nothing."""
STUCK_PASSES = 15
"""... and where all rows do not fit, nothing else does: the run ends after so many."""


@dataclass(frozen=True, slots=True)
class Newton(WarmStart):
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
    driver_fields: ClassVar[tuple[str, ...]] = ("trust_region", "dual_point", "all_rows", "steps")
    """Of the state, what visits do not look at: it is not sent to workers."""
    row_state: ClassVar[tuple[RowState, ...]] = ()
    """Empty: what passes on is a few vectors of weights and a sample, and no number per row of the data."""
    shuffled: ClassVar[bool] = False
    """False: no step is taken while rows are read, so that their order does not matter."""
    losses: ClassVar[LossRequirement] = LossRequirement()
    """Any: a dual value follows from two sums over the rows."""

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

    def visit(self, state: NewtonState, block: Block) -> None:
        """Add the block to value, gradient and dual sums at the point, and offer its rows to the sample."""
        f = state.evaluation.add(state.problem, state.smooth, block, state.point)
        if state.gathered:
            return
        state.factored = state.factored or isinstance(block.X, operators.Factored)
        if state.whole:
            state.margins.append((block.start, f))
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
        problem, factored = state.problem, isinstance(block.X, operators.Factored)
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
        if not self._done(state):
            self._advance(state, found)
        if state.all_rows is not None:
            facts = state.all_rows.facts()
        state.evaluation.clear()
        state.sampler.clear()
        state.margins = []
        return Certificate(state.primal, state.dual, final=_stuck(state), facts=facts)

    def _done(self, state: NewtonState) -> bool:
        return state.primal - state.dual <= state.problem.tolerance * abs(state.primal)

    def _advance(self, state: NewtonState, found: PointEvaluation) -> None:
        """Judge the model that led here, make a better one, and go where it says; or solve the problem itself."""
        if state.all_rows is not None:
            state.all_rows.confirmed(found.primal)
            before = state.all_rows.advances
            self._solve_in_memory(state, state.all_rows)
            state.pending = before
            return
        if self._stalled(state):
            state.sampler.limit, state.trust_region, state.point = state.problem.rows, None, state.best
            state.gaps = []
            return
        if state.trust_region is not None and not state.trust_region.accept(found):
            self._go(state, state.trust_region)
            return
        sample = self._sample(state)
        if sample is None:
            return
        if sample.complete and not state.factored:
            state.all_rows = AllRows(state.problem, sample, state.point.copy(), state.point.copy(), mu=state.mu)
            state.gathered, state.trust_region = True, None
            self._solve_in_memory(state, state.all_rows)
        elif is_wide(state.problem) and not sample.complete and not state.factored:
            self._step_by_sample(state, found, sample)
        else:
            self._step_by_matrix(state, found, sample)

    def _step_by_matrix(self, state: NewtonState, found: PointEvaluation, sample: Sample) -> None:
        """Improve the dual bound by the sample, and go where a model says whose Hessian is a matrix."""
        state.trust_region = self._trust_region_at(state, found, sample)
        near = found.smoothing <= 2.0 * state.problem.tolerance * abs(found.primal)
        if self.polish and near and not sample.complete:
            polished = polished_dual(state.problem, sample, state.smooth, found, state.point, state.deadline)
            state.dual = max(state.dual, polished)
            if self._done(state):
                return
        self._go(state, state.trust_region)

    def _step_by_sample(self, state: NewtonState, found: PointEvaluation, sample: Sample) -> None:
        """Improve the dual bound and go where a sample says, if this point is no worse than the last one; else try again there."""
        steps = state.steps or first_steps(state.problem, found, sample, state.point, state.mu)
        first, state.steps = state.steps is None, steps
        known = (state.squares, state.primal, state.dual, state.deadline)
        reading = Reading(found, sample, state.point, state.mu, *known)
        if (first or steps.accept(found, state.point, state.mu)) and self.polish:
            state.dual = max(state.dual, steps.dual(reading))
        if self.sample is not None:
            state.gaps.append((state.primal - max(state.dual, 0.0)) / abs(state.primal))
        if not self._done(state):
            state.point, state.mu = steps.next_point(reading._replace(dual=state.dual), self.narrowing)

    def _solve_in_memory(self, state: NewtonState, rows: AllRows) -> None:
        """Go where the problem with all its rows in memory is solved, or is nearer to it."""
        before = rows.work
        rows.advance(state.deadline)
        state.dual = max(state.dual, rows.dual)
        if rows.work == before:
            state.gaps.append((rows.primal - max(rows.dual, 0.0)) / abs(rows.primal))
        state.point, state.mu = rows.best, 0.0

    def pending(self, state: NewtonState) -> bool:
        """See ``types.StepsBetweenPasses``: whether the problem in memory is gone on with before the next reading.

        As often as it was gone on with before: what is solved soon is confirmed soon, and readings grow with the logarithm of the work.
        """
        rows = state.all_rows
        return rows is not None and state.pending > 0 and not rows.solved and time.perf_counter() < state.deadline

    def proceed(self, state: NewtonState) -> None:
        """See ``types.StepsBetweenPasses``: some seconds of work in memory; where they bring nothing a reading comes next."""
        rows = state.all_rows
        assert rows is not None  # ``pending`` says so
        before = rows.lacks
        self._solve_in_memory(state, rows)
        state.pending = state.pending - 1 if rows.lacks < NOTHING * before else 0

    def _stalled(self, state: NewtonState) -> bool:
        """Whether a sample leads nowhere: the gap is not a tenth smaller than some passes ago. All rows are gathered then."""
        if state.whole or state.factored or self.sample is not None or not self.polish:
            return False
        state.gaps.append((state.primal - state.dual) / abs(state.primal))
        if len(state.gaps) <= STALLED_PASSES:
            return False
        return state.gaps[-1] > STALLED * state.gaps[-1 - STALLED_PASSES]

    def _sample(self, state: NewtonState) -> Sample | None:
        """Of the rows of this pass, or the one of all rows there was before."""
        if state.whole and state.trust_region is not None:
            return state.trust_region.model.sample.seen_again(state.margins)
        sample = state.sampler.sample()
        state.whole = sample is not None and sample.complete
        return sample

    def _trust_region_at(self, state: NewtonState, found: PointEvaluation, sample: Sample) -> TrustRegion:
        """A model around the point that was just looked at."""
        problem, w, factor = state.problem, state.point, sample.s / sample.probability
        model = model_at(problem, sample, factor, w)
        if not state.squares.any():  # the blocks are factored
            state.squares = squares(sample.X, factor, problem.columns)
        if state.passes > 1 or problem.warm is not None:
            model.shift = model.weighted_sum(model.values_at(state.smooth, w)) - found.v
        damping = state.trust_region.damping if state.trust_region else first_damping(sample, len(w))
        return TrustRegion(model, state.mu, found.value, damping)

    def _go(self, state: NewtonState, trust_region: TrustRegion) -> None:
        trust_region.model.deadline = state.deadline
        if state.passes == 1 and state.problem.warm is None:
            state.point, state.mu = trust_region.begin(state.primal)
        else:
            state.point, state.mu = trust_region.next_point(state.primal, self.narrowing, state.squares)

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
        )

    def merge(self, states: list[NewtonState]) -> NewtonState:
        """Add up the sums, join the samples; the points are the same."""
        first = states[0]
        for other in states[1:]:
            first.evaluation.merge(other.evaluation)
            first.sampler.merge(other.sampler)
            first.margins = first.margins + other.margins
            first.factored = first.factored or other.factored
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
            return state.proven_in_memory.dual_values(block.start, len(block.y))
        if state.dual_point is None:
            return None
        return slopes_at(state.problem, state.dual_point, block)

    def solution(self, state: NewtonState) -> LinearSolution:
        """The point of least primal that was evaluated."""
        return LinearSolution(state.best.copy(), state.problem.bias)


def _stuck(state: NewtonState) -> bool:
    """Whether samples lead nowhere and all rows do not fit, or no step is made any more with all rows in memory."""
    gaps = state.gaps if state.steps is not None or state.all_rows is not None else []
    return len(gaps) > STUCK_PASSES and gaps[-1] > STALLED * gaps[-1 - STUCK_PASSES]
